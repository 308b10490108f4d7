"""Converters that skl2onnx lacks, has with a fault, or slow: registered with it once, when first needed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC, NuSVC

from onnxtrain.convert.embed import ConvertsToOnnx, register_estimator
from onnxtrain.convert.power import replace_power_transformer
from onnxtrain.convert.target import register_transformed_target


def register_converter() -> None:
    """Make skl2onnx convert the estimators of onnxtrain wherever they stand, and a few of scikit-learn.

    As the last step of a pipeline they are converted without; inside VotingRegressor,
    StackingRegressor, ... skl2onnx looks for the class in its table. Fitting one on a
    scikit-learn estimator calls this.

    Examples
    --------
    >>> from onnxtrain.convert import register_converter
    >>> register_converter()
    """
    _register_repairs()
    pending = ConvertsToOnnx.__subclasses__()
    for kind in pending:
        pending.extend(kind.__subclasses__())
        register_estimator(kind)


@functools.cache
def share_versions() -> None:
    """Let the conversions of this process share the table of all operators that skl2onnx makes for each of them.

    It takes longer than all else in the conversion of a small model. Where there is no such table, nothing happens.
    """
    from skl2onnx.common._container import ModelComponentContainer

    if hasattr(ModelComponentContainer, "_build_op_version") and not hasattr(ModelComponentContainer, "_op_versions"):
        container = ModelComponentContainer.__new__(ModelComponentContainer)
        container._build_op_version()
        ModelComponentContainer._op_versions = container._op_versions


def registered_converters() -> Hashable:
    """Return what skl2onnx would convert with: equal as long as nobody registers or removes a converter."""
    from skl2onnx._parse import sklearn_parsers_map
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool, _shape_calculator_pool

    register_converter()
    tables: tuple[Mapping[Any, Any], ...] = (
        sklearn_operator_name_map,
        sklearn_parsers_map,
        _converter_pool,
        _shape_calculator_pool,
    )
    return tuple((*table, *table.values()) for table in tables)


@functools.cache
def _register_repairs() -> None:
    for estimator in (HistGradientBoostingClassifier, HistGradientBoostingRegressor):
        _repair(estimator, _python_booleans)
    _repair(LinearDiscriminantAnalysis, _logistic_for_two)
    _repair_operator(VotingClassifier, _not_flattened)
    for estimator in (SVC, NuSVC):
        _repair_operator(estimator, _scores_of_many)
    for estimator in (MLPClassifier, MLPRegressor):
        _repair_container(estimator, lambda container, _: _WritesWhole(container))
    register_transformed_target()
    replace_power_transformer()


#: The aliases of the converters that are wrapped: whoever registers again, another thread say, leaves them.
_WRAPPED: set[str] = set()


class _Container:
    """skl2onnx's container, of which a subclass does something in another way."""

    def __init__(self, container: Any):
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)


class _WithAttributes(_Container):
    """The attributes of each node are put right."""

    def __init__(self, container: Any, attributes: Callable[[dict[str, Any]], dict[str, Any]]):
        super().__init__(container)
        self._attributes = attributes

    def add_node(self, *args: Any, **kwargs: Any) -> Any:
        """Add a node with other attributes."""
        return self._container.add_node(*args, **self._attributes(kwargs))


class _WritesWhole(_Container):
    """Arrays are written in one piece: number by number takes longer than all else in the conversion of a network."""

    def add_initializer(self, name: str, onnx_type: int, shape: Any, content: Any) -> Any:
        """Add an initializer of the type asked for."""
        if isinstance(content, np.ndarray) and content.dtype.kind == "f":
            array = content.astype(helper.tensor_dtype_to_np_dtype(onnx_type)).reshape(shape)
            content = numpy_helper.from_array(array, name)
        return self._container.add_initializer(name, onnx_type, shape, content)


def _repair(estimator: type, attributes: Callable[[Any], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Wrap a converter so that the attributes of its nodes are put right."""
    _repair_container(estimator, lambda container, fitted: _WithAttributes(container, attributes(fitted)))


def _repair_container(estimator: type, change: Callable[[Any, Any], Any]) -> None:
    """Wrap a converter so that it writes to a changed container."""

    def wrap(convert: Callable[..., None]) -> Callable[..., None]:
        def converter(scope: Any, operator: Any, container: Any) -> None:
            convert(scope, operator, change(container, operator.raw_operator))

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
    from skl2onnx.common._registration import _converter_pool, get_converter, get_shape_calculator

    alias = sklearn_operator_name_map[estimator]
    if alias in _WRAPPED:
        return
    _WRAPPED.add(alias)
    options = _converter_pool[alias].get_allowed_options()
    update_registered_converter(
        estimator, alias, get_shape_calculator(alias), wrap(get_converter(alias)), overwrite=True,
        options=options if isinstance(options, dict) else None,
    )  # fmt: skip


def _python_booleans(estimator: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """HistGradientBoosting*: a boolean in a list of integers is refused by onnx."""

    def attributes(given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value]
            if isinstance(value, list)
            else value
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
