"""Rule of DeformConv: interpolate the image at the sampling positions, then multiply by the filters.

``x`` is (N, C, ...), ``w`` the filters (M, C / group, ...) with K entries, ``offset`` (N, groups K axes, ...) the shift
of each sampling position, ``mask`` (N, groups K, ...) its weight. A pixel outside the image is 0.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import lengths
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.compose import differentiate
from onnxtrain.autodiff.rules.grid_sample import interpolated, linear_taps, real_length
from onnxtrain.autodiff.rules.slice_pad import concatenated
from onnxtrain.autodiff.rules.window import Window, array_like, explicit
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, describe, rank, static_shape


@gradient("DeformConv")
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
            f"The derivative of {node.op_type} (node {node.name!r}) needs the lengths of its window, found "
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
    positions = op.Range(0, op.Squeeze(op.Shape(offset, start=axis + 2, end=axis + 3), [0]), 1)
    steps = op.CastLike(op.Reshape(op.Mul(positions, window.strides[axis]), [-1, *behind]), offset)
    return op.Add(array_like(op, first, offset, "places"), steps)
