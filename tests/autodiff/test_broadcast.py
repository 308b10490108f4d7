"""Shapes: a known dimension costs no node, an unknown one is not assumed."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from onnxtrain import graph as graphs
from onnxtrain.autodiff.broadcast import (
    expand_like,
    length_of,
    reshape_like,
    shape_of,
    sum_to,
    with_shape_of,
    zeros_like,
)
from onnxtrain.runtime.session import run as run_onnxruntime

SHAPES = [(), (1,), (3,), (2, 1), (1, 3), (2, 3), (4, 1, 3), (4, 2, 1), (1, 1, 1), (0, 3), (1, 0)]


def fresh(*values):
    """Return a builder on a graph whose inputs are (name, dtype, shape)."""
    inputs = [ir.val(name, ir.DataType.DOUBLE, shape) for name, shape in values]
    model = ir.Model(ir.Graph(inputs, [], nodes=[], name="g", opset_imports={"": 21}), ir_version=10)
    return model, graphs.builder(model).op, inputs


def names(prefix, shape):
    return [f"{prefix}{i}" for i in range(len(shape))]


def broadcastable(a, b):
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


PAIRS = [(a, full) for a, b in itertools.product(SHAPES, SHAPES) if (full := broadcastable(a, b)) is not None]


@pytest.mark.parametrize("empty", [False, True], ids=["numbers", "none"])
@pytest.mark.parametrize("known", ["all", "none", "names", "rank of one"])
def test_sum_to_undoes_every_broadcast(run, known, empty):
    if empty and run is run_onnxruntime and onnxruntime.__version__.startswith("1.19."):
        pytest.skip("ReduceSum of onnxruntime 1.19 makes (1, 1) of no rows")
    for shape, full in sorted({pair for pair in PAIRS if (0 in pair[1]) == empty}):
        declared = {
            "all": (full, shape),
            "names": (names("d", full), names("x", shape)),
            "none": (None, None),
            "rank of one": (None, names("x", shape)),
        }[known]
        model, op, (dy, x) = fresh(("dy", declared[0]), ("x", declared[1]))
        onx = graphs.save(model, outputs=[("dx", sum_to(op, dy, x))])
        for value in onx.graph.input:
            if not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.ClearField("shape")
        array = np.random.default_rng(0).standard_normal(full)
        (dx,) = run(onx, {"dy": array, "x": np.zeros(shape)})
        lead = len(full) - len(shape)
        axes = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1))
        np.testing.assert_allclose(dx, array.sum(axis=axes, keepdims=True).reshape(shape), rtol=1e-12)


# the shape of dy, of x, the operators that bring one to the other
COSTS = [
    (sum_to, ["N", 3], ["N", 3], []),
    (sum_to, ["N", 3], [3], ["ReduceSum"]),
    (sum_to, ["N", 3], [1, 3], ["ReduceSum"]),
    (sum_to, ["N", 3], [1], ["ReduceSum", "Reshape"]),
    (sum_to, ["N", 3], [], ["ReduceSum"]),
    (sum_to, ["N", 3], [2, 3], []),
    (sum_to, [5, "N", 3], ["N", 3], ["ReduceSum"]),
    (sum_to, [5, 1, 3], [1, 3], ["ReduceSum"]),
    (
        sum_to,
        None,
        ["N", 3],
        ["Shape"] * 4 + ["Concat", "Expand", "NonZero", "ReduceSum", "Reshape", "Squeeze", "Sub", "Sub"],
    ),
    (sum_to, ["N", 3], [None, 3], ["Shape", "Shape", "Sub", "NonZero", "Squeeze", "ReduceSum"]),
    (sum_to, [5, "N", 3], ["M", 3], ["ReduceSum", "Shape", "Shape", "Sub", "NonZero", "Squeeze", "ReduceSum"]),
    (reshape_like, [6], [2, 3], ["Reshape"]),
    (reshape_like, [None], ["N", 3], ["Reshape"]),
    (reshape_like, [None], ["N", 0], ["Shape", "Reshape"]),
    (reshape_like, [None], ["N", "M"], ["Shape", "Reshape"]),
    (reshape_like, ["N", 3], ["N", 3], []),
    (expand_like, [1, 3], [2, 3], ["Expand"]),
    (expand_like, [1, 3], ["N", 3], ["Shape", "Expand"]),
    (expand_like, ["N", 3], ["N", 3], []),
]


@pytest.mark.parametrize("function, given, wanted, expected", COSTS)
def test_what_is_known_costs_no_node(function, given, wanted, expected):
    model, op, (dy, x) = fresh(("dy", given), ("x", wanted))
    dx = function(op, dy, x)
    assert sorted(node.op_type for node in model.graph) == sorted(expected)
    assert dx.shape == x.shape


@pytest.mark.parametrize("shape", [[2, 3], ["N", 3]])
@pytest.mark.parametrize("dtype", sorted(graphs.FLOATS))
def test_zeros(dtype, shape):
    x = ir.val("x", dtype, shape)
    _, op, _ = fresh()
    zeros = zeros_like(op, x)
    assert (zeros.dtype, zeros.shape) == (dtype, x.shape)
    assert (shape_of(op, x).producer() is None) == (shape == [2, 3])
    assert not zeros.producer().attributes["value"].value.numpy().any()


@pytest.mark.parametrize("axis, nodes", [(0, 0), (1, 1), (2, 1), (-1, 1), (-2, 1), (-3, 0)])
def test_length(run, axis, nodes):
    model, op, (x,) = fresh(("x", [2, "N", "M"]))
    length = length_of(op, x, axis)
    assert len(list(model.graph)) == nodes
    (found,) = run(graphs.save(model, outputs=[("length", op.Identity(length))]), {"x": np.zeros((2, 3, 4))})
    assert found.tolist() == [(2, 3, 4)[axis]]


@pytest.mark.parametrize(
    "mine, others, known",
    [
        (None, [2, "N"], [2, "N"]),
        ([2, "N"], None, [2, "N"]),
        ([None, "N"], ["M", 4], ["M", 4]),
        ([2, "N"], ["M", None], [2, "N"]),
        (["N"], ["M"], ["M"]),
        ([2], [2, 3], [2]),
    ],
)
def test_with_shape_of_keeps_what_is_known(mine, others, known):
    dy, x = ir.val("dy", None, mine), ir.val("x", ir.DataType.DOUBLE, others)
    assert with_shape_of(dy, x) is dy
    assert dy.dtype == ir.DataType.DOUBLE
    assert dy.shape == ir.Shape(known)
