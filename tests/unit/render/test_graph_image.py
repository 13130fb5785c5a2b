"""Pictures: nothing overlaps, every arrow ends at its boxes, and the same graph gives the same bytes."""

from __future__ import annotations

import itertools
from pathlib import Path

import networkx as nx
import pytest

from kodoctl.render.graph_grid import LABEL_POINTS, NAME_POINTS, Box, GridArrow, Picture, text_width
from kodoctl.render.graph_image import draw
from kodoctl.render.graph_layout import arrange
from kodoctl.topology.expand import expand
from kodoctl.topology.graph import GraphNode, lane_graph
from kodoctl.topology.load import load_topology
from tests.unit.topology.making import expanded

ROOT = Path(__file__).parents[3]
EVERYTHING = """\
topics:
  jobs:
    levels: [S1, L1, L2, D1]
    fair_by: key
    draining: [B1]
    subscriptions:
      alpha: {produces: [k/other/thing, logs], routes: [{when: {property: kind, in: [aaaaaaaaaaa, bbbbbbbbbb, cccccccccc]}, to: S1}]}
      beta: {states: [retrying], draining: [pending]}
      ordered: {type: key_shared}
  logs: {backup: true, subscriptions: {x: {states: [], dead_letter: true}, y: {states: [pending, blocking], dead_letter: false}}}
  alone: {}
"""
GRAPHS = {path.stem: path for path in sorted((ROOT / "topologies").rglob("*.yaml"))}
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


def graph_of(name: str) -> nx.MultiDiGraph[GraphNode]:
    return lane_graph([expand(load_topology(str(GRAPHS[name])))] if name in GRAPHS else [expanded(EVERYTHING)])


@pytest.fixture(params=[*GRAPHS, "everything"])
def picture(request: pytest.FixtureRequest) -> Picture:
    return arrange(graph_of(request.param))


def box_area(box: Box) -> Rectangle:
    return box.x - box.width / 2, box.y - box.height / 2, box.x + box.width / 2, box.y + box.height / 2


def label_area(line: GridArrow) -> Rectangle:
    width = max(text_width(word, LABEL_POINTS) for word in line.words) * 0.9  # the estimate is on the wide side
    height = len(line.words) * LABEL_POINTS * 1.1 / 72
    if line.upright:
        width, height = height, width
    x, y = line.label_at
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_no_box_covers_another(picture: Picture) -> None:
    assert not [pair for pair in itertools.combinations(map(box_area, picture.boxes), 2) if overlap(*pair)]


def test_no_label_covers_another_label_or_a_box(picture: Picture) -> None:
    labels = [(line.words, label_area(line)) for line in picture.lines]
    assert not [(a[0], b[0]) for a, b in itertools.combinations(labels, 2) if overlap(a[1], b[1])]
    boxes = [box_area(box) for box in picture.boxes]
    assert not [words for words, area in labels if any(overlap(area, box) for box in boxes)]


def test_no_arrow_runs_through_a_box(picture: Picture) -> None:
    for line in picture.lines:
        for (x1, y1), (x2, y2) in itertools.pairwise(line.points):
            assert x1 == x2 or y1 == pytest.approx(y2), "arrows have right angles"
            area = (min(x1, x2), min(y1, y2), max(x1, x2) + 1e-9, max(y1, y2) + 1e-9)
            crossed = [box.lines for box in picture.boxes if overlap(area, shrunk(box_area(box)))]
            assert not crossed, f"{line.words} through {crossed}"


def shrunk(area: Rectangle) -> Rectangle:
    return area[0] + 1e-6, area[1] + 1e-6, area[2] - 1e-6, area[3] - 1e-6


def test_every_arrow_begins_and_ends_on_the_edge_of_its_boxes(picture: Picture) -> None:
    for line in picture.lines:
        for (x, y), box in ((line.points[0], line.source), (line.points[-1], line.target)):
            left, top, right, bottom = box_area(box)
            assert left - 1e-6 <= x <= right + 1e-6, line.words
            assert top - 1e-6 <= y <= bottom + 1e-6, line.words
            assert min(abs(x - left), abs(x - right), abs(y - top), abs(y - bottom)) < 1e-6, line.words


def test_names_fit_their_boxes_and_all_of_it_the_picture(picture: Picture) -> None:
    for box in picture.boxes:
        assert max(text_width(line, NAME_POINTS) for line in box.lines) <= box.width
    for x1, y1, x2, y2 in [*map(box_area, picture.boxes), *map(label_area, picture.lines)]:
        assert 0 <= x1 <= x2 <= picture.width
        assert 0 <= y1 <= y2 <= picture.height


def test_higher_levels_stand_above_lower_ones(picture: Picture) -> None:
    tops = [band.top for band in picture.bands]
    assert tops == sorted(tops)


def test_long_conditions_are_cut() -> None:
    (line,) = [line for line in arrange(graph_of("everything")).lines if line.words[0].startswith("kind is")]
    assert line.words == ["kind is one of aaaaaaaaaaa, bbb…"]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_graph_gives_the_same_picture(kind: str) -> None:
    first, second = (draw(graph_of("double"), kind) for _ in range(2))
    assert first == second
    assert first.startswith(b"<?xml" if kind == "svg" else b"\x89PNG")


def test_an_svg_keeps_its_texts_as_texts() -> None:
    text = draw(graph_of("trade"), "svg").decode()
    assert "orders-billing-DLQ" in text
    assert "attempts used up" in text
