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
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import known_rank, zeros_like
from onnxtrain.autodiff.engine import backpropagate
from onnxtrain.autodiff.registry import Gradient, gradient_rule
from onnxtrain.autodiff.rules.fission import Turns
from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, attribute, captured, constant, inner_builder, is_float, put_out, unique_name

#: In the `meta` of a Scan: its states before each iteration, by index, if they are known without running it.
STATES = "states"


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
    saved = {k: None for k in range(len(body.inputs)) if k != 1}
    dscans = {1 + k: _Scanned(d, 0, 0) for k, d in enumerate(dy) if k >= n and d is not None}
    walk = _Walk(node, body, first_state=2, first_output=1, states=n, saved=saved, dscans=dscans)
    return [None, None, *_walk_back(op, walk, dy[:n])]


@gradient_rule("Scan")
def scan(op, node, *dy):
    body = node.attributes["body"].as_graph()
    m = attribute(node, "num_scan_inputs")
    n, outputs = len(body.inputs) - m, len(node.outputs)
    axes, ways = (_list(node, f"scan_input_{name}", m) for name in ("axes", "directions"))
    out_axes, out_ways = (_list(node, f"scan_output_{name}", outputs - n) for name in ("axes", "directions"))
    saved = dict.fromkeys(range(n)) | {n + k: _Scanned(x, axes[k], ways[k]) for k, x in enumerate(node.inputs[n:])}
    dscans = {n + k: _Scanned(d, out_axes[k], out_ways[k]) for k, d in enumerate(dy[n:]) if d is not None}
    walk = _Walk(node, body, first_state=0, first_output=0, states=n, saved=saved, dscans=dscans)
    return _walk_back(op, walk, dy[:n])


# ----------------------------------------------------------------- branches


def _gradient_branch(op: Op, branch: ir.Graph, dy: Sequence[Gradient], wanted: Sequence[ir.Value]) -> ir.Graph:
    body = branch.clone(allow_outer_scope_values=True)
    inner, nodes = inner_builder(op, body), list(body)
    found = backpropagate(inner, nodes, _incoming(inner, zip(body.outputs, dy, strict=False)), wanted)
    put_out(inner, body, _or_zeros(inner, found, wanted))
    return body


def _or_zeros(op: Op, found: dict[ir.Value, ir.Value], primals: Iterable[ir.Value]) -> list[ir.Value]:
    return [found.get(x) or zeros_like(op, x) for x in primals]


def _incoming(op: Op, pairs: Iterable[tuple[ir.Value, Gradient]]) -> dict[ir.Value, ir.Value]:
    """Return the gradient of each output of a body; the gradients of a value that is output twice are summed."""
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

    @cached_property
    def outside(self) -> tuple[ir.Value, ...]:
        """The outer values that the body reads."""
        return captured(self.node)

    @cached_property
    def wanted(self) -> list[ir.Value]:
        """The outer values that get a gradient."""
        return [x for x in self.outside if _varies(x)]

    @cached_property
    def real(self) -> list[int]:
        """The states that get a gradient."""
        return [k for k in range(self.states) if is_float(self.body.inputs[self.first_state + k])]

    @cached_property
    def scanned(self) -> dict[int, _Scanned]:
        """The scanned inputs, by index of the body's input."""
        return {k: x for k, x in self.saved.items() if x is not None}

    @cached_property
    def sliced(self) -> dict[int, _Scanned]:
        """The scanned inputs that get a gradient."""
        return {k: x for k, x in self.scanned.items() if is_float(x.value)}

    def of_shape(self, k: int) -> ir.Value:
        """Return a value of the shape of the last state `k`: a Scan keeps it, a Loop may not."""
        start = self.node.inputs[k]
        return start if start is not None and self.node.op_type == "Scan" else self.node.outputs[k]

    @property
    def primals(self) -> list[ir.Value]:
        """The values whose gradients the backward pass returns."""
        starts = (self.node.inputs[self.first_state + k] for k in self.real)
        return [*(x for x in starts if x is not None), *self.wanted, *(x.value for x in self.sliced.values())]


def _walk_back(op: Op, walk: _Walk, dfinal: Sequence[Gradient]) -> list[Gradient]:
    """Return the gradients of the initial states, of the scanned inputs, and of the outer values read by the body."""
    _check_tensors(walk)
    body, needed = _gradient_body(op, walk)
    ends = [dfinal[k] or zeros_like(op, walk.of_shape(k)) for k in walk.real]
    sums = [zeros_like(op, x) for x in walk.wanted]
    read = [*_keep(op, walk, needed), *walk.dscans.values()]
    back = _scan_back if _runs_as_scan(walk.node, body) else _loop_back
    found = iter(back(op, walk, body, [*ends, *sums], read))
    dstates, doutside, dslices = (
        dict(zip(keys, found, strict=False)) for keys in (walk.real, walk.wanted, walk.sliced)
    )
    return [
        *(dstates.get(k) for k in range(walk.states)),
        *(dslices.get(k) for k in walk.scanned),
        *(doutside.get(x) for x in walk.outside),
    ]


def _runs_as_scan(node: ir.Node, body: ir.Graph) -> bool:
    """Whether a Scan can run the gradient `body` of a node: it runs at least once, and all ranks are known."""
    if node.op_type == "Scan":
        return True
    turns, condition = ((x, constant(x)) for x in node.inputs[:2])
    runs = all(x is None or (known is not None and known.item() > 0) for x, known in (turns, condition))
    return runs and all(y.shape is not None for y in body.outputs)


def _scan_back(
    op: Op, walk: _Walk, body: ir.Graph, states: Sequence[ir.Value], read: Sequence[_Scanned]
) -> list[ir.Value]:
    """Append a Scan over the values that the forward pass saved, from the last to the first."""
    slices = list(walk.sliced.values())
    stacked = [_like(op, _turns_first(op, x, walk.node)) for x in slices]
    turns = Turns(
        op, body, list(states), [_reversed(op, _turns_first(op, x, walk.node), x.direction) for x in read], [*stacked]
    )
    found = turns.append([_like(op, x) for x in walk.primals[: len(states)]], first_sum=len(walk.real))
    dslices = [_reversed(op, dx, x.direction) for x, dx in zip(slices, stacked, strict=True)]
    return [*found, *(_turns_back(op, dx, x.axis) for x, dx in zip(slices, dslices, strict=True))]


def _loop_back(
    op: Op, walk: _Walk, body: ir.Graph, states: Sequence[ir.Value], read: Sequence[_Scanned]
) -> list[ir.Value]:
    """Append a Loop that is equivalent to the Scan."""
    turns = op.Squeeze(op.Shape(read[0].value, start=0, end=1), [0])
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
        x.replace_all_uses_with(inner.Gather(whole.value, at, axis=0))
    body.extend(first)  # the nodes appended just now come first
    body.outputs.insert(0, inner.Identity(going))
    inputs = [turns, op.initializer(ir.tensor(True, name="true")), *states]
    return _append(op, "Loop", inputs, {"body": body}, walk.primals)


def _turns_first(op: Op, x: _Scanned, node: ir.Node) -> ir.Value:
    """Return a tensor with the iterations along its first axis."""
    if x.axis == 0:
        return x.value
    others = list(range(known_rank(x.value, node)))
    axis = others.pop(x.axis)
    return op.Transpose(x.value, perm=[axis, *others])


def _turns_back(op: Op, dx: ir.Value, axis: int) -> ir.Value:
    """Move the iterations of a tensor from its first axis to `axis`."""
    if axis == 0:
        return dx
    others = list(range(1, len(dx.shape)))
    others.insert(axis % len(dx.shape), 0)
    return op.Transpose(dx, perm=others)


def _reversed(op: Op, value: ir.Value, direction: int) -> ir.Value:
    """Reverse a tensor that the forward pass read or wrote from its beginning."""
    if direction == 1:
        return value
    return op.Slice(value, [-1], [np.iinfo(np.int64).min], [0], [-1])


def _gradient_body(op: Op, walk: _Walk) -> tuple[ir.Graph, list[int]]:
    """Return one iteration of the backward pass and the indices of the forward body's inputs that it reads.

    Its signature is
    (gradients, sums, values read, gradients of outputs) -> (gradients, sums, gradients of scanned inputs).
    """
    body = walk.body.clone(allow_outer_scope_values=True)
    inner, nodes = inner_builder(op, body), list(body)
    xs, ys = list(body.inputs), list(body.outputs)
    if walk.node.op_type == "Loop":  # the condition was true in each iteration that ran
        xs[1].replace_all_uses_with(inner.initializer(ir.tensor(True, name="true")))
    starts, slices = [xs[walk.first_state + k] for k in walk.real], [xs[k] for k in walk.sliced]
    ends = [ys[walk.first_output + k] for k in walk.real]
    dends, sums = [_like(op, y) for y in ends], [_like(op, x) for x in walk.wanted]
    dstacked = {k: _like(op, ys[k]) for k in walk.dscans}
    incoming = _incoming(inner, [*zip(ends, dends, strict=True), *((ys[k], d) for k, d in dstacked.items())])
    found = backpropagate(inner, nodes, incoming, [*starts, *walk.wanted, *slices])
    total = [inner.Add(s, found[x]) if x in found else s for s, x in zip(sums, walk.wanted, strict=True)]
    body.inputs.clear()
    put_out(inner, body, [*_or_zeros(inner, found, starts), *total, *_or_zeros(inner, found, slices)])
    _remove_unused(body)
    needed = _needed(walk, xs)
    body.inputs.extend([*dends, *sums, *(xs[k] for k in needed), *dstacked.values()])
    return body, needed


def _keep(op: Op, walk: _Walk, needed: Sequence[int]) -> list[_Scanned]:
    """Return the inputs of the body at each iteration; inputs not saved yet become outputs of the forward pass."""
    node, start = walk.node, len(walk.node.outputs)
    known = {k: _Scanned(x, 0, 0) for k, x in node.meta.get(STATES, {}).items()}
    saved = {k: walk.saved[k] or known.get(k) for k in needed}
    values = [walk.body.inputs[k] for k, x in saved.items() if x is None]
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
    return [x or _Scanned(next(kept), 0, 0) for x in saved.values()]


def _needed(walk: _Walk, xs: Sequence[ir.Value]) -> list[int]:
    """Return the inputs `xs` of the body that the backward pass reads; a Scan needs one to know how often it runs."""
    used = [k for k in walk.saved if xs[k].uses()]
    return used if used or walk.dscans else [next(iter(walk.saved))]


def _remove_unused(body: ir.Graph) -> None:
    for node in reversed(list(body)):
        if not any(y.uses() or y.is_graph_output() for y in node.outputs):
            body.remove(node, safe=True)


def _check_tensors(walk: _Walk) -> None:
    for x in walk.body.inputs:
        if not isinstance(x.type, ir.TensorType):
            raise GradientError(
                f"{walk.node.op_type} (node {walk.node.name!r}) carries {x.name!r}, which is not a tensor and has no "
                "derivative here. Carry tensors, or do not train the weights before this node."
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
