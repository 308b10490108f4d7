"""Measure the memory of one epoch on rows larger than memory: a memory-mapped file, a sparse matrix; Linux only."""

from __future__ import annotations

import tempfile

from _child import run_child
from _harness import Options, environment, options

_COMMON = """
import json, threading, time
import numpy as np, scipy.sparse
from sklearn.linear_model import LinearRegression
from onnxtrain import OrtGradientRegressor

def status(name):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(name))

def fit(X, y):
    start = LinearRegression().fit(np.random.default_rng(0).standard_normal((50, X.shape[1])), np.arange(50.0))
    make = lambda: OrtGradientRegressor(start, max_iter=1, batch_size=2000, solver="sgd", learning_rate=1e-6)
    make().fit(X[:1000], y[:1000])  # imports and thread pools
    before, peaks, done = (status("RssAnon"), status("VmRSS")), [0, 0], False

    def watch():
        while not done:
            peaks[:] = max(peaks[0], status("RssAnon")), max(peaks[1], status("VmRSS"))
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    make().fit(X, y)
    seconds = time.perf_counter() - begin
    done = True
    watcher.join()
    print(json.dumps([peaks[0] - before[0], peaks[1] - before[1], peaks[1], seconds]))
"""

_MEMMAP = (
    _COMMON
    + """
X = np.memmap("{path}", dtype=np.float32, mode="w+", shape=({rows}, 8))
fit(X, np.zeros(len(X), np.float32))
"""
)

_SPARSE = (
    _COMMON
    + """
X = scipy.sparse.random_array(({rows}, 10_000), density=1e-3, format="csr", dtype=np.float32, rng=0)
fit(X, np.zeros(X.shape[0], np.float32))
"""
)


def main(given: Options) -> None:
    """Print the peaks in MB of the private memory and of the resident memory, which includes mapped files."""
    shrink = 10 if given.quick else 1
    print("\nMemory of one epoch, MB: own beyond that before, resident beyond that before, resident; seconds")
    with tempfile.TemporaryDirectory() as folder:
        scripts = {
            f"memmap {4 / shrink:g} GB, 8 columns (< 300 wanted)": _MEMMAP.format(
                path=f"{folder}/X", rows=2**27 // shrink
            ),
            f"CSR {200_000 // shrink:,} x 10,000, 0.1 % (< 1000 resident)": _SPARSE.format(rows=200_000 // shrink),
        }
        for name, script in scripts.items():
            print(f"  {name:48}", *(f"{value:9.1f}" for value in run_child(script)), flush=True)


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
