"""Report of an audit: one JSON document, and the text lines that are rendered from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kodoctl.formatting import many, time_text
from kodoctl.pipeline.audit.verdict import AuditEvidence, MessageStatus, Outcome, PartitionCoverage, Verdict

FORMAT_VERSION: Final = 1
SAMPLES: Final = 20  # places named of each fate
EXIT_CODES: Final = {Outcome.NO_LOSS: 0, Outcome.LOSS: 5, Outcome.INCONCLUSIVE: 6}
_SHOWN: Final = 5  # of them, in the lines for people


class Finding(NamedTuple):
    """A place that somebody should look at: `id` on `msg_topic`."""

    fate: str
    cause: str
    topic: str
    subscription: str
    msg_topic: str
    id: str


def document(verdict: Verdict, evidence: AuditEvidence, findings: Iterable[Finding]) -> dict[str, Any]:
    """For machines. Times are ms."""
    found = list(findings)
    return {
        "format_version": FORMAT_VERSION,
        "verdict": verdict.outcome.value,
        "reasons": [{"kind": one.kind, "proves": one.proves.value, "text": one.text} for one in verdict.reasons],
        "notes": list(verdict.notes),
        "subscriptions": [
            {
                "topic": tally.topic,
                "subscription": tally.subscription,
                "audit": tally.mode,
                "messages": {fate.value: tally.count(fate) for fate in MessageStatus if tally.count(fate)},
                "missing_records": tally.missing,
            }
            for tally in evidence.tallies
        ],
        "coverage": [_coverage(part) for part in evidence.parts],
        "findings": [one._asdict() for one in found],
        "sql": list(sql(found)),
    }


def _coverage(part: PartitionCoverage) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "entries_planned": part.planned,
        "entries_seen": part.seen,
        "from_creation": part.whole,
        "problems": list(part.problems),
    }


def sql(findings: Sequence[Finding]) -> Iterator[str]:
    """Queries on the landing's tables that show the messages and the records behind the findings, a pair for each
    topic.
    """
    topics: dict[str, list[str]] = {}
    for one in findings:
        topics.setdefault(one.msg_topic, []).append(one.id)
    for topic, ids in topics.items():
        name, listed = _quoted(topic), ", ".join(_quoted(one) for one in dict.fromkeys(ids))
        yield f"SELECT * FROM events WHERE msg_topic = {name} AND id IN ({listed})"  # noqa: S608 - shown, quoted, not run
        here, there = f"msg_topic = {name} AND id IN ({listed})", f"target_topic = {name} AND target_id IN ({listed})"
        yield f"SELECT * FROM transitions WHERE ({here}) OR ({there})"  # noqa: S608


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """For people: the verdict first, then why, then what was counted."""
    yield document["verdict"].upper()
    for reason in document["reasons"]:
        yield f"  {reason['text']}"
    yield ""
    for one in document["subscriptions"]:
        counts = ", ".join(f"{count:,} {fate}" for fate, count in one["messages"].items()) or "no messages"
        yield f"{one['topic']} / {one['subscription']}: {counts}"
    yield from (f"note: {text}" for text in document["notes"])
    planned = sum(part["entries_planned"] for part in document["coverage"])
    seen = sum(part["entries_seen"] for part in document["coverage"])
    yield f"coverage: {seen:,} of {many(planned, 'entry', 'entries')} of {many(len(document['coverage']), 'partition')}"
    if "read_at" in document:
        yield f"read at {time_text(document['read_at'])}: what came later is not judged"
    yield from _samples(document["findings"])
    for query in document["sql"]:
        yield f"sql: {query}"
    if "run" in document:
        yield f"run: {document['run']}"


def _samples(findings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in findings:
        groups.setdefault((one["fate"], one["cause"], one["msg_topic"]), []).append(one["id"])
    for (fate, cause, topic), ids in groups.items():
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        why = f" ({cause})" if cause else ""
        yield f"{fate}{why} on {topic}: {', '.join(ids[:_SHOWN])}{more}"
