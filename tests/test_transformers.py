"""Steps that skl2onnx does not convert where they stand: a ColumnTransformer behind others, predictors that transform."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import Birch, BisectingKMeans, FeatureAgglomeration, KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA, FactorAnalysis, FastICA, MiniBatchSparsePCA, SparsePCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    RandomTreesEmbedding,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler, SkewedChi2Sampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, SplineTransformer, StandardScaler
from sklearn.svm import LinearSVC

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ExportError

RNG = np.random.RandomState(0)
N = 120
HOMES = pd.DataFrame(
    {
        "age": RNG.randint(18, 80, N).astype(np.float64),
        "pay": RNG.gamma(2, 100, N).round(),
        "town": RNG.choice(["Bonn", "Jena", "Ulm"], N),
        "job": RNG.choice(["cook", "nurse"], N),
    }
)
RENT = 2 * HOMES["age"] + 30 * (HOMES["town"] == "Bonn") + RNG.randn(N)
HOMES.loc[::7, "age"] = np.nan
HOMES.loc[::11, "town"] = np.nan

X = RNG.randn(N, 6).astype(np.float32)
KIND = np.where(X[:, 0] > 0.3, "b", np.where(X[:, 1] > 0, "a", "c"))


TEXTS = SimpleImputer(strategy="most_frequent")


def imputed(**options):
    """Fill the gaps of numbers and texts, each in its own way."""
    return ColumnTransformer([("n", SimpleImputer(), ["age", "pay"]), ("t", TEXTS, ["town", "job"])], **options)


def scaled_and_encoded(numbers, texts):
    return make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), texts))


OF_TABLES = {
    "by name": (
        imputed().set_output(transform="pandas"),
        scaled_and_encoded(["n__age", "n__pay"], ["t__town", "t__job"]),
    ),
    "in another order": (
        imputed(verbose_feature_names_out=False).set_output(transform="pandas"),
        make_column_transformer((make_pipeline(StandardScaler()), ["pay"]), (OneHotEncoder(), ["job", "town"])),
    ),
    "of several results, in another order": (
        ColumnTransformer([("p", SimpleImputer(), ["pay"]), ("t", TEXTS, ["town"]), ("a", SimpleImputer(), ["age"])]),
        make_column_transformer((PCA(2), [2, 0]), (OneHotEncoder(), [1])),
    ),
    "by position": (imputed(), scaled_and_encoded([0, 1], [2, 3])),
    "with the rest": (imputed(), make_column_transformer((OrdinalEncoder(), [3, 2]), remainder=StandardScaler())),
    "three of them": (
        imputed(),
        make_column_transformer((OneHotEncoder(), [2, 3]), remainder="passthrough"),
        make_column_transformer((StandardScaler(), [-1, -2]), remainder="passthrough"),
    ),
}


def file_of(model):
    """Return the whole pipeline as a session; the fit has compared it with the estimator."""
    assert set(model.onnx_status_.values()) == {"ONNX"}, model.onnx_status_
    return onnxruntime.InferenceSession(model.get_trained_onnx().SerializeToString())


def feeds_of(rows):
    """Return the inputs of a file, one for each column."""
    columns = {name: rows[[name]].to_numpy() for name in rows}
    return {
        name: np.where(pd.isna(x), "nan", x) if name in ("town", "job") else x.astype(np.float32)
        for name, x in columns.items()
    }


@pytest.mark.parametrize("steps", OF_TABLES.values(), ids=OF_TABLES)
def test_tables_that_are_imputed_and_then_encoded(steps):
    pipeline = make_pipeline(*steps, Ridge()).fit(HOMES, RENT)
    model = OrtGradientRegressor(pipeline, max_iter=1, learning_rate=1e-12).fit(HOMES, RENT)
    expected = pipeline.predict(HOMES)
    np.testing.assert_allclose(file_of(model).run(None, feeds_of(HOMES))[0].ravel(), expected, rtol=1e-5)
    np.testing.assert_allclose(model.to_sklearn().predict(HOMES), expected, rtol=1e-6)


def encoded(last):
    """Return a pipeline that takes the columns by their names."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(make_column_transformer((numbers, ["age", "pay"]), (encoder, ["town", "job"])), last)


def imputed_and_encoded(last):
    """Return a pipeline that encodes them behind another step."""
    return make_pipeline(*OF_TABLES["by position"], last)


LOGISTIC = LogisticRegression(max_iter=1000)
PAIR = np.c_[RENT, -RENT]
GROUPS = np.digitize(RENT, np.quantile(RENT, [0.3, 0.7]))

#: Estimators of pipelines, and their targets.
AROUND = {
    "vote": (lambda of: VotingRegressor([("a", of(Ridge())), ("b", of(Ridge(9)))]), RENT),
    "stack": (lambda of: StackingRegressor([("a", of(Ridge())), ("b", of(Ridge(9)))], cv=2), RENT),
    "stack of scores": (lambda of: StackingClassifier([("a", of(LinearSVC())), ("b", of(LOGISTIC))], cv=2), GROUPS),
    "stack in a vote": (
        lambda of: VotingClassifier(
            [("a", StackingClassifier([("c", of(LOGISTIC))], cv=2)), ("b", of(LOGISTIC))], voting="soft"
        ),
        GROUPS,
    ),
    "stack in a stack": (
        lambda of: StackingRegressor([("a", StackingRegressor([("c", of(Ridge()))], Ridge(), cv=2))], Ridge(), cv=2),
        RENT,
    ),
    "searched": (lambda of: GridSearchCV(StackingRegressor([("a", of(Ridge()))]), {"cv": [2]}, cv=2), RENT),
    "calibrated": (lambda of: CalibratedClassifierCV(of(LinearSVC()), cv=2), GROUPS),
    "calibrated as one": (lambda of: CalibratedClassifierCV(of(LOGISTIC), cv=2, ensemble=False), GROUPS),
    "one against the rest": (lambda of: OneVsRestClassifier(of(LOGISTIC)), GROUPS),
    "labels": (lambda of: MultiOutputClassifier(of(LOGISTIC)), np.c_[GROUPS > 0, HOMES["pay"] > 200].astype(int)),
    "targets": (lambda of: MultiOutputRegressor(of(make_pipeline(StandardScaler(), Ridge()))), PAIR),
    "transformed target": (lambda of: TransformedTargetRegressor(of(Ridge()), transformer=StandardScaler()), RENT),
}


@pytest.mark.parametrize("of", [encoded, imputed_and_encoded], ids=["first", "behind another"])
@pytest.mark.parametrize("name", AROUND)
def test_tables_of_members(name, of):
    make, y = AROUND[name]
    estimator = make(of).fit(HOMES, y)
    kind = OrtGradientClassifier if is_classifier(estimator) else OrtGradientRegressor
    model = kind(estimator, max_iter=1, learning_rate=1e-12).fit(HOMES, y)
    found = file_of(model).run(None, feeds_of(HOMES))
    expected = np.asarray(estimator.predict(HOMES))
    np.testing.assert_allclose(found[0].reshape(expected.shape), expected, rtol=1e-5)
    if is_classifier(estimator):
        np.testing.assert_allclose(np.squeeze(found[1:]), estimator.predict_proba(HOMES), atol=1e-5)
    trained = kind(estimator, max_iter=2).fit(HOMES, y)
    np.testing.assert_allclose(trained.to_sklearn().predict(HOMES), trained.predict(HOMES), rtol=1e-5)


SELECTIONS = {
    "of some": make_column_transformer((PCA(2), [0, 1, 2, 3])),
    "of all, in another order": make_column_transformer((StandardScaler(), [5, 4, 3, 2, 1, 0])),
    "of a slice": make_column_transformer((PCA(2), slice(0, 4)), remainder=StandardScaler()),
    "by a mask": make_column_transformer((PCA(1), [True, False] * 3), remainder="passthrough"),
    "of none": make_column_transformer((PCA(1), []), ("drop", [1]), remainder="passthrough"),
    "with weights": ColumnTransformer([("a", PCA(1), [0, 1]), ("b", "passthrough", [3])], transformer_weights={"a": 9}),
    "of unfitted members inside": make_column_transformer(
        (make_pipeline(KMeans(3, random_state=0), StandardScaler()), [0, 1, 2]), remainder="passthrough"
    ),
    "inside another": make_column_transformer((make_column_transformer((PCA(1), [1, 0])), [4, 2, 3])),
}


@pytest.mark.parametrize("front", [(StandardScaler(),), ()], ids=["behind a scaler", "first"])
@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_columns_of_a_matrix(selection, front):
    pipeline = make_pipeline(*front, selection, LogisticRegression()).fit(X, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(X, KIND)
    found = file_of(model).run(None, {"X": X})[1]
    np.testing.assert_allclose(found, pipeline.predict_proba(X), atol=1e-6)


REDUCERS = {
    "discriminants": LinearDiscriminantAnalysis(),
    "one discriminant by eigenvectors": LinearDiscriminantAnalysis(solver="eigen", n_components=1),
    "means of columns": FeatureAgglomeration(2),
    "k-means": KMeans(4, random_state=0),
    "k-means of batches": MiniBatchKMeans(4, random_state=0),
    "bisecting k-means": BisectingKMeans(4, random_state=0),
    "Birch": Birch(threshold=2.0, n_clusters=None),
    "columns of a classifier": RFE(LogisticRegression(), n_features_to_select=2),
    "columns one after the other": SequentialFeatureSelector(LogisticRegression(), n_features_to_select=2, cv=2),
}
PROJECTIONS = {
    "independent components": FastICA(3, random_state=0),
    "without whitening": FastICA(whiten=False, random_state=0),
    "factors": FactorAnalysis(2),
    "rotated factors": FactorAnalysis(2, rotation="varimax"),
    "sparse components": SparsePCA(3, random_state=0),
    "sparse components of batches": MiniBatchSparsePCA(3, ridge_alpha=0.5, random_state=0),
    "random features": RBFSampler(gamma=0.3, n_components=20, random_state=0),
    "random features of logarithms": SkewedChi2Sampler(skewedness=9.0, n_components=20, random_state=0),
    **{
        f"a {kernel} kernel": Nystroem(kernel, n_components=5, random_state=0)
        for kernel in ("rbf", "poly", "sigmoid", "cosine", "laplacian")
    },
    "a kernel with parameters": Nystroem("poly", gamma=0.2, degree=2, coef0=0.5, n_components=12, random_state=0),
}
PLACES = {
    "a step": lambda reducer: reducer,
    "the end of a pipeline": lambda reducer: make_pipeline(StandardScaler(), reducer),
    "in a union": lambda reducer: make_union(reducer, PCA(2)),
    "twice in a union": lambda reducer: make_union(reducer, clone(reducer)),
    "of some columns": lambda reducer: make_column_transformer((reducer, [0, 1, 4]), remainder="passthrough"),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_predictors_that_a_pipeline_uses_as_transformers(reducer, place):
    pipeline = make_pipeline(StandardScaler(), place(reducer), LogisticRegression(max_iter=1000)).fit(X, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(X, KIND)
    found = file_of(model).run(None, {"X": X})[1]
    np.testing.assert_allclose(found, pipeline.predict_proba(X), atol=1e-5)
    step = model.to_sklearn()[1]
    assert type(step) is type(pipeline[1])


@pytest.mark.filterwarnings("ignore:FastICA did not converge")
@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=PROJECTIONS)
def test_projections(projection):
    pipeline = make_pipeline(StandardScaler(), projection, LogisticRegression(max_iter=1000)).fit(X, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(X, KIND)
    found = file_of(model).run(None, {"X": X})[1]
    np.testing.assert_allclose(found, pipeline.predict_proba(X), atol=1e-5)


BEYOND = X * np.float32(1.7)  # a third of its values lie outside the knots
SPLINES = {
    "of degree 3": {},
    "of degree 1": {"degree": 1, "knots": "quantile"},
    "of degree 5, without the last": {"degree": 5, "n_knots": 9, "include_bias": False},
    "sparse": {"sparse_output": True},
    **{kind: {"extrapolation": kind} for kind in ("linear", "continue", "periodic")},
}


@pytest.mark.parametrize("options", SPLINES.values(), ids=SPLINES)
def test_splines(options):
    pipeline = make_pipeline(SplineTransformer(**options), Ridge()).fit(X, X[:, 0])
    model = OrtGradientRegressor(pipeline, max_iter=1, learning_rate=1e-12).fit(X, X[:, 0])
    found, expected = file_of(model).run(None, {"X": BEYOND})[0].ravel(), pipeline.predict(BEYOND)
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.ptp(expected))


@pytest.mark.skipif("handle_missing" not in SplineTransformer().get_params(), reason="since scikit-learn 1.8")
def test_splines_of_missing_values():
    rows = np.where(RNG.rand(*X.shape) < 0.1, np.nan, X)
    pipeline = make_pipeline(SplineTransformer(handle_missing="zeros"), Ridge()).fit(rows, X[:, 0])
    model = OrtGradientRegressor(pipeline, max_iter=1, learning_rate=1e-12).fit(rows, X[:, 0])
    found = file_of(model).run(None, {"X": rows.astype(np.float32)})[0].ravel()
    np.testing.assert_allclose(found, pipeline.predict(rows), atol=1e-5)


FRONTS = {
    "jumps at its knots": SplineTransformer(degree=0),
    "refuses values": SplineTransformer(extrapolation="error"),
    "one column for each leaf": RandomTreesEmbedding(5, max_depth=2, sparse_output=False, random_state=0),
}


@pytest.mark.parametrize("words", FRONTS)
def test_transformers_that_stay_in_front(words):
    pipeline = make_pipeline(FRONTS[words], Ridge()).fit(X, X[:, 0])
    model = OrtGradientRegressor(pipeline, max_iter=1, learning_rate=1e-12).fit(X, X[:, 0])
    assert list(model.onnx_status_.values()) == ["scikit-learn", "ONNX"]
    np.testing.assert_allclose(model.predict(X), pipeline.predict(X), atol=1e-5)
    with pytest.raises(ExportError, match=words):
        model.get_trained_onnx()


def test_splines_of_which_rounding_leaves_nothing():
    """Of two values on the first and the last knot, one spline is zero, and 1e-25 where float32 rounds a knot."""
    rows, y = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(SplineTransformer(), Ridge()).fit(rows, y)
    exact, rounded = (pipeline[0].transform(x).any(axis=0) for x in (rows, rows.astype(np.float32)))
    assert rounded.sum() > exact.sum()
    model = OrtGradientRegressor(pipeline, max_iter=1, learning_rate=1e-12).fit(rows, y)
    assert set(model.onnx_status_.values()) == {"ONNX"}


def test_kernels_of_integer_rows():
    rows = RNG.randint(-3, 4, (N, 6))
    pipeline = make_pipeline(Nystroem(n_components=12, random_state=0), LogisticRegression()).fit(rows, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(rows, KIND)
    found = file_of(model).run(None, {"X": rows.astype(np.float32)})[1]
    np.testing.assert_allclose(found, pipeline.predict_proba(rows), atol=1e-5)


def test_kernels_of_sparse_rows_stay_sparse():
    rows = scipy.sparse.csr_matrix(np.maximum(X, 0))
    pipeline = make_pipeline(Nystroem(n_components=12, random_state=0), LogisticRegression()).fit(rows, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(rows, KIND)
    assert model.onnx_status_ == {"nystroem": "scikit-learn", "logisticregression": "ONNX"}
    np.testing.assert_allclose(model.predict_proba(rows), pipeline.predict_proba(rows), atol=1e-6)


def test_columns_that_are_pooled_by_another_function():
    pipeline = make_pipeline(FeatureAgglomeration(2, pooling_func=np.median), LogisticRegression()).fit(X, KIND)
    model = OrtGradientClassifier(pipeline, max_iter=1, learning_rate=1e-12).fit(X, KIND)
    assert model.onnx_status_["featureagglomeration"] == "scikit-learn"
    np.testing.assert_allclose(model.predict_proba(X), pipeline.predict_proba(X), atol=1e-6)


def test_a_discriminant_analysis_that_predicts_is_trained():
    model = OrtGradientClassifier(make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()), max_iter=3).fit(
        X, KIND
    )
    assert "lineardiscriminantanalysis.coef" in model.weights_
