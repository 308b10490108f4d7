"""Preprocessing of features: Scaler, Normalizer, Imputer, Binarizer; selection and concatenation of columns.

LabelEncoder, OneHotEncoder and similar operators map categories and have no
gradient: they are kept. The statistics that Scaler and Imputer hold are buffers,
as those of StandardScaler and SimpleImputer are, from which converters make them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.graph import attribute, constant, is_float, made_by, rank, scalar
from onnxtrain.rewrite.registry import as_float, buffer, floats, rewrite


@rewrite("ai.onnx.ml", "Scaler")
def scaler(op, node):
    (x,) = node.inputs
    dtype = ir.DataType.DOUBLE if x.dtype is ir.DataType.DOUBLE else ir.DataType.FLOAT
    x = x if x.dtype is dtype else op.Cast(x, to=dtype)
    offset, scale = floats(node, "offset"), floats(node, "scale")
    if np.any(offset != 0):
        x = op.Sub(x, buffer(op, offset, "offset", dtype))  # dates in seconds need more digits than float32 has
    if np.any(scale != 1):
        x = op.Mul(x, buffer(op, scale, "scale", dtype))
    return op.Cast(x, to=ir.DataType.FLOAT)


@rewrite("ai.onnx.ml", "Normalizer")
def normalizer(op, node):
    x = as_float(op, node.inputs[0])
    norm = attribute(node, "norm", "MAX")
    if norm == "L1" and _sums_to_one(x):
        return op.Identity(x)
    sizes = {
        "MAX": lambda: op.ReduceMax(x, [1], keepdims=1),
        "L1": lambda: op.ReduceSum(op.Abs(x), [1], keepdims=1),
        "L2": lambda: op.Sqrt(op.ReduceSumSquare(x, [1], keepdims=1)),
    }
    if norm not in sizes:
        raise RewriteError(f"Normalizer (node {node.name!r}) has norm={norm!r}; known: {', '.join(sizes)}.")
    size = sizes[norm]()
    return op.Div(x, op.Where(op.Equal(size, 0.0), 1.0, size))


def _sums_to_one(x: ir.Value) -> bool:
    """Whether each row of `x` holds probabilities: a Softmax, or 1 - p and p."""
    node = x.producer()
    if node is None:
        return False
    if node.op_type == "Softmax":
        return attribute(node, "axis", -1) in (-1, 1)
    if node.op_type != "Concat" or len(node.inputs) != 2:
        return False
    q, p = node.inputs
    rest = made_by(q, "Sub")
    if rest is None or rest.inputs[1] is not p or scalar(rest.inputs[0]) != 1:
        return False
    return made_by(p, "Sigmoid") is not None


@rewrite("ai.onnx.ml", "Imputer")
def imputer(op, node):
    x = node.inputs[0]
    if not is_float(x):
        return None  # integers have no gradient
    missing = attribute(node, "replaced_value_float", 0.0)
    found = op.IsNaN(x) if np.isnan(missing) else op.Equal(x, float(missing))
    imputed = buffer(op, floats(node, "imputed_value_floats"), "imputed", x.dtype)
    return op.Where(found, imputed, x)


@rewrite("ai.onnx.ml", "Binarizer")
def binarizer(op, node):
    (x,) = node.inputs
    return op.Cast(op.Greater(as_float(op, x), float(attribute(node, "threshold", 0.0))), to=x.dtype)


@rewrite("ai.onnx.ml", "ArrayFeatureExtractor")
def array_feature_extractor(op, node):
    x, columns = node.inputs
    index = constant(columns)
    if index is not None and rank(columns) != 1:
        columns = op.Constant(value_ints=index.reshape(-1).tolist())
    elif index is None and rank(columns) != 1:
        columns = op.Reshape(columns, [-1])
    if rank(x) == 1:  # ai.onnx.ml treats a vector as one row
        return op.Unsqueeze(op.Gather(x, columns, axis=0), [0])
    return op.Gather(x, columns, axis=-1)


@rewrite("ai.onnx.ml", "FeatureVectorizer")
def feature_vectorizer(op, node):
    return op.Concat(*(as_float(op, x) for x in node.inputs), axis=1)
