"""Rule of Col2Im: the adjoint of summing overlapping blocks is to gather them."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, known_rank, reshape_like
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.graph import Op, constant


@gradient("Col2Im")
def col2im(op, node, dy):
    """Gather the entries of each block, axis by axis: (N, C, k1, n1, k2, n2, ...)."""
    x, image, block = node.inputs
    n = known_rank(node.outputs[0], node) - 2
    pads = attribute(node, "pads") or [0] * (2 * n)
    strides, dilations = (attribute(node, name) or [1] * n for name in ("strides", "dilations"))
    dx = op.Pad(dy, [0, 0, *pads[:n], 0, 0, *pads[n:]]) if any(pads) else dy
    for i in range(n):
        length, k = op.Add(_entry(op, image, i), pads[i] + pads[n + i]), _entry(op, block, i)
        dx = op.Gather(dx, _places(op, length, k, strides[i], dilations[i]), axis=2 + 2 * i)
    turn = [0, 1, *range(2, 2 * n + 2, 2), *range(3, 2 * n + 2, 2)]
    return reshape_like(op, op.Transpose(dx, perm=turn), x)


def _places(op: Op, length: ir.Value, k: ir.Value, stride: int, dilation: int) -> ir.Value:
    """Return the index of each entry of the block (k,) at each position of the block: (k, positions)."""
    reach = op.Mul(op.Sub(k, 1), dilation)
    starts = op.Range(0, op.Sub(length, reach), stride)
    return op.Add(op.Unsqueeze(op.Mul(op.Range(0, k, 1), dilation), [1]), starts)


def _entry(op: Op, numbers: ir.Value, i: int) -> ir.Value:
    fixed = constant(numbers)
    return op.Gather(numbers, i) if fixed is None else integers(op, fixed[i], "length")
