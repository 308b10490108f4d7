"""The gradient of a model, the public interface of :mod:`onnxtrain.autodiff`, and random values for its inputs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from numbers import Integral
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.arguments import lists_its_arguments, seeded
from onnxtrain.autodiff import backpropagate
from onnxtrain.autodiff.broadcast import expand_like, scalar_like, with_shape_of, zeros_like
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.autodiff.simplify import simplify
from onnxtrain.errors import (
    ArgumentTypeError,
    DataError,
    GradientError,
    ModelError,
    ParameterError,
    WeightError,
    check_path,
)
from onnxtrain.graph import Op
from onnxtrain.registry import did_you_mean

__all__ = ["DerivativeOptions", "gradients", "onnx_derivative", "random_feed"]

#: The available builders of the gradient graph.
BUILDERS = ("builtin", "onnxruntime-training")

#: `random_feed` draws integers in ``[0, INTEGERS)``: valid indices of tensors with ten rows.
INTEGERS = 10


class DerivativeOptions(IntFlag):
    """Options for the inputs and outputs of the graph that :func:`onnx_derivative` returns.

    Parameters
    ----------
    *values : int
        The value of an option; options are combined by ``|``.

    Examples
    --------
    >>> DerivativeOptions.KeepOutputs | DerivativeOptions.FillGrad
    <DerivativeOptions.KeepOutputs|FillGrad: 6>
    """

    #: Inputs are the weights and the gradient of each output, outputs are the gradients.
    Zero = 0
    #: YieldOp is kept between forward and backward, for TrainingAgent; excludes all other options.
    KeepYieldOp = 1
    #: The outputs of the original graph follow the gradients.
    KeepOutputs = 2
    #: The incoming gradients are ones; requires KeepOutputs.
    FillGrad = 4
    #: The graph already computes a loss: the loss is the first output, followed by its gradients.
    Loss = 8


@lists_its_arguments
def onnx_derivative(
    onx: graphs.ModelLike,
    weights: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    options: DerivativeOptions = DerivativeOptions.Zero,
    loss: str | None = None,
    label: str | Sequence[str] | None = None,
    path_name: str | os.PathLike[str] | None = None,
    verbose: int = 0,
    *,
    builder: str = "builtin",
) -> onnx.ModelProto:
    r"""Return the gradient graph of an ONNX model, in standard operators.

    For outputs :math:`y_k` and incoming gradients :math:`\bar y_k`, each input or
    weight :math:`x` gets

    .. math:: \bar x = \sum_k \left(\frac{\partial y_k}{\partial x}\right)^{\!\top} \bar y_k

    The inputs of the result are the inputs of `onx`, then the weights, then ``<output>_grad`` for each floating-point
    output. Its outputs are ``<input>_grad``, then ``<weight>_grad``, in the requested order, then the outputs kept by
    `options`. A name that is already used gets a numeric suffix. Constants of the derivative are Constant nodes, so
    that the floating-point initializers of the result are the weights of `onx`. A value that the outputs depend on only
    through non-differentiable operators (Shape, Greater, ArgMax, ...), or not at all, has a gradient of zeros.
    onnxruntime takes any array for an input that is declared as a scalar. The result does not: a Reshape that is named
    after the input fails.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        The model; it is not changed.
    weights : sequence of str, optional
        Initializers to differentiate; None for all floating-point ones, ``[]`` for none.
    inputs : sequence of str, optional
        Inputs to differentiate; None for all floating-point ones, ``[]`` for none.
    options : DerivativeOptions
        The inputs and outputs of the result. With ``Loss``, the weights are inputs whose defaults are their values.
    loss : str, optional
        With ``Loss``, the name of the value to differentiate; its elements are summed.
    label : str or sequence of str, optional
        With ``Loss``, the names of inputs that get no gradient.
    path_name : path, optional
        The result is also written there.
    verbose : int
        1 prints the differentiated values and the number of nodes.
    builder : {"builtin", "onnxruntime-training"}
        The rules of :mod:`onnxtrain.autodiff`, or onnxruntime-training, which alone can run the graphs that it builds.

    Returns
    -------
    onnx.ModelProto
        The gradient graph, with the metadata, producer and documentation of `onx`.

    Raises
    ------
    GradientError
        An operator between a weight or an input and the outputs has no derivative.
    WeightError, ModelError
        A weight, an input or the loss is unknown or not floating-point.
    ParameterError, ArgumentTypeError
        The options contradict each other or are invalid.

    Examples
    --------
    >>> import onnx.parser
    >>> onx = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     square (float[N] X) => (float[N] Y) { Y = Mul(X, X) }''')
    >>> grad = onnx_derivative(onx)
    >>> [i.name for i in grad.graph.input], [o.name for o in grad.graph.output]
    (['X', 'Y_grad'], ['X_grad'])
    """
    options = _checked(options, loss, label, builder)
    proto, _held = _opened(onx) if builder == "builtin" else (graphs.read(onx), {})
    model = graphs.load(expand_functions(proto))
    try:
        asked = _asked(model, inputs, weights, loss, label)
    except WeightError as e:
        raise WeightError(f"{e}{_remark_on_weights(proto, weights)}") from e
    if asked.loss is None and not asked.reals:
        outputs = ", ".join(repr(y.name) for y in asked.outputs)
        remark = graphs.weights_in_operators(proto.graph.node)
        raise GradientError(f"No output of the model is a tensor of floats: {outputs}.{remark}")
    if verbose:
        xs, ws = ([v.name for v in values] for values in (asked.inputs, asked.weights))
        print(f"[onnx_derivative] inputs {xs}, weights {ws}, {options!r}")
    if builder == "onnxruntime-training":
        from onnxtrain.training_build import derive  # onnxruntime is slow to import, and optional

        result = derive(model, asked.inputs, asked.weights, options=int(options), loss=asked.loss)
    else:
        try:
            found = _append_gradients(model, asked, options)
        except (GradientError, ModelError) as e:
            graphs.refuse_integer_products(proto)
            if "type" in str(e):
                graphs.refuse_mixed_types(graphs.load(expand_functions(proto)))
            raise type(e)(f"{e}{graphs.weights_in_operators(proto.graph.node)}") from e
        result = graphs.attach(graphs.save(model, outputs=found))
    result = _with_metadata(result, proto)
    if verbose:
        print(f"[onnx_derivative] {len(proto.graph.node)} nodes became {len(result.graph.node)}")
    if path_name is not None:
        check_path(path_name, "path_name")
        graphs.write_model(result, path_name, {})
    return result


def _remark_on_weights(onx: onnx.ModelProto, weights: Sequence[str] | None) -> str:
    """Return where the first of some weights is that is no initializer of a model, with the remedy."""
    held = {tensor.name for tensor in onx.graph.initializer}
    unknown = [name for name in _names(weights or (), "weights") if name not in held]
    return graphs.weights_elsewhere(onx.graph, unknown[0]) if unknown else ""


def _opened(onx: graphs.ModelLike) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model, and its large weights, which stay valid only while they are referenced."""
    elsewhere: dict[str, np.ndarray] = {}
    proto, held = graphs.detached(graphs.read(onx, elsewhere))
    return proto, held | elsewhere


def gradients(
    model: ir.Model, output: ir.Value, wrt: Sequence[ir.Value], *, builder: str = "builtin"
) -> list[ir.Value]:
    """Append the gradient of a value to its graph and return it, one value per entry of `wrt`.

    Parameters
    ----------
    model : onnx_ir.Model
        Changed in place.
    output : onnx_ir.Value
        The loss; several elements are summed.
    wrt : sequence of onnx_ir.Value
    builder : {"builtin", "onnxruntime-training"}

    Raises
    ------
    WeightError
        `output` does not depend on some values of `wrt`; the message names all of them.
    GradientError
        An operator on the way has no derivative.
    """
    if builder == "onnxruntime-training":
        from onnxtrain.training_build import append_gradients  # onnxruntime is slow to import, and optional

        found = append_gradients(model, output, wrt)
    else:
        op = graphs.builder(model).op
        nodes = list(model.graph)
        found = backpropagate(op, nodes, {output: _ones_like(op, output)}, wrt)
    lost = [str(v.name) for v in wrt if v not in found]
    if lost:
        remedy = f"Exclude {'it' if len(lost) == 1 else 'them'} from training."
        if len(lost) == len(wrt):
            remedy = (
                "Nothing is left to train. Does a loss of your own use y_pred, and not only in a comparison, op.Sign "
                "or op.Round? A smooth form of a > b is op.Sigmoid(a - b)."
            )
        if not all(graphs.is_float(v) for v in wrt if v not in found):
            remedy = "Integers, such as token ids, have no derivative. Ask for that of a floating-point value."
        raise WeightError(
            f"{output.name!r} does not depend on {', '.join(map(repr, lost))}, or only through operators whose "
            f"derivative is zero everywhere. {remedy}"
        )
    return [found[v] for v in wrt]


#: Tests for options that contradict each other, and the reasons.
_CONTRADICTIONS: tuple[tuple[Callable[[DerivativeOptions], bool], str], ...] = (
    (
        lambda o: o.KeepYieldOp in o and o != o.KeepYieldOp,
        "KeepYieldOp cannot be combined with other options; YieldOp already returns the outputs.",
    ),
    (
        lambda o: o.Loss in o and o.FillGrad in o,
        "Loss already starts the gradient from one. Leave out FillGrad.",
    ),
    (lambda o: o.FillGrad in o and o.KeepOutputs not in o, "FillGrad requires KeepOutputs."),
)


def _checked(options: object, loss: object, label: object, builder: str) -> DerivativeOptions:
    """Refuse contradictory arguments before any work is done."""
    if not isinstance(options, DerivativeOptions):
        raise ArgumentTypeError(
            f"options must be DerivativeOptions, got {options!r} of type {type(options).__name__}. Pass one, or "
            "several joined by |, of DerivativeOptions: Zero, KeepYieldOp, KeepOutputs, FillGrad, Loss."
        )
    if builder not in BUILDERS:
        raise ParameterError(f"Unknown builder {builder!r}. {did_you_mean(builder, BUILDERS)}")
    for contradicts, words in _CONTRADICTIONS:
        if contradicts(options):
            raise ParameterError(f"{options!r}: {words}")
    if DerivativeOptions.Loss in options and not isinstance(loss, str):
        raise ParameterError(
            f"The option Loss requires the name of the loss, got loss={loss!r}. Pass the name of the output that is "
            "the loss, such as loss='loss' for a model of add_loss_output."
        )
    if DerivativeOptions.Loss not in options and (loss is not None or label is not None):
        raise ParameterError(
            f"loss={loss!r} and label={label!r} require the option Loss, got {options!r}. Set "
            "options=DerivativeOptions.Loss and loss= to the name of the output that is the loss, which "
            "add_loss_output adds."
        )
    return options


# --------------------------------------------------------------- derivation


@dataclass(frozen=True)
class _Asked:
    """The values of a model to differentiate, and the outputs from which differentiation starts."""

    inputs: list[ir.Value]
    weights: list[ir.Value]
    outputs: list[ir.Value]
    loss: ir.Value | None

    @property
    def wrt(self) -> list[ir.Value]:
        """The inputs, then the weights."""
        return [*self.inputs, *self.weights]

    @property
    def reals(self) -> list[ir.Value]:
        """The floating-point outputs."""
        return [y for y in self.outputs if graphs.is_float(y)]


def _asked(
    model: ir.Model,
    inputs: Sequence[str] | None,
    weights: Sequence[str] | None,
    loss: str | None,
    label: str | Sequence[str] | None,
) -> _Asked:
    """Return the values of a model by their names."""
    labels = () if label is None else _names(label, "label")
    for name in labels:
        graphs.find(model.graph.inputs, name, "input")
    found = _Asked(
        inputs=_wanted_inputs(model, inputs, labels),
        weights=_wanted_weights(model, weights),
        outputs=list(model.graph.outputs),
        loss=None if loss is None else _find_loss(model, loss),
    )
    if not found.wrt:
        raise WeightError("Nothing to differentiate: no input or weight was requested, or none is floating-point.")
    return found


def _append_gradients(model: ir.Model, asked: _Asked, options: DerivativeOptions) -> list[tuple[str, ir.Value]]:
    """Append the backward pass and return the outputs of the result: the loss, the gradients, the kept outputs."""
    given_inputs = list(model.graph.inputs)
    _weights_become_inputs(model, asked.weights, keep_values=asked.loss is not None)
    op = graphs.builder(model).op
    nodes, own, wrt = list(model.graph), set(model.graph.initializers.values()), asked.wrt
    dy = _incoming(model, op, asked, options)
    found = backpropagate(op, nodes, dy, wrt)
    first = [] if asked.loss is None else [asked.loss]
    kept = [y for y in asked.outputs if y is not asked.loss] if DerivativeOptions.KeepOutputs in options else []
    before, after = ([str(y.name) for y in values] for values in (first, kept))
    taken = {*before, *after, *(str(v.name) for v in model.graph.inputs)}
    names = [*before, *(graphs.unique_name(f"{x.name}_grad", taken) for x in wrt), *after]
    grads = [found[x] if x in found else zeros_like(op, x) for x in wrt]
    values = graphs.constants_as_nodes(model, own, simplify(model, [*first, *grads, *kept]))
    if DerivativeOptions.KeepYieldOp in options and dy:
        given = next(iter(dy.values()))
        values = [_behind_yield(op, v, given, depends=x in found) for x, v in zip(wrt, values, strict=True)]
    graphs.check_scalars(model, given_inputs)
    return list(zip(names, values, strict=True))


def _incoming(model: ir.Model, op: Op, asked: _Asked, options: DerivativeOptions) -> dict[ir.Value, ir.Value]:
    """Return the incoming gradients: ones for the loss or each floating-point output, inputs, or outputs of YieldOp."""
    if asked.loss is not None:
        return {asked.loss: _ones_like(op, asked.loss)}
    reals = asked.reals
    if DerivativeOptions.FillGrad in options:
        return {y: _ones_like(op, y) for y in reals}
    taken = {str(v.name) for v in (*model.graph.inputs, *asked.outputs)}
    names = [graphs.unique_name(f"{y.name}_grad", taken) for y in reals]
    if DerivativeOptions.KeepYieldOp in options:
        return dict(zip(reals, _yielded(model, asked.outputs, reals, names), strict=True))
    dy = {y: ir.Value(name=name, type=y.type, shape=y.shape) for y, name in zip(reals, names, strict=True)}
    model.graph.inputs.extend(dy.values())
    return dy


def _yielded(
    model: ir.Model, outputs: list[ir.Value], reals: list[ir.Value], names: Sequence[str]
) -> Sequence[ir.Value]:
    """Append a YieldOp and return its results, the incoming gradients."""
    positions = {kind: [i for i, y in enumerate(outputs) if graphs.is_float(y) is kind] for kind in (True, False)}
    attributes = {"full_shape_outputs": positions[True]}  # each incoming gradient must have the shape of its output
    if positions[False]:
        attributes["non_differentiable_outputs"] = positions[False]
    node = ir.node("YieldOp", outputs, attributes=attributes, domain="com.microsoft", num_outputs=len(reals))
    model.graph.append(node)
    model.graph.opset_imports["com.microsoft"] = 1
    for y, given, name in zip(reals, node.outputs, names, strict=True):
        with_shape_of(given, y).name = name
    return node.outputs


def _behind_yield(op: Op, value: ir.Value, dy: ir.Value, *, depends: bool) -> ir.Value:
    """Return a gradient as TrainingAgent requires: computed in the backward pass, not one of its inputs."""
    if not depends:
        shape = graphs.depending_on(op, op.Shape(value), dy)
        zero = ir.tensor(np.zeros(1, value.dtype.numpy()), name="zero")  # type: ignore[union-attr]
        return with_shape_of(op.ConstantOfShape(shape, value=zero), value)
    node = graphs.origin(value)
    given = node is not None and node.op_type == "YieldOp"
    return with_shape_of(op.Sum(value), value) if given else value  # no graph optimizer removes a Sum of one operand


def _ones_like(op: Op, y: ir.Value) -> ir.Value:
    shape = graphs.static_shape(y)
    if shape is not None and math.prod(shape) == 1:
        return op.initializer(graphs.tensor(np.ones(shape), y.dtype, "one"))
    return expand_like(op, scalar_like(op, 1.0, y), y)


# -------------------------------------------------------------------- names


def _names(names: str | Sequence[str], what: str) -> tuple[str, ...]:
    """Return names as a tuple; a string is one name, any other argument must hold distinct strings."""
    if not isinstance(names, Iterable):
        raise ArgumentTypeError(f"{what} must be names, got {names!r} of type {type(names).__name__}.")
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{what} must be names, got {name!r} of type {type(name).__name__}.")
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ParameterError(f"{what} contains {', '.join(map(repr, twice))} more than once.")
    return found


def _wanted_inputs(model: ir.Model, inputs: Sequence[str] | None, labels: Sequence[str]) -> list[ir.Value]:
    free = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    if inputs is None:
        return [v for v in free if graphs.is_float(v) and v.name not in labels]
    names = _names(inputs, "inputs")
    _check_kind(names, {str(name) for name in model.graph.initializers}, "an initializer", "weights")
    found = [graphs.find(free, name, "input") for name in names]
    for value in found:
        if not graphs.is_float(value):
            raise ModelError(f"The input {graphs.describe(value)} is not floating-point, so it has no derivative.")
        if value.name in labels:
            raise ParameterError(f"{value.name!r} is both in inputs and in label. A label is not differentiated.")
    return found


def _wanted_weights(model: ir.Model, weights: Sequence[str] | None) -> list[ir.Value]:
    known = model.graph.initializers
    if weights is None:
        return [v for v in known.values() if graphs.is_float(v)]
    names = _names(weights, "weights")
    _check_kind(names, {str(v.name) for v in model.graph.inputs} - known.keys(), "an input", "inputs")
    found = [graphs.find(known.values(), name, "initializer", WeightError) for name in names]
    for value in found:
        if not graphs.is_float(value):
            of_few_bits = value.dtype is not None and value.dtype.is_integer() and value.dtype.bitwidth <= 8
            quantized = of_few_bits or any(n.op_type == "DequantizeLinear" for n in value.consumers())
            raise WeightError(
                f"The weight {graphs.describe(value)} is {'quantized' if quantized else 'not floating-point'}, so it "
                f"has no derivative. Differentiate {'the model before quantization' if quantized else 'another one'}."
            )
    return found


def _check_kind(names: Sequence[str], others: Container[str], kind: str, argument: str) -> None:
    """Raise a WeightError for a name that belongs to another argument."""
    for name in names:
        if name in others:
            raise WeightError(f"{name!r} is {kind}. Pass its name as {argument}=[{name!r}].")


def _weights_become_inputs(model: ir.Model, weights: list[ir.Value], *, keep_values: bool) -> None:
    inputs = model.graph.inputs
    for w in weights:
        if not w.is_graph_input():
            inputs.append(w)
        if not keep_values:
            model.graph.initializers.pop(str(w.name))
            w.const_value = None


def _find_loss(model: ir.Model, name: str) -> ir.Value:
    computed = {v.name: v for node in model.graph for v in node.outputs}
    value = {v.name: v for v in model.graph.outputs}.get(name, computed.get(name))
    if value is None:
        raise ModelError(
            f"The model has no loss {name!r}. {did_you_mean(name, [str(y.name) for y in model.graph.outputs])} To add "
            "one: onnx_derivative(add_loss_output(onx), options=DerivativeOptions.Loss, loss='loss', label='label')."
        )
    if not graphs.is_float(value):
        raise ModelError(f"The loss {graphs.describe(value)} is not floating-point, so it has no derivative.")
    return value


def _with_metadata(result: onnx.ModelProto, source: onnx.ModelProto) -> onnx.ModelProto:
    """Copy the metadata of a model, and which inputs it declares as scalars; loading loses some of it."""
    scalars = {value.name for value in source.graph.input if graphs.dimensions(value) == []}
    for value in result.graph.input:
        if value.name in scalars:
            value.type.tensor_type.shape.SetInParent()
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(result, field, getattr(source, field))
    graphs.assign(result.metadata_props, source.metadata_props)
    result.graph.name = source.graph.name
    result.graph.doc_string = source.graph.doc_string
    return result


# ------------------------------------------------------------ random inputs


@lists_its_arguments
def random_feed(
    inputs: Iterable[Any], batch: int = 10, empty_dimension: int = 1, random_state: Any = None
) -> dict[str, np.ndarray]:
    """Draw a random value for each input of a model, in order to run it without data.

    Floating-point values are standard normal, integers uniform in 0 to 9, booleans uniform.

    Parameters
    ----------
    inputs : iterable
        ``onx.graph.input``, or ``session.get_inputs()``.
    batch : int
        The length of an unknown first axis, and of every other axis of the same name.
    empty_dimension : int
        The length of any other unknown axis.
    random_state : int, numpy.random.Generator or None
        The same int gives the same feed.

    Raises
    ------
    ArgumentTypeError
        `inputs` are not descriptions of inputs, or a length is not an integer.
    DataError
        An input holds strings or is not a tensor.

    Examples
    --------
    >>> import onnx
    >>> X = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.INT64, ["N", None, 3])
    >>> random_feed([X], batch=4)["X"].shape
    (4, 1, 3)
    """
    if not isinstance(inputs, Iterable):
        raise _not_described(inputs)
    for called, n in (("batch", batch), ("empty_dimension", empty_dimension)):
        if not isinstance(n, Integral):
            raise ArgumentTypeError(f"{called} must be a length, such as 10, got {n!r}.")
    rng = seeded(np.random.default_rng, random_state)
    described = [_described(i) for i in inputs]
    rows = {shape[0] for _, _, shape in described if shape and isinstance(shape[0], str)}

    def length(axis: int, dim: int | str | None) -> int:
        if isinstance(dim, int) and dim > 0:
            return dim
        return batch if axis == 0 or dim in rows else empty_dimension

    found = {}
    for name, dtype, shape in described:
        lengths = [length(axis, dim) for axis, dim in enumerate(shape)]
        try:
            found[name] = _draw(rng, dtype, lengths)
        except (ValueError, MemoryError) as e:
            raise DataError(f"The input {name!r} cannot be drawn: {e}. Create its value yourself.") from e
    return found


def _described(value: Any) -> tuple[str, np.dtype, list[int | str | None]]:
    """Return the name, the type and the shape of a ValueInfoProto or of onnxruntime's NodeArg."""
    if isinstance(value, onnx.ValueInfoProto):
        code, shape = value.type.tensor_type.elem_type, graphs.dimensions(value) or []
    elif not isinstance(getattr(value, "type", None), str):
        raise _not_described(value)
    else:
        name = value.type.removeprefix("tensor(").removesuffix(")").upper()
        code, shape = getattr(onnx.TensorProto, name, 0), list(value.shape)
    if code in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        raise DataError(f"The input {value.name!r} is not a numeric tensor. Create its value yourself.")
    return value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)), shape


def _not_described(found: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        "random_feed expects descriptions of inputs: model.graph.input of an onnx.ModelProto or get_inputs() of an "
        f"onnxruntime.InferenceSession, got {type(found).__name__}."
    )


def _draw(rng: np.random.Generator, dtype: np.dtype, shape: list[int]) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, INTEGERS, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)
