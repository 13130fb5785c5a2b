"""A worker at work: checks at the start, time kept, limits shared, an orderly end. Threads and real time, broker in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from random import Random

import pytest
from kodo_consumer.core import lane_workers
from kodo_consumer.core.broker import LaneStats, UnackedLimits
from kodo_consumer.core.clock import SystemClock
from kodo_consumer.core.envelope import Level, Outgoing, State
from kodo_consumer.core.lane_selection import LaneSelection, select_lanes
from kodo_consumer.core.limit_policy import Concurrency
from kodo_consumer.core.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.runtime.supervisor import WorkerSupervisor, missing_resources, summary
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.threads import EndedError
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, KodoctlError, error
from kodoctl.protocol.overrides import Override, OverrideKind, printed
from kodoctl.protocol.properties import STEER_PROPERTY
from kodoctl.topology.model.policies import DelayedDelivery
from tests.support import eventually
from tests.unit.consumer.making import policy, topic
from tests.unit.consumer.pump import Pump


class MemoryCluster:
    """What a test says the cluster has."""

    def __init__(self, of: Policy) -> None:
        self.topics = {lane.topic for lane in of.every_lane} | set(of.written)
        self.subscribed = {lane.topic for lane in of.every_lane}
        self.live: int | None = 1
        self.blocked: frozenset[str] = frozenset()
        self.limits: UnackedLimits | None = None
        self.rules: DelayedDelivery | None = None
        self.sizes: dict[str, int] | None = None
        self.asked = 0
        self.count = 1  # of partitions of each topic
        self.answers = threading.Event()
        self.answers.set()
        self.properties: dict[str, str] = {}
        self.named: dict[str, str] = {}  # active consumers

    def partitions(self, name: str) -> int | None:
        return self.count if name in self.topics else None

    def subscriptions(self, name: str) -> frozenset[str]:
        return frozenset({"s"} if name in self.subscribed else ())

    def active(self, name: str, subscription: str) -> dict[str, str]:
        return self.named

    def unacked_limits(self, name: str) -> UnackedLimits | None:
        return self.limits

    def delays(self, name: str) -> DelayedDelivery | None:
        return self.rules

    def largest(self, name: str) -> int | None:
        return None if self.sizes is None else self.sizes.get(name, 0)

    def close(self) -> None:
        pass

    def stats(self, name: str, subscription: str) -> LaneStats | None:
        self.asked += 1
        self.answers.wait(20)
        if self.live is None:
            raise ClusterError(error("K514", "no broker answers"))
        workers = frozenset(f"w{number}" for number in range(self.live))
        return LaneStats(workers, self.blocked, properties=self.properties, partitions=self.count)


class Place:
    """A service on a broker in memory, and what its handler saw."""

    def __init__(self, of: Policy, drain_timeout: float = 5.0) -> None:
        self.policy, self.seen = of, []
        self.broker = MemoryBroker(SystemClock())
        self.broker.create_for(of)
        self.cluster = MemoryCluster(of)
        self.gate = threading.Event()
        self.gate.set()
        runner = ThreadExecutor(self.handle, of.concurrency)
        self.worker = Worker(of, self.broker, runner, SystemClock(), Random(0))
        self.service = WorkerSupervisor(self.worker, self.cluster, consumer_name="w", drain_timeout=drain_timeout)
        self.pump = Pump(self.broker)

    seen: list[str]

    def handle(self, message: Message) -> None:
        self.gate.wait(20)
        self.seen.append(message.id)
        if message.data == b"fail":
            raise ValueError

    def send(self, payload: bytes = b"x") -> None:
        self.broker.send(Outgoing(topic(Level.L1, State.READY), payload, {}))

    def left(self) -> int:
        return len(self.broker.backlog(topic(Level.L1, State.READY), "s"))


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place(policy(in_place=(50,), limits=(Concurrency(None, 4, shared=True),), expected_workers=2))
    yield found
    found.pump.stop()


def test_messages_are_handled_timers_kept_and_the_end_is_orderly(place: Place) -> None:
    others = set(threading.enumerate())  # what other tests left behind is not this one's
    place.service.start()
    for _ in range(20):
        place.send()
    place.send(b"fail")
    eventually(lambda: len(place.seen) == 22)
    eventually(lambda: not place.left())
    assert len(place.broker.messages(topic(Level.L1, State.RETRYING))) == 1
    place.service.stop()
    assert not [thread.name for thread in set(threading.enumerate()) - others if thread.name.startswith("kodo-")]
    assert summary(place.worker)[0].startswith("received 21, started 22, done 20")
    assert any("retrying 1" in line for line in summary(place.worker))


def test_running_handlers_are_waited_for_at_the_end(place: Place) -> None:
    place.gate.clear()
    place.service.start()
    place.send()
    eventually(lambda: place.worker.busy)
    stopper = threading.Thread(target=place.service.stop)
    stopper.start()
    place.gate.set()
    stopper.join(10)
    assert place.left() == 0


def test_what_runs_too_long_at_the_end_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    place = Place(policy(), drain_timeout=0.1)
    place.gate.clear()
    place.service.start()
    place.send()
    eventually(lambda: place.worker.busy)
    place.service.stop()
    place.gate.set()
    assert place.left() == 1
    assert "drain time-out" in caplog.text
    place.pump.stop()


def test_an_admin_api_that_gives_no_answer_keeps_nobody_from_leaving(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor._LEAVE", 0.1)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.LOOK_EVERY", 0.05)
    place.service.start()
    place.cluster.answers.clear()
    before = place.cluster.asked
    eventually(lambda: place.cluster.asked > before)
    told: list[object] = []
    assert place.service.stats is not None
    place.service.stats.listeners.append(lambda lane, stats: told.append(stats))
    begun = time.monotonic()
    place.service.stop()
    assert time.monotonic() - begun < 5, "not the 20 s that the answer takes"
    assert "left behind, still waiting for an answer: kodo-stats" in caplog.text
    behind = [thread for thread in threading.enumerate() if thread.name == "kodo-stats"]
    place.cluster.answers.set()
    for thread in behind:
        thread.join(10)
    assert told == [], "what comes late reaches nobody"


def test_of_a_failover_topic_nothing_starts_until_the_broker_names_this_worker() -> None:
    place = Place(policy((Level.L1,), (), ordered=True, subscription_type="failover"))
    place.service.start()
    place.send()
    active = place.worker.engine.lanes[0].active
    assert active is not None
    eventually(lambda: active.room(100, 0) == 99)  # it came, and is kept
    place.cluster.named = {"0": "another"}
    eventually(lambda: "0" in active._partitions)
    assert place.seen == []
    place.cluster.named = {"-1": "w"}  # as messages of a topic in memory say that has one partition
    eventually(lambda: place.seen)
    place.service.stop()
    place.pump.stop()


def test_live_orders_end_in_time_although_the_admin_api_gives_no_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor._LEAVE", 0.1)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.LOOK_EVERY", 0.01)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor._LONGEST_NAP", 0.02)
    now = SystemClock().wall()
    until = now + 1_500
    order = Override(OverrideKind.PAUSE, now, until, "ann@desk", lane="L1/ready")
    place.cluster.properties = {STEER_PROPERTY: printed([order])}
    place.service.start()
    eventually(lambda: place.worker.orders == (order,))
    place.cluster.answers.clear()
    eventually(lambda: place.worker.orders == ())
    assert SystemClock().wall() >= until
    place.cluster.answers.set()
    place.service.stop()


def test_a_client_library_that_never_answers_does_not_keep_a_process_from_ending(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.worker_connections._LEAVE_WITHIN", 0.1)
    over = threading.Event()
    place.service.start()
    lane = place.worker.reader(0)
    assert lane is not None
    monkeypatch.setattr(lane, "close", over.wait)
    began = time.monotonic()
    place.service.stop()
    assert time.monotonic() - began < 3
    assert "lanes and publisher do not close" in caplog.text
    over.set()


def test_a_companion_that_ends_before_it_is_asked_to_ends_the_worker(place: Place) -> None:
    place.service.background_tasks.append(lambda _over: None)
    place.service.start()
    assert place.service.wait(5)
    with pytest.raises(EndedError, match="kodo-companion"):
        place.service.stop()


def test_a_worker_that_broke_tells_of_no_drain_time_out(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.gate.clear()
    place.service.start()
    place.send()
    eventually(lambda: place.worker.busy)
    place.worker.fail(RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        place.service.stop()
    place.gate.set()
    assert "drain time-out" not in caplog.text
    assert "what is not acknowledged will be delivered again" in caplog.text


def test_everything_missing_is_named_before_anything_is_opened(place: Place) -> None:
    place.cluster.topics.discard(topic(Level.L2, State.READY))
    place.cluster.topics.discard("persistent://p/n/other")
    place.cluster.subscribed.discard(topic(Level.L1, State.PENDING))
    with pytest.raises(KodoctlError) as refused:
        place.service.start()
    assert sorted(found.code for found in refused.value.diagnostics) == ["K710", "K710", "K711"]
    assert "kodoctl apply" in str(refused.value)
    findings = missing_resources(policy(dead=False), place.cluster)
    assert findings


def test_limits_are_shared_by_live_workers_and_by_expected_ones_when_that_cannot_be_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.LOOK_EVERY", 0.02)
    monkeypatch.setattr("kodo_consumer.core.limits.live_workers._KEPT", 0.1)
    limiters = place.worker.engine.scheduler.limits.limiters_of({}, "")
    assert limiters[0].limit == 2  # type: ignore[attr-defined]
    place.service.start()
    eventually(lambda: limiters[0].limit == 4)  # type: ignore[attr-defined]
    place.service.stop()
    unread = Place(policy(limits=(Concurrency(None, 4, shared=True),), expected_workers=4))
    unread.cluster.live = None
    unread.service.start()
    eventually(lambda: unread.cluster.asked)
    assert unread.worker.engine.scheduler.limits.limiters_of({}, "")[0].limit == 1  # type: ignore[attr-defined]
    unread.service.stop()
    unread.pump.stop()


def test_a_worker_that_the_broker_holds_back_says_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.cluster.blocked = frozenset({"w"})
    place.service.start()
    eventually(lambda: "blocked: " in caplog.text)
    place.service.stop()
    assert "too much is unacknowledged" in caplog.text


def test_it_says_what_the_brokers_limits_leave_of_the_look_ahead(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.cluster.limits = UnackedLimits(100, 0)
    place.service.start()
    place.service.stop()
    assert "look-ahead beyond the broker's limits [K719]: persistent://p/n/t-L2-ready and 8 more" in caplog.text


def test_a_worker_that_breaks_ends_and_says_why(place: Place) -> None:
    place.service.start()
    assert not place.service.wait(0.01)
    problem = RuntimeError("bug")
    place.worker.fail(problem)
    assert place.service.wait(1)
    with pytest.raises(RuntimeError, match="bug"):
        place.service.stop()


def test_a_lane_that_cannot_be_opened_closes_what_was(place: Place) -> None:
    del place.broker._topics[topic(Level.B1, State.READY)]
    with pytest.raises(ClusterError):
        place.service.start()
    assert all(not sub.lanes for found in place.broker._topics.values() for sub in found.subscriptions.values())


def test_the_watchdog_logs_a_contradiction(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.worker.watch()
    assert "watchdog" not in caplog.text
    place.worker.engine.runs.running[object()] = 0.0  # type: ignore[index]
    place.worker.watch()
    assert "0 running by record, 1 by structure" in caplog.text


def test_what_the_broker_allows_less_is_told_at_the_start_and_kept_to_then_and_after_a_reload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place(policy(horizon=3_600_000, in_place=()))
    place.cluster.rules = DelayedDelivery(True, 60_000)
    place.cluster.sizes = {topic(Level.L1, State.RETRYING): 3}
    place.service.start()
    try:
        assert place.worker.policy.horizon == 57_000
        for code in ("K726", "K728"):
            assert f"[{code}]: persistent://p/n/" in caplog.text
        place.service.apply_policy(policy(horizon=3_000_000, tenant_weights={"u": 3}))
        assert (place.worker.policy.horizon, place.worker.policy.tenant_weights) == (57_000, {"u": 3})
        place.send(b"fail")
        eventually(lambda: place.broker.messages(topic(Level.L1, State.DEAD)))
        assert not place.broker.messages(topic(Level.L1, State.RETRYING))
    finally:
        place.pump.stop()
        place.service.stop()


def test_a_consumer_that_the_broker_does_not_know_of_is_connected_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that is silent keeps its connections; its partitions are another's by then."""
    place.service.start()
    lane = place.policy.lanes[0]
    reader = place.worker.reader(0)
    assert reader is not None
    anew: list[str | None] = []
    monkeypatch.setattr(type(reader), "long_connected", lambda _self, _seconds: frozenset({"0", "1", "2"}))
    monkeypatch.setattr(type(reader), "reconnect", lambda _self, _wait, _away, partition: anew.append(partition))
    known, unknown = frozenset({"w", "other"}), frozenset({"other"})
    place.service._notice_unknown(lane, LaneStats(readers={"0": known, "1": unknown, "3": unknown}))
    assert anew == ["1"], "of partition 2 the broker could not tell, and 3 has just been connected"
    assert place.service.stats is not None
    assert place.service.stats.all_next
    assert "partition 1: the broker knows of no such consumer" in caplog.text
    place.service._notice_unknown(lane, None)
    place.service.stop()
    place.service._notice_unknown(lane, LaneStats(readers={"1": unknown}))
    assert anew == ["1"]


def test_a_lane_without_a_worker_is_an_alarm_of_a_worker_of_other_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_workers, "PATIENCE", 0.0)
    place = Place(select_lanes(policy(levels=(Level.L1,)), LaneSelection.parse("ready,retrying")))
    place.cluster.live = 0
    try:
        place.service.start()
        assert place.service.stats is not None
        for _ in range(7):
            place.service.stats.look()
        assert place.worker.alarms.counts["unread"] >= 1
    finally:
        place.service.stop()
        place.pump.stop()


def test_a_worker_with_lanes_of_its_own_connects_those_and_needs_all_others_in_the_cluster() -> None:
    of = select_lanes(policy(levels=(Level.L1,), in_place=()), LaneSelection.parse("ready"))
    place = Place(of)
    try:
        retrying = topic(Level.L1, State.RETRYING)
        place.cluster.subscribed = {topic(Level.L1, State.READY)}
        with pytest.raises(KodoctlError, match="K711") as refused:
            place.service.start()
        assert len(refused.value.diagnostics) == 3, "what is moved there would be kept for nobody"
        place.cluster.subscribed |= {lane.topic for lane in of.every_lane}
        place.service.start()
        place.send(b"fail")
        eventually(lambda: len(place.broker.messages(retrying)) == 1)
        assert place.service.stats is not None
        for _ in range(6):
            place.service.stats.look()  # also of lanes whose reader is another worker
        assert set(place.service.stats.last) == {0, 1, 2, 3}
        assert place.worker.reader(0) is not None
        assert place.worker.reader(1) is None
        assert not place.seen[1:], "it is another worker's"
    finally:
        place.service.stop()
        place.pump.stop()


def test_a_worker_takes_nothing_of_a_lane_that_was_paused_before_it_started(place: Place) -> None:
    """Also before its first look at the stats: what waits there may be on its way elsewhere."""
    now = time.time_ns() // 1_000_000
    order = Override(OverrideKind.PAUSE, now, now + 3_600_000, "me", lane="L1/retrying")
    place.cluster.properties = {STEER_PROPERTY: printed([order])}
    retrying = topic(Level.L1, State.RETRYING)
    for _ in range(5):
        place.broker.send(Outgoing(retrying, b"x", {}))
    place.send()
    place.service.start()
    eventually(lambda: place.seen)
    eventually(lambda: not place.broker._topics[retrying].subscriptions["s"].lanes)
    assert len(place.seen) == 1
    place.service.stop()
    assert len(place.broker.backlog(retrying, "s")) == 5


def test_a_worker_starts_though_its_orders_cannot_be_read_and_leaves_waiting_lanes_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.LOOK_EVERY", 0.05)
    place.cluster.live = None
    retrying = topic(Level.L1, State.RETRYING)
    place.broker.send(Outgoing(retrying, b"later", {}))
    place.service.start()
    place.send()
    eventually(lambda: place.seen)
    eventually(lambda: not place.broker._topics[retrying].subscriptions["s"].lanes)
    assert len(place.seen) == 1
    assert "live orders cannot be read yet, so waiting lanes rest, 30 s at most" in caplog.text
    place.cluster.live = 1
    eventually(lambda: len(place.seen) == 2)
    place.service.stop()
