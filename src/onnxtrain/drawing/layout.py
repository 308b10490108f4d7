"""A layered layout of an acyclic graph, after Sugiyama: layers, order within a layer, coordinates.

Boxes are in rows, and every edge points down. An edge that crosses rows passes through an empty place in each of them,
so that no line runs behind a box.

References
----------
Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", IEEE SMC 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import isotonic_regression

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
