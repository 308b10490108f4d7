"""A fit whose rows are on the workers: tasks compute sums of gradients; the client adds them and updates weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxtrain.dask.rows import DistributedRows, Program, Sums
from onnxtrain.errors import warn
from onnxtrain.optim import Optimizer, Proximal
from onnxtrain.runtime.device import find_device
from onnxtrain.runtime.session import Place
from onnxtrain.training.bound import BoundUpdate
from onnxtrain.training.lbfgs import LossAndGradient
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import EpochEnd, TrainingState, Weights
from onnxtrain.training.train import Fit, can_lower, check_finite, fill_slots, kept
from onnxtrain.training.update import build_update

#: The number of steps after which the cost of a step is judged, and the number of first steps left out: they open
#: sessions.
_LOOKED_AT, _FIRST = 20, 5

#: In the batch size that a warning recommends, computing takes this many times as long as everything else.
_WORTH_IT = 3


class DistributedLoop:
    """Run training steps over rows on the workers, epoch by epoch.

    The client draws the order of the rows as :class:`~onnxtrain.training.train.StepLoop` does. So the batches are the
    same as in one process for any number of workers, except that one process shuffles very many rows in blocks. A batch
    is one task per thread, on the rows that the worker holds. The client adds the gradients and updates the weights. It
    holds the whole state after each step, so a failed step can be repeated.

    Parameters
    ----------
    program : Program
    data : DistributedRows
    settings : Settings
    optimizer : Optimizer
    state : TrainingState
        The state of training, changed in place once per epoch.
    random_state : numpy.random.RandomState
        Draws the order of the rows.
    """

    def __init__(
        self,
        program: Program,
        data: DistributedRows,
        settings: Settings,
        optimizer: Optimizer,
        state: TrainingState,
        random_state: np.random.RandomState,
    ):
        objective, cpu = program.objective, find_device("cpu")
        self.program, self.data, self.settings, self.optimizer = program, data, settings, optimizer
        self.state, self.random_state = state, random_state
        self.place = Place(cpu, 1)
        size = min(settings.rows_of_a_batch(data.n_rows) * settings.accumulate, data.n_rows)
        self._size, self.n_steps = size, -(-data.n_rows // size)
        self._penalties = settings.penalties(objective.penalized)
        arguments, self._strengths = settings.of_steps(objective.penalized)
        build = kept(build_update, optimizer)
        update = build(objective, optimizer, sums=False, capabilities=cpu.capabilities, **arguments)
        fill_slots(state, update, optimizer)
        self._dtype = update.dtype.numpy()
        self._update = BoundUpdate(update, self.place, state)
        self._costs: list[tuple[float, float]] = []

    def run(self, n_epochs: int, end: EpochEnd) -> None:
        """Run up to `n_epochs` epochs; `end` is called after each, when the state is up to date.

        Raises
        ------
        ConvergenceError
            The loss or a weight became infinite or NaN. The state is that after the previous epoch.
        """
        state, schedule = self.state, self.settings.schedule
        while not state.stopped and state.epoch - state.first_epoch < n_epochs:
            loss, rate = self._run_epoch()
            weights = self._update.weights(copy=True)
            check_finite(loss, weights.wholes.values(), state, rate)
            state.slots = self._update.slots(copy=True)
            end.take(weights, loss, rate, can_lower_rate=can_lower(schedule, rate))

    def _run_epoch(self) -> tuple[float, float]:
        """Visit every row once; return the mean objective and the last learning rate."""
        state, planned = self.state, max(self.settings.max_iter, 1) * self.n_steps
        order = np.arange(self.data.n_rows)
        if self.settings.shuffle:
            self.random_state.shuffle(order)
        sum_ = 0.0
        for i in range(self.n_steps):
            rate = self.settings.schedule(state.step - state.first_step, planned, state.plateaus)
            rows = self._by_part(order[i * self._size : (i + 1) * self._size])
            sum_ += self._step(rows, rate)
            state.step += 1
            if state.first_loss is None:
                state.first_loss = sum_ * self.n_steps / self.data.total_weight
        return sum_ / self.data.total_weight, rate

    def _by_part(self, rows: np.ndarray) -> dict[int, np.ndarray]:
        """Convert indices of rows in the whole to indices within each partition that has some of these rows."""
        ends = np.cumsum(self.data.lengths)
        part = np.searchsorted(ends, rows, side="right")
        return {i: rows[part == i] - (ends[i] - self.data.lengths[i]) for i in np.unique(part).tolist()}

    def _step(self, rows: dict[int, np.ndarray], rate: float) -> float:
        """Run one step; return the objective of its batch times the weight of the batch."""
        begin = time.perf_counter()
        weights = self._update.weights(copy=False)  # safe: they are not read after the update changes them
        found = self.data.sums(self.program, weights, rows)
        loss = found.loss + self._penalties.value(weights) * found.weight
        with np.errstate(over="ignore", invalid="ignore"):  # the end of the epoch checks it
            for name, sum_ in zip(self.program.objective.weights, found.gradient, strict=True):
                dw = np.divide(sum_, found.weight, out=self._update.gradient(name).array)  # the update's input
                self._add_penalties(dw, name, weights[name])
        step = self.state.step - self.state.slots_step + 1
        scalars = self.optimizer.scalar_table([rate], [step])[0]
        self._update.run(np.array([[1 / found.weight, *scalars, *self._strengths]], self._dtype))
        self._look_at_costs(found, time.perf_counter() - begin)
        return loss

    def _add_penalties(self, dw: np.ndarray, name: str, w: np.ndarray) -> None:
        """Add the gradient of the penalties to that of the loss, without l1 if the optimizer has a proximal step."""
        if (l1 := self._penalties.l1.get(name, 0.0)) and not isinstance(self.optimizer, Proximal):
            dw += l1 * np.sign(w)
        if l2 := self._penalties.l2.get(name, 0.0):
            dw += 2 * l2 * w

    def _look_at_costs(self, found: Sums, seconds: float) -> None:
        """Warn once if the workers wait longer than they compute."""
        self._costs.append((found.seconds, seconds))
        if len(self._costs) != _LOOKED_AT:
            return
        computing, all_ = (float(np.median(column)) for column in zip(*self._costs[_FIRST:], strict=True))
        besides = all_ - computing
        if besides > computing:
            size = self._size * _WORTH_IT * besides / max(computing, 1e-9)
            unit = 10 ** int(math.log10(size))
            warn(
                f"A step takes {1e3 * all_:.1f} ms, but the workers compute for only {1e3 * computing:.1f} ms; the "
                f"rest goes into tasks and sums. Raise batch_size to about {math.ceil(size / unit) * unit}, or use one "
                "machine.",
            )


# --------------------------------------------------------------------- the fit


@dataclass(frozen=True)
class DistributedFit(Fit):
    """A :class:`~onnxtrain.training.train.Fit` over :class:`~onnxtrain.dask.rows.DistributedRows`.

    As in one process, the client decides which weights are the best, when to stop, and whether the loss diverged.
    """

    data: DistributedRows  # type: ignore[assignment]
    validation: DistributedRows | None  # type: ignore[assignment]

    @property
    def program(self) -> Program:
        """The program that the tasks run."""
        settings = self.settings
        return Program(self.objective, settings.builder, settings.device, settings.n_threads or 1)

    def _loop(self) -> DistributedLoop | None:
        optimizer = self.settings.optimizer
        if optimizer is None:
            return None
        return DistributedLoop(self.program, self.data, self.settings, optimizer, self.state, self.random_state)

    def _place_of_all_rows(self) -> Place:
        return self.settings.place  # not used: the program defines how a task computes

    def _loss_and_gradient_at(self, place: Place) -> LossAndGradient:
        return lambda weights: self.data.loss_and_gradient(self.program, weights)

    def _mean_loss_on(self, data: DistributedRows, place: Place) -> Callable[[Weights], float]:  # type: ignore[override]
        return lambda weights: data.mean_loss(self.program, weights)
