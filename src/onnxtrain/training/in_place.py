"""Which inputs of the state a step or an update may write the next value over, so that it needs one buffer.

onnxruntime does not know that an output is bound to the memory of an input. It runs a node after all those that it
depends on, and nothing else is certain of the order.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import ancestors

#: Operators whose kernels read an element before they write the one in its place.
_ELEMENTWISE = frozenset({"Add", "Div", "Max", "Min", "Mul", "Sub"})

#: Operators whose result may be the memory that they read: later nodes read it as well.
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether every reader of a value runs before the next one is written, or writes it element by element."""
    node = None if new is None else new.producer()
    if old is None or new is None or node is None:
        return False
    if node.op_type == "Scan":
        body = node.attributes["body"].as_graph()
        inner = body.inputs[list(node.inputs).index(old)]
        alone = all(use.node is node for use in old.uses())
        return alone and may_be_written_over(inner, body.outputs[list(node.outputs).index(new)])
    before = ancestors([new])
    others = {use.node for use in old.uses()} - {node}
    writes_elements = node.op_type in _ELEMENTWISE or old not in node.inputs
    return writes_elements and all(n.outputs[0] in before and n.op_type not in _VIEWS for n in others)


def rows_may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether the next value is the old one with some rows written, after all that read it have copied theirs."""
    writer = None if new is None else new.producer()
    if old is None or new is None or writer is None or writer.op_type != "ScatterND" or writer.inputs[0] is not old:
        return False
    before = ancestors([new])
    readers = (use.node for use in old.uses() if use.node is not writer)
    return all(node.op_type == "Gather" and node.outputs[0] in before for node in readers)
