"""Rules of matrix products, Einsum, determinants, triangular matrices and distances.

``y = a @ b`` has ``da = dy @ b^T`` and ``db = a^T @ dy``. A vector is a matrix of
one row (on the left) or one column (on the right). Each gradient of an Einsum is an
Einsum of dy and the other operands.
"""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.broadcast import integers, known_rank, shape_of, sum_to
from onnxtrain.autodiff.registry import gradient_rule
from onnxtrain.errors import GradientError
from onnxtrain.graph import attribute, same_dimension


@gradient_rule("MatMul")
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


@gradient_rule("Gemm")
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


@gradient_rule("Trilu")
def trilu(op, node, dy):
    (_, *diagonal) = node.inputs
    return op.Trilu(dy, *diagonal, upper=attribute(node, "upper", 1))


@gradient_rule("Det")
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


# -------------------------------------------------------------------- Einsum


@gradient_rule("Einsum")
def einsum(op, node, dy):
    xs = node.inputs
    terms, result = explicit_terms(node)
    gradients = []
    for i, (x, term) in enumerate(zip(xs, terms, strict=True)):
        others = [(dy, result), *((v, t) for j, (v, t) in enumerate(zip(xs, terms, strict=True)) if j != i)]
        gradients.append(_contract(op, others, x, term))
    return gradients


def explicit_terms(node: ir.Node) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, with the ellipsis expanded.

    Raises
    ------
    GradientError
        A letter occurs twice in one operand: the operand's diagonal is taken.

    Examples
    --------
    >>> x = ir.val("x", ir.DataType.FLOAT, [2, 3, 4])
    >>> explicit_terms(ir.node("Einsum", [x, x], {"equation": "...i,...j"}))
    (['abi', 'abj'], 'abij')
    """
    equation = str(attribute(node, "equation")).replace(" ", "")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    operands = list(zip(node.inputs, terms, strict=True))
    dots = [known_rank(x, node) - len(t.replace("...", "")) for x, t in operands]
    free = "".join(letter for letter in ascii_letters if letter not in equation)[: max(dots)]
    counts = Counter(left.replace(",", "").replace(".", ""))
    if "->" not in equation:
        right = "..." + "".join(sorted(letter for letter, count in counts.items() if count == 1))
    terms = [t.replace("...", free[len(free) - n :]) for t, n in zip(terms, dots, strict=True)]
    for term in terms:
        if len(set(term)) < len(term):
            raise GradientError(
                f"Einsum (node {node.name!r}) takes a diagonal: {equation!r} names an axis of one operand twice. "
                "Its derivative is not supported. Take the diagonal with Gather or a mask."
            )
    return terms, right.replace("...", free)


def _contract(op, others, x, term):
    """Return the Einsum of `others` with the letters of `term`, the axes of x, in the shape of x."""
    known = "".join(letter for letter in term if any(letter in t for _, t in others))
    dims = {letter: _dimension(letter, others) for letter in term}
    dx = _product(op, others, known)
    dx.shape = ir.Shape([dims[letter] for letter in known])
    absent = [axis for axis, letter in enumerate(term) if letter not in known]
    dx = op.Unsqueeze(dx, absent) if absent else dx
    return sum_to(op, _stretched(op, dx, x, list(dims.values())), x)


def _product(op, factors, letters):
    """Return the Einsum of `factors` with these letters, a product where all factors but the first are scalars."""
    (product, first), *scalars = factors
    if first != letters or any(t for _, t in scalars):
        return op.Einsum(*(v for v, _ in factors), equation=f"{','.join(t for _, t in factors)}->{letters}")
    for factor, _ in scalars:
        product = op.Mul(product, factor)
    return product


def _stretched(op, dx, x, dims):
    """Return `dx` of lengths `dims`, expanded along axes on which x may be longer."""
    if all(same_dimension(a, b) or a == 1 for a, b in zip(x.shape, dims, strict=True)):
        return dx
    dx = op.Expand(dx, shape_of(op, x))
    dx.shape = ir.Shape([_longer(a, b) for a, b in zip(x.shape, dims, strict=True)])
    return dx


def _longer(a, b):
    """Return the length that two lengths broadcast to, None if it is unknown."""
    if b == 1 or same_dimension(a, b):
        return a
    return b if a == 1 else None


def _dimension(letter, others):
    """Return the length of an axis in the result, None if operands may broadcast along it."""
    dims = [v.shape[t.index(letter)] for v, t in others if letter in t]
    long = [dim for dim in dims if dim != 1]
    if not long:
        return 1
    first = next((dim for dim in long if isinstance(dim, int)), long[0])
    return first if isinstance(first, int) or all(same_dimension(dim, first) for dim in long) else None


@gradient_rule("CDist", domain="com.microsoft")
def cdist(op, node, dy):
    r"""For :math:`\sum_{ij} g_{ij} |a_i - b_j|^2`: :math:`\bar a_i = 2 (a_i \sum_j g_{ij} - \sum_j g_{ij} b_j)`."""
    a, b = node.inputs
    (y,) = node.outputs
    if attribute(node, "metric", "sqeuclidean") == "sqeuclidean":
        g = op.Mul(dy, 2.0)
    else:  # the derivative of the distance at 0 is taken as 0
        g = op.Where(op.Greater(y, 0.0), op.Div(dy, y), 0.0)
    da = op.Sub(op.Mul(a, op.ReduceSum(g, [1], keepdims=1)), op.MatMul(g, b))
    columns = op.Transpose(g, perm=[1, 0])
    return da, op.Sub(op.Mul(b, op.ReduceSum(columns, [1], keepdims=1)), op.MatMul(columns, a))
