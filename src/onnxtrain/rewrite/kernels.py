"""SVMRegressor, SVMClassifier, pairwise distances: kernels as matrix products.

Support vectors and dual coefficients become initializers ``support_vectors``
(V, p) and ``dual_coef``. The kernel type and its gamma, coef0 and degree stay
constants. Source: the specification of ai.onnx.ml and Chang and Lin, LIBSVM, 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.graph import Op, attribute, loop, scan
from onnxtrain.registry import did_you_mean
from onnxtrain.rewrite.linear import affine, class_labels, labels_at, labels_of_best, post_transform
from onnxtrain.rewrite.registry import as_float, floats, mask, rewrite, weight


@rewrite("ai.onnx.ml", "SVMRegressor")
def svm_regressor(op, node):
    x = as_float(op, node.inputs[0])
    coef, rho = floats(node, "coefficients"), floats(node, "rho")
    if attribute(node, "n_supports", 0) > 0:
        k = kernel(op, node, x, floats(node, "support_vectors").reshape(len(coef), -1))
        dual = weight(op, coef.reshape(-1, 1), "dual_coef")
        z = op.Add(_sums(op, k, dual, len(coef), 1), weight(op, rho[:1], "intercept"))
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
    rho, dual = floats(node, "rho"), _pair_coefficients(op, node, per_class)
    z = op.Add(_sums(op, k, dual, per_class.sum(), len(rho)), weight(op, rho, "intercept"))
    labels = _labels(op, z, classes)
    if len(floats(node, "prob_a")):
        return labels, _probabilities(op, node, z, classes)
    scores = z if len(classes) > 2 else op.Concat(op.Neg(z), z, axis=1)
    return labels, post_transform(op, node, scores)


#: The columns that a tile of a matrix product has in onnxruntime; fewer take as long.
_TILE = 16


def _sums(op: Op, k: ir.Value, dual: ir.Value, n_vectors: int, n_sums: int) -> ir.Value:
    """Return ``k @ dual`` (N, n_sums), as sums of partial sums, from kernels (N, V) and coefficients (V, n_sums).

    The terms of a class have one sign and stand side by side. Added one after the other, they reach many times the
    result, and each addition rounds to the digits of the largest.
    """
    parts = _TILE // n_sums
    if parts < 2:
        return op.MatMul(k, dual)
    copies = np.repeat(np.eye(n_sums, dtype=bool), parts, axis=1)
    own = np.tile(np.arange(n_vectors)[:, None] % parts == np.arange(parts), n_sums)
    copied = op.Mul(op.MatMul(dual, mask(op, copies, "copies")), mask(op, own, "parts"))
    return op.MatMul(op.MatMul(k, copied), mask(op, copies.T, "sums"))


def _labels(op: Op, z: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return the class with the most votes; of two classes, the first if z > 0."""
    if len(classes) == 2:
        return labels_at(op, op.Squeeze(op.Cast(op.LessOrEqual(z, 0.0), to=ir.DataType.INT64), [1]), classes)
    votes = op.MatMul(_as_vote(op, z), mask(op, _vote_matrix(len(classes)), "votes"))
    return labels_of_best(op, votes, classes)


def kernel(op: Op, node: ir.Node, x: ir.Value, vectors: np.ndarray) -> ir.Value:
    """Return the kernel (N, V) between rows and support vectors."""
    gamma, coef0, degree = (float(v) for v in [*attribute(node, "kernel_params", ()), 0.0, 0.0, 0.0][:3])
    v = weight(op, vectors, "support_vectors")
    product = op.MatMul(x, op.Transpose(v, perm=[1, 0]))
    kernels = {
        "LINEAR": lambda: product,
        "POLY": lambda: op.Pow(op.Add(op.Mul(product, gamma), coef0), degree),
        "SIGMOID": lambda: op.Tanh(op.Add(op.Mul(product, gamma), coef0)),
        "RBF": lambda: op.Exp(op.Mul(_centered_distances(op, x, v, vectors, gamma), -gamma)),
    }
    name = attribute(node, "kernel_type", "LINEAR")
    if name not in kernels:
        raise RewriteError(
            f"{node.op_type} (node {node.name!r}): unknown kernel {name!r}. {did_you_mean(name, kernels)}"
        )
    return kernels[name]()


#: In float32 the expanded form of a distance is off by 1e-7 of the squared norms. If their product with gamma is larger
#: than this, the kernel would lose its sixth digit, and the slower sum of squared differences is computed.
_FAR = 16.0


def _centered_distances(op: Op, x: ir.Value, v: ir.Value, vectors: np.ndarray, gamma: float) -> ir.Value:
    """Return squared distances (N, V) from vectors (V, p), computed around their mean to reduce rounding."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    if gamma * np.square(vectors - mean).sum(axis=1).max(initial=0.0) > _FAR:
        return _sums_of_squares(op, x, v, *vectors.shape)
    center = op.Constant(value=ir.tensor(mean.astype(np.float32)))
    x, v = op.Sub(x, center), op.Sub(v, center)
    return squared_distances(op, x, v, op.MatMul(x, op.Transpose(v, perm=[1, 0])))


def _sums_of_squares(op: Op, x: ir.Value, v: ir.Value, n_vectors: int, n_features: int) -> ir.Value:
    """Return squared distances (N, V), summed feature by feature: an array (N, V, p) may not fit in memory."""

    def add(op: Op, sums: ir.Value, x: ir.Value, v: ir.Value) -> list[ir.Value]:
        difference = op.Sub(op.Unsqueeze(x, [1]), op.Unsqueeze(v, [0]))
        return [op.Add(sums, op.Mul(difference, difference))]

    zeros = op.Mul(op.MatMul(x, op.Transpose(v, perm=[1, 0])), 0.0)
    columns = [op.Transpose(array, perm=[1, 0]) for array in (x, v)]
    shapes = [["n", n_vectors], [n_features, "n"], [n_features, n_vectors]]
    for value, shape in zip([zeros, *columns], shapes, strict=True):
        value.shape, value.type = ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
    return scan(op, add, columns, [zeros])[0]


def squared_distances(op: Op, x: ir.Value, v: ir.Value, product: ir.Value) -> ir.Value:
    """Return ``|x|^2 - 2 x v + |v|^2`` (N, V), non-negative, for x (N, p), v (V, p) and their product."""
    xx = op.ReduceSumSquare(x, [1], keepdims=1)
    vv = op.ReduceSumSquare(v, [1], keepdims=0)
    return op.Max(op.Add(op.Sub(xx, op.Mul(product, 2.0)), vv), 0.0)


def _pair_coefficients(op: Op, node: ir.Node, per_class: np.ndarray) -> ir.Value:
    """Return the one-vs-one coefficients (V, pairs) from the dual coefficients (k - 1, V).

    The pair (i, j) takes row j - 1 for the vectors of class i and row i for the vectors of class j.
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


def _as_vote(op: Op, z: ir.Value) -> ir.Value:
    """Return 1 for the first class of each pair and 0 for the second, in two halves (N, 2 pairs)."""
    first = op.Cast(op.Greater(z, 0.0), to=ir.DataType.FLOAT)
    return op.Concat(first, op.Sub(1.0, first), axis=1)


def _vote_matrix(n_classes: int) -> np.ndarray:
    pairs = list(combinations(range(n_classes), 2))
    votes = np.zeros((2 * len(pairs), n_classes), dtype=bool)
    for p, (i, j) in enumerate(pairs):
        votes[p, i] = votes[len(pairs) + p, j] = True
    return votes


#: libsvm clips the probability of each pair to this distance from 0 and 1.
_MIN_OF_PAIR = 1e-7


def _probabilities(op: Op, node: ir.Node, z: ir.Value, classes: np.ndarray) -> ir.Value:
    """Return Platt's probabilities, ``r = 1 / (1 + exp(a z + b))`` for the first class of each pair."""
    a, b = weight(op, floats(node, "prob_a"), "prob_a"), weight(op, floats(node, "prob_b"), "prob_b")
    r = op.Sigmoid(op.Neg(op.Add(op.Mul(z, a), b)))
    return _coupled(op, r, len(classes))


#: libsvm iterates until Q p differs from p^T Q p by less than the first number over the number of classes, and for at
#: most the second number of sweeps.
_RESIDUAL, _MOST_SWEEPS = 0.005, 100


def _coupled(op: Op, r: ir.Value, k: int) -> ir.Value:
    r"""Return class probabilities (N, k) from the probabilities (N, pairs) of the first class of each pair.

    They minimize :math:`\sum_{i<j} (r_{ji} p_i - r_{ij} p_j)^2 = p^T Q p` subject to :math:`\sum_i p_i = 1`, up to the
    residual of 0.005 / k at which libsvm stops its iteration.

    References
    ----------
    Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling", JMLR 2004.
    """
    pairs = list(combinations(range(k), 2))
    place = np.zeros((2 * len(pairs), k * k), dtype=bool)
    for i, (first, second) in enumerate(pairs):
        place[i, first * k + second] = place[len(pairs) + i, second * k + first] = True
    r = op.Clip(r, _MIN_OF_PAIR, 1 - _MIN_OF_PAIR)
    r = op.Reshape(op.MatMul(op.Concat(r, op.Sub(1.0, r), axis=1), mask(op, place, "pairs")), [-1, k, k])
    squares = op.ReduceSumSquare(r, [1], keepdims=1)
    q = op.Sub(op.Mul(squares, mask(op, np.eye(k), "diagonal")), op.Mul(r, op.Transpose(r, perm=[0, 2, 1])))
    start = op.Add(op.Mul(op.Transpose(squares, perm=[0, 2, 1]), 0.0), 1.0 / k)
    (p,) = loop(op, _sweep(op, q, k), [start], at_most=_MOST_SWEEPS)
    return op.Softmax(op.Log(op.Squeeze(p, [2])), axis=-1)  # p, whose sum is one; as a Softmax it has known scores


def _sweep(op: Op, q: ir.Value, k: int) -> Callable[[Op, ir.Value], list[ir.Value]]:
    """Return p (N, k, 1) after one sweep of libsvm's iteration, a minimization over each probability in turn."""
    unit = [mask(op, np.eye(k)[:, [t]], "unit") for t in range(k)]
    curvature = [op.Gather(op.Gather(q, [t], axis=1), [t], axis=2) for t in range(k)]

    def sweep(op: Op, p: ir.Value) -> list[ir.Value]:
        slope, value = _slope(op, q, p)
        residual = op.ReduceMax(op.Abs(op.Sub(slope, value)), [1], keepdims=1)
        goes_on = op.GreaterOrEqual(residual, _RESIDUAL / k)
        moved = p
        for t in range(k):
            slope, value = _slope(op, q, moved)
            step = op.Div(op.Sub(value, op.Gather(slope, [t], axis=1)), curvature[t])
            moved = op.Div(op.Add(moved, op.Mul(step, unit[t])), op.Add(step, 1.0))
        some = op.ReduceMax(op.Cast(goes_on, to=ir.DataType.INT32), keepdims=0)
        return [op.Cast(some, to=ir.DataType.BOOL), op.Where(goes_on, moved, p)]

    return sweep


def _slope(op: Op, q: ir.Value, p: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return ``Q p`` (N, k, 1) and ``p^T Q p`` (N, 1, 1)."""
    slope = op.MatMul(q, p)
    return slope, op.ReduceSum(op.Mul(p, slope), [1], keepdims=1)


# ----------------------------------------------------------------- distances

#: The output of these operators is no longer a distance.
_ENDS = frozenset({"Exp", "MatMul", "Gemm", "Pow"})


@rewrite("", "Scan")
def distances(op, node):
    """Replace the Scan over rows that skl2onnx writes for pairwise distances by matrix products."""
    body = attribute(node, "body")
    if attribute(node, "num_scan_inputs") != 1 or len(node.inputs) != 2:
        return None
    if [n.op_type for n in body if n.op_type not in ("Identity", "Constant")] != ["Sub", "ReduceSumSquare"]:
        return None
    v, x = node.inputs  # the state, passed on unchanged, and the rows
    if len(node.outputs) != 2 or node.outputs[0].uses() or node.outputs[0].is_graph_output():
        return None
    if _square_root_follows(node.outputs[1]):  # the square root of a difference near zero would lose half its digits
        difference = op.Sub(op.Unsqueeze(x, [1]), op.Unsqueeze(v, [0]))
        return v, op.ReduceSumSquare(difference, [2], keepdims=0)
    return v, squared_distances(op, x, v, op.MatMul(x, op.Transpose(v, perm=[1, 0])))


def _square_root_follows(value: ir.Value) -> bool:
    seen: set[ir.Node] = set()
    todo = [value]
    while todo:
        for node in todo.pop().consumers():
            if node.op_type == "Sqrt":
                return True
            if node.op_type not in _ENDS and node not in seen:
                seen.add(node)
                todo += node.outputs
    return False
