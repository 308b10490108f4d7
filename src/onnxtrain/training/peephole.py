"""Peephole rewritings for graphs that run very often: cheaper nodes that compute the same values.

Each rewriting alone saves 2 % or more of a whole fit of some network of the benchmarks, measured with all others in
place. The figure beside it is the time of the fit without it divided by the time with it.
:func:`onnxtrain.autodiff.simplify` has the rewritings that help any runtime; those here are for patterns that
onnxruntime runs slowly.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtrain.autodiff.simplify import stretched_by_the_operator, times_one
from onnxtrain.graph import (
    Op,
    Rewritings,
    alike,
    broadcasts_to,
    constant,
    made_by,
    rank,
    same_dimension,
    same_shape,
    scalar,
    static_shape,
    tensor,
)

__all__ = ["ANYWHERE", "ON_CPU", "SIGNS", "sum_rows_by_a_product"]

#: The number of elements from which two operators are faster than Sign.
_MANY = 1000

#: The largest value of each type; its product with the smallest normal value is more than 1.
_LARGEST = {dtype: float(np.finfo(dtype.numpy()).max) for dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)}

#: The number of elements up to which a Gemm with a factor of -1 is faster than a Gemm with a negated operand.
_SHORT = 4000

#: The number of elements up to which Gemm is as fast for a column as for a row; with 200,000 it takes eight times as
#: long as two operators.
_SHORT_COLUMN = 100

#: The number of elements above which Gemm, which copies its operand C in one thread, is slower than a multithreaded
#: Add.
_SMALL = 2**14

#: Rewritings that pay on every device, and rewritings that pay with CPU kernels.
ANYWHERE, ON_CPU = Rewritings(), Rewritings()

#: The CPU rewriting that is also applied in subgraphs.
SIGNS = Rewritings()


def sum_rows_by_a_product(op: Op, node: ir.Node, *, column: ir.Value, ones: ir.Value) -> ir.Value | None:
    """Replace a sum over the rows of a batch by a product with a row of ones; the time becomes 1 / 1.04 to 1 / 1.09.

    onnxruntime sums columns element by element. A single column is summed as a whole array, in a tenth of the time.

    Parameters
    ----------
    op : onnxscript builder
    node : onnx_ir.Node
        A ReduceSum.
    column : onnx_ir.Value
        A value of shape (n, 1), where n is the number of rows of the batch.
    ones : onnx_ir.Value
        A value of ones of shape (1, n).
    """
    (y,) = node.outputs
    if not _sums_rows(node, column):
        return None
    x = node.inputs[0]
    total = op.ReduceSum(x, keepdims=1) if x.shape[1] == 1 else op.Gemm(ones, x)  # type: ignore[index, union-attr]
    if rank(y) != 1:
        return total
    for row in (user.outputs[0] for user in tuple(y.consumers()) if user.op_type == "Reshape"):
        if rank(row) == 2 and row.shape[0] == 1:  # type: ignore[index]
            ir.convenience.replace_all_uses_with(row, total)
    return op.Reshape(total, op.initializer(tensor([-1], name="flat")))


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


@ANYWHERE.rule("ReduceSum")
def sum_of_what_was_scattered(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.13: the sum over a row of zeros with one element written into it is this element
    x, (y,) = node.inputs[0], node.outputs
    scatter = made_by(x, "ScatterElements")
    axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if scatter is None or axes is None or y.is_graph_output():
        return None
    if scatter.attributes.get_string("reduction", "none") not in ("none", "add"):
        return None
    zeros, _, updates = scatter.inputs
    axis = scatter.attributes.get_int("axis", 0)
    whole = axes.tolist() in ([axis], [axis - (rank(y) or 0)])
    return updates if updates is not None and whole and _is_zero(zeros) and same_shape(updates, y) else None


@ON_CPU.rule("Sub")
def scattered_onto_the_rest(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.7 of the time of these nodes for 1024 tokens of a language model, 1.1 for 200 rows of 10 classes. The gradient
    # of LogSoftmax is elements scattered into zeros, minus a product. Scattering them into the negative product needs
    # no zeros of the size of the scores
    scattered, rest = node.inputs
    scatter, product = made_by(scattered, "ScatterElements"), made_by(rest, "Mul")
    if scatter is None or product is None or node.outputs[0].is_graph_output():
        return None
    zeros, index, updates = scatter.inputs
    if scatter.attributes.get_string("reduction", "none") != "add" or not _is_zero(zeros):
        return None
    if len(scattered.uses()) > 1 or not _typed(updates, *product.inputs) or not alike(rest, scattered):  # type: ignore[union-attr]
        return None
    large, small = product.inputs
    negative = op.Mul(large, op.Neg(small))
    negative.shape = node.outputs[0].shape
    return op.ScatterElements(negative, index, updates, axis=scatter.attributes.get_int("axis", 0), reduction="add")


@ANYWHERE.rule("Sub")
def rows_moved_alone(op: Op, node: ir.Node) -> ir.Value | None:
    # 20 for a table of 50,000 rows of 128, of which a batch reads 512: SGD updates only rows with a nonzero gradient of
    # Gather, in place: see in_place
    w, step = node.inputs
    product = made_by(step, "Mul")
    scatter, rate = (None, None) if product is None else (made_by(product.inputs[0], "ScatterND"), product.inputs[1])
    if scatter is None or node.outputs[0].is_graph_output() or len(scatter.outputs[0].uses()) > 1:
        return None
    zeros, index, updates = scatter.inputs
    if scatter.attributes.get_string("reduction", "none") != "add" or not _is_zero(zeros):
        return None
    if not _typed(updates, rate) or not same_shape(w, scatter.outputs[0]):  # type: ignore[arg-type]
        return None
    extents = static_shape(rate)  # type: ignore[arg-type]
    if extents is None or math.prod(extents) != 1 or len(extents) > rank(updates):  # type: ignore[arg-type, operator]
        return None  # a rate per row of the table is not a rate per row of the batch
    return op.ScatterND(w, index, op.Mul(updates, op.Neg(rate)), reduction="add")


@ON_CPU.rule("Shape")
def shape_of_a_product(op: Op, node: ir.Node) -> ir.Value | None:
    # use the operand's shape, so that a language model's scores need not stay in memory for their shape in the gradient
    y = node.inputs[0]
    plus = made_by(y, "Add")
    if plus is not None:
        y = next((x for x, b in (plus.inputs, plus.inputs[::-1]) if rank(b) == 1 and broadcasts_to(b, x)), y)  # type: ignore[arg-type]
    product = made_by(y, "MatMul")
    x, w = (None, None) if product is None else product.inputs
    width = None if w is None or w.shape is None else w.shape[-1]
    if x is None or rank(w) != 2 or (rank(x) or 0) < 3 or not isinstance(width, int) or node.attributes:  # type: ignore[arg-type]
        return None
    return op.Concat(op.Shape(x, end=-1), op.initializer(tensor([width], name="width")), axis=0)


@ANYWHERE.rule("ReduceSum")
def squares_summed_at_once(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.05 to 1.09: ReduceSumSquare and ReduceL1 need no intermediate array
    x, (y,) = node.inputs[0], node.outputs
    term = made_by(x, "Mul", "Abs")
    if term is None or len(node.inputs) > 1 or y.is_graph_output():
        return None
    if term.op_type == "Mul" and term.inputs[0] is not term.inputs[1]:
        return None
    if node.attributes.get_int("noop_with_empty_axes", 0):
        return None
    reduce = op.ReduceL1 if term.op_type == "Abs" else op.ReduceSumSquare
    return reduce(term.inputs[0], keepdims=node.attributes.get_int("keepdims", 1))


# 1.06 to 1.10: a broadcasting operator can take the unexpanded operand if another operand has the full shape
ANYWHERE.rule("Add", "Sub", "Mul", "Div", "Where")(stretched_by_the_operator)


@ANYWHERE.rule("Neg")
def stretched_last(op: Op, node: ir.Node) -> ir.Value | None:
    expand = made_by(node.inputs[0], "Expand")
    if expand is None or node.outputs[0].is_graph_output() or not _typed(*expand.inputs):
        return None
    return op.Expand(op.Neg(expand.inputs[0]), expand.inputs[1])


def _typed(*values: ir.Value | None) -> bool:
    """Whether the types of all values are known; other gradient builders do not record all of them."""
    return all(v is not None and v.dtype is not None for v in values)


# 1.05 for a linear model with penalties, whose gradients are products with 1, the gradient of a sum
ANYWHERE.rule("Mul")(times_one)


@ANYWHERE.rule("Where")
def mask_by_a_product(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.2 to 1.7: Where(y > 0, dy, 0), with y an output of Relu, is dy times [y != 0]. Only if dy is a matrix product:
    # the slope of Sqrt is infinite at 0, and 0 times infinity is NaN
    condition, dy, zero = node.inputs
    greater = made_by(condition, "Greater")
    y = None if greater is None or not _is_zero(greater.inputs[1]) else greater.inputs[0]
    if y is None or dy is None or made_by(y, "Relu") is None or node.outputs[0].is_graph_output():
        return None
    if made_by(dy, "MatMul", "Gemm") is None or dy.dtype is None or not same_shape(y, dy) or not _is_zero(zero):
        return None
    if not same_shape(dy, node.outputs[0]):  # the zeros may have more axes
        return None
    return op.Mul(op.Cast(op.Cast(y, to=ir.DataType.BOOL), to=dy.dtype), dy)


@ON_CPU.rule("Cast")
def mask_by_one_operator(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.02 to 1.03: the largest float times an output of Relu is less than 1 only if it is smaller than any normal value
    (condition,), (y,) = node.inputs, node.outputs
    of = made_by(condition, "Cast")
    x = None if of is None or condition.dtype is not ir.DataType.BOOL else of.inputs[0]  # type: ignore[union-attr]
    if x is None or made_by(x, "Relu") is None or not x.dtype is y.dtype is ir.DataType.FLOAT:
        return None
    return op.HardSigmoid(x, alpha=_LARGEST[x.dtype], beta=0.0)


@ANYWHERE.rule("Where")
def sign_by_a_difference(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.05: Where(c, 1, -1) is [c] - [not c]; onnxruntime's Where is slow if it broadcasts two scalars
    condition, *choices = node.inputs
    (y,) = node.outputs
    signs = [scalar(v) for v in choices]
    if condition is None or y.dtype is None or y.is_graph_output() or signs not in ([1, -1], [-1, 1]):
        return None
    if rank(y) != rank(condition):
        return None
    yes, no = op.Cast(condition, to=y.dtype), op.Cast(op.Not(condition), to=y.dtype)
    return op.Sub(yes, no) if signs[0] == 1 else op.Sub(no, yes)


@ANYWHERE.rule("Add", "Sum")
def added_to_a_product(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.05 to 1.07: Gemm also adds a small matrix, such as the gradient of a penalty to that of the loss
    terms = _small_terms(node)
    product = next((x for x in terms if _takes_a_term(x)), None)
    gemm = made_by(product, "Gemm")
    if gemm is None:
        return None
    first, *rest = [x for x in terms if x is not product]
    # onnxruntime-training sets beta to 0 if the operand is absent
    kept = {name: a.value for name, a in gemm.attributes.items() if name != "beta"}
    total = op.Gemm(*gemm.inputs, first, **kept)
    for x in rest:
        total = op.Add(total, x)
    return total


def _small_terms(node: ir.Node) -> list[ir.Value]:
    """Return the terms of a sum of small arrays of one shape; empty for any other sum."""
    (y,) = node.outputs
    shape = static_shape(y)
    if shape is None or math.prod(shape) > _SMALL or y.is_graph_output():
        return []
    terms = [x for x in node.inputs if x is not None and same_shape(x, y)]
    return terms if len(terms) == len(node.inputs) else []


def _takes_a_term(product: ir.Value) -> bool:
    """Whether a value is the output of a Gemm without third operand and has only one use."""
    gemm = made_by(product, "Gemm")
    return gemm is not None and len(gemm.inputs) <= 2 and len(product.uses()) == 1


def _is_zero(value: ir.Value | None) -> bool:
    """Whether every element is zero: of a constant scalar, or of ConstantOfShape."""
    filled = made_by(value, "ConstantOfShape")
    if filled is None:
        known = None if value is None else constant(value)
        return known is not None and known.size == 1 and known.item() == 0
    filling = filled.attributes.get_tensor("value", None)
    return filling is None or filling.numpy().item() == 0


@ON_CPU.rule("Add", "Sub")
def line_moved_by_gemm(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.03 to 1.09: scalar * line + rest, such as a decaying average, and rest - scalar * line, such as a step of
    # gradient descent. A line is a row or a short column
    (y,) = node.outputs
    if not _is_line(y):
        return None
    pairs = [tuple(node.inputs)] if node.op_type == "Sub" else [tuple(node.inputs), tuple(node.inputs[::-1])]
    for rest, moved in pairs:
        product = made_by(moved, "Mul")
        if rest is None or product is None or not same_shape(rest, y):
            continue
        for line, factor in (product.inputs, product.inputs[::-1]):
            matrix = _as_matrix(op, factor)
            if matrix is not None and line is not None and same_shape(line, y):
                if node.op_type == "Sub" and math.prod(static_shape(y) or ()) > _SHORT:
                    node.op_type, matrix = "Add", op.Neg(matrix)
                _make_gemm(node, *((matrix, line) if y.shape[0] == 1 else (line, matrix)), rest)  # type: ignore[index]
                return y
    return None


def _make_gemm(node: ir.Node, *inputs: ir.Value) -> None:
    """Turn a node Add or Sub into a Gemm, in place, because other nodes read its output."""
    if node.op_type == "Sub":
        node.attributes["alpha"] = ir.AttrFloat32("alpha", -1.0)
    node.op_type = "Gemm"
    node.resize_inputs(len(inputs))
    for i, x in enumerate(inputs):
        node.replace_input_with(i, x)


def _is_line(x: ir.Value) -> bool:
    """Whether a value is a row or a short column, of a type that Gemm supports."""
    shape = static_shape(x)
    if x.dtype not in _LARGEST or shape is None or len(shape) != 2:
        return False
    return shape[0] == 1 or (shape[1] == 1 and shape[0] <= _SHORT_COLUMN)


def _as_matrix(op: Op, factor: ir.Value | None) -> ir.Value | None:
    """Return a scalar as (1, 1); None if the factor is not a scalar, or if reshaping it takes an operator."""
    if factor is None or static_shape(factor) == (1, 1):
        return factor
    value = scalar(factor)
    return None if value is None else op.initializer(tensor([[value]], factor.dtype, "factor"))


#: Elementwise operators of several operands that broadcast.
_BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where"),
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
)


@ANYWHERE.rule(*_BROADCASTING)
def scalar_beside_a_column(op: Op, node: ir.Node) -> ir.Value | None:
    # steps of linear models with the losses huber, log_cosh, hinge and quantile: 1.2 to 1.6 for 200 rows, 1.6 to 3.1
    # for 2000. onnxruntime visits an (n, 1) array row by row if another operand has fewer axes
    (y,) = node.outputs
    n_axes = rank(y) or 0
    if n_axes < 2 or y.shape[-1] != 1:  # type: ignore[index]
        return None
    scalars = [(i, x) for i, x in enumerate(node.inputs) if x is not None and scalar(x) is not None]
    few = [(i, x) for i, x in scalars if (rank(x) or 0) < n_axes]
    for i, x in few:
        value = constant(x).reshape((1,) * n_axes)  # type: ignore[union-attr]
        node.replace_input_with(i, op.initializer(tensor(value, x.dtype, "scalar")))
    return y if few else None


@SIGNS.rule("Sign")
def sign_by_bounds(op: Op, node: ir.Node) -> ir.Value | None:
    # 1.14 with an l1 penalty: on a CPU Sign takes four times as long as this. The largest float times x is within (-1,
    # 1) only if x is smaller than any normal value
    (x,), (y,) = node.inputs, node.outputs
    shape = None if x is None else static_shape(x)
    if x is None or shape is None or math.prod(shape) < _MANY or x.dtype not in _LARGEST or y.is_graph_output():
        return None
    return op.Clip(op.Mul(x, _LARGEST[x.dtype]), -1.0, 1.0)
