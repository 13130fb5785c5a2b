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


class Fate(StrEnum):
    """Fate of a commit, and of each of its messages; the worst fate comes first."""

    MISSING = "missing"
    TWICE = "twice"
    UNKNOWN = "unknown"
    NOT_COVERED = "not yet covered"
    STORED = "stored once"


class Place(NamedTuple):
    """Place of a change's message in the log. `lsn`: of the commit; `place`: in the transaction."""

    lsn: int
    place: int


class Expected(NamedTuple):
    """Message that a change in the log requires. `end`: position after its commit; `time`: of the commit, in ms since
    the epoch; `table`: for people; `partition`: where it belongs; `doubt`: why it may rightly have no message, "": it has
    to have one.
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
class Reading:
    """Both readings. The log was read from `start` up to `end`; `expected`: by place; `stored`: number of copies of each message, by place; `covered`: position up to which the source
    reported everything as stored; `spans`: of its marks; `oldest`: time of the oldest stored message by partition, in ms
    since the epoch, None: it stores nothing.
    """

    start: int
    end: int
    expected: Mapping[Place, Expected]
    stored: Mapping[Place, int]
    covered: int
    spans: Sequence[Span]
    oldest: Mapping[str, int | None]


class Finding(NamedTuple):
    """Fate of a commit, with the reason, for people; "" if each of its messages is stored once."""

    fate: Fate
    text: str


@dataclass(frozen=True)
class Proof:
    """Result of a verification. `commits`: number of commits with messages, by fate; `messages`: number of messages that
    they require; `findings`: one for each other commit, the worst first, at most MOST_FINDINGS; `end`: position up to which each commit is stored
    once.
    """

    commits: Mapping[Fate, int]
    messages: int
    findings: Sequence[Finding]
    end: int

    @property
    def is_loss(self) -> bool:
        """True if a commit is missing, or stored twice."""
        return bool(self.commits.get(Fate.MISSING) or self.commits.get(Fate.TWICE))

    @property
    def is_conclusive(self) -> bool:
        """True if each commit is stored once."""
        return not any(count for fate, count in self.commits.items() if fate is not Fate.STORED)


def without_copy(reading: Reading) -> set[str]:
    """Partitions of covered messages that have no copy: how far these reach back decides what the messages are."""
    return {
        one.partition
        for place, one in reading.expected.items()
        if one.end <= reading.covered and not reading.stored.get(place) and not one.doubt
    }


def prove(reading: Reading) -> Proof:
    """Decides the fate of each commit: the worst of its messages."""
    rank = {fate: number for number, fate in enumerate(Fate)}
    commits: dict[int, tuple[Finding, int]] = {}  # with the number of messages that have this fate
    for lsn, finding in _judged(reading):
        before, count = commits.get(lsn, (finding, 0))
        if finding.fate is before.fate:
            commits[lsn] = before, count + 1
        elif rank[finding.fate] < rank[before.fate]:
            commits[lsn] = finding, 1
    counts = Counter(finding.fate for finding, _ in commits.values())
    open_ = {lsn: found for lsn, found in commits.items() if found[0].fate is not Fate.STORED}
    worst = sorted(open_.values(), key=lambda found: rank[found[0].fate])[:MOST_FINDINGS]
    return Proof(
        {fate: counts[fate] for fate in Fate},
        len(reading.expected),
        [_with_others(finding, count - 1) for finding, count in worst],
        min(open_, default=reading.end),
    )


def _with_others(finding: Finding, others: int) -> Finding:
    more = f"; {many(others, 'more message')} of this commit likewise" if others else ""
    return finding._replace(text=finding.text + more)


def _judged(reading: Reading) -> Iterator[tuple[int, Finding]]:
    """Yields the commit and the fate of each message that the log requires, or that is stored without a change."""
    for place, one in reading.expected.items():
        fate, why = _fate(place, one, reading)
        yield place.lsn, Finding(fate, why and f"{one.table} at {Position(*place)}: {fate}, {why}")
    for place, copies in reading.stored.items():
        if place not in reading.expected and reading.start <= place.lsn < reading.end:
            text = f"{Position(*place)}: unknown, it is stored {_times(copies)}, and the log has no such change"
            yield place.lsn, Finding(Fate.UNKNOWN, text)


def _fate(place: Place, one: Expected, reading: Reading) -> tuple[Fate, str]:
    copies = reading.stored.get(place, 0)
    if copies == 1:
        return Fate.STORED, ""
    if copies:
        return Fate.TWICE, f"it is stored {_times(copies)}"
    if one.end > reading.covered:
        return Fate.NOT_COVERED, f"committed at {time_text(one.time, seconds=True)}"
    if one.doubt:
        return Fate.UNKNOWN, one.doubt
    if any(not span.start and one.end <= span.end for span in reading.spans):
        return Fate.UNKNOWN, "a snapshot came later, and has the rows as they were then"
    if (oldest := reading.oldest.get(one.partition)) is None:
        return Fate.UNKNOWN, f"{one.partition} stores nothing any more"
    if oldest > one.time:
        return Fate.UNKNOWN, f"{one.partition} stores messages since {time_text(oldest, seconds=True)} only"
    if not any(span.start <= place.lsn < span.end for span in reading.spans):
        return Fate.MISSING, "and no mark covers it: somebody moved the slot (K793)"
    return Fate.MISSING, f"though a mark says that all up to {lsn_text(one.end)} is stored"


def _times(copies: int) -> str:
    return "once" if copies == 1 else f"{copies} times"
