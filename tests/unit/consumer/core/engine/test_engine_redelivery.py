"""A broken connection brings whole batches again: what was finished with is not handled a second time."""

from __future__ import annotations

import pytest
from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.limit_policy import Quota
from kodo_consumer.core.values.outcomes import DONE, DependencyUnavailable

from tests.unit.consumer.engine_bench import Bench, delivery, policy


def _batch(entry: int, count: int) -> list[Delivery]:
    """One entry of the broker's with so many messages; their numbers are unlike those of other entries."""
    return [delivery(entry * 1_000 + index)._replace(entry=entry, batch_index=index) for index in range(count)]


def _numbers(bench: Bench) -> list[int]:
    found = bench.acknowledged()
    bench.acked.clear()
    return found


@pytest.mark.simulated
def test_a_batch_with_one_message_held_is_remembered_however_long_and_however_many_come_after_it() -> None:
    bench = Bench(policy())
    batch = _batch(1, 3)
    bench.give(*batch)
    first, second, third = bench.take_all()
    bench.engine.finish(first, DONE)
    bench.engine.finish(second, DONE)
    for number in range(25_000):
        bench.give(delivery(number + 10_000))
        message = bench.engine.take()
        assert message is not None
        bench.engine.finish(message, DONE)
    bench.later(20)
    _numbers(bench)
    bench.engine.on_disconnect(lane := third._in_flight.lane.lane.index)  # type: ignore[attr-defined]
    bench.give(*batch)
    assert bench.take_all() == []
    assert (_numbers(bench), bench.engine.counts.redelivered) == ([1_000, 1_001], 3)
    bench.engine.finish(third, DONE)
    bench.later(59)
    bench.give(*batch)
    assert bench.take_all() == []
    assert list(bench.engine.lanes[lane].active_entries) == []


def test_a_message_of_a_batch_that_was_let_go_is_handled_when_it_comes_again_and_the_others_are_not() -> None:
    bench = Bench(policy())
    batch = _batch(1, 3)
    bench.give(*batch)
    first, second, third = bench.take_all()
    bench.engine.finish(first, DONE)
    bench.engine.finish(second, DONE)
    bench.engine.finish(third, DependencyUnavailable("psp"))
    assert _numbers(bench) == [1_000, 1_001]
    bench.engine.on_disconnect(second._in_flight.lane.lane.index)  # type: ignore[attr-defined]
    assert bench.engine.check_invariants() == []
    bench.give(*batch)
    (again,) = bench.take_all()
    assert again.id == third.id
    bench.engine.finish(again, DONE)
    assert sorted(_numbers(bench)) == [1_000, 1_001, 1_002]


def test_a_batch_may_come_in_pieces() -> None:
    bench = Bench(policy())
    batch = _batch(1, 4)
    for piece in (batch[:2], batch[2:]):
        bench.give(*piece)
        for message in bench.take_all():
            bench.engine.finish(message, DONE)
    bench.give(*batch)
    assert bench.take_all() == []
    assert _numbers(bench) == [1_000, 1_001, 1_002, 1_003] * 2


def test_a_batch_that_nobody_holds_is_handled_again_after_a_minute_for_then_the_subscription_was_rewound() -> None:
    bench = Bench(policy())
    batch = _batch(1, 2)
    for wait, handled in ((59, 0), (61, 2)):
        bench.give(*batch)
        for message in bench.take_all():
            bench.engine.finish(message, DONE)
        bench.later(wait)
        bench.give(*batch)
        assert len(bench.take_all()) == handled


def test_what_a_quota_set_aside_for_messages_that_a_lost_connection_takes_is_theirs_when_they_come_again() -> None:
    bench = Bench(policy(limits=(Quota(None, 20, 3_600_000, shared=False),), concurrency=1, lookahead_messages=20))
    messages = [delivery(number) for number in range(20)]
    bench.give(*messages)
    first = bench.engine.take()
    assert first is not None
    bench.engine.on_disconnect(first._in_flight.lane.lane.index)  # type: ignore[attr-defined]
    bench.engine.finish(first, DONE)
    bench.give(*messages[1:])
    handled = 1
    while (message := bench.engine.take()) is not None:
        bench.engine.finish(message, DONE)
        handled += 1
    assert handled == 20
    assert bench.engine.check_invariants() == []
