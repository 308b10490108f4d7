"""Gradients of several batches before a step: the same as one step with all their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnxruntime
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ExportError, ParameterError
from onnxtrain.optim import SGD, Adagrad, Adam, AdamW, Cosine, Optimizer, RMSprop
from onnxtrain.runtime import device
from onnxtrain.training import update
from onnxtrain.training.objective import Objective, weights_as_inputs
from onnxtrain.training.update import build_update
from tests.training.steps import NAMES, network

rng = np.random.default_rng(0)
X, y = rng.normal(size=(50, 6)), rng.normal(size=(50, 2))
WEIGHT = rng.uniform(0.5, 2, 50)
MLP = MLPRegressor(hidden_layer_sizes=(7,), tol=100, random_state=0).fit(X, y)


def fitted(k, rows=X, weight=None, **params):
    """Fit with batches of 20 rows of which a step takes 60 / k of each; the last ones of an epoch are smaller."""
    settings = {"dtype": "float64", "learning_rate": 0.01, "max_iter": 4, "tol": 0, "random_state": 0} | params
    return OrtGradientRegressor(MLP, batch_size=24 // k, accumulate=k, **settings).fit(rows, y, weight)


@dataclass(frozen=True)
class Lookahead(Optimizer):
    """One that reads the weight again behind the next one."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        moved = op.Sub(w, op.Mul(dw, scalars[0]))
        return op.Add(op.Mul(moved, 0.5), op.Mul(w, 0.5)), ()


CASES = {
    "sgd": {"solver": "sgd"},
    "momentum": {"solver": SGD(momentum=0.9)},
    "nesterov": {"solver": SGD(momentum=0.9, nesterov=True)},
    "adam": {"solver": "adam"},
    "adamw": {"solver": AdamW(weight_decay=0.1)},
    "rmsprop": {"solver": RMSprop(centered=True, momentum=0.5)},
    "adagrad": {"solver": Adagrad(initial_accumulator_value=0.1)},
    "one of the user": {"solver": Lookahead()},
    "penalties": {"l1": 0.01, "l2": 0.1, "penalty": {"coefs_0": 0.2}},
    "proximal": {"l1": 0.01, "l1_method": "proximal"},
    "proximal, momentum": {"l1": 0.01, "l1_method": "proximal", "solver": SGD(momentum=0.9), "l2": 0.1},
    "clipped": {"clip_norm": 0.1},
    "clipped and proximal": {"clip_norm": 0.1, "l1": 0.1, "l1_method": "proximal"},
    "schedule": {"learning_rate": Cosine(0.02, warmup=0.2)},
    "sample weights": {"weight": WEIGHT},
    "weights and penalties": {"weight": WEIGHT, "l2": 0.1, "l1": 0.01},
    "sparse rows": {"rows": scipy.sparse.csr_array(X)},
    "sparse rows, weights": {"rows": scipy.sparse.csr_array(X), "weight": WEIGHT, "l2": 0.1},
    "validation": {"early_stopping": True},
    "average": {"average": True},
}


@pytest.mark.parametrize("k", [2, 3, 24])
@pytest.mark.parametrize("case", CASES)
def test_several_batches_are_one_of_all_their_rows(case, k):
    expected, found = fitted(1, **CASES[case]), fitted(k, **CASES[case])
    assert found.n_iter_ == expected.n_iter_ == 4
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-6, atol=1e-9)
    if case != "clipped and proximal":  # an objective of an epoch is that on the way
        np.testing.assert_allclose(found.loss_curve_, expected.loss_curve_, rtol=1e-6)
    assert found._state.step == expected._state.step


@pytest.mark.parametrize("n_columns, n_outputs", [(6, 1), (1, 6)])
@pytest.mark.parametrize("penalties", [{"l2": 0.1}, {"l1": 0.1}, {"l1": 0.1, "l1_method": "proximal", "l2": 0.1}])
def test_gradients_of_one_column_or_row_of_weights_are_summed(n_columns, n_outputs, penalties):
    rows, targets = X[:, :n_columns], rng.normal(size=(50, n_outputs))
    line = LinearRegression().fit(rows, targets)
    settings = {
        "solver": SGD(momentum=0.5),
        "learning_rate": 0.01,
        "max_iter": 3,
        "tol": 0,
        "random_state": 0,
    } | penalties
    expected = OrtGradientRegressor(line, dtype="float64", batch_size=24, **settings).fit(rows, targets)
    found = OrtGradientRegressor(line, dtype="float64", batch_size=8, accumulate=3, **settings).fit(rows, targets)
    assert expected.weights_["coef"].shape == (n_columns, n_outputs)
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-9, atol=1e-12)


def test_more_batches_than_an_epoch_has():
    expected = OrtGradientRegressor(
        MLP, batch_size=50, dtype="float64", max_iter=4, tol=0, random_state=0
    ).fit(X, y)  # fmt: skip
    found = OrtGradientRegressor(MLP, batch_size=7, accumulate=100, dtype="float64", max_iter=4, tol=0, random_state=0)
    with pytest.warns(UserWarning, match="accumulate=100 is larger than the number of batches in an epoch, 8"):
        found.fit(X, y)
    for name, w in found.weights_.items():
        np.testing.assert_allclose(w, expected.weights_[name], rtol=1e-6, atol=1e-9)


def test_large_weights_are_updated_row_by_row(monkeypatch):
    expected = fitted(2, solver="adam")
    monkeypatch.setattr(update, "_LARGE", 10)
    monkeypatch.setattr(update, "_ROW", 7)
    build_update.cache.clear()
    found = fitted(2, solver="adam")
    build_update.cache.clear()
    for name, w in expected.weights_.items():
        np.testing.assert_array_equal(found.weights_[name], w)


@dataclass(frozen=True)
class Normed(Optimizer):
    """One that reads the whole gradient."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        return op.Sub(w, op.Mul(op.Div(dw, op.Sqrt(op.ReduceSumSquare(dw, keepdims=0))), scalars[0])), ()


def test_large_weights_of_an_optimizer_of_the_user_stay_whole(monkeypatch):
    expected = fitted(1, solver=Normed())
    monkeypatch.setattr(update, "_LARGE", 10)
    monkeypatch.setattr(update, "_ROW", 7)
    build_update.cache.clear()
    found = fitted(2, solver=Normed())
    build_update.cache.clear()
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-6, atol=1e-9)


def test_large_weights_on_a_device_with_memory_of_its_own(monkeypatch):
    """Steps and the update read the same memory there, in one shape."""
    capabilities = replace(device.CAPABILITIES["webgpu"], float64=True)
    memory = []

    def put(array, kind, index):
        memory.append(array.copy())  # which the value does not own
        return onnxruntime.OrtValue.ortvalue_from_numpy(memory[-1])

    kind = replace(device.KINDS["cpu"], capabilities=capabilities, put=put)
    monkeypatch.setitem(device.KINDS, "cpu", kind)
    monkeypatch.setitem(device.CAPABILITIES, "cpu", capabilities)
    rows = rng.normal(size=(16, 600)).astype(np.float32)
    large = LinearRegression().fit(rows, rng.normal(size=(16, 500)))
    assert large.coef_.size > update._LARGE
    # in float32, Adam would divide rounding errors of gradients near 0 by their own size
    target, settings = rows[:, :500] ** 2, {"max_iter": 2, "tol": 0, "random_state": 0, "dtype": "float64"}
    expected = OrtGradientRegressor(large, batch_size=8, **settings).fit(rows, target)
    found = OrtGradientRegressor(large, batch_size=4, accumulate=2, **settings).fit(rows, target)
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-5, atol=1e-6)


#: Optimizers, and whether all that they move may be written over.
IN_PLACE = {
    "sgd": (SGD(), True),
    "nesterov": (SGD(momentum=0.9, nesterov=True), True),
    "adam": (Adam(), True),
    "adamw": (AdamW(), True),
    "rmsprop": (RMSprop(centered=True, momentum=0.5), True),
    "adagrad": (Adagrad(), True),
}


def updated(optimizer):
    proto, _ = network(np.float64)
    objective = Objective(weights_as_inputs(proto, NAMES), "Y", "squared_error", NAMES, penalized=("W0", "W1"))
    return build_update.__wrapped__(objective, optimizer, clip_norm=1.0, sums=True)


@pytest.mark.parametrize("rows", [False, True], ids=["whole", "row by row"])
@pytest.mark.parametrize("case", IN_PLACE)
def test_weights_and_slots_are_written_over(case, rows, monkeypatch):
    if rows:
        monkeypatch.setattr(update, "_LARGE", 3)
        monkeypatch.setattr(update, "_ROW", 4)
    optimizer, in_place = IN_PLACE[case]
    assert updated(optimizer).in_place is in_place


@dataclass(frozen=True)
class Late(Optimizer):
    """One whose slot follows from the old weight: the next weight must not be written before."""

    slots = ("before",)

    def update(self, op, w, dw, slots, *scalars, slope=None):
        return op.Sub(w, op.Mul(dw, scalars[0])), (op.Add(op.Mul(slots[0], 0.5), w),)


def test_a_weight_that_is_read_later_is_not_written_over():
    assert not updated(Late()).in_place
    expected, found = fitted(1, solver=Late()), fitted(2, solver=Late())
    for name, w in expected.weights_.items():
        np.testing.assert_allclose(found.weights_[name], w, rtol=1e-6, atol=1e-9)
        before = found._state.slots[name, "before"]
        np.testing.assert_allclose(before, expected._state.slots[name, "before"], rtol=1e-6, atol=1e-9)


def test_a_fit_goes_on(tmp_path):
    whole = fitted(3, max_iter=6)
    again = clone(whole)
    for _ in range(6):
        again.partial_fit(X, y)
    path = tmp_path / "fit.onnx"
    begun = clone(whole)
    begun.fit(X, y, checkpoint=path, callback=lambda info: info.epoch == 3)
    state = clone(whole).set_params(max_iter=6)
    with pytest.raises(ParameterError, match="other values of accumulate"):
        clone(state).set_params(accumulate=2).fit(X, y, checkpoint=path, resume=True)

    def die(info):
        if info.epoch == 2:
            raise RuntimeError("killed")

    path = tmp_path / "killed.onnx"
    with pytest.raises(RuntimeError, match="killed"):
        clone(whole).fit(X, y, checkpoint=path, callback=die)
    resumed = clone(whole).fit(X, y, checkpoint=path, resume=True)
    for name, w in whole.weights_.items():
        np.testing.assert_array_equal(resumed.weights_[name], w)
        np.testing.assert_array_equal(again.weights_[name], w)


@pytest.mark.filterwarnings("ignore:.* has no effect on the training:UserWarning")
def test_a_classifier():
    iris, kind = load_iris(return_X_y=True)
    start = LogisticRegression(C=0.01).fit(iris, kind)
    settings = {"class_weight": "balanced", "max_iter": 5, "tol": 0, "random_state": 0, "dtype": "float64"}
    one = OrtGradientClassifier(start, batch_size=40, **settings).fit(iris, kind)
    four = OrtGradientClassifier(start, batch_size=10, accumulate=4, **settings).fit(iris, kind)
    for name, w in one.weights_.items():
        np.testing.assert_allclose(four.weights_[name], w, rtol=1e-6, atol=1e-9)


def test_errors():
    with pytest.raises(ParameterError, match="accumulate needs a stochastic solver"):
        fitted(2, solver="lbfgs")
    with pytest.raises(ParameterError, match="'accumulate' parameter.*in the range \\[1, inf\\)"):
        OrtGradientRegressor(MLP, accumulate=0).fit(X, y)
    with pytest.raises(ExportError, match="accumulate=2.*Set accumulate=1"):
        fitted(2, dtype="float32").export_training_step("unused")
