"""Mistakes that would train something else than what is meant: each is an error or a warning with a remedy."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onnxtrain import LiveLossCurve, LossCurveDisplay, WeightsDisplay, converter, loss, save, trainable_weights
from onnxtrain import OrtGradientClassifier as C
from onnxtrain import OrtGradientRegressor as R
from onnxtrain.errors import (
    ArgumentTypeError,
    DataError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
    WeightError,
)
from onnxtrain.optim import SGD, Adaptive, Cosine, Proximal, make_schedule
from onnxtrain.testing import check_gradient

X, y = load_diabetes(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)
TWO, PAIR = IRIS[50:], SPECIES[50:] - 1
KNOWN = LogisticRegression(max_iter=1000).fit(IRIS, SPECIES)
SCALED = make_pipeline(StandardScaler(), LogisticRegression()).fit(IRIS, SPECIES)
Z = StandardScaler().fit_transform(X)
LATER = np.arange(442) % 4 == 0

FRAME = pd.DataFrame(X).add_prefix("x")

OF_TWO = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x, float[n, 1] mask) => (float[n, 3] scores) <float[4, 3] W = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}> {
    kept = Mul(x, mask) scores = MatMul(kept, W) }""")

CELLS = pd.DataFrame({"x": IRIS.tolist(), "mask": 1.0})

#: A fit from random weights.
NEW = dict(init="random", max_iter=30, random_state=0)

OF_TOKENS = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, t, 2] x) => (float[n, t, 3] scores) <float[2, 3] W = {0, 0, 0, 0, 0, 0}> { scores = MatMul(x, W) }""")


def hinge(op, y_true, y_pred):
    return np.maximum(0.0, 1.0 - (2.0 * y_true - 1.0) * y_pred)


def ramp(op, y_true, y_pred):
    return np.minimum(2.0, hinge(op, y_true, y_pred))


def of_probabilities(op, y_true, y_pred):
    p = np.clip(y_pred, 1e-7, 1 - 1e-7)
    return -(y_true * np.log(p) + (1.0 - y_true) * np.log(1.0 - p))


def brier(op, y_true, y_pred):
    return (y_true - y_pred) ** 2


def of_scores(op, y_true, y_pred):
    return of_probabilities(op, y_true, op.Sigmoid(y_pred))


def smoothed(op, y_true, y_pred):
    return of_scores(op, 0.8 * y_true + 0.1, y_pred)


def squared_margin(op, y_true, y_pred):
    return (1.0 - (2.0 * y_true - 1.0) * y_pred) ** 2


async def asynchronous(info):
    return True


def with_yield(info):
    yield True


def other_weights():
    model = R(Ridge(), max_iter=1, warm_start=True, weights_to_train="coef").fit(X, y)
    return model.set_params(weights_to_train="intercept").fit(X, y)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: R().fit(X, y, callback=asynchronous), ParameterError, "is an async function, whose body a call does"),
        (lambda: R().fit(X, y, callback=with_yield), ParameterError, "is a generator function, with yield, whose"),
        (lambda: setattr(R(), "lr", 0.1), AttributeError, "has no parameter 'lr'. Did you mean 'learning_rate'?"),
        (lambda: setattr(C(), "epochs", 3), AttributeError, "has no parameter 'epochs'. Did you mean 'max_iter'?"),
        (
            lambda: setattr(R(), "learningrate", 1),
            AttributeError,
            "has no parameter 'learningrate'. Did you mean 'learn",
        ),
        (lambda: setattr(C(), "class_weigth", {}), AttributeError, "Did you mean 'class_weight'?"),
        (
            lambda: loss("swapped")(lambda op, pred, target: abs(target - pred)),
            LossError,
            "The loss 'swapped' is called with (op, y_true, y_pred), but its parameters are (op, pred, target)",
        ),
        (
            lambda: (fitted := R().fit(X, y)).losses(y, fitted.predict(X)),
            DataError,
            "OrtGradientRegressor.losses takes the rows, not predictions: losses(X, y).",
        ),
        (
            lambda: R().fit(X, y).load_training_state(R().fit(X, y)),
            ArgumentTypeError,
            "For the weights of another estimator, use model.weights_.update(other.weights_).",
        ),
        (
            lambda: (
                C(MLPClassifier((4,), tol=1, random_state=0).fit(IRIS, SPECIES), max_iter=0)
                .fit(IRIS, SPECIES)
                .embed(IRIS, "relu")
            ),
            ModelError,
            "The results of relu nodes are called next_activations.",
        ),
        (
            lambda: LossCurveDisplay([2.0, 1.0]).plot(title="x"),
            ArgumentTypeError,
            "For a title, use ax_.set_title(...)",
        ),
        (lambda: LossCurveDisplay([1.0]).plot(ax=np.array([0, 1])), ArgumentTypeError, "Pass one of them, ax=axes[0]."),
        (
            lambda: WeightsDisplay({"a": np.ones(3)}).plot(bins=9),
            ArgumentTypeError,
            "for a histogram of a weight plt.hist(model.weights_[name].ravel()).",
        ),
        (
            lambda: LiveLossCurve("loss.xyz"),
            ParameterError,
            "has the ending '.xyz', which no format of matplotlib has. Choo",
        ),
        (lambda: R(learning_rate=lambda step: None).fit(X, y), OptimizerError, "End it with return rate."),
        (
            lambda: R(learning_rate=lambda step: Cosine(0.1)).fit(X, y),
            OptimizerError,
            "Pass the schedule itself: learning_rate=Cosine(learning_rate=0.1, ",
        ),
        (lambda: make_schedule(0.1, 100), ArgumentTypeError, "make_schedule: too many positional arguments. Its"),
        (
            lambda: check_gradient(OF_TOKENS, {"X": X}),
            DataError,
            "onnxtrain.random_feed(model.graph.input) returns one",
        ),
        (lambda: Adaptive(0.1, factor=0.1)(0, 1), OptimizerError, "The rate is divided by it: factor=10."),
        (lambda: R().to_sklearn("m.joblib"), ArgumentTypeError, "use joblib.dump(model.to_sklearn(), path)."),
        (lambda: trainable_weights(Ridge()), NotFittedError, "so it has no weights. Pass it after its fit"),
        (lambda: R().steps, AttributeError, "Use to_sklearn().named_steps or estimator.named_steps"),
        (other_weights, ParameterError, "from the trained values, fit a new estimator of to_sklearn(), or of"),
        (lambda: R(Ridge().fit(X, y)).fit(X[:, :9], y), DataError, "such as an unfitted one, which fit fits on them."),
        (lambda: R(weights_to_train=iter(["coef"])).fit(X, y), ParameterError, "is empty after a use. Pass a list."),
        (lambda: R(weights_to_train="coef,intercept").fit(X, y), WeightError, "a list, ['coef', 'intercept']."),
        (
            lambda: LossCurveDisplay([R(), R()]),
            ArgumentTypeError,
            "To plot a fitted estimator, use LossCurveDisplay.fro",
        ),
        (
            lambda: C(OF_TOKENS).fit(np.ones((20, 4, 2)), np.tile([0.0, 1.0, 2.0, np.nan], (20, 1))),
            DataError,
            "Mark positions without a label with ignore_index: numpy.where(numpy.isnan(y), -100, y).",
        ),
        (
            lambda: R().fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:], sample_weight_val=np.ones(300)),
            DataError,
            "sample_weight_val.shape == (300,), expected (142,)! Pass one weight per row of X_val.",
        ),
        (
            lambda: converter(type("Step", (), {}))(lambda scope, operator, container: None),
            ParameterError,
            "has the arguments of skl2onnx. It takes (op, estimator, X)",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_mistake_is_an_error_with_a_remedy(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: C(loss=of_probabilities, max_iter=1).fit(TWO, PAIR),
            "it changes only for values from 0 to 1.*Compute the probability first, and keep it from 0",
        ),
        (
            lambda: C(loss=brier, max_iter=1).fit(TWO, PAIR),
            "it is lowest near 0 for the first class and near 1 for the second.*Compute the probability first",
        ),
        (
            lambda: C(loss=hinge, max_iter=1).fit(TWO, PAIR).predict_proba(TWO),
            "The loss 'hinge' defines no probabilities: .* Wrap the estimator in CalibratedClassifierCV",
        ),
        (lambda: C(SCALED[-1], max_iter=1).fit(IRIS, SPECIES), "50 of 150 rows right before training.*whole pipeline"),
        (
            lambda: R(batch_size=500, max_iter=1).fit(X, y),
            "batch_size=500 is larger than the number of rows, 442, so an",
        ),
        (
            lambda: C(OF_TWO, inputs={"mask": 1}, max_iter=1).fit({"x": IRIS, "mask": np.ones((150, 1))}, SPECIES),
            "ignores mask of X, because the parameter inputs sets the same value for all rows. Leave it out of one",
        ),
        (
            lambda: C(OF_TWO, inputs={"mask": 1}, max_iter=1).fit(CELLS, SPECIES),
            "ignores mask of X, because the parameter inputs sets the same value for all rows. Leave it out of one",
        ),
        (
            lambda: R(max_iter=1).fit(X, pd.DataFrame({"id": np.arange(442), "y": y})),
            "The column 'id' of y numbers the rows, and is trained as a target. Pass y without it",
        ),
        (
            lambda: R(max_iter=1).fit(FRAME, FRAME.assign(y=y)),
            "y has all columns of X, so the model predicts them from themselves. Pass the column of the targets as y",
        ),
        (
            lambda: R(learning_rate=lambda t: 0.9**t, batch_size=8, **NEW).fit(X, y),
            "fell from 1 to .* If the function takes the epoch, divide the step by the steps of an epoch",
        ),
        (lambda: R(solver=Proximal(SGD()), max_iter=1).fit(X, y), "has no effect without a penalty of l1"),
        (lambda: C(KNOWN, max_iter=1).fit(IRIS, (SPECIES == 0) * 1), "y lacks 2, which it knows. Pass rows and labels"),
        (
            lambda: R(max_iter=1).fit(X[~LATER], y[~LATER], X_val=X[LATER], y_val=(y[LATER] - y.mean()) / y.std()),
            "The values of y_val vary 0.01.* times as much as those of y, as in another unit",
        ),
    ],
)
def test_a_mistake_is_warned_of(call, message):
    with pytest.warns(UserWarning, match=message):
        call()


def test_the_file_of_the_given_model_is_written_over(tmp_path):
    path = tmp_path / "line.onnx"
    R(max_iter=1).fit(X, y).get_trained_onnx(path=path)
    tuned = R(str(path), max_iter=1).fit(X, y)
    with pytest.warns(UserWarning, match="is the file of the given model, which is replaced: every later fit"):
        tuned.get_trained_onnx(path=path)
    with pytest.warns(UserWarning, match="To keep the given model, write to another file"):
        save(tuned, path)
    tuned.get_trained_onnx(path=tmp_path / "tuned.onnx")  # filterwarnings = error


def test_batches_of_all_rows_are_meant():
    weight = np.where(LATER, 0.0, 1.0)  # filterwarnings = error
    R(batch_size=len(X), max_iter=1).fit(X, y, sample_weight=weight)
    R(batch_size=len(X), early_stopping=True, max_iter=1).fit(X, y)
    R(batch_size=500).partial_fit(X, y)


def test_what_is_meant_is_neither():
    for own in (hinge, ramp, of_scores, squared_margin):  # filterwarnings = error
        C(loss=own, max_iter=1).fit(TWO, PAIR)
    for own in (of_scores, smoothed):
        C(loss=own, max_iter=1).fit(TWO, PAIR).predict_proba(TWO)
    CalibratedClassifierCV(C(loss=hinge, max_iter=1)).fit(TWO, PAIR).predict_proba(TWO)  # as the message says
    C(MLPClassifier((4,), tol=1, random_state=0).fit(IRIS, SPECIES), max_iter=1).fit(IRIS, SPECIES)  # hardly trained
    C(KNOWN, max_iter=1).fit(TWO, PAIR + 1)
    # each row is a group of many, as in a table of counts
    groups, counts = np.repeat(np.arange(4.0), 2), np.array([90, 10, 80, 20, 60, 40, 2, 98])
    groups, outcome, counts = np.tile(np.eye(4)[groups.astype(int)], (4, 1)), np.tile([0, 1], 16), np.tile(counts, 4)
    counted = LogisticRegression(C=100).fit(groups, outcome, counts)
    C(counted, max_iter=1).fit(groups, outcome, sample_weight=counts)
    C(SCALED, max_iter=1).fit(IRIS, SPECIES)
    C(OF_TOKENS, max_iter=1).fit(np.ones((20, 4, 2)), np.tile([0.0, 1.0, 2.0, -100], (20, 1)))  # as the message says
    R(solver=Proximal(SGD()), l1=0.1, max_iter=1).fit(X, y)
    R(learning_rate=lambda step: 0.1, max_iter=1).fit(X, y)
    bounded = R(learning_rate=lambda step: max(0.1 * 0.9**step, 1e-4), batch_size=32, tol=1e-2, **NEW)  # as it says
    bounded.fit(Z, (y - y.mean()) / y.std())
    assert bounded.n_iter_ < 30
    OneVsRestClassifier(C(max_iter=1)).fit(IRIS, SPECIES)
    tuned = type("Tuned", (R,), {})()
    tuned.lr = 0.1  # a subclass may have attributes of its own
