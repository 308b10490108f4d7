"""The labels of a classifier: their classes, their number per row, and their weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import is_outlier_detector
from sklearn.svm import SVC, NuSVC
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain import graph
from onnxtrain.convert.learned import predictor_of
from onnxtrain.errors import ConversionError, DataError, warn
from onnxtrain.estimators.decoder import LabelDecoder
from onnxtrain.estimators.frames import Rows
from onnxtrain.estimators.given_labels import (
    check_classes,
    check_known_labels,
    check_not_numbered,
    encode_classes,
    n_columns,
    warn_of_joined,
    warn_of_numbers,
    warn_of_spaces,
    warn_of_unlabeled,
    warn_of_void,
)
from onnxtrain.estimators.protocols import ArrayLike, Estimator, Features, is_fitted, takes_labels
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.targets import ClassWeights, Targets
from onnxtrain.losses import Prediction, find_loss
from onnxtrain.losses.link import Link
from onnxtrain.losses.outputs import counts_votes

if TYPE_CHECKING:
    from onnxtrain.estimators.source import Source
    from onnxtrain.estimators.trained import TrainedModel


#: The remedy if the labels have only one class.
_TO_COME = "A classifier needs at least two classes. With partial_fit, pass all present and future classes as classes=."

#: Fewer rows may have one label each by chance.
_MANY_ROWS = 20


@dataclass(frozen=True, eq=False)
class Labels(Targets):
    """The labels of a classifier with one class per row.

    Attributes
    ----------
    class_weight, ignore_index : object
        The parameters of the classifier.
    to_come : ndarray or None
        All classes, if they were given to ``partial_fit``; None: the classes of the first rows.
    classes : ndarray
        The classes by column of the scores; empty before they are learned.
    of_votes : bool
        Whether the class with the most votes is predicted; the first class wins a tie.
    """

    class_weight: Mapping[Any, float] | list[Mapping[Any, float]] | str | None = None
    ignore_index: int | str | None = None
    to_come: np.ndarray | None = None
    classes: np.ndarray = field(default_factory=lambda: np.empty(0))
    of_votes: bool = False

    def check(self, y: Any) -> np.ndarray:
        """Return labels as (n,), or as an indicator matrix with as many columns as the first rows."""
        labels = check_classes(y)
        self._check_n_labels(labels.shape[1] if labels.ndim == 2 else 0)
        return labels

    def _check_n_labels(self, n_labels: int) -> None:
        if n_labels != self.n_labels:
            remedy = (
                f"Pass an indicator matrix of {self.n_labels} columns, as in fit."
                if self.n_labels
                else _for_indicators(n_labels, self.classes)
            )
            raise DataError(
                f"y has {_per_row(n_labels)}, but the model was fitted on {_per_row(self.n_labels)}. {remedy}"
            )

    def n_outputs(self, y: np.ndarray) -> int:
        """Return the number of classes; a new head has one output per class."""
        classes = self._all_classes(y)
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes.tolist()[0]!r}. {_TO_COME}")
        return len(classes)

    def check_estimator(self, estimator: Estimator, X: Features) -> None:
        """Raise a DataError if an estimator takes, or was fitted on, another number of labels per row."""
        name = type(estimator).__name__
        if is_fitted(estimator):
            _check_two_classes(estimator)
            given = _labels_of(estimator, X, self.n_labels)
            if given != self.n_labels:
                remedy = " Pass y in this form, or an unfitted estimator: sklearn.base.clone(model)."
                if self.n_labels and not given:
                    remedy = f" {_for_indicators(self.n_labels, getattr(estimator, 'classes_', None))}"
                raise DataError(f"y has {_per_row(self.n_labels)}, but {name} was fitted on {_per_row(given)}.{remedy}")
            _check_both_labels(estimator)
        elif self.n_labels and not takes_labels(estimator):
            raise DataError(
                f"y has {_per_row(self.n_labels)}, but {name} takes one class per row. If y has one "
                "column per class, pass y.argmax(axis=1). For several labels per row, use "
                f"OneVsRestClassifier({name}(...)), MLPClassifier, MultiOutputClassifier, or an ONNX model with one "
                "score per label."
            )

    def rows_for_estimator(self, rows: Rows) -> Rows:
        """Return the rows and one row of zeros for each missing class: the estimator must know all classes."""
        if self.to_come is not None and len(missing := np.setdiff1d(self.to_come, rows.y)):
            rows = _with_zeros(rows, missing)
        if len(np.unique(rows.y)) < 2:
            raise DataError(
                f"y has only one class, {rows.y[:1].tolist()[0]!r}, but an unfitted classifier needs two. Pass "
                "rows of both; with partial_fit, all present and future classes as classes=."
            )
        return rows

    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return these labels with their classes."""
        _check_inliers(np.unique(y), source.estimator)
        warn_of_spaces(np.unique(y))
        warn_of_joined(np.unique(y))
        if not self.positional:
            warn_of_numbers(y)
        of_votes = _counts_votes(source)
        classes = _classes_of(self._all_classes(y), source)
        if not self.positional:
            warn_of_unlabeled(classes)
        elif self.ignore_index == -100:  # the default; None says that each label is a class
            warn_of_void(classes)
        if len(classes) > len(np.unique(y)) and is_part_of_more("sklearn.multiclass"):
            raise DataError(
                "OneVsRestClassifier and the others of sklearn.multiclass fit models of two classes, but the given "
                f"model has {len(classes)}. Leave them out, since OrtGradientClassifier(model) has all classes, or "
                "pass an unfitted estimator."
            )
        lacks_some = source.original is None and len(classes) > len(np.unique(y))
        if lacks_some and is_part_of_more("sklearn.ensemble._voting"):
            check_not_numbered(classes)
        if self.to_come is not None:
            check_known_labels(self.to_come, classes, "classes")
        return replace(self, classes=classes, of_votes=of_votes)

    def _all_classes(self, labels: np.ndarray) -> np.ndarray:
        """Return all classes: those of the labels, or those given to ``partial_fit``."""
        found = np.unique(labels)
        if self.ignore_index not in (None, -100) and self.ignore_index in found.tolist():
            raise DataError(
                f"ignore_index={self.ignore_index!r} applies to labels with positions, but y has one label per row. "
                f"Leave these rows out: fit(X[y != {self.ignore_index!r}], y[y != {self.ignore_index!r}])."
            )
        if self.to_come is None:
            return found
        if len(others := np.setdiff1d(found, self.to_come)):
            some = ", ".join(map(repr, others[:5].tolist()))
            raise DataError(
                f"classes must list all labels of y, got {self.to_come.tolist()}, which lacks {some}. Pass "
                "classes=numpy.unique(y) of all rows to come."
            )
        return self.to_come

    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return the class index of each row, (n, 1)."""
        _check_all_labeled(y, model.source.estimator)
        return encode_classes(y, self.classes)

    @as_data_error()
    def weigh(
        self, y: np.ndarray, sample_weight: np.ndarray | None, of_classes: ClassWeights = None
    ) -> np.ndarray | None:
        """Return sample weights times class weights: `of_classes` or, if None, those of `class_weight`."""
        if self.class_weight is None:
            return sample_weight
        if isinstance(self.class_weight, list) and not self.n_labels:
            raise DataError(
                "class_weight is a list of dictionaries, one per label, but y has one class per row. Pass one "
                "dictionary for all classes, class_weight={label: weight, ...}."
            )
        if isinstance(self.class_weight, Mapping) and not self.n_labels:
            known = self.classes if len(self.classes) else np.unique(y) if self.to_come is None else self.to_come
            _check_keys(self.class_weight, known.tolist())
        wanted = of_classes or self.balanced_weights(y, sample_weight) or self.class_weight
        by_class = compute_sample_weight(self._for_all(wanted), y)
        return by_class if sample_weight is None else by_class * sample_weight

    def balanced_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> ClassWeights:
        """Return the class weights of these rows if `class_weight` is ``"balanced"``, else None.

        Rows of weight zero do not count.
        """
        counted = y if sample_weight is None else y[sample_weight != 0]
        return self._balanced_on(counted) if self.class_weight == "balanced" else None

    def _balanced_on(self, y: np.ndarray) -> ClassWeights:
        return balanced(_counts(y))

    def _for_all(self, wanted: Any) -> Any:
        """Return the weights of all known classes, since other rows may lack some of them, or have further ones."""
        known = self.classes if len(self.classes) else self.to_come
        return wanted if known is None else with_ones(wanted, known.tolist())

    def decoder(self, model: TrainedModel) -> LabelDecoder:
        """Return the decoder of the scores of a trained model."""
        link, objective = model.source.model.link, model.objective
        likely = link is Link.CLIPPED or is_likely(objective.loss, dict(objective.loss_params))
        return LabelDecoder(link, self.classes, self.n_labels, likely, self.of_votes)


@dataclass(frozen=True, eq=False)
class IndicatorLabels(Labels):
    """The labels of a multilabel classifier: an indicator matrix.

    Attributes
    ----------
    n_labels : int
    sparse : bool
        Whether predictions are a sparse matrix, as the labels of the first rows were.
    """

    n_labels: int = 0
    sparse: bool = False

    def _for_all(self, wanted: Any) -> Any:
        """Return the weights of both values of each label, since rows may lack one of them."""
        return [with_ones(of_label, (0, 1)) for of_label in wanted] if isinstance(wanted, list) else wanted

    def _balanced_on(self, y: np.ndarray) -> ClassWeights:
        return [balanced(_counts(of_label)) for of_label in y.T]

    def n_outputs(self, y: np.ndarray) -> int:
        """Return the number of labels; a new head has one output per label."""
        return self.n_labels

    def rows_for_estimator(self, rows: Rows) -> Rows:
        """Return the rows and, if a label is always 0 or always 1, one more row with the other value."""
        constant = (rows.y == rows.y[:1]).all(axis=0)
        return _with_zeros(rows, np.where(constant, 1 - rows.y[:1], 0)) if constant.any() else rows

    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return these labels with the column indices as classes; warn if they look like one class per row."""
        if len(y) >= _MANY_ROWS and np.all(y.sum(axis=1) == 1):
            dense = "y.toarray()" if self.sparse else "numpy.asarray(y)"  # y may be a list or a frame
            warn(
                f"Each of the {len(y)} rows of y has exactly one 1, but its {self.n_labels} columns are trained as "
                f"independent labels. If they are classes that exclude each other, pass {dense}.argmax(axis=1)."
            )
        n_scores = source.model.n_scores
        if n_scores != self.n_labels:
            scores = f"{n_scores} scores" if n_scores > 1 else "one score, for two classes"
            raise DataError(
                f"The model has {scores}, but y has {_per_row(self.n_labels)}. Each label needs a score. Set "
                "head='new' to give an ONNX model as many."
            )
        return replace(self, classes=np.arange(self.n_labels))

    def counted(
        self, y: ArrayLike, predicted: np.ndarray, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, ArrayLike | None]:
        """Return y, the predictions and their weights; y must have as many columns as the first rows."""
        self._check_n_labels(n_columns(y) if n_columns(y) > 1 else 0)
        return y, predicted, sample_weight

    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return the indicator matrix unchanged."""
        return y


def labels_of_rows(y: ArrayLike, **parameters: Any) -> Labels:
    """Return unfitted labels of the kind of `y`, one class or several labels per row; y is not checked."""
    n_labels = n_columns(y)
    if n_labels > 1:
        return IndicatorLabels(**parameters, n_labels=n_labels, sparse=scipy.sparse.issparse(y))
    return Labels(**parameters)


def is_likely(loss: Any, loss_params: Mapping[str, Any] | None) -> bool:
    """Whether a loss is a likelihood, so that its scores define probabilities."""
    return find_loss(loss, loss_params, classifies=True).prediction is Prediction.LIKELIHOOD


def _per_row(n_labels: int) -> str:
    """Describe the labels of a row, for messages."""
    return f"{n_labels} labels per row" if n_labels else "one class per row"


def _for_indicators(n_labels: int, classes: Any) -> str:
    """Return the remedy if y has columns, and the model was fitted on one class per row, perhaps on names."""
    known = classes.tolist() if isinstance(classes, np.ndarray) else []
    if len(known) != n_labels or known == list(range(n_labels)):
        return "If y has one column per class, pass y.argmax(axis=1)."
    return f"If y has one column per class, in the order of classes_, pass numpy.array({known})[y.argmax(axis=1)]."


def _labels_of(estimator: Estimator, X: Features, default: int) -> int:
    """Return the number of labels of a fitted multilabel estimator, 0 for another estimator; `default` if unknown."""
    if not hasattr(estimator, "predict") or isinstance(X, Mapping):
        return default
    rows = X[:2]  # SparsePCA drops the row axis of a single row
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that X has no column names is irrelevant here
        try:
            shape = estimator.predict(rows).shape
        except (TypeError, ValueError):  # values rounded to float32 are not categories of an encoder
            return default
        except Exception as e:  # any other class: a third-party step may ask for columns by name
            raise ConversionError(f"{type(estimator).__name__}.predict fails when the rows are an array: {e!r}") from e
    return int(shape[1]) if len(shape) == 2 and shape[1] > 1 else 0


def _check_inliers(classes: np.ndarray, estimator: Estimator | None) -> None:
    """Raise a DataError if an outlier detector, which predicts -1 and 1, is given other classes."""
    if estimator is not None and is_outlier_detector(estimator) and classes.tolist() != [-1, 1]:
        raise DataError(
            f"{type(predictor_of(estimator)).__name__} predicts 1 for an inlier and -1 for an outlier, but the classes "
            f"of y are {', '.join(map(repr, classes[:5].tolist()))}. Pass y with 1 for inliers and -1 for all "
            "other rows."
        )


def _check_both_labels(estimator: Estimator) -> None:
    """Raise a DataError for a fitted multilabel estimator with a label that was 0, or 1, in all rows."""
    classes = getattr(estimator, "classes_", None)
    constant = [i for i, each in enumerate(classes) if np.size(each) < 2] if isinstance(classes, list) else []
    if constant:
        raise DataError(
            f"{type(estimator).__name__} was fitted on rows that all have the same label in the columns {constant} of "
            "y, so it has no trainable score for these labels. Pass it unfitted, sklearn.base.clone(estimator). It is "
            "then fitted on the rows and one more row with the other label."
        )


def _check_all_labeled(y: np.ndarray, estimator: Estimator | None) -> None:
    """Raise a DataError for rows without a label, which semi-supervised estimators of scikit-learn take as -1."""
    last = predictor_of(estimator)
    n_unlabeled = int(np.sum(y == -1)) if hasattr(last, "transduction_") and -1 not in last.classes_ else 0
    if n_unlabeled:
        raise DataError(
            f"{n_unlabeled} of {len(y)} rows have the label -1, which {type(last).__name__} reads as no label. Such "
            "rows have no loss. Fit the estimator on all rows, and pass it with the labeled rows: "
            "fit(X[y != -1], y[y != -1])."
        )


def _counts_votes(source: Source) -> bool:
    """Whether a model predicts the class with the most votes: an SVC with three or more classes, or its ONNX file.

    Its decision function is the number of votes plus a fraction below 1/3 from the pairwise scores.

    Raises
    ------
    ConversionError
        The decision function has a score for each pair of classes.
    """
    if source.original is not None:
        svc = b"SVMClassifier" in source.original
        return svc and counts_votes(graph.load(source.model.graph()), source.model.output)
    last = predictor_of(source.estimator)
    if not isinstance(last, (SVC, NuSVC)) or len(last.classes_) < 3 or hasattr(last, "predict_proba"):
        return False
    if last.decision_function_shape != "ovr":
        raise ConversionError(
            f"{type(last).__name__} with decision_function_shape={last.decision_function_shape!r} has one score per "
            "pair of classes, but a loss needs one score per class. Call set_params(decision_function_shape='ovr'), "
            "also on a fitted estimator, which then predicts the same."
        )
    return not last.break_ties


def _check_two_classes(estimator: Estimator) -> None:
    """Raise a DataError for a classifier that was fitted on rows of a single class."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, np.ndarray) and classes.shape == (1,):
        raise DataError(
            f"{type(estimator).__name__} was fitted on rows of one class, {classes.tolist()[0]!r}, and has nothing to "
            "separate. Fit it on rows of two classes or more."
        )


def _with_zeros(rows: Rows, targets: np.ndarray) -> Rows:
    """Return the rows followed by one row of zeros for each of `targets`, with the mean sample weight.

    Frames are not changed, since they may contain strings.
    """
    X, y, weight, *_ = rows
    if isinstance(X, Mapping) or not hasattr(X, "dtype"):
        return rows
    zeros = np.zeros((len(targets), *X.shape[1:]), X.dtype)
    X = scipy.sparse.vstack([X, zeros], format="csr") if scipy.sparse.issparse(X) else np.concatenate([X, zeros])
    if weight is not None:
        weight = np.concatenate([weight, np.full(len(targets), weight.mean())])
    return Rows(X, np.concatenate([y, targets]), weight, rows.form, X)


def _classes_of(found: np.ndarray, source: Source) -> np.ndarray:
    """Return the labels by column of the scores: those that the model stores, else the distinct labels of y.

    Raises
    ------
    DataError
        The number of classes of y, or of those that the model stores, differs from the number of columns of the model.
    """
    known = getattr(source.estimator, "classes_", None)
    if known is not None:
        return np.asarray(known)
    n_classes = max(source.model.n_scores, 2)
    if source.model.classes is not None:
        return _one_each(source.model.classes, n_classes)
    some = ", ".join(map(str, found[:10]))
    outside = [label for label in found.tolist() if isinstance(label, int) and not 0 <= label < n_classes]
    missing = (
        outside[0]
        if len(outside) == 1 and (len(found) > n_classes or -100 in outside or source.model.n_axes > 2)
        else None
    )
    if missing in (-100, -1) and source.model.n_axes == 2:
        raise DataError(
            f"y has the label {missing}, but the model has {n_classes} classes: {some}. Leave out rows without a "
            f"label: known = y != {missing}, fit(X[known], y[known]), and likewise each array of a dictionary."
        )
    if len(found) == n_classes:
        return found
    if np.issubdtype(found.dtype, np.integer) and found.min() >= 0 and found.max() < n_classes:
        return np.arange(n_classes)
    remedy = "Set head='new' to give the model a last layer for these." if len(found) > 1 else _TO_COME
    if len(found) < n_classes and np.issubdtype(found.dtype, np.integer):
        if found.min() > 0 and found.max() == n_classes:
            remedy = f"If they count from 1, pass y - 1. {remedy}"
        remedy = f"Without names in the file, the labels are the columns of its output, 0 to {n_classes - 1}. {remedy}"
    if separator := _separator(found, n_classes):
        remedy = (
            "For several labels a row, pass an indicator matrix: sklearn.preprocessing.MultiLabelBinarizer()."
            f"fit_transform([label.split({separator!r}) for label in y])."
        )
    shown = " to it" if missing is None else f"={missing}"
    positions = "" if source.model.n_axes == 2 else f" If a label marks positions to ignore, set ignore_index{shown}."
    raise DataError(f"The model has {n_classes} classes, but y has {len(found)}: {some}. {remedy}{positions}")


def _separator(found: np.ndarray, n_classes: int) -> str | None:
    """Return the separator of multilabel strings such as "red,round" with `n_classes` labels in all, or None."""
    texts = [str(label) for label in found] if found.dtype.kind in "OU" else []
    for separator in (", ", ",", "; ", ";", "|", " "):
        names = {name for text in texts for name in text.split(separator)}
        if len({*texts, *names}) > len(names - {""}) == n_classes:
            return separator
    return None


def _one_each(classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the labels that a model stores; they must be one per class."""
    if not len(classes) == len(np.unique(classes)) == n_classes:
        some = ", ".join(map(repr, classes[:10].tolist()))
        raise DataError(
            f"The model has {n_classes} classes, but stores {len(classes)} labels that are not one per class: {some}. "
            "Pass the model without its label output. The labels in y are then the column indices."
        )
    return classes


def check_expected(
    classes: Sequence[Any] | np.ndarray | None, y: ArrayLike, known: Labels | None, *, positional: bool
) -> np.ndarray | None:
    """Return all classes that were given to ``partial_fit``, sorted; None if they follow from y.

    Raises
    ------
    DataError
        Their number differs from the columns of a multilabel y, or they differ from those of the first call, `known`.
    """
    if classes is None:
        return None
    if isinstance(classes, str) or not hasattr(classes, "__len__"):
        raise DataError(f"classes must list all labels of y, got {classes!r:.80}. Pass classes=numpy.unique(y).")
    n_labels = 0 if positional else n_columns(y)
    if n_labels > 1:
        if len(classes) != n_labels:
            raise DataError(f"classes has {len(classes)} entries, but y has {n_labels} columns of labels.")
        return None
    found = np.unique([*classes] if isinstance(classes, (set, frozenset)) else classes)
    of_rows = len(classes) == (len(y) if isinstance(y, (list, tuple)) else next(iter(np.shape(y)), 0))
    repeated = len(classes) > len(found) and not np.array_equal(np.ravel(classes), np.ravel(y))
    if of_rows and (repeated or (found.dtype.kind == "f" and not {*np.ravel(y).tolist()} <= {*found.tolist()})):
        raise DataError(
            f"classes has one entry per row, {len(classes)}, like sample weights, but is not y. Pass weights by name: "
            "partial_fit(X, y, sample_weight=...)."
        )
    if known is not None and not np.array_equal(found, np.sort(known.classes)):
        raise DataError(
            f"classes={found.tolist()} differs from those of the first call, {known.classes.tolist()}. The first call "
            "of partial_fit sets the classes; for others, start anew with sklearn.base.clone(model)."
        )
    return found


def warn_of_sorted(classes: Any, model: TrainedModel, *, new: bool) -> None:
    """Warn of classes that are not given in order, in which they number the columns of an ONNX model without names."""
    if not isinstance(classes, (list, tuple, np.ndarray)) or new or model.source.original is None:
        return
    if model.source.model.classes is None and list(classes) != (by_column := sorted(classes)):
        warn(
            f"The columns of the output are taken for the sorted labels, {by_column!r:.80}, but classes= has another "
            "order. If that is the order of the columns, pass their indices as labels: y = [classes.index(label) for "
            "label in y], classes=range(len(classes))."
        )


def _check_keys(class_weight: Mapping[Any, float], labels: Sequence[Any]) -> None:
    """Raise a DataError if class weights lack labels and have others; scikit-learn allows either alone."""
    lacking = [label for label in labels if label not in class_weight]
    if lacking and not set(class_weight) <= set(labels):
        raise DataError(
            f"The labels {', '.join(map(repr, lacking[:5]))} of y are not in class_weight, whose keys are "
            f"{', '.join(map(repr, [*class_weight][:5]))}. Its keys must be labels as in y, the number 1 and not the "
            f"string '1': class_weight={dict.fromkeys(labels[:5], 1.0)}."
        )


def with_ones(wanted: Any, classes: Sequence[Any]) -> Any:
    """Return weights of some classes as weights of all classes, 1 for the others.

    scikit-learn refuses a key of `class_weight` whose class is absent from the given rows.
    """
    of_some = isinstance(wanted, Mapping) and set(wanted) <= set(classes)
    return {label: wanted.get(label, 1.0) for label in classes} if of_some else wanted


def _counts(y: np.ndarray) -> dict[Any, int]:
    labels, counts = np.unique(y, return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


def balanced(counts: Mapping[Any, int]) -> dict[Any, float]:
    """Return the weight n_samples / (n_classes * count) of each class that has rows."""
    found = {label: count for label, count in counts.items() if count}
    n_rows = sum(found.values())
    return {label: n_rows / (len(found) * count) for label, count in found.items()}
