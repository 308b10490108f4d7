"""Rules of operators that write elements into a tensor.

``y`` is ``data`` with ``updates`` written, added, multiplied or compared at
positions. ScatterElements and ScatterND index positions differently, so each
rule takes a pair of functions, one that writes and one that reads.
"""

from __future__ import annotations

from functools import partial

from onnxtrain.autodiff.broadcast import known_rank, length_of, shape_of, summing_type, zeros_like
from onnxtrain.autodiff.registry import attribute, gradient


@gradient("ScatterElements")
def scatter_elements(op, node, dy):
    axis = attribute(node, "axis", 0)
    return _scatter(op, node, dy, partial(op.ScatterElements, axis=axis), partial(op.GatherElements, axis=axis))


@gradient("ScatterND")
def scatter_nd(op, node, dy):
    return _scatter(op, node, dy, op.ScatterND, op.GatherND)


def _scatter(op, node, dy, write, read):
    data, positions, updates = node.inputs
    (y,) = node.outputs

    def put(target, values, reduction):
        return write(target, positions, values, reduction=reduction)

    def get(source):
        return read(source, positions)

    reduction = attribute(node, "reduction", "none")
    if reduction == "none":
        ddata, dupdates = put(dy, zeros_like(op, updates), "none"), get(dy)
    elif reduction == "add":
        ddata, dupdates = dy, get(dy)
    elif reduction == "mul":
        ddata, dupdates = put(dy, updates, "mul"), op.Mul(get(dy), _other_factors(op, data, updates, put, get))
    else:
        ddata, dupdates = _extremum(op, dy, data, updates, y, put, get)
    return ddata, None, dupdates


def _other_factors(op, data, updates, put, get):
    """Return, for each update, the product of the data and of the other updates at its position.

    The product of the nonzero factors is divided by the update; it is 0 if another
    factor is 0. The result is exact, but its own derivative is wrong if several are 0.
    """
    zero = op.Equal(updates, 0.0)
    is_zero = op.Cast(zero, to=updates.dtype)
    factor = op.Where(zero, 1.0, updates)
    zeros_here = get(put(zeros_like(op, data), is_zero, "add"))
    return op.Where(op.Equal(zeros_here, is_zero), op.Div(get(put(data, factor, "mul")), factor), 0.0)


def _extremum(op, dy, data, updates, y, put, get):
    """Pass dy to the largest (smallest) element at each position; equal elements share it."""
    kept, written = op.Equal(data, y), op.Equal(updates, get(y))
    numbers = [op.Cast(chosen, to=summing_type(y.dtype)) for chosen in (kept, written)]
    share = op.Div(dy, op.Cast(put(*numbers, "add"), to=y.dtype))
    return op.Where(kept, share, 0.0), op.Where(written, get(share), 0.0)


@gradient("TensorScatter")
def tensor_scatter(op, node, dy):
    """Return dy with zeros at the overwritten steps, and dy at these steps, which start at an index per row."""
    cache, update, start = (*node.inputs, None)[:3]
    mode, n = attribute(node, "mode", "linear"), known_rank(cache, node)
    axis = attribute(node, "axis", -2) % n
    rest = [] if start is None else [start]
    dcache = op.TensorScatter(dy, zeros_like(op, update), *rest, axis=axis, mode=mode)
    steps = op.Range(0, op.Squeeze(length_of(op, update, axis), [0]), 1)
    steps = op.Reshape(steps, [-1, *[1] * (n - 1 - axis)])
    if start is not None:
        steps = op.Add(steps, op.Reshape(start, [-1, *[1] * (n - 1)]))
    if mode == "circular":
        steps = op.Mod(steps, length_of(op, cache, axis))
    return dcache, op.GatherElements(dy, op.Expand(steps, shape_of(op, update)), axis=axis)
