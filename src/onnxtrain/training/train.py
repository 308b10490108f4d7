"""One fit: run the solver, update the state, choose the resulting weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onnxtrain.errors import ConvergenceError
from onnxtrain.runtime.session import Place
from onnxtrain.training.data import EpochRows
from onnxtrain.training.evaluate import build_loss_and_gradient, loss_and_gradient, mean_loss
from onnxtrain.training.lbfgs import LossAndGradient, minimize_lbfgs
from onnxtrain.training.loop import Graphs, StepLoop
from onnxtrain.training.objective import Objective
from onnxtrain.training.settings import Settings
from onnxtrain.training.state import EpochEnd, Listener, Rise, TrainingState, Weights, keep_best, rise_of


@dataclass(frozen=True)
class Outcome:
    """How a fit ended.

    Attributes
    ----------
    interrupt : KeyboardInterrupt or None
        The interrupt that ended the fit.
    rise : Rise or None
        Set if the loss ended above its start; then better weights are kept.
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
    """

    objective: Objective
    data: EpochRows
    validation: EpochRows | None
    settings: Settings
    state: TrainingState
    start: Weights
    random_state: np.random.RandomState
    graphs: Graphs | None = None

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
        on_rows = self._mean_loss_on(self.data, loop.place)
        penalties = self.settings.penalties(self.objective.penalized)
        validate = None if self.validation is None else self._mean_loss_on(self.validation, loop.place)
        loss = validate or (lambda weights: on_rows(weights) + penalties.value(weights))
        end = EpochEnd(
            self.state, self.settings.tol, self.settings.n_iter_no_change, validate, self.settings.average, listeners
        )
        interrupt = None
        try:
            loop.run(n_epochs, end)
        except ConvergenceError as e:
            kept = keep_best(self.state, self.start, loss)
            raise ConvergenceError(f"{e} {kept} Lower learning_rate, scale the data, or set clip_norm.") from e
        except KeyboardInterrupt as e:
            interrupt = e

        def shuffled(weights: Weights) -> float:
            return self._mean_loss_on((self.validation or self.data).with_shuffled_labels(), loop.place)(weights)

        return Outcome(interrupt, rise_of(self.state, self.start, loss, shuffled, self.settings.tol, n_epochs))

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
        return Outcome()

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
