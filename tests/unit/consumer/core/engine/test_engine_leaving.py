"""The engine by itself: what fails, where it waits and goes, how it is published, and what a handler asks for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from kodo_consumer.core.engine.publishing import HANGS
from kodo_consumer.core.values.broker import Confirmed, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Delivery, State
from kodo_consumer.core.values.outcomes import (
    DONE,
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    MoveAsked,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.testing.manual_clock import START_WALL

from tests.unit.consumer.engine_bench import FAILED, L1, L2, Bench, delivery, lane_of, policy, store_all


def test_failures_wait_in_place_then_leave() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    for wait in (2, 3, 5):
        bench.engine.finish(bench.take_one(), FAILED)
        bench.later(wait - 0.01)
        assert bench.take_all() == []
        bench.later(0.02)
    bench.engine.finish(bench.take_one(), FAILED)
    assert store_all(bench) == ["persistent://p/n/t-L1-retrying"]
    assert bench.acknowledged() == [1]


def test_at_most_a_fifth_of_the_lookahead_waits_in_place() -> None:
    bench = Bench(policy(lookahead_messages=20))
    for number in range(6):
        bench.give(delivery(number))
        bench.engine.finish(bench.take_one(), FAILED)
    assert len(bench.published()) == 2
    bench.later(2.1)
    assert len(bench.take_all()) == 4


def test_waits_beyond_5_s_are_spread_and_shorter_ones_are_not() -> None:
    bench = Bench(policy(in_place=()))
    for number in range(20):
        bench.give(delivery(number))
        bench.engine.finish(bench.take_one(), FAILED)
        bench.give(delivery(100 + number))
        bench.engine.finish(bench.take_one(), RetryAsked(4_000, "soon"))
    due = [message.deliver_at - START_WALL for _, message in bench.published()]
    assert all(10_000 <= wait < 13_000 for wait in due[::2])
    assert len(set(due[::2])) > 10
    assert set(due[1::2]) == {4_000}


def test_a_missing_dependency_backs_off_and_counts_nothing() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    for longest in (1.3, 2.6, 5.2):
        bench.engine.finish(bench.take_one(), DependencyUnavailable("psp"))
        assert bench.take_all() == []
        bench.later(longest)
    (message,) = bench.take_all()
    assert message.attempt == 1
    assert bench.engine.counts.waited["unavailable"] == 3


def test_with_nowhere_to_go_a_message_stays_and_alarms() -> None:
    bench = Bench(policy(levels=(L1,), states=(), dead=False))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), DeadLettered("bad"))
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
    assert bench.engine.context.effects.overdue == [first]
    assert store_all(bench) == ["persistent://p/n/t-L1-retrying"]
    assert not bench.engine.finish(first, DONE)
    assert bench.acknowledged() == [2, 1]
    assert bench.engine.counts.timed_out == 1


def test_without_a_receipt_a_message_is_kept_and_published_again_with_backoff() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), FAILED)
    for _ in range(5):
        ((ticket, message),) = bench.published()
        bench.engine.receipt(ticket, Unconfirmed("Timeout"))
        assert bench.published() == []
        assert bench.acknowledged() == []
        assert bench.engine.busy
        bench.later(30)
    ((ticket, again),) = bench.published()
    assert again == message
    bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.acknowledged() == [1]
    bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.engine.counts.finished["retrying"] == 1


def test_hanging_sends_go_out_again_by_a_new_client() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), FAILED)
    ((old, _),) = bench.published()
    bench.later(HANGS - 1)
    assert not bench.engine.context.effects.renew_publishing
    bench.later(2)
    assert bench.engine.context.effects.renew_publishing
    assert "hanging" in bench.alarms()
    ((new, _),) = bench.published()
    bench.engine.receipt(old, Confirmed("late"))
    assert bench.acknowledged() == []
    bench.engine.receipt(new, Confirmed("x"))
    assert bench.acknowledged() == [1]


def test_new_clients_come_ever_later_while_none_of_them_brings_a_receipt() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1), delivery(2))
    first, second = bench.take_all()
    bench.engine.finish(first, FAILED)
    moments = [0]
    for second_of_the_outage in range(1, 3_600):
        bench.later(1)
        if bench.engine.context.effects.renew_publishing:
            bench.engine.context.effects.renew_publishing = False
            moments.append(second_of_the_outage)
            ((ticket, _),) = bench.published()[-1:]
    gaps = [later - before for before, later in pairwise(moments)]
    assert gaps == [HANGS, 2 * HANGS, 4 * HANGS, *[600] * (len(gaps) - 3)]
    bench.engine.receipt(ticket, Confirmed("x"))
    bench.engine.finish(second, FAILED)
    bench.later(HANGS + 1)
    assert bench.engine.context.effects.renew_publishing, "there was a receipt: the next send that hangs is soon seen"


def test_a_message_that_nobody_has_fetched_when_publishing_starts_afresh_is_sent_once() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1), delivery(2))
    first, second = bench.take_all()
    bench.engine.finish(first, FAILED)
    ((old, _),) = bench.published()
    bench.clock.advance(HANGS + 1)
    bench.engine.finish(second, FAILED)
    bench.engine.tick()
    assert bench.engine.context.effects.renew_publishing
    sent = bench.published()
    assert len(sent) == 2
    assert old not in dict(sent)
    for ticket, _ in sent:
        bench.engine.receipt(ticket, Confirmed("x"))
    assert sorted(bench.acknowledged()) == [1, 2]


def test_a_message_its_target_will_never_take_dies_with_the_reason() -> None:
    bench = Bench(policy(in_place=()))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), FAILED)
    ((ticket, _),) = bench.published()
    bench.engine.receipt(ticket, Rejected("too big"))
    ((ticket, dead),) = bench.published()
    assert dead.topic.endswith("dead")
    assert dead.properties["kodo-reason"] == "refused by its target: too big"
    bench.engine.receipt(ticket, Confirmed("x"))
    assert bench.acknowledged() == [1]


def refused_everywhere(bench: Bench, *deliveries: Delivery, reason: str = "too big") -> None:
    """Their handlers fail, and no target takes them."""
    bench.give(*deliveries)
    for message in bench.take_all():
        bench.engine.finish(message, FAILED)
    while out := bench.published():
        bench.engine.receipt(out[0][0], Rejected(reason))


@pytest.mark.parametrize("dead", [True, False])
def test_of_what_is_refused_everywhere_a_quarter_of_the_lookahead_is_parked_before_its_lane_is_no_longer_read(
    dead: bool,
) -> None:
    bench = Bench(policy(in_place=(), dead=dead, lookahead_messages=400))
    most = bench.policy.max_held // 4
    assert most > 50
    for number in range(most):
        refused_everywhere(bench, delivery(number))
        assert (bench.engine.room(4) == 0) == (number == most - 1)
    assert bench.acknowledged() == []
    assert (bench.engine.counts.parked, bench.engine.check_invariants()) == (most, [])
    assert f"{most} are parked: the topic is no longer read" in bench.engine.context.effects.alarms[-1].text
    assert bench.engine.room(lane_of(bench.policy, L1, State.RETRYING)) > 0, "other lanes go on"
    bench.later(100)
    assert bench.engine.context.effects.resume == []


def test_a_message_that_has_nowhere_to_go_is_told_and_holds_neither_payload_nor_budget() -> None:
    bench = Bench(policy(in_place=(), fair_by="uid", lookahead_bytes=100_000))
    room = bench.engine.room(4)
    for number in range(30):
        refused_everywhere(bench, delivery(number, b"x" * 50_000, uid="mallory", note="y" * 9_700))
        assert bench.engine.room(4) == room - 1 - number, "one message of what is lent, and no byte"
    assert bench.acknowledged() == []
    (lane,) = (lane for lane in bench.engine.lanes if list(lane))
    assert {(held.delivery.payload, *held.delivery.properties, held.limiters) for held in lane} == {(None, None)}
    told = [alarm.text for alarm in bench.engine.context.effects.alarms if alarm.kind == "parked"]
    assert len(told) == 30
    assert told[0] == (
        "persistent://p/n/t-L1-ready: message 7:0:0:-1 has nowhere to go: persistent://p/n/t-L1-dead will not take it:"
        " too big; it stays unacknowledged"
    )
    bench.give(delivery(100, uid="alice"))
    (message,) = bench.take_all()
    bench.engine.finish(message, DONE)
    assert bench.acknowledged() == [100]


def test_a_copy_of_a_message_that_is_parked_is_not_handled_again() -> None:
    bench = Bench(policy(in_place=()))
    refused_everywhere(bench, delivery(1))
    bench.engine.on_disconnect(4)
    bench.give(delivery(1), delivery(2))
    (message,) = bench.take_all()
    assert message.id == "7:2:0:-1"
    assert (bench.engine.counts.redelivered, bench.engine.check_invariants()) == (1, [])


def test_behind_a_message_that_is_parked_its_key_goes_on_as_after_a_dead_letter() -> None:
    bench = Bench(policy(in_place=(), ordered=True, subscription_type="key_shared"))
    bench.give(delivery(1, key="k"), delivery(2, key="k"), delivery(3, key="k"))
    (first,) = bench.take_all()
    bench.engine.finish(first, DeadLettered("wrong"))
    ((ticket, _),) = bench.published()
    bench.engine.receipt(ticket, Rejected("not authorised"))
    for number in (2, 3):
        (message,) = bench.take_all()
        assert message.id == f"7:{number}:0:-1"
        bench.engine.finish(message, DONE)
    assert bench.acknowledged() == [2, 3]
    assert (bench.engine.counts.parked, bench.engine.check_invariants()) == (1, [])


def test_a_transfer_is_a_new_message_and_then_this_one_is_done() -> None:
    bench = Bench(policy())
    bench.give(delivery(1, b"old", uid="u"), delivery(2, b"old"))
    first, second = bench.take_all()
    bench.engine.finish(first, TransferAsked("other"))
    bench.engine.finish(second, TransferAsked("other", b"new"))
    (one, moved), (two, new) = bench.published()
    assert (moved.topic, moved.payload, new.payload) == ("persistent://p/n/other", b"old", b"new")
    assert moved.properties == {"uid": "u", "kodo-parent": "7:1:0:-1", "kodo-id": moved.properties["kodo-id"]}
    bench.engine.receipt(one, Confirmed("x"))
    bench.engine.receipt(two, Rejected("not authorised"))
    assert bench.acknowledged() == [1]
    assert [topic[-4:] for topic in store_all(bench)] == ["dead"]


@pytest.mark.parametrize(
    ("outcome", "topic"),
    [(StateAsked(State.PENDING, "x"), "L1-pending"), (MoveAsked(L2), "L2-ready"), (DeadLettered("x"), "L1-dead")],
)
def test_what_a_handler_asks_for_is_done(outcome: object, topic: str) -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), outcome)  # type: ignore[arg-type]
    assert store_all(bench) == [f"persistent://p/n/t-{topic}"]


def test_a_discarded_message_is_acknowledged() -> None:
    bench = Bench(policy())
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), Discarded("old"))
    assert bench.acknowledged() == [1]
    assert bench.engine.counts.finished["discarded"] == 1
