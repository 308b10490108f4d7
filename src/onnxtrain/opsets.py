"""Operators of ONNX at an opset: their schemas, equality of their meaning at two opsets, and installed runtimes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import onnx

from onnxtrain.cache import table

#: The newest opset that all supported versions of onnxruntime (1.19 and newer) can read.
OPSET = 21

#: Since this opset, newer versions of these operators only added types, or attributes whose defaults keep the meaning.
WIDENED_SINCE = 13
WIDENED = frozenset(
    """
    Add Cast CastLike Constant ConstantOfShape Div Equal Flatten GreaterOrEqual Identity LeakyRelu LessOrEqual Mul
    PRelu Relu Reshape Shape Size Squeeze Sub Transpose Unsqueeze Where
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

#: The last type that operators accept at opset 18; later types have higher values in the enumeration.
_NEWEST_TYPE_AT_18 = onnx.TensorProto.BFLOAT16


#: The distributions that install the module onnxruntime and overwrite each other.
_FLAVOURS = ("", "-gpu", "-training", "-training-cpu", "-webgpu", "-directml", "-openvino", "-qnn")


def installed_runtimes() -> dict[str, str]:
    """Return the version of each installed distribution of onnxruntime."""
    found = {}
    for flavour in _FLAVOURS:
        with suppress(PackageNotFoundError):
            found[f"onnxruntime{flavour}"] = version(f"onnxruntime{flavour}")
    return found


@table(maxsize=1)
def runtime_version() -> tuple[int, ...]:
    """Return the installed version of onnxruntime as (major, minor); the newest if there are several."""
    found = (tuple(int(part) for part in text.split(".")[:2]) for text in installed_runtimes().values())
    return max(found, default=(sys.maxsize,))


@table(maxsize=4096)
def find_schema(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """Return onnx's schema of an operator at an opset, or None."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def at_opset(onx: bytes, older: int | None) -> bytes:
    """Return a model of :data:`OPSET` at an older opset, at least 18, if all its nodes keep their meaning."""
    if older is None:
        return onx
    proto = onnx.load_model_from_string(onx)
    imports = {o.domain: o for o in proto.opset_import}
    if "" not in imports or imports[""].version != OPSET or proto.functions:
        return onx
    if has_newer_types(proto.graph, _NEWEST_TYPE_AT_18) or not only_widened(proto.graph, older, OPSET):
        return onx
    imports[""].version = older
    return proto.SerializeToString()


def only_widened(graph: onnx.GraphProto, older: int, newer: int) -> bool:
    """Whether each node of `graph` has the same meaning at both opsets, including attributes and defaults."""
    if any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute):
        return False
    return all(
        old is not None and new is not None and _is_widened(node, old)
        for node, old, new in changed_operators(graph, older, newer)
    )


def _is_widened(node: onnx.NodeProto, old: onnx.defs.OpSchema) -> bool:
    return node.op_type in WIDENED and all(a.name in old.attributes for a in node.attribute)


def changed_operators(
    graph: onnx.GraphProto, older: int, newer: int
) -> Iterator[tuple[onnx.NodeProto, onnx.defs.OpSchema | None, onnx.defs.OpSchema | None]]:
    """Yield each node of ai.onnx whose operator differs between two opsets, with its two schemas."""
    for node in graph.node:
        if node.domain in ("", "ai.onnx"):
            old, new = find_schema(node.op_type, older, ""), find_schema(node.op_type, newer, "")
            if old is None or new is None or old.since_version != new.since_version:
                yield node, old, new


def has_newer_types(graph: onnx.GraphProto, newest: int) -> bool:
    """Whether a value has a type that was added after `newest`; these are types of few bits."""
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)]
    types += [tensor.data_type for tensor in graph.initializer]
    types += [a.i for node in graph.node for a in node.attribute if node.op_type == "Cast" and a.name == "to"]
    return max(types, default=0) > newest
