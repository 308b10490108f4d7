"""Rules of Fourier transforms of a whole signal and of its frames.

The transform of length N is linear, y = F x, so dx = F^H dy, and F^H is N times
the inverse transform. The gradient of a padded signal is cropped, and the
gradient of a cropped signal is padded with zeros.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, known_rank, length_of
from onnxtrain.autodiff.engine import differentiate
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.graph import attribute, constant, rank


@gradient_rule("DFT")
def dft(op, node, dy):
    x, length, axis = (*node.inputs, None, None)[:3]
    inverse, onesided = attribute(node, "inverse", 0), attribute(node, "onesided", 0)
    axis = integers(op, -2, "axis") if axis is None else axis
    steps = _steps(op, x, axis)
    if length is None:
        length = _full_length(op, steps) if inverse and onesided else steps
    count = op.Cast(length, to=x.dtype)
    if inverse and onesided:
        dx = op.DFT(op.Div(dy, count), length, axis, onesided=1)
        return _fitted(op, _both_halves(op, node, dx, length, axis), x, steps, axis)
    dy = op.Div(dy, count) if inverse else op.Mul(dy, count)
    dx = op.DFT(_of_length(op, dy, length, axis) if onesided else dy, length, axis, inverse=1 - inverse)
    return _fitted(op, dx, x, steps, axis)


@gradient_rule("STFT")
def stft(op, node, dy):
    return differentiate(op, node, _short_time, dy)


def _short_time(op, node, x, step, window=None, length=None):
    """Return (N, frames, frequencies, 2): the transform of each frame, weighted by the window."""
    x = op.Unsqueeze(x, [2]) if rank(x) == 2 else x
    frames = op.Gather(x, _frames(op, x, step, length_of(op, window, 0) if length is None else length), axis=1)
    frames = frames if window is None else op.Mul(frames, op.Unsqueeze(window, [1]))
    return [op.DFT(frames, None, 2, onesided=attribute(node, "onesided", 1))]


def _frames(op, x, step, length):
    """Return the indices of the signal in each frame, (frames, length)."""
    fixed, total = [constant(step), constant(length)], x.shape[1]
    if isinstance(total, int) and all(number is not None for number in fixed):
        step, n = (int(number.item()) for number in fixed)
        return integers(op, np.arange(0, total - n + 1, step)[:, None] + np.arange(n), "frames")
    step, n, total = (op.Squeeze(op.Cast(v, to=ir.DataType.INT64)) for v in (step, length, length_of(op, x, 1)))
    starts = op.Range(0, op.Add(op.Sub(total, n), 1), step)
    return op.Add(op.Unsqueeze(starts, [1]), op.Range(0, n, 1))


def _of_length(op, dy, length, axis):
    """Append zeros to half of the frequencies, if the length is computed.

    onnxruntime takes such a length for that of the operand, and reuses buffers that are too short.
    """
    if constant(length) is not None:
        return dy
    return _with_zeros(op, dy, op.Sub(op.Sub(length, op.Div(length, 2)), 1), axis)


def _steps(op, x, axis):
    """Return the length of an axis, static or computed at run time, as a scalar."""
    fixed = constant(axis)
    n = None if fixed is None or x.shape is None else x.shape[int(fixed.item())]
    return integers(op, n, "steps") if isinstance(n, int) else op.Gather(op.Shape(x), axis)


def _full_length(op, steps):
    fixed = constant(steps)
    return op.Mul(op.Sub(steps, 1), 2) if fixed is None else integers(op, 2 * (fixed - 1), "length")


def _both_halves(op, node, dx, length, axis):
    """Double the frequencies that represent two: all but 0 and half the length."""
    n = known_rank(node.inputs[0], node)
    frequency = op.Range(0, _steps(op, dx, axis), 1)
    alone = op.Or(op.Equal(frequency, 0), op.Equal(op.Mul(frequency, 2), length))
    along = op.Where(op.Equal(list(range(n)), op.Mod(axis, n)), -1, 1)
    return op.Mul(dx, op.Cast(op.Reshape(op.Where(alone, 1, 2), along), to=dx.dtype))


def _fitted(op, dx, x, steps, axis):
    """Crop dx to the length of x or append zeros; take the real part if x is real."""
    axes = op.Concat(op.Reshape(axis, [1]), [-1], axis=0)
    ends = op.Concat(op.Reshape(steps, [1]), length_of(op, x, -1), axis=0)
    missing = op.Max(op.Sub(steps, _steps(op, dx, axis)), 0)
    return _with_zeros(op, op.Slice(dx, [0, 0], ends, axes), missing, axis)


def _with_zeros(op, x, number, axis):
    """Append a number of zeros along an axis."""
    return op.Pad(x, op.Concat([0], op.Reshape(number, [1]), axis=0), None, op.Reshape(axis, [1]))
