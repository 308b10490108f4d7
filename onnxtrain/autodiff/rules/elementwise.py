"""Rules of operators that act on each element: arithmetic, powers, roots, trigonometry.

``x``, ``a``, ``b`` are operands, ``y`` the result, ``dy`` its gradient. Operands
are broadcast; the engine sums gradients back.
"""

from onnxtrain.autodiff.registry import gradient, no_gradient

no_gradient("Sign", "Floor", "Ceil", "Round")


@gradient("Identity", "Cast", "CastLike")
def identity(op, node, dy):
    (x, *_) = node.inputs
    return dy if x.dtype == dy.dtype else op.Cast(dy, to=x.dtype)


@gradient("Neg")
def neg(op, node, dy):
    return op.Neg(dy)


@gradient("Abs")
def absolute(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sign(x))  # 0 at the kink


@gradient("Add", broadcast=True)
def add(op, node, dy):
    return dy, dy


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


@gradient("Exp")
def exp(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, y)


@gradient("Log")
def log(op, node, dy):
    (x,) = node.inputs
    return op.Div(dy, x)
