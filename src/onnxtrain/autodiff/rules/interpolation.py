"""Rules of operators that interpolate an image: GridSample, AffineGrid, Resize.

GridSample is recomputed as a weighted sum of neighbours, which is differentiated. Each
position has, along each axis, neighbours ("taps") with an index and a weight.

Resize is, in every mode, one matrix along each axis: the operator applied to the identity. The
gradient is the product with its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import length_of, scalar_like, shape_of, size_of
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
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
