"""Objects of other libraries: boosted trees are taken, networks are refused with the lines that export them."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from onnxtrain import Inputs, OrtGradientClassifier, OrtGradientRegressor, trainable_weights
from onnxtrain.convert import boosted_leaves
from onnxtrain.errors import ConversionError, ExportError, ParameterError
from onnxtrain.runtime.session import run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)).astype(np.float32)
SIZE = X[:, 0] + np.sin(X[:, 1])
KIND = np.digitize(SIZE, [-0.5, 0.5])

#: library, class, parameters, targets
BOOSTED = {
    "LightGBM": ("lightgbm", "LGBMRegressor", dict(n_estimators=5, verbose=-1), SIZE),
    "LightGBM, two classes": ("lightgbm", "LGBMClassifier", dict(n_estimators=5, verbose=-1), KIND > 0),
    "LightGBM, texts": (
        "lightgbm",
        "LGBMClassifier",
        dict(n_estimators=5, verbose=-1),
        np.array(["a", "b", "c"])[KIND],
    ),
    "XGBoost": ("xgboost", "XGBRegressor", dict(n_estimators=5), SIZE),
    "XGBoost, a forest": ("xgboost", "XGBRFRegressor", dict(n_estimators=5), SIZE),
    "XGBoost, two classes": ("xgboost", "XGBClassifier", dict(n_estimators=5), (KIND > 0).astype(int)),
    "XGBoost, three classes": ("xgboost", "XGBClassifier", dict(n_estimators=5), KIND),
    "XGBoost, forests of two classes": (
        "xgboost",
        "XGBClassifier",
        dict(n_estimators=3, num_parallel_tree=2),
        (KIND > 0).astype(int),
    ),
    "XGBoost, a forest of three classes": ("xgboost", "XGBRFClassifier", dict(n_estimators=5), KIND),
    "XGBoost, softmax": ("xgboost", "XGBClassifier", dict(n_estimators=5, objective="multi:softmax"), KIND),
    "LightGBM, a forest": (
        "lightgbm",
        "LGBMRegressor",
        dict(boosting_type="rf", subsample=0.7, subsample_freq=1, n_estimators=5, verbose=-1),
        SIZE,
    ),
    "LightGBM, relative errors": (
        "lightgbm",
        "LGBMRegressor",
        dict(objective="mape", n_estimators=5, verbose=-1),
        SIZE,
    ),
    "LightGBM, cross entropy": (
        "lightgbm",
        "LGBMClassifier",
        dict(objective="cross_entropy", n_estimators=5, verbose=-1),
        (KIND > 0).astype(int),
    ),
    "CatBoost": ("catboost", "CatBoostRegressor", dict(iterations=5, verbose=0, allow_writing_files=False), SIZE),
    "CatBoost, counts": (
        "catboost",
        "CatBoostRegressor",
        dict(loss_function="Poisson", iterations=5, verbose=0, allow_writing_files=False),
        KIND.astype(float),
    ),
    "CatBoost, two classes": (
        "catboost",
        "CatBoostClassifier",
        dict(iterations=5, verbose=0, allow_writing_files=False),
        (KIND > 0).astype(int),
    ),
    "CatBoost, texts": (
        "catboost",
        "CatBoostClassifier",
        dict(iterations=5, verbose=0, allow_writing_files=False),
        np.array(["a", "b", "c"])[KIND],
    ),
}


def boosted(library, kind, params):
    package = pytest.importorskip(library, reason=f"{library} is not installed")
    if library != "catboost":
        pytest.importorskip("onnxmltools", reason="onnxmltools is not installed: nothing exports LightGBM and XGBoost")
    one_thread = {"thread_count" if library == "catboost" else "n_jobs": 1}  # idle threads take most of the time
    return getattr(package, kind)(random_state=0, **one_thread, **params)


def test_what_sparse_rows_do_not_store_is_missing_to_xgboost():
    rows = np.where(X > 0, X, 0)
    model = boosted("xgboost", "XGBRegressor", dict(n_estimators=5)).fit(scipy.sparse.csr_matrix(rows), SIZE)
    with pytest.raises(
        ConversionError, match="as missing values, but its graph treats them as 0. .*sparse_threshold=0"
    ):
        OrtGradientRegressor(model).fit(scipy.sparse.csr_matrix(rows), SIZE)
    model = clone(model).fit(rows, SIZE)
    ours = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(rows, SIZE)
    np.testing.assert_allclose(ours.predict(rows), model.predict(rows), rtol=1e-5)


@pytest.mark.filterwarnings("ignore")  # those of the library
def test_texts_are_made_dense_for_xgboost_as_the_message_says():
    trees = boosted("xgboost", "XGBRegressor", dict(n_estimators=5))
    texts = ["red", "green", "blue red"] * 20
    with pytest.raises(
        ConversionError, match=r"FunctionTransformer\(lambda X: X.toarray\(\)\) after a text vectorizer"
    ):
        OrtGradientRegressor(make_pipeline(TfidfVectorizer(), trees)).fit(texts, SIZE[:60])
    model = make_pipeline(TfidfVectorizer(), FunctionTransformer(lambda X: X.toarray()), trees).fit(texts, SIZE[:60])
    ours = OrtGradientRegressor(model, max_iter=0).fit(texts, SIZE[:60])
    np.testing.assert_allclose(ours.predict(texts), model.predict(texts), rtol=1e-5)


def test_sums_over_sparse_rows_are_in_another_order_and_no_missing_values(monkeypatch):
    """Predictions of Ridge on sparse and on dense rows differ by rounding; a vote with boosted trees may hold one."""
    monkeypatch.setattr("onnxtrain.convert.check.holds_boosted", lambda estimator: True)  # no other library is needed
    rows = scipy.sparse.random(300, 40, 0.3, format="csr", random_state=0, dtype=np.float32)
    y = rows @ RNG.normal(size=40) + 1
    vote = VotingRegressor([("tree", DecisionTreeRegressor(max_depth=3)), ("ridge", Ridge())]).fit(rows, y)
    ours = OrtGradientRegressor(vote, max_iter=1, learning_rate=1e-30).fit(rows, y)
    np.testing.assert_allclose(ours.predict(rows), vote.predict(rows), rtol=1e-4, atol=1e-4)


def check_written(model, given, rows=X):
    """The estimator has its class and the trained leaves, survives pickling and copying, and is taken again."""
    back = model.to_sklearn()
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    expected = getattr(model, method)(rows)
    for found in (back, pickle.loads(pickle.dumps(back)), copy.deepcopy(back)):
        assert type(found) is type(given)
        np.testing.assert_allclose(getattr(found, method)(rows).reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)
    assert (np.ravel(back.predict(rows)) == np.ravel(model.predict(rows))).all() or method == "predict"
    again = type(model)(back, max_iter=0).fit(rows, model.predict(rows))
    np.testing.assert_allclose(getattr(again, method)(rows), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("form", ["fitted", "unfitted", "copied", "in a pipeline"])
@pytest.mark.parametrize("case", BOOSTED.values(), ids=BOOSTED)
def test_boosted_trees(case, form):
    *made, y = case
    trees = boosted(*made)
    given = trees if form == "unfitted" else trees.fit(X, y)
    if form == "in a pipeline":
        given = make_pipeline(StandardScaler(with_std=False, with_mean=False), clone(trees)).fit(X, y)
    if form == "copied":  # as by cross_val_score
        given = copy.deepcopy(given)
    kind = OrtGradientClassifier if is_classifier(trees) else OrtGradientRegressor
    start = kind(given, max_iter=0, random_state=0).fit(X, y)
    if form != "unfitted":
        method = "predict_proba" if is_classifier(trees) else "predict"
        np.testing.assert_allclose(getattr(start, method)(X), getattr(given, method)(X), rtol=1e-4, atol=1e-5)
        assert (np.ravel(start.predict(X)) == np.ravel(given.predict(X))).all() or not is_classifier(trees)
        assert [w.kind for w in trainable_weights(given, X=X)] == ["leaf"]
    model = kind(given, max_iter=10, learning_rate=0.05, random_state=0).fit(X, y)
    assert list(model.weights_) == ["leaf_values"]
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    onx = model.get_trained_onnx(labels=is_classifier(trees))
    expected = model.predict_proba(X) if is_classifier(trees) else model.predict(X)
    np.testing.assert_allclose(run(onx, {"X": X})[-1].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    check_written(model, given)
    assert not hasattr(model, "coef_")
    assert "leaf_values" in model._repr_html_()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, other, exported",
    [
        ("LightGBM", dict(linear_tree=True), dict(linear_tree=False)),
        ("LightGBM", dict(reg_sqrt=True), dict(reg_sqrt=False)),
        ("XGBoost", dict(booster="gblinear"), dict(booster="gbtree")),
        ("CatBoost", dict(grow_policy="Depthwise"), dict(grow_policy="SymmetricTree")),
    ],
)
def test_the_parameters_that_an_exporter_supports_are_named(name, other, exported):
    library, kind, params, y = BOOSTED[name]
    (parameter,) = exported.items()
    with pytest.raises(ConversionError, match="Fit with .*" + "{}={!r}".format(*parameter)):
        OrtGradientRegressor(boosted(library, kind, params | other).fit(X, y)).fit(X, y)
    OrtGradientRegressor(boosted(library, kind, params | exported).fit(X, y), max_iter=1).fit(X, y)


def test_a_loss_without_probabilities_is_named():
    trees = boosted("xgboost", "XGBClassifier", dict(n_estimators=3, objective="binary:hinge")).fit(X, KIND > 0)
    with pytest.raises(ConversionError, match="has no probabilities. Fit with 'binary:logistic'"):
        OrtGradientClassifier(trees).fit(X, KIND > 0)


#: For each library: the parameters with which trees encode the column ``kind`` themselves, and the type of the column.
OWN_CATEGORIES = {
    "lightgbm": ({}, "category"),
    "xgboost": ({"enable_categorical": True}, "category"),
    "catboost": ({"cat_features": ["kind"]}, "str"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", OWN_CATEGORIES)
def test_columns_of_categories_are_encoded_before_the_trees(library):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    _, kind, params, _ = next(case for case in BOOSTED.values() if case[0] == library)
    own, dtype = OWN_CATEGORIES[library]
    frame = pandas.DataFrame(X[:, :2], columns=["age", "height"])
    frame["kind"] = pandas.Series(np.where(X[:, 2] > 0, "a", "b")).astype(dtype)
    alone, last = (boosted(library, kind, params | own) for _ in range(2))
    behind = make_pipeline(FunctionTransformer(lambda rows: rows.astype({"kind": dtype})), last)
    for model, rows in ((alone, frame), (behind, frame.astype({"kind": "str"}))):
        with pytest.raises(ConversionError, match="encodes columns of categories itself.*unknown_value=-1"):
            OrtGradientRegressor(model.fit(rows, SIZE)).fit(rows, SIZE)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    encoder = make_column_transformer((codes, ["kind"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, boosted(library, kind, params)).fit(frame, SIZE)
    start = OrtGradientRegressor(pipeline, max_iter=0).fit(frame, SIZE)
    for rows in (frame, frame.assign(kind="never seen")):
        np.testing.assert_allclose(start.predict(rows), pipeline.predict(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_boolean_classes_of_catboost():
    trees = boosted("catboost", "CatBoostClassifier", dict(iterations=3, verbose=0, allow_writing_files=False))
    with pytest.raises(ConversionError, match=r"cannot export boolean classes. Fit with y.astype\(int\)"):
        OrtGradientClassifier(trees.fit(X, SIZE > 0)).fit(X, SIZE > 0)
    OrtGradientClassifier(trees.fit(X, (SIZE > 0).astype(int)), max_iter=1).fit(X, (SIZE > 0).astype(int))


@pytest.mark.filterwarnings("ignore")
def test_calibrated_scores_of_boosted_trees_are_refused_with_a_way():
    classifier = boosted("lightgbm", "LGBMClassifier", dict(n_estimators=2, verbose=-1))
    if not hasattr(classifier, "decision_function"):
        pytest.skip("this LightGBM has only predict_proba, which is calibrated then")
    with pytest.raises(ConversionError, match=r"CalibratedClassifierCV\(OrtGradientClassifier\(classifier\)\)"):
        OrtGradientClassifier(CalibratedClassifierCV(classifier, cv=2).fit(X, SIZE > 0)).fit(X, SIZE > 0)
    outside = CalibratedClassifierCV(OrtGradientClassifier(classifier, max_iter=1), cv=2).fit(X, SIZE > 0)
    assert outside.predict_proba(X).shape == (len(X), 2)


def tuned(estimator, y, rows=X, **params):
    kind = OrtGradientClassifier if is_classifier(estimator) else OrtGradientRegressor
    return kind(estimator, max_iter=3, learning_rate=0.02, random_state=0, **params).fit(rows, y)


#: The trees inside another estimator.
AROUND = {
    "vote of equal members": lambda trees: VotingRegressor(
        [("a", trees), ("b", Ridge()), ("c", trees)], weights=[1, 2, 4]
    ),
    "outputs from a fitted template": lambda trees: MultiOutputRegressor(clone(trees).fit(X, SIZE)),
    "bagging": lambda trees: BaggingRegressor(trees, n_estimators=2, random_state=0),
    "search": lambda trees: GridSearchCV(trees, {"max_depth": [2, 3]}, cv=2),
    "frozen": lambda trees: make_pipeline(FrozenEstimator(clone(trees).fit(X, SIZE))),
    "stack": lambda trees: StackingRegressor([("a", trees), ("b", DecisionTreeRegressor(max_depth=2))], cv=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("library", ["LightGBM", "XGBoost", "CatBoost"])
def test_leaves_inside_other_estimators_are_written_back(library, around):
    y = np.stack([SIZE, SIZE], axis=1) if around == "outputs from a fitted template" else SIZE
    given = AROUND[around](boosted(*BOOSTED[library][:3])).fit(X, y)
    model = tuned(given, y)
    assert np.abs(model.predict(X) - given.predict(X)).max() > 1e-3
    check_written(model, given)


#: Classifiers that hold a pipeline of a scaler and the trees.
AROUND_PIPELINES = {
    "calibration": lambda model: CalibratedClassifierCV(model, cv=2),
    "vote": lambda model: VotingClassifier([("a", model), ("b", LogisticRegression())], voting="soft"),
    "stack": lambda model: StackingClassifier([("a", model)], cv=2),
    "one against the rest": OneVsRestClassifier,
    "bagging": lambda model: BaggingClassifier(model, n_estimators=2, random_state=0),
    "search": lambda model: CalibratedClassifierCV(GridSearchCV(model, {}, cv=2), cv=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", AROUND_PIPELINES)
@pytest.mark.parametrize("library", ["XGBoost, three classes", "CatBoost, texts"])
def test_pipelines_of_classifiers_inside_other_estimators(library, around):
    """skl2onnx does not see that the class of CatBoost is a classifier."""
    *made, y = BOOSTED[library]
    given = AROUND_PIPELINES[around](make_pipeline(StandardScaler(), boosted(*made))).fit(X, y)
    start = OrtGradientClassifier(given, max_iter=0).fit(X, y)
    np.testing.assert_allclose(start.predict_proba(X), given.predict_proba(X), rtol=1e-5, atol=1e-6)
    check_written(tuned(given, y), given)


@pytest.mark.filterwarnings("ignore")
def test_copies_of_catboost_behind_steps_that_are_run_before():
    """Copies of CatBoost's models, as those of cross_val_score, have n_features_in_ of 0."""
    trees = boosted(*BOOSTED["CatBoost"][:3])
    logarithms = FunctionTransformer(np.arcsinh)
    searched = GridSearchCV(make_pipeline(logarithms, trees), {}, cv=2)
    members = [("a", make_pipeline(logarithms, trees)), ("b", searched)]
    given = copy.deepcopy(VotingRegressor(members).fit(X, SIZE))
    start = OrtGradientRegressor(given, max_iter=0).fit(X, SIZE)
    np.testing.assert_allclose(start.predict(X), given.predict(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(start.to_sklearn().predict(X), given.predict(X), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_votes_of_scores_of_boosted_trees_are_refused_with_a_way():
    *made, y = BOOSTED["LightGBM, texts"]
    trees = boosted(*made)
    if not hasattr(trees, "decision_function"):
        pytest.skip("this LightGBM has only predict_proba, which is summed then")
    with pytest.raises(
        ConversionError, match="sums the decision_function of LGBMClassifier.*Use OneVsRestClassifier, or"
    ):
        OrtGradientClassifier(OneVsOneClassifier(trees).fit(X, y)).fit(X, y)
    check_written(tuned(OneVsRestClassifier(trees).fit(X, y), y), OneVsRestClassifier(trees))


#: Losses and ways of growing, and the targets.
GROWN = {
    "LightGBM, Poisson": ("lightgbm", "LGBMRegressor", dict(objective="poisson", n_estimators=5, verbose=-1), KIND),
    "LightGBM, dropped trees": (
        "lightgbm",
        "LGBMRegressor",
        dict(boosting_type="dart", n_estimators=5, verbose=-1),
        SIZE,
    ),
    "XGBoost, pruned": ("xgboost", "XGBRegressor", dict(gamma=2, n_estimators=5), SIZE),
    "XGBoost, gamma": ("xgboost", "XGBRegressor", dict(objective="reg:gamma", n_estimators=5), KIND + 1),
    "CatBoost, shrunk": (
        "catboost",
        "CatBoostRegressor",
        dict(iterations=5, verbose=0, allow_writing_files=False, langevin=True, model_shrink_rate=0.1),
        SIZE,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", GROWN.values(), ids=GROWN)
def test_leaves_of_other_losses_are_written_back(case):
    *made, y = case
    given = boosted(*made).fit(X, y, sample_weight=1 + np.arange(len(y)) % 3)
    check_written(tuned(given, y), given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_trees_after_the_best_one_keep_their_leaves(library):
    """XGBoost and LightGBM keep the trees that early stopping does not use, and export only the others."""
    _, kind, params, _ = next(case for case in BOOSTED.values() if case[0] == library)
    more = {"iterations": 60} if library == "catboost" else {"n_estimators": 60}
    stop = {} if library == "lightgbm" else {"early_stopping_rounds": 2}
    given = boosted(library, kind, params | more | stop)
    fitting = {"eval_set": [(X[::2], np.roll(SIZE[::2], 3))]}
    if library == "lightgbm":
        fitting["callbacks"] = [sys.modules["lightgbm"].early_stopping(2, verbose=False)]
    given.fit(X, SIZE, **fitting)
    check_written(tuned(given, SIZE), given)


#: What an exporter could make of the leaf values, of which the marked ones are integers, and the reason given.
CHANGED = {
    "rounded": (lambda values: values + 0.5, "does not write each leaf value of the library once"),
    "merged": (np.ones_like, "does not write each leaf value of the library once"),
    "cut": (lambda values: values[1:], "does not write each leaf value of the library once"),
    "scaled": (lambda values: values * (1 + np.any(values % 1)), "writes other values than the library holds"),
}


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_leaves_that_the_exporter_changes_are_not_written_back(case, monkeypatch):
    change, why = case
    model = tuned(boosted(*BOOSTED["LightGBM"][:3]).fit(X, SIZE), SIZE)
    in_file = boosted_leaves._in_file
    monkeypatch.setattr(boosted_leaves, "_in_file", lambda trees: change(in_file(trees)))
    with pytest.raises(ExportError, match=f"leaves of LGBMRegressor cannot be .*{why}. Use get_trained_onnx"):
        model.to_sklearn()


def test_too_many_leaves_for_marks_of_float32(monkeypatch):
    model = tuned(boosted(*BOOSTED["LightGBM"][:3]).fit(X, SIZE), SIZE)
    monkeypatch.setattr(boosted_leaves, "_MOST_VALUES", 10)
    with pytest.raises(ExportError, match=r"it has \d+ leaf values, but the maximum is 9. Use get_trained_onnx"):
        model.to_sklearn()


def test_leaves_that_the_library_lacks_are_not_written_back(monkeypatch):
    values_of = boosted_leaves.values_of
    monkeypatch.setattr(boosted_leaves, "values_of", lambda trees: values_of(trees) + 1)
    model = tuned(boosted(*BOOSTED["LightGBM"][:3]).fit(X, SIZE), SIZE)
    assert [w.kind for w in trainable_weights(model)] == ["derived"]
    with pytest.raises(ExportError, match="'leaf_values' cannot be written back.* get_trained_onnx"):
        model.to_sklearn()


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_trees_of_a_frame(library):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    case = next(case for case in BOOSTED.values() if case[0] == library)
    frame = pandas.DataFrame(X, columns=["age", "height in cm", "weight", "pulse"])  # LightGBM records height_in_cm
    trees = boosted(*case[:3]).fit(frame, SIZE)
    start = OrtGradientRegressor(trees, max_iter=0).fit(frame, SIZE)
    np.testing.assert_allclose(start.predict(frame), trees.predict(frame), rtol=1e-4, atol=1e-5)
    check_written(tuned(trees, SIZE, frame), trees, frame)
    vote = VotingRegressor([("a", make_pipeline(StandardScaler(), Ridge())), ("b", trees)]).fit(frame, SIZE)
    check_written(tuned(vote, SIZE, frame), vote, frame)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["LightGBM", "XGBoost", "CatBoost", "CatBoost, two classes"])
def test_missing_values_are_branches_of_trees(case):
    *made, y = BOOSTED[case]
    rows = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    trees = boosted(*made).fit(rows, y)
    kind, method = (
        (OrtGradientClassifier, "predict_proba") if is_classifier(trees) else (OrtGradientRegressor, "predict")
    )
    start = kind(trees, max_iter=0).fit(rows, y)
    np.testing.assert_allclose(getattr(start, method)(rows), getattr(trees, method)(rows), rtol=1e-4, atol=1e-5)


def test_columns_of_booleans_and_integers_of_xgboost():
    """XGBoost dumps such splits in another form, which its exporter cannot read."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X[:, :2], columns=["age", "height"]).assign(member=X[:, 2] > 0, visits=np.arange(200) % 7)
    y = SIZE + frame.member + frame.visits
    trees = boosted("xgboost", "XGBRegressor", dict(n_estimators=5)).fit(frame, y)
    start = OrtGradientRegressor(trees, max_iter=0).fit(frame, y)
    np.testing.assert_allclose(start.predict(frame), trees.predict(frame), rtol=1e-4, atol=1e-5)


def test_an_exporter_that_is_missing_is_named(monkeypatch):
    class LGBMRegressor(RegressorMixin, BaseEstimator):
        __module__ = "lightgbm.sklearn"

        def fit(self, X, y):
            self.n_features_in_ = X.shape[1]
            return self

        def predict(self, X):
            return X[:, 0]

    monkeypatch.setitem(sys.modules, "onnxmltools", None)
    for estimator in (LGBMRegressor(), make_pipeline(StandardScaler(), LGBMRegressor())):
        with pytest.raises(
            ConversionError, match="Exporting LGBMRegressor requires onnxmltools, .*Run pip install onnxmltools"
        ):
            OrtGradientRegressor(estimator).fit(X, SIZE)


# ------------------------------------------------------------------ networks


def check_lines(model, tmp_path, monkeypatch, names, rows=X, **params):
    """The error has lines that export, which are run here, and the name of the file."""
    with pytest.raises(ParameterError, match="Export it, and pass the file:") as raised:
        OrtGradientClassifier(model).fit(rows, KIND)
    lines = [line.strip() for line in str(raised.value).split("\n")[1:]]
    monkeypatch.chdir(tmp_path)
    scope = {"model": model, "X": rows, **names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(lines), scope)
    assert scope["estimator"] == "model.onnx"
    found = OrtGradientClassifier("model.onnx", max_iter=1, **params).fit(scope["X"], KIND)
    assert len(found.predict(scope["X"])) == len(KIND)


DOUBLE = X.astype(np.float64)
FIRST, SECOND = DOUBLE[:, :2], DOUBLE[:, 2:]
TOKENS = [[1 + i % 3] * (2 + i % 4) for i in range(len(X))]


def frame(columns, library="pandas"):
    return pytest.importorskip(library, reason=f"{library} is not installed").DataFrame(columns)


#: Rows of one input, in each form.
ONE_INPUT = {
    "float32": lambda: X.astype(np.float32),
    "float64": lambda: DOUBLE,
    "list": lambda: DOUBLE.tolist(),
    "frame": lambda: frame(dict(zip("abcd", DOUBLE.T, strict=True))),
    "polars": lambda: frame(dict(zip("abcd", DOUBLE.T, strict=True)), "polars"),
    "sparse": lambda: scipy.sparse.csr_matrix(DOUBLE),
    "tensor": lambda: pytest.importorskip("torch").as_tensor(DOUBLE),
    "dictionary of one": lambda: {"input": DOUBLE},
    "another name": lambda: {"rows": DOUBLE},
}

#: Rows of two inputs; `first` and `second` are arguments of the module.
TWO_INPUTS = {
    "Inputs": lambda: Inputs(first=FIRST, second=SECOND),
    "dictionary": lambda: {"first": FIRST, "second": SECOND.astype(np.float32)},
    "another order, another value": lambda: {"second": SECOND, "more": FIRST, "first": FIRST},
    "other names": lambda: {"a": FIRST, "b": SECOND},
    "cells of a frame": lambda: frame({"first": FIRST.tolist(), "second": SECOND.tolist()}),
    "cells of polars": lambda: frame({"first": FIRST.tolist(), "second": SECOND.tolist()}, "polars"),
}


def test_a_module_of_pytorch(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxscript", reason="torch exports by onnxscript")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    check_lines(net, tmp_path, monkeypatch, {"torch": torch})


@pytest.mark.parametrize("kind", ONE_INPUT)
def test_the_line_of_pytorch_fits_the_rows(kind, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxscript", reason="torch exports by onnxscript")
    check_lines(torch.nn.Sequential(torch.nn.Linear(4, 3)), tmp_path, monkeypatch, {"torch": torch}, ONE_INPUT[kind]())


@pytest.mark.parametrize("kind", TWO_INPUTS)
def test_the_line_of_pytorch_fits_two_inputs(kind, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxscript", reason="torch exports by onnxscript")

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, first, second):
            return self.layer(torch.cat([first, second], 1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a value that the model does not take
        check_lines(Two(), tmp_path, monkeypatch, {"torch": torch}, TWO_INPUTS[kind]())


@pytest.mark.parametrize("ragged", [False, True])
def test_the_line_of_pytorch_fits_tokens(ragged, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxscript", reason="torch exports by onnxscript")

    class Bag(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors, self.layer = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3)

        def forward(self, ids, mask):
            return self.layer((self.vectors(ids) * mask.unsqueeze(2)).sum(1))

    rows = TOKENS if ragged else [row[:2] for row in TOKENS]
    given = {"ids": rows, "mask": [[1] * len(row) for row in rows]}
    check_lines(Bag(), tmp_path, monkeypatch, {"torch": torch}, given, pad={"ids": 0})


def test_a_network_that_has_a_dtype_is_not_taken_for_rows():
    attributes = {"__module__": "keras.src.models.sequential", "dtype": "float32", "inputs": None}
    with pytest.raises(ParameterError, match=r"got Sequential\. Export it, and pass the file:"):
        OrtGradientClassifier(type("Sequential", (), attributes)()).fit(X, KIND)


def test_the_line_of_keras_builds_a_model(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("torch", reason="the backend, torch, is not installed")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    for kind in ("float64", "list", "frame", "sparse"):
        model = keras.Sequential([keras.layers.Dense(3)])
        check_lines(model, tmp_path, monkeypatch, {"keras": keras}, ONE_INPUT[kind]())


@pytest.mark.parametrize("kind", [*ONE_INPUT, *TWO_INPUTS])
@pytest.mark.parametrize("named", [False, True])
def test_the_line_of_keras_fits_the_rows(kind, named, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("torch", reason="the backend, torch, is not installed")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    if not named and kind == "another order, another value":
        pytest.skip("nothing says which of three values goes into which of two inputs")
    if kind in ONE_INPUT:
        inputs = [keras.Input((4,), name="input" if named else None)]
        rows, joined = ONE_INPUT[kind](), inputs[0]
    else:
        inputs = [keras.Input((2,), name=name if named else None) for name in ("first", "second")]
        rows, joined = TWO_INPUTS[kind](), keras.layers.Concatenate()(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_lines(keras.Model(inputs, keras.layers.Dense(3)(joined)), tmp_path, monkeypatch, {}, rows)


def test_a_model_of_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("torch", reason="the backend, torch, is not installed")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    layers = keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3, activation="softmax")
    check_lines(keras.Sequential([keras.Input((4,)), *layers]), tmp_path, monkeypatch, {})


@pytest.mark.filterwarnings("ignore")
def test_trees_behind_steps_are_compared_on_rows_between_those_of_others():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(3000, 4)) * [1, 1, 1, 3] + [0, 10, 100, 0]  # one of them on a split in float32
    y = np.sin(3 * rows[:, 0]) + rows[:, 1]
    trees = boosted("xgboost", "XGBRegressor", dict(n_estimators=20, max_depth=4))
    model = make_pipeline(StandardScaler(), trees).fit(rows, y)
    start = OrtGradientRegressor(model, max_iter=0).fit(rows, y)
    assert start.onnx_status_ == {"standardscaler": "scikit-learn", "xgbregressor": "ONNX"}
    np.testing.assert_allclose(start.predict(rows), model.predict(rows), rtol=0, atol=1e-4)
    np.testing.assert_allclose(start.to_sklearn().predict(rows), model.predict(rows), rtol=0, atol=1e-6)
    with pytest.raises(
        ExportError,
        match=r"front_\.transform\(X\)\. to_sklearn\(\) returns the whole estimator\. For a training step, ",
    ):
        start.get_trained_onnx()
    columns = start.front_.transform(rows).astype(np.float32)
    (found,) = run(start.get_trained_onnx(part="tail"), {"X": columns})
    np.testing.assert_allclose(found.ravel(), model.predict(rows), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_without_its_estimator(library, tmp_path, monkeypatch):
    case = BOOSTED["LightGBM" if library == "lightgbm" else "XGBoost"]
    fitted = boosted(*case[:3]).fit(X, SIZE)
    booster = fitted.booster_ if library == "lightgbm" else fitted.get_booster()
    with pytest.raises(ParameterError, match="Export it, and pass the file:") as raised:
        OrtGradientRegressor(booster).fit(X, SIZE)
    line = str(raised.value).rsplit("\n", 2)[1].strip()
    monkeypatch.chdir(tmp_path)
    import onnx
    import onnxmltools
    import onnxmltools.convert.common.data_types

    exec(line, {"model": booster, "X": X, "onnx": onnx, "onnxmltools": onnxmltools})
    OrtGradientRegressor("model.onnx", max_iter=1).fit(X, SIZE)
