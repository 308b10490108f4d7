"""Rule of STFT: the transform of each frame of a signal."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

rng = np.random.default_rng(35)


def real(*shape):
    return rng.uniform(-1, 1, shape)


STEP, LENGTH = np.array(3), np.array(4)

CASES = {
    "window": ([real(2, 11, 1), STEP, real(5)], {}),
    "length": ([real(1, 9, 1), STEP, None, LENGTH], {}),
    "window and length": ([real(1, 9, 1), STEP, real(4), LENGTH], {}),
    "frames do not overlap": ([real(1, 12, 1), LENGTH, real(4), LENGTH], {}),
    "both sides": ([real(2, 9, 1), STEP, real(4)], {"onesided": 0}),
    "int32": ([real(1, 9, 1), STEP.astype(np.int32), real(4), LENGTH.astype(np.int32)], {}),
}


@pytest.mark.parametrize("arrays,attributes", CASES.values(), ids=CASES)
def test_stft(check_rule, arrays, attributes):
    check_rule("STFT", arrays, {"onesided": 1, **attributes}, max_entries=12)


@pytest.mark.parametrize("check_rule", ["static-reference"], indirect=True)  # onnxruntime 1.19 has another result
def test_complex_signals(check_rule):
    check_rule("STFT", [real(1, 9, 2), STEP, real(4), LENGTH], {"onesided": 0}, max_entries=12)


@pytest.mark.parametrize("attributes,onesided", [("", True), ("<onesided = 0>", False)])
def test_as_in_pytorch(attributes, onesided):
    """Shapes are known; onnx's shape inference takes the default of ``onesided`` for 0."""
    torch = pytest.importorskip("torch")
    onx = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2,15,1] X, float[6] W) => (float[N,T,F,2] Y)
        {{ S = Constant <value_int = 2> () Y = STFT {attributes} (X, S, W) }}"""
    )
    x, w = real(2, 15, 1).astype(np.float32), real(6).astype(np.float32)
    signal, window = (torch.tensor(a, requires_grad=True) for a in (x, w))
    spectrum = torch.stft(signal[..., 0], 6, 2, window=window, center=False, onesided=onesided, return_complex=True)
    y = torch.view_as_real(spectrum).permute(0, 2, 1, 3)
    dy = rng.uniform(-1, 1, tuple(y.shape)).astype(np.float32)
    expected = torch.autograd.grad(y, [signal, window], torch.tensor(dy))
    for found, right in zip(run(onnx_derivative(onx), {"X": x, "W": w, "Y_grad": dy}), expected, strict=True):
        np.testing.assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-5)
