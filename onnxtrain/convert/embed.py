"""Our own estimators inside a pipeline that skl2onnx converts.

skl2onnx asks an estimator that it does not know for its parser, its shapes and
its converter; nothing has to be registered, and skl2onnx not be imported, before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx.compose

from onnxtrain.errors import ConversionError


class ConvertsToOnnx:
    """Lets ``skl2onnx.to_onnx`` convert an estimator that has ``get_trained_onnx()``."""

    def get_trained_onnx(self) -> onnx.ModelProto:
        """Return the model."""
        raise NotImplementedError

    def onnx_parser(self) -> Callable[..., list[Any]]:
        """Return what skl2onnx calls for the names and types of the outputs."""

        def parser(scope: Any = None, inputs: Any = None) -> list[Any]:
            _allow_matrix_of_probabilities(type(self))
            outputs = self.get_trained_onnx().graph.output
            return [(y.name, _tensor_type(y)) for y in outputs]

        return parser

    def onnx_shape_calculator(self) -> Callable[[Any], None]:
        """Return what skl2onnx calls to set the types of the outputs."""

        def calculate(operator: Any) -> None:
            for variable, y in zip(operator.outputs, self.get_trained_onnx().graph.output, strict=True):
                variable.type = _tensor_type(y)

        return calculate

    def onnx_converter(self) -> Callable[[Any, Any, Any], None]:
        """Return what skl2onnx calls to add the nodes."""

        def convert(scope: Any, operator: Any, container: Any) -> None:
            onx = self.get_trained_onnx()
            if len(onx.graph.input) != len(operator.inputs):
                raise ConversionError(
                    f"{type(self).__name__} has {len(onx.graph.input)} inputs, the pipeline gives {len(operator.inputs)}."
                )
            embed(scope, container, onx, operator)

        return convert


def _allow_matrix_of_probabilities(kind: type) -> None:
    """Let ``options={"zipmap": False}`` pass: it is what our classifiers do."""
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map

    if kind not in sklearn_operator_name_map:
        update_registered_converter(
            kind,
            f"Onnxtrain{kind.__name__}",
            lambda operator: operator.raw_operator.onnx_shape_calculator()(operator),
            lambda scope, operator, container: operator.raw_operator.onnx_converter()(scope, operator, container),
            options={"zipmap": [False]} if hasattr(kind, "predict_proba") else None,
        )


def embed(scope: Any, container: Any, onx: onnx.ModelProto, operator: Any) -> None:
    """Add the nodes of a model to what skl2onnx builds, behind the inputs of `operator`."""
    prefix = scope.get_unique_variable_name("trained") + "_"
    inner = onnx.compose.add_prefix(onx, prefix).graph
    inputs = [(x.onnx_name, y.name) for x, y in zip(operator.inputs, inner.input, strict=True)]
    outputs = [(y.name, x.onnx_name) for x, y in zip(operator.outputs, inner.output, strict=True)]
    for source, target in inputs:  # a pipeline may give float where the model takes double
        kind = next(y.type.tensor_type.elem_type for y in inner.input if y.name == target)
        container.add_node("Cast", [source], [target], name=scope.get_unique_operator_name("Cast"), to=kind, op_version=13)
    container.nodes.extend(inner.node)
    container.initializers.extend(inner.initializer)
    for source, target in outputs:
        container.add_node("Identity", [source], [target], name=scope.get_unique_operator_name("Identity"), op_version=14)
    for opset in onx.opset_import:
        container.node_domain_version_pair_sets.add((opset.domain, opset.version))


def _tensor_type(value: onnx.ValueInfoProto) -> Any:
    """Return the type of a value as skl2onnx writes it."""
    from skl2onnx.common.data_types import (
        BooleanTensorType,
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )

    types = {
        onnx.TensorProto.FLOAT: FloatTensorType,
        onnx.TensorProto.DOUBLE: DoubleTensorType,
        onnx.TensorProto.INT64: Int64TensorType,
        onnx.TensorProto.STRING: StringTensorType,
        onnx.TensorProto.BOOL: BooleanTensorType,
    }
    tensor = value.type.tensor_type
    if tensor.elem_type not in types:
        name = onnx.TensorProto.DataType.Name(tensor.elem_type)
        raise ConversionError(f"skl2onnx has no type for the output {value.name!r} of {name}.")
    return types[tensor.elem_type]([d.dim_value or None for d in tensor.shape.dim])


