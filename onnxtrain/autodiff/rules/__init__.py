"""The gradient rules of the operators, by family; importing a module registers its rules."""

from onnxtrain.autodiff.rules import activation, elementwise, linalg, reduction, shape, softmax

__all__ = ["activation", "elementwise", "linalg", "reduction", "shape", "softmax"]
