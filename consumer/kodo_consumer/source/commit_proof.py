# pure: every branch is tested
"""Proof that each commit in a part of the log is stored as messages: a reading of the log against a reading of topics.

Both readings have positions alone in common: a message names the commit and the place of its change in `kodo-id`. Only
the source's own messages count (`identity`). A message without its copy is *missing* only if its partition still stores
an own message of an earlier position, because otherwise retention may have removed it; and only if the source had the
same topology when it stored the commit, because otherwise the change may rightly have another message, or none. Both
follow from positions: clocks of the database and of senders decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.source.positions import Position, lsn_text
from kodoctl.text.formatting import many, time_text

if TYPE_CHECKING:
    from kodo_consumer.source.identity import Span

MOST_FINDINGS: Final = 1_000


class CommitStatus(StrEnum):
    """Status of a commit, and of each of its messages; the worst comes first."""

    MISSING = "missing"
    TWICE = "twice"
    UNKNOWN = "unknown"
    NOT_COVERED = "not yet covered"
    STORED = "stored once"


class RequiredMessage(NamedTuple):
    """Message that a change in the log requires. `end`: position after its commit; `time`: of the commit, in ms since
    the epoch, which decides no status; `table`: for people; `ground`: its ground topic, and `partition`: full name of
    the partition where it belongs, "" if not known; `doubt`: why the change may rightly have no message, or why its
    message is not known, "": it needs one.
    """

    end: int
    time: int
    table: str
    ground: str
    partition: str
    doubt: str = ""


Copy = tuple[str, Position]
"""(ground topic, position) of a stored message."""


@dataclass(frozen=True)
class ProofInputs:
    """Readings of the log, from `start` to before `end`, and of the topics, as far back as they were read.

    `expected`: by position, the messages that changes in the log require; `silent`: by position, the table of a change
    that requires no message, of the first such change of each commit.

    `stored`: number of the source's own messages by (ground topic, position); `doubts`: by the same key, the reason why
    a message with the id of that change proves nothing; `first`: by partition, the lowest position of an own message
    that was read, None or missing if none was; `strangers`: number of messages with an id of the source that were not
    sent as the source sends, by the name of their producer (see PartitionCopies).

    `covered`: position up to which the source reported everything as stored, 0: nothing; `spans`: parts of the log that
    its stored marks cover (a mark says that a part is stored); `routing`: hash of the present topology (`routing_of`).
    """

    start: int
    end: int
    expected: Mapping[Position, RequiredMessage]
    stored: Mapping[Copy, int]
    covered: int
    spans: Sequence[Span]
    first: Mapping[str, Position | None]
    routing: str
    doubts: Mapping[Copy, str] = field(default_factory=dict)
    strangers: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[Position, str] = field(default_factory=dict)


class CommitFinding(NamedTuple):
    """Status of a commit, or of one of its messages. `text`: the reason, for people; "" if the status is STORED."""

    status: CommitStatus
    text: str


@dataclass(frozen=True)
class Proof:
    """Result of a verification of a part of the log. `commits`: number of commits by status (see `prove`); `messages`:
    number of messages that the changes in it require; `findings`: one for each commit that is not `STORED`, the worst
    first, at most MOST_FINDINGS; `end`: position up to which each commit is stored once: that of the first commit that
    is not, else the end of the part; `strangers`: number of messages with an id of the source that were not sent as the
    source sends, by the name of their producer: nothing was decided by them.
    """

    commits: Mapping[CommitStatus, int]
    messages: int
    findings: Sequence[CommitFinding]
    end: int
    strangers: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_loss(self) -> bool:
        """True if a commit is MISSING or TWICE: a message of it is missing, or stored more than once."""
        return bool(self.commits.get(CommitStatus.MISSING) or self.commits.get(CommitStatus.TWICE))

    @property
    def is_conclusive(self) -> bool:
        """True if every commit is STORED: each of its messages is stored exactly once. Also true without any commit."""
        return not any(count for status, count in self.commits.items() if status is not CommitStatus.STORED)


def prove(reading: ProofInputs) -> Proof:
    """Decides the status of each commit, which is the worst status of its messages. A message whose position is in this
    part of the log, and that no change requires on its ground topic, counts as UNKNOWN, and so does a change without a
    message about which another topology decided. Other commits without messages do not count.
    """
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
        reading.strangers,
    )


def _with_others(finding: CommitFinding, others: int) -> CommitFinding:
    more = f"; {many(others, 'more message')} of this commit likewise" if others else ""
    return finding._replace(text=finding.text + more)


def _judged(reading: ProofInputs) -> Iterator[tuple[int, CommitFinding]]:
    """Yields the commit and the status of each message that the log requires, or that is stored without a change."""
    for place, one in reading.expected.items():
        status, why = _status(place, one, reading)
        yield place.lsn, CommitFinding(status, why and f"{one.table} at {place}: {status}, {why}")
    for place, table in reading.silent.items():
        if why := _other_topology(place.lsn, reading):
            yield place.lsn, CommitFinding(CommitStatus.UNKNOWN, f"{table} at {place}: unknown, {why}")
    for (ground, place), copies in reading.stored.items():
        wanted = reading.expected.get(place)
        if (wanted is None or wanted.ground != ground) and reading.start <= place.lsn < reading.end:
            why = _other_topology(place.lsn, reading) or "and the log has no such change for this topic"
            text = f"{place}: unknown, it is stored {_times(copies)} on {ground}, {why}"
            yield place.lsn, CommitFinding(CommitStatus.UNKNOWN, text)


def _status(place: Position, one: RequiredMessage, reading: ProofInputs) -> tuple[CommitStatus, str]:
    copies = reading.stored.get((one.ground, place), 0)
    if copies > 1:
        return CommitStatus.TWICE, f"it is stored {_times(copies)}"
    if one.end > reading.covered:  # also if it is stored: until then the source may send it again
        return CommitStatus.NOT_COVERED, f"committed at {time_text(one.time, seconds=True)}"
    if doubt := reading.doubts.get((one.ground, place)):
        return CommitStatus.UNKNOWN, doubt
    if copies:
        return CommitStatus.STORED, ""
    if one.doubt:
        return CommitStatus.UNKNOWN, one.doubt
    if any(not span.start and one.end <= span.end for span in reading.spans):
        return CommitStatus.UNKNOWN, "a snapshot came later, and has the rows as they were then"
    if doubt := _other_topology(place.lsn, reading) or _unknown_topology(place.lsn, reading):
        return CommitStatus.UNKNOWN, doubt
    first = reading.first.get(one.partition)
    if first is None or first > place:
        older = "no message of this source that is older, so retention may have removed it"
        return CommitStatus.UNKNOWN, f"{one.partition} stores {older}"
    if not any(span.start <= place.lsn < span.end for span in reading.spans):
        return CommitStatus.MISSING, "and no stored mark covers it: was the slot moved (K793)?"
    return CommitStatus.MISSING, f"though a mark says that all up to {lsn_text(one.end)} is stored"


def _other_topology(lsn: int, reading: ProofInputs) -> str:
    """Reason why another topology than the present one decided about a change; "": no stored mark says so. Where no
    mark covers the change, those before and after it tell.
    """
    deciding = _deciding(lsn, reading)
    if not deciding or any(span.routing in {"", reading.routing} for span in deciding):
        return ""
    later = [span.start for span in reading.spans if span.start > lsn and span.routing == reading.routing]
    when = f"at {lsn_text(min(later))}" if later else "since then, and no run has used the present file yet"
    return f"the topology changed {when}: verify with the file of before, or pass it by --accept"


def _unknown_topology(lsn: int, reading: ProofInputs) -> str:
    """Reason why the topology that decided about a change is not known; "": it is."""
    deciding = _deciding(lsn, reading)
    if not deciding:
        return "no mark from before it is stored, so it is not known by which topology it was sent"
    is_known = any(span.routing == reading.routing for span in deciding)
    return "" if is_known else "the mark of an earlier release does not say by which topology it was sent"


def _deciding(lsn: int, reading: ProofInputs) -> list[Span]:
    """The spans that cover a change. In the gap that a moved slot leaves: the last span before it, or the first one
    after it if only that one has another topology than the present.
    """
    spans = [span for span in reading.spans if span.start]
    if covering := [span for span in spans if span.start <= lsn < span.end]:
        return covering
    before = max((span for span in reading.spans if span.end <= lsn), key=lambda span: span.end, default=None)
    after = min((span for span in spans if span.start > lsn), default=None)
    if before is None:
        return []
    if after is None or after.routing == before.routing:
        return [before]
    return [after if before.routing == reading.routing else before]


def _times(copies: int) -> str:
    return "once" if copies == 1 else f"{copies} times"
