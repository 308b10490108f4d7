"""Rules of If, Loop and Scan.

The gradient of If recomputes the branch inside its own If. Loop and Scan save
their states before each iteration. The gradient is a Scan over the saved states
in reverse order. Its states are the gradients of the states and the accumulated
gradients of the outer values that the body reads. onnxruntime's Scan supports
neither zero iterations nor states of unknown rank: if a Loop may have either, the
gradient is a Loop that reads the saved states one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import zeros_like
from onnxtrain.autodiff.engine import backpropagate
from onnxtrain.autodiff.registry import Gradient, attribute, gradient_rule
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, captured, constant, inner_builder, is_float, put_out, unique_name


@gradient_rule("If")
def if_(op, node, *dy):
    outside = captured(node)
    wanted = [x for x in outside if _varies(x)]
    branches = {
        name: _gradient_branch(op, node.attributes[name].as_graph(), dy, wanted)
        for name in ("then_branch", "else_branch")
    }
    found = dict(zip(wanted, _append(op, "If", [node.inputs[0]], branches, wanted), strict=True))
    return [None, *(found.get(x) for x in outside)]


@gradient_rule("Loop")
def loop(op, node, *dy):
    body = node.attributes["body"].as_graph()
    n = len(body.inputs) - 2
    kept = {k: None for k in range(len(body.inputs)) if k != 1}
    scans = {1 + k: _Scanned(d, 0, 0) for k, d in enumerate(dy) if k >= n and d is not None}
    walk = _Walk(node, body, first_state=2, first_output=1, states=n, saved=kept, dscans=scans)
    dstates, _, doutside = _walk_back(op, walk, dy[:n])
    return [None, None, *dstates, *doutside]


@gradient_rule("Scan")
def scan(op, node, *dy):
    body = node.attributes["body"].as_graph()
    m = attribute(node, "num_scan_inputs")
    n, outputs = len(body.inputs) - m, len(node.outputs)
    axes, ways = (_list(node, f"scan_input_{name}", m) for name in ("axes", "directions"))
    out_axes, out_ways = (_list(node, f"scan_output_{name}", outputs - n) for name in ("axes", "directions"))
    saved = dict.fromkeys(range(n)) | {n + k: _Scanned(x, axes[k], ways[k]) for k, x in enumerate(node.inputs[n:])}
    scans = {n + k: _Scanned(d, out_axes[k], out_ways[k]) for k, d in enumerate(dy[n:]) if d is not None}
    walk = _Walk(node, body, first_state=0, first_output=0, states=n, saved=saved, dscans=scans)
    dstates, dxs, doutside = _walk_back(op, walk, dy[:n])
    return [*dstates, *(dxs.get(n + k) for k in range(m)), *doutside]


# ----------------------------------------------------------------- branches


def _gradient_branch(op: Op, branch: ir.Graph, dy: Sequence[Gradient], wanted: Sequence[ir.Value]) -> ir.Graph:
    body = branch.clone(allow_outer_scope_values=True)
    inner, nodes = inner_builder(op, body), list(body)
    found = backpropagate(inner, nodes, _incoming(inner, zip(body.outputs, dy, strict=False)), wanted)
    put_out(inner, body, [found[x] if x in found else zeros_like(inner, x) for x in wanted])
    return body


def _incoming(op: Op, pairs: Iterable[tuple[ir.Value, Gradient]]) -> dict[ir.Value, ir.Value]:
    """Return the gradient of each output of a body; those of a value that is output twice are summed."""
    found: dict[ir.Value, ir.Value] = {}
    for y, d in pairs:
        if d is None or not is_float(y):
            continue
        own = op.Identity(d)  # it has the shape of this body's output; the outer shape may be less specific
        own.type, own.shape = y.type, y.shape or own.shape
        found[y] = op.Add(found[y], own) if y in found else own
    return found


# -------------------------------------------------------------------- loops


@dataclass(frozen=True)
class _Scanned:
    """A tensor sliced or stacked along an axis; direction 1 starts at the end."""

    value: ir.Value
    axis: int
    direction: int

    @property
    def order(self) -> tuple[int, int]:
        return self.axis, self.direction


@dataclass(frozen=True)
class _Walk:
    """The forward loop: its states and the values saved in each iteration."""

    node: ir.Node
    body: ir.Graph
    first_state: int
    first_output: int
    states: int
    saved: dict[int, _Scanned | None]  # by index of the body's input; None if it is not saved yet
    dscans: dict[int, _Scanned]  # gradients of stacked outputs, by index of the body's output


def _keep(op: Op, walk: _Walk, needed: Sequence[int]) -> list[_Scanned]:
    """Return the inputs of the body at each iteration; inputs not saved yet become outputs of the forward pass."""
    node, start = walk.node, len(walk.node.outputs)
    values = [walk.body.inputs[k] for k in needed if walk.saved[k] is None]
    inner = inner_builder(op, walk.body)
    walk.body.outputs.extend(inner.Identity(x) for x in values)
    for name in ("scan_output_axes", "scan_output_directions"):
        if name in node.attributes:
            node.attributes[name] = ir.AttrInt64s(name, [*node.attributes[name].as_ints(), *[0] * len(values)])
    node.resize_outputs(start + len(values))
    turns = ir.SymbolicDim(unique_name(f"{node.outputs[0].name}_turns", op.builder.names))
    for x, stacked in zip(values, node.outputs[start:], strict=True):
        stacked.name = unique_name(f"{x.name}_each_turn", op.builder.names)
        stacked.dtype = x.dtype  # type: ignore[assignment]  # a result of a body has a type
        stacked.shape = None if x.shape is None else ir.Shape([turns, *x.shape])
    kept = iter(node.outputs[start:])
    return [walk.saved[k] or _Scanned(next(kept), 0, 0) for k in needed]


def _walk_back(
    op: Op, walk: _Walk, dfinal: Sequence[Gradient]
) -> tuple[list[Gradient], dict[int, ir.Value], list[Gradient]]:
    """Return the gradients of the initial states, of the scanned inputs, and of the outer values read by the body."""
    _check_tensors(walk)
    outside = captured(walk.node)
    wanted = [x for x in outside if _varies(x)]
    real = [k for k in range(walk.states) if is_float(walk.body.inputs[walk.first_state + k])]
    sliced = [k for k, x in walk.saved.items() if x is not None and is_float(x.value)]
    ends = [zeros_like(op, walk.node.outputs[k]) if dfinal[k] is None else dfinal[k] for k in real]
    body, needed = _gradient_body(op, walk, real, sliced, wanted)
    read = [*_keep(op, walk, needed), *walk.dscans.values()]
    states = [*ends, *(zeros_like(op, x) for x in wanted)]
    if walk.node.op_type == "Loop" and not (_turns_once(walk.node) and all(y.shape is not None for y in body.outputs)):
        primals = [*(walk.node.inputs[walk.first_state + k] for k in real), *wanted]
        found = iter(_loop_back(op, body, states, [s.value for s in read], primals))
        dstates = dict(zip(real, found, strict=False))
        doutside = dict(zip(wanted, found, strict=True))
        return [dstates.get(k) for k in range(walk.states)], {}, [doutside.get(x) for x in outside]
    inputs = [*states, *(_last_turn_first(op, s) for s in read)]
    attributes = {
        "body": body,
        "num_scan_inputs": len(read),
        "scan_input_axes": [s.axis for s in read],
        "scan_output_axes": [walk.saved[k].axis for k in sliced],
    }
    primals = [*(walk.node.inputs[walk.first_state + k] for k in real), *wanted, *(walk.saved[k].value for k in sliced)]
    found = iter(_append(op, "Scan", inputs, attributes, primals))
    dstates = dict(zip(real, found, strict=False))
    doutside = dict(zip(wanted, found, strict=False))
    dxs = {k: _last_turn_first(op, _Scanned(dx, *walk.saved[k].order)) for k, dx in zip(sliced, found, strict=True)}
    return [dstates.get(k) for k in range(walk.states)], dxs, [doutside.get(x) for x in outside]


def _turns_once(node: ir.Node) -> bool:
    """Whether a Loop is known to run at least one iteration."""
    turns, condition = ((x, constant(x)) for x in node.inputs[:2])
    return all(x is None or (known is not None and known.item() > 0) for x, known in (turns, condition))


def _loop_back(
    op: Op, body: ir.Graph, states: Sequence[ir.Value], read: Sequence[ir.Value], primals: Sequence[ir.Value]
) -> list[ir.Value]:
    """Append a Loop that is equivalent to a Scan over `read`, starting at the last slice."""
    turns = op.Squeeze(op.Shape(read[0], start=0, end=1), [0])
    slices = body.inputs[len(states) :]
    del body.inputs[len(states) :]
    turn, going = (
        ir.Value(name=unique_name(name, op.builder.names), type=ir.TensorType(dtype), shape=ir.Shape([]))
        for name, dtype in (("turn", ir.DataType.INT64), ("going", ir.DataType.BOOL))
    )
    body.inputs[:0] = [turn, going]
    first, inner = list(body), inner_builder(op, body)
    at = inner.Sub(inner.Sub(turns, 1), turn)
    for x, whole in zip(slices, read, strict=True):
        x.replace_all_uses_with(inner.Gather(whole, at, axis=0))
    body.extend(first)  # the nodes appended just now come first
    body.outputs.insert(0, inner.Identity(going))
    return _append(op, "Loop", [turns, op.initializer(ir.tensor(True, name="true")), *states], {"body": body}, primals)


def _last_turn_first(op: Op, x: _Scanned) -> ir.Value:
    """Reverse a tensor that the forward pass read or wrote from its beginning."""
    if x.direction == 1:
        return x.value
    return op.Slice(x.value, [-1], [np.iinfo(np.int64).min], [x.axis], [-1])


def _gradient_body(
    op: Op, walk: _Walk, real: Sequence[int], sliced: Sequence[int], wanted: Sequence[ir.Value]
) -> tuple[ir.Graph, list[int]]:
    """Return one iteration of the backward pass and the indices of the forward body's inputs that it reads.

    Its signature is
    (gradients, sums, values read, gradients of outputs) -> (gradients, sums, gradients of scanned inputs).
    """
    body = walk.body.clone(allow_outer_scope_values=True)
    inner, nodes = inner_builder(op, body), list(body)
    inputs, outputs = list(body.inputs), list(body.outputs)
    for k, x in enumerate(inputs):
        if k not in walk.saved:  # the condition of a Loop: it was true in each iteration that ran
            x.replace_all_uses_with(inner.initializer(ir.tensor(True, name="true")))
    ends = {walk.first_output + k: _like(op, outputs[walk.first_output + k]) for k in real}
    sums, given = [_like(op, x) for x in wanted], {k: _like(op, outputs[k]) for k in walk.dscans}
    incoming = _incoming(inner, ((outputs[k], d) for k, d in (ends | given).items()))
    starts = [inputs[walk.first_state + k] for k in real]
    found = backpropagate(inner, nodes, incoming, [*starts, *wanted, *(inputs[k] for k in sliced)])
    total = [inner.Add(s, found[x]) if x in found else s for s, x in zip(sums, wanted, strict=True)]
    body.inputs.clear()
    starts = [found.get(x) or zeros_like(inner, x) for x in starts]
    slices = [found.get(inputs[k]) or zeros_like(inner, inputs[k]) for k in sliced]
    put_out(inner, body, [*starts, *total, *slices])
    _remove_unused(body)
    needed = [k for k in walk.saved if inputs[k].uses()]
    if not needed and not walk.dscans:
        needed = [next(iter(walk.saved))]  # a Scan needs an input, which gives the number of iterations
    body.inputs.extend([*ends.values(), *sums, *(inputs[k] for k in needed), *given.values()])
    return body, needed


def _remove_unused(body: ir.Graph) -> None:
    for node in reversed(list(body)):
        if not any(y.uses() or y.is_graph_output() for y in node.outputs):
            body.remove(node, safe=True)


def _check_tensors(walk: _Walk) -> None:
    for x in walk.body.inputs:
        if not isinstance(x.type, ir.TensorType):
            raise GradientError(
                f"{walk.node.op_type} (node {walk.node.name!r}) carries {x.name!r}, which is no tensor: it has no "
                "derivative here. Carry tensors, or leave out the weights before this node."
            )


# ---------------------------------------------------------------- subgraphs


def _append(
    op: Op, op_type: str, inputs: Sequence[ir.Value], attributes: dict[str, Any], primals: Sequence[ir.Value]
) -> list[ir.Value]:
    """Append a node with subgraphs; its outputs have the types and shapes of `primals`."""
    attributes = {name: value for name, value in attributes.items() if value != []}
    outputs = [_like(op, x) for x in primals]
    op.builder.graph.append(ir.node(op_type, inputs, attributes=attributes, outputs=outputs))
    return outputs


def _like(op: Op, x: ir.Value) -> ir.Value:
    return ir.Value(name=unique_name(f"{x.name}_grad", op.builder.names), type=x.type, shape=x.shape)


def _varies(x: ir.Value) -> bool:
    return is_float(x) and constant(x) is None


def _list(node: ir.Node, name: str, n: int) -> list[int]:
    """Return an attribute that lists `n` integers, zeros if it is not set."""
    return list(attribute(node, name) or [0] * n)
