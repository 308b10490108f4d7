"""Wrong targets and weights of scikit-learn pipelines: the message names them, not the rows, and says what to do."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import _NotAnArray

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import DataError

X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])
VALUES = 2 * X.a + 1
LABELS = (VALUES > 1).astype(int).to_numpy()
WORDS = np.where(LABELS, "yes", "no")
DAYS = pd.Series(pd.date_range("2020", periods=len(X)))
ROWS, ZERO = X.to_numpy(), np.r_[0.0, np.ones(59)]
TOWN_AND_NUMBERS = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough"), LinearRegression()
)
LEAVE_OUT = r"Leave out the rows without a target: known = numpy.isfinite\(y\), fit\(X\[known\], y\[known\]\)"


def line(model=None, **parameters):
    model = make_pipeline(StandardScaler(), LinearRegression()) if model is None else model
    return OrtGradientRegressor(model, max_iter=1, **parameters)


def classes():
    return OrtGradientClassifier(make_pipeline(StandardScaler(), LogisticRegression()), max_iter=1)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: line().fit(X, WORDS), "^y must be numeric, got the string '(yes|no)'. Use OrtGradientClassifier"),
        (lambda: line().fit(X, VALUES).score(X, WORDS), "^y must be numeric, got the string"),
        (lambda: line().fit(X, VALUES.astype(str)), r"^y must be numeric.*numpy.asarray\(y\).astype\(float\)"),
        (lambda: line().fit(X, DAYS), "^y contains dates or durations"),
        (lambda: line().fit(X, DAYS - DAYS[0]), "^y contains dates or durations"),
        (lambda: line(TOWN_AND_NUMBERS).fit(X.assign(town=WORDS), DAYS), "^y contains dates or durations"),
        (lambda: line(TOWN_AND_NUMBERS).fit(X.assign(town=WORDS), DAYS - DAYS[0]), "^y contains dates or durations"),
        (lambda: classes().fit(X, np.r_[np.nan, LABELS[1:]]), "^Input y contains NaN, in 1 of 60 rows. Leave out"),
        (lambda: classes().fit(X, [["a", "b"]] * 60), "lists of strings, .*MultiLabelBinarizer"),
        (lambda: classes().fit(X, [("a",)] * 30 + [("a", "b")] * 30), "lists of different lengths, .*MultiLabelBinarizer"),
        (lambda: classes().fit(X, np.eye(2)[LABELS]), r"pass y.argmax\(axis=1\)"),
        (lambda: classes().fit(VALUES, X), "as if they were swapped"),
        (lambda: line(PoissonRegressor(), loss="poisson").fit(X, VALUES), "y must be 0 or more, and not 0 in all rows"),
        (
            lambda: line(TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp)).fit(X, VALUES),
            "in y, perhaps after a transformation such as the logarithm of a negative number",
        ),
        (lambda: line().fit(ROWS, np.log(ZERO)), rf"^Input y contains infinity .*\. {LEAVE_OUT}\.$"),
        (lambda: line(dtype="float64").fit(ROWS, np.log(ZERO)), rf"^Input y contains infinity .*\. {LEAVE_OUT}\.$"),
        (lambda: line().fit(ROWS, pd.Series(1 / ZERO)), rf"^Input y contains infinity .*\. {LEAVE_OUT}\.$"),
        (lambda: line().fit(ROWS, 0 / ZERO), rf"^Input y contains NaN\. {LEAVE_OUT}\.$"),
        (lambda: line().fit(ROWS, ZERO + 1e200), "^y contains numbers that are too large for float32. Divide y"),
        (lambda: classes().fit(X, LABELS, np.zeros(60)), "at least one non-zero number. Give the rows that count"),
        (lambda: classes().fit(X, LABELS, np.full(60, -0.5)), "-0.5 in row 0. Set the weight of a row to 0"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value encountered in", "ignore:divide by zero encountered in")
def test_the_message_names_the_targets_or_weights(call, message):
    with pytest.raises(ValueError, match=message):
        call()


TEXTS = np.where(LABELS, "red wine", "white bread")


@pytest.mark.parametrize("convert", [scipy.sparse.csr_matrix, lambda y: pd.DataFrame(y).astype("Float64")])
def test_labels_of_texts_may_be_sparse_or_nullable(convert):
    model = make_pipeline(CountVectorizer(), OneVsRestClassifier(LogisticRegression()))
    tuned = OrtGradientClassifier(model, max_iter=1).fit(TEXTS, convert(np.c_[LABELS, X.a > 0].astype(float)))
    assert tuned.predict(TEXTS).shape == (60, 2)


def test_weights_of_texts_may_be_any_array():
    tuned = line(make_pipeline(CountVectorizer(), Ridge())).fit(TEXTS, VALUES, _NotAnArray(np.ones(60)))
    assert tuned.predict(TEXTS).shape == (60,)


@pytest.mark.filterwarnings("ignore:divide by zero encountered in log")
def test_rows_with_an_infinite_target_are_left_out_as_the_message_says():
    y = np.log(ZERO)
    known = np.isfinite(y)
    model = line().fit(ROWS[known], y[known])
    np.testing.assert_allclose(model.predict(ROWS), 0, atol=1e-3)


SEVERAL = np.c_[LABELS, X.a > 0, X.b > 0].astype(float)
GAPS = np.where(np.arange(60)[:, None] % 7 == [0, 1, 9], np.nan, SEVERAL)
UNKNOWN = np.where(np.isnan(GAPS), -1, GAPS).astype(int)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, np.ndarray.tolist])
@pytest.mark.parametrize("model", [OrtGradientClassifier, OrtGradientRegressor])
def test_rows_with_a_gap_in_one_of_several_targets_are_left_out_as_the_message_says(make, model):
    y = make(GAPS)
    code = "known = numpy.isfinite(y).all(axis=1), fit(X[known], "
    with pytest.raises(DataError, match=re.escape(code)):
        model(max_iter=1).fit(ROWS, y)
    known = np.isfinite(y).all(axis=1)
    assert model(max_iter=1).fit(ROWS[known], np.asarray(y)[known]).predict(ROWS).shape == (60, 3)
    with pytest.raises(
        DataError, match=re.escape("known = numpy.isfinite(y_val).all(axis=1), fit(X, y, X_val=X_val[kn")
    ):
        model(max_iter=1).fit(ROWS, SEVERAL, X_val=ROWS, y_val=GAPS)


def test_several_labels_with_minus_one_as_the_message_says():
    with pytest.raises(DataError, match=re.escape("known = (y >= 0).all(axis=1), fit(X[known], y[known]).")):
        OrtGradientClassifier(max_iter=1).fit(ROWS, UNKNOWN)
    known = (UNKNOWN >= 0).all(axis=1)
    for rows, y in [(ROWS, (UNKNOWN == 1).astype(int)), (ROWS[known], UNKNOWN[known])]:
        assert OrtGradientClassifier(max_iter=1).fit(rows, y).predict(ROWS).shape == (60, 3)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, "polars"])
def test_the_code_for_infinity_in_a_validation_set_runs(make):
    if make == "polars":
        make = pytest.importorskip("polars").DataFrame
    model, rows = OrtGradientRegressor(max_iter=1), make(np.where(np.arange(60)[:, None] == 3, np.inf, ROWS))
    with pytest.raises(DataError, match=r"known = numpy\.isfinite\(.*X_val=.*, y_val=y_val\[known\]\)") as e:
        model.fit(make(ROWS + 0.1), VALUES.to_numpy(), X_val=rows, y_val=VALUES.to_numpy())
    test, fit = re.search(r"known = (.*), (fit\(.*\))\.$", str(e.value)).groups()
    names = {"numpy": np, "X": make(ROWS + 0.1), "y": VALUES.to_numpy(), "X_val": rows, "y_val": VALUES.to_numpy()}
    names["known"] = eval(test, names)
    assert names["known"].sum() == 59
    assert eval(f"model.{fit}", names | {"model": model}).n_iter_ == 1


def test_the_code_for_numbers_in_place_of_texts_in_a_validation_set_names_y_val():
    model, y = classes(), np.where(LABELS, "1", "2")
    with pytest.raises(DataError, match=r"Pass numpy\.asarray\(y_val\)\.astype\(str\)"):
        model.fit(X, y, X_val=X, y_val=y.astype(int))
    assert model.fit(X, y, X_val=X + 1e-3, y_val=y.astype(int).astype(str)).n_iter_ == 1
    with pytest.raises(DataError, match=r"pass numpy\.array\(\['no', 'yes'\]\)\[y_val\]"):
        model.fit(X, WORDS, X_val=X, y_val=LABELS)


def test_labels_of_a_validation_set_that_y_lacks_are_left_out_as_the_message_says():
    train, y_val = X[LABELS == 0], pd.Series(LABELS)
    y_train = np.arange(len(train)) % 2 + 5
    y_val[:20] = 5
    code = "known = numpy.isin(y_val, y), fit(X, y, X_val=X_val[known], y_val=y_val[known])."
    with pytest.raises(DataError, match=re.escape(f"train_test_split(X, y, stratify=y), or leave these out: {code}")):
        classes().fit(train, y_train, X_val=X + 1, y_val=y_val)
    known = np.isin(y_val, y_train)
    assert classes().fit(train, y_train, X_val=(X + 1)[known], y_val=y_val[known]).n_iter_ == 1


@pytest.mark.parametrize("given", [slice(None), 1, [1]], ids=["of each class", "of the second", "in a column"])
def test_shares_of_classes_are_learned_by_their_cross_entropy_as_the_message_says(given):
    n = 3 if given == slice(None) else 2
    shares = np.random.default_rng(1).dirichlet(np.ones(n), len(ROWS))
    model = OrtGradientClassifier(LogisticRegression(), init="random", solver="lbfgs", dtype="float64", tol=1e-6)
    with pytest.raises(DataError, match=r"To learn the shares, pass each row with each class") as e:
        model.fit(ROWS, shares[:, given])
    arguments = re.search(r"with each class: (X=.*)\.$", str(e.value)).group(1)
    eval(f"model.fit({arguments})", {"numpy": np, "X": ROWS, "y": shares[:, given], "model": model})
    best = LogisticRegression(C=1e9, tol=1e-8, max_iter=1000)
    best.fit(np.repeat(ROWS, n, axis=0), np.tile(range(n), len(ROWS)), shares.ravel())
    np.testing.assert_allclose(model.predict_proba(ROWS), best.predict_proba(ROWS), atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(ROWS).mean(axis=0), shares.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame])
def test_weights_of_targets_are_those_of_a_loss_as_the_message_says(make):
    model, y = OrtGradientRegressor(max_iter=3, random_state=0), make(np.c_[VALUES, -VALUES])
    with pytest.raises(DataError, match=r"got shape \(60, 2\)\. Pass one weight per row\. To weight targets") as e:
        model.fit(X, y, sample_weight=np.ones((60, 2)))
    loss = eval(re.search(r"loss=(lambda .*)\.$", str(e.value)).group(1), {"numpy": np})
    found, expected = model.set_params(loss=loss).fit(X, y).loss_curve_, line().loss
    assert found == pytest.approx(model.set_params(loss=expected).fit(X, y).loss_curve_)


def test_a_validation_set_in_the_place_of_weights_is_passed_by_name_as_the_message_says():
    with pytest.raises(
        DataError, match=r"shape \(20, 3\)\. Pass a validation set by name: fit\(X, y, X_val=..., y_val"
    ):
        line().fit(X[20:], VALUES[20:], X[:20])
