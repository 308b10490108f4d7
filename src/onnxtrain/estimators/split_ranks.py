r"""Histogram gradient boosting on ranks: float32 tells neighbouring ranks apart, but not all values of a column.

These trees compare float64 values, such as longitudes of six decimals or seconds since 1970. If two of them are on
different sides of a threshold and have the same float32 value, scikit-learn first replaces each value x by its rank,
the number of thresholds :math:`t_0 < t_1 < ...` of its column that are smaller. Then :math:`x \le t_k` if and only if
the rank is at most k.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from onnxtrain.convert.learned import inside
from onnxtrain.convert.thresholds import HISTOGRAMS
from onnxtrain.estimators.protocols import Estimator


class SplitRanks(TransformerMixin, BaseEstimator):
    """Replace the values of each column by their ranks among the thresholds of fitted trees; NaN stays NaN.

    Parameters
    ----------
    thresholds : sequence of ndarray
        The sorted thresholds of each column.
    """

    def __init__(self, thresholds: Sequence[np.ndarray]):
        self.thresholds = thresholds

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return self: the thresholds are given."""
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the ranks, float64 (n, n_features)."""
        values = np.asarray(X, np.float64)
        ranks = [np.searchsorted(t, x) for t, x in zip(self.thresholds, values.T, strict=True)]
        return np.where(np.isnan(values), np.nan, np.column_stack(ranks))


def on_ranks(estimator: Estimator) -> Estimator | None:
    """Return a copy of a fitted estimator in which histogram gradient boosting splits on ranks; None if it has none.

    Trees that split on categories stay as they are.
    """
    chosen = {id(found): _ranked(found) for found in inside(estimator) if _splits_numbers(found)}
    return copy.deepcopy(estimator, chosen) if chosen else None


def on_values(estimator: Any) -> Any:
    """Return an estimator whose trees split on values again; the inverse of :func:`on_ranks`."""
    pipelines = [found for found in inside(estimator) if isinstance(found, Pipeline)]
    chosen = {id(found): _unranked(found) for found in pipelines if isinstance(found.steps[0][1], SplitRanks)}
    return copy.deepcopy(estimator, chosen) if chosen else estimator


def _splits_numbers(estimator: Any) -> bool:
    return isinstance(estimator, HISTOGRAMS) and hasattr(estimator, "_predictors") and estimator.is_categorical_ is None


def _ranked(estimator: Any) -> Pipeline:
    """Return the ranks and the trees on them."""
    trees = copy.deepcopy(estimator)
    nodes = np.concatenate([chosen for _, chosen in _splits(trees)])
    columns = range(estimator.n_features_in_)
    thresholds = [np.unique(nodes["num_threshold"][nodes["feature_idx"] == column]) for column in columns]
    for tree, chosen in _splits(trees):
        pairs = zip(chosen["feature_idx"], chosen["num_threshold"], strict=True)
        ranks = [np.searchsorted(thresholds[column], t) + 0.5 for column, t in pairs]
        tree.nodes["num_threshold"][tree.nodes["is_leaf"] == 0] = ranks
    ranking = SplitRanks(thresholds)
    for name in ("n_features_in_", "feature_names_in_"):
        if name in vars(estimator):
            setattr(ranking, name, getattr(estimator, name))
    vars(trees).pop("feature_names_in_", None)
    return Pipeline([("splits", ranking), (type(estimator).__name__.lower(), trees)])


def _unranked(pipeline: Pipeline) -> Any:
    """Return the trees of :func:`_ranked` with their thresholds."""
    ranking, trees = pipeline.steps[0][1], copy.deepcopy(pipeline.steps[-1][1])
    for tree, chosen in _splits(trees):
        pairs = zip(chosen["feature_idx"], chosen["num_threshold"], strict=True)
        values = [ranking.thresholds[column][int(rank)] for column, rank in pairs]
        tree.nodes["num_threshold"][tree.nodes["is_leaf"] == 0] = values
    if "feature_names_in_" in vars(ranking):
        trees.feature_names_in_ = ranking.feature_names_in_
    return trees


def _splits(estimator: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield each tree of a fitted estimator and its nodes that are not leaves."""
    for iteration in estimator._predictors:
        for tree in iteration:
            yield tree, tree.nodes[tree.nodes["is_leaf"] == 0]
