"""Rules of quantization: scales have gradients, the rounding is passed straight through."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(31)
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def integers(*shape, dtype=np.int8):
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -99), min(info.max, 99), shape).astype(dtype)


def scales(*shape):
    return rng.uniform(0.5, 2, shape)


X = integers(2, 5, 3)
DEQUANTIZE = {
    "one scale": ([X, scales()], {}),
    "one scale, a zero point": ([X, scales(), integers()], {}),
    "a vector of one scale": ([X, scales(1)], {}),
    "one axis": ([X, scales(5), integers(5)], {}),
    "first axis": ([X, scales(2)], {"axis": 0}),
    "last axis": ([X, scales(3), integers(3)], {"axis": -1}),
    "a vector": ([integers(4), scales(4)], {"axis": 0}),
    "blocks": ([integers(2, 6, 3), scales(2, 3, 3), integers(2, 3, 3)], {"axis": 1, "block_size": 2}),
    "the last block is shorter": ([X, scales(2, 3, 3)], {"axis": 1, "block_size": 2}),
    "blocks of the last axis": ([X, scales(2, 5, 2)], {"axis": -1, "block_size": 2}),
    "int32": ([integers(3, dtype=np.int32), scales()], {}),
    "uint8": ([integers(3, dtype=np.uint8), scales(), integers(dtype=np.uint8)], {}),
    "float8": ([np.array([0.5, -3, 40], ml_dtypes.float8_e4m3fn), scales()], {}),
}


@pytest.mark.parametrize("arrays,attributes", DEQUANTIZE.values(), ids=DEQUANTIZE)
def test_dequantize_linear(check_rule, arrays, attributes):
    check_rule("DequantizeLinear", arrays, attributes)


def test_a_quantized_layer():
    """The gradient of the scale in float32, as onnxruntime computes it."""
    onx = onnx.parser.parse_model(
        f"""{HEAD} layer (float[N,3] X, int8[3,2] Q, float[2] S, int8[2] Z) => (float[N,2] Y)
        {{ W = DequantizeLinear <axis = 1> (Q, S, Z) Y = MatMul(X, W) }}"""
    )
    x, q, s, z = rng.standard_normal((4, 3)).astype(np.float32), integers(3, 2), scales(2), integers(2)
    dy = rng.standard_normal((4, 2)).astype(np.float32)
    dx, ds = run(onnx_derivative(onx), {"X": x, "Q": q, "S": s.astype(np.float32), "Z": z, "Y_grad": dy})
    steps = q.astype(float) - z
    np.testing.assert_allclose(dx, dy @ (steps * s).T, rtol=1e-4)
    np.testing.assert_allclose(ds, ((x.T @ dy) * steps).sum(axis=0), rtol=1e-4)


def test_half_precision_is_summed_in_float32():
    """Each product is larger than the largest number of float16, their sum is not."""
    onx = onnx.parser.parse_model(
        f"{HEAD} g (int32[2] Q, float16 S) => (float16[2] Y) {{ Y = DequantizeLinear(Q, S) }}"
    )
    feeds = {
        "Q": np.array([200_000, -199_000], np.int32),
        "S": np.array(1e-3, np.float16),
        "Y_grad": np.ones(2, np.float16),
    }
    (ds,) = run(onnx_derivative(onx), feeds)
    assert ds.dtype == np.float16
    assert ds == 1000


DYNAMIC = {"both signs": [[-1.0, 2.0, 0.5]], "positive": [[1.0, 2.0, 0.5]], "negative": [[-1.0, -2.0, -0.5]]}


@pytest.mark.parametrize("x", DYNAMIC.values(), ids=DYNAMIC)
def test_dynamic_quantize_linear(x):
    """The scale spans the numbers and 0; it is float32 by definition, so the slope is held against the formula."""
    onx = onnx.parser.parse_model(
        f"{HEAD} g (float[1,N] X) => (uint8[1,N] Y, float S, uint8 Z) {{ Y, S, Z = DynamicQuantizeLinear(X) }}"
    )
    x = np.array(x, np.float32)
    (dx,) = run(onnx_derivative(onx), {"X": x, "S_grad": np.array(255, np.float32)})
    np.testing.assert_allclose(dx, ((x == x.max()) & (x > 0)) * 1.0 - ((x == x.min()) & (x < 0)), rtol=1e-6)


# ------------------------------------------------------- through the rounding
#
# Not against central differences: the slope of a staircase is 0, or as large as the step is small. The rule is the
# straight-through estimate, so that of PyTorch's fake_quantize is held against it, and its formula.

X8 = rng.normal(0, 60, (4, 3, 5)).astype(np.float32)  # a part of it outside -128 ... 127 steps

#: type of the integers, scales, zero points, axis
ROUNDED = {
    "int8": (np.int8, 0.7, 3, None),
    "uint8": (np.uint8, 0.4, 100, None),
    "no zero point": (np.uint8, 0.4, None, None),
    "int16": (np.int16, 0.001, -5, None),
    "uint16": (np.uint16, 0.001, 30_000, None),
    "int4": (ml_dtypes.int4, 9.0, 1, None),
    "uint4": (ml_dtypes.uint4, 9.0, 8, None),
    "one axis": (np.int8, [0.3, 0.7, 1.1], [0, 3, -2], 1),
    "first axis": (np.uint8, [0.3, 0.7, 1.1, 0.2], [120, 3, 128, 255], 0),
    "last axis": (np.int8, [0.3, 0.7, 1.1, 0.2, 1.0], [0] * 5, -1),
}


def rounded(dtype, scale, zero, axis, block=0, shape="N,3,5"):
    """Return a model that quantizes and dequantizes, and its scale as a feed."""
    dims = f"[{','.join(map(str, np.shape(scale)))}]" if np.ndim(scale) else ""
    given = [f"axis = {axis}"] * (axis is not None) + [f"block_size = {block}"] * bool(block)
    attributes = f"<{', '.join(given)}>" if given else ""
    used = "" if zero is None else ", Z"
    onx = onnx.parser.parse_model(
        f"{HEAD} g (float[{shape}] X, float{dims} S) => (float[{shape}] Y)"
        f"{{ Q = QuantizeLinear {attributes} (X, S{used}) Y = DequantizeLinear {attributes} (Q, S{used}) }}"
    )
    if zero is not None:
        onx.graph.initializer.append(onnx.numpy_helper.from_array(np.array(zero, dtype), "Z"))
    return onx, {"S": np.array(scale, np.float32)}


def expected(x, dy, dtype, scale, zero):
    """Return both gradients by the formula; the second for each element."""
    info = ml_dtypes.iinfo(dtype)
    steps = np.round(x / scale) + zero
    inside = (steps >= info.min) & (steps <= info.max)
    return dy * inside, dy * (np.clip(steps, info.min, info.max) - zero - inside * x / scale)


@pytest.mark.parametrize("dtype, scale, zero, axis", ROUNDED.values(), ids=ROUNDED)
def test_the_gradient_goes_straight_through_a_rounding(dtype, scale, zero, axis):
    onx, feeds = rounded(dtype, scale, zero, axis)
    dy = rng.standard_normal(X8.shape).astype(np.float32)
    dx, ds = run(onnx_derivative(onx), {"X": X8, **feeds, "Y_grad": dy})
    others = tuple(i for i in range(3) if axis is not None and i != axis % 3) or None
    along = [-1 if axis is not None and i == axis % 3 else 1 for i in range(3)]
    s, z = (np.reshape(np.array(v if v is not None else 0, np.float64), along) for v in (scale, zero))
    by_x, by_s = expected(X8, dy, dtype, s, z)
    assert 0 < (by_x == 0).mean() < 1
    np.testing.assert_allclose(dx, by_x, rtol=1e-5)
    np.testing.assert_allclose(ds, by_s.sum(axis=others), rtol=1e-3)


@pytest.mark.parametrize("n", [6, 5], ids=["whole blocks", "the last block is shorter"])
@pytest.mark.parametrize("shape", ["4,{n}", "4,M"], ids=["static", "symbolic"])
def test_blocks_that_are_rounded(n, shape):
    scale = rng.uniform(0.2, 0.6, (4, 3)).astype(np.float32)
    zero = rng.integers(-3, 3, (4, 3)).astype(np.int8)
    onx, feeds = rounded(np.int8, scale, zero, 1, block=2, shape=shape.format(n=n))
    x, dy = rng.normal(0, 40, (4, n)).astype(np.float32), rng.standard_normal((4, n)).astype(np.float32)
    dx, ds = run(onnx_derivative(onx), {"X": x, **feeds, "Y_grad": dy})
    s, z = (np.repeat(v, 2, axis=1)[:, :n].astype(np.float64) for v in (scale, zero))
    by_x, by_s = expected(x, dy, np.int8, s, z)
    np.testing.assert_allclose(dx, by_x, rtol=1e-5)
    np.testing.assert_allclose(ds, np.add.reduceat(by_s, [0, 2, 4], axis=1), rtol=1e-3)


@pytest.mark.parametrize("axis", [None, 1])
def test_the_estimate_is_that_of_pytorch(axis):
    torch = pytest.importorskip("torch", reason="the estimate is compared with PyTorch's")
    scale, zero = (0.7, 3) if axis is None else ([0.3, 0.7, 1.1], [0, 3, -2])
    onx, feeds = rounded(np.int8, scale, zero, axis)
    dy = rng.standard_normal(X8.shape).astype(np.float32)
    (dx,) = run(onnx_derivative(onx, inputs=["X"]), {"X": X8, **feeds, "Y_grad": dy})
    x = torch.tensor(X8, requires_grad=True)
    if axis is None:
        y = torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)
    else:
        s, z = torch.tensor(scale), torch.tensor(zero, dtype=torch.int32)
        y = torch.fake_quantize_per_channel_affine(x, s, z, axis, -128, 127)
    y.backward(torch.tensor(dy))
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-5)


def test_float8_has_no_rounding_to_integers():
    onx, feeds = rounded(ml_dtypes.float8_e4m3fn, 0.5, 0, None, shape="N")
    x = np.array([0.3, -223.9, 224.5, 1e4], np.float32)  # 448 is the largest
    (dx,) = run(onnx_derivative(onx, inputs=["X"]), {"X": x, **feeds, "Y_grad": np.ones(4, np.float32)})
    np.testing.assert_array_equal(dx, [1, 1, 0, 0])


CARRIED = {
    "reshaped": "T = Constant <value_ints = [-1]> () R = Reshape(Q, T)",
    "transposed": "R = Transpose <perm = [1, 0]> (Q)",
    "flattened": "R = Flatten <axis = 1> (Q)",
    "copied": "R = Identity(Q)",
}


@pytest.mark.parametrize("nodes", CARRIED.values(), ids=CARRIED)
def test_operators_between_the_rounding_and_what_undoes_it(nodes):
    onx = onnx.parser.parse_model(
        f"{HEAD} g (float[2,3] X, float S) => (float[N,M] Y) {{ Q = QuantizeLinear(X, S) {nodes} Y = DequantizeLinear(R, S) }}"
    )
    del onx.graph.output[0].type.tensor_type.shape.dim[:]
    onx.graph.output[0].type.tensor_type.ClearField("shape")
    x, s = np.array([[0.9, -2.1, 3.2], [200.0, 7.0, 0.0]], np.float32), np.array(0.5, np.float32)
    (y,) = run(onx, {"X": x, "S": s})
    (dx,) = run(onnx_derivative(onx, inputs=["X"]), {"X": x, "S": s, "Y_grad": np.ones(y.shape, np.float32)})
    np.testing.assert_array_equal(dx, [[1, 0, 1], [0, 1, 1]])
