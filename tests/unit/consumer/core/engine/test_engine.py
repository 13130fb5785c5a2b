"""The engine by itself, events in, effects out: what it receives, the order it keeps, connections and the end."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import Concurrency
from kodo_consumer.core.values.outcomes import DONE, RetryAsked
from kodo_consumer.core.values.route_table import RouteRule
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.topology.names import RouteMoment
from tests.unit.consumer.engine_bench import B1, FAILED, L1, L2, Bench, delivery, lane_of, policy, store_all


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
    assert bench.engine.counts.redelivered == 2


def test_a_message_just_finished_with_is_acknowledged_again_and_not_handled_again() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), DONE)
    bench.give(delivery(1))
    assert bench.take_all() == []
    assert bench.acknowledged() == [1, 1]


def test_after_a_minute_a_rewound_subscription_is_handled_again() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), DONE)
    bench.later(61)
    bench.give(delivery(1))
    assert len(bench.take_all()) == 1


@pytest.mark.simulated
def test_finished_ids_are_remembered_up_to_a_bound() -> None:
    bench = Bench(policy(lookahead_messages=100_000))
    for number in range(20_020):
        bench.give(delivery(number))
        bench.engine.finish(bench.take_one(), DONE)
    lane = bench.engine.lanes[4]
    assert (len(lane.older_entries), len(lane.recent_entries)) == (10_001, 18)
    bench.give(delivery(10_500), delivery(20_019), delivery(5))
    assert [message.id for message in bench.take_all()] == ["7:5:0:-1"]


def test_another_subscriptions_escalation_is_acknowledged_unhandled() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_for="other"), delivery(2, kodo_for="s"), delivery(3, kodo_for="other", kodo_hop="?"))
    assert [message.id for message in bench.take_all()] == ["7:2:0:-1"]
    assert bench.acknowledged() == [1, 3]
    assert bench.engine.counts.finished["not_for_me"] == 2


def test_a_producers_mark_is_acknowledged_and_counts_as_no_message() -> None:
    bench = Bench(policy())
    end = "1a221f894fd5f235953:0:high=2:end"
    bench.give(delivery(1), delivery(2, kodo_for="(mark)", kodo_seq=end), delivery(3))
    for message in bench.take_all():
        bench.engine.finish(message, DONE)
    counts = bench.engine.counts
    assert sorted(bench.acknowledged()) == [1, 2, 3]
    assert (counts.received, counts.started, counts.done, counts.marks) == (2, 2, 2, 1)
    assert not counts.finished
    assert not any(what == "finished" for lane in bench.engine.lanes for what, _ in lane.counted)


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
    big = RouteRule(lambda facts: facts.properties.get("size") == "big", B1)
    never = RouteRule(lambda facts: "size" in facts.properties, L1)
    bench = Bench(policy(routes=(big, never)))
    bench.give(delivery(1, size="big"), delivery(2, size="small"), delivery(3), delivery(4, size="big", kodo_hop=1))
    bench.give(delivery(5, size="big"), state=State.PENDING)
    bench.give(delivery(6, size="big", kodo_recall="r"))
    assert sorted(message.id[2] for message in bench.take_all()) == ["2", "3", "4", "5", "6"]
    ((ticket, routed),) = bench.published()
    assert routed.topic.endswith("B1-ready")
    assert routed.properties["kodo-for"] == "s"
    bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.acknowledged() == [1]


@pytest.mark.parametrize("state", [State.RETRYING, State.PENDING, State.BLOCKING])
def test_a_route_takes_a_message_whose_wait_is_over_and_keeps_its_counters(state: State) -> None:
    late = RouteRule(lambda facts: sum(facts.attempts) >= 2, L2, frozenset({RouteMoment(state.value)}), name="route 1")
    bench = Bench(policy(routes=(late,)))
    counter = f"kodo_attempts_{state.value}"
    one: dict[str, Any] = {counter: 1}
    two: dict[str, Any] = {counter: 2}
    bench.give(
        delivery(1, kodo_hop=2, kodo_due=START_WALL + 3_000, kodo_reserved=START_WALL, **two),
        delivery(2, kodo_hop=1, **one),
        state=state,
    )
    assert [message.id[2] for message in bench.take_all()] == ["2"], "one waits, for one no route holds"
    bench.later(3.1)
    ((ticket, moved),) = bench.published()
    assert moved.topic.endswith("L2-ready")
    assert moved.deliver_at is None
    assert {name: value for name, value in moved.properties.items() if "origin" not in name} == {
        "kodo-hop": "3", "kodo-routes": "1", "kodo-for": "s", counter.replace("_", "-"): "2",
        "kodo-reserved": str(START_WALL),
    }  # fmt: skip
    bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.acknowledged() == [1]
    lane = bench.engine.lanes[lane_of(bench.policy, L1, state)]
    assert lane.counted["routed", "route 1"] == 1


def test_a_route_takes_a_message_out_of_a_backup_level_after_a_wait_there_only() -> None:
    out = RouteRule(lambda _: True, L1, frozenset({RouteMoment.BACKUP}))
    bench = Bench(policy(routes=(out,)))
    bench.give(delivery(1, kodo_hop=1), delivery(2), delivery(3, kodo_attempts_backup=1), level=B1)
    messages = bench.take_all()
    assert len(messages) == 3, "none of them has waited there; what a sender claims is not believed"
    bench.engine.finish(messages[0], FAILED)
    bench.later(1.1)
    assert [topic.rpartition("t-")[2] for topic in store_all(bench)] == ["L1-ready"]
    bench.give(delivery(4, kodo_hop=1, kodo_due=START_WALL), level=B1)
    assert [topic.rpartition("t-")[2] for topic in store_all(bench)] == ["L1-ready"]


def test_a_message_is_routed_eight_times_at_most_and_never_dies_of_it() -> None:
    out = RouteRule(lambda _: True, L2, frozenset({RouteMoment.RETRYING}))
    bench = Bench(policy(routes=(out,)))
    bench.give(delivery(1, kodo_hop=9, kodo_routes=7), delivery(2, kodo_hop=9, kodo_routes=8), state=State.RETRYING)
    bench.give(delivery(3, kodo_hop=bench.policy.max_hops), state=State.RETRYING)
    assert [message.id[2] for message in bench.take_all()] == ["2", "3"]
    lane = bench.engine.lanes[lane_of(bench.policy, L1, State.RETRYING)]
    assert lane.counted["route_stopped", "used up"] == 2


def test_what_a_sender_claims_does_not_keep_a_message_from_its_route() -> None:
    fresh = RouteRule(lambda facts: facts.attempts == (0, 0, 0, 0) and facts.reason is None, B1)
    bench = Bench(policy(routes=(fresh,)))
    bench.give(delivery(1, kodo_routes=8, kodo_attempts_retrying=3, kodo_reason="x", kodo_attempts_backup=2))
    assert [topic.rpartition("t-")[2] for topic in store_all(bench)] == ["B1-ready"]


def test_routes_that_cannot_be_evaluated_or_lead_in_a_circle_are_counted_and_the_message_stays() -> None:
    unknown = RouteRule(lambda _: None, L2, name="route 1")
    there = RouteRule(lambda facts: facts.level is L1, L2, name="route 2")
    back = RouteRule(lambda facts: facts.level is L2, L1, name="route 3")
    bench = Bench(policy(routes=(unknown, there, back)))
    bench.give(delivery(1))
    assert len(bench.take_all()) == 1
    lane = bench.engine.lanes[lane_of(bench.policy, L1, State.READY)]
    assert dict(lane.counted) == {("route_unknown", "route 1"): 1, ("route_stopped", "circular"): 1}


def test_no_route_takes_a_message_where_a_lane_keeps_an_order() -> None:
    bench = Bench(policy(ordered=True, routes=(RouteRule(lambda _: True, L2, frozenset(RouteMoment)),)))
    bench.give(delivery(1))
    bench.give(delivery(2), state=State.RETRYING)
    assert len(bench.take_all()) == 2


def test_an_early_message_is_held_and_its_lane_goes_on() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, kodo_due=START_WALL + 3_000), state=State.RETRYING)
    assert bench.take_all() == []
    assert bench.engine.room(1)
    bench.later(2.9)
    assert bench.take_all() == []
    bench.later(0.2)
    assert len(bench.take_all()) == 1


def test_where_one_reader_gets_all_in_order_the_broker_holds_nothing_back_and_that_is_no_alarm() -> None:
    bench = Bench(policy(ordered=True, subscription_type="failover"))
    bench.give(delivery(1, kodo_due=START_WALL + 30_000, kodo_hop=1), level=B1)
    assert bench.alarms() == []
    assert bench.take_all() == []
    assert bench.engine.room(lane_of(bench.policy, B1, State.READY)) > 0
    bench.later(30)
    assert len(bench.take_all()) == 1


def test_a_waiting_state_is_paused_when_a_share_of_the_look_ahead_came_long_before_time() -> None:
    bench = Bench(policy(lookahead_messages=1_000, concurrency=1_000))
    early = [delivery(number, kodo_due=START_WALL + 30_000) for number in range(200)]
    bench.give(*early[:199], state=State.RETRYING, level=L2)
    assert set(bench.alarms()) == {"early"}
    assert bench.engine.room(1) > 0, "no few messages keep a lane from being read"
    bench.give(early[199], state=State.RETRYING, level=L2)
    assert bench.engine.context.effects.alarms[-1].text.endswith(
        "long before time and is paused: is delayed delivery on?"
    )
    assert bench.engine.room(1) == 0
    assert bench.engine.room(2) > 0
    bench.later(20)
    assert bench.engine.context.effects.resume == []
    bench.later(6)
    assert bench.engine.context.effects.resume == [1]
    assert bench.take_all() == []
    bench.later(5)
    assert len(bench.take_all()) == 200


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
    assert [topic[-4:] for topic in store_all(bench)] == ["dead"]
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
    bench.engine.on_disconnect(4)
    assert bench.engine.check_invariants() == []
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
    bench.engine.on_disconnect(4)
    assert bench.engine.counts.released == 3
    assert bench.engine.check_invariants() == []
    bench.engine.finish(running, DONE)
    bench.later(100)
    assert bench.take_all() == []
    assert bench.acknowledged() == [0]


def test_of_a_partition_whose_connection_is_lost_what_has_not_started_is_let_go_and_the_others_go_on() -> None:
    bench = Bench(policy(partitions=4))
    bench.give(*(delivery(number)._replace(entry=(7, number, number % 4)) for number in range(8)))
    running = bench.engine.take()
    assert running is not None
    bench.engine.on_disconnect(4, "0")
    assert bench.engine.counts.released == 1, "one of its two runs"
    assert len(bench.take_all()) == 6
    bench.give(*(delivery(number)._replace(entry=(7, number, 0)) for number in (0, 4)))
    assert len(bench.take_all()) == 1, "what runs is recognised"
    assert bench.engine.counts.redelivered == 1
    assert bench.engine.check_invariants() == []


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
    store_all(bench)
    assert not bench.engine.busy
    assert bench.acknowledged() == [1]


def test_the_watchdog_tells_of_a_message_that_is_nowhere() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    assert bench.engine.check_invariants() == []
    bench.engine.lanes[4].ring.take()
    assert bench.engine.check_invariants() == ["1 queued by record, 0 by structure"]


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
    bench.engine.finish(bench.take_one(), FAILED)
    bench.engine.on_disconnect(4)
    bench.later(10)
    assert bench.take_all() == []
    assert bench.engine.check_invariants() == []
