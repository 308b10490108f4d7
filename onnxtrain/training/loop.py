"""The loop over epochs and batches, and what it remembers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtrain.errors import ConvergenceError
from onnxtrain.optim import Optimizer
from onnxtrain.optim.schedules import Adaptive, Custom, Schedule
from onnxtrain.training.batches import TrainingData
from onnxtrain.training.session import BoundStep
from onnxtrain.training.step import StepGraph

Weights = Mapping[str, np.ndarray]
Arrays = Mapping[str, np.ndarray]

#: Where Adaptive stops dividing the learning rate, as MLPRegressor.
_SMALLEST_RATE = 1e-6

#: Steps whose learning rates, and what follows from them, are computed and written at once.
_AHEAD = 256


@dataclass(frozen=True)
class Plan:
    """How the loop runs; the parameters of the estimators under their names there."""

    schedule: Schedule
    batch_size: int
    max_iter: int
    shuffle: bool = True
    tol: float = 1e-4
    n_iter_no_change: int = 10
    average: float | bool = False

    def n_batches(self, n_rows: int) -> int:
        """Return how many steps an epoch has."""
        return -(-n_rows // self.batch_size)


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


@dataclass(frozen=True)
class EpochInfo:
    """What a callback learns after an epoch.

    Attributes
    ----------
    epoch, step : int
        How many were done.
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


class Trainer:
    """Runs the steps of a :class:`Plan` over the rows and updates a :class:`TrainingState`.

    Parameters
    ----------
    bind : callable
        ``bind(inputs, state, last) -> BoundStep``.
    step : StepGraph
    optimizer : Optimizer
        The one the step was built with.
    data : TrainingData
    plan : Plan
    state : TrainingState
        Changed in place, once an epoch.
    random_state : numpy.random.RandomState
        Draws the order of the rows.

    Attributes
    ----------
    learning_rate : float
        Of the last step.
    first_loss : float or None
        The objective on the first batch, before the first step.
    """

    def __init__(
        self,
        bind: Callable[[Arrays, Mapping[tuple[str, ...], np.ndarray], Arrays], BoundStep],
        step: StepGraph,
        optimizer: Optimizer,
        data: TrainingData,
        plan: Plan,
        state: TrainingState,
        random_state: np.random.RandomState,
    ):
        self.step, self.data, self.plan, self.state, self.random_state = step, data, plan, state, random_state
        self.optimizer = optimizer
        self._rows = data.rows if self._gathered else np.empty(0, np.int64)  # else they are visited block by block
        self.n_rows, self._total_weight = data.n_rows, data.total_weight
        self.learning_rate = 0.0
        self.first_loss: float | None = None
        self._rates: list[float] = []  # those looked ahead to, of which so many are behind, under so many plateaus
        self._behind, self._plateaus = 0, 0
        self._proven = state.weights, state.slots
        self.bound = bind(self._fixed_inputs(), self._initial_state(), self._last_inputs())

    @property
    def _gathered(self) -> bool:
        return "rows" in self.step.inputs

    @property
    def _n_ahead(self) -> int:
        """How many steps are looked ahead to: those of whole epochs."""
        n_batches = self.plan.n_batches(self.n_rows)
        # what a batch weighs depends on the order; a user's function may want to be called as training goes on
        one_epoch = self.data.weight is not None or isinstance(self.plan.schedule, Custom)
        return n_batches * (1 if one_epoch else max(1, _AHEAD // n_batches))

    def _fixed_inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs that stay bound: all rows and the order they are taken in, where the graph takes them."""
        dtype = self.step.dtype.numpy()
        constants = {name: self.data.constants[name] for name in self.step.constants}
        if not self._gathered:
            return {**constants, self.step.inputs["learning_rate"]: np.zeros((), dtype)}
        inputs = constants | self._named_rows(slice(None))
        inputs[self.step.inputs["rows"]] = self.data.rows.copy()
        inputs[self.step.inputs["batch_size"]] = np.array([self.plan.batch_size], dtype=np.int64)
        inputs |= self._inputs_of_length(self.plan.batch_size)
        n_batches = self.plan.n_batches(self.n_rows)
        shares = np.full(self._n_ahead, 1 / self.plan.batch_size, dtype)
        shares[n_batches - 1 :: n_batches] = 1 / (self.n_rows - (n_batches - 1) * self.plan.batch_size)
        inputs[self.step.inputs["share"]] = shares
        return inputs | {name: np.zeros(self._n_ahead, dtype) for name in self.step.scalars.values()}

    def _last_inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs that are others in the last step of an epoch: there are fewer rows left."""
        rest = self.n_rows % self.plan.batch_size
        return self._inputs_of_length(rest) if rest else {}

    def _inputs_of_length(self, n: int) -> dict[str, np.ndarray]:
        """Return the inputs that a batch of n rows needs, whatever the rows."""
        known = {"places": np.arange(n, dtype=np.int64), "ones": np.ones((1, n), self.step.dtype.numpy())}
        return {self.step.inputs[role]: array for role, array in known.items() if role in self.step.inputs}

    def _named_rows(self, rows: np.ndarray | slice) -> dict[str, np.ndarray]:
        """Return rows of the data by the names of the inputs that take them."""
        inputs = {self.step.features[name]: x for name, x in self.data.take(rows).items() if name in self.step.features}
        inputs[self.step.inputs["label"]] = self.data.label[rows]
        if self.data.weight is not None:
            inputs[self.step.inputs["weight"]] = self.data.weight[rows]
        return inputs

    def _initial_state(self) -> dict[tuple[str, ...], np.ndarray]:
        dtype = self.step.dtype.numpy()
        state: dict[tuple[str, ...], np.ndarray] = {("loss_sum",): np.zeros((), dtype)}
        if self._gathered:
            state |= {("offset",): np.zeros(1, np.int64), ("index",): np.zeros((), np.int64)}
        else:
            state["step",] = np.array(self.state.step, dtype)
        state |= {("weight", name): w for name, w in self.state.weights.items()}
        state |= {("slot", *key): memory for key, memory in self.state.slots.items()}
        return state

    def run(self, n_epochs: int, validate: Callable[[Weights], float] | None = None) -> Iterator[EpochInfo]:
        """Run up to `n_epochs` epochs; yield after each, when the state is up to date.

        Raises
        ------
        ConvergenceError
            The loss or a weight became infinite or NaN. The weights and the memory of the
            optimizer are those of the last epoch that began with a finite loss.
        """
        start = time.perf_counter()
        n_steps = n_epochs * self.plan.n_batches(self.n_rows)
        while not self.state.stopped and self.state.epoch - self.state.first_epoch < n_epochs:
            loss = self._run_epoch(self.state.first_step, n_steps)
            self._keep(loss)
            self.state.take_average(self.plan.average)
            validation_loss = None if validate is None else validate(self.state.so_far())
            if validation_loss is not None:
                self.state.validation_loss_curve.append(validation_loss)
            lower = self.state.watch(loss if validation_loss is None else validation_loss, self.plan.tol)
            if lower and validation_loss is not None:
                self.state.best_weights = self.state.so_far()
            self.state.stopped = self._stands_still()
            yield EpochInfo(
                self.state.epoch,
                self.state.step - 1,
                loss,
                validation_loss,
                self.learning_rate,
                time.perf_counter() - start,
                self.state.so_far(),
            )

    def _run_epoch(self, first: int, n_steps: int) -> float:
        """Visit every row once and return the mean objective."""
        random_state = self.random_state if self.plan.shuffle else None
        n_batches = self.plan.n_batches(self.n_rows)
        if self._behind == len(self._rates) or self._plateaus != self.state.plateaus:
            self._look_ahead(first, n_steps)
        rates = self._rates[self._behind : self._behind + n_batches]
        self.bound.write_state(("loss_sum",), np.zeros((), self.step.dtype.numpy()))
        if self._gathered:
            self._write_order(self._rows if random_state is None else random_state.permutation(self._rows))
            self.bound.run()
            self._look_at_the_first()
            for _ in rates[1:-1]:
                self.bound.run()
            if len(rates) > 1:
                self.bound.run(last=True)
        else:
            for rate, rows in zip(rates, self.data.shuffled(self.plan.batch_size, random_state), strict=True):
                self.bound.write(self.step.inputs["learning_rate"], np.array(rate, self.step.dtype.numpy()))
                self.bound.feed(self._named_rows(rows))
                self.bound.run()
                self._look_at_the_first()
        self._behind += n_batches
        self.state.step += n_batches
        self.learning_rate = rates[-1]
        return float(self.bound.read_state(("loss_sum",))) / self._total_weight

    def _look_at_the_first(self) -> None:
        """Keep the objective of the first batch; its weight is taken as that of any other."""
        if self.first_loss is None:
            sum_ = float(self.bound.read_state(("loss_sum",)))
            self.first_loss = sum_ * self.plan.n_batches(self.n_rows) / self._total_weight

    def _look_ahead(self, first: int, n_steps: int) -> None:
        """Compute the learning rates of the next steps, and write what the graph reads instead of them."""
        steps = range(self.state.step, min(self.state.step + self._n_ahead, first + n_steps))
        self._rates = [self.plan.schedule(step - first, n_steps, self.state.plateaus) for step in steps]
        self._behind, self._plateaus = 0, self.state.plateaus
        if self._gathered:
            self.bound.write_state(("index",), np.zeros((), np.int64))
            table = self.optimizer.scalar_table(self._rates, steps)
            rest = np.zeros(self._n_ahead - len(steps))  # no step will read it
            for column, name in self.step.scalars.items():
                self.bound.write(name, np.concatenate([table[:, column], rest]).astype(self.step.dtype.numpy()))

    def _write_order(self, order: np.ndarray) -> None:
        self.bound.write(self.step.inputs["rows"], order)
        self.bound.write_state(("offset",), np.zeros(1, np.int64))
        if self.data.weight is not None:
            starts = np.arange(0, len(order), self.plan.batch_size)
            self.bound.write(self.step.inputs["share"], 1 / np.add.reduceat(self.data.weight[order, 0], starts))

    def _keep(self, loss: float) -> None:
        """Take over the weights and the memory of the optimizer, if they are finite."""
        weights, slots = self.bound.state()
        if not math.isfinite(loss) or not all(map(_finite, weights.wholes.values())):
            # the loss was finite from where the epoch before began; where it ended, nothing is known
            self.state.weights, self.state.slots = self._proven
            last = ", ".join(f"{value:.3g}" for value in self.state.loss_curve[-3:]) or "none"
            raise ConvergenceError(
                f"The loss became {loss} in epoch {self.state.epoch + 1} at learning rate "
                f"{self.learning_rate:.3g} (losses before: {last}). The last good weights are kept. "
                f"Lower learning_rate, scale the data, or set clip_norm."
            )
        self._proven = self.state.weights, self.state.slots
        self.state.weights, self.state.slots = weights, slots
        self.state.loss_curve.append(loss)

    def _stands_still(self) -> bool:
        """Whether to stop: the loss watched no longer falls, and the learning rate cannot be lowered."""
        if self.state.bad_epochs <= self.plan.n_iter_no_change:
            return False
        if isinstance(self.plan.schedule, Adaptive) and self.learning_rate > _SMALLEST_RATE:
            self.state.plateaus += 1
            self.state.bad_epochs = 0
            return False
        return True


def _finite(w: np.ndarray) -> bool:
    """Whether all numbers are; the sum of squares says so at a third of the cost, unless it overflows."""
    return math.isfinite(np.vdot(w, w)) or bool(np.isfinite(w).all())
