"""Warnings at the start of a fit whose loss does not suit the predictions of the model, or the targets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.cache import Cache
from onnxtrain.errors import warn
from onnxtrain.estimators.output_kind import few_rows
from onnxtrain.estimators.protocols import Features
from onnxtrain.estimators.reports import is_part_of_more
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.losses import Prediction, find_loss
from onnxtrain.losses.link import OF_CLASSES, Link, scores_behind
from onnxtrain.losses.ranges import columns, range_of
from onnxtrain.registry import is_of_package
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import TrainingData, dense
from onnxtrain.training.evaluate import row_losses

if TYPE_CHECKING:
    from onnxtrain.estimators.base import OrtGradientEstimator


def warn_of_means(model: TrainedModel, X: Features) -> None:
    """Warn of rows whose prediction cannot be the mean that the loss takes it for: it is zero or negative."""
    objective, read = model.objective, model.source.model
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies)
    if loss.prediction is not Prediction.LOG_MEAN or read.link is Link.EXP:
        return
    feeds = model.form.feeds(few_rows(X, read), read)
    feeds = {name: dense(x, read.features[name]) for name, x in feeds.items()}
    means = model.run_once(feeds, [read.output])[read.output]
    n_rows = int((means.reshape(len(means), -1) <= 0).any(axis=1).sum())
    if n_rows:
        warn(
            f"loss={objective.loss!r} interprets the output {read.output!r} as a mean, but it is zero or negative in "
            f"{n_rows} of {len(means)} rows, which have no gradient. Use a model with positive predictions: "
            "PoissonRegressor, GammaRegressor, TweedieRegressor, or a network that ends in Exp or Softplus."
        )


def warn_of_signs(model: TrainedModel, classes: np.ndarray) -> None:
    """Warn that a loss of the user's own gets the labels -1 and 1, with which it perhaps multiplies, as 0 and 1."""
    objective = model.objective
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=True).function
    if not is_of_package(loss) and classes.tolist() == [-1, 1]:
        warn(
            f"The loss {getattr(loss, '__name__', repr(loss))!r} gets the labels -1 and 1 as 0 and 1, the index of the "
            "class. If it multiplies by them, compute 2 * y_true - 1 first."
        )


def warn_of_two_links(estimator: OrtGradientEstimator, model: TrainedModel) -> None:
    """Warn of probabilities that the user declares as scores, from which the loss computes probabilities again."""
    read = model.source.model
    if estimator.output_is != "scores" or model.source.original is None or not estimator.max_iter:
        return
    onx = graph.reload(read.graph())
    output = next((v for node in onx.graph for v in node.outputs if v.name == read.output), None)
    if output is not None and scores_behind(output, graph.builder(onx).op, read.class_axis).link in OF_CLASSES:
        warn(
            f"output_is='scores', but the output {read.output!r} of the model contains probabilities, from which the "
            "loss would compute probabilities once more. Leave output_is out."
        )


#: The share of the range of the output, or of the spread of y, by which targets may lie outside.
_OUTSIDE = 0.1


def warn_of_range(model: TrainedModel, y: np.ndarray) -> None:
    """Warn of targets outside the range of the last activation of an ONNX model, such as Sigmoid."""
    if model.source.original is None or model.objective.classifies or is_part_of_more():
        return
    onx = graph.reload(model.objective.model)  # its weights are inputs, and may have any values
    output = next(v for node in onx.graph for v in node.outputs if v.name == model.source.model.output)
    known = range_of(output)
    bounded = math.isfinite(known.high - known.low)
    tolerance = _OUTSIDE * (known.high - known.low if bounded else float(np.nanstd(y)))
    outside = (y < known.low - tolerance) | (y > known.high + tolerance)
    if outside.any():
        scaled = "MinMaxScaler().fit_transform(y.reshape(-1, 1))" if bounded else "y - y.min()"
        warn(
            f"y is from {np.nanmin(y):.3g} to {np.nanmax(y):.3g}, but the output {output.name!r} of the model is "
            f"always from {known.low:.3g} to {known.high:.3g}, so it cannot predict {outside.mean():.0%} of them. "
            f"Pass a model without its last activation, or scaled targets, such as {scaled}."
        )


#: Two distances of predictions from the labels, as multiples of their size. A loss that falls in proportion to the
#: distance, or faster, is lower by the ratio of the two; a loss with a logarithm is not.
_FAR = (1e2, 1e4)

#: The least ratio of the losses at these distances.
_RATIO = 50.0


def warn_of_no_minimum(model: TrainedModel, label: np.ndarray) -> None:
    """Warn of a loss of the user's own that falls without end as the predictions grow, or fall.

    Nothing is said if the range of the model's output, or of some of its columns, bounds the loss.
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


#: Pairs of scores at which a loss of the user's own is compared: below 0, between 0 and 1, above 1. A ramp loss, which
#: is constant beyond -1 and 1, varies at the first pair.
_SCORES = np.array([-0.8, -0.3, 0.3, 0.7, 1.3, 1.8])


def warn_of_probabilities(model: TrainedModel) -> None:
    """Warn of a user's loss of two classes that takes the score for a probability."""
    objective = model.objective
    loss = find_loss(objective.loss, dict(objective.loss_params), classifies=objective.classifies).function
    if not objective.classifies or is_of_package(loss) or model.positional or is_part_of_more():
        return
    if _width_if_unbounded(model) != 1:
        return
    name = getattr(loss, "__name__", repr(loss))
    label, scores = np.repeat([0, 1], len(_SCORES)).reshape(-1, 1), np.tile(_SCORES, 2).reshape(-1, 1)
    losses = _losses_of(model, label, scores).reshape(2, -1)
    below, between, above = np.split(losses, 3, axis=1)
    undefined = bool(np.isnan(below).any() or np.isnan(above).any())
    clipped = not np.diff(below).any() and not np.diff(above).any()
    reason = "it changes only for values from 0 to 1" if undefined or clipped else ""
    first, second = np.diff(losses)  # from one score to the next, for each class
    if first[0] < 0 < min(first[2:]) and max(second[:3]) < 0 < second[4]:
        reason = "it is lowest near 0 for the first class and near 1 for the second"
    if np.isfinite(between).all() and np.diff(between).any() and reason:
        warn(
            f"The loss {name!r} takes y_pred for a probability, because {reason}, but y_pred is the score, any number, "
            "whose sign decides. Compute the probability first, and keep it from 0 and 1, because the logarithm of 0 "
            "is infinite: numpy.clip(op.Sigmoid(y_pred), 1e-7, 1 - 1e-7)."
        )


#: Scores of the right class at which every likelihood falls, and a hinge or a squared loss does not.
_CERTAIN = np.array([[1.5], [2.5]])

#: Whether the loss of an objective may be a likelihood.
_LIKELY: Cache[bool] = Cache("likelihoods")


def warn_of_no_probabilities(model: TrainedModel) -> None:
    """Warn of a user's loss of two classes that is no likelihood, such as a hinge loss: it defines no probabilities."""
    objective, loss = model.objective, model.objective.loss
    if not callable(loss) or is_of_package(loss) or objective.multilabel or model.positional:
        return
    likely = _LIKELY.find(objective)
    if likely is None:
        likely = _LIKELY.keep(objective, _width_if_unbounded(model) != 1 or _falls(model))
    if not likely:
        warn(
            f"The loss {getattr(loss, '__name__', repr(loss))!r} defines no probabilities: it does not fall as the "
            "score of the right class grows from 1.5 to 2.5. predict_proba returns the Sigmoid of the score. Wrap the "
            "estimator in CalibratedClassifierCV, or use decision_function."
        )


def _falls(model: TrainedModel) -> bool:
    """Whether a loss of two classes falls as the score of the right class grows, for one of the classes at least."""
    scores = np.concatenate([-_CERTAIN, _CERTAIN])
    near, far = _losses_of(model, (scores > 0).astype(np.int64), scores).reshape(2, 2).T
    return bool((far < near).any())


def _width_if_unbounded(model: TrainedModel) -> int:
    """Return the number of outputs; 0 if their range, or a bound of some, is known, or if there are several axes."""
    onx = graph.reload(model.source.model.graph())
    output = next(v for node in onx.graph for v in node.outputs if v.name == model.scores)
    known = range_of(output)
    if any(np.isfinite([part.low, part.high]).any() for part in map(range_of, columns(output))):
        return 0  # such as the mixture of a density network: log probabilities, means, deviations
    width = output.shape[1] if output.shape is not None and len(output.shape) == 2 else None
    return width if isinstance(width, int) and not np.isfinite([known.low, known.high]).all() else 0


def _mean_loss(model: TrainedModel, label: np.ndarray, far: float, width: int) -> float:
    """Return the mean loss of predictions that are all the same large number."""
    return float(np.mean(_losses_of(model, label, np.full((len(label), width), far))))


def _losses_of(model: TrainedModel, label: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the loss of each row for given predictions."""
    predictions = predictions.astype(model.dtype)
    kind = "scores" if model.objective.classifies else None
    identity = _identity(predictions.shape[1], model.dtype)
    objective = replace(model.objective, model=identity, output="Y", weights=(), constants=(), output_is=kind)
    data = TrainingData({"X": predictions}, label, None, {"X": predictions.dtype})
    with np.errstate(all="ignore"):
        return row_losses(objective, {}, data, Place(find_device("cpu"), 1)).ravel()


def _identity(width: int, dtype: str) -> bytes:
    """Return a model whose output is its input."""
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    values = [onnx.helper.make_tensor_value_info(name, int(kind), ["n", width]) for name in ("X", "Y")]
    nodes = [onnx.helper.make_node("Identity", ["X"], ["Y"])]
    made = onnx.helper.make_graph(nodes, "predictions", values[:1], values[1:])
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()
