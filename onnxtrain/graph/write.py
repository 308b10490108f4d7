"""Write a model: pruned, its names unique, with a pinned IR version."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.inliner
import onnx.version_converter
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import Builder
from onnxtrain.graph.change import put_in_order
from onnxtrain.graph.read import IR_VERSION, PROTO_LIMIT


def prune(model: ir.Model) -> None:
    """Remove, in place, what no output needs and what is computed twice.

    Inputs are part of the interface: they stay.
    """
    inputs = list(model.graph.inputs)
    outputs = [y.name for y in model.graph.outputs]
    passes.CommonSubexpressionEliminationPass()(model)
    bodies = list(model.graph.subgraphs())
    results = [n for body in bodies for y in body.outputs if (n := y.producer()) and n.op_type == "Identity"]
    for node in results:  # a body must compute what it puts out: what it takes from outside is copied
        node.domain = "onnxtrain.kept"
    passes.IdentityEliminationPass()(model)
    for node in results:
        node.domain = ""
    passes.RemoveUnusedNodesPass()(model)
    model.graph.inputs[:] = inputs
    _restore_outputs(model.graph, outputs)
    for body in bodies:
        _separate_outputs(body)


def _separate_outputs(body: ir.Graph) -> None:
    """Copy what the body of a Loop or a Scan puts out a second time: onnxruntime writes both to one place."""
    for i, y in enumerate(body.outputs):
        if any(y is other for other in body.outputs[:i]):
            copy = ir.node("Identity", [y])
            copy.outputs[0].type, copy.outputs[0].shape = y.type, y.shape
            body.append(copy)
            body.outputs[i] = copy.outputs[0]


def _restore_outputs(graph: ir.Graph, names: Sequence[str | None]) -> None:
    """Give back its name to each output that was found equal to another one."""
    for i, name in enumerate(names):
        y = graph.outputs[i]
        if y.name != name:
            copy = Builder(graph).op.Identity(y)
            copy.name = name
            graph.outputs[i] = copy


def save(model: ir.Model, *, outputs: Sequence[tuple[str, ir.Value]] | None = None) -> onnx.ModelProto:
    """Return a model as a ModelProto of a pinned IR version, pruned, its names unique.

    Parameters
    ----------
    model : onnx_ir.Model
    outputs : sequence of (name, value), optional
        Replaces the outputs of the graph. A value that already has a name the
        user knows (an input, an initializer, another output) is copied by Identity.
    """
    if outputs is not None:
        set_outputs(model, outputs)
    model.ir_version = IR_VERSION
    try:
        put_in_order(model)  # a user that stands before what it reads would hide that both are unused
        prune(model)
        passes.NameFixPass()(model)
        proto = ir.to_proto(model)
    except Exception as e:  # as in load: what is malformed may only show now
        raise ModelError(f"The model cannot be written: {type(e).__name__}: {e}") from e
    if proto.ByteSize() >= PROTO_LIMIT:
        raise ModelError(f"The model would be {proto.ByteSize()} bytes; a protobuf message holds less than 2 GB.")
    return proto


def set_outputs(model: ir.Model, outputs: Sequence[tuple[str, ir.Value]]) -> None:
    """Replace, in place, the outputs of a model, as :func:`save` does."""
    graph = model.graph
    graph.outputs.clear()
    for name, value in outputs:
        if value.name != name and (value.producer() is None or any(value is other for other in graph.outputs)):
            value = Builder(graph).op.Identity(value)
        value.name = name
        graph.outputs.append(value)
