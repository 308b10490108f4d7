"""Derivatives by decomposition: recompute an operator from simpler ones and differentiate these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import onnx_ir as ir

from onnxtrain.autodiff.engine import backpropagate
from onnxtrain.autodiff.registry import Gradient
from onnxtrain.graph import Op, is_float

__all__ = ["differentiate", "nodes_after"]


def differentiate(op: Op, node: ir.Node, forward: Callable[..., Sequence[Gradient]], *dy: Gradient) -> list[Gradient]:
    """Return the gradients of the operands of `node` by differentiating its decomposition `forward`.

    Parameters
    ----------
    op : onnxscript builder
    node : onnx_ir.Node
    forward : callable
        ``forward(op, node, *inputs) -> outputs``. It appends nodes that have rules.
        An output without a gradient may be None.
    *dy : onnx_ir.Value or None
        The gradients of the outputs.
    """
    last = _last(op)
    outputs = forward(op, node, *node.inputs)
    incoming = {y: d for y, d in zip(outputs, dy, strict=False) if y is not None and d is not None}
    wanted = {x for x in node.inputs if x is not None and is_float(x)}
    found = backpropagate(op, nodes_after(op, last), incoming, wanted)
    return [None if x is None else found.get(x) for x in node.inputs]


def nodes_after(op: Op, last: ir.Node | None) -> list[ir.Node]:
    """Return the nodes appended after `last`, in order."""
    return list(takewhile(lambda node: node is not last, reversed(op.builder.graph)))[::-1]


def _last(op: Op) -> ir.Node | None:
    return next(iter(reversed(op.builder.graph)), None)
