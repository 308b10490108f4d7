"""The graphs that train an estimator: the model, with the loss, with the gradient, and the whole step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.estimators.settings import settings_of
from onnxtrain.estimators.start import go_on
from onnxtrain.training.stages import StagedGraph, staged_graph

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The parts of a training step, each of which includes the earlier ones, and the last stage of each.
PARTS = {"model": "forward", "loss": "loss", "gradient": "gradient", "step": "optimizer"}


def graph_of_part(estimator: OrtGradientEstimator, part: str) -> StagedGraph:
    """Return a part of the step with which training would continue; its weights are inputs."""
    trained, _ = go_on(estimator, estimator._trained)
    if part == "model":
        model = graph.reload(trained.objective.model)
        outputs = [y for y in model.graph.outputs if y.name == trained.source.model.output]
        graph.set_outputs(model, [(str(y.name), y) for y in outputs])
        graph.prune(model)
        return StagedGraph(model, {}, trained.objective.weights)
    settings, weighted = settings_of(estimator), estimator._state.weighted
    return staged_graph(trained.objective, settings, PARTS[part], weighted=weighted)


def training_graphs(estimator: OrtGradientEstimator) -> dict[str, onnx.ModelProto]:
    """Return every part of the training step of a fitted estimator as a model; see the estimator's method."""
    settings = settings_of(estimator)
    parts = [part for part in PARTS if part != "step" or settings.optimizer is not None]
    return {part: _with_defaults(graph_of_part(estimator, part).model, _values(estimator)) for part in parts}


def _values(estimator: OrtGradientEstimator) -> dict[str, np.ndarray]:
    """Return the values of graph inputs that a fitted estimator defines: weights, constants, penalty strengths."""
    trained, _ = go_on(estimator, estimator._trained)
    settings = settings_of(estimator)
    strengths = {
        f"{factor}_{i}": np.full((1, 1), value)  # named as in onnxtrain.training.step.columns
        for factor, groups in zip(("l1", "l2"), settings.penalty_groups(trained.objective.penalized), strict=True)
        for i, value in enumerate(groups.values())
    }
    return {**trained.constants, **trained.weights, **strengths}


def _with_defaults(model: ir.Model, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model in which the inputs in `values` have default values."""
    for value in model.graph.inputs:
        if value.name in values and value.dtype is not None:
            array = values[str(value.name)].astype(value.dtype.numpy())
            value.const_value = ir.Tensor(array, dtype=value.dtype, name=value.name)
            model.graph.register_initializer(value)
    return graph.save(model)
