"""One fit: epochs of steps or L-BFGS, the state after each epoch, and the choice of the resulting weights."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from onnxtrain.errors import ConvergenceError
from onnxtrain.optim import Optimizer, Schedule
from onnxtrain.optim.schedules import Adaptive, Custom
from onnxtrain.runtime.session import Place
from onnxtrain.training.bound import BoundStep
from onnxtrain.training.data import Batch, EpochRows, in_files
from onnxtrain.training.evaluate import build_loss_and_gradient, loss_and_gradient, mean_loss
from onnxtrain.training.lbfgs import LossAndGradient, minimize_lbfgs
from onnxtrain.training.objective import Objective, is_ours
from onnxtrain.training.packing import Parts
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import (
    EpochEnd,
    Listener,
    Pace,
    Rise,
    TrainingState,
    Weights,
    jump_of,
    keep_best,
    rise_of,
    rise_on_validation,
)
from onnxtrain.training.step import KEPT, OF_BATCH, StepGraph, build_step
from onnxtrain.training.update import UpdateGraph, build_update


@dataclass(frozen=True)
class Outcome:
    """How a fit ended.

    Attributes
    ----------
    interrupt : KeyboardInterrupt or None
        The interrupt that ended the fit.
    rise : Rise or None
        Set if the loss ended above its start; then better weights are kept, unless the rise is small.
    """

    interrupt: KeyboardInterrupt | None = None
    rise: Rise | None = None


class Loop(Protocol):
    """Epochs of steps on a place."""

    place: Place

    def run(self, n_epochs: int, end: EpochEnd) -> None:
        """Run up to `n_epochs` epochs; `end` is called after each, when the state is up to date."""


@dataclass(frozen=True)
class Fit:
    """A prepared fit: its rows, its objective, and the state that it changes.

    Attributes
    ----------
    objective : Objective
    data : EpochRows
    validation : EpochRows or None
        The validation set, whose loss is monitored instead of the training loss.
    settings : Settings
    state : TrainingState
        The state, changed in place once per epoch.
    start : mapping of str to ndarray
        The weights before the first epoch of this fit.
    random_state : numpy.random.RandomState
        Draws the order of the rows.
    graphs : Graphs, optional
        The graphs of its steps, if this process runs them.
    reports_small_rise : bool
        Whether the outcome has a small rise of the loss, too, and one by L-BFGS.
    """

    objective: Objective
    data: EpochRows
    validation: EpochRows | None
    settings: Settings
    state: TrainingState
    start: Weights
    random_state: np.random.RandomState
    graphs: Graphs | None = None
    reports_small_rise: bool = False

    def run(self, n_epochs: int, listeners: tuple[Listener, ...] = ()) -> Outcome:
        """Run up to `n_epochs` epochs, or ``settings.max_iter`` iterations of L-BFGS; call `listeners` after each.

        Raises
        ------
        ConvergenceError
            The loss or a weight became infinite or NaN. The state has the initial weights or those of the best epoch,
            whichever have the lower loss.
        """
        loop = self._loop()
        if loop is None:
            return self._minimize(listeners)
        place = loop.place
        validate = None if self.validation is None else self._mean_loss_on(self.validation, place)
        loss = validate or self._penalized_loss(place)
        end = EpochEnd(
            self.state, self.settings.tol, self.settings.n_iter_no_change, validate, self.settings.average, listeners
        )
        interrupt = None
        try:
            loop.run(n_epochs, end)
        except ConvergenceError as e:
            kept = keep_best(self.state, self.start, loss)
            raise ConvergenceError(f"{e} {kept} {_remedy(self.start, kept.first)}") from e
        except KeyboardInterrupt as e:
            interrupt = e
        del loop  # it holds a batch, which may be large when dense
        small = self.reports_small_rise and interrupt is None
        shuffled = self._shuffled_loss(place)
        rise = rise_of(self.state, self.start, loss, shuffled, self.settings.tol, n_epochs, small=small)
        return Outcome(interrupt, rise)

    def _minimize(self, listeners: tuple[Listener, ...]) -> Outcome:
        settings, state = self.settings, self.state
        place = self._place_of_all_rows()
        if self.validation is None:
            end = EpochEnd(state, tol=0.0, n_iter_no_change=float("inf"), listeners=listeners)
        else:
            validate = self._mean_loss_on(self.validation, place)
            end = EpochEnd(state, settings.tol, settings.n_iter_no_change, validate, listeners=listeners)

        def on_iteration(loss: float, weights: dict[str, np.ndarray]) -> bool:
            state.step += 1
            end.take(weights, loss, learning_rate=1.0)
            return state.stopped

        if settings.max_iter == 0:
            return Outcome()
        before = state.epoch
        try:
            weights, loss, converged = minimize_lbfgs(
                self._loss_and_gradient_at(place),
                state.weights,
                settings.penalties(self.objective.penalized),
                max_iter=settings.max_iter,
                tol=settings.tol / 100,
                on_iteration=on_iteration,
            )
        except KeyboardInterrupt as e:
            return Outcome(e)
        if state.epoch == before:  # the initial weights were the minimum
            on_iteration(loss, weights)
        state.weights = weights
        state.stopped |= converged
        if not self.reports_small_rise:
            return Outcome()
        if self.validation is not None:
            return Outcome(rise=rise_on_validation(state, self.start, validate, self._shuffled_loss(place)))
        return Outcome(rise=jump_of(state, self.start, self._penalized_loss(place), self._shuffled_loss(place)))

    def _penalized_loss(self, place: Place) -> Callable[[Weights], float]:
        """Return the mean loss over all rows with the penalties as a function of the weights."""
        on_rows = self._mean_loss_on(self.data, place)
        penalties = self.settings.penalties(self.objective.penalized)
        return lambda weights: on_rows(weights) + penalties.value(weights)

    def _shuffled_loss(self, place: Place) -> Callable[[Weights], float]:
        """Return the mean loss for permuted labels as a function of the weights."""
        return lambda weights: self._mean_loss_on((self.validation or self.data).with_shuffled_labels(), place)(weights)

    # overridden if the rows are elsewhere --------------------------------------

    def _loop(self) -> Loop | None:
        """Return the loop over epochs; None for L-BFGS."""
        return None if self.graphs is None else StepLoop(self.graphs, self.data, self.state, self.random_state)

    def _place_of_all_rows(self) -> Place:
        """Return the place where the loss and its gradient are computed over all rows."""
        graph = build_loss_and_gradient(self.objective, self.settings.builder)
        place = self.settings.place.for_work(self.data.n_rows * graph.multiplications + graph.fixed_cost)
        return place.for_results(self.data.rows_at_once * self.data.bytes_of_scores)

    def _loss_and_gradient_at(self, place: Place) -> LossAndGradient:
        """Return the mean loss over all rows and its gradient, without penalties, as a function of the weights."""
        return lambda weights: loss_and_gradient(self.objective, weights, self.data, place, self.settings.builder)

    def _mean_loss_on(self, data: EpochRows, place: Place) -> Callable[[Weights], float]:
        """Return the mean loss over rows, without penalties, as a function of the weights."""
        return lambda weights: mean_loss(self.objective, weights, data, place)


# ------------------------------------------------------------- epochs of steps


P = ParamSpec("P")
T = TypeVar("T")

#: The learning rate at which Adaptive stops dividing it, as in MLPRegressor.
_SMALLEST_RATE = 1e-6

#: From this size of the trained weights in bytes, a step has only one buffer of weights and optimizer state, and the
#: weights of each epoch are kept in a file.
LARGE = 2**26

#: The same for batches in pieces, whose update is a separate graph in any case, so that only the end of an epoch is
#: slower, and for sparse rows, for which memory is to be proportional to the matrix.
LARGE_IN_PIECES = 2**21

#: The number of steps whose per-step scalars are computed and written at once.
_AHEAD = 256


def in_pieces(settings: Settings, data: EpochRows) -> Settings:
    """Return settings that divide batches into pieces if the sparse rows of a batch would fill the memory.

    The steps are the same: the gradients of the pieces of a batch are summed.
    """
    size, most = settings.rows_of_a_batch(data.n_rows), data.sparse_at_once
    if size <= most:
        return settings
    n_pieces = next(k for k in range(-(-size // most), size + 1) if size % k == 0)
    return replace(settings, batch_size=size // n_pieces, accumulate=settings.accumulate * n_pieces)


def kept(build: Callable[P, T], optimizer: Optimizer) -> Callable[P, T]:
    """Return a builder of graphs that caches them, unless the optimizer is the user's own.

    The formula of a user's optimizer may change before the next fit. The session is still found in the cache.
    """
    return build if is_ours(optimizer) else build.__wrapped__  # type: ignore[attr-defined]


class Graphs(NamedTuple):
    """The graphs of the steps of a fit.

    Attributes
    ----------
    step : StepGraph
    update : UpdateGraph or None
        The update of the weights, if the step ends with gradients.
    optimizer : Optimizer
    settings : Settings
        The settings of the fit, with the number of batches that these graphs sum, see :func:`in_pieces`.
    strengths : tuple of float
        The strengths of the penalties, which are the last per-step scalars.
    large : bool
        Whether a step has only one buffer of the trained weights, because they are large.
    """

    step: StepGraph
    update: UpdateGraph | None
    optimizer: Optimizer
    settings: Settings
    strengths: tuple[float, ...]
    large: bool


def graphs_of(
    objective: Objective, data: EpochRows, settings: Settings, weights: Mapping[str, np.ndarray]
) -> Graphs | None:
    """Return the graphs of the steps for given settings, rows and initial weights; None for L-BFGS."""
    optimizer, capabilities = settings.optimizer, settings.device.capabilities
    if optimizer is None:
        return None
    settings = in_pieces(settings, data)
    of_both, strengths = settings.of_steps(objective.penalized)
    build = partial(
        kept(build_step, optimizer),
        objective,
        optimizer,
        gathered=data.at_hand is not None,
        weighted=data.weighted,
        builder=settings.builder,
        products=settings.products,
        capabilities=capabilities,
        **of_both,
    )
    is_sparse = data.sparse_at_once < sys.maxsize
    least = LARGE_IN_PIECES if is_sparse or settings.accumulate > 1 else LARGE
    large = not capabilities.records_runs and _bytes_moved(weights) >= least
    if large and not optimizer.slots and settings.accumulate == 1:
        large = _bytes_moved(weights, build()) >= LARGE
    if settings.accumulate == 1 and not large:
        return Graphs(build(), None, optimizer, settings, strengths, large)
    step, update = build(batches=settings.accumulate), kept(build_update, optimizer)
    sums = settings.accumulate > 1
    behind = update(objective, optimizer, sums=sums, capabilities=capabilities, **of_both)
    return Graphs(step, behind, optimizer, settings, strengths, large)


def _bytes_moved(weights: Mapping[str, np.ndarray], step: StepGraph | None = None) -> int:
    """Return the bytes of the weights, without tables that a step updates by rows in place."""
    in_place = set() if step is None else {name for name, wire in step.weights.items() if wire.input in step.in_place}
    return sum(w.nbytes for name, w in weights.items() if name not in in_place)


def fill_slots(state: TrainingState, step: StepGraph | UpdateGraph, optimizer: Optimizer) -> None:
    """Initialize the missing optimizer slots of the state, and drop those of another optimizer."""
    slots = {key: value for key, value in state.slots.items() if key in step.slots}
    if not slots:
        state.slots_step = state.step
    for name, slot in step.slots:
        if (name, slot) not in slots:
            w = state.weights[name]
            # takes no memory, like broadcast_to, which takes half as long as a step of a small model
            one = np.array(optimizer.initial(slot), w.dtype)
            slots[name, slot] = np.ndarray(w.shape, w.dtype, one, strides=(0,) * w.ndim)
    state.slots = slots


class StepLoop:
    """Runs training steps over the rows, epoch by epoch.

    Parameters
    ----------
    graphs : Graphs
    data : EpochRows
    state : TrainingState
        The initial state; changed in place once per epoch.
    random_state : numpy.random.RandomState
        Draws the order of the rows.

    Attributes
    ----------
    place : Place
        The device and threads of the steps.
    """

    def __init__(
        self,
        graphs: Graphs,
        data: EpochRows,
        state: TrainingState,
        random_state: np.random.RandomState,
    ):
        self.step, self.update, self.optimizer, settings, self._strengths, self._large = graphs
        self.data, self.settings = data, settings
        self._at_hand = data.at_hand  # None: the step is fed
        self._pace: Pace | None = None
        self._waited = 0.0  # seconds of this epoch
        self.state, self.random_state = state, random_state
        self.n_rows, self._total_weight = data.n_rows, data.total_weight
        self.batch_size = settings.rows_of_a_batch(self.n_rows)
        self.n_batches = -(-self.n_rows // self.batch_size)
        self.n_steps = settings.steps_of_an_epoch(self.n_rows)
        self._step_of = np.arange(self.n_batches) // settings.accumulate  # of each batch of an epoch
        # whether an update follows a batch of an epoch: the last one of a step
        self._updates = [False] * self.n_batches
        if self.update is not None:
            self._updates = (np.diff(self._step_of, append=self.n_steps) > 0).tolist()
        place = settings.place.for_work(self.batch_size * self.step.multiplications + self.step.fixed_cost)
        # the results of a step with large weights are large, too
        n_bytes = math.inf if self._large else self.batch_size * data.bytes_of_scores
        self.place = place.for_results(n_bytes)
        fill_slots(state, self.update or self.step, self.optimizer)
        self._rows = np.empty(0, np.int64) if self._at_hand is None else self._at_hand.rows
        self._counters = ("loss_sum",) if self._at_hand is None else ("loss_sum", "offset")  # 0 as an epoch begins
        self._rates: list[float] = []  # planned rates, the number already used, the plateaus then
        self._behind, self._plateaus = 0, 0
        self._scalars = self._known_scalars()
        self._last_step = 0
        rest = self.n_rows % self.batch_size  # rows of the last batch of an epoch, if that is smaller
        last = self._inputs_of_length(rest) if rest else {}
        self.bound = BoundStep(self.step, self.place, self._fixed_inputs(), last, state, self.update)

    @property
    def _n_ahead(self) -> int:
        """The number of steps whose scalars are computed in advance, a multiple of the steps of an epoch."""
        # batch weights depend on the order; a user's schedule may expect to be called during training
        one_epoch = self.data.weighted or isinstance(self.settings.schedule, Custom)
        return self.n_steps * (1 if one_epoch else max(1, _AHEAD // self.n_steps))

    def _fixed_inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs that stay bound: all rows and their order for a gathered step, else only constants."""
        constants = {name: self.data.constants[name] for name in self.step.constants}
        if self._at_hand is None:
            return {**constants, self.step.inputs["scalars"]: self._scalars[:1].copy()}
        inputs = constants | self.step.feeds(self._at_hand.piece(slice(None)))
        inputs[self.step.inputs["scalars"]] = self._scalars
        inputs[self.step.inputs["rows"]] = self._rows.copy()
        inputs[self.step.inputs["batch_size"]] = np.array([self.batch_size], dtype=np.int64)
        return inputs | self._inputs_of_length(self.batch_size)

    def _known_scalars(self) -> np.ndarray:
        """Return the table of per-step scalars, one row per batch, without those that depend on the step number."""
        epoch = np.zeros((self.n_batches, len(self.step.step_scalars)), self.step.dtype.numpy())
        sizes = np.full(self.n_batches, self.batch_size)
        sizes[-1] = self.n_rows - (self.n_batches - 1) * self.batch_size
        self._set_weights(epoch, sizes)
        if KEPT in self.step.step_scalars:
            epoch[:, self.step.step_scalars.index(KEPT)] = np.diff(self._step_of, prepend=-1) == 0
        epoch[:, len(self.step.step_scalars) - len(self._strengths) :] = self._strengths
        return np.tile(epoch, (self._n_ahead // self.n_steps, 1))

    def _set_weights(self, scalars: np.ndarray, weights: np.ndarray) -> None:
        """Set the scalars of an epoch's batches that depend on the weights of the batches."""
        of_step = np.add.reduceat(weights, np.arange(0, self.n_batches, self.settings.accumulate))
        scalars[:, 0] = 1 / of_step[self._step_of]
        if OF_BATCH in self.step.step_scalars:
            scalars[:, self.step.step_scalars.index(OF_BATCH)] = weights

    def _inputs_of_length(self, n: int) -> dict[str, np.ndarray]:
        """Return the inputs that depend only on the number n of rows of a batch."""
        known = {"batch_positions": np.arange(n, dtype=np.int64), "ones": np.ones((1, n), self.step.dtype.numpy())}
        return {self.step.inputs[role]: array for role, array in known.items() if role in self.step.inputs}

    def run(self, n_epochs: int, end: EpochEnd) -> None:
        """Run up to `n_epochs` epochs; `end` is called after each, when the state is up to date.

        Raises
        ------
        ConvergenceError
            The loss or a weight became infinite or NaN. The state is that after the previous epoch.
        """
        state = self.state
        n_left = state.first_epoch + n_epochs - state.epoch
        self._last_step = state.step + n_left * self.n_steps - 1
        try:
            while not state.stopped and state.epoch - state.first_epoch < n_epochs:
                loss = self._run_epoch()
                weights = self.bound.weights(copy=not self._large)
                rate = self._rates[self._behind - 1]
                check_finite(loss, weights.wholes.values(), state, rate)
                state.slots = self.bound.slots(copy=not self._large)
                kept = _in_files(weights) if self._large else weights
                end.take(kept, loss, rate, can_lower_rate=can_lower(self.settings.schedule, rate), pace=self._pace)
        except ConvergenceError:
            if self._large:  # the optimizer state is that of the failed epoch
                state.slots, state.slots_step = {}, state.step
            raise
        except KeyboardInterrupt:
            if self._large:
                state.weights = {name: np.array(w) for name, w in state.weights.items()}
            raise
        if self._large and state.epoch > state.first_epoch:
            state.weights = self.bound.weights(copy=False)  # avoids mapping the file in addition to the copies

    def _run_epoch(self) -> float:
        """Visit every row once; return the mean objective."""
        random_state = self.random_state if self.settings.shuffle else None
        if self._behind == len(self._rates) or self._plateaus != self.state.plateaus:
            self._look_ahead()
        first = self._behind // self.n_steps * self.n_batches
        scalars = self._scalars[first : first + self.n_batches]
        self.bound.restart(*self._counters)
        if self._at_hand is not None:
            order = self._rows.copy()
            if random_state is not None:
                random_state.shuffle(order)  # as permutation(), without its check for shared memory
            self._write_order(order, self._at_hand.weight)
            self._run_steps(scalars, None)
        else:
            begin, self._waited = time.perf_counter(), 0.0
            with closing(self.data.epoch(self.batch_size, random_state)) as batches:
                self._run_steps(scalars, self._fed(scalars, batches))
            seconds = time.perf_counter() - begin
            self._pace = Pace(self.n_rows / seconds, self._waited / seconds)
        self._behind += self.n_steps
        self.state.step += self.n_steps
        return self.bound.count("loss_sum") / self._total_weight

    def _run_steps(self, scalars: np.ndarray, fed: Iterator[None] | None) -> None:
        """Run the steps of an epoch; the batches come from `fed`, or the step gathers them."""
        for i, updates in enumerate(self._updates):
            if fed is not None:
                next(fed)
            self.bound.run(last=fed is None and i + 1 == self.n_batches)
            if self.state.first_loss is None:  # assumes that all batches have equal weight
                self.state.first_loss = self.bound.count("loss_sum") * self.n_batches / self._total_weight
            if updates:
                self.bound.update(scalars[i : i + 1])

    def _fed(self, scalars: np.ndarray, batches: Iterator[Batch]) -> Iterator[None]:
        """Bind the rows of each batch in turn."""
        k = self.settings.accumulate
        for start in range(0, self.n_batches, k):
            begin = time.perf_counter()
            of_step = list(islice(batches, k))
            self._waited += time.perf_counter() - begin
            weights = np.array([batch.weight for batch in of_step])
            some = scalars[start : start + k]
            some[:, 0] = 1 / np.add.reduceat(weights, [0])  # rounded as in _set_weights
            if OF_BATCH in self.step.step_scalars:
                some[:, self.step.step_scalars.index(OF_BATCH)] = weights
            for row, batch in zip(some, of_step, strict=True):
                self.bound.write(self.step.inputs["scalars"], row[None])
                self.bound.feed(self.step.feeds(batch.piece))
                yield

    def _look_ahead(self) -> None:
        """Compute the learning rates of the next steps, and the per-step scalars that the graph reads."""
        first, n_planned = self.state.first_step, max(self.settings.max_iter, 1) * self.n_steps
        steps = range(self.state.step, min(self.state.step + self._n_ahead, self._last_step + 1))
        self._rates = [self.settings.schedule(step - first, n_planned, self.state.plateaus) for step in steps]
        self._behind, self._plateaus = 0, self.state.plateaus
        since = 1 - self.state.slots_step
        scalars = self.optimizer.scalar_table(self._rates, np.arange(steps.start + since, steps.stop + since))
        n_epochs = self._n_ahead // self.n_steps
        of_row = (np.arange(n_epochs)[:, None] * self.n_steps + self._step_of).ravel()
        of_row = of_row[of_row < len(steps)]
        self._scalars[: len(of_row), 1 : 1 + scalars.shape[1]] = scalars[of_row]
        if self.step.gathered:
            self.bound.restart("index")
            self.bound.write(self.step.inputs["scalars"], self._scalars)

    def _write_order(self, order: np.ndarray, weight: np.ndarray | None) -> None:
        self.bound.write(self.step.inputs["rows"], order)
        if weight is not None:
            starts = np.arange(0, len(order), self.batch_size)
            self._set_weights(self._scalars, np.add.reduceat(weight[order, 0], starts, dtype=np.float64))
            self.bound.write(self.step.inputs["scalars"], self._scalars)


def can_lower(schedule: Schedule, learning_rate: float) -> bool:
    """Whether training continues at a lower learning rate after the loss reached a plateau."""
    return isinstance(schedule, Adaptive) and learning_rate > _SMALLEST_RATE


def check_finite(loss: float, weights: Iterable[np.ndarray], state: TrainingState, learning_rate: float) -> None:
    """Raise a ConvergenceError if the loss of an epoch, or a weight after it, is infinite or NaN."""
    if math.isfinite(loss) and all(map(_finite, weights)):
        return
    last = ", ".join(f"{value:.3g}" for value in state.loss_curve[-3:]) or "none"
    became = "A weight became infinite or NaN" if math.isfinite(loss) else f"The loss became {loss}"
    raise ConvergenceError(
        f"{became} in epoch {state.epoch + 1} at learning rate {learning_rate:.3g} (losses before: {last})."
    )


def _remedy(start: Weights, first: float) -> str:
    """Return the remedy for infinite or NaN values; `first` is the loss of the initial weights `start`."""
    if infinite := [name for name, w in start.items() if not _finite(w)]:
        return (
            f"{infinite[0]} is so before the first step, too. Fit the given model on rows for which it is finite. A "
            "PoissonRegressor, for example, needs counts above 0, which folds of sorted rows may lack: set "
            "cv=KFold(shuffle=True). Instead of a file with such weights, pass one from before its training failed."
        )
    if not math.isfinite(first):
        return (
            "It is so before the first step, too. Look for NaN and infinity in X, numpy.isfinite, and in a loss of "
            "your own for roots of negative numbers and logarithms of them or of 0. losses(X, y) shows the rows."
        )
    return "Lower learning_rate, scale the data, or set clip_norm."


def _in_files(weights: Parts[str]) -> Mapping[str, np.ndarray]:
    """Return copies of weights in files, or in memory if the disk is full."""
    try:
        return in_files([weights], {name: w.shape for name, w in weights.items()})
    except OSError:
        return {name: np.array(w) for name, w in weights.items()}


def _finite(w: np.ndarray) -> bool:
    """Whether all elements are finite; the sum of squares shows this at a third of the cost, unless it overflows."""
    return math.isfinite(np.vdot(w, w)) or bool(np.isfinite(w).all())
