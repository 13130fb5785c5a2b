"""A broker of a cluster dies: a producer, the command line and workers go on with those that are left.

The smoke test of a cluster, on one that is small: a broker dies for good in the first test and another one in the last, for a start
takes longer than a test. What else can happen to nodes is in the other files of this folder (make test-cluster).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker
from kodo_consumer.core.sequences.sequencer import key_hash
from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.producer import Producer

from kodoctl.dev import service
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.cluster import Cluster, start
from tests.brokers.topics import messages
from tests.brokers.workspace import Workspace
from tests.clusters.traffic import PARTITIONS, handle_while_one_is_dead, spread
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]
TOPICS = "\n".join(
    f"t{n}: {{partitions: 3, policies: {{ttl: {n + 1}h}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}"
    for n in range(6)
)
SENDS = 300


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """Three brokers and one bookie."""
    started = start("small", brokers=3, bookies=1)
    yield started
    service.reset(started.homes, os.environ, started.name)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The small cluster with two living brokers or three."""
    if len(shared_cluster.living()) < 2 or "broker-1" not in shared_cluster.living():
        shared_cluster.heal()
    return shared_cluster


def test_a_producer_sends_on_and_what_was_for_the_dead_broker_is_stored_by_another(
    cluster: Cluster, namespace: str
) -> None:
    topic = f"persistent://{namespace}/jobs"
    assert cluster.admin("PUT", f"{topic.replace('://', '/')}/partitions", PARTITIONS).ok
    owners = spread(cluster, topic)
    victim = max(owners)  # never broker-1, by which all enter
    receipts: dict[int, Receipt] = {}
    producer = Producer(topic, PulsarBroker(Connection(cluster.admin_urls[0], cluster.broker_url)))

    def post(number: int) -> None:
        producer.post(b"%d" % number, lambda receipt: receipts.update({number: receipt}), key=f"k{number}")

    for number in range(SENDS):
        post(number)
    producer.flush()
    cluster.kill(victim)
    late = range(SENDS, 2 * SENDS)
    for number in late:
        post(number)
    held_up = {number for number in late if owners[key_hash(f"k{number}") % PARTITIONS] == victim}
    others = set(late) - held_up
    assert others
    assert held_up
    eventually(lambda: others <= receipts.keys(), within=60)
    assert not held_up & receipts.keys(), "its partitions have no other broker yet"
    producer.flush()
    producer.close()
    assert all(isinstance(receipt, Confirmed) for receipt in receipts.values())
    stored = Counter(int(message.data()) for message in messages(cluster.through(1), topic) if message.data())
    assert stored == Counter(range(2 * SENDS)), "what never reached the dead broker is stored once"


def _enter(workspace: Workspace, cluster: Cluster, *admin_urls: str) -> None:
    """The next commands use these addresses of the admin API, in that order."""
    workspace.options = ["--admin-url", ",".join(admin_urls), "--broker-url", cluster.broker_url]


def test_a_topology_is_applied_and_read_through_each_broker_that_is_left(
    cluster: Cluster, workspace: Workspace
) -> None:
    if len(cluster.living()) == 3:
        cluster.kill("broker-3")
    dead = next(number for number in (1, 2, 3) if f"broker-{number}" not in cluster.living())
    living = [cluster.admin_urls[number - 1] for number in (1, 2, 3) if number != dead]
    for topics in (TOPICS, TOPICS.replace("h}", "d}")):
        _enter(workspace, cluster, cluster.admin_urls[dead - 1], *living)
        workspace.topology(topics)
        workspace.apply()
        for url in living:
            _enter(workspace, cluster, url)
            workspace.assert_settled()
            workspace.run("drift")


@pytest.mark.full
def test_workers_go_on_and_each_partition_is_handled_in_order(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    handle_while_one_is_dead(cluster, namespace, tmp_path, "failover", rounds=10)
