"""Compare fits of networks over 20 epochs, and single steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from _harness import KERNELS, Options, Run, Wanted, case, environment, forget, options, timed
from _networks import CONTENDERS, Problem, onnxsim_steps, pytorch

SMALL = Problem((10, 100, 1), 4000, 32)
MIDDLE = Problem((64, 100, 100, 10), 4000, 200, classifies=True)
WIDE = Problem((784, 256, 128, 10), 10_000, 200, classifies=True)
HUGE = Problem((784, 1024, 1024, 10), 2560, 256, classifies=True)

OPERATORS = (
    "A step is a run of onnxruntime, 5 us with its 18 inputs and outputs, and 38 operators, 0.4 us each beside what "
    "they compute; XLA compiles the whole scan to one function, which keeps the elementwise results in registers."
)

GRAPHS = (
    "A fit with empty caches first converts the estimator, derives the gradient and opens the sessions, in some 40 ms; "
    "the steps alone take 0.4 of scikit-learn's, see the next table."
)

PRODUCTS = "Both run the same matrix products in onnxruntime, which are most of a step of this size."

COMPILED = "PyTorch, torch.compile"
RIVALS = {COMPILED: Wanted(0.8), "onnxsim": Wanted(0.8, PRODUCTS)}

# the limits of the ratios, ours / theirs
Table = list[tuple[Problem, dict[str, Wanted]]]

FITS: Table = [
    (SMALL, {"scikit-learn": Wanted(0.25), "skorch": Wanted(0.10), "JAX scan": Wanted(0.50)}),
    (MIDDLE, {"scikit-learn": Wanted(0.45, GRAPHS), "skorch": Wanted(0.40)}),
    (WIDE, {"scikit-learn": Wanted(0.55, GRAPHS), "PyTorch loop, fused": Wanted(0.95)}),
]
STEPS: Table = [
    (SMALL, {"JAX scan": Wanted(2.0, OPERATORS), **RIVALS}),
    (replace(SMALL, batch=200), {"JAX scan": Wanted(1.3, OPERATORS), **RIVALS}),
    (MIDDLE, {"JAX scan": Wanted(1.1, OPERATORS), **RIVALS}),
    (WIDE, {**RIVALS}),
    (replace(WIDE, solver="momentum"), {"PyTorch loop, fused": Wanted(0.80, KERNELS)}),
    (HUGE, {"PyTorch loop, fused": Wanted(1.20, KERNELS), "JAX scan": Wanted(1.10, KERNELS)}),
    (
        replace(HUGE, solver="momentum"),
        {"PyTorch loop, fused": Wanted(1.05, KERNELS), "JAX scan": Wanted(1.05, KERNELS)},
    ),
]


STEPPERS = {name: make for name, make in CONTENDERS.items() if name != "skorch"}
STEPPERS |= {COMPILED: partial(pytorch, compiled=True), "onnxsim": onnxsim_steps}


def whole_fit(make: Callable, problem: Problem, epochs: int) -> Callable[[], Run]:
    """Return the maker of a contender that times fits with empty caches."""

    def prepare() -> Run:
        fit = make(problem)

        def run() -> float:
            forget()
            return timed(lambda: fit(epochs))

        return run

    return prepare


def steps_alone(make: Callable, problem: Problem, epochs: int) -> Callable[[], Run]:
    """Return the maker of a contender that times a step as the difference between a long and a short fit."""

    def prepare() -> Run:
        fit = make(problem)

        def run() -> float:
            short, long = timed(lambda: fit(1)), timed(lambda: fit(1 + epochs))
            return max(long - short, 1e-9) / (epochs * problem.steps)

        return run

    return prepare


def problems(given: Options) -> tuple[Table, Table]:
    """Return the problems for fits and for steps: the tables above, or a network of the user's sizes."""
    if given.network:
        own = Problem(given.network, 4000, given.batch, classifies=given.network[-1] > 1)
        return [(own, {})], [(own, {})]
    return FITS[: 2 if given.quick else None], STEPS[: 3 if given.quick else None]


def main(given: Options) -> None:
    """Print both tables."""
    fits, steps = problems(given)
    for problem, targets in fits:
        problem = replace(problem, threads=given.threads)
        epochs = 5 if given.quick else 20
        makers = {name: whole_fit(make, problem, epochs) for name, make in CONTENDERS.items()}
        case(f"{problem.name}: fit, {epochs} epochs", makers, given, targets=targets)
    for problem, targets in steps:
        problem = replace(problem, threads=given.threads)
        epochs = max(1, (250 if given.quick else 2000) // (problem.steps * max(1, sum(problem.sizes) // 200)))
        makers = {name: steps_alone(make, problem, epochs) for name, make in STEPPERS.items()}
        case(f"{problem.name}: one step", makers, given, unit="us", scale=1e6, targets=targets)


if __name__ == "__main__":
    found = options(__doc__, networks=True)
    print(environment())
    main(found)
