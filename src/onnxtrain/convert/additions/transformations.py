"""PowerTransformer, and the inverse transformation of the target in TransformedTargetRegressor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from onnxtrain.convert.custom import Nodes, addition
from onnxtrain.convert.learned import is_idle
from onnxtrain.convert.repairs.table import ADDITIONS, Addition, Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope


#: The relative difference of two sums in float64 that rounding leaves.
_ROUNDING = 1e-9


def _powers(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    r"""Return the Yeo-Johnson or the Box-Cox transformation.

    .. math::

        y = \frac{(x_+ + 1)^\lambda - 1}{\lambda} - \frac{(x_- + 1)^{2 - \lambda} - 1}{2 - \lambda},
        \qquad y = \frac{x^\lambda - 1}{\lambda}
    """
    exponents = op.Identity(estimator.lambdas_)

    def power(x: ir.Value, exponent: ir.Value) -> ir.Value:
        return op.Div(op.Sub(op.Pow(x, exponent), 1.0), exponent)

    if estimator.method == "box-cox":
        y = power(X, exponents)
    else:
        positive = power(op.Add(op.Relu(X), 1.0), exponents)
        y = op.Sub(positive, power(op.Add(op.Relu(op.Neg(X)), 1.0), op.Sub(2.0, exponents)))
    if not estimator.standardize:
        return y
    return op.Div(op.Sub(y, estimator._scaler.mean_), estimator._scaler.scale_)


_POWERS = addition(_powers)


@repair(PowerTransformer)
def without_nan(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Compute powers of positive values only; exponents that give a logarithm are left to skl2onnx."""
    exponents = operator.raw_operator.lambdas_
    own = np.all(exponents != 0) and np.all(exponents != 2)
    write = _POWERS.convert if own else convert
    write(scope, operator, container)


def _clipped(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    return op.Clip(op.Div(X, estimator.scale_), -1.0, 1.0)


_CLIPPED = addition(_clipped)


@repair(MaxAbsScaler)
def clipped_to_the_range_of_the_fit(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Clip the scaled columns of new rows, which skl2onnx does not."""
    write = _CLIPPED.convert if getattr(operator.raw_operator, "clip", False) else convert
    write(scope, operator, container)


def _of_largest(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    largest = op.ReduceMax(op.Abs(X), np.array([1]), keepdims=1)
    return op.Div(X, op.Where(op.Equal(largest, 0.0), 1.0, largest))


_OF_LARGEST = addition(_of_largest)


@repair(Normalizer)
def by_the_largest_size(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Divide by the largest absolute value for ``norm="max"``; onnxruntime's operator divides by the largest value."""
    write = _OF_LARGEST.convert if operator.raw_operator.norm == "max" else convert
    write(scope, operator, container)


def _of_function(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    if estimator.func is np.clip:
        for op_type, names in (("Max", ("a_min", "min")), ("Min", ("a_max", "max"))):
            for limit in (value for name in names if (value := (estimator.kw_args or {}).get(name)) is not None):
                X = getattr(op, op_type)(X, op.constant(np.asarray(limit, np.float64)))
        return X
    if estimator.func is np.isnan:
        return op.Cast(op.IsNaN(X), to=ir.DataType.FLOAT)
    for op_type, array in _FUNCTIONS[estimator.func]:
        X = getattr(op, op_type)(X, *([] if array is None else [array]))
    return X


_OF_FUNCTION = addition(_of_function)


def _columns_of_function(operator: Operator) -> None:
    """Set the type of the output: as many columns as all inputs have, floats unless the function is the identity."""
    from skl2onnx.common.data_types import FloatTensorType

    widths = [given.type.shape[1] for given in operator.inputs]
    kind = FloatTensorType if operator.raw_operator.func is not None else type(operator.inputs[0].type)
    rows = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = kind([rows, None if None in widths else sum(widths)])


@repair(FunctionTransformer, shapes=_columns_of_function)
def by_the_operators_of_a_function(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Compute the functions of numpy that ONNX has; skl2onnx converts only the identity."""
    model = operator.raw_operator
    plain = model.func is np.isnan or (model.func is not None and _is_known(model.func))
    given = {*(model.kw_args or {})}
    own = given <= {"a_min", "a_max", "min", "max"} if model.func is np.clip else plain and not given
    write = _OF_FUNCTION.convert if own else convert
    write(scope, operator, container)


# -------------------------------------------------- TransformedTargetRegressor


def _shapes(operator: Operator) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    operator.outputs[0].type = FloatTensorType([None, None])


def _transformed_target(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common.data_types import FloatTensorType

    model = operator.raw_operator
    inner = scope.declare_local_operator(sklearn_operator_name_map[type(model.regressor_)], model.regressor_)
    inner.inputs = operator.inputs
    y = scope.declare_local_variable("transformed_target", FloatTensorType([None, None]))
    inner.outputs.append(y)

    def node(op_type: str, *inputs: str | np.ndarray, output: str | None = None) -> str:
        names = [x if isinstance(x, str) else constant(x) for x in inputs]
        output = output or scope.get_unique_variable_name("target")
        container.add_node(op_type, names, [output], name=scope.get_unique_operator_name(op_type), op_version=14)
        return output

    def constant(array: np.ndarray) -> str:
        name = scope.get_unique_variable_name("inverse")
        container.add_initializer(name, 1, list(array.shape), array.astype(np.float32).ravel().tolist())
        return name

    name = y.onnx_name
    for transformer in reversed(_steps(model.transformer_)):
        for op_type, array in _inverse(transformer):
            name = node(op_type, name, *([] if array is None else [array]))
        if isinstance(transformer, PowerTransformer):
            name = _inverse_power(node, transformer, name)
    node("Identity", name, output=operator.outputs[0].full_name)


def _steps(transformer: BaseEstimator) -> list[BaseEstimator]:
    """Return the transformers of y in the order in which they are applied."""
    if type(transformer) is not Pipeline:
        return [transformer]
    return [inner for _, step in transformer.steps if not is_idle(step) for inner in _steps(step)]


def _inverse_power(node: Callable[..., str], transformer: PowerTransformer, t: str) -> str:
    r"""Invert the Yeo-Johnson or the Box-Cox transformation.

    .. math::

        y = (\lambda t_+ + 1)^{1 / \lambda} - (1 + (2 - \lambda) t_-)^{1 / (2 - \lambda)},
        \qquad y = (\lambda t + 1)^{1 / \lambda}
    """

    def root(x: str, exponents: str) -> str:
        return node("Pow", node("Add", node("Mul", x, exponents), _ONE), node("Div", _ONE, exponents))

    exponents = node("Identity", transformer.lambdas_)  # the attribute, which keeps its float64 digits
    if transformer.method == "box-cox":
        return root(t, exponents)
    others = node("Sub", 2 * _ONE, exponents)
    return node("Sub", root(node("Relu", t), exponents), root(node("Relu", node("Neg", t)), others))


def _inverse(transformer: BaseEstimator) -> Iterator[tuple[str, np.ndarray | None]]:
    """Yield the nodes, an operator and a constant each, that invert the transformation of y."""
    kind = type(transformer)  # subclasses are replaced before, see _of_known_class
    if kind is StandardScaler:
        yield from _moved(transformer.scale_, transformer.mean_ if transformer.with_mean else None)
    elif kind is RobustScaler:
        yield from _moved(transformer.scale_, transformer.center_)
    elif kind is MinMaxScaler:
        yield from (("Sub", transformer.min_), ("Div", transformer.scale_))
    elif kind is MaxAbsScaler:
        yield ("Mul", transformer.scale_)
    elif kind is PowerTransformer and not np.isin(transformer.lambdas_, [0, 2]).any():
        yield from _inverse(transformer._scaler) if transformer.standardize else ()
    elif kind is FunctionTransformer and _is_known(transformer.inverse_func) and not transformer.inv_kw_args:
        yield from _FUNCTIONS[transformer.inverse_func]
    elif (affine := _affine(transformer)) is not None:
        matrix, origin = affine
        yield from (("MatMul", matrix), ("Add", origin))
    else:
        what = getattr(transformer, "inverse_func", None) or kind
        what = getattr(what, "__name__", what)
        raise ConversionError(
            f"TransformedTargetRegressor: {what} of the target cannot be inverted in ONNX. Train the inner regressor: "
            "TransformedTargetRegressor(OrtGradientRegressor(fitted.regressor_), transformer=...), or func=... and "
            "inverse_func=... in place of transformer=...."
        )


def _affine(transformer: BaseEstimator) -> tuple[np.ndarray, np.ndarray] | None:
    r"""Return M and c if :math:`t M + c` inverts the transformation, as for PCA; None for other transformations.

    They are found from rows of an identity matrix, and compared on rows of sizes from 1e-3 to 1e6 of both signs.
    """
    try:
        n_outputs = np.shape(transformer.transform(np.ones((1, transformer.n_features_in_))))[1]
        rng, unit = np.random.default_rng(0), np.eye(n_outputs)
        rows = rng.normal(size=(100, n_outputs)) * np.logspace(-3, 6, 100)[:, None]
        origin, ends, expected = (
            np.asarray(transformer.inverse_transform(t), dtype=np.float64) for t in (0 * unit[:1], unit, rows)
        )
    except Exception:  # any class: a user's function may not take these values
        return None
    matrix = ends - origin
    difference = np.abs(rows @ matrix + origin - expected) / (np.abs(rows) @ np.abs(matrix) + np.abs(origin) + 1e-30)
    return (matrix, origin) if np.all(difference < _ROUNDING) else None


def _moved(scale: np.ndarray | None, mean: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the nodes that scale and shift by the learned attributes of a scaler; None has no effect."""
    yield from ((op_type, x) for op_type, x in (("Mul", scale), ("Add", mean)) if x is not None)


_ONE = np.ones(1)

#: The nodes of functions of numpy, each an operator and a constant.
_FUNCTIONS: dict[Any, list[tuple[str, np.ndarray | None]]] = {
    None: [],
    np.abs: [("Abs", None)],
    np.arccos: [("Acos", None)],
    np.arccosh: [("Acosh", None)],
    np.arcsin: [("Asin", None)],
    np.arcsinh: [("Asinh", None)],
    np.arctan: [("Atan", None)],
    np.arctanh: [("Atanh", None)],
    np.ceil: [("Ceil", None)],
    np.cos: [("Cos", None)],
    np.cosh: [("Cosh", None)],
    np.exp: [("Exp", None)],
    np.expm1: [("Exp", None), ("Sub", _ONE)],
    np.floor: [("Floor", None)],
    np.log: [("Log", None)],
    np.log10: [("Log", None), ("Div", np.log(10) * _ONE)],
    np.log1p: [("Add", _ONE), ("Log", None)],
    np.log2: [("Log", None), ("Div", np.log(2) * _ONE)],
    np.negative: [("Neg", None)],
    np.reciprocal: [("Reciprocal", None)],
    np.rint: [("Round", None)],
    np.sign: [("Sign", None)],
    np.sin: [("Sin", None)],
    np.sinh: [("Sinh", None)],
    np.sqrt: [("Sqrt", None)],
    np.square: [("Pow", 2 * _ONE)],
    np.tan: [("Tan", None)],
    np.tanh: [("Tanh", None)],
}


def _is_known(function: Any) -> bool:
    """Whether a function has nodes; a user's object may have no hash."""
    return function is None or (isinstance(function, np.ufunc) and function in _FUNCTIONS)


ADDITIONS[TransformedTargetRegressor] = Addition(_transformed_target, _shapes)
