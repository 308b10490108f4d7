"""The list of the trainable weights of a model."""

from __future__ import annotations

import numpy as np
import onnx
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import onnxtrain
from onnxtrain import OrtGradientRegressor
from onnxtrain.errors import ParameterError


def test_weights_are_listed_of_whatever_holds_some(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, y)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model.steps[-1][1], X[:1].astype(np.float32)).SerializeToString())
    listed = [w.name for w in onnxtrain.trainable_weights(model)]
    assert listed == [
        "standardscaler.mean",
        "standardscaler.scale",
        "linearregression.coef",
        "linearregression.intercept",
    ]
    assert onnxtrain.trainable_weights(tuned) == onnxtrain.trainable_weights(model)
    plain = OrtGradientRegressor(path, max_iter=1).fit(X, y)
    for source in (path, str(path), path.read_bytes(), onnx.load(path), plain):
        assert [(w.shape, w.kind) for w in onnxtrain.trainable_weights(source)] == [
            ((10, 1), "weight"),
            ((1,), "weight"),
        ]


def test_weights_are_listed_of_columns_by_name():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": ["x", "y", "x"]})
    columns = ColumnTransformer([("a", StandardScaler(), ["a"]), ("b", OneHotEncoder(), ["b"])])
    model = make_pipeline(columns, LinearRegression()).fit(frame, [0.0, 1.0, 2.0])
    assert onnxtrain.trainable_weights(model, frame)[-1].name == "linearregression.intercept"


@pytest.mark.parametrize("model, error", [(LinearRegression(), NotFittedError), (3, ParameterError)])
def test_no_weights_are_listed_of_what_has_none(model, error):
    with pytest.raises(error):
        onnxtrain.trainable_weights(model)
