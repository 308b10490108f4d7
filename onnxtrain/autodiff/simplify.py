"""Equalities that make a derived graph lean: a table of small rewritings, applied until none fits.

A gradient rule writes what mathematics says; here a product by one disappears,
a stretched operand is stretched by the operator itself, a transposition becomes
an attribute of the product behind it. Each holds for all values, bit for bit
where no sum is reordered.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir

from onnxtrain.graph import builder, constant, is_float, rank, same_dimension, same_shape, static_shape, tensor

__all__ = ["simplify"]

#: What a rewriting finds for the first output of a node: another value, the same one where it
#: changed the node in place, None where it does not apply.
Rewriting: TypeAlias = Callable[[Any, ir.Node], "ir.Value | None"]

REWRITINGS: dict[str, list[Rewriting]] = defaultdict(list)


def simplify(model: ir.Model, values: Sequence[ir.Value] = ()) -> list[ir.Value]:
    """Rewrite a graph in place and return what now stands for `values`.

    Parameters
    ----------
    model : onnx_ir.Model
        What changes from run to run (weights in training) must be an input by
        then: an initializer that is none counts as a constant.
    values : sequence of onnx_ir.Value
        Values that will be used and are not outputs of the graph yet.

    Returns
    -------
    list of onnx_ir.Value
        One per value of `values`, in order. Nodes that nothing uses any more stay:
        :func:`onnxtrain.graph.prune` removes them.
    """
    op = builder(model).op
    instead: dict[ir.Value, ir.Value] = {}
    pending = deque(model.graph)
    while pending:
        node = pending.popleft()
        better = _rewrite(op, node)
        if better is None:
            continue
        y = node.outputs[0]
        if better is y:
            pending.appendleft(node)
            continue
        pending.extendleft(y.consumers())
        maker = better.producer()
        if maker is not None:
            pending.append(maker)
        ir.convenience.replace_all_uses_with(y, better, replace_graph_outputs=True)
        instead[y] = better
    return [_last(instead, value) for value in values]


def _rewrite(op: Any, node: ir.Node) -> ir.Value | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    for rewriting in REWRITINGS.get(node.op_type, ()):
        better = rewriting(op, node)
        if better is not None:
            return better
    return None


def _last(instead: dict[ir.Value, ir.Value], value: ir.Value) -> ir.Value:
    while value in instead:
        value = instead[value]
    return value


def rewriting(*op_types: str) -> Callable[[Rewriting], Rewriting]:
    """File a rewriting under the operators it looks at."""

    def decorate(function: Rewriting) -> Rewriting:
        for op_type in op_types:
            REWRITINGS[op_type].append(function)
        return function

    return decorate


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return the node that computes `value` if it is an `op_type`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op_type and node.domain in ("", "ai.onnx") else None


def _number(value: ir.Value | None) -> float | None:
    """Return the number that `value` always is, None where it is no constant of one element."""
    if value is None or math.prod(static_shape(value) or ()) != 1:
        return None
    array = constant(value)
    return None if array is None else float(array.reshape(()))


# ------------------------------------------------------------- broadcasting


def _target(expand: ir.Node) -> ir.Value | None:
    """Return the value to whose shape an Expand stretches, None where its target is not made by Shape."""
    shape = _made_by(expand.inputs[1], "Shape")
    return None if shape is None or shape.attributes else shape.inputs[0]


def _alike(a: ir.Value | None, b: ir.Value | None) -> bool:
    return a is not None and b is not None and (a is b or same_shape(a, b))


@rewriting("Add", "Sub", "Mul", "Div", "Where", "Min", "Max", "Sum", "Pow")
def stretched_by_the_operator(op: Any, node: ir.Node) -> ir.Value | None:
    # a * Expand(b, Shape(a)) is a * b
    (y,) = node.outputs
    for i, x in enumerate(node.inputs):
        expand = _made_by(x, "Expand")
        others = [other for j, other in enumerate(node.inputs) if j != i]
        if expand is not None and any(_alike(other, y) or _alike(other, _target(expand)) for other in others):
            node.replace_input_with(i, expand.inputs[0])
            return y
    return None


@rewriting("Expand")
def stretched_twice(op: Any, node: ir.Node) -> ir.Value | None:
    """Only the last stretching counts, where its target is the whole shape of the result."""
    inner, (y,) = _made_by(node.inputs[0], "Expand"), node.outputs
    if inner is None:
        return None
    numbers = constant(node.inputs[1])
    if not _alike(_target(node), y) and (numbers is None or tuple(numbers) != static_shape(y)):
        return None
    node.replace_input_with(0, inner.inputs[0])
    return y


@rewriting("Expand", "Reshape", "Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "Tile")
def same_shape_as_before(op: Any, node: ir.Node) -> ir.Value | None:
    # A change of shape to the same shape changes nothing
    x = node.inputs[0]
    same = _alike(x, node.outputs[0]) or (node.op_type == "Expand" and _alike(x, _target(node)))
    return x if same else None


@rewriting("Reshape")
def reshape_of_reshape(op: Any, node: ir.Node) -> ir.Value | None:
    """Only the last of two shapes counts, unless it copies a dimension of the first by a 0."""
    inner = _made_by(node.inputs[0], "Reshape")
    target = constant(node.inputs[1])
    if inner is None or target is None or 0 in target:
        return None
    node.replace_input_with(0, inner.inputs[0])
    return node.outputs[0]


# ---------------------------------------------------------------- arithmetic


@rewriting("Mul")
def times_one(op: Any, node: ir.Node) -> ir.Value | None:
    for x, other in (node.inputs, node.inputs[::-1]):
        if _number(other) == 1 and _alike(x, node.outputs[0]):
            return x
    return None


@rewriting("Div")
def divided_by_one(op: Any, node: ir.Node) -> ir.Value | None:
    a, b = node.inputs
    return a if _number(b) == 1 and _alike(a, node.outputs[0]) else None


@rewriting("Mul")
def times_two_numbers(op: Any, node: ir.Node) -> ir.Value | None:
    """``(x * 2) * 3`` is ``x * 6``."""
    for x, other in (node.inputs, node.inputs[::-1]):
        inner, number = _made_by(x, "Mul"), _number(other)
        if inner is None or other is None or number is None:
            continue
        for source, factor in (inner.inputs, inner.inputs[::-1]):
            product = _number(factor)
            if product is not None and factor is not None and rank(factor) == rank(other) == 0:
                return op.Mul(source, op.initializer(tensor(number * product, other.dtype, "factor")))
    return None


@rewriting("Neg")
def negated_twice(op: Any, node: ir.Node) -> ir.Value | None:
    inner = _made_by(node.inputs[0], "Neg")
    return None if inner is None else inner.inputs[0]


@rewriting("Add")
def plus_negated(op: Any, node: ir.Node) -> ir.Value | None:
    # a + (-b) is a - b
    for a, b in (node.inputs, node.inputs[::-1]):
        inner = _made_by(b, "Neg")
        if inner is not None:
            return op.Sub(a, inner.inputs[0])
    return None


@rewriting("Sub")
def minus_negated(op: Any, node: ir.Node) -> ir.Value | None:
    # a - (-b) is a + b
    a, b = node.inputs
    inner = _made_by(b, "Neg")
    return None if inner is None else op.Add(a, inner.inputs[0])


@rewriting("Cast")
def cast_to_the_same(op: Any, node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    return x if x is not None and x.dtype is not None and x.dtype == node.outputs[0].dtype else None


# ------------------------------------------------------------- transpositions


def _permutation(node: ir.Node) -> list[int] | None:
    perm = node.attributes.get("perm")
    if perm is not None:
        return list(perm.as_ints())
    axes = rank(node.inputs[0]) if node.inputs[0] is not None else None
    return None if axes is None else list(range(axes))[::-1]


@rewriting("Transpose")
def transposed_twice(op: Any, node: ir.Node) -> ir.Value | None:
    inner, outer = _made_by(node.inputs[0], "Transpose"), _permutation(node)
    first = None if inner is None else _permutation(inner)
    if inner is None or first is None or outer is None:
        return None
    perm = [first[axis] for axis in outer]
    source = inner.inputs[0]
    return source if perm == sorted(perm) else op.Transpose(source, perm=perm)


@rewriting("Transpose")
def not_transposed(op: Any, node: ir.Node) -> ir.Value | None:
    perm = _permutation(node)
    return node.inputs[0] if perm is not None and perm == sorted(perm) else None


@rewriting("Gemm")
def transposed_by_gemm(op: Any, node: ir.Node) -> ir.Value | None:
    for i, name in enumerate(("transA", "transB")):
        inner = _made_by(node.inputs[i], "Transpose")
        if inner is not None:
            flag = node.attributes.get_int(name, 0)
            node.attributes[name] = ir.AttrInt64(name, 1 - flag)
            node.replace_input_with(i, inner.inputs[0])
            return node.outputs[0]
    return None


@rewriting("MatMul")
def transposed_by_a_product(op: Any, node: ir.Node) -> ir.Value | None:
    operands = node.inputs  # only Gemm takes a matrix transposed as it is
    if any(x is None or rank(x) != 2 for x in operands) or not any(_made_by(x, "Transpose") for x in operands):
        return None
    return op.Gemm(*operands)


@rewriting("Add")
def added_by_gemm(op: Any, node: ir.Node) -> ir.Value | None:
    # a @ b + c is one Gemm where c does not stretch the product
    for product, c in (node.inputs, node.inputs[::-1]):
        matmul = _made_by(product, "MatMul")
        if matmul is None or product is None or len(product.uses()) > 1 or not is_float(product):
            continue
        if all(x is not None and rank(x) == 2 for x in matmul.inputs) and _stretched_by(c, product):
            gemm = op.Gemm(*matmul.inputs, c)
            node.outputs[0].name, gemm.name = gemm.name, node.outputs[0].name  # an output of the model keeps its name
            return gemm
    return None


def _stretched_by(c: ir.Value | None, product: ir.Value) -> bool:
    """Whether `c` is known to be stretched to the shape of `product`, and not the other way round."""
    if c is None or c.shape is None or product.shape is None or len(c.shape) > len(product.shape):
        return False
    pairs = zip(reversed(tuple(c.shape)), reversed(tuple(product.shape)), strict=False)
    return all(dim == 1 or same_dimension(dim, other) for dim, other in pairs)
