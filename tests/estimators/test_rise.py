"""A fit that ends far above where it began, in finite numbers, warns; no other does."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientRegressor
from onnxtrain.optim import SGD

X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)

RISES = {
    "sgd": dict(solver="sgd", learning_rate=0.6, batch_size=len(X), max_iter=100, init="random"),
    "stopped": dict(solver="sgd", learning_rate=0.55, max_iter=200, n_iter_no_change=3),
    "adam, up and half way down": dict(learning_rate=100.0, max_iter=30),
    "clipped": dict(solver="sgd", learning_rate=10.0, clip_norm=1.0, max_iter=30),
    "averaged": dict(solver="sgd", learning_rate=0.55, max_iter=20, average=True),
    "in the first epoch": dict(solver="sgd", learning_rate=0.6, batch_size=32, max_iter=1),
}
STEADY = {
    "ordinary": dict(learning_rate=0.1, max_iter=20),
    "noisy": dict(solver=SGD(momentum=0.9), learning_rate=3e-4, batch_size=1, max_iter=3),
    "no epoch": dict(max_iter=0),
    "penalized": dict(l1=0.5, l2=0.5, learning_rate=0.1, max_iter=30),
}


def worse(params):
    """Return a fit, the objective before it and after it."""
    model = OrtGradientRegressor(random_state=0, **params)
    start = OrtGradientRegressor(random_state=0, **params).set_params(max_iter=0).fit(X, y)
    return model, start.losses(X, y).mean()


@pytest.mark.parametrize("name", RISES)
def test_a_rise_warns(name):
    model, before = worse(RISES[name])
    with pytest.warns(ConvergenceWarning, match="The loss rose from .* Lower learning_rate, scale the data") as found:
        model.fit(X, y)
    (message,) = {str(w.message) for w in found}
    assert f"from {before:.3g} to {model.losses(X, y).mean():.3g}; " in message
    assert f"last step was {RISES[name]['learning_rate']:.3g}." in message


@pytest.mark.parametrize("name", STEADY)
def test_others_do_not(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrtGradientRegressor(random_state=0, **STEADY[name]).fit(X, y)


def test_the_best_weights_of_a_validation_set_are_no_rise():
    params = dict(solver="sgd", learning_rate=0.55, max_iter=20, random_state=0)
    model = OrtGradientRegressor(**params).fit(X, y, X_val=X, y_val=y)  # filterwarnings = error
    assert model.loss_curve_[-1] > 1e6
    assert model.losses(X, y).mean() < 20


def test_a_perfect_fit_that_steps_leave_is_no_rise():
    target = X @ np.arange(10.0)
    start = LinearRegression().fit(X, target)
    model = OrtGradientRegressor(start, max_iter=5, random_state=0).fit(X, target)
    assert model.losses(X, target).mean() > 1e3 * np.mean((start.predict(X) - target) ** 2)


def test_an_outlier_outside_the_first_batch_is_no_rise():
    target = y.copy()
    target[-1] = 1e4
    model = OrtGradientRegressor(shuffle=False, batch_size=32, max_iter=2, init="random", random_state=0)
    model.fit(X, target)
    assert model.loss_curve_[-1] > 1e4


def test_partial_fit_warns_as_well():
    model = OrtGradientRegressor(solver="sgd", learning_rate=0.6, batch_size=32, random_state=0)
    with pytest.warns(ConvergenceWarning, match="The loss rose"):
        model.partial_fit(X, y)
