"""Learned attributes that are not trained: inputs of graphs that all fits share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onnxtrain
from onnxtrain import OrtGradientRegressor
from onnxtrain.training.step import build_step

X, y = load_diabetes(return_X_y=True)
X = X * np.linspace(10, 100, X.shape[1]) + 3
COMMON = {"loss": "huber", "dtype": "float64", "random_state": 0}


def outside(**params):
    """Return a model trained behind a scaler, one trained on scaled rows, and those rows."""
    scaler = StandardScaler().fit(X)
    scaled = scaler.transform(X)
    linear = LinearRegression().fit(scaled, y)
    pipeline = make_pipeline(scaler, linear)
    given = COMMON | params
    fit = {"X_val": X[:50], "y_val": y[:50]} if given.pop("validate", False) else {}
    inside = OrtGradientRegressor(pipeline, **given).fit(X, y, **fit)
    fit = {"X_val": scaled[:50], "y_val": y[:50]} if fit else {}
    return inside, OrtGradientRegressor(linear, **given).fit(scaled, y, **fit), scaled


@pytest.mark.parametrize(
    "params",
    [{"max_iter": 5}, {"max_iter": 5, "validate": True}, {"max_iter": 5, "l1": 0.1}, {"solver": "lbfgs"}],
    ids=["steps", "validation", "penalty", "lbfgs"],
)
@pytest.mark.filterwarnings("ignore:The validation set")
def test_a_scaler_inside_is_one_outside(params):
    inside, alone, scaled = outside(**params)
    assert inside._trained.rest.constants
    assert not alone._trained.rest.constants
    rtol = 1e-5 if params.get("solver") == "lbfgs" else 1e-9  # rounding decides where it stops
    for w, expected in zip(inside.weights_.values(), alone.weights_.values(), strict=True):
        np.testing.assert_allclose(w, expected, rtol=rtol)
    alone.weights_.update(zip(alone.weights_, inside.weights_.values(), strict=True))
    np.testing.assert_allclose(inside.losses(X, y), alone.losses(scaled, y), rtol=1e-9)
    scale = inside.estimator.named_steps["standardscaler"].scale_
    np.testing.assert_allclose(inside.gradient(X, y), alone.gradient(scaled, y) / scale, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("steps", [[StandardScaler()], [StandardScaler(), PCA(4)]], ids=["scaler", "scaler and PCA"])
def test_fits_on_other_rows_share_a_graph(steps):
    model = OrtGradientRegressor(make_pipeline(*steps, LinearRegression()), max_iter=1, **COMMON)
    first = clone(model).fit(X[:200], y[:200])
    built = build_step.cache.misses
    second = clone(model).fit(X[150:], y[150:])
    assert second._trained.rest == first._trained.rest
    assert build_step.cache.misses == built
    np.testing.assert_allclose(second.predict(X), second.to_sklearn().predict(X), rtol=1e-9)


def test_a_file_keeps_what_is_not_trained(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    model = OrtGradientRegressor(pipeline, max_iter=3, **COMMON).fit(X, y)
    onnxtrain.save(model, tmp_path / "model.onnx")
    kept = onnxtrain.load(tmp_path / "model.onnx")
    assert kept._trained.rest == model._trained.rest
    for w, expected in zip(
        kept.partial_fit(X, y).weights_.values(), model.partial_fit(X, y).weights_.values(), strict=True
    ):
        np.testing.assert_array_equal(w, expected)


def test_columns_by_name_are_prepared_once():
    frame = pd.DataFrame({"a": X[:, 2], "b": X[:, 3], "c": X[:, 8]})
    scaled = ColumnTransformer([("scaled", StandardScaler(), ["a", "c"])], remainder="passthrough")
    pipeline = make_pipeline(scaled, StandardScaler(), LinearRegression()).fit(frame, y)
    model = OrtGradientRegressor(pipeline, max_iter=0, **COMMON).fit(frame, y)
    np.testing.assert_allclose(model.predict(frame), pipeline.predict(frame), rtol=1e-6)  # columns are float32
    assert not model._trained.rest.constants
