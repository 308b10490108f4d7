"""Drawings of a model and of the graphs that train it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.drawing import Picture, boxes_of, folded
from onnxtrain.errors import ArgumentTypeError, ParameterError
from onnxtrain.estimators.graphs import PARTS, graph_of_part
from onnxtrain.estimators.protocols import Model, is_onnx
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative
from onnxtrain.registry import did_you_mean
from onnxtrain.training.stages import StagedGraph


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
    if part not in PARTS:
        hint = did_you_mean(part, PARTS)
        raise ParameterError(f"part must be one of {', '.join(map(repr, PARTS))}, got {part!r}. {hint}")
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


def _of_estimator(estimator: Any, part: str) -> StagedGraph:
    if not hasattr(type(estimator), "get_trained_onnx"):
        classifies = hasattr(estimator, "get_params") and is_classifier(estimator)
        kind = "OrtGradientClassifier" if classifies else "OrtGradientRegressor"
        raise ArgumentTypeError(
            "plot_graph expects a fitted OrtGradientRegressor or OrtGradientClassifier, or an ONNX model, got "
            f"{type(estimator).__name__}. For a scikit-learn estimator, pass {kind}(model, max_iter=0).fit(X, y)."
        )
    check_is_fitted(estimator)
    return graph_of_part(estimator, part)


def _whole(model: ir.Model) -> StagedGraph:
    return StagedGraph(model, {})
