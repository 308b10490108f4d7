"""Nearest centroids, and neighbors weighted by distance."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import scipy.sparse
from sklearn.neighbors import KNeighborsRegressor, NearestCentroid, RadiusNeighborsRegressor

from onnxtrain.convert.additions.kernels import RowsWith
from onnxtrain.convert.custom import Nodes, addition, built_in
from onnxtrain.convert.repairs.table import Converter, repair, replaced
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope

#: The number of float32 elements of the largest initializer in a protobuf message, 2 GiB.
_LARGEST = 2**29


@built_in(NearestCentroid)
def nearest_centroid(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return probabilities from scaled distances to the centroids, or negative distances for metric='manhattan'."""
    centroids = estimator.centroids_
    if not hasattr(estimator, "predict_proba"):
        difference = op.Sub(op.Unsqueeze(X, [1]), op.Unsqueeze(centroids, [0]))
        return op.Neg(op.ReduceL1(difference, [2], keepdims=0))
    if np.allclose(estimator.class_prior_, 1 / len(estimator.classes_)):
        raise ConversionError(
            "NearestCentroid with equal priors predicts from distances, but its probabilities come from scaled "
            "distances, so no single output gives both. Fit NearestCentroid(priors='empirical'), or "
            "metric='manhattan', which has no probabilities."
        )
    scale = np.where(estimator.within_class_std_dev_ == 0, 1.0, estimator.within_class_std_dev_)
    difference = op.Div(op.Sub(op.Unsqueeze(X, [1]), op.Unsqueeze(centroids, [0])), op.constant(scale))
    prior = op.constant(2 * np.log(estimator.class_prior_)[None])
    return op.Softmax(op.Sub(prior, op.ReduceSumSquare(difference, [2], keepdims=0)), axis=1)


def _mean_of_neighbours(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the mean of the targets of the nearest rows, or of all rows within the radius, with the given weights.

    Weights are uniform, or 1 / distance: then rows at distance 0 count alone.
    """
    rows = np.asarray(estimator._fit_X, dtype=np.float64)
    y = op.Identity(estimator._y.reshape(len(rows), -1))
    squared = RowsWith(op, X, rows).distance(2)
    if isinstance(estimator, RadiusNeighborsRegressor):
        near = op.Cast(op.LessOrEqual(squared, float(estimator.radius) ** 2), to=ir.DataType.FLOAT)
        if estimator.weights == "uniform":
            return op.MatMul(op.Div(near, op.ReduceSum(near, [1], keepdims=1)), y)
        return op.MatMul(_of_distances(op, squared, near), y)
    squared, nearest = op.TopK(squared, np.array([estimator.n_neighbors]), largest=0, axis=1, _outputs=2)
    weights = op.Unsqueeze(_of_distances(op, squared, None), [2])
    return op.ReduceSum(op.Mul(op.Gather(y, nearest, axis=0), weights), [1], keepdims=0)


def _of_distances(op: Nodes, squared: ir.Value, near: ir.Value | None) -> ir.Value:
    """Return weights 1 / distance of the `near` rows, normalized; rows at distance 0 share the weight."""
    equal = op.Equal(squared, 0.0)
    hits = op.Cast(equal, to=ir.DataType.FLOAT)
    # onnxruntime 1.19 ends the process where it fuses (1 / a) b
    inverse = op.Div(1.0 if near is None else near, op.Sqrt(op.Where(equal, 1.0, squared)))
    weights = op.Where(op.Greater(op.ReduceMax(hits, [1], keepdims=1), 0.0), hits, inverse)
    return op.Div(weights, op.ReduceSum(weights, [1], keepdims=1))


_OF_NEIGHBOURS = addition(_mean_of_neighbours)


@repair(KNeighborsRegressor, RadiusNeighborsRegressor)
def of_dense_rows(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write the fitted rows dense, and the weights 1 / distance.

    skl2onnx takes no sparse rows, averages integer targets as integers, which have no derivative, leaves out rows at
    exactly the radius, and gives a fitted row the mean of its neighbours with any weights. Equal fitted rows raise a
    ConversionError: it is arbitrary which of their targets are trained.
    """
    model = copy.copy(operator.raw_operator)
    if scipy.sparse.issparse(model._fit_X):
        model._fit_X = _dense(model._fit_X)
    if isinstance(model, KNeighborsRegressor):
        _check_distinct(model._fit_X)
    model._y = np.asarray(model._y, np.float64)
    # skl2onnx leaves out the rows that lie exactly at the radius
    own = model.weights == "distance" or (model.weights == "uniform" and isinstance(model, RadiusNeighborsRegressor))
    euclidean = model.effective_metric_ == "euclidean" and isinstance(model._fit_X, np.ndarray)
    write = _OF_NEIGHBOURS.convert if own and euclidean else convert
    with replaced(operator, model):
        write(scope, operator, container)


def _check_distinct(rows: Any) -> None:
    """Raise a ConversionError if fitted rows are equal, because it is arbitrary which of their targets are trained."""
    rows = np.asarray(rows, np.float32)
    _, first, n_equal = np.unique(rows, axis=0, return_index=True, return_counts=True)
    if len(first) < len(rows):
        most = int(np.argmax(n_equal))
        raise ConversionError(
            f"KNeighborsRegressor was fitted on equal rows (row {first[most]} and {n_equal[most] - 1} more), so it is "
            "arbitrary which of them are among the nearest. Use RadiusNeighborsRegressor, which averages all of them, "
            "or fit on distinct rows. BaggingRegressor(..., bootstrap=False, max_samples=0.8) draws no row twice, "
            "AdaBoostRegressor always does."
        )


def _dense(rows: Any) -> np.ndarray:
    n_entries = math.prod(rows.shape)
    if n_entries > _LARGEST:
        raise ConversionError(
            f"The neighbors were fitted on {rows.shape[0]} sparse rows with {rows.shape[1]} columns. As dense rows, "
            f"they take {n_entries * 4 / 2**30:.0f} GiB, but an ONNX model holds at most 2 GiB. Fit on fewer rows, or "
            "on fewer columns, with TruncatedSVD or a vectorizer with a smaller max_features in front."
        )
    return rows.toarray()
