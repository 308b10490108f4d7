"""Rules of arithmetic, powers, roots and choices."""

from __future__ import annotations

import numpy as np
import pytest

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
