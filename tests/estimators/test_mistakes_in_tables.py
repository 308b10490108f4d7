"""Mistakes in tables of pandas, polars and pyarrow, and the code for their library that the answers contain."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, StackingRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.fixes import parse_version

from onnxtrain import Inputs, OrtGradientClassifier, OrtGradientRegressor, load, save
from onnxtrain.errors import ArgumentTypeError, ConversionError, DataError, ExportError
from onnxtrain.rows import from_parquet, from_zarr

NAMES_OF_POLARS = pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.7"), reason="its columns of polars have no names"
)

DAYS = pd.date_range("2020-01-01", periods=20)
TABLE = pd.DataFrame({"area": np.arange(20.0), "town": ["Bern", "Ulm"] * 10})
RENT = np.arange(20.0)
KINDS = np.arange(20) % 2

#: A column of each kind that holds no numbers, and the code that makes numbers of it, in polars.
COLUMNS = [
    (DAYS, "X['c'].dt.epoch('d')"),
    (DAYS.date, "X['c'].dt.epoch('d')"),
    (DAYS - DAYS[0], "X['c'].dt.total_seconds()"),
    (["1", "2.5"] * 10, "X['c'].cast(float, strict=False)"),
    (["1,5", "2"] * 10, "X['c'].str.replace_all('[^0-9,-]', '').str.replace(',', '.').cast(float)"),
    (["$1,000.50", "$2"] * 10, "X['c'].str.replace_all('[^0-9.-]', '').cast(float)"),
    (["180 cm", "99 cm"] * 10, "X['c'].str.replace_all('[^0-9.-]', '').cast(float)"),
]


def line():
    return OrtGradientRegressor(make_pipeline(StandardScaler(), LinearRegression()), max_iter=1)


@pytest.mark.parametrize("values, code", COLUMNS, ids=[str(row[0][0]) for row in COLUMNS])
def test_the_code_is_that_of_polars_and_works(values, code):
    X = pl.DataFrame({"area": RENT, "c": list(values), "town": ["Bern", "Ulm"] * 10})
    with pytest.raises((ArgumentTypeError, DataError)) as e:
        line().fit(X, RENT)
    assert code in str(e.value) or values[0] == "1"  # numbers as strings are one of several cases
    numbers = X.select("area").with_columns(eval(code, {"X": X}))
    assert not re.search(r"pandas|astype|iloc", str(e.value))
    line().fit(numbers, RENT)


@pytest.mark.parametrize("model", [LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())])
@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame], ids=["polars", "pandas"])
@pytest.mark.parametrize("others", [{}, {"area": RENT}], ids=["alone", "beside numbers"])
def test_dates_are_no_numbers(model, make, others):
    with pytest.raises((ArgumentTypeError, ConversionError), match="dates or durations in 'since'"):
        OrtGradientRegressor(model).fit(make({"since": list(DAYS), **others}), RENT)


def test_dates_that_a_model_does_not_use_are_taken():
    X = pl.DataFrame({"area": RENT, "since": list(DAYS)})
    model = make_pipeline(make_column_transformer((StandardScaler(), ["area"])), LinearRegression())
    assert OrtGradientRegressor(model, max_iter=1).fit(X, RENT).predict(X).shape == (20,)
    encoded = make_pipeline(OneHotEncoder(), LogisticRegression())
    OrtGradientClassifier(encoded, max_iter=1).fit(pd.DataFrame({"since": DAYS}), KINDS)


def test_dates_in_rows_to_predict_are_no_numbers():
    model = line().fit(pl.DataFrame({"area": RENT, "since": RENT}), RENT)
    with pytest.raises(ArgumentTypeError, match=re.escape("for example X['since'].dt.epoch('d'), or leave it out.")):
        model.predict(pl.DataFrame({"area": RENT, "since": list(DAYS)}))


#: Columns of dates and durations, by the name of their form.
DATES = {
    "dates": DAYS,
    "durations": DAYS - DAYS[0],
    "with a time zone": DAYS.tz_localize("Europe/Berlin"),
    "objects": DAYS.date,
    "of pyarrow": pd.Series(DAYS).astype("timestamp[ns][pyarrow]"),
    "missing first": DAYS.where(DAYS[0] < DAYS),
}


def columns_beside_texts():
    return make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")


@pytest.mark.parametrize("dates", DATES.values(), ids=DATES)
@pytest.mark.parametrize("names", [["area", "since", "town"], ["since"]], ids=["beside texts", "alone"])
@pytest.mark.parametrize("dtype", [int, float])
def test_dates_are_no_numbers_where_fit_got_numbers(dates, names, dtype):
    """numpy casts them to nanoseconds, and predictions were 1e14."""
    X = TABLE.assign(since=(DAYS - DAYS[0]).days.astype(dtype))[names]
    model = make_pipeline(columns_beside_texts(), LinearRegression()) if "town" in X else LinearRegression()
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, RENT)
    raw = X.assign(since=dates)
    again = OrtGradientRegressor(model, max_iter=1)
    message = "X contains dates or durations in 'since', but the model takes numbers"
    for call in (
        lambda: tuned.predict(raw),
        lambda: tuned.predict(pl.from_pandas(raw)),
        lambda: tuned.score(raw, RENT),
        lambda: tuned.losses(raw, RENT),
        lambda: tuned.embed(raw, "variable"),
        lambda: tuned.partial_fit(raw, RENT),
        lambda: again.fit(X, RENT, X_val=raw, y_val=RENT),
    ):
        with pytest.raises(ArgumentTypeError, match=message) as e:
            call()
    code = re.search(r"for example (.*), or leave it out", str(e.value))[1]
    assert np.isfinite(tuned.predict(raw.assign(since=eval(code, {"X": raw, "pandas": pd})).ffill().bfill())).all()


@pytest.mark.filterwarnings("ignore:no explicit representation of timezones")
@pytest.mark.parametrize("dates", DATES.values(), ids=DATES)
def test_dates_are_no_numbers_of_a_file(dates):
    X = TABLE.assign(since=(DAYS - DAYS[0]).days.astype(float))
    model = make_pipeline(columns_beside_texts(), LinearRegression())
    onx = OrtGradientRegressor(model, max_iter=1).fit(X, RENT).get_trained_onnx()
    tuned = OrtGradientRegressor(onx, max_iter=1).fit(X, RENT)
    raw = X.assign(since=dates)
    by_name = {name: np.asarray(raw[name]) for name in raw}
    for call in (
        lambda: tuned.predict(raw),
        lambda: tuned.predict(by_name),
        lambda: tuned.predict(Inputs(**by_name)),
        lambda: tuned.fit(by_name, RENT),
    ):
        with pytest.raises(DataError, match=r"X\['since'\] contains dates or durations") as e:
            call()
    code = re.search(r"for example (.*)\.$", str(e.value))[1]
    numbers = {**by_name, "since": np.nan_to_num(eval(code, {"X": raw, "numpy": np}))}
    assert np.isfinite(tuned.predict(numbers)).all()


def test_dates_where_the_estimator_was_fitted_on_numbers():
    columns = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["area", "since"]))
    model = make_pipeline(columns, LinearRegression()).fit(TABLE.assign(since=RENT), RENT)
    with pytest.raises(ArgumentTypeError, match="^X contains dates or durations in 'since', but the model"):
        OrtGradientRegressor(model).fit(TABLE.assign(since=DAYS), RENT)


def test_the_fraction_of_a_decimal_is_not_cut_off():
    model = make_pipeline(columns_beside_texts(), LinearRegression())
    tuned = OrtGradientRegressor(model, max_iter=1).fit(TABLE.assign(since=np.arange(20)), RENT)
    with pytest.raises(DataError, match=r"The column 'since' must contain int64 values, got 1\.5 in row 0"):
        tuned.predict(TABLE.assign(since=[Decimal("1.5")] * 20))


@pytest.mark.parametrize(
    "convert, frame, code",
    [
        (pa.Table.from_pandas, "frame of pandas", "X.to_pandas()"),
        (lambda X: pl.DataFrame(X).lazy(), "DataFrame of polars", "X.collect()"),
    ],
    ids=["pyarrow", "lazy"],
)
def test_other_tables_become_frames_first(convert, frame, code):
    X = convert(TABLE)
    with pytest.raises(DataError, match=re.escape(f"This code is for a {frame}: X = {code}.")) as e:
        line().fit(X, RENT)
    assert str(e.value).count("This code is for") == 1
    assert eval(code, {"X": X}).shape == (20, 2)


@NAMES_OF_POLARS
def test_missing_values_of_polars():
    X = pl.DataFrame({"area": [None, *RENT[1:]], "town": ["Bern", "Ulm"] * 10})
    columns = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    with pytest.raises(DataError, match=re.escape("X.with_columns(X['area'].fill_null(0.0))")):
        OrtGradientRegressor(make_pipeline(columns, LinearRegression())).fit(X, RENT)


@NAMES_OF_POLARS
@pytest.mark.parametrize("read", [lambda X: X, lambda X: X.lazy()], ids=["frame", "lazy"])
def test_missing_texts_and_booleans_of_polars_are_those_of_the_fit(read):
    X = pl.DataFrame({"town": [None, "Ulm"] * 10, "since": DAYS, "new": [None, True, False, True] * 5, "area": RENT})
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    for names, by in (
        (["town", "new"], {"ONNX"}),
        (["town", "new", "since"], {"ONNX", "scikit-learn"}),
    ):  # ONNX has no dates
        model = make_pipeline(make_column_transformer((encode, names)), LinearRegression()).fit(X, RENT)
        tuned = OrtGradientRegressor(model, max_iter=0).fit(read(X), RENT)
        assert set(tuned.onnx_status_.values()) == by
        for rows in (X, X[1:4], X[:1]):
            np.testing.assert_allclose(tuned.predict(read(rows)), model.predict(rows), rtol=1e-4, atol=1e-4)


def test_lists_of_polars_become_columns_or_an_array():
    X = pl.DataFrame({"c": np.ones((20, 3)).tolist(), "area": RENT})
    code = "X.drop('c').hstack(polars.DataFrame(numpy.array(X['c'].to_list())).rename(lambda name: 'c_' + name))"
    with pytest.raises(DataError, match=re.escape(f"{code}, or pass the array alone: numpy.array(X['c'].to_list()).")):
        line().fit(X, RENT)
    assert line().fit(eval(code, {"X": X, "polars": pl, "numpy": np}), RENT).n_features_in_ == 4


OF_POLARS = pl.DataFrame({"area": RENT, "price": [Decimal("1.50")] * 20})
OF_ARROW = pd.DataFrame({"area": RENT, "price": [Decimal("1.50")] * 20}).astype(
    {"price": pd.ArrowDtype(pa.decimal128(10, 2))}
)


@pytest.mark.parametrize(
    "X, code",
    [(OF_POLARS, "X.cast({'price': float})"), (OF_ARROW, "X.astype({'price': float})")],
    ids=["polars", "Arrow"],
)
def test_decimals_are_no_strings(X, code):
    with pytest.raises(ConversionError, match=re.escape(f"numbers of type Decimal in 'price'. Pass {code}")):
        OrtGradientRegressor(LinearRegression()).fit(X, RENT)
    OrtGradientRegressor(LinearRegression(), max_iter=1).fit(eval(code, {"X": X}), RENT)


def test_integers_of_128_bits_are_cast_as_the_message_says():
    X = pl.DataFrame({"area": RENT, "sum": np.arange(20) % 7}).cast({"sum": pl.Int128})
    tuned = OrtGradientRegressor(LinearRegression(), max_iter=1).fit(X.cast({"sum": float}), RENT)
    for call in (tuned.predict, lambda X: line().fit(X, RENT)):
        with pytest.raises(ArgumentTypeError, match=re.escape("Pass X.cast({'sum': float}).")):
            call(X)


def test_a_dataset_of_a_closed_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = TABLE[["area"]]
        opened = file["X"]
        fitted = line().fit(opened, RENT)
    message = re.escape(
        "is a dataset of an HDF5 file that is closed. Read the rows while it is open, file[name][:], or"
    )
    for call in (lambda: line().fit(opened, RENT), lambda: fitted.predict(opened), lambda: from_zarr(opened, RENT)):
        with pytest.raises(DataError, match=f"X {message}"):
            call()


TOWNS = pd.DataFrame({"area": RENT, "town": ["Bern", "Ulm"] * 10, "canton": [np.nan, "BE"] * 10})


def of_towns(*columns):
    encoder = OneHotEncoder(handle_unknown="ignore")
    steps = make_column_transformer((encoder, list(columns)), (StandardScaler(), ["area"]))
    return OrtGradientRegressor(make_pipeline(steps, LinearRegression()), max_iter=1).fit(TOWNS, RENT)


@pytest.mark.parametrize(
    "X, columns, code",
    [
        (pd.DataFrame({"area": [1.0], "town": np.nan, "canton": "BE"}), ["town"], "X.astype({'town': object})"),
        (
            pd.DataFrame({"area": [1.0, 2.0], "town": np.nan, "canton": np.nan}),
            ["town", "canton"],
            "X.astype({'town': object, 'canton': object})",
        ),
        (pd.DataFrame({"town": [np.nan], "canton": "BE", "area": 1.0}), ["town"], "X.astype({'town': object})"),
        (pd.DataFrame({"area": [np.nan], "town": np.nan, "canton": "BE"}), ["town"], "X.astype({'town': object})"),
        (pl.DataFrame({"area": [1.0], "town": [None], "canton": ["BE"]}), ["town"], "X.cast({'town': str})"),
    ],
    ids=["one", "two", "in another order", "a number as well", "polars"],
)
def test_a_column_of_missing_texts_has_the_type_of_numbers(X, columns, code):
    tuned = of_towns(*columns)
    words = f"in {', '.join(map(repr, columns))}, where fit got texts. If all texts are missing, pass {code}."
    with pytest.raises(DataError, match=re.escape(words)):
        tuned.predict(X)
    converted = eval(code, {"X": X})
    if not np.isnan(X["area"][0]):
        assert np.isfinite(tuned.predict(converted)).all()
    else:
        with pytest.raises(DataError, match="Input X contains NaN in 'area'"):
            tuned.predict(converted)


def test_missing_texts_for_a_file_are_objects():
    onx = of_towns("town").get_trained_onnx()
    tuned = OrtGradientRegressor(onx, max_iter=1).fit(TOWNS, RENT)
    X = pd.DataFrame({"area": [1.0], "town": [np.nan], "canton": ["BE"]})
    with pytest.raises(
        DataError, match=re.escape("are missing. Pass them as objects: numpy.asarray(X['town'], object)")
    ):
        tuned.predict(X)
    assert np.isfinite(tuned.predict(X.assign(town=np.asarray(X["town"], object)))).all()


def test_a_column_of_polars_becomes_a_frame():
    with pytest.raises(DataError, match=re.escape("X is a Series. Pass a frame: X.to_frame() for a column.")):
        line().fit(pl.DataFrame({"area": RENT})["area"], RENT)


def test_codes_are_no_numbers_with_units():
    with pytest.raises(DataError, match=re.escape("Put an encoder before it")):
        line().fit(TABLE[["area"]].assign(code=["A12", "B7"] * 10), RENT)


def test_the_column_with_units_is_named_and_not_one_of_plain_numbers():
    X = TABLE[["area"]].assign(rooms=["2", "3"] * 10, price=["5 EUR", "7 EUR"] * 10)
    with pytest.raises(
        DataError, match=re.escape("as strings in 'price', such as '5 EUR'. Convert them: X['price'].str")
    ):
        line().fit(X, RENT)


def test_a_column_of_a_column_transformer_needs_brackets():
    model = make_pipeline(make_column_transformer((StandardScaler(), "area")), LinearRegression())
    with pytest.raises(
        DataError, match=re.escape("put the name of a column in brackets: (StandardScaler(), ['area'])")
    ):
        OrtGradientRegressor(model).fit(TABLE, RENT)


ENCODED = OrtGradientRegressor(
    make_pipeline(make_column_transformer((OrdinalEncoder(), ["town"])), LinearRegression()), max_iter=1
).fit(TABLE, RENT)
ELSEWHERE = TABLE.assign(town="Basel")


@pytest.mark.parametrize(
    "call",
    [
        lambda: ENCODED.predict(ELSEWHERE),
        lambda: ENCODED.score(ELSEWHERE, RENT),
        lambda: ENCODED.losses(ELSEWHERE, RENT),
        lambda: OrtGradientRegressor(ENCODED.estimator, max_iter=1).fit(TABLE, RENT, X_val=ELSEWHERE, y_val=RENT),
        lambda: ENCODED.partial_fit(ELSEWHERE, RENT),
    ],
    ids=["predict", "score", "losses", "validation", "partial_fit"],
)
def test_an_unknown_category_is_named(call):
    with pytest.raises(DataError, match=r"Found unknown categories \['Basel'\] in column 0") as e:
        call()
    assert "OrdinalEncoder(handle_unknown='use_encoded_value', unknown_value=-1)" in str(e.value)
    assert "Gather" not in str(e.value)


@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()])
def test_an_unknown_category_of_numbers_in_a_training_step(encoder):
    known = pd.DataFrame({"area": RENT, "zip": np.arange(20) % 3})
    columns = make_column_transformer((encoder, ["zip"]), remainder=StandardScaler())
    tuned = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=1).fit(known, RENT % 7)
    with pytest.raises(DataError, match="X has a category that the encoder was not fitted on. O.* takes any.$"):
        tuned.partial_fit(known.assign(zip=9), RENT % 7)


@pytest.mark.parametrize(
    "step",
    [OneHotEncoder(), make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())],
    ids=["encoder", "imputer"],
)
def test_missing_strings_of_pandas_become_nan(step):
    """A column of dtype string has pandas.NA for a missing value, which cannot be compared."""
    X = pd.DataFrame({"area": RENT, "town": ["Bern", pd.NA] * 10}).astype({"town": "string"})
    columns = make_column_transformer((step, ["town"]), remainder="passthrough")
    tuned = OrtGradientRegressor(make_pipeline(columns, LinearRegression()), max_iter=1)
    code = "X.astype({'town': object}).fillna({'town': numpy.nan})"
    with pytest.raises((ArgumentTypeError, DataError), match="X contains pandas.NA in .town., which scikit") as e:
        tuned.fit(X, RENT)
    assert str(e.value).endswith(f"Replace it by NaN: {code}.")
    filled = eval(code, {"X": X, "numpy": np})
    assert tuned.fit(filled, RENT).predict(filled).shape == (20,)


BIKES = pd.DataFrame(
    {
        "brand": ["Cube", "Trek", np.nan, "Koga"] * 5,
        "kind": ["city", "road"] * 10,
        "sold": [True, np.nan] * 10,
        "weight": np.linspace(8.1, 20.3, 20),
        "first": DAYS,
    }
).astype({"sold": object})


def of_bikes(*steps, before=()):
    encoded = (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"])
    return make_pipeline(*before, make_column_transformer(encoded, *steps), LinearRegression())


def why_not_exported(model, X):
    """Return the message of a whole export, which names the reason why scikit-learn runs the first steps."""
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, RENT)
    with pytest.raises(ExportError) as e:
        tuned.get_trained_onnx()
    return str(e.value)


def is_exported(model, X):
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, RENT)
    tuned.get_trained_onnx()
    np.testing.assert_allclose(tuned.predict(X), tuned.to_sklearn().predict(X), rtol=1e-4, atol=1e-4)
    return True


def test_the_date_that_a_scaler_takes_is_named():
    message = why_not_exported(of_bikes((StandardScaler(), ["first"])), BIKES)
    assert "standardscaler takes numeric columns, but X has dates or durations in 'first'. Convert such" in message
    code = re.search(r"for example with (.*), or leave", message)[1]
    assert is_exported(
        of_bikes((StandardScaler(), ["first"])), BIKES.assign(first=eval(code, {"X": BIKES, "pandas": pd}))
    )


@NAMES_OF_POLARS
@pytest.mark.parametrize("fits_first", [False, True], ids=["unfitted", "fitted"])
@pytest.mark.parametrize("dates", [DAYS.date, DAYS, DAYS - DAYS[0]], ids=["dates", "times", "durations"])
def test_the_dates_that_scikit_learn_passes_on_as_numbers_are_named(dates, fits_first):
    X = pl.DataFrame({"kind": ["city", "race"] * 10, "weight": np.linspace(8.1, 20.3, 20), "first": list(dates)})
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    first = make_column_transformer((encoder, ["kind"]), remainder="passthrough")
    model = make_pipeline(first, StandardScaler(), LinearRegression())
    given = clone(model).fit(X, RENT) if fits_first else model
    with pytest.warns(
        UserWarning, match="runs 'columntransformer'.* in 'first', which scikit-learn passes on"
    ) as warned:
        message = why_not_exported(given, X)
    for said in (message, str(warned[0].message)):
        assert "has dates or durations in 'first', which scikit-learn passes on as numbers, for dates the days" in said
        numeric = eval(re.search(r"for example (.*), or leave", said)[1], {"X": X})
    tuned = OrtGradientRegressor(model, max_iter=1).fit(numeric, RENT)
    np.testing.assert_allclose(tuned.predict(numeric), tuned.to_sklearn().predict(numeric), rtol=1e-3)
    tuned.get_trained_onnx()


def test_the_texts_that_a_scaler_takes_are_named():
    X = BIKES.assign(gears=["3", "21"] * 10)
    model = of_bikes((StandardScaler(), ["gears"]))
    message = why_not_exported(model, X)
    assert "takes numeric columns, but X has strings or categories in 'gears'. Put" in message
    assert is_exported(model, eval(re.search(r"strings with (.*?\}\))", message)[1], {"X": X}))


@pytest.mark.parametrize("strategy", ["mean", "most_frequent"])
def test_missing_booleans_are_no_missing_strings(strategy):
    if strategy == "mean" and parse_version(sklearn.__version__) < parse_version("1.3"):
        pytest.skip("refuses objects")
    model = of_bikes((SimpleImputer(strategy=strategy), ["sold"]))
    message = why_not_exported(model, BIKES)
    assert "'sold' has True, False and missing values as objects. Pass X.astype({'sold': float}) to fit" in message
    assert is_exported(model, BIKES.astype({"sold": float}))


@pytest.mark.parametrize(
    "encoder", [OneHotEncoder(), OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)]
)
@pytest.mark.parametrize("dates", [DAYS, DAYS - DAYS[0], DAYS.date], ids=["dates", "durations", "objects"])
def test_an_encoder_of_dates_is_not_blamed(encoder, dates):
    X = BIKES.assign(first=dates)
    message = why_not_exported(of_bikes((encoder, ["first", "kind"])), X)
    assert "encodes dates or durations in 'first', which ONNX does not have. Convert them to strings in fit" in message
    code = re.search(r"for example (X\S+?\.map\(str\))", message)[1]
    assert is_exported(of_bikes((encoder, ["first"])), X.assign(first=eval(code, {"X": X})))


@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_an_imputer_of_strings_is_part_of_the_file(strategy):
    imputer = SimpleImputer(strategy=strategy, **({"fill_value": "none"} if strategy == "constant" else {}))
    encoder = OneHotEncoder(handle_unknown="ignore")
    assert is_exported(of_bikes((make_pipeline(imputer, encoder), ["brand"])), BIKES)


def test_an_imputer_of_strings_with_an_indicator_is_left_out():
    imputer = SimpleImputer(strategy="most_frequent", add_indicator=True)
    encoder = OneHotEncoder(handle_unknown="ignore")
    message = why_not_exported(of_bikes((make_pipeline(imputer, encoder), ["brand"])), BIKES)
    code = re.search(r"no missing strings. Leave the imputer out, and pass (X.fillna\(.*?\)) to fit", message)[1]
    assert code == "X.fillna({'brand': 'Cube'})"
    assert is_exported(of_bikes((encoder, ["brand"])), eval(code, {"X": BIKES}))


def test_a_function_in_front_of_columns_with_names():
    since = FunctionTransformer(lambda X: X.assign(first=(X["first"] - DAYS[0]).dt.days))
    model = of_bikes((StandardScaler(), ["first"]), before=[since]).fit(BIKES, RENT)
    message = why_not_exported(model, BIKES)
    assert "ONNX calls no Python functions" in message
    assert "Apply others to X before fit and predict)" in message
    assert is_exported(model[1:], model[:1].transform(BIKES))


@pytest.mark.parametrize(
    "columns, words, how",
    [
        (["brand", "kind"], "that both drops categories and groups infrequent ones. Leave out drop", {"drop": None}),
        (["brand", "kind"], "Leave out drop, or min_frequency and max_categories", {"min_frequency": None}),
        (
            ["brand"],
            "only in an encoder of several columns of the table itself. Leave out min_frequency",
            {"min_frequency": None},
        ),
    ],
    ids=["drop", "min_frequency", "one column"],
)
def test_an_encoder_that_groups_infrequent_categories(columns, words, how):
    X = BIKES.assign(brand=["Cube"] * 10 + ["Trek"] * 7 + ["Koga"] * 2 + ["Stevens"])
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", drop="first", min_frequency=4)
    message = why_not_exported(of_bikes((encoder, columns)), X)
    assert words in message
    assert not re.search("AssertionError|NotImplementedError", message)
    assert is_exported(of_bikes((encoder.set_params(**how), columns)), X)


@pytest.mark.parametrize(
    "weights", [BIKES["weight"], np.where(BIKES.index % 3, 9.0, np.nan)], ids=["halves", "missing"]
)
def test_an_encoder_of_floats(weights):
    X = BIKES.assign(weight=weights, price=np.linspace(0, 1, len(BIKES)))
    steps = (OneHotEncoder(), ["weight"]), ("passthrough", ["price"])
    message = why_not_exported(of_bikes(*steps), X)
    assert "ONNX encodes strings and integers, but not floats. Pass X.astype({'weight': str}) to fit and" in message
    assert is_exported(of_bikes(*steps), X.astype({"weight": str}))


def test_an_encoder_of_floats_beside_floats_that_stay():
    X = BIKES[["weight"]].assign(price=np.linspace(0, 1, len(BIKES)))
    columns = make_column_transformer((OneHotEncoder(), ["weight"]), remainder="passthrough")
    message = why_not_exported(make_pipeline(columns, LinearRegression()), X)
    assert "Pass X.astype({'weight': str}) to fit and" in message


def test_the_number_of_quantiles_that_can_be_converted():
    X = pd.DataFrame(np.random.RandomState(0).randn(300, 3), columns=["a", "b", "c"]).assign(
        kind=["city", "road"] * 150
    )
    model = of_bikes((QuantileTransformer(n_quantiles=100), ["a", "b", "c"]))
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, X["a"] ** 2)
    with pytest.raises(ExportError, match="has 3 columns of 100 quantiles, but at most 200 .* Set n_quantiles=66") as e:
        tuned.get_trained_onnx()
    fewer = int(re.search(r"n_quantiles=(\d+)", str(e.value))[1])
    model.set_params(columntransformer__quantiletransformer__n_quantiles=fewer)
    OrtGradientRegressor(model, max_iter=1).fit(X, X["a"] ** 2).get_trained_onnx()


def test_quantiles_of_the_normal_distribution():
    normal = QuantileTransformer(n_quantiles=9, output_distribution="normal")
    message = why_not_exported(of_bikes((normal, ["weight"])), BIKES)
    assert "ONNX has no quantiles of the normal distribution. Use PowerTransformer() or output_dist" in message
    assert "RuntimeError" not in message
    for step in (PowerTransformer(), normal.set_params(output_distribution="uniform")):
        assert is_exported(of_bikes((step, ["weight"])), BIKES.astype({"weight": "float32"}))


@pytest.mark.parametrize("library", ["pandas", pytest.param("polars", marks=NAMES_OF_POLARS)])
def test_only_the_floats_of_a_table_are_rounded(library):
    X = BIKES[["kind"]].assign(weight=1e6 + np.arange(20) / 3, gears=np.arange(20))
    model = of_bikes((StandardScaler(), ["weight"]), ("passthrough", ["gears"]))
    rows, code = (X, r"X.astype\({'weight': 'float32'}\)")
    rounded = X.astype({"weight": "float32"})
    if library == "polars":
        rows, code = pl.from_pandas(X), r"X.cast\({'weight': polars.Float32}\)"
        rounded = rows.cast({"weight": pl.Float32})
    with pytest.warns(UserWarning, match=f"pass {code}: the steps then stay"):
        OrtGradientRegressor(model, max_iter=1).fit(rows, RENT)
    assert is_exported(model, rounded)


def test_booleans_beside_floats_are_not_rounded():
    """A ColumnTransformer passes them on as objects, in which a missing value differs from itself."""
    X = BIKES[["kind", "weight"]].assign(sold=[True, False] * 10).replace({"weight": {8.1: np.nan}})
    model = of_bikes(("passthrough", ["weight", "sold"]))
    model.steps[-1] = ("trees", DecisionTreeRegressor(random_state=0))
    assert is_exported(model, X)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pytest.param(pl.from_pandas, marks=NAMES_OF_POLARS)], ids=["pandas", "polars"]
)
@pytest.mark.parametrize("dates", DATES.values(), ids=DATES)
def test_dates_where_fit_got_numbers_and_scikit_learn_runs_the_steps(dates, make):
    imputer = make_pipeline(SimpleImputer(strategy="most_frequent", add_indicator=True), OneHotEncoder())
    model = of_bikes((StandardScaler(), ["days"]), (imputer, ["brand"]))
    X = BIKES[["kind", "brand"]].fillna("none").assign(days=np.arange(20))
    tuned = OrtGradientRegressor(model, max_iter=1).fit(X, RENT)
    assert tuned.onnx_status_["columntransformer"] == "scikit-learn"
    for call in (tuned.predict, lambda rows: tuned.score(rows, RENT), lambda rows: tuned.losses(rows, RENT)):
        with pytest.raises(ArgumentTypeError, match="X contains dates or durations in 'days', but the model takes"):
            call(make(X.assign(days=dates)))
    assert tuned.predict(make(X)).shape == (20,)


def test_a_loaded_model_knows_the_columns_that_were_numbers(tmp_path):
    imputer = make_pipeline(SimpleImputer(strategy="most_frequent", add_indicator=True), OneHotEncoder())
    model = of_bikes((StandardScaler(), ["days"]), (imputer, ["brand"]))
    X = BIKES[["kind", "brand"]].fillna("none").assign(days=np.arange(20))
    save(OrtGradientRegressor(model, max_iter=1).fit(X, RENT), tmp_path / "bikes.onnx")
    loaded = load(tmp_path / "bikes.onnx")
    with pytest.raises(ArgumentTypeError, match="X contains dates or durations in 'days', but the model takes"):
        loaded.predict(X.assign(days=DAYS))
    assert loaded.predict(X).shape == (20,)


def test_missing_integers_where_scikit_learn_runs_the_steps():
    X = BIKES[["kind"]].assign(owners=pd.array([1, None, 2, 3] * 5, dtype="Int64"))
    model = of_bikes((SimpleImputer(), ["owners"]))
    message = why_not_exported(model, X)
    assert "Use X.astype({'owners': float}) in fit and in predict)" in message
    assert is_exported(model, X.astype({"owners": float}))


def test_a_missing_boolean_was_no_integer():
    X = BIKES[["kind"]].assign(sold=[True, False] * 10)
    tuned = OrtGradientRegressor(of_bikes(("passthrough", ["sold"])), max_iter=1).fit(X, RENT)
    with pytest.raises(DataError, match="It contained integers or booleans in fit"):
        tuned.predict(BIKES)


def _encoding(name, *first):
    encoder = make_pipeline(*first, OneHotEncoder(handle_unknown="ignore"))
    return make_pipeline(make_column_transformer((encoder, [name]), (StandardScaler(), ["age"])), LinearRegression())


def test_nullable_booleans_and_numbers_for_dates_in_predict():
    rng, smoker = np.random.default_rng(0), np.array([True, False, np.nan] * 20, dtype=object)
    table, y = pd.DataFrame({"smoker": smoker, "age": rng.normal(size=60)}), rng.normal(size=60)
    model = OrtGradientRegressor(_encoding("smoker", SimpleImputer(strategy="most_frequent")), max_iter=0).fit(table, y)
    nullable = table.assign(smoker=table["smoker"].astype("boolean"))
    with pytest.raises(ArgumentTypeError, match=r"\.astype\({'smoker': object}\)\.fillna\({'smoker': numpy\.nan}\)"):
        model.predict(nullable)
    repaired = nullable.astype({"smoker": object}).fillna({"smoker": np.nan})
    np.testing.assert_array_equal(model.predict(repaired), model.predict(table))

    dated = table.assign(when=pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01"] * 20))[["when", "age"]]
    model = OrtGradientRegressor(_encoding("when").fit(dated, y), max_iter=0).fit(dated, y)
    with pytest.raises(
        (ArgumentTypeError, DataError), match="fit had dates. Pass dates, for example pandas.to_datetime"
    ):
        model.predict(dated.assign(when=np.arange(60)))


def test_parquet_files_are_read_in_parts_as_the_messages_say(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"]).assign(y=[0, 1] * 20)
    whole, unlabeled, moved = (tmp_path / name for name in ("rows", "new", "moved"))
    for path, rows in [(whole, frame), (unlabeled, frame.drop(columns="y")), (moved, frame[["c", "y", "a", "b"]])]:
        rows.to_parquet(path, index=False)
    with pytest.raises(
        DataError, match=r"fit\(onnxtrain.rows.from_parquet\(path, label=...\)\), because X is a ParquetF"
    ):
        OrtGradientClassifier().fit(pq.ParquetFile(whole))
    with pytest.raises(
        DataError, match=r"X is a ParquetFile of pyarrow. Pass onnxtrain.rows.from_parquet\(path, label="
    ):
        OrtGradientClassifier().fit(pq.ParquetFile(whole), frame.y)
    tuned = OrtGradientClassifier(max_iter=2, random_state=0).fit(from_parquet(whole, label="y"))
    with pytest.raises(DataError, match="For rows without labels, as predict takes them, leave out label="):
        tuned.predict(from_parquet(unlabeled, label="y"))
    np.testing.assert_array_equal(tuned.predict(from_parquet(unlabeled)), tuned.predict(from_parquet(whole, label="y")))
    again = OrtGradientClassifier(max_iter=2, random_state=0)
    with pytest.raises(DataError, match="with one list of columns for all parts; from_parquet takes it as columns="):
        again.fit(from_parquet(whole, label="y"), X_val=from_parquet(moved, label="y"))
    again.fit(from_parquet(whole, label="y"), X_val=from_parquet(moved, label="y", columns=["a", "b", "c"]))


#: Members with an encoder each, in front of whose ensemble one encoder has the same effect.
ENCODER = make_column_transformer((OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"]))
ENSEMBLES = [
    lambda member: StackingRegressor([("a", member(Ridge())), ("b", member(Ridge(9.0)))], Ridge(), cv=2),
    lambda member: MultiOutputRegressor(member(Ridge())),
]


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_members_around_encoders_need_them_in_front_for_a_graph_of_all(ensemble):
    y = np.c_[RENT, RENT] if "MultiOutput" in repr(ensemble(Ridge)) else RENT
    X, around = BIKES[["kind", "weight"]], TransformedTargetRegressor
    tuned = OrtGradientRegressor(ensemble(lambda last: around(make_pipeline(ENCODER, last))), max_iter=1).fit(X, y)
    with pytest.raises(ExportError, match=r"have several types. Put their encoder in front of it: make_pipeline\(enc"):
        tuned.get_trained_onnx()
    OrtGradientRegressor(make_pipeline(ENCODER, ensemble(around)), max_iter=1).fit(X, y).get_trained_onnx()


@pytest.mark.parametrize("first", [(), (FunctionTransformer(),)], ids=["first", "behind a step"])
def test_splits_on_categories_are_named(first):
    X, model = BIKES[["kind"]].astype("category"), HistGradientBoostingRegressor(min_samples_leaf=1, max_iter=3)
    message = why_not_exported(make_pipeline(*first, clone(model).set_params(categorical_features=[0])), X)
    assert "HistGradientBoostingRegressor splits on sets of categories, but the trees that skl2onnx writes" in message
    encoder = make_column_transformer((OrdinalEncoder(), ["kind"]), remainder="passthrough")
    assert is_exported(make_pipeline(encoder, model), X)


class Heavier(TransformerMixin, BaseEstimator):
    """A step of the user's own, which takes missing values and columns by name."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.assign(weight=X["weight"] + 1)


@pytest.mark.parametrize("kind", ["category", None], ids=["with strings", "with missing values"])
def test_a_step_in_front_without_a_converter_is_named_whatever_the_rows_are(kind):
    X = UNKNOWN.assign(kind=BIKES["kind"].astype(kind)) if kind else UNKNOWN
    categories = [2] if kind else None
    last = HistGradientBoostingRegressor(categorical_features=categories, min_samples_leaf=1, max_iter=3)
    message = why_not_exported(make_pipeline(Heavier(), last), X)
    assert "pipeline.heavier cannot be converted to ONNX: there is no converter for Heavier. Register one" in message


def test_a_member_that_splits_on_categories():
    X = pd.DataFrame({"kind": np.arange(20) % 5, "weight": BIKES["weight"]})
    member = HistGradientBoostingRegressor(categorical_features=[0], min_samples_leaf=1, max_iter=3)
    bag = BaggingRegressor(member, 3, random_state=0).fit(X, X["kind"] % 2 + 0.0)
    tuned = OrtGradientRegressor(bag, max_iter=0).fit(X, X["kind"] % 2 + 0.0)
    np.testing.assert_allclose(tuned.predict(X), bag.predict(X), rtol=1e-5, atol=1e-6)


@NAMES_OF_POLARS
@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()])
def test_an_encoder_of_texts_and_integers_of_polars(encoder):
    X = pl.DataFrame({"kind": ["city", "road"] * 10, "gears": [3, 7, 21, 7] * 5})
    model = make_pipeline(make_column_transformer((encoder, ["kind", "gears"])), Ridge())
    message = why_not_exported(clone(model).fit(X, RENT), X)
    assert "encodes strings and numbers of a frame that is not of pandas" in message
    assert "Give each type an encoder of its own, or fit the model and this" in message
    assert is_exported(model, X.to_pandas())
    each = make_pipeline(make_column_transformer((encoder, ["kind"]), (encoder, ["gears"])), Ridge())
    assert is_exported(each.fit(X, RENT), X)


#: Values of which some are missing, and the columns that mark them.
UNKNOWN = pd.DataFrame({"weight": BIKES["weight"].where(BIKES.index % 3 > 0), "gears": np.arange(20) % 7 + 0.0})


@pytest.mark.parametrize("X", [UNKNOWN, UNKNOWN.to_numpy()], ids=["frame", "array"])
def test_indicators_beside_an_imputer(X):
    known = X.fillna(-1) if hasattr(X, "fillna") else np.nan_to_num(X, nan=-1)

    def model(**how):
        values = make_pipeline(SimpleImputer(), StandardScaler())
        given = X if how.get("missing_values", np.nan) != -1 else known
        return make_pipeline(make_union(values, MissingIndicator(**how)), LinearRegression()).fit(given, RENT)

    message = why_not_exported(model(), X)
    assert "which a graph does not. Set error_on_new=False, or leave it out and set SimpleImputer(add_ind" in message
    assert is_exported(model(error_on_new=False), X)
    assert is_exported(model(features="all"), X)
    assert is_exported(make_pipeline(SimpleImputer(add_indicator=True), LinearRegression()), X)
    assert is_exported(model(features="all", missing_values=-1), known)


def test_an_indicator_of_missing_strings():
    X = pd.DataFrame({"kind": ["city", "?"] * 10, "brand": ["Cube", "?", "Trek", "Koga"] * 5})
    model = make_pipeline(MissingIndicator(missing_values="?", features="all"), LinearRegression())
    assert "MissingIndicator marks '?', and ONNX has no missing strings. Leave it out" in why_not_exported(model, X)


@pytest.mark.parametrize("X", [UNKNOWN, UNKNOWN.to_numpy()], ids=["frame", "array"])
def test_imputers_of_several_columns_are_part_of_the_file(X):
    columns = ["weight", "gears"] if X is UNKNOWN else [0, 1]
    imputers = [(make_pipeline(SimpleImputer(), StandardScaler()), columns[:1]), (SimpleImputer(), columns[1:])]
    assert is_exported(make_pipeline(make_column_transformer(*imputers), LinearRegression()), X)


@pytest.mark.parametrize("step", [FunctionTransformer(), FunctionTransformer(np.sqrt)], ids=["identity", "sqrt"])
def test_a_function_in_front_of_a_step_that_takes_missing_values_is_part_of_the_file(step):
    for last in (DecisionTreeRegressor(max_depth=2), make_pipeline(SimpleImputer(), Ridge())):
        assert is_exported(make_pipeline(step, last), UNKNOWN.to_numpy())


def test_a_step_beside_an_imputer_that_refuses_missing_values():
    model = make_pipeline(make_union(SimpleImputer(), FunctionTransformer(np.nan_to_num)), LinearRegression())
    message = why_not_exported(model, UNKNOWN.to_numpy())
    assert "X has missing values, which each step in front of an imputer, or beside it, must take" in message


def test_a_column_of_strings_and_numbers():
    X = BIKES.assign(size=["M", 52, 54, np.nan] * 5)[["size", "weight"]]
    columns = (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["size"])
    model = make_pipeline(make_column_transformer(columns, remainder="passthrough"), Ridge())
    with pytest.raises(ArgumentTypeError, match=r"'size' has strings and numbers. Make strings of all: X") as e:
        OrtGradientRegressor(model).fit(X, RENT)
    exec(re.search(r"strings of all: (.*\))\.", str(e.value))[1], {"X": X})
    assert is_exported(model, X)


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.7"), reason="its imputer fails, because it sorts the values"
)
def test_an_imputer_of_strings_and_numbers():
    X = BIKES.assign(size=["M", 52, 54, np.nan] * 5)[["size"]]
    steps = SimpleImputer(strategy="most_frequent"), FunctionTransformer(lambda X: X.astype(str)), OneHotEncoder()
    message = why_not_exported(make_pipeline(*steps, Ridge()), X)
    exec(re.search(r"has strings and numbers. Make strings of all: (.*\))\)\.", message)[1], {"X": X})
    assert is_exported(make_pipeline(steps[0], steps[2], Ridge()), X)


def test_strings_that_mark_missing_numbers():
    X = BIKES.assign(size=["n/a", 52, 54, np.nan] * 5)[["size", "weight"]]
    model = make_pipeline(SimpleImputer(), Ridge())
    with pytest.raises(DataError, match="'size' has strings and numbers. To make the strings missing: ") as e:
        OrtGradientRegressor(model).fit(X, RENT)
    exec(re.search(r"strings missing: (.*\))\.", str(e.value))[1], {"X": X, "pandas": pd})
    assert is_exported(model, X)


def test_an_imputer_of_numbers_as_strings():
    X = BIKES.assign(size=["50", 52, 54, np.nan] * 5)[["size", "weight"]]
    model = make_pipeline(SimpleImputer(), Ridge())
    assert "'size' has numbers as strings. Pass X.astype({'size': float}) to fit" in why_not_exported(model, X)
    assert is_exported(model, X.astype({"size": float}))


def test_an_imputer_of_columns_of_strings_and_of_columns_of_numbers():
    X = UNKNOWN.assign(brand=BIKES["brand"])
    frequent = SimpleImputer(strategy="most_frequent")
    message = why_not_exported(make_pipeline(frequent, OneHotEncoder(), Ridge()), X)
    code = re.search(r"of their own: (make_column_transformer\(.*SimpleImputer\(\)\))", message)[1]
    assert is_exported(make_pipeline(eval(code), Ridge()), X)
