"""Splits of histogram gradient boosting in float32; only this estimator compares rows in float64.

A row x goes left if ``x <= t``. Let r(x) be the float32 nearest to x. For every row with r(x) different from r(t),
``r(x) <= r(t)`` gives the same side. Rows with r(x) = r(t) all go left with the threshold r(t), and all go right with
the next lower float32. The rows of X decide which of the two thresholds is used. If X has no such row, decimals decide,
because tables hold them. With more than 255 different values, thresholds are values of the table: one of few digits is
on its own left. Otherwise it is the shortest decimal with float32 value r(t) that is left or right: the threshold
between 17.8 and 18.0 is close to 17.9 but not equal to it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.pipeline import Pipeline

from onnxtrain.convert.columns import by_column
from onnxtrain.convert.learned import inside, is_idle
from onnxtrain.convert.selection import Columns
from onnxtrain.errors import ConversionError

#: The estimators that compare rows with thresholds in float64; other trees first round the rows to float32.
HISTOGRAMS = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)

#: The length of a number, written in decimals, up to which it may be a value of a table: ten digits, sign and point.
_SHORT = 12

#: The largest number of values of a column that are used, which takes a tenth of a second.
_MANY = 2**20

#: Attributes that hold estimators with the same input columns as the holder.
_MEMBERS = ("estimators_", "best_estimator_", "regressor_", "calibrated_classifiers_", "estimator")


def with_float32_splits(estimator: BaseEstimator, X: Any = None) -> BaseEstimator:
    """Return an estimator with float32 thresholds that decide as before on the rows `X`, rounded to float32.

    Parameters
    ----------
    estimator : fitted estimator
        The estimator; it is not changed.
    X : array-like of shape (n_samples, n_features), optional
        Rows that decide between two thresholds. Where no row decides, or without rows, the shortest decimal does.

    Raises
    ------
    ConversionError
        Two rows on different sides of a threshold have the same float32 value.
    """
    changed = copy.deepcopy(estimator)
    decided = X is not None and not by_column(X) and not hasattr(X, "toarray")
    seen = dict(_columns_seen(changed, np.asarray(X, dtype=np.float64))) if decided else {}
    for found in inside(changed):
        if isinstance(found, HISTOGRAMS) and hasattr(found, "_predictors"):
            # categories are encoded before the trees
            _move(found, seen.get(id(found)) if found.is_categorical_ is None else None)
    return changed


def _columns_seen(estimator: Any, X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the id of an estimator, and of those inside it that see columns of `X` unchanged, with these columns."""
    yield id(estimator), X
    if isinstance(estimator, (ClassifierChain, RegressorChain)):
        yield from _columns_of_links(estimator, X)
        return
    if isinstance(estimator, Pipeline):
        *front, last = [step for _, step in estimator.steps if not is_idle(step)]
        if all(isinstance(step, Columns) for step in front):
            for step in front:
                X = step.transform(X)
            yield from _columns_seen(last, X)
    members = [member for name in _MEMBERS for member in _flat(getattr(estimator, name, ()))]
    subsets = getattr(estimator, "estimators_features_", [slice(None)] * len(members))  # of bagging
    for member, columns in zip(members, subsets, strict=False):
        yield from _columns_seen(member, X[:, columns])


def _columns_of_links(chain: Any, X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the columns of each member of a chain, which include the predictions of the earlier members."""
    for link in chain.estimators_:
        yield from _columns_seen(link, X)
        found = getattr(link, getattr(chain, "chain_method_", "predict"))(X)
        X = np.column_stack([X, found.reshape(len(X), -1)[:, -1]])


def _flat(members: Any) -> list[Any]:
    """Return one estimator, or a list or array of several, as a list."""
    found = members.ravel() if isinstance(members, np.ndarray) else members
    return list(found) if isinstance(found, (list, tuple, np.ndarray)) else [found]


def _move(estimator: Any, X: np.ndarray | None) -> None:
    """Replace the thresholds of a fitted estimator in place."""
    trees = [tree for iteration in estimator._predictors for tree in iteration]
    nodes = np.concatenate([tree.nodes for tree in trees])
    for column in np.unique(nodes["feature_idx"]):
        chosen = (nodes["feature_idx"] == column) & (nodes["is_leaf"] == 0)
        thresholds, where = np.unique(nodes["num_threshold"][chosen], return_inverse=True)
        nodes["num_threshold"][chosen] = _decided(thresholds, X, column)[where]
    ends = np.cumsum([len(tree.nodes) for tree in trees])
    for tree, changed in zip(trees, np.split(nodes, ends[:-1]), strict=True):
        tree.nodes = changed


def _decided(t: np.ndarray, X: np.ndarray | None, column: int) -> np.ndarray:
    """Return float32 thresholds for the sorted thresholds of a column."""
    with np.errstate(over="ignore"):
        nearest = t.astype(np.float32)
        before = np.nextafter(nearest, np.float32(-np.inf))
        decimals = nearest.astype(str).astype(np.float64)
        is_value = np.strings.str_len(t.astype(str)) <= _SHORT
        likely = np.where(is_value | (nearest == t) | (decimals <= t), nearest, before)
        if X is None:
            return likely
        x = X[:: max(1, len(X) // _MANY), column]
        order = np.argsort(x)[: np.count_nonzero(~np.isnan(x))]
        x, rounded = x[order], x[order].astype(np.float32)
    # rows first to last have the float32 value of the threshold; those up to `middle` are on its left
    first, last = np.searchsorted(rounded, nearest), np.searchsorted(rounded, nearest, side="right")
    middle = np.clip(np.searchsorted(x, t, side="right"), first, last)
    left, right = middle > first, middle < last
    if np.any(left & right):
        i = int(np.argmax(left & right))
        row, other = (int(order[j]) * max(1, len(X) // _MANY) for j in (middle[i], middle[i] - 1))
        raise ConversionError(
            f"In float32, row {row} lies on a split: {X[row, column]!r} in column {column} and {X[other, column]!r} in "
            f"row {other}, which is on the other side of the split, round to the same value. Fit on "
            "X.astype(np.float32), of a frame with texts or categories X.astype({'column': 'float32'}), and fit the "
            "estimator on it as well."
        )
    return np.where(left, nearest, np.where(right, before, likely))
