"""SVMRegressor, SVMClassifier: kernels as matrix products.

Support vectors and dual coefficients become initializers ``support_vectors``
(V, p) and ``dual_coef``; what the kernel is called and its gamma, coef0 and
degree stay constants. Source: the specification of ai.onnx.ml and
Chang and Lin, LIBSVM, 2011.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.registry import did_you_mean
from onnxtrain.rewrite.labels import class_labels, labels_of_best
from onnxtrain.rewrite.linear import affine, post_transform
from onnxtrain.rewrite.registry import as_float, attribute, floats, mask, rewrite, weight


@rewrite("ai.onnx.ml", "SVMRegressor")
def svm_regressor(op, node):
    x = as_float(op, node.inputs[0])
    coef, rho = floats(node, "coefficients"), floats(node, "rho")
    if attribute(node, "n_supports", 0) > 0:
        k = kernel(op, node, x, floats(node, "support_vectors").reshape(len(coef), -1))
        z = op.Add(op.MatMul(k, weight(op, coef.reshape(-1, 1), "dual_coef")), weight(op, rho[:1], "intercept"))
    else:
        z = affine(op, x, coef.reshape(-1, 1), rho[:1])
    if attribute(node, "one_class", 0):
        z = op.Where(op.Greater(z, 0.0), 1.0, -1.0)
    return post_transform(op, node, z)


@rewrite("ai.onnx.ml", "SVMClassifier")
def svm_classifier(op, node):
    x = as_float(op, node.inputs[0])
    classes, per_class = class_labels(node), np.asarray(attribute(node, "vectors_per_class", ()), dtype=int)
    if per_class.sum() == 0:
        coef = floats(node, "coefficients").reshape(len(classes), -1)
        z = op.Add(op.MatMul(x, weight(op, coef.T, "coef")), weight(op, floats(node, "rho")[:1], "intercept"))
        return labels_of_best(op, z, classes), post_transform(op, node, z)
    k = kernel(op, node, x, floats(node, "support_vectors").reshape(per_class.sum(), -1))
    z = op.Add(op.MatMul(k, _pair_coefficients(op, node, per_class)), weight(op, floats(node, "rho"), "intercept"))
    votes = op.MatMul(_as_vote(op, z), mask(op, _vote_matrix(len(classes)), "votes"))
    labels = labels_of_best(op, votes, classes)
    if len(floats(node, "prob_a")):
        return labels, _probabilities(op, node, z, classes)
    scores = z if len(classes) > 2 else op.Concat(op.Neg(z), z, axis=1)
    return labels, post_transform(op, node, scores)


def kernel(op: Any, node: ir.Node, x: ir.Value, vectors: np.ndarray) -> ir.Value:
    """Return the kernel (N, V) between rows and support vectors."""
    gamma, coef0, degree = (float(v) for v in [*attribute(node, "kernel_params", ()), 0.0, 0.0, 0.0][:3])
    v = weight(op, vectors, "support_vectors")
    product = op.MatMul(x, op.Transpose(v, perm=[1, 0]))
    kernels = {
        "LINEAR": lambda: product,
        "POLY": lambda: op.Pow(op.Add(op.Mul(product, gamma), coef0), degree),
        "SIGMOID": lambda: op.Tanh(op.Add(op.Mul(product, gamma), coef0)),
        "RBF": lambda: op.Exp(op.Mul(squared_distances(op, x, v, product), -gamma)),
    }
    name = attribute(node, "kernel_type", "LINEAR")
    if name not in kernels:
        raise RewriteError(
            f"{node.op_type} (node {node.name!r}): unknown kernel {name!r}. {did_you_mean(name, kernels)}"
        )
    return kernels[name]()


def squared_distances(op: Any, x: ir.Value, v: ir.Value, product: ir.Value) -> ir.Value:
    """Return ``|x|^2 - 2 x v + |v|^2`` (N, V), not negative, for x (N, p), v (V, p) and their product."""
    xx = op.ReduceSumSquare(x, [1], keepdims=1)
    vv = op.ReduceSumSquare(v, [1], keepdims=0)
    return op.Max(op.Add(op.Sub(xx, op.Mul(product, 2.0)), vv), 0.0)


def _pair_coefficients(op: Any, node: ir.Node, per_class: np.ndarray) -> ir.Value:
    """Return the coefficients (V, pairs) of one against one from the dual ones (k - 1, V).

    The pair (i, j) takes row j - 1 for the vectors of class i and row i for those of class j.
    """
    dual = floats(node, "coefficients").reshape(len(per_class) - 1, -1)
    if len(dual) == 1:
        return weight(op, dual.T, "dual_coef")
    owner = np.repeat(np.arange(len(per_class)), per_class)
    pairs = list(combinations(range(len(per_class)), 2))
    used = np.zeros((*dual.shape, len(pairs)), dtype=bool)
    for p, (i, j) in enumerate(pairs):
        used[j - 1, owner == i, p] = True
        used[i, owner == j, p] = True
    spread = op.Mul(op.Unsqueeze(weight(op, dual, "dual_coef"), [2]), mask(op, used, "pairs"))
    return op.ReduceSum(spread, [0], keepdims=0)


def _as_vote(op: Any, z: ir.Value) -> ir.Value:
    """Return 1 for the first class of each pair and 0 for the second, in two halves (N, 2 pairs)."""
    first = op.Cast(op.Greater(z, 0.0), to=ir.DataType.FLOAT)
    return op.Concat(first, op.Sub(1.0, first), axis=1)


def _vote_matrix(n_classes: int) -> np.ndarray:
    pairs = list(combinations(range(n_classes), 2))
    votes = np.zeros((2 * len(pairs), n_classes), dtype=bool)
    for p, (i, j) in enumerate(pairs):
        votes[p, i] = votes[len(pairs) + p, j] = True
    return votes


def _probabilities(op: Any, node: ir.Node, z: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return Platt's probabilities of two classes, ``1 / (1 + exp(a z + b))`` for the first."""
    if len(classes) != 2:
        raise RewriteError(
            f"{node.op_type} (node {node.name!r}) couples the probabilities of {len(classes)} classes by an iteration "
            "that has no derivative here; convert with raw scores (decision_function) instead."
        )
    a, b = weight(op, floats(node, "prob_a"), "prob_a"), weight(op, floats(node, "prob_b"), "prob_b")
    p = op.Sigmoid(op.Neg(op.Add(op.Mul(z, a), b)))
    return op.Concat(p, op.Sub(1.0, p), axis=1)
