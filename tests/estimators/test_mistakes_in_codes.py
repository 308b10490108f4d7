"""Mistakes in the form of y and in parameters, whose messages contain code that works when it is followed."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import DataError, ExportError, OptimizerError, ParameterError

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


def test_several_multiclass_targets_are_learned_as_the_message_says():
    targets = np.c_[SPECIES, (SPECIES + 1) % 3]
    with pytest.raises(DataError, match=r"one classifier per target: sklearn.multioutput.MultiOutputClassifier\(model"):
        C(max_iter=1).fit(IRIS, targets)
    assert MultiOutputClassifier(C(max_iter=1)).fit(IRIS, targets).predict(IRIS).shape == (150, 2)


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
        R(make_pipeline(KBinsDiscretizer(3), Ridge()), max_iter=1).fit(rows, y).get_trained_onnx()
    dense = make_pipeline(KBinsDiscretizer(3, encode="onehot-dense"), Ridge())
    assert R(dense, max_iter=1).fit(rows, y).get_trained_onnx().graph.input
