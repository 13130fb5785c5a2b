"""Stored messages are read on where the broker of their partition dies, and each once."""

from __future__ import annotations

import pulsar
import pytest

from kodoctl.pulsar.binary.message_reader import Unread, read_all, read_facts
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from tests.brokers.cluster import Cluster
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(600)]
PARTITIONS = 8
MESSAGES = 5_000
SIZE = 10_000  # bytes: more of them are stored than the client library asks for at once


def test_a_reading_goes_on_where_its_broker_dies(cluster: Cluster, namespace: str) -> None:
    path = f"persistent/{namespace}/stored"
    cluster.admin("PUT", f"{path}/partitions", PARTITIONS)
    cluster.spread(namespace)
    parts = [f"persistent://{namespace}/stored-partition-{number}" for number in range(PARTITIONS)]

    def elsewhere() -> tuple[str, str] | None:
        """A partition with its broker, which is none by which this test enters. `spread` gives broker-1 two of four bundles."""
        owners = ((part, cluster.broker_of(part)) for part in parts)
        return next(((part, owner) for part, owner in owners if owner != "broker-1"), None)

    part, victim = eventually(elsewhere, within=120, every=1.0)
    client = pulsar.Client(cluster.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    producer = client.create_producer(part, block_if_queue_full=True)
    for number in range(MESSAGES):
        producer.send_async(b"%d " % number + b"x" * SIZE, lambda *_: None)
    producer.flush()
    client.close()

    connection = Connection(admin_url=",".join(cluster.admin_urls), broker_url=cluster.broker_url)
    with Session(connection) as session:
        facts = read_facts(session.admin, part)
        unread = Unread(session.admin, session.client)
        found = []
        for stored in read_all(session.client, facts, unread):
            found.append(int((stored.payload or b"").partition(b" ")[0]))
            if len(found) == 100:
                cluster.kill(victim)
    assert found == list(range(MESSAGES))
    assert unread.runs == {}
