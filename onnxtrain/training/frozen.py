"""What no trained weight has a part in: computed once, before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxtrain import graph
from onnxtrain.autodiff import dependents
from onnxtrain.errors import ModelError


def split_frozen(onx: bytes, weights: Sequence[str], outputs: Sequence[str]) -> tuple[bytes, bytes]:
    """Split a model into what comes before its trained weights and what comes behind.

    Parameters
    ----------
    onx : bytes
    weights : sequence of str
        Initializers.
    outputs : sequence of str
        Those of the model that the second part keeps.

    Returns
    -------
    before, behind : bytes
        The outputs of the first are the inputs of the second, by name; they have one
        entry a row. Texts, categories and other things that are never trained are
        inputs of the first only.
    """
    before, behind = graph.load(onx), graph.load(onx)
    border = [str(v.name) for v in _border(behind, weights, outputs)]
    _cut(behind, border)
    values = {v.name: v for v in _values(before)}
    kept = [(name, graph.find(behind.graph.outputs, name, "output")) for name in outputs]
    second = graph.save(behind, outputs=kept)
    first = graph.save(before, outputs=[(name, values[name]) for name in border])
    return first.SerializeToString(), second.SerializeToString()


def _values(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *(y for node in model.graph for y in node.outputs)]


def _border(model: ir.Model, weights: Sequence[str], outputs: Sequence[str]) -> list[ir.Value]:
    """Return the values that depend on no weight and are read by nodes that do, or are outputs themselves."""
    trained = [model.graph.initializers[name] for name in weights]
    # types do not matter here: an index that follows from a weight is behind it
    active = set(trained) | dependents(model.graph, trained)
    nodes = [node for node in model.graph if any(x in active for x in node.inputs)]
    for node in nodes:
        active.update(node.outputs)
    read = [x for node in nodes for x in node.inputs if x is not None]
    read += [y for y in model.graph.outputs if y.name in outputs]
    found = [x for x in dict.fromkeys(read) if x not in active and not _is_known(x)]
    for value in found:
        if value.dtype == ir.DataType.STRING:
            raise ModelError(f"Texts reach the trained weights: {graph.describe(value)}.")
    return found


def _is_known(value: ir.Value) -> bool:
    return value.is_initializer() or graph.constant(value) is not None


def _cut(model: ir.Model, border: Sequence[str]) -> None:
    """Make the values of the border inputs, the only ones."""
    values = {v.name: v for v in _values(model)}
    inputs = []
    for name in border:
        old = values[name]
        shape = ir.Shape(["rows", *(old.shape or [None])[1:]]) if old.shape is None or len(old.shape) else old.shape
        new = ir.Value(name=name, type=old.type, shape=shape)
        ir.convenience.replace_all_uses_with(old, new)
        old.name = f"{name}_before"
        inputs.append(new)
    model.graph.inputs[:] = inputs
