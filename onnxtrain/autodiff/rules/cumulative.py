"""Rules of cumulative sums and products."""

from __future__ import annotations

from onnxtrain.autodiff.broadcast import known_rank
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.reduction import compare_positions
from onnxtrain.graph import constant


@gradient("CumSum")
def cumsum(op, node, dy):
    """Sum dy the other way."""
    _, axis = node.inputs
    exclusive, reverse = attribute(node, "exclusive", 0), attribute(node, "reverse", 0)
    return op.CumSum(dy, axis, exclusive=exclusive, reverse=1 - reverse)


@gradient("CumProd")
def cumprod(op, node, dy):
    """Return before_i * sum_k dy_k * between_ik: products of the elements before x_i, and after x_i up to y_k."""
    x, axis = node.inputs
    exclusive, reverse = attribute(node, "exclusive", 0), attribute(node, "reverse", 0)
    if constant(axis) is None:
        return _by_division(op, dy, x, axis, exclusive, reverse)
    i = int(constant(axis).item()) % known_rank(x, node)
    behind = "Greater" if reverse else "Less"
    after = compare_positions(op, behind, x, i)  # [i, k]: the step k is after the step i
    between = op.CumProd(op.Where(after, op.Unsqueeze(x, [i]), 1.0), i + 1, exclusive=exclusive, reverse=reverse)
    reached = after if exclusive else compare_positions(op, f"{behind}OrEqual", x, i)
    terms = op.Where(reached, op.Mul(op.Unsqueeze(dy, [i]), between), 0.0)
    before = op.CumProd(x, axis, exclusive=1, reverse=reverse)
    return op.Mul(before, op.ReduceSum(terms, [i + 1], keepdims=0))


def _by_division(op, dy, x, axis, exclusive, reverse):
    """Return the gradient for an axis known only at run time.

    An element that is 0 counts in the products without another 0. Any other
    element counts in the products without a 0. The gradient is exact, but its own
    derivative is wrong if several elements are 0.
    """
    zero = op.Equal(x, 0.0)
    factor = op.Where(zero, 1.0, x)
    zeros = op.CumSum(op.Cast(zero, to=x.dtype), axis, exclusive=exclusive, reverse=reverse)
    terms = op.Mul(dy, op.CumProd(factor, axis, exclusive=exclusive, reverse=reverse))

    def total(n):
        kept = op.Where(op.Equal(zeros, float(n)), terms, 0.0)
        return op.CumSum(kept, axis, exclusive=exclusive, reverse=1 - reverse)

    return op.Div(op.Where(zero, total(1), total(0)), factor)
