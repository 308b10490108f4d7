"""What a model means at another opset."""

from __future__ import annotations

import onnx
import onnx.version_converter

from onnxtrain.errors import ModelError
from onnxtrain.graph.look import find_schema

#: The newest opset that every supported onnxruntime (1.19 and newer) reads.
OPSET = 21

#: Scan had a batch axis before; onnx's converter passes over the difference.
_SCAN_WITHOUT_BATCH = 9

#: Since this opset, later versions of these operators only took on more types, or attributes whose default is the past.
_WIDENED_SINCE = 13
_WIDENED = frozenset(
    """
    Add Cast CastLike Constant ConstantOfShape Div Equal Flatten GreaterOrEqual Identity LeakyRelu LessOrEqual Mul
    PRelu Relu Reshape Shape Size Squeeze Sub Transpose Unsqueeze Where
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

#: The last type that operators take at :data:`OPSET`; later ones have higher numbers.
_NEWEST_TYPE = onnx.TensorProto.INT4

#: The same at opset 18.
_NEWEST_TYPE_AT_18 = onnx.TensorProto.BFLOAT16


def convert_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model at :data:`OPSET`; a newer one that needs its opset keeps it. May change `proto`.

    Raises
    ------
    ModelError
        The opset cannot be converted.
    """
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
        if not _has_newer_types(proto.graph, _NEWEST_TYPE) and _means_the_same_at(proto.graph, OPSET, found):
            imports[""].version = OPSET
        return proto
    if found >= _WIDENED_SINCE and _only_widened(proto.graph, found, OPSET):
        imports[""].version = OPSET  # the converter takes longer than all the rest
        return proto
    if found < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for node in proto.graph.node):
        raise ModelError(f"Scan of opset {found} has a batch axis that later ones do not have: export the model anew.")
    try:
        return onnx.version_converter.convert_version(proto, OPSET)
    except Exception as e:  # the converter raises RuntimeError and its own ConvertError
        raise ModelError(f"Opset {found} cannot be converted to {OPSET}: {e}") from e


def at_opset(onx: bytes, older: int | None) -> bytes:
    """Return a model of :data:`OPSET` at an older opset, 18 or more, if each of its nodes means the same there."""
    if older is None:
        return onx
    proto = onnx.load_model_from_string(onx)
    imports = {o.domain: o for o in proto.opset_import}
    if "" not in imports or imports[""].version != OPSET or proto.functions:
        return onx
    if _has_newer_types(proto.graph, _NEWEST_TYPE_AT_18) or not _only_widened(proto.graph, older, OPSET):
        return onx
    imports[""].version = older
    return proto.SerializeToString()


def _only_widened(graph: onnx.GraphProto, older: int, newer: int) -> bool:
    """Whether each node of `graph` means the same at both opsets, attributes and defaults included."""
    for node in graph.node:
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            return False
        if node.domain not in ("", "ai.onnx"):
            continue
        old, new = find_schema(node.op_type, older, ""), find_schema(node.op_type, newer, "")
        if old is None or new is None:
            return False
        widened = node.op_type in _WIDENED and all(a.name in old.attributes for a in node.attribute)
        if old.since_version != new.since_version and not widened:
            return False
    return True


def _has_newer_types(graph: onnx.GraphProto, newest: int) -> bool:
    """Whether a value is of a type that came after `newest`: numbers of few bits."""
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)]
    types += [tensor.data_type for tensor in graph.initializer]
    types += [a.i for node in graph.node for a in node.attribute if node.op_type == "Cast" and a.name == "to"]
    return max(types, default=0) > newest


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
