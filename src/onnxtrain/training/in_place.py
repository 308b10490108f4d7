"""Which inputs of the state a step or an update may overwrite with the next value, so that one buffer suffices.

onnxruntime does not know that an output is bound to the memory of an input. The only guarantee is that a node runs
after the nodes on which it depends.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import ancestors

#: Operators whose kernels read an element before they write the result in its place. onnxruntime may fuse two such
#: nodes, or drop one without effect, such as a product with 1; the result is still elementwise.
_ELEMENTWISE = frozenset(
    {"Abs", "Add", "Div", "Exp", "Max", "Min", "Mul", "Neg", "Relu", "Sign", "Sqrt", "Sub", "Sum", "Tanh"}
)

#: The operand of a Gemm that is copied to the result before the product is added.
_ADDED = 2

#: The norm of the gradients, by which clipping divides all of them: a scalar that is computed before any update.
_NORM = "ReduceSumSquare"


def may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether all values computed from a value are elementwise and enter the next value.

    Checking the direct readers is not enough: if onnxruntime drops a node, the readers of its output read the value
    itself.
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
    """Whether a node reads each element of an operand before it writes the result in its place, or writes none."""
    return op_type in _ELEMENTWISE or op_type == _NORM or (op_type == "Gemm" and operand == _ADDED)


def rows_may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether the next value is the old value with some rows changed after all readers have copied their rows."""
    writer = None if new is None else new.producer()
    if old is None or new is None or writer is None or writer.op_type != "ScatterND" or writer.inputs[0] is not old:
        return False
    before = ancestors([new])
    readers = (use.node for use in old.uses() if use.node is not writer)
    return all(node.op_type == "Gather" and node.outputs[0] in before for node in readers)
