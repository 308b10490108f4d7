"""A fit that fails before its first step leaves the estimator unchanged."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError
from onnxtrain.optim import SGD

X, y = load_iris(return_X_y=True)
NAMED = {"a": np.array(["x", "y"] * 75), "b": X[:, 0]}  # goes in by name
VALIDATION = {"X_val": X[:, :3], "y_val": y}

# rows that are refused, and the words
FAILURES = {
    "rows by name": (
        OrtGradientRegressor,
        (NAMED, y),
        {},
        "X must be an array or a frame for a linear model, got dict",
    ),
    "numbers of rows": (OrtGradientRegressor, (X[:, :2], y[1:]), {}, "inconsistent numbers of samples"),
    "weights": (OrtGradientRegressor, (X[:, :2], y, -np.ones(150)), {}, "Negative values"),
    "validation": (OrtGradientRegressor, (X[:, :2], y), VALIDATION, "X has 3 features"),
    "labels": (OrtGradientClassifier, (X[:, :2], X[:, 0]), {}, "Unknown label type"),
    "several labels": (OrtGradientClassifier, (X[:, :2], np.tile([0, 2], (150, 1))), {}, "2 columns with the values"),
}


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_fit_changes_nothing(name, fitted):
    cls, rows, more, message = FAILURES[name]
    model = cls(max_iter=2, random_state=0)
    if fitted:
        model.fit(X, y)
    expected = model.predict(X) if fitted else None
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(*rows, **more)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[key] is value for key, value in before.items())
    if fitted:
        np.testing.assert_array_equal(model.predict(X), expected)
        with pytest.raises(DataError, match="X has 2 features"):
            model.predict(X[:, :2])


@pytest.mark.parametrize("name", [name for name, (*_, more, _) in FAILURES.items() if not more])
def test_nor_does_a_first_partial_fit(name):
    cls, rows, _, message = FAILURES[name]
    model = cls()
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*rows[:2], sample_weight=None if len(rows) < 3 else rows[2])
    assert vars(model) == before
    model.partial_fit(X, y)


class NoStep(SGD):
    """An optimizer whose update cannot be built."""

    def update(self, op, w, dw, slots, learning_rate):
        raise ValueError("there is no such step")


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_nor_does_one_whose_step_cannot_be_built(method):
    model = OrtGradientRegressor(solver=NoStep(), random_state=0)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="no such step"):
        getattr(model, method)(X, y)
    assert vars(model) == before
    model.set_params(solver="sgd", learning_rate=1e-3, max_iter=2).fit(X, y)
    weights = {name: w.copy() for name, w in model.weights_.items()}
    with pytest.raises(ValueError, match="no such step"):
        getattr(model.set_params(solver=NoStep()), method)(X, y)
    assert model.n_iter_ == 2
    history = repr(model.history_)
    with pytest.raises(ValueError, match="no such step"):
        getattr(model.set_params(warm_start=True), method)(X, y)
    assert repr(model.history_) == history
    assert all(np.array_equal(model.weights_[name], w) for name, w in weights.items())
