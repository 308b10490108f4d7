"""The rule of Einsum: each gradient is an Einsum of dy and the other operands."""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

import onnx_ir as ir

from onnxtrain.autodiff.broadcast import known_rank, shape_of, sum_to
from onnxtrain.autodiff.registry import attribute, gradient
from onnxtrain.errors import GradientError
from onnxtrain.graph import same_dimension


@gradient("Einsum")
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
                "Its derivative is not supported; take the diagonal by Gather or by a mask."
            )
    return terms, right.replace("...", free)


def _contract(op, others, x, term):
    """Return the Einsum of `others` with the letters of `term`, the axes of x, in the shape of x."""
    known = "".join(letter for letter in term if any(letter in t for _, t in others))
    if all(not t for _, t in others[1:]) and others[0][1] == known:
        dx = others[0][0]
        for other, _ in others[1:]:
            dx = op.Mul(dx, other)
    else:
        dx = op.Einsum(*(v for v, _ in others), equation=f"{','.join(t for _, t in others)}->{known}")
    dims = [_dimension(letter, others) for letter in term]
    dx.shape = ir.Shape([dim for letter, dim in zip(term, dims, strict=True) if letter in known])
    absent = [axis for axis, letter in enumerate(term) if letter not in known]
    dx = op.Unsqueeze(dx, absent) if absent else dx
    if not all(same_dimension(a, b) or a == 1 for a, b in zip(x.shape, dims, strict=True)):
        dx = op.Expand(dx, shape_of(op, x))  # either of x and dx may be the longer one
        longer = [
            a if b == 1 or same_dimension(a, b) else b if a == 1 else None for a, b in zip(x.shape, dims, strict=True)
        ]
        dx.shape = ir.Shape(longer)
    return sum_to(op, dx, x)


def _dimension(letter, others):
    """Return the length of an axis in the result, None if operands may broadcast along it."""
    dims = [v.shape[t.index(letter)] for v, t in others if letter in t]
    long = [dim for dim in dims if dim != 1]
    if not long:
        return 1
    first = next((dim for dim in long if isinstance(dim, int)), long[0])
    return first if isinstance(first, int) or all(same_dimension(dim, first) for dim in long) else None
