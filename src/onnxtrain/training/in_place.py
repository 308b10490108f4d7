"""Which inputs of the state a step or an update may write the next value over, so that it needs one buffer.

onnxruntime does not know that an output is bound to the memory of an input. It runs a node after all those that it
depends on, and nothing else is certain of the order.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import ancestors

#: Operators whose kernels read an element before they write the one in its place. Of two in a row onnxruntime may make
#: one, or drop one that changes nothing, such as a product with 1: what is left is elementwise.
_ELEMENTWISE = frozenset(
    {"Abs", "Add", "Div", "Exp", "Max", "Min", "Mul", "Neg", "Relu", "Sign", "Sqrt", "Sub", "Sum", "Tanh"}
)

#: The operand of a Gemm that is copied to the result before the product is added.
_ADDED = 2

#: The norm of the gradients, which clipping divides all of them by: a number, computed before any weight moves.
_NORM = "ReduceSumSquare"


def may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether all that is computed from a value is elementwise and goes into the next one.

    A reader that is no view need not do: where onnxruntime drops a node, those behind it read the value itself.
    """
    node = None if new is None else new.producer()
    if old is None or new is None or node is None:
        return False
    if node.op_type == "Scan":
        body = node.attributes["body"].as_graph()
        inner = body.inputs[list(node.inputs).index(old)]
        alone = all(use.node is node for use in old.uses())
        return alone and may_be_written_over(inner, body.outputs[list(node.outputs).index(new)])
    before = ancestors([new])
    uses = list(old.uses())
    for use in uses:
        if use.node is not node and use.node.op_type != _NORM:
            uses += [further for x in use.node.outputs for further in x.uses() if further not in uses]
    return all(use.node.outputs[0] in before and _is_elementwise(use.node.op_type, use.idx) for use in uses)


def _is_elementwise(op_type: str, operand: int) -> bool:
    """Whether a node has read an element of an operand before it writes the one in its place, or writes none."""
    return op_type in _ELEMENTWISE or op_type == _NORM or (op_type == "Gemm" and operand == _ADDED)


def rows_may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether the next value is the old one with some rows written, after all that read it have copied theirs."""
    writer = None if new is None else new.producer()
    if old is None or new is None or writer is None or writer.op_type != "ScatterND" or writer.inputs[0] is not old:
        return False
    before = ancestors([new])
    readers = (use.node for use in old.uses() if use.node is not writer)
    return all(node.op_type == "Gather" and node.outputs[0] in before for node in readers)
