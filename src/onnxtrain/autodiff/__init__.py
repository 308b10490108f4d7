"""Reverse-mode differentiation of ONNX graphs, in standard operators."""

from onnxtrain.autodiff import rules  # noqa: F401  registers every rule
from onnxtrain.autodiff.engine import backpropagate, blocking, dependents, sources
from onnxtrain.autodiff.registry import gradient, gradient_rule, no_gradient

__all__ = ["backpropagate", "blocking", "dependents", "gradient", "gradient_rule", "no_gradient", "sources"]
