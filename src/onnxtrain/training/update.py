"""The update of the weights by an optimizer as a separate graph, after steps that end with gradients.

It is used if the gradients of several batches are summed before an update. It is also used for large weights and
optimizer slots, which it overwrites, whereas a step with two sets of buffers would hold them twice.
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
from onnxtrain.training.objective import Objective, OpenGraph, is_ours
from onnxtrain.training.packing import Packed, Part, may_be_written_over, rows_of
from onnxtrain.training.step import Groups, Wire, columns, kind_of, move_weights, scalar_names, take_scalars, wires

#: The number of elements above which a weight is updated row by row, and the largest number of elements of a row. Ten
#: such rows (weights, optimizer slots, temporaries) fit in a cache of 1 MB. No other node of the graph reads weights,
#: so smaller rows cost nothing. With 2 MB of cache per core, a step of 2048-2048-10 with Adam at batch size 128 takes
#: 23 ms, against 40 ms with rows of 2**16; rows of 2**12 take 25 ms.
_LARGE, _ROW = 2**18, 2**14


@dataclass(frozen=True)
class UpdateGraph:
    """The graph of the update of all weights.

    Attributes
    ----------
    onnx : bytes
    step_scalars : str
        The input that takes the per-step scalars, one row.
    n_scalars : int
    dtype : onnx_ir.DataType
    gradients : mapping of str to str
        The input that takes the gradient of each weight.
    weights, slots : mapping to Wire
        As in :class:`~onnxtrain.training.step.StepGraph`.
    in_place : bool
        Whether every output may overwrite its input.
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
    """Return the update of the weights of an objective, for the parameters of the step that precedes it."""
    inputs = {str(v.name): v for v in graph.reload(objective.model).graph.inputs}
    shapes = {name: graph.static_shape(inputs[name]) or () for name in objective.weights}
    dtype = next((inputs[name].dtype for name in shapes), None) or ir.DataType.FLOAT
    blank = ir.Graph([], [], nodes=[], opset_imports={"": graph.OPSET}, name="update")
    g = OpenGraph(ir.Model(blank, ir_version=graph.IR_VERSION), dtype)
    names = scalar_names(optimizer, columns("l1", l1), columns("l2", l2), sums=sums)
    table, scalars, _ = take_scalars(g, names, gathered=False, splits=not capabilities.records_runs)
    # rows only help the cache of a CPU; a user's optimizer may need the whole matrix
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
