"""Which initializer of the graph is which learned attribute of the estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtrain.convert.learned import Path, get, leaf_values, put, put_leaves
from onnxtrain.rewrite.trees import to_free, to_simplex


@dataclass(frozen=True)
class Layout:
    """How an attribute becomes an initializer, and back.

    ``forward`` takes the attribute; ``backward`` takes the initializer and the
    attribute as it was, for its shape.
    """

    forward: Callable[[np.ndarray], np.ndarray]
    backward: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _inverse(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(x)


def log_odds(logarithm: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) for log p."""
    return logarithm - np.log(-np.expm1(logarithm))


LAYOUTS = {
    "same": Layout(lambda a: a, lambda w, a: w.reshape(a.shape)),
    "transpose": Layout(lambda a: a.T, lambda w, a: w.reshape(a.T.shape).T),
    "negative": Layout(lambda a: -a, lambda w, a: -w.reshape(a.shape)),
    "reciprocal": Layout(_inverse, lambda w, a: _inverse(w.reshape(a.shape))),
    # of values that must stay positive the logarithm is trained
    "log": Layout(np.log, lambda w, a: np.exp(w.reshape(a.shape))),
    # of logarithms of probabilities, transposed, the log odds
    "log odds": Layout(lambda a: log_odds(a.T), lambda w, a: -np.logaddexp(0, -w).reshape(a.T.shape).T),
    # the last row alone: of two scores that mirror each other one is kept
    "last row": Layout(lambda a: a[-1:], lambda w, a: np.concatenate([-w.reshape(1, -1), w.reshape(1, -1)])),
}


@dataclass(frozen=True)
class Binding:
    """One weight of a converted estimator.

    Attributes
    ----------
    name : str
        The initializer.
    path : tuple
        Names of attributes and positions in lists, from the estimator to the
        learned array: ``("named_steps", "mlp", "coefs_", 0)``. Empty where the
        initializer is derived from several attributes and cannot be written back.
    kind : str
        coefficient, intercept, mean, scale, components, support, leaf, ...
    shape : tuple of int
        Of the initializer.
    layout : str
        A key of :data:`LAYOUTS`.
    step : str
        The step of a pipeline that holds it, ``""`` for a single estimator.
    predictor : bool
        Whether it belongs to an estimator that predicts, and is trained by default;
        the statistics of preprocessing are not.
    """

    name: str
    path: Path
    kind: str
    shape: tuple[int, ...]
    layout: str = "same"
    step: str = ""
    predictor: bool = True

    def read(self, estimator: Any) -> np.ndarray:
        """Return the weight as `estimator` holds it, float64, in the layout of the initializer."""
        found = LAYOUTS[self.layout].forward(np.asarray(get(estimator, self.path), dtype=np.float64))
        return np.ascontiguousarray(found).reshape(self.shape)

    def write(self, estimator: Any, weight: np.ndarray) -> None:
        """Replace the learned attribute of `estimator` by `weight`, given in the layout of the initializer."""
        old = get(estimator, self.path)
        new = LAYOUTS[self.layout].backward(np.asarray(weight, dtype=np.float64), np.asarray(old))
        put(estimator, self.path, _like(new, old))


def _like(new: np.ndarray, old: Any) -> Any:
    """Return `new` in the type of `old`: a float, a numpy scalar or an array."""
    if isinstance(old, np.ndarray):
        return np.array(new, dtype=old.dtype, order="F" if old.flags.f_contiguous else "C")
    return type(old)(new.item())


@dataclass(frozen=True)
class LeafBinding(Binding):
    """The leaf values of one or several trees.

    Attributes
    ----------
    trees : tuple of Path
        The trees, in the order of the initializer's rows.
    factor : float
        Initializer = factor * value of the leaf: a learning rate, one over the number of trees.
    """

    trees: tuple[Path, ...] = ()
    factor: float = 1.0

    def read(self, estimator: Any) -> np.ndarray:
        """Return the leaf values, one row per leaf, trees one after the other."""
        values = np.concatenate([leaf_values(get(estimator, path)) for path in self.trees])
        return np.ascontiguousarray(last_columns(values, self.shape)).reshape(self.shape) * self.factor

    def write(self, estimator: Any, weight: np.ndarray) -> None:
        """Replace the leaf values, in place."""
        rows = np.asarray(weight, dtype=np.float64).reshape(self.shape[0], -1) / self.factor
        for path in self.trees:
            tree = get(estimator, path)
            n_leaves = len(leaf_values(tree))
            put_leaves(tree, rows[:n_leaves])
            rows = rows[n_leaves:]


@dataclass(frozen=True)
class ProbabilityBinding(LeafBinding):
    """The probabilities in the leaves of trees, trained as :func:`onnxtrain.rewrite.trees.probabilities_of` says."""

    def read(self, estimator: Any) -> np.ndarray:
        """Return the parameters of the probabilities, one row per leaf, trees one after the other."""
        return to_free(np.concatenate([leaf_values(get(estimator, path)) for path in self.trees]))

    def write(self, estimator: Any, weight: np.ndarray) -> None:
        """Replace the probabilities, in place; leaves that were not trained keep theirs, those of 0 too."""
        for path in self.trees:
            tree = get(estimator, path)
            old = leaf_values(tree)
            rows, weight = weight[: len(old)], weight[len(old) :]
            same = np.all(to_free(old).astype(np.float32) == rows.astype(np.float32), axis=1, keepdims=True)
            put_leaves(tree, np.where(same, old, to_simplex(rows)))


def last_columns(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the last columns of `values`, as many as an initializer of `shape` has."""
    k = shape[1] if len(shape) > 1 else 1
    return values[:, -k:].reshape(tuple(shape)) if values.shape[1] >= k else values
