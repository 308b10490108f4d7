"""Checks of a model that is damaged, or that refers to files outside its folder, before it is used.

A model is an untrusted file; any fault raises a :class:`~onnxtrain.errors.ModelError`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.external_data_helper
import onnx_ir as ir
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.cache import table
from onnxtrain.errors import ModelError, as_model_error
from onnxtrain.graph.held import filters_of, has_many_floats, hold_external, key_of
from onnxtrain.graph.query import bodies_of, describe, messages_in, nodes_in
from onnxtrain.opsets import find_schema
from onnxtrain.registry import did_you_mean

#: The largest size of a protobuf message.
PROTO_LIMIT = 2**31

#: The remedy for a larger model.
BESIDE = "Save its weights to a file beside it: onnx.save_model(model, path, save_as_external_data=True)"

#: The prefixes of operators that compute with integers, in models of the format QOperator.
_OF_INTEGERS = ("QLinear", "QGemm", "QAttention", "QEmbedLayerNormalization", "QMoE", "QOrdered")

#: The remedy for a model that quantizes a batch by its largest value.
OF_FIXED_SCALES = (
    "Train the floating-point model that it was made from, or that model quantized with "
    "onnxruntime.quantization.quantize_static, whose scales are fixed."
)

#: The remedy for operands of different types.
ONE_TYPE = (
    "The operands of a node must have one type. Store arrays of numpy as float32, "
    "onnx.numpy_helper.from_array(array.astype(numpy.float32), name), or put a Cast before the node."
)

#: The element types of tensors.
_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}

#: The fields of a tensor that hold data of certain types.
_DATA = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")

#: The largest number of axes of an array in each version of numpy.
_MOST_AXES = 32

#: The largest number of nodes after inlining of functions: nested calls can multiply without taking space in the file.
#: The largest models have about 100,000 nodes.
_MOST_NODES = 10_000_000


# -------------------------------------------------------------------- entry


def check_content(
    proto: onnx.ModelProto, folder: str | None, held: dict[str, np.ndarray] | None = None
) -> list[Message]:
    """Check the messages of a model; load, in place, the tensors that are stored in external files.

    Returns the messages of :func:`messages_in`, because a walk through a small model takes as long as parsing it.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model; it is changed only if a folder is given.
    folder : str or None
        The folder of the model's file, in which its external data must be; None if the model is not from a file.
    held : dict, optional
        Receives large tensors of external files, which are held outside the model.

    Raises
    ------
    ModelError
        A string is not UTF-8, a type is unknown, the data of a tensor does not fit its dimensions, external data is
        outside the folder, or there is no folder.
    """
    messages = list(messages_in(proto))
    tensors = [m for m in messages if isinstance(m, onnx.TensorProto)]
    for tensor in tensors:
        _check_dimensions(tensor)
    _load_external(tensors, folder, held, filters_of(proto))
    for tensor in tensors:
        _check_size(tensor)
    for message in messages:
        if (check := _CHECKS.get(type(message))) is not None:
            check(message)
    for value in proto.graph.input:
        _check_input(value)
    _check_functions(proto)
    return messages


def refuse_external(proto: onnx.ModelProto) -> None:
    """Raise if a tensor is stored in an external file."""
    _load_external([m for m in messages_in(proto) if isinstance(m, onnx.TensorProto)], None)


# ------------------------------------------------------------------ tensors


def _check_dimensions(tensor: onnx.TensorProto) -> None:
    if tensor.data_type not in _TYPES:
        raise ModelError(f"The tensor {tensor.name!r} has the unknown element type {tensor.data_type}.")
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"The tensor {tensor.name!r} has a negative dimension: {list(tensor.dims)}.")
    if len(tensor.dims) > _MOST_AXES:
        raise ModelError(
            f"The tensor {tensor.name!r} has {len(tensor.dims)} axes, but numpy arrays have at most {_MOST_AXES}."
        )
    if tensor.HasField("segment"):
        raise ModelError(f"The tensor {tensor.name!r} is a segment of another tensor, which onnx cannot read.")
    if 0 in tensor.dims and math.prod(d or 1 for d in tensor.dims) >= PROTO_LIMIT:
        raise ModelError(f"The tensor {tensor.name!r} has no elements, but too large dimensions: {list(tensor.dims)}.")


def _check_size(tensor: onnx.TensorProto) -> None:
    """Check that the size of a tensor's data agrees with its dimensions."""
    if key_of(tensor) is not None:
        return
    n = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        found, expected, unit = len(tensor.raw_data), _n_bytes(tensor), "bytes"
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        found, expected, unit = len(getattr(tensor, field)), _n_entries(tensor.data_type, n), "elements"
        if any(len(getattr(tensor, other)) for other in _DATA if other != field):
            raise ModelError(f"The tensor {tensor.name!r} of type {_type_name(tensor)} holds data of another type.")
    if expected is not None and found != expected and not is_loose(tensor):
        raise ModelError(
            f"The tensor {tensor.name!r} of type {_type_name(tensor)} and dimensions {list(tensor.dims)} must hold "
            f"{expected} {unit}, but holds {found}. The model is truncated or damaged."
        )


def is_loose(tensor: onnx.TensorProto) -> bool:
    """Whether each element of fewer than eight bits has its own entry, as onnx's text parser writes them."""
    bits = n_bits(tensor.data_type)
    return bits in (2, 4) and not tensor.HasField("raw_data") and len(tensor.int32_data) == math.prod(tensor.dims) > 1


def n_bits(data_type: int) -> int:
    """Return the bits of an element; 8, the least, for a string."""
    return 8 if data_type == onnx.TensorProto.STRING else int(ir.DataType(data_type).bitwidth)


def _type_name(tensor: onnx.TensorProto) -> str:
    return str(onnx.TensorProto.DataType.Name(tensor.data_type))


def _n_bytes(tensor: onnx.TensorProto) -> int | None:
    """Return the bytes of the elements; 0 for strings, which cannot be raw, and None if unknown."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return 0
    bits = ir.DataType(tensor.data_type).bitwidth
    return None if bits == 6 else -(-math.prod(tensor.dims) * bits // 8)


def _n_entries(data_type: int, n: int) -> int | None:
    """Return the number of entries of the data field for elements that are not raw; small elements share an entry."""
    if data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return 2 * n
    bits = n_bits(data_type)
    return None if bits == 6 else -(-n * min(bits, 8) // 8)


# ------------------------------------------------------------ external data


def _load_external(
    tensors: Iterable[onnx.TensorProto],
    folder: str | None,
    held: dict[str, np.ndarray] | None = None,
    filters: Container[str] = (),
) -> None:
    external = [t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL and key_of(t) is None]
    for tensor in external:
        _check_keys(tensor)
    if held is not None and folder is not None:
        large = [t for t in external if has_many_floats(t) and t.name not in filters]
        for tensor in large:
            check_location(tensor.name, _location(tensor), folder)
            with as_model_error(f"The external data of the model cannot be read from {folder!r}"):
                _check_length(tensor, folder)
        held.update(hold_external(large, folder))
        external = [t for t in external if key_of(t) is None]
    size = sum(_n_bytes(t) or 0 for t in external)
    for tensor in external:
        location = _location(tensor)
        if folder is None:
            raise ModelError(
                f"The values of {_called(tensor.name)} are in another file, {location!r}, in an unknown folder. Pass "
                "the path of the .onnx file, or the result of onnx.load(path)."
            )
        check_location(tensor.name, location, folder)
        if size >= PROTO_LIMIT:
            raise ModelError(
                f"The weights of the model take {size / 2**30:.1f} GB, but a model is trained as one protobuf message, "
                "which holds less than 2 GB."
            )
        with as_model_error(f"The external data of the model cannot be read from {folder!r}"):
            _check_length(tensor, folder)
            onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _called(name: str) -> str:
    """Describe an initializer by its name; the tensor of a Constant node has none."""
    return repr(name) if name else "a Constant"


def _check_keys(tensor: onnx.TensorProto) -> None:
    """Raise if a key occurs twice: readers differ in which one they use, and only one would be checked."""
    keys = [entry.key for entry in tensor.external_data]
    if len(set(keys)) < len(keys):
        raise ModelError(f"The external data of {_called(tensor.name)} has duplicate keys: {keys}.")


def _location(tensor: onnx.TensorProto) -> str:
    return next((e.value for e in tensor.external_data if e.key == "location"), "?")


def check_location(name: str, location: str, folder: str) -> None:
    """Raise if a file is missing or outside the folder of the model."""
    refuse_outside(name, location, folder)
    if not os.path.isfile(os.path.join(os.path.realpath(folder), location)):
        raise ModelError(
            f"The external data of the model cannot be read from {folder!r}: there is no {location!r}. Copy this file "
            "there, too."
        )


def refuse_outside(name: str, location: str, folder: str) -> None:
    """Raise if a file is outside the folder of the model: a model must not read or replace other files of the user."""
    here, windows = PurePosixPath(location), PureWindowsPath(location)
    odd = here.is_absolute() or windows.drive or windows.root or "\0" in location
    inside = os.path.realpath(folder)
    if (
        odd
        or ".." in (*here.parts, *windows.parts)
        or os.path.commonpath([inside, os.path.realpath(os.path.join(inside, location))]) != inside
    ):
        raise ModelError(
            f"The values of {_called(name)} are in the file {location!r}, outside the folder of the model, {folder!r}. "
            "External data is only read from that folder, not through absolute paths, '..' or links."
        )


def _check_length(tensor: onnx.TensorProto, folder: str) -> None:
    """Raise if external data is longer or shorter than the tensor, before reading it."""
    entries = {e.key: e.value for e in tensor.external_data}
    offset = int(entries.get("offset", 0))
    if offset < 0:
        raise ValueError(f"{tensor.name!r} has the negative offset {offset}")
    rest = os.path.getsize(os.path.join(folder, entries["location"])) - offset
    found, expected = int(entries.get("length", rest)), _n_bytes(tensor)
    if expected is not None and not found == expected <= rest:
        raise ValueError(
            f"{tensor.name!r} needs {expected} bytes, but {entries['location']!r} has {min(found, rest)} for it. The "
            "file is truncated or of another model. Copy it again, from beside the .onnx file"
        )


# -------------------------------------------------- types, names, functions


def _check_sparse(tensor: onnx.SparseTensorProto) -> None:
    if not all(0 <= d < PROTO_LIMIT for d in tensor.dims):
        raise ModelError(f"A sparse tensor of the model has invalid dimensions: {list(tensor.dims)}.")


def _check_type(type_: onnx.TypeProto.Tensor) -> None:
    if type_.elem_type not in {*_TYPES, 0}:
        raise ModelError(f"The model has a value with the unknown element type {type_.elem_type}.")


def _check_input(value: onnx.ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    if kind is None or (kind == "tensor_type" and not value.type.tensor_type.elem_type):
        raise ModelError(f"The input {value.name!r} has no element type.")


def _check_split(node: onnx.NodeProto) -> None:
    """Raise if a Split states another number of outputs than it has: onnx and onnxruntime would end the process."""
    if node.op_type != "Split" or node.domain not in ("", "ai.onnx"):
        return
    stated = next((a.i for a in node.attribute if a.name == "num_outputs"), None)
    if stated is not None and stated != len(node.output):
        raise ModelError(
            f"Split (node {node.name!r}) has num_outputs={stated}, but {len(node.output)} outputs. They must be equal."
        )


def _check_names(graph: onnx.GraphProto) -> None:
    """Raise if a name denotes two values, since it would be undefined which of them a node reads."""
    if not all(tensor.name for tensor in graph.initializer):
        raise ModelError(f"An initializer of the graph {graph.name!r} has no name.")
    made = [y for node in graph.node for y in node.output if y]
    for names in ([value.name for value in graph.input], _initializers(graph)):
        for name, times in Counter([*names, *made]).items():
            if times > 1:
                raise ModelError(
                    f"The graph {graph.name!r} has {times} values named {name!r}. Give each a name of its own. If "
                    "torch.onnx.export(..., dynamo=True, input_names=...) wrote the file, its optimizer gave the name "
                    "of an input to a result, too. Use optimize=False."
                )


def _initializers(graph: onnx.GraphProto) -> list[str]:
    return [tensor.name for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))]


#: The check for each type of message.
_CHECKS: dict[type[Message], Callable[[Any], None]] = {
    onnx.SparseTensorProto: _check_sparse,
    onnx.TypeProto.Tensor: _check_type,
    onnx.GraphProto: _check_names,
    onnx.NodeProto: _check_split,
}


def _check_functions(proto: onnx.ModelProto) -> None:
    """Raise if functions call themselves, or if inlining them would fill the memory."""
    bodies = {(f.domain, f.name, f.overload): f for f in proto.functions}
    if len(bodies) < len(proto.functions):
        raise ModelError("The model has two functions with the same name and domain.")
    sizes: dict[tuple[str, str, str], int] = {}
    open_calls: set[tuple[str, str, str]] = set()

    def size(part: onnx.GraphProto | onnx.FunctionProto) -> int:
        total = 0
        for node in nodes_in(part.node):
            key = (node.domain, node.op_type, node.overload)
            if key in open_calls:
                raise ModelError(f"The function {node.op_type!r} of the model calls itself.")
            if key in bodies and key not in sizes:
                open_calls.add(key)
                sizes[key] = size(bodies[key])
                open_calls.remove(key)
            total += sizes.get(key, 1)
        return total

    if bodies and size(proto.graph) > _MOST_NODES:
        raise ModelError(f"Inlining the functions of the model would create more than {_MOST_NODES:,} nodes.")


# -------------------------------------------------------------------- nodes


def check_nodes(proto: onnx.ModelProto) -> None:
    """Check inputs, outputs and attributes of each node against the schema of its operator.

    Raises
    ------
    ModelError
        A node has too many or too few inputs or outputs, or an attribute that is unknown, missing or of another type;
        or it reads a value that no node computes.
    """
    _check_reads(proto.graph, frozenset())
    opsets = {o.domain: o.version for o in proto.opset_import}
    texts = {tensor.name for tensor in proto.graph.initializer if tensor.data_type == onnx.TensorProto.STRING}
    for node in nodes_in(proto.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = find_schema(node.op_type, opsets.get(domain, opsets.get("ai.onnx", 0)), domain)
        if schema is not None:
            _check_arity(node, schema)
            _check_attributes(node, schema)
            if not texts.isdisjoint(node.input):
                _check_texts(node, schema, texts)


def _check_reads(graph: onnx.GraphProto, outside: frozenset[str]) -> None:
    """Raise if a node or an output refers to a value that neither this graph nor an outer graph has."""
    made = (y for node in graph.node for y in node.output)
    known = outside.union(made, [value.name for value in graph.input], _initializers(graph), [""])
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise ModelError(f"{node.op_type} (node {node.name!r}) reads {name!r}, which no node computes.")
        for body in bodies_of(node):
            _check_reads(body, known)
    for value in graph.output:
        if value.name not in known:
            raise ModelError(f"No node computes the output {value.name!r} of the graph {graph.name!r}.")


def _check_arity(node: onnx.NodeProto, schema: Any) -> None:
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            raise ModelError(
                f"{node.op_type} (node {node.name!r}) must have "
                f"{least if least == most else f'{least} to {most}'} {what}, got {found}."
                f"{_of_another_opset(node, schema)}"
            )
    if "" in node.input:
        _check_left_out(node, schema)


def _check_texts(node: onnx.NodeProto, schema: Any, texts: Container[str]) -> None:
    """Raise a ModelError if a numeric operator has a string initializer as input."""
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if name in texts and "tensor(string)" not in formal.types:
            raise ModelError(f"{node.op_type} (node {node.name!r}) takes no texts, but its input {name!r} holds texts.")


def _check_left_out(node: onnx.NodeProto, schema: Any) -> None:
    """Raise if an input that is not optional has an empty name."""
    formals = schema.inputs
    for i, name in enumerate(node.input):
        formal = formals[min(i, len(formals) - 1)]
        optional = formal.option is formal.option.Optional or not formal.is_homogeneous
        if not name and not optional:
            raise ModelError(f"{node.op_type} (node {node.name!r}) lacks the required input {formal.name!r}.")


def _check_attributes(node: onnx.NodeProto, schema: Any) -> None:
    known = _attributes(schema)
    found = {a.name: a for a in node.attribute}
    where = f"{node.op_type} (node {node.name!r})"
    if len(found) < len(node.attribute):
        raise ModelError(f"{where} has duplicate attributes: {[a.name for a in node.attribute]}.")
    for name, attribute in found.items():
        if name not in known:
            remedy = _of_another_opset(node, schema) or f" {did_you_mean(name, known)}"
            raise ModelError(f"{where} has an unknown attribute {name!r}.{remedy}")
        if attribute.ref_attr_name:
            raise ModelError(
                f"The attribute {name!r} of {where} refers to the attribute {attribute.ref_attr_name!r} of a function, "
                "but the node is in no function."
            )
        if attribute.type != known[name].type or not _is_filled(attribute):
            kind = onnx.AttributeProto.AttributeType.Name(known[name].type)
            raise ModelError(f"The attribute {name!r} of {where} must have type {kind}.")
    for name in known:
        if name not in found and known[name].required:
            raise ModelError(f"{where} lacks the required attribute {name!r}.")


def _of_another_opset(node: onnx.NodeProto, schema: Any) -> str:
    """Return the remedy for a node of ai.onnx that is written for another opset, with a leading space; else ""."""
    since = schema.since_version
    for opset in (*range(since - 1, 0, -1), *range(since + 1, onnx.defs.onnx_opset_version() + 1)):
        other = None if schema.domain else find_schema(node.op_type, opset, "")
        if (
            other is not None
            and other.min_input <= len(node.input) <= other.max_input
            and len(node.output) <= other.max_output
            and {a.name for a in node.attribute} <= _attributes(other).keys()
        ):
            return (
                f" It is written for opset {opset}, and the model declares another. Declare the opset of its nodes: "
                f"onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid('', {opset})])."
            )
    return ""


class _Attribute(NamedTuple):
    """The type of an attribute, and whether it is required."""

    type: int
    required: bool


@table(maxsize=256)
def _attributes(schema: Any) -> dict[str, _Attribute]:
    """Return the attributes of an operator by name; cached, because onnx builds the dictionary each time."""
    return {name: _Attribute(a.type.value, a.required) for name, a in schema.attributes.items()}


#: The fields of attributes that hold one value.
_FIELDS = {
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    onnx.AttributeProto.TYPE_PROTO: "tp",
}


def _is_filled(attribute: onnx.AttributeProto) -> bool:
    """Whether the field for the type of an attribute is set; an absent scalar is zero."""
    field = _FIELDS.get(attribute.type)
    return field is None or attribute.HasField(field)


# -------------------------------------------------------- models without a gradient


def refuse_integer_products(onx: onnx.ModelProto) -> None:
    """Raise a ModelError if operators of a model compute with integers.

    Raises
    ------
    ModelError
        The message names one of the operators.
    """
    found = next((node for node in onx.graph.node if node.op_type.startswith(_OF_INTEGERS)), None)
    if found is not None:
        raise ModelError(
            f"The model computes with integers in {found.op_type} (node {found.name!r}): it was quantized in the "
            "format QOperator, which has no gradient. Quantize the floating-point model in the format QDQ: "
            "onnxruntime.quantization.quantize_static(..., quant_format=QuantFormat.QDQ), the default."
        )
    found = next((node for node in onx.graph.node if node.op_type == "DynamicQuantizeMatMul"), None)
    if found is not None:
        raise ModelError(
            f"The model computes with integers in {found.op_type} (node {found.name!r}), which onnxruntime made from "
            f"other operators and which has no gradient. {OF_FIXED_SCALES}"
        )


def refuse_mixed_types(model: ir.Model) -> None:
    """Raise a ModelError if operands of a node have different types although its operator takes one."""
    for node in model.graph:
        schema = find_schema(node.op_type, model.graph.opset_imports.get(node.domain, 0), node.domain)
        if schema is None:
            continue
        found: dict[str, ir.DataType] = {}
        for i, x in enumerate(node.inputs):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)]
            if x is None or x.dtype is None or not formal.is_homogeneous:
                continue
            if found.setdefault(formal.type_str, x.dtype) is not x.dtype:
                operands = ", ".join(describe(v) for v in node.inputs)
                raise ModelError(f"{node.op_type}({operands}) has operands of different types. {ONE_TYPE}")
