r"""Rules of RoiAlign and MaxRoiPool.

In RoiAlign, a bin of a region averages, along each axis, linear interpolations at sampling points. With
:math:`h(t) = \max(0, 1 - |t|)` and the n sampling points :math:`p` of a bin, pixel :math:`j` has the weight
:math:`A_j = \frac{1}{n} \sum_p h(p - j)`. The result for each region is

.. math:: y = A\, x\, B^\top

It is linear in ``x``, and smooth in the corners of the region as long as no sampling point crosses a pixel. The number
of sampling points, which depends on the size of the region, and the index of its image have zero gradient. The regions
of MaxRoiPool also have zero gradient, because they are rounded to pixels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import lengths, scalar_like, size_of
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.interpolation import real_length
from onnxtrain.autodiff.rules.slice_pad import concatenated
from onnxtrain.autodiff.rules.window import array_like
from onnxtrain.graph import Op, attribute


class _Samples(NamedTuple):
    """The sampling points of the bins of each region along one axis."""

    places: ir.Value  # (R, bins, samples), inside the image
    weights: ir.Value  # 1 over the number of samples of a bin; 0 for points far outside and for unused samples
    wanted: ir.Value  # (R, 1, samples): a smaller region has fewer samples than the largest


@gradient_rule("RoiAlign")
def roi_align(op, node, dy):
    """Differentiate the image and the regions; the image index and the number of samples have zero gradient."""
    return differentiate(op, node, _largest if attribute(node, "mode", "avg") == "max" else _average, dy)


@gradient_rule("MaxRoiPool")
def max_roi_pool(op, node, dy):
    """Differentiate the image; the regions are rounded to pixels and have zero gradient."""
    return differentiate(op, node, _largest_of_bins, dy)


def _average(op, node, x, rois, images):
    """Return the mean of the samples by one matrix per axis and region, without a copy of the image per region."""
    rows, columns = (_matrix(op, x, _samples(op, node, x, rois, axis), axis) for axis in (2, 3))
    chosen = op.CastLike(op.Equal(op.CastLike(op.Unsqueeze(images, [1]), x), _below(op, x, size_of(op, x, 0))), x)
    rows = op.Mul(op.Unsqueeze(chosen, [1, 3]), op.Unsqueeze(rows, [2]))  # (R, bins, N, height)
    narrow = op.MatMul(op.Flatten(rows, axis=2), op.Flatten(op.Transpose(x, perm=[0, 2, 1, 3]), axis=2))
    bins = attribute(node, "output_height", 1)
    narrow = op.Reshape(narrow, concatenated(op, [-1, bins, *lengths(op, x, (1, 3))]))  # (R, bins, C, width)
    y = op.MatMul(narrow, op.Unsqueeze(op.Transpose(columns, perm=[0, 2, 1]), [1]))
    return [op.Transpose(y, perm=[0, 2, 1, 3])]


def _largest(op, node, x, rois, images):
    """Return the largest of the pixels around the samples, each times its weight, as ONNX defines it."""
    tall, wide = (_corners(op, x, _samples(op, node, x, rois, axis), axis) for axis in (2, 3))
    (row, wy, row_wanted), (column, wx, column_wanted) = (
        [op.Unsqueeze(v, axes) for v in corners] for corners, axes in ((tall, [3, 4]), (wide, [1, 2]))
    )  # (R, bins, corners, 1, 1) and (R, 1, 1, bins, corners)
    image = op.Unsqueeze(_int64(op, images), [1, 2, 3, 4])
    flat = op.Add(op.Mul(op.Add(op.Mul(image, size_of(op, x, 2)), row), size_of(op, x, 3)), column)
    pixels = op.Gather(op.Flatten(op.Transpose(x, perm=[0, 2, 3, 1]), axis=3), flat, axis=0)
    terms = op.Mul(pixels, op.Unsqueeze(op.Mul(wy, wx), [5]))
    wanted = op.Unsqueeze(op.And(row_wanted, column_wanted), [5])
    terms = op.Where(wanted, terms, scalar_like(op, float("-inf"), x))
    return [op.Transpose(op.ReduceMax(terms, [2, 4], keepdims=0), perm=[0, 3, 1, 2])]


def _largest_of_bins(op, node, x, rois):
    """Return the largest pixel of each bin, axis by axis; pixels outside a bin count as -inf."""
    rows, columns = (_bins(op, node, x, rois, axis) for axis in (2, 3))
    least = scalar_like(op, float("-inf"), x)
    pages = op.Gather(x, _int64(op, op.Squeeze(op.Slice(rois, [0], [1], [1]), [1])), axis=0)
    narrow = op.Where(op.Unsqueeze(columns, [1, 2]), op.Unsqueeze(pages, [3]), least)  # (R, C, height, bins, width)
    narrow = op.Unsqueeze(op.ReduceMax(narrow, [4], keepdims=0), [2])
    return [op.ReduceMax(op.Where(op.Unsqueeze(rows, [1, 4]), narrow, least), [3], keepdims=0)]


def _bins(op: Op, node: ir.Node, x: ir.Value, rois: ir.Value, axis: int) -> ir.Value:
    """Return the mask of the pixels in each bin along an axis, (R, bins, pixels)."""
    bins = attribute(node, "pooled_shape")[axis - 2]
    corners = op.Floor(op.Add(op.Mul(rois, attribute(node, "spatial_scale", 1.0)), 0.5))
    start, end = (op.Slice(corners, [i], [i + 1], [1]) for i in (4 - axis, 6 - axis))  # (R, 1)
    step = op.Div(op.Max(op.Add(op.Sub(end, start), 1.0), 1.0), float(bins))
    edges = op.Mul(_below(op, x, bins), step), op.Mul(op.Add(_below(op, x, bins), 1.0), step)
    low, high = op.Add(op.Floor(edges[0]), start), op.Add(op.Ceil(edges[1]), start)
    pixels = _below(op, x, size_of(op, x, axis))
    return op.And(op.GreaterOrEqual(pixels, op.Unsqueeze(low, [2])), op.Less(pixels, op.Unsqueeze(high, [2])))


def _samples(op: Op, node: ir.Node, x: ir.Value, rois: ir.Value, axis: int) -> _Samples:
    half = attribute(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale, per_bin = attribute(node, "spatial_scale", 1.0), attribute(node, "sampling_ratio", 0)
    bins = attribute(node, "output_height" if axis == 2 else "output_width", 1)
    edges = op.Split(op.Mul(op.Unsqueeze(rois, [2]), scale), axis=1, num_outputs=4, _outputs=4)
    start, end = edges[3 - axis], edges[5 - axis]  # (R, 1, 1)
    size = op.Sub(end, start)
    step = op.Div(size if half else op.Max(size, 1.0), float(bins))
    number = scalar_like(op, float(per_bin), x) if per_bin > 0 else op.Ceil(step)
    samples, some = op.Unsqueeze(_below(op, x, per_bin or _most(op, number)), [0, 1]), op.Max(number, 1.0)
    within = op.Add(op.Unsqueeze(_below(op, x, bins), [1]), op.Div(op.Add(samples, 0.5), some))
    place = op.Add(op.Sub(start, 0.5) if half else start, op.Mul(within, step))
    last = op.Sub(real_length(op, x, axis), 1.0)
    wanted = op.Less(samples, number)
    seen = op.And(wanted, op.And(op.GreaterOrEqual(place, -1.0), op.LessOrEqual(place, op.Add(last, 1.0))))
    return _Samples(op.Clip(place, op.CastLike(0.0, x), last), op.Div(op.CastLike(seen, x), some), wanted)


def _matrix(op: Op, x: ir.Value, samples: _Samples, axis: int) -> ir.Value:
    """Return the weight of each pixel in each bin, (R, bins, pixels)."""
    distance = op.Abs(op.Sub(op.Unsqueeze(samples.places, [3]), _below(op, x, size_of(op, x, axis))))
    return op.ReduceSum(op.Mul(op.Relu(op.Sub(1.0, distance)), op.Unsqueeze(samples.weights, [3])), [2], keepdims=0)


def _corners(op: Op, x: ir.Value, samples: _Samples, axis: int) -> list[ir.Value]:
    """Return the pixels on both sides of each sample, their weights and the mask of used ones, (R, bins, 2 samples)."""
    low = op.Floor(samples.places)
    high = op.Min(op.Add(low, 1.0), op.Sub(real_length(op, x, axis), 1.0))
    t, seen = op.Sub(samples.places, low), op.Sign(samples.weights)
    weights = op.Concat(op.Mul(seen, op.Sub(1.0, t)), t, axis=2)  # a point far outside was moved onto a pixel: t = 0
    wanted = op.Concat(samples.wanted, samples.wanted, axis=2)
    return [_int64(op, op.Concat(low, high, axis=2)), weights, wanted]


def _below(op: Op, x: ir.Value, n: Any) -> ir.Value:
    """Return 0, 1, ..., n - 1 in the type of `x`."""
    return array_like(op, range(n), x, "numbers") if isinstance(n, int) else op.CastLike(op.Range(0, n, 1), x)


def _most(op: Op, number: ir.Value) -> ir.Value:
    """Return the largest sample count, at least 1: there may be no region."""
    return op.ReduceMax(op.Concat(_int64(op, op.Reshape(number, [-1])), [1], axis=0), keepdims=0)


def _int64(op: Op, x: ir.Value) -> ir.Value:
    return op.Cast(x, to=ir.DataType.INT64)
