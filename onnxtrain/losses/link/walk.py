"""Pattern matching on the nodes that produce a value."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import constant, is_float, made_by, rank, static_shape


def n_columns(value: ir.Value) -> int | None:
    """Return k for (n, k), 1 for (n,), None if unknown."""
    if rank(value) == 1:
        return 1
    k = value.shape[1] if rank(value) == 2 else None  # type: ignore[index]
    return k if isinstance(k, int) else None


def skip(value: ir.Value) -> ir.Value:
    """Skip backward over nodes that preserve the values of each row."""
    while True:
        x = _column(value)
        if x is None:
            node = made_by(value, "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Dropout")
            if node is None or (node.op_type == "Concat" and len(node.inputs) > 1) or _drops(node):
                return value
            x = node.inputs[0]
        if x is None or not is_float(x) or n_columns(x) is None or n_columns(x) != n_columns(value):
            return value
        value = x


def _drops(node: ir.Node) -> bool:
    """Whether a node is a Dropout in training mode."""
    return node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None


def _column(value: ir.Value) -> ir.Value | None:
    """Return x if value selects the single column x of Concat(..., x, ...)."""
    node = value.producer()
    if node is None or node.op_type not in ("Slice", "Gather", "ArrayFeatureExtractor"):
        return None
    concat = made_by(node.inputs[0], "Concat")
    index = constant(node.inputs[1])
    along = constant(node.inputs[3] if len(node.inputs) > 3 else None) if node.op_type == "Slice" else axis(node)
    if concat is None or index is None or index.size != 1 or n_columns(value) != 1 or along not in (1, -1):
        return None
    if any(x is None or n_columns(x) != 1 for x in concat.inputs):
        return None
    return concat.inputs[int(index.reshape(-1)[0])]


def axis(node: ir.Node) -> int:
    """Return the attribute axis; the default is the last axis, except for Gather."""
    found = node.attributes.get("axis")
    return int(found.value) if found is not None else 0 if node.op_type == "Gather" else -1


def input_of(node: ir.Node) -> ir.Value:
    """Return the first input of an elementwise node, or the value that this input copies."""
    (x, *_), (y,) = node.inputs, node.outputs
    if x.shape is None:  # type: ignore[union-attr]
        x.type, x.shape = y.type, y.shape  # type: ignore[union-attr]
    return skip(x)  # type: ignore[arg-type]


def equals(value: ir.Value | None, number: float) -> bool:
    """Whether a value is the constant `number`, or a scalar parameter in training, assumed to stand for it."""
    array = constant(value)
    if array is not None:
        return array.size == 1 and float(array.reshape(-1)[0]) == number
    return value is not None and value.is_graph_input() and static_shape(value) in ((), (1,)) and is_float(value)


def other(node: ir.Node, number: float) -> ir.Value | None:
    """Return the operand x of a sum or a product of x and `number`."""
    a, b = node.inputs
    return b if equals(a, number) else a if equals(b, number) else None


def negated(value: ir.Value | None) -> ir.Value | None:
    """Return x if value is -x, also as -1 * x."""
    node = made_by(value, "Neg", "Mul")
    if node is None:
        return None
    return node.inputs[0] if node.op_type == "Neg" else other(node, -1)
