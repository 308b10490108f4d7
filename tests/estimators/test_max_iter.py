"""``max_iter`` ends a fit whose loss is still falling: a warning, unless the length was intended."""

import warnings

import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from onnxtrain import OrtGradientRegressor

X, y = load_diabetes(return_X_y=True)
ROWS = scale(X), scale(y)

FALLS = {
    "drawn": (dict(init="random"), (X, y)),
    "fewer epochs": (dict(init="random", max_iter=30, learning_rate=1e-4), ROWS),
    "held out": (dict(init="random", early_stopping=True), (X, y)),
    "lbfgs": (dict(init="random", solver="lbfgs", max_iter=4, n_iter_no_change=2), ROWS),
}
ENDS = {
    "converged": (dict(init="random", learning_rate=0.1, tol=1e-3), ROWS),
    "minimum": (dict(init="random", solver="lbfgs"), ROWS),
    "fine-tuning": (dict(max_iter=30), (X, y)),
    "planned": (dict(init="random", learning_rate="cosine"), (X, y)),
    "too few to see": (dict(init="random", max_iter=5), (X, y)),
    "none": (dict(init="random", max_iter=0), (X, y)),
}


@pytest.mark.parametrize("name", FALLS)
def test_a_loss_that_still_falls_warns(name):
    params, rows = FALLS[name]
    words = r"max_iter=\d+ was reached while the loss was still falling, by .* in the last \d+ epochs. (Raise max_iter|The loss is)"
    with pytest.warns(ConvergenceWarning, match=words):
        OrtGradientRegressor(random_state=0, **params).fit(*rows)


@pytest.mark.parametrize("name", ENDS)
def test_others_do_not(name):
    params, rows = ENDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrtGradientRegressor(random_state=0, **params).fit(*rows)


def test_neither_does_partial_fit_nor_a_callback_that_stops():
    model = OrtGradientRegressor(init="random", random_state=0)
    for _ in range(12):
        model.partial_fit(X, y)
    model.fit(X, y, callback=lambda info: info.epoch == 20)
