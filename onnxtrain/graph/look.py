"""Look at a graph: types, shapes, constants, names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain.errors import ModelError
from onnxtrain.registry import did_you_mean

FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})

#: Operators whose multiplications are more than their results.
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "RNN", "GRU", "LSTM"})


def describe(value: ir.Value | None) -> str:
    """Return ``name: FLOAT[N,3]``, for messages."""
    if value is None:
        return "none"
    dtype = value.dtype.name if value.dtype is not None else "?"
    shape = "?" if value.shape is None else ",".join(str(d) if d is not None else "?" for d in value.shape)
    return f"{value.name}: {dtype}[{shape}]"


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape when every dimension is a number, else None."""
    if value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]


def rank(value: ir.Value) -> int | None:
    """Return the number of axes, or None where it is not known."""
    return None if value.shape is None else len(value.shape)


def same_dimension(a: Any, b: Any) -> bool:
    """Whether two dimensions are known to be equal: the same number, or the same name."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a is not None and b is not None and a.value is not None and a == b


def same_shape(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are known to have the same shape."""
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(same_dimension(da, db) for da, db in zip(a.shape, b.shape, strict=True))


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a tensor of real numbers."""
    return value is not None and value.dtype in FLOATS


def constant(value: ir.Value | None) -> np.ndarray | None:
    """Return the array a value always has, or None where it depends on the inputs: one with a default may change."""
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def holds_graphs(node: ir.Node) -> bool:
    """Whether a node has graphs inside, which may read values from outside: If, Loop, Scan."""
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def find(values: Iterable[ir.Value], name: str, kind: str, error: type[Exception] = ModelError) -> ir.Value:
    """Return the value called `name`; `kind` (``"input"``, ``"output"``) is for the message."""
    found = {v.name: v for v in values}
    if name not in found:
        raise error(f"The model has no {kind} {name!r}. {did_you_mean(name, [str(n) for n in found])}")
    return found[name]


@functools.cache
def find_schema(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """Return what onnx knows of an operator at an opset, None where it knows nothing."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
