"""The loss of each row, computed from its label and the output of the model; with positions, the mean over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from onnxtrain.errors import LossError
from onnxtrain.graph import Op, builder, describe, has_name, is_float, names_in, rank, tensor, unique_name
from onnxtrain.losses import Loss, Prediction, find_loss, row_loss
from onnxtrain.losses.link import Link, Scores, n_scores, scores_behind
from onnxtrain.losses.operands import softplus
from onnxtrain.losses.table import check_number

#: A mean or a probability of 0 is replaced by this if it is not the output of an Exp, Sigmoid or Softmax.
_EPS = 1e-6

#: The rise of the logarithm between the probabilities 0 and 1e-6: 0.1 % of a loss of 13.8. The slope, 1e4, is a
#: hundredth of the slope of the logarithm just above 1e-6. It suffices: a pure tree trained on other labels needs no
#: more epochs.
_RISE = 0.01

#: The values used instead for half-precision types, whose spacing near 1 is larger.
_RESOLUTION: dict[ir.DataType | None, float] = {ir.DataType.FLOAT16: 1e-3, ir.DataType.BFLOAT16: 1e-2}


def add_row_loss(
    model: ir.Model,
    output: ir.Value,
    loss: str | Callable[..., ir.Value],
    loss_params: Mapping[str, Any] | None = None,
    *,
    label_name: str = "label",
    classifies: bool = False,
    multilabel: bool = False,
    output_is: str | None = None,
    class_axis: int | None = None,
    ignored: int = -1,
    class_weight: Sequence[float] = (),
) -> tuple[ir.Value, ir.Value]:
    r"""Append an input for the label, and the loss of each row, to a model in place.

    For multilabel targets, :math:`y_{ik}` either 0 or 1, the loss is summed as in scikit-learn's MLPClassifier,

    .. math:: \ell_i = \sum_k \ell(y_{ik}, s_{ik}),

    with one binary problem per label and its score :math:`s_{ik}`. For an output of three or more axes, the loss of a
    row is the mean over its positions, see :func:`~onnxtrain.loss_helper.rows.mean_over_positions`.

    Parameters
    ----------
    model : onnx_ir.Model
        The model gets one more input and the nodes of the loss; its outputs do not change.
    output : onnx_ir.Value
        The prediction, (n,), (n, 1), (n, k), or of three and more axes.
    loss : str or callable
        A name of the table, or ``function(op, y_true, y_pred, **loss_params)``.
    loss_params : mapping, optional
    label_name : str
        The name of the label; it gets a numeric suffix if the name is already used.
    classifies : bool
        Whether a loss that is not in the table is a classification loss, which receives the class index and the scores,
        as ``log`` does.
    multilabel : bool
        Whether the columns of the output are independent labels, not exclusive classes. A classification loss is then
        called as for two classes, with each label of each row as a separate row.
    output_is : {"scores", "probabilities"} or None
        For a classifier. None: inferred from the graph; scores if the graph is inconclusive.
    class_axis : int, optional
        The axis that labels lack, for an output of three or more axes. None: labels have the shape of the output.
    ignored : int
        The label of positions that do not count in such an output; NaN if labels are floats.
    class_weight : sequence of float
        The weight of each class in such an output, by class index; empty if all are equal.

    Returns
    -------
    label : onnx_ir.Value
        int64 (n, 1) for classes, int64 (n, K) for multilabel targets, else the type and shape (n, k) of the prediction.
        For an output of three or more axes, the shape of the output without the class axis.
    rows : onnx_ir.Value
        The loss of each row, (n, 1).

    Raises
    ------
    LossError
        The loss or one of its parameters is unknown, or does not fit the output.
    """
    entry = find_loss(loss, loss_params, classifies=classifies)
    op = builder(model).op
    multilabel = multilabel and entry.classifies
    eps = (loss_params or {}).get("eps", _EPS)
    y_pred = _prediction(
        op, model, output, entry, eps, multilabel=multilabel, output_is=output_is, class_axis=class_axis
    )
    positional = (rank(y_pred) or 0) > 2
    if positional:
        shape = label_shape(y_pred, class_axis)
    else:
        n, k = y_pred.shape  # type: ignore[misc]
        shape = ir.Shape([n, 1 if entry.classifies and not multilabel else k])
    label = ir.Value(
        name=unique_name(label_name, names_in(model.graph)),
        type=ir.TensorType(ir.DataType.INT64 if entry.classifies else y_pred.dtype),  # type: ignore[arg-type]
        shape=shape,
    )
    model.graph.inputs.append(label)
    params = loss_params or {}
    if positional:
        layout: dict[str, Any] = {"class_axis": class_axis, "ignored": ignored, "class_weight": class_weight}
        return label, mean_over_positions(op, loss, label, y_pred, params, **layout)
    if multilabel and k != 1:
        return label, _sum_over_labels(op, loss, label, y_pred, params)
    return label, row_loss(op, loss, label, y_pred, params)


def _sum_over_labels(
    op: Op, loss: str | Callable[..., ir.Value], label: ir.Value, scores: ir.Value, params: Mapping[str, Any]
) -> ir.Value:
    """Return the sum of the losses of the labels of each row, (n, 1); the loss is called with (n * K, 1)."""
    k = int(scores.shape[1])  # type: ignore[index, arg-type]
    column = op.initializer(tensor([-1, 1], name="column"))
    table = op.initializer(tensor([-1, k], name="table"))
    y_true, y_pred = op.Reshape(label, column), op.Reshape(scores, column)
    for flat in (y_true, y_pred):
        flat.shape = ir.Shape([ir.SymbolicDim("rows_times_labels"), 1])
    losses = op.Reshape(row_loss(op, loss, y_true, y_pred, params), table)
    losses.shape = scores.shape
    return op.ReduceSum(losses, [1], keepdims=1)


def _prediction(
    op: Op,
    model: ir.Model,
    output: ir.Value,
    entry: Loss,
    eps: float,
    *,
    multilabel: bool,
    output_is: str | None,
    class_axis: int | None,
) -> ir.Value:
    """Return the kind of prediction that the loss takes, (n, k) or in the output's shape, with a named first axis."""
    if not is_float(output):
        raise LossError(f"A loss requires a floating-point output, got {describe(output)}.")
    if not rank(output):
        remedy = (
            " Its shape is not declared and cannot be inferred. Declare it with "
            f"make_tensor_value_info({output.name!r}, elem_type, ['n', k]) in model.graph.output."
            if output.shape is None
            else ""
        )
        raise LossError(
            f"A loss requires an output of shape (n,), (n, 1), (n, k) or more axes, got {describe(output)}.{remedy}"
        )
    if entry.prediction is Prediction.OUTPUT:
        y_pred = output
    elif entry.prediction is Prediction.LOG_MEAN:
        y_pred = _log_mean(op, output)
    else:
        y_pred = _class_scores(
            op, output, entry, eps, multilabel=multilabel, output_is=output_is, class_axis=class_axis
        )
    _name_rows(model, y_pred)
    return op.Unsqueeze(y_pred, [1]) if rank(y_pred) == 1 else y_pred


def _name_rows(model: ir.Model, value: ir.Value) -> None:
    """Give the first axis of a value the name of the first axis of the input, if it has none.

    The gradient assumes that axes of the same name have the same length.
    """
    n, *rest = value.shape  # type: ignore[misc]
    if not has_name(n):
        first = (v.shape[0] for v in model.graph.inputs if v.shape)
        named = (d for d in first if isinstance(d, ir.SymbolicDim) and has_name(d))
        value.shape = ir.Shape([next(named, ir.SymbolicDim("rows")), *rest])


def _log_mean(op: Op, output: ir.Value) -> ir.Value:
    scores = scores_behind(output)
    if scores.link is Link.EXP:
        return _in_type_of(op, scores.value, output)
    return op.Log(op.Clip(output, _EPS))


def _in_type_of(op: Op, z: ir.Value, output: ir.Value) -> ir.Value:
    """Return the scores behind an output in its type: they may be half precision before a Cast."""
    return z if z.dtype == output.dtype else op.Cast(z, to=output.dtype)


def _class_scores(
    op: Op,
    output: ir.Value,
    entry: Loss,
    eps: float,
    *,
    multilabel: bool,
    output_is: str | None,
    class_axis: int | None,
) -> ir.Value:
    """Return binary decision values (n, 1), one score per class (n, K), or one decision value per label.

    For an output of three or more axes, the scores have its shape.
    """
    width = n_scores(output, class_axis)
    if width is None:
        raise LossError(f"The number of classes of {describe(output)} is unknown. {DECLARE}")
    likelihood = entry.prediction is Prediction.LIKELIHOOD
    scores = scores_behind(output, op, class_axis).said(output, output_is)
    scores = replace(scores, value=_in_type_of(op, scores.value, output))
    entrywise = (rank(output) or 0) > 2 and class_axis is None
    two_classes = multilabel or width == 1
    if (multilabel or entrywise) and scores.link in (Link.SOFTMAX, Link.NORMALIZED_SIGMOID):
        raise LossError(
            f"The columns of {describe(output)} sum to 1, so each row has exactly one class. If y has one column per "
            "class, pass y.argmax(axis=1). For several labels per row, each column needs its own Sigmoid."
        )
    if (scores.link is Link.CLIPPED and likelihood) or (scores.link is Link.EXP and two_classes):
        scores = Scores(output, Link.PROBABILITY)  # these probabilities are not a Softmax or Sigmoid of scores
    if likelihood:
        return _log_probabilities(op, scores, eps, two_classes=two_classes)
    if scores.link is Link.PROBABILITY:
        raise LossError(
            f"{describe(output)} holds probabilities that do not come from a Softmax or Sigmoid, "
            f"so there are no scores for this loss. Use the loss 'log'."
        )
    return scores.value


def _log_probabilities(op: Op, scores: Scores, eps: float, *, two_classes: bool) -> ir.Value:
    """Return logits whose Sigmoid (two classes, labels) or Softmax (n, K) gives the probabilities."""
    s = scores.value
    if scores.link in (Link.SIGMOIDS, Link.NORMALIZED_SIGMOID) and not two_classes:
        return op.Neg(softplus(op, op.Neg(s)))
    if scores.link is Link.PROBABILITY:
        eps = max(check_number(eps, "eps", above=0, below=0.5), _RESOLUTION.get(s.dtype, 0))
        log_p = _log(op, s, eps)
        return op.Sub(log_p, _log(op, op.Sub(1.0, s), eps)) if two_classes else log_p
    return s


def _log(op: Op, p: ir.Value, eps: float) -> ir.Value:
    r"""Return log(p), linear in p below :math:`t = e^\delta \epsilon`: from :math:`\log \epsilon` at 0 to log(t).

    A clipped logarithm would have no gradient there, so a tree leaf with probability 0 for the true class would never
    change. Above :math:`1 - \epsilon` the gradient is 0.
    """
    p = op.Clip(p, 0.0, 1 - eps)
    c = op.Clip(p, math.exp(_RISE) * eps, 1.0)  # without 1.0, 0 in onnxruntime 1.19 (float16)
    return op.Add(op.Log(c), op.Mul(op.Sub(op.Div(p, c), 1.0), _RISE))  # p / p is exactly 1


# ------------------------------------------------------------------- positions


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
        y_pred = op.Transpose(y_pred, perm=[*(axis for axis in range(n_axes) if axis != class_axis), int(class_axis)])
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
