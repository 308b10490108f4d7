"""Rules of arithmetic, powers, roots and choices."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from onnxtrain import onnx_derivative

rng = np.random.default_rng(0)


def real(*shape, low=-2.0, high=2.0):
    return rng.uniform(low, high, shape)


def positive(*shape):
    return real(*shape, low=0.5, high=2.0)


A, B = real(2, 3), real(2, 3)
ROW, COLUMN, SCALAR, DEEP = real(3), real(2, 1), real(), real(4, 1, 3)

ROWS = [
    ("Identity", [A], {}),
    ("Neg", [A], {}),
    ("Abs", [A], {}),
    ("Reciprocal", [positive(2, 3)], {}),
    ("Sqrt", [positive(2, 3)], {}),
    ("Exp", [A], {}),
    ("Log", [positive(2, 3)], {}),
    ("Erf", [A], {}),
    ("Cast", [A], {"to": 11}),
    ("CastLike", [A, real(1)], {}),
    *(
        (op, [a, b], {})
        for op in ("Add", "Sub", "Mul")
        for a, b in [(A, B), (A, ROW), (COLUMN, ROW), (SCALAR, A), (A, DEEP)]
    ),
    ("Div", [A, positive(3)], {}),
    ("Div", [A, -positive(4, 1, 3)], {}),
    ("Mod", [A, positive(3)], {"fmod": 1}),
    ("Mod", [A, -positive(2, 1)], {"fmod": 1}),
    ("Sum", [A], {}),
    ("Sum", [A, ROW, DEEP], {}),
    ("Mean", [A], {}),
    ("Mean", [A, ROW, DEEP], {}),
    *((op, xs, {}) for op in ("Max", "Min") for xs in ([A], [A, B], [ROW, DEEP], [A, B, ROW, DEEP])),
    ("Pow", [positive(2, 3), real(3)], {}),
    ("Pow", [positive(3), real(2, 1)], {}),
    ("Pow", [A, np.array(2)], {}),
    ("Pow", [A, np.array(3)], {}),
    ("Pow", [positive(2, 3), np.array(-2)], {}),
    ("Pow", [A, np.array([2, 0, 1])], {}),
    ("Pow", [A, np.array(0)], {}),
    ("Pow", [A, np.array(1)], {}),
    ("Pow", [np.array([0.0, 1.0, -2.0]), np.array(0)], {}),
    ("Pow", [positive(2, 3), np.array([-1])], {}),
    ("Where", [A > 0, A, B], {}),
    ("Where", [ROW > 0, COLUMN, SCALAR], {}),
    ("Where", [DEEP > 0, A, ROW], {}),
    ("Clip", [A], {}),
    ("Clip", [A, np.array(-1.0)], {}),
    ("Clip", [A, None, np.array(1.0)], {}),
    ("Clip", [A, np.array(-1.0), np.array(1.0)], {}),
    ("Clip", [A, np.array(1.0), np.array(-1.0)], {}),
    ("Dropout", [A], {}),
    ("Range", [np.array(0.3), np.array(2.0), np.array(0.5)], {}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes)


@pytest.mark.parametrize("logistic", ["Y = Reciprocal(D)", "Y = Div(one, D)"])
def test_a_logistic_function_of_an_infinite_power_is_flat(check_model, logistic):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        logistic (double[2, 2] X) => (double[2, 2] Y) <double one = {{1.0}}> {{ E = Exp(X) D = Add(one, E) {logistic} }}""")
    check_model(onx, {"X": np.array([[0.5, -2.0], [1000.0, -1000.0]])})


@pytest.mark.parametrize(
    "body", ["Y = Exp(X)", "E = Exp(X) D = Add(one, E) Y = Log(D)", "E = Exp(X) D = Add(one, E) Y = Div(D, one)"]
)
def test_another_power_is_taken_as_it_is(check_model, body):
    onx = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        power (double[2, 2] X) => (double[2, 2] Y) <double one = {{1.0}}> {{ {body} }}""")
    check_model(onx, {"X": A[:, :2]})
    assert "IsInf" not in {node.op_type for node in onnx_derivative(onx).graph.node}
