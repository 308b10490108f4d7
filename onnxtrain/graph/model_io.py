"""Where a model enters and leaves.

It is read and checked, from a file or bytes to a private copy at a known opset, and written: pruned, its names
unique, with a pinned IR version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx_ir as ir
import onnx_ir.passes.common as passes
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import Builder, unique_name
from onnxtrain.graph.check import (
    PROTO_LIMIT,
    as_model_error,
    check_content,
    check_nodes,
    is_loose,
    messages_in,
    n_bits,
    refuse_external,
)
from onnxtrain.graph.edit import put_in_order, remove_identities, tidy
from onnxtrain.graph.inference import infer_shapes
from onnxtrain.graph.onnx_inference import bodies_of, infer_types, small_constants
from onnxtrain.graph.opset import OPSET, convert_opset
from onnxtrain.graph.zipmap import without_maps

ModelLike: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: The newest IR version that every supported onnxruntime (1.19 and newer) reads.
IR_VERSION = 10

#: Before this IR version every initializer had to be an input as well.
_IR_WITH_DEFAULTS = 4


def read(onx: ModelLike) -> onnx.ModelProto:
    """Return a model that was checked as a :class:`onnx.ModelProto`: every model comes in here.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        A ModelProto is returned as it is, or a copy if a domain has two opsets (the last one holds, as in onnxruntime)
        a dimension is declared as -1 (it is not known) or elements of a few bits have a byte each (they are packed).
        External data is looked for in the folder of the file.

    Raises
    ------
    ModelError
        The bytes are not an ONNX model, hold no graph, or are damaged; weights are in files that are missing, outside
        the folder of the model or, of a model that did not come as a path, might be anywhere; the model is larger
        than 2 GB.
    """
    folder = None
    if isinstance(onx, onnx.ModelProto):
        proto = onx
    elif isinstance(onx, (bytes, bytearray)):
        proto = _parse(bytes(onx), f"{len(onx)} bytes")
    elif isinstance(onx, (str, os.PathLike)):
        folder = os.path.dirname(os.path.abspath(onx))
        proto = _parse(_bytes_of_file(onx), repr(os.fspath(onx)))
    else:
        raise ModelError(f"Expected an onnx.ModelProto, its bytes or a path, got {type(onx).__name__}.")
    with as_model_error("The model cannot be read"):
        messages = check_content(proto, folder)
    if not proto.graph.output:
        raise ModelError("The model has no output: it is empty, or it was cut short.")
    return _normalised(proto, messages)


def _bytes_of_file(path: str | os.PathLike[str]) -> bytes:
    if not os.path.isfile(path):
        raise ModelError(f"There is no file {os.fspath(path)!r}.")
    if os.path.getsize(path) >= PROTO_LIMIT:
        raise ModelError(f"{os.fspath(path)!r} is larger than 2 GB, the limit of a protobuf message.")
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise ModelError(f"The file {os.fspath(path)!r} cannot be read: {e.strerror}.") from e


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except Exception as e:  # protobuf's DecodeError is not a builtin, and moved between versions
        raise ModelError(f"{what} cannot be read as an ONNX model: {e}") from e


def _normalised(proto: onnx.ModelProto, messages: Iterable[Message]) -> onnx.ModelProto:
    """Return a model whose opset_import names each domain once, where no dimension is negative and elements are packed.

    skl2onnx writes some domains twice; -1 is PaddlePaddle's word for a dimension that is not known; onnx's text parser
    gives each element of four bits an entry of its own.
    """
    once = all(len({o.domain for o in p.opset_import}) == len(p.opset_import) for p in (proto, *proto.functions))
    if once and not _negative_dimensions(messages) and not _loose_tensors(messages):
        return proto
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    for part in (copied, *copied.functions):
        versions = {o.domain: o.version for o in part.opset_import}
        del part.opset_import[:]
        part.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    for dimension in _negative_dimensions(messages_in(copied)):
        dimension.ClearField("dim_value")
    for tensor in _loose_tensors(messages_in(copied)):
        _pack(tensor)
    return copied


def _negative_dimensions(messages: Iterable[Message]) -> list[onnx.TensorShapeProto.Dimension]:
    return [m for m in messages if isinstance(m, onnx.TensorShapeProto.Dimension) and m.dim_value < 0]


def _loose_tensors(messages: Iterable[Message]) -> list[onnx.TensorProto]:
    return [m for m in messages if isinstance(m, onnx.TensorProto) and is_loose(m)]


def _pack(tensor: onnx.TensorProto) -> None:
    """Let, in place, small elements share bytes, the first in the lowest bits."""
    bits = n_bits(tensor.data_type)
    elements = np.array(tensor.int32_data) & (2**bits - 1)
    elements = np.pad(elements, (0, -len(elements) % (8 // bits))).reshape(-1, 8 // bits)
    tensor.int32_data[:] = (elements << (bits * np.arange(8 // bits))).sum(axis=1).tolist()


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
    with as_model_error("The model cannot be read"):  # a ModelProto may be deeper than protobuf copies
        proto = without_maps(read(onx))
    _refuse_newer(proto)
    _refuse_sparse(proto.graph)
    with as_model_error("The model cannot be read"):
        proto = inline_functions(proto)
        _name_dimensions(proto.graph)
        check_nodes(proto)
        _spell_out(proto.graph, {})
        all_listed = proto.ir_version < _IR_WITH_DEFAULTS
        proto = convert_opset(proto)
        if all_listed:
            leave_out_defaults(proto.graph)
        return infer(proto)


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each call of a function of its own is the function's body."""
    if not proto.functions:
        return proto
    inlined = _converted_and_inlined(_with_defaults(proto))
    refuse_external(inlined)
    return inlined


def _converted_and_inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inline functions, those of another opset at that of the model.

    To convert one, onnx has to know the types of what it is called with, and infers shapes in it. Where a Slice starts
    is no constant then: one of a negative dimension would end the process, as
    :func:`~onnxtrain.graph.onnx_inference.refuse_negative` says.
    """
    opset = _opset(proto)
    if any(_opset(f) != opset for f in proto.functions):
        changed = onnx.ModelProto()
        changed.CopyFrom(proto)
        for part in (part for f in changed.functions for part in messages_in(f)):
            if isinstance(part, (onnx.FunctionProto, onnx.GraphProto)):
                _start_slices_anywhere(part)
        proto = infer_types(changed)
    return onnx.inliner.inline_local_functions(proto, convert_version=True)


def _opset(part: onnx.ModelProto | onnx.FunctionProto) -> int:
    return next((o.version for o in part.opset_import if o.domain in ("", "ai.onnx")), 0)


def _start_slices_anywhere(part: onnx.FunctionProto | onnx.GraphProto) -> None:
    """Give, in place, each Slice a copy of the start: none that onnx takes for a constant."""
    nodes = []
    for node in part.node:
        if node.op_type == "Slice" and len(node.input) > 1:
            copy = f"{node.output[0]}_start"
            nodes.append(onnx.helper.make_node("Identity", [node.input[1]], [copy]))
            node.input[1] = copy
        nodes.append(node)
    del part.node[:]
    part.node.extend(nodes)


def _with_defaults(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose calls have the attributes that their functions have defaults for: onnx leaves them out."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions if f.attribute_proto}
    if not defaults:
        return proto
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    for node in [m for m in messages_in(copied) if isinstance(m, onnx.NodeProto)]:
        given = {a.name for a in node.attribute}
        known = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(a for a in known if a.name not in given)
    return copied


def reload(onx: onnx.ModelProto | bytes) -> ir.Model:
    """Return a model that was loaded and saved before: it was checked, and holds all inferred types and shapes."""
    proto = onx if isinstance(onx, onnx.ModelProto) else _parse(onx, f"{len(onx)} bytes")
    if not is_written(proto):
        return load(proto)
    with as_model_error("The model cannot be read"):
        return ir.from_proto(proto)


def is_written(onx: onnx.ModelProto) -> bool:
    """Whether a model is as `save` writes a loaded one: each value has a type, each dimension a name."""
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


def infer(proto: onnx.ModelProto) -> ir.Model:
    """Return a model whose values have the types and shapes that follow, without the nodes that change nothing."""
    model = _infer(proto)
    put_in_order(model)
    if tidy(model):
        # shapes that a no-op Reshape had hidden now propagate to its descendants
        model = _infer(_without_inferred(ir.to_proto(model)))
    return model


def infer_anew(model: ir.Model) -> ir.Model:
    """Return a changed model with types and shapes inferred anew; earlier results are discarded."""
    with as_model_error("The types and shapes of the model cannot be inferred"):
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
    return ir.from_proto(infer_shapes(proto))


def _without_inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Forget inferred types, except those of operators unknown to onnx, which it cannot infer again.

    Those of initializers stay, with their metadata.
    """
    stays = {name for node in proto.graph.node if node.domain not in ("", "ai.onnx") for name in node.output}
    stays |= {tensor.name for tensor in proto.graph.initializer}
    kept = [value for value in proto.graph.value_info if value.name in stays]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)
    return proto


def _name_dimensions(graph: onnx.GraphProto) -> None:
    """Name the unknown dimensions of the inputs."""
    taken = {
        dim.dim_param
        for value in (*graph.input, *graph.output, *graph.value_info)
        for dim in value.type.tensor_type.shape.dim
    }
    for value in graph.input:
        if not value.type.tensor_type.HasField("shape"):
            continue
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_param and not dim.HasField("dim_value"):
                dim.dim_param = unique_name(f"{value.name}_{axis}", taken)


def initializers_as_inputs(onx: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose initializers `names` are inputs, after its other inputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(onx)
    inputs = {value.name for value in proto.graph.input}
    values = {tensor.name: tensor for tensor in onx.graph.initializer}
    kept = [tensor for tensor in onx.graph.initializer if tensor.name not in set(names)]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    for name in names:
        if name not in inputs:
            tensor = values[name]
            proto.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    return proto


def leave_out_defaults(graph: onnx.GraphProto) -> None:
    """Remove, in place, initializers from the inputs: their default values are final."""
    weights = {w.name for w in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


def _spell_out(graph: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto]) -> None:
    """Write out, in place, values that onnx's shape inference misreads.

    By default STFT gives one side of the frequencies; the axes of Pad may be int32.
    """
    known = {**outside, **small_constants(graph)}
    for node in list(graph.node):
        for body in bodies_of(node):
            _spell_out(body, known)
        if node.op_type == "STFT" and not any(a.name == "onesided" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
        axes = known.get(node.input[3]) if node.op_type == "Pad" and len(node.input) > 3 else None
        if axes is not None and axes.data_type == onnx.TensorProto.INT32:
            taken = {*known, *(x for n in graph.node for x in (*n.input, *n.output)), *(v.name for v in graph.input)}
            node.input[3] = unique_name("axes", taken)
            longer = onnx.numpy_helper.to_array(axes).astype(np.int64)
            graph.initializer.append(onnx.numpy_helper.from_array(longer, node.input[3]))


# -------------------------------------------------------------------- writing


def prune(model: ir.Model) -> None:
    """Eliminate, in place, dead code and common subexpressions.

    Inputs are part of the interface: they stay.
    """
    inputs = list(model.graph.inputs)
    outputs = [y.name for y in model.graph.outputs]
    passes.CommonSubexpressionEliminationPass()(model)
    remove_identities(model)
    passes.RemoveUnusedNodesPass()(model)
    model.graph.inputs[:] = inputs
    _restore_outputs(model.graph, outputs)
    for body in model.graph.subgraphs():
        _separate_outputs(body)


def _separate_outputs(body: ir.Graph) -> None:
    """Copy a value that is two outputs of the body of a Loop or a Scan: onnxruntime writes both to one buffer."""
    for i, y in enumerate(body.outputs):
        if any(y is other for other in body.outputs[:i]):
            copy = ir.node("Identity", [y])
            copy.outputs[0].type, copy.outputs[0].shape = y.type, y.shape
            body.append(copy)
            body.outputs[i] = copy.outputs[0]


def _restore_outputs(graph: ir.Graph, names: Sequence[str | None]) -> None:
    """Restore the name of each output that was merged with an equal one."""
    for i, name in enumerate(names):
        y = graph.outputs[i]
        if y.name != name:
            copy = Builder(graph).op.Identity(y)
            copy.name = name
            graph.outputs[i] = copy


def save(model: ir.Model, *, outputs: Sequence[tuple[str, ir.Value]] | None = None) -> onnx.ModelProto:
    """Return a model as a ModelProto of a pinned IR version, pruned, its names unique.

    Parameters
    ----------
    model : onnx_ir.Model
    outputs : sequence of (name, value), optional
        Replaces the outputs of the graph. A value that already has a name the
        user knows (an input, an initializer, another output) is copied by Identity.
    """
    if outputs is not None:
        set_outputs(model, outputs)
    model.ir_version = IR_VERSION
    with as_model_error("The model cannot be written"):  # a malformed model may only show now
        put_in_order(model)  # a node that precedes its operand would hide that both are unused
        prune(model)
        passes.NameFixPass()(model)
        proto = ir.to_proto(model)
    if proto.ByteSize() >= PROTO_LIMIT:
        raise ModelError(f"The model would be {proto.ByteSize()} bytes; a protobuf message holds less than 2 GB.")
    return proto


def set_outputs(model: ir.Model, outputs: Sequence[tuple[str, ir.Value]]) -> None:
    """Replace, in place, the outputs of a model, as :func:`save` does."""
    graph = model.graph
    graph.outputs.clear()
    for name, value in outputs:
        if value.name != name and (value.producer() is None or any(value is other for other in graph.outputs)):
            value = Builder(graph).op.Identity(value)
        value.name = name
        graph.outputs.append(value)
