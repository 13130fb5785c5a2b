"""What a worker reads of its subscription on the real broker: the fields that metrics, limits and live orders stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.adapters.pulsar import AdminCluster
from kodo_consumer.core.values.broker import LaneStats

from kodoctl.pulsar.connection.connection import Connection, Flags, connect
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]


def _connection(workspace: Workspace, folder: Path) -> Connection:
    flags = Flags(None, workspace.broker.admin_url, workspace.broker.broker_url, None)
    return connect(flags, {}, folder)


def test_a_subscription_as_the_broker_sees_it(workspace: Workspace, tmp_path: Path) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.tenant}/ns")
    workspace.make_topic("J", 2, "s")
    path = workspace.path("J")
    workspace.admin("PUT", f"{path}/subscription/s/properties", {"kodo-steer": "{}"})
    workspace.admin("POST", f"{path}/maxUnackedMessagesOnConsumer", 3)
    cluster = AdminCluster(_connection(workspace, tmp_path))
    topic = workspace.full("J")
    assert cluster.stats(topic, "nobody") is None
    assert cluster.stats(workspace.full("none"), "s") is None

    def now() -> LaneStats:
        found = cluster.stats(topic, "s")
        assert found is not None
        return found

    assert now() == LaneStats(properties={"kodo-steer": "{}"}, partitions=2)
    workspace.publish("J", 20)
    with workspace.client() as client:
        consumers = [_subscribe(client, topic, name) for name in ("anna", "bert")]
        eventually(lambda: now().blocked == {"anna", "bert"})  # nobody acknowledges
        seen = now()
        assert seen.workers == {"anna", "bert"}
        assert seen.backlog == 20
        assert (seen.unacknowledged or 0) >= 6
        assert seen.oldest is not None
        for consumer in consumers:
            consumer.close()
    eventually(lambda: not now().workers)
    cluster.close()


def _subscribe(client: Any, topic: str, name: str) -> Any:
    import pulsar

    return client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name=name)
