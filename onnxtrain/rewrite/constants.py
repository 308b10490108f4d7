"""Constant nodes that hold weights become initializers."""

from __future__ import annotations

import onnx_ir as ir

from onnxtrain.graph import constant, is_float

#: A scalar added to the output of one of these is an intercept, not part of a formula.
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})


def lift_constants(model: ir.Model) -> None:
    """Turn, in place, floating-point Constant nodes of rank 1 or more into initializers of the same names.

    A scalar is kept as part of a formula, unless it is the intercept of a product.
    Constants in the subgraphs of If, Loop and Scan are kept too.
    """
    for node in list(model.graph):
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            continue
        (value,) = node.outputs
        array = constant(value)
        if array is None or not is_float(value) or value.is_graph_output() or not array.ndim:
            continue
        if array.size == 1 and not any(_is_intercept(value, user) for user in value.consumers()):
            continue
        lifted = ir.Value(name=value.name, type=value.type, shape=ir.Shape(array.shape))
        lifted.const_value = ir.tensor(array, dtype=value.dtype, name=value.name)
        model.graph.remove(node)  # the name is free
        ir.convenience.replace_all_uses_with(value, lifted)
        model.graph.register_initializer(lifted)


def _is_intercept(value: ir.Value, node: ir.Node) -> bool:
    """Whether a node adds a value to a product."""
    if node.op_type in _PRODUCTS:
        return True
    others = [x.producer() for x in node.inputs if x is not None and x is not value]
    return node.op_type == "Add" and any(made is not None and made.op_type in _PRODUCTS for made in others)
