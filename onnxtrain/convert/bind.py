"""Find the learned attribute behind each initializer, by value.

Names given by a converter change from one version to the next; values do not.
Where two attributes have the same values (a mean computed twice, intercepts
of zero), the estimator is converted once more with marked values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtrain.convert.binding import LAYOUTS, Binding, get, put
from onnxtrain.convert.learned import Learned, learned
from onnxtrain.convert.leaves import bind_leaves, find_trees
from onnxtrain.convert.reach import reaching_names
from onnxtrain.graph import unique_name

#: Layouts to try beside "same" and "transpose", for attributes that a graph holds in another form.
_OTHER_LAYOUTS = {
    "scale_": ("reciprocal",),
    "coef_": ("negative",),
    "intercept_": ("negative",),
}

#: A graph that changes with the values is converted once more for each attribute, up to this number.
_MOST_MARKED = 40

#: initializer -> (what was learned, layout)
_Matches = dict[str, tuple[Learned, str]]

#: initializer -> (which of those that were learned, layout)
_Candidates = Mapping[str, Sequence[tuple[int, str]]]


def bind(
    estimator: Any, onx: onnx.ModelProto, convert_again: Callable[[Any], onnx.ModelProto]
) -> tuple[onnx.ModelProto, tuple[Binding, ...]]:
    """Return a copy of the model whose weights have the names of attributes, and the bindings.

    Parameters
    ----------
    estimator : fitted estimator
    onx : onnx.ModelProto
        Its graph, rewritten: its numbers are initializers.
    convert_again : callable
        ``convert_again(estimator) -> ModelProto``, for a marked copy.
    """
    known = [item for item in learned(estimator) if _is_weight(item)]
    arrays = _weights_in_order(onx)
    candidates = _candidates(known, arrays)
    matches = _match_marked(estimator, known, onx, convert_again) if _ambiguous(candidates, arrays) else None
    if matches is None:
        matches = _match(known, candidates)
    bindings = [
        Binding(name, item.path, item.kind, arrays[name].shape, layout, item.step, hasattr(item.owner, "predict"))
        for name, (item, layout) in matches.items()
    ]
    bindings += _leaf_bindings(estimator, {name: a for name, a in arrays.items() if name not in matches})
    return _renamed(
        _frozen(onx, {b.name for b in bindings}), bindings, {name: item.name for name, (item, _) in matches.items()}
    )


def _frozen(onx: onnx.ModelProto, weights: set[str]) -> onnx.ModelProto:
    """Return the model with numbers that are no weights as nodes Constant: exponents, masks, ..."""
    result = onnx.ModelProto()
    result.CopyFrom(onx)
    graph = result.graph
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    others = [i for i in graph.initializer if i.data_type in floats and i.name not in weights]
    nodes = [helper.make_node("Constant", [], [i.name], name=i.name, value=i) for i in others]
    nodes += graph.node
    kept = [i for i in graph.initializer if i.data_type not in floats or i.name in weights]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    return result


def _is_weight(item: Learned) -> bool:
    """Whether an attribute may move: the intercept of a model without one may not."""
    return item.kind != "intercept" or bool(getattr(item.owner, "fit_intercept", True))


def _weights_in_order(onx: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the arrays of real numbers that the outputs depend on, as the nodes use them."""
    wanted = reaching_names(onx)
    pending = {i.name: i for i in onx.graph.initializer if i.name in wanted}
    found = {}
    for node in onx.graph.node:
        for name in node.input:
            if name in pending:
                found[name] = numpy_helper.to_array(pending.pop(name))
    return found


def _match(known: Sequence[Learned], candidates: _Candidates) -> _Matches:
    """Give each array the first attribute that no array before it has."""
    matches: _Matches = {}
    taken: set[int] = set()
    for name, found in candidates.items():
        for i, layout in found:
            if i not in taken:
                taken.add(i)
                matches[name] = known[i], layout
                break
    return matches


def _candidates(known: Sequence[Learned], arrays: Mapping[str, np.ndarray]) -> _Candidates:
    """Return, for each array, position and layout of the learned ones that have its values."""
    return {
        name: [
            (i, layout)
            for layout in LAYOUTS
            for i, item in enumerate(known)
            if item.value.size == array.size
            and layout in _layouts_of(item)
            and _fits(LAYOUTS[layout].forward(item.value), array)
        ]
        for name, array in arrays.items()
    }


def _layouts_of(item: Learned) -> tuple[str, ...]:
    transposed = ("transpose",) if np.ndim(item.value) > 1 else ()
    return "same", *transposed, *_OTHER_LAYOUTS.get(item.attribute, ())


def _fits(value: np.ndarray, array: np.ndarray) -> bool:
    if _squeezed(value) != _squeezed(array):
        return False
    with np.errstate(over="ignore"):  # what is too large for float32 is no match
        value = value.reshape(array.shape).astype(array.dtype)
    return _close(value.flat[:16], array.flat[:16]) and _close(value, array)  # most that differ do so at once


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b) or np.allclose(a, b, rtol=1e-5, atol=1e-30, equal_nan=True)


def _squeezed(array: np.ndarray) -> tuple[int, ...]:
    return tuple(d for d in array.shape if d != 1)


def _ambiguous(candidates: _Candidates, arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether equal values may be chance: two attributes have them, or they are all 0, all 1, ..."""
    for name, array in arrays.items():
        found = {i for i, _ in candidates[name]}
        if len(found) > 1 or (found and np.all(array == round(float(array.flat[0])))):
            return True
    return False


def _match_marked(
    estimator: Any, known: Sequence[Learned], onx: onnx.ModelProto, convert_again: Callable[[Any], onnx.ModelProto]
) -> _Matches | None:
    """Match on a graph in which no two attributes are equal; None where that graph is another one."""
    structure = [n.op_type for n in onx.graph.node]

    def graph_of(items: Sequence[Learned]) -> tuple[Any, onnx.ModelProto | None]:
        marked = _marked(estimator, items)
        other = convert_again(marked)
        return marked, other if [n.op_type for n in other.graph.node] == structure else None

    kept = list(known)
    marked, other = graph_of(kept)
    if other is None and len(known) <= _MOST_MARKED:  # one of them decides on the graph: it is no number in it
        kept = [item for item in known if graph_of([item])[1] is not None]
        marked, other = graph_of(kept)
    if other is None:
        return None
    by_path = {item.path: item for item in kept}
    known = [item for item in learned(marked) if item.path in by_path]
    found = _match(known, _candidates(known, _weights_in_order(other)))
    return {name: (by_path[item.path], layout) for name, (item, layout) in found.items()}


def _marked(estimator: Any, items: Sequence[Learned]) -> Any:
    """Return a copy of an estimator in which each number of `items` is a little larger, each by another part."""
    rng = np.random.default_rng(0)
    marked = copy.deepcopy(estimator)
    for item in items:
        old = get(marked, item.path)
        array = np.asarray(old)
        new = array * (1 + 0.01 * rng.random(array.shape)) + np.where(array == 0, 0.01 * rng.random(array.shape), 0)
        put(marked, item.path, new.astype(array.dtype) if isinstance(old, np.ndarray) else type(old)(new))
    return marked


def _leaf_bindings(estimator: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[Binding]:
    trees = list(find_trees(estimator))
    for name, array in arrays.items():
        if name.startswith("leaf_values") and trees:
            found = bind_leaves(estimator, name, array, trees)
            if found is not None:
                trees = [path for path in trees if path not in found.trees]
                yield found


def _renamed(
    onx: onnx.ModelProto, bindings: Sequence[Binding], wanted: Mapping[str, str]
) -> tuple[onnx.ModelProto, tuple[Binding, ...]]:
    """Return a copy of the model with the initializers renamed as `wanted`, and the bindings with the new names."""
    result = onnx.ModelProto()
    result.CopyFrom(onx)
    graph = result.graph
    taken = {v.name for v in (*graph.input, *graph.output)} | {y for node in graph.node for y in node.output}
    taken |= {i.name for i in graph.initializer if i.name not in wanted}
    names = {old: unique_name(new, taken) for old, new in wanted.items()}
    for item in (*graph.initializer, *graph.value_info):
        item.name = names.get(item.name, item.name)
    _rename_inputs(graph, names)
    renamed = []
    for binding in bindings:
        fields = {**vars(binding), "name": names.get(binding.name, binding.name)}
        renamed.append(type(binding)(**fields))
    return result, tuple(renamed)


def _rename_inputs(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_inputs(attribute.g, names)
