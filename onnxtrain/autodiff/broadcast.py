"""Shapes in gradients: as constants where they are known, computed at run time where not."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxtrain.graph import same_dimension, same_shape, static_shape


def shape_of(op: Any, x: ir.Value) -> ir.Value:
    """Return the shape of `x` as int64 (rank,), a constant where it is known."""
    shape = static_shape(x)
    if shape is None:
        return op.Shape(x)
    return op.initializer(ir.tensor(list(shape), dtype=ir.DataType.INT64, name="shape"))


def reshape_like(op: Any, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Return `dy` in the shape of `x`, which has as many elements."""
    if same_shape(dy, x):
        return dy
    return with_shape_of(op.Reshape(dy, shape_of(op, x), allowzero=1), x)


def expand_like(op: Any, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Return `dy` stretched to the shape of `x`."""
    if same_shape(dy, x):
        return dy
    return with_shape_of(op.Expand(dy, shape_of(op, x)), x)


def with_shape_of(dy: ir.Value, x: ir.Value) -> ir.Value:
    """Note on `dy` the type and the shape of its primal `x`."""
    dy.type = x.type
    dy.shape = x.shape
    return dy


def sum_to(op: Any, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Undo broadcasting: sum `dy` over the axes along which `x` was stretched.

    Dimensions that are known to be equal are left alone, those known to be 1 in
    `x` are summed, and where neither is known the axes are found at run time.
    """
    if same_shape(dy, x):
        return dy
    if dy.shape is None or x.shape is None:
        return _sum_to_at_run_time(op, dy, x)
    lead = len(dy.shape) - len(x.shape)
    summed = list(range(lead))
    for axis, dim in enumerate(x.shape, start=lead):
        if dim == 1:
            summed.append(axis)
        elif not isinstance(dim, int) and not same_dimension(dim, dy.shape[axis]):
            return _sum_to_at_run_time(op, dy, x)
    kept = [axis for axis in summed if axis < lead or dy.shape[axis] != 1]
    if len(kept) == lead:
        return op.ReduceSum(dy, kept, keepdims=0) if kept else dy
    if lead == 0:
        return op.ReduceSum(dy, kept, keepdims=1)
    return reshape_like(op, op.ReduceSum(dy, kept, keepdims=0), x)


def _sum_to_at_run_time(op: Any, dy: ir.Value, x: ir.Value) -> ir.Value:
    x_shape, dy_shape = op.Shape(x), op.Shape(dy)
    lead = op.Sub(op.Shape(dy_shape), op.Shape(x_shape))
    padded = op.Concat(op.Expand(op.initializer(ir.tensor([1], name="one")), lead), x_shape, axis=0)
    stretched = op.Not(op.Equal(padded, dy_shape))
    axes = op.Squeeze(op.NonZero(stretched), [0])
    return op.Reshape(op.ReduceSum(dy, axes, keepdims=1, noop_with_empty_axes=1), x_shape, allowzero=1)
