"""Full-batch training by scipy's L-BFGS-B on the loss-and-gradient graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, OptimizeResult, minimize

from onnxtrain.errors import ConvergenceError
from onnxtrain.runtime.session import one_thread_of_blas
from onnxtrain.training.settings import Penalties

LossAndGradient = Callable[[Mapping[str, np.ndarray]], tuple[float, list[np.ndarray]]]
ValueAndGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]

#: The largest number of variables, since the inverse Hessian is dense.
_LARGEST = 2000

_BISECTIONS = 60

#: The least relative rise of the value between two step lengths that bisection no longer tells apart that shows a jump;
#: rounding in float32 is less.
_JUMP = 1e-5

#: The part of the step that is left to a jump; the graph and the estimator, which round differently, agree there.
_BEFORE_JUMP = 1e-2

#: The number of consecutive steps that lower neither the value nor the gradient after which BFGS stops.
_STALLED = 20

#: The relative error of a sum of many terms.
_SUM_ERROR = 4 * float(np.finfo(np.float64).eps)

#: The status of L-BFGS-B at the limit of iterations or evaluations.
_OUT_OF_STEPS = 1

#: The status of L-BFGS-B if its line search finds no step.
_NO_STEP = 2

#: A slope that is negligible relative to that of an l1 penalty; at a kink of the loss the slopes are as large as that.
_SMALL = 1e-5

#: L-BFGS-B begins with a step of length 1. It stops there if this step lowers the loss by no more than rounding, as for
#: targets of ten millions in float32. If the slope predicts a decrease of up to this many times the rounding, it begins
#: anew with a step that would lower a linear function to 0.
_UNSEEN = 4

#: scikit-learn's value for LogisticRegression.
_ROUNDING = 64 * float(np.finfo(np.float64).eps)


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
    r"""Minimise a loss with elastic-net penalties; return weights, objective, and whether all iterations were run.

    With an l1 penalty the weights are split, :math:`w = u - v` with :math:`u, v \ge 0`: then
    :math:`\lVert w \rVert_1 = \sum (u + v)` is smooth and weights become exactly zero. A loss with kinks stops the line
    search early; then BFGS continues from there, see :func:`~onnxtrain.training.lbfgs.minimize_bfgs`.

    Parameters
    ----------
    loss_and_gradient : callable
        ``weights -> (mean loss, its gradient for each weight)``.
    weights : mapping of str to ndarray
        The initial weights.
    penalties : Penalties
    max_iter : int
    tol : float
        The iteration stops when no entry of the projected gradient is larger.
    on_iteration : callable
        Called with the objective and the weights after each iteration; returns True to stop.

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
            "The loss is infinite or NaN at the initial weights. Scale X and y, or set init='random'. In a loss of "
            "one's own, numpy.exp and numpy.cosh overflow: loss='log_cosh' and op.Softplus do not."
        )

    def callback(intermediate_result: OptimizeResult) -> None:
        w = intermediate_result.x if split is None else split.join(intermediate_result.x)
        if on_iteration(float(intermediate_result.fun), unflatten(w, weights)):
            raise StopIteration

    # stop when the objective changes by no more than rounding, in float64 that of its sums too
    ftol, slope = max(eps, _ROUNDING), float(np.linalg.norm(gradient))
    function = objective.smooth if split is None else split.of(objective.smooth)
    bounds = None if split is None else split.bounds

    def run(unit: float, max_iter: int) -> OptimizeResult:
        start = flat if split is None else split.apart(flat)
        options = {"maxiter": max_iter, "maxfun": 20 * max_iter, "gtol": tol * unit, "ftol": ftol}
        return _minimize_in(unit, function, start, bounds, callback, options)

    result = run(1.0, max_iter)
    if _is_stuck(result) and result.nit <= 1 < max_iter and 0 < slope <= _UNSEEN * ftol * abs(value):
        result = run(abs(value) / slope, max_iter - 1)
    w, value = (result.x if split is None else split.join(result.x)), float(result.fun)
    if _stopped_at_a_kink(result, None if split is None else split.bounds.lb, noise) and w.size <= _LARGEST:
        w, value = minimize_bfgs(objective.whole, w, max_iter=10 * max_iter, tol=tol)
    return unflatten(w, weights), value, result.status != _OUT_OF_STEPS


def _minimize_in(
    unit: float,
    function: ValueAndGradient,
    start: np.ndarray,
    bounds: Bounds | None,
    callback: Callable[[OptimizeResult], None],
    options: Mapping[str, float],
) -> OptimizeResult:
    """Return the result of L-BFGS-B on variables in another unit, in which the first step has length 1."""

    def in_unit(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(unit * z)
        return value, unit * gradient

    def on_iteration(intermediate_result: OptimizeResult) -> None:
        intermediate_result.x = unit * intermediate_result.x
        callback(intermediate_result)

    result = minimize(
        in_unit, start / unit, jac=True, method="L-BFGS-B", bounds=bounds, callback=on_iteration, options=options
    )
    result.x, result.jac = unit * result.x, result.jac / unit
    return result


def _noise(gradient: np.ndarray, l1: np.ndarray, eps: float, tol: float) -> float:
    """Return the size of a gradient that may be due to rounding; `gradient` is the initial gradient."""
    # in float64 BFGS is worthwhile for a gradient above `tol`, since the objective stalls at the square root of its
    # rounding; but weights that l1 made zero stay zero if the remaining slopes are small relative to its slope
    slope = max(float(np.abs(gradient).max()), float(l1.max()))
    noise = tol if eps <= _ROUNDING else float(np.sqrt(eps)) * slope
    return max(noise, _SMALL * slope) if l1.any() else noise


def _stopped_at_a_kink(result: OptimizeResult, lowest: np.ndarray | None, noise: float) -> bool:
    """Whether L-BFGS-B failed, or made no progress, although the gradient is larger than rounding.

    Components at an active bound are ignored.
    """
    gradient = result.jac if lowest is None else np.where((result.x <= lowest) & (result.jac > 0), 0.0, result.jac)
    return _is_stuck(result) and float(np.abs(gradient).max()) > noise


def _is_stuck(result: OptimizeResult) -> bool:
    """Whether L-BFGS-B failed, or made no progress; a small gradient is the minimum."""
    return result.status == _NO_STEP or (result.status == 0 and "GRADIENT" not in str(result.message).upper())


class _Objective:
    """The loss with its penalties as a function of the flattened weights; its value at the start is cached."""

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
    r"""Weights as :math:`u - v`, both nonnegative; weights without an l1 penalty have :math:`v = 0`."""

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
        """Return the objective as a function of u and v, with the penalty."""

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


def minimize_bfgs(
    objective: ValueAndGradient, start: np.ndarray, *, max_iter: int, tol: float = 0.0
) -> tuple[np.ndarray, float]:
    r"""Minimise a function that is differentiable almost everywhere.

    BFGS with a line search for the weak Wolfe conditions,

    .. math::

        f(x + t d) \le f(x) + c_1 t\, d^\top \nabla f(x), \qquad
        d^\top \nabla f(x + t d) \ge c_2\, d^\top \nabla f(x)

    The strong conditions, which L-BFGS-B requires, cannot be met across a kink. Near a minimum, rounding stops the
    decrease of :math:`f` long before that of its gradient, so there a step that lowers the gradient is accepted. The
    iteration stops when no step lowers either, and in front of a jump, where :math:`f` rises within rounding.

    Parameters
    ----------
    objective : callable
        ``x -> (value, gradient)``.
    start : ndarray of shape (n_variables,)
        The initial point, preferably near the minimum.
    max_iter : int
    tol : float
        The iteration stops when no entry of the gradient is larger.

    Returns
    -------
    x : ndarray of shape (n_variables,)
    value : float

    References
    ----------
    Lewis, Overton, "Nonsmooth optimization via quasi-Newton methods",
    Mathematical Programming 141 (2013).

    Examples
    --------
    >>> x, value = minimize_bfgs(lambda x: (abs(x - 3).sum(), np.sign(x - 3)), np.zeros(2), max_iter=100)
    >>> float(value) < 1e-12
    True
    """
    x = start
    value, gradient = objective(x)
    best, slope, stalled = (x, value), float(np.abs(gradient).max()), 0
    inverse_hessian = None
    for _ in range(max_iter):
        if slope <= tol or stalled > _STALLED:
            break
        direction = -gradient if inverse_hessian is None else -inverse_hessian @ gradient
        if direction @ gradient >= 0:  # the curvature is lost in rounding
            inverse_hessian, direction = None, -gradient
        t, new_value, new_gradient, at_jump = _line_search(objective, x, direction, value, gradient)
        if not new_value <= value + _SUM_ERROR * abs(value):
            break
        if at_jump:  # the next steps would only come closer to it
            return min(best, (x + t * direction, new_value), key=lambda found: found[1])
        s, y = t * direction, new_gradient - gradient
        stalled += 1
        if new_value < best[1] - _SUM_ERROR * abs(value) or np.abs(new_gradient).max() < slope:
            best, slope, stalled = (x + s, new_value), float(np.abs(new_gradient).max()), 0
        x, value, gradient = x + s, new_value, new_gradient
        if s @ y <= 0:
            inverse_hessian = None
            continue
        if inverse_hessian is None:
            inverse_hessian = np.eye(x.size) * (s @ y) / (y @ y)
        inverse_hessian = _updated(inverse_hessian, s, y)
    return best


def _updated(inverse_hessian: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""Return :math:`(I - \rho s y^\top) H (I - \rho y s^\top) + \rho s s^\top`, :math:`\rho = 1 / s^\top y`."""
    rho, h_y = 1 / (s @ y), inverse_hessian @ y
    half = rho * ((1 + rho * (y @ h_y)) / 2 * s - h_y)
    return inverse_hessian + np.outer(s, half) + np.outer(half, s)


@np.errstate(over="ignore", invalid="ignore")  # values that are not finite are not accepted
def _line_search(
    objective: ValueAndGradient, x: np.ndarray, direction: np.ndarray, value: float, gradient: np.ndarray
) -> tuple[float, float, np.ndarray, bool]:
    """Find a step length by bisection; return it, the value and the gradient there, and whether it ends at a jump."""
    slope, rounding = direction @ gradient, _SUM_ERROR * abs(value)
    t, low, high = 1.0, 0.0, np.inf
    value_at_low = value_at_high = value
    for _ in range(_BISECTIONS):
        new_value, new_gradient = objective(x + t * direction)
        if not new_value <= value + 1e-4 * t * slope + rounding:
            high, value_at_high = t, new_value
        elif direction @ new_gradient < 0.9 * slope:
            low, value_at_low = t, new_value
        else:
            return t, new_value, new_gradient, False
        t = (low + high) / 2 if np.isfinite(high) else 2 * low
    if not (np.isfinite(high) and value_at_high - value_at_low > _JUMP * abs(value)):
        return t, new_value, new_gradient, False
    t = (1 - _BEFORE_JUMP) * low
    return t, *objective(x + t * direction), True
