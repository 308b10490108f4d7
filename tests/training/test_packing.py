"""Small weights packed in one row, large ones split into several: the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx
import pytest

from onnxtrain.optim import SGD, Adagrad, Adam, Optimizer, Proximal, RMSprop
from onnxtrain.training import packing as packing_module
from onnxtrain.training.packing import Part, Parts, join, part_of
from onnxtrain.training.step import build_step
from tests.devices import GPU
from tests.training.steps import OPTIMIZERS, state_of, train


@pytest.fixture
def layout(monkeypatch):
    """Say which weights are small and which are large."""

    def set_(**numbers):
        build_step.cache.clear()
        for name, number in numbers.items():
            monkeypatch.setattr(packing_module, name, number)

    yield set_
    build_step.cache.clear()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "options",
    [{}, {"weighted": True}, {"clip_norm": 0.5}, {"strength": 0.01}, {"weighted": True, "strength": 0.01}],
    ids=str,
)
def test_packing_changes_no_number(name, options, layout):
    packed, found = train(OPTIMIZERS[name], **options)
    layout(SMALL=0)
    alone, expected = train(OPTIMIZERS[name], **options)
    for key, value in state_of(expected).items():
        np.testing.assert_allclose(state_of(found)[key], value, rtol=1e-12, atol=1e-14, err_msg=str(key))
    inputs = {wire.input for wire in packed.weights.values()}
    vectors = {"sgd": 4, "momentum": 1, "adam": 1, "adamw": 2}  # intercepts do not decay
    assert len(inputs) == vectors[name]
    assert len({wire.input for wire in alone.weights.values()}) == 4


WITH_MEMORY = {name: x for name, x in OPTIMIZERS.items() if x.slots} | {
    "rmsprop": RMSprop(momentum=0.5, centered=True),
    "adagrad": Adagrad(initial_accumulator_value=0.1),
    "proximal": Proximal(Adam()),
}


@pytest.mark.parametrize("name", WITH_MEMORY)
@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": np.float32}, {"clip_norm": 0.5}, {"strength": 0.01}, {"gathered": False, "strength": 0.01}],
    ids=str,
)
def test_rows_of_a_large_weight_change_no_number(name, options, layout):
    optimizer = WITH_MEMORY[name]
    layout(SMALL=0)
    whole, expected = train(optimizer, **options)
    layout(LARGE=7, ROW=6)
    in_rows, found = train(optimizer, **options)
    tolerance = 1e-6 if "dtype" in options else 1e-12  # the last numbers of a row may be rounded another way
    for key, value in state_of(expected).items():
        np.testing.assert_allclose(state_of(found)[key], value, rtol=tolerance, atol=tolerance, err_msg=str(key))
    assert shapes_of_weights(whole) == {"W0": [3, 4], "b0": [1, 4], "W1": [4, 2], "b1": [2]}
    assert shapes_of_weights(in_rows) == {"W0": [2, 6], "b0": [1, 4], "W1": [2, 4], "b1": [2]}
    assert count(whole, "Scan") == 0
    assert count(in_rows, "Scan") == 2


def test_an_optimizer_may_leave_its_memory_as_it_is(layout):
    """A Scan must compute what it puts out."""
    layout(SMALL=0, LARGE=7, ROW=6)
    built, state = train(Forgetful())
    _, expected = train(SGD())
    assert count(built, "Scan") == 2
    for name, w in expected.weights.items():
        np.testing.assert_allclose(state.weights[name], w, rtol=1e-12)
        assert not state.slots[name, "unused"].any()


def test_where_weights_are_left_as_they_are(layout):
    layout(SMALL=0, LARGE=7, ROW=6)
    assert count(train(OPTIMIZERS["sgd"], epochs=1)[0], "Scan") == 0  # two operators
    assert count(train(Adam(), epochs=1, device=GPU)[0], "Scan") == 0


@pytest.mark.parametrize(
    "n, rows",
    [(700 * 700, 1), (1024 * 1024, 4), (1100 * 1000, 5), (3000 * 1001, 12), (2048 * 2048, 16), (1_299_709, 1)],
)
def test_numbers_of_rows(n, rows):
    assert packing_module.rows_of(n, packing_module.LARGE, packing_module.ROW) == rows


@dataclass(frozen=True)
class Forgetful(Optimizer):
    """SGD beside a memory that it never writes."""

    slots: ClassVar[tuple[str, ...]] = ("unused",)

    def update(self, op, w, dw, slots, *scalars, slope=None):
        return op.Sub(w, op.Mul(dw, scalars[0])), slots


def shapes_of_weights(built):
    """Return the shape in which each weight is an input of the step."""
    shapes = {
        x.name: [d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in onnx.load_model_from_string(built.onnx).graph.input
    }
    return {name: shapes[wire.input] for name, wire in built.weights.items()}


def count(built, op_type):
    return sum(node.op_type == op_type for node in onnx.load_model_from_string(built.onnx).graph.node)


def test_parts():
    parts = {"a": Part(0, 4, (2, 2)), "b": Part(4, 5, (1,))}
    arrays = {"a": np.arange(4.0).reshape(2, 2), "b": np.array([9.0])}
    whole = join(arrays, parts)
    assert whole.tolist() == [[0, 1, 2, 3, 9]]
    for name, part in parts.items():
        np.testing.assert_array_equal(part_of(whole, part), arrays[name])
    alone = join({"a": arrays["a"]}, {"a": None})
    np.testing.assert_array_equal(alone, arrays["a"])
    assert not np.shares_memory(alone, arrays["a"])
    assert np.shares_memory(part_of(whole, parts["a"]), whole)
    lazy = Parts({"row": whole}, {name: ("row", part) for name, part in parts.items()})
    assert len(lazy) == 2
    assert repr(lazy) == repr(dict(lazy))
    for name, array in lazy.items():
        np.testing.assert_array_equal(array, arrays[name])
        assert np.shares_memory(array, whole)
