"""The scores behind an output."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import constant, rank
from onnxtrain.heads.probabilities import before_normalization, is_probability
from onnxtrain.heads.walk import axis, equals, input_of, made_by, n_columns, negated, other, skip


class Link(enum.Enum):
    """How an output follows from the scores behind it."""

    IDENTITY = "identity"  #: the output is the scores
    SIGMOID = "sigmoid"  #: s (n, 1), the probability of class 1 of two
    SOFTMAX = "softmax"  #: s (n, K)
    SIGMOIDS = "sigmoids"  #: s (n, K), Sigmoid of each: K labels, or classes once divided by their sum
    NORMALIZED_SIGMOID = "normalized_sigmoid"  #: s (n, K), Sigmoid of each divided by their sum
    EXP = "exp"  #: the output is a mean, its logarithm behind it
    CLIPPED = "clipped"  #: s (n, 1) or (n, K), the probabilities follow from (1 + s) / 2 clipped to [0, 1]
    PROBABILITY = "probability"  #: probabilities of unknown origin, there are no scores


@dataclass(frozen=True)
class Scores:
    """A value, and how the output follows from it."""

    value: ir.Value
    link: Link


def scores_behind(value: ir.Value, op: Any = None) -> Scores:
    """Find the scores that an output is computed from.

    Parameters
    ----------
    value : onnx_ir.Value
        An output (n,), (n, 1) or (n, K).
    op : onnxscript builder, optional
        Scores that the graph holds column by column are concatenated by it;
        without it they are not found.

    Returns
    -------
    Scores
        ``link`` is PROBABILITY, and the value is the output itself, where it
        ends in something that makes probabilities but is not recognised, and
        IDENTITY where nothing says that it is not a score.
    """
    name = str(value.name)
    value = _without_factor(skip(value))
    for pattern in (_softmax, _sigmoid, _exp, _two_columns, _opposites, _mirrored, _normalized, _sigmoids):
        found = pattern(value, op)
        if found is not None:
            return found
    return Scores(value, Link.PROBABILITY if is_probability(value) or _is_named_so(value, name) else Link.IDENTITY)


def _without_factor(value: ir.Value) -> ir.Value:
    """Return p where value is 1 * p, probabilities as the converter of LightGBM writes them."""
    node = made_by(value, "Mul")
    p = None if node is None else other(node, 1)
    return skip(p) if p is not None and rank(p) == rank(value) and is_probability(p) else value


def _is_named_so(value: ir.Value, name: str) -> bool:
    """Whether a sum is called a probability: that of leaves which are being trained says nothing by itself."""
    return "prob" in name.lower() and made_by(value, "ReduceSum", "ReduceMean") is not None


def _softmax(value: ir.Value, op: Any) -> Scores | None:
    node = made_by(value, "Softmax")
    if node is None or axis(node) not in (-1, 1) or rank(value) != 2:
        return None
    return Scores(input_of(node), Link.SOFTMAX)


def _exp(value: ir.Value, op: Any) -> Scores | None:
    node = made_by(value, "Exp")
    return None if node is None else Scores(input_of(node), Link.EXP)


def _sigmoid(value: ir.Value, op: Any) -> Scores | None:
    z = _logit(value)
    if z is None:
        return None
    return Scores(z, Link.SIGMOID if n_columns(z) == 1 else Link.SIGMOIDS)


def _sigmoids(value: ir.Value, op: Any) -> Scores | None:
    """Concat(p_1, ..., p_K), each the Sigmoid of a z of its own."""
    z = _logit_columns(value, op)
    return None if z is None else Scores(z, Link.SIGMOIDS)


def _two_columns(value: ir.Value, op: Any) -> Scores | None:
    """Concat(1 - p, p), p the Sigmoid of z."""
    node = made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or axis(node) not in (1, -1):
        return None
    q, p = node.inputs
    complement = made_by(q, "Sub")
    if p is None or complement is None or complement.inputs[1] is not p or not equals(complement.inputs[0], 1):
        return None
    for scores_of, link in ((_logit, Link.SIGMOID), (_clipped, Link.CLIPPED)):
        z = scores_of(skip(p))
        if z is not None and n_columns(z) == 1:
            return Scores(z, link)
    return None


def _opposites(value: ir.Value, op: Any) -> Scores | None:
    """Concat(-d, d), its columns perhaps swapped: one decision value, written twice."""
    order: list[int] = [0, 1]
    swap = made_by(value, "Gather")
    if swap is not None and axis(swap) in (1, -1):
        index = constant(swap.inputs[1])
        order = [] if index is None else index.reshape(-1).tolist()
        value = swap.inputs[0]  # type: ignore[assignment]
    node = made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or axis(node) not in (1, -1) or sorted(order) != [0, 1]:
        return None
    first, second = (node.inputs[i] for i in order)
    if second is None or n_columns(second) != 1:
        return None
    return Scores(skip(second), Link.IDENTITY) if negated(first) is second or negated(second) is first else None


def _mirrored(value: ir.Value, op: Any) -> Scores | None:
    """(-d, d) out of a LinearClassifier whose two rows are opposites, or a SVMClassifier of two classes."""
    source = negated(value)
    node = (value if source is None else source).producer()
    while node is not None and node.op_type == "Cast":  # onnx knows no shape of its input
        node = node.inputs[0].producer()  # type: ignore[union-attr]
    if op is None or node is None or n_columns(value) != 2 or not _gives_opposites(node):
        return None
    return Scores(op.Slice(value, [1], [2], [1]), Link.IDENTITY)


def _gives_opposites(node: ir.Node) -> bool:
    """Whether the scores of a classifier of ai.onnx.ml are one decision value, written twice."""
    given = {name: np.asarray(a.value) for name, a in node.attributes.items() if not a.is_ref()}
    if node.domain != "ai.onnx.ml" or str(given.get("post_transform", "NONE")) != "NONE":
        return False
    if node.op_type == "LinearClassifier":
        lists = [given[name] for name in ("coefficients", "intercepts") if name in given and given[name].size]
        return all(x.size % 2 == 0 and np.array_equal(*(x.reshape(2, -1) * [[1], [-1]])) for x in lists)
    return node.op_type == "SVMClassifier" and not len(given.get("prob_a", ()))


def _normalized(value: ir.Value, op: Any) -> Scores | None:
    """Numbers of a row divided by their sum: sigmoids, exponentials, or what sums to one already."""
    x = before_normalization(value)
    if x is None:
        return None
    x = skip(x)
    if x.shape is None:
        x.type, x.shape = value.type, value.shape
    exponential = made_by(x, "Exp")
    if exponential is not None:
        return Scores(input_of(exponential), Link.SOFTMAX)
    for pattern in (_softmax, _two_columns):
        found = pattern(x, op)
        if found is not None:
            return found
    for scores_of, link in ((_logit, Link.NORMALIZED_SIGMOID), (_clipped, Link.CLIPPED)):
        z = scores_of(x)
        if z is not None:
            return Scores(z, link)
    z = _logit_columns(x, op)
    return Scores(value, Link.PROBABILITY) if z is None else Scores(z, Link.NORMALIZED_SIGMOID)


def _logit(value: ir.Value) -> ir.Value | None:
    """Return z where value is Sigmoid(z), also as Reciprocal(1 + Exp(-z)) or 1 / (1 + Exp(-z))."""
    node = made_by(value, "Sigmoid", "Reciprocal", "Div")
    if node is None:
        return None
    if node.op_type == "Sigmoid":
        return input_of(node)
    if node.op_type == "Div" and not equals(node.inputs[0], 1):
        return None
    plus = made_by(node.inputs[-1], "Add")
    exponential = made_by(None if plus is None else other(plus, 1), "Exp")
    z = None if exponential is None else negated(exponential.inputs[0])
    return None if z is None else skip(z)


def _clipped(value: ir.Value) -> ir.Value | None:
    """Return s where value is (Clip(s, -1, 1) + 1) / 2."""
    half = made_by(value, "Div")
    plus = made_by(half.inputs[0], "Add") if half is not None and equals(half.inputs[1], 2) else None
    clip = made_by(None if plus is None else other(plus, 1), "Clip")
    if clip is None or len(clip.inputs) != 3 or not equals(clip.inputs[1], -1) or not equals(clip.inputs[2], 1):
        return None
    return input_of(clip)


def _logit_columns(value: ir.Value, op: Any) -> ir.Value | None:
    """Return Concat(z_1, ..., z_K) where value is Concat(Sigmoid(z_1), ..., Sigmoid(z_K))."""
    node = made_by(value, "Concat")
    if node is None or op is None or axis(node) not in (1, -1):
        return None
    z = [_logit(skip(p)) if p is not None else None for p in node.inputs]
    if any(v is None or rank(v) != 2 for v in z):
        return None
    return op.Concat(*z, axis=1)
