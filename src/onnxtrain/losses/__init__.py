"""The losses: one value per row, by name.

:mod:`~onnxtrain.losses.regression` and :mod:`~onnxtrain.losses.classification`
hold one small function per loss, :mod:`~onnxtrain.losses.table` the table that
registers them.
"""

from typing import TYPE_CHECKING

from onnxtrain.attributes import of_module
from onnxtrain.losses import classification, regression  # noqa: F401  registers every loss
from onnxtrain.losses.table import LOSSES, Loss, Prediction, find_loss, loss, loss_kind, row_loss

__all__ = ["LOSSES", "Loss", "Prediction", "find_loss", "loss", "loss_kind", "row_loss"]

if not TYPE_CHECKING:
    __getattr__ = of_module(__name__, __all__, {name: f"Pass its name, loss={name!r}." for name in LOSSES})
