"""Measure the peak memory of a fit, relative to the size of X, and of a large model; Linux only (``/proc``)."""

from __future__ import annotations

import os
import statistics
import tempfile

import numpy as np
import onnx
import onnx.numpy_helper
from _child import run_child
from _harness import Options, environment, options

_FIT = """
import json, resource, threading, time
import numpy as np

rows, p = {rows}, 100
rng = np.random.default_rng(0)
X = rng.standard_normal((rows, p), dtype=np.float32)
y = X @ rng.standard_normal(p, dtype=np.float32)
{setup}
small = X[:1000].copy()
make().fit(small, y[:1000])  # imports and thread pools

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

before = resident()
peak, done = before, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.002)

watcher = threading.Thread(target=watch)
watcher.start()
fitted = make().fit(X, y)
done = True
watcher.join()
print(json.dumps((peak - before) / X.nbytes))
"""

_OURS = """
from sklearn.linear_model import LinearRegression
from onnxtrain import OrtGradientRegressor
start = LinearRegression().fit(X[:200], y[:200])
def make():
    return OrtGradientRegressor(start, solver="{solver}", max_iter=2, batch_size=2000)
"""

_PEERS = {
    "SGDRegressor": "from sklearn.linear_model import SGDRegressor\n"
    "def make(): return SGDRegressor(max_iter=2, tol=None)",
    "LinearRegression": "from sklearn.linear_model import LinearRegression as make",
    "MLPRegressor, 1 hidden unit": "from sklearn.neural_network import MLPRegressor\n"
    "def make(): return MLPRegressor(hidden_layer_sizes=(1,), max_iter=2)",
}


_LARGE = """
import json
import numpy as np
from onnxtrain import LoRA, OrtGradientClassifier

rng = np.random.default_rng(0)
X, y = rng.standard_normal((200, 64), dtype=np.float32), np.arange(200) % 10
settings = dict(batch_size=100, max_iter=3, learning_rate=1e-5, random_state=0)
OrtGradientClassifier("{path}", weights_to_train={weights}, **settings).fit(X, y)
with open("/proc/self/status") as f:  # ru_maxrss is that of the process this one was forked from, if larger
    peak = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))
print(json.dumps(peak / {size}))
"""


def write_network(path: str, layers: int, width: int = 4096) -> int:
    """Write a network with 64 columns, the given hidden layers and ten scores; return the size of the file in bytes."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], {}, "x"
    for i in range(layers):
        shape = (64 if i == 0 else width, width)
        weights[f"w{i}"] = rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))
        nodes += [
            onnx.helper.make_node("MatMul", [x, f"w{i}"], [f"h{i}"]),
            onnx.helper.make_node("Relu", [f"h{i}"], [f"r{i}"]),
        ]
        x = f"r{i}"
    weights["head"] = rng.standard_normal((width, 10), dtype=np.float32) / 64
    nodes.append(onnx.helper.make_node("MatMul", [x, "head"], ["y"]))
    values = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])]
        for name, size in (("x", 64), ("y", 10))
    ]
    graph = onnx.helper.make_graph(
        nodes, "network", *values, [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return os.path.getsize(path)


def large(given: Options) -> None:
    """Print the peak memory of a process that reads and trains a large model, including Python and its libraries."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/network.onnx"
        size = write_network(path, 3 if given.quick else 9)
        print(
            f"\nPeak memory of a process that fits a model of {size / 2**20:.0f} MB, Adam: times the size of the model"
        )
        for name, weights, wanted in (("the head", "'head'", 3), ("LoRA", "LoRA(8)", 3), ("all weights", None, 7)):
            found = run_child(_LARGE.format(path=path, weights=weights, size=size))
            print(f"  {name:34} {found:8.2f} (at most {wanted} is wanted)", flush=True)


def main(given: Options) -> None:
    """Print the table; X itself is not counted, so 0.5 means a peak of 1.5 times X."""
    rows = 200_000 if given.quick else 1_000_000
    contenders = {
        "onnxtrain, adam": _OURS.format(solver="adam"),
        "onnxtrain, lbfgs": _OURS.format(solver="lbfgs"),
        **_PEERS,
    }
    print(f"\nPeak memory of fit, {rows:,} x 100 float32, X included: times the size of X (at most 1.5 is wanted)")
    for name, setup in contenders.items():
        found = [1 + run_child(_FIT.format(rows=rows, setup=setup)) for _ in range(1 if given.quick else 3)]
        print(f"  {name:34} {statistics.median(found):8.2f}", flush=True)
    large(given)


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
