# pure: every branch is tested
"""Proof that each commit in a part of the log is stored as messages: a reading of the log against a reading of topics.

Both readings have positions alone in common: a message names the commit and the place of its change in `kodo-id`. A
message without its copy is *missing* only if its partition still has what was stored at the time of the commit:
otherwise retention may have removed it, and it is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from kodo_consumer.source.positions import Position, lsn_text, read_lsn
from kodoctl.text.formatting import many, time_text

MOST_FINDINGS: Final = 1_000
_SPAN: Final = re.compile(r"([0-9A-F]{1,8}/[0-9A-F]{1,8})\.\.([0-9A-F]{1,8}/[0-9A-F]{1,8})", re.ASCII)


class CommitStatus(StrEnum):
    """Status of a commit, and of each of its messages; the worst comes first."""

    MISSING = "missing"
    TWICE = "twice"
    UNKNOWN = "unknown"
    NOT_COVERED = "not yet covered"
    STORED = "stored once"


class RequiredMessage(NamedTuple):
    """Message that a change in the log requires. `end`: position after its commit; `time`: of the commit, in ms since
    the epoch; `table`: for people; `partition`: where it belongs; `doubt`: why the change may rightly have no message,
    "": it needs one.
    """

    end: int
    time: int
    table: str
    partition: str
    doubt: str = ""


class Span(NamedTuple):
    """Part of the log of which a mark says that all is stored. `start`: 0: a snapshot stands for everything before."""

    start: int
    end: int


def read_span(text: str) -> Span | None:
    """Reads the property `kodo-covered` of a mark; None: it has none, or one that no source writes."""
    found = _SPAN.fullmatch(text)
    return Span(read_lsn(found[1]), read_lsn(found[2])) if found else None


@dataclass(frozen=True)
class ProofInputs:
    """Readings of the log, from `start` up to `end`, and of the topics. `expected`: by position; `stored`: number of
    copies of each message, by position; `covered`: position up to which the source reported everything as stored;
    `spans`: of its marks; `oldest`: time of the oldest stored message by partition, in ms since the epoch, None: it
    stores nothing.
    """

    start: int
    end: int
    expected: Mapping[Position, RequiredMessage]
    stored: Mapping[Position, int]
    covered: int
    spans: Sequence[Span]
    oldest: Mapping[str, int | None]


class CommitFinding(NamedTuple):
    """Status of a commit, with the reason, for people; "" if each of its messages is stored once."""

    status: CommitStatus
    text: str


@dataclass(frozen=True)
class Proof:
    """Result of a verification. `commits`: number of commits with messages, by status; `messages`: number of messages that
    they require; `findings`: one for each other commit, the worst first, at most MOST_FINDINGS; `end`: position up to
    which each commit is stored once.
    """

    commits: Mapping[CommitStatus, int]
    messages: int
    findings: Sequence[CommitFinding]
    end: int

    @property
    def is_loss(self) -> bool:
        """True if a commit is missing, or stored twice."""
        return bool(self.commits.get(CommitStatus.MISSING) or self.commits.get(CommitStatus.TWICE))

    @property
    def is_conclusive(self) -> bool:
        """True if each commit is stored once."""
        return not any(count for status, count in self.commits.items() if status is not CommitStatus.STORED)


def without_copy(reading: ProofInputs) -> set[str]:
    """Partitions of covered messages that have no copy: how far these reach back decides what the messages are."""
    return {
        one.partition
        for place, one in reading.expected.items()
        if one.end <= reading.covered and not reading.stored.get(place) and not one.doubt
    }


def prove(reading: ProofInputs) -> Proof:
    """Decides the status of each commit: the worst of its messages."""
    rank = {status: number for number, status in enumerate(CommitStatus)}
    commits: dict[int, tuple[CommitFinding, int]] = {}  # with the number of messages that have this status
    for lsn, finding in _judged(reading):
        before, count = commits.get(lsn, (finding, 0))
        if finding.status is before.status:
            commits[lsn] = before, count + 1
        elif rank[finding.status] < rank[before.status]:
            commits[lsn] = finding, 1
    counts = Counter(finding.status for finding, _ in commits.values())
    open_ = {lsn: found for lsn, found in commits.items() if found[0].status is not CommitStatus.STORED}
    worst = sorted(open_.values(), key=lambda found: rank[found[0].status])[:MOST_FINDINGS]
    return Proof(
        {status: counts[status] for status in CommitStatus},
        len(reading.expected),
        [_with_others(finding, count - 1) for finding, count in worst],
        min(open_, default=reading.end),
    )


def _with_others(finding: CommitFinding, others: int) -> CommitFinding:
    more = f"; {many(others, 'more message')} of this commit likewise" if others else ""
    return finding._replace(text=finding.text + more)


def _judged(reading: ProofInputs) -> Iterator[tuple[int, CommitFinding]]:
    """Yields the commit and the status of each message that the log requires, or that is stored without a change."""
    for place, one in reading.expected.items():
        status, why = _status(place, one, reading)
        yield place.lsn, CommitFinding(status, why and f"{one.table} at {place}: {status}, {why}")
    for place, copies in reading.stored.items():
        if place not in reading.expected and reading.start <= place.lsn < reading.end:
            text = f"{place}: unknown, it is stored {_times(copies)}, and the log has no such change"
            yield place.lsn, CommitFinding(CommitStatus.UNKNOWN, text)


def _status(place: Position, one: RequiredMessage, reading: ProofInputs) -> tuple[CommitStatus, str]:
    copies = reading.stored.get(place, 0)
    if copies > 1:
        return CommitStatus.TWICE, f"it is stored {_times(copies)}"
    if one.end > reading.covered:  # also if it is stored: until then the source may send it again
        return CommitStatus.NOT_COVERED, f"committed at {time_text(one.time, seconds=True)}"
    if copies:
        return CommitStatus.STORED, ""
    if one.doubt:
        return CommitStatus.UNKNOWN, one.doubt
    if any(not span.start and one.end <= span.end for span in reading.spans):
        return CommitStatus.UNKNOWN, "a snapshot came later, and has the rows as they were then"
    if (oldest := reading.oldest.get(one.partition)) is None:
        return CommitStatus.UNKNOWN, f"{one.partition} stores nothing any more"
    if oldest > one.time:
        return CommitStatus.UNKNOWN, f"{one.partition} stores messages since {time_text(oldest, seconds=True)} only"
    if not any(span.start <= place.lsn < span.end for span in reading.spans):
        return CommitStatus.MISSING, "and no stored mark covers it: was the slot moved (K793)?"
    return CommitStatus.MISSING, f"though a mark says that all up to {lsn_text(one.end)} is stored"


def _times(copies: int) -> str:
    return "once" if copies == 1 else f"{copies} times"
