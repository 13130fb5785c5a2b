"""Marks of producers in the figures that people read: five messages are five in every one of them."""

from __future__ import annotations

import json
import threading

import pytest
from kodo_consumer import Consumer, Message, Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
SENT = 5


def _send(workspace: Workspace, count: int) -> None:
    """By two producers, the second of which leaves nothing but its mark behind where `count` is 0."""
    for numbers in (range(count), ()):
        with Producer.load(
            workspace.folder / "topologies/trade.yaml", topic="orders", **workspace.broker.client_options
        ) as producer:
            for number in numbers:
                producer.send({"n": number})


def _lane(workspace: Workspace, *options: str) -> dict[str, object]:
    document = workspace.run("status", "--format", "json", *options).json()
    (found,) = [one for one in document["topologies"][0]["lanes"] if one["state"] == "ready"]
    assert isinstance(found, dict)
    return found


def _metrics(workspace: Workspace) -> tuple[float, float]:
    families = text_string_to_metric_families(workspace.run("exporter", "--once").out)
    samples = [one for family in families for one in family.samples if one.labels.get("state") == "ready"]
    values = {one.name: one.value for one in samples}
    return values["kodo_lane_entries"], values["kodo_lane_oldest_seconds"]


def test_five_messages_are_five_in_every_figure_and_an_idle_lane_has_no_age(workspace: Workspace) -> None:
    file = workspace.topology("orders: {partitions: 1, subscriptions: {billing: {}}}")
    workspace.apply()
    _send(workspace, SENT)

    stats = workspace.admin("GET", f"{workspace.path('orders')}-partition-0/stats")
    assert stats["subscriptions"]["billing"]["msgBacklog"] > SENT, "the broker counts marks"
    assert (_lane(workspace)["entries"], _lane(workspace, "--exact")["messages"]) == (SENT, SENT)
    assert _metrics(workspace)[0] == SENT
    assert f"{SENT} unread messages (" in workspace.run("destroy", str(file), code=None).text
    peeked = json.loads(workspace.run("peek", workspace.full("orders"), "--json").out)
    assert (peeked["matched"], peeked["marks"]) == (SENT, 1)

    got: list[Message] = []
    all_came = threading.Event()
    consumer = Consumer.load(file, topic="orders", subscription="billing", **workspace.broker.client_options)

    @consumer.handler
    def handle(message: Message) -> None:
        got.append(message)
        if len(got) == SENT:
            all_came.set()

    consumer.start()
    try:
        assert all_came.wait(60)
        eventually(lambda: consumer.counts.marks == 1)
    finally:
        consumer.stop()
    assert (consumer.counts.received, consumer.counts.finished) == (SENT, {})

    with Producer.load(file, topic="orders", **workspace.broker.client_options) as producer:
        producer.send({"n": 0})
    with workspace.client() as client:  # who handles the message, and stops before the mark
        subscription = client.subscribe(workspace.full("orders"), "billing")
        subscription.acknowledge(subscription.receive(10_000))
        subscription.close()
    assert (_lane(workspace)["entries"], _lane(workspace)["oldest"]) == (0, None)
    assert _metrics(workspace) == (0.0, 0.0)
    assert "no unread message, 1 mark of producers (" in workspace.run("destroy", str(file), code=None).text
