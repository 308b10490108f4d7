"""Losses, gradients and intermediate results of rows for given weights: their graphs, and runs of these graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.cache import cached
from onnxtrain.errors import ModelError, WeightError
from onnxtrain.grad_helper import gradients
from onnxtrain.runtime.session import Place, Session, run_session
from onnxtrain.training.data import EpochRows, Piece
from onnxtrain.training.objective import WITH_GRADIENT, BatchGraph, Objective, ObjectiveGraph, rewrite_locally


@cached
def build_row_losses(objective: Objective) -> BatchGraph:
    """Return the graph of the loss of each row, output ``losses`` (n, 1), without sample weights and penalties."""
    g = ObjectiveGraph(objective, weighted=False)
    return g.batch_graph([(g.unique("losses"), g.losses)])


@cached
def build_loss_and_gradient(objective: Objective, builder: str = "builtin") -> BatchGraph:
    """Return the graph of the weighted sum of the losses of the rows, and of its gradient for each weight."""
    g = ObjectiveGraph(objective, weighted=True)
    value = g.op.ReduceSum(g.op.Mul(g.losses, g.weight), keepdims=0)
    dws = gradients(g.model, value, g.weights, builder=builder)
    outputs = [(g.unique("loss"), value)]
    outputs += [(g.unique(f"{w.name}_grad"), dw) for w, dw in zip(g.weights, dws, strict=True)]
    news = rewrite_locally(g.op, g.model.graph, g.losses, [value for _, value in outputs], rows=g.label)
    outputs = [(name, new) for (name, _), new in zip(outputs, news, strict=True)]
    return g.batch_graph(outputs, WITH_GRADIENT)


@cached
def build_loss_gradient(objective: Objective, feature: str) -> BatchGraph:
    """Return the graph of the gradient of the loss of each row with respect to this row of an input."""
    g = ObjectiveGraph(objective, weighted=False)
    x = graph.find(g.features.values(), feature, "input")
    # a loss depends only on its own row, so the gradient of the sum contains the gradients of all rows
    dx = _gradient_of_rows(g.model, g.op.ReduceSum(g.losses, keepdims=0), x)
    return g.batch_graph([(g.unique(f"{feature}_grad"), dx)])


@cached
def build_score_gradients(onx: bytes, output: str, feature: str) -> bytes:
    """Return a model whose outputs are the gradients of each column of an output."""
    model = graph.load(onx)
    y = graph.find(model.graph.outputs, output, "output")
    x = graph.find(model.graph.inputs, feature, "input")
    op = graph.builder(model).op
    if (graph.rank(y) or 0) > 2:
        raise ModelError(
            f"{graph.describe(y)} has scores for each position of a row, too many for a gradient of each. Pass y to "
            "get the gradient of the loss."
        )
    scores = y if graph.rank(y) == 2 else op.Reshape(y, [-1, 1])
    width = scores.shape[1]  # type: ignore[index]
    if not isinstance(width, int):
        raise ModelError(f"The number of columns of {graph.describe(scores)} is unknown.")
    columns = [op.ReduceSum(op.Gather(scores, k, axis=1), keepdims=0) for k in range(width)]
    outputs = [(f"{feature}_grad_{k}", _gradient_of_rows(model, column, x)) for k, column in enumerate(columns)]
    model.graph.inputs[:] = [v for v in model.graph.inputs if not v.is_initializer()]
    return graph.save(model, outputs=outputs).SerializeToString()


def _gradient_of_rows(model: ir.Model, value: ir.Value, x: ir.Value) -> ir.Value:
    """Return the gradient of a value with respect to an input.

    Raises
    ------
    WeightError
        It is 0 everywhere, or the input contains integers.
    """
    try:
        return gradients(model, value, [x])[0]
    except WeightError as e:
        if not graph.is_float(x):
            raise
        reason = "The output does not depend on {0}, or only through operators whose derivative is zero everywhere"
        if any(node.op_type.startswith("TreeEnsemble") for node in model.graph):
            reason = "The prediction of trees is constant between their thresholds"
        raise WeightError(
            f"{reason.format(x.name)}, so its gradient with respect to {x.name} is 0 everywhere. Use "
            "sklearn.inspection.permutation_importance for the influence of the columns."
        ) from e


def with_result(onx: bytes, name: str) -> bytes:
    """Return a model whose only output is one of its intermediate results.

    Raises
    ------
    ModelError
        There is no such value; the message proposes the nearest name.
    """
    model = graph.load(onx)
    values: list[ir.Value] = [y for node in model.graph for y in node.outputs if y.name]
    value = graph.find(values, name, "result", ModelError)
    return graph.save(model, outputs=[(name, value)]).SerializeToString()


def row_losses(objective: Objective, weights: Mapping[str, np.ndarray], data: EpochRows, place: Place) -> np.ndarray:
    """Return the loss of each row, shape (n,), neither weighted nor penalized."""
    return np.concatenate([losses for losses, _ in _losses(objective, weights, data, place)])


def _losses(
    objective: Objective, weights: Mapping[str, np.ndarray], data: EpochRows, place: Place
) -> Iterator[tuple[np.ndarray, Piece]]:
    """Yield the losses of the rows in pieces, and each piece."""
    g = build_row_losses(objective)
    session = place.open(g.onnx)
    known = _known(session, {**data.constants, **weights})
    for piece in data.pieces(place.device):
        (losses,) = run_session(session, {**g.feeds(piece), **known})
        yield losses[:, 0], piece


def mean_loss(objective: Objective, weights: Mapping[str, np.ndarray], data: EpochRows, place: Place) -> float:
    """Return the weighted mean of the losses of the rows, without penalties."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite loss is a valid result
        for losses, piece in _losses(objective, weights, data, place):
            of_rows, weight = losses.astype(np.float64), piece.weight
            if weight is not None:
                of_rows *= (weight.numpy() if hasattr(weight, "numpy") else weight)[:, 0]  # may be on a device
            total += float(of_rows.sum())
    return total / data.total_weight


def loss_and_gradient(
    objective: Objective,
    weights: Mapping[str, np.ndarray],
    data: EpochRows,
    place: Place,
    builder: str = "builtin",
) -> tuple[float, list[np.ndarray]]:
    """Return the weighted mean of the losses of the rows and its gradient for each weight, in float64."""
    loss, dws = sums_of_loss_and_gradient(objective, weights, data, place, builder)
    return loss / data.total_weight, [dw / data.total_weight for dw in dws]


def sums_of_loss_and_gradient(
    objective: Objective,
    weights: Mapping[str, np.ndarray],
    data: EpochRows,
    place: Place,
    builder: str = "builtin",
    dtype: Any = np.float64,
) -> tuple[float, list[np.ndarray]]:
    """Return the weighted sum of the losses of the rows and its gradient for each weight, in `dtype`."""
    g = build_loss_and_gradient(objective, builder)
    session = place.open(g.onnx)
    known = _known(session, {**data.constants, **weights})
    loss, dws = 0.0, list[np.ndarray]()
    for piece in data.pieces(place.device):
        weight = np.ones((piece.n_rows, 1), g.dtype.numpy()) if piece.weight is None else piece.weight
        value, *parts = run_session(session, {**g.feeds(piece._replace(weight=weight)), **known})
        loss += float(value)
        if not dws:
            dws = [part.astype(dtype, copy=False) for part in parts]
            continue
        dws = [dw + part for dw, part in zip(dws, parts, strict=True)]
    return loss, dws


def _known(session: Session, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values that a session reads; a weight that only the gradient needs may be missing."""
    names = {i.name for i in session.get_inputs()}
    return {name: value for name, value in values.items() if name in names}
