"""Mistakes of users of scikit-learn in their first weeks: parameters in the wrong place, and remedies that work."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from onnxtrain import LoRA
from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import ArgumentTypeError, DataError, LossError, OptimizerError, ParameterError

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
SCALED = make_pipeline(StandardScaler(), Ridge())


def of_search(name):
    return f"To try several values, use GridSearchCV(model, {{{name!r}: [...]}})."


@pytest.mark.parametrize(
    "call, error, message",
    [
        # parameters of a loss
        (lambda: R(loss="quantile", q=0.9), ArgumentTypeError, "loss='quantile', loss_params={'q': 0.9}."),
        (lambda: R(loss="quantile", alpha=0.9), ArgumentTypeError, "loss='quantile', loss_params={'q': 0.9}."),
        (lambda: R(power=1.5), ArgumentTypeError, "loss='tweedie', loss_params={'power': 1.5}."),
        (
            lambda: R(loss="rmsle").fit(X, y),
            LossError,
            "It is the squared error of log(1 + y): TransformedTargetRegres",
        ),
        (
            lambda: R(loss="mape").fit(X, y),
            LossError,
            "loss='absolute_error' and fit(X, y, sample_weight=1 / numpy.abs(",
        ),
        (
            lambda: R(PoissonRegressor(), loss="poisson").fit(X, y - y.mean()),
            DataError,
            "do not standardize it. For other targets, use LinearRegression with loss='squared_error'.",
        ),
        (
            lambda: R(GammaRegressor()).fit(X, y - y.mean()),
            DataError,
            "use LinearRegression with loss='squared_error'.",
        ),
        # values of a search
        (lambda: R(l2=loguniform(1e-4, 1)).fit(X, y), ParameterError, "use RandomizedSearchCV(model, {'l2': distribut"),
        (lambda: R(l2=np.logspace(-3, 0, 3)).fit(X, y), ParameterError, of_search("l2")),
        (lambda: R(max_iter=range(3)).fit(X, y), ParameterError, of_search("max_iter")),
        (lambda: R(loss=("huber", "quantile")).fit(X, y), LossError, of_search("loss")),
        (lambda: R(learning_rate=(0.1, 0.01)).fit(X, y), OptimizerError, of_search("learning_rate")),
        (lambda: R(early_stopping=[True, False]).fit(X, y), ParameterError, of_search("early_stopping")),
        (lambda: R(loss_params=[{"q": 0.1}, {"q": 0.9}]).fit(X, y), ParameterError, of_search("loss_params")),
        (lambda: R(Ridge(), clip_norm=(-1, 1)).fit(X, y), ParameterError, "Pass the largest norm of all gradients"),
        (lambda: R(weights_to_train=LoRA(rank=[2, 4])).fit(X, y), ParameterError, of_search("weights_to_train__rank")),
        # the names of a search
        (lambda: R(Ridge()).set_params(estimator__ridge__alpha=2), ParameterError, "Did you mean 'estimator__alpha'?"),
        (
            lambda: R(Ridge()).set_params(model__l2=1),
            ParameterError,
            "has no parameter 'model__l2'. Did you mean 'l2'?",
        ),
        (lambda: R(SCALED).set_params(ortgradientregressor__verbose=1), ParameterError, "Did you mean 'verbose'?"),
        (lambda: R(Ridge()).set_params(ortgradientregressor__tol=1), ParameterError, "Did you mean 'tol'?"),
        (lambda: R(Ridge()).set_params(reg__tol=1), ParameterError, "Did you mean 'tol' or 'estimator__tol'?"),
        # others
        (lambda: R(learning_rate="exponential").fit(X, y), OptimizerError, "lambda step: 0.01 * 0.5 ** (step // 100)"),
        (
            lambda: R(init=Ridge()).fit(X, y),
            ParameterError,
            "'estimator' starts from the weights of estimator=, 'random'",
        ),
        (
            lambda: C().fit(IRIS[:50], SPECIES[:50]),
            DataError,
            "Pass rows of both; with partial_fit, all present and fut",
        ),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize("model, rows, targets", [(C(LogisticRegression()), IRIS, SPECIES), (R(SVR()), X, y)])
def test_one_column_of_a_frame_becomes_targets_as_the_message_says(model, rows, targets):
    column = pd.DataFrame({"kind": targets})
    with pytest.warns(DataConversionWarning, match=r"1d array was expected. Pass numpy.ravel\(y\)."):
        model.set_params(max_iter=1).fit(rows, column)
    model.fit(rows, np.ravel(column))  # filterwarnings = error


@pytest.mark.parametrize(
    "model, rows, targets, name, values",
    [
        (R(LinearRegression(), max_iter=1), X, y, "coef", np.arange(10.0)),
        (C(LogisticRegression(), max_iter=1), IRIS, SPECIES, "coef", np.arange(12.0).reshape(3, 4)),
    ],
)
def test_coefficients_of_scikit_learn_are_assigned_as_the_message_says(model, rows, targets, name, values):
    model.fit(rows, targets)
    with pytest.raises(DataError) as raised:
        model.weights_[name] = values
    code = str(raised.value).rpartition("Assign ")[2].removesuffix(".")
    model.weights_[name] = eval(code, {"numpy": np, "values": values})
    assert model.coef_.tolist() == values.tolist()
    with pytest.raises(DataError, match=r"got an array of shape \(2,\). Assign an array of its shape."):
        model.weights_[name] = [1.0, 2.0]
