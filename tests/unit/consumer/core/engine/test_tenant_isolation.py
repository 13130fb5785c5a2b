"""A tenant that fills the look-ahead is moved aside, so that reading goes on: who, what, until when, and how it ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from kodo_consumer.core.engine.tenant_isolation import IN_FLIGHT
from kodo_consumer.core.values.broker import Confirmed, Rejected
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.limit_policy import Concurrency, Quota
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import IsolationPolicy, Policy
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol.properties import DUE
from tests.unit.consumer.engine_bench import B1, L1, Bench, delivery, lane_of, policy, store_all

QUARTER = IsolationPolicy(0.25, 100, "B1")


def _policy(levels: tuple[Level, ...] = (L1, B1), **changes: Any) -> Policy:
    """Of 1,135 messages of look-ahead the worker itself holds 800."""
    values: dict[str, Any] = {"fair_by": "u", "isolate": QUARTER, "lookahead_messages": 1_135, "concurrency": 16}
    return policy(levels, **(values | changes))


def _flooded(of: Policy, quiet: int = 0, first: int = 0, size: int = 1) -> Bench:
    """A look-ahead full of one tenant's messages, and some of others'; told so at its next question."""
    bench = Bench(of)
    bench.give(*(delivery(first + number, b"x" * size, u="noisy") for number in range(of.max_held - quiet)))
    bench.give(*(delivery(50_000 + number, u=f"quiet{number}") for number in range(quiet)))
    return bench


def _full(bench: Bench) -> None:
    assert bench.engine.room(0) == 0
    bench.engine.tick()


def test_the_first_half_of_what_made_it_noisy_stays_and_the_rest_leaves_oldest_first() -> None:
    bench = _flooded(_policy(), quiet=3)
    assert bench.published() == []
    _full(bench)
    stays = _policy().max_held // 8
    out = bench.published()
    assert {message.topic for _, message in out} == {"persistent://p/n/t-B1-ready"}
    assert [int(message.properties["kodo-origin-id"].split(":")[1]) for _, message in out] == list(
        range(stays, _policy().max_held - 3)
    )
    assert {message.properties["u"] for _, message in out} == {"noisy"}
    assert list(bench.engine.isolation.tenants) == ["noisy"]
    assert (bench.engine.counts.isolated, bench.alarms()) == (1, ["isolated"])
    assert not any(alarm.severe for alarm in bench.engine.context.effects.alarms)
    assert bench.engine.check_invariants() == []
    for ticket, _ in out:
        bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.engine.counts.finished == {"isolated": len(out)}
    assert bench.engine.room(0) > 0
    assert bench.engine.check_invariants() == []


def test_it_counts_nothing_and_says_for_whom_and_why() -> None:
    bench = _flooded(_policy())
    _full(bench)
    for _, message in bench.published():
        headers = {name: value for name, value in message.properties.items() if name.startswith("kodo-")}
        assert (headers["kodo-reason"], headers["kodo-for"], headers["kodo-hop"]) == ("isolated", "s", "1")
        assert not {name for name in headers if "attempts" in name or "reserved" in name}


@pytest.mark.parametrize(
    ("levels", "isolate", "topic"),
    [((L1, B1), QUARTER, "B1-ready"), ((L1,), IsolationPolicy(0.25, 100, "pending"), "L1-pending")],
)
def test_it_goes_where_the_file_says(levels: tuple[Level, ...], isolate: IsolationPolicy, topic: str) -> None:
    bench = _flooded(_policy(levels, isolate=isolate))
    _full(bench)
    assert {message.topic for _, message in bench.published()} == {f"persistent://p/n/t-{topic}"}


@pytest.mark.parametrize(
    "of",
    [
        _policy(isolate=None),
        _policy(isolate=IsolationPolicy(1.0, 10, "B1")),
        _policy(draining=(B1,)),
        _policy(ordered=True),
    ],
    ids=["off", "not more than its share", "nowhere to go", "an ordered lane"],
)
def test_it_stays(of: Policy) -> None:
    bench = _flooded(of)
    _full(bench)
    bench.later(2)
    assert bench.published() == []
    assert list(bench.engine.isolation.tenants) == []


def test_a_few_large_messages_are_fewer_than_the_least() -> None:
    bench = Bench(_policy(lookahead_bytes=1 << 20))
    bench.give(*(delivery(number, b"x" * 20_000, u="noisy") for number in range(50)))
    _full(bench)
    assert bench.published() == []


def test_a_least_beyond_what_may_be_held_keeps_nobody_from_being_isolated() -> None:
    bench = _flooded(_policy(isolate=IsolationPolicy(0.25, 5_000, "B1")))
    _full(bench)
    assert list(bench.engine.isolation.tenants) == ["noisy"]


def test_a_look_ahead_full_of_a_paused_tenant_that_has_no_way_out_is_told() -> None:
    of = _policy(isolate=None)
    bench = _flooded(of, quiet=3)
    bench.engine.apply_policy(of, paused=frozenset({"noisy"}))
    _full(bench)
    bench.later(2)
    assert set(bench.alarms()) == {"paused"}
    told = len(bench.alarms())
    bench.engine.apply_policy(of)
    bench.later(2)
    assert len(bench.alarms()) == told


def test_nobody_is_isolated_while_there_is_room() -> None:
    bench = Bench(_policy())
    kept_for_other_lanes = 4 * (_policy().max_held // 20)
    bench.give(*(delivery(number, u="noisy") for number in range(_policy().max_held - kept_for_other_lanes - 1)))
    assert bench.engine.room(0) > 0
    bench.later(2)
    assert bench.published() == []


def test_who_shares_the_look_ahead_evenly_is_not_noisy() -> None:
    bench = Bench(_policy())
    bench.give(*(delivery(number, u=f"u{number % 4}") for number in range(_policy().max_held)))
    _full(bench)
    assert list(bench.engine.isolation.tenants) == []


def test_what_comes_later_leaves_as_it_comes_and_a_quiet_message_behind_is_reached() -> None:
    bench = _flooded(_policy())
    _full(bench)
    total = store_all(bench)
    bench.give(*(delivery(10_000 + number, u="noisy") for number in range(250)))
    assert len(bench.published()) == 0, "less than half of the look-ahead is used: there is no need"
    bench.give(*(delivery(11_000 + number, u="noisy") for number in range(150)), delivery(20_000, u="quiet"))
    assert len(bench.published()) == 400
    started = [message.tenant for message in bench.take_all()]
    assert started[1] == "quiet"
    assert len(total) > 0


def test_each_is_due_when_its_turn_would_come_at_the_pace_its_tenant_is_served() -> None:
    """Ten starts a second, every one the noisy tenant's: with 105 before it, the first that leaves is due after 10.5 s,
    which is less than the minute it stays away at least; the last after 84 s."""
    bench = _flooded(_policy(limits=()))
    for _ in range(50):
        bench.later(0.1)
        message = bench.engine.take()
        assert message is not None
        bench.engine.finish(message, DONE)
        bench.give(delivery(30_000 + len(bench.acknowledged()), u="noisy"))
    _full(bench)
    waits = [int(message.properties[DUE]) - START_WALL - 5_000 for _, message in bench.published()]
    assert all(60_000 <= wait < 63_100 for wait in waits[:400]), "a minute, and up to 3 s at random"
    assert 76_000 <= waits[-1] < 88_000


@pytest.mark.parametrize("reserves_slots", [True, False])
def test_the_pace_is_the_tenants_part_of_all_starts(reserves_slots: bool) -> None:
    bench = _flooded(_policy(reserves_slots=reserves_slots), quiet=1)
    bench.give(*(delivery(60_000 + number, u="quiet0") for number in range(50)))
    for _ in range(48):
        bench.later(0.25)
        for _ in range(2):
            message = bench.engine.take()
            assert message is not None
            bench.engine.finish(message, DONE)
    assert Counter(bench.engine.scheduler.recent_starts or ())["noisy"] == 48
    bench.give(*(delivery(40_000 + number, u="noisy") for number in range(50)))
    _full(bench)
    last = [int(message.properties[DUE]) - START_WALL - 12_000 for _, message in bench.published()][-1]
    assert 190_000 < last < 220_000, "four starts a second, and 838 before it"


def test_what_cannot_be_handled_within_the_hour_comes_back_over_half_an_hour() -> None:
    bench = _flooded(_policy())
    _full(bench)
    waits = sorted(int(message.properties[DUE]) - START_WALL for _, message in bench.published())
    assert 1_800_000 <= waits[0] < 1_850_000
    assert 3_500_000 < waits[-1] <= 3_603_000


def test_so_many_are_on_their_way_at_once_and_the_next_with_each_receipt() -> None:
    of = _policy(lookahead_messages=8_000)
    bench = _flooded(of)
    _full(bench)
    out = bench.published()
    assert len(out) == IN_FLIGHT
    assert bench.engine.check_invariants() == []
    bench.engine.receipt(out[0][0], Confirmed("x"))
    assert len(bench.published()) == 1
    bench.engine.receipt(out[1][0], Rejected("too big"))
    assert [message.topic[-4:] for _, message in bench.published()] == ["dead"]


def test_a_lane_whose_connection_breaks_lets_go_of_those_who_were_to_leave() -> None:
    bench = _flooded(_policy(lookahead_messages=8_000))
    _full(bench)
    out = bench.published()
    bench.engine.on_disconnect(0)
    for ticket, _ in out:
        bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.published() == []
    assert bench.engine.check_invariants() == []


def test_a_tenant_that_has_calmed_down_returns() -> None:
    bench = _flooded(_policy())
    _full(bench)
    store_all(bench)
    bench.later(8)
    assert list(bench.engine.isolation.tenants) == ["noisy"], "it holds all that it may keep"
    while taken := bench.take_all():
        for message in taken:
            bench.engine.finish(message, DONE)
    bench.later(1)
    assert list(bench.engine.isolation.tenants) == []
    again = _flooded(_policy(), first=70_000)
    _full(again)
    assert list(again.engine.isolation.tenants) == ["noisy"]


def test_nobody_returns_while_messages_are_still_to_leave() -> None:
    bench = _flooded(_policy(lookahead_messages=8_000))
    _full(bench)
    while taken := bench.take_all():
        for message in taken:
            bench.engine.finish(message, DONE)
    for _ in range(10):
        bench.later(1)
    assert list(bench.engine.isolation.tenants) == ["noisy"]


def test_large_messages_fill_the_look_ahead_by_their_bytes() -> None:
    of = _policy(lookahead_messages=10_000, lookahead_bytes=200_000)
    bench = Bench(of)
    bench.give(*(delivery(number, b"x" * 1_000, u="noisy") for number in range(200)))
    _full(bench)
    assert list(bench.engine.isolation.tenants) == ["noisy"]
    assert len(bench.published()) == 200 - 25


def test_those_who_wait_at_a_limit_leave_as_well() -> None:
    """A concurrency cap moves nobody; a look-ahead full of those it keeps waiting does."""
    bench = _flooded(_policy(limits=(Concurrency("u", 2, shared=False),)))
    assert len(bench.take_all()) == 2
    for _ in range(10):
        assert bench.take_all() == []
    assert bench.engine.scheduler.messages_at_limits > 400
    _full(bench)
    left = len(bench.published())
    assert left >= 600
    assert bench.engine.check_invariants() == []
    bench.later(1)
    assert bench.engine.check_invariants() == []
    bench.give(*(delivery(60_000 + number, u="noisy") for number in range(100)))
    assert bench.engine.check_invariants() == []


def test_several_noisy_tenants_keep_one_part_together() -> None:
    of = _policy()
    bench = Bench(of)
    bench.give(*(delivery(number, u=f"noisy{number % 3}") for number in range(of.max_held)))
    _full(bench)
    assert set(bench.engine.isolation.tenants) == {"noisy0", "noisy1", "noisy2"}
    assert len(bench.published()) == of.max_held - 3 * (of.max_held // 24)


def test_a_full_look_ahead_is_searched_once_in_a_while() -> None:
    bench = Bench(_policy())
    bench.give(*(delivery(number, u=f"u{number}") for number in range(_policy().max_held)))
    for _ in range(5):
        _full(bench)
    bench.give(delivery(90_000, u="u1"), state=State.PENDING)
    assert list(bench.engine.isolation.tenants) == []


def test_empty_messages_fill_it_by_their_number() -> None:
    of = _policy((L1, Level.L2, B1), limits=(Concurrency("u", 2, shared=False),))
    bench = Bench(of)
    bench.give(*(delivery(number, b"", u="noisy") for number in range(of.max_held)))
    _full(bench)
    assert list(bench.engine.isolation.tenants) == ["noisy"]
    store_all(bench)
    bench.later(1)
    assert bench.published() == [], "less than half of the look-ahead is used"


def _comes_back(bench: Bench, size: int = 1) -> int:
    """B1 brings of the noisy tenant whatever there is room for; answers how many messages."""
    of = bench.policy
    index, number = lane_of(of, B1, State.READY), 200_000
    while bench.engine.room(index):
        bench.give(*(delivery(number + i, b"x" * size, u="noisy", kodo_hop=1) for i in range(of.batch)), level=B1)
        number += of.batch
    return number - 200_000


@pytest.mark.simulated
def test_what_comes_back_does_not_stop_the_reading_that_it_left_for() -> None:
    """No handler ends, the lane it comes back on is full of it, and yet the flood is read through to the quiet one behind."""
    of = _policy()
    bench = _flooded(of)
    _full(bench)
    store_all(bench)
    back = _comes_back(bench)
    assert of.max_held // 2 <= back < of.max_held // 2 + of.batch
    read = 0
    while read < 20 * of.max_held:
        assert bench.engine.room(0) > 0
        bench.give(*(delivery(300_000 + read + number, u="noisy") for number in range(of.batch)))
        read += of.batch
        store_all(bench)
        assert _comes_back(bench) == 0
    bench.give(delivery(900_000, u="quiet"))
    assert "quiet" in {message.tenant for message in bench.take_all()[:3]}
    assert bench.engine.counts.finished["isolated"] > 19 * of.max_held
    assert bench.engine.check_invariants() == []


def test_large_messages_that_come_back_leave_half_of_the_bytes() -> None:
    of = _policy(lookahead_messages=10_000, lookahead_bytes=200_000)
    bench = Bench(of)
    assert _comes_back(bench, size=3_000) <= 2 * of.batch
    assert bench.engine.room(lane_of(of, B1, State.READY)) == 0
    assert bench.engine.room(lane_of(of, L1, State.PENDING)) == 1, "an empty lane gets on"


def test_small_messages_that_come_back_leave_half_of_the_bytes_as_well() -> None:
    of = _policy(lookahead_messages=10_000, lookahead_bytes=200_000)
    bench = Bench(of)
    back = _comes_back(bench, size=100)
    assert back < of.max_held // 2, "their bytes are half of what may be held before their number is"
    assert bench.engine.room(lane_of(of, B1, State.READY)) == 0
    assert bench.engine.room(lane_of(of, L1, State.PENDING)) == 1, "an empty lane gets on"
    assert bench.engine.room(0) > 1, "the lane they left reads on"


def test_nobody_is_isolated_because_a_lane_that_nothing_can_leave_has_its_part() -> None:
    bench = Bench(_policy())
    bench.give(*(delivery(number, u="noisy") for number in range(_policy().max_held // 4)))
    _comes_back(bench)
    bench.later(0.1)
    assert bench.engine.room(0) > 0
    assert list(bench.engine.isolation.tenants) == []


def test_the_share_is_of_what_is_left_by_lanes_that_nothing_can_leave() -> None:
    of = _policy(isolate=IsolationPolicy(0.6, 100, "B1"))
    bench = Bench(of)
    back = _comes_back(bench)
    bench.give(*(delivery(number, u="other") for number in range(of.max_held - back)))
    _full(bench)
    assert list(bench.engine.isolation.tenants) == ["other"]


def test_what_a_quota_set_aside_for_messages_that_left_is_there_for_others() -> None:
    bench = _flooded(_policy(limits=(Quota(None, 450, 3_600_000, shared=False),)))
    _full(bench)
    assert len(store_all(bench)) == 700
    bench.give(*(delivery(50_000 + number, u=f"quiet{number}") for number in range(300)))
    handled: Counter[bool] = Counter()
    while (message := bench.engine.take()) is not None:
        handled[message.tenant == "noisy"] += 1
        bench.engine.finish(message, DONE)
    assert (handled[False], handled[True]) == (300, 100)
    assert bench.published() == []
