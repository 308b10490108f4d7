"""The learning rate of ``partial_fit`` continues from the previous call; that of ``fit`` starts again."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientRegressor, load, save
from onnxtrain.optim import Cosine, InverseScaling, OneCycle

X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)


def recording():
    """Return a learning rate that writes down the steps it is asked for."""
    steps = []

    def rate(step):
        steps.append(step)
        return 1e-3

    return rate, steps


def calls(model, *names):
    for name in names:
        getattr(model, name)(X, y)
    return model


WAYS = {
    ("partial_fit",) * 3: [0, 1, 2, 3, 4, 5],
    ("fit", "partial_fit", "partial_fit"): [0, 1, 2, 3, 4, 5],
    ("partial_fit", "fit", "partial_fit"): [0, 1, 0, 1, 2, 3],
    ("fit", "fit"): [0, 1, 0, 1],
}


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("names", WAYS, ids=" ".join)
def test_steps(names, warm_start):
    rate, steps = recording()
    model = OrtGradientRegressor(learning_rate=rate, batch_size=221, max_iter=1, warm_start=warm_start)
    calls(model, *names)
    assert steps == WAYS[names]


@pytest.mark.parametrize("schedule", [Cosine(0.1), OneCycle(0.1), InverseScaling(0.1)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("way", ["kept", "saved", "pickled"])
def test_a_call_an_epoch_is_a_fit(way, schedule, tmp_path):
    model = OrtGradientRegressor(learning_rate=schedule, batch_size=100, max_iter=4, random_state=0)
    whole = clone(model).fit(X, y)
    for _ in range(4):
        model.partial_fit(X, y)
        if way == "saved":
            save(model, tmp_path / "m.onnx")
            model = load(tmp_path / "m.onnx")
        elif way == "pickled":
            model = pickle.loads(pickle.dumps(model))
    for name, w in whole.weights_.items():
        np.testing.assert_array_equal(model.weights_[name], w)


@pytest.mark.parametrize("max_iter", [0, 1])
def test_a_short_plan(max_iter):
    assert OrtGradientRegressor(learning_rate="onecycle", max_iter=max_iter).partial_fit(X, y).n_iter_ == 1
