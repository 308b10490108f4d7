"""Conversion of scikit-learn estimators to ONNX graphs; the only package that uses skl2onnx."""

from onnxtrain.convert import additions  # noqa: F401  (imported for the converters that it files)
from onnxtrain.convert.bind import Conversion, convert
from onnxtrain.convert.check import answer, compare
from onnxtrain.convert.custom import converter
from onnxtrain.convert.failures import documentation
from onnxtrain.convert.learned import Binding, holds
from onnxtrain.convert.sklearn import newest_opset, register_converter, registered_converters
from onnxtrain.convert.thresholds import HISTOGRAMS

__all__ = [
    "HISTOGRAMS",
    "Binding",
    "Conversion",
    "answer",
    "compare",
    "convert",
    "converter",
    "documentation",
    "holds",
    "newest_opset",
    "register_converter",
    "registered_converters",
]
