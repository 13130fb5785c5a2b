# adapter: draws for people
"""Text of a rollup for people: a table of lanes for each topic and subscription, then one of tenants for each topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import lane_text, many, time_text
from kodoctl.text.line import Line
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodo_pipeline.rollup.rollup_document import LaneCounts, RollupDocument, TenantCounts

_Count = Literal["arrivals", "done", "failed", "over_limit", "dead"]
_SCREEN: Final = 80  # columns that a table keeps to
_SHOWN: Final[Mapping[_Count, str]] = {
    "arrivals": "arrivals",
    "done": "done",
    "failed": "failed",
    "over_limit": "limited",
    "dead": "dead",
}
_ALWAYS: Final[tuple[_Count, ...]] = ("arrivals", "done")


def lines(document: RollupDocument) -> Iterator[Line]:
    """The rollup as text: a table of lanes for each topic and subscription, then a table of tenants for each
    topic.
    """
    width = Duration(document["window_ms"])
    seconds = document["window_ms"] % 60_000 != 0
    since, until = (time_text(document[name], zone=False, seconds=seconds) for name in ("since", "until"))
    span = f", {since} to {until} UTC" if document["windows"] else ""
    yield Line(f"{many(document['windows'], 'window')} of {width}{span}")
    if more := document["impossible_windows"]:
        yield Line(f"{many(more, 'window')} more, of impossible times (a sender writes the publish time)")
    for (topic, subscription), lanes in _groups(document["lanes"]).items():
        yield Line()
        reader = f" / {one_line(subscription)}" if subscription else ""
        yield Line(f"{one_line(topic)}{reader}: what happened in each lane, until done in ms", "bold")
        yield from _table("lane", [(_lane(lane), lane) for lane in lanes])
    for topic in dict.fromkeys(one["topic"] for one in document["tenants"]):
        rows = [one for one in document["tenants"] if one["topic"] == topic]
        yield Line()
        yield Line(f"{one_line(topic)}: tenants with most messages, until done in ms", "bold")
        yield from _table("tenant", [(one_line(row["tenant"]), row) for row in rows])
    yield Line()
    yield Line("limited: moved to wait for room; failed: the message left its lane after the handler ran.", "dim")


def _groups(lanes: Sequence[LaneCounts]) -> dict[tuple[str, str | None], list[LaneCounts]]:
    """Lanes by topic and subscription. Messages that arrived on a ready topic count for every subscription that
    worked on it.
    """
    readers = {(one["topic"], one["level"], one["state"]) for one in lanes if one["subscription"] is not None}
    everybody = {(one["topic"], one["level"], one["state"]): one for one in lanes if one["subscription"] is None}
    groups: dict[tuple[str, str | None], list[LaneCounts]] = {}
    for one in lanes:
        place = (one["topic"], one["level"], one["state"])
        if one["subscription"] is None and place in readers:
            continue
        stored = everybody.get(place, one)["arrivals"]
        groups.setdefault((one["topic"], one["subscription"]), []).append({**one, "arrivals": stored})
    return groups


def _lane(row: LaneCounts) -> str:
    return lane_text(row["level"], row["state"])


def _table(head: str, rows: Sequence[tuple[str, LaneCounts | TenantCounts]]) -> Iterator[Line]:
    """Yields the lines of a table. Columns with only zeros are left out; names in the first column are cut to fit the
    screen.
    """
    names = [name for name in _SHOWN if name in _ALWAYS or any(row[name] for _, row in rows)]
    shares = next((sorted(row["latency_ms"]) for _, row in rows if row["latency_ms"]), [])
    cells = [
        [*(_number(row[name]) for name in names), *(_number((row["latency_ms"] or {}).get(one)) for one in shares)]
        for _, row in rows
    ]
    heads = [*(_SHOWN[name] for name in names), *shares]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    room = max(_SCREEN - 2 - sum(2 + width for width in widths), len(head))
    first = min(max(len(text) for text in [head, *(text for text, _ in rows)]), room)
    for text, row in [(head, heads), *((text, made) for (text, _), made in zip(rows, cells, strict=True))]:
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        yield Line(f"  {one_line(text, first):<{first}}{numbers}", "dim" if row is heads else "")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:,.1f}M" if value >= 1e7 else f"{value:,.0f}"
