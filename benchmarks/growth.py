"""Measure how the time of a step grows with the width and the depth of the network."""

from __future__ import annotations

import math
import statistics

from _harness import KERNELS, OURS, Options, Wanted, environment, interleave, judge, options
from _networks import CONTENDERS, Problem
from mlp import steps_alone

BATCH = 128
PEER = "PyTorch loop, fused"


def operations(problem: Problem) -> float:
    """Return the floating-point operations of the products of a step: forward, and twice as many backward."""
    return 6.0 * problem.batch * sum(a * b for a, b in zip(problem.sizes, problem.sizes[1:], strict=False))


def slope(x: list[float], y: list[float]) -> float:
    """Return the slope b of the least-squares line y = a + b x."""
    mx, my = statistics.mean(x), statistics.mean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def main(given: Options) -> None:
    """Print both tables and the growth of the time: per additional operation, and as a power of the operations.

    A step with n operations takes the time a + b n. The growth per operation is b. The power is b n / (a + b n), which
    is lower the higher the fixed cost a is.
    """
    widths = [64, 128, 256, 512] if given.quick else [64, 128, 256, 512, 1024, 2048]
    depths = [1, 2, 4, 8] if given.quick else [1, 2, 4, 8, 16, 32]
    table("width of 2 hidden layers", {n: (64, n, n, 10) for n in widths}, given)
    table("depth, hidden layers of 128", {n: (64, *[128] * n, 10) for n in depths}, given)


def table(title: str, networks: dict[int, tuple[int, ...]], given: Options) -> None:
    """Print one table."""
    print(f"\nus a step by {title}, batch {BATCH}, Adam")
    print(f"  {'':>6} {'operations':>12} {'onnxtrain':>12} {PEER:>20} {'ours/theirs':>12}")
    flops: list[float] = []
    seconds: dict[str, list[float]] = {}
    for n, sizes in networks.items():
        problem = Problem(sizes, 10 * BATCH, BATCH, classifies=True, threads=given.threads)
        enough = 5e10 if given.quick else 2e11  # a second or more, because less would be lost in the rest of a fit
        epochs = max(3, min(200, int(enough / operations(problem) / problem.steps)))
        makers = {name: steps_alone(CONTENDERS[name], problem, epochs) for name in (OURS, PEER)}
        figures, missing = interleave(makers, given.rounds)
        flops.append(operations(problem))
        for name, values in figures.items():
            seconds.setdefault(name, []).append(statistics.median(values))
        ours, theirs = seconds[OURS][-1], seconds[PEER][-1] if PEER not in missing else math.nan
        print(f"  {n:6} {flops[-1]:12.3g} {ours * 1e6:12.1f} {theirs * 1e6:20.1f} {ours / theirs:12.2f}", flush=True)
    half = len(flops) // 2 - 1  # the cost of small networks depends on the number of nodes
    flops, logarithms = flops[half:], [math.log(v) for v in flops[half:]]
    further = {name: slope(flops, values[half:]) for name, values in seconds.items()}
    for name, values in seconds.items():
        exponent = slope(logarithms, [math.log(v) for v in values[half:]])
        print(
            f"  in the upper half {further[name] * 1e12:4.1f} ps a further one, ~ operations ** {exponent:.2f}: {name}"
        )
    if PEER in further:
        found = further[OURS] / further[PEER]
        title, wanted = f"a further operation, by {title}", Wanted(1.0, KERNELS)
        verdict = "" if given.quick else f", at most {wanted.at_most:.2f} {judge(title, PEER, found, wanted, given)}"
        print(f"  a further operation, ours/theirs: {found:.2f}{verdict}")


if __name__ == "__main__":
    found = options(__doc__)
    print(environment())
    main(found)
