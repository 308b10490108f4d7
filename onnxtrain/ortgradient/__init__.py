"""Forward and backward of an ONNX model with the caller's own loss in between."""

from onnxtrain.ortgradient._factory import OrtGradientForwardBackward
from onnxtrain.ortgradient._function import OrtGradientForwardBackwardFunction

__all__ = ["OrtGradientForwardBackward", "OrtGradientForwardBackwardFunction"]
