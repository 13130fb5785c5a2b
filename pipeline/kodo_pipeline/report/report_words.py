# pure: every branch is tested
"""A report in words, for readers who know neither Spark nor the topology: one headline for each question. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.ingest.events import NOBODY, UNKNOWN
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import duration_text, lane_text, many, window_text

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.report.report_document import (
        FailureCount,
        LaneLatency,
        ReportDocument,
        ReportTenant,
        TopicFairness,
        TrafficCounts,
        WaitingLane,
    )

PAST: Final = "before anything can have been stored"
FUTURE: Final = "in the future"
NAME: Final = 60  # characters of a tenant or a reason that are shown
RULES: Final = {
    "retrying": "tried again later",
    "backup": "moved to the backup level",
    "escalated": "failed too often, moved to another level",
    "dead": "failed for good: dead letter",
    "(others)": "all other causes",
}


_FIGURES: Final = {
    "done": "done",
    "done twice": "done",
    "written off": "written off",
    "discarded": "discarded",
    "open": "waiting",
    "waiting": "waiting",
    "in the inbox": "waiting",
    "overdue": "waiting",
    "moving": "on their way",
    "dead": "dead letters",
    "unproved": "not proved",
    "unknown": "not proved",
    "lost": "lost",
    "not for me": "",
}
"""Name of the figure to which a message is added, by its status; empty: none."""
_ALWAYS: Final = frozenset({"done", "waiting", "dead letters", "lost"})


def verdict(document: ReportDocument) -> tuple[str, str, str]:
    """Returns (`good`, `bad` or `open`; the verdict as a sentence; its meaning)."""
    audit = document["audit"]
    lost = sum(one["messages"].get("lost", 0) for one in audit["subscriptions"])
    match audit["verdict"]:
        case "no loss":
            meaning = (
                "Every message that was stored is accounted for: done, discarded on purpose, waiting where you can see it, or in "
                f"the dead letters. All of it was read: {_coverage(audit)}."
            )
            return "good", "No message was lost", meaning
        case "loss":
            title = f"{many(lost, 'message')} {_was(lost)} lost" if lost else "Messages were lost"
            stored = (
                "They were stored and acknowledged, and nothing shows that they were handled. No delay and no gap in "
                "what was read explains that."
            )
            if not lost_unstored(document):
                return "bad", title, stored
            unstored = f"Producers sent {'other ' if lost else ''}messages that no topic has."
            return "bad", title, f"{stored} {unstored}" if lost else unstored
        case _:
            title = "A loss can be neither shown nor ruled out"
            meaning = (
                "That is no alarm and no all-clear: something that would prove it was not read, or was never written down. The "
                "reasons below say what, and the last part of this page what to do."
            )
            return "open", title, meaning


def lost_unstored(document: ReportDocument) -> bool:
    """True if the audit proves that producers sent messages that no topic has; these are in no count of messages."""
    return any(one["kind"] == "producer" and one["proves"] == "loss" for one in document["audit"]["reasons"])


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _coverage(audit: AuditDocument) -> str:
    planned = sum(part["entries_planned"] for part in audit["coverage"])
    seen = sum(part["entries_seen"] for part in audit["coverage"])
    return f"{seen:,} of {many(planned, 'entry', 'entries')} of {many(len(audit['coverage']), 'partition')}"


def waiting(document: ReportDocument) -> str:
    """Sentence about waiting messages: how many, how many of them in the lane with most, how long the oldest has
    waited, and how many dead letters there are.
    """
    rows = document["waiting"]
    alive = [one for one in rows if one["state"] != "dead"]
    total = sum(one["messages"] for one in alive)
    dead = sum(one["messages"] for one in rows if one["state"] == "dead")
    letters = f"{many(dead, 'dead letter')} {'waits' if dead == 1 else 'wait'} for a decision" if dead else ""
    if not total:
        return f"Nothing waits, except that {letters}" if letters else "Nothing waits"
    most = max(alive, key=lambda one: one["messages"])
    oldest = max(one["oldest_ms"] for one in alive)
    part = "most" if 2 * most["messages"] > total else f"{most['messages']:,}"
    where = "" if len(alive) == 1 else f", {part} of them in {lane(document, most)}"
    sentence = (
        f"{many(total, 'message')} {'waits' if total == 1 else 'wait'}{where}, the oldest for {duration_text(oldest)}"
    )
    return f"{sentence}; {letters}" if letters else sentence


def slow(document: ReportDocument) -> str:
    """Sentence about latency: the time within which 95 % of the messages were done, in the busiest and in the slowest
    lane.
    """
    rows = [one for one in document["latency"] if one["done"]]
    if not rows:
        return "No record says how long anything took"
    most = max(rows, key=lambda one: one["done"])
    worst = max(rows, key=lambda one: one["p95"])
    sentence = f"95 of 100 messages in {lane(document, most)} were done within {duration_text(most['p95'])}"
    if worst is most:
        return sentence
    return f"{sentence}; the slowest lane is {lane(document, worst)}, {duration_text(worst['p95'])}"


def failing(document: ReportDocument) -> str:
    """Headline about the runs of handlers that failed: their number, the most frequent cause, and its share in percent
    if there are other causes. The headline is "Nothing failed" if none failed.
    """
    found = causes(document)
    total = sum(number for _, number in found)
    if not total:
        return "Nothing failed"
    runs = f"{many(total, 'run')} of a handler failed"
    name, number = found[0]
    if name == RULES["(others)"]:
        return runs
    return f"{runs}, {100 * number / total:.0f} % of them with “{name}”" if len(found) > 1 else f"{runs}, with “{name}”"


def causes(document: ReportDocument) -> list[tuple[str, int]]:
    """(cause, number of failed runs), most frequent first; all other causes together come last."""
    found: dict[str, int] = {}
    for one in document["failures"]:
        found[cause(one)] = found.get(cause(one), 0) + one["messages"]
    return sorted(found.items(), key=lambda item: (item[0] == RULES["(others)"], -item[1]))


def noisy(document: ReportDocument) -> str:
    """Headline about noisy tenants, how much they delay others, and tenants half of whose runs or more failed."""
    sentences = [sentence for one in document["fairness"] if (sentence := _noise(one))]
    broken = _failing_tenants(document)
    if sentences:
        return "; ".join([*sentences, broken] if broken else sentences)
    if broken:
        return f"No tenant sends too much, but {broken}"
    return "No tenant stands out" if document["tenants"] else "No message says whose it is"


def _failing_tenants(document: ReportDocument) -> str:
    """The tenant whose runs fail most, if that is half of them or more, and how many others are like it; "": none."""
    found = [(one["failed"] / (one["failed"] + one["done"]), one) for one in document["tenants"] if one["failed"]]
    found = sorted((pair for pair in found if pair[0] >= 0.5), key=lambda pair: (-pair[0], -pair[1]["failed"]))
    if not found:
        return ""
    share, worst = found[0]
    which = "every run" if share == 1 else f"{100 * share:.0f} % of the runs"
    name = tenant_name(worst["tenant"], 24)
    more = f", and half or more of those of {many(len(found) - 1, 'other')}" if len(found) > 1 else ""
    return f"{which} of {name} failed ({worst['failed']:,}){more}"


def _noise(one: TopicFairness) -> str:
    if one["noisy"] is None:
        return ""
    names = [tenant_name(name, 24) for name in one["noisy"]["names"]]
    who = names[0] if len(names) == 1 else f"{len(names)} tenants"
    sent = f"{who} sent {100 * one['noisy']['share']:.0f} % of what arrived on {safe_name(one['topic'])}"
    quiet, loud = one["quiet"]["latency_ms"], one["noisy"]["latency_ms"]
    if not quiet or not loud:
        return sent
    others = many(one["quiet"]["tenants"], "other")
    if quiet["p95"] < 0.5 * loud["p95"]:
        return f"{sent}; the {others} did not wait for it ({duration_text(quiet['p95'])} against {duration_text(loud['p95'])})"
    return f"{sent}; the {others} waited as long ({duration_text(quiet['p95'])} against {duration_text(loud['p95'])})"


def undrawn(document: ReportDocument) -> str:
    """Text about messages and actions of workers that are in no window of the charts, because their time, such as a
    publish time, which the sender chooses, is impossible; "" if there are none.
    """
    over_time = document["over_time"]
    kinds = ((PAST, over_time["past"]), (FUTURE, over_time["future"]))
    parts = "; ".join(
        f"{some} with a time {when}" for when, counts in kinds if (some := " and ".join(_undrawn(counts)))
    )
    return f"Not drawn: {parts}" if parts else ""


def _undrawn(counts: TrafficCounts) -> Iterator[str]:
    """Yields counts in words: of messages by their publish time, of actions of workers by the time in their records."""
    if counts["arrivals"]:
        yield many(counts["arrivals"], "message")
    if actions := counts["done"] + counts["failed"] + counts["over_limit"]:
        yield many(actions, "action") + " of workers"


def headlines(document: ReportDocument) -> Iterator[str]:
    """Yields the report as a few sentences, for a terminal or a chat."""
    _, title, _ = verdict(document)
    yield f"{title}."
    for one in (waiting, slow, failing, noisy):
        yield f"{one(document)}."
    if text := undrawn(document):
        yield f"{text}."


def lane(document: ReportDocument, row: WaitingLane | LaneLatency) -> str:
    """Name of a row's lane: `L1 pending`, or `orders / billing: L1 pending` if the report is about several
    subscriptions.
    """
    name = lane_text(row["level"], row["state"])
    places = {(one["topic"], one["subscription"]) for one in (*document["waiting"], *document["latency"])}
    if len({place for place in places if place[1]}) <= 1:
        return name
    return f"{safe_name(row['topic'])} / {safe_name(row['subscription'] or '(all)')}: {name}"


def cause(row: FailureCount) -> str:
    """Name, for people, of the cause of a failure; if no cause is known, the text of `outcome`."""
    return safe_name(row["cause"]) if row["cause"] else outcome(row)


def outcome(row: FailureCount) -> str:
    """Name, for people, of the rule by which a failed message was handled."""
    return RULES.get(row["rule"], safe_name(row["rule"]))


def safe_name(text: str | None, limit: int = NAME) -> str:
    """A name from the cluster, escaped, on one line, and cut after `limit` characters, counted before escaping; "" for
    None.
    """
    return one_line(text or "", limit)


def tenant_name(tenant: str | None, limit: int = NAME) -> str:
    """Words for a tenant in a sentence: its name as `safe_name` makes it; "messages without a tenant" for `(none)`
    (NOBODY), an empty text or None, which only a forged record has; "messages whose tenant cannot be read" for
    `(unknown)` (UNKNOWN). A tenant that really has one of these names is counted among such messages everywhere.
    """
    if tenant == UNKNOWN:
        return "messages whose tenant cannot be read"
    return "messages without a tenant" if tenant in (None, "", NOBODY) else safe_name(tenant, limit)


def tenant_label(document: ReportDocument, row: ReportTenant, limit: int = NAME) -> str:
    """Name of a tenant for a table or a chart, made safe to print: `mega`, or `orders: mega` with the ground topic in
    front if the report's tenants belong to more than one topic. `limit`: largest number of characters of each of the
    two names.
    """
    name = safe_name(row["tenant"], limit)
    has_several = len({one["topic"] for one in document["tenants"]}) > 1
    return f"{safe_name(row['topic'], limit)}: {name}" if has_several else name


def span(document: ReportDocument) -> str:
    """Time span of the report's windows as text; "" if there are no windows."""
    if not document["since"]:
        return ""
    width = document["over_time"]["width_ms"]
    return f"{window_text(document['since'], width)} to {window_text(document['until'], width)}"


def figures(document: ReportDocument) -> Sequence[tuple[str, str]]:
    """(figure, its name) for the head of the page. The first figure is the sum of the others. Producers' marks, and
    messages for another subscription, are not counted.
    """
    counts: dict[str, int] = {}
    for one in document["audit"]["subscriptions"]:
        for fate, number in one["messages"].items():
            name = _FIGURES.get(fate, "not proved")
            counts[name] = counts.get(name, 0) + number
    counts.pop("", None)
    shown_ = [name for name in dict.fromkeys(_FIGURES.values()) if counts.get(name) or name in _ALWAYS]
    return [
        (f"{sum(counts.values()):,}", "messages judged"),
        *((f"{counts.get(name, 0):,}", name) for name in shown_),
    ]
