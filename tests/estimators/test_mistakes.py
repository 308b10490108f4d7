"""Mistakes of a first hour, and the answers: what was found, and what to do."""

import copy
import gzip
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import ClassVar

import joblib
import numpy as np
import onnx
import onnx.parser
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from numpy.lib.recfunctions import structured_to_unstructured
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import NMF
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.exceptions import ConvergenceWarning, InconsistentVersionWarning, NotFittedError
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
    SGDClassifier,
    SGDOneClassSVM,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.naive_bayes import CategoricalNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVR, LinearSVR, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import onnxtrain
from onnxtrain import (
    Inputs,
    LiveLossCurve,
    LoRA,
    LossCurveDisplay,
    OrtGradientClassifier,
    OrtGradientForwardBackward,
    OrtGradientRegressor,
    WeightsDisplay,
    attributes,
    plot_graph,
    rows,
    synonyms,
)
from onnxtrain.errors import (
    ArgumentTypeError,
    ConvergenceError,
    ConversionError,
    DataError,
    DeviceError,
    ExportError,
    FileError,
    LossError,
    ModelError,
    OnnxTrainError,
    OptimizerError,
    ParameterError,
    WeightError,
)
from onnxtrain.losses import LOSSES
from onnxtrain.losses.table import SYNONYMS
from onnxtrain.optim import SGD, Adam, Constant, Cosine, Optimizer, Proximal, RMSprop, Schedule
from onnxtrain.testing import check_gradient

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES_OF_SPECIES = np.array(["setosa", "versicolor", "virginica"])
MLP = MLPClassifier((4,), tol=1, random_state=0).fit(IRIS, SPECIES)
LINE = to_onnx(LinearRegression().fit(X, y), X[:1].astype(np.float32))
NETWORK = to_onnx(MLP, IRIS[:1].astype(np.float32), options={"zipmap": False})
R, C = OrtGradientRegressor, OrtGradientClassifier


class OfAUser(OrtGradientRegressor):
    """A user's subclass."""


def onnx_model(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')


TWO = onnx_model("(float[n, 10] X) => (float[n, 10] a, float[n, 10] b) { a = Neg(X) b = Abs(X) }")

NORMALIZED = onnx_model(
    "(float[n, 4] X) => (float[n, 3] Y)"
    "<float[4, 3] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 3, 2}, float[4] one = {1, 1, 1, 1}, float[4] zero = {0, 0, 0, 0}>"
    "{ h, m, v = BatchNormalization<training_mode = 1>(X, one, zero, zero, one) Y = MatMul(h, W) }"
)

TWO_COLUMNS = onnx_model("(float[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {1, 2}> { Y = MatMul(X, W) }")

TWO_INPUTS = onnx_model(
    "(float[n, 10] a, float[n, 10] b) => (float[n, 1] Y) <float[1] W = {1}>"
    "{ c = Mul(a, b) k = Constant<value = int64[1] {1}>() s = ReduceSum(c, k) Y = Mul(s, W) }"
)

NUMBERS_AND_CODES = onnx_model(
    "(float[n, 4] num, float[n, 2] cat) => (float[n, 1] Y) <float[4, 1] V = {1, 2, 3, 4}, float[2, 1] W = {1, 2}>"
    "{ v = MatMul(num, V) w = MatMul(cat, W) Y = Add(v, w) }"
)

INDICES = onnx_model(
    "(int64[n, 1] X) => (float[n, 1] Y) <float[3, 2] E = {1, 2, 3, 4, 5, 6}, float[2, 1] W = {1, 2}>"
    "{ g = Gather(E, X) f = Flatten(g) Y = MatMul(f, W) }"
)

POSITIONS = onnx_model(
    "(int64[n, t] X) => (float[n, t, 2] Y) <float[3, 2] E = {1, 2, 3, 4, 5, 6}, float[2, 2] W = {1, 2, 3, 4}>"
    "{ g = Gather(E, X) Y = MatMul(g, W) }"
)
SEQUENCES = np.arange(60).reshape(20, 3) % 3

PIXELS = onnx_model(
    "(float[n, 3, 8, 8] X) => (float[n, 2] Y) <float[3, 2] W = {1, 2, 3, 4, 5, 6}>"
    "{ p = GlobalAveragePool(X) f = Flatten(p) Y = MatMul(f, W) }"
)
PAIR = np.ones((20, 2))

#: A table of a user: numbers, text, dates.
TABLE = pd.DataFrame(
    {"area": np.arange(20.0), "town": ["Bern", "Ulm"] * 10, "since": pd.to_datetime(["2020-01-01", "2021-01-01"] * 10)}
)
RENT = np.arange(20.0)
DIGITS_AS_TEXT = pd.DataFrame({"area": np.arange(20.0), "rooms": ["2", "3.5"] * 10})


ENCODED = make_pipeline(OneHotEncoder(), LogisticRegression())


def without_features(model, kind=FloatTensorType):
    """Return the file of a model that does not state the number of features."""
    return to_onnx(model.fit(IRIS, SPECIES), initial_types=[("X", kind([None, None]))])


#: Files that do not state the number of features, which their first operators show.
OPEN_FILES = {
    "Ridge": lambda: without_features(Ridge()),
    "classifier": lambda: without_features(LogisticRegression(max_iter=9999)),
    "two targets": lambda: to_onnx(
        Ridge().fit(IRIS, IRIS[:, :2]), initial_types=[("X", FloatTensorType([None, None]))]
    ),
    "StandardScaler": lambda: without_features(make_pipeline(StandardScaler(), Ridge())),
    "StandardScaler in float64": lambda: without_features(make_pipeline(StandardScaler(), Ridge()), DoubleTensorType),
    "MinMaxScaler": lambda: without_features(make_pipeline(MinMaxScaler(), Ridge())),
    "SVR": lambda: without_features(SVR()),
    "MatMul": lambda: onnx_model(
        "(float[n, d] X) => (float[n, 1] Y) <float[4, 1] W = {1, 2, 3, 4}> { Y = MatMul(X, W) }"
    ),
    "Gemm": lambda: onnx_model(
        "(float[n, d] X) => (float[n, 1] Y) <float[1, 4] W={1, 2, 3, 4}> {Y = Gemm<transB = 1>(X, W)}"
    ),
}
WITH_TOWNS = make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["area"])), Ridge())
WITH_SPLINES = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["town"]), (SplineTransformer(), ["area"])), LogisticRegression()
)

SCALED = make_pipeline(StandardScaler(), LogisticRegression()).fit(IRIS, SPECIES)
GOOD = LogisticRegression(max_iter=1000).fit(IRIS, SPECIES)

TRAINED = R(PIXELS, max_iter=0).fit(np.ones((20, 3, 8, 8)), PAIR)


@pytest.fixture(scope="module")
def fitted():
    return R(max_iter=0).fit(X, y)


# ------------------------------------------------------------ names of arguments

NAMES = [
    ("epochs", "Did you mean 'max_iter'?"),
    ("n_epochs", "Did you mean 'max_iter'?"),
    ("lr", "Did you mean 'learning_rate'?"),
    ("learning_rate_init", "Did you mean 'learning_rate'?"),
    ("batch", "Did you mean 'batch_size'?"),
    ("optimizer", "Did you mean 'solver'?"),
    ("patience", "Did you mean 'n_iter_no_change'?"),
    ("criterion", "Did you mean 'loss'?"),
    ("seed", "Did you mean 'random_state'?"),
    ("n_jobs", "Did you mean 'n_threads'?"),
    ("max_grad_norm", "Did you mean 'clip_norm'?"),
    ("validation_split", "Did you mean 'validation_fraction'?"),
    ("gradient_accumulation_steps", "Did you mean 'accumulate'?"),
    ("model", "Did you mean 'estimator'?"),
    ("device_index", "Did you mean 'device'?"),
    ("learning_loss", "Did you mean 'loss'?"),
    ("los", "Did you mean 'loss'?"),
    ("Max_Iter", "Did you mean 'max_iter'?"),
    ("weight_decay", "solver=onnxtrain.optim.AdamW(weight_decay=...)"),
    ("momentum", "solver=onnxtrain.optim.SGD(momentum=...)"),
    ("validation_data", "fit(X, y, X_val=..., y_val=...)"),
    ("eval_set", "fit(X, y, X_val=..., y_val=...)"),
    ("callbacks", "fit(X, y, callback=...)"),
    ("X_val", "It is an argument of fit: fit(X, y, X_val=...)."),
    ("C", "l2 = 1 / (2 * C * n_samples)"),
    ("alpha", "l2 = alpha / n_samples"),
    ("delta", "loss_params={'delta': 1.0}"),
    ("lora_rank", "weights_to_train=onnxtrain.LoRA(rank=...)"),
    ("class_weight", "class_weight is a parameter of OrtGradientClassifier."),
    ("num_boost_round", "Did you mean 'max_iter'?"),
    ("colsample_bytree", "Set it on the model: estimator=GradientBoostingRegressor(max_depth=...) or the classifier."),
    ("alphas", "Use a search of scikit-learn: GridSearchCV("),
    ("positive", "Set it on the model: estimator=LinearRegression("),
    ("optimizer__momentum", "solver=onnxtrain.optim.SGD(momentum=...)"),
    ("module__hidden", "Pass a model that has its layers: estimator=model."),
    ("iterator_train__batch_size", "Did you mean 'batch_size'?"),
    ("callbacks__patience", "Did you mean 'n_iter_no_change'?"),
    ("qqq", "Known: accumulate, average, "),
]


@pytest.mark.parametrize("name, remedy", NAMES)
def test_an_unknown_parameter_is_answered_with_ours(name, remedy):
    said = f"OrtGradientRegressor has no parameter {name!r}. "
    with pytest.raises(ArgumentTypeError) as e:
        R(**{name: 1})
    assert str(e.value).startswith(said)
    assert remedy in str(e.value)
    with pytest.raises(ParameterError) as e:
        make_pipeline(R()).set_params(**{f"ortgradientregressor__{name}": 1})
    assert str(e.value).startswith(said)
    assert remedy in str(e.value)


@pytest.mark.parametrize("name", sorted({*synonyms.OURS, *synonyms.REMEDY_OF}))
def test_no_name_of_another_library_is_one_of_ours(name):
    assert name not in {*R().get_params(), *C().get_params()}


@pytest.mark.parametrize("ours", synonyms.SYNONYMS)
def test_what_is_proposed_exists(ours):
    optimizers = (SGD, onnxtrain.optim.Adam)
    known = {n for cls in (R, C, LoRA) for n in cls().get_params()} | {f for cls in optimizers for f in vars(cls())}
    assert ours in known


@pytest.mark.parametrize("estimator", [R(Ridge(), loss="huber"), C(max_iter=3), LoRA(rank=2)], ids=repr)
def test_the_contract_of_parameters_holds(estimator):
    assert repr(clone(estimator)) == repr(estimator)
    assert repr(type(estimator)(**estimator.get_params(deep=False))) == repr(estimator)
    assert estimator.set_params() is estimator
    assert repr(pickle.loads(pickle.dumps(estimator))) == repr(estimator)


def test_every_loss_of_another_library_is_one_of_ours():
    assert set(SYNONYMS.values()) <= set(LOSSES)
    assert all(SYNONYMS.get(name.replace("_", ""), name) == name for name in LOSSES)


# ------------------------------------------------------------------------- calls

CALLS = [
    # names of arguments
    (lambda _: R(None, "huber"), ArgumentTypeError, "OrtGradientRegressor takes 1 positional argument, got 2."),
    (
        lambda _: R().fit(X, y, epochs=3),
        ArgumentTypeError,
        "It is a parameter of the estimator: OrtGradientRegressor(max_iter=...)",
    ),
    (
        lambda _: R().fit(X, y, batch_size=3),
        ArgumentTypeError,
        "It is a parameter of the estimator: OrtGradientRegressor(batch_size",
    ),
    (lambda _: R().fit(X, y, callbacks=[]), ArgumentTypeError, "has no argument 'callbacks'. Pass a function to fit"),
    (
        lambda _: R().fit(X, y, None, X),
        ArgumentTypeError,
        "takes only X, y, sample_weight by position, got 4 arguments",
    ),
    (lambda _: R().fit(X), DataError, "requires y to be passed, but the target y is None: fit(X, y)."),
    (
        lambda _: R.fit(X, y),
        ArgumentTypeError,
        "fit must be called on an estimator, not on ndarray. Create one first",
    ),
    (lambda r: r.predict(X, y), ArgumentTypeError, "OrtGradientRegressor.predict takes only X by position, got 2"),
    (
        lambda r: r.predict(X, verbose=0),
        ArgumentTypeError,
        "has no argument 'verbose'. It is a parameter of the estimator",
    ),
    (
        lambda _: SGD(lr=0.1),
        ArgumentTypeError,
        "learning_rate is a parameter of the estimator: OrtGradientRegressor(learning_rate=...)",
    ),
    (lambda _: SGD(momentun=0.1), ArgumentTypeError, "SGD has no parameter 'momentun'. Did you mean 'momentum'?"),
    (
        lambda _: SGD(0.1),
        ArgumentTypeError,
        "SGD takes no positional arguments, got 1. Pass arguments by name: SGD(momentum=...). The learning "
        "rate is a parameter of the estimator: OrtGradientRegressor(learning_rate=...).",
    ),
    (lambda _: Adam(0.1, 0.9), ArgumentTypeError, "by name: Adam(beta_1=...). The learning rate is a parameter"),
    (
        lambda _: SGD(momentum=0.1, nesterov=0.9),
        OptimizerError,
        "SGD: nesterov must be True or False, got 0.9. The learning rate is a",
    ),
    (lambda _: Constant(0.1, 0.2), ArgumentTypeError, "Constant takes 1 positional argument, got 2."),
    (lambda _: Cosine(lr=0.1), ArgumentTypeError, "Cosine has no parameter 'lr'. Did you mean 'learning_rate'?"),
    (lambda _: LoRA(r=8), ArgumentTypeError, "LoRA has no parameter 'r'. Did you mean 'rank'?"),
    (lambda _: R(loss="huber", loss_params={"d": 1}).fit(X, y), LossError, "has no parameter 'd'"),
    (lambda _: GridSearchCV(R(), {"losss": ["huber"]}).fit(X, y), ParameterError, "'losss'. Did you mean 'loss'?"),
    # losses
    (lambda _: R(loss="mse").fit(X, y), LossError, "Unknown loss 'mse'. Did you mean 'squared_error'?"),
    (lambda _: R(loss="MAE").fit(X, y), LossError, "Did you mean 'absolute_error'?"),
    (lambda _: R(loss="smooth_l1").fit(X, y), LossError, "Did you mean 'huber'?"),
    (lambda _: R(loss="pinball").fit(X, y), LossError, "Did you mean 'quantile'?"),
    (lambda _: C(loss="cross_entropy").fit(IRIS, SPECIES), LossError, "Did you mean 'log'?"),
    (lambda _: C(loss="BCEWithLogitsLoss").fit(IRIS, SPECIES), LossError, "Did you mean 'log'?"),
    (lambda _: C(loss="ce").fit(IRIS, SPECIES), LossError, "Did you mean 'log'?"),
    (
        lambda _: C(loss="mse").fit(IRIS, SPECIES),
        LossError,
        "It is called 'squared_error' here and is for numbers, with OrtG",
    ),
    (
        lambda _: R(loss="bce").fit(X, y),
        LossError,
        "It is called 'log' here and is for classes, with OrtGradientClassifier",
    ),
    (
        lambda _: C(loss="l2").fit(IRIS, SPECIES),
        LossError,
        "The loss 'l2' is for numbers. Use it with OrtGradientRegressor, or",
    ),
    (lambda _: R(loss=None).fit(X, y), LossError, "loss must be a name or a function, got None"),
    # solvers and rates
    (lambda _: R(solver="L-BFGS-B").fit(X, y), OptimizerError, "Did you mean 'lbfgs'?"),
    (lambda _: R(solver="sag").fit(X, y), OptimizerError, "Did you mean 'sgd'?"),
    (lambda _: R(solver=None).fit(X, y), OptimizerError, "(adagrad, adam, adamw, lbfgs, rmsprop, sgd)"),
    (lambda _: R(solver=SGD).fit(X, y), OptimizerError, "got the class SGD. Pass SGD()"),
    (lambda _: R(learning_rate=-1).fit(X, y), OptimizerError, "learning_rate must be a number in (0, inf), got -1."),
    (
        lambda _: R(learning_rate=float("nan")).fit(X, y),
        OptimizerError,
        "learning_rate must be a number in (0, inf), got nan.",
    ),
    (
        lambda _: R(learning_rate="0.1").fit(X, y),
        OptimizerError,
        "the string '0.1'. Pass the number, learning_rate=0.1.",
    ),
    (
        lambda _: R(learning_rate=lambda: 0.1).fit(X, y),
        OptimizerError,
        "is called as function(step), but the function takes other arguments",
    ),
    (
        lambda _: R(learning_rate=Cosine).fit(X, y),
        OptimizerError,
        "Expected a schedule, got the class Cosine. Pass Cosine()",
    ),
    # models
    (lambda _: R(Ridge).fit(X, y), ParameterError, "estimator must be an instance, got the class Ridge. Pass Ridge()"),
    (
        lambda _: R("ridge").fit(X, y),
        ModelError,
        "There is no file 'ridge'. A model given as a string must be the path of an ONNX file",
    ),
    (
        lambda _: R(os.path.dirname(__file__)).fit(X, y),
        ModelError,
        "/estimators' is a folder. Pass the path of an ONNX file",
    ),
    (
        lambda _: R(LINE.graph).fit(X, y),
        ParameterError,
        "estimator must be a whole model, got GraphProto. Pass the onnx.ModelProto",
    ),
    (lambda _: R(KMeans()).fit(X, y), ParameterError, "KMeans is a clusterer, which learns without y"),
    (lambda _: R(R()).fit(X, y), ParameterError, "estimator is itself an OrtGradientRegressor. Pass its model"),
    (
        lambda _: R(make_pipeline(StandardScaler(), R(Ridge()))).fit(X, y),
        ParameterError,
        "'ortgradientregressor' of the Pipeline is an OrtGradientRegressor, whose weights would not be trained. Put "
        "there the estimator that the OrtGradientRegressor was made from, or what its to_sklearn() returns",
    ),
    (
        lambda _: R(VotingRegressor([("a", Ridge()), ("b", make_pipeline(StandardScaler(), R()))])).fit(X, y),
        ParameterError,
        "'ortgradientregressor' of the Pipeline is an OrtGradientRegressor, whose weights would not be trained",
    ),
    (
        lambda _: R(VotingRegressor([("a", Ridge()), ("b", OfAUser(Ridge()))])).fit(X, y),
        ParameterError,
        "'b' of the VotingRegressor is an OfAUser, whose weights would not be trained",
    ),
    (
        lambda _: R(Ridge()).set_params(estimator__l2=0.1),
        ParameterError,
        "estimator, a Ridge, has no parameter 'l2'. 'l2' is a parameter of the estimator around it: set 'l2' without a",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge())).set_params(estimator__ridge__l2=0.1),
        ParameterError,
        "'l2' is a parameter of the estimator around it: set 'l2' without a prefix.",
    ),
    (
        lambda _: C(early_stopping=True, max_iter=1).fit(IRIS, np.where(np.arange(150) == 3, 7, SPECIES)),
        DataError,
        "cannot hold out validation_fraction=0.1 of 150 rows: the class 7 has only 1 row. Set early_stopping=False",
    ),
    (
        lambda r: setattr(r, "intercept_", 5.0),
        AttributeError,
        "intercept_ cannot be assigned. Assign the weight: model.weights_['intercept'] = values.",
    ),
    (
        lambda _: setattr(R(make_pipeline(StandardScaler(), Ridge()), max_iter=0).fit(X, y), "coef_", X[0]),
        AttributeError,
        "coef_ cannot be assigned. Assign the weight: model.weights_['ridge.coef'] = values.",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge()), max_iter=0).fit(X, y).weights_.clear(),
        DataError,
        "cannot be removed. To set one to 0: model.weights_['ridge.coef'][:] = 0.",
    ),
    (
        lambda _: (
            C(CategoricalNB().fit(np.arange(6).reshape(-1, 1) % 3, [0, 1] * 3), max_iter=0)
            .fit(np.arange(6).reshape(-1, 1) % 3, [0, 1] * 3)
            .predict([[-1]])
        ),
        DataError,
        "Use the tokenizer or the encoding that the model was trained with",
    ),
    (
        lambda _: R(max_iter=1).fit(np.full((3, 1), np.inf, np.float16), np.arange(3.0)),
        DataError,
        "X is float16, whose largest number is 65504. Compute it, or read it, as float32.",
    ),
    (
        lambda _: R(max_iter=1).fit(np.array([[1.0, np.inf], [2.0, np.inf]]), [1.0, 2.0]),
        DataError,
        "inf in row 0, column 1. Every row has it. Leave out its columns before fit, or replace it: numpy.where(",
    ),
    (
        lambda _: R(max_iter=1).fit(X, y, np.where(np.arange(len(X)) % 100 == 7, np.nan, 1.0)),
        DataError,
        "sample_weight contains NaN in 5 of its 442 rows, first in row 7. Set the weight of a row to 0",
    ),
    (
        lambda _: R(max_iter=1).fit(X, y, pd.Series([None, 1.0] * 221, dtype=object)),
        DataError,
        "sample_weight contains NaN in 221 of its 442 rows, first in row 0",
    ),
    (
        lambda _: R(max_iter=1, warm_start=True).fit(X, y).fit(X[:, :8], y),
        DataError,
        "X has 8 features, but OrtGradientRegressor is expecting 10 features as input. Pass the columns that fit got, in "
        "the same order. With warm_start=True, fit continues the last fit; for other columns, set False.",
    ),
    (
        lambda _: C(BaggingClassifier(C(NETWORK))).fit(IRIS, SPECIES),
        ParameterError,
        "'estimator' of the BaggingClassifier is an OrtGradientClassifier, whose weights would not be trained. An ONNX "
        "model is no part of a model: put the BaggingClassifier outside",
    ),
    (lambda _: R(LogisticRegression()).fit(X, y), ParameterError, "Train it with OrtGradientClassifier"),
    (lambda _: C(Ridge()).fit(IRIS, SPECIES), ParameterError, "Train it with OrtGradientRegressor"),
    (
        lambda _: R(inputs={"a": 1}).fit(X, y),
        ParameterError,
        "applies to the inputs of an ONNX model, but got no estimator. Leave it out",
    ),
    (
        lambda _: C(NETWORK, output="proba").fit(IRIS, SPECIES),
        ModelError,
        "has no output 'proba'. Known: label, probabilities",
    ),
    (
        lambda _: R(TWO).fit(X, y),
        ModelError,
        "a: FLOAT[n,10], b: FLOAT[n,10]. Set output to one of them, the name of the output",
    ),
    (
        lambda _: R(TWO, output=2).fit(X, y),
        ModelError,
        "There is no output 2: the model has 2 (0: 'a', 1: 'b'). Set output to one of them.",
    ),
    (
        lambda _: onnxtrain.add_loss_output(TWO, output_index=1.5),
        ModelError,
        "output_index must be a name, a position or None, got 1.5.",
    ),
    (
        lambda _: onnxtrain.add_loss_output(TWO),
        ModelError,
        "Set output_index to one of them, the name of the output",
    ),
    (
        lambda _: onnxtrain.add_loss_output(onnxtrain.add_loss_output(LINE)),
        ModelError,
        "'loss' is one number for all rows, like a loss. Set output_index='variable', or pass the model as it was before "
        "this loss was added, or exported without labels.",
    ),
    (
        lambda _: onnxtrain.add_loss_output(NETWORK, output_index="label"),
        ModelError,
        "is not floating-point. Set output_index to another output: 'probabilities'.",
    ),
    (
        lambda _: R(TWO, output="a").fit(X, np.stack([y] * 10, 1)),
        WeightError,
        "no weight between its inputs and its output 'a'. Add a layer to train with head='new', features='a'.",
    ),
    (
        lambda _: R(onnx_model("(float[n, 10] X) => (int64[n, 10] a) { a = Cast<to = 7>(X) }")).fit(X, y),
        ModelError,
        "The model has no floating-point output: a: INT64[n,10]. Export the model with its scores or probabilities",
    ),
    (
        lambda _: onnxtrain.add_loss_output(
            onnx_model("(float[n, k] X) => (float[n, k] a) { a = Softmax<axis = 1>(X) }"), score_name="log"
        ),
        LossError,
        "Declare it as a dim_value of that output in model.graph.output.",
    ),
    (
        lambda _: R(
            onnx_model("(seq(float[n, 10]) X) => (float[n, 10] a) { a = ConcatFromSequence<axis = 0>(X) }")
        ).fit(X, y),
        ModelError,
        "The input 'X' of the model is not a tensor (sequence), so it cannot take rows. Export the model with a tensor",
    ),
    (
        lambda _: R(LINE, head="new", features="qqq").fit(X, y),
        ModelError,
        "qqq",
    ),
    # rows
    (lambda _: R().fit(None, y), DataError, "X is None. Pass the rows"),
    (lambda _: R().fit("rows.csv", y), DataError, "got the string 'rows.csv'. Read the file"),
    (
        lambda _: R().fit((row for row in X), y),
        ArgumentTypeError,
        "which can be read only once, but each epoch needs a pass over all rows. Pass an array or a frame, or parts that can be read again: onnxtrain.rows",
    ),
    (
        lambda _: R(Ridge()).fit({"a": X[:, 0]}, y),
        DataError,
        "X must be an array or a frame for Ridge, got dict.",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge())).fit({"a": X[:, 0]}, y),
        DataError,
        "X must be an array or a frame for Pipeline, got dict. Pass pandas.DataFrame(X).",
    ),
    (lambda _: R().fit(pd.Series(list(X)), y), DataError, "stack them into a matrix: numpy.stack(list(X))."),
    (lambda _: R().fit(Inputs(X=X), y), DataError, "X must be an array or a frame for a linear model, got Inputs."),
    (lambda r: r.predict({"X": X}), DataError, "a linear model, got dict."),
    (
        lambda _: R().fit([["a"], ["b"]], [1.0, 2.0]),
        DataError,
        "The rows contain strings, but the model takes numbers. Put an encoder",
    ),
    (lambda _: R(LINE).fit(X[:, :4], y), DataError, "X has 4 features, but the model takes 10"),
    (lambda r: r.predict(X[:, :3]), DataError, "X has 3 features, but OrtGradientRegressor is expecting 10"),
    (lambda r: r.gradient(X, "X"), DataError, "got the string 'X'. Name an input as gradient(X, wrt='X')."),
    # targets and weights
    (
        lambda _: R().fit(X, scipy.sparse.csr_matrix(y.reshape(-1, 1))),
        DataError,
        "The y of a regressor must be an array, got a sparse matrix",
    ),
    (
        lambda _: R().fit(IRIS, np.array(["a", "b", "c"])[SPECIES]),
        DataError,
        "got the string 'a'. Use OrtGradientClassifier to learn classes",
    ),
    (lambda _: C().fit(IRIS, SPECIES + 0.5), DataError, "Use OrtGradientRegressor to learn numbers."),
    (
        lambda _: C().fit(IRIS, np.array([0, "a"] * 75, object)),
        DataError,
        "Labels must be all numbers or all strings, got int, str",
    ),
    (
        lambda _: C().fit(IRIS[:10], SPECIES[:10]),
        DataError,
        "y has only one class, 0, but an unfitted classifier needs two",
    ),
    (lambda _: C().fit(IRIS[:10], ["a"] * 10), DataError, "y has only one class, 'a', but"),
    (lambda _: C(NETWORK, head="new").fit(IRIS[:10], SPECIES[:10]), DataError, "y has one class, 0."),
    (lambda _: C(MLP).fit(IRIS, np.eye(3)[SPECIES]), DataError, "If y has one column per class, pass y.argmax(axis=1)"),
    (lambda _: C(MLP).fit(IRIS, np.full((150, 3), 1 / 3)), DataError, "with the largest share, pass y.argmax(axis=1)"),
    (
        lambda _: C(onnxtrain.with_new_head(NETWORK, 3)).fit(IRIS, np.where(SPECIES == 0, 1, 3)),
        DataError,
        "Without names in the file, the labels are the columns of its output, 0 to 2. If they count from 1, pass y - 1.",
    ),
    (
        lambda _: C(onnxtrain.with_new_head(NETWORK, 3)).fit(IRIS, np.where(SPECIES == 0, 1, 7)),
        DataError,
        "the labels are the columns of its output, 0 to 2. Set head='new' to give",
    ),
    (
        lambda _: C(max_iter=1).fit(IRIS, SPECIES).score(IRIS, SPECIES.astype(str)),
        DataError,
        "the classes of the model are of type int: [0, 1, 2]. Pass numpy.asarray(y).astype(int).",
    ),
    (
        lambda _: C(max_iter=1).fit(IRIS, SPECIES).score(IRIS, NAMES_OF_SPECIES[SPECIES]),
        DataError,
        "y has labels such as 'setosa', but the classes of the model are [0, 1, 2]. Pass labels as in fit; numpy.unique(y",
    ),
    (
        lambda _: C(max_iter=1).fit(IRIS, NAMES_OF_SPECIES[SPECIES]).score(IRIS, SPECIES + 5),
        DataError,
        "y has labels such as 5, but the classes of the model are ['setosa', 'versicolor', 'virginica']. Pass labels as in fit.",
    ),
    (lambda _: R().fit(IRIS, SPECIES, X_val=0.2), DataError, "X_val must be an array or a frame, got 0.2"),
    (lambda _: R().fit(IRIS, SPECIES, sample_weight="w"), DataError, "Pass the column, X['w']."),
    (lambda _: R().fit(IRIS, SPECIES, sample_weight="balanced"), DataError, "To weight classes, set class_weight"),
    (lambda _: R().fit(IRIS, SPECIES, print), DataError, "Pass a function as callback=..."),
    (
        lambda _: R(Ridge().fit(IRIS, SPECIES)).fit(IRIS[:, :2], SPECIES),
        DataError,
        "Pass those columns, or a model for",
    ),
    (lambda _: R(loss="poisson").fit(IRIS, -SPECIES), DataError, "Choose another loss, such as 'squared_error'"),
    (lambda _: R().fit([(IRIS, SPECIES)]), DataError, "X is a list of batches. Call partial_fit(*batch) for each"),
    (lambda _: R().fit("rows.csv"), DataError, "Read 'rows.csv' first, for example with pandas.read_csv"),
    (
        lambda _: R().fit(type("Half", (), {"read": print})()),
        DataError,
        "Rows in parts, which need no y, have the methods",
    ),
    (lambda _: C(LoRA()).fit(IRIS, SPECIES), ParameterError, "estimator must be a model, got LoRA()"),
    (lambda m: m.predict(IRIS, SPECIES), ArgumentTypeError, "Use score(X, y) to compare predictions with y."),
    (lambda _: onnxtrain.load("no_such_file"), ModelError, "Pass the path that was passed to onnxtrain.save"),
    (lambda m: LossCurveDisplay.from_estimator(m, ax=print), ArgumentTypeError, "ax must be a matplotlib Axes"),
    (
        lambda _: LiveLossCurve("no_such_folder/loss.png"),
        ParameterError,
        "Create the folder first: os.makedirs('no_such_folder')",
    ),
    (lambda _: onnxtrain.loss(print), ParameterError, "Give the decorator the name in parentheses"),
    (
        lambda _: C(MLP).fit(IRIS, SPECIES + 1),
        DataError,
        "labels that the model does not know: 3. Known: 0, 1, 2. The y of the first fit, or classes= of",
    ),
    (
        lambda _: R().fit(X, y, "balanced"),
        DataError,
        "got 'balanced'. To weight classes, set class_weight",
    ),
    (
        lambda _: C().fit(IRIS, SPECIES, {0: 1.0}),
        DataError,
        "sample_weight must contain one number per row, got {0: 1.0}",
    ),
    # validation, callbacks
    (lambda _: R().fit(X, y, X_val=X), DataError, "y_val is missing: fit(X, y, X_val=..., y_val=...)"),
    (
        lambda _: R().fit(X, y, X_val=X[:, :2], y_val=y),
        DataError,
        "Invalid validation set (X_val, y_val): X has 2 features",
    ),
    (
        lambda _: R(early_stopping=True).fit(X[:1], y[:1]),
        DataError,
        "early_stopping=True cannot hold out validation_fraction=0.1 of 1 row",
    ),
    (
        lambda _: R().fit(X, y, callback=3),
        ParameterError,
        "callback must be a function, called as callback(info) after each epoch, got 3.",
    ),
    (
        lambda _: R().fit(X, y, callback=[print]),
        ParameterError,
        "For several: callback=lambda info: any([f(info) for f in callbacks]).",
    ),
    (
        lambda _: R().fit(X, y, callback=lambda: True),
        ParameterError,
        "is called as callback(info) after each epoch, but it takes other arguments",
    ),
    # weights
    (
        lambda _: R(weights_to_train=True).fit(X, y),
        ParameterError,
        "a list of these, 'all', 'head' or LoRA(...), got True",
    ),
    (
        lambda _: R(weights_to_train={"coef": 1}).fit(X, y),
        ParameterError,
        "got {'coef': 1}. For example, pass [w.name for w in trainable_weights(model)]; for the last layer, ",
    ),
    (
        lambda _: R(weights_to_train=LoRA).fit(X, y),
        ParameterError,
        "weights_to_train must be an instance of LoRA, got the class. Pass LoRA()",
    ),
    (
        lambda _: R(weights_to_train=["-coef", "-intercept"]).fit(X, y),
        WeightError,
        "selects none of coef, intercept. Name some",
    ),
    (lambda _: R(device="mps").fit(X, y), DeviceError, "Unknown device 'mps'"),
    # what comes out
    (lambda r: r.get_trained_onnx("m.onnx"), ParameterError, "Pass a file as path=..."),
    (lambda r: onnxtrain.save("line.onnx", r), ExportError, "Pass the estimator first: save(estimator, path)."),
    (lambda r: onnxtrain.save(r, "no/folder/line.onnx"), FileError, "No such file or directory"),
    (lambda _: onnxtrain.load(3), ArgumentTypeError, "path must be a file path, got 3."),
    (lambda r: r.save("line.onnx"), AttributeError, "has no save. Use onnxtrain.save(estimator, path), a function."),
    (
        lambda _: R().loss_curve_,
        AttributeError,
        "OrtGradientRegressor has no loss_curve_ before it is fitted. Call fit first.",
    ),
    (lambda _: R().coef_, AttributeError, "has coef_ only after it was fitted with a scikit-learn estimator"),
    (lambda _: R().predict(X), NotFittedError, "Call 'fit'"),
    (
        lambda _: C(MLP, max_iter=0).fit(IRIS, SPECIES).coef_,
        AttributeError,
        "MLPClassifier has no coef_. Use weights_ for the trained weights.",
    ),
    (lambda _: onnxtrain.average_states(3), DataError, "states must be a list of states"),
]

MORE_CALLS = [
    # nested parameters
    (
        lambda _: R(solver=SGD()).set_params(solver__momentum=0.9),
        ParameterError,
        "solver is set as a whole, such as solver=onnxtrain.optim.SGD(momentum=0.9).",
    ),
    (
        lambda _: R().set_params(weights_to_train__rank=2),
        ParameterError,
        "has no parameters. Set weights_to_train to onnxtrain.LoRA() first.",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge())).set_params(ridg__alpha=1),
        ParameterError,
        "OrtGradientRegressor has no parameter 'ridg__alpha'. Did you mean 'estimator__ridge__alpha'?",
    ),
    *(
        (
            lambda _, name=name: R(make_pipeline(StandardScaler(), Ridge())).set_params(**{name: 1}),
            ParameterError,
            words,
        )
        for name, words in {
            "estimator__alpha": "estimator, a Pipeline, has no parameter 'alpha'. Did you mean 'estimator__ridge__alpha'?",
            "estimator__rigde__alpha": "no parameter 'rigde__alpha'. Did you mean 'estimator__ridge__alpha'?",
            "estimator__ridge__alfa": "no parameter 'ridge__alfa'. Did you mean 'estimator__ridge__alpha'?",
            "estimator__steps__x_y": "estimator__steps is [",
            "estimator__zzz": "estimator, a Pipeline, has no parameter 'zzz'. See estimator.get_params().",
            "pipeline__ridge__alpha": "no parameter 'pipeline__ridge__alpha'. Did you mean 'estimator__ridge__alpha'?",
        }.items()
    ),
    # what is registered, and losses of one's own
    (
        lambda _: onnxtrain.loss(lambda op, t, p: p),
        ParameterError,
        "The name of a loss must be a string, got <function",
    ),
    (lambda _: onnxtrain.gradient_rule(np.sin), ParameterError, "The name of a gradient rule must be a string"),
    (
        lambda _: R(loss=lambda op, t, p: abs(t)).fit(X, y),
        WeightError,
        "Nothing is left to train. Does a loss of your own use y_pred",
    ),
    (
        lambda _: onnxtrain.add_loss_output(LINE, loss="huber"),
        ArgumentTypeError,
        "add_loss_output has no argument 'loss'. Pass the loss as score_name: score_name='huber'.",
    ),
    # files
    (
        lambda r: onnxtrain.plot_graph(r).save("a.png"),
        ParameterError,
        "got the file name 'a.png'. Name the file 'a.svg'.",
    ),
    (
        lambda _: rows.from_parquet(TABLE, label="area"),
        ArgumentTypeError,
        "got DataFrame. Pass a table in memory to fit itself: fit(X, y).",
    ),
    (
        lambda _: R().fit(rows.from_files(["a"], lambda _: (X, None))),
        DataError,
        "With from_parquet, pass label=..., the name of the column; with from_dask and from_zarr, y.",
    ),
    (
        lambda _: R(LINE).fit({"x": X}, y),
        DataError,
        "X has no column 'X', which is an input of the model. Rename its column: {'X': X['x']}.",
    ),
    (
        lambda _: C(MLP, head="new").fit(IRIS, SPECIES),
        ParameterError,
        "to learn other classes, leave out head='new' and pass an unfitted one",
    ),
    # tables
    (
        lambda _: R().fit(TABLE[["area", "town"]], RENT),
        DataError,
        "'Bern'. X contains strings in 'town', but the model takes numbers. Put",
    ),
    (lambda _: C().fit(TABLE[["area", "town"]], RENT > 9), DataError, "Put an encoder before it"),
    (lambda _: R(MLPRegressor()).fit(TABLE[["area", "town"]], RENT), DataError, "Put an encoder before it"),
    (lambda _: R().fit(TABLE[["area", "since"]], RENT), ArgumentTypeError, "X contains dates or durations in 'since'"),
    (
        lambda _: R(make_pipeline(make_column_transformer((StandardScaler(), ["area", "since"])), Ridge())).fit(
            TABLE, RENT
        ),
        ArgumentTypeError,
        "X contains dates or durations in 'since', but the model takes numbers. Convert such a column to numbers, for example (X['since'] - ",
    ),
    (
        lambda _: (
            R(make_pipeline(OneHotEncoder(), Ridge()))
            .fit(TABLE[["town"]], RENT)
            .predict(pd.DataFrame({"town": ["Rom"]}))
        ),
        DataError,
        "Found unknown categories ['Rom'] in column 0 during transform. Fit again with an encoder that ignores unknown",
    ),
    (
        lambda _: R(make_pipeline(MinMaxScaler(), NMF(2), Ridge()), max_iter=1).fit(X + 1, y).predict(X),
        DataError,
        " Scale the columns before this step by MinMaxScaler(clip=True), which maps values below those of fit to 0.",
    ),
    (
        lambda _: C(make_pipeline(SelectKBest(chi2, k=2), LogisticRegression())).fit(IRIS - 5, SPECIES),
        DataError,
        "Input X must be non-negative. Scale the columns before this step by MinMaxScaler(clip=True)",
    ),
    (
        lambda _: C(CategoricalNB()).fit(IRIS - 5, SPECIES),
        DataError,
        "CategoricalNB (input X). Encode the categories as numbers from 0: make_pipeline(OrdinalEncoder(), model).",
    ),
    (
        lambda _: R(max_iter=1).fit(TABLE[["area"]], RENT).predict(TABLE[["area"]].assign(z=1.0)),
        DataError,
        "unseen at fit time:\n- z",
    ),
    # rows and targets
    (
        lambda _: R().fit(X, y.reshape(1, -1)),
        DataError,
        "X has 442 rows, y has 1. y seems to be transposed. Pass y.ravel().",
    ),
    (lambda _: R().fit(X, np.c_[y, y].T), DataError, "y has 2. y seems to be transposed. Pass y.T."),
    (lambda _: R().fit(X.T, y), DataError, "X has 10 rows, y has 442. X seems to be transposed. Pass X.T."),
    (lambda _: R().fit(X, y[:-1]), DataError, "X has 442 rows, y has 441."),
    (
        lambda _: R().fit(TABLE[["area"]], "area"),
        DataError,
        "y must have one target per row of X, got the single value 'area'. Pass the column, y=X['area'], and X without it.",
    ),
    (lambda _: R().fit(X, 3.0), DataError, "y must have one target per row of X, got the single value 3.0."),
    (
        lambda _: R().fit(X, np.where(y > 300, np.nan, y)),
        DataError,
        "y contains NaN. Leave out the rows without a target",
    ),
    (
        lambda _: R().fit(np.where(X > 0.1, np.nan, X), y),
        DataError,
        "Input X contains NaN in row 7, column 5. Pass a model with an imputer",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"a": [1.0, np.nan], "b": [1.0, 2.0]}), [1.0, 2.0]),
        DataError,
        "Input X contains NaN in 'a'. Pass a model with an imputer, make_pipeline(SimpleImputer(), model).",
    ),
    (lambda _: R().fit(X[:0], y[:0]), DataError, "Found array with 0 sample(s) (shape=(0, 10))"),
    (lambda _: R(loss="poisson").fit(X, y - 200), DataError, "The loss 'poisson' requires y >= 0, got -175."),
    (
        lambda _: C(class_weight={0: -1, 1: 2, 2: 1}).fit(IRIS, SPECIES),
        ParameterError,
        "class_weight must contain finite, non-negative numbers, got -1 for 0.",
    ),
    (
        lambda _: C(class_weight={"0": 1, "1": 2, "2": 1}).fit(IRIS, SPECIES),
        DataError,
        "the number 1 and not the string '1'",
    ),
    (
        lambda _: C(class_weight=[1, 2]).fit(IRIS, SPECIES),
        ParameterError,
        "got [1, 2]. For one class per row, pass dict(zip(numpy.unique(y), [1, 2])); for several labels per row, the we",
    ),
    (lambda _: R().fit(np.array(3.0), y), DataError, "Expected 2D array, got scalar array instead"),
    # models
    (
        lambda _: R(StandardScaler()).fit(X, y),
        ParameterError,
        "StandardScaler is a transformer, which learns without y",
    ),
    (lambda _: R(make_pipeline(StandardScaler())).fit(X, y), ParameterError, "Pipeline ends with a transformer"),
    (
        lambda _: R(make_pipeline(StandardScaler(), "model.onnx")).fit(X, y),
        ParameterError,
        "The last step of the pipeline is 'model.onnx', which is no estimator. Put the pipeline outside, and pass the "
        "ONNX model: make_pipeline(StandardScaler(), OrtGradientRegressor('model.onnx')).",
    ),
    (
        lambda _: C(make_pipeline(OneHotEncoder(), make_pipeline(StandardScaler(), NETWORK))).fit(IRIS, SPECIES),
        ParameterError,
        "make_pipeline(OneHotEncoder(), StandardScaler(), OrtGradientClassifier(onx))",
    ),
    (lambda _: R([Ridge(), Ridge()]).fit(X, y), ParameterError, "its bytes or a path, got list."),
    (
        lambda _: R(pathlib.Path("no/such.onnx")).fit(X, y),
        ModelError,
        "the path of an ONNX file. The current folder is '",
    ),
    (
        lambda _: R(b"PK\3\4" + bytes(20)).fit(X, y),
        ModelError,
        "It is a zip archive, as written by PyTorch and Keras. Load it there",
    ),
    (
        lambda _: R(pickle.dumps(Ridge())).fit(X, y),
        ModelError,
        "It is a pickle. Load it with joblib.load or pickle.load, and pass",
    ),
    (lambda _: R(b"hello").fit(X, y), ModelError, "5 bytes cannot be read as an ONNX model"),
    # parameters
    (
        lambda _: R().set_params(estimator__alpha=1),
        ParameterError,
        "but estimator=None has no parameters. Set estimator to a scikit-learn estimator first.",
    ),
    (
        lambda _: R(LINE).set_params(estimator__alpha=1),
        ParameterError,
        "estimator__alpha sets a parameter of estimator, but",
    ),
    (lambda _: R(l1=-1).fit(X, y), ParameterError, "must be a float in the range [0.0, inf). Got -1 instead."),
    (
        lambda _: R(batch_size=None).fit(X, y),
        ParameterError,
        "For all rows in one step, set batch_size=len(X) or solver='lbfgs'.",
    ),
    (
        lambda _: R(early_stopping=10).fit(X, y),
        ParameterError,
        "n_iter_no_change is the number of epochs without progress",
    ),
    (
        lambda _: R(init="he_normal").fit(X, y),
        ParameterError,
        "Got 'he_normal' instead. 'estimator' starts from the weights of estimator=, 'random' from Glorot uniform ones",
    ),
    (
        lambda _: R(max_iter=None).fit(X, y),
        ParameterError,
        "Pass a large number for no limit: tol, n_iter_no_change and early_stopping end a fit before.",
    ),
    (lambda _: R(n_threads=0).fit(X, y), ParameterError, "Got 0 instead. None uses one thread for a small model"),
    (
        lambda _: R(random_state=np.random.default_rng(0)).fit(X, y),
        ParameterError,
        "of a numpy Generator, int(generator.integers(2**31))",
    ),
    (lambda _: R(tol=None).fit(X, y), ParameterError, "To never stop early, set tol=0 and n_iter_no_change=max_iter."),
    (
        lambda _: R(early_stopping=True, validation_fraction=20).fit(X, y),
        ParameterError,
        "For a tenth of the rows, set 0.1.",
    ),
    (
        lambda _: R(learning_rate="auto").fit(X, y),
        OptimizerError,
        "Unknown learning rate schedule 'auto'. Known: adaptive, constant",
    ),
    (lambda _: R(learning_rate="plateau").fit(X, y), OptimizerError, "Did you mean 'adaptive'?"),
    (lambda _: R(learning_rate="ReduceLROnPlateau").fit(X, y), OptimizerError, "Did you mean 'adaptive'?"),
    (lambda _: R(learning_rate="InverseTimeDecay").fit(X, y), OptimizerError, "Did you mean 'invscaling'?"),
    (lambda _: R(learning_rate=Adam()).fit(X, y), OptimizerError, "is an optimizer. Pass it as solver=."),
    (
        lambda _: R(solver=Cosine(0.1)).fit(X, y),
        OptimizerError,
        "final_ratio=0.0). Pass a schedule as learning_rate=.",
    ),
    (lambda _: R(solver="newton-cg").fit(X, y), OptimizerError, "Did you mean 'lbfgs'?"),
    (
        lambda _: R(loss=mean_absolute_error).fit(X, y),
        LossError,
        "got mean_absolute_error of sklearn. Pass loss='absolute_error'.",
    ),
    (
        lambda _: R(loss=lambda a, b: a - b).fit(X, y),
        LossError,
        "For example: lambda op, y_true, y_pred: abs(y_true - y_pred).",
    ),
    (lambda _: C(loss="binary:logistic").fit(IRIS, SPECIES), LossError, "Did you mean 'log'?"),
    (lambda _: R(device=0).fit(X, y), DeviceError, "Did you mean 'cuda:0'?"),
    (lambda _: R(device=-1).fit(X, y), DeviceError, "Did you mean 'cpu'?"),
    (lambda _: R(device="CUDAExecutionProvider").fit(X, y), DeviceError, "Did you mean 'cuda'?"),
    # what comes out
    (lambda r: onnxtrain.save(r, None), ArgumentTypeError, "path must be a file path, got None."),
    (lambda r: onnxtrain.save(r, os.curdir), FileError, "Is a directory. Pass a file in it: './model.onnx'."),
    (
        lambda _: LossCurveDisplay.from_estimator(Ridge()),
        ArgumentTypeError,
        "a fitted pipeline or search that ends with one, got Ridge.",
    ),
    (
        lambda r: r.evaluate(X, y),
        AttributeError,
        "OrtGradientRegressor has no evaluate. Use score(X, y) or losses(X, y).",
    ),
    (lambda r: r.state_dict(), AttributeError, "OrtGradientRegressor has no state_dict. Use weights_."),
    (lambda r: r.to("cuda"), AttributeError, "has no to. Set device='cuda', a parameter of the estimator."),
]


LAST_CALLS = [
    (
        lambda _: C().fit(IRIS, SPECIES.astype(object)),
        DataError,
        "y has dtype object, but all its values are int. Pass y.astype(int).",
    ),
    # rows and targets
    (
        lambda _: R().fit(y, X),
        DataError,
        "X has shape (442,) and y has shape (442, 10), as if they were swapped. Call fit(X, y).",
    ),
    (
        lambda _: C().fit(SPECIES, IRIS),
        DataError,
        "X has shape (150,) and y has shape (150, 4), as if they were swapped",
    ),
    (lambda _: R().fit(X[:300], X[300:]), DataError, "train_test_split returns X_train, X_test, y_train, y_test."),
    (
        lambda _: R().fit(pd.DataFrame(X[:300]).add_prefix("column"), pd.DataFrame(X[300:]).add_prefix("column")),
        DataError,
        "train_test_split returns X_train, X_test, y_train, y_test.",
    ),
    (lambda _: R(scaler=StandardScaler()), ArgumentTypeError, "Scale in the model: estimator=make_pipeline(StandardS"),
    (lambda _: R(gpu_id=0), ArgumentTypeError, "Did you mean 'device'?"),
    (
        lambda _: R().fit([[1.0, 2.0], [3.0]], [1.0, 2.0]),
        DataError,
        "X[0] has 2 values and X[1] has 1 value, but a table has the same number of columns in each row. Pad the rows, numpy.array(",
    ),
    (
        lambda _: R().fit(X + 1j, y),
        DataError,
        "Complex data not supported. Pass real and imaginary parts as columns: numpy.",
    ),
    (
        lambda _: R().fit(X, pd.date_range("2020", periods=442)),
        DataError,
        "y contains dates or durations. Convert dates to numbers",
    ),
    (
        lambda _: R().fit(TABLE[["area"]], TABLE["since"] - TABLE["since"].min()),
        DataError,
        "y contains dates or durations",
    ),
    (
        lambda _: R().fit(TABLE[["area"]], pd.cut(RENT, 3)),
        ArgumentTypeError,
        "for example intervals of numbers, pass y.astype(str)",
    ),
    (lambda _: R().fit(X, set(y)), DataError, "y must be a list or an array, got set, whose entries cannot be indexed"),
    (
        lambda _: R().fit(X, (v for v in y)),
        DataError,
        "y must be a list or an array, got generator, whose entries cannot be",
    ),
    (
        lambda _: R(LINE).fit(X, y * 1e300),
        DataError,
        "y contains numbers that are too large for float32. Divide y by a constant",
    ),
    (lambda r: r.predict(np.full((1, 10), np.inf)), DataError, "inf in row 0, column 0. Every row has it."),
    (
        lambda _: R(LINE).fit(X, np.c_[y, y]),
        DataError,
        "the model has 1 output. Pass one column for each output. For other columns, give an ONNX model a head='new'",
    ),
    (
        lambda _: R().fit(X, y, ["heavy"] * 442),
        DataError,
        "sample_weight must contain one number per row, but contains 'heavy'.",
    ),
    (lambda r: r.score(X), DataError, "y is missing. Pass the labels of the rows: score(X, y) or losses(X, y)."),
    (lambda r: r.losses(X), DataError, "y is missing. Pass the labels"),
    # parameters
    (
        lambda _: R(dtype=np.float64).fit(X, y),
        ParameterError,
        "Pass a string: dtype='float64' for numpy.float64 or double, 'float32' for torch.float32. Half",
    ),
    (lambda _: R(dtype="double").fit(X, y), ParameterError, "Pass a string: dtype='float64'"),
    (
        lambda _: R(penalty="l2").fit(X, y),
        ParameterError,
        "Set l1= and l2= for all weights; penalty={'coef':",
    ),
    (lambda _: R(l1=True).fit(X, y), ParameterError, "l1 must be a number such as 0.01, got True."),
    (lambda _: R(l2=False).fit(X, y), ParameterError, "l2 must be a number such as 0.01, got False."),
    (lambda _: R(clip_norm=0).fit(X, y), ParameterError, "Got 0 instead. Pass the largest norm of all"),
    (
        lambda _: R(loss="huber", loss_params=[1.0]).fit(X, y),
        ParameterError,
        "Pass a mapping from names to values: loss_params={'delta': 1.0}.",
    ),
    (lambda _: R(loss_params={"delta": 1.0}).fit(X, y), LossError, "It is a parameter of 'huber'."),
    (lambda _: R(loss=type("Mine", (), {})).fit(X, y), LossError, "got the class Mine. Pass Mine()."),
    (
        lambda _: R(loss=lambda op, t, p: None).fit(X, y),
        LossError,
        "got NoneType: None. Begin its last line with return.",
    ),
    # models and files
    (lambda _: R("sklearn.Ridge").fit(X, y), ModelError, "Pass an estimator as an object, such as Ridge()."),
    (lambda _: R("https://host/m.onnx").fit(X, y), ModelError, "Download it, and pass the path of the file."),
    (
        lambda _: R([("ridge", Ridge())]).fit(X, y),
        ParameterError,
        "got list. Combine steps into an estimator with sklearn.pipeline",
    ),
    (
        lambda _: R(io.BytesIO(b"")).fit(X, y),
        ParameterError,
        "got BytesIO. Pass the content of the file, the bytes that read()",
    ),
    (
        lambda _: R(b'{"model_type": "bert"}').fit(X, y),
        ModelError,
        "It is a JSON file, such as a tokenizer or a configuration.",
    ),
    (
        lambda _: R(gzip.compress(b"model")).fit(X, y),
        ModelError,
        "It is compressed. Unpack it, for example with gzip -d.",
    ),
    (
        lambda _: R(b"\x1c\0\0\0TFL3" + bytes(9)).fit(X, y),
        ModelError,
        "It is a TensorFlow Lite model. Export its original",
    ),
    (
        lambda _: R((16).to_bytes(8, "little") + b'{"w":{}}' + bytes(9)).fit(X, y),
        ModelError,
        "It is a safetensors file: weights without a model",
    ),
    (
        lambda _: onnxtrain.onnx_derivative(Ridge()),
        ModelError,
        "got Ridge. Convert an estimator with skl2onnx.to_onnx(model, X[:1]).",
    ),
    (
        lambda _: onnxtrain.add_loss_output(Ridge()),
        ModelError,
        "got Ridge. Convert an estimator with skl2onnx.to_onnx(model, X[:1]).",
    ),
    # what comes out
    (
        lambda r: onnxtrain.save(make_pipeline(r), "a"),
        ExportError,
        "got Pipeline. Pass the one inside, pipeline[-1]",
    ),
    (
        lambda _: R().fit(X, y, callback=LossCurveDisplay),
        ParameterError,
        "got the class LossCurveDisplay. onnxtrain.LiveLossCurve() draws the loss during a fit.",
    ),
    (
        lambda _: R().fit(X, y, callback=lambda info: "stop"),
        ParameterError,
        "callback returned 'stop' after epoch 1. Return True to stop, None or False to continue.",
    ),
    (lambda r: r.weights, AttributeError, "OrtGradientRegressor has no weights. Use weights_."),
    (lambda r: r.forward(X), AttributeError, "has no forward. Use predict(X)."),
    (lambda r: r.transform(X), AttributeError, "or embed(X, output) for a value inside the model."),
    (lambda r: r.fit_transform(X, y), AttributeError, "has no fit_transform. Use predict(X), or embed(X, output)"),
    (lambda r: r.predict_classes(X), AttributeError, "has no predict_classes. Use predict(X)."),
    (lambda r: r.feature_importances_, AttributeError, "sklearn.inspection.permutation_importance(model, X, y)"),
    (lambda _: onnxtrain.OrtGradientRegresor, AttributeError, "Did you mean 'OrtGradientRegressor'?"),
    (lambda _: onnxtrain.Adam, AttributeError, "has no attribute 'Adam'. Use onnxtrain.optim.Adam."),
    (lambda _: onnxtrain.DataError, AttributeError, "'DataError'. Use onnxtrain.errors.DataError."),
    (lambda _: onnxtrain.__getattr__("dask"), AttributeError, "no attribute 'dask'. Run import onnxtrain.dask."),
    (lambda _: onnxtrain.Nothing, AttributeError, "has no attribute 'Nothing'"),
    (lambda _: onnxtrain.plot_graph(3), ArgumentTypeError, "or an ONNX model, got int."),
    (lambda _: onnxtrain.plot_graph(Ridge()), ArgumentTypeError, "got Ridge. For a scikit-learn estimator, pass"),
    (lambda _: onnxtrain.random_feed(3), ArgumentTypeError, "onnxruntime.InferenceSession, got int."),
    (lambda _: onnxtrain.random_feed([3]), ArgumentTypeError, "onnxruntime.InferenceSession, got int."),
    (lambda _: onnxtrain.random_feed(LINE), ArgumentTypeError, "model.graph.input of an onnx.ModelProto or"),
    (lambda _: Inputs(X), ArgumentTypeError, "got ndarray without a name."),
    (lambda _: Inputs({"a": X}), ArgumentTypeError, "Pass a dictionary as Inputs(**inputs)"),
    (
        lambda r: WeightsDisplay.from_estimator(r, weight="slope"),
        ArgumentTypeError,
        "'weight'. Arguments other than ax are passed to matplotlib's boxplot. To plot one weight, use WeightsDisplay({name",
    ),
    (
        lambda _: R(learning_rate=lambda step: 1 / step).fit(X, y),
        OptimizerError,
        "The learning rate of step 0 could not be computed: <lambda>(0) raised ZeroDivisionError: division by zero.",
    ),
    (
        lambda _: R(LinearRegression()).fit(DIGITS_AS_TEXT, RENT),
        ConversionError,
        "LinearRegression takes numeric columns, but X has strings or categories in 'rooms'.",
    ),
    (
        lambda _: R(LinearRegression()).fit(DIGITS_AS_TEXT.astype({"rooms": "category"}), RENT),
        ConversionError,
        "Convert numbers stored as strings with X.astype({'rooms': float}).",
    ),
    (
        lambda _: R(LinearRegression()).fit(DIGITS_AS_TEXT[["rooms"]], RENT),
        ConversionError,
        "takes numeric columns, but X has strings or categories in 'rooms'.",
    ),
]


@dataclass(frozen=True)
class WithoutSlots(Optimizer):
    def update(self, op, w, dw, slots, learning_rate):
        return op.Sub(w, dw)


@dataclass(frozen=True)
class OfOneMemory(Optimizer):
    slots: ClassVar[tuple[str, ...]] = ("a",)

    def update(self, op, w, dw, slots, learning_rate):
        return op.Sub(w, dw), ()


@dataclass(frozen=True)
class OfOtherArguments(Optimizer):
    def update(self, w, dw):
        return w, ()


@dataclass(frozen=True)
class OfAnotherShape(Optimizer):
    def update(self, op, w, dw, slots, learning_rate):
        return op.ReduceSum(w), ()


OF_TOKENS = onnx_model(
    """(int64[n, t] input_ids, int64[n, t] attention_mask) => (float[n, 2] logits)
    <float[5, 2] E = {0.1, -0.2, 0.3, 0.2, -0.1, 0, 1, 2, 3, 4}, int64[1] one = {1}> {
        v = Gather(E, input_ids)
        m = Cast<to = 1>(attention_mask)
        s = ReduceMean<axes = [1], keepdims = 1>(m)
        r = ReduceMean<axes = [1], keepdims = 0>(v)
        logits = Mul(r, s)
    }"""
)
OF_TWO_INPUTS = onnx_model(
    """(float[n, 3] area, float[n, 2] rooms) => (float[n, 1] price) <float[3, 1] A = {1, 2, 3}, float[2, 1] B = {1, 2}> {
        a = MatMul(area, A)
        b = MatMul(rooms, B)
        price = Add(a, b)
    }"""
)
GAPS = pd.DataFrame({"km": pd.array([1, None] * 10, dtype="Int64"), "make": ["Fiat", None] * 10})


#: An imputer with an indicator, which is of another type than texts.
FREQUENT = SimpleImputer(strategy="most_frequent", add_indicator=True)


def cars(step, column):
    """Return a pipeline that encodes one column of cars."""
    return make_pipeline(make_column_transformer((step, [column])), Ridge())


#: Mistakes of a second hour: files of others, rules of one's own, functions instead of estimators.
FURTHER_CALLS = [
    # a file of a pipeline
    (
        lambda _: (
            R(cars(make_pipeline(SimpleImputer(), StandardScaler()), "km"), max_iter=1)
            .fit(GAPS, RENT)
            .get_trained_onnx()
        ),
        ExportError,
        "scikit-learn runs 'columntransformer', which ONNX does not run identically (Missing values in the integer or "
        "boolean columns km: ONNX has them only for floats. Use X.astype({'km': float}) in fit and in predict)",
    ),
    (
        lambda _: (
            R(cars(make_pipeline(FREQUENT, OneHotEncoder()), "make"), max_iter=1)
            .fit(GAPS[["make"]], RENT)
            .get_trained_onnx()
        ),
        ExportError,
        "ONNX has no missing strings. Leave the imputer out, and pass X.fillna({'make': ",
    ),
    (
        lambda _: R(make_pipeline(FunctionTransformer(np.cbrt), Ridge()), max_iter=1).fit(X, y).get_trained_onnx(),
        ExportError,
        "Apply others to X before fit and predict)",
    ),
    (
        lambda _: (
            R(make_pipeline(DictVectorizer(), Ridge()), max_iter=1).fit([{"a": 1.0}] * 20, RENT).get_trained_onnx()
        ),
        ExportError,
        "the rows are a list of dictionaries, which a graph cannot take; for a graph of all of it, fit make_column_tra",
    ),
    (
        lambda _: (
            R(make_pipeline(FeatureHasher(4), Ridge()), max_iter=1).fit([{"a": 1.0}] * 20, RENT).get_trained_onnx()
        ),
        ExportError,
        "make_column_transformer((OneHotEncoder(), columns), remainder='passthrough') in place of FeatureHasher, on pa",
    ),
    (
        lambda _: (
            R(make_pipeline(FunctionTransformer(structured_to_unstructured), Ridge()), max_iter=1)
            .fit(np.array([(1.0, 2.0), (3.0, 5.0)] * 10, dtype=[("a", float), ("b", float)]), RENT)
            .get_trained_onnx()
        ),
        ExportError,
        "the rows are records, which a graph cannot take; for a graph of all of it, fit steps that take a table on pan",
    ),
    *(
        (
            lambda _, steps=steps, texts=texts: (
                C(make_pipeline(*steps, LogisticRegression()), max_iter=1).fit(texts, RENT > 9).get_trained_onnx()
            ),
            ExportError,
            "which ONNX does not run identically (ONNX does not split text into words as scikit-learn does).",
        )
        for steps, texts in [
            ([TfidfVectorizer()], ["good day", "bad"] * 10),
            ([TfidfVectorizer()], np.array(["good day", "bad"] * 10)),
            ([make_column_transformer((TfidfVectorizer(), "town"))], TABLE[["town"]]),
            (
                [make_column_transformer((TfidfVectorizer(), 1))],
                np.array([["a", "good day"], ["b", "bad"]] * 10, object),
            ),
        ]
    ),
    (
        lambda _: (
            R(make_pipeline(make_column_transformer((OneHotEncoder(), [0])), Ridge()), max_iter=1)
            .fit(np.array([["a", 1.0], ["b", 2.0]] * 10, object), RENT)
            .get_trained_onnx()
        ),
        ExportError,
        "the entries of an array have one type; pass a frame, which can have columns of numbers and of strings",
    ),
    (lambda r: r.get_trained_onnx(path=3), ArgumentTypeError, "path must be a file path, got 3."),
    # several inputs
    (
        lambda _: C(OF_TOKENS).fit(["good day", "bad day"] * 2, [0, 1] * 2),
        DataError,
        "The model has several inputs: input_ids, attention_mask. Pass X as a dictionary or a DataFrame with these "
        "names, or as onnxtrain.Inputs, got a list of 4. A tokenizer makes such a dictionary of strings.",
    ),
    (
        lambda _: C(OF_TOKENS).fit(np.ones((4, 3), int), [0, 1] * 2),
        DataError,
        "got an array of shape (4, 3). Pass an array for each: {'input_ids': ..., 'attention_mask': ...}.",
    ),
    (
        lambda _: R(OF_TWO_INPUTS).fit(np.ones((4, 5)), y[:4]),
        DataError,
        "in this order, pass {'area': X[:, 0:3], 'rooms': X[:, 3:5]}.",
    ),
    (
        lambda _: C(OF_TOKENS).fit([[1, 2], [3]] * 2, [0, 1] * 2),
        DataError,
        "The model has several inputs: input_ids, at",
    ),
    (
        lambda _: C(OF_TOKENS, pad=0).fit({}, []),
        ParameterError,
        "that fills the end of shorter rows: pad={'input_ids': 0}.",
    ),
    (lambda _: C(OF_TOKENS, batch_axis=1).fit({}, []), ParameterError, "batch_axis={'state': 1}."),
    (
        lambda _: C(OF_TOKENS, inputs=["a"]).fit({}, []),
        ParameterError,
        "Got ['a'] instead. Pass a mapping from input names to values that are",
    ),
    # targets
    (
        lambda _: R().fit(X, {"bmi": y}),
        DataError,
        "y must be an array or a column, got dict. Pass the targets of one output, such as y['bmi'], and set output='bmi' ",
    ),
    (lambda _: R().fit(X, [[1.0, 2.0], [3.0]] * 221), DataError, "y contains lists of different lengths, from 1 to 2."),
    (
        lambda _: C().fit(IRIS, [["a"], ["b", "c"], []] * 50),
        DataError,
        "from 0 to 2. Convert lists or sets of the labels of a row to an indicator matrix with sklearn.preprocessing.Mul",
    ),
    (
        lambda _: C().fit(IRIS, [{1, 2}, {2, 3}, {1, 3}] * 50),
        DataError,
        "y contains sets. Convert lists or sets of the labels of a row to an indicator matrix with sklearn.preprocessing.Mul",
    ),
    (
        lambda _: C().fit(IRIS, pd.Series([frozenset({1}), frozenset({2})] * 75)),
        DataError,
        "y contains sets. Convert lists or",
    ),
    (
        lambda _: C().fit(IRIS, [[1, 2], [2, 3], [1, 3]] * 50),
        DataError,
        "convert lists of labels with sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y).",
    ),
    (lambda r: r.score(X, y[:5]), DataError, "X has 442 rows, y has 5."),
    (
        lambda _: C(MLP).fit(IRIS, SPECIES.astype(str)),
        DataError,
        "y has labels of type str, for example '0', but the classes of the model are of type int: [0, 1, 2]. Pass numpy.asarray(y).astype(int).",
    ),
    (
        lambda _: C().fit(IRIS, np.where(SPECIES > 0, SPECIES, np.nan).astype(object)),
        DataError,
        "y contains nan in 50 of its 150 rows, first in row 0. Leave out the rows without a label",
    ),
    (lambda _: R().fit(X, y, np.ones(3)), DataError, "Pass one weight per row of X."),
    (
        lambda _: R().fit(TABLE[["since"]], RENT),
        ConversionError,
        "for example with (X['since'] - pandas.Timestamp('2020-01-01')).dt.days",
    ),
    (
        lambda _: R().fit(np.where(X > 0, np.nan, X), y),
        DataError,
        "Pass a model with an imputer, make_pipeline(SimpleImputer(), model).",
    ),
    (
        lambda _: onnxtrain.trainable_weights(Ridge().fit(X, y), X[:, :3]),
        DataError,
        "X has 3 features, but Ridge takes 10.",
    ),
    (lambda r: r.score(X, y[None]), DataError, "y seems to be transposed. Pass y.ravel()."),
    (
        lambda r: r.score(X, [np.nan, *y[1:]]),
        DataError,
        "y contains nan in 1 of its 442 rows, first in row 0. Leave out the rows without a label",
    ),
    (lambda r: r.score(X, np.c_[y, y]), DataError, "y_true and y_pred have different number of output (2!=1)"),
    (
        np.errstate(invalid="ignore")(lambda _: C().fit(IRIS, SPECIES).score(IRIS, np.full(150, np.nan))),
        DataError,
        "contains NaN. Leave out the rows without a",
    ),
    (
        lambda _: R().fit(X, pd.DataFrame({"y": ["low"] * 442})),
        DataError,
        "y must be numeric, got the string 'low'",
    ),
    (lambda _: R().fit(X, np.array(["low"] * 442, object)), DataError, "y must be numeric, got the string 'low'"),
    (lambda _: R().fit(X, ["low"] * 442), DataError, "y must be numeric, got the string 'low'"),
    (
        lambda _: C().fit(IRIS, [None, "a", "b"] * 50),
        DataError,
        "y contains None in 50 of its 150 rows, first in row 0. Leave out the rows without a label: known = "
        "pandas.notna(y), fit(X[known], pandas.Series(y)[known]).",
    ),
    (lambda _: C().fit(IRIS, pd.Series(["a", pd.NA, "b"] * 50, dtype="string")), DataError, "y contains <NA> in 50 of"),
    (
        lambda _: C(ENCODED).fit(TABLE[["town"]], pd.Series(["a", None] * 10)),
        DataError,
        "in 10 of its 20 rows, first in row 1.",
    ),
    (
        lambda _: C(POSITIONS, max_iter=1).fit(SEQUENCES, [[0, 1, None]] * 20),
        DataError,
        "got NoneType, int. Replace a missing label by ignore_index, -100 by default, or leave out the row.",
    ),
    (
        lambda _: C().fit(IRIS, pd.date_range("2020", periods=3).repeat(50)),
        DataError,
        "y contains dates or durations as labels. Convert them to strings, numpy.asarray(y).astype(str)",
    ),
    (
        lambda _: C().fit(IRIS, [*pd.date_range("2020", periods=3)] * 50),
        DataError,
        "y contains dates or durations as labels. Convert them to strings, numpy.asarray(y).astype(str)",
    ),
    # before fit
    (lambda _: C().score(IRIS, SPECIES), NotFittedError, "This OrtGradientClassifier instance is not fitted yet."),
    (
        lambda _: C().history_,
        AttributeError,
        "OrtGradientClassifier has no history_ before it is fitted. Call fit first.",
    ),
    (
        lambda _: C().weights_,
        AttributeError,
        "OrtGradientClassifier has no weights_ before it is fitted. Call fit first.",
    ),
    (lambda r: r.loss_, AttributeError, "has no loss_. Use loss_curve_[-1], the loss of the last epoch."),
    # parameters
    (lambda _: R(l1_method="prox").fit(X, y), ParameterError, "Got 'prox' instead. Did you mean 'proximal'?"),
    (
        lambda _: R(solver="lbfgs", clip_norm=1.0).fit(X, y),
        ParameterError,
        "each step. Set clip_norm=None, its default.",
    ),
    (lambda _: R(solver="lbfgs", accumulate=2).fit(X, y), ParameterError, "at once. Set accumulate=1, its default."),
    (lambda _: R(head="keeps").fit(X, y), ParameterError, "Did you mean 'keep'?"),
    (lambda _: R(on_interrupt="rais").fit(X, y), ParameterError, "Did you mean 'raise'?"),
    (lambda _: C(class_weight="balance").fit(IRIS, SPECIES), ParameterError, "Did you mean 'balanced'?"),
    (
        lambda _: C(class_weight=2.0).fit(IRIS, SPECIES),
        ParameterError,
        "class_weight={'rare': 10, 'common': 1}, or dict(zip(",
    ),
    (
        lambda _: C(NETWORK, output_is="logits").fit(IRIS, SPECIES),
        ParameterError,
        "For logits, set output_is='scores'; for",
    ),
    (lambda _: R(average="ema").fit(X, y), ParameterError, "0.99 is the decay of an exponential moving average."),
    (lambda _: RMSprop(rho=0.9), ArgumentTypeError, "RMSprop has no parameter 'rho'. Did you mean 'alpha'?"),
    (
        lambda _: R().fit(X, y, resume="yes"),
        ParameterError,
        "resume must be True or False, got 'yes'. Pass the file as",
    ),
    (lambda _: R(X).fit(X, y), ParameterError, "got ndarray. Pass rows to fit: OrtGradientRegressor().fit(X, y)."),
    (lambda _: C(TABLE).fit(X, y), ParameterError, "Pass rows to fit: OrtGradientClassifier().fit(X, y)."),
    # optimizers and losses of one's own
    (lambda _: Proximal(), ArgumentTypeError, "Proximal requires optimizer: Proximal(SGD())."),
    (lambda _: rows.Parts(), ArgumentTypeError, "Parts requires source: Parts(from_files(paths, read))."),
    (lambda _: Proximal(SGD), OptimizerError, "Proximal expects an optimizer, as in Proximal(SGD()), got <class"),
    (lambda _: Proximal(3), OptimizerError, "Proximal expects an optimizer, as in Proximal(SGD()), got 3."),
    (
        lambda _: R(solver=WithoutSlots()).fit(X, y),
        OptimizerError,
        "WithoutSlots.update must return the weight and a tuple of its slots, 0 here, got",
    ),
    (lambda _: R(solver=OfOneMemory()).fit(X, y), OptimizerError, "a tuple of its slots, 1 here, got"),
    (
        lambda _: R(solver=OfOtherArguments()).fit(X, y),
        OptimizerError,
        "is called as update(op, w, dw, slots, learning_rate), but takes other arguments: too many",
    ),
    (
        lambda _: R(solver=OfAnotherShape()).fit(X, y),
        OptimizerError,
        "must return values with the shape of the weight, (",
    ),
    (
        lambda _: R(loss=make_scorer(mean_absolute_error)).fit(X, y),
        LossError,
        "got mean_absolute_error of sklearn. Pass loss='absolute_error'.",
    ),
    (lambda _: onnxtrain.loss(3)(len), ParameterError, "The name of a loss must be a string, got 3."),
    (
        lambda _: onnxtrain.loss()(len),
        ParameterError,
        "A loss must be registered under a name. Pass one or more names.",
    ),
    (lambda _: onnxtrain.loss("mine")("text"), ParameterError, "The loss 'mine' must be a function, got 'text'."),
    (
        lambda _: onnxtrain.loss("huber")(len),
        ParameterError,
        "The loss 'huber' is already registered: onnxtrain.losses.regression.huber. Pass override=True to replace it.",
    ),
    (
        lambda _: onnxtrain.gradient(3)(len),
        ParameterError,
        "The name of a gradient rule must be a string, got 3.",
    ),
    (lambda _: onnxtrain.no_gradient(), ParameterError, "A gradient rule must be registered under a name"),
    (
        lambda _: onnxtrain.gradient_rule("gelu")(len),
        ParameterError,
        "The domain 'ai.onnx' has no operator 'gelu'. Did you mean 'Gelu'?",
    ),
    (
        lambda _: onnxtrain.gradient_rule("Scalar", domain="ai.onnx.ml")(len),
        ParameterError,
        "The domain 'ai.onnx.ml' has no operator 'Scalar'. Did you mean 'Scaler'?",
    ),
    (lambda _: onnxtrain.no_gradient("ZipMap"), ParameterError, "no operator 'ZipMap'. Pass domain='ai.onnx.ml'."),
    (lambda _: onnxtrain.no_gradient("FusedMatMul"), ParameterError, "'FusedMatMul'. Pass domain='com.microsoft'."),
    (
        lambda _: onnxtrain.no_gradient("Zqzqzq"),
        ParameterError,
        "Pass the domain of an operator of your own: domain='my.domain'.",
    ),
    (lambda _: onnxtrain.converter(KMeans)(3), ParameterError, "The converter of KMeans must be a function, got 3."),
    # files
    (lambda _: R(LINE.SerializeToString()[:60]).fit(X, y), ModelError, "or is truncated. Compare its size with"),
    (lambda r: onnxtrain.save(r, ""), ArgumentTypeError, "path must be a file path, got ''."),
    (lambda _: onnxtrain.load("a", trusted=3), ArgumentTypeError, "trusted must be a list of type names"),
    (lambda _: onnxtrain.load("a", trusted="numpy.dtype"), ArgumentTypeError, "trusted must be a list of type names"),
    (lambda _: rows.from_parquet("no.parquet"), FileError, "Pass the path of a file or a folder."),
    (lambda _: rows.from_parquet(__file__), DataError, "cannot be read as parquet: "),
    (
        lambda _: rows.from_parquet(3),
        ArgumentTypeError,
        "from_parquet expects a path, several paths or a pyarrow dataset",
    ),
    (
        lambda _: rows.from_parquet([3]),
        ArgumentTypeError,
        "from_parquet expects a path, several paths or a pyarrow dataset",
    ),
    (
        lambda _: rows.from_zarr("no.zarr"),
        FileError,
        "There is no zarr array 'no.zarr'. The path of an array in a group",
    ),
    (
        lambda _: R().fit(rows.from_files(["a"], lambda: (X, y))),
        ArgumentTypeError,
        "read is called as read(file), but it takes other arguments: too many",
    ),
    # names of Keras, PyTorch, skorch, XGBoost and onnxruntime
    *(
        (lambda r, name=name: getattr(r, name), AttributeError, f"OrtGradientRegressor has no {name}. {said}")
        for name, said in {
            "SerializeToString": "Use get_trained_onnx().SerializeToString().",
            "add": "Pass a complete model: OrtGradientRegressor(MLPRegressor(",
            "backward": "Use partial_fit(X, y) for an epoch of training, or gradient(X, y)",
            "booster_": "Use get_trained_onnx(), which contains the trained trees.",
            "cuda": "Set device='cuda', a parameter of the estimator.",
            "double": "Set dtype='float64', a parameter of the estimator.",
            "eval": "predict(X) has no training mode",
            "evals_result_": "Use history_, the losses of each epoch",
            "float": "Set dtype='float32', a parameter of the estimator.",
            "get_booster": "Use get_trained_onnx(), which contains the trained trees.",
            "get_inputs": "Use onnxruntime.InferenceSession(",
            "half": "Set dtype='float16', a parameter of the estimator.",
            "initialize": "Use fit(X, y); max_iter=0 takes no step.",
            "layers": "Use summary(), which shows them.",
            "load_params": "Use onnxtrain.load(path).",
            "load_state_dict": "Use onnxtrain.load(path).",
            "module_": "Use get_trained_onnx() or to_sklearn(), which return the model.",
            "named_parameters": "Use weights_; trainable_weights(model) lists their names.",
            "output_names": "Use onnxruntime.InferenceSession(model.get_trained_onnx().SerializeToString()).get_outputs()",
            "set_output": "Results are arrays.",
            "optimizer_": "The optimizer is the parameter solver;",
            "plot_importance": "Use sklearn.inspection.permutation_importance",
            "run": "Use predict(X), or onnxruntime.InferenceSession",
            "save_weights": "Use onnxtrain.save(estimator, path).",
            "set_weights": "Pass a model that has these weights;",
            "step": "Use partial_fit(X, y), which takes the steps of an epoch.",
            "train_on_batch": "Use partial_fit(X, y).",
            "zero_grad": "fit and partial_fit compute a new gradient in each step;",
        }.items()
    ),
    *(
        (lambda r, name=name: getattr(r, name), AttributeError, f"has no {name}, because it is a regressor. Use OrtG")
        for name in ["classes_", "decision_function", "predict_log_proba", "predict_proba"]
    ),
    (lambda _: R().classes_, AttributeError, "has no classes_, because it is a regressor. Use OrtGradientClassifier"),
    (lambda r: r(X), ArgumentTypeError, "OrtGradientRegressor cannot be called. Use predict(X)."),
    (
        lambda r: onnx.save(r, "line.onnx"),
        AttributeError,
        "To write a file, use onnx.save(model.get_trained_onnx(), path).",
    ),
    (lambda _: onnxtrain.to_onnx, AttributeError, "'to_onnx'. Use get_trained_onnx() of a fitted estimator."),
    (
        lambda _: R(MLPRegressor()).coefs_,
        AttributeError,
        "has no coefs_. If MLPRegressor learns it, use fit(X, y).to_sklearn().coefs_.",
    ),
    (
        lambda _: R(LinearRegression(), max_iter=0).fit(X, y).rank_,
        AttributeError,
        "has no rank_, but its estimator does. Use to_sklearn().rank_ after fit",
    ),
    (
        lambda _: R(GridSearchCV(R(Ridge()), {"l2": [0, 0.1]})).fit(X, y),
        ParameterError,
        "Put the search outside: GridSearchCV(OrtGradientRegressor(...), ...).",
    ),
    (
        lambda _: LossCurveDisplay.from_estimator(GridSearchCV(R(max_iter=0), {}, refit=False).fit(X, y)),
        ArgumentTypeError,
        "got GridSearchCV. A search with refit=False keeps no fitted estimator. Set refit=True.",
    ),
    *(
        (lambda _, values=values: R(TWO_COLUMNS).fit(TABLE[["area"]].assign(c=values), RENT), OnnxTrainError, said)
        for values, said in [
            ([{"a": 1}] * 20, "X contains values of type dict in 'c'"),
            ([[1, 2]] * 20, "X contains values of type list in 'c'"),
            (np.arange(20) + 1j, "not 'complex'. Pass real and imaginary parts as columns: numpy.c_["),
            (pd.to_timedelta(RENT, unit="D"), "X['c'].dt.total_seconds()"),
            (["Bern"] * 20, "Put an encoder before it"),
        ]
    ),
    (lambda _: R().fit([[pd.Timedelta(1, "D")]] * 442, y), ArgumentTypeError, "pandas.to_timedelta(values).total_sec"),
    (lambda _: R().fit([[{"a": 1}]] * 442, y), ArgumentTypeError, "not 'dict'. Make columns of the entries"),
    (
        lambda _: R().fit(X, y + 1j),
        DataError,
        "Complex data not supported. Pass real and imaginary parts as columns: numpy.",
    ),
    (lambda _: R("s3://bucket/m.onnx").fit(X, y), ModelError, "Download it"),
    (lambda _: onnxtrain.load("s3://bucket/m.onnx"), ModelError, "Download it first, and pass the path of the file."),
    (
        lambda r: onnxtrain.save(r, "s3://bucket/m.onnx"),
        FileError,
        "Write a local file, and upload it.",
    ),
    (
        lambda _: C().partial_fit(IRIS, SPECIES, classes=[0, 1]),
        DataError,
        "classes must list all labels of y, got [0, 1], which lacks 2. Pass classes=numpy.unique(y)",
    ),
    (
        lambda r: r.get_training_graphs("step"),
        ArgumentTypeError,
        "get_training_graphs takes no arguments, got 1.",
    ),
    (
        lambda r: r.get_trained_onnx(path=tempfile.mkdtemp()),
        FileError,
        "Pass a file in it: ",
    ),
    (
        lambda _: onnxtrain.plot_graph(MLP),
        ArgumentTypeError,
        "pass OrtGradientClassifier(model, max_iter=0).fit(X, y)",
    ),
    (
        lambda _: C(MLP, max_iter=0).fit(IRIS, SPECIES).coefs_,
        AttributeError,
        "OrtGradientClassifier has no coefs_, but its estimator does. Use to_sklearn().coefs_ after fit for the trained value.",
    ),
    (
        lambda r: r.get_trained_onnx(opset=12),
        ArgumentTypeError,
        "onnx.version_converter.convert_version(onx, opset) changes it to 15 and later ones.",
    ),
    (
        lambda _: rows.from_parquet("rows.parquet", y="price"),
        ArgumentTypeError,
        "from_parquet: got an unexpected keyword argument 'y'. Did you mean 'label'? Its arguments are source, label, columns, weight.",
    ),
    (
        lambda _: onnxtrain.with_new_head(NETWORK),
        ArgumentTypeError,
        "with_new_head: missing a required argument: 'n_outputs'. Its arguments are model, n_outputs, ",
    ),
    *(
        (lambda _, function=function: function(qqq=1), ArgumentTypeError, f"{function.__name__}: ")
        for function in [
            onnxtrain.add_loss_output,
            onnxtrain.average_states,
            onnxtrain.converter,
            onnxtrain.differentiable_ops,
            onnxtrain.load,
            onnxtrain.onnx_derivative,
            onnxtrain.penalty_loss_onnx,
            onnxtrain.plot_graph,
            onnxtrain.random_feed,
            onnxtrain.save,
            onnxtrain.show_versions,
            onnxtrain.trainable_weights,
            check_gradient,
            rows.from_dask,
            rows.from_files,
            rows.from_zarr,
        ]
    ),
    (
        lambda _: onnxtrain.OrtGradientForwardBackward(LINE),
        WeightError,
        "initializers: []. Its weights are in LinearRegressor, which OrtGradientRegressor and OrtGradientClassifier can train. "
        "Use skl2onnx.to_onnx(model, X, black_op={'LinearRegressor'}) to write a matrix product instead.",
    ),
    # searches
    (
        lambda _: GridSearchCV(R(make_pipeline(Ridge())), {"ridge__alpha": [1]}).fit(X, y),
        ParameterError,
        "has no parameter 'ridge__alpha'. Use estimator__ridge__alpha for the parameter of its model.",
    ),
    (
        lambda _: R(Ridge()).set_params(alpha=1),
        ParameterError,
        "Use estimator__alpha for the parameter of its model. Set l2 = alpha / n_samples for the penalty of Ridge",
    ),
    *(
        (
            lambda _, name=name, values=values: R(**{name: values}).fit(X, y),
            OnnxTrainError,
            f"got {values!r}. To try several values, use GridSearchCV(model, {{{name!r}: [...]}}).",
        )
        for name, values in {"loss": ["huber"], "solver": ["adam"], "learning_rate": [0.1, 0.01]}.items()
    ),
    (lambda _: R(l1=[0, 0.1]).fit(X, y), ParameterError, "Got [0, 0.1] instead. To try several values, use Grid"),
    (
        lambda _: R().fit(TABLE[["area"]], ["area"]),
        DataError,
        "y contains column names. Pass y=X['area'], and X without",
    ),
    (lambda _: R().fit(TABLE[[]], RENT), DataError, "X has no columns."),
    # functions
    (lambda _: onnxtrain.add_loss_output(LINE, penalty="l2"), LossError, "as {'coef': 0.1}, got 'l2'."),
    (
        lambda _: onnxtrain.penalty_loss_onnx("w", np.int64, l2=1),
        LossError,
        "must be floating-point, got INT64. Pass the dtype of",
    ),
    (
        lambda _: onnxtrain.penalty_loss_onnx("w", "text", l2=1),
        LossError,
        "must be a type such as numpy.float32, got 'text'.",
    ),
    (lambda _: onnxtrain.penalty_loss_onnx("w", 99, l2=1), LossError, "must be a type such as numpy.float32, got 99."),
    (lambda _: onnxtrain.onnx_derivative(LINE, weights=3), ArgumentTypeError, "must be names, got 3 of type int."),
    (
        lambda _: onnxtrain.average_states([{"a": [1.0]}], weights="a"),
        DataError,
        "weights must be 1 non-negative numbers",
    ),
    (
        lambda _: onnxtrain.average_states([{"a": [1.0]}], weights=3.0),
        DataError,
        "weights must be 1 non-negative numbers",
    ),
    (lambda _: onnxtrain.average_states([{"a": "text"}]), DataError, "A state must contain numeric arrays, got"),
    (
        lambda _: onnxtrain.plot_graph(LINE, max_nodes="a"),
        ParameterError,
        "max_nodes must be an integer number of nodes, got 'a'.",
    ),
    (
        lambda _: onnxtrain.LiveLossCurve(3),
        ParameterError,
        "path must be the path of a picture, for example 'loss.png', got 3.",
    ),
    (
        lambda r: LossCurveDisplay(r),
        ArgumentTypeError,
        "To plot a fitted estimator, use LossCurveDisplay.from_estimator(estimator).",
    ),
    (lambda _: LossCurveDisplay("abc"), ArgumentTypeError, "A curve must contain one number per epoch, got 'abc'."),
    (lambda _: LossCurveDisplay(None), ArgumentTypeError, "A curve must contain one number per epoch, got None."),
    (
        lambda r: WeightsDisplay(r),
        ArgumentTypeError,
        "To plot a fitted estimator, use WeightsDisplay.from_estimator(estimator).",
    ),
    (
        lambda r: LossCurveDisplay.from_estimator(r, ax="a"),
        ArgumentTypeError,
        "ax must be a matplotlib Axes, such as plt.gca",
    ),
    # arguments of another function
    (
        lambda _: onnxtrain.OrtGradientForwardBackward(TWO_COLUMNS, device="cuda"),
        ArgumentTypeError,
        "got an unexpected keyword argument 'device'. Did you mean 'providers'? Its arguments are onnx_model, ",
    ),
    (
        lambda r: WeightsDisplay.from_estimator(r, "coef"),
        ArgumentTypeError,
        "WeightsDisplay.from_estimator: too many positional arguments. Its arguments are estimator, ax. Pass only estim",
    ),
    (
        lambda r: LossCurveDisplay.from_estimator(r, "coef"),
        ArgumentTypeError,
        "Its arguments are estimator, rate, ax. Pass only estimator by position, and rate, ax by name.",
    ),
    (
        lambda _: check_gradient(TWO_COLUMNS, X[:, :2]),
        DataError,
        "feeds must map input names to arrays, got ndarray. Pass {'X': ...}.",
    ),
    (
        lambda r: onnxtrain.plot_graph(r).save(tempfile.gettempdir()),
        FileError,
        f"Is a directory. Pass a file in it: {os.path.join(tempfile.gettempdir(), 'graph.svg')!r}.",
    ),
    (
        lambda _: R(TWO_COLUMNS).fit(onnxtrain.add_loss_output(TWO_COLUMNS), y),
        DataError,
        "got ModelProto. Pass an ONNX model first, then the rows: OrtGradientRegressor(model).fit(X, y).",
    ),
    (
        lambda _: R().fit(X, y, every=2),
        ParameterError,
        "every=2 is the number of epochs between two writings of a checkpoint, but got no file. Pass its path as check",
    ),
    # models without weights
    (
        lambda _: R(IsolationForest(n_estimators=2)).fit(X, y),
        WeightError,
        "IsolationForest counts splits, which have no derivative. Use OrtGradientClassifier(OneClassSVM()) or SGDOneCl",
    ),
    # columns of inputs, of vectorizers
    (
        lambda _: R(NUMBERS_AND_CODES).fit(pd.DataFrame(np.ones((9, 6)), columns=list("abcdef")), np.ones(9)),
        DataError,
        "X has 6 columns, but none has the name of an input of the model: num, cat. Pass the columns of each input; in "
        "this order, {'num': X[['a', 'b', 'c', 'd']], 'cat': X[['e', 'f']]}.",
    ),
    (
        lambda _: R(
            make_pipeline(
                make_column_transformer((TfidfVectorizer(), ["town"]), (StandardScaler(), ["area"])), LinearRegression()
            )
        ).fit(TABLE, RENT),
        DataError,
        "If a ColumnTransformer gives a column of texts to a vectorizer, name the column without brackets",
    ),
    (
        lambda _: R(RandomForestRegressor(2), weights_to_train=LoRA()).fit(X, y),
        WeightError,
        "has none that can be trained. Train weights directly: leave out weights_to_train, or set it to names from onnx",
    ),
    # outlier detectors
    (
        lambda _: R(SGDOneClassSVM(random_state=1)).fit(X, y),
        DataError,
        "SGDOneClassSVM predicts 1 for an inlier and -1 for an outlier, which are classes. Train it with OrtGradientCl",
    ),
    (
        lambda _: C(make_pipeline(StandardScaler(), OneClassSVM())).fit(IRIS, np.where(SPECIES == 0, "in", "out")),
        DataError,
        "OneClassSVM predicts 1 for an inlier and -1 for an outlier, but the classes of y are 'in', 'out'. Pass y wi",
    ),
    # losses of the other task, weights in another form
    (
        lambda _: R(loss="logloss").fit(X, y),
        LossError,
        "Unknown loss 'logloss'. It is called 'log_loss' here and is for classes, with OrtGradientClassifier. Known: abs",
    ),
    (
        lambda _: C(loss="logcosh").fit(IRIS, SPECIES),
        LossError,
        "It is called 'log_cosh' here and is for numbers, with",
    ),
    (
        lambda _: R(loss="zzz").fit(X, y),
        LossError,
        "For a loss of your own, pass a function of op, y and the prediction, or first import the module that registers "
        "it with @onnxtrain.loss('zzz').",
    ),
    (
        lambda _: R().fit(X, y, (X, y)),
        DataError,
        "got a tuple of arrays. Pass a validation set by name: fit(X, y, X_val",
    ),
    # rows in another form
    (
        lambda _: R().fit(TABLE[["area"]].assign(since="2020-01-01"), RENT),
        DataError,
        "mark missing numbers, and dates with pandas.to_datetime(X['since']).",
    ),
    (
        lambda _: R(TWO_INPUTS).fit({"a": X}, y),
        DataError,
        "X has no column 'b', which is an input of the model. Add it to the others: a.",
    ),
    (
        lambda _: R(INDICES).fit(np.full((20, 1), 7), RENT),
        DataError,
        "X contains 7 in row 0, but its values select rows of a table of the model, 0 to 2. Use the tokenizer or the enc",
    ),
    (
        lambda _: R(INDICES).fit({"X": ["some text"] * 20}, RENT),
        DataError,
        "base 10: 'some text'. Convert text with the tokenizer of the model.",
    ),
    *(
        (lambda _, call=call, rows=rows: call(rows), DataError, message)
        for call in (lambda rows: R(PIXELS).fit(rows, PAIR[: len(rows)]), lambda rows: TRAINED.predict(rows))
        for rows, message in [
            (np.ones((20, 8, 8, 3)), "shape (8, 8, 3), but the model takes (3, 8, 8). Pass numpy.moveaxis(X, -1, 1)."),
            (np.ones((20, 192)), "X has 2 axes, but the model takes 4. Pass X.reshape(-1, 3, 8, 8)."),
            (np.ones((20, 8, 8)), "takes 4. Pass X[:, None].repeat(3, axis=1) for gray images."),
            (np.ones((3, 8, 8)), "X has 3 axes, but the model takes 4. Pass X[None] for a single row."),
            (np.ones((20, 3, 9, 9)), "X has rows of shape (3, 9, 9), but the model takes (3, 8, 8)."),
        ]
    ),
    (
        lambda _: R(PIXELS).fit(np.ones((20, 3, 8, 8)), RENT),
        DataError,
        "y has 1 column, but the model has 2 outputs. Pass one column for each output. For other columns, give an ONNX "
        "model a head='new', or pass an unfitted estimator, sklearn.base.clone(model). To learn classes, use OrtGradien",
    ),
    *(
        (
            lambda _, call=call: call(R(make_pipeline(TfidfVectorizer(), Ridge()), max_iter=0)),
            DataError,
            "X is a frame, and a text vectorizer takes the names of its columns as the texts. Pass a column, X['town'],",
        )
        for call in (
            lambda model: model.fit(TABLE, RENT),
            lambda model: R(clone(model.estimator).fit(TABLE["town"], RENT)).fit(TABLE[["town"]], RENT),
        )
    ),
    (
        lambda _: C().fit(TABLE[["area"]], pd.cut(RENT, 3)),
        DataError,
        "got Interval. Pass numpy.asarray(y).astype(str).",
    ),
    (
        lambda _: C(POSITIONS, max_iter=0).fit(SEQUENCES, SEQUENCES % 2).score(SEQUENCES, SEQUENCES[:, :2]),
        DataError,
        "y has shape (20, 2), but the predictions have shape (20, 3). Pass one label or value for each position",
    ),
    (
        lambda _: R(POSITIONS).fit(SEQUENCES, SEQUENCES % 2),
        DataError,
        "a class per position, use OrtGradientClassifier.",
    ),
    (
        lambda _: R().partial_fit(X[0], y[0]),
        DataError,
        "y must have one target per row of X, got the single value 151.0.",
    ),
    # weights
    (
        lambda _: C(MLP, weights_to_train=["head"]).fit(IRIS, SPECIES),
        WeightError,
        "value of weights_to_train: weights_to_train='head'. Kn",
    ),
    (
        lambda _: C(MLP, weights_to_train="lora").fit(IRIS, SPECIES),
        WeightError,
        "Pass weights_to_train=onnxtrain.LoRA().",
    ),
    # attributes and methods
    (lambda r: r.trainable_weights(), AttributeError, "Use onnxtrain.trainable_weights(model), a function."),
    (lambda r: r.to_frame(), AttributeError, "OrtGradientRegressor has no to_frame. Use history_.to_frame()."),
    (lambda r: r.n_iter, AttributeError, "OrtGradientRegressor has no n_iter. Use n_iter_ after fit."),
    (lambda r: r.summary("coef"), ArgumentTypeError, "OrtGradientRegressor.summary takes no arguments, got 1."),
    (lambda _: onnxtrain.save(LINE, "line.onnx"), ExportError, "Save an ONNX model with onnx.save(model, path)."),
]
DAYS = pd.date_range("2020-01-01", periods=20)
ZONED = DAYS.tz_localize("UTC")
#: Columns that are no numbers, beside one of numbers and one of text: what is said of them.
COLUMNS = [
    (
        DAYS,
        "contains dates or durations in 'c', but the model takes numbers. Convert such a column to numbers, for example (X['c'] - pandas",
    ),
    (ZONED, "(X['c'] - pandas.Timestamp('2020-01-01', tz='UTC')).dt.days"),
    (DAYS - DAYS[0], "for example X['c'].dt.total_seconds(), or"),
    ((DAYS - DAYS[0]).astype(object), "for example pandas.to_timedelta(X['c']).dt.total_seconds(), or"),
    (DAYS.to_period("W"), "(pandas.PeriodIndex(X['c']).to_timestamp() - pandas.Timestamp('2020-01-01')).days"),
    (ZONED.astype(object), "(pandas.to_datetime(X['c'], utc=True) - pandas.Timestamp('2020-01-01', tz='UTC')).dt.days"),
    (DAYS.date, "(pandas.to_datetime(X['c'].astype(str)) - pandas.Timestamp('2020-01-01')).dt.days"),
    (DAYS.time, "X contains values of type time in 'c'"),
    (
        pd.cut(RENT, 3),
        "X contains values of type Interval in 'c', but the model takes numbers. Convert them to numbers, or to strings for",
    ),
    ([{"a": 1}] * 20, "X contains values of type dict in 'c'"),
    (
        [[1, 2]] * 20,
        "type list in 'c', but the model takes numbers. Make columns of their entries: X.drop(columns='c').join(pandas.",
    ),
]


@pytest.mark.parametrize("values, message", COLUMNS)
@pytest.mark.parametrize("model", [None, make_pipeline(StandardScaler(), Ridge())], ids=["none", "pipeline"])
@pytest.mark.parametrize("behind", [[], ["town"]])
def test_columns_that_hold_no_numbers_are_named(values, message, model, behind):
    with pytest.raises((ArgumentTypeError, DataError), match=re.escape(message)) as e:
        R(model).fit(TABLE.assign(c=values)[["area", "c", *behind]], RENT)
    assert "y.astype" not in str(e.value)
    for expression in re.findall(r"as (\S+.*?) does, or leave it out", str(e.value)):
        numbers = eval(expression, {"X": TABLE.assign(c=values), "pandas": pd})
        R(max_iter=0).fit(TABLE[["area"]].assign(c=numbers), RENT)


def test_columns_are_not_blamed_for_labels():
    model = make_pipeline(ColumnTransformer([("area", "passthrough", ["area"])]), LinearRegression())
    with pytest.raises(ArgumentTypeError, match=r"intervals of numbers, pass y.astype\(str\) to OrtGradientClassifier"):
        R(model).fit(TABLE.assign(c=DAYS), pd.cut(RENT, 3))


class Dataset:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return X[i], y[i]


class OfBatches:
    def __iter__(self):
        return iter([(X, y)])


def absolute(op, y_true, y_pred):
    return op.Absolute(op.Sub(y_true, y_pred))


def mean_of_rows(op, y_true, y_pred):
    return np.mean((y_true - y_pred) ** 2)


def clamped(op, y_true, y_pred):
    return y_pred.clamp(min=0) - y_true


def of_a_parameter(op, y_true, y_pred, delta):
    return delta * abs(y_true - y_pred)


def weighted(op, y_true, y_pred, sample_weight):
    return sample_weight * abs(y_true - y_pred)


def of_all_rows(op, y_true, y_pred):
    return abs(y_true - y_pred) * X[:, :1]


def of_length(op, y_true, y_pred):
    return (y_true - y_pred) ** 2 / len(y_true)


#: Mistakes of the second hour: tables, validation sets, callbacks, checkpoints, losses and schedules.
SECOND_HOUR = [
    (lambda _: R(loss=absolute).fit(X, y), ModelError, "ONNX has no operator 'Absolute'. Did you mean 'Abs'? The oper"),
    (lambda _: R(loss=mean_of_rows).fit(X, y), LossError, "Leave out the mean or the sum over the rows"),
    (
        lambda _: R(loss=clamped).fit(X, y),
        LossError,
        "has no attribute 'clamp'. Use the operator of ONNX, op.Clip(...)",
    ),
    (
        lambda _: R(loss=of_a_parameter).fit(X, y),
        LossError,
        "Give it a default value, or pass loss_params={'delta': ...",
    ),
    (lambda _: R(loss=weighted).fit(X, y), LossError, "Leave it out: the values of the rows are multiplied by their w"),
    (
        lambda _: R(loss=of_all_rows).fit(X, y),
        LossError,
        "one value per row of a batch, but returned 442 for any batch",
    ),
    (lambda _: R(loss=of_length).fit(X, y), LossError, "no len; the objective is already the mean over the rows."),
    (lambda _: SGD(nesterov=True), OptimizerError, "needs a momentum above 0, got 0.0. Set momentum=0.9."),
    (lambda _: Cosine(warmup=500), OptimizerError, "got 500. It is the share of the steps: warmup=0.1 is a tenth."),
    (lambda _: Cosine(0.1, T_max=100), ArgumentTypeError, "A schedule ends with the last of the max_iter epochs"),
    (
        lambda _: R(learning_rate=lambda epoch, rate: rate * 0.9).fit(X, y),
        OptimizerError,
        "missing a required argument: 'rate'. For example: lambda step: 0.01 * 0.999**step.",
    ),
    (lambda r: r.score(y, r.predict(X)), DataError, "score takes the rows, not predictions: score(X, y)."),
    (
        lambda r: r.predict(X[0]),
        DataError,
        "Expected 2D array, got 1D array instead, of shape (10,)\nReshape your data",
    ),
    (lambda r: r.predict(pd.Series(X[0])), DataError, "A row of a frame is frame.iloc[[0]], a column frame[['name']]"),
    (
        lambda _: C(PIXELS).fit(pd.DataFrame(np.ones((20, 192))), [0, 1] * 10),
        DataError,
        "X has 2 axes, but the model takes 4. Pass X.to_numpy().reshape(-1, 3, 8, 8).",
    ),
    (
        lambda _: C(PIXELS).fit(np.array(["cat.png", "dog.JPEG"] * 10), [0, 1] * 10),
        DataError,
        "X contains names of files, such as 'cat.png'. Pass the pixels, in the size and scale of the model, for example",
    ),
    (lambda _: C({"fc.weight": IRIS}).fit(IRIS, SPECIES), ParameterError, "got dict. Weights have no graph. Load them"),
    (lambda r: r.load_training_state("no/such"), DataError, "There is no file or folder 'no/such'. Pass a state that"),
    (
        lambda _: C(POSITIONS, ignore_index="1").fit(SEQUENCES, SEQUENCES % 2),
        ParameterError,
        "ignore_index='1' is a string, but the labels in y are numbers of type int64.",
    ),
    (
        lambda _: C(POSITIONS, class_axis=1).fit(SEQUENCES, SEQUENCES % 2),
        DataError,
        "class_axis=1), or class_axis=2 must be set.",
    ),
    (lambda _: R().fit(X, y, X_test=X, y_test=y), ArgumentTypeError, "fit(X, y, X_val=..., y_val=...)."),
    (lambda _: R().fit(X, y, X_val=(X, y)), DataError, "X_val is a tuple of 2, but y_val is missing. Pass them one by"),
    (
        lambda _: R().fit(X, y, np.ones((442, 1))),
        DataError,
        "got shape (442, 1). Pass numpy.ravel(sample_weight).",
    ),
    (
        lambda _: C(POSITIONS).fit(SEQUENCES, SEQUENCES % 2, np.ones((20, 3))),
        DataError,
        "got shape (20, 3). Pass one weight per row, such as numpy.mean(sample_weight, axis=1). To leave out positions",
    ),
    (
        lambda _: R().fit([pd.DataFrame(X[:221]), pd.DataFrame(X[221:])], y),
        DataError,
        "X has 2 rows, y has 442. X is a list of DataFrames. Pass pandas.concat(X), or rows in parts",
    ),
    (
        lambda _: C(POSITIONS, pad={"X": 9}).fit([[1, 2], [1], [2]] * 9, np.ones((27, 2), int)),
        DataError,
        "It is the padding value that the parameter pad sets, 9. Set it to the id of the padding token of the tokenizer.",
    ),
    (
        lambda _: R().fit(rows.from_files([1, 2], lambda k: (pd.Series(y), pd.DataFrame(X)))),
        DataError,
        "Part 0: X has shape (442,) and y has shape (442, 10), as if they were swapped. Let read(0) return (X, y).",
    ),
    (
        lambda _: R().fit(rows.from_files([1, 2], lambda k: (X, y.astype(str)))),
        DataError,
        "Part 0: y must be numeric, got the string '151.0'. Let read(0) return y.astype(float), or use",
    ),
    (
        lambda _: C(class_weight=np.ones(3)).fit(IRIS, SPECIES),
        ParameterError,
        "or dict(zip(numpy.unique(y), weights)) for an array.",
    ),
    (
        lambda _: R().fit(X, y, callback=[print]),
        ParameterError,
        "For several: callback=lambda info: any([f(info) for f in callbacks]).",
    ),
    (
        lambda _: R().fit(X, y, callback=lambda epoch, logs: None),
        ParameterError,
        "'logs'. For example: callback=lambda info: print(info.epoch, info.loss).",
    ),
    (
        lambda _: R().fit(X, y, checkpoint="no/such/a.onnx"),
        ParameterError,
        "does not exist. Create the folder first: os.makedirs('no/such').",
    ),
    (
        lambda _: C(WITH_SPLINES, max_iter=0).fit(TABLE, RENT > 9).predict(TABLE.assign(town="Basel")),
        DataError,
        "['Basel'] in column 0 during transform. Fit again with an encoder that ignores unknown categories",
    ),
]


class OfStep(Schedule):
    def __call__(self, step):
        return 0.1


class Nothing(Schedule):
    def __call__(self, step, n_steps, plateaus=0):
        return None


class WithOperators(Optimizer):
    def update(self, op, w, dw, slots, *scalars, slope=None):
        return w - dw * scalars[0], ()


#: Schedules and optimizers of one's own.
SECOND_HOUR += [
    (
        lambda _: C(max_iter=1).fit(IRIS[:100], SPECIES[:100]).partial_fit(IRIS, SPECIES, classes=[0, 1, 2]),
        DataError,
        "of the first call, [0, 1]. The first call of partial_fit sets the classes; for others, start anew with",
    ),
    (lambda _: R(learning_rate=OfStep()).fit(X, y), OptimizerError, "OfStep is called as schedule(step, n_steps, plat"),
    (lambda _: R(learning_rate=Nothing()).fit(X, y), OptimizerError, "number for each step, got None for step 0."),
    (lambda _: R(solver=WithOperators()).fit(X, y), OptimizerError, "Use those of ONNX: op.Sub(w, dw), op.Mul(w, dw)."),
    (
        lambda _: onnxtrain.show_versions(True),
        ArgumentTypeError,
        "too many positional arguments. It takes no arguments.",
    ),
    (
        np.errstate(invalid="ignore")(lambda _: R(make_pipeline(FunctionTransformer(np.log), Ridge())).fit(X, y)),
        DataError,
        "Input X contains NaN after a step of the pipeline. X itself has no missing values",
    ),
]

#: Calls of a fitted estimator, and values of parameters.
SECOND_HOUR += [
    (lambda _: R(max_iter=10.0).fit(X, y), ParameterError, "Got 10.0 instead. Pass the integer, max_iter=10."),
    (lambda _: R(batch_size="32").fit(X, y), ParameterError, "Got '32' instead. Pass the integer, batch_size=32."),
    (lambda _: R(l2={"coef": 0.1}).fit(X, y), ParameterError, "penalty={'coef': 0.1} penalizes a single weight."),
    (
        lambda _: R(on_interrupt="stop").fit(X, y),
        ParameterError,
        "'keep' ends the fit with the weights so far, 'raise'",
    ),
    (
        lambda _: R(NETWORK.SerializeToString()).set_params(estimator__alpha=1),
        ParameterError,
        "but estimator=an ONNX model has no parameters.",
    ),
    (lambda _: onnxtrain.load(b"abc"), ArgumentTypeError, "got b'abc'. Write the content to a file first."),
    (
        lambda r: r.get_trained_onnx(label=True),
        ArgumentTypeError,
        "get_trained_onnx has no argument 'label'. Did you mean 'labels'?",
    ),
    (lambda r: r.embed(X, outputs="a"), ArgumentTypeError, "embed has no argument 'outputs'. Did you mean 'output'?"),
    (lambda r: r.predict(X, label=y), ArgumentTypeError, "Pass the column of the targets as y, and X without it"),
    (lambda r: r.summary(line_length=80), ArgumentTypeError, "has no argument 'line_length'. It takes no arguments."),
    (
        lambda r: r.gradient(X, y, wrt="coef"),
        DataError,
        "get_training_graphs() has the graph that computes the gradien",
    ),
    (lambda r: r.gradient(X, y, wrt="bmi"), DataError, "The gradient of a column is that column of gradient(X)."),
    (lambda r: r.predict(X, threshold=0.3), ArgumentTypeError, "Use TunedThresholdClassifierCV(model) of scikit-learn"),
    (lambda r: r.get_trained_onnx(filename="a.onnx"), ArgumentTypeError, "Did you mean 'path'?"),
    (
        lambda r: r.weights_.__setitem__("coef", np.zeros(10)),
        DataError,
        "The weight 'coef' has the shape (10, 1), got an array of shape (10,).",
    ),
    (lambda _: rows.from_parquet("a", target="y"), ArgumentTypeError, "argument 'target'. Did you mean 'label'?"),
]

TEXTS = make_pipeline(TfidfVectorizer(), LogisticRegression())
WORDS = ["good day", "bad day"] * 10

#: Tables of objects, and texts.
SECOND_HOUR += [
    (
        lambda _: R().fit(pd.DataFrame(X).astype(object).rename(columns=str), y),
        ConversionError,
        "X has the dtype object for the numbers in '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'. Pass X.infer_obj",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"a": [1.0] * 20, "b": [*range(19), "?"]}).astype(object), RENT),
        DataError,
        "float: '?'. X contains strings in 'b', but the model takes numbers.",
    ),
    (
        lambda _: R(make_pipeline(LabelEncoder(), Ridge())).fit(X, y),
        ArgumentTypeError,
        "LabelEncoder is for y. Use One",
    ),
    (
        lambda _: C(WITH_SPLINES).fit(TABLE.to_numpy(), TABLE.town),
        DataError,
        "only supported for dataframes. Pass a frame with them: pandas.DataFrame(X, columns=[...]).",
    ),
    (
        lambda _: C(TEXTS).fit([[word] for word in WORDS], SPECIES[:20]),
        DataError,
        "'list' object has no attribute 'low",
    ),
    (
        lambda _: C(TEXTS).fit([*WORDS[1:], None], TABLE.town),
        DataError,
        "a text vectorizer takes one string per row. R",
    ),
    (
        lambda _: C(TEXTS).fit([*WORDS[1:], np.nan], TABLE.town),
        DataError,
        "Replace missing texts by empty ones: [text if",
    ),
    (
        lambda _: C(ENCODED, max_iter=0).fit(TABLE[["town"]], RENT > 9).predict({"town": "Ulm"}),
        DataError,
        "got dict. Pass pandas.DataFrame([X]) for a single row.",
    ),
    (
        lambda _: C(TEXTS, max_iter=0).fit(WORDS, TABLE.town).predict("good"),
        DataError,
        "also for a single text: ['...']",
    ),
    (
        lambda _: C().fit(WORDS, TABLE.town),
        DataError,
        "Put a vectorizer before it, make_pipeline(TfidfVectorizer(), mode",
    ),
]

CURVE = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": ["b", None, "c", "b"]})

#: Tables of polars, and rows in parts.
SECOND_HOUR += [
    (
        lambda _: C().fit(CURVE[["a"]], CURVE["y"]),
        DataError,
        "row 1. Leave out the rows without a label: known = y.is_not_null(), fit(X.filter(known), y.filter(known)).",
    ),
    (lambda _: R().fit(CURVE[["y"]], CURVE["a"]), DataError, "X contains strings in 'y', but the model takes numbers."),
    (
        lambda _: rows.Parts(rows.from_files([1], print), batch_size=2),
        ArgumentTypeError,
        "batch_size is a parameter of",
    ),
    (
        lambda _: rows.from_files([1, 2], print)[:1],
        AttributeError,
        "FileRows has no indices, slices or iteration. Read a part with X, y = parts.read(i)[:2], or make parts of some "
        "files alone, such as from_files(files[:2], read).",
    ),
    (lambda _: list(rows.Parts(rows.from_files([1], print))), AttributeError, "Parts has no indices, slices or iter"),
    (lambda _: rows.from_files("a.csv", print), ArgumentTypeError, "Pass a list, ['a.csv']."),
    (lambda _: rows.from_files(print, ["a.csv"]), ArgumentTypeError, "Call from_files(files, read)."),
    (
        lambda _: R().fit(rows.from_files([1], lambda _: TABLE)),
        DataError,
        "for a table (table.drop(columns='y'), table['y']).",
    ),
    (
        lambda _: R().fit(rows.from_files([2, 3], lambda n: (X[:, :n], y))),
        DataError,
        "Let read(i) select the same columns of each part.",
    ),
    (lambda _: R().fit(rows.from_files([1], lambda _: (X, y)), y), DataError, "which contain it. Leave it out; label="),
    (lambda _: R().fit(Dataset()), DataError, "fit(X, y). Dataset is no array. Rows in parts, which need no y, have"),
]

#: Values of the wrong kind where a number, rows, a file or a name is meant.
OTHER_KINDS = [
    (lambda _: R(max_iter=True).fit(X, y), ParameterError, "max_iter must be a number such as 1, got True."),
    (lambda _: R(batch_size=True).fit(X, y), ParameterError, "batch_size must be a number such as 1, got True."),
    (lambda _: R(clip_norm=False).fit(X, y), ParameterError, "clip_norm must be a number such as 0.01, got False."),
    (lambda _: R(random_state=True).fit(X, y), ParameterError, "random_state must be a number such as 0, got True."),
    (lambda _: C(MLP, weights_to_train=LoRA(rank=True)).fit(IRIS, SPECIES), ParameterError, "rank must be a number"),
    (
        lambda _: C(MLP, weights_to_train=LoRA(weights=[])).fit(IRIS, SPECIES),
        ParameterError,
        "weights of LoRA is empty.",
    ),
    (lambda _: C(MLP, weights_to_train="!coefs_0").fit(IRIS, SPECIES), WeightError, "begin with a minus: '-coefs_0'."),
    (lambda _: R(MLPRegressor(), activation="tanh"), ArgumentTypeError, "of the model: MLPRegressor(activation=...)."),
    (
        lambda _: R().fit(TABLE[["area"]].assign(c=pd.NA), RENT),
        ArgumentTypeError,
        "Convert columns with missing values to",
    ),
    (lambda _: R(n_threads=10**6).fit(X, y), ParameterError, "must be an int in the range [1, 1024] or None."),
    (lambda _: R().set_params({"l2": 1}), ArgumentTypeError, "set_params takes parameters by name, set_params(l2=0.1)"),
    (lambda _: R(make_pipeline(StandardScaler, Ridge)).fit(X, y), ParameterError, "Pass StandardScaler()."),
    (lambda _: C(ignore_index=0).fit(IRIS, SPECIES), DataError, "ignore_index=0 applies to labels with positions"),
    (lambda _: C(max_iter=0).fit(IRIS, SPECIES).get_trained_onnx(labels="a"), ParameterError, "must be True or False"),
    (
        lambda _: (
            R(make_pipeline(make_column_transformer((OneHotEncoder(), ["rooms"]), remainder="passthrough"), Ridge()))
            .fit(DIGITS_AS_TEXT, RENT)
            .predict(DIGITS_AS_TEXT.head(0))
        ),
        DataError,
        "X has no rows. Pass at least one.",
    ),
    (lambda _: R(l2=None).fit(X, y), ParameterError, "Got None instead. 0 is no penalty; penalty={'coef': 0.1}"),
    (lambda _: R().fit(X.astype("M8[s]"), y), DataError, "X contains dates. Convert it to numbers"),
    (lambda _: R().fit(X[..., None], y), DataError, "Pass rows and targets with one or two axes, for example"),
    (lambda _: R().fit(X[None], y), DataError, "X has 1 row, y has 442. Pass X[0], which has the rows."),
    (lambda _: R().fit(X, y[:9]), DataError, "X has 442 rows, y has 9. Pass one target per row"),
    (lambda _: R().fit(X[:0], y[:0]), DataError, "Pass at least one row; the selection of rows may be empty."),
    (lambda r: r.predict(X[:, :3]), DataError, "Pass the columns that fit got, in the same order."),
    (lambda _: R().fit((X, y)), DataError, "X is a tuple of two arrays. Use fit(*X)."),
    (lambda _: R().fit(OfBatches(), y), ArgumentTypeError, "X is a OfBatches, but fit draws batches itself."),
    (lambda _: R().fit(Inputs(a=y), y), DataError, "Pass numpy.column_stack([X[name] for name in X.keys()])."),
    (lambda _: R().fit(X, y, -y), DataError, "Set the weight of a row to 0 to leave it out."),
    (
        lambda _: R().fit(X, y, iter(y)),
        DataError,
        "sample_weight must be an array with one number per row, got iterator",
    ),
    (
        lambda _: R().fit(X, y, y + 1j),
        DataError,
        "sample_weight must contain one number per row, but contains '(151+1j)'",
    ),
    (lambda r: r.score(X, y, -y), DataError, "Negative values in data passed to `sample_weight`: -"),
    (lambda _: C().partial_fit(IRIS, SPECIES, epochs=1), ArgumentTypeError, "One call trains one epoch: call it"),
    (lambda _: C().partial_fit(IRIS, SPECIES, callback=print), ArgumentTypeError, "It is an argument of fit."),
    (lambda _: C().fit(IRIS, SPECIES, classes=[0]), ArgumentTypeError, "It is an argument of partial_fit."),
    (lambda _: Adam(learning_rate=0.1), ArgumentTypeError, "OrtGradientRegressor(learning_rate=...)"),
    (lambda _: onnxtrain.with_new_head(PIXELS, n_classes=3), ArgumentTypeError, "Did you mean 'n_outputs'?"),
    (lambda _: OrtGradientForwardBackward(TWO, device="cuda"), ArgumentTypeError, "Did you mean 'providers'?"),
    (lambda _: onnxtrain.onnx_derivative(TWO_COLUMNS, path_name=3), ArgumentTypeError, "path_name must be a file path"),
    (lambda r: onnxtrain.onnx_derivative(r), ModelError, "Pass get_trained_onnx() of the fitted estimator."),
    (
        lambda r: r.embed(X, ["a"]),
        ModelError,
        "embed takes the name of a result, got ['a']. In the order of the graph: ",
    ),
    (lambda r: r.fit(X, y, checkpoint=""), ParameterError, "such as 'fit.onnx', got ''."),
    (lambda r: onnxtrain.save(r, "no/a.onnx"), FileError, "Create the folder first: os.makedirs('no')."),
    (lambda r: onnxtrain.save(r, f"{__file__}/a.onnx"), FileError, f"{__file__!r} is a file. Pass a file in a folder."),
    (lambda _: onnxtrain.save(Ridge(), "a.onnx"), ExportError, "got Ridge. Save it with joblib.dump, or train it"),
    (lambda _: onnxtrain.save(R, "a.onnx"), ExportError, "Pass a fitted instance, not the class."),
    (lambda _: onnxtrain.load(tempfile.gettempdir()), ModelError, "Is a directory. Pass a file in it."),
    (lambda _: onnxtrain.load(""), ArgumentTypeError, "path must be a file path, got ''."),
    (lambda _: onnxtrain.loss(""), ParameterError, "The name of a loss must not be empty."),
    (lambda _: rows.Parts(X, y), ArgumentTypeError, "read(i), got ndarray. Pass rows in memory to fit itself"),
    (lambda _: rows.from_files(3, print), ArgumentTypeError, "from_files expects a sequence of files"),
    (lambda _: rows.from_files("*.csv", print), ArgumentTypeError, "Pass glob.glob(pattern)."),
    (lambda _: LossCurveDisplay.from_estimator(R), ArgumentTypeError, "got the class OrtGradientRegressor."),
    (
        lambda _: onnxtrain.save(R(loss=lambda op, a, b: abs(a - b), max_iter=1).fit(IRIS, SPECIES), "model.onnx"),
        ExportError,
        "Register a loss with @onnxtrain.loss(name), and pass its name.",
    ),
    (lambda _: rows.from_parquet("a", label=3), ArgumentTypeError, "label must be a column name or several, got 3."),
    (lambda _: rows.from_parquet(__file__, label="a"), DataError, "Read other formats with from_files(paths, read)."),
]

#: Attributes and items of other libraries' models, of results and of modules.
ATTRIBUTES = [
    (lambda r: r.freeze, "OrtGradientRegressor has no freeze. Set weights_to_train, a parameter of the estimator"),
    (lambda r: r.optimizer, "has no optimizer. Use solver, a parameter of the estimator."),
    (lambda r: r.device_, "has no device_. Use device, a parameter of the estimator."),
    (lambda r: r.checkpoint, "has no checkpoint. It is an argument of fit: fit(X, y, checkpoint=...)."),
    (lambda r: r.predicts, "has no attribute 'predicts'. Did you mean 'predict'?"),
    (lambda r: r.colour, "has no attribute 'colour'. Known: best_iteration_, best_loss_, coef_, embed, "),
    (lambda r: r.class_weight, "has no class_weight, because it is a regressor."),
    (lambda r: r.feature_names_in_, "has no feature_names_in_, because X had no column names in fit."),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge()))["ridge"],
        "or history_.to_frame(), the losses of the epochs. A trained step of the pipeline is to_sklearn()['ridge'].",
    ),
    (lambda r: r["coef"], "OrtGradientRegressor cannot be indexed, got ['coef']. Use weights_, a dictionary"),
    (lambda r: [*r], "OrtGradientRegressor cannot be indexed, got [0]."),
    (
        lambda r: r.history_["loss"],
        "History cannot be indexed, got ['loss']. Use an attribute, .loss. Known: best_epoch",
    ),
    (lambda r: r.history_[0], "History cannot be indexed, got [0]. Use an attribute. Known: best_epoch"),
    (lambda r: r.history_.val_loss, "History has no attribute 'val_loss'. Use validation_loss."),
    (lambda r: r.history_.losses, "History has no attribute 'losses'. Did you mean 'loss'? Known: "),
    (
        lambda _: R(max_iter=1).fit(X, y, callback=lambda info: info.lr),
        "EpochInfo has no attribute 'lr'. Use learning_rate.",
    ),
    (lambda r: LossCurveDisplay([1.0, 0.5]).show(), "Use matplotlib.pyplot.show(); a notebook shows the figure."),
    (lambda r: r.weights_["coeff"], "There is no 'coeff'. Did you mean 'coef'? Known: coef, intercept."),
    (lambda r: r.get_training_graphs()["steps"], "There is no 'steps'. Did you mean 'step'? Known: "),
    (
        lambda _: R(make_pipeline(FunctionTransformer(np.sign), Ridge()), max_iter=0).fit(X, y).coef_,
        "Pipeline has no coef_. Use weights_ for the trained weights.",
    ),
    (lambda _: Inputs(a=[1]).b, "Inputs has no attribute 'b'. Known: keys, shape."),
    (lambda _: Inputs(a=[1])[1], "Rows are selected by indices from 0 to 0, slices or a mask, got 1."),
    (lambda _: Inputs(a={1}), "The input 'a' must have rows, got {1}."),
    (lambda r: plot_graph(r).show(), "A notebook shows it; save(path) writes an SVG."),
    (lambda r: plot_graph(r).save(3), "path must be a file path, got 3."),
    (lambda _: OrtGradientForwardBackward(TWO_COLUMNS).forward, "It is a method of new_instance()."),
    (lambda _: onnxtrain.OrtGradientForwardBackwardFunction(), "OrtGradientForwardBackward(model).new_instance()."),
    (
        lambda _: onnxtrain.random_feed(TWO_COLUMNS.graph.input, batch="3"),
        "batch must be a length, such as 10, got '3'.",
    ),
    (lambda _: OrtGradientForwardBackward(TWO_COLUMNS).new_instance().step, "The caller holds the weights"),
    (lambda _: OrtGradientForwardBackward(TWO_COLUMNS, 3), "weights_to_train must be a list of names, got 3."),
    (lambda _: OrtGradientForwardBackward(TWO_COLUMNS, class_name=3), "class_name must be a string, got 3."),
    (lambda _: onnxtrain.rows.from_csv, "module 'onnxtrain.rows' has no attribute 'from_csv'. Use from_files(paths, "),
    (lambda _: onnxtrain.optim.LBFGS, "module 'onnxtrain.optim' has no attribute 'LBFGS'. Set solver='lbfgs'."),
    (lambda _: onnxtrain.train, "module 'onnxtrain' has no attribute 'train'. Use fit(X, y) of OrtGradientRegressor"),
    (lambda _: onnxtrain.from_zarr, "has no attribute 'from_zarr'. Did you mean onnxtrain.rows.from_zarr?"),
    (lambda _: onnxtrain.errors.TrainError, "module 'onnxtrain.errors' has no attribute 'TrainError'. Known: Argument"),
    (lambda _: onnxtrain.testing.check_gradients, "Did you mean 'check_gradient'?"),
    (lambda _: R.load, "OrtGradientRegressor has no load. Use onnxtrain.load(path), a function."),
    (lambda r: r.weights_.coef, "A dictionary has no attribute 'coef'. Use the key, ['coef']."),
    (lambda r: r.weights_.coeff, "A dictionary has no attribute 'coeff'."),
    (lambda _: R.loads, "type object 'OrtGradientRegressor' has no attribute 'loads'"),
    (lambda _: onnxtrain.nn, "module 'onnxtrain' has no attribute 'nn'. Known: DerivativeOptions, Inputs"),
]


class TakesFirstLabel(LogisticRegression):
    """Takes a row of y by its position, as the temperature scaling of scikit-learn 1.9."""

    def fit(self, X, y, sample_weight=None):
        assert y[0] in y
        return super().fit(X, y, sample_weight)


class Failing(LinearRegression):
    """An estimator whose own fit has an error."""

    def fit(self, X, y, sample_weight=None):
        return vars(self).get("absent")["coef"]


TARGET_INSIDE = pd.DataFrame(X).rename(columns=str).assign(target=y)
TOWNS = pd.DataFrame({"town": ["Bern", None] * 10})
SCALED_BESIDE_TOWNS = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["town"]), remainder=StandardScaler()), Ridge()
)
NIGHTS = TABLE[["area", "town"]].assign(beds=1.0, since=RENT)
DAYS = pd.DataFrame({"day": ["2020-01-05", None] * 10})
MONTHS = make_pipeline(FunctionTransformer(lambda X: X.apply(lambda day: pd.to_datetime(day).dt.month)), Ridge())
BAGGED = BaggingRegressor(R(max_iter=0), n_estimators=2)
CALIBRATED = CalibratedClassifierCV(C(max_iter=0), cv=2)

#: Mixed up arguments, results of other libraries' objects, errors of an estimator's own fit.
THIRD_HOUR = [
    (
        lambda _: R().fit(X, y, y),
        ArgumentTypeError,
        "OrtGradientRegressor.fit got the same object as y and as its third argument, sample_weight. Leave the third",
    ),
    (lambda r: r.score(X, y, y), ArgumentTypeError, "OrtGradientRegressor.score got the same object as y and as its"),
    (lambda r: r.score(y, X), DataError, "y has shape (442, 10), as if they were swapped. Call score(X, y)."),
    (
        lambda _: R(Failing()).fit(X, y),
        DataError,
        "Failing is not fitted, so its own fit was called with these rows first. Failing failed with TypeError: "
        "'NoneType' object is not subscriptable. Pass a fitted Failing: call its fit(X, y) alone",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Failing())).fit(X, y),
        DataError,
        "Pipeline is not fitted, so its own fit was called with these rows first. Failing failed with TypeError",
    ),
    (
        lambda _: R(StackingRegressor([("a", Ridge().fit(X, y))], cv="prefit")).fit(X, y),  # copies are not fitted
        DataError,
        "failed with NotFittedError: This Ridge instance is not fitted yet. Call 'fit' with appropriate arguments "
        "before using this estimator. Pass a fitted StackingRegressor: call its fit(X, y) alone",
    ),
    (
        lambda _: C(make_pipeline(FunctionTransformer(np.cbrt), TakesFirstLabel())).fit(
            IRIS, pd.Series(SPECIES).rename(lambda i: i + 1)
        ),
        DataError,
        "TakesFirstLabel failed with KeyError: 0. It may look for rows of y by position, which a Series finds by its index. "
        "Pass y.to_numpy().",
    ),
    (lambda _: LossCurveDisplay([1.0]).plot(path="a"), ArgumentTypeError, "'path'. Arguments other than ax and"),
    (lambda r: plot_graph(r, path="a.svg"), ArgumentTypeError, "'path'. To write the picture, use plot_graph(model).s"),
    (
        lambda _: LossCurveDisplay.from_estimator(BAGGED.fit(X, y)),
        ArgumentTypeError,
        "BaggingRegressor contains 2 fitted estimators. Draw one of them, LossCurveDisplay.from_estimator(model.estima",
    ),
    (
        lambda _: WeightsDisplay.from_estimator(CALIBRATED.fit(IRIS, SPECIES)),
        ArgumentTypeError,
        "from_estimator(model.calibrated_classifiers_[0].estimator), or several with the same ax=.",
    ),
    (
        lambda _: LossCurveDisplay.from_estimator(TransformedTargetRegressor(R())),
        AttributeError,
        "This TransformedTargetRegressor instance is not fitted yet",
    ),
    (
        lambda _: C(TEXTS).fit(WORDS, [["a"], ["b", "c"]] * 10),
        DataError,
        "y contains lists of different lengths, from 1 to 2. Convert lists or sets of the labels of a row to an indicator",
    ),
    (
        lambda _: C(TEXTS).fit(WORDS, np.array([True, False] * 10, object)),
        DataError,
        "y has dtype object, but all its values are bool. Pass y.astype(bool).",
    ),
    (
        lambda _: C(TEXTS).fit(WORDS, [1] * 20),
        DataError,
        "y has one class, 1. A classifier needs at least two classes.",
    ),
    (
        lambda _: R(Ridge(), estimator=Ridge()),
        ArgumentTypeError,
        "OrtGradientRegressor got estimator twice, by position",
    ),
    (lambda _: R(random_state="42").fit(X, y), ParameterError, "Pass the integer, random_state=42."),
    (
        lambda _: plot_graph(make_pipeline(R(max_iter=0)).fit(X, y)),
        ArgumentTypeError,
        "got Pipeline. Pass pipeline[-1].",
    ),
    (lambda r: r.weights_.update(coef=[1.0]), DataError, "The weight 'coef' has the shape (10, 1), got an array of sh"),
    (lambda r: setattr(r, "weights_", {}), AttributeError, "weights_ cannot be replaced. Assign each weight: model.w"),
    (
        lambda r: setattr(r, "coef_", X[0]),
        AttributeError,
        "coef_ cannot be assigned. Assign the weight: model.weights_",
    ),
    (
        lambda _: R(learning_rate=RMSprop).fit(X, y),
        OptimizerError,
        "got the class RMSprop. Pass one of onnxtrain.optim, such as Cosine(0.1), or a function of the step.",
    ),
    (lambda _: rows.from_parquet("no/*.parquet", label="y"), FileError, "'no/*.parquet'. Pass glob.glob(pattern)."),
    (
        lambda _: R(max_iter=1).fit(X, y, callback=lambda info: setattr(info, "learning_rate", 0.1)),
        ParameterError,
        "callback assigned to its argument: cannot assign to field 'learning_rate', which has no effect on training.",
    ),
    (
        lambda _: (model := R()).fit(X, y, callback=lambda info: model.set_params(learning_rate=1e-9) and None),
        ParameterError,
        "callback changed learning_rate of the estimator, which has no effect on this fit. Set learning_rate to a schedule",
    ),
    (
        lambda _: OneVsRestClassifier(C(LogisticRegression(max_iter=500).fit(IRIS, SPECIES))).fit(IRIS, SPECIES),
        DataError,
        "fit models of two classes, but the given model has 3. Leave them out",
    ),
    (
        lambda _: R().fit(rows.from_files(range(9), lambda i: (X[i], y[i]), n_rows=[1] * 9)),
        DataError,
        "read(0) must return several rows, but y is a single number. A part of some thousand rows is fast",
    ),
    (
        lambda _: C(NORMALIZED, max_iter=1).fit(IRIS, SPECIES),
        ModelError,
        "BatchNormalization is in training mode. Export the network in evaluation mode, after model.eval().",
    ),
    (
        lambda _: R().fit(X, [str(v).replace(".", ",") for v in y.tolist()]),
        DataError,
        "y must be numeric, got the string '151,0'. Convert them: pandas.Series(y).str.replace('[^0-9,-]', '', regex=True)",
    ),
    (
        lambda _: C(LogisticRegression()).fit(IRIS, np.eye(3)[SPECIES]),
        DataError,
        "LogisticRegression takes one class per row. If y has one column per class, pass y.argmax(axis=1). For several",
    ),
    (
        lambda _: R().fit(X, y, callback=Ridge()),
        ParameterError,
        "got Ridge(). For example: callback=lambda info: print",
    ),
    (
        lambda _: R(loss=lambda op, y, p: op.Log(p - 1e9), max_iter=1).fit(X, y),
        ConvergenceError,
        "in a loss of your own for roots of negative numbers and logarithms of them or of 0. losses(X, y) shows the rows.",
    ),
    (
        lambda _: onnxtrain.with_new_head(NETWORK, [0, 1]),
        ParameterError,
        "got [0, 1]. Pass the number of classes, len(",
    ),
    (
        lambda _: onnxtrain.onnx_derivative(TWO_COLUMNS, options="loss"),
        ArgumentTypeError,
        "got 'loss' of type str. Pass one, or several joined by |, of DerivativeOptions: Zero, KeepYieldOp,",
    ),
    (
        lambda _: C(NETWORK, weights_to_train="^coef.*").fit(IRIS, SPECIES),
        WeightError,
        "Patterns are those of file names, with * and ?, not regular expressions.",
    ),
    (
        lambda _: R(TWO_INPUTS).fit([X, X], y),
        DataError,
        "or as onnxtrain.Inputs, got a list of 2. If it has an array per input, use dict(zip(['a', 'b'], X)).",
    ),
    (lambda _: R(TWO_INPUTS).fit(X, y), DataError, "or as onnxtrain.Inputs, got an array of shape (442, 10)."),
    (
        lambda _: R(loss="huber").set_params(loss_params__delta=0.5),
        ParameterError,
        "loss_params__delta cannot be set. The parameters of a loss are set as a whole, loss_params={'delta': 0.5}, in a sea",
    ),
    (
        lambda _: C(make_pipeline(make_column_transformer((TfidfVectorizer(), ["town"])), LogisticRegression())).fit(
            TABLE, RENT > 9
        ),
        DataError,
        "inconsistent numbers of samples: [1, 20]. If a ColumnTransformer gives a column of texts to a vectorizer, name",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"a": ["1,5", "2"] * 10}), RENT),
        DataError,
        "in 'a', such as '1,5'. Convert them: X['a'].str.replace('[^0-9,-]', '', regex=True).str.replace(',', '.').astype(f",
    ),
    (lambda _: R().fit(pd.DataFrame({"a": ["5%", "2%"] * 10}), RENT), DataError, "as strings in 'a', such as '5%'."),
    (lambda _: R().fit(TABLE, ("area",)), DataError, "y contains column names. Pass y=X['area'], and X without them."),
    (lambda r: r.merge_and_unload(), AttributeError, "Use get_trained_onnx(), which merges the factors of LoRA into"),
    (
        lambda _: onnxtrain.onnx_derivative(LINE.graph),
        ModelError,
        "got GraphProto. Pass the model that contains the graph.",
    ),
    (lambda r: r.embed(X, "hidden"), ModelError, "The model has no result 'hidden'. Known: "),
    (lambda r: r.embed(X, "coef"), ModelError, "result 'coef'. The layer with these weights returns '"),
    (
        lambda _: C(NETWORK, max_iter=0).fit(IRIS, SPECIES).embed(IRIS, "classes_cast"),
        ModelError,
        "The model has no result 'classes_cast'. Known: ",
    ),
    (
        lambda _: C(TEXTS).fit(pd.DataFrame({"t": WORDS}), [0, 1] * 10),
        DataError,
        "X is a frame, and a text vectorizer takes the names of its columns as the texts. Pass a column, X['t']",
    ),
    (
        lambda _: C(TEXTS).fit(TfidfVectorizer().fit_transform(WORDS), [0, 1] * 10),
        DataError,
        "takes one string per row, and X has numbers, as after a vectorizer. Pass the texts, or a model without the",
    ),
    (
        lambda _: C(make_pipeline(OrdinalEncoder(), LogisticRegression())).fit(TOWNS, [0, 1] * 10),
        DataError,
        "contains NaN in 'town'. Fill missing texts, for example X.fillna({'town': 'missing'}), and missing numbers by",
    ),
    (
        lambda _: R(MONTHS).fit(DAYS, range(20)),
        DataError,
        "contains NaN in 'day'. Fill missing dates by one of the column, X.fillna({'day': '2020-01-05'}), put an imputer",
    ),
]

FOURTH_HOUR = [
    (
        lambda _: R(make_pipeline(ColumnTransformer([("a", StandardScaler())]), Ridge())).fit(TOWNS, range(20)),
        ParameterError,
        "The steps of a ColumnTransformer are tuples of a name, a step and its columns, got tuple of 2. make_pipeline(",
    ),
    (
        lambda _: R(make_pipeline(ColumnTransformer(5), Ridge())).fit(TOWNS, range(20)),
        ParameterError,
        "The steps of a ColumnTransformer are tuples of a name, a step and its columns, got int. make_pipeline(...)",
    ),
    (
        lambda _: C(RandomForestClassifier(2).fit(IRIS, 0 * SPECIES)).fit(IRIS, SPECIES),
        DataError,
        "RandomForestClassifier was fitted on rows of one class, 0, and has nothing to separate. Fit it on rows of two",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"a": ["1,000", "2,500"] * 5}), range(10)),
        DataError,
        "X contains numbers with units or commas as strings in 'a', such as '1,000'. The comma may separate thousands or decimals. If",
    ),
    (
        lambda _: R().fit(X, ["1"] * 442),
        DataError,
        "got the string '1'. Pass numpy.asarray(y).astype(float), or use Ort",
    ),
    (
        lambda _: R().fit(X, ["$1"] * 442),
        DataError,
        "got the string '$1'. Convert them: pandas.Series(y).str.replace('[^0-9.-]'",
    ),
    (lambda _: R(activation="relu"), ArgumentTypeError, "Set it on the model: estimator=MLPRegressor("),
    (lambda _: C(class_names=["a"]), ArgumentTypeError, "The classes are those of y."),
    (
        lambda r: r.pvalues,
        AttributeError,
        "Gradient descent gives no standard errors; statsmodels fits models that have",
    ),
    (lambda _: R("~/m.onnx").fit(X, y), ModelError, "~ is not expanded. Use os.path.expanduser('~/m.onnx')."),
    (lambda _: R("x" * 5000).fit(X, y), ModelError, "got 5000 characters, 'xxx"),
    (
        lambda _: R(["a.onnx", "b.onnx"]).fit(X, y),
        ParameterError,
        "got list. Pass one of them. A file and its external",
    ),
    (lambda _: R(memoryview(b"a")).fit(X, y), ParameterError, "got memoryview. Pass bytes(model)."),
    (
        lambda _: R(TWO_INPUTS).fit({"a": (row for row in X), "b": X}, y),
        DataError,
        "X['a'] must be an array with one entry per row, got a generator, which can be read only once. Pass list(X['a']).",
    ),
    (
        lambda _: R(TWO_INPUTS).fit({0: X, 1: X}, y),
        DataError,
        "The keys of X must be the names of the inputs of the model, a, b, got 0, 1. Pass dict(zip(['a', 'b'], X.values()))",
    ),
    (
        lambda _: R(onnxtrain.add_loss_output(LINE)).fit(X, y),
        DataError,
        "'label' seems to be an input for labels, as of a model with a loss. Pass the model without a loss; fit adds one. Or set "
        "output to the name of its scores, and inputs={'label': 0}.",
    ),
    (
        lambda _: R(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g (float[n, 2] X) => (float[n, 1] Y) '
                "<float[2, 1] W = {1, 2}> { h = MatMul(X, W) Y = mine.Foo(h) }"
            )
        ).fit(PAIR, RENT),
        ModelError,
        "Only operators of ONNX and onnxruntime can be trained. Export the model without custom operators",
    ),
    (lambda _: R(penalty={"elasticnet": 0.1}).fit(X, y), WeightError, "For a penalty on all weights, set l1= and l2=."),
    (lambda _: R(solver="torch.optim.AdamW").fit(X, y), OptimizerError, "Did you mean 'adamw'?"),
    (lambda _: C(loss=type("CrossEntropyLoss", (), {})).fit(IRIS, SPECIES), LossError, "Did you mean 'log'?"),
    (
        lambda _: onnxtrain.onnx_derivative(LINE, label="y"),
        ParameterError,
        "Set options=DerivativeOptions.Loss and loss= to the name of the output that is the loss, which add_loss_output ",
    ),
    (
        lambda _: onnxtrain.onnx_derivative(LINE, options=onnxtrain.DerivativeOptions.Loss, loss="loss"),
        ModelError,
        "To add one: onnx_derivative(add_loss_output(onx), options=DerivativeOptions.Loss, loss='loss', label='label').",
    ),
    (
        lambda _: type("Signum", (Optimizer,), {"slots": "mean"}),
        OptimizerError,
        "Signum: slots must be a tuple of names, got the string 'mean'. Write slots = ('mean',).",
    ),
    (
        lambda _: onnxtrain.onnx_derivative(TWO_COLUMNS, path_name="no/x.onnx"),
        FileError,
        "Create the folder first: os.makedirs('no').",
    ),
    (
        lambda _: onnxtrain.add_loss_output(NETWORK, "log", class_axis=1),
        LossError,
        "class_axis=1 applies to outputs with three or more axes, but got probabilities: FLOAT[",
    ),
    (
        lambda _: OrtGradientForwardBackward(TWO_COLUMNS)(X),
        ArgumentTypeError,
        "OrtGradientForwardBackward cannot be called. Use new_instance().forward([X, *weights], training=True).",
    ),
    (lambda r: r.export_training_step("d", target="browser"), ParameterError, "In a browser and in Node, a step for"),
    (lambda r: r.export_training_step(__file__), FileError, "File exists. It is a file. Pass another path."),
    (lambda _: R().partial_fit(X[0], y[0]), DataError, "For a single row, pass X[None] and [y]."),
    (
        lambda _: C(class_weight="balanced").partial_fit(IRIS, SPECIES),
        ParameterError,
        "class_weight='balanced' is not available in partial_fit, which knows the rows of one call. Compute the weights",
    ),
    (
        lambda _: C(class_weight="balanced").partial_fit(IRIS, np.eye(3, dtype=int)[SPECIES] | [1, 0, 0]),
        ParameterError,
        "Compute the weights from all labels, a dictionary {0: ..., 1: ...} for each column of y: n = len(y_all), class",
    ),
    (
        lambda _: C().partial_fit(IRIS, SPECIES, np.linspace(0.5, 1.5, 150)),
        DataError,
        "classes has one entry per row, 150, like sample weights, but is not y. Pass weights by name: partial_fit(X, y, sam",
    ),
    (
        lambda _: C().partial_fit(IRIS, SPECIES, np.ones(150)),
        DataError,
        "classes has one entry per row, 150, like sample weights, but is not y. Pass weights by name: partial_fit(X, y, sam",
    ),
    (
        lambda r: r.get_trained_onnx(path=io.BytesIO()),
        ArgumentTypeError,
        "Write to it: file.write(model.get_trained_onnx().SerializeToString()).",
    ),
    (lambda _: R(loss=lambda op, y, p: "huber").fit(X, y), LossError, "Pass the name itself: loss='huber'."),
    (
        lambda _: C(LogisticRegression(max_iter=1000).fit(IRIS, np.array(["a", "b", "c"])[SPECIES])).fit(IRIS, SPECIES),
        DataError,
        "y has the integers 0, 1, 2, but the classes of the model are ['a', 'b', 'c']. If they are positions in this list, "
        "pass numpy.array(['a', 'b', 'c'])[y].",
    ),
    (
        lambda r: r.score(y.tolist(), X),
        DataError,
        "X has shape (442,) and y has shape (442, 10), as if they were swapped.",
    ),
    (
        lambda _: C(PIXELS).fit(np.ones((20, 3, 8, 8)), [-100, 1] * 10),
        DataError,
        "y has the label -100, but the model has 2 classes",
    ),
    (lambda _: R(make_pipeline([StandardScaler(), Ridge()])).fit(X, y), ParameterError, "make_pipeline(*steps)"),
    (lambda r: plot_graph(r).save("no/graph.svg"), FileError, "Create the folder first: os.makedirs('no')."),
    (
        lambda _: R(WITH_TOWNS, max_iter=0).fit(TABLE, RENT).predict(TABLE.assign(area=np.nan)),
        DataError,
        "contains NaN in 'area'. Put an imputer before the step of the pipeline that takes these columns",
    ),
    (
        lambda _: R(WITH_TOWNS, max_iter=0).fit(TABLE, RENT).predict(TABLE.iloc[0].to_frame()),
        DataError,
        "X seems to be transposed. Pass X.T; a row of a frame is frame.iloc[[0]], with two pairs of brackets.",
    ),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE, RENT, ["a"] * 20),
        DataError,
        "sample_weight must contain one number per row, but",
    ),
    (lambda _: R(WITH_TOWNS).fit(pd.DataFrame, RENT), DataError, "got the class DataFrame. Pass an object with rows."),
    (lambda _: R(WITH_TOWNS).fit(TABLE.iloc[0], [1]), DataError, "X is a column. A row of a frame is frame.iloc[[0]]"),
    (lambda _: R(WITH_TOWNS).fit(TABLE.to_dict(), RENT), DataError, "got dict. Pass pandas.DataFrame(X)."),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE.to_dict("records"), RENT),
        DataError,
        "X is a list of dictionaries, one per row. Pass the columns of all rows: X = pandas.DataFrame(X).",
    ),
    (lambda _: onnxtrain.OrtGradient, AttributeError, "Did you mean 'OrtGradientRegressor'?"),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE),
        DataError,
        "target y is None: fit(X, y). If a column of X holds the targets, take it out: y = X.pop(name).",
    ),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE, TABLE[["town", "area"]]),
        DataError,
        "y has 2 columns, and strings in 'town'. Pass one column of targets, y['area'] for a regressor or y['town'] for a "
        "classifier, and X without it.",
    ),
    (
        lambda _: R().fit(TABLE, target="area"),
        ArgumentTypeError,
        "Pass the column of the targets as y, and X without it: fit(X.drop(columns='price'), X['price']).",
    ),
    (
        lambda _: R().fit(np.array([(1.0, 2)], dtype=[("a", float), ("b", float)]), [1]),
        ArgumentTypeError,
        "Convert the fields to columns: pandas.DataFrame(X).",
    ),
    (
        lambda _: R(learning_rate="step").fit(X, y),
        OptimizerError,
        "For another one, pass a function of the step, such as lambda step: 0.01 * 0.5 ** (step // 100); for a warm-up",
    ),
    (
        lambda _: rows.from_dask(TABLE, RENT),
        ArgumentTypeError,
        "got DataFrame. Pass rows in memory to fit itself: fit(X",
    ),
    (
        lambda _: R(TWO_INPUTS).fit(PAIR, RENT),
        DataError,
        "If it has a column per input, in this order, use pandas.DataFrame(X, columns=['a', 'b']).",
    ),
    (
        lambda _: R().fit(X, y, np.ones((442, 2, 2))),
        DataError,
        "got an array of shape (442, 2, 2). To weight classes of pos",
    ),
    (
        lambda _: C().fit(PAIR, scipy.sparse.csr_matrix(RENT)),
        DataError,
        "y seems to be transposed. Pass y.toarray().ravel().",
    ),
    (
        lambda _: R(loss=lambda op, y, p: op.ReduceSum(y - p, axis=1)).fit(X, y),
        LossError,
        "The axes of a reduction are its second input: op.ReduceSum(x, [1], keepdims=1)",
    ),
    (
        lambda _: R(loss=lambda op, y, p: op.Cast(y - p, to=7)).fit(X, y),
        LossError,
        "Convert it to floats: op.CastLike(x, y_pred).",
    ),
    (
        lambda _: R(loss=lambda op, y, p: abs(y - p) > 1).fit(X, y),
        LossError,
        "A comparison has no derivative. A smooth form of a > b is op.Sigmoid(a - b).",
    ),
    (
        lambda _: R(loss=lambda op, y, p: op.CastLike(abs(y - p) > 1, p)).fit(X, y),
        WeightError,
        "and not only in a comparison, op.Sign or op.Round? A smooth form of a > b is op.Sigmoid(a - b).",
    ),
    (lambda _: R(loss=lambda op, y, p: op.Sub(y)).fit(X, y), ModelError, "An operator has too few or too many inputs."),
    (
        lambda _: R(Pipeline([StandardScaler(), Ridge()])).fit(X, y),
        ParameterError,
        "are tuples of a name and a step, got",
    ),
    (
        lambda _: R(make_pipeline(make_column_transformer((StandardScaler, ["area"])), Ridge())).fit(TABLE, RENT),
        ParameterError,
        "A step of the ColumnTransformer must be an instance, got the class StandardScaler. Pass StandardScaler().",
    ),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE.assign(area=np.where(RENT > 3, RENT, np.nan)), RENT),
        DataError,
        "contains NaN in 'area'. Put an imputer before the step of the pipeline that takes these columns, such as (make_pip",
    ),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE[:15], pd.Series(RENT)),
        DataError,
        "Pass y.loc[X.index], the targets of the rows",
    ),
    (
        lambda _: R(WITH_TOWNS).fit(TABLE[:15], RENT),
        DataError,
        "X has 15 rows, y has 20. Pass one target per row, from",
    ),
    (lambda r: r.predict([]), DataError, "X has no rows. Pass at least one."),
    (
        lambda _: setattr(C(), "classes_", ["a"]),
        AttributeError,
        "classes_ cannot be assigned: the classes are the labels",
    ),
    (
        lambda _: onnxtrain.trainable_weights(LINE, "coef*"),
        ParameterError,
        "X must be rows, got 'coef*'. trainable_weig",
    ),
    (lambda _: onnxtrain.set_seed(0), AttributeError, "Set random_state, a parameter of the estimators"),
]


def nested():
    return lambda op, y, p: abs(y - p)


#: Rows of xgboost, and a value that dask has not computed yet.
FOREIGN = type("DMatrix", (), {"__module__": "xgboost.core"})()
LATER = type("Delayed", (), {"__module__": "dask.delayed", "compute": print})()


class NoOptimizer:
    """A class that a user registers as an optimizer, although it is none."""


#: Searches, files, names of other libraries, numbers as strings, losses of other libraries and of users.
WHOLE = TABLE[["town", "area"]].astype({"area": "int64"})
OF_STRINGS = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> g (string[n, 1] town) => (float[n, 1] Y)'
    '<float[2, 1] W = {1, 2}> { c = ai.onnx.ml.OneHotEncoder<cats_strings = ["1", "2"]>(town)'
    " f = Flatten(c) Y = MatMul(f, W) }"
)
ROUNDED = onnx_model("(float[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {1, 2}> { r = Round(X) Y = MatMul(r, W) }")
TREE = R(DecisionTreeRegressor(max_depth=2), max_iter=0).fit(X, y)
FITTED_TEXTS = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(WORDS, TABLE.town)
WITH_CASE = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression())
#: One column has gaps, and an imputer.
HALF_KNOWN = pd.DataFrame({"age": [1.0, np.nan] * 10, "n": np.arange(20.0)})
IMPUTED = make_pipeline(make_column_transformer((SimpleImputer(), ["age"]), (StandardScaler(), ["n"])), Ridge())

#: A column without values, and one of decimals.
SCALED_LINE = make_pipeline(StandardScaler(), Ridge())
NOTHING = pd.DataFrame({"area": [None], "rooms": [3.0]})
PRICES = pd.DataFrame({"area": RENT, "price": [Decimal("1.50"), Decimal("2.50")] * 10})


def archive(kind):
    """Return the bytes of an archive that holds LINE as line.onnx."""
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("line.onnx", LINE.SerializeToString())
    else:
        with tarfile.open(fileobj=file, mode=f"w:{kind}") as archive:
            found = tarfile.TarInfo("line.onnx")
            found.size = len(LINE.SerializeToString())
            archive.addfile(found, io.BytesIO(LINE.SerializeToString()))
    return file.getvalue()


def trained_in_its_callback(method, **params):
    model = R(max_iter=3, **params)
    model.fit(X, y, callback=lambda info: getattr(model, method)(X[:50], y[:50]) and None)


FIFTH_HOUR = [
    *(
        (
            lambda _, labelled=labelled: R().fit(X, y, X_val="rows.parquet", **labelled),
            DataError,
            "got 'rows.parquet'. Pass X_val=onnxtrain.rows.from_parquet('rows.parquet', label=...) without y_val; label",
        )
        for labelled in ({}, {"y_val": y})
    ),
    (
        lambda _: R().fit(X, y, X_val=pathlib.Path("rows.csv"), y_val=y),
        DataError,
        "Read the file, for example with pandas.read_csv('rows.csv'), and pass its columns as X_val and y_val.",
    ),
    *(
        (
            lambda _, model=model: model.fit(X, y > 150),
            DataError,
            "For a single target, pass the estimator inside the MultiOutput one: model.estimator instead of model.",
        )
        for model in (R(MultiOutputRegressor(Ridge())), C(MultiOutputClassifier(LogisticRegression())))
    ),
    *(
        (
            lambda _, given=given: trained_in_its_callback(*given[:1], **given[1]),
            ParameterError,
            "after epoch 1. Train a copy of it, copy.deepcopy(model).partial_fit(X, y), or return None and call it",
        )
        for given in [("partial_fit", {}), ("fit", {}), ("fit", {"warm_start": True}), ("fit", {"solver": "lbfgs"})]
    ),
    *(
        (
            lambda _, part=part: R().fit(rows.from_files(["a"], lambda _: part)),
            DataError,
            "read('a') must return the tuple (X, y) or (X, y, sample_weight), got a list of 2. Leave out its brackets",
        )
        for part in ([TABLE[["area"]], TABLE.area], [X, y])
    ),
    (
        lambda _: R().fit(rows.from_files(["a"], lambda _: (TABLE, "area"))),
        DataError,
        "got 'area'. For a column, return (X.drop(columns='area'), X['area']).",
    ),
    (
        lambda _: R().fit(rows.from_files(["a"], lambda _: (pl.DataFrame(TABLE), "area"))),
        DataError,
        "got 'area'. For a column, return (X.drop('area'), X['area']).",
    ),
    (lambda _: R().fit(rows.from_files(["a"], lambda _: (X, "a.csv"))), DataError, "'a.csv'. Let it read that file."),
    *(
        (
            lambda _, kind=kind: R(archive(kind)).fit(X, y),
            ModelError,
            f"Unpack it with shutil.unpack_archive(path, format={name!r}), and pass the model in it: 'line.onnx'.",
        )
        for kind, name in {"zip": "zip", "": "tar", "gz": "gztar", "bz2": "bztar", "xz": "xztar"}.items()
    ),
    *(
        (lambda _, start=start: R(start + bytes(600)).fit(X, y), ModelError, "It is compressed. Unpack it, for example")
        for start in (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
    ),
    (
        lambda _: R(Ridge()).fit(pd.DataFrame({"image": [b"\x89PNG"] * 20}), RENT),
        DataError,
        "X['image'] contains bytes, such as b'\\x89PNG', but the model takes numbers. They are images. Pass the pixels,",
    ),
    (
        lambda _: R(LINE).fit([b"\0\1"] * 20, RENT),
        DataError,
        "Decode each into numbers, for example [numpy.frombuffer(data, numpy.float32) for data in X].",
    ),
    (
        lambda _: R({"alpha": 1.0}).fit(X, y),
        ParameterError,
        "got dict. Of a search, pass the estimator with the best parameters: search.best_estimator_.",
    ),
    (
        lambda _: R({"model": {"weight": X}, "epoch": 3}).fit(X, y),
        ParameterError,
        "got dict. Weights have no graph. Load them into their module",
    ),
    (
        lambda _: R(make_pipeline(SimpleImputer(), OneHotEncoder(), Ridge())).fit(TABLE[["area", "town"]], RENT),
        DataError,
        "X contains strings in 'town'. Impute and encode them in a step of their own: make_column_transformer((make_",
    ),
    (
        lambda _: R(Ridge()).fit(PRICES, RENT),
        ConversionError,
        "Ridge takes numeric columns, but X has numbers of type Decimal in 'price'. Pass X.astype({'price': float}).",
    ),
    (
        lambda _: R(SCALED_LINE, max_iter=0).fit(TABLE[["area"]].assign(rooms=RENT), RENT).predict(NOTHING),
        DataError,
        "NaN in 'area'. It has no value at all. Fill it, X.fillna({'area': 0.0}).astype({'area': float}), or pass a model with an",
    ),
    (lambda _: R().fit(y=y), ArgumentTypeError, "OrtGradientRegressor.fit requires X: fit(X, y)."),
    (
        lambda _: R(TWO_COLUMNS, inputs={"X": 1.0}).fit(X, y),
        ParameterError,
        "left for the rows. Leave it out for one input.",
    ),
    (
        lambda _: C(max_iter=0).fit(IRIS, SPECIES).score(IRIS, np.eye(3)[SPECIES]),
        DataError,
        "multilabel-indicator and multiclass targets. Pass labels as in fit: y.argmax(axis=1) for one column per class.",
    ),
    (
        lambda _: R(solver="sgd_momentum").fit(X, y),
        OptimizerError,
        "Unknown solver 'sgd_momentum'. Did you mean 'sgd'?",
    ),
    (
        lambda _: C(ignore_index=[-100, 0]).fit(IRIS, SPECIES),
        ParameterError,
        "such as -100, or None. Of several, make one in",
    ),
    (
        lambda _: C(output_is="sigmoid").fit(IRIS, SPECIES),
        ParameterError,
        "for results of Sigmoid or Softmax, 'probabiliti",
    ),
    (
        lambda _: R(make_pipeline(Ridge())).fit(X, y, {0: 1}),
        DataError,
        "one number per row, got {0: 1}. To weight classes,",
    ),
    (
        lambda _: C(weights_to_train=LoRA()).set_params(lora__rank=2),
        ParameterError,
        "Did you mean 'weights_to_train__rank'?",
    ),
    (lambda _: C(GOOD).set_params(model__C=2), ParameterError, "Did you mean 'estimator__C'?"),
    (
        lambda _: R(loss="quantile", loss_params={"q": [0.1]}).fit(X, y),
        LossError,
        "got [0.1]. Pass one number, and fit",
    ),
    (
        lambda _: C(class_weight={0: "balanced"}).fit(IRIS, SPECIES),
        ParameterError,
        "Set class_weight='balanced' itself.",
    ),
    (lambda _: R().fit(TABLE.groupby("town"), RENT), DataError, "or one of its groups: X.get_group(name)."),
    (
        lambda _: R().fit({1.0, 2.0}, RENT),
        DataError,
        "got set, whose rows cannot be indexed. Pass a list, an array or a",
    ),
    (
        lambda _: R().fit(io.StringIO("a"), RENT),
        ArgumentTypeError,
        "X is an open file, ''. Read it, for example with pandas",
    ),
    (lambda _: R().fit(TABLE[["area"]], "arae"), DataError, "X has no such column. Did you mean 'area'? Known: area."),
    (
        lambda _: R().fit(TABLE[["area"]].assign(new=["True", "False"] * 10), RENT),
        DataError,
        "X contains True and False as strings in 'new'. Convert them: X['new'] == 'True'.",
    ),
    (
        lambda _: R(monitor="val_loss"),
        ArgumentTypeError,
        "monitors their loss and keeps the weights of the best epoch.",
    ),
    (
        lambda _: R(restore_best_weights=True),
        ArgumentTypeError,
        "monitors their loss and keeps the weights of the best",
    ),
    (lambda _: R(LINE, module__units=3), ArgumentTypeError, "Pass a model that has its layers: estimator=model."),
    (
        lambda _: R().fit("rent ~ area", RENT),
        DataError,
        "got the formula 'rent ~ area'. Pass the columns: fit(frame[['x']]",
    ),
    (
        lambda _: R().fit(FOREIGN, y),
        DataError,
        "got a DMatrix of xgboost. Pass the arrays of which it was made: fit(X, y), predict(X).",
    ),
    (lambda _: R(loss={"Y": "log"}).fit(X, y), LossError, "such as loss='log', and name this output with output=."),
    (
        lambda _: R(learning_rate=Ridge()).fit(X, y),
        OptimizerError,
        "example: learning_rate=onnxtrain.optim.Cosine(0.1).",
    ),
    (
        lambda _: onnxtrain.get_train_initializer(LINE, 1),
        ArgumentTypeError,
        "too many positional arguments. Its arguments",
    ),
    (
        lambda _: onnxtrain.loss("of_user", kind="output"),
        ArgumentTypeError,
        "Its arguments are names, prediction, least, o",
    ),
    (lambda _: onnxtrain.gradient_rule("Cube", domains=""), ArgumentTypeError, "Did you mean 'domain'?"),
    (lambda _: onnxtrain.no_gradient("Cube", domains=""), ArgumentTypeError, "Did you mean 'domain'?"),
    (lambda _: onnxtrain.optim.optimizer("cube", name=""), ArgumentTypeError, "Its arguments are names, override."),
    (lambda _: LossCurveDisplay(curve=[1.0]), ArgumentTypeError, "Did you mean 'loss_curve'?"),
    (lambda _: onnxtrain.converter(print), ParameterError, "Pass that of the step: @converter(MyStep)."),
    (lambda _: onnxtrain.limit_caches("1GB"), ParameterError, "0 or more, got '1GB'. 10**9 is a gigabyte."),
    (lambda r: r.score(X, X), DataError, "Pass the targets of the rows, with as many columns as in fit: score(X, y)."),
    (lambda r: r.weights_.pop("coef"), DataError, "cannot be removed. To set one to 0: model.weights_['coef'][:] = 0."),
    (
        lambda _: R(clip_norm=(-1, 1)).fit(X, y),
        ParameterError,
        "Pass the largest norm of all gradients together, such as",
    ),
    (
        lambda _: R(gradient_builder="torch").fit(X, y),
        ParameterError,
        "'builtin' derives the gradients here; the other need",
    ),
    (
        lambda _: R(SCALED).set_params(estimator__C=3),
        ParameterError,
        "has no parameter 'C'. Did you mean 'estimator__logisticregression__C'?",
    ),
    (
        lambda _: C(SCALED).set_params(estimator__logisticregression__c=3),
        ParameterError,
        "'estimator__logisticregression__C'?",
    ),
    (
        lambda _: GridSearchCV(R(), {"l2": [0]}, cv=2, error_score="raise").fit(X, y, checkpoint="fit.onnx"),
        ParameterError,
        "checkpoint='fit.onnx' would be one file for all fits of a search or cross-validation. Leave it out",
    ),
    (
        lambda _: R(SGDRegressor(5)).fit(X, y),
        ParameterError,
        "Got 5 instead. A value by position is loss. Pass others by name, such as SGDRegressor(penalty=...).",
    ),
    (lambda _: R(make_pipeline(StandardScaler(), Ridge("1"))).fit(X, y), ParameterError, "Pass it without quotes: 1."),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge(), 10)).fit(X, y),
        ParameterError,
        "A step of the pipeline is 10, and not an estimator.",
    ),
    (lambda _: onnxtrain.EarlyStopping, AttributeError, "Set early_stopping, a parameter of the estimators."),
    (lambda _: onnxtrain.ModelCheckpoint, AttributeError, "Pass a file to fit: fit(X, y, checkpoint=path)."),
    (lambda _: onnxtrain.plot_loss, AttributeError, "Use LossCurveDisplay.from_estimator(model)."),
    (lambda _: onnxtrain.CrossEntropyLoss, AttributeError, "Set loss='log', a parameter of the estimators."),
    (
        lambda _: onnxtrain.gradient_checkpointing,
        AttributeError,
        "accumulate=... with a smaller batch_size saves memory.",
    ),
    (lambda _: onnxtrain.embed, AttributeError, "Use embed, an attribute of a fitted estimator."),
    (lambda _: onnxtrain.DataLoader, AttributeError, "or rows in parts: onnxtrain.rows.from_files(files, read)."),
    (lambda _: LossCurveDisplay.from_predictions(y, y), AttributeError, "Use LossCurveDisplay.from_estimator(model)"),
    (lambda _: WeightsDisplay.other, AttributeError, "type object 'WeightsDisplay' has no attribute 'other'"),
    (lambda _: R(clip_norm="1").fit(X, y), ParameterError, "Got '1' instead. Pass it without quotes: 1."),
    (lambda _: R(early_stopping="True").fit(X, y), ParameterError, "Got 'True' instead. Pass it without quotes: True."),
    (
        lambda _: R(n_iter_no_change="None").fit(X, y),
        ParameterError,
        "Got 'None' instead. To never stop early, set tol=0",
    ),
    (lambda _: R(loss_params="1").fit(X, y), ParameterError, "Got '1' instead. Pass a mapping from names to values"),
    (
        lambda _: C(class_weight={0: "1"}).fit(IRIS, SPECIES),
        ParameterError,
        "got '1' for 0. Pass it without quotes: 1.",
    ),
    (lambda _: R(loss="huber", loss_params={"delta": "1"}).fit(X, y), LossError, "Pass it without quotes: 1."),
    (
        lambda _: SGD(momentum="0.9").slot_names and R(solver=SGD(momentum="0.9")).fit(X, y),
        OptimizerError,
        "quotes: 0.9.",
    ),
    (lambda _: R().fit(X, y, checkpoint="fit.onnx", every="2"), ParameterError, "Pass it without quotes: 2."),
    (lambda _: R(TWO_COLUMNS, pad={"X": "0"}).fit(PAIR, RENT), ParameterError, "Pass it without quotes: 0."),
    (
        lambda _: rows.Parts(rows.from_files([1], read=len), open_parts="8"),
        ParameterError,
        "Pass it without quotes: 8.",
    ),
    (
        lambda _: C(NETWORK, weights_to_train=LoRA(rank=10**9)).fit(IRIS, SPECIES),
        ParameterError,
        "in the range [1, 16384]. Got 1000000000 instead. The default of LoRA is rank=8.",
    ),
    (lambda _: C(NETWORK, weights_to_train=LoRA(merge="no")).fit(IRIS, SPECIES), ParameterError, "Pass True or False."),
    (
        lambda r: onnxtrain.save(r, "a\0b"),
        ArgumentTypeError,
        "path must be a file path, got 'a\\x00b'. Pass a name such as",
    ),
    (lambda _: onnxtrain.load("a\0b"), ArgumentTypeError, "got 'a\\x00b'. Pass the path given to save."),
    (lambda r: r.get_trained_onnx(path="a\0b"), ArgumentTypeError, "path must be a file path"),
    (lambda r: r.export_training_step("a\0b"), ArgumentTypeError, "folder must be the path of a folder"),
    (lambda r: plot_graph(r).save("a\0b.svg"), ArgumentTypeError, "Pass a name such as 'graph.svg'."),
    (lambda _: R().fit(X, y, checkpoint="a\0b"), ParameterError, "such as 'fit.onnx', got 'a\\x00b'."),
    (lambda _: R(Ridge()).fit(X, 1e200 * y), DataError, "y contains numbers that are too large for float32. Divide y"),
    (
        lambda _: R().fit([[1.0, 2.0]] * 20, list(RENT[:9])),
        DataError,
        "X has 20 rows, y has 9. Pass one target per row",
    ),
    (lambda _: C(TEXTS).fit(WORDS, [0, 1] * 4), DataError, "X has 20 rows, y has 8. Pass one target per row"),
    (
        lambda _: R().fit(rows.from_files([1], lambda _: (X, y[:9]))),
        DataError,
        "but has 442 in X and 9 in y. read(0) must return as many rows of X as of y",
    ),
    (
        lambda _: R().fit(LATER, y),
        DataError,
        "X is a Delayed, whose value is not known yet. Pass X.compute().",
    ),
    (
        lambda _: R().fit([LATER], y),
        DataError,
        "X is a list of Delayed, whose values are not known yet. Pass numpy.concatenate(dask.compute(*X))",
    ),
    (lambda r: r.predict(Future()), DataError, "X is a Future, whose value is not known yet. Pass X.result()."),
    (
        lambda _: R().fit(X, LATER),
        DataError,
        "y is a Delayed, whose value is not known yet. Pass y.compute().",
    ),
    (lambda _: C().partial_fit(IRIS, SPECIES, classes=3), DataError, "got 3. Pass classes=numpy.unique(y)."),
    (
        lambda _: onnxtrain.average_states([]),
        DataError,
        "no state to average. Pass a list of states: average_states([a,",
    ),
    (
        lambda _: R(max_iter=1).fit(X, y, callback=lambda info: info.weights["coef"].fill(0)),
        ParameterError,
        "callback changed an array of info.weights, which training continues from. Change a copy: info.weights[name].c",
    ),
    (
        lambda _: R(make_pipeline(StandardScaler(), Ridge())).fit(
            TABLE[["area"]].assign(b=RENT), RENT, X_val=TABLE[["area"]].assign(b=RENT)[["b", "area"]], y_val=RENT
        ),
        DataError,
        "Pass X_val[X.columns], which has the columns in that order.",
    ),
    (
        lambda _: C(MLPClassifier(), class_weight={0: 1, 1: 2}).fit(IRIS, np.eye(3, dtype=int)[SPECIES]),
        DataError,
        "should be a list of dicts, or the string 'balanced'. For example: class_weight=[{0: 1.0, 1: 2.0}] * y.shape[1].",
    ),
    (
        lambda _: C(PIXELS).fit(np.ones((20, 3, 8, 8)), np.ones((20, 3), int)),
        DataError,
        "needs a score. Set head='new' to give an ONN",
    ),
    (
        lambda _: onnxtrain.loss("of_user", prediction="logits"),
        ParameterError,
        "one of 'output', 'log_mean', 'scores', 'lik",
    ),
    (
        lambda _: onnxtrain.optim.optimizer("of_user")(NoOptimizer),
        OptimizerError,
        "must be a class derived from Optimizer",
    ),
    (
        lambda _: R(solver=lambda w, dw: w - dw).fit(X, y),
        OptimizerError,
        "derive a class from onnxtrain.optim.Optimizer.",
    ),
    (lambda _: R(device=None).fit(X, y), DeviceError, "Did you mean 'auto'?"),
    (
        lambda _: own(lambda op, y, p: op.ReduceMean((y - p) ** 2)).fit(X, y),
        LossError,
        "Leave out the mean or the sum over the rows; the objective is the mean of these values. To reduce outputs only,",
    ),
    (
        lambda _: own(lambda op, y, p: op.square(y - p)).fit(X, y),
        LossError,
        "Use numpy.square, which takes values of the",
    ),
    (
        lambda _: own(lambda op, y, p: op.reduce_mean(y - p)).fit(X, y),
        LossError,
        "Use x.mean(axis=1, keepdims=True); the obj",
    ),
    (
        lambda _: own(lambda op, y, p: abs(y - p).ravel()).fit(X, y),
        LossError,
        "Keep the last axis: a loss returns one column",
    ),
    (
        lambda _: own(lambda op, y, p: np.linalg.norm(y - p)).fit(X, y),
        LossError,
        "Use numpy.sqrt((x * x).sum(axis=1, keepdims",
    ),
    (
        lambda _: own(lambda op, y, p: abs(y - p) * "2").fit(X, y),
        LossError,
        "compute with '2'. Pass it without quotes: 2.",
    ),
    (
        lambda _: C(MLP, loss=lambda op, y, p: ((y - p) ** 2).sum(axis=1, keepdims=True)).fit(IRIS, SPECIES),
        LossError,
        "For an indicator matrix of the classes, use numpy.arange(3) == y_true.",
    ),
    (
        lambda _: C(MLP, loss=lambda op, y, p: -p[:, y]).fit(IRIS, SPECIES),
        LossError,
        "The score of the class of each row is (y_pred * (numpy.arange(n_classes) == y_true)).sum(axis=1, keepdims=True).",
    ),
    (
        lambda _: C(MLP, class_weight=[{0: 1.0, 1: 2.0}]).fit(IRIS, np.c_[SPECIES == 0, SPECIES == 1].astype(int)),
        DataError,
        "Got 1 element(s) while having 2 outputs. Pass a list of one dictionary per label.",
    ),
    (
        lambda _: C(GOOD).set_params(loss__gamma=2.0),
        ParameterError,
        "loss__gamma cannot be set. The parameters of a loss are set as a whole, loss_params={'gamma': 0.5}, in a search",
    ),
    (
        lambda _: R(LinearSVR()).fit(PAIR, PAIR),
        DataError,
        "got an array of shape (20, 2) instead. A column of it is numpy.asarray(y)[:, 0]. For several targets, pass MultiO",
    ),
    (
        lambda _: R(WITH_TOWNS, max_iter=0).fit(WHOLE, RENT).predict(TABLE.assign(area=RENT + 0.5)[["town", "area"]]),
        DataError,
        "rounded or clipped. To cut off the fractions, pass X.astype({'area': 'int64'}). It contained integers or booleans in fit.",
    ),
    (
        lambda _: C(TEXTS, weights_to_train="tfidfvectorizer").fit(WORDS, TABLE.town),
        WeightError,
        "names the first step of the pipeline, which has no weights that can be trained with these rows. Leave it out",
    ),
    (
        lambda _: R(OF_STRINGS).fit(np.array([[1], [2]] * 10), RENT),
        DataError,
        "X must contain strings, got 1 of type int. If the model was trained on numbers as strings, pass numpy.asarray(X",
    ),
    (
        lambda _: R(OF_STRINGS).fit({"town": np.array([[1], [2]] * 10)}, RENT),
        DataError,
        "X['town'] must contain strings, but has dtype int64. If the model was trained on numbers as strings, pass numpy",
    ),
    (
        lambda _: R(OF_STRINGS).fit(np.array([["Rome"], [np.nan]] * 10, object), RENT),
        DataError,
        "X contains NaN among its strings. Replace it by a category of the model, such as '': numpy.where(pandas.isna(X)",
    ),
    (
        lambda _: R(OF_STRINGS).fit(np.array([[b"Rome"], [b"Oslo"]] * 10), RENT),
        DataError,
        "got the bytes b'Rome', which onnxruntime reads as the text \"b'Rome'\". Decode them: numpy.char.decode(numpy.",
    ),
    (
        lambda _: R(OF_STRINGS).fit({"town": np.array([[b"Rome"], [b"Oslo"]] * 10, object)}, RENT),
        DataError,
        "X['town'] must contain strings, got the bytes b'Rome', which onnxruntime reads as the text",
    ),
    (
        lambda _: R(IMPUTED, max_iter=0).fit(HALF_KNOWN, RENT).predict(HALF_KNOWN.where(HALF_KNOWN.n > 5)),
        DataError,
        "NaN in 'n'. Put an imputer before the step of the pipeline that takes these columns, such as (make_pipeline(Si",
    ),
    (
        lambda _: C(TEXTS).fit(np.array(WORDS)[:, None], TABLE.town),
        DataError,
        "X has the shape (20, 1), but a text vectorizer takes one string per row. Pass X.ravel().",
    ),
    (
        lambda _: C(TEXTS).fit(["good day", float("nan")] * 10, TABLE.town),
        DataError,
        "Replace missing texts by empty ones: [text if isinstance(text, str) else '' for text in X].",
    ),
    (
        lambda _: R(Ridge()).fit(pd.DataFrame({"b": [True, False, None, True] * 5}), RENT),
        DataError,
        "NaN in 'b'. Convert True and False to numbers, X.astype({'b': float}), and fill the missing ones by an imputer",
    ),
    (
        lambda _: OrtGradientForwardBackward(TWO),
        WeightError,
        "initializers: []. Pass a model with weights, initializers of its graph.",
    ),
    (lambda _: R().partial_fit([X, y]), DataError, "X is a list of two arrays. Use partial_fit(*X)."),
    (lambda _: C(GOOD).partial_fit(IRIS), DataError, "the target y is None: partial_fit(X, y)."),
    (
        lambda _: R(OF_STRINGS).fit(scipy.sparse.eye(20, format="csr"), RENT),
        DataError,
        "X is a sparse matrix of numbers, but the input of the model takes strings: the model contains its vectorizer",
    ),
    (
        lambda _: R(OF_STRINGS).fit({"town": scipy.sparse.eye(20, format="csr")}, RENT),
        DataError,
        "X['town'] is a sparse matrix of numbers, but the input of the model takes strings",
    ),
    (
        lambda _: C(FITTED_TEXTS, max_iter=0).fit(WORDS, TABLE.town).predict(FITTED_TEXTS[0].transform(WORDS)),
        DataError,
        "X has numbers, as after a vectorizer. Pass the texts, or a model without the vectorizer.",
    ),
    (
        lambda _: C(WITH_CASE).fit(FITTED_TEXTS[0].transform(WORDS), TABLE.town),
        ArgumentTypeError,
        "X has numbers, as after a vectorizer. Pass the texts, or a model without the vectorizer.",
    ),
    (lambda _: TREE.gradient(X[:3]), WeightError, "The prediction of trees is constant between their thresholds, so"),
    (lambda _: TREE.gradient(X[:3], y[:3]), WeightError, "so its gradient with respect to X is 0 everywhere. Use"),
    (
        lambda _: R(ROUNDED, max_iter=0).fit(PAIR, RENT).gradient(PAIR),
        WeightError,
        "The output does not depend on X, or only through operators whose derivative is zero everywhere, so its "
        "gradient with respect to X is 0 everywhere.",
    ),
]

GAP, INFINITE, LARGE, MASKED = (np.array(X) for _ in range(4))
GAP[3, 1], INFINITE[5, 2], LARGE[5, 2] = np.nan, -np.inf, 1e300
MASKED = np.ma.masked_greater(MASKED, 0.15)
RAGGED = [[1.0, 2.0], [1.0]] * 10
INFINITE_RENT = np.where(RENT < 1, np.inf, RENT)
HASHED = make_pipeline(FeatureHasher(8), LogisticRegression())


class Tensor:
    """A tensor of PyTorch that numpy cannot take."""

    dtype, shape = "torch.bfloat16", (20, 10)

    def __init__(self, said):
        self.said = said

    def detach(self):
        return self

    def cpu(self):
        raise TypeError(self.said)


SIXTH_HOUR = [
    (lambda _: R().fit(GAP, y), DataError, "Input X contains NaN in row 3, column 1. Pass a model with an imputer"),
    (lambda _: R(Ridge()).fit(scipy.sparse.csr_matrix(GAP), y), DataError, "X contains NaN in row 3, column 1."),
    (lambda _: R().fit(GAP.astype(object), y), DataError, "X contains NaN in row 3, column 1."),
    (
        lambda r: r.predict(INFINITE),
        DataError,
        "-inf in row 5, column 2. Leave out rows with infinity: known = numpy.isfinite(X).all(axis=1), predict(X[known]).",
    ),
    (
        lambda _: R().fit(pl.DataFrame(INFINITE), y),
        DataError,
        "-inf in row 5, column 'column_2'. Leave out rows with infinity: known = numpy.isfinite(X.to_numpy()).all(axis=1), "
        "fit(X.filter(known), y[known]).",
    ),
    (
        lambda r: np.errstate(over="ignore")(r.predict)(LARGE),
        DataError,
        "1e+300 in row 5, column 2. Divide this column by a constant",
    ),
    (
        lambda _: R(Ridge()).fit(scipy.sparse.csr_matrix(INFINITE), y),
        DataError,
        "-inf in row 5, column 2. Leave out rows with infinity, and divide large numbers",
    ),
    (lambda r: r.score(X[:20], INFINITE_RENT), DataError, "Input y contains infinity or a value too large"),
    *(
        (
            lambda r, method=method: getattr(r, method)(X[:20], INFINITE_RENT),
            DataError,
            f"known = numpy.isfinite(y), {method}(X[known], y[known]).",
        )
        for method in ("fit", "losses", "gradient", "partial_fit", "score")
    ),
    (
        lambda r: r.fit(X, y, X_val=X[:20], y_val=INFINITE_RENT),
        DataError,
        "known = numpy.isfinite(y_val), fit(X, y, X_val=X_val[known], y_val=y_val[known]).",
    ),
    (
        lambda _: R().fit(MASKED, y),
        DataError,
        "Fill them, X = X.astype(float).filled(numpy.nan), and pass a model with an imputer",
    ),
    (
        lambda _: R().partial_fit(X, np.ma.masked_greater(y, 300)),
        DataError,
        "Leave out the rows without a target: known = ~numpy.ma.getmaskarray(y), partial_fit(X[known], y[known]).",
    ),
    (
        lambda _: R().fit(X, y, np.ma.masked_greater(y, 300)),
        DataError,
        "A weight of 0 leaves a row out: sample_weight.filled(0).",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"a": RAGGED, "b": RENT}), RENT),
        DataError,
        "X contains lists of different lengths in 'a', from 1 to 2, but the model takes numbers. Pad them: numpy.column_st"
        "ack([X[['b']], numpy.array(list(itertools.zip_longest(*X['a'], fillvalue=0.0))).T]).",
    ),
    (
        lambda _: R().fit(pl.DataFrame({"a": RAGGED}), RENT),
        DataError,
        "Pad them: numpy.array(list(itertools.zip_longest(*X['a'], fillvalue=0.0))).T.",
    ),
    (
        lambda _: R().fit(pl.DataFrame({"a": [{"lat": 1.0, "lon": 2.0}] * 20}), RENT),
        ArgumentTypeError,
        "X contains values of type dict in 'a', but the model takes numbers. Make columns of their entries: X.unnest('a').",
    ),
    (
        lambda _: C(HASHED).fit([{"a": 1.0, "b": np.nan}, {"a": 2.0}] * 10, [0, 1] * 10),
        DataError,
        "X[0]['b'] is NaN. Leave missing entries out of the dictionaries: X = [{key: value for key, value in row.items() if "
        "value == value} for row in X].",
    ),
    *(
        (lambda r, said=said: r.predict(Tensor(said)), DataError, f"{said}. {remedy}")
        for said, remedy in {
            "Got unsupported ScalarType BFloat16": "Pass X.float().",
            "Got unsupported ScalarType QInt8": "Pass X.dequantize().",
            "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first": "Pass X.to_dense().",
            "Cannot copy out of meta tensor; no data": "A tensor on the device 'meta' has a shape and no values.",
        }.items()
    ),
    (
        lambda r: r.predict(5.0),
        DataError,
        "got float, whose rows cannot be indexed. For a single row with one feature, pass",
    ),
    (
        lambda r: r.predict([1, 2, 3]),
        DataError,
        "got 1D array instead, of shape (3,)\nReshape your data either using numpy.reshape(X, (-1, 1))",
    ),
    (
        lambda _: R(early_stopping=True).fit(X[:1], y[:1]),
        DataError,
        "validation_fraction=0.1 of 1 row: With n_samples=1",
    ),
    (lambda r: r.predict(X[:, :1]), DataError, "X has 1 features, but OrtGradientRegressor is expecting 10 features"),
    (
        lambda _: R(learning_rate=lambda step: 0.01 - 0.01 * step).fit(X, y),
        OptimizerError,
        "(1) returned 0.0. Steps count from 0. Bound it from below, for example max(rate, 1e-6).",
    ),
    *(
        (
            lambda _, round_=round_: own(lambda op, t, p: abs(round_(p) - t)).fit(X, y),
            LossError,
            "Leave it out: the derivative of rounding is 0.",
        )
        for round_ in (np.round, np.around)
    ),
    *(
        (
            lambda _, function=function: own(lambda op, t, p: function(t, p)).fit(X, y),
            LossError,
            f"calls a function of {library}, which takes no values of the graph. Use op, Python operators and numpy",
        )
        for library, function in {
            "sklearn": mean_absolute_error,
            "pandas": lambda t, p: pd.Series(t - p).abs(),
            "torch": lambda t, p: failed("abs(): argument 'input' (position 1) must be Tensor, not Operand"),
        }.items()
    ),
    (
        lambda _: own(lambda op, t, p: (abs(t - p), t)).fit(X, y),
        LossError,
        "got a tuple of 2. Return the loss alone: unlike in XGBoost and LightGBM, its derivatives are not returned. The sum",
    ),
    (
        lambda _: own(lambda op, t, p: 0.5).fit(X, y),
        LossError,
        "got float: 0.5. Compute it from y_true and y_pred, such as",
    ),
    *(
        (
            lambda _, function=function: own(function).fit(X, y),
            LossError,
            f"is called with (op, y_true, y_pred), but its parameters are (op, {names}), with the prediction first. Swap",
        )
        for names, function in {
            "y_pred, y_true": lambda op, y_pred, y_true: abs(y_true - y_pred),
            "output, target": lambda op, output, target: abs(target - output),
        }.items()
    ),
    (
        lambda _: R(penalty={"c*": {"l1": 0.1}}).fit(X, y),
        WeightError,
        "penalty takes names, not patterns: penalty=dict.fromkeys(['coef'], {'l1': 0.1}).",
    ),
    (lambda _: R(penalty={"*kernel": 0.1}).fit(X, y), WeightError, "For a penalty on all weights, set l1= and l2=."),
    (
        lambda _: check_gradient(TWO_COLUMNS, {"X": np.ones((2, 3))}),
        DataError,
        "feeds['X'] has shape (2, 3), but the model takes (n, 2).",
    ),
    (
        lambda _: OrtGradientForwardBackward(TWO_COLUMNS).new_instance().forward([PAIR]),
        DataError,
        "forward takes the weights after the inputs of the model, got 1 of 2 tensors.",
    ),
    (
        lambda _: R(to_onnx(StandardScaler().fit(X), X[:1].astype(np.float32))).fit(X, X),
        WeightError,
        "such as the statistics of a scaler, which are not trained by default. Pass a model with a predictor behind "
        "them, or name those to train, as in weights_to_train=['offset', 'scale'].",
    ),
]

LETTERS = np.array(list("abc"))[SPECIES]

SEVENTH_HOUR = [
    (
        lambda _: R(Ridge(), head="new").fit(X, y),
        ParameterError,
        "to learn other classes, leave out head='new' and pass an unfitted one, sklearn.base.clone(model), or convert it ",
    ),
    (
        lambda _: R().fit(X, "price"),
        DataError,
        "X has no column names. Pass the column of the frame that has it, y=frame['price'].",
    ),
    *(
        (
            lambda _, y=y: C(MLP, max_iter=0).set_params(estimator=None).fit(IRIS, LETTERS).score(IRIS, y),
            DataError,
            "y has the integers 0, 1, 2, but the classes of the model are ['a', 'b', 'c']. If they are positions in this",
        )
        for y in (SPECIES, SPECIES.tolist(), pd.Series(SPECIES))
    ),
    (
        lambda _: C(class_weight={"yes": 2, 1: 1}).fit(IRIS, SPECIES),
        DataError,
        "The labels 0, 2 of y are not in class_weight, whose keys are 'yes', 1. Its keys must be labels as in y, the number "
        "1 and not the string '1': class_weight={0: 1.0, 1: 1.0, 2: 1.0}.",
    ),
    (lambda _: R(solver="Adam W").fit(X, y), OptimizerError, "Unknown solver 'Adam W'. Did you mean 'adamw'?"),
    (
        lambda _: R().fit(os.curdir, y),
        DataError,
        "got the folder '.'. Read its files, for example pandas.concat(map(pandas.read_csv, sorted(pathlib.Path('.').glob('*.",
    ),
    (lambda _: R().fit(pathlib.Path("a.csv"), y), DataError, "got the path 'a.csv'. Read the file"),
    (
        lambda _: rows.Parts(rows.from_files(["a"], open), open_parts=0),
        ParameterError,
        "open_parts must be a positive number of parts, such as 8, got 0.",
    ),
    (
        lambda _: R(TWO_COLUMNS).fit([PAIR, PAIR], RENT),
        DataError,
        "If the first axis counts batches, pass numpy.concatenate(X).",
    ),
    (
        lambda _: R(learning_rate={"coef": 0.1}).fit(X, y),
        OptimizerError,
        "learning_rate={'coef': 0.1} is a dictionary, but one rate holds for all weights. Pass a number; weights_to_tr",
    ),
    (
        lambda _: R(learning_rate={10: 0.01, 0: 0.1, 20: 0.001}).fit(X, y),
        OptimizerError,
        "learning_rate=lambda step: 0.1 if step < 10 else 0.01 if step < 20 else 0.001. An epoch has ceil(n_rows / batc",
    ),
    (
        lambda r: r.load_training_state(r.weights_),
        DataError,
        "These are weights. Assign each of them: model.weights_['coef'] = values.",
    ),
    (lambda r: r.no_grad, AttributeError, "predict and score compute no gradients; call them as they are."),
    (
        lambda _: R(loss="quantile", loss_params={"delta": 1.0}).fit(X, y),
        LossError,
        "In a search, each loss has a grid of its own: [{'loss': ['huber'], 'loss_params': [{'delta': 1.0}]}, {'loss': "
        "['quantile']}].",
    ),
]

SCALED_LINE = make_pipeline(StandardScaler(), Ridge())
JSON = ['{"a": 1.0}'] * 20
INDEXED = pd.DataFrame({"age": RENT, "income": RENT})

EIGHTH_HOUR = [
    (
        lambda _: C().fit(load_iris()),
        DataError,
        "fit(X['data'], X['target']), because X is a Bunch with both.",
    ),
    (
        lambda _: R().fit(X, y, ["50%"] * 442),
        DataError,
        "contains '50%'. Pass numbers, such as 0.5 for half the weight.",
    ),
    (
        lambda _: R(learning_rate=0).fit(X, y),
        OptimizerError,
        "got 0. To leave the weights as they are, set max_iter=0.",
    ),
    (lambda _: R(learning_rate=-1).fit(X, y), OptimizerError, "got -1. Pass the size of a step, such as 0.001, which"),
    *(
        (lambda _, y=y: R().fit(PAIR, y), DataError, f"Convert durations to numbers, for example to seconds: {code}.")
        for y, code in (
            ([timedelta(1)] * 20, "pandas.to_timedelta(y).total_seconds()"),
            (np.array([timedelta(1)] * 20), "pandas.to_timedelta(y).total_seconds()"),
            (TABLE.since - TABLE.since[0], "pandas.to_timedelta(y).dt.total_seconds()"),
        )
    ),
    *(
        (
            lambda _, y=y: R().fit(PAIR, y),
            DataError,
            f"Convert dates to numbers, for example to days: (pandas.to_datetime(y) - pandas.Timestamp('2020-01-01')){days}.",
        )
        for y, days in (
            (TABLE.since, ".dt.days"),
            (TABLE.since.to_numpy(), ".days"),
            ([date(2020, 1, 1)] * 20, ".days"),
        )
    ),
    (
        lambda _: R().fit(JSON, RENT),
        DataError,
        "X contains JSON. Make a table of it: pandas.DataFrame([json.loads(row) for row in X]).",
    ),
    (
        lambda _: R().fit(pd.DataFrame({"j": JSON}), RENT),
        DataError,
        "X contains JSON in 'j'. Make columns of it: pandas.DataFrame(X['j'].map(json.loads).tolist(), index=X.index).",
    ),
    (
        lambda _: R(max_iter=0).fit(INDEXED, RENT).predict(INDEXED.set_index("age")),
        DataError,
        "- age\nThe index of X has this name. Pass X.reset_index(), which has it as a column.",
    ),
    *(
        (
            lambda _, made=made: R().fit(TABLE[["area"]], made),
            DataError,
            f"y must be an array or a column, got a {type(made).__name__} of pandas. Pass the column of which it was made",
        )
        for made in (TABLE.groupby("town").area, TABLE.area.rolling(3))
    ),
    *(
        (
            lambda r, method=method: getattr(r, method)(X[:20], [np.ones(2), np.ones(3)] * 10),
            DataError,
            "y contains lists of different lengths, from 2 to 3. Convert lists or sets",
        )
        for method in ("fit", "score")
    ),
    (
        lambda _: C(PIXELS).fit([np.ones((8, 8))] * 20, [0, 1] * 10),
        DataError,
        "Pass numpy.asarray(X)[:, None].repeat(3, axis=1) for gray images.",
    ),
    (
        lambda _: R().fit(X.tolist(), np.where(y > 300, np.inf, y).tolist()),
        DataError,
        "known = numpy.isfinite(y), fit(numpy.asarray(X)[known], numpy.asarray(y)[known]).",
    ),
    (
        lambda _: setattr(R(SCALED_LINE, max_iter=0).fit(X, y), "weights_", {}),
        AttributeError,
        "Assign each weight: model.weights_['ridge.coef'] = values.",
    ),
]

MARKED = np.array(X, dtype=object)
MARKED[7, 2] = "n/a"

NINTH_HOUR = [
    (
        lambda r: r.predict([[1.0], [2.0, 3.0]]),
        DataError,
        "X[0] has 1 value and X[1] has 2 values, but a table has the",
    ),
    (
        lambda r: r.predict([[20.0] * 10, [30.0, 40.0]]),
        DataError,
        "X[0] has 10 values and X[1] has 2 values, but a table has the same number of columns",
    ),
    (
        lambda _: R().fit(MARKED, y),
        DataError,
        "could not convert string to float: 'n/a'. It is in row 7, column 2 of X, which has numbers, too. Convert its strings "
        "to numbers, and others to NaN for an imputer: pandas.DataFrame(X).apply(pandas.to_numeric, errors='coerce').",
    ),
    (lambda _: R(random_state="seed").fit(X, y), ParameterError, "Pass an integer, such as random_state=0; of a numpy"),
    (lambda _: C(head=5).fit(IRIS, SPECIES), ParameterError, "the last layer by one with an output for each class"),
    (
        lambda _: R(loss="huber", loss_params={"reduction": "none"}).fit(X, y),
        LossError,
        "Leave it out: the objective is the mean over the rows, weighted by sample_weight.",
    ),
]

TENTH_HOUR = [
    (
        lambda _: C(LogisticRegression(max_iter=999).fit(IRIS, SPECIES)).partial_fit(IRIS, SPECIES, classes=range(4)),
        DataError,
        "classes has labels that the model does not know: 3. Known: 0, 1, 2.",
    ),
    (
        lambda _: R().fit(X[:99], y[:99], X[99:], y[99:]),
        ArgumentTypeError,
        "got 4 arguments. Pass the others by name, a validation set as X_val=..., y_val=...",
    ),
    (
        lambda _: R("models\new.onnx").fit(X, y),
        ModelError,
        r"A backslash and a letter became one character. Pass r'models\new.onnx', with an r before the quote.",
    ),
    (
        lambda _: C().fit(IRIS, [0, "1"] * 75),
        DataError,
        "Labels must be all numbers or all strings, got int, str. Pass numpy.asarray(y).astype(str).",
    ),
    (
        lambda _: R().fit(FOREIGN),
        DataError,
        "fit(X, y). X is a DMatrix of xgboost. Pass the arrays of which it was made.",
    ),
    (
        lambda _: C(OF_TOKENS, pad={"input_ids": "[PAD]"}).fit(
            {"input_ids": SEQUENCES, "attention_mask": SEQUENCES}, [0, 1] * 10
        ),
        ParameterError,
        "got {'input_ids': '[PAD]'}. For the token of a tokenizer, pass its id, tokenizer.pad_token_id.",
    ),
    (
        lambda _: R(weights_to_train=["coefintercept"]).fit(X, y),
        WeightError,
        "A comma is missing between 'coef' and 'intercept'.",
    ),
    (
        lambda _: R(device="cuda:0,1").fit(X, y),
        DeviceError,
        "A fit uses one device. To use several GPUs, run one fit on each: device='cuda:0', device='cuda:1'.",
    ),
    (
        lambda _: R(dtype="int8").fit(X, y),
        ParameterError,
        "pass one that onnxruntime.quantization.quantize_static wrote",
    ),
    (
        lambda _: R().fit([RENT, RENT], RENT),
        DataError,
        "X has 2 rows, y has 20. X seems to be a list of columns. Pass numpy.column_stack(X).",
    ),
    (
        lambda _: R().fit([TABLE.area, TABLE.area], RENT),
        DataError,
        "X seems to be a list of columns. Pass pandas.concat(X, axis=1).",
    ),
    (
        lambda _: R(LINE).predict(X),
        NotFittedError,
        "Call fit(X, y). To predict with an ONNX model that is not to be trained, set max_iter=0 and call fit, or run",
    ),
    (
        lambda _: C().fit(TABLE[["area", "town"]].assign(street="A1"), [0, 1] * 10),
        DataError,
        "make_column_transformer((OneHotEncoder(), ['town', 'street']), remainder='passthrough')",
    ),
    (
        lambda _: R(SCALED_BESIDE_TOWNS).fit(TOWNS.assign(area=[1.0, np.nan] * 10), RENT),
        DataError,
        "such as (make_pipeline(SimpleImputer(), StandardScaler()), ['area']) in make_column_transformer, or fill "
        "them: X.fillna({'area': 0.0}). OneHotEncoder takes missing texts; for another step, fill them: X.fillna({'town'",
    ),
    (
        lambda _: (
            R(SCALED_BESIDE_TOWNS, max_iter=1).fit(NIGHTS, RENT).predict(NIGHTS.assign(beds=np.nan, since=TABLE.since))
        ),
        ArgumentTypeError,
        "X contains dates or durations in 'since', but the model takes numbers. Convert such a column to numbers",
    ),
]

ALL_CALLS = [
    *(CALLS + MORE_CALLS + LAST_CALLS + FURTHER_CALLS + OTHER_KINDS),
    *(SECOND_HOUR + THIRD_HOUR + FOURTH_HOUR + FIFTH_HOUR + SIXTH_HOUR + SEVENTH_HOUR + EIGHTH_HOUR + NINTH_HOUR),
    *TENTH_HOUR,
]


@pytest.mark.parametrize("call, error, message", ALL_CALLS, ids=[row[2][:60] for row in ALL_CALLS])
def test_the_answer_says_what_was_found_and_what_to_do(call, error, message, fitted):
    with pytest.raises(error) as e:
        call(fitted)
    said = str(e.value)
    assert message in said
    assert isinstance(e.value, (OnnxTrainError, AttributeError))
    assert "OrtGradientEstimator" not in said
    assert "onnxtrain.estimators" not in said
    assert "np." not in said


@pytest.mark.parametrize("call, message", ATTRIBUTES, ids=[row[1][:60] for row in ATTRIBUTES])
def test_an_unknown_attribute_is_answered_with_ours(call, message, fitted):
    with pytest.raises((AttributeError, LookupError, OnnxTrainError)) as e:
        call(fitted)
    assert message in str(e.value)


@pytest.mark.parametrize("name", sorted(attributes.OF_OTHERS))
def test_no_attribute_of_another_library_is_one_of_ours(name):
    assert name not in dir(R()) + dir(C())


def test_an_import_of_an_unknown_name_says_where_it_is():
    with pytest.raises(ImportError, match="cannot import name 'Adam' from 'onnxtrain'. Use onnxtrain.optim.Adam."):
        from onnxtrain import Adam  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'StepLR' from 'onnxtrain.optim'. Pass a function of the"):
        from onnxtrain.optim import StepLR  # noqa: F401


@pytest.mark.parametrize(
    "argument, code, said", [("--help", 0, "To train a model"), ("train", 2, "To train, use Python: OrtG")]
)
def test_the_command_line_trains_nothing(argument, code, said):
    ran = subprocess.run([sys.executable, "-m", "onnxtrain", argument], capture_output=True, text=True)
    assert ran.returncode == code
    assert said in (ran.stdout + ran.stderr).replace("\n", " ")


def test_a_learning_rate_that_cannot_be_computed_has_the_error_as_its_cause():
    def rate(step):
        return {0: 0.1, 1: 0.1, 2: 0.1}[step]

    with pytest.raises(OptimizerError, match=r"step 3 could not be computed: rate\(3\) raised KeyError: 3") as e:
        R(learning_rate=rate, max_iter=9, batch_size=len(X)).fit(X, y)
    assert isinstance(e.value.__cause__, KeyError)


def test_only_a_quantized_model_is_said_to_be_quantized():
    no_weight = onnx_model("(float[n, 10] X) => (float[n, 1] Y) <int64[1] k = {1}> { Y = ReduceSum(X, k) }")
    with pytest.raises(WeightError, match="no weight") as e:
        R(no_weight).fit(X, y)
    assert "quantize" not in str(e.value)


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_a_frame_is_not_predicted_as_the_texts_of_its_column_names():
    ours = R(make_pipeline(TfidfVectorizer(), Ridge()), max_iter=0).fit(TABLE["town"], RENT)
    with pytest.raises(DataError, match="takes the names of its columns as the texts. Pass a column"):
        ours.predict(TABLE[["town"]])


def test_a_converter_that_calls_predict_is_told_that_X_is_no_array():
    class Line(LinearRegression):
        pass

    @onnxtrain.converter(Line)
    def line(op, estimator, X):
        return np.matmul(X, estimator.coef_)

    with pytest.raises(
        ConversionError, match=r"registered for Line failed with .* X is a value of the graph, not an ar"
    ):
        R(Line(), max_iter=1).fit(X, y)


def test_a_converter_that_calculates_in_numpy_is_told_to_use_the_operators():
    class Doubled(LinearRegression):
        def predict(self, X):
            return X @ (2 * self.coef_) + self.intercept_

    @onnxtrain.converter(Doubled)
    def doubled(op, estimator, X):
        return op.Add(op.MatMul(X, 2 * estimator.coef_[:, None]), 2 * estimator.intercept_ / 2)

    with pytest.raises(
        WeightError, match=r"The converter of Doubled must .* op.Mul\(estimator.coef_, 2.0\), not 2.0 \*"
    ):
        R(Doubled(), max_iter=1).fit(X, y)


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "boolean"])
@pytest.mark.parametrize("rows", [IRIS, pd.DataFrame(IRIS).assign(species="a")], ids=["array", "frame"])
def test_labels_of_a_nullable_type_come_back_as_they_are(dtype, rows):
    labels = pd.Series(SPECIES % 2).astype(dtype)
    encode = make_column_transformer((OneHotEncoder(), ["species"]), remainder="passthrough")
    ours = C(max_iter=2) if rows is IRIS else C(make_pipeline(encode, LogisticRegression()), max_iter=2)
    rows = rows if rows is IRIS else rows.rename(columns=str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.fit(rows, labels)
    assert ours.classes_.dtype == ours.predict(rows).dtype == labels.dtype.numpy_dtype
    assert ours.score(rows, labels) == (ours.predict(rows) == labels.to_numpy()).mean()
    labels.iloc[0] = pd.NA
    with pytest.raises(DataError):
        clone(ours).fit(rows, labels)


@pytest.mark.parametrize(
    "content, remedy",
    {
        b"BZh91AY": "It is compressed.",
        b"\x89PNG\r\n\x1a\n" + 50 * b"0": "It is a picture.",
        b"PAR1": "It is a parquet file, which holds rows.",
        b"    ORTM": "It is a model in the ORT format.",
        b'{"a": 1}': "It is a JSON file",
        b'{"learner":{"attributes":{}}}': "model = XGBRegressor(); model.load_model(path), or an XGBClassifier, and",
        b"{L\0\0\0\0\0\0\0\x07learner{L": "It is a model of XGBoost.",
        b'{\n  "features_info":\n    {': "CatBoostRegressor().load_model(path, format='json')",
        b"tree\nversion=v4": "model = lightgbm.Booster(model_file=path), and pass onnxmltools.convert_lightgbm(model, ini",
        b"CBM1\xf0 \0\0": "CatBoostRegressor().load_model(path) or the same of CatBoostClassifier, and pass the estimator",
        b'<\n  ir_version: 10,\n  opset_import: ["" : 21]\n>': "onnx.load(path, format='onnxtxt').",
        b'ir_version: 10\ngraph {\n name: "g"\n}': "onnx.load(path, format='textproto').",
        b"PK\x03\x04" + 26 * b"0" + b"a.npy": "It holds arrays of numpy.",
    }.items(),
)
def test_the_format_of_another_file_is_told(content, remedy, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(remedy)):
        R(path).fit(X, y)
    with pytest.raises(ModelError, match=re.escape(remedy)):
        onnxtrain.load(path)


@pytest.mark.parametrize("write, remedy", [(joblib.dump, "It is a pickle"), (onnx.save, "To train another ONNX model")])
def test_a_file_that_save_did_not_write_is_told_apart(write, remedy, tmp_path):
    path = tmp_path / "model"
    write(LINE, path)
    with pytest.raises(
        ModelError, match=f"was not written by onnxtrain.save.*its checksum is missing or wrong. {remedy}"
    ):
        onnxtrain.load(path)


@pytest.mark.parametrize("name", ["delta", "gamma", "quantile", "epsilon"])
def test_a_remedy_that_names_a_parameter_of_a_loss_is_right(name):
    loss, _, parameter = re.search(r"(?:loss='(\w+)', )?(loss_params={'(\w+)')", synonyms.REMEDIES[name]).groups()
    R(loss=loss or "epsilon_insensitive", loss_params={parameter: 0.5}, max_iter=0).fit(X, y) if loss != "focal" else C(
        loss=loss, loss_params={parameter: 0.5}, max_iter=0
    ).fit(IRIS, SPECIES)


def test_batches_of_another_library_are_told_what_to_give():
    loader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader", "__iter__": lambda self: iter([])})()
    with pytest.raises(ArgumentTypeError, match="X is a DataLoader, but fit draws batches itself. Pass the rows"):
        R().fit(loader, y)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(R(max_iter=3)),
        GridSearchCV(R(max_iter=3), {"l2": [0, 1]}, cv=2),
        GridSearchCV(make_pipeline(R(max_iter=3)), {"ortgradientregressor__l2": [0, 1]}, cv=2),
        TransformedTargetRegressor(make_pipeline(R(max_iter=3))),
    ],
    ids=lambda estimator: repr(estimator)[:30],
)
def test_a_curve_is_drawn_of_what_holds_the_estimator(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        display = LossCurveDisplay.from_estimator(estimator.fit(X, y))
    assert len(display.lines_[0].get_xdata()) == 3


# --------------------------------------------------------------------------- hinge


@pytest.mark.parametrize("model", [LogisticRegression(), MLP, NETWORK, None], ids=["linear", "mlp", "onnx", "none"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_scores_of_a_hinge_are_no_probabilities(model, loss):
    ours = C(model, loss=loss, max_iter=0)
    for estimator in (ours, clone(ours).fit(IRIS, SPECIES), SGDClassifier(loss="hinge").fit(IRIS, SPECIES)):
        assert not hasattr(estimator, "predict_proba")
        assert not hasattr(estimator, "predict_log_proba")
    with pytest.raises(
        AttributeError, match=f"with loss={loss!r}, because the scores do not define probabilities. Set loss='log'"
    ):
        ours.fit(IRIS, SPECIES).predict_proba(IRIS)


# -------------------------------------------------------------------------- pickles


def test_a_pickle_of_another_version_is_warned_of(fitted, monkeypatch):
    assert "_onnxtrain_version" not in vars(pickle.loads(pickle.dumps(fitted)))
    monkeypatch.setattr("onnxtrain.estimators.base.__version__", "0.0.9")
    old = pickle.dumps(fitted)
    monkeypatch.undo()
    with pytest.warns(
        InconsistentVersionWarning,
        match=rf"OrtGradientRegressor of onnxtrain from version 0\.0\.9 when using version {onnxtrain.__version__}",
    ):
        again = pickle.loads(old)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


@pytest.mark.parametrize("name", ["rates", "validation_loss_curve", "average", "ending"])
def test_a_pickle_from_before_a_field_of_the_state(fitted, name):
    """What its version did not know is as at the start: a fit goes on from it, and its epochs have no such value."""
    old = R(max_iter=2, warm_start=True, random_state=0).fit(X, y)
    known = old.loss_curve_
    del vars(old._state)[name]
    again = pickle.loads(pickle.dumps(old))
    np.testing.assert_array_equal(again.predict(X), old.predict(X))
    assert again.loss_curve_ == known
    assert np.isnan(again.history_.learning_rate).all() == (name == "rates")
    assert again.fit(X, y).loss_curve_[:2] == known


def test_a_scaled_pipeline_sets_parameters_of_the_model_inside():
    search = make_pipeline(StandardScaler(), R(Ridge()))
    search.set_params(ortgradientregressor__estimator__alpha=3.0)
    assert search[-1].estimator.alpha == 3.0


@pytest.mark.filterwarnings("ignore:alpha=3.0 of Ridge has no effect on the training:UserWarning")
@pytest.mark.parametrize("model", [Ridge(), make_pipeline(StandardScaler(), Ridge())], ids=["alone", "pipeline"])
def test_a_parameter_of_a_fitted_model_has_no_effect(model):
    name = "estimator__alpha" if isinstance(model, Ridge) else "estimator__ridge__alpha"
    R(clone(model)).set_params(**{name: 3.0})  # filterwarnings = error
    tuned = R(clone(model).fit(IRIS, SPECIES)).set_params(**{name: 1.0}, max_iter=3)
    with pytest.warns(UserWarning, match="is fitted, so another value of .*alpha does not change its weights"):
        GridSearchCV(tuned, {name: [3.0]}, cv=2).fit(IRIS, SPECIES)


def test_one_column_per_class_is_warned_of():
    with pytest.warns(UserWarning, match=r"has exactly one 1, .* pass numpy.asarray\(y\).argmax"):
        C(max_iter=2).fit(IRIS, np.eye(3)[SPECIES])


def test_rows_without_the_names_on_which_a_model_was_fitted_are_warned_of():
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    tuned = R(Ridge().fit(frame, SPECIES), max_iter=1)
    tuned.fit(frame, SPECIES)  # filterwarnings = error
    with pytest.warns(UserWarning, match="X has no column names, but Ridge was fitted on columns .* a, b, c, d. The"):
        tuned.fit(IRIS, SPECIES)


@pytest.mark.parametrize(
    "params, sets, message",
    [
        (dict(solver="lbfgs", learning_rate=0.1), {}, "learning_rate=0.1 has no effect: solver='lbfgs' uses all rows"),
        (dict(solver="lbfgs", batch_size=32), {}, "batch_size=32 has no effect"),
        (dict(l1_method="proximal"), {}, "l1_method='proximal' has no effect without a penalty. Set its strength too"),
        (dict(validation_fraction=0.3), {}, "=0.3 has no effect: early_stopping=False, so no rows are held out. Set"),
        (dict(validation_fraction=0.3), dict(X_val=X + 1, y_val=y), "=0.3 has no effect: X_val is the validation set."),
    ],
)
def test_a_parameter_without_an_effect_is_warned_of(params, sets, message):
    with pytest.warns(UserWarning, match=re.escape(message)):
        R(max_iter=1, **params).fit(X, y, **sets)
    GridSearchCV(R(max_iter=1), {name: [value] for name, value in params.items()}, cv=2).fit(
        X, y
    )  # warnings are errors
    early = dict(early_stopping=True) if "validation_fraction" in params else dict(solver="adam")
    R(max_iter=1, **params | early | dict(penalty={"coef": {"l1": 0.1}})).fit(X, y)


def failed(said):
    """Fail like a compiled function of another library, which has no frame in the traceback."""
    raise TypeError(said)


def own(function):
    """Return an estimator with a loss of its own."""
    return R(loss=function, max_iter=1)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: own(lambda op, y, p: y - p).fit(X, y),
            "has no minimum: it is -3.41e+04 and then -3.42e+06 as the pre",
        ),
        (lambda: own(lambda op, y, p: p - y).fit(X, y), "as the predictions fall, so training makes them fall without"),
        (lambda: own(lambda op, y, p: -((y - p) ** 2)).fit(X, y), "has no minimum"),
        (lambda: C(loss=lambda op, y, p: -y * p, max_iter=1).fit(IRIS[:100], SPECIES[:100]), "has no minimum"),
        (
            lambda: C(SCALED, dtype="float64", max_iter=1).fit(255 * IRIS, SPECIES),
            "The columns of X vary 255 times as much as those on which the StandardScaler of the pipeline was fitted",
        ),
        (
            lambda: C(MLP, weights_to_train=LoRA(rank=20), max_iter=1).fit(IRIS, SPECIES),
            "LoRA(rank=20) has a larger rank than any dimension of the matrices, at most 4, so the factors have more values "
            "than the matrices. Set a small rank, such as 1; the scale is alpha / rank.",
        ),
        (
            lambda: R(max_iter=1).fit(TARGET_INSIDE, TARGET_INSIDE["target"]),
            "The column 'target' of X has the values of y, so the model predicts y from itself. Pass X without it: X.dr",
        ),
        (
            lambda: R(max_iter=1).fit(TARGET_INSIDE / 3, TARGET_INSIDE["target"].to_numpy() / 3),
            "The column 'target' of X has the values of y",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, np.array(["a", "a ", "b"])[SPECIES]),
            "The labels 'a ' and 'a' differ only in spaces, but are two classes. If they are one, strip the labels",
        ),
        (lambda: C(SCALED, max_iter=1).fit(IRIS / 255, SPECIES), "The columns of X vary 0.00392 times as much"),
        (
            lambda: R(max_iter=1).fit(X, y, 10),
            "sample_weight=10 is one number for all rows, which has no effect. The third",
        ),
        (
            lambda: R(max_iter=1).fit(TARGET_INSIDE, TARGET_INSIDE[["target"]]),
            "The column 'target' of X has the values of y",
        ),
        (
            lambda: C(LogisticRegression(class_weight="balanced"), max_iter=1).fit(IRIS, SPECIES),
            "class_weight='balanced' of LogisticRegression has no effect on the training, in which all rows count alike. Set",
        ),
        # what is not part of the graph of the given estimator
        (
            lambda: R(Ridge(alpha=30.0), max_iter=1).fit(X, y),
            "alpha=30.0 of Ridge has no effect on the training, which minimizes the loss without this penalty. The same "
            "penalty is l2=alpha / n_samples of OrtGradientRegressor.",
        ),
        (
            lambda: GridSearchCV(R(make_pipeline(Ridge()), max_iter=1), {"estimator__ridge__alpha": [30.0]}).fit(X, y),
            "alpha=30.0 of Ridge has no effect on the training",
        ),
        (
            lambda: R(LinearRegression(positive=True), max_iter=1).fit(X, y),
            "positive=True of LinearRegression has no effect on the training, after which coefficients may be negative.",
        ),
        (
            lambda: R(QuantileRegressor(quantile=0.9), max_iter=1).fit(X, y),
            "QuantileRegressor minimizes the loss 'quantile', but training minimizes loss='squared_error', the default of "
            "OrtGradientRegressor. Set loss='quantile', loss_params={'q': 0.9} to go on with it.",
        ),
        (
            lambda: R(TweedieRegressor(power=1.3), max_iter=1).fit(X, y),
            "TweedieRegressor minimizes the loss 'tweedie', but training minimizes loss='squared_error', the default of "
            "OrtGradientRegressor. Set loss='tweedie', loss_params={'power': 1.3} to go on with it.",
        ),
        (
            lambda: R(TweedieRegressor(power=1), max_iter=1).fit(X, y),
            "TweedieRegressor minimizes the loss 'poisson', but training minimizes loss='squared_error'",
        ),
        (
            lambda: C(DecisionTreeClassifier(max_depth=2), l1=0.1, l2=1, max_iter=1).fit(IRIS, SPECIES),
            "No effect on the training: l1=0.1, l2=1. Penalties apply to weights that multiply their input, and the trained "
            "weights, leaf_values, do not. To penalize one of them, name it: penalty={'leaf_values': {'l1': 0.1, 'l2': 1}}.",
        ),
        (
            lambda: C(SGDClassifier(loss="squared_hinge"), max_iter=1).fit(IRIS, SPECIES),
            "SGDClassifier minimizes the loss 'squared_hinge', but training minimizes loss='log', the default of OrtGr",
        ),
        (
            lambda: R(LinearRegression().fit(X, y), max_iter=1).fit(X, y / 1000),
            "The predictions of the model are from 38.1 to 291 before training, but y is from 0.037 to 0.332, as in another",
        ),
        (
            lambda: R(LinearRegression().fit(X, y), max_iter=1).fit(X, y + 5000),
            "but y is from 5.04e+03 to 5.33e+03. X or y may be in another unit than in the fit of the model. Scale both as in that",
        ),
        (
            lambda: make_pipeline(StandardScaler(), R(max_iter=1)).fit(
                20 * X + 50, y, ortgradientregressor__X_val=20 * X + 50, ortgradientregressor__y_val=y
            ),
            "The values of X_val are far from those of X, by ",
        ),
        (
            lambda: TransformedTargetRegressor(R(max_iter=1), transformer=StandardScaler()).fit(
                X, y + 200, X_val=X + 0.01, y_val=y + 200
            ),
            "times the spread of y, as in another unit. A Pipeline or TransformedTargetRegressor around this estimator",
        ),
        (
            lambda: R(make_pipeline(StandardScaler(), Ridge())).partial_fit(X[:99], y[:99]),
            "Pipeline is not fitted, so its preprocessing (StandardScaler) is fitted on the 99 rows of this first call",
        ),
        (
            lambda: C(GOOD, max_iter=1).fit(IRIS, (SPECIES + 1) % 3),
            "the model predicts rows with the label 0 as 2, 1 as 0, 2 as 1. If it was trained on these classes, y names them",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, np.array(["a", "", "b"])[SPECIES]),
            "The label '' is a class of its own, but looks like a missing label",
        ),
        (
            lambda: C(max_iter=1).fit(IRIS, np.array(["a", "nan", "b"])[SPECIES]),
            "The label 'nan' is a class of its own, but looks like a missing label that was converted to a string.",
        ),
        (
            lambda: C(max_iter=1).fit(X, y.astype(int)),
            "y has 214 different integers in 442 rows, from 25 to 346, and each is a class of its own. To learn them as "
            "numbers, use OrtGradientRegressor.",
        ),
        (
            lambda: C(SCALED, max_iter=1).fit(StandardScaler().fit_transform(IRIS), SPECIES),
            "standard deviations near 1, as after a StandardScaler, but the pipeline begins with one that was fitted on "
            "other values: the mean of a column was 5.84, its standard deviation 0.825. Pass the rows as they were before",
        ),
        (
            lambda: TransformedTargetRegressor(
                R(Ridge().fit(X, y), max_iter=1), func=np.log1p, inverse_func=np.expm1
            ).fit(X, y),
            "as in another unit. A TransformedTargetRegressor transforms y before this fit. Pass the model unfitted: ",
        ),
        (
            lambda: BaggingRegressor(R(Ridge().fit(X, y), max_iter=1), n_estimators=1).fit(X, y / 1000),
            "convert y, or X, to it, for example y / 1000 or numpy.log(y), or pass the model unfitted: sklearn.base.clone(mo",
        ),
        (
            lambda: C(loss=lambda op, y, p: op.Relu(1.0 - y * p), max_iter=1).fit(IRIS, 2 * (SPECIES > 0) - 1),
            "gets the labels -1 and 1 as 0 and 1, the index of the class. If it multiplies by them, compute 2 * y_true - 1",
        ),
        (
            lambda: R(learning_rate=lambda epoch: 0.1 * 0.5**epoch, max_iter=1).fit(X, y),
            "The learning rate is a function of the step, and its argument is named 'epoch'. An epoch has ceil(n_rows / ",
        ),
    ],
    ids=[
        "falling",
        "growing",
        "negative",
        "classes",
        "larger",
        "rank",
        "target",
        "fractions",
        "spaces",
        "smaller",
        "one weight",
        "several targets",
        "class weight",
        "penalty",
        "penalty in a search",
        "bounds",
        "loss without a parameter",
        "loss with a power",
        "loss by its power",
        "penalty of no weight",
        "loss",
        "unit",
        "far",
        "X_val",
        "y_val",
        "first rows",
        "order",
        "empty",
        "missing",
        "numbers",
        "twice",
        "transformed",
        "unit in a bag",
        "signs",
        "epoch",
    ],
)
def test_what_is_probably_meant_otherwise_is_warned_of(call, message):
    with pytest.warns(UserWarning, match=re.escape(message)):
        call()


def test_a_file_of_several_arrays_is_not_rows(tmp_path):
    np.savez(tmp_path / "rows.npz", train=X, test=X)
    with (
        np.load(tmp_path / "rows.npz") as file,
        pytest.raises(DataError, match=r"train, test. Pass one of them: X\['train'\]"),
    ):
        R().fit(file, y)


def test_functions_without_a_name_can_be_copied():
    estimator = R(loss=nested(), max_iter=1).fit(X, y)
    assert np.array_equal(copy.deepcopy(estimator).predict(X), estimator.predict(X))


def test_the_score_of_the_class_of_each_row_as_the_message_computes_it():
    def log(op, y_true, y_pred):
        of_class = (y_pred * (np.arange(3) == y_true)).sum(axis=1, keepdims=True)
        return np.log(np.exp(y_pred).sum(axis=1, keepdims=True)) - of_class

    own, known = (C(MLP, loss=loss, max_iter=1, random_state=0).fit(IRIS, SPECIES) for loss in (log, "log"))
    assert own.loss_curve_ == pytest.approx(known.loss_curve_, rel=1e-5)


@pytest.mark.parametrize("rate, warns", [(1e-10, True), (1e-3, False)])
def test_a_learning_rate_below_the_resolution_of_float32_is_warned_of(rate, warns):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        R(Ridge().fit(X, y), learning_rate=rate, max_iter=3).fit(X, y)
    assert any("The weights changed by less than 1e-07 of their size" in str(w.message) for w in found) == warns


def test_a_learning_rate_too_small_for_large_weights_is_warned_of():
    """Leaves hold prices, which steps of 0.001 do not change in float32."""
    prices = 1e3 * y
    forest = RandomForestRegressor(2, max_depth=2, random_state=0).fit(X, prices)
    with pytest.warns(UserWarning, match=r"learning rate 0.001. Raise learning_rate in proportion to the weights, up"):
        R(forest, max_iter=3).fit(X, 1.2 * prices)
    raised = R(forest, learning_rate=1000.0, max_iter=3).fit(X, 1.2 * prices)  # filterwarnings = error
    assert raised.loss_curve_[-1] < 0.95 * raised.loss_curve_[0]


def test_what_is_meant_is_not_warned_of():
    scaled = make_pipeline(make_column_transformer((StandardScaler(), ["0", "1"])), Ridge())
    R(scaled, max_iter=1).fit(TARGET_INSIDE, TARGET_INSIDE["target"])  # a column that the model does not take
    own(lambda op, y, p: op.Max(y - p, 0.0) - 1.0).fit(X, y)
    own(lambda op, y, p: op.Exp(p * 1e-3) - y * p * 1e-3).fit(X, y)  # of counts
    own(lambda op, y, p: y - p).set_params(l2=1.0).fit(X, y)  # the penalty bounds it
    C(loss=lambda op, y, p: (2 * y - 1 - p) ** 2, max_iter=1).fit(IRIS[:100], SPECIES[:100])
    C(SCALED, max_iter=1).fit(IRIS[:60] * 3, SPECIES[:60])
    C(max_iter=1).fit(X[:90], np.arange(90) % 30)  # few rows of many classes
    later = np.argsort(y)[221:]
    R(max_iter=1).fit(np.delete(X, later, axis=0), np.delete(y, later), X_val=X[later], y_val=y[later])
    R(make_pipeline(StandardScaler(), Ridge()).fit(X, y)).partial_fit(X, y)


def test_partial_fit_warns_of_what_it_ignores_and_forgets():
    with pytest.warns(UserWarning, match="early_stopping=True has no effect in partial_fit, which holds out no rows"):
        R(early_stopping=True).partial_fit(X, y)
    tuned = R(solver="lbfgs").partial_fit(X[:200], y[:200])
    with pytest.warns(UserWarning, match="partial_fit forgets the rows of earlier calls. Choose a solver that"):
        tuned.partial_fit(X[200:], y[200:])


def test_a_row_of_a_frame_is_a_frame():
    tuned = C(WITH_SPLINES, max_iter=0).fit(TABLE, RENT > 9)
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        pytest.raises(DataError, match=r"is frame.iloc\[\[0\]\]"),
    ):
        tuned.predict(TABLE.iloc[0])
    assert tuned.predict(TABLE.iloc[[0]]).shape == (1,)


def test_a_weight_that_is_assigned_keeps_its_type():
    tuned = R(max_iter=1, random_state=0).fit(X, y)
    tuned.weights_["coef"] = np.zeros((10, 1))
    assert tuned.weights_["coef"].dtype == np.float32
    assert np.ptp(tuned.predict(X)) == 0
    assert np.isfinite(tuned.losses(X, y)).all()  # of another graph
    for copied in (pickle.loads(pickle.dumps(tuned)), copy.deepcopy(tuned)):
        assert np.array_equal(copied.weights_["coef"], np.zeros((10, 1)))
        copied.weights_["coef"] = np.ones((10, 1))
    assert not tuned.weights_["coef"].any()


def test_another_order_of_the_index_is_warned_of():
    table, target = pd.DataFrame(X), pd.Series(y)
    sorted_rows = table.sort_values(0)
    at = re.escape(f"row 0 is {sorted_rows.index[0]} in X, and 0 in ")
    with pytest.warns(UserWarning, match=f"The index of y has the labels .* {at}y.* Pass y.loc"):
        R(max_iter=0).fit(sorted_rows, target)
    with pytest.warns(UserWarning, match=f"The index of sample_weight has .* {at}sample_weight"):
        R(max_iter=0).fit(sorted_rows, target.loc[sorted_rows.index], np.abs(target))
    part = sorted_rows[:300]
    R(max_iter=0).fit(pd.DataFrame(part.to_numpy()), target.loc[part.index])  # scaled rows often have a new index
    R(max_iter=0).fit(sorted_rows, target.to_numpy())


def test_a_checkpoint_with_a_similar_name_or_more_epochs_is_warned_of(tmp_path):
    tuned = R(max_iter=4, random_state=0)
    tuned.fit(X, y, checkpoint=tmp_path / "fold_1.onnx")
    (tmp_path / "fold_2.onnx.csv").write_text("a,b")
    tuned.fit(X, y, checkpoint=tmp_path / "fold_2.onnx", resume=True)  # names of a series
    with pytest.warns(UserWarning, match=r"There is no checkpoint '.*fold1.onnx' .* The folder has 'fold_1.onnx'"):
        tuned.fit(X, y, checkpoint=tmp_path / "fold1.onnx", resume=True)
    with pytest.warns(UserWarning, match=r"has 4 epochs, more than max_iter=3, so no epoch is run and its weights"):
        tuned.set_params(max_iter=3).fit(X, y, checkpoint=tmp_path / "fold1.onnx", resume=True)
    assert tuned.n_iter_ == 4


def test_a_checkpoint_replaces_no_other_file(tmp_path):
    other, empty = tmp_path / "rows.csv", tmp_path / "empty"
    other.write_text("a,b\n1,2\n")
    empty.touch()
    tuned = R(max_iter=2, random_state=0)
    with pytest.raises(ParameterError, match="exists and is not a checkpoint, so it is not overwritten"):
        tuned.fit(IRIS, SPECIES, checkpoint=other)
    assert other.read_text() == "a,b\n1,2\n"
    for _ in range(2):  # of an empty file, and of a checkpoint
        tuned.fit(IRIS, SPECIES, checkpoint=empty)


def test_a_fit_is_not_resumed_with_another_loss_of_the_same_name(tmp_path):
    def distance(op, y_true, y_pred):
        return abs(y_true - y_pred)

    def same(op, y_true, y_pred):
        return abs(y_true - y_pred)

    def changed(op, y_true, y_pred):
        return 2 * abs(y_true - y_pred)

    for function in (distance, same, changed):
        function.__qualname__ = "distance"
    path = tmp_path / "fit.ckpt"
    R(max_iter=2, loss=distance, random_state=0).fit(IRIS, SPECIES, checkpoint=path)
    assert R(max_iter=4, loss=same, random_state=0).fit(IRIS, SPECIES, checkpoint=path, resume=True).n_iter_ == 4
    with pytest.raises(ParameterError, match="written with other values of loss"):
        R(max_iter=4, loss=changed, random_state=0).fit(IRIS, SPECIES, checkpoint=path, resume=True)


@pytest.mark.parametrize("rows", [{"town": [[1], [2]] * 10}, pd.DataFrame({"town": [1, 2] * 10}), [[1], [2]] * 10])
def test_numbers_as_strings_are_trained_as_the_message_converts_them(rows):
    rows = {"town": np.asarray(rows["town"], str)} if isinstance(rows, dict) else np.asarray(rows, str)
    model = R(OF_STRINGS, max_iter=2).fit(rows, RENT)
    assert model.loss_curve_[0] > model.loss_curve_[1]


@pytest.mark.filterwarnings("ignore:y is from .* so it cannot predict", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("row", OPEN_FILES)
def test_the_first_layer_of_a_file_tells_the_number_of_features(row):
    kind, target = (C, SPECIES) if row == "classifier" else (R, IRIS[:, :2] if row == "two targets" else IRIS[:, 0])
    model = kind(OPEN_FILES[row](), max_iter=1)
    with pytest.raises(DataError, match="X has 3 features, but the model takes 4. Pass those columns"):
        model.fit(IRIS[:, :3], target)
    model.fit(IRIS, target)
    with pytest.raises(DataError, match="X has 3 features, but OrtGradient.* is expecting 4 features"):
        model.predict(IRIS[:, :3])


def test_rows_of_another_number_of_features_than_trees_take():
    """A tree may not use the last feature, so the file does not show their number."""
    onx = without_features(DecisionTreeRegressor(max_depth=2))
    with pytest.raises(DataError, match="requests feature 3 .* The rows may have another number of features than"):
        R(onx, max_iter=1).fit(IRIS[:, :3], IRIS[:, 0])


def test_an_onnx_model_follows_the_steps_of_a_pipeline(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(LINE, path)
    with pytest.raises(ParameterError, match="Put the pipeline outside") as e:
        R(make_pipeline(StandardScaler(), path)).fit(X, y)
    (code,) = re.findall(r"(make_pipeline\(.*\))\. OrtGradientRegressor takes its other", str(e.value))
    tuned = eval(code).set_params(ortgradientregressor__max_iter=1).fit(X, y)
    assert tuned.predict(X[:2]).shape == (2,)


@pytest.mark.parametrize("feeds", [{"a": X[:, :1], "b": X[:, 1]}, {"a": X[:, :2], "b": X[:, 2:]}])
def test_feeds_of_an_onnx_model_become_one_table(feeds):
    model = R(SCALED_LINE, max_iter=1)
    with pytest.raises(DataError) as e:
        model.fit(feeds, y)
    (code,) = re.findall(r"Pass (.*)\. Only ONNX models", str(e.value))
    model.fit(eval(code, {"numpy": np, "pandas": pd, "X": feeds}), y)
    assert model.n_features_in_ == sum(1 if v.ndim == 1 else v.shape[1] for v in feeds.values())


@pytest.mark.parametrize("shape", ["n", "n, 1"])
def test_texts_for_an_input_of_strings_as_the_message_passes_them(shape):
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> '
        f"g (string[{shape}] t) => (float[n, 1] Y) <float[2, 1] W = {{1, 2}}, int64[2] s = {{-1, 2}}> "
        '{ c = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "b"]>(t) f = Reshape(c, s) Y = MatMul(f, W) }'
    )
    model = R(onx, max_iter=2)
    with pytest.raises(DataError) as e:
        model.fit(scipy.sparse.eye(20, format="csr"), RENT)
    (code,) = re.findall(r"such as (.*)\.$", str(e.value))
    model.fit(eval(code, {"numpy": np, "texts": ["a", "b"] * 10}), RENT)
    assert model.loss_curve_[0] > model.loss_curve_[1]


def test_the_influence_of_columns_on_trees():
    importances = permutation_importance(TREE, X, y, n_repeats=1, random_state=0).importances_mean
    assert importances.argmax() == 8  # the logarithm of serum triglycerides


def test_a_file_with_the_name_of_a_pickle(fitted, tmp_path):
    path = tmp_path / "model.pkl"
    with pytest.warns(UserWarning, match=r"which pickle and joblib cannot read. Read it with onnxtrain.load"):
        onnxtrain.save(fitted, path)
    assert (onnxtrain.load(path).predict(X) == fitted.predict(X)).all()


def test_a_gradient_names_an_input_that_has_one():
    flats = pd.DataFrame({"town": ["Bern", "Ulm"] * 20, "area": np.linspace(20, 100, 40), "rooms": [1, 2, 3, 4] * 10})
    columns = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["area", "rooms"]))
    rent = 8 * flats.area + 100 * flats.rooms
    tuned = OrtGradientRegressor(make_pipeline(columns, Ridge()), max_iter=1).fit(flats, rent)
    with pytest.raises(DataError, match="Name a floating-point input: wrt='area'."):
        tuned.gradient(flats)
    assert tuned.gradient(flats, wrt="area").shape == (40, 1)
    with pytest.raises(WeightError, match="The input 'town' contains text, without a derivative. Name a floating-"):
        tuned.gradient(flats, wrt="town")
    for y in (None, rent):
        with pytest.raises(
            WeightError, match=r"Pass the column 'rooms' as floats in fit: X.astype\(\{'rooms': float\}\)."
        ):
            tuned.gradient(flats, y, wrt="rooms")
    tuned.fit(flats.astype({"rooms": float}), rent)
    assert tuned.gradient(flats, wrt="rooms").shape == (40, 1)
    with pytest.raises(DataError, match="Pass the column 'rooms' as floats in fit"):
        tuned.fit(flats.drop(columns="area").assign(area=1), rent).gradient(flats.assign(area=1))


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda path: TRAINED.get_trained_onnx(path=path), FileError),
        (lambda path: onnxtrain.save(TRAINED, path), FileError),
        (lambda path: onnxtrain.load(path), ModelError),
        (lambda path: OrtGradientRegressor(path).fit(X, y), ModelError),
        (lambda path: OrtGradientRegressor(max_iter=1).fit(X, y, checkpoint=path), ParameterError),
        (lambda path: plot_graph(TRAINED).save(path.replace("onnx", "svg")), FileError),
        (lambda path: LiveLossCurve(path.replace("onnx", "png")), ParameterError),
    ],
)
def test_a_path_with_a_tilde_names_expanduser(call, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=r"~ is not expanded. Use os.path.expanduser\('~/tuned"):
        call("~/tuned.onnx")
    assert not os.listdir(tmp_path)


def test_dummies_of_other_rows_are_completed_as_the_message_says():
    flats = pd.DataFrame({"town": ["Bern", "Ulm"] * 20, "area": np.linspace(20, 100, 40)})
    model = OrtGradientRegressor(max_iter=1).fit(pd.get_dummies(flats), np.sqrt(flats.area) + np.arange(40) % 3)
    rows = pd.get_dummies(flats[flats.town == "Ulm"])
    with pytest.raises(DataError, match=r"X.reindex\(columns=model.feature_names_in_, fill_value=0\) does both."):
        model.predict(rows)
    with pytest.raises(DataError, match=r"X_val.reindex\(columns=X.columns, fill_value=0\) does both."):
        clone(model).fit(pd.get_dummies(flats), flats.area % 7, X_val=rows, y_val=rows.area)
    whole = rows.reindex(columns=model.feature_names_in_, fill_value=0)
    np.testing.assert_array_equal(model.predict(whole), model.predict(pd.get_dummies(flats))[1::2])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: R(make_pipeline(Ridge()).fit).fit(X, y),
            ParameterError,
            "got method. Pass the Pipeline itself, without .fit.",
        ),
        (
            lambda: TRAINED.predict(X, return_std=True),
            ArgumentTypeError,
            "Training gives no standard deviation. Use model.predict(X, return_std=True) of the model itself, or train",
        ),
        (lambda: TRAINED.predict(X, return_cov=True), ArgumentTypeError, "Training gives no standard deviation."),
        (
            lambda: R(max_iter=np.float64(15.97)).fit(X, y),
            ParameterError,
            "Pass an integer; in a random search, scipy.stats.randint(1, 100) draws them.",
        ),
        (
            lambda: Adam(betas=(0.8, 0.9)),
            ArgumentTypeError,
            "Adam has no parameter 'betas'. Pass the two numbers by name: beta_1=0.9, beta_2=0.999.",
        ),
        (
            lambda: TRAINED.get_trained_onnx(options={"zipmap": False}),
            ArgumentTypeError,
            "skl2onnx takes it: skl2onnx.to_onnx(model.to_sklearn(), X, options=...), and initial_types likewise.",
        ),
        (
            lambda: R(n_estimators=10),
            ArgumentTypeError,
            "GradientBoostingRegressor(n_estimators=...) or the classifier.",
        ),
        (
            lambda: onnxtrain.gradient(onnx.ModelProto()),
            ParameterError,
            "registers a function. For the gradient of a model, use onnx_derivative(onx).",
        ),
        (
            lambda: C().fit(X, np.c_[np.arange(len(X)) % 50, y > 100]),
            DataError,
            "If only one column holds the labels, pass that one, such as y['kind'] or y[:, -1].",
        ),
        (
            lambda: R().fit(X, y, sample_weight=np.where(np.arange(len(X)) == 3, np.inf, 1.0)),
            DataError,
            "Input sample_weight contains infinity in 1 of its 442 rows, first in row 3. Pass finite weights: after 1 / v",
        ),
        (
            lambda: R().fit(np.where(np.arange(len(X))[:, None] == 3, 1e40, X), y),  # without a warning of numpy
            DataError,
            "infinity or a value too large for dtype('float32'): 1e+40 in row 3, column 0",
        ),
        (lambda: R(weights_to_train=[-1]).fit(X, y), ParameterError, "for the last layer, weights_to_train='head'."),
    ],
)
def test_a_call_that_other_libraries_allow_has_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def test_weights_of_estimators_are_averaged_as_the_message_says():
    a, b = (R(max_iter=1).fit(X[i::2], y[i::2]) for i in range(2))
    mean = (a.predict(X) + b.predict(X)) / 2
    with pytest.raises(DataError, match=r"a.weights_.update\(average_states\(\[a.weights_, b.weights_\]\)\)."):
        onnxtrain.average_states([a, b])
    a.weights_.update(onnxtrain.average_states([a.weights_, b.weights_]))
    np.testing.assert_allclose(a.predict(X), mean, rtol=1e-5)
