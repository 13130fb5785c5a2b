"""A worker leaves a waiting lane that an order pauses, once nothing of it is under way, and joins it again."""

from __future__ import annotations

import pytest
from kodo_consumer.core.values.broker import Rejected
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.outcomes import DONE

from tests.unit.consumer.engine_bench import B1, FAILED, L1, Bench, delivery, lane_of, policy, store_all


def paused(bench: Bench, level: Level = L1, state: State = State.RETRYING) -> int:
    index = lane_of(bench.policy, level, state)
    bench.engine.apply_policy(bench.policy, resting=frozenset({index}))
    return index


def presence(bench: Bench) -> dict[int, bool]:
    found, bench.engine.context.effects.presence = bench.engine.context.effects.presence, {}
    return found


@pytest.mark.parametrize(("level", "state"), [(L1, State.RETRYING), (L1, State.BLOCKING), (B1, State.READY)])
def test_a_paused_lane_is_left_with_what_has_not_started_and_joined_when_the_order_ends(
    level: Level, state: State
) -> None:
    bench = Bench(policy(concurrency=1))
    bench.give(*(delivery(number) for number in range(5)), level=level, state=state)
    index = paused(bench, level, state)
    assert presence(bench) == {index: False}
    assert bench.engine.lanes[index].in_flight == 0
    assert bench.engine.counts.released == 5
    bench.give(delivery(9), level=level, state=state)
    assert bench.engine.lanes[index].in_flight == 0, "what was under way comes again"
    bench.later(1.5)
    assert presence(bench) == {}, "once"
    bench.engine.apply_policy(bench.policy)
    assert presence(bench) == {index: True}
    bench.give(delivery(9), level=level, state=state)
    assert len(bench.take_all()) == 1


def test_what_runs_is_finished_and_acknowledged_before_the_lane_is_left() -> None:
    bench = Bench(policy())
    bench.give(delivery(1), delivery(2), state=State.RETRYING)
    done, failed = bench.take_all()
    index = paused(bench)
    assert presence(bench) == {}
    assert bench.engine.tick() <= 1.0, "it looks again"
    bench.engine.finish(done, DONE)
    bench.engine.finish(failed, FAILED)
    bench.later(1.5)
    assert presence(bench) == {}, "the failed one is on its way to where it waits"
    store_all(bench)
    bench.later(1.5)
    assert presence(bench) == {index: False}
    assert bench.acknowledged() == [1, 2]


def test_a_lane_resumed_in_time_is_not_left() -> None:
    bench = Bench(policy())
    bench.give(delivery(1), state=State.RETRYING)
    (message,) = bench.take_all()
    paused(bench)
    bench.engine.apply_policy(bench.policy)
    bench.engine.finish(message, DONE)
    bench.later(1.5)
    assert presence(bench) == {}


def test_a_message_that_nobody_takes_does_not_hold_the_worker() -> None:
    bench = Bench(policy(levels=(L1,)))
    bench.give(delivery(1, kodo_attempts_retrying=3), state=State.RETRYING)
    (message,) = bench.take_all()
    bench.engine.finish(message, FAILED)
    while sent := bench.published():
        for ticket, _ in sent:
            bench.engine.receipt(ticket, Rejected("too big"))
    index = paused(bench)
    assert presence(bench) == {index: False}


def test_ready_lanes_of_other_levels_are_paused_and_not_left() -> None:
    """Their consumers are counted as live workers."""
    bench = Bench(policy())
    bench.give(delivery(1))
    paused(bench, L1, State.READY)
    bench.later(1.5)
    assert presence(bench) == {}
    assert bench.engine.take() is None


def test_a_ready_lane_is_left_only_while_its_cursor_moves_and_then_takes_its_messages_anew() -> None:
    bench = Bench(policy())
    bench.give(delivery(1), delivery(2))
    first, second = bench.take_all()
    bench.engine.finish(first, DONE)
    index = paused(bench, L1, State.READY)
    assert presence(bench) == {}
    bench.engine.apply_policy(bench.policy, resting=frozenset({index}), left=frozenset({index}))
    assert presence(bench) == {}, "the second one runs"
    bench.engine.finish(second, DONE)
    bench.later(1.5)
    assert presence(bench) == {index: False}
    assert bench.acknowledged() == [1, 2]
    bench.engine.apply_policy(bench.policy)
    assert presence(bench) == {index: True}
    bench.give(delivery(1))
    assert len(bench.take_all()) == 1, "no copy of what was acknowledged a moment ago"
