"""Whether a value holds probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import constant, is_float
from onnxtrain.heads.walk import axis, equals, made_by

_BOUNDED = {"Sigmoid", "Softmax", "HardSigmoid", "LpNormalization", "Clip", "Exp", "Normalizer"}
_MOVES = {"Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather"}
_MIXES = {"Sub", "Mul", "Div", "Add", "Sum", "Mean", "ReduceMean", "ReduceSum", "Where", "ArrayFeatureExtractor"}


def before_normalization(value: ir.Value) -> ir.Value | None:
    """Return x where value is x / sum(x), whatever guards against a sum of 0."""
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
    """Yield the values that are summed over columns on the way to `value`."""
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
    """Return the operands of a sum: a guard adds 1 to each column where all are 0."""
    node = made_by(value, "Add")
    return () if node is None else tuple(node.inputs)


def is_probability(value: ir.Value, depth: int = 12) -> bool:
    """Whether a value is made of what lies between 0 and 1: means, products, columns of it."""
    node = value.producer()
    if node is None or depth == 0:
        return False
    if node.op_type in _BOUNDED or before_normalization(value) is not None or _has_complement(node):
        return True
    if node.domain == "ai.onnx.ml" and node.op_type.endswith("Classifier"):
        return _classifier_is_probability(node)
    if node.op_type not in _MOVES | _MIXES:
        return False
    table = constant(node.inputs[0]) if node.op_type == "Gather" else None
    if table is not None:  # the leaves of a forest
        return bool(np.all((table >= 0) & (table <= 1)))
    varying = [x for x in node.inputs if x is not None and (x.dtype is None or is_float(x)) and constant(x) is None]
    return bool(varying) and all(is_probability(x, depth - 1) for x in varying)


def _has_complement(node: ir.Node) -> bool:
    """Whether a node is Concat(1 - p, p)."""
    if node.op_type != "Concat" or len(node.inputs) != 2:
        return False
    complement = made_by(node.inputs[0], "Sub")
    return complement is not None and complement.inputs[1] is node.inputs[1] and equals(complement.inputs[0], 1)


def _classifier_is_probability(node: ir.Node) -> bool:
    transform = node.attributes.get("post_transform")
    if transform is not None and transform.value not in ("NONE", ""):
        return True
    return node.op_type == "TreeEnsembleClassifier" or bool(node.attributes.get("prob_a"))
