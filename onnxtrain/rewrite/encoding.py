"""ArrayFeatureExtractor, FeatureVectorizer: selection and concatenation of columns.

LabelEncoder, OneHotEncoder and similar operators map categories and have no
gradient: they are kept.
"""

from __future__ import annotations

from onnxtrain.graph import constant, rank
from onnxtrain.rewrite.registry import as_float, rewrite


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
