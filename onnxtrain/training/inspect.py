"""Inspection of a trained model: gradients with respect to its inputs, intermediate results."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.cache import cached
from onnxtrain.errors import ModelError
from onnxtrain.grad_helper import gradients
from onnxtrain.training.objective import Objective, ObjectiveGraph
from onnxtrain.training.step import BatchGraph, graph_of


@cached
def build_loss_gradient(objective: Objective, feature: str) -> BatchGraph:
    """Return the graph of the gradient of the loss of each row with respect to that row of an input."""
    g = ObjectiveGraph(objective, weighted=False)
    x = graph.find(g.features, feature, "input")
    # a loss depends on its own row only: the gradient of the sum holds those of all rows
    (dx,) = gradients(g.model, g.op.ReduceSum(g.losses, keepdims=0), [x])
    onx = g.save([(g.unique(f"{feature}_grad"), dx)])
    return graph_of(g, onx, {"label": str(g.label.name)})


@cached
def build_score_gradients(onx: bytes, output: str, feature: str) -> bytes:
    """Return a model whose outputs are the gradients of the columns of an output, one each."""
    model = graph.load(onx)
    y = graph.find(model.graph.outputs, output, "output")
    x = graph.find(model.graph.inputs, feature, "input")
    op = graph.builder(model).op
    scores = y if graph.rank(y) == 2 else op.Reshape(y, [-1, 1])
    width = scores.shape[1]  # type: ignore[index]
    if not isinstance(width, int):
        raise ModelError(f"The number of columns of {graph.describe(scores)} is not known.")
    columns = [op.ReduceSum(op.Gather(scores, k, axis=1), keepdims=0) for k in range(width)]
    outputs = [(f"{feature}_grad_{k}", gradients(model, column, [x])[0]) for k, column in enumerate(columns)]
    model.graph.inputs[:] = [v for v in model.graph.inputs if not v.is_initializer()]
    return graph.save(model, outputs=outputs).SerializeToString()


def with_result(onx: bytes, name: str) -> bytes:
    """Return a model whose only output is one of its intermediate results.

    Raises
    ------
    ModelError
        There is no such result; the message has the nearest name.
    """
    model = graph.load(onx)
    values: list[ir.Value] = [y for node in model.graph for y in node.outputs if y.name]
    value = graph.find(values, name, "result", ModelError)
    return graph.save(model, outputs=[(name, value)]).SerializeToString()
