"""The gradient rules of the operators, by family; importing a module registers its rules."""

from onnxtrain.autodiff.rules import (
    activation,
    cumulative,
    einsum,
    elementwise,
    flat,
    indexing,
    linalg,
    moving,
    reduction,
    scatter,
    shape,
    softmax,
    trigonometric,
)

__all__ = [
    "activation",
    "cumulative",
    "einsum",
    "elementwise",
    "flat",
    "indexing",
    "linalg",
    "moving",
    "reduction",
    "scatter",
    "shape",
    "softmax",
    "trigonometric",
]
