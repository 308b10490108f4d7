"""Transformers that project the rows, by a matrix or by random features and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.decomposition import FactorAnalysis, FastICA, MiniBatchSparsePCA, SparsePCA
from sklearn.kernel_approximation import Nystroem, RBFSampler, SkewedChi2Sampler

from onnxtrain.convert.additions.kernels import RowsWith, pairwise
from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.errors import ConversionError


@built_in(FastICA)
def independent_components(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``(X - mean) @ components.T``; without whitening, there is no mean."""
    centered = op.Sub(X, estimator.mean_) if hasattr(estimator, "mean_") else X
    return op.MatMul(centered, estimator.components_.T)


@built_in(FactorAnalysis)
def factors(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    r"""Return the posterior means of the factors of loadings W and noise variances :math:`\Psi`.

    .. math::

        (X - \mu) \Psi^{-1} W^\top (I + W \Psi^{-1} W^\top)^{-1}
    """
    loadings = estimator.components_
    scaled = loadings / estimator.noise_variance_
    posterior = np.linalg.inv(np.eye(len(loadings)) + scaled @ loadings.T)
    return op.MatMul(op.Sub(X, estimator.mean_), op.constant(scaled.T @ posterior))


@built_in(SparsePCA, MiniBatchSparsePCA)
def sparse_components(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    r"""Return the ridge regression of the rows on components C, :math:`(X - \mu) C^\top (C C^\top + \alpha I)^{-1}`."""
    components = estimator.components_
    gram = components @ components.T + estimator.ridge_alpha * np.eye(len(components))
    return op.MatMul(op.Sub(X, estimator.mean_), op.constant(np.linalg.solve(gram, components).T))


@built_in(RBFSampler)
def random_features(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``sqrt(2 / k) * cos(X @ weights + offset)`` for k random weights."""
    return _cosines(op, estimator, X)


@built_in(SkewedChi2Sampler)
def random_features_of_logarithms(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``sqrt(2 / k) * cos(log(X + skewedness) @ weights + offset)`` for k random weights."""
    return _cosines(op, estimator, op.Log(op.Add(X, float(estimator.skewedness))))


def _cosines(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    weights, offset = estimator.random_weights_, estimator.random_offset_
    return op.Mul(op.Cos(op.Add(op.MatMul(X, weights), offset)), float(np.sqrt(2 / weights.shape[1])))


@built_in(Nystroem)
def kernel_of_some_rows(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``k(X, components) @ normalization.T`` for some rows of the fit."""
    rows = estimator.components_
    if hasattr(rows, "toarray"):
        raise ConversionError("Nystroem was fitted on sparse rows, which are compared with each other as such.")
    given = {name: getattr(estimator, name) for name in ("gamma", "coef0", "degree")}
    given = {name: value for name, value in given.items() if value is not None}
    k = pairwise(op, RowsWith(op, X, rows.astype(np.float64)), estimator.kernel, rows.shape[1], **given)
    return op.MatMul(k, estimator.normalization_.T)
