"""Each partition of a topic has a producer of its own, opened beside the others. The client library is a stand-in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.sequences.sequencer import key_hash
from kodo_consumer.core.values.broker import Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing

from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.test_producer_openings import Client, Setting, publishing


@pytest.fixture
def setting() -> Iterator[Setting]:
    with publishing() as found:
        yield found


def test_each_partition_has_its_producer_and_one_that_is_away_holds_up_no_other(setting: Setting) -> None:
    client, keys = setting.clients[0], [f"key {number}" for number in range(40)]
    client.partitions["t"] = 4
    gate = setting.goes_away("t-partition-1")
    setting.publisher.publish([(ticket, Outgoing("t", b"x", {}, key=key)) for ticket, key in enumerate(keys)])
    fine = [ticket for ticket, key in enumerate(keys) if key_hash(key) % 4 != 1]
    eventually(lambda: setting.stored(*fine))
    assert len(setting.receipts) == len(fine) < len(keys)
    gate.set()
    eventually(lambda: setting.stored(*range(len(keys))))
    positions = [str(setting.receipts[ticket].position) for ticket in range(len(keys))]  # type: ignore[union-attr]
    assert positions == [f"(7,3,{key_hash(key) % 4},-1)" for key in keys]


def test_a_topic_that_tells_no_number_of_partitions_holds_up_its_own_messages_only(setting: Setting) -> None:
    gate = setting.goes_away("counting bad")
    setting.send("bad", 1, 2)
    setting.send("good", 3)
    eventually(lambda: setting.stored(3))
    assert not setting.receipts.keys() & {1, 2}
    gate.set()
    eventually(lambda: setting.stored(1, 2))
    assert setting.clients[0].sent["bad"] == [b"1", b"2"]


def test_a_topic_that_is_not_there_is_told_to_all_that_wait_and_asked_for_again_later(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = setting.clients[0], list[str]()

    def missing(topic: str) -> list[str]:
        asked.append(topic)
        raise pulsar.TopicNotFound("no")

    monkeypatch.setattr(client, "get_topic_partitions", missing)
    setting.send("bad", 1)
    eventually(lambda: setting.receipts.get(1) == Unconfirmed("TopicNotFound"))
    setting.send("bad", 2)
    eventually(lambda: setting.receipts.get(2) == Unconfirmed("its producer could not be opened"))
    assert asked == ["bad"]


def test_partitions_that_a_topic_gets_later_are_sent_to(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.topic_routes._COUNT_AGAIN", 0.0)
    client = setting.clients[0]
    client.partitions["t"] = 1
    setting.publisher.publish([(1, Outgoing("t", b"", {}, key="a"))])
    eventually(lambda: setting.stored(1))
    client.partitions["t"] = 3
    tickets = iter(range(10, 1_000))

    def all_used() -> bool:
        setting.publisher.publish([(ticket, Outgoing("t", b"", {}, key=f"k{ticket}")) for ticket in islice(tickets, 5)])
        return {f"t-partition-{number}" for number in range(3)} <= client.sent.keys()

    eventually(all_used)


def test_the_partitions_of_a_topic_are_opened_before_anything_is_sent(setting: Setting) -> None:
    client = Client()
    client.partitions["t"] = 3
    publisher = PulsarPublisher(lambda: client, ["t"], setting._receive, on_broken=setting.broken.append)
    eventually(lambda: client.opening == Counter({f"t-partition-{number}": 1 for number in range(3)}))
    publisher.close()
