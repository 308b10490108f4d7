r"""Rules of operators that interpolate an image: GridSample, AffineGrid, Resize, RoiAlign, MaxRoiPool.

GridSample is recomputed as a weighted sum of neighbours, which is differentiated. Each
position has, along each axis, neighbours ("taps") with an index and a weight.

Resize is, in every mode, one matrix along each axis: the operator applied to the identity. The
gradient is the product with its transpose.

In RoiAlign, a bin of a region averages, along each axis, linear interpolations at sampling points. With
:math:`h(t) = \max(0, 1 - |t|)` and the n sampling points :math:`p` of a bin, pixel :math:`j` has the weight
:math:`A_j = \frac{1}{n} \sum_p h(p - j)`. The result for each region is

.. math:: y = A\, x\, B^\top

It is linear in ``x``, and smooth in the corners of the region as long as no sampling point crosses a pixel. The number
of sampling points, which depends on the size of the region, and the index of its image have zero gradient. The regions
of MaxRoiPool also have zero gradient, because they are rounded to pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import length_of, lengths, scalar_like, shape_of, size_of
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.autodiff.rules.slice_pad import concatenated
from onnxtrain.autodiff.rules.window import along_axes, array_like
from onnxtrain.graph import Op, attribute, attributes, constant, rank, same_dimension

#: The parameter of the cubic kernel in the ONNX specification.
_A = -0.75


class Tap(NamedTuple):
    """A neighbour of each position along one axis: its index and its weight; None means 1."""

    place: ir.Value
    weight: ir.Value | None


@gradient_rule("GridSample")
def grid_sample(op, node, dy):
    return differentiate(op, node, _sampled, dy)


@gradient_rule("AffineGrid")
def affine_grid(op, node, dy):
    """Multiply dy by the points: the grid is the product of the points, with a last coordinate 1, and theta."""
    theta, size = node.inputs
    n = rank(dy) - 2
    plain = array_like(op, np.eye(n, n + 1)[None], theta, "plain")
    one = op.Concat([1], op.Slice(size, [1], [n + 2]), axis=0)
    points = op.AffineGrid(plain, one, align_corners=attribute(node, "align_corners", 0))
    points = op.Reshape(points, [-1, n])
    points = op.Pad(points, [0, 0, 0, 1], op.CastLike(1.0, points))
    flat = op.Transpose(op.Reshape(dy, [0, -1, n]), perm=[0, 2, 1])
    return op.MatMul(flat, points), None


def _sampled(op, node, x, grid):
    """Return (N, C, ...): for each position the weighted sum of its neighbours."""
    n = rank(x) - 2
    lengths = [real_length(op, x, axis) for axis in range(2, n + 2)]
    places = op.Split(grid, axis=-1, num_outputs=n, _outputs=n)
    taps = [_taps(op, node, op.Reshape(p, [0, -1, 1]), m) for p, m in zip(places[::-1], lengths, strict=True)]
    entries = op.Transpose(op.Reshape(x, [0, 0, -1]), perm=[0, 2, 1])  # (N, pixels, C)
    total = interpolated(op, entries, taps, lengths)
    shape = op.Concat(op.Slice(shape_of(op, x), [0], [2]), op.Slice(shape_of(op, grid), [1], [n + 1]), axis=0)
    return [op.Reshape(op.Transpose(total, perm=[0, 2, 1]), shape, allowzero=1)]


def interpolated(op: Op, entries: ir.Value, taps: Sequence[Sequence[Tap]], lengths: Sequence[ir.Value]) -> ir.Value:
    """Return the weighted sum of the neighbours of each position.

    Parameters
    ----------
    op : onnxscript builder
    entries : onnx_ir.Value
        (..., pixels, C), the pixels of each image row by row.
    taps : sequence of sequence of Tap
        For each axis of the image the neighbours along it, each (..., places, 1).
    lengths : sequence of onnx_ir.Value
        The lengths of the axes of the image, as floating-point scalars.

    Returns
    -------
    onnx_ir.Value
        (..., places, C)
    """
    terms = []
    for corner in product(*taps):
        term = op.GatherND(entries, _flat_index(op, corner, lengths), batch_dims=rank(entries) - 2)
        for tap in corner:
            term = term if tap.weight is None else op.Mul(term, tap.weight)
        terms.append(term)
    return terms[0] if len(terms) == 1 else op.Sum(*terms)


def linear_taps(op: Op, at: ir.Value, length: ir.Value, padding: str) -> list[Tap]:
    """Return the two neighbours of each position, given in pixels."""
    low = op.Floor(at)
    t = op.Sub(at, low)
    pairs = [(low, op.Sub(1.0, t)), (op.Add(low, 1.0), t)]
    return [_inside(op, index, weight, length, padding) for index, weight in pairs]


def real_length(op: Op, x: ir.Value, axis: int) -> ir.Value:
    """Return the length of an axis of `x` as a scalar of the type of `x`."""
    n = size_of(op, x, axis)
    return scalar_like(op, float(n), x) if isinstance(n, int) else op.CastLike(n, x)


def _flat_index(op: Op, corner: tuple[Tap, ...], lengths: Sequence[ir.Value]) -> ir.Value:
    """Return the index of a pixel in row-major order."""
    flat = corner[0].place
    for tap, length in zip(corner[1:], lengths[1:], strict=True):
        flat = op.Add(op.Mul(flat, length), tap.place)
    return op.Cast(flat, to=ir.DataType.INT64)


def _taps(op: Op, node: ir.Node, place: ir.Value, length: ir.Value) -> list[Tap]:
    """Return the neighbours of a normalized position, between -1 and 1, along an axis."""
    corners, padding = attribute(node, "align_corners", 0), attribute(node, "padding_mode", "zeros")
    mode = attribute(node, "mode", "linear")
    half = op.Mul(op.Add(place, 1.0), 0.5)
    at = op.Mul(half, op.Sub(length, 1.0)) if corners else op.Sub(op.Mul(half, length), 0.5)
    if mode == "nearest":
        return [_inside(op, _padded(op, op.Round(at), length, padding, corners), None, length, padding)]
    if "linear" in mode:
        return linear_taps(op, _padded(op, at, length, padding, corners), length, padding)
    low = op.Floor(at)
    t = op.Sub(at, low)
    taps = [(_padded(op, op.Add(low, float(k)), length, padding, corners), _cubic(op, t, k)) for k in (-1, 0, 1, 2)]
    return [_inside(op, index, weight, length, padding) for index, weight in taps]


def _cubic(op: Op, t: ir.Value, k: int) -> ir.Value:
    """Return the weight of the k-th neighbour of a position at distance t after neighbour 0 (Keys, 1981)."""
    s = op.Abs(op.Sub(t, float(k)))
    if k in (0, 1):
        return op.Add(op.Mul(op.Mul(s, s), op.Sub(op.Mul(s, _A + 2), _A + 3)), 1.0)
    return op.Mul(op.Add(op.Mul(op.Add(op.Mul(op.Sub(s, 5.0), s), 8.0), s), -4.0), _A)


def _padded(op: Op, at: ir.Value, length: ir.Value, padding: str, corners: int) -> ir.Value:
    """Return the positions, moved into the image if the padding mode requires it."""
    last = op.Sub(length, 1.0)
    if padding == "reflection":
        low, span = (0.0, last) if corners else (-0.5, length)
        far = op.Mod(op.Abs(op.Sub(at, low)), op.Max(op.Mul(span, 2.0), 1.0), fmod=1)
        at = op.Add(op.Where(op.Greater(far, span), op.Sub(op.Mul(span, 2.0), far), far), low)
    return at if padding == "zeros" else op.Clip(at, op.CastLike(0.0, at), last)


def _inside(op: Op, index: ir.Value, weight: ir.Value | None, length: ir.Value, padding: str) -> Tap:
    """Return a tap with its index inside the image; with zero padding, outside neighbours have weight 0."""
    inside = op.Clip(index, op.CastLike(0.0, index), op.Sub(length, 1.0))
    if padding == "zeros":
        there = op.Equal(inside, index)
        weight = op.CastLike(there, index) if weight is None else op.Where(there, weight, 0.0)
    return Tap(inside, weight)


# -------------------------------------------------------------------- Resize


#: Attributes that keep their meaning when the operator is applied to one axis.
_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)


@gradient_rule("Resize", flat=(1, 2, 3))
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
    same = attributes(node, *_ATTRIBUTES)
    eye = _identity(op, x, axis)
    if scale is not None:
        return op.Resize(eye, roi, op.Concat(scale, [1.0], axis=0), **same)
    return op.Resize(eye, roi, None, op.Concat(length_of(op, y, axis), length_of(op, x, axis), axis=0), **same)


def _identity(op: Op, x: ir.Value, axis: int) -> ir.Value:
    n = x.shape[axis]
    if isinstance(n, int):
        return array_like(op, np.eye(n), x, "identity")
    length = length_of(op, x, axis)
    square = op.ConstantOfShape(op.Concat(length, length, axis=0), value=ir.tensor([0.0], dtype=x.dtype))
    return op.EyeLike(square)


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


# --------------------------------------------------------------------- regions


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
    rows, columns = (_weights_of_samples(op, x, _samples(op, node, x, rois, axis), axis) for axis in (2, 3))
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


def _weights_of_samples(op: Op, x: ir.Value, samples: _Samples, axis: int) -> ir.Value:
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
