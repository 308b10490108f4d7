"""The graphs for evaluation, for the forward pass and for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from onnxtrain import graph as graphs
from onnxtrain.errors import GradientError, ModelError
from onnxtrain.grad_helper import DerivativeOptions, onnx_derivative


@dataclass(frozen=True)
class Tensor:
    """The static description of an input or an output.

    ``shape`` holds ints, names of unknown dimensions and None; it is None if the
    rank is unknown.
    """

    name: str
    elem_type: int
    shape: tuple[int | str | None, ...] | None

    @property
    def is_real(self) -> bool:
        """Whether the tensor is floating-point; other types have no gradient."""
        return self.elem_type in graphs.FLOATS

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> Tensor:
        """Return the description of an input or an output of a model."""
        shape = graphs.dimensions(value)
        return cls(value.name, value.type.tensor_type.elem_type, None if shape is None else tuple(shape))


@dataclass(frozen=True)
class PassGraphs:
    """The graphs of one model.

    Attributes
    ----------
    inputs : tuple of Tensor
        The inputs of the model, then the trained weights.
    outputs : tuple of Tensor
    gradients : tuple of str
        The outputs of the backward pass.
    evaluation : bytes
        The model with its weights as inputs.
    training : bytes
        The forward and the backward pass in one graph, as the builder returned it.
    forward, backward : bytes
        The two passes; empty if one graph with YieldOp contains both.
    kept : tuple of str
        The values that `forward` returns after the outputs, for `backward`.
    needed : tuple of str
        The inputs of `backward` that are not gradients: inputs, outputs and kept values.
    incoming : tuple of int
        The indices of the outputs whose gradients the backward pass takes.
    incoming_names : tuple of str
        The names of these gradients in `backward`.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[str, ...]
    evaluation: bytes = field(repr=False)
    training: bytes = field(repr=False)
    incoming: tuple[int, ...]
    incoming_names: tuple[str, ...] = ()
    forward: bytes = field(default=b"", repr=False)
    backward: bytes = field(default=b"", repr=False)
    kept: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def split_graphs(onx: onnx.ModelProto, weights: Sequence[str], inputs: Sequence[str]) -> PassGraphs:
    """Return a forward and a backward graph of standard operators, derived by the built-in rules.

    Parameters
    ----------
    onx : onnx.ModelProto
    weights : sequence of str
        The trained initializers.
    inputs : sequence of str
        The inputs that need a gradient.
    """
    whole = onnx_derivative(onx, weights, inputs, DerivativeOptions.KeepOutputs)
    evaluation = _evaluation(onx, weights)
    x = tuple(Tensor.of(v) for v in evaluation.graph.input)
    y = tuple(Tensor.of(v) for v in evaluation.graph.output)
    model = graphs.reload(whole)
    gradients, outputs = model.graph.outputs[: -len(y)], model.graph.outputs[-len(y) :]
    free, given = model.graph.inputs[: len(x)], model.graph.inputs[len(x) :]
    needed = _needed(gradients, outputs, free)
    kept = [v for v in needed if v.producer() is not None and v not in outputs]
    return PassGraphs(
        inputs=x,
        outputs=y,
        gradients=tuple(str(dx.name) for dx in gradients),
        evaluation=evaluation.SerializeToString(),
        training=whole.SerializeToString(),
        incoming=tuple(i for i, tensor in enumerate(y) if tensor.is_real),
        incoming_names=tuple(str(dy.name) for dy in given),
        forward=_part(whole, _names(free), _names([*outputs, *kept])),
        backward=_part(whole, _names([*given, *needed]), _names(gradients)),
        kept=_names(kept),
        needed=_names(needed),
    )


def _names(values: Iterable[ir.Value]) -> tuple[str, ...]:
    return tuple(str(v.name) for v in values)


def _needed(gradients: Sequence[ir.Value], outputs: Sequence[ir.Value], free: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the values that the backward pass takes: inputs of the model and results of the forward pass."""
    forward = graphs.ancestors(outputs)
    later = {node for y in graphs.ancestors(gradients) - forward if (node := y.producer()) is not None}
    used = {*gradients, *(x for node in later for x in graphs.operands(node) if x is not None)}
    made = sorted((v for v in used & forward if v.producer() is not None), key=lambda v: str(v.name))
    needed = [*(v for v in free if v in used), *made]
    untyped = [v.name for v in needed if v.dtype is None]
    if untyped:
        raise GradientError(f"The types of {untyped} are unknown, so forward and backward cannot be separated.")
    return needed


def _part(whole: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the part of a model between the given inputs and outputs."""
    model = graphs.reload(whole)
    graph = model.graph
    made = (y for node in graph for y in node.outputs)
    values = {str(v.name): v for v in (*graph.initializers.values(), *graph.inputs, *made)}
    graph.inputs[:] = [_as_input(values[name]) for name in inputs]
    values |= {str(v.name): v for v in graph.inputs}
    graph.outputs[:] = [values[name] for name in outputs]
    return graphs.save(model).SerializeToString()


def _as_input(value: ir.Value) -> ir.Value:
    """Replace a computed value by an input of the same name, and return the input."""
    if value.producer() is None:
        return value
    found = ir.Value(name=value.name, type=value.type, shape=value.shape)
    value.name = f"{value.name}_computed"
    ir.convenience.replace_all_uses_with(value, found, replace_graph_outputs=True)
    return found


def yield_graphs(
    onx: onnx.ModelProto, weights: Sequence[str], inputs: Sequence[str], *, builder: str = "onnxruntime-training"
) -> PassGraphs:
    """Return one graph for TrainingAgent, with YieldOp between the passes."""
    whole = onnx_derivative(onx, weights, inputs, DerivativeOptions.KeepYieldOp, builder=builder)
    evaluation = _evaluation(onx, weights)
    (node,) = [n for n in whole.graph.node if n.op_type == "YieldOp"]
    flat = {i for a in node.attribute if a.name == "non_differentiable_outputs" for i in a.ints}
    return PassGraphs(
        inputs=tuple(Tensor.of(v) for v in evaluation.graph.input),
        outputs=tuple(Tensor.of(v) for v in evaluation.graph.output),
        gradients=tuple(v.name for v in whole.graph.output),
        evaluation=evaluation.SerializeToString(),
        training=whole.SerializeToString(),
        incoming=tuple(i for i in range(len(node.input)) if i not in flat),
    )


def _evaluation(onx: onnx.ModelProto, weights: Sequence[str]) -> onnx.ModelProto:
    """Return the model with its weights as inputs, in the given order."""
    model = graphs.load(onx)
    for name in weights:
        weight = model.graph.initializers.pop(name)
        weight.const_value = None
        if weight.is_graph_input():
            model.graph.inputs.remove(weight)
        model.graph.inputs.append(weight)
    return graphs.save(model, outputs=[(str(y.name), y) for y in model.graph.outputs])


def arrange(
    onx: onnx.ModelProto, inputs: Sequence[str] | None, outputs: Sequence[str] | None, weights: Sequence[str]
) -> onnx.ModelProto:
    """Return a model with its inputs in the given order and a selection of its outputs.

    Inputs with a default value that are not trained become constants.
    """
    model = graphs.load(onx)
    graph = model.graph
    free = _ordered([v for v in graph.inputs if v.name not in graph.initializers], inputs)
    graph.inputs[:] = free + [v for v in graph.inputs if v.name in weights]
    names = [str(y.name) for y in graph.outputs] if outputs is None else list(outputs)
    if not names or len(set(names)) != len(names):
        raise ModelError(f"output_names must contain at least one output, each once, got {names}.")
    tensors = [ir.to_proto(graph.initializers[name].const_value) for name in weights]  # type: ignore[arg-type]
    result = graphs.save(model, outputs=[(name, graphs.find(graph.outputs, name, "output")) for name in names])
    # a weight on which no output depends has a gradient too: zero
    found = {tensor.name for tensor in result.graph.initializer}
    result.graph.initializer.extend(tensor for tensor in tensors if tensor.name not in found)
    return result


def _ordered(inputs: list[ir.Value], names: Sequence[str] | None) -> list[ir.Value]:
    if names is None:
        return inputs
    chosen = [graphs.find(inputs, name, "input") for name in names]
    missing = sorted(str(v.name) for v in inputs if v not in chosen)
    if missing or len(set(names)) != len(names):
        raise ModelError(f"input_names must contain each input once, got {list(names)}; missing: {missing}.")
    return chosen
