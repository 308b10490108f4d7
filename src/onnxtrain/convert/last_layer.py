"""The last linear layer of a model."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.convert.quantized import dequantized
from onnxtrain.errors import ModelError


class Layer(NamedTuple):
    """A product of features by a weight matrix, and the addition of its intercept if that is a separate node."""

    product: ir.Node
    weight: np.ndarray
    axis: int  # the output axis of the weight
    bias: tuple[ir.Node, int] | None  # the position of the intercept among the operands


def head_weights(onx: onnx.ModelProto, output: str) -> list[str]:
    """Return the names of the initializers of the last linear layer before an output.

    Raises
    ------
    ModelError
        There is no linear layer before the output.
    """
    model = graph.reload(onx)
    layer = _layer_before(model, output)
    product = layer.product
    holders = [product.inputs[1], *product.inputs[2:3]]
    if layer.bias is not None:
        node, position = layer.bias
        holders.append(node.inputs[position])
    wanted = graph.ancestors([x for x in holders if x is not None])
    return [
        str(name)
        for name, w in model.graph.initializers.items()
        if w in wanted and graph.is_float(w) and not all(_is_scale(*use) for use in w.uses())
    ]


def head_features(onx: onnx.ModelProto, output: str) -> str:
    """Return the name of the value that the last linear layer before an output takes; raise as :func:`head_weights`."""
    model = graph.reload(onx)
    (features, *_) = _layer_before(model, output).product.inputs
    return "" if features is None else str(features.name)


def _layer_before(model: ir.Model, output: str) -> Layer:
    remedy = "Name the weights to train; onnxtrain.trainable_weights(model) lists them"
    return last_layer(model, graph.find(graph.values_in(model.graph), output, "value"), remedy)


def _is_scale(node: ir.Node, position: int) -> bool:
    """Whether a node takes a value as the scale of a quantization."""
    return position == 1 and graph.made_by(node.outputs[0], "DequantizeLinear", "QuantizeLinear") is not None


def last_layer(model: ir.Model, output: ir.Value, remedy: str) -> Layer:
    """Return the last linear layer among the ancestors of an output, if all paths from features lead through it.

    Raises
    ------
    ModelError
        There is no such layer, or a node behind it has a weight matrix, too. `remedy` ends the message.
    """
    reached = graph.ancestors([output])
    nodes = [node for node in model.graph if any(y in reached for y in node.outputs)]
    layers = [layer for node in nodes if (layer := as_layer(node)) is not None]
    around = not layers or _goes_around(layers[-1].product.outputs[0], output)
    behind = None if around else _layer_behind(nodes, layers[-1])
    if not around and behind is None:
        return layers[-1]
    why = "" if behind is None else f" {behind.op_type} (node {behind.name!r}) has weights of another form."
    raise ModelError(
        f"The output {graph.describe(output)} has no last linear layer (Gemm, MatMul, Conv) that all paths pass "
        f"through.{why} {remedy}."
    )


#: The types that no weight has.
_NO_WEIGHTS = (None, ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.STRING)


def _layer_behind(nodes: Sequence[ir.Node], layer: Layer) -> ir.Node | None:
    """Return the first of `nodes` that computes with the result of a layer and a weight of two or more axes."""
    own = {layer.product, layer.bias[0] if layer.bias is not None else None}
    after = graph.dependents(nodes, layer.product.outputs)
    for node in nodes:
        if node in own or after.isdisjoint(node.outputs) or _shifts_or_scales(node, after):
            continue
        others = [x for x in graph.operands(node) if x is not None and x not in after and x.dtype not in _NO_WEIGHTS]
        shapes = (graph.static_shape(x) or () for x in graph.ancestors(others))
        if any(sum(length > 1 for length in shape) > 1 for shape in shapes):
            return node
    return None


def _shifts_or_scales(node: ir.Node, results: Container[ir.Value]) -> bool:
    """Whether a node adds to results of a layer, or multiplies them, element by element."""
    y = node.outputs[0]
    return node.op_type in ("Add", "Div", "Mul", "Sub") and any(x in results and graph.alike(x, y) for x in node.inputs)


def as_layer(node: ir.Node) -> Layer | None:
    """Return a node as a linear layer, or None if it is not a product of features by constant weights."""
    if graph.made_by(node.outputs[0], "MatMul", "Gemm", "Conv") is None:
        return None
    features, factor = node.inputs[0], node.inputs[1]
    weight = constant_array(factor)
    if weight is None or weight.ndim < 2 or constant_array(features) is not None:
        return None
    if node.op_type == "MatMul":
        return Layer(node, weight, 1, _intercept(node.outputs[0], weight.shape[1])) if weight.ndim == 2 else None
    if node.op_type == "Conv":
        return Layer(node, weight, 0, None) if graph.attribute(node, "group", 1) == 1 else None
    if graph.attribute(node, "transA", 0):
        return None
    return Layer(node, weight, 0 if graph.attribute(node, "transB", 0) else 1, None)


def _intercept(product: ir.Value, width: int) -> tuple[ir.Node, int] | None:
    """Return the node that adds a constant to a product, and the operand position of the constant."""
    uses = tuple(product.uses())
    node = uses[0].node if len(uses) == 1 and not product.is_graph_output() else None
    if node is None or node.op_type != "Add":
        return None
    position = 1 - uses[0].idx
    bias = constant_array(node.inputs[position])
    return (node, position) if bias is not None and bias.size == bias.shape[-1:][0] == width else None


def constant_array(value: ir.Value | None) -> np.ndarray | None:
    """Return the array of a constant, which may be transposed or dequantized before its use."""
    turns = []
    while (node := graph.made_by(value, "Identity", "Transpose", "QuantizeLinear")) is not None:
        if node.op_type == "Transpose":
            turns.append(graph.attribute(node, "perm"))
        value = node.inputs[0]
    source = graph.made_by(value, "DequantizeLinear")
    array = graph.constant(value) if source is None else dequantized(source)
    for axes in reversed(turns):
        array = None if array is None else array.transpose(axes)
    return array


def _goes_around(product: ir.Value, output: ir.Value) -> bool:
    """Whether the output depends on features that bypass a product; integers only select rows and do not count."""
    seen, todo = {product}, [output]
    while todo:
        value = todo.pop()
        node = value.producer()
        if value in seen:
            continue
        seen.add(value)
        if node is None:
            if value.is_graph_input() and not value.is_initializer():
                return True
            continue
        operands = [x for x in graph.operands(node) if x is not None and constant_array(x) is None]
        floats = [x for x in operands if graph.is_float(x) or graph.is_quantized(x)]
        if operands and not floats:  # an embedding, or integers cast to floats
            return True
        todo += floats
    return False
