"""The update of the weights by an optimizer as a graph of its own, behind steps that end with gradients.

So the gradients of several batches are summed before one update. And weights and the memory of the optimizer, when they
are large, are written over: a step that reads one set of buffers and writes another has all of them twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.cache import cached
from onnxtrain.optim import Optimizer
from onnxtrain.runtime.device import CAPABILITIES, Capabilities
from onnxtrain.training.in_place import may_be_written_over
from onnxtrain.training.objective import Objective, OpenGraph, is_ours
from onnxtrain.training.packing import Packed, Part, rows_of
from onnxtrain.training.step import Groups, Wire, columns, kind_of, move_weights, scalar_names, take_scalars, wires

#: Elements of a weight above which it is updated row by row, and the most of a row: ten such rows, of weights, memory
#: of the optimizer and temporaries, fit a cache of 1 MB. No other node of the graph reads weights, so that smaller
#: rows cost nothing. A step of 2048-2048-10 with Adam at batch 128 takes 23 ms, for 40 with rows of 2**16 where a core
#: has 2 MB of cache; rows of 2**12 take 25.
_LARGE, _ROW = 2**18, 2**14


@dataclass(frozen=True)
class UpdateGraph:
    """The update of all weights.

    Attributes
    ----------
    onnx : bytes
    step_scalars : str
        The input that takes the per-step scalars, one row.
    n_scalars : int
    dtype : onnx_ir.DataType
    gradients : mapping of str to str
        For each weight the input that takes its gradient.
    weights, slots : mapping to Wire
        As those of :class:`~onnxtrain.training.step.StepGraph`.
    in_place : bool
        Every output may be written over the input that it follows from.
    """

    onnx: bytes = field(repr=False)
    step_scalars: str
    n_scalars: int
    dtype: ir.DataType
    gradients: Mapping[str, str]
    weights: Mapping[str, Wire]
    slots: Mapping[tuple[str, str], Wire]
    in_place: bool


@cached
def build_update(
    objective: Objective,
    optimizer: Optimizer,
    *,
    clip_norm: float | None,
    sums: bool,
    l1: Groups = (),
    l2: Groups = (),
    capabilities: Capabilities = CAPABILITIES["cpu"],
) -> UpdateGraph:
    """Return the update of the weights of an objective; parameters are those of the step in front of it."""
    inputs = {str(v.name): v for v in graph.reload(objective.model).graph.inputs}
    shapes = {name: graph.static_shape(inputs[name]) or () for name in objective.weights}
    dtype = next((inputs[name].dtype for name in shapes), None) or ir.DataType.FLOAT
    blank = ir.Graph([], [], nodes=[], opset_imports={"": graph.OPSET}, name="update")
    g = OpenGraph(ir.Model(blank, ir_version=graph.IR_VERSION), dtype)
    names = scalar_names(optimizer, columns("l1", l1), columns("l2", l2), sums=sums)
    table, scalars, _ = take_scalars(g, names, gathered=False, splits=not capabilities.records_runs)
    # rows are for the cache of a CPU; a formula of the user's may need the whole matrix
    in_rows = is_ours(optimizer) and not capabilities.holds_data
    gradients, units = {}, []
    for name, shape in shapes.items():
        n_rows = rows_of(math.prod(shape), _LARGE, _ROW) if in_rows else 1
        inner = shape if n_rows == 1 else (n_rows, math.prod(shape) // n_rows)
        part = None if n_rows == 1 else Part(0, math.prod(shape), shape, n_rows)
        w, dw = g.add_input(name, inner), g.add_input(f"{name}.gradient", inner)
        gradients[name] = str(dw.name)
        units.append(Packed(w, dw, {name: part}, kind_of(name, objective, optimizer, columns("l1", l1)), n_rows))
    weights, slots = move_weights(g, optimizer, units, scalars, clip_norm)
    states = [*weights.values(), *slots.values()]
    outputs = {
        x.new: (g.unique(f"next_{x.old.name}"), x.new) for x in states if x.old is not None and x.new is not None
    }
    in_place = all(may_be_written_over(x.old, x.new) for x in states)
    return UpdateGraph(
        g.save(list(outputs.values())),
        str(table.name),
        len(names),
        dtype,
        gradients,
        weights=wires(weights, (), outputs),
        slots=wires(slots, (), outputs),
        in_place=in_place,
    )
