"""A report's pictures: the same chart for a page (SVG, light and dark, wide and narrow) and for a chat (PNG).

Colours are Okabe and Ito's, which colour-blind people tell apart; nothing is told by colour alone: bars are named, marks have
shapes, lines have dashes. Needs matplotlib (extras `spark` and `draw`).
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kodoctl.render import report_words as words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = dict[str, Any]
_WIDE, _NARROW, _ROW = 9.2, 4.1, 0.36  # inches
_TENANTS: Final = 10
_TICKS: Final = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)  # ms


@dataclass(frozen=True, slots=True)
class Style:
    """What a chart is drawn for: colours of text, of states, of marks; and how wide."""

    ink: str
    quiet: str
    line: str
    states: tuple[str, ...]  # as kodoctl.pipeline.report.STATES
    marks: tuple[str, str, str]
    narrow: bool = False

    @property
    def width(self) -> float:
        """Inches."""
        return _NARROW if self.narrow else _WIDE

    def state(self, name: str) -> str:
        """The colour of a state."""
        return dict(zip(("ready", "retrying", "pending", "blocking", "dead"), self.states, strict=True))[name]


LIGHT: Final = Style(
    "#1b1f24", "#57606a", "#d0d7de", ("#0072b2", "#d55e00", "#009e73", "#b35c8d", "#4d5560"), ("#0072b2", "#d55e00", "#4d5560")
)  # fmt: skip
NARROW: Final = replace(LIGHT, narrow=True)
_DARK: Final = {
    "#1b1f24": "#e6edf3", "#57606a": "#9aa4af", "#d0d7de": "#3a424c", "#0072b2": "#56b4e9", "#d55e00": "#e69f00",
    "#009e73": "#2bb98f", "#b35c8d": "#cc79a7", "#4d5560": "#aab4bf",
}  # fmt: skip


Paint = Callable[[Json, Style], "Figure | None"]


def svg(paint: Paint, document: Json, style: Style) -> str | None:
    """One chart as an SVG document with selectable text; None where there is nothing to draw. The same document gives the same
    text.
    """
    import matplotlib as mpl

    with mpl.rc_context(_settings(style) | {"svg.hashsalt": "kodoctl", "svg.fonttype": "none"}):
        figure = paint(document, style)
        if figure is None:
            return None
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return stream.getvalue().decode().replace("'DejaVu Sans'", "'DejaVu Sans',Verdana,sans-serif")


def dark(drawn: str) -> str:
    """An SVG of ours for a dark ground: the same picture, each colour with its counterpart."""
    return re.sub("|".join(_DARK), lambda found: _DARK[found[0]], drawn)


def png(paint: Paint, document: Json, style: Style = LIGHT) -> bytes | None:
    """The same as a PNG on white, for places that show nothing else."""
    import matplotlib as mpl

    with mpl.rc_context(_settings(style)):
        figure = paint(document, style)
        if figure is None:
            return None
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def _settings(style: Style) -> Any:
    return {
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": style.ink, "axes.labelcolor": style.quiet,
        "xtick.color": style.quiet, "ytick.color": style.ink, "axes.edgecolor": style.line, "grid.color": style.line,
        "text.parse_math": False, "axes.unicode_minus": False,
    }  # fmt: skip


def _figure(style: Style, height: float, title: str) -> Figure:
    """With the headline in it where it is to stand alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.width, height), layout="constrained")
    if title:
        figure.suptitle("\n".join(textwrap.wrap(title, 88)), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _bare(axes: Axes, *, grid: bool = True) -> None:
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    if grid:
        axes.grid(visible=True, axis="x", linewidth=0.8)
        axes.set_axisbelow(True)


def _bars(axes: Axes, rows: Sequence[tuple[str, float, str, str]], style: Style) -> None:
    """(name, value, text, colour), from the top down. On a narrow screen the name stands above its bar."""
    from matplotlib.transforms import blended_transform_factory

    at = [len(rows) - 1 - number for number in range(len(rows))]
    thick = 0.38 if style.narrow else 0.62
    axes.barh(at, [value for _, value, _, _ in rows], height=thick, color=[colour for *_, colour in rows])
    left = blended_transform_factory(axes.transAxes, axes.transData)
    for place, (name, value, text, _) in zip(at, rows, strict=True):
        if style.narrow:
            axes.text(0, place + 0.34, f"{name} · {text}", transform=left, va="center", ha="left", fontsize=9.5)
        else:
            axes.annotate(text, (value, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
    axes.set_yticks(at, [""] * len(rows) if style.narrow else [name for name, *_ in rows])
    axes.set_xticks([])
    axes.set_ylim(-0.6, len(rows) - 0.4 + (0.1 if style.narrow else 0))
    most = max((value for _, value, _, _ in rows), default=0)
    axes.set_xlim(0, (most or 1) * (1.02 if style.narrow else 1.32))
    _bare(axes, grid=False)


def _height(rows: int, style: Style, more: float = 0.25) -> float:
    return rows * (0.58 if style.narrow else _ROW) + more


def waiting(document: Json, style: Style, title: str = "") -> Figure | None:
    """How many messages wait in each lane, and since when."""
    rows = [
        (
            words.lane(document, one),
            float(one["messages"]),
            f"{one['messages']:,} · oldest {words.spell(one['oldest_ms'])}",
            style.state(one["state"]),
        )
        for one in document["waiting"]
    ]
    if not rows:
        return None
    figure = _figure(style, _height(len(rows), style), title)
    _bars(figure.subplots(), rows, style)
    return figure


def failures(document: Json, style: Style, title: str = "") -> Figure | None:
    """How many runs of a handler failed for which reason."""
    found = words.reasons(document)
    total = sum(number for _, number in found)
    rows = [
        (
            words.shown(name, 30 if style.narrow else 44),
            float(number),
            f"{number:,} · {100 * number / total:.0f} %",
            style.states[1],
        )
        for name, number in found
    ]
    if not rows:
        return None
    figure = _figure(style, _height(len(rows), style), title)
    _bars(figure.subplots(), rows, style)
    return figure


def latency(document: Json, style: Style, title: str = "") -> Figure | None:
    """How long messages took until they were done, lane by lane, on a scale where each line is ten times the one before."""
    rows = [one for one in document["latency"] if one["done"]]
    if not rows:
        return None
    figure = _figure(style, _height(len(rows), style, 1.0), title)
    axes = figure.subplots()
    _ranges(axes, [(words.lane(document, one), one) for one in rows], style)
    return figure


def _ranges(axes: Axes, rows: Sequence[tuple[str, Json]], style: Style, *, named: bool = True) -> None:
    """A line from p50 to p99 for each, with a mark for each of the three."""
    from matplotlib.ticker import FixedLocator, NullLocator
    from matplotlib.transforms import blended_transform_factory

    at = [len(rows) - 1 - number for number in range(len(rows))]
    left = blended_transform_factory(axes.transAxes, axes.transData)
    marks = (("p50", "o", "half of them"), ("p95", "s", "95 of 100"), ("p99", "D", "99 of 100"))
    for place, (name, one) in zip(at, rows, strict=True):
        if one:
            axes.plot([_seen(one["p50"]), _seen(one["p99"])], [place] * 2, color=style.line, linewidth=3, zorder=1)
        if style.narrow and named:
            axes.text(0, place + 0.36, name, transform=left, va="center", fontsize=9.5)
    for (share, shape, told), colour in zip(marks, style.marks, strict=True):
        points = [(_seen(one[share]), place) for place, (_, one) in zip(at, rows, strict=True) if one]
        across, down = [x for x, _ in points], [y for _, y in points]
        axes.scatter(across, down, marker=shape, s=46, color=colour, label=told, zorder=2)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.3, high * 1.3)
    axes.xaxis.set_major_locator(FixedLocator(_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: words.spell(value))
    axes.set_yticks(at, [""] * len(rows) if style.narrow or not named else [name for name, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4 + (0.15 if style.narrow else 0))
    _bare(axes)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        fontsize=9.5,
        handletextpad=0.1,
        columnspacing=1.2,
    )


def _seen(ms: float) -> float:
    """What took less than a millisecond stands at half of one: a logarithm has no zero."""
    return max(ms, 0.5)


def tenants(document: Json, style: Style, title: str = "") -> Figure | None:
    """Who sent how much, and how long each waited."""
    rows = document["tenants"][:_TENANTS]
    if not rows:
        return None
    bars = [
        (words.shown(one["tenant"], 22), float(one["arrivals"]), f"{one['arrivals']:,} · {100 * one['share']:.0f} %",
         style.states[1] if one["noisy"] else style.states[0])
        for one in rows
    ]  # fmt: skip
    late = [(name, one["latency_ms"]) for (name, *_), one in zip(bars, rows, strict=True)]
    if not any(one for _, one in late):
        figure = _figure(style, _height(len(rows), style, 0.5), title)
        _bars(figure.subplots(), bars, style)
        return figure
    tall = _height(len(rows), style, 1.0)
    figure = _figure(style, 2 * tall if style.narrow else tall, title)
    left, right = figure.subplots(2, 1) if style.narrow else figure.subplots(1, 2, width_ratios=(1, 1.05))
    _bars(left, bars, style)
    left.set_title("messages sent", loc="left", fontsize=9.5, color=style.quiet, pad=8)
    _ranges(right, late, style, named=style.narrow)
    return figure


def traffic(document: Json, style: Style, title: str = "") -> Figure | None:
    """What arrived, was done and failed, over time."""
    points, width = document["over_time"]["points"], document["over_time"]["width_ms"]
    if len(points) < 3:
        return None
    figure = _figure(style, 2.6 if style.narrow else 2.8, title)
    axes = figure.subplots()
    at: Any = [datetime.fromtimestamp(one["at"] / 1000, UTC) for one in points]
    for (name, told, dash, shape), colour in zip(_SERIES, style.states, strict=False):
        counts = [one[name] for one in points]
        if any(counts):
            axes.plot(at, counts, dash, marker=shape, markersize=4, color=colour, label=told, linewidth=1.6)
    _bare(axes)
    axes.grid(visible=True, axis="both", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="y", nbins=4)
    _clock(axes, style)
    axes.set_title(f"messages in {words.spell(width)}", loc="right", fontsize=9.5, color=style.quiet)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=2 if style.narrow else 4, frameon=False, fontsize=9.5
    )
    return figure


_SERIES: Final = (
    ("arrivals", "arrived", "-", "o"),
    ("failed", "failed", ":", "^"),
    ("done", "done", "--", "s"),
    ("over_limit", "over a limit", "-.", "D"),
)


def _clock(axes: Axes, style: Style) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(  # type: ignore[no-untyped-call]
        minticks=3, maxticks=4 if style.narrow else 9
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


CHARTS: Final[dict[str, Callable[..., Figure | None]]] = {
    "waiting": waiting,
    "latency": latency,
    "failures": failures,
    "tenants": tenants,
    "traffic": traffic,
}


def for_chat(document: Json) -> Iterator[tuple[str, bytes]]:
    """(name of the file, PNG) of the verdict and of every chart that has something to show, each with its headline."""
    titles = {"waiting": words.waiting, "latency": words.slow, "failures": words.failing, "tenants": words.noisy}
    yield "verdict.png", png(_card, document) or b""
    for name, paint in CHARTS.items():
        title = titles[name](document) if name in titles else "What happened when"
        if data := png(partial(paint, title=title), document):
            yield f"{name}.png", data


def _card(document: Json, style: Style) -> Figure:
    """The verdict and the headlines, to be read at a glance."""
    from matplotlib.patches import Rectangle

    kind, title, _ = words.verdict(document)
    colour, sign = {"good": ("#006b4f", "✓"), "bad": ("#a63a00", "✗"), "open": ("#5c4a00", "?")}[kind]
    lines = [part for one in list(words.headlines(document))[1:] for part in textwrap.wrap(one, 118)]
    height = 1.35 + 0.25 * len(lines)
    figure = _figure(style, height, "")
    figure.set_layout_engine("none")
    band = 0.85 / height
    figure.add_artist(Rectangle((0, 1 - band), 1, band, transform=figure.transFigure, color=colour))
    middle = 1 - band / 2
    figure.text(0.02, middle, f"{sign}  {title}", color="white", fontsize=17, fontweight="bold", va="center")
    figure.text(0.98, middle, document["topology"], color="white", fontsize=11, va="center", ha="right")
    figure.text(0.02, 1 - band - 0.18 / height, "\n".join(lines), va="top", fontsize=10, linespacing=1.6)
    figure.text(0.02, 0.08 / height, words.span(document), va="bottom", fontsize=8.5, color=style.quiet)
    return figure
