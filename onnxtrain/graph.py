"""The one home of onnx-ir and onnxscript: read a model, build on it, write it.

Models travel between modules as :class:`onnx.ModelProto` where a user may hold
them and as :class:`onnx_ir.Model` in between. :func:`load` makes a private
copy at a known opset, :class:`Builder` adds nodes to it, :func:`save` writes it
with a pinned IR version.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.inliner
import onnx.version_converter
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnxscript import GraphBuilder

from onnxtrain.errors import ModelError
from onnxtrain.registry import did_you_mean

ModelLike: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"

#: The newest opset and IR version that every supported onnxruntime (1.19 and newer) reads.
OPSET = 21
IR_VERSION = 10

FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})

#: A protobuf message cannot be larger.
_PROTO_LIMIT = 2**31


# --------------------------------------------------------------------- read


def read(onx: ModelLike) -> onnx.ModelProto:
    """Return the model as a :class:`onnx.ModelProto`; a ModelProto is returned as it is.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        External data is looked for beside the file.

    Raises
    ------
    ModelError
        The bytes are not an ONNX model, or hold no graph.
    """
    if isinstance(onx, onnx.ModelProto):
        proto = onx
    elif isinstance(onx, (bytes, bytearray)):
        proto = _parse(bytes(onx), f"{len(onx)} bytes")
    elif isinstance(onx, (str, os.PathLike)):
        if not os.path.isfile(onx):
            raise ModelError(f"There is no file {os.fspath(onx)!r}.")
        if os.path.getsize(onx) >= _PROTO_LIMIT:
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


def _load_external_data(proto: onnx.ModelProto, folder: str) -> None:
    try:
        onnx.load_external_data_for_model(proto, folder)
    except (OSError, ValueError, onnx.checker.ValidationError) as e:
        raise ModelError(f"The external data of the model cannot be read from {folder!r}: {e}") from e


def load(onx: ModelLike) -> ir.Model:
    """Return a private copy of a model, ready to be worked on.

    Model-local functions are inlined, the opset of ai.onnx is brought to
    :data:`OPSET` where that is possible (a newer graph that needs its opset keeps
    it), unnamed dimensions of the inputs get names, so that the same unknown is
    known to be the same further down, and every value gets a type and a shape.

    Raises
    ------
    ModelError
        The model cannot be read, is malformed, or its opset cannot be converted.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(read(onx))
    _refuse_sparse(proto.graph)
    try:
        if proto.functions:
            proto = onnx.inliner.inline_local_functions(proto, convert_version=True)
        _name_dimensions(proto.graph)
        _check_arity(proto.graph, {o.domain: o.version for o in proto.opset_import})
        proto = _convert_opset(proto)
        model = _infer(proto)
        passes.TopologicalSortPass()(model)
        if tidy(model):
            # shapes that a no-op Reshape had hidden now reach what stands behind it
            model = _infer(_without_inferred(ir.to_proto(model)))
    except ModelError:
        raise
    except Exception as e:  # onnx and onnx-ir raise what they like on a malformed graph
        raise ModelError(f"The model cannot be read: {type(e).__name__}: {e}") from e
    return model


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
        schema = _schema(node.op_type, opsets.get(node.domain, opsets.get("ai.onnx", 0)), node.domain)
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


@functools.cache
def _schema(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


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


def _convert_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    imports = {o.domain: o for o in proto.opset_import}
    if "ai.onnx" in imports and "" not in imports:
        imports["ai.onnx"].domain = ""
        imports[""] = imports["ai.onnx"]
    if "" not in imports:
        proto.opset_import.append(onnx.helper.make_opsetid("", OPSET))
        return proto
    found = imports[""].version
    if found == OPSET:
        return proto
    if found > OPSET:
        if _means_the_same_at(proto.graph, OPSET, found):
            imports[""].version = OPSET
        return proto
    try:
        return onnx.version_converter.convert_version(proto, OPSET)
    except Exception as e:  # the converter raises RuntimeError and its own ConvertError
        raise ModelError(f"Opset {found} cannot be converted to {OPSET}: {e}") from e


def _means_the_same_at(graph: onnx.GraphProto, older: int, newer: int) -> bool:
    """Whether each node of `graph` is also valid at the opset `older`, with the same meaning.

    Since opset 21 the operators that changed only took on more types; those that
    gained attributes or inputs are told by their use.
    """
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g") and not _means_the_same_at(attribute.g, older, newer):
                return False
        if node.domain not in ("", "ai.onnx"):
            continue
        try:
            new = onnx.defs.get_schema(node.op_type, newer, "")
            old = onnx.defs.get_schema(node.op_type, older, "")
        except onnx.defs.SchemaError:
            return False
        if old.since_version == new.since_version:
            continue
        fits = (
            len(node.input) <= old.max_input
            and len(node.output) <= old.max_output
            and all(a.name in old.attributes for a in node.attribute)
        )
        if not fits:
            return False
    return True


# -------------------------------------------------------------------- build


class Builder(GraphBuilder):
    """:class:`onnxscript.GraphBuilder` whose names never collide with those of the graph.

    It also raises where onnxscript notes and goes on: on an operator that does
    not exist and on operands that do not fit.

    Parameters
    ----------
    graph : onnx_ir.Graph
        Nodes are appended to it.
    parent : Builder, optional
        The builder of the graph around, for the body of If, Loop and Scan.
    """

    def __init__(self, graph: ir.Graph, *, parent: Builder | None = None):
        super().__init__(graph, parent=parent)
        self.names: set[str] = parent.names if parent is not None else _names_shared_on(graph)

    def initializer(
        self, tensor: Any, name: str | None = None, *, qualify: bool = True
    ) -> ir.Value:
        """Register a tensor under `name`, or under a name made from it where that is taken."""
        name = unique_name(name or tensor.name or "constant", self.names)
        return super().initializer(tensor, name, qualify=qualify)

    def _qualify_value_name(self, name: str) -> str:
        return unique_name(name, self.names)

    def _annotate_node(self, node: ir.Node) -> None:
        """Leave out onnxscript's notes on modules: there are none here."""

    def infer(self, node: ir.Node) -> None:
        """Set the types and shapes of the outputs of a node that is in the graph already."""
        if node.version is None:
            node.version = self.graph.opset_imports.get(node.domain)
        self._infer_shapes(node)

    def _infer_shapes(self, node: ir.Node) -> None:
        super()._infer_shapes(node)
        problem = node.metadata_props.pop("pkg.onnxscript.shape_inference_error", None)
        if problem is not None:
            operands = ", ".join(describe(v) for v in node.inputs)
            raise ModelError(f"{node.op_type}({operands}) is not valid: {problem}")


def builder(model: ir.Model) -> Builder:
    """Return a :class:`Builder` on the main graph of a model."""
    return Builder(model.graph)


def names_in(graph: ir.Graph) -> set[str]:
    """Return every name of a value in a graph and in the graphs inside it."""
    names = {v.name for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    for node in graph.all_nodes():
        names.update(v.name for v in node.outputs if v.name)
    for inner in graph.subgraphs():
        names.update(v.name for v in (*inner.inputs, *inner.initializers.values()) if v.name)
    return names


def _names_shared_on(graph: ir.Graph) -> set[str]:
    """Return the names of a graph, one set for all its builders: what one takes the others know."""
    names: set[str] = graph.meta.setdefault("onnxtrain.names", set())
    names.update(names_in(graph))
    return names


def unique_name(name: str, taken: set[str]) -> str:
    """Return `name`, with a number behind it where it is in `taken`; add the result to `taken`.

    Examples
    --------
    >>> taken = {"loss"}
    >>> unique_name("loss", taken), unique_name("loss", taken)
    ('loss_1', 'loss_2')
    """
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


# --------------------------------------------------------------------- look


def describe(value: ir.Value | None) -> str:
    """Return ``name: FLOAT[N,3]``, for messages."""
    if value is None:
        return "none"
    dtype = value.dtype.name if value.dtype is not None else "?"
    shape = "?" if value.shape is None else ",".join(str(d) if d is not None else "?" for d in value.shape)
    return f"{value.name}: {dtype}[{shape}]"


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape when every dimension is a number, else None."""
    if value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]


def rank(value: ir.Value) -> int | None:
    """Return the number of axes, or None where it is not known."""
    return None if value.shape is None else len(value.shape)


def same_dimension(a: Any, b: Any) -> bool:
    """Whether two dimensions are known to be equal: the same number, or the same name."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a is not None and b is not None and a.value is not None and a == b


def same_shape(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are known to have the same shape."""
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(same_dimension(da, db) for da, db in zip(a.shape, b.shape, strict=True))


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a tensor of real numbers."""
    return value is not None and value.dtype in FLOATS


def constant(value: ir.Value | None) -> np.ndarray | None:
    """Return the array a value always has, or None where it depends on the inputs."""
    if value is None or (value.is_graph_input() and value.const_value is None):
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def find(values: Iterable[ir.Value], name: str, kind: str, error: type[Exception] = ModelError) -> ir.Value:
    """Return the value called `name`; `kind` (``"input"``, ``"output"``) is for the message."""
    found = {v.name: v for v in values}
    if name not in found:
        raise error(f"The model has no {kind} {name!r}. {did_you_mean(name, [str(n) for n in found])}")
    return found[name]


# ------------------------------------------------------------------- change


def cast_floats(model: ir.Model, dtype: ir.DataType) -> None:
    """Change, in place, every real number of a model to the type `dtype`.

    Inputs, initializers, constants and the target of Cast change. What an operator
    takes and gives in one type only (``scales`` of Resize, every result of
    ai.onnx.ml) keeps it, and is cast before and behind.
    """
    kept = _constants_of_one_type(model, dtype)
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in (*graph.inputs, *graph.initializers.values()):
            if is_float(value) and value not in kept:
                value.dtype = dtype
                value.const_value = _cast_tensor(value.const_value, dtype)
    for node in list(model.graph.all_nodes()):
        if any(y in kept for y in node.outputs):
            continue
        _cast_attributes(node, dtype)
        for x in dict.fromkeys(x for x, free in _typed(model, node, node.inputs, dtype) if not free):
            if x.dtype == dtype:
                _cast_before(node, x)
        for y, free in list(_typed(model, node, node.outputs, dtype)):
            if free:
                y.dtype = dtype
            elif y.dtype != dtype:
                _cast_behind(node, y, dtype)


def _typed(
    model: ir.Model, node: ir.Node, values: Sequence[ir.Value | None], dtype: ir.DataType
) -> Iterator[tuple[ir.Value, bool]]:
    """Yield each real input or output of a node, and whether the operator knows it in the type `dtype`."""
    schema = _schema(node.op_type, model.graph.opset_imports.get(node.domain, 0), node.domain)
    name = f"tensor({dtype.name.lower()})"
    for i, value in enumerate(values):
        if value is None or not is_float(value):
            continue
        if schema is None:
            yield value, values is node.inputs or node.domain in ("", "ai.onnx")
            continue
        formals = schema.inputs if values is node.inputs else schema.outputs
        yield value, name in formals[min(i, len(formals) - 1)].types


def _constants_of_one_type(model: ir.Model, dtype: ir.DataType) -> set[ir.Value]:
    """Return inputs and constants that are only used where an operator does not know the type `dtype`."""
    free: dict[ir.Value, bool] = {}
    for node in model.graph.all_nodes():
        for x, takes in _typed(model, node, node.inputs, dtype):
            free[x] = free.get(x, False) or takes
    return {x for x, takes in free.items() if not takes and _is_given(x) and not x.is_graph_output()}


def _is_given(x: ir.Value) -> bool:
    node = x.producer()
    return node is None or node.op_type == "Constant"


def _cast_tensor(tensor: ir.TensorProtocol | None, dtype: ir.DataType) -> ir.TensorProtocol | None:
    if tensor is None or tensor.dtype not in FLOATS or tensor.dtype == dtype:
        return tensor
    return ir.tensor(tensor.numpy().astype(dtype.numpy()), dtype=dtype, name=tensor.name)


def _cast_attributes(node: ir.Node, dtype: ir.DataType) -> None:
    """Change the type of Constant, ConstantOfShape, Cast, EyeLike, RandomNormal, ..."""
    for name, found in node.attributes.items():
        if found.type == ir.AttributeType.TENSOR:
            tensor = found.as_tensor()
            if tensor.dtype in FLOATS and node.domain in ("", "ai.onnx"):
                node.attributes[name] = ir.AttrTensor(name, _cast_tensor(tensor, dtype))
        elif name in ("to", "dtype") and found.as_int() in FLOATS:
            node.attributes[name] = ir.AttrInt64(name, int(dtype))
        elif node.op_type == "Constant" and name in ("value_float", "value_floats"):
            del node.attributes[name]
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(found.value, dtype=dtype))
    for y in node.outputs:
        y.const_value = _cast_tensor(y.const_value, dtype)


def _cast_before(node: ir.Node, x: ir.Value) -> None:
    cast = ir.node("Cast", [x], {"to": ir.DataType.FLOAT})
    (replacement,) = cast.outputs
    replacement.name, replacement.shape, replacement.dtype = f"{x.name}_f32", x.shape, ir.DataType.FLOAT
    for i, other in enumerate(node.inputs):
        if other is x:
            node.replace_input_with(i, replacement)
    node.prepend(cast)


def _cast_behind(node: ir.Node, y: ir.Value, dtype: ir.DataType) -> None:
    cast = ir.node("Cast", [y], {"to": dtype})
    (replacement,) = cast.outputs
    replacement.name, replacement.shape, replacement.dtype = y.name, y.shape, dtype
    y.name = f"{y.name}_{y.dtype.short_name()}"  # type: ignore[union-attr]
    ir.convenience.replace_all_uses_with(y, replacement, replace_graph_outputs=True)
    cast.replace_input_with(0, y)
    node.append(cast)


def tidy(model: ir.Model) -> bool:
    """Remove, in place, the nodes that change nothing; return whether there were any.

    Cast to the same type, Reshape to the same shape: a Reshape to (-1, k) of what
    has shape (N, k) hides that N is still N.
    """
    changed = False
    for node in list(model.graph):
        x, (y, *_) = (node.inputs[0] if node.inputs else None), (*node.outputs, None)
        if x is None or y is None or node.domain not in ("", "ai.onnx"):
            continue
        same_cast = node.op_type == "Cast" and x.dtype is not None and x.dtype == y.dtype
        if same_cast or (node.op_type == "Reshape" and _keeps_shape(node)):
            node.op_type, node.version = "Identity", None
            node.attributes.clear()
            node.resize_inputs(1)
            y.shape = x.shape
            changed = True
    if changed:
        passes.IdentityEliminationPass()(model)
    return changed


def _keeps_shape(node: ir.Node) -> bool:
    x, target = node.inputs[0], constant(node.inputs[1])
    if x is None or x.shape is None or target is None or len(target) != len(x.shape):
        return False
    differ = [t for t, d in zip(target, x.shape, strict=True) if t != d]
    # one dimension left open is what remains once the others agree
    return all(t == -1 for t in differ) and len(differ) <= 1 or all(t == 0 for t in differ)


# -------------------------------------------------------------------- write


def prune(model: ir.Model) -> None:
    """Remove, in place, what no output needs and what is computed twice.

    Inputs are part of the interface: they stay.
    """
    inputs = list(model.graph.inputs)
    outputs = [y.name for y in model.graph.outputs]
    passes.CommonSubexpressionEliminationPass()(model)
    bodies = list(model.graph.subgraphs())
    results = [n for body in bodies for y in body.outputs if (n := y.producer()) and n.op_type == "Identity"]
    for node in results:  # a body must compute what it puts out: what it takes from outside is copied
        node.domain = "onnxtrain.kept"
    passes.IdentityEliminationPass()(model)
    for node in results:
        node.domain = ""
    passes.RemoveUnusedNodesPass()(model)
    model.graph.inputs[:] = inputs
    _restore_outputs(model.graph, outputs)
    for body in bodies:
        _separate_outputs(body)


def _separate_outputs(body: ir.Graph) -> None:
    """Copy what the body of a Loop or a Scan puts out a second time: onnxruntime writes both to one place."""
    for i, y in enumerate(body.outputs):
        if any(y is other for other in body.outputs[:i]):
            copy = ir.node("Identity", [y])
            copy.outputs[0].type, copy.outputs[0].shape = y.type, y.shape
            body.append(copy)
            body.outputs[i] = copy.outputs[0]


def _restore_outputs(graph: ir.Graph, names: Sequence[str | None]) -> None:
    """Give back its name to each output that was found equal to another one."""
    op = Builder(graph).op
    for i, name in enumerate(names):
        y = graph.outputs[i]
        if y.name != name:
            copy = op.Identity(y)
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
        _set_outputs(model.graph, outputs)
    model.ir_version = IR_VERSION
    try:
        prune(model)
        passes.TopologicalSortPass()(model)
        passes.NameFixPass()(model)
        proto = ir.to_proto(model)
    except Exception as e:  # as in load: what is malformed may only show now
        raise ModelError(f"The model cannot be written: {type(e).__name__}: {e}") from e
    if proto.ByteSize() >= _PROTO_LIMIT:
        raise ModelError(f"The model would be {proto.ByteSize()} bytes; a protobuf message holds less than 2 GB.")
    return proto


def _set_outputs(graph: ir.Graph, outputs: Sequence[tuple[str, ir.Value]]) -> None:
    op = Builder(graph).op
    graph.outputs.clear()
    for name, value in outputs:
        if value.name != name and (
            value.producer() is None or any(value is other for other in graph.outputs)
        ):
            value = op.Identity(value)
        value.name = name
        graph.outputs.append(value)
