"""Scores of rows on the workers, computed from sums over the partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from onnxtrain.dask.partitions import Part, len_of, partitions
from onnxtrain.dask.workers import Workers
from onnxtrain.errors import DataError
from onnxtrain.estimators.positions import counts
from onnxtrain.estimators.remedies import as_data_error
from onnxtrain.estimators.sample_weights import check_sample_weight


def accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the accuracy of a classifier; for multilabel targets, all labels of a row must be right."""
    found = _over(_hits, estimator, X, y, sample_weight)
    right, of = (sum(column) for column in zip(*found, strict=True))
    return float(right / of)


def r_squared(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    r"""Return R² of a regressor, the mean over its outputs, :math:`1 - \sum w (y - f)^2 / \sum w (y - \bar y)^2`."""
    found = _over(_moments, estimator, X, y, sample_weight)
    whole = found[0]
    for part in found[1:]:
        whole = whole.with_(part)
    # as in scikit-learn: for a constant y, 1 if the predictions equal it, else 0
    is_constant = whole.spread == 0
    ratio = whole.residuals / np.where(is_constant, 1.0, whole.spread)
    return float(np.mean(np.where(is_constant, whole.residuals == 0, 1 - ratio)))


class Moments(NamedTuple):
    """Weighted sums over rows, for each output: the weights, the mean of y, its spread, the squared residuals."""

    weight: float
    mean: np.ndarray
    spread: np.ndarray
    residuals: np.ndarray

    def with_(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows; the means are combined so that large values lose no digits.

        References
        ----------
        Chan, Golub, LeVeque, "Algorithms for computing the sample variance", The American Statistician 37 (1983).
        """
        weight, shift = self.weight + other.weight, other.mean - self.mean
        between = shift**2 * self.weight * other.weight / weight
        mean = self.mean + shift * other.weight / weight
        return Moments(weight, mean, self.spread + other.spread + between, self.residuals + other.residuals)


def _over(function: Callable[..., Any], estimator: Any, X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Return the sums of the partitions that have rows of nonzero weight."""
    workers = Workers.of(estimator.client, estimator.max_failures, estimator.timeout)
    parts = workers.client.compute(partitions(X, y, sample_weight))
    local = workers.client.submit(_itself, estimator.to_local(), pure=False)
    found = workers.results(lambda: workers.submit(function, parts, local), parts)
    if not (counted := [one for one in found if one is not None]):
        raise DataError("No partition has a row with a nonzero sample weight.")
    return counted


def _itself(local: Any) -> Any:
    return local


@as_data_error()
def _hits(part: Part, local: Any) -> tuple[float, float] | None:
    X, y, weight = part
    if not len_of(X):
        return None
    weights = _weights(weight, X)
    labels = np.asarray(y)
    if local._model.positional:
        counted = counts(labels, local.ignore_index)
        weights = weights * counted.reshape(len(counted), -1).sum(axis=1)
    of = float(weights.sum())
    return (local.score(X, y, weight) * of, of) if of else None


def _moments(part: Part, local: Any) -> Moments | None:
    X, y, weight = part
    if not len_of(X):
        return None
    y, predicted = np.asarray(y, np.float64), np.asarray(local.predict(X), np.float64)
    weights = np.broadcast_to(_weights(weight, X).reshape(-1, *[1] * (y.ndim - 1)), y.shape)
    if local._model.positional:
        counted = ~np.isnan(y)
        y, predicted, weights = y[counted], predicted[counted], weights[counted]
    y, predicted, weights = (x.reshape(len(x), -1) for x in (y, predicted, weights))
    if y.shape != predicted.shape:
        raise DataError(f"y has {y.shape[1]} columns, but the predictions have {predicted.shape[1]}.")
    if not np.isfinite(y).all():
        raise DataError("y contains NaN or infinity. Leave out the rows without a target.")
    of = weights.sum(axis=0)
    if not of.any():
        return None
    mean = (weights * y).sum(axis=0) / of
    return Moments(
        float(of[0]), mean, (weights * (y - mean) ** 2).sum(axis=0), (weights * (y - predicted) ** 2).sum(axis=0)
    )


def _weights(weight: Any, X: Any) -> np.ndarray:
    found = check_sample_weight(weight, X, "float64", keep=True)
    return np.ones(len_of(X)) if found is None else found
