"""Converters that skl2onnx lacks, or has with a fault: registered with it once, when first needed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingClassifier
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, NuSVC

from onnxtrain.errors import ConversionError


@functools.cache
def register_converter() -> None:
    """Make skl2onnx convert the estimators of onnxtrain, and a few of scikit-learn that it does not.

    Examples
    --------
    >>> from onnxtrain.convert import register_converter
    >>> register_converter()
    """
    for estimator in (HistGradientBoostingClassifier, HistGradientBoostingRegressor):
        _repair(estimator, _python_booleans)
    _repair(LinearDiscriminantAnalysis, _logistic_for_two)
    _repair_operator(VotingClassifier, _not_flattened)
    for estimator in (SVC, NuSVC):
        _repair_operator(estimator, _scores_of_many)
    _register_transformed_target()


class _Container:
    """skl2onnx's container, with the attributes of each node put right."""

    def __init__(self, container: Any, attributes: Callable[[dict[str, Any]], dict[str, Any]]):
        self._container = container
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, *args: Any, **kwargs: Any) -> Any:
        """Add a node with other attributes."""
        return self._container.add_node(*args, **self._attributes(kwargs))


def _repair(estimator: type, attributes: Callable[[Any], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Wrap a converter so that the attributes of its nodes are put right."""

    def wrap(convert: Callable[..., None]) -> Callable[..., None]:
        def converter(scope: Any, operator: Any, container: Any) -> None:
            convert(scope, operator, _Container(container, attributes(operator.raw_operator)))

        return converter

    _wrap(estimator, wrap)


def _repair_operator(estimator: type, change: Callable[[Any], Any]) -> None:
    """Wrap a converter so that it sees a changed copy of the estimator."""

    def wrap(convert: Callable[..., None]) -> Callable[..., None]:
        def converter(scope: Any, operator: Any, container: Any) -> None:
            original = operator.raw_operator
            operator.raw_operator = change(original)
            try:
                convert(scope, operator, container)
            finally:
                operator.raw_operator = original

        return converter

    _wrap(estimator, wrap)


def _wrap(estimator: type, wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool, _shape_calculator_pool, get_converter, get_shape_calculator

    alias = sklearn_operator_name_map[estimator]
    options = _converter_pool[alias].get_allowed_options()
    update_registered_converter(
        estimator, alias, get_shape_calculator(alias), wrap(get_converter(alias)), overwrite=True,
        options=options if isinstance(options, dict) else None,
    )  # fmt: skip
    assert alias in _shape_calculator_pool


def _python_booleans(estimator: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """HistGradientBoosting*: a boolean in a list of integers is refused by onnx."""

    def attributes(given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value] if isinstance(value, list) else value
            for name, value in given.items()
        }

    return attributes


def _logistic_for_two(estimator: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """LinearDiscriminantAnalysis: the softmax of [-z, z] is not the probability 1 / (1 + exp(-z))."""

    def attributes(given: dict[str, Any]) -> dict[str, Any]:
        if len(estimator.classes_) == 2 and given.get("post_transform") == "SOFTMAX":
            return {**given, "post_transform": "LOGISTIC", "multi_class": 0}
        return given

    return attributes


def _not_flattened(estimator: Any) -> Any:
    """VotingClassifier: flatten_transform concerns transform alone, and is refused."""
    changed = copy.copy(estimator)
    changed.flatten_transform = False
    return changed


def _scores_of_many(estimator: Any) -> Any:
    """SVC: probabilities of three classes come from an iteration without derivative; take the scores."""
    if len(estimator.classes_) < 3 or not len(estimator._probA):
        return estimator
    changed = copy.copy(estimator)
    changed.probability = False
    changed._probA = changed._probB = np.empty(0)
    return changed


# ------------------------------------------------- TransformedTargetRegressor


def _register_transformed_target() -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.data_types import FloatTensorType

    def shapes(operator: Any) -> None:
        operator.outputs[0].type = FloatTensorType([None, operator.raw_operator.regressor_.n_features_in_ and None])

    def parser(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> Any:
        operator = scope.declare_local_operator("OnnxtrainTransformedTargetRegressor", model)
        operator.inputs = inputs
        operator.outputs.append(scope.declare_local_variable("variable", FloatTensorType([None, None])))
        return operator.outputs

    update_registered_converter(
        TransformedTargetRegressor, "OnnxtrainTransformedTargetRegressor", shapes, _transformed_target, parser=parser
    )


def _transformed_target(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType
    from skl2onnx._supported_operators import sklearn_operator_name_map

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
        "Identity", [name], [operator.outputs[0].full_name], name=scope.get_unique_operator_name("Identity"), op_version=14
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
