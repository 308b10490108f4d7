"""Rules of pooling.

An average over a window is one matrix per spatial axis, so its transpose is one product per axis.
Of equal entries, MaxPool hands the gradient to the one the forward pass chose, GlobalMaxPool shares it equally.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import add_into_zeros, expand_like, reshape_like, shape_of
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.window import Window, along_axes, array_like, length, sliding
from onnxtrain.graph import rank, static_shape


@gradient("MaxPool")
def max_pool(op, node, dy, _=None):
    (x,) = node.inputs
    size = op.Reshape(op.Size(x), [1]) if static_shape(x) is None else [int(np.prod(static_shape(x)))]
    chosen = op.Reshape(_positions(op, node), [-1])
    scatter = partial(op.ScatterElements, axis=0, reduction="add")
    dx = add_into_zeros(op, lambda zeros, dy: scatter(zeros, chosen, dy), op.Reshape(dy, [-1]), size)
    return reshape_like(op, dx, x)


def _positions(op: Any, node: ir.Node) -> ir.Value:
    """Return where MaxPool found each maximum, counted through the whole input, row by row."""
    (x,) = node.inputs
    if attribute(node, "storage_order", 0) == 1:
        rows = {name: a.value for name, a in node.attributes.items() if name != "storage_order"}
        return op.MaxPool(x, **rows, _outputs=2)[1]
    if len(node.outputs) == 1:
        node.resize_outputs(2)
    y, chosen = node.outputs
    if not chosen.name:
        chosen.name, chosen.dtype, chosen.shape = f"{y.name}_positions", ir.DataType.INT64, y.shape
    return chosen


@gradient("MaxUnpool")
def max_unpool(op, node, dy):
    x, chosen, *_ = node.inputs
    window = sliding(node, attribute(node, "kernel_shape"), x)
    if len(node.inputs) == 3:  # positions are counted in the shape before it is padded to the one given
        space = op.Slice(shape_of(op, x), [2], [rank(x)])
        reach = op.Add(op.Mul(op.Sub(space, [1]), list(window.strides)), _trimmed(window))
        dy = op.Slice(dy, [0] * len(window.kernel), reach, list(range(2, rank(x))))
    return reshape_like(op, op.GatherElements(op.Reshape(dy, [-1]), op.Reshape(chosen, [-1]), axis=0), x)


def _trimmed(window: Window) -> list[int]:
    return [k - b - e for k, b, e in zip(window.kernel, window.begins, window.ends, strict=True)]


@gradient("AveragePool")
def average_pool(op, node, dy):
    return along_axes(op, dy, _matrices(op, node, attribute(node, "count_include_pad", 0)))


@gradient("LpPool")
def lp_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    p = attribute(node, "p", 2)
    spread = along_axes(op, _over_power(op, dy, y, p), _matrices(op, node, None))
    return op.Mul(spread, _signed_power(op, x, p))


@gradient("GlobalAveragePool")
def global_average_pool(op, node, dy):
    (x,) = node.inputs
    space = static_shape(x)
    if space is None:
        count = op.CastLike(op.ReduceProd(op.Shape(x, start=2), keepdims=0), x)
    else:
        count = op.CastLike(float(np.prod(space[2:])), x)
    return expand_like(op, op.Div(dy, count), x)


@gradient("GlobalMaxPool")
def global_max_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    largest = op.CastLike(op.Equal(x, y), x)
    count = op.ReduceSum(largest, list(range(2, rank(x))), keepdims=1)
    return op.Mul(largest, op.Div(dy, count))


@gradient("GlobalLpPool")
def global_lp_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    p = attribute(node, "p", 2)
    return op.Mul(_over_power(op, dy, y, p), _signed_power(op, x, p))


def _over_power(op: Any, dy: ir.Value, y: ir.Value, p: int) -> ir.Value:
    """Return dy / y**(p - 1), 0 where the norm y is 0."""
    if p == 1:
        return dy
    power = y if p == 2 else op.Pow(y, float(p - 1))
    return op.Where(op.Greater(y, 0.0), op.Div(dy, power), 0.0)


def _signed_power(op: Any, x: ir.Value, p: int) -> ir.Value:
    """Return sign(x) |x|**(p - 1)."""
    if p == 1:
        return op.Sign(x)
    return x if p == 2 else op.Mul(x, op.Pow(op.Abs(x), float(p - 2)))


def _matrices(op: Any, node: ir.Node, include_pads: int | None) -> dict[int, ir.Value]:
    """Return, for each spatial axis, which entry each window covers, over the number of entries it counts.

    With `include_pads` None nothing is divided; otherwise padded entries count, or do not.
    """
    (x,), (y,) = node.inputs, node.outputs
    window = sliding(node, attribute(node, "kernel_shape"), x)
    matrices = {}
    for i, (k, s, d, begin, end) in enumerate(
        zip(window.kernel, window.strides, window.dilations, window.begins, window.ends, strict=True)
    ):
        n, outputs = length(node, x, i + 2), length(node, y, i + 2)
        covered = np.arange(outputs)[:, None] * s + np.arange(k) * d - begin
        inside = (covered >= 0) & (covered < n)
        matrix = np.zeros((outputs, n))
        matrix[np.nonzero(inside)[0], covered[inside]] = 1
        if include_pads is not None:
            counted = (covered < n + end) if include_pads else inside
            matrix /= np.maximum(counted.sum(axis=1, keepdims=True), 1)
        matrices[i + 2] = array_like(op, matrix, x, "covered")
    return matrices
