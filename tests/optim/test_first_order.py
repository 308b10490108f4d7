"""The optimizers: trajectories against PyTorch's, parameters, the table."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnxtrain import graph
from onnxtrain.autodiff import backpropagate
from onnxtrain.errors import OptimizerError
from onnxtrain.optim import (
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    global_norm_factor,
    make_optimizer,
    optimizer,
)

STEPS, ROWS, SIZES = 100, 16, (5, 8, 2)

# name: ours, the name of PyTorch's, its parameters, the learning rate
TRAJECTORIES = {
    "sgd": (SGD(), "SGD", {}, 0.1),
    "momentum": (SGD(momentum=0.9), "SGD", {"momentum": 0.9}, 0.05),
    "nesterov": (SGD(momentum=0.9, nesterov=True), "SGD", {"momentum": 0.9, "nesterov": True}, 0.05),
    "adam": (Adam(), "Adam", {}, 0.01),
    "adam-betas": (Adam(beta_1=0.8, beta_2=0.95, epsilon=1e-3), "Adam", {"betas": (0.8, 0.95), "eps": 1e-3}, 0.01),
    "adam-no-mean": (Adam(beta_1=0.0), "Adam", {"betas": (0.0, 0.999)}, 0.01),
    "adamw": (AdamW(), "AdamW", {}, 0.01),
    "adamw-decay": (AdamW(weight_decay=0.3), "AdamW", {"weight_decay": 0.3}, 0.01),
    "adamw-none": (AdamW(weight_decay=0.0), "AdamW", {"weight_decay": 0.0}, 0.01),
    "rmsprop": (RMSprop(), "RMSprop", {}, 0.01),
    "rmsprop-alpha": (RMSprop(alpha=0.9, epsilon=1e-4), "RMSprop", {"alpha": 0.9, "eps": 1e-4}, 0.01),
    "rmsprop-centered": (RMSprop(centered=True), "RMSprop", {"centered": True}, 0.01),
    "rmsprop-momentum": (RMSprop(momentum=0.5), "RMSprop", {"momentum": 0.5}, 0.01),
    "rmsprop-both": (RMSprop(momentum=0.5, centered=True), "RMSprop", {"momentum": 0.5, "centered": True}, 0.005),
    "adagrad": (Adagrad(), "Adagrad", {}, 0.05),
    "adagrad-decay": (Adagrad(lr_decay=0.1), "Adagrad", {"lr_decay": 0.1}, 0.05),
    "adagrad-start": (
        Adagrad(initial_accumulator_value=0.5, epsilon=1e-6),
        "Adagrad",
        {"initial_accumulator_value": 0.5, "eps": 1e-6},
        0.05,
    ),
}

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}


@dataclass
class Problem:
    """A tanh network, its data, and the rows of each step."""

    dtype: type
    clip_norm: float | None = None

    def __post_init__(self):
        rng = np.random.default_rng(0)
        p, h, k = SIZES
        self.X = rng.normal(size=(64, p)).astype(self.dtype)
        self.y = rng.normal(size=(64, k)).astype(self.dtype)
        self.weights = {
            "W0": rng.normal(size=(p, h)).astype(self.dtype),
            "b0": rng.normal(size=h).astype(self.dtype),
            "W1": rng.normal(size=(h, k)).astype(self.dtype),
            "b1": rng.normal(size=k).astype(self.dtype),
        }
        self.batches = [rng.permutation(64)[:ROWS] for _ in range(STEPS)]


def empty_model():
    """Return a model with nothing in it, and a builder on it."""
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": graph.OPSET}), ir_version=graph.IR_VERSION)
    return model, graph.builder(model)


def scalars_in_double(solver, op, rate, step):
    """Return the per-step scalars as nodes: float32 has four digits left of 1 - 0.999 ** t."""
    found = solver.scalars(op, *(op.Cast(x, to=ir.DataType.DOUBLE) for x in (rate, step)))
    return [op.Cast(x, to=rate.dtype) for x in found]


def step_graph(problem, solver, decays=None):
    """Return the bytes of one step; inputs X, y, learning_rate, step and the state."""
    dtype = ir.DataType.from_numpy(np.dtype(problem.dtype))
    model, build = empty_model()
    op = build.op
    x, y = build.input("X", dtype, [ROWS, SIZES[0]]), build.input("y", dtype, [ROWS, SIZES[-1]])
    rate, step = build.input("learning_rate", dtype, []), build.input("step", dtype, [])
    w = {name: build.input(name, dtype, value.shape) for name, value in problem.weights.items()}
    hidden = op.Tanh(op.Add(op.MatMul(x, w["W0"]), w["b0"]))
    error = op.Sub(op.Add(op.MatMul(hidden, w["W1"]), w["b1"]), y)
    found = backpropagate(op, list(model.graph), {error: op.Mul(error, 2.0 / ROWS)}, w.values())
    dws = [found[value] for value in w.values()]
    if problem.clip_norm is not None:
        factor = global_norm_factor(op, dws, problem.clip_norm)
        dws = [op.Mul(dw, factor) for dw in dws]
    slots = [tuple(build.input(f"{n}.{s}", dtype, v.shape) for s in solver.slots) for n, v in w.items()]
    scalars = scalars_in_double(solver, op, rate, step)
    solvers = [solver if decay else solver.without_decay() for decay in decays or [True] * len(w)]
    moved = [
        own.update(op, weight, dw, memory, *scalars)
        for own, weight, dw, memory in zip(solvers, w.values(), dws, slots, strict=True)
    ]
    outputs = []
    for name, (new, memory) in zip(w, moved, strict=True):
        outputs += [(f"next_{name}", new)]
        outputs += [(f"next_{name}.{slot}", value) for slot, value in zip(solver.slots, memory, strict=True)]
    return graph.save(model, outputs=outputs)


def train(problem, solver, learning_rate, decays=None):
    onnxruntime = pytest.importorskip("onnxruntime")
    onx = step_graph(problem, solver, decays)
    session = onnxruntime.InferenceSession(onx.SerializeToString(), providers=["CPUExecutionProvider"])
    state = dict(problem.weights)
    for name, value in problem.weights.items():
        state |= {f"{name}.{slot}": np.full_like(value, solver.initial(slot)) for slot in solver.slots}
    for t, rows in enumerate(problem.batches, start=1):
        scalars = {"learning_rate": np.array(learning_rate, problem.dtype), "step": np.array(t, problem.dtype)}
        feeds = {"X": problem.X[rows], "y": problem.y[rows]} | scalars | state
        feeds = {i.name: feeds[i.name] for i in session.get_inputs()}
        names = [o.name.removeprefix("next_") for o in session.get_outputs()]
        state = dict(zip(names, session.run(None, feeds), strict=True))
    return {name: state[name] for name in problem.weights}


def train_torch(problem, name, parameters, learning_rate, no_decay=()):
    torch = pytest.importorskip("torch")
    w = {k: torch.tensor(v, requires_grad=True) for k, v in problem.weights.items()}
    groups = [{"params": [v]} | ({"weight_decay": 0.0} if k in no_decay else {}) for k, v in w.items()]
    solver = getattr(torch.optim, name)(groups, lr=learning_rate, **parameters)
    for rows in problem.batches:
        x, y = torch.tensor(problem.X[rows]), torch.tensor(problem.y[rows])
        solver.zero_grad()
        loss = ((torch.tanh(x @ w["W0"] + w["b0"]) @ w["W1"] + w["b1"] - y) ** 2).sum() / ROWS
        loss.backward()
        if problem.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(w.values()), problem.clip_norm)
        solver.step()
    return {k: v.detach().numpy() for k, v in w.items()}


def worst(found, expected):
    """Return the largest difference of a weight, relative to the largest entry of its array."""
    return max(np.abs(found[k] - v).max() / np.abs(v).max() for k, v in expected.items())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: d.__name__)
@pytest.mark.parametrize("row", TRAJECTORIES)
def test_a_hundred_steps_are_pytorchs(row, dtype):
    ours, name, parameters, rate = TRAJECTORIES[row]
    problem = Problem(dtype)
    found = train(problem, ours, rate)
    assert worst(found, train_torch(problem, name, parameters, rate)) < TOLERANCE[dtype]
    assert worst(found, problem.weights) > 1e-2


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: d.__name__)
@pytest.mark.parametrize("clip_norm", [0.1, 3.0, 1e6])
def test_clipping_is_pytorchs(clip_norm, dtype):
    problem = Problem(dtype, clip_norm)
    found = train(problem, SGD(momentum=0.9), 0.05)
    expected = train_torch(problem, "SGD", {"momentum": 0.9}, 0.05)
    assert worst(found, expected) < TOLERANCE[dtype]


def test_intercepts_do_not_decay():
    problem = Problem(np.float64)
    found = train(problem, AdamW(weight_decay=0.3), 0.01, decays=[True, False, True, False])
    expected = train_torch(problem, "AdamW", {"weight_decay": 0.3}, 0.01, no_decay=("b0", "b1"))
    assert worst(found, expected) < TOLERANCE[np.float64]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_a_trajectory(name):
    assert any(type(ours) is OPTIMIZERS[name] for ours, *_ in TRAJECTORIES.values())


@pytest.mark.parametrize("row", TRAJECTORIES)
def test_scalars_beforehand_are_those_in_the_graph(row):
    ours, *_ = TRAJECTORIES[row]
    dtype = ir.DataType.FLOAT
    model, build = empty_model()
    rate, step = build.input("learning_rate", dtype, []), build.input("step", dtype, [])
    found = scalars_in_double(ours, build.op, build.op.Mul(rate, 1.0), step)
    onx = graph.save(model, outputs=[(f"s{i}", value) for i, value in enumerate(found)])
    evaluator = ReferenceEvaluator(onx)
    table = ours.scalar_table(np.full(200, 0.1), np.arange(1, 201))
    for t in (1, 2, 200):
        feeds = {"learning_rate": np.array(0.1, np.float32), "step": np.array(t, np.float32)}
        feeds = {i.name: feeds[i.name] for i in onx.graph.input}
        np.testing.assert_allclose(evaluator.run(None, feeds), table[t - 1], rtol=2e-7)


@pytest.mark.parametrize("row", TRAJECTORIES)
def test_an_optimizer_is_a_value(row):
    ours, *_ = TRAJECTORIES[row]
    assert copy.deepcopy(ours) == ours == pickle.loads(pickle.dumps(ours))
    assert hash(copy.deepcopy(ours)) == hash(ours)
    assert make_optimizer(ours) is ours


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SGD(momentum=1.0), r"SGD: momentum must be a number in \[0, 1\), got 1.0"),
        (lambda: SGD(momentum=True), "got True"),
        (lambda: SGD(momentum="0.9"), "got '0.9'"),
        (lambda: SGD(nesterov=True), "nesterov=True needs a momentum above 0"),
        (lambda: Adam(beta_1=-0.1), r"Adam: beta_1 must be a number in \[0, 1\)"),
        (lambda: Adam(beta_2=float("nan")), "beta_2"),
        (lambda: Adam(epsilon=0), r"Adam: epsilon must be a number in \(0, inf\), got 0"),
        (lambda: AdamW(beta_2=1), "AdamW: beta_2"),
        (lambda: AdamW(weight_decay=-1), "AdamW: weight_decay"),
        (lambda: RMSprop(alpha=1.5), "RMSprop: alpha"),
        (lambda: RMSprop(epsilon=-1), "RMSprop: epsilon"),
        (lambda: RMSprop(momentum=2), "RMSprop: momentum"),
        (lambda: Adagrad(lr_decay=-1), "Adagrad: lr_decay"),
        (lambda: Adagrad(initial_accumulator_value=float("inf")), "Adagrad: initial_accumulator_value"),
        (lambda: Adagrad(epsilon=0), "Adagrad: epsilon"),
        (lambda: make_optimizer("adan"), "Unknown solver 'adan'. Did you mean 'adam'"),
        (lambda: make_optimizer(Adam), r"got the class Adam. Pass Adam\(\)"),
        (lambda: make_optimizer(0.1), "Expected a solver name .*got 0.1"),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises(OptimizerError, match=message):
        make()


def test_a_users_optimizer():
    @dataclass(frozen=True)
    class SignDescent(Optimizer):
        def update(self, op, w, dw, slots, *scalars, slope=None):
            return op.Sub(w, op.Mul(op.Sign(dw), scalars[0])), ()

    problem = Problem(np.float64)
    found = train(problem, SignDescent(), 0.01)
    moves = (found["W0"] - problem.weights["W0"]) / 0.01
    np.testing.assert_allclose(moves, np.round(moves), atol=1e-9)
    with pytest.raises(ValueError, match="'adam' is already registered"):
        optimizer("adam")(SignDescent)
