"""What was read of each partition, from rows of the tables: what continues what, and what was there from the beginning."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kodo_pipeline.evidence.continuity import is_contiguous
from kodo_pipeline.evidence.partition_history import CursorSnapshot, PartitionHistory, ReadRange, read_tables
from kodo_pipeline.evidence.readings import GRACE, _whole, audit_scope

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import PLAIN

FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
defaults: {partitions: 1}
topics:
  orders:
    subscriptions:
      billing: {states: [retrying], retrying: {delays: [10s], attempts: 2}, audit: true}
      mailing: {states: [], audit: best_effort, dead_letter: false, start: latest}
      looking: {states: [], dead_letter: false}
"""
READY = "persistent://kodo/trade/orders"
AT = 1_700_000_000_000


@pytest.fixture
def expansion(tmp_path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file)))


def span(first, last, *, run="r1", full=True, seen=None):
    entries = last[1] - first[1] + 1
    return ReadRange(
        first, last, entries, entries if seen is None else seen, full, "complete" if full else "timeout", run
    )


def mark(place, *, first_ledger=7, run="r1", taken=AT, name="billing", rewrites=0, acknowledged=()):
    return CursorSnapshot(name, place, acknowledged, 0, first_ledger, taken, run, None, rewrites)


@pytest.mark.parametrize(
    ("one", "other", "marks", "stored_from", "expected"),
    [
        (span((7, 0), (7, 4)), span((7, 5), (7, 9), run="r2"), (), None, True),
        (span((7, 0), (7, 4)), span((7, 6), (7, 9), run="r2"), (), 7, False),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9)), (), None, True),
        (span((7, 0), (7, 4)), span((9, 1), (9, 9)), (), None, False),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (), None, False),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (), 7, True),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (), 8, False),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (mark((9, 3), run="r2"),), None, True),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (mark((9, 3), first_ledger=9, run="r2"),), None, False),
        (span((7, 0), (7, 4)), span((9, 0), (9, 9), run="r2"), (mark((7, 4), first_ledger=9, run="r2"),), None, True),
        (  # the slowest of several keeps it
            span((7, 0), (7, 4)),
            span((9, 0), (9, 9), run="r2"),
            (mark((9, 3), first_ledger=9, run="r2"), mark((7, 4), first_ledger=9, run="r2", name="mailing")),
            None,
            True,
        ),
    ],
)
def test_what_continues_what(one, other, marks, stored_from, expected):
    assert is_contiguous(PartitionHistory((one, other), marks, stored_from), one, other) is expected


def second(place, *, rewrites):
    return mark(place, first_ledger=8, run="r2", taken=AT + 1, rewrites=rewrites)


@pytest.mark.parametrize(
    ("ranges", "marks", "stored_from", "expected"),
    [
        ((), (), None, False),
        ((), (mark((7, -1)),), None, True),
        ((), (mark((7, 3)),), None, True),  # what is acknowledged is still there
        ((), (mark((7, -1), rewrites=1),), None, True),  # an empty ledger was replaced
        ((), (mark((7, -1), rewrites=2),), None, False),  # one may have been deleted before the first look
        ((), (mark((7, -1), rewrites=None),), None, False),
        ((), (mark((7, -1)), second((8, -1), rewrites=1)), None, True),
        ((), (mark((7, -1)), second((8, -1), rewrites=2)), None, False),  # all that came was deleted before the second
        ((), (mark((7, -1)), second((8, -1), rewrites=None)), None, False),
        ((span((8, 0), (8, 9), run="r2"),), (mark((7, -1)), second((8, -1), rewrites=1)), None, True),
        ((span((9, 0), (9, 9), run="r2"),), (mark((7, -1)), second((8, -1), rewrites=1)), None, False),
        ((span((8, 0), (8, 9), run="r9"),), (mark((7, -1)), second((8, -1), rewrites=1)), None, False),
        ((span((7, 0), (7, 9)),), (mark((7, -1)),), None, True),
        ((span((7, 2), (7, 9)),), (mark((7, -1)),), None, False),
        ((span((8, 0), (8, 9)),), (mark((7, -1)),), 7, True),
        ((span((8, 1), (8, 9)),), (mark((7, -1)),), 7, False),
        (
            (span((8, 0), (8, 9), run="r2"),),
            (mark((7, -1)), mark((7, -1), first_ledger=8, run="r2", taken=AT + 1)),
            None,
            True,
        ),
        (
            (span((8, 0), (8, 9), run="r2"),),
            (mark((7, -1)), mark((8, 2), first_ledger=8, run="r2", taken=AT + 1, rewrites=2)),
            None,
            False,
        ),
    ],
)
def test_what_was_there_from_the_beginning(ranges, marks, stored_from, expected):
    assert _whole(PartitionHistory(ranges, marks, stored_from)) is expected


def covered(topic, first="7:0", last="7:9", run="r1", **changes):
    return {
        "msg_topic": topic, "msg_partition": 0, "split_id": f"{topic}{first}", "first": first, "last": last,
        "entries_planned": 10, "entries_seen": 10, "full": True, "state": "complete", "ingest_run": run,
    } | changes  # fmt: skip


def cursor(topic, name, place=(7, -1), run="r1", taken=AT, **changes):
    return {
        "msg_topic": topic, "msg_partition": 0, "subscription": name, "mark_ledger": place[0], "mark_entry": place[1],
        "acknowledged": [], "ttl_ms": None, "first_ledger": 7, "ingest_run": run, "created_ts": None, "rewrites": 0,
        "audit": None if name else "wait",
        "taken_ts": datetime.fromtimestamp(taken / 1000, UTC),
    } | changes  # fmt: skip


def everything(expansion):
    """Rows of a run that looked at empty topics, and of one that read ten entries of each."""
    names = {topic.name.full: topic for topic in expansion.topics}
    coverage = [covered(name, run="r2") for name in names]
    cursors = [
        cursor(name, reader, place, run, taken)
        for run, taken, place in (("r1", AT, (7, -1)), ("r2", AT + 60_000, (7, 4)))
        for name, topic in names.items()
        if topic.state is not None
        for reader in (["billing", "mailing", "looking"] if name == READY else ["kodoctl-holder", "billing"])
    ]
    cursors += [
        cursor(name, "", (7, -1), run, taken)
        for run, taken in (("r1", AT), ("r2", AT + 60_000))
        for name, topic in names.items()
        if topic.state is None
    ]
    return coverage, cursors


def test_a_topology_that_was_read_from_the_beginning(expansion):
    coverage, cursors = everything(expansion)
    names = {row["subscription"] for row in cursors}
    assert names >= {"billing", "mailing"}
    found = audit_scope(expansion, read_tables(coverage, holder_named(cursors), {}))
    assert [(one.topic, one.subscription, one.mode) for one in found.families] == [
        ("orders", "billing", "wait"), ("orders", "mailing", "best_effort"), ("orders", "looking", "none"),
    ]  # fmt: skip
    assert all(part.full and part.from_creation and not part.missing_subscriptions for part in found.parts)
    assert [part.unread for part in found.parts if part.topic == READY] == [60_000]
    lanes = {(lane["subscription"], lane["state"]): lane for lane in found.lanes}
    assert set(lanes) == {
        ("billing", "ready"), ("mailing", "ready"), ("looking", "ready"), ("billing", "retrying"), ("billing", "dead"),
    }  # fmt: skip
    ready = lanes["billing", "ready"]
    assert ready["proved"]
    assert ready["recorded"]
    assert ready["covered"]
    assert ready["horizon"] == 10_000 + 3_000 + GRACE
    assert (ready["mark_ledger"], ready["mark_entry"], ready["read_at"]) == (7, 4, AT + 60_000)
    assert (ready["first_ledger"], ready["last_ledger"], ready["last_entry"]) == (None, 7, 9)
    assert (lanes["mailing", "ready"]["started_ledger"], lanes["mailing", "ready"]["started_entry"]) == (7, -1)
    assert not lanes["mailing", "ready"]["proved"]
    assert [lane["lane"] for lane in found.lanes] == list(range(5))


def holder_named(cursors):
    from kodoctl.topology.names import HOLDER

    return [row | {"subscription": HOLDER} if row["subscription"] == "kodoctl-holder" else row for row in cursors]


def test_a_topology_that_nobody_read(expansion):
    found = audit_scope(expansion, {})
    assert not any(part.read for part in found.parts)
    assert not any(lane["proved"] for lane in found.lanes)
    assert {lane["mark_ledger"] for lane in found.lanes} == {None}


def test_sources_of_the_file_are_in_the_scope(tmp_path):
    file = tmp_path / "trade.yaml"
    table = "sources: {db: {database: URL, tables: {public.orders: {topic: orders}}}}\n"
    file.write_text(FILE + table, encoding="utf-8")
    assert audit_scope(expand(load_topology(str(file))), {}).sources == ("db",)


def test_a_plain_topic_is_one_partition_read_or_not(tmp_path):
    file = tmp_path / "plain.yaml"
    file.write_text(FILE.replace("orders:\n", "orders:\n    partitioned: false\n"), encoding="utf-8")
    plain = expand(load_topology(str(file)))
    unread = audit_scope(plain, {})
    assert {part.partition for part in unread.parts if not part.topic.endswith("DLQ")} == {PLAIN}
    read = audit_scope(plain, {(READY, PLAIN): PartitionHistory((span((7, 0), (7, 4)),), (mark((7, -1)),), None)})
    assert [(one.partition, one.name) for one in read.parts if one.topic == READY] == [(PLAIN, READY)]


def test_a_partition_may_be_read_by_a_run_that_was_cut_short_before_its_cursors(expansion):
    coverage, _ = everything(expansion)
    found = audit_scope(expansion, read_tables(coverage, [], {}))
    assert {(lane["aged_ledger"], lane["mark_ledger"], lane["read_at"]) for lane in found.lanes} == {(None, None, 0)}
    assert all(part.missing_subscriptions for part in found.parts if not part.audit), (
        'so that the verdict is not "no loss"'
    )


def test_audit_records_that_were_not_all_read_prove_nothing(expansion):
    coverage, cursors = everything(expansion)
    audit = f"{READY}-billing-AUDIT"
    short = [
        row | {"full": False, "entries_seen": 3, "state": "timeout"} if row["msg_topic"] == audit else row
        for row in coverage
    ]
    found = audit_scope(expansion, read_tables(short, holder_named(cursors), {}))
    part = next(one for one in found.parts if one.topic == audit)
    assert part.problems == ("entries 7:0 to 7:9: timeout, 3 of 10 seen",)
    assert (part.entries_planned, part.entries_seen) == (10, 3)
    assert not any(lane["proved"] for lane in found.lanes)


def test_what_was_gone_before_its_range_was_planned_is_a_doubt(expansion):
    coverage, cursors = everything(expansion)
    hole = covered(READY, "7:0", "7:9") | {
        "first": "",
        "last": "",
        "full": False,
        "state": "hole",
        "split_id": f"{READY}@hole",
    }
    found = audit_scope(expansion, read_tables([*coverage, hole], holder_named(cursors), {}))
    ready = next(one for one in found.parts if one.topic == READY)
    assert (ready.problems, ready.full) == (("entries were gone before they were read by ingest r1",), False)
    assert not any(lane["covered"] for lane in found.lanes if lane["msg_topic"] == READY)


def test_ranges_that_do_not_continue_each_other(expansion):
    coverage, cursors = everything(expansion)
    later = [covered(name, "9:0", "9:9", "r3") for name in (READY, f"{READY}-billing-RETRYING")]
    acknowledged = [{"ledger": 9, "first": 3, "last": 4}]
    last = [
        cursor(READY, "billing", (9, 1), "r3", AT + 120_000, first_ledger=9, acknowledged=acknowledged, ttl_ms=5_000)
    ]
    found = audit_scope(expansion, read_tables([*coverage, *later], holder_named([*cursors, *last]), {}))
    ready = next(one for one in found.parts if one.topic == READY)
    assert ready.problems == ("between 7:9 and 9:0 something may be missing: the ranges do not continue each other",)
    assert (ready.missing_subscriptions, ready.ttl) == (("looking", "mailing"), 5_000)
    retrying = next(one for one in found.parts if one.topic.endswith("RETRYING"))
    assert not retrying.problems  # records name what was moved there
    lanes = {(lane["subscription"], lane["state"]): lane for lane in found.lanes}
    assert not lanes["billing", "retrying"]["covered"]
    assert lanes["billing", "ready"]["acknowledged"] == acknowledged
    assert lanes["looking", "ready"]["mark_ledger"] is None


def test_a_topic_that_is_older_than_the_first_reading(expansion):
    coverage = [covered(READY, "7:3", "7:9")]
    found = audit_scope(expansion, read_tables(coverage, [cursor(READY, "billing", (7, 5))], {(READY, 0): 7}))
    ready = next(one for one in found.parts if one.topic == READY)
    assert not ready.from_creation
    lane = next(lane for lane in found.lanes if lane["state"] == "ready")
    assert (lane["first_ledger"], lane["first_entry"]) == (7, 3)
