"""Rules of Conv, ConvTranspose, DeformConv and Col2Im.

Conv and ConvTranspose are the transposes of each other. ``x`` is (N, C, ...), ``w`` the filters, ``b`` the bias (M,).
With stride s, dilation d and padding p

    y[n, m, o] = sum over c, k of x[n, c, o s + k d - p] w[m, c, k]

Therefore, ``dw`` is a convolution of ``x`` with ``dy`` in which stride and dilation are exchanged.

DeformConv interpolates the image at its sampling positions and multiplies by the filters: ``offset``
(N, groups K axes, ...) is the shift of each position of the K entries of a filter, and ``mask`` (N, groups K, ...) its
weight. A pixel outside the image is 0. Col2Im sums overlapping blocks, and its adjoint gathers them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, known_rank, length_of, lengths, reshape_like, size_of
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.interpolation import interpolated, linear_taps, real_length
from onnxtrain.autodiff.rules.slice_pad import concatenated
from onnxtrain.autodiff.rules.window import (
    Window,
    array_like,
    crop_like,
    explicit,
    sliding,
    sliding_pads,
    transposed,
    transposed_pads,
)
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, attribute, attributes, constant, describe, rank, static_shape


@gradient_rule("Conv")
def conv(op, node, dy):
    x, w, *b = node.inputs
    window = sliding(node, attribute(node, "kernel_shape") or list(w.shape)[2:], x)
    if window is None:
        return differentiate(op, node, _padded_first, dy)
    groups = attribute(node, "group", 1)
    dw = _filters(op, x, dy, w, window, groups)
    return [_spread(op, dy, w, x, window, groups), dw, *(_bias(op, dy) for _ in b)]


def _padded_first(op, node, x, w, *b):
    begin, end = sliding_pads(op, node, op.Shape(w, start=2), x)
    pads = op.Concat([0, 0], begin, [0, 0], end, axis=0)
    return [op.Conv(op.Pad(x, pads), w, *b, **attributes(node, "strides", "dilations", "group"))]


@gradient_rule("ConvTranspose")
def conv_transpose(op, node, dy):
    x, w, *b = node.inputs
    window = transposed(node, attribute(node, "kernel_shape") or list(w.shape)[2:], x)
    if window is None:
        return differentiate(op, node, _cut_afterwards, dy)
    groups = attribute(node, "group", 1)
    dx = op.Conv(dy, w, group=groups, **_attributes(window))
    dw = _filters(op, dy, x, w, window, groups)
    return [crop_like(op, dx, x, range(2, rank(x))), dw, *(_bias(op, dy) for _ in b)]


def _cut_afterwards(op, node, x, w, *b):
    begin, end = transposed_pads(op, node, op.Shape(w, start=2), x)
    cuts = op.Concat([0, 0], begin, [0, 0], end, axis=0)
    y = op.ConvTranspose(x, w, *b, **attributes(node, "strides", "dilations", "group", "output_padding"))
    return [op.Pad(y, op.Neg(cuts))]


def _attributes(window: Window) -> dict[str, Any]:
    return {"strides": list(window.strides), "dilations": list(window.dilations), "pads": window.pads}


def _spread(op: Op, dy: ir.Value, w: ir.Value, x: ir.Value, window: Window, groups: int) -> ir.Value:
    """Return the transposed convolution of `dy`, as long as `x`: a stride may skip the end of `x`."""
    extra = []
    for axis, (extent, stride) in enumerate(zip(window.extents, window.strides, strict=True), start=2):
        reached = None
        if extent is not None and isinstance(x.shape[axis], int) and isinstance(dy.shape[axis], int):
            reached = (dy.shape[axis] - 1) * stride + extent - window.begins[axis - 2] - window.ends[axis - 2]
        extra.append(stride - 1 if reached is None else x.shape[axis] - reached)  # the excess is cropped
    dx = op.ConvTranspose(dy, w, group=groups, output_padding=extra, **_attributes(window))
    return crop_like(op, dx, x, range(2, rank(x)))


def _filters(op: Op, large: ir.Value, small: ir.Value, w: ir.Value, window: Window, groups: int) -> ir.Value:
    """Return the gradient of the filters, which slide over `large` and are multiplied by `small`."""
    swap = [1, 0, *range(2, rank(large))]
    shape = static_shape(w)
    if groups == 1 and shape is not None and _pays_by_entry(small, shape):
        return _filters_by_entry(op, large, op.Transpose(small, perm=swap), shape, window)
    rows = op.Transpose(large, perm=swap) if groups == 1 else _rows_by_group(op, large, w, groups)
    swapped = Window(window.kernel, window.dilations, window.strides, window.begins, window.ends)
    dw = op.Conv(rows, op.Transpose(small, perm=swap), group=groups, **_attributes(swapped))
    return op.Transpose(crop_like(op, dw, w, range(2, rank(w))), perm=swap)


#: The least number of channels and the largest number of entries of a filter for which products are faster than a
#: convolution whose filter is an image (``benchmarks/convolution.py`` prints both times).
_CHANNELS, _ENTRIES = 8, 49


def _pays_by_entry(small: ir.Value, filters: tuple[int, ...]) -> bool:
    positions_are_known = all(isinstance(n, int) for n in list(small.shape)[2:])
    return positions_are_known and filters[1] >= _CHANNELS and math.prod(filters[2:]) <= _ENTRIES


def _filters_by_entry(op: Op, large: ir.Value, small: ir.Value, filters: tuple[int, ...], window: Window) -> ir.Value:
    """Return the gradient of the filters, one product over all positions for each entry; `small` is (M, N, ..)."""
    m, c, *kernel = filters
    axes, positions = list(range(1, len(kernel) + 1)), list(small.shape)[2:]
    pixels = op.Transpose(large, perm=[0, *range(2, rank(large)), 1])  # channels last
    if any(window.pads):
        pixels = op.Pad(pixels, [0, *window.begins, 0, 0, *window.ends, 0])
    rows = op.Reshape(small, [m, -1])
    products = []
    for entry in np.ndindex(*kernel):
        starts = [i * d for i, d in zip(entry, window.dilations, strict=True)]
        ends = [start + (n - 1) * s + 1 for start, n, s in zip(starts, positions, window.strides, strict=True)]
        taken = op.Slice(pixels, starts, ends, axes, list(window.strides))
        products.append(op.MatMul(rows, op.Reshape(taken, [-1, c])))
    return op.Reshape(op.Concat(*(op.Unsqueeze(dw, [2]) for dw in products), axis=2), [m, c, *kernel])


def _rows_by_group(op: Op, x: ir.Value, w: ir.Value, groups: int) -> ir.Value:
    """Return (N, G C, ...) as (C, G N, ...)."""
    n, c, space = x.shape[0], *lengths(op, w, [1]), lengths(op, x, range(2, rank(x)))
    rows = groups * n if isinstance(n, int) else op.Mul(length_of(op, x, 0), [groups])
    split = concatenated(op, [*lengths(op, x, [0]), groups, c, *space])
    turned = op.Transpose(op.Reshape(x, split, allowzero=1), perm=[2, 1, 0, *range(3, rank(x) + 1)])
    return op.Reshape(turned, concatenated(op, [c, rows, *space]), allowzero=1)


def _bias(op: Op, dy: ir.Value) -> ir.Value:
    return op.ReduceSum(dy, [0, *range(2, rank(dy))], keepdims=0)


# ---------------------------------------------------------------- DeformConv


@gradient_rule("DeformConv")
def deform_conv(op, node, dy):
    return differentiate(op, node, _deformed, dy)


def _deformed(op, node, x, w, offset, bias=None, mask=None):
    """Return (N, M, ...) as a matrix product of the filters and the sampled columns."""
    m, c, *kernel = _filter_shape(node, w)
    window = explicit(node, kernel)
    groups, k = attribute(node, "group", 1), int(np.prod(window.kernel))
    columns = _columns(op, x, offset, window, c * groups, attribute(node, "offset_group", 1))
    if mask is not None:
        columns = op.Mul(columns, op.Reshape(mask, [0, attribute(node, "offset_group", 1), 1, k, -1]))
    columns = op.Reshape(columns, [0, groups, c * k, -1])
    y = op.MatMul(op.Reshape(w, [groups, m // groups, c * k]), columns)
    y = op.Reshape(y, concatenated(op, [0, m, *lengths(op, offset, range(2, rank(x)))]))
    return [y if bias is None else op.Add(y, op.Unsqueeze(bias, list(range(1, rank(x) - 1))))]


def _filter_shape(node: ir.Node, w: ir.Value) -> tuple[int, ...]:
    shape = static_shape(w)
    if shape is None:
        raise GradientError(
            f"The derivative of {node.op_type} (node {node.name!r}) requires a window of static shape, got "
            f"{describe(w)}. Give the weights a static shape."
        )
    return shape


def _columns(op: Op, x: ir.Value, offset: ir.Value, window: Window, channels: int, groups: int) -> ir.Value:
    """Return the pixel sampled by each filter entry at each position: (N, groups, channels / group, K, positions)."""
    n, k = len(window.kernel), int(np.prod(window.kernel))
    sizes = [real_length(op, x, axis) for axis in range(2, n + 2)]
    split = [0, groups, k, n, *lengths(op, offset, range(2, n + 2))]
    shifts = op.Split(op.Reshape(offset, concatenated(op, split)), axis=3, num_outputs=n, _outputs=n)
    taps = []
    for axis, (shift, size) in enumerate(zip(shifts, sizes, strict=True)):
        place = op.Add(op.Squeeze(shift, [3]), _places(op, offset, window, axis))
        taps.append(linear_taps(op, op.Reshape(place, [0, groups, -1, 1]), size, "zeros"))
    entries = op.Transpose(op.Reshape(x, [0, groups, channels // groups, -1]), perm=[0, 1, 3, 2])
    found = interpolated(op, entries, taps, sizes)  # (N, groups, K positions, channels)
    return op.Reshape(op.Transpose(found, perm=[0, 1, 3, 2]), [0, groups, channels // groups, k, -1])


def _places(op: Op, offset: ir.Value, window: Window, axis: int) -> ir.Value:
    """Return the coordinates of the window's entries along an axis, without offsets: (K, 1, .., positions, 1, ..)."""
    n, count = len(window.kernel), offset.shape[axis + 2]
    entry = np.unravel_index(np.arange(np.prod(window.kernel)), window.kernel)[axis]
    first = (entry * window.dilations[axis] - window.begins[axis]).reshape(-1, *[1] * n)
    behind = [1] * (n - axis - 1)
    if isinstance(count, int):
        steps = np.arange(count).reshape(-1, *behind) * window.strides[axis]
        return array_like(op, first + steps, offset, "places")
    positions = op.Range(0, size_of(op, offset, axis + 2), 1)
    steps = op.CastLike(op.Reshape(op.Mul(positions, window.strides[axis]), [-1, *behind]), offset)
    return op.Add(array_like(op, first, offset, "places"), steps)


# -------------------------------------------------------------------- Col2Im


@gradient_rule("Col2Im")
def col2im(op, node, dy):
    """Gather the entries of each block, axis by axis: (N, C, k1, n1, k2, n2, ...)."""
    x, image, block = node.inputs
    n = known_rank(node.outputs[0], node) - 2
    pads = attribute(node, "pads") or [0] * (2 * n)
    strides, dilations = (attribute(node, name) or [1] * n for name in ("strides", "dilations"))
    dx = op.Pad(dy, [0, 0, *pads[:n], 0, 0, *pads[n:]]) if any(pads) else dy
    for i in range(n):
        length, k = op.Add(_entry(op, image, i), pads[i] + pads[n + i]), _entry(op, block, i)
        dx = op.Gather(dx, _block_indices(op, length, k, strides[i], dilations[i]), axis=2 + 2 * i)
    turn = [0, 1, *range(2, 2 * n + 2, 2), *range(3, 2 * n + 2, 2)]
    return reshape_like(op, op.Transpose(dx, perm=turn), x)


def _block_indices(op: Op, length: ir.Value, k: ir.Value, stride: int, dilation: int) -> ir.Value:
    """Return the index of each entry of the block (k,) at each position of the block: (k, positions)."""
    reach = op.Mul(op.Sub(k, 1), dilation)
    starts = op.Range(0, op.Sub(length, reach), stride)
    return op.Add(op.Unsqueeze(op.Mul(op.Range(0, k, 1), dilation), [1]), starts)


def _entry(op: Op, numbers: ir.Value, i: int) -> ir.Value:
    fixed = constant(numbers)
    return op.Gather(numbers, i) if fixed is None else integers(op, fixed[i], "length")
