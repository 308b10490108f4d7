"""Measure the speedup of a second Dask worker with one thread, and simulate more workers.

Measured are an evaluation of L-BFGS and a step of a network, on 1 and on 2 workers of this machine in turn. The wall
clock time is meaningful only with one core for each worker and one for the client. On a machine with other load, two
other figures are more reliable: the CPU time of the computing threads, and the least time of everything else, namely
tasks, the transfer of weights and gradients, and the update.

Simulated are the same fits with more workers on a network, from the measured costs of a row, of a task and of an
update. The client receives a gradient from each thread and adds them. One worker passes the weights on to all others.
"""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from _harness import Options, environment, options

#: The latency of a message in seconds, and the bandwidth in bytes per second.
NETWORKS = {"1 Gb/s": (150e-6, 0.117e9), "10 Gb/s": (60e-6, 1.1e9), "25 Gb/s": (40e-6, 2.9e9)}

WORKERS = (2, 4, 8, 16, 32, 64)

#: The slowest of p tasks takes longer than the mean by this fraction times sqrt(2 ln p), as for normal distributions.
JITTER = 0.05


@dataclass(frozen=True)
class Cost:
    """Seconds per iteration or step: the tasks of the busiest worker, everything else, and the wall clock time."""

    rows: float
    rest: float
    wall: float


@dataclass(frozen=True)
class Case:
    """A problem: rows that the workers generate, and a fit with a number of evaluations or epochs."""

    name: str
    n_rows: int
    n_features: int
    n_chunks: int
    n_bytes: int
    max_iter: int
    per_epoch: int
    make: Callable[..., object]


def linear(quick: bool) -> Case:
    """Return the case of L-BFGS on many rows."""
    n_rows = 200_000 if quick else 2_000_000

    def make(max_iter: int) -> object:
        import numpy as np
        from sklearn.linear_model import LogisticRegression

        from onnxtrain.dask import OrtGradientClassifier

        rng = np.random.default_rng(0)
        start = LogisticRegression(max_iter=100).fit(rng.standard_normal((200, 100)), np.arange(200) % 2)
        start.coef_[:] = 0
        return OrtGradientClassifier(start, solver="lbfgs", max_iter=max_iter, tol=0.0, n_threads=1)

    return Case(f"L-BFGS, {n_rows:,} x 100", n_rows, 100, 8, 808, 16, 1, make)


def network(quick: bool) -> Case:
    """Return the case of a large network with large batches."""
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
    return Case("784-1024-1024-10, batch 2,000", n_rows, 784, 8, 4 * parameters, 3, steps, make)


def rows(case: Case) -> tuple[object, object]:
    """Return the lazy rows of a case."""
    import dask.array as da
    import numpy as np

    rng = da.random.default_rng(0)
    chunk = case.n_rows // case.n_chunks
    X = rng.standard_normal((case.n_rows, case.n_features), chunks=(chunk, -1), dtype="float32")
    n_classes = 2 if case.n_features == 100 else 10
    noise = rng.standard_normal(case.n_rows, chunks=chunk)
    if n_classes == 10:
        return X, rng.integers(0, 10, case.n_rows, chunks=chunk)
    scales = np.logspace(0, 1, case.n_features, dtype=np.float32)  # so that L-BFGS needs many iterations
    return X * scales, (X.sum(axis=1) + 5 * noise > 0).astype("int64")


@contextmanager
def watched() -> Iterator[list[tuple[float, list]]]:
    """Yield a list that receives the wall clock time of each evaluation or step and the sums of its tasks."""
    from onnxtrain.dask import rows, steps

    seen, parts = [], []

    def timed(function: Callable) -> Callable:
        def call(*args):
            parts.clear()
            begin = time.perf_counter()
            result = function(*args)
            seen.append((time.perf_counter() - begin, list(parts)))
            return result

        return call

    def total(found):
        parts.extend(found)
        return sums(found)

    sums, evaluation, step = rows.total, rows.DistributedRows.loss_and_gradient, steps.DistributedLoop._step
    rows.total = total
    rows.DistributedRows.loss_and_gradient, steps.DistributedLoop._step = timed(evaluation), timed(step)
    try:
        yield seen
    finally:
        rows.total, rows.DistributedRows.loss_and_gradient, steps.DistributedLoop._step = sums, evaluation, step


def measured(case: Case, n_workers: int, client) -> Cost:
    """Return the costs of one iteration or step of a fit, without the first ones, which open sessions."""
    from distributed import wait

    X, y = (x.persist() for x in rows(case))
    wait([X, y])
    with watched() as seen:
        case.make(case.max_iter).set_params(client=client).fit(X, y)
    walls, rests, cpus = [], [], []
    for wall, parts in seen[3:]:
        # each partition of L-BFGS is a task, and all workers have equally many
        busy, cpu = (max(sum(x) / n_workers, max(x)) for x in ([p.seconds for p in parts], [p.cpu for p in parts]))
        walls.append(wall)
        rests.append(wall - busy)
        cpus.append(cpu)
    return Cost(statistics.median(cpus), min(rests), statistics.median(walls))


def compare(case: Case, given: Options) -> Cost:
    """Print the speedup of a second worker; return the costs with one worker."""
    import dask
    from distributed import Client, LocalCluster

    # the profiler of the workers takes CPU time each second, more if the machine has other load
    dask.config.set({"distributed.worker.profile.enabled": False})
    found: dict[int, list[Cost]] = {1: [], 2: []}
    for _ in range(given.rounds):
        for n_workers in found:
            with (
                LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as c,
                Client(c, direct_to_workers=True) as client,
            ):
                found[n_workers].append(measured(case, n_workers, client))
    one, two = (_median(costs) for costs in found.values())
    cpu = statistics.median((a.rows + a.rest) / (b.rows + b.rest) for a, b in zip(found[1], found[2], strict=True))
    wall = statistics.median(a.wall / b.wall for a, b in zip(found[1], found[2], strict=True))
    print(f"\n{case.name}: one iteration or step, ms, medians of {given.rounds} rounds")
    print(f"{'':12}{'computing, CPU':>22}{'least rest':>14}{'wall clock':>14}")
    for name, cost in (("1 worker", one), ("2 workers", two)):
        print(f"{name:12}{1e3 * cost.rows:22.1f}{1e3 * cost.rest:14.1f}{1e3 * cost.wall:14.1f}")
    print(
        f"2 workers against 1: x{one.rows / two.rows:.2f} computing, x{wall:.2f} by the wall clock,\n"
        f"x{cpu:.2f} with the least rest (at least x1.50 is wanted)"
    )
    return one


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(c, name) for c in costs) for name in ("rows", "rest", "wall")))


def simulated(case: Case, cost: Cost, n_rows: float, network: str, p: int) -> float:
    """Return the seconds of an iteration or a step over a number of rows on p workers."""
    alpha, beta = NETWORKS[network]
    rows_of_one = case.n_rows if case.per_epoch == 1 else 2000
    computing = cost.rows * n_rows / rows_of_one / p * (1 + JITTER * math.sqrt(2 * math.log(p)) if p > 1 else 1)
    per_task = cost.rest / case.n_chunks if case.per_epoch == 1 else cost.rest / 2
    message = alpha + case.n_bytes / beta
    # the client receives p gradients one after the other; each hop doubles the number of workers that have the weights
    return computing + per_task * p + p * message + math.ceil(math.log2(p) + 1) * message


def simulate(case: Case, cost: Cost, sizes: tuple[float, ...]) -> None:
    """Print the simulated speedup by number of workers."""
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
    simulate(lbfgs, compare(lbfgs, given), (2e6, 1e8))
    simulate(steps, compare(steps, given), (200, 2_000, 20_000))


if __name__ == "__main__":
    main()
