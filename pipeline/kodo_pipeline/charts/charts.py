# adapter: draws for people
"""Chart style of all commands: colours, sizes, scales, and the conversion of a chart to SVG (light, dark) or PNG.

Colours are those of Okabe and Ito, which colour-blind people can distinguish. No fact is shown by colour alone: bars
are named, marks have shapes, lines have dashes. Needs matplotlib (extra `spark`).
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kodoctl.text.formatting import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = dict[str, Any]
_WIDE, _NARROW, _ROW = 9.2, 4.1, 0.36  # inches
_TICKS: Final = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)  # ms


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a chart. `ink`, `quiet`, `line`: colours of text, of secondary text, of lines; `states`: colours of the
    states, in the order of the method `state`; `marks`: colours of three marks; `narrow`: for a narrow screen. Colours
    are `#rrggbb`.
    """

    ink: str
    quiet: str
    line: str
    states: tuple[str, ...]  # as kodo_pipeline.report.document.STATES
    marks: tuple[str, str, str]
    narrow: bool = False

    @property
    def width(self) -> float:
        """Width of a chart in this style, in inches."""
        return _NARROW if self.narrow else _WIDE

    def state(self, name: str) -> str:
        """Colour of a lane's state: `ready`, `retrying`, `pending`, `blocking` or `dead`. Raises KeyError for another
        name.
        """
        return dict(zip(("ready", "retrying", "pending", "blocking", "dead"), self.states, strict=True))[name]


LIGHT: Final = Style(
    "#1b1f24", "#57606a", "#d0d7de", ("#0072b2", "#d55e00", "#009e73", "#b35c8d", "#4d5560"), ("#0072b2", "#d55e00", "#4d5560")
)  # fmt: skip
NARROW: Final = replace(LIGHT, narrow=True)
_DARK: Final = {
    "#1b1f24": "#e6edf3", "#57606a": "#9aa4af", "#d0d7de": "#3a424c", "#0072b2": "#56b4e9", "#d55e00": "#e69f00",
    "#009e73": "#2bb98f", "#b35c8d": "#cc79a7", "#4d5560": "#aab4bf",
}  # fmt: skip


Drawn = TypeVar("Drawn")  # a document, or the part of it that a chart shows
Paint = Callable[[Drawn, Style], "Figure | None"]


def svg(paint: Paint[Drawn], document: Drawn, style: Style) -> str | None:
    """Draws a chart as an SVG document with selectable text and without a background; None if `paint` has nothing to
    draw. The same document and style give the same text, with one version of matplotlib.
    """
    with _settings(style, {"svg.hashsalt": "kodoctl", "svg.fonttype": "none"}):
        figure = paint(document, style)
        if figure is None:
            return None
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return stream.getvalue().decode().replace("'DejaVu Sans'", "'DejaVu Sans',Verdana,sans-serif")


def dark(drawn: str) -> str:
    """Converts an SVG that `svg` drew in the style LIGHT or NARROW for a dark page, by replacing each colour of the
    style; other colours stay, and the background stays transparent.
    """
    return re.sub("|".join(_DARK), lambda found: _DARK[found[0]], drawn)


def png(paint: Paint[Drawn], document: Drawn, style: Style = LIGHT) -> bytes | None:
    """Draws a chart as a PNG on white; None if `paint` has nothing to draw."""
    with _settings(style):
        figure = paint(document, style)
        if figure is None:
            return None
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


@contextmanager
def _settings(style: Style, more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """Context with the default settings of matplotlib, changed by ours and `more`. A `matplotlibrc`, which matplotlib
    reads in the working folder first, has no effect.
    """
    import matplotlib as mpl

    ours: Any = {
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": style.ink, "axes.labelcolor": style.quiet,
        "xtick.color": style.quiet, "ytick.color": style.ink, "axes.edgecolor": style.line, "grid.color": style.line,
        "text.parse_math": False, "axes.unicode_minus": False, **more,
    }  # fmt: skip
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(ours)
        yield


def new_figure(style: Style, height: float, title: str) -> Figure:
    """Makes a figure that is `height` inches high, and as wide as the style says. `title`: headline, "" for none (on a
    page, which has its own headlines).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.width, height), layout="constrained")
    if title:
        figure.suptitle("\n".join(textwrap.wrap(title, 88)), x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def bare(axes: Axes, *, grid: bool = True) -> None:
    """Removes the frame and tick marks of `axes`; labels stay. `grid`: draws vertical lines at the ticks."""
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    if grid:
        axes.grid(visible=True, axis="x", linewidth=0.8)
        axes.set_axisbelow(True)


def height_of(rows: int, style: Style, more: float = 0.25) -> float:
    """Height in inches of a chart with `rows` rows. `more`: height of everything around the rows."""
    return rows * (0.58 if style.narrow else _ROW) + more


def scale_times(axes: Axes) -> None:
    """Makes the horizontal axis of `axes` logarithmic, for times in ms, with a few ticks from 1 ms to 10 days that are
    labelled as durations (`duration_text`). Call it after drawing: the range of the axis, slightly widened, stays as it
    is then.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.3, high * 1.3)
    axes.xaxis.set_major_locator(FixedLocator(_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: duration_text(value))


def drawn_time(ms: float) -> float:
    """The time in ms to draw on a logarithmic axis: `ms`, but at least 0.5, because zero has no logarithm."""
    return max(ms, 0.5)
