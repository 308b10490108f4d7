"""Decide whether a value holds probabilities: proven by its range, disproven by an affine last layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from scipy.special import erf, expit

from onnxtrain.graph import constant, is_float, made_by, rank
from onnxtrain.losses.link.walk import axis, equals, n_columns

#: Tolerance for the sum of a row of fractions that sum to one exactly, in float32 with 1,000 columns.
ROUNDING = 1e-4


def before_normalization(value: ir.Value) -> ir.Value | None:
    """Return x if value is x / sum(x), with any guard against a sum of 0."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "LpNormalization":
        p = node.attributes.get("p")
        return node.inputs[0] if p is not None and p.value == 1 and axis(node) in (1, -1) else None
    if node.op_type == "Normalizer":
        norm = node.attributes.get("norm")
        return node.inputs[0] if norm is not None and norm.value == "L1" else None
    if made_by(value, "Div") is None:
        return None
    numerator, denominator = node.inputs
    return next((x for x in _summed(denominator, 5) if x is numerator or x in _added_to(numerator)), None)


def _summed(value: ir.Value | None, depth: int) -> Iterator[ir.Value]:
    """Yield the values whose columns are summed to compute `value`."""
    node = None if value is None or depth == 0 else value.producer()
    if node is None or not node.inputs:
        return
    (x, *_) = node.inputs
    if node.op_type in ("ReduceSum", "ReduceL1") and x is not None:
        yield x
        absolute = made_by(x, "Abs")
        if absolute is not None:
            yield absolute.inputs[0]  # type: ignore[misc]
    elif node.op_type in ("Where", "Max", "Clip", "Add", "Identity", "Cast", "Reshape", "Unsqueeze", "Expand"):
        for operand in node.inputs:
            yield from _summed(operand, depth - 1)


def _added_to(value: ir.Value | None) -> tuple[ir.Value | None, ...]:
    """Return the operands of a sum: a guard adds 1 to each column if all are 0."""
    node = made_by(value, "Add")
    return () if node is None else tuple(node.inputs)


# ------------------------------------------------------------------ proof


@dataclass(frozen=True)
class Range:
    """Bounds of the elements of a value and whether its last axis sums to one."""

    low: float = -math.inf
    high: float = math.inf
    sums_to_one: bool = False

    @property
    def is_unit(self) -> bool:
        """Whether every element lies between 0 and 1."""
        return self.low >= -ROUNDING and self.high <= 1 + ROUNDING

    def map(self, function: Callable[[float], float]) -> Range:
        """Return the range of an increasing function."""
        with np.errstate(all="ignore"):
            return _hull(float(function(self.low)), float(function(self.high)))

    def without_sum(self) -> Range:
        """Return the bounds only."""
        return Range(self.low, self.high)


#: Maps the position of an operand to its range.
_Operand: TypeAlias = Callable[[int], Range]

_UNIT, _SIGNED = Range(0.0, 1.0), Range(-1.0, 1.0)

#: Increasing functions.
_INCREASING: Mapping[str, Callable[[float], float]] = {
    "Atan": math.atan,
    "Erf": erf,
    "Exp": np.exp,
    "Log": lambda x: np.log(max(x, 0.0)),
    "Relu": lambda x: max(x, 0.0),
    "Sigmoid": expit,
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Sqrt": lambda x: math.sqrt(max(x, 0.0)),
    "Tanh": np.tanh,
}

#: Ranges that do not depend on the operand.
_KNOWN: Mapping[str, Range] = {
    "HardSigmoid": _UNIT,
    "Softsign": _SIGNED,
    "Sin": _SIGNED,
    "Cos": _SIGNED,
    "LogSoftmax": Range(-math.inf, 0.0),
    "ReduceSumSquare": Range(0.0),
    "ReduceL2": Range(0.0),
}

#: Operators whose results consist of elements of the first operand, or averages of them.
_MOVES = frozenset(
    [
        *("Identity", "Cast", "Dropout", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Tile"),
        *("Slice", "Split", "Gather", "GatherElements", "GatherND", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"),
        *("ReduceMean", "ReduceMax", "ReduceMin"),
    ]
)

#: Those of them that preserve the last axis.
_KEEPS_ROWS = frozenset({"Identity", "Cast", "Dropout"})

_COMBINES = frozenset({"Concat", "Max", "Min", "Mean", "Where"})


def is_probability(value: ir.Value) -> bool:
    """Whether the graph proves that a value holds probabilities: it lies in [0, 1] or is normalized."""
    found = range_of(value)
    return found.is_unit or found.sums_to_one or _is_complement(value)


def range_of(value: ir.Value) -> Range:
    """Return bounds of a value that hold for all inputs of the graph."""
    return _Ranges().of(value)


class _Ranges:
    """The ranges of the values of a graph, each computed once."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Range] = {}

    def of(self, value: ir.Value | None, depth: int = 40) -> Range:
        if value is None:
            return Range()
        if value.dtype is ir.DataType.BOOL:
            return _UNIT
        if value not in self._known:
            array = constant(value)
            found = _of_array(array) if array is not None else self._computed(value, depth) if depth else None
            self._known[value] = Range() if found is None else found
        return self._known[value]

    def _computed(self, value: ir.Value, depth: int) -> Range | None:
        node = value.producer()
        if node is None:
            return None

        def operand(i: int) -> Range:
            return self.of(node.inputs[i], depth - 1)

        x = before_normalization(value)
        if x is not None:
            if self.of(x, depth - 1).low >= 0:
                return Range(0.0, 1.0, sums_to_one=True)
            # Normalizer and LpNormalization divide by the sum of absolute values
            return Range(sums_to_one=True) if node.op_type == "Div" else _SIGNED
        return _of_classifier(node, operand) if node.domain == "ai.onnx.ml" else _of_node(node, operand)


def _of_array(array: np.ndarray) -> Range:
    if array.dtype.kind not in "fiub" or not array.size:
        return Range()
    sums = array.ndim > 0 and bool(np.all(np.abs(array.sum(axis=-1) - 1) <= ROUNDING))
    return Range(float(array.min()), float(array.max()), sums)


def _of_classifier(node: ir.Node, x: _Operand) -> Range | None:
    """Return the range of the output of an ai.onnx.ml operator."""
    if node.op_type == "Normalizer":
        return _of_length(node, x)
    if node.op_type == "ArrayFeatureExtractor":
        return x(0).without_sum()
    if not node.op_type.endswith("Classifier"):
        return None
    transform = node.attributes.get("post_transform")
    made = transform is not None and transform.value not in ("NONE", "")
    return _UNIT if made or node.op_type == "TreeEnsembleClassifier" or node.attributes.get("prob_a") else None


def _of_length(node: ir.Node, x: _Operand) -> Range:
    """Return the range of rows divided by their length or their largest element."""
    return _UNIT if x(0).low >= 0 else _SIGNED


def _of_node(node: ir.Node, x: _Operand) -> Range | None:
    kind = node.op_type if node.domain in ("", "ai.onnx") else ""
    if kind == "Softmax":
        last = rank(node.outputs[0])
        return Range(0.0, 1.0, axis(node) == -1 or (last is not None and axis(node) == last - 1))
    if kind in _KNOWN:
        return _KNOWN[kind]
    if kind in _INCREASING:
        return x(0).map(_INCREASING[kind])
    if kind in _MOVES:
        return _moved(node, x(0))
    if kind in _COMBINES:
        parts = [x(i) for i in range(kind == "Where", len(node.inputs))]
        low, high = min(p.low for p in parts), max(p.high for p in parts)
        return Range(low, high, kind in ("Mean", "Where") and all(p.sums_to_one for p in parts))
    rule = _ARITHMETIC.get(kind)
    return None if rule is None else rule(node, x)


def _moved(node: ir.Node, x: Range) -> Range:
    (before, *_), (after, *_) = node.inputs, node.outputs
    if node.op_type in _KEEPS_ROWS:
        return x
    ranks = rank(before) if before is not None else None, rank(after)
    if node.op_type == "Gather" and ranks[0] is not None and axis(node) not in (-1, ranks[0] - 1):
        return x  # whole rows of a table, such as the leaves of a tree
    same = node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice")
    width = None if before is None or not before.shape else before.shape[-1]
    kept = same and isinstance(width, int) and bool(after.shape) and after.shape[-1] == width  # type: ignore[index]
    return x if kept else x.without_sum()


def _hull(*ends: float) -> Range:
    known = [end for end in ends if not math.isnan(end)]
    return Range(min(known), max(known)) if len(known) == len(ends) else Range()


def _of_sum(node: ir.Node, x: _Operand) -> Range:
    parts = [x(i) for i in range(len(node.inputs))]
    return _hull(sum(p.low for p in parts), sum(p.high for p in parts))


def _of_difference(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    return _hull(a.low - b.high, a.high - b.low)


def _times(a: float, b: float) -> float:
    return 0.0 if 0.0 in (a, b) else a * b  # 0 times an unbounded operand is 0: no operand is infinite


def _of_product(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    return _hull(*(_times(p, q) for p in (a.low, a.high) for q in (b.low, b.high)))


def _of_quotient(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    if b.low <= 0 <= b.high:
        return Range()
    added = [made_by(term, "Abs") for term in _added_to(node.inputs[1])]
    if b.low >= 0 and any(absolute is not None and absolute.inputs[0] is node.inputs[0] for absolute in added):
        return _SIGNED  # x / (1 + |x|)
    return _hull(*(_times(p, 1 / q) for p in (a.low, a.high) for q in (b.low, b.high)))


def _of_reciprocal(node: ir.Node, x: _Operand) -> Range:
    a = x(0)
    return Range() if a.low <= 0 <= a.high else _hull(1 / a.low, 1 / a.high)


def _of_negative(node: ir.Node, x: _Operand) -> Range:
    return Range(-x(0).high, -x(0).low)


def _of_absolute(node: ir.Node, x: _Operand) -> Range:
    a = x(0)
    return Range(max(a.low, -a.high, 0.0), max(-a.low, a.high))


def _of_clip(node: ir.Node, x: _Operand) -> Range:
    bounds = [constant(bound) for bound in (*node.inputs[1:3], None, None)[:2]]
    low, high = (
        end if b is None else float(b.reshape(-1)[0]) for b, end in zip(bounds, (-math.inf, math.inf), strict=True)
    )
    a = x(0)
    return a if a.low >= low and a.high <= high else a.map(lambda v: min(max(v, low), high))


def _of_power(node: ir.Node, x: _Operand) -> Range:
    exponent = constant(node.inputs[1])
    if exponent is None or exponent.size != 1:
        return Range()
    p, a = float(exponent.reshape(-1)[0]), x(0)
    if a.low >= 0 and p > 0:
        return a.map(lambda v: v**p)
    return Range(0.0) if p % 2 == 0 else Range()


def _of_matrix_product(node: ir.Node, x: _Operand) -> Range:
    """Return the range of averages: of the right operand's rows, or of the left's, weighted by columns."""
    if node.op_type == "Gemm" and not _is_plain(node):
        return Range()
    weights = constant(node.inputs[1])
    if weights is not None and not _averages(weights):
        return Range() if not _of_array(weights).sums_to_one or weights.min() < 0 else _weighted(x(0), x(1))
    return x(0).without_sum() if weights is not None and weights.ndim else _weighted(x(0), x(1))


def _weighted(weights: Range, rows: Range) -> Range:
    """Return the range of averages of rows."""
    return rows if weights.sums_to_one and weights.low >= -ROUNDING else Range()


def _averages(weights: np.ndarray) -> bool:
    """Whether each column holds the weights of an average."""
    along = weights.sum(axis=-2) if weights.ndim > 1 else weights.sum(keepdims=True)
    return bool(weights.min(initial=0.0) >= 0 and np.all(np.abs(along - 1) <= ROUNDING))


def _is_plain(node: ir.Node) -> bool:
    """Whether a Gemm is the plain product of its operands."""
    given = {name: a.value for name, a in node.attributes.items()}
    bias = constant(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1)
    plain = not given.get("transA") and not given.get("transB") and given.get("alpha", 1.0) == 1
    return plain and bias is not None and not np.any(bias)


def _of_total(node: ir.Node, x: _Operand) -> Range:
    """Return the range of a sum over axes of known length."""
    before, axes = node.inputs[0], constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if before is None or before.shape is None or axes is None:
        return Range()
    lengths = [before.shape[int(i)] for i in axes.reshape(-1)]
    if not all(isinstance(n, int) for n in lengths):
        return Range(0.0) if x(0).low >= 0 else Range()
    n = math.prod(length for length in lengths if isinstance(length, int))
    return _hull(_times(n, x(0).low), _times(n, x(0).high))


def _of_einsum(node: ir.Node, x: _Operand) -> Range:
    """Return the range of averages if the summed last axis of one of two operands holds their weights."""
    equation = str(node.attributes["equation"].value).replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != 2:
        return Range()
    for i, j in ((0, 1), (1, 0)):
        summed = set(terms[0] + terms[1]) - set(out)
        if summed == {terms[i][-1]} and summed <= set(terms[j]) and x(i).sums_to_one and x(i).low >= -ROUNDING:
            kept = x(j).sums_to_one and out[-1:] == terms[j][-1]
            return Range(x(j).low, x(j).high, kept)
    return Range()


_ARITHMETIC: Mapping[str, Callable[[ir.Node, _Operand], Range]] = {
    "Add": _of_sum,
    "Sum": _of_sum,
    "Sub": _of_difference,
    "Mul": _of_product,
    "Div": _of_quotient,
    "Reciprocal": _of_reciprocal,
    "Neg": _of_negative,
    "Abs": _of_absolute,
    "Clip": _of_clip,
    "Pow": _of_power,
    "ReduceSum": _of_total,
    "MatMul": _of_matrix_product,
    "Gemm": _of_matrix_product,
    "Einsum": _of_einsum,
    "LpNormalization": _of_length,
}


def _is_complement(value: ir.Value) -> bool:
    """Whether a value is Concat(1 - p, p), whose columns sum to one for any p."""
    node = made_by(value, "Concat")
    if node is None or len(node.inputs) != 2:
        return False
    complement = made_by(node.inputs[0], "Sub")
    return complement is not None and complement.inputs[1] is node.inputs[1] and equals(complement.inputs[0], 1)


# --------------------------------------------------------------- disproof


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
    node = made_by(value, "Gemm", "MatMul", "Add", "Identity", "Cast", "Reshape", "Flatten", "Squeeze")
    if node is None:
        return None
    if node.op_type in ("Identity", "Cast", "Reshape", "Flatten", "Squeeze"):
        (x, *_) = node.inputs
        same = x is not None and is_float(x) and n_columns(x) == n_columns(value) is not None
        return _last_layer(x) if same and x is not None else None
    if node.op_type == "Add":
        found = [(_last_layer(x), constant(b)) for x, b in (node.inputs, node.inputs[::-1]) if x is not None]
        pairs = [(layer, b) for layer, b in found if layer is not None and b is not None]
        return (pairs[0][0][0], pairs[0][0][1] + pairs[0][1].reshape(-1)) if pairs else None
    weights = constant(node.inputs[1])
    if weights is None or weights.ndim > 2:
        return None
    weights = weights.reshape(len(weights), -1)
    given = {name: a.value for name, a in node.attributes.items()}
    weights = (weights.T if given.get("transB") else weights) * given.get("alpha", 1.0)
    bias = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
    return None if bias is None else (weights, bias.reshape(-1) * given.get("beta", 1.0))
