r"""Rules of quantization: the straight-through estimator.

:math:`q = \operatorname{clip}(\operatorname{round}(x / s) + z)` is piecewise constant, so its derivative is 0 or does
not exist. As in quantization-aware training, rounding is treated as the identity inside the range of the integers: with
:math:`y = s (q - z)`

.. math::

    \frac{\partial y}{\partial x} = \begin{cases} 1 & q_{\min} \le \operatorname{round}(x / s) + z \le q_{\max} \\
    0 & \text{else} \end{cases}, \qquad
    \frac{\partial y}{\partial s} = q - z - \frac{x}{s} \, \frac{\partial y}{\partial x}.

The gradient of a quantized value is a floating-point tensor. Zero points have no gradient. Difference quotients do not
confirm this estimate: for a staircase they are 0, or large for a small step.

References
----------
Bengio, Léonard, Courville, "Estimating or propagating gradients through stochastic neurons for conditional
computation", 2013. Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", CVPR 2018. Esser et al., "Learned step size quantization", ICLR 2020 (the scale).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import (
    expand_like,
    integers,
    known_rank,
    length_of,
    lengths,
    reshape_like,
    scalar_like,
    sum_to,
    summing_type,
)
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.slice_pad import concatenated, pad_along
from onnxtrain.graph import Op, attribute, attributes, is_quantized


@gradient_rule("QuantizeLinear")
def quantize_linear(op, node, dy):
    x, scale, *zero = node.inputs
    s = _along(op, node, scale)
    ratio = op.Div(x, s)
    slope = op.Where(_is_inside(op, node, ratio, *zero), op.Div(op.Cast(dy, to=x.dtype), s), scalar_like(op, 0.0, x))
    dtype = summing_type(scale.dtype)
    products = op.Mul(op.Cast(slope, to=dtype), op.Cast(ratio, to=dtype))
    return slope, op.Neg(op.Cast(_summed(op, node, products), to=scale.dtype))


def _is_inside(op: Op, node: ir.Node, ratio: ir.Value, zero: ir.Value | None = None) -> ir.Value:
    r"""Return where :math:`\operatorname{round}(x / s) + z` lies between the least and the largest integer."""
    q = node.outputs[0].dtype
    steps = op.Round(ratio) if q.is_integer() else ratio
    if zero is not None:
        shift = op.DequantizeLinear(zero, scalar_like(op, 1.0, ratio))  # onnxruntime 1.19 has no Cast of four bits
        steps = op.Add(steps, _along(op, node, shift))
    low, high = (scalar_like(op, float(bound), ratio) for bound in (q.min, q.max))
    return op.And(op.GreaterOrEqual(steps, low), op.LessOrEqual(steps, high))


@gradient_rule("DequantizeLinear")
def dequantize_linear(op, node, dy):
    """Return the gradients of both factors: the slope for the scale is the result for a scale of 1."""
    x, scale, *zero = node.inputs
    dx = op.Mul(dy, _along(op, node, op.Cast(scale, to=dy.dtype))) if is_quantized(x) else None
    one = op.initializer(ir.tensor(1.0, dtype=ir.DataType.FLOAT, name="one"))
    steps = op.DequantizeLinear(x, expand_like(op, one, scale), *zero, **attributes(node, "axis", "block_size"))
    dtype = summing_type(scale.dtype)
    products = op.Mul(op.Cast(dy, to=dtype), op.Cast(steps, to=dtype))
    return dx, op.Cast(_summed(op, node, products), to=scale.dtype)


def _along(op: Op, node: ir.Node, v: ir.Value) -> ir.Value:
    """Return scales or zero points in a shape that broadcasts with the quantized value: the axis, the blocks."""
    x, n = node.inputs[0], known_rank(v, node)
    if n == 0:
        return v
    size, axes = attribute(node, "block_size", 0), known_rank(x, node)
    axis = attribute(node, "axis", 1) % axes
    if not size:
        return op.Reshape(v, integers(op, [-1 if i == axis else 1 for i in range(axes)]))
    length = x.shape[axis]
    if isinstance(length, int):
        blocks = integers(op, np.arange(length) // size)
    else:
        end = op.Squeeze(length_of(op, x, axis))
        blocks = op.Div(op.Range(integers(op, 0), end, integers(op, 1)), integers(op, size))
    return op.Gather(v, blocks, axis=axis)


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
