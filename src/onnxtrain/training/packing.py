"""Memory layout of weights in the optimizer: small ones packed in one row, a large one split into several.

The cost of a step on a small model is proportional to its nodes, not to its elements: ten nodes of Adam
for each of four weights take longer than ten for all, including the two nodes that split the weights
and concatenate their gradients. The packed shape is (1, n), which most
intercepts and sums over a batch have already: those need no Reshape.

The cost of a weight of millions of elements is that of the passes over memory: Adam makes ten.
Row by row they are passes over the cache: a step at widths of 1024 and 2048 takes 0.94 of the time, 0.7 to 0.8
while other processes use the memory.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import rank, same_shape, static_shape, tensor
from onnxtrain.training.objective import ObjectiveGraph

K = TypeVar("K")

#: Elements of a weight above which copying it costs more than the nodes it saves.
SMALL = 16_384

#: Elements of a weight above which it is updated row by row, and the most elements of a row: ten such rows, of
#: weights, optimizer memory and temporaries, fit a cache of 10 MB. Shorter rows would fit a smaller one, but
#: onnxruntime runs an operator on fewer than 2**17 elements in one thread.
LARGE, ROW = 2**19, 2**18


class Part(NamedTuple):
    """Where an array lies in rows of one length, read one after the other."""

    start: int
    stop: int
    shape: tuple[int, ...]
    rows: int = 1


class Packed(NamedTuple):
    """The unit of an update by the optimizer: its input, the gradient, the part of each weight, the number of rows."""

    value: ir.Value
    gradient: ir.Value
    parts: dict[str, Part | None]
    kind: Any
    rows: int = 1


def pack_weights(g: ObjectiveGraph, dws: Sequence[ir.Value], kinds: Sequence[Hashable]) -> list[Packed]:
    """Replace small weights of the graph by parts of one input, and a large one by an input of several rows.

    Parameters
    ----------
    g : ObjectiveGraph
        Its inputs and their uses are changed; forward and backward pass are there.
    dws : sequence of onnx_ir.Value
        The gradient of each of ``g.weights``.
    kinds : sequence of hashable
        How the optimizer moves each: only weights of one kind are packed together.

    Returns
    -------
    list of Packed
        Weights left alone have None as their part.
    """
    found: list[Packed] = []
    together: dict[Any, list[tuple[ir.Value, ir.Value]]] = {}
    for w, dw, kind in zip(g.weights, dws, kinds, strict=True):
        shape = static_shape(w)
        if shape is None or math.prod(shape) > SMALL:
            rows = 1 if shape is None else rows_of(math.prod(shape), LARGE, ROW)
            found.append(alone(w, dw, kind) if rows == 1 else _in_rows(g, w, dw, kind, rows))
        else:
            together.setdefault(kind, []).append((w, dw))
    for kind, members in together.items():
        if len(members) == 1:
            found += [alone(w, dw, kind) for w, dw in members]
        else:
            found.append(_pack(g, members, kind))
    return found


def alone(w: ir.Value, dw: ir.Value, kind: Hashable) -> Packed:
    """Return a weight as it is."""
    return Packed(w, dw, {str(w.name): None}, kind)


def rows_of(n: int, large: int, row: int) -> int:
    """Return the number of rows of equal length, `row` elements or slightly less, for n elements; 1 up to `large`."""
    fewest = math.ceil(n / row)
    return 1 if n <= large else next((rows for rows in range(fewest, 4 * fewest) if n % rows == 0), 1)


def _in_rows(g: ObjectiveGraph, w: ir.Value, dw: ir.Value, kind: Hashable, rows: int) -> Packed:
    shape = static_shape(w) or ()
    n = math.prod(shape)
    value = g.add_input(f"{w.name}_in_rows", (rows, n // rows))
    ir.convenience.replace_all_uses_with(w, g.op.Reshape(value, _shape(g.op, shape)))
    g.model.graph.inputs.remove(w)
    gradient = g.op.Reshape(dw, _shape(g.op, (rows, n // rows)))
    return Packed(value, gradient, {str(w.name): Part(0, n, shape, rows)}, kind, rows)


def _pack(g: ObjectiveGraph, members: Sequence[tuple[ir.Value, ir.Value]], kind: Hashable) -> Packed:
    op = g.op
    parts = _lay_out({str(w.name): static_shape(w) or () for w, _ in members})
    sizes = [part.stop - part.start for part in parts.values()]
    row = g.add_input("packed_weights", (1, sum(sizes)))
    pieces = op.Split(row, op.initializer(tensor(sizes, name="sizes")), axis=1, _outputs=len(sizes))
    gradients = []
    for (w, dw), piece, size in zip(members, pieces, sizes, strict=True):
        piece.type, piece.shape = w.type, ir.Shape([1, size])
        is_row = same_shape(w, piece)
        whole = piece if is_row or _will_do_as_row(w) else op.Reshape(piece, _shape(op, static_shape(w) or ()))
        gradients.append(dw if is_row else op.Reshape(dw, _shape(op, (1, size))))
        ir.convenience.replace_all_uses_with(w, whole)
        g.model.graph.inputs.remove(w)
    return Packed(row, op.Concat(*gradients, axis=1), dict(parts), kind)


def _will_do_as_row(w: ir.Value) -> bool:
    """Whether a vector may be a row everywhere: it meets matrices only, along whose rows it is repeated."""
    return rank(w) == 1 and all(
        (user.op_type in ("Add", "Sub", "Mul", "Div") and (rank(user.outputs[0]) or 0) > 1)
        or (user.op_type == "Gemm" and position == 2)
        for user, position in w.uses()
    )


def _shape(op, shape: Sequence[int]) -> ir.Value:
    return op.initializer(tensor(shape, name="shape"))


def _lay_out(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Part]:
    parts, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        parts[name] = Part(start, stop, shape)
        start = stop
    return parts


def join(arrays: Mapping[K, np.ndarray], parts: Mapping[K, Part | None]) -> np.ndarray:
    """Return one new array from those that are its parts: laid out in rows, or the only one as it is.

    Examples
    --------
    >>> join({"a": np.ones((1, 2)), "b": np.zeros(1)}, {"a": Part(0, 2, (1, 2)), "b": Part(2, 3, (1,))})
    array([[1., 1., 0.]])
    >>> join({"a": np.arange(6.0).reshape(3, 2)}, {"a": Part(0, 6, (3, 2), rows=2)})
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    part = next(iter(parts.values()))
    if part is None:
        return np.array(next(arrays[key] for key in parts))
    return np.concatenate([arrays[key].ravel() for key in parts]).reshape(part.rows, -1)


def part_of(whole: np.ndarray, part: Part | None) -> np.ndarray:
    """Return the part of an array, in its own shape, without a copy; all of it where the part is None."""
    return whole if part is None else whole.reshape(-1)[part.start : part.stop].reshape(part.shape)


class Parts(Mapping[K, np.ndarray]):
    """Arrays by key, each taken out of the one that it is part of when it is asked for.

    Parameters
    ----------
    wholes : mapping of str to ndarray
        All that they are parts of, and nothing else.
    places : mapping of key to (str, Part or None)
        In which whole each array lies, and where in it.

    Examples
    --------
    >>> parts = Parts({"row": np.arange(3.0)[None]}, {"a": ("row", Part(0, 2, (2, 1))), "b": ("row", Part(2, 3, (1,)))})
    >>> list(parts), parts["b"]
    (['a', 'b'], array([2.]))
    """

    def __init__(self, wholes: Mapping[str, np.ndarray], places: Mapping[K, tuple[str, Part | None]]):
        self.wholes, self._places = wholes, places

    def __getitem__(self, key: K) -> np.ndarray:
        whole, part = self._places[key]
        return part_of(self.wholes[whole], part)

    def __iter__(self) -> Iterator[K]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return repr(dict(self))
