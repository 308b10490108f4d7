"""Rules of activations, of Softmax and LogSoftmax, and of the two losses on scores.

At the kink of a function that is constant on one side (Relu, HardSigmoid, ...)
the subgradient is 0, the slope of the constant side. At the kink of LeakyRelu,
PRelu, Elu and similar functions it is the left derivative.

For Softmax and the losses on scores, ``p`` are probabilities, ``t`` the class indices, ``w`` the weights of the
classes.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import size_of
from onnxtrain.autodiff.registry import gradient_rule, no_gradient
from onnxtrain.autodiff.rules.window import array_like
from onnxtrain.graph import Op, attribute, carried, rank

# ---------------------------------------------------------- piecewise linear


@gradient_rule("Relu")
def relu(op, node, dy):
    (y,) = node.outputs
    return op.Where(op.Greater(y, 0.0), dy, 0.0)


@gradient_rule("LeakyRelu")
def leaky_relu(op, node, dy):
    (x,) = node.inputs
    return op.Where(op.Greater(x, 0.0), dy, op.Mul(dy, attribute(node, "alpha", 0.01)))


@gradient_rule("PRelu", broadcast=True)
def prelu(op, node, dy):
    x, slope = node.inputs
    return op.Where(op.Greater(x, 0.0), dy, op.Mul(dy, slope)), op.Mul(dy, op.Min(x, 0.0))


@gradient_rule("ThresholdedRelu")
def thresholded_relu(op, node, dy):
    (x,) = node.inputs
    return op.Where(op.Greater(x, attribute(node, "alpha", 1.0)), dy, 0.0)


@gradient_rule("Shrink")
def shrink(op, node, dy):
    (x,) = node.inputs
    return op.Where(op.Greater(op.Abs(x), attribute(node, "lambd", 0.5)), dy, 0.0)


@gradient_rule("HardSigmoid")
def hard_sigmoid(op, node, dy):
    (y,) = node.outputs
    inside = op.And(op.Greater(y, 0.0), op.Less(y, 1.0))
    return op.Where(inside, op.Mul(dy, attribute(node, "alpha", 0.2)), 0.0)


@gradient_rule("HardSwish")
def hard_swish(op, node, dy):
    """Return dy times the slope: 0 for x <= -3, x/3 + 1/2 for -3 < x < 3, and 1 for x >= 3."""
    (x,) = node.inputs
    right = op.Where(op.Less(x, 3.0), op.Add(op.Div(x, 3.0), 0.5), 1.0)
    return op.Mul(dy, op.Where(op.Greater(x, -3.0), right, 0.0))


# --------------------------------------------------------- with exponentials


@gradient_rule("Elu")
def elu(op, node, dy):
    return _bent_exponential(op, node, dy, 1.0, 1.0, attribute(node, "alpha", 1.0))


@gradient_rule("Selu")
def selu(op, node, dy):
    alpha = attribute(node, "alpha", 1.67326319217681884765625)
    gamma = attribute(node, "gamma", 1.05070102214813232421875)
    return _bent_exponential(op, node, dy, gamma, 1.0, alpha * gamma)


@gradient_rule("Celu")
def celu(op, node, dy):
    return _bent_exponential(op, node, dy, 1.0, 1 / attribute(node, "alpha", 1.0), 1.0)


def _bent_exponential(op, node, dy, right, scale, shift):
    """Return dy times `right` where x > 0, else times the slope of an exponential, y * scale + shift."""
    (x,) = node.inputs
    (y,) = node.outputs
    left = op.Add(y if scale == 1.0 else op.Mul(y, scale), shift)
    return op.Mul(dy, op.Where(op.Greater(x, 0.0), right, left))


@gradient_rule("Sigmoid")
def sigmoid(op, node, dy):
    (y,) = node.outputs
    return op.Mul(dy, op.Mul(y, op.Sub(1.0, y)))


@gradient_rule("Softplus")
def softplus(op, node, dy):
    (x,) = node.inputs
    return op.Mul(dy, op.Sigmoid(x))


@gradient_rule("Softsign")
def softsign(op, node, dy):
    (x,) = node.inputs
    root = op.Add(op.Abs(x), 1.0)
    return op.Div(op.Div(dy, root), root)  # the square of `root` may overflow


@gradient_rule("Swish")
def swish(op, node, dy):
    """Return dy * (s + alpha * y * (1 - s)) with s = sigmoid(alpha * x)."""
    (x,) = node.inputs
    (y,) = node.outputs
    alpha = attribute(node, "alpha", 1.0)
    s = op.Sigmoid(x if alpha == 1.0 else op.Mul(x, alpha))
    rest = op.Sub(1.0, s) if alpha == 1.0 else op.Mul(op.Sub(1.0, s), alpha)
    return op.Mul(dy, op.Add(s, op.Mul(y, rest)))


@gradient_rule("Mish")
def mish(op, node, dy):
    """Return dy * (t + x * (1 - t * t) * sigmoid(x)) with t = tanh(softplus(x))."""
    (x,) = node.inputs
    t = op.Tanh(op.Softplus(x))
    bend = op.Mul(op.Sub(1.0, op.Mul(t, t)), op.Sigmoid(x))
    return op.Mul(dy, op.Add(t, op.Mul(x, bend)))


@gradient_rule("Gelu")
def gelu(op, node, dy):
    (x,) = node.inputs
    tanh = attribute(node, "approximate", "none") == "tanh"
    return op.Mul(dy, (_slope_of_gelu_tanh if tanh else _slope_of_gelu)(op, x))


def _slope_of_gelu(op, x):
    """Return P(x) + x * p(x), with the distribution function and the density of a normal variable."""
    z = op.Mul(x, math.sqrt(0.5))
    distribution = op.Mul(op.Add(op.Erf(z), 1.0), 0.5)
    density = op.Exp(op.Sub(-math.log(2 * math.pi) / 2, op.Mul(z, z)))
    return op.Add(distribution, op.Mul(x, density))


def _slope_of_gelu_tanh(op, x):
    """Return s + x * 2u' * s * (1 - s), with s = sigmoid(2u), 2u = c * (x + 0.044715 * x**3)."""
    c = math.sqrt(8 / math.pi)
    x = op.Clip(x, -20.0, 20.0)  # outside, s is 0 or 1, and x**3 may overflow
    square = op.Mul(x, x)
    s = op.Sigmoid(op.Mul(x, op.Add(op.Mul(square, 0.044715 * c), c)))
    slope = op.Mul(x, op.Add(op.Mul(square, 3 * 0.044715 * c), c))
    return op.Add(s, op.Mul(slope, op.Mul(s, op.Sub(1.0, s))))


# --------------------------------------------------------------------- softmax


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
