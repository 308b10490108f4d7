r"""Losses of classifiers.

y is the index of the class, (n, 1). The scores are s (n, 1), the binary decision
value, positive for class 1, or :math:`s_k` (n, K), one per class. The margin m is
the amount by which the score favours the true class: :math:`m = \pm s` for two
classes. With K > 2 classes, ``hinge``, ``squared_hinge`` and ``modified_huber`` are
summed over K one-vs-rest problems, as in LinearSVC and SGDClassifier.

``log`` and ``focal`` are functions of the probability :math:`p_y` of the true
class: :math:`p = \sigma(m)` for two classes, Softmax(s) for K.

Multilabel targets are one binary problem per label: the functions receive each
label of each row as a row, and their results are summed over the labels of a row.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from onnxtrain.graph import Op, taken_for_constant
from onnxtrain.losses.operands import softplus, sum_outputs
from onnxtrain.losses.table import Prediction, check_number, loss


@loss("log", "log_loss", prediction=Prediction.LIKELIHOOD)
def log(op: Op, y_true: ir.Value, y_pred: ir.Value, *, label_smoothing: float = 0.0, eps: float = 1e-6) -> ir.Value:
    r""":math:`-\log p_y`: :math:`\log(1 + e^{-m})` for two classes, :math:`\log \sum_k e^{s_k} - s_y` for K.

    With label smoothing a, the target is 1 - a + a/K for the true class and a/K for every other class. If the Softmax
    or Sigmoid of a model's probabilities is not recognised, a probability of 0 is replaced by eps, and the logarithm
    rises by 0.01 between 0 and eps. So a tree leaf with probability 0 for the true class still has a gradient.

    Source: scikit-learn's ``log_loss``; C. Szegedy et al., Rethinking the Inception Architecture, 2016.
    """
    a = check_number(label_smoothing, "label_smoothing", at_least=0, below=1)
    check_number(eps, "eps", above=0, below=0.5)
    if _columns(y_pred) == 1:
        minus_m = _minus_margins(op, y_true, y_pred)
        rows = softplus(op, minus_m)
        return op.Sub(rows, op.Mul(minus_m, a / 2)) if a else rows
    log_p = op.LogSoftmax(y_pred, axis=1)
    expected = op.GatherElements(log_p, y_true, axis=1)
    if a:
        expected = op.Add(op.Mul(expected, 1 - a), op.Mul(op.ReduceMean(log_p, [1], keepdims=1), a))
    return op.Neg(expected)


@loss("hinge", prediction=Prediction.SCORES)
def hinge(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`\max(0, 1 - m)`."""
    return sum_outputs(op, op.Relu(op.Add(_minus_margins(op, y_true, y_pred), 1.0)))


@loss("squared_hinge", prediction=Prediction.SCORES)
def squared_hinge(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`\max(0, 1 - m)^2`, LinearSVC's default."""
    short = op.Relu(op.Add(_minus_margins(op, y_true, y_pred), 1.0))
    return sum_outputs(op, op.Mul(short, short))


@loss("modified_huber", prediction=Prediction.SCORES)
def modified_huber(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    r""":math:`\max(0, 1 - m)^2` where :math:`m \ge -1`, else :math:`-4 m`, as in SGDClassifier.

    Source: T. Zhang, Solving Large Scale Linear Prediction Problems Using Stochastic Gradient Descent, 2004.
    """
    short = op.Relu(op.Add(_minus_margins(op, y_true, y_pred), 1.0))
    c = taken_for_constant(op.Clip(short, 0.0, 2.0))
    # c (2h - c) is h^2 up to h = 2, then 4h - 4; its derivative by c is 2 (h - c), 0 unless c is constant
    return sum_outputs(op, op.Mul(c, op.Sub(op.Mul(short, 2.0), c)))


@loss("focal", prediction=Prediction.LIKELIHOOD)
def focal(op: Op, y_true: ir.Value, y_pred: ir.Value, *, gamma: float = 2.0) -> ir.Value:
    r""":math:`-(1 - p_y)^\gamma \log p_y`; ``log`` for :math:`\gamma = 0`.

    Source: T.-Y. Lin et al., Focal Loss for Dense Object Detection, 2017.
    """
    gamma = check_number(gamma, "gamma", at_least=0)
    minus_m = (_minus_margins if _columns(y_pred) == 1 else _minus_log_odds)(op, y_true, y_pred)
    minus_log_p = softplus(op, minus_m)
    # -log(1 - p) = m - log p; a power of 1 - p is not differentiable at p = 1
    return op.Mul(op.Exp(op.Mul(op.Sub(minus_log_p, minus_m), -gamma)), minus_log_p)


def _columns(y_pred: ir.Value) -> int:
    return int(y_pred.shape[1])  # type: ignore[index, arg-type]


def _is_class(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    """Return the mask of the true class: (n, K), or (n, 1) for class 1 of two."""
    n_columns = _columns(y_pred)
    classes = [[1]] if n_columns == 1 else [list(range(n_columns))]
    return op.Equal(y_true, op.initializer(ir.tensor(classes, dtype=ir.DataType.INT64, name="classes")))


def _minus_margins(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    """Return -m of each one-vs-rest problem: (n, 1) for two classes, (n, K) for more."""
    if _columns(y_pred) == 2:
        y_pred = op.MatMul(y_pred, _constant(op, [[-1.0], [1.0]], y_pred))
    is_class = _is_class(op, y_true, y_pred)
    return op.Mul(y_pred, op.Where(is_class, _constant(op, -1, y_pred), _constant(op, 1, y_pred)))


def _minus_log_odds(op: Op, y_true: ir.Value, y_pred: ir.Value) -> ir.Value:
    """Return -log(p_y / (1 - p_y)), (n, 1), from K scores."""
    lowest = -6e4 if y_pred.dtype is ir.DataType.FLOAT16 else -1e30  # exp is 0; float16 ends at -65504
    others = op.Where(_is_class(op, y_true, y_pred), _constant(op, lowest, y_pred), y_pred)
    return op.Sub(op.ReduceLogSumExp(others, [1], keepdims=1), op.GatherElements(y_pred, y_true, axis=1))


def _constant(op: Op, value: ArrayLike, like: ir.Value) -> ir.Value:
    return op.initializer(ir.tensor(np.array(value, dtype=like.dtype.numpy()), name="constant"))  # type: ignore[union-attr]
