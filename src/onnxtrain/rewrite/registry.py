"""The table of rewritings: an operator outside ai.onnx becomes ai.onnx operators.

A rule receives the builder and the node and returns the values that replace
the outputs of the node, one value or a tuple. It turns the parameters stored in
attributes into initializers, so they can be trained. It returns None to keep
the node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.graph import BUFFER, Op, Rule, attribute, operator_name
from onnxtrain.registry import Registry

REWRITES: Registry[Rule] = Registry("rewriting", RewriteError)


def rewrite(domain: str, *op_types: str, override: bool = False) -> Callable[[Rule], Rule]:
    """Register the rewriting of one or several operators of a domain.

    Parameters
    ----------
    domain : str
    *op_types : str
    override : bool
        Replace a registered rewriting.

    Returns
    -------
    callable
        A decorator for ``rule(op, node) -> values``.

    Raises
    ------
    ValueError
        The operator already has a rewriting.

    Examples
    --------
    >>> from onnxtrain.rewrite import rewrite
    >>> @rewrite("my.domain", "Twice")
    ... def twice(op, node):
    ...     (x,) = node.inputs
    ...     return op.Mul(x, 2.0)
    """
    return REWRITES.register(*(operator_name(op_type, domain) for op_type in op_types), override=override)


def floats(node: ir.Node, name: str) -> np.ndarray:
    """Return a floating-point attribute of a node as an array: ``name``, or the tensor ``name_as_tensor``."""
    tensor = attribute(node, f"{name}_as_tensor")
    if tensor is not None:
        return np.asarray(tensor.numpy())
    return np.asarray(attribute(node, name, ()), dtype=np.float32)


def weight(op: Op, array: np.ndarray, name: str, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    """Return a new initializer, a trainable parameter."""
    return op.initializer(ir.tensor(np.ascontiguousarray(array, dtype=dtype.numpy())), name)


def buffer(op: Op, array: np.ndarray, name: str, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    """Return a new initializer that is trained only if it is named."""
    found = weight(op, array, name, dtype)
    found.metadata_props[BUFFER] = "1"
    return found


def as_float(op: Op, x: ir.Value) -> ir.Value:
    """Return `x` as float; operators of ai.onnx.ml also accept integers and double, and return float."""
    return x if x.dtype is ir.DataType.FLOAT else op.Cast(x, to=ir.DataType.FLOAT)


def constant(op: Op, array: np.ndarray, name: str) -> ir.Value:
    """Return a constant of integers or strings, which is not a weight."""
    return op.initializer(ir.tensor(array.tolist() if array.dtype == object else array), name)


def mask(op: Op, array: np.ndarray, name: str) -> ir.Value:
    """Return an array of 0 and 1 as float; it is stored as booleans, so that it is never treated as a weight."""
    return op.Cast(constant(op, array.astype(bool), name), to=ir.DataType.FLOAT)
