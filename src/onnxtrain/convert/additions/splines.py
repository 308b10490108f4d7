"""B-splines of columns, computed as polynomials between the knots."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
import onnx_ir as ir
from sklearn.preprocessing import SplineTransformer

from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.errors import ConversionError


@built_in(SplineTransformer)
def splines(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    r"""Return the B-splines of each column: on the piece that begins at b, a Taylor polynomial of each spline S.

    .. math:: S(x) = \sum_{p=0}^{k} \frac{S^{(p)}(b)}{p!} (x - b)^p

    Each column has as many pieces as the others, so the polynomials of all are one table, from which each value of X
    takes one row.
    """
    _refuse(estimator)
    knots, kind = np.stack([_limits(spline) for spline in estimator.bsplines_], axis=1), estimator.extrapolation
    if kind == "periodic":
        period = knots[-1] - knots[0]
        turns = op.Floor(op.Div(op.Sub(X, op.constant(knots[0])), op.constant(period)))
        X = op.Sub(X, op.Mul(turns, op.constant(period)))
    ends = kind in ("constant", "linear")  # a piece of its own before the first knot and after the last
    starts = np.concatenate([knots[:1], knots]) if ends else knots[:-1]
    table = np.stack([_polynomials(s, starts[:, j], kind) for j, s in enumerate(estimator.bsplines_)])
    if not estimator.include_bias:
        table = table[..., :-1]

    n_columns, n_pieces, n_powers, n_splines = table.shape
    passed = op.GreaterOrEqual(op.Unsqueeze(X, np.array([2])), op.constant(starts[1:].T[None]))
    piece = op.ReduceSum(op.Cast(passed, to=ir.DataType.INT64), np.array([2]), keepdims=0)
    piece = op.Add(piece, np.arange(n_columns) * n_pieces)
    x = op.Sub(X, op.Gather(op.constant(starts.T.ravel()), piece, axis=0))
    coefficients = op.Gather(op.constant(table.reshape(-1, n_powers, n_splines)), piece, axis=0)
    powers = op.Pow(op.Unsqueeze(x, np.array([2])), np.arange(float(n_powers)))
    values = op.MatMul(op.Unsqueeze(powers, np.array([2])), coefficients)
    if getattr(estimator, "handle_missing", "error") == "zeros":
        values = op.Where(op.IsNaN(op.Unsqueeze(X, np.array([2, 3]))), 0.0, values)
    return op.Reshape(values, np.array([0, n_columns * n_splines]))


def _refuse(estimator: Any) -> None:
    """Refuse splines that jump, and those that are an error beyond their knots."""
    if estimator.degree == 0:
        raise ConversionError("SplineTransformer(degree=0) jumps at its knots, on which float32 values may lie.")
    if estimator.extrapolation == "error":
        raise ConversionError("SplineTransformer(extrapolation='error') refuses values, which a graph cannot do.")


def _limits(spline: Any) -> np.ndarray:
    """Return the knots of the fit, without those that extend them on both sides."""
    return spline.t[spline.k : len(spline.t) - spline.k]


def _polynomials(spline: Any, starts: np.ndarray, extrapolation: str) -> np.ndarray:
    """Return the coefficients of all splines of a column, (n_pieces, degree + 1, n_splines), about the starts."""
    found = np.stack([spline(starts, nu=p) / factorial(p) for p in range(spline.k + 1)], axis=1)
    if extrapolation in ("constant", "linear"):
        found[[0, -1], 1 if extrapolation == "constant" else 2 :] = 0
    return found
