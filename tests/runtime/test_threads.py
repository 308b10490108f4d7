"""One thread of BLAS between runs of onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_info, threadpool_limits

from onnxtrain import OrtGradientRegressor
from onnxtrain.training.lbfgs import Penalties, minimize_lbfgs


def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield
        assert threads() == {2}


def test_one_thread_while_lbfgs_runs():
    seen, points = [], []

    def loss_and_gradient(weights):
        seen.append(threads())
        points.append(tuple(weights["w"]))
        return float(np.sum((weights["w"] - 1) ** 4)), [4 * (weights["w"] - 1) ** 3]

    start = {"w": np.array([3.0, -2.0])}
    found, *_ = minimize_lbfgs(
        loss_and_gradient, start, Penalties({}, {}), max_iter=50, tol=1e-8, on_iteration=lambda value, weights: False
    )
    np.testing.assert_allclose(found["w"], 1, atol=1e-2)
    assert len(seen) > 5
    assert all(x == {1} for x in seen)
    assert len(set(points)) == len(points), "the loss is asked for once at a point, the start included"


@pytest.mark.filterwarnings("ignore:.* has no effect on the training:UserWarning")
def test_one_thread_for_the_comparison_but_not_for_the_estimator_itself(monkeypatch):
    seen = []

    def watched(name):
        method = getattr(LinearRegression, name)

        def call(*args, **kwargs):
            seen.append((name, *threads()))
            return method(*args, **kwargs)

        monkeypatch.setattr(LinearRegression, name, call)

    watched("fit")
    watched("predict")
    X, y = load_diabetes(return_X_y=True)
    OrtGradientRegressor(LinearRegression(positive=True), max_iter=2).fit(X, 3 * y)  # not in a cache
    assert seen == [("fit", 2), ("predict", 1)]
