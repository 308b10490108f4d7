"""Rows with missing values: trees send them to the side that they learned, estimators around others hand them on."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import DataError
from onnxtrain.estimators.protocols import allows_nan


def with_holes(X, y):
    """Return rows in which values are missing, more often where y is large: splits learn another side."""
    rng = np.random.default_rng(0)
    X = X.copy()
    X[rng.random(X.shape) < 0.1 + 0.3 * (y > np.median(y))[:, None]] = np.nan
    return X, y


DIABETES, WINE = with_holes(*load_diabetes(return_X_y=True)), with_holes(*load_wine(return_X_y=True))
HISTOGRAM = HistGradientBoostingRegressor(max_iter=5, random_state=0)
CLASSES = HistGradientBoostingClassifier(max_iter=3, random_state=0)
SCALED_TREES = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=5, random_state=0))
MODELS = {
    "tree": DecisionTreeRegressor(max_depth=5, random_state=0),
    "forest of a third each": RandomForestRegressor(3, max_depth=5, random_state=0),
    "tree of classes": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest of classes": RandomForestClassifier(4, max_depth=4, random_state=0),
    "tree, bagged": BaggingRegressor(DecisionTreeRegressor(max_depth=3), 2, max_features=0.5, random_state=0),
    "tree, stacked": StackingRegressor([("a", DecisionTreeRegressor(max_depth=3)), ("b", HISTOGRAM)], cv=2),
    "target": TransformedTargetRegressor(HISTOGRAM, func=np.log, inverse_func=np.exp),
    "scaled, target": make_pipeline(StandardScaler(), TransformedTargetRegressor(HISTOGRAM, transformer=StandardScaler())),
    "target, filled in": TransformedTargetRegressor(make_pipeline(SimpleImputer(), Ridge()), transformer=StandardScaler()),
    "search": GridSearchCV(HISTOGRAM, {"max_depth": [2, 3]}, cv=2),
    "calibrated": CalibratedClassifierCV(CLASSES, cv=2),
    "calibrated, frozen": CalibratedClassifierCV(FrozenEstimator(CLASSES.fit(*WINE)), cv=2),
    "one against the rest": OneVsRestClassifier(CLASSES),
    "one against one": OneVsOneClassifier(CLASSES),
}  # fmt: skip


def starts_as(ours, theirs, X):
    """Compare predictions and, if there are any, probabilities of all rows."""
    for method in {"predict", "predict_proba"}:
        if hasattr(theirs, method):
            expected = getattr(theirs, method)(X)
            np.testing.assert_allclose(
                getattr(ours, method)(X), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
            )


@pytest.mark.filterwarnings("ignore:Before training, the model predicts rows with the label")  # y is reversed
@pytest.mark.filterwarnings("ignore:The fitted model predicts")
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_missing_values_go_where_scikit_learn_sends_them(model):
    kind, (X, y) = (OrtGradientRegressor, DIABETES) if is_regressor(model) else (OrtGradientClassifier, WINE)
    fitted = clone(model).fit(X, y)
    starts_as(kind(fitted, max_iter=1, learning_rate=1e-30).fit(X, y), fitted, X)
    moved = y[::-1]
    tuned = kind(fitted, max_iter=5, learning_rate=1e-3, batch_size=len(y), random_state=0).fit(X, moved)
    assert tuned.loss_curve_[-1] < tuned.loss_curve_[0]
    starts_as(tuned, tuned.to_sklearn(), X)


@pytest.mark.parametrize("kind", [DecisionTreeRegressor, RandomForestRegressor])
def test_trees_of_several_targets(kind):
    X, y = DIABETES
    both = np.column_stack([y, y[::-1]])
    fitted = kind(max_depth=4, random_state=0).fit(X, both)
    starts_as(OrtGradientRegressor(fitted, max_iter=1, learning_rate=1e-30).fit(X, both), fitted, X)


@pytest.mark.parametrize("kind", [ExtraTreeRegressor, ExtraTreesRegressor, ExtraTreesClassifier])
def test_extra_trees(kind):
    model = kind(max_depth=4, random_state=0)
    if not allows_nan(model):
        pytest.skip("this scikit-learn has no missing values in extra trees")
    ours, (X, y) = (OrtGradientRegressor, DIABETES) if is_regressor(model) else (OrtGradientClassifier, WINE)
    fitted = model.fit(X, y)
    starts_as(ours(fitted, max_iter=1, learning_rate=1e-30).fit(X, y), fitted, X)


ENCODED = make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0])), Ridge())
BOTH = VotingRegressor([("trees", HISTOGRAM), ("mean", DummyRegressor())])


@pytest.mark.parametrize(
    "model", [ENCODED, make_pipeline(StandardScaler(), BOTH)], ids=["an encoder", "a member behind a scaler"]
)
def test_an_array_may_have_nan_where_the_estimator_takes_it(model):
    X = np.c_[np.arange(60) % 4, np.arange(60.0)].astype(np.float32)
    fitted = model.fit(X, np.arange(60.0))
    tuned = OrtGradientRegressor(fitted, max_iter=0).fit(X, np.arange(60.0))
    X[::3, 0] = np.nan
    np.testing.assert_allclose(tuned.predict(X), fitted.predict(X), rtol=1e-5, atol=1e-4)
    with pytest.raises(DataError, match="infinity"):
        tuned.predict(np.full_like(X, np.inf))


@pytest.mark.parametrize(
    "step, words",
    [
        (PowerTransformer("box-cox"), r"strictly positive data. Use PowerTransformer\(method='yeo-johnson'\)"),
        (FunctionTransformer(np.log), "X contains NaN after a step of the pipeline"),
        (
            SplineTransformer(extrapolation="error"),
            r"limits of the knots. .*\(extrapolation='linear'\) takes any values",
        ),
    ],
    ids=["box-cox", "logarithm", "splines"],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_rows_that_a_step_refuses_are_refused(step, words):
    X, y = np.random.default_rng(0).gamma(2.0, size=(60, 2)).astype(np.float32) + 1, np.arange(60.0)
    tuned = OrtGradientRegressor(make_pipeline(step, Ridge()), max_iter=0).fit(X, y)
    assert np.isfinite(tuned.predict(X)).all()
    with pytest.raises(DataError, match=words):
        tuned.predict(-X)


@pytest.mark.parametrize(
    "kind, options",
    [(VotingRegressor, {}), (StackingRegressor, {"cv": 2}), (StackingRegressor, {"cv": 2, "passthrough": True})],
    ids=["voting", "stacking", "rows for the last layer"],
)
def test_members_that_fill_in_values_themselves_stay_in_the_graph(kind, options):
    members = [("trees", HISTOGRAM), ("filled", make_pipeline(SimpleImputer(), Ridge()))]
    last = {"final_estimator": DecisionTreeRegressor(max_depth=2)} if kind is StackingRegressor else {}
    X, y = DIABETES
    fitted = kind(members, **last, **options).fit(X, y)
    tuned = OrtGradientRegressor(fitted, max_iter=1, learning_rate=1e-30).fit(X, y)
    assert {*tuned.onnx_status_.values()} == {"ONNX"}
    starts_as(tuned, fitted, X)


def test_columns_of_targets_and_thresholds_hand_rows_on():
    assert not allows_nan(StackingRegressor([("trees", HISTOGRAM)], passthrough=True))
    assert allows_nan(MultiOutputRegressor(HISTOGRAM))
    assert allows_nan(FixedThresholdClassifier(CLASSES))
    assert not allows_nan(MultiOutputRegressor(Ridge()))
    assert not allows_nan(TransformedTargetRegressor())


@pytest.mark.parametrize(
    "model, y",
    [
        (AdaBoostRegressor(DecisionTreeRegressor(max_depth=2), n_estimators=2, random_state=0), DIABETES[1]),
        (RegressorChain(DecisionTreeRegressor(max_depth=2)), np.c_[DIABETES[1], DIABETES[1]]),
        (AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=2, random_state=0), DIABETES[1] > 100),
        (ClassifierChain(DecisionTreeClassifier(max_depth=2)), np.c_[DIABETES[1] > 100, DIABETES[1] > 200] * 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trees_in_boosting_and_chains_refuse_nan_as_scikit_learn_does(model, y):
    ours = OrtGradientRegressor if is_regressor(model) else OrtGradientClassifier
    X = np.nan_to_num(DIABETES[0])
    rows = np.where(np.arange(10) == 3, np.nan, X)
    tuned = ours(model.fit(X, y), max_iter=0).fit(X, y)
    for predict in (model.predict, tuned.predict):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            predict(rows)


@pytest.mark.parametrize(
    "model",
    [
        VotingRegressor([("ridge", make_pipeline(StandardScaler(), Ridge())), ("trees", SCALED_TREES)]),
        StackingRegressor([("trees", SCALED_TREES), ("boosting", HISTOGRAM)], passthrough=True),
    ],
    ids=["a member", "the last estimator"],
)
def test_a_member_refuses_missing_values_beside_one_that_takes_them(model, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    X = np.round(100 * X, 1)
    fitted = OrtGradientRegressor(model.fit(X, y), max_iter=0).fit(X, y)
    assert fitted.front_ is not None
    save(fitted, tmp_path / "model.onnx")
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(X)
    for each in (fitted, load(tmp_path / "model.onnx")):
        with pytest.raises(DataError, match="contains NaN"):
            each.predict(X)


@pytest.mark.parametrize("value, words", [(np.nan, "Input X contains NaN"), (np.inf, "contains infinity")])
@pytest.mark.parametrize("last", [GaussianNB(), RandomForestClassifier(3, random_state=0)], ids=["bayes", "forest"])
def test_columns_in_which_scikit_learn_refuses_them(last, value, words):
    X = pd.DataFrame(load_wine().data[:, :2], columns=["filled", "float"]).assign(text="a")
    columns = make_column_transformer((SimpleImputer(), ["filled"]), (SimpleImputer(missing_values=-1), ["float"]))
    model = make_pipeline(columns, last).fit(X, WINE[1])
    tuned = OrtGradientClassifier(model, max_iter=0).fit(X, WINE[1])
    X.loc[9, "filled"] = np.nan
    np.testing.assert_array_equal(tuned.predict(X), model.predict(X))
    X.loc[7, "float"] = value
    with pytest.raises(DataError, match=words):
        tuned.predict(X)


@pytest.mark.parametrize(
    "column, words",
    [
        ("word", r"is an invalid document.* Replace missing texts by empty ones: X.fillna\({'word': ''}\)\.$"),
        ("price", r"X contains NaN in 'price'\. .*\['price'\]\) in make_column_transformer, or fill them: X\.fillna"),
    ],
)
def test_columns_that_steps_of_scikit_learn_refuse_are_named(column, words):
    """Missing values in the other columns are filled in."""
    X = pd.DataFrame({"word": ["red", "green", "blue"] * 20, "price": np.arange(60.0), "age": np.arange(60.0) % 7})
    X.loc[2::9, "age"] = np.nan
    columns = make_column_transformer(
        (CountVectorizer(), "word"), (StandardScaler(), ["price"]), (SimpleImputer(), ["age"])
    )
    tuned = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=0).fit(X, np.arange(60.0))
    X.loc[4, column] = np.nan
    with pytest.raises(DataError, match=words):
        tuned.predict(X)


@pytest.mark.parametrize("text", [False, True])
def test_nullable_columns_after_a_fit_on_plain_ones(text):
    X = pd.DataFrame(WINE[0][:, :2], columns=["a", "b"])
    columns = make_column_transformer((SimpleImputer(), ["a", "b"]))
    model = make_pipeline(columns, Ridge()).fit(X.assign(text="x") if text else X, WINE[1])
    X = X.assign(text="x") if text else X
    tuned = OrtGradientRegressor(model, max_iter=0).fit(X, WINE[1])
    rows = X.astype({"a": "Float64", "b": "Float64"})
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("last", [Ridge(), DecisionTreeRegressor(max_depth=3, random_state=0)], ids=["ridge", "tree"])
@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_nullable_columns_of_numbers_alone_stay_in_the_graph(last, backend):
    if backend == "pyarrow":
        pytest.importorskip("pyarrow")
    X = pd.DataFrame(DIABETES[0][:, :3], columns=["a", "b", "c"]).convert_dtypes(dtype_backend=backend)
    model = make_pipeline(make_column_transformer((SimpleImputer(), ["a", "b"])), last).fit(X, DIABETES[1])
    tuned = OrtGradientRegressor(model, max_iter=0).fit(X, DIABETES[1])
    assert {*tuned.onnx_status_.values()} == {"ONNX"}
    np.testing.assert_allclose(tuned.predict(X), model.predict(X), rtol=1e-5)
    session = onnxruntime.InferenceSession(tuned.get_trained_onnx().SerializeToString())
    (found,) = session.run(None, {"X": X.to_numpy(np.float32, na_value=np.nan)})
    np.testing.assert_allclose(found.ravel(), model.predict(X), rtol=1e-5)


def test_cross_validation_with_missing_values():
    scores = cross_val_score(OrtGradientRegressor(MODELS["target"], max_iter=2), *DIABETES, cv=3, error_score="raise")
    assert np.isfinite(scores).all()


def test_the_estimator_is_asked_once_whether_it_takes_nan_in_a_column(monkeypatch):
    rows = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0) % 7, "c": ["x", "y", "z"] * 20})
    rows.loc[::9, "a"] = np.nan
    columns = make_column_transformer((SimpleImputer(), ["a"]), (StandardScaler(), ["b"]), (OneHotEncoder(), ["c"]))
    fitted = make_pipeline(columns, Ridge()).fit(rows, np.arange(60.0))
    tuned = OrtGradientRegressor(fitted, max_iter=0).fit(rows, np.arange(60.0))
    expected = fitted.predict(rows)
    asked = []
    plain = Ridge.predict
    monkeypatch.setattr(Ridge, "predict", lambda self, X: asked.append(1) or plain(self, X))
    for _ in range(3):
        np.testing.assert_allclose(tuned.predict(rows), expected, rtol=1e-5)
    assert len(asked) == 1
    with pytest.raises(DataError, match="infinity"):
        tuned.predict(rows.assign(a=np.inf))
