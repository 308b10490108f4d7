"""Rule of DeformConv."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtrain.errors import GradientError
from onnxtrain.grad_helper import onnx_derivative

rng = np.random.default_rng(33)


def real(*shape):
    return rng.uniform(-1, 1, shape)


#: What each entry of the filters is shifted by, on no edge between pixels and partly out of the image.
def shifts(*shape):
    return rng.uniform(0.1, 0.9, shape) + rng.integers(-2, 2, shape)


# name -> operands (x, w, offset, bias, mask) and attributes
CASES = {
    "plain": ([real(2, 2, 4, 3), real(3, 2, 2, 2), shifts(2, 8, 3, 2)], {}),
    "bias and mask": ([real(1, 2, 3, 3), real(2, 2, 2, 2), shifts(1, 8, 2, 2), real(2), real(1, 4, 2, 2)], {}),
    "mask only": ([real(1, 1, 3, 3), real(1, 1, 2, 2), shifts(1, 8, 2, 2), None, real(1, 4, 2, 2)], {}),
    "groups": ([real(1, 4, 3, 3), real(2, 2, 2, 2), shifts(1, 8, 2, 2)], {"group": 2}),
    "groups of offsets": (
        [real(2, 4, 3, 3), real(2, 4, 2, 2), shifts(2, 16, 2, 2), real(2), real(2, 8, 2, 2)],
        {"offset_group": 2},
    ),
    "both groups": (
        [real(1, 4, 3, 3), real(4, 2, 2, 2), shifts(1, 32, 2, 2), None, real(1, 16, 2, 2)],
        {"offset_group": 4, "group": 2},
    ),
    "window": (
        [real(1, 1, 5, 6), real(2, 1, 3, 2), shifts(1, 12, 3, 2)],
        {"pads": [1, 0, 2, 1], "strides": [2, 3], "dilations": [1, 2]},
    ),
}


@pytest.mark.parametrize("arrays,attributes", CASES.values(), ids=CASES)
@pytest.mark.parametrize("check_rule", ["static"], indirect=True)
def test_deform_conv(check_rule, arrays, attributes):
    check_rule("DeformConv", arrays, attributes, max_entries=12)


WINDOW = """<ir_version: 10, opset_import: ["" : 21]>
    g (double[N,C,H,W] X, double[2,1,{k},2] F, double[N,12,h,w] O) => (double[N,2,h,w] Y)
    {{ Y = DeformConv <pads = [1, 0, 2, 1], strides = [2, 3], dilations = [1, 2]> (X, F, O) }}"""


def test_images_of_any_size(check_model):
    x, w, offset = CASES["window"][0]
    check_model(onnx.parser.parse_model(WINDOW.format(k=3)), {"X": x, "F": w, "O": offset}, max_entries=12)


def test_filters_of_unknown_size():
    with pytest.raises(GradientError, match="a window of static shape.*Give the weights a static shape"):
        onnx_derivative(onnx.parser.parse_model(WINDOW.format(k="K")))


def test_where_nothing_is_shifted_it_is_a_convolution():
    """The slope of an offset at a pixel is that to the right of it."""
    text = WINDOW.format(k=3)
    x, w, offset = CASES["window"][0]
    plain = text.replace("DeformConv", "Conv").replace("(X, F, O)", "(X, F)")
    feeds = {"X": x, "F": w, "O": np.zeros_like(offset), "Y_grad": real(1, 2, 3, 2)}
    found, expected = (
        ReferenceEvaluator(onnx_derivative(onnx.parser.parse_model(t), inputs=["X", "F"])).run(None, feeds)
        for t in (text, plain)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
