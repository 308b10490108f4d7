"""Rules of com.microsoft operators that onnxruntime runs and exporters emit; the gradients use ai.onnx only.

Most operators are recomputed from standard operators, which are differentiated.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import Op, attribute, attributes, rank

_MICROSOFT = "com.microsoft"


@gradient_rule("FusedMatMul", domain=_MICROSOFT)
def fused_matmul(op, node, dy):
    return differentiate(op, node, _fused_matmul, dy)


def _fused_matmul(op, node, a, b):
    """Return alpha op(a) op(b); an operand with a transposed batch has its rows first."""
    a, b = (
        _transposed(op, x, attribute(node, f"transBatch{side}", 0), attribute(node, f"trans{side}", 0))
        for x, side in ((a, "A"), (b, "B"))
    )
    return [op.Mul(op.MatMul(a, b), attribute(node, "alpha", 1.0))]


def _transposed(op: Op, x: ir.Value, batch: int, matrix: int) -> ir.Value:
    n = rank(x)
    axes = [*range(1, n - 1), 0, n - 1] if batch else list(range(n))
    if matrix:
        axes[-2:] = axes[:-3:-1]
    return op.Transpose(x, perm=axes)


@gradient_rule("FusedGemm", domain=_MICROSOFT)
def fused_gemm(op, node, dy):
    return differentiate(op, node, _fused_gemm, dy)


def _fused_gemm(op, node, a, b, c=None):
    y = op.Gemm(a, b, c, **attributes(node, "alpha", "beta", "transA", "transB"))
    given = attributes(node, "activation_alpha", "activation_beta")
    activation = getattr(op, attribute(node, "activation", "Identity"))
    return [activation(y, **{name.removeprefix("activation_"): value for name, value in given.items()})]


@gradient_rule("Gelu", "BiasGelu", domain=_MICROSOFT)
def gelu(op, node, dy):
    return differentiate(op, node, lambda op, _, x, b=None: [_normal_gate(op, _biased(op, x, b))], dy)


@gradient_rule("FastGelu", domain=_MICROSOFT)
def fast_gelu(op, node, dy):
    return differentiate(op, node, lambda op, _, x, b=None: [_tanh_gate(op, _biased(op, x, b))], dy)


@gradient_rule("QuickGelu", domain=_MICROSOFT)
def quick_gelu(op, node, dy):
    alpha = attribute(node, "alpha", 1.702)
    return differentiate(op, node, lambda op, _, x: [op.Mul(x, op.Sigmoid(op.Mul(x, alpha)))], dy)


def _biased(op: Op, x: ir.Value, b: ir.Value | None) -> ir.Value:
    return x if b is None else op.Add(x, b)


def _normal_gate(op: Op, x: ir.Value) -> ir.Value:
    return op.Mul(op.Mul(x, 0.5), op.Add(op.Erf(op.Mul(x, math.sqrt(0.5))), 1.0))


def _tanh_gate(op: Op, x: ir.Value) -> ir.Value:
    cubic = op.Mul(x, op.Add(op.Mul(op.Mul(x, x), 0.044715), 1.0))
    return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(op.Mul(cubic, math.sqrt(2 / math.pi))), 1.0))


@gradient_rule("SkipLayerNormalization", domain=_MICROSOFT)
def skip_layer_normalization(op, node, *dy):
    return differentiate(op, node, _skip_layer_normalization, *dy)


def _skip_layer_normalization(op, node, x, skip, gamma, beta=None, bias=None):
    total = _biased(op, op.Add(x, skip), bias)
    operands = [total, gamma] if beta is None else [total, gamma, beta]
    y, mean, r = op.LayerNormalization(*operands, axis=-1, epsilon=attribute(node, "epsilon", 1e-12), _outputs=3)
    return [y, mean, r, total]


@gradient_rule("SkipSimplifiedLayerNormalization", domain=_MICROSOFT)
def skip_simplified_layer_normalization(op, node, *dy):
    return differentiate(op, node, _skip_root_mean_square, *dy)


def _skip_root_mean_square(op, node, x, skip, gamma, bias=None):
    total = _biased(op, op.Add(x, skip), bias)
    y, r = _root_mean_square(op, node, total, gamma)
    return [y, None, r, total]


@gradient_rule("SimplifiedLayerNormalization", domain=_MICROSOFT)
def simplified_layer_normalization(op, node, *dy):
    return differentiate(op, node, _root_mean_square, *dy)


def _root_mean_square(op, node, x, gamma):
    axes = list(range(attribute(node, "axis", -1) % rank(x), rank(x)))
    mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
    r = op.Reciprocal(op.Sqrt(op.Add(mean, attribute(node, "epsilon", 1e-5))))
    return [op.Mul(op.Mul(x, r), gamma), r]


@gradient_rule("CDist", domain=_MICROSOFT)
def cdist(op, node, dy):
    r"""For :math:`\sum_{ij} g_{ij} |a_i - b_j|^2`: :math:`\bar a_i = 2 (a_i \sum_j g_{ij} - \sum_j g_{ij} b_j)`."""
    a, b = node.inputs
    (y,) = node.outputs
    if attribute(node, "metric", "sqeuclidean") == "sqeuclidean":
        g = op.Mul(dy, 2.0)
    else:  # the derivative of the distance at 0 is taken as 0
        g = op.Where(op.Greater(y, 0.0), op.Div(dy, y), 0.0)
    da = op.Sub(op.Mul(a, op.ReduceSum(g, [1], keepdims=1)), op.MatMul(g, b))
    columns = op.Transpose(g, perm=[1, 0])
    return da, op.Sub(op.Mul(b, op.ReduceSum(columns, [1], keepdims=1)), op.MatMul(columns, a))
