"""Weights that an exporter merged because they happened to be equal."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph

#: Where operators take the weights that networks start at 0 or 1: scales and intercepts.
_SLOTS = {
    "Add": (0, 1),
    "BatchNormalization": (1, 2),
    "Conv": (2,),
    "ConvTranspose": (2,),
    "Gemm": (2,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
}


def separate_merged(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which nodes no longer share scales and intercepts that are all 0 or all 1.

    Exporters keep equal initializers once. Of a network that has not been trained, the
    scales and intercepts of all normalizations are then one weight, which they are not
    meant to be. Factors of products stay shared: there it is meant.
    """
    model = graph.load(onx)
    names = graph.names_in(model.graph)
    for value in list(model.graph.initializers.values()):
        uses = [(node, i) for node, i in value.uses() if i in _SLOTS.get(node.op_type, ())]
        if len(uses) < 2 or len(uses) < len(value.uses()) or not _is_untrained(value):
            continue
        for node, i in uses[1:]:
            node.replace_input_with(i, _copied(model, value, graph.unique_name(str(value.name), names)))
    return graph.save(model)


def _is_untrained(value: ir.Value) -> bool:
    array = graph.constant(value)
    if array is None or not graph.is_float(value) or array.ndim != 1 or array.size < 2:
        return False
    return bool(np.all(array == array[0])) and array[0] in (0, 1)


def _copied(model: ir.Model, value: ir.Value, name: str) -> ir.Value:
    tensor = ir.tensor(value.const_value.numpy().copy(), name=name)  # type: ignore[union-attr]
    copied = ir.Value(name=name, type=value.type, shape=value.shape, const_value=tensor)
    model.graph.register_initializer(copied)
    return copied
