"""A fit whose loss ends above its start keeps the better of the start and the best epoch; no other fit does."""

import warnings

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier
from sklearn.preprocessing import scale
from sklearn.utils.fixes import parse_version

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ConvergenceError
from onnxtrain.optim import SGD
from onnxtrain.training.state import TrainingState, jump_of, rise_of

pytestmark = pytest.mark.filterwarnings("error:The loss did not fall")  # small rises, too, which other tests ignore

X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)

RISES = {
    "sgd": dict(solver="sgd", learning_rate=0.6, batch_size=len(X), max_iter=100, init="random"),
    "stopped": dict(solver="sgd", learning_rate=0.55, max_iter=200, n_iter_no_change=3),
    "adam, up and half way down": dict(learning_rate=100.0, max_iter=30),
    "clipped": dict(solver="sgd", learning_rate=10.0, clip_norm=1.0, max_iter=30),
    "averaged": dict(solver="sgd", learning_rate=0.55, max_iter=20, average=True),
    "in the first epoch": dict(solver="sgd", learning_rate=0.6, batch_size=32, max_iter=1),
}
#: Rises that noise may cause, after which the last weights are kept.
SMALL = {
    "momentum": dict(solver=SGD(momentum=0.9), learning_rate=0.02, batch_size=32, max_iter=3),
    "steps too long for a minimum": dict(learning_rate=0.1, max_iter=20),
    "a row at a time": dict(solver=SGD(momentum=0.9), learning_rate=3e-4, batch_size=1, max_iter=3),
    "from the first epoch on": dict(learning_rate=0.1, batch_size=32, max_iter=2),
    "from a minimum, by a ten-thousandth": dict(learning_rate=1e-3, max_iter=20),
}
STEADY = {
    "of another loss": dict(loss="absolute_error", learning_rate=1e-3, max_iter=20),
    "no epoch": dict(max_iter=0),
    "penalized": dict(l1=0.5, l2=0.5, learning_rate=0.1, max_iter=30),
}


def worse(params):
    """Return a fit, the objective before it and after it."""
    model = OrtGradientRegressor(random_state=0, **params)
    start = OrtGradientRegressor(random_state=0, **params).set_params(max_iter=0).fit(X, y)
    return model, start.losses(X, y).mean()


@pytest.mark.parametrize("name", RISES)
def test_a_rise_warns(name):
    model, before = worse(RISES[name])
    with pytest.warns(ConvergenceWarning, match="The loss rose from .* Lower learning_rate, scale the data") as found:
        model.fit(X, y)
    (message,) = {str(w.message) for w in found}
    after = model.losses(X, y).mean()
    assert f"from {before:.3g} to " in message
    assert f"are kept, with a loss of {after:.3g}. Lower" in message
    assert after <= before
    assert f"last step was {RISES[name]['learning_rate']:.3g}." in message


@pytest.mark.parametrize("name", SMALL)
def test_a_small_rise_warns_and_keeps_the_last_weights(name):
    model, before = worse(SMALL[name])
    with pytest.warns(
        ConvergenceWarning, match="The loss did not fall: it was .* may be at its minimum.* set solver='lbfgs'"
    ):
        model.fit(X, y)
    after = model.losses(X, y).mean()
    assert (1 + 1e-5) * before < after < 1.2 * before
    assert OrtGradientRegressor(solver="lbfgs").fit(X, y).losses(X, y).mean() <= (1 + 1e-6) * before
    search = GridSearchCV(OrtGradientRegressor(random_state=0, **SMALL[name]), {"l2": [0.0]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, y)


@pytest.mark.parametrize(
    "last, first, goes_back",
    [
        (0.328, 0.317, True),
        (0.3170001, 0.317, False),
        (0.3, 0.317, False),
        (3e-14, 1e-14, False),
        (np.nan, 0.317, True),
    ],
)
def test_lbfgs_goes_back_where_its_loss_jumped(last, first, goes_back):
    """Such a loss, that of votes, may be another one for the same weights in a graph of another order."""
    start, end = {"w": np.zeros(1)}, {"w": np.ones(1)}
    state = TrainingState(dict(end))
    rise = jump_of(state, start, lambda w: first if w is start else last, lambda w: 1.0)
    assert (rise is not None) == goes_back
    assert (state.weights is start) == goes_back


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lbfgs_stops_in_front_of_a_jump(dtype):
    """Where a vote changes, the graph and the estimator, which round differently, would count other votes."""
    wine, kind = load_wine(return_X_y=True)
    wine = scale(wine)
    for seed in range(8):
        chosen = np.random.default_rng(seed).choice(len(kind), 100, replace=False)
        rows, labels = wine[chosen], kind[chosen]
        voting = OneVsOneClassifier(LogisticRegression()).fit(rows, labels)
        tuned = OrtGradientClassifier(voting, solver="lbfgs", dtype=dtype, max_iter=100).fit(rows, labels)
        scores = tuned.to_sklearn().decision_function(rows)
        np.testing.assert_allclose(tuned.decision_function(rows), scores, atol=1e-5)


@pytest.mark.parametrize("last, rises", [(0.129, True), (0.125, False)])
def test_a_first_batch_of_high_loss_excludes_no_rise(last, rises):
    start, end = {"w": np.zeros(1)}, {"w": np.ones(1)}
    state = TrainingState(dict(end), loss_curve=[0.316, 0.2, 0.131], first_loss=0.189)
    loss = {id(start): 0.126, id(state.weights): last}
    found = rise_of(state, start, lambda w: loss[id(w)], lambda w: 1.0, 1e-4, 3, small=True)
    assert (found is not None) == rises


@pytest.mark.parametrize(
    "share, of_shuffled, last_epoch, rises",
    [
        (1.1e-5, 1.0, 0.3, True),
        (0.9e-5, 1.0, 0.3, False),
        (1.1e-5, 3.0, 0.3, False),  # of the increase by permuted labels, which is larger
        (3.3e-5, 3.0, 0.3, True),
        (1.1e-5, 1.0, 0.14, False),  # less than half of the first epoch
        (1.1e-5, 1.0, 0.16, True),
    ],
)
def test_the_least_rise_that_is_reported_is_that_of_the_guide(share, of_shuffled, last_epoch, rises):
    start, end, initial = {"w": np.zeros(1)}, {"w": np.ones(1)}, 0.25
    state = TrainingState(dict(end), loss_curve=[0.3, 0.3, last_epoch], first_loss=0.4)
    loss = {id(start): initial, id(state.weights): initial * (1 + share)}
    shuffled = initial * (1 + of_shuffled)
    found = rise_of(state, start, lambda w: loss[id(w)], lambda w: shuffled, 1e-4, 3, small=True)
    assert (found is not None) == rises


def test_a_start_at_the_minimum_is_no_rise():
    for target in (y, X @ np.arange(10.0)):
        start = LinearRegression().fit(X, target)
        OrtGradientRegressor(start, solver="lbfgs", max_iter=5, random_state=0).fit(X, target)  # filterwarnings = error


@pytest.mark.parametrize("name", STEADY)
def test_others_do_not(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrtGradientRegressor(random_state=0, **STEADY[name]).fit(X, y)


#: Fits whose validation loss is never below that of the start, and by which factor it may be above it.
ABOVE_ON_VALIDATION = {
    "large steps": (dict(solver="sgd", learning_rate=0.3, max_iter=20), 11),
    "small steps": (dict(learning_rate=1e-3, max_iter=20), 1.2),
    "L-BFGS": (dict(solver="lbfgs"), 1.2),
}


@pytest.mark.filterwarnings("ignore:The validation set|Training rows")
@pytest.mark.parametrize("name", ABOVE_ON_VALIDATION)
def test_the_best_weights_of_a_validation_set_are_kept_above_its_initial_loss(name):
    params, most = ABOVE_ON_VALIDATION[name]
    start = LinearRegression().fit(X[::2], y[::2])
    model = OrtGradientRegressor(start, random_state=0, **params)
    with pytest.warns(ConvergenceWarning, match="The loss did not fall: on the validation set, it was .* or a penalty"):
        model.fit(X, y, X_val=X[::2], y_val=y[::2])
    before = np.mean((start.predict(X[::2]) - y[::2]) ** 2)
    after = model.losses(X[::2], y[::2]).mean()
    assert after == pytest.approx(min(model.validation_loss_curve_), rel=1e-5)
    assert before * (1 + 1e-5) < after < most * before


@pytest.mark.filterwarnings("ignore:The validation set")
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_validation_loss_that_fell_is_no_rise(solver):
    params = dict(solver=solver, loss="absolute_error", max_iter=20, random_state=0)
    OrtGradientRegressor(LinearRegression().fit(X, y), **params).fit(X, y, X_val=X, y_val=y)


def test_a_perfect_fit_that_steps_leave_is_no_rise():
    target = X @ np.arange(10.0)
    start = LinearRegression().fit(X, target)
    model = OrtGradientRegressor(start, max_iter=5, random_state=0).fit(X, target)
    assert model.losses(X, target).mean() > 1e3 * np.mean((start.predict(X) - target) ** 2)


@pytest.mark.parametrize("unit", [1, 1e3])
def test_whether_a_loss_has_risen_does_not_depend_on_the_unit_of_the_labels(unit):
    target = unit * (X @ np.arange(10.0))
    model = OrtGradientRegressor(LinearRegression(), max_iter=5, learning_rate=1e-3 * unit, random_state=0)
    assert model.fit(X, target).losses(X, target).mean() > 0  # filterwarnings = error


@pytest.mark.parametrize("unit", [1e-6, 1, 1e6])
def test_a_rise_is_one_in_any_unit_of_the_labels(unit):
    model = OrtGradientRegressor(max_iter=20, learning_rate=10.0 * unit, random_state=0)
    with pytest.warns(ConvergenceWarning, match="The loss rose"):
        model.fit(X, unit * y)
    assert model.score(X, unit * y) > 0.5


#: Adam's steps overflow where those of newer versions end at a finite loss.
OLD = parse_version(onnxruntime.__version__) < parse_version("1.20")

#: Parameters under which a fit to an exact target is lost, or becomes infinite.
RUINS = {
    "large features": (1e6, dict(max_iter=100), None),
    "very large features": (1e20, dict(max_iter=100), "at the start" if OLD else None),
    "slowly to infinity": (1, dict(solver="sgd", learning_rate=1e3), "at the start|of the best epoch"),
    "at once to infinity": (1, dict(solver="sgd", learning_rate=1e20), "at the start"),
    "to infinity in float64": (1, dict(solver="sgd", learning_rate=1e38, dtype="float64"), "at the start"),
    "while others choose the best": (1e6, dict(max_iter=30, early_stopping=True), None),
}


@pytest.mark.parametrize("name", RUINS)
@pytest.mark.filterwarnings("ignore:early_stopping=True has no effect in partial_fit")
def test_what_was_good_is_kept(name):
    factor, params, error = RUINS[name]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)) * factor
    target = rows @ [1.0, 2.0, 3.0] / factor + 1 + 0.1 * rng.normal(size=200)
    start = LinearRegression().fit(rows, target)
    model = OrtGradientRegressor(start, random_state=0, **params)
    if error is None:
        with pytest.warns(ConvergenceWarning, match="The loss rose"):
            model.fit(rows, target)
    else:
        kept = f"(The loss|A weight) became .* The weights ({error}) are kept, with a loss"
        with pytest.raises(ConvergenceError, match=kept):
            model.fit(rows, target)
    assert model.score(rows, target) > start.score(rows, target) - 1e-6
    assert all(np.isfinite(w).all() for w in model.weights_.values())
    model.set_params(learning_rate=1e-9, solver="adam").partial_fit(rows, target)  # its memory begins anew


@pytest.mark.filterwarnings("ignore:max_iter=20 was reached")
def test_the_best_epoch_is_kept_where_it_is_better_than_the_start():
    def rate(step):
        return 0.1 if step < 20 else 5.0

    params = dict(solver="sgd", init="random", batch_size=len(X), random_state=0, learning_rate=rate, dtype="float64")
    model = OrtGradientRegressor(max_iter=25, **params)
    with pytest.warns(ConvergenceWarning, match="The weights of the best epoch are kept"):
        model.fit(X, y)
    best = OrtGradientRegressor(max_iter=20, **params).fit(X, y)
    np.testing.assert_allclose(model.losses(X, y).mean(), best.losses(X, y).mean(), rtol=0.02)
    for name, w in model.weights_.items():
        np.testing.assert_allclose(w, best.weights_[name], atol=0.02)


def test_the_weights_of_the_best_epoch_are_not_kept_for_longer():
    model = OrtGradientRegressor(loss="absolute_error", max_iter=3, random_state=0).fit(X, y)
    assert model._state.best_weights is None


def test_an_outlier_outside_the_first_batch_is_no_rise():
    target = y.copy()
    target[-1] = 1e4
    model = OrtGradientRegressor(shuffle=False, batch_size=32, max_iter=2, init="random", random_state=0)
    model.fit(X, target)
    assert model.loss_curve_[-1] > 1e4


def test_partial_fit_warns_as_well():
    model = OrtGradientRegressor(solver="sgd", learning_rate=0.6, batch_size=32, random_state=0)
    with pytest.warns(ConvergenceWarning, match="The loss rose"):
        model.partial_fit(X, y)
