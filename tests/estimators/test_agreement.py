"""The kind of an output, by the graph and by the rows; training at rate 0 changes no prediction."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, add_loss_output, load, save
from onnxtrain.convert.compared_rows import spread
from onnxtrain.errors import ConversionError, DataError, LossError, ModelError, ParameterError
from onnxtrain.estimators import agreement
from onnxtrain.estimators.agreement import AGREED
from onnxtrain.estimators.trained import TrainedModel
from onnxtrain.runtime.session import run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
THREE = RNG.integers(0, 3, 60)
TWO = RNG.integers(0, 2, 60)
SHARES = RNG.dirichlet([1, 1, 1, 1], 60).astype(np.float32)  # rows that are probabilities themselves


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


WEIGHTS = {
    "W": drawn(4, 3),
    "V": drawn(4, 3),
    "w": drawn(4, 1),
    "F": drawn(3, 4, 1, 1),
    "T": np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]], np.float32),
    "U": np.array([[0.9, 0.1], [0.3, 0.7]], np.float32),
    "S": np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]], np.float32),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "two": np.float32(2),
    "by_pi": np.float32(1 / np.pi),
    "tiny": np.float32(1e-3),
    "three": np.float32(3),
    "low": np.float32(-300),
    "sharp": np.float32(3),
    "axis1": np.array([1]),
    "axes23": np.array([2, 3]),
    "axes": np.array([1, 2]),
    "column": np.array([-1, 1]),
    "square": np.array([0, 4, 1, 1]),
    "P2": drawn(4, 2),
}
K, B = "(float[n, 4] X) => (float[n, 3] Y)", "(float[n, 4] X) => (float[n, 1] Y)"
C = "(float[n, 4] X) => (float[n, 2] Y)"
SOFT = "Z = MatMul(X, W) P = Softmax <axis = 1> (Z)"
OTHER = "Q0 = MatMul(X, V) Q = Softmax <axis = 1> (Q0)"

#: A model whose output is probabilities.
PROBABILITIES = {
    "softmax": f"{K} {{ {SOFT} Y = Identity(P) }}",
    "exponential of log-softmax": f"{K} {{ Z = MatMul(X, W) L = LogSoftmax <axis = 1> (Z) Y = Exp(L) }}",
    "temperature": f"{K} {{ Z = MatMul(X, W) S0 = Div(Z, sharp) Y = Softmax <axis = 1> (S0) }}",
    "noise by MatMul": f"{K} {{ {SOFT} Y = MatMul(P, T) }}",
    "noise by Gemm": f"{K} {{ {SOFT} Y = Gemm(P, T) }}",
    "noise by Einsum": f'{K} {{ {SOFT} Y = Einsum <equation = "nk,km->nm"> (P, T) }}',
    "noise of two classes": f"{C} {{ Z = MatMul(X, P2) P = Softmax <axis = 1> (Z) Y = MatMul(P, U) }}",
    "noise, clipped": f"{K} {{ {SOFT} Q = MatMul(P, T) Y = Clip(Q, tiny, one) }}",
    "dropout": f"{K} {{ {SOFT} Y = Dropout(P) }}",
    "sharpened": f"{K} {{ {SOFT} E = Pow(P, sharp) S0 = ReduceSum(E, axis1) Y = Div(E, S0) }}",
    "square root": f"{K} {{ {SOFT} Y = Pow(P, half) }}",
    "at least": f"{K} {{ {SOFT} Y = Max(P, tiny) }}",
    "mean of two": f"{K} {{ {SOFT} {OTHER} A = Add(P, Q) Y = Mul(A, half) }}",
    "mean of two by Mean": f"{K} {{ {SOFT} {OTHER} Y = Mean(P, Q) }}",
    "mean over an axis": f"{K} {{ {SOFT} {OTHER} A = Unsqueeze(P, axis1) D = Unsqueeze(Q, axis1)"
    " G = Concat <axis = 1> (A, D) Y = ReduceMean <keepdims = 0> (G, axis1) }",
    "gated": f"{K} {{ {SOFT} {OTHER} g0 = MatMul(X, w) g = Sigmoid(g0) h = Sub(one, g) A = Mul(g, P) D = Mul(h, Q)"
    " Y = Add(A, D) }",
    "mixture of experts": f"{K} {{ {SOFT} {OTHER} A = Unsqueeze(P, axis1) D = Unsqueeze(Q, axis1)"
    " G = Concat <axis = 1> (A, D) g0 = MatMul(X, P2) g = Softmax <axis = 1> (g0) h = Unsqueeze(g, axis1)"
    " M = MatMul(h, G) Y = Squeeze(M, axis1) }",
    "softmax over channels, flattened": f"{K} {{ R = Reshape(X, square) Z = Conv(R, F) P = Softmax <axis = 1> (Z)"
    " Y = Flatten <axis = 1> (P) }",
    "softmax over channels, squeezed": f"{K} {{ R = Reshape(X, square) Z = Conv(R, F) P = Softmax <axis = 1> (Z)"
    " Y = Squeeze(P, axes23) }",
    "mean of a map": f"{K} {{ R = Reshape(X, square) Z = Conv(R, F) P = Softmax <axis = 1> (Z)"
    " Y = ReduceMean <keepdims = 0> (P, axes23) }",
    "normalized softplus": f"{K} {{ Z = MatMul(X, W) E = Softplus(Z) S0 = ReduceSum(E, axis1) Y = Div(E, S0) }}",
    "normalized squares": f"{K} {{ Z = MatMul(X, W) E = Mul(Z, Z) S0 = ReduceSum(E, axis1) Y = Div(E, S0) }}",
    "one sigmoid": f"{B} {{ Z = MatMul(X, w) Y = Sigmoid(Z) }}",
    "tanh": f"{B} {{ Z = MatMul(X, w) H = Tanh(Z) A = Add(H, one) Y = Mul(A, half) }}",
    "probit": f"{B} {{ Z = MatMul(X, w) H = Erf(Z) A = Add(H, one) Y = Div(A, two) }}",
    "arctangent": f"{B} {{ Z = MatMul(X, w) H = Atan(Z) A = Mul(H, by_pi) Y = Add(A, half) }}",
    "softsign": f"{B} {{ Z = MatMul(X, w) H = Softsign(Z) A = Add(H, one) Y = Mul(A, half) }}",
    "softsign by hand": f"{B} {{ Z = MatMul(X, w) Z0 = Abs(Z) D = Add(one, Z0) H = Div(Z, D) A = Add(H, one)"
    " Y = Mul(A, half) }",
    "noisy or": f"{B} {{ Z = MatMul(X, w) P = Sigmoid(Z) Q = Sub(one, P) R = Mul(Q, Q) Y = Sub(one, R) }}",
    "complementary log-log": f"{B} {{ Z = MatMul(X, w) E = Exp(Z) M = Neg(E) S0 = Exp(M) Y = Sub(one, S0) }}",
    "by a condition": f"{K} {{ {SOFT} {OTHER} g = MatMul(X, w) c = Greater(g, half) Y = Where(c, P, Q) }}",
    "sigmoid by hand": f"{B} {{ Z = MatMul(X, w) M = Neg(Z) E = Exp(M) A = Add(one, E) Y = Reciprocal(A) }}",
    "mean of two sigmoids": f"{B} {{ Z = MatMul(X, w) P = Sigmoid(Z) Q = HardSigmoid(Z) A = Add(P, Q) Y = Mul(A, half) }}",
    "largest of sigmoids": f"{B} {{ Z = MatMul(X, W) P = Sigmoid(Z) Y = ReduceMax(P, axis1) }}",
    "any of two sigmoids": f"{B} {{ Z = MatMul(X, W) P = Sigmoid(Z) Q = Sub(one, P) N = ReduceProd(Q, axis1) Y = Sub(one, N) }}",
    "a bell curve": f"{B} {{ Z = MatMul(X, w) Q = Mul(Z, Z) M = Neg(Q) Y = Exp(M) }}",
    "two columns of a sigmoid": f"{C} {{ Z = MatMul(X, w) P = Sigmoid(Z) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }}",
    "two columns of anything": f"{C} {{ Z = MatMul(X, w) H = Erf(Z) A = Add(H, one) P = Mul(A, half) Q = Sub(one, P)"
    " Y = Concat <axis = 1> (Q, P) }",
}

#: A model whose output is scores.
SCORES = {
    "a last layer": f"{K} {{ Y = MatMul(X, W) }}",
    "log-softmax": f"{K} {{ Z = MatMul(X, W) Y = LogSoftmax <axis = 1> (Z) }}",
    "a layer behind softmax": f"{K} {{ {SOFT} Y = MatMul(P, V3) }}",
    "one logit": f"{B} {{ Y = MatMul(X, w) }}",
    "cosines": f"{K} {{ Z = MatMul(X, W) N = LpNormalization <axis = 1, p = 2> (Z) Y = Mul(N, sharp) }}",
    "tanh": f"{K} {{ Z = MatMul(X, W) Y = Tanh(Z) }}",
    "rectified": f"{K} {{ Z = MatMul(X, W) Y = Relu(Z) }}",
    "a sigmoid, scaled": f"{K} {{ Z = MatMul(X, W) P = Sigmoid(Z) Y = Mul(P, sharp) }}",
}
WEIGHTS["V3"] = drawn(3, 3)


def model(text):
    onx = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    used = {name for node in onx.graph.node for name in node.input}
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in WEIGHTS.items() if n in used)
    return onx


def classes_for(onx):
    k = onx.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    return THREE if k == 3 else TWO


def minus_log(p, y):
    """Return the loss of rows whose probabilities are `p`, normalized where they do not sum to one."""
    p = np.hstack([1 - p, p]) if p.shape[1] == 1 else p / p.sum(axis=1, keepdims=True)
    return -np.log(np.clip(p[np.arange(len(y)), y], 1e-6, 1))


def softmax(s):
    s = np.hstack([np.zeros_like(s), s]) if s.shape[1] == 1 else s
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("text", PROBABILITIES.values(), ids=PROBABILITIES)
def test_the_loss_of_probabilities_is_theirs(text):
    onx = model(text)
    y, p = classes_for(onx), run(onx, {"X": X})[0]
    fitted = OrtGradientClassifier(onx, max_iter=0).fit(X, y)
    assert fitted.output_is_ == "probabilities"
    np.testing.assert_allclose(fitted.losses(X, y), minus_log(p, y), rtol=2e-3, atol=2e-5)
    own = np.hstack([1 - p, p]) if p.shape[1] == 1 else p / p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X), own, rtol=1e-4, atol=1e-6)
    total, _ = run(add_loss_output(onx, "log"), {"X": X, "label": y.reshape(-1, 1)})
    np.testing.assert_allclose(total.item(), minus_log(p, y).mean(), rtol=2e-3)


@pytest.mark.parametrize("text", SCORES.values(), ids=SCORES)
def test_the_loss_of_scores_is_that_of_their_softmax(text):
    onx = model(text)
    y, s = classes_for(onx), run(onx, {"X": X})[0]
    fitted = OrtGradientClassifier(onx, max_iter=0).fit(X, y)
    assert fitted.output_is_ == "scores"
    np.testing.assert_allclose(fitted.losses(X, y), minus_log(softmax(s), y), rtol=1e-3, atol=1e-5)
    total, _ = run(add_loss_output(onx, "log", output_is="scores"), {"X": X, "label": y.reshape(-1, 1)})
    np.testing.assert_allclose(total.item(), minus_log(softmax(s), y).mean(), rtol=1e-3)


def test_probabilities_that_are_an_input_are_seen_in_the_rows(capsys):
    onx = model(f"{K} {{ Y = MatMul(X, S) }}")
    fitted = OrtGradientClassifier(onx, max_iter=0).fit(SHARES, THREE)
    assert fitted.output_is_ == "probabilities"
    np.testing.assert_allclose(fitted.losses(SHARES, THREE), minus_log(SHARES @ WEIGHTS["S"], THREE), rtol=1e-3)
    assert OrtGradientClassifier(onx, max_iter=0, verbose=2).fit(X, THREE).output_is_ == "scores"
    assert capsys.readouterr().out == "The output 'Y' is read as scores, as the rows show.\n"


def test_without_rows_an_open_output_is_probabilities_of_the_loss_of_probabilities():
    onx = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (double[n, 2] X) => (double[n, 2] Y) { Y = Identity(X) }'
    )
    p = np.array([[1, 0], [0.8, 0.2], [0.5, 0.5]])
    feeds = {"X": p, "label": np.array([[0], [1], [1]])}
    found = {said: run(add_loss_output(onx, "log", output_is=said), feeds)[0].item() for said in (None, "scores")}
    assert found[None] == pytest.approx(-np.log([1, 0.2, 0.5]).mean(), abs=1e-5)
    assert found["scores"] == pytest.approx(minus_log(softmax(p), np.array([0, 1, 1])).mean())
    assert run(add_loss_output(onx, "hinge"), feeds)[0].item() == pytest.approx(np.mean([0, 1.6, 1]))


@pytest.mark.parametrize("loss, said", [("log", "logits"), ("squared_error", "scores")])
def test_what_is_said_of_the_output_is_checked(loss, said):
    with pytest.raises(LossError, match=f"output_is must be 'scores' or 'probabilities'.*got '{said}'"):
        add_loss_output(model(SCORES["a last layer"]), loss, output_is=said)


def test_the_user_says_what_the_output_is():
    onx = model(PROBABILITIES["softmax"])
    p = run(onx, {"X": X})[0]
    fitted = OrtGradientClassifier(onx, max_iter=0, output_is="scores").fit(X, THREE)
    assert fitted.output_is_ == "scores"
    np.testing.assert_allclose(fitted.losses(X, THREE), minus_log(softmax(p), THREE), rtol=1e-4)
    with pytest.raises(
        ModelError, match=r"output_is='probabilities', but the output 'Y' has values outside \[0, 1\].* in row"
    ):
        OrtGradientClassifier(model(SCORES["a last layer"]), output_is="probabilities").fit(X, THREE)
    with pytest.raises(ParameterError, match="output_is"):
        OrtGradientClassifier(onx, output_is="logits").fit(X, THREE)
    with pytest.raises(AttributeError, match="no output_is_ before it is fitted"):
        _ = OrtGradientClassifier().output_is_


def test_one_column_between_0_and_1_may_be_either():
    onx = model("(float[n, 4] X) => (float[n, 1] Y) { Y = MatMul(X, s) }")
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array([[0.1], [0.9], [0.3], [0.6]], np.float32), "s"))
    with pytest.warns(UserWarning, match="lies between 0 and 1 on the rows.*read as scores. Set output_is="):
        fitted = OrtGradientClassifier(onx, max_iter=0).fit(SHARES, TWO)
    p = run(onx, {"X": SHARES})[0]
    np.testing.assert_allclose(fitted.losses(SHARES, TWO), minus_log(softmax(p), TWO), rtol=1e-4)
    fitted = OrtGradientClassifier(onx, max_iter=0, output_is="probabilities").fit(SHARES, TWO)
    np.testing.assert_allclose(fitted.losses(SHARES, TWO), minus_log(p, TWO), rtol=1e-3)


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_an_estimator_with_a_decision_function_alone_has_scores():
    model = LinearSVC(multi_class="crammer_singer", C=0.01, random_state=0).fit(SHARES, THREE)
    model.coef_ = np.abs(model.coef_)
    scores = model.decision_function(SHARES)
    assert (scores >= 0).all()
    assert (scores <= 1).all()
    fitted = OrtGradientClassifier(model, max_iter=0).fit(SHARES, THREE)  # filterwarnings = error
    np.testing.assert_allclose(fitted.decision_function(SHARES), scores, atol=1e-6)


ONE_COLUMN = "(float[n, 4] X) => (float[n, 1] Y)"
HUNDRED = "h = Constant <value_float = 100.0> ()"

#: Outputs that are read as scores, and what is said of them.
DOUBTFUL = {
    "percentages": (
        f"{K} {{ Z = MatMul(X, W) P = Softmax <axis = 1> (Z) {HUNDRED} Y = Mul(P, h) }}",
        "The rows of the output 'Y' sum to 100, .*read as scores. Divide it by 100 in the model, or set output_is=",
    ),
    "negative logarithms": (
        f"{K} {{ Z = MatMul(X, W) P = LogSoftmax <axis = 1> (Z) Y = Neg(P) }}",
        r"The rows of exp\(-Y\) sum to one.*the class is that of the largest. Make it a natural logarithm, or set",
    ),
    "logarithms to base 2": (
        f"{K} {{ Z = MatMul(X, W) P = LogSoftmax <axis = 1> (Z) "
        "h = Constant <value_float = 0.6931472> () Y = Div(P, h) }",
        r"The rows of 2 \*\* Y sum to one.*Make it a natural logarithm, or set",
    ),
    "a percentage": (
        f"{ONE_COLUMN} {{ Z = MatMul(X, w) P = Sigmoid(Z) {HUNDRED} Y = Mul(P, h) }}",
        "'Y' is never negative, .* the same for every row. Make it a score or a probability, or set",
    ),
    "a logarithm": (
        f"{ONE_COLUMN} {{ Z = MatMul(X, w) P = Sigmoid(Z) Y = Log(P) }}",
        "'Y' is never positive, .* the same for every row.",
    ),
}


@pytest.mark.parametrize("text, words", DOUBTFUL.values(), ids=DOUBTFUL)
def test_scores_that_may_be_something_else_are_named(text, words):
    onx = model(text)
    y = TWO if text.startswith(ONE_COLUMN) else THREE
    with pytest.warns(UserWarning, match=words):
        OrtGradientClassifier(onx, max_iter=0).fit(X, y)
    OrtGradientClassifier(onx, max_iter=0, output_is="scores").fit(X, y)  # filterwarnings = error


def test_percentages_of_labels_are_named():
    onx = model(f"{K} {{ Z = MatMul(X, W) P = Sigmoid(Z) {HUNDRED} Y = Mul(P, h) }}")
    with pytest.warns(UserWarning, match="'Y' is never negative, .* the same for every row"):
        OrtGradientClassifier(onx, max_iter=0).fit(X, 1 - np.eye(3, dtype=int)[THREE])


def test_scores_of_one_sign_on_these_rows_may_have_another_on_others():
    onx = model(f"{ONE_COLUMN} {{ Z = MatMul(X, w) Q = Tanh(Z) Y = Mul(Q, two) }}")
    rows = np.abs(X) * np.sign(WEIGHTS["w"].T)
    assert OrtGradientClassifier(onx, max_iter=0).fit(rows, TWO).output_is_ == "scores"  # filterwarnings = error


def test_a_softmax_over_one_column_is_refused():
    onx = model(f"{ONE_COLUMN} {{ Z = MatMul(X, w) Y = Softmax <axis = 1> (Z) }}")
    with pytest.raises(
        ModelError, match="'Y' is a Softmax over one column, which is 1 in every row.*End the model in a Sigmoid"
    ):
        OrtGradientClassifier(onx).fit(X, TWO)
    with pytest.raises(ModelError, match="'Y' is a Softmax over one column"):
        add_loss_output(onx, "log")


def test_weights_of_zero_make_scores():
    onx = model("(float[n, 4] X) => (float[n, 1] Y) { Y = MatMul(X, s) }")
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((4, 1), np.float32), "s"))
    assert OrtGradientClassifier(onx, max_iter=0).fit(X, TWO).output_is_ == "scores"


@pytest.mark.parametrize("shape", ["[n, k]", "", "[n, 3]"])
def test_rows_show_the_columns_of_an_output(shape):
    onx = model(
        f"(float[n, 4] X) => (float{shape} Y) {{ Z = MatMul(X, W) P = Softmax <axis = 1> (Z)"
        " I = NonZero(chosen) J = Squeeze(I, axis0) Y = Gather <axis = 1> (P, J) }"
    )
    known = {"chosen": np.ones(3, bool), "axis0": np.array([0])}
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in known.items())
    fitted = OrtGradientClassifier(onx, max_iter=2).fit(X, THREE)
    assert fitted.output_is_ == "probabilities"
    fitted = OrtGradientClassifier(onx, max_iter=0).fit(X, THREE)
    np.testing.assert_allclose(fitted.losses(X, THREE), minus_log(run(onx, {"X": X})[0], THREE), rtol=1e-4)


# -------------------------------------------------------------- agreement


def test_labels_that_are_not_those_of_the_scores():
    onx = model(
        "(float[n, 4] X) => (int64[n] label, float[n, 3] Y) { Y = MatMul(X, W) M = Neg(Y)"
        " label = ArgMax <axis = 1, keepdims = 0> (M) }"
    )
    with pytest.raises(
        ModelError, match=r"predict differs from the original model .* first in row 0: .* instead of .* scores"
    ):
        OrtGradientClassifier(onx).fit(X, THREE)


def test_a_graph_that_is_not_the_estimator(monkeypatch):
    iris, y = load_iris(return_X_y=True)
    fitted = LogisticRegression(max_iter=500).fit(iris, y)
    monkeypatch.setattr("onnxtrain.estimators.source.Source.initial_weights", lambda self, names: CHANGED(self, names))
    AGREED.clear()
    with pytest.raises(
        ConversionError, match=r"predict_proba differs from the original model: \[.*\] instead of \[.* in row"
    ):
        OrtGradientClassifier(fitted, max_iter=1).fit(iris, y)
    with pytest.raises(ConversionError, match="predict differs from the original model: .*LinearRegression.html"):
        OrtGradientRegressor(LinearRegression().fit(iris, y), max_iter=1).fit(iris, y)


def test_an_output_that_is_not_the_softmax_of_its_scores(monkeypatch):
    onx = model(f"{K} {{ Z = MatMul(X, W) E = Exp(Z) R = ReduceSum(E, axis1) D = Add(R, one) Y = Div(E, D) }}")
    monkeypatch.setattr("onnxtrain.losses.ranges._is_guard", lambda value: True)
    with pytest.raises(
        ModelError, match=r"the output 'Y', as the softmax of 'Z', differs from the original model: .*Set output_is"
    ):
        OrtGradientClassifier(onx, max_iter=1).fit(X, THREE)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="lies between 0 and 1 .* is read as scores"):
        OrtGradientClassifier(onx, max_iter=1).fit(X, THREE)


def test_sigmoids_that_all_vanish_in_float32_are_no_difference():
    onx = model(
        f"{K} {{ Q = MatMul(X, W) Z = Add(Q, low) P = Sigmoid(Z) R = ReduceSum(P, axis1) B = Cast <to = 9> (R)"
        " N = Not(B) M = Cast <to = 1> (N) G = Mul(M, three) A = Add(P, M) D = Add(R, G) Y = Div(A, D) }"
    )
    assert run(onx, {"X": X})[0].max() < 0.34
    assert OrtGradientClassifier(onx, max_iter=0).fit(X, THREE).output_is_ == "probabilities"


def CHANGED(source, names):
    from onnxtrain.training.model import initial_weights

    return {name: 1.5 * w for name, w in initial_weights(source.model.onnx, names).items()}


def test_what_was_compared_once_is_not_compared_again(monkeypatch):
    onx = model(PROBABILITIES["noise by MatMul"])
    OrtGradientClassifier(onx, max_iter=1).fit(X, THREE)
    monkeypatch.setattr("onnxtrain.estimators.agreement.answers_of_onnx", lambda *rest: pytest.fail("compared again"))
    OrtGradientClassifier(onx, max_iter=1, learning_rate=0.1).fit(X, THREE)


def test_a_model_of_a_fixed_batch_is_compared_in_its_batches():
    onx = model(f"{K.replace('[n,', '[7,')} {{ {SOFT} Y = Identity(P) }}")
    fitted = OrtGradientClassifier(onx, max_iter=0).fit(X, THREE)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1, rtol=1e-6)


# ---------------------------------------------------------------- mix-ups

LABELLED = (
    "(float[n, 4] X) => (string[n] label, float[n, 3] Y) { Z = MatMul(X, W) Y = Softmax(Z)"
    " I = ArgMax <axis = 1, keepdims = 0> (Y) label = Gather(names, I) }"
)


def labelled():
    onx = model(LABELLED)
    onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array(["a", "b", "c"], object), "names"))
    return onx


@pytest.mark.parametrize("fitted", [False, True])
def test_a_regressor_is_no_classifier(fitted):
    numbers = make_pipeline(StandardScaler(), LinearRegression())
    classes = LogisticRegression()
    if fitted:
        numbers.fit(X, TWO), classes.fit(X, TWO)
    with pytest.raises(
        ParameterError, match="Pipeline is a regressor, which predicts numbers. Train it with OrtGradientReg"
    ):
        OrtGradientClassifier(numbers).fit(X, TWO)
    with pytest.raises(
        ParameterError, match="LogisticRegression is a classifier, which predicts classes.*GradientClassif"
    ):
        OrtGradientRegressor(classes).fit(X, TWO)
    scores = OrtGradientRegressor(classes.fit(X, TWO), output="probabilities", max_iter=1)
    assert scores.fit(X, np.eye(2)[TWO]).predict(X).shape == (len(X), 2)


def test_a_model_of_labels_is_no_regressor():
    with pytest.raises(
        DataError, match="The model is a classifier with the labels 'a', 'b', 'c'. Train it with OrtGrad"
    ):
        OrtGradientRegressor(labelled()).fit(X, TWO)
    with pytest.raises(
        DataError, match="y has 1 column, but the output 'Y' of the model contains the probabilities of 3 classes"
    ):
        OrtGradientRegressor(model(PROBABILITIES["softmax"])).fit(X, TWO)
    brier = OrtGradientRegressor(model(PROBABILITIES["softmax"]), max_iter=2).fit(X, np.eye(3)[THREE])
    assert brier.predict(X).shape == (60, 3)


def test_neighbours_store_targets():
    model = KNeighborsRegressor().fit(X, X[:, 0])
    with pytest.warns(UserWarning, match="KNeighborsRegressor averages the targets of the rows it was fitted on"):
        OrtGradientRegressor(model, max_iter=1).fit(X, X[:, 0])


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_loss_of_scores_leaves_no_probabilities(loss):
    fitted = OrtGradientClassifier(LogisticRegression(), loss=loss, max_iter=2).fit(X, TWO)
    assert not hasattr(fitted, "predict_proba")
    assert fitted.decision_function(X).shape == (60,)


def test_a_model_that_cannot_be_run_as_it_came():
    onx = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (double[n,4] X) => (double[n,1] Y) <double[4,1] W = {1, 2, 3, 4}> { h = Celu(X) Y = MatMul(h, W) }""")
    with pytest.warns(UserWarning, match="not compared with the original, which onnxruntime cannot run: .*Celu"):
        OrtGradientRegressor(onx, max_iter=2).fit(X.astype(np.float64), X.sum(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_model_of_half_precision_inside_may_differ_by_its_rounding(dtype, monkeypatch):
    """Its inputs and outputs are float32, as with keep_io_types=True of onnxruntime's converter."""
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    onx = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,4] X) => (float[n,1] Y) {{ c = Cast <to = {to}> (X) h = MatMul(c, W) Y = Cast <to = 1> (h) }}""")
    w = onnx.helper.make_node("Constant", [], ["W"], value=onnx.numpy_helper.from_array(np.ones((4, 1), dtype)))
    onx.graph.node.insert(0, w)
    answers = agreement.answers_of_onnx
    monkeypatch.setattr(agreement, "answers_of_onnx", lambda *a: {k: 1.01 * y for k, y in answers(*a).items()})
    refused = pytest.raises(ModelError, match="'Y' differs from the original model")
    with refused if dtype == np.float32 else nullcontext():
        OrtGradientRegressor(onx, max_iter=0).fit(X, X[:, 0])


def test_probabilities_that_are_rounded_to_one_are_a_tie():
    onx = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        one_against_the_rest (float[n, 1] X) => (int64[n] label, float[n, 3] p) <float[1, 3] W = {1, 2, -1}, int64[1] one = {1}> {
            z = MatMul(X, W) s = Sigmoid(z) t = ReduceSum(s, one) q = Div(s, t)
            p = Identity(q) label = ArgMax <axis = 1, keepdims = 0> (s) }""")
    X = np.float32([[-1], [1], [2], [40], [50]])
    with pytest.warns(UserWarning, match="in 2 of 5 rows, .* rounded to the same largest value"):
        assert OrtGradientClassifier(onx, max_iter=0).fit(X, [2, 1, 1, 0, 0]).predict(X[1:2]) == [1]


@pytest.mark.parametrize("scores, refused", [("Y = Sigmoid(b)", False), ("Y = Identity(b)", True)])
def test_the_last_digit_of_a_rare_probability_is_no_difference(scores, refused, monkeypatch):
    """Kernels of Sigmoid differ by 6e-8: more than a detector's probabilities where nothing is to be found."""
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]> rare (float[n, 2] X) => (float[n, 1] Y)
        <float[2, 1] W = {{0.1, 0.1}}, float shift = {{{-17 if not refused else 1e-8}}}, float small = {{1e-9}}>
        {{ z = MatMul(X, W) a = Mul(z, small) b = Add(a, shift) {scores} }}""")
    ask = agreement.answers_of_onnx
    monkeypatch.setattr(
        agreement, "answers_of_onnx", lambda *given: {name: y + np.float32(6e-8) for name, y in ask(*given).items()}
    )
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    kind = OrtGradientRegressor if refused else OrtGradientClassifier
    with pytest.raises(ModelError, match="differs from the original model") if refused else nullcontext():
        kind(onx, max_iter=1).fit(rows, np.arange(20) % 2)


@pytest.mark.parametrize(
    "estimator, y, same",
    [
        (AdaBoostClassifier(n_estimators=3, random_state=0), TWO, True),
        (AdaBoostClassifier(n_estimators=3, random_state=0), THREE, False),  # it divides by the number of the others
        (QuadraticDiscriminantAnalysis(), TWO, True),
        (QuadraticDiscriminantAnalysis(), THREE, False),  # scores of a row are moved by one number
        (LinearDiscriminantAnalysis(), THREE, True),
        (LogisticRegression(), THREE, True),
    ],
)
def test_decision_function_is_that_of_the_estimator_or_is_missing(estimator, y, same, tmp_path):
    fitted = estimator.fit(X, y)
    model = OrtGradientClassifier(fitted, max_iter=0)
    for _ in range(2):  # the second time it is known
        model.fit(X, y)
        assert hasattr(model, "decision_function") == same
    save(model, tmp_path / "model.onnx")
    assert hasattr(load(tmp_path / "model.onnx"), "decision_function") == same
    if same:
        np.testing.assert_allclose(model.decision_function(X), fitted.decision_function(X), rtol=1e-4, atol=1e-4)
        return
    with pytest.raises(AttributeError, match=r"or to_sklearn\(\)\.decision_function\(X\)"):
        model.decision_function(X)
    np.testing.assert_allclose(model.to_sklearn().decision_function(X), fitted.decision_function(X), rtol=1e-5)


def test_a_row_on_a_steep_step_of_an_isotonic_regression_is_compared():
    rows = np.arange(1000.0)
    rows[303] = 302.02  # float32 has 302.01999, which is 0.05 % lower on the step from row 302
    assert 303 not in spread(len(rows), 200)
    fitted = IsotonicRegression().fit(rows, rows > 302)
    with pytest.warns(UserWarning, match="float32 is not precise enough"):
        OrtGradientRegressor(fitted, max_iter=0).fit(rows.reshape(-1, 1), rows > 302)


@pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning", "ignore:.*predict differs .* in .* of 569 rows")
def test_probabilities_of_libsvm_that_lose_digits_in_float32():
    rows, y = load_breast_cancer(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), SVC(C=100, kernel="linear", probability=True, random_state=0)).fit(rows, y)
    with pytest.warns(UserWarning, match="float32 is not precise enough.*predict_proba differs .* Set dtype='float64'"):
        OrtGradientClassifier(fitted, max_iter=0).fit(rows, y)
    start = OrtGradientClassifier(fitted, max_iter=0, dtype="float64").fit(rows, y)
    np.testing.assert_allclose(start.predict_proba(rows), fitted.predict_proba(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "estimator, model, table, method",
    [
        (OrtGradientRegressor, SVR(C=1000), load_diabetes, "predict"),
        (OrtGradientClassifier, SVC(C=30), load_breast_cancer, "decision_function"),
    ],
)
def test_trained_support_vector_machines_keep_five_digits_in_float32(estimator, model, table, method):
    rows, y = table(return_X_y=True)
    loss = "hinge" if method == "decision_function" else "epsilon_insensitive"
    start = make_pipeline(StandardScaler(), model).fit(rows, y)
    tuned = estimator(start, loss=loss, learning_rate=1e-5, max_iter=5, random_state=0).fit(rows, y)
    found, expected = getattr(tuned, method)(rows), getattr(tuned.to_sklearn(), method)(rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("off, decide", [(4e-7, False), (6e-7, True), (4e-6, True)])
def test_the_kernels_of_predict_decide_unless_those_of_training_are_very_close(off, decide, monkeypatch):
    """A support vector machine was 3e-6 off in training and 3e-5 in predict, without the warning."""
    run_once, asked = TrainedModel.run_once, []

    def recorded(self, *args, as_predicted=False):
        asked.append(as_predicted)
        return run_once(self, *args, as_predicted=as_predicted)

    monkeypatch.setattr(agreement, "check_values", lambda *args, **how: off)
    monkeypatch.setattr(TrainedModel, "run_once", recorded)
    AGREED.clear()
    X = np.random.default_rng(0).normal(size=(30, 2))
    OrtGradientRegressor(LinearRegression().fit(X, X[:, 0]), max_iter=0).fit(X, X[:, 0])
    assert (True in asked) == decide
