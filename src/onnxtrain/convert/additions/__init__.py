"""Converters for scikit-learn classes that skl2onnx lacks or converts wrongly, by family."""

from onnxtrain.convert.additions import (  # noqa: F401  (imported for the converters that they file)
    calibration,
    chains,
    gaussian_process,
    imputation,
    kernels,
    linear,
    neighbors,
    projections,
    splines,
    transformations,
)
