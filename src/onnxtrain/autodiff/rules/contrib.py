"""The rule of an operator of com.microsoft that converters emit; fused operators are replaced when a model is read."""

from __future__ import annotations

from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import attribute


@gradient_rule("CDist", domain="com.microsoft")
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
