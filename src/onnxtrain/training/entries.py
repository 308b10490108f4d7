r"""Products of sparse rows by a matrix as sums over stored entries, in place of products of dense rows.

For rows X with few stored entries, such as the counts of words in texts,

.. math:: (X W)_i = \sum_{j : x_{ij} \text{ is stored}} x_{ij} W_j

is a Gather and a ScatterND, whose time and memory do not depend on the number of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import onnx_ir as ir
import scipy.sparse

from onnxtrain import graph
from onnxtrain.cache import cached
from onnxtrain.training.data import COLUMNS, NOTHING, ROWS, VALUES, ZEROS, TrainingData
from onnxtrain.training.objective import Objective, OpenGraph
from onnxtrain.training.parts import PartedData

#: The number of columns from which a prediction reads stored entries. It does not depend on the number of entries, so
#: that a row has the same prediction, to the last digit, among any other rows.
_WIDE = 4096

#: The largest share of stored entries in training. A dense entry takes about 1 ns in a step, a stored one about 25 ns.
_SPARSE = 1 / 32


class EntriesRead(NamedTuple):
    """An objective that reads the stored entries of its sparse rows, and these rows.

    Attributes
    ----------
    objective : Objective
    data : TrainingData or PartedData
    validation : TrainingData or PartedData or None
    """

    objective: Objective
    data: TrainingData | PartedData
    validation: TrainingData | PartedData | None


def reading_entries(
    objective: Objective, data: TrainingData | PartedData, validation: TrainingData | PartedData | None = None
) -> EntriesRead:
    """Return an objective that reads the stored entries of sparse rows where this is faster, and the rows for it."""
    features = (data.like if isinstance(data, PartedData) else data).features
    names = tuple(name for name, x in features.items() if scipy.sparse.issparse(x) and _has_few_entries(x))
    model, stored = _of_entries(objective.model, names)
    if not stored:
        return EntriesRead(objective, data, validation)
    validation = None if validation is None else validation.storing(stored)
    return EntriesRead(replace(objective, model=model), data.storing(stored), validation)


def model_of_entries(onx: bytes, features: Mapping[str, Any]) -> tuple[bytes, Mapping[str, int]]:
    """Return a model that reads the stored entries of its wide sparse inputs, and the width of the products of each.

    The model is the given one if it has no such inputs.
    """
    names = tuple(name for name, x in features.items() if scipy.sparse.issparse(x) and x.shape[1] >= _WIDE)
    return _of_entries(onx, names)


def _has_few_entries(x: scipy.sparse.csr_matrix) -> bool:
    return x.nnz <= _SPARSE * math.prod(x.shape)


def _of_entries(onx: bytes, names: tuple[str, ...]) -> tuple[bytes, Mapping[str, int]]:
    """Return a model that reads the stored entries of some inputs, and the width of the products of each.

    An input stays dense if anything but a product by a matrix reads it.
    """
    return _rewritten(onx, names) if names else (onx, NOTHING)


@cached
def _rewritten(onx: bytes, names: tuple[str, ...]) -> tuple[bytes, Mapping[str, int]]:
    model = graph.reload(onx)
    known = graph.names_in(model.graph)
    g, widths = OpenGraph(model, ir.DataType.FLOAT), dict[str, int]()
    for rows in [v for v in model.graph.inputs if v.name in names]:
        name, uses = str(rows.name), list(rows.uses())
        own = {name + ending for ending in (COLUMNS, ROWS, VALUES, ZEROS)}
        products = [node for node, position in uses if position == 0 and _is_product(model, node)]
        if uses and len(products) == len(uses) and not own & known and not rows.is_graph_output():
            widths[name] = sum(map(_width, products))
            _multiply_entries(g, rows, products)
            model.graph.inputs.remove(rows)
    if not widths:
        return onx, NOTHING
    graph.put_in_order(model)
    return graph.save(model).SerializeToString(deterministic=True), widths


def _is_product(model: ir.Model, node: ir.Node) -> bool:
    """Whether a node of the graph itself multiplies its first operand, rows, by a matrix of a known width."""
    if graph.made_by(node.outputs[0], "MatMul", "Gemm") is None or node.graph is not model.graph:
        return False
    return graph.rank(node.inputs[1]) == 2 and not graph.attribute(node, "transA", 0) and _width(node) > 0  # type: ignore[arg-type]


def _width(node: ir.Node) -> int:
    """Return the number of columns of a product, 0 if it is unknown."""
    shape = node.inputs[1].shape  # type: ignore[union-attr]
    width = None if shape is None else shape[0 if graph.attribute(node, "transB", 0) else 1]
    return width if isinstance(width, int) else 0


def _multiply_entries(g: OpenGraph, rows: ir.Value, products: Iterable[ir.Node]) -> None:
    """Replace products of an input by sums over its stored entries."""
    name, op = str(rows.name), g.op
    entries, length = f"{name}.entries", rows.shape[0]  # type: ignore[index]
    columns = g.add_input(name + COLUMNS, [entries], ir.DataType.INT64)
    row = g.add_input(name + ROWS, [entries, 1], ir.DataType.INT64)
    values = g.add_input(name + VALUES, [entries, 1], rows.dtype)
    zeros = g.add_input(name + ZEROS, [length, 1], rows.dtype)
    for node in products:
        w, y = node.inputs[1], node.outputs[0]
        if graph.attribute(node, "transB", 0):
            w = op.Transpose(w, perm=[1, 0])
        added = op.Mul(op.Gather(w, columns, axis=0), values)
        total = op.ScatterND(op.Expand(zeros, [1, _width(node)]), row, added, reduction="add")
        if node.op_type == "Gemm":
            total = _scaled(op, total, graph.attribute(node, "alpha", 1.0))
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                total = op.Add(total, _scaled(op, node.inputs[2], graph.attribute(node, "beta", 1.0)))
        total.type, total.shape = y.type, y.shape
        y.name, total.name = total.name, y.name
        ir.convenience.replace_all_uses_with(y, total, replace_graph_outputs=True)
        node.graph.remove(node, safe=True)  # type: ignore[union-attr]


def _scaled(op: graph.Op, x: ir.Value, factor: float) -> ir.Value:
    return x if factor == 1 else op.Mul(x, factor)
