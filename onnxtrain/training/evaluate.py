"""Results of rows for given weights: outputs of the model, the loss, its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtrain.runtime.device import Device
from onnxtrain.runtime.session import cached_session, run_session
from onnxtrain.training.batches import GROUP, TrainingData
from onnxtrain.training.objective import Objective
from onnxtrain.training.step import build_loss_and_gradient, build_row_losses


def run_in_groups(
    session: Any, rows: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray], outputs: Sequence[str]
) -> list[np.ndarray]:
    """Run a model whose weights are inputs; the result for a row does not depend on the number of rows.

    Parameters
    ----------
    session : InferenceSession
    rows : mapping of str to ndarray
        The inputs that have a row for each row of the outputs.
    weights : mapping of str to ndarray
        The other inputs.
    outputs : sequence of str
    """
    (n,) = {len(x) for x in rows.values()}
    if n % GROUP:
        places = np.minimum(np.arange(n + -n % GROUP), n - 1)  # the last row again, up to a whole group
        rows = {name: x[places] for name, x in rows.items()}
    return [y[:n] for y in run_session(session, {**rows, **weights}, outputs)]


def row_losses(
    objective: Objective, weights: Mapping[str, np.ndarray], data: TrainingData, device: Device, n_threads: int
) -> np.ndarray:
    """Return the loss of each row, shape (n,), neither weighted nor penalized."""
    g = build_row_losses(objective)
    session = cached_session(g.onnx, device, n_threads)
    known, found = _known(session, {**data.constants, **weights}), []
    for piece in data.pieces(device):
        feeds = {g.features[name]: x for name, x in piece.features.items() if name in g.features}
        feeds[g.inputs["label"]] = piece.label
        found += run_session(session, {**feeds, **known})
    return np.concatenate(found)[:, 0]


def mean_loss(
    objective: Objective, weights: Mapping[str, np.ndarray], data: TrainingData, device: Device, n_threads: int
) -> float:
    """Return the weighted mean of the losses of the rows, without penalties."""
    losses = row_losses(objective, weights, data, device, n_threads).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite is an answer
        if data.weight is None:
            return float(losses.mean())
        (rows,) = data.batches(len(losses))  # those of the losses, in their order
        return float(np.average(losses, weights=data.weight[rows, 0]))


def loss_and_gradient(
    objective: Objective,
    weights: Mapping[str, np.ndarray],
    data: TrainingData,
    device: Device,
    n_threads: int,
    builder: str = "builtin",
) -> tuple[float, list[np.ndarray]]:
    """Return the weighted mean of the losses of the rows and its gradient for each weight, in float64."""
    g = build_loss_and_gradient(objective, builder)
    session = cached_session(g.onnx, device, n_threads)
    known = _known(session, {**data.constants, **weights})
    loss, dws = 0.0, [np.zeros(weights[name].shape) for name in objective.weights]
    for piece in data.pieces(device):
        feeds = {g.features[name]: x for name, x in piece.features.items()}
        feeds[g.inputs["label"]] = piece.label
        weight = piece.weight
        feeds[g.inputs["weight"]] = np.ones((piece.n_rows, 1), g.dtype.numpy()) if weight is None else weight
        value, *gradients = run_session(session, {**feeds, **known})
        loss += float(value)
        for dw, part in zip(dws, gradients, strict=True):
            dw += part
    return loss / data.total_weight, [dw / data.total_weight for dw in dws]


def _known(session, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values a session reads: a weight that only the gradient needs may be missing."""
    names = {i.name for i in session.get_inputs()}
    return {name: value for name, value in values.items() if name in names}
