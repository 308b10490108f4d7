"""Estimators of scikit-learn around ours: ensembles, searches, selection, inspection, thresholds, routed weights."""

import numpy as np
import pytest
import sklearn
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes, load_wine
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.fixes import parse_version

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ConversionError, ModelError

X, Y = load_diabetes(return_X_y=True)
X, Y = StandardScaler().fit_transform(X)[:150], StandardScaler().fit_transform(Y.reshape(-1, 1))[:150, 0]
WINE, KINDS = load_wine(return_X_y=True)
WINE, TWO = StandardScaler().fit_transform(WINE), (KINDS == 1).astype(int)
LABELS = np.c_[KINDS == 0, KINDS == 1].astype(int)
SOME = np.where(np.random.default_rng(0).random(len(KINDS)) < 0.3, -1, KINDS)

R = OrtGradientRegressor(Ridge(), solver="lbfgs", max_iter=20, random_state=0)
C = OrtGradientClassifier(LogisticRegression(), solver="lbfgs", max_iter=20, random_state=0)
STEPS = {"l2": [1e-3, 1e-1], "loss": ["squared_error", "huber"]}
LOSSES = {"loss": ["log", "squared_hinge"]}

#: Estimators around ours, rows, targets, and the least score.
AROUND = {
    "calibration": (CalibratedClassifierCV(C, cv=2), WINE, KINDS, 0.95),
    "isotonic calibration": (CalibratedClassifierCV(C, cv=2, method="isotonic"), WINE, KINDS, 0.95),
    "calibration, no ensemble": (CalibratedClassifierCV(C, cv=2, ensemble=False), WINE, KINDS, 0.95),
    "bags": (BaggingRegressor(R, 3, max_features=0.8, random_state=0), X, Y, 0.3),
    "bags of classes": (BaggingClassifier(C, 3, max_samples=0.5, random_state=0), WINE, KINDS, 0.95),
    "stack": (StackingRegressor([("a", R), ("b", DecisionTreeRegressor(max_depth=3))], final_estimator=R), X, Y, 0.3),
    "stack of classes": (StackingClassifier([("a", C)], final_estimator=C, passthrough=True), WINE, KINDS, 0.95),
    "vote": (VotingRegressor([("a", R), ("b", Ridge())]), X, Y, 0.3),
    "soft vote": (VotingClassifier([("a", C), ("b", LogisticRegression())], voting="soft"), WINE, KINDS, 0.95),
    "hard vote": (VotingClassifier([("a", C), ("b", LogisticRegression())]), WINE, KINDS, 0.95),
    "AdaBoost": (AdaBoostRegressor(R, n_estimators=3, random_state=0), X, Y, 0.3),
    "AdaBoost of classes": (AdaBoostClassifier(C, n_estimators=3, random_state=0), WINE, KINDS, 0.95),
    "target": (TransformedTargetRegressor(R, func=np.arcsinh, inverse_func=np.sinh), X, Y, 0.3),
    "scaled target": (TransformedTargetRegressor(R, transformer=StandardScaler()), X, Y, 0.3),
    "targets": (MultiOutputRegressor(R), X, np.c_[Y, -Y], 0.3),
    "labels": (MultiOutputClassifier(C), WINE, LABELS, 0.9),
    "chain": (RegressorChain(R), X, np.c_[Y, -Y], 0.3),
    "chain of labels": (ClassifierChain(C, chain_method="predict_proba"), WINE, LABELS, 0.9),
    "one against the rest": (OneVsRestClassifier(C), WINE, KINDS, 0.95),
    "pairs": (OneVsOneClassifier(C), WINE, KINDS, 0.95),
    "codes": (OutputCodeClassifier(C, random_state=0), WINE, KINDS, 0.9),
    "self-training": (SelfTrainingClassifier(C), WINE, SOME, None),
    "tuned threshold": (TunedThresholdClassifierCV(C, cv=2), WINE, TWO, 0.95),
    "fixed threshold": (FixedThresholdClassifier(C, threshold=0.3), WINE, TWO, 0.9),
    "grid": (GridSearchCV(R, STEPS, cv=2), X, Y, 0.3),
    "random search": (RandomizedSearchCV(C, LOSSES, n_iter=2, cv=2, random_state=0), WINE, KINDS, 0.95),
    "halving": (HalvingGridSearchCV(R, STEPS, cv=2, random_state=0), X, Y, 0.3),
    "halving by epochs": (
        HalvingGridSearchCV(R, STEPS, cv=2, resource="max_iter", max_resources=20, random_state=0),
        X,
        Y,
        0.3,
    ),
    "random halving": (HalvingRandomSearchCV(C, LOSSES, n_candidates=2, cv=2, random_state=0), WINE, KINDS, 0.9),
    "in a pipeline in a search": (
        GridSearchCV(make_pipeline(StandardScaler(), R), {"ortgradientregressor__l2": [0, 1e-3]}, cv=2),
        X,
        Y,
        0.3,
    ),
}


@pytest.mark.filterwarnings("ignore:The predicted class probabilities for:UserWarning")
@pytest.mark.parametrize("name", AROUND)
def test_it_is_fitted_as_with_any_estimator(name):
    around, rows, y, least = AROUND[name]
    fitted = clone(around).fit(rows, y)
    found = fitted.predict(rows)
    assert np.shape(found) == np.shape(y)
    assert np.isfinite(np.asarray(found, float)).all()
    if least is not None:
        assert fitted.score(rows, y) > least


FOREST = RandomForestClassifier(10, max_depth=4, random_state=0)
PROBABILITIES = {
    "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "forest": FOREST,
    "bags": BaggingClassifier(LogisticRegression(), 3, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), FOREST),
    "search": GridSearchCV(FOREST, {}, cv=2),
    "one against the rest": OneVsRestClassifier(FOREST),
    "calibrated": CalibratedClassifierCV(LogisticRegression(), cv=2),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_an_unfitted_estimator_has_the_scores_that_it_has_after_its_fit(name):
    """OutputCodeClassifier, and CalibratedClassifierCV without an ensemble, choose the method before the fit."""
    ours = OrtGradientClassifier(PROBABILITIES[name], max_iter=1, learning_rate=1e-30, random_state=0)
    assert not hasattr(ours, "decision_function")
    assert not hasattr(clone(ours).fit(WINE, KINDS), "decision_function")
    assert OutputCodeClassifier(ours, code_size=4, random_state=0).fit(WINE, KINDS).score(WINE, KINDS) > 0.9
    assert CalibratedClassifierCV(ours, cv=2, ensemble=False).fit(WINE, KINDS).score(WINE, KINDS) > 0.9


QDA = QuadraticDiscriminantAnalysis(reg_param=0.2)
HUBER = SGDClassifier(loss="modified_huber", random_state=0)

#: Estimators that have no graph, with rows and targets.
TRAINED_INSIDE = {
    "calibrated": (CalibratedClassifierCV(QDA, cv=2), WINE, KINDS),
    "calibrated votes": (CalibratedClassifierCV(AdaBoostClassifier(n_estimators=3), cv=2), WINE, KINDS),
    "pairs": (OneVsOneClassifier(FOREST), WINE, KINDS),
    "labels": (MultiOutputClassifier(HUBER), WINE, LABELS),
    "last layer": (
        StackingClassifier(
            [("a", LogisticRegression()), ("t", DecisionTreeClassifier(max_depth=2, random_state=0))],
            final_estimator=BernoulliNB(),
        ),
        WINE,
        KINDS,
    ),
    "isotonic": (CalibratedClassifierCV(QDA, cv=2, method="isotonic"), WINE, KINDS),
}
if parse_version(sklearn.__version__) >= parse_version("1.8"):
    of_votes = CalibratedClassifierCV(AdaBoostClassifier(), cv=2, method="temperature")
    TRAINED_INSIDE["by a temperature"] = (of_votes, WINE, KINDS)


@pytest.mark.filterwarnings("ignore:SGDClassifier minimizes the loss 'modified_huber'")
@pytest.mark.parametrize("name", TRAINED_INSIDE)
def test_a_member_is_trained_where_the_whole_has_no_graph_as_the_message_says(name):
    whole, rows, y = TRAINED_INSIDE[name]
    whole = clone(whole).fit(rows, y)
    words = (
        r"Train its member: \w+\((final_estimator=)?OrtGradient|Put OrtGradientClassifier\(\w+\(...\)\) in its place"
    )
    with pytest.raises((ConversionError, ModelError), match=words):
        OrtGradientClassifier(whole, max_iter=1).fit(rows, y)
    argument = "final_estimator" if hasattr(whole, "final_estimator") else "estimator"
    ours = OrtGradientClassifier(getattr(whole, argument), max_iter=1, learning_rate=1e-30, random_state=0)
    inside = clone(whole).set_params(**{argument: ours}).fit(rows, y)
    assert inside.score(rows, y) > whole.score(rows, y) - 0.02


RAW = load_wine().data
CODED = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3, random_state=0))


@pytest.mark.filterwarnings("ignore:SGDClassifier minimizes the loss 'modified_huber'")
@pytest.mark.parametrize(
    "model, rows, y",
    [
        (OutputCodeClassifier(CODED, random_state=0), RAW, KINDS),
        (CalibratedClassifierCV(HUBER, cv=2), WINE, KINDS),
        (StackingRegressor([("a", Ridge())], final_estimator=PLSRegression(1)), X, Y),
        (BaggingRegressor(PLSRegression(2), 2, max_features=0.5, random_state=0), X, Y),
    ],
    ids=["a constant member behind steps", "calibrated scores", "last layer", "bags of columns"],
)
def test_members_that_skl2onnx_does_not_convert_are_converted(model, rows, y):
    kind = OrtGradientClassifier if is_classifier(model) else OrtGradientRegressor
    whole = clone(model).fit(rows, y)
    tuned = kind(whole, max_iter=1, learning_rate=1e-30, random_state=0).fit(rows, y)
    np.testing.assert_allclose(tuned.predict(rows), whole.predict(rows), rtol=1e-5, atol=1e-5)


def test_a_sum_of_small_probabilities_is_named_as_the_cause():
    one = DecisionTreeClassifier(max_depth=3, random_state=0)
    whole = OneVsRestClassifier(one).fit(RAW, KINDS)
    with pytest.warns(UserWarning, match="The graph is not precise enough .* Leave it out: trees know all classes"):
        OrtGradientClassifier(whole, max_iter=1, learning_rate=1e-30).fit(RAW, KINDS)
    tuned = OrtGradientClassifier(clone(one).fit(RAW, KINDS), max_iter=1, learning_rate=1e-30).fit(RAW, KINDS)
    np.testing.assert_allclose(tuned.predict_proba(RAW), clone(one).fit(RAW, KINDS).predict_proba(RAW), atol=1e-5)


SELECTED = {
    "RFE": (RFE(R, n_features_to_select=4), X, Y),
    "RFE of classes": (RFE(C, n_features_to_select=4), WINE, KINDS),
    "RFECV": (RFECV(R, step=3, cv=2), X, Y),
    "from a model": (SelectFromModel(R), X, Y),
    "one after the other": (SequentialFeatureSelector(R, n_features_to_select=2, cv=2), X[:, :5], Y),
}


@pytest.mark.parametrize("name", SELECTED)
def test_columns_are_selected_as_by_the_estimator_itself(name):
    """Trained to the minimum of LinearRegression or LogisticRegression, ours select the columns that these select."""
    selector, rows, y = SELECTED[name]
    classifies = is_classifier(selector.estimator)
    l2 = 0.5 / len(rows) if classifies else 0.0
    ours = clone(selector).set_params(estimator__l2=l2, estimator__max_iter=300, estimator__dtype="float64")
    expected = clone(selector).set_params(estimator=LogisticRegression() if classifies else LinearRegression())
    np.testing.assert_array_equal(ours.fit(rows, y).get_support(), expected.fit(rows, y).get_support())


def test_inspection():
    fitted = clone(R).fit(X, Y)
    line = partial_dependence(fitted, X, [2], kind="average", grid_resolution=5)
    slope = np.diff(line["average"][0]) / np.diff(line["grid_values"][0])
    np.testing.assert_allclose(slope, fitted.coef_[2], rtol=1e-3)
    importance = permutation_importance(fitted, X, Y, n_repeats=5, random_state=0).importances_mean
    assert importance.argmax() == np.abs(fitted.coef_).argmax()


def test_curves_and_cross_validation():
    _, train, test = learning_curve(R, X, Y, cv=2, train_sizes=[0.5, 1.0])
    assert np.isfinite(train).all()
    assert np.isfinite(test).all()
    train, _ = validation_curve(R, X, Y, param_name="l2", param_range=[0, 10.0], cv=2)
    assert train[0].mean() > train[1].mean() + 0.1
    scores = cross_validate(C, WINE, KINDS, cv=3, return_estimator=True, scoring=["accuracy", "neg_log_loss"])
    assert scores["test_accuracy"].min() > 0.9
    chances = cross_val_predict(C, WINE, KINDS, cv=3, method="predict_proba")
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    score, _, p = permutation_test_score(clone(R).set_params(max_iter=5), X, Y, cv=2, n_permutations=9, random_state=0)
    assert p == pytest.approx(0.1)
    assert score > 0.2
    observed, predicted = calibration_curve(TWO, clone(C).fit(WINE, TWO).predict_proba(WINE)[:, 1], n_bins=2)
    assert observed.shape == predicted.shape


HALF = np.arange(len(X)) % 2.0
ROUTED = {
    "search": lambda model: GridSearchCV(model, {}, cv=2),
    "pipeline": lambda model: make_pipeline(StandardScaler().set_fit_request(sample_weight=True), model),
    "targets": lambda model: MultiOutputRegressor(model),
}


@pytest.mark.parametrize("name", ROUTED)
def test_sample_weights_are_routed(name):
    """Rows of weight 0 are left out, as from a Ridge inside the same estimator."""
    y = np.c_[Y, -Y] if name == "targets" else Y
    with config_context(enable_metadata_routing=True):
        requests = dict(sample_weight=True)
        ours = clone(R).set_params(l2=1 / 75, max_iter=300, dtype="float64")
        models = [m.set_fit_request(**requests).set_score_request(**requests) for m in (ours, Ridge())]
        found, expected = (ROUTED[name](m).fit(X, y, sample_weight=HALF).predict(X) for m in models)
        unweighted = ROUTED[name](models[1]).fit(X, y, sample_weight=np.ones(len(X))).predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not np.allclose(found, unweighted, atol=1e-2)
