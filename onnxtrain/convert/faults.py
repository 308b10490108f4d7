"""Faults of the converters that are put right in the graph."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline

from onnxtrain.graph import unique_name


def repair(estimator: Any, onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model, in place, without the known faults of skl2onnx."""
    untie(onx)
    last = estimator
    while isinstance(last, Pipeline):
        last = last[-1]
    if isinstance(last, MLPRegressor) and last.n_outputs_ > 1:
        _keep_columns(onx)
    return onx


def untie(onx: onnx.ModelProto) -> None:
    """Give each Identity of an initializer a copy of its own.

    skl2onnx stores equal arrays once; trained, two intercepts that start at zero
    go different ways.
    """
    graph = onx.graph
    initializers = {i.name: i for i in graph.initializer}
    taken = set(initializers)
    outputs = {y.name for y in graph.output}
    for node in list(graph.node):
        if node.op_type == "Identity" and node.input[0] in initializers and node.output[0] not in outputs:
            copy = onnx.TensorProto()
            copy.CopyFrom(initializers[node.input[0]])
            copy.name = unique_name(node.output[0], taken)
            graph.initializer.append(copy)
            initializers[copy.name] = copy
            graph.node.remove(node)


def _keep_columns(onx: onnx.ModelProto) -> None:
    """Remove the last Reshape to (-1, 1) of a regressor with several targets."""
    graph = onx.graph
    (name,) = (y.name for y in graph.output)
    producer = next(node for node in graph.node if name in node.output)
    if producer.op_type == "Reshape":
        producer.CopyFrom(helper.make_node("Identity", producer.input[:1], [name], name=producer.name))
    graph.output[0].type.tensor_type.shape.dim[-1].ClearField("value")


