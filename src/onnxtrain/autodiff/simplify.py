"""Peephole rewritings of a derived graph, applied until none matches.

Gradient rules follow the mathematics and leave redundant nodes. Here, a product by one is removed, an explicit Expand
is replaced by the broadcasting of the operator that reads it, and a Transpose becomes an attribute of the product that
reads it. Each rewriting is valid for all values, and bit for bit if no sum is reordered.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxtrain.graph import (
    WITHOUT_EFFECT,
    Op,
    Rewritings,
    alike,
    broadcasts_to,
    builder,
    constant,
    is_float,
    made_by,
    rank,
    rewrite_nodes,
    scalar,
    static_shape,
    tensor,
)

__all__ = ["simplify"]

TABLE = Rewritings(WITHOUT_EFFECT)
rewriting = TABLE.rule


def simplify(model: ir.Model, values: Sequence[ir.Value] = ()) -> list[ir.Value]:
    """Rewrite a graph in place and return the replacements of `values`.

    Parameters
    ----------
    model : onnx_ir.Model
        Values that change from run to run (weights in training) must be inputs:
        an initializer that is not an input counts as a constant.
    values : sequence of onnx_ir.Value
        Values that will become outputs of the graph.

    Returns
    -------
    list of onnx_ir.Value
        One per value of `values`, in order. Dead nodes are left in the graph;
        :func:`onnxtrain.graph.prune` removes them.
    """
    return rewrite_nodes(builder(model).op, model.graph, TABLE, values)


# ------------------------------------------------------------- broadcasting


def _target(expand: ir.Node) -> ir.Value | None:
    """Return the value whose shape an Expand targets, None if the target is not the output of a Shape."""
    shape = made_by(expand.inputs[1], "Shape")
    return None if shape is None or shape.attributes else shape.inputs[0]


@rewriting("Add", "Sub", "Mul", "Div", "Where", "Min", "Max", "Sum", "Pow")
def stretched_by_the_operator(op: Op, node: ir.Node) -> ir.Value | None:
    # a * Expand(b, Shape(a)) is a * b; the Expand is also superfluous if a has the full shape or a larger one
    (y,) = node.outputs
    for i, x in enumerate(node.inputs):
        expand = made_by(x, "Expand")
        others = [other for j, other in enumerate(node.inputs) if j != i]
        if expand is not None and any(_makes_up_for(other, expand, y) for other in others):
            node.replace_input_with(i, expand.inputs[0])
            return y
    return None


def _makes_up_for(x: ir.Value | None, expand: ir.Node, y: ir.Value) -> bool:
    """Whether broadcasting with `x` gives the shape of an Expand."""
    return alike(x, y) or alike(x, _target(expand)) or broadcasts_to(expand.outputs[0], x)


@rewriting("Expand")
def stretched_twice(op: Op, node: ir.Node) -> ir.Value | None:
    """Remove the first of two Expands if the target of the second is the whole shape of the result."""
    inner, (y,) = made_by(node.inputs[0], "Expand"), node.outputs
    if inner is None:
        return None
    numbers = constant(node.inputs[1])
    if not alike(_target(node), y) and (numbers is None or tuple(numbers) != static_shape(y)):
        return None
    node.replace_input_with(0, inner.inputs[0])
    return y


@rewriting("Expand", "Reshape", "Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "Tile")
def same_shape_as_before(op: Op, node: ir.Node) -> ir.Value | None:
    # A Reshape to the same shape changes nothing
    x = node.inputs[0]
    same = alike(x, node.outputs[0]) or (node.op_type == "Expand" and alike(x, _target(node)))
    return x if same else None


@rewriting("Reshape")
def reshape_of_reshape(op: Op, node: ir.Node) -> ir.Value | None:
    """Remove the first of two Reshapes, unless a 0 of the second copies a dimension of the first."""
    inner = made_by(node.inputs[0], "Reshape")
    target = constant(node.inputs[1])
    if inner is None or target is None or 0 in target:
        return None
    node.replace_input_with(0, inner.inputs[0])
    return node.outputs[0]


# ---------------------------------------------------------------- arithmetic


@rewriting("Mul")
def times_one(op: Op, node: ir.Node) -> ir.Value | None:
    for x, other in (node.inputs, node.inputs[::-1]):
        if scalar(other) == 1 and alike(x, node.outputs[0]):
            return x
    return None


@rewriting("Div")
def divided_by_one(op: Op, node: ir.Node) -> ir.Value | None:
    a, b = node.inputs
    return a if scalar(b) == 1 and alike(a, node.outputs[0]) else None


@rewriting("Mul")
def times_two_numbers(op: Op, node: ir.Node) -> ir.Value | None:
    """``(x * 2) * 3`` is ``x * 6``."""
    for x, other in (node.inputs, node.inputs[::-1]):
        inner, number = made_by(x, "Mul"), scalar(other)
        if inner is None or other is None or number is None:
            continue
        for source, factor in (inner.inputs, inner.inputs[::-1]):
            product = scalar(factor)
            if product is not None and factor is not None and rank(factor) == rank(other) == 0:
                return op.Mul(source, op.initializer(tensor(number * product, other.dtype, "factor")))
    return None


@rewriting("Neg")
def negated_twice(op: Op, node: ir.Node) -> ir.Value | None:
    inner = made_by(node.inputs[0], "Neg")
    return None if inner is None else inner.inputs[0]


@rewriting("Add")
def plus_negated(op: Op, node: ir.Node) -> ir.Value | None:
    # a + (-b) is a - b
    for a, b in (node.inputs, node.inputs[::-1]):
        inner = made_by(b, "Neg")
        if inner is not None:
            return op.Sub(a, inner.inputs[0])
    return None


@rewriting("Sub")
def minus_negated(op: Op, node: ir.Node) -> ir.Value | None:
    # a - (-b) is a + b
    a, b = node.inputs
    inner = made_by(b, "Neg")
    return None if inner is None else op.Add(a, inner.inputs[0])


# ------------------------------------------------------------- transpositions


def _permutation(node: ir.Node) -> list[int] | None:
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm.as_ints())
    axes = rank(node.inputs[0]) if node.inputs[0] is not None else None
    return None if axes is None else list(range(axes))[::-1]


@rewriting("Transpose")
def transposed_twice(op: Op, node: ir.Node) -> ir.Value | None:
    inner, outer = made_by(node.inputs[0], "Transpose"), _permutation(node)
    first = None if inner is None else _permutation(inner)
    if inner is None or first is None or outer is None:
        return None
    perm = [first[axis] for axis in outer]
    source = inner.inputs[0]
    return source if perm == sorted(perm) else op.Transpose(source, perm=perm)


@rewriting("Transpose")
def not_transposed(op: Op, node: ir.Node) -> ir.Value | None:
    perm = _permutation(node)
    return node.inputs[0] if perm is not None and perm == sorted(perm) else None


@rewriting("Gemm")
def transposed_by_gemm(op: Op, node: ir.Node) -> ir.Value | None:
    for i, name in enumerate(("transA", "transB")):
        inner = made_by(node.inputs[i], "Transpose")
        if inner is not None:
            flag = node.attributes.get_int(name, 0)
            node.attributes[name] = ir.AttrInt64(name, 1 - flag)
            node.replace_input_with(i, inner.inputs[0])
            return node.outputs[0]
    return None


@rewriting("MatMul")
def transposed_by_a_product(op: Op, node: ir.Node) -> ir.Value | None:
    operands = node.inputs  # only Gemm can transpose its operands
    if any(x is None or rank(x) != 2 for x in operands) or not any(made_by(x, "Transpose") for x in operands):
        return None
    return op.Gemm(*operands)


@rewriting("Add")
def added_by_gemm(op: Op, node: ir.Node) -> ir.Value | None:
    # a @ b + c is one Gemm if c does not broadcast the product
    for product, c in (node.inputs, node.inputs[::-1]):
        matmul = made_by(product, "MatMul")
        if matmul is None or product is None or len(product.uses()) > 1 or not is_float(product):
            continue
        if all(x is not None and rank(x) == 2 for x in matmul.inputs) and broadcasts_to(c, product):
            gemm = op.Gemm(*matmul.inputs, c)
            node.outputs[0].name, gemm.name = gemm.name, node.outputs[0].name  # an output of the model keeps its name
            return gemm
    return None
