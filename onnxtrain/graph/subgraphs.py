"""Graphs inside nodes: the bodies of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir as ir

from onnxtrain.graph.build import Builder, Op, unique_name


def inner_builder(op: Op, body: ir.Graph) -> Any:
    """Return the ``op`` that appends to a graph inside the one of `op`."""
    body.opset_imports.setdefault("", op.builder.graph.opset_imports[""])
    return Builder(body, parent=op.builder).op


def put_out(op: Op, body: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Set the outputs of a body: each must be computed there, and different from the others."""
    body.outputs.clear()
    for x in values:
        node = x.producer()
        own = node is not None and node.graph is body and not x.is_graph_output()
        body.outputs.append(x if own else op.Identity(x))


def scan(
    op: Op, turn: Callable[..., Iterable[ir.Value]], xs: Sequence[ir.Value], states: Sequence[ir.Value] = ()
) -> list[ir.Value]:
    """Append a Scan over the first axis of `xs`; return the last states, then the stacked results.

    Parameters
    ----------
    op : onnxscript builder
    turn : callable
        ``turn(op, *states, *slices)`` appends one iteration; it returns the next states, then the values to stack.
    xs, states : sequence of onnx_ir.Value
    """
    body = ir.Graph([], [], nodes=[], name="turn")
    body.inputs.extend(_like(op, f"{x.name}_turn", x, x.shape) for x in states)
    body.inputs.extend(_like(op, f"{x.name}_turn", x, x.shape[1:]) for x in xs)  # type: ignore[index]
    inner = inner_builder(op, body)
    put_out(inner, body, turn(inner, *body.inputs))
    turns = xs[0].shape[0]  # type: ignore[index]
    found = [
        _like(op, f"scanned_{y.name}", y, y.shape if i < len(states) or y.shape is None else [turns, *y.shape])
        for i, y in enumerate(body.outputs)
    ]
    attributes: dict[str, Any] = {"body": body, "num_scan_inputs": len(xs)}
    op.builder.graph.append(ir.node("Scan", [*states, *xs], attributes=attributes, outputs=found))
    return found


def _like(op: Op, name: str, x: ir.Value, shape: Any) -> ir.Value:
    """Return a value of the type of `x`, of a shape and a name of its own."""
    name = unique_name(name, op.builder.names)
    return ir.Value(name=name, type=x.type, shape=None if shape is None else ir.Shape(shape))
