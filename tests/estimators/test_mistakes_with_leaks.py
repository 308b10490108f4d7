"""Mistakes that show in no error: rows that know y, scaled twice, balanced twice, labels of another task."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDRegressor
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.rows import from_files

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
FEW = np.r_[0:50, 50:70, 100:110]  # rows with 50, 20 and 10 of each class
BALANCED = compute_sample_weight("balanced", SPECIES[FEW])

FLATS = pd.DataFrame({"area": np.linspace(20, 100, 80), "rooms": [1.0, 2.0, 3.0, 4.0] * 20})
PRICE = pd.Series(8 * FLATS.area + 100 * FLATS.rooms + 20 * np.sin(np.arange(80.0)), name="price")
SCALED_FLATS = pd.DataFrame(StandardScaler().fit_transform(FLATS), columns=FLATS.columns)
FLOWERS, KIND = pd.DataFrame(IRIS, columns=list("abcd")), pd.Series(NAMES, name="kind")


def of_columns(*steps):
    """Return a fitted pipeline that scales the columns of a frame by name."""
    return make_pipeline(make_column_transformer((make_pipeline(*steps), ["area", "rooms"])), Ridge()).fit(FLATS, PRICE)


def model(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] X) => {text}')


WEIGHTS = np.random.default_rng(0).normal(size=(4, 100)).round(3)
#: Scores of 100 classes, and probabilities of three.
MANY = model(f"(float[n, 100] Y) <float[4, 100] W = {{{', '.join(map(str, WEIGHTS.ravel()))}}}> {{ Y = MatMul(X, W) }}")
SHARES = model(
    "(float[n, 3] Y) <float[4, 3] W = {0.1, 0, 0, 0, 0.1, 0, 0, 0, 0.1, 0, 0, 0}> { s = MatMul(X, W) Y = Softmax<axis = 1>(s) }"
)
RANGED = make_pipeline(MinMaxScaler(), LogisticRegression()).fit(IRIS, SPECIES)
PARTS = from_files([0, 1], lambda i: (X[i::2], y[i::2]))


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: R(max_iter=1).fit(FLATS.assign(price_chf=0.93 * PRICE), PRICE),
            "The column 'price_chf' of X tells y, 'price', in each row",
        ),
        (
            lambda: R(max_iter=1).fit(FLATS.assign(log_price=np.log(PRICE)), PRICE),
            "The column 'log_price' of X tells y",
        ),
        (lambda: C(max_iter=1).fit(FLOWERS.assign(kind_code=SPECIES), KIND), "The column 'kind_code' of X tells y"),
        (
            lambda: R(max_iter=1).fit(X, y, X_val=X, y_val=y),
            "The validation set is X itself, so the model is trained on",
        ),
        (
            lambda: R(max_iter=1).fit(X, y, X_val=X[:50].copy(), y_val=y[:50]),
            "The validation set has rows that are in X",
        ),
        (lambda: R(max_iter=1).fit(PARTS, X_val=PARTS), "The validation set is X itself"),
        (
            lambda: C(RANGED, max_iter=1).fit(MinMaxScaler().fit_transform(IRIS), SPECIES),
            "are from 0 to 1, as after a MinMaxScaler, but the pipeline begins with one that was fitted on other values, "
            "such as from 4.3 to 7.9",
        ),
        (
            lambda: R(of_columns(SimpleImputer(), StandardScaler()), max_iter=1).fit(SCALED_FLATS, PRICE),
            "as after a StandardScaler, but the pipeline begins with one that was fitted on other values, with means such as 60",
        ),
        (
            lambda: C(class_weight="balanced", max_iter=1).fit(IRIS[FEW], SPECIES[FEW], BALANCED),
            "class_weight='balanced' multiplies them by the same weights once more. Leave one of the two out",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, np.where(np.arange(150) % 4, SPECIES, -1)),
            "The label -1 is a class of its own, but marks a row without a label in scikit-learn",
        ),
        (
            lambda: C(MANY, max_iter=1).fit(IRIS, SPECIES),
            "The model has 100 scores, but y has only the labels 0 to 2, which are taken for the first 3 of its classes",
        ),
        (
            lambda: C(SHARES, output_is="scores", max_iter=1).fit(IRIS, SPECIES),
            "the output 'Y' of the model contains probabilities, from which the loss would compute probabilities once more",
        ),
        (
            lambda: R(Ridge(alpha=10.0), l2=10.0, max_iter=1).fit(X, y),
            "l2=10.0 has the value of alpha of Ridge, but multiplies another penalty, because the objective is a mean over "
            "the rows. The same penalty is l2=alpha / n_samples of OrtGradientRegressor",
        ),
        (
            lambda: C(LogisticRegression(C=0.1), l2=0.1, max_iter=1).fit(IRIS, SPECIES),
            "l2=0.1 has the value of C of Log",
        ),
        (
            lambda: R(Ridge().fit(X, y), loss="epsilon_insensitive", loss_params={"epsilon": 1e3}, max_iter=2).fit(
                X, y
            ),
            "all predictions are within epsilon=1000 of y. Set a smaller one in the unit of y",
        ),
    ],
)
def test_a_mistake_is_warned_of(call, message):
    with pytest.warns(UserWarning, match=message):
        call()


def test_what_is_meant_is_not_warned_of():  # filterwarnings = error
    R(max_iter=1).fit(FLATS.assign(price_of_last_year=np.roll(PRICE, 4)), PRICE)
    R(max_iter=1).fit(FLATS.assign(price_id=np.random.default_rng(0).permutation(80)), PRICE)
    C(max_iter=1).fit(FLOWERS.assign(kind_of_soil=SPECIES // 2), KIND)
    train, held_out, y_train, y_held_out = train_test_split(X, y, random_state=0)
    R(max_iter=1).fit(train, y_train, X_val=held_out, y_val=y_held_out)
    counts = np.random.default_rng(0).integers(0, 2, (100, 3))  # few different rows
    R(max_iter=1).fit(counts[:60], counts[:60].sum(axis=1), X_val=counts[60:], y_val=counts[60:].sum(axis=1))
    C(RANGED, max_iter=1).fit(IRIS, SPECIES)
    C(RANGED, max_iter=1).fit(IRIS[:60], SPECIES[:60])
    in_range = MinMaxScaler().fit_transform(IRIS)
    C(make_pipeline(MinMaxScaler(), LogisticRegression()).fit(in_range, SPECIES), max_iter=1).fit(in_range, SPECIES)
    R(of_columns(SimpleImputer(), StandardScaler()), max_iter=1).fit(FLATS, PRICE)
    C(class_weight="balanced", max_iter=1).fit(IRIS[FEW], SPECIES[FEW], np.linspace(1, 2, 80))
    C(class_weight="balanced", max_iter=1).fit(IRIS, SPECIES, np.full(150, 2.0))
    C(max_iter=1).fit(IRIS[FEW], SPECIES[FEW], BALANCED)
    C(max_iter=1).fit(IRIS, SPECIES - 1)  # -1, 0, 1
    C(MANY, head="new", max_iter=1).fit(IRIS, SPECIES)
    C(MANY, max_iter=1).fit(IRIS, SPECIES + 40)
    C(MANY, max_iter=1).partial_fit(IRIS, SPECIES, classes=range(100))
    C(SHARES, output_is="probabilities", max_iter=1).fit(IRIS, SPECIES)
    R(Ridge(), l2=1.0, max_iter=1).fit(X, y)
    R(Ridge(alpha=10.0), l2=10.0 / len(X), max_iter=1).fit(X, y)
    R(SGDRegressor(alpha=0.1), l2=0.1, max_iter=1).fit(X / X.std(axis=0), (y - y.mean()) / y.std())
    GridSearchCV(R(Ridge(alpha=10.0), max_iter=1), {"l2": [10.0]}, cv=2).fit(X, y)
    R(Ridge().fit(X, y), loss="epsilon_insensitive", max_iter=2).fit(X, y)
