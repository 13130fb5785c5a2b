"""Live orders and another policy at work: what rests, what gets turns, what limits count, and that nothing is lost over it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.core.upkeep.override_state import (
    OverrideListener,
    apply_overrides,
    left_lanes,
    paused_lanes,
    paused_tenants,
    why_not_followed,
)
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import LaneSet
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol.overrides import LEAVE, Override, OverrideKind, overrides_text
from tests.unit.consumer.engine_bench import L1, L2, Bench, delivery, lane_of, policy

LATER = START_WALL + 3_600_000
RATE = Rate("uid", Pace(1, 3_600_000, 1), shared=False)
CAP = Concurrency(None, 2, shared=False)
QUOTA = Quota("uid", 1, 3_600_000, shared=False)
FAIR = policy(fair_by="uid", concurrency=100, limits=(RATE, CAP, QUOTA))


def order(what: OverrideKind, **details: str) -> Override:
    return Override(what, START_WALL, LATER, "ann@desk", **details)


def numbers(messages: list[Message]) -> list[int]:
    return [int(message._delivery.position.split(":")[1]) for message in messages]


def plain(**changes: object) -> Bench:
    return Bench(policy(fair_by="uid", concurrency=100, **changes))  # type: ignore[arg-type]


def test_a_paused_tenant_stays_queued_and_others_go_on() -> None:
    bench = plain()
    bench.give(delivery(1, uid="u1"), delivery(2, uid="u2"))
    bench.engine.apply_policy(bench.policy, paused=frozenset({"u1"}))
    bench.give(delivery(3, uid="u1"), delivery(4, uid="u2"))
    assert numbers(bench.take_all()) == [2, 4]
    assert bench.engine.check_invariants() == []
    before = bench.engine.version
    bench.engine.apply_policy(bench.policy)
    assert bench.engine.version > before, "whoever sleeps is woken"
    assert numbers(bench.take_all()) == [1, 3]


def test_a_paused_lane_brings_nothing_and_starts_nothing() -> None:
    bench = plain()
    ready = lane_of(bench.policy, L1, State.READY)
    bench.give(delivery(1))
    bench.give(delivery(2), level=L2)
    bench.engine.apply_policy(bench.policy, resting=frozenset({ready}))
    assert bench.engine.room(ready) == 0
    bench.give(delivery(3))
    assert numbers(bench.take_all()) == [2]
    bench.later(1)
    assert bench.engine.context.effects.resume == []
    bench.engine.apply_policy(bench.policy)
    assert bench.engine.context.effects.resume == [ready], "it is asked for more"
    assert numbers(bench.take_all()) == [1, 3]
    assert bench.engine.check_invariants() == []


def test_weights_of_tenants_and_lanes_count_at_once() -> None:
    bench = plain()
    bench.give(*(delivery(number, uid="u1" if number < 10 else "u2") for number in range(20)))
    assert numbers([m for m in [bench.engine.take(), bench.engine.take()] if m]) == [0, 10]
    bench.engine.apply_policy(replace(bench.policy, tenant_weights={"u2": 3}))
    taken = numbers([m for m in (bench.engine.take() for _ in range(8)) if m])
    assert len([number for number in taken if number >= 10]) == 6
    lanes = tuple(replace(lane, weight=9 if lane.level is L2 else 1) for lane in bench.policy.lanes)
    bench.give(*(delivery(100 + number, uid="u1") for number in range(20)), level=L2)
    bench.engine.apply_policy(replace(bench.policy, lanes=lanes))
    taken = numbers([m for m in (bench.engine.take() for _ in range(10)) if m])
    assert len([number for number in taken if number >= 100]) == 9


def test_a_raised_limit_lets_at_once_through_what_waits_at_its_limiter() -> None:
    limited = policy(fair_by="uid", states=(), limits=(RATE,), concurrency=100)
    bench = Bench(limited)
    bench.give(*(delivery(number, uid="u1") for number in range(4)))
    assert numbers(bench.take_all()) == [0]
    more = replace(RATE, overrides={"u1": Pace(2, 1_000, 2)})
    bench.engine.apply_policy(replace(limited, limits=(more,)))
    for _ in range(4):
        bench.later(1)
        bench.take_all()
    assert bench.engine.counts.started == 4
    assert bench.engine.check_invariants() == []


def test_a_raised_quota_counts_what_was_counted_and_no_more() -> None:
    limited = policy(fair_by="uid", states=(), limits=(QUOTA,), concurrency=100, handler_timeout=10**9)
    bench = Bench(limited)
    bench.give(*(delivery(number, uid="u1") for number in range(5)))
    assert len(bench.take_all()) == 1
    bench.later(120)
    bench.engine.apply_policy(replace(limited, limits=(replace(QUOTA, amount=3),)))
    bench.later(1.1)
    assert len(bench.take_all()) == 2
    bench.engine.apply_policy(replace(limited, limits=(replace(QUOTA, amount=2, period=60_000),)))
    for _ in range(70):
        bench.later(2)
        bench.take_all()
    assert bench.engine.counts.started == 5
    assert bench.engine.check_invariants() == []


def test_parts_of_a_longer_window_are_put_together() -> None:
    limited = policy(fair_by="uid", states=(), limits=(replace(QUOTA, amount=3, period=60_000),), concurrency=100)
    bench = Bench(limited)
    for number in range(3):
        bench.give(delivery(number, uid="u1"))
        assert len(bench.take_all()) == 1
        bench.later(1.5)
    bench.engine.apply_policy(replace(limited, limits=(replace(QUOTA, amount=4),)))
    bench.give(*(delivery(10 + number, uid="u1") for number in range(3)))
    assert len(bench.take_all()) == 1


def test_new_and_gone_limits_are_asked_anew_and_nothing_is_stuck_at_the_old() -> None:
    limited = policy(fair_by="uid", states=(), limits=(RATE,), concurrency=100)
    bench = Bench(limited)
    bench.give(*(delivery(number, uid="u1") for number in range(4)))
    running = bench.take_all()
    assert len(running) == 1
    bench.engine.apply_policy(replace(limited, limits=(CAP,)))
    assert len(bench.take_all()) == 2
    bench.engine.finish(running[0], DONE)
    assert bench.take_all() == []
    bench.give(delivery(9, uid="u2"))
    bench.engine.apply_policy(replace(limited, limits=()))
    assert len(bench.take_all()) == 2
    assert bench.engine.check_invariants() == []


def test_delays_and_time_outs_count_from_now_on() -> None:
    bench = plain()
    bench.give(delivery(1))
    bench.take_all()
    bench.engine.apply_policy(replace(bench.policy, handler_timeout=1_000))
    bench.later(1.5)
    assert len(bench.engine.context.effects.overdue) == 1


def test_orders_change_weights_and_the_limit_they_name() -> None:
    orders = [
        order(OverrideKind.WEIGHT, tenant="u1", to="3"),
        order(OverrideKind.LIMIT, limit="rate", by="uid", value="u1", to="10/s"),
        order(OverrideKind.LIMIT, limit="rate", by="uid", to="5/s"),
        order(OverrideKind.LIMIT, limit="concurrency", to="8"),
        order(OverrideKind.LIMIT, limit="quota", by="uid", value="u2", to="7/h"),
        order(OverrideKind.LIMIT, limit="quota", by="uid", to="9/d"),
    ]
    assert [why_not_followed(one, FAIR) for one in orders] == [""] * 6
    found = apply_overrides(FAIR, orders)
    assert found.tenant_weights == {"u1": 3}
    rate, cap, quota = found.limits
    assert rate == replace(RATE, pace=Pace(5, 1_000, 5), overrides={"u1": Pace(10, 1_000, 10)})
    assert cap == replace(CAP, limit=8)
    assert quota == replace(QUOTA, amount=9, period=86_400_000, overrides={"u2": (7, 3_600_000)})
    by_uid = replace(FAIR, limits=(Concurrency("uid", 2, shared=False),))
    [cap] = apply_overrides(
        by_uid, [order(OverrideKind.LIMIT, limit="concurrency", by="uid", value="u1", to="1")]
    ).limits
    assert cap == Concurrency("uid", 2, shared=False, overrides={"u1": 1})
    lanes = LaneSet((State.RETRYING,), (L2,))
    several = replace(FAIR, limits=(CAP, replace(CAP, within=lanes)))
    within = order(OverrideKind.LIMIT, limit="concurrency", within="L2/retrying", to="8")
    assert why_not_followed(within, several) == ""
    assert apply_overrides(several, [within]).limits == (CAP, replace(CAP, within=lanes, limit=8))
    assert why_not_followed(within, FAIR) == (
        "no limits of this kind and property in L2/retrying; there is rate by uid, concurrency by none, quota by uid"
    )
    elsewhere = replace(FAIR, limits=(replace(CAP, within=lanes),))
    assert "concurrency by none in L2/retrying" in why_not_followed(replace(within, within=""), elsewhere)
    pauses = [order(OverrideKind.PAUSE, lane="L2/retrying"), order(OverrideKind.PAUSE, tenant="u1"), *orders]
    assert paused_tenants(pauses) == {"u1"}
    assert paused_lanes(FAIR, pauses) == {lane_of(FAIR, L2, State.RETRYING)}
    assert left_lanes(FAIR, [*pauses, order(OverrideKind.PAUSE, lane="L2/ready", to=LEAVE)]) == {
        lane_of(FAIR, L2, State.READY)
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (order(OverrideKind.PAUSE, lane="L9/ready"), "no lane L9/ready; there is L2/ready, L2/retrying"),
        (order(OverrideKind.LIMIT, limit="rate", by="bucket", to="1/s"), "no limits of this kind and property"),
        (
            order(OverrideKind.LIMIT, limit="concurrency", value="u1", to="1"),
            "a limit without a property has no values",
        ),
    ],
)
def test_what_does_not_fit_the_subscription_is_told(wrong: Override, said: str) -> None:
    assert said in why_not_followed(wrong, FAIR)
    assert "no fair_by" in why_not_followed(order(OverrideKind.PAUSE, tenant="u1"), policy())
    assert "2 limits" in why_not_followed(
        order(OverrideKind.LIMIT, limit="rate", by="uid", to="1/s"), replace(FAIR, limits=(RATE, RATE))
    )
    assert "there is none" in why_not_followed(order(OverrideKind.LIMIT, limit="rate", by="uid", to="1/s"), policy())


class Desk:
    """What the orders tell a worker."""

    def __init__(self, of: Policy) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[Override, ...]] = []
        self.orders = OverrideListener(lambda: self.of, self.clock, self.told.append)
        self.of = of

    def read(self, value: str | None, lane: int | None = None) -> None:
        properties = {} if value is None else {"kodo-steer": value}
        at = self.of.ground_lane if lane is None else self.of.lanes[lane]
        self.orders(at, LaneStats(properties=properties))


def test_orders_are_followed_until_they_end_also_when_nothing_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(FAIR)
    pause = order(OverrideKind.PAUSE, tenant="u1")
    desk.read(None)
    desk.read(overrides_text([pause]), lane=0)
    assert desk.told == [], "only the ground topic's subscription has orders"
    desk.read(overrides_text([pause]))
    desk.read(overrides_text([pause]))
    assert desk.told == [(pause,)], "told once"
    assert "steered: tenant u1 paused, by ann@desk" in caplog.text
    desk.orders(FAIR.ground_lane, None)
    assert len(desk.told) == 1
    desk.clock.advance(3_600)
    desk.orders(FAIR.ground_lane, None)
    assert desk.told[-1] == ()
    assert "everything is as the file says" in caplog.text


def test_what_cannot_be_read_changes_nothing_and_what_does_not_fit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(FAIR)
    pause, wrong = order(OverrideKind.PAUSE, tenant="u1", why="psp"), order(OverrideKind.PAUSE, lane="L9/ready")
    desk.read(overrides_text([pause, wrong]))
    assert desk.told == [(pause,)]
    assert "by ann@desk (psp)" in caplog.text
    assert "lane L9/ready paused is not followed: no lane L9/ready" in caplog.text
    desk.read("garbage")
    assert "the orders cannot be read, those before stay" in caplog.text
    assert len(desk.told) == 1
    desk.read(None)
    assert desk.told[-1] == ()


def test_an_order_of_the_far_future_is_told_and_its_text_writes_no_lines_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(FAIR)
    forged = "eve\n2026-11-28 03:00:00 CRITICAL kodo.consumer the worker broke\x1b[2J"
    year = 365 * 86_400_000
    sleeper = Override(OverrideKind.PAUSE, START_WALL + year, START_WALL + year + 1, forged, tenant="u1\n")
    desk.read(overrides_text([sleeper]))
    assert desk.told == []
    assert "not followed: it begins at" in caplog.text
    desk.read(overrides_text([Override(OverrideKind.PAUSE, START_WALL, LATER, forged, forged, tenant="u2\n")]))
    desk.read('{"format": 1, "orders": [{"what\\n": 1}]}')
    assert len(desk.told) == 1
    assert len(caplog.messages) == 3
    assert all(message.isprintable() for message in caplog.messages)


def test_an_order_is_followed_as_soon_as_the_file_has_what_it_names_and_no_longer_than_that() -> None:
    desk = Desk(replace(FAIR, limits=()))
    cap = order(OverrideKind.LIMIT, limit="rate", by="uid", to="1/s")
    desk.read(overrides_text([cap]))
    desk.orders.drop_expired()
    assert desk.told == []
    desk.of = replace(FAIR, limits=(RATE,))
    desk.orders.drop_expired()
    assert desk.told == [(cap,)]
    desk.of = replace(FAIR, limits=(RATE, RATE))
    desk.orders.drop_expired()
    assert desk.told == [(cap,), ()]


def test_waiting_lanes_rest_until_orders_are_read_once_for_half_a_minute_at_most() -> None:
    of = policy()
    waiting = {lane.index for lane in of.lanes if lane.state is not State.READY or lane.level is Level.B1}
    assert 0 < len(waiting) < len(of.lanes)
    desk = Desk(of)
    desk.orders.rest_unread()
    assert paused_lanes(of, desk.told[-1]) == waiting
    desk.orders(of.ground_lane, None)
    desk.clock.advance(29.9)
    desk.orders.drop_expired()
    assert len(desk.told) == 1, "they were not read since"
    desk.clock.advance(0.1)
    desk.orders.drop_expired()
    assert desk.told[-1] == ()
    for value in (None, overrides_text([order(OverrideKind.PAUSE, lane="L1/retrying")])):
        desk = Desk(of)
        desk.orders.rest_unread()
        desk.read(value)
        assert [one.who for one in desk.told[-1]] == ([] if value is None else ["ann@desk"])
