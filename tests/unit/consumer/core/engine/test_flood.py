"""A flood over its limit: it goes elsewhere turn by turn, and holds up nobody who comes after it."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.core.values.delay_schedule import DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.limit_policy import Pace, Rate
from kodo_consumer.core.values.policy import Policy

from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import WAITS, Bench, delivery, policy


def _policy(**changes: Any) -> Policy:
    """One handler start a second and tenant; who has to wait for more than 5 s goes to PENDING for at least 10 s."""
    waits = {**WAITS, State.PENDING: DelaySchedule((10_000,), 60)}
    return policy(
        (Level.L1,), limits=(Rate("u", Pace(1, 1_000, 1), shared=False),), fair_by="u", waits=waits, **changes
    )


def test_a_quiet_message_behind_a_flood_starts_before_the_flood_has_been_sent_elsewhere() -> None:
    bench = Bench(_policy())
    bench.give(*(delivery(number, u="noisy") for number in range(3_000)), delivery(3_000, u="quiet"))
    assert bench.published() == [], "limits are asked when a turn comes"
    started = [bench.engine.take(), bench.engine.take()]
    assert [message.tenant for message in started if message] == ["noisy", "quiet"]
    assert len(bench.published()) < 10
    for _ in range(100):
        assert bench.engine.take() is None
    assert len(bench.published()) > 2_900
    assert bench.engine.check_invariants() == []


def test_one_call_sends_so_many_elsewhere_and_then_says_that_there_may_be_more() -> None:
    bench = Bench(_policy())
    bench.give(*(delivery(number, u="noisy") for number in range(1_000)))
    assert bench.engine.take() is not None
    before = bench.engine.version
    assert bench.engine.take() is None
    assert bench.engine.version > before
    assert 0 < len(bench.published()) < 100


def test_when_half_of_the_look_ahead_is_used_a_flood_leaves_as_it_comes() -> None:
    bench = Bench(_policy(lookahead_messages=400))
    most = bench.policy.max_held
    bench.give(*(delivery(number, u="noisy") for number in range(most)))
    sent = len(bench.published())
    assert most // 2 - 10 < sent <= most // 2 + 1
    assert bench.engine.check_invariants() == []


@INTERPRETED_ONLY
def test_limiters_are_looked_at_each_second_and_not_with_every_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(_policy())
    looks: list[float] = []
    recheck = bench.engine.scheduler.recheck
    monkeypatch.setattr(bench.engine.scheduler, "recheck", lambda now: (looks.append(now), recheck(now)))
    for _ in range(40):
        bench.later(0.05)
    assert 2 <= len(looks) <= 3
