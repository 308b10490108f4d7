"""Tied weights that PyTorch's exporters wrote several times, whose copies would be trained separately.

A language model multiplies by its embedding. After constant folding, the transposed embedding is a separate
initializer, and training would make the two weights different. The relative position bias of T5 or Swin is a table of
which each pair of positions reads a row. After constant folding, the file contains these rows, most of them several
times. A classifier by cosine similarity divides its weight by the norms of the rows, which are then constants in the
file.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.convert.fixed_values import are_slopes

#: The metadata key of the names of the values from which torch.onnx.export(dynamo=True) folded an initializer.
_FOLDED = "pkg.onnxscript.optimizer.folded_from"

#: Names of values that torch.onnx.export computed or that onnxruntime folds when it optimizes such a model; parameters
#: keep their names.
_COMPUTED = re.compile(r"onnx::.*|/.*_output_\d+|val_\d+")

#: Names that torch.onnx.export(dynamo=True) gives to values read from a table, after PyTorch's operators.
_READ = re.compile(r"(embedding|gather|index|index_select)(_\d+)?")

#: Names that torch.onnx.export(dynamo=True) gives to values with all elements of another one.
_VIEW = re.compile(
    r"(val|view|reshape|t|transpose|permute|movedim|flatten|unflatten|unsqueeze|squeeze|expand|clone|alias)(_\d+)*"
)

#: Operators between a position bias that is added to scores and the Softmax of the scores.
_TO_SOFTMAX = frozenset({"Add", "Cast", "Div", "Expand", "Identity", "Mul", "Reshape", "Slice", "Squeeze", "Sub"}) | {
    *("Transpose", "Unsqueeze", "Where")
}

#: The number of elements of an array that are examined first.
_SAMPLE = 64

#: The producers of files with such names.
_MAKERS = ("pytorch", "onnxruntime.transformers")


def is_computed(name: str) -> bool:
    """Whether a name has the form of values that torch.onnx.export computed."""
    return _COMPUTED.fullmatch(name) is not None


def folded_from(onx: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the names of the values from which each initializer was folded, as the dynamo exporter records them."""
    said = {v.name: p.value for v in onx.graph.value_info for p in v.metadata_props if p.key == _FOLDED}
    return {name: _listed(text) for name, text in said.items()}


def _listed(text: str) -> list[str]:
    """Return the names in the Python representation of a list; empty if the text is anything else."""
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def transposed_copies(onx: onnx.ModelProto) -> dict[str, str]:
    """Return the initializers that the exporter computed as the transpose of another one: copy to original, by name."""
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
    """Yield pairs of a computed matrix and a parameter from which it may have been computed.

    `scopes` has the module in which each value is used; a module that holds a parameter may transpose it.
    """
    for name in matrices:
        if name in folded:
            yield from ((name, other) for other in folded[name] if other in matrices)
        elif is_computed(name):
            # names do not decide: other layers may be initialised as copies of each other
            yield from ((name, other) for other in matrices if other in embeddings or _holds(scopes.get(name), other))


def _holds(scope: str | None, parameter: str) -> bool:
    """Whether a parameter belongs to a module or to a module inside it."""
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
    """The rows of a table, and the places in an initializer at which the exporter wrote them.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, size)
    index : ndarray of int64
        The index of the row at each place, in the shape of the initializer without `axis`.
    axis : int
        The axis of the initializer along which the rows lie.
    """

    rows: np.ndarray
    index: np.ndarray
    axis: int

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return the array of the initializer for given rows of the table."""
        return np.moveaxis(rows[self.index], -1, self.axis)

    def nodes(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that compute :meth:`spread` from the rows named `name`."""
        axes = list(range(self.index.ndim))
        axes.insert(self.axis, self.index.ndim)
        index = onnx.numpy_helper.from_array(self.index)
        return [
            onnx.helper.make_node("Constant", [], [f"{name}.index"], value=index),
            onnx.helper.make_node("Gather", [name, f"{name}.index"], [f"{name}.read"]),
            onnx.helper.make_node("Transpose", [f"{name}.read"], [_spread_of(name)], perm=axes),
        ]


def _spread_of(name: str) -> str:
    """Return the name of the value that is computed from the rows of an initializer's table."""
    return f"{name}.spread"


def spread_tables(onx: onnx.ModelProto) -> dict[str, SpreadTable]:
    """Return the tables from which the exporter folded initializers, by name, if some rows are repeated."""
    if onx.producer_name != "pytorch":
        return {}
    candidates = _read_from_tables(onx)
    arrays = {i.name: graph.array_of(i) for i in onx.graph.initializer if i.name in candidates and len(i.dims) > 2}
    tables = {name: _table(array) for name, array in arrays.items() if not are_slopes(array)}
    return {name: table for name, table in tables.items() if table is not None}


def repeated_biases(onx: onnx.ModelProto) -> set[str]:
    """Return the values in a file of dynamo=False that were probably read from tables with one column.

    Values by chance equal are rare, so that repeated ones come from one element. Their table is not restored, since few
    elements may be equal by their initial values. Two values are a mask.
    """
    if onx.producer_name != "pytorch" or folded_from(onx):
        return set()
    names = _read_from_tables(onx) - spread_tables(onx).keys()
    arrays = {i.name: graph.array_of(i) for i in onx.graph.initializer if i.name in names and len(i.dims) > 1}
    return {name for name, array in arrays.items() if 2 < len(np.unique(array)) <= array.size // 2}


def _read_from_tables(onx: onnx.ModelProto) -> set[str]:
    """Return the names of initializers that the exporter computed and may have read from a table.

    The dynamo exporter records this. The other exporter only shows that it computed a value; a position bias is then a
    value that is added to the scores of a Softmax. Values added to rows, such as learned positions, may have equal
    initial values by their formula.
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
    """Whether every use of a value leads to a Softmax through shape changes and arithmetic only."""
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
    """Return the smallest table from which an array may have been read, or None if none is smaller than the array.

    A single value may occur twice in a table by chance, but a row of several values may not.
    """
    if array.dtype.kind != "f" or np.ptp(array) == 0:  # equal values do not show their places
        return None
    tables = [_along(array, axis) for axis, length in enumerate(array.shape) if length > 1]
    found = [table for table in tables if table.rows.size < array.size]
    return min(found, key=lambda table: table.rows.size, default=None)


def _along(array: np.ndarray, axis: int) -> SpreadTable:
    moved = np.moveaxis(array, axis, -1)
    rows, index = np.unique(moved.reshape(-1, array.shape[axis]), axis=0, return_inverse=True)
    return SpreadTable(rows, index.reshape(moved.shape[:-1]).astype(np.int64), axis)


@dataclass(frozen=True)
class Result:
    """An array that the exporter computed from a weight: its norms along an axis, its squares, or the same elements.

    Attributes
    ----------
    weight : str
        The initializer of the weight.
    shape : tuple of int
        The shape of the result.
    kind : {"norms", "squares", "elements"}
    axis : int or None
        The axis of the norms, None for the norm of all elements.
    transposed : bool
        Whether the matrix is transposed.
    """

    weight: str
    shape: tuple[int, ...]
    kind: Literal["norms", "squares", "elements"]
    axis: int | None = None
    transposed: bool = False

    def of(self, w: np.ndarray) -> np.ndarray:
        """Return the result for given values of the weight."""
        if self.kind == "norms":
            return np.linalg.norm(w.reshape(-1) if self.axis is None else w, axis=self.axis).reshape(self.shape)
        found = w.T if self.transposed else w
        return (np.square(found) if self.kind == "squares" else found).reshape(self.shape)

    def nodes(self, name: str, opset: int) -> list[onnx.NodeProto]:
        """Return the nodes that compute the result `name`; the rule of ReduceL2 has no NaN for a norm of 0."""
        make, read, found, shape = onnx.helper.make_node, f"{name}.read", f"{name}.found", f"{name}.shape"
        nodes = [make("Transpose" if self.transposed else "Identity", [self.weight], [read])]
        if self.kind == "elements":
            found = read
        elif self.kind == "squares":
            nodes.append(make("Mul", [read, read], [found]))
        elif self.axis is None:
            nodes.append(make("ReduceL2", [read], [found]))
        elif opset < 18:
            nodes.append(make("ReduceL2", [read], [found], axes=[self.axis]))
        else:
            nodes.append(make("Constant", [], [f"{name}.axes"], value_ints=[self.axis]))
            nodes.append(make("ReduceL2", [read, f"{name}.axes"], [found]))
        sizes = onnx.numpy_helper.from_array(np.array(self.shape, np.int64))
        return [*nodes, make("Constant", [], [shape], value=sizes), make("Reshape", [found, shape], [name])]


def results(onx: onnx.ModelProto) -> dict[str, Result]:
    """Return the initializers that torch.onnx.export computed from another one, by name.

    The dynamo exporter records from which values an initializer was computed, so that only views are results. A
    transposed copy is no result, although a matrix of zeros and ones equals its squares.
    """
    if onx.producer_name != "pytorch":
        return {}
    weights = {i.name: i for i in onx.graph.initializer if i.data_type == onnx.TensorProto.FLOAT}
    if folded := folded_from(onx):
        return _views(weights, {x: folded[x] for x in folded if x in weights and _VIEW.fullmatch(x)}, onx)
    parameters = [name for name in weights if not is_computed(name)]
    divided = _divided(onx)
    found = {}
    for name in filter(is_computed, weights):
        array = graph.array_of(weights[name])
        sources = parameters if array.size > 1 else divided.get(name, set()).intersection(parameters)
        candidates = (c for w in sources for c in _results_of(w, weights[w].dims, array))
        match = next((c for c in candidates if _is_result(c, array, weights[c.weight])), None)
        if match is not None:
            found[name] = match
    copies = transposed_copies(onx) if found else {}
    return {name: result for name, result in found.items() if name not in copies}


def _views(
    weights: Mapping[str, onnx.TensorProto], folded: Mapping[str, list[str]], onx: onnx.ModelProto
) -> dict[str, Result]:
    """Return the initializers with the elements of a parameter, or of another view of the same parameter."""
    copies = transposed_copies(onx)
    named = {name: {x for x in sources if not is_computed(x)} for name, sources in folded.items()}
    found: dict[str, Result] = {}
    first: list[str] = []
    for name in (x for x in folded if x not in copies):
        array = graph.array_of(weights[name])
        others = [x for x in first if named[x] == named[name] and len(named[x]) == 1]
        sources = [x for x in (*folded[name], *others) if x in weights and math.prod(weights[x].dims) == array.size]
        pairs = ((Result(x, array.shape, "elements", transposed=t), weights[x]) for x in sources for t in (False, True))
        match = next((c for c, w in pairs if _is_result(c, array, w)), None)
        if match is None:
            first.append(name)
        else:
            found[name] = match
    return found


def _divided(onx: onnx.ModelProto) -> dict[str, set[str]]:
    """Return the values that are divided by a value, directly or as in torch.nn.functional.normalize, by divisor."""
    nodes = [node for node in onx.graph.node if node.input and node.output]  # the file may be damaged
    sources = {node.output[0]: node.input[0] for node in nodes if node.op_type in ("Clip", "Expand")}
    found: dict[str, set[str]] = {}
    for node in nodes:
        if node.op_type == "Div":
            x, divisor = node.input[0], node.input[-1]
            while divisor in sources:
                divisor = sources[divisor]
            found.setdefault(divisor, set()).add(x)
    return found


def _results_of(weight: str, dims: Sequence[int], array: np.ndarray) -> Iterator[Result]:
    """Yield the ways in which an array may come from a weight, as far as the shapes and the signs show it."""
    shape, own = array.shape, [d for d in dims if d != 1]
    long = [d for d in shape if d != 1]
    if sorted(long) != sorted(own) and array.size == math.prod(dims):
        yield Result(weight, shape, "elements")
    if not array.size or array.reshape(-1)[:_SAMPLE].min() < 0:
        return
    if long == own:
        yield Result(weight, shape, "squares")
    if len(dims) == 2 and long == own[::-1]:
        yield Result(weight, shape, "squares", transposed=True)
    for axis in range(len(dims)):
        if long == [d for other, d in enumerate(dims) if other != axis and d != 1]:
            yield Result(weight, shape, "norms", axis)
    if not long:
        yield Result(weight, shape, "norms")


def _is_result(candidate: Result, array: np.ndarray, w: onnx.TensorProto) -> bool:
    source = graph.array_of(w)
    if candidate.kind == "elements":
        return np.ptp(array) > 0 and np.array_equal(candidate.of(source), array)
    varied = array.size == 1 or np.ptp(array) > 0
    return bool(varied and source.size > 1 and np.allclose(candidate.of(source), array, rtol=1e-5, atol=0))


def tied(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that computes all copies of a weight from a single initializer."""
    copies, tables, computed = transposed_copies(onx), spread_tables(onx), results(onx)
    if not copies and not tables and not computed:
        return onx
    found = graph.copy_of(onx)
    removed = copies.keys() | computed.keys()
    graph.assign(found.graph.initializer, [i for i in found.graph.initializer if i.name not in removed])
    for i in found.graph.initializer:
        if i.name in tables:
            i.CopyFrom(onnx.numpy_helper.from_array(tables[i.name].rows, i.name))
    for node in graph.nodes_in(found.graph.node):
        for k, x in enumerate(node.input):
            node.input[k] = _spread_of(x) if x in tables else x
    turned = [onnx.helper.make_node("Transpose", [w], [copy], perm=[1, 0]) for copy, w in copies.items()]
    spread = [node for name, table in tables.items() for node in table.nodes(name)]
    opset = graph.opset_of(onx)
    again = [node for name, result in computed.items() for node in result.nodes(name, opset)]
    graph.assign(found.graph.node, [*turned, *spread, *again, *found.graph.node])
    graph.assign(found.graph.value_info, [v for v in found.graph.value_info if v.name not in tables])
    return found


def untied(original: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values of the original initializers for weights of the :func:`tied` form, by name."""
    copies, tables = transposed_copies(original), spread_tables(original)
    spread = {name: table.spread(weights[name]) for name, table in tables.items() if name in weights}
    computed = {name: r.of(weights[r.weight]) for name, r in results(original).items() if r.weight in weights}
    return {**weights, **{copy: weights[w].T for copy, w in copies.items() if w in weights}, **spread, **computed}
