"""Reading and writing of models.

A model is read from a file or bytes and checked, and becomes a private copy at a known opset. It is written pruned,
with unique names and a pinned IR version.
"""

from __future__ import annotations

import codecs
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain.errors import ModelError, as_model_error
from onnxtrain.graph.build import BUFFER, Builder
from onnxtrain.graph.check import PROTO_LIMIT, check_content, check_nodes
from onnxtrain.graph.control_flow import repeat_bodies, take_known_branches
from onnxtrain.graph.edit import (
    constants_as_nodes,
    name_squeezed_axes,
    put_in_order,
    remove_identities,
    restore_outputs,
    tidy,
)
from onnxtrain.graph.flow import ancestors
from onnxtrain.graph.fused import spell_out_fused
from onnxtrain.graph.inference import infer_shapes, without_false_declarations
from onnxtrain.graph.normalize import (
    IR_WITH_DEFAULTS,
    drop_unused_statistics,
    forget_scalars,
    inline_functions,
    leave_out_defaults,
    make_dense,
    name_dimensions,
    name_domains,
    normalized,
    quantize_by_standard,
    spell_out,
    without_maps,
)
from onnxtrain.graph.opset import convert_opset
from onnxtrain.graph.paths import bytes_of_file
from onnxtrain.graph.query import assign, bodies_of, copy_of, dimensions, holds_graphs, nodes_in, opset_of
from onnxtrain.opsets import OPSET

ModelLike: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: The newest IR version that all supported versions of onnxruntime (1.19 and newer) can read.
IR_VERSION = 10


def read(onx: ModelLike, held: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Return a model as a checked :class:`onnx.ModelProto`; every model enters through this function.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        The model. A ModelProto is returned itself, or as a copy if a domain has two opsets (the last one counts, as in
        onnxruntime), a dimension is declared as -1 (it is unknown), or elements of a few bits have one byte each (they
        are packed). External data is read from the folder of the file.
    held : dict, optional
        Receives large weights of external files, by key, which are held outside the model (:mod:`.held`).

    Raises
    ------
    ModelError
        The bytes are not an ONNX model, have no graph, or are damaged; external files are missing, outside the folder
        of the model, or of a model that was not given as a path; or the model is larger than 2 GB.
    """
    folder, data = None, b""
    if isinstance(onx, onnx.ModelProto):
        proto = onx
    elif isinstance(onx, (bytes, bytearray)):
        proto, data = _parse(bytes(onx), f"{len(onx)} bytes"), bytes(onx[:16])
    elif isinstance(onx, (str, os.PathLike)):
        folder = os.path.dirname(os.path.abspath(onx))
        content = bytes_of_file(onx)
        owner = os.fspath(onx).removesuffix(".data")
        if owner != os.fspath(onx) and os.path.isfile(owner):
            raise ModelError(f"{os.fspath(onx)!r} holds the weights of a model. Pass {owner!r}.")
        proto, data = _parse(content, repr(os.fspath(onx))), content[:16]
    elif hasattr(onx, "model_proto"):  # an ONNXProgram of PyTorch
        raise ModelError(f"Expected an onnx.ModelProto, got {type(onx).__name__}. Pass its attribute model_proto.")
    else:
        remedy = " Convert an estimator with skl2onnx.to_onnx(model, X[:1])." if hasattr(onx, "fit") else ""
        remedy = " Pass get_trained_onnx() of the fitted estimator." if hasattr(onx, "get_trained_onnx") else remedy
        remedy = " Pass the model that contains the graph." if isinstance(onx, onnx.GraphProto) else remedy
        raise ModelError(f"Expected an onnx.ModelProto, its bytes or a path, got {type(onx).__name__}.{remedy}")
    with as_model_error("The model cannot be read"):
        messages = check_content(proto, folder, held)
    if not proto.graph.output:
        remedy = "" if isinstance(onx, onnx.ModelProto) else not_a_model(data)
        raise ModelError(f"The model has no output: it is empty or truncated.{remedy}")
    return normalized(proto, messages)


#: The remedy for bytes of an unknown format.
_DAMAGED = " It has another format, or is truncated. Compare its size with that of the source, and download it again."


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except Exception as e:  # protobuf's DecodeError moved between versions
        problem = "" if other_format(data) else f": {e}"
        raise ModelError(f"{what} cannot be read as an ONNX model{problem}.{not_a_model(data)}") from e


#: The first bytes of files that are mistaken for ONNX models, and the remedies.
_OTHER_FORMATS = {
    b"\x80": "It is a pickle. Load it with joblib.load or pickle.load, and pass the object.",
    b"PK": "It is a zip archive, as written by PyTorch and Keras. Load it there, and export it to ONNX.",
    b"\x89HDF": "It is an HDF5 file, as written by Keras. Load it there, and export it to ONNX.",
    b"ir_version": "It is a model in the text form of protobuf. Read it with onnx.load(path, format='textproto').",
    b"<": "It is a web page or an XML file. The model was not downloaded, or it is not a model. Where a page shows a "
    "file, download the raw file.",
    b"BZh": "It is compressed. Unpack it, for example with bzip2 -d.",
    b"\xfd7zXZ": "It is compressed. Unpack it, for example with xz -d.",
    b"\x93NUMPY": "It is an array of numpy. Pass the file of the model.",
    b"PAR1": "It is a parquet file, which holds rows. Pass it to onnxtrain.rows.from_parquet.",
    b"GGUF": "It is a GGUF file of weights. Export its original to ONNX.",
    b"\x89PNG": "It is a picture. Pass the file of the model.",
    b"%PDF": "It is a PDF document. Pass the file of the model.",
    b"tree\n": "It is a model of LightGBM. Load it, model = lightgbm.Booster(model_file=path), and pass "
    "onnxmltools.convert_lightgbm(model, initial_types=[('X', onnxmltools.convert.common.data_types.FloatTensorType("
    "[None, model.num_feature()]))]).",
    b"CBM1": "It is a model of CatBoost. Load it, CatBoostRegressor().load_model(path) or the same of "
    "CatBoostClassifier, and pass the estimator.",
    b"\x1f\x8b": "It is compressed. Unpack it, for example with gzip -d.",
    **dict.fromkeys(
        (b'{"learner"', b"{L\x00"),
        "It is a model of XGBoost. Load it, model = XGBRegressor(); model.load_model(path), or an XGBClassifier, "
        "and pass model.",
    ),
    **dict.fromkeys(
        (b'{\n  "ctr_data"', b'{\n  "features_info"'),
        "It is a model of CatBoost. Load it, CatBoostRegressor().load_model(path, format='json') or the same of "
        "CatBoostClassifier, and pass the estimator.",
    ),
    b"{": "It is a JSON file, such as a tokenizer or a configuration. Pass the .onnx file beside it.",
    b"version https://git-lfs": "It is a Git LFS pointer. Run git lfs pull.",
}


#: The number of first bytes in which a web page begins.
_BLANK = 1000


def other_format(data: bytes) -> str:
    """Return the end of a message: the format of data that is not an ONNX model, or nothing.

    Examples
    --------
    >>> other_format(b"PK...")
    ' It is a zip archive, as written by PyTorch and Keras. Load it there, and export it to ONNX.'
    """
    text = data[:_BLANK].removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(b"<"):  # web pages often begin with empty lines
        data = text + data[_BLANK:]
    if data[8:9] == b"{" and data[9:10] in (b'"', b"}"):
        return " It is a safetensors file: weights without a model. Load them in the model's library, and export it."
    if data[:1] == b"<" and data[1:100].lstrip().startswith(b"ir_version"):
        return " It is a model in the text form of ONNX. Read it with onnx.load(path, format='onnxtxt')."
    models = [name for name in _names_in_archive(data) if name.endswith(".onnx")]
    if models:
        found = ", ".join(map(repr, models[:5]))
        kind = next((kind for start, kind in _ARCHIVES.items() if data.startswith(start)), "tar")  # also with no suffix
        code = f"shutil.unpack_archive(path, format={kind!r})"
        return f" It is an archive. Unpack it with {code}, and pass the model in it: {found}."
    if data[:2] == b"PK" and b".npy" in data[:100]:
        return " It holds arrays of numpy. Pass the file of the model."
    if data[4:8] == b"ORTM":
        return " It is a model in the ORT format. Pass the .onnx file from which it was made."
    if data[4:8] == b"TFL3":
        return " It is a TensorFlow Lite model. Export its original to ONNX, for example with tf2onnx."
    return next((f" {remedy}" for start, remedy in _OTHER_FORMATS.items() if data.startswith(start)), "")


#: The names that shutil gives to archives, by their first bytes.
_ARCHIVES = {b"PK": "zip", b"\x1f\x8b": "gztar", b"BZh": "bztar", b"\xfd7zXZ": "xztar"}


def _names_in_archive(data: bytes) -> list[str]:
    """Return the names of the files in a zip or tar archive, compressed or not; empty for other data."""
    file = io.BytesIO(data)
    with suppress(zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error):
        if data.startswith(b"PK"):
            return zipfile.ZipFile(file).namelist()
        if data.startswith(tuple(_ARCHIVES)) or data[257:262] == b"ustar":
            return tarfile.open(fileobj=file).getnames()
    return []


def not_a_model(data: bytes) -> str:
    """Return the end of a message about data that is not an ONNX model: its format, or a remedy for damage."""
    return other_format(data) or _DAMAGED


def is_model(data: bytes) -> bool:
    """Whether data is an ONNX model with a graph."""
    try:
        return bool(onnx.load_model_from_string(data).graph.output)
    except Exception:  # protobuf's DecodeError moved between versions
        return False


def load(onx: ModelLike) -> ir.Model:
    """Return a private copy of a model for changes.

    Model-local functions are inlined. Sparse initializers become dense, and buffers: their zeros are part of the model,
    and training would fill them. The opset of ai.onnx is converted to :data:`OPSET` if possible; a newer graph
    that needs its opset keeps it. Unnamed dimensions of the inputs get names, so that equal unknown dimensions are
    recognised later. Every value gets a type and a shape. Outputs that are maps or sequences (ZipMap) are removed, see
    :func:`with_maps_of`.

    Raises
    ------
    ModelError
        The model cannot be read, is malformed, or its opset cannot be converted.
    """
    with as_model_error("The model cannot be read"):  # a ModelProto may be nested deeper than protobuf can copy
        proto = without_maps(read(onx))
    _refuse_newer(proto)
    _refuse_sparse(proto)
    _refuse_layouts(proto)
    with as_model_error("The model cannot be read"):
        sparse = make_dense(proto.graph)
        proto = inline_functions(proto)
        name_dimensions(proto.graph)
        forget_scalars(proto.graph)
        _declare_passed_on(proto.graph)
        name_domains(proto)
        check_nodes(proto)
        proto = without_false_declarations(_in_order(proto))
        spell_out(proto.graph, {})
        all_listed = proto.ir_version < IR_WITH_DEFAULTS
        proto = convert_opset(proto)
        quantize_by_standard(proto.graph)
        drop_unused_statistics(proto.graph)
        if all_listed:
            leave_out_defaults(proto.graph)
            proto.ir_version = IR_WITH_DEFAULTS  # before, onnx infers no shapes from initializers that are no inputs
        model = infer(proto)
        while _spelled_out(model) or repeat_bodies(model) or take_known_branches(model) or name_squeezed_axes(model):
            model = infer(_without_inferred(ir.to_proto(model)))
        for name in sparse & model.graph.initializers.keys():
            model.graph.initializers[name].metadata_props[BUFFER] = "sparse"
        return model


def with_branches_taken(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model, at its own opset, in which each If of the main graph with a known condition is its branch."""
    with as_model_error("The branches of the model cannot be taken"):
        model = infer(proto)
        while take_known_branches(model):
            model = infer(_without_inferred(ir.to_proto(model)))
        return _without_inferred(ir.to_proto(model))


def _spelled_out(model: ir.Model) -> bool:
    """Replace fused operators in place, keeping the outputs; return whether the model has changed."""
    names, weights = [str(y.name) for y in model.graph.outputs], set(model.graph.initializers.values())
    changed = spell_out_fused(model)
    if changed:
        weights.update(w for w in model.graph.initializers.values() if BUFFER in w.metadata_props)
        outputs = constants_as_nodes(model, weights, list(model.graph.outputs))
        set_outputs(model, list(zip(names, outputs, strict=True)))
    return changed


@as_model_error("The model cannot be read")
def load_converted(proto: onnx.ModelProto) -> ir.Model:
    """Return a model that a converter in this process has just built, which therefore cannot be damaged.

    The model has the opset :data:`OPSET` and is not checked. Its values have no types yet. `proto` may be changed.
    """
    proto = inline_functions(proto)
    name_dimensions(proto.graph)
    model = ir.from_proto(proto)
    put_in_order(model)
    return model


def reload(onx: onnx.ModelProto | bytes) -> ir.Model:
    """Return a model that was loaded and saved before; it is checked and has all inferred types and shapes."""
    proto = onx if isinstance(onx, onnx.ModelProto) else _parse(onx, f"{len(onx)} bytes")
    if not is_written(proto):
        return load(proto)
    with as_model_error("The model cannot be read"):
        return ir.from_proto(proto)


def is_written(onx: onnx.ModelProto) -> bool:
    """Whether a model has the form that `save` writes: each value has a type, each dimension a name."""
    if onx.ir_version != IR_VERSION or opset_of(onx) < OPSET or onx.functions:
        return False
    named = all(None not in (dimensions(value) or ()) for value in onx.graph.input)
    typed = {value.name for value in (*onx.graph.value_info, *onx.graph.output) if value.HasField("type")}
    return named and typed.issuperset(y for node in onx.graph.node for y in node.output if y)


def _refuse_newer(proto: onnx.ModelProto) -> None:
    opsets = {o.domain or "ai.onnx": o.version for o in proto.opset_import}
    newest = onnx.defs.onnx_opset_version()
    for what, found, known in (
        ("IR version", proto.ir_version, int(onnx.IR_VERSION)),
        ("opset", opsets.get("ai.onnx", 0), newest),
    ):
        if found > known:
            raise ModelError(
                f"The model has {what} {found}, but onnx {onnx.__version__} supports at most {known}. "
                "Install a newer onnx."
            )


def _refuse_sparse(proto: onnx.ModelProto) -> None:
    """Raise for sparse constants and sparse initializers of bodies, which are not made dense."""
    nodes = [node for part in (proto.graph, *proto.functions) for node in nodes_in(part.node)]
    found = [
        f"constant {', '.join(node.output)!r}"
        for node in nodes
        if any(a.name == "sparse_value" for a in node.attribute)
    ]
    bodies = [body for node in nodes for body in bodies_of(node)]
    found += [f"initializer {tensor.values.name!r} of a body" for body in bodies for tensor in body.sparse_initializer]
    if found:
        raise ModelError(
            f"The {found[0]} is sparse: it cannot be trained or differentiated. Store it as a dense tensor."
        )


def _declare_passed_on(graph: onnx.GraphProto) -> None:
    """Give outputs that are initializers or inputs and have no type, in place, the type of these: it would be lost."""
    types = {w.name: onnx.helper.make_tensor_type_proto(w.data_type, w.dims) for w in graph.initializer}
    types |= {value.name: value.type for value in graph.input}
    for value in graph.output:
        if value.name in types and not value.type.WhichOneof("value"):
            value.type.CopyFrom(types[value.name])


def _refuse_layouts(proto: onnx.ModelProto) -> None:
    if any(node.domain == "com.microsoft.nchwc" for node in nodes_in(proto.graph.node)):
        raise ModelError(
            "onnxruntime has rearranged the filters of this model for one kind of processor (operators of "
            "com.microsoft.nchwc). Pass the model that it was made from, or let onnxruntime write it with "
            "graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_EXTENDED."
        )


def infer(proto: onnx.ModelProto) -> ir.Model:
    """Return a model with inferred types and shapes, without nodes that have no effect."""
    model = ir.from_proto(infer_shapes(_in_order(proto)))
    put_in_order(model)
    if tidy(model):
        # shapes that a no-op Reshape had hidden now propagate to its descendants
        model = ir.from_proto(infer_shapes(_without_inferred(ir.to_proto(model))))
    return model


def _in_order(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its nodes in topological order: onnx infers a type only after its operands' types."""
    if _is_in_order(proto.graph):
        return proto
    model = ir.from_proto(proto)
    put_in_order(model)
    return ir.to_proto(model)


def _is_in_order(graph: onnx.GraphProto) -> bool:
    """Whether each node of a graph comes after the nodes whose results it reads."""
    later = {y for node in graph.node for y in node.output if y}
    for node in graph.node:
        if not later.isdisjoint(node.input):
            return False
        later.difference_update(node.output)
    return True


def infer_anew(model: ir.Model) -> ir.Model:
    """Return a changed model with newly inferred types and shapes; earlier results are discarded."""
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


def _without_inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Remove inferred types, except for results of operators unknown to onnx, which it cannot infer again.

    The entries of initializers are kept, with their metadata.
    """
    stays = {name for node in proto.graph.node if node.domain not in ("", "ai.onnx") for name in node.output}
    stays |= {tensor.name for tensor in proto.graph.initializer}
    assign(proto.graph.value_info, [value for value in proto.graph.value_info if value.name in stays])
    return proto


def initializers_as_inputs(onx: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a model in which the initializers `names` are inputs, after its other inputs."""
    proto = copy_of(onx)
    inputs = {value.name for value in proto.graph.input}
    values = {tensor.name: tensor for tensor in onx.graph.initializer}
    assign(proto.graph.initializer, [tensor for name, tensor in values.items() if name not in set(names)])
    proto.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, values[name].data_type, values[name].dims)
        for name in names
        if name not in inputs
    )
    return proto


def with_lengths(onx: bytes, lengths: Mapping[str, tuple[int, int]]) -> bytes:
    """Return a model in which some inputs have a constant length; `lengths` has the axis and length of each."""
    proto = onnx.load_model_from_string(onx)
    for value in proto.graph.input:
        if value.name in lengths:
            axis, length = lengths[value.name]
            value.type.tensor_type.shape.dim[axis].dim_value = length
    return proto.SerializeToString()


# -------------------------------------------------------------------- writing


def prune(model: ir.Model) -> None:
    """Eliminate, in place, dead code and common subexpressions.

    Inputs are kept, because they are part of the interface.
    """
    inputs = list(model.graph.inputs)
    outputs = [y.name for y in model.graph.outputs]
    passes.CommonSubexpressionEliminationPass()(model)
    remove_identities(model)
    _detach_unused_bodies(model.graph)
    passes.RemoveUnusedNodesPass()(model)
    model.graph.inputs[:] = inputs
    restore_outputs(model.graph, outputs)
    for body in model.graph.subgraphs():
        _separate_outputs(body)


def _detach_unused_bodies(graph: ir.Graph) -> None:
    """Detach the values that the bodies of unused nodes capture, since onnx-ir still counts them after removal."""
    with_bodies = [node for node in graph if holds_graphs(node)]
    used = ancestors(graph.outputs) if with_bodies else set()
    for node in with_bodies:
        if used.isdisjoint(node.outputs):
            bodies = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
            for inner in (inner for body in bodies for inner in body.all_nodes()):
                inner.resize_inputs(0)


def _separate_outputs(body: ir.Graph) -> None:
    """Copy values that are two outputs of a Loop or Scan body; onnxruntime would write both to one buffer."""
    for i, y in enumerate(body.outputs):
        if any(y is other for other in body.outputs[:i]):
            copy = ir.node("Identity", [y])
            copy.outputs[0].type, copy.outputs[0].shape = y.type, y.shape
            body.append(copy)
            body.outputs[i] = copy.outputs[0]


def save(model: ir.Model, *, outputs: Sequence[tuple[str, ir.Value]] | None = None) -> onnx.ModelProto:
    """Return a model as a pruned ModelProto with unique names and a pinned IR version.

    Parameters
    ----------
    model : onnx_ir.Model
    outputs : sequence of (name, value), optional
        The new outputs of the graph. A value with a name that the user knows (an input, an initializer, another output)
        is copied by Identity.
    """
    if outputs is not None:
        set_outputs(model, outputs)
    model.ir_version = IR_VERSION
    with as_model_error("The model cannot be written"):  # faults of a malformed model may only appear here
        put_in_order(model)  # a node before its operand would hide that both are unused
        prune(model)
        passes.NameFixPass()(model)
        proto = ir.to_proto(model)
    if proto.ByteSize() >= PROTO_LIMIT:
        raise ModelError(f"The model would be {proto.ByteSize()} bytes, but a protobuf message holds less than 2 GB.")
    return proto


def set_outputs(model: ir.Model, outputs: Sequence[tuple[str, ir.Value]]) -> None:
    """Replace the outputs of a model in place, as :func:`save` does."""
    graph = model.graph
    graph.outputs.clear()
    for name, value in outputs:
        if value.name != name and (value.producer() is None or any(value is other for other in graph.outputs)):
            value = Builder(graph).op.Identity(value)
        value.name = name
        graph.outputs.append(value)
