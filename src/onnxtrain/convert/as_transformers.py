"""Estimators that also predict, in a place where a pipeline only calls their ``transform``.

skl2onnx writes the classes and scores of a classifier or a clusterer wherever it stands, and refuses an RFE around a
classifier, so these are replaced, for a conversion, by transformers with the same result.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import Birch, BisectingKMeans, FeatureAgglomeration, KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.pipeline import FeatureUnion, Pipeline

from onnxtrain.convert.custom import CONVERTERS, converter
from onnxtrain.convert.selection import Columns


class Distances(BaseEstimator):
    """The distances of each row to some centers, which ``KMeans.transform`` returns; it is only converted.

    Parameters
    ----------
    centers : ndarray of shape (n_centers, n_features)
    """

    def __init__(self, centers: np.ndarray):
        self.centers = centers


@converter(Distances)
def distances(op: Any, estimator: Distances, X: Any) -> Any:
    """Write the norms of the differences; the squares of the norms of both would cancel for near rows."""
    return op.ReduceL2(op.Sub(op.Unsqueeze(X, np.array([1])), estimator.centers), np.array([2]), keepdims=0)


def with_transformers(found: BaseEstimator) -> BaseEstimator:
    """Return a composite in which members that also predict are transformers; any other estimator unchanged.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> X = [[0.0], [1.0], [5.0]]
    >>> with_transformers(make_pipeline(KMeans(2), Ridge()).fit(X, [0.0, 1.0, 2.0]))[0]
    Distances(centers=array(...))
    """
    if isinstance(found, Pipeline):
        *steps, last = found.steps
        replaced = [(name, _as_transformer(step)) for name, step in steps]
        return Pipeline([*replaced, last]) if _differ(steps, replaced) else found
    if isinstance(found, FeatureUnion):
        replaced = [(name, _as_transformer(member)) for name, member in found.transformer_list]
        changed = _differ(found.transformer_list, replaced)
        return FeatureUnion(replaced, transformer_weights=found.transformer_weights) if changed else found
    if isinstance(found, ColumnTransformer) and hasattr(found, "transformers_"):  # not the unfitted one inside another
        parts = [(name, _as_transformer(part), columns) for name, part, columns in found.transformers_]
        if _differ(found.transformers_, parts):
            found = copy.copy(found)
            found.transformers_ = parts
    return found


def _differ(steps: Any, replaced: Any) -> bool:
    return any(old[1] is not new[1] for old, new in zip(steps, replaced, strict=True))


def _as_transformer(step: Any) -> Any:
    """Return a transformer with the results of a step that also predicts; any other step unchanged."""
    if isinstance(step, Pipeline) and step.steps:
        name, last = step.steps[-1]
        found = _as_transformer(last)
        return step if found is last else Pipeline([*step.steps[:-1], (name, found)])
    if type(step) in CONVERTERS or not _is_fitted(step):  # as those in parameters of composites
        return step
    if isinstance(step, LinearDiscriminantAnalysis):
        axes = step.scalings_[:, : len(step.get_feature_names_out())].T
        return _projection(axes, getattr(step, "xbar_", 0.0))
    if isinstance(step, FeatureAgglomeration) and step.pooling_func is np.mean:
        members = np.eye(step.labels_.max() + 1)[:, step.labels_]
        return _projection(members / members.sum(axis=1, keepdims=True))
    if isinstance(step, (BisectingKMeans, KMeans, MiniBatchKMeans)):
        return Distances(step.cluster_centers_)
    if isinstance(step, Birch):
        return Distances(step.subcluster_centers_)
    if isinstance(step, (RFE, SequentialFeatureSelector)):
        return Columns(np.flatnonzero(step.support_), len(step.support_))
    return step


def _is_fitted(step: Any) -> bool:
    """Whether a step has learned attributes; a string in its place has none."""
    return any(name.endswith("_") and not name.startswith("_") for name in getattr(step, "__dict__", ()))


def _projection(axes: np.ndarray, mean: np.ndarray | float = 0.0) -> PCA:
    """Return a PCA with the result ``(X - mean) @ axes.T``."""
    n_axes, n_features = axes.shape
    projection = PCA(n_axes)
    projection.components_, projection.mean_ = axes, np.broadcast_to(mean, n_features)
    projection.n_components_, projection.n_features_in_ = n_axes, n_features
    return projection
