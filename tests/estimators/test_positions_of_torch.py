"""Outputs of three and more axes: networks of PyTorch, trained as PyTorch trains them."""

import io
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor

torch = pytest.importorskip("torch", reason="PyTorch makes these models")
pytest.importorskip("onnxscript")
nn, F = torch.nn, torch.nn.functional

N_STEPS = 10


class Tagger(nn.Module):
    """Tokens (n, t) and a mask to (n, t, k), by attention."""

    def __init__(self, k, causal=False):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(20, 8), nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.head, self.causal = nn.Linear(8, k), causal

    def forward(self, ids, mask):
        x = self.embedding(ids)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8**0.5
        scores = scores.masked_fill(mask[:, None, :] == 0, -1e9)
        if self.causal:
            t = torch.arange(ids.shape[1])
            scores = scores.masked_fill(t[None, :] > t[:, None], -1e9)
        return self.head(self.norm(x + self.out(scores.softmax(-1) @ self.value(x))))


class UNet(nn.Module):
    """Images to (n, k, h, w)."""

    def __init__(self, k, end=None):
        super().__init__()
        self.down, self.deep = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.norm, self.up, self.out = nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 6, 2, 2), nn.Conv2d(12, k, 1)
        self.end = end

    def forward(self, x):
        a = torch.relu(self.down(x))
        b = torch.relu(self.norm(self.deep(F.max_pool2d(a, 2))))
        z = self.out(torch.cat([a, self.up(b)], 1))
        return z if self.end is None else self.end(z)


class Resized(UNet):
    """Scores of small images, enlarged, as of FCN and DeepLab."""

    def forward(self, x):
        return F.interpolate(super().forward(x), scale_factor=2, mode="bilinear", align_corners=False)


class Larger(nn.Module):
    """Super-resolution: images of twice the size."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return F.pixel_shuffle(self.b(torch.tanh(self.a(x))), 2)


class Steps(nn.Module):
    """Encoder and decoder of a sequence, (n, t, k)."""

    def __init__(self, k):
        super().__init__()
        self.encoder, self.decoder = nn.GRU(3, 5, batch_first=True), nn.GRU(5, 5, batch_first=True)
        self.out = nn.Linear(5, k)

    def forward(self, x):
        h, last = self.encoder(x)
        return self.out(self.decoder(h, last)[0])


def exported(net, inputs, names, axes, *, dynamo):
    net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            open_ = {a: torch.export.Dim(name, min=1, max=512) for a, name in axes.items()}
            shapes = tuple(open_ for _ in inputs)
            return torch.onnx.export(
                net, inputs, dynamo=True, optimize=False, dynamic_shapes=shapes, input_names=names, verbose=False
            ).model_proto
        file = io.BytesIO()
        torch.onnx.export(
            net,
            inputs,
            file,
            dynamo=False,
            input_names=names,
            output_names=["out"],
            do_constant_folding=False,
            dynamic_axes=dict.fromkeys([*names, "out"], axes) if len(names) > 1 else {names[0]: axes, "out": {0: "n"}},
        )
        return file.getvalue()


torch.manual_seed(0)
N, T = 8, 6
LENGTHS = torch.randint(2, T + 1, (N,))
MASK = (torch.arange(T)[None] < LENGTHS[:, None]).long()
IDS = torch.randint(1, 20, (N, T)) * MASK
TAGS = torch.where(MASK == 1, torch.randint(0, 4, (N, T)), -100)
NEXT = torch.cat([torch.where(MASK == 1, IDS, -100)[:, 1:], torch.full((N, 1), -100)], 1)
IMAGES = torch.randn(N, 2, 4, 6)
PIXELS = torch.where(torch.rand(N, 4, 6) < 0.3, 255, torch.randint(0, 3, (N, 4, 6)))
LARGE = torch.randint(0, 3, (N, 8, 12))
VALUES, LARGER = torch.randn(N, 3, 4, 6), torch.randn(N, 2, 8, 12)
SERIES = torch.randn(N, T, 3)
TOKENS, ONE = {"ids": IDS, "mask": MASK}, {0: "n"}
ANY = {0: "n", 1: "t"}


def cross_entropy(found, y, **kwargs):
    """The classes on the last axis."""
    return F.cross_entropy(found.flatten(0, 1), y.flatten(), **kwargs)


CASES = {
    "tagger": (lambda: Tagger(4), TOKENS, TAGS, cross_entropy, ANY, {}),
    "language model": (lambda: Tagger(20, causal=True), TOKENS, NEXT, cross_entropy, ANY, {}),
    "class_weight": (
        lambda: Tagger(4),
        TOKENS,
        TAGS,
        lambda found, y: cross_entropy(found, y, weight=torch.tensor([1.0, 2.0, 0.5, 3.0])),
        ANY,
        {"class_weight": {1: 2.0, 2: 0.5, 3: 3.0}},
    ),
    "label_smoothing": (
        lambda: Tagger(4),
        TOKENS,
        TAGS,
        lambda found, y: cross_entropy(found, y, label_smoothing=0.1),
        ANY,
        {"loss_params": {"label_smoothing": 0.1}},
    ),
    "mini-batches": (lambda: Tagger(4), TOKENS, TAGS, cross_entropy, ANY, {"batch_size": 3}),
    "U-Net": (
        lambda: UNet(3),
        {"x": IMAGES},
        PIXELS,
        lambda found, y: F.cross_entropy(found, y, ignore_index=255),
        ONE,
        {"ignore_index": 255},
    ),
    "U-Net, Softmax": (
        lambda: UNet(3, nn.Softmax(1)),
        {"x": IMAGES},
        PIXELS,
        lambda found, y: F.nll_loss(found.log(), y, ignore_index=255),
        ONE,
        {"ignore_index": 255},
    ),
    "two classes, Sigmoid": (
        lambda: UNet(1, nn.Sigmoid()),
        {"x": IMAGES},
        (PIXELS > 0).long(),
        lambda found, y: F.binary_cross_entropy(found[:, 0], y.float()),
        ONE,
        {},
    ),
    "labels of a pixel": (
        lambda: UNet(3),
        {"x": IMAGES},
        (VALUES > 0).long(),
        lambda found, y: F.binary_cross_entropy_with_logits(found, y.float()),
        ONE,
        {},
    ),
    "resized": (lambda: Resized(3), {"x": IMAGES}, LARGE, F.cross_entropy, ONE, {}),
    "images out": (lambda: UNet(3), {"x": IMAGES}, VALUES, F.mse_loss, ONE, {}),
    "super-resolution": (lambda: Larger(), {"x": IMAGES}, LARGER, F.l1_loss, ONE, {"loss": "absolute_error"}),
    "sequences": (lambda: Steps(3), {"x": SERIES}, torch.randn(N, T, 3), F.huber_loss, ONE, {"loss": "huber"}),
    "labels of steps": (lambda: Steps(4), {"x": SERIES}, TAGS, cross_entropy, ONE, {}),
}


@pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("name", CASES)
def test_ten_steps_are_those_of_torch(name, dynamo):
    if dynamo:
        pytest.importorskip("torch.onnx._internal.exporter")
    make, inputs, y, loss, axes, params = CASES[name]
    torch.manual_seed(1)
    net = make()
    onx = exported(net, tuple(inputs.values()), list(inputs), axes, dynamo=dynamo)
    X = {key: x.numpy() for key, x in inputs.items()}
    estimator = OrtGradientRegressor if y.dtype.is_floating_point else OrtGradientClassifier
    params = dict(batch_size=N, solver="sgd", learning_rate=0.1, shuffle=False, tol=0, n_iter_no_change=99) | params
    tuned = estimator(onx, max_iter=N_STEPS, **params).fit(X if len(X) > 1 else X["x"], y.numpy())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counted = torch.ones(N, dtype=bool) if y.dtype.is_floating_point else (y != -100).flatten(1).any(1)
    rows = torch.arange(N)[counted]
    for _ in range(N_STEPS):
        for start in range(0, len(rows), params["batch_size"]):
            batch = rows[start : start + params["batch_size"]]
            optimizer.zero_grad()
            loss(net(*(x[batch] for x in inputs.values())), y[batch]).backward()
            optimizer.step()
    expected = {key: w.detach().numpy() for key, w in net.named_parameters()}
    if name in ("sequences", "labels of steps"):  # the exporter reorders the gates
        expected = {"out.bias": expected["out.bias"]}
    for key, w in expected.items():
        found = [v for k, v in tuned.weights_.items() if k == key or v.shape in (w.shape, w.shape[::-1])]
        gaps = [np.abs((v if v.shape == w.shape else v.T) - w).max() for v in found]
        assert min(gaps) < 1e-5 * max(1, np.abs(w).max()), key
    with torch.no_grad():
        found = net(*inputs.values()).numpy()
    own = tuned.predict(X if len(X) > 1 else X["x"])
    if estimator is OrtGradientRegressor:
        assert_allclose(own, found, rtol=1e-3, atol=1e-5)
    else:
        assert own.shape == tuple(y.shape)
