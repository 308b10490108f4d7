"""Rule of Resize; ONNX declares the region of interest, the scales and the sizes non-differentiable.

In every mode the operator is one matrix along each axis: the operator applied to
the identity. The gradient is the product with its transpose.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, shape_of
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.autodiff.rules.window import along_axes, array_like
from onnxtrain.graph import Op, constant, rank, same_dimension

#: Attributes that keep their meaning when the operator is applied to one axis.
_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)


@gradient("Resize", flat=(1, 2, 3))
def resize(op, node, dy):
    """Return the gradient of x; ONNX declares the region, the scales and the sizes non-differentiable."""
    x, roi = [*node.inputs, None][:2]
    (y,) = node.outputs
    axes = [axis % rank(x) for axis in attribute(node, "axes") or range(rank(x))]
    crops = attribute(node, "coordinate_transformation_mode") == "tf_crop_and_resize"
    scales = _scales(op, node, axes)
    matrices = {}
    for k, axis in enumerate(axes):
        known = None if scales is None else constant(scales)
        still = same_dimension(x.shape[axis], y.shape[axis]) if known is None else known[k] == 1
        if not still or crops:
            edges = _edges(op, roi, k, len(axes)) if crops else None
            matrices[axis] = _matrix(op, node, axis, edges, None if scales is None else _entry(op, scales, k))
    return along_axes(op, dy, matrices)


def _matrix(op: Op, node: ir.Node, axis: int, roi: ir.Value | None, scale: ir.Value | None) -> ir.Value:
    """Return the matrix (to, from) of the operator along one axis: its result for the identity."""
    x, y = node.inputs[0], node.outputs[0]
    same = {name: node.attributes[name].value for name in _ATTRIBUTES if name in node.attributes}
    eye = _identity(op, x, axis)
    if scale is not None:
        return op.Resize(eye, roi, op.Concat(scale, [1.0], axis=0), **same)
    return op.Resize(eye, roi, None, op.Concat(_length(op, y, axis), _length(op, x, axis), axis=0), **same)


def _identity(op: Op, x: ir.Value, axis: int) -> ir.Value:
    n = x.shape[axis]
    if isinstance(n, int):
        return array_like(op, np.eye(n), x, "identity")
    length = _length(op, x, axis)
    square = op.ConstantOfShape(op.Concat(length, length, axis=0), value=ir.tensor([0.0], dtype=x.dtype))
    return op.EyeLike(square)


def _length(op: Op, x: ir.Value, axis: int) -> ir.Value:
    n = x.shape[axis]
    return integers(op, [n], "length") if isinstance(n, int) else op.Shape(x, start=axis, end=axis + 1)


def _entry(op: Op, values: ir.Value, k: int) -> ir.Value:
    found = constant(values)
    if found is not None:
        return op.initializer(ir.tensor(found[k : k + 1], name="scale"))
    return op.Slice(values, [k], [k + 1], [0])


def _edges(op: Op, roi: ir.Value, k: int, n: int) -> ir.Value:
    """Return the region of one axis, and the full range for the axis of the identity that is not resized."""
    start, end = _entry(op, roi, k), _entry(op, roi, n + k)
    return op.Concat(start, op.CastLike([0.0], roi), end, op.CastLike([1.0], roi), axis=0)


def _scales(op: Op, node: ir.Node, axes: list[int]) -> ir.Value | None:
    """Return the scales; None if the output sizes determine them more exactly."""
    x, _, scales, sizes = [*node.inputs, None, None][:4]
    policy = attribute(node, "keep_aspect_ratio_policy", "stretch")
    if sizes is None:
        return scales if scales.dtype == ir.DataType.FLOAT else op.Cast(scales, to=ir.DataType.FLOAT)
    if policy == "stretch":
        return None
    lengths = op.Gather(shape_of(op, x), axes, axis=0)
    ratios = op.Div(op.Cast(sizes, to=ir.DataType.FLOAT), op.Cast(lengths, to=ir.DataType.FLOAT))
    one = op.ReduceMin(ratios, keepdims=1) if policy == "not_larger" else op.ReduceMax(ratios, keepdims=1)
    return op.Expand(one, [len(axes)])
