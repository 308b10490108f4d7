"""One training step as one graph: gathering of rows, loss, gradient, optimizer.

The graph of :func:`build_step` reads the data, the learning rate, the penalties and the state, and writes the next
state. The state holds the weights, the optimizer slots, the step index, the position in the epoch and the sum of its
losses. So within an epoch a run of the graph needs nothing from the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import onnx_ir as ir

from onnxtrain.cache import cached
from onnxtrain.errors import ModelError
from onnxtrain.grad_helper import gradients
from onnxtrain.graph import Op, rank, scan, static_shape, tensor, with_lengths
from onnxtrain.loss_helper import add_penalty
from onnxtrain.optim import Optimizer, Proximal, global_norm_factor
from onnxtrain.optim.base import updated
from onnxtrain.runtime.device import CAPABILITIES, Capabilities
from onnxtrain.training.objective import (
    WITH_GRADIENT,
    BatchGraph,
    Objective,
    ObjectiveGraph,
    OpenGraph,
    named,
    rewrite_locally,
)
from onnxtrain.training.packing import Packed, Part, alone, may_be_written_over, pack_weights, rows_may_be_written_over

#: Groups of names of weights with a common penalty strength.
Groups: TypeAlias = "tuple[tuple[str, ...], ...]"

K = TypeVar("K")

#: The loss scale, applied before differentiation: the smallest float16 is 6e-8.
_SCALES: dict[ir.DataType | None, float] = {ir.DataType.FLOAT16: 2.0**10}

#: The cost of updating an element of a weight or of an optimizer slot, in multiplications.
_PER_ELEMENT = 24


class Wire(NamedTuple):
    """A value of the state: the input that reads it, the output that writes it, and its part of both."""

    input: str
    output: str
    part: Part | None = None


@dataclass(frozen=True)
class StepGraph(BatchGraph):
    """A training step.

    Inputs on the left, outputs on the right. (g): only of a gathered step, which selects the rows of its batch itself::

        features, label, weight                --->+--------+
        rows (n,), batch_size (1,)         (g) --->|        |
        ones (1, b), batch_positions (b,)  (g) --->|        |
        constants                              --->|        |
        scalars (n_steps, k), or (1, k)        --->|  step  |
        - - - - - - - - - - - - - - - - - - - - - -|        |- - - - - - - - - - - - -
        weights, small ones packed             --->|        |---> next_ weights
        slots of the optimizer                 --->|        |---> next_ slots
        loss_sum (1, 1)                        --->|        |---> next_loss_sum
        offset (1,), index (1,)            (g) --->+--------+---> next_offset, next_index

    Below the line is the state. :class:`~onnxtrain.training.bound.BoundStep` holds two sets
    of buffers for it, and a turn t that each run flips: it reads set t and writes set 1 - t, so that no run
    copies its state and none writes a buffer that it reads::

        t = 0:  set 0 ---> step ---> set 1
        t = 1:  set 1 ---> step ---> set 0

    An input of ``in_place`` has one buffer: the step overwrites optimizer slots, and the rows of a table that it
    updates. One buffer of large weights may stay in a cache in which two do not fit.

    Between runs the host reads and overwrites set t, the state written last. The last batch of an epoch binds other
    ``ones`` and ``batch_positions`` if it is smaller: two turns and two lengths make four bindings, each made when
    first used.

    In a gathered step, ``features``, ``label`` and ``weight`` take all n rows, and ``inputs`` names ``rows`` (the
    order in which they are visited, int64 (n,)) and ``batch_size`` (int64 (1,)); otherwise they take the b rows of
    the batch. ``batch_positions`` is 0, 1, ..., b - 1, on devices on which the rows are not sliced. An input that the
    step does not read, such as one of which the loss needs the shape only, is absent. ``scalars`` holds the per-step
    scalars, one row per step; a gathered step selects its row by ``index``, otherwise there is one row.

    Attributes
    ----------
    weights : mapping of str to Wire
    slots : mapping of (weight, slot) to Wire
    counters : mapping of str to Wire
        The rest of the state, initially 0: ``"loss_sum"``, the sum over the epoch of the objective times the weight of
        its batch. In a gathered step also ``"offset"``, the start of the batch in ``rows``, and ``"index"``, the row of
        ``scalars``.
    step_scalars : tuple of str
        The columns of the input ``scalars``: ``share``, one over the weight of the batch; ``scalar_0``, ``scalar_1``
        and so on, the columns of ``optimizer.scalar_table``; ``l1_0`` and so on and ``l2_0`` and so on, the strengths
        of the penalties.
    constants : tuple of str
        The inputs that are the same for all rows and all steps.
    in_place : frozenset of str
        The inputs of the state that their next values may overwrite: slots, and tables of which SGD updates some rows.

    A step may end with the gradients (``build_step(..., batches=k)``), from which an
    :class:`~onnxtrain.training.update.UpdateGraph` continues. Then the weights are only read and their ``output`` is
    empty. The only slot is ``"gradient"``, whose ``input`` is empty unless the gradients of several batches are summed.
    """

    weights: Mapping[str, Wire] = field(default_factory=dict)
    slots: Mapping[tuple[str, str], Wire] = field(default_factory=dict)
    counters: Mapping[str, Wire] = field(default_factory=dict)
    step_scalars: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    in_place: frozenset[str] = frozenset()

    @property
    def gathered(self) -> bool:
        """Whether the step gathers the rows of its batch itself."""
        return "rows" in self.inputs

    @property
    def batch_inputs(self) -> dict[str, int]:
        """The inputs that have a batch axis, and the index of this axis."""
        roles = {"batch_positions": 0, "ones": 1} if self.gathered else {"label": 0, "weight": 0}
        rows = {} if self.gathered else dict.fromkeys(self.features.values(), 0)
        return rows | {self.inputs[role]: axis for role, axis in roles.items() if role in self.inputs}

    def of_length(self, n: int) -> bytes:
        """Return the graph for batches of n rows, in which onnxruntime can precompute shapes."""
        return with_lengths(self.onnx, {name: (axis, n) for name, axis in self.batch_inputs.items()})

    @property
    def state(self) -> dict[str, str]:
        """The output that writes each input of the state."""
        wires = (*self.weights.values(), *self.slots.values(), *self.counters.values())
        return {wire.input: wire.output for wire in wires if wire.input and wire.output}


@cached
def build_step(
    objective: Objective,
    optimizer: Optimizer,
    *,
    clip_norm: float | None,
    gathered: bool,
    weighted: bool,
    l1: Groups = (),
    l2: Groups = (),
    builder: str = "builtin",
    products: ir.DataType | None = None,
    capabilities: Capabilities = CAPABILITIES["cpu"],
    batches: int | None = None,
) -> StepGraph:
    """Return the training step of an objective with an optimizer.

    Parameters
    ----------
    objective : Objective
    optimizer : SGD, Adam, ...
        With :class:`~onnxtrain.optim.Proximal`, the reported loss contains l1, but the gradient does not.
    clip_norm : float, optional
        The largest global norm of the gradients.
    gathered : bool
        Whether the step gathers the rows of its batch from all rows; otherwise it is fed the rows of the batch.
    weighted : bool
        Whether there are sample weights.
    l1, l2 : tuple of tuple of str
        The penalized weights, in groups of a common strength, which is an input.
    builder : {"builtin", "onnxruntime-training"}
        The gradient builder.
    products : onnx_ir.DataType, optional
        The type in which matrix products and convolutions are computed, if it differs from that of the weights.
    capabilities : Capabilities
        The capabilities of the device that runs the step.
    batches : int, optional
        If given, the step ends with the gradients, summed over this number of batches, and updates no weight.
    """
    g = ObjectiveGraph(objective, weighted=weighted, products=products)
    l1_of, l2_of = columns("l1", l1), columns("l2", l2)
    names = scalar_names(optimizer, l1_of, l2_of, sums=(batches or 1) > 1)
    table, scalars, counters = take_scalars(g, names, gathered=gathered, splits=not capabilities.records_runs)

    value, sum_ = objective_of_batch(g, scalars, l1_of, l2_of, with_l1=not isinstance(optimizer, Proximal))
    dws = _gradients(g, value, builder, _SCALES.get(products, 1.0))
    loss_sum = g.add_input("loss_sum", (1, 1))
    counters["loss_sum"] = State(loss_sum, g.op.Add(loss_sum, sum_))
    if batches is None:
        units = _units(g, dws, objective, optimizer, l1_of, packs=capabilities.packs_weights)
        weights, slots = move_weights(g, optimizer, units, scalars, clip_norm)
    else:
        weights, slots = _sums(g, dws, scalars.get(KEPT))

    taken, offset = _take_rows(g, slices=capabilities.computed_bounds) if gathered else ({}, {})
    counters |= offset
    moved = [*counters.values(), *weights.values(), *slots.values()]
    outputs = _outputs(g, moved, taken.get("ones"), cpu_kernels=capabilities.cpu_kernels)
    in_place = frozenset() if batches or capabilities.holds_data else _in_place(weights, slots, outputs)
    onx = g.save(list(outputs.values()))
    read = {str(v.name) for v in g.model.graph.inputs}
    return StepGraph(
        onx,
        features=_read(g.features, read),
        inputs=_read({"scalars": table, **taken, "label": g.label, "weight": g.weight}, read),
        dtype=g.dtype,
        multiplications=WITH_GRADIENT * g.multiplications,
        fixed_cost=_fixed_cost(g, in_place, len(optimizer.slots)),
        weights=wires(weights, read, outputs),
        slots=wires(slots, read, outputs),
        counters=wires(counters, read, outputs),
        step_scalars=names,
        constants=tuple(str(x.name) for x in g.constants),
        in_place=in_place,
    )


def _fixed_cost(g: ObjectiveGraph, in_place: Container[str], n_slots: int) -> float:
    """Return the cost of a step that does not depend on the number of rows: that of moving weights and their slots."""
    n_moved = sum(math.prod(static_shape(w) or ()) for w in g.weights if w.name not in in_place)
    return _PER_ELEMENT * n_moved * (1 + n_slots)


def _read(values: Mapping[str, ir.Value | None], read: Container[str]) -> dict[str, str]:
    """Return the names of the values that are among the inputs `read` by the step."""
    return {role: name for role, name in named(values).items() if name in read}


def _gradients(g: ObjectiveGraph, loss: ir.Value, builder: str, scale: float) -> list[ir.Value]:
    """Return the gradients of the weights, computed from a scaled loss to avoid underflow in half precision."""
    dws = gradients(g.model, g.op.Mul(loss, scale) if scale > 1 else loss, g.weights, builder=builder)
    return [g.op.Mul(dw, 1 / scale) for dw in dws] if scale > 1 else dws


class State(NamedTuple):
    """A value of the state in the graph: before and after the step, and its part of both.

    ``new`` is None if the value is only read, ``old`` is None if it is only written.
    """

    old: ir.Value | None
    new: ir.Value | None
    part: Part | None = None


def _in_place(
    weights: Mapping[Any, State], slots: Mapping[Any, State], outputs: Mapping[ir.Value, tuple[str, ir.Value]]
) -> frozenset[str]:
    """Return the names of weights and slots that their next values may overwrite."""
    written = {new for _, new in outputs.values()}  # a next value may be the old value of another

    def pairs(states: Iterable[State]) -> list[tuple[ir.Value, ir.Value]]:
        # packed weights share their values
        found = dict.fromkeys((x.old, outputs[x.new][1]) for x in states if x.old is not None and x.new is not None)
        return [(old, new) for old, new in found if old not in written]

    tables = [old for old, new in pairs(weights.values()) if rows_may_be_written_over(old, new)]
    memory = [old for old, new in pairs(slots.values()) if may_be_written_over(old, new)]
    return frozenset(str(old.name) for old in (*tables, *memory))


def wires(
    states: Mapping[K, State], read: Container[str], outputs: Mapping[ir.Value, tuple[str, ir.Value]]
) -> dict[K, Wire]:
    """Return values of the state by name; a weight that is not updated may be missing from the inputs `read`."""
    found = {}
    for key, x in states.items():
        old = "" if x.old is None else str(x.old.name)
        if x.new is None:
            found[key] = Wire(old if old in read else "", "", x.part)
        else:
            found[key] = Wire(old, outputs[x.new][0], x.part)
    return found


def _units(
    g: ObjectiveGraph,
    dws: Sequence[ir.Value],
    objective: Objective,
    optimizer: Optimizer,
    l1_of: Mapping[str, str],
    *,
    packs: bool,
) -> list[Packed]:
    """Return the weights and gradients as units of update: small weights are packed if the device profits from it."""
    kinds = [kind_of(str(w.name), objective, optimizer, l1_of) for w in g.weights]
    if packs and optimizer.slots:  # SGD's two nodes are fewer than packing needs
        return pack_weights(g, dws, kinds)
    return list(map(alone, g.weights, dws, kinds))


def _outputs(
    g: ObjectiveGraph, moved: Sequence[State], ones: ir.Value | None, *, cpu_kernels: bool
) -> dict[ir.Value, tuple[str, ir.Value]]:
    """Return, for each next value of the state, its output name and its value after the peephole rewritings."""
    written = {x.new: "gradient" if x.old is None else f"next_{x.old.name}" for x in moved if x.new is not None}
    values, names = list(written), [g.unique(name) for name in written.values()]
    news = rewrite_locally(g.op, g.model.graph, g.losses, values, rows=g.label, ones=ones, cpu_kernels=cpu_kernels)
    return dict(zip(values, zip(names, news, strict=True), strict=True))


#: The weight of a batch; and a factor that is 0 for the first of several batches whose gradients are summed, else 1.
OF_BATCH, KEPT = "weight_of_batch", "kept"


def _sums(
    g: ObjectiveGraph, dws: Sequence[ir.Value], kept: ir.Value | None
) -> tuple[dict[str, State], dict[tuple[str, str], State]]:
    """Return the weights, unchanged, and their gradients, added to those of earlier batches if `kept` is given."""
    slots: dict[tuple[str, str], State] = {}
    for w, dw in zip(g.weights, dws, strict=True):
        old = None
        if kept is not None:
            old = g.add_input(f"{w.name}.gradient", w.shape)
            # the sum overwrites `old` element by element; with a factor of shape (1, 1) it could become a Gemm, which
            # writes its third operand first
            dw = g.op.Add(g.op.Mul(old, _with_axes(g.op, kept, 0)), dw)
        slots[str(w.name), "gradient"] = State(old, g.op.Identity(dw))  # two weights may share a gradient
    return {str(w.name): State(w, None) for w in g.weights}, slots


def move_weights(
    g: OpenGraph,
    optimizer: Optimizer,
    units: Sequence[Packed],
    scalars: Mapping[str, ir.Value],
    clip_norm: float | None,
) -> tuple[dict[str, State], dict[tuple[str, str], State]]:
    """Return the weights and the optimizer slots before and after the step."""
    op, dws = g.op, [unit.gradient for unit in units]
    factor = global_norm_factor(op, dws, clip_norm) if clip_norm is not None and dws else None
    weights: dict[str, State] = {}
    slots: dict[tuple[str, str], State] = {}
    for unit in units:
        w = unit.value
        axes = (rank(w) or 0) - (unit.rows > 1)  # a large weight is updated row by row
        move = _mover(g, unit.kind, {name: _with_axes(op, x, axes) for name, x in scalars.items()}, factor)
        old = [w, *(g.add_input(f"{w.name}.{slot}", w.shape) for slot in optimizer.slots)]
        new = move(op, w, unit.gradient, *old[1:]) if unit.rows == 1 else scan(op, move, [w, unit.gradient, *old[1:]])
        for name, part in unit.parts.items():
            moved, *memory = (State(before, after, part) for before, after in zip(old, new, strict=True))
            weights[name] = moved
            slots |= {(name, slot): x for slot, x in zip(optimizer.slots, memory, strict=True)}
    return weights, slots


def _mover(
    g: OpenGraph,
    kind: Kind,
    scalars: Mapping[str, ir.Value],
    factor: ir.Value | None,
) -> Callable[..., list[ir.Value]]:
    """Return ``move(op, w, dw, *slots) -> [w, *slots]`` for a whole weight or a part of it."""
    own = [x for name, x in scalars.items() if name.startswith("scalar")]
    strength = None if kind.l1 is None else scalars[kind.l1]
    if strength is not None and factor is not None:  # balanced as without clipping
        strength = g.op.Mul(strength, factor)
    l1 = {} if strength is None else {"l1": strength}

    def move(op: Op, w: ir.Value, dw: ir.Value, *slots: ir.Value) -> list[ir.Value]:
        dw = dw if factor is None else op.Mul(dw, factor)
        return updated(kind.optimizer, op, w, dw, slots, *own, **l1)

    return move


def take_scalars(
    g: OpenGraph, names: Sequence[str], *, gathered: bool, splits: bool
) -> tuple[ir.Value, dict[str, ir.Value], dict[str, State]]:
    """Add the per-step scalars to the graph as inputs, (1, 1) each.

    Returns the input that holds them, the scalars by name, and the counter of the current row.
    """
    op = g.op
    table = g.add_input("scalars", ["n_steps" if gathered else 1, len(names)])
    row = table
    counters: dict[str, State] = {}
    if gathered:
        index = g.add_input("index", (1,), ir.DataType.INT64)
        counters["index"] = State(index, op.Add(index, op.initializer(tensor([1], name="one"))))
        row = op.Gather(table, index)
    if splits:
        pieces = op.Split(row, op.initializer(tensor([1] * len(names), name="sizes")), axis=1, _outputs=len(names))
    else:
        pieces = [op.Gather(row, op.initializer(tensor([i], name="column")), axis=1) for i in range(len(names))]
    return table, dict(zip(names, pieces, strict=True)), counters


def _with_axes(op: Op, number: ir.Value, n: int) -> ir.Value:
    """Reshape a (1, 1) scalar so that it broadcasts to n axes without adding axes: () for fewer than two."""
    return number if n > 1 else op.Squeeze(number, op.initializer(tensor([0, 1], name="axes")))


def columns(factor: str, groups: Groups) -> dict[str, str]:
    """Return, for each weight of the groups, the column of its penalty strength."""
    return {weight: f"{factor}_{i}" for i, group in enumerate(groups) for weight in group}


def scalar_names(optimizer: Optimizer, *strengths: Mapping[str, str], sums: bool = False) -> tuple[str, ...]:
    """Return the names of the per-step scalars; with `sums`, the gradients of several batches are summed."""
    n_scalars = optimizer.scalar_table([1.0], [1]).shape[1]
    columns = dict.fromkeys(column for of in strengths for column in of.values())
    return "share", *(f"scalar_{i}" for i in range(n_scalars)), *((OF_BATCH, KEPT) if sums else ()), *columns


class Kind(NamedTuple):
    """How a weight is updated: the optimizer, and the column of the l1 strength of its threshold."""

    optimizer: Optimizer
    l1: str | None = None


def kind_of(name: str, objective: Objective, optimizer: Optimizer, l1_of: Mapping[str, str]) -> Kind:
    """Return how a weight is updated."""
    # like penalties, weight decay does not apply to intercepts
    own = optimizer if name in objective.penalized else optimizer.without_decay()
    return Kind(own, l1_of.get(name) if isinstance(optimizer, Proximal) else None)


def objective_of_batch(
    g: ObjectiveGraph,
    scalars: Mapping[str, ir.Value],
    l1_of: Mapping[str, str],
    l2_of: Mapping[str, str],
    *,
    with_l1: bool,
) -> tuple[ir.Value, ir.Value]:
    """Return the objective of the batch, with or without l1, and the whole objective times the batch weight.

    Both have the shape (1, 1).

    The scalar ``share`` is one over the weight of the batch, so that the gradient of each loss is multiplied by it
    directly. If the gradients of several batches are summed, it is one over their total weight, and each batch has its
    part of the penalty.
    """
    op, share = g.op, scalars["share"]
    losses = g.losses if g.weight is None else op.Mul(g.losses, g.weight)
    sum_ = op.ReduceSum(losses)
    mean = op.Mul(sum_, share)
    penalty = _penalties(g, scalars, l1_of, l2_of)
    smooth = penalty if with_l1 else _penalties(g, scalars, {}, l2_of)
    weight = scalars.get(OF_BATCH)
    if weight is None:
        value = mean if smooth is None else op.Add(mean, smooth)
        return value, sum_ if penalty is None else op.Add(sum_, op.Div(penalty, share))
    value = mean if smooth is None else op.Add(mean, op.Mul(smooth, op.Mul(weight, share)))
    return value, sum_ if penalty is None else op.Add(sum_, op.Mul(penalty, weight))


def _penalties(
    g: ObjectiveGraph, scalars: Mapping[str, ir.Value], l1_of: Mapping[str, str], l2_of: Mapping[str, str]
) -> ir.Value | None:
    found = []
    for w in g.weights:
        columns = [of.get(str(w.name)) for of in (l1_of, l2_of)]
        if any(columns):
            axes = rank(w) or 0
            factors = (0.0 if column is None else _with_axes(g.op, scalars[column], axes) for column in columns)
            found.append(add_penalty(g.op, w, *factors, keepdims=axes == 2))
    return None if not found else found[0] if len(found) == 1 else g.op.Sum(*found)


def _take_rows(g: ObjectiveGraph, *, slices: bool) -> tuple[dict[str, ir.Value], dict[str, State]]:
    """Gather the rows of a batch in the graph; its inputs for features, label and weight then hold all rows.

    Returns the inputs ``rows``, ``batch_size``, ``ones`` and, if the rows are not sliced, ``batch_positions``, and then
    the counter ``offset``.
    """
    op = g.op
    rows = g.add_input("rows", ["n_rows"], ir.DataType.INT64)
    batch_size = g.add_input("batch_size", (1,), ir.DataType.INT64)
    offset = g.add_input("offset", (1,), ir.DataType.INT64)
    next_offset = op.Add(offset, batch_size)
    ones = g.add_input("ones", (1, g.losses.shape[0]))  # type: ignore[index]
    inputs = {"rows": rows, "batch_size": batch_size, "ones": ones}
    if slices:
        chosen = op.Slice(rows, offset, next_offset)
    else:
        positions = inputs["batch_positions"] = g.add_input("batch_positions", ["batch"], ir.DataType.INT64)
        chosen = op.Gather(rows, op.Add(offset, positions))

    def all_of(x: ir.Value) -> ir.Value:
        if x.shape is None:
            raise ModelError(
                f"The number of axes of the input {x.name!r} is unknown. Declare the shapes of the inputs of the "
                "model; dimensions may stay symbolic."
            )
        whole = g.add_input(f"all_{x.name}", ["n_rows", *x.shape[1:]], x.dtype)
        taken = op.Gather(whole, chosen, axis=0)
        taken.shape = x.shape
        ir.convenience.replace_all_uses_with(x, taken, replace_graph_outputs=True)
        g.model.graph.inputs.remove(x)
        return whole

    g.features = {name: all_of(x) for name, x in g.features.items()}
    g.label, g.weight = all_of(g.label), None if g.weight is None else all_of(g.weight)
    return inputs, {"offset": State(offset, next_offset)}
