"""Full-batch training by scipy's L-BFGS-B on the loss-and-gradient graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, OptimizeResult, minimize

from onnxtrain.errors import ConvergenceError
from onnxtrain.runtime.threads import one_thread_of_blas
from onnxtrain.training.bfgs import LARGEST, minimize_bfgs
from onnxtrain.training.settings import Penalties

LossAndGradient = Callable[[Mapping[str, np.ndarray]], tuple[float, list[np.ndarray]]]


@one_thread_of_blas()
def minimize_lbfgs(
    loss_and_gradient: LossAndGradient,
    weights: Mapping[str, np.ndarray],
    penalties: Penalties,
    *,
    max_iter: int,
    tol: float,
    on_iteration: Callable[[float, dict[str, np.ndarray]], bool],
) -> tuple[dict[str, np.ndarray], float, bool]:
    r"""Minimise a loss with elastic-net penalties; return the weights, the objective, and whether it was all done.

    With an l1 penalty the weights are split, :math:`w = u - v` with
    :math:`u, v \ge 0`: then :math:`\lVert w \rVert_1 = \sum (u + v)` is smooth and
    weights become exactly zero. A loss with kinks stops the line search early: BFGS
    goes on from there, see :func:`~onnxtrain.training.bfgs.minimize_bfgs`.

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
    objective = _Objective(loss_and_gradient, weights, penalties)
    flat, l1, (value, gradient) = objective.flat, objective.l1, objective.start
    split = _Split(l1) if l1.any() else None
    eps = max(float(np.finfo(w.dtype).eps) for w in weights.values())
    noise = _noise(gradient, l1, eps, tol)
    if not np.isfinite(value):
        raise ConvergenceError(
            "The loss is infinite or NaN at the initial weights: scale the data, or set init='random'."
        )

    def callback(intermediate_result: OptimizeResult) -> None:
        w = intermediate_result.x if split is None else split.join(intermediate_result.x)
        if on_iteration(float(intermediate_result.fun), unflatten(w, weights)):
            raise StopIteration

    result = minimize(
        objective.smooth if split is None else split.of(objective.smooth),
        flat if split is None else split.apart(flat),
        jac=True,
        method="L-BFGS-B",
        bounds=None if split is None else split.bounds,
        callback=callback,
        # the objective no longer changes beyond its rounding: in float64 that of its sums, too
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol, "ftol": max(eps, _ROUNDING)},
    )
    w, value = (result.x if split is None else split.join(result.x)), float(result.fun)
    if _stopped_at_a_kink(result, None if split is None else split.bounds.lb, noise) and w.size <= LARGEST:
        w, value = minimize_bfgs(objective.whole, w, max_iter=10 * max_iter, tol=tol)
    return unflatten(w, weights), value, result.status != _OUT_OF_STEPS


#: Status of L-BFGS-B at the limit of iterations or evaluations.
_OUT_OF_STEPS = 1

#: Status of L-BFGS-B when its line search finds no step.
_NO_STEP = 2

#: Negligible relative to the slope of an l1 penalty; at a kink of the loss the slopes are as large.
_SMALL = 1e-5

#: scikit-learn's value for LogisticRegression.
_ROUNDING = 64 * float(np.finfo(np.float64).eps)


def _noise(gradient: np.ndarray, l1: np.ndarray, eps: float, tol: float) -> float:
    """Return how large a gradient may be that is left by rounding, given that at the start."""
    # in float64 a gradient above `tol` is worth BFGS: the objective stands still at the root of its rounding;
    # but weights that l1 has made zero stay so where the slopes left are small beside its own
    slope = max(float(np.abs(gradient).max()), float(l1.max()))
    noise = tol if eps <= _ROUNDING else float(np.sqrt(eps)) * slope
    return max(noise, _SMALL * slope) if l1.any() else noise


def _stopped_at_a_kink(result: OptimizeResult, lowest: np.ndarray | None, noise: float) -> bool:
    """Whether L-BFGS-B gave up, or saw no progress, where the gradient is more than rounding.

    A component held back by an active bound does not count.
    """
    stuck = result.status == _NO_STEP or (result.status == 0 and "GRADIENT" not in str(result.message).upper())
    gradient = result.jac if lowest is None else np.where((result.x <= lowest) & (result.jac > 0), 0.0, result.jac)
    return stuck and float(np.abs(gradient).max()) > noise


class _Objective:
    """The loss with its penalties as a function of the flattened weights; where it starts it is computed once."""

    def __init__(self, loss_and_gradient: LossAndGradient, weights: Mapping[str, np.ndarray], penalties: Penalties):
        self._loss_and_gradient, self._weights = loss_and_gradient, weights
        self.flat = np.concatenate([w.ravel() for w in weights.values()]).astype(np.float64)
        self.l1, self._l2 = penalties.spread(penalties.l1, weights), penalties.spread(penalties.l2, weights)
        self.start = self._compute(self.flat)

    def smooth(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value without the l1 penalty, and its gradient."""
        return self.start if np.array_equal(w, self.flat) else self._compute(w)

    def whole(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value with both penalties, and its gradient."""
        value, gradient = self.smooth(w)
        return value + float(self.l1 @ np.abs(w)), gradient + self.l1 * np.sign(w)

    def _compute(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradients = self._loss_and_gradient(unflatten(w, self._weights))
        gradient = np.concatenate([g.ravel() for g in gradients]) + 2 * self._l2 * w
        return loss + float(self._l2 @ (w * w)), gradient


@dataclass(frozen=True)
class _Split:
    r"""Weights as :math:`u - v`, both positive; those without an l1 penalty stay whole, with :math:`v = 0`."""

    l1: np.ndarray

    @property
    def bounds(self) -> Bounds:
        infinite = np.full(self.l1.size, np.inf)
        lowest = np.concatenate([np.where(self.l1 > 0, 0, -infinite), 0 * self.l1])
        return Bounds(lowest, np.concatenate([infinite, np.where(self.l1 > 0, infinite, 0)]))

    def apart(self, w: np.ndarray) -> np.ndarray:
        negative = np.where(self.l1 > 0, np.maximum(-w, 0), 0)
        return np.concatenate([w + negative, negative])

    def join(self, z: np.ndarray) -> np.ndarray:
        return z[: self.l1.size] - z[self.l1.size :]

    def of(self, smooth: Callable[[np.ndarray], tuple[float, np.ndarray]]) -> Callable:
        """Return the objective of u and v, with the penalty."""

        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = smooth(self.join(z))
            penalty = float(self.l1 @ (z[: self.l1.size] + z[self.l1.size :]))
            return value + penalty, np.concatenate([gradient + self.l1, self.l1 - gradient])

        return objective


def unflatten(flat: np.ndarray, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return pieces of a vector in the shapes and types of `like`."""
    pieces, start = {}, 0
    for name, w in like.items():
        pieces[name] = flat[start : start + w.size].reshape(w.shape).astype(w.dtype)
        start += w.size
    return pieces
