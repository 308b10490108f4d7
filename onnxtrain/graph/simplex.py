r"""Parametrization of probabilities by unconstrained values.

.. math:: p_j = \frac{(1 + w_j)^2}{\sum_i (1 + w_i)^2}

w = 0 is the same probability for each class. Leaves of trees have many probabilities that are exactly 0, and those
must be trainable. The derivative at p is proportional to :math:`\sqrt p`; that of a softmax is proportional to p: with
a floor low enough not to be seen, 2.5e-7 for two classes, it is 2,000 times smaller, and a pure leaf stays pure.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.graph.build import Op

#: The sum of the floors added to probabilities of 0: the round trip differs by less than this.
_FLOOR = 5e-7


def to_free(p: np.ndarray) -> np.ndarray:
    """Return w (..., k), float64, for probabilities (..., k) of any common factor."""
    k = p.shape[-1]
    p = np.maximum(np.asarray(p, dtype=np.float64) / p.sum(axis=-1, keepdims=True, dtype=np.float64), _FLOOR / k)
    return np.sqrt(k * p / p.sum(axis=-1, keepdims=True)) - 1


def to_simplex(w: np.ndarray) -> np.ndarray:
    """Return the probabilities (..., k) for w."""
    squares = (1 + np.asarray(w, dtype=np.float64)) ** 2
    return squares / squares.sum(axis=-1, keepdims=True)


def probabilities_of(op: Op, w: ir.Value) -> ir.Value:
    """Add the operators that make probabilities (n, k) of w."""
    u = op.Add(w, 1.0)
    squares = op.Mul(u, u)
    return op.Div(squares, op.ReduceSum(squares, [1], keepdims=1))
