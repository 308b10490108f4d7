"""Rules of Slice and Pad, and the adjoint of any operator that moves elements.

The adjoint of a Slice is a Pad, and the adjoint of a Pad is a Pad with opposite amounts. If the amounts cannot be
determined, the operator is applied to the indices ``0, 1, 2, ...`` of the elements of ``x``, and each element of ``dy``
is added at the resulting index.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import add_into_zeros, integers, known_rank, length_of, reshape_like, shape_of
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import attribute, constant, rank, same_shape, static_shape

#: A slice with an end beyond this extends to the end of the axis, whatever its length.
_FAR = 2**31 - 2


def add_at_positions(op, move, dy, x):
    """Return zeros like `x` with each element of `dy` added at its index; `move` applies the operator to indices."""
    shape = static_shape(x)
    size = op.Size(x) if shape is None else integers(op, math.prod(shape))
    positions = op.Reshape(op.Range(0, size, 1), shape_of(op, x), allowzero=1)
    moved = op.Reshape(move(positions), [-1])
    scatter = partial(op.ScatterElements, axis=0, reduction="add")
    dx = add_into_zeros(op, lambda zeros, dy: scatter(zeros, moved, dy), op.Reshape(dy, [-1]), op.Unsqueeze(size, [0]))
    return reshape_like(op, dx, x)


# ---------------------------------------------------------------------- Pad


@gradient_rule("Pad")
def pad(op, node, dy):
    """Crop the padding; cropped elements get zeros. The fill value gets the sum of dy over the padding."""
    x, pads, value, axes = (*node.inputs, None, None)[:4]
    mode = attribute(node, "mode", "constant")
    if mode != "constant":
        return add_at_positions(op, lambda positions: op.Pad(positions, pads, None, axes, mode=mode), dy, x)
    dx = _unpadded(op, dy, pads, axes)
    if value is None:
        return dx
    dvalue = op.Sub(op.ReduceSum(dy, keepdims=0), op.ReduceSum(dx, keepdims=0))
    return dx, None, reshape_like(op, dvalue, value)


def _unpadded(op, dy, pads, axes):
    """Undo a Pad by a Slice, and its negative pads by a Pad: not every runtime supports negative pads."""
    fixed = constant(pads)
    if axes is not None and axes.dtype == ir.DataType.INT32:  # Slice requires one type for all its index operands
        axes = op.Cast(axes, to=ir.DataType.INT64)
    if fixed is None:
        added, lost = op.Max(pads, [0]), op.Max(op.Neg(pads), [0])
        before, after = op.Split(added, axis=0, num_outputs=2, _outputs=2)
        lengths = op.Shape(dy) if axes is None else op.Gather(op.Shape(dy), axes)
        return op.Pad(op.Slice(dy, before, op.Sub(lengths, after), axes), lost, None, axes)
    n = fixed.size // 2
    before, after = np.maximum(fixed[:n], 0), np.maximum(fixed[n:], 0)
    if before.any() or after.any():
        ends = np.where(after > 0, -after, np.iinfo(np.int64).max)
        dy = op.Slice(dy, integers(op, before, "starts"), integers(op, ends, "ends"), axes)
    if not (fixed < 0).any():
        return dy
    along = np.arange(n) if axes is None else constant(axes)
    if along is None or rank(dy) is None:
        return op.Pad(dy, integers(op, np.maximum(-fixed, 0), "pads"), None, axes)
    lost = np.maximum(-fixed, 0).tolist()
    return pad_along(op, dy, along.tolist(), lost[:n], lost[n:], rank(dy))


# -------------------------------------------------------------------- Slice


@gradient_rule("Slice")
def slice_(op, node, dy):
    x, *window = node.inputs
    if same_shape(dy, x) and _steps_of(window, (1, -1)):
        return op.Slice(dy, *window)  # the whole axis, or the whole axis reversed
    axes = _axes_of(node)
    cuts = None if axes is None or not _steps_of(window, (1,)) else _cuts(op, x, dy, axes, *window[:2])
    if cuts is None:
        return add_at_positions(op, lambda positions: op.Slice(positions, *window), dy, x)
    before, after = ([cut[side] for cut in cuts] for side in (0, 1))
    return pad_along(op, dy, axes, before, after, known_rank(x, node))


def _steps_of(window, allowed):
    """Whether each step is known to be one of `allowed`."""
    steps = window[3] if len(window) > 3 else None
    fixed = np.ones(1) if steps is None else constant(steps)
    return fixed is not None and bool(np.isin(fixed, allowed).all())


def _axes_of(node):
    """Return the axes as non-negative ints, None if the axes or the starts are unknown."""
    x, starts, _, axes = (*node.inputs, None)[:4]
    starts = constant(starts)
    fixed = (np.arange(starts.size) if starts is not None else None) if axes is None else constant(axes)
    if fixed is None or starts is None or rank(x) is None:
        return None
    return [int(axis) % known_rank(x, node) for axis in fixed]


def _cuts(op, x, dy, axes, starts, ends):
    """Return the lengths cropped before and after the slice, per axis; None if they cannot be determined."""
    starts, ends = constant(starts), constant(ends)
    ends = [None] * len(axes) if ends is None else [int(end) for end in ends]
    cuts = [_cut(op, x, dy, axis, int(start), end) for axis, start, end in zip(axes, starts, ends, strict=True)]
    return None if None in cuts else cuts


def _cut(op, x, dy, axis, start, end):
    """Return the lengths cropped before and after along an axis, as ints or as vectors (1,) computed at run time."""
    n, m = x.shape[axis], dy.shape[axis]
    if isinstance(n, int):
        start = max(start + n, 0) if start < 0 else min(start, n)
        if isinstance(m, int):
            return start, n - m - start
    if start == 0 and end is not None and end >= _FAR:
        return 0, 0
    cut = op.Sub(length_of(op, x, axis), length_of(op, dy, axis))
    if start >= 0:
        before = op.Min(cut, [start]) if start else 0
        return before, op.Sub(cut, before) if start else cut
    if end is not None and end >= _FAR:
        return cut, 0
    if end is not None and end < 0:
        after = op.Min(cut, [-end])
        return op.Sub(cut, after), after
    return None


def pad_along(op, x, axes, before, after, n):
    """Return x, of rank n, padded with zeros along some axes; the amounts are ints or vectors (1,).

    The Pad lists all axes: onnxruntime moves a Transpose past a Pad as if its input ``axes`` were absent.
    """
    pads = [0] * (2 * n)
    for axis, first, last in zip(axes, before, after, strict=True):
        pads[axis % n], pads[n + axis % n] = first, last
    return op.Pad(x, concatenated(op, pads))


def concatenated(op, numbers):
    """Return one vector from ints and from vectors (1,) computed at run time."""
    if all(isinstance(number, int) for number in numbers):
        return integers(op, numbers, "pads")
    return op.Concat(*([number] if isinstance(number, int) else number for number in numbers), axis=0)
