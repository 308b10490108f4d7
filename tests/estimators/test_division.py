"""Estimators around pipelines whose first steps scikit-learn runs, and pipelines around those."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    HistGradientBoostingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import MultinomialNB
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ConversionError, WeightError

X, Y = load_diabetes(return_X_y=True)
WINE, KINDS = load_wine(return_X_y=True)
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
WINES = pd.DataFrame(WINE, columns=[f"x{i}" for i in range(WINE.shape[1])])
TEXTS = np.array(["good day", "bad day", "good", "bad", "fine day", "worse"] * 10, dtype=object)
MARKS = np.array(["+", "-", "o", "-", "+", "o"] * 10)


def curved(last):
    return make_pipeline(FunctionTransformer(np.cbrt), last)


def words(last):
    return make_pipeline(TfidfVectorizer(), last)


LOGISTIC = LogisticRegression(max_iter=10_000)
TREES = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=20, random_state=0))
FIRST = make_pipeline(ColumnTransformer([("first", FunctionTransformer(np.cbrt), ["x0", "x1"])]), LOGISTIC)

#: Estimators, their rows and targets, and how many of their steps scikit-learn runs.
MODELS = {
    "vote": (VotingRegressor([("a", curved(Ridge())), ("b", Ridge())]), X, Y, 1),
    "vote of trees of float64 rows": (VotingRegressor([("a", TREES), ("b", Ridge())]), X, Y, 1),
    "bags": (BaggingRegressor(curved(Ridge()), 2, random_state=0), X, Y, 2),
    "bags of columns": (BaggingRegressor(curved(Ridge()), 2, max_features=0.5, random_state=0), X, Y, 2),
    "bags of chosen columns": (
        BaggingRegressor(
            make_pipeline(ColumnTransformer([("a", FunctionTransformer(np.cbrt), [0, 1])]), Ridge()), 2, random_state=0
        ),
        X,
        Y,
        2,
    ),
    "bags of a frame": (BaggingRegressor(curved(Ridge()), 2, random_state=0), FRAME, Y, 2),
    "stack": (StackingRegressor([("a", curved(Ridge())), ("b", Ridge())]), X, Y, 1),
    "stack with its rows": (StackingRegressor([("a", curved(Ridge())), ("b", Ridge())], passthrough=True), X, Y, 1),
    "stack with its rows, of classes": (
        StackingClassifier(
            [("a", curved(LOGISTIC)), ("b", curved(SVC()))],
            make_pipeline(StandardScaler(), LOGISTIC),
            passthrough=True,
            cv=2,
        ),
        WINE,
        KINDS,
        2,
    ),
    "stack of two classes": (
        StackingClassifier([("a", curved(LinearSVC())), ("b", curved(LOGISTIC))], cv=2),
        WINE,
        KINDS > 0,
        2,
    ),
    "sparse columns beside dense ones": (
        StackingRegressor(
            [
                ("a", make_pipeline(KBinsDiscretizer(2, strategy="uniform"), Ridge())),
                ("b", curved(SVR())),
            ],
            cv=2,
        ),
        X,
        Y,
        2,
    ),
    "frozen, calibrated": (
        CalibratedClassifierCV(FrozenEstimator(words(LinearSVC()).fit(TEXTS, MARKS))),
        TEXTS,
        MARKS,
        1,
    ),
    "at a threshold": (FixedThresholdClassifier(words(LOGISTIC)), TEXTS, MARKS == "+", 1),
    "target": (TransformedTargetRegressor(curved(Ridge()), func=np.log, inverse_func=np.exp), X, Y, 1),
    "targets": (MultiOutputRegressor(curved(Ridge())), X, np.c_[Y, -Y], 2),
    "search": (GridSearchCV(curved(Ridge()), {"ridge__alpha": [1, 2]}), X, Y, 1),
    "AdaBoost": (
        AdaBoostRegressor(curved(DecisionTreeRegressor(max_depth=3)), n_estimators=2, random_state=0),
        X,
        Y,
        2,
    ),
    "nested": (
        make_pipeline(StandardScaler(), VotingRegressor([("a", BaggingRegressor(curved(Ridge()), 2, random_state=0))])),
        X,
        Y,
        3,
    ),
    "bags of classes": (BaggingClassifier(curved(LOGISTIC), 2, random_state=0), WINE, KINDS, 2),
    "one against the rest": (OneVsRestClassifier(curved(LOGISTIC)), WINE, KINDS, 3),
    "columns by name": (OneVsRestClassifier(FIRST), WINES, KINDS, 3),
    "pairs": (OneVsOneClassifier(curved(LOGISTIC)), WINE, KINDS, 3),
    "labels": (MultiOutputClassifier(curved(LOGISTIC)), WINE, np.c_[KINDS == 1, KINDS == 0].astype(int), 2),
    "calibrated": (CalibratedClassifierCV(curved(LOGISTIC), cv=2), WINE, KINDS, 2),
    "calibrated, of texts": (CalibratedClassifierCV(words(LOGISTIC), cv=2), TEXTS, MARKS, 2),
    "vote on texts": (
        VotingClassifier([("a", words(LOGISTIC)), ("b", make_pipeline(CountVectorizer(), LOGISTIC))], voting="soft"),
        TEXTS,
        MARKS,
        2,
    ),
    "stack of texts": (
        StackingClassifier([("a", words(LOGISTIC)), ("b", words(MultinomialNB()))], cv=2),
        TEXTS,
        MARKS,
        2,
    ),
}


def answer(model, rows, like):
    """Return the scores that the estimator `like` has, else predictions."""
    name = next(n for n in ("predict_proba", "decision_function", "predict") if hasattr(like, n))
    found = getattr(model, name)(rows)
    return np.column_stack([p[:, -1] for p in found]) if isinstance(found, list) else found


def tuned(model, rows, y, **settings):
    kind = OrtGradientClassifier if is_classifier(model) else OrtGradientRegressor
    return kind(model, random_state=0, **settings).fit(rows, y)


@pytest.mark.filterwarnings("ignore:.* has no effect on the training:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_it_predicts_the_same_and_is_trained_and_comes_back(name, tmp_path):
    model, rows, y, n_fronts = MODELS[name]
    fitted = clone(model).fit(rows, y)
    expected = answer(fitted, rows, fitted)
    for given in (fitted, model):
        start = tuned(given, rows, y, max_iter=0)
        np.testing.assert_allclose(answer(start, rows, fitted), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert list(start.onnx_status_.values()).count("scikit-learn") == n_fronts
    trained = tuned(fitted, rows, y, max_iter=5, solver="lbfgs")
    assert trained.losses(rows, y).mean() < start.losses(rows, y).mean()
    found = answer(trained, rows, fitted)
    np.testing.assert_allclose(
        answer(trained.to_sklearn(), rows, fitted), found, rtol=0, atol=1e-5 * np.abs(found).max()
    )
    assert type(trained.to_sklearn()) is type(model)
    np.testing.assert_array_equal(answer(pickle.loads(pickle.dumps(trained)), rows, fitted), found)
    save(trained, tmp_path / "trained")
    again = load(tmp_path / "trained")
    np.testing.assert_array_equal(answer(again, rows, fitted), found)
    assert list(again.onnx_status_.values()).count("scikit-learn") == n_fronts


def test_the_estimator_that_was_handed_over_stays_as_it_was():
    model = BaggingRegressor(curved(Ridge()), 2, random_state=0).fit(X, Y)
    expected = model.predict(X)
    tuned(model, X, Y, max_iter=2).to_sklearn()
    np.testing.assert_array_equal(model.predict(X), expected)


def test_a_frozen_pipeline_is_divided():
    model = curved(Ridge()).fit(X, Y)
    start = tuned(FrozenEstimator(model), X, Y, max_iter=0)
    np.testing.assert_allclose(start.predict(X), model.predict(X), rtol=1e-5)
    assert start.onnx_status_ == {"functiontransformer": "scikit-learn", "ridge": "ONNX"}


def test_the_columns_of_the_tail_are_those_of_front_():
    trained = tuned(MODELS["vote"][0], X, Y, max_iter=1)
    (given,) = trained.get_trained_onnx(part="tail").graph.input
    columns = trained.front_.transform(X)
    assert given.type.tensor_type.shape.dim[1].dim_value == columns.shape[1]
    own = OrtGradientRegressor(trained.get_trained_onnx(part="tail"), max_iter=0).fit(columns, Y)
    np.testing.assert_allclose(own.predict(columns), trained.predict(X), rtol=1e-6)
    assert tuned(Ridge(), X, Y, max_iter=1).front_ is None


def test_pipelines_that_see_more_than_the_rows_are_refused_with_a_remedy():
    both = np.c_[Y, -Y]
    with pytest.raises(ConversionError, match=r"regressorchain: .* make_pipeline\(steps, RegressorChain\(...\)\)\."):
        tuned(RegressorChain(curved(Ridge())), X, both, max_iter=0)
    model = make_pipeline(FunctionTransformer(np.cbrt), RegressorChain(Ridge())).fit(X, both)
    np.testing.assert_allclose(tuned(model, X, both, max_iter=0).predict(X), model.predict(X), rtol=1e-4)


def test_a_frozen_estimator_of_pipelines_is_divided():
    model = VotingRegressor([("a", curved(Ridge())), ("b", Ridge())]).fit(X, Y)
    np.testing.assert_allclose(tuned(FrozenEstimator(model), X, Y, max_iter=0).predict(X), model.predict(X), rtol=1e-5)


def test_an_estimator_that_shows_its_pipelines_other_columns_is_refused():
    class Doubled(VotingRegressor):
        def predict(self, rows):
            return super().predict(2 * rows)

    model = Doubled([("a", curved(Ridge())), ("b", Ridge())]).fit(X, Y)
    with pytest.raises(
        ConversionError, match=r"doubled: Doubled passes other columns than those of X to its inner pipelines"
    ):
        tuned(model, X, Y, max_iter=0)


def test_votes_have_no_derivative():
    model = VotingClassifier([("a", words(LOGISTIC)), ("b", words(MultinomialNB()))])
    with pytest.raises(WeightError, match="VotingClassifier counts votes.*voting='soft' for mean probabilities"):
        tuned(model, TEXTS, MARKS, max_iter=0)
    tuned(clone(model).set_params(voting="soft"), TEXTS, MARKS, max_iter=0)
    margins = clone(model).set_params(a=words(LinearSVC()))
    words_of_remedy = r"voting='soft' .* predict_proba in place of 'a': .* CalibratedClassifierCV around LinearSVC\(\)"
    with pytest.raises(WeightError, match=words_of_remedy):
        tuned(margins, TEXTS, MARKS, max_iter=0)
    calibrated = words(CalibratedClassifierCV(LinearSVC(), cv=2))
    tuned(margins.set_params(a=calibrated, voting="soft"), TEXTS, MARKS, max_iter=0)


class OfFrames(TransformerMixin, BaseEstimator):
    """A step that takes frames alone, and answers an array by a TypeError."""

    def fit(self, rows, y=None):
        self.n_features_in_ = self.transform(rows).shape[1]
        return self

    def transform(self, rows):
        if not hasattr(rows, "columns"):
            raise TypeError("Only DataFrames are supported")
        return 2 * rows.to_numpy()


@pytest.mark.parametrize("fitted", [True, False])
def test_a_step_of_frames_alone_runs_in_front(fitted):
    model = make_pipeline(OfFrames(), Ridge())
    trained = tuned(model.fit(FRAME, Y) if fitted else model, FRAME, Y, max_iter=5, solver="lbfgs")
    assert trained.onnx_status_ == {"offrames": "scikit-learn", "ridge": "ONNX"}
    assert trained.loss_curve_[-1] < trained.loss_curve_[0]


# -------------------------------------------------------------- in front of them

NESTED = {
    "union": FeatureUnion([("bins", KBinsDiscretizer(3)), ("curves", FunctionTransformer(np.cbrt))]),
    "union in columns": ColumnTransformer(
        [("both", FeatureUnion([("f", FunctionTransformer(np.cbrt)), ("kept", "passthrough")]), [0, 1])],
        remainder=ColumnTransformer([("inner", KBinsDiscretizer(3), [0, 2])], remainder="passthrough"),
    ),
    "columns in a pipeline in columns": ColumnTransformer(
        [("a", make_pipeline(ColumnTransformer([("b", FunctionTransformer(np.cbrt), [0])]), StandardScaler()), [2, 3])],
        remainder="drop",
    ),
}


@pytest.mark.filterwarnings("ignore:The current default behavior, quantile_method:FutureWarning")
@pytest.mark.filterwarnings("ignore:Bins whose width are too small:UserWarning")
@pytest.mark.parametrize("name", NESTED)
def test_steps_of_steps_in_front(name):
    model = make_pipeline(NESTED[name], Ridge()).fit(X, Y)
    start = tuned(model, X, Y, max_iter=0)
    np.testing.assert_allclose(start.predict(X), model.predict(X), rtol=1e-5)
    assert list(start.onnx_status_.values()) == ["scikit-learn", "ONNX"]
    trained = tuned(model, X, Y, max_iter=5, solver="lbfgs")
    np.testing.assert_allclose(trained.to_sklearn().predict(X), trained.predict(X), rtol=1e-5)


IDLE = {
    "pipeline in columns": make_pipeline(
        ColumnTransformer([("a", make_pipeline("passthrough", StandardScaler()), [0, 1])], remainder="passthrough"),
        Ridge(),
    ),
    "pipeline of nothing in a union": make_pipeline(FeatureUnion([("same", make_pipeline("passthrough"))]), Ridge()),
    "union": make_pipeline(
        FeatureUnion([("s", StandardScaler()), ("off", "drop"), ("a", "passthrough")], transformer_weights={"s": 2.0}),
        Ridge(),
    ),
    "target": TransformedTargetRegressor(make_pipeline("passthrough", Ridge()), transformer=StandardScaler()),
    "voting": VotingRegressor([("a", make_pipeline(None, StandardScaler(), Ridge()))]),
    "last layer": StackingRegressor([("a", Ridge())], final_estimator=make_pipeline("passthrough", Ridge())),
}


@pytest.mark.parametrize("name", IDLE)
def test_idle_steps_inside_other_estimators_are_part_of_the_graph(name):
    model = IDLE[name].fit(X, Y)
    trained = tuned(model, X, Y, max_iter=5, solver="lbfgs", loss="absolute_error", dtype="float64")
    assert {*trained.onnx_status_.values()} == {"ONNX"}
    trained.get_trained_onnx()
    np.testing.assert_allclose(tuned(model, X, Y, max_iter=0).predict(X), model.predict(X), rtol=1e-5)
    np.testing.assert_allclose(trained.to_sklearn().predict(X), trained.predict(X), rtol=1e-5)


# --------------------------------------------------------- steps that are trained

TOPICS = make_pipeline(TfidfVectorizer(), TruncatedSVD(3, random_state=0), StandardScaler(), LOGISTIC)


@pytest.mark.parametrize(
    "wanted, in_front, steps",
    [
        (None, ["tfidfvectorizer", "truncatedsvd", "standardscaler"], {"logisticregression"}),
        ("standardscaler", ["tfidfvectorizer", "truncatedsvd"], {"standardscaler"}),
        (["truncatedsvd.components", "logistic*"], ["tfidfvectorizer"], {"truncatedsvd", "logisticregression"}),
    ],
)
def test_a_pipeline_is_divided_in_front_of_the_first_step_that_is_trained(wanted, in_front, steps):
    model = clone(TOPICS).fit(TEXTS, MARKS)
    trained = tuned(model, TEXTS, MARKS, weights_to_train=wanted, max_iter=3, solver="lbfgs")
    assert [name for name, by in trained.onnx_status_.items() if by == "scikit-learn"] == in_front
    if wanted is not None:
        assert any(name.startswith((in_front and wanted[0].split(".")[0]) or "") for name in trained.weights_)
    back = trained.to_sklearn()
    assert list(back.named_steps) == list(model.named_steps)
    np.testing.assert_allclose(back.predict_proba(TEXTS), trained.predict_proba(TEXTS), atol=1e-5)
    assert not np.allclose(back.predict_proba(TEXTS), model.predict_proba(TEXTS), atol=1e-3)


def test_the_diagram_shows_what_runs_each_step():
    shown = tuned(curved(Ridge()), X, Y, max_iter=1)._repr_html_()
    first, second = shown.index("scikit-learn: Pipeline"), shown.index("ONNX: Pipeline")
    assert first < shown.index("FunctionTransformer", first) < second < shown.index("Ridge", second)
    assert "scikit-learn: Pipeline" not in tuned(Ridge(), X, Y, max_iter=1)._repr_html_()


def test_the_diagram_shows_functions_that_keep_the_names_of_columns():
    """scikit-learn takes the length of the names that an unfitted one gives, which are None."""
    columns = ColumnTransformer([("log", FunctionTransformer(np.log1p, feature_names_out="one-to-one"), [0, 1])])
    model = TransformedTargetRegressor(make_pipeline(columns, Ridge()), func=np.log1p, inverse_func=np.expm1)
    assert "FunctionTransformer" in tuned(model, X, Y, max_iter=1)._repr_html_()


@pytest.mark.parametrize("kind", [VotingRegressor, StackingRegressor])
def test_a_member_takes_missing_values_that_another_fills_in(kind, tmp_path):
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    lines = make_pipeline(SimpleImputer(), StandardScaler(), Ridge())
    model = kind([("trees", HistGradientBoostingRegressor(max_iter=3)), ("lines", lines)]).fit(rows, Y)
    start = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    np.testing.assert_allclose(start.predict(rows), model.predict(rows), rtol=1e-5)
    tuned = OrtGradientRegressor(model, solver="lbfgs", max_iter=3).fit(rows, Y)
    assert tuned.losses(rows, Y).mean() < start.losses(rows, Y).mean()
    np.testing.assert_allclose(tuned.to_sklearn().predict(rows), tuned.predict(rows), rtol=1e-5)
    save(tuned, tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").predict(rows), tuned.predict(rows), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("front", [StandardScaler(), FunctionTransformer(np.cbrt)], ids=str)
def test_a_network_of_several_targets_may_be_the_last_step(front):
    targets = np.column_stack([Y, Y[::-1]]) / 100
    network = MLPRegressor(hidden_layer_sizes=(4,), solver="lbfgs", max_iter=20, random_state=0)
    fitted = make_pipeline(front, network).fit(X, targets)
    start = OrtGradientRegressor(fitted, max_iter=0).fit(X, targets)
    np.testing.assert_allclose(start.predict(X), fitted.predict(X), rtol=1e-4, atol=1e-4)
