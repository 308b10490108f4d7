"""Rules of GridSample and AffineGrid."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx.parser
import pytest

rng = np.random.default_rng(15)

STATIC = pytest.mark.parametrize("check_rule", ["static"], indirect=True)

#: Everywhere, outside of the image too, and on no edge between pixels.
PLACES = rng.uniform(-1.4, 1.4, (2, 2, 3, 2))
IMAGE = rng.uniform(-1, 1, (2, 2, 3, 4))

MODES = [
    {"mode": mode, "padding_mode": padding, "align_corners": corners}
    for mode, padding, corners in product(["linear", "nearest"], ["zeros", "border", "reflection"], [0, 1])
]


@STATIC
@pytest.mark.parametrize("attributes", MODES)
def test_grid_sample(check_rule, attributes):
    check_rule("GridSample", [IMAGE, PLACES], attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic(check_rule, padding):
    attributes = {"mode": "cubic", "padding_mode": padding, "align_corners": 1}
    check_rule("GridSample", [IMAGE, PLACES / 2], attributes, max_entries=8)


@STATIC
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volume(check_rule, mode):
    volume, places = rng.uniform(-1, 1, (1, 1, 2, 3, 2)), rng.uniform(-1, 1, (1, 2, 1, 2, 3))
    check_rule("GridSample", [volume, places], {"mode": mode}, second=False, max_entries=8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attributes", MODES)
def test_as_in_pytorch(attributes, dtype):
    torch = pytest.importorskip("torch")
    from onnxtrain.grad_helper import onnx_derivative
    from onnxtrain.runtime.session import run

    code, settings = {"float32": "float", "float64": "double"}[dtype], dict(attributes)
    settings["mode"] = {"linear": "bilinear"}.get(settings["mode"], settings["mode"])
    written = ", ".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items())
    onx = onnx.parser.parse_model(
        f"""
        <ir_version: 10, opset_import: ["" : 21]>
        sampled ({code}[N,C,H,W] X, {code}[N,h,w,2] G) => ({code}[N,C,h,w] Y) {{ Y = GridSample <{written}> (X, G) }}"""
    )
    x, g = (torch.tensor(a.astype(dtype), requires_grad=True) for a in (IMAGE, PLACES))
    y = torch.nn.functional.grid_sample(
        x,
        g,
        mode=settings["mode"],
        padding_mode=settings["padding_mode"],
        align_corners=bool(settings["align_corners"]),
    )
    dy = rng.uniform(-1, 1, tuple(y.shape)).astype(dtype)
    expected = torch.autograd.grad(y, [x, g], torch.tensor(dy))
    feeds = {"X": IMAGE.astype(dtype), "G": PLACES.astype(dtype), "Y_grad": dy}
    for found, wanted in zip(run(onnx_derivative(onx), feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


@STATIC
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("shape,size", [((2, 2, 3), [2, 1, 3, 4]), ((2, 3, 4), [2, 1, 2, 3, 2])])
def test_affine_grid(check_rule, shape, size, corners):
    check_rule("AffineGrid", [rng.uniform(-1, 1, shape), np.array(size)], {"align_corners": corners})
