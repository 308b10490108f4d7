"""A drawing of boxes with their layout, written as SVG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape, quoteattr

from onnxtrain.arguments import lists_its_arguments
from onnxtrain.attributes import NamesItsAttributes
from onnxtrain.drawing.boxes import Box
from onnxtrain.drawing.layout import Layout, Point, lay_out
from onnxtrain.errors import ArgumentTypeError, FileError, ParameterError

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
                f"<title>{escape(self.title)}</title><style>{_STYLE}</style>",
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
            The file cannot be written.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentTypeError(f"path must be a file path, got {path!r:.80}.")
        if Path(path).suffix.lower() in _OTHER_FORMATS:
            raise ParameterError(
                f"The drawing is an SVG, got the file name {os.fspath(path)!r}. Name the file "
                f"{os.fspath(Path(path).with_suffix('.svg'))!r}."
            )
        try:
            Path(path).write_text(self.to_svg(), encoding="utf-8")
        except OSError as e:
            remedy = f" Pass a file in it: {os.path.join(path, 'graph.svg')!r}." if os.path.isdir(path) else ""
            raise FileError(f"The file {os.fspath(path)!r} cannot be written: {e.strerror or e}.{remedy}") from e


def _size(box: Box) -> Point:
    width = max(len(box.title) * _CHARACTER, len(box.shape) * _CHARACTER * 0.85) + 2 * _PADDING
    return max(width, 44.0), 34.0 if box.shape else 22.0


def _node(box: Box, center: Point) -> str:
    (width, height), (x, y), (fill, line) = _size(box), center, COLORS[box.stage]
    corner = 4 if box.nodes else height / 2
    shape = f'<text class="shape" x="{x:.1f}" y="{y + 12:.1f}">{escape(box.shape)}</text>' if box.shape else ""
    return (
        f'<g class="node" data-name={quoteattr(box.name)} data-stage="{box.stage}" '
        f"data-nodes={quoteattr(' '.join(box.nodes))}>"
        f"<title>{escape(box.details)}</title>"
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{corner:g}" fill="{fill}" stroke="{line}"/>'
        f'<text x="{x:.1f}" y="{y + (-1 if box.shape else 4):.1f}">{escape(box.title)}</text>{shape}</g>'
    )


def _edge(path: Sequence[Point], start: Box, end: Box) -> str:
    x, y = path[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in path[1:]:
        middle = (y + to_y) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    names = f"data-from={quoteattr(start.name)} data-to={quoteattr(end.name)}"
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
        parts.append(f'<text class="note" x="{x:.1f}" y="11">{escape(note)}</text>')
        x += len(note) * _CHARACTER
    return "".join(parts), x
