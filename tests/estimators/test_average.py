"""The mean of the weights over the epochs."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ParameterError

X, y = load_diabetes(return_X_y=True)
PARAMS = dict(init="random", max_iter=5, random_state=0, learning_rate=0.1, batch_size=50)


def epochs(**params):
    """Return the fitted model and what a callback saw after each epoch."""
    seen = []
    model = OrtGradientRegressor(**PARAMS, **params).fit(X, y, callback=lambda info: seen.append(info.weights["coef"]))
    return model, seen


@pytest.mark.parametrize(
    "average, share", [(True, lambda t: 4 / (t + 3)), (0.75, lambda t: 0.25)], ids=["True", "0.75"]
)
def test_formula(average, share):
    plain, weights = epochs()
    averaged, means = epochs(average=average)
    mean = weights[0]
    for t, w in enumerate(weights, start=1):
        mean = mean + share(t) * (w - mean)
        np.testing.assert_allclose(means[t - 1], mean, rtol=1e-5)
    np.testing.assert_array_equal(averaged.weights_["coef"], means[-1])
    assert averaged.loss_curve_ == plain.loss_curve_  # the way is the same
    np.testing.assert_array_equal(averaged._state.weights["coef"], plain.weights_["coef"])


def test_the_validation_set_is_shown_the_mean():
    model = OrtGradientRegressor(**PARAMS, average=True).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    expected = model.losses(X[300:], y[300:]).mean()
    assert model.validation_loss_curve_[model.best_iteration_ - 1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kept", [False, True])
def test_a_warm_start_goes_on_from_the_weights_themselves(kept, tmp_path):
    params = PARAMS | dict(average=True, warm_start=True, shuffle=False)
    twice = OrtGradientRegressor(**params).fit(X, y)
    if kept:
        save(twice, tmp_path / "m.onnx")
        predicted = twice.predict(X)
        twice = load(tmp_path / "m.onnx")
        np.testing.assert_array_equal(twice.predict(X), predicted)
    twice.fit(X, y)
    once = OrtGradientRegressor(**params | dict(max_iter=10)).fit(X, y)
    np.testing.assert_array_equal(twice.weights_["coef"], once.weights_["coef"])


def test_lbfgs_has_nothing_to_average():
    with pytest.raises(ParameterError, match="average needs a stochastic solver"):
        OrtGradientClassifier(solver="lbfgs", average=True).fit(X, y > 150)
    with pytest.raises(ParameterError, match="The 'average' parameter"):
        OrtGradientRegressor(average=1.5).fit(X, y)
