"""Labels as users give them: which are refused, which are warned of, and their indices among the classes."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.multiclass import check_classification_targets

from onnxtrain.errors import DataError, warn
from onnxtrain.estimators.protocols import ArrayLike
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.validation import FOR_EACH_TARGET, one_column
from onnxtrain.registry import did_you_mean

#: The labels of more classes are not compared.
_MANY_CLASSES = 1000

#: The number of the labels -1, 0 and 1, which are often classes.
_SIGNS = 3

#: The label of pixels without a class in many masks, the largest of 8 bits.
_VOID = 255

#: Fewer different integers may be classes of any number of rows.
_MANY_INTEGERS = 20

#: Integers with fewer rows each, and with gaps between them, look like numbers rather than classes.
_FEW_ROWS = 5


def warn_of_spaces(classes: np.ndarray) -> None:
    """Warn of labels that differ only in spaces at their ends, and of missing labels that became strings."""
    words = [str(label) for label in classes] if classes.dtype.kind in "OU" and len(classes) <= _MANY_CLASSES else []
    if len(words) > 1 and (missing := [word for word in words if word in ("", "nan", "None", "<NA>", "NaT")]):
        warn(
            f"The label {missing[0]!r} is a class of its own, but looks like a missing label that was converted to a "
            f"string. If it is one, leave these rows out: known = numpy.asarray(y) != {missing[0]!r}, fit(X[known], "
            "y[known])."
        )
    for word in words:
        if word != word.strip() and word.strip() in words and word.strip():
            warn(
                f"The labels {word!r} and {word.strip()!r} differ only in spaces, but are two classes. If they are "
                "one, strip the labels: pandas.Series(y).str.strip()."
            )


def warn_of_joined(classes: np.ndarray) -> None:
    """Warn of a label such as 'red,round' whose parts are labels, too: probably several labels of a row."""
    words = {*map(str, classes)} if classes.dtype.kind in "OU" and len(classes) <= _MANY_CLASSES else set()
    for separator in (", ", ",", ";", "|"):
        joined = [word for word in sorted(words) if separator in word and {*word.split(separator)} <= words]
        if joined:
            warn(
                f"The label {joined[0]!r} is a class of its own, but its parts are labels, too. For several labels per "
                f"row, pass pandas.Series(y).str.get_dummies({separator!r}), an indicator matrix."
            )


def warn_of_unlabeled(classes: np.ndarray) -> None:
    """Warn of the label -1 beside 0, 1, 2, ..., which marks a row without a label in scikit-learn and pandas."""
    if classes.dtype.kind == "i" and len(classes) > _SIGNS and np.array_equal(classes, np.arange(len(classes)) - 1):
        warn(
            "The label -1 is a class of its own, but marks a row without a label in scikit-learn and in codes of "
            "pandas. If it does here, leave these rows out: known = numpy.asarray(y) != -1, fit(X[known], y[known])."
        )


def warn_of_void(classes: np.ndarray) -> None:
    """Warn of the label 255 above a gap, which marks pixels without a class; a mask of two classes may be 0 and 255."""
    if classes.dtype.kind == "i" and len(classes) >= _SIGNS and classes[-1] == _VOID and classes[-2] < _VOID - 1:
        warn(
            f"y has the label {_VOID}, which is trained as a class. If it marks positions that do not count, set "
            f"ignore_index={_VOID}. If it is a class, set ignore_index=None."
        )


def warn_of_numbers(y: np.ndarray) -> None:
    """Warn of a classifier that gets a regression target: many integers with gaps, and few rows for each.

    scikit-learn warns of fewer than two rows for each.
    """
    if y.dtype.kind not in "fiu":
        return
    classes = np.unique(y)
    n = len(classes)
    if n >= _MANY_INTEGERS and 2 * n <= len(y) < _FEW_ROWS * n and classes[-1] - classes[0] >= n:
        warn(
            f"y has {n} different integers in {len(y)} rows, from {classes[0]:g} to {classes[-1]:g}, and each is a "
            "class of its own. To learn them as numbers, use OrtGradientRegressor."
        )


@as_data_error()
def check_classes(y: np.ndarray) -> np.ndarray:
    """Return labels as (n,), or as a multilabel indicator matrix, int64 (n, K).

    Raises
    ------
    DataError
        The labels are continuous, bytes, in several columns with values other than 0 and 1, or cannot be sorted.
    """
    if np.asarray(y).dtype.kind in "mM" or isinstance(next(iter(np.ravel(y)), None), (date, timedelta)):
        raise DataError(
            "y contains dates or durations as labels. Convert them to strings, numpy.asarray(y).astype(str), which can "
            "be learned."
        )
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn casts NaN to integers
            check_classification_targets(y)
    except (TypeError, ValueError) as e:
        if isinstance(e, ValueError) and np.asarray(y).dtype != object:
            remedy = "Use OrtGradientRegressor to learn numbers."
            if np.asarray(y).dtype.kind == "f" and np.isnan(y).any():
                remedy = (
                    "Leave out rows without a label. Mark positions without a label with ignore_index: "
                    "numpy.where(numpy.isnan(y), -100, y)."
                )
            raise DataError(f"{e} {remedy}{_for_shares(y)}") from e
        types = sorted({type(label).__name__ for label in np.ravel(y)})
        if types in (["int"], ["bool"], ["float"]):
            raise DataError(
                f"Unknown label type: y has dtype object, but all its values are {types[0]}. Pass y.astype({types[0]})."
            ) from e
        gaps = " Pass numpy.asarray(y).astype(str)."
        if set(types) & {"NoneType", "NAType"}:
            gaps = " Replace a missing label by ignore_index, -100 by default, or leave out the row."
        raise DataError(f"Labels must be all numbers or all strings, got {', '.join(types)}.{gaps}") from e
    if n_columns(y) > 1:
        return _check_indicator(y)
    return one_column(y.toarray() if hasattr(y, "toarray") else y)


def _for_shares(y: np.ndarray) -> str:
    """Return the remedy for continuous labels that may be probabilities, of each class or of the second of two."""
    largest = " To learn the class with the largest share, pass y.argmax(axis=1)." if n_columns(y) > 1 else ""
    shares, weights = y, "y"
    if y.dtype.kind == "f" and y.shape[1:] in ((), (1,)):
        shares, weights = np.column_stack([1 - y, y]), "numpy.column_stack([1 - y, y])"
    if np.ndim(shares) != 2 or np.min(shares) < 0 or not np.allclose(np.sum(shares, axis=1), 1):
        return largest
    k = np.shape(shares)[1]
    return (
        f"{largest} To learn the shares, pass each row with each class: X=numpy.repeat(X, {k}, axis=0), "
        f"y=numpy.tile(range({k}), len(y)), sample_weight=numpy.ravel({weights})."
    )


def n_columns(y: ArrayLike) -> int:
    """Return the number of columns of targets, 1 for shape (n,)."""
    shape = y.shape if hasattr(y, "shape") else np.shape(y)
    return int(shape[1]) if len(shape) > 1 else 1


def _check_indicator(y: np.ndarray) -> np.ndarray:
    values = np.unique(y.data if scipy.sparse.issparse(y) else y)
    if np.isin(values, (-1, 0, 1)).all() and values[0] == -1:
        raise DataError(
            f"y has {y.shape[1]} columns with the values {', '.join(map(str, values))}, but several labels are columns "
            "of 0 and 1. If -1 is a label that is absent, pass (y == 1).astype(int). If it marks labels that are not "
            "known, leave these rows out: known = (y >= 0).all(axis=1), fit(X[known], y[known])."
        )
    if not np.isin(values, (0, 1)).all():
        raise DataError(
            f"y has {y.shape[1]} columns with the values {', '.join(map(str, values[:5]))}. This is a "
            "multiclass-multioutput target, for which there is no loss. If only one column holds the labels, pass that "
            "one, such as y['kind'] or y[:, -1]. Multilabel targets must be columns of 0 and 1: convert lists of "
            f"labels with sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y). {FOR_EACH_TARGET}"
        )
    return np.asarray(y.toarray() if hasattr(y, "toarray") else y).astype(np.int64)


def encode_classes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the index in `classes` of each label, int64 (n, 1).

    Raises
    ------
    DataError
        y has labels that are unknown to the model.
    """
    check_known_labels(y, classes, "y")
    order = np.argsort(classes)
    return order[np.searchsorted(classes, y, sorter=order)].astype(np.int64).reshape(-1, 1)


def check_known_labels(labels: np.ndarray, classes: np.ndarray, name: str) -> None:
    """Raise a DataError if labels, of an argument with this name, are not among the classes of the model."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        check_not_numbered(classes)
        check_comparable(unknown, classes)
        _check_type(unknown.tolist(), classes.tolist())
        _check_no_positions(unknown, classes)
        raise DataError(
            f"{name} has labels that the model does not know: {', '.join(map(repr, unknown[:5].tolist()))}. "
            f"{did_you_mean(unknown[0], map(str, classes))} The y of the first fit, or classes= of the first "
            "partial_fit, must contain all labels. To learn others, pass an unfitted estimator, or an ONNX model with "
            "head='new'."
        )


def check_not_numbered(classes: np.ndarray) -> None:
    """Raise a DataError if an ensemble of scikit-learn called, because it passes encoded labels."""
    if is_part_of_more("sklearn.ensemble"):
        raise DataError(
            "The ensembles of scikit-learn number the labels 0, 1, ..., but the given model was fitted on the labels "
            f"{classes.tolist()!r:.80}. Pass it unfitted, sklearn.base.clone(model), or fit it on such numbers: "
            "LabelEncoder().fit_transform(y)."
        )


def check_comparable(y: np.ndarray, classes: np.ndarray) -> None:
    """Raise a DataError for string labels if the classes of the model are numeric, and for numeric labels if not."""
    if not len(y) or isinstance(y[0], str) == isinstance(classes[0], str):
        return
    _check_no_positions(y, classes)
    _check_type([*dict.fromkeys(y.tolist())], classes.tolist())
    remedy = ""
    if isinstance(y[0], str) and len(np.unique(y)) == len(classes):
        remedy = "; numpy.unique(y, return_inverse=True)[1] numbers names from 0, in the order of the alphabet"
    raise DataError(
        f"y has labels such as {y.tolist()[0]!r}, but the classes of the model are {classes.tolist()[:5]}. Pass labels "
        f"as in fit{remedy}."
    )


def _check_no_positions(y: np.ndarray, classes: np.ndarray) -> None:
    """Raise a DataError for integer labels that may be indices into the non-numeric classes of a model."""
    found = np.unique(y) if y.dtype.kind in "iu" and classes.dtype.kind not in "iufb" else ()
    if len(found) and set(found) <= set(range(len(classes))):
        raise DataError(
            f"y has the integers {', '.join(map(str, found[:5]))}, but the classes of the model are "
            f"{classes.tolist()[:5]}. If they are positions in this list, pass "
            f"numpy.array({classes.tolist()!r:.80})[y]."
        )


def _check_type(unknown: list[Any], classes: list[Any]) -> None:
    """Raise a DataError if labels equal the classes of the model except for their type."""
    if not {*map(str, unknown)} <= {*map(str, classes)}:
        return
    given, known = type(unknown[0]).__name__, type(classes[0]).__name__
    remedy = "y == 'True'" if known == "bool" else f"numpy.asarray(y).astype({known})"
    raise DataError(
        f"y has labels of type {given}, for example {unknown[0]!r}, but the classes of the model are of type {known}: "
        f"{classes[:5]}. Pass {remedy}."
    )
