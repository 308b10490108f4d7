"""Faults of the predecessor of this package, one test each; the rest of the list is in other modules.

Weights against losses, signs, and names: ``test_loss_helper``; flags, order and types of
inputs: ``test_grad_helper``; rows, warm starts, validation sets, divergence: ``test_fit``;
copies and unknown parameters: ``test_search_and_keep``.
"""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.optim import SGD
from onnxtrain.training.bound import BoundStep

X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_penalties_spare_intercepts(penalty):
    model = OrtGradientRegressor(solver="lbfgs", dtype="float64", **{penalty: 1e4}).fit(X, y)
    np.testing.assert_allclose(model.weights_["coef"], 0, atol=0.1)
    np.testing.assert_allclose(model.weights_["intercept"], y.mean(), rtol=1e-4)


@pytest.mark.parametrize("learning_rate", [1e-3, 1e-2])
def test_a_penalty_is_scaled_by_the_learning_rate(learning_rate):
    linear = LinearRegression().fit(X, y)
    params = dict(solver=SGD(), learning_rate=learning_rate, max_iter=1, batch_size=len(X), dtype="float64")
    plain = OrtGradientRegressor(linear, **params).fit(X, y).weights_["coef"]
    shrunk = OrtGradientRegressor(linear, l2=0.1, **params).fit(X, y).weights_["coef"]
    expected = learning_rate * 2 * 0.1 * linear.coef_.reshape(-1, 1)
    np.testing.assert_allclose(plain - shrunk, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("loss", ["absolute_error", "elastic"])
def test_losses_with_kinks_fall(loss):
    model = OrtGradientRegressor(LinearRegression(), loss=loss, init="random", learning_rate=1.0, random_state=0)
    model.fit(X, y)
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]


def test_score_is_of_all_rows():
    model = OrtGradientRegressor(max_iter=3, random_state=0).fit(X, y)
    error = y - model.predict(X)
    expected = 1 - (error @ error) / ((y - y.mean()) @ (y - y.mean()))
    assert model.score(X, y) == model.score(X, y) == pytest.approx(expected)


def test_a_batch_is_one_run(monkeypatch):
    runs = []
    monkeypatch.setattr(BoundStep, "run", lambda self, run=BoundStep.run, **how: (runs.append(1), run(self, **how)))
    OrtGradientRegressor(max_iter=3, batch_size=100, random_state=0).fit(X, y)
    assert len(runs) == 3 * 5  # 442 rows


def test_weights_come_in_any_order():
    a, b = (
        OrtGradientRegressor(weights_to_train=names, max_iter=2, random_state=0).fit(X, y).weights_
        for names in (("intercept", "coef"), ("coef", "intercept"))
    )
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)
