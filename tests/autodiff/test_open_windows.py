"""Windows over images of unknown size, filters of unknown length, matrices of unknown size: found at run time."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx.parser
import pytest

rng = np.random.default_rng(36)

OPEN = pytest.mark.parametrize("check_rule", ["symbolic"], indirect=True)


def real(*shape):
    return rng.uniform(-1, 1, shape)


POOLED = [
    {"kernel_shape": [3], "strides": [2]},
    {"kernel_shape": [3], "pads": [1, 2], "dilations": [2]},
    {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1},
    {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2], "strides": [3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2], "auto_pad": "VALID"},
    {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 2]},
]


@OPEN
@pytest.mark.parametrize("attributes", POOLED)
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool(check_rule, attributes, include):
    x = real(1, 2, *[7, 6][: len(attributes["kernel_shape"])])
    check_rule("AveragePool", [x], {**attributes, "count_include_pad": include}, max_entries=8)


@OPEN
@pytest.mark.parametrize("attributes", POOLED[:1] + POOLED[3:4])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(check_rule, attributes, p):
    check_rule("LpPool", [real(1, 2, 7)], {**attributes, "p": p}, max_entries=8)


CONV = [
    ([real(1, 2, n), real(2, 2, k)], {"auto_pad": f"SAME_{end}", "strides": [stride], "dilations": [dilation]})
    for n, (k, stride, dilation), end in product(
        [6, 7], [(3, 2, 1), (4, 3, 1), (1, 2, 1), (2, 2, 2), (3, 1, 1)], ["UPPER", "LOWER"]
    )
] + [
    ([real(2, 4, 5, 6), real(6, 2, 3, 2), real(6)], {"auto_pad": "SAME_UPPER", "strides": [2, 3], "group": 2}),
    ([real(1, 2, 6), real(2, 2, 3), real(2)], {"pads": [1, 2], "strides": [2]}),
    ([real(2, 4, 5), real(2, 2, 3)], {"group": 2}),
]


@OPEN
@pytest.mark.parametrize("arrays,attributes", CONV)
def test_conv(check_rule, arrays, attributes):
    check_rule("Conv", arrays, attributes, max_entries=8)


TRANSPOSED = (
    [
        ([real(1, 2, 3), real(2, 2, k)], {"auto_pad": f"SAME_{end}", "strides": [stride]})
        for (k, stride), end in product([(3, 2), (4, 2), (2, 3), (3, 1)], ["UPPER", "LOWER"])
    ]
    + [
        ([real(1, 2, 3), real(2, 2, 3)], {"output_shape": [length], "strides": [2], **more})
        for length, more in product([5, 6, 7], [{}, {"output_padding": [1]}, {"auto_pad": "SAME_UPPER"}])
    ]
    + [
        ([real(1, 2, 3), real(2, 2, 3), real(2)], {"strides": [3], "pads": [1, 2], "dilations": [2]}),
        ([real(1, 4, 3, 2), real(4, 2, 2, 3), real(4)], {"group": 2, "output_shape": [6, 5], "strides": [2, 2]}),
    ]
)


@OPEN
@pytest.mark.parametrize("arrays,attributes", TRANSPOSED)
def test_conv_transpose(check_rule, arrays, attributes):
    check_rule("ConvTranspose", arrays, attributes, max_entries=8)


@pytest.mark.parametrize("attributes", ["", 'auto_pad = "SAME_UPPER",'])
def test_zeros_behind_a_transposed_convolution(check_float32, attributes):
    """In float32, by onnxruntime: the shape asked for is longer than the filters reach."""
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[N,C,L] X, float[C,M,K] F) => (float[N,M,O] Y)
        {{ Y = ConvTranspose <{attributes} output_shape = [8], strides = [2]> (X, F) }}"""
    )
    check_float32(onx, {"X": real(1, 2, 3), "F": real(2, 2, 3)})


@OPEN
@pytest.mark.parametrize("n", [1, 2, 4])
def test_det(check_rule, n):
    check_rule("Det", [real(2, n, n)])


@OPEN
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_lrn(check_rule, size):
    """As many rows as channels: onnx.reference takes the one for the other."""
    check_rule("LRN", [real(4, 4, 1, 2)], {"size": size, "alpha": 0.7, "bias": 1.3})
