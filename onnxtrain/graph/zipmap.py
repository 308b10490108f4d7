"""Outputs that are maps or sequences: removed before a model is changed, and restored.

ZipMap turns the probabilities of a classifier into a dictionary per row. Neither
onnx-ir nor a derivative has a use for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose outputs are tensors: each map is replaced by the tensor that it was made from."""
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    maps = _map_names(copied)
    if not maps:
        return copied
    aside = _making(copied.graph.node, maps)
    made = {y for node in aside for y in node.output}
    kept = [node for node in copied.graph.node if node not in aside]
    del copied.graph.node[:]
    copied.graph.node.extend(kept)
    outputs = {o.name: o for o in copied.graph.output if o.name not in maps}
    types = {v.name: v for v in (*copied.graph.value_info, *copied.graph.input)}
    for name in (x for node in aside for x in node.input if x and x not in made):
        outputs.setdefault(name, types.get(name) or onnx.helper.make_empty_tensor_value_info(name))
    del copied.graph.output[:]
    copied.graph.output.extend(outputs.values())
    return copied


def with_maps_of(proto: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the outputs of `original`: its maps are made anew from their tensors.

    Parameters
    ----------
    proto : onnx.ModelProto
        Derived from :func:`without_maps` of `original`; its outputs have their names.
    original : onnx.ModelProto
    """
    maps = _map_names(original)
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    if not maps:
        return copied
    copied.graph.node.extend(_making(original.graph.node, maps))
    known = {o.domain for o in copied.opset_import}
    copied.opset_import.extend(o for o in original.opset_import if o.domain not in known)
    tensors = {o.name: o for o in copied.graph.output}
    outputs = [o if o.name in maps else tensors[o.name] for o in original.graph.output]
    del copied.graph.output[:]
    copied.graph.output.extend(outputs)
    return copied


def _map_names(proto: onnx.ModelProto) -> set[str]:
    kinds = {o.name: o.type.WhichOneof("value") for o in proto.graph.output}
    return {name for name, kind in kinds.items() if kind in ("map_type", "sequence_type", "optional_type")}


def _making(nodes: Iterable[onnx.NodeProto], maps: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that make maps, in order: ZipMap, and nodes that only pass a map on."""
    wanted, found = set(maps), []
    for node in reversed(list(nodes)):
        if wanted.intersection(node.output):
            found.append(node)
            if node.op_type != "ZipMap":
                wanted.update(node.input)
    return found[::-1]
