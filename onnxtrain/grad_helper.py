"""The gradient of a model: the public interface of :mod:`onnxtrain.autodiff`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from enum import IntFlag
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.autodiff import backpropagate
from onnxtrain.autodiff.broadcast import expand_like, scalar_like, with_shape_of, zeros_like
from onnxtrain.autodiff.expand import expand_functions
from onnxtrain.autodiff.simplify import simplify
from onnxtrain.errors import ArgumentTypeError, ModelError, ParameterError, WeightError
from onnxtrain.feeds import random_feed
from onnxtrain.graph import Op
from onnxtrain.registry import did_you_mean

__all__ = ["DerivativeOptions", "gradients", "onnx_derivative", "random_feed"]

#: The available builders of the gradient graph.
BUILDERS = ("builtin", "onnxruntime-training")


class DerivativeOptions(IntFlag):
    """Options for the inputs and outputs of the graph returned by :func:`onnx_derivative`.

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
    #: The graph already computes a loss: it is the first output, followed by its gradients.
    Loss = 8


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
    r"""Return the graph of the gradient of an ONNX model, in standard operators.

    For outputs :math:`y_k` and incoming gradients :math:`\bar y_k`, each input or
    weight :math:`x` gets

    .. math:: \bar x = \sum_k \left(\frac{\partial y_k}{\partial x}\right)^{\!\top} \bar y_k

    Inputs of the result are those of `onx`, then the weights, then
    ``<output>_grad`` for each floating-point output. Outputs are ``<input>_grad``, then
    ``<weight>_grad``, in the requested order, then the outputs kept by `options`. A name that
    is taken gets a numeric suffix. Constants of a derivative are Constant nodes: the
    floating-point initializers of the result are the weights of `onx`. A value that the outputs
    depend on only through non-differentiable operators (Shape, Greater, ArgMax, ...), or not at
    all, has a gradient of zeros.

    Parameters
    ----------
    onx : onnx.ModelProto, bytes or path
        It is not changed.
    weights : sequence of str, optional
        Initializers to differentiate; None for all floating-point ones, ``[]`` for none.
    inputs : sequence of str, optional
        Inputs to differentiate; None for all floating-point ones, ``[]`` for none.
    options : DerivativeOptions
        With ``Loss``, the weights keep their values: they are inputs with a default.
    loss : str, optional
        With ``Loss``, the result to differentiate; several elements are summed.
    label : str or sequence of str, optional
        With ``Loss``, inputs without a gradient.
    path_name : path, optional
        The result is also written there.
    verbose : int
        1 prints the differentiated values and the number of nodes.
    builder : {"builtin", "onnxruntime-training"}
        The rules of :mod:`onnxtrain.autodiff`, or onnxruntime-training, whose
        graphs only it can run.

    Returns
    -------
    onnx.ModelProto
        Its metadata, producer and documentation are those of `onx`.

    Raises
    ------
    GradientError
        An operator on the way has no derivative.
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
    proto = graphs.read(onx)
    result = _derive(proto, weights, inputs, options, loss, label, verbose, builder)
    if path_name is not None:
        onnx.save_model(result, path_name)
    return result


def gradients(
    model: ir.Model, output: ir.Value, wrt: Sequence[ir.Value], *, builder: str = "builtin"
) -> list[ir.Value]:
    """Append to a graph the gradient of one of its values and return it, one value per `wrt`.

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
        Values of `wrt` that `output` does not depend on; all are named.
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
        raise WeightError(
            f"{output.name!r} does not depend on {', '.join(map(repr, lost))}, or only through operators whose "
            f"derivative is zero everywhere. Leave {'it' if len(lost) == 1 else 'them'} out of what is trained."
        )
    return [found[v] for v in wrt]


def _checked(options: Any, loss: Any, label: Any, builder: str) -> DerivativeOptions:
    """Refuse contradictory arguments before any work is done."""
    if not isinstance(options, DerivativeOptions):
        raise ArgumentTypeError(f"options must be DerivativeOptions, got {options!r}, a {type(options).__name__}.")
    if builder not in BUILDERS:
        raise ParameterError(f"Unknown builder {builder!r}. {did_you_mean(builder, BUILDERS)}")
    o = DerivativeOptions
    if o.KeepYieldOp in options and options != o.KeepYieldOp:
        raise ParameterError(f"{options!r}: KeepYieldOp goes with no other option; YieldOp gives the outputs already.")
    if o.Loss in options and o.FillGrad in options:
        raise ParameterError(f"{options!r}: the gradient of a loss starts from one, FillGrad says nothing more.")
    if o.FillGrad in options and o.KeepOutputs not in options:
        raise ParameterError(f"{options!r}: FillGrad goes with KeepOutputs.")
    if o.Loss in options:
        if not isinstance(loss, str):
            raise ParameterError(f"The option Loss needs the name of the loss, got loss={loss!r}.")
    elif loss is not None or label is not None:
        raise ParameterError(f"loss={loss!r} and label={label!r} go with the option Loss, got {options!r}.")
    return options


# --------------------------------------------------------------- derivation


def _derive(
    proto: onnx.ModelProto,
    weights: Sequence[str] | None,
    inputs: Sequence[str] | None,
    options: DerivativeOptions,
    loss: str | None,
    label: str | Sequence[str] | None,
    verbose: int,
    builder: str,
) -> onnx.ModelProto:
    model = graphs.load(expand_functions(proto))
    labels = () if label is None else _names(label, "label")
    for name in labels:
        graphs.find(model.graph.inputs, name, "input")
    xs = _wanted_inputs(model, inputs, labels)
    ws = _wanted_weights(model, weights)
    if not xs and not ws:
        raise WeightError("Nothing to differentiate: no input and no weight was asked for, or none holds real numbers.")
    if verbose:
        print(f"[onnx_derivative] inputs {[x.name for x in xs]}, weights {[w.name for w in ws]}, {options!r}")
    if builder == "onnxruntime-training":
        from onnxtrain.training_build import derive  # onnxruntime is slow to import, and optional

        value = None if loss is None else _find_loss(model, loss)
        result = derive(model, xs, ws, options=int(options), loss=value)
    else:
        outputs = list(model.graph.outputs)
        _weights_become_inputs(model, ws, keep_values=DerivativeOptions.Loss in options)
        result = graphs.save(model, outputs=_append_gradients(model, [*xs, *ws], outputs, options, loss))
    result = _with_metadata(result, proto)
    if verbose:
        print(f"[onnx_derivative] {len(proto.graph.node)} nodes became {len(result.graph.node)}")
    return result


def _append_gradients(
    model: ir.Model, wrt: list[ir.Value], outputs: list[ir.Value], options: DerivativeOptions, loss: str | None
) -> list[tuple[str, ir.Value]]:
    """Append the backward pass and return the outputs of the result."""
    op = graphs.builder(model).op
    nodes, own = list(model.graph), set(model.graph.initializers.values())
    kept = [(str(y.name), y) for y in outputs] if DerivativeOptions.KeepOutputs in options else []
    if DerivativeOptions.Loss in options:
        value = _find_loss(model, str(loss))
        kept = [(name, y) for name, y in kept if y is not value]
        first = [(str(value.name), value)]
        dy = {value: _ones_like(op, value)}
    else:
        first = []
        dy = _incoming(model, op, [y for y in outputs if graphs.is_float(y)], outputs, options)
    found = backpropagate(op, nodes, dy, wrt)
    taken = {str(v.name) for v in model.graph.inputs} | {name for name, _ in first + kept}
    grads = [(graphs.unique_name(f"{x.name}_grad", taken), found[x] if x in found else zeros_like(op, x)) for x in wrt]
    named = first + grads + kept
    values = graphs.constants_as_nodes(model, own, simplify(model, [value for _, value in named]))
    if DerivativeOptions.KeepYieldOp in options and dy:
        given = next(iter(dy.values()))
        values = [_behind_yield(op, v, given, depends=x in found) for x, v in zip(wrt, values, strict=True)]
    return [(name, value) for (name, _), value in zip(named, values, strict=True)]


def _incoming(
    model: ir.Model, op: Op, reals: list[ir.Value], outputs: list[ir.Value], options: DerivativeOptions
) -> dict[ir.Value, ir.Value]:
    """Return the incoming gradient of each floating-point output: ones, an input, or an output of YieldOp."""
    if DerivativeOptions.FillGrad in options:
        return {y: _ones_like(op, y) for y in reals}
    taken = {str(v.name) for v in (*model.graph.inputs, *outputs)}
    names = [graphs.unique_name(f"{y.name}_grad", taken) for y in reals]
    if DerivativeOptions.KeepYieldOp not in options:
        dy = {y: ir.Value(name=name, type=y.type, shape=y.shape) for y, name in zip(reals, names, strict=True)}
        model.graph.inputs.extend(dy.values())
        return dy
    # each incoming gradient must have the full shape of its output
    attributes = {"full_shape_outputs": [i for i, y in enumerate(outputs) if graphs.is_float(y)]}
    flat = [i for i, y in enumerate(outputs) if not graphs.is_float(y)]
    if flat:
        attributes["non_differentiable_outputs"] = flat
    node = ir.node(
        "YieldOp",
        inputs=outputs,
        attributes=attributes,
        domain="com.microsoft",
        num_outputs=len(reals),
    )
    model.graph.append(node)
    model.graph.opset_imports["com.microsoft"] = 1
    for y, given, name in zip(reals, node.outputs, names, strict=True):
        with_shape_of(given, y).name = name
    return dict(zip(reals, node.outputs, strict=True))


def _behind_yield(op: Op, value: ir.Value, dy: ir.Value, *, depends: bool) -> ir.Value:
    """Return a gradient in the form TrainingAgent requires: computed in the backward pass, not an input of it."""
    if not depends:
        positive = op.Greater(dy, 0.0)
        never = op.And(positive, op.Not(positive))  # depends on the gradient, and is false for any value of it
        shape = op.Add(op.Shape(value), op.ReduceSum(op.Cast(never, to=int(ir.DataType.INT64)), keepdims=0))
        zero = ir.tensor(np.zeros(1, value.dtype.numpy()), name="zero")  # type: ignore[union-attr]
        return with_shape_of(op.ConstantOfShape(shape, value=zero), value)
    node = value.producer()
    while node is not None and node.op_type == "Identity":
        node = node.inputs[0].producer()  # type: ignore[union-attr]
    given = node is not None and node.op_type == "YieldOp"
    return with_shape_of(op.Sum(value), value) if given else value  # no graph optimizer removes a Sum of one operand


def _ones_like(op: Op, y: ir.Value) -> ir.Value:
    shape = graphs.static_shape(y)
    if shape is not None and math.prod(shape) == 1:
        return op.initializer(graphs.tensor(np.ones(shape), y.dtype, "one"))
    return expand_like(op, scalar_like(op, 1.0, y), y)


# -------------------------------------------------------------------- names


def _names(names: Any, what: str) -> tuple[str, ...]:
    """Return names as a tuple; a string is one name, any other argument must hold distinct strings."""
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{what} must be names, got {name!r}, a {type(name).__name__}.")
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ParameterError(f"{what} names {', '.join(map(repr, twice))} more than once.")
    return found


def _wanted_inputs(model: ir.Model, inputs: Sequence[str] | None, labels: Sequence[str]) -> list[ir.Value]:
    free = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    if inputs is None:
        return [v for v in free if graphs.is_float(v) and v.name not in labels]
    found = [graphs.find(free, name, "input") for name in _names(inputs, "inputs")]
    for value in found:
        if not graphs.is_float(value):
            raise ModelError(f"The input {graphs.describe(value)} holds no real numbers: it has no derivative.")
        if value.name in labels:
            raise ParameterError(f"{value.name!r} is given as an input to differentiate and as a label.")
    return found


def _wanted_weights(model: ir.Model, weights: Sequence[str] | None) -> list[ir.Value]:
    known = model.graph.initializers
    if weights is None:
        return [v for v in known.values() if graphs.is_float(v)]
    found = [graphs.find(known.values(), name, "initializer", WeightError) for name in _names(weights, "weights")]
    for value in found:
        if not graphs.is_float(value):
            quantized = any(n.op_type.startswith("Dequantize") or "Integer" in n.op_type for n in value.consumers())
            raise WeightError(
                f"The weight {graphs.describe(value)} {'is quantized' if quantized else 'holds no real numbers'}: "
                f"it has no derivative. Differentiate {'the model before quantization' if quantized else 'another'}."
            )
    return found


def _weights_become_inputs(model: ir.Model, weights: list[ir.Value], *, keep_values: bool) -> None:
    inputs = model.graph.inputs
    for w in weights:
        if not w.is_graph_input():
            inputs.append(w)
        if not keep_values:
            model.graph.initializers.pop(str(w.name))
            w.const_value = None


def _find_loss(model: ir.Model, name: str) -> ir.Value:
    computed = [v for node in model.graph for v in node.outputs]
    value = graphs.find([*model.graph.outputs, *computed], name, "loss")
    if not graphs.is_float(value):
        raise ModelError(f"The loss {graphs.describe(value)} holds no real numbers: it has no derivative.")
    return value


def _with_metadata(result: onnx.ModelProto, source: onnx.ModelProto) -> onnx.ModelProto:
    """Copy the metadata of a model; opset conversion loses some of it."""
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(result, field, getattr(source, field))
    del result.metadata_props[:]
    result.metadata_props.extend(source.metadata_props)
    result.graph.name = source.graph.name
    result.graph.doc_string = source.graph.doc_string
    return result


# --------------------------------------------------------------- random_feed
