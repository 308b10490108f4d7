"""One training step as one graph: take the rows, loss, gradient, optimizer.

The graph of :func:`build_step` reads the data, the learning rate, the penalties
and the state, and writes the next state. The state holds the weights, the memory
of the optimizer, the number of the step, where the epoch stands and the sum of
its losses: within an epoch a run of the graph needs nothing from the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import onnx_ir as ir

from onnxtrain.grad_helper import gradients
from onnxtrain.graph import rank, scan, static_shape, tensor
from onnxtrain.loss_helper import add_penalty
from onnxtrain.optim import Proximal, clip_factor
from onnxtrain.training.lean import lines_by_product, make_lean, signs_by_bounds
from onnxtrain.training.objective import Objective, ObjectiveGraph
from onnxtrain.training.packing import Packed, Part, alone, pack_weights

#: Names of weights, those together whose penalty has one strength.
Groups: TypeAlias = "tuple[tuple[str, ...], ...]"

#: What the loss is multiplied by before its gradient is taken: float16 has nothing below 6e-8.
_SCALES: dict[ir.DataType | None, float] = {ir.DataType.FLOAT16: 2.0**10}

#: For each product of a model its gradient has two: for the one operand, and for the other.
_WITH_GRADIENT = 3

#: Multiplications in the time in which a number of a weight, or of the memory of an optimizer, is brought up to date.
_PER_NUMBER = 24


class Wire(NamedTuple):
    """One value of the state: the input that reads it, the output that writes it, the part of both that it is."""

    input: str
    output: str
    part: Part | None = None


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
    multiplications : float
        For one row, about.
    besides : float
        What a run does whatever its rows, as so many multiplications: an optimizer moves the weights.
    """

    onnx: bytes = field(repr=False)
    features: Mapping[str, str]
    inputs: Mapping[str, str]
    dtype: ir.DataType
    multiplications: float
    besides: float = 0.0


@dataclass(frozen=True)
class StepGraph(BatchGraph):
    """A training step.

    ``features``, ``label`` and ``weight`` take all rows where ``inputs`` names
    ``rows`` (the order in which they are visited, int64 (n,)) and ``batch_size``
    (int64 (1,)), else the rows of the batch. With them may come ``ones``, as many as the
    batch has rows, (1, b), and on a GPU ``places``, 0, 1, ... up to the size of the batch; what the
    step does not have is missing. ``numbers`` holds what the host knows of a step beforehand, a row for
    each step: many rows where the step takes its own from all, else one.

    Attributes
    ----------
    state : mapping of tuple to Wire
        ``("weight", w)``; ``("slot", w, slot)``; ``("loss_sum",)``, the sum over the epoch of
        the objective times the weight of its batch. Where it takes all rows: ``("offset",)``,
        where the batch starts in ``rows``; ``("index",)``, the row of ``numbers``.
    numbers : tuple of str
        The columns of that input: ``share``, one over the weight of the batch; ``scalar_0``, ``scalar_1``, ...,
        those of ``optimizer.scalar_table``; ``l1_0``, ..., ``l2_0``, ..., the strengths of the penalties.
    constants : tuple of str
        The inputs that are the same for all rows and all steps.
    """

    state: Mapping[tuple[str, ...], Wire] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def build_step(
    objective: Objective,
    optimizer: Any,
    *,
    clip_norm: float | None,
    gathered: bool,
    weighted: bool,
    l1: Groups = (),
    l2: Groups = (),
    builder: str = "builtin",
    products: ir.DataType | None = None,
    on_gpu: bool = False,
) -> StepGraph:
    """Return the training step of an objective with an optimizer.

    Parameters
    ----------
    objective : Objective
    optimizer : SGD, Adam, ...
        With :class:`~onnxtrain.optim.Proximal` l1 is in the loss that is reported, not in the gradient.
    clip_norm : float, optional
        The largest norm of all gradients together.
    gathered : bool
        The step takes its rows from all of them; otherwise it is given those of the batch.
    weighted : bool
        There are sample weights.
    l1, l2 : tuple of tuple of str
        The weights under such a penalty, in groups of one strength, which is known at run time.
    builder : {"builtin", "onnxruntime-training"}
        Who derives the gradient.
    products : onnx_ir.DataType, optional
        What matrix products and convolutions compute in, where that is not the type of the weights.
    on_gpu : bool
        Only operators that it can record, and no operands that must lie on the host.
    """
    g = ObjectiveGraph(objective, weighted=weighted, products=products)
    op = g.op
    l1_of, l2_of = _columns("l1", l1), _columns("l2", l2)
    names = _names_of_numbers(optimizer, l1_of, l2_of)
    table, numbers, state = _take_numbers(g, names, gathered=gathered, on_gpu=on_gpu)

    proximal = isinstance(optimizer, Proximal)
    value, sum_ = _objective_of_batch(g, numbers, l1_of, l2_of, with_l1=not proximal)
    dws = _gradients(g, value, builder=builder, scale=_SCALES.get(products, 1.0))
    kinds = [_kind(str(w.name), objective, optimizer, l1_of) for w in g.weights]
    # SGD's two nodes are fewer than packing, which takes operators that a GPU does not record
    packs = optimizer.slots and not on_gpu
    units = pack_weights(g, dws, kinds) if packs else list(map(alone, g.weights, dws, kinds))
    loss_sum = g.add_input("loss_sum", (1, 1))
    state["loss_sum",] = State(loss_sum, op.Add(loss_sum, sum_))
    state |= _move_weights(g, optimizer, units, numbers, clip_norm)

    inputs = _named({"label": g.label, "weight": g.weight, "numbers": table})
    features = {str(x.name): str(x.name) for x in g.features}
    ones = g.add_input("ones", (1, g.losses.shape[0])) if gathered else None  # type: ignore[index]
    make_lean(op, g.model.graph, g.losses, ones)
    if not on_gpu:
        lines_by_product(op, g.model.graph)
        signs_by_bounds(op, g.model.graph)
    if gathered:
        taken, offset, next_offset, whole = _take_rows(g, on_gpu=on_gpu)
        state["offset",] = State(offset, next_offset)
        inputs |= _named(taken | {"ones": ones})
        inputs |= {role: whole[name] for role, name in inputs.items() if name in whole}
        features = {name: whole[name] for name in features}

    outputs = {x.new: g.unique(f"next_{x.old.name}") for x in state.values()}
    onx = g.save([(name, value) for value, name in outputs.items()])
    wires = {key: Wire(str(x.old.name), outputs[x.new], x.part) for key, x in state.items()}
    read = {str(v.name) for v in g.model.graph.inputs}
    inputs = {role: name for role, name in inputs.items() if name in read}
    constants = tuple(str(x.name) for x in g.constants)
    return StepGraph(onx, features, inputs, g.dtype, *_work(g, optimizer), wires, names, constants)


def _work(g: ObjectiveGraph, optimizer: Any) -> tuple[float, float]:
    """Return what a step multiplies for one row, and what it does besides."""
    n_numbers = sum(math.prod(static_shape(w) or ()) for w in g.weights) * (1 + len(optimizer.slots))
    return _WITH_GRADIENT * g.multiplications, _PER_NUMBER * n_numbers


class State(NamedTuple):
    """A value of the state in the graph: before and after the step, and which part of both it is."""

    old: ir.Value
    new: ir.Value
    part: Part | None = None


def _gradients(g: ObjectiveGraph, value: ir.Value, *, builder: str, scale: float) -> list[ir.Value]:
    """Return the gradient of the objective for each weight, taken of `scale` times the objective."""
    if scale == 1:
        return gradients(g.model, value, g.weights, builder=builder)
    return [g.op.Mul(dw, 1 / scale) for dw in gradients(g.model, g.op.Mul(value, scale), g.weights, builder=builder)]


def _move_weights(
    g: ObjectiveGraph,
    optimizer: Any,
    units: Sequence[Packed],
    numbers: Mapping[str, ir.Value],
    clip_norm: float | None,
) -> dict[tuple[str, ...], State]:
    """Return each weight and the memory of the optimizer, before and after the step."""
    op, dws = g.op, [unit.gradient for unit in units]
    factor = clip_factor(op, dws, clip_norm) if clip_norm is not None and dws else None
    state: dict[tuple[str, ...], State] = {}
    for unit in units:
        w, dw = unit.value, unit.gradient
        axes = (rank(w) or 0) - (unit.rows > 1)  # what is moved at once is a row of several
        met = {name: _with_axes(op, x, axes) for name, x in numbers.items()}
        move = _mover(g, optimizer, unit.kind, met, factor)
        old = [g.add_input(f"{w.name}.{slot}", w.shape) for slot in optimizer.slots]
        new_w, *new = move(op, w, dw, *old) if unit.rows == 1 else scan(op, move, [w, dw, *old])
        for name, part in unit.parts.items():
            state["weight", name] = State(w, new_w, part)
            state |= {
                ("slot", name, slot): State(v, new_v, part)
                for slot, v, new_v in zip(optimizer.slots, old, new, strict=True)
            }
    return state


def _mover(
    g: ObjectiveGraph,
    optimizer: Any,
    kind: _Kind,
    numbers: Mapping[str, ir.Value],
    factor: ir.Value | None,
) -> Callable[..., list[ir.Value]]:
    """Return ``move(op, w, dw, *slots) -> [w, *slots]``, for all of a weight or any part of it."""
    scalars = [x for name, x in numbers.items() if name.startswith("scalar")]
    slope = None if kind.l1 is None else numbers[kind.l1]
    if slope is not None and factor is not None:  # the gradient and the slope of l1 must balance as without clipping
        slope = g.op.Mul(slope, factor)
    l1_slope = {} if slope is None else {"l1": slope}

    def move(op: Any, w: ir.Value, dw: ir.Value, *slots: ir.Value) -> list[ir.Value]:
        dw = dw if factor is None else op.Mul(dw, factor)
        new_w, new_slots = optimizer.move(op, w, dw, slots, *scalars, decays=kind.decays, **l1_slope)
        return [new_w, *new_slots]

    return move


def _take_numbers(
    g: ObjectiveGraph, names: Sequence[str], *, gathered: bool, on_gpu: bool
) -> tuple[ir.Value, dict[str, ir.Value], dict[tuple[str, ...], State]]:
    """Let the graph take the numbers of the step, (1, 1) each.

    Returns the input that holds them; the numbers by name; the state that says where they are.
    """
    op = g.op
    table = g.add_input("numbers", ["n_steps" if gathered else 1, len(names)])
    row = table
    state: dict[tuple[str, ...], State] = {}
    if gathered:
        index = g.add_input("index", (1,), ir.DataType.INT64)
        state["index",] = State(index, op.Add(index, op.initializer(tensor([1], name="one"))))
        row = op.Gather(table, index)
    if on_gpu:  # Split cannot be recorded
        pieces = [op.Gather(row, op.initializer(tensor([i], name="column")), axis=1) for i in range(len(names))]
    else:
        pieces = op.Split(row, op.initializer(tensor([1] * len(names), name="sizes")), axis=1, _outputs=len(names))
    return table, dict(zip(names, pieces, strict=True)), state


def _with_axes(op: Any, number: ir.Value, n: int) -> ir.Value:
    """Return a number that leaves the shape of what has n axes as it is: () for fewer than the two it has."""
    return number if n > 1 else op.Squeeze(number, op.initializer(tensor([0, 1], name="axes")))


@lru_cache(maxsize=64)
def build_row_losses(objective: Objective) -> BatchGraph:
    """Return the graph of the losses of the rows, output ``losses`` (n, 1): no sample weights, no penalties."""
    g = ObjectiveGraph(objective, weighted=False)
    onx = g.save([(g.unique("losses"), g.losses)])
    return graph_of(g, onx, _named({"label": g.label}))


@lru_cache(maxsize=64)
def build_loss_and_gradient(objective: Objective, builder: str = "builtin") -> BatchGraph:
    """Return the graph of the weighted sum of the losses of the rows, then its gradient for each weight."""
    g = ObjectiveGraph(objective, weighted=True)
    value = g.op.ReduceSum(g.op.Mul(g.losses, g.weight), keepdims=0)
    dws = gradients(g.model, value, g.weights, builder=builder)
    outputs = [(g.unique("loss"), value)]
    outputs += [(g.unique(f"{w.name}_grad"), g.op.Identity(dw)) for w, dw in zip(g.weights, dws, strict=True)]
    make_lean(g.op, g.model.graph, g.losses)  # may replace a gradient, not what reads it
    inputs = _named({"label": g.label, "weight": g.weight})
    return graph_of(g, g.save(outputs), inputs, _WITH_GRADIENT)


def graph_of(g: ObjectiveGraph, onx: bytes, inputs: Mapping[str, str], times: int = 1) -> BatchGraph:
    """Return a graph that was made of an objective, which takes the rows of a batch, and `times` its products."""
    return BatchGraph(onx, {str(x.name): str(x.name) for x in g.features}, inputs, g.dtype, times * g.multiplications)


def _named(values: Mapping[str, ir.Value | None]) -> dict[str, str]:
    return {role: str(value.name) for role, value in values.items() if value is not None}


def _columns(factor: str, groups: Groups) -> dict[str, str]:
    """Return for each weight of some groups the column that holds the strength of its penalty."""
    return {weight: f"{factor}_{i}" for i, group in enumerate(groups) for weight in group}


def _names_of_numbers(optimizer: Any, *strengths: Mapping[str, str]) -> tuple[str, ...]:
    n_scalars = optimizer.scalar_table([1.0], [1]).shape[1]
    columns = dict.fromkeys(column for of in strengths for column in of.values())
    return "share", *(f"scalar_{i}" for i in range(n_scalars)), *columns


class _Kind(NamedTuple):
    """How an optimizer moves a weight: does it decay; the column of the threshold that is on it."""

    decays: bool
    l1: str | None = None


def _kind(name: str, objective: Objective, optimizer: Any, l1_of: Mapping[str, str]) -> _Kind:
    # a decay of the weights is a penalty: it spares the same intercepts
    decays = not optimizer.spares_intercepts or name in objective.penalized
    return _Kind(decays, l1_of.get(name) if isinstance(optimizer, Proximal) else None)


def _objective_of_batch(
    g: ObjectiveGraph,
    numbers: Mapping[str, ir.Value],
    l1_of: Mapping[str, str],
    l2_of: Mapping[str, str],
    *,
    with_l1: bool,
) -> tuple[ir.Value, ir.Value]:
    """Return the objective on the batch, l1 in it or not, and all of it times the weight of the batch; (1, 1).

    The share is one over that weight: then the gradient of each loss is multiplied by it as it is.
    """
    op, share = g.op, numbers["share"]
    losses = g.losses if g.weight is None else op.Mul(g.losses, g.weight)
    sum_ = op.ReduceSum(losses)
    mean = op.Mul(sum_, share)
    penalty = _penalties(g, numbers, l1_of, l2_of)
    smooth = penalty if with_l1 else _penalties(g, numbers, {}, l2_of)
    value = mean if smooth is None else op.Add(mean, smooth)
    return value, sum_ if penalty is None else op.Add(sum_, op.Div(penalty, share))


def _penalties(
    g: ObjectiveGraph, numbers: Mapping[str, ir.Value], l1_of: Mapping[str, str], l2_of: Mapping[str, str]
) -> ir.Value | None:
    found = []
    for w in g.weights:
        columns = [of.get(str(w.name)) for of in (l1_of, l2_of)]
        if any(columns):
            axes = rank(w) or 0
            factors = (0.0 if column is None else _with_axes(g.op, numbers[column], axes) for column in columns)
            found.append(add_penalty(g.op, w, *factors, keepdims=axes == 2))
    return None if not found else found[0] if len(found) == 1 else g.op.Sum(*found)


def _take_rows(g: ObjectiveGraph, *, on_gpu: bool) -> tuple[dict[str, ir.Value], ir.Value, ir.Value, dict[str, str]]:
    """Let the graph take the rows of the batch from all of them.

    Returns the inputs ``rows``, ``batch_size`` and, for a GPU, ``places``; the offset and the
    next offset; for each input that takes rows the name of the one that takes all.
    """
    op = g.op
    rows = g.add_input("rows", ["n_rows"], ir.DataType.INT64)
    batch_size = g.add_input("batch_size", (1,), ir.DataType.INT64)
    offset = g.add_input("offset", (1,), ir.DataType.INT64)
    next_offset = op.Add(offset, batch_size)
    inputs = {"rows": rows, "batch_size": batch_size}
    if on_gpu:  # Slice wants its bounds on the host
        inputs["places"] = g.add_input("places", ["batch"], ir.DataType.INT64)
        chosen = op.Gather(rows, op.Add(offset, inputs["places"]))
    else:
        chosen = op.Slice(rows, offset, next_offset)
    whole = {}
    for x in g.data:
        everything = g.add_input(f"all_{x.name}", ["n_rows", *x.shape[1:]], x.dtype)  # type: ignore[index]
        taken = op.Gather(everything, chosen, axis=0)
        taken.shape = x.shape
        ir.convenience.replace_all_uses_with(x, taken)
        g.model.graph.inputs.remove(x)
        whole[str(x.name)] = str(everything.name)
    return inputs, offset, next_offset, whole
