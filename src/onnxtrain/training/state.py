"""The state of training, the end of an epoch, which moves it on, and which weights stay: the best, or the last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Weights = Mapping[str, np.ndarray]

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


@dataclass
class TrainingState:
    """The complete state of training: arrays and scalars only, so that it can be saved.

    Attributes
    ----------
    weights : mapping of str to ndarray
        After the last epoch whose loss and weights were finite.
    slots : mapping of (weight, slot) to ndarray
        The memory of the optimizer.
    step : int
        The next step, counted from 1.
    loss_curve, validation_loss_curve, rates : list of float
        For each epoch; the rate is that of its last step.
    best_loss : float
        The lowest monitored loss: on the validation set if present, else the training loss.
    best_epoch : int
    best_weights : mapping of str to ndarray, optional
        Those with the lowest loss on the validation set; without one, those between the two epochs in a row
        of this fit whose larger loss is the lowest: the loss of an epoch is a mean over the way to its weights.
    best_between : float
        That larger loss.
    first_loss : float, optional
        The objective on the first batch of this fit.
    bad_epochs : int
        Epochs in a row that did not lower ``best_loss`` by ``tol``.
    plateaus : int
        How often the loss reached a plateau and the learning rate was lowered.
    validated, weighted : bool
        Whether there is a validation set, and sample weights.
    first_step, first_epoch : int
        The step at which the schedule begins; the number of epochs before this fit.
    slots_step : int
        The step at which the memory of the optimizer begins.
    learning_rate : float
        Of the last step.
    stopped : bool
        Whether this fit has come to its end before the last epoch.
    ending : str
        How the last fit ended, and why; empty before its end.
    average : mapping of str to ndarray, optional
        The mean of the weights after each epoch, where one is kept.
    averaged : int
        Of how many epochs.
    """

    weights: Weights
    slots: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict)
    step: int = 1
    loss_curve: list[float] = field(default_factory=list)
    validation_loss_curve: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    best_loss: float = np.inf
    best_epoch: int = 0
    best_weights: Weights | None = None
    best_between: float = np.inf
    first_loss: float | None = None
    bad_epochs: int = 0
    plateaus: int = 0
    validated: bool = False
    weighted: bool = False
    first_step: int = 1
    first_epoch: int = 0
    slots_step: int = 1
    learning_rate: float = 0.0
    stopped: bool = False
    ending: str = ""
    average: Weights | None = None
    averaged: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickling; keys are strings, as in JSON."""
        return vars(self) | {"slots": [(weight, slot, array) for (weight, slot), array in self.slots.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # what a version that wrote a pickle did not know is as at the start: it has no value of the class
        vars(self).update(vars(TrainingState({})))
        vars(self).update(state, slots={(weight, slot): array for weight, slot, array in state["slots"]})

    def begin(self, *, validated: bool, weighted: bool = False, one_epoch: bool = False) -> None:
        """Begin a fit that continues from this state; with `one_epoch` the schedule of the learning rate continues."""
        if not one_epoch:
            self.first_step = self.step
        self.first_epoch, self.stopped, self.validated, self.weighted = self.epoch, False, validated, weighted
        self.first_loss, self.best_weights, self.best_between, self.ending = None, None, np.inf, ""
        if validated:
            # the best epoch of this fit: an earlier one had another validation set
            self.best_loss, self.bad_epochs = np.inf, 0

    def take(self, weights: Weights, loss: float, average: float | bool) -> None:
        """Record the weights after an epoch and its loss."""
        if not self.validated and self.epoch > self.first_epoch:
            between = max(self.loss_curve[-1], loss)
            if between < self.best_between:
                self.best_weights, self.best_between = self.so_far(), between
        self.weights = weights
        self.loss_curve.append(loss)
        self.take_average(average)

    def go_back(self, weights: Weights) -> None:
        """Restore earlier weights, and reset the memory of the optimizer."""
        self.weights, self.slots, self.slots_step = weights, {}, self.step
        self.average, self.averaged = None, 0
        if self.validated:
            self.best_weights = weights

    def result(self) -> Weights:
        """Return the resulting weights: those of the best epoch if there is a validation set."""
        return self.best_weights if self.validated and self.best_weights is not None else self.so_far()

    def so_far(self) -> Weights:
        """Return the weights after the last epoch, averaged where they are."""
        return self.weights if self.average is None else self.average

    def take_average(self, average: float | bool) -> None:
        r"""Take the weights after an epoch into their mean, :math:`\bar w \leftarrow \bar w + a (w - \bar w)`.

        :math:`a = 4 / (t + 3)` after t epochs where `average` is True: later epochs count
        more, the first one is soon forgotten. A float d is :math:`a = 1 - d`. The first mean is w.

        References
        ----------
        Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization", ICML 2013.
        """
        if average is False:
            self.average, self.averaged = None, 0
            return
        self.averaged += 1
        share = 4 / (self.averaged + 3) if average is True else 1 - average
        old = self.average or self.weights
        self.average = {name: (old[name] + share * (w - old[name])).astype(w.dtype) for name, w in self.weights.items()}

    @property
    def epoch(self) -> int:
        """How many epochs were run."""
        return len(self.loss_curve)

    def monitor(self, loss: float, validation_loss: float | None, tol: float) -> None:
        """Record the losses after an epoch; keep its weights if their loss on the validation set is the lowest."""
        if validation_loss is not None:
            self.validation_loss_curve.append(validation_loss)
        monitored = loss if validation_loss is None else validation_loss
        self.bad_epochs = self.bad_epochs + 1 if monitored > self.best_loss - tol else 0
        if monitored < self.best_loss:
            self.best_loss, self.best_epoch = monitored, self.epoch
            if validation_loss is not None:
                self.best_weights = self.so_far()


@dataclass(frozen=True)
class Pace:
    """How fast an epoch was whose rows are read or put together batch by batch.

    Attributes
    ----------
    rows_per_second : float
    waited : float
        The share of the time in which steps waited for rows.
    """

    rows_per_second: float
    waited: float


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
    pace : Pace or None
        Of rows in parts; None where a step takes its rows from memory by itself.
    """

    epoch: int
    step: int
    loss: float
    validation_loss: float | None
    learning_rate: float
    time: float
    weights: Mapping[str, np.ndarray] = field(repr=False)
    pace: Pace | None = None


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

    def take(
        self,
        weights: Weights,
        loss: float,
        learning_rate: float,
        *,
        can_lower_rate: bool = False,
        pace: Pace | None = None,
    ) -> None:
        """Take the weights after an epoch and its loss into the state, and whether to stop after it.

        With `can_lower_rate` training goes on at a lower learning rate where it would stop.
        """
        state = self.state
        state.take(weights, loss, self.average)
        so_far = state.so_far()
        validation_loss = None if self.validate is None else self.validate(so_far)
        state.monitor(loss, validation_loss, self.tol)
        state.stopped = state.bad_epochs > self.n_iter_no_change
        if state.stopped and can_lower_rate:
            state.plateaus += 1
            state.bad_epochs, state.stopped = 0, False
        state.learning_rate = learning_rate
        state.rates.append(learning_rate)
        if not self.listeners:  # an epoch of few rows takes little more than to say what it was
            return
        seconds = time.perf_counter() - self.begin
        info = EpochInfo(state.epoch, state.step - 1, loss, validation_loss, learning_rate, seconds, so_far, pace)
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
    losses = (state.validation_loss_curve if state.validated else state.loss_curve)[state.first_epoch - state.epoch :]
    if state.epoch - state.first_epoch <= n_epochs:
        return 0.0
    return max(min(losses[:-n_epochs]) - min(losses[-n_epochs:]), 0.0)


def rise_of(state: TrainingState, start: Weights, loss: Loss, shuffled: Loss, tol: float, n_epochs: int) -> Rise | None:
    """Go back to better weights where training left the loss above its start; return by how much, else None.

    `loss` and `shuffled`, the same with the labels in another order, run over all rows, so they are asked only where
    the losses of the epochs leave that open. What labels in another order add is the scale of losses: `tol` is noise
    only where it is below, which it is not of targets in other units.
    """
    share = FAR if state.validated or n_epochs == 1 else RISE
    if not _may_have_risen(state, share):
        return None
    last, first = loss(state.result()), loss(start)
    if last <= first:
        return None
    scale = shuffled(start) - first
    noise = min(100 * tol, scale / 100) if scale > 0 else 100 * tol
    if not _is_above(last, first, share, noise) or last - first <= _OF_SHUFFLED * scale:
        return None
    return keep_best(state, start, loss)


def _may_have_risen(state: TrainingState, share: float) -> bool:
    """Whether the losses of the epochs leave it open that the last weights are worse than the first."""
    losses = state.loss_curve[state.first_epoch :]
    if state.first_loss is None or not losses:
        return False
    best_counts = state.validated and state.best_weights is not None
    last = losses[state.best_epoch - state.first_epoch - 1] if best_counts else losses[-1]
    return _is_above(last, min(state.first_loss, *losses), share)


def _is_above(last: float, first: float, share: float, noise: float = 0.0) -> bool:
    """Whether a loss is above another by more than a share of that and of noise.

    Steps of a fixed length leave a perfect fit: the rise must be one beside the noise as well.
    """
    return not last - first <= share * (abs(first) + noise)


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
