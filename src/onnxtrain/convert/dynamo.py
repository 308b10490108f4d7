"""Parameters that each node takes in the PyTorch module, from the metadata of torch.onnx.export(dynamo=True).

The graph lists the values that the module held, one per line, and each node has the operation from which it was made::

    p_f_weight: PARAMETER target='f.weight'
    %linear_1 = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_f_weight, %p_f_bias))

The exporter's optimizer changes the graph but not this metadata:

* Equal initializers of up to 1024 elements are merged, whether they are one parameter or only have equal initial
  values. The node then has another layer's parameter where its operation has the layer's own.
* Zero intercepts of Gemm and Conv are dropped. The node has two inputs, its operation three.
* Values that depend only on parameters are constant-folded. The initializer records from which, see
  :func:`tied_weights.folded_from`.

:func:`as_in_module` gives the nodes the operands of their operations again. For parameters that are not in the file,
see :mod:`export_warnings`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper

from onnxtrain import graph
from onnxtrain.convert.tied_weights import folded_from

#: The metadata key of the role of an initializer.
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"

#: The name that torch.export gives to a tensor that belongs to no module.
_LIFTED = "lifted_tensor_"

#: The metadata key of the list of all values of the module, including folded ones, and the patterns of its lines.
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_HELD = re.compile(r"^(\S+): (PARAMETER|BUFFER|CONSTANT_TENSOR) target='(.+?)'", re.MULTILINE)
_INPUTS = re.compile(r"^(\S+): USER_INPUT", re.MULTILINE)
_OUTPUTS = re.compile(r"^(\S+): USER_OUTPUT", re.MULTILINE)

#: The metadata keys of the operation from which a node was made, and of the modules whose forward called it.
OPERATION = "pkg.torch.onnx.fx_node"
_SCOPES = "pkg.torch.onnx.name_scopes"

#: Operators whose zero intercept the exporter's optimizer drops, and the operations of PyTorch that have one.
_WITH_INTERCEPT = ("Conv", "ConvTranspose", "Gemm")
_AFFINE = re.compile(r"aten\.(linear|addmm|conv\w*)\.")

#: Operations of PyTorch whose first operand is added last: addmm(b, x, w) is x w + b.
_ADDED_LAST = re.compile(r"aten\.b?add\w+\.")

#: Names of operations that only move elements, so that gradients stay those of the parameter; val_1 is a constant.
MOVES = re.compile(
    r"(val|view|reshape|t|transpose|permute|movedim|flatten|unflatten|unsqueeze|squeeze|expand|cat|stack|concat|slice|"
    r"select|split\w*|chunk|getitem|unbind|clone|contiguous|alias|detach|_to_copy|to|tile|repeat|index\w*|embedding|"
    r"gather|arange|zeros)(_\d+)*"
)

#: PyTorch operations that take a list of tensors; other lists are sizes.
_JOINED = re.compile(r"aten\.(cat|stack)\.")

#: The operators of recurrent layers, their operand positions, and the module's names: weight_ih_l1 belongs to layer 1.
RECURRENT = ("GRU", "LSTM", "RNN")
_OF_LAYER = {1: "weight_ih_l{}", 2: "weight_hh_l{}", 3: "bias_ih_l{}"}

#: Operators whose output is a view of their first operand.
_VIEWS = ("Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze")


class Taken(NamedTuple):
    """A parameter of the module that a node takes under another name, or not at all.

    Attributes
    ----------
    name : str
        The parameter.
    node : str
        The first output of the node.
    position : int
    source : str
        The initializer in its place in the file, "" if it was dropped as zeros.
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
    """An operation of PyTorch: its operands, the module that called it, and the nodes made from it.

    `name` is that of its result, `tensors` are the operands that are not sizes.
    """

    name: str
    text: str
    args: list[str]
    tensors: set[str]
    module: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)


def held_by_module(onx: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """Return the parameters and buffers as name: (name in operations, kind); only the dynamo exporter lists them."""
    if onx.producer_name != "pytorch":
        return {}
    return {name: (placeholder, kind) for placeholder, kind, name in _HELD.findall(_signature(onx))}


def constants_of_keras(onx: onnx.ModelProto) -> set[str]:
    """Return the parameters and statistics of a Keras model, which dynamo calls constants.

    No other initializer of such a file is a parameter.
    """
    others = (v for v in onx.graph.value_info if not v.name.startswith(_LIFTED))
    if any((p.key, p.value) == (KIND, "PARAMETER") for v in others for p in v.metadata_props):
        return set()
    held = held_by_module(onx).items()
    return {name for name, (_, kind) in held if kind == "CONSTANT_TENSOR" and name.startswith(_LIFTED)}


def _signature(onx: onnx.ModelProto) -> str:
    return next((p.value for p in onx.graph.metadata_props if p.key == _SIGNATURE), "")


class Module:
    """A PyTorch module, as far as a file of the dynamo exporter describes it."""

    def __init__(self, onx: onnx.ModelProto):
        self.constants = constants_of_keras(onx)
        self.held = held_by_module(onx)
        if self.constants:
            self.held = {x: (name, "PARAMETER") for x, (name, _) in self.held.items() if x in self.constants}
        self.initializers = (
            {i.name: i for i in onx.graph.initializer if i.data_type in graph.FLOATS} if self.held else {}
        )
        self.folded = folded_from(onx) if self.held else {}
        self.operations = _operations(onx, self.held) if self.held else []
        self.nodes = onx.graph.node
        self.names = {i.name for i in onx.graph.initializer}
        self.made = {*(x for node in onx.graph.node for x in node.output), *(i.name for i in onx.graph.input)}
        self.made.update(_INPUTS.findall(_signature(onx)))  # inputs may have other names in the file
        self.outputs = set(_OUTPUTS.findall(_signature(onx)))

    def origins(self, initializer: str) -> set[str]:
        """Return an initializer and the values from which it was computed."""
        return {initializer, *self.folded.get(initializer, ())}

    def constants_among(self, names: Collection[str]) -> list[str]:
        """Return the arrays that are constants of a Keras model, or were computed from them."""
        arrays = [x for x in names if x in self.initializers and self.initializers[x].dims]
        return [x for x in arrays if not self.constants.isdisjoint(self.origins(x))]

    @cached_property
    def known(self) -> set[str]:
        """The values that the file contains, directly or folded."""
        return set().union(*map(self.origins, self.initializers))

    @cached_property
    def mentioned(self) -> set[str]:
        """The operands of all operations."""
        return {a for operation in self.operations for a in operation.args}

    @cached_property
    def views(self) -> dict[str, str]:
        """The source of each value that is a view."""
        return {x: node.input[0] for node in self.nodes if node.op_type in _VIEWS and node.input for x in node.output}

    def takes_known(self, operation: _Operation) -> bool:
        """Whether the file contains all operands of an operation."""
        return all(a in self.made or a in self.known for a in operation.args)

    def calls(self, name: str) -> bool:
        """Whether the output depends on a module inside: not on an auxiliary head, of which the file has nothing."""
        inside = {x for x in self.held if x.startswith(f"{name}.")} if name else self.held.keys()
        return not inside.isdisjoint(self.known | self.mentioned)

    @cached_property
    def unmentioned(self) -> list[str]:
        """The parameters that are neither in the file nor operands of an operation; views of them may be."""
        absent = self.held.keys() - self.known - self.mentioned
        return [name for name, (_, kind) in self.held.items() if name in absent and kind == "PARAMETER"]

    @cached_property
    def shared(self) -> set[str]:
        """The initializers of the module that are used several times."""
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
        text = said.get(OPERATION, "")
        name, _, call = text.partition(" : ")
        if not call or not node.output:
            continue
        if name not in found:
            args = list(dict.fromkeys(re.findall(r"%(\w+)", call)))
            args = [*args[1:], *args[:1]] if _ADDED_LAST.search(call) else args  # in the order of the node's inputs
            tensors = set(re.findall(r"%(\w+)", call if _JOINED.search(call) else re.sub(r"\[[^\[\]]*\]", "", call)))
            scopes = re.findall(r"'([^']*)'", said.get(_SCOPES, ""))
            module = re.sub(r"@\d+", "", scopes[-2]) if len(scopes) > 1 else ""
            found[name] = _Operation(
                name.removeprefix("%"), call, [names.get(a, a) for a in args], tensors & {*args}, module
            )
        found[name].nodes.append(node)
    return list(found.values())


class _Views:
    """Assigns parameters to operands that are views, whose sources the file does not name.

    The unmentioned parameters of a module are assigned in order, one for each pair of an initializer in the file and
    views of it. When they are used up, the first one is assigned again.
    """

    def __init__(self, module: Module):
        self._free: defaultdict[str, deque[str]] = defaultdict(deque)
        for name in module.unmentioned:
            self._free[holder_of(name)].append(name)
        self._first: dict[tuple[str, str], str] = {}
        self._found: dict[tuple[str, tuple[str, ...], str], str] = {}

    def parameter(self, initializer: str, views: tuple[str, ...], module: str) -> str | None:
        """Return the parameter of a module behind given views, where the file has another parameter's initializer."""
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
    """Return the parameters and buffers that nodes take under other names than in the module, or not at all."""
    others = module.made | (module.names - module.initializers.keys())
    views = _Views(module)
    found = [taken for operation in module.operations for taken in _taken(module, operation, views)]
    found = [taken for taken in found if taken.name not in others]  # a value of the graph may have the same name
    sources: dict[str, str] = {}
    return [taken for taken in found if sources.setdefault(taken.name, taken.source) == taken.source]


def _taken(module: Module, operation: _Operation, views: _Views) -> Iterator[Taken]:
    layers = [node for node in operation.nodes if node.op_type in RECURRENT]
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
    """Yield the parameters of recurrent layers; one operation has the parameters of all layers in order.

    A node has the two intercepts of its layer concatenated, and both directions.
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
    """Return the module's parameters, perhaps through views, for operands that the file has as `sources`."""
    if len(missing) >= len(sources) or module.takes_known(operation):
        return missing
    absent = tuple(a for a in operation.args if a not in module.made and a not in module.known)
    if not all(map(MOVES.fullmatch, absent)):
        return missing
    found = (views.parameter(source, absent, operation.module) for source in sources)
    return [name for name in found if name is not None]


def _constants(module: Module, operation: _Operation, uses: Sequence[tuple[str, int, str]]) -> Iterator[Taken]:
    """Yield constants of an operation without parameters that equal a parameter of other operations."""
    for node, i, source in uses:
        origins = module.origins(source)
        if origins.isdisjoint(operation.args) and not origins.isdisjoint(module.mentioned):
            yield Taken(f"{source}.constant", node, i, source, "BUFFER")


def _foreign_uses(module: Module, operation: _Operation) -> Iterator[tuple[str, int, str]]:
    """Yield (node, position, initializer) for each operand of an operation that is another parameter's initializer.

    A scale and an intercept of one layer may also share an initializer.
    """
    own = {a for a in operation.args if a in module.known}
    for node in operation.nodes:
        for i, x in enumerate(node.input):
            if x in module.shared and (module.origins(x).isdisjoint(own) or x in node.input[:i]):
                yield node.output[0], i, x


def _left_out(module: Module, operation: _Operation, missing: Sequence[str]) -> Iterator[Taken]:
    """Yield the intercept that was dropped from an operation, if there is one."""
    nodes = [node for node in operation.nodes if node.op_type in _WITH_INTERCEPT]
    if not len(missing) == len(nodes) == 1 or not _AFFINE.search(operation.text):
        return
    (node,), (name,) = nodes, missing
    w = module.initializers.get(node.input[1]) if len(node.input) == 2 else None
    if w is not None and len(w.dims) > (node.op_type != "Gemm") + 1 and min(w.dims) > 0:
        yield Taken(name, node.output[0], 2, "", module.held[name][1])


@graph.as_model_error("The parameters of the model cannot be found")
def as_in_module(onx: onnx.ModelProto, taken: Sequence[Taken]) -> onnx.ModelProto:
    """Return a model whose nodes take parameters under the module's names; everything else is unchanged."""
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
    axis = {"Gemm": 0 if attributes.get("transB") else 1, "ConvTranspose": 1}.get(node.op_type, 0)
    size = w.dims[axis] * (attributes.get("group", 1) if node.op_type == "ConvTranspose" else 1)
    zeros = np.zeros(size, onnx.helper.tensor_dtype_to_np_dtype(w.data_type))
    return onnx.numpy_helper.from_array(zeros)


def settled(module: Module) -> set[str]:
    """Return the initializers of a model from :func:`as_in_module` whose uses are all known."""
    foreign = {
        source
        for operation in module.operations
        for _, _, source in _foreign_uses(module, operation)
        if all(holder_of(name) != operation.module for name in module.origins(source) & module.held.keys())
    }
    return {x for x in module.initializers if not module.origins(x).isdisjoint(module.held)} - foreign
