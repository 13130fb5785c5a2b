"""The native border's watch over connections, on the real broker: a lost one ends a wait, and so does a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES

from tests.brokers.broker import Broker
from tests.brokers.topics import unload

pytestmark = pytest.mark.broker
_LONG = 20_000  # ms
_TOPIC = "persistent://watch/ns/flow"


@pytest.fixture
def consumer(broker: Broker) -> Iterator[pulsar.Consumer]:
    broker.tenant("watch")
    assert broker.admin("PUT", "namespaces/watch/ns").ok
    assert broker.admin("PUT", "persistent/watch/ns/flow").ok
    client = pulsar.Client(broker.broker_url)
    yield client.subscribe(_TOPIC, "s", pulsar.ConsumerType.Shared)
    client.close()


def test_a_lost_connection_and_a_call_end_the_wait(broker: Broker, consumer: pulsar.Consumer) -> None:
    border = DELIVERIES.choose().border
    if border is None:
        pytest.skip("the native border is not used here")
    watch, readers = border.watch(), [border.reader(consumer._consumer)]

    def waited(milliseconds: int) -> float:
        began = time.monotonic()
        watch.wait(readers, milliseconds)
        return time.monotonic() - began

    assert 0.2 <= waited(200) < _LONG / 1000
    for act in (watch.wake, lambda: unload(broker, _TOPIC)):
        timer = threading.Timer(0.3, act)
        timer.start()
        assert waited(_LONG) < _LONG / 1000 - 5
        timer.join()
    watch.wake()
    assert waited(_LONG) < _LONG / 1000 - 5  # called before the wait
    with pytest.raises(TypeError, match="readers"):
        watch.wait([consumer], 1)
    consumer.close()
    assert waited(_LONG) < _LONG / 1000 - 5  # closed, and no crash
