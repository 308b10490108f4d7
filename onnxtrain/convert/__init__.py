"""scikit-learn estimators as ONNX graphs: the one home of skl2onnx."""

from onnxtrain.convert.bind import Conversion, convert
from onnxtrain.convert.check import answer, compare
from onnxtrain.convert.learned import Binding
from onnxtrain.convert.own import ConvertsToOnnx, converter
from onnxtrain.convert.sklearn import documentation, register_converter, registered_converters
from onnxtrain.convert.thresholds import compares_float64

__all__ = [
    "Binding",
    "Conversion",
    "ConvertsToOnnx",
    "answer",
    "compare",
    "compares_float64",
    "convert",
    "converter",
    "documentation",
    "register_converter",
    "registered_converters",
]
