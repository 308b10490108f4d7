"""Rules of elementwise operators: arithmetic, powers, roots, selection.

``x``, ``a``, ``b`` are operands, ``y`` the result, ``dy`` its gradient. Operands
are broadcast; the engine sums gradients back.
"""

from __future__ import annotations

import math

from onnxtrain.autodiff.broadcast import scalar_like
from onnxtrain.autodiff.registry import gradient
from onnxtrain.errors import GradientError
from onnxtrain.graph import constant, is_float

# --------------------------------------------------------------- arithmetic


@gradient("Identity")
def identity(op, node, dy):
    return dy


@gradient("Cast", "CastLike")
def cast(op, node, dy):
    x = node.inputs[0]
    return op.Cast(dy, to=x.dtype) if is_float(x) and x.dtype != dy.dtype else dy


@gradient("Neg")
def neg(op, node, dy):
    return op.Neg(dy)


@gradient("Add", "Sum", broadcast=True)
def add(op, node, dy):
    return [dy] * len(node.inputs)


@gradient("Mean", broadcast=True)
def mean(op, node, dy):
    n = len(node.inputs)
    return [op.Div(dy, float(n))] * n


@gradient("Sub", broadcast=True)
def sub(op, node, dy):
    return dy, op.Neg(dy)


@gradient("Mul", broadcast=True)
def mul(op, node, dy):
    a, b = node.inputs
    return op.Mul(dy, b), op.Mul(dy, a)


@gradient("Div", broadcast=True)
def div(op, node, dy):
    _, b = node.inputs
    (y,) = node.outputs
    da = op.Div(dy, b)
    return da, op.Neg(op.Mul(da, y))  # d(a/b)/db = -y/b


@gradient("Mod", broadcast=True)
def mod(op, node, dy):
    a, b = node.inputs
    (y,) = node.outputs
    return dy, op.Mul(dy, op.Div(op.Sub(y, a), b))  # y = a - b * q, and q is piecewise constant


@gradient("Abs")
def absolute(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sign(x))  # 0 at the kink


@gradient("Reciprocal")
def reciprocal(op, node, dy):
    (y,) = node.outputs
    return op.Neg(op.Mul(op.Mul(dy, y), y))


# --------------------------------------------- powers, roots, exponentials


@gradient("Sqrt")
def sqrt(op, node, dy):
    """Return dy / 2y, and 0 at 0, where the slope is infinite: so the gradient of sqrt(sum(x * x)) is 0 at 0."""
    (y,) = node.outputs
    return op.Div(dy, op.Where(op.Equal(y, 0.0), math.inf, op.Add(y, y)))


@gradient("Exp")
def exp(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, y)


@gradient("Log")
def log(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, x)


@gradient("Erf")
def erf(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Exp(op.Sub(math.log(2 / math.sqrt(math.pi)), op.Mul(x, x))))


@gradient("Pow", broadcast=True)
def power(op, node, dy):
    """Return the gradients of x**p; that of p is 0 for x <= 0, where log(x) is not a real number."""
    x, p = node.inputs
    (y,) = node.outputs
    log_x = op.Log(op.Where(op.Greater(x, 0.0), x, 1.0))
    return op.Mul(dy, _slope_of_power(op, x, p)), _cast(op, op.Mul(dy, op.Mul(y, log_x)), p)


def _slope_of_power(op, x, p):
    """Return p * x**(p - 1): 0 where p is 0, even at x = 0."""
    fixed = constant(p)
    if fixed is None or fixed.size != 1:
        not_zero = op.Where(op.Equal(p, 0), 1, p)
        return op.Mul(_cast(op, p, x), op.Pow(x, op.Sub(not_zero, 1)))
    number = float(fixed.item())
    if number in (0.0, 2.0):
        return op.Mul(x, number)
    return op.Mul(op.Pow(x, scalar_like(op, number - 1, x)), number)


def _cast(op, value, like):
    return value if value.dtype == like.dtype else op.Cast(value, to=like.dtype)


# ---------------------------------------------------------------- selection


@gradient("Where", broadcast=True)
def where(op, node, dy):
    (condition, *_) = node.inputs
    return None, op.Where(condition, dy, 0.0), op.Where(condition, 0.0, dy)


@gradient("Max", "Min", broadcast=True)
def extremum(op, node, dy):
    """Pass dy to the largest (smallest) operand; equal operands share it."""
    (y,) = node.outputs
    if len(node.inputs) == 1:
        return dy
    if len(node.inputs) > 2:
        chosen = [op.Cast(op.Equal(x, y), to=y.dtype) for x in node.inputs]
        share = op.Div(dy, op.Sum(*chosen))
        return [op.Mul(share, mine) for mine in chosen]
    a, b = node.inputs
    first = op.Greater(a, b) if node.op_type == "Max" else op.Less(a, b)
    da = op.Where(first, dy, op.Where(op.Equal(a, b), op.Mul(dy, 0.5), 0.0))
    return da, op.Sub(dy, da)


@gradient("Clip", broadcast=True)
def clip(op, node, dy):
    """Pass dy to x within the bounds and at them, else to the bound; to `high` if the bounds are crossed."""
    x, low, high = (*node.inputs, None, None)[:3]
    (y,) = node.outputs
    dx = op.Where(op.Equal(x, y), dy, 0.0)
    dlow = dhigh = None
    if high is not None:
        raised = x if low is None else op.Max(x, low)
        dhigh = op.Where(op.Greater(raised, high), dy, 0.0)
    if low is not None:
        dlow = op.Where(op.Less(x, low), dy if dhigh is None else op.Sub(dy, dhigh), 0.0)
    return dx, dlow, dhigh


@gradient("Dropout", flat=(1, 2))
def dropout(op, node, dy, *_):
    """Return dy: at inference nothing is dropped."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    fixed = constant(training)
    if training is not None and (fixed is None or fixed.any()):
        raise GradientError(
            f"Dropout (node {node.name!r}) may be in training mode, its result is random. Set training_mode to false."
        )
    return dy


@gradient("Range", flat=(1,))
def arange(op, node, dy):
    """Return the gradients of start + i * delta; the limit has zero gradient."""
    start, _, delta = node.inputs
    (y,) = node.outputs
    steps = op.Div(op.Sub(y, start), delta)
    return op.ReduceSum(dy, keepdims=0), None, op.ReduceSum(op.Mul(dy, steps), keepdims=0)
