r"""Gaussian processes: the mean of a regressor, and the probabilities of a classifier by Laplace's approximation.

For a classifier, with :math:`\pi` and :math:`W` at the mode and :math:`L L^T = I + W^{1/2} K W^{1/2}`,

.. math::

    m = k^T (y - \pi), \qquad v = k(x, x) - |L^{-1} W^{1/2} k|^2, \qquad p = \int \sigma(z) N(z \mid m, v) dz.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.2; the integral is
approximated as in scikit-learn, after Williams and Barber, Bayesian Classification with Gaussian Processes, 1998,
appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from scipy.linalg import solve_triangular
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor, kernels
from sklearn.gaussian_process._gpc import COEFS, LAMBDAS

from onnxtrain.convert.additions.kernels import Pairs, RowsWith, RowsWithThemselves, pairwise
from onnxtrain.convert.compared_rows import COMPARED_ROWS, some_rows
from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.errors import ConversionError, warn

#: The covariance of a part of a kernel.
_Inner: TypeAlias = Callable[[Any], ir.Value]

#: scikit-learn's probabilities of a classifier are off by up to 1e-12, 1e-5 of this, because the terms of their sum are
#: up to 3500.
_RESOLVED = 1e-7


def covariance(op: Nodes, kernel: Any, pairs: Pairs, n_features: int) -> ir.Value:
    """Return a kernel of sklearn.gaussian_process for pairs of rows."""
    kind = next((known for known in type(kernel).__mro__ if known in _KERNELS), None)
    if kind is None:
        raise ConversionError(
            f"The kernel {type(kernel).__name__} has no formula in ONNX. Known: "
            f"{', '.join(known.__name__ for known in _KERNELS)}, and their sums, products and powers."
        )

    def inner(part: Any) -> ir.Value:
        return covariance(op, part, pairs, n_features)

    if kind is kernels.PairwiseKernel:
        options = kernel.pairwise_kernels_kwargs or {}
        return pairwise(op, pairs, kernel.metric, n_features, gamma=kernel.gamma, **options)
    return _KERNELS[kind](op, kernel, pairs, inner)


def _root(op: Nodes, squared: ir.Value) -> ir.Value:
    """Return the square root, whose derivative at 0 is 0."""
    return op.Sqrt(op.Max(squared, 1e-30))


def _matern(op: Nodes, kernel: Any, pairs: Pairs, inner: _Inner) -> ir.Value:
    squared = pairs.distance(2, kernel.length_scale)
    if kernel.nu == math.inf:
        return op.Exp(op.Mul(squared, -0.5))
    if kernel.nu not in (0.5, 1.5, 2.5):
        raise ConversionError(
            f"Matern(nu={kernel.nu}) needs a Bessel function, which ONNX lacks. Set nu to 0.5, 1.5, 2.5 or np.inf."
        )
    d = op.Mul(_root(op, squared), math.sqrt(2 * kernel.nu))
    powers = {
        0.5: lambda: None,
        1.5: lambda: op.Add(d, 1.0),
        2.5: lambda: op.Add(op.Add(d, 1.0), op.Div(op.Mul(d, d), 3.0)),
    }[kernel.nu]()
    decay = op.Exp(op.Neg(d))
    return decay if powers is None else op.Mul(powers, decay)


def _rational_quadratic(op: Nodes, kernel: Any, pairs: Pairs, inner: _Inner) -> ir.Value:
    base = op.Add(op.Div(pairs.distance(2), 2 * kernel.alpha * kernel.length_scale**2), 1.0)
    return op.Pow(base, -float(kernel.alpha))


def _exp_sine_squared(op: Nodes, kernel: Any, pairs: Pairs, inner: _Inner) -> ir.Value:
    wave = op.Sin(op.Mul(_root(op, pairs.distance(2)), math.pi / kernel.periodicity))
    return op.Exp(op.Mul(op.Mul(wave, wave), -2.0 / kernel.length_scale**2))


def _white(op: Nodes, kernel: Any, pairs: Pairs, inner: _Inner) -> ir.Value:
    """Return the noise, which is zero between different rows."""
    return pairs.full(kernel.noise_level if isinstance(pairs, RowsWithThemselves) else 0.0)


#: For each kernel class, a function ``(op, kernel, pairs, inner)``, where `inner` gives the covariance of a part of the
#: kernel.
_KERNELS: dict[type, Callable[[Nodes, Any, Pairs, _Inner], ir.Value]] = {
    kernels.Sum: lambda op, kernel, pairs, inner: op.Add(inner(kernel.k1), inner(kernel.k2)),
    kernels.Product: lambda op, kernel, pairs, inner: op.Mul(inner(kernel.k1), inner(kernel.k2)),
    kernels.Exponentiation: lambda op, kernel, pairs, inner: op.Pow(inner(kernel.kernel), float(kernel.exponent)),
    kernels.ConstantKernel: lambda op, kernel, pairs, inner: pairs.full(kernel.constant_value),
    kernels.WhiteKernel: _white,
    kernels.Matern: _matern,
    kernels.RBF: lambda op, kernel, pairs, inner: op.Exp(op.Mul(pairs.distance(2, kernel.length_scale), -0.5)),
    kernels.RationalQuadratic: _rational_quadratic,
    kernels.ExpSineSquared: _exp_sine_squared,
    kernels.DotProduct: lambda op, kernel, pairs, inner: op.Add(pairs.product(), float(kernel.sigma_0**2)),
    kernels.PairwiseKernel: lambda op, kernel, pairs, inner: pairs.product(),
}


@built_in(GaussianProcessRegressor)
def gaussian_process_regressor(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the mean, ``k(X, X_train) @ alpha``, in the units of y."""
    rows = np.asarray(estimator.X_train_, dtype=np.float64)
    k = covariance(op, estimator.kernel_, RowsWith(op, X, rows), rows.shape[1])
    mean = op.MatMul(k, estimator.alpha_.reshape(len(rows), -1))
    scale, offset = (np.reshape(v, (1, -1)) for v in (estimator._y_train_std, estimator._y_train_mean))
    if np.any(scale != 1):
        mean = op.Mul(mean, op.constant(scale))
    return op.Add(mean, op.constant(offset)) if np.any(offset) else mean


@built_in(GaussianProcessClassifier)
def gaussian_process_classifier(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the probabilities; for more than two classes, normalized one-against-the-rest probabilities."""
    base = estimator.base_estimator_
    if len(estimator.classes_) == 2:
        p = _of_second_class(op, base, X)
        return op.Concat(op.Sub(1.0, p), p, axis=1)
    if estimator.multi_class == "one_vs_one":
        raise ConversionError(
            "GaussianProcessClassifier(multi_class='one_vs_one') has no probabilities, only votes, which have no "
            "derivative. Set multi_class='one_vs_rest'."
        )
    each = op.Concat(*(_of_second_class(op, part, X) for part in base.estimators_), axis=1)
    return op.Div(each, op.ReduceSum(each, [1], keepdims=1))


def warn_of_unresolved(estimator: GaussianProcessClassifier) -> None:
    """Warn if scikit-learn does not resolve the probabilities of several classes, which it normalizes.

    Training may lower those of all classes of a row, because only their ratios count.
    """
    parts = getattr(getattr(estimator, "base_estimator_", None), "estimators_", None)
    if parts is None or estimator.multi_class == "one_vs_one":  # not fitted, such as a parameter of a vote; two classes
        return
    rows = some_rows(parts[0].X_train_, COMPARED_ROWS)
    lost = int(np.sum(sum(part.predict_proba(rows)[:, 1] for part in parts) < _RESOLVED))
    if lost:
        warn(
            f"scikit-learn may predict other classes than the trained model. Training lowered the probabilities of all "
            f"classes below {_RESOLVED:g} in {lost} of {len(rows)} rows. GaussianProcessClassifier computes them to "
            "1e-12 and normalizes them. Use get_trained_onnx(), which computes small probabilities exactly, or train "
            "less, for example with solver='adam' and its default learning rate."
        )


def _of_second_class(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the probability (n, 1) of the second of two classes."""
    rows, n_features = estimator.X_train_, estimator.X_train_.shape[1]
    k = covariance(op, estimator.kernel_, RowsWith(op, X, rows), n_features)
    target = op.constant(estimator.y_train_.astype(np.float64).reshape(-1, 1))
    mean = op.MatMul(k, op.Sub(target, estimator.pi_.reshape(-1, 1)))
    root = solve_triangular(estimator.L_, np.diag(estimator.W_sr_), lower=True)
    explained = op.ReduceSumSquare(op.MatMul(k, op.constant(root.T)), [1], keepdims=1)
    variance = op.Sub(covariance(op, estimator.kernel_, RowsWithThemselves(op, X), n_features), explained)
    return _logistic_mean(op, mean, variance)


def _logistic_mean(op: Nodes, mean: ir.Value, variance: ir.Value) -> ir.Value:
    r"""Return :math:`\sum_i c_i (1 + \mathrm{erf}(a_i)) / 2`, :math:`a_i = \lambda_i m / \sqrt{1 + 2 v \lambda_i^2}`.

    The coefficients have both signs and magnitudes up to 3500, and their sum is one, so float32 would lose four digits.
    Instead, the differences :math:`\mathrm{erf}(a_i) - \mathrm{erf}(a_0)` are computed as integrals between the close
    a_i. The smaller of p and 1 - p is computed, because small probabilities of several classes are normalized and need
    all their digits.
    """
    lambdas, coefs = LAMBDAS.ravel().tolist(), COEFS.ravel().tolist()
    middle, total = lambdas[1], sum(coefs)
    size = op.Abs(mean)

    def denominator(value: float) -> ir.Value:
        return op.Sqrt(op.Add(op.Mul(variance, 2 * value**2), 1.0))

    d0 = denominator(middle)
    a0 = op.Mul(op.Div(size, d0), middle)
    rest = op.Max(op.Sub(_FAR, a0), 0.0)
    terms = [op.Mul(_density(op, a0, rest, 32), total)]
    for value, coef in zip(lambdas, coefs, strict=True):
        if value == middle:
            continue
        d = denominator(value)
        # a - a0 without cancellation: value d0 - middle d is the difference of the squares over the sum
        both = op.Mul(op.Mul(d, d0), op.Add(op.Mul(d0, value), op.Mul(d, middle)))
        gap = op.Mul(op.Div(size, both), value**2 - middle**2)
        terms.append(op.Mul(_density(op, a0, gap, 8), -coef))
    smaller = op.Mul(op.Sum(*terms), 0.5)
    return op.Where(op.Less(mean, 0.0), smaller, op.Sub(total, smaller))


#: erf is 1 from here on, even in float64.
_FAR = 6.0


def _density(op: Nodes, start: ir.Value, gap: ir.Value, n_nodes: int) -> ir.Value:
    """Return ``erf(start + gap) - erf(start)`` by Gauss-Legendre quadrature; onnxruntime has no Erf for float64."""
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    t = op.Add(start, op.Mul(gap, op.constant((nodes[None] + 1) / 2)))
    mean = op.MatMul(op.Exp(op.Neg(op.Mul(t, t))), op.constant(weights[:, None] / math.sqrt(math.pi)))
    return op.Mul(gap, mean)
