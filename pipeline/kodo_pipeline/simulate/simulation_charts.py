# adapter: draws for people
"""Charts of a simulation, as PNG for a chat or a pull request: how long each tenant waits today, and with the
candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_pipeline.charts.charts import Style, bare, drawn_time, height_of, new_figure, png, scale_times
from kodo_pipeline.simulate.simulation_document import SimulatedTenant, SimulationDocument, SimulationTrial
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import duration_text, many

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TenantRow = tuple[str, tuple[SimulatedTenant, ...]]
_NAME: Final = 20  # characters shown of a tenant
_APART: Final = 0.19  # of a row, between its middle and each of its two lines


def tenant_rows(trial: SimulationTrial) -> list[TenantRow]:
    """(name, (figures today, figures with the candidate)) of each tenant, in today's order; without a candidate only
    today's. Tenants that have a row in only one of the two are left out.
    """
    candidate = trial["candidate"]
    found: list[TenantRow] = []
    then = {} if candidate is None else {one["tenant"]: one for one in candidate["tenants"]}
    for one in trial["today"]["tenants"]:
        name = one_line(one["tenant"], _NAME) if one["tenant"] is not None else f"({many(one['tenants'], 'other')})"
        if candidate is None:
            found.append((name, (one,)))
        elif one["tenant"] in then:
            found.append((name, (one, then[one["tenant"]])))
    return found


def waits(trial: SimulationTrial, style: Style, title: str = "") -> Figure | None:
    """Chart with a line for each tenant and file, from the median to the 95th percentile of the time until a handler
    started; None if no handler started.
    """
    found = tenant_rows(trial)
    if not any(one["wait_ms"] for _, sides in found for one in sides):
        return None
    figure = new_figure(style, height_of(2 * len(found), style, 1.15), title)
    axes = figure.subplots()
    at = [len(found) - 1 - number for number in range(len(found))]
    kinds = (
        ("today", _APART, "--", "o", style.marks[1]),
        ("with the candidate", -_APART, "-", "s", style.marks[0]),
    )
    for side, (name, shift, dash, shape, colour) in enumerate(kinds[: len(found[0][1])]):
        rows = [(place + shift, sides[side]) for place, (_, sides) in zip(at, found, strict=True)]
        _lines(axes, rows, (name, dash, shape, colour))
    scale_times(axes)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.16)  # room for what stands behind the marks
    axes.set_yticks(at, [f"{name}\n{many(sides[0]['messages'], 'message')}" for name, sides in found])
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.set_title("hollow: half of them, filled: 95 of 100", loc="right", fontsize=9.5, color=style.quiet)
    bare(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=2, frameon=False, fontsize=9.5)
    return figure


def _lines(axes: Axes, rows: list[tuple[float, SimulatedTenant]], kind: tuple[str, str, str, str]) -> None:
    name, dash, shape, colour = kind
    axes.plot(
        [], [], f"{shape}{dash}", color=colour, linewidth=1.8, markersize=7, label=name
    )  # its entry in the legend
    for place, one in rows:
        if not one["wait_ms"]:
            at = ("axes fraction", "data")
            axes.annotate(f"{name}: none", (0, place), (4, 0), at, "offset points", va="center", fontsize=9.5)
            continue
        half, most = (drawn_time(one["wait_ms"][share]) for share in ("p50", "p95"))
        axes.plot([half, most], [place] * 2, dash, color=colour, linewidth=1.8, zorder=1)
        axes.plot([half], [place], shape, color=colour, markerfacecolor="white", markersize=7, zorder=2)
        axes.plot([most], [place], shape, color=colour, markersize=7, zorder=3)
        text = duration_text(one["wait_ms"]["p95"])
        axes.annotate(text, (most, place), (8, 0), textcoords="offset points", va="center", fontsize=9.5)


def for_chat(document: SimulationDocument) -> Iterator[tuple[str, bytes]]:
    """Yields (file name, PNG) for each replayed subscription that has something to show. No file name occurs twice."""
    names: set[str] = set()
    for trial in document["trials"]:
        ground = f"{one_line(trial['topic'])} / {one_line(trial['subscription'])}"
        title = f"{ground}: how long messages wait until a handler starts"
        if data := png(partial(waits, title=title), trial):
            stem = f"lab-{trial['topic']}-{trial['subscription']}"
            while stem in names:  # such as of orders / a-b after orders-a / b
                stem += "-2"
            names.add(stem)
            yield f"{stem}.png", data
