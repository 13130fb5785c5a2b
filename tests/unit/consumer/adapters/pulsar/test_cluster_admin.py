"""What a worker asks of the admin API, of a server that is silent or answers a part."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from kodo_consumer.adapters.pulsar import AdminCluster
from kodo_consumer.adapters.pulsar.cluster_admin import limits_now

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.connection import Connection
from tests.services.polling import eventually
from tests.services.servers import Answer, Request, answer_json, serving, speaking

TOPIC = "persistent://p/n/t"


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """Lasts until the test ends."""
    over = threading.Event()
    yield over
    over.set()


def test_however_many_partitions_do_not_answer_the_active_consumers_of_the_others_are_known(
    silence: threading.Event,
) -> None:
    def answer(request: Request) -> Answer:
        path = request.path.removeprefix("/admin/v2/persistent/p/n/t")
        if path == "/partitions":
            return answer_json({"partitions": 40})
        number = int(path.partition("-partition-")[2].partition("/")[0] or -1)
        if number < 0:
            return answer_json({"reason": "not now"}, 500)
        if number < 36:
            silence.wait(600)
        return answer_json({"subscriptions": {"s": {"activeConsumerName": f"w{number}"}}})

    with serving(answer) as server:
        cluster = AdminCluster(Connection(server.url))
        others = {str(number): f"w{number}" for number in range(36, 40)}
        eventually(lambda: cluster.active(TOPIC, "s") == others)  # a busy machine may be late; silence never ends
        cluster.close()


def test_a_silent_address_is_not_waited_for_longer_than_a_schema_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.cluster_admin._SERVING_S", 0.3)
    monkeypatch.setattr("kodoctl.pulsar.admin.admin_errors._ASK_S", 0.05)
    with speaking(None) as address:
        cluster = AdminCluster(Connection(f"http://{address}"))
        began = time.monotonic()
        for ask in (lambda: cluster.schema(TOPIC, 1), lambda: cluster.latest_schema(TOPIC)):
            with pytest.raises(ClusterError):
                ask()
        assert time.monotonic() - began < 30.0, "a read that waits for a fail-over takes 60 s"
        cluster.close()


def test_the_largest_message_is_known_although_the_delays_are_not() -> None:
    def answer(request: Request) -> Answer:
        return Answer(cut=True) if "delayedDelivery" in request.path else answer_json(1_000)

    with serving(answer) as server:
        assert limits_now(Connection(server.url), TOPIC) == (1_000, None)
