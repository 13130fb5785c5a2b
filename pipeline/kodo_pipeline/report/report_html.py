# adapter: draws for people
"""A report as one HTML page that loads no other file: first the verdict, then a section for each question."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal

from kodo_pipeline.charts import charts
from kodo_pipeline.report import report_words as words
from kodo_pipeline.report.report_charts import CHARTS
from kodoctl import __version__
from kodoctl.render.html_page import page
from kodoctl.text.escaping import one_line, printable
from kodoctl.text.formatting import duration_text, many, time_text, window_text
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.report.report_document import ReportDocument, TrafficPoint

Json = dict[str, Any]
_COUNTED: Final[tuple[Literal["arrivals", "done", "failed", "over_limit"], ...]] = (
    "arrivals", "done", "failed", "over_limit",
)  # fmt: skip
GLOSSARY: Final = (
    ("audit record", "What a worker writes down when it acknowledges a message: done, moved, given up."),
    ("blocking", "A state: the message waits long, because a quota is used up."),
    ("dead letter", "A message that failed for good. It is kept until somebody sends it again or discards it."),
    ("entry", "What the broker stores as one piece: one message, or a few that were sent together."),
    ("level", "A priority lane of a topic: L1 is the topic itself, B1 the last stop before the dead letters."),
    (
        "p50, p95, p99",
        "So many of 100 messages took this long or less. p50 is what is usual, p99 the worst that is common.",
    ),
    ("partition", "One of the parts a topic is stored in."),
    ("pending", "A state: the message waits for room, because a limit says so many at once or a second."),
    ("ready", "A state: waiting to be taken by the next free worker."),
    ("retrying", "A state: the message failed and is tried again after a delay."),
    ("subscription", "One party that gets every message of a topic, such as billing."),
    ("tenant", "Whose message it is: the value of the property that the topology's `fair_by` names."),
)


def report_html(document: ReportDocument) -> str:
    """Makes the HTML page of a report, complete with styles and pictures, from its JSON document."""
    kind, title, meaning = words.verdict(document)
    audit = document["audit"]
    return page(
        "report.html.j2",
        "report.css",
        package="kodo_pipeline.report",
        kind=kind,
        title=title,
        meaning=meaning,
        topology=words.safe_name(document["topology"]),
        environment=words.safe_name(document["environment"]),
        span=words.span(document),
        read_at=time_text(document["read_at"]) if document["read_at"] else "",
        reasons=[one_line(one["text"]) for one in audit["reasons"]],
        advice=[{**one, "commands": [printable(line) for line in one["commands"]]} for one in document["advice"]],
        figures=words.figures(document),
        parts=[part(document) for part in (_waiting, _latency, _failures, _tenants, _traffic)],
        pictures=_pictures(document),
        notes=[one_line(note) for note in audit["notes"]],
        fates_heads=["subscription", *_fates(audit)],
        fates=[
            [f"{one['topic']} / {one['subscription']}", *(f"{one['messages'].get(fate, 0):,}" for fate in _fates(audit))]
            for one in audit["subscriptions"]
        ],
        coverage=_coverage(audit),
        findings=[[one["id"], one["fate"], words.safe_name(one["msg_topic"], 200), one["cause"]] for one in audit["findings"]],
        sql=[printable(query) for query in audit["sql"]],
        glossary=GLOSSARY,
        version=__version__,
        run=document["run"],
        made_at=time_text(document["made_at"]),
    )  # fmt: skip


def _fates(audit: AuditDocument) -> list[str]:
    """Statuses that messages have, in the order of the page."""
    return list(dict.fromkeys(fate for one in audit["subscriptions"] for fate in one["messages"]))


def _pictures(document: ReportDocument) -> dict[str, dict[str, str]]:
    """Every chart in four styles as a data URI; the page shows the one that fits the screen and the colours."""
    found = {}
    for name, paint in CHARTS.items():
        wide, narrow = (charts.svg(paint, document, style) for style in (charts.LIGHT, charts.NARROW))
        if wide and narrow:
            drawn = {"light": wide, "dark": charts.dark(wide), "narrow": narrow, "dark_narrow": charts.dark(narrow)}
            found[name] = {style: _data(text) for style, text in drawn.items()}
    return found


def _data(text: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()


def _part(name: str, title: str, head: str, say: str, heads: list[str], rows: list[list[str]]) -> Json:
    return {"name": name, "title": title, "head": head, "say": say, "heads": heads, "rows": rows}


def _waiting(document: ReportDocument) -> Json:
    say = (
        "A message waits in a lane: a priority level, and a state that says why it is not done yet. Waiting is no loss; what "
        "grows, or grows old, deserves a look."
    )
    rows = [
        [words.lane(document, one), f"{one['messages']:,}", duration_text(one["median_ms"]), duration_text(one["oldest_ms"]),
         f"{one['overdue']:,}"]
        for one in document["waiting"]
    ]  # fmt: skip
    heads = ["lane", "messages", "median age", "oldest", "longer than any delay in the file"]
    return _part("waiting", "Where messages wait", words.waiting(document), say, heads, rows)


def _latency(document: ReportDocument) -> Json:
    say = (
        "From being sent to being done, by the lane in which it was done, waiting included. Mind the scale: from one line "
        "to the next it is about ten times slower."
    )
    if out := document["impossible_ages"]:
        say += (
            f" Not in these times: {many(out, 'message')} done that, by the publish time its sender wrote, would be older "
            "than the topic."
        )
    rows = [
        [words.lane(document, one), f"{one['done']:,}", *(duration_text(one[share]) for share in ("p50", "p95", "p99"))]
        for one in document["latency"]
    ]
    heads = ["lane", "done", "p50", "p95", "p99"]
    return _part("latency", "Who is slow", words.slow(document), say, heads, rows)


def _failures(document: ReportDocument) -> Json:
    say = "Failed runs of a handler, by cause: the reason and, where it is kept, the error's text, with # for what differs between two messages. A message that failed three times is counted three times."
    rows = [
        [words.cause(one), words.outcome(one) if one["cause"] else "",
         words.safe_name(f"{one['topic']} / {one['subscription']}") if one["topic"] else "", f"{one['messages']:,}"]
        for one in document["failures"]
    ]  # fmt: skip
    heads = ["cause", "=what came of it", "=subscription", "runs"]
    return _part("failures", "What fails, and why", words.failing(document), say, heads, rows)


def _tenants(document: ReportDocument) -> Json:
    say = (
        "Messages and waiting time of the tenants who sent most. One who sends a quarter of everything, and twice an even "
        "part, is noisy; it is fair when the others do not wait for it."
    )
    rows = [
        [words.tenant_label(document, one) + (" (noisy)" if one["noisy"] else ""), f"{one['arrivals']:,}", f"{100 * one['share']:.1f} %",
         f"{one['done']:,}", f"{one['failed']:,}", f"{one['over_limit']:,}",
         *(duration_text(one["latency_ms"][share]) if one["latency_ms"] else "–" for share in ("p50", "p95", "p99"))]
        for one in document["tenants"]
    ]  # fmt: skip
    heads = ["tenant", "sent", "share", "done", "failed", "over a limit", "p50", "p95", "p99"]
    return _part("tenants", "Who is noisy", words.noisy(document), say, heads, rows)


def _coverage(audit: AuditDocument) -> list[list[str]]:
    """A row for each partition that has, or had, an entry or a problem; all others in one row."""
    found, empty = [], 0
    for one in audit["coverage"]:
        if one["entries_planned"] or one["entries_seen"] or not one["from_creation"] or one["problems"]:
            name = partition_name(one["topic"], one["partition"])
            whole = "yes" if one["from_creation"] else "no"
            found.append([name, f"{one['entries_planned']:,}", f"{one['entries_seen']:,}", whole])
        else:
            empty += 1
    return [*found, [f"{many(empty, 'partition')} without an entry", "0", "0", "yes"]] if empty else found


def _windows(points: Sequence[TrafficPoint], width: int) -> Iterator[list[str]]:
    """Yields a row for each window; neighbouring windows in which nothing happened are one row."""
    for quiet, group in groupby(points, lambda one: not any(one[name] for name in _COUNTED)):
        some = list(group)
        if quiet and len(some) > 1:
            end = window_text(some[-1]["at"], width)
            yield [f"{window_text(some[0]['at'], width)} to {end}: nothing", *["–"] * len(_COUNTED)]
            continue
        for one in some:
            yield [window_text(one["at"], width), *(f"{one[name]:,}" for name in _COUNTED)]


def _traffic(document: ReportDocument) -> Json:
    over_time = document["over_time"]
    points, width = over_time["points"], duration_text(over_time["width_ms"])
    rows = list(_windows(points, over_time["width_ms"]))
    for when, counts in ((words.PAST, over_time["past"]), (words.FUTURE, over_time["future"])):
        if any(counts[name] for name in _COUNTED):
            rows.append([when, *(f"{counts[name]:,}" for name in _COUNTED)])
    most = max(points, key=lambda one: one["arrivals"], default=None)
    head = "Nothing happened at a time that can be drawn" if rows else "Nothing happened yet"
    if most:
        at = window_text(most["at"], over_time["width_ms"])
        head = f"The busiest {width} had {most['arrivals']:,} new messages, at {at}"
    say = "New messages, and what workers did, by the time it happened."
    if sentence := words.undrawn(document):
        say += f" {sentence}."
    return _part(
        "traffic", "What happened when", head, say, ["from", "arrived", "done", "failed", "over a limit"], rows
    )
