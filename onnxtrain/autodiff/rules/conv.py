"""Rules of Conv and ConvTranspose: each is the transpose of the other.

``x`` is (N, C, ...), ``w`` the filters, ``b`` the bias (M,). With stride s, dilation d and padding p

    y[n, m, o] = sum over c, k of x[n, c, o s + k d - p] w[m, c, k]

so ``dw`` is a convolution of ``x`` with ``dy`` in which stride and dilation are exchanged.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import length_of, lengths
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.compose import differentiate
from onnxtrain.autodiff.rules.slice_pad import concatenated
from onnxtrain.autodiff.rules.window import Window, crop_like, sliding, sliding_pads, transposed, transposed_pads
from onnxtrain.graph import Op, rank


@gradient("Conv")
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
    same = _same(node, "strides", "dilations", "group")
    return [op.Conv(op.Pad(x, pads), w, *b, **same)]


@gradient("ConvTranspose")
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
    y = op.ConvTranspose(x, w, *b, **_same(node, "strides", "dilations", "group", "output_padding"))
    return [op.Pad(y, op.Neg(cuts))]


def _same(node: ir.Node, *names: str) -> dict[str, Any]:
    return {name: node.attributes[name].value for name in names if name in node.attributes}


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
    rows = op.Transpose(large, perm=swap) if groups == 1 else _rows_by_group(op, large, w, groups)
    swapped = Window(window.kernel, window.dilations, window.strides, window.begins, window.ends)
    dw = op.Conv(rows, op.Transpose(small, perm=swap), group=groups, **_attributes(swapped))
    return op.Transpose(crop_like(op, dw, w, range(2, rank(w))), perm=swap)


def _rows_by_group(op: Op, x: ir.Value, w: ir.Value, groups: int) -> ir.Value:
    """Return (N, G C, ...) as (C, G N, ...)."""
    n, c, space = x.shape[0], *lengths(op, w, [1]), lengths(op, x, range(2, rank(x)))
    rows = groups * n if isinstance(n, int) else op.Mul(length_of(op, x, 0), [groups])
    split = concatenated(op, [*lengths(op, x, [0]), groups, c, *space])
    turned = op.Transpose(op.Reshape(x, split, allowzero=1), perm=[2, 1, 0, *range(3, rank(x) + 1)])
    return op.Reshape(turned, concatenated(op, [c, rows, *space]), allowzero=1)


def _bias(op: Op, dy: ir.Value) -> ir.Value:
    return op.ReduceSum(dy, [0, *range(2, rank(dy))], keepdims=0)
