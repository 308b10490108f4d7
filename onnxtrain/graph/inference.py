"""Types and shapes of the values of a model: the inference of onnx, and its gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from onnxtrain.graph.build import unique_name
from onnxtrain.graph.onnx_inference import infer_types, small_constants

#: A dimension is a length, a name or unknown; a shape is None if the rank is unknown.
_Shape: TypeAlias = "list[int | str | None] | None"

#: Operators of which onnx infers nothing -> one that has its first operand and its result.
_INFERRED_AS = {"GroupNormalization": "InstanceNormalization"}


def infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model whose values have the types and shapes that follow.

    An iteration of a Loop may change the shapes of its loop-carried values, so onnx does not infer them. Here a Loop
    is assumed to keep the shape that its body declares, or that of the initial value. Dimensions that the inference of
    the body then shows to change are dropped, until the rest is invariant. Nor does onnx see a constant that a body
    captures from outside: bodies get constants of their own.
    """
    proto = _with_own_constants(proto)
    typed = _infer(proto)
    kept: dict[tuple[int, int], _Shape] = {}
    while True:
        found, unproven = _carried(proto, typed, kept)
        if found == kept:  # the shape after an iteration may only be known once inner Loops are
            found |= dict.fromkeys(unproven)
        if found == kept:
            return typed
        kept = found
        assumed = onnx.ModelProto()
        assumed.CopyFrom(proto)
        _assume(assumed, typed, kept)
        typed = _infer(assumed)


def _infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    renamed = [(node, node.op_type) for node in _nodes(proto.graph) if node.op_type in _INFERRED_AS and not node.domain]
    try:
        for node, op_type in renamed:
            node.op_type = _INFERRED_AS[op_type]
        typed = infer_types(proto, data_prop=True)
    finally:
        for node, op_type in renamed:
            node.op_type = op_type
    if renamed:
        for node, known in zip(_nodes(typed.graph), _nodes(proto.graph), strict=True):
            node.op_type = known.op_type
    return typed


# ---------------------------------------------------------------- constants


def _with_own_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose bodies hold the axes, shapes and indices that they took from outside."""
    if not any(a.HasField("g") for node in proto.graph.node for a in node.attribute):
        return proto
    own = onnx.ModelProto()
    own.CopyFrom(proto)
    _copy_constants(own.graph, {}, {y for node in _nodes(own.graph) for y in node.output})
    return own


def _copy_constants(graph: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto], taken: set[str]) -> None:
    known = {**outside, **small_constants(graph)}
    for node in graph.node:
        for body in (a.g for a in node.attribute if a.HasField("g")):
            used = {x for inner in body.node for x in inner.input if x in known}
            copies = {x: unique_name(f"{x}_inside", taken) for x in sorted(used)}
            for inner in body.node:
                inner.input[:] = [copies.get(x, x) for x in inner.input]
            first = [onnx.helper.make_node("Constant", [], [copies[x]], value=known[x]) for x in copies]
            nodes = [*first, *body.node]
            del body.node[:]
            body.node.extend(nodes)
            _copy_constants(body, known, taken)


# -------------------------------------------------------------------- loops


@dataclass(frozen=True)
class _Loop:
    """A Loop, the graph in which it stands, and the shapes that are known there."""

    node: onnx.NodeProto
    graph: onnx.GraphProto
    shapes: Mapping[str, _Shape]

    @property
    def body(self) -> onnx.GraphProto:
        return next(a.g for a in self.node.attribute if a.name == "body")


def _carried(
    proto: onnx.ModelProto, typed: onnx.ModelProto, kept: Mapping[tuple[int, int], _Shape]
) -> tuple[dict[tuple[int, int], _Shape], list[tuple[int, int]]]:
    """Return the invariant shape of each loop-carried value, by the index of the Loop and of the value.

    Then those whose shape after an iteration is unknown.
    """
    found: dict[tuple[int, int], _Shape] = {}
    unproven = []
    for i, (written, loop) in enumerate(zip(_loops(proto.graph, {}), _loops(typed.graph, {}), strict=True)):
        for k, name in enumerate(loop.node.input[2:]):
            declared, first = _shape(written.body.input[2 + k]), loop.shapes.get(name)
            after = _shape(loop.body.output[1 + k])
            if (i, k) not in kept:
                if declared is not None or first is not None:
                    found[i, k] = first if declared is None else declared
            else:
                if after is None and declared is None:
                    unproven.append((i, k))
                found[i, k] = _common(kept[i, k], *(shape for shape in (first, after) if shape is not None))
    return found, unproven


def _common(first: _Shape, *others: _Shape) -> _Shape:
    """Return the dimensions in which shapes agree, None if their ranks differ."""
    if first is None or any(other is None or len(other) != len(first) for other in others):
        return None
    return [dims[0] if dims.count(dims[0]) == len(dims) else None for dims in zip(first, *others, strict=True)]


def _assume(proto: onnx.ModelProto, typed: onnx.ModelProto, kept: Mapping[tuple[int, int], _Shape]) -> None:
    """Write, in place, the shapes that Loops keep: they hold in the body, and after the Loop."""
    for i, (loop, known) in enumerate(zip(_loops(proto.graph, {}), _loops(typed.graph, {}), strict=True)):
        values = {v.name: v for v in (*loop.graph.value_info, *loop.graph.output)}
        for k, name in enumerate(loop.node.output[: len(loop.node.input) - 2]):
            if kept.get((i, k)) is None:
                continue
            x = known.body.input[2 + k]
            if not x.type.HasField("tensor_type"):
                continue
            _write(loop.body.input[2 + k], x, kept[i, k])
            if name:
                _write(values.get(name) or loop.graph.value_info.add(name=name), x, kept[i, k])


def _write(value: onnx.ValueInfoProto, like: onnx.ValueInfoProto, shape: _Shape) -> None:
    """Give a value the type of another, and a shape where it declares none."""
    tensor = value.type.tensor_type
    tensor.elem_type = like.type.tensor_type.elem_type
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(onnx.helper.make_tensor_type_proto(1, shape).tensor_type.shape)


def _loops(graph: onnx.GraphProto, outside: Mapping[str, _Shape]) -> Iterator[_Loop]:
    if not any(a.HasField("g") for node in graph.node for a in node.attribute):
        return
    shapes = {**outside, **{w.name: list(w.dims) for w in graph.initializer}}
    shapes |= {v.name: _shape(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            yield _Loop(node, graph, shapes)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _loops(attribute.g, shapes)


def _shape(value: onnx.ValueInfoProto) -> _Shape:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
