"""Scores from which labels are computed, and scores that ai.onnx.ml writes twice."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import hinge_loss, log_loss
from sklearn.svm import SVC, NuSVC

from onnxtrain import OrtGradientClassifier, add_loss_output, graph
from onnxtrain.errors import ModelError
from onnxtrain.losses.link import Link, scores_behind
from onnxtrain.losses.outputs import choose_output
from onnxtrain.runtime.session import run


def parse(text):
    imports = '"" : 21, "ai.onnx.ml" : 3'
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\nhead {text}")


ONE = "(float[n, 3] X) => (int64[n] label)"
WITH = (
    '<float[3] s = {1, 2, 3}, int64[1] axis = {1}, string[3] c = {"a", "b", "c"}, float zero = {0}, float half = {0.5}>'
)
BEST = "A = ArgMax <axis = 1, keepdims = 0> (S)"

#: model, the scores
LABELS = {
    "the largest": (ONE + WITH + f"{{ S = Mul(X, s) {BEST} label = Identity(A) }}", "S"),
    "of the last axis": (ONE + WITH + "{ S = Mul(X, s) label = ArgMax <axis = -1, keepdims = 0> (S) }", "S"),
    "in a column": (
        "(float[n, 3] X) => (int32[n, 1] label)" + WITH + "{ S = Mul(X, s) A = ArgMax <axis = 1> (S)"
        " label = Cast <to = 6> (A) }",
        "S",
    ),
    "squeezed": (ONE + WITH + "{ S = Mul(X, s) A = ArgMax <axis = 1> (S) label = Squeeze(A, axis) }", "S"),
    "the first of one": (ONE + WITH + "{ S = Mul(X, s) V, A = TopK(S, axis) label = Squeeze(A, axis) }", "S"),
    "probabilities": (ONE + WITH + f"{{ T = Mul(X, s) S = Softmax(T) {BEST} label = Identity(A) }}", "S"),
    "names": ("(float[n, 3] X) => (string[n] label)" + WITH + f"{{ S = Mul(X, s) {BEST} label = Gather(c, A) }}", "S"),
    "names by ai.onnx.ml": (
        "(float[n, 3] X) => (string[1, n] label)" + WITH + f"{{ S = Mul(X, s) {BEST}"
        " label = ai.onnx.ml.ArrayFeatureExtractor(c, A) }",
        "S",
    ),
    "names by an encoder": (
        "(float[n, 3] X) => (string[n] label)" + WITH + f"{{ S = Mul(X, s) {BEST}"
        ' label = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1, 2], values_strings = ["a", "b", "c"]> (A) }',
        "S",
    ),
    "a sign": (
        "(float[n, 1] X) => (int64[n, 1] label)" + WITH + "{ S = Mul(X, half) P = Greater(S, zero)"
        " label = Cast <to = 7> (P) }",
        "S",
    ),
    "a probability of at least a half": (
        "(float[n, 1] X) => (bool[n, 1] label)" + WITH + "{ S = Sigmoid(X) label = GreaterOrEqual(S, half) }",
        "S",
    ),
}

#: model, words of the error
REFUSED = {
    "another limit": (
        "(float[n, 1] X) => (bool[n, 1] label)" + WITH + "{ S = Mul(X, half) label = Greater(S, half) }",
        "not floating-point, and the scores behind its labels",
    ),
    "a limit that is no number": (
        "(float[n, 1] X, float[n, 1] Z) => (bool[n, 1] label) { label = Greater(X, Z) }",
        "not floating-point",
    ),
    "integers compared": (
        "(int64[n, 1] X) => (bool[n, 1] label) <int64 zero = {0}> { label = Greater(X, zero) }",
        "not floating-point",
    ),
    "the best row": (
        "(float[n, 3] X) => (int64[3] label) { label = ArgMax <axis = 0, keepdims = 0> (X) }",
        "not floating-point",
    ),
    "the smallest": (
        ONE + WITH + "{ S = Mul(X, s) V, A = TopK <largest = 0> (S, axis) label = Squeeze(A, axis) }",
        "not floating-point",
    ),
    "the largest value": (
        ONE + WITH + "{ S = Mul(X, s) V, A = TopK(S, axis) W = Cast <to = 7> (V) label = Squeeze(W, axis) }",
        "not floating-point",
    ),
    "a count": (ONE + WITH + f"{{ S = Mul(X, s) {BEST} label = Add(A, A) }}", "not floating-point"),
    "an input": ("(int64[n] X) => (int64[n] label) { label = Identity(X) }", "not floating-point"),
    "an input as a table": (
        "(float[n, 3] X, string[3] t) => (string[n] label)" + WITH + f"{{ S = Mul(X, s) {BEST} label = Gather(t, A) }}",
        "not floating-point",
    ),
    "a scorer of another domain": (
        "(float[n, 3] X) => (int64[n] label, float[n, 2] p) { label, p = ai.onnx.ml.LinearClassifier"
        " <classlabels_ints = [0, 1], coefficients = [1.0, 2.0, 3.0]> (X) }",
        "not floating-point",
    ),
}


@pytest.mark.parametrize("text, expected", LABELS.values(), ids=LABELS)
def test_labels_stand_for_their_scores(text, expected):
    model = graph.load(parse(text))
    assert choose_output(model, labels=True).name == expected
    assert choose_output(model, "label", labels=True).name == expected
    with pytest.raises(ModelError, match="no floating-point output|not floating-point"):
        choose_output(model)


@pytest.mark.parametrize("text, words", REFUSED.values(), ids=REFUSED)
def test_labels_of_unknown_origin_are_refused(text, words):
    with pytest.raises(ModelError, match=words):
        choose_output(graph.load(parse(text)), 0, labels=True)


def test_probabilities_are_chosen_before_labels():
    text = "(float[n, 3] X) => (int64[n] label, float[n, 3] p) { p = Softmax(X) label = ArgMax <axis = 1, keepdims = 0> (X) }"
    model = graph.load(parse(text))
    assert choose_output(model, labels=True).name == "p"


def test_an_output_for_each_column_of_the_probabilities():
    text = """(float[n, 3] X) => (int64[n] label, float[n, 1] a, float[n, 1] b, float[n, 1] c) <int64[3] sizes = {1, 1, 1}>
        { p = Softmax(X) label = ArgMax <axis = 1, keepdims = 0> (p) a, b, c = Split <axis = 1> (p, sizes) }"""
    model = graph.load(parse(text))
    assert choose_output(model, labels=True).name == "p"
    with pytest.raises(ModelError, match="several floating-point outputs"):
        choose_output(model)


def test_the_loss_of_a_model_of_labels():
    onx = parse(LABELS["names"][0])
    rows = {"X": np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)}
    label = np.arange(9).reshape(-1, 1) % 3
    found, scores = run(add_loss_output(onx, "log"), {**rows, "label": label})
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.item(), log_loss(label.ravel(), p), rtol=1e-5)


def test_once_the_probabilities_are_the_probabilities():
    text = "(float[n, 3] X) => (float[n, 3] Y) <float one = {1}> { P = Softmax(X) Y = Mul(P, one) }"
    found = scores_behind(graph.load(parse(text)).graph.outputs[0])
    assert (found.link, found.value.name) == (Link.SOFTMAX, "X")
    scale = "(float[n, 3] X) => (float[n, 3] Y) <float one = {1}> { P = Abs(X) Y = Mul(P, one) }"
    assert scores_behind(graph.load(parse(scale)).graph.outputs[0]).value.name == "Y"


# ------------------------------------------------------- scores of ai.onnx.ml

X, y = load_iris(return_X_y=True)
X, y = X[50:].astype(np.float32), y[50:] - 1

RAW = [LogisticRegression(C=0.1), RidgeClassifier(), SGDClassifier(random_state=0), SVC(), NuSVC(kernel="linear")]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # skl2onnx reads probA_
@pytest.mark.parametrize("loss, metric", [("hinge", hinge_loss), ("log", None)])
@pytest.mark.parametrize("estimator", RAW, ids=str)
def test_two_columns_of_raw_scores_are_one_decision_value(estimator, loss, metric):
    estimator.fit(X, y)
    options = {id(estimator): {"raw_scores": True, "zipmap": False}}
    onx = to_onnx(estimator, X[:1], options=options, target_opset=21)
    found = run(add_loss_output(onx, loss), {"X": X, "label": y.reshape(-1, 1)})[0].item()
    d = estimator.decision_function(X)
    expected = hinge_loss(y, d) if metric else np.logaddexp(0, np.where(y == 1, -d, d)).mean()
    np.testing.assert_allclose(found, expected, rtol=1e-3)


LINEAR = (
    "(float[n, 2] X) => (float[n, 2] Y) {{ L, Y = ai.onnx.ml.LinearClassifier"
    "<classlabels_ints = [0, 1], coefficients = {0}, intercepts = {1}, post_transform = {2}> (X) }}"
)


@pytest.mark.parametrize(
    "coefficients, intercepts, transform, link",
    [
        ([-1.0, -2.0, 1.0, 2.0], [-0.5, 0.5], "NONE", (Link.IDENTITY, 1)),
        ([-1.0, -2.0, 1.0, 2.0], [-0.5, 0.6], "NONE", (Link.IDENTITY, 2)),
        ([-1.0, -2.0, 1.0, 3.0], [-0.5, 0.5], "NONE", (Link.IDENTITY, 2)),
        ([1.0, 2.0], [0.5], "NONE", (Link.IDENTITY, 2)),
        ([-1.0, -2.0, 1.0, 2.0], [-0.5, 0.5], "LOGISTIC", (Link.PROBABILITY, 2)),
    ],
)
def test_scores_of_a_linear_classifier(coefficients, intercepts, transform, link):
    model = graph.load(parse(LINEAR.format(coefficients, intercepts, f'"{transform}"')))
    found = scores_behind(model.graph.outputs[0], graph.builder(model).op)
    assert (found.link, found.value.shape[1]) == link


@pytest.mark.parametrize(
    "nodes, out",
    [
        ("", ""),
        ("classes = Identity(order)", ", int64[3] classes"),
        ("M = ReduceMax <axes = [1], keepdims = 0> (S) sure = Greater(M, zero)", ", bool[n] sure"),
        ("V, best = TopK(S, two)", ", int64[n, 2] best"),
    ],
    ids=["alone", "a list of the classes", "a condition", "the best two"],
)
def test_labels_are_compared_beside_other_outputs(nodes, out):
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        head (float[n, 3] X) => (float[n, 3] S, int64[n] label{out})
        <float[3] s = {{1, 2, 3}}, int64[3] order = {{1, 2, 0}}, int64[1] two = {{2}}, float zero = {{0}}>
        {{ S = Mul(X, s) T = Gather <axis = 1> (S, order) label = ArgMax <axis = 1, keepdims = 0> (T) {nodes} }}"""
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with pytest.raises(ModelError, match="predict differs from the original model in 20 of 20 rows"):
        OrtGradientClassifier(onnx.parser.parse_model(text), max_iter=1).fit(X, np.arange(20) % 3)
