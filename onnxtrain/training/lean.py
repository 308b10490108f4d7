"""The same numbers from fewer or cheaper nodes, for graphs that are run very often."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import constant, inner_builder, rank, same_dimension, same_shape, static_shape, tensor

_BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div", "Where"})
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"})

#: Numbers from which on two operators take less than Sign.
_MANY = 1000

#: The largest number of a type whose smallest ones of full precision it multiplies to more than 1.
_LARGEST = {dtype: float(np.finfo(dtype.numpy()).max) for dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)}

#: Numbers up to which Gemm is faster than two operators where it does more than add what it multiplies.
_SHORT = 4000

#: Numbers above which Gemm takes longer to copy what it starts from, in one thread, than Add in several.
_SMALL = 2**14


def make_lean(op: Any, graph: ir.Graph, column: ir.Value, ones: ir.Value | None = None) -> None:
    """Rewrite, in place, what onnxruntime is slow at.

    Parameters
    ----------
    op : onnxscript builder
        Appends to `graph`, whose order of nodes is lost.
    graph : onnx_ir.Graph
    column : onnx_ir.Value
        Some value of shape (n, 1), n the rows of the batch.
    ones : onnx_ir.Value, optional
        A value of shape (1, n) that holds ones, where there is one.
    """
    for node in list(graph):  # sums first: what is one number a row then may be one number for all of them
        if node.op_type == "ReduceSum" and not _skip_sum_of_scattered(node) and _sums_rows(node, column):
            ones = _ones_for(op, column) if ones is None else ones
            _sum_by_product(op, node, ones)
    for node in list(graph):
        if node.op_type == "Expand":
            _skip_expand(op, node)
        elif node.op_type == "Where":
            _choose_by_sign(op, node)
            _mask_by_product(op, node)
        elif node.op_type == "Mul":
            _skip_one(node)
        elif node.op_type == "Sub":
            _scatter_into_the_rest(op, node)
        elif node.op_type in ("Add", "Sum"):
            _add_to_product(op, node)
    numbers: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.op_type == "ReduceSum":
            _sum_at_once(op, node)
        elif node.op_type in _BROADCASTING | _COMPARING and same_shape(node.outputs[0], column):
            _let_numbers_meet_columns(op, node, numbers)


def signs_by_bounds(op: Any, graph: ir.Graph) -> None:
    """Compute, in place, the signs of many numbers by Clip: onnxruntime's Sign takes four times as long on a CPU.

    They are multiplied by the largest number there is before, which leaves between -1 and 1
    those alone that are nearer to 0 than any number of full precision.
    """
    for inner in graph.subgraphs():
        _signs_by_bounds(inner_builder(op, inner), inner)
    _signs_by_bounds(op, graph)


def _signs_by_bounds(op: Any, graph: ir.Graph) -> None:
    for node in list(graph):
        if node.op_type != "Sign":
            continue
        (x,), (y,) = node.inputs, node.outputs
        shape = None if x is None else static_shape(x)
        if x is None or shape is None or math.prod(shape) < _MANY or x.dtype not in _LARGEST or y.is_graph_output():
            continue
        sign = op.Clip(op.Mul(x, _LARGEST[x.dtype]), -1.0, 1.0)
        sign.type, sign.shape = y.type, y.shape
        ir.convenience.replace_all_uses_with(y, sign)


def lines_by_product(op: Any, graph: ir.Graph) -> None:
    """Compute, in place, rows and columns by one Gemm where they take two operators.

    These are number * line + rest, such as a decaying average, and, where the line is short, rest - number * line,
    such as a step down a gradient, and the sum of the products of two lines.
    """
    for node in list(graph):
        if node.op_type in ("Add", "Sub"):
            _move_line(op, node)
        elif node.op_type == "ReduceSum":
            _multiply_lines(op, node)


def _move_line(op: Any, node: ir.Node) -> None:
    (y,) = node.outputs
    if not _is_line(y, math.inf if node.op_type == "Add" else _SHORT):
        return
    pairs = [tuple(node.inputs)] if node.op_type == "Sub" else [tuple(node.inputs), tuple(node.inputs[::-1])]
    for rest, moved in pairs:
        product = None if moved is None else moved.producer()
        if rest is None or product is None or product.op_type != "Mul":
            continue
        for line, number in (product.inputs, product.inputs[::-1]):
            factor = _as_matrix(op, number)
            if factor is not None and line is not None and same_shape(line, y) and same_shape(rest, y):
                _make_gemm(node, *((factor, line) if y.shape[0] == 1 else (line, factor)), rest)  # type: ignore[index]
                return


def _make_gemm(node: ir.Node, *inputs: ir.Value) -> None:
    """Let the node of Add or Sub be one of Gemm, whose output others know."""
    if node.op_type == "Sub":
        node.attributes["alpha"] = ir.AttrFloat32("alpha", -1.0)
    node.op_type = "Gemm"
    node.resize_inputs(len(inputs))
    for i, x in enumerate(inputs):
        node.replace_input_with(i, x)


def _multiply_lines(op: Any, node: ir.Node) -> None:
    x, (y,) = node.inputs[0], node.outputs
    product = None if x is None else x.producer()
    if x is None or product is None or product.op_type != "Mul" or static_shape(y) != (1, 1) or not _is_line(x, _SHORT):
        return
    a, b = product.inputs
    if a is not None and b is not None and same_shape(a, x) and same_shape(b, x):
        side = "transB" if x.shape[0] == 1 else "transA"  # type: ignore[index]
        total = op.Gemm(a, b, **{side: 1})
        ir.convenience.replace_all_uses_with(y, total)


def _is_line(x: ir.Value, most: float) -> bool:
    """Whether a value is a row or a column of so many numbers at most, of a type that Gemm knows."""
    shape = static_shape(x)
    return x.dtype in _LARGEST and shape is not None and len(shape) == 2 and 1 in shape and math.prod(shape) <= most


def _as_matrix(op: Any, number: ir.Value | None) -> ir.Value | None:
    """Return a number as (1, 1), None where it is none or takes an operator."""
    if number is None or static_shape(number) == (1, 1):
        return number
    value = constant(number)
    return None if value is None or value.size != 1 else _one_by_one(op, number)


def _skip_expand(op: Any, node: ir.Node) -> None:
    """Let operators that broadcast take the small operand, where another one has the full shape or more."""
    small, (large,) = node.inputs[0], node.outputs
    for user, position in tuple(large.uses()):
        others = [x for i, x in enumerate(user.inputs) if i != position and x is not None]
        if user.op_type in _BROADCASTING and any(_covers(x, large) for x in others):
            user.replace_input_with(position, small)
        elif user.op_type == "Neg" and _typed(*node.inputs) and not user.outputs[0].is_graph_output():
            stretched = op.Expand(op.Neg(small), node.inputs[1])
            stretched.type, stretched.shape = large.type, large.shape
            ir.convenience.replace_all_uses_with(user.outputs[0], stretched)
            _skip_expand(op, stretched.producer())


def _typed(*values: ir.Value | None) -> bool:
    """Whether the types of values are known: the gradient of another builder does not tell all of them."""
    return all(v is not None and v.dtype is not None for v in values)


def _covers(x: ir.Value, other: ir.Value) -> bool:
    """Whether broadcasting `x` with `other` gives the shape of `x`."""
    if x.shape is None or other.shape is None or len(x.shape) < len(other.shape):
        return False
    pairs = zip(reversed(list(x.shape)), reversed(list(other.shape)), strict=False)
    return all(same_dimension(a, b) or b == 1 for a, b in pairs)


def _sum_at_once(op: Any, node: ir.Node) -> None:
    """Sum squares and absolute values by the operators for that."""
    x, (y,) = node.inputs[0], node.outputs
    term = None if x is None else x.producer()
    if term is None or len(node.inputs) > 1 or y.is_graph_output():
        return
    if term.op_type == "Mul" and term.inputs[0] is term.inputs[1]:
        reduce = op.ReduceSumSquare
    elif term.op_type == "Abs":
        reduce = op.ReduceL1
    else:
        return
    total = reduce(term.inputs[0], keepdims=node.attributes.get_int("keepdims", 1))
    total.type, total.shape = y.type, y.shape
    ir.convenience.replace_all_uses_with(y, total)


def _let_numbers_meet_columns(op: Any, node: ir.Node, known: dict[ir.Value, ir.Value]) -> None:
    """Give numbers that meet one number a row the shape (1, 1): else onnxruntime repeats them row by row."""
    for i, x in enumerate(node.inputs):
        shape = None if x is None else static_shape(x)
        if x is None or shape is None or math.prod(shape) != 1 or len(shape) == 2 or not _typed(x):
            continue
        if x not in known:
            known[x] = _one_by_one(op, x)
        node.replace_input_with(i, known[x])


def _one_by_one(op: Any, x: ir.Value) -> ir.Value:
    value = constant(x)
    if value is None:
        return op.Reshape(x, op.initializer(tensor((1, 1), name="shape")))
    return op.initializer(tensor(value.reshape(1, 1), x.dtype, "number"))


def _choose_by_sign(op: Any, node: ir.Node) -> None:
    """Choose between 1 and -1 as [c] - [not c]: onnxruntime's Where is slow when it stretches two numbers."""
    condition, *numbers = node.inputs
    (y,) = node.outputs
    values = [None if v is None else constant(v) for v in numbers]
    if condition is None or y.dtype is None or y.is_graph_output() or rank(y) != rank(condition):
        return
    signs = [None if v is None or v.size != 1 else v.item() for v in values]
    if signs in ([1, -1], [-1, 1]):
        yes, no = op.Cast(condition, to=y.dtype), op.Cast(op.Not(condition), to=y.dtype)
        sign = op.Sub(yes, no) if signs[0] == 1 else op.Sub(no, yes)
        sign.type, sign.shape = y.type, y.shape
        ir.convenience.replace_all_uses_with(y, sign)


def _mask_by_product(op: Any, node: ir.Node) -> None:
    """Multiply by [y != 0] where an output y of Relu chooses between a product and 0: Where takes longer.

    Only what a matrix product gives: the slope of Sqrt is infinite at 0, and 0 times that no number.
    """
    condition, dy, zero = node.inputs
    (chosen,) = node.outputs
    y = _positive_part(condition)
    if y is None or dy is None or zero is None or dy.dtype is None or chosen.is_graph_output():
        return
    product = dy.producer()
    if product is None or product.op_type not in ("MatMul", "Gemm") or not same_shape(y, dy) or not _is_zero(zero):
        return
    masked = op.Mul(op.Cast(op.Cast(y, to=ir.DataType.BOOL), to=dy.dtype), dy)
    masked.type, masked.shape = chosen.type, chosen.shape
    ir.convenience.replace_all_uses_with(chosen, masked)


def _positive_part(condition: ir.Value | None) -> ir.Value | None:
    """Return the output of Relu of which a condition says where it is above 0."""
    greater = None if condition is None else condition.producer()
    if greater is None or greater.op_type != "Greater" or not _is_zero(greater.inputs[1]):
        return None
    y = greater.inputs[0]
    relu = None if y is None else y.producer()
    return y if relu is not None and relu.op_type == "Relu" else None


def _is_zero(value: ir.Value | None) -> bool:
    known = None if value is None else constant(value)
    return known is not None and known.size == 1 and known.item() == 0


def _add_to_product(op: Any, node: ir.Node) -> None:
    """Let Gemm add a small matrix on the way, such as the gradient of a penalty to that of the loss."""
    (y,) = node.outputs
    shape = static_shape(y)
    terms = [x for x in node.inputs if x is not None and same_shape(x, y)]
    if shape is None or math.prod(shape) > _SMALL or len(terms) < len(node.inputs) or y.is_graph_output():
        return
    for product in terms:
        gemm = product.producer()
        if gemm is None or gemm.op_type != "Gemm" or len(gemm.inputs) > 2 or len(product.uses()) > 1:
            continue
        first, *rest = [x for x in terms if x is not product]
        # beta, which onnxruntime-training sets to 0, is for what was not there
        kept = {name: a.value for name, a in gemm.attributes.items() if name != "beta"}
        total = op.Gemm(*gemm.inputs, first, **kept)
        for x in rest:
            total = op.Add(total, x)
        total.type, total.shape = y.type, y.shape
        ir.convenience.replace_all_uses_with(y, total)
        return


def _skip_one(node: ir.Node) -> None:
    """Leave out a product with the constant 1."""
    (y,) = node.outputs
    for one, x in (node.inputs, node.inputs[::-1]):
        value = None if one is None else constant(one)
        if value is not None and value.size == 1 and value.item() == 1 and x is not None and same_shape(x, y):
            if not y.is_graph_output():
                ir.convenience.replace_all_uses_with(y, x)
            return


def _skip_sum_of_scattered(node: ir.Node) -> bool:
    """Take one number a row instead of the sum of the row of zeros it was written into; return whether that was so."""
    x, (y,) = node.inputs[0], node.outputs
    scatter = None if x is None else x.producer()
    axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if scatter is None or scatter.op_type != "ScatterElements" or axes is None or y.is_graph_output():
        return False
    if scatter.attributes.get_string("reduction", "none") not in ("none", "add"):
        return False
    zeros, _, updates = scatter.inputs
    axis = scatter.attributes.get_int("axis", 0)
    whole = axes.tolist() in ([axis], [axis - (rank(y) or 0)])
    if updates is None or not whole or not _is_filled_with_zero(zeros) or not same_shape(updates, y):
        return False
    ir.convenience.replace_all_uses_with(y, updates)
    return True


def _scatter_into_the_rest(op: Any, node: ir.Node) -> None:
    """Add numbers to -p where they belong, instead of to zeros from which p is taken then."""
    sparse, p = node.inputs
    (y,) = node.outputs
    scatter = None if sparse is None else sparse.producer()
    if scatter is None or scatter.op_type != "ScatterElements" or y.is_graph_output():
        return
    zeros, indices, updates = scatter.inputs
    if scatter.attributes.get_string("reduction", "none") != "add" or not _is_filled_with_zero(zeros):
        return
    if sparse is None or p is None or not same_shape(sparse, p) or not same_shape(p, y):
        return
    if not _typed(p, indices, updates):
        return
    axis = scatter.attributes.get_int("axis", 0)
    found = op.ScatterElements(_negated(op, p), indices, updates, axis=axis, reduction="add")
    found.type, found.shape = y.type, y.shape
    ir.convenience.replace_all_uses_with(y, found)


def _negated(op: Any, x: ir.Value) -> ir.Value:
    """Return -x, without a node more where x is a product with something negated."""
    node = x.producer()
    if node is not None and node.op_type == "Mul":
        for a, b in (node.inputs, node.inputs[::-1]):
            negation = None if b is None else b.producer()
            if negation is not None and negation.op_type == "Neg" and _typed(a, *negation.inputs):
                return op.Mul(a, negation.inputs[0])
    return op.Neg(x)


def _is_filled_with_zero(value: ir.Value | None) -> bool:
    node = None if value is None else value.producer()
    if node is None or node.op_type != "ConstantOfShape":
        return _is_zero(value)
    filling = node.attributes.get_tensor("value", None)
    return filling is None or filling.numpy().item() == 0


def _sums_rows(node: ir.Node, column: ir.Value) -> bool:
    """Whether a node sums the rows of a batch, (n, k) to (1, k) or (k,)."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return False
    axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return (
        axes is not None
        and not node.outputs[0].is_graph_output()
        and axes.tolist() == [0]
        and rank(x) == 2
        and same_dimension(x.shape[0], column.shape[0])  # type: ignore[index]
        and x.dtype == column.dtype
    )


def _ones_for(op: Any, column: ir.Value) -> ir.Value:
    """Return a row of ones, (1, n)."""
    one = tensor([1.0], column.dtype)
    ones = op.ConstantOfShape(op.Shape(column), value=one)
    ones.type, ones.shape = column.type, column.shape
    return op.Reshape(ones, op.initializer(tensor([1, -1], name="row")))


def _sum_by_product(op: Any, node: ir.Node, ones: ir.Value) -> None:
    """Sum as the product with a row of ones: onnxruntime sums columns one number at a time."""
    (y,) = node.outputs
    total = op.Gemm(ones, node.inputs[0])
    if rank(y) == 1:
        for row in (user.outputs[0] for user in tuple(y.consumers()) if user.op_type == "Reshape"):
            if rank(row) == 2 and row.shape[0] == 1:  # type: ignore[index]
                ir.convenience.replace_all_uses_with(row, total)
        total = op.Reshape(total, op.initializer(tensor([-1], name="flat")))
    total.type, total.shape = y.type, y.shape
    ir.convenience.replace_all_uses_with(y, total)
