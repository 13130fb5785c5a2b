# adapter: draws for people
"""An audit as text: the verdict first, then its reasons, then the counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.text.formatting import many, time_text

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditBasis, AuditDocument, AuditFinding

WHOLE: Final = ("sql: ", "  kodoctl ")
"""Beginnings of lines that people copy: the output does not fold these lines."""
_SHOWN: Final = 5  # messages named of each fate, cause and topic


def lines(document: AuditDocument) -> Iterator[str]:
    """Yields an audit as lines of text: verdict, reasons, counts, notes, coverage, time of the reading, judged rows,
    samples of the findings (at most five places of each status, cause and topic), commands and queries to copy, and the
    run. A key that `document` lacks has no line.
    """
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
    if "judged" in document:
        yield from _basis(document["judged"])
    yield from _samples(document["findings"])
    if commands := document.get("commands"):
        yield "what to do: send the lost messages again, each exactly once, then look again"
        yield from (f"  {one}" for one in commands)
    for query in document["sql"]:
        yield f"sql: {query}"
    if "run" in document:
        yield f"run: {document['run']}"


def _basis(judged: AuditBasis) -> Iterator[str]:
    if judged["all_rows"]:
        yield f"judged: all, as {judged['why']}"
    else:
        again = f", {judged['reopened']:,} more once again" if judged["reopened"] else ""
        yield f"judged: what is new or open{again}; {many(judged['settled_before'], 'message')} had been settled"
    if judged["unsaved"]:
        yield f"the next audit cannot begin with this one: {judged['unsaved']}"


def _samples(findings: Sequence[AuditFinding]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in findings:
        groups.setdefault((one["fate"], one["cause"], one["msg_topic"]), []).append(one["id"])
    for (fate, cause, topic), ids in groups.items():
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        why = f" ({cause})" if cause else ""
        yield f"{fate}{why} on {topic}: {', '.join(ids[:_SHOWN])}{more}"
