"""Rules of matrix products, determinants and triangles.

``y = a @ b`` has ``da = dy @ b^T`` and ``db = a^T @ dy``. A vector is a matrix of
one row (on the left) or one column (on the right).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, known_rank, sum_to
from onnxtrain.autodiff.registry import attribute, gradient


@gradient("MatMul")
def matmul(op, node, dy):
    a, b = node.inputs
    row, column = known_rank(a, node) == 1, known_rank(b, node) == 1
    missing = [-2] * row + [-1] * column
    dy = op.Unsqueeze(dy, missing) if missing else dy
    left = op.Unsqueeze(a, [0]) if row else a
    right = op.Unsqueeze(b, [1]) if column else b
    da, db = _of_left(op, dy, left, right), _of_right(op, dy, left, right)
    return op.Squeeze(da, [0]) if row else da, op.Squeeze(db, [1]) if column else db


def _of_left(op, dy, a, b):
    """Return dy @ b^T, summed to the batch of a."""
    if len(a.shape) == len(b.shape) == 2:
        return op.Gemm(dy, b, transB=1)
    return _sum_batch(op, op.MatMul(dy, _transposed(op, b)), dy, a)


def _of_right(op, dy, a, b):
    """Return a^T @ dy, summed to the batch of b; for a matrix b the batch of a is flattened into rows."""
    if len(b.shape) == 2:
        return op.Gemm(_as_matrix(op, a), _as_matrix(op, dy), transA=1)
    return _sum_batch(op, op.MatMul(_transposed(op, a), dy), dy, b)


def _as_matrix(op, x):
    return x if len(x.shape) == 2 else op.Flatten(x, axis=-1)


def _transposed(op, x):
    n = len(x.shape)
    return op.Transpose(x, perm=[*range(n - 2), n - 1, n - 2])


def _sum_batch(op, product, dy, x):
    """Sum a product with dy over the batch axes along which x was broadcast."""
    product.shape = ir.Shape([*dy.shape[:-2], *x.shape[-2:]])
    return sum_to(op, product, x)


@gradient("Gemm")
def gemm(op, node, dy):
    a, b, c = (*node.inputs, None)[:3]
    alpha, beta = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    flip_a, flip_b = attribute(node, "transA", 0), attribute(node, "transB", 0)
    if flip_a:
        da = op.Gemm(b, dy, alpha=alpha, transA=flip_b, transB=1)
    else:
        da = op.Gemm(dy, b, alpha=alpha, transB=1 - flip_b)
    if flip_b:
        db = op.Gemm(dy, a, alpha=alpha, transA=1, transB=flip_a)
    else:
        db = op.Gemm(a, dy, alpha=alpha, transA=1 - flip_a)
    dc = None if c is None else sum_to(op, dy, c)
    return da, db, dc if dc is None or beta == 1.0 else op.Mul(dc, beta)


@gradient("Trilu")
def trilu(op, node, dy):
    (_, *diagonal) = node.inputs
    return op.Trilu(dy, *diagonal, upper=attribute(node, "upper", 1))


@gradient("Det")
def det(op, node, dy):
    """Return dy times the cofactors, which exist for a singular matrix too, unlike the inverse."""
    (x,) = node.inputs
    known_rank(x, node)
    n = next((n for n in x.shape[-2:] if isinstance(n, int)), None)
    dy = op.Unsqueeze(dy, [-2, -1])
    return dy if n == 1 else op.Mul(dy, _cofactors(op, x, n))


def _cofactors(op, x, n):
    """Return at [..., i, j] (-1)**(i + j) times the determinant of x without row i and column j."""
    rank = len(x.shape)
    others, signs = _others_and_signs(op, x) if n is None else _known_others_and_signs(op, x, n)
    rows = op.Gather(x, others, axis=rank - 2)  # [..., i, n - 1, n]
    minors = op.Gather(rows, others, axis=rank)  # [..., i, n - 1, j, n - 1]
    minors = op.Transpose(minors, perm=[*range(rank - 1), rank, rank - 1, rank + 1])
    return op.Mul(op.Det(minors), signs)


def _known_others_and_signs(op, x, n):
    """Return the indices of the other rows for each of n rows, (n, n - 1), and (-1)**(i + j), (n, n)."""
    others = integers(op, [[j for j in range(n) if j != i] for i in range(n)], "others")
    signs = np.fromfunction(lambda i, j: (-1.0) ** (i + j), (n, n))
    return others, op.initializer(ir.tensor(signs.tolist(), dtype=x.dtype, name="signs"))


def _others_and_signs(op, x):
    """Return the same for a number of rows known only at run time."""
    numbers = op.Range(0, op.Squeeze(op.Shape(x, start=-1), [0]), 1)
    i, j = op.Unsqueeze(numbers, [1]), op.Slice(numbers, [0], [-1])
    others = op.Add(j, op.Cast(op.GreaterOrEqual(j, i), to=ir.DataType.INT64))
    return others, op.CastLike(op.Sub(1, op.Mul(op.Mod(op.Add(i, numbers), 2), 2)), x)
