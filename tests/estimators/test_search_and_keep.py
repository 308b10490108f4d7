"""Searches give the same scores with any parallel backend; estimators survive copying and pickling."""

import copy
import io
import pickle
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  makes HalvingGridSearchCV importable
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_validate,
    learning_curve,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.training.evaluate import build_loss_and_gradient
from onnxtrain.training.step import build_step
from tests.devices import HAS_GPU

X, y = load_diabetes(return_X_y=True)


def pipeline(max_iter=20):
    tuned = OrtGradientRegressor(LinearRegression(), max_iter=max_iter, random_state=0, learning_rate=0.1)
    return make_pipeline(StandardScaler(), tuned)


GRID = {
    "ortgradientregressor__loss": ["squared_error", "absolute_error", "huber"],
    "ortgradientregressor__l1": [0, 1e-3],
    "ortgradientregressor__l2": [0, 1e-3],
}


def search(n_jobs, backend="loky"):
    with joblib.parallel_config(backend=backend):
        return GridSearchCV(pipeline(), GRID, n_jobs=n_jobs, cv=3, error_score="raise").fit(X, y)


def scores(found):
    return {name: values for name, values in found.cv_results_.items() if "score" in name and "time" not in name}


@pytest.mark.parametrize("n_jobs, backend", [(2, "loky"), (2, "threading")])
def test_grid_search_is_the_same_on_any_number_of_workers(n_jobs, backend):
    one, two = scores(search(1)), scores(search(n_jobs, backend))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize(
    "first, second",
    [
        ({"l1": 1e-3, "l2": 0.1}, {"l1": 0.2, "l2": 1e-4}),
        ({"penalty": {"coef": {"l1": 0.1}}}, {"penalty": {"coef": {"l1": 0.2}}}),
        ({"penalty": {"coef": 0.1, "intercept": 0.2}, "l2": 0.1}, {"penalty": {"coef": 0.3, "intercept": 3}, "l2": 1}),
        ({"learning_rate": 0.1}, {"learning_rate": "invscaling"}),
        ({"random_state": 0}, {"random_state": 1}),
    ],
    ids=["common", "of one weight", "both", "learning rate", "seed"],
)
@pytest.mark.filterwarnings("ignore:learning_rate=.* has no effect")  # of L-BFGS
@pytest.mark.parametrize("solver", ["sgd", "adam", "lbfgs"])
def test_numbers_of_a_search_need_no_other_graph(first, second, solver):
    model = OrtGradientRegressor(LinearRegression(), solver=solver, max_iter=2)
    clone(model).set_params(**first).fit(X, y)
    built = [known.cache.misses for known in (build_step, build_loss_and_gradient)]
    clone(model).set_params(**second).fit(X, y)
    assert [known.cache.misses for known in (build_step, build_loss_and_gradient)] == built


@pytest.mark.parametrize("solver", ["sgd", "adam", "lbfgs"])
@pytest.mark.parametrize("l1_method", ["penalty", "proximal"])
def test_penalties_of_a_weight_add_to_the_common_ones(solver, l1_method):
    params = dict(solver=solver, l1_method=l1_method, max_iter=20, dtype="float64", random_state=0, tol=0)
    start = MLPRegressor(hidden_layer_sizes=(3,), tol=1e9, random_state=0).fit(X, y)
    first, second = (name for name in OrtGradientRegressor(start, max_iter=0).fit(X, y).weights_ if "coef" in name)
    common = OrtGradientRegressor(start, l1=0.3, l2=0.5, **params).fit(X, y)
    own = {first: {"l1": 0.1, "l2": 0.5}, second: {"l1": 0.1}}
    both = OrtGradientRegressor(start, l1=0.2, penalty=own, **params).set_params(l2=0.0).fit(X, y)
    assert not np.allclose(both.weights_[second], common.weights_[second], rtol=1e-3)
    own[second]["l2"] = 0.5
    alike = OrtGradientRegressor(start, l1=0.2, penalty=own, **params).fit(X, y)
    for name, w in common.weights_.items():
        np.testing.assert_allclose(alike.weights_[name], w, rtol=1e-5, atol=1e-9)


def test_a_grid_search_fine_tunes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlp = MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, random_state=0).fit(X, y)
    found = GridSearchCV(OrtGradientRegressor(mlp, max_iter=0), {"l2": [0.0]}, cv=2, error_score="raise").fit(X, y)
    expected = [mlp.score(X[221:], y[221:]), mlp.score(X[:221], y[:221])]
    scores = [found.cv_results_[f"split{i}_test_score"][0] for i in (0, 1)]
    np.testing.assert_allclose(sorted(scores), sorted(expected), rtol=1e-4)


def test_other_searches_and_curves():
    name = "ortgradientregressor__max_iter"
    l2 = {"ortgradientregressor__l2": [0.0, 1.0]}
    halving = HalvingGridSearchCV(pipeline(), l2, resource=name, factor=2, max_resources=4, min_resources=2, cv=2)
    halving.fit(X, y)
    assert halving.best_params_[name] == 4
    RandomizedSearchCV(pipeline(), GRID, n_iter=2, cv=2, random_state=0, error_score="raise").fit(X, y)
    assert len(cross_validate(pipeline(), X, y, cv=2, error_score="raise")["test_score"]) == 2
    learning_curve(pipeline(), X, y, cv=2, train_sizes=[0.5, 1.0], error_score="raise")


def test_inspection():
    model = pipeline().fit(X, y)
    assert permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean.argmax() in (2, 4, 8)
    assert partial_dependence(model, X, [2])["average"].shape[0] == 1


def test_nested_parameters():
    model = OrtGradientClassifier(MLPClassifier(hidden_layer_sizes=(5,)), max_iter=1)
    assert model.set_params(estimator__alpha=0.5).get_params()["estimator__alpha"] == 0.5
    with pytest.raises(
        ValueError,
        match=r"has no parameter 'momentum'. Use estimator__momentum for the parameter of its model. Pass an optimizer: solver=onnxtrain.optim.SGD\(momentum=...\)",
    ):
        model.set_params(momentum=0.9)


def by_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def by_cloudpickle(model):
    return pickle.loads(pytest.importorskip("cloudpickle").dumps(model))


def by_skops(model):
    skops = pytest.importorskip("skops.io")
    kept = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=kept)
    assert {name.partition(".")[0] for name in unknown} == {"onnxtrain"}
    return skops.loads(kept, trusted=unknown)


COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "joblib": by_joblib,
    "cloudpickle": by_cloudpickle,
    "skops": by_skops,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies(copied):
    iris, species = load_iris(return_X_y=True)
    params = dict(random_state=0, max_iter=3, warm_start=True)
    before = copied(OrtGradientClassifier(**params))
    model = before.fit(iris, species)
    twin = copied(model)
    np.testing.assert_array_equal(twin.predict_proba(iris), model.predict_proba(iris))
    np.testing.assert_array_equal(twin.losses(iris, species), model.losses(iris, species))
    # the memory of the optimizer went along: both go on the same way
    np.testing.assert_array_equal(
        copied(model).fit(iris, species).predict_proba(iris), model.fit(iris, species).predict_proba(iris)
    )


def test_a_model_fitted_on_a_gpu_predicts_without_one():
    if HAS_GPU:
        pytest.skip("this machine has a GPU")
    model = OrtGradientRegressor(max_iter=1).fit(X, y)
    expected = model.predict(X)
    kept = pickle.loads(pickle.dumps(model.set_params(device="cuda")))
    with pytest.warns(UserWarning, match=r"device='cuda' needs the CUDAExecutionProvider.*The CPU is used instead"):
        np.testing.assert_array_equal(kept.predict(X), expected)


def own_loss(op, y_true, y_pred):
    return op.Abs(op.Sub(y_pred, y_true))


def test_a_loss_of_ones_own():
    params = dict(max_iter=5, random_state=0)
    own = OrtGradientRegressor(loss=own_loss, **params).fit(X, y)
    table = OrtGradientRegressor(loss="absolute_error", **params).fit(X, y)
    np.testing.assert_allclose(own.weights_["coef"], table.weights_["coef"], rtol=1e-5)
    twin = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(twin.predict(X), own.predict(X))
