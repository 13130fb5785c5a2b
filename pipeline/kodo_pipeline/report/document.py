"""JSON document of a report: the audit, counts and waiting messages, with recommended steps. Pure.

It has few rows, made by kodo_pipeline.report.report_tables and kodo_pipeline.rollup.summary. The page, the pictures and
the text are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from kodo_pipeline.report.next_steps import advice
from kodo_pipeline.report.report_document import ReportDocument
from kodoctl.documents.json_form import row_of

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.report.report_document import (
        FailureCount,
        LaneLatency,
        ReportTenant,
        TenantGroup,
        TopicFairness,
        TrafficCounts,
        TrafficPoint,
        WaitingLane,
    )
    from kodo_pipeline.rollup.rollup_document import LaneCounts, RollupDocument, TenantCounts

FORMAT_VERSION: Final = 1
FAILURES: Final = 24  # causes shown; the rest is added up
MOST: Final = 60  # points of a chart
_MINUTE: Final = 60_000
_WIDTHS: Final = tuple(
    [1_000, 5_000, 10_000, 30_000] + [_MINUTE * many for many in (1, 5, 15, 60, 240, 1_440, 10_080)]
)  # ms
STATES: Final = ("ready", "retrying", "pending", "blocking", "dead")

Row = dict[str, Any]


NOTHING: Final[TrafficCounts] = {"arrivals": 0, "done": 0, "failed": 0, "over_limit": 0}


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of a report. Durations are ms, times are ms since the epoch.

    `waiting`, `groups`, `failures` and `points`: rows of kodo_pipeline.report.report_tables; `failures`: the most
    frequent groups of failures, `failed`: number of all failures; `points`: windows of `width` ms. `past`, `future`,
    `impossible_ages`: see kodo_pipeline.report.report_document. `sent`: messages sent, by (ground topic, tenant), for
    the tenants of `counted`; a tenant that is missing sent none.
    """

    audit: AuditDocument
    counted: RollupDocument
    waiting: Sequence[Row] = ()
    failures: Sequence[FailureCount] = ()
    failed: int = 0
    groups: Sequence[Row] = ()
    points: Sequence[TrafficPoint] = ()
    past: TrafficCounts = field(default_factory=NOTHING.copy)
    future: TrafficCounts = field(default_factory=NOTHING.copy)
    impossible_ages: int = 0
    width: int = 0
    read_at: int = 0
    sent: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportOrigin:
    """Origin of a report. `run`: id of the run that made it; `made_at`: ms since the epoch; `file`: command-line
    arguments that name the topology file; `typed`: those that name the landing as well; `ledger`: address of the recall
    ledger, "" if it is the default.
    """

    run: str
    made_at: int
    topology: str
    environment: str | None
    file: str
    typed: str
    ledger: str = ""


def document(about: ReportOrigin, facts: Facts) -> ReportDocument:
    """Makes the report as a JSON document, from which programs and renderers work."""
    made = row_of(
        ReportDocument,
        about,
        facts,
        format_version=FORMAT_VERSION,
        since=facts.counted["since"],
        until=facts.counted["until"],
        waiting=_waiting(facts.waiting),
        latency=[_latency(one) for one in facts.counted["lanes"] if one["latency_ms"]],
        failures=_failures(facts.failures, facts.failed),
        tenants=_tenants(facts),
        fairness=_fairness(facts.groups),
        over_time={
            "width_ms": facts.width,
            "points": _fill_gaps(facts.points, facts.width),
            "past": facts.past,
            "future": facts.future,
        },
        advice=[],
    )
    made["advice"] = [one.to_json() for one in advice(made, about.file, about.typed, about.ledger)]
    return made


def fitting(span: int) -> int:
    """Width (ms) of the narrowest windows for a chart of `span` ms that has at most 60 (MOST) of them; the widest that
    exist if none fits.
    """
    return next((width for width in _WIDTHS if span <= width * MOST), _WIDTHS[-1])


def coarser(span: int, width: int) -> int:
    """Width (ms) of windows for a chart of `span` ms: the largest multiple of `width` (the width of the counted
    windows) that is not above `fitting(span)`, but `width` at least.
    """
    wanted = max(width, fitting(span))
    return wanted - wanted % width


def _fill_gaps(points: Sequence[TrafficPoint], width: int) -> list[TrafficPoint]:
    """Returns the points with a zero point for each time at which nothing happened. At most the last 10 × MOST
    intervals are returned.
    """
    if not points or not width:
        return []
    known = {one["at"]: one for one in points}
    first, last = min(known), max(known)
    return [known.get(at, {"at": at, **NOTHING}) for at in range(max(first, last - 10 * MOST * width), last + 1, width)]


def _place(row: WaitingLane) -> tuple[Any, ...]:
    """Sort key of a lane: the order in which a message passes through the lanes, by level, then by state, with dead
    letters last.
    """
    state = STATES.index(row["state"])
    return (row["topic"], row["subscription"] or "", row["state"] == "dead", _rank(row["level"]), state)


def _rank(level: str | None) -> tuple[int, str]:
    """Sort key of a level: S, then L, then B, then D, then none."""
    return ("SLBD".find(level[0]), level) if level else (9, "")


def _latency(lane: LaneCounts) -> LaneLatency:
    keys = ("topic", "subscription", "level", "state", "done")
    row: Row = dict(lane)
    return cast("LaneLatency", {name: row[name] for name in keys} | row["latency_ms"])


def _waiting(rows: Iterable[Row]) -> list[WaitingLane]:
    """Sums the rows of each lane into one. Its median is that of the row with most messages."""
    lanes: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        lanes.setdefault((row["topic"], row["subscription"], row["level"], row["state"]), []).append(row)
    found: list[WaitingLane] = [
        {
            "topic": topic,
            "subscription": subscription,
            "level": level,
            "state": state,
            "messages": sum(one["messages"] for one in parts),
            "overdue": sum(one["overdue"] for one in parts),
            "oldest_ms": max(one["oldest_ms"] for one in parts),
            "median_ms": max(parts, key=lambda one: one["messages"])["median_ms"],
        }
        for (topic, subscription, level, state), parts in lanes.items()
    ]
    return sorted(found, key=_place)


def _failures(rows: Iterable[FailureCount], failed: int) -> list[FailureCount]:
    """Returns the FAILURES rows with the most messages, and one row with the `rule` `(others)` for the rest. `failed`:
    the number of all failed messages.
    """
    ordered = sorted(
        rows, key=lambda row: (-row["messages"], row["topic"], row["subscription"], row["rule"], row["cause"])
    )
    shown_rows = ordered[:FAILURES]
    rest = failed - sum(one["messages"] for one in shown_rows)
    others: FailureCount = {
        "topic": "",
        "subscription": "",
        "event": "",
        "rule": "(others)",
        "cause": "",
        "reason": "",
        "messages": rest,
    }
    return [*shown_rows, others] if rest > 0 else shown_rows


def _tenants(facts: Facts) -> list[ReportTenant]:
    """Returns the tenants with the number of messages that they sent, their share of the topic, and whether they are
    noisy. Arrivals in lanes are not used, because a message that moved would count again.
    """
    groups = facts.groups
    total: dict[str, int] = {}
    for group in groups:
        total[group["topic"]] = total.get(group["topic"], 0) + group["arrivals"]
    noisy = {(group["topic"], name) for group in groups if group["noisy"] for name in group["names"]}

    def row(one: TenantCounts) -> ReportTenant:
        sent = facts.sent.get((one["topic"], one["tenant"] or ""), 0)
        share = sent / total[one["topic"]] if total.get(one["topic"]) else 0.0
        return {**one, "arrivals": sent, "share": share, "noisy": (one["topic"], one["tenant"]) in noisy}

    found = [row(one) for one in facts.counted["tenants"]]
    found = [one for one in found if one["arrivals"] or one["done"] or one["failed"]]
    return sorted(found, key=lambda one: (one["topic"], -one["arrivals"], -one["done"]))


def _fairness(groups: Sequence[Row]) -> list[TopicFairness]:
    """Returns the figures of the noisy tenants and of the quiet tenants, for each topic with more than one tenant.
    `noisy` is None if a topic has no noisy tenant.
    """
    found: list[TopicFairness] = []
    for topic in sorted({group["topic"] for group in groups}):
        of = {group["noisy"]: group for group in groups if group["topic"] == topic}
        if False in of and sum(group["tenants"] for group in of.values()) > 1:
            total = sum(group["arrivals"] for group in of.values())
            noisy = _group(of[True], total) if True in of else None
            found.append({"topic": topic, "quiet": _group(of[False], total), "noisy": noisy})
    return found


def _group(group: Row, total: int) -> TenantGroup:
    return {
        "tenants": group["tenants"],
        "arrivals": group["arrivals"],
        "latency_ms": group["latency_ms"],
        "names": sorted(group["names"]),
        "share": group["arrivals"] / total if total else 0.0,
    }
