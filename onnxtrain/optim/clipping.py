"""Clipping of the gradient before the optimizer sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

#: Keeps the quotient finite where the gradient is zero; PyTorch's value.
_TINY = 1e-6


def clip_by_global_norm(op: Any, gradients: Sequence[ir.Value], max_norm: float | ir.Value) -> list[ir.Value]:
    r"""Shorten all gradients together where their common norm is above a limit.

    .. math:: g \leftarrow g \min\left(1, \frac{c}{\lVert g \rVert_2 + 10^{-6}}\right)

    Parameters
    ----------
    op : onnxscript builder
    gradients : sequence of onnx_ir.Value
        Of one type; the norm is that of all of them laid end to end.
    max_norm : float or onnx_ir.Value
        :math:`c`, a number or a scalar of the type of the gradients.

    Returns
    -------
    list of onnx_ir.Value

    References
    ----------
    Pascanu, Mikolov, Bengio, On the difficulty of training recurrent neural
    networks, ICML 2013.
    """
    if not gradients:
        return []
    factor = clip_factor(op, gradients, max_norm)
    return [op.Mul(dw, factor) for dw in gradients]


def clip_factor(op: Any, gradients: Sequence[ir.Value], max_norm: float | ir.Value) -> ir.Value:
    """Return the factor of :func:`clip_by_global_norm`, a scalar."""
    squares = [op.ReduceSumSquare(dw, keepdims=0) for dw in gradients]
    total = squares[0] if len(squares) == 1 else op.Sum(*squares)
    return op.Min(op.Div(max_norm, op.Add(op.Sqrt(total), _TINY)), 1.0)
