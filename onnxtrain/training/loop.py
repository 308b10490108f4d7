"""The loop over epochs and batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxtrain.errors import ConvergenceError
from onnxtrain.optim import Optimizer
from onnxtrain.optim.schedules import Adaptive, Custom, Schedule
from onnxtrain.training.batches import TrainingData
from onnxtrain.training.session import BoundStep
from onnxtrain.training.state import TrainingState, Weights
from onnxtrain.training.step import StepGraph

Arrays = Mapping[str, np.ndarray]

#: Where Adaptive stops dividing the learning rate, as MLPRegressor.
_SMALLEST_RATE = 1e-6

#: Steps whose learning rates, and what follows from them, are computed and written at once.
_AHEAD = 256


@dataclass(frozen=True)
class Plan:
    """How the loop runs; the parameters of the estimators under their names there.

    ``strengths`` are those of the penalties, in the order of the step's groups, l1 before l2.
    """

    schedule: Schedule
    batch_size: int
    max_iter: int
    shuffle: bool = True
    tol: float = 1e-4
    n_iter_no_change: int = 10
    average: float | bool = False
    strengths: tuple[float, ...] = ()

    def n_batches(self, n_rows: int) -> int:
        """Return how many steps an epoch has."""
        return -(-n_rows // self.batch_size)


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
        self._numbers = self._known_numbers()
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
        constants = {name: self.data.constants[name] for name in self.step.constants}
        if not self._gathered:
            return {**constants, self.step.inputs["numbers"]: self._numbers[:1].copy()}
        inputs = constants | self._named_rows(slice(None))
        inputs[self.step.inputs["numbers"]] = self._numbers
        inputs[self.step.inputs["rows"]] = self.data.rows.copy()
        inputs[self.step.inputs["batch_size"]] = np.array([self.plan.batch_size], dtype=np.int64)
        return inputs | self._inputs_of_length(self.plan.batch_size)

    def _known_numbers(self) -> np.ndarray:
        """Return the numbers of the steps looked ahead to, as far as they do not change."""
        numbers = np.zeros((self._n_ahead, len(self.step.numbers)), self.step.dtype.numpy())
        n_batches = self.plan.n_batches(self.n_rows)
        numbers[:, 0] = 1 / self.plan.batch_size
        numbers[n_batches - 1 :: n_batches, 0] = 1 / (self.n_rows - (n_batches - 1) * self.plan.batch_size)
        numbers[:, len(self.step.numbers) - len(self.plan.strengths) :] = self.plan.strengths
        return numbers

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
        state: dict[tuple[str, ...], np.ndarray] = {("loss_sum",): np.zeros((1, 1), dtype)}
        if self._gathered:
            state |= {("offset",): np.zeros(1, np.int64), ("index",): np.zeros(1, np.int64)}
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
        self.bound.restart("loss_sum")
        if self._gathered:
            order = self._rows.copy()
            if random_state is not None:
                random_state.shuffle(order)  # the permutation, without its look whether the two share memory
            self._write_order(order)
            self.bound.run()
            self._look_at_the_first()
            for _ in rates[1:-1]:
                self.bound.run()
            if len(rates) > 1:
                self.bound.run(last=True)
        else:
            numbers = self._numbers[self._behind : self._behind + n_batches]
            for row, rows in zip(numbers, self.data.shuffled(self.plan.batch_size, random_state), strict=True):
                row[0] = 1 / (len(rows) if self.data.weight is None else self.data.weight[rows].sum())
                self.bound.write(self.step.inputs["numbers"], row[None])
                self.bound.feed(self._named_rows(rows))
                self.bound.run()
                self._look_at_the_first()
        self._behind += n_batches
        self.state.step += n_batches
        self.learning_rate = rates[-1]
        return self.bound.read_state("loss_sum").item() / self._total_weight

    def _look_at_the_first(self) -> None:
        """Keep the objective of the first batch; its weight is taken as that of any other."""
        if self.first_loss is None:
            sum_ = self.bound.read_state("loss_sum").item()
            self.first_loss = sum_ * self.plan.n_batches(self.n_rows) / self._total_weight

    def _look_ahead(self, first: int, n_steps: int) -> None:
        """Compute the learning rates of the next steps, and the numbers that the graph reads instead of them."""
        steps = range(self.state.step, min(self.state.step + self._n_ahead, first + n_steps))
        self._rates = [self.plan.schedule(step - first, n_steps, self.state.plateaus) for step in steps]
        self._behind, self._plateaus = 0, self.state.plateaus
        scalars = self.optimizer.scalar_table(self._rates, steps)
        self._numbers[: len(steps), 1 : 1 + scalars.shape[1]] = scalars
        if self._gathered:
            self.bound.restart("index")
            self.bound.write(self.step.inputs["numbers"], self._numbers)

    def _write_order(self, order: np.ndarray) -> None:
        self.bound.write(self.step.inputs["rows"], order)
        self.bound.restart("offset")
        if self.data.weight is not None:
            starts = np.arange(0, len(order), self.plan.batch_size)
            self._numbers[:, 0] = 1 / np.add.reduceat(self.data.weight[order, 0], starts)
            self.bound.write(self.step.inputs["numbers"], self._numbers)

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
