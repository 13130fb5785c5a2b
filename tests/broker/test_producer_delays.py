"""Delays and ordering keys of producers on the real broker: kept where they can be, refused where they would not be."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from kodo_consumer import Dead, Message

from kodoctl.errors import UsageError
from kodoctl.protocol.sequence_numbers import ProducerWatermark, read_number
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import messages
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def test_delayed_messages_come_when_they_are_due_and_every_number_is_accounted_for(setting: Setting) -> None:
    setting.declare("states: [retrying], in_place: [], retrying: {delays: [1s]}", "partitions: 2")
    came: dict[str, float] = {}
    done = threading.Event()

    def handle(message: Message) -> None:
        came.setdefault(message.text(), time.time())
        if len(came) == 61:
            done.set()

    with setting.producer() as producer:
        began = time.time()
        for number in range(30):
            producer.post(f"late {number}".encode(), key=f"k{number}", delay=4)
            producer.post(f"now {number}".encode(), key=f"k{number}")
        producer.post(b"at", deliver_at=int((began + 4) * 1000))
    with setting.worker(handle):
        assert done.wait(60)
    for name, at in came.items():
        assert (at - began >= 3.0) == (not name.startswith("now")), name
    stored = [read_number(one.properties()["kodo-seq"]) for one in messages(setting.broker, setting.topic())]
    for partition in (0, 1):
        mine = [one for one in stored if one.partition == partition]
        numbers = sorted(one.number for one in mine if not isinstance(one, ProducerWatermark))
        (mark,) = [one for one in mine if isinstance(one, ProducerWatermark)]
        assert numbers == list(range(1, mark.high + 1))
        assert not mark.void
        assert mark.end


def test_an_ordering_key_orders_and_stays_through_every_move(setting: Setting) -> None:
    """Six keys, one ordering key each, on two partitions: their order is kept, and a dead letter still has it."""
    setting.declare("type: key_shared, states: [], dead_letter: true, on_failure: park", "partitions: 2")
    seen: defaultdict[str, list[int]] = defaultdict(list)

    def handle(message: Message) -> None:
        number = int(message.text())
        seen[message.ordering_key].append(number)
        if number == 599:
            raise Dead("the last one")

    with setting.worker(handle), setting.producer() as producer:
        for number in range(600):
            producer.post(f"{number}".encode(), ordering_key=f"o{number % 6}", event_time=number + 1)
        producer.flush()
        eventually(lambda: sum(map(len, seen.values())) >= 600, within=60)
        eventually(lambda: messages(setting.broker, setting.topic("-s-DLQ")) != [], within=60)
    assert all(numbers[:100] == sorted(numbers[:100]) for numbers in seen.values())
    (letter,) = messages(setting.broker, setting.topic("-s-DLQ"))
    assert (letter.ordering_key(), letter.partition_key(), letter.event_timestamp()) == ("o5", "", 600)


@pytest.mark.parametrize(
    ("delays", "said"),
    [
        ({"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 60_000}, "2m is beyond 1m, the most that the"),
        ({"active": False, "tickTime": 1000}, "its `delayedDelivery` is off"),
    ],
)
def test_a_delay_that_the_broker_would_not_keep_is_refused(
    setting: Setting, delays: dict[str, object], said: str
) -> None:
    assert setting.broker.admin("POST", f"namespaces/{setting.tenant}/ns/delayedDelivery", delays).ok
    setting.declare("states: []")
    with setting.producer() as producer:
        with pytest.raises(UsageError, match=f"K732 .*{said}"):
            producer.post(b"x", delay="2m")
        producer.send(b"y")
        if delays["active"]:
            producer.send(b"z", delay=50)
