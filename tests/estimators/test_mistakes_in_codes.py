"""Mistakes in the form of y and in parameters, whose messages contain code that works when it is followed."""

from __future__ import annotations

import functools
import pathlib
import re
import tempfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import VotingRegressor
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, KBinsDiscretizer, OneHotEncoder, StandardScaler, TargetEncoder

from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import (
    ArgumentTypeError,
    DataError,
    ExportError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
)

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)

#: One column per class in different forms.
ONE_HOT = {
    "array": np.eye(3)[SPECIES],
    "list": np.eye(3, dtype=int)[SPECIES].tolist(),
    "frame": pd.get_dummies(pd.Series(SPECIES)),
    "polars": pytest.importorskip("polars").DataFrame(np.eye(3, dtype=int)[SPECIES]),
    "sparse": OneHotEncoder().fit_transform(SPECIES[:, None]),
}


@pytest.mark.parametrize("given", ONE_HOT.values(), ids=ONE_HOT)
def test_one_column_per_class_becomes_classes_as_the_message_says(given):
    with pytest.raises(DataError) as e:
        C(LogisticRegression()).fit(IRIS, given)
    with pytest.warns(UserWarning, match="has exactly one 1") as warned:
        C(max_iter=1).fit(IRIS, given)
    for said in (str(e.value), str(warned[0].message)):
        (code,) = re.findall(r"pass (\S+\.argmax\(axis=1\))", said)
        labels = eval(code, {"y": given, "numpy": np})
        assert labels.tolist() == SPECIES.tolist()
        C(max_iter=1).fit(IRIS, labels)  # filterwarnings = error


NAMES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]


@pytest.mark.parametrize(
    "given, code",
    [
        (ONE_HOT["array"], "numpy.array(['setosa', 'versicolor', 'virginica'])[y.argmax(axis=1)]"),
        (ONE_HOT["list"], "numpy.array(['setosa', 'versicolor', 'virginica'])[numpy.asarray(y).argmax(axis=1)]"),
        (ONE_HOT["frame"], "numpy.array(['setosa', 'versicolor', 'virginica'])[y.to_numpy().argmax(axis=1)]"),
        (pd.get_dummies(NAMES), "y.idxmax(axis=1)"),
        (pd.get_dummies(NAMES)[["virginica", "setosa", "versicolor"]], "y.idxmax(axis=1)"),
        (
            pytest.importorskip("polars").Series("", NAMES).to_dummies(separator=""),
            "numpy.array(y.columns)[y.to_numpy().argmax(axis=1)]",
        ),
    ],
    ids=["array", "list", "frame", "frame of classes", "frame in another order", "polars"],
)
def test_one_column_per_class_becomes_names_that_the_model_knows(given, code):
    model = LogisticRegression(max_iter=1000).fit(IRIS, NAMES)
    with pytest.raises(DataError, match="was fitted on one class per row. If y has one column per class") as e:
        C(model).fit(IRIS, given)
    assert str(e.value).endswith(f", pass {code}.")
    labels = np.asarray(eval(code, {"y": given, "numpy": np}))
    assert labels.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(C(model, max_iter=1).fit(IRIS, labels).classes_, model.classes_)


@pytest.mark.parametrize("labels", [SPECIES, NAMES], ids=["numbers", "names"])
@pytest.mark.parametrize("given", [ONE_HOT["array"], ONE_HOT["list"], ONE_HOT["frame"]], ids=["array", "list", "frame"])
def test_a_validation_set_with_one_column_per_class_is_passed_as_the_message_says(labels, given):
    given = given[1::2]
    with pytest.raises(DataError, match="but the model was fitted on one class per row. If y has one column") as e:
        C(max_iter=1).fit(IRIS[::2], labels[::2], X_val=IRIS[1::2], y_val=given)
    (code,) = re.findall(r"pass (\S.*\.argmax\(axis=1\)\]?)", str(e.value))
    found = eval(code, {"y_val": given, "numpy": np})
    assert found.tolist() == labels[1::2].tolist()
    C(max_iter=1).fit(IRIS[::2], labels[::2], X_val=IRIS[1::2], y_val=found)


def test_labels_of_a_multilabel_model_are_passed_as_an_indicator_matrix():
    topics = np.eye(3, dtype=int)[SPECIES] + np.eye(3, dtype=int)[0]
    model = C(max_iter=1).fit(IRIS, topics.clip(max=1))
    with pytest.raises(DataError, match="one class per row, .* on 3 labels per row. Pass an indicator matrix of 3 col"):
        model.losses(IRIS, SPECIES)


def test_rows_of_dictionaries_become_a_graph_as_the_message_says():
    rows, rent = [{"town": "Rome", "area": 1.0}, {"town": "Oslo", "area": 2.5}] * 20, np.arange(40.0)
    tuned = R(make_pipeline(DictVectorizer(), Ridge()), max_iter=1).fit(rows, rent)
    with pytest.raises(ExportError, match="in place of DictVectorizer, on pandas.DataFrame") as e:
        tuned.get_trained_onnx()
    (code,) = re.findall(r"fit (make_column_transformer\(.*\)) in place", str(e.value))
    names = {"make_column_transformer": make_column_transformer, "OneHotEncoder": OneHotEncoder, "columns": ["town"]}
    whole = R(make_pipeline(eval(code, names), Ridge()), max_iter=1).fit(pd.DataFrame(rows), rent)
    assert {*whole.onnx_status_.values()} == {"ONNX"}
    np.testing.assert_allclose(whole.predict(pd.DataFrame(rows)), tuned.predict(rows), rtol=1e-4)


def test_several_multiclass_targets_are_learned_as_the_message_says():
    targets = np.c_[SPECIES, (SPECIES + 1) % 3]
    with pytest.raises(
        DataError, match=r"one classifier per target: MultiOutputClassifier\(OrtGradientClassifier\(\.\.\.\)\)"
    ):
        C(max_iter=1).fit(IRIS, targets)
    assert MultiOutputClassifier(C(max_iter=1)).fit(IRIS, targets).predict(IRIS).shape == (150, 2)


def test_a_target_of_a_pipeline_with_several_is_learned_as_the_message_says():
    model = make_pipeline(StandardScaler(), MultiOutputClassifier(LogisticRegression()))
    with pytest.raises(DataError, match="At the end of a pipeline, it is ") as e:
        C(model, max_iter=1).fit(IRIS, SPECIES)
    code = re.search(r"pass (make_pipeline\(.*\))\.", str(e.value))[1]
    one = eval(code, {"make_pipeline": make_pipeline, "model": model})
    assert C(one, max_iter=1).fit(IRIS, SPECIES).score(IRIS, SPECIES) > 0.9


@pytest.mark.parametrize("name", ["max_iter", "n_iter_no_change"])
def test_an_infinite_number_of_epochs_is_a_large_number(name):
    with pytest.raises(ParameterError, match=rf"Got inf instead. Pass a large number for no limit, such as {name}=10"):
        R(**{name: np.inf}).fit(X, y)
    R(max_iter=1, n_iter_no_change=10**6).fit(X, y)


class Tensor:
    """A scalar of another library, such as a schedule of Keras returns."""

    def item(self):
        return 0.1

    def __float__(self):
        return 0.1


def test_a_rate_that_is_a_tensor_is_converted_as_the_message_says():
    def function(step):
        return Tensor()

    with pytest.raises(OptimizerError, match=r"learning_rate=lambda step: float\(function\(step\)\)"):
        R(learning_rate=function).fit(X, y)
    R(learning_rate=lambda step: float(function(step)), max_iter=1).fit(X, y)


def test_a_model_of_statsmodels_names_that_of_scikit_learn():
    made = type("OLS", (), {"__module__": "statsmodels.regression.linear_model", "fit": print})()
    with pytest.raises(ParameterError, match=r"not .* LinearRegression\(\) for OLS, PoissonRegressor\(\) for a GLM of"):
        R(made).fit(X, y)


def test_targets_of_text_are_not_taken_for_rows():
    towns = pd.DataFrame({"town": ["Bern", "Chur"] * 10, "size": np.arange(20.0)})
    encoded = make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough"), Ridge())
    ages = np.arange(20.0)[::-1] ** 2
    tuned = R(encoded.fit(towns, ages), max_iter=1)
    for call in (tuned.fit, tuned.fit(towns, ages).losses, tuned.partial_fit):
        with pytest.raises(DataError, match="y must be numeric, got the string 'late'. Use OrtGradientClassifier"):
            call(towns, ["late", "early"] * 10)
    with pytest.raises(DataError, match="The model has several inputs: town, size. Name a .* input: wrt='size'."):
        tuned.gradient(towns)
    assert tuned.gradient(towns, wrt="size").shape == (20, 1)


def test_bins_are_dense_in_a_file_as_the_message_says():
    rows = X[:, [0, 2]].astype(np.float32)
    with pytest.raises(ExportError, match="ONNX has no sparse matrices. Set encode='onehot-dense'"):
        R(make_pipeline(KBinsDiscretizer(3, strategy="uniform"), Ridge()), max_iter=1).fit(rows, y).get_trained_onnx()
    dense = make_pipeline(KBinsDiscretizer(3, strategy="uniform", encode="onehot-dense"), Ridge())
    assert R(dense, max_iter=1).fit(rows, y).get_trained_onnx().graph.input


def test_the_target_of_a_row_among_its_columns_is_warned_of():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"town": [f"t{i}" for i in rng.integers(0, 100, 400)], "size": rng.normal(size=400)})
    y = rows["size"] + rng.normal(size=400)
    encoder = make_column_transformer((TargetEncoder(), ["town"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LinearRegression()).fit(rows[:300], y[:300])
    for given in (pipeline, clone(pipeline)):
        with pytest.warns(UserWarning, match="TargetEncoder inside was fitted on these rows") as warned:
            leaked = R(given, solver="lbfgs").fit(rows[:300], y[:300])
    code = re.search(r"make_pipeline\(pipeline.*?\]\)\)", str(warned[0].message))[0]
    assert code == "make_pipeline(pipeline[:-1], OrtGradientRegressor(pipeline[-1]))"
    outside = make_pipeline(pipeline[:-1], R(pipeline[-1], solver="lbfgs")).fit(rows[:300], y[:300])
    assert outside.score(rows[300:], y[300:]) > leaked.score(rows[300:], y[300:]) + 0.1
    R(pipeline, max_iter=1).fit(rows[300:], y[300:])  # other rows: no warning, and warnings are errors
    scaled = {"transformer": StandardScaler()}
    for around in (lambda one: VotingRegressor([("a", one)]), lambda one: TransformedTargetRegressor(one, **scaled)):
        given = around(pipeline).fit(rows[:300], y[:300])
        with pytest.warns(UserWarning, match="in [A-Z][A-Za-z]+, replace the member that has it by ") as warned:
            R(given, solver="lbfgs").fit(rows[:300], y[:300])
        member = re.search(r"by (make_pipeline\(.*\]\)\))", str(warned[0].message))[1]
        ours = functools.partial(R, solver="lbfgs")
        names = {"make_pipeline": make_pipeline, "member": pipeline, "OrtGradientRegressor": ours}
        again = around(eval(member, names)).fit(rows[:300], y[:300])
        assert again.score(rows[300:], y[300:]) > leaked.score(rows[300:], y[300:]) + 0.1


@pytest.mark.parametrize("kinds", [2, 3])
def test_the_class_of_a_row_among_its_columns_is_warned_of(kinds):
    rows = pd.DataFrame({"town": [f"t{i % 30}" for i in range(300)]})
    noise = np.random.default_rng(0).random(300) < 0.2
    classes = np.where(noise, np.arange(300) // 30, np.arange(300) % 30) % kinds
    pipeline = make_pipeline(make_column_transformer((TargetEncoder(), ["town"])), LogisticRegression())
    with pytest.warns(UserWarning, match=r"make_pipeline\(pipeline\[:-1\], OrtGradientClassifier\(pipeline\[-1\]"):
        C(pipeline.fit(rows, classes), max_iter=1).fit(rows, classes)


PRICES = {
    "0,125": ["0,125", "12,500", "-0,250"],
    "1,250": ["1,250", "950", "12,300"],
    "1,250.5": ["1,250.5", "950", "12,300"],
}


@pytest.mark.parametrize("name, expected", [("0,125", 0.125), ("1,250", 1250.0), ("1,250.5", 1250.5)])
def test_a_comma_of_decimals_and_one_of_thousands_are_told_apart(name, expected):
    frame = pd.DataFrame({"price": PRICES[name] * 10})
    for call, code in (
        (
            lambda: R(Ridge()).fit(frame, np.arange(30.0)),
            r"(X\['price'\]\.str\.\S+ '', regex=True\).*?astype\(float\))",
        ),
        (lambda: R(Ridge()).fit(frame.index.to_frame(), frame["price"]), r"(pandas.Series\(y\).*?astype\(float\))"),
        (lambda: R(Ridge()).fit(frame.to_numpy(), np.arange(30.0)), r"(pandas.Series\(numpy.*?shape\(X\)\))"),
    ):
        with pytest.raises(DataError) as e:
            call()
        values = {"X": frame, "y": frame["price"], "pandas": pd, "numpy": np}
        found = np.ravel(eval(re.search(code, str(e.value))[1], values))
        assert found[0] == expected
        assert ("may separate thousands or decimals" in str(e.value)) == (name == "1,250")


def test_infinity_beside_texts_is_found():
    frame = pd.DataFrame({"town": ["Bern", "Chur"] * 10, "size": np.arange(20.0)})
    frame.loc[4, "size"] = np.inf
    encoded = make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough"), Ridge())
    with pytest.raises(DataError, match=r"inf in row 4, column 'size'. Make it missing, X.replace\(\[numpy.inf"):
        R(encoded).fit(frame, np.arange(20.0))


def test_durations_become_days_as_the_message_says():
    days = np.arange(60).astype("timedelta64[D]").astype("timedelta64[s]")[:, None]
    with pytest.raises(DataError, match=r"X contains durations. .* such as X / numpy.timedelta64\(1, 'D'\) for days"):
        R(Ridge()).fit(days, np.arange(60.0))
    assert (days / np.timedelta64(1, "D")).ravel().tolist() == list(range(60))


def fourth(op, y_true, y_pred):
    return (y_true - y_pred) ** 4


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: R(loss=lambda op, t, p: sum((t - p) ** 2)).fit(X, y), LossError, "Leave out the sum or the mean over"),
        (lambda: R(loss=fourth(None, y, y)).fit(X, y), LossError, "array of shape (442,). Pass the function itself"),
        (lambda: R(loss=lambda op, t, p: op.Pow(t - p)).fit(X, y), ModelError, "it takes 2 operands, but got 1."),
        (
            lambda: R().partial_fit(X, y, epochs=3),
            ArgumentTypeError,
            "One call trains one epoch: call it once for each",
        ),
        (lambda: R().partial_fit(X, y, classes=[0, 1]), ArgumentTypeError, "A regressor has no classes. Leave it out"),
        (lambda: R(max_iter=1).fit(X, y).get_trained_onnx(opset=12), ArgumentTypeError, "changes it to 15 and later"),
        (lambda: R(empty_file()).fit(X, y), ModelError, "empty.onnx' is empty, 0 bytes. Write or download it again."),
        (lambda: binarized().get_trained_onnx(), ExportError, "takes floats. Pass X.astype({'cls': float}) to fit"),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def empty_file():
    path = pathlib.Path(tempfile.mkdtemp(), "empty.onnx")
    path.touch()
    return path


def binarized():
    frame = pd.DataFrame({"cls": [1, 2, 3] * 10, "town": ["Bern", "Chur", "Ulm"] * 10})
    encoder = make_column_transformer((Binarizer(threshold=2), ["cls"]), (OneHotEncoder(), ["town"]))
    return R(make_pipeline(encoder, Ridge()), max_iter=1).fit(frame, np.arange(30.0))
