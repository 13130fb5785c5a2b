"""Report of a rollup as a JSON document, and the parser of the window width. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from kodoctl.errors import UsageError, error
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodo_pipeline.rollup.rollup_document import LaneCounts, RollupDocument, TenantCounts

FORMAT_VERSION: Final = 1
DAY: Final = 86_400_000  # ms
WINDOW: Final = 300_000  # ms
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TENANTS: Final = 10  # told of each ground topic
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY}
_USUAL: Final = ("1s", "5s", "10s", "30s", "1m", "5m", "10m", "15m", "30m", "1h", "2h", "3h", "6h", "12h", "1d")
_WIDTH: Final = re.compile(r"\s*([0-9]{1,9})\s*(s|m|h|d|sec|min|second|minute|hour|day)s?\s*", re.ASCII)
_ORDER: Final = ("ready", "retrying", "pending", "blocking", "dead")

Row = dict[str, Any]


def parse_window(text: str) -> int:
    """Parses a width such as `5m` or `5 minutes` to ms. Raises UsageError (K800) if the text is no width, or if it does
    not divide a day, because the windows of every day begin at midnight.
    """
    found = _WIDTH.fullmatch(text)
    window = int(found[1]) * _UNITS[found[2][0]] if found else 0
    if not window or DAY % window:
        nearest = "" if not window else f"; {_nearest(window)} does"
        detail = f"--window {text!r} does not divide a day{nearest}" if window else f"--window {text!r} is no time"
        raise UsageError(error("K800", "width of windows", detail))
    return window


def _nearest(window: int) -> Duration:
    """The widest one of the usual widths that is not above this one."""
    return Duration.parse(max((one for one in _USUAL if Duration.parse(one) <= window), key=Duration.parse))


def document(
    window: int,
    span: tuple[int, int, int, int],
    lanes: Iterable[Row],
    tenants: Iterable[Row],
    late: Mapping[str, Mapping[Any, Row]],
) -> RollupDocument:
    """Makes the JSON document of a rollup. Times are in ms.

    Args:
        window: width of a window.
        span: start of the first window, start of the last one, number of windows with rows, and number of windows at
            impossible times.
        lanes: counts of the lanes.
        tenants: counts of the tenants.
        late: percentiles (p50 …) of the latencies, under `lanes` and `tenants`, by their keys.
    """
    since, until, kept_rows, impossible = span
    return {
        "format_version": FORMAT_VERSION,
        "window_ms": window,
        "since": since,
        "until": until + window if kept_rows else 0,
        "windows": kept_rows,
        "impossible_windows": impossible,
        "lanes": [
            cast("LaneCounts", {**one, "latency_ms": late["lanes"].get(lane_key(one))})
            for one in sorted(lanes, key=_lane_order)
        ],
        "tenants": [
            cast("TenantCounts", {**one, "latency_ms": late["tenants"].get((one["topic"], one["tenant"]))})
            for one in sorted(
                tenants, key=lambda row: (row["topic"], -row["arrivals"], -row["done"], row["tenant"] or "")
            )
        ],
    }


def lane_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key of a lane: (topic, subscription, level, state)."""
    return (row["topic"], row["subscription"], row["level"], row["state"])


def _lane_order(row: Row) -> tuple[Any, ...]:
    state = _ORDER.index(row["state"]) if row["state"] in _ORDER else len(_ORDER)
    return (row["topic"], row["subscription"] or "", row["level"] is None, row["level"] or "", state)
