"""Weights in Constant nodes, and constants that are no weights."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import helper
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC

from onnxtrain import trainable_weights
from onnxtrain.rewrite import rewrite_model
from onnxtrain.runtime.session import run

X = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)

#: nodes; the Constants among them that are weights
CONSTANTS = {
    "a matrix": ("W = Constant <value = float[2, 1] {1, 2}> () Y = MatMul(X, W)", {"W"}),
    "a list": ("b = Constant <value_floats = [1.0, 2.0]> () Y = Add(X, b)", {"b"}),
    "doubles": (
        "W = Constant <value = double[2, 1] {1, 2}> () D = Cast <to = 11> (X) P = MatMul(D, W) Y = Cast <to = 1> (P)",
        {"W"},
    ),
    "one number": ("half = Constant <value_float = 0.5> () Y = Mul(X, half)", set()),
    "one number with an axis": ("half = Constant <value_floats = [0.5]> () Y = Mul(X, half)", set()),
    "a small number that is added": (
        "eps = Constant <value_floats = [0.1]> () A = Abs(X) S = Add(A, eps) Y = Sqrt(S)",
        set(),
    ),
    "one intercept": (
        "W = Constant <value = float[2, 1] {1, 2}> () b = Constant <value_floats = [0.5]> ()"
        " P = MatMul(X, W) Y = Add(b, P)",
        {"W", "b"},
    ),
    "one intercept of Gemm": (
        "W = Constant <value = float[2, 1] {1, 2}> () b = Constant <value_floats = [0.5]> () Y = Gemm(X, W, b)",
        {"W", "b"},
    ),
    "one intercept in another shape": (
        "W = Constant <value = float[2, 1] {1, 2}> () b = Constant <value = float[1, 1] {0.5}> ()"
        " i = Constant <value_ints = [0]> () s = Squeeze(b, i) t = Identity(s) Y = Gemm(X, W, t)",
        {"W", "b"},
    ),
    "one intercept of which a part is taken": (
        "W = Constant <value = float[2, 1] {1, 2}> () b = Constant <value_floats = [0.5]> ()"
        " i = Constant <value_ints = [0]> () e = Constant <value_ints = [1]> () g = Gather(b, i) p = Slice(g, i, e)"
        " P = MatMul(X, W) Y = Add(P, p)",
        {"W", "b"},
    ),
    "one intercept for all rows": (
        "W = Constant <value = float[2, 1] {1, 2}> () b = Constant <value_floats = [0.5]> ()"
        " s = Constant <value_ints = [7, 1]> () f = Flatten(b) p = Expand(f, s) P = MatMul(X, W) Y = Add(P, p)",
        {"W", "b"},
    ),
    "a small number in another shape": (
        "e = Constant <value = float[1, 1] {0.1}> () i = Constant <value_ints = [0]> () eps = Squeeze(e, i)"
        " A = Abs(X) S = Add(A, eps) Y = Sqrt(S)",
        set(),
    ),
    "integers": ("i = Constant <value_ints = [1, 0]> () Y = Gather <axis = 1> (X, i)", set()),
    "used twice": ("b = Constant <value_floats = [1.0, 2.0]> () Z = Add(X, b) Y = Mul(Z, b)", {"b"}),
    "an output": ("Y = Constant <value_floats = [1.0, 2.0]> ()", set()),
    "slashes and colons": ("'m/k:0' = Constant <value_floats = [1.0, 2.0]> () Y = Add(X, 'm/k:0')", {"m/k:0"}),
}


def parse(nodes):
    nodes, odd = nodes.replace("'m/k:0'", "odd"), "'m/k:0'" in nodes  # the parser takes no such names
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n, 2] X) => (float[a, b] Y) {{ {nodes} }}'
    )
    for node in onx.graph.node if odd else ():
        for names in (node.input, node.output):
            names[:] = ["m/k:0" if name == "odd" else name for name in names]
    return onx


@pytest.mark.parametrize("nodes, expected", CONSTANTS.values(), ids=CONSTANTS)
def test_weights_in_constants(nodes, expected):
    onx = parse(nodes)
    held = {n.output[0]: n for n in onx.graph.node if n.op_type == "Constant"}
    found = rewrite_model(onx)
    initializers = {i.name: onnx.numpy_helper.to_array(i) for i in found.graph.initializer}
    assert expected <= set(initializers)
    assert not (set(held) - expected) & set(initializers)
    for name in expected:
        value = helper.get_attribute_value(held[name].attribute[0])
        value = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.float32(value)
        np.testing.assert_array_equal(initializers[name], value)
    np.testing.assert_array_equal(run(found, {"X": X})[0], run(onx, {"X": X})[0])


def test_weights_in_the_body_of_a_loop_are_those_of_the_model():
    onx = parse(
        "many = Constant <value_int = 2> () go = Constant <value = bool {1}> ()"
        " Y = Loop (many, go, X) <body = b (int64 i, bool c, float[n, 2] x) => (bool d, float[n, 2] y)"
        " <float[2] v = {3, 4}> { w = Constant <value_floats = [1.0, 2.0]> () half = Constant <value_float = 0.5> ()"
        " d = Identity(c) z = Add(x, w) s = Add(z, v) y = Mul(s, half) }>"
    )
    found = rewrite_model(onx)
    assert {i.name for i in found.graph.initializer} == {"w", "v"}
    np.testing.assert_allclose(run(found, {"X": X})[0], X / 4 + np.float32([3, 4.5]), rtol=1e-6)


def test_scales_of_resize_in_a_body_are_no_weights():
    onx = parse(
        "many = Constant <value_int = 2> () go = Constant <value = bool {1}> ()"
        " Y = Loop (many, go, X) <body = b (int64 i, bool c, float[n, 2] x) => (bool d, float[n, 2] y)"
        " <float[2] v = {1, 1}> { w = Constant <value_floats = [1.0, 2.0]> () s = Constant <value_floats = [1.0, 1.0]> ()"
        " d = Identity(c) z = Add(x, w) r = Resize(z, , s) y = Resize(r, , v) }>"
    )
    found = rewrite_model(onx)
    assert {i.name for i in found.graph.initializer} == {"w"}
    np.testing.assert_array_equal(run(found, {"X": X})[0], run(onx, {"X": X})[0])


@pytest.mark.filterwarnings("ignore::FutureWarning")  # skl2onnx reads probA_
@pytest.mark.parametrize(
    "estimator", [SVC(kernel="rbf"), RandomForestClassifier(n_estimators=2, max_depth=2, random_state=0)], ids=str
)
def test_what_was_rewritten_has_the_same_weights_when_it_is_rewritten_again(estimator):
    from skl2onnx import to_onnx

    rows, y = load_iris(return_X_y=True)
    onx = rewrite_model(to_onnx(estimator.fit(rows, y), rows[:1].astype(np.float32), target_opset=21))
    names = [w.name for w in trainable_weights(onx)]
    assert [w.name for w in trainable_weights(rewrite_model(onx))] == names
