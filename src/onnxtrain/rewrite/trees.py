"""TreeEnsembleRegressor, TreeEnsembleClassifier: the splits are kept, the leaf values become weights.

The node is kept with another payload: one column per tree with the index of the leaf into which a row falls. The leaf
values become an initializer ``leaf_values`` (leaves, k), from which rows are gathered. Leaves are indexed by tree, then
by node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.graph import Op, attribute
from onnxtrain.rewrite.linear import class_labels, labels_of_best, labels_of_sign, post_transform
from onnxtrain.rewrite.registry import buffer, floats, mask, rewrite, weight

#: float32 represents all integers up to this one.
_MOST_LEAVES = 2**24


@dataclass(frozen=True)
class Leaves:
    """The leaf values of a tree ensemble.

    Attributes
    ----------
    values : ndarray of shape (leaves, k)
    given : ndarray of shape (leaves, k)
        The mask of the values that a leaf has.
    tree, node : ndarray of shape (leaves,)
        The ids of the tree and of the node.
    column : ndarray of shape (leaves,)
        The index of the tree.
    """

    values: np.ndarray
    given: np.ndarray
    tree: np.ndarray
    node: np.ndarray
    column: np.ndarray

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return int(self.column.max()) + 1


@rewrite("ai.onnx.ml", "TreeEnsembleRegressor")
def tree_ensemble_regressor(op, node):
    leaves = read_leaves(node, "target", attribute(node, "n_targets", 1))
    aggregate = attribute(node, "aggregate_function", "SUM")
    z = sum_of_leaves(op, leaf_indices(op, node, leaves), leaves, aggregate)
    return post_transform(op, node, _add_base(op, z, floats(node, "base_values")))


@rewrite("ai.onnx.ml", "TreeEnsembleClassifier")
def tree_ensemble_classifier(op, node):
    classes = class_labels(node)
    leaves = read_leaves(node, "class", len(classes))
    index = leaf_indices(op, node, leaves)
    base = floats(node, "base_values")
    shares = _shares(leaves) if attribute(node, "post_transform", "NONE") == "NONE" and not base.any() else None
    if shares is not None:
        z = _mean_of_probabilities(op, index, leaves, shares)
        return labels_of_best(op, z, classes), z
    # of two opposite columns only one is trained; otherwise probabilities would no longer sum to one
    scored = [1] if _are_opposite(node, leaves) and not base.any() else np.flatnonzero(leaves.given.any(axis=0))
    if len(classes) == 2 and len(scored) == 1:
        one = Leaves(leaves.values[:, scored], leaves.given[:, scored], leaves.tree, leaves.node, leaves.column)
        z = _add_base(op, sum_of_leaves(op, index, one, "SUM"), base[-1:])
        return _one_score(op, node, z, classes, positive=bool(np.all(one.values >= 0)))
    z = _add_base(op, sum_of_leaves(op, index, leaves, "SUM"), base)
    return labels_of_best(op, z, classes), post_transform(op, node, z)


@rewrite("ai.onnx.ml", "TreeEnsemble")
def tree_ensemble(op, node):
    """Rewrite the operator of ai.onnx.ml 5: each leaf has its own index and one target."""
    if attribute(node, "post_transform", 0):
        raise RewriteError(
            f"TreeEnsemble (node {node.name!r}) has post_transform={attribute(node, 'post_transform')}, but 1 is "
            "SOFTMAX in the specification and LOGISTIC in onnxruntime. Set it to 0 and add the intended operator."
        )
    weights = attribute(node, "leaf_weights").numpy()
    leaf, target = np.arange(len(weights)), np.asarray(attribute(node, "leaf_targetids"))
    values, given = np.zeros((2, len(weights), attribute(node, "n_targets")), np.float32)
    values[leaf, target], given[leaf, target] = weights, 1
    column = _trees_of_leaves(node, len(weights))
    leaves = Leaves(values, given.astype(bool), column, leaf, column)
    kept = ("tree_roots", "membership_values")
    splits = {n: a for n, a in node.attributes.items() if n.startswith("nodes_") or n in kept}
    payload = {"leaf_targetids": column.tolist(), "leaf_weights": ir.tensor(leaf.astype(weights.dtype))}
    version = op.builder.graph.opset_imports[node.domain]
    found = op.TreeEnsemble(
        node.inputs[0], **splits, **payload, n_targets=leaves.n_trees, _domain=node.domain, _version=version
    )
    index = _as_indices(op, found, node.inputs[0], leaves)
    return sum_of_leaves(op, index, leaves, _AGGREGATES[attribute(node, "aggregate_function", 1)])


#: Since ai.onnx.ml 5 the aggregate is an index into these.
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def _trees_of_leaves(node: ir.Node, n_leaves: int) -> np.ndarray:
    """Return the index of the tree of each leaf, found by a walk from the roots."""
    column = np.zeros(n_leaves, dtype=np.int64)
    branches = [
        (np.asarray(attribute(node, f"nodes_{side}nodeids")), np.asarray(attribute(node, f"nodes_{side}leafs")))
        for side in ("true", "false")
    ]
    for tree, root in enumerate(attribute(node, "tree_roots")):
        pending = [root]
        while pending:
            i = pending.pop()
            for child, is_leaf in branches:
                if is_leaf[i]:
                    column[child[i]] = tree
                else:
                    pending.append(int(child[i]))
    return column


def read_leaves(node: ir.Node, kind: str, k: int) -> Leaves:
    """Return the leaves of a node, from ``{kind}_ids``, ``{kind}_weights``, ..."""
    keys = np.stack([np.asarray(attribute(node, f"{kind}_{what}", ())) for what in ("treeids", "nodeids")], axis=1)
    unique, leaf = np.unique(keys, axis=0, return_inverse=True)
    if len(unique) >= _MOST_LEAVES:
        raise RewriteError(
            f"{node.op_type} (node {node.name!r}) has {len(unique)} leaves, but the maximum is {_MOST_LEAVES - 1}."
        )
    target = np.asarray(attribute(node, f"{kind}_ids"))
    values, given = np.zeros((len(unique), k), np.float32), np.zeros((len(unique), k), bool)
    np.add.at(values, (leaf.reshape(-1), target), floats(node, f"{kind}_weights"))
    given[leaf.reshape(-1), target] = True
    return Leaves(values, given, unique[:, 0], unique[:, 1], np.unique(unique[:, 0], return_inverse=True)[1])


def leaf_indices(op: Op, node: ir.Node, leaves: Leaves) -> ir.Value:
    """Return, for each tree, the index of the leaf into which a row falls, int64 (N, trees)."""
    splits = {name: a for name, a in node.attributes.items() if name.startswith("nodes_")}
    number = np.arange(len(leaves.tree), dtype=np.float32)
    double = any(name.endswith("_as_tensor") for name in splits)
    payload: dict[str, Any] = {
        "n_targets": leaves.n_trees,
        "target_ids": leaves.column.tolist(),
        "target_treeids": leaves.tree.tolist(),
        "target_nodeids": leaves.node.tolist(),
    }
    if double:
        payload["target_weights_as_tensor"] = ir.tensor(number.astype(np.float64))
    else:
        payload["target_weights"] = number.tolist()
    found = op.TreeEnsembleRegressor(
        node.inputs[0], **payload, **splits, _domain=node.domain, _version=op.builder.graph.opset_imports[node.domain]
    )
    found.dtype = ir.DataType.FLOAT
    return _as_indices(op, found, node.inputs[0], leaves)


def _as_indices(op: Op, found: ir.Value, x: ir.Value | None, leaves: Leaves) -> ir.Value:
    rows = x.shape[0] if x is not None and x.shape is not None else None
    found.shape = ir.Shape([rows, leaves.n_trees])
    return op.Cast(found, to=ir.DataType.INT64)


def sum_of_leaves(op: Op, index: ir.Value, leaves: Leaves, aggregate: str) -> ir.Value:
    """Return the values (N, k) of the leaves, aggregated over the trees."""
    columns = _one_target_each(leaves)
    if columns is not None and aggregate in ("SUM", "AVERAGE"):
        # a tree with one target has one value per leaf, not k
        values = weight(op, leaves.values[np.arange(len(leaves.tree)), leaves.given.argmax(axis=1)], "leaf_values")
        z = op.MatMul(op.Gather(values, index, axis=0), mask(op, columns, "targets"))
        return op.Div(z, float(leaves.n_trees)) if aggregate == "AVERAGE" else z
    leaf_values = weight(op, leaves.values, "leaf_values")
    if not leaves.given.all():  # targets without a value in a leaf stay zero
        leaf_values = op.Mul(leaf_values, mask(op, leaves.given, "given"))
    reductions = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    return getattr(op, reductions[aggregate])(op.Gather(leaf_values, index, axis=0), [1], keepdims=0)


def _one_target_each(leaves: Leaves) -> np.ndarray | None:
    """Return the target of each tree as a mask (trees, k), None if a tree has several targets."""
    k = leaves.values.shape[1]
    if k == 1 or not np.all(leaves.given.sum(axis=1) == 1):
        return None
    target = leaves.given.argmax(axis=1)
    columns = np.zeros((leaves.n_trees, k), bool)
    columns[leaves.column, target] = True
    return columns if np.all(columns.sum(axis=1) == 1) else None


def _shares(leaves: Leaves) -> np.ndarray | None:
    """Return the weight of each tree (trees,) in the probabilities of a row, None if leaves hold no probabilities.

    They hold probabilities if no value is negative and all leaves of a tree have the same sum. With two classes, one
    class may be omitted; all trees then have equal weights, or weights in proportion to their largest leaf.
    """
    values, scored = leaves.values.astype(np.float64), leaves.given.any(axis=0)
    if values.shape[1] < 2 or np.any(values < 0):
        return None
    if values.shape[1] == 2 and scored.sum() == 1:
        largest = _largest_of_trees(leaves, values.sum(axis=1))
        if np.all(largest <= _SUMS_UP / leaves.n_trees):
            return np.full(leaves.n_trees, 1 / leaves.n_trees)
        return largest / largest.sum() if 0 < largest.sum() <= _SUMS_UP else None
    if _one_target_each(leaves) is not None:  # one-vs-rest scores
        return None
    sums = values.sum(axis=1)
    shares = _largest_of_trees(leaves, sums)
    return shares if np.all(shares > 0) and np.allclose(sums, shares[leaves.column], rtol=_SUMS_UP - 1) else None


#: A bound of the float32 sum of values that sum to one.
_SUMS_UP = 1 + 1e-5


def _largest_of_trees(leaves: Leaves, values: np.ndarray) -> np.ndarray:
    """Return the largest of `values` (leaves,) in each tree."""
    largest = np.zeros(leaves.n_trees)
    np.maximum.at(largest, leaves.column, values)
    return largest


def _mean_of_probabilities(op: Op, index: ir.Value, leaves: Leaves, shares: np.ndarray) -> ir.Value:
    """Return the class probabilities (N, k), the mean over the leaves weighted by the shares of their trees.

    The leaves are parametrized by :func:`probabilities_of`, so they stay probabilities.
    """
    values, scored = leaves.values.astype(np.float64), leaves.given.any(axis=0)
    if scored.sum() == 1:
        second = values.sum(axis=1)  # whichever class it is stored for
        values = np.stack([np.maximum(shares[leaves.column] - second, 0), second], axis=1)
    p = op.Gather(probabilities_of(op, weight(op, to_free(values), "leaf_values")), index, axis=0)
    if np.allclose(shares, 1 / leaves.n_trees, rtol=_SUMS_UP - 1):
        return _rounded(op, op.ReduceMean(p, [1], keepdims=0), values.shape[1])
    shares = shares.astype(np.float32).reshape(-1, 1)
    return op.ReduceSum(op.Mul(p, op.Constant(value=ir.tensor(shares))), [1], keepdims=0)


def _rounded(op: Op, p: ir.Value, k: int) -> ir.Value:
    """Return the mean probabilities of k classes, rounded, with derivative 1.

    A float32 sum depends on the order of the trees, so two classes with half of the trees each would not be a tie. In
    float32, a sum with 4 is a multiple of 2**-21; the floor of a probability is not rounded to 0.
    """
    shift = 2.0 ** math.floor(math.log2(_FLOOR / k * 2**24))
    return op.Sub(op.Add(p, shift), shift)


def _add_base(op: Op, z: ir.Value, base: np.ndarray) -> ir.Value:
    if not len(base):
        return z
    return op.Add(z, buffer(op, base, "base_values"))


def _are_opposite(node: ir.Node, leaves: Leaves) -> bool:
    """Whether the columns of two classes are the Sigmoid of -z and of z, as CatBoost writes them."""
    two = attribute(node, "post_transform", "NONE") == "LOGISTIC" and leaves.values.shape[1] == 2
    return two and np.array_equal(leaves.values[:, 0], -leaves.values[:, 1])


def _one_score(op: Op, node: ir.Node, z: ir.Value, classes: np.ndarray, *, positive: bool) -> tuple[ir.Value, ir.Value]:
    """Return the label and the scores of two classes from the score (N, 1) of the second."""
    transform = attribute(node, "post_transform", "NONE")
    if transform == "LOGISTIC":
        p = op.Sigmoid(z)
        return labels_of_sign(op, z, classes), op.Concat(op.Sub(1.0, p), p, axis=1)
    if positive:  # the score is a probability
        return labels_of_sign(op, op.Sub(z, 0.5), classes), op.Concat(op.Sub(1.0, z), z, axis=1)
    return labels_of_sign(op, z, classes), post_transform(op, node, op.Concat(op.Neg(z), z, axis=1))


# ------------------------------------------------- probabilities of the leaves

#: The sum of the floors of zero probabilities, which bounds the error of a round trip.
_FLOOR = 5e-7


def probabilities_of(op: Op, w: ir.Value) -> ir.Value:
    r"""Return the probabilities (n, k) of unconstrained parameters w.

    .. math:: p_j = \frac{(1 + w_j)^2}{\sum_i (1 + w_i)^2}

    w = 0 gives equal probabilities. Many probabilities in leaves of trees are exactly 0 and must be trainable. The
    derivative at p is proportional to :math:`\sqrt p`, and the derivative of a softmax to p. With a negligible floor of
    2.5e-7 for two classes, the derivative of a softmax would be 2,000 times smaller, and a pure leaf would stay pure.
    """
    u = op.Add(w, 1.0)
    squares = op.Mul(u, u)
    return op.Div(squares, op.ReduceSum(squares, [1], keepdims=1))


def to_free(p: np.ndarray) -> np.ndarray:
    """Return w (..., k), float64, for probabilities (..., k) up to a common factor."""
    k = p.shape[-1]
    p = np.maximum(np.asarray(p, dtype=np.float64) / p.sum(axis=-1, keepdims=True, dtype=np.float64), _FLOOR / k)
    return np.sqrt(k * p / p.sum(axis=-1, keepdims=True)) - 1


def to_simplex(w: np.ndarray) -> np.ndarray:
    """Return the probabilities (..., k) for w."""
    squares = (1 + np.asarray(w, dtype=np.float64)) ** 2
    return squares / squares.sum(axis=-1, keepdims=True)
