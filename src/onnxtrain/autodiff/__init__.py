"""Reverse-mode differentiation of ONNX graphs, in standard operators."""

from onnxtrain.autodiff import rules  # noqa: F401  registers every rule
from onnxtrain.autodiff.engine import active_values, backpropagate, blocking, sources
from onnxtrain.autodiff.registry import gradient, gradient_rule, no_gradient

__all__ = ["active_values", "backpropagate", "blocking", "gradient", "gradient_rule", "no_gradient", "sources"]
