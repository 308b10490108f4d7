"""Mistakes in calls, callbacks and cross-validation, as users of other libraries make them: each has a remedy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import StackingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import ArgumentTypeError, LossError, ModelError, ParameterError

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
RECORDS = np.array([tuple(row) for row in X], dtype=[(f"x{i}", float) for i in range(10)])
SOME = RECORDS[["x0", "x2", "x3"]]  # as of numpy.genfromtxt(names=True), without the target


def stops(info):
    raise StopIteration


def first_and_second_derivative(op, y_true, y_pred):
    return y_pred - y_true, y_pred * 0.0 + 1.0


def of_ones(op, y_true, y_pred):
    return np.ones_like(y_true) * abs(y_true - y_pred)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: R().fit(SOME, y), ArgumentTypeError, "Convert the fields to columns: pandas.DataFrame(X)."),
        (lambda: R(max_iter=-1).fit(X, y), ParameterError, "Got -1 instead. Pass a large number for no limit: tol"),
        (lambda: R(loss=first_and_second_derivative).fit(X, y), LossError, "Return the loss alone: unlike in XGBoost"),
        (lambda: R(loss=of_ones).fit(X, y), LossError, "numpy.ones_like here. Use a number, such as 1.0, for all rows"),
        (
            lambda: R(max_iter=2).fit(X, y, callback=stops),
            ParameterError,
            "StopIteration after epoch 1. To stop, return",
        ),
        (lambda: R(max_iter=1).fit(X, y).embed(X), ArgumentTypeError, "lists those of the results: embed(X, '?')."),
        (lambda: R(max_iter=1).fit(X, y).embed(X, "?"), ModelError, "The model has no result '?'. Known: "),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def test_fields_become_columns_as_the_message_says():
    tuned = R(make_pipeline(StandardScaler(), Ridge()), max_iter=1).fit(pd.DataFrame(SOME), y)
    assert tuned.feature_names_in_.tolist() == ["x0", "x2", "x3"]


FITTED = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
FOLDS = KFold(3)


@pytest.mark.parametrize("validate", [cross_val_score, cross_validate, cross_val_predict, learning_curve])
@pytest.mark.parametrize("around", [lambda tuned: tuned, lambda tuned: make_pipeline(StandardScaler(), tuned)])
def test_a_fitted_estimator_in_the_folds_of_a_cross_validation_is_warned_of(validate, around):
    with pytest.warns(UserWarning, match="Pipeline is fitted and stays so in each fold. .* the scores are too good"):
        validate(around(R(FITTED, max_iter=1)), X, y, cv=FOLDS)


@pytest.mark.parametrize("model", [clone(FITTED), FrozenEstimator(FITTED)])
def test_what_the_warning_of_seen_folds_says_is_not_warned_of(model):  # filterwarnings = error
    cross_val_score(R(model, max_iter=1), X, y, cv=FOLDS)


def test_a_frozen_estimator_is_trained_like_the_one_inside():
    tuned, frozen = (R(model, max_iter=2, random_state=0).fit(X, 2 * y) for model in (FITTED, FrozenEstimator(FITTED)))
    np.testing.assert_array_equal(tuned.predict(X), frozen.predict(X))


def test_a_search_or_an_ensemble_of_fitted_estimators_is_not_warned_of():  # filterwarnings = error
    tuned = R(FITTED, max_iter=1)
    GridSearchCV(tuned, {"l2": [0, 0.1]}, cv=FOLDS).fit(X, 2 * y)
    StackingRegressor([("tuned", tuned)], cv=FOLDS).fit(X, 2 * y)
    clone(tuned).fit(X, 2 * y)
