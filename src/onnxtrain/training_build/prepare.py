"""Prepare a model for the gradient builder of onnxruntime-training; refuse operators that it differentiates wrongly.

:data:`WRONG` and :data:`IGNORED` were found by central differences with version 1.19.2. An operator without derivative
in onnxruntime-training needs no row, because its builder refuses it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, attribute, constant, holds_graphs, rank, same_shape

#: Floating-point inputs with zero gradient.
FLAT: Mapping[str, frozenset[int]] = {
    "Bernoulli": frozenset({0}),
    "Dropout": frozenset({1, 2}),
    "RandomNormalLike": frozenset({0}),
    "RandomUniformLike": frozenset({0}),
    "EyeLike": frozenset({0}),
    "OneHot": frozenset({0, 1}),
    "Resize": frozenset({1, 2}),
}

#: Outputs that the gradient needs although they are optional in ONNX.
OPTIONAL_OUTPUTS: Mapping[str, int] = {
    "LayerNormalization": 3,
    "Dropout": 2,
    "SoftmaxCrossEntropyLoss": 2,
    "MaxPool": 2,
}

#: onnxruntime-training names the gradient of x "x_grad", even if this name is already used.
_SUFFIX = "_grad"


def prepare(model: ir.Model, wanted: Iterable[ir.Value]) -> set[ir.Value]:
    """Prepare, in place, the nodes that depend on the differentiated values; return the values that depend on them.

    Outputs that the gradient needs are declared, repeated operands of a node are copied, names reserved for
    gradients are changed. The operators are kept.

    Raises
    ------
    GradientError
        onnxruntime-training would silently return a wrong gradient for a node.
    """
    build = graphs.builder(model)
    op = build.op
    active = set(wanted)
    for node in list(model.graph):
        if not any(x in active for i, x in enumerate(graphs.operands(node)) if not _is_flat(node, i)):
            continue
        refuse(node, active)
        _declare_outputs(op, node)
        _copy_repeated(op, node)
        active.update(y for y in node.outputs if graphs.is_float(y) or y.dtype is None)
    _own_outputs(op, model)
    _free_names(model, build.names)
    passes.NameFixPass()(model)
    passes.TopologicalSortPass()(model)
    return active


def _is_flat(node: ir.Node, index: int) -> bool:
    return node.domain in ("", "ai.onnx") and index in FLAT.get(node.op_type, ())


def _declare_outputs(op: Op, node: ir.Node) -> None:
    """Name the optional outputs of a node that the gradient reads."""
    count = OPTIONAL_OUTPUTS.get(node.op_type, 0) if node.domain in ("", "ai.onnx") else 0
    known = len(node.outputs)
    if count > known:
        node.resize_outputs(count)
    for i in range(min(count, len(node.outputs))):
        if not node.outputs[i].name:
            node.outputs[i].name = graphs.unique_name(f"{node.outputs[0].name}_{i}", op.builder.names)


def _copy_repeated(op: Op, node: ir.Node) -> None:
    """Give each operand a distinct name: the gradients of a repeated name collide."""
    seen: set[ir.Value] = set()
    for i, x in enumerate(node.inputs):
        if x is not None and x in seen:
            node.replace_input_with(i, op.Identity(x))
        elif x is not None:
            seen.add(x)


def _own_outputs(op: Op, model: ir.Model) -> None:
    """Make every output the result of a separate node."""
    seen: set[ir.Value] = set()
    for i, y in enumerate(model.graph.outputs):
        if y.producer() is None or y in seen:
            copy = op.Identity(y)
            copy.type, copy.shape = y.type, y.shape
            model.graph.outputs[i] = copy
        seen.add(model.graph.outputs[i])


def _free_names(model: ir.Model, taken: set[str]) -> None:
    """Rename, in place, values whose names are reserved for gradients."""
    values = [*model.graph.inputs, *model.graph.initializers.values(), *(y for n in model.graph for y in n.outputs)]
    for value in dict.fromkeys(values):
        if value.name and _SUFFIX in value.name:
            value.name = graphs.unique_name(value.name.replace(_SUFFIX, "_g"), taken)


def total(model: ir.Model, loss: ir.Value) -> ir.Value:
    """Return the loss as a scalar, because onnxruntime-training differentiates a scalar."""
    op: Op = graphs.builder(model).op
    return op.Identity(loss) if graphs.rank(loss) == 0 else op.ReduceSum(loss, keepdims=0)


def values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return every value of a graph by its name."""
    values = [*graph.inputs, *graph.initializers.values(), *(y for node in graph for y in node.outputs)]
    return {str(v.name): v for v in values if v.name}


def reaching(model: ir.Model, active: set[ir.Value]) -> set[ir.Value]:
    """Return the active values that a floating-point output depends on."""
    flat = {node: FLAT.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else () for node in model.graph}
    edges = {node: [x for i, x in enumerate(node.inputs) if x in active and i not in flat[node]] for node in flat}
    return graphs.ancestors((y for y in model.graph.outputs if graphs.is_float(y) and y in active), edges)


# ------------------------------------------------------ silently wrong gradients

#: Floating-point inputs whose gradient is assumed to be zero although it is not.
IGNORED: Mapping[str, frozenset[int]] = {
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "SoftmaxCrossEntropyLoss": frozenset({2}),
}


def _operands(node: ir.Node) -> list[ir.Value]:
    return [x for x in node.inputs if x is not None]


def _batch_normalization(node: ir.Node) -> str:
    return "incorrectly, and computes other outputs than the model"


def _clip(node: ir.Node) -> str:
    moving = any(constant(bound) is None for bound in _operands(node)[1:])
    return "incorrectly if bounds are not constant" if moving else ""


def _concat(node: ir.Node) -> str:
    """Return the reason for Concat: its gradient, SplitTraining, is accepted for every type and fails at run time."""
    return "" if node.outputs[0].dtype in (None, ir.DataType.FLOAT) else "only in float32"


def _dropout(node: ir.Node) -> str:
    return "incorrectly outside training"


def _gelu(node: ir.Node) -> str:
    return "with approximate='tanh' as if it were exact" if attribute(node, "approximate", "none") == "tanh" else ""


def _further_outputs(node: ir.Node) -> str:
    used = [y.name for y in node.outputs[1:] if y.uses() or y.is_graph_output()]
    return f"as if its output {used[0]!r} had no effect" if used else ""


def _layer_normalization(node: ir.Node) -> str:
    has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
    return _further_outputs(node) if has_bias else "only with a bias"


def _matmul(node: ir.Node) -> str:
    return "incorrectly if the second operand is or may be a vector" if rank(_operands(node)[1]) in (None, 1) else ""


def _pooling(node: ir.Node) -> str:
    axes, dilated = rank(_operands(node)[0]), max(attribute(node, "dilations", []), default=1) > 1
    padding = attribute(node, "auto_pad", "NOTSET")
    if node.op_type != "MaxPool" and padding.startswith("SAME"):
        return f"incorrectly with auto_pad={padding!r}"
    if node.op_type == "AveragePool" and (dilated or axes in (None, 5)):
        return "incorrectly with dilations or three spatial axes"
    if node.op_type == "MaxPool" and dilated and axes in (None, 5):
        return "incorrectly with dilations and three spatial axes"
    return "incorrectly with storage_order=1" if attribute(node, "storage_order", 0) else ""


def _pow(node: ir.Node) -> str:
    x, exponent = _operands(node)
    if x.dtype != exponent.dtype:
        return "only if the exponent has the type of the base"
    return "" if same_shape(x, node.outputs[0]) else "incorrectly if the base is or may be broadcast"


def _scatter(node: ir.Node) -> str:
    reduction = attribute(node, "reduction", "none")
    return f"incorrectly with reduction={reduction!r}" if reduction != "none" else ""


def _split(node: ir.Node) -> str:
    unused = [y for y in node.outputs if not y.uses() and not y.is_graph_output()]
    return "incorrectly if an output is unused" if unused else ""


def _transpose(node: ir.Node) -> str:
    return "" if "perm" in node.attributes else "only with its attribute perm"


def _where(node: ir.Node) -> str:
    whole = all(constant(x) is not None or same_shape(x, node.outputs[0]) for x in _operands(node)[1:])
    return "" if whole else "incorrectly if operands are or may be broadcast"


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
    "SoftmaxCrossEntropyLoss": _further_outputs,
    "Split": _split,
    "Transpose": _transpose,
    "Where": _where,
}


def refuse(node: ir.Node, active: set[ir.Value]) -> None:
    """Raise a GradientError for a node with a wrong gradient; `active` are the values that need a gradient."""
    if node.domain not in ("", "ai.onnx"):
        return
    if holds_graphs(node):  # with a loss, onnxruntime-training aborts the process
        raise GradientError(
            f"onnxruntime-training does not differentiate {node.op_type} (node {node.name!r}). "
            'Use the builder "builtin".'
        )
    reason = WRONG.get(node.op_type, lambda _: "")(node)
    ignored = [x.name for i, x in enumerate(node.inputs) if x in active and i in IGNORED.get(node.op_type, ())]
    if ignored:
        reason = f"as if its input {ignored[0]!r} had no effect"
    if reason:
        raise GradientError(
            f"onnxruntime-training differentiates {node.op_type} (node {node.name!r}) {reason}. "
            'Use the builder "builtin".'
        )
