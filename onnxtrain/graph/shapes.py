"""Shape inference for most nodes of a training step.

onnx infers any node, and takes as long for it as it takes to build one, about 0.1 ms: the node, its
operands and its constants are serialized for it, and parsed. Simple cases are
inferred here; if a rule is not certain, onnx infers or refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxtrain.graph.query import constant, same_dimension, static_shape

#: The type of the results, and the shape of each.
_Found: TypeAlias = "tuple[Any, *tuple[ir.Shape, ...]] | None"

_BOOL = ir.TensorType(ir.DataType.BOOL)


def infer_simply(node: ir.Node) -> bool:
    """Set the types and the shapes of the results of a node; return False if onnx has to infer them."""
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None or node.outputs[0].shape is not None:
        return False
    found = rule(node)
    if found is None or found[0] is None:
        return False
    for y, shape in zip(node.outputs, found[1:], strict=True):
        y.type, y.shape = found[0], shape
    return True


def _elementwise(node: ir.Node) -> _Found:
    """Infer the type of the operands, and their broadcast shape."""
    first = node.inputs[0]
    if first is None or not _of_one_type(node.inputs):
        return None
    common = first.shape
    for x in node.inputs[1:]:
        common = _broadcast(common, x.shape)  # type: ignore[union-attr]
    return None if common is None else (first.type, common)


def _along_an_axis(node: ir.Node) -> _Found:
    (x,) = node.inputs
    if x is None or not x.shape or not -len(x.shape) <= node.attributes.get_int("axis", -1) < len(x.shape):
        return None
    return x.type, x.shape


def _comparison(node: ir.Node) -> _Found:
    found = _elementwise(node)
    return None if found is None else (_BOOL, *found[1:])


def _where(node: ir.Node) -> _Found:
    condition, a, b = node.inputs
    if condition is None or a is None or b is None or not _of_one_type([a, b]):
        return None
    shape = _broadcast(condition.shape, _broadcast(a.shape, b.shape))
    return None if shape is None or condition.dtype is not ir.DataType.BOOL else (a.type, shape)


def _shape(node: ir.Node) -> _Found:
    (x,) = node.inputs
    if x is None or x.shape is None or node.attributes:
        return None
    return ir.TensorType(ir.DataType.INT64), ir.Shape([len(x.shape)])


def _gather_elements(node: ir.Node) -> _Found:
    x, indices = node.inputs
    if x is None or indices is None or x.shape is None or indices.shape is None or len(x.shape) != len(indices.shape):
        return None
    return x.type, indices.shape


def _scatter_elements(node: ir.Node) -> _Found:
    x, indices, updates = node.inputs
    if x is None or x.shape is None or not x.shape or indices is None or not _of_one_type([x, updates]):
        return None
    return x.type, x.shape


def _cast(node: ir.Node) -> _Found:
    (x,) = node.inputs
    if x is None or x.shape is None:
        return None
    return ir.TensorType(ir.DataType(node.attributes.get_int("to"))), x.shape


def _matmul(node: ir.Node) -> _Found:
    a, b = node.inputs
    return _product(a, b)


def _gemm(node: ir.Node) -> _Found:
    a, b, *c = node.inputs
    flags = node.attributes
    if not _of_one_type([a, b, *(x for x in c if x is not None)]):
        return None
    return _product(a, b, bool(flags.get_int("transA", 0)), bool(flags.get_int("transB", 0)))


def _product(a: ir.Value | None, b: ir.Value | None, turn_a: bool = False, turn_b: bool = False) -> _Found:
    """Infer the product of two matrices."""
    if a is None or b is None or a.shape is None or b.shape is None or not _of_one_type([a, b]):
        return None
    if len(a.shape) != 2 or len(b.shape) != 2:
        return None
    rows, inner = reversed(list(a.shape)) if turn_a else a.shape
    other, columns = reversed(list(b.shape)) if turn_b else b.shape
    return (a.type, ir.Shape([rows, columns])) if same_dimension(inner, other) else None


def _gather(node: ir.Node) -> _Found:
    x, indices = node.inputs
    if x is None or indices is None or not x.shape or indices.shape is None:
        return None
    axis = node.attributes.get_int("axis", 0)
    axis += len(x.shape) if axis < 0 else 0
    if not 0 <= axis < len(x.shape):
        return None
    return x.type, ir.Shape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _reshape(node: ir.Node) -> _Found:
    """Infer for a target of static dimensions, of which one may be -1."""
    x, target = node.inputs[0], constant(node.inputs[1])
    if x is None or target is None or target.ndim != 1:
        return None
    before, after = static_shape(x), target.tolist()
    if before is not None and after.count(-1) == 1 and 0 not in after:
        rest = -math.prod(after)  # of the others
        after[after.index(-1)] = math.prod(before) // rest
    if min(after, default=1) <= 0 or (before is not None and math.prod(before) != math.prod(after)):
        return None
    return x.type, ir.Shape(after)


def _expand(node: ir.Node) -> _Found:
    x, target = node.inputs[0], _dimensions(node.inputs[1])
    shape = None if x is None or target is None else _broadcast(x.shape, target)
    return None if x is None or shape is None else (x.type, shape)


def _constant_of_shape(node: ir.Node) -> _Found:
    shape, filling = _dimensions(node.inputs[0]), node.attributes.get_tensor("value", None)
    dtype = ir.DataType.FLOAT if filling is None else filling.dtype
    return None if shape is None else (ir.TensorType(dtype), shape)


def _dimensions(value: ir.Value | None) -> ir.Shape | None:
    """Return the shape that a vector of positive integers holds: a constant, or the result of Shape."""
    known, node = constant(value), None if value is None else value.producer()
    if known is not None:
        return ir.Shape(known.tolist()) if known.ndim == 1 and (known > 0).all() else None
    if node is None or node.op_type != "Shape" or node.domain or node.attributes or node.inputs[0] is None:
        return None
    return node.inputs[0].shape


def _concat(node: ir.Node) -> _Found:
    first, *others = node.inputs
    axis = node.attributes.get_int("axis")
    if first is None or first.shape is None or not _of_one_type(node.inputs) or not 0 <= axis < len(first.shape):
        return None
    dimensions = list(first.shape)
    for x in others:
        if x is None or x.shape is None or len(x.shape) != len(dimensions):
            return None
        for i, (a, b) in enumerate(zip(dimensions, x.shape, strict=True)):
            if i == axis and isinstance(a, int) and isinstance(b, int):
                dimensions[i] = a + b
            elif i == axis or not same_dimension(a, b):
                return None
    return first.type, ir.Shape(dimensions)


def _slice(node: ir.Node) -> _Found:
    """Infer that a slice of a vector is a vector: its length depends on the bounds."""
    x, start, *_ = node.inputs
    if x is None or x.shape is None or len(x.shape) != 1 or constant(start) is not None:
        return None
    return x.type, ir.Shape([None])


def _split(node: ir.Node) -> _Found:
    """Infer for given sizes."""
    x, sizes = node.inputs[0], constant(node.inputs[1]) if len(node.inputs) > 1 else None
    axis = node.attributes.get_int("axis", 0)
    if x is None or x.shape is None or sizes is None or not 0 <= axis < len(x.shape):
        return None
    if sizes.sum() != x.shape[axis] or len(sizes) != len(node.outputs):
        return None
    return x.type, *(ir.Shape([*x.shape[:axis], size, *x.shape[axis + 1 :]]) for size in sizes.tolist())


def _reduce(node: ir.Node) -> _Found:
    x, *rest = node.inputs
    flags = node.attributes
    if x is None or x.shape is None or bool(flags.get_int("noop_with_empty_axes", 0)):
        return None
    rank = len(x.shape)
    axes = set(range(rank))
    if rest and rest[0] is not None:
        known = constant(rest[0])
        if known is None or known.ndim != 1 or not len(known) or (known < -rank).any() or (known >= rank).any():
            return None
        axes = {int(axis) % rank for axis in known}
    if flags.get_int("keepdims", 1):
        return x.type, ir.Shape([1 if i in axes else d for i, d in enumerate(x.shape)])
    return x.type, ir.Shape([d for i, d in enumerate(x.shape) if i not in axes])


def _of_one_type(values: Iterable[ir.Value | None]) -> bool:
    """Whether all values are present, and of the same known type."""
    types = [None if x is None else x.type for x in values]
    return types[0] is not None and all(t == types[0] for t in types)


def _broadcast(a: ir.Shape | None, b: ir.Shape | None) -> ir.Shape | None:
    """Return the broadcast shape of two operands, None if it is not certain."""
    if a is None or b is None:
        return None
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    n_more = len(longer) - len(shorter)
    dimensions = list(longer[:n_more])
    for da, db in zip(longer[n_more:], shorter, strict=True):
        if same_dimension(da, db) or db == 1:
            dimensions.append(da)
        elif da == 1:
            dimensions.append(db)
        else:
            return None
    return ir.Shape(dimensions)


_RULES: dict[str, Callable[[ir.Node], _Found]] = {
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
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(["ReduceL1", "ReduceSum", "ReduceSumSquare"], _reduce),
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Where": _where,
}
