"""The engine by itself: whose turn it is. The look-ahead, fairness, limits."""

from __future__ import annotations

import pytest
from kodo_consumer.core.limits import limiter_values
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.testing.manual_clock import START_WALL

from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import B1, FAILED, L1, Bench, delivery, lane_of, policy

# ---- the look-ahead


def test_no_more_is_received_than_the_lookahead_holds_and_each_lanes_floor_is_kept_for_it() -> None:
    bench = Bench(policy(levels=(L1,), states=(State.RETRYING,), lookahead_messages=2_000))
    assert bench.policy.max_held == 1_400
    bench.give(*(delivery(number) for number in range(1_224)))
    assert bench.engine.room(0) == 1
    bench.give(delivery(1_224))
    assert bench.engine.room(0) == 0
    assert bench.engine.room(1) == 1_400 // 8
    for message in bench.take_all():
        bench.engine.finish(message, DONE)
    bench.engine.tick()
    assert bench.engine.room(0) == len(bench.acknowledged())
    while taken := bench.take_all():
        for message in taken:
            bench.engine.finish(message, DONE)
        if bench.engine.room(0) >= bench.policy.batch:
            break
    bench.engine.tick()
    assert bench.engine.context.effects.resume == [0]


def test_without_tenants_a_lane_that_has_enough_to_start_rests_until_half_of_it_is_gone() -> None:
    bench = Bench(policy())
    ready = lane_of(bench.policy, L1, State.READY)
    bench.give(*(delivery(number) for number in range(1_999)))
    assert bench.engine.room(ready) > 1
    bench.give(delivery(1_999))
    assert bench.engine.room(ready) == 0
    assert bench.engine.room(ready - 1) > 1, "others have not enough"
    message = bench.engine.take()
    for started in range(1, 1_000):
        bench.engine.tick()
        assert not bench.engine.context.effects.resume, f"{2_000 - started} are left to start"
        message = bench.engine.next(message, DONE)
    bench.engine.tick()
    assert bench.engine.context.effects.resume == [ready]


def test_with_tenants_a_lane_looks_as_far_ahead_as_it_may() -> None:
    bench = Bench(policy(fair_by="uid"))
    ready = lane_of(bench.policy, L1, State.READY)
    bench.give(*(delivery(number) for number in range(10_000)))
    assert bench.engine.room(ready) > bench.policy.batch


def test_beyond_the_bytes_only_empty_lanes_get_on() -> None:
    bench = Bench(policy(lookahead_bytes=10))
    bench.give(delivery(1, b"0123456789"))
    assert bench.engine.room(4) == 0
    assert bench.engine.room(0) == 1
    bench.engine.finish(bench.take_one(), DONE)
    assert bench.engine.room(4) > 1


# ---- fairness


def test_a_tenant_with_thousands_waiting_delays_a_quiet_one_by_one_turn() -> None:
    bench = Bench(policy(fair_by="uid"))
    bench.give(*(delivery(number, uid="noisy") for number in range(5_000)))
    bench.give(delivery(9_999, uid="quiet"))
    assert [bench.engine.take().tenant for _ in range(2)] == ["noisy", "quiet"]  # type: ignore[union-attr]


def test_a_tenant_of_whom_nothing_is_known_takes_half_of_the_free_slots_and_a_quick_one_all() -> None:
    bench = Bench(policy(fair_by="uid", concurrency=8))
    bench.give(*(delivery(number, uid="noisy") for number in range(20)))
    held = bench.take_all()
    assert [message.tenant for message in held] == ["noisy"] * 4
    bench.give(delivery(100, uid="quiet"), delivery(101, uid="quiet"))
    bench.engine.finish(held[0], DONE)
    assert [message.tenant for message in bench.take_all()][:3] == ["noisy", "quiet", "noisy"], "it is quick"


def test_a_lane_whose_only_tenant_is_passed_over_does_not_save_its_turns() -> None:
    bench = Bench(policy(levels=(L1,), states=(State.RETRYING,), fair_by="uid", concurrency=100))
    bench.give(*(delivery(number, uid="noisy") for number in range(100)))
    noisy = [bench.engine.take() for _ in range(75)]
    bench.give(*(delivery(100 + number, uid="quiet") for number in range(50)), state=State.RETRYING)
    for _ in range(30):
        bench.engine.finish(bench.engine.take(), DONE)  # type: ignore[arg-type]
    for message in noisy:
        bench.engine.finish(message, DONE)  # type: ignore[arg-type]
    following = [bench.engine.take().tenant for _ in range(10)]  # type: ignore[union-attr]
    assert following.count("quiet") == 5


def test_lanes_share_starts_by_weight() -> None:
    bench = Bench(policy(levels=(L1,)))
    for state in (State.READY, State.RETRYING, State.PENDING, State.BLOCKING):
        bench.give(*(delivery(number) for number in range(10)), state=state)
    assert {bench.engine.take().state for _ in range(4)} == {"ready", "retrying", "pending", "blocking"}  # type: ignore[union-attr]
    assert [lane.started for lane in bench.engine.lanes] == [1, 1, 1, 1]


def test_tenant_weights_are_turns() -> None:
    bench = Bench(policy(fair_by="uid", tenant_weights={"a": 3}, concurrency=100))
    bench.give(*(delivery(number, uid="ab"[number % 2]) for number in range(20)))
    assert "".join(bench.engine.take().tenant for _ in range(8)) == "aaabaaab"  # type: ignore[union-attr]


# ---- limits


def test_at_its_cap_a_tenant_is_passed_over_and_never_moved() -> None:
    bench = Bench(policy(fair_by="uid", limits=(Concurrency("uid", 2, shared=False),), concurrency=100))
    bench.give(*(delivery(number, uid="a") for number in range(1_000)), delivery(2_000, uid="b"))
    started = bench.take_all()
    assert [message.tenant for message in started] == ["a", "b", "a"]
    bench.give(delivery(3_000, uid="a"))
    assert bench.take_all() == []
    bench.engine.finish(started[0], DONE)
    (following,) = bench.take_all()
    assert following.id == "7:2:0:-1"
    assert bench.published() == []
    assert bench.engine.check_invariants() == []


def test_over_its_rate_a_message_waits_in_memory_up_to_5_s_and_else_in_pending() -> None:
    bench = Bench(policy(limits=(Rate(None, Pace(1, 1_000, 1), shared=False),)))
    bench.give(*(delivery(number) for number in range(10)))
    assert len(bench.take_all()) == 1
    out = bench.published()
    assert {message.topic[-7:] for _, message in out} == {"pending"}
    reserved = [int(message.properties["kodo-reserved"]) - START_WALL for _, message in out]
    assert reserved == [60_000, 61_000, 62_000, 63_000]
    assert all(int(m.properties["kodo-reserved"]) <= m.deliver_at < START_WALL + 66_000 for _, m in out)
    for _ in range(5):
        bench.later(1.001)
        assert len(bench.take_all()) == 1


def test_a_message_back_at_its_reserved_moment_starts_before_newcomers() -> None:
    bench = Bench(policy(limits=(Rate(None, Pace(1, 1_000, 1), shared=False),)))
    bench.give(*(delivery(number) for number in range(8)))
    bench.take_all()
    back = [message.properties for _, message in bench.published()]
    for _ in range(5):
        bench.later(1)
        assert len(bench.take_all()) == 1
    bench.later(55.5)
    bench.give(delivery(100))
    in_time = {name: value for name, value in back[0].items() if name != "kodo-due"}
    bench.give(delivery(101)._replace(properties=in_time), state=State.PENDING)
    assert [message.state for message in bench.take_all()] == ["pending"]


def test_a_quota_counts_a_message_once_however_often_it_starts() -> None:
    bench = Bench(policy(limits=(Quota(None, 2, 3_600_000, shared=False),), in_place=()))
    bench.give(delivery(1), delivery(2), delivery(3))
    first, _ = bench.take_all()
    ((_, over),) = bench.published()
    assert over.topic.endswith("L1-blocking")
    assert "kodo-quota" not in over.properties
    bench.engine.finish(first, FAILED)
    ((_, retried),) = bench.published()
    assert retried.properties["kodo-quota"] == "1"
    bench.give(delivery(9)._replace(properties={"kodo-quota": "1"}), state=State.RETRYING)
    assert len(bench.take_all()) == 1


def test_in_a_backup_level_a_message_over_its_rate_stays_and_counts_nothing() -> None:
    bench = Bench(policy(limits=(Rate(None, Pace(1, 60_000, 1), shared=False),)))
    bench.give(delivery(1), delivery(2), level=B1)
    assert len(bench.take_all()) == 1
    assert bench.published() == []
    bench.later(61)
    (message,) = bench.take_all()
    assert message.attempt == 1


def test_messages_that_arrive_in_a_bunch_keep_the_law_all_the_same() -> None:
    """Their slots passed while every handler was busy."""
    bench = Bench(policy(limits=(Rate(None, Pace(10, 1_000, 1), shared=False),), states=()))
    bench.give(*(delivery(number) for number in range(20)))
    assert len(bench.take_all()) == 1
    bench.later(10)
    assert len(bench.take_all()) == 1
    starts = 0
    for _ in range(300):
        bench.later(0.01)
        starts += len(bench.take_all())
    assert starts == 18
    assert bench.engine.check_invariants() == []


def test_who_would_wait_too_long_at_a_shut_limiter_leaves_after_all() -> None:
    bench = Bench(policy(limits=(Rate(None, Pace(1, 1_000, 1), shared=False),)))
    far = {"kodo-reserved": str(START_WALL - 1), "kodo-hop": "1"}
    bench.give(*(delivery(number)._replace(properties=far) for number in range(20)), state=State.PENDING)
    assert len(bench.take_all()) == 1
    counted = [message.properties["kodo-attempts-pending"] for _, message in bench.published()]
    assert len(counted) >= 8
    assert set(counted) == {"1"}
    assert bench.engine.check_invariants() == []


def test_a_token_given_to_a_message_that_another_limiter_turns_back_goes_to_the_next() -> None:
    caps = (Concurrency("uid", 1, shared=False), Concurrency("bucket", 1, shared=False))
    bench = Bench(policy(limits=caps, concurrency=10))
    bench.give(delivery(1, uid="a", bucket="x"), delivery(2, uid="b", bucket="y"))
    one, two = bench.take_all()
    bench.give(delivery(3, uid="a", bucket="y"), delivery(4, uid="a", bucket="z"))
    assert bench.take_all() == []
    bench.engine.finish(one, DONE)
    (four,) = bench.take_all()
    assert four.id == "7:4:0:-1"
    bench.engine.finish(four, DONE)
    bench.engine.finish(two, DONE)
    (three,) = bench.take_all()
    assert three.id == "7:3:0:-1"


def test_a_limiter_whose_signal_got_lost_is_looked_at_again() -> None:
    bench = Bench(policy(limits=(Concurrency(None, 1, shared=False),)))
    bench.give(delivery(1), state=State.RETRYING)
    (running,) = bench.take_all()
    bench.give(delivery(2))
    assert bench.take_all() == []
    bench.give(delivery(3), state=State.PENDING)
    assert bench.take_all() == []
    bench.engine.finish(running, DONE)
    bench.engine.on_disconnect(4)
    assert bench.take_all() == []
    bench.later(1)
    (message,) = bench.take_all()
    assert message.state == "pending"


def test_many_refusals_at_once_do_not_keep_others_out() -> None:
    bench = Bench(policy(limits=(Concurrency("uid", 1, shared=False),), concurrency=100))
    bench.give(*(delivery(number, uid="a") for number in range(600)))
    first = bench.engine.take()
    before = bench.engine.version
    assert bench.engine.take() is None
    assert bench.engine.version > before
    bench.engine.take()
    assert bench.engine.take() is None
    assert first is not None


def test_live_workers_change_the_share() -> None:
    bench = Bench(policy(limits=(Concurrency(None, 4, shared=True),), expected_workers=4, concurrency=100))
    bench.give(*(delivery(number) for number in range(10)))
    assert len(bench.take_all()) == 1
    bench.engine.scheduler.limits.share_out(2)
    bench.later(1)
    assert len(bench.take_all()) == 1


@INTERPRETED_ONLY
def test_a_limit_holds_for_a_message_that_waited_while_its_value_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_values, "_FORGET_ABOVE", 0)
    bench = Bench(policy(limits=(Concurrency("uid", 1, shared=False),)))
    bench.give(delivery(1, uid="a"))
    (first,) = bench.take_all()
    bench.engine.finish(first, FAILED)
    bench.later(1.9)
    bench.give(delivery(2, uid="a"))
    (second,) = bench.take_all()
    bench.later(0.2)
    assert bench.take_all() == [], "the first is back, and the second at work"
    bench.engine.finish(second, DONE)
    (again,) = bench.take_all()
    assert again.id == first.id


@INTERPRETED_ONLY
def test_too_many_values_of_a_limited_property_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_values, "MOST", 2)
    bench = Bench(policy(limits=(Quota("uid", 1, 60_000, shared=False),), in_place=()))
    bench.give(*(delivery(number, uid=f"u{number}") for number in range(4)))
    assert len(bench.take_all()) == 3, "two values of their own, and one of all others"
    bench.later(1.0)
    assert bench.alarms() == ["limits"]
