"""Rules of reductions, and of cumulative sums and products.

``y = f(x)`` over some axes, which may be an input known only at run time.
:func:`_spread` reshapes a value of the shape of ``y`` so that it broadcasts with
``x``. If ``noop_with_empty_axes`` leaves no axis, the elementwise functions before
and after the sum are still applied.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import expand_like, known_rank, size_of
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import attribute, constant, rank

# -------------------------------------------------------------------- shapes


def _axes(node):
    """Return the input ``axes``, None if it is absent."""
    return node.inputs[1] if len(node.inputs) > 1 else None


def _spread(op, node, v):
    """Return `v`, which has the shape of the result, reshaped to broadcast with the operand."""
    x, axes = node.inputs[0], _axes(node)
    if attribute(node, "keepdims", 1) or axes is None:
        return v
    fixed = constant(axes)
    if fixed is not None and rank(x) is not None and set(fixed % rank(x)) == set(range(fixed.size)):
        return v  # leading axes were reduced: the remaining ones are aligned
    return op.Unsqueeze(v, axes)


def _again(op, node, reduction, x):
    """Return another reduction of `x` over the same axes, kept with length 1."""
    axes = _axes(node)
    noop = attribute(node, "noop_with_empty_axes", 0)
    return getattr(op, reduction)(x, *([] if axes is None else [axes]), keepdims=1, noop_with_empty_axes=noop)


def _reduced_axes(node):
    """Return the axes as ints, None if they are known only at run time."""
    x, axes = node.inputs[0], _axes(node)
    fixed = np.zeros(0, np.int64) if axes is None else constant(axes)
    if fixed is None or rank(x) is None:
        return None
    if fixed.size == 0:
        return [] if attribute(node, "noop_with_empty_axes", 0) else list(range(rank(x)))
    return sorted(int(axis) % rank(x) for axis in fixed)


# ----------------------------------------------------------- sums and means


@gradient_rule("ReduceSum")
def reduce_sum(op, node, dy):
    return expand_like(op, _spread(op, node, dy), node.inputs[0])


@gradient_rule("ReduceMean")
def reduce_mean(op, node, dy):
    return expand_like(op, _spread(op, node, op.Div(dy, _count(op, node))), node.inputs[0])


def _count(op, node):
    """Return the number of elements averaged by each mean, as an int or a scalar."""
    (x, *_), (y,) = node.inputs, node.outputs
    axes = _reduced_axes(node)
    dims = None if axes is None else [x.shape[axis] for axis in axes]
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        return float(math.prod(dims))
    return op.Cast(op.Div(op.Size(x), op.Max(op.Size(y), 1)), to=x.dtype)


@gradient_rule("ReduceSumSquare")
def reduce_sum_square(op, node, dy):
    return op.Mul(_spread(op, node, op.Add(dy, dy)), node.inputs[0])


@gradient_rule("ReduceL1")
def reduce_l1(op, node, dy):
    return op.Mul(_spread(op, node, dy), op.Sign(node.inputs[0]))


@gradient_rule("ReduceL2")
def reduce_l2(op, node, dy):
    """Return dy * x / y, and 0 if all of x is 0."""
    (y,) = node.outputs
    ratio = op.Div(dy, op.Where(op.Equal(y, 0.0), math.inf, y))
    return op.Mul(_spread(op, node, ratio), node.inputs[0])


@gradient_rule("ReduceLogSum")
def reduce_log_sum(op, node, dy):
    x = node.inputs[0]
    return expand_like(op, op.Div(_spread(op, node, dy), _again(op, node, "ReduceSum", x)), x)


@gradient_rule("ReduceLogSumExp")
def reduce_log_sum_exp(op, node, dy):
    (y,) = node.outputs
    softmax = op.Exp(op.Sub(node.inputs[0], _spread(op, node, y)))  # never above 1
    return op.Mul(_spread(op, node, dy), softmax)


@gradient_rule("ReduceMax", "ReduceMin")
def reduce_extremum(op, node, dy):
    """Pass dy to the largest (smallest) element; equal elements share it."""
    (x, *_), (y,) = node.inputs, node.outputs
    chosen = op.Cast(op.Equal(x, _spread(op, node, y)), to=x.dtype)
    share = op.Div(_spread(op, node, dy), _again(op, node, "ReduceSum", chosen))
    return op.Mul(chosen, share)


# ------------------------------------------------------------------ products


@gradient_rule("ReduceProd")
def reduce_prod(op, node, dy):
    """Multiply dy by the product of the other elements, axis by axis; without division, so zeros are exact."""
    x, axes = node.inputs[0], _reduced_axes(node)
    if axes is None:
        return op.Mul(_spread(op, node, dy), _others_by_division(op, node, x))
    partial = [x]
    for axis in axes[:-1]:
        partial.append(op.ReduceProd(partial[-1], [axis], keepdims=1))
    dx = _spread(op, node, dy)
    for axis, part in reversed(list(zip(axes, partial, strict=False))):
        dx = op.Mul(dx, product_of_others(op, part, axis))
    return dx


def product_of_others(op, x, axis):
    """Return at each element the product of the others along an axis: exact, at quadratic cost in its length."""
    pairs = op.Where(compare_positions(op, "Equal", x, axis), 1.0, op.Unsqueeze(x, [axis]))
    return op.ReduceProd(pairs, [axis + 1], keepdims=0)


def compare_positions(op, comparison, x, axis):
    """Return a mask (n, n, 1, ..., 1) of i = j, i < j, ..., for an axis of length n of x."""
    n, behind = x.shape[axis], [1] * (rank(x) - axis - 1)
    if isinstance(n, int):
        i, j = np.ogrid[:n, :n]
        found = {"Equal": i == j, "Greater": i > j, "GreaterOrEqual": i >= j, "Less": i < j, "LessOrEqual": i <= j}
        return op.initializer(ir.tensor(found[comparison].reshape(n, n, *behind), name="positions"))
    positions = op.Range(0, size_of(op, x, axis), 1)
    i, j = op.Reshape(positions, [-1, 1, *behind]), op.Reshape(positions, [-1, *behind])
    return getattr(op, comparison)(i, j)


def _others_by_division(op, node, x):
    """Return the product of the other elements for axes known only at run time.

    The product of the nonzero elements is divided by the element; it is 0 if another
    element is 0. The result is exact, but its own derivative is wrong if several are 0.
    """
    zero = op.Equal(x, 0.0)
    is_zero = op.Cast(zero, to=x.dtype)
    factor = op.Where(zero, 1.0, x)
    ratio = op.Div(_again(op, node, "ReduceProd", factor), factor)
    return op.Where(op.Equal(_again(op, node, "ReduceSum", is_zero), is_zero), ratio, 0.0)


# ---------------------------------------------------------------- cumulative


@gradient_rule("CumSum")
def cumsum(op, node, dy):
    """Sum dy in the opposite direction."""
    _, axis = node.inputs
    exclusive, reverse = attribute(node, "exclusive", 0), attribute(node, "reverse", 0)
    return op.CumSum(dy, axis, exclusive=exclusive, reverse=1 - reverse)


@gradient_rule("CumProd")
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
