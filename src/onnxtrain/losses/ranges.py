"""Bounds that hold for every input of a graph: the proof that a value holds probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from scipy.special import erf, expit

from onnxtrain.graph import constant, is_float, made_by, rank, static_shape

#: Tolerance for the sum of a row of fractions that sum to one exactly, in float32 with 1,000 columns.
ROUNDING = 1e-4


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

    @property
    def holds_weights(self) -> bool:
        """Whether a row holds the weights of an average."""
        return self.sums_to_one and self.low >= -ROUNDING

    def map(self, function: Callable[[float], float]) -> Range:
        """Return the range of an increasing function."""
        with np.errstate(all="ignore"):
            return _hull(float(function(self.low)), float(function(self.high)))

    def without_sum(self) -> Range:
        """Return the bounds only."""
        return Range(self.low, self.high)


def is_probability(value: ir.Value) -> bool:
    """Whether the graph proves that a value holds probabilities: it lies in [0, 1] or is normalized."""
    found = range_of(value)
    return found.is_unit or found.sums_to_one or complemented(value) is not None


def range_of(value: ir.Value) -> Range:
    """Return bounds of a value that hold for all inputs of the graph."""
    return _range(value, {}, _DEPTH)


#: Maps the position of an operand to its range.
_Operand: TypeAlias = Callable[[int], Range]
_Rule: TypeAlias = Callable[[ir.Node, _Operand], Range]

#: The greatest number of nodes between a value and the operands that are examined.
_DEPTH = 40


def _range(value: ir.Value | None, known: dict[ir.Value, Range], depth: int) -> Range:
    """Return the range of a value; each value is computed once."""
    if value is None:
        return Range()
    if value not in known:
        array = constant(value)
        if value.dtype is ir.DataType.BOOL:
            known[value] = _UNIT
        elif array is not None:
            known[value] = _of_array(array)
        else:
            known[value] = _of_result(value, known, depth - 1) if depth else Range()
    return known[value]


def _of_result(value: ir.Value, known: dict[ir.Value, Range], depth: int) -> Range:
    """Return the range of a value that is the output of a node."""
    node = value.producer()
    if node is None:
        return Range()
    x = before_normalization(value)
    if x is not None and _range(x, known, depth).low >= 0:
        return Range(0.0, 1.0, sums_to_one=True)
    if x is not None:  # Normalizer and LpNormalization divide by the sum of absolute values
        return Range(sums_to_one=True) if node.op_type == "Div" else _SIGNED
    rules = _RULES_OF_ML if node.domain == "ai.onnx.ml" else _RULES if node.domain in ("", "ai.onnx") else {}
    rule = rules.get(node.op_type)
    return Range() if rule is None else rule(node, lambda i: _range(node.inputs[i], known, depth))


# ------------------------------------------------------------------ patterns


def axis(node: ir.Node) -> int:
    """Return the attribute axis; the default is the last axis, except for Gather."""
    return node.attributes.get_int("axis", 0 if node.op_type == "Gather" else -1)


def operand_of(value: ir.Value | None, *op_types: str) -> ir.Value | None:
    """Return the first operand of the node that computes a value, if it is one of `op_types`."""
    node = made_by(value, *op_types)
    return None if node is None else node.inputs[0]


def equals(value: ir.Value | None, number: float) -> bool:
    """Whether a value is the constant `number`, or a scalar parameter in training that is assumed to equal it."""
    array = constant(value)
    if array is not None:
        return array.size == 1 and float(array.reshape(-1)[0]) == number
    return value is not None and value.is_graph_input() and static_shape(value) in ((), (1,)) and is_float(value)


def columns(value: ir.Value) -> list[ir.Value]:
    """Return the values whose columns are concatenated to a value (n, k); empty if no Concat computes it."""
    node = made_by(value, "Concat")
    return [x for x in node.inputs if x is not None] if node is not None and axis(node) in (1, -1) else []


def complemented(value: ir.Value) -> ir.Value | None:
    """Return p if a value is Concat(1 - p, p), whose columns sum to one for any p."""
    pair = columns(value)
    difference = made_by(pair[0], "Sub") if len(pair) == 2 else None
    if difference is None or difference.inputs[1] is not pair[1] or not equals(difference.inputs[0], 1):
        return None
    return pair[1]


#: Whether a node divides rows by the sum of their absolute values.
_NORMALIZES: Mapping[str, Callable[[ir.Node], bool]] = {
    "LpNormalization": lambda node: node.attributes.get_int("p", 2) == 1 and axis(node) in (1, -1),
    "Normalizer": lambda node: node.attributes.get_string("norm", "MAX") == "L1",
}

#: Operators between a sum and a division by it that keep its values.
_FORMS = ("Identity", "Cast", "Reshape", "Unsqueeze", "Expand")

#: The greatest number of nodes between a sum and a division by it.
_GUARD = 5

#: The largest number that is added to a sum, or compared with it, only as a guard against division by 0.
_NEARLY_ZERO = 1e-3


def before_normalization(value: ir.Value) -> ir.Value | None:
    """Return x if value is x / sum(x), with any guard against a sum of 0."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type in _NORMALIZES:
        return node.inputs[0] if _NORMALIZES[node.op_type](node) else None
    if made_by(value, "Div") is None:
        return None
    numerator, denominator = node.inputs
    guarded = made_by(numerator, "Add")  # a guard may add 1 to each column
    numerators = {numerator, *(_guarded(guarded) if guarded is not None else ())}
    return next((x for x in _summed(denominator) if x in numerators), None)


def _summed(value: ir.Value | None) -> Iterator[ir.Value]:
    """Yield the values whose columns are summed in the computation of `value`."""
    level = [value]
    for _ in range(_GUARD):
        nodes = [node for v in level if v is not None and (node := v.producer()) is not None]
        for node in nodes:
            if node.op_type in ("ReduceSum", "ReduceL1"):
                x = node.inputs[0]
                yield from filter(None, (x, operand_of(x, "Abs")))
        level = list(dict.fromkeys(x for node in nodes for x in _guarded(node)))


def _guarded(node: ir.Node) -> list[ir.Value | None]:
    """Return the operands that the output of a node equals, unless they are nearly 0."""
    match node.op_type, tuple(node.inputs):
        case "Add" | "Max", (a, b):
            return [x for x, other in ((a, b), (b, a)) if _is_guard(other)]
        case "Clip", (x, low) | (x, low, None):
            return [x] if _is_guard(low) else []
        case "Where", (condition, *choices):
            return choices if _tests_zero(condition) else []
        case op_type, (x, *_) if op_type in _FORMS:
            return [x]
    return []


def _is_guard(value: ir.Value | None) -> bool:
    """Whether a value is nearly 0, or 0 where a condition does not hold."""
    array = constant(value)
    if array is not None:
        return array.dtype.kind in "fiu" and bool(np.all(np.abs(array) <= _NEARLY_ZERO))
    if value is None or value.dtype is ir.DataType.BOOL:
        return value is not None
    product, form = made_by(value, "Mul"), made_by(value, *_FORMS)
    return any(_is_guard(x) for x in (product.inputs if product else form.inputs[:1] if form else ()))


def _tests_zero(condition: ir.Value | None) -> bool:
    """Whether a condition compares a value with a number that is nearly 0."""
    node = made_by(condition, "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", *_FORMS)
    if node is None:
        return False
    if node.op_type in ("Not", *_FORMS):
        x = node.inputs[0]
        return _tests_zero(x) or (x is not None and x.dtype is not ir.DataType.BOOL)  # Cast to BOOL: x != 0
    return any(_is_guard(x) for x in node.inputs)


def _added_to(value: ir.Value | None) -> tuple[ir.Value | None, ...]:
    """Return the operands of a sum of two values."""
    node = made_by(value, "Add")
    return () if node is None else tuple(node.inputs)


# ----------------------------------------------------- operators, elementwise


_UNIT, _SIGNED = Range(0.0, 1.0), Range(-1.0, 1.0)


def _hull(*ends: float) -> Range:
    return Range() if any(map(math.isnan, ends)) else Range(min(ends), max(ends))


def _times(a: float, b: float) -> float:
    return 0.0 if 0.0 in (a, b) else a * b  # 0 times an unbounded operand is 0: no operand is infinite


def _of_array(array: np.ndarray) -> Range:
    if array.dtype.kind not in "fiub" or not array.size:
        return Range()
    sums = array.ndim > 0 and bool(np.all(np.abs(array.sum(axis=-1) - 1) <= ROUNDING))
    return Range(float(array.min()), float(array.max()), sums)


def _increasing(function: Callable[[float], float]) -> _Rule:
    return lambda node, x: x(0).map(function)


def _known(low: float, high: float) -> _Rule:
    return lambda node, x: Range(low, high)


def _of_sum(node: ir.Node, x: _Operand) -> Range:
    parts = [x(i) for i in range(len(node.inputs))]
    return _hull(sum(p.low for p in parts), sum(p.high for p in parts))


def _of_difference(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    return _hull(a.low - b.high, a.high - b.low)


def _of_product(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    if node.inputs[0] is node.inputs[1]:
        return _of_square(a)
    return _hull(*(_times(p, q) for p in (a.low, a.high) for q in (b.low, b.high)))


def _of_square(a: Range) -> Range:
    ends = [_times(p, p) for p in (a.low, a.high)]
    return Range(0.0 if a.low <= 0 <= a.high else min(ends), max(ends))


def _of_quotient(node: ir.Node, x: _Operand) -> Range:
    a, b = x(0), x(1)
    if b.low <= 0 <= b.high:
        return Range()
    if b.low >= 0 and node.inputs[0] in [operand_of(term, "Abs") for term in _added_to(node.inputs[1])]:
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
    given = [constant(bound) for bound in node.inputs[1:]] + [None, None]
    low, high = (
        end if bound is None else float(bound.reshape(-1)[0])
        for bound, end in zip(given, (-math.inf, math.inf), strict=False)
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


# ------------------------------------------------------------ operators, rows


def _of_softmax(node: ir.Node, x: _Operand) -> Range:
    last = rank(node.outputs[0])
    return Range(0.0, 1.0, axis(node) == -1 or (last is not None and axis(node) == last - 1))


def _of_length(node: ir.Node, x: _Operand) -> Range:
    """Return the range of rows divided by their length or their largest element."""
    return _UNIT if x(0).low >= 0 else _SIGNED


def _same(node: ir.Node, x: _Operand) -> Range:
    return x(0)


def _moved(node: ir.Node, x: _Operand) -> Range:
    """Return the range of elements of the first operand, or of averages of them."""
    return x(0).without_sum()


def _of_gather(node: ir.Node, x: _Operand) -> Range:
    before = None if node.inputs[0] is None else rank(node.inputs[0])
    whole = before is not None and axis(node) not in (-1, before - 1)
    return x(0) if whole else x(0).without_sum()  # whole rows of a table, such as the leaves of a tree


def _of_new_shape(node: ir.Node, x: _Operand) -> Range:
    widths = [v.shape[-1] if v is not None and v.shape else None for v in (node.inputs[0], node.outputs[0])]
    return x(0) if isinstance(widths[0], int) and widths[0] == widths[1] else x(0).without_sum()


def _of_combination(node: ir.Node, x: _Operand) -> Range:
    """Return the range of elements of several operands, or of averages of them."""
    parts = [x(i) for i in range(node.op_type == "Where", len(node.inputs))]
    sums = node.op_type in ("Mean", "Where") and all(p.sums_to_one for p in parts)
    return Range(min(p.low for p in parts), max(p.high for p in parts), sums)


def _of_total(node: ir.Node, x: _Operand) -> Range:
    """Return the range of a sum over axes of known length."""
    before, axes = node.inputs[0], constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if before is None or before.shape is None or axes is None:
        return Range()
    lengths = [before.shape[int(i)] for i in axes.reshape(-1)]
    known = [n for n in lengths if isinstance(n, int)]
    if len(known) < len(lengths):
        return Range(0.0) if x(0).low >= 0 else Range()
    n = math.prod(known)
    return _hull(_times(n, x(0).low), _times(n, x(0).high))


def _of_products(node: ir.Node, x: _Operand) -> Range:
    """Return the range of products over axes."""
    a = x(0)
    return _UNIT if a.is_unit else Range(0.0) if a.low >= 0 else Range()


def _of_matrix_product(node: ir.Node, x: _Operand) -> Range:
    """Return the range of averages: of the left operand's columns, or of the right's rows."""
    if node.op_type == "Gemm" and not _is_plain(node):
        return Range()
    weights = constant(node.inputs[1])
    if weights is not None and _averages(weights):
        return x(0).without_sum()
    if weights is not None and (weights.min(initial=0.0) < 0 or not x(1).sums_to_one):
        return Range()
    return x(1) if x(0).holds_weights else Range()


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


def _of_einsum(node: ir.Node, x: _Operand) -> Range:
    """Return the range of averages if the summed last axis of one of two operands holds their weights."""
    equation = node.attributes.get_string("equation", "").replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != 2:
        return Range()
    summed = set(terms[0] + terms[1]) - set(out)
    for i, j in ((0, 1), (1, 0)):
        if summed == {terms[i][-1]} and summed <= set(terms[j]) and x(i).holds_weights:
            kept = x(j).sums_to_one and out[-1:] == terms[j][-1]
            return Range(x(j).low, x(j).high, kept)
    return Range()


_RULES: Mapping[str, _Rule] = {
    **{name: _increasing(f) for name, f in {
        "Atan": math.atan,
        "Erf": erf,
        "Exp": np.exp,
        "Log": lambda x: np.log(max(x, 0.0)),
        "Relu": lambda x: max(x, 0.0),
        "Sigmoid": expit,
        "Softplus": lambda x: np.logaddexp(0.0, x),
        "Sqrt": lambda x: math.sqrt(max(x, 0.0)),
        "Tanh": np.tanh,
    }.items()},
    **dict.fromkeys(("Softsign", "Sin", "Cos"), _known(-1.0, 1.0)),
    **dict.fromkeys(("ReduceSumSquare", "ReduceL2"), _known(0.0, math.inf)),
    "HardSigmoid": _known(0.0, 1.0),
    "LogSoftmax": _known(-math.inf, 0.0),
    "Softmax": _of_softmax,
    "LpNormalization": _of_length,
    **dict.fromkeys(("Identity", "Cast", "Dropout"), _same),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice"), _of_new_shape),
    **dict.fromkeys(("Transpose", "Split", "GatherElements", "GatherND", "MaxPool", "GlobalAveragePool"), _moved),
    **dict.fromkeys(("GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceMin"), _moved),
    "Gather": _of_gather,
    **dict.fromkeys(("Concat", "Max", "Min", "Mean", "Where"), _of_combination),
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
    "ReduceProd": _of_products,
    "MatMul": _of_matrix_product,
    "Gemm": _of_matrix_product,
    "Einsum": _of_einsum,
}  # fmt: skip


def _of_classifier(node: ir.Node, x: _Operand) -> Range:
    made = node.attributes.get_string("post_transform", "NONE") not in ("NONE", "")
    return _UNIT if made or "prob_a" in node.attributes else Range()


_RULES_OF_ML: Mapping[str, _Rule] = {
    "Normalizer": _of_length,
    "ArrayFeatureExtractor": _moved,
    "TreeEnsembleClassifier": _known(0.0, 1.0),
    "LinearClassifier": _of_classifier,
    "SVMClassifier": _of_classifier,
}
