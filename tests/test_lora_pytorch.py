"""Low-rank factors are trained as PyTorch trains them."""

import io

import numpy as np
import onnx
import pytest
from sklearn.base import clone

from onnxtrain import LoRA, OrtGradientClassifier
from onnxtrain.runtime.session import run

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")


def initializers_of(onx):
    return {w.name: onnx.numpy_helper.to_array(w) for w in onx.graph.initializer}


class LowRankLinear(torch.nn.Module):
    def __init__(self, layer, a, b, scale):
        super().__init__()
        self.layer, self.scale = layer, scale
        self.a, self.b = (torch.nn.Parameter(torch.tensor(x)) for x in (a, b))

    def forward(self, x):
        return self.layer(x) + (x @ self.a) @ self.b * self.scale


class Attention(torch.nn.Module):
    """One layer of a transformer of two heads, its mean, and scores."""

    def __init__(self, p=8):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(p, p) for _ in range(4))
        self.norm, self.up, self.down = torch.nn.LayerNorm(p), torch.nn.Linear(p, 16), torch.nn.Linear(16, p)
        self.scores = torch.nn.Linear(p, 3)

    def forward(self, x):
        q, k, v = (layer(x).reshape(-1, 5, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        h = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
        x = self.norm(x + self.o(h.transpose(1, 2).reshape(-1, 5, 8)))
        x = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return self.scores(x.mean(1))


MODULES = {
    "network": (lambda: torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3)), (6,)),
    "attention": (Attention, (5, 8)),
}


def exported(module, x, exporter):
    if exporter == "dynamo":
        rows = torch.export.Dim("rows")
        return torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=({0: rows},), verbose=False).model_proto
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "N"}})
    return onnx.load_model_from_string(file.getvalue())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("exporter", ["dynamo", "script"])
@pytest.mark.parametrize("case", MODULES)
def test_ten_steps_are_those_of_pytorch(case, exporter, solver):
    make, shape = MODULES[case]
    torch.manual_seed(0)
    module = make().eval()
    rows = np.random.default_rng(2).normal(size=(24, *shape)).astype(np.float32)
    y = np.arange(24) % 3
    onx = exported(module, torch.tensor(rows), exporter)
    settings = {
        "solver": solver,
        "learning_rate": 0.05 if solver == "sgd" else 0.005,
        "batch_size": 24,
        "shuffle": False,
    }
    ours = OrtGradientClassifier(onx, weights_to_train=LoRA(rank=2, alpha=3), tol=0, random_state=0, **settings)
    values = clone(ours).set_params(max_iter=0).fit(rows, y).weights_
    pairs = {}
    for name, layer in list(module.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            w = layer.weight.detach().numpy()
            weight = next(k for k, v in initializers_of(onx).items() if v.shape in (w.shape, w.T.shape) and (
                np.array_equal(v, w) or np.array_equal(v, w.T)))  # fmt: skip
            pairs[weight] = LowRankLinear(layer, values[f"{weight}.lora_A"], values[f"{weight}.lora_B"], 1.5)
            module.set_submodule(name, pairs[weight])
    assert {name.rpartition(".")[0] for name in values} == set(pairs)
    module.requires_grad_(False)
    theirs = [p.requires_grad_(True) for pair in pairs.values() for p in (pair.a, pair.b)]
    steps = (torch.optim.SGD if solver == "sgd" else torch.optim.Adam)(theirs, settings["learning_rate"])
    for _ in range(10):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.tensor(rows)), torch.tensor(y)).backward()
        steps.step()
    ours.set_params(max_iter=10).fit(rows, y)
    for weight, pair in pairs.items():
        np.testing.assert_allclose(ours.weights_[f"{weight}.lora_A"], pair.a.detach(), atol=1e-5)
        np.testing.assert_allclose(ours.weights_[f"{weight}.lora_B"], pair.b.detach(), atol=1e-5)
    name = onx.graph.input[0].name
    scores = run(ours.get_trained_onnx(), {name: rows})[0]
    np.testing.assert_allclose(scores, module(torch.tensor(rows)).detach(), atol=1e-4)
