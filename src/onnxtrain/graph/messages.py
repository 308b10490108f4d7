"""Queries on the protobuf messages of a model; :mod:`onnxtrain.graph.query` has the queries on onnx-ir."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnxtrain.errors import ModelError


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
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


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
