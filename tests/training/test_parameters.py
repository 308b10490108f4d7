"""Parameters are trained, buffers are not: the criteria that distinguish them."""

from __future__ import annotations

import io

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor, trainable_weights
from onnxtrain.convert.fixed_values import are_sines
from onnxtrain.errors import WeightError

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.normal(size=shape)


def waves(n, d):
    angle = np.arange(n)[:, None] / 10 ** (np.arange(d) / d)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, 2 * d)


def sines_of_grid(n):
    """Return the sines of the positions (n * n, 8) of a grid: those along one axis, and those along the other one."""
    angles = [np.outer(positions, [1, 0.1]) for positions in np.indices((n, n)).reshape(2, -1)]
    return np.concatenate([f(a) for a in angles for f in (np.sin, np.cos)], axis=1)


def causal(n, value):
    return np.triu(np.full((n, n), value), 1)


def grid(*lengths):
    return np.stack(np.meshgrid(*(np.linspace(-1, 1, n) ** 3 for n in lengths), indexing="ij"), axis=-1)[None]


def model(nodes, weights, rows="N,4"):
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> m (float[{rows}] X) => (float[N,1] Y) {{ {nodes} }}'
    )
    arrays = {name: np.asarray(w, np.float32) for name, w in weights.items()}
    onx.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in arrays.items())
    return onx


HEAD = {"V": normal(4, 1)}
ATTEND = "Q = MatMul(X, W) K = Transpose<perm = [0, 2, 1]>(Q) S = MatMul(Q, K)"
READ = "P = Softmax(M) O = MatMul(P, Q) F = Flatten(O) Y = MatMul(F, V)"
STATE = (
    "a = Constant<value_ints = [0]>() i = Constant<value_ints = [1]>() k = Constant<value_ints = [3]>() "
    "rows = Shape<start = 0, end = 1>(X) n = Concat<axis = 0>(i, rows, k) b = Expand(h, n) "
)
RECURRENT = (
    "T = Transpose<perm = [1, 0, 2]>(X) Z, L, C = LSTM<hidden_size = 3>(T, W, R, , , b, b) S = Squeeze(L, a) "
    "Y = MatMul(S, K)"
)
TOKENS = {"W": normal(4, 2), "V": normal(10, 1)}

#: nodes, initializers, the buffers among them
ROWS = {
    "BatchNormalization": (
        "H = BatchNormalization(X, g, b, m, v) Y = MatMul(H, V)",
        {"g": normal(4), "b": normal(4), "m": normal(4), "v": np.ones(4) / 3} | HEAD,
        {"m", "v"},
    ),
    "merged by an exporter": (
        "H = BatchNormalization(X, one, zero, zero, one) Y = MatMul(H, V)",
        {"one": np.ones(4), "zero": np.zeros(4)} | HEAD,
        {"one_1", "zero_1"},
    ),
    "(x - m) / sqrt(v + eps)": (
        "e = Constant<value_float = 1e-5>() C = Sub(X, m) E = Add(v, e) R = Sqrt(E) D = Div(C, R) Z = Mul(D, g) "
        "H = Add(Z, b) Y = MatMul(H, V)",
        {"g": normal(4), "b": normal(4), "m": normal(4), "v": np.ones(4) / 3} | HEAD,
        {"m", "v"},
    ),
    "x s - (m s - b)": (
        "e = Constant<value_float = 1e-5>() E = Add(v, e) R = Sqrt(E) I = Reciprocal(R) S = Mul(I, g) A = Mul(X, S) "
        "T = Mul(m, S) U = Sub(b, T) H = Add(A, U) Y = MatMul(H, V)",
        {"g": normal(4), "b": normal(4), "m": normal(4), "v": np.ones(4) / 3} | HEAD,
        {"m", "v"},
    ),
    "(x - m) / s": (
        "C = Sub(X, m) H = Div(C, s) Y = MatMul(H, V)",
        {"m": normal(4), "s": [1, 2, 3, 4]} | HEAD,
        {"m", "s"},
    ),
    "(x - m) s + b": (
        "C = Sub(X, m) D = Mul(C, s) H = Add(D, b) Y = MatMul(H, V)",
        {"m": normal(4), "s": normal(4), "b": normal(4)} | HEAD,
        {"m"},
    ),
    "images without their mean": (
        "e = Constant<value_float = 255.0>() I = Div(X, e) S = Sub(I, pixel_mean) C = Conv<pads = [1, 1, 1, 1]>(S, k) "
        "D = Add(C, pixel_mean) F = Flatten(D) Y = MatMul(F, V)",
        {"pixel_mean": normal(2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        {"pixel_mean"},
    ),
    "images by their deviation": (
        'S = Div(X, "onnx::Div_9") C = Conv<pads = [1, 1, 1, 1]>(S, k) F = Flatten(C) Y = MatMul(F, V)',
        {"onnx::Div_9": normal(1, 2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        {"onnx::Div_9"},
    ),
    "images by learned numbers": (
        "D = Sub(X, shift) S = Div(D, scale) C = Conv<pads = [1, 1, 1, 1]>(S, k) F = Flatten(C) Y = MatMul(F, V)",
        {"shift": normal(1, 2, 1, 1), "scale": normal(1, 2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        set(),
    ),
    "channels of a convolution, shifted": (
        "C = Conv<pads = [1, 1, 1, 1]>(X, k) D = Sub(C, b) F = Flatten(D) Y = MatMul(F, V)",
        {"b": normal(2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        set(),
    ),
    "FrozenBatchNorm2d, folded": (
        'C = Conv<pads = [1, 1, 1, 1]>(X, k) M = Mul(C, "onnx::Mul_3") A = Add(M, "onnx::Add_4") '
        "F = Flatten(A) Y = MatMul(F, V)",
        {
            "onnx::Mul_3": normal(1, 2, 1, 1),
            "onnx::Add_4": normal(1, 2, 1, 1),
            "k": normal(2, 2, 3, 3),
            "V": normal(18, 1),
        },
        {"onnx::Mul_3", "onnx::Add_4"},
    ),
    "a scale and a shift by their names": (
        "C = Conv<pads = [1, 1, 1, 1]>(X, k) M = Mul(C, gamma) A = Add(M, beta) F = Flatten(A) Y = MatMul(F, V)",
        {"gamma": normal(1, 2, 1, 1), "beta": normal(1, 2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        set(),
    ),
    "a scale and a shift that the dynamo exporter computed": (
        "C = Conv<pads = [1, 1, 1, 1]>(X, k) M = Mul(C, val_3) A = Add(M, val_4) F = Flatten(A) Y = MatMul(F, V)",
        {"val_3": normal(1, 2, 1, 1), "val_4": normal(1, 2, 1, 1), "k": normal(2, 2, 3, 3), "V": normal(18, 1)},
        set(),
    ),
    "(x - m) s": ("C = Sub(X, m) H = Mul(C, s) Y = MatMul(H, V)", {"m": normal(4), "s": normal(4)} | HEAD, set()),
    "x s + b": ("C = Mul(X, s) H = Add(C, b) Y = MatMul(H, V)", {"s": normal(4), "b": normal(4)} | HEAD, set()),
    "names": (
        "H = Mul(X, bn_moving_variance) Y = MatMul(H, V)",
        {"bn_moving_variance": normal(4)} | HEAD,
        {"bn_moving_variance"},
    ),
    "names of transformers": (
        "A = MatMul(X, m_inv_freq) S = Sin(A) Y = MatMul(S, V)",
        {"m_inv_freq": normal(4, 2), "V": normal(2, 1)},
        {"m_inv_freq"},
    ),
    "names of speech models": (
        'A = MatMul(X, "stft.forward_basis_buffer") B = MatMul(A, "mel_scale.fb") C = MatMul(B, "a.mel_scale.fb") '
        'Y = MatMul(C, "buffer.weight")',
        {"stft.forward_basis_buffer": normal(4, 2), "mel_scale.fb": normal(2, 2), "a.mel_scale.fb": normal(2, 2)}
        | {"buffer.weight": normal(2, 1)},
        {"stft.forward_basis_buffer", "a.mel_scale.fb"},
    ),
    "spectral_norm": (
        "W = Transpose<perm = [1, 0]>(a_orig) P = MatMul(a_orig, a_v) s = MatMul(a_u, P) D = Div(W, s) Y = MatMul(X, D)",
        {"a_orig": normal(1, 4), "a_u": normal(1), "a_v": normal(4)},
        {"a_u", "a_v"},
    ),
    "FrozenBatchNorm2d": (
        'e = Constant<value_float = 1e-5>() E = Add("n.running_var", e) R = Sqrt(E) s = Div("n.weight", R) '
        'M = Mul("n.running_mean", s) b = Sub("n.bias", M) Z = Mul(X, s) H = Add(Z, b) Y = MatMul(H, V)',
        {"n.weight": normal(4), "n.bias": normal(4), "n.running_mean": normal(4), "n.running_var": np.ones(4) / 3}
        | HEAD,
        {"n.weight", "n.bias", "n.running_mean", "n.running_var"},
    ),
    "BatchNormalization of Keras with JAX": (
        "e = Constant<value_float = 1e-3>() E = Add(c3, e) R = Sqrt(E) o = Constant<value_float = 1.0>() q = Div(o, R) "
        "s = Mul(q, c4) N = Neg(c2) M = Mul(N, s) b = Add(M, c5) Z = Mul(X, s) H = Add(Z, b) Y = MatMul(H, V)",
        {"c2": normal(4), "c3": np.ones(4) / 3, "c4": normal(4), "c5": normal(4)} | HEAD,
        {"c2", "c3"},
    ),
    "a normalization spelled out": (
        'C = Sub(X, "n.running_mean") S = Sqrt("n.running_var") D = Div(C, S) F = Mul(D, "n.weight") '
        'H = Add(F, "n.bias") Y = MatMul(H, V)',
        {"n.weight": normal(4), "n.bias": normal(4), "n.running_mean": normal(4), "n.running_var": np.ones(4) / 3}
        | HEAD,
        {"n.running_mean", "n.running_var"},
    ),
    "BatchNorm2d of reshaped statistics": (
        's = Constant<value_ints = [4]>() R = Reshape("n.running_var", s) '
        'H = BatchNormalization(X, "n.weight", "n.bias", "n.running_mean", R) Y = MatMul(H, V)',
        {"n.weight": normal(4), "n.bias": normal(4), "n.running_mean": normal(4), "n.running_var": np.ones((1, 4)) / 3}
        | HEAD,
        {"n.running_mean", "n.running_var"},
    ),
    "BatchNorm2d": (
        'H = BatchNormalization(X, "n.weight", "n.bias", "n.running_mean", "n.running_var") Y = MatMul(H, V)',
        {"n.weight": normal(4), "n.bias": normal(4), "n.running_mean": normal(4), "n.running_var": np.ones(4) / 3}
        | HEAD,
        {"n.running_mean", "n.running_var"},
    ),
    "the window of a Fourier transform": (
        "s = Constant<value_int = 2>() a = Constant<value_ints = [2]>() U = Unsqueeze(X, a) F = STFT(U, s, W) "
        "f = Constant<value_ints = [0, -1]>() R = Reshape(F, f) Y = MatMul(R, K)",
        {"W": np.hanning(4), "K": normal(6, 1)},
        {"W"},
    ),
    "the values of OneHot": (
        "d = Constant<value_int = 3>() k = Cast<to = 7>(X) O = OneHot(k, d, values) f = Constant<value_ints = [0, -1]>() "
        "R = Reshape(O, f) Y = MatMul(R, K)",
        {"values": [0, 1], "K": normal(12, 1)},
        {"values"},
    ),
    "zeros as the state before the first step": (
        STATE + RECURRENT,
        {"W": normal(1, 12, 4), "R": normal(1, 12, 3), "h": np.zeros((1, 1, 3)), "K": normal(3, 1)},
        {"h"},
    ),
    "a learned state before the first step": (
        STATE + RECURRENT,
        {"W": normal(1, 12, 4), "R": normal(1, 12, 3), "h": normal(1, 1, 3), "K": normal(3, 1)},
        set(),
    ),
    "zeros that a Scan starts from": (
        STATE + "g = Squeeze(b, a) S, Z = Scan<num_scan_inputs = 1, scan_input_axes = [1], "
        "body = body (float[N,3] s, float[N,4] x) => (float[N,3] t, float[N,3] z) "
        "{ p = MatMul(x, W) q = Mul(s, w) t = Add(p, q) z = Tanh(t) }>(g, X) Y = MatMul(S, K)",
        {"W": normal(4, 3), "w": normal(3), "h": np.zeros((1, 1, 3)), "K": normal(3, 1)},
        {"h"},
    ),
    "zeros into which values are scattered": (
        "i = Constant<value = int64[2, 2] {0, 0, 3, 0}>() W = ScatterND(zeros, i, U) Y = MatMul(X, W)",
        {"zeros": np.zeros((4, 1)), "U": normal(2)},
        {"zeros"},
    ),
    "zeros of BART": (
        'H = MatMul(X, V) Y = Add(H, "net.final_logits_bias")',
        {"net.final_logits_bias": np.zeros((1, 1))} | HEAD,
        {"net.final_logits_bias"},
    ),
    "weight_norm": (
        "N = ReduceL2<keepdims = 1>(a_v) D = Div(a_v, N) P = Mul(D, a_g) Y = MatMul(X, P)",
        {"a_g": normal(1, 1), "a_v": normal(4, 1)},
        set(),
    ),
    "-inf before Softmax": (f"{ATTEND} M = Add(S, mask) {READ}", {"mask": causal(5, -np.inf)} | TOKENS, {"mask"}),
    "-1e4 before Softmax": (f"{ATTEND} M = Add(S, mask) {READ}", {"mask": causal(5, -1e4)} | TOKENS, {"mask"}),
    "-100 before Softmax": (f"{ATTEND} M = Add(S, mask) {READ}", {"mask": causal(5, -100.0)} | TOKENS, {"mask"}),
    "-100 elsewhere": (
        "H = MatMul(X, W) M = Add(H, shift) Y = MatMul(M, V)",
        {"W": normal(4, 4), "shift": [0.0, -100.0, 0.0, -100.0]} | HEAD,
        set(),
    ),
    "a mask of which a part is taken": (
        f"from, to = Split<axis = 0, num_outputs = 2>(ends) {ATTEND} part = Slice(mask, from, to) M = Add(S, part) {READ}",
        {"mask": causal(7, -1e9)} | TOKENS,
        {"mask"},
    ),
    "a learned bias before Softmax": (f"{ATTEND} M = Add(S, bias) {READ}", {"bias": normal(5, 5)} | TOKENS, set()),
    "0 and 1 on a weight": (
        "U = Mul(W, mask) Y = MatMul(X, U)",
        {"W": normal(4, 1), "mask": [[0], [1], [1], [0]]},
        {"mask"},
    ),
    "a matrix of 0 and 1": ("H = MatMul(X, W) Y = MatMul(H, V)", {"W": np.eye(4)} | HEAD, set()),
    "sines of positions": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": waves(8, 3), "V": normal(48, 1)},
        {"table"},
    ),
    "sines of positions, transposed": (
        "A = MatMul(X, table) Y = MatMul(A, V)",
        {"table": waves(8, 2).T, "V": normal(8, 1)},
        {"table"},
    ),
    "sines of positions, shifted and scaled": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": 0.3 * waves(8, 3) + 0.1, "V": normal(48, 1)},
        {"table"},
    ),
    "cosines of positions alone, scaled as in YaRN": (
        "Z = Mul(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": 1.2 * np.cos(np.outer(np.arange(9), [1, 0.3, 0.1, 0.03])), "V": normal(36, 1)},
        {"table"},
    ),
    "sines of a Fourier transform, one of which is sin(pi n)": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": np.sin(np.outer(np.arange(9), np.arange(8)) * np.pi / 4), "V": normal(72, 1)},
        {"table"},
    ),
    "sines of a grid, after zeros": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": np.concatenate([np.zeros((1, 8)), sines_of_grid(3)]), "V": normal(80, 1)},
        {"table"},
    ),
    "a position bias that is linear in the distance": (
        "A = MatMul(X, W) B = Add(A, bias) S = Softmax(B) F = Flatten(S) Y = MatMul(F, V)",
        {"W": normal(4, 5), "bias": -np.abs(np.arange(5)[:, None] - np.arange(5)) / 8, "V": normal(25, 1)},
        {"bias"},
    ),
    "learned positions": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": normal(8, 6) / 3, "V": normal(48, 1)},
        set(),
    ),
    "positions not yet learned": (
        "Z = Add(X, table) F = Flatten(Z) Y = MatMul(F, V)",
        {"table": np.zeros((8, 6)), "V": normal(48, 1)},
        set(),
    ),
    "frequencies": (
        "A = MatMul(X, f) S = Sin(A) C = Cos(A) H = Concat<axis = 1>(S, C) Y = MatMul(H, V)",
        {"f": 10.0 ** -np.arange(4)[None], "V": normal(8, 1)},
        {"f"},
    ),
    **{
        f"frequencies that are {name}": (
            "A = Mul(X, f) S = Sin(A) C = Cos(A) H = Concat<axis = 1>(S, C) Y = MatMul(H, V)",
            {"f": f, "V": normal(8, 1)},
            {"f"},
        )
        for name, f in {"powers of 2": np.pi * 2.0 ** np.arange(4), "multiples": np.pi * np.arange(1, 5)}.items()
    },
    "factors that are powers of 2": (
        "A = Mul(X, f) S = Tanh(A) Y = MatMul(S, V)",
        {"f": 2.0 ** np.arange(4), "V": normal(4, 1)},
        set(),
    ),
    "centers at equal steps": (
        "H = MatMul(X, W) D = Sub(H, g) S = Mul(D, D) N = Neg(S) E = Exp(N) Y = MatMul(E, V)",
        {"W": normal(4, 6), "g": np.linspace(-2, 2, 6), "V": normal(6, 1)},
        {"g"},
    ),
    "intercepts at equal steps": (
        "H = MatMul(X, W) D = Add(H, b) T = Tanh(D) Y = MatMul(T, V)",
        {"W": normal(4, 6), "b": np.linspace(-2, 2, 6), "V": normal(6, 1)},
        set(),
    ),
    "a grid of coordinates": (
        "H = MatMul(grid, W) T = Tanh(H) F = Flatten<axis = 3>(T) A = Transpose<perm = [1, 0]>(F) P = MatMul(X, A) "
        "Y = MatMul(P, V)",
        {"grid": grid(3, 5), "W": normal(2, 4), "V": normal(15, 1)},
        {"grid"},
    ),
    "a table of the shape of a grid": (
        "H = MatMul(grid, W) T = Tanh(H) F = Flatten<axis = 3>(T) A = Transpose<perm = [1, 0]>(F) P = MatMul(X, A) "
        "Y = MatMul(P, V)",
        {"grid": normal(1, 3, 5, 2), "W": normal(2, 4), "V": normal(15, 1)},
        set(),
    ),
    "an intercept without axes": ("H = MatMul(X, V) Y = Add(H, b)", {"b": 0.5} | HEAD, set()),
    "a scalar of a formula": ("H = MatMul(X, V) T = Tanh(H) Y = Add(T, b)", {"b": 0.5} | HEAD, {"b"}),
    "a second intercept": ("H = MatMul(X, V) G = Add(H, b) Y = Add(G, c)", {"b": [0.5], "c": 0.5} | HEAD, {"c"}),
    "the half of x / 6 + 1 / 2": (
        "Z = MatMul(X, V) D = Mul(Z, sixth) P = Add(D, half) C = Relu(P) Y = Mul(Z, C)",
        {"sixth": 1 / 6, "half": 0.5} | HEAD,
        {"sixth", "half"},
    ),
    "rows brought to a range": (
        "S = Mul(X, scale) H = Add(S, shift) Y = MatMul(H, V)",
        {"scale": 0.8, "shift": -1.0} | HEAD,
        {"scale", "shift"},
    ),
    "results brought back": (
        "H = MatMul(X, V) S = Mul(H, deviation) Y = Add(S, mean)",
        {"deviation": [7.0], "mean": 30.0} | HEAD,
        {"deviation", "mean"},
    ),
    "the 1 of 1 - p": ("H = MatMul(X, V) Y = Sub(one, H)", {"one": 1.0} | HEAD, {"one"}),
    "an intercept that is subtracted": ("H = MatMul(X, V) Y = Sub(H, b)", {"b": 0.5} | HEAD, set()),
    "a scalar factor": ("H = MatMul(X, V) Y = Mul(H, s)", {"s": 2.0} | HEAD, {"s"}),
}

#: Inputs of other shapes than (N, 4).
SHAPES = {
    "sines of positions": "N,8,6",
    "sines of positions, shifted and scaled": "N,8,6",
    "cosines of positions alone, scaled as in YaRN": "N,9,4",
    "sines of a Fourier transform, one of which is sin(pi n)": "N,9,8",
    "sines of a grid, after zeros": "N,10,8",
    "learned positions": "N,8,6",
    "positions not yet learned": "N,8,6",
    "frequencies": "N,1",
    "zeros as the state before the first step": "N,2,4",
    "a learned state before the first step": "N,2,4",
    "zeros that a Scan starts from": "N,2,4",
}


def of_row(row):
    nodes, weights, _ = ROWS[row]
    shape = "N,5,4" if "Softmax" in nodes else "N,2,3,3" if "Conv" in nodes else SHAPES.get(row, "N,4")
    onx = model(nodes, weights, shape)
    if "ends" in nodes:
        onx.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 5, 5]), "ends"))
    return onx


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (0, 2, 2)])
def test_an_array_without_values_is_no_table_of_sines(shape):
    assert not are_sines(np.zeros(shape))


@pytest.mark.parametrize("opset", [21, 23])
def test_the_angles_of_a_rotary_embedding_are_not_trained(opset):
    """A short table scaled as in YaRN has too few values to be recognized as sines."""
    if opset > onnx.defs.onnx_opset_version() or (opset > 21 and onnxruntime.__version__.startswith("1.19.")):
        pytest.skip("onnx or onnxruntime does not know the opset")
    operator = {
        21: "com.microsoft.RotaryEmbedding<num_heads = 2>(H, p, cos, sin)",
        23: "RotaryEmbedding<num_heads = 2>(H, cos, sin, p)",
    }[opset]
    onx = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m (float[N,6,3] X) => (float[N,8] Y) {{
            H = MatMul(X, W) s = Shape<start = 0, end = 2>(X) p = Expand(places, s) R = {operator} T = Tanh(R)
            a = Constant<value_ints = [1]>() Y = ReduceMean<keepdims = 0>(T, a) }}""")
    angles = np.arange(6)[:, None] * [1, 0.01]
    arrays = {"W": normal(3, 8), "cos": 1.2 * np.cos(angles), "sin": 1.2 * np.sin(angles)}
    onx.graph.initializer.extend(numpy_helper.from_array(w.astype(np.float32), name) for name, w in arrays.items())
    onx.graph.initializer.append(numpy_helper.from_array(np.arange(6)[None], "places"))
    assert {w.name: w.kind for w in trainable_weights(onx)} == {"W": "weight", "cos": "buffer", "sin": "buffer"}
    assert list(OrtGradientRegressor(onx, max_iter=1).fit(normal(8, 6, 3), np.tanh(normal(8, 8))).weights_) == ["W"]


#: step of preprocessing, type of the rows, the buffers that it becomes in the file of skl2onnx
STEPS = {
    "StandardScaler": (StandardScaler(), np.float32, {"offset", "scale"}),
    "StandardScaler in float64": (StandardScaler(), np.float64, {"Su_Subcst", "Di_Divcst"}),
    "only means": (StandardScaler(with_std=False), np.float32, {"offset"}),
    "only means in float64": (StandardScaler(with_std=False), np.float64, {"Su_Subcst"}),
    "RobustScaler": (RobustScaler(), np.float32, {"offset", "scale"}),
    "MaxAbsScaler": (MaxAbsScaler(), np.float32, {"scale"}),
    "MinMaxScaler": (MinMaxScaler(), np.float32, {"Mu_Mulcst", "Ad_Addcst"}),
    "MinMaxScaler in float64": (MinMaxScaler(), np.float64, {"Mu_Mulcst", "Ad_Addcst"}),
    "SimpleImputer": (SimpleImputer(), np.float32, {"imputed"}),
    "means after a MinMaxScaler": (
        make_pipeline(MinMaxScaler(), RobustScaler(with_scaling=False)),
        np.float64,
        {"Mu_Mulcst", "Ad_Addcst", "Su_Subcst"},
    ),
    "two steps": (
        make_pipeline(SimpleImputer(), MinMaxScaler()),
        np.float32,
        {"imputed", "Mu_Mulcst", "Ad_Addcst"},
    ),
}


@pytest.mark.parametrize("row", STEPS)
def test_statistics_of_preprocessing_are_not_trained_unless_they_are_named(row):
    step, dtype, buffers = STEPS[row]
    X = normal(30, 3) + 2
    y = X.sum(axis=1)
    onx = to_onnx(make_pipeline(step, Ridge()).fit(X, y), X[:1].astype(dtype))
    kinds = {w.name: w.kind for w in trainable_weights(onx)}
    assert kinds == dict.fromkeys(buffers, "buffer") | {"coef": "weight", "intercept": "weight"}
    tuned = OrtGradientRegressor(onx, max_iter=1).fit(X, y)
    assert set(tuned.weights_) == {"coef", "intercept"}
    again = OrtGradientRegressor(tuned.get_trained_onnx(), max_iter=1).fit(X, y)
    assert set(again.weights_) == {"coef", "intercept"}
    everything = OrtGradientRegressor(onx, max_iter=1, weights_to_train="all").fit(X, y)
    assert set(everything.weights_) == set(kinds)


def test_a_model_of_buffers_alone_names_them():
    X = normal(30, 3)
    scaler = OrtGradientRegressor(to_onnx(StandardScaler().fit(X), X[:1].astype(np.float32)), max_iter=1)
    with pytest.raises(WeightError, match=r"name those to train, as in weights_to_train=\['offset', 'scale'\]"):
        scaler.fit(X, X)
    assert set(scaler.set_params(weights_to_train=["offset", "scale"]).fit(X, X).weights_) == {"offset", "scale"}


def test_leaves_of_two_classes_are_no_table_of_sines():
    """The free parameters of two probabilities lie on a circle, as a sine and a cosine do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=200) > 0
    forest = RandomForestClassifier(3, max_depth=5, random_state=0).fit(X, y)
    onx = to_onnx(forest, X[:1], options={"zipmap": False}, target_opset=15)
    assert list(OrtGradientClassifier(onx, max_iter=1).fit(X, y.astype(int)).weights_) == ["leaf_values"]


@pytest.mark.filterwarnings("ignore:y is from .* so it cannot predict")  # a Tanh or a Sigmoid without a scale
@pytest.mark.parametrize("row", ROWS)
def test_buffers_are_not_trained_unless_they_are_named(row):
    onx, buffers = of_row(row), ROWS[row][2]
    onnx.checker.check_model(onx)
    kinds = {w.name: w.kind for w in trainable_weights(onx)}
    assert {name for name, kind in kinds.items() if kind == "buffer"} == buffers
    X = normal(12, *(d.dim_value for d in onx.graph.input[0].type.tensor_type.shape.dim[1:]))
    names = {
        how: set(
            OrtGradientRegressor(onx, max_iter=0, weights_to_train=how)
            .fit(X, X.sum(axis=tuple(range(1, X.ndim))))
            .weights_
        )
        for how in (None, "all", "-nothing*", *buffers)
    }
    assert names.pop(None) == names.pop("-nothing*") == set(kinds) - buffers
    assert names.pop("all") == set(kinds)
    assert all(found == {name} for name, found in names.items())


#: What torch.onnx.export(dynamo=True) says of a module with these parameters and buffers.
SIGNATURE = """
# inputs
p_scale: PARAMETER target='scale'
p_m_scale: PARAMETER target='m.scale'
b_m_rotary_inv_freq: BUFFER target='m.rotary.inv_freq' persistent=False
b_m_table: BUFFER target='m.table' persistent=True
x: USER_INPUT

# outputs
linear: USER_OUTPUT
"""


@pytest.mark.parametrize(
    "sources, kind",
    [
        (["cos", "arange", "m.rotary.inv_freq"], "buffer"),
        (["cos", "m.rotary.inv_freq", "m.scale"], "weight"),
        (["m.scale"], "weight"),
        (["m.table"], "buffer"),
        (["m.table", "scale"], "weight"),
        (["scale", "permute"], "weight"),
        (["val_1", "val_2"], "buffer"),
        (["full", "unsqueeze"], "buffer"),
    ],
)
def test_what_an_exporter_folded_from_no_parameter_is_not_trained(sources, kind):
    onx = model("H = Mul(X, folded) Y = MatMul(H, V)", {"folded": normal(1, 4)} | HEAD)
    onx.producer_name = "pytorch"
    onx.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=SIGNATURE)
    info = onnx.helper.make_tensor_value_info("folded", onnx.TensorProto.FLOAT, [1, 4])
    info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=repr(sources))
    onx.graph.value_info.append(info)
    assert {w.name: w.kind for w in trainable_weights(onx)} == {"folded": kind, "V": "weight"}


@pytest.mark.filterwarnings(
    "ignore:.*Mul_3, which have one element", "ignore:.* other names than parameters of torch.nn"
)
@pytest.mark.parametrize("name", ["onnx::Mul_3", "/model/Constant_output_0", "387"])
def test_scalars_of_the_code_of_a_module_are_not_trained(name):
    """A simplifier makes initializers of constants: the first position of a grid, a stride; PyTorch's names tell."""
    scalars = {name: np.array(0.5), "net.scale": np.array(2.0)}
    onx = model(f'H = Mul(X, "{name}") Z = Mul(H, "net.scale") Y = MatMul(Z, V)', scalars | HEAD)
    onx.producer_name = "pytorch"
    rows = rng.normal(size=(20, 4))
    trained = OrtGradientRegressor(onx, max_iter=1).fit(rows, rows[:, 0])
    assert set(trained.weights_) == {"net.scale", "V"}


def test_there_is_one_answer_to_what_can_be_trained():
    onx = model("A = MatMul(X, W) B = Floor(A) Y = MatMul(B, V)", {"W": normal(4, 4)} | HEAD)
    assert [w.name for w in trainable_weights(onx)] == ["V"]
    X = normal(20, 4)
    assert list(OrtGradientRegressor(onx, max_iter=1, weights_to_train="all").fit(X, X[:, 0]).weights_) == ["V"]
    with pytest.raises(WeightError, match="'W' is neither a weight that the output 'Y' depends on"):
        OrtGradientRegressor(onx, weights_to_train=["W"]).fit(X, X[:, 0])


def test_base_values_of_trees_are_buffers():
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor

    X = normal(50, 3).astype(np.float32)
    onx = to_onnx(GradientBoostingRegressor(n_estimators=3).fit(X, X[:, 0]), X[:1])
    assert {w.name: w.kind for w in trainable_weights(onx)} == {"base_values": "buffer", "leaf_values": "weight"}


def test_scales_that_an_operator_does_not_differentiate_are_not_trained():
    arrays = {"W": normal(4, 4), "roi": np.zeros(4, np.float32), "scales": np.array([1, 2], np.float32)}
    onx = model("A = MatMul(X, W) B = Resize(A, roi, scales) Y = MatMul(B, V)", arrays | {"V": normal(8, 1)})
    assert {w.name for w in trainable_weights(onx)} == {"W", "V"}
    X = normal(20, 4)
    assert set(OrtGradientRegressor(onx, max_iter=1).fit(X, X[:, 0]).weights_) == {"W", "V"}


# what PyTorch exports -------------------------------------------------------------

torch = pytest.importorskip("torch", reason="PyTorch makes these models")
nn = torch.nn


class Normed(nn.Module):
    """Statistics, scalars, and buffers that no structure shows."""

    def __init__(self):
        super().__init__()
        self.first, self.bn, self.plain = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.BatchNorm1d(6, affine=False)
        self.slope, self.factor, self.shift = (
            nn.PReLU(),
            nn.Parameter(torch.tensor(0.7)),
            nn.Parameter(torch.tensor(0.1)),
        )
        self.last = nn.Linear(6, 1)
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("std", torch.rand(4) + 0.5)

    def forward(self, x):
        h = self.bn(self.first((x - self.mean) / self.std)) * self.factor + self.shift
        return self.last(self.slope(self.plain(torch.nn.functional.gelu(h))))


class Residual(nn.Module):
    """Two blocks of a ResNet."""

    def __init__(self):
        super().__init__()
        convs = [nn.Conv2d(1, 3, 3, padding=1, bias=False), *(nn.Conv2d(3, 3, 3, padding=1, bias=False) for _ in "12")]
        self.convs, self.norms = nn.ModuleList(convs), nn.ModuleList(nn.BatchNorm2d(3) for _ in convs)
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        h = self.norms[0](self.convs[0](x)).relu()
        for conv, norm in zip(self.convs[1:], self.norms[1:], strict=True):
            h = (norm(conv(h)) + h).relu()
        return self.last(h.mean((2, 3)))


class Decoder(nn.Module):
    """Positions, a causal mask and rotations."""

    def __init__(self):
        super().__init__()
        self.embed, self.q, self.k, self.last = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("table", torch.tensor(waves(12, 4), dtype=torch.float32)[None])
        self.register_buffer("mask", torch.triu(torch.full((12, 12), float("-inf")), 1))
        self.register_buffer("inv_freq", 10000 ** (-torch.arange(0, 8, 2) / 8))

    def forward(self, x):
        n = x.size(1)
        h = self.embed(x) + self.table[:, :n]
        turns = torch.outer(torch.arange(n).float(), self.inv_freq)
        turn = torch.cat([turns.cos(), turns.sin()], dim=-1)
        scores = (self.q(h) * turn) @ (self.k(h) * turn).transpose(1, 2) + self.mask[:n, :n]
        return self.last(self.norm(scores.softmax(-1) @ h).mean(1))


MODULES = {"statistics and scalars": (Normed, (4,)), "residual": (Residual, (1, 6, 6)), "decoder": (Decoder, (6, 3))}


def exported(module, x, *, dynamo):
    file = io.BytesIO()
    if not dynamo:  # as it is, without folding
        options = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}
        torch.onnx.export(module, (x,), file, dynamo=False, dynamic_axes={"x": {0: "N"}}, input_names=["x"], **options)
        return file.getvalue()
    shapes = {"x": {0: torch.export.Dim("N", min=2)}}
    return torch.onnx.export(
        module, (x,), dynamo=True, optimize=False, dynamic_shapes=shapes, input_names=["x"], verbose=False
    ).model_proto


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("name", MODULES)
def test_named_parameters_are_what_is_trained(name, dynamo):
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module, x = make(), torch.randn(16, *shape)
    with torch.no_grad():
        for _ in range(3):
            module.train()(x)
        for w in module.parameters():  # else the exporter keeps equal ones once
            w += 0.1 * torch.randn(w.shape)
    module.eval()
    y = torch.randn(16)
    tuned = OrtGradientRegressor(
        exported(module, x[:2], dynamo=dynamo), solver="sgd", learning_rate=0.01, shuffle=False, max_iter=10
    ).fit(x.numpy(), y.numpy())
    assert set(tuned.weights_) == dict(module.named_parameters()).keys()
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    for _ in range(10):
        loss = ((module(x).ravel() - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for key, w in module.named_parameters():
        np.testing.assert_allclose(tuned.weights_[key], w.detach().numpy(), atol=1e-4)


NORMS = {
    "layer": lambda: nn.LayerNorm((4, 5), elementwise_affine=False),
    "instance": lambda: nn.InstanceNorm1d(4),
    "group": lambda: nn.GroupNorm(2, 4, affine=False),
    "group, with weights": lambda: nn.GroupNorm(2, 4),
}


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("name", NORMS)
def test_ones_and_zeros_that_the_exporter_writes_are_not_trained(name):
    module = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), NORMS[name](), nn.Flatten(), nn.Linear(20, 1)).eval()
    shapes = ({0: torch.export.Dim("N", min=2)},)
    onx = torch.onnx.export(module, (torch.randn(2, 3, 5),), dynamo=True, dynamic_shapes=shapes, verbose=False)
    kinds = {w.name: w.kind for w in trainable_weights(onx.model_proto)}
    assert sum(kind == "weight" for kind in kinds.values()) == len(list(module.parameters()))
    assert {name for name, kind in kinds.items() if kind == "weight"} >= {"0.weight", "0.bias", "3.weight", "3.bias"}


class Scaled(nn.Module):
    """A parameter that the exporter transposes, named like what it calculates."""

    def __init__(self):
        super().__init__()
        self.last, self.scale = nn.Linear(4, 1), nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x):
        return self.last(x * self.scale.permute(2, 1, 0).squeeze(0))


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_folded_parameters_are_trained():
    onx = torch.onnx.export(Scaled().eval(), (torch.randn(2, 4),), dynamo=True, verbose=False).model_proto
    assert [w.kind for w in trainable_weights(onx)] == ["weight"] * 3


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_ones_and_zeros_of_the_code_that_several_normalizations_share_are_not_trained():
    """InstanceNorm2d has neither weight nor bias: the exporter makes ones and zeros, and keeps equal ones once."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.InstanceNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3), nn.InstanceNorm2d(3), nn.ReLU()]
    module, x = nn.Sequential(*layers, nn.Flatten(), nn.Linear(48, 1)), torch.randn(8, 1, 8, 8)
    shapes = {"input": {0: torch.export.Dim("N", min=2)}}
    onx = torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False).model_proto
    assert {w.name for w in trainable_weights(onx) if w.kind == "weight"} == {n for n, _ in module.named_parameters()}
    trained = OrtGradientRegressor(onx, max_iter=1).fit(x.numpy(), x.numpy().sum(axis=(1, 2, 3)))
    assert set(trained.weights_) == {n for n, _ in module.named_parameters()}
