"""scikit-learn estimators as ONNX graphs: the one home of skl2onnx."""

from onnxtrain.convert.bind import Conversion, convert
from onnxtrain.convert.binding import Binding
from onnxtrain.convert.check import answer, compare
from onnxtrain.convert.own import ConvertsToOnnx, converter
from onnxtrain.convert.sklearn import documentation, register_converter, registered_converters
from onnxtrain.convert.weights import Weight, default_weights, select_weights

__all__ = [
    "Binding",
    "Conversion",
    "ConvertsToOnnx",
    "Weight",
    "answer",
    "compare",
    "convert",
    "converter",
    "default_weights",
    "documentation",
    "register_converter",
    "registered_converters",
    "select_weights",
]
