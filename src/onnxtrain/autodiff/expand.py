"""Replacement of operators without a gradient rule by the function bodies that ONNX defines for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx
import onnx.inliner

from onnxtrain.autodiff.registry import RULES, has_function_body
from onnxtrain.errors import ModelError
from onnxtrain.graph import as_model_error, bodies_of, infer_shapes, inline_functions, nodes_in, opset_of


def expand_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the function body of each operator that has one and has no gradient rule.

    Operators that have a rule, or are declared non-differentiable, are kept. An
    operator with neither rule nor body is kept as well: the engine refuses it if
    it has to differentiate it.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model is not changed. It is returned itself if there is nothing to expand.

    Raises
    ------
    ModelError
        A body cannot be instantiated, because the types of the operands are unknown.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 23]>
    ...     attend (float[1,2,3,4] Q, float[1,2,3,4] K) => (float[1,2,3,4] Y) { Y = Attention(Q, K, K) }''')
    >>> "Softmax" in {node.op_type for node in expand_functions(onx).graph.node}
    True
    """
    if functions_to_expand(proto, with_local=True):
        with as_model_error("The functions of the model cannot be inlined"):
            proto = inline_functions(proto)
    refused: set[str] = set()
    # Bodies call functions that have bodies themselves. An operator whose body needs static sizes is kept.
    while names := [name for name in functions_to_expand(proto) if name not in refused]:
        before = _count(proto, names)
        try:
            typed = infer_shapes(proto)
            _show_types_of_subgraphs(typed)
            _call_bodies_with_gaps(typed, names)
            typed = onnx.inliner.inline_local_functions(typed, convert_version=True)
            proto = onnx.inliner.inline_selected_functions(
                typed, [("", name) for name in names], exclude=False, inline_schema_functions=True
            )
        except Exception as e:  # the inliner and the inference raise different classes
            raise ModelError(f"The function body of {', '.join(names)} cannot be expanded: {e}") from e
        after = _count(proto, names)
        refused.update(name for name in names if after[name] >= before[name])
    return proto


def _count(proto: onnx.ModelProto, names: list[str]) -> Counter[str]:
    """Return the number of nodes of each operator."""
    return Counter(node.op_type for node in nodes_in(proto.graph.node) if node.op_type in names)


def functions_to_expand(proto: onnx.ModelProto, *, with_local: bool = False) -> list[str]:
    """Return the names of the operators in a model that have a function body and no derivative.

    Parameters
    ----------
    proto : onnx.ModelProto
    with_local : bool
        Look into the model's own functions as well.
    """
    opset = opset_of(proto) or 1
    nodes = list(nodes_in(proto.graph.node))
    for function in proto.functions if with_local else ():
        nodes += nodes_in(function.node)
    candidates = {n.op_type for n in nodes if n.domain in ("", "ai.onnx") and n.op_type not in RULES}
    return sorted(name for name in candidates if has_function_body(name, opset))


def _show_types_of_subgraphs(proto: onnx.ModelProto) -> None:
    """Add the types of values of subgraphs to the types of the graph, in place: onnx's inliner reads only the latter.

    A name that denotes values of different types, in the branches of an If, is omitted.
    """
    known = {v.name for v in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)}
    found: dict[str, list[onnx.ValueInfoProto]] = {}
    for value in _typed_values(proto.graph):
        found.setdefault(value.name, []).append(value)
    for name, (first, *others) in found.items():
        if name not in known and all(first.type == other.type for other in others):
            proto.graph.value_info.append(first)


def _call_bodies_with_gaps(proto: onnx.ModelProto, names: list[str]) -> None:
    """Turn, in place, nodes that omit an operand before another into calls of local functions.

    onnx's inliner asks for the type of each operand, also of omitted ones. Here the
    bodies are requested directly, without a type for omitted operands.
    """
    opset = opset_of(proto)
    types = {v.name: v.type for v in _typed_values(proto.graph)}
    for number, node in enumerate(nodes_in(proto.graph.node)):
        if node.op_type not in names or "" not in node.input:
            continue
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        operands = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        body = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function_with_opset_version(  # type: ignore[attr-defined]
                schema.since_version, node.SerializeToString(), operands
            )
        )
        body.domain, body.name = "onnxtrain.body", f"{node.op_type}_{number}"
        proto.functions.append(body)
        node.domain, node.op_type = body.domain, body.name
        del node.attribute[:]  # they are constants of the body
        if not any(o.domain == body.domain for o in proto.opset_import):
            proto.opset_import.append(onnx.helper.make_opsetid(body.domain, 1))


def _typed_values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for w in graph.initializer:
        yield onnx.helper.make_tensor_value_info(w.name, w.data_type, list(w.dims))
    for node in graph.node:
        for body in bodies_of(node):
            yield from _typed_values(body)
