"""The graphs that train an estimator, as they are derived, and their pictures.

The graphs are the model, with the loss, with the gradient, and the whole step; each node has its stage. The step that
runs is equivalent with fewer nodes: small weights are packed, sums are products, rows are gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.drawing import Picture, boxes_of, folded
from onnxtrain.errors import ArgumentTypeError, OptimizerError, ParameterError
from onnxtrain.estimators.containers import place_in
from onnxtrain.estimators.export_code import how_to_export
from onnxtrain.estimators.protocols import Model, is_onnx
from onnxtrain.estimators.settings import go_on, settings_of
from onnxtrain.grad_helper import DerivativeOptions, gradients, onnx_derivative
from onnxtrain.optim import Proximal
from onnxtrain.registry import did_you_mean
from onnxtrain.training.objective import Objective, ObjectiveGraph
from onnxtrain.training.packing import alone
from onnxtrain.training.settings import Settings
from onnxtrain.training.step import columns, kind_of, move_weights, objective_of_batch, scalar_names

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator

#: The stages of a step, in this order; a graph ends with one of them.
STAGES = ("forward", "loss", "gradient", "optimizer")


@dataclass(frozen=True)
class StagedGraph:
    """A graph, and the stage of each node.

    Attributes
    ----------
    model : onnx_ir.Model
        The graph, its nodes in topological order, without unused nodes.
    stage_of : mapping of onnx_ir.Node to str
        The stage of each node, one of ``STAGES``.
    weights : tuple of str
        The inputs that are trained weights.
    """

    model: ir.Model
    stage_of: Mapping[ir.Node, str] = field(repr=False)
    weights: tuple[str, ...] = ()


def staged_graph(objective: Objective, settings: Settings, last: str, *, weighted: bool = False) -> StagedGraph:
    """Return the graph of a training step up to a stage.

    Parameters
    ----------
    objective : Objective
    settings : Settings
    last : {"loss", "gradient", "optimizer"}
        The last stage. The outputs are the loss; the loss and the gradient of each weight; or the loss and the next
        state.
    weighted : bool
        Whether there are sample weights.

    Raises
    ------
    OptimizerError
        The solver is L-BFGS.
    """
    g = ObjectiveGraph(objective, weighted=weighted)
    own = {str(v.name) for v in graph.values_in(graph.reload(objective.model).graph)}
    stage_of = {
        node: "forward" if own.issuperset(str(y.name) for y in node.outputs) else "loss" for node in g.model.graph
    }

    def are(stage: str) -> None:
        stage_of.update((node, stage) for node in g.model.graph if node not in stage_of)

    l1, l2 = settings.penalty_groups(objective.penalized)
    l1_of, l2_of = columns("l1", tuple(l1)), columns("l2", tuple(l2))
    optimizer = settings.optimizer
    if last == "optimizer" and optimizer is None:
        raise OptimizerError("solver='lbfgs' has no step to draw. Set part to 'model', 'loss' or 'gradient'.")
    names = ("share", *l1_of.values(), *l2_of.values()) if optimizer is None else scalar_names(optimizer, l1_of, l2_of)
    scalars = {name: g.add_input(name, (1, 1)) for name in dict.fromkeys(names)}
    value, _ = objective_of_batch(g, scalars, l1_of, l2_of, with_l1=not isinstance(optimizer, Proximal))
    outputs = [("loss", value)]
    are("loss")
    if last != "loss":
        dws = gradients(g.model, value, g.weights, builder=settings.builder)
        are("gradient")
    if last == "gradient":
        outputs += [(f"{w.name}_grad", dw) for w, dw in zip(g.weights, dws, strict=True)]
    if last == "optimizer" and optimizer is not None:
        kinds = [kind_of(str(w.name), objective, optimizer, l1_of) for w in g.weights]
        units = list(map(alone, g.weights, dws, kinds))
        weights, slots = move_weights(g, optimizer, units, scalars, settings.clip_norm)
        are("optimizer")
        states = [*weights.values(), *slots.values()]
        outputs += [(f"next_{x.old.name}", x.new) for x in states if x.old is not None and x.new is not None]
    graph.set_outputs(g.model, [(g.unique(name), value) for name, value in outputs])
    are(last)  # the copies of values that are two outputs
    graph.put_in_order(g.model)
    graph.prune(g.model)
    needed = graph.ancestors(g.model.graph.outputs)
    g.model.graph.inputs[:] = [v for v in g.model.graph.inputs if v in needed]
    return StagedGraph(g.model, stage_of, objective.weights)


#: The parts of a training step, each of which includes the earlier ones, and the last stage of each.
PARTS = {"model": "forward", "loss": "loss", "gradient": "gradient", "step": "optimizer"}

#: Other names for the parts.
_PARTS_OF_OTHERS = {
    "forward": "model",
    "backward": "gradient",
    "train": "step",
    "training": "step",
    "optimizer": "step",
}


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


# -------------------------------------------------------------------- pictures


@lists_its_arguments
def plot_graph(model: Model, part: str = "model", *, max_nodes: int = 150) -> Picture:
    """Draw the graph of a model, with its loss, with its gradient, or of the whole training step.

    The colors of nodes show the forward pass, the loss, the gradient and the optimizer; a legend explains them. An
    input or a weight is drawn in each stage that reads it. Scalar constants are drawn inside the node that reads them.
    The step is drawn as it is derived; the step that runs is equivalent and has fewer nodes.

    Parameters
    ----------
    model : fitted OrtGradientRegressor or OrtGradientClassifier, onnx.ModelProto, bytes or path
        The model. For an estimator, the trained part is drawn, in operators of ai.onnx; ``fit`` with ``max_iter=0``
        keeps its original weights.
    part : {"model", "loss", "gradient", "step"}
        The model, and what is added: the loss and the penalties, the gradient of each trained weight, the optimizer. An
        ONNX model has no loss and no step; the gradient of its outputs is with respect to its weights and inputs.
    max_nodes : int
        In a larger graph, each chain of nodes in which only the next node reads the result is drawn as one box, and the
        drawing says so.

    Returns
    -------
    Picture
        The drawing; a notebook displays it, and ``save(path)`` writes it as SVG.

    Raises
    ------
    ParameterError
        The part is unknown, or the graph has more than `max_nodes` boxes even with folded chains.
    ArgumentTypeError
        `model` is neither an ONNX model nor an estimator of onnxtrain.
    NotFittedError
        The estimator is not fitted.

    Examples
    --------
    >>> from onnxtrain import OrtGradientRegressor, plot_graph
    >>> line = OrtGradientRegressor(solver="sgd", max_iter=1).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> plot_graph(line)
    <model of OrtGradientRegressor: 2 nodes (2 forward)>
    >>> plot_graph(line, "step").save("step.svg")  # doctest: +SKIP
    """
    if not isinstance(part, str) or part not in PARTS:
        hint = did_you_mean(part, PARTS, _PARTS_OF_OTHERS).partition("Known")[0].rstrip()
        if str(part).endswith(".svg"):
            hint = f"To write a file, use plot_graph(model).save({str(part)!r})."
        elif hasattr(part, "shape"):
            hint = "The graph has no rows: plot_graph(model)."
        given = repr(part) if isinstance(part, str) else type(part).__name__
        raise ParameterError(f"part must be one of {', '.join(map(repr, PARTS))}, got {given}. {hint}".rstrip())
    if not isinstance(max_nodes, int):
        raise ParameterError(f"max_nodes must be an integer number of nodes, got {max_nodes!r:.80}.")
    staged = _of_onnx(model, part) if is_onnx(model) else _of_estimator(model, part)
    boxes = boxes_of(staged.model, staged.stage_of, staged.weights)
    n_nodes, note = sum(len(box.nodes) for box in boxes), ""
    if n_nodes > max_nodes:
        boxes = folded(boxes)
        n_boxes = sum(1 for box in boxes if box.nodes)
        note = f"{n_nodes} nodes, chains are folded: {n_boxes} boxes"
        if n_boxes > max_nodes:
            smaller = "" if part == "model" else " or part='model'"
            raise ParameterError(
                f"The graph has {n_nodes} nodes, {n_boxes} with chains folded, but max_nodes={max_nodes}. Set "
                f"max_nodes={n_boxes}{smaller}, or use a viewer of ONNX files, which is better for graphs of this size."
            )
    what = type(model).__name__ if not is_onnx(model) else "the ONNX model"
    return Picture(f"{part} of {what}", tuple(boxes), note)


def _of_onnx(model: Any, part: str) -> StagedGraph:
    """Return an ONNX model, or its gradient with respect to weights and inputs."""
    if part == "model":
        return _whole(graph.load(model))
    if part != "gradient":
        raise ParameterError(
            f"part={part!r} needs a fitted OrtGradientRegressor or OrtGradientClassifier, because an ONNX model has no "
            "loss and no optimizer. For an ONNX model, set part='model' or part='gradient'."
        )
    before = graph.load(expand_functions(graph.read(model)))
    derived = graph.load(onnx_derivative(model, options=DerivativeOptions.KeepOutputs))
    own = {str(v.name) for v in graph.values_in(before.graph)}
    stages = {
        node: "forward" if own.issuperset(str(y.name) for y in node.outputs) else "gradient" for node in derived.graph
    }
    return StagedGraph(derived, stages, tuple(str(w.name) for w in before.graph.initializers.values()))


def _of_estimator(estimator: OrtGradientEstimator, part: str) -> StagedGraph:
    if isinstance(estimator, type) or not hasattr(type(estimator), "get_trained_onnx"):
        found, remedy = type(estimator).__name__, how_to_export(estimator, None)
        if isinstance(estimator, type):
            found, remedy = f"the class {estimator.__name__}", " Pass a fitted instance."
        elif (place := place_in(estimator)) is not None:
            remedy = f" Pass {place}."
        elif not getattr(estimator, "refit", True):
            remedy = " A search with refit=False keeps no fitted estimator. Set refit=True."
        elif not remedy and hasattr(estimator, "get_params"):
            kind = "OrtGradientClassifier" if is_classifier(estimator) else "OrtGradientRegressor"
            remedy = f" For a scikit-learn estimator, pass {kind}(model, max_iter=0).fit(X, y)."
        raise ArgumentTypeError(
            "plot_graph expects a fitted OrtGradientRegressor or OrtGradientClassifier, or an ONNX model, got "
            f"{found}.{remedy}"
        )
    check_is_fitted(estimator)
    return graph_of_part(estimator, part)


def _whole(model: ir.Model) -> StagedGraph:
    return StagedGraph(model, {})
