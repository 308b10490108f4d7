"""Files that tf2onnx, the exporter of Keras with TensorFlow, wrote: what Keras trains, and what the file has lost."""

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxtrain import OrtGradientRegressor
from onnxtrain.errors import ModelError
from onnxtrain.runtime.session import run

rng = np.random.default_rng(0)
N, T, P, H = 12, 4, 3, 2
X = rng.normal(size=(N, T, P)).astype(np.float32)
Y = rng.normal(size=(N, H)).astype(np.float32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(text, producer, **weights):
    onx = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]> g {text}')
    onx.producer_name = producer
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w, np.float32), k) for k, w in weights.items())
    return onx


def recurrent(op_type, producer, *, attributes="", apart=False, second=0.0):
    """Return a recurrent layer whose intercepts of the state are `second`; if `apart`, they are no weights."""
    k = GATES[op_type] * H
    rng = np.random.default_rng(1)
    weights = {"W": rng.normal(size=(1, k, P)), "R": rng.normal(size=(1, k, H)), "b": rng.normal(size=(1, k))}
    other = np.full((1, k), second)
    if not apart:
        weights["b"] = np.concatenate([weights["b"], other], axis=1)
    halves = (
        f"z = Constant <value_floats = {[float(second)] * k}> () u = Unsqueeze(z, first) B = Concat <axis=1> (b, u)"
    )
    given = halves if apart else "B = Identity(b)"
    return network(
        f"""(float[n,{T},{P}] X) => (float[n,{H}] Y) <int64[1] first = {{0}}> {{
            x = Transpose <perm = [1,0,2]> (X)  {given}
            s, h = {op_type} <hidden_size = {H} {attributes}> (x, W, R, {"B" if apart else "b"})
            Y = Squeeze(h, first)
        }}""",
        producer,
        **weights,
    )


def fitted(onx, y=Y, **params):
    settings = dict(solver="sgd", learning_rate=0.05, batch_size=N, shuffle=False, max_iter=10, tol=0, random_state=0)
    return OrtGradientRegressor(onx, **settings | params).fit(X, y)


@pytest.mark.parametrize("op_type", GATES)
def test_a_layer_has_one_intercept(op_type):
    """The sum of two intercepts would move twice as far as the intercept of Keras."""
    onx = recurrent(op_type, "tf2onnx")
    tuned, apart = fitted(onx), fitted(recurrent(op_type, "", apart=True), weights_to_train=["W", "R", "b"])
    k = GATES[op_type] * H
    np.testing.assert_allclose(tuned.weights_["b"][:, :k], apart.weights_["b"], rtol=1e-5, atol=1e-6)
    assert not tuned.weights_["b"][:, k:].any()
    trained = tuned.get_trained_onnx()
    assert [n.op_type for n in trained.graph.node] == [n.op_type for n in onx.graph.node]
    np.testing.assert_allclose(run(trained, {"X": X})[0], tuned.predict(X), rtol=1e-5, atol=1e-6)


#: Layers both of whose intercepts are trained.
BOTH = {
    "of PyTorch": lambda: recurrent("LSTM", "pytorch"),
    "with values": lambda: recurrent("LSTM", "tf2onnx", second=0.1),
    "inside the reset": lambda: recurrent("GRU", "tf2onnx", attributes=", linear_before_reset = 1"),
}


@pytest.mark.filterwarnings("ignore:.* other names than parameters of torch.nn")
@pytest.mark.parametrize("case", BOTH)
def test_both_intercepts_are_trained(case):
    onx = BOTH[case]()
    before = next(onnx.numpy_helper.to_array(w) for w in onx.graph.initializer if w.name == "b")
    k = before.shape[1] // 2
    assert (fitted(onx).weights_["b"][:, k:] != before[:, k:]).all()


#: Nodes of a dense layer, its weights; words of the warning, None if there is none.
LOST = {
    "an intercept": ("Y = Add(h, b)", {"b": [1, 2]}, None),
    "none": ("Y = Identity(h)", {}, r"layers of W have no intercept .* v.assign\(v \+ 1e-6 \* keras.random.normal"),
    "BatchNormalization": (
        'm = Mul(h, "n/batchnorm/mul:0") Y = Add(m, "n/batchnorm/sub:0")',
        {"n/batchnorm/mul:0": [1, 2], "n/batchnorm/sub:0": [1, 2]},
        "computed n/batchnorm/mul:0, n/batchnorm/sub:0 from several weights.*KERAS_BACKEND=jax",
    ),
    "BatchNormalization of its own": (
        "r = Relu(h) t = Transpose <perm = [0,2,1]> (r) [FusedBatchNormV3] k = BatchNormalization(t, s, i, m, v)"
        " u = Transpose <perm = [0,2,1]> (k) Y = Add(u, b)",
        {"s": [1, 2], "i": [1, 2], "m": [1, 2], "v": [1, 2], "b": [1, 2]},
        None,
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_what_the_file_has_lost_is_named(case, recwarn):
    nodes, weights, words = LOST[case]
    text = f"(float[n,{T},{P}] X) => (float[n,{T},2] Y) {{ h = MatMul(X, W) {nodes} }}"
    onx = network(text, "tf2onnx", W=rng.normal(size=(P, 2)), **weights)
    y = np.ones((N, T, 2))
    if words is None:
        fitted(onx, y, max_iter=1)
        assert not [str(w.message) for w in recwarn]
    else:
        with pytest.warns(UserWarning, match=words):
            fitted(onx, y, max_iter=1)


@pytest.mark.parametrize("producer, remedy", [("tf2onnx", "KERAS_BACKEND=jax"), ("", "so the file is not valid")])
def test_an_operator_of_tensorflow_is_named_with_the_remedy(producer, remedy):
    """As tf2onnx writes gelu: it knows no Erfc, and leaves it in the file."""
    onx = network(
        f"(float[n,{P}] X) => (float[n,{H}] Y) {{ h = MatMul(X, W) Y = Erfc(h) }}", producer, W=rng.normal(size=(P, H))
    )
    with pytest.raises(ModelError, match=f"ONNX has no operator Erfc .*{remedy}"):
        OrtGradientRegressor(onx).fit(X[:, 0], Y)
