"""TransformedTargetRegressor as ONNX: skl2onnx has no converter for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from onnxtrain.convert.repairs.table import ADDITIONS, Addition
from onnxtrain.errors import ConversionError


def _shapes(operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    operator.outputs[0].type = FloatTensorType([None, None])


def _transformed_target(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common.data_types import FloatTensorType

    model = operator.raw_operator
    inner = scope.declare_local_operator(sklearn_operator_name_map[type(model.regressor_)], model.regressor_)
    inner.inputs = operator.inputs
    y = scope.declare_local_variable("transformed_target", FloatTensorType([None, None]))
    inner.outputs.append(y)
    name = y.onnx_name
    steps = list(_inverse(model.transformer_))
    for op_type, constant in steps:
        inputs = [name]
        if constant is not None:
            inputs.append(scope.get_unique_variable_name("inverse"))
            container.add_initializer(inputs[-1], 1, list(constant.shape), constant.astype(np.float32).ravel().tolist())
        name = scope.get_unique_variable_name("target")
        container.add_node(op_type, inputs, [name], name=scope.get_unique_operator_name(op_type), op_version=14)
    container.add_node(
        "Identity",
        [name],
        [operator.outputs[0].full_name],
        name=scope.get_unique_operator_name("Identity"),
        op_version=14,
    )


def _inverse(transformer: Any) -> Iterator[tuple[str, np.ndarray | None]]:
    """Return the nodes, an operator and a constant each, that undo the transformation of y."""
    if isinstance(transformer, StandardScaler):
        yield from (("Mul", transformer.scale_), ("Add", transformer.mean_))
    elif isinstance(transformer, RobustScaler):
        yield from (("Mul", transformer.scale_), ("Add", transformer.center_))
    elif isinstance(transformer, MinMaxScaler):
        yield from (("Sub", transformer.min_), ("Div", transformer.scale_))
    elif isinstance(transformer, MaxAbsScaler):
        yield ("Mul", transformer.scale_)
    elif isinstance(transformer, FunctionTransformer) and transformer.inverse_func in _FUNCTIONS:
        yield from _FUNCTIONS[transformer.inverse_func]
    else:
        what = getattr(transformer, "inverse_func", None) or type(transformer).__name__
        raise ConversionError(f"TransformedTargetRegressor: {what} of the target cannot be undone in ONNX.")


_ONE = np.ones(1)

#: inverse_func -> its nodes.
_FUNCTIONS: dict[Any, list[tuple[str, np.ndarray | None]]] = {
    None: [],
    np.exp: [("Exp", None)],
    np.log: [("Log", None)],
    np.expm1: [("Exp", None), ("Sub", _ONE)],
    np.log1p: [("Add", _ONE), ("Log", None)],
    np.sqrt: [("Sqrt", None)],
    np.square: [("Pow", 2 * _ONE)],
}

ADDITIONS[TransformedTargetRegressor] = Addition(_transformed_target, _shapes)
