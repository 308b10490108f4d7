"""Converters that replace or complete those of skl2onnx, by class."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from sklearn.base import is_classifier
from sklearn.cross_decomposition import PLSRegression
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
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

from onnxtrain.convert.column_transformer import PARSERS
from onnxtrain.convert.learned import holds_boosted, predictor_of
from onnxtrain.convert.repairs.table import Converter, repair, replaced
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


class _Renames(Container):
    """A container that renames outputs of nodes."""

    def __init__(self, container: ModelComponentContainer, names: dict[str, str]):
        super().__init__(container)
        self._names = names

    def add_node(self, op_type: str, inputs: Any, outputs: Any, **kwargs: Any) -> Any:
        """Add a node with renamed outputs."""
        found = [outputs] if isinstance(outputs, str) else outputs
        return self._container.add_node(op_type, inputs, [self._names.get(y, y) for y in found], **kwargs)


def _constant(scope: Scope, container: Any, name: str, values: np.ndarray) -> str:
    """Add an array of integers or strings as an initializer, and return its name."""
    values = values.astype(np.int64 if values.dtype.kind in "iub" else str)
    name = scope.get_unique_variable_name(name)
    data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
    container.add_initializer(name, data_type, list(values.shape), values.tolist())
    return name


def _convert_logarithm(convert: Converter, scope: Scope, operator: Operator, container: Container) -> None:
    """Take the result of a converter as the logarithm of the output."""
    y, logarithm = operator.outputs[0].full_name, scope.get_unique_variable_name("logarithm")
    convert(scope, operator, _Renames(container, {y: logarithm}))
    container.add_node("Exp", [logarithm], [y], name=scope.get_unique_operator_name("Exp"), op_version=13)


# --------------------------------------------------- linear models and networks


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


@repair(SGDClassifier)
def labels_of_the_scores(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Choose the class by the scores; clipped probabilities of ``modified_huber`` may be tied."""
    if operator.raw_operator.loss == "modified_huber" and len(operator.raw_operator.classes_) > 2:
        container = _ChoosesBeforeClip(container)
    convert(scope, operator, container)


class _ChoosesBeforeClip(Container):
    """A container that applies ArgMax to the operand of Clip, which raw scores lack."""

    def __init__(self, container: ModelComponentContainer):
        super().__init__(container)
        self._scores = ""

    def add_node(self, op_type: str, inputs: Any, *args: Any, **attributes: Any) -> None:
        """Add a node."""
        if op_type == "Clip":
            self._scores = inputs if isinstance(inputs, str) else inputs[0]
        of_scores = op_type == "ArgMax" and self._scores
        self._container.add_node(op_type, self._scores if of_scores else inputs, *args, **attributes)


@repair(MLPClassifier, MLPRegressor)
def arrays_in_one_piece(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write each weight array as a whole, and the exponential output of the Poisson loss, which skl2onnx lacks.

    skl2onnx reshapes several outputs of a regressor to (-1, 1).
    """
    original = operator.raw_operator
    container = _WritesWhole(container, original.n_outputs_)
    if isinstance(original, MLPRegressor):
        operator.outputs[0].type.shape = [None, original.n_outputs_]
    if original.out_activation_ != "exp":
        convert(scope, operator, container)
        return
    logarithm = copy.copy(original)
    logarithm.out_activation_ = "identity"
    with replaced(operator, logarithm):
        _convert_logarithm(convert, scope, operator, container)


class _WritesWhole(Container):
    """A container that accepts arrays; entry by entry takes longer than the rest of a network's conversion."""

    def __init__(self, container: ModelComponentContainer, n_outputs: int):
        super().__init__(container)
        self._n_outputs = n_outputs

    def add_initializer(self, name: str, onnx_type: int, shape: Any, content: Any) -> Any:
        """Add an initializer of the requested type; rows of a single column become rows of all outputs."""
        if onnx_type == TensorProto.INT64 and tuple(content) == (-1, 1):
            content = (-1, self._n_outputs)
        if isinstance(content, np.ndarray) and content.dtype.kind == "f":
            array = content.astype(helper.tensor_dtype_to_np_dtype(onnx_type)).reshape(shape)
            content = numpy_helper.from_array(array, name)
        return self._container.add_initializer(name, onnx_type, shape, content)


# ------------------------------------------------------------------------ trees


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


def _without_booleans(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value] if isinstance(value, list) else value
        for name, value in given.items()
    }


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


# ------------------------------------------------------ support vector machines


@repair(SVC, NuSVC)
def ties_by_scores(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write the class of the largest score if ``break_ties`` is set; skl2onnx writes the class with the most votes."""
    from skl2onnx.common._registration import get_converter

    model = operator.raw_operator
    _check_kernel(model, "LinearSVC()")
    if operator.type not in ("SklearnSVC", "SklearnNuSVC", "SklearnSVM"):  # the votes, an operator of the same object
        get_converter(operator.type)(scope, operator, container)
        return
    if not model.break_ties or len(model.classes_) == 2 or hasattr(model, "predict_proba"):
        convert(scope, operator, container)
        return
    label, scores = (y.full_name for y in operator.outputs)
    convert(scope, operator, _Renames(container, {label: scope.get_unique_variable_name("most_votes")}))
    index, classes = scope.get_unique_variable_name("index"), _constant(scope, container, "classes", model.classes_)
    container.add_node("ArgMax", [scores], [index], axis=1, keepdims=0)
    container.add_node("Gather", [classes, index], [label], axis=0)


@repair(SVR, NuSVR)
def with_support_vectors(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Refuse a machine without support vectors, for which skl2onnx writes an invalid operator."""
    model = operator.raw_operator
    _check_kernel(model, "LinearSVR()")
    if not len(model.support_):
        remedy = f"Decrease epsilon={model.epsilon}" if isinstance(model, SVR) else "Increase nu or C"
        raise ConversionError(
            f"{type(model).__name__} has no support vectors and predicts {model.intercept_[0]:.6g} for every row, so "
            f"there is nothing to train. {remedy}, or scale the targets with TransformedTargetRegressor(..., "
            "transformer=StandardScaler())."
        )
    convert(scope, operator, container)


@repair(OneClassSVM)
def with_a_formula(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Refuse a kernel that is a function or a matrix."""
    _check_kernel(operator.raw_operator, "SGDOneClassSVM()")
    convert(scope, operator, container)


def _check_kernel(model: Any, linear: str) -> None:
    """Refuse a kernel that is a function or a matrix; `linear` is the estimator that learns from its columns."""
    if model.kernel == "precomputed":
        raise ConversionError(
            f"kernel='precomputed' has no formula in ONNX. The columns of the matrix are features: fit {linear} on it."
        )
    if callable(model.kernel):
        raise ConversionError(
            "The kernel is a Python function, which has no formula in ONNX. scikit-learn runs it in front: "
            f"make_pipeline(FunctionTransformer(lambda X: kernel(X, rows)), {linear}), where rows are some rows of X."
        )


# ------------------------------------------------- estimators of several others


def _columns_of_targets(operator: Operator) -> None:
    """Set the type of the output, also for columns that another estimator has chosen, whose number is unknown."""
    from skl2onnx.common.data_types import FloatTensorType

    operator.outputs[0].type = FloatTensorType([None, len(operator.raw_operator.coef_)])


@repair(PLSRegression, shapes=_columns_of_targets)
def of_chosen_columns(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Convert as skl2onnx does, which refuses rows of unknown shape."""
    convert(scope, operator, container)


@repair(VotingClassifier, VotingRegressor)
def weights_as_an_array(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Accept any sequence of weights, and ``flatten_transform``, which only `transform` reads: skl2onnx refuses it.

    skl2onnx takes the weights of dropped members for those of the members after them.
    """
    voting = copy.copy(operator.raw_operator)
    if voting.weights is not None:
        kept = [
            weight for weight, (_, member) in zip(voting.weights, voting.estimators, strict=True) if member != "drop"
        ]
        voting.weights = np.asarray(kept)
    if isinstance(voting, VotingClassifier):
        voting.flatten_transform = False
    with replaced(operator, voting):
        convert(scope, operator, container)


@repair(OneVsOneClassifier)
def classes_and_one_score(
    convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer
) -> None:
    """Write the classes as labels, and one score for two classes; skl2onnx writes indices and one score per class.

    Raises
    ------
    ConversionError
        The graph does not count votes as the class does.
    """
    from skl2onnx.common._registration import get_converter

    if operator.type != "SklearnOneVsOneClassifier":  # the votes, an operator of the same object
        get_converter(operator.type)(scope, operator, container)
        return
    _check_votes(operator.raw_operator)
    convert(scope, operator, _OneVsOne(container, scope, operator))
    if len(operator.raw_operator.classes_) == 2:
        operator.outputs[1].type.shape = [None, 1]


def _check_votes(voting: OneVsOneClassifier) -> None:
    member = voting.estimators_[0]
    by_scores, name = hasattr(member, "decision_function"), type(predictor_of(member)).__name__
    if len(voting.classes_) == 2 and not by_scores:  # the score is a vote of 0 or 1 plus a share of the probability
        raise ConversionError(
            f"OneVsOneClassifier of two classes has one member, {name}, and the border of its scores is 0.5, not 0. "
            "Fit and pass the member alone."
        )
    if by_scores and holds_boosted(member):
        raise ConversionError(
            f"OneVsOneClassifier sums the decision_function of {name}, whose exporter writes only predict_proba. Use "
            f"OneVsRestClassifier, or {name} alone, which takes several classes."
        )


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
                second = _constant(self._scope, self._container, "second", np.array([1]))
                add("Gather", [*inputs, second], outputs, axis=1)
                return
        if outputs == self._label:
            index = self._scope.get_unique_variable_name("index")
            add("ArgMax", [self._of_each_class], [index], axis=1, keepdims=0)
            classes = _constant(self._scope, self._container, "classes", self._classes)
            add("Gather", [classes, index], [self._label], axis=0)
            return
        add(op_type, inputs, outputs, **attributes)


@repair(Pipeline)
def steps_in_order(convert: Converter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Write the steps as skl2onnx does outside other estimators, where it takes custom parsers.

    The last step is asked for scores if the pipeline is asked for them; skl2onnx writes probabilities. It also passes
    ``zipmap=False`` to every classifier, even to LinearSVC, which does not have this option.
    """
    from skl2onnx._parse import _parse_sklearn
    from skl2onnx.common.data_types import guess_proto_type

    pipeline, values = operator.raw_operator, operator.inputs
    raw_scores = scope.get_options(pipeline, {"raw_scores": False}, fail=False)["raw_scores"]
    for _, step in pipeline.steps:
        options = {}
        if container.has_options(step, "zipmap"):
            options["zipmap"] = False
        scored = raw_scores and step is pipeline[-1] and hasattr(step, "decision_function")
        if scored and container.has_options(step, "raw_scores"):
            options["raw_scores"] = True
        if options or is_classifier(step):
            for each in (scope, container):
                each.add_options(id(step), options)
        values = _parse_sklearn(scope, step, values, custom_parsers=PARSERS)
    for value, output in zip(values, operator.outputs, strict=True):
        cast = {} if isinstance(output.type, type(value.type)) else {"to": guess_proto_type(output.type)}
        op_type = "Cast" if cast else "Identity"
        name = scope.get_unique_operator_name(op_type)
        container.add_node(op_type, value.full_name, output.full_name, name=name, **cast)


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
    column = _constant(scope, container, "column", np.array([-1, 1]))
    columns = [scope.get_unique_variable_name("label") for _ in labels]
    for label, name in zip(labels, columns, strict=True):
        container.add_node("Reshape", [label, column], [name], name=scope.get_unique_operator_name("Reshape"))
    container.add_node("Concat", columns, [operator.outputs[0].full_name], axis=1)
    container.add_node("SequenceConstruct", list(probabilities), [operator.outputs[1].full_name])
