"""scikit-learn estimators as ONNX graphs: the one home of skl2onnx."""

from onnxtrain.convert.binding import Binding
from onnxtrain.convert.converter import Conversion, convert
from onnxtrain.convert.converters import register_converter
from onnxtrain.convert.weights import Weight, default_weights, trainable_weights

__all__ = ["Binding", "Conversion", "Weight", "convert", "default_weights", "register_converter", "trainable_weights"]
