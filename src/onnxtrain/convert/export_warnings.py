"""Warnings about parameters of a PyTorch module that its file lacks or changes, so that training differs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence

import numpy as np
import onnx

from onnxtrain import graph
from onnxtrain.convert.dynamo import MOVES, RECURRENT, Module, Taken, holder_of, taken_by_nodes
from onnxtrain.convert.fixed_values import are_centers, are_even_steps, are_sines, may_be_constant, may_be_result
from onnxtrain.convert.likely_buffers import (
    NUMBERED,
    computed_matrices,
    factors_of_angles,
    factors_of_waves,
    like_statistics,
    likely_buffers,
    unknown_names,
)
from onnxtrain.convert.merged import ambiguous_copies, begins_so, owners_of_copies, separate_copies
from onnxtrain.convert.padding import padding_rows
from onnxtrain.convert.tied_weights import folded_from, is_computed, repeated_biases, spread_tables

#: Sums and products that the optimizer drops if the other operand is the scalar 0 or 1.
_ARITHMETIC = re.compile(r"(add|sub|mul|div)(_\d+)?")

#: Names of functions of the elements.
_FUNCTION = re.compile(
    r"(abs|add|div|exp|log|mul|neg|pow|reciprocal|rsqrt|rsub|sigmoid|softplus|sqrt|square|sub|tanh)(_\d+)?"
)

#: Functions of the elements that torch.onnx.export(dynamo=False) does not fold.
_ELEMENTWISE = ("Abs", "Clip", "Exp", "Log", "Reciprocal", "Relu", "Sigmoid", "Softplus", "Tanh")

#: The name of a layer to which peft has added an adapter.
_BASE = "base_layer"

#: Names of sums, and of the constants of a module's code.
_SUM = re.compile(r"(add|sub|rsub)(_\d+)?")
_CONSTANT = re.compile(r"(val|scalar_tensor_default)(_\d+)?")

#: The operation b + w x without a factor, and the names of 1 w in it.
_ADDCMUL = re.compile(r"aten\.addcmul\..*kwargs = \{\}")
_ONE = re.compile(r"(tmp|value|value_cast)(_\d+)?")

#: Operations that read some elements of a parameter.
_PART = re.compile(r"(select|slice|getitem|index\w*|narrow|unbind|split\w*|chunk)(_\d+)*")

#: Names of weights that torch.onnx.export(dynamo=False) computed for operators in which parameters keep their names.
_FOLDED = re.compile(r"onnx::(BatchNormalization|Conv(Transpose)?|Gemm)_\d+")


#: The second remedy for values that torch.onnx.export(dynamo=False) computed.
_UNFOLDED = ", or dynamo=False, do_constant_folding=False to keep what they come from"


#: Names of values that this exporter computed to scale and shift the channels of a convolution.
_SCALED = re.compile(r"onnx::(Add|Mul)_\d+")


def remarks(onx: onnx.ModelProto, trained: Collection[str], others: Collection[str]) -> list[str]:
    """Return warnings about weights that PyTorch would train differently.

    Parameters
    ----------
    onx : onnx.ModelProto
    trained : collection of str
        The weights that are trained by default.
    others : collection of str
        The weights that may be trained.
    """
    if onx.producer_name != "pytorch":
        return []
    module = Module(onx)
    return [
        *_on_dynamo(onx, module, trained, others),
        *_on_script(onx, module, trained, others),
        *_on_adapters(onx, trained),
    ]


def _on_dynamo(onx: onnx.ModelProto, module: Module, trained: Collection[str], others: Collection[str]) -> list[str]:
    """Return the warnings for a file of torch.onnx.export(dynamo=True), from its records of the module."""
    found = []
    taken = taken_by_nodes(module)
    layers = _folded_normalizations(module, taken)
    if lost := _left_out(module, taken, layers):
        found.append(
            f"PyTorch's exporter left out {_some(lost)}. It drops sums with 0, products with 1, layers that start "
            "equal and take the same rows, views of parameters that start equal, and results that equal a parameter, "
            "but PyTorch trains these parameters. Use torch.onnx.export(..., dynamo=True, optimize=False) to keep "
            "them."
        )
    if layers:
        found.append(
            f"PyTorch's exporter folded BatchNormalization into the preceding layers: {_some(layers)}. The products "
            "are trained here, but PyTorch trains their factors. Use torch.onnx.export(..., dynamo=True, "
            "optimize=False) to keep the factors."
        )
    computed = [name for name in _computed_in_advance(module, spread_tables(onx)) if name in trained]
    if computed:
        found.append(
            f"PyTorch's exporter precomputed {_some(computed)}, for example from parametrizations. The results are "
            "trained, not the parameters behind them. Use torch.onnx.export(..., dynamo=True, optimize=False) to keep "
            "the parameters."
        )
    if statistics := [x for x in module.constants_among(others) if x not in trained]:
        found.append(
            f"PyTorch's exporter wrote the parameters of this Keras model as constants. {_some(statistics)} have the "
            "place of statistics and are not trained. If Keras trains them, list all weights to train in "
            "weights_to_train."
        )
    if frozen := [x for x in _frozen(onx, module, taken) if x in trained and x not in computed]:
        found.append(
            f"{_some(frozen)} may be frozen in PyTorch, as tables of sines, grids of equal steps, fixed filters of "
            "convolutions, and random frequencies of sines and cosines often are. They are trained here, because the "
            "file does not record requires_grad=False. If they are frozen, set "
            f"weights_to_train={[f'-{name}' for name in frozen]}."
        )
    return found


def _frozen(onx: onnx.ModelProto, module: Module, taken: Sequence[Taken]) -> list[str]:
    """Return the parameters, or parts of them, that have the values or the place of a fixed array.

    A parameter that the exporter merged with an equal one is `taken` under the name of that one.
    """
    waves = factors_of_waves(onx) if module.held else set()
    filters = {node.input[1] for node in module.nodes if node.op_type == "Conv"}
    found = []
    for name, i in module.initializers.items():
        array = graph.array_of(i)
        fixed = name in waves or are_sines(array.squeeze()) or are_centers(np.atleast_1d(array.squeeze()))
        fixed = fixed or (name in filters and may_be_constant(array))
        kinds = {module.held[origin][1] for origin in module.origins(name) & module.held.keys()}
        if fixed and "PARAMETER" in kinds:
            found += [name, *(t.name for t in taken if t.source == name and t.kind == "PARAMETER")]
    return list(dict.fromkeys(found))


def _on_script(onx: onnx.ModelProto, module: Module, trained: Collection[str], others: Collection[str]) -> list[str]:
    """Return the warnings for a file of torch.onnx.export(dynamo=False), which has no records of the module."""
    found = []
    padded = {} if module.held else padding_rows(onx)
    if tables := {n.input[0] for n in onx.graph.node if n.output and n.output[0] in padded}.intersection(trained):
        found.append(
            f"A row of zeros of {_some(tables)} is treated as the row of padding_idx and is not trained. If PyTorch "
            "trains it, use torch.onnx.export(..., dynamo=True, optimize=False), whose file says so."
        )
    if merged := [name for name in ambiguous_copies(onx) if name in trained]:
        found.append(
            f"PyTorch's exporter wrote {_some(merged)} once for several uses of equal values, without the names of the "
            "parameters, so they are trained as one. If they are several parameters that start equal, use "
            "torch.onnx.export(..., dynamo=False, do_constant_folding=False) to keep them."
        )
    products = _scales_of_normalizations(onx) | {name for name in trained if _FOLDED.fullmatch(name)}
    if folded := sorted((products - _kernels_of_keras(onx)).intersection(trained)):
        found.append(
            f"PyTorch's exporter computed {_some(folded)} from several weights, for example those of a convolution and "
            "of BatchNormalization. The products are trained here, but PyTorch trains their factors. Use "
            "torch.onnx.export(..., dynamo=False, do_constant_folding=False) to keep the factors."
        )
    found += _on_results(onx, {*trained}.difference(folded))
    if not module.held and not folded_from(onx):  # the dynamo exporter records buffers
        found += _on_buffers(separate_copies(onx, owners_of_copies(onx)), trained, others)
    channels = {i.name for i in onx.graph.initializer if len(i.dims) > 2 and list(i.dims[-2:]) == [1, 1]}
    if scaled := [name for name in others if name in channels - {*trained} and _SCALED.fullmatch(name)]:
        found.append(
            f"{_some(scaled)} scale and shift channels like a FrozenBatchNorm2d, and are not trained. If PyTorch "
            "trains them, list them in weights_to_train along with the other weights."
        )
    if scalars := [name for name in _scalars(onx) if name in others and name not in trained]:
        found.append(
            f"PyTorch's exporter precomputed {_some(scalars)}, which have one element. The file does not show whether "
            "they come from parameters, so they are not trained. If PyTorch trains them, use torch.onnx.export(..., "
            "dynamo=False, do_constant_folding=False) to keep what they come from."
        )
    return found


def _on_adapters(onx: onnx.ModelProto, trained: Collection[str]) -> list[str]:
    """Return the warning for a module of peft, which holds a frozen layer as base_layer beside factors."""
    folded = folded_from(onx)
    labels = {x: {x, *folded.get(x, ())} for x in trained}
    for node in onx.graph.node:
        for x in labels.keys() & node.input:
            labels[x].add(node.name)
    holders = tuple({label.partition(_BASE)[0] for said in labels.values() for label in said if _BASE in label})
    factors = [
        x for x, said in labels.items() if any(label.startswith(holders) and _BASE not in label for label in said)
    ]
    if not factors:
        return []
    return [
        f"{_some(factors)} belong to adapters, beside which peft freezes all other weights. All are trained here, "
        "because the file does not record requires_grad=False. To train only the adapters, set "
        f"weights_to_train={factors}."
    ]


def _on_results(onx: onnx.ModelProto, trained: Collection[str]) -> list[str]:
    """Return the warnings for values that the exporter seems to have computed from a parameter, by a function."""
    found = []
    computed = {name: i for name, i in _floats(onx, trained).items() if is_computed(name)}
    results = [name for name, i in computed.items() if may_be_result(graph.array_of(i))]
    if results:
        found.append(
            f"{_some(results)} seem to be results of a softmax, a norm or a mask that PyTorch's exporter computed from "
            "a parameter, according to their values. The results are trained here, but PyTorch trains the parameter. "
            "Use torch.onnx.export(..., dynamo=False, do_constant_folding=False) to keep the parameter."
        )
    if scaled := _vectors_of_functions(onx, computed):
        found.append(
            f"PyTorch's exporter computed {_some(scaled)}, perhaps as -2 w from a parameter w, and a function follows. "
            "The result is trained here, but PyTorch trains w. Use torch.onnx.export(..., dynamo=False, "
            "do_constant_folding=False) to keep the parameter."
        )
    places = repeated_biases(onx)
    if read := [name for name in computed if name in places and name not in results]:
        found.append(
            f"{_some(read)} seem to be tables of position biases with one column that PyTorch's exporter looked up, "
            "according to their repeated values. Each place is trained here, but PyTorch trains the table. Use "
            "torch.onnx.export(..., dynamo=False, do_constant_folding=False) to keep the table."
        )
    factors = factors_of_angles(onx)
    if angles := [name for name in computed if name in factors]:
        found.append(
            f"PyTorch's exporter computed {_some(angles)}, whose products with the rows are angles of sines, perhaps "
            "as 2 pi w from a parameter w. The result is trained here, but PyTorch trains w. Use torch.onnx.export("
            "..., dynamo=False, do_constant_folding=False) to keep the parameter."
        )
    return found


def _vectors_of_functions(onx: onnx.ModelProto, computed: Mapping[str, onnx.TensorProto]) -> list[str]:
    """Return the computed vectors that a function is applied to; views for broadcasting have more axes."""
    taken = {n.input[0] for n in onx.graph.node if n.op_type in _ELEMENTWISE}
    return [name for name, i in computed.items() if len(i.dims) == 1 and name in taken]


def _floats(onx: onnx.ModelProto, names: Collection[str]) -> dict[str, onnx.TensorProto]:
    """Return those of some initializers that are float32, by name."""
    return {i.name: i for i in onx.graph.initializer if i.data_type == onnx.TensorProto.FLOAT and i.name in names}


def _kernels_of_keras(onx: onnx.ModelProto) -> set[str]:
    """Return the weights of convolutions that the exporter only transposed, because Keras keeps the channels last.

    In such a file no weight has the name of a parameter, and no convolution has an intercept.
    """
    if _names_parameters(onx):
        return set()
    return {n.input[1] for n in onx.graph.node if n.op_type in ("Conv", "ConvTranspose") and len(n.input) == 2}


def _names_parameters(onx: onnx.ModelProto) -> bool:
    return any(i.data_type in graph.FLOATS and not is_computed(i.name) for i in onx.graph.initializer)


def _scales_of_normalizations(onx: onnx.ModelProto) -> set[str]:
    """Return the scales s = gamma / sqrt(variance + eps) of (x - m) s + b, the BatchNormalization of Keras."""
    held = {i.name for i in onx.graph.initializer} | {n.output[0] for n in onx.graph.node if n.op_type == "Identity"}
    made = {n.output[0]: n for n in onx.graph.node if n.output}
    found = set()
    for shift in (n for n in onx.graph.node if n.op_type == "Add"):
        scaled, b = made.get(shift.input[0]), shift.input[1]
        if scaled is not None and scaled.op_type == "Mul" and (centered := made.get(scaled.input[0])) is not None:
            m_s_b = [*centered.input[1:], scaled.input[1], b]
            if centered.op_type == "Sub" and all(x in held and is_computed(x) for x in m_s_b):
                found.add(scaled.input[1])
    return found


def _on_buffers(onx: onnx.ModelProto, trained: Collection[str], others: Collection[str]) -> list[str]:
    """Return the warnings for values that may be buffers, or parameters, according to their values."""
    found = []
    named = {name: i for name, i in _floats(onx, others).items() if not is_computed(name)}
    fixed = [x for x in likely_buffers(onx) if x in trained]
    if fixed := [*fixed, *(x for x in _zeros_added_to_outputs(onx) if x in trained)]:
        found.append(
            f"{_some(fixed)} may be buffers, according to their names, values or places, such as statistics, filters, "
            "grids, the matrix of a graph, or zeros that are added to the output. They are trained here, because "
            "torch.onnx.export(..., dynamo=False) does not record buffers. If they are buffers, set "
            f"weights_to_train={[f'-{name}' for name in fixed]}, or use torch.onnx.export(..., dynamo=True, "
            f"optimize=False), whose file says so{_UNFOLDED if any(map(is_computed, fixed)) else ''}."
        )
    if unknown := [x for x in unknown_names(onx) if x in trained and x not in fixed]:
        found.append(
            f"Some weights have other names than parameters of torch.nn: {_some(unknown)}. They are trained here, "
            "because torch.onnx.export(..., dynamo=False) does not record buffers. If some are buffers, exclude these, "
            f"as in weights_to_train={[f'-{name}' for name in unknown]}, or use torch.onnx.export(..., dynamo=True, "
            "optimize=False), whose file says so."
        )
    if unclear := _unclear_results(onx, {*trained}.difference(fixed)):
        found.append(
            f"PyTorch's exporter computed {_some(unclear)}. The file does not show whether they are transposed "
            "parameters, which are trained as in PyTorch, products such as 2 w, or buffers. They are trained here. Use "
            f"torch.onnx.export(..., dynamo=True, optimize=False), whose file says so{_UNFOLDED}."
        )
    if grids := [x for x, i in named.items() if x not in trained and _is_grid(x, graph.array_of(i).squeeze())]:
        found.append(
            f"{_some(grids)} have equal steps or sines like a fixed grid or frozen positions, and are not trained. If "
            "PyTorch trains them, list them in weights_to_train along with the other weights, or use "
            "torch.onnx.export(..., dynamo=True, optimize=False), whose file says so."
        )
    shifted = like_statistics(onx)
    if scales := [x for x in named if x not in trained and x in shifted]:
        found.append(
            f"{_some(scales)} shift and scale values like statistics of a dataset, and are not trained. If PyTorch "
            "trains them, list them in weights_to_train along with the other weights, or use "
            "torch.onnx.export(..., dynamo=True, optimize=False), whose file says so."
        )
    return found


def _unclear_results(onx: onnx.ModelProto, trained: Collection[str]) -> list[str]:
    """Return the matrices that the exporter computed for own code, whose values do not show a function, and views.

    In a file of Keras, no weight has the name of a parameter.
    """
    if not _names_parameters(onx):
        return []
    weights = _floats(onx, trained)
    parameters = [graph.array_of(i) for name, i in weights.items() if not is_computed(name)]
    arrays = {name: graph.array_of(i) for name, i in weights.items() if NUMBERED.fullmatch(name)}
    own = [x for x in computed_matrices(onx) if x in arrays and not may_be_result(arrays[x])]
    views = [x for x, array in arrays.items() if x not in own and any(_is_view(array, w) for w in parameters)]
    return [*own, *views]


def _is_view(array: np.ndarray, parameter: np.ndarray) -> bool:
    """Whether an array has the elements of a parameter in other axes, and may be a view that code takes beside it."""
    alike = array.size == parameter.size and array.shape != parameter.shape and not begins_so(array)
    return alike and array.flat[0] == parameter.flat[0] and np.array_equal(array.reshape(-1), parameter.reshape(-1))


def _is_grid(name: str, array: np.ndarray) -> bool:
    """Whether an array is a grid, or the weight of a layer and a table of sines; buffers have other names."""
    return are_even_steps(array) or (name.endswith(".weight") and are_sines(array))


def _zeros_added_to_outputs(onx: onnx.ModelProto) -> list[str]:
    """Return the computed values (1, k) of zeros that are added to an output, such as final_logits_bias of BART."""
    if not _names_parameters(onx):
        return []
    outputs = {o.name for o in onx.graph.output}
    added = {x for n in onx.graph.node if n.op_type == "Add" and n.output[0] in outputs for x in n.input}
    values = [i for i in onx.graph.initializer if i.name in added and is_computed(i.name) and i.dims[:1] == [1]]
    return [i.name for i in values if len(i.dims) == 2 and not graph.array_of(i).any()]


def _scalars(onx: onnx.ModelProto) -> list[str]:
    """Return the initializers of one element that torch.onnx.export(dynamo=False) read from a parameter or a buffer.

    This exporter writes constants of the module's code as nodes. If a tool converted such nodes to initializers, the
    two kinds cannot be distinguished, and the result is empty.
    """
    computed = {i.name: i for i in onx.graph.initializer if i.name.startswith("/") or "::" in i.name}
    plain = all(NUMBERED.fullmatch(name) and i.data_type in graph.FLOATS for name, i in computed.items())
    return [name for name, i in computed.items() if plain and i.dims in ([], [1])]


def _left_out(module: Module, taken: Sequence[Taken], folded: Collection[str]) -> list[str]:
    """Return the parameters that the exporter's optimizer dropped, entirely or in one use, as far as the file shows it.

    The optimizer drops sums with the scalar 0 and products with the scalar 1. It also merges equal layers with the same
    input, and views of equal parameters. A parameter that no operation takes may instead be unused, or tied to another
    parameter of its module. It is only returned if the file shows that it was dropped.
    """
    tied = {f"{o.module}.{a.rpartition('.')[2]}" for o in module.operations for a in o.args if a in module.held}
    names = {t.name for t in taken}
    untaken = [p for p in module.unmentioned if p not in tied and p not in names and holder_of(p) not in folded]
    absent = _absent_results(module)
    equal = [*_parts_that_begin_equal(module, absent), *_equal_to_results(module, absent)]
    twins = _twins(module, absent, dict.fromkeys(untaken) | {t.name: t.source for t in taken})
    if twins:
        return list(dict.fromkeys([*untaken, *twins, *equal, *_operands_left_out(module, names, folded)]))
    affected = _takes_views_of_others(module) | _holders_of_merged_views(module)
    if any(map(_ARITHMETIC.fullmatch, absent)):
        affected |= {operation.module for operation in module.operations}
    if any(map(_ARITHMETIC.fullmatch, module.outputs - {operation.name for operation in module.operations})):
        affected |= {outer for operation in module.operations for outer in _modules_around(operation.module)}
    return [*(p for p in untaken if holder_of(p) in affected), *equal, *_operands_left_out(module, names, folded)]


def _operands_left_out(module: Module, taken: Collection[str], folded: Collection[str]) -> list[str]:
    """Return the parameters that an operation of the file takes according to its record, but none of its nodes.

    For example, two layers of the same rows whose weights start equal share one product, to which each adds its own
    intercept. A node of a recurrent layer has several parameters in one initializer.
    """
    others = (o for o in module.operations if not any(node.op_type in RECURRENT for node in o.nodes))
    lost = {a for o in others for a in o.args}.intersection(module.held) - module.known - module.made - {*taken}
    return [
        x for x, (_, kind) in module.held.items() if x in lost and kind == "PARAMETER" and holder_of(x) not in folded
    ]


def _modules_around(name: str) -> list[str]:
    """Return a module and those that contain it; one of these may have called a dropped last operation."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(len(parts) + 1)]


def _absent_results(module: Module) -> set[str]:
    """Return the tensors that operations take but the file neither contains nor computes."""
    tensors = {a for operation in module.operations for a in operation.tensors}
    return tensors & module.mentioned - module.made - module.known - module.held.keys()


def _stand_ins(module: Module, absent: Collection[str]) -> set[str]:
    """Return the values that operations take instead of absent results of operations of the same kind."""
    return {
        x
        for operation in module.operations
        for a in operation.tensors.intersection(absent)
        for node in operation.nodes
        for x in node.input
        if _stem(a) == _stem(x)
    }


def _twins(module: Module, absent: Collection[str], merged: Mapping[str, str | None]) -> list[str]:
    """Return the parameters of layers in whose place the file uses the result of an equal layer.

    `merged` maps parameters to the initializer that stands for them in the file, or to None if there is none.
    """
    others: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for name, source in merged.items():
        others[holder_of(name)][name.rpartition(".")[2]] = source
    stand_ins = _stand_ins(module, absent)
    moved = {x for x in stand_ins if MOVES.fullmatch(x)}
    # equal slices of one result are merged, too, so that only layers without an operation are missing
    gone = {holder: parts for holder, parts in others.items() if module.mentioned.isdisjoint(_names_in(holder, parts))}
    found = []
    for values, candidates in ((stand_ins - moved, others), (moved, gone)):
        for layer in _layers_behind(module, values):
            parts = {name.rpartition(".")[2]: name for name in layer}
            for holder, sources in candidates.items():
                if all(part in sources and sources[part] in (None, name) for part, name in parts.items()):
                    found += _names_in(holder, parts)
    return found


def _names_in(holder: str, parts: Collection[str]) -> list[str]:
    """Return the names of parameters that a module holds."""
    return [f"{holder}.{part}" if holder else part for part in parts]


def _layers_behind(module: Module, values: Collection[str]) -> list[set[str]]:
    """Return, for each of the last operations with parameters before some values, the set of its parameters."""
    makers = {x: operation for operation in module.operations for node in operation.nodes for x in node.output}
    found, seen, todo = [], set(), [*values]
    while todo:
        operation = makers.get(todo.pop())
        if operation is None or id(operation) in seen:
            continue
        seen.add(id(operation))
        names = {name for a in operation.args for name in module.origins(a) if name in module.held}
        layer = {name for name in names if module.held[name][1] == "PARAMETER"}
        if layer:
            found.append(layer)
        else:
            todo += [x for node in operation.nodes for x in node.input]
    return found


def _parts_that_begin_equal(module: Module, absent: Collection[str]) -> list[str]:
    """Return the parameters of which the optimizer replaced one part by another part with equal initial values."""
    parts = {x for x in _stand_ins(module, absent) if x in module.folded and _PART.fullmatch(x)}
    begun = [x for x in parts if x in module.initializers and begins_so(graph.array_of(module.initializers[x]))]
    return sorted({name for x in begun for name in module.origins(x) if name in module.held})


def _equal_to_results(module: Module, absent: Collection[str]) -> list[str]:
    """Return the parameters that stand in the file for results with equal values, as w for 1 / w where w is 1."""
    found: dict[str, None] = {}
    for operation in module.operations:
        if any(map(_FUNCTION.fullmatch, operation.tensors.intersection(absent))):
            taken = {x for node in operation.nodes for x in node.input if x in module.initializers}
            others = {name for x in taken for name in module.origins(x)}.difference(operation.args)
            found.update(dict.fromkeys(x for x in others if module.held.get(x, ("", ""))[1] == "PARAMETER"))
    return [*found]


def _takes_views_of_others(module: Module) -> set[str]:
    """Return the modules that take a view of another module's parameter instead of a view that the file lacks."""
    found = set()
    for operation in module.operations:
        for x in () if module.takes_known(operation) else {x for node in operation.nodes for x in node.input}:
            source = x
            while source in module.views:
                source = module.views[source]
            owners = {holder_of(name) for name in module.origins(source) & module.held.keys()}
            if source != x and owners and operation.module not in owners:
                found.add(operation.module)
    return found


def _holders_of_merged_views(module: Module) -> set[str]:
    """Return the modules of whose parameters an operation takes a view instead of another view, which is absent.

    An LSTM takes its initial states through other values, so that only their number shows it.
    """
    found: set[str] = set()
    for operation in module.operations:
        made = {x for node in operation.nodes for x in node.output}
        taken = {x for node in operation.nodes for x in node.input} - made
        owners = {x: holders for x in taken if (holders := _holders_behind(module, x))}
        absent = {a for a in operation.args if MOVES.fullmatch(a)} - module.made - module.known - module.held.keys()
        is_lstm = any(node.op_type == "LSTM" for node in operation.nodes)
        if (is_lstm and len(absent) > len(owners)) or not {*map(_stem, absent)}.isdisjoint(map(_stem, owners)):
            found = found.union(*owners.values())
    return found


def _holders_behind(module: Module, view: str) -> set[str]:
    """Return the modules that hold the parameters behind a view; empty for the parameters themselves."""
    source = view
    while source in module.views:
        source = module.views[source]
    is_view = source != view or (view in module.folded and MOVES.fullmatch(view) and not _CONSTANT.fullmatch(view))
    return {holder_of(name) for name in module.origins(source) & module.held.keys()} if is_view else set()


def _folded_normalizations(module: Module, taken: Sequence[Taken]) -> list[str]:
    """Return the BatchNormalization layers that the exporter's optimizer folded into other layers."""
    layers = [name.removesuffix(".running_var") for name in module.held if name.endswith(".running_var")]
    gone = module.held.keys() - module.known - {t.name for t in taken}
    return [layer for layer in layers if f"{layer}.running_var" in gone and module.calls(holder_of(layer))]


def _computed_in_advance(module: Module, spread: Container[str]) -> list[str]:
    """Return the initializers that the exporter computed from parameters, except by moving their elements.

    Of a value that is computed from the rows, only the shape can be constant, as in the Reshape of nn.Bilinear.
    """
    parameters = {name for name, (_, kind) in module.held.items() if kind == "PARAMETER"}
    others = module.held.keys() | module.made
    once = _factors_of_one(module)
    return [
        name
        for name, sources in module.folded.items()
        if name in module.initializers
        and not parameters.isdisjoint(sources)
        and (
            not all(
                x in others
                or MOVES.fullmatch(x)
                or _is_position(x, name, sources)
                or (name in once and _ONE.fullmatch(x))
                for x in (name, *sources)
            )
            or (name not in spread and _reads_some_twice((name, *sources), graph.array_of(module.initializers[name])))
        )
        and not _adds_constants(name, sources, parameters)
    ]


def _factors_of_one(module: Module) -> set[str]:
    """Return the operands of addcmul(b, w, x) without a factor; the exporter writes 1 w for w."""
    operations = (o for o in module.operations if _ADDCMUL.search(o.text))
    return {x for operation in operations for node in operation.nodes for x in node.input}


def _reads_some_twice(names: Sequence[str], array: np.ndarray) -> bool:
    """Whether single elements of a parameter were read several times, as in w[i - j], by the operations named."""
    read = any(re.fullmatch(r"(gather|index|index_select)(_\d+)?", name) for name in names)
    return read and array.ndim > 1 and len(np.unique(array)) < array.size


def _adds_constants(name: str, sources: Collection[str], parameters: Collection[str]) -> bool:
    """Whether a value is the sum of one parameter and constants, as 1 + w, which has the parameter's gradient."""
    terms = [x for x in sources if x in parameters]
    constants = (x for x in sources if x not in parameters)
    return bool(len(terms) == 1 and _SUM.fullmatch(name) and all(map(_CONSTANT.fullmatch, constants)))


def _is_position(value: str, name: str, sources: Collection[str]) -> bool:
    """Whether a value is arange + offset, the positions at which an embedding was read."""
    read = re.fullmatch(r"embedding(_\d+)?", name) and any(re.fullmatch(r"arange(_\d+)?", x) for x in sources)
    return bool(read and re.fullmatch(r"add(_\d+)?", value))


def _stem(name: str) -> str:
    """Return the name of an operation without its numeric suffix."""
    return re.sub(r"_\d+$", "", name)


def _some(names: Collection[str]) -> str:
    return ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
