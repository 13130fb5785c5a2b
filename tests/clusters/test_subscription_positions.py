"""Subscriptions that are made while nothing can be stored: a broker makes them at the end of a topic, then moves them."""

from __future__ import annotations

import threading
import time

import pulsar
import pytest

from kodoctl.apply.subscriptions import create_subscription
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import SubscriptionResource
from tests.brokers.cluster import Cluster

pytestmark = pytest.mark.full
MESSAGES = 30


def test_a_subscription_that_was_made_while_no_position_could_be_stored_reads_from_the_beginning(
    cluster: Cluster, namespace: str
) -> None:
    tenant, _, last = namespace.partition("/")
    topic = TopicName(NamespaceName(tenant, last), "jobs")
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert cluster.admin("POST", f"namespaces/{namespace}/retention", keep).ok
    assert cluster.admin("PUT", f"persistent/{namespace}/jobs/partitions", 3).ok
    client = create_client(Connection(cluster.admin_urls[0], cluster.broker_url))
    producer = client.create_producer(str(topic))
    for number in range(MESSAGES):
        producer.send(b"%d" % number)
    admin = HttpAdmin(Connection(cluster.admin_urls[0]))
    made = threading.Thread(target=create_subscription, args=(admin, SubscriptionResource(topic, "s"), "owner"))
    away = ("bookie-2", "bookie-3")
    for one in away:
        cluster.pause(one)
    made.start()
    time.sleep(2)
    for number in range(3):
        cluster.admin("PUT", f"persistent/{namespace}/jobs-partition-{number}/unload")
    time.sleep(8)
    cluster.heal()
    made.join(120)
    assert not made.is_alive()
    consumer = client.subscribe(str(topic), "s", consumer_type=pulsar.ConsumerType.Shared)
    found = {consumer.receive(10_000).data() for _ in range(MESSAGES)}
    client.close()
    assert len(found) == MESSAGES
