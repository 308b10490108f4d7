"""Activations that onnxruntime-training cannot derive, by operators that it can: see :mod:`._equivalents`."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtrain.training_build._equivalents import attribute, equivalent, number


def _where(op, condition, a, b):
    """Return a where the condition holds, else b; one of the two may be a number."""
    a, b = (number(b, a) if isinstance(a, float) else a), (number(a, b) if isinstance(b, float) else b)
    return op.Where(condition, a, b)


def _below_zero(op, x):
    """Return min(x, 0), so that exp of it is finite."""
    return _where(op, op.Greater(x, 0.0), 0.0, x)


@equivalent("Elu", "Celu", "Selu")
def elu(op, node):
    (x,) = node.inputs
    alpha = number(x, attribute(node, "alpha", 1.67326319217681884765625 if node.op_type == "Selu" else 1.0))
    scaled = _below_zero(op, x)
    if node.op_type == "Celu":
        scaled = op.Div(scaled, alpha)
    y = op.Where(op.Greater(x, 0.0), x, op.Mul(op.Sub(op.Exp(scaled), 1.0), alpha))
    if node.op_type == "Selu":
        y = op.Mul(y, number(x, attribute(node, "gamma", 1.05070102214813232421875)))
    return y


@equivalent("HardSigmoid")
def hard_sigmoid(op, node):
    (x,) = node.inputs
    line = op.Add(op.Mul(x, number(x, attribute(node, "alpha", 0.2))), number(x, attribute(node, "beta", 0.5)))
    return _where(op, op.Less(line, 1.0), op.Relu(line), 1.0)


@equivalent("HardSwish")
def hard_swish(op, node):
    (x,) = node.inputs
    return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))


@equivalent("Softplus")
def softplus(op, node):
    (x,) = node.inputs
    positive = op.Greater(x, 0.0)
    tail = op.Log(op.Add(op.Exp(op.Where(positive, op.Neg(x), x)), 1.0))
    return op.Add(_where(op, positive, x, 0.0), tail)


@equivalent("Mish")
def mish(op, node):
    (x,) = node.inputs
    return op.Mul(x, op.Tanh(op.Softplus(x)))


@equivalent("Gelu")
def gelu(op, node):
    """Spell out the approximation: it is derived as if it were exact."""
    (x,) = node.inputs
    if attribute(node, "approximate", "none") != "tanh":
        return None
    inner = op.Mul(op.Add(op.Mul(op.Mul(op.Mul(x, x), x), 0.044715), x), (2 / math.pi) ** 0.5)
    return op.Mul(op.Mul(op.Add(op.Tanh(inner), 1.0), x), 0.5)


@equivalent("PRelu")
def prelu(op, node):
    x, slope = node.inputs
    return op.Where(op.Less(x, 0.0), op.Mul(x, slope), x)


@equivalent("Softsign")
def softsign(op, node):
    (x,) = node.inputs
    return op.Div(x, op.Add(op.Abs(x), 1.0))


@equivalent("ThresholdedRelu")
def thresholded_relu(op, node):
    (x,) = node.inputs
    return _where(op, op.Greater(x, number(x, attribute(node, "alpha", 1.0))), x, 0.0)


@equivalent("Tan")
def tan(op, node):
    (x,) = node.inputs
    return op.Div(op.Sin(x), op.Cos(x))


@equivalent("Sinh", "Cosh")
def sinh(op, node):
    (x,) = node.inputs
    up, down = op.Exp(x), op.Exp(op.Neg(x))
    return op.Mul(op.Sub(up, down) if node.op_type == "Sinh" else op.Add(up, down), 0.5)


@equivalent("Acosh")
def acosh(op, node):
    (x,) = node.inputs
    return op.Log(op.Add(x, op.Sqrt(op.Sub(op.Mul(x, x), 1.0))))


@equivalent("Atanh")
def atanh(op, node):
    (x,) = node.inputs
    return op.Mul(op.Sub(op.Log(op.Add(x, 1.0)), op.Log(op.Sub(1.0, x))), 0.5)


# Relu and Softmax have derivatives, but no kernel of them in float64


@equivalent("Relu")
def relu(op, node):
    (x,) = node.inputs
    return _where(op, op.Greater(x, 0.0), x, 0.0) if x.dtype == ir.DataType.DOUBLE else None


@equivalent("Softmax", "LogSoftmax")
def softmax(op, node):
    (x,) = node.inputs
    if x.dtype != ir.DataType.DOUBLE:
        return None
    axis = attribute(node, "axis", -1)
    # shifting all scores of a row leaves the result as it is: the shift may carry any gradient
    shifted = op.Sub(x, op.ReduceMax(x, [axis], keepdims=1))
    if node.op_type == "Softmax":
        e = op.Exp(shifted)
        return op.Div(e, op.ReduceSum(e, [axis], keepdims=1))
    return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), [axis], keepdims=1)))
