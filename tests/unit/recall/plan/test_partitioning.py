"""Lanes dealt out to senders: every letter once, a lane never twice, about as many each."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.partitioning import partition_plan
from kodoctl.recall.plan.recall_plan import LetterRef, PlannedLetter, PlannedPartition, RecallAction, RecallPlan


def _plan(lanes: list[int]) -> RecallPlan:
    numbers: Counter[int] = Counter()
    letters = []
    for entry, lane in enumerate(lanes):
        numbers[lane] += 1
        copies = (LetterRef(Position(0, 2, entry), 5),) if entry % 3 == 0 else ()
        letters.append(PlannedLetter(Position(0, 1, entry), 5, f"{entry:032x}", "d", lane, numbers[lane], copies))
    known: dict[str, Any] = dict.fromkeys(
        ("cluster", "environment", "to", "edit"), None
    ) | dict.fromkeys(("topology", "path", "topic", "subscription", "source_topic", "holder", "where", "because"), "x")  # fmt: skip
    return RecallPlan(
        action=RecallAction.SEND, run="r", made_at=1, source_partitions=1, limit=9, again=False,
        lanes=tuple(PlannedPartition("t", number, False, 8) for number in range(8)), letters=tuple(letters),
        settle=(LetterRef(Position(0, 9, 9), 5),), summary=cast("Any", {}), **known,
    )  # fmt: skip


@given(st.lists(st.integers(0, 7), max_size=40), st.sets(st.integers(0, 7)), st.integers(0, 5))
def test_every_letter_of_the_lanes_goes_to_one_sender(lanes: list[int], wanted: set[int], most: int) -> None:
    plan = _plan(lanes)
    dealt = partition_plan(plan, wanted, most)
    assert len(dealt) <= max(1, most)
    sent = [one for crew in dealt for one in crew.letters]
    assert sorted(one.position for one in sent) == [one.position for one in plan.letters if one.lane in wanted]
    assert all(crew.letters and not crew.settle and crew.lanes == plan.lanes for crew in dealt)
    assert not any(one.repeats for one in sent)
    owners = [{one.lane for one in crew.letters} for crew in dealt]
    assert sum(map(len, owners)) == len(set().union(*owners)), "a lane has one sender"
    gone = {one.position for one in plan.letters if one.number % 2}
    held = [one.position for crew in partition_plan(plan, wanted, most, gone) for one in crew.letters]
    assert sorted(held) == sorted({one.position for one in sent} - gone)
    assert all([one.number for one in crew.letters if one.lane == lane] == list(range(1, lanes.count(lane) + 1))
               for crew in dealt for lane in {one.lane for one in crew.letters})  # fmt: skip


def test_the_longest_lanes_are_spread() -> None:
    plan = _plan([0] * 10 + [1] * 6 + [2] * 5)
    assert sorted(len(crew.letters) for crew in partition_plan(plan, {0, 1, 2}, 2)) == [10, 11]
