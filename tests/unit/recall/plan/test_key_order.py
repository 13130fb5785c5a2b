"""Order of keys: which choices of an ordered lane break it, what came since the plan, and what came while it was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from kodoctl.errors import RefusedError
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts, ReadMessage
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.key_order import KeyOrder, check_keys, late_arrivals, leaving, order_key
from kodoctl.recall.plan.recall_plan import LetterRef, PlannedLetter, RecallAction, RecallPlan
from tests.unit.recall.letters import letter
from tests.unit.recall.send.test_lane_pause import WAITING

SEND = (RecallAction.RELEASE, RecallAction.MOVE)


def at(entry: int, partition: int = 0) -> Position:
    return Position(partition, 1, entry)


def order_of(keys: str) -> KeyOrder:
    """Messages of these keys, one a letter, in this order."""
    found = KeyOrder()
    for entry, key in enumerate(keys):
        found.add(letter(entry=entry, key=key))
    return found


@pytest.mark.parametrize(
    ("keys", "planned", "release", "move"),
    [
        ("aabb", {0, 1}, [], []),
        ("abab", {0, 2}, [], []),
        ("abab", {0, 1, 2, 3}, [], []),
        ("aabb", {0}, ["a: 1 of 2 messages"], ["a: 1 of 2 messages"]),
        ("aabb", {1}, [], ["a: 1 of 2 messages"]),
        ("aaab", {0, 2}, ["a: 2 of 3 messages"], ["a: 2 of 3 messages"]),
        ("abba", {0, 1}, ["a: 1 of 2 messages", "b: 1 of 2 messages"], ["a: 1 of 2 messages", "b: 1 of 2 messages"]),
        ("aabb", set(), [], []),
    ],
)
def test_what_a_plan_has_to_take_of_a_key(keys: str, planned: set[int], release: list[str], move: list[str]) -> None:
    found = [order_of(keys).split_keys(action, {at(entry) for entry in planned}) for action in SEND]
    assert [[str(one) for one in split] for split in found] == [release, move]


def test_a_plan_of_parts_of_keys_is_refused_with_the_keys_and_what_to_do() -> None:
    many_keys = order_of("aabbccddeeffgg")
    with pytest.raises(RefusedError) as refused:
        many_keys.check(RecallAction.RELEASE, {at(entry) for entry in range(0, 14, 2)})
    said = str(refused.value)
    assert said.startswith("K555 ")
    assert "a: 1 of 2 messages" in said
    assert "and 2 more" in said
    assert "f: 1 of 2" not in said
    assert "key IN ('k1', 'k2')" in said
    many_keys.check(RecallAction.DISCARD, {at(0)})
    many_keys.check(RecallAction.MOVE, {at(entry) for entry in range(14)})


def test_keys_are_those_of_the_workers() -> None:
    assert order_key(letter(key="k", ordering_key="o")) == "o"
    assert order_key(letter(key="k")) == "k"
    assert order_key(letter(partition=3)) == "(no key, partition 3)"


class Cluster:
    """One partition of a lane. `stored`: key and properties of each entry; the first `done` are acknowledged."""

    def __init__(self, *stored: tuple[str, Mapping[str, str]], done: int = 0) -> None:
        self.stored, self.done, self.is_there = stored, done, True
        self.count = 1

    def partitions(self, topic: str) -> int:
        assert topic == PLAN.source_topic
        return self.count

    def facts(self, part: str) -> PartitionFacts:
        assert part == f"{PLAN.source_topic}-partition-0"
        ranges = (((1, 0), (1, self.done - 1)),) if self.done else ()
        cursors = {PLAN.holder: Cursor((1, -1), ranges)} if self.is_there else {}
        return PartitionFacts(part, 0, 1, (1, len(self.stored) - 1), True, cursors)

    def read_all(self, facts: PartitionFacts, after: tuple[int, int] | None) -> Iterator[ReadMessage]:
        for entry, (key, given) in enumerate(self.stored):
            if after is None or (1, entry) > after:
                yield ReadMessage(None, 0, 1, entry, -1, b"x", given, key, "", 0, 1, "")


PLAN: RecallPlan = replace(
    WAITING, lane="B1/ready", source_partitions=1, action=RecallAction.RELEASE, settle=(),
    letters=tuple(PlannedLetter(at(entry), 1, f"id{entry}", "d", 0, entry + 1) for entry in range(2)),
)  # fmt: skip


def check(*stored: tuple[str, Mapping[str, str]], plan: RecallPlan = PLAN, **more: Any) -> None:
    check_keys(plan, cast("Any", Cluster(*stored, **more)))


def test_a_later_message_of_a_planned_key_refuses_the_plan_before_anything_is_sent() -> None:
    check(("a", {}), ("a", {}), ("b", {}))
    check(("a", {}), ("a", {}), ("a", {"kodo-for": "another"}))
    check(("a", {}), ("a", {}), ("a", {}), done=2)
    with pytest.raises(RefusedError, match=r"messages of 1 key came since the plan \(a\): plan again") as refused:
        check(("a", {}), ("a", {}), ("a", {}))
    assert "K559" in str(refused.value)
    with_copies = replace(PLAN, settle=(LetterRef(at(2), 1),))
    check(("a", {}), ("a", {}), ("a", {}), plan=with_copies)
    gone = Cluster(("a", {}), ("a", {}), ("a", {}))
    gone.is_there = False
    check_keys(PLAN, cast("Any", gone))


def test_a_lane_that_got_partitions_since_the_plan_refuses_it_because_messages_of_its_keys_may_be_there() -> None:
    grown = Cluster(("a", {}), ("a", {}))
    grown.count = 2
    with pytest.raises(RefusedError, match="has 2 partitions, 1 when planned") as refused:
        check_keys(replace(PLAN, action=RecallAction.MOVE), cast("Any", grown))
    assert "K822" in str(refused.value)


def test_a_discard_takes_a_part_of_a_key_although_others_of_it_stay() -> None:
    poison = replace(PLAN, action=RecallAction.DISCARD, letters=PLAN.letters[:1])
    check(("a", {}), ("a", {}), ("a", {}), plan=poison)


def test_what_leaves_the_lane_are_messages_their_copies_and_those_sent_before() -> None:
    one = replace(PLAN.letters[0], repeats=(LetterRef(at(5), 1),))
    assert leaving((one, PLAN.letters[1]), (LetterRef(at(7), 1),)) == {at(0), at(5), at(1), at(7)}


def test_a_message_that_came_while_its_key_was_sent_is_told() -> None:
    own = ({"kodo-release": "id0"}, {"kodo-release": "id1"})
    stored = (
        ("a", {}),
        ("a", {}),
        ("a", {}),
        ("b", {}),
        ("a", own[0]),
        ("a", own[1]),
        ("a", {}),
        ("a", {"kodo-for": "x"}),
    )
    found = list(late_arrivals(PLAN, cast("Any", Cluster(*stored))))
    assert found == ["1:2:0:-1: it came meanwhile, and stands before what was sent of its key a"]
    fine = (("a", {}), ("a", {}), ("b", {}), ("a", {"kodo-for": "another"}), ("a", own[0]), ("a", own[1]), ("a", {}))
    assert list(late_arrivals(PLAN, cast("Any", Cluster(*fine)))) == []
    moved = replace(PLAN, action=RecallAction.MOVE)
    assert list(late_arrivals(moved, cast("Any", Cluster(*stored)))) == []
