"""The training step as it is derived, with the stage of each of its nodes, for drawings.

The step that runs is equivalent with fewer nodes: small weights are packed, sums are products, rows are gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.errors import OptimizerError
from onnxtrain.grad_helper import gradients
from onnxtrain.optim import Proximal
from onnxtrain.training.objective import Objective, ObjectiveGraph
from onnxtrain.training.packing import alone
from onnxtrain.training.settings import Settings
from onnxtrain.training.step import columns, kind_of, move_weights, objective_of_batch, scalar_names

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
