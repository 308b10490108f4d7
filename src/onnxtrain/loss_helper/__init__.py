"""Adds a loss, and penalties on weights, to a model."""

from onnxtrain.loss_helper.batch import add_loss_output
from onnxtrain.loss_helper.penalty import add_penalty, check_penalty, get_train_initializer, penalty_loss_onnx
from onnxtrain.loss_helper.rows import add_row_loss
from onnxtrain.losses import loss_kind

__all__ = [
    "add_loss_output",
    "add_penalty",
    "add_row_loss",
    "check_penalty",
    "get_train_initializer",
    "loss_kind",
    "penalty_loss_onnx",
]
