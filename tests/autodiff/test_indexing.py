"""Rules of operators that pick and write elements."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain.grad_helper import onnx_derivative

rng = np.random.default_rng(5)


def real(*shape):
    return rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)


def ints(numbers):
    return np.array(numbers, np.int64)


X = real(3, 4, 3)
REDUCTIONS = ["none", "add", "mul", "max", "min"]
ONCE = ints([[0, 2], [1, 3], [2, 0]])
TWICE = ints([[0, 0], [1, -1], [3, 3]])

ROWS = [
    *(
        ("Gather", [X, ints(i)], {"axis": a})
        for i in ([2, 0, 2, -1], [[0, 1], [1, 1]], 0, 1, -1, [])
        for a in (0, 1, -1, -3)
    ),
    ("Gather", [X, ints([2, 0])], {}),
    ("Gather", [X, ints(-2)], {"axis": 1}),
    *(("Gather", [X, np.int32([[2, 0], [2, 1]])], {"axis": a}) for a in (0, 1)),
    ("GatherND", [X, np.int32([[0, 1], [2, 3], [0, 1]])], {}),
    *(("GatherElements", [real(3, 4), i], {"axis": 1}) for i in (ONCE, TWICE)),
    ("GatherElements", [real(3, 4), ints([[0, 1, 2, 0]])], {}),
    ("GatherND", [X, ints([[0, 1], [2, 3], [0, 1], [-1, -1]])], {}),
    ("GatherND", [X, ints([[[0]], [[2]]])], {}),
    ("GatherND", [X, ints([[[1], [0]], [[3], [3]], [[0], [-1]]])], {"batch_dims": 1}),
    *(("ScatterElements", [real(3, 4), ONCE, real(3, 2)], {"axis": 1, "reduction": r}) for r in REDUCTIONS),
    *(("ScatterElements", [real(3, 4), TWICE, real(3, 2)], {"axis": 1, "reduction": r}) for r in REDUCTIONS[1:]),
    *(("ScatterND", [X, ints([[0, 1], [2, 3]]), real(2, 3)], {"reduction": r}) for r in REDUCTIONS),
    *(("ScatterND", [X, ints([[0, 1], [2, 3], [0, 1]]), real(3, 3)], {"reduction": r}) for r in REDUCTIONS[1:]),
    ("Compress", [X, np.array([True, False, True])], {"axis": 0}),
    ("Compress", [X, np.array([False, True, True])], {"axis": 1}),
    ("Compress", [X, np.array([False, True, True, False, True])], {}),
    ("OneHot", [ints([0, 2, 5]), ints(3), np.array([-0.5, 2.0])], {}),
    ("OneHot", [ints([[0, 2], [1, 1]]), ints(3), np.array([-0.5, 2.0])], {"axis": 0}),
    ("OneHot", [ints([[0, 2], [1, 1]]), ints(3), np.array([-0.5, 2.0])], {}),
    ("Unique", [X], {}),
    ("Unique", [real(3, 4)], {"axis": 1}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes, max_entries=12)


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": 0, "largest": 0}])
def test_top_k(check_rule, attributes):
    check_rule("TopK", [X, ints([2])], attributes, outputs=2)


@pytest.mark.parametrize("check_rule", ["static", "symbolic"], indirect=True)  # onnx.reference sorts nevertheless
def test_unsorted_unique(check_rule):
    check_rule("Unique", [real(4)], {"axis": 0, "sorted": 0})


def test_slices_of_what_is_transposed(check_model):
    """As queries, keys and values are picked: onnxruntime moves the Transpose of the way back past the Pads."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]> pick (double[2,5,3] X) => (double[2,5] Y) {
            T = Transpose <perm = [2, 0, 1]> (X)
            i = Constant <value_int = 0> ()  j = Constant <value_int = 1> ()  k = Constant <value_int = 2> ()
            q = Gather(T, i)  k_ = Gather(T, j)  v = Gather(T, k)  p = Mul(q, k_)  Y = Mul(p, v)
        }""")
    assert all(len(n.input) < 4 for n in onnx_derivative(model).graph.node if n.op_type == "Pad")
    check_model(model, {"X": real(2, 5, 3)})
