"""Memory layout of weights in the optimizer: small weights are packed in one row, a large one is split into rows.

The cost of a step on a small model is proportional to the number of nodes, not of elements. Ten nodes of Adam for each
of four weights take longer than ten nodes for all weights together with the two nodes that split the weights and
concatenate their gradients. The packed shape is (1, n), which most intercepts and sums over a batch already have, so
that they need no Reshape.

For a weight of millions of elements, the passes over memory determine the cost; Adam makes ten of them. If the weight
is updated row by row, these passes stay in the cache. A step at widths of 1024 and 2048 then takes 0.94 of the time, or
0.7 to 0.8 while other processes use the memory.

A state has one buffer instead of two if a step or an update may overwrite it with the next value. onnxruntime does not
know that an output is bound to the memory of an input. The only guarantee is that a node runs after the nodes on which
it depends.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx_ir as ir

from onnxtrain.graph import Op, ancestors, rank, same_shape, static_shape, tensor
from onnxtrain.training.objective import ObjectiveGraph

K = TypeVar("K")

#: The number of elements of a weight above which copying it costs more than the nodes that packing saves.
SMALL = 16_384

#: The number of elements above which a weight is updated row by row, and the largest number of elements of a row. Ten
#: such rows (weights, optimizer state, temporaries) fit in a cache of 10 MB. Shorter rows would fit in a smaller cache,
#: but onnxruntime runs an operator on fewer than 2**17 elements in a single thread.
LARGE, ROW = 2**19, 2**18


class Part(NamedTuple):
    """The place of an array in rows of one length that are read one after the other."""

    start: int
    stop: int
    shape: tuple[int, ...]
    rows: int = 1


class Packed(NamedTuple):
    """A unit of an optimizer update: its input, the gradient, the part of each weight, the number of rows."""

    value: ir.Value
    gradient: ir.Value
    parts: dict[str, Part | None]
    kind: Any
    rows: int = 1


def pack_weights(g: ObjectiveGraph, dws: Sequence[ir.Value], kinds: Sequence[Hashable]) -> list[Packed]:
    """Replace small weights of a graph by parts of one input, and a large weight by an input of several rows.

    Parameters
    ----------
    g : ObjectiveGraph
        The graph with the forward and backward pass, whose inputs and their uses are changed.
    dws : sequence of onnx_ir.Value
        The gradient of each of ``g.weights``.
    kinds : sequence of hashable
        How the optimizer updates each weight; only weights of one kind are packed together.

    Returns
    -------
    list of Packed
        The units; weights that are not packed have None as their part.
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
    """Return a weight as a unit of its own."""
    return Packed(w, dw, {str(w.name): None}, kind)


def rows_of(n: int, large: int, row: int) -> int:
    """Return the number of rows of about `row` elements for n elements that divides n; 1 if n is at most `large`."""
    fewest = math.ceil(n / row)
    return 1 if n <= large else next((rows for rows in range(fewest, 4 * fewest) if n % rows == 0), 1)


def _in_rows(g: ObjectiveGraph, w: ir.Value, dw: ir.Value, kind: Hashable, rows: int) -> Packed:
    shape = static_shape(w) or ()
    n = math.prod(shape)
    value = g.add_input(f"{w.name}_in_rows", (rows, n // rows))
    ir.convenience.replace_all_uses_with(w, g.op.Reshape(value, _shape(g.op, shape)), replace_graph_outputs=True)
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
        ir.convenience.replace_all_uses_with(w, whole, replace_graph_outputs=True)
        g.model.graph.inputs.remove(w)
    return Packed(row, op.Concat(*gradients, axis=1), dict(parts), kind)


def _will_do_as_row(w: ir.Value) -> bool:
    """Whether a vector may be replaced by a row, because it is broadcast only along the rows of matrices."""
    return rank(w) == 1 and all(
        (user.op_type in ("Add", "Sub", "Mul", "Div") and (rank(user.outputs[0]) or 0) > 1)
        or (user.op_type == "Gemm" and position == 2)
        for user, position in w.uses()
    )


def _shape(op: Op, shape: Sequence[int]) -> ir.Value:
    return op.initializer(tensor(shape, name="shape"))


def _lay_out(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Part]:
    parts, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        parts[name] = Part(start, stop, shape)
        start = stop
    return parts


def join(arrays: Mapping[K, np.ndarray], parts: Mapping[K, Part | None]) -> np.ndarray:
    """Return a new array from its parts, laid out in rows; if there is only one whole part, a copy of it.

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
    """Return a part of an array in the part's shape, without a copy; the whole array if the part is None."""
    return whole if part is None else whole.reshape(-1)[part.start : part.stop].reshape(part.shape)


class Parts(Mapping[K, np.ndarray]):
    """Arrays by key, each extracted from the array that contains it when it is requested.

    Parameters
    ----------
    wholes : mapping of str to ndarray
        The arrays that contain the parts, and no others.
    places : mapping of key to (str, Part or None)
        The array that contains each part, and its place there.

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


# ------------------------------------------------ buffers that one array needs


#: Operators whose kernels read an element before they write the result in its place. onnxruntime may fuse two such
#: nodes, or drop one without effect, such as a product with 1; the result is still elementwise.
_ELEMENTWISE = frozenset(
    {"Abs", "Add", "Div", "Exp", "Max", "Min", "Mul", "Neg", "Relu", "Sign", "Sqrt", "Sub", "Sum", "Tanh"}
)

#: The operand of a Gemm that is copied to the result before the product is added.
_ADDED = 2

#: The norm of the gradients, by which clipping divides all of them: a scalar that is computed before any update.
_NORM = "ReduceSumSquare"


def may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether all values computed from a value are elementwise and enter the next value.

    Checking the direct readers is not enough: if onnxruntime drops a node, the readers of its output read the value
    itself.
    """
    node = None if new is None else new.producer()
    if old is None or new is None or node is None:
        return False
    if node.op_type == "Scan":
        body = node.attributes["body"].as_graph()
        inner = body.inputs[list(node.inputs).index(old)]
        alone = all(use.node is node for use in old.uses())
        return alone and may_be_written_over(inner, body.outputs[list(node.outputs).index(new)])
    before = ancestors([new])
    uses = list(old.uses())
    for use in uses:
        if use.node is not node and use.node.op_type != _NORM:
            uses += [further for x in use.node.outputs for further in x.uses() if further not in uses]
    return all(use.node.outputs[0] in before and _is_elementwise(use.node.op_type, use.idx) for use in uses)


def _is_elementwise(op_type: str, operand: int) -> bool:
    """Whether a node reads each element of an operand before it writes the result in its place, or writes none."""
    return op_type in _ELEMENTWISE or op_type == _NORM or (op_type == "Gemm" and operand == _ADDED)


def rows_may_be_written_over(old: ir.Value | None, new: ir.Value | None) -> bool:
    """Whether the next value is the old value with some rows changed after all readers have copied their rows."""
    writer = None if new is None else new.producer()
    if old is None or new is None or writer is None or writer.op_type != "ScatterND" or writer.inputs[0] is not old:
        return False
    before = ancestors([new])
    readers = (use.node for use in old.uses() if use.node is not writer)
    return all(node.op_type == "Gather" and node.outputs[0] in before for node in readers)
