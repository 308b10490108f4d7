"""Rules of operators that select elements or write them into a tensor.

The gradients of an element selected twice are summed. In a scatter, ``y`` is ``data`` with ``updates`` written, added,
multiplied or compared at positions. ScatterElements and ScatterND index positions differently, so each rule takes a
pair of functions, one that writes and one that reads.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import (
    add_into_zeros,
    integers,
    known_rank,
    length_of,
    reshape_like,
    shape_of,
    summing_type,
    zeros_like,
)
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.slice_pad import add_at_positions, pad_along
from onnxtrain.graph import attribute, constant, rank, static_shape


@gradient_rule("Gather")
def gather(op, node, dy):
    """Scatter slices of dy: a Pad for one constant index, else ScatterND with the axis moved to the front."""
    x, indices = node.inputs
    axis, picked = _axis(node, 0), constant(indices)
    if picked is not None and picked.ndim == 0 and rank(x) is not None:
        before, after = _around(op, x, axis, int(picked))
        return pad_along(op, op.Unsqueeze(dy, [axis]), [axis], [before], [after], rank(x))
    if axis == 0:
        return _add_slices(op, shape_of(op, x), op.Unsqueeze(indices, [-1]), dy)
    return _gather_back(op, dy, indices, x, axis, known_rank(x, node), known_rank(indices, node))


def _add_slices(op, shape, indices, dy):
    if indices.dtype == ir.DataType.INT32:  # ScatterND takes int64 only
        indices = op.Cast(indices, to=ir.DataType.INT64)
    return add_into_zeros(op, lambda zeros, dy: op.ScatterND(zeros, indices, dy, reduction="add"), dy, shape)


def _axis(node, default):
    """Return the axis, normalized to be non-negative if the rank is known."""
    axis, n = attribute(node, "axis", default), rank(node.inputs[0])
    return axis if n is None else axis % n


def _around(op, x, axis, i):
    """Return the number of slices before and after slice i."""
    n = x.shape[axis]
    if isinstance(n, int):
        return i % n, n - 1 - i % n
    length = length_of(op, x, axis)
    return (i, op.Sub(length, [i + 1])) if i >= 0 else (op.Sub(length, [-i]), -1 - i)


def _gather_back(op, dy, indices, x, axis, n, q):
    """Move the axis of x and the q axes of the indices to the front, add there, and move the axes back."""
    front = [axis, *range(axis), *range(axis + 1, n)]
    dy_front = [*range(axis, axis + q), *range(axis), *range(axis + q, n + q - 1)]
    shape = static_shape(x)
    permuted = op.Gather(op.Shape(x), front) if shape is None else integers(op, [shape[i] for i in front], "shape")
    updates = op.Transpose(dy, perm=dy_front) if q else dy
    dx = _add_slices(op, permuted, op.Unsqueeze(indices, [-1]), updates)
    return op.Transpose(dx, perm=[int(i) for i in np.argsort(front)])


@gradient_rule("GatherElements")
def gather_elements(op, node, dy):
    x, indices = node.inputs
    scatter = partial(op.ScatterElements, axis=_axis(node, 0), reduction="add")
    return add_into_zeros(op, lambda zeros, dy: scatter(zeros, indices, dy), dy, shape_of(op, x))


@gradient_rule("GatherND")
def gather_nd(op, node, dy):
    x, indices = node.inputs
    batch = attribute(node, "batch_dims", 0)
    if batch:
        return add_at_positions(op, lambda positions: op.GatherND(positions, indices, batch_dims=batch), dy, x)
    return _add_slices(op, shape_of(op, x), indices, dy)


@gradient_rule("Compress")
def compress(op, node, dy):
    x, condition = node.inputs
    axis = {} if attribute(node, "axis") is None else {"axis": attribute(node, "axis")}
    return add_at_positions(op, lambda positions: op.Compress(positions, condition, **axis), dy, x)


@gradient_rule("TopK")
def top_k(op, node, dy, _):
    x, indices = node.inputs[0], node.outputs[1]
    return op.ScatterElements(zeros_like(op, x), indices, dy, axis=_axis(node, -1))


@gradient_rule("OneHot")
def one_hot(op, node, dy):
    """Return the gradients of the off value and of the on value."""
    indices, depth, values = node.inputs
    hot = op.OneHot(indices, depth, op.initializer(_zero_one(values)), axis=attribute(node, "axis", -1))
    on = op.ReduceSum(op.Mul(dy, hot), keepdims=0)
    off = op.Sub(op.ReduceSum(dy, keepdims=0), on)
    return None, None, op.Concat(op.Unsqueeze(off, [0]), op.Unsqueeze(on, [0]), axis=0)


def _zero_one(values):
    return ir.tensor([0.0, 1.0], dtype=values.dtype, name="off_on")


@gradient_rule("Unique")
def unique(op, node, dy, *_):
    """Divide dy equally among equal elements."""
    (x,) = node.inputs
    axis = attribute(node, "axis")
    order = {"sorted": attribute(node, "sorted", 1)} | ({} if axis is None else {"axis": axis})
    *_, inverse, counts = op.Unique(x, **order, _outputs=4)
    share = op.Cast(counts, to=x.dtype)
    if axis is None:
        return reshape_like(op, op.Gather(op.Div(dy, share), inverse), x)
    behind = known_rank(x, node) - axis % known_rank(x, node) - 1
    share = op.Unsqueeze(share, list(range(1, 1 + behind))) if behind else share
    return op.Gather(op.Div(dy, share), inverse, axis=axis)


# ------------------------------------------------------------------- scatter


@gradient_rule("ScatterElements")
def scatter_elements(op, node, dy):
    axis = attribute(node, "axis", 0)
    return _scatter(op, node, dy, partial(op.ScatterElements, axis=axis), partial(op.GatherElements, axis=axis))


@gradient_rule("ScatterND")
def scatter_nd(op, node, dy):
    return _scatter(op, node, dy, op.ScatterND, op.GatherND)


def _scatter(op, node, dy, write, read):
    data, positions, updates = node.inputs
    (y,) = node.outputs

    def put(target, values, reduction):
        return write(target, positions, values, reduction=reduction)

    def get(source):
        return read(source, positions)

    reduction = attribute(node, "reduction", "none")
    if reduction == "none":
        ddata, dupdates = put(dy, zeros_like(op, updates), "none"), get(dy)
    elif reduction == "add":
        ddata, dupdates = dy, get(dy)
    elif reduction == "mul":
        ddata, dupdates = put(dy, updates, "mul"), op.Mul(get(dy), _other_factors(op, data, updates, put, get))
    else:
        ddata, dupdates = _extremum(op, dy, data, updates, y, put, get)
    return ddata, None, dupdates


def _other_factors(op, data, updates, put, get):
    """Return, for each update, the product of the data and of the other updates at its position.

    The product of the nonzero factors is divided by the update; it is 0 if another
    factor is 0. The result is exact, but its own derivative is wrong if several are 0.
    """
    zero = op.Equal(updates, 0.0)
    is_zero = op.Cast(zero, to=updates.dtype)
    factor = op.Where(zero, 1.0, updates)
    zeros_here = get(put(zeros_like(op, data), is_zero, "add"))
    return op.Where(op.Equal(zeros_here, is_zero), op.Div(get(put(data, factor, "mul")), factor), 0.0)


def _extremum(op, dy, data, updates, y, put, get):
    """Pass dy to the largest (smallest) element at each position; equal elements share it."""
    kept, written = op.Equal(data, y), op.Equal(updates, get(y))
    numbers = [op.Cast(chosen, to=summing_type(y.dtype)) for chosen in (kept, written)]
    share = op.Div(dy, op.Cast(put(*numbers, "add"), to=y.dtype))
    return op.Where(kept, share, 0.0), op.Where(written, get(share), 0.0)


@gradient_rule("TensorScatter")
def tensor_scatter(op, node, dy):
    """Return dy with zeros at the overwritten steps, and dy at these steps, which start at an index per row."""
    cache, update, start = (*node.inputs, None)[:3]
    mode, n = attribute(node, "mode", "linear"), known_rank(cache, node)
    axis = attribute(node, "axis", -2) % n
    rest = [] if start is None else [start]
    dcache = op.TensorScatter(dy, zeros_like(op, update), *rest, axis=axis, mode=mode)
    steps = op.Range(0, op.Squeeze(length_of(op, update, axis), [0]), 1)
    steps = op.Reshape(steps, [-1, *[1] * (n - 1 - axis)])
    if start is not None:
        steps = op.Add(steps, op.Reshape(start, [-1, *[1] * (n - 1)]))
    if mode == "circular":
        steps = op.Mod(steps, length_of(op, cache, axis))
    return dcache, op.GatherElements(dy, op.Expand(steps, shape_of(op, update)), axis=axis)
