"""scikit-learn estimators that train ONNX graphs."""

from onnxtrain.estimators.classifier import OrtGradientClassifier
from onnxtrain.estimators.regressor import OrtGradientRegressor

__all__ = ["OrtGradientClassifier", "OrtGradientRegressor"]
