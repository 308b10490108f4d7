"""The one home of onnxruntime-training's private interface: its gradient builders, prepared for and checked.

onnxruntime-training 1.19.2 derives graphs of opset 21 and IR version 10 at most.
It lacks operators and is silently wrong for some: :func:`derive` gives it an
equivalent graph where there is one and refuses where there is none. PyTorch is
not needed.
"""

from onnxtrain.training_build._append import append_gradients
from onnxtrain.training_build._derive import derive
from onnxtrain.training_build._native import advice, installed, is_available, require

__all__ = ["advice", "append_gradients", "derive", "installed", "is_available", "require"]
