"""Reachability: the values that a value is computed from, and the values computed from it.

A walk passes into the graphs inside nodes (If, Loop, Scan) by what they capture from outside.
Callers narrow it down: a derivative does not pass through every operator, nor through integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnxtrain.graph.query import holds_graphs


def operands(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """Return the inputs of a node, then the values that its subgraphs capture."""
    if not holds_graphs(node):
        return tuple(node.inputs)
    return (*node.inputs, *captured(node))


def captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the values of outer graphs that the graphs inside a node use, each once."""
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
    values: Iterable[ir.Value], through: Callable[[ir.Node], Iterable[ir.Value | None]] = operands
) -> set[ir.Value]:
    """Return the ancestors of some values, themselves included.

    Parameters
    ----------
    values : iterable of onnx_ir.Value
    through : callable, optional
        ``through(node)`` returns the operands of a node on which its results depend; all by default.
    """
    found = set(values)
    todo = list(found)
    while todo:
        node = todo.pop().producer()
        for x in through(node) if node is not None else ():
            if x is not None and x not in found:
                found.add(x)
                todo.append(x)
    return found


def dependents(
    nodes: Iterable[ir.Node],
    values: Iterable[ir.Value],
    through: Callable[[ir.Node], Iterable[ir.Value]] = lambda node: node.outputs,
) -> set[ir.Value]:
    """Return the values that depend on some values, themselves included.

    Parameters
    ----------
    nodes : iterable of onnx_ir.Node
        In topological order.
    values : iterable of onnx_ir.Value
    through : callable, optional
        ``through(node)`` returns the results of a node that depend on its operands; all by default.
    """
    found = set(values)
    for node in nodes:
        if any(x in found for x in operands(node)):
            found.update(through(node))
    return found
