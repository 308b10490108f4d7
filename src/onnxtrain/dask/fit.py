"""A fit whose rows are on the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxtrain.dask.rows import DistributedRows, Program
from onnxtrain.dask.steps import DistributedLoop
from onnxtrain.runtime.session import Place
from onnxtrain.training.lbfgs import LossAndGradient
from onnxtrain.training.state import Weights
from onnxtrain.training.train import Fit


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
