"""Measure the time of the first lines of a program, each in a new process."""

from __future__ import annotations

import statistics

from _child import run_child
from _harness import Options, Wanted, environment, judge, options

_LINES = {
    "import onnxtrain": "import onnxtrain",
    "from onnxtrain import OrtGradientRegressor": "from onnxtrain import OrtGradientRegressor",
    "import sklearn.neural_network": "import sklearn.neural_network",
    "import onnxruntime": "import onnxruntime",
    "import torch": "import torch",
    "import jax": "import jax",
    "import skl2onnx": "import skl2onnx",
}

_CODE = """
import json, sys, time
start = time.perf_counter()
try:
    {line}
    seconds = time.perf_counter() - start
except ImportError:
    seconds = None
print(json.dumps([seconds, sorted({{"skl2onnx", "torch", "onnxscript", "sklearn"}} & set(sys.modules))]))
"""


def main(given: Options) -> None:
    """Print the table; the minimum over the rounds is the time of the import, and the rest is the disk."""
    rounds = 1 if given.quick else given.rounds
    # in turn, so that other load affects all of them alike
    runs = [{name: run_child(_CODE.format(line=line)) for name, line in _LINES.items()} for _ in range(rounds)]
    print(f"\n{'Imports':44} {'median s':>10} {'least s':>10}   brings along   (import onnxtrain: below 1 s is wanted)")
    for name in _LINES:
        seconds = [run[name][0] for run in runs]
        if None in seconds:
            print(f"  {name:42} left out: not installed")
            continue
        brings = ", ".join(runs[0][name][1])
        print(f"  {name:42} {statistics.median(seconds):10.2f} {min(seconds):10.2f}   {brings}", flush=True)
    ours, peer = "from onnxtrain import OrtGradientRegressor", "import sklearn.neural_network"
    ratio = statistics.median(run[ours][0] / run[peer][0] for run in runs)
    print(f"  ours/theirs: {ratio:.2f} {judge(ours, peer, ratio, Wanted(1.4), given)}")


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
