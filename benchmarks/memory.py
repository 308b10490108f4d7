"""Peak memory of a fit, in units of the size of X; reads ``/proc``, so Linux only."""

from __future__ import annotations

import statistics

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


def main(given: Options) -> None:
    """Print the table: X itself is not counted, so 0.5 is a peak of 1.5 times X."""
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


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
