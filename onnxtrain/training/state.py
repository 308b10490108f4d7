"""The state of training between epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Weights = Mapping[str, np.ndarray]


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
    loss_curve, validation_loss_curve : list of float
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
    watched : bool
        Whether there is a validation set.
    first_step, first_epoch : int
        The step at which the schedule begins; the number of epochs before this fit.
    slots_step : int
        The step at which the memory of the optimizer begins.
    learning_rate : float
        Of the last step.
    stopped : bool
        Whether this fit has come to its end before the last epoch.
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
    best_loss: float = np.inf
    best_epoch: int = 0
    best_weights: Weights | None = None
    best_between: float = np.inf
    first_loss: float | None = None
    bad_epochs: int = 0
    plateaus: int = 0
    watched: bool = False
    first_step: int = 1
    first_epoch: int = 0
    slots_step: int = 1
    learning_rate: float = 0.0
    stopped: bool = False
    average: Weights | None = None
    averaged: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickling; keys are strings, as in JSON."""
        return vars(self) | {"slots": [(weight, slot, array) for (weight, slot), array in self.slots.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, slots={(weight, slot): array for weight, slot, array in state["slots"]})

    def begin(self, *, watched: bool, one_epoch: bool = False) -> None:
        """Begin a fit that continues from this state; with `one_epoch` the schedule of the learning rate continues."""
        if not one_epoch:
            self.first_step = self.step
        self.first_epoch, self.stopped, self.watched = self.epoch, False, watched
        self.first_loss, self.best_weights, self.best_between = None, None, np.inf
        if watched:
            # the best epoch of this fit: an earlier one had another validation set
            self.best_loss, self.bad_epochs = np.inf, 0

    def take(self, weights: Weights, loss: float, average: float | bool) -> None:
        """Record the weights after an epoch and its loss."""
        if not self.watched and self.epoch > self.first_epoch:
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
        if self.watched:
            self.best_weights = weights

    def result(self) -> Weights:
        """Return the resulting weights: those of the best epoch if there is a validation set."""
        return self.best_weights if self.watched and self.best_weights is not None else self.so_far()

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

    def watch(self, loss: float, tol: float) -> bool:
        """Record the monitored loss after an epoch; return whether it is the lowest so far."""
        self.bad_epochs = self.bad_epochs + 1 if loss > self.best_loss - tol else 0
        lower = loss < self.best_loss
        if lower:
            self.best_loss, self.best_epoch = loss, self.epoch
        return lower
