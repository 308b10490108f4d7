"""Models that PyTorch exported: the gradient of each weight is that of torch.autograd."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest

from onnxtrain.grad_helper import onnx_derivative
from onnxtrain.runtime.session import run

torch = pytest.importorskip("torch", reason="PyTorch makes these models")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")

from torch import nn  # noqa: E402


class LastStep(nn.Module):
    def __init__(self, layer, units):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(units, 2)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Upscale(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = (
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1),
        )

    def forward(self, x):
        h = nn.functional.gelu(self.down(x))
        return nn.functional.interpolate(self.up(h), scale_factor=2, mode="bilinear")


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=4),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.LogSoftmax(dim=1),
    )


def transformer():
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)


MODELS = {
    "convolutional": (convolutional, (2, 3, 9, 9)),
    "encoder-decoder": (Upscale, (2, 1, 8, 8)),
    "LSTM": (lambda: LastStep(nn.LSTM(3, 4, num_layers=2, batch_first=True), 4), (2, 5, 3)),
    "bidirectional GRU": (lambda: LastStep(nn.GRU(3, 4, bidirectional=True, batch_first=True), 8), (2, 5, 3)),
    "transformer": (transformer, (2, 5, 8)),
}

# the exporter's own deprecations are not ours
pytestmark = pytest.mark.filterwarnings("ignore")


def exported(model, x, dynamo, open_batch):
    """Return the ONNX model of a module, its weights as they are."""
    buffer = io.BytesIO()
    options = {"keep_initializers_as_inputs": False, "do_constant_folding": False}
    if dynamo:
        shapes = ({0: torch.export.Dim.DYNAMIC},) if open_batch else None
        program = torch.onnx.export(model, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False, optimize=False)
        return program.model_proto
    axes = {"x": {0: "N"}} if open_batch else None
    torch.onnx.export(model, (x,), buffer, input_names=["x"], dynamic_axes=axes, dynamo=False, **options)
    return onnx.load_model_from_string(buffer.getvalue())


def torch_gradients(model, x, dy):
    """Return the gradient of each weight and of the input by its ONNX name."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    model(x).backward(torch.tensor(dy))
    return {n: p.grad.numpy() for n, p in model.named_parameters()}, x.grad.numpy()


@pytest.mark.parametrize("open_batch", [False, True], ids=["static", "open"])
@pytest.mark.parametrize(
    "name,dynamo",
    # the old exporter cannot trace the attention of PyTorch 2.13
    [(name, dynamo) for name in MODELS for dynamo in (False, True) if dynamo or name != "transformer"],
)
def test_gradients_of_pytorch(name, dynamo, open_batch):
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # the fast path of eval() has no derivative, nor an export
    make, shape = MODELS[name]
    model = make().eval()
    for p in model.parameters():  # weights that are equal would become one initializer
        nn.init.uniform_(p, -0.5, 0.5)
    x = torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onx = exported(model, x, dynamo, open_batch)
    dy = np.random.default_rng(0).standard_normal(tuple(model(x).shape)).astype(np.float32)
    wanted, dx = torch_gradients(model, x, dy)
    weights = [w.name for w in onx.graph.initializer if w.name in wanted]
    derived = onnx_derivative(onx, weights=weights)
    values = {w.name: onnx.numpy_helper.to_array(w) for w in onx.graph.initializer}
    feeds = {onx.graph.input[0].name: x.numpy(), derived.graph.input[-1].name: dy, **{w: values[w] for w in weights}}
    found = run(derived, feeds)
    for w, dw in zip([None, *weights], found, strict=True):
        expected = dx if w is None else wanted[w]
        np.testing.assert_allclose(dw, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max() + 1e-7, err_msg=str(w))
    assert weights, "no weight kept its name"
