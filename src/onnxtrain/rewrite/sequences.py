"""Rewriting of sequences of tensors, which have no gradient, as their elements, as slices or as stacked tensors."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import (
    Op,
    attribute,
    constant,
    has_name,
    inner_builder,
    made_by,
    put_out,
    scalar,
    unique_name,
)
from onnxtrain.rewrite.registry import rewrite


@rewrite("", "SequenceAt")
def element_of_a_split(op, node):
    """Replace an element of a known sequence by the tensor, and an element of a split tensor by a slice.

    PyTorch's exporter writes ``torch.split`` in the latter form.
    """
    sequence, position = node.inputs
    split, index, elements = made_by(sequence, "SplitToSequence"), scalar(position), _elements(sequence)
    if elements is not None and index is not None and -len(elements) <= index < len(elements):
        return op.Identity(elements[int(index)])
    if split is None or index is None or index < 0:  # counted from the end, although the number may be unknown
        return None
    x, *given = split.inputs
    sizes = constant(given[0]) if given else np.array(1)
    i = int(index)
    if sizes is None or (sizes.ndim and i >= len(sizes)):
        return None
    axis = attribute(split, "axis", 0)
    ends = np.cumsum(sizes) if sizes.ndim else sizes * np.arange(1, i + 2)  # a scalar is the size of each
    (y,) = node.outputs
    if y.shape is not None and (given or attribute(split, "keepdims", 1)):
        # shape inference has one name for the lengths of all elements, by which onnxruntime would share their memory
        y.shape = ir.Shape([None if k == axis % len(y.shape) else d for k, d in enumerate(y.shape)])
    element = op.Slice(x, [int((ends - sizes)[i])], [int(ends[i])], [axis])
    return element if given or attribute(split, "keepdims", 1) else op.Squeeze(element, [axis])


@rewrite("", "ConcatFromSequence")
def joined_turns(op, node):
    """Join the tensors that a Loop inserts into a sequence, one per iteration, as in PyTorch's export of EmbeddingBag.

    Tensors of one shape are stacked as an output of the Loop; of their lengths, those after the axis along which they
    are joined must be known. Tensors of a known sequence, as from ``torch.stack``, are concatenated.
    """
    (sequence,) = node.inputs
    if elements := _elements(sequence):
        axis = attribute(node, "axis")
        parts = [op.Unsqueeze(x, [axis]) for x in elements] if attribute(node, "new_axis", 0) else elements
        return op.Concat(*parts, axis=axis)
    loop = made_by(sequence, "Loop")
    if loop is None or len(sequence.uses()) > 1:
        return None
    at = next(i for i, y in enumerate(loop.outputs) if y is sequence)
    element = _inserted(loop, at)
    if element is None or not element.shape:
        return None
    lengths = [d if isinstance(d, int) else None for d in element.shape]
    new_axis = attribute(node, "new_axis", 0)
    axis = attribute(node, "axis") % (len(lengths) + new_axis)
    if not new_axis and lengths[axis] != 1 and (not has_name(element.shape[axis]) or None in lengths[axis + 1 :]):
        return None  # a stack takes tensors of one shape, of which all but this axis are known to be equal
    stack = _stacked(op, loop, at)
    stack.type, stack.shape = element.type, ir.Shape([None, *lengths])
    turns_there = op.Transpose(stack, perm=[*range(1, axis + 1), 0, *range(axis + 1, len(lengths) + 1)])
    if new_axis:
        return turns_there
    if lengths[axis] == 1:
        return op.Squeeze(turns_there, [axis + 1])
    return op.Reshape(turns_there, [*(d or 0 for d in lengths[:axis]), -1, *lengths[axis + 1 :]])  # 0: the same length


@rewrite("", "OptionalGetElement")
def element_of_an_optional(op, node):
    """Replace the element of an optional value that is known to be present by the element."""
    (x,) = node.inputs
    made = made_by(x, "Optional")
    if made is not None and made.inputs:
        return op.Identity(made.inputs[0])
    return op.Identity(x) if isinstance(x.type, ir.TensorType) else None


def _elements(sequence: ir.Value | None) -> list[ir.Value] | None:
    """Return the tensors of a sequence that nodes build one by one, or None if they are unknown."""
    inserts = []
    while (insert := made_by(sequence, "SequenceInsert")) is not None:
        inserts.append(insert)
        sequence = insert.inputs[0]
    construct = made_by(sequence, "SequenceConstruct")
    if construct is None and made_by(sequence, "SequenceEmpty") is None:
        return None
    elements = [] if construct is None else list(construct.inputs)
    for insert in reversed(inserts):
        position = scalar(insert.inputs[2]) if len(insert.inputs) > 2 else len(elements)
        if position is None:
            return None
        elements.insert(int(position), insert.inputs[1])
    return elements  # type: ignore[return-value]


def _inserted(loop: ir.Node, at: int) -> ir.Value | None:
    """Return the value that each iteration of a Loop appends to a sequence that is initially empty and not read."""
    body = loop.attributes["body"].as_graph()
    if at >= len(body.inputs) - 2 or made_by(loop.inputs[2 + at], "SequenceEmpty") is None:
        return None
    before, insert = body.inputs[2 + at], made_by(body.outputs[1 + at], "SequenceInsert")
    appends = insert is not None and insert.inputs[0] is before and all(x is None for x in insert.inputs[2:])
    return insert.inputs[1] if appends and len(before.uses()) == 1 else None


def _stacked(op: Op, loop: ir.Node, at: int) -> ir.Value:
    """Append a Loop that stacks the inserted tensors of another Loop, whose outputs it replaces."""
    body = loop.attributes["body"].as_graph().clone(allow_outer_scope_values=True)
    insert = body.outputs[1 + at].producer()
    outputs = [y for i, y in enumerate(body.outputs) if i != 1 + at]
    put_out(inner_builder(op, body), body, [*outputs, insert.inputs[1]])  # type: ignore[list-item]
    body.remove(insert, safe=True)
    del body.inputs[2 + at]
    inputs = [x for i, x in enumerate(loop.inputs) if i != 2 + at]
    new = ir.node("Loop", inputs, attributes={"body": body}, num_outputs=len(loop.outputs))
    op.builder.graph.append(new)
    *others, stack = new.outputs
    for old, y in zip((y for i, y in enumerate(loop.outputs) if i != at), others, strict=True):
        y.name, y.type, y.shape = old.name, old.type, old.shape
        old.name = unique_name(str(old.name), op.builder.names)  # of the node that nothing will use
        ir.convenience.replace_all_uses_with(old, y, replace_graph_outputs=True)
    stack.name = unique_name(f"{loop.outputs[at].name}_stack", op.builder.names)
    return stack
