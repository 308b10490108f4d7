"""The attribute clip of RNN, GRU and LSTM: the operands of activations are clipped to a threshold."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run
from onnxtrain.testing import check_gradient

rng = np.random.default_rng(37)
T, N, INPUTS, H = 4, 2, 3, 2

FUNCTIONS = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Softplus": lambda x: np.log1p(np.exp(x)),
}


def recurrent(op_type, default, turn):
    """Return the operator by its definition, forward only; onnx.reference does not clip."""

    def _run(self, x, w, r, b, clip=None, activations=None, linear_before_reset=0, input_forget=0, **_):
        names = activations or default
        functions = [lambda x, f=FUNCTIONS[name]: f(np.clip(x, -clip, clip)) for name in names[:2]]
        functions += [FUNCTIONS[name] for name in names[2:]]  # onnxruntime does not clip the state of a cell
        wb, rb = np.split(b[0], 2)
        states, ys = [np.zeros((x.shape[1], r.shape[2]))] * 2, []
        for xt in x:
            states = turn(functions, xt @ w[0].T + wb, r[0].T, rb, states, linear_before_reset or input_forget)
            ys.append(states[0])
        return (np.stack(ys)[:, None],)

    return type(op_type, (OpRun,), {"op_domain": "", "_run": _run})


def rnn(functions, x, r, rb, states, _):
    return [functions[0](x + states[0] @ r + rb)] * 2


def gru(functions, x, r, rb, states, reset_last):
    (f, g), h = functions, states[0]
    (xz, xr, xn), (rz, rr, rn), (bz, br, bn) = (np.split(v, 3, axis=-1) for v in (x, r, rb))
    z, reset = f(xz + h @ rz + bz), f(xr + h @ rr + br)
    new = g(xn + (reset * (h @ rn + bn) if reset_last else (reset * h) @ rn + bn))
    return [(1 - z) * new + z * h] * 2


def lstm(functions, x, r, rb, states, coupled):
    (f, g, last), (h, c) = functions, states
    i, o, forget, new = np.split(x + h @ r + rb, 4, axis=-1)
    i = f(i)
    c = (1 - i if coupled else f(forget)) * c + i * g(new)
    return [f(o) * last(c), c]


RUNTIME = [
    recurrent("RNN", ["Tanh"], rnn),
    recurrent("GRU", ["Sigmoid", "Tanh"], gru),
    recurrent("LSTM", ["Sigmoid", "Tanh", "Tanh"], lstm),
]


def run_reference(onx, feeds):
    return ReferenceEvaluator(onx, new_ops=RUNTIME).run(None, feeds)


# name -> operator, number of gates, other attributes
LAYERS = {
    "rnn": ("RNN", 1, ""),
    "gru": ("GRU", 3, ""),
    "gru, reset behind the product": ("GRU", 3, "linear_before_reset = 1,"),
    "lstm": ("LSTM", 4, ""),
    "lstm, coupled gates": ("LSTM", 4, "input_forget = 1,"),
    "lstm, the state is not bounded": ("LSTM", 4, 'activations = ["Sigmoid", "Softplus", "Softplus"],'),
}


def layer(op_type, gates, attributes, clip):
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[T,N,{INPUTS}] X, float[1,{gates * H},{INPUTS}] W, float[1,{gates * H},{H}] R, float[1,{2 * gates * H}] B)
        => (float[T,1,N,{H}] Y)
        {{ Y = {op_type} <hidden_size = {H}, {attributes} clip = {clip}> (X, W, R, B) }}"""
    )
    shapes = [(T, N, INPUTS), (1, gates * H, INPUTS), (1, gates * H, H), (1, 2 * gates * H)]
    return onx, dict(zip("XWRB", (rng.uniform(-1, 1, shape) for shape in shapes), strict=True))


@pytest.mark.parametrize("clip", [0.3, 0.8, 50.0])
@pytest.mark.parametrize("op_type,gates,attributes", LAYERS.values(), ids=LAYERS)
def test_clip(op_type, gates, attributes, clip):
    onx, feeds = layer(op_type, gates, attributes, clip)
    (y,) = run(onx, {name: array.astype(np.float32) for name, array in feeds.items()})
    np.testing.assert_allclose(y, run_reference(onx, feeds)[0], rtol=1e-4, atol=1e-6)
    check_gradient(onx, feeds, run=run_reference, max_entries=12)


def test_no_threshold_is_no_node():
    onx, _ = layer("RNN", 1, "", 0.0)
    bodies = [a.g for node in onnx_derivative(onx).graph.node for a in node.attribute if a.HasField("g")]
    assert bodies
    assert not [node for body in bodies for node in body.node if node.op_type == "Clip"]
