"""The loss of each row: what the output tells the loss, and the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from onnxtrain.errors import LossError
from onnxtrain.graph import builder, describe, is_float, names_in, rank, tensor, unique_name
from onnxtrain.heads import Link, Scores, n_columns, scores_behind
from onnxtrain.losses import Loss, Prediction, find_loss, row_loss
from onnxtrain.losses.table import check_number, softplus

#: A mean or a probability that is not behind an Exp, Sigmoid or Softmax is kept this far from 0.
_EPS = 1e-6

#: Next to 1, the types of half length have no number as near as that.
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
) -> tuple[ir.Value, ir.Value]:
    r"""Append, in place, an input for the label and the loss of each row.

    Of several labels a row, :math:`y_{ik}` either 0 or 1, the loss is summed as scikit-learn's MLPClassifier does,

    .. math:: \ell_i = \sum_k \ell(y_{ik}, s_{ik}),

    each label a problem of two classes with the score :math:`s_{ik}`.

    Parameters
    ----------
    model : onnx_ir.Model
        Gets one input more and the nodes; its outputs stay what they are.
    output : onnx_ir.Value
        The prediction, (n,), (n, 1) or (n, k).
    loss : str or callable
        A name of the table, or ``function(op, y_true, y_pred, **loss_params)``.
    loss_params : mapping, optional
    label_name : str
        A number is put behind it where the name is taken.
    classifies : bool
        For a loss that is not in the table: it is a classifier's. It then receives
        the index of the class and the scores, as ``log`` does.
    multilabel : bool
        The columns of the output are labels of which a row has any number, not
        classes of which it has one. Any loss of a classifier is called as for two classes,
        with each label of each row as a row of its own.

    Returns
    -------
    label : onnx_ir.Value
        int64 (n, 1) for classes, int64 (n, K) for labels, else of the type and the shape (n, k) of the prediction.
    rows : onnx_ir.Value
        (n, 1).

    Raises
    ------
    LossError
        The loss or one of its parameters is unknown, or does not fit the output.
    """
    entry = find_loss(loss, loss_params, classifies=classifies)
    op = builder(model).op
    multilabel = multilabel and entry.classifies
    y_pred = _prediction(op, model, output, entry, (loss_params or {}).get("eps", _EPS), multilabel=multilabel)
    n, k = y_pred.shape  # type: ignore[misc]
    label = ir.Value(
        name=unique_name(label_name, names_in(model.graph)),
        type=ir.TensorType(ir.DataType.INT64 if entry.classifies else y_pred.dtype),  # type: ignore[arg-type]
        shape=ir.Shape([n, 1 if entry.classifies and not multilabel else k]),
    )
    model.graph.inputs.append(label)
    if multilabel and k != 1:
        return label, _sum_over_labels(op, loss, label, y_pred, loss_params or {})
    return label, row_loss(op, loss, label, y_pred, loss_params or {})


def _sum_over_labels(
    op: Any, loss: str | Callable[..., ir.Value], label: ir.Value, scores: ir.Value, params: Mapping[str, Any]
) -> ir.Value:
    """Return the sum of the losses of the labels of each row, (n, 1); the loss sees (n * K, 1)."""
    k = int(scores.shape[1])  # type: ignore[index, arg-type]
    column = op.initializer(tensor([-1, 1], name="column"))
    table = op.initializer(tensor([-1, k], name="table"))
    y_true, y_pred = op.Reshape(label, column), op.Reshape(scores, column)
    for flat in (y_true, y_pred):
        flat.shape = ir.Shape([ir.SymbolicDim("rows_times_labels"), 1])
    losses = op.Reshape(row_loss(op, loss, y_true, y_pred, params), table)
    losses.shape = scores.shape
    return op.ReduceSum(losses, [1], keepdims=1)


def _prediction(op: Any, model: ir.Model, output: ir.Value, entry: Loss, eps: float, *, multilabel: bool) -> ir.Value:
    """Return what the loss wants to know of the output, (n, k), its rows named."""
    if not is_float(output):
        raise LossError(f"A loss needs an output of floats, got {describe(output)}.")
    if rank(output) not in (1, 2):
        raise LossError(f"A loss needs an output (n,), (n, 1) or (n, k), got {describe(output)}.")
    if entry.prediction is Prediction.OUTPUT:
        y_pred = output
    elif entry.prediction is Prediction.LOG_MEAN:
        y_pred = _log_mean(op, output)
    else:
        y_pred = _class_scores(op, output, entry, eps, multilabel=multilabel)
    _name_rows(model, y_pred)
    return y_pred if rank(y_pred) == 2 else op.Unsqueeze(y_pred, [1])


def _name_rows(model: ir.Model, value: ir.Value) -> None:
    """Give the rows of a value the name that those of the input have, where they have none.

    The gradient relies on it: what has the same name has the same length.
    """
    n, *rest = value.shape  # type: ignore[misc]
    if not _is_named(n):
        first = (v.shape[0] for v in model.graph.inputs if v.shape)
        named = (d for d in first if isinstance(d, ir.SymbolicDim) and _is_named(d))
        value.shape = ir.Shape([next(named, ir.SymbolicDim("rows")), *rest])


def _is_named(dim: int | ir.SymbolicDim) -> bool:
    """Whether a dimension is a number, or has a name that is not one made up by shape inference."""
    return isinstance(dim, int) or (dim.value is not None and not dim.value.startswith("unk__"))


def _log_mean(op: Any, output: ir.Value) -> ir.Value:
    scores = scores_behind(output)
    if scores.link is Link.EXP:
        z = scores.value
        return z if z.dtype == output.dtype else op.Cast(z, to=output.dtype)
    return op.Log(op.Clip(output, _EPS))


def _class_scores(op: Any, output: ir.Value, entry: Loss, eps: float, *, multilabel: bool) -> ir.Value:
    """Return decision values (n, 1) of two classes, or one score a class (n, K), or a decision value a label."""
    if n_columns(output) is None:
        raise LossError(f"The number of classes is not known: {describe(output)}.")
    scores = scores_behind(output, op)
    likelihood = entry.prediction is Prediction.LIKELIHOOD
    two_classes = multilabel or n_columns(output) == 1
    if multilabel and scores.link in (Link.SOFTMAX, Link.NORMALIZED_SIGMOID):
        raise LossError(
            f"The columns of {describe(output)} sum to 1: they are classes of which a row has one. For several labels "
            "a row each column needs a Sigmoid of its own."
        )
    if (scores.link is Link.CLIPPED and likelihood) or (scores.link is Link.EXP and two_classes):
        scores = Scores(output, Link.PROBABILITY)  # no score has exactly these probabilities
    if likelihood:
        return _log_probabilities(op, scores, eps, two_classes=two_classes)
    if scores.link is Link.PROBABILITY:
        raise LossError(
            f"{describe(output)} holds probabilities that do not come from a Softmax or Sigmoid: "
            f"there are no scores for this loss. Use 'log'."
        )
    return scores.value


def _log_probabilities(op: Any, scores: Scores, eps: float, *, two_classes: bool) -> ir.Value:
    """Return values whose Sigmoid, of two classes or of labels, or Softmax (n, K) are the probabilities."""
    s = scores.value
    if scores.link in (Link.SIGMOIDS, Link.NORMALIZED_SIGMOID) and not two_classes:
        return op.Neg(softplus(op, op.Neg(s)))
    if scores.link is Link.PROBABILITY:
        eps = max(check_number(eps, "eps", above=0, below=0.5), _RESOLUTION.get(s.dtype, 0))
        p = op.Clip(s, eps, 1 - eps)
        return op.Sub(op.Log(p), op.Log(op.Sub(1.0, p))) if two_classes else op.Log(p)
    return s
