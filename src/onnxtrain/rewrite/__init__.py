"""ai.onnx.ml operators rewritten into ai.onnx, with their parameters as named initializers."""

from onnxtrain.rewrite import (  # noqa: F401  (imported for the rules they register)
    features,
    kernels,
    linear,
    sequences,
    trees,
)
from onnxtrain.rewrite.engine import rewrite_model, rewritten
from onnxtrain.rewrite.registry import REWRITES, rewrite

__all__ = ["REWRITES", "rewrite", "rewrite_model", "rewritten"]
