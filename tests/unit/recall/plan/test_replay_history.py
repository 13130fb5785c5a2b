"""Replays in a journal: read back, found by name, and what others wrote passed over."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kodoctl.errors import UsageError
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.plan.replay_history import (
    Phase,
    ReplayRecord,
    Replays,
    begin_entry,
    find_replay,
    later_run,
    phase_entry,
    read_replays,
)
from kodoctl.recall.plan.replay_plan import part_of
from tests.unit.recall.letters import NOW
from tests.unit.recall.plan.test_replay_plan import PARTITION, made

SPACE = "kodo/trade"
BEFORE = {part_of(PARTITION): (EntryRun(1, 0, 7),)}


ELSEWHERE = {**PARTITION, "topic": "persistent://kodo/other/orders"}


def begin(run: str = "20271126-a", before: Any = BEFORE, **changes: Any) -> dict[str, Any]:
    return begin_entry(made(run=run, **changes), before, "me@here", NOW)


def test_a_replay_reads_as_it_was_written() -> None:
    found = read_replays([{"kind": "lease"}, begin(), begin()], SPACE)
    record = found["20271126-a"]
    assert record == ReplayRecord(made(run="20271126-a"), NOW, "me@here", BEFORE)
    assert record.row() == {
        "run": "20271126-a", "began": NOW, "who": "me@here", "topic": "orders", "subscription": "billing", "messages": 4,
        "because": "", "state": "incomplete",
    }  # fmt: skip


def test_later_phases_change_the_state() -> None:
    run = "20271126-a"
    end, undone = phase_entry(run, Phase.END, NOW), phase_entry(run, Phase.UNDONE, NOW)
    assert read_replays([begin(), end], SPACE)[run].state == "complete"
    assert read_replays([begin(), end, undone, end], SPACE)[run].state == "undone"
    assert not read_replays([end, undone], SPACE)


def test_moves_of_cursors_are_known_up_to_the_last_one() -> None:
    run, part = "20271126-a", part_of(PARTITION)
    moving = phase_entry(run, Phase.MOVING, NOW, partition=part, paused=5)
    moved = phase_entry(run, Phase.MOVED, NOW, partition=part)
    assert read_replays([begin()], SPACE)[run].moves == {}
    (move,) = read_replays([begin(), moving], SPACE)[run].moves.values()
    assert (move.is_possible(5), move.is_possible(6), move.is_possible(None)) == (False, True, True)
    (move,) = read_replays([begin(), moving, moved], SPACE)[run].moves.values()
    assert move.is_possible(5)
    for other in ({**moving, "partition": "elsewhere"}, {**moving, "paused": "5"}, {**moved, "partition": ["x"]}):
        assert read_replays([begin(), other], SPACE)[run].moves == {}


def test_an_undo_that_has_begun_is_a_state_of_its_own() -> None:
    run = "20271126-a"
    end, undone = phase_entry(run, Phase.END, NOW), phase_entry(run, Phase.UNDONE, NOW)
    undoing = phase_entry(run, Phase.UNDOING, NOW, again_done=3)
    for entries in ([begin(), undoing, end], [begin(), end, undoing]):
        record = read_replays(entries, SPACE)[run]
        assert (record.state, record.again_done) == ("undoing", 3)
        assert find_replay(Replays({run: record}), "last", SPACE) == record
    assert read_replays([begin(), undoing, {**undoing, "again_done": 9}], SPACE)[run].again_done == 3
    assert read_replays([begin(), {**undoing, "again_done": "x"}], SPACE)[run].state == "incomplete"
    assert read_replays([begin(), undoing, undone], SPACE)[run].state == "undone"


def test_a_later_replay_of_the_subscription_is_the_latest_that_is_not_undone() -> None:
    entries = [begin("20271126-a"), begin("20271127-b"), begin("20271128-c"), begin("20271129-d", topic="bills")]
    found = read_replays([*entries, phase_entry("20271128-c", Phase.UNDONE, NOW)], SPACE)
    assert later_run(found, found["20271126-a"]) == "20271127-b"
    assert later_run(found, found["20271127-b"]) == later_run(found, found["20271129-d"]) == ""


@pytest.mark.parametrize(
    "entry",
    [
        {**begin(), "v": 2},
        {**begin(), "v": 0},
        {**begin(), "v": "2"},
        {**phase_entry("20271126-a", Phase.END, NOW), "v": 2},
        {**begin(), "run": 7},
        {**begin(), "run": "another"},
        {**begin(), "packed": "?"},
        {**begin(), "at": "soon"},
        {name: value for name, value in begin().items() if name != "packed"},
        begin(before={"persistent://kodo/other/orders-partition-0": ()}, partitions=[ELSEWHERE]),
        begin(partitions=[{**PARTITION, "partition": 1}]),
        begin(partitions=[{**PARTITION, "topic": "no name", "partition": -1}]),
        begin(namespace="other/trade"),
        begin(topic=".."),
        begin(topic="orders/subscription/billing"),
        begin(topic="orders\ud800"),
    ],
)
def test_entries_that_kodoctl_did_not_write_are_left_out(entry: dict[str, Any]) -> None:
    assert not read_replays([entry], SPACE)


def test_positions_that_no_entry_takes_are_refused_before_anything_is_written() -> None:
    rng, at, runs = random.Random(7), 0, []
    for _ in range(900_000):
        at += rng.randrange(2, 99)
        runs.append(EntryRun(1, at, at))
    with pytest.raises(UsageError, match="K593"):
        begin_entry(made(), {part_of(PARTITION): tuple(runs)}, "me", NOW)


def test_a_replay_is_found_by_the_begin_of_its_run_and_the_latest_by_last() -> None:
    entries = [begin("20271126-a"), begin("20271127-b", topic="bills"), begin("20271128-c", subscription="shipping")]
    found = read_replays([*entries, phase_entry("20271128-c", Phase.UNDONE, NOW)], SPACE)
    assert find_replay(found, "last", SPACE).run == "20271128-c", "an undo that is repeated takes back no earlier one"
    assert find_replay(found, "20271126", SPACE).run == "20271126-a"
    assert find_replay(found, "20271128", SPACE).run == "20271128-c"


def test_a_whole_run_names_its_replay_also_if_a_longer_run_begins_with_it() -> None:
    """Whoever may produce to the journal can write such a run."""
    found = read_replays([begin("20271126-a"), begin("20271126-ab", topic="bills")], SPACE)
    assert find_replay(found, "20271126-a", SPACE).run == "20271126-a"
    assert find_replay(found, "20271126-ab", SPACE).run == "20271126-ab"


def test_a_replay_of_a_newer_kodoctl_is_told_and_no_earlier_one_is_the_last_then() -> None:
    """`replay undo last` took the one before it back."""
    newer = {**begin("20271127-b"), "v": 2}
    found = read_replays([begin("20271126-a"), newer, newer, {**newer, "phase": "end"}], SPACE)
    assert (list(found), len(found), found.newer) == (["20271126-a"], 1, ("20271127-b",))
    assert list(found.unread()) == ["replay 20271127-b: a newer kodoctl made it, and this one cannot read it"]
    with pytest.raises(UsageError, match="the latest in kodo/trade, 20271127-b, was made by a newer kodoctl"):
        find_replay(found, "last", SPACE)
    assert find_replay(found, "20271126-a", SPACE).run == "20271126-a"
    over = read_replays([newer, begin("20271128-c", subscription="shipping")], SPACE)
    assert find_replay(over, "last", SPACE).run == "20271128-c"
    assert not list(read_replays([begin()], SPACE).unread())


@pytest.mark.parametrize(
    ("runs", "name", "problem"),
    [
        ((), "last", "no replay in kodo/trade yet"),
        (("20271126-a",), "x", "no replay begins with 'x'; the latest: 20271126-a"),
        (("20271126-a", "20271127-b"), "2027", "several replays begin"),
        (("20271126-a", "20271127-b"), "20271126", "20271127-b is a later replay"),
    ],
)
def test_a_name_that_fits_none_or_several_is_refused(runs: tuple[str, ...], name: str, problem: str) -> None:
    found = read_replays(map(begin, runs), SPACE)
    with pytest.raises(UsageError, match=problem):
        find_replay(found, name, SPACE)
