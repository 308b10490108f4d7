"""Rules of reductions and of cumulative sums and products."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

rng = np.random.default_rng(3)
X = rng.uniform(0.5, 2.0, (2, 3, 4)) * rng.choice([-1, 1], (2, 3, 4))
POSITIVE = np.abs(X)
ZEROS = X.copy()
ZEROS[0, 0, 0] = ZEROS[0, 1, 0] = ZEROS[1, 2, 3] = 0.0

OPERATORS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"]
OPERATORS += ["ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]
AXES = [([1], 0), ([1], 1), ([-1, 0], 0), ([], 0)]
MORE_AXES = [([0], 0), ([-1], 0), ([0, 1], 0), ([0, 2], 1), ([2, 1, 0], 0), ([], 1)]


def operand(op_type):
    return POSITIVE if op_type == "ReduceLogSum" else X


ROWS = [
    *((op, [operand(op), np.array(axes, np.int64)], {"keepdims": k}) for op in OPERATORS for axes, k in AXES),
    *(("ReduceLogSumExp", [X, np.array(axes, np.int64)], {"keepdims": k}) for axes, k in MORE_AXES),
    *((op, [operand(op)], {}) for op in OPERATORS),
    ("ReduceSum", [X], {"keepdims": 0}),
    *((op, [operand(op)], {"noop_with_empty_axes": 1}) for op in OPERATORS),
    *(
        ("CumSum", [X, np.array(axis)], {"exclusive": e, "reverse": r})
        for axis in (0, -1)
        for e in (0, 1)
        for r in (0, 1)
    ),
    ("CumSum", [X, np.array(1)], {}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    bare = len(arrays) == 1 and "noop_with_empty_axes" in attributes
    if bare and op_type in ("ReduceL1", "ReduceLogSum") and onnxruntime.__version__.startswith("1.19."):
        pytest.skip("onnxruntime 1.19 reduces every axis nevertheless")
    check_rule(op_type, arrays, attributes, max_entries=8)


@pytest.mark.parametrize("axes", [[1], [0, 2], None], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_product_of_zeros(check_rule, axes, keepdims):
    axes = [] if axes is None else [np.array(axes)]
    check_rule("ReduceProd", [ZEROS, *axes], {"keepdims": keepdims}, second=not axes)


@pytest.mark.parametrize("check_rule", ["static"], indirect=True)  # the axes must be known
@pytest.mark.parametrize("keepdims", [0, 1])
def test_second_derivative_of_a_product_with_two_zeros(check_rule, keepdims):
    check_rule("ReduceProd", [np.array([[0, 2.0, 0], [3, 0, 2]]), np.array([1])], {"keepdims": keepdims})
    check_rule("ReduceProd", [np.array([[0, 2.0, 0], [3, 4, 2]])], {"keepdims": keepdims})
