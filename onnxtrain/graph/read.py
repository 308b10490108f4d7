"""Read a model: from a file or bytes to a private copy at a known opset."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import onnx
import onnx.inliner
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import unique_name
from onnxtrain.graph.change import put_in_order, tidy
from onnxtrain.graph.look import find_schema
from onnxtrain.graph.maps import without_maps
from onnxtrain.graph.opset import OPSET, convert_opset

ModelLike: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: The newest IR version that every supported onnxruntime (1.19 and newer) reads.
IR_VERSION = 10

#: Before this IR version every initializer had to be an input as well.
_IR_WITH_DEFAULTS = 4

#: A protobuf message cannot be larger.
PROTO_LIMIT = 2**31


def read(onx: ModelLike) -> onnx.ModelProto:
    """Return the model as a :class:`onnx.ModelProto`; a ModelProto is returned as it is.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        External data is looked for beside the file.

    Raises
    ------
    ModelError
        The bytes are not an ONNX model, or hold no graph; weights are in files that are
        missing or, of a model that did not come as a path, might be anywhere; the model
        is larger than 2 GB.
    """
    if isinstance(onx, onnx.ModelProto):
        proto = onx
        _refuse_external_data(proto)
    elif isinstance(onx, (bytes, bytearray)):
        proto = _parse(bytes(onx), f"{len(onx)} bytes")
        _refuse_external_data(proto)
    elif isinstance(onx, (str, os.PathLike)):
        if not os.path.isfile(onx):
            raise ModelError(f"There is no file {os.fspath(onx)!r}.")
        if os.path.getsize(onx) >= PROTO_LIMIT:
            raise ModelError(f"{os.fspath(onx)!r} is larger than 2 GB, the limit of a protobuf message.")
        with open(onx, "rb") as f:
            proto = _parse(f.read(), repr(os.fspath(onx)))
        _load_external_data(proto, os.path.dirname(os.path.abspath(onx)))
    else:
        raise ModelError(f"Expected an onnx.ModelProto, its bytes or a path, got {type(onx).__name__}.")
    if not proto.graph.output:
        raise ModelError("The model has no output: it is empty, or it was cut short.")
    return proto


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except Exception as e:  # protobuf's DecodeError is not a builtin, and moved between versions
        raise ModelError(f"{what} cannot be read as an ONNX model: {e}") from e


def _refuse_external_data(proto: onnx.ModelProto) -> None:
    for tensor in _external_tensors(proto.graph):
        place = next((e.value for e in tensor.external_data if e.key == "location"), "?")
        raise ModelError(
            f"The numbers of {tensor.name!r} are in another file, {place!r}, and only a path says in which folder: "
            "give the path of the .onnx file, or what onnx.load(path) returns."
        )


def _load_external_data(proto: onnx.ModelProto, folder: str) -> None:
    tensors = list(_external_tensors(proto.graph))
    size = sum(math.prod(t.dims) * _item_size(t.data_type) for t in tensors)
    if size >= PROTO_LIMIT:
        raise ModelError(
            f"The weights of the model take {size / 2**30:.1f} GB; a model is trained as one protobuf message, "
            "which holds less than 2 GB."
        )
    try:
        onnx.load_external_data_for_model(proto, folder)
    except (OSError, ValueError, onnx.checker.ValidationError) as e:
        raise ModelError(f"The external data of the model cannot be read from {folder!r}: {e}") from e


def _external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a graph, and of the graphs inside it, that are kept in other files."""
    yield from (t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from (t for t in (attribute.t, *attribute.tensors) if t.data_location == onnx.TensorProto.EXTERNAL)
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _external_tensors(inner)


def _item_size(data_type: int) -> int:
    """Return the bytes of a number, 1 where it takes less."""
    return max(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize, 1)


def load(onx: ModelLike) -> ir.Model:
    """Return a private copy of a model, ready to be worked on.

    Model-local functions are inlined, the opset of ai.onnx is brought to
    :data:`OPSET` where that is possible (a newer graph that needs its opset keeps
    it), unnamed dimensions of the inputs get names, so that the same unknown is
    known to be the same further down, and every value gets a type and a shape.
    Outputs that are maps or sequences (ZipMap) are left out: see :func:`with_maps_of`.

    Raises
    ------
    ModelError
        The model cannot be read, is malformed, or its opset cannot be converted.
    """
    proto = without_maps(read(onx))
    _refuse_newer(proto)
    _refuse_sparse(proto.graph)
    try:
        if proto.functions:
            proto = onnx.inliner.inline_local_functions(proto, convert_version=True)
        _name_dimensions(proto.graph)
        _write_default(proto.graph.node)
        _check_arity(proto.graph, {o.domain: o.version for o in proto.opset_import})
        all_listed = proto.ir_version < _IR_WITH_DEFAULTS
        proto = convert_opset(proto)
        if all_listed:
            _leave_out_listed_weights(proto.graph)
        model = infer(proto)
    except ModelError:
        raise
    except Exception as e:  # onnx and onnx-ir raise what they like on a malformed graph
        raise ModelError(f"The model cannot be read: {type(e).__name__}: {e}") from e
    return model


def reload(onx: ModelLike) -> ir.Model:
    """Return a model that was loaded and saved before: all that can be known of its values is written in it."""
    proto = read(onx)
    return ir.from_proto(proto) if is_written(proto) else load(proto)


def is_written(onx: onnx.ModelProto) -> bool:
    """Whether a model is as `save` writes one that was loaded: each value has a type, each dimension a name."""
    typed = {value.name for value in (*onx.graph.value_info, *onx.graph.output) if value.HasField("type")}
    dimensions = (d for value in onx.graph.input for d in value.type.tensor_type.shape.dim)
    opset = next((o.version for o in onx.opset_import if not o.domain), 0)
    return (
        onx.ir_version == IR_VERSION
        and opset >= OPSET
        and not onx.functions
        and all(d.dim_param or d.HasField("dim_value") for d in dimensions)
        and all(y in typed for node in onx.graph.node for y in node.output if y)
    )


def _refuse_newer(proto: onnx.ModelProto) -> None:
    opsets = {o.domain or "ai.onnx": o.version for o in proto.opset_import}
    newest = onnx.defs.onnx_opset_version()
    for what, found, known in (
        ("IR version", proto.ir_version, int(onnx.IR_VERSION)),
        ("opset", opsets.get("ai.onnx", 0), newest),
    ):
        if found > known:
            raise ModelError(
                f"The model has {what} {found}; onnx {onnx.__version__} knows them up to {known}. Install a newer onnx."
            )


def _refuse_sparse(graph: onnx.GraphProto) -> None:
    for tensor in graph.sparse_initializer:
        raise ModelError(
            f"The initializer {tensor.values.name!r} is sparse: it cannot be trained or differentiated. "
            "Store it as a dense tensor."
        )


def _check_arity(graph: onnx.GraphProto, opsets: dict[str, int]) -> None:
    """Refuse nodes with more or fewer inputs or outputs than their operators have."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _check_arity(attribute.g, opsets)
        schema = find_schema(node.op_type, opsets.get(node.domain, opsets.get("ai.onnx", 0)), node.domain)
        if schema is None:
            continue
        for what, found, least, most in (
            ("inputs", len(node.input), schema.min_input, schema.max_input),
            ("outputs", len(node.output), schema.min_output, schema.max_output),
        ):
            if not least <= found <= most:
                raise ModelError(
                    f"{node.op_type} (node {node.name!r}) has {found} {what}; "
                    f"it must have {least if least == most else f'{least} to {most}'}."
                )


def infer(proto: onnx.ModelProto) -> ir.Model:
    """Return a model whose values have the types and shapes that follow, without the nodes that change nothing."""
    model = _infer(proto)
    put_in_order(model)
    if tidy(model):
        # shapes that a no-op Reshape had hidden now reach what stands behind it
        model = _infer(_without_inferred(ir.to_proto(model)))
    return model


def infer_anew(model: ir.Model) -> ir.Model:
    """Return a model that was changed with the types and shapes that follow now, whatever was found before."""
    put_in_order(model)
    believed = [y.shape for y in model.graph.outputs]
    proto = _without_inferred(ir.to_proto(model))
    for y in proto.graph.output:
        y.type.tensor_type.ClearField("shape")
    model = infer(proto)
    for y, shape in zip(model.graph.outputs, believed, strict=True):
        y.shape = shape if y.shape is None else y.shape
    return model


def _infer(proto: onnx.ModelProto) -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def _without_inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Forget the types that inference found; of operators that onnx does not know it finds none."""
    foreign = {name for node in proto.graph.node if node.domain not in ("", "ai.onnx") for name in node.output}
    kept = [value for value in proto.graph.value_info if value.name in foreign]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)
    return proto


def _name_dimensions(graph: onnx.GraphProto) -> None:
    taken = {
        dim.dim_param
        for value in (*graph.input, *graph.output, *graph.value_info)
        for dim in value.type.tensor_type.shape.dim
    }
    for value in graph.input:
        if not value.type.tensor_type.HasField("shape"):
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_param and (not dim.HasField("dim_value") or dim.dim_value < 0):
                dim.dim_param = unique_name(f"{value.name}_{axis}", taken)


def _leave_out_listed_weights(graph: onnx.GraphProto) -> None:
    """Take initializers out of the inputs where all of them had to be listed: there they are no defaults."""
    weights = {w.name for w in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


def _write_default(nodes: Iterable[onnx.NodeProto]) -> None:
    """Write out a default that onnx's shape inference takes for another: STFT gives one side of the frequencies."""
    for node in nodes:
        if node.op_type == "STFT" and not any(a.name == "onesided" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
