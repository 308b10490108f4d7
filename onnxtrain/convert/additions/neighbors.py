"""Classes by their centroids."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.neighbors import NearestCentroid

from onnxtrain.convert.own import Nodes, built_in
from onnxtrain.errors import ConversionError


@built_in(NearestCentroid)
def nearest_centroid(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return the probabilities by scaled distances to the centroids; minus the distance for metric='manhattan'."""
    centroids = estimator.centroids_
    if not hasattr(estimator, "predict_proba"):
        difference = op.Sub(op.Unsqueeze(X, [1]), op.Unsqueeze(centroids, [0]))
        return op.Neg(op.ReduceL1(difference, [2], keepdims=0))
    if np.allclose(estimator.class_prior_, 1 / len(estimator.classes_)):
        raise ConversionError(
            "NearestCentroid with equal priors predicts by distances, and its probabilities are those of scaled "
            "distances: no output is both. Fit NearestCentroid(priors='empirical'), or metric='manhattan', which has "
            "no probabilities."
        )
    scale = np.where(estimator.within_class_std_dev_ == 0, 1.0, estimator.within_class_std_dev_)
    difference = op.Div(op.Sub(op.Unsqueeze(X, [1]), op.Unsqueeze(centroids, [0])), op.constant(scale))
    prior = op.constant(2 * np.log(estimator.class_prior_)[None])
    return op.Softmax(op.Sub(prior, op.ReduceSumSquare(difference, [2], keepdims=0)), axis=1)
