"""A lane that is left has no consumers until it is joined again, whatever is being opened meanwhile."""

from __future__ import annotations

import threading
import time

import pulsar
import pytest

from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.lane_stand import Stand


def test_a_lane_that_is_left_has_no_consumers_until_it_is_joined(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    lane.leave(30.0)
    lane.check_connection()
    assert stand.sink.lost == [], "what is queued is acknowledged before"
    lane.join()
    lane.leave(0.0)
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2"])
    assert all(stand.client.of(number).is_closed for number in range(3))
    assert lane.connected, "nothing of it is missed"
    stand.client.count = 4
    time.sleep(0.05)
    lane.check_connection()
    assert [len(made) for made in stand.client.made.values()] == [1, 1, 1]
    lane.join()
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 2])
    stand.client.of(1).come(5)
    eventually(lambda: stand.sink.numbers(1) == [5])
    eventually(lambda: lane.check_connection() or 3 in stand.client.made)


def test_a_partition_that_is_found_while_the_lane_is_left_is_not_opened_until_it_is_joined(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    asked, answer = threading.Event(), threading.Event()
    names = stand.client.get_topic_partitions

    def get_topic_partitions(topic: str) -> list[str]:
        asked.set()
        assert answer.wait(20)
        return names(topic)

    monkeypatch.setattr(stand.client, "get_topic_partitions", get_topic_partitions)
    stand.client.count = 4
    eventually(lambda: lane.check_connection() or asked.is_set())
    lane.leave(0.0)
    lane.check_connection()
    answer.set()
    eventually(lambda: "3" in lane._consumers)
    eventually(lambda: not any(thread.name == "kodo-partitions" for thread in threading.enumerate()))
    lane.check_connection()
    assert 3 not in stand.client.made
    assert "no broker serves it yet" not in caplog.text
    lane.join()
    eventually(lambda: 3 in stand.client.made)
    assert not stand.client.of(3).is_closed


def test_a_lane_joined_before_it_was_left_reconnects_because_it_gave_messages_up(stand: Stand) -> None:
    lane = stand.open()
    lane.leave(0.0)
    lane.join()
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2"])
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 2])


def test_a_partition_that_opens_while_the_lane_is_left_is_closed_and_opened_again_when_it_is_joined(
    stand: Stand,
) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.0)
    lane.leave(0.0)
    lane.check_connection()
    eventually(lambda: set(map(str, stand.sink.lost)) == {"0", "1", "2"})
    del stand.client.problems[1]
    time.sleep(1.2)
    assert all(one.is_closed for one in stand.client.made.get(1, ()))
    lane.join()
    eventually(lambda: any(not one.is_closed for one in stand.client.made.get(1, ())))
