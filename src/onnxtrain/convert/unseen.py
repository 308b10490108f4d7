"""Warnings about parameters of a PyTorch module that its file lacks or changes, so that training differs."""

from __future__ import annotations

import re
from collections.abc import Collection

import onnx

from onnxtrain.convert.dynamo import Module, holder_of, taken_by_nodes

#: Sums and products that the optimizer drops if the other operand is the scalar 0 or 1.
_ARITHMETIC = re.compile(r"(add|sub|mul|div)(_\d+)?")

#: Prefixes of operations that only move elements, so that gradients stay those of the parameter; val_1 is a constant.
_MOVES = re.compile(
    r"(val|view|reshape|t|transpose|permute|movedim|flatten|unflatten|unsqueeze|squeeze|expand|cat|stack|concat|slice|"
    r"select|split\w*|chunk|getitem|unbind|clone|contiguous|alias|detach|_to_copy|to|tile|repeat|index\w*|embedding|"
    r"gather|zeros)(_\d+)*"
)

#: Names of convolution weights that torch.onnx.export(dynamo=False) computed; parameters keep their names.
_FOLDED = re.compile(r"onnx::Conv(Transpose)?_\d+")

#: Names of values that it computed to scale and shift the channels of a convolution.
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
    found = []
    module = Module(onx)
    taken = {t.name for t in taken_by_nodes(module)}
    layers = _folded_normalizations(module, taken)
    if lost := _left_out(module, taken, layers):
        found.append(
            f"PyTorch's exporter left out {_some(lost)}: sums with 0, products with 1, layers that begin equal and "
            "take the same rows, and views of parameters that begin equal. PyTorch trains these parameters; "
            "torch.onnx.export(..., dynamo=True, optimize=False) keeps them."
        )
    if layers:
        found.append(
            f"PyTorch's exporter folded BatchNormalization into the layers before: {_some(layers)}. The products are "
            "trained, PyTorch trains their factors; torch.onnx.export(..., dynamo=True, optimize=False) keeps them."
        )
    if computed := [name for name in _computed_in_advance(module) if name in trained]:
        found.append(
            f"PyTorch's exporter computed {_some(computed)} in advance, as of parametrizations. The results are "
            "trained, not what they come from; torch.onnx.export(..., dynamo=True, optimize=False) keeps that."
        )
    if folded := [name for name in trained if _FOLDED.fullmatch(name)]:
        found.append(
            f"PyTorch's exporter computed {_some(folded)} of several weights, as those of a convolution and of "
            "BatchNormalization. The products are trained, PyTorch trains their factors; torch.onnx.export(..., "
            "dynamo=False, do_constant_folding=False) keeps them."
        )
    channels = {i.name for i in onx.graph.initializer if len(i.dims) > 2 and list(i.dims[-2:]) == [1, 1]}
    if scaled := [name for name in others if name in channels - {*trained} and _SCALED.fullmatch(name)]:
        found.append(
            f"{_some(scaled)} scale and shift channels as a FrozenBatchNorm2d does, and are not trained. If PyTorch "
            "learns them, name them in weights_to_train besides the others."
        )
    return found


def _left_out(module: Module, taken: Collection[str], folded: Collection[str]) -> list[str]:
    """Return the parameters that the exporter's optimizer dropped, as far as the file shows this.

    The optimizer drops sums with the scalar 0 and products with the scalar 1. It also merges equal layers with the same
    input, and views of equal parameters. A parameter that no operation takes may instead be unused, or tied to another
    parameter of its module. It is only returned if the file shows that it was dropped.
    """
    if not module.unmentioned:
        return []
    tied = {f"{o.module}.{a.rpartition('.')[2]}" for o in module.operations for a in o.args if a in module.held}
    untaken = [p for p in module.unmentioned if p not in tied and p not in taken and holder_of(p) not in folded]
    absent = _absent_results(module)
    if _takes_equal_layers(module, absent):
        return untaken
    drops = any(map(_ARITHMETIC.fullmatch, absent))
    called = {operation.module for operation in module.operations} if drops else set()
    affected = called | _takes_views_of_others(module)
    return [p for p in untaken if holder_of(p) in affected]


def _absent_results(module: Module) -> set[str]:
    """Return the tensors that operations take but the file neither contains nor computes."""
    tensors = {a for operation in module.operations for a in operation.tensors}
    return tensors & module.mentioned - module.made - module.known - module.held.keys()


def _takes_equal_layers(module: Module, absent: Collection[str]) -> bool:
    """Whether an operation takes the result of an equal layer instead of an absent result."""
    by_weights = {node.output[0] for o in module.operations if module.held.keys() & {*o.args} for node in o.nodes}
    return any(
        _stem(a) == _stem(x) and x not in operation.args
        for operation in module.operations
        for a in operation.tensors.intersection(absent)
        for node in operation.nodes
        for x in by_weights.intersection(node.input)
    )


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


def _folded_normalizations(module: Module, taken: Collection[str]) -> list[str]:
    """Return the BatchNormalization layers that the exporter's optimizer folded into other layers."""
    layers = [name.removesuffix(".running_var") for name in module.held if name.endswith(".running_var")]
    gone = module.held.keys() - module.known - {*taken}
    return [layer for layer in layers if f"{layer}.weight" in module.held and f"{layer}.running_var" in gone]


def _computed_in_advance(module: Module) -> list[str]:
    """Return the initializers that the exporter computed from parameters, except by moving their elements."""
    parameters = {name for name, (_, kind) in module.held.items() if kind == "PARAMETER"}
    return [
        name
        for name, sources in module.folded.items()
        if name in module.initializers
        and not parameters.isdisjoint(sources)
        and not all(x in module.held or _MOVES.fullmatch(x) for x in (name, *sources))
    ]


def _stem(name: str) -> str:
    """Return the name of an operation without its numeric suffix."""
    return re.sub(r"_\d+$", "", name)


def _some(names: Collection[str]) -> str:
    return ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
