"""Optimizers as ONNX nodes, learning rates as functions of the step."""

from onnxtrain.optim._base import OPTIMIZERS, Optimizer, make_optimizer, optimizer
from onnxtrain.optim.clipping import clip_by_global_norm, clip_factor
from onnxtrain.optim.first_order import SGD, Adagrad, Adam, AdamW, RMSprop
from onnxtrain.optim.proximal import Proximal
from onnxtrain.optim.schedules import (
    SCHEDULES,
    Adaptive,
    Constant,
    Cosine,
    InverseScaling,
    OneCycle,
    Schedule,
    make_schedule,
)

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
    "Optimizer",
    "Proximal",
    "RMSprop",
    "Schedule",
    "clip_by_global_norm",
    "clip_factor",
    "make_optimizer",
    "make_schedule",
    "optimizer",
]
