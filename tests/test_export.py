"""Weights back into the estimator they came from."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from sklearn.base import is_regressor

from onnxtrain import OrtGradientRegressor
from onnxtrain.convert.bind import to_sklearn
from onnxtrain.convert.check import check
from onnxtrain.convert.columns import as_float32, feeds_of
from onnxtrain.errors import ExportError
from onnxtrain.runtime.session import run
from tests.test_convert import CONVERTED, converted
from tests.zoo import ROUNDING, WITHOUT_WEIGHTS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::RuntimeWarning", "ignore::UserWarning")

TRAINABLE = [name for name in CONVERTED if name not in WITHOUT_WEIGHTS]


def outputs_of(estimator, X):
    """What an estimator says of some rows, by method."""
    found = {}
    for method in ("predict", "predict_proba", "decision_function", "transform"):
        if hasattr(estimator, method) and not (method == "decision_function" and is_regressor(estimator)):
            result = getattr(estimator, method)(X)
            found[method] = (
                np.concatenate([np.asarray(r) for r in result], axis=None) if isinstance(result, list) else result
            )
    return found


@pytest.mark.parametrize("name", TRAINABLE)
def test_weights_that_did_not_move_change_nothing(name):
    estimator, X, conversion = converted(name)
    rounded = {b.name: b.read(estimator).astype(np.float32) for b in conversion.bindings}
    same = to_sklearn(estimator, conversion.bindings, rounded)
    assert type(same) is type(estimator)
    before = outputs_of(estimator, X)
    for method, found in outputs_of(same, X).items():
        expected = before[method]
        if hasattr(found, "toarray"):
            found, expected = found.toarray(), expected.toarray()
        assert found.dtype == expected.dtype
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", TRAINABLE)
def test_weights_that_moved_predict_as_the_graph(name):
    estimator, X, conversion = converted(name)
    rng = np.random.default_rng(0)
    moved = {
        b.name: b.read(estimator) * (1 + 0.02 * rng.uniform(-1, 1, b.shape)).astype(np.float32)
        for b in conversion.bindings
    }
    onx = onnx.ModelProto()
    onx.CopyFrom(conversion.onnx)
    for initializer in onx.graph.initializer:
        if initializer.name in moved:
            array = moved[initializer.name].astype(np.float32)
            initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
    back = to_sklearn(estimator, conversion.bindings, moved)
    narrow = {"RadiusNeighborsRegressor": 1e-4}  # its predictions have a range of 1 % of their values
    tolerance = (ROUNDING | narrow).get(name, 1e-5)
    found = dict(zip((y.name for y in onx.graph.output), run(onx, feeds_of(onx, X)), strict=True))
    check(pickle.loads(pickle.dumps(back)), found, as_float32(X), tolerance=tolerance)
    before = outputs_of(estimator, X)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(map(_plain, before.values()), map(_plain, outputs_of(estimator, X).values()), strict=True)
    )


# BayesianGaussianMixture: its precisions are constants that the converter wrote in float32
@pytest.mark.parametrize("name", [name for name in ROUNDING if name != "BayesianGaussianMixture"])
def test_what_float32_rounds_is_exact_when_trained_in_double_precision(name):
    estimator, X, conversion = converted(name)
    (*_, scores) = [y.name for y in conversion.onnx.graph.output]
    n_scores = run(conversion.onnx, feeds_of(conversion.onnx, X))[-1].reshape(len(X), -1).shape[1]
    tuned = OrtGradientRegressor(
        estimator, output=scores, weights_to_train=[b.name for b in conversion.bindings], dtype="float64",
        batch_size=len(X), max_iter=20, random_state=0,
    ).fit(X, np.random.default_rng(0).normal(size=(len(X), n_scores)))  # fmt: skip
    (method,) = {"predict_proba", "decision_function", "transform"} & set(outputs_of(estimator, X))
    expected = outputs_of(tuned.to_sklearn(), X)[method]
    found = tuned.predict(X).reshape(len(X), -1)
    found = found if found.size == expected.size else found[:, 1]
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def _plain(array):
    return array.toarray() if hasattr(array, "toarray") else array


def test_derived_attributes_follow():
    estimator, _, conversion = converted("StandardScaler")
    back = to_sklearn(estimator, conversion.bindings, {"scale": np.array([1.0, 2.0, 4.0, 5.0])})
    np.testing.assert_allclose(back.scale_, [1, 0.5, 0.25, 0.2])
    np.testing.assert_allclose(back.var_, back.scale_**2)
    estimator, _, conversion = converted("MinMaxScaler")
    back = to_sklearn(estimator, conversion.bindings, {"min": np.array([0.5, 0.0, 0.0, 0.0])})
    np.testing.assert_allclose(back.inverse_transform(np.zeros((1, 4)))[0], back.data_min_)
    np.testing.assert_allclose(back.data_max_ - back.data_min_, back.data_range_)
    estimator, _, conversion = converted("MaxAbsScaler")
    back = to_sklearn(estimator, conversion.bindings, {"scale": np.full(4, 0.5)})
    np.testing.assert_allclose(back.max_abs_, 2.0)


@pytest.mark.parametrize(
    "weights, words",
    [
        ({"coeff": np.zeros((5, 1))}, "'coeff' does not belong to LinearRegression. Did you mean 'coef'"),
        ({"coef": np.zeros((4, 1))}, r"'coef' has shape \(4, 1\), but the estimator's has \(5, 1\)"),
    ],
)
def test_what_has_no_place_is_named(weights, words):
    estimator, _, conversion = converted("LinearRegression")
    with pytest.raises(ExportError, match=words):
        to_sklearn(estimator, conversion.bindings, weights)


def test_leaf_values_learn_another_loss_and_the_trees_stay():
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import GradientBoostingRegressor

    X, y = load_diabetes(return_X_y=True)
    boosting = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(X, y)
    tuned = OrtGradientRegressor(boosting, loss="absolute_error", learning_rate=0.1, max_iter=20, random_state=0).fit(
        X, y
    )
    back = tuned.to_sklearn()
    before, after = (np.abs(y - model.predict(X)).mean() for model in (boosting, back))
    assert after < 0.9 * before
    np.testing.assert_allclose(back.predict(X), tuned.predict(X), rtol=1e-5)
    for old, new in zip(boosting.estimators_.flat, back.estimators_.flat, strict=True):
        np.testing.assert_array_equal(old.tree_.threshold, new.tree_.threshold)
        np.testing.assert_array_equal(old.tree_.feature, new.tree_.feature)


@pytest.fixture(scope="module")
def digits_of_five_seeds():
    """Of each seed: rows to test, the pipeline as fitted, the best of two penalties by rows held out of the training ones."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from onnxtrain import OrtGradientClassifier

    results = []
    for seed in range(5):
        X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=seed)
        network = MLPClassifier((30,), early_stopping=True, random_state=seed)
        fitted = make_pipeline(StandardScaler(), PCA(20), network).fit(X, y)
        X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.2, random_state=seed)
        options = {"weights_to_train": "all", "learning_rate": 1e-3, "max_iter": 30, "random_state": seed}
        tuned = [OrtGradientClassifier(fitted, l2=l2, **options).fit(X_train, y_train) for l2 in (1e-4, 1e-3)]
        best = min(tuned, key=lambda model: log_loss(y_val, model.predict_proba(X_val)))
        results.append((X_test, y_test, fitted, best))
    return results


def test_a_pipeline_tuned_whole_is_better_on_rows_it_never_saw(digits_of_five_seeds):
    from sklearn.metrics import log_loss

    before, after = (
        np.mean([log_loss(y, pair[which].predict_proba(X)) for X, y, *pair in digits_of_five_seeds]) for which in (0, 1)
    )
    assert after < 0.7 * before  # 0.13 where it was 0.35


def test_a_pipeline_tuned_whole_comes_back(digits_of_five_seeds):
    for X, _, fitted, tuned in digits_of_five_seeds:
        back = tuned.to_sklearn()
        assert type(back) is type(fitted)
        assert [type(step) for step in back] == [type(step) for step in fitted]
        assert len(tuned.weights_) == 8
        np.testing.assert_allclose(back.predict_proba(X), tuned.predict_proba(X), atol=1e-5)
