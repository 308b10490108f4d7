"""Optimizers as ONNX nodes, learning rates as functions of the step."""

from typing import TYPE_CHECKING

from onnxtrain.attributes import of_module
from onnxtrain.optim.base import OPTIMIZERS, Optimizer, make_optimizer, optimizer
from onnxtrain.optim.first_order import SGD, Adagrad, Adam, AdamW, RMSprop
from onnxtrain.optim.schedules import (
    SCHEDULES,
    Adaptive,
    Constant,
    Cosine,
    InverseScaling,
    OneCycle,
    Optimal,
    Schedule,
    make_schedule,
)
from onnxtrain.optim.wrappers import Proximal, global_norm_factor

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adaptive",
    "Constant",
    "Cosine",
    "InverseScaling",
    "OneCycle",
    "Optimal",
    "Optimizer",
    "Proximal",
    "RMSprop",
    "Schedule",
    "global_norm_factor",
    "make_optimizer",
    "make_schedule",
    "optimizer",
]

_FUNCTION = "Pass a function of the step: learning_rate=lambda step: 0.1 * 0.999**step."

#: Names of other libraries, and what to use instead.
_REMEDIES = {
    "LBFGS": "Set solver='lbfgs'.",
    "CosineAnnealingLR": "Use Cosine.",
    "CosineDecay": "Use Cosine.",
    "ReduceLROnPlateau": "Use Adaptive.",
    "lr_scheduler": "The schedules are Adaptive, Constant, Cosine, InverseScaling, OneCycle and Optimal.",
    **dict.fromkeys(("ExponentialDecay", "ExponentialLR", "LambdaLR", "LinearLR", "StepLR"), _FUNCTION),
}

if not TYPE_CHECKING:
    __getattr__ = of_module(__name__, __all__, _REMEDIES)
