"""Equal weights that an exporter merged into one initializer: which are one weight, and which are separate."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.convert.dynamo import RECURRENT, Module, as_in_module, held_by_module, holder_of, taken_by_nodes
from onnxtrain.convert.tied_weights import is_computed, transposed_copies

#: The operand positions of scales and intercepts, which networks initialise to 0 or 1.
_SLOTS = {
    "Add": (0, 1),
    "BatchNormalization": (1, 2, 3, 4),
    "Conv": (2,),
    "ConvTranspose": (2,),
    "Gemm": (2,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
}

#: Operators whose second operand is a weight and whose third may be an intercept.
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


def owners_of_copies(onx: onnx.ModelProto) -> dict[str, str]:
    """Return, for each copy of an initializer, the weight that it is: itself or another copy.

    Exporters merge equal initializers, for example of an untrained network or of layers initialised as copies of
    each other. Some leave an Identity for each merged one. PyTorch's exporter names it after the parameter. Folded
    values were computed for each use; there, modules with equal initial values and recurrent layers have separate
    weights, others are tied. With other exporters, scales and intercepts of zeros and ones are separate weights. A
    copy that is the initializer itself is left out. The dynamo exporter leaves no Identity for copies; an Identity
    of this exporter is a clone in the module's code.
    """
    if held_by_module(onx):
        return {}
    held = {i.name: i for i in onx.graph.initializer}
    outputs = {o.name for o in onx.graph.output}
    copies = [
        (node.output[0], node.input[0])
        for node in onx.graph.node
        if node.op_type == "Identity" and node.input[0] in held and node.output[0] not in outputs
    ]
    if onx.producer_name != "pytorch":
        return {copy: copy for copy, w in copies if _is_untrained(graph.array_of(held[w]))}
    real = [(copy, w) for copy, w in copies if held[w].data_type in graph.FLOATS]
    found = {copy: copy for copy, _ in real if not is_computed(copy)}
    modules = _modules_of_values(onx) if real else {}
    # modules whose weights are separate but have the initial values of another parameter
    begun = {modules.get(copy) for copy in found} | _recurrent_copies(onx, modules, {copy for copy, _ in real})
    owners: dict[tuple[str, str | None], str] = {(w, modules.get(w)): w for _, w in real}
    for copy, w in real:
        module = modules.get(copy)
        if copy not in found and (module in begun or _has_one_value(graph.array_of(held[w]))):
            found[copy] = owners.setdefault((w, module), copy)
    return {copy: owner for copy, owner in found.items() if owner not in held}


def _has_one_value(array: np.ndarray) -> bool:
    return bool(np.all(array == array.reshape(-1)[:1]))


def _recurrent_copies(onx: onnx.ModelProto, modules: Mapping[str, str], copies: Container[str]) -> set[str | None]:
    """Return the recurrent layers whose recurrence weights are a copy; modules do not tie these weights alone."""
    layers = (node for node in onx.graph.node if node.op_type in RECURRENT and len(node.input) > 2)
    return {modules[node.input[2]] for node in layers if node.input[2] in copies}


def ambiguous_copies(onx: onnx.ModelProto) -> list[str]:
    """Return the initializers that may be one weight or several weights with equal initial values.

    The exporter computed them in advance, so the file does not show which is true. Either several modules without a
    named parameter take such an initializer, or all its values are equal and one call of a module takes it several
    times, or several calls take it: the second call of ``act`` has the name of a module ``act_1``.
    """
    if onx.producer_name != "pytorch" or held_by_module(onx):
        return []
    held = {i.name: i for i in onx.graph.initializer if i.data_type in graph.FLOATS}
    sources = {n.output[0]: n.input[0] for n in onx.graph.node if n.op_type == "Identity" and n.input[0] in held}
    owners, modules = owners_of_copies(onx), _modules_of_values(onx)
    named = {modules.get(x) for x in [*held, *sources] if not is_computed(x)}
    calls: defaultdict[str, set[str]] = defaultdict(set)
    for node in onx.graph.node:
        for x in node.input if node.op_type != "Identity" else ():
            calls[x].add(node.name.rpartition("/")[0])
    uses: defaultdict[str, list[str]] = defaultdict(list)
    for x in [*held, *sources]:
        if x in modules and is_computed(x):
            uses[owners.get(x, sources.get(x, x))].append(x)
    slots = {x for node in onx.graph.node for i, x in enumerate(node.input) if i in _SLOTS.get(node.op_type, ())}
    arrays = {w: graph.array_of(held[sources.get(w, w)]) for w in uses}
    taken = {w: {(modules[x], call) for x in xs for call in calls[x]} for w, xs in uses.items()}
    several = {w: _several(module for module, _ in found) for w, found in taken.items()}
    # other initial values are random, so that calls that share them are calls of one module
    called = named.union(*(several[w] for w in uses if not begins_so(arrays[w])))
    found = []
    for w, xs in uses.items():
        separated = not owners and _is_untrained(arrays[w]) and slots.issuperset(xs)  # by separate_merged
        repeated = _several(call for x in xs for call in calls[x]) or several[w] - called
        if not separated and (len({modules[x] for x in xs} - named) > 1 or (repeated and begins_so(arrays[w]))):
            found.append(w)
    transposed = transposed_copies(onx) if found else {}
    return [w for w in found if w not in transposed]


def _several(names: Iterable[str]) -> set[str]:
    """Return the names that occur more than once."""
    return {name for name, n in Counter(names).items() if n > 1}


def begins_so(array: np.ndarray) -> bool:
    """Whether an array looks like initial values: all equal, and a round number or 1 / n if it has one element."""
    if not array.size or not _has_one_value(array):
        return False
    value = float(array.reshape(-1)[0])
    is_round = np.isclose(float(f"{value:.2g}"), value, rtol=1e-6)
    is_part = abs(value) > 0.01 and np.isclose(round(1 / value), 1 / value, rtol=1e-6)
    return array.size > 1 or bool(is_round or is_part)


def _modules_of_values(onx: onnx.ModelProto) -> dict[str, str]:
    """Return the module that takes each value, from the names of nodes: /l.0/linear for /l.0/linear_1/MatMul.

    Calls after the first have a numeric suffix. The name of another module may also end in one. Such a module holds
    parameters, or no module has the name without the suffix. In a recurrent module, each layer is a node: /r/LSTM_1 for
    /r_1/LSTM_1.
    """
    nodes = [node for node in onx.graph.node if node.op_type != "Identity"]
    calls = _modules_of_calls(onx)
    found = {}
    for node in nodes:
        scope, _, name = node.name.rpartition("/")
        module = f"{calls[scope]}/{name}" if node.op_type in RECURRENT else calls[scope]
        found.update(dict.fromkeys(node.input, module))
    return found


def _modules_of_calls(onx: onnx.ModelProto) -> dict[str, str]:
    """Return the module of each call, by the scope of its nodes: /l.0/linear for /l.0/linear_1."""
    names = [*(i.name for i in onx.graph.initializer), *(x for node in onx.graph.node for x in node.output)]
    holders = {holder_of(name) for name in names if not is_computed(name)}
    scopes = {node.name.rpartition("/")[0] for node in onx.graph.node if node.op_type != "Identity"}
    return {scope: _without_call(scope, scopes, holders) for scope in scopes}


def _without_call(scope: str, scopes: Container[str], holders: Container[str]) -> str:
    """Return the scope of the first call of a module."""
    first = _first_call(scope)
    return first if first in scopes and _path_of(scope) not in holders else scope


def _first_call(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _path_of(scope: str) -> str:
    """Return the path of a call in the module: net.0.norm_1 for /net/net.0/norm_1.

    The scope of a module inside an nn.Sequential repeats the name of the latter.
    """
    names, outer = [], ""
    for name in scope.removeprefix("/").split("/"):
        inner = name.removeprefix(f"{outer}.")
        names.append(inner if inner != name else name.removeprefix(f"{_first_call(outer)}."))
        outer = name
    return ".".join(names)


def with_own_copies(onx: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each layer has its own weights, as far as the exporter's metadata shows it."""
    return separate_copies(as_in_module(onx, taken_by_nodes(Module(onx))), owners_of_copies(onx))


def separate_copies(onx: onnx.ModelProto, owners: Mapping[str, str]) -> onnx.ModelProto:
    """Return a model with the copies as separate initializers, or as copies of one: see :func:`owners_of_copies`."""
    if not owners:
        return onx
    changed = graph.copy_of(onx)
    held, kept = {i.name: i for i in changed.graph.initializer}, []
    for node in changed.graph.node:
        owner = owners.get(node.output[0]) if node.op_type == "Identity" else None
        if owner == node.output[0]:
            _added(changed, held[node.input[0]], node.output[0])
            continue
        if owner is not None:
            node.input[0] = owner
        kept.append(node)
    graph.assign(changed.graph.node, kept)
    return changed


def separate_merged(onx: onnx.ModelProto, constants: Container[str] = ()) -> onnx.ModelProto:
    """Return a model in which layers no longer share scales and intercepts of zeros and ones.

    In an untrained network, an exporter may merge the scales, intercepts and statistics of all normalizations into one
    weight without leaving copies. Intercepts of products with the same matrix belong to one layer that is used several
    times. Factors of products stay shared, because there sharing is intended, as do `constants`, which are not weights.
    """
    model = graph.load(onx)
    names, calls = graph.names_in(model.graph), _modules_of_calls(onx)
    for value in list(model.graph.initializers.values()):
        if value.name not in constants:
            _separate_uses(model, value, names, calls)
    return graph.save(model)


def _separate_uses(model: ir.Model, value: ir.Value, names: set[str], calls: Mapping[str, str]) -> None:
    """Give each layer that shares an untrained scale or intercept a separate one."""
    uses = [(node, i) for node, i in value.uses() if i in _SLOTS.get(node.op_type, ())]
    array = graph.constant(value)
    if len(uses) < 2 or len(uses) < len(value.uses()) or array is None or not _is_untrained(array):
        return
    uses.sort(key=lambda use: use[0].op_type == "BatchNormalization" and use[1] > 2)  # parameters come first
    layers: dict[Any, ir.Value] = {}
    inside = _is_read_around(str(value.name), [node for node, _ in uses], calls)
    for node, i in uses:
        slot = 0 if node.op_type == "Add" else i
        scope, slash, _ = str(node.name).rpartition("/")
        if inside or (slash and _is_in_scope(str(value.name), scope)):
            keys: list[Any] = [slot]
        else:
            keys = [*_matrices_beside(node, i)] or [(_first_call_of(value, node, calls) or node, slot)]
        own = next((layers[key] for key in keys if key in layers), None if layers else value)
        if own is None:
            own = _copied(model, value, graph.unique_name(str(value.name), names))
        layers.update(dict.fromkeys(keys, own))
        node.replace_input_with(i, own)


def _matrices_beside(node: ir.Node, i: int) -> list[ir.Value]:
    """Return the weights of the product, or of the sum of products, whose intercept is input `i` of a node."""
    if node.op_type in _PRODUCTS:
        return [x for x in node.inputs[1:2] if x is not None]
    return _matrices_in_sum(node.inputs[1 - i]) if node.op_type == "Add" else []


def _matrices_in_sum(value: ir.Value | None) -> list[ir.Value]:
    """Return the weights of products that are added directly: x W + h U, as before the intercept of an LSTM."""
    node = graph.made_by(value, "Add", *_PRODUCTS)
    if node is None or node.op_type in _PRODUCTS:
        return [] if node is None or node.inputs[1] is None else [node.inputs[1]]
    products = (graph.made_by(x, *_PRODUCTS) for x in node.inputs)
    return [w for product in products if product is not None and (w := product.inputs[1]) is not None]


def _is_in_scope(parameter: str, scope: str) -> bool:
    """Whether a parameter is named after the module of a scope.

    The first call of l.norm has the scope /l/norm, the next call /l/norm_1. The code of the whole model has an empty
    scope.
    """
    names = filter(None, holder_of(parameter).split("."))
    pattern = r"\.".join(rf"{re.escape(name)}(_\d+)?" for name in names)
    return not is_computed(parameter) and re.fullmatch(pattern, _path_of(scope)) is not None


def _is_read_around(parameter: str, nodes: Sequence[ir.Node], calls: Mapping[str, str]) -> bool:
    """Whether all nodes are code of one module around the parameter's: a recurrent network that steps its cell."""
    names = [str(node.name).rpartition("/") for node in nodes]
    modules = {calls.get(scope, "") if slash else "" for scope, slash, _ in names}
    if len(modules) > 1 or is_computed(parameter):
        return False
    around = _path_of(*modules)
    return bool(around) and holder_of(parameter).startswith(f"{around}.")


def _first_call_of(value: ir.Value, node: ir.Node, calls: Mapping[str, str]) -> str | None:
    """Return the node of the first call of a module, for a value that the exporter computed."""
    call, _, operation = str(node.name).rpartition("/")
    return f"{calls[call]}/{operation}" if is_computed(str(value.name)) and call in calls else None


def _is_untrained(array: np.ndarray) -> bool:
    """Whether an array is a scale or an intercept at its initial values; an LSTM has ones for the forget gate."""
    return array.dtype.kind == "f" and _has_one_axis(array.shape) and bool(np.isin(array, (0, 1)).all())


def _has_one_axis(shape: Sequence[int]) -> bool:
    """Whether an array has only one axis longer than 1: (k,), or (1, 1, 1, k) as in Keras."""
    return max(shape, default=1) == math.prod(shape) > 1


def holders_of(onx: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers and the tensors of Constant nodes of a model, by name, including branches.

    A list of floats is returned as a tensor of its own, see :func:`listed_floats`. A name that several branches use is
    left out.
    """
    nodes = list(graph.nodes_in(onx.graph.node))
    graphs = [onx.graph, *(body for node in nodes for body in graph.bodies_of(node))]
    found = [(tensor.name, tensor) for part in graphs for tensor in part.initializer]
    for node in nodes:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            found += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    found += [(name, onnx.numpy_helper.from_array(np.array(a.floats, np.float32), name)) for name, a in _listed(nodes)]
    counts = Counter(name for name, _ in found)
    return {name: tensor for name, tensor in found if counts[name] == 1}


def listed_floats(onx: onnx.ModelProto) -> dict[str, onnx.AttributeProto]:
    """Return the attributes of Constant nodes that are lists of floats instead of tensors, by name."""
    return dict(_listed(graph.nodes_in(onx.graph.node)))


def _listed(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, onnx.AttributeProto]]:
    for node in nodes:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            yield from ((node.output[0], a) for a in node.attribute if a.name == "value_floats")


def separate_in_file(changed: onnx.ModelProto, trained: onnx.ModelProto, weights: set[str]) -> None:
    """Give nodes, in place, the separate initializers of :func:`separate_merged` if one of them was trained."""
    nodes = {node.output[0]: node for node in changed.graph.node if node.output}
    holders = holders_of(changed)
    added = {
        w.name: tuple(w.dims) for w in trained.graph.initializer if w.name not in holders and _has_one_axis(w.dims)
    }
    for user in trained.graph.node:
        node = nodes.get(user.output[0])
        if node is None or node.op_type != user.op_type:
            continue
        for i, (name, before) in enumerate(zip(user.input, node.input, strict=False)):
            own = name in added and i in _SLOTS.get(user.op_type, ()) and weights & {name, before}
            shared = holders.get(before) if own else None
            if shared is not None and tuple(shared.dims) == added[name]:
                node.input[i] = name
                holders[name] = holders.get(name) or _added(changed, shared, name)


def with_trained_copies(onx: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model in which each layer has its own trained weights; everything else is unchanged."""
    taken = [t for t in taken_by_nodes(Module(onx)) if weights.keys() & {t.name, t.source}]
    return separate_copies(as_in_module(onx, taken), _trained_copies(onx, weights))


def _trained_copies(onx: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return the :func:`owners_of_copies` whose copy or initializer was trained."""
    sources = {node.output[0]: node.input[0] for node in onx.graph.node if node.op_type == "Identity"}
    owners = owners_of_copies(onx)
    return {copy: owner for copy, owner in owners.items() if weights.keys() & {owner, sources[copy]}}


def _added(changed: onnx.ModelProto, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """Add a copy of an initializer under a new name, in place."""
    copy = changed.graph.initializer.add()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _copied(model: ir.Model, value: ir.Value, name: str) -> ir.Value:
    tensor = ir.tensor(value.const_value.numpy().copy(), name=name)  # type: ignore[union-attr]
    copied = ir.Value(name=name, type=value.type, shape=value.shape, const_value=tensor)
    model.graph.register_initializer(copied)
    return copied
