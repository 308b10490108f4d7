"""Reachability: the values from which a value is computed, and the values that are computed from it.

A walk enters the graphs inside nodes (If, Loop, Scan) through the values that they capture from outside. Callers
restrict the walk, because a derivative does not pass through every operator, nor through integers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import onnx_ir as ir

from onnxtrain.graph.query import holds_graphs


def operands(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """Return the inputs of a node, then the values that its subgraphs capture."""
    if not holds_graphs(node):
        return tuple(node.inputs)
    return (*node.inputs, *captured(node))


def captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the values of outer graphs that the graphs inside a node read, each once."""
    own: set[ir.Value] = set()
    found: dict[ir.Value, None] = {}

    def visit(graph: ir.Graph) -> None:
        own.update(graph.inputs)
        own.update(graph.initializers.values())
        for inner in graph:
            for x in inner.inputs:
                if x is not None and x not in own:
                    found[x] = None
            for a in inner.attributes.values():
                if a.type == ir.AttributeType.GRAPH:
                    visit(a.as_graph())
            own.update(inner.outputs)
        for y in graph.outputs:
            if y not in own:
                found[y] = None

    for a in node.attributes.values():
        if a.type == ir.AttributeType.GRAPH:
            visit(a.as_graph())
    return tuple(found)


def ancestors(
    values: Iterable[ir.Value], edges: Mapping[ir.Node, Iterable[ir.Value | None]] | None = None
) -> set[ir.Value]:
    """Return the ancestors of some values, including the values themselves.

    Parameters
    ----------
    values : iterable of onnx_ir.Value
    edges : mapping of onnx_ir.Node to values, optional
        The operands of each node on which its results depend; a missing node has none. By default, all operands.
    """
    found = set(values)
    todo = list(found)
    while todo:
        node = todo.pop().producer()
        if node is None:
            continue
        for x in operands(node) if edges is None else edges.get(node, ()):
            if x is not None and x not in found:
                found.add(x)
                todo.append(x)
    return found


def dependents(
    nodes: Iterable[ir.Node], values: Iterable[ir.Value], among: Container[ir.Value] | None = None
) -> set[ir.Value]:
    """Return the values that depend on some values, including the values themselves.

    Parameters
    ----------
    nodes : iterable of onnx_ir.Node
        The nodes, in topological order.
    values : iterable of onnx_ir.Value
    among : container of onnx_ir.Value, optional
        The results that may depend on their operands; by default, all.
    """
    found = set(values)
    for node in nodes:
        if any(x in found for x in operands(node)):
            found.update(y for y in node.outputs if among is None or y in among)
    return found


def carried(value: ir.Value, op_types: Container[str], *, any_operand: bool = False) -> list[ir.Value]:
    """Return a value and its other forms that a chain of certain operators computes from it, each once.

    Parameters
    ----------
    value : onnx_ir.Value
    op_types : container of str
        The operators whose first output is another form of their first operand or, for Concat, of each operand.
    any_operand : bool
        Whether the output is another form of any operand.
    """
    found = {value: None}
    todo = [value]
    while todo:
        for node, position in todo.pop().uses():
            carries = any_operand or position == 0 or node.op_type == "Concat"
            if carries and not node.domain and node.op_type in op_types and node.outputs[0] not in found:
                found[node.outputs[0]] = None
                todo.append(node.outputs[0])
    return list(found)
