"""Shape inference for most nodes of a training step.

onnx can infer any node, but takes about 0.1 ms, as long as building the node, because the node, its operands and its
constants are serialized and parsed. Simple cases are inferred here. If a rule is not certain, onnx infers the node or
refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxtrain.graph.query import constant, made_by, same_dimension, static_shape

#: The type of the results, and the shape of each; None if uncertain.
_Found: TypeAlias = "tuple[Any, *tuple[ir.Shape | None, ...]] | None"

#: ``rule(node, *operands)``, called with the present operands.
_Rule: TypeAlias = "Callable[..., _Found]"

_Dimension: TypeAlias = "int | ir.SymbolicDim"

_BOOL, _INT64 = ir.TensorType(ir.DataType.BOOL), ir.TensorType(ir.DataType.INT64)


class _Operand(NamedTuple):
    """An operand whose type and shape are known."""

    value: ir.Value
    type: ir.TypeProtocol
    shape: ir.Shape


def infer_simply(node: ir.Node) -> bool:
    """Set the types and shapes of the results of a node; return False if onnx must infer them."""
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None or node.outputs[0].shape is not None:
        return False
    given = [x for x in node.inputs if x is not None]
    known = [_Operand(x, x.type, x.shape) for x in given if x.type is not None and x.shape is not None]
    found = rule(node, *known) if len(known) == len(given) else None
    if found is None or any(part is None for part in found):
        return False
    for y, shape in zip(node.outputs, found[1:], strict=True):
        y.type, y.shape = found[0], shape
    return True


def _elementwise(node: ir.Node, *xs: _Operand) -> _Found:
    """Infer the common type of the operands and their broadcast shape."""
    shapes: list[ir.Shape | None] = [x.shape for x in xs]
    return (xs[0].type, reduce(_broadcast, shapes)) if _of_one_type(*xs) else None


def _along_an_axis(node: ir.Node, x: _Operand) -> _Found:
    return None if _axis(node, x, -1) is None else (x.type, x.shape)


def _comparison(node: ir.Node, *xs: _Operand) -> _Found:
    found = _elementwise(node, *xs)
    return None if found is None else (_BOOL, *found[1:])


def _where(node: ir.Node, condition: _Operand, a: _Operand, b: _Operand) -> _Found:
    if condition.type != _BOOL or not _of_one_type(a, b):
        return None
    return a.type, _broadcast(condition.shape, _broadcast(a.shape, b.shape))


def _shape(node: ir.Node, x: _Operand) -> _Found:
    return None if node.attributes else (_INT64, ir.Shape([len(x.shape)]))


def _gather_elements(node: ir.Node, x: _Operand, indices: _Operand) -> _Found:
    return (x.type, indices.shape) if len(x.shape) == len(indices.shape) else None


def _scatter_elements(node: ir.Node, x: _Operand, indices: _Operand, updates: _Operand) -> _Found:
    return (x.type, x.shape) if x.shape and _of_one_type(x, updates) else None


def _cast(node: ir.Node, x: _Operand) -> _Found:
    return ir.TensorType(ir.DataType(node.attributes.get_int("to"))), x.shape


def _product(node: ir.Node, a: _Operand, b: _Operand, *c: _Operand) -> _Found:
    """Infer the product of two matrices."""
    if not len(a.shape) == len(b.shape) == 2 or not _of_one_type(a, b, *c):
        return None
    rows, inner = a.shape[::-1] if node.attributes.get_int("transA", 0) else a.shape
    other, columns = b.shape[::-1] if node.attributes.get_int("transB", 0) else b.shape
    return (a.type, ir.Shape([rows, columns])) if same_dimension(inner, other) else None


def _gather(node: ir.Node, x: _Operand, indices: _Operand) -> _Found:
    axis = _axis(node, x)
    return None if axis is None else (x.type, ir.Shape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]))


def _reshape(node: ir.Node, x: _Operand, target: _Operand) -> _Found:
    """Infer a Reshape to static dimensions, one of them perhaps -1, or of a row or column to a vector."""
    wanted, before = constant(target.value), static_shape(x.value)
    if wanted is None or wanted.ndim != 1:
        return None
    after = wanted.tolist()
    if before is None and after == [-1]:  # of class labels; onnx would leave the length open
        lengths = [d for d in x.shape if d != 1]
        return (x.type, ir.Shape(lengths)) if len(lengths) == 1 else None
    if before is not None and after.count(-1) == 1 and 0 not in after:
        rest = -math.prod(after)  # the product of the other dimensions
        after[after.index(-1)] = math.prod(before) // rest
    fits = before is None or math.prod(before) == math.prod(after)
    return (x.type, ir.Shape(after)) if fits and min(after, default=1) > 0 else None


def _expand(node: ir.Node, x: _Operand, target: _Operand) -> _Found:
    return x.type, _broadcast(x.shape, _dimensions(target.value))


def _constant_of_shape(node: ir.Node, target: _Operand) -> _Found:
    filling = node.attributes.get_tensor("value", None)
    return ir.TensorType(ir.DataType.FLOAT if filling is None else filling.dtype), _dimensions(target.value)


def _dimensions(value: ir.Value) -> ir.Shape | None:
    """Return the shape stored in a vector of positive integers: a constant, or the result of Shape."""
    known, node = constant(value), made_by(value, "Shape")
    if known is not None:
        return ir.Shape(known.tolist()) if known.ndim == 1 and (known > 0).all() else None
    return None if node is None or node.attributes else node.inputs[0].shape  # type: ignore[union-attr]


def _concat(node: ir.Node, *xs: _Operand) -> _Found:
    axis, shapes = _axis(node, xs[0]), [x.shape for x in xs]
    if axis is None or not _of_one_type(*xs) or not all(_agree_beside(axis, shapes[0], shape) for shape in shapes):
        return None
    lengths = [shape[axis] for shape in shapes]
    if not all(isinstance(length, int) for length in lengths):
        return None
    return xs[0].type, ir.Shape([*shapes[0][:axis], sum(lengths), *shapes[0][axis + 1 :]])


def _agree_beside(axis: int, a: ir.Shape, b: ir.Shape) -> bool:
    """Whether two shapes are known to be equal except on one axis."""
    if len(a) != len(b):
        return False
    return all(i == axis or same_dimension(da, db) for i, (da, db) in enumerate(zip(a, b, strict=True)))


def _slice(node: ir.Node, x: _Operand, start: _Operand, *others: _Operand) -> _Found:
    """Infer that a slice of a vector is a vector of unknown length."""
    return (x.type, ir.Shape([None])) if len(x.shape) == 1 and constant(start.value) is None else None


def _split(node: ir.Node, x: _Operand, *given: _Operand) -> _Found:
    """Infer a Split with given sizes."""
    sizes, axis = constant(given[0].value) if given else None, _axis(node, x)
    if sizes is None or axis is None or sizes.sum() != x.shape[axis] or len(sizes) != len(node.outputs):
        return None
    return x.type, *(ir.Shape([*x.shape[:axis], size, *x.shape[axis + 1 :]]) for size in sizes.tolist())


def _reduce(node: ir.Node, x: _Operand, *given: _Operand) -> _Found:
    rank = len(x.shape)
    axes = constant(given[0].value) if given else np.arange(rank)
    if axes is None or axes.ndim != 1 or (given and not len(axes)) or ((axes < -rank) | (axes >= rank)).any():
        return None
    if node.attributes.get_int("noop_with_empty_axes", 0):
        return None
    gone = {int(axis) % rank for axis in axes}
    kept = [1] if node.attributes.get_int("keepdims", 1) else []
    return x.type, ir.Shape([d for i, whole in enumerate(x.shape) for d in (kept if i in gone else [whole])])


def _axis(node: ir.Node, x: _Operand, default: int = 0) -> int | None:
    """Return the nonnegative axis of a node, or None if its operand lacks this axis."""
    axis, rank = node.attributes.get_int("axis", default), len(x.shape)
    return axis % rank if -rank <= axis < rank else None


def _of_one_type(*values: _Operand) -> bool:
    return all(x.type == values[0].type for x in values)


def _broadcast(a: ir.Shape | None, b: ir.Shape | None) -> ir.Shape | None:
    """Return the broadcast shape of two operands, or None if it is uncertain."""
    if a is None or b is None:
        return None
    dimensions: list[_Dimension] = []
    for da, db in zip_longest(reversed(a.dims), reversed(b.dims), fillvalue=1):
        if da != 1 and db != 1 and not same_dimension(da, db):
            return None
        dimensions.append(db if da == 1 else da)
    return ir.Shape(dimensions[::-1])


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(["Abs", "Clip", "Exp", "Log", "Neg", "Relu", "Sigmoid", "Sign", "Sqrt", "Tanh"], _elementwise),
    **dict.fromkeys(["Add", "Div", "Max", "Min", "Mul", "Sub", "Sum"], _elementwise),
    **dict.fromkeys(["LogSoftmax", "Softmax"], _along_an_axis),
    **dict.fromkeys(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"], _comparison),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _product,
    "MatMul": _product,
    **dict.fromkeys(["ReduceL1", "ReduceSum", "ReduceSumSquare"], _reduce),
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Where": _where,
}
