"""Tables of which a batch reads some rows: SGD writes those in place; the weights are PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.estimators import settings
from onnxtrain.optim import SGD, Adagrad, Adam, Optimizer
from onnxtrain.training import train
from tests.devices import Pretended

ROWS, WIDTH, TOKENS, CLASSES = 50, 6, 4, 3
RNG = np.random.default_rng(0)
X = RNG.integers(ROWS - 10, size=(37, TOKENS))  # ten rows are never read; some several times in a batch
y = np.arange(len(X)) % CLASSES
TABLE, W = (RNG.normal(scale=0.4, size=shape).astype(np.float32) for shape in ((ROWS, WIDTH), (WIDTH, CLASSES)))
BODIES = {
    "mean": "e = Gather(table, X) h = ReduceMean<axes = [1], keepdims = 0>(e) Y = MatMul(h, W)",
    "read twice": """e = Gather(table, X) m = ReduceMean<axes = [1], keepdims = 0>(e) f = Gather(table, first)
                     h = Add(m, f) Y = MatMul(h, W)""",
    "multiplied": """e = Gather(table, X) h = ReduceMean<axes = [1], keepdims = 0>(e) t = Transpose(table)
                     z = MatMul(h, t) r = MatMul(z, table) Y = MatMul(r, W)""",
}


def network(body):
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]> net (int64[N, {TOKENS}] X) => (float[N, {CLASSES}] Y)
        <float[{ROWS}, {WIDTH}] table, float[{WIDTH}, {CLASSES}] W, int64[1] first = {{0}}> {{ {BODIES[body]} }}""")
    del proto.graph.value_info[:]
    weights = {"table": TABLE, "W": W}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return proto


def scores(torch, body, table, W, x):
    """Return what the network computes, by PyTorch."""
    h = table[x].mean(1)
    if body == "read twice":
        h = h + table[:1]
    return (h @ table.T @ table if body == "multiplied" else h) @ W


def of_pytorch(torch, body, optimizer, epochs, batch_size, clip_norm=None, l2=0.0):
    table, w = (torch.tensor(a, requires_grad=True) for a in (TABLE, W))
    minimizer = optimizer(torch.optim, [table, w])
    for _ in range(epochs):
        for rows in np.split(np.arange(len(X)), range(batch_size, len(X), batch_size)):
            minimizer.zero_grad()
            found = scores(torch, body, table, w, torch.tensor(X[rows]))
            loss = torch.nn.functional.cross_entropy(found, torch.tensor(y[rows]))
            (loss + l2 * (table.square().sum() + w.square().sum())).backward()
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_([table, w], clip_norm)
            minimizer.step()
    return {"table": table.detach().numpy(), "W": w.detach().numpy()}


#: The network, ours, PyTorch's, more parameters, and whether the table is written in place.
CASES = {
    "SGD": ("mean", SGD(), lambda t, w: t.SGD(w, lr=0.1), {}, True),
    "a table read twice": ("read twice", SGD(), lambda t, w: t.SGD(w, lr=0.1), {}, False),
    "a table multiplied as well": ("multiplied", SGD(), lambda t, w: t.SGD(w, lr=0.1), {}, False),
    "momentum": ("mean", SGD(momentum=0.9), lambda t, w: t.SGD(w, lr=0.1, momentum=0.9), {}, False),
    "a penalty": ("mean", SGD(), lambda t, w: t.SGD(w, lr=0.1), {"l2": 0.01}, False),
    "clipping": ("mean", SGD(), lambda t, w: t.SGD(w, lr=0.1), {"clip_norm": 0.05}, False),
    "Adagrad": ("mean", Adagrad(), lambda t, w: t.Adagrad(w, lr=0.1), {}, False),
    "Adam": ("mean", Adam(), lambda t, w: t.Adam(w, lr=0.1), {}, False),
}


@pytest.fixture
def steps(monkeypatch):
    """The steps that are built."""
    built, build = [], train.build_step

    def spy(*given, **named):
        built.append(build(*given, **named))
        return built[-1]

    monkeypatch.setattr(train, "build_step", spy)
    return built


def trained(model, optimizer, **params):
    common = {"learning_rate": 0.1, "max_iter": 3, "batch_size": 10, "shuffle": False, "tol": 0.0}
    return OrtGradientClassifier(model, solver=optimizer, **common | params).fit(X, y)


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_those_of_pytorch(name, steps):
    torch = pytest.importorskip("torch")
    body, optimizer, theirs, params, in_place = CASES[name]
    found = trained(network(body), optimizer, **params)
    expected = of_pytorch(torch, body, theirs, 3, 10, **params)
    for weight, w in expected.items():
        np.testing.assert_allclose(found.weights_[weight], w, rtol=1e-5, atol=1e-6)
    assert ("table" in steps[0].in_place) == in_place


@pytest.mark.parametrize("optimizer, large", [(SGD(), False), (Adam(), True)], ids=["SGD", "Adam"])
def test_a_large_table_needs_no_second_set(optimizer, large, monkeypatch):
    expected = trained(network("mean"), optimizer).weights_
    monkeypatch.setattr(train, "LARGE", TABLE.nbytes)
    updates, build = [], train.build_update
    monkeypatch.setattr(train, "build_update", lambda *given, **named: updates.append(1) or build(*given, **named))
    found = trained(network("mean"), optimizer).weights_
    assert bool(updates) == large
    for name, w in expected.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-6, atol=1e-7)


def product(op, y_true, y_pred):
    """A loss whose gradient does not depend on the prediction: the table might be written before it is read."""
    return op.ReduceSum(op.Mul(y_true, y_pred), [1])


@pytest.mark.parametrize("loss, in_place", [("squared_error", True), (product, False)])
def test_rows_are_read_before_they_are_written(loss, in_place, steps):
    params = {"loss": loss, "max_iter": 2, "batch_size": 10, "shuffle": False, "learning_rate": 0.01}
    one = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]> net (int64[N] X) => (float[N, {CLASSES}] Y)
        <float[{ROWS}, {CLASSES}] table> {{ Y = Gather(table, X) }}""")
    del one.graph.value_info[:]
    table = TABLE[:, :CLASSES].copy()
    one.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    targets = np.eye(CLASSES, dtype=np.float32)[y]
    found = OrtGradientRegressor(one, solver=SGD(), weights_to_train=["table"], **params).fit({"X": X[:, 0]}, targets)
    assert ("table" in steps[0].in_place) == in_place
    for _ in range(2):
        for rows in np.split(np.arange(len(X)), range(10, len(X), 10)):
            slope = targets[rows] if loss is product else 2 * (table[X[rows, 0]] - targets[rows])
            np.subtract.at(table, X[rows, 0], 0.01 / len(rows) * slope)
    np.testing.assert_allclose(found.weights_["table"], table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["cuda", "webgpu"])
def test_memory_of_a_device_of_its_own_has_two_sets(kind, steps, monkeypatch):
    expected = trained(network("mean"), SGD()).weights_
    monkeypatch.setattr(settings, "find_device", lambda name: Pretended(kind))
    found = trained(network("mean"), SGD()).weights_
    assert [step.in_place for step in steps] == [{"table"}, set()]
    for name, w in expected.items():
        np.testing.assert_array_equal(found[name], w)


@dataclass(frozen=True)
class RatesOfRows(Optimizer):
    """A rate for each row of the table: 0 for every second one."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        """Return the weights after a step."""
        mask = op.Constant(value=ir.tensor((np.arange(int(w.shape[0])) % 2).astype(np.float32)[:, None]))
        return op.Sub(w, op.Mul(dw, op.Mul(scalars[0], mask))), ()


def test_a_rate_for_each_row_of_the_table_is_not_one_for_each_row_of_the_batch():
    fitted = OrtGradientClassifier(
        network("mean"), solver=RatesOfRows(), learning_rate=0.1, max_iter=1, batch_size=10, weights_to_train=["table"]
    ).fit(X, y)
    moved = np.flatnonzero(np.abs(fitted.weights_["table"] - TABLE).max(axis=1))
    np.testing.assert_array_equal(moved, np.setdiff1d(np.unique(X), np.arange(0, ROWS, 2)))
