"""Validation of rows and targets, the arguments of ``fit`` and ``predict``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils.validation import assert_all_finite, check_array, validate_data
from sklearn.utils.validation import check_X_y as check_arrays

from onnxtrain.convert.columns import text_columns
from onnxtrain.errors import DataError, warn
from onnxtrain.estimators.arrays import cast, check_texts
from onnxtrain.estimators.number_formats import code_of_numbers
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, is_frame, is_onnx
from onnxtrain.estimators.remedies import as_data_error, check_no_dates
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.losses import find_loss
from onnxtrain.registry import did_you_mean

#: The rounding of a column, relative to its range, that visibly changes predictions; the range, relative to its values,
#: of a column that is constant up to float64 rounding.
_COARSE, _CONSTANT = 1e-3, 1e-12

#: With a smaller range, the square of a thousandth of it is below 1.2e-38, the smallest normal number of float32.
_SMALLEST = 1e-16


def _check_no_dates(X: Any) -> None:
    """Raise an error for dates or durations in a data frame or an array."""
    if is_frame(X):
        check_no_dates(X)
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        code = "X.astype('datetime64[D]').astype(float)" if kind == "M" else "X / numpy.timedelta64(1, 'D')"
        raise DataError(
            f"X contains {'dates' if kind == 'M' else 'durations'}. Convert it to numbers, such as {code} for days."
        )


@as_data_error()
def check_X_y(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike | None,
    *,
    reset: bool,
    dtype: np.dtype,
    ndim: int = 2,
    numeric: bool,
    allow_nan: bool = False,
    any_length: bool = False,
) -> tuple[Features, Any]:
    """Return rows as the model takes them and, if given, y with as many rows; `any_length` allows sequences.

    X becomes an ndarray of `dtype`, or a CSR matrix of any floating-point type. It is not copied if it already is.
    """
    _check_no_dates(X)
    X = X if reset else _without_new_names(X, estimator)
    if y is not None:
        check_lengths(X, y)
    if dtype.kind == "f" and _is_clean(X, estimator, ndim, reset=reset) and (y is None or _is_clean_target(y)):
        if reset:  # as validate_data
            vars(estimator).pop("feature_names_in_", None)
            estimator.n_features_in_ = X.shape[1]
        return X.astype(dtype, copy=False), y
    if y is not None:
        if ndim == 2:
            check_places(X, y, classifies=not numeric)
            check_even(y)
        if numeric:
            check_no_text(y)
    counted = dtype.kind in "iub"
    check: Any = partial(validate_data, estimator, reset=reset)
    if any_length and not reset:  # their length may differ from that in fit
        check = check_array if y is None else check_arrays
    of_onnx = is_onnx(getattr(estimator, "estimator", None))
    with np.errstate(over="ignore"), as_data_error(X, of_onnx=of_onnx):  # the error says more than numpy's overflow
        found = check(
            X,
            **({} if y is None else {"y": y, "multi_output": True, "y_numeric": numeric}),
            accept_sparse="csr",
            dtype=None if counted else dtype,
            order="C",
            allow_nd=ndim > 2,
            ensure_all_finite="allow-nan" if allow_nan else True,
        )
    rows, targets = (found, None) if y is None else found
    if counted:
        rows = cast(X if isinstance(X, np.memmap) else rows, dtype, "X")
    if dtype.kind == "O" and is_onnx(getattr(estimator, "estimator", None)):
        check_texts(rows, "X")
    return rows, targets


def _without_new_names(X: Any, estimator: Estimator) -> Any:
    """Return rows without the names of their columns if ``fit`` had no names, after a warning.

    scikit-learn warns, too, but it does not say how the columns are matched.
    """
    named = hasattr(X, "iloc") and is_frame(X) and {*map(type, X.columns)} == {str}
    if not named or hasattr(estimator, "feature_names_in_"):
        return X
    warn(
        f"X has feature names, but {type(estimator).__name__} was fitted without feature names. Columns are matched by "
        f"position: column 0 is {X.columns[0]!r:.80}. Pass X.to_numpy() if they have the order of fit, else select "
        "that order first, or fit with a frame, whose columns are matched by name."
    )
    X = X.iloc[:]
    X.columns = range(X.shape[1])
    return X


def check_targets(X: Any, y: Any, *, classifies: bool) -> None:
    """Raise a DataError for targets that no model takes; scikit-learn may name the rows instead, or learn them."""
    check_places(X, y, classifies=classifies)
    if isinstance(y, list) and y and isinstance(y[0], (list, tuple)) and any(isinstance(v, str) for v in y[0]):
        raise _of_lists(f"lists of strings, such as {y[0]!r:.80}")
    if not classifies:
        check_no_text(y)
        check_no_durations(y)
    elif (values := np.asarray(y)).dtype.kind == "f" and (missing := np.isnan(values)).any():
        raise DataError(
            f"Input y contains NaN, in {missing.sum()} of {len(values)} rows. Leave out the rows without a label: "
            "known = ~numpy.isnan(y), fit(X[known], y[known])."
        )


def check_no_durations(y: Any) -> None:
    """Raise a DataError for targets of dtype datetime64 or timedelta64, which numpy would cast to nanoseconds."""
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    few = y[:1] if isinstance(y, (list, tuple)) else np.ravel(np.asarray(y))[:1] if kind == "O" else ()
    first = few[0] if len(few) else None
    column = ".dt" if hasattr(y, "dt") else ""
    if kind == "m" or isinstance(first, timedelta):
        raise DataError(
            "y contains dates or durations. Convert durations to numbers, for example to seconds: "
            f"pandas.to_timedelta(y){column}.total_seconds()."
        )
    if kind == "M" or isinstance(first, date):
        raise DataError(
            "y contains dates or durations. Convert dates to numbers, for example to days: (pandas.to_datetime(y) - "
            f"pandas.Timestamp('2020-01-01')){column}.days."
        )


#: The first bytes of a file of numpy.save.
_HEADER = b"\x93NUMPY"


def check_map(X: Any) -> None:
    """Raise for a memory map that reads the header of a file; warn of values in halves or of a new file."""
    if isinstance(X, np.memmap) and X.offset == 0 and X[:1].tobytes().startswith(_HEADER):
        raise DataError(
            "X is a memory map of a file of numpy.save, whose header it reads as values. Pass numpy.load(path, "
            "mmap_mode='r')."
        )
    if isinstance(X, np.memmap) and _is_half(X):
        double = X.dtype.name.replace("32", "64")
        warn(
            f"X is a memory map of {X.dtype} that reads the first half of its file, in which every second value is 0. "
            f"If the file was written as {double}, pass numpy.memmap(path, dtype={double!r}, mode='r', shape=...)."
        )
    if isinstance(X, np.memmap) and X.mode == "w+" and X.dtype.kind in "biuf" and X.size and not X.any():
        warn(
            "X is a memory map of zeros. mode='w+' of numpy.memmap writes a new file, also over one with values. Write "
            "the file again, and read it with mode='r'."
        )


def _is_half(X: np.memmap) -> bool:
    """Whether a memory map seems to read the halves of values of 64 bits as values of their own."""
    whole = X.filename is not None and os.path.exists(X.filename) and os.path.getsize(X.filename) == 2 * X.nbytes
    if not whole or X.dtype.name not in ("float32", "int32"):
        return False
    first = X[:100].ravel()
    return bool(first.any()) and not (first[::2].any() and first[1::2].any())


def check_even(y: Any) -> None:
    """Raise a DataError for targets with one result per row that are sets or ragged lists."""
    column = isinstance(y, (list, tuple)) or (hasattr(y, "dtype") and getattr(y, "ndim", 0) == 1)
    if not column or not all(isinstance(row, (list, tuple, set, frozenset)) or len(_shape(row)) == 1 for row in y):
        return
    lengths = sorted({len(row) for row in y})
    sets = any(isinstance(row, (set, frozenset)) for row in y)
    if sets or len(lengths) > 1:
        raise _of_lists("sets" if sets else f"lists of different lengths, from {lengths[0]} to {lengths[-1]}")


def _of_lists(found: str) -> DataError:
    return DataError(
        f"y contains {found}. Convert lists or sets of the labels of a row to an indicator matrix with "
        "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y). Targets that are numbers need the same count in "
        "each row."
    )


def check_no_text(y: Any) -> None:
    """Raise a DataError if the targets of a regressor contain strings."""
    if getattr(getattr(y, "dtype", None), "kind", "") in tuple("biuf") or hasattr(y, "toarray"):
        return
    values = np.array([]) if isinstance(y, (list, tuple)) and any(map(np.ndim, y[:1])) else np.ravel(np.asarray(y))
    text = next((v for v in values if isinstance(v, str)), None) if values.dtype.kind in "USO" else None
    if text is not None:
        remedy = "Use OrtGradientClassifier to learn classes, or convert the strings to numbers first."
        if re.fullmatch(r"\s*[-+]?\d*\.?\d+(e[-+]?\d+)?\s*", text, re.IGNORECASE):
            remedy = "Pass numpy.asarray(y).astype(float), or use OrtGradientClassifier to learn classes."
        elif code := code_of_numbers([v.strip() for v in values if isinstance(v, str)], "pandas.Series(y)"):
            remedy = code
        raise DataError(f"y must be numeric, got the string {str(text)!r:.40}. {remedy}")


#: The remedy for several targets that are classes.
FOR_EACH_TARGET = (
    "For several multiclass targets, train one classifier per target: "
    "MultiOutputClassifier(OrtGradientClassifier(...))."
)


def check_known(y: Any) -> None:
    """Raise a DataError if a column of targets contains None, NA or NaN; arrays of floats are checked later."""
    values: Any
    if is_frame(y) and len(y.columns) > 1 and (texts := text_columns(y)):
        numbers = [name for name in y.columns if name not in texts]
        one = f"such as y[{(numbers or texts)[0]!r}]"
        if numbers:
            one = f"y[{numbers[0]!r}] for a regressor or y[{texts[0]!r}] for a classifier"
        labels = "" if numbers else f" For several labels, pass 0 and 1, as (y == 'yes').astype(int). {FOR_EACH_TARGET}"
        raise DataError(
            f"y has {len(y.columns)} columns, and strings in {', '.join(map(repr, texts[:5]))}. Pass one column of "
            f"targets, {one}, and X without it.{labels}"
        )
    if isinstance(y, (list, tuple)):
        values = () if y and hasattr(y[0], "__len__") and not isinstance(y[0], str) else y
    elif hasattr(y, "to_list") and hasattr(y, "is_null"):  # a series of polars
        values = y.to_list() if y.is_null().any() else ()
    else:
        column = getattr(y, "ndim", 0) == 1 and (
            hasattr(y, "iloc") or getattr(getattr(y, "dtype", None), "kind", "") == "O"
        )
        values = np.asarray(y, dtype=object) if column else ()
    if not {type(value).__name__ for value in values} & _MAY_BE_MISSING:
        return
    missing = [i for i, value in enumerate(values) if is_missing(value)]
    if missing:
        known = "y[known]" if hasattr(y, "dtype") else "pandas.Series(y)[known]"
        remedy = f"known = pandas.notna(y), fit(X[known], {known})"
        if hasattr(y, "is_not_null"):
            remedy = "known = y.is_not_null(), fit(X.filter(known), y.filter(known))"
        raise DataError(
            f"y contains {values[missing[0]]} in {len(missing)} of its {len(values)} rows, first in row {missing[0]}. "
            f"Leave out the rows without a label: {remedy}."
        )


#: The types of values that mark a missing value, or may do so.
_MAY_BE_MISSING = {"NoneType", "NAType", "NaTType", "float", "float32", "float64"}


def is_missing(value: Any) -> bool:
    """Whether a value is NaN, or the missing value of another library."""
    return bool(value != value) if isinstance(value, Real) else type(value).__name__ in _MAY_BE_MISSING


def check_one_type(labels: Any) -> None:
    """Raise a DataError if a list has labels of mixed types, which numpy would turn into strings."""
    types = {type(label).__name__ for label in labels} if isinstance(labels, (list, tuple)) else set()
    if "str" in types and types - {"str", "str_"}:
        raise DataError(
            f"Labels must be all numbers or all strings, got {', '.join(sorted(types))}. Pass "
            "numpy.asarray(y).astype(str)."
        )


def warn_of_other_order(X: Any, values: Any, name: str, rows_name: str = "X") -> None:
    """Warn if the index of a column has the labels of the index of X, or of X_val, in another order, or none of them.

    An index that counts the rows from 0 may be a new one, and indexes of different names or types may be unrelated.
    """
    if isinstance(X, type) or not hasattr(X, "iloc") or not hasattr(values, "iloc") or len(X) != len(values):
        return
    rows, others = X.index, values.index
    if rows.equals(others) or rows.nlevels != others.nlevels:
        return
    if rows.isin(others).all() and others.isin(rows).all():
        i = int(np.argmax(np.asarray(rows) != np.asarray(others)))
        warn(
            f"The index of {name} has the labels of the index of {rows_name} in another order: row {i} is {rows[i]} in "
            f"{rows_name}, and {others[i]} in {name}. Rows are matched by position. Pass {name}.loc[{rows_name}.index] "
            f"or, if the positions match, {name}.to_numpy()."
        )
    elif (
        rows.names == others.names
        and rows.dtype == others.dtype
        and not any(np.array_equal(index, np.arange(len(index))) for index in (rows, others))
        and not rows.isin(others).any()
    ):
        warn(
            f"The index of {name} has no label of the index of {rows_name}: row 0 is {rows[0]} in {rows_name}, and "
            f"{others[0]} in {name}, as if they were different rows. Pass {name} of the rows of {rows_name} or, if the "
            f"positions match, {name}.to_numpy()."
        )


def check_places(X: Any, y: Any, method: str = "fit", *, classifies: bool = False) -> None:
    """Raise a DataError if X is one-dimensional and y is a matrix: they were probably swapped.

    X may be texts, and y their labels in several columns, but no label has a fraction.
    """
    rows, targets = _shape(X), _shape(y)
    if len(rows) != 1 or len(targets) != 2 or min(targets) < 2:
        return
    numbers = getattr(getattr(X, "dtype", None), "kind", "") in tuple("biuf")
    numbers = numbers or (isinstance(X, (list, tuple)) and all(isinstance(value, Real) for value in X[:10]))
    if numbers or (classifies and _has_fractions(y)):
        raise DataError(
            f"X has shape {tuple(rows)} and y has shape {tuple(targets)}, as if they were swapped. Call {method}(X, y)."
        )


def _has_fractions(values: Any) -> bool:
    """Whether all values are finite, and some have a fractional part."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return False
    return bool(np.isfinite(numbers).all() and (numbers % 1).any())


def check_lengths(X: Any, y: Any, name: str = "X") -> None:
    """Check that X, called `name`, and y have the same number of rows.

    Raises
    ------
    DataError
        They differ; the message says which of them seems to be transposed.
    """
    if isinstance(y, Mapping):
        first = next(iter(y), "target")
        raise DataError(
            f"y must be an array or a column, got {type(y).__name__}. Pass the targets of one output, such as "
            f"y[{first!r}], and set output={first!r} if the model has several."
        )
    if hasattr(y, "__next__") or isinstance(y, (set, frozenset)):
        raise DataError(
            f"y must be a list or an array, got {type(y).__name__}, whose entries cannot be indexed. Pass the "
            "targets in the order of the rows of X."
        )
    rows, targets = _shape(X), _shape(y)
    if not targets:
        column = f" Pass the column, y=X[{y!r:.40}], and X without it." if isinstance(y, str) else ""
        if isinstance(y, str) and not hasattr(X, "columns"):
            column = f" X has no column names. Pass the column of the frame that has it, y=frame[{y!r:.40}]."
        elif isinstance(y, str) and y not in X.columns:
            column = f" X has no such column. {did_you_mean(y, map(str, X.columns))}"
        value = y.item() if isinstance(y, np.generic) else y
        if len(rows) == 1 and not isinstance(y, str):
            column = " For a single row, pass X[None] and [y]."
        raise DataError(f"y must have one target per row of X, got the single value {value!r:.40}.{column}")
    if rows and rows[0] != targets[0]:  # the validation of rows refuses rows without a length
        raise DataError(
            f"Found input variables with inconsistent numbers of samples: {name} has {rows[0]} rows, y has "
            f"{targets[0]}. {_remedy_of_lengths(X, y, name)}"
        )


def _remedy_of_lengths(X: Any, y: Any, name: str) -> str:
    """Return the remedy for X and y of different lengths, whose shapes show the probable reason."""
    rows, targets = _shape(X), _shape(y)
    if is_frame(X) and isinstance(y, (list, tuple)) and all(isinstance(name, str) and name in X.columns for name in y):
        return f"y contains column names. Pass y=X[{(y[0] if len(y) == 1 else y)!r:.80}], and X without them."
    if isinstance(X, (list, tuple)) and X and len(_shape(X[0])) == 2 and sum(map(len, X)) == targets[0]:
        join = "pandas.concat(X)" if is_frame(X[0]) else "numpy.concatenate(X)"
        return f"X is a list of {type(X[0]).__name__}s. Pass {join}, or rows in parts, see onnxtrain.rows."
    if isinstance(X, (list, tuple)) and X and all(tuple(_shape(column)) == (targets[0],) for column in X):
        joined = "pandas.concat(X, axis=1)" if hasattr(X[0], "iloc") else "numpy.column_stack(X)"
        return f"X seems to be a list of columns. Pass {joined}."
    if hasattr(X, "iloc") and not is_frame(X):
        return (
            "X is a column. A row of a frame is frame.iloc[[0]], a column frame[['name']], with two pairs of brackets."
        )
    if targets[1:] == rows[:1]:
        ravel = "y.toarray().ravel()" if hasattr(y, "toarray") else "y.ravel()"
        return f"y seems to be transposed. Pass {ravel if targets[0] == 1 else 'y.T'}."
    if len(rows) == 3 and rows[0] == 1 and rows[1] == targets[0]:
        return f"Pass {name}[0], which has the rows."
    if rows[1:] == targets[:1]:
        return f"{name} seems to be transposed. Pass {name}.T."
    if len(rows) > 2 and rows[1] == targets[0]:
        return f"The rows seem to be on axis 1. Pass numpy.moveaxis({name}, 1, 0)."
    if len(rows) == 2 and rows[1:] == targets[1:]:
        return "y has as many columns as X. train_test_split returns X_train, X_test, y_train, y_test."
    if isinstance(y, (list, tuple)) and rows and all(tuple(_shape(target))[:1] == (rows[0],) for target in y):
        return (
            "y is a list of targets. A fit trains one output of an ONNX model: set output= and pass its targets, such "
            "as y[0]. An output of several columns takes numpy.column_stack(y)."
        )
    if _has_rows_of(y, X):
        return "Pass y.loc[X.index], the targets of the rows that X has."
    return "Pass one target per row, from the same selection of rows."


def _has_rows_of(y: Any, X: Any) -> bool:
    """Whether a column of targets has more rows than a frame, by their index all of those of the frame."""
    pandas = hasattr(X, "index") and hasattr(X, "iloc") and hasattr(y, "loc") and len(y) > len(X)
    return bool(pandas and y.index.is_unique and X.index.isin(y.index).all())


def _shape(values: Any) -> Sequence[int]:
    """Return the shape of an array-like; only the length of a list, and an empty shape for a string or a number."""
    shape = getattr(values, "shape", None)
    if shape is not None or isinstance(values, str):
        return shape or ()
    return (len(values),) if hasattr(values, "__len__") else np.asarray(values).shape


#: If the sum of squares is below this, no element is NaN, infinite or too large for float32.
_SUM_OF_SQUARES = 1e38


def _is_clean(X: ArrayLike, estimator: Estimator, ndim: int, *, reset: bool) -> TypeGuard[np.ndarray]:
    """Whether X is a float matrix that scikit-learn's validation is certain to accept.

    For one row, that validation takes 70 us, more than the rest of the prediction; with targets it takes a sixth of a
    fit of few rows beyond its steps. The sum of squares takes three quarters of the time of its check for NaN.
    """
    return (
        isinstance(X, np.ndarray)
        and type(X) is np.ndarray  # no masked array, no memory map
        and X.ndim == ndim == 2
        and X.dtype in (np.float32, np.float64)
        and X.flags.c_contiguous
        and X.size > 0
        and (reset or _is_as_fitted(X, estimator))
        and bool(np.vdot(X, X) < _SUM_OF_SQUARES)
    )


def _is_as_fitted(X: np.ndarray, estimator: Estimator) -> bool:
    """Whether X has as many columns as in ``fit``, and they had no names; else the validation warns."""
    same_width = X.shape[1] == getattr(estimator, "n_features_in_", None)
    return same_width and not hasattr(estimator, "feature_names_in_")


def _is_clean_target(y: Any) -> bool:
    """Whether scikit-learn's validation is certain to return y unchanged."""
    if type(y) is not np.ndarray or y.ndim not in (1, 2) or y.size == 0:
        return False
    return y.dtype.kind in "iub" or (y.dtype in (np.float32, np.float64) and bool(np.vdot(y, y) < _SUM_OF_SQUARES))


def warn_of_rounding(X: Features) -> None:
    """Warn of columns that lose digits in float32: times in seconds, identifiers, values with a large offset.

    scikit-learn computes in float64, so an estimator distinguishes values that are equal in float32.

    Parameters
    ----------
    X : array or DataFrame
        Rows before rounding; anything but numeric matrices is ignored.
    """
    if not (isinstance(X, np.ndarray) or is_frame(X)) or len(X.shape) != 2:
        return
    every = max(1, X.shape[0] // 100)
    found = np.asarray(X.iloc[::every] if is_frame(X) else X[::every])
    if found.dtype.kind not in "fiu" or found.dtype == np.float32:
        return
    rounding, _ = _rounding(found)
    columns = np.flatnonzero(rounding > _COARSE).tolist()
    if columns:
        warn(
            f"float32 rounds the columns {columns} of X by up to {rounding[columns].max():.1e} of their range, so the "
            "model cannot distinguish rows that scikit-learn distinguishes. Subtract an offset from these columns "
            "before fit and predict."
        )


def _rounding(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest error of rounding each column to float32, relative to its range, and the ranges."""
    given = values.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        lost = np.abs(given - given.astype(np.float32)).max(axis=0)
    low, high = given.min(axis=0), given.max(axis=0)
    spread = high - low
    varies = spread > _CONSTANT * np.maximum(-low, high)  # the error of a constant column is 0
    return np.divide(lost, spread, out=np.zeros_like(spread), where=varies), spread


def warn_of_lost_targets(y: np.ndarray) -> None:
    """Warn of targets that lose digits in float32: far from zero, or so small that their squares are 0."""
    every = max(1, len(y) // 100)
    found = np.asarray(y[::every]).reshape(len(y[::every]), -1)
    if found.dtype.kind not in "fiu" or not found.size:
        return
    rounding, spread = (float(of_column.max()) for of_column in _rounding(found))
    if not math.isfinite(rounding):
        return  # the fit raises an error for this
    if rounding > _COARSE:
        warn(
            f"float32 rounds y by up to {rounding:.1e} of its range, so predictions cannot distinguish its values. "
            "Subtract an offset from y and add it to the predictions, or set dtype='float64'."
        )
    elif 0 < spread < _SMALLEST:
        warn(
            f"The range of y is {spread:.1e}, and squares of such numbers are 0 in float32. Multiply y by a constant "
            "and divide the predictions by it, or set dtype='float64'."
        )


@as_data_error()
def check_target(y: np.ndarray, width: int, dtype: str, *, own_loss: bool = False) -> np.ndarray:
    """Return regression targets as (n, width).

    Raises
    ------
    DataError
        The model has a different number of outputs.
    """
    check_no_text(y)
    with np.errstate(over="ignore"):
        y = np.ascontiguousarray(y, dtype=dtype)
    y = y.reshape(-1, 1) if y.ndim == 1 else y
    if y.shape[1] != width:
        columns, outputs = (f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((y.shape[1], "column"), (width, "output")))
        to_classes = " To learn classes, use OrtGradientClassifier." if y.shape[1] == 1 else ""
        if is_part_of_more("sklearn.multioutput"):
            raise DataError(
                f"y has {columns}, but the model has {outputs}, and MultiOutputRegressor or RegressorChain passes one "
                "target at a time. Leave it out, fit(X, y) with all targets, or pass it an unfitted model."
            )
        if own_loss and y.shape[1] == 1:
            raise DataError(
                f"y has {columns}, but the model has {outputs}, and y_true has the shape of y_pred. If the loss uses "
                f"one column of y_true, pass numpy.repeat(numpy.reshape(y, (-1, 1)), {width}, axis=1)."
            )
        raise DataError(
            f"y has {columns}, but the model has {outputs}. Pass one column for each output. For other columns, "
            "give an ONNX model a head='new', or pass an unfitted estimator, sklearn.base.clone(model)."
            f"{to_classes}"
        )
    check_size(y, dtype)
    return y


def check_size(y: np.ndarray, dtype: str) -> None:
    """Raise a DataError for targets that are NaN, infinite or beyond the range of a floating-point type."""
    # not the maximum of abs(y), which would be a copy of y
    if y.dtype.kind == "f" and y.size and not max(-y.min(), y.max()) <= np.finfo(dtype).max:
        with as_data_error():
            assert_all_finite(y, input_name="y")
        raise DataError(
            f"y contains numbers that are too large for {dtype}. Divide y by a constant and multiply the predictions "
            "by it, or set dtype='float64'."
        )


def one_column(y: Any) -> np.ndarray:
    """Return targets of shape (n,), those of shape (n, 1) with a warning, whose code also works for a frame."""
    column = column_or_1d(y)
    if np.ndim(y) > 1:
        warn(
            "A column-vector y was passed when a 1d array was expected. Pass numpy.ravel(y).",
            DataConversionWarning,
        )
    return column


@as_data_error()
def check_not_infinite(y: np.ndarray) -> None:
    """Raise a DataError if targets are infinite; a metric would not say that the targets are."""
    assert_all_finite(y, allow_nan=True, input_name="y")


def check_domain(y: np.ndarray, loss: str | Callable[..., Any], params: Mapping[str, Any] | None) -> None:
    """Raise a DataError for labels for which the loss has no minimum, such as negative counts."""
    params = params or {}
    least, allowed = find_loss(loss, params).least(**params)
    if np.any((y < least) if allowed else (y <= least)):
        remedy = "Choose another loss, such as 'squared_error', or correct these targets."
        if loss == "gamma" and y.min() == 0:
            remedy = "For zeros and positive values, use loss='tweedie' with loss_params={'power': 1.5}."
        raise DataError(f"The loss {loss!r} requires y {'>=' if allowed else '>'} {least:g}, got {y.min():g}. {remedy}")
