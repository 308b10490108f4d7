"""Gradients, intermediate results, coefficients and pictures of trained models."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from onnxtrain import LossCurveDisplay, OrtGradientClassifier, OrtGradientRegressor, WeightsDisplay
from onnxtrain.errors import DataError, ExportError, ModelError
from onnxtrain.estimators.trained import TrainedModel

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")


def differences(function, X, step=1e-5):
    """Return the central differences of a function of rows, (n_samples, n_features, ...)."""
    shifts = step * np.eye(X.shape[1])
    return np.stack([(function(X + s) - function(X - s)) / (2 * step) for s in shifts], axis=1)


@pytest.fixture(scope="module")
def regressor():
    mlp = MLPRegressor(hidden_layer_sizes=(6,), activation="tanh", max_iter=20, random_state=0)
    return OrtGradientRegressor(mlp, dtype="float64", max_iter=5, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def classifier():
    mlp = MLPClassifier(hidden_layer_sizes=(6,), activation="tanh", max_iter=20, random_state=0)
    return OrtGradientClassifier(mlp, dtype="float64", max_iter=5, random_state=0).fit(IRIS, SPECIES)


def test_gradient_of_the_output(regressor):
    found = regressor.gradient(X[:7])
    np.testing.assert_allclose(found, differences(regressor.predict, X[:7]), rtol=1e-5, atol=1e-7)


def test_gradient_of_the_loss(regressor):
    found = regressor.gradient(X[:7], y[:7])
    expected = differences(lambda rows: regressor.losses(rows, y[:7]), X[:7])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_gradient_of_each_score(classifier):
    found = classifier.gradient(IRIS[::20])
    assert found.shape == (8, 4, 3)
    np.testing.assert_allclose(found, differences(classifier.decision_function, IRIS[::20]), rtol=1e-5, atol=1e-7)


def test_gradient_with_respect_to_what_is_not_there(regressor):
    with pytest.raises(DataError, match="The model has no input 'coefs_0'. Its inputs are X"):
        regressor.gradient(X, wrt="coefs_0")


def test_embed_is_a_hidden_layer(regressor):
    names = [node.output[0] for node in regressor.get_trained_onnx().graph.node if node.op_type == "Tanh"]
    w = regressor.weights_
    expected = np.tanh(X @ w["coefs_0"] + w["intercepts_0"])
    np.testing.assert_allclose(regressor.embed(X, names[0]), expected, rtol=1e-6, atol=1e-9)
    with pytest.raises(ModelError, match="The model has no result 'hidden'"):
        regressor.embed(X, "hidden")


def test_coefficients_of_linear_models():
    model = OrtGradientRegressor(LinearRegression(), max_iter=3).fit(X, y)
    np.testing.assert_allclose(model.coef_, model.weights_["coef"].ravel(), rtol=1e-6)
    assert model.coef_.shape == (10,)
    several = OrtGradientClassifier(LogisticRegression(max_iter=500), max_iter=3).fit(IRIS, SPECIES)
    assert several.coef_.shape == (3, 4)
    assert several.intercept_.shape == (3,)
    chosen = SelectFromModel(OrtGradientRegressor(LinearRegression(), l1=1.0, solver="lbfgs"), max_features=3).fit(X, y)
    assert chosen.get_support().sum() == 3


def test_networks_and_onnx_have_no_coefficients(regressor):
    assert not hasattr(regressor, "coef_")
    model = OrtGradientRegressor(regressor.get_trained_onnx(), max_iter=1).fit(X, y)
    assert not hasattr(model, "coef_")
    with pytest.raises(ExportError, match="the model was passed as ONNX"):
        model.to_sklearn()


def test_displays(regressor):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    early = OrtGradientRegressor(early_stopping=True, max_iter=5, random_state=0).fit(X, y)
    display = LossCurveDisplay.from_estimator(early, linewidth=2)
    assert [line.get_label() for line in display.lines_] == ["training", "validation"]
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), early.loss_curve_)
    assert display.lines_[0].get_linewidth() == 2
    on_top = LossCurveDisplay.from_estimator(regressor, ax=display.ax_)
    assert on_top.ax_ is display.ax_
    boxes = WeightsDisplay.from_estimator(regressor)
    assert len(boxes.boxes_["boxes"]) == len(regressor.weights_)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_coefficients_of_an_estimator_that_cannot_be_written_are_no_attribute(monkeypatch):
    model = OrtGradientRegressor(LinearRegression(), max_iter=1).fit([[0.0], [1.0]], [1.0, 3.0])

    def refuse(self):
        raise ExportError("cannot be written back")

    monkeypatch.setattr(TrainedModel, "to_sklearn", refuse)
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="cannot be written back"):
        _ = model.intercept_
