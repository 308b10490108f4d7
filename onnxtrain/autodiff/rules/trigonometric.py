"""Rules of trigonometric and hyperbolic functions and their inverses.

Roots are taken of products, ``(1 - x) * (1 + x)`` and not ``1 - x * x``, which
would lose digits near the ends of the domain.
"""

from __future__ import annotations

from onnxtrain.autodiff.registry import gradient


@gradient("Sin")
def sin(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Cos(x))


@gradient("Cos")
def cos(op, node, dy):
    (x,) = node.inputs
    return op.Neg(op.Mul(dy, op.Sin(x)))


@gradient("Tan")
def tan(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Add(op.Mul(y, y), 1.0))


@gradient("Asin")
def asin(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Mul(op.Sub(1.0, x), op.Add(1.0, x))))


@gradient("Acos")
def acos(op, node, dy):
    return op.Neg(asin(op, node, dy))


@gradient("Atan")
def atan(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Add(op.Mul(x, x), 1.0))


@gradient("Sinh")
def sinh(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Cosh(x))


@gradient("Cosh")
def cosh(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sinh(x))


@gradient("Tanh")
def tanh(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Sub(1.0, op.Mul(y, y)))


@gradient("Asinh")
def asinh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Add(op.Mul(x, x), 1.0)))


@gradient("Acosh")
def acosh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Sqrt(op.Mul(op.Sub(x, 1.0), op.Add(x, 1.0))))


@gradient("Atanh")
def atanh(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, op.Mul(op.Sub(1.0, x), op.Add(1.0, x)))
