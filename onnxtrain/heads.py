"""What an output ends in: the scores behind probabilities, the logarithm behind a mean.

A loss of probabilities is computed from what enters Softmax or Sigmoid: the
probability of a score of 1000 is 1 in floating point, its logarithm 0, and the
gradient is lost, while the score still tells how far it is from the label.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.graph import constant, describe, find, is_float, rank
from onnxtrain.registry import did_you_mean


class Link(enum.Enum):
    """How an output follows from the scores behind it."""

    IDENTITY = "identity"  #: the output is the scores
    SIGMOID = "sigmoid"  #: s (n, 1), the probability of class 1 of two
    SOFTMAX = "softmax"  #: s (n, K)
    NORMALIZED_SIGMOID = "normalized_sigmoid"  #: s (n, K), Sigmoid of each divided by their sum
    EXP = "exp"  #: the output is a mean, its logarithm behind it
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
    value = _skip(value)
    for pattern in (_softmax, _sigmoid, _exp, _two_columns, _opposites, _normalized):
        found = pattern(value, op)
        if found is not None:
            return found
    return Scores(value, Link.PROBABILITY if _is_probability(value) else Link.IDENTITY)


def choose_output(model: ir.Model, output: int | str | None = None) -> ir.Value:
    """Return the output to train: by position, by name, or the only one that holds numbers.

    Parameters
    ----------
    model : onnx_ir.Model
    output : int, str or None
        None: the only output of floats, so of (label, probabilities) the second.

    Raises
    ------
    ModelError
        There is no such output, it does not hold floats, or there are several
        to choose from.
    """
    outputs = list(model.graph.outputs)
    if isinstance(output, str):
        chosen = find(outputs, output, "output")
    elif output is None:
        floats = [v for v in outputs if is_float(v)]
        if len(floats) != 1:
            candidates = ", ".join(describe(v) for v in floats or outputs)
            problem = "None of the outputs holds floats" if not floats else "There are several outputs to choose from"
            raise ModelError(f"{problem}: {candidates}. Name one: {[v.name for v in floats or outputs]}.")
        chosen = floats[0]
    elif isinstance(output, (int, np.integer)) and not isinstance(output, bool):
        if not -len(outputs) <= output < len(outputs):
            raise ModelError(f"There is no output {output}: the model has {len(outputs)}.")
        chosen = outputs[output]
    else:
        raise ModelError(f"An output is a name, a position or None, got {output!r}. {did_you_mean(output, _names(outputs))}")
    if not is_float(chosen):
        raise ModelError(f"The output {describe(chosen)} does not hold floats; a loss needs floats.")
    return chosen


def _names(values: list[ir.Value]) -> Iterator[str]:
    return (str(v.name) for v in values)


# --------------------------------------------------------------------- look


def _made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node of ai.onnx that makes a value, if it is one of `op_types`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types else None


def n_columns(value: ir.Value) -> int | None:
    """Return k of (n, k), 1 for (n,), None where it is not known."""
    if rank(value) == 1:
        return 1
    k = value.shape[1] if rank(value) == 2 else None  # type: ignore[index]
    return k if isinstance(k, int) else None


def _skip(value: ir.Value) -> ir.Value:
    """Go back over nodes that leave the numbers of each row as they are."""
    while True:
        x = _column(value)
        if x is None:
            node = _made_by(value, "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat")
            if node is None or node.op_type == "Concat" and len(node.inputs) > 1:
                return value
            x = node.inputs[0]
        if x is None or not is_float(x) or n_columns(x) is None or n_columns(x) != n_columns(value):
            return value
        value = x


def _column(value: ir.Value) -> ir.Value | None:
    """Return x where value is taken from Concat(..., x, ...), a column each."""
    node = value.producer()
    if node is None or node.op_type not in ("Slice", "Gather", "ArrayFeatureExtractor"):
        return None
    concat = _made_by(node.inputs[0], "Concat")
    index = constant(node.inputs[1])
    axis = constant(node.inputs[3]) if node.op_type == "Slice" and len(node.inputs) > 3 else _axis(node)
    if concat is None or index is None or index.size != 1 or n_columns(value) != 1 or axis not in (1, -1):
        return None
    if any(x is None or n_columns(x) != 1 for x in concat.inputs):
        return None
    return concat.inputs[int(index.reshape(-1)[0])]


def _axis(node: ir.Node) -> int:
    """Return the attribute axis; where it is not set the last one is meant, but for Gather."""
    found = node.attributes.get("axis")
    return int(found.value) if found is not None else 0 if node.op_type == "Gather" else -1


def _input(node: ir.Node) -> ir.Value:
    """Return the input of a node that acts on each element, or what it is a copy of."""
    (x,), (y,) = node.inputs, node.outputs
    if x.shape is None:  # type: ignore[union-attr]
        x.type, x.shape = y.type, y.shape  # type: ignore[union-attr]
    return _skip(x)  # type: ignore[arg-type]


def _equals(value: ir.Value | None, number: float) -> bool:
    array = constant(value)
    return array is not None and array.size == 1 and float(array.reshape(-1)[0]) == number


def _other(node: ir.Node, number: float) -> ir.Value | None:
    """Return the operand x of a sum or product of x and `number`."""
    a, b = node.inputs
    return b if _equals(a, number) else a if _equals(b, number) else None


# ----------------------------------------------------------------- patterns


def _softmax(value: ir.Value, op: Any) -> Scores | None:
    node = _made_by(value, "Softmax")
    if node is None or _axis(node) not in (-1, 1) or rank(value) != 2:
        return None
    return Scores(_input(node), Link.SOFTMAX)


def _exp(value: ir.Value, op: Any) -> Scores | None:
    node = _made_by(value, "Exp")
    return None if node is None else Scores(_input(node), Link.EXP)


def _sigmoid(value: ir.Value, op: Any) -> Scores | None:
    z = _logit(value)
    if z is None:
        return None
    return Scores(z, Link.SIGMOID if n_columns(z) == 1 else Link.NORMALIZED_SIGMOID)


def _two_columns(value: ir.Value, op: Any) -> Scores | None:
    """Concat(1 - p, p), p the Sigmoid of z."""
    node = _made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or _axis(node) not in (1, -1):
        return None
    q, p = node.inputs
    complement = _made_by(q, "Sub")
    if p is None or complement is None or complement.inputs[1] is not p or not _equals(complement.inputs[0], 1):
        return None
    z = _logit(_skip(p))
    return None if z is None or n_columns(z) != 1 else Scores(z, Link.SIGMOID)


def _opposites(value: ir.Value, op: Any) -> Scores | None:
    """Concat(-d, d): one decision value, written twice."""
    node = _made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or n_columns(value) != 2:
        return None
    minus_d, d = node.inputs
    return None if d is None or _negated(minus_d) is not d else Scores(_skip(d), Link.IDENTITY)


def _normalized(value: ir.Value, op: Any) -> Scores | None:
    """Numbers of a row divided by their sum: sigmoids, exponentials, or what sums to one already."""
    x = _before_normalization(value)
    if x is None:
        return None
    x = _skip(x)
    exponential = _made_by(x, "Exp")
    if exponential is not None:
        return Scores(_input(exponential), Link.SOFTMAX)
    for pattern in (_softmax, _two_columns):
        found = pattern(x, op)
        if found is not None:
            return found
    z = _logit(x) or _logit_columns(x, op)
    return Scores(value, Link.PROBABILITY) if z is None else Scores(z, Link.NORMALIZED_SIGMOID)


def _logit(value: ir.Value) -> ir.Value | None:
    """Return z where value is Sigmoid(z), also as Reciprocal(1 + Exp(-z)) or 1 / (1 + Exp(-z))."""
    node = _made_by(value, "Sigmoid", "Reciprocal", "Div")
    if node is None:
        return None
    if node.op_type == "Sigmoid":
        return _input(node)
    if node.op_type == "Div" and not _equals(node.inputs[0], 1):
        return None
    plus = _made_by(node.inputs[-1], "Add")
    exponential = _made_by(None if plus is None else _other(plus, 1), "Exp")
    z = None if exponential is None else _negated(exponential.inputs[0])
    return None if z is None else _skip(z)


def _logit_columns(value: ir.Value, op: Any) -> ir.Value | None:
    """Return Concat(z_1, ..., z_K) where value is Concat(Sigmoid(z_1), ..., Sigmoid(z_K))."""
    node = _made_by(value, "Concat")
    if node is None or op is None or _axis(node) not in (1, -1):
        return None
    z = [_logit(_skip(p)) if p is not None else None for p in node.inputs]
    if any(v is None or rank(v) != 2 for v in z):
        return None
    return op.Concat(*z, axis=1)


def _negated(value: ir.Value | None) -> ir.Value | None:
    """Return x where value is -x, also as -1 * x."""
    node = _made_by(value, "Neg", "Mul")
    if node is None:
        return None
    return node.inputs[0] if node.op_type == "Neg" else _other(node, -1)


def _before_normalization(value: ir.Value) -> ir.Value | None:
    """Return x where value is x / sum(x), whatever guards against a sum of 0."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "LpNormalization":
        p = node.attributes.get("p")
        return node.inputs[0] if p is not None and p.value == 1 and _axis(node) in (1, -1) else None
    if node.op_type == "Normalizer":
        norm = node.attributes.get("norm")
        return node.inputs[0] if norm is not None and norm.value == "L1" else None
    if _made_by(value, "Div") is None:
        return None
    numerator, denominator = node.inputs
    return next((x for x in _summed(denominator, 5) if x is numerator or x in _added_to(numerator)), None)


def _summed(value: ir.Value | None, depth: int) -> Iterator[ir.Value]:
    """Yield the values that are summed over columns on the way to `value`."""
    node = None if value is None or depth == 0 else value.producer()
    if node is None:
        return
    (x, *_) = node.inputs
    if node.op_type in ("ReduceSum", "ReduceL1") and x is not None:
        absolute = _made_by(x, "Abs")
        yield x if absolute is None else absolute.inputs[0]  # type: ignore[misc]
    elif node.op_type in ("Where", "Max", "Clip", "Add", "Identity", "Cast", "Reshape", "Unsqueeze", "Expand"):
        for operand in node.inputs:
            yield from _summed(operand, depth - 1)


def _added_to(value: ir.Value | None) -> tuple[ir.Value | None, ...]:
    """Return the operands of a sum: a guard adds 1 to each column where all are 0."""
    node = _made_by(value, "Add")
    return () if node is None else tuple(node.inputs)


# ------------------------------------------------------------ probabilities

_BOUNDED = frozenset({"Sigmoid", "Softmax", "HardSigmoid", "LpNormalization", "Clip", "Exp", "Normalizer"})
_MIXES = frozenset({"Concat", "Slice", "Gather", "Sub", "Mul", "Div", "Add", "Sum", "Mean", "ReduceMean", "ReduceSum",
                    "Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Where", "ArrayFeatureExtractor"})


def _is_probability(value: ir.Value, depth: int = 12) -> bool:
    """Whether a value is made of what lies between 0 and 1: means, products, columns of it."""
    node = value.producer()
    if node is None or depth == 0:
        return False
    if node.op_type in _BOUNDED or _before_normalization(value) is not None:
        return True
    if node.domain == "ai.onnx.ml" and node.op_type.endswith("Classifier"):
        return _classifier_is_probability(node)
    if node.op_type not in _MIXES:
        return False
    varying = [x for x in node.inputs if x is not None and (x.dtype is None or is_float(x)) and constant(x) is None]
    return bool(varying) and all(_is_probability(x, depth - 1) for x in varying)


def _classifier_is_probability(node: ir.Node) -> bool:
    transform = node.attributes.get("post_transform")
    if transform is not None and transform.value not in ("NONE", ""):
        return True
    return node.op_type == "TreeEnsembleClassifier" or bool(node.attributes.get("prob_a"))
