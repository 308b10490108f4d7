r"""Rules of normalizations.

Over a group of entries with mean :math:`m` and variance :math:`v`, with
:math:`r = 1 / \sqrt{v + \epsilon}` and :math:`\hat x = r (x - m)`,

.. math:: \bar x = r (\bar{\hat x} - \mathrm{mean}(\bar{\hat x}) - \hat x\, \mathrm{mean}(\bar{\hat x} \hat x))
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import expand_like, reshape_like, scalar_like, size_of, sum_to
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import Gradient, gradient_rule
from onnxtrain.autodiff.rules.window import covering
from onnxtrain.graph import Op, attribute, rank


@gradient_rule("BatchNormalization")
def batch_normalization(op, node, dy, *running):
    x, scale, _, mean, variance = node.inputs
    if attribute(node, "training_mode", 0):
        return differentiate(op, node, _trained_batch_normalization, dy, *running)
    r = op.Reciprocal(op.Sqrt(op.Add(variance, attribute(node, "epsilon", 1e-5))))
    gain = op.Mul(scale, r)
    rows = [0, *range(2, rank(x))]
    dbias = op.ReduceSum(dy, rows, keepdims=0)
    moment = op.Sub(op.ReduceSum(op.Mul(dy, x), rows, keepdims=0), op.Mul(mean, dbias))  # of dy (x - mean)
    dscale = op.Mul(moment, r)
    dvariance = op.Mul(op.Mul(dscale, -0.5), op.Mul(gain, r))
    return op.Mul(dy, _column(op, gain, x)), dscale, dbias, op.Neg(op.Mul(gain, dbias)), dvariance


def _trained_batch_normalization(op, node, x, scale, bias, mean, variance):
    """Return the outputs of BatchNormalization in training mode, which uses the mean and variance of the batch."""
    rows, momentum = [0, *range(2, rank(x))], attribute(node, "momentum", 0.9)
    m = op.ReduceMean(x, rows, keepdims=1)
    centered = op.Sub(x, m)
    v = op.ReduceMean(op.Mul(centered, centered), rows, keepdims=1)
    r = op.Reciprocal(op.Sqrt(op.Add(v, attribute(node, "epsilon", 1e-5))))
    y = op.Add(op.Mul(op.Mul(centered, r), _column(op, scale, x)), _column(op, bias, x))
    running = [
        op.Add(op.Mul(old, momentum), op.Mul(op.Squeeze(new, rows), 1 - momentum))
        for old, new in ((mean, m), (variance, v))
    ]
    return [y, *running]


@gradient_rule("LayerNormalization")
def layer_normalization(op, node, dy, dmean=None, dr=None):
    x, scale, *bias = node.inputs
    axes = _last_axes(node)
    centered = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    r = _inverse_deviation(op, centered, axes, attribute(node, "epsilon", 1e-5))
    normal = op.Mul(centered, r)
    dx, dscale, dbias = None, None, None
    if dy is not None:
        dx = _through_deviation(op, op.Mul(dy, scale), normal, r, axes, centered=True)
        dscale, dbias = sum_to(op, op.Mul(dy, normal), scale), sum_to(op, dy, bias[0]) if any(bias) else None
    dx = _plus(op, dx, dmean and op.Mul(_mean_slope(op, x, axes), op.CastLike(dmean, x)))
    dx = _plus(op, dx, dr and _deviation_slope(op, op.CastLike(dr, x), normal, r, axes))
    return (dx, dscale, dbias)[: len(node.inputs)]


@gradient_rule("RMSNormalization")
def rms_normalization(op, node, dy):
    x, scale = node.inputs
    axes = _last_axes(node)
    r = _inverse_deviation(op, x, axes, attribute(node, "epsilon", 1e-5))
    normal = op.Mul(x, r)
    dx = _through_deviation(op, op.Mul(dy, scale), normal, r, axes, centered=False)
    return dx, sum_to(op, op.Mul(dy, normal), scale)


@gradient_rule("InstanceNormalization")
def instance_normalization(op, node, dy):
    x, scale, _ = node.inputs
    axes = list(range(2, rank(x)))
    centered = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    r = _inverse_deviation(op, centered, axes, attribute(node, "epsilon", 1e-5))
    normal, rows = op.Mul(centered, r), [0, *axes]
    dx = _through_deviation(op, op.Mul(dy, _column(op, scale, x)), normal, r, axes, centered=True)
    return dx, op.ReduceSum(op.Mul(dy, normal), rows, keepdims=0), op.ReduceSum(dy, rows, keepdims=0)


@gradient_rule("GroupNormalization")
def group_normalization(op, node, dy):
    return differentiate(op, node, _normalized_groups, dy)


def _normalized_groups(op, node, x, scale, bias):
    """Return GroupNormalization as a layer normalization of each group and a scale and bias per channel."""
    grouped = op.Reshape(x, [0, attribute(node, "num_groups"), -1])
    centered = op.Sub(grouped, op.ReduceMean(grouped, [2], keepdims=1))
    r = _inverse_deviation(op, centered, [2], attribute(node, "epsilon", 1e-5))
    normal = reshape_like(op, op.Mul(centered, r), x)
    return [op.Add(op.Mul(normal, _column(op, scale, x)), _column(op, bias, x))]


@gradient_rule("MeanVarianceNormalization")
def mean_variance_normalization(op, node, dy):
    (x,) = node.inputs
    axes = attribute(node, "axes") or [0, 2, 3]
    centered = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    r = _inverse_deviation(op, centered, axes, 1e-18)  # the operator adds 1e-9 to the root
    return _through_deviation(op, dy, op.Mul(centered, r), r, axes, centered=True)


@gradient_rule("LRN")
def local_response_normalization(op, node, dy):
    (x,), (y,) = node.inputs, node.outputs
    size, beta = attribute(node, "size"), attribute(node, "beta", 0.75)
    per_entry = attribute(node, "alpha", 1e-4) / size
    flat = op.Reshape(x, [0, 0, -1])
    channels = size_of(op, x, 1)
    near = covering(op, x, (channels, channels), size, 1, 1, (size - 1) // 2)
    sums = reshape_like(op, op.MatMul(near, op.Mul(flat, flat)), x)
    base = op.Add(op.Mul(sums, per_entry), attribute(node, "bias", 1.0))
    pull = op.MatMul(op.Transpose(near, perm=[1, 0]), op.Reshape(op.Div(op.Mul(dy, y), base), [0, 0, -1]))
    far = op.Mul(op.Mul(x, reshape_like(op, pull, x)), 2 * beta * per_entry)
    return op.Sub(op.Mul(dy, op.Pow(base, -beta)), far)


@gradient_rule("LpNormalization")
def lp_normalization(op, node, dy):
    (x,), (y,) = node.inputs, node.outputs
    axis, p = [attribute(node, "axis", -1)], attribute(node, "p", 2)
    norm = op.ReduceL1(x, axis, keepdims=1) if p == 1 else op.ReduceL2(x, axis, keepdims=1)
    along = op.Mul(op.Sign(x) if p == 1 else y, op.ReduceSum(op.Mul(dy, y), axis, keepdims=1))
    return op.Where(op.Equal(norm, 0.0), 0.0, op.Div(op.Sub(dy, along), norm))  # the operator has zero gradient at 0


# ------------------------------------------------------------------ helpers


def _last_axes(node: ir.Node) -> list[int]:
    """Return the axes from the attribute ``axis`` to the last."""
    n = rank(node.inputs[0])
    return list(range(attribute(node, "axis", -1) % n, n))


def _inverse_deviation(op: Op, centered: ir.Value, axes: Sequence[int], epsilon: float) -> ir.Value:
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)
    return op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))


def _through_deviation(
    op: Op, dnormal: ir.Value, normal: ir.Value, r: ir.Value, axes: Sequence[int], *, centered: bool
) -> ir.Value:
    """Return the gradient of x for ``normal = r x``, or ``normal = r (x - mean)`` with `centered`."""
    along = op.Mul(normal, op.ReduceMean(op.Mul(dnormal, normal), axes, keepdims=1))
    rest = op.Sub(dnormal, along)
    return op.Mul(r, op.Sub(rest, op.ReduceMean(dnormal, axes, keepdims=1)) if centered else rest)


def _mean_slope(op: Op, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Return 1/n in the shape of `x`, with n the number of entries along `axes`."""
    ones = expand_like(op, scalar_like(op, 1.0, x), x)
    return op.Div(ones, op.ReduceSum(ones, axes, keepdims=1))


def _deviation_slope(op: Op, dr: ir.Value, normal: ir.Value, r: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Return the gradient of x through r: dr/dx = -r**2 normal / n."""
    return op.Neg(op.Mul(op.Mul(_mean_slope(op, normal, axes), normal), op.Mul(dr, op.Mul(r, r))))


def _plus(op: Op, a: Gradient, b: Gradient) -> Gradient:
    if a is None or b is None:
        return a if b is None else b
    return op.Add(a, b)


def _column(op: Op, per_channel: ir.Value, x: ir.Value) -> ir.Value:
    """Return a per-channel vector (C,), reshaped to the second axis of `x` (N, C, ...)."""
    return per_channel if rank(x) == 2 else op.Unsqueeze(per_channel, list(range(1, rank(x) - 1)))
