"""Learning rates: their formulas, PyTorch's OneCycleLR, their errors."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from onnxtrain.errors import OptimizerError
from onnxtrain.optim import (
    SCHEDULES,
    Adaptive,
    Constant,
    Cosine,
    InverseScaling,
    OneCycle,
    Optimal,
    Schedule,
    make_schedule,
)


def halving(step):
    return 0.5**step


# schedule, step, n_steps, plateaus, rate
RATES = [
    (Constant(), 0, 10, 0, 1e-3),
    (Constant(0.5), 9, 10, 3, 0.5),
    (InverseScaling(0.1), 0, 10, 0, 0.1),
    (InverseScaling(0.1), 3, 10, 0, 0.05),
    (InverseScaling(0.1, power_t=1.0), 3, 10, 0, 0.025),
    (Optimal(0.1), 0, 10, 0, 0.1),
    (Optimal(0.1, alpha=1e-4), 11_000, 10, 0, 0.1 * 22_000 / 33_000),  # alpha ** -0.25 is 10, gamma 10 / 22
    (Optimal(0.1, alpha=16.0), 10, 10, 0, 0.1 / (1 + 160 * 0.5 / 3)),
    (Adaptive(0.1), 5, 10, 0, 0.1),
    (Adaptive(0.1), 5, 10, 2, 0.004),
    (Adaptive(0.1, factor=2), 5, 10, 3, 0.0125),
    (Cosine(0.1), 0, 10, 0, 0.1),
    (Cosine(0.1), 5, 10, 0, 0.05),
    (Cosine(0.1), 99, 10, 0, 0.05 * (1 + math.cos(0.9 * math.pi))),
    (Cosine(0.1, warmup=0.5), 0, 10, 0, 0.02),
    (Cosine(0.1, warmup=0.5), 4, 10, 0, 0.1),
    (Cosine(0.1, warmup=0.5), 5, 10, 0, 0.1),
    (Cosine(0.1, warmup=0.9), 0, 1, 0, 0.1),
    (Cosine(0.1, final_ratio=1.0), 7, 10, 0, 0.1),
    (OneCycle(0.1), 0, 10, 0, 0.004),
    (OneCycle(0.1), 2, 10, 0, 0.1),
    (OneCycle(0.1), 9, 10, 0, 0.1 / 25 / 1e4),
    (OneCycle(0.1), 50, 10, 0, 0.1 / 25 / 1e4),
    (OneCycle(0.1, pct_start=1.0), 9, 10, 0, 0.1),
    (OneCycle(0.1, pct_start=0.1), 0, 10, 0, 0.1),
    (make_schedule(halving), 2, 10, 0, 0.25),
    (make_schedule(np.float32(0.25)), 2, 10, 0, 0.25),
    (make_schedule(1), 2, 10, 0, 1.0),
]


@pytest.mark.parametrize("schedule, step, n_steps, plateaus, rate", RATES)
def test_rates(schedule, step, n_steps, plateaus, rate):
    found = schedule(step, n_steps, plateaus)
    assert isinstance(found, float)
    assert found == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_a_row(name):
    assert any(type(row[0]) is SCHEDULES[name] for row in RATES)
    assert make_schedule(name).learning_rate == 1e-3


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_stay_positive_and_below_the_first(name, n_steps):
    rates = [make_schedule(name)(step, n_steps) for step in range(n_steps + 2)]
    assert all(0 < rate <= 1e-3 for rate in rates)


@pytest.mark.parametrize("n_steps", [10, 37, 100])
@pytest.mark.parametrize("pct_start, div, final", [(0.3, 25.0, 1e4), (0.5, 10.0, 100.0)])
def test_one_cycle_is_pytorchs(n_steps, pct_start, div, final):
    torch = pytest.importorskip("torch")
    solver = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        solver, 0.1, total_steps=n_steps, pct_start=pct_start, div_factor=div, final_div_factor=final
    )
    ours = OneCycle(0.1, pct_start, div, final)
    for step in range(n_steps):
        assert ours(step, n_steps) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        solver.step()
        if step + 1 < n_steps:
            theirs.step()


@pytest.mark.parametrize("schedule", [row[0] for row in RATES])
def test_a_schedule_is_a_value(schedule):
    assert copy.deepcopy(schedule) == schedule == pickle.loads(pickle.dumps(schedule))
    assert make_schedule(schedule) is schedule
    assert isinstance(schedule, Schedule)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: make_schedule("cosin"), "Unknown learning rate schedule 'cosin'. Did you mean 'cosine'"),
        (lambda: make_schedule(Cosine), r"Pass Cosine\(\)"),
        (lambda: make_schedule(None), "learning_rate must be a number, one of constant, .* got None"),
        (lambda: make_schedule([0.1]), "learning_rate must be a number"),
        (lambda: make_schedule(0.0), r"learning_rate must be a number in \(0, inf\), got 0.0"),
        (lambda: make_schedule(-1), "got -1"),
        (lambda: make_schedule(float("nan")), "got nan"),
        (lambda: make_schedule(True), "got True"),
        (lambda: Constant("a"), "got 'a'"),
        (lambda: InverseScaling(power_t=-1), "InverseScaling: power_t"),
        (lambda: Adaptive(factor=1), r"Adaptive: factor must be a number in \(1, inf\), got 1"),
        (lambda: Cosine(warmup=1.0), "Cosine: warmup"),
        (lambda: Cosine(final_ratio=2), r"Cosine: final_ratio must be a number in \[0, 1\], got 2"),
        (lambda: OneCycle(pct_start=1.1), "OneCycle: pct_start"),
        (lambda: OneCycle(div_factor=0.5), "OneCycle: div_factor"),
        (lambda: OneCycle(final_div_factor=0), "OneCycle: final_div_factor"),
        (lambda: make_schedule(lambda step: -1.0)(0, 1), r"<lambda>\(0\) returned -1.0"),
        (lambda: make_schedule(lambda step: math.inf)(3, 5), r"\(3\) returned inf"),
        (lambda: make_schedule(lambda step: "0.1")(0, 1), "positive, finite number"),
        (lambda: make_schedule(lambda step: float("nan"))(0, 1), "returned nan"),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises(OptimizerError, match=message):
        make()
