"""Weights that PyTorch's exporters wrote several times: each of a tied weight's copies would be trained by itself.

A language model multiplies by its embedding. In a file whose constants were folded the transposed embedding is an
initializer of its own, and two weights would be trained to be different. The relative position bias of T5 or Swin is
a table of which each pair of positions reads a row; folded, the file has these rows, most of them several times.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtrain import graph

#: Where torch.onnx.export(dynamo=True) writes the names of the values that an initializer was folded from.
_FOLDED = "pkg.onnxscript.optimizer.folded_from"

#: Names of values that torch.onnx.export computed, and that onnxruntime computes in advance where it optimizes such a
#: model; parameters keep their names.
_COMPUTED = re.compile(r"onnx::.*|/.*_output_\d+|val_\d+")

#: Values that torch.onnx.export(dynamo=True) names after the operators of PyTorch that read rows of a table.
_READ = re.compile(r"(embedding|gather|index|index_select)(_\d+)?")

#: Operators between a position bias that is added to scores and the Softmax of them.
_TO_SOFTMAX = frozenset({"Add", "Cast", "Div", "Expand", "Identity", "Mul", "Reshape", "Slice", "Squeeze", "Sub"}) | {
    *("Transpose", "Unsqueeze", "Where")
}

#: Makers of files with such names.
_MAKERS = ("pytorch", "onnxruntime.transformers")


def is_computed(name: str) -> bool:
    """Whether a name has the form that torch.onnx.export gives to values that it computed in advance."""
    return _COMPUTED.fullmatch(name) is not None


def folded_from(onx: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the names of the values that each folded initializer was computed from, as the dynamo exporter says."""
    said = {v.name: p.value for v in onx.graph.value_info for p in v.metadata_props if p.key == _FOLDED}
    return {name: _listed(text) for name, text in said.items()}


def _listed(text: str) -> list[str]:
    """Return the names in a list as Python writes it; none where the text is something else."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def transposed_copies(onx: onnx.ModelProto) -> dict[str, str]:
    """Return which initializers the exporter computed as the transpose of another one: copy to original, by name."""
    if onx.producer_name not in _MAKERS:
        return {}
    inputs = {i.name for i in onx.graph.input}
    matrices = {i.name: i for i in onx.graph.initializer if len(i.dims) == 2 and i.name not in inputs}
    embeddings = {x for n in onx.graph.node if n.op_type == "Gather" for x in n.input[:1]}
    scopes = {x: n.name.removeprefix("/").rpartition("/")[0] for n in onx.graph.node if "/" in n.name for x in n.input}
    candidates = _candidates(matrices, folded_from(onx), embeddings, scopes)
    return {copy: w for copy, w in candidates if _is_transpose(matrices[copy], matrices[w])}


def _candidates(
    matrices: Mapping[str, onnx.TensorProto],
    folded: Mapping[str, list[str]],
    embeddings: set[str],
    scopes: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a computed matrix and a parameter that it may have been computed from.

    `scopes` has the module in which each value is used: one that holds a parameter may turn it.
    """
    for name in matrices:
        if name in folded:
            yield from ((name, other) for other in folded[name] if other in matrices)
        elif is_computed(name):
            # a name says nothing there: other layers may begin as copies of each other
            yield from ((name, other) for other in matrices if other in embeddings or _holds(scopes.get(name), other))


def _holds(scope: str | None, parameter: str) -> bool:
    """Whether a parameter is one of a module, or of a module in it."""
    if scope is None or is_computed(parameter):
        return False
    return not scope or parameter.startswith(scope.replace("/", ".") + ".")


def _is_transpose(copy: onnx.TensorProto, w: onnx.TensorProto) -> bool:
    if list(copy.dims) != list(w.dims)[::-1] or copy.data_type != w.data_type:
        return False
    array, other = graph.array_of(copy), graph.array_of(w)
    return array.dtype.kind == "f" and array.size > 1 and np.ptp(array[:1]) > 0 and np.array_equal(array, other.T)


@dataclass(frozen=True)
class SpreadTable:
    """The rows of a table, and the places of an initializer where the exporter wrote each of them.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, size)
    index : ndarray of int64
        The row of each place. Its shape is that of the initializer without `axis`.
    axis : int
        The axis of the initializer along which the rows lie.
    """

    rows: np.ndarray
    index: np.ndarray
    axis: int

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return the array of the initializer whose table has these rows."""
        return np.moveaxis(rows[self.index], -1, self.axis)

    def nodes(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that compute :meth:`spread` from the rows called `name`."""
        axes = list(range(self.index.ndim))
        axes.insert(self.axis, self.index.ndim)
        index = onnx.numpy_helper.from_array(self.index)
        return [
            onnx.helper.make_node("Constant", [], [f"{name}.index"], value=index),
            onnx.helper.make_node("Gather", [name, f"{name}.index"], [f"{name}.read"]),
            onnx.helper.make_node("Transpose", [f"{name}.read"], [_spread_of(name)], perm=axes),
        ]


def _spread_of(name: str) -> str:
    """Return the name of the value that an initializer was in the file, and is computed from its rows."""
    return f"{name}.spread"


def spread_tables(onx: onnx.ModelProto) -> dict[str, SpreadTable]:
    """Return the tables of the initializers that the exporter folded from reading rows, some several times, by name."""
    if onx.producer_name != "pytorch":
        return {}
    candidates = _read_from_tables(onx)
    arrays = {i.name: graph.array_of(i) for i in onx.graph.initializer if i.name in candidates and len(i.dims) > 2}
    tables = {name: _table(array) for name, array in arrays.items()}
    return {name: table for name, table in tables.items() if table is not None}


def _read_from_tables(onx: onnx.ModelProto) -> set[str]:
    """Return the names of initializers that the exporter computed, and may have read from a table.

    The dynamo exporter says so. The other one says that it computed a value; a position bias is one that is added to
    the scores of a Softmax. What is added to rows, as learned positions, may begin with equal values by its formula.
    """
    folded = folded_from(onx)
    if folded:
        return {name for name, sources in folded.items() if any(map(_READ.fullmatch, sources))}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.nodes_in(onx.graph.node):
        for x in node.input:
            readers.setdefault(x, []).append(node)
    computed = [i.name for i in onx.graph.initializer if is_computed(i.name)]
    return {
        name
        for name in computed
        if all(node.op_type == "Add" for node in readers.get(name, [])) and _leads_to_softmax(name, readers)
    }


def _leads_to_softmax(name: str, readers: Mapping[str, list[onnx.NodeProto]]) -> bool:
    """Whether every use of a value leads to a Softmax, through shape changes and arithmetic only."""
    found, todo = {name}, [name]
    while todo:
        nodes = readers.get(todo.pop(), [])
        if not nodes or not all(node.op_type == "Softmax" or node.op_type in _TO_SOFTMAX for node in nodes):
            return False
        carried = {node.output[0] for node in nodes if node.op_type != "Softmax"} - found
        found |= carried
        todo += carried
    return True


def _table(array: np.ndarray) -> SpreadTable | None:
    """Return the smallest table that an array may have been read from, if any is smaller than the array.

    One value may be in a table twice by chance, a row of several values is not.
    """
    if array.dtype.kind != "f" or np.ptp(array) == 0:  # equal values say nothing of their places
        return None
    tables = [_along(array, axis) for axis, length in enumerate(array.shape) if length > 1]
    found = [table for table in tables if table.rows.size < array.size]
    return min(found, key=lambda table: table.rows.size, default=None)


def _along(array: np.ndarray, axis: int) -> SpreadTable:
    moved = np.moveaxis(array, axis, -1)
    rows, index = np.unique(moved.reshape(-1, array.shape[axis]), axis=0, return_inverse=True)
    return SpreadTable(rows, index.reshape(moved.shape[:-1]).astype(np.int64), axis)


def tied(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that computes all copies of a weight from one initializer."""
    copies, tables = transposed_copies(onx), spread_tables(onx)
    if not copies and not tables:
        return onx
    found = graph.copy_of(onx)
    graph.assign(found.graph.initializer, [i for i in found.graph.initializer if i.name not in copies])
    for i in found.graph.initializer:
        if i.name in tables:
            i.CopyFrom(onnx.numpy_helper.from_array(tables[i.name].rows, i.name))
    for node in graph.nodes_in(found.graph.node):
        for k, x in enumerate(node.input):
            node.input[k] = _spread_of(x) if x in tables else x
    turned = [onnx.helper.make_node("Transpose", [w], [copy], perm=[1, 0]) for copy, w in copies.items()]
    spread = [node for name, table in tables.items() for node in table.nodes(name)]
    graph.assign(found.graph.node, [*turned, *spread, *found.graph.node])
    graph.assign(found.graph.value_info, [v for v in found.graph.value_info if v.name not in tables])
    return found


def untied(original: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the initializers that a file has for weights of its :func:`tied` form, by name."""
    copies, tables = transposed_copies(original), spread_tables(original)
    spread = {name: table.spread(weights[name]) for name, table in tables.items() if name in weights}
    return {**weights, **{copy: weights[w].T for copy, w in copies.items() if w in weights}, **spread}
