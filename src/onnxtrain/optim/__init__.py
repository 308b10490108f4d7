"""Optimizers as ONNX nodes, learning rates as functions of the step."""

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
