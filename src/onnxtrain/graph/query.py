"""Queries on a graph, in onnx-ir and as protobuf messages: types, shapes, constants, names."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.errors import ModelError
from onnxtrain.graph.held import array_of_value
from onnxtrain.registry import did_you_mean

#: The floating-point types; tensors of other types have no gradient.
FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})

#: The output types of QuantizeLinear.
_FEW_BITS = frozenset(
    dtype for dtype in ir.DataType if dtype.name.startswith(("FLOAT4", "FLOAT8", "INT2", "INT4", "INT8", "INT16"))
) | frozenset(dtype for dtype in ir.DataType if dtype.name.startswith(("UINT2", "UINT4", "UINT8", "UINT16")))

#: Operators with more multiplications than elements of their results.
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "RNN", "GRU", "LSTM"})


def describe(value: ir.Value | None) -> str:
    """Return ``name: FLOAT[N,3]``, for messages."""
    if value is None:
        return "none"
    dtype = value.dtype.name if value.dtype is not None else "?"
    shape = "?" if value.shape is None else ",".join(str(d) if has_name(d) else "?" for d in value.shape)
    return f"{value.name}: {dtype}[{shape}]"


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape if every dimension is static, else None."""
    if value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]


def rank(value: ir.Value) -> int | None:
    """Return the number of axes, None if unknown."""
    return None if value.shape is None else len(value.shape)


def same_dimension(a: Any, b: Any) -> bool:
    """Whether two dimensions are known to be equal: the same length, or the same name."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a is not None and b is not None and a.value is not None and a == b


def same_shape(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are known to have the same shape."""
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(same_dimension(da, db) for da, db in zip(a.shape, b.shape, strict=True))


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a floating-point tensor."""
    return value is not None and value.dtype in FLOATS


def has_name(dim: int | ir.SymbolicDim) -> bool:
    """Whether a dimension is static or has a name that was not invented by shape inference."""
    return isinstance(dim, int) or (dim.value is not None and not dim.value.startswith("unk__"))


def is_quantized(value: ir.Value | None) -> bool:
    """Whether a value is the result of QuantizeLinear, directly or through operators that keep its type."""
    dtype = None if value is None else value.dtype
    while value is not None and value.dtype in _FEW_BITS and value.dtype == dtype:
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx") or not node.inputs:
            return False
        if node.op_type == "QuantizeLinear":
            return True
        value = node.inputs[0]
    return False


def constant(value: ir.Value | None) -> np.ndarray | None:
    """Return the array of a constant value, or None if it depends on the inputs, including inputs with defaults."""
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else array_of_value(tensor)


def holds_graphs(node: ir.Node) -> bool:
    """Whether a node has subgraphs, which may capture values from outside: If, Loop, Scan."""
    attributes = node.attributes.data.values()  # those of the UserDict itself are looked up one by one
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in attributes)


def values_in(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values of a graph and of the graphs inside it."""
    for part in (graph, *graph.subgraphs()):
        yield from (*part.inputs, *part.initializers.values())
        for node in part:
            yield from node.outputs


def find(values: Iterable[ir.Value], name: str, kind: str, error: type[Exception] = ModelError) -> ir.Value:
    """Return the value named `name`; `kind` (``"input"``, ``"output"``) is for the message."""
    found = {v.name: v for v in values}
    if not isinstance(name, str) or name not in found:
        raise error(f"The model has no {kind} {name!r}. {did_you_mean(name, [str(n) for n in found])}")
    return found[name]


def weights_in_operators(nodes: Iterable[Any]) -> str:
    """Return a remark about weights in an operator of ai.onnx.ml, with the remedy; empty without such an operator."""
    operators = (node.op_type for node in nodes if node.domain == "ai.onnx.ml")
    kind = next((name for name in operators if name.startswith(("Linear", "SVM", "TreeEnsemble"))), None)
    if kind is None:
        return ""
    plain = f" Use skl2onnx.to_onnx(model, X, black_op={{{kind!r}}}) to write a matrix product instead."
    return (
        f" Its weights are in {kind}, which OrtGradientRegressor and OrtGradientClassifier can train."
        f"{plain if kind.startswith('Linear') else ''}"
    )


def weights_in_bodies(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the floating-point initializers with axes in bodies of Loop, Scan and If."""
    bodies = [body for node in nodes_in(graph.node) for body in bodies_of(node)]
    return [w.name for body in bodies for w in body.initializer if w.data_type in FLOATS and w.dims]


def weights_elsewhere(graph: onnx.GraphProto, name: object) -> str:
    """Return a remark about a weight that is no initializer of a graph, with the remedy; empty if there is none."""
    for node in nodes_in(graph.node):
        for body in bodies_of(node):
            if any(tensor.name == name for tensor in body.initializer):
                return (
                    f" {name!r} is in the body of {node.op_type} (node {node.name!r}). Move it to the initializers of "
                    "the graph, which the body can read, or use OrtGradientRegressor or OrtGradientClassifier, which "
                    "train the weights of bodies."
                )
    return weights_in_operators(graph.node)


def results_with(nodes: Iterable[onnx.NodeProto], module: str) -> list[str]:
    """Return the results of the nodes that take a weight of a module of PyTorch or Keras, such as ``fc.weight``."""
    return [y for node in nodes if any(f"{name}.".startswith(f"{module}.") for name in node.input) for y in node.output]


def operator_name(op_type: str, domain: str = "") -> str:
    """Return the key of an operator in tables: its name, with its domain if that is not ai.onnx.

    Examples
    --------
    >>> operator_name("Add", "ai.onnx"), operator_name("Scaler", "ai.onnx.ml")
    ('Add', 'ai.onnx.ml:Scaler')
    """
    return op_type if domain in ("", "ai.onnx") else f"{domain}:{op_type}"


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node of ai.onnx that computes a value, if it is one of `op_types`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types else None


def origin(value: ir.Value) -> ir.Node | None:
    """Return the node that computes a value, followed back through Identity nodes."""
    node = value.producer()
    while node is not None and node.op_type == "Identity":
        node = node.inputs[0].producer()  # type: ignore[union-attr]
    return node


def scalar(value: ir.Value | None) -> float | None:
    """Return the value of a constant with one element, or None for any other value."""
    if value is None or value.dtype is ir.DataType.STRING or math.prod(static_shape(value) or ()) != 1:
        return None
    array = constant(value)
    # an initializer that is also an output of undeclared shape has an unknown shape, but values
    return None if array is None or array.size != 1 else float(array.reshape(()))


def broadcasts_to(x: ir.Value | None, y: ir.Value | None) -> bool:
    """Whether a value is known to broadcast to the shape of another without changing that shape."""
    if x is None or x.shape is None or y is None or y.shape is None or len(x.shape) > len(y.shape):
        return False
    pairs = zip(reversed(tuple(x.shape)), reversed(tuple(y.shape)), strict=False)
    return all(a == 1 or same_dimension(a, b) for a, b in pairs)


def alike(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Whether two values are known to have the same shape."""
    return a is not None and b is not None and (a is b or same_shape(a, b))


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, or `default` if it is not set."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def attributes(node: ir.Node, *names: str) -> dict[str, Any]:
    """Return the named attributes that are set, to pass them to another node."""
    return {name: node.attributes[name].value for name in names if name in node.attributes}


# ----------------------------------------------------------- protobuf messages


def messages_in(message: Message) -> Iterator[Message]:
    """Yield a protobuf message and every message inside it, in any field.

    Raises
    ------
    ModelError
        A string is not UTF-8; depending on its version, protobuf returns it as bytes or raises.
    """
    todo = deque([message])
    while todo:
        message = todo.popleft()
        yield message
        if isinstance(message, onnx.TensorProto):  # ListFields would copy its data
            todo.extend((*message.external_data, *message.metadata_props))
            _check_texts((message.name, message.doc_string))
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                todo.extend([value] if isinstance(value, Message) else value)
            elif field.type == field.TYPE_STRING:
                _check_texts([value] if isinstance(value, (str, bytes)) else value)


def _check_texts(texts: Iterable[Any]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(f"A name in the model is not valid UTF-8: {text!r}.")


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs inside a node."""
    found: list[onnx.GraphProto] = []
    for a in node.attribute:  # most have no graph
        if a.HasField("g"):
            found.append(a.g)
        if a.graphs:
            found.extend(a.graphs)
    return found


def with_nodes_of(proto: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model derived from `original`, with unchanged nodes byte for byte as in `original`.

    onnx_ir drops fields without meaning: explicit empty names and domains, ``training_mode=0``. Nodes with subgraphs
    are not replaced, because their subgraphs may have changed.
    """
    came = {tuple(node.output): node for node in original.graph.node if not bodies_of(node)}
    for node in proto.graph.node:
        own = came.get(tuple(node.output))
        if own is not None and (own.op_type, *own.input) == (node.op_type, *node.input):
            node.CopyFrom(own)
    return proto


def nodes_in(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each before the nodes of the graphs inside it."""
    todo = [iter(nodes)]
    while todo:
        node = next(todo[-1], None)
        if node is None:
            todo.pop()
            continue
        yield node
        todo.extend(iter(body.node) for body in reversed(bodies_of(node)))


def dimensions(value: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """Return the dimensions of a tensor, each a length, a name or None; None if the rank is unknown."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]


def opset_of(part: onnx.ModelProto | onnx.FunctionProto) -> int:
    """Return the opset of ai.onnx, or 0 if it is not imported."""
    return next((o.version for o in part.opset_import if o.domain in ("", "ai.onnx")), 0)


def copy_of(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model."""
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    return copied


def assign(field: Any, messages: Iterable[Message]) -> None:
    """Set a repeated field of a message, in place."""
    messages = list(messages)
    del field[:]
    field.extend(messages)
