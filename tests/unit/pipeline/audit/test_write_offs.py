"""What was written off stands against no verdict, and what comes beyond it does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from kodo_pipeline.audit.verdict import Outcome, decide_verdict
from kodo_pipeline.audit.write_offs import WriteOffs, describe_items, standing, without_messages
from kodo_pipeline.evidence.audit_evidence import (
    AuditEvidence,
    MessageStatus,
    Misaddressed,
    PartitionCoverage,
    SequenceGap,
    SubscriptionTotals,
)
from kodo_pipeline.write_off.write_off_plan import WriteOffPlan, choose_items, loads

from kodoctl.errors import UsageError

DAY = 86_400_000
TOPIC = "persistent://t/n/orders"
HOLE, OTHER = (
    "entries were gone before they were read by ingest r1",
    "entries were gone before they were read by ingest r2",
)
PART = PartitionCoverage(TOPIC, 0, entries_planned=10, entries_seen=10, looks=(0, 9 * DAY))
TALLY = SubscriptionTotals("orders", "billing", "wait", {MessageStatus.DONE: 90})
GAP = SequenceGap(TOPIC, 0, "run-1", missing=3, overdue=2, unsigned=1, highest=10)


def evidence(part: PartitionCoverage = PART, tally: SubscriptionTotals = TALLY, **more: Any) -> AuditEvidence:
    return AuditEvidence((part,), (tally,), **more)


def booked(seen: AuditEvidence, *, run: str = "w1", known: WriteOffs | None = None) -> WriteOffs:
    """All that stands, planned and booked as the command does it."""
    items = tuple(standing(seen) if known is None else standing(seen, known))
    plan = WriteOffPlan(run, 0, "trade", None, "landing", "the disk broke", "inconclusive", items)
    return WriteOffs.of(plan.rows("anna", DAY))


# what stands, and what comes later beyond it
CASES = {
    "hole": (evidence(replace(PART, problems=(HOLE,))), evidence(replace(PART, problems=(HOLE, OTHER)))),
    "beginning": (evidence(replace(PART, from_creation=False)), evidence(replace(PART, from_creation=False, problems=(HOLE,)))),
    "ttl": (
        evidence(replace(PART, ttl=3 * DAY, unread=9 * DAY)),
        evidence(replace(PART, ttl=3 * DAY, unread=9 * DAY, looks=(0, 9 * DAY, 12 * DAY))),
    ),
    "records": (evidence(tally=replace(TALLY, missing_records=2)), evidence(tally=replace(TALLY, missing_records=3))),
    "forged": (evidence(tally=replace(TALLY, contradictions=2)), evidence(tally=replace(TALLY, contradictions=3))),
    "producer": (evidence(gaps=(GAP,)), evidence(gaps=(replace(GAP, missing=2, overdue=2, unsigned=0, highest=12),))),
    "another producer": (evidence(gaps=(GAP,)), evidence(gaps=(GAP, replace(GAP, run="run-2")))),
    "addressee": (
        evidence(strays=(Misaddressed(TOPIC, "gone", 2),)),
        evidence(strays=(Misaddressed(TOPIC, "gone", 3),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_a_verdict_recovers_from_what_was_written_off_and_sees_what_comes_next(
    before: AuditEvidence, after: AuditEvidence
) -> None:
    assert decide_verdict(before).outcome is not Outcome.NO_LOSS
    known = booked(before)
    found = decide_verdict(known.applied(before))
    assert (found.outcome, found.reasons) == (Outcome.NO_LOSS, ())
    assert [one for one in found.notes if "written off by anna on 1970-01-02: the disk broke" in one]
    assert not standing(before, known), "once is enough"
    later = decide_verdict(known.applied(after))
    assert later.outcome is not Outcome.NO_LOSS
    everything = booked(after, run="w2", known=known)
    both = WriteOffs({**known.counts, **everything.counts})
    assert decide_verdict(both.applied(after)).outcome is Outcome.NO_LOSS


def test_numbers_that_arrived_after_all_hide_no_later_loss_of_the_run() -> None:
    known = booked(evidence(gaps=(replace(GAP, overdue=0, unsigned=0),)))
    assert list(known.producers) == [(TOPIC, 0, "run-1", 10)]
    later = replace(GAP, missing=3, overdue=3, unsigned=0, highest=22)  # the three of before are stored
    found = decide_verdict(known.applied(evidence(gaps=(later,))))
    assert (found.outcome, found.reasons[0].kind) == (Outcome.LOSS, "producer")
    less = replace(GAP, missing=1, overdue=1, unsigned=0, highest=8)
    assert decide_verdict(known.applied(evidence(gaps=(less,)))).outcome is Outcome.NO_LOSS


def test_a_producer_that_an_older_kodoctl_wrote_off_stays_written_off() -> None:
    row = {
        "topic": TOPIC,
        "partition": 0,
        "subscription": "",
        "name": "run-1",
        "number": 3,
        "reason": "why",
        "by": "anna",
    }
    old = {**row, "kind": "producer", "run": "w0", "at_ts": datetime.fromtimestamp(0, UTC)}
    known = WriteOffs.of([old])
    seen = evidence(gaps=(GAP,))
    assert list(known.producers) == []
    assert decide_verdict(known.applied(seen)).outcome is Outcome.NO_LOSS
    more = evidence(gaps=(replace(GAP, missing=5, overdue=4, unsigned=1, highest=12),))
    (left,) = known.applied(more).gaps
    assert (left.missing, left.overdue, left.unsigned) == (2, 1, 1)
    (item,) = standing(more, known)
    assert (item.name, item.number) == ("run-1:12", 5)
    both = WriteOffs.of([old, {**old, **item._asdict(), "run": "w1"}])
    assert decide_verdict(both.applied(more)).outcome is Outcome.NO_LOSS
    (later,) = both.applied(evidence(gaps=(replace(GAP, missing=1, overdue=1, unsigned=0, highest=20),))).gaps
    assert later.missing == 1, "the number of the old one hides nothing any more"


def test_a_loss_behind_a_written_off_hole_is_a_loss() -> None:
    known = booked(CASES["hole"][0])
    lost = replace(CASES["hole"][0], tallies=(replace(TALLY, fates={MessageStatus.LOST: 1}),))
    assert decide_verdict(known.applied(lost)).outcome is Outcome.LOSS


def test_records_that_were_written_off_still_may_explain_what_is_lost() -> None:
    known = booked(evidence(tally=replace(TALLY, missing_records=2)))
    lost = evidence(tally=replace(TALLY, missing_records=2, fates={MessageStatus.LOST: 1}))
    found = decide_verdict(known.applied(lost))
    assert [(one.kind, one.proves) for one in found.reasons] == [("lost or unrecorded", Outcome.INCONCLUSIVE)]


def test_the_larger_count_of_one_name_holds_and_each_booking_has_its_note() -> None:
    rows = []
    for number in range(8):
        row = WriteOffPlan(
            f"w{number}", 0, "trade", None, "landing", f"reason {number}", "loss", tuple(standing(CASES["records"][0]))
        )
        rows += row.rows("anna", number * DAY)
    known = WriteOffs.of(rows)
    assert known.count("records", "orders", subscription="billing") == 2
    assert known.notes[0].endswith("reason 7")
    assert known.notes[-1] == "… and 3 earlier write-offs, in the table `write_offs`"
    assert bool(known)
    assert not WriteOffs.of([])
    assert WriteOffs.of([]).applied(PLAIN) is PLAIN


PLAIN = evidence()


def test_a_plan_is_carried_out_as_it_was_written_or_not_at_all() -> None:
    items = tuple(standing(CASES["hole"][0]))
    plan = WriteOffPlan("w1", 7, "trade", "prod", "/landing", "why", "loss", items, ("stays",))
    import json

    text = json.dumps(plan.document())
    assert loads(text, "plan.json") == plan
    for broken in (
        text.replace('"why"', '"for fun"'),
        "{}",
        "[]",
        "no json",
        text.replace('"format_version": 1', '"format_version": 2'),
    ):
        with pytest.raises(UsageError, match="K827"):
            loads(broken, "plan.json")


def test_what_is_chosen_is_of_a_topic_and_a_subscription() -> None:
    seen = evidence(replace(PART, problems=(HOLE,)), replace(TALLY, missing_records=2, fates={MessageStatus.LOST: 1}))
    items, grounds = standing(seen), {TOPIC: "orders"}
    assert choose_items(items, None, None, grounds) == items
    assert choose_items(items, "orders", "billing", grounds) == items
    assert [one.kind for one in choose_items(items, "orders", "mail", grounds)] == ["coverage"]
    assert choose_items(items, "others", None, grounds) == []
    assert not without_messages(seen, None, None).tallies[0].count(MessageStatus.LOST)
    assert without_messages(seen, "others", None).tallies[0].count(MessageStatus.LOST)
    assert without_messages(seen, "orders", "mail").tallies[0].count(MessageStatus.LOST)
    assert list(describe_items(items)) == [
        f"{TOPIC}: 1 hole in what was read",
        "orders / billing: 2 missing records of workers",
    ]


def test_a_time_that_messages_may_have_expired_in_is_no_doubt_up_to_the_look_that_it_was_written_off_at() -> None:
    before, after = CASES["ttl"]
    assert decide_verdict(booked(before).applied(after)).reasons[0].kind == "ttl"
    short = evidence(replace(PART, ttl=3 * DAY, unread=9 * DAY, looks=(0, 9 * DAY, 9 * DAY + 1000)))
    assert decide_verdict(booked(before).applied(short)).outcome is Outcome.NO_LOSS
    assert datetime.fromtimestamp(DAY / 1000, UTC).date().isoformat() == "1970-01-02"
