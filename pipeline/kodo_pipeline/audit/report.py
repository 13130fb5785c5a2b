"""Report of an audit as a JSON document. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.audit.audit_document import AuditCoverage, AuditedMessages, AuditReason
from kodo_pipeline.audit.verdict import Outcome, Verdict
from kodoctl.documents.json_form import row_of

if TYPE_CHECKING:
    from kodo_pipeline.audit.audit_document import AuditDocument, AuditFinding, LostLaneRow
    from kodo_pipeline.evidence.audit_evidence import AuditEvidence

FORMAT_VERSION: Final = 1
SAMPLES: Final = 20  # places named of each fate, in each lane
MOST_SAMPLES: Final = 1_000  # of each fate: an incident may have as many lanes as the file
EXIT_CODES: Final = {Outcome.NO_LOSS: 0, Outcome.LOSS: 5, Outcome.INCONCLUSIVE: 6}


def document(
    verdict: Verdict,
    evidence: AuditEvidence,
    findings: Iterable[AuditFinding],
    lost: Iterable[LostLaneRow] = (),
) -> AuditDocument:
    """Makes the JSON document of an audit, without the keys that are not required (`judged`, `run`, `read_at`,
    `commands`). `findings`: samples, which `sql` of the document is about; `lost`: number of places with a lost
    message, by lane.
    """
    found = list(findings)
    return {
        "format_version": FORMAT_VERSION,
        "verdict": verdict.outcome.value,
        "reasons": [row_of(AuditReason, one) for one in verdict.reasons],
        "notes": list(verdict.notes),
        "subscriptions": [row_of(AuditedMessages, tally) for tally in evidence.tallies],
        "coverage": [row_of(AuditCoverage, part) for part in evidence.parts],
        "findings": found,
        "lost": list(lost),
        "sql": list(sql(found)),
    }


def sql(findings: Sequence[AuditFinding]) -> Iterator[str]:
    """Yields SQL queries on the landing's tables that show the rows behind the findings: for each `msg_topic` of a
    finding one on `events` and one on `transitions`, which may also show records of other subscriptions.
    """
    topics: dict[str, list[str]] = {}
    for one in findings:
        topics.setdefault(one["msg_topic"], []).append(one["id"])
    for topic, ids in topics.items():
        name, listed = _quote(topic), ", ".join(_quote(one) for one in dict.fromkeys(ids))
        yield f"SELECT * FROM events WHERE msg_topic = {name} AND id IN ({listed})"  # noqa: S608 - shown, quoted, not run
        here, there = f"msg_topic = {name} AND id IN ({listed})", f"target_topic = {name} AND target_id IN ({listed})"
        yield f"SELECT * FROM transitions WHERE ({here}) OR ({there})"  # noqa: S608


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
