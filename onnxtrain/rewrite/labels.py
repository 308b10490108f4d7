"""Labels computed from scores, so they follow the trained weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import Op
from onnxtrain.rewrite.registry import attribute, constant


def class_labels(node: ir.Node) -> np.ndarray:
    """Return the classes of a classifier of ai.onnx.ml, int64 or strings."""
    for name in ("classlabels_ints", "classlabels_int64s"):
        if attribute(node, name):
            return np.asarray(attribute(node, name), dtype=np.int64)
    names = attribute(node, "classlabels_strings", ())
    return np.asarray([n.decode() if isinstance(n, bytes) else n for n in names], dtype=object)


def labels_of_best(op: Op, scores: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return the class of the largest score in each row of `scores` (N, k); the first one wins a tie."""
    return labels_at(op, op.ArgMax(scores, axis=1, keepdims=0), classes)


def labels_of_sign(op: Op, z: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return the second class if the score `z` (N, 1) is positive, else the first."""
    positive = op.Cast(op.Greater(z, 0.0), to=ir.DataType.INT64)
    return labels_at(op, op.Squeeze(positive, [1]), classes)


def labels_at(op: Op, index: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return ``classes[index]``."""
    if classes.dtype != object and np.array_equal(classes, np.arange(len(classes))):
        return index
    return op.Gather(constant(op, classes, "classes"), index, axis=0)
