"""Rules of pooling.

Averaging over a window is one matrix per spatial axis, so its adjoint is one matrix product per axis.
For equal maxima, MaxPool passes the gradient to the entry chosen by the forward pass; GlobalMaxPool splits it equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import add_into_zeros, expand_like, integers, reshape_like, shape_of, size_of
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.window import Window, along_axes, array_like, covering, explicit, sliding, sliding_pads
from onnxtrain.graph import Op, attribute, constant, rank, static_shape


@gradient_rule("MaxPool")
def max_pool(op, node, dy, _=None):
    (x,) = node.inputs
    size = op.ReduceProd(op.Shape(x)) if static_shape(x) is None else [int(np.prod(static_shape(x)))]
    chosen = op.Reshape(_positions(op, node), [-1])
    scatter = partial(op.ScatterElements, axis=0, reduction="add")
    dx = add_into_zeros(op, lambda zeros, dy: scatter(zeros, chosen, dy), op.Reshape(dy, [-1]), size)
    return reshape_like(op, dx, x)


def _positions(op: Op, node: ir.Node) -> ir.Value:
    """Return the index of each maximum of MaxPool in the flattened input, in row-major order."""
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


@gradient_rule("MaxUnpool")
def max_unpool(op, node, dy):
    x, chosen, *_ = node.inputs
    window = explicit(node, attribute(node, "kernel_shape"))
    if len(node.inputs) == 3:  # positions are counted in the shape before padding to the given output shape
        space = op.Slice(shape_of(op, x), [2], [rank(x)])
        reach = op.Add(op.Mul(op.Sub(space, [1]), list(window.strides)), _trimmed(window))
        dy = op.Slice(dy, [0] * len(window.kernel), reach, list(range(2, rank(x))))
    return reshape_like(op, op.GatherElements(op.Reshape(dy, [-1]), op.Reshape(chosen, [-1]), axis=0), x)


def _trimmed(window: Window) -> list[int]:
    return [k - b - e for k, b, e in zip(window.kernel, window.begins, window.ends, strict=True)]


@gradient_rule("AveragePool")
def average_pool(op, node, dy):
    dy.shape = dy.shape or ir.Shape([None] * rank(node.inputs[0]))  # an unknown window: not even a rank is inferred
    return along_axes(op, dy, _matrices(op, node, attribute(node, "count_include_pad", 0)))


@gradient_rule("LpPool")
def lp_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    p = attribute(node, "p", 2)
    y.shape = y.shape or ir.Shape([None] * rank(x))
    spread = along_axes(op, _over_power(op, dy, y, p), _matrices(op, node, None))
    return op.Mul(spread, _signed_power(op, x, p))


@gradient_rule("GlobalAveragePool")
def global_average_pool(op, node, dy):
    (x,) = node.inputs
    space = static_shape(x)
    if space is None:
        count = op.CastLike(op.ReduceProd(op.Shape(x, start=2), keepdims=0), x)
    else:
        count = op.CastLike(float(np.prod(space[2:])), x)
    return expand_like(op, op.Div(dy, count), x)


@gradient_rule("GlobalMaxPool")
def global_max_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    largest = op.CastLike(op.Equal(x, y), x)
    count = op.ReduceSum(largest, list(range(2, rank(x))), keepdims=1)
    return op.Mul(largest, op.Div(dy, count))


@gradient_rule("GlobalLpPool")
def global_lp_pool(op, node, dy):
    (x,) = node.inputs
    (y,) = node.outputs
    p = attribute(node, "p", 2)
    return op.Mul(_over_power(op, dy, y, p), _signed_power(op, x, p))


def _over_power(op: Op, dy: ir.Value, y: ir.Value, p: int) -> ir.Value:
    """Return dy / y**(p - 1), and 0 if the norm y is 0."""
    if p == 1:
        return dy
    power = y if p == 2 else op.Pow(y, float(p - 1))
    return op.Where(op.Greater(y, 0.0), op.Div(dy, power), 0.0)


def _signed_power(op: Op, x: ir.Value, p: int) -> ir.Value:
    """Return sign(x) |x|**(p - 1)."""
    if p == 1:
        return op.Sign(x)
    return x if p == 2 else op.Mul(x, op.Pow(op.Abs(x), float(p - 2)))


def _matrices(op: Op, node: ir.Node, include_pads: int | None) -> dict[int, ir.Value]:
    """Return, for each spatial axis, the matrix of the entries in each window, divided by their number.

    If `include_pads` is None, there is no division. Otherwise, it tells whether padded entries count.
    """
    (x,), (y,) = node.inputs, node.outputs
    window, begins, ends = _padding(op, node)
    matrices = {}
    for i, (k, s, d, begin, end) in enumerate(
        zip(window.kernel, window.strides, window.dilations, begins, ends, strict=True), start=2
    ):
        sizes = size_of(op, y, i), size_of(op, x, i)
        matrix = covering(op, x, sizes, k, s, d, begin)
        if include_pads is not None:
            fixed = constant(matrix)
            if fixed is None:
                matrix = op.Div(matrix, _counts(op, x, matrix, sizes, (k, s, d, begin, end), include_pads))
            else:
                matrix = array_like(op, _averaging(fixed, (k, s, d, begin, end), include_pads), x, "averaging")
        matrices[i] = matrix
    return matrices


def _padding(op: Op, node: ir.Node) -> tuple[Window, Sequence[Any], Sequence[Any]]:
    """Return the window and its padding along each axis, as ints or as scalars computed at run time."""
    (x,) = node.inputs
    kernel = attribute(node, "kernel_shape")
    window = sliding(node, kernel, x)
    if window is not None:
        return window, window.begins, window.ends
    pads = sliding_pads(op, node, integers(op, kernel, "kernel"), x)
    begins, ends = ([op.Gather(side, i) for i in range(len(kernel))] for side in pads)
    return explicit(node, kernel), begins, ends


def _averaging(covered: np.ndarray, window: Sequence[int], include_pads: int) -> np.ndarray:
    k, s, d, begin, end = window
    counts = covered.sum(axis=1)
    if include_pads:
        reach = covered.shape[1] + end + begin - np.arange(len(covered)) * s
        counts = np.minimum(k, -(-reach // d))
    return covered / np.maximum(counts, 1)[:, None]


def _counts(
    op: Op, x: ir.Value, covered: ir.Value, sizes: Sequence[Any], window: Sequence[Any], include_pads: int
) -> ir.Value:
    """Return the divisor of each window, the number of entries it counts and at least 1, (positions, 1)."""
    if not include_pads:
        return op.Max(op.ReduceSum(covered, [1], keepdims=1), 1.0)
    (positions, entries), (k, s, d, begin, end) = sizes, window
    reach = op.Sub(op.Add(op.Add(entries, end), begin), op.Mul(op.Range(0, positions, 1), s))
    counts = op.Min(op.Div(op.Add(reach, d - 1), d), k)
    return op.CastLike(op.Unsqueeze(op.Max(counts, 1), [1]), x)
