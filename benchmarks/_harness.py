"""Functions shared by the benchmarks: interleaved timing, medians, tables, and contenders that are not installed.

Every contender of a case runs once per round, in turn, so that other load of the machine affects all contenders alike.
A short case has more rounds. A figure is the median over the rounds. A ratio is the median over the rounds of our
figure divided by the other contender's figure of the same round.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import random
import statistics
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

#: Runs once and returns the measured value in seconds, or in another unit in which less is better.
Run = Callable[[], float]

OURS = "onnxtrain"

#: The duration of a case whose ratio is judged, in seconds. It is longer than typical changes in other load.
_LONG_ENOUGH = 15.0


class Missing(Exception):
    """A contender cannot run; the message gives the reason."""


#: The reason why PyTorch and JAX are faster than onnxruntime on some processors for networks with large layers.
KERNELS = (
    "On processors with AVX-512 the kernels of MKL and oneDNN are ahead of onnxruntime's: a convolution takes a fifth "
    "to a third less, the product for the gradient of a weight a quarter, a forward product by weights as "
    "scikit-learn keeps them, (inputs, outputs), a sixth to a quarter. The update of a weight is one pass over the "
    "memory there; here it is one over the cache for each operator, of which Adam has ten."
)


class Wanted(NamedTuple):
    """The upper limit of a figure, and the reason if the figure exceeds it."""

    at_most: float
    reason: str = ""


@dataclass(frozen=True)
class Options:
    """The command-line options of every benchmark.

    Attributes
    ----------
    quick : bool
        Whether to use small sizes, for a quick run.
    rounds : int
        The number of runs of each contender.
    threads : int
        The number of threads of each contender.
    rows : Path, optional
        The file to which judged figures are appended, one JSON array per line. ``run.py`` prints them all.
    network : tuple of int
        User-defined sizes: columns, hidden layers, outputs. If empty, the sizes in the benchmark are used.
    batch : int
        The batch size of that network.
    """

    quick: bool = False
    rounds: int = 5
    threads: int = os.cpu_count() or 1
    rows: Path | None = None
    network: tuple[int, ...] = ()
    batch: int = 200


def options(description: str | None, *, networks: bool = False) -> Options:
    """Return the command-line options, and ignore warnings about convergence."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=int, help="runs of each contender (5; 3 with --quick)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of each contender (all cores)"
    )
    parser.add_argument("--rows", type=Path, help="a file to append the judged figures to")
    if networks:
        parser.add_argument("--network", default="", help="sizes of one's own, as in 48-96-1")
        parser.add_argument("--batch", type=int, default=200, help="rows of a batch of that network (200)")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # few epochs do not converge
    rounds = given.rounds or (3 if given.quick else 5)
    sizes = tuple(map(int, given.network.split("-"))) if networks and given.network else ()
    return Options(given.quick, rounds, given.threads, given.rows, sizes, given.batch if networks else 200)


def need(*modules: str) -> None:
    """Raise :class:`Missing` unless the modules can be imported."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as e:
            raise Missing(f"{name} is not installed") from e


def forget() -> None:
    """Clear all caches of onnxtrain and of JAX, so that the next fit builds and compiles its graphs again."""
    for name in ("onnxtrain", "jax"):
        if name in sys.modules:
            sys.modules[name].clear_caches()
    gc.collect()


def timed(f: Callable[[], object]) -> float:
    """Return the seconds one call takes."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def interleave(
    makers: Mapping[str, Callable[[], Run]], rounds: int, seconds: float = 0.0
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run contenders in turn, in an order that changes from round to round.

    Parameters
    ----------
    makers : mapping of name to callable
        Each function prepares a contender and returns the function to time. It may raise :class:`Missing`.
    rounds : int
        The least number of rounds.
    seconds : float
        The time during which further rounds are added.

    Returns
    -------
    figures : dict of name to list of float
    missing : dict of name to str
        The reason why a contender did not run.
    """
    runs, missing = {}, {}
    for name, make in makers.items():
        try:
            runs[name] = make()
        except Missing as e:
            missing[name] = str(e)
    for run in runs.values():
        run()  # warm up: imports, thread pools, first allocations
    figures: dict[str, list[float]] = {name: [] for name in runs}
    start, done = time.perf_counter(), 0
    order, shuffle = list(runs), random.Random(0).shuffle
    while done < rounds or time.perf_counter() < start + seconds:
        shuffle(order)  # what a contender leaves behind, in caches and threads, is not always left to the same one
        for name in order:
            figures[name].append(runs[name]())
        done += 1
    return figures, missing


def ratio(figures: Mapping[str, Sequence[float]], peer: str, ours: str = OURS) -> float:
    """Return the median over the rounds of our figure divided by theirs."""
    return statistics.median(a / b for a, b in zip(figures[ours], figures[peer], strict=True))


def case(
    title: str,
    makers: Mapping[str, Callable[[], Run]],
    given: Options,
    *,
    unit: str = "ms",
    scale: float = 1e3,
    targets: Mapping[str, Wanted] | None = None,
) -> dict[str, float]:
    """Run one case, print its table and return the ratios of our figure to the other figures.

    Parameters
    ----------
    title : str
    makers : mapping of name to callable
        As in :func:`interleave`. The contender of this package is called ``"onnxtrain"``.
    given : Options
    unit : str
    scale : float
        Units per second.
    targets : mapping of name to Wanted
        The upper limits of the ratios. A case with limits runs longer. Small sizes are not judged.
    """
    targets = {} if given.quick else targets or {}
    figures, missing = interleave(makers, given.rounds, _LONG_ENOUGH if targets else 0.0)
    ratios = {name: ratio(figures, name) for name in figures if name != OURS}
    print(f"\n{title}")
    print(f"  {'':34} {unit:>12} {'ours/theirs':>12} {'at most':>8}")
    for name in makers:
        if name in missing:
            print(f"  {name:34} {'-':>12}   left out: {missing[name]}")
            continue
        figure = f"{statistics.median(figures[name]) * scale:12.5g}"
        if name not in ratios:
            print(f"  {name:34} {figure}", flush=True)
            continue
        wanted = targets.get(name)
        verdict = "" if wanted is None else f" {wanted.at_most:8.2f} {judge(title, name, ratios[name], wanted, given)}"
        print(f"  {name:34} {figure} {ratios[name]:12.2f}{verdict}", flush=True)
    return ratios


def limit(title: str, unit: str, figure: float, wanted: Wanted, given: Options) -> None:
    """Print and judge a figure that is not compared with another contender."""
    print(f"  {title:70} {figure:8.2f} {unit:20} {wanted.at_most:8.2f} {judge(title, unit, figure, wanted, given)}")


def judge(title: str, peer: str, figure: float, wanted: Wanted, given: Options) -> str:
    """Return "ok", "MISSED" or "not judged" for a figure; append it, with the reason, to the file of judged figures."""
    if given.quick:
        return "not judged"
    met = figure <= wanted.at_most
    if given.rows is not None:
        with given.rows.open("a") as file:
            print(json.dumps([title, peer, figure, wanted.at_most, met, wanted.reason]), file=file)
    return "ok" if met else "MISSED"


def environment() -> str:
    """Return a paragraph about the machine and the installed versions."""
    packages = (
        "numpy scikit-learn onnx onnxruntime onnxruntime-gpu onnxruntime-training-cpu torch skorch jax optax onnxsim "
        "dask"
    )
    found = []
    for name in packages.split():
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    text = f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}; {', '.join(found)}"
    return textwrap.fill(text, 95, break_on_hyphens=False)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
