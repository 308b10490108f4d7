"""Operators of the training build that it cannot run on a CPU: in float64, or at all."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError


def expand_fused_matmul(op: Any, model: ir.Model) -> None:
    """Replace, in place, FusedMatMul of float64 by Transpose, MatMul and Mul."""
    for node in list(model.graph):
        if node.op_type != "FusedMatMul" or ir.DataType.DOUBLE not in {v.dtype for v in (*node.inputs, *node.outputs) if v}:
            continue
        given = {name: a.value for name, a in node.attributes.items()}
        if given.get("transBatchA") or given.get("transBatchB"):
            raise GradientError('FusedMatMul moves the batch axis of float64 tensors. Use builder="builtin".')
        a, b = (
            _transposed(op, x) if given.get(name) else x
            for x, name in zip(node.inputs, ("transA", "transB"), strict=True)
        )
        product = op.MatMul(a, b)
        alpha = given.get("alpha", 1.0)
        if alpha != 1.0:
            product = op.Mul(product, alpha)
        (old,) = node.outputs
        product.type, product.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, product, replace_graph_outputs=True)
        name, old.name = old.name, graphs.unique_name(f"{old.name}_fused", op.builder.names)
        product.name = name
        model.graph.remove(node)


def _transposed(op: Any, x: ir.Value) -> ir.Value:
    rank = graphs.rank(x)
    if rank is None:
        raise GradientError(
            f'The rank of {x.name!r} is not known: its float64 product cannot be derived. Use builder="builtin".'
        )
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


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
            f"onnxruntime-training derived a graph that it cannot run: {str(e).splitlines()[0]}. "
            'Use builder="builtin".'
        ) from e
