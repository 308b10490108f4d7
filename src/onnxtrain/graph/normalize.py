"""Normalization of models from elsewhere, whose exporters write the same meaning in different ways.

The docstring of each function states the form that an exporter writes and the form that replaces it;
:func:`onnxtrain.graph.load` applies the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import unique_name
from onnxtrain.graph.check import is_loose, n_bits, refuse_external
from onnxtrain.graph.inference import infer_types, small_constants
from onnxtrain.graph.query import (
    assign,
    bodies_of,
    copy_of,
    dimensions,
    messages_in,
    nodes_in,
    opset_of,
)

#: The largest number of elements of sparse initializers made dense, all together: a small file could fill the memory.
_MOST_DENSE = 2**27

#: Before this IR version every initializer had to be an input as well.
IR_WITH_DEFAULTS = 4

#: The longest Range that is computed: as many axes as a tensor may have.
_FEW = 64


def make_dense(graph: onnx.GraphProto) -> set[str]:
    """Turn the sparse initializers of a graph into dense ones, in place, and return their names.

    onnxruntime writes them for weights with many zeros. The positions of their values are flat or one index per axis.
    """
    sizes = {sparse.values.name: math.prod(sparse.dims) for sparse in graph.sparse_initializer}
    if sum(sizes.values()) > _MOST_DENSE:
        name = max(sizes, key=sizes.__getitem__)
        raise ModelError(f"The sparse initializer {name!r} has {sizes[name]:,} elements, too many for a dense tensor.")
    for sparse in graph.sparse_initializer:
        name, values = sparse.values.name, onnx.numpy_helper.to_array(sparse.values)
        at, dims = onnx.numpy_helper.to_array(sparse.indices), tuple(sparse.dims)
        places = tuple(at.T) if at.ndim > 1 else np.unravel_index(at, dims)
        if values.ndim != 1 or len(places) != len(dims) or (at < 0).any():
            raise ModelError(f"The sparse initializer {name!r} has indices that do not fit its {len(dims)} dimensions.")
        dense = np.zeros(dims, values.dtype)
        dense[places] = values
        graph.initializer.append(onnx.numpy_helper.from_array(dense, name))
    graph.ClearField("sparse_initializer")
    return set(sizes)


def normalized(proto: onnx.ModelProto, messages: Iterable[Message]) -> onnx.ModelProto:
    """Return a model with one opset per domain, no negative dimensions and packed elements.

    skl2onnx writes some domains twice. PaddlePaddle writes -1 for an unknown dimension. onnx's text parser gives each
    4-bit element a separate entry. onnxruntime's optimizer transposes weights but keeps their declared shapes.
    """
    parts = (proto, *proto.functions)
    once = all(len(_imports(part)) == len(part.opset_import) for part in parts)
    if once and not _negative_dimensions(messages) and not _loose_tensors(messages) and not _misdeclared(proto.graph):
        return proto
    copied = copy_of(proto)
    shapes = {w.name: list(w.dims) for w in copied.graph.initializer}
    for value in _misdeclared(copied.graph):
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(value.type.tensor_type.elem_type, shapes[value.name]))
    for part in (copied, *copied.functions):
        assign(part.opset_import, _imports(part).values())
    for dimension in _negative_dimensions(messages_in(copied)):
        dimension.ClearField("dim_value")
    for tensor in _loose_tensors(messages_in(copied)):
        _pack(tensor)
    return copied


def _imports(part: onnx.ModelProto | onnx.FunctionProto) -> dict[str, onnx.OperatorSetIdProto]:
    return {opset.domain: opset for opset in part.opset_import}


def _misdeclared(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the declarations of initializers whose shape differs from the initializer's."""
    shapes = {w.name: list(w.dims) for w in graph.initializer}
    return [v for v in graph.value_info if v.name in shapes and dimensions(v) not in (None, shapes[v.name])]


def _negative_dimensions(messages: Iterable[Message]) -> list[onnx.TensorShapeProto.Dimension]:
    return [m for m in messages if isinstance(m, onnx.TensorShapeProto.Dimension) and m.dim_value < 0]


def _loose_tensors(messages: Iterable[Message]) -> list[onnx.TensorProto]:
    return [m for m in messages if isinstance(m, onnx.TensorProto) and is_loose(m)]


def _pack(tensor: onnx.TensorProto) -> None:
    """Pack small elements into bytes, in place, the first in the lowest bits."""
    bits = n_bits(tensor.data_type)
    elements = np.array(tensor.int32_data) & (2**bits - 1)
    elements = np.pad(elements, (0, -len(elements) % (8 // bits))).reshape(-1, 8 // bits)
    tensor.int32_data[:] = (elements << (bits * np.arange(8 // bits))).sum(axis=1).tolist()


def name_dimensions(graph: onnx.GraphProto) -> None:
    """Name the unknown dimensions of the inputs."""
    values = (*graph.input, *graph.output, *graph.value_info)
    taken = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_param and not dim.HasField("dim_value"):
                dim.dim_param = unique_name(f"{value.name}_{axis}", taken)


def forget_scalars(graph: onnx.GraphProto) -> None:
    """Remove, in place, the shape of inputs declared as scalars that are only reshaped to arrays: they may be arrays.

    onnxruntime takes any, and :func:`~onnxtrain.add_loss_output` declares sample weights like this.
    """
    no_axes = {name for name, tensor in small_constants(graph).items() if list(tensor.dims) == [0]}
    as_scalars = {y.name for y in graph.output}
    for node in nodes_in(graph.node):
        to_array = node.op_type == "Reshape" and no_axes.isdisjoint(node.input)
        as_scalars.update(node.input[to_array:])
    for value in graph.input:
        if dimensions(value) == [] and value.name not in as_scalars:
            value.type.tensor_type.ClearField("shape")


def leave_out_defaults(graph: onnx.GraphProto) -> None:
    """Remove initializers from the inputs, in place: their default values become final."""
    weights = {w.name for w in graph.initializer}
    assign(graph.input, [value for value in graph.input if value.name not in weights])


def leave_out_listed_weights(proto: onnx.ModelProto) -> None:
    """Remove initializers from the inputs, in place, if the file lists its weights there, as those of IR version 3 do.

    In other files, an initializer among the inputs is the default of an input that users feed.
    """
    layers = (node for node in proto.graph.node if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"))
    factors = {x for node in layers for x in node.input[1:]} & {w.name for w in proto.graph.initializer}
    if proto.ir_version < IR_WITH_DEFAULTS or (factors and factors <= {value.name for value in proto.graph.input}):
        leave_out_defaults(proto.graph)
        proto.ir_version = max(proto.ir_version, IR_WITH_DEFAULTS)


def spell_out(graph: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto]) -> None:
    """Make values explicit, in place, that onnx's shape inference misreads.

    These are STFT's default of one-sided frequencies, int32 axes of Pad, and nodes of single integers. By such nodes,
    PyTorch's exporters compute the axes of GroupNorm (Range), the axis of ``unflatten`` (Mod) and of ``max`` (Reshape).
    """
    known = {**outside, **small_constants(graph)}
    for node in list(graph.node):
        for body in bodies_of(node):
            spell_out(body, known)
        if node.op_type == "STFT" and not any(a.name == "onesided" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
        if node.op_type == "Pad" and len(node.input) > 3 and node.input[3] in known:
            _lengthen_axes(graph, node, known)
        if node.op_type in _OF_INTEGERS and not node.domain and known.keys() >= {*node.input}:
            _compute(node, known)


def _compute(node: onnx.NodeProto, known: dict[str, onnx.TensorProto]) -> None:
    """Make a Constant of a node of single integers, in place."""
    xs = [onnx.numpy_helper.to_array(known[x]) for x in node.input]
    if any(x.size != 1 for x in xs) or any(a.i for a in node.attribute):  # allowzero and fmod are 0 by default
        return
    found = _OF_INTEGERS[node.op_type](*(int(x.item()) for x in xs))
    if found and max(map(abs, found)) < 2**31:
        array = np.array(found, xs[0].dtype)
        shape = array.shape if node.op_type in ("Range", "Reshape") else np.broadcast_shapes(*(x.shape for x in xs))
        tensor = onnx.numpy_helper.from_array(array.reshape(shape))
        known[node.output[0]] = tensor
        node.CopyFrom(onnx.helper.make_node("Constant", [], node.output, node.name, value=tensor))


def _range(first: int, stop: int, step: int) -> list[int]:
    """Return the integers of a Range if they are few."""
    return list(range(first, stop, step)) if step and abs(stop - first) <= _FEW * abs(step) else []


#: Operators on single integers, which return a list of integers, empty if it is not computed.
_OF_INTEGERS: Mapping[str, Callable[..., list[int]]] = {
    "Add": lambda a, b: [a + b],
    "Sub": lambda a, b: [a - b],
    "Mod": lambda a, b: [a % b] if b else [],
    "Reshape": lambda a, _: [a],
    "Range": _range,
}


def _lengthen_axes(graph: onnx.GraphProto, pad: onnx.NodeProto, known: Mapping[str, onnx.TensorProto]) -> None:
    axes = known[pad.input[3]]
    if axes.data_type == onnx.TensorProto.INT32:
        taken = {*known, *(x for n in graph.node for x in (*n.input, *n.output)), *(v.name for v in graph.input)}
        pad.input[3] = unique_name("axes", taken)
        longer = onnx.numpy_helper.to_array(axes).astype(np.int64)
        graph.initializer.append(onnx.numpy_helper.from_array(longer, pad.input[3]))


def quantize_by_standard(graph: onnx.GraphProto) -> None:
    """Replace com.microsoft's operators of 4-bit and 16-bit integers by ai.onnx's since opset 21, in place."""
    for node in nodes_in(graph.node):
        if node.domain == "com.microsoft" and node.op_type in ("DequantizeLinear", "QuantizeLinear"):
            node.domain = ""


def drop_unused_statistics(graph: onnx.GraphProto) -> None:
    """Give BatchNormalization in training mode constants for statistics that only lead to unused outputs, in place.

    PyTorch standardizes convolution weights in this way. torch.onnx.export(dynamo=False) computes these statistics from
    a copy of the weight, which would be taken for a weight of its own. onnxruntime merges equal constants and writes
    the new statistics over the old ones, so the constants must not equal a scale or a bias, which are often 1 and 0.
    """
    types = {w.name: w.data_type for w in graph.initializer}
    types |= {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    used = {x for node in nodes_in(graph.node) for x in node.input} | {y.name for y in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if _has_statistics(node) and used.isdisjoint(filter(None, node.output[1:])):
            shape, unused = f"{node.output[0]}.channels", f"{node.output[0]}.unused"
            half = onnx.helper.make_tensor("value", types.get(node.input[3], onnx.TensorProto.FLOAT), [1], [0.5])
            nodes.append(onnx.helper.make_node("Shape", [node.input[1]], [shape]))
            nodes.append(onnx.helper.make_node("ConstantOfShape", [shape], [unused], value=half))
            node.input[3:] = [unused, unused]
        nodes.append(node)
    if len(nodes) > len(graph.node):
        assign(graph.node, nodes)


def _has_statistics(node: onnx.NodeProto) -> bool:
    """Whether a node is a BatchNormalization in training mode with different values for mean and variance."""
    if node.op_type != "BatchNormalization" or len(node.input) < 5 or node.input[3] == node.input[4]:
        return False
    return any(a.name == "training_mode" and a.i for a in node.attribute)


def name_domains(proto: onnx.ModelProto) -> None:
    """Add, in place, the domain of operators of onnxruntime written as if they were of ai.onnx, and its opset.

    The domain ai.onnx is written as "", because onnx does not know that these are the same.
    """
    every = list(nodes_in(proto.graph.node))
    for node in every:
        node.domain = "" if node.domain == "ai.onnx" else node.domain
    for node in every:
        if node.op_type == "SimplifiedLayerNormalization" and not node.domain:
            node.domain = "com.microsoft"
    used = any(node.domain == "com.microsoft" for node in every)
    if used and all(o.domain != "com.microsoft" for o in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


# --------------------------------------------------------------- functions


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each call of a model-local function is replaced by its body."""
    if not proto.functions:
        return proto
    inlined = _converted_and_inlined(_with_defaults(proto))
    refuse_external(inlined)
    return inlined


def _converted_and_inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inline functions; functions of another opset are converted to the opset of the model.

    For the conversion, onnx needs the types of the arguments, and infers shapes in the function. The starts of its
    Slices are hidden meanwhile, because a negative dimension would abort the process, see
    :func:`~onnxtrain.graph.inference.refuse_negative`.
    """
    if {opset_of(function) for function in proto.functions} != {opset_of(proto)}:
        changed = copy_of(proto)
        for function in changed.functions:
            for part in [function, *(body for node in nodes_in(function.node) for body in bodies_of(node))]:
                _start_slices_anywhere(part)
        proto = infer_types(changed)
    return onnx.inliner.inline_local_functions(proto, convert_version=True)


def _start_slices_anywhere(part: onnx.FunctionProto | onnx.GraphProto) -> None:
    """Give each Slice, in place, a copy of its start that onnx does not recognise as a constant."""
    nodes = []
    for node in part.node:
        if node.op_type == "Slice" and len(node.input) > 1:
            copy = f"{node.output[0]}_start"
            nodes.append(onnx.helper.make_node("Identity", [node.input[1]], [copy]))
            node.input[1] = copy
        nodes.append(node)
    assign(part.node, nodes)


def _with_defaults(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose calls have the default attributes of their functions, which onnx ignores."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions if f.attribute_proto}
    if not defaults:
        return proto
    copied = copy_of(proto)
    for node in [node for part in (copied.graph, *copied.functions) for node in nodes_in(part.node)]:
        given = {a.name for a in node.attribute}
        known = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(a for a in known if a.name not in given)
    return copied


# ------------------------------------------- outputs that are maps or sequences
#
# ZipMap converts the probabilities of a classifier to a dictionary per row. onnx-ir and derivatives do not support it,
# so such outputs are removed before a model is changed, and restored later.


def without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose outputs are tensors: each map or sequence is replaced by the tensors in it."""
    copied = copy_of(proto)
    maps = _map_names(copied)
    if not maps:
        return copied
    aside = _making(copied.graph.node, maps)
    made = {y for node in aside for y in node.output}
    assign(copied.graph.node, [node for node in copied.graph.node if node not in aside])
    types = {v.name: v for v in (*copied.graph.value_info, *copied.graph.input)}
    outputs = {o.name: o for o in copied.graph.output if o.name not in maps}
    known = {*made, *outputs, *(w.name for w in copied.graph.initializer), ""}
    tensors = dict.fromkeys(x for node in aside for x in node.input if x not in known)
    added = [types.get(name) or _behind_map(proto, name) for name in tensors]
    assign(copied.graph.output, [*outputs.values(), *added])
    return copied


def _behind_map(proto: onnx.ModelProto, tensor: str) -> onnx.ValueInfoProto:
    """Return the entry of a tensor that a map or a sequence is made of; of a ZipMap it is float32, (n, n_classes)."""
    keys = keys_of_columns(proto, tensor)
    if keys is None:
        return onnx.helper.make_empty_tensor_value_info(tensor)
    return onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, [None, len(keys)])


def with_maps_of(proto: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the outputs of `original`, whose maps are made again from their tensors.

    Parameters
    ----------
    proto : onnx.ModelProto
        A model derived from :func:`without_maps` of `original`, with the same output names.
    original : onnx.ModelProto
    """
    maps = _map_names(original)
    copied = copy_of(proto)
    if not maps:
        return copied
    copied.graph.node.extend(_making(original.graph.node, maps))
    known = {o.domain for o in copied.opset_import}
    copied.opset_import.extend(o for o in original.opset_import if o.domain not in known)
    tensors = {o.name: o for o in copied.graph.output}
    outputs = [o if o.name in maps else tensors[o.name] for o in original.graph.output]
    assign(copied.graph.output, outputs)
    return copied


def keys_of_columns(proto: onnx.ModelProto, tensor: str) -> list[Any] | None:
    """Return the keys that a ZipMap gives to the columns of a tensor, or None without ZipMap."""
    made = (node for node in proto.graph.node if node.op_type == "ZipMap" and tensor in node.input)
    lists = (a for node in made for a in node.attribute if a.name.startswith("classlabels_"))
    found = next(lists, None)
    return None if found is None else [*found.ints, *(text.decode() for text in found.strings)]


def tensor_behind_map(proto: onnx.ModelProto, output: Any) -> Any:
    """Return the name of the tensor behind an output of ZipMap; any other output unchanged."""
    maps = (
        n for n in proto.graph.node if n.op_type == "ZipMap" and n.input and n.output
    )  # a damaged one may lack them
    return next((n.input[0] for n in maps if n.output[0] == output), output)


def _map_names(proto: onnx.ModelProto) -> set[str]:
    kinds = {o.name: o.type.WhichOneof("value") for o in proto.graph.output}
    return {name for name, kind in kinds.items() if kind in ("map_type", "sequence_type", "optional_type")}


#: Operators that make a map, a sequence or an optional value.
_MAKERS = frozenset(
    {
        "Optional",
        "OptionalGetElement",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceMap",
        "SplitToSequence",
        "ZipMap",
    }
)


#: Operators whose results are of any type.
_OF_ANY = frozenset({"Identity", "If", "Loop"})


def _making(nodes: Iterable[onnx.NodeProto], maps: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes between tensors and maps, sequences or optional values, in order.

    Raises
    ------
    ModelError
        One of `maps` is the result of an operator that makes a tensor.
    """
    nodes, others = list(nodes), set[str]()
    for node in nodes:
        passes_on = node.op_type in _OF_ANY or node.domain not in ("", "ai.onnx", "ai.onnx.ml")
        if node.op_type in _MAKERS or (passes_on and (maps | others).intersection((*node.input, *node.output))):
            others.update(node.output)
        elif wrong := maps.intersection(node.output):
            raise ModelError(
                f"The output {min(wrong)!r} is declared as a sequence, but is a tensor, made by {node.op_type}. "
                "Declare it as a tensor."
            )
    wanted, found = set(maps), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(others.intersection(node.input))
    return found[::-1]
