"""Each rewriting once: the operators that remain, and the same result on random inputs."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from onnxtrain import graph as graphs
from onnxtrain.autodiff.simplify import TABLE, simplify
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative, random_feed

# nodes -> operators that remain. X and Z are (N, 3), A is (2, 3), B is (3, 3), Q is (2, 2, 3), s is (), o is all ones (1, 3); W may change.
FOLDED = {
    "S = Shape(X) E = Expand(s, S) Y = Mul(E, X)": ["Mul"],
    "S = Shape(X) E = Expand(s, S) Y = Sub(E, X)": ["Sub"],
    "S = Shape(X) E = Expand(s, S) F = Expand(o, S) Y = Sum(E, X, F)": ["Sum"],
    "S = Shape(X) E = Expand(s, S) C = Greater(X, E) Y = Where(C, E, X)": ["Shape", "Expand", "Greater", "Where"],
    "S = Shape(X) E = Expand(s, S) F = Expand(s, S) Y = Mul(E, F)": ["Shape", "Expand", "Mul"],
    "S = Shape(X) E = Expand(o, S) F = Expand(E, S) Y = Neg(F)": ["Shape", "Expand", "Neg"],
    "S = Constant<value_ints = [2, 3]>() E = Expand(o, S) F = Expand(E, S) Y = Neg(F)": ["Expand", "Neg"],
    "S = Constant<value_ints = [1, 3]>() E = Expand(A, S) F = Expand(E, S) Y = Neg(F)": ["Neg"],
    "S = Constant<value_ints = [2, 1]>() E = Expand(s, S) T = Constant<value_ints = [1, 3]>() F = Expand(E, T) Y = Neg(F)": [
        "Expand",
        "Expand",
        "Neg",
    ],
    "S = Constant<value_ints = [1, 3]>() E = Expand(s, S) T = Constant<value_ints = [2, 3]>() F = Expand(E, T) Y = Neg(F)": [
        "Expand",
        "Neg",
    ],
    "S = Constant<value_ints = [1, 3]>() E = Expand(s, S) T = Shape(X) F = Expand(E, T) Y = Neg(F)": [
        "Shape",
        "Expand",
        "Neg",
    ],
    "S = Constant<value_ints = [1, 3]>() E = Expand(s, S) M = Mul(E, X) Y = Neg(M)": ["Mul", "Neg"],
    "S = Shape(X) E = Expand(X, S) Y = Neg(E)": ["Neg"],
    "S = Constant<value_ints = [6]>() R = Reshape(A, S) T = Constant<value_ints = [3, 2]>() Y = Reshape(R, T)": [
        "Reshape"
    ],
    "S = Constant<value_ints = [6]>() R = Reshape(A, S) T = Constant<value_ints = [0, 1]>() Y = Reshape(R, T)": [
        "Reshape",
        "Reshape",
    ],
    "M = Mul(X, one) Y = Neg(M)": ["Neg"],
    "M = Mul(one, X) Y = Neg(M)": ["Neg"],
    "M = Mul(s, one) Y = Add(M, X)": ["Add"],
    "M = Mul(X, o) Y = Neg(M)": ["Mul", "Neg"],
    "M = Mul(X, W) Y = Neg(M)": ["Mul", "Neg"],
    "M = Div(X, one) Y = Neg(M)": ["Neg"],
    "M = Div(one, X) Y = Neg(M)": ["Div", "Neg"],
    "M = Mul(X, two) Y = Mul(three, M)": ["Mul"],
    "M = Mul(two, X) Y = Mul(M, Z)": ["Mul", "Mul"],
    "M = Mul(X, Z) Y = Mul(M, three)": ["Mul", "Mul"],
    "M = Neg(X) Y = Neg(M)": ["Identity"],
    "M = Neg(X) Y = Add(Z, M)": ["Sub"],
    "M = Neg(X) Y = Add(M, Z)": ["Sub"],
    "M = Neg(X) Y = Sub(Z, M)": ["Add"],
    "M = Neg(X) Y = Sub(M, Z)": ["Neg", "Sub"],
    "M = Cast<to = 1>(X) Y = Neg(M)": ["Neg"],
    "M = Cast<to = 11>(X) Y = Neg(M)": ["Cast", "Neg"],
    "T = Transpose(X) U = Transpose(T) Y = Neg(U)": ["Neg"],
    "T = Transpose<perm = [0, 1]>(X) Y = Neg(T)": ["Neg"],
    "T = Transpose<perm = [1, 2, 0]>(Q) Y = Transpose<perm = [1, 2, 0]>(T)": ["Transpose"],
    "T = Transpose(X) Y = Gemm<transB = 1>(T, T)": ["Gemm"],
    "T = Transpose(X) Y = MatMul(T, Z)": ["Gemm"],
    "Y = MatMul(A, T) T = Transpose(X)": ["Gemm"],
    "T = Transpose<perm = [0, 2, 1]>(Q) Y = MatMul(Q, T)": ["Transpose", "MatMul"],
    "P = MatMul(X, B) Y = Add(P, o)": ["Gemm"],
    "P = MatMul(X, B) Y = Add(Z, P)": ["Gemm"],
    "P = MatMul(X, B) Q1 = Add(P, o) Y = Mul(P, Q1)": ["MatMul", "Add", "Mul"],
    "P = MatMul(o, B) Y = Add(P, X)": ["MatMul", "Add"],
    "P = MatMul(Q, B) Y = Add(P, o)": ["MatMul", "Add"],
    "P = MatMul(X, B) Y = Add(P, Q)": ["MatMul", "Add"],
    "J = Cast<to = 7>(X) K = Cast<to = 7>(B) P = MatMul(J, K) I = Add(P, P) Y = Cast<to = 1>(I)": [
        "Cast",
        "Cast",
        "MatMul",
        "Add",
        "Cast",
    ],
}

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
m (float[N,3] X, float[N,3] Z, float[2,3] A, float[2,2,3] Q, float[3,3] B, float s, float W) => (float{rank} Y)
<float[1,3] o = {{1, 1, 1}}, float one = {{1}}, float two = {{2}}, float three = {{3}}, float W = {{1}}>
{{ {nodes} }}
"""


def parsed(nodes):
    rank = "[a,b,c]" if "Q" in nodes else "[a,b]"
    return parse_model(MODEL.format(nodes=nodes, rank=rank))


@pytest.mark.parametrize("nodes", FOLDED)
def test_rewriting(nodes, run):
    onx = parsed(nodes)
    if "to = 11" in nodes:
        onx.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    model = graphs.load(onx)
    simplify(model)
    simpler = graphs.save(model, outputs=[("Y", model.graph.outputs[0])])
    assert [n.op_type for n in simpler.graph.node if n.op_type != "Constant"] == FOLDED[nodes]
    if nodes.startswith("Y"):
        return  # not sorted: only onnxtrain reads it
    feeds = random_feed(onx.graph.input, batch=2, random_state=0)
    for expected, found in zip(run(onx, feeds), run(simpler, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("nodes", ["M = my.Neg(X) Y = Neg(M)", "M = Neg(X) Y = my.Neg(M)"])
def test_operators_of_others_stay(nodes):
    onx = parsed(nodes)
    onx.opset_import.append(onnx.helper.make_opsetid("my", 1))
    model = graphs.load(onx)
    simplify(model)
    assert [n.op_type for n in model.graph] == ["Neg", "Neg"]
    assert model.graph.outputs[0].producer().inputs[0].producer() is not None


def test_every_rewriting_has_a_row():
    used = {
        op_type for nodes in FOLDED for op_type in TABLE.op_types if f"{op_type}(" in nodes or f"{op_type}<" in nodes
    }
    same_as_the_others = {"Min", "Max", "Pow", "Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "Tile"}
    assert used | same_as_the_others == TABLE.op_types


def test_values_are_followed_through_several_rewritings():
    model = graphs.load(parsed("M = Neg(X) P = Neg(M) Q1 = Mul(P, one) Y = Neg(Q1)"))
    named = {v.name: v for node in model.graph for v in node.outputs}
    product, negated = simplify(model, [named["Q1"], named["M"]])
    assert product is model.graph.inputs[0]
    assert negated is named["M"]


@pytest.mark.parametrize("activation, most", [("relu", 8), ("tanh", 9), ("logistic", 9), ("identity", 6)])
def test_a_multilayer_perceptron_of_scikit_learn_has_a_short_backward_part(activation, most):
    """Twelve nodes were asked for; onnxruntime-training needs 26."""
    neural_network = pytest.importorskip("sklearn.neural_network")
    skl2onnx = pytest.importorskip("skl2onnx")
    X = np.random.default_rng(0).normal(size=(20, 10)).astype(np.float32)
    regressor = neural_network.MLPRegressor(hidden_layer_sizes=(5,), activation=activation, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        onx = skl2onnx.to_onnx(regressor.fit(X, X.sum(axis=1)), X[:1], target_opset=18)
    loss = parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]>
        squared (float[N,1] score, float[N,1] label) => (float[1,1] loss)
        { d = Sub(score, label)  square = Mul(d, d)  loss = ReduceSum <keepdims = 1> (square) }""")
    onx = onnx.compose.merge_models(onx, loss, io_map=[("variable", "score")])
    onx.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"  # as many rows as labels
    weights = [w.name for w in onx.graph.initializer if w.dims and w.data_type == onnx.TensorProto.FLOAT]
    grad = onnx_derivative(onx, weights, [], DerivativeOptions.Loss, loss="loss", label="label")
    protos = graphs.save(graphs.load(onx)), grad
    forward, both = (sum(node.op_type != "Constant" for node in proto.graph.node) for proto in protos)
    assert both - forward <= most
