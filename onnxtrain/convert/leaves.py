"""Leaf values of trees: many small arrays in the estimator, one initializer in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from onnxtrain.convert.binding import Binding, Path, get


@dataclass(frozen=True)
class LeafBinding(Binding):
    """The leaf values of one or several trees.

    Attributes
    ----------
    trees : tuple of Path
        The trees, in the order of the initializer's rows.
    factor : float
        Initializer = factor * value of the leaf: a learning rate, 1 / number of trees.
    """

    trees: tuple[Path, ...] = ()
    factor: float = 1.0

    def read(self, estimator: Any) -> np.ndarray:
        """Return the leaf values, one row a leaf, trees one after the other."""
        values = np.concatenate([leaf_values(get(estimator, path)) for path in self.trees])
        return np.ascontiguousarray(_columns(values, self.shape)).reshape(self.shape) * self.factor

    def write(self, estimator: Any, weight: np.ndarray) -> None:
        """Replace the leaf values, in place."""
        rows = np.asarray(weight, dtype=np.float64).reshape(self.shape[0], -1) / self.factor
        for path in self.trees:
            tree = get(estimator, path)
            n_leaves = len(leaf_values(tree))
            _put_leaves(tree, rows[:n_leaves])
            rows = rows[n_leaves:]


def bind_leaves(estimator: Any, name: str, array: np.ndarray, trees: Sequence[Path]) -> LeafBinding | None:
    """Return the binding of an initializer to the first run of `trees` that has its values.

    Parameters
    ----------
    array : array of shape (leaves,) or (leaves, k)
    trees : sequence of Path
        Those not yet bound, in order.
    """
    counts = [len(leaf_values(get(estimator, path))) for path in trees]
    for first in range(len(trees)):
        total = np.cumsum(counts[first:])
        (stop,) = np.nonzero(total == len(array))[0][:1].tolist() or [-1]
        if stop < 0:
            continue
        run = tuple(trees[first : first + stop + 1])
        values = _columns(np.concatenate([leaf_values(get(estimator, path)) for path in run]), array.shape)
        factor = _factor(values, array)
        if factor is not None:
            return LeafBinding(name, (*run[0], "leaves"), "leaf", array.shape, trees=run, factor=factor)
    return None


def find_trees(estimator: Any, path: Path = ()) -> Iterator[Path]:
    """Return the path of every tree in an estimator, in order."""
    if hasattr(estimator, "tree_") or _is_histogram_tree(estimator):
        yield path
    elif isinstance(estimator, BaseEstimator):
        for name, value in vars(estimator).items():
            if name.endswith("_") or name in (
                "_predictors",
                "steps",
                "transformer_list",
                "estimator",
                "calibrated_classifiers_",
            ):
                yield from find_trees(value, (*path, name))
    elif isinstance(estimator, (list, tuple)) or (isinstance(estimator, np.ndarray) and estimator.dtype == object):
        for i, item in enumerate(estimator):
            yield from find_trees(item, (*path, i))
    elif type(estimator).__name__ == "_CalibratedClassifier":
        yield from find_trees(estimator.estimator, (*path, "estimator"))


def leaf_values(tree: Any) -> np.ndarray:
    """Return the values (leaves, k) of a fitted tree, in the order of its nodes."""
    if _is_histogram_tree(tree):
        return tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)].reshape(-1, 1)
    values = tree.tree_.value[tree.tree_.children_left == -1]
    return values.reshape(len(values), -1)


def _put_leaves(tree: Any, rows: np.ndarray) -> None:
    if _is_histogram_tree(tree):
        tree.nodes["value"][tree.nodes["is_leaf"].astype(bool)] = rows[:, 0]
        return
    values = tree.tree_.value  # a view of what the tree holds
    leaves = tree.tree_.children_left == -1
    k = values[0].size
    if rows.shape[1] < k:  # probabilities of two classes, of which the second is kept
        rows = np.concatenate([1 - rows, rows], axis=1)
    values[leaves] = rows.reshape(values[leaves].shape)


def _is_histogram_tree(tree: Any) -> bool:
    return type(tree).__name__ == "TreePredictor" and hasattr(tree, "nodes")


def _columns(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the last columns of `values`, as many as an initializer of `shape` has."""
    k = shape[1] if len(shape) > 1 else 1
    return values[:, -k:].reshape(tuple(shape)) if values.shape[1] >= k else values


def _factor(values: np.ndarray, array: np.ndarray) -> float | None:
    """Return f where ``array = f * values``, None where there is none."""
    if values.shape != array.shape:
        return None
    size = float(np.sum(values * values))
    factor = float(np.sum(values * array)) / size if size else 1.0
    fits = np.allclose(values * factor, array, rtol=1e-4, atol=1e-6 * np.abs(array).max(initial=0.0))
    return _tidy(factor) if fits and factor > 0 else None


def _tidy(factor: float) -> float:
    """Return the exact number behind one measured in float32: 0.1, 1 / 30."""
    for exact in (round(factor, 5), 1 / round(1 / factor)) if factor < 1.5 else (round(factor, 5),):
        if exact and abs(exact / factor - 1) < 1e-5:
            return exact
    return factor
