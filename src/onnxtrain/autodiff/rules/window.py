"""The geometry of sliding windows, shared by Conv, ConvTranspose and the poolings.

``small`` is the tensor with one entry per position of the window; ``large`` is the tensor that the window slides over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import shape_of
from onnxtrain.graph import Op, attribute, rank

__all__ = [
    "Window",
    "along_axes",
    "array_like",
    "covering",
    "crop_like",
    "explicit",
    "sliding",
    "sliding_pads",
    "transposed",
    "transposed_pads",
]


@dataclass(frozen=True)
class Window:
    """The window of a node, one value per spatial axis."""

    kernel: tuple[Any, ...]  # None if the filters have no static shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def extents(self) -> tuple[Any, ...]:
        """The length of the window over the large tensor, including dilation gaps; None if unknown."""
        lengths = zip(self.kernel, self.dilations, strict=True)
        return tuple(None if k is None else (k - 1) * d + 1 for k, d in lengths)

    @property
    def pads(self) -> list[int]:
        """The padding in ONNX order: all begins, then all ends."""
        return [*self.begins, *self.ends]

    def with_padding(self, begins: Any, ends: Any) -> Window:
        """Return a copy of the window with other padding."""
        return Window(self.kernel, self.strides, self.dilations, tuple(begins), tuple(ends))


def sliding(node: ir.Node, kernel: Any, large: ir.Value) -> Window | None:
    """Return the window of Conv or of a pooling that slides over `large`; None if the padding is unknown."""
    window = explicit(node, kernel)
    same = attribute(node, "auto_pad", "NOTSET")
    if not same.startswith("SAME"):
        return window
    totals = []
    for n, extent, stride in zip(list(large.shape)[2:], window.extents, window.strides, strict=True):
        n = 1 if stride == 1 else n  # with stride 1 the padding does not depend on the length
        if extent is None or not isinstance(n, int):
            return None
        totals.append(max(0, (-(-n // stride) - 1) * stride + extent - n))
    return window.with_padding(*_halves(totals, larger_end=same == "SAME_UPPER"))


def transposed(node: ir.Node, kernel: Any, small: ir.Value) -> Window | None:
    """Return the window of ConvTranspose, which spreads `small`; None if the padding is unknown."""
    window = explicit(node, kernel)
    same, shape = attribute(node, "auto_pad", "NOTSET"), attribute(node, "output_shape")
    if shape is None and not same.startswith("SAME"):
        return window
    extra = attribute(node, "output_padding") or [0] * len(window.kernel)
    totals = []
    for i, (extent, stride) in enumerate(zip(window.extents, window.strides, strict=True)):
        n = 1 if shape is None else small.shape[i + 2]  # without output_shape the output is stride times as long
        if extent is None or not isinstance(n, int):
            return None
        total = stride * n if shape is None else shape[i - len(window.kernel)]
        totals.append(max(0, stride * (n - 1) + extra[i] + extent - total))
    return window.with_padding(*_halves(totals, larger_end=same == "SAME_UPPER"))


def sliding_pads(op: Op, node: ir.Node, kernel: ir.Value, large: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the padding of :func:`sliding`, computed at run time: all begins and all ends."""
    window = explicit(node, [None] * (rank(large) - 2))
    lengths, strides = op.Shape(large, start=2), list(window.strides)
    steps = op.Div(op.Add(lengths, [stride - 1 for stride in strides]), strides)
    reach = op.Add(op.Mul(op.Sub(steps, [1]), strides), _extents(op, window, kernel))
    return _run_time_halves(op, node, op.Max(op.Sub(reach, lengths), [0]))


def transposed_pads(op: Op, node: ir.Node, kernel: ir.Value, small: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the lengths that ConvTranspose crops, computed at run time; a negative one at the end appends zeros."""
    window = explicit(node, [None] * (rank(small) - 2))
    lengths, strides, shape = op.Shape(small, start=2), list(window.strides), attribute(node, "output_shape")
    extra = attribute(node, "output_padding") or [0] * len(strides)
    reach = op.Add(op.Add(op.Mul(op.Sub(lengths, [1]), strides), extra), _extents(op, window, kernel))
    if shape is None:
        return _run_time_halves(op, node, op.Max(op.Sub(reach, op.Mul(lengths, strides)), [0]))
    total = op.Sub(reach, list(shape)[-len(strides) :])
    begins, _ = _run_time_halves(op, node, op.Max(total, [0]))
    return begins, op.Sub(total, begins)


def _extents(op: Op, window: Window, kernel: ir.Value) -> ir.Value:
    return op.Add(op.Mul(op.Sub(kernel, [1]), list(window.dilations)), [1])


def _run_time_halves(op: Op, node: ir.Node, total: ir.Value) -> tuple[ir.Value, ir.Value]:
    less = op.Div(total, [2])
    more = op.Sub(total, less)
    return (less, more) if attribute(node, "auto_pad", "NOTSET") == "SAME_UPPER" else (more, less)


def covering(op: Op, x: ir.Value, sizes: tuple[Any, Any], k: int, stride: int, dilation: int, begin: Any) -> ir.Value:
    """Return the 0/1 matrix, in the type of `x`, of the entries that each position of a window covers.

    Parameters
    ----------
    op : onnxscript builder
    x : onnx_ir.Value
    sizes : (positions, entries)
        The shape of the matrix: ints, or int64 scalars computed at run time.
    k, stride, dilation : int
        Size, stride and dilation of the window.
    begin : int or onnx_ir.Value
        The padding before the first entry.
    """
    positions, entries = sizes
    if all(isinstance(n, int) for n in (positions, entries, begin)):
        distance = np.arange(entries) - np.arange(positions)[:, None] * stride + begin
        covered = (distance >= 0) & (distance < k * dilation) & (distance % dilation == 0)
        return array_like(op, covered, x, "covered")
    starts = op.Sub(op.Mul(op.Range(0, positions, 1), stride), begin)
    distance = op.Sub(op.Range(0, entries, 1), op.Unsqueeze(starts, [1]))
    covered = op.And(op.GreaterOrEqual(distance, 0), op.Less(distance, k * dilation))
    if dilation > 1:
        covered = op.And(covered, op.Equal(op.Mod(distance, dilation), 0))
    return op.CastLike(covered, x)


def crop_like(op: Op, dx: ir.Value, x: ir.Value, axes: range) -> ir.Value:
    """Return `dx` cropped at the end to the length of `x` along `axes`."""
    if dx.shape is None:  # with unknown dimensions not even the rank of a convolution is inferred
        wrong = list(axes)
    else:
        wrong = [axis for axis in axes if not isinstance(x.shape[axis], int) or x.shape[axis] != dx.shape[axis]]
    if not wrong:
        return dx
    ends = op.Gather(shape_of(op, x), wrong, axis=0)
    return op.Slice(dx, [0] * len(wrong), ends, wrong)


def array_like(op: Op, array: Any, x: ir.Value, name: str) -> ir.Value:
    """Return an array as a constant of the type of `x`."""
    return op.initializer(ir.tensor(np.asarray(array).astype(x.dtype.numpy()), dtype=x.dtype, name=name))


def along_axes(op: Op, dy: ir.Value, matrices: Mapping[int, ir.Value]) -> ir.Value:
    """Multiply `dy` along each axis by a matrix (length of the axis, new length)."""
    last = rank(dy) - 1
    for axis, matrix in matrices.items():
        if axis == last:
            dy = op.MatMul(dy, matrix)
        elif axis == last - 1:
            dy = op.MatMul(op.Transpose(matrix, perm=[1, 0]), dy)
        else:
            turn = [a for a in range(last + 1) if a != axis] + [axis]
            back = sorted(range(last + 1), key=turn.__getitem__)
            dy = op.Transpose(op.MatMul(op.Transpose(dy, perm=turn), matrix), perm=back)
    return dy


def explicit(node: ir.Node, kernel: Any) -> Window:
    """Return the window of a node with explicit padding."""
    n = len(kernel)
    pads = attribute(node, "pads") or [0] * (2 * n)
    strides, dilations = (attribute(node, name) or [1] * n for name in ("strides", "dilations"))
    lengths = tuple(k if isinstance(k, int) else None for k in kernel)
    return Window(lengths, tuple(strides), tuple(dilations), tuple(pads[:n]), tuple(pads[n:]))


def _halves(totals: list[int], *, larger_end: bool) -> tuple[list[int], list[int]]:
    floors, rests = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (floors, rests) if larger_end else (rests, floors)
