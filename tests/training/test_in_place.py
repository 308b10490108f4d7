"""The memory of an optimizer is written over where that changes no number, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from onnxtrain.optim import SGD, Adagrad, Adam, AdamW, Optimizer, Proximal, RMSprop
from onnxtrain.training import packing as packing_module
from onnxtrain.training import step as step_module
from onnxtrain.training.step import build_step
from tests.devices import GPU
from tests.training.steps import state_of, train


@dataclass(frozen=True)
class OfTwo(Optimizer):
    """An optimizer with two slots, whose formula a subclass gives."""

    slots: ClassVar[tuple[str, ...]] = ("a", "b")


class Swaps(OfTwo):
    """One slot is what the other one was, which must not be written before it was copied."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = slots
        return op.Sub(w, op.Mul(op.Add(op.Mul(a, 0.5), dw), scalars[0])), (op.Identity(b), op.Add(a, dw))


class HandsOver(OfTwo):
    """As Swaps, without a copy in between: the old value of one slot is the next one of the other."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = slots
        return op.Sub(w, op.Mul(op.Add(op.Mul(a, 0.5), dw), scalars[0])), (b, op.Add(b, dw))


class ReadsLater(OfTwo):
    """The weight moves by the old value of a slot: its next one may be there before."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = slots
        return op.Sub(w, op.Mul(a, scalars[0])), (op.Add(op.Mul(a, 0.5), dw), op.Add(b, dw))


class KeepsAll(OfTwo):
    """A momentum of 1, whose product onnxruntime drops: a gradient may be the product of a Gemm that adds the slot."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = op.Add(op.Mul(slots[0], 1.0), dw), op.Add(slots[1], dw)
        return op.Sub(w, op.Mul(a, scalars[0])), (a, b)


class Views(OfTwo):
    """A slot is read through a Reshape, which may share its memory."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = slots
        line = op.Reshape(a, np.array([-1]))
        size = op.ReduceSum(op.Mul(line, line), keepdims=0)
        return op.Sub(w, op.Mul(op.Add(a, dw), scalars[0])), (
            op.Mul(op.Add(a, dw), op.Exp(op.Neg(size))),
            op.Add(b, dw),
        )


def moves_by(read):
    """Return an optimizer whose weights move by the old value of a slot, as a formula reads it."""

    class Reads(OfTwo):
        def update(self, op, w, dw, slots, *scalars, slope=None):
            a, b = slots
            read_a = read(op, a)
            return op.Sub(w, op.Mul(read_a, scalars[0])), (op.Add(op.Mul(read_a, 0.5), dw), op.Add(b, dw))

    return Reads()


#: Formulas that change no number, which onnxruntime drops.
DROPPED = {
    "a cast to its type": lambda op, a: op.Cast(a, to=ir.DataType.DOUBLE),
    "times 1": lambda op, a: op.Mul(a, 1.0),
    "plus 0": lambda op, a: op.Add(a, 0.0),
    "minus 0": lambda op, a: op.Sub(a, 0.0),
    "by 1": lambda op, a: op.Div(a, 1.0),
    "times what is 1": lambda op, a: op.Mul(a, op.Exp(np.array(0.0))),
    "of all columns": lambda op, a: op.Concat(a, axis=0),
    "the sum of one": lambda op, a: op.Sum(a),
}


class Turns(OfTwo):
    """A product with a slot is added to it, which onnxruntime does in one kernel."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        a, b = slots
        if len(a.shape) == 2:
            dw = op.MatMul(op.Add(a, 1.0), op.Mul(op.MatMul(op.Transpose(w, perm=[1, 0]), w), 1e-3))
        a = op.Add(dw, op.Mul(a, 0.1))
        return op.Sub(w, op.Mul(a, scalars[0])), (a, op.Add(b, dw))


#: Optimizers, and their slots that are written over.
CASES = {
    "momentum": (SGD(momentum=0.9), {"velocity"}),
    "nesterov": (SGD(momentum=0.9, nesterov=True), {"velocity"}),
    "adam": (Adam(), {"mean", "square"}),
    "adamw": (AdamW(weight_decay=0.1), {"mean", "square"}),
    "rmsprop": (RMSprop(momentum=0.5, centered=True), {"square", "mean", "velocity"}),
    "adagrad": (Adagrad(initial_accumulator_value=0.1), {"sum"}),
    "proximal": (Proximal(Adam()), {"mean", "square"}),
    "swaps": (Swaps(), set()),
    "hands over": (HandsOver(), set()),
    "keeps all": (KeepsAll(), {"a", "b"}),
    "reads later": (ReadsLater(), {"b"}),
    "views": (Views(), {"b"}),
    **{name: (moves_by(read), {"b"}) for name, read in DROPPED.items()},
}


@pytest.fixture(params=[{"SMALL": 0}, {"SMALL": 0, "LARGE": 7, "ROW": 6}], ids=["whole", "row by row"])
def layout(request, monkeypatch):
    """Each weight alone, whole or row by row."""
    build_step.cache.clear()
    for name, number in request.param.items():
        monkeypatch.setattr(packing_module, name, number)
    yield request.param
    build_step.cache.clear()


@pytest.mark.parametrize("name", CASES)
def test_slots_are_written_over(name, layout, monkeypatch):
    check(*CASES[name], monkeypatch)


def test_a_product_with_a_slot(monkeypatch):
    build_step.cache.clear()
    monkeypatch.setattr(packing_module, "SMALL", 0)
    check(Turns(), {"b"}, monkeypatch)
    build_step.cache.clear()


def check(optimizer, expected, monkeypatch):
    """Train with one buffer for these slots of the matrices, and with two for all: the bits are the same."""
    one, found = train(optimizer)
    # a line, such as an intercept, may be moved by a Gemm, which writes its third operand first
    assert {
        slot for (w, slot), wire in one.slots.items() if w.startswith("W") and wire.input in one.in_place
    } == expected
    assert one.in_place.isdisjoint(wire.input for wire in one.weights.values())
    build_step.cache.clear()
    monkeypatch.setattr(step_module, "_in_place", lambda *_: frozenset())
    two, expected = train(optimizer)
    assert two.in_place == frozenset()
    for key, value in state_of(expected).items():
        np.testing.assert_array_equal(state_of(found)[key], value, err_msg=str(key))


def test_memory_of_a_device_has_two_sets(layout):
    assert train(Adam(), epochs=1, device=GPU)[0].in_place == frozenset()


class InLists(SGD):
    """Momentum, whose slots and result are lists."""

    def update(self, op, w, dw, slots, *scalars, slope=None):
        w, slots = super().update(op, w, dw, slots, *scalars, slope=slope)
        return [w, list(slots)]


def test_a_list_of_slots_is_as_good_as_a_tuple():
    found, expected = (state_of(train(optimizer(momentum=0.9))[1]) for optimizer in (InLists, SGD))
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=str(key))
