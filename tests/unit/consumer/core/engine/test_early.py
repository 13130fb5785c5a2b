"""Messages that claim a due time, written by anybody who may send: what one of them, one a minute, and a flood of them cost others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kodo_consumer.core.values.delay_schedule import JITTER
from kodo_consumer.core.values.envelope import Delivery, Level, State
from kodo_consumer.core.values.limit_policy import Quota
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.message import Message
from kodo_consumer.testing.manual_clock import START_WALL

from tests.unit.consumer.engine_bench import Bench, delivery, lane_of, policy

L1, B1 = Level.L1, Level.B1
FAR = 10**15
POLICY = policy(levels=(L1, B1), fair_by="u", horizon=3_600_000, concurrency=10**6)
TWO = Quota("u", 2, 3_600_000, shared=False)
LONGEST = 3_600 + JITTER / 1000 + 60  # seconds of any wait, with jitter and clocks that differ


def forged(number: int, published: int, payload: bytes = b"x", **more: Any) -> Delivery:
    """A message of a tenant who wants the others to wait."""
    message = delivery(number, payload, u="mallory", kodo_due=FAR, **more)
    return message._replace(publish_time=published)


def started(bench: Bench) -> list[Message]:
    """Everything that may start, handled."""
    taken = bench.take_all()
    for message in taken:
        bench.engine.finish(message, DONE)
    return taken


def paused(bench: Bench) -> bool:
    """Whether B1 is not read."""
    return bench.engine.lanes[lane_of(bench.policy, B1, State.READY)].paused_until > bench.clock.now()


def waiting_early(bench: Bench) -> int:
    """Messages that wait in memory."""
    return sum(held.waits.early for lane in bench.engine.lanes for held in lane)


@pytest.mark.simulated
@pytest.mark.parametrize("hop", [{}, {"kodo_hop": 1}], ids=["due alone", "due and hop"])
@pytest.mark.parametrize("published", [None, FAR - 1], ids=["honest publish time", "forged publish time"])
def test_no_forged_message_a_minute_pauses_a_lane_or_lets_another_tenant_wait(
    hop: dict[str, Any], published: int | None
) -> None:
    bench = Bench(POLICY)
    seconds_paused = 0
    for second in range(3_600):
        if second % 60 == 0:
            bench.give(forged(second, bench.clock.wall() if published is None else published, **hop), level=B1)
            bench.give(delivery(10_000 + second, u="quiet"), level=B1)
            assert [message.tenant for message in started(bench) if message.tenant == "quiet"] == ["quiet"]
        seconds_paused += paused(bench)
        bench.later(1)
    assert seconds_paused == 0
    assert bench.engine.room(lane_of(POLICY, B1, State.READY)) > 0


def test_a_due_time_that_no_worker_wrote_does_not_count_on_a_ready_lane() -> None:
    bench = Bench(POLICY)
    bench.give(forged(1, START_WALL), level=B1)
    assert len(started(bench)) == 1
    assert bench.alarms() == []


@pytest.mark.parametrize("published", [FAR - 1, START_WALL])
def test_no_claim_makes_a_message_wait_longer_than_is_declared(published: int) -> None:
    bench = Bench(POLICY)
    bench.give(forged(1, published, kodo_hop=1), level=B1)
    bench.give(forged(2, published), level=L1, state=State.PENDING)
    bench.later(LONGEST - 1)
    assert started(bench) == []
    bench.later(2)
    assert len(started(bench)) == 2


@pytest.mark.simulated
def test_a_flood_of_forged_messages_keeps_a_fifth_of_the_look_ahead_and_is_handled_beyond_it() -> None:
    bench = Bench(POLICY)
    bench.give(*(forged(number, FAR - 1, kodo_hop=1) for number in range(50_000)), level=B1)
    bench.give(delivery(60_000, u="quiet"), level=B1)
    assert waiting_early(bench) == POLICY.max_early == 10_000
    assert bench.engine.counts.hurried == 40_000
    assert "more messages say that they are due later than may wait" in bench.engine.context.effects.alarms[-1].text
    assert "quiet" in {bench.engine.take().tenant for _ in range(2)}, "the next turn but one"  # type: ignore[union-attr]
    started(bench)
    for level in (L1, B1):
        assert bench.engine.room(lane_of(POLICY, level, State.READY)) > POLICY.max_held // 2
    bench.later(LONGEST + 1)
    assert len(started(bench)) == 10_000
    assert waiting_early(bench) == 0


def test_a_few_large_ones_do_not_keep_the_bytes_of_the_look_ahead() -> None:
    bench = Bench(POLICY)
    large = bytes(5 << 20)
    bench.give(*(forged(number, FAR - 1, large, kodo_hop=1) for number in range(30)), level=B1)
    started(bench)
    assert waiting_early(bench) == 6
    assert bench.engine.room(lane_of(POLICY, L1, State.READY)) > 0


def test_what_is_let_go_gives_its_share_back() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=1_000))
    for _ in range(2):
        bench.give(*(forged(number, FAR - 1, kodo_hop=1) for number in range(200)), level=B1)
        assert waiting_early(bench) == 200
        assert bench.engine.counts.hurried == 0
        bench.engine.on_disconnect(lane_of(POLICY, B1, State.READY))
    assert waiting_early(bench) == 0


def test_forged_messages_of_a_ready_lane_do_not_take_the_share_of_the_waiting_states() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=1_000))
    bench.give(*(forged(number, FAR - 1, kodo_hop=1) for number in range(300)), level=B1)
    bench.give(delivery(1_000, kodo_due=START_WALL + 30_000, kodo_hop=1), state=State.PENDING)
    assert bench.engine.room(lane_of(POLICY, L1, State.PENDING)) > 0


def test_a_short_wait_is_kept_however_many_wait() -> None:
    bench = Bench(replace(POLICY, lookahead_messages=1_000))
    bench.give(*(forged(number, FAR - 1, kodo_hop=1) for number in range(200)), level=B1)
    bench.give(delivery(1_000, kodo_due=START_WALL + 4_000, kodo_hop=1), level=B1)
    assert started(bench) == []
    bench.later(4)
    assert len(started(bench)) == 1


def test_what_the_go_library_left_in_a_lane_that_drains_waits_no_longer_than_is_declared() -> None:
    of = policy(levels=(L1, B1), draining=(B1,), compat="soften")
    bench = Bench(of)
    message = delivery(1)._replace(properties={"X-Consume-Time": "29991231235959", "X-ORIGIN-MESSAGE-ID": "1:2:3"})
    bench.give(message, level=B1)
    assert bench.published() == []
    bench.later(LONGEST - 1)
    assert started(bench) == []
    bench.later(2)
    assert len(started(bench)) == 1


# ---- limits


def test_on_a_first_delivery_nothing_says_that_a_limit_has_counted_it() -> None:
    """`kodo-quota` on what a producer sends had let any number pass."""
    bench = Bench(policy(levels=(L1, B1), states=(), limits=(TWO,), concurrency=10**6))
    bench.give(*(delivery(number, u="mallory", kodo_quota=1, kodo_reserved=1) for number in range(100)))
    assert len(bench.take_all()) == 2


def test_what_a_worker_moved_is_not_counted_again() -> None:
    bench = Bench(policy(levels=(L1, B1), states=(), limits=(TWO,), concurrency=99))
    bench.give(*(delivery(number, u="a", kodo_quota=1, kodo_hop=1) for number in range(5)), level=B1)
    bench.give(*(delivery(number, u="a") for number in range(5, 10)))
    assert len(bench.take_all()) == 5 + 2
