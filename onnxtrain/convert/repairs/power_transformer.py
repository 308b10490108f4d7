"""PowerTransformer as ONNX, differentiable in its exponents.

skl2onnx raises negative values to fractional powers and replaces the NaN afterwards;
a derivative would be NaN. Here each branch is computed on its own domain only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import PowerTransformer

from onnxtrain.convert.repairs.table import Converter, repair


@repair(PowerTransformer)
def without_nan(convert: Converter, scope: Any, operator: Any, container: Any) -> None:
    """Compute powers of positive values only; an exponent that makes a logarithm is left to skl2onnx."""
    exponents = operator.raw_operator.lambdas_
    if np.all(exponents != 0) and np.all(exponents != 2):
        _convert(scope, operator, container)
    else:
        convert(scope, operator, container)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    r"""Emit Yeo and Johnson's transformation, or Box and Cox's.

    .. math::

        y = \frac{(x_+ + 1)^\lambda - 1}{\lambda} - \frac{(x_- + 1)^{2 - \lambda} - 1}{2 - \lambda},
        \qquad y = \frac{x^\lambda - 1}{\lambda}
    """
    model = operator.raw_operator

    def constant(name: str, array: np.ndarray) -> str:
        name = scope.get_unique_variable_name(name)
        container.add_initializer(name, 1, list(array.shape), np.asarray(array, dtype=np.float32).ravel().tolist())
        return name

    def node(op_type: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or scope.get_unique_variable_name(op_type.lower())
        name = scope.get_unique_operator_name(op_type)
        container.add_node(op_type, list(inputs), [output], name=name, op_version=14, **attributes)
        return output

    def power(x: str, exponent: str) -> str:
        return node("Div", node("Sub", node("Pow", x, exponent), one), exponent)

    one, exponents = constant("one", np.array(1.0)), constant("lambdas", model.lambdas_)
    x = node("Cast", operator.inputs[0].full_name, to=1)
    if model.method == "box-cox":
        y = power(x, exponents)
    else:
        positive = power(node("Add", node("Relu", x), one), exponents)
        others = node("Sub", constant("two", np.array(2.0)), exponents)
        y = node("Sub", positive, power(node("Add", node("Relu", node("Neg", x)), one), others))
    if model.standardize:
        y = node("Sub", y, constant("mean", model._scaler.mean_))
        y = node("Div", y, constant("scale", model._scaler.scale_))
    node("Identity", y, output=operator.outputs[0].full_name)
