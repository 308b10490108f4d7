"""The row ``padding_idx`` of an embedding, which PyTorch does not train."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.convert.dynamo import Module

#: How torch.onnx.export(dynamo=True) writes the operation: a table, indices, and the row if there is one.
_EMBEDDING = re.compile(r"aten\.embedding\.default\]\(args = \(%\w+, %\w+, (\d+)[,)]")

#: The product of this factor and a float32 number above 1e-23, or a float64 number above 1e-14, is an integer.
_LARGE = 2.0**100

#: The types of tables, and the type in which rows are multiplied by _LARGE: float16 does not contain the products.
_WIDE: dict[int, int] = {
    onnx.TensorProto.FLOAT: onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE: onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16: onnx.TensorProto.FLOAT,
    onnx.TensorProto.BFLOAT16: onnx.TensorProto.FLOAT,
}


def padding_rows(onx: onnx.ModelProto) -> dict[str, int]:
    """Return the untrained row of each embedding, by the result of the Gather that reads the table.

    The dynamo exporter records this row. In a file of torch.onnx.export(dynamo=False), it is the only row of zeros of a
    table: PyTorch sets the row to 0 at the start and does not train it. A table that is read at constant indices there
    is a parameter, not an embedding.
    """
    if onx.producer_name != "pytorch":
        return {}
    module = Module(onx)
    tables = {i.name: i for i in onx.graph.initializer if i.data_type in _WIDE and len(i.dims) == 2}
    reads = {n.output[0]: n.input[0] for n in onx.graph.node if _reads_rows(n) and n.input[0] in tables}
    if module.held:
        rows = dict(_said(module))
    else:
        constants = {i.name for i in onx.graph.initializer} | _results_of(onx, "Constant")
        reads = {n.output[0]: n.input[0] for n in onx.graph.node if _reads_rows(n) and n.input[1] not in constants}
        reads = {y: w for y, w in reads.items() if w in tables}
        zeros = _of_zeros(tables, {*reads.values()})
        rows = {y: zeros[w] for y, w in reads.items() if w in zeros}
    return {y: row for y, row in rows.items() if y in reads and row < tables[reads[y]].dims[0]}


def _reads_rows(node: onnx.NodeProto) -> bool:
    on_rows = all(a.name != "axis" or a.i == 0 for a in node.attribute)
    return node.op_type == "Gather" and len(node.input) == 2 and [bool(y) for y in node.output] == [True] and on_rows


def _results_of(onx: onnx.ModelProto, op_type: str) -> set[str]:
    return {y for node in onx.graph.node if node.op_type == op_type for y in node.output}


def _said(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the result and the untrained row of each embedding for which the dynamo exporter records such a row."""
    for operation in module.operations:
        if match := _EMBEDDING.search(operation.text):
            yield from ((node.output[0], int(match[1])) for node in operation.nodes)


def _of_zeros(tables: Mapping[str, onnx.TensorProto], read: set[str]) -> dict[str, int]:
    """Return the tables with exactly one row of zeros, and the index of this row."""
    zeros = {name: np.flatnonzero(~graph.array_of(tables[name]).any(axis=1)) for name in read}
    return {name: int(rows[0]) for name, rows in zeros.items() if len(rows) == 1}


def with_padding(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which the ``padding_idx`` rows get no gradient where they are read."""
    rows = padding_rows(onx)
    if not rows:
        return onx
    changed = graph.copy_of(onx)
    tables = {i.name: i for i in changed.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        row = rows.get(node.output[0]) if _reads_rows(node) else None
        nodes += [node] if row is None else _read(node, row, tables[node.input[0]])
    graph.assign(changed.graph.node, nodes)
    return changed


def _read(node: onnx.NodeProto, row: int, table: onnx.TensorProto) -> list[onnx.NodeProto]:
    """Return nodes in place of a Gather that treat one row as a constant: the derivative of Floor is zero.

    A constant copy of the row would not follow the weights, which penalties and users may change.
    """
    make, (w, index), (y,) = onnx.helper.make_node, node.input, node.output
    read, large, whole, still, chosen = (f"{y}.{name}" for name in ("read", "large", "whole", "still", "chosen"))
    wide = _WIDE[table.data_type]
    factor = np.array(_LARGE, onnx.helper.tensor_dtype_to_np_dtype(wide))
    is_row = np.arange(table.dims[0])[:, None] == row
    return [
        make("Constant", [], [f"{y}.factor"], value=onnx.numpy_helper.from_array(factor)),
        make("Constant", [], [f"{y}.is_row"], value=onnx.numpy_helper.from_array(is_row)),
        make("Gather", [w, index], [read], name=node.name),
        make("Cast", [read], [f"{y}.wide"], to=wide),
        make("Mul", [f"{y}.wide", f"{y}.factor"], [large]),
        make("Floor", [large], [whole]),
        make("Div", [whole, f"{y}.factor"], [f"{y}.quotient"]),
        make("Cast", [f"{y}.quotient"], [still], to=table.data_type),
        make("Gather", [f"{y}.is_row", index], [chosen]),
        make("Where", [chosen, still, read], [y]),
    ]
