"""Estimators unknown to skl2onnx: users' own classes, and estimators of onnxtrain inside others.

A user's converter is written with the builder of the gradient rules. skl2onnx asks an estimator of onnxtrain for its
parser, shape calculator and converter. So nothing has to be registered, and skl2onnx need not be imported, beforehand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx.compose
import onnx_ir as ir
from sklearn.base import is_classifier

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.convert.learned import thawed
from onnxtrain.convert.repairs.table import ADDITIONS, REPAIRS, Addition
from onnxtrain.errors import ConversionError, ParameterError
from onnxtrain.graph import Op
from onnxtrain.registry import code_of

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope

#: ``(op, estimator, X) -> value``
OwnConverter: TypeAlias = "Callable[[Any, Any, ir.Value], ir.Value]"

#: The converter of each class.
CONVERTERS: dict[type, Addition] = {}

#: Models of operators, since skl2onnx asks for the types first and for the nodes later; each is converted once.
_MODELS: WeakKeyDictionary[Operator, onnx.ModelProto] = WeakKeyDictionary()


@lists_its_arguments
def converter(kind: type, *, override: bool = False) -> Callable[[OwnConverter], OwnConverter]:
    """Register a function that converts the objects of an estimator class to ONNX.

    Parameters
    ----------
    kind : type
        The class; derived classes need their own converters.
    override : bool
        Whether to replace a registered converter of `kind`. The built-in conversion is replaced in any case. The same
        source may always be registered again, as when a notebook cell is run twice.

    Returns
    -------
    callable
        A decorator for ``function(op, estimator, X) -> value``. ``op`` adds operators of ai.onnx, with scalars and
        numpy arrays as operands; X is float of shape (n_samples, n_features). The function returns the result of
        ``predict`` or ``transform``; for a classifier, the result of ``predict_proba`` or ``decision_function``, with
        one column per class.

    Raises
    ------
    ParameterError
        `kind` is not a class, or already has a converter.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator, RegressorMixin
    >>> from onnxtrain import OrtGradientRegressor, converter
    >>> class Exponential(RegressorMixin, BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.coef_, self.n_features_in_ = np.zeros(X.shape[1]), X.shape[1]
    ...         return self
    ...     def predict(self, X):
    ...         return np.exp(X @ self.coef_)
    >>> @converter(Exponential)
    ... def exponential(op, estimator, X):
    ...     return op.Exp(op.MatMul(X, estimator.coef_.reshape(-1, 1)))
    >>> X = np.linspace(-1, 1, 50).reshape(-1, 1)
    >>> tuned = OrtGradientRegressor(Exponential(), solver="lbfgs").fit(X, np.exp(2 * X[:, 0]))
    >>> tuned.to_sklearn().coef_.round(3)
    array([2.])
    """
    if not isinstance(kind, type):
        raise ParameterError(
            f"The argument of converter must be a class, got {kind!r:.80}. Pass that of the step: @converter(MyStep)."
        )

    def decorate(function: OwnConverter) -> OwnConverter:
        if not callable(function):
            raise ParameterError(f"The converter of {kind.__name__} must be a function, got {function!r:.80}.")
        if {"scope", "container"} & {*getattr(getattr(function, "__code__", None), "co_varnames", ())[:3]}:
            raise ParameterError(
                f"The converter of {kind.__name__} has the arguments of skl2onnx. It takes (op, estimator, X), and "
                "returns a result of op, such as op.Mul(X, 2.0)."
            )
        try:
            inspect.signature(function).bind(None, None, None)
        except TypeError as e:
            raise ParameterError(
                f"The converter of {kind.__name__} is called with (op, estimator, X), but takes other arguments: {e}."
            ) from e
        known = CONVERTERS.get(kind)
        if known is not None and not override and code_of(known.function) != code_of(function):
            raise ParameterError(
                f"{kind.__name__} already has a converter. Use converter(..., override=True) to replace it."
            )
        CONVERTERS[kind] = addition(function)
        return function

    return decorate


def addition(function: OwnConverter) -> Addition:
    """Return a converter function in skl2onnx's form."""
    return Addition(partial(_convert, function), partial(_set_types, function), function)


def built_in(*kinds: type) -> Callable[[OwnConverter], OwnConverter]:
    """Return a decorator that registers a converter function for classes that skl2onnx lacks or converts wrongly."""

    def decorate(function: OwnConverter) -> OwnConverter:
        own = addition(function)
        for kind in kinds:
            ADDITIONS[kind] = own
            REPAIRS[kind] = partial(_instead, own)
        return function

    return decorate


def _instead(own: Addition, convert: Any, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    own.convert(scope, operator, container)


class Nodes:
    """The builder of a converter: operands may be numpy arrays, and estimators inside can be converted."""

    def __init__(self, op: Op):
        self._op = op
        self._inside: dict[int, tuple[bool, list[ir.Value]]] = {}

    def __getattr__(self, name: str) -> Any:
        add = getattr(self._op, name)
        return lambda *operands, **attributes: add(*map(self._value, operands), **attributes)

    def _value(self, operand: Any) -> Any:
        if isinstance(operand, np.generic):
            operand = operand.item()
        if isinstance(operand, float) and float(np.float32(operand)) != operand:
            return self.constant(np.array(operand))  # others are cast without loss
        if not isinstance(operand, np.ndarray):
            return operand
        return self._op.initializer(_as_tensor(operand), "array")

    def constant(self, array: np.ndarray | ir.TensorProtocol) -> ir.Value:
        """Return an array as a constant that is never a weight, even if a learned attribute has its values.

        The graph keeps float64 digits, for training in float64.
        """
        tensor = ir.tensor(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else array
        value = self._op.Constant(value=tensor)
        return self._op.Cast(value, to=ir.DataType.FLOAT) if value.dtype == ir.DataType.DOUBLE else value

    def repeated(self, X: ir.Value, row: Any) -> ir.Value:
        """Return an array (k,), repeated for each row: shape (n_samples, k)."""
        zero = self.Mul(self.Cast(self.IsNaN(self.Gather(X, np.array([0]), axis=1)), to=ir.DataType.FLOAT), 0.0)
        return self.Add(zero, row)

    def result(self, estimator: Any, X: ir.Value, method: str = "predict") -> ir.Value:
        """Return the result of a method of an inner estimator for rows, computed by its own converter.

        Parameters
        ----------
        estimator : fitted estimator
        X : value of shape (n_samples, n_features)
        method : {"predict", "predict_proba", "decision_function", "transform"}

            The estimator is converted once, so a second call must have the same rows.

        Returns
        -------
        value of shape (n_samples, k)
            The result; the decision function of two classes has one column. Labels have the shape (n_samples,) or
            (n_samples, k).
        """
        from onnxtrain.convert.sklearn import repaired_graph  # imported here because the recursion is mutual

        estimator = thawed(estimator)
        rows = np.zeros((1, X.shape[-1] if X.shape and isinstance(X.shape[-1], int) else estimator.n_features_in_))
        raw = method == "decision_function" and hasattr(estimator, "predict_proba")
        if id(estimator) not in self._inside:
            self._inside[id(estimator)] = raw, self.splice(repaired_graph(estimator, rows, raw_scores=raw), X)
        known, outputs = self._inside[id(estimator)]
        if known != raw:
            raise ConversionError(
                f"The graph of {type(estimator).__name__} holds either its probabilities or its decision_function, but "
                "both are needed here. Two copies of the weights would be trained to different values."
            )
        labels = method == "predict" and is_classifier(estimator)
        found = next((y for y in outputs if (y.dtype not in graph.FLOATS) == labels), None)
        if found is None:
            raise ConversionError(f"The graph of {type(estimator).__name__} has no output for {method}.")
        if method == "decision_function" and len(getattr(estimator, "classes_", ())) == 2:
            return self.Gather(found, np.array([-1]), axis=1)
        return found

    def splice(self, onx: onnx.ModelProto, X: ir.Value) -> list[ir.Value]:
        """Append the nodes of a model with one input to the graph; return its outputs."""
        builder = self._op.builder
        prefix = graph.unique_name("inside", builder.names) + "_"
        inner = ir.from_proto(onnx.compose.add_prefix(graph.inline_functions(onx), prefix)).graph
        (x,), outputs, weights = inner.inputs, list(inner.outputs), list(inner.initializers.values())
        given = X if X.dtype == x.dtype else self._op.Cast(X, to=x.dtype)
        nodes = list(inner)
        inner.outputs.clear()
        inner.initializers.clear()
        inner.remove(nodes)
        for weight in weights:
            builder.graph.register_initializer(weight)
        builder.graph.extend(nodes)
        ir.convenience.replace_all_uses_with(x, given)
        for domain, version in inner.opset_imports.items():
            known = builder.graph.opset_imports
            known[domain] = max(known.get(domain, 0), version)
        return outputs


def _as_tensor(array: np.ndarray) -> ir.TensorProtocol:
    return ir.tensor(np.ascontiguousarray(array.astype(np.float32) if array.dtype.kind == "f" else array))


def _model(function: OwnConverter, operator: Operator) -> onnx.ModelProto:
    """Return the nodes of a converter function as a model; for a classifier, the label is the first output."""
    if operator not in _MODELS:
        _MODELS[operator] = _build(function, operator)
    return _MODELS[operator]


def _build(function: OwnConverter, operator: Operator) -> onnx.ModelProto:
    estimator = operator.raw_operator
    inputs = [
        ir.Value(name=f"X{i}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", _n_columns(x)]))
        for i, x in enumerate(operator.inputs)
    ]
    inner = ir.Graph(inputs, [], nodes=[], opset_imports={"": graph.OPSET}, name="converted")
    op = graph.Builder(inner).op
    found = function(Nodes(op), estimator, op.Concat(*inputs, axis=1) if len(inputs) > 1 else inputs[0])
    name = getattr(function, "__qualname__", repr(function))
    if not isinstance(found, ir.Value):
        raise ConversionError(
            f"The converter {name} must return a result of op, such as op.MatMul(X, estimator.coef_), got "
            f"{type(found).__name__}."
        )
    outputs = [op.Identity(found)]
    if is_classifier(estimator) and len(operator.outputs) > 1:  # skl2onnx does not recognise CatBoost's classifiers
        outputs.insert(0, _labels(op, function, estimator, found))
    inner.outputs.extend(outputs)
    return ir.to_proto(ir.Model(inner, ir_version=graph.IR_VERSION))


def _labels(op: Op, function: OwnConverter, estimator: Any, found: ir.Value) -> ir.Value:
    """Return the labels for scores or probabilities, which have one column per class, or one for two classes."""
    threshold = 0.5 if hasattr(estimator, "predict_proba") else 0.0
    if isinstance(estimator.classes_, list) or getattr(estimator, "multilabel_", False):
        return op.Cast(op.Greater(found, threshold), to=ir.DataType.INT64)
    width = found.shape[-1] if found.shape else None
    classes = np.asarray(estimator.classes_)
    if isinstance(width, int) and width != len(classes) and (width, len(classes)) != (1, 2):
        name = getattr(function, "__qualname__", repr(function))
        raise ConversionError(
            f"The converter {name} returned {width} columns, but the classifier has {len(classes)} classes."
        )
    if width == 1:
        index = op.Cast(op.Squeeze(op.Greater(found, threshold), [1]), to=ir.DataType.INT64)
    else:
        index = op.ArgMax(found, axis=1, keepdims=0)
    return op.Gather(op.initializer(label_tensor(classes), "classes"), index, axis=0)


def label_tensor(classes: np.ndarray) -> ir.TensorProtocol:
    """Return classes in the types of a graph: int64 or strings."""
    return ir.tensor(classes.astype(np.int64) if classes.dtype.kind in "iub" else [str(c) for c in classes])


def _n_columns(x: Any) -> int | None:
    return x.type.shape[1] if len(x.type.shape) > 1 else None


def _convert(function: OwnConverter, scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    embed(scope, container, _model(function, operator), operator)


def _set_types(function: OwnConverter, operator: Operator) -> None:
    for variable, y in zip(operator.outputs, _model(function, operator).graph.output, strict=True):
        variable.type = tensor_type(y, operator.inputs)


def is_ours(kind: type) -> bool:
    """Whether a class is an estimator of onnxtrain, which skl2onnx asks for its nodes."""
    return hasattr(kind, "get_trained_onnx")


def parser_of(estimator: Any) -> Callable[..., list[Any]]:
    """Return the function that skl2onnx calls for the names and types of the outputs of an onnxtrain estimator."""

    def parser(scope: Scope | None = None, inputs: Any = None) -> list[Any]:
        _allow_options(scope, type(estimator))
        outputs = estimator.get_trained_onnx().graph.output
        return [(y.name, tensor_type(y, inputs)) for y in outputs]

    return parser


def shape_calculator_of(estimator: Any) -> Callable[[Any], None]:
    """Return the function that skl2onnx calls to set the types of the outputs of an onnxtrain estimator."""

    def calculate(operator: Operator) -> None:
        for variable, y in zip(operator.outputs, estimator.get_trained_onnx().graph.output, strict=True):
            variable.type = tensor_type(y, operator.inputs)

    return calculate


def converter_of(estimator: Any) -> Callable[[Any, Any, Any], None]:
    """Return the function that skl2onnx calls to add the nodes of an onnxtrain estimator."""

    def convert(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
        onx = estimator.get_trained_onnx()
        if len(onx.graph.input) != len(operator.inputs):
            raise ConversionError(
                f"{type(estimator).__name__} has {len(onx.graph.input)} inputs, but the pipeline passes "
                f"{len(operator.inputs)}."
            )
        embed(scope, container, onx, operator)

    return convert


#: The converter of an estimator of onnxtrain inside others: it calls that of the object.
OF_OURS = Addition(
    lambda scope, operator, container: operator.raw_operator.onnx_converter()(scope, operator, container),
    lambda operator: operator.raw_operator.onnx_shape_calculator()(operator),
)


def options_of_kind(kind: type) -> dict[str, list[bool]] | None:
    """Return the options of classifiers of a class, which control how probabilities are returned."""
    return {"zipmap": [True, False], "nocl": [True, False]} if hasattr(kind, "predict_proba") else None


def _allow_options(scope: Scope, kind: type) -> None:
    """Allow, for one conversion, the options of a class that is not in skl2onnx's tables."""
    from skl2onnx.common._registration import RegisteredConverter

    tables = scope.registered_models
    if kind not in tables["aliases"]:
        alias = f"Onnxtrain{kind.__name__}"
        known = RegisteredConverter(OF_OURS.convert, options_of_kind(kind))
        tables["aliases"], tables["conv"] = {**tables["aliases"], kind: alias}, {**tables["conv"], alias: known}


def embed(scope: Scope, container: ModelComponentContainer, onx: onnx.ModelProto, operator: Operator) -> None:
    """Add the nodes of a model to skl2onnx's graph, after the inputs of `operator`."""
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
    """Return the type of an output; as in skl2onnx, float if the pipeline computes in float."""
    from skl2onnx.common.data_types import FloatTensorType

    found = value.type.tensor_type.elem_type
    if found == onnx.TensorProto.DOUBLE and inputs and all(isinstance(x.type, FloatTensorType) for x in inputs):
        return int(onnx.TensorProto.FLOAT)
    return int(found)


def tensor_type(value: onnx.ValueInfoProto, inputs: Any) -> Any:
    """Return the type of an output in skl2onnx's form."""
    from skl2onnx.common import data_types

    names = {1: "Float", 11: "Double", 7: "Int64", 8: "String", 9: "Boolean"}
    kind = _elem_type(value, inputs)
    if kind not in names:
        name = onnx.TensorProto.DataType.Name(kind)
        raise ConversionError(f"The output {value.name!r} has type {name}, which skl2onnx does not support.")
    shape = [d.dim_value or None for d in value.type.tensor_type.shape.dim]
    return getattr(data_types, f"{names[kind]}TensorType")(shape)
