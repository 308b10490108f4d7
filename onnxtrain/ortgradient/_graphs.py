"""The graphs of the forward and the backward pass: one for evaluation, one for each pass."""

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
        """Whether it is floating-point: other types have no gradient."""
        return self.elem_type in {int(dtype) for dtype in graphs.FLOATS}

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> Tensor:
        """Return the description of an input or an output of a model."""
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            return cls(value.name, tensor.elem_type, None)
        dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
        return cls(value.name, tensor.elem_type, dims)


@dataclass(frozen=True)
class PassGraphs:
    """The graphs of one model.

    Attributes
    ----------
    inputs : tuple of Tensor
        Inputs of the model, then the trained weights.
    outputs : tuple of Tensor
    gradients : tuple of str
        Outputs of the backward pass.
    evaluation : bytes
        The model with its weights as inputs.
    training : bytes
        Forward and backward pass in one graph, as the builder returned it.
    forward, backward : bytes
        The two passes; empty if one graph with YieldOp contains both.
    kept : tuple of str
        Values that `forward` returns after the outputs, for `backward`.
    needed : tuple of str
        Inputs of `backward` besides the gradients: inputs, outputs and kept values.
    incoming : tuple of int
        Indices of the outputs whose gradients the backward pass takes.
    incoming_names : tuple of str
        Names of these gradients in `backward`.
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
        Trained initializers.
    inputs : sequence of str
        Inputs that need a gradient.
    """
    whole = onnx_derivative(onx, weights, inputs, DerivativeOptions.KeepOutputs)
    evaluation = _evaluation(onx, weights)
    x = [Tensor.of(v) for v in evaluation.graph.input]
    y = [Tensor.of(v) for v in evaluation.graph.output]
    incoming = tuple(i for i, tensor in enumerate(y) if tensor.is_real)
    names = [v.name for v in whole.graph.output]
    gradients, outputs = names[: len(weights) + len(inputs)], names[len(weights) + len(inputs) :]
    free = [tensor.name for tensor in x]
    given = [v.name for v in whole.graph.input if v.name not in free]

    forward_nodes = _needed_nodes(whole.graph, outputs)
    backward_nodes = _needed_nodes(whole.graph, gradients) - forward_nodes
    made = {name for i in forward_nodes for name in whole.graph.node[i].output}
    used = {name for i in backward_nodes for name in _reads(whole.graph.node[i])} | set(gradients)
    needed = [name for name in [*free, *sorted(made)] if name in used]
    kept = [name for name in needed if name in made and name not in outputs]
    return PassGraphs(
        inputs=tuple(x),
        outputs=tuple(y),
        gradients=tuple(gradients),
        evaluation=evaluation.SerializeToString(),
        training=whole.SerializeToString(),
        incoming=incoming,
        incoming_names=tuple(given),
        forward=_part(whole, forward_nodes, free, [*outputs, *kept]),
        backward=_part(whole, backward_nodes, [*given, *needed], gradients),
        kept=tuple(kept),
        needed=tuple(needed),
    )


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


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node and its subgraphs read."""
    names = {name for name in node.input if name}
    for a in node.attribute:
        for inner in (*([a.g] if a.HasField("g") else []), *a.graphs):
            names |= {name for n in inner.node for name in _reads(n)} | {v.name for v in inner.output}
    return names


def _needed_nodes(graph: onnx.GraphProto, outputs: Iterable[str]) -> set[int]:
    """Return the indices of the nodes that `outputs` depend on."""
    wanted, found = set(outputs), set()
    for i in reversed(range(len(graph.node))):
        if wanted.intersection(graph.node[i].output):
            found.add(i)
            wanted |= _reads(graph.node[i])
    return found


def _part(whole: onnx.ModelProto, nodes: set[int], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return a model of a subset of the nodes."""
    graph = whole.graph
    known = {v.name: v for v in (*graph.input, *graph.output, *graph.value_info)}
    untyped = [name for name in (*inputs, *outputs) if name not in known or not known[name].type.ByteSize()]
    if untyped:
        raise GradientError(f"The types of {untyped} are not known: forward and backward cannot be told apart.")
    part = onnx.ModelProto()
    part.CopyFrom(whole)
    part.graph.ClearField("node")
    part.graph.ClearField("initializer")
    part.graph.ClearField("input")
    part.graph.ClearField("output")
    part.graph.node.extend(graph.node[i] for i in sorted(nodes))
    used = {name for n in part.graph.node for name in _reads(n)} | set(outputs)
    part.graph.initializer.extend(t for t in graph.initializer if t.name in used)
    part.graph.input.extend(known[name] for name in inputs)
    part.graph.output.extend(known[name] for name in outputs)
    own = {name for n in part.graph.node for name in n.output} - set(outputs)
    kept = [v for v in graph.value_info if v.name in own]
    part.graph.ClearField("value_info")
    part.graph.value_info.extend(kept)
    return part.SerializeToString()


def arrange(
    onx: onnx.ModelProto, inputs: Sequence[str] | None, outputs: Sequence[str] | None, weights: Sequence[str]
) -> onnx.ModelProto:
    """Return a model with its inputs in the given order and a selection of its outputs.

    Untrained inputs with a default value become constants.
    """
    model = graphs.load(onx)
    graph = model.graph
    free = [v for v in graph.inputs if v.name not in graph.initializers]
    if inputs is not None:
        chosen = [graphs.find(free, name, "input") for name in inputs]
        missing = sorted(str(v.name) for v in free if v not in chosen)
        if missing or len(set(inputs)) != len(inputs):
            raise ModelError(f"input_names={list(inputs)} must name each input once; missing: {missing}.")
        free = chosen
    graph.inputs[:] = free + [v for v in graph.inputs if v.name in weights]
    names = [str(y.name) for y in graph.outputs] if outputs is None else list(outputs)
    if not names or len(set(names)) != len(names):
        raise ModelError(f"output_names={names} must name at least one output, each once.")
    tensors = [ir.to_proto(graph.initializers[name].const_value) for name in weights]  # type: ignore[arg-type]
    result = graphs.save(model, outputs=[(name, graphs.find(graph.outputs, name, "output")) for name in names])
    # a weight that no output depends on has a gradient too: zero
    found = {tensor.name for tensor in result.graph.initializer}
    result.graph.initializer.extend(tensor for tensor in tensors if tensor.name not in found)
    return result
