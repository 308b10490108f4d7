"""A Dask cluster of one-threaded workers: what a second worker brings, and what many would.

Measured: fits on 1 and on 2 workers of this machine, in turn, less short ones: an evaluation of L-BFGS, or a step.
The wall clock needs a core for each worker and one for the client. Where the machine does other things, CPU time tells
more: of the busiest worker and of the client, which work one after the other, as if each had a core for itself.

Simulated: the same for more workers on a network, from the measured costs of a row, of a task and of an update. The
client sums: it receives a gradient from each thread, and one worker passes the weights on to all others.
"""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from _harness import Options, environment, options

#: Seconds a message takes, and bytes a second.
NETWORKS = {"1 Gb/s": (150e-6, 0.117e9), "10 Gb/s": (60e-6, 1.1e9), "25 Gb/s": (40e-6, 2.9e9)}

WORKERS = (2, 4, 8, 16, 32, 64)

#: The slowest of p tasks is later than their mean by this part times sqrt(2 ln p): that of normal times.
JITTER = 0.05


@dataclass(frozen=True)
class Cost:
    """Seconds of an evaluation or a step: of all rows on one worker, of the client, and the wall clock."""

    rows: float
    client: float
    wall: float


@dataclass(frozen=True)
class Case:
    """A problem: rows made by the workers, and a fit of so many evaluations or epochs."""

    name: str
    n_rows: int
    n_features: int
    n_chunks: int
    n_bytes: int
    per_fit: Callable[[int], int]
    make: Callable[..., object]


def linear(quick: bool) -> Case:
    """Return L-BFGS on many rows."""
    n_rows = 200_000 if quick else 2_000_000

    def make(max_iter: int) -> object:
        import numpy as np
        from sklearn.linear_model import LogisticRegression

        from onnxtrain.dask import OrtGradientClassifier

        rng = np.random.default_rng(0)
        start = LogisticRegression(max_iter=100).fit(rng.standard_normal((200, 100)), np.arange(200) % 2)
        start.coef_[:] = 0
        return OrtGradientClassifier(start, solver="lbfgs", max_iter=max_iter, tol=0.0, n_threads=1)

    return Case(f"L-BFGS, {n_rows:,} x 100", n_rows, 100, 8, 808, lambda n: n, make)


def network(quick: bool) -> Case:
    """Return steps of a large network on large batches."""
    n_rows = 8_000 if quick else 20_000

    def make(max_iter: int) -> object:
        import numpy as np
        from sklearn.neural_network import MLPClassifier

        from onnxtrain.dask import OrtGradientClassifier

        rng = np.random.default_rng(0)
        start = MLPClassifier(hidden_layer_sizes=(1024, 1024), max_iter=1, random_state=0)
        start.fit(rng.standard_normal((20, 784)), np.arange(20) % 10)
        return OrtGradientClassifier(
            start, solver="adam", batch_size=2000, max_iter=max_iter, tol=0.0, n_threads=1, random_state=0
        )

    parameters = 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10
    steps = n_rows // 2000
    return Case("784-1024-1024-10, batch 2,000", n_rows, 784, 8, 4 * parameters, lambda n: n * steps, make)


def rows(case: Case) -> tuple[object, object]:
    """Return the lazy rows of a case."""
    import dask.array as da

    rng = da.random.default_rng(0)
    chunk = case.n_rows // case.n_chunks
    X = rng.standard_normal((case.n_rows, case.n_features), chunks=(chunk, -1), dtype="float32")
    n_classes = 2 if case.n_features == 100 else 10
    noise = rng.standard_normal(case.n_rows, chunks=chunk)
    y = (X[:, 0] + noise > 0).astype("int64") if n_classes == 2 else rng.integers(0, 10, case.n_rows, chunks=chunk)
    return X, y


def measured(case: Case, fits: tuple[int, int], client) -> Cost:
    """Return the costs of one evaluation or step: those of a long fit less those of a short one."""
    from distributed import wait

    X, y = (x.persist() for x in rows(case))
    wait([X, y])
    case.make(1).set_params(client=client).fit(X, y)  # sessions are opened
    found = []
    for max_iter in fits:
        model = case.make(max_iter).set_params(client=client)
        before, wall, own = client.run(time.process_time), time.perf_counter(), time.process_time()
        model.fit(X, y)
        after = client.run(time.process_time)
        busiest = max(after[w] - before[w] for w in after)
        n = case.per_fit(max_iter) if model.solver != "lbfgs" else model.n_iter_
        found.append((n, busiest, time.process_time() - own, time.perf_counter() - wall))
    (n0, *short), (n1, *long) = found
    return Cost(*((b - a) / (n1 - n0) for a, b in zip(short, long, strict=True)))


def compare(case: Case, fits: tuple[int, int], given: Options) -> Cost:
    """Print what a second worker brings; return the costs on one."""
    from distributed import Client, LocalCluster

    found: dict[int, list[Cost]] = {1: [], 2: []}
    for _ in range(given.rounds):
        for n_workers in found:
            with (
                LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as c,
                Client(c) as client,
            ):
                found[n_workers].append(measured(case, fits, client))
    one, two = (_median(costs) for costs in found.values())
    cpu = statistics.median((a.rows + a.client) / (b.rows + b.client) for a, b in zip(found[1], found[2], strict=True))
    wall = statistics.median(a.wall / b.wall for a, b in zip(found[1], found[2], strict=True))
    print(f"\n{case.name}: one evaluation or step, ms, medians of {given.rounds} rounds")
    print(f"{'':12}{'busiest worker, CPU':>22}{'client, CPU':>14}{'wall clock':>14}")
    for name, cost in (("1 worker", one), ("2 workers", two)):
        print(f"{name:12}{1e3 * cost.rows:22.1f}{1e3 * cost.client:14.1f}{1e3 * cost.wall:14.1f}")
    print(f"2 workers against 1: x{cpu:.2f} by CPU time (at least x1.50 is wanted), x{wall:.2f} by the wall clock")
    return one


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(c, name) for c in costs) for name in ("rows", "client", "wall")))


def simulated(case: Case, cost: Cost, n_rows: float, network: str, p: int) -> float:
    """Return the seconds of an evaluation or a step over so many rows on p workers."""
    alpha, beta = NETWORKS[network]
    rows_of_one = case.n_rows if case.per_fit(1) == 1 else 2000
    computing = cost.rows * n_rows / rows_of_one / p * (1 + JITTER * math.sqrt(2 * math.log(p)) if p > 1 else 1)
    per_task = cost.client / case.n_chunks if case.per_fit(1) == 1 else cost.client / 2
    message = alpha + case.n_bytes / beta
    # the client receives p gradients one after the other; the weights double the workers that have them with each hop
    return computing + per_task * p + p * message + math.ceil(math.log2(p) + 1) * message


def simulate(case: Case, cost: Cost, sizes: tuple[float, ...]) -> None:
    """Print how many workers would bring how much."""
    print(f"\n{case.name}, simulated: times as fast as 1 worker")
    print(f"{'rows':>12}  {'network':10}" + "".join(f"{p:>8}" for p in WORKERS))
    for n_rows in sizes:
        for name in NETWORKS:
            alone = simulated(case, cost, n_rows, name, 1)
            gains = (alone / simulated(case, cost, n_rows, name, p) for p in WORKERS)
            print(f"{n_rows:12,.0f}  {name:10}" + "".join(f"{gain:8.1f}" for gain in gains))


def main() -> None:
    """Measure and simulate both cases."""
    given = options(__doc__)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    warnings.simplefilter("ignore")
    print(environment())
    lbfgs, steps = linear(given.quick), network(given.quick)
    simulate(lbfgs, compare(lbfgs, (2, 12), given), (2e6, 1e8))
    simulate(steps, compare(steps, (1, 4), given), (200, 2_000, 20_000))


if __name__ == "__main__":
    main()
