"""The parts of a picture of lanes: boxes in a grid (columns are states, rows are levels) and the lines between them.

All lengths are inches, y downwards.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Final

import networkx as nx

from kodoctl.render.graph_text import groups
from kodoctl.topology.graph import GraphEdge, GraphNode, MoveReason
from kodoctl.topology.names import State

COLUMNS: Final = (State.READY, State.BLOCKING, State.PENDING, State.RETRYING, State.DEAD)
BOX_HEIGHT: Final = 0.46
NAME_POINTS: Final = 8.5
LABEL_POINTS: Final = 7.5
PAD: Final = 0.11
_EM: Final = 0.62  # width of a letter as a share of the font size: a sans serif font, many capitals

Point = tuple[float, float]


@dataclass
class Box:
    """A lane's rectangle, by its centre."""

    lane: GraphNode
    column: int
    rows: tuple[int, int]
    lines: list[str]
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = BOX_HEIGHT


@dataclass
class GridArrow:
    """An arrow: its corners, its words and where they stand."""

    source: Box
    target: Box
    moves: list[GraphEdge]
    points: list[Point] = field(default_factory=list)
    label_at: Point = (0.0, 0.0)
    upright: bool = False  # the label runs along a vertical line
    folded: bool = False  # the label stands in a narrow gap

    @property
    def words(self) -> list[str]:
        """The label, line by line."""
        labels = [_short(move.label) for move in self.moves]
        return [part for label in labels for part in textwrap.wrap(label, 9)] if self.folded else labels

    @property
    def is_recall(self) -> bool:
        """Recall is the one move that people make."""
        return self.moves[0].reason is MoveReason.RECALL


@dataclass(frozen=True)
class Band:
    """The background of a level."""

    name: str
    top: float
    bottom: float


@dataclass
class Picture:
    """Everything placed; `headers` are (state, x), `titles` are (ground topic, y)."""

    boxes: list[Box]
    lines: list[GridArrow]
    bands: list[Band]
    headers: list[tuple[State, float]]
    titles: list[tuple[str, float]]
    left: float
    width: float
    height: float


@dataclass
class LevelRows:
    """A level of a ground topic: rows `first` to `last`."""

    title: str
    name: str
    first: int
    last: int


def _short(label: str, most: int = 32) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def text_width(text: str, points: float) -> float:
    """About how wide a text is, rather too wide than too narrow."""
    return len(text) * points * _EM / 72


def make_grid(graph: nx.MultiDiGraph[GraphNode]) -> tuple[dict[GraphNode, Box], list[LevelRows]]:
    """Every lane in its rows: a level has a row for each subscription with lanes there; ready lanes span them."""
    boxes: dict[GraphNode, Box] = {}
    bands: list[LevelRows] = []
    for title, levels in groups(graph):
        dead = levels.pop("", []) if len(levels) > 1 else []
        names = list(levels)
        home = next((name for name in names if name.startswith("B")), names[-1])
        for name in names:
            lanes = [*levels[name], *(dead if name == home else [])]
            subs = list(dict.fromkeys(lane.subscription for lane in lanes if lane.subscription)) or [""]
            first = bands[-1].last + 1 if bands else 0
            bands.append(LevelRows(title, name, first, first + len(subs) - 1))
            for lane in lanes:
                shown = _name_lines(lane)
                row = first + subs.index(lane.subscription) if lane.subscription else first
                rows = (row, row) if lane.subscription else (first, first + len(subs) - 1)
                boxes[lane] = Box(lane, 0, rows, shown, height=max(BOX_HEIGHT, 0.18 * len(shown)))
    return boxes, bands


def _name_lines(lane: GraphNode) -> list[str]:
    """A name on at most two lines, broken before its last part."""
    name = lane.topic.local
    lines = [name]
    if len(name) > 18 and "-" in name[1:]:
        head, _, tail = name.rpartition("-")
        lines = [head, f"-{tail}"]
    return [*lines, "(draining)"] if lane.draining else lines
