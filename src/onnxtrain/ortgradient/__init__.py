"""Forward and backward passes of an ONNX model with the caller's loss in between."""

from onnxtrain.ortgradient._factory import OrtGradientForwardBackward
from onnxtrain.ortgradient._function import OrtGradientForwardBackwardFunction

__all__ = ["OrtGradientForwardBackward", "OrtGradientForwardBackwardFunction"]
