"""Lanes that a worker does not read: those of other workers, and those that were paused before it started."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kodo_consumer.core.upkeep import lane_workers
from kodo_consumer.core.values.envelope import Level, Outgoing, State
from kodo_consumer.core.values.lane_selection import LaneSelection, select_lanes
from kodo_consumer.core.values.limit_policy import Concurrency

from kodoctl.errors import KodoctlError
from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from kodoctl.protocol.properties import STEER_PROPERTY
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy, topic
from tests.unit.consumer.runtime.worker_place import Place


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place(policy(in_place=(50,), limits=(Concurrency(None, 4, shared=True),), expected_workers=2))
    yield found
    found.pump.stop()


def test_a_lane_without_a_worker_is_an_alarm_of_a_worker_of_other_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_workers, "PATIENCE", 0.0)
    place = Place(select_lanes(policy(levels=(Level.L1,)), LaneSelection.parse("ready,retrying")))
    place.cluster.live = 0
    try:
        place.service.start()
        assert place.service.stats is not None
        for _ in range(7):
            place.service.stats.read_due_lanes()
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
        assert "\n3 are missing: " in refused.value.diagnostics[0].detail, (
            "what is moved there would be kept for nobody"
        )
        place.cluster.subscribed |= {lane.topic for lane in of.every_lane}
        place.service.start()
        place.send(b"fail")
        eventually(lambda: len(place.broker.messages(retrying)) == 1)
        assert place.service.stats is not None
        for _ in range(6):
            place.service.stats.read_due_lanes()  # also of lanes whose reader is another worker
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
    place.cluster.properties = {STEER_PROPERTY: overrides_text([order])}
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
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.05)
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
