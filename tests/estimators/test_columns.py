"""Columns of a frame in another order than in fit, additional or missing ones: the behaviour of scikit-learn."""

import functools
import warnings

import numpy as np
import onnx.parser
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, StackingRegressor, VotingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError, ExportError

pandas = pytest.importorskip("pandas")

N = 80
RNG = np.random.default_rng(0)
NUMBERS = pandas.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"))
TEXTS = NUMBERS.assign(t=RNG.choice(["x", "y", "z"], N))
Y = 2 * NUMBERS["a"] + NUMBERS["b"] - 3 * NUMBERS["c"]


def chosen(columns=("a", "b"), rest="passthrough", texts=False):
    encode = [("o", OneHotEncoder(sparse_output=False), ["t"])] if texts else []
    return ColumnTransformer([("s", StandardScaler(), list(columns)), *encode], remainder=rest)


def piped(model=None, **columns):
    return make_pipeline(chosen(**columns), model or Ridge())


MODELS = {
    "a matrix": (Ridge(), NUMBERS),
    "a pipeline of matrices": (make_pipeline(StandardScaler(), Ridge()), NUMBERS),
    "columns by name": (piped(), NUMBERS),
    "columns by place": (piped(columns=(0, 1)), NUMBERS),
    "columns of texts": (piped(texts=True), TEXTS),
    "some columns": (piped(rest="drop"), NUMBERS),
    "columns and a matrix": (make_pipeline(make_union(chosen(), PCA(2)), Ridge()), NUMBERS),
    "voting": (VotingRegressor([("a", piped()), ("b", piped(LinearRegression()))]), NUMBERS),
    "stacking": (StackingRegressor([("a", piped())], cv=2), NUMBERS),
    "bagging": (BaggingRegressor(Ridge(), n_estimators=2, random_state=0), NUMBERS),
    "a transformed target": (TransformedTargetRegressor(piped(texts=True)), TEXTS),
    "a search": (GridSearchCV(piped(), {"ridge__alpha": [1.0, 2.0]}, cv=2), NUMBERS),
}
CHANGES = {
    "as they were": lambda X: X,
    "another order": lambda X: X[X.columns[::-1]],
    "more": lambda X: X.assign(more=1.0)[["more", *X.columns]],
    "fewer": lambda X: X.drop(columns="a"),
    "renamed": lambda X: X.rename(columns={"a": "A"}),
}


@functools.cache
def fitted(name):
    estimator, X = MODELS[name]
    estimator.fit(X, Y)
    return estimator, OrtGradientRegressor(estimator, max_iter=0).fit(X, Y), X


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("name", MODELS)
def test_as_scikit_learn_does(name, change):
    estimator, ours, X = fitted(name)
    rows = change(X)
    try:
        expected = estimator.predict(rows)
    except ValueError:
        with pytest.raises(DataError, match="feature names should match"):
            ours.predict(rows)
        with pytest.raises(DataError):  # a fit on such rows would train other columns than the estimator has
            OrtGradientRegressor(estimator, max_iter=0).fit(rows, Y)
    else:
        np.testing.assert_allclose(ours.predict(rows), expected, rtol=1e-4, atol=1e-4)
        assert ours.score(rows, Y) == pytest.approx(estimator.score(X, Y), abs=1e-4)
        again = OrtGradientRegressor(estimator, max_iter=0).fit(rows, Y)
        np.testing.assert_allclose(again.predict(rows), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unknown", ["ignore", "warn", "infrequent_if_exist"])
@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_a_category_that_was_not_in_fit(unknown):
    if unknown not in OneHotEncoder._parameter_constraints["handle_unknown"][0].options:
        pytest.skip("this scikit-learn has no such choice")
    encode = ColumnTransformer([("t", OneHotEncoder(handle_unknown=unknown), ["t"])], remainder="passthrough")
    model = make_pipeline(encode, Ridge()).fit(TEXTS, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(TEXTS, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    rows = TEXTS.assign(t="another")
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unknown", ["ignore", "infrequent_if_exist"])
@pytest.mark.parametrize("min_frequency", [None, 20])
@pytest.mark.parametrize("column, values", [("t", ["z", None, "y"]), ("n", [1, 7, 2]), ("f", [1.5, np.nan, 2.9, -0.5])])
def test_values_that_are_no_frequent_category(column, values, min_frequency, unknown):
    rows = TEXTS.assign(n=np.arange(N) % 7 % 4, f=np.arange(N) % 7 % 4 + 0.0)
    encode = OneHotEncoder(handle_unknown=unknown, min_frequency=min_frequency)
    columns = ColumnTransformer([("c", encode, ["t", "n", "f"])], remainder="passthrough")
    model = make_pipeline(columns, Ridge(0.1)).fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    others = rows.assign(**{column: np.resize(np.array(values, object if column == "t" else None), N)})
    np.testing.assert_allclose(tuned.predict(others), model.predict(others), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_infrequent_categories_in_front_of_a_scaler(sparse):
    rows = TEXTS.assign(n=np.arange(N) % 7 % 4)
    encode = OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist", sparse_output=sparse)
    columns = ColumnTransformer([("c", make_pipeline(encode, StandardScaler(with_mean=False)), ["t", "n"])])
    model = make_pipeline(columns, Ridge()).fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    others = rows.assign(n=9, t="another")
    np.testing.assert_allclose(tuned.predict(others), model.predict(others), rtol=1e-4, atol=1e-4)


def test_a_fraction_is_an_unknown_category():
    rows = TEXTS.assign(f=np.arange(N) % 4 + 0.0)
    columns = ColumnTransformer([("c", OneHotEncoder(), ["t", "f"])], remainder="passthrough")
    tuned = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=0).fit(rows, Y)
    with pytest.raises(DataError, match=r"Found unknown categories \[1\.5\].*handle_unknown='ignore'"):
        tuned.predict(rows.assign(f=1.5))


@pytest.mark.filterwarnings("ignore:C=0.01 of LogisticRegression has no effect on the training:UserWarning")
def test_a_pipeline_on_columns_of_numbers_is_trained_and_comes_back():
    y = np.where(Y > 0, "up", "down")
    model = OrtGradientClassifier(piped(LogisticRegression(C=0.01)), max_iter=30, random_state=0).fit(NUMBERS, y)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.feature_names_in_.tolist() == list("abc")
    back = model.to_sklearn()
    np.testing.assert_allclose(back.predict_proba(NUMBERS), model.predict_proba(NUMBERS), rtol=1e-5)
    model.partial_fit(CHANGES["another order"](NUMBERS), y)
    np.testing.assert_array_equal(model.predict(NUMBERS), model.predict(CHANGES["another order"](NUMBERS)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_on_an_array_forgets_the_names_of_a_frame(dtype):
    model = OrtGradientRegressor(max_iter=1).fit(NUMBERS, Y)
    X = NUMBERS.to_numpy(dtype)[:, :2].copy()
    model.fit(X, Y)
    assert (model.n_features_in_, hasattr(model, "feature_names_in_")) == (2, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
    with pytest.raises(DataError, match="3 features, but OrtGradientRegressor is expecting 2"):
        model.partial_fit(NUMBERS.to_numpy(dtype), Y)


def test_rows_without_names():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = OrtGradientRegressor(piped(columns=(0, 1)), max_iter=0).fit(NUMBERS, Y)
        np.testing.assert_allclose(ours.predict(NUMBERS.to_numpy()), ours.predict(NUMBERS))
        with pytest.raises(DataError, match="X has 2 features, but the model takes 3|expecting 3 features"):
            ours.predict(NUMBERS.to_numpy()[:, :2])
        ours = OrtGradientRegressor(piped(texts=True), max_iter=0).fit(TEXTS, Y)
        with pytest.raises(DataError, match="X must be a DataFrame with the columns a, b, c, t"):
            ours.predict(TEXTS.to_numpy())


BY_NAME = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 1] a, float[N, 1] b) => (float[N, 1] Y) <float[1, 1] U = {1}, float[1, 1] V = {2}> {
        A = MatMul(a, U)
        B = MatMul(b, V)
        Y = Add(A, B)
    }"""
)


def test_an_estimator_takes_no_dictionary():
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(DataError, match="X must be an array or a frame for LinearRegression, got dict"):
        OrtGradientRegressor(LinearRegression().fit(X, X[:, 0])).fit({"X": X}, X[:, 0])


@pytest.mark.parametrize("change", ["another order", "more"])
def test_inputs_of_an_onnx_model_are_found_by_name(change):
    X = NUMBERS[["a", "b"]]
    ours = OrtGradientRegressor(BY_NAME, max_iter=1).fit(X, Y)
    np.testing.assert_array_equal(ours.predict(CHANGES[change](X)), ours.predict(X))
    as_dict = {"b": X["b"].to_numpy(), "a": X["a"].to_numpy()}
    np.testing.assert_array_equal(ours.predict(as_dict), ours.predict(X))


ONE_INPUT = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 3] X) => (float[N, 1] Y) <float[3, 1] W = {1, 2, 3}> { Y = MatMul(X, W) }"""
)
COLUMN = NUMBERS["a"].to_numpy()
#: A model, rows, and the columns that it does not take.
SURPLUS = {
    "a dictionary": (BY_NAME, {"a": COLUMN, "b": COLUMN, "more": COLUMN, "w": COLUMN}, "more, w"),
    "a frame": (BY_NAME, CHANGES["more"](NUMBERS[["a", "b"]]), "more"),
    "one input by its name": (ONE_INPUT, {"X": NUMBERS.to_numpy(), "x": COLUMN}, "x"),
    "a frame for one input": (ONE_INPUT, NUMBERS, ""),
    "no more": (BY_NAME, NUMBERS[["b", "a"]], ""),
}


@pytest.mark.parametrize("model, rows, unknown", SURPLUS.values(), ids=SURPLUS)
def test_columns_that_an_onnx_model_does_not_take(model, rows, unknown):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = OrtGradientRegressor(model, max_iter=2).fit(rows, 2 * COLUMN)
        ours.predict(rows)
        ours.partial_fit(rows, 2 * COLUMN)
    words = [str(w.message) for w in caught if w.category is UserWarning]
    inputs = ", ".join(i.name for i in model.graph.input)
    expected = f"The model ignores the columns {unknown} of X, which are not among its inputs. Its inputs are {inputs}."
    assert words == ([expected] if unknown else [])
    assert all(w.filename == __file__ for w in caught)


def test_a_scalar_among_the_columns():
    words = r"X\['b'\] must be an array with one entry per row, got the scalar .*3.0"
    with pytest.raises(DataError, match=words):
        OrtGradientRegressor(BY_NAME).fit({"a": COLUMN, "b": 3.0}, COLUMN)
    ours = OrtGradientRegressor(BY_NAME, max_iter=0).fit(NUMBERS[["a", "b"]], Y)
    with pytest.raises(DataError, match=words):
        ours.predict({"a": COLUMN, "b": np.float32(3)})


@pytest.mark.parametrize("name", [name for name, (_, X) in MODELS.items() if name != "columns by place"])
@pytest.mark.filterwarnings("ignore:Ridge inside StackingRegressor was fitted on these rows")
def test_a_frame_of_polars_is_one_of_pandas(name):
    polars = pytest.importorskip("polars")
    model, X = MODELS[name]
    frame = polars.DataFrame({column: X[column].to_numpy() for column in X.columns})
    ours = [OrtGradientRegressor(model, max_iter=1, random_state=0).fit(given, Y) for given in (frame, X)]
    np.testing.assert_array_equal(ours[0].predict(frame), ours[1].predict(X))


def test_a_frame_of_polars_with_dates_after_a_fit_on_one_of_pandas():
    polars = pytest.importorskip("polars")
    days = np.datetime64("2020-01-01") + np.arange(N)
    rows = TEXTS.assign(day=days.astype("datetime64[ns]"))
    frame = polars.DataFrame({column: TEXTS[column].to_numpy() for column in TEXTS}).with_columns(
        polars.Series("day", days)
    )
    assert frame["day"].dtype == polars.Date
    ours = OrtGradientRegressor(piped(texts=True, rest="drop"), max_iter=1, random_state=0).fit(rows, Y)
    np.testing.assert_array_equal(ours.predict(frame), ours.predict(rows))


@pytest.mark.parametrize("columns", [slice("b", "c"), slice(None, "b"), slice(0, 2)], ids=["names", "start", "places"])
@pytest.mark.parametrize("rows", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_columns_from_one_to_another_are_in_the_graph(rows, columns):
    texts = [("o", OneHotEncoder(), ["t"])] if "t" in rows else []
    model = make_pipeline(
        ColumnTransformer([("s", StandardScaler(), columns), *texts], remainder="passthrough"), Ridge()
    )
    tuned = OrtGradientRegressor(model.fit(rows, Y), max_iter=0).fit(rows, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-4, atol=1e-4)


def test_columns_of_a_file_without_a_header_are_taken_by_position():
    rows = TEXTS[["t", "a", "b", "c"]].set_axis(range(4), axis=1)
    columns = ColumnTransformer([("t", OneHotEncoder(handle_unknown="ignore"), [0])], remainder="passthrough")
    model = make_pipeline(columns, Ridge()).fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    assert set(tuned.onnx_status_.values()) == {"ONNX"}
    assert [i.name for i in tuned.get_trained_onnx().graph.input] == ["0", "1", "2", "3"]
    for given in (rows, rows[[0, 2, 1, 3]], rows.set_axis(range(1, 5), axis=1)):
        np.testing.assert_allclose(tuned.predict(given), model.predict(given), rtol=1e-4, atol=1e-4)
    with pytest.raises(DataError, match="X has 3 features, but OrtGradientRegressor is expecting 4"):
        tuned.predict(rows[[0, 1, 2]])


def test_categories_of_numbers_have_a_graph_as_numbers_or_as_texts():
    rows = TEXTS.assign(n=pandas.Categorical(np.arange(N) % 3), f=pandas.Categorical(np.arange(N) % 4 / 2))
    columns = ColumnTransformer([("c", OrdinalEncoder(), ["t", "n", "f"])], remainder="passthrough")
    tuned = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=0).fit(rows, Y)
    np.testing.assert_allclose(tuned.predict(rows), tuned.to_sklearn().predict(rows), rtol=1e-4)
    remedy = r"those of 'n', 'f' are numbers. Pass X.astype\({'n': 'int64', 'f': 'float64'}\).*'f': str}\), in fit"
    with pytest.raises(ExportError, match=remedy):
        tuned.get_trained_onnx()
    for types in ({"n": "int64", "f": "float64"}, {"n": str, "f": str}):
        again = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=0).fit(rows.astype(types), Y)
        assert set(again.onnx_status_.values()) == {"ONNX"}
    with pytest.raises(DataError, match=remedy):
        again.predict(rows)


@pytest.mark.parametrize("value", ["new", 9], ids=["a string", "a number"])
def test_a_category_unknown_to_an_ordinal_encoder_is_an_error(value):
    name, known = ("t", "a") if value == "new" else ("c", 3)
    rows = pandas.DataFrame({"t": ["a", "b", "c", "b"] * 10, "c": [3, 5, 5, 4] * 10, "x": np.arange(40.0)})
    encode = ColumnTransformer([("codes", OrdinalEncoder(), ["t", "c"])], remainder="passthrough")
    y = np.square(rows["x"])
    fitted = make_pipeline(encode, Ridge()).fit(rows, y)
    tuned = OrtGradientRegressor(fitted, max_iter=0).fit(rows, y)
    assert tuned.onnx_status_["columntransformer"] == "ONNX"
    np.testing.assert_allclose(tuned.predict(rows), fitted.predict(rows), atol=1e-2)
    other = rows.assign(**{name: [value, *[known] * 39]})
    with pytest.raises(DataError, match=r"OrdinalEncoder\(handle_unknown='use_encoded_value', unknown_value=-1\), or"):
        tuned.predict(other)


@pytest.mark.parametrize("missing", [-3, np.nan])
@pytest.mark.parametrize(
    "unknown",
    [
        {"handle_unknown": "error"},
        {"handle_unknown": "use_encoded_value", "unknown_value": -1},
        {"handle_unknown": "use_encoded_value", "unknown_value": np.nan, "min_frequency": 2},
    ],
    ids=["an error", "a code", "missing, beside infrequent ones"],
)
def test_the_codes_of_missing_strings_and_numbers(unknown, missing):
    rows = pandas.DataFrame({"t": ["a", np.nan, "b", "b"] * 15, "n": [2.0, 5.0, np.nan] * 20, "x": np.arange(60.0) % 7})
    y = rows["t"].isna() * 9 + rows["n"].isna() * 4 + rows["n"].eq(5) + rows["x"]
    codes = OrdinalEncoder(encoded_missing_value=missing, **unknown)
    trees = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2)
    model = make_pipeline(ColumnTransformer([("codes", codes, ["t", "n"])], remainder="passthrough"), trees)
    tuned = OrtGradientRegressor(model.fit(rows, y), max_iter=0).fit(rows, y)
    assert tuned.onnx_status_["columntransformer"] == "ONNX"
    np.testing.assert_allclose(tuned.predict(rows), model.predict(rows), rtol=1e-5)


@pytest.mark.parametrize("missing", [-1, np.nan])
def test_infrequent_codes_of_each_column_of_numbers(missing):
    rows = pandas.DataFrame(
        {"a": np.arange(N) % 7 % 4 + 0.0, "b": np.arange(N) % 11 % 3 + 0.0, "x": np.arange(N) + 0.0}
    )
    rows.loc[::5, "b"] = 2.0 if np.isnan(missing) else np.nan
    codes = OrdinalEncoder(
        min_frequency=20, handle_unknown="use_encoded_value", unknown_value=9, encoded_missing_value=missing
    )
    model = make_pipeline(ColumnTransformer([("codes", codes, ["a", "b"])], remainder="passthrough"), Ridge())
    model.fit(rows, Y)
    tuned = OrtGradientRegressor(model, max_iter=0).fit(rows, Y)
    if np.isnan(missing):
        assert tuned.onnx_status_["columntransformer"] == "ONNX"
    for others in (rows, rows.assign(a=7.0, b=0.5)):
        np.testing.assert_allclose(tuned.predict(others), model.predict(others), rtol=1e-4, atol=1e-4)
