"""Nodes that onnxruntime-training cannot derive, or derives wrongly, by others that it can.

Each function takes the builder and a node and returns the values that replace
its outputs, None for one that is not used; None alone leaves the node as it is. The value computed is the same,
and so is the derivative, kinks included: that of :mod:`onnxtrain.autodiff`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import GradientError
from onnxtrain.graph import constant, rank, same_shape, static_shape
from onnxtrain.registry import Registry

Replacement: TypeAlias = "ir.Value | tuple[ir.Value | None, ...] | None"

EQUIVALENTS: Registry[Callable[[Any, ir.Node], Replacement]] = Registry("equivalent", GradientError)
equivalent = EQUIVALENTS.register


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, or `default`."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _expand(op, x, like, *, to):
    """Return `x` in the shape of `like`, or in the run-time shape `to`; what is constant can stay as it is."""
    if constant(x) is not None or same_shape(x, like):
        return x
    shape = static_shape(like)
    if shape is not None:
        to = op.initializer(ir.tensor(np.array(shape, np.int64), name="shape"))
    return op.Expand(x, to)


def number(x: ir.Value, value: float) -> np.ndarray:
    """Return a number as a constant of the type of `x`."""
    return np.array(value, x.dtype.numpy())  # type: ignore[union-attr]


def _mask(op, condition, like):
    """Return a condition as 0 and 1: nothing flows back through a comparison."""
    return op.Cast(condition, to=int(like.dtype))


# ------------------------------------------------- derived, but silently wrong


@equivalent("MatMul")
def matmul(op, node):
    a, b = node.inputs
    axes = []
    if rank(a) == 1:
        a = op.Unsqueeze(a, [0])
        axes.append(-2)
    if rank(b) == 1:
        b = op.Unsqueeze(b, [1])
        axes.append(-1)
    return op.Squeeze(op.MatMul(a, b), axes) if axes else None


@equivalent("Where")
def where(op, node):
    condition, a, b = node.inputs
    (y,) = node.outputs
    if all(constant(v) is not None or same_shape(v, y) for v in (a, b)):
        return None
    # the shape comes from a Where of its own: nothing is derived through Shape
    shape = op.Shape(op.Where(condition, a, b))
    return op.Where(condition, _expand(op, a, y, to=shape), _expand(op, b, y, to=shape))


@equivalent("Pow")
def power(op, node):
    x, exponent = node.inputs
    (y,) = node.outputs
    if same_shape(x, y) and exponent.dtype == x.dtype:
        return None
    if exponent.dtype != x.dtype:
        exponent = op.Cast(exponent, to=int(x.dtype))
    return op.Pow(_expand(op, x, y, to=op.Shape(op.Pow(x, exponent))), exponent)


@equivalent("Clip")
def clip(op, node):
    x, low, high = node.inputs[0], _input(node, 1), _input(node, 2)
    if all(bound is None or constant(bound) is not None for bound in (low, high)):
        return None
    shape = op.Shape(x)
    if low is not None:
        x = op.Where(op.Less(x, low), op.Expand(low, shape), x)
    if high is not None:
        x = op.Where(op.Greater(x, high), op.Expand(high, shape), x)
    return x


@equivalent("Split")
def split(op, node):
    if all(y.uses() or y.is_graph_output() for y in node.outputs):
        return None
    x = node.inputs[0]
    axis = attribute(node, "axis", 0)
    sizes = _input(node, 1)
    ends = op.CumSum(sizes if sizes is not None else _even_split(op, node, axis), 0)
    starts = op.Concat([0], ends, axis=0)
    # no slice for what is unused: with it onnxruntime would fuse all of them into a Split again
    return tuple(
        op.Slice(x, op.Slice(starts, [i], [i + 1]), op.Slice(ends, [i], [i + 1]), [axis])
        if y.uses() or y.is_graph_output()
        else None
        for i, y in enumerate(node.outputs)
    )


def _even_split(op, node, axis):
    """Return the lengths of equal parts, of which the last may be shorter."""
    (x, *_), count = node.inputs, len(node.outputs)
    length = op.Gather(op.Shape(x), [axis])
    part = op.Div(op.Add(length, count - 1), count)
    parts = [part] * (count - 1) + [op.Sub(length, op.Mul(part, count - 1))]
    return op.Concat(*parts, axis=0)


@equivalent("BatchNormalization")
def batch_normalization(op, node):
    x, *parameters = node.inputs
    axes_of_x = rank(x)
    if axes_of_x is None:
        return None
    axes = list(range(1, axes_of_x - 1))
    scale, bias, mean, variance = (op.Unsqueeze(p, axes) if axes else p for p in parameters)
    deviation = op.Sqrt(op.Add(variance, number(variance, attribute(node, "epsilon", 1e-5))))
    return op.Add(op.Mul(op.Div(op.Sub(x, mean), deviation), scale), bias)


@equivalent("Transpose")
def transpose(op, node):
    (x,) = node.inputs
    axes = rank(x)
    if "perm" in node.attributes or axes is None:
        return None
    return op.Transpose(x, perm=list(reversed(range(axes))))


# -------------------------------------------------------------------- missing


@equivalent("Dropout")
def dropout(op, node):
    if constant(_input(node, 2)) is None and _input(node, 2) is not None:
        return None
    y = op.Identity(node.inputs[0])
    if len(node.outputs) == 1:
        return y
    # a constant output would be folded away, and then be missed
    ones = op.Add(op.Mul(y, 0.0), 1.0)
    return y, op.Cast(ones, to=int(ir.DataType.BOOL))


@equivalent("Sum")
def sum_(op, node):
    total, *others = node.inputs
    for term in others:
        total = op.Add(total, term)
    return total if others else op.Identity(total)


@equivalent("Mean")
def mean(op, node):
    return op.Div(op.Sum(*node.inputs), number(node.inputs[0], len(node.inputs)))


@equivalent("Reciprocal")
def reciprocal(op, node):
    return op.Div(1.0, node.inputs[0])


@equivalent("Sign")
def sign(op, node):
    (x,) = node.inputs
    return op.Sub(_mask(op, op.Greater(x, 0.0), x), _mask(op, op.Less(x, 0.0), x))


@equivalent("Floor", "Ceil")
def floor(op, node):
    (x,) = node.inputs
    # nothing flows back through an integer
    whole = op.Cast(op.Cast(x, to=int(ir.DataType.INT64)), to=int(x.dtype))
    if node.op_type == "Floor":
        return op.Sub(whole, _mask(op, op.Greater(whole, x), whole))
    return op.Add(whole, _mask(op, op.Less(whole, x), whole))


@equivalent("CastLike")
def cast_like(op, node):
    x, like = node.inputs
    return op.Cast(x, to=int(like.dtype))


@equivalent("LayerNormalization")
def layer_normalization(op, node):
    """Give the bias, which the gradient asks for."""
    x, scale = node.inputs[:2]
    if _input(node, 2) is not None:
        return None
    zero = ir.tensor(np.zeros(1, scale.dtype.numpy()), name="zero")
    bias = op.ConstantOfShape(op.Shape(scale), value=zero)
    return op.LayerNormalization(
        x,
        scale,
        bias,
        axis=attribute(node, "axis", -1),
        epsilon=attribute(node, "epsilon", 1e-5),
        stash_type=attribute(node, "stash_type", 1),
        _outputs=len(node.outputs),
    )


# reductions: the second input, the axes, goes through as it is


def _reduce(op, reduction, x, node, *, keepdims=None):
    return getattr(op, reduction)(
        x,
        *node.inputs[1:],
        keepdims=attribute(node, "keepdims", 1) if keepdims is None else keepdims,
        noop_with_empty_axes=attribute(node, "noop_with_empty_axes", 0),
    )


@equivalent("ReduceSumSquare")
def reduce_sum_square(op, node):
    x = node.inputs[0]
    return _reduce(op, "ReduceSum", op.Mul(x, x), node)


@equivalent("ReduceL1")
def reduce_l1(op, node):
    return _reduce(op, "ReduceSum", op.Abs(node.inputs[0]), node)


@equivalent("ReduceLogSum")
def reduce_log_sum(op, node):
    return op.Log(_reduce(op, "ReduceSum", node.inputs[0], node))


@equivalent("ReduceMax", "ReduceMin")
def reduce_max(op, node):
    """Average those that are equal to the largest: ties share the gradient."""
    x = node.inputs[0]
    chosen = op.Equal(x, _reduce(op, node.op_type, x, node, keepdims=1))
    total = _reduce(op, "ReduceSum", op.Where(chosen, x, number(x, 0.0)), node)
    return op.Div(total, _reduce(op, "ReduceSum", _mask(op, chosen, x), node))


@equivalent("GlobalMaxPool")
def global_max_pool(op, node):
    (x,) = node.inputs
    axes = rank(x)
    return op.ReduceMax(x, list(range(2, axes)), keepdims=1) if axes else None


@equivalent("LpNormalization")
def lp_normalization(op, node):
    (x,) = node.inputs
    axis, p = attribute(node, "axis", -1), attribute(node, "p", 2)
    total = op.ReduceL1(x, [axis]) if p == 1 else op.ReduceSumSquare(x, [axis])
    flat = op.Equal(total, 0.0)  # what has no length stays zero, its derivative too
    total = op.Where(flat, number(x, 1.0), total)
    return op.Div(op.Where(flat, number(x, 0.0), x), total if p == 1 else op.Sqrt(total))
