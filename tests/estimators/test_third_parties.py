"""Transformers of category_encoders, feature_engine and skrub in front of a model."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ExportError, ModelError

N = 120
RNG = np.random.default_rng(0)
INCOME = RNG.lognormal(10, 1, N).round(2)
FRAME = pd.DataFrame(
    {
        "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.integers(18, 80, N)),
        "income": INCOME,
        "rooms": RNG.integers(1, 9, N).astype(float),
        "city": RNG.choice(["Paris", "Rome", "Oslo"], N).astype(object),
        "kind": RNG.choice(["a", "b", "c", "d"], N).astype(object),
        "note": [f"likes {animal} {i % 37}" for i, animal in enumerate(RNG.choice(["cats", "dogs"], N))],
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), "D"),
    }
)
SPENT = INCOME / 1000 + 10 * (FRAME["city"] == "Rome").to_numpy() + RNG.normal(0, 5, N)
BOUGHT = (np.median(SPENT) < SPENT).astype(int)
TWO, NUMBERS = ["city", "kind"], ["income", "rooms"]
LOGISTIC = LogisticRegression(max_iter=1000)
TREES = HistGradientBoostingRegressor(max_iter=5)


def encoders():
    return pytest.importorskip("category_encoders", reason="category_encoders is not installed")


def engine(module):
    return pytest.importorskip(f"feature_engine.{module}", reason="feature_engine is not installed")


def skrub():
    return pytest.importorskip("skrub", reason="skrub is not installed")


#: Pipelines, made where their package is there; columns, targets.
PIPELINES = {
    "means of the target": (lambda: make_pipeline(encoders().TargetEncoder(), StandardScaler(), Ridge()), TWO, SPENT),
    "binary codes": (lambda: make_pipeline(encoders().BinaryEncoder(), Ridge()), TWO, SPENT),
    "weights of evidence": (lambda: make_pipeline(encoders().WOEEncoder(), LOGISTIC), TWO, BOUGHT),
    "codes in columns": (
        lambda: make_pipeline(
            make_column_transformer((encoders().OrdinalEncoder(), TWO), (StandardScaler(), NUMBERS)), LOGISTIC
        ),
        [*TWO, *NUMBERS],
        BOUGHT,
    ),
    "medians": (
        lambda: make_pipeline(engine("imputation").MeanMedianImputer(), StandardScaler(), Ridge()),
        ["age", "income"],
        SPENT,
    ),
    "rare labels": (
        lambda: make_pipeline(
            engine("encoding").RareLabelEncoder(tol=0.3, n_categories=2), engine("encoding").OneHotEncoder(), Ridge()
        ),
        [*TWO, "rooms"],
        SPENT,
    ),
    "means, trees": (lambda: make_pipeline(engine("encoding").MeanEncoder(), TREES), [*TWO, "income"], SPENT),
    "parts of dates": (
        lambda: make_pipeline(engine("datetime").DatetimeFeatures(features_to_extract=["month", "year"]), Ridge()),
        ["joined", "income"],
        SPENT,
    ),
    "sums by name, of numbers": (
        lambda: make_pipeline(engine("creation").MathFeatures(NUMBERS, ["sum", "mean"]), StandardScaler(), LOGISTIC),
        NUMBERS,
        BOUGHT,
    ),
    "a table": (
        lambda: make_pipeline(skrub().TableVectorizer(), SimpleImputer(), StandardScaler(), Ridge()),
        list(FRAME),
        SPENT,
    ),
    "a table, trees": (
        lambda: skrub().tabular_pipeline("regressor").set_params(histgradientboostingregressor__max_iter=5),
        list(FRAME),
        SPENT,
    ),
    "hashes of texts": (
        lambda: make_pipeline(
            make_column_transformer((skrub().MinHashEncoder(n_components=5), "note"), ("passthrough", ["income"])),
            StandardScaler(),
            Ridge(),
        ),
        ["note", "income"],
        SPENT,
    ),
}

#: Of category_encoders, which keep an index of pandas.
OF_INDICES = ("means of the target", "binary codes", "weights of evidence", "codes in columns")


@pytest.mark.filterwarnings("ignore")  # those of the packages
@pytest.mark.parametrize("name", PIPELINES)
def test_a_transformer_of_others_in_front(name, tmp_path):
    make, columns, y = PIPELINES[name]
    rows, model = FRAME[columns], make()
    fitted = clone(model).fit(rows, y)
    kind, method, loss = OrtGradientRegressor, "predict", {"loss": "absolute_error"}
    if is_classifier(fitted):
        kind, method, loss = OrtGradientClassifier, "predict_proba", {}
    start = kind(fitted, max_iter=0, **loss).fit(rows, y)
    expected = getattr(fitted, method)(rows)
    np.testing.assert_allclose(getattr(start, method)(rows), expected, atol=1e-5 * np.abs(expected).max())
    assert set(start.onnx_status_.values()) == {"scikit-learn", "ONNX"}
    trained = kind(fitted, max_iter=4, solver="lbfgs", **loss).fit(rows, y)
    assert trained.losses(rows, y).mean() < start.losses(rows, y).mean()
    found = getattr(trained, method)(rows)
    back = getattr(trained.to_sklearn(), method)(rows)
    np.testing.assert_allclose(back, found, atol=1e-5 * np.abs(found).max())
    np.testing.assert_array_equal(getattr(pickle.loads(pickle.dumps(trained)), method)(rows), found)
    assert np.isfinite(cross_val_score(kind(model, max_iter=1), rows, y, cv=2, error_score="raise")).all()
    if name in OF_INDICES:
        with pytest.raises(ExportError, match="skops cannot save the step .* Pickle the estimator instead"):
            save(trained, tmp_path / "trained")
        return
    save(trained, tmp_path / "trained")
    with pytest.raises(ModelError, match="trusted=") as refused:
        load(tmp_path / "trained")
    names = str(refused.value).partition("trusted=[")[2].partition("]")[0].split(",")
    again = load(tmp_path / "trained", trusted=[name.strip("' ") for name in names])
    np.testing.assert_allclose(getattr(again, method)(rows), found, rtol=1e-6)


class Rooms(TransformerMixin, BaseEstimator):
    """A step as people write it: it learns nothing, so its ``fit`` sets no attribute."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.asarray(X)[:, 1:]


@pytest.mark.parametrize("first", [Rooms(), make_union(Rooms(), StandardScaler())], ids=["step", "union"])
def test_a_fitted_pipeline_with_a_step_that_learns_nothing_is_not_fitted_again(first):
    rows = FRAME[NUMBERS].to_numpy()
    fitted = make_pipeline(first, Ridge()).fit(rows[:60], SPENT[:60])
    start = OrtGradientRegressor(fitted, max_iter=0).fit(rows[60:], SPENT[60:])
    np.testing.assert_allclose(start.predict(rows), fitted.predict(rows), rtol=1e-5)
    halfway = Pipeline([("rooms", Rooms()), ("scaler", StandardScaler()), ("ridge", fitted[-1])])
    assert OrtGradientRegressor(halfway, max_iter=0).fit(rows, SPENT).predict(rows).shape == (N,)  # fitted first


class Undersampled(BaseEstimator):
    """A sampler as those of imbalanced-learn: it takes rows away in ``fit``, and does nothing in ``predict``."""

    def fit(self, X, y):
        return self

    def fit_resample(self, X, y):
        return X[::2], y[::2]


class SamplingPipeline(Pipeline):
    """The contract of imbalanced-learn's pipeline, for those who do not have it."""

    def fit(self, X, y):
        for _, step in self.steps[:-1]:
            X, y = step.fit_resample(X, y) if hasattr(step, "fit_resample") else (step.fit(X, y).transform(X), y)
        self.steps[-1][1].fit(X, y)
        return self

    def _transformed(self, X):
        for _, step in self.steps[:-1]:
            X = X if hasattr(step, "fit_resample") else step.transform(X)
        return X

    def predict_proba(self, X):
        return self.steps[-1][1].predict_proba(self._transformed(X))

    def decision_function(self, X):
        return self.steps[-1][1].decision_function(self._transformed(X))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def own_pipeline(*steps):
    return SamplingPipeline([(type(step).__name__.lower(), step) for step in steps])


def their_pipeline(*steps):
    samplers = pytest.importorskip("imblearn", reason="imbalanced-learn is not installed")
    sampler = samplers.under_sampling.RandomUnderSampler(random_state=0)
    return samplers.pipeline.make_pipeline(*(sampler if isinstance(step, Undersampled) else step for step in steps))


class Undersampling(BaggingClassifier):
    """The contract of imbalanced-learn's ensembles: members that sample, in a subclass that only fits otherwise."""

    def _get_estimator(self):
        return own_pipeline(Undersampled(), clone(LOGISTIC))


@pytest.mark.filterwarnings("ignore:[A-Za-z]+ has no effect on the training, in which all rows count alike:UserWarning")
@pytest.mark.parametrize("name", ["BalancedBaggingClassifier", "BalancedRandomForestClassifier", None])
def test_members_of_ensembles_that_sample_the_rows(name):
    kind = Undersampling
    if name:
        kind = getattr(pytest.importorskip("imblearn.ensemble", reason="imbalanced-learn is not installed"), name)
    rows = FRAME[NUMBERS].to_numpy()
    fitted = kind(n_estimators=3, random_state=0).fit(rows, BOUGHT)
    start = OrtGradientClassifier(fitted, max_iter=0).fit(rows, BOUGHT)
    np.testing.assert_allclose(start.predict_proba(rows), fitted.predict_proba(rows), atol=1e-5)
    if name != "BalancedBaggingClassifier":  # its members are trees, whose leaves are pure
        trained = OrtGradientClassifier(fitted, max_iter=4, solver="lbfgs").fit(rows, BOUGHT)
        assert trained.losses(rows, BOUGHT).mean() < start.losses(rows, BOUGHT).mean()
        np.testing.assert_allclose(trained.to_sklearn().predict_proba(rows), trained.predict_proba(rows), atol=1e-5)


class Both(Undersampled):
    """A sampler made of others, as SMOTETomek, of which the rows of each class are few."""

    def __init__(self, inner=None):
        self.inner = inner

    def fit_resample(self, X, y):
        chosen = np.concatenate([np.flatnonzero(y == k)[:10] for k in (0, 1)])
        return X[chosen], y[chosen]


def test_a_sampler_made_of_others_is_warned_of_once_and_explains_wrong_predictions():
    rows, kinds = np.random.default_rng(0).normal(size=(200, 20)), (np.arange(200) % 10 == 0).astype(int)
    fitted = own_pipeline(Both(Undersampled()), LogisticRegression(C=1e5)).fit(rows, kinds)
    assert (fitted.predict(rows) == kinds).mean() < 0.8  # always 0 would be right in 90 %
    with pytest.warns(UserWarning, match="has no effect") as found:
        OrtGradientClassifier(fitted, max_iter=1).fit(rows, kinds)
    assert [str(w.message).partition(",")[0] for w in found] == ["Both has no effect on the training"]
    OrtGradientClassifier(fitted, class_weight="balanced", max_iter=1).fit(rows, kinds)  # as the warning says: none


@pytest.mark.filterwarnings("ignore:[A-Za-z]+ has no effect on the training, in which all rows count alike:UserWarning")
@pytest.mark.parametrize("make", [own_pipeline, their_pipeline])
@pytest.mark.parametrize("first", [StandardScaler(), FunctionTransformer(np.cbrt)], ids=["ONNX", "scikit-learn"])
@pytest.mark.parametrize("sampled", ["first", "last"])
def test_a_sampler_does_nothing_to_the_rows_that_are_predicted(make, first, sampled):
    rows = FRAME[NUMBERS].to_numpy()
    steps = [Undersampled(), first] if sampled == "first" else [first, Undersampled()]
    fitted = make(*clone(steps), clone(LOGISTIC)).fit(rows, BOUGHT)
    start = OrtGradientClassifier(fitted, max_iter=0).fit(rows, BOUGHT)
    np.testing.assert_allclose(start.predict_proba(rows), fitted.predict_proba(rows), atol=1e-5)
    remedy = r"make_pipeline\(\*model\[:-1\], OrtGradientClassifier\(model\[-1\]\)\)"
    with pytest.warns(UserWarning, match=rf"Under[A-Za-z]+ has no effect on the training, .* resample in .*{remedy}"):
        trained = OrtGradientClassifier(fitted, max_iter=4, solver="lbfgs").fit(rows, BOUGHT)
    inner = make(*fitted[:-1], OrtGradientClassifier(fitted[-1], max_iter=4, solver="lbfgs")).fit(rows, BOUGHT)
    assert inner[-1].loss_curve_[-1] < inner[-1].loss_curve_[0]
    assert trained.losses(rows, BOUGHT).mean() < start.losses(rows, BOUGHT).mean()
    back = trained.to_sklearn()
    assert list(back.named_steps) == list(fitted.named_steps)
    np.testing.assert_allclose(back.predict_proba(rows), trained.predict_proba(rows), atol=1e-5)
