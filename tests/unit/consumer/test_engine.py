"""The engine by itself: events in, effects out."""

from __future__ import annotations

import pytest

from consumer.broker import Lost, NeverTaken, Stored
from consumer.envelope import Level, State
from consumer.outcomes import (
    DONE,
    DependencyDown,
    Died,
    Discarded,
    Failed,
    MoveAsked,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from consumer.policy import Concurrency, Pace, Quota, Rate, Route
from consumer.publications import MAX_PARKED
from consumer.testing.clock import START_WALL
from tests.unit.consumer.making import Bench, delivery, policy

L1, L2, B1 = Level.L1, Level.L2, Level.B1
FAILED = Failed("ValueError")


def _store_all(bench: Bench) -> list[str]:
    """The broker stores everything that is out; answers the topics."""
    out = bench.published()
    for ticket, _ in out:
        bench.engine.receipt(ticket, Stored("x"))
    return [message.topic for _, message in out]


def test_a_message_is_taken_handled_and_acknowledged() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    (message,) = bench.take_all()
    assert bench.acknowledged() == []
    assert bench.engine.busy
    assert bench.engine.finish(message, DONE)
    assert bench.acknowledged() == [1]
    assert not bench.engine.busy
    assert not bench.engine.finish(message, DONE)


def test_a_copy_of_a_held_message_is_dropped_and_the_newest_token_acknowledged() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.give(delivery(1)._replace(token="(7,1,0,9)"))
    (message,) = bench.take_all()
    bench.give(delivery(1)._replace(token="(8,1,0,9)"))
    assert bench.take_all() == []
    bench.engine.finish(message, DONE)
    bench.acknowledged()
    assert bench.acked == ["(8,1,0,9)"]
    assert bench.engine.counts.repeats == 2


def test_a_message_just_finished_with_is_acknowledged_again_and_not_handled_again() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), DONE)
    bench.give(delivery(1))
    assert bench.take_all() == []
    assert bench.acknowledged() == [1, 1]


def test_after_a_minute_a_rewound_subscription_is_handled_again() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), DONE)
    bench.later(61)
    bench.give(delivery(1))
    assert len(bench.take_all()) == 1


def test_finished_ids_are_remembered_up_to_a_bound() -> None:
    bench = Bench(policy(lookahead_messages=100_000))
    for number in range(20_020):
        bench.give(delivery(number))
        bench.engine.finish(*bench.take_all(), DONE)
    lane = bench.engine.lanes[4]
    assert (len(lane.before), len(lane.recent)) == (10_001, 18)
    bench.give(delivery(10_500), delivery(20_019), delivery(5))
    assert [message.id for message in bench.take_all()] == ["7:5:0:-1"]


def test_another_subscriptions_escalation_is_acknowledged_unhandled() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_for="other"), delivery(2, kodo_for="s"), delivery(3, kodo_for="other", kodo_hop="?"))
    assert [message.id for message in bench.take_all()] == ["7:2:0:-1"]
    assert bench.acknowledged() == [1, 3]
    assert bench.engine.counts.finished["not_for_me"] == 2


def test_broken_control_is_a_first_delivery_on_a_ready_topic_and_dead_on_a_state_topic() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_hop="many"))
    (message,) = bench.take_all()
    assert message.attempt == 1
    bench.give(delivery(2, kodo_hop="many"), state=State.RETRYING)
    assert bench.take_all() == []
    (_, dead), *_ = bench.published()
    assert dead.properties["kodo-reason"] == "broken control property kodo-hop"
    assert dead.properties["kodo-hop"] == "1"


def test_routes_are_evaluated_at_the_first_receipt_from_a_ready_lane_only() -> None:
    big = Route(lambda properties: properties.get("size") == "big", B1)
    never = Route(lambda properties: "size" in properties, L1)
    bench = Bench(policy(routes=(big, never)))
    bench.give(delivery(1, size="big"), delivery(2, size="small"), delivery(3), delivery(4, size="big", kodo_hop=1))
    bench.give(delivery(5, size="big"), state=State.PENDING)
    bench.give(delivery(6, size="big", kodo_recall="r"))
    assert sorted(message.id[2] for message in bench.take_all()) == ["2", "3", "4", "5", "6"]
    ((ticket, routed),) = bench.published()
    assert routed.topic.endswith("B1-ready")
    assert routed.properties["kodo-for"] == "s"
    bench.engine.receipt(ticket, Stored("x"))
    assert bench.acknowledged() == [1]


def test_an_early_message_is_held_and_its_lane_goes_on() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_due=START_WALL + 3_000), state=State.RETRYING)
    assert bench.take_all() == []
    assert bench.engine.room(1)
    bench.later(2.9)
    assert bench.take_all() == []
    bench.later(0.2)
    assert len(bench.take_all()) == 1


def test_a_lane_that_delivers_long_before_time_is_paused_with_an_alarm() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_due=START_WALL + 30_000), state=State.RETRYING, level=L2)
    assert bench.alarms() == ["early"]
    assert bench.engine.room(1) == 0
    assert bench.engine.room(2) > 0
    bench.later(20)
    assert bench.engine.effects.resume == []
    bench.later(6)
    assert bench.engine.effects.resume == [1]
    assert bench.take_all() == []
    bench.later(5)
    assert len(bench.take_all()) == 1


def test_failures_wait_in_place_then_leave() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    for wait in (2, 3, 5):
        bench.engine.finish(*bench.take_all(), FAILED)
        bench.later(wait - 0.01)
        assert bench.take_all() == []
        bench.later(0.02)
    bench.engine.finish(*bench.take_all(), FAILED)
    assert _store_all(bench) == ["persistent://p/n/t-L1-retrying"]
    assert bench.acknowledged() == [1]


def test_at_most_a_fifth_of_the_lookahead_waits_in_place() -> None:
    bench = Bench(policy(lookahead_messages=20))
    for number in range(6):
        bench.give(delivery(number))
        bench.engine.finish(*bench.take_all(), FAILED)
    assert len(bench.published()) == 2
    bench.later(2.1)
    assert len(bench.take_all()) == 4


def test_waits_beyond_5_s_are_spread_and_shorter_ones_are_not() -> None:
    bench = Bench(policy(in_place=()))
    for number in range(20):
        bench.give(delivery(number))
        bench.engine.finish(*bench.take_all(), FAILED)
        bench.give(delivery(100 + number))
        bench.engine.finish(*bench.take_all(), RetryAsked(4_000, "soon"))
    due = [message.deliver_at - START_WALL for _, message in bench.published()]
    assert all(10_000 <= wait < 13_000 for wait in due[::2])
    assert len(set(due[::2])) > 10
    assert set(due[1::2]) == {4_000}


def test_a_missing_dependency_backs_off_and_counts_nothing() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    for longest in (1.3, 2.6, 5.2):
        bench.engine.finish(*bench.take_all(), DependencyDown("psp"))
        assert bench.take_all() == []
        bench.later(longest)
    (message,) = bench.take_all()
    assert message.attempt == 1
    assert bench.engine.counts.waited["unavailable"] == 3


def test_with_nowhere_to_go_a_message_stays_and_alarms() -> None:
    bench = Bench(policy(levels=(L1,), states=(), dead=False))
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), Died("bad"))
    assert bench.alarms() == ["stuck"]
    bench.later(5.1)
    assert len(bench.take_all()) == 1


def test_a_handler_that_takes_too_long_has_failed_and_its_late_word_counts_nothing() -> None:
    bench = Bench(policy(handler_timeout=1_000, in_place=()))
    bench.give(delivery(1), delivery(2))
    first, second = bench.take_all()
    bench.later(0.5)
    bench.engine.finish(second, DONE)
    bench.later(0.6)
    assert bench.engine.effects.overdue == [first]
    assert _store_all(bench) == ["persistent://p/n/t-L1-retrying"]
    assert not bench.engine.finish(first, DONE)
    assert bench.acknowledged() == [2, 1]
    assert bench.engine.counts.timed_out == 1


def test_without_a_receipt_a_message_is_kept_and_published_again_with_backoff() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), FAILED)
    for _ in range(5):
        ((ticket, message),) = bench.published()
        bench.engine.receipt(ticket, Lost("Timeout"))
        assert bench.published() == []
        assert bench.acknowledged() == []
        assert bench.engine.busy
        bench.later(30)
    ((ticket, again),) = bench.published()
    assert again == message
    bench.engine.receipt(ticket, Stored("x"))
    assert bench.acknowledged() == [1]
    bench.engine.receipt(ticket, Stored("x"))
    assert bench.engine.counts.finished["retrying"] == 1


def test_hanging_sends_go_out_again_by_a_new_client() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), FAILED)
    ((old, _),) = bench.published()
    bench.later(29)
    assert not bench.engine.effects.renew_publishing
    bench.later(2)
    assert bench.engine.effects.renew_publishing
    assert "hanging" in bench.alarms()
    ((new, _),) = bench.published()
    bench.engine.receipt(old, Stored("late"))
    assert bench.acknowledged() == []
    bench.engine.receipt(new, Stored("x"))
    assert bench.acknowledged() == [1]


def test_a_message_its_target_will_never_take_dies_with_the_reason() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), FAILED)
    ((ticket, _),) = bench.published()
    bench.engine.receipt(ticket, NeverTaken("too big"))
    ((ticket, dead),) = bench.published()
    assert dead.topic.endswith("dead")
    assert dead.properties["kodo-reason"] == "refused by its target: too big"
    bench.engine.receipt(ticket, Stored("x"))
    assert bench.acknowledged() == [1]


@pytest.mark.parametrize("dead", [True, False])
def test_what_is_refused_everywhere_is_parked_and_too_many_of_it_pause_the_lane(dead: bool) -> None:
    bench = Bench(policy(in_place=(), dead=dead))
    for number in range(MAX_PARKED):
        bench.give(delivery(number))
        bench.engine.finish(*bench.take_all(), FAILED)
        while out := bench.published():
            bench.engine.receipt(out[0][0], NeverTaken("too big"))
        assert (bench.engine.room(4) == 0) == (number == MAX_PARKED - 1)
    assert bench.acknowledged() == []
    assert "parked" in bench.alarms()
    assert bench.engine.misplaced() == []
    bench.later(100)
    assert bench.engine.effects.resume == []


def test_a_transfer_is_a_new_message_and_then_this_one_is_done() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, b"old", uid="u"), delivery(2, b"old"))
    first, second = bench.take_all()
    bench.engine.finish(first, TransferAsked("other"))
    bench.engine.finish(second, TransferAsked("other", b"new"))
    (one, moved), (two, new) = bench.published()
    assert (moved.topic, moved.payload, new.payload) == ("persistent://p/n/other", b"old", b"new")
    assert moved.properties == {"uid": "u", "kodo-parent": "7:1:0:-1"}
    bench.engine.receipt(one, Stored("x"))
    bench.engine.receipt(two, NeverTaken("not authorised"))
    assert bench.acknowledged() == [1]
    assert [topic[-4:] for topic in _store_all(bench)] == ["dead"]


@pytest.mark.parametrize(
    ("outcome", "topic"),
    [(StateAsked(State.PENDING, "x"), "L1-pending"), (MoveAsked(L2), "L2-ready"), (Died("x"), "L1-dead")],
)
def test_what_a_handler_asks_for_is_done(outcome: object, topic: str) -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), outcome)  # type: ignore[arg-type]
    assert _store_all(bench) == [f"persistent://p/n/t-{topic}"]


def test_a_discarded_message_is_acknowledged() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), Discarded("old"))
    assert bench.acknowledged() == [1]
    assert bench.engine.counts.finished["discarded"] == 1


# ---- the look-ahead


def test_no_more_is_received_than_the_lookahead_holds_but_for_each_lanes_floor() -> None:
    bench = Bench(policy(levels=(L1,), states=(State.RETRYING,), lookahead_messages=2_000))
    assert bench.policy.max_held == 1_600
    bench.give(*(delivery(number) for number in range(1_600)))
    assert bench.engine.room(0) == 0
    assert bench.engine.room(1) == 200
    for message in bench.take_all():
        bench.engine.finish(message, DONE)
    bench.engine.tick()
    assert bench.engine.effects.resume == [0]
    assert bench.engine.room(0) == len(bench.acknowledged())


def test_beyond_the_bytes_only_empty_lanes_get_on() -> None:
    bench = Bench(policy(lookahead_bytes=10))
    bench.give(delivery(1, b"0123456789"))
    assert bench.engine.room(4) == 0
    assert bench.engine.room(0) == 1
    bench.engine.finish(*bench.take_all(), DONE)
    assert bench.engine.room(4) > 1


# ---- fairness


def test_a_tenant_with_thousands_waiting_delays_a_quiet_one_by_one_turn() -> None:
    bench = Bench(policy(fair_by="uid"))
    bench.give(*(delivery(number, uid="noisy") for number in range(5_000)))
    bench.give(delivery(9_999, uid="quiet"))
    assert [bench.engine.take().tenant for _ in range(2)] == ["noisy", "quiet"]  # type: ignore[union-attr]


def test_no_tenant_takes_more_than_three_quarters_of_the_slots_while_others_wait() -> None:
    bench = Bench(policy(fair_by="uid", concurrency=8))
    bench.give(*(delivery(number, uid="noisy") for number in range(20)))
    held = [bench.engine.take() for _ in range(7)]
    assert [message.tenant for message in held if message] == ["noisy"] * 7
    bench.give(delivery(100, uid="quiet"), delivery(101, uid="quiet"))
    assert [bench.engine.take().tenant for _ in range(3)] == ["quiet", "quiet", "noisy"]  # type: ignore[union-attr]
    for message in held[:4]:
        assert message is not None
        bench.engine.finish(message, DONE)
    assert bench.engine.take().tenant == "noisy"  # type: ignore[union-attr]


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
    assert bench.engine.misplaced() == []


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
    assert bench.engine.misplaced() == []


def test_who_would_wait_too_long_at_a_shut_gate_leaves_after_all() -> None:
    bench = Bench(policy(limits=(Rate(None, Pace(1, 1_000, 1), shared=False),)))
    far = {"kodo-reserved": str(START_WALL - 1), "kodo-hop": "1"}
    bench.give(*(delivery(number)._replace(properties=far) for number in range(20)), state=State.PENDING)
    assert len(bench.take_all()) == 1
    counted = [message.properties["kodo-attempts-pending"] for _, message in bench.published()]
    assert len(counted) >= 8
    assert set(counted) == {"1"}
    assert bench.engine.misplaced() == []


def test_a_token_given_to_a_message_that_another_gate_turns_back_goes_to_the_next() -> None:
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


def test_a_gate_whose_signal_got_lost_is_looked_at_again() -> None:
    bench = Bench(policy(limits=(Concurrency(None, 1, shared=False),)))
    bench.give(delivery(1), state=State.RETRYING)
    (running,) = bench.take_all()
    bench.give(delivery(2))
    assert bench.take_all() == []
    bench.give(delivery(3), state=State.PENDING)
    assert bench.take_all() == []
    bench.engine.finish(running, DONE)
    bench.engine.disconnected(4)
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
    bench.engine.share_limits(2)
    bench.later(1)
    assert len(bench.take_all()) == 1


# ---- order


def test_one_key_has_one_handler_at_a_time_in_order() -> None:
    bench = Bench(policy(ordered=True, concurrency=10))
    bench.give(*(delivery(number, key="ab"[number % 2]) for number in range(6)))
    seen = []
    while started := bench.take_all():
        assert len({message.key for message in started}) == len(started)
        for message in started:
            seen.append((message.key, message.id))
            bench.engine.finish(message, DONE)
    assert sorted(seen) == seen or seen == sorted(seen, key=lambda at: at[1])
    assert len(seen) == 6


def test_a_failing_key_is_parked_and_the_others_go_on() -> None:
    bench = Bench(policy(ordered=True, in_place=(1_000,), concurrency=10))
    bench.give(delivery(1, key="a"), delivery(2, key="a"), delivery(3, key="b"))
    one, three = bench.take_all()
    bench.engine.finish(one, FAILED)
    bench.engine.finish(three, DONE)
    assert bench.take_all() == []
    for wait in (1.1, 10.1, 60.1, 300.1):
        bench.later(wait)
        (again,) = bench.take_all()
        assert again.id == one.id
        bench.engine.finish(again, FAILED)
    assert bench.take_all() == []
    assert [topic[-4:] for topic in _store_all(bench)] == ["dead"]
    (two,) = bench.take_all()
    assert two.id == "7:2:0:-1"


def test_messages_without_a_key_keep_the_order_of_their_partition() -> None:
    bench = Bench(policy(ordered=True, concurrency=10))
    bench.give(delivery(1), delivery(2), delivery(3)._replace(token="(7,3,1,-1)"))
    assert [message.id for message in bench.take_all()] == ["7:1:0:-1", "7:3:1:-1"]


def test_a_lost_connection_keeps_the_running_message_of_a_key_and_the_order_behind_it() -> None:
    bench = Bench(policy(ordered=True, concurrency=10))
    bench.give(delivery(1, key="a"), delivery(2, key="a"), delivery(3, key="b"))
    one, three = bench.take_all()
    bench.engine.finish(three, RetryAsked(4_000, "later"))
    bench.engine.disconnected(4)
    assert bench.engine.misplaced() == []
    bench.give(delivery(1, key="a"), delivery(2, key="a"), delivery(3, key="b"))
    (three_again,) = bench.take_all()
    assert three_again.id == three.id
    bench.engine.finish(one, DONE)
    (two,) = bench.take_all()
    assert two.id == "7:2:0:-1"


def test_an_escalation_of_another_subscription_breaks_no_chain() -> None:
    bench = Bench(policy(ordered=True, concurrency=10))
    bench.give(delivery(1, key="a"), delivery(2, key="a", kodo_for="other"), delivery(3, key="a"))
    (one,) = bench.take_all()
    assert bench.acknowledged() == [2]
    bench.engine.finish(one, DONE)
    assert [message.id for message in bench.take_all()] == ["7:3:0:-1"]


# ---- connections and the end


def test_on_a_lost_connection_what_has_not_started_is_let_go() -> None:
    bench = Bench(policy(limits=(Concurrency("uid", 1, shared=False),), concurrency=10))
    bench.give(*(delivery(number, uid="a") for number in range(3)), delivery(9, uid="b"))
    running, failing = bench.take_all()
    bench.engine.finish(failing, FAILED)
    bench.engine.disconnected(4)
    assert bench.engine.counts.let_go == 3
    assert bench.engine.misplaced() == []
    bench.engine.finish(running, DONE)
    bench.later(100)
    assert bench.take_all() == []
    assert bench.acknowledged() == [0]


def test_with_several_partitions_nothing_is_let_go() -> None:
    bench = Bench(policy(partitions=2))
    bench.give(delivery(1))
    bench.engine.disconnected(4)
    assert len(bench.take_all()) == 1


def test_draining_starts_nothing_and_waits_for_what_runs_and_is_published() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1), delivery(2))
    message = bench.engine.take()
    assert message is not None
    bench.engine.drain()
    assert bench.engine.room(4) == 0
    bench.give(delivery(3))
    assert bench.engine.take() is None
    bench.engine.finish(message, FAILED)
    assert bench.engine.busy
    _store_all(bench)
    assert not bench.engine.busy
    assert bench.acknowledged() == [1]


def test_the_watchdog_tells_of_a_message_that_is_nowhere() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    assert bench.engine.misplaced() == []
    bench.engine.lanes[4].ring.take()
    assert bench.engine.misplaced() == ["1 queued by record, 0 by structure"]


def test_the_next_tick_is_when_something_is_due() -> None:
    bench = Bench(policy(handler_timeout=7_000))
    assert bench.engine.tick() == float("inf")
    bench.give(delivery(1), delivery(2))
    first, _ = bench.take_all()
    assert bench.engine.tick() == 7.0
    bench.engine.finish(first, FAILED)
    assert bench.engine.tick() == 2.0
    assert bench.engine.timers.first == 2.0


def test_a_timer_outlived_by_its_message_wakes_nobody() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(*bench.take_all(), FAILED)
    bench.engine.disconnected(4)
    bench.later(10)
    assert bench.take_all() == []
    assert bench.engine.misplaced() == []
