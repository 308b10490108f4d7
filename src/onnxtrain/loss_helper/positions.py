r"""The loss of a row with positions: the mean over the positions of an output of three or more axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnxtrain.errors import LossError
from onnxtrain.graph import Op, describe, is_float, rank, tensor
from onnxtrain.losses import row_loss

#: The name of the first dimension of tables with one row per position; no other axis has it.
_POSITIONS = "positions_of_all_rows"

#: The remedy for a dimension that must be known.
DECLARE = "Declare it as a dim_value of that output in model.graph.output."


def label_shape(y_pred: ir.Value, class_axis: int | None) -> ir.Shape:
    """Return the shape of labels: the shape of the prediction without the class axis."""
    return ir.Shape([d for axis, d in enumerate(y_pred.shape or ()) if axis != class_axis])


def mean_over_positions(
    op: Op,
    loss: str | Callable[..., ir.Value],
    label: ir.Value,
    y_pred: ir.Value,
    params: Mapping[str, Any],
    *,
    class_axis: int | None,
    ignored: int,
    class_weight: Sequence[float] = (),
) -> ir.Value:
    r"""Append the mean of a loss over the positions p of each row that count.

    .. math:: \ell_i = \sum_p v_{ip}\, \ell(y_{ip}, s_{ip}) / \sum_p v_{ip}

    where :math:`v_{ip}` is 0 if the label is `ignored` (for floating-point labels, NaN), else the weight of its class,
    by default 1. The loss of a row is 0 if none of its positions counts. The result is (n, 1).
    """
    table, shape = _as_table(op, y_pred, class_axis), _shape_of_labels(op, y_pred, class_axis)
    counts = _counts(op, label, ignored)
    y_true = op.Where(counts, label, 0)
    column = op.Reshape(op.Reshape(y_true, shape), [-1, 1])  # the inner Reshape fails if labels lack positions
    column.shape = ir.Shape([ir.SymbolicDim(_POSITIONS), 1])
    losses = op.Reshape(row_loss(op, loss, column, table, params), shape)
    losses.shape = label.shape
    v = weights_of_positions(op, label, ignored, table.dtype, class_weight)
    if class_weight:
        losses = op.Mul(losses, v)
    losses = op.Where(counts, losses, 0.0)  # the loss of an ignored position may be infinite
    total, weights = sum_over_positions(op, losses), sum_over_positions(op, v)
    return op.Div(total, op.Where(op.Greater(weights, 0.0), weights, 1.0))


def weights_of_positions(
    op: Op, label: ir.Value, ignored: int, dtype: ir.DataType | None, class_weight: Sequence[float] = ()
) -> ir.Value:
    """Return the weights v of positions, in the shape of the labels."""
    counts = _counts(op, label, ignored)
    if not class_weight:
        return op.Cast(counts, to=dtype)
    known = op.initializer(tensor(class_weight, dtype, "class_weight"))
    return op.Where(counts, op.Gather(known, op.Where(counts, label, 0)), 0.0)


def _counts(op: Op, label: ir.Value, ignored: int) -> ir.Value:
    return op.Not(op.IsNaN(label) if is_float(label) else op.Equal(label, ignored))


def _as_table(op: Op, y_pred: ir.Value, class_axis: int | None) -> ir.Value:
    """Return a prediction as (m, K), where m is the number of rows times positions."""
    n_axes = rank(y_pred) or 0
    k = 1 if class_axis is None else y_pred.shape[class_axis]  # type: ignore[index]
    if not isinstance(k, int):
        raise LossError(f"The number of classes on axis {class_axis} of {describe(y_pred)} is unknown. {DECLARE}")
    if class_axis is not None and class_axis != n_axes - 1 and k > 1:
        y_pred = op.Transpose(y_pred, perm=[*(axis for axis in range(n_axes) if axis != class_axis), class_axis])
    table = op.Reshape(y_pred, [-1, k])
    table.shape = ir.Shape([ir.SymbolicDim(_POSITIONS), k])
    return table


def _shape_of_labels(op: Op, y_pred: ir.Value, class_axis: int | None) -> ir.Value:
    # the whole shape, which the gradient also uses: taking it later would keep the scores in memory until then
    shape = op.Shape(y_pred)
    if class_axis is None:
        return shape
    return op.Gather(shape, [axis for axis in range(rank(y_pred) or 0) if axis != class_axis])


def sum_over_positions(op: Op, x: ir.Value) -> ir.Value:
    """Return the sum over all axes but the first, (n, 1)."""
    rows = op.ReduceSum(op.Flatten(x, axis=1), [1], keepdims=1)
    rows.shape = ir.Shape([x.shape[0], 1])  # type: ignore[index]
    return rows
