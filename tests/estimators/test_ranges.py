"""Constraints kept during training: probabilities of leaves lie on the simplex, variances are positive."""

from __future__ import annotations

import numpy as np
import pytest
import skl2onnx
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ConversionError
from onnxtrain.rewrite.trees import to_free, to_simplex
from tests.zoo import data

TREES = [
    DecisionTreeClassifier(random_state=0),
    DecisionTreeClassifier(max_depth=2, random_state=0),
    RandomForestClassifier(7, random_state=0),
    RandomForestClassifier(7, max_depth=3, class_weight="balanced", random_state=0),
    ExtraTreesClassifier(5, max_depth=4, random_state=0),
    BaggingClassifier(n_estimators=3, random_state=0),
    VotingClassifier([("a", DecisionTreeClassifier(max_depth=2, random_state=0))], voting="soft"),
]


def moved(y):
    """Return labels of which a third are others: leaves that were pure are not any more."""
    rng = np.random.default_rng(0)
    return np.where(rng.random(len(y)) < 0.3, rng.permutation(y), y)


@pytest.mark.filterwarnings("ignore:class_weight='balanced' of RandomForestClassifier has no effect")
@pytest.mark.parametrize("kind", ["bin", "iris"])
@pytest.mark.parametrize("estimator", TREES, ids=lambda e: type(e).__name__)
def test_leaves_stay_probabilities(estimator, kind):
    X, y = data(kind)
    fitted = estimator.fit(X, y)
    still = OrtGradientClassifier(fitted, learning_rate=1e-12, max_iter=1, random_state=0).fit(X, y)
    np.testing.assert_allclose(still.predict_proba(X), fitted.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(still.to_sklearn().predict_proba(X), fitted.predict_proba(X), atol=1e-6)
    tuned = OrtGradientClassifier(fitted, learning_rate=0.02, max_iter=30, random_state=0).fit(X, moved(y))
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    p = tuned.to_sklearn().predict_proba(X)
    np.testing.assert_allclose(p, tuned.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert 0 <= p.min() <= p.max() <= 1


def test_a_tie_of_trees_has_the_label_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    forest = RandomForestClassifier(20, random_state=0).fit(X[:100], y[:100])
    still = OrtGradientClassifier(forest, max_iter=0).fit(X, y)
    assert np.sum(forest.predict_proba(X)[:, 0] == 0.5) > 3
    np.testing.assert_array_equal(still.predict(X), forest.predict(X))


@pytest.mark.parametrize("solver, rate", [("adam", 0.02), ("sgd", 0.1), ("lbfgs", 1e-3)])
@pytest.mark.parametrize("kind", ["bin", "iris"])
def test_a_leaf_that_is_sure_of_the_wrong_class_is_corrected(kind, solver, rate):
    """Each leaf of a single tree is pure, and the labels of a third of the rows are others."""
    X, y = data(kind)
    fitted = DecisionTreeClassifier(random_state=0).fit(X, y)
    tuned = OrtGradientClassifier(fitted, solver=solver, learning_rate=rate, max_iter=30, random_state=0)
    tuned.fit(X, moved(y))
    true = np.searchsorted(fitted.classes_, moved(y)).reshape(-1, 1)
    before, after = (np.take_along_axis(e.predict_proba(X), true, axis=1) for e in (fitted, tuned))
    assert -np.log(after).mean() < -np.log(np.maximum(before, 1e-6)).mean() / 3


@pytest.mark.parametrize("kind", ["bin", "iris"])
def test_leaves_of_a_file_stay_probabilities(kind):
    X, y = data(kind)
    fitted = RandomForestClassifier(5, random_state=0).fit(X, y)
    onx = skl2onnx.to_onnx(fitted, X[:1].astype(np.float32), options={"zipmap": False}, target_opset=21)
    tuned = OrtGradientClassifier(onx, learning_rate=0.05, max_iter=30, random_state=0).fit(X, moved(y))
    p = tuned.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert 0 <= p.min() <= p.max() <= 1


def test_probabilities_of_zero_come_back_close():
    p = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(to_simplex(to_free(p / 50)), p, atol=1e-6)
    np.testing.assert_allclose(to_free(p)[2], 0, atol=1e-9)


@pytest.mark.parametrize("kind", ["bin", "iris"])
@pytest.mark.parametrize(
    "estimator",
    [GaussianNB(), QuadraticDiscriminantAnalysis(reg_param=0.1), BernoulliNB(binarize=0.5)],
    ids=lambda e: type(e).__name__,
)
def test_variances_and_probabilities_stay_in_their_range(estimator, kind):
    X, y = data(kind)
    fitted = estimator.fit(X, y)
    tuned = OrtGradientClassifier(
        fitted, weights_to_train="all", learning_rate=0.1, max_iter=60, random_state=0, n_iter_no_change=60
    ).fit(X, moved(y))
    assert np.isfinite(tuned.loss_curve_).all()
    p = tuned.to_sklearn().predict_proba(X)
    np.testing.assert_allclose(p, tuned.predict_proba(X), atol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_precisions_of_a_mixture_stay_positive(covariance):
    X, _ = data("bin")
    mixture = GaussianMixture(2, covariance_type=covariance, random_state=0).fit(X)
    if covariance in ("full", "tied"):
        mixture.precisions_cholesky_[..., 0] *= 1e-3  # one step takes it over zero
    found = OrtGradientRegressor(
        mixture, output="probabilities", weights_to_train="all", solver="sgd", learning_rate=0.5, max_iter=2,
        random_state=0,
    ).fit(X, mixture.predict_proba(X)[::-1])  # fmt: skip
    back = found.to_sklearn()
    assert np.isfinite(back.predict_proba(X)).all()


@pytest.mark.parametrize("kind", ["bin", "iris"])
@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(5, random_state=0), SVC()], ids=str)
def test_probabilities_in_double_sum_up_to_one(estimator, kind):
    X, y = data(kind)
    tuned = OrtGradientClassifier(estimator.fit(X, y), max_iter=2, random_state=0).fit(X, y)
    assert np.abs(tuned.predict_proba(X).sum(axis=1) - 1).max() < 1e-15 * 4
    log_loss(y, tuned.predict_proba(X))  # warns where they do not
    assert tuned.predict_proba(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("kind", ["bin", "iris"])
def test_values_of_isotonic_calibration_stay_probabilities(kind):
    X, y = data(kind)
    fitted = CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=3).fit(X, y)
    settings = dict(dtype="float64", random_state=0)
    still = OrtGradientClassifier(fitted, learning_rate=1e-12, max_iter=1, **settings).fit(X, y)
    np.testing.assert_allclose(still.predict_proba(X), fitted.predict_proba(X), atol=1e-6)
    tuned = OrtGradientClassifier(fitted, learning_rate=0.05, max_iter=30, **settings).fit(X, moved(y))
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    p = tuned.predict_proba(X)
    assert 0 <= p.min() <= p.max() <= 1
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(X), p, atol=1e-5)


def test_distributions_below_the_smallest_float32_stay_probabilities():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    fitted = LabelSpreading().fit(X, y)
    assert 0 < fitted.label_distributions_.min() < 1e-100
    tuned = OrtGradientClassifier(fitted, learning_rate=0.05, max_iter=30, random_state=0).fit(X, moved(y))
    p = tuned.predict_proba(X)
    assert 0 <= p.min() <= p.max() <= 1


def test_probabilities_of_a_file_that_leave_their_range_are_warned_of():
    X, y = data("bin")
    fitted = CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=3).fit(X, y)
    onx = skl2onnx.to_onnx(fitted, X[:1].astype(np.float32), options={"zipmap": False}, target_opset=21)
    tuned = OrtGradientClassifier(onx, learning_rate=0.05, max_iter=30, random_state=0).fit(X, moved(y))
    with pytest.warns(UserWarning, match=r"A probability of the trained model is -0\.\d+\. .*weights_to_train"):
        tuned.predict_proba(X)


def test_isotonic_calibration_decided_by_rounding_is_answered(monkeypatch):
    X, y = load_breast_cancer(return_X_y=True)
    steep = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3).fit(X, y)
    with pytest.raises(ConversionError, match=r"the last digits of the scores decide\. Use .*method='sigmoid'"):
        OrtGradientClassifier(steep).fit(X, y)
    with pytest.warns(UserWarning, match="to_sklearn.. may predict other probabilities"):
        OrtGradientClassifier(steep, dtype="float64", max_iter=1).fit(X, y)
    monkeypatch.setattr("onnxtrain.estimators.reuse._agrees_in_float64", lambda *args: False)  # as with other rows
    with pytest.raises(ConversionError, match=r"the last digits of the scores decide\. Use .*method='sigmoid'"):
        OrtGradientClassifier(steep).fit(X, y)
    flat = CalibratedClassifierCV(GaussianNB(), method="sigmoid", cv=3).fit(X, y)
    tuned = OrtGradientClassifier(flat, max_iter=5, random_state=0).fit(X, y)
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(X), tuned.predict_proba(X), atol=1e-5)


def test_variances_above_the_largest_float32_are_refused_without_a_warning_of_numpy():
    rows = 1e21 * np.random.default_rng(0).normal(size=(60, 2))
    labels = (rows[:, 0] > 0).astype(int)
    with pytest.raises(ConversionError, match="does not match the estimator"):  # filterwarnings = error
        OrtGradientClassifier(GaussianNB().fit(rows, labels)).fit(rows, labels)
