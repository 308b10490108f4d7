"""Pipelines whose first steps scikit-learn runs, because ONNX does not run them alike."""

import io
import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.decomposition import PCA, KernelPCA
from sklearn.ensemble import HistGradientBoostingRegressor, VotingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVR

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ConversionError, DataError, ExportError, ModelError, ParameterError
from onnxtrain.estimators import preprocessing
from onnxtrain.estimators.preprocessing import from_bytes, to_bytes

X, Y = load_diabetes(return_X_y=True)
RNG = np.random.default_rng(0)
MISSING = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
FRAME = pd.DataFrame(
    {
        "size": X[:, 2],
        "colour": RNG.choice(["red", "blue", None], len(X)),
        "remark": RNG.choice(["good one", "bad one", "so so"], len(X)),
        "count": pd.array(np.where(RNG.random(len(X)) < 0.1, None, RNG.integers(0, 5, len(X))), dtype="Int64"),
    }
)
COLUMNS = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["size", "count"]),
        ("colours", make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["colour"]),
        ("remarks", TfidfVectorizer(), "remark"),
    ]
)

#: Steps in front that are no graph, or not the same one in float32; their rows.
FRONTS = {
    "a function": (FunctionTransformer(np.cbrt), X),
    "a kernel": (Nystroem(n_components=20, random_state=0), X),
    "random features": (PolynomialCountSketch(random_state=0), X),
    "bins, with rows just below a border": (KBinsDiscretizer(2, strategy="uniform"), np.where(X > 0, 1.0, 0.5 - 1e-12)),
    "quantiles": (QuantileTransformer(n_quantiles=50), X),
    "an iterative imputer": (IterativeImputer(max_iter=30, tol=0.5), MISSING),
    "numbers, categories, texts, missing values": (COLUMNS, FRAME),
}
SETTINGS = {"loss": "absolute_error", "learning_rate": 0.5, "max_iter": 10, "random_state": 0}


@pytest.fixture(params=FRONTS)
def case(request):
    front, rows = FRONTS[request.param]
    if request.param.startswith("bins"):
        rows = np.vstack([np.zeros(X.shape[1]), rows[1:]])  # bins from 0 to 1
    return make_pipeline(clone(front), Ridge()).fit(rows, Y), rows


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted", "unfitted"])
def test_at_rate_0_the_pipeline_is_unchanged(case, fitted):
    model, rows = case
    tuned = OrtGradientRegressor(model if fitted else clone(model), learning_rate=1e-12, max_iter=1).fit(rows, Y)
    expected = model.predict(rows)
    np.testing.assert_allclose(tuned.predict(rows), expected, atol=1e-5 * np.abs(expected).max())
    assert set(tuned.onnx_status_.values()) == {"ONNX", "scikit-learn"}
    assert tuned.onnx_status_["ridge"] == "ONNX"


def test_the_loss_falls_and_the_whole_pipeline_comes_back(case):
    model, rows = case
    tuned = OrtGradientRegressor(model, **SETTINGS).fit(rows, Y)
    assert np.abs(tuned.predict(rows) - Y).mean() < np.abs(model.predict(rows) - Y).mean()
    back = tuned.to_sklearn()
    assert list(back.named_steps) == list(model.named_steps)
    np.testing.assert_allclose(back.predict(rows), tuned.predict(rows), rtol=1e-5)
    assert not np.array_equal(back[-1].coef_, model[-1].coef_)


def test_files_and_pickles_keep_it(case, tmp_path):
    model, rows = case
    tuned = OrtGradientRegressor(model, **SETTINGS).fit(rows, Y)
    expected = tuned.predict(rows)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(tuned)).predict(rows), expected)
    save(tuned, tmp_path / "tuned.onnx")
    again = load(tmp_path / "tuned.onnx")
    np.testing.assert_array_equal(again.predict(rows), expected)
    assert again.onnx_status_.keys() == {*list(model.named_steps)[:-1], "model"}


def test_a_file_with_functions_names_them(tmp_path):
    tuned = OrtGradientRegressor(make_pipeline(FunctionTransformer(twice), Ridge()), max_iter=1).fit(X, Y)
    save(tuned, tmp_path / "tuned.onnx")
    name = f"{__name__}.twice"
    with pytest.raises(ModelError, match=f"contain {name}, which skops does not trust.*trusted="):
        load(tmp_path / "tuned.onnx")
    np.testing.assert_array_equal(load(tmp_path / "tuned.onnx", trusted=[name]).predict(X), tuned.predict(X))


@pytest.mark.parametrize("scaler", [MaxAbsScaler, MinMaxScaler])
def test_columns_of_new_rows_are_clipped(scaler):
    if "clip" not in scaler().get_params():
        pytest.skip(f"{scaler.__name__} of this scikit-learn has no parameter clip")
    model = make_pipeline(scaler(clip=True), Ridge()).fit(X, Y)
    tuned = OrtGradientRegressor(model, learning_rate=1e-12, max_iter=1).fit(X, Y)
    assert tuned.onnx_status_[scaler.__name__.lower()] == "ONNX"
    np.testing.assert_allclose(tuned.predict(3 * X), model.predict(3 * X), atol=1e-5 * np.ptp(Y))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_new_rows_of_another_sign_are_normalized(norm):
    rows = np.abs(X) + 0.1
    model = make_pipeline(Normalizer(norm), Ridge()).fit(rows, Y)
    tuned = OrtGradientRegressor(model, learning_rate=1e-12, max_iter=1).fit(rows, Y)
    assert tuned.onnx_status_["normalizer"] == "ONNX"
    for others in (-rows, X, 0 * rows):
        np.testing.assert_allclose(tuned.predict(others), model.predict(others), atol=1e-5 * np.ptp(Y))


def test_a_row_of_zeros_has_no_angle():
    model = make_pipeline(KernelPCA(2, kernel="cosine"), Ridge()).fit(X, Y)
    tuned = OrtGradientRegressor(model, learning_rate=1e-12, max_iter=1).fit(X, Y)
    assert tuned.onnx_status_["kernelpca"] == "ONNX"
    np.testing.assert_allclose(tuned.predict(0 * X), model.predict(0 * X), atol=1e-5 * np.ptp(Y))


def twice(rows):
    return rows * 2


def columns_of(records):
    return np.column_stack([records["size"], records["age"] ** 2])


def test_records_reach_the_first_step_as_they_are():
    records = np.rec.fromarrays(X[:, :2].T, names="size, age")
    model = make_pipeline(FunctionTransformer(columns_of), Ridge()).fit(records, Y)
    for rows in (records, np.array(records.tolist(), records.dtype.descr)):
        tuned = OrtGradientRegressor(model, learning_rate=1e-12, max_iter=1).fit(rows, Y)
        np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)


def test_compressed_steps_of_a_file_are_not_unpacked():
    steps, compressed = to_bytes(make_pipeline(FunctionTransformer(np.cbrt)).fit(X)), io.BytesIO()
    assert from_bytes(steps).transform(X).shape[0] == len(X)
    with zipfile.ZipFile(io.BytesIO(steps)) as archive, zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in archive.namelist():
            bomb.writestr(name, archive.read(name) + bytes(2**20))
    with pytest.raises(ModelError, match=r"unpack from \d+ to \d+ bytes, but onnxtrain.save compresses nothing"):
        from_bytes(np.frombuffer(compressed.getvalue(), np.uint8))


def test_search_and_cross_validation_see_it_as_any_estimator():
    model = make_pipeline(FunctionTransformer(np.cbrt), Ridge())
    assert cross_val_score(OrtGradientRegressor(model, max_iter=3), X, Y).shape == (5,)
    search = GridSearchCV(
        OrtGradientRegressor(model, max_iter=3), {"l2": [0, 1e-3], "estimator__ridge__alpha": [0.5, 1]}
    )
    assert np.isfinite(search.fit(X, Y).cv_results_["mean_test_score"]).all()


TEXTS, LABELS = ["good day", "bad day", "good", "bad", "fine day", "worse"] * 10, ["+", "-", "+", "-", "+", "-"] * 10


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted", "unfitted"])
def test_texts(fitted):
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    given = clone(model).fit(TEXTS, LABELS) if fitted else model
    tuned = OrtGradientClassifier(given, learning_rate=0.1, max_iter=5, random_state=0).fit(TEXTS, LABELS)
    assert tuned.predict(["a bad day", "fine"]).tolist() == ["-", "+"]
    again = pickle.loads(pickle.dumps(tuned)).partial_fit(TEXTS, LABELS)
    assert again.losses(TEXTS, LABELS).sum() < tuned.losses(TEXTS, LABELS).sum()
    np.testing.assert_allclose(tuned.to_sklearn().predict_proba(TEXTS), tuned.predict_proba(TEXTS), atol=1e-6)


class _Counted(CountVectorizer):
    """Keeps the number of texts of each call."""

    def transform(self, raw_documents):
        self.calls = [*getattr(self, "calls", []), len(raw_documents)]
        return super().transform(raw_documents)


_Counted.__module__ = "sklearn.feature_extraction.text"  # scikit-learn's own steps transform a row by itself


@pytest.mark.parametrize("form", [list, np.array, pd.Series])
@pytest.mark.parametrize("steps, calls", [([], [100, 100, 100, 54]), ([FunctionTransformer(abs)], [354])])
def test_texts_are_predicted_a_few_at_a_time(form, steps, calls, monkeypatch):
    texts = form([("good " * (i % 5 + 1) + "bad") for i in range(354)])
    tuned = OrtGradientRegressor(make_pipeline(_Counted(), *steps, Ridge()), max_iter=1).fit(texts, Y[:354])
    whole = tuned.to_sklearn().predict(texts)
    monkeypatch.setattr(preprocessing, "_TEXTS", 100)
    tuned.front_[0].calls = []
    np.testing.assert_allclose(tuned.predict(texts), whole, rtol=1e-5)
    assert tuned.front_[0].calls == calls


def test_columns_stay_sparse():
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, LABELS)
    tuned = OrtGradientClassifier(model, max_iter=1).fit(TEXTS, LABELS)
    columns = tuned._model.check(tuned, TEXTS)
    assert scipy.sparse.issparse(columns)
    assert columns.dtype == np.float32


def test_validation_rows_and_warm_starts_go_through_the_steps():
    model = make_pipeline(FunctionTransformer(np.cbrt), Ridge()).fit(X, Y)
    tuned = OrtGradientRegressor(model, warm_start=True, **SETTINGS).fit(X[:300], Y[:300], X_val=X[300:], y_val=Y[300:])
    assert len(tuned.validation_loss_curve_) == len(tuned.loss_curve_)
    before = tuned.losses(X[:300], Y[:300]).mean()
    assert tuned.fit(X[:300], Y[:300], X_val=X[300:], y_val=Y[300:]).losses(X[:300], Y[:300]).mean() < before


def test_the_graph_is_that_of_the_last_step():
    model = make_pipeline(FunctionTransformer(np.cbrt), Ridge()).fit(X, Y)
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, Y)
    with pytest.raises(ExportError, match="runs 'functiontransformer'.*part='tail'"):
        tuned.get_trained_onnx()
    with pytest.raises(ParameterError, match="'whole' or 'tail', got 'tial'. Did you mean 'tail'"):
        tuned.get_trained_onnx(part="tial")
    (given,) = tuned.get_trained_onnx(part="tail").graph.input
    assert given.type.tensor_type.shape.dim[1].dim_value == X.shape[1]


def test_a_pipeline_that_onnx_runs_is_one_graph():
    tuned = OrtGradientRegressor(make_pipeline(StandardScaler(), Ridge()), max_iter=1).fit(X, Y)
    assert tuned.onnx_status_ == {"standardscaler": "ONNX", "ridge": "ONNX"}
    tuned.get_trained_onnx()


def test_a_last_step_without_graph_is_an_error_about_it():
    class Constant(Ridge):
        def predict(self, rows):
            return np.ones(rows.shape[0])

    with pytest.raises(ConversionError, match="Constant"):
        OrtGradientRegressor(make_pipeline(FunctionTransformer(np.cbrt), Constant())).fit(X, Y)


def test_integers_with_missing_values_are_left_to_scikit_learn():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    model = make_pipeline(ColumnTransformer([("numbers", numbers, ["size", "count"])]), Ridge())
    full = FRAME[["size"]].assign(count=pd.array(RNG.integers(0, 5, len(X)), dtype="Int64"))
    with_gap = full.copy()
    with_gap.loc[1, "count"] = pd.NA  # a row that is not among those that are compared
    whole = OrtGradientRegressor(model, max_iter=0).fit(full, Y)
    assert set(whole.onnx_status_.values()) == {"ONNX"}
    with pytest.raises(
        DataError,
        match="Missing values in the integer or boolean columns count: .*in fit and in predict.* Or fit on rows some of which",
    ):
        whole.predict(with_gap)
    divided = OrtGradientRegressor(model, max_iter=0).fit(with_gap, Y)
    assert set(divided.onnx_status_.values()) == {"ONNX", "scikit-learn"}
    np.testing.assert_allclose(divided.predict(with_gap), model.fit(with_gap, Y).predict(with_gap), rtol=1e-5)


@pytest.mark.parametrize("form", ["int64", "Int64"])
@pytest.mark.parametrize("value", [np.nan, 2.9])
def test_integers_beside_texts_are_not_cut_off(form, value):
    rows = pd.DataFrame({"rooms": pd.array(RNG.integers(1, 5, 60), dtype=form), "city": ["a", "b"] * 30})
    steps = [("rooms", SimpleImputer(), ["rooms"]), ("city", OneHotEncoder(), ["city"])]
    model = make_pipeline(ColumnTransformer(steps), Ridge())
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y[:60])
    floats = rows.astype({"rooms": float})
    np.testing.assert_array_equal(tuned.predict(floats), tuned.predict(rows))
    changed = floats.assign(rooms=np.where(np.arange(60) == 7, value, floats["rooms"]))
    with pytest.raises(
        DataError, match=rf"'rooms' must contain int64 values, got {value} in row 7.*X\.astype\({{'rooms': float}}\)"
    ):
        tuned.predict(changed)
    tuned.fit(floats, Y[:60])
    np.testing.assert_allclose(tuned.predict(changed), model.fit(floats, Y[:60]).predict(changed), rtol=1e-5)


CODES = 20_000_000 + np.arange(120) % 5  # float32 holds every second of them
ENCODED = make_pipeline(ColumnTransformer([("code", OneHotEncoder(), [0])], remainder="passthrough"), Ridge(1e-3))
SCALED = [("code", OneHotEncoder(handle_unknown="ignore"), [0]), ("size", StandardScaler(), [1])]
BESIDE = RNG.normal(size=120)
ONE_STEP_EACH = make_pipeline(ColumnTransformer(SCALED), Ridge(1e-3))
PLAIN = make_pipeline(OneHotEncoder(), Ridge(1e-3))

#: Pipelines that tell apart integers which are one value in float32, and their rows.
WITH_CODES = {
    "frame": (ENCODED, pd.DataFrame({"code": CODES, "size": BESIDE})),
    "polars": (ONE_STEP_EACH, {"code": CODES, "size": BESIDE}),
    "frame of integers": (ENCODED, pd.DataFrame({"code": CODES, "count": np.arange(120) % 7})),
    "unsigned": (ENCODED, pd.DataFrame({"code": CODES.astype(np.uint32), "count": np.arange(120, dtype=np.uint8)})),
    "scaler beside": (ONE_STEP_EACH, pd.DataFrame({"c": CODES, "s": BESIDE})),
    "one column": (PLAIN, pd.DataFrame({"code": CODES})),
    "array": (PLAIN, CODES.reshape(-1, 1)),
    "array of int32": (PLAIN, CODES.reshape(-1, 1).astype(np.int32)),
    "array of float64": (ENCODED, np.column_stack([CODES, BESIDE])),
    "negative": (PLAIN, -CODES.reshape(-1, 1)),
    "scaled": (make_pipeline(StandardScaler(), Ridge(1e-3)), CODES.reshape(-1, 1)),
}


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted", "unfitted"])
@pytest.mark.parametrize("name", WITH_CODES)
def test_integers_that_float32_does_not_tell_apart_are_left_to_scikit_learn(name, fitted):
    model, rows = WITH_CODES[name]
    if name == "polars":
        rows = pytest.importorskip("polars", reason="polars is not installed").DataFrame(rows)
    y = 10.0 * (CODES - CODES.min())
    expected = clone(model).fit(rows, y)
    with pytest.warns(UserWarning, match=r"scikit-learn runs .* ONNX stores thresholds and categories in") as caught:
        tuned = OrtGradientRegressor(expected if fitted else clone(model), max_iter=0).fit(rows, y)
    assert len(caught) == 1
    assert list(tuned.onnx_status_.values()) == ["scikit-learn", "ONNX"]
    np.testing.assert_allclose(tuned.predict(rows), expected.predict(rows), rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_integers_that_float32_holds_stay_in_one_graph(form):
    rows = form((CODES - 4_000_000).reshape(-1, 1))
    tuned = OrtGradientRegressor(clone(PLAIN), max_iter=0).fit(rows, 10.0 * (CODES - CODES.min()))
    assert set(tuned.onnx_status_.values()) == {"ONNX"}


HALVES = pd.DataFrame(X.astype(np.float16)).add_prefix("x")


@pytest.mark.filterwarnings("ignore:scikit-learn runs")
@pytest.mark.parametrize("rows", [HALVES.to_numpy(), HALVES, HALVES.assign(text="a")], ids=["array", "frame", "text"])
def test_rows_of_float16_are_computed_in_float16(rows):
    columns = list(HALVES if isinstance(rows, pd.DataFrame) else range(10))
    model = make_pipeline(ColumnTransformer([("numbers", StandardScaler(), columns)]), SVR(C=10.0)).fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    assert tuned.onnx_status_["columntransformer"] == "scikit-learn"
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_table", [np.asarray, pd.DataFrame], ids=["array", "frame"])
@pytest.mark.parametrize("function", [np.square, np.negative, np.sqrt, np.reciprocal])
def test_functions_of_integers_are_computed_with_integers(function, as_table):
    rows = as_table(np.random.default_rng(0).integers(1, 250, (100, 3)).astype(np.uint8))  # 16 * 16 is 0 there
    model = make_pipeline(FunctionTransformer(function), Ridge()).fit(rows, np.arange(100.0))
    start = OrtGradientRegressor(model, max_iter=0).fit(rows, np.arange(100.0))
    np.testing.assert_allclose(start.predict(rows), model.predict(rows), rtol=1e-5)
    with pytest.raises(ExportError, match=r"numpy computes integers as integers.* Fit on X\.astype\(float\)"):
        start.get_trained_onnx()
    again = clone(model).fit(np.asarray(rows, float), np.arange(100.0))
    again = OrtGradientRegressor(again, max_iter=0).fit(np.asarray(rows, float), np.arange(100.0))
    assert set(again.onnx_status_.values()) == {"ONNX"}


def test_rows_of_float16_beside_float64_are_computed_in_float64():
    rows = HALVES.assign(far=NEAR[:, 0] + 1000)
    tuned = OrtGradientRegressor(make_pipeline(StandardScaler(), Ridge()), max_iter=0, dtype="float64").fit(rows, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}


def test_thresholds_are_float32_in_a_model_of_float64_too():
    rows = np.linspace(0, 1, 60)[:, None] + [[1e9, 5e9]]
    model = make_pipeline(MinMaxScaler(), KBinsDiscretizer(5, encode="onehot-dense", strategy="uniform"), Ridge()).fit(
        rows, Y[:60]
    )
    with pytest.warns(UserWarning, match="in float32 even with dtype='float64'"):
        tuned = OrtGradientRegressor(model, max_iter=0, dtype="float64").fit(rows, Y[:60])
    with pytest.raises(ExportError, match="in float32 even with dtype='float64'") as refused:
        tuned.get_trained_onnx()
    assert "to include the steps" not in str(refused.value)
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-9)


NEAR = X / X.std(axis=0)
FAR = NEAR + 10_000

#: Pipelines whose first step subtracts an offset that float32 rounds.
CENTRED = {
    "standard": make_pipeline(StandardScaler(), Ridge()),
    "robust, network": make_pipeline(
        RobustScaler(), MLPRegressor(hidden_layer_sizes=(5,), max_iter=30, random_state=0)
    ),
    "components": make_pipeline(PCA(3), Ridge()),
    "columns": make_pipeline(ColumnTransformer([("far", StandardScaler(), [0, 1])]), Ridge()),
    "vote": VotingRegressor([("a", make_pipeline(StandardScaler(), Ridge())), ("b", make_pipeline(PCA(2), Ridge()))]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:scikit-learn runs")
@pytest.mark.parametrize("name", CENTRED)
def test_offsets_are_subtracted_before_the_rows_are_rounded(name):
    model = clone(CENTRED[name]).fit(FAR, Y)
    tuned = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(FAR, Y)
    assert "scikit-learn" in tuned.onnx_status_.values()
    np.testing.assert_allclose(tuned.predict(FAR), model.predict(FAR), rtol=0, atol=1e-6 * Y.max())
    with pytest.raises(ExportError, match="dtype='float64' (to include the steps|holds them)"):
        tuned.get_trained_onnx()
    wide = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30, dtype="float64").fit(FAR, Y)
    assert set(wide.onnx_status_.values()) == {"ONNX"}
    np.testing.assert_allclose(wide.predict(FAR), model.predict(FAR), rtol=1e-9)
    wide.get_trained_onnx()


def test_a_fit_says_once_that_an_offset_costs_the_whole_graph():
    rows = NEAR + np.where(np.arange(NEAR.shape[1]) == 2, 3_000, 0)
    model = make_pipeline(StandardScaler(), Ridge(1e-3)).fit(rows, Y)
    with pytest.warns(
        UserWarning, match=r"runs 'standardscaler', .*part='tail'.*float64' to include the steps"
    ) as caught:
        tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    assert len(caught) == 1
    expected = model.predict(rows)
    np.testing.assert_allclose(tuned.predict(rows), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    with pytest.raises(ExportError, match=r"Set dtype='float64' to include the steps.*X\.astype\(numpy\.float32\)"):
        tuned.get_trained_onnx()
    for remedy in (
        OrtGradientRegressor(model, max_iter=0, dtype="float64").fit(rows, Y),
        OrtGradientRegressor(model, max_iter=0).fit(rows.astype(np.float32), Y),
    ):
        remedy.get_trained_onnx()


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame])
def test_a_fit_says_that_float64_does_not_help_columns_that_float32_makes_steps_of(make):
    rows = RNG.normal(size=(len(Y), 2))
    rows[:, 1] = 1e9 + np.arange(len(Y)) % 50
    rows = make(rows)
    model = make_pipeline(StandardScaler(), Ridge(1e-3)).fit(rows, Y)
    for dtype in ("float32", "float64"):
        with pytest.warns(UserWarning, match=r"runs 'standardscaler', .*part='tail'.*even with dtype='float64'") as w:
            tuned = OrtGradientRegressor(model, max_iter=0, dtype=dtype).fit(rows, Y)
        assert len(w) == 1
        np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-4)
        with pytest.raises(ExportError, match=r"pass X\.astype\(numpy\.float32\): .*, with dtype='float64' if"):
            tuned.get_trained_onnx()
    OrtGradientRegressor(model, max_iter=0, dtype="float64").fit(rows.astype(np.float32), Y).get_trained_onnx()


#: Columns whose rounding leaves five digits of the predictions.
KEPT = {
    "prices": np.column_stack([RNG.normal(450, 0.8, 500), RNG.normal(size=(500, 3))]),
    "years": np.column_stack([RNG.uniform(2010, 2025, 500), RNG.normal(size=(500, 3))]),
    "days": np.column_stack([RNG.uniform(45000, 45365, 500), RNG.normal(size=(500, 3))]),
    "constant": np.column_stack([np.full(500, 1234.1), RNG.normal(size=(500, 3))]),
    "constant tenth": np.column_stack([np.full(500, 0.1), RNG.normal(size=(500, 3))]),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_pipeline_that_keeps_five_digits_stays_one_graph(name):
    rows = KEPT[name]
    y = StandardScaler().fit_transform(rows).sum(axis=1)
    model = make_pipeline(StandardScaler(), Ridge()).fit(rows, y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, y)
    tuned.get_trained_onnx()
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=0, atol=1e-5 * np.abs(y).max())


def test_components_of_many_scales_stay_one_graph():
    rows, labels = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), PCA(), LogisticRegression()).fit(rows, labels)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(rows, labels)
    tuned.get_trained_onnx()
    np.testing.assert_allclose(tuned.predict_proba(rows), model.predict_proba(rows), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:scikit-learn runs")
def test_the_probabilities_of_several_labels_decide_as_well():
    rows = NEAR + np.where(np.arange(NEAR.shape[1]) == 2, 10_000, 0)
    labels = np.column_stack([Y > 100, X[:, 0] > 0]).astype(int)
    model = make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression())).fit(rows, labels)
    tuned = OrtGradientClassifier(model, max_iter=0).fit(rows, labels)
    for found, expected in zip(tuned.predict_proba(rows).T, model.predict_proba(rows), strict=True):
        np.testing.assert_allclose(found, expected[:, 1], rtol=0, atol=1e-5)


def test_digits_that_float32_lacks_are_named_with_the_remedy():
    model = KernelRidge(kernel="rbf", gamma=1e-2, alpha=0.1).fit(NEAR, Y)  # coefficients far larger than y
    with pytest.warns(
        UserWarning, match=r"before the first step, predict differs from the original model by .*Set dtype='float64'"
    ):
        OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30).fit(NEAR, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        wide = OrtGradientRegressor(model, max_iter=1, learning_rate=1e-30, dtype="float64").fit(NEAR, Y)
    np.testing.assert_allclose(wide.predict(NEAR), model.predict(NEAR), rtol=1e-6)


def test_a_loaded_model_fills_in_missing_values(tmp_path):
    model = make_pipeline(SimpleImputer(), Ridge()).fit(MISSING, Y)
    tuned = OrtGradientRegressor(model, max_iter=1).fit(MISSING, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    save(tuned, tmp_path / "tuned")
    np.testing.assert_array_equal(load(tmp_path / "tuned").predict(MISSING), tuned.predict(MISSING))


def lengths(texts):
    return np.array([[len(text)] for text in texts], float)


def test_a_step_that_would_not_be_read_again_is_not_written(tmp_path):
    texts, y = ["one two", "two three", "three", "one"] * 5, np.arange(20.0)
    named = make_pipeline(FunctionTransformer(lengths), Ridge()).fit(texts, y)
    save(OrtGradientRegressor(named, max_iter=1).fit(texts, y), tmp_path / "named")
    for step, remedy in (
        (FunctionTransformer(lambda texts: lengths(texts)), "Define the function with def, in a module"),
        (CountVectorizer(tokenizer=str.split, token_pattern=None), "Pickle the estimator instead"),
    ):
        fitted = make_pipeline(step, Ridge()).fit(texts, y)
        trained = OrtGradientRegressor(fitted, max_iter=1).fit(texts, y)
        with pytest.raises(ExportError, match=f"skops cannot save the step .* {remedy}"):
            save(trained, tmp_path / "unnamed")
        assert not (tmp_path / "unnamed").exists()


class Logarithm(TransformerMixin, BaseEstimator):
    """A user's transformer that learns nothing; scikit-learn takes it as unfitted."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.log1p(np.abs(X))


@pytest.mark.parametrize(
    "steps",
    [[Logarithm()], [StandardScaler(), Logarithm()], [make_union(Logarithm(), StandardScaler())]],
    ids=["alone", "last", "in a union"],
)
def test_a_transformer_without_state_may_be_the_last_in_front(steps, tmp_path):
    model = make_pipeline(*steps, Ridge()).fit(X, Y)
    tuned = OrtGradientRegressor(model, learning_rate=1e-30, max_iter=1).fit(X, Y)
    np.testing.assert_allclose(tuned.predict(X), model.predict(X), rtol=1e-5)
    assert tuned.front_.transform(X).shape[0] == len(X)
    np.testing.assert_allclose(tuned.to_sklearn().predict(X), tuned.predict(X), rtol=1e-5)
    save(tuned, tmp_path / "saved")
    again = load(tmp_path / "saved", trusted=[f"{Logarithm.__module__}.Logarithm"])
    np.testing.assert_array_equal(again.predict(X), tuned.predict(X))


def in_years(rows):
    return rows.select(rows["months"].fill_null(0) / 12, rows["size"])


YEARS = make_pipeline(FunctionTransformer(in_years), HistGradientBoostingRegressor(max_iter=5))


@pytest.mark.parametrize("model", [YEARS, VotingRegressor([("years", YEARS), ("again", YEARS)])], ids=["alone", "vote"])
def test_a_function_of_polars_gets_polars(model):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    months = np.arange(120) % 50
    rows = polars.DataFrame({"months": np.where(months > 40, None, months).tolist(), "size": BESIDE.round(1)})
    expected = clone(model).fit(rows, Y[:120])
    tuned = OrtGradientRegressor(expected, max_iter=0).fit(rows, Y[:120])
    np.testing.assert_allclose(tuned.predict(rows), expected.predict(rows), rtol=1e-5)


def looked_up(rows, known):
    return rows.assign(count=[known[value] for value in rows["count"]])


def test_a_step_may_refuse_values_between_those_of_the_rows():
    rows = pd.DataFrame({"count": np.arange(120) % 4 * 2, "size": BESIDE})
    step = FunctionTransformer(looked_up, kw_args={"known": {0: 5.0, 2: 1.0, 4: 3.0, 6: 2.0}})
    model = make_pipeline(step, HistGradientBoostingRegressor(max_iter=5)).fit(rows, Y[:120])
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y[:120])
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)
