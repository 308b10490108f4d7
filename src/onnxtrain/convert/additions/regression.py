"""Regressors that are a matrix product or a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.cross_decomposition import CCA, PLSCanonical
from sklearn.dummy import DummyRegressor

from onnxtrain.convert.custom import Nodes, built_in


@built_in(CCA, PLSCanonical)
def partial_least_squares(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``(X - mean) @ coef.T + intercept``."""
    centered = op.Sub(X, estimator._x_mean.reshape(1, -1))
    return op.Add(op.MatMul(centered, estimator.coef_.T), estimator.intercept_.reshape(1, -1))


@built_in(DummyRegressor)
def constant(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the constant for each row."""
    return op.repeated(X, np.reshape(estimator.constant_, (1, -1)).astype(np.float64))
