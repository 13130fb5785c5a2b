"""What must not be taken for read: partitions that the file does not know, cursors ahead of the reading, topics made again,
records that nobody can have seen, and messages that clocks keep young.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kodo_pipeline.evidence.continuity import is_contiguous
from kodo_pipeline.evidence.partition_history import PartitionHistory, read_tables
from kodo_pipeline.evidence.readings import _aged_place, _lags, audit_scope

from tests.unit.pipeline.evidence.test_readings import (
    AT,
    READY,
    covered,
    cursor,
    everything,
    expansion,
    holder_named,
    mark,
    span,
)

__all__ = ["expansion"]
AUDIT = f"{READY}-billing-AUDIT"


def surveyed(expansion, coverage, cursors):
    return audit_scope(expansion, read_tables(coverage, holder_named(cursors), {}))


def part_of(found, topic, number=0):
    return next(one for one in found.parts if (one.topic, one.partition) == (topic, number))


def test_a_partition_that_the_file_does_not_know_is_judged_too(expansion):
    coverage, cursors = everything(expansion)
    grown = [{**row, "msg_partition": 1} for row in coverage if row["msg_topic"] == READY]
    looks = [{**row, "msg_partition": 1} for row in cursors if row["msg_topic"] == READY]
    found = surveyed(expansion, [*coverage, *grown], [*cursors, *looks])
    assert part_of(found, READY, 1).full
    lanes = [lane for lane in found.lanes if (lane["msg_topic"], lane["msg_partition"]) == (READY, 1)]
    assert [lane["subscription"] for lane in lanes] == ["billing", "mailing", "looking"]
    found = audit_scope(expansion, read_tables(coverage, holder_named(cursors), {(READY, 1): 7}))
    assert not part_of(found, READY, 1).read  # there since the last reading


@pytest.mark.parametrize(
    ("ranges", "marks", "expected"),
    [
        ((), (mark((7, -1)),), False),
        ((), (mark((7, 3)),), True),
        ((), (mark((7, 3), first_ledger=8),), False),  # that is gone, and was before the first look
        ((span((7, 0), (7, 4)),), (mark((7, 4)),), False),
        ((span((7, 0), (7, 4)),), (mark((8, -1)),), False),
        ((span((7, 0), (7, 4)),), (mark((7, 5)),), True),
        ((span((7, 0), (7, 4)),), (mark((7, 1)), mark((8, 0), name="mailing")), True),
        ((span((7, 0), (7, 4)),), (mark((7, 1), acknowledged=((7, 3, 4),)),), False),
        ((span((7, 0), (7, 4)),), (mark((7, 1), acknowledged=((7, 3, 4), (7, 6, 9))),), True),
    ],
)
def test_what_is_acknowledged_behind_the_end_of_what_was_read(ranges, marks, expected):
    assert _lags(PartitionHistory(ranges), marks) is expected


def test_a_lane_that_lags_is_told(expansion):
    coverage, cursors = everything(expansion)
    cursors += [cursor(READY, "billing", (7, 12), "r3", AT + 120_000)]
    assert part_of(surveyed(expansion, coverage, cursors), READY).read_before_cursors


def test_a_topic_that_was_made_again(expansion):
    coverage, cursors = everything(expansion)
    assert not part_of(surveyed(expansion, coverage, cursors), READY).problems
    made = {"r1": datetime(2026, 1, 1, tzinfo=UTC), "r2": datetime(2026, 1, 2, tzinfo=UTC)}
    again = [{**row, "created_ts": made[row["ingest_run"]]} for row in cursors]
    part = part_of(surveyed(expansion, coverage, again), READY)
    times = "2026-01-01T00:00:00+00:00, 2026-01-02T00:00:00+00:00"
    remade = f"it was deleted and made again between two readings, or is another cluster's (made {times})"
    assert part.problems == (remade,), "once more is another problem"
    once = [{**row, "created_ts": made["r1"] if row["ingest_run"] == "r1" else None} for row in cursors]
    assert not part_of(surveyed(expansion, coverage, once), READY).problems


def started(expansion, coverage, cursors):
    found = surveyed(expansion, coverage, cursors)
    lane = next(one for one in found.lanes if (one["subscription"], one["state"]) == ("billing", "ready"))
    return lane["started_ledger"], lane["started_entry"]


def test_what_was_read_before_its_records_were_proves_no_loss_by_their_absence(expansion):
    coverage, cursors = everything(expansion)
    assert started(expansion, coverage, cursors) == (7, -1)
    trimmed = [row | {"rewrites": 3} if row["msg_topic"] == AUDIT else row for row in cursors]
    assert started(expansion, coverage, trimmed) == (7, 9)
    unknown = [row for row in cursors if row["msg_topic"] != AUDIT]
    assert started(expansion, coverage, unknown) == (7, 9)
    later = [*coverage, covered(READY, "7:10", "7:19", "r3"), covered(AUDIT, "7:10", "7:19", "r3")]
    assert started(expansion, later, trimmed) == (7, 9)
    silent = [row for row in later if row["msg_topic"] != AUDIT]
    third = [{**row, "ingest_run": "r3"} for row in trimmed if row["ingest_run"] == "r2"]
    third = [{**row, "taken_ts": datetime.fromtimestamp((AT + 120_000) / 1000, UTC)} for row in third]
    assert started(expansion, silent, [*trimmed, *third]) == (7, 19)


def test_what_was_read_a_horizon_ago_is_old_whatever_its_clock_said():
    ranges = (span((7, 0), (7, 4)), span((7, 5), (7, 6), run="r2"), span((7, 7), (7, 9), run="r3"))
    marks = tuple(mark((7, -1), run=f"r{at}", taken=AT + at * 1_000) for at in (1, 2, 3, 4))
    reading = PartitionHistory(ranges, marks)
    assert _aged_place(reading, 2_500) is None
    assert _aged_place(reading, 1_500) == (7, 4)
    assert _aged_place(reading, 500) == (7, 6)
    assert _aged_place(PartitionHistory(), 500) is None


def third(expansion, cursors, **lacking):
    """The looks of one run more, in which some topics have none, or none of their subscriptions."""
    names = {topic.name.full for topic in expansion.topics}
    looks = [
        {**row, "ingest_run": "r3", "taken_ts": datetime.fromtimestamp((AT + 120_000) / 1000, UTC)}
        for row in cursors
        if row["ingest_run"] == "r2" and row["msg_topic"] not in lacking.values()
    ]
    looks += [cursor(name, "", (7, 9), "r3", AT + 120_000) for name in names - {lacking.get("topic")}]
    return [*cursors, *looks]


@pytest.mark.parametrize("topic", [READY, f"{READY}-billing-RETRYING", f"{READY}-billing-DLQ", AUDIT])
def test_a_topic_that_is_gone_since_the_last_look_is_not_judged_by_an_older_one(expansion, topic):
    coverage, cursors = everything(expansion)
    found = surveyed(expansion, coverage, third(expansion, cursors))
    assert not any(part.absent or part.read_before_cursors for part in found.parts)
    assert any(lane["proved"] for lane in found.lanes)
    found = surveyed(expansion, coverage, third(expansion, cursors, topic=topic))
    assert [part.topic for part in found.parts if part.absent] == [topic]
    assert any(lane["proved"] for lane in found.lanes) == (topic != AUDIT), (
        "records that nobody looked for prove nothing"
    )
    kept = [row for row in coverage if row["msg_topic"] != topic], [row for row in cursors if row["msg_topic"] != topic]
    found = surveyed(expansion, kept[0], third(expansion, kept[1], topic=topic))
    assert not part_of(found, topic).absent, "never there: told as never read"


@pytest.mark.parametrize("topic", [READY, f"{READY}-billing-RETRYING", f"{READY}-billing-DLQ"])
def test_a_subscription_that_is_gone_since_the_last_look_is_missed_where_it_was_the_only_one(expansion, topic):
    coverage, cursors = everything(expansion)
    found = surveyed(expansion, coverage, third(expansion, cursors, subscriptions=topic))
    assert part_of(found, topic).missing_subscriptions
    assert not part_of(found, topic).absent
    assert {lane["mark_ledger"] for lane in found.lanes if lane["msg_topic"] == topic} == {None}


@pytest.mark.parametrize("topic", [READY, AUDIT])
def test_what_was_stored_when_it_was_looked_at_and_not_read_is_missed(expansion, topic):
    coverage, cursors = everything(expansion)
    looks = [
        row | {"mark_entry": 10}
        if (row["msg_topic"], row["subscription"], row["ingest_run"]) == (topic, "", "r3")
        else row
        for row in third(expansion, cursors)
    ]
    found = surveyed(expansion, coverage, looks)
    assert [part.topic for part in found.parts if part.read_before_cursors] == [topic]
    assert any(lane["proved"] for lane in found.lanes) == (topic != AUDIT)


def test_a_look_at_what_is_stored_keeps_nothing_from_being_deleted():
    """Where nobody subscribes, brokers delete what nobody has read."""
    one, other = span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2")
    stored = mark((7, 3), first_ledger=9, run="r2", name="")
    assert not is_contiguous(PartitionHistory((one, other), (stored,)), one, other)


def look(run, place, rewrites):
    """What was stored."""
    return mark(place, first_ledger=9, run=f"r{run}", name="", taken=AT + run * 1_000, rewrites=rewrites)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ((look(2, (7, 4), 4), look(3, (9, 4), 4)), True),  # trimmed when all was read, then something came
        ((look(2, (7, 4), 4), look(3, (9, 4), 5)), True),  # an empty ledger was replaced
        ((look(1, (7, 4), 3), look(2, (8, -1), 4), look(3, (9, 4), 5)), True),  # two, one after the other
        ((look(3, (7, 4), 8),), True),  # it came after the look, and what a plan misses has a row of its own
        ((look(2, (7, 4), 4), look(3, (9, 4), 6)), False),
        ((look(2, (7, 4), 4), look(3, (9, 4), None)), False),
        ((look(1, (7, 4), 1), look(2, (8, -1), 4), look(3, (9, 4), 4)), False),
        ((look(2, (7, 5), 4), look(3, (9, 4), 4)), False),
        ((look(2, (7, 4), 4),), False),
        ((), False),
    ],
)
def test_ranges_continue_each_other_where_nothing_was_between_them_when_somebody_looked(looks, expected):
    one, other = span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r3")
    assert is_contiguous(PartitionHistory((one, other), looks), one, other) is expected
