"""A partition of a waiting lane that another reader has alone: the start goes on without it, and it is read once free."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import partition_consumer
from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait
from kodo_consumer.core.upkeep.broker_window import lane_request
from kodo_consumer.core.values.broker import LaneRequest

from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.lane_stand import TOPIC, Client, Sink
from tests.unit.consumer.engine_bench import policy

PART = f"{TOPIC}-partition-1"


class Lane:
    """A lane over three partitions, one of which another reader has alone."""

    def __init__(self) -> None:
        self.client, self.sink, self.pauses = Client(), Sink(), list[float]()
        self.client.problems[1] = pulsar.ConsumerBusy("exclusive")
        request = LaneRequest(TOPIC, "s", "shared", "c", queue=300, batch=100, batch_bytes=1_000, shares=True)
        began = time.monotonic()
        self.reader = PulsarLaneReader(Subscriber(self.client), request, self.sink, StartupWait(5.0, 0.0))
        self.took = time.monotonic() - began


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_consumer._message", lambda raw: raw)
    monkeypatch.setattr(partition_consumer, "_AGAIN", 0.01)
    monkeypatch.setattr(partition_consumer, "_MOST_AGAIN", 0.05)
    found = Lane()
    yield found
    found.reader.close()
    assert found.sink.problems == []


def test_the_start_does_not_wait_for_it_and_it_is_read_once_it_is_free(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kodo.consumer")
    assert lane.took < 20, "nobody waits for it"
    assert lane.reader.disconnected_topics == [
        f"{PART}: another reader has it alone, such as `kodoctl waiting apply`, or `max_consumers` of it are connected"
    ]
    lane.client.of(0).come(5)
    eventually(lambda: lane.sink.numbers(0) == [5])
    time.sleep(0.3)
    said = [one.getMessage() for one in (*caplog.get_records("setup"), *caplog.records)]
    assert sum("it is read as soon as it is free" in text for text in said) == 1, "once, however long it takes"
    assert not any("no broker serves it" in text for text in said)
    del lane.client.problems[1]
    lane.client.of(1).come(6)
    eventually(lambda: lane.sink.numbers(1) == [6])
    assert lane.reader.connected
    made = [one.getMessage() for one in caplog.records if "connected" in one.getMessage()]
    assert [re.sub(r"\d+\.\d", "N", text) for text in made] == [f"{PART}: connected after N s"]


def test_a_stop_does_not_wait_for_it(lane: Lane) -> None:
    began = time.monotonic()
    lane.reader.close()
    assert time.monotonic() - began < 20


def test_another_refusal_meanwhile_is_tried_again_as_well(lane: Lane) -> None:
    lane.client.problems[1] = pulsar.AuthorizationError("not for a while")
    time.sleep(0.1)
    del lane.client.problems[1]
    eventually(lambda: lane.reader.connected)


def test_one_that_no_broker_served_at_the_start_and_that_is_refused_later_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was given up without a word: nobody waited for the refusal any more."""
    monkeypatch.setattr(partition_consumer, "_AGAIN", 0.01)
    client = Client()
    client.problems[1] = pulsar.Timeout("away")
    request = LaneRequest(TOPIC, "s", "shared", "c", queue=300, batch=100, batch_bytes=1_000)
    reader = PulsarLaneReader(Subscriber(client), request, Sink(), StartupWait(0.0, 0.0))
    client.problems[1] = pulsar.AuthorizationError("not for a while")
    eventually(lambda: "not for a while; subscribing again" in caplog.text)
    del client.problems[1]
    eventually(lambda: reader.connected)
    reader.close()


def test_waiting_lanes_and_backup_levels_are_shared_and_ready_lanes_of_other_levels_are_not() -> None:
    made = policy()
    requests = {lane.name: lane_request(made, lane, "c", 0).shares for lane in made.lanes}
    assert requests == {lane.name: lane.is_waiting for lane in made.lanes}
    assert set(requests.values()) == {True, False}
