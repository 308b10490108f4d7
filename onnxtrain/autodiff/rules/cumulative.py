"""Rules of cumulative sums and products."""

from __future__ import annotations

from onnxtrain.autodiff.broadcast import known_rank
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.reduction import compare_positions
from onnxtrain.errors import GradientError
from onnxtrain.graph import constant


@gradient("CumSum")
def cumsum(op, node, dy):
    """Sum dy the other way."""
    _, axis = node.inputs
    exclusive, reverse = attribute(node, "exclusive", 0), attribute(node, "reverse", 0)
    return op.CumSum(dy, axis, exclusive=exclusive, reverse=1 - reverse)


@gradient("CumProd")
def cumprod(op, node, dy):
    """Return before_i * sum_k dy_k * between_ik, products of what precedes x_i and of what follows it up to y_k."""
    x, axis = node.inputs
    exclusive, reverse = attribute(node, "exclusive", 0), attribute(node, "reverse", 0)
    i = _fixed_axis(node)
    behind = "Greater" if reverse else "Less"
    after = compare_positions(op, behind, x, i)  # [i, k]: the step k is after the step i
    between = op.CumProd(op.Where(after, op.Unsqueeze(x, [i]), 1.0), i + 1, exclusive=exclusive, reverse=reverse)
    reached = after if exclusive else compare_positions(op, f"{behind}OrEqual", x, i)
    terms = op.Where(reached, op.Mul(op.Unsqueeze(dy, [i]), between), 0.0)
    before = op.CumProd(x, axis, exclusive=1, reverse=reverse)
    return op.Mul(before, op.ReduceSum(terms, [i + 1], keepdims=0))


def _fixed_axis(node):
    x, axis = node.inputs
    fixed = constant(axis)
    if fixed is None:
        raise GradientError(f"The derivative of CumProd (node {node.name!r}) needs an axis that is a constant.")
    return int(fixed.item()) % known_rank(x, node)
