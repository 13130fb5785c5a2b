"""Lanes and moves as a picture, SVG or PNG. Needs matplotlib (extra `draw`)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import networkx as nx

from kodoctl.errors import UsageError, error
from kodoctl.render.graph_grid import LABEL_POINTS, NAME_POINTS, Box, GridArrow, Picture
from kodoctl.render.graph_layout import arrange
from kodoctl.render.graph_text import FILLS
from kodoctl.topology.graph import GraphNode, MoveReason
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK: Final = "#1b1b1b"
_COLOURS: Final = {
    MoveReason.FAILED: "#a86a00",
    MoveReason.EXHAUSTED: "#7a4d00",
    MoveReason.OVER_RATE: "#1f5fa8",
    MoveReason.OVER_QUOTA: "#6a3fb0",
    MoveReason.ISOLATED: "#0b7285",
    MoveReason.ROUTE: "#0b7285",
    MoveReason.RECALL: "#b3261e",
    MoveReason.PRODUCES: "#2e7d46",
}
_HEADERS: Final = {State.DEAD: "dead letters"}


def draw(graph: nx.MultiDiGraph[GraphNode], kind: str) -> bytes:
    """The picture as `svg` or `png` bytes; the same graph gives the same bytes. Raises
    UsageError without matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        detail = "Pictures need matplotlib: pip install '.[draw]' in a clone of kodoctl\nMermaid and DOT need nothing: --format mermaid"
        raise UsageError(error("K027", "matplotlib is missing", detail)) from None
    picture = arrange(graph)
    with mpl.rc_context({"svg.hashsalt": "kodoctl", "svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(picture.width, picture.height), dpi=160, facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, picture.width)
        axes.set_ylim(picture.height, 0)
        axes.set_axis_off()
        _paint(axes, picture)
        stream = io.BytesIO()
        metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def _paint(axes: Axes, picture: Picture) -> None:
    from matplotlib.patches import Rectangle

    for band in picture.bands:
        size = (picture.width - 2 * picture.left, band.bottom - band.top)
        axes.add_patch(
            Rectangle((picture.left, band.top), *size, facecolor="#f5f6f8", edgecolor="#e1e4e8", linewidth=0.8)
        )
        axes.text(picture.left + 0.1, band.top + 0.2, band.name, fontsize=10, fontweight="bold", color="#6b7280")
    for state, x in picture.headers:
        axes.text(x, 0.27, _HEADERS.get(state, state.value), fontsize=9.5, color="#6b7280", ha="center")
    for title, y in picture.titles:
        axes.text(
            picture.left + 0.05, y, title, fontsize=12, fontweight="bold", color=_INK, va="center", zorder=3,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    for line in picture.lines:
        _paint_line(axes, line)
    for box in picture.boxes:
        _paint_box(axes, box)


def _paint_line(axes: Axes, line: GridArrow) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    colour = _COLOURS[line.moves[0].reason]
    axes.add_patch(
        FancyArrowPatch(
            path=Path(line.points), arrowstyle="-|>", mutation_scale=9, linewidth=1.1, color=colour, joinstyle="round",
            shrinkA=0, shrinkB=0, linestyle=(0, (4, 2.5)) if line.is_recall else "-",
        )
    )  # fmt: skip
    axes.text(
        *line.label_at, "\n".join(line.words), fontsize=LABEL_POINTS, color=colour, ha="center", rotation=90 if line.upright else 0, va="center",
        linespacing=1.1, zorder=3, bbox={"facecolor": "#f5f6f8", "edgecolor": "none", "pad": 1.2},
    )  # fmt: skip


def _paint_box(axes: Axes, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    fill, edge = FILLS[box.lane.state]
    corner = (box.x - box.width / 2, box.y - box.height / 2)
    dashed = box.lane.draining or not box.lane.declared
    axes.add_patch(
        FancyBboxPatch(
            corner, box.width, box.height, boxstyle="round,pad=0,rounding_size=0.06", facecolor=fill, edgecolor=edge,
            linewidth=1.2, linestyle="--" if dashed else "-", zorder=4,
        )
    )  # fmt: skip
    text = "\n".join(box.lines)
    axes.text(
        box.x, box.y, text, fontsize=NAME_POINTS, color=_INK, ha="center", va="center", linespacing=1.05, zorder=5
    )
