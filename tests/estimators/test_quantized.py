"""Quantized models (QDQ): trained as they are, written back as integers."""

from __future__ import annotations

import ast
import pathlib
import re
import warnings

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from onnxtrain import LoRA, OrtGradientClassifier, OrtGradientRegressor, trainable_weights
from onnxtrain.errors import ModelError, WeightError
from onnxtrain.estimators.original import quantized_steps
from onnxtrain.losses.link import Link
from onnxtrain.runtime.session import run

quantization = pytest.importorskip("onnxruntime.quantization", reason="this onnxruntime has no quantizer")

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def held(onx, **weights):
    """Return a model from text with initializers."""
    onx = onnx.parser.parse_model(f"{HEAD} {onx}")
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items())
    return onx


def arrays(onx):
    return {w.name: onnx.numpy_helper.to_array(w) for w in onx.graph.initializer}


def probabilities(onx, X):
    scores = run(onx, {"X": X})[0]
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


# --------------------------------------------------- a network of onnxruntime's quantizer


def drawn_network():
    """Return a convolutional network with random weights."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    return held(
        """digits (float[N,1,8,8] X) => (float[N,10] Y) {
            c = Conv <pads = [1, 1, 1, 1]> (X, W, v) r = Relu(c) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            d = Conv <pads = [1, 1, 1, 1]> (p, V, u) s = Relu(d) f = Flatten(s) Y = Gemm <transB = 1> (f, U, b) }""",
        W=drawn(6, 1, 3, 3),
        v=np.zeros(6, np.float32),
        V=drawn(8, 6, 3, 3),
        u=np.zeros(8, np.float32),
        U=drawn(10, 128),
        b=np.zeros(10, np.float32),
    )


def fitted(onx, X, y, max_iter):
    """Return a network fitted on the rows."""
    network = OrtGradientClassifier(onx, max_iter=max_iter, learning_rate=5e-3, tol=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge, and need not
        return network.fit(X, y).get_trained_onnx()


@pytest.fixture(scope="module")
def digits():
    """Return rows, held-out rows, and a convolutional network fitted on the rows."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    return X, X_test, y, y_test, fitted(drawn_network(), X, y, max_iter=12)


class Rows(quantization.CalibrationDataReader):
    """Batches of rows, one after the other."""

    def __init__(self, X):
        self.batches = iter([{"X": X[i : i + 20]} for i in range(0, len(X), 20)])

    def get_next(self):
        return next(self.batches, None)


def quantized(onx, X, tmp_path, **options):
    path = tmp_path / "float.onnx"
    onnx.save(onx, path)
    try:
        quantization.quantize_static(path, tmp_path / "q.onnx", Rows(X), **options)
    except RuntimeError as e:
        pytest.skip(f"the quantizer of this onnxruntime: {e}")
    return onnx.load(tmp_path / "q.onnx")


T = quantization.QuantType

QUANTIZERS = {
    "per channel": dict(per_channel=True),
    "per tensor": dict(per_channel=False),
    "of a reduced range": dict(per_channel=True, reduce_range=True),
    "signed": dict(per_channel=True, activation_type=T.QInt8, extra_options={"ActivationSymmetric": True}),
    "unsigned": dict(per_channel=False, activation_type=T.QUInt8, weight_type=T.QUInt8),
    "16 bits": dict(per_channel=True, activation_type=T.QUInt16),
    "4 bits": dict(per_channel=True, weight_type=T.QInt4),
    "4 bits, unsigned": dict(per_channel=False, weight_type=T.QUInt4),
}


@pytest.mark.parametrize("options", QUANTIZERS.values(), ids=QUANTIZERS)
def test_a_quantized_network_is_trained_as_it_is(digits, options, tmp_path):
    X, X_test, y, _, network = digits
    onx = quantized(network, X[:100], tmp_path, **options)
    start = OrtGradientClassifier(onx, max_iter=0).fit(X, y)
    assert start.get_trained_onnx().SerializeToString() == onx.SerializeToString()
    np.testing.assert_allclose(start.predict_proba(X_test), probabilities(onx, X_test), atol=0.05)
    model = OrtGradientClassifier(onx, max_iter=4, learning_rate=1e-3, tol=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge in four epochs
        model.fit(X, y)
    trained = model.get_trained_onnx()
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert [n.SerializeToString() for n in trained.graph.node] == [n.SerializeToString() for n in onx.graph.node]
    changed = set()
    for old, new in zip(onx.graph.initializer, trained.graph.initializer, strict=True):
        assert (old.name, old.data_type, old.dims) == (new.name, new.data_type, new.dims)
        changed |= {old.name} if old.SerializeToString() != new.SerializeToString() else set()
    assert sorted(name.partition("_")[0] for name in model.weights_) == ["U", "V", "W", "b", "u", "v"]
    few = options.get("weight_type") in (T.QInt4, T.QUInt4)  # whose steps are longer than what is learned here
    assert changed == (set(model.weights_) if not few else changed & {"b_quantized", "u_quantized", "v_quantized"})
    np.testing.assert_allclose(model.predict_proba(X_test), probabilities(trained, X_test), atol=0.1)


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("options", QUANTIZERS.values(), ids=QUANTIZERS)
def test_a_step_is_opened_at_every_level_of_optimization(digits, options, level, tmp_path):
    X, _, y, _, network = digits
    X, y = X[:64], y[:64]
    onx = quantized(network, X, tmp_path, **options)
    given = dict(solver="sgd", learning_rate=0.01, batch_size=64, shuffle=False, tol=0)
    model = OrtGradientClassifier(onx, max_iter=0, **given).fit(X, y)
    model.export_training_step(tmp_path / "step")
    session = onnxruntime.SessionOptions()
    session.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session.intra_op_num_threads = 1
    files = {path.stem: onnxruntime.InferenceSession(path, session) for path in (tmp_path / "step").glob("*.onnx")}

    def ran(name, feeds):
        inputs = {i.name: feeds[i.name] for i in files[name].get_inputs()}
        return dict(zip([o.name for o in files[name].get_outputs()], files[name].run(None, inputs), strict=True))

    rows = {"X": X, "y": y.astype(np.int32), "learning_rate": np.array([0.01])}
    rows |= ran("before", rows) if "before" in files else {}
    state, losses = ran("init", {}), []
    for _ in range(3):
        found = ran("step", rows | state)
        losses.append(found["loss"].item())
        state = {name: found[f"next_{name}"] for name in state}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge in three epochs
        fitted = OrtGradientClassifier(onx, max_iter=3, **given).fit(X, y)
    np.testing.assert_allclose(losses, fitted.loss_curve_, rtol=1e-6 if level == "ORT_ENABLE_BASIC" else 1e-2)
    if level == "ORT_ENABLE_BASIC":
        model.load_training_state(state)
        for name, w in fitted.weights_.items():
            np.testing.assert_array_equal(model.weights_[name], w, err_msg=name)


GUIDE = pathlib.Path(__file__).resolve().parents[2] / "doc" / "guide" / "bring_a_model.rst"


def recommended():
    """Return the parameters that the guide recommends for quantized models."""
    (arguments,) = re.findall(r'"quantized\.onnx", (.+)', GUIDE.read_text())
    call = ast.parse(f"dict({arguments})", mode="eval").body
    return {given.arg: ast.literal_eval(given.value) for given in call.keywords}


#: Rows of training, their epochs, rows that the quantizer sees, the least share of the loss that quantization adds:
#: a range that two rows show is too small; a network that fits its rows perfectly has no gradient on them.
LOST = {"a range of two rows": (1347, 12, 2, 0.1), "rows that are fitted perfectly": (400, 60, 5, 0.02)}


@pytest.mark.parametrize("n, epochs, n_seen, lost", LOST.values(), ids=LOST)
def test_what_quantization_lost_is_won_back(digits, n, epochs, n_seen, lost, tmp_path):
    """The held-out loss ends at most half way between those of the quantized network and the floating-point one."""
    X, X_test, y, y_test, _ = digits
    X, y = X[:n], y[:n]
    network = fitted(drawn_network(), X, y, epochs)
    onx = quantized(network, X[:n_seen], tmp_path, per_channel=True)
    model = OrtGradientClassifier(onx, **recommended(), random_state=0).fit(X, y)
    trained = model.get_trained_onnx()
    before, after, best = (log_loss(y_test, probabilities(m, X_test)) for m in (onx, trained, network))
    assert before > (1 + lost) * best
    assert after <= (before + best) / 2
    assert [n.SerializeToString() for n in trained.graph.node] == [n.SerializeToString() for n in onx.graph.node]
    types = {w.name: w.data_type for w in trained.graph.initializer}
    assert {types[name] for name in ("W_quantized", "V_quantized", "U_quantized")} == {TensorProto.INT8}


def test_scales_are_trained_where_they_are_named(digits, tmp_path):
    """The scale of an intercept is the product of those of its layer: runtimes that multiply integers take it so."""
    X, X_test, y, _, network = digits
    onx = quantized(network, X[:100], tmp_path, per_channel=True)
    kinds = {w.name: w.kind for w in trainable_weights(onx)}
    assert {kinds[name] for name in kinds if name.endswith("_scale")} == {"buffer"}
    assert kinds["W_quantized"] == "weight"
    model = OrtGradientClassifier(
        onx, weights_to_train=["*_scale"], max_iter=2, learning_rate=1e-3, tol=0, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    assert all(name.endswith("_scale") for name in model.weights_)
    trained = model.get_trained_onnx()
    found, before = arrays(trained), arrays(onx)
    assert found["X_scale"] != before["X_scale"]
    np.testing.assert_allclose(found["v_quantized_scale"], found["X_scale"] * found["W_scale"], rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X_test), probabilities(trained, X_test), atol=0.1)


def test_the_head_of_a_quantized_network(digits, tmp_path):
    X, _, y, _, network = digits
    onx = quantized(network, X[:100], tmp_path)
    model = OrtGradientClassifier(onx, weights_to_train="head", max_iter=1).fit(X[:200], y[:200])
    assert sorted(model.weights_) == ["U_quantized", "b_quantized"]
    new = OrtGradientClassifier(onx, head="new", weights_to_train="head", max_iter=1, random_state=0)
    new.fit(X[:200], np.where(y[:200] < 5, "low", "high"))
    assert {name: w.shape for name, w in new.weights_.items()} == {"head.weight": (2, 128), "head.bias": (2,)}


def test_quantized_weights_get_no_factors(digits, tmp_path):
    X, _, y, _, network = digits
    onx = quantized(network, X[:100], tmp_path)
    words = "none that can be trained except the quantized ones, which get no factors and are trained directly"
    with pytest.raises(WeightError, match=words):
        OrtGradientClassifier(onx, weights_to_train=LoRA(rank=2)).fit(X, y)


# ------------------------------------------------------------------------- by hand

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((60, 4)).astype(np.float32)
SIZE = ROWS[:, 0] - ROWS[:, 1]
STEP, Q = np.float32(0.1), RNG.integers(-7, 7, (4, 3)).astype(np.int8)

#: nodes that make w of the integers q, the initializers, the types of the weights that are trained
BY_HAND = {
    "no zero point": ("w = DequantizeLinear(q, s)", dict(q=Q, s=STEP)),
    "unsigned, no zero point": ("w = DequantizeLinear(q, s)", dict(q=Q.astype(np.uint8), s=np.float32(0.01))),
    "along an axis": ("w = DequantizeLinear <axis = 0> (q, s, z)", dict(q=Q, s=np.full(4, STEP), z=Q[:, 0])),
    "a vector of one scale": ("w = DequantizeLinear(q, s)", dict(q=Q, s=np.full(1, STEP))),
    "blocks of 4 bits": (
        "w = DequantizeLinear <axis = 0, block_size = 2> (q, s, z)",
        dict(q=Q.astype(ml_dtypes.int4), s=np.full((2, 3), STEP), z=np.zeros((2, 3), ml_dtypes.int4)),
    ),
    "int16": ("w = DequantizeLinear(q, s)", dict(q=Q.astype(np.int16), s=STEP)),
    "int32": ("w = DequantizeLinear(q, s)", dict(q=Q.astype(np.int32) * 1000, s=STEP / 1000)),
    "copies": ("a = Identity(s) b = Identity(q) w = DequantizeLinear(b, a)", dict(q=Q, s=STEP)),
    "a rounded float": (
        "r = QuantizeLinear(q, s, z) w = DequantizeLinear(r, s, z)",
        dict(q=Q * STEP, s=STEP, z=np.int8(0)),
    ),
}


@pytest.mark.parametrize("nodes, weights", BY_HAND.values(), ids=BY_HAND)
@pytest.mark.parametrize("holder", ["initializers", "nodes"])
def test_weights_by_hand(nodes, weights, holder):
    V = RNG.standard_normal((3, 1)).astype(np.float32)
    onx = held(f"g (float[N,4] X) => (float[N,1] Y) {{ {nodes} h = MatMul(X, w) t = Tanh(h) Y = MatMul(t, V) }}", V=V)
    for name, w in weights.items():
        tensor = onnx.numpy_helper.from_array(np.asarray(w), name)
        if holder == "nodes":
            onx.graph.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=tensor))
        else:
            onx.graph.initializer.append(tensor)
    start = OrtGradientRegressor(onx, max_iter=0).fit(ROWS, SIZE)
    assert start.get_trained_onnx().SerializeToString() == onx.SerializeToString()
    model = OrtGradientRegressor(onx, max_iter=30, learning_rate=0.05, tol=0, random_state=0).fit(ROWS, SIZE)
    assert set(model.weights_) == {"q", "V"}
    trained = model.get_trained_onnx()
    for thorough, off in ((False, 1e-5), (True, 0.05)):  # some products of 8 bits are taken for such of both factors
        off = 1e-3 if weights["q"].dtype == np.int32 else off  # rounded when it is written only
        (found,) = run(trained, {"X": ROWS}, thorough=thorough)
        np.testing.assert_allclose(found.ravel(), model.predict(ROWS), atol=off)
    holders = {w.name: w for w in trained.graph.initializer}
    holders |= {n.output[0]: n.attribute[0].t for n in trained.graph.node if n.op_type == "Constant"}
    new = onnx.numpy_helper.to_array(holders["q"])
    assert new.dtype == weights["q"].dtype
    assert (new.astype(np.float32) != np.asarray(weights["q"], np.float32)).any()


def test_a_weight_whose_scale_is_computed_stays_and_is_named():
    onx = held(
        "g (float[N,4] X) => (float[N,1] Y) { a = Abs(V) s = ReduceMean <keepdims = 0> (a) w = DequantizeLinear(q, s)"
        " h = MatMul(X, w) Y = MatMul(h, V) }",
        q=Q,
        V=np.ones((3, 1), np.float32),
    )
    with pytest.warns(UserWarning, match=r"The model has quantized weights: 1 \(q\)"):
        model = OrtGradientRegressor(onx, max_iter=1).fit(ROWS, SIZE)
    assert list(model.weights_) == ["V"]


def test_a_model_that_multiplies_integers_is_refused(digits, tmp_path):
    X, _, y, _, network = digits
    onx = quantized(network, X[:20], tmp_path, quant_format=quantization.QuantFormat.QOperator)
    with pytest.raises(ModelError, match=r"in QLinearConv .* in the format QOperator.* quant_format=QuantFormat.QDQ"):
        OrtGradientClassifier(onx).fit(X, y)
    with pytest.raises(ModelError, match="in the format QOperator"):
        OrtGradientClassifier(onx, head="new").fit(X, y)


def test_an_integer_weight_that_is_named():
    onx = held(
        "g (float[N,4] X) => (float[N,1] Y) { q, s, z = DynamicQuantizeLinear(X) p = MatMulInteger(q, W, z)"
        " f = Cast <to = 1> (p) h = Mul(f, s) Y = Mul(h, V) }",
        W=np.ones((4, 1), np.int8),
        V=np.ones((1, 1), np.float32),
    )
    with pytest.raises(WeightError, match="'W' holds quantized integers, which have no derivative. Train the floating"):
        OrtGradientRegressor(onx, weights_to_train=["W"]).fit(ROWS, SIZE)


def test_probabilities_that_are_rounded_are_trained_by_their_scores():
    onx = held(
        "g (float[N,4] X) => (float[N,3] P) { h = MatMul(X, W) p = Softmax(h) q = QuantizeLinear(p, s, z)"
        " P = DequantizeLinear(q, s, z) }",
        W=RNG.standard_normal((4, 3)).astype(np.float32),
        s=np.float32(1 / 255),
        z=np.uint8(0),
    )
    model = OrtGradientClassifier(onx, max_iter=0).fit(ROWS, np.digitize(SIZE, [-1, 1]))
    assert model._model.source.model.link is Link.SOFTMAX
    np.testing.assert_allclose(model.predict_proba(ROWS), run(onx, {"X": ROWS})[0], atol=1 / 255 + 1e-6)


def test_operators_of_com_microsoft_are_those_of_onnx():
    """Before opset 21 onnxruntime's quantizer takes its own operators for integers of 4 and 16 bits."""
    onx = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[N,4] X) => (float[N,1] Y) {
            a = com.microsoft.QuantizeLinear(X, s, z) b = com.microsoft.DequantizeLinear(a, s, z)
            w = com.microsoft.DequantizeLinear <axis = 1> (q, t, u) h = MatMul(b, w) r = Tanh(h) Y = MatMul(r, V) }"""
    )
    weights = dict(
        s=np.float32(0.001), z=np.uint16(2**15), q=Q.astype(np.int16), t=np.full(3, STEP), u=np.zeros(3, np.int16)
    )
    weights["V"] = RNG.standard_normal((3, 1)).astype(np.float32)
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items())
    start = OrtGradientRegressor(onx, max_iter=0).fit(ROWS, SIZE)
    assert start.get_trained_onnx() == onx
    model = OrtGradientRegressor(onx, max_iter=20, learning_rate=0.05, tol=0, random_state=0).fit(ROWS, SIZE)
    assert set(model.weights_) == {"q", "V"}
    trained = model.get_trained_onnx()
    assert [n.domain for n in trained.graph.node] == [n.domain for n in onx.graph.node]
    assert arrays(trained)["q"].dtype == np.int16
    np.testing.assert_allclose(run(trained, {"X": ROWS})[0].ravel(), model.predict(ROWS), atol=1e-3)


def test_integers_that_float32_does_not_hold_stay_until_they_are_trained():
    onx = held(
        "g (float[N,4] X) => (float[N,1] Y) { b = DequantizeLinear(q, s) h = MatMul(X, V) Y = Add(h, b) }",
        q=np.array([2**24 + 1], np.int32),
        s=np.float32(2.0**-24),
        V=np.ones((4, 1), np.float32),
    )
    assert OrtGradientRegressor(onx, max_iter=0).fit(ROWS, SIZE).get_trained_onnx() == onx
    trained = OrtGradientRegressor(onx, max_iter=1).fit(ROWS, SIZE).get_trained_onnx()
    assert arrays(trained)["q"] != 2**24 + 1


#: nodes in front of the product, by how much of the largest value results may differ
STEPS = {
    "8 bits": ("a = QuantizeLinear(X, s, z) b = DequantizeLinear(a, s, z)", np.int8, 8 / 2**8),
    "16 bits": ("a = QuantizeLinear(X, s, z) b = DequantizeLinear(a, s, z)", np.int16, 8 / 2**16),
    "weights alone": ("b = Identity(X)", np.int8, 0.0),
}


@pytest.mark.parametrize("nodes, dtype, expected", STEPS.values(), ids=STEPS)
def test_how_far_a_file_and_its_training_may_be_apart(nodes, dtype, expected):
    """Sums of integers and of floats are rounded to neighbours: some steps of the quantization of values, if any."""
    onx = held(
        f"g (float[N,4] X) => (float[N,3] Y) {{ {nodes} w = DequantizeLinear(q, s) Y = MatMul(b, w) }}",
        q=Q,
        s=STEP,
        z=dtype(0),
    )
    assert quantized_steps(onx.SerializeToString()) == expected


#: Two layers that are quantized when they are run, as onnxruntime.quantization.quantize_dynamic writes them, and as
#: onnxruntime writes its optimized form.
WHEN_RUN = """q, s, z = DynamicQuantizeLinear(X) m = MatMulInteger(q, Q, z) f = Cast<to = 1>(m) t = Mul(s, scale)
    p = Mul(f, t) Y = Add(p, b)"""
WHEN_RUN_FUSED = "Y = com.microsoft.DynamicQuantizeMatMul(X, Q, scale, zero, b)"


def test_values_quantized_when_they_are_run_have_eight_bits():
    for nodes in (WHEN_RUN, WHEN_RUN_FUSED):
        onx = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[n, 2] X) => (float[n, 1] Y)
            <int8[2, 1] Q = {{1, 2}}, float scale = {{0.5}}, int8 zero = {{0}}, float[1] b = {{0.5}}> {{ {nodes} }}"""
        )
        assert quantized_steps(onx.SerializeToString()) == pytest.approx(4 * 2 / 256)


@pytest.mark.parametrize(
    "nodes, words",
    [
        (
            WHEN_RUN,
            r"depends on the other rows .* one scale in DynamicQuantizeLinear \(node .*Train the floating-point",
        ),
        (WHEN_RUN_FUSED, "computes with integers in DynamicQuantizeMatMul .*Train the floating-point model"),
    ],
)
@pytest.mark.filterwarnings("ignore:The model has quantized weights")
def test_scales_of_batches_are_named_with_the_remedy(nodes, words):
    """Beside a row of 1e4 those of 1 are 0."""
    onx = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[n, 2] X) => (float[n, 1] Y)
        <int8[2, 1] Q = {{1, 2}}, float scale = {{0.5}}, int8 zero = {{0}}, float[1] b = {{0.5}}> {{ {nodes} }}"""
    )
    X = np.ones((9, 2), np.float32)
    X[::8] = 1e4
    with pytest.raises(ModelError, match=words):
        OrtGradientRegressor(onx, max_iter=1).fit(X, X[:, 0])


def test_integers_behind_an_operator_of_ai_onnx_ml_come_out_as_integers():
    """Scaler becomes Sub and Mul, if its operands are trained; the weights after it stay quantized."""
    onx = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> g (float[N,4] X) => (float[N,3] Y) {
            s = ai.onnx.ml.Scaler <offset = [1.0, 2.0, 0.0, 1.0], scale = [1.0, 0.5, 2.0, 1.0]> (X)
            w = DequantizeLinear(Q, step)  b = DequantizeLinear(I, fine)  Y = Gemm(s, w, b) }"""
    )
    given = {
        "Q": np.random.default_rng(0).integers(-90, 90, (4, 3)).astype(np.int8),
        "I": np.array([5, -7, 11], np.int32),
        "step": np.float32(0.01),
        "fine": np.float32(0.01),
    }
    onx.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w), name) for name, w in given.items())
    X = np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)
    network = OrtGradientRegressor(
        onx, max_iter=5, learning_rate=0.05, weights_to_train=["offset", "scale", "Q", "I"], random_state=0
    ).fit(X, X[:, :3])
    found = network.get_trained_onnx()
    held_again = arrays(found)
    assert set(network.weights_) == {"offset", "scale", "Q", "I"}
    assert [n.op_type for n in found.graph.node] == ["DequantizeLinear", "DequantizeLinear", "Sub", "Mul", "Gemm"]
    assert {name: held_again[name].dtype for name in given} == {name: np.asarray(w).dtype for name, w in given.items()}
    assert not np.array_equal(held_again["Q"], given["Q"])
    np.testing.assert_allclose(run(found, {"X": X})[0], network.predict(X), atol=0.01)


def test_a_new_head_behind_a_layer_that_quantizes_its_rows(tmp_path):
    """onnx does not know the operator, and so infers no shape behind it."""
    recurrent = held(
        """g (float[t,N,4] X) => (float[N,2] Y) { a, h = LSTM <hidden_size = 3> (X, W, R)
            axes = Constant <value_ints = [0]> () last = Squeeze(h, axes) Y = MatMul(last, V) }""",
        **{name: np.random.default_rng(0).standard_normal(shape).astype(np.float32) for name, shape in LSTM.items()},
    )
    onnx.save(recurrent, tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "q.onnx", op_types_to_quantize=["LSTM"])
    assert "DynamicQuantizeLSTM" in {n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node}
    X = np.random.default_rng(1).standard_normal((5, 12, 4)).astype(np.float32)
    network = OrtGradientClassifier(
        tmp_path / "q.onnx",
        head="new",
        features="last",
        weights_to_train="head",
        batch_axis={"X": 1},
        max_iter=5,
        random_state=0,
    ).fit({"X": X}, np.arange(12) % 3)
    assert {name: w.shape for name, w in network.weights_.items()} == {"head.weight": (3, 3), "head.bias": (3,)}
    assert network.loss_curve_[-1] < network.loss_curve_[0]


#: The shapes of the weights of a recurrent layer and of a last layer.
LSTM = {"W": (1, 12, 4), "R": (1, 12, 3), "V": (3, 2)}
