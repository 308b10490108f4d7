"""Operators for which onnxruntime-training 1.19.2 silently returns wrong gradients; they are refused by name.

Found by central differences. An operator that has no derivative there needs no row: the foreign builder names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from onnxtrain.errors import GradientError
from onnxtrain.graph import constant, rank, same_shape

#: Floating-point inputs whose gradient is assumed to be zero although it is not.
IGNORED: Mapping[str, frozenset[int]] = {
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "SoftmaxCrossEntropyLoss": frozenset({2}),
}


def _operands(node: ir.Node) -> list[ir.Value]:
    return [x for x in node.inputs if x is not None]


def _attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def _batch_normalization(node: ir.Node) -> str:
    return "wrongly, and computes other outputs than the model"


def _clip(node: ir.Node) -> str:
    moving = any(constant(bound) is None for bound in _operands(node)[1:])
    return "wrongly with bounds that are no constants" if moving else ""


def _concat(node: ir.Node) -> str:
    """Return the reason for Concat: its gradient, SplitTraining, is accepted for every type and fails at run time."""
    return "" if node.outputs[0].dtype in (None, ir.DataType.FLOAT) else "in float32 only"


def _dropout(node: ir.Node) -> str:
    return "wrongly outside training"


def _gelu(node: ir.Node) -> str:
    return "by tanh as if it were exact" if _attribute(node, "approximate", "none") == "tanh" else ""


def _layer_normalization(node: ir.Node) -> str:
    return "" if len(node.inputs) > 2 and node.inputs[2] is not None else "with a bias only"


def _matmul(node: ir.Node) -> str:
    return "wrongly by a vector, or by what may be one" if rank(_operands(node)[1]) in (None, 1) else ""


def _pooling(node: ir.Node) -> str:
    axes, dilated = rank(_operands(node)[0]), max(_attribute(node, "dilations", []), default=1) > 1
    padding = _attribute(node, "auto_pad", "NOTSET")
    if node.op_type != "MaxPool" and padding.startswith("SAME"):
        return f"wrongly with auto_pad={padding!r}"
    if node.op_type == "AveragePool" and (dilated or axes in (None, 5)):
        return "wrongly with dilations or three spatial axes"
    if node.op_type == "MaxPool" and dilated and axes in (None, 5):
        return "wrongly with dilations and three spatial axes"
    return "wrongly with storage_order=1" if _attribute(node, "storage_order", 0) else ""


def _pow(node: ir.Node) -> str:
    x, exponent = _operands(node)
    if x.dtype != exponent.dtype:
        return "only with an exponent of the type of its base"
    return "" if same_shape(x, node.outputs[0]) else "wrongly with a base that is broadcast, or may be"


def _scatter(node: ir.Node) -> str:
    reduction = _attribute(node, "reduction", "none")
    return f"wrongly with reduction={reduction!r}" if reduction != "none" else ""


def _split(node: ir.Node) -> str:
    unused = [y for y in node.outputs if not y.uses() and not y.is_graph_output()]
    return "wrongly with an output that nothing uses" if unused else ""


def _transpose(node: ir.Node) -> str:
    return "" if "perm" in node.attributes else "only with its attribute perm"


def _where(node: ir.Node) -> str:
    whole = all(constant(x) is not None or same_shape(x, node.outputs[0]) for x in _operands(node)[1:])
    return "" if whole else "wrongly with operands that are broadcast, or may be"


#: operator -> function of a node that returns the reason; empty if the gradient of this form is correct
WRONG: Mapping[str, Callable[[ir.Node], str]] = {
    "AveragePool": _pooling,
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _pooling,
    "Dropout": _dropout,
    "Gelu": _gelu,
    "LayerNormalization": _layer_normalization,
    "MatMul": _matmul,
    "MaxPool": _pooling,
    "Pow": _pow,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Split": _split,
    "Transpose": _transpose,
    "Where": _where,
}


def refuse(node: ir.Node, active: set[ir.Value]) -> None:
    """Raise a GradientError for a node with a wrong gradient; `active` are the values that need a gradient."""
    if node.domain not in ("", "ai.onnx"):
        return
    reason = WRONG.get(node.op_type, lambda _: "")(node)
    ignored = [x.name for i, x in enumerate(node.inputs) if x in active and i in IGNORED.get(node.op_type, ())]
    if ignored:
        reason = f"as if its input {ignored[0]!r} had no influence"
    if reason:
        raise GradientError(
            f'onnxruntime-training derives {node.op_type} (node {node.name!r}) {reason}. Use builder="builtin".'
        )
