"""A worker at work: checks at the start, time kept, limits shared, an orderly end. Threads and real time, broker in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kodo_consumer.core.upkeep.tenant_backlog import NO_TENANT
from kodo_consumer.core.values.broker import LaneReader, LaneRequest, LaneStats, UnackedLimits
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Level, Outgoing, State
from kodo_consumer.core.values.limit_policy import Concurrency
from kodo_consumer.runtime import supervisor
from kodo_consumer.runtime.start_checks import missing_resources
from kodo_consumer.runtime.supervisor import summary
from kodo_consumer.runtime.threads import EndedError

from kodoctl.errors import ClusterError, KodoctlError, error
from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from kodoctl.protocol.properties import STEER_PROPERTY
from kodoctl.topology.model.policies import DelayedDelivery
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy, topic
from tests.unit.consumer.runtime.worker_place import Place


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place(policy(in_place=(50,), limits=(Concurrency(None, 4, shared=True),), expected_workers=2))
    yield found
    found.pump.stop()


@pytest.mark.parametrize("fair_by", ["uid", None])
def test_a_worker_measures_whose_messages_wait_and_run(fair_by: str | None) -> None:
    place = Place(policy(concurrency=4, fair_by=fair_by, in_place=()))
    place.gate.clear()
    place.service.start()
    try:
        for number in range(44):
            place.broker.send(Outgoing(topic(Level.L1, State.READY), b"x", {"uid": f"u{int(number > 3)}"}))
        eventually(lambda: place.worker.engine.lookahead.messages == 44 and place.worker.handler_load().running > 1)
        load = place.worker.handler_load()
        assert load.started == load.running
        assert load.waiting == (("u1", pytest.approx(0.93, abs=0.1)) if fair_by else NO_TENANT)
        assert load.working.share > 0
    finally:
        place.gate.set()
        place.service.stop()
        place.pump.stop()


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
    assert summary(place.worker)[0].startswith("p/n/t:s: received 21, started 22, done 20")
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
    monkeypatch.setattr("kodo_consumer.runtime.drain._LEAVE", 0.1)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.05)
    place.service.start()
    place.cluster.answers.clear()
    before = place.cluster.asked
    eventually(lambda: place.cluster.asked > before)
    told: list[object] = []
    assert place.service.stats is not None
    place.service.stats.listeners.append(lambda lane, stats: told.append(stats))
    begun = time.monotonic()
    place.service.stop()
    assert time.monotonic() - begun < 15, "not the 20 s that the answer takes"
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
    monkeypatch.setattr("kodo_consumer.runtime.drain._LEAVE", 0.1)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.01)
    monkeypatch.setattr("kodo_consumer.runtime.supervisor._LONGEST_NAP", 0.02)
    now = SystemClock().wall()
    until = now + 1_500
    order = Override(OverrideKind.PAUSE, now, until, "ann@desk", lane="L1/ready")
    place.cluster.properties = {STEER_PROPERTY: overrides_text([order])}
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
    assert time.monotonic() - began < 45
    assert "lanes and publisher do not close" in caplog.text
    over.set()


def test_a_companion_that_ends_before_it_is_asked_to_ends_the_worker(place: Place) -> None:
    place.service.background_tasks.append(lambda _over: None)
    place.service.start()
    assert place.service.wait(60)
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
    assert [found.code for found in refused.value.diagnostics] == ["K710", "K711"]
    assert "\n2 are missing: `kodoctl apply FILE` creates them" in refused.value.diagnostics[0].detail
    assert refused.value.diagnostics[1].detail.endswith(": `kodoctl apply FILE` creates it")
    findings = missing_resources(policy(dead=False), place.cluster)
    assert findings


def test_limits_are_shared_by_live_workers_and_by_expected_ones_when_that_cannot_be_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.02)
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
    assert place.service.wait(60)
    with pytest.raises(RuntimeError, match="bug"):
        place.service.stop()


def test_a_lane_that_cannot_be_opened_closes_what_was(place: Place) -> None:
    del place.broker._topics[topic(Level.B1, State.READY)]
    with pytest.raises(ClusterError):
        place.service.start()
    assert all(not sub.lanes for found in place.broker._topics.values() for sub in found.subscriptions.values())


@pytest.mark.parametrize("refused", ["publisher", "open"])
def test_a_worker_that_cannot_connect_raises_the_reason_also_while_lanes_are_paused(
    refused: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker answered, so waiting lanes were paused, and an AssertionError or IndexError hid the reason."""
    place.cluster.live = None

    def refuse(*_: Any, **__: Any) -> Any:
        raise ClusterError(error("K514", "no broker answers"))

    monkeypatch.setattr(place.broker, refused, refuse)
    with pytest.raises(ClusterError, match="no broker answers"):
        place.service.start()
    assert place.worker.problem is None


def test_events_before_all_lanes_are_open_wait_for_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inbox calls `start_until` when it opens a lane; the effects of the paused lanes broke the worker."""
    place.cluster.live = None
    open_lane = place.broker.open

    def open_claimed(request: LaneRequest, sink: Any) -> LaneReader:
        sink.start_until(float("inf"))
        return open_lane(request, sink)

    monkeypatch.setattr(place.broker, "open", open_claimed)
    place.service.start()
    waiting = topic(Level.L1, State.RETRYING)
    eventually(lambda: not place.broker._topics[waiting].subscriptions["s"].lanes)
    place.service.stop()
    assert place.worker.problem is None


def test_a_lane_that_does_not_close_keeps_no_other_open(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.service.start()
    lane = place.worker.reader(0)

    def fail() -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr(lane, "close", fail)
    place.service.stop()
    lanes = [
        one for found in place.broker._topics.values() for sub in found.subscriptions.values() for one in sub.lanes
    ]
    assert lanes == [lane]
    assert "no answer" in caplog.text


def test_an_action_that_fails_at_the_end_keeps_no_lane_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.service.start()
    worker = place.worker

    def fail(_: Any) -> None:
        raise RuntimeError("cannot be carried out")

    monkeypatch.setattr(worker._runner, "stop", lambda: worker.engine.context.effects.alarm("kind", "late"))
    monkeypatch.setattr(worker._connections, "carry_out", fail)
    with pytest.raises(RuntimeError, match="cannot be carried out"):
        place.service.stop()
    assert not any(sub.lanes for found in place.broker._topics.values() for sub in found.subscriptions.values())


def test_the_watchdog_logs_a_contradiction(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.worker.watch()
    assert "watchdog" not in caplog.text
    place.worker.engine.runs.running[object()] = 0.0  # type: ignore[index]
    place.worker.watch()
    assert "0 running by record, 1 by structure" in caplog.text


def test_a_worker_at_work_looks_for_contradictions_time_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)
    monkeypatch.setattr(supervisor, "_WATCH_EVERY", 0.0)
    monkeypatch.setattr(supervisor, "_LONGEST_NAP", 0.05)
    monkeypatch.setattr(place.worker, "watch", looks.release)
    place.service.start()
    try:
        assert looks.acquire(timeout=30)
        assert looks.acquire(timeout=30)
    finally:
        place.service.stop()


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
        place.service.apply_policy(policy(horizon=3_000_000, in_place=(), tenant_weights={"u": 3}))
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
    assert "-partition-1: the broker knows of no such consumer" in caplog.text
    place.service._notice_unknown(lane, None)
    place.service.stop()
    place.service._notice_unknown(lane, LaneStats(readers={"1": unknown}))
    assert anew == ["1"]


def test_a_lane_is_connected_anew_only_while_nothing_of_it_is_in_work(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lane,) = (one for one in place.policy.lanes if one.topic == topic(Level.L1, State.READY))
    state = place.worker.engine.lanes[lane.index]
    anew: list[tuple[float, float]] = []
    place.service.start()
    monkeypatch.setattr(type(place.worker.reader(0)), "reconnect", lambda _self, *seconds: anew.append(seconds))
    place.gate.clear()
    place.send()
    eventually(lambda: state.in_flight)
    place.service._reconnect(lane, 1, 2)
    assert not anew, "it would come again while its handler runs"
    place.gate.set()
    eventually(lambda: not state.in_flight)
    place.service._reconnect(lane, 1, 2)
    assert anew == [(1, 2)]
    monkeypatch.setattr(type(place.worker), "reader", lambda _self, _index: None)
    place.service._reconnect(lane, 1, 2)
    assert anew == [(1, 2)], "no reader, nothing to connect"
    place.service.stop()


def test_a_worker_says_that_messages_come_in_chunks_before_one_of_them_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(place.cluster, "stats", lambda *_: LaneStats(chunks=True))
    assert place.service.stats is not None
    place.service.stats.read_due_lanes()
    assert "a producer sends it messages in chunks" in caplog.text
