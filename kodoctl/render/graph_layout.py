"""Layout of the lane graph: rows and columns as wide as their names, tracks and labels need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import networkx as nx

from kodoctl.render.graph_grid import (
    COLUMNS,
    NAME_POINTS,
    PAD,
    Band,
    GridArrow,
    LevelRows,
    Picture,
    make_grid,
    text_width,
)
from kodoctl.render.graph_routes import LineRouter
from kodoctl.render.graph_text import arrows

if TYPE_CHECKING:
    from kodoctl.topology.graph import GraphNode

_MARGIN: Final = 0.5  # at the left, for the names of levels
_TITLE: Final = 0.42


def arrange(graph: nx.MultiDiGraph[GraphNode]) -> Picture:
    """The picture of a graph of lanes."""
    boxes, bands = make_grid(graph)
    columns = [state for state in COLUMNS if any(box.lane.state is state for box in boxes.values())]
    for box in boxes.values():
        box.column = columns.index(box.lane.state)
    lines = [GridArrow(boxes[source], boxes[target], moves) for source, target, moves in arrows(graph)]
    router = LineRouter(list(boxes.values()), lines, len(columns), max(band.last for band in bands) + 1)
    titles = _place_rows(router, bands)
    left = _place_columns(router)
    router.draw()
    placed = [Band(b.name, router.top[b.first] - PAD / 2, router.bottom[b.last] + PAD / 2) for b in bands if b.name]
    headers = [(state, router.centres[number]) for number, state in enumerate(columns)]
    height = router.bottom[-1] + 2 * PAD
    return Picture(list(boxes.values()), lines, placed, headers, titles, left, router.width, height)


def _place_rows(router: LineRouter, bands: list[LevelRows]) -> list[tuple[str, float]]:
    """Rows from the top down, each with the channels above and below it as high as their labels need."""
    titles: list[tuple[str, float]] = []
    y = 0.35  # the names of the columns
    for number, band in enumerate(bands):
        if number == 0 or bands[number - 1].title != band.title:
            titles.append((band.title, y + 0.25))
            y += _TITLE
        for row in range(band.first, band.last + 1):
            router.top.append(y)
            y = router.place_row(row, y + PAD) + PAD
            router.bottom.append(y)
        y += PAD
    return titles


def _place_columns(router: LineRouter) -> float:
    """Columns from the left, each gap as wide as its tracks and labels need. Returns where bands begin."""
    x = router.place_left(_MARGIN)
    for column in range(router.columns):
        boxes = [box for box in router.boxes if box.column == column]
        width = max(max(text_width(line, NAME_POINTS) for line in box.lines) for box in boxes) + 2 * PAD
        for box in boxes:
            box.x, box.width = x + width / 2, width
        router.centres.append(x + width / 2)
        x = router.place_gap(column, x + width)
    router.width = x + PAD
    return PAD / 2
