"""Damaged models: an error of our own, never a bare KeyError, a hang or a crash."""

from __future__ import annotations

import os
from collections import Counter

import onnx
import pytest

from tests import damaged

#: Calls on damaged models; ``python tests/damaged.py 5000`` makes more.
CASES = int(os.environ.get("ONNXTRAIN_DAMAGED", "300"))


@pytest.fixture(scope="module")
def good():
    return damaged.good_models()


@pytest.mark.parametrize("part", range(2))
def test_damaged_models_raise_errors_of_our_own(part, good):
    found = damaged.verdicts(range(part, CASES, 2), good)
    assert not damaged.failures(found)
    raised = Counter(found.values())
    assert len(found) == CASES // 2
    assert raised["fine"] < len(found) / 2, raised


def test_the_good_ones_are_good(good):
    for name, content in good.items():
        onx = onnx.load_model_from_string(content)
        onnx.checker.check_model(onx, full_check=True)
        called = {call: damaged.outcome(call, onx, onx)[0] for call in damaged.CALLS}
        assert "BARE" not in called.values(), name
        assert "fine" in called.values(), name


def test_each_call_and_each_damage_comes_up(good):
    names = [damaged.case(number, good)[0] for number in range(len(damaged.BREAKS) * 9)]
    assert {name.partition("(")[0] for name in names} == set(damaged.CALLS)
    assert {name.rpartition(" ")[2].rstrip(")") for name in names} == {b.__name__ for b in damaged.BREAKS}
