"""The size of the values that a model expects of an input."""

import numpy as np
import onnx.parser
import pytest
from skl2onnx import to_onnx
from sklearn.preprocessing import StandardScaler

from onnxtrain.convert.input_scales import sizes_of_inputs

CONSTANTS = (
    "float c = {255}, float r = {0.00392156862}, float[3] m = {0.4, 0.5, 0.45}, float[3] s = {0.2, 0.25, 0.2}, "
    "float[3] zeros = {0, 0, 0}, float[3] ones = {1, 1, 1}, float[3] var = {0.25, 0.25, 1}, float step = {0.01}, "
    "uint8 z = {0}, int8 i = {28}, float[2, 3] table = {1, 2, 3, 4, 5, 6}"
)

#: The first operators, and the size.
SIZES = {
    "divided": ("Y = Div(X, c)", 255),
    "multiplied": ("Y = Mul(X, r)", 255),
    "moved": ("t = Transpose(X) u = Cast<to = 1>(t) Y = Div(u, c)", 255),
    "standardized": ("d = Sub(X, m) Y = Div(d, s)", 1),
    "batch normalization": ("Y = BatchNormalization(X, ones, zeros, m, var)", 2.5),
    "quantized": ("Y = QuantizeLinear(X, step, z)", 2.55),
    "quantized, signed": ("Y = QuantizeLinear(X, step, i)", 1.56),
    "made larger": ("Y = Div(X, r)", None),
    "only shifted": ("d = Sub(X, m) Y = Relu(d)", None),
    "read twice": ("d = Div(X, c) Y = Add(d, X)", None),
    "another operator": ("Y = MatMul(X, table)", None),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_read_from_the_first_operators(name):
    nodes, size = SIZES[name]
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n, 3] X) => (float[n, 3] Y) <{CONSTANTS}> {{ {nodes} }}'
    )
    found = sizes_of_inputs(onx)
    assert found == ({} if size is None else pytest.approx({"X": size}))


def test_a_mask_and_integers_have_no_size():
    onx = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n] mask, int64[n] ids) => (float[n] Y) <{CONSTANTS}>'
        "{ m1 = Div(mask, c) x = Cast<to = 1>(ids) Y = Add(m1, x) }"
    )
    assert sizes_of_inputs(onx) == {}


def test_a_scaler_has_the_size_of_its_rows():
    rows = np.array([[0, 100.0], [2, 300.0]])
    assert sizes_of_inputs(to_onnx(StandardScaler().fit(rows), rows.astype(np.float32))) == pytest.approx({"X": 400})


@pytest.mark.parametrize("offset, scale", [([], [1.0]), ([0.0], []), ([0.0, 1.0], [1.0, 2.0, 3.0]), ([0.0], [0.0])])
def test_a_damaged_scaler_has_no_size(offset, scale):
    onx = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]> g (float[n, 3] X) => (float[n, 3] Y) '
        "{ Y = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (X) }"
    )
    assert sizes_of_inputs(onx) == pytest.approx({"X": 1.5})
    for attribute, values in zip(onx.graph.node[0].attribute, (offset, scale), strict=True):
        attribute.floats[:] = values
    assert sizes_of_inputs(onx) == {}
