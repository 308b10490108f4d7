"""Mistakes of users of scikit-learn in their first weeks: parameters in the wrong place, and remedies that work."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier, StackingRegressor, VotingRegressor
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR, LinearSVR

import onnxtrain
from onnxtrain import LiveLossCurve, LoRA, LossCurveDisplay, WeightsDisplay, plot_graph, trainable_weights
from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import (
    ArgumentTypeError,
    DataError,
    DeviceError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
)

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
SCALED = make_pipeline(StandardScaler(), Ridge())


TAGS = np.stack([SPECIES == 0, SPECIES > 1], axis=1).astype(int)
FOREST = RandomForestClassifier(2, random_state=0)
NETWORK = MLPClassifier(hidden_layer_sizes=(4,), tol=0.1, random_state=0).fit(IRIS, TAGS)
LOGARITHM = make_pipeline(FunctionTransformer(lambda X: np.where(X < 0, np.nan, X)), Ridge())
TEXTS, PAIR = ["good day", "bad day"] * 5, [1, 0] * 5
WORDS = C(make_pipeline(TfidfVectorizer(), LogisticRegression()), max_iter=1)


def fitted():
    return R(Ridge(), max_iter=1).fit(X, y)


def tagger():
    return C(max_iter=1).fit(IRIS, TAGS)


VALIDATED = cross_validate(R(Ridge(), max_iter=1), X, y, cv=2, return_estimator=True)


BAGS = BaggingRegressor(R(Ridge(), max_iter=1), n_estimators=2).fit(X, y)


def search():
    return GridSearchCV(R(Ridge(), max_iter=1), {"l2": [0]}, cv=2).fit(X, y)


def of_search(name):
    return f"To try several values, use GridSearchCV(model, {{{name!r}: [...]}})."


@pytest.mark.parametrize(
    "call, error, message",
    [
        # parameters of a loss
        (lambda: R(loss="quantile", q=0.9), ArgumentTypeError, "loss='quantile', loss_params={'q': 0.9}."),
        (lambda: R(loss="quantile", alpha=0.9), ArgumentTypeError, "loss='quantile', loss_params={'q': 0.9}."),
        (lambda: R(power=1.5), ArgumentTypeError, "loss='tweedie', loss_params={'power': 1.5}."),
        (
            lambda: R(loss="rmsle").fit(X, y),
            LossError,
            "It is the squared error of log(1 + y): TransformedTargetRegres",
        ),
        (
            lambda: R(loss="mape").fit(X, y),
            LossError,
            "loss='absolute_error' and fit(X, y, sample_weight=1 / numpy.abs(",
        ),
        (
            lambda: R(PoissonRegressor(), loss="poisson").fit(X, y - y.mean()),
            DataError,
            "do not standardize it. For other targets, use LinearRegression with loss='squared_error'.",
        ),
        (
            lambda: R(GammaRegressor()).fit(X, y - y.mean()),
            DataError,
            "use LinearRegression with loss='squared_error'.",
        ),
        # values of a search
        (lambda: R(l2=loguniform(1e-4, 1)).fit(X, y), ParameterError, "use RandomizedSearchCV(model, {'l2': distribut"),
        (lambda: R(l2=np.logspace(-3, 0, 3)).fit(X, y), ParameterError, of_search("l2")),
        (lambda: R(max_iter=range(3)).fit(X, y), ParameterError, of_search("max_iter")),
        (lambda: R(loss=("huber", "quantile")).fit(X, y), LossError, of_search("loss")),
        (lambda: R(learning_rate=(0.1, 0.01)).fit(X, y), OptimizerError, of_search("learning_rate")),
        (lambda: R(early_stopping=[True, False]).fit(X, y), ParameterError, of_search("early_stopping")),
        (lambda: R(loss_params=[{"q": 0.1}, {"q": 0.9}]).fit(X, y), ParameterError, of_search("loss_params")),
        (lambda: R(Ridge(), clip_norm=(-1, 1)).fit(X, y), ParameterError, "Pass the largest norm of all gradients"),
        (lambda: R(weights_to_train=LoRA(rank=[2, 4])).fit(X, y), ParameterError, of_search("weights_to_train__rank")),
        # the names of a search
        (lambda: R(Ridge()).set_params(estimator__ridge__alpha=2), ParameterError, "Did you mean 'estimator__alpha'?"),
        (
            lambda: R(Ridge()).set_params(model__l2=1),
            ParameterError,
            "has no parameter 'model__l2'. Did you mean 'l2'?",
        ),
        (lambda: R(SCALED).set_params(ortgradientregressor__verbose=1), ParameterError, "Did you mean 'verbose'?"),
        (lambda: R(Ridge()).set_params(ortgradientregressor__tol=1), ParameterError, "Did you mean 'tol'?"),
        (lambda: R(Ridge()).set_params(reg__tol=1), ParameterError, "Did you mean 'tol' or 'estimator__tol'?"),
        # models
        (
            lambda: R(Pipeline([("scale", StandardScaler()), ("model", None)])).fit(X, y),
            ParameterError,
            "The last step of the pipeline is None. Put a regressor there, which is trained.",
        ),
        (
            lambda: R(make_pipeline(StandardScaler(), "drop")).fit(X, y),
            ParameterError,
            "step of the pipeline is 'drop'.",
        ),
        (
            lambda: R(VotingRegressor([("a", Ridge()), ("b", None)])).fit(X, y),
            ParameterError,
            "'b' of the VotingRegressor must be an estimator, got None. Pass it as an object, such as Ridge().",
        ),
        (lambda: R(StackingRegressor([("a", "ridge")])).fit(X, y), ParameterError, "got 'ridge'. Pass it as an object"),
        (
            lambda: R(BaggingRegressor(Ridge)).fit(X, y),
            ParameterError,
            "got the class Ridge. Pass it as an object, such",
        ),
        (lambda: R(MultiOutputRegressor(None)).fit(X, y[:, None]), ParameterError, "must be an estimator, got None."),
        (lambda: R(VotingRegressor([("a", Ridge())] * 2)).fit(X, y), DataError, "Give each a name of its own"),
        (
            lambda: C(FOREST, weights_to_train="head").fit(IRIS, SPECIES),
            ModelError,
            "Name the weights to train; onnxtr",
        ),
        (
            lambda: C(NETWORK).fit(IRIS, SPECIES == 1),
            DataError,
            "on 2 labels per row. Pass y in this form, or an unfitt",
        ),
        (lambda: R(penalty={"coef": "l1"}).fit(X, y), LossError, "has no strength: penalty={'coef': {'l1': 0.1}}."),
        (lambda: R(LOGARITHM).fit(X, y), DataError, "Change it, or put a SimpleImputer behind it."),
        # calls
        (
            lambda: R(Ridge(), X, y),
            ArgumentTypeError,
            "Pass rows and targets to fit: OrtGradientRegressor(model).fit(X, y)",
        ),
        (lambda: fitted().predict(*X[0]), ArgumentTypeError, "Pass all rows as one array, [[5.1, 3.5]] for one row."),
        (
            lambda: fitted().score(y_true=y, y_pred=y),
            ArgumentTypeError,
            "Pass the rows and their targets, score(X, y).",
        ),
        (
            lambda: tagger().score(IRIS, SPECIES),
            DataError,
            "y has one class per row, but the model was fitted on 2 labels per row. Pass an indicator matrix of 2 columns",
        ),
        (
            lambda: tagger().score(IRIS, np.c_[TAGS, TAGS]),
            DataError,
            "y has 4 labels per row, but the model was fitted",
        ),
        (lambda: WORDS.fit(TEXTS, PAIR).predict([1, 2]), DataError, "Convert numbers: [str(row) for row in X]."),
        (
            lambda: fitted().get_trained_onnx(part="front"),
            ParameterError,
            "the trained part are model.front_. Pass a file",
        ),
        (lambda: plot_graph(fitted(), "backward"), ParameterError, "'step', got 'backward'. Did you mean 'gradient'?"),
        (lambda: onnxtrain.losses.huber, AttributeError, "Pass its name, loss='huber'."),
        (lambda: onnxtrain.GridSearchCV, AttributeError, "Import it from sklearn.model_selection."),
        (
            lambda: C(class_weight=[{0: 1}, {1: 2}]).fit(IRIS, SPECIES == 1),
            DataError,
            "Pass one dictionary for all classes, class_weight={label: weight, ...}.",
        ),
        (
            lambda: R().fit(X, y, sample_weight=["1.0"] * len(X)),
            DataError,
            "Pass numbers, numpy.asarray(sample_weight).astype(float).",
        ),
        (lambda: R(SVR()).fit(X, np.c_[y, y]), DataError, "A column of it is numpy.asarray(y)[:, 0]."),
        # displays
        (
            lambda: LossCurveDisplay([3.0, 2.0]).figure_,
            AttributeError,
            "has no attribute 'figure_'. Call plot() first.",
        ),
        (
            lambda: LossCurveDisplay.from_estimator([1.0]),
            ArgumentTypeError,
            "Draw it with LossCurveDisplay(...).plot().",
        ),
        (
            lambda: LossCurveDisplay.from_estimator([fitted()]),
            ArgumentTypeError,
            "Draw them one by one, with the same ax=",
        ),
        (lambda: LossCurveDisplay.from_estimator(fitted().history_), ArgumentTypeError, "Pass the estimator itself."),
        (
            lambda: LossCurveDisplay.from_estimator(NETWORK),
            ArgumentTypeError,
            "LossCurveDisplay(model.loss_curve_).plot()",
        ),
        (
            lambda: LossCurveDisplay.from_estimator(fitted(), X, y),
            ArgumentTypeError,
            "Pass only estimator by position, and rate, ax by name.",
        ),
        (
            lambda: LossCurveDisplay.from_estimator(fitted(), log=True),
            ArgumentTypeError,
            "use ax_.set_yscale('log'), and",
        ),
        (lambda: LossCurveDisplay(fitted().history_), ArgumentTypeError, "got History. Pass history_.loss."),
        (
            lambda: LossCurveDisplay.from_estimator(VALIDATED),
            ArgumentTypeError,
            "Pass one of them: result['estimator'][0]",
        ),
        (lambda: LiveLossCurve().figure_, AttributeError, "plot() returns a display, which has it."),
        (
            lambda: LiveLossCurve.from_estimator,
            AttributeError,
            "LiveLossCurve has no from_estimator. Use LossCurveDisplay.",
        ),
        (lambda: plot_graph(search()), ArgumentTypeError, "got GridSearchCV. Pass search.best_estimator_."),
        (lambda: trainable_weights(search()), ParameterError, "takes no GridSearchCV. Pass search.best_estimator_."),
        (
            lambda: trainable_weights(fitted().weights_),
            ParameterError,
            "got weights of an estimator. Pass what its get_tr",
        ),
        (
            lambda: R(fitted().history_).fit(X, y),
            ParameterError,
            "got History of an estimator. Pass what its get_trained",
        ),
        (
            lambda: WeightsDisplay.from_estimator(fitted().weights_),
            ArgumentTypeError,
            "got a dictionary. Draw it with WeightsDisplay(...).plot().",
        ),
        (
            lambda: WeightsDisplay.from_estimator(BAGS),
            ArgumentTypeError,
            "WeightsDisplay.from_estimator(model.estimators_[0])",
        ),
        (
            lambda: WeightsDisplay.from_estimator(R),
            ArgumentTypeError,
            "got the class OrtGradientRegressor. Pass a fitted",
        ),
        (lambda: plot_graph(BAGS), ArgumentTypeError, "got BaggingRegressor. Pass model.estimators_[0]."),
        (lambda: plot_graph(VALIDATED), ArgumentTypeError, "got dict. Pass result['estimator'][0]."),
        (lambda: trainable_weights(make_pipeline(fitted())), ParameterError, "no Pipeline. Pass pipeline[-1]."),
        (lambda: plot_graph(R), ArgumentTypeError, "got the class OrtGradientRegressor. Pass a fitted instance."),
        (lambda: trainable_weights(R), ParameterError, "must be an instance, got the class OrtGradientRegressor."),
        (
            lambda: R(penalty={0: 0.1}).fit(X, y),
            LossError,
            "has the names of weights as keys, such as {'coef': 0.1}, got 0",
        ),
        # others
        (lambda: R(GaussianMixture()).fit(X, y), ParameterError, "is a density estimator, which learns without y"),
        (lambda: fitted().gradient(X, y, y > 0), DataError, "wrt must be the name of an input, got ndarray. Call gr"),
        (lambda: R(device=True).fit(X, y), DeviceError, "Did you mean 'auto'?"),
        (lambda: R(learning_rate="exponential").fit(X, y), OptimizerError, "lambda step: 0.01 * 0.5 ** (step // 100)"),
        (
            lambda: R(init=Ridge()).fit(X, y),
            ParameterError,
            "'estimator' starts from the weights of estimator=, 'random'",
        ),
        (
            lambda: C().fit(IRIS[:50], SPECIES[:50]),
            DataError,
            "Pass rows of both; with partial_fit, all present and fut",
        ),
    ],
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "model, rows, targets", [(C(LogisticRegression()), IRIS, SPECIES), (R(SVR(), loss="epsilon_insensitive"), X, y)]
)
def test_one_column_of_a_frame_becomes_targets_as_the_message_says(model, rows, targets):
    column = pd.DataFrame({"kind": targets})
    with pytest.warns(DataConversionWarning, match=r"1d array was expected. Pass numpy.ravel\(y\)."):
        model.set_params(max_iter=1).fit(rows, column)
    model.fit(rows, np.ravel(column))  # filterwarnings = error


@pytest.mark.parametrize(
    "model, rows, targets, name, values",
    [
        (R(LinearRegression(), max_iter=1), X, y, "coef", np.arange(10.0)),
        (C(LogisticRegression(), max_iter=1), IRIS, SPECIES, "coef", np.arange(12.0).reshape(3, 4)),
    ],
)
def test_coefficients_of_scikit_learn_are_assigned_as_the_message_says(model, rows, targets, name, values):
    model.fit(rows, targets)
    with pytest.raises(DataError) as raised:
        model.weights_[name] = values
    code = str(raised.value).rpartition("Assign ")[2].removesuffix(".")
    model.weights_[name] = eval(code, {"numpy": np, "values": values})
    assert model.coef_.tolist() == values.tolist()
    with pytest.raises(DataError, match=r"got an array of shape \(2,\). Assign an array of its shape."):
        model.weights_[name] = [1.0, 2.0]


@pytest.mark.parametrize("separator", [",", ", ", ";", "|"])
def test_several_labels_in_a_string_become_columns_as_the_message_says(separator):
    labels = ["red", "round", separator.join(["red", "round"])] * 50
    with pytest.warns(UserWarning, match="its parts are labels, too") as warned:
        C(max_iter=1).fit(IRIS, labels)
    (code,) = re.findall(r"pass (pandas\.\S+\(.*\)), an indicator", str(warned[0].message))
    assert C(max_iter=1).fit(IRIS, eval(code, {"pandas": pd, "y": labels})).predict(IRIS).shape == (150, 2)


def test_a_label_with_a_comma_is_a_class():  # filterwarnings = error
    C(max_iter=1).fit(IRIS, ["yes, sir", "yes", "no"] * 50)


@pytest.mark.parametrize(
    "model, code",
    [
        (SVR(), "loss='epsilon_insensitive', loss_params={'epsilon': 0.1}"),
        (LinearSVR(epsilon=0.2), "loss='epsilon_insensitive', loss_params={'epsilon': 0.2}"),
    ],
)
def test_the_loss_of_support_vectors_is_set_as_the_warning_says(model, code):
    with pytest.warns(UserWarning, match=re.escape(f"Set {code} to go on with it.")):
        R(model, max_iter=1, learning_rate=1e-5).fit(X, y)
    R(model, max_iter=1, learning_rate=1e-5, **eval(f"dict({code})")).fit(X, y)  # filterwarnings = error


@pytest.mark.parametrize("model", [ElasticNet(alpha=0), QuantileRegressor(alpha=0)])
def test_a_penalty_of_zero_is_none(model, recwarn):
    R(model, max_iter=1, loss="quantile", loss_params={"q": 0.9}).fit(X, y)
    assert not [w for w in recwarn if "has no effect on the training" in str(w.message)]


def test_an_onnx_file_with_the_name_of_a_pickle_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="Read it with onnxruntime.InferenceSession, and give it a name that ends in"):
        fitted().get_trained_onnx(path=tmp_path / "model.pkl")


@pytest.mark.filterwarnings("ignore:max_iter=200 was reached")
def test_columns_of_X_that_are_too_large_are_scaled_as_the_warning_says():
    model = MLPRegressor(hidden_layer_sizes=(20,), random_state=0)
    params = dict(init="random", max_iter=200, learning_rate=1e-2, random_state=0)
    rows = X * 1e8 + 5e6
    with pytest.warns(ConvergenceWarning, match=r"that of the mean of y is .* Scale the columns of X, too: ") as warned:
        R(model, **params).fit(rows, y)
    code = str(warned[0].message).rpartition("too: ")[2].removesuffix(".").replace("model)),", "model), **params),")
    known = {"make_pipeline": make_pipeline, "OrtGradientRegressor": R, "StandardScaler": StandardScaler}
    names = known | {"TransformedTargetRegressor": TransformedTargetRegressor, "model": model, "params": params}
    assert eval(code, names).fit(rows, y).score(rows, y) > 0.5


def test_a_tiny_learning_rate_is_to_be_raised_before_y_is_scaled():
    model = MLPRegressor(hidden_layer_sizes=(20,), random_state=0)
    with pytest.warns(ConvergenceWarning, match="Raise learning_rate from 1e-09; the default is 0.001."):
        R(model, init="random", max_iter=30, random_state=0, learning_rate=1e-9).fit(X, y)
