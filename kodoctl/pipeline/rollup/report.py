"""Report of a rollup: the parser of the window width, one JSON document, and the text lines that are rendered from
it. Pure. A width that does not divide a day raises UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kodoctl.errors import UsageError, error
from kodoctl.formatting import many, time_text
from kodoctl.render.escaping import one_line
from kodoctl.render.plan_text import Line
from kodoctl.topology.units import Duration

FORMAT_VERSION: Final = 1
DAY: Final = 86_400_000  # ms
WINDOW: Final = 300_000  # ms
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TENANTS: Final = 10  # told of each ground topic
SCREEN: Final = 80  # columns that a table keeps to
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY}
_USUAL: Final = ("1s", "5s", "10s", "30s", "1m", "5m", "10m", "15m", "30m", "1h", "2h", "3h", "6h", "12h", "1d")
_WIDTH: Final = re.compile(r"\s*([0-9]{1,9})\s*(s|m|h|d|sec|min|second|minute|hour|day)s?\s*", re.ASCII)
_SHOWN: Final = {"arrivals": "arrivals", "done": "done", "failed": "failed", "over_limit": "limited", "dead": "dead"}
_ALWAYS: Final = ("arrivals", "done")
_ORDER: Final = ("ready", "retrying", "pending", "blocking", "dead")

Row = dict[str, Any]


def parse_window(text: str) -> int:
    """`5m`, `5 minutes` -> ms. Raises UsageError for what does not divide a day: windows of all days begin alike."""
    found = _WIDTH.fullmatch(text)
    window = int(found[1]) * _UNITS[found[2][0]] if found else 0
    if not window or DAY % window:
        nearest = "" if not window else f"; {_nearest(window)} does"
        detail = f"--window {text!r} does not divide a day{nearest}" if window else f"--window {text!r} is no time"
        raise UsageError(error("K800", "width of windows", detail))
    return window


def _nearest(window: int) -> Duration:
    """The next smaller one of those that people use."""
    return Duration.parse(max((one for one in _USUAL if Duration.parse(one) <= window), key=Duration.parse))


def document(
    window: int,
    span: tuple[int, int, int],
    lanes: Iterable[Row],
    tenants: Iterable[Row],
    late: Mapping[str, Mapping[Any, Row]],
) -> dict[str, Any]:
    """For machines. Times are ms. `span`: beginning of the first window and of the last, and how many hold rows;
    `late`: by `lanes` and `tenants` and their keys, shares (p50 …) of the latencies, in ms.
    """
    since, until, held = span
    return {
        "format_version": FORMAT_VERSION,
        "window_ms": window,
        "since": since,
        "until": until + window,
        "windows": held,
        "lanes": [{**one, "latency_ms": late["lanes"].get(lane_key(one))} for one in sorted(lanes, key=_lane_order)],
        "tenants": [
            {**one, "latency_ms": late["tenants"].get((one["topic"], one["tenant"]))}
            for one in sorted(
                tenants, key=lambda row: (row["topic"], -row["arrivals"], -row["done"], row["tenant"] or "")
            )
        ],
    }


def lane_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key of a lane, different for each."""
    return (row["topic"], row["subscription"], row["level"], row["state"])


def _lane_order(row: Row) -> tuple[Any, ...]:
    state = _ORDER.index(row["state"]) if row["state"] in _ORDER else len(_ORDER)
    return (row["topic"], row["subscription"] or "", row["level"] is None, row["level"] or "", state)


def lines(document: Mapping[str, Any]) -> Iterator[Line]:
    """For people: a table of lanes for each topic and subscription, then one of tenants for each topic."""
    width = Duration(document["window_ms"])
    yield Line(
        f"{many(document['windows'], 'window')} of {width}, {time_text(document['since'], zone=False)} to {time_text(document['until'], zone=False)} UTC"
    )
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


def _groups(lanes: Sequence[Row]) -> dict[tuple[str, str | None], list[Row]]:
    """Lanes by topic and subscription. What arrived on a ready topic did so for every
    subscription that worked on it.
    """
    readers = {(one["topic"], one["level"], one["state"]) for one in lanes if one["subscription"] is not None}
    everybody = {(one["topic"], one["level"], one["state"]): one for one in lanes if one["subscription"] is None}
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for one in lanes:
        place = (one["topic"], one["level"], one["state"])
        if one["subscription"] is None and place in readers:
            continue
        stored = everybody.get(place, one)["arrivals"]
        groups.setdefault((one["topic"], one["subscription"]), []).append({**one, "arrivals": stored})
    return groups


def _lane(row: Row) -> str:
    return (
        f"{row['level']} {row['state']}"
        if row["level"]
        else f"{row['state']} letters"
        if row["state"]
        else "undeclared"
    )


def _table(head: str, rows: Sequence[tuple[str, Row]]) -> Iterator[Line]:
    """Columns in which nothing happened are left out; a long first one is cut, so that the table fits."""
    names = [name for name in _SHOWN if name in _ALWAYS or any(row[name] for _, row in rows)]
    shares = list(SHARES) if any(row["latency_ms"] for _, row in rows) else []
    cells = [
        [*(_number(row[name]) for name in names), *(_number((row["latency_ms"] or {}).get(one)) for one in shares)]
        for _, row in rows
    ]
    heads = [*(_SHOWN[name] for name in names), *shares]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    room = max(SCREEN - 2 - sum(2 + width for width in widths), len(head))
    first = min(max(len(text) for text in [head, *(text for text, _ in rows)]), room)
    for text, row in [(head, heads), *((text, made) for (text, _), made in zip(rows, cells, strict=True))]:
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        yield Line(f"  {one_line(text, first):<{first}}{numbers}", "dim" if row is heads else "")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:,.1f}M" if value >= 1e7 else f"{value:,.0f}"
