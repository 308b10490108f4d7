"""Inference of types and shapes: onnx's inference, guarded against crashes, with its gaps filled.

In onnx's inference, negative dimensions abort the process and huge vectors fill the memory; it infers nothing through a
Loop.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.shape_inference
import onnx.version_converter
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import unique_name
from onnxtrain.graph.query import (
    assign,
    bodies_of,
    copy_of,
    dimensions,
    messages_in,
    nodes_in,
    operator_name,
    opset_of,
)
from onnxtrain.opsets import find_schema, runtime_version

#: A dimension is a length, a name or unknown; a shape is None if the rank is unknown.
_Shape: TypeAlias = "list[int | str | None] | None"

_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)

#: The largest number of dimensions of a tensor.
_MOST = 64

#: A longer vector of integers is not a shape.
_LONG = 2**20

#: Operators whose result may get a negative dimension through sizes, windows or attributes. Operators that copy,
#: broadcast or join dimensions, or for which onnx refuses a negative size, are excluded.
_SHORTENS = frozenset(
    """
    AffineGrid AveragePool BlackmanWindow CenterCropPad Col2Im Conv ConvInteger ConvTranspose DFT DeformConv
    DepthToSpace GRU GridSample HammingWindow HannWindow LSTM LpPool MaxPool MaxRoiPool MaxUnpool MelWeightMatrix
    Multinomial OneHot Pad QLinearConv RNN RandomNormal RandomUniform Range Resize RoiAlign STFT SpaceToDepth Split
    Tile TopK Upsample
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

#: The start of a hidden Slice; onnx finds no constant of this name and so infers only the rank.
_HIDDEN = "onnxtrain.start_that_is_not_looked_at"


#: Operators of ai.onnx.ml for which onnx ends the process if their operand has no known type.
_NEED_TYPES = frozenset({"DictVectorizer", "LabelEncoder"})

#: The start of the name of a hidden operator, which onnx does not know and therefore skips.
_SKIPPED = "onnxtrain.skipped."


def infer_types(proto: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Return a model with the types and shapes that onnx infers.

    Parameters
    ----------
    proto : onnx.ModelProto
    data_prop : bool
        Whether to propagate the integers from which shapes are computed, unless one of their vectors is long.

    Raises
    ------
    ModelError
        A dimension is negative.
    """
    # onnx expands a vector of 2^40 integers to a list of dimensions, which fills the memory
    unclear = data_prop and _may_hold_a_long_vector(proto)
    refuse_negative(proto, data_prop=data_prop and not unclear)
    if unclear:
        data_prop = not _holds_a_long_vector(_infer(proto))
        if data_prop:
            refuse_negative(proto, data_prop=True)
    typed = _infer(proto, data_prop=data_prop)
    while _type_by_schema(typed.graph, opset_of(proto), {}):
        typed = _infer(typed, data_prop=data_prop)
    _check_dimensions(typed.graph)
    return typed


def convert_version(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a model that onnx converted to an opset; operators that need types are hidden, since it infers types."""
    hidden = _in_need_of_types(proto)
    for node in hidden:
        node.op_type = _SKIPPED + node.op_type
    try:
        converted = onnx.version_converter.convert_version(proto, opset)
    finally:
        _show(hidden)
    _show(nodes_in(converted.graph.node))
    return converted


def _in_need_of_types(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    nodes = nodes_in(proto.graph.node)
    return [node for node in nodes if node.domain == "ai.onnx.ml" and node.op_type in _NEED_TYPES]


def _infer(proto: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Return a model with the types that onnx infers; operators that need types are hidden until these are known."""
    hidden = _in_need_of_types(proto)
    while True:
        for node in hidden:
            node.op_type = _SKIPPED + node.op_type
        try:
            typed = onnx.shape_inference.infer_shapes(proto, data_prop=data_prop)
        finally:
            _show(hidden)
        if not hidden:
            return typed
        _show(nodes_in(typed.graph.node))
        values = [m for m in messages_in(typed.graph) if isinstance(m, onnx.ValueInfoProto)]
        known = {v.name for v in values if v.type.tensor_type.elem_type} | {w.name for w in typed.graph.initializer}
        unknown = [node for node in hidden if not known.issuperset(node.input[:1])]
        if len(unknown) == len(hidden):
            return typed
        hidden = unknown


def _show(nodes: Iterable[onnx.NodeProto]) -> None:
    """Give hidden operators their names again, in place."""
    for node in nodes:
        node.op_type = node.op_type.removeprefix(_SKIPPED)


# -------------------------------------------------------------------- types


def _type_by_schema(graph: onnx.GraphProto, opset: int, outside: Mapping[str, int]) -> bool:
    """Give untyped results the type of operands with the same type parameter, in place; return whether any was untyped.

    If onnx cannot infer a shape, it omits the type as well.
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
    """Return the type of each untyped result that has the type parameter of an operand."""
    operands = zip(node.input, _each(schema.inputs, len(node.input)), strict=False)
    bound = {formal.type_str: types[x] for x, formal in operands if formal.is_homogeneous and types.get(x)}
    results = zip(node.output, _each(schema.outputs, len(node.output)), strict=False)
    return {y: bound[formal.type_str] for y, formal in results if y and y not in types and formal.type_str in bound}


def _each(formals: Sequence[Any], n: int) -> list[Any]:
    """Return the formal parameter of a schema for each of `n` operands or results; the last may be variadic."""
    return [formals[min(i, len(formals) - 1)] for i in range(n if formals else 0)]


# ------------------------------------------------------ negative dimensions


def refuse_negative(proto: onnx.ModelProto, *, data_prop: bool = False) -> None:
    """Raise if a Slice would have a negative dimension, for which onnx aborts the process.

    An operator of :data:`_SHORTENS` may make a dimension negative. If there is one before a Slice, shapes are first
    inferred up to this Slice, then up to the next Slice with such an operator between it and the previous one, and so
    on.

    Raises
    ------
    ModelError
        The message names the value.
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
        if any(d.dim_value < 0 for d in value.type.tensor_type.shape.dim):
            shape = dimensions(value)
            raise ModelError(f"The shape of {value.name!r} would be {shape}: a dimension cannot be negative.")
    for node in graph.node:
        for body in bodies_of(node):
            _check_dimensions(body)


def _stages(
    graph: onnx.GraphProto, depths: dict[str, int], outside: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield each Slice with the number of Slices after shortening operators up to it; 0 if it is safe.

    `depths` has, for each value by name, twice the number of such Slices before it, plus one after a shortening
    operator.
    """
    known = {**outside, **small_constants(graph)}
    from_shape: set[str] = set()
    negative = {name for name, tensor in known.items() if (onnx.numpy_helper.to_array(tensor) < 0).any()}
    for node in graph.node:
        depth = max((depths.get(x, 0) for x in node.input), default=0)
        for body in bodies_of(node):
            for value in body.input:
                depths[value.name] = depth
            yield from _stages(body, depths, known)
            depth = max(depth, *(depths.get(value.name, 0) for value in body.output), 0)
        if node.op_type == "Slice" and len(node.input) > 1:
            dangerous = depth % 2 == 1 and node.input[0] not in from_shape  # a shape has a fixed length
            yield node, (depth + 1) // 2 if dangerous else 0
            depth += dangerous
        elif node.domain not in ("", "ai.onnx") or (node.op_type in _SHORTENS and not _gives_lengths(node, known)):
            depth |= 1
        elif node.op_type == "Expand":  # the shape is usually computed from that of another value
            depth |= not negative.isdisjoint(node.input[1:])
        if node.op_type == "Shape":
            from_shape.update(node.output)
        elif node.op_type == "Sub" or not negative.isdisjoint(node.input):
            negative.update(node.output)
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


def small_constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the constants of a graph that can determine shapes: a few integers."""
    given = {value.name for value in graph.input}
    found = {w.name: w for w in graph.initializer if w.name not in given}
    found |= {
        node.output[0]: _tensor(*node.attribute)
        for node in graph.node
        if node.op_type == "Constant" and not node.domain
    }
    return {name: tensor for name, tensor in found.items() if _is_small(tensor)}


def _tensor(value: onnx.AttributeProto) -> onnx.TensorProto:
    """Return the value of a Constant; an empty tensor if it holds no integers."""
    if value.name == "value":
        return value.t
    return onnx.numpy_helper.from_array(np.array(value.i if value.name == "value_int" else value.ints, np.int64))


def _is_small(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _INTEGERS and math.prod(tensor.dims) <= _MOST


# ------------------------------------------------------------- long vectors


def _may_hold_a_long_vector(proto: onnx.ModelProto) -> bool:
    """Whether a declared dimension or a stored integer is large, which is rare."""
    return any(i > _LONG for message in messages_in(proto.graph) for i in _integers(message))


def _integers(message: Message) -> Iterable[int]:
    """Return the integers directly in a message that may determine shapes."""
    if isinstance(message, onnx.TensorShapeProto.Dimension):
        return (message.dim_value,)
    if isinstance(message, onnx.AttributeProto):
        return (message.i, *message.ints)
    small = isinstance(message, onnx.TensorProto) and _is_small(message)
    return onnx.numpy_helper.to_array(message).ravel().tolist() if small else ()


def _holds_a_long_vector(proto: onnx.ModelProto) -> bool:
    shapes = (m.type.tensor_type.shape.dim for m in messages_in(proto) if isinstance(m, onnx.ValueInfoProto))
    return any(len(dims) == 1 and dims[0].dim_value > _LONG for dims in shapes)


# ----------------------------------------------- with the gaps of onnx filled

#: For operators without inference in onnx, an operator with the same shapes of operands and results.
_INFERRED_AS = {
    "GroupNormalization": onnx.NodeProto(op_type="InstanceNormalization"),
    "com.microsoft:CDist": onnx.helper.make_node("Gemm", [], [], transB=1),
    "com.microsoft:DynamicQuantizeLSTM": onnx.NodeProto(op_type="LSTM"),
    "com.microsoft:Inverse": onnx.NodeProto(op_type="Identity"),
}


def infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with inferred types and shapes for its values.

    An iteration of a Loop may change the shapes of its loop-carried values, so onnx does not infer them. Here, a Loop
    is assumed to keep the shape that its body declares, or the shape of the initial value. Dimensions that change
    according to the inference of the body are then dropped until the rest is invariant. onnx also does not see
    constants that a body captures from outside, so bodies get copies of them.
    """
    proto = _with_own_constants(proto)
    typed = _infer_known(proto)
    kept: dict[tuple[int, int], _Shape] = {}
    while True:
        found, unproven = _carried(proto, typed, kept)
        if found == kept:  # the shape after an iteration may depend on inner Loops
            found |= dict.fromkeys(unproven)
        if found == kept:
            return typed
        kept = found
        assumed = copy_of(proto)
        _assume(assumed, typed, kept)
        typed = _infer_known(assumed)


def without_false_declarations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without false declared types of results, also of results in bodies; the model itself if none.

    Tools that change the inputs of a file, such as its batch size, often leave the shapes of its results as they were.
    onnx and onnxruntime keep a false shape, and gradients are summed along the axes that seem to be broadcast. A type
    that contradicts the inferred one is false. A length of the first axis that is not inferred may be that of an
    earlier batch, so it is dropped if the value depends on inputs whose first axis has a name.
    """
    inferred = infer_shapes(_without_declarations(proto)).graph
    names = {d for v in proto.graph.input for d in dimensions(v) or () if isinstance(d, str)}
    rows = _dependent_on_rows(proto.graph)
    corrected: dict[tuple[int, str], onnx.TypeProto] = {}
    for i, (graph, typed) in enumerate(zip(_graphs(proto.graph), _graphs(inferred), strict=True)):
        found = {v.name: v for v in _typed_values(typed)}
        for value in (v for v in _typed_values(graph) if v.name in found):
            if _contradict(value, found[value.name], names):
                corrected[i, value.name] = found[value.name].type
            elif i == 0 and value.name in rows and _has_a_first_length(value, found[value.name]):
                corrected[i, value.name] = _without_first_length(value.type)
    if not corrected:
        return proto
    changed = copy_of(proto)
    for i, graph in enumerate(_graphs(changed.graph)):
        for value in _typed_values(graph):
            if (i, value.name) in corrected:
                value.type.CopyFrom(corrected[i, value.name])
    return changed


def _without_declarations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without declared types of results that onnx can infer, and without shapes of inputs of bodies."""
    bare = copy_of(proto)
    for graph in _graphs(bare.graph):
        made = {y for node in graph.node if node.domain in ("", "ai.onnx") for y in node.output}
        assign(graph.value_info, [v for v in graph.value_info if v.name not in made])
        for value in graph.output:
            if value.name in made and value.type.HasField("tensor_type"):
                value.type.tensor_type.CopyFrom(onnx.TypeProto.Tensor())
        for value in graph.input if graph is not bare.graph else ():
            value.type.tensor_type.ClearField("shape")
    return bare


def _dependent_on_rows(graph: onnx.GraphProto) -> set[str]:
    """Return the values that depend on inputs whose first axis has a name, and these inputs."""
    found = {v.name for v in graph.input if isinstance((dimensions(v) or [None])[0], str)}
    for node in graph.node:
        if any(not found.isdisjoint(inner.input) for inner in nodes_in([node])):
            found.update(node.output)
    return found


def _has_a_first_length(declared: onnx.ValueInfoProto, inferred: onnx.ValueInfoProto) -> bool:
    """Whether the length of the first axis is declared but not inferred."""
    first, second = dimensions(declared), dimensions(inferred)
    return bool(first and second and isinstance(first[0], int) and not isinstance(second[0], int))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph, then the graphs inside it."""
    yield graph
    for node in graph.node:
        for body in bodies_of(node):
            yield from _graphs(body)


def _without_first_length(type_: onnx.TypeProto) -> onnx.TypeProto:
    changed = onnx.TypeProto()
    changed.CopyFrom(type_)
    changed.tensor_type.shape.dim[0].Clear()
    return changed


def _typed_values(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [v for v in (*graph.input, *graph.value_info, *graph.output) if v.HasField("type")]


def _contradict(declared: onnx.ValueInfoProto, inferred: onnx.ValueInfoProto, named: Container[str]) -> bool:
    """Whether a value is declared with another element type, rank or length than inferred.

    A length of an axis that has, as inferred, a name of an axis of the inputs is another one, too.
    """
    other_type = inferred.type.tensor_type.elem_type not in (0, declared.type.tensor_type.elem_type)
    shapes = dimensions(declared), dimensions(inferred)
    if other_type or None in shapes:
        return other_type
    first, second = (shape or [] for shape in shapes)
    return len(first) != len(second) or any(
        isinstance(a, int) and (a != b if isinstance(b, int) else b in named)
        for a, b in zip(first, second, strict=True)
    )


def _infer_known(proto: onnx.ModelProto) -> onnx.ModelProto:
    read = _as_onnx_infers(proto)
    typed = infer_types(read, data_prop=True)
    if read is not proto:
        assign(typed.opset_import, proto.opset_import)
        for node, known in zip(nodes_in(typed.graph.node), nodes_in(proto.graph.node), strict=True):
            if node.op_type != known.op_type:
                node.CopyFrom(known)
    return typed


#: The first onnxruntime that omits, at every opset, a pooling window that starts in the end padding.
_WITHOUT_WINDOWS_OF_PADDING = (1, 21)


def _as_onnx_infers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model for which onnx infers the shapes of the given model; the model itself if no change is needed."""
    nodes = list(nodes_in(proto.graph.node))
    rounded = opset_of(proto) == 21 and _leaves_out_windows(node for node in nodes if not node.domain)
    if not rounded and _INFERRED_AS.keys().isdisjoint(operator_name(node.op_type, node.domain) for node in nodes):
        return proto
    read = copy_of(proto)
    for node in nodes_in(read.graph.node):
        like = _INFERRED_AS.get(operator_name(node.op_type, node.domain))
        if like is not None:
            node.op_type, node.domain = like.op_type, ""
            node.attribute.extend(like.attribute)
    for opset in read.opset_import:
        opset.version = 22 if rounded and not opset.domain else opset.version
    return read


def _leaves_out_windows(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether onnxruntime omits windows in the end padding that onnx counts before opset 22."""
    rounds_up = any(a.name == "ceil_mode" and a.i for node in nodes for a in node.attribute)
    return rounds_up and runtime_version() >= _WITHOUT_WINDOWS_OF_PADDING


# ---------------------------------------------------------------- constants


def _with_own_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose bodies contain the axes, shapes and indices that they captured from outside."""
    if not any(map(bodies_of, proto.graph.node)):
        return proto
    own = copy_of(proto)
    _copy_constants(own.graph, {}, {y for node in nodes_in(own.graph.node) for y in node.output})
    return own


def _copy_constants(graph: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto], taken: set[str]) -> None:
    known = {**outside, **small_constants(graph)}
    for node in graph.node:
        for body in bodies_of(node):
            used = {x for inner in body.node for x in inner.input if x in known}
            copies = {x: unique_name(f"{x}_inside", taken) for x in sorted(used)}
            for inner in body.node:
                inner.input[:] = [copies.get(x, x) for x in inner.input]
            first = [onnx.helper.make_node("Constant", [], [copies[x]], value=known[x]) for x in copies]
            assign(body.node, [*first, *body.node])
            _copy_constants(body, known, taken)


# -------------------------------------------------------------------- loops


@dataclass(frozen=True)
class _Loop:
    """A Loop, the graph that contains it, and the known shapes of this graph."""

    node: onnx.NodeProto
    graph: onnx.GraphProto
    shapes: Mapping[str, _Shape]

    @property
    def body(self) -> onnx.GraphProto:
        return next(a.g for a in self.node.attribute if a.name == "body")


def _carried(
    proto: onnx.ModelProto, typed: onnx.ModelProto, kept: Mapping[tuple[int, int], _Shape]
) -> tuple[dict[tuple[int, int], _Shape], list[tuple[int, int]]]:
    """Return the invariant shape of each loop-carried value, by the index of the Loop and of the value.

    Then return the loop-carried values whose shape after an iteration is unknown.
    """
    found: dict[tuple[int, int], _Shape] = {}
    unproven = []
    for i, (written, loop) in enumerate(zip(_loops(proto.graph, {}), _loops(typed.graph, {}), strict=True)):
        for k, name in enumerate(loop.node.input[2:]):
            declared, first = dimensions(written.body.input[2 + k]), loop.shapes.get(name)
            after = dimensions(loop.body.output[1 + k])
            if (i, k) not in kept:
                if declared is not None or first is not None:
                    found[i, k] = first if declared is None else declared
            else:
                if after is None and declared is None:
                    unproven.append((i, k))
                found[i, k] = _common(kept[i, k], *(shape for shape in (first, after) if shape is not None))
    return found, unproven


def _common(first: _Shape, *others: _Shape) -> _Shape:
    """Return the dimensions on which shapes agree, None where they differ; None if the ranks differ."""
    if first is None or any(other is None or len(other) != len(first) for other in others):
        return None
    return [dims[0] if dims.count(dims[0]) == len(dims) else None for dims in zip(first, *others, strict=True)]


def _assume(proto: onnx.ModelProto, typed: onnx.ModelProto, kept: Mapping[tuple[int, int], _Shape]) -> None:
    """Write the shapes that Loops keep, in place; they hold in the body and after the Loop."""
    for i, (loop, known) in enumerate(zip(_loops(proto.graph, {}), _loops(typed.graph, {}), strict=True)):
        values = {v.name: v for v in (*loop.graph.value_info, *loop.graph.output)}
        for k, name in enumerate(loop.node.output[: len(loop.node.input) - 2]):
            if kept.get((i, k)) is None:
                continue
            x = known.body.input[2 + k]
            if not x.type.HasField("tensor_type"):
                continue
            _write(loop.body.input[2 + k], x, kept[i, k])
            if name:
                _write(values.get(name) or loop.graph.value_info.add(name=name), x, kept[i, k])


def _write(value: onnx.ValueInfoProto, like: onnx.ValueInfoProto, shape: _Shape) -> None:
    """Give a value the type of another, and a shape if it declares none."""
    tensor = value.type.tensor_type
    tensor.elem_type = like.type.tensor_type.elem_type
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(onnx.helper.make_tensor_type_proto(1, shape).tensor_type.shape)


def _loops(graph: onnx.GraphProto, outside: Mapping[str, _Shape]) -> Iterator[_Loop]:
    if not any(map(bodies_of, graph.node)):
        return
    shapes = {**outside, **{w.name: list(w.dims) for w in graph.initializer}}
    shapes |= {v.name: dimensions(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            yield _Loop(node, graph, shapes)
        for body in bodies_of(node):
            yield from _loops(body, shapes)
