"""The scores that an output is computed from."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import Op, constant, made_by, rank, tensor
from onnxtrain.losses.link.probabilities import before_normalization, is_affine_score, is_probability, range_of
from onnxtrain.losses.link.walk import axis, equals, input_of, n_columns, negated, other, skip

#: The declarations of a classifier's output that a user may give.
OUTPUT_IS = ("scores", "probabilities")


class Link(enum.Enum):
    """The function that maps scores to an output."""

    IDENTITY = "identity"  #: the output is the scores
    SIGMOID = "sigmoid"  #: s (n, 1), Sigmoid is the probability of class 1 of two
    SOFTMAX = "softmax"  #: s (n, K)
    SIGMOIDS = "sigmoids"  #: s (n, K), Sigmoid of each: K labels, or classes after division by their sum
    NORMALIZED_SIGMOID = "normalized_sigmoid"  #: s (n, K), Sigmoid of each divided by their sum
    EXP = "exp"  #: the output is a mean, the score its logarithm
    CLIPPED = "clipped"  #: s (n, 1) or (n, K), the probabilities follow from (1 + s) / 2 clipped to [0, 1]
    PROBABILITY = "probability"  #: probabilities of unknown origin, without scores


@dataclass(frozen=True)
class Scores:
    """A value and the link from it to the output.

    ``certain`` is false if the graph does not show whether the output holds scores or probabilities.
    """

    value: ir.Value
    link: Link
    certain: bool = True

    def said(self, output: ir.Value, output_is: str | None) -> Scores:
        """Return the scores, given the kind of the output as declared or as observed in the rows.

        Parameters
        ----------
        output : onnx_ir.Value
        output_is : {"scores", "probabilities"} or None
            None: the graph decides.
        """
        if output_is == "scores" and self.link is not Link.IDENTITY:
            return Scores(output, Link.IDENTITY)
        if output_is == "probabilities" and self.link is Link.IDENTITY:
            return Scores(output, Link.PROBABILITY)
        return self if output_is is None else replace(self, certain=True)


def scores_behind(value: ir.Value, op: Op | None = None) -> Scores:
    """Find the scores that an output is computed from.

    Parameters
    ----------
    value : onnx_ir.Value
        An output (n,), (n, 1) or (n, K).
    op : onnxscript builder, optional
        Concatenates scores that the graph computes column by column; without
        it such scores are not found.

    Returns
    -------
    Scores
        ``link`` is PROBABILITY, and the value is the output itself, if its range is
        that of probabilities but no scores are recognised. ``link`` is IDENTITY if
        nothing shows that the output is not a score.
    """
    value = _without_factor(skip(value))
    for pattern in (_softmax, _sigmoid, _exp, _two_columns, _opposites, _mirrored, _normalized, _sigmoids):
        found = pattern(value, op)
        if found is not None:
            return found
    if is_probability(value):
        return Scores(value, Link.PROBABILITY)
    return Scores(value, Link.IDENTITY, certain=is_affine_score(value))


def _without_factor(value: ir.Value) -> ir.Value:
    """Return p if value is 1 * p, the form of probabilities in LightGBM's converter."""
    node = made_by(value, "Mul")
    p = None if node is None else other(node, 1)
    return skip(p) if p is not None and rank(p) == rank(value) and is_probability(p) else value


def _softmax(value: ir.Value, op: Op | None) -> Scores | None:
    node = made_by(value, "Softmax")
    if node is None:
        return _flat_softmax(value, op)
    if axis(node) not in (-1, 1) or rank(value) != 2:
        return None
    return Scores(input_of(node), Link.SOFTMAX)


def _flat_softmax(value: ir.Value, op: Op | None) -> Scores | None:
    """Match a Softmax over the channels of (n, K, 1, 1), reshaped to (n, K)."""
    node = made_by(value, "Flatten", "Reshape", "Squeeze")
    softmax = None if node is None else made_by(node.inputs[0], "Softmax")
    k = n_columns(value)
    if op is None or k is None or softmax is None:
        return None
    z = softmax.inputs[0]
    shape = None if z is None or z.shape is None else list(z.shape[1:])
    along = axis(softmax) - 1 if axis(softmax) > 0 else axis(softmax)
    if z is None or shape is None or rank(value) != 2 or axis(softmax) == 0 or shape[along] != k:
        return None
    if any(d != 1 for i, d in enumerate(shape) if i != along % len(shape)):
        return None
    flat = op.Reshape(z, op.initializer(tensor([-1, k], name="row_of_scores")))
    flat.shape = value.shape
    return Scores(flat, Link.SOFTMAX)


def _exp(value: ir.Value, op: Op | None) -> Scores | None:
    node = made_by(value, "Exp")
    return None if node is None else Scores(input_of(node), Link.EXP, certain=range_of(value).high <= 1)


def _sigmoid(value: ir.Value, op: Op | None) -> Scores | None:
    z = _logit(value)
    if z is None:
        return None
    return Scores(z, Link.SIGMOID if n_columns(z) == 1 else Link.SIGMOIDS)


def _sigmoids(value: ir.Value, op: Op | None) -> Scores | None:
    """Match Concat(p_1, ..., p_K), each the Sigmoid of its own z."""
    z = _logit_columns(value, op)
    return None if z is None else Scores(z, Link.SIGMOIDS)


def _two_columns(value: ir.Value, op: Op | None) -> Scores | None:
    """Match Concat(1 - p, p), p the Sigmoid of z."""
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


def _opposites(value: ir.Value, op: Op | None) -> Scores | None:
    """Match Concat(-d, d), with columns possibly swapped or both negated: one decision value, stored twice."""
    order: list[int] = [0, 1]
    source = negated(value)
    if source is not None and rank(source) == 2:
        order, value = [1, 0], skip(source)
    swap = made_by(value, "Gather")
    if swap is not None and axis(swap) in (1, -1):
        index = constant(swap.inputs[1])
        order = [] if index is None else [order[i] for i in index.reshape(-1).tolist() if i in (0, 1)]
        value = swap.inputs[0]  # type: ignore[assignment]
    node = made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or axis(node) not in (1, -1) or sorted(order) != [0, 1]:
        return None
    first, second = (node.inputs[i] for i in order)
    if first is None or second is None or n_columns(second) != 1:
        return None
    if negated(first) is not second and negated(second) is not first:
        return None
    return Scores(first if _makes_the_label(second, "LessOrEqual") else skip(second), Link.IDENTITY)


def _makes_the_label(d: ir.Value, comparison: str) -> bool:
    """Whether the index of the class is a comparison of d with 0.

    Each column of SVMClassifier is the score of the other class: its label is the second class if d <= 0, and d
    is the second column.
    """
    return any(node.op_type == comparison and equals(node.inputs[1], 0) for node in d.consumers())


def _mirrored(value: ir.Value, op: Op | None) -> Scores | None:
    """Match (-d, d) from a LinearClassifier with opposite rows, (d, -d) from a binary SVMClassifier."""
    source = negated(value)
    node = (value if source is None else source).producer()
    while node is not None and node.op_type == "Cast":  # onnx does not infer the shape of its input
        node = node.inputs[0].producer()  # type: ignore[union-attr]
    if op is None or node is None or n_columns(value) != 2 or not _gives_opposites(node):
        return None
    column = 0 if node.op_type == "SVMClassifier" and source is None else 1
    return Scores(op.Slice(value, [column], [column + 1], [1]), Link.IDENTITY)


def _gives_opposites(node: ir.Node) -> bool:
    """Whether the scores of an ai.onnx.ml classifier are one decision value, stored twice."""
    given = {name: np.asarray(a.value) for name, a in node.attributes.items() if not a.is_ref()}
    if node.domain != "ai.onnx.ml" or str(given.get("post_transform", "NONE")) != "NONE":
        return False
    if node.op_type == "LinearClassifier":
        lists = [given[name] for name in ("coefficients", "intercepts") if name in given and given[name].size]
        return all(x.size % 2 == 0 and np.array_equal(*(x.reshape(2, -1) * [[1], [-1]])) for x in lists)
    return node.op_type == "SVMClassifier" and not len(given.get("prob_a", ()))


def _normalized(value: ir.Value, op: Op | None) -> Scores | None:
    """Match the values of a row divided by their sum: sigmoids, exponentials, or values that already sum to one."""
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
    """Return z if value is Sigmoid(z), also as Reciprocal(1 + Exp(-z)) or 1 / (1 + Exp(-z))."""
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
    """Return s if value is (Clip(s, -1, 1) + 1) / 2."""
    half = made_by(value, "Div")
    plus = made_by(half.inputs[0], "Add") if half is not None and equals(half.inputs[1], 2) else None
    clip = made_by(None if plus is None else other(plus, 1), "Clip")
    if clip is None or len(clip.inputs) != 3 or not equals(clip.inputs[1], -1) or not equals(clip.inputs[2], 1):
        return None
    return input_of(clip)


def _logit_columns(value: ir.Value, op: Op | None) -> ir.Value | None:
    """Return Concat(z_1, ..., z_K) if value is Concat(Sigmoid(z_1), ..., Sigmoid(z_K))."""
    node = made_by(value, "Concat")
    if node is None or op is None or axis(node) not in (1, -1):
        return None
    z = [_logit(skip(p)) if p is not None else None for p in node.inputs]
    if any(v is None or rank(v) != 2 for v in z):
        return None
    return op.Concat(*z, axis=1)
