"""Verdict of an audit from counts and coverage: no loss, loss or inconclusive, with every reason. Pure.

*No loss* is claimed only if all the evidence for it was read; *loss* only if nothing else explains the evidence; all
other cases are *inconclusive*, with the missing evidence as the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from kodo_pipeline.evidence.audit_evidence import (
    OPEN_FATES,
    AuditEvidence,
    MessageStatus,
    Misaddressed,
    PartitionCoverage,
    SequenceGap,
    SubscriptionTotals,
    UndatedMessages,
)
from kodoctl.text.formatting import many
from kodoctl.topology.names import PLAIN, partition_name
from kodoctl.topology.units import Duration

DAY: Final = 86_400_000  # ms: how long before a TTL's end a message must have been read, the broker is not punctual
SKEW: Final = 60_000  # ms that clocks may differ
_MOST_WORKERS: Final = 3  # named in a reason
_MOST_REASONS: Final = 5  # of one kind, told one by one; the rest is counted


class Outcome(StrEnum):
    """Outcome of an audit. Public: these values are in documents, and each has an exit code."""

    NO_LOSS = "no loss"
    LOSS = "loss"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why the verdict is not *no loss*. `kind`: some words for programs; `proves`: the outcome that this
    reason alone would give; `text`: for people, a sentence, or the number of more reasons of this kind.
    """

    kind: str
    proves: Outcome  # never NO_LOSS
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of an audit. `reasons`: why it is not *no loss*, losses first; of many reasons that are alike the first
    five are there, and one with the number of the others, but all that follow from SubscriptionTotals are there;
    `notes`: texts that do not affect the outcome.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]


def decide_verdict(evidence: AuditEvidence) -> Verdict:
    """Decides the verdict, from evidence to which write-offs have been applied. Reasons of a loss come first."""
    found = [
        *_short(_unread(evidence.parts)),
        *_short(_expiry_doubts(evidence.parts)),
        *([_doubt("ledger", evidence.unbooked)] if _asks_for_ledger(evidence) else ()),
        *(reason for tally in evidence.tallies for reason in _of_tally(tally)),
        *_short(_of_gaps(evidence.gaps)),
        *_short(_of_strays(evidence.strays)),
        *_clocks(evidence),
        *_short(_undated_doubts(evidence.undated)),
    ]
    if not evidence.parts:
        found.append(_doubt("nothing read", "nothing was read yet: `kodoctl pipeline ingest` does"))
    reasons = sorted(found, key=lambda reason: reason.proves is not Outcome.LOSS)
    outcome = reasons[0].proves if reasons else Outcome.NO_LOSS
    return Verdict(outcome, tuple(reasons), tuple(_notes(evidence)))


def _asks_for_ledger(evidence: AuditEvidence) -> bool:
    """True if recalls landed that the ledger lacks and messages are lost or not proved done: the missing ledger may
    explain these messages.
    """
    fates = (MessageStatus.LOST, MessageStatus.UNPROVED)
    return bool(evidence.unbooked) and any(tally.count(fate) for tally in evidence.tallies for fate in fates)


def _doubt(kind: str, text: str) -> Reason:
    return Reason(kind, Outcome.INCONCLUSIVE, text)


def _unread(parts: Iterable[PartitionCoverage]) -> Iterator[Reason]:
    for part in parts:
        if not part.read:
            yield _doubt("never read", f"{part.name} was never read")
            continue
        for problem in part.problems:
            yield _doubt("coverage", f"{part.name}: {problem}")
        if part.left:
            text = (
                f"{part.name} was not read by the last ingest: {part.left}. `kodoctl pipeline ingest --accept-holes` goes on, and "
                "writes down what is missing"
            )
            yield _doubt("left", text)
        elif part.absent:
            text = (
                f"{part.name} was not there when the last ingest looked: what came to it, or was removed, since the look before "
                "is unknown. If it was deleted on purpose, take it out of the file; else apply the file, then ingest again"
            )
            yield _doubt("gone", text)
        if not part.from_creation:
            text = f"{part.name}: what was there before the first reading is unknown"
            yield _doubt("beginning", text)
        if part.read_before_cursors:
            text = f"{part.name} was read up to a moment before the cursors were: its last messages are missing"
            yield _doubt("lag", text)
        if part.unrecorded and part.partition in (0, PLAIN):
            text = (
                f"{part.topic}: at the last ingest a worker of {part.unrecorded} was connected that does not say that it keeps "
                "records: what it acknowledges is not judged. Restart the workers that began before `audit: true`, then ingest again"
            )
            yield _doubt("unrecorded workers", text)
        for name in part.missing_subscriptions:
            yield _doubt("no subscription", f"{part.name} has no subscription {name}")


def is_expiring(part: PartitionCoverage) -> bool:
    """True if messages of the partition may have expired (TTL) unread: it has a TTL, and the longest time between two
    readings is unknown, or at least the TTL less a day; so always with a TTL of a day or less. False without a TTL.
    """
    return bool(part.ttl) and (part.unread is None or part.unread >= part.ttl - DAY)


def _expiry_doubts(parts: Iterable[PartitionCoverage]) -> Iterator[Reason]:
    """Yields a doubt for each partition with a TTL that was not read often enough. A TTL makes readers skip messages,
    and messages that expire between two readings are never read.
    """
    for part in parts:
        if is_expiring(part):
            since = "an unknown time" if part.unread is None else str(Duration(part.unread))
            text = f"{part.name} has a TTL of {Duration(part.ttl)} and was not read for {since}"
            yield _doubt("ttl", f"{text}: messages may have expired unseen (read a day before the TTL ends)")


def _of_tally(tally: SubscriptionTotals) -> Iterator[Reason]:
    lost = tally.count(MessageStatus.LOST)
    if lost > tally.missing_records:
        yield Reason("lost", Outcome.LOSS, f"{tally.name}: {many(lost, 'message')} lost")
    elif lost:
        text = f"{tally.name}: {many(lost, 'message')} lost, or the records of them: {many(tally.missing_records, 'record')} missing"
        yield _doubt("lost or unrecorded", text)
    yield from _mode(tally)
    if missing := tally.missing_records - tally.records_settled:
        runs = f", of run {', '.join(tally.runs)}" if tally.runs else ""
        yield _doubt("records", f"{tally.name}: {many(missing, 'record')} of workers missing{runs}")
    if tally.contradictions:
        text = (
            f"{tally.name}: {many(tally.contradictions, 'number')} with two different records: not all are a worker's"
        )
        yield _doubt("forged records", text)
    for fate, text in _DOUBTS.items():
        if count := tally.count(fate):
            yield _doubt(fate.value, f"{tally.name}: {many(count, 'message')} {text}")


_DOUBTS: Final = {
    MessageStatus.UNPROVED: "acknowledged, not proved done",
    MessageStatus.UNKNOWN: "recorded, but no topic has a message at the recorded position",
    MessageStatus.OVERDUE: "open for longer than the horizon: stuck, delayed by their sender for longer than that, or on the way to being lost",
}


def _mode(tally: SubscriptionTotals) -> Iterator[Reason]:
    if tally.audit == "none":
        text = f"{tally.name} keeps no audit records: say `audit: true` in the file, and restart its workers"
        yield _doubt("no records", text)
    elif tally.audit == "best_effort":
        text = f"{tally.name} keeps records with `audit: best_effort`: those missing prove nothing"
        yield _doubt("best effort", text)


def _of_gaps(gaps: Iterable[SequenceGap]) -> Iterator[Reason]:
    for gap in gaps:
        where = f"{partition_name(gap.topic, gap.partition)}, producer run {gap.run}"
        if gap.overdue and gap.firm:
            yield Reason("producer", Outcome.LOSS, f"{where}: {many(gap.overdue, 'message')} sent and stored nowhere")
        elif gap.overdue:
            text = f"{where}: {many(gap.overdue, 'number')} missing, and the partition was not read completely"
            yield _doubt("producer", text)
        if gap.unsigned:
            text = f"{where}: {many(gap.unsigned, 'number')} missing, by marks whose signature was not verified"
            advice = "forged, or made with a key that KODO_CONSUMER_SIGNING_KEYS does not have here"
            yield _doubt("unsigned mark", f"{text}: {advice}")
        if rest := gap.missing - gap.overdue - gap.unsigned:
            text = f"{where}: {many(rest, 'number')} missing that the producer may still give up, or died over"
            yield _doubt("producer", text)


def _of_strays(strays: Iterable[Misaddressed]) -> Iterator[Reason]:
    for one in sorted(strays, key=lambda stray: (stray.topic, stray.subscription)):
        text = "which the file does not have: every worker acknowledges such a message unhandled"
        yield _doubt(
            "addressee", f"{one.topic}: {many(one.messages, 'message')} for subscription {one.subscription!r}, {text}"
        )


def _clocks(evidence: AuditEvidence) -> Iterator[Reason]:
    """Yields a doubt if the cluster's clock is unknown, or behind the time of an earlier ingest, and open messages or
    TTLs need it. No clock decides whether a message is done or lost.
    """
    open_ones = any(tally.count(fate) for tally in evidence.tallies for fate in OPEN_FATES)
    is_asked, clock = open_ones or any(part.ttl for part in evidence.parts), evidence.clock
    if is_asked and clock.ahead is None:
        text = (
            "the cluster's clock is unknown: the last ingest found no `Date` in the admin API's answer, or was an older "
            "kodoctl's. What is overdue, or expired unread, cannot be judged: ingest again"
        )
        yield _doubt("clock", text)
    elif is_asked and clock.lag > SKEW:
        text = (
            f"when the last ingest read, the cluster's clock was {_round_to_minutes(clock.lag)} behind the time of an earlier ingest: what "
            "is overdue, or expired unread, cannot be judged until it is past that"
        )
        yield _doubt("clock", text)


def _undated_doubts(found: Iterable[UndatedMessages]) -> Iterator[Reason]:
    for one in found:
        names = ", ".join(one.workers[:_MOST_WORKERS])
        more = f" and {len(one.workers) - _MOST_WORKERS} more" if len(one.workers) > _MOST_WORKERS else ""
        whose = (
            f"the clock of {'worker' if len(one.workers) == 1 else 'workers'} {names}{more}, which moved them there,"
            if names
            else "a producer's clock"
        )
        text = f"{one.topic}: {many(one.messages, 'open message')} with a publish time after the reading"
        yield _doubt("clock", f"{text}: {whose} is ahead, and how long they are open cannot be judged yet")


def _round_to_minutes(span: int) -> Duration:
    """Rounds ms to whole minutes: the duration of a request limits how well the difference of clocks is known."""
    return Duration(round(span / 60_000) * 60_000)


def _notes(evidence: AuditEvidence) -> Iterator[str]:
    if abs(ahead := evidence.clock.ahead or 0) > SKEW:
        side = "ahead of" if ahead > 0 else "behind"
        text = "all is judged by the cluster's. Let NTP keep both"
        yield f"the clock of the machine that read last was {_round_to_minutes(abs(ahead))} {side} the cluster's: {text}"
    if evidence.removed_before is not None:
        date = datetime.fromtimestamp(evidence.removed_before / 1000, UTC).date()
        yield f"messages published before {date} were settled and removed: they are not judged again, and in no count here"
    yield from evidence.write_offs
    if evidence.unbooked and not _asks_for_ledger(evidence):
        yield evidence.unbooked
    for tally in evidence.tallies:
        if tally.sent_again:
            yield f"{tally.name}: {many(tally.sent_again, 'message')} that {'was' if tally.sent_again == 1 else 'were'} lost, or not proved done, sent again by a recall"
        if twice := tally.count(MessageStatus.DUPLICATED):
            yield f"{tally.name}: {many(twice, 'message')} done twice; that is no loss"
        if dead := tally.count(MessageStatus.DEAD):
            yield f"{tally.name}: {many(dead, 'message')} in the dead letters, kept for a recall"
    for source in evidence.sources:
        text = "that each commit became a message is proved by `kodo-consumer source verify`"
        yield f"source {source}: its messages are judged from their numbers on; {text}"
    if evidence.numbered_twice:
        yield f"{many(evidence.numbered_twice, 'message')} stored twice with one producer's number"
    if evidence.unnumbered:
        text = "without a producer's number: what never reached the broker cannot be known"
        yield f"{many(evidence.unnumbered, 'message')} {text}"


def _short(reasons: Iterable[Reason]) -> Iterator[Reason]:
    """Yields at most `_MOST_REASONS` reasons of each kind, then one with the number of the others."""
    kinds: dict[tuple[str, Outcome], list[Reason]] = {}
    for reason in reasons:
        kinds.setdefault((reason.kind, reason.proves), []).append(reason)
    for (kind, proves), found in kinds.items():
        yield from found[:_MOST_REASONS]
        if (more := len(found) - _MOST_REASONS) > 0:
            yield Reason(kind, proves, f"… and {more:,} more of this kind")
