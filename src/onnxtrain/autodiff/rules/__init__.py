"""The gradient rules of the operators, by family; importing a module registers its rules."""

from onnxtrain.autodiff.rules import (  # noqa: F401  (imported for the rules they register)
    activation,
    control_flow,
    conv,
    elementwise,
    fourier,
    indexing,
    interpolation,
    linalg,
    non_differentiable,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    shape,
    slice_pad,
)
