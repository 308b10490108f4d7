"""Rules of Softmax, LogSoftmax and the two losses on scores.

``p`` are probabilities, ``t`` the class indices, ``w`` the weights of the classes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import size_of
from onnxtrain.autodiff.registry import gradient_rule, no_gradient
from onnxtrain.autodiff.rules.window import array_like
from onnxtrain.graph import Op, attribute, carried, rank

no_gradient("Hardmax")


@gradient_rule("Softmax")
def softmax(op, node, dy):
    (p,) = node.outputs
    axis = [attribute(node, "axis", -1)]
    if _is_replaced(p):
        p = op.Where(op.IsNaN(p), 0.0, p)
    dyp = op.Mul(dy, p)
    return op.Sub(dyp, op.Mul(p, op.ReduceSum(dyp, axis, keepdims=1)))


def _is_replaced(p: ir.Value) -> bool:
    """Whether the graph replaces entries of `p`, as attention does for rows of -inf only: 0 * NaN is NaN."""
    copies = carried(p, ("Cast", "CastLike", "Identity"))
    return any(user.op_type == "Where" for copy in copies for user in copy.consumers())


@gradient_rule("LogSoftmax")
def log_softmax(op, node, dy):
    (y,) = node.outputs
    axis = [attribute(node, "axis", -1)]
    return op.Sub(dy, op.Mul(op.Exp(y), op.ReduceSum(dy, axis, keepdims=1)))


@gradient_rule("NegativeLogLikelihoodLoss")
def negative_log_likelihood(op, node, dy):
    x, t, *w = node.inputs
    dx, dw = _weighted_scores(op, node, dy, x, t, *w)
    return (dx, None, dw)[: len(node.inputs)]


@gradient_rule("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(op, node, dy, dlog_p=None):
    scores, t, *w = node.inputs
    log_p, dw = op.LogSoftmax(scores, axis=1), None
    if dy is not None:
        d, dw = _weighted_scores(op, node, dy, log_p, t, *w)
        dlog_p = d if dlog_p is None else op.Add(d, dlog_p)
    dx = op.Sub(dlog_p, op.Mul(op.Exp(log_p), op.ReduceSum(dlog_p, [1], keepdims=1)))
    return (dx, None, dw)[: len(node.inputs)]


def _weighted_scores(
    op: Op, node: ir.Node, dy: ir.Value, x: ir.Value, t: ir.Value, w: ir.Value | None = None
) -> tuple[ir.Value, ir.Value | None]:
    """Return the gradients of -sum(w[t] * x[t]), divided by sum(w[t]) for a mean, with respect to `x` and `w`."""
    reduction = attribute(node, "reduction", "mean")
    hit = _hits(op, node, x, t)
    weight = op.CastLike(hit, x) if w is None else op.Where(hit, op.Reshape(w, _column(x)), 0.0)
    scale = op.Unsqueeze(dy, [1]) if reduction == "none" else dy
    if reduction == "mean":
        scale = op.Div(dy, op.ReduceSum(weight, keepdims=0))
    scale = op.Neg(scale)
    if w is None:
        return op.Mul(weight, scale), None
    gain = op.Add(x, node.outputs[0]) if reduction == "mean" else x  # d(S/D) = (dS - S/D dD)/D, loss = -S/D
    dw = op.ReduceSum(op.Where(hit, op.Mul(gain, scale), 0.0), [0, *range(2, rank(x))], keepdims=0)
    return op.Mul(weight, scale), dw


def _hits(op: Op, node: ir.Node, x: ir.Value, t: ir.Value) -> ir.Value:
    """Return the one-hot mask of the labels in the shape (N, C, ...) of `x`; the ignored class is never set."""
    ignored = attribute(node, "ignore_index")
    n = x.shape[1]
    if isinstance(n, int):
        classes = array_like(op, np.arange(n).reshape(_column(x)), t, "classes")
    else:
        classes = op.CastLike(op.Reshape(op.Range(0, size_of(op, x, 1), 1), _column(x)), t)
    hit = op.Equal(op.Unsqueeze(t, [1]), classes)
    if ignored is None or ignored < 0:  # a negative label matches no class
        return hit
    return op.And(hit, op.Not(op.Equal(classes, op.CastLike(ignored, t))))


def _column(x: ir.Value) -> list[int]:
    """Return the shape that broadcasts a vector (C,) along the second axis of (N, C, ...)."""
    return [-1, *[1] * (rank(x) - 2)]
