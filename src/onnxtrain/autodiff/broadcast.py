"""Shapes in gradients: constants if static, computed at run time otherwise.

A static shape never costs a node. An unnamed dimension is never assumed equal to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir

from onnxtrain.errors import GradientError
from onnxtrain.graph import Op, describe, rank, same_dimension, same_shape, static_shape, tensor

__all__ = [
    "add_into_zeros",
    "expand_like",
    "integers",
    "known_rank",
    "length_of",
    "lengths",
    "reshape_like",
    "scalar_like",
    "shape_of",
    "size_of",
    "sum_to",
    "summing_type",
    "with_shape_of",
    "zeros_like",
]


def integers(op: Op, numbers: Any, name: str = "integers") -> ir.Value:
    """Return an int64 constant."""
    return op.initializer(tensor(numbers, name=name))


def scalar_like(op: Op, number: float, x: ir.Value) -> ir.Value:
    """Return a scalar constant of the type of `x`, for operands whose type the schema does not tie to `x`."""
    return op.initializer(tensor(number, x.dtype, "scalar"))


def shape_of(op: Op, x: ir.Value) -> ir.Value:
    """Return the shape of `x` as int64 (rank,), a constant if it is static."""
    shape = static_shape(x)
    return op.Shape(x) if shape is None else integers(op, shape, "shape")


def length_of(op: Op, x: ir.Value, axis: int) -> ir.Value:
    """Return the length of one axis of `x` as int64 (1,), a constant if it is static."""
    if x.shape is not None and isinstance(x.shape[axis], int):
        return integers(op, [x.shape[axis]], "length")
    return op.Shape(x, start=axis) if axis == -1 else op.Shape(x, start=axis, end=axis + 1)


def size_of(op: Op, x: ir.Value, axis: int) -> int | ir.Value:
    """Return the length of one axis of `x`: an int if it is static, else an int64 scalar."""
    n = None if x.shape is None else x.shape[axis]
    return n if isinstance(n, int) else op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0])


def lengths(op: Op, x: ir.Value, axes: Iterable[int]) -> list[int | ir.Value]:
    """Return the length of each axis: an int if it is static, else an int64 vector of shape (1,)."""
    dims = [(axis, None if x.shape is None else x.shape[axis]) for axis in axes]
    return [dim if isinstance(dim, int) else length_of(op, x, axis) for axis, dim in dims]


def zeros_like(op: Op, x: ir.Value) -> ir.Value:
    """Return zeros of the type and shape of `x`."""
    zero = tensor([0.0], x.dtype)
    return with_shape_of(op.ConstantOfShape(shape_of(op, x), value=zero), x)


def summing_type(dtype: Any) -> Any:
    """Return the type for scattered sums: half precision loses digits and has no kernels for them."""
    return ir.DataType.FLOAT if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else dtype


def add_into_zeros(op: Op, scatter: Callable[..., ir.Value], dy: ir.Value, shape: ir.Value) -> ir.Value:
    """Return ``scatter(zeros, dy)`` for zeros of the given shape, summed in :func:`summing_type`."""
    dtype = summing_type(dy.dtype)
    zeros = op.ConstantOfShape(shape, value=tensor([0.0], dtype))
    if dtype == dy.dtype:
        return scatter(zeros, dy)
    return op.Cast(scatter(zeros, op.Cast(dy, to=dtype)), to=dy.dtype)


def reshape_like(op: Op, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Return `dy` reshaped to `x`, which has the same number of elements."""
    if same_shape(dy, x):
        return dy
    target = _with_one_unknown(x)
    if target is not None:
        return with_shape_of(op.Reshape(dy, integers(op, target, "shape")), x)
    return with_shape_of(op.Reshape(dy, shape_of(op, x), allowzero=1), x)


def _with_one_unknown(x: ir.Value) -> list[int] | None:
    """Return the shape of `x` with -1 for its only unknown dimension; None unless exactly one is unknown."""
    dims = [dim if isinstance(dim, int) else -1 for dim in x.shape or ()]
    return dims if dims.count(-1) == 1 and 0 not in dims else None


def expand_like(op: Op, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Return `dy` broadcast to the shape of `x`."""
    if same_shape(dy, x):
        return dy
    return with_shape_of(op.Expand(dy, shape_of(op, x)), x)


def with_shape_of(dy: ir.Value, x: ir.Value) -> ir.Value:
    """Give `dy` the type and the static shape of `x`, and return it."""
    if dy.type is None:
        dy.type = x.type
    if dy.shape is None or x.shape is None or len(dy.shape) != len(x.shape):
        dy.shape = x.shape if dy.shape is None else dy.shape
        return dy
    if not same_shape(dy, x):
        dy.shape = ir.Shape([_better_known(a, b) for a, b in zip(dy.shape, x.shape, strict=True)])
    return dy


def _better_known(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a
    return a if not isinstance(b, int) and b.value is None else b


def known_rank(x: ir.Value, node: ir.Node) -> int:
    """Return the number of axes of `x`, an operand of `node`, or raise."""
    found = rank(x)
    if found is None:
        raise GradientError(
            f"The derivative of {node.op_type} (node {node.name!r}) requires the number of axes of {describe(x)}. "
            "Declare the shapes of the inputs of the model; dimensions may stay symbolic."
        )
    return found


def sum_to(op: Op, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Undo broadcasting: sum `dy` over the axes along which `x` was broadcast.

    Axes of equal static length are kept, and axes of static length 1 in `x` are
    summed. Otherwise the axes are found at run time.
    """
    if same_shape(dy, x):
        return dy
    if dy.shape is None or x.shape is None:
        return with_shape_of(_sum_unknown_ranks(op, dy, x), x)
    lead = len(dy.shape) - len(x.shape)
    pairs = list(enumerate(zip(x.shape, dy.shape[lead:], strict=True), start=lead))
    if any(not isinstance(dim, int) and not same_dimension(dim, stretched) for _, (dim, stretched) in pairs):
        return with_shape_of(_sum_unknown_dimensions(op, dy, x, lead), x)
    inner = [axis for axis, (dim, stretched) in pairs if dim == 1 and stretched != 1]
    axes = [*range(lead), *inner]
    if lead == 0:
        return with_shape_of(op.ReduceSum(dy, axes, keepdims=1) if axes else dy, x)
    return reshape_like(op, op.ReduceSum(dy, axes, keepdims=0), x)


def _sum_unknown_dimensions(op: Op, dy: ir.Value, x: ir.Value, lead: int) -> ir.Value:
    if lead:
        dy = op.ReduceSum(dy, list(range(lead)), keepdims=0)
    return _sum_stretched(op, dy, op.Shape(dy), op.Shape(x))


def _sum_stretched(op: Op, dy: ir.Value, dy_shape: ir.Value, x_shape: ir.Value) -> ir.Value:
    """Return `dy` summed over the axes in which two shapes of equal rank differ."""
    axes = op.Squeeze(op.NonZero(op.Sub(dy_shape, x_shape)), [0])
    return op.ReduceSum(dy, axes, keepdims=1, noop_with_empty_axes=1)


def _sum_unknown_ranks(op: Op, dy: ir.Value, x: ir.Value) -> ir.Value:
    x_shape, dy_shape = op.Shape(x), op.Shape(dy)
    lead = op.Sub(op.Shape(dy_shape), op.Shape(x_shape))
    padded = op.Concat(op.Expand(integers(op, [1]), lead), x_shape, axis=0)
    # Leading axes that `x` lacks are summed even if they are 1 in `dy`: Reshape drops them.
    return op.Reshape(_sum_stretched(op, dy, dy_shape, padded), x_shape, allowzero=1)
