"""Targets of outputs of three and more axes: labels or values for each position of a row."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain.errors import DataError, ParameterError, warn
from onnxtrain.estimators.given_labels import check_classes, encode_classes
from onnxtrain.estimators.labels import Labels
from onnxtrain.estimators.protocols import ArrayLike
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.targets import ClassWeights, Values
from onnxtrain.estimators.validation import check_domain

if TYPE_CHECKING:
    from onnxtrain.estimators.source import Source
    from onnxtrain.estimators.trained import TrainedModel

#: Targets, their predictions and their weights.
Scored: TypeAlias = "tuple[Any, Any, ArrayLike | None]"


@dataclass(frozen=True, eq=False)
class PositionLabels(Labels):
    """Labels for each position of a row; labels equal to `ignore_index` do not count.

    Attributes
    ----------
    balanced : ndarray
        The weight of each class for ``class_weight="balanced"``, computed from the labels of the first rows.
    """

    balanced: np.ndarray = field(default_factory=lambda: np.empty(0))

    positional: ClassVar[bool] = True

    @property
    def class_weights(self) -> np.ndarray:
        """The weight of each class in the loss of a position; empty if all are equal."""
        if self.class_weight is None:
            return np.empty(0)
        if isinstance(self.class_weight, list):
            raise DataError(
                "class_weight is a list of dictionaries, one per label, but y has one class per position. Pass one "
                "dictionary for all classes, class_weight={label: weight, ...}."
            )
        if isinstance(self.class_weight, Mapping):
            with as_data_error():
                return compute_sample_weight(self.class_weight, self.classes)
        return self.balanced

    def check(self, y: Any) -> np.ndarray:
        """Return the labels of the positions as an array, checked."""
        labels = check_positions(y, self.ignore_index)
        if not len(self.classes) and self.ignore_index == -100 and self.to_come is None:
            warn_of_padding(labels)
        return labels

    def n_outputs(self, y: np.ndarray) -> int:
        """Return the number of classes; a new head has one output per class."""
        return super().n_outputs(y[counts(y, self.ignore_index)])

    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return these labels with their classes and balanced weights."""
        which = counts(y, self.ignore_index)
        labels = y[which]
        found = super().learned(labels, source, sample_weight)
        if source.model.width == 1 and y.dtype.kind in "biuf":
            _warn_of_one_hot(y)
        weight = weights_of_entries(sample_weight, which)
        weighed = labels if weight is None else labels[weight != 0]
        return replace(found, balanced=balanced_weights(weighed, found.classes))

    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return the class index of each position, -1 for `ignore_index`."""
        return encode_positions(y, self.classes, self.ignore_index)

    def weigh(
        self, y: np.ndarray, sample_weight: np.ndarray | None, of_classes: ClassWeights = None
    ) -> np.ndarray | None:
        """Return the sample weights unchanged; the class weights are applied to positions in the loss."""
        return sample_weight

    def balanced_weights(self, y: np.ndarray, sample_weight: np.ndarray | None) -> ClassWeights:
        """Return None, as the graph holds the class weights."""
        return None

    def row_weights(self, label: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the sample weights times the sums of the weights of the positions."""
        return row_weights(label, self.class_weights, weight)

    def counted(self, y: ArrayLike, predicted: np.ndarray, sample_weight: ArrayLike | None) -> Scored:
        """Return labels, predictions and weights of the positions whose label is not `ignore_index`."""
        labels = check_positions(y, self.ignore_index)
        _check_same_shape(labels, predicted)
        which = counts(labels, self.ignore_index)
        return labels[which], predicted[which], weights_of_entries(sample_weight, which)


def _warn_of_one_hot(y: np.ndarray) -> None:
    """Warn of labels with one 1 along the last axis, or along axis 1, the class axis of images."""
    for axis, name in ((-1, "its last axis"), (1, "axis 1")):
        if y.shape[axis] > 1 and np.all(y.sum(axis=axis) == 1):
            return warn(
                f"y has exactly one 1 along {name}, but the {y.shape[axis]} entries are trained as independent "
                f"labels. If they are classes that exclude each other, pass y.argmax(axis={axis})."
            )


@dataclass(frozen=True, eq=False)
class PositionValues(Values):
    """Values for each position of a row; NaN values do not count."""

    positional: ClassVar[bool] = True

    def check(self, y: Any) -> np.ndarray:
        """Return the values in the type of the weights, checked."""
        return check_values(y, self.dtype)

    def n_outputs(self, y: np.ndarray) -> int:
        """Return the length of the value axis: the last axis of three, else axis 1."""
        return int(y.shape[-1 if y.ndim == 3 else 1])

    def learned(self, y: np.ndarray, source: Source, sample_weight: np.ndarray | None) -> Self:
        """Return these targets with the number of axes of y."""
        model = source.model
        if model.width != 1:
            per_row = (
                " For one value per row, pass y.ravel(), set head='new', and features= to a value from whose mean over "
                "the positions it follows."
            )
            raise DataError(
                f"y must have the shape of the output {model.output!r} of the model, but the output has {model.width} "
                f"values for each entry of y, on axis {model.class_axis}. To learn a class per position, use "
                f"OrtGradientClassifier.{per_row * (y.size == len(y))}"
            )
        return super().learned(y, source, sample_weight)

    def encode(self, y: np.ndarray, model: TrainedModel) -> np.ndarray:
        """Return the values unchanged; raise if the loss does not accept them."""
        check_domain(y[~np.isnan(y)], model.objective.loss, dict(model.objective.loss_params))
        return y

    def row_weights(self, label: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the sample weights times the number of values of each row."""
        return row_weights(label, self.class_weights, weight)

    def counted(self, y: ArrayLike, predicted: np.ndarray, sample_weight: ArrayLike | None) -> Scored:
        """Return the values, predictions and weights of the positions that have a value."""
        values = check_values(y, "float64")
        _check_same_shape(values, predicted)
        which = ~np.isnan(values)
        return values[which], predicted[which], weights_of_entries(sample_weight, which)


@as_data_error()
def _check_same_shape(y: np.ndarray, predicted: np.ndarray) -> None:
    if y.shape != predicted.shape:
        raise DataError(
            f"y has shape {y.shape}, but the predictions have shape {predicted.shape}. Pass one label or value for "
            "each position of a row."
        )


def check_positions(y: ArrayLike, ignore_index: int | str | None) -> np.ndarray:
    """Return the labels of the positions as an array, checked.

    Raises
    ------
    DataError
        Labels are continuous or cannot be sorted, or all of them are `ignore_index`.
    """
    labels = np.asarray(y)
    if isinstance(ignore_index, str) and labels.dtype.kind in "biuf":
        raise ParameterError(
            f"ignore_index={ignore_index!r} is a string, but the labels in y are numbers of type {labels.dtype}. Pass "
            "a number, such as ignore_index=-100."
        )
    if labels.dtype.kind == "U" and not isinstance(ignore_index, str) and np.any(labels == str(ignore_index)):
        raise DataError(
            f"y has the string {str(ignore_index)!r} among its labels, but ignore_index={ignore_index!r} is a number; "
            f"numpy makes strings of a list of both. Set ignore_index={str(ignore_index)!r}."
        )
    counted = labels[counts(labels, ignore_index)]
    if not counted.size:
        raise DataError(f"All labels in y equal ignore_index={ignore_index!r}, so nothing is left to train on.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # a language model has many classes
        check_classes(counted)
    return labels


def warn_of_padding(labels: np.ndarray) -> None:
    """Warn of labels -1 if there are classes other than 1, since -1 often marks positions to ignore.

    There is no warning if some labels are -100, which marks the positions to ignore.
    """
    if labels.dtype.kind not in "if":
        return
    found = np.unique(labels)
    if -1 in found and -100 not in found and not np.isin(found, (-1, 1)).all():
        warn(
            "y has the label -1, which is trained as a class. If it marks positions that do not count, set "
            "ignore_index=-1. If it is a class, set ignore_index=None."
        )


def warn_of_same_tokens(y: np.ndarray, ids: Any) -> None:
    """Warn of labels that are the token ids of their own positions, which a language model would copy."""
    some = slice(0, 100)
    if getattr(ids, "shape", None) != y.shape or y.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
        return
    labels, tokens = y[some], np.asarray(ids[some])
    counted = labels != -100
    if len(np.unique(labels[counted])) > 1 and np.array_equal(labels[counted], tokens[counted]):
        warn(
            "y has the token ids of X as labels, so that each token is predicted from itself. The label of a token of "
            "a language model is the next token: y = numpy.full_like(ids, -100), then y[:, :-1] = ids[:, 1:]."
        )


def counts(labels: np.ndarray, ignore_index: int | str | None) -> np.ndarray:
    """Return a boolean mask of the labels that are not `ignore_index`."""
    is_text = isinstance(ignore_index, str)
    if ignore_index is None or (labels.dtype.kind != "O" and is_text != (labels.dtype.kind in "US")):
        return np.ones(labels.shape, bool)
    return np.asarray(labels != ignore_index)


def encode_positions(labels: np.ndarray, classes: np.ndarray, ignore_index: int | str | None) -> np.ndarray:
    """Return the index in `classes` of each label, int64 in the shape of the labels, -1 for `ignore_index`.

    Raises
    ------
    DataError
        Some labels are unknown to the model.
    """
    counted = counts(labels, ignore_index)
    encoded = np.full(labels.shape, -1, np.int64)
    encoded[counted] = encode_classes(labels[counted], classes).ravel()
    return encoded


def balanced_weights(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return for each class the number of labels over the number of present classes times the count of its labels.

    A class without labels has the weight 1.
    """
    found, n = np.unique(labels, return_counts=True)
    weights = np.ones(len(classes))
    weights[encode_classes(found, classes).ravel()] = n.sum() / (len(found) * n)
    return weights


def row_weights(label: np.ndarray, class_weights: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
    """Return the weights of rows whose loss is a mean over positions, None if all are equal.

    The weight of a row is multiplied by the sum of the weights of its positions, so that the objective is a mean over
    all positions of the batch. The weight of a position is 0 for -1 or NaN, else the weight of its class, or 1.
    """
    counted = ~np.isnan(label) if label.dtype.kind == "f" else label >= 0
    each = np.where(counted, class_weights[label], 0.0) if class_weights.size else counted
    sums = each.reshape(len(label), -1).sum(axis=1)
    if weight is None:
        return None if (sums == sums[0]).all() and sums[0] > 0 else sums.astype(np.float64)
    return weight * sums


@as_data_error()
def weights_of_entries(sample_weight: ArrayLike | None, counted: np.ndarray) -> np.ndarray | None:
    """Return, for each entry that counts, the weight of its row, (m,)."""
    if sample_weight is None:
        return None
    weight = column_or_1d(sample_weight, dtype=np.float64)
    check_consistent_length(weight, counted)
    return np.repeat(weight, counted.reshape(len(counted), -1).sum(axis=1))


@as_data_error()
def check_values(y: ArrayLike, dtype: str) -> np.ndarray:
    """Return regression targets with positions, checked; NaN marks a value that does not count.

    Raises
    ------
    DataError
        The targets are not numeric, a value is infinite, or all are NaN.
    """
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        raise DataError(f"y must be numeric, got dtype {values.dtype}.")
    values = np.ascontiguousarray(values, dtype=dtype)
    assert_all_finite(values, allow_nan=True, input_name="y")
    if np.isnan(values).all():
        raise DataError("All values in y are NaN, so nothing is left to train on.")
    return values
