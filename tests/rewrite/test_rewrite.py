"""Each operator of ai.onnx.ml before and after rewriting, on onnxruntime."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper
from scipy.special import expit
from skl2onnx import to_onnx
from sklearn.tree import DecisionTreeClassifier

from onnxtrain import OrtGradientClassifier, trainable_weights
from onnxtrain.errors import RewriteError, WeightError
from onnxtrain.rewrite import REWRITES, rewrite, rewrite_model
from onnxtrain.runtime.session import run
from onnxtrain.testing import check_gradient

X = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
X_MISSING = np.where(np.arange(27).reshape(9, 3) % 4 == 0, np.nan, X).astype(np.float32)
X_INT = np.arange(27).reshape(9, 3)

TWO, THREE = {"classlabels_ints": [0, 1]}, {"classlabels_strings": ["a", "b", "c"]}
COEF = [0.5, -1.0, 2.0]
MIRRORED = {"coefficients": [-c for c in COEF] + COEF, "intercepts": [-0.1, 0.1]}

#: A stump in each of two trees: leaves 1 and 2 below node 0.
SPLITS = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [0, 0, 0, 1, 0, 0],
    "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
    "nodes_hitrates": [1.0] * 6,
    "nodes_missing_value_tracks_true": [0] * 6,
}


def leaves(kind, weights, ids=(0, 0, 0, 0)):
    """Attributes of the leaves; with several targets each leaf comes once for each."""
    repeat = len(weights) // 4
    return {
        **SPLITS,
        f"{kind}_ids": list(ids) if repeat == 1 else list(range(repeat)) * 4,
        f"{kind}_treeids": [t for t in (0, 0, 1, 1) for _ in range(repeat)],
        f"{kind}_nodeids": [n for n in (1, 2, 1, 2) for _ in range(repeat)],
        f"{kind}_weights": list(weights),
    }


def new_trees(targets, n_targets=1):
    """Two trees in the form of ai.onnx.ml 5: three leaves and two."""

    def tensor(name, values, dtype):
        return onnx.numpy_helper.from_array(np.array(values, dtype), name)

    return {
        "n_targets": n_targets,
        "nodes_featureids": [0, 1, 2],
        "nodes_modes": tensor("nodes_modes", [0, 0, 0], np.uint8),
        "nodes_splits": tensor("nodes_splits", [0.1, -0.2, 0.3], np.float32),
        "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 4],
        "nodes_falseleafs": [0, 1, 1],
        "tree_roots": [0, 2],
        "leaf_targetids": targets,
        "leaf_weights": tensor("leaf_weights", [0.5, -1.0, 2.0, 0.25, 3.0], np.float32),
    }


SIGNED, PARTS = [0.5, -1.0, 2.0, 0.25], [0.1, 0.4, 0.3, 0.05]
VECTORS = {"support_vectors": [0.1, 0.2, -0.3, 0.5, -0.4, 0.2, 0.9, 0.3, 0.1], "coefficients": [0.5, -1.0, 0.25]}
SVC = {
    "support_vectors": [*VECTORS["support_vectors"], 0.3, 0.3, 0.8],
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 0.0],
}
SVC_TWO = {**SVC, **TWO, "coefficients": [0.5, 0.2, -0.3, -0.4], "vectors_per_class": [2, 2], "rho": [0.05]}
SVC_THREE = {
    **SVC,
    **THREE,
    "coefficients": [0.5, 0.2, -0.3, -0.4, 0.1, 0.9, -0.2, 0.3],
    "vectors_per_class": [1, 1, 2],
    "rho": [0.05, -0.1, 0.02],
}


def svr(kernel, params=(0.5, 0.1, 3.0), **more):
    return {**VECTORS, "kernel_type": kernel, "kernel_params": list(params), "n_supports": 3, "rho": [0.3], **more}


#: (operator, attributes, X, number of outputs)
CASES = {
    "linear": ("LinearRegressor", {"coefficients": COEF, "intercepts": [0.7]}, X, 1),
    "linear, no intercept": ("LinearRegressor", {"coefficients": COEF}, X, 1),
    "linear, two": (
        "LinearRegressor",
        {"coefficients": COEF + COEF[::-1], "intercepts": [0.7, 0.1], "targets": 2},
        X,
        1,
    ),
    "logistic": ("LinearClassifier", {**MIRRORED, **TWO, "post_transform": "LOGISTIC"}, X, 2),
    "logistic, labels 3 and 5": (
        "LinearClassifier",
        {**MIRRORED, "classlabels_ints": [3, 5], "post_transform": "LOGISTIC"},
        X,
        2,
    ),
    "logistic, one row": (
        "LinearClassifier",
        {"coefficients": COEF, "intercepts": [0.3], **TWO, "post_transform": "LOGISTIC"},
        X,
        2,
    ),
    "scores of two, integers": ("LinearClassifier", {**MIRRORED, **TWO}, X_INT, 2),
    "scores of two": ("LinearClassifier", {**MIRRORED, **TWO}, X, 2),
    "scores of two, one row": ("LinearClassifier", {"coefficients": COEF, "intercepts": [0.3], **TWO}, X, 2),
    "softmax of two": ("LinearClassifier", {**MIRRORED, **TWO, "post_transform": "SOFTMAX"}, X, 2),
    "two that are not mirrored": (
        "LinearClassifier",
        {"coefficients": COEF + COEF[::-1], "intercepts": [0.1, 0.2], **TWO},
        X,
        2,
    ),
    "softmax": (
        "LinearClassifier",
        {
            "coefficients": COEF + COEF[::-1] + [0.1, 0.2, 0.3],
            "intercepts": [0.7, 0.1, 0.2],
            **THREE,
            "post_transform": "SOFTMAX",
        },
        X,
        2,
    ),
    "one against rest": (
        "LinearClassifier",
        {
            "coefficients": COEF + COEF[::-1] + [0.1, 0.2, 0.3],
            **THREE,
            "intercepts": [0.0, 0.0, 0.0],
            "post_transform": "LOGISTIC",
        },
        X,
        2,
    ),
    "scaler": ("Scaler", {"offset": COEF, "scale": [2.0, 3.0, 0.5]}, X, 1),
    "scaler, scale": ("Scaler", {"offset": [0.0] * 3, "scale": [2.0, 3.0, 0.5]}, X, 1),
    "scaler, offset": ("Scaler", {"offset": COEF, "scale": [1.0] * 3}, X, 1),
    "scaler of integers": ("Scaler", {"offset": COEF, "scale": [2.0, 3.0, 0.5]}, X_INT, 1),
    "l1": ("Normalizer", {"norm": "L1"}, X, 1),
    "l2": ("Normalizer", {"norm": "L2"}, X, 1),
    "max": ("Normalizer", {"norm": "MAX"}, np.abs(X), 1),
    "l1 of zeros": ("Normalizer", {"norm": "L1"}, X * 0, 1),
    "imputer": ("Imputer", {"imputed_value_floats": COEF, "replaced_value_float": np.nan}, X_MISSING, 1),
    "imputer of zeros": ("Imputer", {"imputed_value_floats": [7.0], "replaced_value_float": 0.0}, np.maximum(X, 0), 1),
    "imputer of integers": ("Imputer", {"imputed_value_int64s": [7], "replaced_value_int64": 3}, X_INT, 1),
    "binarizer": ("Binarizer", {"threshold": 0.2}, X, 1),
    "trees": ("TreeEnsembleRegressor", {**leaves("target", SIGNED), "n_targets": 1, "base_values": [0.5]}, X, 1),
    "trees, mean": (
        "TreeEnsembleRegressor",
        {**leaves("target", SIGNED), "n_targets": 1, "aggregate_function": "AVERAGE"},
        X,
        1,
    ),
    "trees, smallest": (
        "TreeEnsembleRegressor",
        {**leaves("target", SIGNED), "n_targets": 1, "aggregate_function": "MIN"},
        X,
        1,
    ),
    "trees, two targets": ("TreeEnsembleRegressor", {**leaves("target", SIGNED + PARTS), "n_targets": 2}, X, 1),
    "trees, a target each": (
        "TreeEnsembleRegressor",
        {**leaves("target", SIGNED, ids=(0, 0, 1, 1)), "n_targets": 2},
        X,
        1,
    ),
    "trees, a target each, mean": (
        "TreeEnsembleRegressor",
        {**leaves("target", SIGNED, ids=(0, 0, 1, 1)), "n_targets": 2, "aggregate_function": "AVERAGE"},
        X,
        1,
    ),
    "trees, a tree for two targets": (
        "TreeEnsembleRegressor",
        {**leaves("target", SIGNED, ids=(0, 1, 1, 1)), "n_targets": 2},
        X,
        1,
    ),
    "trees of ai.onnx.ml 5": ("TreeEnsemble", new_trees([0, 0, 0, 0, 0]), X, 1),
    "trees of ai.onnx.ml 5, two targets, mean": (
        "TreeEnsemble",
        {**new_trees([0, 0, 0, 1, 1], n_targets=2), "aggregate_function": 0},
        X,
        1,
    ),
    "trees of ai.onnx.ml 5, mixed targets": (
        "TreeEnsemble",
        new_trees([0, 1, 0, 1, 1], n_targets=2),
        X,
        1,
    ),
    "forest of two classes": ("TreeEnsembleClassifier", {**leaves("class", PARTS), "classlabels_int64s": [0, 1]}, X, 2),
    "boosting of two classes": (
        "TreeEnsembleClassifier",
        {**leaves("class", SIGNED), "classlabels_int64s": [0, 1], "post_transform": "LOGISTIC", "base_values": [0.2]},
        X,
        2,
    ),
    "boosting of two opposite columns": (
        "TreeEnsembleClassifier",
        {
            **leaves("class", [w for s in SIGNED for w in (-s, s)]),
            "classlabels_int64s": [0, 1],
            "post_transform": "LOGISTIC",
        },
        X,
        2,
    ),
    "signed scores of two classes": (
        "TreeEnsembleClassifier",
        {**leaves("class", SIGNED), "classlabels_int64s": [0, 1]},
        X,
        2,
    ),
    "forest of three classes": (
        "TreeEnsembleClassifier",
        {**leaves("class", SIGNED + PARTS + [0.0, 1.0, 2.0, 3.0]), **THREE},
        X,
        2,
    ),
    "boosting of three classes": (
        "TreeEnsembleClassifier",
        {**leaves("class", SIGNED, ids=(0, 0, 2, 2)), **THREE, "post_transform": "SOFTMAX", "base_values": COEF},
        X,
        2,
    ),
    "svr linear": ("SVMRegressor", svr("LINEAR"), X, 1),
    "svr poly": ("SVMRegressor", svr("POLY"), X, 1),
    "svr rbf": ("SVMRegressor", svr("RBF"), X, 1),
    "svr sigmoid": ("SVMRegressor", svr("SIGMOID"), X, 1),
    "svr one class": ("SVMRegressor", svr("RBF", one_class=1), X, 1),
    "svr without vectors": (
        "SVMRegressor",
        {"coefficients": COEF, "rho": [0.3], "kernel_type": "LINEAR", "kernel_params": [0.0] * 3},
        X,
        1,
    ),
    "svc of two": ("SVMClassifier", SVC_TWO, X, 2),
    "svc of three": ("SVMClassifier", SVC_THREE, X, 2),
    "svc without vectors": (
        "SVMClassifier",
        {
            **THREE,
            "coefficients": [0.1 * i for i in range(9)],
            "rho": [0.1, 0.2, 0.3],
            "kernel_type": "LINEAR",
            "kernel_params": [0.0] * 3,
        },
        X,
        2,
    ),
}


def model(op_type, attributes, x=X, n_outputs=1, version=3, inputs=("X",)):
    """A model of one node."""
    names = ["Y"] if n_outputs == 1 else ["label", "scores"]
    node = helper.make_node(op_type, list(inputs), names, domain="ai.onnx.ml", name="it", **attributes)
    kind = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}[np.asarray(x).dtype.kind]
    label = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
    types = [TensorProto.FLOAT] if n_outputs == 1 else [label, TensorProto.FLOAT]
    if op_type == "Imputer" and kind == TensorProto.INT64:
        types = [kind]
    infos = [
        helper.make_tensor_value_info(n, t, None if n_outputs == 1 else ["N"] if n == "label" else ["N", None])
        for n, t in zip(names, types, strict=True)
    ]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(i, kind, ["N", np.shape(x)[-1]]) for i in inputs], infos
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


#: What onnxruntime 1.19 does not run, or not as ONNX defines it.
NOT_BY_1_19 = {
    "logistic, one row": "its LinearClassifier of one row of coefficients gives no probabilities",
    **{name: "it has no TreeEnsemble of ai.onnx.ml 5" for name in CASES if name.startswith("trees of ai.onnx.ml 5")},
}


@pytest.mark.parametrize("name", CASES)
def test_same_results(name):
    if name in NOT_BY_1_19 and onnxruntime.__version__.startswith("1.19."):
        pytest.skip(f"onnxruntime 1.19: {NOT_BY_1_19[name]}")
    op_type, attributes, x, n_outputs = CASES[name]
    onx = model(op_type, attributes, x, n_outputs, version=5 if op_type == "TreeEnsemble" else 3)
    before = onx.SerializeToString()
    rewritten = rewrite_model(onx)
    assert onx.SerializeToString() == before
    for expected, found in zip(run(onx, {"X": x}), run(rewritten, {"X": x}), strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    assert {n.op_type for n in rewritten.graph.node if n.domain} <= {"TreeEnsembleRegressor", "TreeEnsemble", "Imputer"}


def test_no_operator_is_forgotten():
    tested = {f"ai.onnx.ml:{op_type}" for op_type, *_ in CASES.values()}
    others = {"ai.onnx.ml:ArrayFeatureExtractor", "ai.onnx.ml:FeatureVectorizer"}
    mine = {name for name in REWRITES if name.startswith("ai.onnx.ml:")}
    assert mine == tested | others


#: Support vector machines with probabilities.
WITH_PROBABILITIES = {
    "two": {**SVC_TWO, "prob_a": [-1.5], "prob_b": [0.2]},
    "two, softmax": {**SVC_TWO, "prob_a": [-1.5], "prob_b": [0.2], "post_transform": "SOFTMAX"},
    "doubtful": {**SVC_THREE, "prob_a": [-1.0, -1.0, 1.0], "prob_b": [0.2, -0.1, 0.0]},
    "certain": {**SVC_THREE, "prob_a": [-30.0, -30.0, 30.0], "prob_b": [0.2, -0.1, 0.0]},
}


@pytest.mark.parametrize("name", ["two", "doubtful", "certain"])
def test_probabilities_of_support_vectors_are_those_of_libsvm(name):
    onx = model("SVMClassifier", WITH_PROBABILITIES[name], n_outputs=2)
    _, p = run(rewrite_model(onx), {"X": X})
    np.testing.assert_allclose(p, run(onx, {"X": X})[1], atol=2e-6)


@pytest.mark.parametrize("name", WITH_PROBABILITIES)
def test_probabilities_of_support_vectors_are_close_to_the_minimum(name):
    attributes = WITH_PROBABILITIES[name]
    _, p = run(rewrite_model(model("SVMClassifier", attributes, n_outputs=2)), {"X": X})
    plain = {key: value for key, value in attributes.items() if not key.startswith(("prob", "post"))}
    z = run(rewrite_model(model("SVMClassifier", plain, n_outputs=2)), {"X": X})[1].astype(float)
    k = p.shape[1]
    z = z[:, 1:] if k == 2 else z  # the scores of two classes mirror each other
    pairs = np.clip(expit(-(z * attributes["prob_a"] + attributes["prob_b"])), 1e-7, 1 - 1e-7)
    for probabilities, of_pairs in zip(p, pairs, strict=True):
        r = np.zeros((k, k))
        for (i, j), each in zip(combinations(range(k), 2), of_pairs, strict=True):
            r[i, j], r[j, i] = each, 1 - each
        q = np.diag((r**2).sum(axis=0)) - r * r.T
        slope = q @ probabilities
        assert np.abs(slope - probabilities @ slope).max() < 0.005 / k + 1e-6


def test_probabilities_of_support_vectors_have_the_derivative_of_the_iteration():
    attributes = WITH_PROBABILITIES["doubtful"]
    onx = rewrite_model(model("SVMClassifier", attributes, n_outputs=2))
    del onx.graph.output[0]  # the labels have no derivative
    assert {"prob_a", "prob_b", "dual_coef"} <= set(check_gradient(onx, {"X": X}))


def test_leaf_values_in_double():
    attributes = leaves("target", SIGNED)
    for name in ("nodes_values", "nodes_hitrates", "target_weights"):
        attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(np.array(attributes.pop(name)), name)
    onx = model("TreeEnsembleRegressor", {**attributes, "n_targets": 1})
    onx.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    x = X.astype(np.float64)
    np.testing.assert_allclose(run(rewrite_model(onx), {"X": x})[0], run(onx, {"X": x})[0], rtol=1e-6)


def test_columns_are_chosen_and_put_together():
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["X", "columns"], ["A2"], domain="ai.onnx.ml"),
        helper.make_node("ArrayFeatureExtractor", ["A2", "order"], ["A"], domain="ai.onnx.ml"),
        helper.make_node("ArrayFeatureExtractor", ["classes", "row"], ["B"], domain="ai.onnx.ml"),
        helper.make_node("Squeeze", ["row"], ["index"]),
        helper.make_node("ArrayFeatureExtractor", ["classes", "index"], ["C"], domain="ai.onnx.ml"),
        helper.make_node("FeatureVectorizer", ["A", "X"], ["Y"], domain="ai.onnx.ml", inputdimensions=[2, 3]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("row", TensorProto.INT64, ["M", 1]),
        ],
        [
            helper.make_tensor_value_info("Y", TensorProto.FLOAT, None),
            *(helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in "BC"),
        ],
        [
            onnx.numpy_helper.from_array(np.array([[2, 0]]), "columns"),
            onnx.numpy_helper.from_array(np.array([1, 0]), "order"),
            onnx.numpy_helper.from_array(np.array([7, 8]), "classes"),
        ],
    )
    onx = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10
    )
    feeds = {"X": X, "row": np.array([[1], [0]])}
    for expected, found in zip(run(onx, feeds), run(rewrite_model(onx), feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "op_type, attributes, words",
    [
        (
            "LinearRegressor",
            {"coefficients": COEF, "post_transform": "PROBIT"},
            "post_transform='PROBIT'.*NONE, LOGISTIC",
        ),
        (
            "LinearClassifier",
            {"coefficients": COEF, "intercepts": [0.1], **TWO, "post_transform": "PROBIT"},
            "one score",
        ),
        ("TreeEnsemble", {**new_trees([0] * 5), "post_transform": 1}, "1 is SOFTMAX in the specification"),
        ("Normalizer", {"norm": "L7"}, "norm='L7'; known: MAX, L1, L2"),
        ("SVMRegressor", svr("RBG"), "unknown kernel 'RBG'. Did you mean 'RBF'"),
    ],
)
def test_what_has_no_rewriting_is_refused(op_type, attributes, words):
    with pytest.raises(RewriteError, match=words):
        rewrite_model(model(op_type, attributes, n_outputs=1 + op_type.endswith("Classifier"), version=5))


def test_too_many_leaves(monkeypatch):
    monkeypatch.setattr("onnxtrain.rewrite.trees._MOST_LEAVES", 3)
    with pytest.raises(RewriteError, match="has 4 leaves, but the maximum is 2"):
        rewrite_model(model("TreeEnsembleRegressor", {**leaves("target", SIGNED), "n_targets": 1}))


def test_a_normalizer_of_probabilities_is_dropped():
    def chain(first, norm):
        nodes = [*first, helper.make_node("Normalizer", ["P"], ["Y"], domain="ai.onnx.ml", norm=norm)]
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", k]) for n, k in (("X", 3), ("Y", None))]
        graph = helper.make_graph(
            nodes,
            "g",
            infos[:1],
            infos[1:],
            [
                onnx.numpy_helper.from_array(np.ones((3, 1), np.float32), "w"),
                onnx.numpy_helper.from_array(np.float32(1), "one"),
                onnx.numpy_helper.from_array(np.float32(2), "two"),
            ],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
        onx = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        np.testing.assert_allclose(run(rewrite_model(onx), {"X": X})[0], run(onx, {"X": X})[0], rtol=1e-5)
        return [n.op_type for n in rewrite_model(onx).graph.node]

    node = helper.make_node
    softmax = [node("Softmax", ["X"], ["P"], axis=1)]
    across = [node("Softmax", ["X"], ["P"], axis=0)]
    sigmoid = [node("MatMul", ["X", "w"], ["z"]), node("Sigmoid", ["z"], ["p"]), node("Sub", ["one", "p"], ["q"])]
    assert chain(softmax, "L1") == ["Softmax"]
    assert chain([*sigmoid, node("Concat", ["q", "p"], ["P"], axis=1)], "L1")[-1] == "Concat"
    assert len(chain([*sigmoid, node("Concat", ["p", "p"], ["P"], axis=1)], "L1")) > 4
    of_two = [*sigmoid[:2], node("Sub", ["two", "p"], ["q"])]
    assert len(chain([*of_two, node("Concat", ["q", "p"], ["P"], axis=1)], "L1")) > 4
    assert len(chain([*sigmoid, node("Concat", ["q", "p", "p"], ["P"], axis=1)], "L1")) > 5
    assert len(chain([node("Concat", ["X", "X"], ["P"], axis=1)], "L1")) > 2
    assert len(chain(across, "L1")) > 2
    assert len(chain(softmax, "L2")) > 2
    assert len(chain([node("Neg", ["X"], ["P"])], "L1")) > 2


def scan(body, n_scans=1, tail=()):
    """A model that scans the rows of X with the vectors V as state."""
    info = helper.make_tensor_value_info
    inner = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in body],
        "body",
        [info("v", TensorProto.FLOAT, [4, 3]), *(info(f"x{i}", TensorProto.FLOAT, [3]) for i in range(n_scans))],
        [info("v_out", TensorProto.FLOAT, [4, 3]), info("d", TensorProto.FLOAT, [4])],
    )
    nodes = [
        helper.make_node("Scan", ["V", *["X"] * n_scans], ["passed", "D"], num_scan_inputs=n_scans, body=inner),
        *(helper.make_node(op_type, x.split(), [y]) for op_type, x, y in tail),
    ]
    V = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    last = nodes[-1].output[-1] if tail else "D"
    outputs = [info(last, TensorProto.FLOAT, None)]
    initializers = [onnx.numpy_helper.from_array(V, "V"), onnx.numpy_helper.from_array(np.array([1]), "axes")]
    graph = helper.make_graph(nodes, "g", [info("X", TensorProto.FLOAT, ["N", 3])], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


DISTANCES = [
    ("Identity", ["v"], ["v_out"]),
    ("Sub", ["v", "x0"], ["difference"]),
    ("ReduceSumSquare", ["difference", "axes"], ["d"], {"keepdims": 0}),
]


#: Sixty residual blocks: 2^60 ways lead through them.
RESIDUAL = [node for i in range(60) for node in (("Tanh", f"z{i}", f"h{i}"), ("Add", f"h{i} z{i}", f"z{i + 1}"))]


@pytest.mark.parametrize(
    "onx, rewritten",
    [
        (scan(DISTANCES), "MatMul"),
        (scan(DISTANCES, tail=[("Sqrt", "D", "Y")]), "Sub"),
        (scan(DISTANCES, tail=[("Transpose", "D", "T"), ("Sqrt", "T", "Y")]), "Sub"),
        (scan(DISTANCES, tail=[("Neg", "D", "Y")]), "MatMul"),
        (scan(DISTANCES, tail=[("Neg", "D", "z0"), *RESIDUAL, ("Neg", "z60", "Y")]), "MatMul"),
        (scan(DISTANCES, tail=[("Neg", "passed", "Y")]), "Scan"),
        (scan([*DISTANCES[:2], ("ReduceL1", ["difference", "axes"], ["d"], {"keepdims": 0})]), "Scan"),
        (scan(DISTANCES, n_scans=2), "Scan"),
    ],
)
def test_distances(onx, rewritten):
    found = rewrite_model(onx)
    assert rewritten in {n.op_type for n in found.graph.node}
    np.testing.assert_allclose(run(found, {"X": X})[0], run(onx, {"X": X})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, n_nodes", [((3,), 3), ((3, 2), 1)])
def test_a_product_with_a_vector_has_a_column(shape, n_nodes):
    w = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("X", ["N", 3]), ("Y", None))]
    nodes = [helper.make_node("MatMul", ["X", "w"], ["Y"])]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [onnx.numpy_helper.from_array(w, "w")])
    onx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = rewrite_model(onx)
    assert len(found.graph.node) == n_nodes
    np.testing.assert_allclose(run(found, {"X": X})[0], X @ w, rtol=1e-5)


#: How a tensor (9, 3) is split, which element is taken, and whether it becomes a slice.
SPLIT = {
    "each alone": ("SplitToSequence <axis = 1> (X)", 2, True),
    "each alone, without its axis": ("SplitToSequence <axis = -1, keepdims = 0> (X)", 1, True),
    "in equal parts": ("SplitToSequence <axis = -1> (X, two)", 0, True),
    "the last part": ("SplitToSequence <axis = 1> (X, two)", 1, True),
    "of given sizes": ("SplitToSequence (X, sizes)", 1, True),
    "from the end": ("SplitToSequence <axis = 1> (X)", -1, False),
    "of no split": ("SequenceConstruct (X, X)", 1, False),
}


@pytest.mark.parametrize("sequence, index, rewritten", SPLIT.values(), ids=SPLIT)
def test_an_element_of_a_split(sequence, index, rewritten):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[9, 3] X) => (float Y)
        <int64 two = {{2}}, int64[2] sizes = {{4, 5}}, int64 i = {{{index}}}> {{
            S = {sequence}
            Y = SequenceAt(S, i)
        }}"""
    )
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = rewrite_model(onx)
    np.testing.assert_array_equal(run(found, {"X": X})[0], run(onx, {"X": X})[0])
    assert ("Slice" in {node.op_type for node in found.graph.node}) == rewritten


def test_elements_of_a_split_have_their_own_lengths():
    """onnxruntime takes lengths of one name for equal, and would write one element into the memory of the other."""
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[n, 9] X) => (float[n, k] P, float[n, l] Q)
        <int64[2] sizes = {4, 5}, int64 zero = {0}, int64 one = {1}> {
            S = SplitToSequence <axis = 1> (X, sizes)
            A = SequenceAt(S, zero) P = Exp(A) B = SequenceAt(S, one) Q = Exp(B) }"""
    )
    found = rewrite_model(onx)
    shapes = {v.name: v.type.tensor_type.shape.dim for v in found.graph.value_info}
    parts = [shapes[node.output[0]] for node in found.graph.node if node.op_type == "Slice"]
    first, second = ((part[1].dim_value, part[1].dim_param) for part in parts)
    assert first != second


#: Sequences of A and B that nodes put together, what is read from them, and whether no sequence is left.
KNOWN = {
    "the first": ("S = SequenceConstruct(A, B) Y = SequenceAt(S, zero)", True),
    "the last": ("S = SequenceConstruct(A, B) Y = SequenceAt(S, last)", True),
    "inserted": ("E = SequenceEmpty() P = SequenceInsert(E, A) S = SequenceInsert(P, B) Y = SequenceAt(S, one)", True),
    "in front": ("P = SequenceConstruct(A) S = SequenceInsert(P, B, zero) Y = SequenceAt(S, zero)", True),
    "before the last": ("P = SequenceConstruct(A, X) S = SequenceInsert(P, B, last) Y = SequenceAt(S, one)", True),
    "somewhere": ("P = SequenceConstruct(A) S = SequenceInsert(P, B, i) Y = SequenceAt(S, zero)", False),
    "the i-th": ("S = SequenceConstruct(A, B) Y = SequenceAt(S, i)", False),
    "joined": ("S = SequenceConstruct(A, B) Y = ConcatFromSequence <axis = 1> (S)", True),
    "joined from the end": ("S = SequenceConstruct(A, B) Y = ConcatFromSequence <axis = -1> (S)", True),
    "stacked": ("S = SequenceConstruct(A, B, A) Y = ConcatFromSequence <axis = 1, new_axis = 1> (S)", True),
    "stacked at the end": ("S = SequenceConstruct(A, B) Y = ConcatFromSequence <axis = -1, new_axis = 1> (S)", True),
    "an optional": ("O = Optional(A) Y = OptionalGetElement(O)", True),
    "an optional that is a tensor": ("Y = OptionalGetElement(B)", True),
}


@pytest.mark.parametrize("nodes, rewritten", KNOWN.values(), ids=KNOWN)
def test_elements_of_a_known_sequence(nodes, rewritten):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[9, 3] X) => (float Y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 last = {{-1}}, float[3, 3] W = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{
            A = MatMul(X, W) B = Tanh(X) n = Size(X) i = Mod(n, one) {nodes} }}"""
    )
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = rewrite_model(onx)
    np.testing.assert_array_equal(run(found, {"X": X})[0], run(onx, {"X": X})[0])
    read = {node.op_type for node in onx.graph.node[-1:]}
    assert read.isdisjoint(node.op_type for node in found.graph.node) == rewritten
    if rewritten:
        check_gradient(found, {"X": X.astype(np.float32)})


#: One tensor of a turn of a Loop, and how they are joined
JOINED = {
    "rows": ("row = Unsqueeze(x, zero)", "ConcatFromSequence <axis = 0> (S)", True),
    "columns": ("row = Unsqueeze(x, one)", "ConcatFromSequence <axis = -1> (S)", True),
    "two rows": ("r = Unsqueeze(x, zero) row = Concat <axis = 0> (r, r)", "ConcatFromSequence <axis = 0> (S)", True),
    "a new axis": ("row = Identity(x)", "ConcatFromSequence <axis = 1, new_axis = 1> (S)", True),
    "the last one too": ("row = Unsqueeze(x, zero)", "ConcatFromSequence <axis = 0> (S) L = SequenceLength(S)", False),
    "of any lengths": (
        "n = Add(i, one) k = Cast <to = 7> (n) row = Slice(w, zero, k)",
        "ConcatFromSequence <axis = 0> (S)",
        False,
    ),
}


@pytest.mark.parametrize("turn, join, rewritten", JOINED.values(), ids=JOINED)
def test_what_a_loop_inserts_into_a_sequence(turn, join, rewritten):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[4, 3] X) => (float Y, float[3] Z)
        <int64 four = {{4}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, float[3] start = {{0, 0, 0}}> {{
            w = Mul(X, X)
            empty = SequenceEmpty <dtype = 1> ()
            S, Z = Loop (four, , empty, start) <body = turn (int64 i, bool c, seq(float) before, float[3] sum)
                => (bool d, seq(float) after, float[3] total) {{
                d = Identity(c)
                x = Gather(w, i)
                {turn}
                total = Add(sum, x)
                after = SequenceInsert(before, row)
            }}>
            Y = {join}
        }}"""
    )
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = rewrite_model(onx)
    rows = {"X": X[:4]}
    for mine, theirs in zip(run(found, rows), run(onx, rows), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert ("ConcatFromSequence" not in {node.op_type for node in found.graph.node}) == rewritten


@pytest.mark.parametrize(
    "shape, axis, rewritten",
    [
        ("N, 3", 0, True),
        ("N, 3", -1, True),
        ("N, M", 1, True),
        ("N, M", 0, False),  # the lengths after this axis are unknown
        ("N, M, 2", 1, True),
        ("N, M, 2", 2, True),
    ],
)
def test_tensors_of_variable_lengths_that_a_loop_inserts(shape, axis, rewritten):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[{shape}] X) => (float Y) <int64 three = {{3}}, float w = {{0.7}}> {{
            empty = SequenceEmpty <dtype = 1> ()
            S, last = Loop (three, , empty, X) <body = turn (int64 i, bool c, seq(float) before, float[{shape}] x)
                => (bool d, seq(float) after, float[{shape}] next) {{
                d = Identity(c)
                u = Mul(x, w)
                next = Tanh(u)
                after = SequenceInsert(before, next)
            }}>
            Y = ConcatFromSequence <axis = {axis}> (S)
        }}"""
    )
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    found = rewrite_model(onx)
    assert ("ConcatFromSequence" not in {node.op_type for node in found.graph.node}) == rewritten
    lengths = [{"N": 4, "M": 5}.get(length) or int(length) for length in shape.split(", ")]
    rows = {"X": np.random.default_rng(0).normal(size=lengths).astype(np.float32)}
    np.testing.assert_array_equal(run(found, rows)[0], run(onx, rows)[0])
    if rewritten:
        check_gradient(found, rows)


def test_the_scalars_of_the_formulas_are_no_weights():
    y = (X[:, 0] > 0).astype(int)
    tree = to_onnx(DecisionTreeClassifier(max_depth=2).fit(X, y), X[:1].astype(np.float32), options={"zipmap": False})
    assert [weight.name for weight in trainable_weights(tree)] == ["leaf_values"]
    with pytest.raises(WeightError, match=r"Known: leaf_values\.$"):
        OrtGradientClassifier(tree, weights_to_train="leaves").fit(X, y)


def test_one_registers_a_rewriting_of_an_own_operator():
    @rewrite("of.a.user", "Twice")
    def twice(op, node):
        (x,) = node.inputs
        return op.Mul(x, 2.0)

    try:
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "XY"]
        graph = helper.make_graph(
            [helper.make_node("Twice", ["X"], ["Y"], domain="of.a.user")], "g", infos[:1], infos[1:]
        )
        onx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("of.a.user", 1)])
        np.testing.assert_array_equal(run(rewrite_model(onx), {"X": X})[0], 2 * X)
        with pytest.raises(ValueError, match="already registered"):
            rewrite("of.a.user", "Twice")(lambda op, node: op.Mul(node.inputs[0], 3.0))
    finally:
        REWRITES.unregister("of.a.user:Twice")
