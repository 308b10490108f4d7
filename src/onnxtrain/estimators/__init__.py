"""scikit-learn estimators that train ONNX graphs."""

from onnxtrain.estimators.classifier import OrtGradientClassifier
from onnxtrain.estimators.display import LossCurveDisplay, WeightsDisplay
from onnxtrain.estimators.regressor import OrtGradientRegressor

__all__ = ["LossCurveDisplay", "OrtGradientClassifier", "OrtGradientRegressor", "WeightsDisplay"]
