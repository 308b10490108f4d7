"""The derivative of an operator by what it is made of: compute it once more, node by node, and differentiate that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import onnx_ir as ir

from onnxtrain.autodiff.engine import backpropagate
from onnxtrain.autodiff.registry import Gradient
from onnxtrain.graph import is_float

__all__ = ["differentiate", "nodes_after"]


def differentiate(op: Any, node: ir.Node, forward: Callable[..., Sequence[Gradient]], *dy: Gradient) -> list[Gradient]:
    """Return the gradients of the operands of `node`, which computes what `forward` does.

    Parameters
    ----------
    op : onnxscript builder
    node : onnx_ir.Node
    forward : callable
        ``forward(op, node, *inputs) -> outputs``; it appends nodes that have rules.
        An output may be None where it has no gradient.
    *dy : onnx_ir.Value or None
        The gradients of the outputs.
    """
    last = _last(op)
    outputs = forward(op, node, *node.inputs)
    incoming = {y: d for y, d in zip(outputs, dy, strict=False) if y is not None and d is not None}
    wanted = {x for x in node.inputs if x is not None and is_float(x)}
    found = backpropagate(op, nodes_after(op, last), incoming, wanted)
    return [None if x is None else found.get(x) for x in node.inputs]


def nodes_after(op: Any, last: ir.Node | None) -> list[ir.Node]:
    """Return the nodes that were appended behind `last`, in order."""
    return list(takewhile(lambda node: node is not last, reversed(op.builder.graph)))[::-1]


def _last(op: Any) -> ir.Node | None:
    return next(iter(reversed(op.builder.graph)), None)
