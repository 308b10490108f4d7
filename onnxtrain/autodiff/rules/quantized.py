"""Rules of quantization: only the scales are differentiable.

Integers, types of eight bits or fewer, and zero points of these types have zero gradient.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import expand_like, known_rank, length_of, lengths, reshape_like, sum_to, summing_type
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.slice_pad import concatenated, pad_along
from onnxtrain.graph import Op, attribute, attributes


@gradient_rule("DequantizeLinear")
def dequantize_linear(op, node, dy):
    """Return the gradient of the scale, in which the operator is linear: its slope is the result for a scale of 1."""
    x, scale, *zero = node.inputs
    one = op.initializer(ir.tensor(1.0, dtype=ir.DataType.FLOAT, name="one"))
    steps = op.DequantizeLinear(x, expand_like(op, one, scale), *zero, **attributes(node, "axis", "block_size"))
    dtype = summing_type(scale.dtype)
    products = op.Mul(op.Cast(dy, to=dtype), op.Cast(steps, to=dtype))
    return None, op.Cast(_summed(op, node, products), to=scale.dtype)


def _summed(op: Op, node: ir.Node, products: ir.Value) -> ir.Value:
    """Return the sum over the elements that share a scale: per tensor, per axis, or per block."""
    x, scale, *_ = node.inputs
    if known_rank(scale, node) == 0:
        return op.ReduceSum(products, keepdims=0)
    n, size = known_rank(x, node), attribute(node, "block_size", 0)
    axis = attribute(node, "axis", 1) % n
    if size:
        return _sum_blocks(op, products, x, scale, axis, size)
    others = [other for other in range(n) if other != axis]
    return sum_to(op, op.ReduceSum(products, others, keepdims=0) if others else products, scale)


def _sum_blocks(op: Op, products: ir.Value, x: ir.Value, scale: ir.Value, axis: int, size: int) -> ir.Value:
    """Return the sum of each block along an axis; the last one may be shorter."""
    dims = lengths(op, scale, range(len(scale.shape)))
    blocks, n = dims[axis], x.shape[axis]
    if isinstance(blocks, int) and isinstance(n, int):
        missing = blocks * size - n
    else:
        missing = op.Sub(op.Mul(length_of(op, scale, axis), [size]), length_of(op, x, axis))
    padded = pad_along(op, products, [axis], [0], [missing], len(dims)) if missing != 0 else products
    split = concatenated(op, [*dims[: axis + 1], size, *dims[axis + 1 :]])
    return reshape_like(op, op.ReduceSum(op.Reshape(padded, split, allowzero=1), [axis + 1], keepdims=0), scale)


@gradient_rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(op, node, *dy):
    return differentiate(op, node, _scale_of_a_range, *dy)


def _scale_of_a_range(op, node, x):
    """Return the scale only: the other outputs of the operator are integers."""
    high, low = op.Max(op.ReduceMax(x, keepdims=0), 0.0), op.Min(op.ReduceMin(x, keepdims=0), 0.0)
    return [None, op.Cast(op.Div(op.Sub(high, low), 255.0), to=ir.DataType.FLOAT)]
