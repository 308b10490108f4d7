"""Full-batch training by scipy's L-BFGS-B on the loss-and-gradient graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, minimize

from onnxtrain.errors import ConvergenceError

LossAndGradient = Callable[[Mapping[str, np.ndarray]], tuple[float, list[np.ndarray]]]


@dataclass
class Penalties:
    """The strength of both penalties for each weight by name; a weight that is missing has none."""

    l1: Mapping[str, float]
    l2: Mapping[str, float]

    def spread(self, which: Mapping[str, float], weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the strength for each entry of the flattened weights."""
        return np.concatenate([np.full(w.size, which.get(name, 0.0)) for name, w in weights.items()])


def minimize_lbfgs(
    loss_and_gradient: LossAndGradient,
    weights: Mapping[str, np.ndarray],
    penalties: Penalties,
    *,
    max_iter: int,
    tol: float,
    on_iteration: Callable[[float, dict[str, np.ndarray]], bool],
) -> tuple[dict[str, np.ndarray], float]:
    r"""Minimise a loss with elastic-net penalties and return the weights and the objective.

    Where there is an l1 penalty the weights are split, :math:`w = u - v` with
    :math:`u, v \ge 0`: then :math:`\lVert w \rVert_1 = \sum (u + v)` is smooth and
    weights become exactly zero.

    Parameters
    ----------
    loss_and_gradient : callable
        ``weights -> (mean loss, its gradient for each weight)``.
    weights : mapping of str to ndarray
        Where to start.
    penalties : Penalties
    max_iter : int
    tol : float
        Stop when no entry of the projected gradient is larger.
    on_iteration : callable
        Called with the objective and the weights after each iteration; True stops.

    Raises
    ------
    ConvergenceError
        The objective is infinite or NaN at the start.

    References
    ----------
    Byrd, Lu, Nocedal, Zhu, "A limited memory algorithm for bound constrained
    optimization", SIAM J. Sci. Comput. 16 (1995).
    """
    start = np.concatenate([w.ravel() for w in weights.values()]).astype(np.float64)
    l1, l2 = penalties.spread(penalties.l1, weights), penalties.spread(penalties.l2, weights)
    split = bool(l1.any())
    size = start.size

    def join(z: np.ndarray) -> np.ndarray:
        return z[:size] - z[size:] if split else z

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        w = join(z)
        loss, gradients = loss_and_gradient(unflatten(w, weights))
        gradient = np.concatenate([g.ravel() for g in gradients]) + 2 * l2 * w
        value = loss + float(l2 @ (w * w))
        if not split:
            return value, gradient
        return value + float(l1 @ (z[:size] + z[size:])), np.concatenate([gradient + l1, l1 - gradient])

    z0, bounds = start, None
    if split:  # weights without an l1 penalty stay whole: u free, v = 0
        u, v = np.where(l1 > 0, np.maximum(start, 0), start), np.where(l1 > 0, np.maximum(-start, 0), 0)
        lowest = np.concatenate([np.where(l1 > 0, 0, -np.inf), np.zeros(size)])
        highest = np.concatenate([np.full(size, np.inf), np.where(l1 > 0, np.inf, 0)])
        z0, bounds = np.concatenate([u, v]), Bounds(lowest, highest)
    if not np.isfinite(objective(z0)[0]):
        raise ConvergenceError("The loss is infinite or NaN at the initial weights: scale the data, or set init='random'.")

    def callback(intermediate_result) -> None:
        if on_iteration(float(intermediate_result.fun), unflatten(join(intermediate_result.x), weights)):
            raise StopIteration

    result = minimize(
        objective,
        z0,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=callback,
        # 64 eps: the objective no longer changes beyond its rounding
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol, "ftol": 64 * np.finfo(float).eps},
    )
    return unflatten(join(result.x), weights), float(result.fun)


def unflatten(flat: np.ndarray, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return pieces of a vector in the shapes and types of `like`."""
    pieces, start = {}, 0
    for name, w in like.items():
        pieces[name] = flat[start : start + w.size].reshape(w.shape).astype(w.dtype)
        start += w.size
    return pieces
