"""The verdict from counts and coverage: never a false "no loss"."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.audit.verdict import DAY, SKEW, Outcome, decide_verdict
from kodo_pipeline.evidence.audit_evidence import (
    RANKS,
    AuditEvidence,
    MessageStatus,
    Misaddressed,
    PartitionCoverage,
    SequenceGap,
    SubscriptionTotals,
    UndatedMessages,
)
from kodo_pipeline.evidence.reading_clock import ReadingClock

READY = PartitionCoverage("persistent://t/n/orders", 0, entries_planned=10, entries_seen=10)
AUDIT = PartitionCoverage("persistent://t/n/orders-billing-AUDIT", 0, entries_planned=3, entries_seen=3, audit=True)
GOOD = SubscriptionTotals(
    "orders", "billing", "wait", {MessageStatus.DONE: 90, MessageStatus.OPEN: 5, MessageStatus.DEAD: 5}
)
CLEAN = AuditEvidence((READY, AUDIT), (GOOD,))
HOUR = 3_600_000


def tally(mode="wait", missing=0, contradictions=0, runs=(), **fates):
    counts = {MessageStatus[name.upper()]: count for name, count in fates.items()}
    return SubscriptionTotals(
        "orders", "billing", mode, {MessageStatus.DONE: 90, **counts}, missing, contradictions, runs
    )


def part(**changes):
    return replace(READY, **changes)


def gap(**changes):
    return SequenceGap(**{"topic": "t", "partition": 0, "run": "r", "missing": 2, "overdue": 2, **changes})


# name, what differs from a clean run, outcome, kinds of the reasons, a part of the first one's text
CASES = [
    ("clean", {}, Outcome.NO_LOSS, [], ""),
    ("no message at all", {"tallies": (SubscriptionTotals("orders", "billing", "wait"),)}, Outcome.NO_LOSS, [], ""),
    ("nothing read", {"parts": ()}, Outcome.INCONCLUSIVE, ["nothing read"], "ingest"),
    ("lost", {"tallies": (tally(lost=2),)}, Outcome.LOSS, ["lost"], "orders / billing: 2 messages lost"),
    (
        "lost, and the ledger is elsewhere",
        {"tallies": (tally(lost=2),), "unbooked": "2 messages were sent again"},
        Outcome.LOSS,
        ["lost", "ledger"],
        "orders / billing: 2 messages lost",
    ),
    (
        "sent again by another ledger",
        {"tallies": (tally(unproved=2),), "unbooked": "2 messages were sent again"},
        Outcome.INCONCLUSIVE,
        ["ledger", "unproved"],
        "sent again",
    ),
    ("nothing hangs on another ledger", {"unbooked": "2 messages were sent again"}, Outcome.NO_LOSS, [], ""),
    (
        "left by the last ingest",
        {"parts": (part(absent=True, left="ledger 5 is gone"), AUDIT)},
        Outcome.INCONCLUSIVE,
        ["left"],
        "--accept-holes",
    ),
    (
        "lost, or only the records",
        {"tallies": (tally(lost=2, missing=2, runs=("w-1",)),)},
        Outcome.INCONCLUSIVE,
        ["lost or unrecorded", "records"],
        "or the records of them: 2 records",
    ),
    (
        "more lost than records",
        {"tallies": (tally(lost=3, missing=2),)},
        Outcome.LOSS,
        ["lost", "records"],
        "3 messages lost",
    ),
    (
        "a worker without records",
        {"parts": (READY, replace(AUDIT, unrecorded="billing"), replace(AUDIT, partition=1, unrecorded="billing"))},
        Outcome.INCONCLUSIVE,
        ["unrecorded workers"],
        "a worker of billing was connected that does not say",
    ),
    ("unproved", {"tallies": (tally(unproved=1),)}, Outcome.INCONCLUSIVE, ["unproved"], "1 message acknowledged, not"),
    ("unknown", {"tallies": (tally(unknown=1),)}, Outcome.INCONCLUSIVE, ["unknown"], "no topic has"),
    ("overdue", {"tallies": (tally(overdue=1),)}, Outcome.INCONCLUSIVE, ["overdue"], "longer than the horizon"),
    ("forged", {"tallies": (tally(contradictions=1),)}, Outcome.INCONCLUSIVE, ["forged records"], "two different"),
    ("no records", {"tallies": (tally("none"),)}, Outcome.INCONCLUSIVE, ["no records"], "`audit: true`"),
    ("best effort", {"tallies": (tally("best_effort"),)}, Outcome.INCONCLUSIVE, ["best effort"], "prove nothing"),
    ("never read", {"parts": (part(read=False), AUDIT)}, Outcome.INCONCLUSIVE, ["never read"], "orders-partition-0"),
    (
        "a split that ended early",
        {"parts": (part(entries_seen=9, problems=("split 3 ended early",)),)},
        Outcome.INCONCLUSIVE,
        ["coverage"],
        "split 3",
    ),
    (
        "a beginning unknown",
        {"parts": (part(from_creation=False),)},
        Outcome.INCONCLUSIVE,
        ["beginning"],
        "first reading",
    ),
    (
        "audit lags",
        {"parts": (READY, replace(AUDIT, read_before_cursors=True))},
        Outcome.INCONCLUSIVE,
        ["lag"],
        "AUDIT",
    ),
    (
        "a topic gone",
        {"parts": (part(absent=True),)},
        Outcome.INCONCLUSIVE,
        ["gone"],
        "orders-partition-0 was not there",
    ),
    (
        "a lane without",
        {"parts": (part(missing_subscriptions=("billing",)),)},
        Outcome.INCONCLUSIVE,
        ["no subscription"],
        "billing",
    ),
    ("TTL long enough", {"parts": (part(ttl=3 * DAY, unread=2 * DAY - 1),)}, Outcome.NO_LOSS, [], ""),
    ("TTL too short", {"parts": (part(ttl=3 * DAY, unread=2 * DAY),)}, Outcome.INCONCLUSIVE, ["ttl"], "TTL of 3d"),
    ("TTL, unread for how long?", {"parts": (part(ttl=9 * DAY, unread=None),)}, Outcome.INCONCLUSIVE, ["ttl"], "unkn"),
    ("producer's gap", {"gaps": (gap(),)}, Outcome.LOSS, ["producer"], "2 messages sent and stored nowhere"),
    ("gap, not all read", {"gaps": (gap(firm=False),)}, Outcome.INCONCLUSIVE, ["producer"], "not read completely"),
    ("gap, not told", {"gaps": (gap(overdue=0),)}, Outcome.INCONCLUSIVE, ["producer"], "may still give up"),
    (
        "gap, by forged marks",
        {"gaps": (gap(overdue=0, unsigned=2),)},
        Outcome.INCONCLUSIVE,
        ["unsigned mark"],
        "signature was not verified",
    ),
    (
        "gap, some of it by forged marks",
        {"gaps": (gap(missing=4, overdue=1, unsigned=2),)},
        Outcome.LOSS,
        ["producer", "unsigned mark", "producer"],
        "1 message sent",
    ),
    ("gap, told in part", {"gaps": (gap(overdue=1),)}, Outcome.LOSS, ["producer", "producer"], "1 message sent"),
    (
        "cluster set back",
        {"clock": ReadingClock(0, HOUR)},
        Outcome.INCONCLUSIVE,
        ["clock"],
        "was 1h behind the time of",
    ),
    ("cluster set back a moment", {"clock": ReadingClock(0, SKEW)}, Outcome.NO_LOSS, [], ""),
    (
        "cluster set back, nothing open",
        {"clock": ReadingClock(0, HOUR), "tallies": (tally(),)},
        Outcome.NO_LOSS,
        [],
        "",
    ),
    ("no clock", {"clock": ReadingClock(None)}, Outcome.INCONCLUSIVE, ["clock"], "clock is unknown"),
    ("no clock, nothing open", {"clock": ReadingClock(None), "tallies": (tally(),)}, Outcome.NO_LOSS, [], ""),
    (
        "no clock, nothing open, a TTL",
        {"clock": ReadingClock(None), "tallies": (tally(),), "parts": (part(ttl=9 * DAY),)},
        Outcome.INCONCLUSIVE,
        ["clock"],
        "expired unread",
    ),
    (
        "no clock, one waits",
        {"clock": ReadingClock(None), "tallies": (tally(waiting=1),)},
        Outcome.INCONCLUSIVE,
        ["clock"],
        "",
    ),
    ("fast machine", {"clock": ReadingClock(HOUR)}, Outcome.NO_LOSS, [], ""),
    ("slow machine", {"clock": ReadingClock(-HOUR)}, Outcome.NO_LOSS, [], ""),
    (
        "no clock, and a loss",
        {"clock": ReadingClock(None), "tallies": (tally(lost=1, open=1),)},
        Outcome.LOSS,
        ["lost", "clock"],
        "",
    ),
    (
        "undated",
        {"undated": (UndatedMessages("persistent://t/n/orders-billing-RETRYING", 2, ("w-1",)),)},
        Outcome.INCONCLUSIVE,
        ["clock"],
        "2 open messages with a publish time after the reading",
    ),
]


@pytest.mark.parametrize(("name", "changes", "outcome", "kinds", "text"), CASES, ids=[case[0] for case in CASES])
def test_verdict(name, changes, outcome, kinds, text):
    found = decide_verdict(replace(CLEAN, **changes))
    assert (found.outcome, [reason.kind for reason in found.reasons]) == (outcome, kinds)
    assert not kinds or text in found.reasons[0].text


def test_a_loss_is_told_before_what_is_only_in_doubt():
    found = decide_verdict(replace(CLEAN, parts=(part(from_creation=False),), tallies=(tally(lost=1),)))
    assert [reason.proves for reason in found.reasons] == [Outcome.LOSS, Outcome.INCONCLUSIVE]
    assert found.outcome is Outcome.LOSS


def test_many_reasons_of_a_kind_are_counted():
    parts = tuple(part(partition=number, read=False) for number in range(12))
    texts = [reason.text for reason in decide_verdict(replace(CLEAN, parts=parts)).reasons]
    assert len(texts) == 6
    assert texts[-1] == "… and 7 more of this kind"


def test_notes_change_nothing():
    found = decide_verdict(replace(CLEAN, tallies=(tally(duplicated=3, dead=1),), unnumbered=7, numbered_twice=1))
    assert found.outcome is Outcome.NO_LOSS
    assert [note.removeprefix("orders / billing: ").split(" ")[0] for note in found.notes] == ["3", "1", "1", "7"]


def test_a_verdict_on_messages_of_a_source_says_who_proves_the_way_to_their_numbers():
    found = decide_verdict(replace(CLEAN, sources=("shop-db",)))
    assert found.outcome is Outcome.NO_LOSS
    (note,) = (one for one in found.notes if one.startswith("source"))
    assert note.startswith("source shop-db: its messages are judged from their numbers on; ")
    assert note.endswith("`kodo-consumer source verify`")


def test_a_verdict_on_what_a_removal_left_says_from_when_on_it_judges():
    found = decide_verdict(replace(CLEAN, removed_before=1_767_484_800_000))
    assert found.outcome is Outcome.NO_LOSS
    assert found.notes[0].startswith("messages published before 2026-01-04 were settled and removed: ")


def test_a_part_is_full_when_all_of_it_was_seen():
    assert READY.full
    assert not any(part(**one).full for one in ({"read": False}, {"problems": ("x",)}))
    assert tally(lost=2).judged == 92


def test_the_worst_fate_is_loss():
    assert max(RANKS, key=RANKS.__getitem__) is MessageStatus.LOST


fates = st.dictionaries(st.sampled_from(list(MessageStatus)), st.integers(0, 3))
tallies = st.builds(
    SubscriptionTotals,
    st.just("t"),
    st.just("s"),
    st.sampled_from(["wait", "best_effort", "none"]),
    fates,
    st.integers(0, 2),
)
parts = st.builds(
    part,
    problems=st.sampled_from([(), ("split 3 ended early",)]),
    read=st.booleans(),
    from_creation=st.booleans(),
    read_before_cursors=st.booleans(),
    ttl=st.sampled_from([0, DAY]),
)


@given(st.lists(parts, min_size=1, max_size=3), st.lists(tallies, max_size=3))
def test_no_loss_is_said_only_when_everything_was_seen(parts, tallies):
    found = decide_verdict(AuditEvidence(tuple(parts), tuple(tallies)))
    bad = {MessageStatus.LOST, MessageStatus.UNPROVED, MessageStatus.UNKNOWN, MessageStatus.OVERDUE}
    clean = all(p.full and p.from_creation and not p.read_before_cursors and not p.ttl for p in parts) and all(
        t.audit == "wait" and not t.missing_records and not any(t.count(fate) for fate in bad) for t in tallies
    )
    assert (found.outcome is Outcome.NO_LOSS) == clean
    sure = any(t.count(MessageStatus.LOST) > t.missing_records for t in tallies)
    assert (found.outcome is Outcome.LOSS) == sure


def test_messages_for_nobody_are_a_doubt_and_those_sent_again_a_note() -> None:
    strays = (Misaddressed(READY.topic, "gone", 3),)
    found = decide_verdict(replace(CLEAN, strays=strays, tallies=(replace(GOOD, sent_again=1),)))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "3 messages for subscription 'gone'" in found.reasons[0].text
    assert any("1 message that was lost, or not proved done, sent again" in note for note in found.notes)


@pytest.mark.parametrize(
    ("ahead", "note"),
    [
        (HOUR - 1_300, "the clock of the machine that read last was 1h ahead of the cluster's: "),
        (-HOUR, "the clock of the machine that read last was 1h behind the cluster's: "),
    ],
)
def test_a_clock_that_is_off_is_named_and_decides_nothing(ahead: int, note: str) -> None:
    found = decide_verdict(replace(CLEAN, clock=ReadingClock(ahead)))
    assert (found.outcome, found.reasons) == (Outcome.NO_LOSS, ())
    assert found.notes[0].startswith(note)
    assert replace(found, notes=found.notes[1:]) == decide_verdict(CLEAN)


@pytest.mark.parametrize("clock", [ReadingClock(), ReadingClock(-5, 7), ReadingClock(None)])
def test_the_commit_of_a_reading_tells_its_clock(clock: ReadingClock) -> None:
    assert ReadingClock.of_facts({"begun": 1, **clock.to_facts()}) == clock


def test_a_reading_of_before_has_a_clock_that_nobody_knows() -> None:
    assert ReadingClock.of_facts({"begun": 1}) == ReadingClock(None)
