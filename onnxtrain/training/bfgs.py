"""BFGS for functions with kinks, to continue after L-BFGS when its line search gives up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ValueAndGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]

#: Largest number of variables: the inverse Hessian is kept dense.
LARGEST = 2000

_BISECTIONS = 60

#: Steps in a row that lower neither the value nor the gradient.
_STALLED = 20

#: Relative error of a sum of many terms.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


def minimize_bfgs(
    objective: ValueAndGradient, start: np.ndarray, *, max_iter: int, tol: float = 0.0
) -> tuple[np.ndarray, float]:
    r"""Minimise a function that is differentiable almost everywhere.

    BFGS with a line search for the weak Wolfe conditions,

    .. math::

        f(x + t d) \le f(x) + c_1 t\, d^\top \nabla f(x), \qquad
        d^\top \nabla f(x + t d) \ge c_2\, d^\top \nabla f(x)

    The strong ones, which L-BFGS-B asks for, cannot be met across a kink. Near a minimum
    :math:`f` stands still to its rounding long before its gradient does: there a step
    counts that lowers the gradient. It stops where no step lowers either.

    Parameters
    ----------
    objective : callable
        ``x -> (value, gradient)``.
    start : ndarray of shape (n_variables,)
        Better near the minimum.
    max_iter : int
    tol : float
        Stop when no entry of the gradient is larger.

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
        if direction @ gradient >= 0:  # lost to rounding
            inverse_hessian, direction = None, -gradient
        t, new_value, new_gradient = _line_search(objective, x, direction, value, gradient)
        if not new_value <= value + _ROUNDING * abs(value):
            break
        s, y = t * direction, new_gradient - gradient
        stalled += 1
        if new_value < best[1] - _ROUNDING * abs(value) or np.abs(new_gradient).max() < slope:
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


def _line_search(
    objective: ValueAndGradient, x: np.ndarray, direction: np.ndarray, value: float, gradient: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Return a step by bisection, the value and the gradient there."""
    slope, rounding = direction @ gradient, _ROUNDING * abs(value)
    t, low, high = 1.0, 0.0, np.inf
    for _ in range(_BISECTIONS):
        new_value, new_gradient = objective(x + t * direction)
        if not new_value <= value + 1e-4 * t * slope + rounding:
            high = t
        elif direction @ new_gradient < 0.9 * slope:
            low = t
        else:
            break
        t = (low + high) / 2 if np.isfinite(high) else 2 * low
    return t, new_value, new_gradient
