"""Rules of elementwise operators: arithmetic, powers, roots, selection, trigonometric functions.

``x``, ``a``, ``b`` are operands, ``y`` the result, ``dy`` its gradient. Operands
are broadcast; the engine sums gradients back. Roots are taken of products,
``(1 - x) * (1 + x)`` and not ``1 - x * x``, which would lose digits near the
ends of the domain.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import scalar_like
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.errors import GradientError
from onnxtrain.graph import constant, is_float, made_by, scalar

# --------------------------------------------------------------- arithmetic


@gradient_rule("Identity")
def identity(op, node, dy):
    return dy


@gradient_rule("Cast", "CastLike")
def cast(op, node, dy):
    x = node.inputs[0]
    return op.Cast(dy, to=x.dtype) if is_float(x) and x.dtype != dy.dtype else dy


@gradient_rule("Neg")
def neg(op, node, dy):
    return op.Neg(dy)


@gradient_rule("Add", "Sum", broadcast=True)
def add(op, node, dy):
    return [dy] * len(node.inputs)


@gradient_rule("Mean", broadcast=True)
def mean(op, node, dy):
    n = len(node.inputs)
    return [op.Div(dy, float(n))] * n


@gradient_rule("Sub", broadcast=True)
def sub(op, node, dy):
    return dy, op.Neg(dy)


@gradient_rule("Mul", broadcast=True)
def mul(op, node, dy):
    a, b = node.inputs
    return op.Mul(dy, b), op.Mul(dy, a)


@gradient_rule("Div", broadcast=True)
def div(op, node, dy):
    _, b = node.inputs
    (y,) = node.outputs
    da = op.Div(dy, b)
    return da, op.Neg(op.Mul(da, y))  # d(a/b)/db = -y/b


@gradient_rule("Mod", broadcast=True)
def mod(op, node, dy):
    a, b = node.inputs
    (y,) = node.outputs
    return dy, op.Mul(dy, op.Div(op.Sub(y, a), b))  # y = a - b * q, and q is piecewise constant


@gradient_rule("Abs")
def absolute(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sign(x))  # 0 at the kink


@gradient_rule("Reciprocal")
def reciprocal(op, node, dy):
    (y,) = node.outputs
    return op.Neg(op.Mul(op.Mul(dy, y), y))


# --------------------------------------------- powers, roots, exponentials


@gradient_rule("Sqrt")
def sqrt(op, node, dy):
    """Return dy / 2y, and 0 at 0, where the slope is infinite, so that the gradient of sqrt(sum(x * x)) is 0 at 0."""
    (y,) = node.outputs
    return op.Div(dy, op.Where(op.Equal(y, 0.0), math.inf, op.Add(y, y)))


@gradient_rule("Exp")
def exp(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Where(op.IsInf(y), 0.0, y) if _is_of_logistic(y) else y)


def _is_of_logistic(y: ir.Value) -> bool:
    """Whether y is only used in 1 / (1 + y); for an infinite y the gradient is 0, where 0 * inf would be NaN."""
    sums = [node for node, _ in y.uses()]
    users = [use for node in sums if node.op_type == "Add" for use in node.outputs[0].uses()]
    inverted = all(node.op_type == "Reciprocal" or (node.op_type, i) == ("Div", 1) for node, i in users)
    return bool(users) and inverted and all(node.op_type == "Add" for node in sums)


@gradient_rule("Log")
def log(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, x)


@gradient_rule("Erf")
def erf(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Exp(op.Sub(math.log(2 / math.sqrt(math.pi)), op.Mul(x, x))))


@gradient_rule("Pow", broadcast=True)
def power(op, node, dy):
    """Return the gradients of x**p; the gradient of p is 0 for x <= 0, where log(x) is not real."""
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


@gradient_rule("Where", broadcast=True)
def where(op, node, dy):
    (condition, *_) = node.inputs
    return None, op.Where(condition, dy, 0.0), op.Where(condition, 0.0, dy)


@gradient_rule("Max", "Min", broadcast=True)
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


@gradient_rule("Clip", broadcast=True)
def clip(op, node, dy):
    """Pass dy to x within the bounds and at them, else to the bound; to `high` if the bounds are crossed.

    Bounds of 0 and 6 are those of ReLU6, whose derivative at them is 0 in PyTorch and TensorFlow, as that of Relu at 0.
    A new network has many zeros there.
    """
    x, low, high = (*node.inputs, None, None)[:3]
    (y,) = node.outputs
    if _bound(low) == 0 and _bound(high) == 6:
        return op.Where(op.And(op.Greater(x, low), op.Less(x, high)), dy, 0.0), None, None
    dx = op.Where(op.Equal(x, y), dy, 0.0)
    dlow = dhigh = None
    if high is not None:
        raised = x if low is None else op.Max(x, low)
        dhigh = op.Where(op.Greater(raised, high), dy, 0.0)
    if low is not None:
        dlow = op.Where(op.Less(x, low), dy if dhigh is None else op.Sub(dy, dhigh), 0.0)
    return dx, dlow, dhigh


def _bound(value):
    """Return a bound of Clip if it is a constant; PyTorch's exporter casts it to the type of x."""
    cast = made_by(value, "Cast", "CastLike", "Identity")
    return scalar(value if cast is None else cast.inputs[0])


@gradient_rule("Dropout", flat=(1, 2))
def dropout(op, node, dy, *_):
    """Return dy: at inference nothing is dropped."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    fixed = constant(training)
    if training is not None and (fixed is None or fixed.any()):
        raise GradientError(
            f"Dropout (node {node.name!r}) may be in training mode, where its result is random. "
            "Export the model again after model.eval(), which sets the input training_mode to false."
        )
    return dy


@gradient_rule("Range", flat=(1,))
def arange(op, node, dy):
    """Return the gradients of start + i * delta; the limit has zero gradient."""
    start, _, delta = node.inputs
    (y,) = node.outputs
    steps = op.Div(op.Sub(y, start), delta)
    return op.ReduceSum(dy, keepdims=0), None, op.ReduceSum(op.Mul(dy, steps), keepdims=0)


# ---------------------------------------------- trigonometric and hyperbolic


@gradient_rule("Sin")
def sin(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Cos(x))


@gradient_rule("Cos")
def cos(op, node, dy):
    (x,) = node.inputs
    return op.Neg(op.Mul(dy, op.Sin(x)))


@gradient_rule("Tan")
def tan(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Add(op.Mul(y, y), 1.0))


@gradient_rule("Asin")
def asin(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Mul(op.Sub(1.0, x), op.Add(1.0, x))))


@gradient_rule("Acos")
def acos(op, node, dy):
    return op.Neg(asin(op, node, dy))


@gradient_rule("Atan")
def atan(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Add(op.Mul(x, x), 1.0))


@gradient_rule("Sinh")
def sinh(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Cosh(x))


@gradient_rule("Cosh")
def cosh(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sinh(x))


@gradient_rule("Tanh")
def tanh(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Sub(1.0, op.Mul(y, y)))


@gradient_rule("Asinh")
def asinh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Add(op.Mul(x, x), 1.0)))


@gradient_rule("Acosh")
def acosh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Mul(op.Sub(x, 1.0), op.Add(x, 1.0))))


@gradient_rule("Atanh")
def atanh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Mul(op.Sub(1.0, x), op.Add(1.0, x)))
