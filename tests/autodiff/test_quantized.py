"""Rules of DequantizeLinear and DynamicQuantizeLinear: scales have gradients, integers do not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
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


def test_nothing_comes_back_through_a_quantization():
    onx = onnx.parser.parse_model(
        f"""{HEAD} g (float[N] X, float S) => (float[N] Y) {{ Q = QuantizeLinear(X, S) Y = DequantizeLinear(Q, S) }}"""
    )
    x, s = np.array([0.9, -2.1, 3.2], np.float32), np.array(0.5, np.float32)
    dx, ds = run(onnx_derivative(onx), {"X": x, "S": s, "Y_grad": np.ones(3, np.float32)})
    np.testing.assert_array_equal(dx, np.zeros(3))
    np.testing.assert_allclose(ds, np.clip(np.round(x / s), 0, 255).sum())
