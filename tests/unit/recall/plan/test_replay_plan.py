"""Replay plans: their file, what they do in a partition, and whether they still fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kodoctl.documents.replay_document import ReplayPartition, ReplayPlanDocument
from kodoctl.errors import InvalidFileError, RefusedError
from kodoctl.plan import plan_file
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.entry_runs import Runs
from kodoctl.recall.plan.replay_plan import (
    PartitionReplay,
    PartitionState,
    dumps,
    hash_of,
    loads,
    part_of,
    replay_of,
    sealed,
    undo_of,
    why_stale,
)
from tests.unit.recall.letters import NOW

STORED = (EntryRun(1, 0, 9),)
PARTITION: ReplayPartition = {
    "lane": "L1/ready", "topic": "persistent://kodo/trade/orders", "partition": 0, "partitions": 2, "mark": "1:7",
    "again": [[1, 4, 7]], "messages": 4, "first": NOW - 5_000, "last": NOW - 1_000,
}  # fmt: skip


def made(**changes: Any) -> ReplayPlanDocument:
    """A plan with these values instead of its own."""
    values = {
        "run": "20271126-101010-abcdef01", "made_at": NOW, "cluster": None, "topology": "trade", "path": "trade.yaml",
        "environment": None, "namespace": "kodo/trade", "topic": "orders", "subscription": "billing", "since": NOW - 6_000,
        "until": None, "message": None, "because": "", "ordered": False, "store": False, "clocks": "broker",
        "partitions": [PARTITION],
        "summary": {
            "again": 4, "done": 0, "elsewhere": 0, "copies": 0, "others": 0, "marks": 0, "unfinished": 0, "in_batches": 0,
            "expiring": 0, "by_place": 0, "by_tenant": {"u1": 4},
        },
        "duration": {"rate": None, "measured": False, "arriving": 0.0, "ms": None},
        "unread": [], "gone": [], "unknown": [], "refusals": [], **changes,
    }  # fmt: skip
    return sealed(values)


def state(acknowledged: Runs, stored: Runs = STORED) -> PartitionState:
    return PartitionState(stored, acknowledged)


def test_a_plan_file_reads_as_the_plan() -> None:
    plan = made()
    assert loads(dumps(plan), "p.json") == plan
    assert hash_of(plan) == plan["seal"][:12]
    assert part_of(PARTITION) == "persistent://kodo/trade/orders-partition-0"


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("no JSON", "K592", InvalidFileError),
        ('{"format_version": 1}', "K592", InvalidFileError),
        ('{"format_version": 1, "action": "release"}', "K592", InvalidFileError),
        ('{"format_version": 9, "action": "replay"}', "K593", RefusedError),
        (dumps(made()).replace("billing", "shipping"), "K593", RefusedError),
        (dumps(made(partitions="all")), "K592", InvalidFileError),
        (dumps(made(partitions=[{**PARTITION, "again": [[1, 7, 4]]}])), "K592", InvalidFileError),
    ],
)
def test_what_is_no_plan_or_was_edited_is_refused(text: str, code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=code):
        loads(text, "p.json")


def test_the_cursor_moves_to_the_first_message_and_what_was_handled_since_stays_done() -> None:
    before = (EntryRun(1, 0, 8),)
    assert replay_of(PARTITION, before, state(before)) == PartitionReplay(
        (1, 4), (EntryRun(1, 8, 8),), (EntryRun(1, 0, 3), EntryRun(1, 8, 8))
    )


def test_the_cursor_does_not_pass_over_what_is_not_done() -> None:
    before = (EntryRun(1, 0, 1), EntryRun(1, 3, 9))
    assert replay_of(PARTITION, before, state(before)) == PartitionReplay(
        (1, 2), (EntryRun(1, 3, 3), EntryRun(1, 8, 9)), (EntryRun(1, 0, 1), EntryRun(1, 3, 3), EntryRun(1, 8, 9))
    )


def test_a_second_attempt_moves_no_cursor_again_and_only_acknowledges_what_is_missing() -> None:
    before = (EntryRun(1, 0, 9),)
    moved = (EntryRun(1, 0, 4), EntryRun(1, 8, 8))
    found = replay_of(PARTITION, before, state(moved))
    assert found == PartitionReplay(None, (EntryRun(1, 9, 9),), (EntryRun(1, 0, 4), EntryRun(1, 8, 9)))


def test_a_cursor_that_moved_before_does_not_move_again_after_all_of_it_was_handled() -> None:
    before, handled = (EntryRun(1, 0, 7),), (EntryRun(1, 0, 8),)
    assert replay_of(PARTITION, before, state(handled), has_moved=True) == PartitionReplay(None, (), handled)


def test_what_retention_removed_is_no_sign_that_the_cursor_moved() -> None:
    stored = (EntryRun(1, 6, 9),)
    assert replay_of(PARTITION, STORED, state(stored, stored)) == PartitionReplay(
        (1, 6), (EntryRun(1, 8, 9),), (EntryRun(1, 8, 9),)
    )
    moved = (EntryRun(1, 8, 9),)
    assert replay_of(PARTITION, STORED, state(moved, stored)) == PartitionReplay(None, (), moved)


def test_no_cursor_moves_where_nothing_of_the_plan_is_stored() -> None:
    stored = (EntryRun(1, 8, 9),)
    assert replay_of(PARTITION, STORED, state(stored, stored)) == PartitionReplay(None, (), stored)


def test_what_was_handled_between_the_journal_and_the_move_stays_done() -> None:
    before, now = (EntryRun(1, 0, 7),), state((EntryRun(1, 0, 9),))
    assert replay_of(PARTITION, before, now) == PartitionReplay(
        (1, 4), (EntryRun(1, 8, 9),), (EntryRun(1, 0, 3), EntryRun(1, 8, 9))
    )


def test_an_undo_acknowledges_what_was_so_and_has_not_come_again() -> None:
    before = (EntryRun(0, 0, 5), EntryRun(1, 0, 7))
    assert undo_of(before, state((EntryRun(1, 0, 4), EntryRun(1, 9, 9)))) == (EntryRun(1, 5, 7),)


@pytest.mark.parametrize(
    ("partitions", "now", "problem"),
    [
        (2, state((EntryRun(1, 0, 8),)), ""),
        (None, None, "no such topic any more"),
        (3, state(STORED), "2 partitions when planned, 3 now"),
        (2, None, "the subscription is not there any more"),
        (2, state((EntryRun(1, 5, 9),), (EntryRun(1, 5, 9),)), "1 entry of the plan is no longer stored"),
        (2, state((EntryRun(1, 0, 5),)), "2 entries of the plan not acknowledged now"),
    ],
)
def test_a_plan_of_another_state_is_stale(partitions: int | None, now: PartitionState | None, problem: str) -> None:
    found = why_stale(PARTITION, partitions, now)
    assert problem in found
    assert bool(problem) is bool(found)


def test_a_plan_is_one_line_for_each_key() -> None:
    assert json.loads(dumps(made()).splitlines()[1].rstrip(",").join("{}")) == {"format_version": 1}


def test_other_commands_name_the_one_that_carries_it_out() -> None:
    text = dumps(made())
    for read in (plan_file.loads, recall_plan_file.loads):
        with pytest.raises(InvalidFileError, match=r"it is a replay plan: `kodoctl replay apply r\.json`"):
            read(text, "r.json")
