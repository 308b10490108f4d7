"""The link of an output: on small graphs, and on converted scikit-learn classifiers."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from scipy.special import expit, softmax
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Perceptron,
    PoissonRegressor,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale
from sklearn.svm import LinearSVC

from onnxtrain import graph
from onnxtrain.convert.columns import input_types
from onnxtrain.convert.sklearn import to_onnx as repaired_onnx
from onnxtrain.errors import ModelError
from onnxtrain.losses.link import (
    Link,
    Scores,
    is_affine_score,
    n_columns,
    normalized_sigmoids,
    scores_behind,
)
from onnxtrain.losses.outputs import choose_output
from onnxtrain.losses.ranges import range_of
from onnxtrain.rewrite import rewrite_model
from onnxtrain.runtime.session import run as run_onnxruntime


def parse(text, *, imports='"" : 21', before=""):
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\nhead {text}")


K = "(float[n, 3] S) => (float[n, 3] Y)"
ONE = "(float[n, 1] S) => (float[n, 1] Y)"
TWO = "(float[n, 1] S) => (float[n, 2] Y) <float one = {1.0}, float minus_one = {-1.0}, float two = {2.0}>"
GUARD = "<float zero = {0.0}, float one = {1.0}, int64[1] axis = {1}, float minus_one = {-1.0}, float two = {2.0}>"
ROWS = '"" : 21, "ai.onnx.ml" : 3'

ENDINGS = {
    "nothing": (K + "{ Y = Identity(S) }", Link.IDENTITY, "S"),
    "softmax": (K + "{ Y = Softmax(S) }", Link.SOFTMAX, "S"),
    "softmax of axis 1": (K + "{ Y = Softmax <axis = 1> (S) }", Link.SOFTMAX, "S"),
    "softmax of rows": (K + "{ Y = Softmax <axis = 0> (S) }", Link.PROBABILITY, "Y"),
    "softmax, copied": (K + "{ P = Softmax(S) Y = Identity(P) }", Link.SOFTMAX, "S"),
    "softmax, cast": (
        "(float[n, 3] S) => (double[n, 3] Y) { P = Softmax(S) Y = Cast <to = 11> (P) }",
        Link.SOFTMAX,
        "S",
    ),
    "softmax of a cast integer": (
        "(int64[n, 3] S) => (float[n, 3] Y) { F = Cast <to = 1> (S) Y = Softmax(F) }",
        Link.SOFTMAX,
        "F",
    ),
    "sigmoid": (ONE + "{ Y = Sigmoid(S) }", Link.SIGMOID, "S"),
    "sigmoid of rank 1": ("(float[n] S) => (float[n] Y) { Y = Sigmoid(S) }", Link.SIGMOID, "S"),
    "sigmoid, squeezed": (
        "(float[n, 1] S) => (float[n] Y) <int64[1] axis = {1}> { P = Sigmoid(S) Y = Squeeze(P, axis) }",
        Link.SIGMOID,
        "S",
    ),
    "reshaped to other columns": (
        "(float[n, 4] S) => (float[m, 2] Y) <int64[2] to = {-1, 2}> { P = Sigmoid(S) Y = Reshape(P, to) }",
        Link.PROBABILITY,
        "Y",
    ),
    "sigmoids": (K + "{ Y = Sigmoid(S) }", Link.SIGMOIDS, "S"),
    "sigmoids of columns": (
        "(float[n, 1] S, float[n, 1] T) => (float[n, 2] Y)"
        "{ P = Sigmoid(S) Q = Sigmoid(T) Y = Concat <axis = 1> (P, Q) }",
        Link.SIGMOIDS,
        None,
    ),
    "exponential": (ONE + "{ Y = Exp(S) }", Link.EXP, "S"),
    "complement": (TWO + "{ P = Sigmoid(S) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }", Link.SIGMOID, "S"),
    "complement of something": (
        TWO + "{ P = HardSigmoid(S) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }",
        Link.PROBABILITY,
        "Y",
    ),
    "complement to two": (
        TWO + "{ P = Sigmoid(S) Q = Sub(two, P) Y = Concat <axis = 1> (Q, P) }",
        Link.IDENTITY,
        "Y",
    ),
    "complement of columns": (
        "(float[n, 2] S) => (float[n, 4] Y) <float one = {1.0}>"
        "{ P = Sigmoid(S) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }",
        Link.PROBABILITY,
        "Y",
    ),
    "clipped": (
        TWO + "{ C = Clip(S, minus_one, one) A = Add(C, one) P = Div(A, two) Q = Sub(one, P)"
        " Y = Concat <axis = 1> (Q, P) }",
        Link.CLIPPED,
        "S",
    ),
    "clipped elsewhere": (
        TWO + "{ C = Clip(S, minus_one, two) A = Add(C, one) P = Div(A, two) Q = Sub(one, P)"
        " Y = Concat <axis = 1> (Q, P) }",
        Link.PROBABILITY,
        "Y",
    ),
    "opposites": (TWO + "{ M = Neg(S) Y = Concat <axis = 1> (M, S) }", Link.IDENTITY, "S"),
    "opposites, multiplied": (TWO + "{ M = Mul(S, minus_one) Y = Concat <axis = 1> (M, S) }", Link.IDENTITY, "S"),
    "doubles": (TWO + "{ M = Mul(S, two) Y = Concat <axis = 1> (M, S) }", Link.IDENTITY, "Y"),
    "a column of opposites": (
        "(float[n, 1] S) => (float[n, 1] Y) <int64[1] index = {1}>"
        "{ M = Neg(S) B = Concat <axis = 1> (M, S) Y = Gather <axis = 1> (B, index) }",
        Link.IDENTITY,
        "S",
    ),
    "a slice of opposites": (
        "(float[n, 1] S) => (float[n, 1] Y) <int64[1] start = {1}, int64[1] end = {2}, int64[1] axis = {1}>"
        "{ M = Neg(S) B = Concat <axis = 1> (M, S) Y = Slice(B, start, end, axis) }",
        Link.IDENTITY,
        "S",
    ),
    "rows of opposites": (
        "(float[3, 1] S) => (float[1, 2] Y) <int64[1] start = {1}, int64[1] end = {2}>"
        "{ M = Neg(S) B = Concat <axis = 1> (M, S) Y = Slice(B, start, end) }",
        Link.IDENTITY,
        "Y",
    ),
    "a column of pairs": (
        "(float[n, 2] S) => (float[n, 1] Y) <int64[1] index = {1}>"
        "{ B = Concat <axis = 1> (S, S) Y = Gather <axis = 1> (B, index) }",
        Link.IDENTITY,
        "Y",
    ),
    "ml column": (
        "(float[n, 1] S) => (float[n, 1] Y) <int64[1] index = {1}>"
        "{ M = Neg(S) B = Concat <axis = 1> (M, S) Y = ai.onnx.ml.ArrayFeatureExtractor(B, index) }",
        Link.IDENTITY,
        "S",
    ),
    "normalized exponentials": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) Y = Div(E, T) }",
        Link.SOFTMAX,
        "S",
    ),
    "normalized softmax": (
        K + "<int64[1] axis = {1}> { P = Softmax(S) T = ReduceSum(P, axis) Y = Div(P, T) }",
        Link.SOFTMAX,
        "S",
    ),
    "normalized sigmoids": (
        K + GUARD + "{ P = Sigmoid(S) A = Abs(P) T = ReduceSum(A, axis) Z = Equal(T, zero)"
        " D = Where(Z, one, T) Y = Div(P, D) }",
        Link.NORMALIZED_SIGMOID,
        "S",
    ),
    "normalized with a guard in front": (
        K + GUARD + "{ P = Sigmoid(S) T = ReduceL1(P, axis) B = Cast <to = 9> (T) N = Not(B) F = Cast <to = 1> (N)"
        " U = Add(P, F) D = Add(T, F) Y = Div(U, D) }",
        Link.NORMALIZED_SIGMOID,
        "S",
    ),
    "normalized with an epsilon": (
        K + "<float eps = {1e-7}, int64[1] axis = {1}>"
        "{ E = Exp(S) T = ReduceSum(E, axis) D = Add(eps, T) Y = Div(E, D) }",
        Link.SOFTMAX,
        "S",
    ),
    "a softmax with a class of score 0 that is no column": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) D = Add(T, one) Y = Div(E, D) }",
        Link.IDENTITY,
        "Y",
    ),
    "a sum of at least one": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) D = Max(T, one) Y = Div(E, D) }",
        Link.IDENTITY,
        "Y",
    ),
    "a sum clipped": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) D = Clip(T, one) Y = Div(E, D) }",
        Link.IDENTITY,
        "Y",
    ),
    "a small sum replaced": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) Z = Less(T, two) D = Where(Z, two, T) Y = Div(E, D) }",
        Link.IDENTITY,
        "Y",
    ),
    "a shifted numerator": (
        K + GUARD + "{ E = Exp(S) T = ReduceSum(E, axis) U = Add(E, one) Y = Div(U, T) }",
        Link.IDENTITY,
        "Y",
    ),
    "sigmoid by reciprocal": (
        K + GUARD + "{ M = Mul(S, minus_one) E = Exp(M) A = Add(E, one) P = Reciprocal(A)"
        " Y = LpNormalization <axis = 1, p = 1> (P) }",
        Link.NORMALIZED_SIGMOID,
        "S",
    ),
    "sigmoid by division": (
        ONE + GUARD + "{ M = Neg(S) E = Exp(M) A = Add(one, E) Y = Div(one, A) }",
        Link.SIGMOID,
        "S",
    ),
    "not a sigmoid": (
        ONE + GUARD + "{ E = Exp(S) A = Add(one, E) Y = Div(one, A) }",
        Link.PROBABILITY,
        "Y",
    ),
    "a ratio": (ONE + GUARD + "{ A = Abs(S) Y = Div(A, two) }", Link.IDENTITY, "Y"),
    "a quotient": (ONE + "{ A = Abs(S) B = Relu(S) Y = Div(A, B) }", Link.IDENTITY, "Y"),
    "normalized to length 1": (K + "{ Y = LpNormalization <axis = 1, p = 2> (S) }", Link.IDENTITY, "Y"),
    "normalized by rows": (K + "{ P = Sigmoid(S) Y = LpNormalization <axis = 0, p = 1> (P) }", Link.PROBABILITY, "Y"),
    "normalized clipped": (
        K + GUARD + "{ C = Clip(S, minus_one, one) A = Add(C, one) P = Div(A, two)"
        " Y = LpNormalization <axis = 1, p = 1> (P) }",
        Link.CLIPPED,
        "S",
    ),
    "normalized counts": (
        K + GUARD + "{ P = Abs(S) T = ReduceSum(P, axis) Y = Div(P, T) }",
        Link.PROBABILITY,
        "Y",
    ),
    "normalizer": (K + '{ P = Softmax(S) Y = ai.onnx.ml.Normalizer <norm = "L1"> (P) }', Link.SOFTMAX, "S"),
    "normalizer by the largest": (
        K + '{ P = Softmax(S) Y = ai.onnx.ml.Normalizer <norm = "MAX"> (P) }',
        Link.PROBABILITY,
        "Y",
    ),
    "columns of sigmoids": (
        "(float[n, 1] S, float[n, 1] T) => (float[n, 2] Y)"
        "{ P = Sigmoid(S) Q = Sigmoid(T) B = Concat <axis = 1> (P, Q) Y = LpNormalization <axis = 1, p = 1> (B) }",
        Link.NORMALIZED_SIGMOID,
        None,
    ),
    "columns of anything": (
        "(float[n, 1] S, float[n, 1] T) => (float[n, 2] Y)"
        "{ P = Sigmoid(S) Q = Abs(T) B = Concat <axis = 1> (P, Q) Y = LpNormalization <axis = 1, p = 1> (B) }",
        Link.PROBABILITY,
        "Y",
    ),
    "a mean of probabilities": (
        K + GUARD + "{ P = Softmax(S) Q = Sigmoid(S) T = Sum(P, Q) Y = Div(T, two) }",
        Link.PROBABILITY,
        "Y",
    ),
    "a probability and a score": (K + "{ P = Softmax(S) Y = Add(P, S) }", Link.IDENTITY, "Y"),
    "a complement": (
        TWO + "{ P = Relu(S) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }",
        Link.PROBABILITY,
        "Y",
    ),
    "leaves of probabilities": (
        "(int64[n] S) => (float[n, 2] Y) <float[2, 2] leaves = {0.5, 0.5, 1.0, 0.0}> { Y = Gather(leaves, S) }",
        Link.PROBABILITY,
        "Y",
    ),
    "leaves of scores": (
        "(int64[n] S) => (float[n, 2] Y) <float[2, 2] leaves = {0.5, -0.5, 1.0, 0.0}> { Y = Gather(leaves, S) }",
        Link.IDENTITY,
        "Y",
    ),
    "a ratio to another sum": (
        K + GUARD + "{ P = Sigmoid(S) B = Relu(S) T = ReduceSum(B, axis) Y = Div(P, T) }",
        Link.IDENTITY,
        "Y",
    ),
    "a complement to a number that is trained": (
        "(float[n, 1] S, float one) => (float[n, 2] Y){ P = Sigmoid(S) Q = Sub(one, P) Y = Concat <axis = 1> (Q, P) }",
        Link.SIGMOID,
        "S",
    ),
    "nothing but an input": (K + "{ Y = Relu(S) }", Link.IDENTITY, "Y"),
    "a constant": (K + "<float[1, 3] c = {1, 2, 3}> { Y = Add(c, c) }", Link.IDENTITY, "Y"),
    "a forest": (
        "(float[n, 2] S) => (float[n, 2] Y) { L, Y = ai.onnx.ml.TreeEnsembleClassifier"
        '<classlabels_int64s = [0, 1], post_transform = "NONE"> (S) }',
        Link.PROBABILITY,
        "Y",
    ),
    "scores of a linear classifier": (
        "(float[n, 2] S) => (float[n, 2] Y) { L, Y = ai.onnx.ml.LinearClassifier"
        '<classlabels_ints = [0, 1], coefficients = [1.0, 2.0], post_transform = "NONE"> (S) }',
        Link.IDENTITY,
        "Y",
    ),
    "probabilities of a linear classifier": (
        "(float[n, 2] S) => (float[n, 2] Y) { L, Y = ai.onnx.ml.LinearClassifier"
        '<classlabels_ints = [0, 1], coefficients = [1.0, 2.0], post_transform = "LOGISTIC"> (S) }',
        Link.PROBABILITY,
        "Y",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_link(name):
    text, link, behind = ENDINGS[name]
    model = graph.load(parse(text, imports=ROWS))
    found = scores_behind(model.graph.outputs[0], graph.builder(model).op)
    assert found.link is link
    assert behind is None or found.value.name == behind


def test_columns_are_not_concatenated_without_a_builder():
    model = graph.load(parse(ENDINGS["columns of sigmoids"][0]))
    assert scores_behind(model.graph.outputs[0]).link is Link.PROBABILITY


INF = float("inf")
G = (
    "<float one = {1}, float two = {2}, float minus_one = {-1}, int64[1] axis = {1}, float[3] bias = {0, 0, 0},"
    " float[3] b = {1, 0, 0}, float[3, 3] M = {0.5, 0.5, 0, 0, 1, 0, 0, 0, 1}, float[3, 3] C = {0.5, 0, 0, 0.5, 1, 0, 0, 0, 1},"
    " float[3, 3] L = {1, -1, 0, 0, 1, -1, -1, 0, 1}, float[3, 3] A = {1, -1, 0.5, 2, 1, -1, -1, 0, 1}, float[3, 1] w = {1, -2, 1}>"
)

#: nodes behind P = Softmax(S) and S, the range of Y and whether its rows sum to one
RANGES = {
    "nothing": ("Y = Identity(S)", -INF, INF, False),
    "an average of averages": ("Y = MatMul(P, M)", 0, 1, True),
    "an average of columns": ("Y = MatMul(P, C)", 0, 1, False),
    "a sum of another form": ("Y = MatMul(P, A)", -INF, INF, False),
    "Gemm": ("Y = Gemm(P, M, bias)", 0, 1, True),
    "Gemm with a bias": ("Y = Gemm(P, M, b)", -INF, INF, False),
    "Gemm, transposed": ("Y = Gemm <transB = 1> (P, M)", -INF, INF, False),
    "rows turned": ("Y = Transpose(P)", 0, 1, False),
    "a total": ("Y = ReduceSum(P, axis)", 0, 3, False),
    "a quotient by what may be 0": ("Y = Div(one, S)", -INF, INF, False),
    "a reciprocal of what may be 0": ("Y = Reciprocal(S)", -INF, INF, False),
    "an absolute value": ("T = Tanh(S) Y = Abs(T)", 0, 1, False),
    "a clip that does nothing": ("Y = Clip(P, minus_one, two)", 0, 1, True),
    "a clip from below": ("Y = Clip(S, one)", 1, INF, False),
    "an even power": ("Y = Pow(S, two)", 0, INF, False),
    "an odd power": ("Y = Pow(S, one)", -INF, INF, False),
    "a power that is computed": ("Y = Pow(P, S)", -INF, INF, False),
    "a condition": ("c = Greater(S, one) Y = Cast <to = 1> (c)", 0, 1, False),
    "a sum of products": ('Y = Einsum <equation = "nk,nk->n"> (P, S)', -INF, INF, False),
    "averages by Einsum": ('Y = Einsum <equation = "nk,km->nm"> (P, M)', 0, 1, True),
    "an Einsum of one": ('Y = Einsum <equation = "nk->n"> (P)', -INF, INF, False),
    "two sums by Einsum": ('Y = Einsum <equation = "nk,km->n"> (P, M)', -INF, INF, False),
    "scores divided by their sum": ("T = ReduceSum(S, axis) Y = Div(S, T)", -INF, INF, True),
    "an operator without a rule": ("Y = Round(S)", -INF, INF, False),
}


@pytest.mark.parametrize("nodes, low, high, sums", RANGES.values(), ids=RANGES)
def test_ranges(nodes, low, high, sums):
    model = graph.load(parse(f"(float[n, 3] S) => (float Y) {G} {{ P = Softmax(S) {nodes} }}"))
    y = next(v for node in model.graph for v in node.outputs if v.name == "Y")
    found = range_of(y)
    assert (found.low, found.high, found.sums_to_one) == (low, high, sums)


@pytest.mark.parametrize(
    "nodes, expected",
    [
        ("Y = MatMul(S, A)", True),
        ("Z = MatMul(S, A) Y = Add(Z, b)", True),
        ("Z = MatMul(S, A) Y = Cast <to = 11> (Z)", True),
        ("Y = Gemm <transB = 1> (S, A)", True),
        ("Y = MatMul(S, w)", True),
        ("Y = MatMul(S, M)", False),  # probabilities of probabilities
        ("Y = Gemm(S, L, b)", False),  # a linear model of indicators: its rows sum to one
        ("Z = Relu(S) Y = Add(Z, b)", False),
        ("Y = MatMul(M, S)", False),
        ("Y = Relu(S)", False),
    ],
)
def test_a_last_layer_makes_scores(nodes, expected):
    model = graph.load(parse(f"(float[3, 3] S) => (float Y) {G} {{ {nodes} }}"))
    y = next(v for node in model.graph for v in node.outputs if v.name == "Y")
    assert is_affine_score(y) is expected


@pytest.mark.parametrize("shape, expected", [("[n]", 1), ("[n, 3]", 3), ("[n, k]", None), ("[n, 1, 1]", None)])
def test_number_of_columns(shape, expected):
    model = graph.load(parse(f"(float{shape} S) => (float{shape} Y) {{ Y = Relu(S) }}"))
    assert n_columns(model.graph.outputs[0]) == expected


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_normalized_sigmoids_do_not_underflow(dtype):
    model = graph.load(parse(K.replace("float", dtype) + "{ Y = Identity(S) }"))
    s, op = model.graph.inputs[0], graph.builder(model).op
    p = normalized_sigmoids(op, s)
    assert scores_behind(p, op) == Scores(s, Link.NORMALIZED_SIGMOID)
    rows = np.array([[1, 0, -3], [-110, -111, -130], [-800, -217, -218], [800, 0, -800], [-746, -800, -1e5]])
    (found,) = run_onnxruntime(graph.save(model, outputs=[("p", p)]), {"S": rows.astype(dtype.replace("float", "f4"))})
    expected = expit(np.maximum(rows, -700)) + (rows.max(axis=1, keepdims=True) < -745)
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize(
    "nodes",
    [
        "L = LogSoftmax(S) B = Where(C, S, L) Y = Softmax(B)",
        "M = Relu(S) L = Sub(S, M) B = Where(C, S, L) Y = Softmax(B)",
        "Z = ReduceMax(S) D = Less(Z, zero) M = Min(S, zero) L = Sub(M, S) B = Where(D, zero, L) Y = Softmax(B)",
    ],
)
def test_a_softmax_of_another_choice_has_that_as_scores(nodes):
    model = graph.load(parse(f"(float[n, 3] S, bool[n, 1] C) => (float[n, 3] Y) {GUARD} {{ {nodes} }}"))
    found = scores_behind(model.graph.outputs[0])
    assert (found.link, found.value.name) == (Link.SOFTMAX, "B")


# --------------------------------------------------------- scikit-learn

PROBABILITIES = {
    Link.SIGMOID: lambda s: np.hstack([1 - expit(s), expit(s)]),
    Link.SOFTMAX: lambda s: softmax(s, axis=1),
    Link.NORMALIZED_SIGMOID: lambda s: expit(s) / expit(s).sum(axis=1, keepdims=True),
    Link.EXP: np.exp,
    Link.PROBABILITY: lambda s: s,
}

ESTIMATORS = [
    (LogisticRegression(max_iter=500), Link.SIGMOID, Link.SOFTMAX),
    (MLPClassifier(hidden_layer_sizes=(3,), solver="lbfgs", max_iter=20), Link.SIGMOID, Link.SOFTMAX),
    (SGDClassifier(loss="log_loss"), Link.SIGMOID, Link.NORMALIZED_SIGMOID),
    (SGDClassifier(loss="modified_huber"), Link.CLIPPED, Link.CLIPPED),
    (SGDClassifier(), Link.IDENTITY, Link.IDENTITY),
    (Perceptron(), Link.IDENTITY, Link.IDENTITY),
    (LinearSVC(), Link.IDENTITY, Link.IDENTITY),
    (RidgeClassifier(), Link.IDENTITY, Link.IDENTITY),
    (OneVsRestClassifier(LogisticRegression(max_iter=500)), Link.SIGMOID, Link.NORMALIZED_SIGMOID),
    (LinearDiscriminantAnalysis(), Link.SIGMOID, Link.SOFTMAX),
    (QuadraticDiscriminantAnalysis(), Link.SOFTMAX, Link.SOFTMAX),
    (GaussianNB(), Link.EXP, Link.EXP),
    (KNeighborsClassifier(), Link.PROBABILITY, Link.PROBABILITY),
    (BaggingClassifier(LogisticRegression(max_iter=500), n_estimators=2), Link.PROBABILITY, Link.PROBABILITY),
    (AdaBoostClassifier(n_estimators=2), Link.SOFTMAX, Link.SOFTMAX),
    (RandomForestClassifier(n_estimators=2, max_depth=2), Link.PROBABILITY, Link.PROBABILITY),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator, binary, multiclass", ESTIMATORS, ids=lambda x: None if isinstance(x, Link) else type(x).__name__
)
def test_classifiers_of_scikit_learn(estimator, binary, multiclass, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = scale(X[y < n_classes]).astype(np.float32), y[y < n_classes]
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    estimator.fit(X, y)
    model = graph.load(rewrite_model(repaired_onnx(estimator, input_types(X), {"": 21, "ai.onnx.ml": 3})))
    output = choose_output(model)
    found = scores_behind(output, graph.builder(model).op)
    assert found.link is (binary if n_classes == 2 else multiclass)
    if found.link in PROBABILITIES:
        name = output.name
        onx = graph.save(model, outputs=[("scores", found.value), (name, output)])
        scores, probabilities = run_onnxruntime(onx, {"X": X})
        np.testing.assert_allclose(PROBABILITIES[found.link](scores), probabilities, atol=1e-5)


@pytest.mark.parametrize("estimator, link", [(PoissonRegressor(), Link.EXP), (LinearRegression(), Link.IDENTITY)])
def test_regressors_of_scikit_learn(estimator, link):
    X, y = load_iris(return_X_y=True)
    onx = rewrite_model(to_onnx(estimator.fit(X, y), X[:1].astype(np.float32), target_opset=21))
    assert scores_behind(choose_output(graph.load(onx))).link is link


# -------------------------------------------------------------- outputs

SEVERAL = (
    "(float[n, 2] X) => (int64[n, 1] label, float[n, 2] probabilities, float[n, 2] hidden)"
    "{ label = ArgMax <axis = 1> (X) hidden = Relu(X) probabilities = Softmax(X) }"
)
LABELLED = "(float[n, 2] X) => (int64[n, 1] label, float[n, 2] Y) { label = ArgMax <axis = 1> (X) Y = Softmax(X) }"
MANY = f"(float[n, 3] X) => ({', '.join(f'float[n, 3] y{i}' for i in range(30))}) {{ {' '.join(f'y{i} = Neg(X)' for i in range(30))} }}"
INTEGER = "(float[n, 2] X) => (int64[n, 1] label) { label = ArgMax <axis = 1> (X) }"


@pytest.mark.parametrize(
    "text, output, expected",
    [
        (LABELLED, None, "Y"),
        (LABELLED, 1, "Y"),
        (LABELLED, -1, "Y"),
        (LABELLED, np.int64(1), "Y"),
        (LABELLED, "Y", "Y"),
        (SEVERAL, "hidden", "hidden"),
    ],
)
def test_choose_output(text, output, expected):
    assert choose_output(graph.load(parse(text)), output).name == expected


@pytest.mark.parametrize(
    "text, output, words",
    [
        (SEVERAL, None, r"several floating-point outputs: probabilities: FLOAT\[n,2\], hidden: FLOAT\[n,2\]"),
        (SEVERAL, "hiden", "no output 'hiden'. Did you mean 'hidden'"),
        (SEVERAL, 3, "no output 3: the model has 3"),
        (SEVERAL, -4, "no output -4: the model has 3"),
        (SEVERAL, 0, r"label: INT64\[n,1\] is not floating-point"),
        (SEVERAL, True, "a name, a position or None, got True"),
        (SEVERAL, 1.0, "a name, a position or None, got 1.0"),
        (
            MANY,
            None,
            r"y18: FLOAT\[n,3\], y19: FLOAT\[n,3\] and 10 more. Set output to one of them, the name",
        ),
        (INTEGER, None, r"has no floating-point output: label: INT64\[n,1\]"),
    ],
)
def test_choose_output_errors(text, output, words):
    with pytest.raises(ModelError, match=words):
        choose_output(graph.load(parse(text)), output)
