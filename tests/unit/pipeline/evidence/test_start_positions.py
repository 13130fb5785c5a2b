"""What a subscription acknowledged before its records proved anything, or never had, is not called lost."""

from __future__ import annotations

import pytest
from kodo_pipeline.evidence.partition_history import PartitionHistory, read_tables
from kodo_pipeline.evidence.readings import audit_scope
from kodo_pipeline.evidence.start_positions import (
    UNRECORDED,
    CompleteTrail,
    audit_complete_since,
    complete_trails,
    proven_ranges,
    unproven_before,
)

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.unit.pipeline.evidence.test_readings import (
    AT,
    FILE,
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
THIRD = AT + 120_000


@pytest.mark.parametrize(
    ("looks", "waited", "trails", "expected"),
    [
        ([], [], [], None),
        ([1, 2, 3], [], [], None),
        ([1, 2, 3], [1, 2, 3], [(1, 3)], 1),
        ([3, 1, 2], [3], [(3, 3)], 3),
        ([1, 2, 3], [1, 3], [(1, 1), (3, 3)], 3),  # turned off between
        ([1, 2, 3], [1, 2], [(1, 2)], None),  # the file says so now, and nobody looked since
    ],
)
def test_since_when_its_workers_wait_for_their_records(looks, waited, trails, expected):
    found = complete_trails(looks, waited)
    assert (found, audit_complete_since(looks, found)) == (trails, expected)


TRAIL = CompleteTrail(AT, AT + 1)


@pytest.mark.parametrize(
    ("marks", "trails", "behind", "expected"),
    [
        ((), [TRAIL], None, []),
        ((mark((7, -1)), mark((7, 5), run="r2", taken=AT + 1)), [], None, []),
        ((mark((7, -1)), mark((7, 5), run="r2", taken=AT + 1)), [TRAIL], None, [((7, -1), (7, 5))]),
        ((mark((7, 2)), mark((9, 5), run="r2", taken=AT + 1)), [TRAIL], (8, 1), [((8, 1), (9, 5))]),
        ((mark((7, 2)), mark((7, 5), run="r2", taken=AT + 1)), [TRAIL], (7, 5), []),
        ((mark((7, 2)), mark((7, 5), run="r2", taken=AT + 2)), [TRAIL], None, []),  # acknowledged behind its end
        (
            (mark((7, 2)), mark((7, 2), run="r2", taken=AT + 1, acknowledged=((7, 4, 5), (8, 0, 9)))),
            [TRAIL],
            (7, 4),
            [((7, 4), (7, 5)), ((8, -1), (8, 9))],
        ),
        ((mark((7, -1)), mark((7, 5), run="r2", taken=AT + 1, name="other")), [TRAIL], None, []),
        (
            (mark((7, 0)), mark((7, 2), run="r2", taken=AT + 2), mark((7, 5), run="r3", taken=AT + 3)),
            [CompleteTrail(AT, AT), CompleteTrail(AT + 2, AT + 3)],
            None,
            [((7, 2), (7, 5))],
        ),
    ],
)
def test_what_was_acknowledged_within_a_trail_that_ended_stays_proven(marks, trails, behind, expected):
    found = proven_ranges(PartitionHistory((span((7, 0), (9, 9)),), marks), "billing", trails, behind)
    assert [tuple(one) for one in found] == expected


def test_a_partition_that_was_made_within_a_trail_is_proven_from_its_creation():
    history = PartitionHistory((span((7, 0), (7, 9), run="r2"),), (second((7, 8)),))
    assert [tuple(one) for one in proven_ranges(history, "billing", [TRAIL], None)] == [((-1, -1), (7, 8))]


def second(place, **columns):
    return mark(place, run="r2", taken=AT + 1, **columns)


@pytest.mark.parametrize(
    ("ranges", "marks", "since", "expected"),
    [
        ((span((7, 0), (7, 9)),), (mark((7, 4)),), None, (7, 9)),
        ((), (), None, None),
        ((), (mark((7, -1)), second((7, 8))), AT, (7, -1)),
        ((), (second((7, 8)), mark((7, -1))), AT + 1, (7, 8)),  # in whatever order they come
        ((), (mark((7, 4), acknowledged=((7, 6, 7),)),), AT, (7, 7)),  # the first ingest, of a topic with a past
        ((), (mark((7, -1)), second((9, -1), name="fresh")), AT + 1, None),  # not there any more
        ((), (mark((7, -1), name="fresh"), second((9, -1))), AT, (9, -1)),  # added, and older ledgers are trimmed
        ((span((7, 0), (7, 9), run="r2"),), (second((7, 8)),), AT, None),  # a partition that was made since
        ((), (second((7, 8)),), AT, None),
        ((span((7, 0), (7, 9)),), (second((9, -1)),), AT, (9, -1)),  # read before it had any subscription
    ],
)
def test_up_to_where_nothing_proves_that_it_was_its_own(ranges, marks, since, expected):
    assert unproven_before(PartitionHistory(ranges, marks), "billing", since) == expected


def facts(found, subscription="billing", state="ready"):
    lane = next(one for one in found.lanes if (one["subscription"], one["state"]) == (subscription, state))
    return lane["proved"], (lane["started_ledger"], lane["started_entry"])


def surveyed(expansion, coverage, cursors, stored_from=None):
    return audit_scope(expansion, read_tables(coverage, holder_named(cursors), stored_from or {}))


def third(cursors):
    """The same as at the second look, a minute later."""
    last = [row for row in cursors if row["ingest_run"] == "r2"]
    return [cursor(row["msg_topic"], row["subscription"], (7, 9) if row["subscription"] else (20, -1), "r3", THIRD,
                   **({} if row["subscription"] else {"first_ledger": 20})) for row in last]  # fmt: skip


def test_records_that_were_turned_on_after_the_traffic(expansion):
    coverage, cursors = everything(expansion)
    coverage = [row for row in coverage if row["msg_topic"] != AUDIT]
    before = [row for row in cursors if row["msg_topic"] != AUDIT]
    found = surveyed(expansion, coverage, before, {(AUDIT, 0): 20})
    assert facts(found) == (False, (7, 9)), "the topic is there now, and nobody ever looked at it"
    assert not next(one for one in found.parts if one.topic == AUDIT).read
    on = [*coverage, covered(AUDIT, "20:0", "20:9", "r3"), covered(READY, "7:10", "7:19", "r3")]
    found = surveyed(expansion, on, [*before, *third(cursors)])
    assert facts(found) == (True, (7, 9)), "what comes later has records that can be missed"
    assert facts(found, state="retrying") == (True, (7, 9))


def test_a_look_at_which_a_worker_did_not_say_that_it_records_is_no_beginning_of_records(expansion):
    coverage, cursors = everything(expansion)
    before = [row | {"audit": UNRECORDED} if row["msg_topic"] == AUDIT else row for row in cursors]
    found = surveyed(expansion, coverage, before)
    (part,) = [one for one in found.parts if one.topic == AUDIT and one.partition == 0]
    assert (part.unrecorded, facts(found)) == ("billing", (True, (7, 9))), (
        "nothing that was acknowledged is called lost"
    )
    later = [*before, *third(cursors)]
    found = surveyed(expansion, [*coverage, covered(READY, "7:10", "7:19", "r3")], later)
    assert facts(found) == (True, (7, 9)), "what comes later can be missed"
    assert not any(one.unrecorded for one in found.parts)


def test_what_was_lost_before_somebody_else_was_connected_stays_lost(expansion):
    coverage, cursors = everything(expansion)
    foreign = [row | {"audit": UNRECORDED} if row["audit"] == "wait" and row["msg_topic"] == AUDIT else row
               for row in third(cursors)]  # fmt: skip
    found = surveyed(expansion, [*coverage, covered(READY, "7:10", "7:19", "r3")], [*cursors, *foreign])
    lane = next(one for one in found.lanes if (one["subscription"], one["state"]) == ("billing", "ready"))
    assert (lane["started_ledger"], lane["started_entry"]) == (7, 19), "of what came later nobody knows"
    proven = {"after_ledger": 7, "after_entry": -1, "last_ledger": 7, "last_entry": 4}
    assert lane["proven_ranges"] == [proven], "the cursor of the last look before"
    lasting = surveyed(expansion, coverage, cursors)
    assert not any(one["proven_ranges"] for one in lasting.lanes), "all of a trail that lasts"


@pytest.mark.parametrize("mode", ["best_effort", None])
def test_records_that_nobody_waited_for_before(expansion, mode):
    coverage, cursors = everything(expansion)
    before = [row | {"audit": mode} if row["msg_topic"] == AUDIT else row for row in cursors]
    assert facts(surveyed(expansion, coverage, before)) == (True, (7, 9)), "all of it: nobody looked since"
    later = [*before, *third(cursors)]
    assert facts(surveyed(expansion, [*coverage, covered(READY, "7:10", "7:19", "r3")], later)) == (True, (7, 9))


def test_a_subscription_that_was_added_when_older_ledgers_were_gone(tmp_path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE + "      fresh: {states: [], dead_letter: false, audit: true}\n", encoding="utf-8")
    expansion = expand(load_topology(str(file)))
    fresh = f"{READY}-fresh-AUDIT"
    coverage, cursors = everything(expansion)
    coverage = [row for row in coverage if row["msg_topic"] != fresh]
    cursors = [row for row in cursors if row["msg_topic"] != fresh] + [
        cursor(READY, name, (9, -1), "r3", THIRD, first_ledger=9, rewrites=2) for name in ("billing", "fresh")
    ]
    cursors += [cursor(topic, "", (30, -1), "r3", THIRD, first_ledger=30) for topic in (fresh, AUDIT)]
    found = surveyed(expansion, [*coverage, covered(fresh, "30:0", "30:9", "r3")], cursors)
    assert facts(found, "fresh") == (True, (9, -1))
    assert facts(found) == (True, (7, -1))
