"""Targets of outputs of three and more axes: labels, or values, for each position of a row."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import scipy.sparse
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain import graph
from onnxtrain.errors import DataError, ParameterError, warn
from onnxtrain.estimators.protocols import ArrayLike, OnnxModel, is_onnx
from onnxtrain.estimators.targets import check_classes, encode_classes
from onnxtrain.estimators.validation import as_data_error
from onnxtrain.training.model import TrainableModel

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator
    from onnxtrain.estimators.trained import TrainedModel


def is_positional(estimator: OrtGradientEstimator, y: ArrayLike, known: TrainedModel | None) -> bool:
    """Whether targets have a label for each position of a row: three axes, or two for an output of more.

    Two are a multilabel indicator matrix, or several targets, if a new last layer takes `features`: one result a row.

    Parameters
    ----------
    estimator : OrtGradientRegressor or OrtGradientClassifier
    y : array-like
    known : TrainedModel or None
        A model that has been trained says itself; for None that which was handed over does.

    Raises
    ------
    DataError
        The rows of y have different lengths.
    """
    if known is not None:
        return known.layout.positional
    if estimator.estimator is None or not is_onnx(estimator.estimator) or scipy.sparse.issparse(y):
        return False
    try:
        n_axes = np.ndim(y)
    except ValueError as e:
        raise DataError(
            "The rows of y have different lengths: fill them up to one length, with ignore_index (-100) for classes, "
            "with NaN for numbers."
        ) from e
    if n_axes == 2 and estimator.features is None:
        return _rank(estimator.estimator, estimator.output) > 2
    return n_axes > 2


def check_axes(model: TrainableModel, y: np.ndarray, *, positional: bool) -> None:
    """Check that targets have positions where the output of a model has them.

    Raises
    ------
    DataError
        One has, the other has not.
    """
    if model.layout.positional == positional:
        return
    found = "(n" + "".join(f", {size}" for size in y.shape[1:]) + ("," if y.ndim == 1 else "") + ")"
    if positional:
        raise DataError(
            f"y has the shape {found}, a label for each position of a row, and the output {model.output!r} of the "
            "model has one result a row, (n, k): give one label a row, or name the output with positions by output=."
        )
    raise DataError(
        f"The output {model.output!r} of the model has {model.n_axes} axes, y the shape {found}: y needs a label for "
        "each position, the shape of the output without the axis of its classes, or the shape of the output. For one "
        "label a row take head='new' with features= of a value whose mean over the positions has the classes."
    )


def check_class_axis(model: TrainableModel, class_axis: int | None) -> None:
    """Raise a ParameterError for an axis of classes where only one is possible."""
    if class_axis is not None and not model.layout.positional:
        raise ParameterError(
            f"class_axis={class_axis} is about outputs of three or more axes, and the output {model.output!r} has one "
            "result a row: set class_axis=None."
        )


def _rank(onx: OnnxModel, output: int | str | None) -> int:
    """Return the number of axes of an output, as the model declares it or as inferred; 2 if unknown."""
    proto = graph.read(onx)
    with graph.as_model_error("Shapes cannot be inferred"):
        return _declared_rank(proto, output) or _declared_rank(graph.infer_shapes(proto), output) or 2


def _declared_rank(proto: onnx.ModelProto, output: int | str | None) -> int | None:
    outputs = list(proto.graph.output)
    if isinstance(output, str):
        chosen = [v for v in outputs if v.name == output]
    elif output is None:
        chosen = [v for v in outputs if v.type.tensor_type.elem_type in graph.FLOATS]
    else:
        chosen = outputs[output : output + 1 or None]
    ranks = {len(v.type.tensor_type.shape.dim) for v in chosen if v.type.tensor_type.HasField("shape")}
    return ranks.pop() if len(ranks) == 1 else None


@as_data_error()
def check_positions(y: ArrayLike, ignore_index: int | str | None) -> np.ndarray:
    """Return labels for each position as an array.

    Raises
    ------
    DataError
        Labels are continuous or cannot be sorted, or all of them are `ignore_index`.
    """
    labels = np.asarray(y)
    counted = labels[counts(labels, ignore_index)]
    if not counted.size:
        raise DataError(f"All labels of y are {ignore_index!r}, which is ignore_index: nothing is left to train on.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # those of a language model are many
        check_classes(counted)
    return labels


def warn_of_padding(labels: np.ndarray) -> None:
    """Warn of labels -1 among those of other classes than 1: elsewhere they are often positions that do not count.

    Those that are given a label -100 say themselves which do not count.
    """
    if labels.dtype.kind not in "if":
        return
    found = np.unique(labels)
    if -1 in found and -100 not in found and not np.isin(found, (-1, 1)).all():
        warn(
            "y has the label -1, which is trained as a class. If it marks positions that do not count, set "
            "ignore_index=-1; if it is a class, ignore_index=None."
        )


def counts(labels: np.ndarray, ignore_index: int | str | None) -> np.ndarray:
    """Return which labels are not `ignore_index`, a boolean for each."""
    is_text = isinstance(ignore_index, str)
    if ignore_index is None or (labels.dtype.kind != "O" and is_text != (labels.dtype.kind in "US")):
        return np.ones(labels.shape, bool)
    return np.asarray(labels != ignore_index)


def encode_positions(labels: np.ndarray, classes: np.ndarray, ignore_index: int | str | None) -> np.ndarray:
    """Return the index in `classes` of each label, int64 in the shape of the labels, -1 for `ignore_index`.

    Raises
    ------
    DataError
        Labels that the model does not know.
    """
    counted = counts(labels, ignore_index)
    encoded = np.full(labels.shape, -1, np.int64)
    encoded[counted] = encode_classes(labels[counted], classes).ravel()
    return encoded


@as_data_error()
def weights_of_classes(
    labels: np.ndarray, classes: np.ndarray, class_weight: Mapping[Any, float] | list[Any] | str | None
) -> np.ndarray:
    """Return a weight for each class, from the labels that count; empty for equal ones.

    ``"balanced"`` is the number of labels over that of classes among them times the count of the class; a class that
    is not among them has the weight 1.
    """
    if class_weight is None:
        return np.empty(0)
    if isinstance(class_weight, list):
        raise DataError("class_weight is a list, a dictionary for each label: y has one class for each position.")
    if isinstance(class_weight, Mapping):
        return compute_sample_weight(class_weight, classes)
    found, n = np.unique(labels, return_counts=True)
    weights = np.ones(len(classes))
    weights[encode_classes(found, classes).ravel()] = n.sum() / (len(found) * n)
    return weights


def row_weights(label: np.ndarray, class_weights: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
    """Return the weights of rows whose loss is a mean over positions, None if all are equal.

    That of a row is multiplied by the sum of the weights of its positions, so that the objective is a mean over all
    positions of the batch: -1, or NaN, counts as 0, a class as its weight or 1.
    """
    counted = ~np.isnan(label) if label.dtype.kind == "f" else label >= 0
    each = np.where(counted, class_weights[label], 0.0) if class_weights.size else counted
    sums = each.reshape(len(label), -1).sum(axis=1)
    if weight is None:
        return None if (sums == sums[0]).all() and sums[0] > 0 else sums.astype(np.float64)
    return weight * sums


@as_data_error()
def weights_of_entries(sample_weight: ArrayLike | None, counted: np.ndarray) -> np.ndarray | None:
    """Return the weights of the rows for each of their entries that count, (m,)."""
    if sample_weight is None:
        return None
    weight = column_or_1d(sample_weight, dtype=np.float64)
    check_consistent_length(weight, counted)
    return np.repeat(weight, counted.reshape(len(counted), -1).sum(axis=1))


@as_data_error()
def check_values(y: ArrayLike, dtype: str) -> np.ndarray:
    """Return the targets of a regression with positions; NaN is a value that does not count.

    Raises
    ------
    DataError
        They are no numbers, a value is infinite, or all are NaN.
    """
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        raise DataError(f"y must hold numbers, got {values.dtype}.")
    values = np.ascontiguousarray(values, dtype=dtype)
    assert_all_finite(values, allow_nan=True)
    if np.isnan(values).all():
        raise DataError("All values of y are NaN: nothing is left to train on.")
    return values
