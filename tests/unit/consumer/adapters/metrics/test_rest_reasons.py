"""What stands still says so: every reason in /readyz, the metric and an alarm, and none that is not there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kodo_consumer.adapters.metrics.rest_reasons import ALARM_AFTER, RestKind, rest_reasons_of
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.core.engine.handler_runs import DeferralLimits
from kodo_consumer.core.scheduling.circuit_breaker import BreakerState
from kodo_consumer.core.state.confirmations import Confirmations
from kodo_consumer.core.state.failover_partitions import RESTS_AT_MOST, ActivePartitions
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.envelope import Delivery, State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.limit_policy import Pace, Quota, Rate
from kodo_consumer.core.values.outcomes import DONE, DependencyUnavailable
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.store import Exchange, StoreDownError
from kodo_consumer.message import Message
from kodo_consumer.runtime.store_session import StoreSession
from kodo_consumer.runtime.supervisor import WorkerSupervisor
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import ManualClock, MemoryBroker

from tests.unit.consumer.engine_bench import FAILED, L1, delivery, policy
from tests.unit.consumer.runtime.worker_place import MemoryCluster


class Standing:
    """A worker without threads on a manual clock, as a metrics window sees it."""

    def __init__(self, **changes: Any) -> None:
        self.policy: Policy = policy((L1,), (), **cast("Any", {"concurrency": 2, "in_place": ()} | changes))
        self.clock = ManualClock()
        runner = ThreadExecutor(self._never, 1)
        self.worker = Worker(self.policy, MemoryBroker(self.clock), runner, self.clock, Random(0))
        service = WorkerSupervisor(
            self.worker, cast("Any", MemoryCluster(self.policy)), consumer_name="w0", drain_timeout=1.0
        )
        self.sight = WorkerView(self.worker, service, measured=False)
        self.worker.opened = True
        self.engine, self.service = self.worker.engine, service

    @staticmethod
    def _never(_message: Message) -> None:
        raise AssertionError

    def give(self, *deliveries: Delivery) -> None:
        self.engine.deliver(0, deliveries or [delivery(number) for number in range(5)])

    def watch(self, seconds: float) -> None:
        """As the probe looks, each second."""
        for _ in range(int(seconds)):
            self.sight.rest_watch.check(self.clock.now())
            self.clock.advance(1.0)

    def reasons(self) -> set[RestKind]:
        return {rest.reason for rest in rest_reasons_of(self.sight)}


class FullDisk:
    """A store that cannot write."""

    run = "r"

    def exchange(self, _request: Exchange) -> None:
        raise StoreDownError("database or disk is full")


def _store(go_on: bool = False) -> Standing:
    at = Standing()
    session = StoreSession(cast("Any", FullDisk()), at.policy, at.clock, threading.Lock(), go_on=go_on, keep=1.0)
    assert session.exchange(Exchange(done=["m"])) is None
    at.sight.session = session
    return at


def _inbox() -> Standing:
    at = Standing()
    at.sight.inbox = SimpleNamespace(trouble="the database does not answer", backlog=(0, 0, 0.0))
    return at


def _deferred() -> Standing:
    at = Standing()
    at.engine.runs.allow_deferral(DeferralLimits(1, 3_600.0))
    at.give()
    for _ in range(at.policy.concurrency):
        message = at.engine.take()
        assert message is not None
        assert at.engine.runs.leave_open(message, None, at.clock.now())
    return at


def _confirmation() -> Standing:
    """A hook for acknowledged messages that does not end: the worker may not receive more than it could call it with."""
    at = Standing()
    at.engine.context.confirmations = Confirmations(0, 0)
    hook = SimpleNamespace(running_hook=("note", 12.0))
    at.worker._observers = replace(at.worker._observers, acknowledged=cast("Any", hook))
    return at


def _connection() -> Standing:
    at = Standing()
    at.worker._connections.readers = [cast("Any", SimpleNamespace(disconnected_topics=["t-partition-0"]))]
    return at


def _partition() -> Standing:
    """Named, and what its client held never came out."""
    at = Standing(subscription_type="failover", ordered=True)
    active = at.engine.lanes[0].active = ActivePartitions(at.policy, "w0")
    for name in ("w0", "other", "w0"):
        active.on_active_consumers({"0": name}, at.clock.now(), at.clock.now(), {})
    assert at.reasons() == set(), "a hand-over is none"
    at.clock.advance(RESTS_AT_MOST)
    return at


def _parked() -> Standing:
    at = Standing()
    at.engine.lanes[0].blocked = True
    return at


def _delivery() -> Standing:
    at = Standing()
    assert at.service.still is not None
    at.service.still.lanes.add(0)
    return at


def _unacked() -> Standing:
    at = Standing()
    assert at.service.stats is not None
    at.service.stats.last[0] = LaneStats(blocked=frozenset({"w0"}))
    return at


def _breaker() -> Standing:
    at = Standing()
    at.give(*(delivery(number) for number in range(2_000)))
    while (message := at.engine.take()) is not None:
        at.engine.finish(message, DependencyUnavailable("psp"))
        at.clock.advance(0.01)
    return at


def _pause() -> Standing:
    at = Standing()
    at.give()
    at.engine.apply_policy(at.policy, frozenset({0}))
    return at


def _clock() -> Standing:
    at = Standing()
    at.engine.lanes[0].paused_until = at.clock.now() + 100.0
    return at


def _limit() -> Standing:
    at = Standing(limits=(Quota(None, 1, 3_600_000, shared=False),), ordered=True)
    at.give()
    _take_all(at)
    return at


def _lease() -> Standing:
    at = Standing(limits=(Rate(None, Pace(1, 1_000, 1), shared=True),), ordered=True)
    at.engine.scheduler.limits.use_leases(lambda: None)
    at.give()
    _take_all(at)
    return at


def _slot() -> Standing:
    at = Standing()
    at.give()
    assert at.engine.take() is not None
    assert at.engine.take() is not None
    return at


def _lookahead() -> Standing:
    at = Standing(lookahead_messages=20)
    number = 0
    while at.engine.room(0):
        at.give(delivery(number))
        number += 1
    return at


def _wait() -> Standing:
    at = Standing(in_place=(3_600_000,), ordered=True)
    at.give(delivery(1, key="k"), delivery(2, key="k"))
    message = at.engine.take()
    assert message is not None
    at.engine.finish(message, FAILED)
    return at


def _take_all(at: Standing) -> None:
    while (message := at.engine.take()) is not None:
        at.engine.finish(message, DONE)


STANDING: dict[RestKind, Callable[[], Standing]] = {
    RestKind.STORE: _store,
    RestKind.CONNECTION: _connection,
    RestKind.PARTITION: _partition,
    RestKind.PARKED: _parked,
    RestKind.DELIVERY: _delivery,
    RestKind.UNACKED: _unacked,
    RestKind.BREAKER: _breaker,
    RestKind.PAUSE: _pause,
    RestKind.CLOCK: _clock,
    RestKind.LEASE: _lease,
    RestKind.LIMIT: _limit,
    RestKind.SLOT: _slot,
    RestKind.INBOX: _inbox,
    RestKind.DEFERRED: _deferred,
    RestKind.LOOKAHEAD: _lookahead,
    RestKind.CONFIRMATION: _confirmation,
    RestKind.WAIT: _wait,
}
FAULTS = {
    RestKind.STORE,
    RestKind.INBOX,
    RestKind.CONNECTION,
    RestKind.PARTITION,
    RestKind.PARKED,
    RestKind.DELIVERY,
    RestKind.UNACKED,
    RestKind.CONFIRMATION,
}
TOLD_ELSEWHERE = {
    RestKind.PARKED,
    RestKind.DELIVERY,
    RestKind.UNACKED,
    RestKind.BREAKER,
    RestKind.PAUSE,
    RestKind.WAIT,
}


def test_a_worker_that_is_well_rests_for_no_reason() -> None:
    at = Standing()
    at.give()
    at.watch(20)
    assert at.reasons() == set()
    assert at.sight.not_ready() == []
    assert at.sight.rests == []


@pytest.mark.parametrize("reason", RestKind)
def test_each_reason_is_told_in_the_probe_by_the_metric_and_after_ten_seconds_by_an_alarm(
    reason: RestKind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kodo.consumer")
    at = STANDING[reason]()
    also = {RestKind.WAIT} if reason is RestKind.BREAKER else set()  # what is unavailable waits for its retry
    assert at.reasons() == {reason, *also}
    assert bool(at.sight.not_ready()) == (reason in FAULTS)
    at.watch(ALARM_AFTER)
    assert at.worker.alarms.counts["rests"] == 0
    at.watch(2)
    seconds = at.sight.rest_watch.seconds(at.clock.now())
    assert all(seconds[rest] >= ALARM_AFTER for rest in rest_reasons_of(at.sight))
    assert at.worker.alarms.counts["rests"] == (reason not in TOLD_ELSEWHERE)
    told = [
        record for record in caplog.records if record.getMessage().startswith(f"rests: nothing is started: {reason}")
    ]
    assert len(told) == (reason not in TOLD_ELSEWHERE)
    assert all((record.levelno == logging.ERROR) == (reason in FAULTS) for record in told)
    at.watch(120)
    again = at.worker.alarms.counts["rests"]
    assert (again > 1) == (reason in FAULTS - TOLD_ELSEWHERE), "a fault again, what is declared once"


def test_every_reason_has_its_way_to_stand() -> None:
    assert set(STANDING) == set(RestKind)


def test_a_store_that_handlers_go_on_without_holds_nothing_up() -> None:
    assert _store(go_on=True).reasons() == set()


def test_a_hook_that_hangs_is_named_before_and_after_it_stops_the_receiving(caplog: pytest.LogCaptureFixture) -> None:
    at = _confirmation()
    assert at.sight.not_ready() == [
        "nothing is received, 0 acknowledged messages await their hooks: the hook note around acknowledged has run for 12 s"
    ]
    at.engine.context.confirmations = Confirmations(9, 9_999)
    assert at.sight.not_ready() == []
    with caplog.at_level(logging.WARNING, "kodo.consumer"):
        at.watch(1)
    assert "hook: the hook note around acknowledged has run for 12 s: no other hook is called meanwhile" in caplog.text
    at.engine.context.confirmations = Confirmations(0, 0)
    at.worker._observers = replace(at.worker._observers, acknowledged=None)
    (problem,) = at.sight.not_ready()
    assert problem.endswith("the broker confirms no acknowledgements")


def test_a_lane_that_others_read_is_theirs_also_after_its_weight_has_changed() -> None:
    theirs = replace(policy((L1,), ()).lanes[0], index=1, state=State.RETRYING)
    at = Standing(unread=(theirs,))
    assert at.service.still is not None
    at.service.still.lanes.add(1)
    assert at.sight.standing_still == [theirs]
    assert at.reasons() == set()
    at.worker.apply_policy(replace(at.policy, unread=(replace(theirs, weight=2),)))
    assert at.reasons() == set()


def test_a_store_that_is_full_is_named_with_its_error() -> None:
    at = _store()
    assert at.sight.not_ready() == [
        "the store cannot be asked, nothing is started until it is back: database or disk is full"
    ]


def test_slots_that_are_taken_are_no_rest_while_handlers_start() -> None:
    at = Standing()
    at.give(*(delivery(number) for number in range(100)))
    running = [at.engine.take(), at.engine.take()]
    for _ in range(30):
        at.engine.finish(cast("Message", running.pop(0)), DONE)
        running.append(at.engine.take())
        at.watch(1)
    assert at.reasons() == {RestKind.SLOT}
    assert max(at.sight.rest_watch.seconds(at.clock.now()).values()) <= 1.0
    assert at.worker.alarms.counts["rests"] == 0


def test_all_slots_that_there_may_be_just_now_are_told_when_they_are_taken() -> None:
    at = Standing(concurrency=32, adaptive=True)
    at.give(*(delivery(number) for number in range(40)))
    while at.engine.take() is not None:
        assert len(at.engine.runs.running) == 8 or not at.reasons()
    [rest] = rest_reasons_of(at.sight)
    assert (rest.reason, rest.text) == (RestKind.SLOT, "all 8 slots that may be used just now are taken, of 32")


def test_the_few_slots_that_a_breaker_leaves_are_told_when_they_are_taken() -> None:
    at = Standing(concurrency=32)
    at.engine.scheduler.throttle.breaker.state = BreakerState.PROBING
    at.engine.scheduler.throttle.wake(at.clock.now())
    at.give(*(delivery(number) for number in range(40)))
    while at.engine.take() is not None:
        pass
    [rest] = rest_reasons_of(at.sight)
    assert rest.text == "all 3 slots that may be used just now are taken, of 32"


def test_a_lane_without_a_slot_of_its_bulkhead_is_named_while_others_could_start() -> None:
    at = Standing(bulkheads=(Bulkhead(LaneSet((State.READY,)), 1),))
    at.give(delivery(0))
    assert at.engine.take() is not None
    assert at.reasons() == set(), "nothing waits"
    at.give()
    assert at.engine.take() is None
    [rest] = rest_reasons_of(at.sight)
    assert (rest.reason, rest.about) == (RestKind.SLOT, "L1/ready")
    assert rest.text == "no slot is free for L1/ready, by the bulkheads"


def test_each_reason_is_logged_although_another_one_was_logged_just_before(caplog: pytest.LogCaptureFixture) -> None:
    at = _connection()
    at.watch(15)
    at.worker._connections.readers.append(cast("Any", SimpleNamespace(disconnected_topics=["other"])))
    at.watch(30)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "rests: nothing is started: connection: not connected to t-partition-0",
        "rests: nothing is started: connection: not connected to other",
    ]
    at.watch(70)
    assert len(caplog.records) == 4, "each again after a minute"


@pytest.mark.parametrize(("number", "named"), [("0", ", partition 0"), ("-1", "")])
def test_a_partition_that_no_answer_names_is_not_ready(number: str, named: str) -> None:
    at = Standing(subscription_type="failover", ordered=True)
    active = at.engine.lanes[0].active = ActivePartitions(at.policy, "w0")
    assert at.sight.not_ready() == []
    active.unknown(at.clock.now(), at.clock.now())
    at.clock.advance(2.0)
    (problem,) = at.sight.not_ready()
    assert problem.endswith("partition any: the admin API does not name the active consumers")
    active.on_active_consumers({number: "w0"}, at.clock.now(), at.clock.now(), {})
    assert at.sight.not_ready() == []
    at.clock.advance(2.0)
    assert active.lapse(at.clock.now()) == [number]
    (problem,) = at.sight.not_ready()
    assert problem.endswith(f"{at.policy.lanes[0].topic}{named}: the admin API does not name its active consumer")


def test_reasons_are_looked_at_while_nobody_changes_the_engine() -> None:
    """A deque of leases that changed meanwhile ended a worker."""
    at = Standing()
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go.wait(10)

    holder = threading.Thread(target=at.worker.call_locked, args=(hold,))
    asker = threading.Thread(target=at.reasons)
    holder.start()
    assert begun.wait(10)
    asker.start()
    asker.join(0.2)
    assert asker.is_alive(), "it waits for the one who changes the engine"
    go.set()
    asker.join(10)
    holder.join(10)
    assert not asker.is_alive()
