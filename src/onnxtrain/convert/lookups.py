"""Inputs whose values have a meaning that the graph shows: rows of a table, masks that are added, missing values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.graph.query import nodes_in

#: The nodes that read a value, with the position of the operand.
Readers: TypeAlias = "defaultdict[str, list[tuple[onnx.NodeProto, int]]]"

#: Operators whose result has the values of their first operand.
_SAME_VALUES = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)

#: Those of them whose result has all values of the operand.
_ALL_VALUES = _SAME_VALUES - {"Slice"}

#: Operators by which a model may treat negative indices in its own way.
_COMPARES = frozenset({"Abs", "Clip", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Sign"})


@graph.as_model_error("The model cannot be read")
def lengths_of_tables(onx: onnx.ModelProto) -> dict[str, int]:
    """Return the number of rows of the smallest table whose rows each integer input selects, by the name of the input.

    Slices of an input may be columns, each for its own table. If only slices select rows, the largest table counts.
    An input that the model compares with other numbers is left out, because the model may select rows for negative
    values in its own way.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (int64[n] ids) => (float[n, 2] Y) <float[3, 2] words = {1, 2, 3, 4, 5, 6}> { Y = Gather(words, ids) }''')
    >>> lengths_of_tables(onx)
    {'ids': 3}
    """
    proto = graph.inline_functions(onx)
    readers = readers_of(proto)
    constants = constants_of(proto)
    found = {}
    for value in proto.graph.input:
        uses = list(_uses(value.name, readers))
        whole = _uses(value.name, readers, _ALL_VALUES)
        lengths = [n for node, position in uses if (n := _length(node, position, constants))]
        if lengths and not any(_compares(node, 1 - position, constants) for node, position in uses):
            of_whole = (n for node, position in whole if (n := _length(node, position, constants)))
            found[value.name] = min(of_whole, default=max(lengths))
    return found


@graph.as_model_error("The model cannot be read")
def added_masks(onx: onnx.ModelProto) -> frozenset[str]:
    """Return the floating-point inputs with mask in their names that are added, as they are, before a Softmax.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[n, t] x, float[n, t] mask) => (float[n, t] Y) { sum = Add(x, mask) Y = Softmax(sum) }''')
    >>> sorted(added_masks(onx))
    ['mask']
    """
    masks = [v.name for v in onx.graph.input if "mask" in v.name.lower() and _is_float(v)]
    if not masks:
        return frozenset()
    readers = readers_of(graph.inline_functions(onx))
    return frozenset(name for name in masks if _is_added(name, readers))


@graph.as_model_error("The model cannot be read")
def numbers_of_features(onx: onnx.ModelProto) -> dict[str, int]:
    """Return the number of features of each floating-point input, if its first operators are linear layers or scalers.

    In a file of skl2onnx, sums and products with one value per column are scalers; others may repeat a single column.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[n, d] X) => (float[n, 1] Y) <float[2, 1] W = {1, 2}> { Y = MatMul(X, W) }''')
    >>> numbers_of_features(onx)
    {'X': 2}
    """
    proto = graph.inline_functions(onx)
    readers, constants = readers_of(proto), constants_of(proto)
    scalers = {"Add", "Div", "Mul", "Sub"} if onx.producer_name == "skl2onnx" else set()
    found = {}
    for value in filter(_is_float, proto.graph.input):
        uses = [use for use in _uses(value.name, readers, _CASTS) if use[0].op_type not in _CASTS]
        lengths = {_n_features(node, position, constants, scalers) for node, position in uses}
        if len(lengths) == 1 and 0 not in lengths:
            found[value.name] = lengths.pop()
    return found


#: Operators whose result has the values and the shape of their operand.
_CASTS = frozenset({"Cast", "Identity"})


def _n_features(
    node: onnx.NodeProto, position: int, constants: Mapping[str, onnx.TensorProto], scalers: Collection[str]
) -> int:
    """Return the number of features that a node takes; 0 if it is unknown."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in scalers and node.input[1 - position] in constants:
        dims = constants[node.input[1 - position]].dims
        return dims[-1] if len(dims) in (1, 2) and math.prod(dims) == dims[-1] > 1 else 0
    if node.op_type in ("MatMul", "Gemm") and position == 0 and not given.get("transA"):
        dims = constants[node.input[1]].dims if node.input[1] in constants else ()
        return dims[1 if given.get("transB") else 0] if len(dims) == 2 else 0
    if node.op_type == "LinearRegressor":
        return len(given.get("coefficients", ())) // given.get("targets", 1)
    if node.op_type == "LinearClassifier":
        return len(given.get("coefficients", ())) // max(1, len(given.get("intercepts", ())))
    if vectors := given.get("n_supports", sum(given.get("vectors_per_class", ()))):
        return len(given["support_vectors"]) // vectors
    n_values = len(given.get("scale", ())) if node.op_type == "Scaler" else 0
    return n_values if n_values > 1 else 0  # a single value is for all features


#: Operators that have a branch for NaN.
_TREES = frozenset({"TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"})


@graph.as_model_error("The model cannot be read")
def takes_missing(onx: onnx.ModelProto) -> bool:
    """Whether only trees and imputers of NaN read the floating-point inputs, so that NaN is a missing value.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
    ...     g (float[n, 2] X) => (float[n, 1] Y) { t = ai.onnx.ml.TreeEnsembleRegressor(X) Y = Neg(t) }''')
    >>> takes_missing(onx)
    True
    """
    readers = readers_of(graph.inline_functions(onx))
    uses = [node for value in onx.graph.input if _is_float(value) for node, _ in _uses(value.name, readers)]
    read = [node for node in uses if node.op_type not in _SAME_VALUES]
    return bool(read) and all(node.op_type in _TREES or _replaces_nan(node) for node in read)


def _replaces_nan(node: onnx.NodeProto) -> bool:
    replaced = (a.f for a in node.attribute if a.name == "replaced_value_float")
    return node.op_type == "Imputer" and any(map(math.isnan, replaced))


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in graph.FLOATS


def _is_added(name: str, readers: Readers) -> bool:
    """Whether a value is read only by sums, each of which leads to a Softmax by further sums alone."""
    pending, known = [name], {name}
    while pending:
        following = [node for node, _ in _uses(pending.pop(), readers) if node.op_type not in _SAME_VALUES]
        if not following or any(node.op_type not in ("Add", "Softmax") for node in following):
            return False
        sums = {node.output[0] for node in following if node.op_type == "Add"} - known
        pending.extend(sums)
        known |= sums
    return all(node.op_type == "Add" for node, _ in _uses(name, readers) if node.op_type not in _SAME_VALUES)


def readers_of(proto: onnx.ModelProto) -> Readers:
    """Return the nodes that read each value, by its name, with the position of the operand."""
    found: Readers = defaultdict(list)
    for node in nodes_in(proto.graph.node):
        for position, name in enumerate(node.input):
            found[name].append((node, position))
    return found


def constants_of(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers, the Constant nodes, and the tensors from which others are cast, by name."""
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            found.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        elif node.op_type in ("Cast", "DequantizeLinear", "Identity") and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _uses(name: str, readers: Readers, through: frozenset[str] = _SAME_VALUES) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield the nodes that read a value, also after the operators `through`, with the position of the operand."""
    todo, known = [name], {name}
    while todo:
        for node, position in readers[todo.pop()]:
            yield node, position
            if position == 0 and node.op_type in through and node.output[0] not in known:
                known.add(node.output[0])
                todo.append(node.output[0])


def _length(node: onnx.NodeProto, position: int, constants: Mapping[str, onnx.TensorProto]) -> int:
    """Return the number of rows of the table from which a node selects by an operand; 0 if it does not select."""
    table, axis = 0, 0
    if node.op_type == "EmbedLayerNormalization" and position == 0:
        table = 2
    elif node.op_type == "Gather" and position == 1:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    else:
        return 0
    dims = constants[node.input[table]].dims if node.input[table] in constants else ()
    return dims[axis] if len(dims) > 1 else 0


def _compares(node: onnx.NodeProto, other: int, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node may tell negative values apart; a comparison with the id of a padding token does not."""
    if node.op_type != "Equal":
        return node.op_type in _COMPARES
    known = constants.get(node.input[other])
    return known is None or bool((onnx.numpy_helper.to_array(known) < 0).any())
