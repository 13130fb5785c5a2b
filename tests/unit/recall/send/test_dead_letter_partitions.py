"""What the holder of waiting messages still has although it was acknowledged: of batches only whole ones are known."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts, ReadMessage
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import LetterRef, RecallPlan
from kodoctl.recall.send.dead_letter_partitions import DeadLetterPartitions
from kodoctl.recall.send.rate_limit import RateLimit
from kodoctl.recall.send.sends_in_flight import SendOptions
from tests.unit.recall.letters import NOW
from tests.unit.recall.send.test_lane_pause import WAITING

STORED = [Position(0, 1, 1), *(Position(0, 1, 2, n) for n in range(2)), *(Position(0, 1, 3, n) for n in range(3))]


class Cluster:
    """One partition. `has`: entries that the cursor has as acknowledged when the attempt is over."""

    def __init__(self, *has: int) -> None:
        self.ranges = tuple(((1, entry), (1, entry)) for entry in has)
        self.over = False

    def facts(self, part: str) -> PartitionFacts:
        cursors = {WAITING.holder: Cursor((1, 0), self.ranges if self.over else ())}
        return PartitionFacts(part, 0, 1, (1, 3), True, cursors)

    def hold(self, *_: object) -> Any:
        messages = [ReadMessage(one, *one, b"", {}, "", "", 0, NOW, "") for one in STORED]
        return SimpleNamespace(letters=lambda *_: messages, acknowledge=lambda _: None, close=lambda: None)


def unacknowledged(cluster: Cluster, kept: Position | None = None, plan: RecallPlan = WAITING) -> int:
    """All that comes is acknowledged, but for `kept`; then the partition may forget."""
    stop = threading.Event()
    options = SendOptions(RateLimit(1000), "me", lambda: NOW, stop, lambda *_: None)
    made = DeadLetterPartitions(plan, cast("Any", cluster), options)
    with ExitStack() as stack:
        for number in made.open(stack, STORED):
            for position, stored in made.messages(number):
                if position != kept:
                    made.acknowledge(position, stored.token)
    cluster.over = True
    stop.set()
    return made.count_unacknowledged()


@pytest.mark.parametrize(("has", "left"), [((1, 2, 3), 0), ((1, 2), 3), ((1, 3), 2), ((), 6)])
def test_batches_whose_messages_were_all_acknowledged_are_counted(has: tuple[int, ...], left: int) -> None:
    assert unacknowledged(Cluster(*has)) == left


def test_a_batch_of_which_a_message_stays_is_not_counted() -> None:
    assert unacknowledged(Cluster(1, 2), kept=STORED[4]) == 0
    assert unacknowledged(Cluster(1), kept=STORED[4]) == 2
    settled = replace(WAITING, settle=(LetterRef(STORED[4], NOW),))
    assert unacknowledged(Cluster(1, 2), plan=settled) == 0, "a plan may acknowledge a part that was sent before"


def test_dead_letters_may_be_parts_of_batches() -> None:
    assert unacknowledged(Cluster(), plan=replace(WAITING, lane="")) == 1
