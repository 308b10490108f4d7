"""The inner estimator is fitted and converted once for the same rows, and again if the result could differ."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LinearRegression, LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.estimators import fitting

X, y = load_diabetes(return_X_y=True)
X = X.astype(np.float32)


class OfAUser(LinearRegression):
    """An estimator whose `fit` may do what it likes."""


class KernelOfAUser(RBF):
    """A kernel whose values may be any."""


class TypeOfAUser(np.float64):
    """Numbers that may be any."""


@pytest.fixture
def fits(monkeypatch):
    """The rows of every fit of LinearRegression; nothing is remembered from other tests."""
    fitting.SOURCES.clear()
    calls, fit = [], LinearRegression.fit

    def counted(self, X, y, sample_weight=None):
        calls.append((len(y), sample_weight))
        return fit(self, X, y, sample_weight)

    monkeypatch.setattr(LinearRegression, "fit", counted)
    return calls


def train(estimator, X=X, y=y, **params):
    settings = {"max_iter": 2, "random_state": 0} | params
    return OrtGradientRegressor(estimator, **settings).fit(X, y)


def test_a_search_fits_it_once_a_fold(fits):
    grid = {"ortgradientregressor__l1": [0.0, 0.1, 1.0], "ortgradientregressor__loss": ["squared_error", "huber"]}
    model = make_pipeline(StandardScaler(), OrtGradientRegressor(LinearRegression(), max_iter=3, random_state=0))
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert len(fits) == 3 + 1

    for i, params in enumerate(search.cv_results_["params"]):
        fitting.SOURCES.clear()
        alone = GridSearchCV(model, {name: [value] for name, value in params.items()}, cv=3).fit(X, y)
        assert alone.best_score_ == search.cv_results_["mean_test_score"][i]


def test_so_does_a_search_over_a_frame(fits):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X[:120], columns=[f"x{i}" for i in range(X.shape[1])])
    frame["color"] = rng.choice(["red", "green", "blue"], len(frame))
    columns = make_column_transformer(
        (OneHotEncoder(dtype=np.float64), make_column_selector(dtype_exclude=np.number)), remainder="passthrough"
    )
    model = OrtGradientRegressor(make_pipeline(columns, LinearRegression()), max_iter=2, random_state=0)
    GridSearchCV(model, {"l1": [0.0, 0.1, 1.0]}, cv=3).fit(frame, y[:120])
    assert len(fits) == 3 + 1


def test_what_is_remembered_stays_as_it_was(fits):
    first = train(LinearRegression(), max_iter=5)
    coef = first.to_sklearn().coef_.copy()
    again = train(LinearRegression(), max_iter=5)
    assert len(fits) == 1
    np.testing.assert_array_equal(first.to_sklearn().coef_, coef)
    np.testing.assert_array_equal(again.predict(X), first.predict(X))


@pytest.mark.parametrize(
    "change",
    [
        {"X": X + 1},
        {"y": y + 1},
        {"X": X[:-1], "y": y[:-1]},
        {"estimator": LinearRegression(copy_X=False)},
        {"dtype": "float64"},
    ],
    ids=["rows", "target", "fewer rows", "parameter", "type"],
)
def test_another_fit(change, fits):
    given = {"estimator": LinearRegression()}
    train(**given)
    train(**(given | change))
    assert len(fits) == 2


def test_rows_changed_in_place(fits):
    rows = X.copy()
    train(LinearRegression(), rows)
    rows[0, 0] += 1
    train(LinearRegression(), rows)
    assert len(fits) == 2


def test_weights_are_rows_too(fits):
    for weight in (None, np.linspace(1, 2, len(y))):
        OrtGradientRegressor(LinearRegression(), max_iter=1).fit(X, y, sample_weight=weight)
    assert len(fits) == 2


def fingerprint(estimator, X=X):
    return fitting.fingerprint_of_fit(estimator, estimator.get_params(), {}, (X, y, None), {})


def test_what_may_depend_on_more_is_never_the_same():
    assert fingerprint(LinearRegression()) == fingerprint(LinearRegression()) != fingerprint(Ridge())
    kernel = GaussianProcessRegressor(RBF())
    assert fingerprint(kernel) == fingerprint(GaussianProcessRegressor(RBF())) is not None
    for estimator in (
        OfAUser(),
        GaussianProcessRegressor(KernelOfAUser()),
        make_pipeline(OneHotEncoder(dtype=TypeOfAUser), LinearRegression()),
        make_pipeline(StandardScaler(), OfAUser()),
        make_pipeline(FunctionTransformer(np.fabs), LinearRegression()),
        RidgeCV(scoring=make_scorer(r2_score)),
        make_pipeline(make_column_transformer((StandardScaler(), np.mean)), LinearRegression()),
    ):
        assert fingerprint(estimator) is None


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_looked_through_without_a_copy(order):
    rows = np.zeros((2**14, 16), order=order)
    tracemalloc.start()
    found = fingerprint(LinearRegression(), rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes / 10
    rows[-1, -1] = 1
    assert fingerprint(LinearRegression(), rows) != found


def test_what_is_large_is_not_kept(fits, monkeypatch):
    monkeypatch.setattr(fitting, "LIGHT", 10)
    train(LinearRegression())
    assert len(fitting.SOURCES) == 0
    monkeypatch.setattr(fitting, "_MANY", X.size - 1)
    monkeypatch.setattr(fitting, "LIGHT", 10**6)
    train(LinearRegression())
    assert len(fitting.SOURCES) == 0


@pytest.mark.filterwarnings("ignore:.*converge")
def test_open_seeds_are_drawn_anew():
    model = OrtGradientRegressor(
        MLPRegressor(hidden_layer_sizes=(3,), max_iter=2), solver="sgd", learning_rate=1e-9, max_iter=1
    )
    first, second = (model.fit(X, y).to_sklearn().coefs_[0] for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    first, second = (model.set_params(random_state=0).fit(X, y).to_sklearn().coefs_[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("ignore:The fitted model predicts")
def test_a_fitted_estimator_is_what_its_numbers_are():
    rows, labels = load_iris(return_X_y=True)
    inside = LogisticRegression(max_iter=1000).fit(rows, labels)
    first = OrtGradientClassifier(inside, learning_rate=1e-9, max_iter=1).fit(rows, labels)
    inside.coef_ = -inside.coef_
    second = OrtGradientClassifier(inside, learning_rate=1e-9, max_iter=1).fit(rows, labels)
    np.testing.assert_allclose(second.to_sklearn().coef_, -first.to_sklearn().coef_, atol=1e-5)


# ---------------------------------------------- a few rows, where all weights are drawn anew

rng = np.random.default_rng(0)
MANY = rng.normal(size=(30_000, 4)).astype(np.float32)
SUM = MANY @ [1.0, 2.0, 3.0, 4.0]
#: 30 of a class in 30,000 rows, and far apart those of the others.
RARE = np.where(np.arange(len(MANY)) % 1000 == 7, "rare", np.where(SUM > 0, "more", "less"))
LABELS = np.stack([RARE == "rare", SUM > 0], axis=1).astype(int)
CASES = {
    "linear": (LinearRegression(), OrtGradientRegressor, SUM, {}, "few"),
    "mlp": (MLPRegressor(hidden_layer_sizes=(3,)), OrtGradientRegressor, SUM, {}, "few"),
    "mlp, two outputs": (MLPRegressor(hidden_layer_sizes=(3,)), OrtGradientRegressor, np.c_[SUM, -SUM], {}, "few"),
    "weights": (LinearRegression(), OrtGradientRegressor, SUM, {"sample_weight": np.arange(30_000) % 2}, "few"),
    "a rare class": (MLPClassifier(hidden_layer_sizes=(3,)), OrtGradientClassifier, RARE, {}, "few"),
    "a rare label": (MLPClassifier(hidden_layer_sizes=(3,)), OrtGradientClassifier, LABELS, {}, "few"),
    "folds": (LogisticRegressionCV(Cs=2, cv=3, max_iter=5), OrtGradientClassifier, RARE, {}, "few"),
    "pipeline": (make_pipeline(StandardScaler(), LinearRegression()), OrtGradientRegressor, SUM, {}, "few"),
    "tree": (DecisionTreeRegressor(max_depth=3), OrtGradientRegressor, SUM, {}, "all"),
    "around": (MultiOutputRegressor(LinearRegression()), OrtGradientRegressor, np.c_[SUM, -SUM], {}, "all"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::FutureWarning")
def test_a_structure_needs_few_rows(name, monkeypatch):
    estimator, kind, target, weight, needed = CASES[name]
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    sizes, fit = [], type(last).fit

    def counted(self, X, y, *args, **more):
        sizes.append(len(y))
        return fit(self, X, y, *args, **more)

    monkeypatch.setattr(type(last), "fit", counted)
    fitting.SOURCES.clear()
    model = kind(estimator, init="random", max_iter=1, random_state=0).fit(MANY, target, **weight)
    assert (max(sizes) < 6000) == (needed == "few")
    if kind is OrtGradientClassifier:
        assert len(model.classes_) == (3 if target.ndim == 1 else 2)
    if isinstance(estimator, Pipeline):  # what is not drawn anew is learned from all rows
        np.testing.assert_allclose(model.to_sklearn()[0].mean_, MANY.mean(axis=0), rtol=1e-3, atol=1e-6)
    assert len(model.predict(MANY[:5])) == 5
    kind(estimator, max_iter=0).fit(MANY, target, **weight)
    assert max(sizes) >= 30_000  # its weights are wanted
