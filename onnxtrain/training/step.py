"""One training step as one graph: take the rows, loss, gradient, optimizer.

The graph of :func:`build_step` reads the data, the learning rate, the penalties
and the state, and writes the next state. The state holds the weights, the memory
of the optimizer, the number of the step, where the epoch stands and the sum of
its losses: within an epoch a run of the graph needs nothing from the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import onnx_ir as ir

from onnxtrain.grad_helper import gradients
from onnxtrain.loss_helper import add_penalty
from onnxtrain.optim import clip_by_global_norm
from onnxtrain.training.objective import Objective, ObjectiveGraph


class Wire(NamedTuple):
    """One value of the state: the input that reads it, the output that writes it."""

    input: str
    output: str


@dataclass(frozen=True)
class BatchGraph:
    """A graph on the rows of a batch: the losses of the rows, or their sum and its gradients.

    Attributes
    ----------
    onnx : bytes
    features : mapping of str to str
        For each input of the user's model the input that takes its rows.
    inputs : mapping of str to str
        The names of ``label`` and, where rows are weighted, ``weight``.
    dtype : onnx_ir.DataType
        Of the weights and all real numbers.
    """

    onnx: bytes = field(repr=False)
    features: Mapping[str, str]
    inputs: Mapping[str, str]
    dtype: ir.DataType


@dataclass(frozen=True)
class StepGraph(BatchGraph):
    """A training step.

    ``features``, ``label`` and ``weight`` take all rows where ``inputs`` names
    ``rows`` (the order in which they are visited, int64 (n,)) and ``batch_size``
    (int64 (1,)), else the rows of the batch. ``inputs`` also names the scalars
    ``learning_rate``, ``l1`` and ``l2``; what the step does not have is missing.

    Attributes
    ----------
    state : mapping of tuple to Wire
        ``("weight", w)``; ``("slot", w, slot)``; ``("step",)`` counts from 1;
        ``("offset",)``, where the batch starts in ``rows``; ``("loss_sum",)``, the sum
        over the epoch of the objective times the weight of its batch.
    """

    state: Mapping[tuple[str, ...], Wire] = field(default_factory=dict)


@lru_cache(maxsize=64)
def build_step(
    objective: Objective, optimizer: Any, *, clip_norm: float | None, gathered: bool, weighted: bool, l1: bool, l2: bool
) -> StepGraph:
    """Return the training step of an objective with an optimizer.

    Parameters
    ----------
    objective : Objective
    optimizer : SGD, Adam, ...
    clip_norm : float, optional
        The largest norm of all gradients together.
    gathered : bool
        The step takes its rows from all of them; otherwise it is given those of the batch.
    weighted : bool
        There are sample weights.
    l1, l2 : bool
        There is such a penalty on ``objective.penalized``; its strength is an input.
    """
    g = ObjectiveGraph(objective, weighted=weighted)
    op = g.op
    scalars = {name: g.add_input(name, ()) for name in ["learning_rate", *["l1"] * l1, *["l2"] * l2]}
    step, loss_sum = g.add_input("step", ()), g.add_input("loss_sum", ())

    mean, total = _weighted_mean(g)
    value = _add_penalties(g, mean, objective, scalars.get("l1", 0.0), scalars.get("l2", 0.0))
    dws = gradients(g.model, value, g.weights)
    if clip_norm is not None:
        dws = clip_by_global_norm(op, dws, clip_norm)

    state: dict[tuple[str, ...], tuple[ir.Value, ir.Value]] = {
        ("step",): (step, op.Add(step, 1.0)),
        ("loss_sum",): (loss_sum, op.Add(loss_sum, op.Mul(value, total))),
    }
    memory = [tuple(g.add_input(f"{w.name}.{slot}", w.shape) for slot in optimizer.slots) for w in g.weights]
    # a decay of the weights is a penalty: it spares the same intercepts
    decays = [w.name in objective.penalized for w in g.weights]
    updates = optimizer.update_all(op, g.weights, dws, memory, scalars["learning_rate"], step, decays=decays)
    for w, slots, (new_w, new_slots) in zip(g.weights, memory, updates, strict=True):
        state["weight", str(w.name)] = w, new_w
        for slot, old, new in zip(optimizer.slots, slots, new_slots, strict=True):
            state["slot", str(w.name), slot] = old, new

    inputs = _named(scalars | {"label": g.label} | ({"weight": g.weight} if g.weight is not None else {}))
    features = {str(x.name): str(x.name) for x in g.features}
    if gathered:
        rows, batch_size, offset, next_offset, whole = _take_rows(g)
        state["offset",] = offset, next_offset
        inputs |= _named({"rows": rows, "batch_size": batch_size})
        inputs |= {role: whole[name] for role, name in inputs.items() if name in whole}
        features = {name: whole[name] for name in features}

    wires = {key: Wire(str(old.name), g.unique(f"next_{old.name}")) for key, (old, _) in state.items()}
    onx = g.save([(wires[key].output, new) for key, (_, new) in state.items()])
    return StepGraph(onx, features, inputs, g.dtype, wires)


@lru_cache(maxsize=64)
def build_row_losses(objective: Objective) -> BatchGraph:
    """Return the graph of the losses of the rows, output ``losses`` (n, 1): no sample weights, no penalties."""
    g = ObjectiveGraph(objective, weighted=False)
    onx = g.save([(g.unique("losses"), g.losses)])
    return BatchGraph(onx, {str(x.name): str(x.name) for x in g.features}, _named({"label": g.label}), g.dtype)


@lru_cache(maxsize=64)
def build_loss_and_gradient(objective: Objective) -> BatchGraph:
    """Return the graph of the weighted sum of the losses of the rows, then its gradient for each weight."""
    g = ObjectiveGraph(objective, weighted=True)
    value = g.op.ReduceSum(g.op.Mul(g.losses, g.weight), keepdims=0)
    dws = gradients(g.model, value, g.weights)
    outputs = [(g.unique("loss"), value)]
    outputs += [(g.unique(f"{w.name}_grad"), dw) for w, dw in zip(g.weights, dws, strict=True)]
    inputs = _named({"label": g.label, "weight": g.weight})
    return BatchGraph(g.save(outputs), {str(x.name): str(x.name) for x in g.features}, inputs, g.dtype)


def _named(values: Mapping[str, ir.Value | None]) -> dict[str, str]:
    return {role: str(value.name) for role, value in values.items() if value is not None}


def _weighted_mean(g: ObjectiveGraph) -> tuple[ir.Value, ir.Value]:
    """Return the mean loss of the batch and the weight of the batch, scalars."""
    op = g.op
    if g.weight is None:
        total = op.Cast(op.Size(g.losses), to=g.dtype)
        return op.Div(op.ReduceSum(g.losses, keepdims=0), total), total
    total = op.ReduceSum(g.weight, keepdims=0)
    return op.Div(op.ReduceSum(op.Mul(g.losses, g.weight), keepdims=0), total), total


def _add_penalties(
    g: ObjectiveGraph, value: ir.Value, objective: Objective, l1: ir.Value | float, l2: ir.Value | float
) -> ir.Value:
    for w in g.weights:
        terms = [(l1, l2)] if w.name in objective.penalized else []
        terms += [(own1, own2) for name, own1, own2 in objective.penalty if name == w.name]
        for a, b in terms:
            if isinstance(a, ir.Value) or isinstance(b, ir.Value) or a or b:
                value = g.op.Add(value, add_penalty(g.op, w, a, b))
    return value


def _take_rows(g: ObjectiveGraph) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value, dict[str, str]]:
    """Let the graph take the rows of the batch from all of them.

    Returns the inputs ``rows``, ``batch_size`` and ``offset``, the next offset, and for
    each input that takes rows the name of the one that takes all.
    """
    op = g.op
    rows = g.add_input("rows", ["n_rows"], ir.DataType.INT64)
    batch_size = g.add_input("batch_size", (1,), ir.DataType.INT64)
    offset = g.add_input("offset", (1,), ir.DataType.INT64)
    next_offset = op.Add(offset, batch_size)
    chosen = op.Slice(rows, offset, next_offset)
    whole = {}
    for x in g.data:
        everything = g.add_input(f"all_{x.name}", ["n_rows", *x.shape[1:]], x.dtype)  # type: ignore[index]
        taken = op.Gather(everything, chosen, axis=0)
        taken.shape = x.shape
        ir.convenience.replace_all_uses_with(x, taken)
        g.model.graph.inputs.remove(x)
        whole[str(x.name)] = str(everything.name)
    return rows, batch_size, offset, next_offset, whole
