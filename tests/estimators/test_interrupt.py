"""Ctrl-C: a fit that the user called keeps its weights, one inside scikit-learn's own loops ends them."""

import os
import signal
import subprocess
import sys

import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.errors import ParameterError

X, Y = load_diabetes(return_X_y=True)
FITS = []


def interrupt(info):
    raise KeyboardInterrupt


def rate(step):
    if step == 3:
        FITS.append(step)
        raise KeyboardInterrupt
    return 1e-3


LBFGS = {"solver": "lbfgs", "learning_rate": 1e-3}

#: How `fit` is called, and whether KeyboardInterrupt comes out.
CALLS = {
    "fit": (lambda model: model.fit(X, Y), False),
    "partial_fit": (lambda model: [model.partial_fit(X, Y) for _ in range(2)], False),
    "fit with lbfgs": (lambda model: model.set_params(**LBFGS).fit(X, Y, callback=interrupt), False),
    "fit of a pipeline": (lambda model: make_pipeline(StandardScaler(), model).fit(X, Y), False),
    "fit, on demand": (lambda model: model.set_params(on_interrupt="raise").fit(X, Y), True),
    "lbfgs, on demand": (
        lambda model: model.set_params(on_interrupt="raise", **LBFGS).fit(X, Y, callback=interrupt),
        True,
    ),
    "search": (lambda model: GridSearchCV(model, {"l2": [0, 1e-3]}).fit(X, Y), True),
    "search of a pipeline": (lambda model: GridSearchCV(make_pipeline(StandardScaler(), model), {}).fit(X, Y), True),
    "cross-validation": (lambda model: cross_val_score(model, X, Y), True),
    "bags": (lambda model: BaggingRegressor(model, 3).fit(X, Y), True),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_raised_only_inside_others(name):
    FITS.clear()
    call, raised = CALLS[name]
    model = OrtGradientRegressor(Ridge(), learning_rate=rate, max_iter=5)
    if raised:
        with pytest.raises(KeyboardInterrupt):
            call(model)
    else:
        with pytest.warns(
            UserWarning, match=r"interrupted in epoch [12]; the estimator has the weights (at the start|of epoch 1)\."
        ):
            call(model)
    assert len(FITS) <= 1
    if "fit" in name or "lbfgs" in name:
        assert model.predict(X).shape == Y.shape


def test_the_choice_is_checked():
    with pytest.raises(ParameterError, match="'on_interrupt' parameter .* must be a str among"):
        OrtGradientRegressor(Ridge(), on_interrupt="ask").fit(X, Y)


SCRIPT = """
import time
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from onnxtrain import OrtGradientRegressor

def slow(step):
    if step == 3:
        print("training", flush=True)
    time.sleep(0.01)
    return 1e-3

model = OrtGradientRegressor(learning_rate=slow, max_iter=500, tol=0, n_iter_no_change=500)
GridSearchCV(model, {"l2": [0, 1e-3]}, n_jobs=N_JOBS).fit(*load_diabetes(return_X_y=True))
print("the search went on")
"""


@pytest.mark.skipif(os.name == "nt", reason="a signal goes to a group of processes on POSIX")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_signal_ends_a_search(n_jobs):
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("N_JOBS", str(n_jobs))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "training\n"
        os.killpg(child.pid, signal.SIGINT)
        said, complaint = child.communicate(timeout=120)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in complaint
    assert said.count("training") < n_jobs  # by the second worker
