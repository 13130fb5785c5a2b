"""Counts of a replay: what runs again, what stays as it is, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.pulsar.binary.message_reader import Cursor
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan import replay_counts
from kodoctl.recall.plan.ready_lanes import ReadyLane
from kodoctl.recall.plan.replay_counts import PartitionCounts, PublishTimes, ReplayCounts, duration_of
from kodoctl.recall.plan.store_times import StoredSpan
from tests.unit.recall.letters import NOW, letter

LANE = ReadyLane("L1/ready", "persistent://kodo/trade/orders", 2)
EVERYTHING = PublishTimes(None, None)
STORED = (EntryRun(1, 0, 9), EntryRun(2, 0, 9))
WHOLE, NOTHING = StoredSpan((0, 0), None), StoredSpan(None, None)


def counts(span: PublishTimes = EVERYTHING, elsewhere: Collection[str] = (), done: Any = None) -> ReplayCounts:
    return ReplayCounts("billing", span, frozenset(elsewhere), done)


def test_only_acknowledged_messages_of_the_subscription_in_the_span_run_again() -> None:
    found = counts(PublishTimes(NOW - 100, NOW))
    partition = PartitionCounts(Cursor((1, 4), ()), found, NOW - 50, NOTHING, STORED)
    for entry, at, more in [
        (0, NOW - 101, {}),
        (1, NOW - 100, {}),
        (2, NOW - 60, {"kodo-for": "billing"}),
        (3, NOW - 10, {"kodo-for": "shipping"}),
        (4, NOW - 10, {"kodo-for": NOBODY}),
        (5, NOW - 10, {}),
        (6, NOW, {}),
    ]:
        partition.add(letter({"n": entry}, entry=entry, publish_time=at, properties=more))
    partition.add(letter({}, entry=7, batch=1, publish_time=NOW - 1))
    summary = found.summary()
    assert summary == {
        "again": 2, "done": 0, "elsewhere": 0, "copies": 0, "others": 1, "marks": 1, "unfinished": 2, "in_batches": 1,
        "expiring": 2, "by_place": 0, "by_tenant": {"(none)": 2},
    }  # fmt: skip
    assert partition.row(LANE, 1) == {
        "lane": "L1/ready", "topic": LANE.topic, "partition": 1, "partitions": 2, "mark": "1:4", "again": [[1, 1, 2]],
        "messages": 2, "first": NOW - 100, "last": NOW - 60,
    }  # fmt: skip


def test_messages_that_were_stored_in_the_span_run_again_whatever_their_publish_time_is() -> None:
    found = counts(PublishTimes(NOW - 100, NOW))
    partition = PartitionCounts(Cursor((1, 9), ()), found, None, StoredSpan((1, 2), (1, 5)), STORED)
    for entry, at in ((1, NOW - 900), (2, NOW - 900), (3, NOW - 50), (4, NOW + 900), (5, NOW + 900), (6, NOW - 50)):
        partition.add(letter({"n": entry}, entry=entry, publish_time=at))
    row = partition.row(LANE, 1)
    assert row is not None
    assert row["again"] == [[1, 2, 4], [1, 6, 6]]
    assert (found.summary()["again"], found.summary()["by_place"]) == (4, 2)


def test_a_partition_without_a_chosen_message_has_no_row() -> None:
    partition = PartitionCounts(Cursor((0, 0), ()), counts(), None, WHOLE, STORED)
    partition.add(letter({}))
    assert partition.row(LANE, 0) is None


def test_entries_of_a_batch_and_behind_a_gap_are_runs() -> None:
    found = counts()
    partition = PartitionCounts(Cursor((1, 1), (((1, 4), (1, 4)),)), found, None, WHOLE, STORED)
    for entry, batch in ((0, 0), (0, 1), (1, -1), (4, -1)):
        partition.add(letter({}, entry=entry, batch=batch))
    row = partition.row(LANE, 0)
    assert row is not None
    assert (row["again"], row["messages"], partition.size) == ([[1, 0, 1], [1, 4, 4]], 4, 8)


def test_a_message_in_chunks_comes_again_with_all_of_them() -> None:
    """Without messages between its chunks, and without entries that hold no message and are none of its chunks."""
    partition = PartitionCounts(Cursor((2, 9), ()), counts(), None, StoredSpan((1, 5), None), STORED)
    for place, first in (
        ((1, 1), None),
        ((1, 4), None),
        ((1, 6), (1, 2)),
        ((1, 9), None),
        ((2, 3), (2, 1)),
        ((2, 2), None),
    ):
        partition.add(replace(letter({}), position=Position(0, *place, -1)), first)
    row = partition.row(LANE, 0)
    assert row is not None
    assert (row["again"], row["messages"]) == ([[1, 2, 3], [1, 5, 6], [1, 9, 9], [2, 1, 3]], 4)


def test_a_chunk_that_is_not_acknowledged_comes_anyway() -> None:
    partition = PartitionCounts(Cursor((1, 2), (((1, 4), (1, 4)),)), counts(), None, WHOLE, STORED)
    partition.add(replace(letter({}), position=Position(0, 1, 4, -1)), (1, 2))
    row = partition.row(LANE, 0)
    assert row is not None
    assert row["again"] == [[1, 2, 2], [1, 4, 4]]


def test_what_the_store_knows_as_done_is_skipped_and_asked_for_in_bundles(monkeypatch: Any) -> None:
    monkeypatch.setattr(replay_counts, "_BUNDLE", 2)
    asked: list[Sequence[str]] = []

    def done(identities: Sequence[str]) -> Collection[str]:
        asked.append(identities)
        return {"b", "c"}

    found = counts(elsewhere={"a", "b"}, done=done)
    for entry, name in enumerate("abc"):
        assert found.add(
            letter({}, entry=entry, properties={"kodo-id": name}), acknowledged=True, expired=False, stored=True
        )
    summary = found.summary()
    assert (summary["again"], summary["done"], summary["elsewhere"]) == (1, 2, 1)
    assert asked == [["a", "b"], ["c"]]


def test_copies_in_lower_levels_are_left_out_and_those_that_come_anyway_are_named() -> None:
    found = counts()
    one = letter({}, properties={"kodo-id": "a"})
    assert found.add(one, acknowledged=True, expired=False, stored=True)
    found.end_lane()
    assert not found.add(one, acknowledged=True, expired=False, stored=True)
    assert not found.add(one, acknowledged=False, expired=False, stored=True)
    summary = found.summary()
    assert (summary["again"], summary["copies"], summary["unfinished"], summary["elsewhere"]) == (1, 1, 1, 1)


def test_of_many_tenants_the_largest_are_named() -> None:
    found = counts()
    for entry in range(60):
        found.add(letter({}, entry=entry, tenant=f"t{entry % 25}"), acknowledged=True, expired=False, stored=True)
    by_tenant = found.summary()["by_tenant"]
    assert len(by_tenant) == 21
    assert (sum(by_tenant.values()), by_tenant[""]) == (60, 10)


def test_the_duration_is_known_only_where_workers_are_faster_than_what_arrives() -> None:
    assert duration_of(100, 20.0, measured=False, arriving=10.0)["ms"] == 10_000
    assert duration_of(100, 10.0, measured=True, arriving=10.0)["ms"] is None
    assert duration_of(100, None, measured=False, arriving=0.0)["ms"] is None
