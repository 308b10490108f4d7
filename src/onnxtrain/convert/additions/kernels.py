"""Kernels between rows and fitted rows: KernelRidge, LabelPropagation and LabelSpreading.

Distances are sums of squared differences where ``|x|² - 2 x v + |v|²`` loses digits in float32, because rows are large
and close to each other. The fitted rows are constants, so the kernel is computed once per fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from sklearn.kernel_ridge import KernelRidge
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.errors import ConversionError
from onnxtrain.registry import did_you_mean

#: The expanded form of a distance is off by 1e-7 of the squared norms. If their product with gamma is larger than this,
#: the kernel would lose its sixth digit.
_FAR = 16.0


class Pairs(Protocol):
    """Values for pairs of rows, of shape (n, m)."""

    def product(self) -> ir.Value:
        """Return the inner products."""

    def cosine(self) -> ir.Value:
        """Return the cosines of the angles."""

    def distance(self, order: float, scale: Any = 1.0) -> ir.Value:
        r"""Return :math:`\\sum_j |(x_j - v_j) / s_j|^p` of order p; of infinite order, the largest difference."""

    def squared_distance(self, gamma: float) -> ir.Value:
        """Return the squared distances, rounded by no more than their product with gamma shows."""

    def chi_squared(self) -> ir.Value:
        r"""Return :math:`\\sum_j (x_j - v_j)^2 / (x_j + v_j)`."""

    def full(self, value: float) -> ir.Value:
        """Return the same value for each pair."""


@dataclass(frozen=True)
class RowsWith:
    """Pairs of each row (n, p) with each fitted row (m, p): shape (n, m)."""

    op: Nodes
    X: ir.Value
    fitted: np.ndarray

    def product(self) -> ir.Value:
        """Return the inner products."""
        return self.op.MatMul(self.X, self.op.constant(self.fitted.T))

    def cosine(self) -> ir.Value:
        """Return the cosines of the angles; 0 for a row of zeros."""
        length = self.op.Sqrt(self.op.ReduceSumSquare(self.X, [1], keepdims=1))
        unit = self.op.Div(self.X, self.op.Max(length, 1e-30))
        lengths = np.linalg.norm(self.fitted, axis=1, keepdims=True)
        return self.op.MatMul(unit, self.op.constant((self.fitted / np.where(lengths == 0, 1, lengths)).T))

    def distance(self, order: float, scale: Any = 1.0) -> ir.Value:
        """Return the sums of powers of differences, or the largest difference."""
        op = self.op
        difference = self._difference()
        if np.any(np.asarray(scale) != 1):
            difference = op.Div(difference, op.constant(np.asarray(scale, dtype=np.float64)))
        if order == 2:
            return op.ReduceSumSquare(difference, [2], keepdims=0)
        if order == 1:
            return op.ReduceL1(difference, [2], keepdims=0)
        if math.isinf(order):
            return op.ReduceMax(op.Abs(difference), [2], keepdims=0)
        return op.ReduceSum(op.Pow(op.Abs(difference), order), [2], keepdims=0)

    def squared_distance(self, gamma: float) -> ir.Value:
        """Return the squared distances, by a matrix product around the mean of the fitted rows if that is precise."""
        op, center = self.op, self.fitted.mean(axis=0)
        fitted = self.fitted - center
        squares = np.square(fitted).sum(axis=1)
        if gamma * squares.max() > _FAR:
            return self.distance(2)
        x = op.Sub(self.X, op.constant(center))
        own = op.Add(op.ReduceSumSquare(x, [1], keepdims=1), op.constant(squares[None]))
        return op.Max(op.Add(own, op.MatMul(x, op.constant(-2 * fitted.T))), 0.0)

    def chi_squared(self) -> ir.Value:
        """Return the sums of squared differences divided by sums; a pair of zeros contributes 0."""
        op = self.op
        total = op.Add(op.Unsqueeze(self.X, [1]), op.constant(self.fitted[None]))
        total = op.Where(op.Equal(total, 0.0), 1.0, total)
        return op.ReduceSum(op.Div(op.Mul(self._difference(), self._difference()), total), [2], keepdims=0)

    def full(self, value: float) -> ir.Value:
        """Return the same value for each pair."""
        return self.op.repeated(self.X, self.op.constant(np.full((1, len(self.fitted)), value)))

    def _difference(self) -> ir.Value:
        return self.op.Sub(self.op.Unsqueeze(self.X, [1]), self.op.constant(self.fitted[None]))


@dataclass(frozen=True)
class RowsWithThemselves:
    """Pairs of each row (n, p) with itself: shape (n, 1)."""

    op: Nodes
    X: ir.Value

    def product(self) -> ir.Value:
        """Return the squared lengths."""
        return self.op.ReduceSumSquare(self.X, [1], keepdims=1)

    def cosine(self) -> ir.Value:
        """Return ones."""
        return self.full(1.0)

    def distance(self, order: float, scale: Any = 1.0) -> ir.Value:
        """Return zeros."""
        return self.full(0.0)

    def squared_distance(self, gamma: float) -> ir.Value:
        """Return zeros."""
        return self.full(0.0)

    def chi_squared(self) -> ir.Value:
        """Return zeros."""
        return self.full(0.0)

    def full(self, value: float) -> ir.Value:
        """Return the same value for each row."""
        return self.op.repeated(self.X, self.op.constant(np.full((1, 1), value)))


def _exponential(op: Nodes, distance: ir.Value, gamma: float) -> ir.Value:
    return op.Exp(op.Mul(distance, -gamma))


#: For each metric of sklearn.metrics.pairwise, a function ``(op, pairs, gamma, coef0, degree)``.
_METRICS: dict[str, Callable[[Nodes, Pairs, float, float, float], ir.Value]] = {
    "linear": lambda op, pairs, gamma, coef0, degree: pairs.product(),
    "cosine": lambda op, pairs, gamma, coef0, degree: pairs.cosine(),
    "rbf": lambda op, pairs, gamma, coef0, degree: _exponential(op, pairs.squared_distance(gamma), gamma),
    "laplacian": lambda op, pairs, gamma, coef0, degree: _exponential(op, pairs.distance(1), gamma),
    "poly": lambda op, pairs, gamma, coef0, degree: op.Pow(op.Add(op.Mul(pairs.product(), gamma), coef0), degree),
    "sigmoid": lambda op, pairs, gamma, coef0, degree: op.Tanh(op.Add(op.Mul(pairs.product(), gamma), coef0)),
    "additive_chi2": lambda op, pairs, gamma, coef0, degree: op.Neg(pairs.chi_squared()),
    "chi2": lambda op, pairs, gamma, coef0, degree: _exponential(op, pairs.chi_squared(), gamma),
}
_METRICS["polynomial"] = _METRICS["poly"]


def pairwise(
    op: Nodes,
    pairs: Pairs,
    metric: Any,
    n_features: int,
    gamma: float | None = None,
    coef0: float = 1.0,
    degree: float = 3.0,
) -> ir.Value:
    """Return a kernel of scikit-learn for pairs of rows.

    Raises
    ------
    ConversionError
        The metric is a user's function.
    """
    if not isinstance(metric, str) or metric not in _METRICS:
        known = [name for name in _METRICS if name != "polynomial"]
        name = getattr(metric, "__name__", repr(metric))
        raise ConversionError(
            f"The kernel {name} has no formula in ONNX. {did_you_mean(str(metric), known)} For a function of your "
            "own, register a converter of the estimator with onnxtrain.converter."
        )
    if gamma is None:
        gamma = 1.0 if metric == "chi2" else 1.0 / n_features
    return _METRICS[metric](op, pairs, float(gamma), float(coef0), float(degree))


@built_in(KernelRidge)
def kernel_ridge(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``k(X, X_fit) @ dual_coef``."""
    dual = estimator.dual_coef_.reshape(len(estimator.dual_coef_), -1)
    if estimator.kernel == "precomputed":
        return op.MatMul(X, dual)
    fitted = _dense(estimator.X_fit_)
    k = pairwise(
        op,
        RowsWith(op, X, fitted),
        estimator.kernel,
        fitted.shape[1],
        gamma=estimator.gamma,
        coef0=estimator.coef0,
        degree=estimator.degree,
    )
    return op.MatMul(k, dual)


@built_in(LabelPropagation, LabelSpreading)
def label_propagation(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the mean of the label distributions of the fitted rows, weighted by the kernel, or of the nearest rows."""
    rows, distributions = _dense(estimator.X_), estimator.label_distributions_
    pairs = RowsWith(op, X, rows)
    if estimator.kernel == "knn":
        _, nearest = op.TopK(pairs.distance(2), np.array([estimator.n_neighbors]), largest=0, axis=1, _outputs=2)
        found = op.ReduceSum(op.Gather(distributions, nearest, axis=0), [1], keepdims=0)
    elif estimator.kernel == "rbf":
        # far from all rows the kernel underflows, but not relative to the nearest row
        exponent = op.Mul(pairs.squared_distance(estimator.gamma), -float(estimator.gamma))
        k = op.Exp(op.Sub(exponent, op.ReduceMax(exponent, [1], keepdims=1)))
        found = op.MatMul(k, distributions)
    else:
        k = pairwise(op, pairs, estimator.kernel, rows.shape[1], gamma=estimator.gamma)
        found = op.MatMul(k, distributions)
    return op.Div(found, op.ReduceSum(found, [1], keepdims=1))


def _dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
