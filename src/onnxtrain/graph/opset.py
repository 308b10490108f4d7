"""Conversion of a model to another opset without changing its meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain.errors import ModelError
from onnxtrain.graph.build import nearest_operator
from onnxtrain.graph.inference import convert_version, infer_types, refuse_negative
from onnxtrain.graph.query import assign, bodies_of, nodes_in
from onnxtrain.opsets import OPSET, WIDENED_SINCE, changed_operators, has_newer_types, only_widened

#: Before this opset Scan had a batch axis; onnx's converter ignores the difference.
_SCAN_WITHOUT_BATCH = 9

#: Since this opset the lengths and the value of Pad are operands.
_PAD_WITH_TENSORS = 11

#: Before this opset pixels of Resize had no offset of a half, and the nearest was the one before it, or behind it for
#: smaller images; onnx's converter ignores the difference.
_RESIZE_WITH_OFFSETS = 11

#: Since this IR version initializers need not be inputs; onnxruntime also accepts older files that do not list them.
_IR_UNLISTED = 4

#: The last type that operators accept at :data:`OPSET`; later types have higher values in the enumeration.
_NEWEST_TYPE = onnx.TensorProto.INT4


def convert_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model at :data:`OPSET`, or at its own opset if this is newer and needed. May change `proto`.

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
    if found > OPSET:
        typed = infer_types(proto).graph
        the_same = not has_newer_types(typed, _NEWEST_TYPE) and _means_the_same_at(typed, OPSET, found, {})
    else:  # the converter takes longer than everything else
        the_same = found == OPSET or (found >= WIDENED_SINCE and only_widened(proto.graph, found, OPSET))
    if the_same:
        imports[""].version = OPSET
    return proto if the_same or found > OPSET else _raised(proto, found)


def _raised(proto: onnx.ModelProto, found: int) -> onnx.ModelProto:
    """Return a model of an older opset, converted by onnx."""
    if found < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for node in proto.graph.node):
        raise ModelError(
            f"Scan of opset {found} has a batch axis, which later opsets do not have. "
            "Export the model with a later opset."
        )
    _keep_meaning(proto.graph, found)
    refuse_negative(proto)  # the converter infers shapes
    if not {w.name for w in proto.graph.initializer} <= {value.name for value in proto.graph.input}:
        proto.ir_version = max(proto.ir_version, _IR_UNLISTED)  # otherwise the converter ignores them
    try:
        converted = convert_version(proto, OPSET)
    except Exception as e:  # the converter raises RuntimeError and its own ConvertError
        if unknown := next((node for node in nodes_in(proto.graph.node) if _is_unknown(node)), None):
            raise ModelError(
                f"ONNX has no operator {unknown.op_type} (node {unknown.name!r}), so the file is not valid. "
                f"{nearest_operator(unknown.op_type)}"
            ) from e
        raise ModelError(
            f"Opset {found} cannot be converted to {OPSET}: {str(e).rstrip('.')}. Export the model with a later opset, "
            "for example with torch.onnx.export(..., opset_version=17)."
        ) from e
    if found < _PAD_WITH_TENSORS:
        _leave_out_zeros_of_pad(converted.graph)
    if found < _RESIZE_WITH_OFFSETS:
        _resize_without_offsets(converted.graph)
    # removes the shapes that the converter infers; ours are inferred later
    assign(converted.graph.value_info, proto.graph.value_info)
    assign(converted.graph.output, proto.graph.output)
    return converted


def _is_unknown(node: onnx.NodeProto) -> bool:
    return not node.domain and not onnx.defs.has(node.op_type)


def _keep_meaning(graph: onnx.GraphProto, found: int) -> None:
    """Replace nodes whose meaning changed after the opset `found`, in place, if onnx's converter ignores the change."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in bodies_of(node):
            _keep_meaning(body, found)
        opsets, rewritten = _CHANGED_AFTER.get(node.op_type, (range(0), _grouped))
        nodes += rewritten(node) if found in opsets and not node.domain else [node]
    assign(graph.node, nodes)


def _grouped(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return GroupNormalization with a scale and a bias per group as InstanceNormalization of the groups."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    groups = np.array([0, attributes.pop("num_groups", 1), -1], np.int64)
    x, *per_group = node.input
    grouped, normalized = (f"{node.output[0]}/groups/{name}" for name in ("x", "y"))
    return [
        onnx.helper.make_node("Constant", [], [f"{grouped}/shape"], value=onnx.numpy_helper.from_array(groups)),
        onnx.helper.make_node("Reshape", [x, f"{grouped}/shape"], [grouped]),
        onnx.helper.make_node("InstanceNormalization", [grouped, *per_group], [normalized], node.name, **attributes),
        *_in_shape_of(x, normalized, node.output[0]),
    ]


def _of_matrix(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return Hardmax over all axes from `axis` as Hardmax of the rows of a matrix."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    x, y = node.input[0], node.output[0]
    return [
        onnx.helper.make_node("Flatten", [x], [f"{y}/matrix/x"], axis=axis),
        onnx.helper.make_node("Hardmax", [f"{y}/matrix/x"], [f"{y}/matrix/y"], node.name, axis=1),
        *_in_shape_of(x, f"{y}/matrix/y", y),
    ]


def _in_shape_of(x: str, value: str, result: str) -> list[onnx.NodeProto]:
    shape = f"{value}/shape"
    return [onnx.helper.make_node("Shape", [x], [shape]), onnx.helper.make_node("Reshape", [value, shape], [result])]


#: Operators whose change of meaning onnx's converter ignores: the opsets of the old meaning, and the function that
#: writes it at later opsets.
_CHANGED_AFTER: dict[str, tuple[range, Callable[[onnx.NodeProto], list[onnx.NodeProto]]]] = {
    "GroupNormalization": (range(18, 21), _grouped),
    "Hardmax": (range(1, 13), _of_matrix),
}


def _resize_without_offsets(graph: onnx.GraphProto) -> None:
    """Set the coordinates of each Resize, in place, to those of its older opset."""
    scales = {w.name: w for w in graph.initializer}
    scales |= {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant"}
    for node in nodes_in(graph.node):
        if node.op_type == "Resize" and len(node.input) > 2:
            scale = scales.get(node.input[2])
            smaller = scale is not None and bool(np.any(onnx.numpy_helper.to_array(scale) < 1))
            node.attribute.extend(
                [
                    onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                    onnx.helper.make_attribute("nearest_mode", "ceil" if smaller else "floor"),
                ]
            )


def _leave_out_zeros_of_pad(graph: onnx.GraphProto) -> None:
    """Remove the operand 0 of Pad, the default, in place: onnx's converter writes it in float32 for any type."""
    constants = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    for node in graph.node:
        value = constants.get(node.input[2]) if node.op_type == "Pad" and len(node.input) > 2 else None
        if value is not None and not np.any(onnx.numpy_helper.to_array(value)):
            del node.input[2]


def _means_the_same_at(graph: onnx.GraphProto, older: int, newer: int, outside: Mapping[str, str]) -> bool:
    """Whether each node of `graph` is also valid at the opset `older`, with the same meaning.

    onnx's schemas define validity; differences that they do not show are in :data:`_KEEPS_ITS_MEANING`. `outside` has
    the types of the values of outer graphs.
    """
    types = {**outside, **_types(graph)}
    bodies = (body for node in graph.node for body in bodies_of(node))
    return all(_means_the_same_at(body, older, newer, types) for body in bodies) and all(
        old is not None and new is not None and _fits(node, old, new, types)
        for node, old, new in changed_operators(graph, older, newer)
    )


def _fits(node: onnx.NodeProto, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema, types: Mapping[str, str]) -> bool:
    """Whether a node of the operator `new` is also valid for `old`, with the same meaning."""
    given = {a.name for a in node.attribute}
    changed = (
        name
        for name, a in old.attributes.items()
        if name not in given and a.default_value != new.attributes[name].default_value
    )
    return (
        len(node.input) <= old.max_input
        and len(node.output) <= old.max_output
        and given <= set(old.attributes)
        and not any(changed)
        and _types_fit(node, old, new, types)
        and _KEEPS_ITS_MEANING.get(node.op_type, _always)(node, types)
    )


def _types_fit(
    node: onnx.NodeProto, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema, types: Mapping[str, str]
) -> bool:
    """Whether `old` accepts the types of a node, with one type for each of its type parameters."""
    bound: dict[str, str] = {}
    for names, was, now in ((node.input, old.inputs, new.inputs), (node.output, old.outputs, new.outputs)):
        for i, name in enumerate(names):
            before, after = was[min(i, len(was) - 1)], now[min(i, len(now) - 1)]
            found = types.get(name)
            if not name or (found is None and before.types == after.types and before.type_str == after.type_str):
                continue
            one_type = before.is_homogeneous and found is not None
            if found not in before.types or (one_type and bound.setdefault(before.type_str, found) != found):
                return False
    return True


def _types(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the known types of the values of a graph, as onnx's schemas write them."""
    values = {v.name: _written(v.type) for v in (*graph.input, *graph.value_info, *graph.output)}
    return {w.name: _tensor(w.data_type) for w in graph.initializer} | {n: t for n, t in values.items() if t}


def _written(of: onnx.TypeProto) -> str:
    if of.HasField("tensor_type"):
        return _tensor(of.tensor_type.elem_type)
    for kind, field in (("seq", "sequence_type"), ("optional", "optional_type")):
        if of.HasField(field):
            return f"{kind}({_written(getattr(of, field).elem_type)})"
    return ""


def _tensor(data_type: int) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(data_type).lower()})"


def _number(node: onnx.NodeProto, name: str) -> int:
    """Return an integer attribute, or 0 if it is not set."""
    return next((a.i for a in node.attribute if a.name == name), 0)


def _always(node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    return True


def _without_ceil(node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    """Whether ceil_mode is off; since opset 22 a window that would start in the end padding is omitted."""
    return not _number(node, "ceil_mode")


def _of_integers(node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    """Whether Mod is integer or fmod; since opset 28 the quotient of floats may be rounded down as well."""
    return bool(_number(node, "fmod")) or "int" in types.get(node.input[0], "")


def _without_float8(node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    """Whether no float8 is involved; since opset 24 infinity becomes the largest finite value of every float8 type."""
    return not any("float8" in types.get(name, "float8") for name in node.output)


def _never(node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    """Return False: since opset 28 shifts by the number of bits or more are defined."""
    return False


#: Operators whose meaning changed after :data:`OPSET` without a change of schema, and tests whether a node keeps its
#: meaning.
_KEEPS_ITS_MEANING = {
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], _without_ceil),
    "Mod": _of_integers,
    **dict.fromkeys(["Cast", "CastLike"], _without_float8),
    "BitShift": _never,
}
