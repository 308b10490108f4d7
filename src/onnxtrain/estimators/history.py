"""The history of training: losses and learning rates per epoch, and how training ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtrain.training.state import TrainingState


@dataclass(frozen=True, repr=False)
class History:
    """The losses and learning rates of all epochs, and how the last fit ended.

    Attributes
    ----------
    loss : tuple of float
        The objective, averaged over each epoch.
    validation_loss : tuple of float
        The validation loss after each epoch; NaN for epochs without a validation set, empty if no epoch had one.
    learning_rate : tuple of float
        The learning rate of the last step of each epoch; 1 for an iteration of L-BFGS.
    best_epoch : int
        The epoch with the lowest monitored loss, from 1.
    ending : str
        How the last fit ended and why, such as ``"stopped after 12 of 30: best epoch 2"``.
    """

    loss: tuple[float, ...]
    validation_loss: tuple[float, ...]
    learning_rate: tuple[float, ...]
    best_epoch: int
    ending: str

    def __len__(self) -> int:
        """Return the number of epochs."""
        return len(self.loss)

    def __repr__(self) -> str:
        return f"<History of {len(self)} epochs: {self.ending}>"

    def to_frame(self) -> Any:
        """Return a pandas frame with one row per epoch.

        Examples
        --------
        >>> from onnxtrain import OrtGradientRegressor
        >>> model = OrtGradientRegressor(max_iter=3, learning_rate=0.1, init="random", random_state=0)
        >>> frame = model.fit([[0.0], [1.0]], [0.0, 1.0]).history_.to_frame()
        >>> frame.index.tolist(), frame["learning_rate"].tolist(), list(frame.columns)
        ([1, 2, 3], [0.1, 0.1, 0.1], ['loss', 'learning_rate'])
        """
        import pandas as pd  # optional

        columns = {"loss": self.loss, "validation_loss": self.validation_loss, "learning_rate": self.learning_rate}
        epochs = pd.RangeIndex(1, len(self) + 1, name="epoch")
        return pd.DataFrame({name: values for name, values in columns.items() if values}, index=epochs)


def history_of(state: TrainingState) -> History:
    """Return the history that a training state has recorded."""
    n, ending = state.epoch, state.ending or f"{state.epoch} epochs"
    validation = _for_each(state.validation_loss_curve, n) if state.validation_loss_curve else ()
    return History(tuple(state.loss_curve), validation, _for_each(state.rates, n), state.best_epoch, ending)


def _for_each(values: list[float], n: int) -> tuple[float, ...]:
    """Return values of the last epochs as one value per epoch, NaN for the epochs before."""
    return (*[np.nan] * (n - len(values)), *values)
