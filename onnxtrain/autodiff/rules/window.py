"""How a window slides: what Conv, ConvTranspose and the poolings have in common.

``small`` is the tensor with one entry per position of the window, ``large`` the one the window slides over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import shape_of
from onnxtrain.autodiff.registry import attribute
from onnxtrain.errors import GradientError
from onnxtrain.graph import describe, rank

__all__ = ["Window", "along_axes", "array_like", "crop_like", "explicit", "length", "sliding", "transposed"]


@dataclass(frozen=True)
class Window:
    """The window of a node, one number per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """The length of the window over the large tensor, gaps included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def pads(self) -> list[int]:
        """The padding as ONNX has it: all begins, then all ends."""
        return [*self.begins, *self.ends]

    def with_padding(self, begins: Any, ends: Any) -> Window:
        """Return the same window with other padding."""
        return Window(self.kernel, self.strides, self.dilations, tuple(begins), tuple(ends))


def sliding(node: ir.Node, kernel: Any, large: ir.Value) -> Window:
    """Return the window of Conv or of a pooling that slides over `large`."""
    window = explicit(node, kernel)
    same = attribute(node, "auto_pad", "NOTSET")
    if not same.startswith("SAME"):
        return window
    totals = []
    for axis, (extent, stride) in enumerate(zip(window.extents, window.strides, strict=True), start=2):
        n = 1 if stride == 1 else length(node, large, axis)  # with stride 1 the padding is the same for any
        totals.append(max(0, (-(-n // stride) - 1) * stride + extent - n))
    return window.with_padding(*_halves(totals, larger_end=same == "SAME_UPPER"))


def transposed(node: ir.Node, kernel: Any, small: ir.Value) -> Window:
    """Return the window of ConvTranspose, which spreads `small`."""
    window = explicit(node, kernel)
    same, shape = attribute(node, "auto_pad", "NOTSET"), attribute(node, "output_shape")
    if shape is None and not same.startswith("SAME"):
        return window
    extra = attribute(node, "output_padding") or [0] * len(window.kernel)
    totals = []
    for i, (extent, stride) in enumerate(zip(window.extents, window.strides, strict=True)):
        if shape is None:  # the output is stride times as long, whatever the input
            totals.append(max(0, extra[i] + extent - stride))
        else:
            reach = stride * (length(node, small, i + 2) - 1) + extra[i] + extent
            totals.append(max(0, reach - shape[i - len(window.kernel)]))
    return window.with_padding(*_halves(totals, larger_end=same == "SAME_UPPER"))


def crop_like(op: Any, dx: ir.Value, x: ir.Value, axes: range) -> ir.Value:
    """Return the beginning of `dx`, as long as `x` along `axes`."""
    if dx.shape is None:  # with open dimensions not even the number of axes of a convolution is inferred
        wrong = list(axes)
    else:
        wrong = [axis for axis in axes if not isinstance(x.shape[axis], int) or x.shape[axis] != dx.shape[axis]]
    if not wrong:
        return dx
    ends = op.Gather(shape_of(op, x), wrong, axis=0)
    return op.Slice(dx, [0] * len(wrong), ends, wrong)


def array_like(op: Any, array: Any, x: ir.Value, name: str) -> ir.Value:
    """Return an array as a constant of the type of `x`."""
    return op.initializer(ir.tensor(np.asarray(array).astype(x.dtype.numpy()), dtype=x.dtype, name=name))


def along_axes(op: Any, dy: ir.Value, matrices: Mapping[int, ir.Value]) -> ir.Value:
    """Multiply `dy` along each axis by a matrix (of its length, to)."""
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
    """Return the window of a node whose padding is given."""
    n = len(kernel)
    if not all(isinstance(k, int) for k in kernel):
        raise GradientError(
            f"The derivative of {node.op_type} (node {node.name!r}) needs the lengths of its window, found {kernel}. "
            "Give the weights a static shape."
        )
    pads = attribute(node, "pads") or [0] * (2 * n)
    strides, dilations = (attribute(node, name) or [1] * n for name in ("strides", "dilations"))
    return Window(tuple(kernel), tuple(strides), tuple(dilations), tuple(pads[:n]), tuple(pads[n:]))


def length(node: ir.Node, x: ir.Value, axis: int) -> int:
    dim = x.shape[axis]
    if isinstance(dim, int):
        return dim
    raise GradientError(
        f"The derivative of {node.op_type} (node {node.name!r}) needs the length of axis {axis} of {describe(x)}, on "
        "which its padding depends. Give the input a static size, or the node explicit pads."
    )


def _halves(totals: list[int], *, larger_end: bool) -> tuple[list[int], list[int]]:
    floors, rests = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (floors, rests) if larger_end else (rests, floors)
