"""The parameters of a PyTorch module that each node takes, as torch.onnx.export(dynamo=True) writes beside the graph.

The graph has the list of what the module held, a line each, and each node the operation that it came from::

    p_f_weight: PARAMETER target='f.weight'
    %linear_1 = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_f_weight, %p_f_bias))

The exporter's optimizer changes the graph and leaves these texts as they were:

* Equal initializers of up to 1024 elements are kept once, whether they are one parameter or begin with equal values.
  The node has the name of another layer's parameter where its operation has the layer's own.
* Intercepts of zeros of Gemm and Conv are left out. The node has two inputs, its operation three.
* What depends on parameters alone is computed in advance. The initializer says from what: :func:`tied.folded_from`.

:func:`as_in_module` gives the nodes back what their operations say. What is not in the file at all: :mod:`unseen`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.convert.tied import folded_from

#: Where the exporter writes the role of an initializer.
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"

#: Where it lists what the module held, also what it folded into other initializers, and the lines of that list.
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_HELD = re.compile(r"^(\S+): (PARAMETER|BUFFER|CONSTANT_TENSOR) target='(.+?)'", re.MULTILINE)

#: Where it writes the operation that a node comes from, and the modules whose forward called it.
_OPERATION = "pkg.torch.onnx.fx_node"
_SCOPES = "pkg.torch.onnx.name_scopes"

#: Operators whose intercept the exporter's optimizer leaves out, and the operations of PyTorch that have one.
_WITH_INTERCEPT = ("Conv", "ConvTranspose", "Gemm")
_AFFINE = re.compile(r"aten\.(linear|addmm|conv\w*)\.")

#: Operations of PyTorch whose first operand is added last: addmm(b, x, w) is x w + b.
_ADDED_LAST = re.compile(r"aten\.b?add\w+\.")

#: The operators of recurrent layers, where they take what, and how a module calls it: weight_ih_l1 is of its layer 1.
_RECURRENT = ("GRU", "LSTM", "RNN")
_OF_LAYER = {1: "weight_ih_l{}", 2: "weight_hh_l{}", 3: "bias_ih_l{}"}

#: Operators whose result is their first operand, moved.
_VIEWS = ("Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")

#: The types of floating-point tensors.
_REAL = frozenset(int(dtype) for dtype in graph.FLOATS)


class Taken(NamedTuple):
    """A parameter of the module that a node takes by another name, or not at all.

    Attributes
    ----------
    name : str
        The parameter.
    node : str
        The first output of the node.
    position : int
    source : str
        The initializer that the file has in its place, "" if it was left out as zeros.
    kind : str
        PARAMETER or BUFFER.
    """

    name: str
    node: str
    position: int
    source: str
    kind: str


@dataclass
class _Operation:
    """An operation of PyTorch, the values that it takes, the module that called it, and the nodes made of it.

    `tensors` are those that are no sizes.
    """

    text: str
    args: list[str]
    tensors: set[str]
    module: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)


def held_by_module(onx: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """Return the parameters and buffers, name: (name in operations, kind); only the dynamo exporter lists them."""
    if onx.producer_name != "pytorch":
        return {}
    text = next((p.value for p in onx.graph.metadata_props if p.key == _SIGNATURE), "")
    return {name: (placeholder, kind) for placeholder, kind, name in _HELD.findall(text)}


class Module:
    """A PyTorch module, as far as a file of the dynamo exporter describes it."""

    def __init__(self, onx: onnx.ModelProto):
        self.held = held_by_module(onx)
        self.initializers = {i.name: i for i in onx.graph.initializer if i.data_type in _REAL} if self.held else {}
        self.folded = folded_from(onx) if self.held else {}
        self.operations = _operations(onx, self.held) if self.held else []
        self.nodes = onx.graph.node
        self.names = {i.name for i in onx.graph.initializer}
        self.made = {*(x for node in onx.graph.node for x in node.output), *(i.name for i in onx.graph.input)}

    def origins(self, initializer: str) -> set[str]:
        """Return an initializer and the values that it was computed from."""
        return {initializer, *self.folded.get(initializer, ())}

    @cached_property
    def known(self) -> set[str]:
        """The values that the file has, directly or computed in advance."""
        return set().union(*map(self.origins, self.initializers))

    @cached_property
    def mentioned(self) -> set[str]:
        """The operands of all operations."""
        return {a for operation in self.operations for a in operation.args}

    @cached_property
    def views(self) -> dict[str, str]:
        """The value that each moved one is a view of."""
        return {x: node.input[0] for node in self.nodes if node.op_type in _VIEWS and node.input for x in node.output}

    def takes_known(self, operation: _Operation) -> bool:
        """Whether the file has all that an operation takes."""
        return all(a in self.made or a in self.known for a in operation.args)

    @cached_property
    def unmentioned(self) -> list[str]:
        """The parameters that neither are in the file nor taken by an operation: views of them may be."""
        absent = self.held.keys() - self.known - self.mentioned
        return [name for name, (_, kind) in self.held.items() if name in absent and kind == "PARAMETER"]

    @cached_property
    def shared(self) -> set[str]:
        """The initializers of the module that several nodes take, or one node several times."""
        nodes = [node for operation in self.operations for node in operation.nodes]
        counts = Counter(x for node in nodes for x in node.input)
        return {x for x in self.initializers if counts[x] > 1 and not self.origins(x).isdisjoint(self.held)}


def holder_of(parameter: str) -> str:
    """Return the module that holds a parameter: ``f`` holds ``f.weight``."""
    return parameter.rpartition(".")[0]


def _operations(onx: onnx.ModelProto, held: Mapping[str, tuple[str, str]]) -> list[_Operation]:
    names = {placeholder: name for name, (placeholder, _) in held.items()}
    found: dict[str, _Operation] = {}
    for node in onx.graph.node:
        said = {p.key: p.value for p in node.metadata_props}
        text = said.get(_OPERATION, "")
        name, _, call = text.partition(" : ")
        if not call or not node.output:
            continue
        if name not in found:
            args = list(dict.fromkeys(re.findall(r"%(\w+)", call)))
            args = [*args[1:], *args[:1]] if _ADDED_LAST.search(call) else args  # as the nodes take them
            tensors = set(re.findall(r"%(\w+)", re.sub(r"\[[^\[\]]*\]", "", call)))
            scopes = re.findall(r"'([^']*)'", said.get(_SCOPES, ""))
            module = re.sub(r"@\d+", "", scopes[-2]) if len(scopes) > 1 else ""
            found[name] = _Operation(call, [names.get(a, a) for a in args], tensors & {*args}, module)
        found[name].nodes.append(node)
    return list(found.values())


class _Views:
    """The parameters that operations take views of, which the file does not name.

    Those of a module that nothing mentions are given out in their order, one for each pair of an initializer that the
    file has and of views of it; where there are no more, the first one again.
    """

    def __init__(self, module: Module):
        self._free: defaultdict[str, deque[str]] = defaultdict(deque)
        for name in module.unmentioned:
            self._free[holder_of(name)].append(name)
        self._first: dict[tuple[str, str], str] = {}
        self._found: dict[tuple[str, tuple[str, ...], str], str] = {}

    def parameter(self, initializer: str, views: tuple[str, ...], module: str) -> str | None:
        """Return the parameter that a module takes these views of, where the file has another's initializer."""
        free = self._free[module]
        name = free[0] if free else self._first.get((initializer, module))
        key = initializer, views, module
        if key not in self._found and name is not None:
            self._found[key] = name
            self._first.setdefault((initializer, module), name)
            if free:
                free.popleft()
        return self._found.get(key)


def taken_by_nodes(module: Module) -> list[Taken]:
    """Return the parameters and buffers that nodes take by another name than the module's, or not at all."""
    others = module.made | (module.names - module.initializers.keys())
    views = _Views(module)
    found = [taken for operation in module.operations for taken in _taken(module, operation, views)]
    found = [taken for taken in found if taken.name not in others]  # a value of the graph may have its name
    sources: dict[str, str] = {}
    return [taken for taken in found if sources.setdefault(taken.name, taken.source) == taken.source]


def _taken(module: Module, operation: _Operation, views: _Views) -> Iterator[Taken]:
    layers = [node for node in operation.nodes if node.op_type in _RECURRENT]
    if layers:
        yield from _of_layers(module, operation, layers)
        return
    uses = list(_foreign_uses(module, operation))
    missing = [a for a in operation.args if a in module.held and a not in module.known]
    if not missing and module.takes_known(operation):
        yield from _constants(module, operation, uses)
        return
    sources = list(dict.fromkeys(source for _, _, source in uses))
    names = missing if len(uses) <= len(missing) else _names(module, operation, missing, sources, views)
    places = range(len(uses)) if names is missing else [sources.index(source) for _, _, source in uses]
    if len(sources) <= len(names):
        for (node, i, source), place in zip(uses, places, strict=True):
            yield Taken(names[place], node, i, source, module.held[names[place]][1])
        yield from _left_out(module, operation, missing[len(uses) :])


def _of_layers(module: Module, operation: _Operation, nodes: Sequence[onnx.NodeProto]) -> Iterator[Taken]:
    """Yield the parameters of recurrent layers, of which one operation takes those of all layers, from the first on.

    A node has both intercepts of its layer as one, and both directions.
    """
    for layer, node in enumerate(nodes):
        ending = re.compile(rf"_l{layer}(_reverse)?$")
        own = {a for a in operation.args if a in module.held and ending.search(a)}
        for i, x in enumerate(node.input):
            called = _OF_LAYER.get(i, "").format(layer)
            name = next((a for a in own if a.rpartition(".")[2] == called), None)
            if name is not None and x in module.shared and module.origins(x).isdisjoint(own):
                yield Taken(name, node.output[0], i, x, module.held[name][1])


def _names(
    module: Module, operation: _Operation, missing: Sequence[str], sources: Sequence[str], views: _Views
) -> Sequence[str]:
    """Return the parameters of an operation, which may take views of them, that the file has as `sources`."""
    if len(missing) >= len(sources) or module.takes_known(operation):
        return missing
    absent = tuple(a for a in operation.args if a not in module.made and a not in module.known)
    found = (views.parameter(source, absent, operation.module) for source in sources)
    return [name for name in found if name is not None]


def _constants(module: Module, operation: _Operation, uses: Sequence[tuple[str, int, str]]) -> Iterator[Taken]:
    """Yield constants of an operation without parameters that are equal to a parameter of others."""
    for node, i, source in uses:
        origins = module.origins(source)
        if origins.isdisjoint(operation.args) and not origins.isdisjoint(module.mentioned):
            yield Taken(f"{source}.constant", node, i, source, "BUFFER")


def _foreign_uses(module: Module, operation: _Operation) -> Iterator[tuple[str, int, str]]:
    """Yield the node, the position and the initializer where an operation takes one that is another parameter's.

    A scale and an intercept of one layer may be one initializer, too.
    """
    own = {a for a in operation.args if a in module.known}
    for node in operation.nodes:
        for i, x in enumerate(node.input):
            if x in module.shared and (module.origins(x).isdisjoint(own) or x in node.input[:i]):
                yield node.output[0], i, x


def _left_out(module: Module, operation: _Operation, missing: Sequence[str]) -> Iterator[Taken]:
    """Yield the intercept that was left out of an operation, if there is one."""
    nodes = [node for node in operation.nodes if node.op_type in _WITH_INTERCEPT]
    if not len(missing) == len(nodes) == 1 or not _AFFINE.search(operation.text):
        return
    (node,), (name,) = nodes, missing
    w = module.initializers.get(node.input[1]) if len(node.input) == 2 else None
    if w is not None and len(w.dims) > (node.op_type != "Gemm") + 1 and min(w.dims) > 0:
        yield Taken(name, node.output[0], 2, "", module.held[name][1])


def as_in_module(onx: onnx.ModelProto, taken: Sequence[Taken]) -> onnx.ModelProto:
    """Return a model whose nodes take parameters by the names of the module, all else as it was."""
    if not taken:
        return onx
    changed = graph.copy_of(onx)
    held = {i.name: i for i in changed.graph.initializer}
    nodes = {node.output[0]: node for node in changed.graph.node if node.output}
    for name, output, position, source, kind in taken:
        node = nodes[output]
        if name not in held:
            held[name] = changed.graph.initializer.add()
            held[name].CopyFrom(held[source] if source else _zeros(node, held[node.input[1]]))
            held[name].name = name
            value = changed.graph.value_info.add()
            value.CopyFrom(onnx.helper.make_tensor_value_info(name, held[name].data_type, held[name].dims))
            value.metadata_props.add(key=KIND, value=kind)
        node.input.extend([""] * (position + 1 - len(node.input)))
        node.input[position] = name
    return changed


def _zeros(node: onnx.NodeProto, w: onnx.TensorProto) -> onnx.TensorProto:
    """Return the intercept of zeros of a product."""
    attributes = {a.name: a.i for a in node.attribute}
    axis = {"Gemm": 1 - attributes.get("transB", 0), "ConvTranspose": 1}.get(node.op_type, 0)
    size = w.dims[axis] * (attributes.get("group", 1) if node.op_type == "ConvTranspose" else 1)
    zeros = np.zeros(size, onnx.helper.tensor_dtype_to_np_dtype(w.data_type))
    return onnx.numpy_helper.from_array(zeros)


def settled(module: Module) -> set[str]:
    """Return the initializers of a model :func:`as_in_module` of which each use is known."""
    foreign = {
        source
        for operation in module.operations
        for _, _, source in _foreign_uses(module, operation)
        if all(holder_of(name) != operation.module for name in module.origins(source) & module.held.keys())
    }
    return {x for x in module.initializers if not module.origins(x).isdisjoint(module.held)} - foreign
