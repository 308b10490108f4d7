"""The gradient of one value by onnxruntime-training, appended to an existing graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain import graph as graphs
from onnxtrain.training_build._native import loss_gradient, require
from onnxtrain.training_build._prepare import prepare, reaching, total, values_by_name


def append_gradients(model: ir.Model, output: ir.Value, wrt: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Append to a graph the gradient of one of its values, derived by GradientGraphBuilder.

    The forward pass that the gradient reads is appended too; nodes that duplicate
    those of the graph are merged when the model is saved.

    Parameters
    ----------
    model : onnx_ir.Model
        Changed in place.
    output : onnx_ir.Value
        The loss; several elements are summed.
    wrt : sequence of onnx_ir.Value
        Inputs or initializers of the graph.

    Returns
    -------
    dict of value to value
        The gradients. A value of `wrt` that the output does not depend on is missing.

    Raises
    ------
    ImportError
        There is no training build of onnxruntime.
    GradientError
        It cannot derive this graph.
    """
    require()
    copy = ir.from_proto(ir.to_proto(model))
    values = values_by_name(copy.graph)
    sources = [*model.graph.inputs, *model.graph.initializers.values()]
    twins = {values[str(v.name)]: v for v in sources}
    wanted = {values[str(x.name)]: x for x in wrt}
    copy.graph.outputs[:] = [total(copy, values[str(output.name)])]
    passes.RemoveUnusedNodesPass()(copy)
    depends = reaching(copy, prepare(copy, list(wanted)))
    reached = {twin: x for twin, x in wanted.items() if twin in depends}
    if not reached:
        return {}
    copy.ir_version = graphs.IR_VERSION
    proto = loss_gradient(ir.to_proto(copy), str(copy.graph.outputs[0].name), [str(twin.name) for twin in reached])
    known = _inline(model, ir.from_proto(proto), {str(twin.name): v for twin, v in twins.items()})
    found = {}
    for twin, x in reached.items():
        dx = known[f"{twin.name}_grad"]
        dx.type, dx.shape = x.type, x.shape
        found[x] = dx
    return found


def _inline(model: ir.Model, foreign: ir.Model, known: dict[str, ir.Value]) -> dict[str, ir.Value]:
    """Append the nodes of `foreign`; `known` maps its names to values of `model` and is updated."""
    build = graphs.builder(model)
    for name, value in foreign.graph.initializers.items():
        if name not in known:
            known[name] = build.op.initializer(value.const_value, name=name)
    passes.TopologicalSortPass()(foreign)
    for node in foreign.graph:
        twin = ir.node(
            node.op_type,
            [None if x is None else known[str(x.name)] for x in node.inputs],
            attributes=dict(node.attributes),
            domain=node.domain,
            num_outputs=len(node.outputs),
        )
        for mine, theirs in zip(twin.outputs, node.outputs, strict=True):
            mine.type, mine.shape = theirs.type, theirs.shape
            mine.name = graphs.unique_name(theirs.name, build.names) if theirs.name else ""
            known[str(theirs.name)] = mine
        model.graph.append(twin)
    for domain, version in foreign.opset_imports.items():
        if any(node.domain == domain for node in foreign.graph):
            model.opset_imports.setdefault(domain, version)
    return known
