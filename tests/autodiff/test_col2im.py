"""Rule of Col2Im."""

from __future__ import annotations

import math

import numpy as np
import onnx.parser
import pytest

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(34)

# name -> channels, image, block, attributes
CASES = {
    "plain": (2, [4, 5], [2, 3], {}),
    "beside each other": (1, [4, 6], [2, 3], {"strides": [2, 3]}),
    "gaps": (2, [5, 4], [2, 2], {"strides": [2, 1], "dilations": [2, 1]}),
    "pads": (1, [3, 4], [2, 3], {"pads": [1, 0, 2, 1]}),
    "one axis": (2, [6], [3], {"pads": [1, 0], "strides": [2]}),
    "three axes": (1, [3, 3, 2], [2, 2, 2], {"pads": [0, 1, 0, 0, 0, 1]}),
}


def positions(image, block, attributes):
    n = len(image)
    pads, strides, dilations = (
        attributes.get(name, default)
        for name, default in (("pads", [0] * 2 * n), ("strides", [1] * n), ("dilations", [1] * n))
    )
    return [(image[i] + pads[i] + pads[n + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(n)]


def columns(channels, image, block, attributes):
    rows = channels * math.prod(block)
    return rng.uniform(-1, 1, (2, rows, math.prod(positions(image, block, attributes))))


@pytest.mark.parametrize("channels,image,block,attributes", CASES.values(), ids=CASES)
def test_col2im(check_rule, channels, image, block, attributes):
    x = columns(channels, image, block, attributes)
    check_rule("Col2Im", [x, np.array(image), np.array(block)], attributes, max_entries=12)


@pytest.mark.parametrize(
    "name", [name for name, (_, image, _, _) in CASES.items() if len(image) == 2 and name != "pads"]
)
def test_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    channels, image, block, attributes = CASES[name]
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[N,A,L] X) => (float[N,C,H,W] Y)
        <int64[2] I = {{{image[0]}, {image[1]}}}, int64[2] B = {{{block[0]}, {block[1]}}}> {{ Y = Col2Im(X, I, B) }}"""
    )
    onx.graph.node[0].attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    x = columns(channels, image, block, attributes).astype(np.float32)
    given = {"stride" if k == "strides" else "dilation": v for k, v in attributes.items()}
    tensor = torch.tensor(x, requires_grad=True)
    y = torch.nn.functional.fold(tensor, image, block, **given)
    dy = rng.uniform(-1, 1, tuple(y.shape)).astype(np.float32)
    (expected,) = torch.autograd.grad(y, [tensor], torch.tensor(dy))
    (found,) = run(onnx_derivative(onx), {"X": x, "Y_grad": dy})
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)
