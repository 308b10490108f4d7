"""Find the learned attribute behind each initializer, by value.

Names given by a converter change from one version to the next; values do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtrain.convert.binding import LAYOUTS, Binding
from onnxtrain.convert.learned import Learned, learned
from onnxtrain.graph import unique_name

#: Layouts to try beside "same" and "transpose", for attributes that a graph holds in another form.
_OTHER_LAYOUTS = {
    "scale_": ("reciprocal",),
    "coef_": ("negative",),
    "intercept_": ("negative",),
}


def bind(estimator: Any, onx: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[Binding, ...]]:
    """Return a copy of the model whose weights have the names of attributes, and the bindings.

    Parameters
    ----------
    estimator : fitted estimator
    onx : onnx.ModelProto
        Its graph, rewritten: its numbers are initializers.
    """
    known = [item for item in learned(estimator) if _is_weight(item)]
    matches: dict[str, tuple[Learned, str]] = {}
    for initializer in _in_order_of_use(onx.graph):
        array = numpy_helper.to_array(initializer)
        for i, layout in _candidates(known, array):
            matches[initializer.name] = known.pop(i), layout
            break
    copy = onnx.ModelProto()
    copy.CopyFrom(onx)
    names = _rename(copy, {name: item.name for name, (item, _) in matches.items()})
    shapes = {i.name: tuple(i.dims) for i in onx.graph.initializer}
    bindings = tuple(
        Binding(names[old], item.path, item.kind, shapes[old], layout, item.step, hasattr(item.owner, "predict"))
        for old, (item, layout) in matches.items()
    )
    return copy, bindings


def _is_weight(item: Learned) -> bool:
    """Whether an attribute may move: the intercept of a model without one may not."""
    return item.kind != "intercept" or bool(getattr(item.owner, "fit_intercept", True))


def _in_order_of_use(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Return the initializers of real numbers with one axis or more, as the nodes use them."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    pending = {i.name: i for i in graph.initializer if i.dims and i.data_type in floats}
    for node in graph.node:
        for name in node.input:
            if name in pending:
                yield pending.pop(name)


def _candidates(known: list[Learned], array: np.ndarray) -> Iterator[tuple[int, str]]:
    """Return position and layout of the learned arrays that have the values of `array`."""
    for layout in LAYOUTS:
        for i, item in enumerate(known):
            if layout not in ("same", "transpose", *_OTHER_LAYOUTS.get(item.attribute, ())):
                continue
            if item.value.size == array.size and _fits(LAYOUTS[layout].forward(item.value), array):
                yield i, layout


def _fits(value: np.ndarray, array: np.ndarray) -> bool:
    if _squeezed(value) != _squeezed(array):
        return False
    return bool(np.allclose(value.reshape(array.shape), array, rtol=1e-5, atol=1e-30, equal_nan=True))


def _squeezed(array: np.ndarray) -> tuple[int, ...]:
    return tuple(d for d in array.shape if d != 1)


def _rename(onx: onnx.ModelProto, wanted: dict[str, str]) -> dict[str, str]:
    """Rename initializers in place, keeping names unique; return the new names."""
    graph = onx.graph
    taken = {v.name for v in (*graph.input, *graph.output)} | {y for node in graph.node for y in node.output}
    taken |= {i.name for i in graph.initializer if i.name not in wanted}
    names = {old: unique_name(new, taken) for old, new in wanted.items()}
    for item in (*graph.initializer, *graph.value_info):
        item.name = names.get(item.name, item.name)
    _rename_inputs(graph, names)
    return names


def _rename_inputs(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_inputs(attribute.g, names)
