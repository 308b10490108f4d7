"""onnx's own shape inference, guarded against inputs that crash it: negative dimensions and vectors of terabytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference

from onnxtrain.errors import ModelError
from onnxtrain.graph.check import messages_in
from onnxtrain.graph.query import find_schema

_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)

#: A shape, or the axes, of as many dimensions as any tensor has.
_MOST = 64

#: A vector of more integers is no shape.
_LONG = 2**20

#: Operators whose result may come out shorter than nothing, by their sizes, windows or attributes. Those that copy,
#: broadcast or join dimensions, and those for which onnx refuses a negative size, are not among them.
_SHORTENS = frozenset(
    """
    AffineGrid AveragePool BlackmanWindow CenterCropPad Col2Im Conv ConvInteger ConvTranspose DFT DeformConv
    DepthToSpace GRU GridSample HammingWindow HannWindow LSTM LpPool MaxPool MaxRoiPool MaxUnpool MelWeightMatrix
    Multinomial OneHot Pad QLinearConv RNN RandomNormal RandomUniform Range Resize RoiAlign STFT SpaceToDepth Split
    Tile TopK Upsample
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

#: The input of a hidden Slice: onnx finds no constant under this name, and infers nothing but the rank.
_HIDDEN = "onnxtrain.start_that_is_not_looked_at"


def infer_types(proto: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Return a model with the types and shapes that onnx infers.

    Parameters
    ----------
    proto : onnx.ModelProto
    data_prop : bool
        Follow integers that shapes are made of, where no vector of theirs is long.

    Raises
    ------
    ModelError
        A dimension is negative.
    """
    # for a vector of 2^40 integers onnx makes a list of as many dimensions, which fills the memory
    unclear = data_prop and _may_hold_a_long_vector(proto)
    refuse_negative(proto, data_prop=data_prop and not unclear)
    if unclear:
        data_prop = not _holds_a_long_vector(_infer(proto))
        if data_prop:
            refuse_negative(proto, data_prop=True)
    typed = _infer(proto, data_prop=data_prop)
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    while _type_by_schema(typed.graph, opset, {}):
        typed = _infer(typed, data_prop=data_prop)
    _check_dimensions(typed.graph)
    return typed


def _infer(proto: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(proto, data_prop=data_prop)


# -------------------------------------------------------------------- types


def _type_by_schema(graph: onnx.GraphProto, opset: int, outside: Mapping[str, int]) -> bool:
    """Give, in place, results the type of the operands that share their type parameter; return whether one had none.

    Where onnx cannot infer a shape it leaves out the type as well.
    """
    types = {**outside, **{w.name: w.data_type for w in graph.initializer}}
    types |= {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    changed = False
    for node in graph.node:
        for body in bodies_of(node):
            changed |= _type_by_schema(body, opset, types)
        if node.domain not in ("", "ai.onnx") or all(y in types for y in node.output if y):
            continue
        schema = find_schema(node.op_type, opset, "")
        found = {} if schema is None else _bound(node, schema, types)
        for y, element in found.items():
            graph.value_info.append(onnx.helper.make_tensor_value_info(y, element, None))
        types |= found
        changed |= bool(found)
    return changed


def _bound(node: onnx.NodeProto, schema: onnx.defs.OpSchema, types: Mapping[str, int]) -> dict[str, int]:
    """Return the type of each result that has none and is a tensor like an operand."""
    operands = zip(node.input, _each(schema.inputs, len(node.input)), strict=False)
    bound = {formal.type_str: types[x] for x, formal in operands if formal.is_homogeneous and types.get(x)}
    results = zip(node.output, _each(schema.outputs, len(node.output)), strict=False)
    return {y: bound[formal.type_str] for y, formal in results if y and y not in types and formal.type_str in bound}


def _each(formals: Sequence[Any], n: int) -> list[Any]:
    """Return the formal parameter of a schema for each of `n` operands or results: the last one may be variadic."""
    return [formals[min(i, len(formals) - 1)] for i in range(n if formals else 0)]


# ------------------------------------------------------ negative dimensions


def refuse_negative(proto: onnx.ModelProto, *, data_prop: bool = False) -> None:
    """Refuse a model in which a Slice would be of a negative dimension: there onnx ends the process.

    A Slice keeps dimensions from being negative, an operator of :data:`_SHORTENS` may make them so. Where one
    stands in front of a Slice, shapes are inferred as far as that Slice first, then as far as the next one that
    has such an operator between itself and the last, and so on.

    Raises
    ------
    ModelError
        It names the value.
    """
    stages = [(node, stage) for node, stage in _stages(proto.graph, {}, {}) if stage]
    for stage in range(1, max((s for _, s in stages), default=0) + 1):
        hidden = [(node, node.input[1]) for node, s in stages if s >= stage]
        try:
            for node, _ in hidden:
                node.input[1] = _HIDDEN
            typed = _infer(proto, data_prop=data_prop)
        finally:
            for node, start in hidden:
                node.input[1] = start
        _check_dimensions(typed.graph)


def _check_dimensions(graph: onnx.GraphProto) -> None:
    for value in (*graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if any(d.dim_value < 0 for d in dims):
            shape = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in dims]
            raise ModelError(f"The shape of {value.name!r} would be {shape}: a dimension cannot be negative.")
    for node in graph.node:
        for body in bodies_of(node):
            _check_dimensions(body)


def _stages(
    graph: onnx.GraphProto, depths: dict[str, int], outside: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield each Slice with the number of Slices behind shortening operators up to it; 0 where it is safe.

    `depths` has, by the name of a value, twice the number of such Slices in front of it, plus one behind a shortening
    operator.
    """
    known = {**outside, **small_constants(graph)}
    from_shape: set[str] = set()
    for node in graph.node:
        depth = max((depths.get(x, 0) for x in node.input), default=0)
        for body in bodies_of(node):
            for value in body.input:
                depths[value.name] = depth
            yield from _stages(body, depths, known)
            depth = max(depth, *(depths.get(value.name, 0) for value in body.output), 0)
        if node.op_type == "Slice" and len(node.input) > 1:
            dangerous = depth % 2 == 1 and node.input[0] not in from_shape  # a shape has as many entries as axes
            yield node, (depth + 1) // 2 if dangerous else 0
            depth += dangerous
        elif node.domain not in ("", "ai.onnx") or (node.op_type in _SHORTENS and not _gives_lengths(node, known)):
            depth |= 1
        if node.op_type == "Shape":
            from_shape.update(node.output)
        depths.update(dict.fromkeys(node.output, depth))


def _gives_lengths(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a Split or a Pad cannot make a dimension negative."""
    attributes = {a.name: a for a in node.attribute}
    sizes = known.get(node.input[1]) if len(node.input) > 1 else None
    if node.op_type not in ("Pad", "Split"):
        return False
    if sizes is not None:
        return bool((onnx.numpy_helper.to_array(sizes) >= 0).all())
    return node.op_type == "Split" and len(node.input) < 2 and attributes.keys() <= {"axis"}


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node holds."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def small_constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the constants of a graph that decide shapes: a few integers."""
    given = {value.name for value in graph.input}
    found = {w.name: w for w in graph.initializer if w.name not in given}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            (a,) = node.attribute
            integers = a.i if a.name == "value_int" else a.ints
            found[node.output[0]] = (
                a.t if a.name == "value" else onnx.numpy_helper.from_array(np.array(integers, np.int64))
            )
    return {n: t for n, t in found.items() if t.data_type in _INTEGERS and math.prod(t.dims) <= _MOST}


# ------------------------------------------------------------- long vectors


def _may_hold_a_long_vector(proto: onnx.ModelProto) -> bool:
    """Whether a dimension is declared or an integer held that is large: few models have one."""
    for message in messages_in(proto.graph):
        if isinstance(message, onnx.TensorShapeProto.Dimension) and message.dim_value > _LONG:
            return True
        if isinstance(message, onnx.AttributeProto) and any(i > _LONG for i in (message.i, *message.ints)):
            return True
        small = (
            isinstance(message, onnx.TensorProto)
            and message.data_type in _INTEGERS
            and math.prod(message.dims) <= _MOST
        )
        if small and np.any(onnx.numpy_helper.to_array(message) > _LONG):
            return True
    return False


def _holds_a_long_vector(proto: onnx.ModelProto) -> bool:
    shapes = (m.type.tensor_type.shape.dim for m in messages_in(proto) if isinstance(m, onnx.ValueInfoProto))
    return any(len(dims) == 1 and dims[0].dim_value > _LONG for dims in shapes)
