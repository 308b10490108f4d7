"""Converters that replace or complete those of skl2onnx, by class."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper, numpy_helper
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, SVR, NuSVC, NuSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

from onnxtrain.convert.repairs.table import ADDITIONS, Addition, Converter, repair
from onnxtrain.errors import ConversionError

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope


class Container:
    """A wrapper of skl2onnx's container, whose subclasses override a method."""

    def __init__(self, container: ModelComponentContainer):
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)


class WithAttributes(Container):
    """A container that passes the attributes of each node through a function."""

    def __init__(self, container: ModelComponentContainer, change: Callable[[dict[str, Any]], dict[str, Any]]):
        super().__init__(container)
        self._change = change

    def add_node(self, *args: Any, **kwargs: Any) -> Any:
        """Add a node with changed attributes."""
        return self._container.add_node(*args, **self._change(kwargs))


@repair(LinearDiscriminantAnalysis)
def logistic_for_two_classes(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write the logistic function of the score; skl2onnx writes the softmax of [-z, z], the probability for 2 z."""
    two_classes = len(operator.raw_operator.classes_) == 2

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if two_classes and given.get("post_transform") == "SOFTMAX":
            return {**given, "post_transform": "LOGISTIC", "multi_class": 0}
        return given

    convert(scope, operator, WithAttributes(container, change))


@repair(MLPClassifier, MLPRegressor)
def arrays_in_one_piece(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write each weight array as a whole, and the exponential output of the Poisson loss, which skl2onnx lacks."""
    container, original = _WritesWhole(container), operator.raw_operator
    if original.out_activation_ != "exp":
        convert(scope, operator, container)
        return
    operator.raw_operator = copy.copy(original)
    operator.raw_operator.out_activation_ = "identity"
    try:
        _convert_logarithm(convert, scope, operator, container)
    finally:
        operator.raw_operator = original


def _convert_logarithm(convert: Converter, scope: Scope, operator: Operator, container: Container) -> None:
    """Take the result of a converter as the logarithm of the output."""
    y, logarithm = operator.outputs[0].full_name, scope.get_unique_variable_name("logarithm")
    convert(scope, operator, _Renames(container, {y: logarithm}))
    container.add_node("Exp", [logarithm], [y], name=scope.get_unique_operator_name("Exp"), op_version=13)


class _WritesWhole(Container):
    """A container that accepts arrays; entry by entry takes longer than the rest of a network's conversion."""

    def add_initializer(self, name: str, onnx_type: int, shape: Any, content: Any) -> Any:
        """Add an initializer of the requested type."""
        if isinstance(content, np.ndarray) and content.dtype.kind == "f":
            array = content.astype(helper.tensor_dtype_to_np_dtype(onnx_type)).reshape(shape)
            content = numpy_helper.from_array(array, name)
        return self._container.add_initializer(name, onnx_type, shape, content)


@repair(SGDClassifier)
def labels_of_the_scores(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Choose the class by the scores; clipped probabilities of ``modified_huber`` may be tied."""
    if operator.raw_operator.loss == "modified_huber" and len(operator.raw_operator.classes_) > 2:
        container = _ChoosesBeforeClip(container)
    convert(scope, operator, container)


class _ChoosesBeforeClip(Container):
    """A container that applies ArgMax to the operand of Clip."""

    def __init__(self, container: ModelComponentContainer):
        super().__init__(container)
        self._scores = ""

    def add_node(self, op_type: str, inputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node."""
        if op_type == "Clip":
            self._scores = inputs if isinstance(inputs, str) else inputs[0]
        self._container.add_node(op_type, self._scores if op_type == "ArgMax" else inputs, *args, **attributes)


@repair(HistGradientBoostingClassifier, HistGradientBoostingRegressor)
def integers_for_booleans(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write booleans in integer lists, which onnx refuses, as integers; and the inverse of a logarithmic link."""
    container = WithAttributes(container, _without_booleans)
    if operator.raw_operator.loss in ("poisson", "gamma"):
        _convert_logarithm(convert, scope, operator, container)
    else:
        convert(scope, operator, container)


@repair(GradientBoostingClassifier, GradientBoostingRegressor)
def without_first_estimator(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Refuse trees that are added to the predictions of an estimator, which skl2onnx does not write."""
    model = operator.raw_operator
    if model.init is not None and model.init != "zero":
        raise ConversionError(
            f"The trees are added to the predictions of init={model.init!r}, for which there is no converter. Fit the "
            "model with init=None or init='zero'."
        )
    convert(scope, operator, container)


@repair(DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
@repair(RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor)
def sides_of_missing_values(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Send missing values to the side that each split has learned; skl2onnx sends all to the right."""
    model = operator.raw_operator
    trees = itertools.cycle([member.tree_ for member in getattr(model, "estimators_", [model])])

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if "nodes_missing_value_tracks_true" not in given:
            return given
        n_trees = max(given["nodes_treeids"]) + 1  # all trees, or one tree at a time, and perhaps again for the leaves
        sides = [side for tree in itertools.islice(trees, n_trees) for side in tree.missing_go_to_left.tolist()]
        return {**given, "nodes_missing_value_tracks_true": sides}

    convert(scope, operator, WithAttributes(container, change))


class _Renames(Container):
    """A container that renames outputs of nodes."""

    def __init__(self, container: ModelComponentContainer, names: dict[str, str]):
        super().__init__(container)
        self._names = names

    def add_node(self, op_type: str, inputs: Any, outputs: Any, **kwargs: Any) -> Any:
        """Add a node with renamed outputs."""
        found = [outputs] if isinstance(outputs, str) else outputs
        return self._container.add_node(op_type, inputs, [self._names.get(y, y) for y in found], **kwargs)


@repair(SVC, NuSVC)
def ties_by_scores(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write the class of the largest score if ``break_ties`` is set; skl2onnx writes the class with the most votes."""
    from skl2onnx.common._registration import get_converter

    model = operator.raw_operator
    if operator.type not in ("SklearnSVC", "SklearnNuSVC", "SklearnSVM"):  # the votes, an operator of the same object
        get_converter(operator.type)(scope, operator, container)
        return
    if not model.break_ties or len(model.classes_) == 2 or hasattr(model, "predict_proba"):
        convert(scope, operator, container)
        return
    label, scores = (y.full_name for y in operator.outputs)
    convert(scope, operator, _Renames(container, {label: scope.get_unique_variable_name("most_votes")}))
    index, classes = scope.get_unique_variable_name("index"), scope.get_unique_variable_name("classes")
    values = model.classes_.astype(np.int64 if model.classes_.dtype.kind in "iub" else str)
    container.add_initializer(classes, helper.np_dtype_to_tensor_dtype(values.dtype), [len(values)], values.tolist())
    container.add_node("ArgMax", [scores], [index], axis=1, keepdims=0)
    container.add_node("Gather", [classes, index], [label], axis=0)


@repair(SVR, NuSVR)
def with_support_vectors(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Refuse a machine without support vectors, for which skl2onnx writes an invalid operator."""
    model = operator.raw_operator
    if not len(model.support_):
        remedy = f"Decrease epsilon={model.epsilon}" if isinstance(model, SVR) else "Increase nu or C"
        raise ConversionError(
            f"{type(model).__name__} has no support vectors and predicts {model.intercept_[0]:.6g} for every row, so "
            f"there is nothing to train. {remedy}, or scale the targets with TransformedTargetRegressor(..., "
            "transformer=StandardScaler())."
        )
    convert(scope, operator, container)


def _without_booleans(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value] if isinstance(value, list) else value
        for name, value in given.items()
    }


@repair(VotingClassifier)
def without_flatten_transform(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Ignore ``flatten_transform``, which skl2onnx refuses and only affects `transform`; weights as below."""
    original = operator.raw_operator
    operator.raw_operator = _with_weights_as_an_array(original)
    operator.raw_operator.flatten_transform = False
    try:
        convert(scope, operator, container)
    finally:
        operator.raw_operator = original


@repair(VotingRegressor)
def weights_as_an_array(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Accept weights as any sequence; skl2onnx only accepts an array."""
    original = operator.raw_operator
    operator.raw_operator = _with_weights_as_an_array(original)
    try:
        convert(scope, operator, container)
    finally:
        operator.raw_operator = original


def _with_weights_as_an_array(voting: VotingClassifier | VotingRegressor) -> Any:
    changed = copy.copy(voting)
    if voting.weights is not None:
        changed.weights = np.asarray(voting.weights)
    return changed


@repair(OneVsOneClassifier)
def classes_and_one_score(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write the classes as labels, and one score for two classes; skl2onnx writes indices and one score per class."""
    from skl2onnx.common._registration import get_converter

    if operator.type != "SklearnOneVsOneClassifier":  # the votes, an operator of the same object
        get_converter(operator.type)(scope, operator, container)
        return
    convert(scope, operator, _OneVsOne(container, scope, operator))
    if len(operator.raw_operator.classes_) == 2:
        operator.outputs[1].type.shape = [None, 1]


class _OneVsOne(Container):
    """A container that replaces the two nodes that compute the outputs."""

    def __init__(self, container: ModelComponentContainer, scope: Scope, operator: Operator):
        super().__init__(container)
        self._scope, self._classes = scope, operator.raw_operator.classes_
        self._label, self._scores = (y.full_name for y in operator.outputs)
        self._of_each_class = ""

    def add_node(self, op_type: str, inputs: Any, outputs: Any, **attributes: Any) -> None:
        """Add a node, or its replacement."""
        add = self._container.add_node
        if outputs == [self._scores]:  # this node comes before the label
            (self._of_each_class,) = inputs
            if len(self._classes) == 2:
                add("Gather", [*inputs, self._constant("second", np.array([1]))], outputs, axis=1)
                return
        if outputs == self._label:
            index = self._scope.get_unique_variable_name("index")
            add("ArgMax", [self._of_each_class], [index], axis=1, keepdims=0)
            classes = self._classes.astype(np.int64 if self._classes.dtype.kind in "iub" else str)
            add("Gather", [self._constant("classes", classes), index], [self._label], axis=0)
            return
        add(op_type, inputs, outputs, **attributes)

    def _constant(self, kind: str, values: np.ndarray) -> str:
        name = self._scope.get_unique_variable_name(kind)
        data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._container.add_initializer(name, data_type, list(values.shape), values.tolist())
        return name


# ------------------------------------------------------- pipelines inside others


@repair(Pipeline)
def scores_of_the_last_step(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Ask the last step for scores if the pipeline is asked for them; skl2onnx writes probabilities.

    Options that the last step does not support are removed: skl2onnx passes ``zipmap=False`` to every classifier, even
    to LinearSVC, which does not have this option.
    """
    pipeline = operator.raw_operator
    last = pipeline.steps[-1][1]
    if scope.get_options(pipeline, {"raw_scores": False}, fail=False)["raw_scores"] and (
        hasattr(last, "decision_function") and container.has_options(last, "raw_scores")
    ):
        for each in (scope, container):
            each.add_options(id(last), {"raw_scores": True})
    if container.has_options(last, "raw_scores") and not container.has_options(last, "zipmap"):
        convert(_WithoutZipmap(scope, last), operator, _WithoutZipmap(container, last))
    else:
        convert(scope, operator, container)


class _WithoutZipmap(Container):
    """A scope or a container that removes ``zipmap`` from the options of one estimator."""

    def __init__(self, container: Any, estimator: BaseEstimator):
        super().__init__(container)
        self._estimator = estimator

    def add_options(self, model_id: Any, options: dict[str, Any]) -> None:
        """Add the options that the estimator supports."""
        if model_id == id(self._estimator):
            options = {name: value for name, value in options.items() if name != "zipmap"}
        self._container.add_options(model_id, options)


@repair(MultiOutputClassifier)
def classifiers_of_any_class(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write the classifier of each target with its labels; skl2onnx refuses pipelines and takes labels by scores."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common.data_types import FloatTensorType

    members = operator.raw_operator.estimators_
    outputs = []
    for member in members:
        for each in (scope, container):
            each.add_options(id(member), {"zipmap": False} if container.has_options(member, "zipmap") else {})
        inner = scope.declare_local_operator(sklearn_operator_name_map[type(member)], member)
        inner.inputs = operator.inputs
        kinds = {"label": type(operator.outputs[0].type), "probabilities": FloatTensorType}
        inner.outputs.extend(scope.declare_local_variable(name, kind()) for name, kind in kinds.items())
        outputs.append([y.full_name for y in inner.outputs])
    labels, probabilities = zip(*outputs, strict=True)
    column = scope.get_unique_variable_name("column")
    container.add_initializer(column, 7, [2], [-1, 1])
    columns = [scope.get_unique_variable_name("label") for _ in labels]
    for label, name in zip(labels, columns, strict=True):
        container.add_node("Reshape", [label, column], [name], name=scope.get_unique_operator_name("Reshape"))
    container.add_node("Concat", columns, [operator.outputs[0].full_name], axis=1)
    container.add_node("SequenceConstruct", list(probabilities), [operator.outputs[1].full_name])


# --------------------------------------------------------------- OneHotEncoder


@repair(OneHotEncoder)
def zeros_of_unknown(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write zeros for an unknown category, as for ``"ignore"``, if there are no infrequent ones that it would join."""
    original = operator.raw_operator
    some = original.min_frequency is not None or original.max_categories is not None
    rare = some and any(names is not None for names in original.infrequent_categories_)
    if original.handle_unknown in ("infrequent_if_exist", "warn") and not rare:
        operator.raw_operator = copy.copy(original)
        operator.raw_operator.handle_unknown = "ignore"
    try:
        convert(scope, operator, container)
    finally:
        operator.raw_operator = original


# ------------------------------------------------------------ PowerTransformer


@repair(PowerTransformer)
def without_nan(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Compute powers of positive values only; exponents that give a logarithm are left to skl2onnx."""
    exponents = operator.raw_operator.lambdas_
    if np.all(exponents != 0) and np.all(exponents != 2):
        _convert(scope, operator, container)
    else:
        convert(scope, operator, container)


def _convert(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    r"""Emit the Yeo-Johnson or the Box-Cox transformation.

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
    for op_type, array in _inverse(model.transformer_):
        name = node(op_type, name, *([] if array is None else [array]))
    if isinstance(model.transformer_, PowerTransformer):
        name = _inverse_power(node, model.transformer_, name)
    node("Identity", name, output=operator.outputs[0].full_name)


def _inverse_power(node: Callable[..., str], transformer: PowerTransformer, t: str) -> str:
    r"""Invert the Yeo-Johnson or the Box-Cox transformation.

    .. math::

        y = (\lambda t_+ + 1)^{1 / \lambda} - (1 + (2 - \lambda) t_-)^{1 / (2 - \lambda)},
        \qquad y = (\lambda t + 1)^{1 / \lambda}
    """

    def root(x: str, exponents: np.ndarray) -> str:
        return node("Pow", node("Add", node("Mul", x, exponents), _ONE), 1 / exponents)

    exponents = transformer.lambdas_
    if transformer.method == "box-cox":
        return root(t, exponents)
    return node("Sub", root(node("Relu", t), exponents), root(node("Relu", node("Neg", t)), 2 - exponents))


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
    elif kind is FunctionTransformer and transformer.inverse_func in _FUNCTIONS and not transformer.inv_kw_args:
        yield from _FUNCTIONS[transformer.inverse_func]
    else:
        what = getattr(transformer, "inverse_func", None) or kind.__name__
        raise ConversionError(
            f"TransformedTargetRegressor: {what} of the target cannot be inverted in ONNX. Train the inner regressor: "
            "TransformedTargetRegressor(OrtGradientRegressor(fitted.regressor_), transformer=...)."
        )


def _moved(scale: np.ndarray | None, mean: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the nodes that scale and shift by the learned attributes of a scaler; None has no effect."""
    yield from ((op_type, x) for op_type, x in (("Mul", scale), ("Add", mean)) if x is not None)


_ONE = np.ones(1)

#: The nodes of each supported inverse_func.
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


# ------------------------------------------------------------------ imputation


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
