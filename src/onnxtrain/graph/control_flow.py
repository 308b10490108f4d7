"""Control flow that is decided without rows: each If with a known condition, each SequenceMap over known tensors.

Exporters write an If for each choice that they cannot decide: a sample rate, or whether an axis has length 1. Fixed
inputs and known shapes decide it. The nodes of its branch replace the If, and the weights of the branch become weights
of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxtrain.graph.build import names_in, unique_name
from onnxtrain.graph.query import attribute, constant, is_float, made_by, static_shape, values_in

#: Operators that are evaluated to decide a condition.
_EVALUATED = frozenset(
    """
    Abs Add And Cast CastLike Concat ConstantOfShape Div Equal Expand Gather Greater GreaterOrEqual Identity Less
    LessOrEqual Max Min Mod Mul Neg Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Slice Squeeze Sub
    Transpose Unsqueeze Where Xor
    """.split()  # noqa: SIM905  a list of literals would fill the page
)

#: The largest number of elements of a value on which a condition may depend.
_SMALL = 64


def take_known_branches(model: ir.Model) -> bool:
    """Replace, in place, each If of the main graph whose condition is known; return whether the model has changed.

    If the model has an If, small known integers become constants, so that more shapes and thus more conditions may be
    inferred.
    """
    nodes = [node for node in model.graph if node.op_type == "If" and node.domain in ("", "ai.onnx")]
    if not nodes:
        return False
    known = _known_integers(model)
    settled = [(node, known[x]) for node in nodes if (x := node.inputs[0]) in known and known[x].size == 1]
    for node, condition in settled:
        _replace(model.graph, node, "then_branch" if condition.item() else "else_branch")
    folded = [y for y in known if y.uses() and not y.is_graph_output() and constant(y) is None]
    for y in folded:
        held = ir.Value(name=unique_name(f"{y.name}_known", names_in(model.graph)), type=y.type)
        held.const_value, held.shape = ir.tensor(known[y], name=held.name), ir.Shape(known[y].shape)
        model.graph.register_initializer(held)
        ir.convenience.replace_all_uses_with(y, held)
    return bool(settled or folded)


def _replace(graph: ir.Graph, node: ir.Node, taken: str) -> None:
    """Replace an If by the nodes of a branch."""
    for body in (a.as_graph() for name, a in node.attributes.items() if name != taken):
        _forget(body)
    results = _move_before(graph, node, node.attributes[taken].as_graph())
    node.attributes.clear()
    _give_results(graph, node, [ir.node("Identity", [result]) for result in results])


def _forget(body: ir.Graph) -> None:
    """Remove the operands of the nodes of a body that is not used: their uses of outer values would still count."""
    for inner in body.all_nodes():
        inner.resize_inputs(0)


def _move_before(graph: ir.Graph, node: ir.Node, body: ir.Graph) -> list[ir.Value]:
    """Move the nodes and initializers of a body in front of a node; return the results of the body."""
    results, nodes, weights = list(body.outputs), list(body), list(body.initializers.values())
    body.outputs.clear()
    body.initializers.clear()
    body.remove(nodes)
    _rename_apart(graph, [*weights, *(y for inner in nodes for y in _results(inner))])
    for weight in weights:
        graph.register_initializer(weight)
    graph.insert_before(node, nodes)
    return results


def _give_results(graph: ir.Graph, node: ir.Node, makers: Sequence[ir.Node]) -> None:
    """Replace a node by other nodes, one per output, which keep the names of the outputs."""
    for y, maker in zip(node.outputs, makers, strict=True):
        maker.outputs[0].name, y.name = y.name, None
        graph.insert_before(node, maker)
        ir.convenience.replace_all_uses_with(y, maker.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)


def repeat_bodies(model: ir.Model) -> bool:
    """Replace, in place, each SequenceMap over known tensors by its body for each of them; return whether any was.

    torch.onnx.export(dynamo=True) writes hstack, column_stack and dstack so. A body with weights stays, because the
    weights of its copies would be trained separately.
    """
    nodes = [node for node in model.graph if node.op_type == "SequenceMap" and node.domain in ("", "ai.onnx")]
    repeated = False
    for node in nodes:
        body = node.attributes["body"].as_graph()
        if any(map(_may_be_weight, values_in(body))):
            continue
        sequences = [tensors for x in node.inputs if (tensors := _tensors_of(model.graph, x, node))]
        if len(sequences) == len(node.inputs):
            _repeat(model.graph, node, body, list(zip(*sequences, strict=True)))
            repeated = True
    return repeated


def _tensors_of(graph: ir.Graph, sequence: ir.Value | None, before: ir.Node) -> Sequence[ir.Value | None]:
    """Return the tensors of a known sequence, none of any other; a tensor that is split to a sequence is split."""
    construct, split = made_by(sequence, "SequenceConstruct"), made_by(sequence, "SplitToSequence")
    if construct is not None:
        return construct.inputs
    sizes = None if split is None or len(split.inputs) < 2 else constant(split.inputs[1])
    if split is None or sizes is None or sizes.dtype != np.int64 or sizes.ndim != 1:
        return ()
    axis = {"axis": attribute(split, "axis", 0)}
    parts = ir.node("Split", split.inputs, attributes=axis, num_outputs=len(sizes))
    graph.insert_before(before, parts)
    return parts.outputs


def _may_be_weight(value: ir.Value) -> bool:
    return is_float(value) and (value.is_initializer() or made_by(value, "Constant") is not None)


def _repeat(graph: ir.Graph, node: ir.Node, body: ir.Graph, tensors: Sequence[Sequence[ir.Value | None]]) -> None:
    """Replace a SequenceMap by its body for each of the given operands of the body."""
    results = []
    for operands in tensors:
        own = body.clone(allow_outer_scope_values=True)
        for inner, x in zip(own.inputs, operands, strict=True):
            ir.convenience.replace_all_uses_with(inner, x, replace_graph_outputs=True)  # type: ignore[arg-type]
        results.append(_move_before(graph, node, own))
    _forget(body)
    node.attributes.clear()
    _give_results(graph, node, [ir.node("SequenceConstruct", parts) for parts in zip(*results, strict=True)])


def _rename_apart(graph: ir.Graph, values: Sequence[ir.Value]) -> None:
    """Rename, in place, the values of a branch whose names the graph already uses.

    Values of the graphs inside the branch are renamed too, because a renamed value that they read may get one of their
    names.
    """
    outside = names_in(graph)
    taken = outside.union(str(value.name) for value in values)
    for value in values:
        if value.name in outside:
            value.name = unique_name(value.name, taken)


def _results(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the outputs of a node, and the values of the graphs inside it."""
    yield from node.outputs
    for a in node.attributes.values():
        if a.type == ir.AttributeType.GRAPH:
            yield from values_in(a.as_graph())


def _known_integers(model: ir.Model) -> dict[ir.Value, np.ndarray]:
    """Return the values of the main graph that are small, not floating-point, and the same for all rows."""
    found: dict[ir.Value, np.ndarray] = {}
    results = [y for node in model.graph for y in node.outputs]
    for x in (*model.graph.initializers.values(), *results):
        array = None if is_float(x) or x.dtype == ir.DataType.STRING else constant(x)
        if array is not None and array.size <= _SMALL:
            found[x] = array
    for node in model.graph:
        y = node.outputs[0]
        if y not in found:
            array = _of_shape(node) if node.op_type in ("Shape", "Size", "Gather") else None
            array = _evaluated(model, node, found) if array is None else array
            if array is not None:
                found[y] = array
    return found


def _of_shape(node: ir.Node) -> np.ndarray | None:
    """Return the result of a node that follows from known dimensions: part of a shape, one, or a product."""
    x = node.inputs[0]
    of = made_by(x, "Shape") if node.op_type == "Gather" else node
    if of is None or of.inputs[0] is None or of.inputs[0].shape is None:
        return None
    dims = of.inputs[0].shape.dims[slice(attribute(of, "start", 0), attribute(of, "end"))]
    if node.op_type == "Gather":
        index = constant(node.inputs[1])
        if index is None or index.size != 1 or not -len(dims) <= index.item() < len(dims):
            return None
        return np.full(index.shape, d, np.int64) if isinstance(d := dims[index.item()], int) else None
    if not all(isinstance(d, int) for d in dims):
        return None
    return np.array(dims if node.op_type == "Shape" else math.prod(dims), np.int64)


def _evaluated(model: ir.Model, node: ir.Node, known: Mapping[ir.Value, np.ndarray]) -> np.ndarray | None:
    """Return the result of a node whose operands are known, or None if it cannot be computed."""
    operands = [x for x in node.inputs if x is not None]
    shape = static_shape(node.outputs[0])
    if node.domain or node.op_type not in _EVALUATED or not all(x in known for x in operands) or not operands:
        return None
    if shape is None or math.prod(shape) > _SMALL or is_float(node.outputs[0]):
        return None
    proto = ir.to_proto(node)
    names = dict.fromkeys(str(x.name) for x in operands)
    inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    outputs = [onnx.helper.make_empty_tensor_value_info(proto.output[0])]
    opsets = [onnx.helper.make_opsetid("", model.graph.opset_imports[""])]
    alone = onnx.helper.make_model(onnx.helper.make_graph([proto], "node", inputs, outputs), opset_imports=opsets)
    try:
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(alone).run(None, {str(x.name): known[x] for x in operands})
    except Exception:  # such a node is left to onnxruntime
        return None
    return np.asarray(result)
