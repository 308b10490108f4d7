"""Metadata routing: sample weights and validation sets are passed to ``fit`` through meta-estimators."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_diabetes
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
X, y, X_val, y_val = X[:300] * 40, y[:300], X[300:] * 40, y[300:]
WEIGHT = np.linspace(0, 2, len(y))


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def tuned(**params):
    return OrtGradientRegressor(LinearRegression(), max_iter=3, random_state=0, learning_rate=0.1, **params)


def same(a, b):
    for name, w in a.weights_.items():
        np.testing.assert_array_equal(b.weights_[name], w)
    assert a.validation_loss_curve_ == b.validation_loss_curve_


@pytest.mark.parametrize("kind", [OrtGradientRegressor, OrtGradientClassifier])
def test_what_can_be_asked_for(kind):
    requests = kind().get_metadata_routing()
    assert {"sample_weight", "X_val", "y_val", "sample_weight_val"} <= set(requests.fit.requests)
    assert "sample_weight" in requests.partial_fit.requests
    assert "sample_weight" in requests.score.requests
    kind().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)


def test_pipeline_transforms_the_validation_set():
    request = dict(sample_weight=True, X_val=True, y_val=True, sample_weight_val=True)
    model = make_pipeline(
        StandardScaler().set_fit_request(sample_weight=False),
        tuned().set_fit_request(**request),
        transform_input=["X_val"],
    )
    model.fit(X, y, sample_weight=WEIGHT, X_val=X_val, y_val=y_val, sample_weight_val=y_val)
    scaler = StandardScaler().fit(X)
    expected = tuned().fit(
        scaler.transform(X),
        y,
        sample_weight=WEIGHT,
        X_val=scaler.transform(X_val),
        y_val=y_val,
        sample_weight_val=y_val,
    )
    assert len(expected.validation_loss_curve_) == 3
    same(expected, model[-1])


def test_grid_search_and_cross_validation():
    model = tuned().set_fit_request(sample_weight=True, X_val=True, y_val=True).set_score_request(sample_weight=True)
    given = dict(sample_weight=WEIGHT, X_val=X_val, y_val=y_val)
    search = GridSearchCV(model, {"l2": [0.0, 10.0]}, cv=2, error_score="raise").fit(X, y, **given)
    same(tuned(**search.best_params_).fit(X, y, **given), search.best_estimator_)
    half = len(y) // 2
    expected = tuned().fit(X[half:], y[half:], WEIGHT[half:], X_val=X_val, y_val=y_val)
    found = cross_validate(model, X, y, cv=2, params=given, return_estimator=True, error_score="raise")
    same(expected, found["estimator"][0])
    assert found["test_score"][0] == expected.score(X[:half], y[:half], WEIGHT[:half])


def test_stacking():
    model = tuned().set_fit_request(sample_weight=True)
    stack = StackingRegressor([("tuned", model)], Ridge().set_fit_request(sample_weight=False), cv=2)
    same(tuned().fit(X, y, WEIGHT), stack.fit(X, y, sample_weight=WEIGHT).named_estimators_["tuned"])


def test_a_pipeline_inside_takes_its_weights_itself():
    inner = make_pipeline(StandardScaler(), LinearRegression())
    weighted = OrtGradientRegressor(inner, max_iter=0).fit(X, y, WEIGHT)
    assert not np.allclose(weighted.predict(X), OrtGradientRegressor(inner, max_iter=0).fit(X, y).predict(X))
