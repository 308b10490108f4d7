"""Graphs as SVG pictures: boxes of their nodes, a layered layout after Sugiyama, the drawing. No library is needed.

There is a box for each node, each output, and each input or weight in each stage that reads it. Boxes are in rows, and
every edge points down. An edge that crosses rows passes through an empty place in each of them, so that no line runs
behind a box.

References
----------
Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", IEEE SMC 1981.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from xml.sax import saxutils

import numpy as np
import onnx_ir as ir
from scipy.optimize import isotonic_regression

from onnxtrain import graph
from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import NamesItsAttributes
from onnxtrain.errors import FileError, ParameterError, check_path, printable

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


#: The stage of values that belong to no other.
_FIRST = "forward"


def boxes_of(model: ir.Model, stage_of: Mapping[ir.Node, str], weights: Iterable[str] = ()) -> list[Box]:
    """Return the boxes of a graph; each box comes after the boxes that it reads.

    Parameters
    ----------
    model : onnx_ir.Model
        The model, its nodes in topological order.
    stage_of : mapping of onnx_ir.Node to str
        The stage of each node; a missing node belongs to ``"forward"``.
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
        stage = stage_of.get(node, _FIRST)
        read = [source(x, stage) for x in graph.operands(node) if x is not None]
        if node.op_type == "Constant":
            continue
        for y in node.outputs:
            known[y, ""] = len(found)
        reads = tuple(dict.fromkeys(i for i in read if i is not None))
        found.append(_box_of(node, stage, reads))
    for y in model.graph.outputs:
        i = known.get((y, "")) if y.producer() is not None else source(y, _FIRST)
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
    factors = " ".join(
        f"{x:.3g}" for x, v in zip(scalars, node.inputs, strict=False) if x is not None and graph.is_float(v)
    )
    operator = graph.operator_name(node.op_type, node.domain)
    inputs = ", ".join("" if x is None else str(x.name) for x in node.inputs)
    details = f"{', '.join(graph.describe(v) for v in node.outputs)} = {operator}({inputs})"
    return Box(str(y.name), stage, f"{operator} {factors}".rstrip(), _shape(y), details, reads, (operator,))


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


# ---------------------------------------------------------------------- layout


#: The distance between boxes of a row, and between rows.
GAP, ROW_GAP = 14.0, 34.0

#: The number of sweeps down and up, first for the order, then for the coordinates.
_SWEEPS = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The positions of boxes and edges.

    Attributes
    ----------
    centers : list of (x, y)
        The center of each box.
    paths : list of list of (x, y)
        The path of each edge, from the lower side of its first box to the upper side of its second.
    width, height : float
    """

    centers: list[Point]
    paths: list[list[Point]]
    width: float
    height: float


def lay_out(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Return the layout of boxes with the given widths and heights.

    Parameters
    ----------
    sizes : sequence of (width, height)
    edges : sequence of (int, int)
        Pairs of box indices, from the first to the second, without cycles.

    Examples
    --------
    >>> layout = lay_out([(40, 20), (40, 20), (40, 20)], [(0, 2), (1, 2)])
    >>> [y for _, y in layout.centers]
    [10.0, 10.0, 64.0]
    """
    layers = _layers(len(sizes), edges)
    widths = {("box", i): float(width) for i, (width, _) in enumerate(sizes)}
    chains = [_chain(k, edge, layers) for k, edge in enumerate(edges)]
    level: dict[tuple[str, int, int] | tuple[str, int], int] = {("box", i): layer for i, layer in enumerate(layers)}
    for chain in chains:
        for place in chain[1:-1]:
            level[place], widths[place] = place[2], 2.0
    rows: list[list] = [[] for _ in range(max(layers, default=-1) + 1)]
    for place, layer in level.items():
        rows[layer].append(place)
    above, below = _neighbours(chains)
    _order(rows, above, below)
    xs = _coordinates(rows, widths, above, below)
    heights = [max(sizes[p[1]][1] if p[0] == "box" else 0.0 for p in row) for row in rows]
    tops = np.concatenate([[0.0], np.cumsum([h + ROW_GAP for h in heights])])
    left = min((xs[p] - w / 2 for p, w in widths.items()), default=0.0)
    middle = {p: tops[layer] + heights[layer] / 2 for p, layer in level.items()}
    centers = [(xs["box", i] - left, float(middle["box", i])) for i in range(len(sizes))]
    paths = []
    for chain, (start, end) in zip(chains, edges, strict=True):
        inner = [(xs[p] - left, float(y)) for p in chain[1:-1] for y in (tops[p[2]], tops[p[2]] + heights[p[2]])]
        first = (centers[start][0], centers[start][1] + sizes[start][1] / 2)
        last = (centers[end][0], centers[end][1] - sizes[end][1] / 2)
        paths.append([first, *inner, last])
    width = max((xs[p] - left + w / 2 for p, w in widths.items()), default=0.0)
    return Layout(centers, paths, width, float(max(tops[-1] - ROW_GAP, 0.0)))


def _layers(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row of each box: below all boxes that it depends on, and as low as its readers allow."""
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for start, end in edges:
        before[end].append(start)
        after[start].append(end)
    layers, waiting = [0] * n, [len(b) for b in before]
    in_order = [i for i in range(n) if not waiting[i]]
    for i in in_order:  # the list grows
        for j in after[i]:
            layers[j] = max(layers[j], layers[i] + 1)
            waiting[j] -= 1
            if not waiting[j]:
                in_order.append(j)
    for i in reversed(in_order):
        if after[i]:
            layers[i] = min(layers[j] for j in after[i]) - 1
    return layers


def _chain(k: int, edge: tuple[int, int], layers: Sequence[int]) -> list:
    """Return the places of an edge: its two boxes, and one place in each row between them."""
    start, end = edge
    return [("box", start), *(("edge", k, layer) for layer in range(layers[start] + 1, layers[end])), ("box", end)]


def _neighbours(chains: Sequence[Sequence]) -> tuple[dict, dict]:
    """Return, for each place, its neighbours in the row above and in the row below."""
    above: dict = {}
    below: dict = {}
    for chain in chains:
        for upper, lower in pairwise(chain):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    return above, below


def _order(rows: list[list], above: Mapping, below: Mapping) -> None:
    """Sort each row in place by the mean position of the neighbours, so that fewer lines cross."""
    position = {place: i for row in rows for i, place in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        joined = above if down else below
        for row in rows if down else reversed(rows):
            wanted = {p: np.mean([position[q] for q in joined.get(p, (p,))]) for p in row}
            row.sort(key=wanted.__getitem__)
            position.update({place: i for i, place in enumerate(row)})


def _coordinates(rows: Sequence[Sequence], widths: Mapping, above: Mapping, below: Mapping) -> dict:
    """Return the x of each place: as close to its neighbours as the boxes beside it allow, in least squares."""
    xs = {place: 0.0 for row in rows for place in row}
    offsets = []
    for row in rows:
        half = np.array([widths[p] / 2 for p in row])
        steps = half[:-1] + half[1:] + GAP
        offsets.append(np.concatenate([[0.0], np.cumsum(steps)]))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        joined = above if down else below
        for row, offset in list(zip(rows, offsets, strict=True))[:: 1 if down else -1]:
            wanted = np.array([np.mean([xs[q] for q in joined.get(p, (p,))]) for p in row])
            weights = np.array([1.0 + 3.0 * (p[0] == "edge") for p in row])  # keeps lines that cross rows straight
            found = isotonic_regression(wanted - offset, weights=weights).x + offset
            xs.update(zip(row, found.tolist(), strict=True))
    return xs


# --------------------------------------------------------------------- drawing


#: The fill and border colors of each stage.
COLORS = {
    "input": ("#ffffff", "#555555"),
    "weight": ("#fff3bf", "#b08900"),
    "forward": ("#dbe9f6", "#3b6ea5"),
    "loss": ("#fde0d0", "#c05621"),
    "gradient": ("#dff0d8", "#3c7a3c"),
    "optimizer": ("#e8def8", "#6b46a3"),
    "output": ("#eeeeee", "#555555"),
}

#: The width of a character in pixels, and the padding around the text of a box.
_CHARACTER, _PADDING = 6.7, 9.0

#: The margin around the drawing in pixels, and the height of the legend above it.
_MARGIN, _LEGEND = 12.0, 34.0

#: Formats that users of matplotlib expect; a program would refuse an SVG with such a name.
_OTHER_FORMATS = (".png", ".jpg", ".jpeg", ".pdf", ".gif")

#: The class of the drawing; a page may contain it inline, so its style rules must not affect other elements.
_CLASS = "onnxtrain-graph"
_STYLE = "".join(
    f".{_CLASS} {rule}"
    for rule in (
        "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;text-anchor:middle;fill:#1a1a1a}",
        ".shape{font-size:10px;fill:#555}",
        ".note{text-anchor:start;font-size:11px}",
        ".edge{fill:none;stroke:#8a8a8a}",
    )
)


@dataclass(frozen=True)
class Picture(NamesItsAttributes):
    """A drawing of a graph; a notebook displays it, and :meth:`save` writes it as SVG.

    Attributes
    ----------
    title : str
    boxes : tuple of Box
    note : str
        A note beside the legend about what the drawing omits.
    """

    title: str
    boxes: tuple[Box, ...] = field(repr=False)
    note: str = ""

    _remedies = MappingProxyType(
        {"savefig": "Use save(path), which writes an SVG.", "show": "A notebook shows it; save(path) writes an SVG."}
    )

    @cached_property
    def _layout(self) -> Layout:
        edges = [(j, i) for i, box in enumerate(self.boxes) for j in box.reads]
        return lay_out([_size(box) for box in self.boxes], edges)

    def __repr__(self) -> str:
        """Return the number of nodes by stage."""
        counts = {stage: sum(len(b.nodes) for b in self.boxes if b.stage == stage) for stage in COLORS}
        parts = ", ".join(f"{n} {stage}" for stage, n in counts.items() if n)
        return f"<{self.title}: {sum(counts.values())} nodes ({parts})>"

    def _repr_svg_(self) -> str:
        """Return the drawing for a notebook."""
        return self.to_svg()

    def _repr_html_(self) -> str:
        """Return the drawing for the pages of sphinx-gallery, which request HTML."""
        return self.to_svg()

    def to_svg(self) -> str:
        """Return the drawing as SVG.

        Each node is a ``<g class="node">`` with ``data-name`` and ``data-stage``; each edge a ``<path class="edge">``
        with ``data-from`` and ``data-to``, the names of two boxes.
        """
        layout = self._layout
        stages = [stage for stage in COLORS if any(box.stage == stage for box in self.boxes)]
        legend, legend_width = _legend(stages, self.note)
        width = max(layout.width, legend_width) + 2 * _MARGIN
        height = layout.height + _LEGEND + 2 * _MARGIN
        edges = [(j, box) for box in self.boxes for j in box.reads]
        lines = [_edge(path, self.boxes[j], box) for path, (j, box) in zip(layout.paths, edges, strict=True)]
        nodes = [_node(box, center) for box, center in zip(self.boxes, layout.centers, strict=True)]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="{_CLASS}" width="{width:.0f}" height="{height:.0f}"'
                f' viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
                ' style="max-width:100%;height:auto;background:#fff">',
                f"<title>{_text(self.title)}</title><style>{_STYLE}</style>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                'orient="auto"><path d="M0 0L8 4L0 8z" fill="#8a8a8a"/></marker></defs>',
                f'<g transform="translate({_MARGIN} {_MARGIN})">{legend}</g>',
                f'<g transform="translate({_MARGIN} {_MARGIN + _LEGEND})">',
                *lines,
                *nodes,
                "</g></svg>",
            ]
        )

    @lists_its_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing to a file as SVG.

        Raises
        ------
        ParameterError
            The name of the file ends as that of another format.
        FileError
            The file cannot be written. Its earlier content is unchanged.
        """
        check_path(path, remedy=" Pass a name such as 'graph.svg'.")
        if Path(path).suffix.lower() in _OTHER_FORMATS:
            raise ParameterError(
                f"The drawing is an SVG, got the file name {os.fspath(path)!r}. Name the file "
                f"{os.fspath(Path(path).with_suffix('.svg'))!r}."
            )
        content = self.to_svg().encode()
        try:
            with graph.replacement(Path(os.path.realpath(path)), lambda file: file.write(content)):
                pass
        except OSError as e:
            remedy = graph.in_folder(path).replace("model.onnx", "graph.svg")
            raise FileError(f"The file {os.fspath(path)!r} cannot be written: {e.strerror or e}.{remedy}") from e


def _size(box: Box) -> Point:
    width = max(len(box.title) * _CHARACTER, len(box.shape) * _CHARACTER * 0.85) + 2 * _PADDING
    return max(width, 44.0), 34.0 if box.shape else 22.0


def _text(text: str) -> str:
    return saxutils.escape(printable(text))


def _attribute(text: str) -> str:
    return saxutils.quoteattr(printable(text))


def _node(box: Box, center: Point) -> str:
    (width, height), (x, y), (fill, line) = _size(box), center, COLORS[box.stage]
    corner = 4 if box.nodes else height / 2
    shape = f'<text class="shape" x="{x:.1f}" y="{y + 12:.1f}">{_text(box.shape)}</text>' if box.shape else ""
    return (
        f'<g class="node" data-name={_attribute(box.name)} data-stage="{box.stage}" '
        f"data-nodes={_attribute(' '.join(box.nodes))}>"
        f"<title>{_text(box.details)}</title>"
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{corner:g}" fill="{fill}" stroke="{line}"/>'
        f'<text x="{x:.1f}" y="{y + (-1 if box.shape else 4):.1f}">{_text(box.title)}</text>{shape}</g>'
    )


def _edge(path: Sequence[Point], start: Box, end: Box) -> str:
    x, y = path[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in path[1:]:
        middle = (y + to_y) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    names = f"data-from={_attribute(start.name)} data-to={_attribute(end.name)}"
    return f'<path class="edge" {names} marker-end="url(#tip)" d="{"".join(parts)}"/>'


def _legend(stages: Sequence[str], note: str) -> tuple[str, float]:
    """Return the legend and its width."""
    x, parts = 0.0, []
    for stage in stages:
        fill, line = COLORS[stage]
        parts.append(f'<rect class="key" x="{x:.1f}" y="0" width="14" height="14" fill="{fill}" stroke="{line}"/>')
        parts.append(f'<text class="note" x="{x + 19:.1f}" y="11">{stage}</text>')
        x += 19 + len(stage) * _CHARACTER + 16
    if note:
        parts.append(f'<text class="note" x="{x:.1f}" y="11">{_text(note)}</text>')
        x += len(note) * _CHARACTER
    return "".join(parts), x
