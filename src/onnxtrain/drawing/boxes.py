"""The boxes of a drawing: one for each node, each output, and each input or weight in each stage that reads it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxtrain import graph

#: The stages of boxes for values that no node computes, and for outputs of the graph.
INPUT, WEIGHT, OUTPUT = "input", "weight", "output"


@dataclass(frozen=True)
class Box:
    """A box of a drawing.

    Attributes
    ----------
    name : str
        The name of the value, or of the first output of the node.
    stage : str
        The stage of a node, else ``"input"``, ``"weight"`` or ``"output"``.
    title : str
        The operator, or the name of a value.
    shape : str
        The shape of the value, such as ``(N, 3)``.
    details : str
        The text that is shown when the mouse is over the box.
    reads : tuple of int
        The indices of the boxes from which edges come.
    nodes : tuple of str
        The operators of the nodes that the box represents.
    """

    name: str
    stage: str
    title: str
    shape: str
    details: str
    reads: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


def boxes_of(
    model: ir.Model, stage_of: Mapping[ir.Node, str], weights: Iterable[str] = (), first: str = "forward"
) -> list[Box]:
    """Return the boxes of a graph; each box comes after the boxes that it reads.

    Parameters
    ----------
    model : onnx_ir.Model
        The model, its nodes in topological order.
    stage_of : mapping of onnx_ir.Node to str
        The stage of each node; a missing node belongs to `first`.
    weights : iterable of str
        The inputs that are trained weights. All initializers except scalars have a box.
    """
    found: list[Box] = []
    known: dict[tuple[ir.Value, str], int] = {}
    weights = set(weights)

    def source(value: ir.Value, stage: str) -> int | None:
        """Return the box of a value that is read in a stage; scalar constants have none."""
        node = value.producer()
        if node is not None:
            return known.get((value, ""))
        if (value, stage) not in known and _is_shown(value):
            kind = WEIGHT if value.is_initializer() or value.name in weights else INPUT
            known[value, stage] = len(found)
            found.append(Box(str(value.name), kind, str(value.name), _shape(value), graph.describe(value)))
        return known.get((value, stage))

    for node in model.graph:
        stage = stage_of.get(node, first)
        read = [source(x, stage) for x in graph.operands(node) if x is not None]
        if node.op_type == "Constant":
            continue
        for y in node.outputs:
            known[y, ""] = len(found)
        reads = tuple(dict.fromkeys(i for i in read if i is not None))
        found.append(_box_of(node, stage, reads))
    for y in model.graph.outputs:
        i = known.get((y, "")) if y.producer() is not None else source(y, first)
        name, text = str(y.name), graph.describe(y)
        found.append(Box(name, OUTPUT, name, _shape(y), text, () if i is None else (i,)))
    return found


def _is_shown(value: ir.Value) -> bool:
    """Whether a value that no node computes has a box: inputs and weights have one, axes and factors have none."""
    if value.is_graph_input():
        return True
    return graph.is_float(value) and math.prod(graph.static_shape(value) or ()) > 1


def _box_of(node: ir.Node, stage: str, reads: tuple[int, ...]) -> Box:
    y = node.outputs[0]
    scalars = [graph.scalar(x) for x in node.inputs if x is not None]
    factors = " ".join(f"{x:.3g}" for x, v in zip(scalars, node.inputs, strict=False) if x is not None and _is_real(v))
    operator = graph.operator_name(node.op_type, node.domain)
    inputs = ", ".join("" if x is None else str(x.name) for x in node.inputs)
    details = f"{', '.join(graph.describe(v) for v in node.outputs)} = {operator}({inputs})"
    return Box(str(y.name), stage, f"{operator} {factors}".rstrip(), _shape(y), details, reads, (operator,))


def _is_real(value: ir.Value | None) -> bool:
    return graph.is_float(value)


def _shape(value: ir.Value) -> str:
    if value.shape is None:
        return ""
    return f"({', '.join(str(d) if graph.has_name(d) else '?' for d in value.shape)})"


def folded(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes, with each chain of nodes merged into one box.

    The nodes of a chain are in one stage, and each is read only by the next one.

    Examples
    --------
    >>> x = Box("x", "input", "x", "", "")
    >>> relu = Box("r", "forward", "Relu", "", "", (0,), ("Relu",))
    >>> neg = Box("n", "forward", "Neg", "", "", (1,), ("Neg",))
    >>> [box.nodes for box in folded([x, relu, neg])]
    [(), ('Relu', 'Neg')]
    """
    readers: dict[int, list[int]] = {}
    for i, box in enumerate(boxes):
        for j in box.reads:
            readers.setdefault(j, []).append(i)
    following = ((i, _continued(boxes, readers, i)) for i in range(len(boxes)))
    joins = {i: j for i, j in following if j is not None}
    last = {i: _end(i, joins) for i in range(len(boxes))}
    members: dict[int, list[int]] = {}
    for i, end in last.items():
        members.setdefault(end, []).append(i)
    position = {end: k for k, end in enumerate(sorted(members))}
    found = []
    for end in sorted(members):
        parts = [boxes[i] for i in members[end]]
        reads = dict.fromkeys(position[last[j]] for part in parts for j in part.reads if last[j] != end)
        found.append(_joined(parts, tuple(reads)))
    return found


def _continued(boxes: Sequence[Box], readers: Mapping[int, Sequence[int]], i: int) -> int | None:
    """Return the node that is merged with a node: its only reader, in the same stage, that reads no other node."""
    if not boxes[i].nodes or len(readers.get(i, ())) != 1:
        return None
    (j,) = readers[i]
    others = [k for k in boxes[j].reads if boxes[k].nodes]
    return j if boxes[j].nodes and boxes[j].stage == boxes[i].stage and others == [i] else None


def _end(i: int, joins: Mapping[int, int]) -> int:
    while i in joins:
        i = joins[i]
    return i


def _joined(parts: Sequence[Box], reads: tuple[int, ...]) -> Box:
    if len(parts) == 1:
        return replace(parts[0], reads=reads)
    nodes = tuple(name for part in parts for name in part.nodes)
    title = " → ".join(nodes) if len(nodes) <= 3 else f"{nodes[0]} → … → {nodes[-1]} ({len(nodes)})"
    details = "\n".join(part.details for part in parts)
    return replace(parts[-1], title=title, details=details, reads=reads, nodes=nodes)
