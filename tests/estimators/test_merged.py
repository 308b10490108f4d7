"""Weights that an exporter merged because they were equal: which are one weight, as the layers of the source have them.

Each network is judged by one that has all its weights apart, with the intercepts 1e-30 where the other one has 0.
"""

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from onnxtrain import OrtGradientRegressor

rng = np.random.default_rng(0)
X, Y = (rng.normal(size=(20, 3)).astype(np.float32) for _ in range(2))
W, U, V = (rng.normal(size=(3, 3)) for _ in range(3))
ZEROS = np.zeros(3)
FORGET = np.array([0, 1, 0])  # of an LSTM of Keras

#: Two steps of a recurrent layer, with the intercepts a, b and c.
RECURRENT = """P = MatMul(X, W) p = Add(P, a) s = Tanh(p) Q = MatMul(s, U) q = Add(b, Q) t = Tanh(q) R = MatMul(t, U) r = Add(R, b)
    u = Tanh(r) K = MatMul(u, V) Y = Add(K, c)"""
#: Layers l and m, each used twice.
LAYERS = "A = MatMul(X, l) a = Tanh(A) B = MatMul(a, l2) b = Tanh(B) C = MatMul(b, m) c = Tanh(C) Y = MatMul(c, m2)"
NORMS = """A = LayerNormalization(X, ones, a) B = Tanh(A) C = LayerNormalization(B, ones, a) D = MatMul(C, W)
    Y = Add(D, b)"""


def network(nodes, producer="pytorch", modules=None, **weights):
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3] X) => (float[n, 3] Y) {{ {nodes} }}'
    onx = onnx.parser.parse_model(text)
    onx.producer_name = producer
    for name, w in weights.items():
        onx.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), name))
    for node in onx.graph.node:
        node.name = (modules or {}).get(node.output[0], node.output[0])
    return onx


def with_intercept(layers, last):
    """Return the nodes of LAYERS with the intercepts i of the first layer and `last` of the last one."""
    return layers.replace("a = Tanh(A)", "A2 = Add(A, i) a = Tanh(A2)").replace("Y =", "Z =") + f" Y = Add(Z, {last})"


def copied_for_each_use(nodes):
    """Return what PyTorch's exporter computed in advance for each use, as Keras has it."""
    nodes = nodes.replace("Add(P, a)", "Add(P, val_0)").replace("Add(b, Q)", "Add(val_1, Q)")
    nodes = nodes.replace("Add(R, b)", "Add(R, val_2)").replace("Add(K, c)", "Add(K, val_3)")
    return "val_1 = Identity(val_0) val_2 = Identity(val_0) val_3 = Identity(val_0) " + nodes


MATRICES = dict(W=W, U=U, V=V)
DIRECT = RECURRENT.replace(", b)", ", a)").replace("(b,", "(a,").replace(", c)", ", a)")
TIED = LAYERS.replace("l2", "l").replace("m2", "m")
COPIES = "val_1 = Identity(val_0) val_2 = Identity(val_0) val_3 = Identity(val_0) "
COMPUTED = COPIES + LAYERS.replace("l2", "val_1").replace("m2", "val_3").replace("l)", "val_0)").replace("m)", "val_2)")
MODULES = {"A": "/l/MatMul", "B": "/l_1/MatMul", "C": "/m/MatMul", "Z": "/m_1/MatMul", "Y": "/m_1/Add"}

#: The merged network, and the one whose weights are apart.
CASES = {
    "parameters": (
        network("b = Identity(a) c = Identity(a) " + RECURRENT, a=ZEROS, **MATRICES),
        network(RECURRENT, a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "computed for each use": (
        network(copied_for_each_use(RECURRENT), val_0=ZEROS, **MATRICES),
        network(RECURRENT, a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "no copies": (
        network(DIRECT, "", a=ZEROS, **MATRICES),
        network(RECURRENT, "", a=ZEROS + 1e-30, b=ZEROS + 1e-30, c=ZEROS + 1e-30, **MATRICES),
    ),
    "forget gate": (
        network(DIRECT, "", a=FORGET, **MATRICES),
        network(RECURRENT, "", a=FORGET + 1e-30, b=FORGET + 1e-30, c=FORGET + 1e-30, **MATRICES),
    ),
    "scalars": (
        network("b = Identity(a) M = Mul(X, W1) A = Add(M, a) B = Tanh(A) Y = Add(B, b)", a=ZEROS[:1], W1=V[0]),
        network("M = Mul(X, W1) A = Add(M, a) B = Tanh(A) Y = Add(B, b)", a=ZEROS[:1], b=ZEROS[:1], W1=V[0]),
    ),
    "norm used twice": (
        network("b = Identity(a) " + NORMS, a=ZEROS, ones=1 + ZEROS, W=W),
        network(NORMS, a=ZEROS + 1e-30, b=ZEROS + 1e-30, ones=1 + ZEROS + 1e-6, W=W),
    ),
    "layers that begin equal": (
        network("m = Identity(l) " + TIED, l=W),
        network(TIED, l=W, m=W),
    ),
    "modules that begin equal": (
        network("j = Identity(i) " + with_intercept(COMPUTED, "j"), modules=MODULES, val_0=W, i=V[0]),
        network(with_intercept(TIED, "j"), l=W, m=W, i=V[0], j=V[0]),
    ),
    "modules with a tied weight": (
        network(with_intercept(COMPUTED, "j"), modules=MODULES, val_0=W, i=V[0], j=V[1]),
        network(with_intercept(TIED.replace("m)", "l)"), "j"), l=W, i=V[0], j=V[1]),
    ),
    "a module used often": (
        network(with_intercept(COMPUTED, "i"), modules=dict.fromkeys(MODULES, "/l/MatMul"), val_0=W, i=V[0]),
        network(with_intercept(TIED.replace("m)", "l)"), "i"), l=W, i=V[0]),
    ),
}  # fmt: skip


def fitted(onx):
    params = dict(solver="sgd", learning_rate=0.1, max_iter=20, batch_size=20, tol=0, random_state=0)
    return OrtGradientRegressor(onx, **params).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*max_iter")
@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_the_layers(name):
    merged, apart = map(fitted, CASES[name])
    assert sorted(w.shape for w in merged.weights_.values()) == sorted(w.shape for w in apart.weights_.values())
    assert apart.loss_curve_[-1] < 0.95 * apart.loss_curve_[0]
    np.testing.assert_allclose(merged.predict(X), apart.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained, copies", [(["W"], 2), (["a"], 0), (["b"], 1)])
def test_the_file_keeps_copies_of_what_was_not_trained(trained, copies):
    onx = CASES["parameters"][0]
    model = OrtGradientRegressor(onx, weights_to_train=trained, max_iter=3, random_state=0).fit(X, Y)
    found = model.get_trained_onnx()
    assert found.opset_import == onx.opset_import
    assert sum(node.op_type == "Identity" for node in found.graph.node) == copies
    again = OrtGradientRegressor(found, max_iter=1, learning_rate=1e-30, solver="sgd").fit(X, Y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-5, atol=1e-6)
