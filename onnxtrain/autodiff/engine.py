"""Reverse mode: one walk from the outputs back to what is differentiated.

The engine knows no operator. It finds what depends on the wanted values, asks
the table for one rule per node, undoes broadcasting, adds contributions and
gives each gradient the type and the shape of its primal. It never decides
that something is zero: an operator without a rule raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import sum_to, with_shape_of
from onnxtrain.autodiff.registry import Gradient, derivative_of
from onnxtrain.errors import GradientError
from onnxtrain.graph import is_float


def backpropagate(
    op: Any, nodes: Sequence[ir.Node], dy: Mapping[ir.Value, ir.Value], wrt: Iterable[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Append the backward pass of `nodes` and return the gradient of each value reached.

    Parameters
    ----------
    op : onnxscript builder
        Where the new nodes go.
    nodes : sequence of onnx_ir.Node
        The forward pass, in topological order.
    dy : mapping of value to value
        The incoming gradient of each output.
    wrt : iterable of onnx_ir.Value
        What to differentiate with respect to.

    Returns
    -------
    dict of value to value
        A value of `wrt` that no output depends on is missing: its derivative is zero.

    Raises
    ------
    GradientError
        An operator on the way has no derivative; the message names the node,
        the path from it to the output and the remedy.
    """
    wrt = list(wrt)
    active = dependents(nodes, wrt)
    contributions: dict[ir.Value, list[ir.Value]] = {
        value: [incoming] for value, incoming in dy.items() if value in active
    }
    gradients: dict[ir.Value, ir.Value] = {}

    def collect(value: ir.Value) -> Gradient:
        if value not in gradients:
            if value not in contributions:
                return None
            gradients[value] = with_shape_of(_add(op, contributions.pop(value)), value)
        return gradients[value]

    for node in reversed(nodes):
        if not any(v in contributions for v in node.outputs):
            continue
        incoming = [collect(v) if v in active else None for v in node.outputs]
        for x, dx in zip(operands(node), _apply_rule(op, node, incoming, dy), strict=True):
            if dx is not None and x in active:
                contributions.setdefault(x, []).append(dx)
    return {value: found for value in wrt if (found := collect(value)) is not None}


def dependents(nodes: Iterable[ir.Node], wrt: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the values whose derivative with respect to `wrt` may differ from zero.

    Integers, booleans and the outputs of flat operators have none.
    """
    active = set(wrt)
    for node in nodes:
        known = derivative_of(node)
        flat = known is not None and known.rule is None
        if not flat and any(x in active for x in operands(node)):
            active.update(y for y in node.outputs if is_float(y) or y.dtype is None)
    return active


def operands(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """Return the inputs of a node, then what the graphs inside it take from outside."""
    if not any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
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


def _apply_rule(
    op: Any, node: ir.Node, incoming: Sequence[Gradient], outputs: Mapping[ir.Value, ir.Value]
) -> list[Gradient]:
    known = derivative_of(node)
    if known is None or known.rule is None:
        raise GradientError(_no_rule(node, outputs))
    found = known.rule(op, node, *incoming)
    gradients = [found] if isinstance(found, ir.Value) or found is None else list(found)
    gradients += [None] * (len(operands(node)) - len(gradients))
    if known.broadcast:
        gradients = [
            dx if dx is None or x is None else sum_to(op, dx, x)
            for x, dx in zip(node.inputs, gradients, strict=True)
        ]
    return gradients


def _add(op: Any, terms: Sequence[ir.Value]) -> ir.Value:
    if len(terms) == 1:
        return terms[0]
    return op.Add(*terms) if len(terms) == 2 else op.Sum(*terms)


def _no_rule(node: ir.Node, outputs: Iterable[ir.Value]) -> str:
    name = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
    return (
        f"{name} (node {node.name!r}) has no derivative here, and it stands between what is trained and the "
        f"output: {' -> '.join(_path(node, set(outputs)))}. Register one with @onnxtrain.gradient({node.op_type!r}"
        f"{f', domain={node.domain!r}' if node.domain else ''}), or leave out the weights before this node."
    )


def _path(node: ir.Node, outputs: set[ir.Value]) -> list[str]:
    """Return the names of operators and values from a node to one of the outputs."""
    came_from: dict[ir.Node, tuple[ir.Node, ir.Value] | None] = {node: None}
    queue = [node]
    for current in queue:
        for y in current.outputs:
            if y in outputs:
                path = [str(y.name), current.op_type]
                step = came_from[current]
                while step is not None:
                    current, value = step
                    path += [str(value.name), current.op_type]
                    step = came_from[current]
                return path[::-1]
            for consumer in y.consumers():
                if consumer not in came_from:
                    came_from[consumer] = (current, y)
                    queue.append(consumer)
    return [node.op_type]
