"""What the engine wants done outside its lock is gathered for a moment, and the timekeeper is woken for it only where it
would come too late.
"""

from __future__ import annotations

from kodo_consumer.core.engine.pending_actions import PendingActions
from kodo_consumer.core.values.outcomes import DONE

from tests.unit.consumer.engine_bench import Bench, delivery, policy

GATHER = 0.005


class Stand:
    """Actions of an engine, and the moments for which the timekeeper was rung."""

    def __init__(self) -> None:
        self.bench = Bench(policy(concurrency=10**6))
        self.actions = PendingActions(self.bench.engine, self.bench.clock)
        self.rings = 0
        self.actions.ring_with(self._ring)
        self._next = 0

    def _ring(self) -> None:
        self.rings += 1

    def end(self, count: int) -> None:
        """So many messages end well."""
        self.bench.give(*(delivery(self._next + number) for number in range(count)))
        self._next += count
        for message in self.bench.take_all():
            self.bench.engine.finish(message, DONE)

    def collect(self, *, flush: bool = False) -> int:
        """Acknowledgements that are collected, and carried out."""
        found = self.actions.collect(flush=flush)
        if found is None:
            return 0
        assert self.actions.has_uncommitted
        self.actions.end_commit()
        return sum(len(tokens) for _, tokens in found.acks)


def test_without_anything_to_do_nobody_is_woken() -> None:
    stand = Stand()
    assert (stand.collect(), stand.collect(flush=True), stand.rings) == (0, 0, 0)


def test_while_work_goes_on_acknowledgements_are_gathered_up_to_a_number() -> None:
    stand = Stand()
    stand.end(63)
    assert stand.collect() == 0
    stand.end(1)
    assert stand.collect() == 64
    assert not stand.actions.has_uncommitted
    stand.end(1)
    assert stand.collect(flush=True) == 1, "and go at once where there is nothing more to do"


def test_the_timekeeper_comes_in_time_for_what_is_gathered() -> None:
    stand = Stand()
    stand.end(1)
    stand.collect()
    assert stand.rings == 1
    assert round(stand.actions.due_in, 6) == GATHER


def test_who_comes_in_time_anyway_is_not_woken_for_each_bundle() -> None:
    stand = Stand()
    for _ in range(20):
        stand.end(64)
        assert stand.collect() == 64
        stand.end(1)
        stand.collect()
        assert stand.collect(flush=True) == 1
    assert stand.rings == 1, "within these milliseconds it comes once"
    stand.bench.clock.advance(GATHER)
    stand.actions.tick_in(3_600)
    stand.end(1)
    stand.collect()
    assert stand.rings == 2
    assert round(stand.actions.due_in, 6) == GATHER


def test_what_is_urgent_is_not_gathered() -> None:
    stand = Stand()
    stand.end(1)
    stand.bench.engine.context.effects.ask_for_more(0)
    assert stand.collect() == 1


def test_a_lane_without_room_is_asked_for_more_once_messages_ended() -> None:
    stand = Stand()
    engine, lane = stand.bench.engine, 0
    while room := engine.room(lane):
        engine.deliver(lane, [delivery(stand._next + number) for number in range(room)])
        stand._next += room
    for message in stand.bench.take_all():
        engine.finish(message, DONE)
    found = stand.actions.collect(flush=True)
    assert found is not None
    assert found.effects.resume == [lane]
    assert not engine.lookahead.lanes_without_capacity
