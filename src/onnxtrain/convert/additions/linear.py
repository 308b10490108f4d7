"""Predictors that are a matrix product or a constant: naive Bayes of counts, partial least squares, dummies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.cross_decomposition import CCA, PLSCanonical
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.naive_bayes import ComplementNB, MultinomialNB

from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.errors import ConversionError


@built_in(MultinomialNB, ComplementNB)
def naive_bayes_of_counts(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the softmax of ``X @ feature_log_prob.T + class_log_prior``.

    The mean over the classes is subtracted first, which does not change the probabilities: the common part of the sums
    of logarithms is far larger than the differences, which float32 would lose.
    """
    log = estimator.feature_log_prob_.T
    weights = op.Identity(log)
    z = op.MatMul(X, op.Sub(weights, op.ReduceMean(weights, [1], keepdims=1)))
    if not isinstance(estimator, ComplementNB):
        z = op.Add(z, estimator.class_log_prior_.reshape(1, -1))
    elif len(estimator.classes_) == 1:
        z = op.Add(z, op.constant(estimator.class_log_prior_.reshape(1, -1)))
    return op.Softmax(z, axis=1)


@built_in(DummyClassifier)
def frequencies(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the frequencies of the classes, or 1 for the class that is always predicted."""
    if estimator.strategy in ("stratified", "uniform"):
        raise ConversionError(
            f"DummyClassifier(strategy={estimator.strategy!r}) draws classes at random: choose strategy='prior'."
        )
    p = np.asarray(estimator.class_prior_, dtype=np.float64)
    if estimator.strategy == "prior":
        weight = op.Identity(p[None])
        return op.repeated(X, op.Div(weight, op.ReduceSum(weight, [1], keepdims=1)))
    if estimator.strategy == "most_frequent":
        p = np.eye(len(p))[np.argmax(p)]
    elif estimator.strategy == "constant":
        p = (estimator.classes_ == np.ravel(estimator.constant)[0]).astype(np.float64)
    return op.repeated(X, op.constant(p[None]))


# ------------------------------------------------------------------ regressors


@built_in(CCA, PLSCanonical)
def partial_least_squares(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return ``(X - mean) @ coef.T + intercept``."""
    centered = op.Sub(X, estimator._x_mean.reshape(1, -1))
    return op.Add(op.MatMul(centered, estimator.coef_.T), estimator.intercept_.reshape(1, -1))


@built_in(DummyRegressor)
def constant(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the constant for each row."""
    return op.repeated(X, np.reshape(estimator.constant_, (1, -1)).astype(np.float64))
