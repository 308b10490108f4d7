"""Splits of histogram gradient boosting by categories, rewritten as splits of 0/1 columns.

ONNX's tree operators compare a feature with one value, but a split by categories tests membership in a set. So
scikit-learn's encoder runs before the graph, and each such split gets its own column, which is 1 if the category goes
to the right.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from onnxtrain.convert.thresholds import HISTOGRAMS

#: The attributes that define the encoding of rows.
_OF_CATEGORIES = (
    *("categorical_features", "is_categorical_", "_is_categorical_remapped", "_preprocessor"),
    *("n_features_in_", "feature_names_in_"),
)

#: The code of a missing or unknown category; the codes of categories are smaller.
_MISSING = 256


def splits_categories(estimator: object) -> bool:
    """Whether an estimator is histogram gradient boosting that was fitted on categories."""
    return isinstance(estimator, HISTOGRAMS) and getattr(estimator, "is_categorical_", None) is not None


class CategorySplits(TransformerMixin, BaseEstimator):
    """Transform rows to the encoded columns, followed by one column for each split by categories.

    Parameters
    ----------
    encoder : transformer
        A fitted encoder of categories.
    features : ndarray of int, shape (n_splits,)
        The column that each split tests.
    right : ndarray of bool, shape (n_splits, 257)
        Whether each code goes to the right; the last entry is for missing values.
    """

    def __init__(self, encoder: Any, features: np.ndarray, right: np.ndarray):
        self.encoder = encoder
        self.features = features
        self.right = right

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return self: the splits are given."""
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the columns, float64 (n, n_features + n_splits)."""
        encoded = self.encoder.transform(X)
        codes = np.nan_to_num(encoded[:, np.unique(self.features)], nan=_MISSING).astype(int)
        place = np.searchsorted(np.unique(self.features), self.features)
        sides = [right[codes[:, i]] for i, right in zip(place, self.right, strict=True)]
        return np.column_stack([encoded, *sides])


def without_categories(estimator: Any) -> tuple[CategorySplits, Any]:
    """Return the transformer to 0/1 columns of a fitted estimator, and a copy of the estimator that splits on them."""
    tail = copy.deepcopy(estimator)
    n_encoded = len(estimator.is_categorical_)
    features, right = [], []
    for tree in _trees(tail):
        for node in tree.nodes[(tree.nodes["is_categorical"] == 1) & (tree.nodes["is_leaf"] == 0)]:
            left = np.unpackbits(tree.raw_left_cat_bitsets[node["bitset_idx"]].view(np.uint8), bitorder="little")
            features.append(node["feature_idx"])
            right.append(~np.append(left, node["missing_go_to_left"]).astype(bool))
    first = n_encoded
    for tree in _trees(tail):
        chosen = (tree.nodes["is_categorical"] == 1) & (tree.nodes["is_leaf"] == 0)
        tree.nodes["feature_idx"][chosen] = np.arange(first, first + chosen.sum())
        tree.nodes["num_threshold"][chosen] = 0.5
        tree.nodes["is_categorical"][chosen] = 0
        first += int(chosen.sum())
    vars(tail).pop("feature_names_in_", None)
    tail.set_params(categorical_features=None)
    tail.is_categorical_ = tail._is_categorical_remapped = tail._preprocessor = None
    tail.n_features_in_ = first
    table = np.array(right, bool).reshape(-1, _MISSING + 1)
    return CategorySplits(estimator._preprocessor, np.array(features, int), table), tail


def with_categories(estimator: Any, trained: Any) -> Any:
    """Return a copy of a trained tail of :func:`without_categories` that splits on categories again."""
    copied = copy.deepcopy(trained)
    for tree, other in zip(_trees(copied), _trees(estimator), strict=True):
        values = tree.nodes["value"]
        tree.nodes = other.nodes.copy()
        tree.nodes["value"] = values
    for name in _OF_CATEGORIES:
        if name in vars(estimator):
            setattr(copied, name, copy.deepcopy(getattr(estimator, name)))
    return copied


def _trees(estimator: Any) -> Iterator[Any]:
    for iteration in estimator._predictors:
        yield from iteration
