"""Which initializers real numbers flow from, all the way to an output."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxtrain import graph


def reaching(model: ir.Model) -> list[ir.Value]:
    """Return the initializers of real numbers, of one axis or more, that an output of real numbers depends on.

    Integers and booleans in between carry no derivative, neither do operators outside ai.onnx.
    """
    wanted = {v for v in model.graph.outputs if graph.is_float(v)}
    for node in reversed(list(model.graph)):
        if node.domain in ("", "ai.onnx") and any(y in wanted for y in node.outputs):
            wanted.update(x for x in _operands(node) if x is not None and (graph.is_float(x) or x.dtype is None))
    return [v for v in model.graph.initializers.values() if v in wanted and graph.rank(v)]


def _operands(node: ir.Node) -> list[ir.Value | None]:
    """Return the inputs of a node, and of the nodes of the graphs inside it."""
    found = list(node.inputs)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                found.extend(inner.inputs)
    return found


def reaching_names(onx: onnx.ModelProto) -> set[str]:
    """Return the names of the initializers that :func:`reaching` finds."""
    return {str(v.name) for v in reaching(graph.reload(onx))}
