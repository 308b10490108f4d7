"""The end of an epoch and the end of them all: losses, the best weights, when to stop, which weights stay."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtrain.training.state import TrainingState, Weights

#: The loss of a set of weights over given rows.
Loss = Callable[[Weights], float]

#: A rise by this share of the loss at the start is one; fits that fine-tune a minimum, or have just begun, are often
#: some percent above it.
RISE = 0.2

#: The same where a rise is part of the way: after a single epoch, or where validation rows choose the best one.
FAR = 10.0

#: A rise by less than this share of what labels in another order add to the loss of the start is none: steps of a fixed
#: length leave a perfect fit. As much takes R² from 1 to 0.998.
_OF_SHUFFLED = 1e-3


@dataclass(frozen=True)
class EpochInfo:
    """The argument of a callback after an epoch.

    Attributes
    ----------
    epoch, step : int
        Number completed.
    loss : float
        The objective, averaged over the epoch.
    validation_loss : float or None
    learning_rate : float
        Of the last step.
    time : float
        Seconds since training began.
    weights : mapping of str to ndarray
        Not to be changed.
    """

    epoch: int
    step: int
    loss: float
    validation_loss: float | None
    learning_rate: float
    time: float
    weights: Mapping[str, np.ndarray] = field(repr=False)


#: A callable that is called after each epoch and returns True to stop.
Listener = Callable[[EpochInfo], Any]


@dataclass(frozen=True)
class EpochEnd:
    """The end of an epoch of steps, or of an iteration of L-BFGS.

    Attributes
    ----------
    state : TrainingState
        Changed in place.
    tol : float
        The decrease of the loss that counts as progress.
    n_iter_no_change : float
        Training stops after more than so many epochs without progress.
    validate : callable, optional
        Returns the loss on the validation set, which decides on progress instead.
    average : bool or float
        As :meth:`~onnxtrain.training.state.TrainingState.take`.
    listeners : tuple of callable
        Each is called with the :class:`EpochInfo`, in order; training stops where one returns True.
    """

    state: TrainingState
    tol: float
    n_iter_no_change: float
    validate: Loss | None = None
    average: bool | float = False
    listeners: tuple[Listener, ...] = ()
    begin: float = field(default_factory=time.perf_counter)

    def take(self, weights: Weights, loss: float, learning_rate: float, *, can_lower_rate: bool = False) -> None:
        """Take the weights after an epoch and its loss into the state, and whether to stop after it.

        With `can_lower_rate` training goes on at a lower learning rate where it would stop.
        """
        state = self.state
        state.take(weights, loss, self.average)
        so_far = state.so_far()
        validation_loss = None if self.validate is None else self.validate(so_far)
        if validation_loss is not None:
            state.validation_loss_curve.append(validation_loss)
        lower = state.watch(loss if validation_loss is None else validation_loss, self.tol)
        if lower and validation_loss is not None:
            state.best_weights = so_far
        state.stopped = state.bad_epochs > self.n_iter_no_change
        if state.stopped and can_lower_rate:
            state.plateaus += 1
            state.bad_epochs, state.stopped = 0, False
        state.learning_rate = learning_rate
        seconds = time.perf_counter() - self.begin
        info = EpochInfo(state.epoch, state.step - 1, loss, validation_loss, learning_rate, seconds, so_far)
        for listener in self.listeners:
            state.stopped |= bool(listener(info))


@dataclass(frozen=True)
class Rise:
    """A loss that ended above its start: before the first epoch, of the last weights, of those that are kept."""

    first: float
    last: float
    kept: float
    which: str

    def __str__(self) -> str:
        return f"The weights {self.which} are kept, with a loss of {self.kept:.3g}."


def last_fall(state: TrainingState, n_epochs: int) -> float:
    """Return the decrease of the monitored loss over the last `n_epochs` of this fit, 0 if it had no more epochs."""
    losses = (state.validation_loss_curve if state.watched else state.loss_curve)[state.first_epoch - state.epoch :]
    if state.epoch - state.first_epoch <= n_epochs:
        return 0.0
    return max(min(losses[:-n_epochs]) - min(losses[-n_epochs:]), 0.0)


def rise_of(state: TrainingState, start: Weights, loss: Loss, shuffled: Loss, tol: float, n_epochs: int) -> Rise | None:
    """Go back to better weights where training left the loss above its start; return by how much, else None.

    `loss` and `shuffled`, the same with the labels in another order, run over all rows, so they are asked only where
    the losses of the epochs leave that open.
    """
    share = FAR if state.watched or n_epochs == 1 else RISE
    if not _may_have_risen(state, tol, share):
        return None
    last, first = loss(state.result()), loss(start)
    if not _is_above(last, first, tol, share) or last - first <= _OF_SHUFFLED * (shuffled(start) - first):
        return None
    return keep_best(state, start, loss)


def _may_have_risen(state: TrainingState, tol: float, share: float) -> bool:
    """Whether the losses of the epochs leave it open that the last weights are worse than the first."""
    losses = state.loss_curve[state.first_epoch :]
    if state.first_loss is None or not losses:
        return False
    best_counts = state.watched and state.best_weights is not None
    last = losses[state.best_epoch - state.first_epoch - 1] if best_counts else losses[-1]
    return _is_above(last, min(state.first_loss, *losses), tol, share)


def _is_above(last: float, first: float, tol: float, share: float) -> bool:
    """Whether a loss is above another by more than noise.

    Steps of a fixed length leave a perfect fit: the rise must be one beside `tol` as well.
    """
    return not last - first <= share * (abs(first) + 100 * tol)


def keep_best(state: TrainingState, start: Weights, loss: Loss) -> Rise:
    """Give the state the best of the weights at the start, of the best epoch, and after the last one.

    Where they are not the last, the memory of the optimizer is forgotten.
    """
    after = f"of epoch {state.epoch}"
    candidates = {"at the start": start, after: state.result()}
    if state.best_weights is not None and state.best_weights is not state.result():
        candidates["of the best epoch"] = state.best_weights
    losses = {which: loss(weights) for which, weights in candidates.items()}
    best = min(losses, key=lambda which: losses[which] if math.isfinite(losses[which]) else math.inf)
    if best != after:
        state.go_back(candidates[best])
    return Rise(losses["at the start"], losses[after], losses[best], best)
