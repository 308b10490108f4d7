"""Measure the time to derive the gradient of large models, and the memory of a fit of BERT-base (Linux only)."""

from __future__ import annotations

import math
import os
import statistics
import tempfile

import onnx
from _child import run_child
from _harness import Missing, Options, Wanted, environment, limit, need, options, timed
from deep import Deep, encoder, exported, resnet50
from gradient import chain

SECONDS = "These are seconds, not a ratio: they depend on the machine and on its other load."

MODELS = [
    (Deep("ResNet-50", resnet50, (3, 64, 64), 2), Wanted(0.7, SECONDS)),
    (Deep("BERT-base", lambda: encoder(12, 768, 12, 128, 30522), (128,), 2, tokens=30522), Wanted(2.0)),
]

#: The sum of six times the weights, 0.6 for Python and its libraries, and 1.7 for the activations of two sequences of
#: length 128.
PEAK = Wanted(8.3)

_FIT = """
import json, threading, time
import numpy as np
from onnxtrain import OrtGradientClassifier

rng = np.random.default_rng(0)
X, y = rng.integers(30522, size=(8, 128)), np.arange(8) % 10
peak, done = 0, False

def watch():
    global peak
    while not done:
        with open("/proc/self/status") as f:  # pages of files are given back where memory is short
            peak = max(peak, next(int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon")))
        time.sleep(0.005)

watcher = threading.Thread(target=watch)
watcher.start()
OrtGradientClassifier("{path}", output_is="scores", solver="adam", batch_size=2, max_iter=2, tol=0).fit(X, y)
done = True
watcher.join()
print(json.dumps(peak / {size}))
"""


def derive(model: onnx.ModelProto, inputs: list[str] | None = None) -> float:
    """Return the seconds to derive the gradient for all weights and for the given inputs, by default all."""
    from onnxtrain import onnx_derivative

    return timed(lambda: onnx_derivative(model, inputs=inputs))


def models(given: Options) -> None:
    """Print the time for each network, and the peak memory of a process that trains all weights of BERT-base."""
    print("\nThe gradient for all weights, random ones")
    for problem, wanted in MODELS[: 1 if given.quick else None]:
        content = exported(problem)
        model = onnx.load_model_from_string(content)
        seconds = statistics.median(derive(model, []) for _ in range(given.rounds))
        limit(f"{problem.name}, {len(content) / 2**20:.0f} MB: derive the gradient", "s", seconds, wanted, given)
        if problem.tokens:
            memory(problem.name, content, given)


def memory(name: str, content: bytes, given: Options) -> None:
    """Print the peak memory of a process that trains all weights on sequences, with two rows per batch."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as file:
            file.write(content)
        peak = run_child(_FIT.format(path=path, size=len(content)))
    limit(f"{name}: peak memory of a fit of all weights, Adam", "times the weights", peak, PEAK, given)


def chains(given: Options) -> None:
    """Print the time for a long chain, and its growth as a power of the number of nodes."""
    few, many = (1000, 10_000) if given.quick else (10_000, 100_000)
    print("\nThe gradient of a chain of nodes")
    short, long = (derive(chain(n)) for n in (few, many))
    limit(f"{many:,} nodes in a chain: derive", "s", long, Wanted(60.0), given)
    power = math.log(long / short) / math.log(many / few)
    limit(f"{few:,} to {many:,} nodes in a chain: power of the nodes", "power", power, Wanted(1.1), given)


def main(given: Options) -> None:
    """Print all figures; the networks need PyTorch."""
    chains(given)
    try:
        need("torch")
        models(given)
    except Missing as e:
        print(f"left out: {e}")


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
