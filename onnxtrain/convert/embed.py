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
            register_estimator(type(self))
            outputs = self.get_trained_onnx().graph.output
            return [(y.name, _tensor_type(y, inputs)) for y in outputs]

        return parser

    def onnx_shape_calculator(self) -> Callable[[Any], None]:
        """Return what skl2onnx calls to set the types of the outputs."""

        def calculate(operator: Any) -> None:
            for variable, y in zip(operator.outputs, self.get_trained_onnx().graph.output, strict=True):
                variable.type = _tensor_type(y, operator.inputs)

        return calculate

    def onnx_converter(self) -> Callable[[Any, Any, Any], None]:
        """Return what skl2onnx calls to add the nodes."""

        def convert(scope: Any, operator: Any, container: Any) -> None:
            onx = self.get_trained_onnx()
            if len(onx.graph.input) != len(operator.inputs):
                raise ConversionError(
                    f"{type(self).__name__} has {len(onx.graph.input)} inputs, "
                    f"the pipeline gives {len(operator.inputs)}."
                )
            embed(scope, container, onx, operator)

        return convert


def register_estimator(kind: type) -> None:
    """Enter a class in skl2onnx's table, with the option its classifiers have: how probabilities are returned."""
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map

    if kind not in sklearn_operator_name_map:
        update_registered_converter(
            kind,
            f"Onnxtrain{kind.__name__}",
            lambda operator: operator.raw_operator.onnx_shape_calculator()(operator),
            lambda scope, operator, container: operator.raw_operator.onnx_converter()(scope, operator, container),
            options={"zipmap": [True, False], "nocl": [True, False]} if hasattr(kind, "predict_proba") else None,
        )


def embed(scope: Any, container: Any, onx: onnx.ModelProto, operator: Any) -> None:
    """Add the nodes of a model to what skl2onnx builds, behind the inputs of `operator`."""
    prefix = scope.get_unique_variable_name("trained") + "_"
    inner = onnx.compose.add_prefix(onx, prefix).graph

    def cast(source: str, target: str, to: int) -> None:
        container.add_node(
            "Cast", [source], [target], name=scope.get_unique_operator_name("Cast"), to=to, op_version=13
        )

    for x, y in zip(operator.inputs, inner.input, strict=True):
        cast(x.onnx_name, y.name, y.type.tensor_type.elem_type)
    container.nodes.extend(inner.node)
    container.initializers.extend(inner.initializer)
    for x, y in zip(operator.outputs, inner.output, strict=True):
        cast(y.name, x.onnx_name, _elem_type(y, operator.inputs))
    for opset in onx.opset_import:
        container.node_domain_version_pair_sets.add((opset.domain, opset.version))


def _elem_type(value: onnx.ValueInfoProto, inputs: Any) -> int:
    """Return the type of an output: float where the pipeline computes in float, as skl2onnx does."""
    from skl2onnx.common.data_types import FloatTensorType

    found = value.type.tensor_type.elem_type
    if found == onnx.TensorProto.DOUBLE and inputs and all(isinstance(x.type, FloatTensorType) for x in inputs):
        return int(onnx.TensorProto.FLOAT)
    return int(found)


def _tensor_type(value: onnx.ValueInfoProto, inputs: Any) -> Any:
    """Return the type of an output as skl2onnx writes it."""
    from skl2onnx.common import data_types

    names = {1: "Float", 11: "Double", 7: "Int64", 8: "String", 9: "Boolean"}
    kind = _elem_type(value, inputs)
    if kind not in names:
        name = onnx.TensorProto.DataType.Name(kind)
        raise ConversionError(f"skl2onnx has no type for the output {value.name!r} of {name}.")
    shape = [d.dim_value or None for d in value.type.tensor_type.shape.dim]
    return getattr(data_types, f"{names[kind]}TensorType")(shape)
