"""In-place changes of a model: its floating-point type, removal of nodes without effect."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from onnxtrain.graph.build import Builder, Op, names_in, tensor, unique_name
from onnxtrain.graph.query import FLOATS, PRODUCTS, constant, holds_graphs, is_float, static_shape, values_in
from onnxtrain.graph.rewriting import Rewritings
from onnxtrain.opsets import find_schema


def cast_floats(model: ir.Model, dtype: ir.DataType) -> None:
    """Cast, in place, every floating-point value of a model to the type `dtype`.

    Inputs, initializers, constants and the targets of Cast are changed. Operands and results for which an operator
    supports only one type (``scales`` of Resize), and all of them for operators of ai.onnx.ml, keep their types and are
    cast before and after the node.
    """
    if _computes_in(model, dtype):
        return
    kept = _constants_of_one_type(model, dtype)
    values = (x for node in model.graph.all_nodes() for x in (*node.inputs, *node.outputs))
    before = {x: x.dtype for x in values if x is not None and x.dtype is not None}
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in (*graph.inputs, *graph.initializers.values()):
            if is_float(value) and value not in kept:
                value.dtype = dtype
                value.const_value = _cast_tensor(value.const_value, dtype)
    for node in list(model.graph.all_nodes()):
        if kept.isdisjoint(node.outputs):
            _cast_attributes(node, dtype)
            _cast_around(model, node, dtype, before)


def _computes_in(model: ir.Model, dtype: ir.DataType) -> bool:
    """Whether every floating-point value of a model has a given type, and no type is unknown."""
    return all(value.dtype == dtype for value in values_in(model.graph) if is_float(value) or value.dtype is None)


def _cast_around(model: ir.Model, node: ir.Node, dtype: ir.DataType, before: dict[ir.Value, ir.DataType]) -> None:
    """Give the results of a node the type `dtype`; cast operands that it accepts only in the type `before`."""
    for x in dict.fromkeys(x for x, free in _typed(model, node, node.inputs, dtype) if not free):
        if x.dtype != before[x]:
            _cast_before(node, x, before[x])
    for y, free in list(_typed(model, node, node.outputs, dtype)):
        if free:
            y.dtype = dtype
        elif y.dtype != dtype:
            before[_cast_behind(node, y, dtype)] = y.dtype  # type: ignore[assignment]


def products_in(model: ir.Model, dtype: ir.DataType) -> None:
    """Compute the products of a model in `dtype`, in place: cast their operands, and cast their results back."""
    for node in list(model.graph.all_nodes()):
        if node.op_type not in PRODUCTS or node.domain or not _knows(model, node, dtype):
            continue
        for x in dict.fromkeys(x for x in node.inputs if x is not None and is_float(x)):
            _cast_before(node, x, dtype)
        for y in filter(is_float, node.outputs):
            real, y.dtype = y.dtype, dtype
            _cast_behind(node, y, real)  # type: ignore[arg-type]


def _knows(model: ir.Model, node: ir.Node, dtype: ir.DataType) -> bool:
    """Whether the first operand of an operator may have a type."""
    schema = find_schema(node.op_type, model.graph.opset_imports.get("", 0), "")
    return schema is not None and f"tensor({dtype.name.lower()})" in schema.inputs[0].types


def _typed(
    model: ir.Model, node: ir.Node, values: Sequence[ir.Value | None], dtype: ir.DataType
) -> Iterator[tuple[ir.Value, bool]]:
    """Yield each floating-point input or output of a node, and whether its type may become `dtype`.

    The type may become `dtype` if the operator declares it by a type parameter (T), even if T excludes `dtype`, because
    the function body of the operator may run instead. This does not hold for ai.onnx.ml, whose attributes have the type
    of its inputs.
    """
    schema = find_schema(node.op_type, model.graph.opset_imports.get(node.domain, 0), node.domain)
    name = f"tensor({dtype.name.lower()})"
    for i, value in enumerate(values):
        if value is None or not is_float(value):
            continue
        if schema is None:
            yield value, True  # a user's operator: results are assumed to have the type of the operands
            continue
        formals = schema.inputs if values is node.inputs else schema.outputs
        declared = formals[min(i, len(formals) - 1)].type_str
        by_name = node.domain != "ai.onnx.ml" and declared in (t.type_param_str for t in schema.type_constraints)
        yield value, by_name or declared == name


def _constants_of_one_type(model: ir.Model, dtype: ir.DataType) -> set[ir.Value]:
    """Return the inputs and constants that are used only as operands that cannot have the type `dtype`."""
    free: dict[ir.Value, bool] = {}
    for node in model.graph.all_nodes():
        for x, takes in _typed(model, node, node.inputs, dtype):
            free[x] = free.get(x, False) or takes
    return {x for x, takes in free.items() if not takes and _is_given(x) and not x.is_graph_output()}


def _is_given(x: ir.Value) -> bool:
    node = x.producer()
    return node is None or node.op_type == "Constant"


def _cast_tensor(tensor: Any, dtype: ir.DataType) -> Any:
    if tensor is None or tensor.dtype not in FLOATS or tensor.dtype == dtype:
        return tensor
    return ir.tensor(tensor.numpy().astype(dtype.numpy()), dtype=dtype, name=tensor.name)


#: Operators whose result is float32 unless an attribute says otherwise.
_FLOAT_BY_DEFAULT = {
    **dict.fromkeys(["BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"], "output_datatype"),
    **dict.fromkeys(["RandomNormal", "RandomUniform"], "dtype"),
}


def _cast_attributes(node: ir.Node, dtype: ir.DataType) -> None:
    """Change the type of Constant, ConstantOfShape, Cast, EyeLike, HannWindow, RandomNormal, ..."""
    if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        node.attributes["value"] = ir.AttrTensor("value", tensor([0.0], dtype))
    if (name := _FLOAT_BY_DEFAULT.get(node.op_type)) is not None and name not in node.attributes:
        node.attributes[name] = ir.AttrInt64(name, int(dtype))
    for name, found in list(node.attributes.items()):
        if found.type == ir.AttributeType.TENSOR:
            held = found.as_tensor()
            if held.dtype in FLOATS and node.domain in ("", "ai.onnx"):
                node.attributes[name] = ir.AttrTensor(name, _cast_tensor(held, dtype))
        elif name in ("to", "dtype", "output_datatype") and found.as_int() in FLOATS:
            node.attributes[name] = ir.AttrInt64(name, int(dtype))
        elif node.op_type == "Constant" and name in ("value_float", "value_floats"):
            del node.attributes[name]
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(found.value, dtype=dtype))
    for y in node.outputs:
        y.const_value = _cast_tensor(y.const_value, dtype)


def _cast_before(node: ir.Node, x: ir.Value, dtype: ir.DataType) -> None:
    cast = ir.node("Cast", [x], {"to": dtype})
    (replacement,) = cast.outputs
    replacement.name, replacement.shape, replacement.dtype = f"{x.name}_{dtype.short_name()}", x.shape, dtype
    for i, other in enumerate(node.inputs):
        if other is x:
            node.replace_input_with(i, replacement)
    node.prepend(cast)


def _cast_behind(node: ir.Node, y: ir.Value, dtype: ir.DataType) -> ir.Value:
    cast = ir.node("Cast", [y], {"to": dtype})
    (replacement,) = cast.outputs
    replacement.name, replacement.shape, replacement.dtype = y.name, y.shape, dtype
    y.name = f"{y.name}_{y.dtype.short_name()}"  # type: ignore[union-attr]
    ir.convenience.replace_all_uses_with(y, replacement, replace_graph_outputs=True)
    cast.replace_input_with(0, y)
    node.append(cast)
    return replacement


def constants_as_nodes(model: ir.Model, weights: Container[ir.Value], values: Sequence[ir.Value]) -> list[ir.Value]:
    """Turn floating-point initializers that are not in `weights` into Constant nodes, in place.

    Afterwards every floating-point initializer is a weight. Equal constants become one node. Returns the replacements
    of `values`.
    """
    made: dict[tuple[Any, ...], ir.Value] = {}
    instead: dict[ir.Value, ir.Value] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or not is_float(value) or value.is_graph_input() or value in weights:
            continue
        key = (tensor.dtype, tuple(tensor.shape), tensor.tobytes())
        if key not in made:
            (made[key],) = ir.node("Constant", [], {"value": tensor}).outputs
            made[key].type, made[key].shape, made[key].name = value.type, value.shape, name
        ir.convenience.replace_all_uses_with(value, made[key], replace_graph_outputs=True)
        del model.graph.initializers[name]
        instead[value] = made[key]
    nodes = [y.producer() for y in made.values()]
    if len(model.graph):
        model.graph.insert_before(model.graph[0], nodes)  # type: ignore[arg-type]
    else:
        model.graph.extend(nodes)  # type: ignore[arg-type]
    return [instead.get(value, value) for value in values]


def put_in_order(model: ir.Model) -> None:
    """Sort, in place, the nodes of a model topologically."""
    known: set[ir.Node | None] = {None}
    for node in model.graph:
        if holds_graphs(node) or not known.issuperset(x.producer() for x in node.inputs if x is not None):
            passes.TopologicalSortPass()(model)
            return
        known.add(node)


#: Rewritings of nodes without effect, whose result is their operand.
WITHOUT_EFFECT = Rewritings()


@WITHOUT_EFFECT.rule("Cast")
def cast_to_same_type(op: Op | None, node: ir.Node) -> ir.Value | None:
    """Find a Cast to the type of its operand."""
    x, (y,) = node.inputs[0], node.outputs
    return x if x is not None and x.dtype == (y.dtype or node.attributes.get_int("to")) else None


@WITHOUT_EFFECT.rule("Reshape")
def reshape_to_same_shape(op: Op | None, node: ir.Node) -> ir.Value | None:
    """Find a Reshape to the shape of its operand, such as (-1, k) of (N, k), which hides that the length is still N."""
    x, target = node.inputs[0], constant(node.inputs[1])
    if x is None or x.shape is None or target is None or len(target) != len(x.shape):
        return None
    differ = [t for t, d in zip(target, x.shape, strict=True) if t != d]
    # a single open dimension is determined if all others agree
    return x if differ in ([], [-1]) or all(t == 0 for t in differ) else None


def tidy(model: ir.Model) -> bool:
    """Remove nodes without effect, in place; return whether inference may now find more shapes."""
    removed = set()
    for node in list(model.graph):
        if WITHOUT_EFFECT.apply(None, node):
            removed.add(node.op_type)
            node.op_type, node.version = "Identity", None
            node.attributes.clear()
            node.resize_inputs(1)
            node.outputs[0].shape = node.inputs[0].shape  # type: ignore[union-attr]
    if removed:
        remove_identities(model)
    return "Reshape" in removed


def name_squeezed_axes(model: ir.Model) -> bool:
    """Give each Squeeze without axes of values of the rows those of length 1, in place; return whether one has changed.

    ``squeeze()`` of PyTorch would remove the axis of the rows for a single row. If another axis is open, too, it is not
    known which axes the operator is meant to remove.
    """
    changed = False
    for node in model.graph:
        x, axes = (*node.inputs, None, None)[:2]
        if node.op_type != "Squeeze" or axes is not None or x is None or not x.shape or isinstance(x.shape[0], int):
            continue
        if not all(isinstance(d, int) for d in x.shape[1:]):
            continue
        if found := [i for i, d in enumerate(x.shape) if d == 1]:
            held = ir.Value(name=unique_name(f"{node.outputs[0].name}_axes", names_in(model.graph)))
            held.const_value, held.shape = tensor(found, name=held.name), ir.Shape([len(found)])
            held.type = ir.TensorType(ir.DataType.INT64)
            model.graph.register_initializer(held)
            node.resize_inputs(2)
            node.replace_input_with(1, held)
        else:  # without axes, Squeeze would remove all
            node.op_type = "Identity"
            node.resize_inputs(1)
        changed = True
    return changed


def check_scalars(model: ir.Model, inputs: Iterable[ir.Value]) -> None:
    """Reshape, in place, inputs that are declared as scalars to scalars, which fails at run time for other values.

    onnxruntime takes arrays of any shape for such inputs; a gradient would be summed over them.
    """
    for x in inputs:
        if static_shape(x) != () or x.dtype is None or not x.consumers():
            continue
        first = next(iter(model.graph))
        no_axes = ir.node("Constant", [], {"value": ir.tensor(np.zeros(0, np.int64))})
        check = ir.node("Reshape", [x, no_axes.outputs[0]], name=f"{x.name} is declared as a scalar")
        y = check.outputs[0]
        y.type, y.shape = x.type, x.shape
        for node, position in [*x.uses()]:  # an output of the model with this name stays the input
            if node is not check:
                node.replace_input_with(position, y)
        model.graph.insert_before(first, [no_axes, check])


def remove_identities(model: ir.Model) -> None:
    """Remove the Identity nodes, in place, except nodes that compute the output of a body or name an output twice.

    A body must compute its outputs, so a value captured from outside must be copied.
    """
    names = [y.name for y in model.graph.outputs]
    bodies = list(model.graph.subgraphs())
    results = [n for body in bodies for y in body.outputs if (n := y.producer()) and n.op_type == "Identity"]
    for node in results:
        node.domain = "onnxtrain.kept"
    passes.IdentityEliminationPass()(model)
    for node in results:
        node.domain = ""
    restore_outputs(model.graph, names)


def restore_outputs(graph: ir.Graph, names: Sequence[str | None]) -> None:
    """Restore, in place, the name of each output that was merged with an equal one."""
    merged = [i for i, name in enumerate(names) if graph.outputs[i].name != name]
    op = Builder(graph).op if merged else None
    for i in merged:
        copy = op.Identity(graph.outputs[i])  # type: ignore[union-attr]
        copy.name = names[i]
        graph.outputs[i] = copy
