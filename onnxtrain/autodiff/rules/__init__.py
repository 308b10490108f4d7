"""The gradient rules of the operators, by family; importing a module registers its rules."""

from onnxtrain.autodiff.rules import (
    activation,
    conv,
    cumulative,
    einsum,
    elementwise,
    flat,
    indexing,
    linalg,
    moving,
    normalization,
    pooling,
    reduction,
    scatter,
    shape,
    softmax,
    trigonometric,
)

__all__ = [
    "activation",
    "conv",
    "cumulative",
    "einsum",
    "elementwise",
    "flat",
    "indexing",
    "linalg",
    "moving",
    "normalization",
    "pooling",
    "reduction",
    "scatter",
    "shape",
    "softmax",
    "trigonometric",
]
