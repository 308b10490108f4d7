"""The state of training, its update at the end of an epoch, and the choice of the best or last weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxtrain.attributes import HasNoItems

Weights = Mapping[str, np.ndarray]

#: A function that returns the loss of given weights.
Loss = Callable[[Weights], float]

#: The least rise after which better weights are kept, relative to the initial loss; fits that fine-tune a minimum, or
#: have just begun, often end some percent above the initial loss.
RISE = 0.2

#: The same if a rise may be temporary: after a single epoch, or if the validation set chooses the best epoch.
FAR = 10.0

#: The same, relative to the increase of the initial loss by permuting the labels, because steps of a fixed length move
#: away from a perfect fit. At this value R² falls from 1 to 0.998.
_OF_SHUFFLED = 1e-3

#: The least rise that is reported, relative to the initial loss, and to its increase by permuting the labels, unless a
#: search or a loop of fits would repeat it. Rounding in float32 is less.
_NOTICED = 1e-5

#: A fall of the losses of the epochs, relative to that of the first batch or epoch, that excludes a rise. The loss of
#: the first batch may be half as large again as that of all rows, and the first steps may raise that of the epoch.
_FALLEN = 0.5


@dataclass
class TrainingState:
    """The complete state of training; it contains only arrays and scalars, so that it can be saved.

    Attributes
    ----------
    weights : mapping of str to ndarray
        The weights after the last epoch whose loss and weights were finite.
    slots : mapping of (weight, slot) to ndarray
        The optimizer state.
    step : int
        The number of the next step, from 1.
    loss_curve, validation_loss_curve, rates : list of float
        The values of each epoch; the rate is that of the last step of the epoch.
    best_loss : float
        The lowest monitored loss: the validation loss if there is a validation set, else the training loss.
    best_epoch : int
    best_weights : mapping of str to ndarray, optional
        The weights with the lowest validation loss. Without a validation set, the weights between two consecutive
        epochs of this fit, chosen so that the larger loss of the two is the lowest; the loss of an epoch is a mean over
        its steps, not the loss of its final weights.
    best_between : float
        The larger loss of these two epochs.
    first_loss : float, optional
        The objective on the first batch of this fit.
    bad_epochs : int
        The number of consecutive epochs that did not lower ``best_loss`` by ``tol``.
    plateaus : int
        How often the learning rate was lowered after the loss reached a plateau.
    validated, weighted : bool
        Whether there is a validation set, and sample weights.
    first_step, first_epoch : int
        The step at which the schedule begins; the number of epochs before this fit.
    slots_step : int
        The step at which the optimizer state was initialized.
    learning_rate : float
        The learning rate of the last step.
    stopped : bool
        Whether this fit stopped before the last epoch.
    ending : str
        How the last fit ended, and why; empty during a fit.
    average : mapping of str to ndarray, optional
        The mean of the weights after each epoch, if averaging is on.
    averaged : int
        The number of epochs in this mean.
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
        """Return the attributes for pickling, with string keys only, as in JSON."""
        return vars(self) | {"slots": [(weight, slot, array) for (weight, slot), array in self.slots.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # attributes unknown to the version that wrote the pickle get their initial values
        vars(self).update(vars(TrainingState({})))
        vars(self).update(state, slots={(weight, slot): array for weight, slot, array in state["slots"]})

    def begin(self, *, validated: bool, weighted: bool = False, one_epoch: bool = False) -> None:
        """Begin a fit that continues from this state; with `one_epoch`, the schedule continues as well."""
        if not one_epoch:
            self.first_step = self.step
        self.first_epoch, self.stopped, self.validated, self.weighted = self.epoch, False, validated, weighted
        self.first_loss, self.best_weights, self.best_between, self.ending = None, None, np.inf, ""
        if validated:
            # an earlier fit may have had another validation set
            self.best_loss, self.bad_epochs = np.inf, 0

    def take(self, weights: Weights, loss: float, average: float | bool) -> None:
        """Record the weights and the loss of an epoch."""
        if not self.validated and self.epoch > self.first_epoch:
            between = max(self.loss_curve[-1], loss)
            if between < self.best_between:
                self.best_weights, self.best_between = self.so_far(), between
        self.weights = weights
        self.loss_curve.append(loss)
        self.take_average(average)

    def go_back(self, weights: Weights) -> None:
        """Restore earlier weights, and reset the optimizer state."""
        self.weights, self.slots, self.slots_step = weights, {}, self.step
        self.average, self.averaged = None, 0
        if self.validated:
            self.best_weights = weights

    def result(self) -> Weights:
        """Return the resulting weights: those of the best epoch with a validation set, else the last ones."""
        return self.best_weights if self.validated and self.best_weights is not None else self.so_far()

    def so_far(self) -> Weights:
        """Return the weights after the last epoch, or their mean if averaging is on."""
        return self.weights if self.average is None else self.average

    def take_average(self, average: float | bool) -> None:
        r"""Update the mean of the weights, :math:`\bar w \leftarrow \bar w + a (w - \bar w)`.

        After t epochs, :math:`a = 4 / (t + 3)` if `average` is True, so that later epochs count more and the first is
        soon forgotten. For a float d, :math:`a = 1 - d`. The first mean is w.

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
        """The number of epochs that were run."""
        return len(self.loss_curve)

    def monitor(self, loss: float, validation_loss: float | None, tol: float) -> None:
        """Record the losses of an epoch; keep its weights if the validation loss is the lowest."""
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
    """The speed of an epoch whose rows are read or gathered batch by batch.

    Attributes
    ----------
    rows_per_second : float
    waited : float
        The fraction of the time in which steps waited for rows.
    """

    rows_per_second: float
    waited: float


@dataclass(frozen=True)
class EpochInfo(HasNoItems):
    """The argument of a callback after each epoch.

    Attributes
    ----------
    epoch, step : int
        The number of completed epochs and steps.
    loss : float
        The objective, averaged over the epoch.
    validation_loss : float or None
    learning_rate : float
        The learning rate of the last step.
    time : float
        Seconds since training began.
    weights : mapping of str to ndarray
        The weights, which must not be changed.
    pace : Pace or None
        The speed, for rows in parts; None if a step gathers its rows from memory.
    """

    epoch: int
    step: int
    loss: float
    validation_loss: float | None
    learning_rate: float
    time: float
    weights: Mapping[str, np.ndarray] = field(repr=False)
    pace: Pace | None = None

    _remedies = MappingProxyType(
        {
            "lr": "Use learning_rate.",
            **dict.fromkeys(("estimator", "model"), "Use the estimator itself, or the argument weights."),
            "train_loss": "Use loss.",
            "training_loss": "Use loss.",
            "val_loss": "Use validation_loss.",
        }
    )


#: A function that is called after each epoch and returns True to stop training.
Listener = Callable[[EpochInfo], Any]


@dataclass(frozen=True)
class EpochEnd:
    """The end of an epoch of steps or of an iteration of L-BFGS: records losses, stops training, calls listeners.

    Attributes
    ----------
    state : TrainingState
        The state, changed in place.
    tol : float
        The decrease of the loss that counts as progress.
    n_iter_no_change : float
        Training stops after more than this number of epochs without progress.
    validate : callable, optional
        A function that returns the validation loss, which then decides on progress.
    average : bool or float
        As for :meth:`~onnxtrain.training.state.TrainingState.take_average`.
    listeners : tuple of callable
        Functions that are called in order with the :class:`EpochInfo`; training stops if one returns True.
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
        """Record the weights and the loss of an epoch in the state, and whether training stops.

        With `can_lower_rate`, the learning rate is lowered instead of stopping.
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
        if not self.listeners:  # for few rows, the summary takes about as long as the epoch
            return
        seconds = time.perf_counter() - self.begin
        info = EpochInfo(state.epoch, state.step - 1, loss, validation_loss, learning_rate, seconds, so_far, pace)
        for listener in self.listeners:
            state.stopped |= bool(listener(info))


@dataclass(frozen=True)
class Rise:
    """The losses of a fit that ended above its start: initially, of the last weights, of the weights that are kept."""

    first: float
    last: float
    kept: float
    which: str

    @property
    def is_small(self) -> bool:
        """Whether the last weights are kept although the initial ones were better."""
        return self.kept > self.first

    def __str__(self) -> str:
        return f"The weights {self.which} are kept, with a loss of {self.kept:.3g}."


def last_fall(state: TrainingState, n_epochs: int) -> float:
    """Return the decrease of the monitored loss over the last `n_epochs` of this fit; 0 if the fit was not longer."""
    losses = (state.validation_loss_curve if state.validated else state.loss_curve)[state.first_epoch - state.epoch :]
    if state.epoch - state.first_epoch <= n_epochs:
        return 0.0
    return max(min(losses[:-n_epochs]) - min(losses[-n_epochs:]), 0.0)


def rise_of(
    state: TrainingState, start: Weights, loss: Loss, shuffled: Loss, tol: float, n_epochs: int, *, small: bool = False
) -> Rise | None:
    """If training ended above its initial loss, go back to better weights and return the rise; else return None.

    With `small`, every rise beyond rounding is returned. Noise may be its cause, so the last weights are kept then.

    `loss`, and `shuffled`, the loss with permuted labels, run over all rows, so they are called only if the losses of
    the epochs do not exclude a rise. The increase by permuted labels is the scale of the loss. It bounds the noise that
    is derived from `tol`, which may be too large if the targets have other units.
    """
    share, small = FAR if state.validated or n_epochs == 1 else RISE, small and n_epochs > 1
    if not (_may_not_have_fallen(state) if small else _may_have_risen(state, share)):
        return None
    last, first = loss(state.result()), loss(start)
    if last <= first:
        return None
    scale = shuffled(start) - first
    noise = min(100 * tol, scale / 100) if scale > 0 else 100 * tol
    if _is_above(last, first, share, noise) and not last - first <= _OF_SHUFFLED * scale:
        return keep_best(state, start, loss)
    return _small_rise(state, first, last, scale) if small else None


def rise_on_validation(state: TrainingState, start: Weights, loss: Loss, shuffled: Loss) -> Rise | None:
    """Return the rise of the validation loss by L-BFGS, from the start to the best iteration, if it exceeds rounding.

    The best iteration is kept, as that of steps is.
    """
    last, first = loss(state.result()), loss(start)
    return _small_rise(state, first, last, shuffled(start) - first)


def _small_rise(state: TrainingState, first: float, last: float, scale: float) -> Rise | None:
    """Return a rise after which the weights are kept, if it exceeds rounding."""
    is_noticed = last - first > _NOTICED * max(abs(first), scale)
    return Rise(first, last, last, f"of epoch {state.epoch}") if is_noticed else None


def jump_of(state: TrainingState, start: Weights, loss: Loss, shuffled: Loss) -> Rise | None:
    """If L-BFGS ended above its start by more than rounding, go back to better weights and return the rise.

    It lowers the loss that it measures. A loss that jumps, such as that of a vote of estimators, may be another one for
    the same weights, since its graph is computed in another order.
    """
    last, first = loss(state.result()), loss(start)
    if last - first <= _NOTICED * max(abs(first), shuffled(start) - first):
        return None
    return keep_best(state, start, loss)


def _may_have_risen(state: TrainingState, share: float) -> bool:
    """Whether the losses of the epochs do not exclude that the last weights are worse than the initial ones."""
    losses = state.loss_curve[state.first_epoch :]
    if state.first_loss is None or not losses:
        return False
    best_counts = state.validated and state.best_weights is not None
    last = losses[state.best_epoch - state.first_epoch - 1] if best_counts else losses[-1]
    return _is_above(last, min(state.first_loss, *losses), share)


def _may_not_have_fallen(state: TrainingState) -> bool:
    """Whether the losses of the epochs do not exclude that the result is no better than the initial weights."""
    losses = state.loss_curve[state.first_epoch :]
    if state.first_loss is None or not losses:
        return False
    if state.validated:  # the validation loss of the initial weights is not known yet
        return True
    return _is_above(losses[-1], min(state.first_loss, losses[0]), -_FALLEN)


def _is_above(last: float, first: float, share: float, noise: float = 0.0) -> bool:
    """Whether a loss exceeds another by more than a share of the sum of the latter and the noise.

    The noise is added because steps of a fixed length move away from a perfect fit, whose loss is 0.
    """
    return not last - first <= share * (abs(first) + noise)


def keep_best(state: TrainingState, start: Weights, loss: Loss) -> Rise:
    """Give the state the best of three weights: initial, of the best epoch, and last.

    The optimizer state is reset unless the last weights are the best.
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
