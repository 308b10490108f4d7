"""Missing values: SimpleImputer, also with an indicator, and the refusal of KNNImputer."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.impute import KNNImputer, SimpleImputer

from onnxtrain.convert.repairs.table import Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope

_FLOAT, _INT64 = 1, 7


def _is_text(operator: Operator) -> bool:
    from skl2onnx.common.data_types import StringTensorType

    return any(isinstance(given.type, StringTensorType) for given in operator.inputs)


def _columns_of_imputer(operator: Operator) -> None:
    """Set the type of the output: floats like the input, one column for each kept or indicated column."""
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    rows, n = operator.inputs[0].get_first_dimension(), len(operator.raw_operator.get_feature_names_out())
    operator.outputs[0].type = (StringTensorType if _is_text(operator) else FloatTensorType)([rows, n])


@repair(SimpleImputer, shapes=_columns_of_imputer)
def impute_floats(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Join all columns as floats, as scikit-learn does; skl2onnx supports columns of one type and no indicator."""
    model = operator.raw_operator
    if _is_text(operator) or not isinstance(model.missing_values, Real):
        convert(scope, operator, container)
        return
    statistics = np.asarray(model.statistics_, np.float64)

    def node(op_type: str, *inputs: str, **attributes: Any) -> str:
        output = scope.get_unique_variable_name(op_type.lower())
        container.add_node(op_type, list(inputs), [output], name=scope.get_unique_operator_name(op_type), **attributes)
        return output

    def columns(x: str, indices: np.ndarray) -> str:
        name = scope.get_unique_variable_name("columns")
        container.add_initializer(name, _INT64, [len(indices)], indices.tolist())
        return node("Gather", x, name, axis=1)

    floats = [node("Cast", given.full_name, to=_FLOAT) for given in operator.inputs]
    x = node("Concat", *floats, axis=1) if len(floats) > 1 else floats[0]
    missing = float(model.missing_values)
    filled = node(
        "Imputer",
        x,
        op_domain="ai.onnx.ml",
        imputed_value_floats=np.nan_to_num(statistics).astype(np.float32),
        replaced_value_float=missing,
    )
    if np.isnan(statistics).any():  # scikit-learn drops columns without any value
        filled = columns(filled, np.flatnonzero(~np.isnan(statistics)))
    parts = [filled]
    if model.add_indicator and len(model.indicator_.features_):
        shown = columns(x, np.asarray(model.indicator_.features_, np.int64))
        if np.isnan(missing):
            mask = node("IsNaN", shown)
        else:
            value = scope.get_unique_variable_name("missing")
            container.add_initializer(value, _FLOAT, [1], [missing])
            mask = node("Equal", shown, value)
        parts.append(node("Cast", mask, to=_FLOAT))
    joined = node("Concat", *parts, axis=1)
    container.add_node("Identity", [joined], [operator.outputs[0].full_name], name=scope.get_unique_operator_name("Id"))


@repair(KNNImputer)
def refuse_neighbors(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Refuse KNNImputer: rounding decides between rows at equal distance, also for rows outside the fit."""
    raise ConversionError(
        "If two rows are equally far, rounding decides which values KNNImputer takes, and ONNX may take those of the "
        "other row. Put it in a pipeline in front of the trained model, where scikit-learn runs it."
    )
