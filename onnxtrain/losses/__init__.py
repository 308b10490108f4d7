"""The losses: one value a row, by name.

:mod:`~onnxtrain.losses.regression` and :mod:`~onnxtrain.losses.classification`
hold one small function each, :mod:`~onnxtrain.losses.table` the table that they
are found in.
"""

from onnxtrain.losses import classification, regression  # noqa: F401  registers every loss
from onnxtrain.losses.table import LOSSES, Loss, Prediction, find_loss, loss, loss_kind, row_loss

__all__ = ["LOSSES", "Loss", "Prediction", "find_loss", "loss", "loss_kind", "row_loss"]
