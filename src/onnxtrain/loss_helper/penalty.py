"""Penalties on weights, and the list of the trainable initializers of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import DTypeLike

from onnxtrain import graph as graphs
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.errors import ArgumentTypeError, LossError
from onnxtrain.graph import ModelLike, Op, is_float, unique_name
from onnxtrain.losses.table import check_number
from onnxtrain.registry import did_you_mean

#: Above this size of a weight, passes over its elements cost more than additional operators. In a step of a
#: 784-256-128-10 network, both penalties cost 25 % as separate sums instead of 42 %. The measurement includes a faster
#: computation of signs.
_MANY = 2**14


def add_penalty(
    op: Op, weight: ir.Value, l1: ir.Value | float, l2: ir.Value | float, *, keepdims: bool = False
) -> ir.Value:
    r"""Append the penalty :math:`\lambda_1 \sum |w| + \lambda_2 \sum w^2` of one weight.

    The penalty is a scalar; with `keepdims` it has one axis of length 1 per axis of the weight. A factor 0 adds no
    node; if both factors are 0, the constant 0 is returned. A factor may also be a graph value, a scalar of the type of
    the weight.
    """
    if _is_zero(l1) and _is_zero(l2):
        return op.initializer(ir.tensor(0.0, dtype=weight.dtype, name="no_penalty"))
    if _is_zero(l1):
        return op.Mul(op.ReduceSumSquare(weight, keepdims=int(keepdims)), l2)
    if _is_zero(l2):
        return op.Mul(op.ReduceSum(op.Abs(weight), keepdims=int(keepdims)), l1)
    shape = graphs.static_shape(weight)
    if shape is not None and math.prod(shape) > _MANY:
        return op.Add(*(add_penalty(op, weight, *factors, keepdims=keepdims) for factors in ((l1, 0), (0, l2))))
    # w (l1 sign(w) + l2 w): the gradient reuses these terms
    slopes = op.Add(op.Mul(op.Sign(weight), l1), op.Mul(weight, l2))
    return op.ReduceSum(op.Mul(weight, slopes), keepdims=int(keepdims))


def _is_zero(factor: ir.Value | float) -> bool:
    return not isinstance(factor, ir.Value) and factor == 0


@lists_its_arguments
def penalty_loss_onnx(
    name: str,
    dtype: DTypeLike,
    l1: float | None = None,
    l2: float | None = None,
    existing_names: Iterable[str] | None = None,
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    r"""Return the initializers and nodes of :math:`\lambda_1 \sum |w| + \lambda_2 \sum w^2`, of shape ().

    Parameters
    ----------
    name : str
        The name of w.
    dtype : numpy dtype or int
        The type of w; an int is a member of :class:`onnx.TensorProto`.
    l1, l2 : float, optional
        At least one must be given.
    existing_names : iterable of str, optional
        Names that are already used; a set is updated with the new names.

    Returns
    -------
    initializers : list of onnx.TensorProto
        The factors.
    nodes : list of onnx.NodeProto
        The nodes; the output of the last one is the penalty.

    Raises
    ------
    LossError
        Neither factor is positive, one is negative, or `dtype` is not floating-point.

    Examples
    --------
    >>> initializers, nodes = penalty_loss_onnx("W", np.float32, l2=0.5)
    >>> [node.op_type for node in nodes]
    ['ReduceSumSquare', 'Mul']
    """
    if not isinstance(name, str) or not name:
        found = repr(name) if isinstance(name, str) else type(name).__name__
        raise ArgumentTypeError(f"name must be the name of the weight, a string, got {found}.")
    if isinstance(existing_names, str) or not isinstance(existing_names, Iterable | None):
        raise ArgumentTypeError(f"existing_names must be a list or a set of names, got {existing_names!r:.80}.")
    factors = _check_factors(name, {"l1": 0 if l1 is None else l1, "l2": 0 if l2 is None else l2})
    if factors == (0, 0):
        raise LossError(f"The penalty on {name!r} needs a positive l1 or l2.")
    element = _floating_point(name, dtype)
    w = ir.Value(name=name, type=ir.TensorType(element))
    graph = ir.Graph([w], [], nodes=[], opset_imports={"": graphs.OPSET})
    add_penalty(graphs.Builder(graph).op, w, *factors)
    taken = existing_names if isinstance(existing_names, set) else set(existing_names or ())
    taken.add(name)
    constants = list(graph.initializers.values())
    for value in (*constants, *(y for node in graph for y in node.outputs)):
        value.name = unique_name(f"{name}_penalty", taken)
    for node in graph:
        node.name = None  # two penalties in one graph would have nodes of the same names
    arrays = {str(v.name): graphs.constant(v) for v in constants}
    initializers = [onnx.numpy_helper.from_array(x, name) for name, x in arrays.items() if x is not None]
    return initializers, [ir.to_proto(node) for node in graph]


def _floating_point(name: str, dtype: DTypeLike) -> ir.DataType:
    """Return the type of a weight; raise a LossError if it is not floating-point."""
    try:
        if dtype is None:  # numpy takes it as float64
            raise TypeError("no dtype")
        element = ir.DataType(dtype) if isinstance(dtype, int) else ir.DataType.from_numpy(np.dtype(dtype))
    except (TypeError, ValueError) as e:
        raise LossError(
            f"The dtype of the penalty on {name!r} must be a type such as numpy.float32, got {dtype!r:.80}."
        ) from e
    if element not in graphs.FLOATS:
        raise LossError(
            f"The dtype of the penalty on {name!r} must be floating-point, got {element.name}. Pass the dtype of the "
            "weight, such as numpy.float32 or onnx.TensorProto.FLOAT."
        )
    return element


@lists_its_arguments
def get_train_initializer(onx: ModelLike) -> dict[str, tuple[np.ndarray, onnx.TensorProto]]:
    """Return the trainable floating-point initializers of a model, as arrays and tensors.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        The model; it is not changed.

    Returns
    -------
    dict of str to (array, onnx.TensorProto)
        The initializers of type float16, bfloat16, float or double, by name, in the order of the model.

    Examples
    --------
    Integers are not trained:

    >>> import onnx.parser
    >>> from onnxtrain import get_train_initializer
    >>> onx = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     g (float[N, 2] X) => (float[N, 1] Y) <float[2, 1] W = {1, 2}, int64[2] shape = {-1, 1}> {
    ...         h = MatMul(X, W)
    ...         Y = Reshape(h, shape)
    ...     }''')
    >>> {name: array.ravel().tolist() for name, (array, _) in get_train_initializer(onx).items()}
    {'W': [1.0, 2.0]}
    """
    return {
        tensor.name: (onnx.numpy_helper.to_array(tensor), tensor)
        for tensor in graphs.read(onx).graph.initializer
        if tensor.data_type in graphs.FLOATS
    }


def find_penalties(
    model: ir.Model, penalty: Mapping[str, Mapping[str, float] | float]
) -> dict[ir.Value, tuple[float, float]]:
    """Return the factors l1 and l2 of each penalized value; raise a LossError for an invalid name or factor."""
    known = {str(v.name): v for v in (*model.graph.inputs, *model.graph.initializers.values()) if is_float(v)}
    found = {}
    for name, factors in check_penalty(penalty).items():
        if name not in known:
            raise LossError(
                f"The penalty names {name!r}, which is not a floating-point initializer or input. "
                f"{did_you_mean(name, known)}{graphs.weights_in_operators(model.graph)}"
            )
        found[known[name]] = factors
    return found


def check_penalty(penalty: Mapping[str, Mapping[str, float] | float]) -> dict[str, tuple[float, float]]:
    """Return the factors (l1, l2) of each weight by name; raise a LossError if they are invalid."""
    if not isinstance(penalty, Mapping):
        raise LossError(
            f"A penalty must be a dictionary of factors by weight name, such as {{'coef': 0.1}}, got {penalty!r:.80}."
        )
    for name in penalty:
        if not isinstance(name, str):
            raise LossError(f"A penalty has the names of weights as keys, such as {{'coef': 0.1}}, got {name!r:.80}.")
    return {name: _check_factors(name, factors) for name, factors in penalty.items()}


def _check_factors(name: str, factors: Mapping[str, float] | float) -> tuple[float, float]:
    if callable(factors):
        raise LossError(
            f"The penalty on {name!r} is a function, but a penalty is a sum of l1 |w| and l2 w²: "
            f"penalty={{{name!r}: {{'l1': 0.1}}}}."
        )
    if isinstance(factors, str) and factors in ("l1", "l2"):
        raise LossError(f"The penalty on {name!r} has no strength: penalty={{{name!r}: {{{factors!r}: 0.1}}}}.")
    factors = factors if isinstance(factors, Mapping) else {"l2": factors}
    for key in factors:
        if key not in ("l1", "l2"):
            raise LossError(f"The penalty on {name!r} has an unknown factor {key!r}. {did_you_mean(key, ('l1', 'l2'))}")
    l1, l2 = (
        check_number(factors.get(key, 0), f"{key} of the penalty on {name!r}", at_least=0) for key in ("l1", "l2")
    )
    return l1, l2
