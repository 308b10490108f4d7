"""The layout of boxes and the SVG: geometry, on random graphs and by hand."""

import errno
import os
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxtrain.drawing import GAP, Box, Picture, folded, lay_out
from onnxtrain.errors import FileError

SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def graphs(draw):
    """Sizes of boxes, and edges from earlier to later ones."""
    n = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.tuples(st.integers(10, 90), st.integers(10, 40)), min_size=n, max_size=n))
    pairs = list(combinations(range(n), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return sizes, edges


def sides(center, size):
    (x, y), (width, height) = center, size
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_edges_point_down_and_pass_beside_boxes(case):
    sizes, edges = case
    layout = lay_out(sizes, edges)
    boxes = [sides(center, size) for center, size in zip(layout.centers, sizes, strict=True)]
    for a, b in combinations(boxes, 2):
        beside = a[2] + GAP <= b[0] + 1e-6 or b[2] + GAP <= a[0] + 1e-6
        assert beside or a[3] < b[1] or b[3] < a[1]
    for left, top, right, bottom in boxes:
        assert -1e-6 <= left <= right <= layout.width + 1e-6
        assert -1e-6 <= top <= bottom <= layout.height + 1e-6
    for (start, end), path in zip(edges, layout.paths, strict=True):
        assert path[0] == pytest.approx((layout.centers[start][0], boxes[start][3]))
        assert path[-1] == pytest.approx((layout.centers[end][0], boxes[end][1]))
        ys = [y for _, y in path]
        assert ys == sorted(ys)
        for x, y in path[1:-1]:
            assert not any(left < x < right and top < y < bottom for left, top, right, bottom in boxes)


def test_a_box_stands_just_above_its_first_reader():
    # 0 -> 1 -> 2 -> 3 and 4 -> 3: 4 is read late, so it stands low
    layout = lay_out([(30, 20)] * 5, [(0, 1), (1, 2), (2, 3), (4, 3)])
    assert layout.centers[4][1] == layout.centers[2][1]
    assert layout.centers[0][1] < layout.centers[1][1] < layout.centers[2][1] < layout.centers[3][1]


def test_nothing_and_one_box_are_pictures():
    assert lay_out([], []).width == 0
    assert lay_out([(40, 20)], []).centers == [(20.0, 10.0)]


def chain(*stages):
    first = Box("x", "input", "x", "", "")
    return [first, *(Box(f"n{i}", stage, "Neg", "", "", (i,), ("Neg",)) for i, stage in enumerate(stages))]


@pytest.mark.parametrize(
    "boxes, expected",
    [
        (chain("forward", "forward"), [(), ("Neg", "Neg")]),
        (chain("forward", "loss"), [(), ("Neg",), ("Neg",)]),  # another stage
        ([*chain("forward", "forward"), Box("m", "forward", "Abs", "", "", (1,), ("Abs",))],
         [(), ("Neg",), ("Neg",), ("Abs",)]),  # two readers
        ([*chain("forward"), Box("r", "forward", "Abs", "", "", (0,), ("Abs",)),
          Box("s", "forward", "Add", "", "", (1, 2), ("Add",))],
         [(), ("Neg",), ("Abs",), ("Add",)]),  # two operands
    ],
    ids=["chain", "stages", "readers", "operands"],
)  # fmt: skip
def test_chains_of_one_stage_are_folded(boxes, expected):
    found = folded(boxes)
    assert [box.nodes for box in found] == expected
    assert all(j < i for i, box in enumerate(found) for j in box.reads)


def test_a_long_chain_says_how_many_nodes_it_has():
    (_, box) = folded(chain(*["forward"] * 5))
    assert box.title == "Neg → … → Neg (5)"
    assert box.reads == (0,)


def test_a_drawing_that_cannot_be_written_leaves_the_former_file(tmp_path, monkeypatch):
    path = tmp_path / "picture.svg"
    path.write_text("former")

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="picture.svg' cannot be written: No space left on device"):
        Picture("one", folded(chain("forward")), "").save(path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["former"]


def test_names_are_escaped(tmp_path):
    box = Box('a<b>&"c', "forward", "Add <", "(1, 2)", "a & b", (), ("Add",))
    Picture("one < two", (box,), "note & more").save(tmp_path / "picture.svg")
    root = ET.parse(tmp_path / "picture.svg").getroot()
    (node,) = [g for g in root.iter(f"{SVG}g") if g.get("class") == "node"]
    assert node.get("data-name") == 'a<b>&"c'
    (style,) = root.iter(f"{SVG}style")
    assert all(rule.startswith(".onnxtrain-graph ") for rule in style.text.split("}") if rule)
    assert root.get("class") == "onnxtrain-graph"
    assert "note & more" in [text.text for text in root.iter(f"{SVG}text")]
