"""Nearest centroids, and neighbors weighted by distance."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import scipy.sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestCentroid,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

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

    Weights are uniform, or 1 / distance: then rows at distance 0 count alone. The targets of a classifier are
    probabilities, which are 0 or 1.
    """
    rows, order = np.asarray(estimator._fit_X, dtype=np.float64), _order(estimator)
    y = op.constant(_one_hot(estimator)) if is_classifier(estimator) else op.Identity(_columns(estimator._y))
    distances = RowsWith(op, X, rows).distance(order)
    if _has_radius(estimator):
        radius = float(estimator.radius) ** (1.0 if math.isinf(order) else order)
        near = op.Cast(op.LessOrEqual(distances, radius), to=ir.DataType.FLOAT)
        if estimator.weights == "uniform":
            weights = op.Div(near, op.ReduceSum(near, [1], keepdims=1))
        else:
            weights = _of_distances(op, distances, order, near)
        return _for_outliers(op, estimator, op.MatMul(weights, y), near)
    distances, nearest = op.TopK(distances, np.array([estimator.n_neighbors]), largest=0, axis=1, _outputs=2)
    values = op.Gather(y, nearest, axis=0)
    if estimator.weights == "uniform":
        return op.ReduceMean(values, [1], keepdims=0)
    weights = op.Unsqueeze(_of_distances(op, distances, order, None), [2])
    return op.ReduceSum(op.Mul(values, weights), [1], keepdims=0)


def _order(estimator: Any) -> float:
    """Return the order of a Minkowski metric, whose distance is the p-th root of a sum of p-th powers; 0 of others."""
    metric, parameters = estimator.effective_metric_, estimator.effective_metric_params_
    if metric == "minkowski":
        return float(parameters["p"]) if parameters.get("w") is None else 0.0
    return {"euclidean": 2.0, "manhattan": 1.0, "chebyshev": math.inf}.get(metric, 0.0)


def _columns(targets: np.ndarray) -> np.ndarray:
    return targets.reshape(len(targets), -1)


def _one_hot(classifier: Any) -> np.ndarray:
    return np.eye(len(classifier.classes_))[classifier._y]


def _of_distances(op: Nodes, distances: ir.Value, order: float, near: ir.Value | None) -> ir.Value:
    """Return weights 1 / distance of the `near` rows, normalized; rows at distance 0 share the weight.

    Distances are given without the root.
    """
    equal = op.Equal(distances, 0.0)
    hits = op.Cast(equal, to=ir.DataType.FLOAT)
    distances = op.Where(equal, 1.0, distances)
    if order == 2:
        distances = op.Sqrt(distances)
    elif order != 1 and not math.isinf(order):
        distances = op.Pow(distances, 1 / order)
    # onnxruntime 1.19 ends the process where it fuses (1 / a) b
    inverse = op.Div(1.0 if near is None else near, distances)
    weights = op.Where(op.Greater(op.ReduceMax(hits, [1], keepdims=1), 0.0), hits, inverse)
    return op.Div(weights, op.ReduceSum(weights, [1], keepdims=1))


def _for_outliers(op: Nodes, estimator: Any, found: ir.Value, near: ir.Value) -> ir.Value:
    """Return the means, with the label for outliers where a classifier has one for rows without neighbors.

    Without it, the result is NaN, where scikit-learn's classifier raises an error.
    """
    labels = getattr(estimator, "outlier_label_", None)
    if labels is None:
        return found
    if labels[0] not in estimator.classes_:
        raise ConversionError(
            f"The outlier_label={labels[0]!r} of RadiusNeighborsClassifier is no class, so a row without neighbors has "
            f"no probabilities. Use outlier_label='most_frequent', or one of {estimator.classes_.tolist()}."
        )
    of_outliers = op.constant((estimator.classes_ == labels[0]).astype(np.float64)[None])
    return op.Where(op.Greater(op.ReduceMax(near, [1], keepdims=1), 0.0), found, of_outliers)


_OF_NEIGHBOURS = addition(_mean_of_neighbours)


@repair(KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsClassifier, RadiusNeighborsRegressor)
def of_dense_rows(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write the fitted rows dense, and the weights 1 / distance.

    skl2onnx takes no sparse rows, averages integer targets as integers, which have no derivative, leaves out rows at
    exactly the radius, gives a fitted row the mean of its neighbours with any weights, and converts the weights of
    classifiers and Minkowski distances wrongly. Equal fitted rows of a KNeighborsRegressor raise a ConversionError: it
    is arbitrary which of their targets are trained.
    """
    model = copy.copy(operator.raw_operator)
    if scipy.sparse.issparse(model._fit_X):
        model._fit_X = _dense(model._fit_X)
    if isinstance(model, KNeighborsRegressor):
        _check_distinct(model._fit_X)
    if is_regressor(model):
        model._y = np.asarray(model._y, np.float64)
    model.weights = "uniform" if model.weights is None else model.weights
    _check_formula(model)
    write = _OF_NEIGHBOURS.convert if _is_own(model) else convert
    with replaced(operator, model):
        write(scope, operator, container)


def _check_formula(model: Any) -> None:
    """Raise a ConversionError if the weights or the metric of neighbors have no formula in ONNX, or no weight."""
    name, metric = type(model).__name__, model.effective_metric_
    if is_classifier(model) and model.outputs_2d_:
        raise ConversionError(
            f"{name} counts the classes of neighbours, which has no derivative. Use "
            "MultiOutputClassifier(LabelSpreading(kernel='knn')), which averages label distributions of the nearest "
            "rows; these are trained."
        )
    if not isinstance(model.weights, str):
        raise ConversionError(
            f"The weights of {name} are a Python function, which has no formula in ONNX. Use weights='distance' or "
            "weights='uniform'."
        )
    if metric == "precomputed":
        raise ConversionError(
            f"{name}(metric='precomputed') takes distances to the rows of its fit. Leave out the step that computes "
            f"them, such as KNeighborsTransformer, and set the metric in its place: {name}(metric='euclidean')."
        )
    cosine = metric == "cosine" and model.weights != "distance" and not _has_radius(model)  # skl2onnx's formula
    if not _order(model) and not cosine:
        own = getattr(metric, "__name__", repr(metric))
        raise ConversionError(
            f"The metric {own} of {name} has no formula in ONNX. Use metric='euclidean', 'manhattan', "
            "'chebyshev' or 'minkowski' without the parameter w; 'cosine' only for nearest neighbours of equal weight."
        )


def _has_radius(model: Any) -> bool:
    return isinstance(model, (RadiusNeighborsClassifier, RadiusNeighborsRegressor))


def _is_own(model: Any) -> bool:
    """Whether the mean of the neighbors is written here; skl2onnx needs less memory for the nearest, unweighted."""
    return _has_radius(model) or model.weights == "distance" or _order(model) not in (0.0, 1.0, 2.0)


def _check_distinct(rows: Any) -> None:
    """Raise a ConversionError if fitted rows are equal, because it is arbitrary which of their targets are trained."""
    rows = np.asarray(rows, np.float32)
    _, first, n_equal = np.unique(rows, axis=0, return_index=True, return_counts=True)
    if len(first) < len(rows):
        most = int(np.argmax(n_equal))
        raise ConversionError(
            f"KNeighborsRegressor was fitted on equal rows (row {first[most]} and {n_equal[most] - 1} more), so it is "
            "arbitrary which of them are among the nearest. Use KernelRidge(kernel='rbf') behind a StandardScaler, "
            "where all rows count, or RadiusNeighborsRegressor(radius), which averages all rows in a radius and needs "
            "one where each row has a neighbor. BaggingRegressor(..., bootstrap=False, max_samples=0.8) draws no row "
            "twice, AdaBoostRegressor always does."
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
