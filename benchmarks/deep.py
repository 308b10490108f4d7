"""Compare a step of SGD or AdamW with PyTorch, for networks of PyTorch layers that are exported to ONNX."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from _harness import KERNELS, OURS, Missing, Options, Run, Wanted, case, environment, need, options, timed

CLASSES = 10


@dataclass(frozen=True)
class Deep:
    """A network, the shape of its rows and the settings of the training.

    Attributes
    ----------
    name : str
    network : callable
        A function without arguments that returns a ``torch.nn.Module`` with scores of ten classes.
    shape : tuple of int
        The shape of a row.
    batch : int
    tokens : int
        The upper bound of the integers in a row; 0 for rows of floats.
    adam : bool
        Whether to use AdamW; otherwise SGD.
    """

    name: str
    network: Callable[[], Any]
    shape: tuple[int, ...]
    batch: int
    tokens: int = 0
    adam: bool = False

    def data(self, batches: int) -> tuple[np.ndarray, np.ndarray]:
        """Return random X and classes for a number of batches."""
        rng = np.random.default_rng(0)
        n = batches * self.batch
        shape = (n, *self.shape)
        X = rng.integers(self.tokens, size=shape) if self.tokens else rng.normal(size=shape).astype(np.float32)
        return X, np.arange(n) % CLASSES

    def module(self) -> Any:
        """Return the network in evaluation mode: the statistics of BatchNorm are fixed, and Dropout is off."""
        import torch

        torch.manual_seed(0)
        return self.network().eval()


def resnet18() -> Any:
    """Return ResNet-18 for any height and width."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(before, after, 3, stride, 1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.Conv2d(after, after, 3, 1, 1, bias=False),
                nn.BatchNorm2d(after),
            )
            other = before != after or stride > 1
            skip = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)] if other else []
            self.skip = nn.Sequential(*skip)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.skip(x))

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [64, 64, 128, 256, 512]
    blocks = []
    for before, after in pairwise(widths):
        blocks += [Block(before, after, 1 if before == after else 2), Block(after, after, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def resnet50() -> Any:
    """Return ResNet-50 for any height and width."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            sizes = [(before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
            layers: list[Any] = []
            for n_in, n_out, size, step in sizes:
                layers += [nn.Conv2d(n_in, n_out, size, step, size // 2, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]
            self.body = nn.Sequential(*layers[:-1])
            other = before != 4 * width
            skip = [nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)] if other else []
            self.skip = nn.Sequential(*skip)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.skip(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(Block(before, width, stride if i == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, CLASSES))


def encoder(depth: int = 6, width: int = 256, heads: int = 4, length: int = 128, words: int = 1000) -> Any:
    """Return the encoder of BERT with the given number of layers, width and sequence length."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (
                f(x).reshape(-1, length, heads, width // heads).transpose(1, 2)
                for f in (self.queries, self.keys, self.values)
            )
            weights = torch.softmax(q @ k.transpose(2, 3) / (width // heads) ** 0.5, dim=-1)
            x = self.first(x + self.out((weights @ v).transpose(1, 2).reshape(-1, length, width)))
            return self.second(x + self.narrow(F.gelu(self.wide(x))))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.layers, self.head = nn.Sequential(*(Layer() for _ in range(depth))), nn.Linear(width, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.words(x) + self.places.weight)[:, 0])

    return Encoder()


def recurrent(kind: str) -> Any:
    """Return a GRU or an LSTM of width 64, followed by a linear layer of its last output."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = getattr(nn, kind)(16, 64, batch_first=True), nn.Linear(64, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(x)[0][:, -1])

    return Recurrent()


#: The reason why the LSTM is slower.
GATES = (
    "PyTorch's kernel keeps the gates, so its gradient takes three products a turn. onnxruntime's LSTM does not "
    "put them out: they are computed again, a fourth product."
)

#: The networks and the limits of the ratios, ours / theirs.
PROBLEMS = [
    (Deep("ResNet-18, 64 pixels, batch 32, SGD", resnet18, (3, 64, 64), 32), Wanted(1.5, KERNELS)),
    (
        Deep("BERT, 6 layers, 256 wide, 128 long, batch 16, AdamW", encoder, (128,), 16, 1000, adam=True),
        Wanted(0.7, KERNELS),
    ),
    (Deep("GRU, 64 wide, 100 long, batch 32, SGD", lambda: recurrent("GRU"), (100, 16), 32), Wanted(0.6)),
    (Deep("LSTM, 64 wide, 100 long, batch 32, SGD", lambda: recurrent("LSTM"), (100, 16), 32), Wanted(1.0, GATES)),
]


def exported(problem: Deep) -> bytes:
    """Return the network as an ONNX model for any number of rows."""
    import torch

    X, _ = problem.data(1)
    file = io.BytesIO()
    torch.onnx.export(
        problem.module(),
        (torch.tensor(X[:2]),),
        file,
        input_names=["x"],
        output_names=["scores"],
        dynamic_axes={"x": {0: "n"}, "scores": {0: "n"}},
        opset_version=17,
        dynamo=False,
    )
    return file.getvalue()


def ours(problem: Deep, batches: int, threads: int) -> Run:
    """Return a function that times a step: an epoch of several batches minus the shortest fit."""
    from onnxtrain import OrtGradientClassifier

    X, y = problem.data(batches)
    model = exported(problem)

    def fit(rows: int) -> None:
        OrtGradientClassifier(
            model,
            output_is="scores",
            solver="adamw" if problem.adam else "sgd",
            learning_rate=1e-4,
            batch_size=problem.batch,
            max_iter=1,
            shuffle=False,
            n_threads=threads,
        ).fit(X[:rows], y[:rows])

    def run() -> float:
        short, long = timed(lambda: fit(problem.batch)), timed(lambda: fit(len(X)))
        return (long - short) / (batches - 1)

    return run


def pytorch(problem: Deep, batches: int, threads: int) -> Run:
    """Return a function that times a step of a PyTorch loop."""
    need("torch")
    import torch

    torch.set_num_threads(threads)
    X, y = map(torch.tensor, problem.data(batches))
    module = problem.module()
    optimizer = (
        torch.optim.AdamW(module.parameters(), 1e-4, fused=True)
        if problem.adam
        else torch.optim.SGD(module.parameters(), 1e-4)
    )

    def run() -> float:
        def epoch() -> None:
            for first in range(0, len(X), problem.batch):
                part = slice(first, first + problem.batch)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(X[part]), y[part]).backward()
                optimizer.step()

        return timed(epoch) / batches

    return run


def main(given: Options) -> None:
    """Print a table for each network."""
    try:
        need("torch")
    except Missing as e:
        print(f"left out: {e}")
        return
    batches = 4 if given.quick else 9
    for problem, wanted in PROBLEMS:
        makers = {
            OURS: lambda problem=problem: ours(problem, batches, given.threads),
            "PyTorch": lambda problem=problem: pytorch(problem, batches, given.threads),
        }
        case(f"{problem.name}: one step", makers, given, targets={"PyTorch": wanted})


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
