"""Make a model one that onnxruntime-training can derive, and derives rightly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError
from onnxtrain.training_build import _activations  # noqa: F401  (imported for the equivalents it registers)
from onnxtrain.training_build._equivalents import EQUIVALENTS, Replacement, attribute

#: Real inputs through which nothing flows to a real output.
FLAT: Mapping[str, frozenset[int]] = {
    "Bernoulli": frozenset({0}),
    "Dropout": frozenset({1, 2}),
    "RandomNormalLike": frozenset({0}),
    "RandomUniformLike": frozenset({0}),
    "EyeLike": frozenset({0}),
    "OneHot": frozenset({0, 1}),
    "Resize": frozenset({1, 2}),
}

#: Real inputs whose derivative onnxruntime-training takes for zero, although it is not.
IGNORED: Mapping[str, frozenset[int]] = {
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "Pow": frozenset({1}),
    "SoftmaxCrossEntropyLoss": frozenset({2}),
}

#: Outputs that the gradient needs although ONNX lets them be left out.
OPTIONAL_OUTPUTS: Mapping[str, int] = {
    "LayerNormalization": 3,
    "Dropout": 2,
    "SoftmaxCrossEntropyLoss": 2,
    "MaxPool": 2,
}

#: onnxruntime-training calls the gradient of x "x_grad", whatever else has that name.
_SUFFIX = "_grad"


def prepare(model: ir.Model, wanted: Iterable[ir.Value]) -> set[ir.Value]:
    """Rewrite, in place, what depends on the wanted values; return what depends on them.

    Nodes that have an equivalent give way to it, outputs that the gradient needs
    are declared, operands that stand twice in a node are copied.
    """
    build = graphs.builder(model)
    op = build.op
    active = set(wanted)
    done: set[ir.Node] = set()
    for node in model.graph:  # what a replacement appends is visited too
        if not any(x in active for i, x in enumerate(node.inputs) if not _is_flat(node, i)):
            continue
        _refuse(node, active)
        replaced = node not in done and _replace(op, model, node, active, done)
        if not replaced:
            _declare_outputs(op, node)
            _copy_repeated(op, node)
            active.update(y for y in node.outputs if graphs.is_float(y) or y.dtype is None)
    _own_outputs(op, model)
    _free_names(model, build.names)
    passes.NameFixPass()(model)
    passes.TopologicalSortPass()(model)
    return active


def _refuse(node: ir.Node, active: set[ir.Value]) -> None:
    """Raise for what onnxruntime-training derives wrongly, where there is no equivalent."""
    reason = wrong(node)
    ignored = [x.name for i, x in enumerate(node.inputs) if x in active and i in IGNORED.get(node.op_type, ())]
    if ignored:
        reason = f"as if its input {ignored[0]!r} had no influence"
    if reason:
        raise GradientError(
            f'onnxruntime-training derives {node.op_type} (node {node.name!r}) {reason}. Use builder="builtin".'
        )


def wrong(node: ir.Node) -> str:
    """Return in which form the operator of a node is derived wrongly, empty where it is not."""
    if node.domain not in ("", "ai.onnx"):
        return ""
    axes = graphs.rank(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    padding, dilations = attribute(node, "auto_pad", "NOTSET"), attribute(node, "dilations", [])
    if node.op_type in ("Conv", "AveragePool") and padding.startswith("SAME"):
        return f"wrongly with auto_pad={padding!r}"
    if node.op_type.startswith("Scatter") and attribute(node, "reduction", "none") != "none":
        return f"wrongly with reduction={attribute(node, 'reduction')!r}"
    if node.op_type == "AveragePool" and (max(dilations, default=1) > 1 or axes == 5):
        return "wrongly with dilations or three spatial axes"
    if node.op_type == "MaxPool" and max(dilations, default=1) > 1 and axes == 5:
        return "wrongly with dilations and three spatial axes"
    if node.op_type == "MaxPool" and attribute(node, "storage_order", 0):
        return "wrongly with storage_order=1"
    if node.op_type == "BatchNormalization" and attribute(node, "training_mode", 0):
        return "wrongly in training mode"
    return ""


def _is_flat(node: ir.Node, index: int) -> bool:
    return node.domain in ("", "ai.onnx") and index in FLAT.get(node.op_type, ())


def _replace(op: Any, model: ir.Model, node: ir.Node, active: set[ir.Value], done: set[ir.Node]) -> bool:
    rule = EQUIVALENTS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        return False
    before = len(model.graph)
    replacement: Replacement = rule(op, node)
    if replacement is None:
        return False
    new = list(model.graph)[before:]
    # an equivalent may use the operator itself, in a form that is derived rightly
    done.update(n for n in new if n.op_type == node.op_type)
    values = replacement if isinstance(replacement, tuple) else (replacement,)
    for old, value in zip(node.outputs, values, strict=True):
        if value is None:
            continue
        value.type, value.shape = old.type or value.type, old.shape or value.shape
        ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
        if old in active or graphs.is_float(value):
            active.add(value)
        value.name, old.name = old.name, graphs.unique_name(f"{old.name}_old", op.builder.names)
    model.graph.remove(node)
    return True


def _declare_outputs(op: Any, node: ir.Node) -> None:
    """Name the optional outputs of a node: the gradient reads them."""
    count = OPTIONAL_OUTPUTS.get(node.op_type, 0) if node.domain in ("", "ai.onnx") else 0
    known = len(node.outputs)
    if count > known:
        node.resize_outputs(count)
    for i in range(min(count, len(node.outputs))):
        if not node.outputs[i].name:
            node.outputs[i].name = graphs.unique_name(f"{node.outputs[0].name}_{i}", op.builder.names)


def _copy_repeated(op: Any, node: ir.Node) -> None:
    """Give each operand a name of its own: the gradients of a name that stands twice collide."""
    seen: set[ir.Value] = set()
    for i, x in enumerate(node.inputs):
        if x is not None and x in seen:
            node.replace_input_with(i, op.Identity(x))
        elif x is not None:
            seen.add(x)


def _own_outputs(op: Any, model: ir.Model) -> None:
    """Let every output come from a node, and each from another."""
    seen: set[ir.Value] = set()
    for i, y in enumerate(model.graph.outputs):
        if y.producer() is None or y in seen:
            copy = op.Identity(y)
            copy.type, copy.shape = y.type, y.shape
            model.graph.outputs[i] = copy
        seen.add(model.graph.outputs[i])


def _free_names(model: ir.Model, taken: set[str]) -> None:
    """Rename, in place, what is called as a gradient would be."""
    values = [*model.graph.inputs, *model.graph.initializers.values(), *(y for n in model.graph for y in n.outputs)]
    for value in dict.fromkeys(values):
        if value.name and _SUFFIX in value.name:
            value.name = graphs.unique_name(value.name.replace(_SUFFIX, "_g"), taken)


def total(model: ir.Model, loss: ir.Value) -> ir.Value:
    """Return the loss as a scalar: the foreign builder starts from one."""
    op: Any = graphs.builder(model).op
    return op.Identity(loss) if graphs.rank(loss) == 0 else op.ReduceSum(loss, keepdims=0)


def values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return every value of a graph by its name."""
    values = [*graph.inputs, *graph.initializers.values(), *(y for node in graph for y in node.outputs)]
    return {str(v.name): v for v in values if v.name}


def reaching(model: ir.Model, active: set[ir.Value]) -> set[ir.Value]:
    """Return the active values from which something flows to a real output."""
    reaching = {y for y in model.graph.outputs if graphs.is_float(y) and y in active}
    for node in reversed(model.graph):
        if any(y in reaching for y in node.outputs):
            flat = FLAT.get(node.op_type, frozenset()) if node.domain in ("", "ai.onnx") else frozenset()
            reaching.update(x for i, x in enumerate(node.inputs) if x in active and i not in flat)
    return reaching
