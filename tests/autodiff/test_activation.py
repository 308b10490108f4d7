"""Rules of activations and of trigonometric functions."""

from __future__ import annotations

import numpy as np
import pytest

rng = np.random.default_rng(1)
X = np.array([[-5.1, -3.3, -2.2, -1.4], [-0.7, -0.3, 0.2, 0.8], [1.3, 2.1, 3.4, 5.2]])
INSIDE = X / 6

ROWS = [
    *((op, [X], {}) for op in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Mish")),
    *(
        (op, [X], {})
        for op in ("LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "HardSigmoid", "Shrink", "Swish")
    ),
    *((op, [X], {"alpha": 0.7}) for op in ("LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Swish")),
    ("Selu", [X], {"gamma": 1.3}),
    ("HardSigmoid", [X], {"alpha": 0.15, "beta": 0.4}),
    ("Shrink", [X], {"lambd": 1.0, "bias": 0.3}),
    ("Gelu", [X], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("PRelu", [X, rng.uniform(0.1, 0.9, (3, 4))], {}),
    ("PRelu", [X, rng.uniform(0.1, 0.9, (4,))], {}),
    ("PRelu", [X, rng.uniform(0.1, 0.9, (3, 1))], {}),
    *((op, [X], {}) for op in ("Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh")),
    *((op, [INSIDE], {}) for op in ("Asin", "Acos", "Atanh")),
    ("Acosh", [np.abs(X) + 1.1], {}),
]


@pytest.mark.parametrize("op_type, arrays, attributes", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_rule(check_rule, op_type, arrays, attributes):
    check_rule(op_type, arrays, attributes)
