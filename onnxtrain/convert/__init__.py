"""scikit-learn estimators as ONNX graphs: the one home of skl2onnx."""

from onnxtrain.convert.binding import Binding
from onnxtrain.convert.converter import Conversion, compare, convert
from onnxtrain.convert.converters import register_converter, registered_converters
from onnxtrain.convert.embed import ConvertsToOnnx
from onnxtrain.convert.weights import Weight, default_weights, select_weights, trainable_weights

__all__ = [
    "Binding",
    "Conversion",
    "ConvertsToOnnx",
    "Weight",
    "compare",
    "convert",
    "default_weights",
    "register_converter",
    "registered_converters",
    "select_weights",
    "trainable_weights",
]
