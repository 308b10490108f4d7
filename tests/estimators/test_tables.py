"""Pipelines as people write them, on tables as they come: numbers, texts, categories, dates, missing values."""

import pickle

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import FeatureAgglomeration, KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_linnerud, load_wine
from sklearn.decomposition import NMF, PCA, FastICA, KernelPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest, VarianceThreshold, f_classif
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, SVR, LinearSVC

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ConversionError, DataError, ExportError, ModelError

OLD = sklearn.__version__.startswith(("1.6", "1.7"))

# ------------------------------------------------------------------- tables

DIABETES = load_diabetes(as_frame=True, return_X_y=True)
WINE = load_wine(as_frame=True, return_X_y=True)
CANCER = load_breast_cancer(as_frame=True, return_X_y=True)
IRIS = load_iris(as_frame=True, return_X_y=True)
LINNERUD = load_linnerud(as_frame=True, return_X_y=True)
DIGITS = tuple(part[:300] for part in load_digits(as_frame=True, return_X_y=True))
DIABETES_ARRAY, CANCER_ARRAY = load_diabetes(return_X_y=True), load_breast_cancer(return_X_y=True)
_N = 200
_RNG = np.random.default_rng(0)


def _with_gaps(values, share=0.1):
    """Return values of which a share is missing."""
    return [None if gap else value for value, gap in zip(values, _RNG.random(len(values)) < share, strict=True)]


PEOPLE = pd.DataFrame(
    {
        "age": _with_gaps(_RNG.integers(18, 80, _N).astype(float)),
        "income": _RNG.lognormal(10, 1, _N).round(2),
        "city": _with_gaps(_RNG.choice(["Paris", "Rome", "Oslo"], _N)),
        "education": pd.Categorical(_RNG.choice(["school", "college", "PhD"], _N), ["school", "college", "PhD"]),
        "children": pd.array(_with_gaps(_RNG.integers(0, 4, _N).tolist()), dtype="Int64"),
        "married": _RNG.random(_N) < 0.5,
        "owner": pd.array(_with_gaps((_RNG.random(_N) < 0.5).tolist()), dtype="boolean"),
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(_RNG.integers(0, 1000, _N), "D"),
        "note": _RNG.choice(["likes cats", "likes dogs and cats", "no pets", "has a dog"], _N),
        "zip": pd.Series(_RNG.choice(["01234", "99999", "55555"], _N), dtype="string"),
        "visits": _RNG.integers(0, 100, _N).astype(np.int32),
    }
)
SPENT = (
    PEOPLE["income"] / 1000
    + 20 * PEOPLE["married"]
    + PEOPLE["note"].str.len()
    + 10 * (PEOPLE["city"] == "Rome")
    + _RNG.normal(0, 5, _N)
).to_numpy()
BOUGHT = np.where(np.median(SPENT) < SPENT, "yes", "no")
SEGMENT = np.digitize(SPENT, np.quantile(SPENT, [0.33, 0.66]))
COUNTS = _RNG.poisson(np.clip(SPENT / 20, 0.1, 20)).astype(float)
NUMBERS, CATEGORIES = ["age", "income", "children"], ["city", "education"]
POLARS = pl.DataFrame(
    {
        "age": PEOPLE["income"].to_numpy() / 1e4,
        "visits": PEOPLE["visits"].to_numpy(),
        "city": PEOPLE["city"].fillna("none").to_list(),
        "note": PEOPLE["note"].to_list(),
    }
)
TEXTS = PEOPLE["note"].tolist()
DICTS = [
    {"city": c if isinstance(c, str) else "none", "visits": int(v)}
    for c, v in zip(PEOPLE["city"], PEOPLE["visits"], strict=True)
]
TOKENS = [text.split() for text in TEXTS]
SPARSE = scipy.sparse.random(_N, 50, 0.1, random_state=0, format="csr")
GAPS = np.where(_RNG.random(DIABETES_ARRAY[0].shape) < 0.1, np.nan, DIABETES_ARRAY[0])
OBJECTS = PEOPLE[["city", "note", "visits"]].fillna("none").to_numpy(dtype=object)


class Days(TransformerMixin, BaseEstimator):
    """A transformer of a user's own: dates become days since the first."""

    def fit(self, X, y=None):
        self.first_, self.n_features_in_ = X.min(), X.shape[1]
        return self

    def transform(self, X):
        return np.column_stack([(X[c] - self.first_[c]).dt.days for c in X.columns])


class Steep(Ridge):
    """A subclass that fits otherwise, and predicts as its parent."""

    def fit(self, X, y):
        return super().fit(X, 2 * y)


class Renamed(StandardScaler):
    """A subclass that changes nothing."""


class Floored(Ridge):
    """A subclass that predicts otherwise, on other rows."""

    def predict(self, X):
        return np.maximum(super().predict(X), -1e9)


class Limited(Ridge):
    """The same, by a method that `predict` calls."""

    def _decision_function(self, X):
        return np.minimum(super()._decision_function(X), 1e9)


def month(X):
    return np.column_stack([X["joined"].dt.month, X["joined"].dt.day])


def as_float(X):
    return X.astype(float)


def lower(X):
    return [text.lower() for text in X]


def ratios(X):
    return X.assign(ratio=X["age"] / X["visits"].clip(lower=1))[["age", "visits", "ratio"]]


def mixed(last, sparse=True):
    """Return the pipeline of scikit-learn's own example of columns of mixed types."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return Pipeline(
        [
            (
                "columns",
                ColumnTransformer(
                    [
                        ("num", numbers, NUMBERS),
                        ("cat", OneHotEncoder(handle_unknown="ignore", sparse_output=sparse), CATEGORIES),
                    ]
                ),
            ),
            ("model", last),
        ]
    )


LOGISTIC = LogisticRegression(max_iter=1000)

#: Pipelines with their rows and targets.
TABLES = {
    # numbers
    "scaled": (make_pipeline(StandardScaler(), Ridge()), *DIABETES),
    "robust, lasso": (make_pipeline(RobustScaler(), Lasso(0.1)), *DIABETES),
    "polynomials": (make_pipeline(PolynomialFeatures(2), StandardScaler(), ElasticNet(0.1)), *DIABETES),
    "PCA": (make_pipeline(StandardScaler(), PCA(5), LOGISTIC), *WINE),
    "best columns": (make_pipeline(SelectKBest(f_classif, k=5), StandardScaler(), LOGISTIC), *CANCER),
    "from a model": (
        make_pipeline(StandardScaler(), SelectFromModel(LinearSVC()), SVC()),
        *CANCER,
    ),
    "bins": (make_pipeline(KBinsDiscretizer(4, strategy="quantile"), LOGISTIC), *IRIS),
    "quantiles": (make_pipeline(QuantileTransformer(n_quantiles=50), LinearRegression()), *DIABETES),
    "power, network": (
        make_pipeline(PowerTransformer(), MLPRegressor(hidden_layer_sizes=(8,), max_iter=50, random_state=0)),
        *DIABETES,
    ),
    "log of columns": (
        make_pipeline(
            make_column_transformer((FunctionTransformer(np.log1p), ["flavanoids", "hue"]), remainder="passthrough"),
            StandardScaler(),
            LOGISTIC,
        ),
        *WINE,
    ),
    "splines": (make_pipeline(SplineTransformer(), Ridge()), *DIABETES),
    "Nystroem": (
        make_pipeline(
            StandardScaler(), Nystroem(n_components=20, random_state=0), SGDClassifier(loss="log_loss", random_state=0)
        ),
        *CANCER,
    ),
    "random features": (make_pipeline(MinMaxScaler(), RBFSampler(random_state=0), Ridge()), *DIABETES),
    "kernel PCA": (make_pipeline(StandardScaler(), KernelPCA(5, kernel="rbf"), LOGISTIC), *WINE),
    "ICA": (make_pipeline(FastICA(4, random_state=0), GaussianNB()), *WINE),
    "NMF": (make_pipeline(MinMaxScaler(clip=True), NMF(5, max_iter=2000, random_state=0), LOGISTIC), *WINE),
    "LDA": (make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()), *WINE),
    "columns in groups": (make_pipeline(FeatureAgglomeration(8), Normalizer(), LOGISTIC), *CANCER),
    "distances": (make_pipeline(KMeans(6, n_init=1, random_state=0), Ridge()), *DIABETES),
    "leaves of trees": (make_pipeline(RandomTreesEmbedding(5, random_state=0), LOGISTIC), *WINE),
    "binary pixels": (make_pipeline(Binarizer(threshold=7), LOGISTIC), *DIGITS),
    "pixels": (
        make_pipeline(VarianceThreshold(), MinMaxScaler(), MLPClassifier((16,), max_iter=30, random_state=0)),
        *DIGITS,
    ),
    "pixels, forest": (make_pipeline(MaxAbsScaler(), RandomForestClassifier(10, max_depth=6, random_state=0)), *DIGITS),
    "histogram": (make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5)), *CANCER),
    "boosting": (make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=5, random_state=0)), *WINE),
    "union": (make_pipeline(StandardScaler(), make_union(PCA(3), SelectKBest(k=3)), LOGISTIC), *WINE),
    "exercises": (make_pipeline(StandardScaler(), MultiOutputRegressor(Ridge())), *LINNERUD),
    "several targets": (make_pipeline(StandardScaler(), LinearRegression()), *LINNERUD),
    "a scaled target": (
        TransformedTargetRegressor(make_pipeline(StandardScaler(), SVR()), transformer=StandardScaler()),
        *DIABETES,
    ),
    "float64 array, trees": (
        make_pipeline(RobustScaler(), ExtraTreesRegressor(10, max_depth=5, random_state=0)),
        *DIABETES_ARRAY,
    ),
    # missing values
    "imputed": (make_pipeline(SimpleImputer(), StandardScaler(), Ridge()), GAPS, DIABETES[1]),
    "imputed, with indicators": (
        make_pipeline(SimpleImputer(add_indicator=True), HuberRegressor(max_iter=500)),
        GAPS,
        DIABETES[1],
    ),
    "neighbours": (make_pipeline(KNNImputer(n_neighbors=3), BayesianRidge()), GAPS, DIABETES[1]),
    "iterative": (make_pipeline(IterativeImputer(max_iter=3, tol=1, random_state=0), Ridge()), GAPS, DIABETES[1]),
    "indicators beside": (
        make_pipeline(FeatureUnion([("values", SimpleImputer()), ("gaps", MissingIndicator(features="all"))]), Ridge()),
        GAPS,
        DIABETES[1],
    ),
    "histogram of gaps": (HistGradientBoostingRegressor(max_iter=10), GAPS, DIABETES[1]),
    # mixed columns
    "mixed": (mixed(LogisticRegression()), PEOPLE, BOUGHT),
    "mixed, dense": (mixed(Ridge(), sparse=False), PEOPLE, SPENT),
    "mixed, forest": (mixed(RandomForestRegressor(10, max_depth=5, random_state=0), sparse=False), PEOPLE, SPENT),
    "mixed, network": (mixed(MLPClassifier((8,), max_iter=20, random_state=0)), PEOPLE, SEGMENT),
    "categories, most frequent": (
        make_pipeline(
            make_column_transformer(
                (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), CATEGORIES)
            ),
            LOGISTIC,
        ),
        PEOPLE,
        BOUGHT,
    ),
    "by type": (
        make_pipeline(
            make_column_transformer(
                (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include=np.number)),
                (
                    OneHotEncoder(handle_unknown="ignore"),
                    make_column_selector(dtype_exclude=np.number),
                ),
            ),
            Ridge(),
        ),
        PEOPLE.drop(columns=["joined", "owner", "zip", "note"]),
        SPENT,
    ),
    "ordered categories": (
        make_pipeline(
            make_column_transformer(
                (OrdinalEncoder(categories=[["school", "college", "PhD"]]), ["education"]),
                (
                    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
                    ["city"],
                ),
                remainder="drop",
            ),
            RandomForestClassifier(10, max_depth=4, random_state=0),
        ),
        PEOPLE,
        BOUGHT,
    ),
    "target encoded": (
        make_pipeline(
            make_column_transformer((TargetEncoder(random_state=0), ["city", "zip"]), ("passthrough", ["visits"])),
            Ridge(),
        ),
        PEOPLE,
        SPENT,
    ),
    "rare categories": (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"), ["city", "note"])
            ),
            LinearRegression(),
        ),
        PEOPLE,
        SPENT,
    ),
    "dates": (
        make_pipeline(
            make_column_transformer((Days(), ["joined"]), ("passthrough", ["visits"])), StandardScaler(), Ridge()
        ),
        PEOPLE,
        SPENT,
    ),
    "months": (
        make_pipeline(
            make_column_transformer((FunctionTransformer(month), ["joined"]), (OneHotEncoder(), ["married"])), Ridge()
        ),
        PEOPLE,
        SPENT,
    ),
    "booleans": (
        make_pipeline(
            make_column_transformer(
                (FunctionTransformer(as_float), ["married"]), (SimpleImputer(strategy="most_frequent"), ["visits"])
            ),
            Ridge(),
        ),
        PEOPLE,
        SPENT,
    ),
    "counts": (mixed(PoissonRegressor()), PEOPLE, COUNTS),
    "search inside": (GridSearchCV(mixed(Ridge()), {"model__alpha": [0.1, 1]}, cv=2), PEOPLE, SPENT),
    "pandas out": (
        make_pipeline(
            ColumnTransformer([("num", SimpleImputer(), NUMBERS)]).set_output(transform="pandas"),
            StandardScaler(),
            Ridge(),
        ),
        PEOPLE,
        SPENT,
    ),
    "own features": (
        make_pipeline(FunctionTransformer(ratios), SimpleImputer(), StandardScaler(), Ridge()),
        PEOPLE,
        SPENT,
    ),
    "histogram of categories": (
        make_pipeline(
            make_column_transformer(
                (OrdinalEncoder(), ["education", "note"]), remainder="passthrough", verbose_feature_names_out=False
            ),
            HistGradientBoostingRegressor(categorical_features=[0, 1], max_iter=10),
        ),
        PEOPLE[["education", "note", "visits", "income"]],
        SPENT,
    ),
    "histogram from types": (
        HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=10),
        PEOPLE[["education", "visits", "income", "age"]],
        SPENT,
    ),
    "nullable columns": (
        make_pipeline(SimpleImputer(strategy="most_frequent"), StandardScaler(), Ridge()),
        PEOPLE[["children", "visits"]],
        SPENT,
    ),
    # texts
    "tf-idf": (make_pipeline(TfidfVectorizer(), LogisticRegression()), TEXTS, BOUGHT),
    "tf-idf of a column": (
        make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), MultinomialNB()),
        PEOPLE["note"],
        SEGMENT,
    ),
    "hashed": (
        make_pipeline(
            FunctionTransformer(lower),
            HashingVectorizer(n_features=64),
            SGDClassifier(loss="modified_huber", random_state=0),
        ),
        TEXTS,
        BOUGHT,
    ),
    "topics": (
        make_pipeline(
            CountVectorizer(), TfidfTransformer(), TruncatedSVD(3, random_state=0), SGDRegressor(random_state=0)
        ),
        TEXTS,
        SPENT,
    ),
    "characters, network": (
        make_pipeline(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)), MLPClassifier((8,), max_iter=20, random_state=0)
        ),
        TEXTS,
        BOUGHT,
    ),
    "texts, one against the rest": (
        OneVsRestClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression())),
        TEXTS,
        SEGMENT,
    ),
    "texts, calibrated": (make_pipeline(TfidfVectorizer(), CalibratedClassifierCV(LinearSVC(), cv=2)), TEXTS, BOUGHT),
    "texts and columns": (
        make_pipeline(
            make_column_transformer(
                (TfidfVectorizer(), "note"), (OneHotEncoder(), ["city"]), (StandardScaler(), ["income"])
            ),
            Ridge(),
        ),
        PEOPLE,
        SPENT,
    ),
    "dictionaries": (make_pipeline(DictVectorizer(), MaxAbsScaler(), LogisticRegression()), DICTS, BOUGHT),
    "array of dictionaries": (make_pipeline(DictVectorizer(), LogisticRegression()), np.array(DICTS), BOUGHT),
    "tokens": (make_pipeline(FeatureHasher(32, input_type="string"), LogisticRegression()), TOKENS, BOUGHT),
    # other containers
    "polars": (
        make_pipeline(
            make_column_transformer((StandardScaler(), ["age", "visits"]), (OneHotEncoder(), ["city"])), Ridge()
        ),
        POLARS,
        SPENT,
    ),
    "polars, gaps in texts": (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(handle_unknown="ignore"), ["city"]), (SimpleImputer(), ["visits"]), remainder="drop"
            ),
            LogisticRegression(),
        ),
        pl.DataFrame({"city": _with_gaps(POLARS["city"].to_list()), "visits": _with_gaps(POLARS["visits"].to_list())}),
        BOUGHT,
    ),
    "polars, texts": (
        make_pipeline(make_column_transformer((TfidfVectorizer(), "note"), remainder="drop"), LogisticRegression()),
        POLARS,
        BOUGHT,
    ),
    "sparse": (make_pipeline(TfidfTransformer(), LogisticRegression()), SPARSE, BOUGHT),
    "sparse, SVD": (make_pipeline(TruncatedSVD(8, random_state=0), StandardScaler(), Ridge()), SPARSE, SPENT),
    "sparse frame": (make_pipeline(MaxAbsScaler(), Ridge()), pd.DataFrame.sparse.from_spmatrix(SPARSE), SPENT),
    "own subclasses": (make_pipeline(Renamed(), Steep()), *DIABETES),
    "RFE at the end": (make_pipeline(StandardScaler(), RFE(Ridge(), n_features_to_select=4)), *DIABETES),
    "RFE alone": (RFE(Ridge(), n_features_to_select=4), *DIABETES),
    "RFE at the end, of classes": (RFE(LOGISTIC, n_features_to_select=2), *IRIS),
    "RFE at the end, searched": (GridSearchCV(RFE(LOGISTIC), {"n_features_to_select": [2, 3]}, cv=2), *IRIS),
    "passed through, then imputed": (
        Pipeline([("nothing", "passthrough"), ("imputer", SimpleImputer()), ("ridge", Ridge())]),
        GAPS,
        DIABETES[1],
    ),
    "names of columns": (
        make_pipeline(
            make_column_transformer((OneHotEncoder(), ["a city", "a_city"]), (StandardScaler(), ["in/come: (EUR)"])),
            Ridge(),
        ),
        PEOPLE.assign(a_city=PEOPLE["note"], city=PEOPLE["zip"].astype(object))[["a_city", "city", "income"]].rename(
            columns={"city": "a city", "income": "in/come: (EUR)"}
        ),
        SPENT,
    ),
    "names of results": (
        make_pipeline(
            make_column_transformer((OneHotEncoder(), ["label"]), (StandardScaler(), ["probabilities"])),
            LogisticRegression(),
        ),
        PEOPLE[["city", "income"]].set_axis(["label", "probabilities"], axis=1),
        BOUGHT,
    ),
    "objects": (
        make_pipeline(
            ColumnTransformer([("c", OneHotEncoder(), [0, 1]), ("v", StandardScaler(), [2])]), LogisticRegression()
        ),
        OBJECTS,
        BOUGHT,
    ),
    "lists": (make_pipeline(StandardScaler(), LOGISTIC), IRIS[0].to_numpy().tolist(), IRIS[1].tolist()),
    "integers": (make_pipeline(SimpleImputer(), MinMaxScaler(), Ridge()), PEOPLE[["visits"]].to_numpy(), SPENT),
    # around pipelines
    "stack": (
        StackingRegressor(
            [("a", mixed(Ridge())), ("b", mixed(HistGradientBoostingRegressor(max_iter=5), sparse=False))], cv=2
        ),
        PEOPLE,
        SPENT,
    ),
    "vote": (
        VotingClassifier(
            [
                ("words", make_pipeline(TfidfVectorizer(), LogisticRegression())),
                ("letters", make_pipeline(CountVectorizer(analyzer="char"), MultinomialNB())),
            ],
            voting="soft",
        ),
        TEXTS,
        BOUGHT,
    ),
    "bags": (
        make_pipeline(StandardScaler(), BaggingClassifier(LogisticRegression(), 3, random_state=0)),
        *CANCER_ARRAY,
    ),
}


# -------------------------------------------------------------------- trials


def answer(model, rows, like):
    """Return the scores that the estimator `like` has, else predictions."""
    name = next(n for n in ("predict_proba", "decision_function", "predict") if hasattr(like, n))
    return getattr(model, name)(rows)


def ours(model, **settings):
    kind = OrtGradientClassifier if is_classifier(model) else OrtGradientRegressor
    return kind(model, random_state=0, **settings)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def loaded(path):
    """Return the estimator in a file, written by this test: its types are trusted where skops asks."""
    try:
        return load(path)
    except ModelError as e:
        names = str(e).partition("trusted=[")[2].partition("]")[0]
        return load(path, trusted=[name.strip("' ") for name in names.split(",")])


@pytest.mark.filterwarnings("ignore:.* has no effect on the training:UserWarning")
@pytest.mark.filterwarnings("ignore:[A-Za-z]+ minimizes the loss:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.skipif(OLD, reason="scikit-learn takes no columns of polars by name")])
        if name.startswith("polars")
        else name
        for name in TABLES
    ],
)
@pytest.mark.filterwarnings("ignore:A TargetEncoder inside was fitted on these rows")  # as it was
def test_a_pipeline_on_a_table(name, tmp_path):
    model, rows, y = TABLES[name]
    fitted = clone(model).fit(rows, y)
    start = ours(fitted, max_iter=0).fit(rows, y)
    assert_close(answer(start, rows, fitted), answer(fitted, rows, fitted))
    loss = {} if is_classifier(model) else {"loss": "absolute_error"}
    trained = ours(fitted, max_iter=4, solver="lbfgs", **loss).fit(rows, y)
    before = ours(fitted, max_iter=0, **loss).fit(rows, y)
    assert trained.losses(rows, y).mean() < before.losses(rows, y).mean()
    found = answer(trained, rows, fitted)
    assert_close(answer(trained.to_sklearn(), rows, fitted), found)
    np.testing.assert_array_equal(answer(pickle.loads(pickle.dumps(trained)), rows, fitted), found)
    if name == "dates":  # skops writes no Timestamp
        with pytest.raises(ExportError, match="skops cannot save the step 'columntransformer'.*Pickle the estimator"):
            save(trained, tmp_path / "trained")
    else:
        save(trained, tmp_path / "trained")
        assert_close(answer(loaded(tmp_path / "trained"), rows, fitted), found)
    assert np.isfinite(cross_val_score(ours(model, max_iter=1), rows, y, cv=2, error_score="raise")).all()


@pytest.mark.parametrize(
    "name",
    [
        "own subclasses",
        "RFE at the end",
        "RFE alone",
        "RFE at the end, of classes",
        "RFE at the end, searched",
        "passed through, then imputed",
        "names of columns",
        "names of results",
    ],
)
def test_onnx_computes_all_of_it(name):
    model, rows, y = TABLES[name]
    trained = ours(clone(model).fit(rows, y), max_iter=2).fit(rows, y)
    assert set(trained.onnx_status_.values()) == {"ONNX"}
    session = onnxruntime.InferenceSession(trained.get_trained_onnx().SerializeToString())
    if not name.startswith("names of"):
        feeds = {"X": np.asarray(rows, np.float32)}
    else:
        kinds = {"tensor(string)": object, "tensor(float)": np.float32}
        feeds = {i.name: rows[i.name].to_numpy(kinds[i.type])[:, None] for i in session.get_inputs()}
        assert list(feeds) == list(rows.columns)
    found = answer(trained, rows, model)
    assert_close(session.run(None, feeds)[-1].reshape(found.shape), found)


@pytest.mark.parametrize("kind", [Floored, Limited])
def test_a_subclass_that_predicts_otherwise_is_not_its_parent(kind):
    """On no row of the fit does it differ, so that none could show it."""
    fitted = kind().fit(*DIABETES)
    with pytest.raises(
        ConversionError, match=rf"no converter for {kind.__name__}. Register one with onnxtrain.converter"
    ):
        ours(fitted).fit(*DIABETES)


@pytest.mark.parametrize("value", [None, 1.5, "many"])
def test_a_column_that_is_dropped_may_hold_anything(value):
    """In ONNX it is an input of integers, which no node reads."""
    rows = PEOPLE[["income", "city", "visits"]].fillna("none")
    model = make_column_transformer((StandardScaler(), ["income"]), (OneHotEncoder(), ["city"]))
    fitted = make_pipeline(model, Ridge()).fit(rows, SPENT)
    start = ours(fitted, max_iter=0).fit(rows, SPENT)
    assert set(start.onnx_status_.values()) == {"ONNX"}
    others = rows.assign(visits=value)
    assert_close(start.predict(others), fitted.predict(others))


@pytest.mark.parametrize("dropped", ["visits", "note"])
def test_a_column_that_is_dropped_may_be_missing(dropped):
    """scikit-learn does not ask for it; in ONNX it is an input of integers or strings, which no node reads."""
    rows = PEOPLE[["income", "city", "visits"]].fillna("none").assign(note="text")
    model = make_column_transformer((StandardScaler(), ["income"]), (OneHotEncoder(), ["city"]))
    fitted = make_pipeline(model, Ridge()).fit(rows, SPENT)
    start = ours(fitted, max_iter=0).fit(rows, SPENT)
    assert set(start.onnx_status_.values()) == {"ONNX"}
    assert_close(start.predict(rows.drop(columns=dropped)), fitted.predict(rows))


def test_a_column_that_scikit_learn_s_front_drops_may_be_missing():
    rows = PEOPLE[["income", "city", "visits"]].fillna("none")
    model = make_column_transformer((FunctionTransformer(np.cbrt), ["income"]), (OneHotEncoder(), ["city"]))
    fitted = make_pipeline(model, Ridge()).fit(rows, SPENT)
    start = ours(fitted, max_iter=0).fit(rows, SPENT)
    assert start.onnx_status_["columntransformer"] == "scikit-learn"
    assert_close(start.predict(rows[["city", "income"]]), fitted.predict(rows))


def counts_gaps(rows):
    return np.asarray(rows.isna().sum(axis=1)).reshape(-1, 1)


def test_a_missing_column_that_counts_is_refused():
    """The step takes rows of any columns, but a missing one is not a column of NaN to it."""
    rows = PEOPLE[["age", "income", "visits"]]
    fitted = make_pipeline(FunctionTransformer(counts_gaps), Ridge()).fit(rows, SPENT)
    start = ours(fitted, max_iter=0).fit(rows, SPENT)
    with pytest.raises(DataError, match="yet now missing"):
        start.predict(rows[["age", "income"]])


def test_all_columns_of_integers_that_hold_other_values_are_named():
    rows = PEOPLE[["income", "city", "visits"]].fillna("none").assign(rooms=3)
    model = make_column_transformer((SimpleImputer(), ["income", "visits", "rooms"]), (OneHotEncoder(), ["city"]))
    start = ours(make_pipeline(model, Ridge()), max_iter=0).fit(rows, SPENT)
    with pytest.raises(DataError, match=r"use X.astype\({'visits': float, 'rooms': float}\) in fit and in predict"):
        start.predict(rows.assign(visits=np.nan, rooms=2.5))
    floats = {"visits": float, "rooms": float}
    start.fit(rows.astype(floats), SPENT)
    others = rows.assign(visits=np.nan, rooms=2.5)
    assert_close(start.predict(others), start.to_sklearn().predict(others))


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_front_that_returns_an_array_of_one_axis(shape):
    first = FunctionTransformer(lambda rows: rows[["income"]].to_numpy().reshape(shape))
    fitted = make_pipeline(first, IsotonicRegression(out_of_bounds="clip")).fit(PEOPLE, SPENT)
    if len(shape) == 1:
        with pytest.raises(
            DataError, match=r"'functiontransformer' returns an array of shape .*array.reshape\(-1, 1\)"
        ):
            ours(fitted).fit(PEOPLE, SPENT)
    else:
        assert_close(ours(fitted, max_iter=0).fit(PEOPLE, SPENT).predict(PEOPLE), fitted.predict(PEOPLE))


def test_a_front_that_returns_a_list():
    fitted = make_pipeline(FunctionTransformer(lambda rows: rows[["income"]].to_numpy().tolist()), Ridge())
    fitted.fit(PEOPLE, SPENT)
    assert_close(ours(fitted, max_iter=0).fit(PEOPLE, SPENT).predict(PEOPLE), fitted.predict(PEOPLE))
