"""Rules of operators that change the shape or the order of elements, not their values."""

from __future__ import annotations

import numpy as np

from onnxtrain.autodiff.broadcast import integers, known_rank, length_of, reshape_like, shape_of, zeros_like
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import attribute, constant, rank, static_shape

# ------------------------------------------------------------------- shapes


@gradient_rule("Reshape", "Flatten")
def reshape(op, node, dy):
    return reshape_like(op, dy, node.inputs[0])


@gradient_rule("Squeeze")
def squeeze(op, node, dy):
    x, axes = (*node.inputs, None)[:2]
    return reshape_like(op, dy, x) if axes is None else op.Unsqueeze(dy, axes)


@gradient_rule("Unsqueeze")
def unsqueeze(op, node, dy):
    _, axes = node.inputs
    # onnxruntime accepts a scalar as axes of Unsqueeze, but not of Squeeze
    return op.Squeeze(dy, axes if rank(axes) == 1 else op.Reshape(axes, [-1]))


@gradient_rule("Transpose")
def transpose(op, node, dy):
    perm = attribute(node, "perm")
    return op.Transpose(dy) if perm is None else op.Transpose(dy, perm=[int(axis) for axis in np.argsort(perm)])


@gradient_rule("Expand", broadcast=True)
def expand(op, node, dy):
    return dy


@gradient_rule("Tile")
def tile(op, node, dy):
    """Split each axis into (repeats, length) and sum over the repeats."""
    x, repeats = node.inputs
    n = known_rank(x, node)
    shape, fixed = static_shape(x), constant(repeats)
    if shape is not None and fixed is not None:
        parts = integers(op, np.stack([fixed, shape], axis=1).reshape(-1), "parts")
    else:
        columns = [op.Unsqueeze(v, [1]) for v in (repeats, shape_of(op, x))]
        parts = op.Reshape(op.Concat(*columns, axis=1), [-1])
    axes = [2 * i for i in range(n) if fixed is None or fixed[i] != 1]
    dy = op.Reshape(dy, parts, allowzero=1)
    return reshape_like(op, op.ReduceSum(dy, axes, keepdims=0) if axes else dy, x)


# ------------------------------------------------- concatenation and permutation


@gradient_rule("Concat")
def concat(op, node, dy):
    axis = attribute(node, "axis")
    if len(node.inputs) == 1:
        return dy
    dims = [None if x.shape is None else x.shape[axis] for x in node.inputs]
    if all(isinstance(dim, int) for dim in dims):
        lengths = integers(op, dims, "lengths")
    else:
        lengths = op.Concat(*(length_of(op, x, axis) for x in node.inputs), axis=0)
    return op.Split(dy, lengths, axis=axis, _outputs=len(dims))


@gradient_rule("Split")
def split(op, node, *dys):
    parts = [zeros_like(op, y) if dy is None else dy for y, dy in zip(node.outputs, dys, strict=True)]
    return op.Concat(*parts, axis=attribute(node, "axis", 0))


@gradient_rule("ReverseSequence")
def reverse_sequence(op, node, dy):
    """Reverse dy in the same way."""
    batch, time = attribute(node, "batch_axis", 1), attribute(node, "time_axis", 0)
    return op.ReverseSequence(dy, node.inputs[1], batch_axis=batch, time_axis=time)


@gradient_rule("SpaceToDepth")
def space_to_depth(op, node, dy):
    return op.DepthToSpace(dy, blocksize=attribute(node, "blocksize"), mode=attribute(node, "mode", "DCR"))


@gradient_rule("DepthToSpace")
def depth_to_space(op, node, dy):
    """Move blocks back into channels; SpaceToDepth puts the block axes first, mode CRD has them last."""
    block = attribute(node, "blocksize")
    dx = op.SpaceToDepth(dy, blocksize=block)
    if attribute(node, "mode", "DCR") == "DCR":
        return dx
    if isinstance(dx.shape[1], int):
        return op.Gather(dx, np.arange(dx.shape[1]).reshape(block * block, -1).T.reshape(-1), axis=1)
    channels = op.Range(0, op.Squeeze(length_of(op, dx, 1), [0]), 1)
    return op.Gather(dx, op.Reshape(op.Transpose(op.Reshape(channels, [block * block, -1])), [-1]), axis=1)
