"""Topics of a real broker, without kodoctl: made as a topology file declares them, counted, read, unloaded."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pulsar

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.resources import SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from tests.brokers.broker import Broker

EARLIEST = {"ledgerId": -1, "entryId": -1}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}
_NOT_NOW = (412, 429, 500, 503)


def create_topics(broker: Broker, path: str, environment: str | None = None) -> None:
    """Topics and subscriptions of a topology, by plain admin calls; no policies."""
    resources = expand(load_topology(path, environment)).resources.values()
    for topic in (resource for resource in resources if isinstance(resource, TopicResource)):
        path = _path(topic.name.full)
        _create(broker, *((f"{path}/partitions", topic.partitions) if topic.partitions else (path, {})))
    for resource in resources:
        if isinstance(resource, SubscriptionResource):
            position = EARLIEST if resource.start == "earliest" else LATEST
            _create(broker, f"{_path(resource.topic.full)}/subscription/{resource.name}", position)


def _create(broker: Broker, path: str, body: object) -> None:
    """Creates what may be there already. A bundle between two brokers is waited for: its answers mean "not now"."""
    deadline = time.monotonic() + 60
    answer = broker.admin("PUT", path, body)
    while answer.status_code in _NOT_NOW and time.monotonic() < deadline:
        time.sleep(0.5)
        answer = broker.admin("PUT", path, body)
    assert answer.ok or answer.status_code == 409, answer.text


def backlog(broker: Broker, topic: str, subscription: str) -> int:
    """Entries a subscription has not acknowledged; 0 means that nothing is left."""
    answer = broker.admin("GET", f"{_path(topic)}/partitioned-stats", perPartition="false", getPreciseBacklog="true")
    if answer.status_code == 404:
        answer = broker.admin("GET", f"{_path(topic)}/stats", getPreciseBacklog="true")
    return int(answer.json()["subscriptions"][subscription]["msgBacklog"])


def messages(broker: Broker, topic: str) -> list[pulsar.Message]:
    """Everything in a topic, partition by partition: a reader over all of them may end before a last message without payload,
    as a producer's mark is one.
    """
    client = pulsar.Client(broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found = []
    try:
        for part in client.get_topic_partitions(topic):
            reader = client.create_reader(part, pulsar.MessageId.earliest)
            while reader.has_message_available():
                found.append(reader.read_next(5_000))
    finally:
        client.close()
    return found


def unload(broker: Broker, topic: str) -> None:
    """Moves the topic, which breaks its connections."""
    assert broker.admin("PUT", f"{_path(topic)}/unload").ok


def _path(topic: str) -> str:
    return topic.replace("://", "/")


def algorithms(broker: Broker, path: str) -> Counter[str]:
    """Compression -> entries of a topic without partitions that the broker stored with it, by the metadata of each."""
    found: Counter[str] = Counter()
    for ledger in broker.admin("GET", f"{path}/internalStats").json()["ledgers"]:
        entry = 0
        while (reply := broker.admin("GET", f"{path}/ledger/{ledger['ledgerId']}/entry/{entry}")).ok:
            headers = {name.lower(): value for name, value in reply.headers.items()}
            found[headers.get("x-pulsar-compression", "NONE")] += 1
            entry += 1
    return found
