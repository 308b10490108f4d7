"""The table of rewritings: an operator outside ai.onnx becomes ai.onnx operators.

A rule receives the builder and the node and returns the values that replace
the outputs of the node, one value or a tuple. It turns the numbers kept in
attributes into initializers, so that they can be trained. It returns None where
the node should stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from onnxtrain.errors import RewriteError
from onnxtrain.registry import Registry

Rule: TypeAlias = Callable[..., "ir.Value | tuple[ir.Value, ...] | None"]

REWRITES: Registry[Rule] = Registry("rewriting", RewriteError)

#: Operators that stay: no derivative passes through them, whatever is upstream.
FROZEN = frozenset(
    {
        "ai.onnx.ml:LabelEncoder",
        "ai.onnx.ml:OneHotEncoder",
        "ai.onnx.ml:CategoryMapper",
        "ai.onnx.ml:DictVectorizer",
        "ai.onnx.ml:ZipMap",
        "ai.onnx.ml:CastMap",
    }
)


def key(domain: str, op_type: str) -> str:
    """Return the name under which the rewriting of an operator is registered."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}:{op_type}"


def rewrite(domain: str, *op_types: str) -> Callable[[Rule], Rule]:
    """Register the rewriting of one or several operators of a domain.

    Parameters
    ----------
    domain : str
    *op_types : str

    Returns
    -------
    callable
        A decorator for ``rule(op, node) -> values``.

    Raises
    ------
    ValueError
        The operator has a rewriting already.

    Examples
    --------
    >>> from onnxtrain.rewrite import rewrite
    >>> @rewrite("my.domain", "Twice")
    ... def twice(op, node):
    ...     (x,) = node.inputs
    ...     return op.Mul(x, 2.0)
    """
    return REWRITES.register(*(key(domain, op_type) for op_type in op_types))


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, `default` where it is not set."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def floats(node: ir.Node, name: str) -> np.ndarray:
    """Return a list of real numbers of a node: ``name``, or the tensor ``name_as_tensor``."""
    tensor = attribute(node, f"{name}_as_tensor")
    if tensor is not None:
        return np.asarray(tensor.numpy())
    return np.asarray(attribute(node, name, ()), dtype=np.float32)


def weight(op: Any, array: np.ndarray, name: str, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    """Return a new initializer: a number that can be trained."""
    return op.initializer(ir.tensor(np.ascontiguousarray(array, dtype=dtype.numpy())), name)


def as_float(op: Any, x: ir.Value) -> ir.Value:
    """Return `x` as float: operators of ai.onnx.ml take integers and double too, and give float."""
    return x if x.dtype is ir.DataType.FLOAT else op.Cast(x, to=ir.DataType.FLOAT)


def constant(op: Any, array: np.ndarray, name: str) -> ir.Value:
    """Return integers or strings, which are no weight."""
    return op.initializer(ir.tensor(array.tolist() if array.dtype == object else array), name)


def mask(op: Any, array: np.ndarray, name: str) -> ir.Value:
    """Return an array of 0 and 1 as float; kept as booleans, it is no weight, whoever reads the model later."""
    return op.Cast(constant(op, array.astype(bool), name), to=ir.DataType.FLOAT)
