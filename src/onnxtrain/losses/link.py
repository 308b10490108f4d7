"""The link between an output and its scores: probabilities and logits, a mean and its logarithm, labels.

A loss of probabilities is computed from the input of Softmax or Sigmoid: the
probability of a score of 1000 is 1 in floating point, its logarithm is 0 and the
gradient vanishes, while the score still has a useful gradient.

:func:`scores_behind` finds the scores that an output is computed from.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from scipy.special import expit, log_expit, softmax

from onnxtrain.errors import ModelError
from onnxtrain.graph import Op, constant, is_float, made_by, rank, scalar, tensor
from onnxtrain.losses.ranges import (
    ROUNDING,
    axis,
    before_normalization,
    columns,
    complemented,
    equals,
    is_probability,
    operand_of,
    range_of,
)

#: The values of the parameter ``output_is``.
OUTPUT_IS = ("scores", "probabilities")

#: The Sigmoid of a lower logit is 0 in float64.
LOWEST_LOGIT = -745.13


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


def output_of(link: Link, scores: np.ndarray) -> np.ndarray | None:
    """Return the output of a model from its scores, (n, K); None if it does not follow from them."""
    match link:
        case Link.IDENTITY:
            return scores
        case Link.SIGMOID | Link.SIGMOIDS:
            return expit(scores)
        case Link.SOFTMAX if scores.shape[1] > 1:
            return softmax(scores, axis=1)
        case Link.NORMALIZED_SIGMOID if scores.shape[1] > 1:
            return normalized_expit(scores)
        case Link.EXP:
            with np.errstate(over="ignore"):
                return np.exp(scores)
    return None


def normalized_expit(scores: np.ndarray) -> np.ndarray:
    """Return the Sigmoids of scores (n, K) divided by their sum, in logarithms: all of them may underflow to 0."""
    vanish = scores.max(axis=1, keepdims=True) < LOWEST_LOGIT
    return softmax(np.where(vanish, 0, log_expit(scores)), axis=1)


#: The links of class probabilities.
OF_CLASSES = (Link.SOFTMAX, Link.NORMALIZED_SIGMOID, Link.SIGMOID, Link.PROBABILITY)


@dataclass(frozen=True)
class Scores:
    """A value and the link from it to the output.

    ``certain`` is false if the graph does not show whether the output holds scores or probabilities.
    """

    value: ir.Value
    link: Link
    certain: bool = True

    def said(self, output: ir.Value, output_is: str | None) -> Scores:
        """Return the scores of an output whose kind the user declared or the rows have shown.

        Parameters
        ----------
        output : onnx_ir.Value
        output_is : {"scores", "probabilities"} or None
            None: the graph decides.

        Raises
        ------
        ModelError
            The output is a Softmax over one column.
        """
        if self._chooses_among_one(output):
            raise ModelError(
                f"The output {output.name!r} is a Softmax over one column, which is 1 in every row and has no "
                "gradient. End the model in a Sigmoid, or give the last layer one column per class."
            )
        if output_is == "scores" and self.link is not Link.IDENTITY:
            return Scores(output, Link.IDENTITY)
        if output_is == "probabilities" and self.link is Link.IDENTITY:
            return Scores(output, Link.PROBABILITY)
        return self if output_is is None else replace(self, certain=True)

    def _chooses_among_one(self, output: ir.Value) -> bool:
        softmax = made_by(output, "Softmax")
        if softmax is not None and output.shape is not None:
            return bool(output.shape[axis(softmax)] == 1)
        return self.link in (Link.SOFTMAX, Link.NORMALIZED_SIGMOID) and n_columns(self.value) == 1


# ------------------------------------------------------------- the scores


def scores_behind(value: ir.Value, op: Op | None = None, class_axis: int | None = None) -> Scores:
    """Find the scores that an output is computed from.

    Parameters
    ----------
    value : onnx_ir.Value
        An output (n,), (n, 1), (n, K) or of more axes.
    op : onnxscript builder, optional
        Concatenates scores that the graph computes column by column; without
        it such scores are not found.
    class_axis : int, optional
        The class axis of an output of three or more axes.

    Returns
    -------
    Scores
        ``link`` is PROBABILITY, and the value is the output itself, if its range is
        [0, 1] but no scores are recognised. ``link`` is IDENTITY if
        nothing shows that the output is not a score.
    """
    if (rank(value) or 0) > 2:
        return _scores_of_positions(value, op, class_axis)
    value = skip(value)
    if is_affine_score(value):
        return Scores(value, Link.IDENTITY)
    value = _without_factor(_before_rounding(value))
    for pattern in (_function, _softmax, _flat_softmax, _two_columns, _opposites, _mirrored, _normalized):
        found = pattern(value, op)
        if found is not None:
            return found
    if is_probability(value):
        return Scores(value, Link.PROBABILITY)
    return Scores(value, Link.IDENTITY, certain=False)


def _before_rounding(value: ir.Value) -> ir.Value:
    """Return p if value is p quantized and dequantized, the form of probabilities in quantized models."""
    p = value
    while (dequantize := made_by(p, "DequantizeLinear")) is not None:
        quantize = made_by(dequantize.inputs[0], "QuantizeLinear")
        if quantize is None or quantize.inputs[0] is None:
            return value
        p = skip(quantize.inputs[0])
    return p if is_probability(p) else value


def _scores_of_positions(value: ir.Value, op: Op | None, class_axis: int | None) -> Scores:
    """Return the scores of an output of three or more axes, in its shape; the link applies to each position."""
    last = len(value.shape) - 1  # type: ignore[arg-type]
    inner, perms = value, []
    while not (affine := class_axis in (None, last) and is_affine_score(inner)):
        turn = made_by(inner, "Transpose")
        if turn is None or op is None or turn.inputs[0] is None or rank(turn.inputs[0]) != last + 1:
            break
        perms.append(list(turn.attributes.get_ints("perm", range(last, -1, -1))))
        class_axis = None if class_axis is None else perms[-1][class_axis]
        inner = turn.inputs[0]
    found = Scores(inner, Link.IDENTITY) if affine else _scores_of_unturned(inner, op, class_axis)
    if found.link in (Link.IDENTITY, Link.PROBABILITY):
        return replace(found, value=value)
    for perm in reversed(perms):
        found = replace(found, value=op.Transpose(found.value, perm=perm))  # type: ignore[union-attr]
    return found


def _scores_of_unturned(value: ir.Value, op: Op | None, class_axis: int | None) -> Scores:
    """Return the scores of an output of three or more axes that is neither a Transpose nor affine."""
    last = len(value.shape) - 1  # type: ignore[arg-type]
    softmax, z = made_by(value, "Softmax"), _logit(value, op)
    if softmax is not None and (class_axis is None or axis(softmax) % (last + 1) == class_axis):
        return Scores(input_of(softmax), Link.SOFTMAX)
    if z is not None:
        return Scores(z, Link.SIGMOID if n_scores(value, class_axis) == 1 else Link.SIGMOIDS)
    mean = _exponent(value, op)
    if mean is not None:
        return Scores(mean, Link.EXP, certain=range_of(value).high <= 1)
    if range_of(value).is_unit:
        return Scores(value, Link.PROBABILITY, certain=softmax is None)  # a Softmax over another axis is uncertain
    return Scores(value, Link.IDENTITY, certain=False)


def _without_factor(value: ir.Value) -> ir.Value:
    """Return p if value is 1 * p, the form of probabilities in LightGBM's converter."""
    node = made_by(value, "Mul")
    p = None if node is None else other(node, 1)
    return skip(p) if p is not None and rank(p) == rank(value) and is_probability(p) else value


def _function(value: ir.Value, op: Op | None) -> Scores | None:
    """Match p = f(s)."""
    f, z = _function_behind(value, op)
    if f is None or f.link is None or z is None:
        return None
    if f.link is Link.SIGMOIDS and n_columns(z) == 1:
        return Scores(z, Link.SIGMOID)
    return Scores(z, f.link, certain=f.link is not Link.EXP or range_of(value).high <= 1)


def _two_columns(value: ir.Value, op: Op | None) -> Scores | None:
    """Match Concat(1 - p, p), p = f(s) of one column."""
    p = complemented(value)
    f, z = (None, None) if p is None else _function_behind(skip(p), op)
    return Scores(z, f.of_pair) if f is not None and f.of_pair and z is not None and n_columns(z) == 1 else None


def _normalized(value: ir.Value, op: Op | None) -> Scores | None:
    """Match the values of a row divided by their sum: p = f(s), or values that already sum to one."""
    p = before_normalization(value)
    if p is None:
        return None
    p = skip(p)
    if p.shape is None:
        p.type, p.shape = value.type, value.shape
    found = _softmax(p, op) or _two_columns(p, op)
    if found is not None:
        return found
    f, z = _function_behind(p, op)
    return Scores(value, Link.PROBABILITY) if f is None or z is None else Scores(z, f.normalized)


def _softmax(value: ir.Value, op: Op | None) -> Scores | None:
    node = made_by(value, "Softmax")
    if node is None or axis(node) not in (-1, 1) or rank(value) != 2:
        return None
    z = input_of(node)
    s = _before_logistic(z)
    return Scores(z, Link.SOFTMAX) if s is None else Scores(s, Link.NORMALIZED_SIGMOID)


def normalized_sigmoids(op: Op, s: ir.Value) -> ir.Value:
    r"""Return :math:`\sigma(s_k) / \sum_j \sigma(s_j)`, (n, K), as the Softmax of :math:`\log \sigma(s_k)`.

    Softmax avoids the underflow of all K Sigmoids in float32, after which all classes would be equally likely. If all K
    underflow in float64 too, the row is uniform, as in scikit-learn.
    """
    log_p = op.Sub(op.Min(s, 0.0), op.Log(op.Add(op.Exp(op.Neg(op.Abs(s))), 1.0)))
    vanish = op.Less(op.ReduceMax(s, [1], keepdims=1), LOWEST_LOGIT)
    return op.Softmax(op.Where(vanish, 0.0, log_p), axis=1)


def _before_logistic(value: ir.Value) -> ir.Value | None:
    """Return s if the Softmax of a value is :func:`normalized_sigmoids` of s."""
    choice = made_by(value, "Where")
    difference = made_by(choice.inputs[2], "Sub") if choice is not None else None
    if choice is None or difference is None or made_by(choice.inputs[0], "Less") is None:
        return None
    s = operand_of(difference.inputs[0], "Min")
    power = operand_of(other(made_by(operand_of(difference.inputs[1], "Log"), "Add"), 1), "Exp")
    return s if s is not None and operand_of(operand_of(power, "Neg"), "Abs") is s else None


def _flat_softmax(value: ir.Value, op: Op | None) -> Scores | None:
    """Match a Softmax over the channels of (n, K, 1, 1), reshaped to (n, K)."""
    softmax = made_by(operand_of(value, "Flatten", "Reshape", "Squeeze"), "Softmax")
    z = None if softmax is None else softmax.inputs[0]
    k = n_columns(value)
    if op is None or softmax is None or z is None or z.shape is None or rank(value) != 2 or k is None:
        return None
    along = axis(softmax) % len(z.shape)
    if along == 0 or list(z.shape[1:]) != [k if i == along else 1 for i in range(1, len(z.shape))]:
        return None
    scores = op.Reshape(z, op.initializer(tensor([-1, k], name="row_of_scores")))
    scores.shape = value.shape
    return Scores(scores, Link.SOFTMAX)


def _opposites(value: ir.Value, op: Op | None) -> Scores | None:
    """Match Concat(-d, d), with columns possibly swapped or both negated: one decision value, stored twice."""
    value, order = _columns_in_order(value)
    pair = columns(value)
    if len(pair) != 2 or sorted(order) != [0, 1]:
        return None
    first, second = (pair[i] for i in order)
    if n_columns(second) != 1 or (negated(first) is not second and negated(second) is not first):
        return None
    return Scores(first if _is_below_zero_for_its_class(second) else skip(second), Link.IDENTITY)


def _columns_in_order(value: ir.Value) -> tuple[ir.Value, list[int]]:
    """Return a value of two columns and their order in `value`, reversed if both are negated."""
    order = [0, 1]
    source = negated(value)
    if source is not None and rank(source) == 2:
        order, value = [1, 0], skip(source)
    swap = made_by(value, "Gather")
    if swap is None or swap.inputs[0] is None or axis(swap) not in (1, -1):
        return value, order
    index = constant(swap.inputs[1])
    return swap.inputs[0], [] if index is None else [order[i] for i in index.reshape(-1).tolist() if i in (0, 1)]


def _is_below_zero_for_its_class(d: ir.Value) -> bool:
    """Whether the model predicts the class of column d if d <= 0.

    Each column of SVMClassifier is the score of the other class: its label is the second class if d <= 0, and d
    is the second column.
    """
    return any(node.op_type == "LessOrEqual" and equals(node.inputs[1], 0) for node in d.consumers())


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


# ------------------------------------------------- elementwise functions


def _logit(value: ir.Value, op: Op | None) -> ir.Value | None:
    """Return z if value is Sigmoid(z), also as Reciprocal(1 + Exp(-z)) or 1 / (1 + Exp(-z))."""
    sigmoid = made_by(value, "Sigmoid")
    if sigmoid is not None:
        return input_of(sigmoid)
    node = made_by(value, "Reciprocal", "Div")
    if node is None or (node.op_type == "Div" and not equals(node.inputs[0], 1)):
        return None
    z = negated(operand_of(other(made_by(node.inputs[-1], "Add"), 1), "Exp"))
    return None if z is None else skip(z)


def _logits_of_columns(value: ir.Value, op: Op | None) -> ir.Value | None:
    """Return Concat(z_1, ..., z_K) if value is Concat(Sigmoid(z_1), ..., Sigmoid(z_K))."""
    z = [_logit(skip(p), op) for p in columns(value)] if op is not None else []
    if op is None or not z or any(v is None or rank(v) != 2 for v in z):
        return None
    return op.Concat(*z, axis=1)


def _before_clip(value: ir.Value, op: Op | None) -> ir.Value | None:
    """Return s if value is (Clip(s, -1, 1) + 1) / 2."""
    half = made_by(value, "Div")
    clip = made_by(other(made_by(half.inputs[0], "Add"), 1), "Clip") if half is not None else None
    if half is None or clip is None or len(clip.inputs) != 3:
        return None
    numbers = zip((half.inputs[1], *clip.inputs[1:]), (2, -1, 1), strict=True)
    return input_of(clip) if all(equals(x, number) for x, number in numbers) else None


def _exponent(value: ir.Value, op: Op | None) -> ir.Value | None:
    node = made_by(value, "Exp")
    return None if node is None else input_of(node)


class _Function(NamedTuple):
    """An elementwise function p = f(s) and its links.

    ``argument`` returns s, given p. The three links belong to the outputs p, (1 - p, p) and p / sum(p); None if such an
    output has no link.
    """

    argument: Callable[[ir.Value, Op | None], ir.Value | None]
    link: Link | None
    of_pair: Link | None
    normalized: Link


_FUNCTIONS = (
    _Function(_logit, Link.SIGMOIDS, Link.SIGMOID, Link.NORMALIZED_SIGMOID),
    _Function(_logits_of_columns, Link.SIGMOIDS, None, Link.NORMALIZED_SIGMOID),
    _Function(_before_clip, None, Link.CLIPPED, Link.CLIPPED),
    _Function(_exponent, Link.EXP, None, Link.SOFTMAX),
)


def _function_behind(value: ir.Value, op: Op | None) -> tuple[_Function | None, ir.Value | None]:
    """Return the function that computes a value, and its argument."""
    return next(((f, z) for f in _FUNCTIONS if (z := f.argument(value, op)) is not None), (None, None))


# -------------------------------------------------------- affine functions


def is_affine_score(value: ir.Value) -> bool:
    """Whether a value is the result of a last layer x W + b that does not map probabilities to probabilities.

    The weights decide: averages have no negative weights. A layer that preserves the sum of a row has rows of
    W + b that sum to one or, as a linear model of indicators, rows of W that sum to zero and a b that sums to one.
    """
    layer = _last_layer(value)
    if layer is None:
        return False
    weights, bias = layer
    if min(weights.min(initial=0.0), bias.min(initial=0.0)) >= -ROUNDING:
        return False
    if weights.shape[-1] == 1:  # the hypercube of x must fit into [0, 1]
        low, high = (f(weights, 0).sum() + bias.sum() for f in (np.minimum, np.maximum))
        return not -ROUNDING <= low <= high <= 1 + ROUNDING
    rows = (weights + bias).sum(axis=-1)
    keeps = np.all(np.abs(rows - 1) <= ROUNDING)
    made = np.all(np.abs(weights.sum(axis=-1)) <= ROUNDING) and abs(bias.sum() - 1) <= ROUNDING
    return not (keeps or made)


def _last_layer(value: ir.Value) -> tuple[np.ndarray, np.ndarray] | None:
    """Return W (p, k) and b (k) if value is x W + b."""
    added: list[np.ndarray] = []
    value = skip(value)
    while (plus := made_by(value, "Add")) is not None:
        x, b = plus.inputs if constant(plus.inputs[0]) is None else plus.inputs[::-1]
        bias = constant(b)
        if x is None or bias is None:
            return None
        value = skip(x)
        added.append(bias.reshape(-1))
    node = made_by(value, "Gemm", "MatMul")
    layer = None if node is None else _of_product(node)
    return None if layer is None else (layer[0], sum(added[::-1], start=layer[1]))


def _of_product(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Return W and b of a MatMul or Gemm."""
    weights, bias = constant(node.inputs[1]), np.zeros(1)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = constant(node.inputs[2])  # type: ignore[assignment]
    if weights is None or bias is None or weights.ndim not in (1, 2):
        return None
    weights = (weights if weights.ndim == 2 else weights[:, None]) * node.attributes.get_float("alpha", 1.0)
    weights = weights.T if node.attributes.get_int("transB", 0) else weights
    return weights, bias.reshape(-1) * node.attributes.get_float("beta", 1.0)


# ---------------------------------------------------------------- a value


def n_scores(value: ir.Value, class_axis: int | None) -> int | None:
    """Return the number of scores per row or, with three or more axes, per position: 1 without a class axis."""
    if (rank(value) or 0) <= 2:
        return n_columns(value)
    k = 1 if class_axis is None else value.shape[class_axis]  # type: ignore[index]
    return k if isinstance(k, int) else None


def n_columns(value: ir.Value) -> int | None:
    """Return k for (n, k), 1 for (n,), None if unknown."""
    if rank(value) == 1:
        return 1
    k = value.shape[1] if rank(value) == 2 else None  # type: ignore[index]
    return k if isinstance(k, int) else None


#: Operators that keep the values of each row if they keep their number; Dropout unless in training mode.
_KEEPS_ROWS = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Dropout")

#: Operators that select columns.
_SELECTS = ("Slice", "Gather", "ArrayFeatureExtractor")


def skip(value: ir.Value) -> ir.Value:
    """Skip backward over nodes that preserve the values of each row."""
    while True:
        x = _same_rows(value)
        if x is None or not is_float(x) or n_columns(x) is None or n_columns(x) != n_columns(value):
            return value
        value = x


def _same_rows(value: ir.Value) -> ir.Value | None:
    """Return the operand whose values a node passes on."""
    maker = value.producer()
    if maker is not None and maker.op_type in _SELECTS:
        return _column(maker)
    node = made_by(value, *_KEEPS_ROWS)
    if node is None or (node.op_type == "Concat" and len(node.inputs) > 1):
        return None
    drops = node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None
    return None if drops else node.inputs[0]


def _column(node: ir.Node) -> ir.Value | None:
    """Return x if a node selects the single column x of Concat(..., x, ...)."""
    if n_columns(node.outputs[0]) != 1:
        return None
    x, index, *more = node.inputs
    along = scalar(more[1] if len(more) > 1 else None) if node.op_type == "Slice" else axis(node)
    parts = [] if x is None or along not in (1, -1) else columns(x)
    number = scalar(index)
    return parts[int(number)] if number is not None and {n_columns(part) for part in parts} == {1} else None


def input_of(node: ir.Node) -> ir.Value:
    """Return the first input of an elementwise node, or the value that this input copies."""
    (x, *_), (y,) = node.inputs, node.outputs
    if x.shape is None:  # type: ignore[union-attr]
        x.type, x.shape = y.type, y.shape  # type: ignore[union-attr]
    return skip(x)  # type: ignore[arg-type]


def other(node: ir.Node | None, number: float) -> ir.Value | None:
    """Return the operand x of a sum or a product of x and `number`."""
    if node is None:
        return None
    a, b = node.inputs
    return b if equals(a, number) else a if equals(b, number) else None


def negated(value: ir.Value | None) -> ir.Value | None:
    """Return x if value is -x, also as -1 * x."""
    node = made_by(value, "Neg", "Mul")
    if node is None:
        return None
    return node.inputs[0] if node.op_type == "Neg" else other(node, -1)
