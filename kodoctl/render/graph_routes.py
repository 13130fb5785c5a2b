"""Arrows through the channels of a grid: which way each one goes, on which track, and where its label lies.

No two lines share a track, and every label lies on its line's own track: they cannot overlap.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

from kodoctl.render.graph_grid import BOX_HEIGHT, LABEL_POINTS, PAD, Box, GridArrow, Point, text_width

_TRACK: Final = 0.11  # between two vertical lines
_LINE_HEIGHT: Final = LABEL_POINTS * 1.25 / 72
_CLEAR: Final = 0.06  # between boxes and the tracks next to them
_PORT: Final = 0.075  # between two arrows at the same side of a box


class Way(Enum):
    """The shape of an arrow."""

    STRAIGHT = auto()  # along its row
    ELBOW = auto()  # right, up or down in the gap, right
    OVER = auto()  # right, up, along the channel above the target, down into it
    UNDER = auto()  # down, along the channel below its row, up into the target
    UNDER_RIGHT = auto()  # down, along the channel below its row, along the gap before the target, right into it
    BACK = auto()  # down, back along the channel below its row, along the first gap, left into a ready lane
    BACK_OVER = auto()  # up, back along the channel above its row, along the first gap, left into a ready lane
    LEFT = auto()  # between two ready lanes, at the left of both
    AROUND = auto()  # right, up in the gap, back along the channel above the target, down into it


SIDES: Final = {
    Way.STRAIGHT: ("right", "left"),
    Way.ELBOW: ("right", "left"),
    Way.OVER: ("right", "top"),
    Way.UNDER: ("bottom", "bottom"),
    Way.UNDER_RIGHT: ("bottom", "left"),
    Way.BACK: ("bottom", "right"),
    Way.BACK_OVER: ("top", "right"),
    Way.LEFT: ("left", "left"),
    Way.AROUND: ("right", "top"),
}
"""The side of the source that a way leaves from, and the side of the target that it comes to."""


class _Channel:
    """Space between rows: one track for each arrow, as high as its label."""

    def __init__(self) -> None:
        self.heights: list[float] = []
        self.top = 0.0

    def take(self, line: GridArrow) -> int:
        """Index of a new track, as high as the label of the arrow."""
        self.heights.append(len(line.words) * _LINE_HEIGHT + 0.05)
        return len(self.heights) - 1

    @property
    def height(self) -> float:
        """Room for all tracks, and for an arrow's head between the nearest one and the boxes."""
        return sum(self.heights) + _CLEAR if self.heights else 0.0

    def y(self, track: int) -> float:
        """The middle of a track."""
        return self.top + sum(self.heights[:track]) + self.heights[track] / 2


@dataclass
class _Route:
    """A line with its way and its tracks: `gap` is the column at whose right it runs up or down."""

    line: GridArrow
    way: Way
    gap: int | None = None
    vertical: int = 0
    channel: _Channel | None = None
    track: int = 0
    out: float = 0.0  # distance from the middle of the side it leaves from
    into: float = 0.0


class LineRouter:
    """Chooses a way for every line, then (when rows and columns are placed) gives it corners and a place for its
    label.
    """

    def __init__(self, boxes: list[Box], lines: list[GridArrow], columns: int, rows: int) -> None:
        self.boxes, self.columns = boxes, columns
        self.above = [_Channel() for _ in range(rows)]
        self.below = [_Channel() for _ in range(rows)]
        self.verticals: dict[int, int] = defaultdict(int)  # gap -> tracks in it; gap n is at the right of column n
        self.label_width: dict[int, float] = defaultdict(float)
        self.gap_x: dict[int, float] = {}
        self.label_x: dict[int, float] = {}
        self.left_x: dict[int, float] = {}
        self.top: list[float] = []
        self.bottom: list[float] = []
        self.centres: list[float] = []
        self.width = 0.0
        # the farthest target first: it gets the outermost track everywhere, so that lines from one box do not cross
        ordered = sorted(lines, key=lambda line: (-abs(line.target.column - line.source.column), -_span(line)))
        self.routes = [self.route(line) for line in ordered]
        self.assign_ports()

    def way(self, line: GridArrow) -> Way:
        """The way that crosses no box."""
        source, target = line.source, line.target
        if source.column == 0 and target.column == 0:
            return Way.LEFT
        if target.column == 0:
            return Way.BACK_OVER if line.is_recall else Way.BACK
        if source.column > target.column:
            return Way.AROUND
        between = (box for box in self.boxes if source.column < box.column < target.column)
        if source.rows == target.rows and not any(box.rows[0] <= source.rows[0] <= box.rows[1] for box in between):
            return Way.STRAIGHT
        if target.column == source.column + 1:
            return Way.ELBOW
        if source.rows != target.rows and target.column == self.columns - 1:
            return Way.UNDER_RIGHT
        return Way.OVER if source.column == 0 else Way.UNDER

    def route(self, line: GridArrow) -> _Route:
        """The line with tracks of its own reserved, and room for its label where it needs some."""
        source, target, way = line.source, line.target, self.way(line)
        gap: int | None = None
        channel: _Channel | None = None
        match way:
            case Way.ELBOW:
                gap = source.column
            case Way.OVER:
                gap, channel = 0, self.above[target.rows[0]]
            case Way.AROUND:
                gap, channel = source.column, self.above[target.rows[0]]
            case Way.UNDER:
                channel = self.below[source.rows[1]]
            case Way.UNDER_RIGHT:
                gap, channel = target.column - 1, self.below[source.rows[1]]
            case Way.BACK:
                gap, channel = 0, self.below[source.rows[1]]
            case Way.BACK_OVER:
                gap, channel = 0, self.above[source.rows[0]]
            case Way.STRAIGHT | Way.LEFT:
                line.upright = way is Way.LEFT
            case _:
                assert_never(way)
        route = _Route(line, way, gap, channel=channel)
        if route.channel is None and not line.upright:
            self.make_room(line)
        if route.channel is not None:
            route.track = route.channel.take(line)
        if route.gap is not None:
            route.vertical = self.verticals[route.gap]
            self.verticals[route.gap] += 1
        return route

    def make_room(self, line: GridArrow) -> None:
        """Widens the gap before the target for the label of a line that stays in its row."""
        line.folded = line.target.column == line.source.column + 1
        gap = line.target.column - 1
        widest = max(text_width(word, LABEL_POINTS) for word in line.words)
        self.label_width[gap] = max(self.label_width[gap], widest + PAD if line.folded else 0.0)

    def assign_ports(self) -> None:
        """Spreads the lines at each side of a box; a straight line stands in the middle, the others above it."""
        sides: dict[tuple[int, str], list[tuple[_Route, bool]]] = defaultdict(list)
        for route in self.routes:
            out, into = SIDES[route.way]
            sides[id(route.line.source), out].append((route, True))
            sides[id(route.line.target), into].append((route, False))
        for ends in sides.values():
            moved = [end for end in ends if end[0].way is not Way.STRAIGHT]
            if moved and moved[0][0].way is Way.LEFT:
                moved.sort(key=lambda end: _nested(end[0], leaves=end[1]))
            straight = len(moved) < len(ends)
            if moved and SIDES[moved[0][0].way][not moved[0][1]] in ("left", "right"):
                box = moved[0][0].line.source if moved[0][1] else moved[0][0].line.target
                box.height = max(box.height, _PORT * (2 * len(moved) if straight else len(moved)) + 2 * _PORT)
            for number, (route, leaves) in enumerate(moved):
                shift = len(moved) if straight else (len(moved) - 1) / 2
                offset = _PORT * (number - shift)
                if leaves:
                    route.out = offset
                else:
                    route.into = offset

    # --- places, once the sizes are known

    def place_row(self, row: int, y: float) -> float:
        """Puts a row's channels and boxes below `y`; returns where it ends."""
        self.above[row].top = y
        y += self.above[row].height
        height = max([BOX_HEIGHT, *(box.height for box in self.boxes if box.rows == (row, row))])
        for box in self.boxes:
            if box.rows[0] <= row <= box.rows[1]:
                box.y += (y + height / 2) / (box.rows[1] - box.rows[0] + 1)
        self.below[row].top = y + height + _CLEAR
        return y + height + self.below[row].height

    def place_left(self, x: float) -> float:
        """Puts the lines at the left of the first column; returns where it begins."""
        for route in self.routes:
            if route.way is Way.LEFT:
                half = len(route.line.words) * _LINE_HEIGHT / 2
                x += half
                self.left_x[id(route)] = x
                x += half + 0.04
        return x + 2 * PAD

    def place_gap(self, column: int, x: float) -> float:
        """Puts the gap at the right of a column; returns where the next column begins."""
        tracks, labels = 2 * PAD + self.verticals[column] * _TRACK, self.label_width[column]
        first = labels if self.labels_first(column) else 0.0
        self.gap_x[column] = x + first + 1.5 * PAD
        self.label_x[column] = x + (PAD + labels / 2 if first else tracks + labels / 2)
        return x + tracks + labels + 2 * PAD

    def labels_first(self, column: int) -> bool:
        """Lines into the last column come together at its boxes: their labels stand where they set out."""
        return column == self.columns - 2 and column > 0

    def draw(self) -> None:
        """Corners and labels of every line."""
        for route in self.routes:
            route.line.points, route.line.label_at = self.corners(route)

    def corners(self, route: _Route) -> tuple[list[Point], Point]:
        """The points of a line, and the middle of its label."""
        source, target = route.line.source, route.line.target
        out, into = SIDES[route.way]
        start, end = _port(source, out, route.out), _port(target, into, route.into)
        across = self.gap_x[route.gap] + route.vertical * _TRACK if route.gap is not None else 0.0
        along = route.channel.y(route.track) if route.channel else 0.0
        match route.way:
            case Way.STRAIGHT:
                x = self.label_x[source.column] if route.line.folded else (start[0] + end[0]) / 2
                return [start, end], (x, end[1])
            case Way.ELBOW:
                middle = [(across, start[1]), (across, end[1])]
                y = start[1] if self.labels_first(source.column) else end[1]
                return [start, *middle, end], (self.label_x[source.column], y)
            case Way.LEFT:
                x = self.left_x[id(route)]
                return [start, (x, start[1]), (x, end[1]), end], (x, (start[1] + end[1]) / 2)
            case Way.OVER | Way.AROUND:
                middle = [(across, start[1]), (across, along), (end[0], along)]
                label = (across + end[0]) / 2
            case Way.UNDER:
                middle = [(start[0], along), (end[0], along)]
                label = (start[0] + end[0]) / 2
            case Way.UNDER_RIGHT | Way.BACK | Way.BACK_OVER:
                middle = [(start[0], along), (across, along), (across, end[1])]
                label = self.label_x[source.column if route.way is Way.UNDER_RIGHT else source.column - 1]
            case _:
                assert_never(route.way)
        return [start, *middle, end], (label, along)


def _span(line: GridArrow) -> int:
    """Number of rows that a line crosses."""
    return abs(line.target.rows[0] - line.source.rows[0])


def _nested(route: _Route, *, leaves: bool) -> tuple[int, int]:
    """The order of lines at the left of a box in which none crosses another: outer tracks belong to longer lines."""
    here, there = route.line.source.rows[0], route.line.target.rows[0]
    comes_from_above = (there < here) == leaves
    return (0, _span(route.line)) if comes_from_above else (1, -_span(route.line))


def _port(box: Box, side: str, offset: float) -> Point:
    match side:
        case "right":
            return box.x + box.width / 2, box.y + offset
        case "left":
            return box.x - box.width / 2, box.y + offset
        case "top":
            return box.x + offset * 2, box.y - box.height / 2
        case _:
            return box.x + offset * 2, box.y + box.height / 2
