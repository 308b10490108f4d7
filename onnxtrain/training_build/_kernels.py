"""Operators of the training build that it cannot run on a CPU: in float64, or at all."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError


def replace_float_only(op: Any, model: ir.Model) -> None:
    """Replace, in place, what runs in float32 only and stands in another type: FusedMatMul, SplitTraining."""
    for node in list(model.graph):
        types = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None}
        if node.op_type == "SplitTraining" and ir.DataType.FLOAT not in types:
            node.op_type, node.domain = "Split", ""
        elif node.op_type == "FusedMatMul" and ir.DataType.DOUBLE in types:
            _expand_fused_matmul(op, model, node)


def _expand_fused_matmul(op: Any, model: ir.Model, node: ir.Node) -> None:
    given = {name: a.value for name, a in node.attributes.items()}
    if given.get("transBatchA") or given.get("transBatchB"):
        raise GradientError('FusedMatMul moves the batch axis of float64 tensors. Use builder="builtin".')
    # onnxruntime would fuse a Transpose and a MatMul again
    product = op.Einsum(*node.inputs, equation=_equation(node, given.get("transA"), given.get("transB")))
    alpha = given.get("alpha", 1.0)
    if alpha != 1.0:
        product = op.Mul(product, alpha)
    (old,) = node.outputs
    product.type, product.shape = old.type, old.shape
    ir.convenience.replace_all_uses_with(old, product, replace_graph_outputs=True)
    name, old.name = old.name, graphs.unique_name(f"{old.name}_fused", op.builder.names)
    product.name = name
    model.graph.remove(node)


def _equation(node: ir.Node, trans_a: Any, trans_b: Any) -> str:
    ranks = [graphs.rank(x) for x in node.inputs if x is not None]
    if None in ranks:
        raise GradientError(
            f"The rank of {node.inputs[ranks.index(None)].name!r} is not known: "  # type: ignore[union-attr]
            'its float64 product cannot be derived. Use builder="builtin".'
        )
    batch = "abcdefgh"[: max(ranks) - 2]  # type: ignore[type-var,operator]
    a, b = "ji" if trans_a else "ij", "kj" if trans_b else "jk"
    batch_a, batch_b = (batch[len(batch) + 2 - rank :] for rank in ranks)  # type: ignore[operator]
    return f"{batch_a}{a},{batch_b}{b}->{batch}ik"


def check_kernels(onx: onnx.ModelProto) -> None:
    """Raise where a graph holds an operator that this onnxruntime has no kernel for.

    The training build for CUDA is not asked: it may have kernels that need a GPU.
    """
    import onnxruntime  # after require(): it is there

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(onx.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise GradientError(
            f'onnxruntime-training derived a graph that it cannot run: {str(e).splitlines()[0]}. Use builder="builtin".'
        ) from e
