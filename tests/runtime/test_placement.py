"""Every node of a training step runs on a GPU: onnxruntime-gpu tells where it places them, without one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx.parser
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVR

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, clear_caches
from onnxtrain.estimators import settings
from onnxtrain.runtime.device import can_be_recorded
from tests.devices import Pretended
from tests.placement import placements, problem, stand_ins

C, R = OrtGradientClassifier, OrtGradientRegressor
X, y = (part[:120] for part in load_digits(return_X_y=True))
X = (X / 16).astype(np.float32)
DIABETES, t = (part[:120] for part in load_diabetes(return_X_y=True))
IMAGES, SEQUENCES, TOKENS = X.reshape(-1, 1, 8, 8), X.reshape(-1, 8, 8), (X[:, :8] * 15).astype(np.int64)

HEAD = '<ir_version: 8, opset_import: ["" : 17]> net'

#: Shapes are computed as exporters write them.
CONVOLUTION = f"""{HEAD} (float[N, 1, 8, 8] image) => (float[N, 10] logits)
    <float[4, 1, 3, 3] filters, float[4] shift, float[4] scale, float[4] mean, float[4] variance,
     float[6, 4, 2, 2] more, float[6, 10] W, float[10] b, int64 zero = {{0}}, int64[1] first = {{0}}, int64[1] rest = {{-1}}>
    {{
        c = Conv<pads = [1, 1, 1, 1]>(image, filters, shift)
        n = BatchNormalization(c, scale, shift, mean, variance)
        r = Relu(n)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        d = Conv<strides = [2, 2]>(p, more)
        a = GlobalAveragePool(d)
        size = Shape(a)
        rows = Gather(size, zero)
        row = Unsqueeze(rows, first)
        flat = Concat<axis = 0>(row, rest)
        f = Reshape(a, flat)
        m = MatMul(f, W)
        logits = Add(m, b)
    }}"""
AVERAGES = CONVOLUTION.replace("GlobalAveragePool", "AveragePool<kernel_shape = [2, 2]>")
ENCODER = f"""{HEAD} (int64[N, 8] tokens) => (float[N, 10] logits)
    <float[16, 8] table, float[8, 24] QKV, float[8, 8] O, float[8] scale, float[8] shift, float[8, 16] V, float[16, 8] U,
     float[8, 10] W, float[10] b, int64 zero = {{0}}, int64[1] first = {{0}}, int64[3] heads = {{8, 2, 4}},
     int64[2] whole = {{8, 8}}, float root = {{2}}>
    {{
        x = Gather(table, tokens)
        z = LayerNormalization<axis = -1>(x, scale, shift)
        size = Shape(z)
        rows = Gather(size, zero)
        row = Unsqueeze(rows, first)
        split = Concat<axis = 0>(row, heads)
        joined = Concat<axis = 0>(row, whole)
        qkv = MatMul(z, QKV)
        q, k, v = Split<axis = 2>(qkv)
        q4 = Reshape(q, split)
        k4 = Reshape(k, split)
        v4 = Reshape(v, split)
        qt = Transpose<perm = [0, 2, 1, 3]>(q4)
        kt = Transpose<perm = [0, 2, 3, 1]>(k4)
        vt = Transpose<perm = [0, 2, 1, 3]>(v4)
        products = MatMul(qt, kt)
        scaled = Div(products, root)
        attention = Softmax<axis = -1>(scaled)
        mixed = MatMul(attention, vt)
        back = Transpose<perm = [0, 2, 1, 3]>(mixed)
        together = Reshape(back, joined)
        o = MatMul(together, O)
        s = Add(x, o)
        h = MatMul(s, V)
        e = Erf(h)
        u = MatMul(e, U)
        r = Add(s, u)
        mean = ReduceMean<axes = [1], keepdims = 0>(r)
        m = MatMul(mean, W)
        logits = Add(m, b)
    }}"""


def recurrent(operator: str, gates: int, attributes: str = "") -> str:
    """Return a network of a recurrent layer, its first state made for the rows of the batch."""
    states, more = ("h0, h0", ", last_c") if operator == "LSTM" else ("h0", "")
    return f"""{HEAD} (float[N, 8, 8] steps) => (float[N, 10] logits)
    <float[1, {4 * gates}, 8] Wx, float[1, {4 * gates}, 4] Wh, float[1, {8 * gates}] bias, float[4, 10] W, float[10] b,
     int64 one = {{1}}, int64[1] first = {{0}}, int64[1] layers = {{1}}, int64[1] units = {{4}}>
    {{
        turned = Transpose<perm = [1, 0, 2]>(steps)
        size = Shape(turned)
        rows = Gather(size, one)
        row = Unsqueeze(rows, first)
        state = Concat<axis = 0>(layers, row, units)
        h0 = ConstantOfShape(state)
        all, last{more} = {operator}<hidden_size = 4{attributes}>(turned, Wx, Wh, bias, , {states})
        h = Squeeze(last, first)
        m = MatMul(h, W)
        logits = Add(m, b)
    }}"""


PYTORCHS = ", linear_before_reset = 1"


def network(text):
    """Return a network written in ONNX, its weights drawn."""
    rng, proto = np.random.default_rng(0), onnx.parser.parse_model(text)
    for value in proto.graph.value_info:
        w = rng.uniform(0.1, 0.5, [d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(w, value.name))
    del proto.graph.value_info[:]
    return proto


def mlp(kind, X, y, **options):
    return kind(hidden_layer_sizes=(12,), tol=10, n_iter_no_change=1, random_state=0, **options).fit(X, y)


def tanh():
    return mlp(MLPRegressor, DIABETES, t, activation="tanh")


#: What is trained, how, its rows, and the operators that have no kernel for CUDA.
CASES = {
    "classifier": (lambda: C(mlp(MLPClassifier, X, y)), X, y, set()),
    "linear": (lambda: C(LogisticRegression(max_iter=500).fit(X, y), solver="sgd"), X, y, set()),
    "penalties, weights, clipping": (
        lambda: C(mlp(MLPClassifier, X, y), l1=1e-3, l2=1e-3, clip_norm=1.0, class_weight="balanced"),
        X,
        y,
        set(),
    ),
    "adamw, huber": (lambda: R(tanh(), solver="adamw", loss="huber"), DIABETES, t, set()),
    "rmsprop, quantile": (lambda: R(tanh(), solver="rmsprop", loss="quantile"), DIABETES, t, set()),
    "adagrad, absolute error": (lambda: R(tanh(), solver="adagrad", loss="absolute_error"), DIABETES, t, set()),
    "proximal": (lambda: R(None, l1=0.1, l1_method="proximal"), DIABETES, t, set()),
    "kernels": (lambda: R(SVR().fit(DIABETES, t), loss="log_cosh"), DIABETES, t, set()),
    "convolution": (lambda: C(network(CONVOLUTION)), IMAGES, y, set()),
    "average pooling": (lambda: C(network(AVERAGES)), IMAGES, y, set()),
    "encoder": (lambda: C(network(ENCODER)), TOKENS, y, set()),
    "LSTM": (lambda: C(network(recurrent("LSTM", 4))), SEQUENCES, y, set()),
    "GRU": (lambda: C(network(recurrent("GRU", 3, PYTORCHS))), SEQUENCES, y, set()),
    "GRU of a form that PyTorch has not": (lambda: C(network(recurrent("GRU", 3))), SEQUENCES, y, {"GRU"}),
    "trees": (
        lambda: R(GradientBoostingRegressor(n_estimators=5).fit(DIABETES, t)),
        DIABETES,
        t,
        {"TreeEnsembleRegressor"},
    ),
}


class Watched(Pretended):
    """A GPU that is the CPU, and keeps the training steps that it is given, and whether it is to record them."""

    steps: ClassVar[list[bytes]] = []
    recorded: ClassVar[list[bool]] = []

    def prepared(self, onx, options):
        """Return the model as it is."""
        self.is_step = any(y.name == "next_loss_sum" for y in onnx.load_model_from_string(onx).graph.output)
        self.steps.extend([onx] if self.is_step else [])
        return onx

    def providers(self, *, captured=False):
        """Return the execution providers of a CPU."""
        self.recorded.extend([captured] if self.is_step else [])
        return super().providers()


@pytest.fixture
def steps_of(monkeypatch):
    """``steps_of(name) -> list of bytes``: the steps of a case on a GPU, for full batches and for the last."""
    monkeypatch.setattr(settings, "find_device", lambda name: Watched("cuda"))

    def found(name):
        make, X, y, _ = CASES[name]
        clear_caches()  # of sessions of another test
        Watched.steps.clear()
        Watched.recorded.clear()
        make().set_params(max_iter=1, batch_size=50, random_state=0).fit(X, y)  # 120 rows: the last batch has 20
        return list(Watched.steps)

    return found


#: The steps that can be recorded: without Concat, Pad, Scan and products of stacks, once shapes are constants.
RECORDED = [name for name in CASES if name not in ("average pooling", "encoder", "LSTM", "trees") and "GRU" not in name]


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_recorded_once_its_shapes_are_constants(name, steps_of):
    steps = steps_of(name)
    assert Watched.recorded == [name in RECORDED] * 2
    if name == "convolution":
        assert not any(map(can_be_recorded, steps))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """A folder with libraries that stand in for CUDA's."""
    folder = tmp_path_factory.mktemp("stand_ins")
    stand_ins(folder)
    return folder


@pytest.mark.placement
@pytest.mark.skipif(bool(problem()), reason=problem())
@pytest.mark.parametrize("name", CASES)
def test_every_node_of_a_step_is_on_the_gpu(name, steps_of, libraries):
    steps = steps_of(name)
    assert len(steps) == 2
    for found in placements(steps, libraries):
        assert sum(found["CUDAExecutionProvider"].values()) > 10
        assert set(found.get("CPUExecutionProvider", ())) == CASES[name][-1]
