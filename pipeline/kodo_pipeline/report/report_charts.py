# adapter: draws for people
"""Charts of a report: for a page as SVG (light and dark, wide and narrow), and for a chat as PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from kodo_pipeline.charts.charts import Style, bare, drawn_time, height_of, new_figure, png, scale_times
from kodo_pipeline.report import report_words as words
from kodoctl.text.formatting import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kodo_pipeline.report.report_document import ReportDocument

_TENANTS: Final = 10
_SHARES: Final[tuple[Literal["p50", "p95", "p99"], ...]] = ("p50", "p95", "p99")


def _bars(axes: Axes, rows: Sequence[tuple[str, float, str, str]], style: Style) -> None:
    """Draws rows (name, value, text, colour) as bars, from the top down. In a narrow style the name is above its bar."""
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
    bare(axes, grid=False)


def waiting(document: ReportDocument, style: Style, title: str = "") -> Figure | None:
    """Chart of waiting messages and dead letters by lane, with the age of the oldest; None if no lane has such
    messages.
    """
    rows = [
        (
            words.lane(document, one),
            float(one["messages"]),
            f"{one['messages']:,} · oldest {duration_text(one['oldest_ms'])}",
            style.state(one["state"]),
        )
        for one in document["waiting"]
    ]
    if not rows:
        return None
    figure = new_figure(style, height_of(len(rows), style), title)
    _bars(figure.subplots(), rows, style)
    return figure


def failures(document: ReportDocument, style: Style, title: str = "") -> Figure | None:
    """Chart of failed handler runs by cause; None if none failed."""
    found = words.causes(document)
    total = sum(number for _, number in found)
    rows = [
        (
            words.safe_name(name, 30 if style.narrow else 44),
            float(number),
            f"{number:,} · {100 * number / total:.0f} %",
            style.states[1],
        )
        for name, number in found
    ]
    if not rows:
        return None
    figure = new_figure(style, height_of(len(rows), style), title)
    _bars(figure.subplots(), rows, style)
    return figure


def latency(document: ReportDocument, style: Style, title: str = "") -> Figure | None:
    """Chart of the time until messages were done, by lane, on a logarithmic scale; None if none were done."""
    rows = [one for one in document["latency"] if one["done"]]
    if not rows:
        return None
    figure = new_figure(style, height_of(len(rows), style, 1.0), title)
    axes = figure.subplots()
    _ranges(axes, [(words.lane(document, one), {share: one[share] for share in _SHARES}) for one in rows], style)
    return figure


def _ranges(
    axes: Axes, rows: Sequence[tuple[str, Mapping[str, float] | None]], style: Style, *, named: bool = True
) -> None:
    """Draws for each row (name, percentiles) a line from p50 to p99, with a mark at p50, p95 and p99."""
    from matplotlib.transforms import blended_transform_factory

    at = [len(rows) - 1 - number for number in range(len(rows))]
    left = blended_transform_factory(axes.transAxes, axes.transData)
    marks = (("p50", "o", "half of them"), ("p95", "s", "95 of 100"), ("p99", "D", "99 of 100"))
    for place, (name, one) in zip(at, rows, strict=True):
        if one:
            axes.plot(
                [drawn_time(one["p50"]), drawn_time(one["p99"])], [place] * 2, color=style.line, linewidth=3, zorder=1
            )
        if style.narrow and named:
            axes.text(0, place + 0.36, name, transform=left, va="center", fontsize=9.5)
    for (share, shape, caption), colour in zip(marks, style.marks, strict=True):
        points = [(drawn_time(one[share]), place) for place, (_, one) in zip(at, rows, strict=True) if one]
        across, down = [x for x, _ in points], [y for _, y in points]
        axes.scatter(across, down, marker=shape, s=46, color=colour, label=caption, zorder=2)
    scale_times(axes)
    axes.set_yticks(at, [""] * len(rows) if style.narrow or not named else [name for name, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4 + (0.15 if style.narrow else 0))
    bare(axes)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        fontsize=9.5,
        handletextpad=0.1,
        columnspacing=1.2,
    )


def tenants(document: ReportDocument, style: Style, title: str = "") -> Figure | None:
    """Chart of the ten tenants that sent most messages on a topic (a tenant counts on each topic by itself): number of
    messages sent, and time until they were done. None if there are no tenants.
    """
    rows = sorted(document["tenants"], key=lambda one: (-one["arrivals"], -one["done"]))[:_TENANTS]
    if not rows:
        return None
    bars = [
        (words.tenant_label(document, one, 22), float(one["arrivals"]), f"{one['arrivals']:,} · {100 * one['share']:.0f} %",
         style.states[1] if one["noisy"] else style.states[0])
        for one in rows
    ]  # fmt: skip
    late = [(name, one["latency_ms"]) for (name, *_), one in zip(bars, rows, strict=True)]
    if not any(one for _, one in late):
        figure = new_figure(style, height_of(len(rows), style, 0.5), title)
        _bars(figure.subplots(), bars, style)
        return figure
    tall = height_of(len(rows), style, 1.0)
    figure = new_figure(style, 2 * tall if style.narrow else tall, title)
    left, right = figure.subplots(2, 1) if style.narrow else figure.subplots(1, 2, width_ratios=(1, 1.05))
    _bars(left, bars, style)
    left.set_title("messages sent", loc="left", fontsize=9.5, color=style.quiet, pad=8)
    _ranges(right, late, style, named=style.narrow)
    return figure


def traffic(document: ReportDocument, style: Style, title: str = "") -> Figure | None:
    """Chart over time of messages that arrived, were done, failed, or were over a limit; None if there are fewer than
    three windows.
    """
    points, width = document["over_time"]["points"], document["over_time"]["width_ms"]
    if len(points) < 3:
        return None
    figure = new_figure(style, 2.6 if style.narrow else 2.8, title)
    axes = figure.subplots()
    at: Any = [datetime.fromtimestamp(one["at"] / 1000, UTC) for one in points]
    for (name, caption, dash, shape), colour in zip(_SERIES, style.states, strict=False):
        counts = [one[name] for one in points]
        if any(counts):
            axes.plot(at, counts, dash, marker=shape, markersize=4, color=colour, label=caption, linewidth=1.6)
    bare(axes)
    axes.grid(visible=True, axis="both", linewidth=0.8)
    axes.set_xlim(right=min(axes.get_xlim()[1], _LAST))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="y", nbins=4)
    _clock(axes, style)
    axes.set_title(f"messages in {duration_text(width)}", loc="right", fontsize=9.5, color=style.quiet)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=2 if style.narrow else 4, frameon=False, fontsize=9.5
    )
    return figure


_SERIES: Final[tuple[tuple[Literal["arrivals", "failed", "done", "over_limit"], str, str, str], ...]] = (
    ("arrivals", "arrived", "-", "o"),
    ("failed", "failed", ":", "^"),
    ("done", "done", "--", "s"),
    ("over_limit", "over a limit", "-.", "D"),
)


_LAST: Final = (date.max - date(1970, 1, 1)).days  # day that an axis can have
_DATES: Final = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S"]
_OFFSETS: Final = ["", "%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d %H:%M"]
"""Dates in ISO order by the step of the ticks: year, month, day, hour, minute, second."""


def _clock(axes: Axes, style: Style) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # Fewer at most than 5, or more at least than 2, and for some spans there is no step: matplotlib then warns.
    locator = AutoDateLocator(  # type: ignore[no-untyped-call]
        minticks=2, maxticks=5 if style.narrow else 9
    )
    axes.xaxis.set_major_locator(locator)
    written = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator, tz=UTC, formats=_DATES, zero_formats=["", *_DATES[:-1]], offset_formats=_OFFSETS
    )
    axes.xaxis.set_major_formatter(written)


CHARTS: Final[dict[str, Callable[..., Figure | None]]] = {
    "waiting": waiting,
    "latency": latency,
    "failures": failures,
    "tenants": tenants,
    "traffic": traffic,
}


def for_chat(document: ReportDocument) -> Iterator[tuple[str, bytes]]:
    """Yields (file name, PNG) of the verdict, and of every chart that has something to show, each with a headline."""
    titles = {
        "waiting": words.waiting,
        "latency": words.slow,
        "failures": words.failing,
        "tenants": words.noisy,
        "traffic": _traffic_title,
    }
    yield "verdict.png", png(_card, document) or b""
    for name, paint in CHARTS.items():
        if data := png(partial(paint, title=titles[name](document)), document):
            yield f"{name}.png", data


def _traffic_title(document: ReportDocument) -> str:
    return ". ".join(filter(None, ("What happened when", words.undrawn(document))))


def _card(document: ReportDocument, style: Style) -> Figure:
    """Picture of the verdict and the headlines."""
    from matplotlib.patches import Rectangle

    kind, title, _ = words.verdict(document)
    colour, sign = {"good": ("#006b4f", "✓"), "bad": ("#a63a00", "✗"), "open": ("#5c4a00", "?")}[kind]
    lines = [part for one in list(words.headlines(document))[1:] for part in textwrap.wrap(one, 118)]
    height = 1.35 + 0.25 * len(lines)
    figure = new_figure(style, height, "")
    figure.set_layout_engine("none")
    band = 0.85 / height
    figure.add_artist(Rectangle((0, 1 - band), 1, band, transform=figure.transFigure, color=colour))
    middle = 1 - band / 2
    figure.text(0.02, middle, f"{sign}  {title}", color="white", fontsize=17, fontweight="bold", va="center")
    figure.text(0.98, middle, document["topology"], color="white", fontsize=11, va="center", ha="right")
    figure.text(0.02, 1 - band - 0.18 / height, "\n".join(lines), va="top", fontsize=10, linespacing=1.6)
    figure.text(0.02, 0.08 / height, words.span(document), va="bottom", fontsize=8.5, color=style.quiet)
    return figure
