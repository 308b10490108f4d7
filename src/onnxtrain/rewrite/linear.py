"""LinearRegressor, LinearClassifier: a matrix product, its post-transform, and labels computed from scores.

Labels are computed from the trained weights.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.graph import Op, attribute, rank
from onnxtrain.rewrite.registry import as_float, constant, floats, rewrite, weight


@rewrite("ai.onnx.ml", "LinearRegressor")
def linear_regressor(op, node):
    (x,) = node.inputs
    targets = attribute(node, "targets", 1)
    coef = floats(node, "coefficients").reshape(targets, -1).T
    return post_transform(op, node, affine(op, x, coef, floats(node, "intercepts")))


@rewrite("ai.onnx.ml", "LinearClassifier")
def linear_classifier(op, node):
    (x,) = node.inputs
    classes = class_labels(node)
    coef, intercept = _rows(node)
    if len(coef) == 1 or _mirrored(coef, intercept):
        z = affine(op, x, coef[-1:].T, intercept[-1:])
        return labels_of_sign(op, z, classes), two_columns(op, node, z, mirrored=len(coef) == 2)
    z = affine(op, x, coef.T, intercept)
    return labels_of_best(op, z, classes), post_transform(op, node, z)


@rewrite("", "MatMul")
def matmul(op, node):
    """Turn a vector on the right into a column: onnxruntime (1.31) fuses a Transpose into such a product wrongly."""
    x, w = node.inputs
    if rank(w) != 1 or rank(x) in (None, 1):
        return None
    return op.Squeeze(op.MatMul(x, op.Unsqueeze(w, [1])), [-1])


def affine(op: Op, x: ir.Value, coef: np.ndarray, intercept: np.ndarray) -> ir.Value:
    """Return ``x @ coef + intercept``; the intercept is ignored if its length is not the number of scores."""
    z = op.MatMul(as_float(op, x), weight(op, coef, "coef"))
    return op.Add(z, weight(op, intercept, "intercept")) if len(intercept) == coef.shape[1] else z


def _rows(node: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients, one row per score, and the intercepts."""
    coef, intercept = floats(node, "coefficients"), floats(node, "intercepts")
    n_scores = len(intercept) or len(class_labels(node))
    return coef.reshape(n_scores, -1), intercept


def _mirrored(coef: np.ndarray, intercept: np.ndarray) -> bool:
    """Whether two scores are opposites: training must keep them opposite."""
    return len(coef) == 2 and np.array_equal(coef[0], -coef[1]) and np.array_equal(intercept[:1], -intercept[1:])


def two_columns(op: Op, node: ir.Node, z: ir.Value, *, mirrored: bool) -> ir.Value:
    """Return the scores of both classes from the score `z` (N, 1) of the second."""
    transform = attribute(node, "post_transform", "NONE")
    if transform == "LOGISTIC":
        p = op.Sigmoid(z)
        return op.Concat(op.Sub(1.0, p), p, axis=1)
    if mirrored:
        return post_transform(op, node, op.Concat(op.Neg(z), z, axis=1))
    if transform == "NONE":
        return op.Concat(op.Sub(1.0, z), z, axis=1)
    raise RewriteError(
        f"{node.op_type} (node {node.name!r}) with one score has no rewriting for post_transform={transform!r}, only "
        "for 'NONE' and 'LOGISTIC'."
    )


def post_transform(op: Op, node: ir.Node, z: ir.Value) -> ir.Value:
    """Return the scores after the node's ``post_transform``."""
    transform = attribute(node, "post_transform", "NONE")
    transforms = {"NONE": lambda: z, "LOGISTIC": lambda: op.Sigmoid(z), "SOFTMAX": lambda: op.Softmax(z, axis=-1)}
    if transform not in transforms:
        raise RewriteError(
            f"{node.op_type} (node {node.name!r}) has no rewriting for post_transform={transform!r}, only for "
            f"{', '.join(transforms)}."
        )
    return transforms[transform]()


# -------------------------------------------------------------------- labels


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
