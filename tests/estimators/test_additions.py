"""Classes that onnxtrain alone converts, on tables as scikit-learn loads them: equal at rate 0, trained, written back."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import CCA, PLSCanonical
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge, SGDOneClassSVM
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    KNeighborsTransformer,
    NearestCentroid,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.fixes import parse_version

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.convert.check import chooses_by_scores
from onnxtrain.errors import ConversionError, DataError, WeightError
from onnxtrain.runtime.session import run

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:y contains no unlabeled samples:UserWarning",
    "ignore:(KNeighbors|RadiusNeighbors)Regressor averages:UserWarning",
)

X, Y = load_diabetes(return_X_y=True)
BOTH = np.column_stack([Y, 3 * Y + Y[::-1]])
WINE, KIND = load_wine(return_X_y=True)
LABELS = np.column_stack([KIND == 0, (KIND > 0) & (WINE[:, 0] > 13)]).astype(int)
HISTOGRAM = HistGradientBoostingRegressor(max_iter=8, random_state=0)
LOGISTIC = LogisticRegression(max_iter=50)

#: Estimator, targets.
REGRESSORS = {
    **{f"kernel ridge, {kernel}": (KernelRidge(kernel=kernel), Y) for kernel in ("linear", "rbf", "poly", "sigmoid")},
    "kernel ridge, laplacian, two targets": (KernelRidge(kernel="laplacian"), BOTH),
    "kernel ridge in a vote": (VotingRegressor([("kernel", KernelRidge(kernel="rbf")), ("ridge", Ridge())]), Y),
    "gaussian process": (GaussianProcessRegressor(RBF(0.1) + DotProduct() + WhiteKernel(1.0), normalize_y=True), Y),
    "chain": (RegressorChain(Ridge(), order=[1, 0]), BOTH),
    "chain of trees": (RegressorChain(HISTOGRAM), BOTH),
    "trees for each target": (MultiOutputRegressor(HISTOGRAM), BOTH),
    "neighbours by distance": (KNeighborsRegressor(weights="distance"), Y),
    "neighbours of whole targets": (KNeighborsRegressor(), Y.astype(int)),
    "neighbours in a radius by distance": (RadiusNeighborsRegressor(0.3, weights="distance"), Y),
    "neighbours by distance, manhattan": (KNeighborsRegressor(weights="distance", p=1), Y),
    "neighbours by distance of order 3": (KNeighborsRegressor(weights="distance", p=3), Y),
    "neighbours by the largest difference": (RadiusNeighborsRegressor(0.3, metric="chebyshev", weights=None), Y),
    "isotonic": (IsotonicRegression(out_of_bounds="clip"), Y),
    "cca": (CCA(1), BOTH),
    "pls": (PLSCanonical(2), BOTH),
    "dummy": (DummyRegressor(), Y),
}
CLASSIFIERS = {
    "gaussian process": (GaussianProcessClassifier(), KIND),
    "gaussian process, scaled": (
        make_pipeline(StandardScaler(), GaussianProcessClassifier(2.0 * RBF(3.0), optimizer=None)),
        KIND,
    ),
    "chain": (ClassifierChain(LOGISTIC), LABELS),
    "chain of probabilities": (ClassifierChain(LOGISTIC, chain_method="predict_proba"), LABELS),
    "chain of scores": (ClassifierChain(LinearSVC(), order=[1, 0]), LABELS),
    "one against the rest": (OneVsRestClassifier(make_pipeline(StandardScaler(), SVC())), KIND),
    "one against the rest, linear": (OneVsRestClassifier(LinearSVC()), KIND),
    "one against the rest, labels": (OneVsRestClassifier(LinearSVC()), LABELS),
    "one against the rest, probabilities of labels": (OneVsRestClassifier(GaussianNB()), LABELS),
    "chain of naive Bayes": (ClassifierChain(GaussianNB()), LABELS),
    "codes": (OutputCodeClassifier(LOGISTIC, random_state=0), KIND),
    "isotonic calibration": (CalibratedClassifierCV(LOGISTIC, method="isotonic", cv=3), KIND),
    "isotonic calibration of scores": (CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=2), KIND > 0),
    "propagation": (LabelPropagation(), KIND),
    "spreading": (LabelSpreading(kernel="knn"), KIND),
    "self-training": (SelfTrainingClassifier(LOGISTIC), KIND),
    "centroids": (NearestCentroid(priors="empirical"), KIND),
    "centroids, manhattan": (NearestCentroid(metric="manhattan"), KIND),
    "counts": (MultinomialNB(), KIND),
    "complements": (ComplementNB(), KIND),
    "threshold": (FixedThresholdClassifier(LOGISTIC), KIND > 0),
    "stack of labels": (
        StackingClassifier([("a", LOGISTIC), ("b", Perceptron())], stack_method="predict", cv=3),
        KIND,
    ),
}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def trained(kind, fitted, rows, y, **options):
    return kind(fitted, batch_size=len(rows), random_state=0, **options).fit(rows, y)


@pytest.mark.filterwarnings("ignore:float32 is not precise enough")  # 3e-5 of the range: kernels close to 1
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_is_trained_and_written_back(name):
    estimator, y = REGRESSORS[name]
    rows = X[:, [2]] if isinstance(estimator, IsotonicRegression) else X
    fitted = clone(estimator).fit(rows, y)
    targets = 0.7 * y + 0.3 * y.std(axis=0) * np.random.default_rng(0).normal(size=y.shape)
    start = trained(OrtGradientRegressor, fitted, rows, targets, max_iter=1, learning_rate=1e-30)
    close(start.predict(rows), fitted.predict(rows))
    tuned = trained(OrtGradientRegressor, fitted, rows, targets, max_iter=10)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    assert all(np.any(w != start.weights_[k]) for k, w in tuned.weights_.items())
    close(tuned.predict(rows), tuned.to_sklearn().predict(rows))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_trained_and_written_back(name):
    estimator, y = CLASSIFIERS[name]
    fitted = clone(estimator).fit(WINE, y)
    method = "predict_proba" if hasattr(fitted, "predict_proba") else "decision_function"
    method = method if hasattr(fitted, method) else "predict"  # OutputCodeClassifier
    rng, targets = np.random.default_rng(0), y.copy()
    targets[::4] = rng.permutation(y[::4])
    start = trained(OrtGradientClassifier, fitted, WINE, targets, max_iter=1, learning_rate=1e-30)
    close(getattr(start, method)(WINE), getattr(fitted, method)(WINE))
    np.testing.assert_array_equal(start.predict(WINE), fitted.predict(WINE))
    tuned = trained(OrtGradientClassifier, fitted, WINE, targets, max_iter=10, learning_rate=1e-4)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    assert any(np.any(w != start.weights_[k]) for k, w in tuned.weights_.items())
    back = tuned.to_sklearn()
    assert type(back) is type(fitted)
    close(getattr(tuned, method)(WINE), getattr(back, method)(WINE))


@pytest.mark.filterwarnings("ignore:float32 is not precise enough")
@pytest.mark.parametrize("dtype, error", [("float32", 5e-5), ("float64", 1e-6)])
def test_small_probabilities_of_a_gaussian_process_keep_their_digits(dtype, error):
    fitted = CLASSIFIERS["gaussian process, scaled"][0].fit(WINE, KIND)
    for part in fitted[-1].base_estimator_.estimators_:
        part.pi_ = part.pi_ + 0.07  # training may lower the scores of all classes; the probabilities are normalized
    sums = sum(part.predict_proba(fitted[0].transform(WINE))[:, 1] for part in fitted[-1].base_estimator_.estimators_)
    assert sums.min() < 1e-3
    tuned = OrtGradientClassifier(fitted, max_iter=0, dtype=dtype).fit(WINE, KIND)
    np.testing.assert_allclose(tuned.predict_proba(WINE), fitted.predict_proba(WINE), rtol=0, atol=error)


def test_probabilities_that_scikit_learn_does_not_resolve_are_reported():
    fitted = clone(CLASSIFIERS["gaussian process, scaled"][0]).fit(WINE, KIND)
    tuned = OrtGradientClassifier(fitted, solver="lbfgs", dtype="float64", max_iter=50).fit(WINE, KIND)
    with pytest.warns(UserWarning, match=r"scikit-learn may predict other classes .* below 1e-07 in \d+ of \d+ rows"):
        back = tuned.to_sklearn()
    assert np.mean(back.predict(WINE) == KIND) < 0.9 < np.mean(tuned.predict(WINE) == KIND)
    session = onnxruntime.InferenceSession(tuned.get_trained_onnx().SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"X": WINE.astype(np.float64)})[0], tuned.predict(WINE))
    earlier = OrtGradientClassifier(fitted, solver="lbfgs", dtype="float64", max_iter=2).fit(WINE, KIND)
    close(earlier.to_sklearn().predict_proba(WINE), earlier.predict_proba(WINE))


@pytest.mark.filterwarnings("ignore:Before training, the model predicts rows with the label")
@pytest.mark.filterwarnings("ignore:The fitted model predicts")
@pytest.mark.parametrize("name", ["propagation", "spreading"])
def test_trained_label_distributions_stay_probabilities(name):
    fitted = CLASSIFIERS[name][0].fit(WINE, KIND)
    tuned = OrtGradientClassifier(fitted, solver="lbfgs", max_iter=20, tol=0).fit(WINE, (KIND + 1) % 3)
    p, back = tuned.predict_proba(WINE), tuned.to_sklearn()
    assert p.min() >= 0
    assert tuned.loss_curve_[-1] < 0.5 * tuned.loss_curve_[0]
    assert back.label_distributions_.min() >= 0
    close(back.predict_proba(WINE), p)
    same = OrtGradientClassifier(fitted, max_iter=0).fit(WINE, KIND).to_sklearn()
    np.testing.assert_array_equal(same.label_distributions_, fitted.label_distributions_)


@pytest.mark.filterwarnings("ignore:float32 is not precise enough")
def test_of_a_kernel_ridge_the_dual_coefficients_are_trained():
    fitted = KernelRidge(kernel="rbf").fit(X, Y)
    tuned = OrtGradientRegressor(fitted, max_iter=2, random_state=0).fit(X, Y)
    assert list(tuned.weights_) == ["dual_coef"]
    np.testing.assert_array_equal(tuned.to_sklearn().X_fit_, X)


def test_a_threshold_goes_around_what_is_trained():
    y = (KIND > 0).astype(int)
    fitted = TunedThresholdClassifierCV(LOGISTIC, cv=3, random_state=0).fit(WINE, y)
    assert fitted.best_threshold_ != 0.5
    with pytest.raises(ConversionError, match=rf"apply the threshold outside.*, threshold={fitted.best_threshold_}\)"):
        OrtGradientClassifier(fitted).fit(WINE, y)
    inside = OrtGradientClassifier(fitted.estimator_, max_iter=1, learning_rate=1e-30)
    around = FixedThresholdClassifier(inside, threshold=fitted.best_threshold_).fit(WINE, y)
    np.testing.assert_array_equal(around.predict(WINE), fitted.predict(WINE))


def test_a_threshold_for_the_first_class_goes_around_too():
    y = np.where(KIND > 0, "yes", "no")
    fitted = FixedThresholdClassifier(LOGISTIC, threshold=0.7, pos_label="no").fit(WINE, y)
    with pytest.raises(ConversionError, match=r"threshold=0.7, pos_label='no'\)"):
        OrtGradientClassifier(fitted).fit(WINE, y)
    inside = OrtGradientClassifier(fitted.estimator_, max_iter=0)
    around = FixedThresholdClassifier(inside, threshold=0.7, pos_label="no").fit(WINE, y)
    np.testing.assert_array_equal(around.predict(WINE), fitted.predict(WINE))


def test_a_tuned_threshold_goes_around_with_the_label_of_its_scorer():
    y = np.where(KIND > 0, "yes", "no")
    scoring = make_scorer(fbeta_score, beta=2, pos_label="no")
    fitted = TunedThresholdClassifierCV(LOGISTIC, scoring=scoring, cv=3, random_state=0).fit(WINE, y)
    with pytest.raises(ConversionError, match=r"threshold=0\.\d+, pos_label='no'\)"):
        OrtGradientClassifier(fitted).fit(WINE, y)
    inside = OrtGradientClassifier(fitted.estimator_, max_iter=0)
    around = FixedThresholdClassifier(inside, threshold=fitted.best_threshold_, pos_label="no").fit(WINE, y)
    np.testing.assert_array_equal(around.predict(WINE), fitted.predict(WINE))


def test_a_threshold_of_scores_goes_around_with_its_method():
    y = (KIND > 0).astype(int)
    scores = dict(threshold=0.5, response_method="decision_function")
    fitted = FixedThresholdClassifier(LOGISTIC, **scores).fit(WINE, y)
    with pytest.raises(ConversionError, match=r"threshold=0.5, response_method='decision_function'\)"):
        OrtGradientClassifier(fitted).fit(WINE, y)
    around = FixedThresholdClassifier(OrtGradientClassifier(fitted.estimator_, max_iter=0), **scores).fit(WINE, y)
    np.testing.assert_array_equal(around.predict(WINE), fitted.predict(WINE))


def test_a_threshold_of_trees_goes_around_because_leaves_lie_on_it():
    y = (KIND > 0).astype(int)
    fitted = FixedThresholdClassifier(RandomForestClassifier(2, max_features=1, random_state=0)).fit(WINE, y)
    assert (fitted.predict_proba(WINE)[:, 1] == 0.5).any()
    with pytest.raises(ConversionError, match=r"second class at exactly 0.5, as trees .*\(model\), threshold=0.5\)"):
        OrtGradientClassifier(fitted).fit(WINE, y)
    inside = OrtGradientClassifier(fitted.estimator_, max_iter=0)
    around = FixedThresholdClassifier(inside, threshold=0.5).fit(WINE, y)
    np.testing.assert_array_equal(around.predict(WINE), fitted.predict(WINE))


@pytest.mark.skipif(
    sklearn.__version__.startswith(("1.6", "1.7")), reason="scikit-learn calibrates by temperature since 1.8"
)
def test_a_temperature_of_leaves_without_a_class_is_refused_and_a_sigmoid_is_not():
    forest = RandomForestClassifier(5, random_state=0)
    with pytest.raises(ConversionError, match=r"counts as 1.7e-7 there.*CalibratedClassifierCV\(method='sigmoid'\)"):
        OrtGradientClassifier(CalibratedClassifierCV(forest, method="temperature", cv=2)).fit(WINE, KIND)
    behind = CalibratedClassifierCV(make_pipeline(FunctionTransformer(), forest), method="temperature", cv=2)
    with pytest.raises(ConversionError, match=r"between the rows of X.*CalibratedClassifierCV\(method='sigmoid'\)"):
        OrtGradientClassifier(behind).fit(WINE, KIND)
    fitted = CalibratedClassifierCV(forest, method="sigmoid", cv=2).fit(WINE, KIND)
    close(OrtGradientClassifier(fitted, max_iter=0).fit(WINE, KIND).predict_proba(WINE), fitted.predict_proba(WINE))


def test_scores_and_probabilities_of_one_estimator_are_not_both_in_a_graph():
    fitted = ClassifierChain(LOGISTIC, chain_method="decision_function").fit(WINE, LABELS)
    with pytest.raises(ConversionError, match="its probabilities or its decision_function"):
        OrtGradientClassifier(fitted).fit(WINE, LABELS)


@pytest.mark.filterwarnings("ignore:C=0.1 of SVC has no effect")
@pytest.mark.parametrize("kind", [SVC(C=0.1), make_pipeline(StandardScaler(), SVC(C=0.1))], ids=str)
def test_of_classes_with_equally_many_votes_the_first_is_predicted(kind, tmp_path):
    rows, y = (part[:200] for part in load_digits(return_X_y=True))
    fitted = kind.fit(rows, y)
    assert np.any(fitted.predict(rows) != fitted.decision_function(rows).argmax(axis=1))
    start = trained(OrtGradientClassifier, fitted, rows, y, max_iter=1, learning_rate=1e-30)
    np.testing.assert_array_equal(start.predict(rows), fitted.predict(rows))
    tuned = trained(OrtGradientClassifier, fitted, rows, y, max_iter=15, learning_rate=1e-2)
    label, _ = run(tuned.get_trained_onnx(), {"X": rows.astype(np.float32)})
    save(tuned, tmp_path / "machine.onnx")
    for again in (label, tuned.to_sklearn().predict(rows), load(tmp_path / "machine.onnx").predict(rows)):
        np.testing.assert_array_equal(again, tuned.predict(rows))


def test_scores_of_pairs_of_classes_are_refused():
    fitted = SVC(decision_function_shape="ovo").fit(WINE, KIND)
    with pytest.raises(
        ConversionError, match=r"one score per pair of classes.* set_params\(decision_function_shape='ovr'\)"
    ):
        OrtGradientClassifier(fitted).fit(WINE, KIND)
    expected = fitted.predict(WINE)
    start = OrtGradientClassifier(fitted.set_params(decision_function_shape="ovr"), max_iter=0).fit(WINE, KIND)
    np.testing.assert_array_equal(start.predict(WINE), expected)


def test_distances_of_rows_far_from_zero_keep_their_digits():
    rows = StandardScaler().fit_transform(WINE) + 100
    fitted = SVC().fit(rows, KIND == 1)
    start = OrtGradientClassifier(fitted, max_iter=0).fit(rows, KIND == 1)
    np.testing.assert_allclose(start.decision_function(rows), fitted.decision_function(rows), atol=1e-4)


@pytest.mark.filterwarnings("ignore:SVR minimizes the loss")
@pytest.mark.parametrize("weights", [None, "all"])
@pytest.mark.parametrize(
    "estimator, y",
    [(SVR(gamma=0.01), WINE[:, 0]), (SVC(gamma="auto"), KIND == 1), (KernelRidge(kernel="rbf", gamma=0.01), Y)],
    ids=["svr", "svc", "kernel ridge"],
)
def test_kernels_of_rows_far_from_each_other_keep_their_digits(estimator, y, weights):
    """Their squared norms are up to 1e5 over gamma, of which float32 has 6e-3."""
    rows = WINE if len(y) == len(WINE) else 30 * StandardScaler().fit_transform(X)
    fitted = clone(estimator).fit(rows, y)
    kind = OrtGradientClassifier if is_classifier(fitted) else OrtGradientRegressor
    method = "decision_function" if is_classifier(fitted) else "predict"
    start = kind(fitted, weights_to_train=weights, max_iter=1, learning_rate=1e-9).fit(rows, y)
    expected = getattr(fitted, method)(rows)
    np.testing.assert_allclose(getattr(start, method)(rows), expected, rtol=0, atol=1e-5 * np.ptp(expected))


def test_scores_of_support_vectors_are_compared_to_their_digits():
    fitted = NuSVC().fit(WINE, KIND)  # dual coefficients of 1050 and of both signs
    with pytest.raises(ConversionError, match="float32 has too few digits.*dtype='float64'"):
        OrtGradientClassifier(fitted).fit(WINE, KIND)
    start = trained(OrtGradientClassifier, fitted, WINE, KIND, max_iter=1, learning_rate=1e-30, dtype="float64")
    np.testing.assert_array_equal(start.predict(WINE), fitted.predict(WINE))
    close(start.decision_function(WINE), fitted.decision_function(WINE))


@pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning")
def test_probabilities_of_libsvm_that_choose_another_class_name_calibration():
    fitted = SVC(probability=True, random_state=0).fit(WINE, KIND)
    with pytest.raises(ConversionError, match=r"CalibratedClassifierCV\(SVC\(\), ensemble=False\)"):
        OrtGradientClassifier(fitted).fit(WINE, KIND)
    around = CalibratedClassifierCV(SVC(), ensemble=False).fit(WINE, KIND)
    start = trained(OrtGradientClassifier, around, WINE, KIND, max_iter=1, learning_rate=1e-30)
    close(start.predict_proba(WINE), around.predict_proba(WINE))


NOISE = np.random.default_rng(3)
NOISY = NOISE.normal(size=(300, 5))
NOISY_KIND = np.digitize(NOISY[:, 0] + NOISY[:, 1] * NOISY[:, 2] + NOISE.normal(size=300), [-0.6, 0.6])
NOISY_PAIR = np.column_stack([NOISY_KIND > 0, NOISY_KIND > 1]).astype(int)


@pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning")
@pytest.mark.parametrize(
    "around, y",
    [
        (OneVsOneClassifier, NOISY_KIND),
        (OneVsRestClassifier, NOISY_KIND),
        (ClassifierChain, NOISY_PAIR),
        (SelfTrainingClassifier, NOISY_PAIR[:, 0]),
        (MultiOutputClassifier, NOISY_PAIR),
    ],
)
def test_members_with_probabilities_of_libsvm_name_calibration(around, y):
    fitted = around(SVC(probability=True, random_state=0)).fit(NOISY, y)
    assert chooses_by_scores(make_pipeline(StandardScaler(), fitted))
    with pytest.raises((ConversionError, UserWarning), match=r"Use CalibratedClassifierCV\(SVC\(\), ensemble=False\)"):
        OrtGradientClassifier(fitted, max_iter=0).fit(NOISY, y)
    again = around(CalibratedClassifierCV(SVC(), ensemble=False)).fit(NOISY, y)
    assert not chooses_by_scores(again)
    start = OrtGradientClassifier(again, max_iter=0).fit(NOISY, y)
    np.testing.assert_array_equal(start.predict(NOISY), again.predict(NOISY))


@pytest.mark.parametrize(
    "estimator, remedy, again",
    [
        (KNeighborsClassifier(), r"LabelSpreading\(kernel='knn'\)", LabelSpreading(kernel="knn")),
        (RadiusNeighborsClassifier(300.0), r"LabelSpreading\(kernel='knn'\)", LabelSpreading(kernel="knn")),
        (DummyClassifier(strategy="most_frequent"), r"strategy='prior'", DummyClassifier()),
    ],
    ids=str,
)
def test_a_class_without_weights_names_one_that_has_some(estimator, remedy, again):
    with pytest.raises(WeightError, match=f"no weight.*{remedy}"):
        OrtGradientClassifier(estimator.fit(WINE, KIND)).fit(WINE, KIND)
    targets = np.where(np.arange(len(KIND)) % 3, KIND, 0)
    tuned = trained(OrtGradientClassifier, again.fit(WINE, KIND), WINE, targets, max_iter=5)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    close(tuned.predict_proba(WINE), tuned.to_sklearn().predict_proba(WINE))


@pytest.mark.parametrize("estimator", [OneClassSVM(nu=0.2), SGDOneClassSVM(nu=0.2, random_state=0)], ids=repr)
def test_an_outlier_detector_is_trained_as_a_classifier_of_inliers(estimator):
    fitted = make_pipeline(StandardScaler(), estimator).fit(WINE)
    start = trained(OrtGradientClassifier, fitted, WINE, fitted.predict(WINE), max_iter=1, learning_rate=1e-30)
    assert (start.predict(WINE) == fitted.predict(WINE)).all()
    close(start.decision_function(WINE), fitted.decision_function(WINE))
    tuned = trained(OrtGradientClassifier, fitted, WINE, np.where(KIND == 0, 1, -1), max_iter=50)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    assert (tuned.to_sklearn().predict(WINE) == tuned.predict(WINE)).all()


def own_kernel(X, other=WINE[::20]):
    return np.tanh(1e-3 * X @ other.T)


@pytest.mark.filterwarnings("ignore:LinearSVR minimizes the loss")
@pytest.mark.parametrize(
    "estimator, remedy, again",
    [
        (SVC(kernel=own_kernel), r"The kernel is a Python function.*LinearSVC\(\)\)", LinearSVC()),
        (NuSVR(kernel=own_kernel), r"The kernel is a Python function.*LinearSVR\(\)\)", LinearSVR()),
        (OneClassSVM(kernel=own_kernel), r"The kernel is a Python function.*SGDOneClassSVM\(\)\)", None),
        (SVR(kernel="precomputed"), r"kernel='precomputed' has no formula in ONNX.*fit LinearSVR\(\)", None),
    ],
    ids=["svc", "nusvr", "one class", "precomputed"],
)
def test_a_kernel_without_a_formula_names_a_linear_model_of_its_columns(estimator, remedy, again):
    rows = np.sign(WINE @ WINE.T) if estimator.kernel == "precomputed" else WINE
    kind = OrtGradientClassifier if is_classifier(estimator) else OrtGradientRegressor
    with pytest.raises(ConversionError, match=remedy):
        kind(estimator.fit(rows, KIND)).fit(rows, KIND)
    if again is not None:
        fitted = make_pipeline(FunctionTransformer(own_kernel), again).fit(rows, KIND)
        start = trained(kind, fitted, rows, KIND, max_iter=1, learning_rate=1e-30)
        close(start.predict(rows), fitted.predict(rows))


def test_neighbours_of_given_distances_name_the_step_that_computes_them():
    before = make_pipeline(StandardScaler(), KNeighborsTransformer(n_neighbors=9))
    fitted = make_pipeline(*before, KNeighborsRegressor(4, metric="precomputed")).fit(WINE, KIND)
    with pytest.raises(ConversionError, match=r"such as KNeighborsTransformer.*r\(metric='euclidean'\)"):
        OrtGradientRegressor(fitted).fit(WINE, KIND)
    again = make_pipeline(before[0], KNeighborsRegressor(4, metric="euclidean")).fit(WINE, KIND)
    close(again.predict(WINE), fitted.predict(WINE))
    with pytest.warns(UserWarning, match="KNeighborsRegressor averages the targets"):
        close(trained(OrtGradientRegressor, again, WINE, KIND, max_iter=0).predict(WINE), fitted.predict(WINE))


def test_neighbours_at_equal_distances_name_those_within_a_radius():
    rows, kind = np.repeat(WINE[::3], 3, axis=0), np.arange(180) % 3  # each row three times, with each label
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    linear = LogisticRegression()

    def voting(neighbours):
        return VotingClassifier([("a", linear), ("b", neighbours)], voting="soft").fit(rows, kind)

    with pytest.raises(
        ConversionError, match=r"Use RadiusNeighborsClassifier\(radius, outlier_label='most_frequent'\)"
    ):
        OrtGradientClassifier(voting(KNeighborsClassifier(4))).fit(rows, kind)
    fitted = voting(RadiusNeighborsClassifier(2.0, outlier_label="most_frequent"))
    start = trained(OrtGradientClassifier, fitted, rows, kind, max_iter=1, learning_rate=1e-30)
    close(start.predict_proba(rows), fitted.predict_proba(rows))


def test_neighbours_at_equal_distances_between_the_rows_of_a_fit_are_compared():
    rows = np.unique(np.random.default_rng(0).integers(0, 30, (60, 2)), axis=0).astype(np.float32)
    kind = np.arange(len(rows)) % 2
    nearest = KNeighborsClassifier(1, algorithm="brute")  # of a row of the fit, the row itself
    fitted = VotingClassifier([("a", LogisticRegression()), ("b", nearest)], voting="soft").fit(rows, kind)
    with pytest.raises(ConversionError, match="on all decimals between the rows.*RadiusNeighborsClassifier"):
        OrtGradientClassifier(fitted).fit(rows, kind)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "neighbours",
    [
        KNeighborsClassifier(4, weights="distance"),
        KNeighborsClassifier(4, p=3),
        RadiusNeighborsClassifier(2.0, weights="distance", outlier_label="most_frequent"),
        RadiusNeighborsClassifier(3.0, outlier_label=2, p=1),
    ],
    ids=["nearest, by distance", "nearest, of order 3", "radius, by distance", "radius, manhattan"],
)
def test_classes_of_neighbours_are_averaged_in_a_vote(neighbours, dtype):
    rows = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
    fitted = VotingClassifier([("a", LOGISTIC), ("b", clone(neighbours))], voting="soft").fit(rows[::2], KIND[::2])
    start = trained(OrtGradientClassifier, fitted, rows[::2], KIND[::2], max_iter=1, learning_rate=1e-30, dtype=dtype)
    for others in (rows, np.full((1, rows.shape[1]), 9.0)):  # fitted rows, rows near them, a row far from all
        close(start.predict_proba(others), fitted.predict_proba(others))


def test_rows_without_neighbours_have_no_score():
    tuned = OrtGradientRegressor(RadiusNeighborsRegressor(2.0).fit(X, Y), max_iter=0).fit(X, Y)
    with pytest.raises(DataError, match="predict returns NaN for 1 of 3 rows.* increase the radius"):
        tuned.score(np.concatenate([X[:2], np.full((1, X.shape[1]), 9.0)]), Y[:3])


def test_rows_without_neighbours_have_no_class():
    fitted = VotingClassifier([("a", LOGISTIC), ("b", RadiusNeighborsClassifier(2.0))], voting="soft").fit(X, Y > 100)
    tuned = OrtGradientClassifier(fitted, max_iter=1).fit(X, Y > 100)
    far = np.full((1, X.shape[1]), 9.0)
    for method in ("predict", "predict_proba"):
        with pytest.raises(DataError, match=r"No neighbors found for test samples.*outlier_label='most_frequent'"):
            getattr(tuned, method)(far)
    of_file = OrtGradientClassifier(tuned.get_trained_onnx(), max_iter=1).fit(X, Y > 100)
    assert np.isnan(of_file.predict_proba(far)).all()
    with pytest.warns(UserWarning, match=r"1 of 1 rows have scores that are NaN.*outlier_label='most_frequent'"):
        of_file.predict(far)


@pytest.mark.parametrize(
    "neighbours, words",
    [
        (KNeighborsClassifier(weights=np.exp), r"a Python function.* Use weights='distance'"),
        (
            RadiusNeighborsClassifier(9.0, outlier_label=7),
            r"outlier_label=7 of .* is no class.*='most_frequent', or one",
        ),
        (RadiusNeighborsClassifier(9.0, metric="cosine"), r"metric 'cosine' .*no formula.* Use metric='euclidean'"),
        (KNeighborsClassifier(metric="canberra"), r"metric 'canberra' .*no formula.* without the parameter w"),
    ],
    ids=["function", "outlier", "radius", "metric"],
)
def test_neighbours_without_a_formula_have_a_remedy(neighbours, words):
    fitted = VotingClassifier([("a", LOGISTIC), ("b", neighbours)], voting="soft").fit(WINE, KIND)
    with pytest.raises(ConversionError, match=words):
        OrtGradientClassifier(fitted).fit(WINE, KIND)


def test_neighbours_of_several_labels_name_the_distributions_of_each():
    fitted = KNeighborsClassifier(weights="distance").fit(WINE, LABELS)
    with pytest.raises(ConversionError, match=r"MultiOutputClassifier\(LabelSpreading\(kernel='knn'\)\)"):
        OrtGradientClassifier(fitted).fit(WINE, LABELS)
    fitted = MultiOutputClassifier(LabelSpreading(kernel="knn")).fit(WINE, LABELS)
    tuned = trained(OrtGradientClassifier, fitted, WINE, LABELS[::-1], max_iter=5)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]


@pytest.mark.parametrize(
    "trees", [DecisionTreeClassifier(max_depth=3), RandomForestClassifier(3, max_depth=3, random_state=0)], ids=str
)
def test_trees_of_several_labels_name_those_of_each(trees):
    with pytest.raises(
        WeightError, match=r"no weight.* MultiOutputClassifier\(\w+\(\.\.\.\)\), which has separate leaves for each"
    ):
        OrtGradientClassifier(clone(trees).fit(WINE, LABELS)).fit(WINE, LABELS)
    fitted = MultiOutputClassifier(trees).fit(WINE, LABELS)
    tuned = trained(OrtGradientClassifier, fitted, WINE, LABELS[::-1], max_iter=5)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    back = np.column_stack([p[:, 1] for p in tuned.to_sklearn().predict_proba(WINE)])
    close(tuned.predict_proba(WINE), back)


@pytest.mark.parametrize(
    "estimator", [SelfTrainingClassifier(LogisticRegression(max_iter=500)), LabelSpreading(kernel="knn")], ids=str
)
def test_rows_without_a_label_are_left_out_of_training(estimator):
    rows = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
    labels = np.where(np.arange(len(KIND)) % 3, KIND, -1)
    with pytest.raises(DataError, match=r"60 of 178 rows have the label -1, .* fit\(X\[y != -1\], y\[y != -1\]\)"):
        OrtGradientClassifier(clone(estimator), max_iter=5).fit(rows, labels)
    fitted = estimator.fit(rows, labels)
    trained(OrtGradientClassifier, fitted, rows[labels != -1], labels[labels != -1], max_iter=5)


@pytest.mark.parametrize("kind", [LabelSpreading, LabelPropagation])
def test_labels_of_rows_far_from_the_fitted_ones(kind):
    rows = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
    fitted = kind(gamma=0.2).fit(rows, KIND)
    start = trained(OrtGradientClassifier, fitted, rows, KIND, max_iter=1, learning_rate=1e-30)
    close(start.predict_proba(4 * rows), fitted.predict_proba(4 * rows))  # exp(-240) is 0 in float32


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_a_search_is_its_best_estimator(search):
    options = {"n_iter": 2, "random_state": 0} if search is RandomizedSearchCV else {}
    fitted = search(Ridge(), {"alpha": [0.01, 0.1, 1.0]}, cv=3, **options).fit(X, Y)
    tuned = trained(OrtGradientRegressor, fitted, X, 0.5 * Y, max_iter=5)
    assert sorted(tuned.weights_) == ["best_estimator.coef", "best_estimator.intercept"]
    close(tuned.predict(X), tuned.to_sklearn().predict(X))


@pytest.mark.parametrize(
    "neighbours",
    [KNeighborsRegressor(5), KNeighborsRegressor(5, weights="distance"), RadiusNeighborsRegressor(3.0)],
    ids=["nearest", "by distance", "radius"],
)
def test_neighbours_that_were_fitted_on_sparse_rows(neighbours):
    rows = scipy.sparse.csr_matrix(X / X.std(axis=0))
    model = clone(neighbours).fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(rows, Y)
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)


def test_neighbours_equally_far_are_named_with_the_remedy():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(8.0)] * 3), axis=-1).reshape(-1, 3)
    rows, others = np.split(rng.permutation(grid), [300])
    targets = rng.normal(size=300)
    model = KNeighborsRegressor(5).fit(rows, targets)
    for n in (300, 2):  # on these two rows the graph is the estimator, on those between them it is not
        with pytest.raises(ConversionError, match="are equally far, rounding decides.* RadiusNeighborsRegressor"):
            OrtGradientRegressor(model, max_iter=1).fit(rows[:n], targets[:n])
    small = (0.1 * rows).astype(np.float32)
    model = RadiusNeighborsRegressor(0.1 * np.sqrt(3)).fit(small, targets)
    with pytest.raises(ConversionError, match="Set dtype='float64'"):
        OrtGradientRegressor(model, max_iter=1).fit(small, targets)
    tuned = OrtGradientRegressor(model, max_iter=0, dtype="float64").fit(small, targets)
    np.testing.assert_allclose(tuned.predict(small), model.predict(small), rtol=1e-6)
    model = RadiusNeighborsRegressor(1.5).fit(rows, targets)
    tuned = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(rows, targets)
    np.testing.assert_allclose(tuned.predict(others), model.predict(others), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_rows_at_exactly_the_radius_are_neighbours(weights):
    rows, targets = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]]), np.repeat([1.0, 2.0, 3.0], 2)
    model = RadiusNeighborsRegressor(2.0, weights=weights).fit(rows, targets)
    tuned = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(rows, targets)
    np.testing.assert_allclose(tuned.predict([[3.0], [8.0], [13.0]]), [1.0, 2.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("around", [BaggingRegressor, AdaBoostRegressor])
def test_neighbours_that_are_the_same_row_are_refused_with_the_remedy(around):
    model = around(KNeighborsRegressor(3), n_estimators=2, random_state=0).fit(X, Y)
    words = (
        r"fitted on equal rows \(row .* KernelRidge\(kernel='rbf'\) behind a StandardScaler.* RadiusNeighborsRegressor"
    )
    with pytest.raises(ConversionError, match=words):
        OrtGradientRegressor(model, max_iter=1).fit(X, Y)
    smooth = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
    for remedy in (RadiusNeighborsRegressor(0.3), smooth):
        model = around(remedy, n_estimators=2, random_state=0).fit(X, Y)
        tuned = trained(OrtGradientRegressor, model, X, 0.5 * Y, max_iter=5)
        close(tuned.predict(X), tuned.to_sklearn().predict(X))


def test_nearest_rows_in_a_stack_are_refused_with_a_remedy_that_is_not_refused():
    """Scaled whole numbers are equally far from others in float64 only; before, the remedy was dtype='float64'."""
    marks = np.unique(np.random.default_rng(0).integers(30, 75, size=(120, 2)), axis=0)
    targets = marks @ [0.4, 0.3] + np.arange(len(marks)) % 3

    def stack(member):
        forest = make_pipeline(StandardScaler(), RandomForestRegressor(5, max_depth=3, random_state=0))
        pipelines = [("near", make_pipeline(StandardScaler(), member)), ("forest", forest)]
        return StackingRegressor(pipelines, LinearRegression(), cv=3).fit(marks, targets)

    for dtype in ("float32", "float64"):
        with pytest.raises(
            ConversionError, match="equally far.* Use KernelRidge\\(kernel='rbf'\\) behind a StandardScaler"
        ):
            OrtGradientRegressor(stack(KNeighborsRegressor(7)), dtype=dtype).fit(marks, targets)
        model = stack(make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")))
        start = OrtGradientRegressor(model, max_iter=0, dtype=dtype).fit(marks, targets)
        close(start.predict(marks), model.predict(marks))


def test_a_gaussian_process_that_predicts_unfitted_is_fitted():
    process = GaussianProcessRegressor(alpha=1.0)
    tuned = OrtGradientRegressor(process, max_iter=1, learning_rate=1e-30).fit(X, Y)
    np.testing.assert_allclose(tuned.predict(X), clone(process).fit(X, Y).predict(X), rtol=1e-4)


@pytest.mark.parametrize("within", [make_pipeline, lambda model: model], ids=["pipeline", "alone"])
def test_columns_that_a_fit_asks_for_by_name(within):
    frame, model = load_diabetes(as_frame=True).data, clone(HISTOGRAM).set_params(monotonic_cst={"bmi": 1})
    tuned = OrtGradientRegressor(within(model), max_iter=1, learning_rate=1e-30).fit(frame, Y)
    np.testing.assert_allclose(tuned.predict(frame), clone(model).fit(frame, Y).predict(frame), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The fitted model predicts")  # each row has both labels
def test_nearest_rows_of_equal_rows_are_refused_with_a_kernel_of_all_rows():
    rows = np.repeat(np.round(WINE[:, :2]), 2, axis=0)
    targets = np.arange(len(rows)) % 2
    with pytest.raises(ConversionError, match="equally far.*Use kernel='rbf', where all rows count"):
        OrtGradientClassifier(LabelSpreading(kernel="knn").fit(rows, targets)).fit(rows, targets)
    again = LabelSpreading(kernel="rbf").fit(rows, targets)
    start = OrtGradientClassifier(again, max_iter=0).fit(rows, targets)
    close(start.predict_proba(rows), again.predict_proba(rows))


FUNCTIONS = "abs arcsinh arctan ceil cos exp expm1 floor log log10 log1p log2 negative reciprocal rint sign sin sqrt square tanh"


#: The smallest and the largest value for functions that others do not have.
RANGES = {**dict.fromkeys(("arccos", "arcsin", "arctanh"), (-0.9, 0.9)), "arccosh": (1.1, 3.0), "tan": (-1.4, 1.4)}


@pytest.mark.parametrize("name", [*FUNCTIONS.split(), "cosh", "sinh", *RANGES])
@pytest.mark.parametrize("columns", [[0], [0, 2]])
def test_a_function_of_numpy_is_part_of_the_file(name, columns):
    is_function_in_file(FunctionTransformer(getattr(np, name)), columns, RANGES.get(name, (0.1, 2.0)))


@pytest.mark.parametrize(
    "limits",
    [
        {"a_min": 0.5, "a_max": 1},
        {"a_min": None, "a_max": 1.1},
        {"a_min": np.array([0.3, 1.0]), "a_max": None},
        pytest.param(
            {"min": 0.1, "max": 0.7},
            marks=pytest.mark.skipif(parse_version(np.__version__) < parse_version("2.1"), reason="other names"),
        ),
    ],
    ids=str,
)
def test_clipping_is_part_of_the_file(limits):
    is_function_in_file(FunctionTransformer(np.clip, kw_args=limits), [0, 2], (-2.0, 2.0))


def is_function_in_file(function, columns, ends):
    X = np.random.default_rng(0).uniform(*ends, (60, 3))
    model = make_pipeline(make_column_transformer((function, columns), remainder="passthrough"), Ridge())
    tuned = OrtGradientRegressor(model.fit(X, X.sum(axis=1)), max_iter=0).fit(X, X.sum(axis=1))
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    (predicted,) = run(tuned.get_trained_onnx(), {"X": X.astype(np.float32)})
    np.testing.assert_allclose(predicted.ravel(), model.predict(X), rtol=1e-4, atol=1e-5)


def test_missing_values_are_marked_in_the_file():
    X = pd.DataFrame({"town": ["Bern", "Chur"] * 30, "size": np.where(np.arange(60) % 3, np.arange(60.0), np.nan)})
    values = make_union(SimpleImputer(), FunctionTransformer(np.isnan))
    model = make_pipeline(make_column_transformer((values, ["size"]), (OneHotEncoder(), ["town"])), Ridge())
    tuned = OrtGradientRegressor(model.fit(X, np.arange(60.0)), max_iter=0).fit(X, np.arange(60.0))
    feeds = {"town": X["town"].to_numpy().reshape(-1, 1), "size": X["size"].to_numpy(np.float32).reshape(-1, 1)}
    (predicted,) = run(tuned.get_trained_onnx(), feeds)
    np.testing.assert_allclose(predicted.ravel(), model.predict(X), rtol=1e-4)


@pytest.mark.parametrize("missing, shown", [(np.nan, "nan"), (None, "None"), ("?", "?")])
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_missing_texts_are_imputed_in_the_file(missing, shown, strategy):
    names = pd.Series(["Bern", "Chur", missing] * 10, dtype=object)
    towns = pd.DataFrame({"town": names, "size": np.arange(30.0)})
    imputer = SimpleImputer(strategy=strategy, missing_values=missing, fill_value="Thun")
    encoded = make_column_transformer((make_pipeline(imputer, OneHotEncoder()), ["town"]), remainder="passthrough")
    y = towns["size"] + 10 * (towns["town"] == "Bern")
    model = make_pipeline(encoded, Ridge()).fit(towns, y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(towns, y)
    feeds = {
        "town": towns["town"].where(towns["town"].isin(["Bern", "Chur"]), shown).to_numpy().reshape(-1, 1),
        "size": towns["size"].to_numpy(np.float32).reshape(-1, 1),
    }
    (predicted,) = run(tuned.get_trained_onnx(), feeds)
    np.testing.assert_allclose(predicted.ravel(), model.predict(towns), rtol=1e-4)
