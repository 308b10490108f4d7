"""What training remembers from one epoch to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Weights = Mapping[str, np.ndarray]


@dataclass
class TrainingState:
    """Everything training goes on from: arrays and numbers only, so that it can be kept.

    Attributes
    ----------
    weights : mapping of str to ndarray
        After the last epoch that ended with finite numbers.
    slots : mapping of (weight, slot) to ndarray
        The memory of the optimizer.
    step : int
        The number of the next step, from 1.
    loss_curve, validation_loss_curve : list of float
    best_loss : float
        The lowest of the loss that is watched: validation where there is one.
    best_epoch : int
    best_weights : mapping of str to ndarray, optional
        Kept where there is a validation set.
    bad_epochs : int
        Epochs in a row that did not lower ``best_loss`` by ``tol``.
    plateaus : int
        How often the loss stood still and the learning rate was lowered.
    watched : bool
        Whether there is a validation set.
    first_step, first_epoch : int
        The number of the first step of this fit; how many epochs there were before it.
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
    bad_epochs: int = 0
    plateaus: int = 0
    watched: bool = False
    first_step: int = 1
    first_epoch: int = 0
    stopped: bool = False
    average: Weights | None = None
    averaged: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return what is kept; keys are strings, as in any JSON."""
        return vars(self) | {"slots": [(weight, slot, array) for (weight, slot), array in self.slots.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, slots={(weight, slot): array for weight, slot, array in state["slots"]})

    def begin(self, *, watched: bool) -> None:
        """Begin a fit that goes on from here."""
        self.first_step, self.first_epoch, self.stopped = self.step, self.epoch, False
        self.watched = watched
        if watched:
            # the best epoch of this fit: an earlier one had other rows to watch
            self.best_loss, self.bad_epochs, self.best_weights = np.inf, 0, None

    def result(self) -> Weights:
        """Return the weights that training has come to: those of the best epoch where there is a validation set."""
        return self.best_weights if self.watched and self.best_weights is not None else self.so_far()

    def so_far(self) -> Weights:
        """Return the weights after the last epoch, averaged where they are."""
        return self.weights if self.average is None else self.average

    def take_average(self, average: float | bool) -> None:
        r"""Take the weights after an epoch into their mean, :math:`\bar w \leftarrow \bar w + a (w - \bar w)`.

        :math:`a = 4 / (t + 3)` after t epochs where `average` is True: later epochs count
        more, the first one soon does not. A number d is :math:`a = 1 - d`. The first mean is w.

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
        """Take note of the loss that is watched after an epoch; return whether it is the lowest so far."""
        self.bad_epochs = self.bad_epochs + 1 if loss > self.best_loss - tol else 0
        lower = loss < self.best_loss
        if lower:
            self.best_loss, self.best_epoch = loss, self.epoch
        return lower
