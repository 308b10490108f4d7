"""Prepare a model so that onnxruntime-training can differentiate it, and does so correctly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph as graphs
from onnxtrain.graph import Op
from onnxtrain.training_build._wrong import refuse

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

#: onnxruntime-training names the gradient of x "x_grad", even if that name is taken.
_SUFFIX = "_grad"


def prepare(model: ir.Model, wanted: Iterable[ir.Value]) -> set[ir.Value]:
    """Prepare, in place, the nodes that depend on the wanted values; return the dependent values.

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
        if not any(x in active for i, x in enumerate(node.inputs) if not _is_flat(node, i)):
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
    """Name the optional outputs of a node: the gradient reads them."""
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
    """Let every output be produced by its own node."""
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
    """Return the loss as a scalar: the foreign builder starts from one."""
    op: Op = graphs.builder(model).op
    return op.Identity(loss) if graphs.rank(loss) == 0 else op.ReduceSum(loss, keepdims=0)


def values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return every value of a graph by its name."""
    values = [*graph.inputs, *graph.initializers.values(), *(y for node in graph for y in node.outputs)]
    return {str(v.name): v for v in values if v.name}


def reaching(model: ir.Model, active: set[ir.Value]) -> set[ir.Value]:
    """Return the active values that a floating-point output depends on."""

    def active_operands(node: ir.Node) -> list[ir.Value]:
        flat = FLAT.get(node.op_type, frozenset()) if node.domain in ("", "ai.onnx") else frozenset()
        return [x for i, x in enumerate(node.inputs) if x in active and i not in flat]

    return graphs.ancestors((y for y in model.graph.outputs if graphs.is_float(y) and y in active), active_operands)
