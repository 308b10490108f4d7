"""Which initializer of the graph is which learned attribute of the estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Path: TypeAlias = "tuple[str | int, ...]"


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


LAYOUTS = {
    "same": Layout(lambda a: a, lambda w, a: w.reshape(a.shape)),
    "transpose": Layout(lambda a: a.T, lambda w, a: w.reshape(a.T.shape).T),
    "negative": Layout(lambda a: -a, lambda w, a: -w.reshape(a.shape)),
    "reciprocal": Layout(_inverse, lambda w, a: _inverse(w.reshape(a.shape))),
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
        number is derived from several attributes and cannot be written back.
    kind : str
        coefficient, intercept, mean, scale, components, support, leaf, ...
    shape : tuple of int
        Of the initializer.
    layout : str
        A key of :data:`LAYOUTS`.
    step : str
        The step of a pipeline that holds it, ``""`` where there is one estimator.
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


def get(estimator: Any, path: Path) -> Any:
    """Return what stands at the end of a path of attributes, keys and positions."""
    for key in path:
        estimator = _step(estimator, key)
    return estimator


def _step(holder: Any, key: str | int) -> Any:
    if isinstance(key, int) or isinstance(holder, dict):
        return holder[key]
    return getattr(holder, key)


def put(estimator: Any, path: Path, value: Any) -> None:
    """Replace what stands at the end of a path."""
    holder, key = get(estimator, path[:-1]), path[-1]
    if isinstance(key, int) or isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)
