"""Missing values: SimpleImputer, also with an indicator, MissingIndicator, and the refusal of KNNImputer."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer

from onnxtrain.convert.custom import Nodes, built_in
from onnxtrain.convert.repairs.table import Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope

_FLOAT, _INT64, _STRING = 1, 7, 8


def _is_text(operator: Operator) -> bool:
    from skl2onnx.common.data_types import StringTensorType

    return any(isinstance(given.type, StringTensorType) for given in operator.inputs)


def _columns_of_imputer(operator: Operator) -> None:
    """Set the type of the output: floats like the input, one column for each kept or indicated column."""
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    rows, n = operator.inputs[0].get_first_dimension(), len(operator.raw_operator.get_feature_names_out())
    operator.outputs[0].type = (StringTensorType if _is_text(operator) else FloatTensorType)([rows, n])


@repair(SimpleImputer, shapes=_columns_of_imputer)
def impute(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Impute texts, and floats with an indicator; skl2onnx supports neither, nor columns of several types."""
    model = operator.raw_operator
    if _is_text(operator):
        write = _impute_texts if _are_imputable(operator) else convert
    else:
        write = _impute_floats if isinstance(model.missing_values, Real) else convert
    write(scope, operator, container)


class _Nodes:
    """The nodes that an imputer adds to a graph of skl2onnx."""

    def __init__(self, scope: Scope, operator: Operator, container: ModelComponentContainer):
        self._scope, self._operator, self._container = scope, operator, container

    def __call__(self, op_type: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or self._scope.get_unique_variable_name(op_type.lower())
        name = self._scope.get_unique_operator_name(op_type)
        self._container.add_node(op_type, list(inputs), [output], name=name, **attributes)
        return output

    def constant(self, dtype: int, values: Sequence[Any], name: str) -> str:
        name = self._scope.get_unique_variable_name(name)
        self._container.add_initializer(name, dtype, [len(values)], list(values))
        return name

    def columns(self, x: str, indices: np.ndarray) -> str:
        return self("Gather", x, self.constant(_INT64, indices.tolist(), "columns"), axis=1)

    def joined(self, columns: Sequence[str]) -> str:
        return self("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]

    def result(self, x: str) -> None:
        self("Identity", x, output=self._operator.outputs[0].full_name)


def _impute_floats(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Join all columns as floats, as scikit-learn does."""
    model, node = operator.raw_operator, _Nodes(scope, operator, container)
    statistics = np.asarray(model.statistics_, np.float64)
    x = node.joined([node("Cast", given.full_name, to=_FLOAT) for given in operator.inputs])
    missing = float(model.missing_values)
    filled = node(
        "Imputer",
        x,
        op_domain="ai.onnx.ml",
        imputed_value_floats=np.nan_to_num(statistics).astype(np.float32),
        replaced_value_float=missing,
    )
    if np.isnan(statistics).any():  # scikit-learn drops columns without any value
        filled = node.columns(filled, np.flatnonzero(~np.isnan(statistics)))
    parts = [filled]
    if model.add_indicator and len(model.indicator_.features_):
        shown = node.columns(x, np.asarray(model.indicator_.features_, np.int64))
        if np.isnan(missing):
            mask = node("IsNaN", shown)
        else:
            mask = node("Equal", shown, node.constant(_FLOAT, [missing], "missing"))
        parts.append(node("Cast", mask, to=_FLOAT))
    node.result(node.joined(parts))


def _are_imputable(operator: Operator) -> bool:
    """Whether all columns are texts with a value for the missing ones; an indicator would be of another type."""
    from skl2onnx.common.data_types import StringTensorType

    model = operator.raw_operator
    filled = all(isinstance(value, str) for value in model.statistics_)
    return filled and not model.add_indicator and all(isinstance(x.type, StringTensorType) for x in operator.inputs)


def _impute_texts(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Replace the text that stands for a missing value, such as ``nan``; ONNX has no missing strings."""
    model, node = operator.raw_operator, _Nodes(scope, operator, container)
    missing = node.constant(_STRING, [str(model.missing_values).encode()], "missing")
    fill = node.constant(_STRING, [value.encode() for value in model.statistics_], "fill")
    x = node.joined([given.full_name for given in operator.inputs])
    node.result(node("Where", node("Equal", x, missing), fill, x))


@built_in(MissingIndicator)
def indicator(op: Nodes, estimator: Any, X: ir.Value) -> ir.Value:
    """Return 1 for missing values and 0 for others, of all columns or of those with missing values in the fit."""
    if estimator.features == "missing-only" and estimator.error_on_new:
        raise ConversionError(
            "MissingIndicator raises an error for missing values in other columns than in its fit, which a graph does "
            "not. Set error_on_new=False, or leave it out and set SimpleImputer(add_indicator=True)."
        )
    if not isinstance(estimator.missing_values, Real):
        raise ConversionError(
            f"MissingIndicator marks {estimator.missing_values!r}, and ONNX has no missing strings. Leave it out."
        )
    missing, shown = float(estimator.missing_values), op.Gather(X, estimator.features_.astype(np.int64), axis=1)
    return op.Cast(op.IsNaN(shown) if np.isnan(missing) else op.Equal(shown, missing), to=ir.DataType.FLOAT)


@repair(KNNImputer)
def refuse_neighbors(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Refuse KNNImputer: rounding decides between rows at equal distance, also for rows outside the fit."""
    raise ConversionError(
        "If two rows are equally far, rounding decides which values KNNImputer takes, and ONNX may take those of the "
        "other row. Put it in a pipeline in front of the trained model, where scikit-learn runs it."
    )
