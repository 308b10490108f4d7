"""A loss of the user's own that has no minimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.errors import warn
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses import find_loss
from onnxtrain.losses.ranges import range_of
from onnxtrain.registry import is_of_package
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import TrainingData
from onnxtrain.training.evaluate import row_losses

#: Two distances of predictions from the labels, as multiples of their size. A loss that falls in proportion to the
#: distance, or faster, is lower by the ratio of the two; a loss with a logarithm is not.
_FAR = (1e2, 1e4)

#: The least ratio of the losses at these distances.
_RATIO = 50.0


def warn_of_no_minimum(model: TrainedModel, label: np.ndarray) -> None:
    """Warn of a loss of the user's own that falls without end as the predictions grow, or fall.

    Nothing is said if the range of the model's output bounds the loss.
    """
    objective = model.objective
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies).function
    if is_of_package(loss) or model.positional or is_part_of_more():
        return
    width = _width_if_unbounded(model)
    if not width:
        return
    size = 1 + float(np.abs(label).max(initial=0))
    losses = {sign: [_mean_loss(model, label, sign * far * size, width) for far in _FAR] for sign in (-1.0, 1.0)}
    for sign, (near, far) in losses.items():
        if near < 0 and far < _RATIO * near:
            grow = "grow" if sign > 0 else "fall"
            name = getattr(loss, "__name__", repr(loss))
            return warn(
                f"The loss {name!r} has no minimum: it is {near:.3g} and then {far:.3g} as the predictions {grow}, so "
                f"training makes them {grow} without end. Return a loss that is lowest for the best prediction, for "
                "example abs(y_true - y_pred)."
            )


def _width_if_unbounded(model: TrainedModel) -> int:
    """Return the number of outputs; 0 if their range is known, or if there are several axes."""
    onx = graph.reload(model.source.model.graph())
    output = next(v for node in onx.graph for v in node.outputs if v.name == model.scores)
    known = range_of(output)
    width = output.shape[1] if output.shape is not None and len(output.shape) == 2 else None
    return width if isinstance(width, int) and not np.isfinite([known.low, known.high]).all() else 0


def _mean_loss(model: TrainedModel, label: np.ndarray, far: float, width: int) -> float:
    """Return the mean loss of predictions that are all the same large number."""
    predictions = np.full((len(label), width), far, model.dtype)
    kind = "scores" if model.objective.classifies else None
    identity = _identity(width, model.dtype)
    objective = replace(model.objective, model=identity, output="Y", weights=(), constants=(), output_is=kind)
    data = TrainingData({"X": predictions}, label, None, {"X": predictions.dtype})
    with np.errstate(all="ignore"):
        return float(np.mean(row_losses(objective, {}, data, Place(find_device("cpu"), 1))))


def _identity(width: int, dtype: str) -> bytes:
    """Return a model whose output is its input."""
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    values = [onnx.helper.make_tensor_value_info(name, int(kind), ["n", width]) for name in ("X", "Y")]
    nodes = [onnx.helper.make_node("Identity", ["X"], ["Y"])]
    made = onnx.helper.make_graph(nodes, "predictions", values[:1], values[1:])
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()
