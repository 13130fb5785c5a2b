"""Partitions of a lane do not notice what happens to others: opening, losing and replacing their consumers."""

from __future__ import annotations

import threading
import time

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.client_consumer import ClientConsumer
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait
from kodo_consumer.adapters.pulsar.partition_consumer import PartitionConsumer

from kodoctl.errors import ClusterError
from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.lane_stand import TOPIC, Stand


def test_a_partition_that_no_broker_serves_is_read_once_one_does_and_the_others_meanwhile(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.05)
    assert lane.disconnected_topics == [f"{TOPIC}-partition-1"]
    assert "partition-1: no broker serves it yet: the others are read meanwhile" in caplog.text
    stand.client.of(0).come(5)
    eventually(lambda: stand.sink.numbers(0) == [5])
    del stand.client.problems[1]
    stand.client.of(1).come(6)
    eventually(lambda: stand.sink.numbers(1) == [6])
    assert lane.connected


def test_a_refusal_ends_a_start_and_what_was_opened_is_closed(stand: Stand) -> None:
    stand.client.problems[2] = pulsar.ConsumerBusy("exclusive")
    with pytest.raises(ClusterError) as told:
        stand.open()
    assert f"s on {TOPIC}-partition-2: " in str(told.value)
    assert all(consumer.is_closed for made in stand.client.made.values() for consumer in made)


def test_partitions_are_asked_for_again_where_the_broker_asked_is_away(stand: Stand) -> None:
    stand.client.unknown = [pulsar.Timeout("away"), pulsar.ConnectError("away")]
    assert stand.open().connected
    stand.lane.close()
    stand.client.unknown = [pulsar.TopicNotFound("no such topic")]
    with pytest.raises(ClusterError, match="no such topic"):
        stand.open()


def test_a_lost_connection_is_told_with_its_partition_and_what_still_comes_by_it_is_not_delivered(stand: Stand) -> None:
    lane = stand.open()
    stand.client.of(1).is_there = False
    lane.check_connection()
    lane.check_connection()
    assert stand.sink.lost == ["1"], "once"
    assert (lane.reads("0"), lane.reads("1"), lane.reads(None), lane.reads("9")) == (True, False, True, False)
    stand.client.of(1).come(1, 2)
    stand.client.of(0).come(3)
    eventually(lambda: stand.sink.numbers(0) == [3])
    eventually(lambda: stand.client.of(1)._asked)
    stand.client.of(1).is_there = True
    lane.check_connection()
    stand.client.of(1).come(1)
    eventually(lambda: stand.sink.numbers(1) == [1])
    assert lane.connected


def _lose_for_good(stand: Stand, lane: PulsarLaneReader) -> None:
    """Partition 1 is without a connection for longer than a consumer is waited for."""
    stand.client.of(1).is_there = False
    lane.check_connection()
    time.sleep(0.01)
    lane.check_connection()


def test_only_the_partition_whose_connection_stays_away_gets_another_consumer_which_acknowledges_what_ended_meanwhile(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._GIVE_UP", 0.0)
    lane = stand.open()
    stand.client.of(1).come(4)
    eventually(lambda: stand.sink.numbers(1) == [4])
    stand.client.problems[1] = pulsar.Timeout("no broker")
    _lose_for_good(stand, lane)
    eventually(lambda: stand.client.of(1).is_closed)
    lane.acknowledge([stand.sink.got[0].token])
    stand.client.of(2).come(9)
    eventually(lambda: stand.sink.numbers(2) == [9])
    del stand.client.problems[1]
    eventually(lambda: len(stand.client.made[1]) == 2)
    eventually(lambda: stand.client.of(1).acked == [4])
    assert stand.sink.lost == ["1", "1"]
    assert [len(stand.client.made[number]) for number in (0, 2)] == [1, 1]


def test_a_worker_that_drains_keeps_its_consumers_however_long_their_connection_is_away(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that was given up could not acknowledge what ends meanwhile, and nobody would open another one."""
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._GIVE_UP", 0.0)
    lane = stand.open()
    stand.client.of(1).come(4)
    eventually(lambda: stand.sink.numbers(1) == [4])
    lane.stop()
    _lose_for_good(stand, lane)
    lane.acknowledge([stand.sink.got[0].token])
    assert (stand.client.of(1).acked, stand.client.of(1).is_closed) == ([4], False)


def test_a_consumer_by_which_nothing_can_come_is_replaced(stand: Stand) -> None:
    stand.open()
    first = stand.client.of(0)
    first.fail()
    eventually(lambda: len(stand.client.made[0]) == 2)
    assert first.is_closed
    eventually(lambda: stand.sink.lost == ["0"])


def test_one_partition_is_connected_anew_or_all_are(stand: Stand) -> None:
    lane = stand.open()
    lane.reconnect(0.0, 0.0, "2")
    lane.check_connection()
    eventually(lambda: stand.lane.connected and len(stand.client.made[2]) == 2)
    assert stand.sink.lost == ["2"]
    lane.reconnect(0.0, 0.01)
    lane.check_connection()
    eventually(lambda: sorted(map(str, stand.sink.lost)) == ["0", "1", "2", "2"])
    eventually(lambda: [len(stand.client.made[number]) for number in range(3)] == [2, 2, 3])


def test_a_partition_that_is_to_be_connected_anew_while_it_is_opened_tells_so_at_once(stand: Stand) -> None:
    stand.client.problems[1] = pulsar.Timeout("no broker")
    lane = stand.open(0.0)
    lane.reconnect(0.0, 0.0, "1")
    lane.check_connection()
    assert stand.sink.lost == ["1"], "nothing came since"


def test_a_topic_that_gets_more_partitions_is_read_whole(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    lane = stand.open()
    stand.client.unknown = [pulsar.Timeout("away")]
    stand.client.count = 4
    eventually(lambda: lane.check_connection() or 3 in stand.client.made)
    stand.client.of(3).come(1)
    eventually(lambda: stand.sink.numbers(3) == [1])
    lane.acknowledge([stand.sink.got[0].token])
    assert stand.client.of(3).acked == [1]


def test_a_new_partition_that_is_refused_is_tried_again_and_takes_nothing_from_the_others(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._GROW_EVERY", 0.01)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._AGAIN", 0.01)
    lane = stand.open()
    stand.client.problems[4] = pulsar.ConsumerBusy("max_consumers")
    stand.client.count = 5
    eventually(lambda: lane.check_connection() or 3 in stand.client.made)
    stand.client.of(3).come(1)
    eventually(lambda: stand.sink.numbers(3) == [1])
    eventually(lambda: "partition-4: " in caplog.text)
    lane.acknowledge([stand.sink.got[0].token])
    assert (stand.client.of(3).acked, stand.client.of(3).is_closed) == ([1], False)
    assert not lane.connected
    del stand.client.problems[4]
    eventually(lambda: lane.connected)
    assert stand.sink.lost == []
    assert stand.client.options[-1]["receiver_queue_size"] == 300 // 5 - 1, "its part of the lane's queue"


def test_a_consumer_that_is_replaced_as_the_lane_stops_is_closed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = stand.open()
    part, take, replaced = lane._consumers["1"], PartitionConsumer._take_consumer, stand.client.of(1)
    stopping = threading.Thread(target=part.stop)

    def take_while_it_stops(one: PartitionConsumer) -> ClientConsumer | None:
        if one is part and not stopping.ident:
            stopping.start()
            part._stopped.wait(0.2)
        return take(one)

    monkeypatch.setattr(PartitionConsumer, "_take_consumer", take_while_it_stops)
    part.renew("reconnected")
    stopping.join(60)
    eventually(lambda: replaced.is_closed)


def test_when_the_client_last_held_nothing_is_known_of_each_partition(stand: Stand) -> None:
    """While a lane has no room, a message of one partition stays in the client; the others go on being empty."""
    stand.sink.free = 0
    lane = stand.open()
    eventually(lambda: max(lane.seconds_since_empty().values()) < 60)
    stand.client.of(1).come(5)
    eventually(lambda: lane.seconds_since_empty()["1"] > 0.3)
    stand.sink.free = 100
    lane.resume()
    eventually(lambda: stand.sink.numbers(1) == [5])
    eventually(lambda: lane.seconds_since_empty()["1"] < 0.3, every=0.01)
    stand.client.of(1).come_silently(6)
    eventually(lambda: stand.sink.numbers(1) == [5, 6])


def test_how_long_partitions_have_been_connected(stand: Stand) -> None:
    lane = stand.open()
    stand.client.of(1).is_there = False
    lane.check_connection()
    assert lane.long_connected(0.0) == {"0", "2"}
    assert lane.long_connected(60.0) == frozenset()


def test_who_starts_waits_for_all_its_lanes_together() -> None:
    class Late:
        first_try = threading.Event()

    patience = StartupWait(0.2, 0.05)
    began = time.monotonic()
    assert len(patience.wait([Late(), Late()])) == 2  # type: ignore[list-item]
    assert time.monotonic() - began >= 0.2
    began = time.monotonic()
    patience.wait([Late()])  # type: ignore[list-item]
    assert time.monotonic() - began >= 0.05
