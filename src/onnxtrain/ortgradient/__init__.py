"""Forward and backward passes of an ONNX model, between which the caller computes a loss."""

from onnxtrain.ortgradient._factory import OrtGradientForwardBackward
from onnxtrain.ortgradient._function import OrtGradientForwardBackwardFunction

__all__ = ["OrtGradientForwardBackward", "OrtGradientForwardBackwardFunction"]
