"""Two clusters with geo-replication between them: each is planned, consumed and looked at by itself."""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from kodo_consumer import Consumer, Message

from kodoctl.dev import service
from tests.brokers.cluster import Cluster, start
from tests.brokers.topics import messages
from tests.brokers.workspace import Workspace, isolated
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(600)]
FILE = """
version: 1
name: geo
tenant: $tenant
namespace: ns
namespace_policies: {replication: [east, west], retention: {time: 1d, size: 1GiB}}
topics:
  orders:
    backup: true
    subscriptions:
      billing: {in_place: [], retrying: {delays: [100ms], attempts: 5}}
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[dict[str, Cluster]]:
    """East and west, a broker and a bookie each, each of which knows the other."""
    found = {name: start(name, brokers=1, bookies=1) for name in ("east", "west")}
    for here, there in (("east", "west"), ("west", "east")):
        other = found[there].instance
        place = {"serviceUrl": other.admin_url, "brokerServiceUrl": other.broker_url}
        assert found[here].admin("PUT", f"clusters/{there}", place).ok
    yield found
    for cluster in found.values():
        service.reset(cluster.homes, os.environ, cluster.name)


class Sites:
    """One topology on both; a workspace for each."""

    def __init__(self, pair: dict[str, Cluster], folder: Path) -> None:
        self.tenant = f"g-{secrets.token_hex(3)}"
        self.clusters = pair
        self.by_name: dict[str, Workspace] = {}
        for name, cluster in pair.items():
            body = {"allowedClusters": ["east", "west"], "adminRoles": []}
            assert cluster.admin("PUT", f"tenants/{self.tenant}", body).ok
            place = folder / name
            place.mkdir()
            self.by_name[name] = Workspace(cluster.through(1), place, self.tenant)

    def each(self, action: Callable[[Workspace], object]) -> None:
        """In the folder of each workspace in turn."""
        for workspace in self.by_name.values():
            with isolated(workspace.folder):
                action(workspace)

    def topic(self, suffix: str = "") -> str:
        return f"persistent://{self.tenant}/ns/orders{suffix}"

    def send(self, name: str, *bodies: str) -> None:
        client = pulsar.Client(self.clusters[name].broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            producer = client.create_producer(self.topic())
            for body in bodies:
                producer.send(body.encode())
        finally:
            client.close()


@pytest.fixture
def sites(pair: dict[str, Cluster], tmp_path: Path) -> Sites:
    found = Sites(pair, tmp_path)
    found.each(lambda workspace: (workspace.write(FILE), workspace.apply()))
    return found


def test_what_fails_in_one_cluster_is_tried_again_there_and_nowhere_else(sites: Sites) -> None:
    """Each cluster's workers handle what was sent to either; a message that moved is not replicated once more."""
    runs: dict[str, Counter[str]] = {name: Counter() for name in sites.by_name}
    lock = threading.Lock()

    def handler(name: str) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            with lock:
                runs[name][message.text()] += 1
            if message.attempt == 1:
                raise ValueError("at first")

        return handle

    with ExitStack() as stack:
        for name, workspace in sites.by_name.items():
            place = workspace.broker.client_options
            file = workspace.folder / "topologies" / "trade.yaml"
            consumer = Consumer.load(file, topic="orders", subscription="billing", **place)
            consumer.handler(handler(name))
            consumer.start()
            stack.callback(consumer.stop)
        sites.send("east", *(f"e{number}" for number in range(10)))
        sites.send("west", *(f"w{number}" for number in range(10)))
        everything = {f"{site}{number}": 2 for site in "ew" for number in range(10)}
        eventually(lambda: all(runs[name] >= Counter(everything) for name in runs), within=60)
        sites.send("east", "last")
        eventually(lambda: all(runs[name]["last"] >= 2 for name in runs), within=60)
    for name, workspace in sites.by_name.items():
        assert dict(runs[name]) == {**everything, "last": 2}, name
        assert len(messages(workspace.broker, sites.topic("-billing-RETRYING"))) == 21
    sites.each(lambda workspace: workspace.assert_settled())


def test_a_cluster_that_is_away_is_told_by_status_and_before_anything_is_deleted(sites: Sites) -> None:
    east = sites.by_name["east"]
    sites.send("east", "first")
    eventually(lambda: messages(sites.by_name["west"].broker, sites.topic()), within=60)
    sites.clusters["west"].pause("broker-1")
    try:
        sites.send("east", *(f"late {number}" for number in range(7)))
        with isolated(east.folder):
            eventually(lambda: "orders: replicated to west, 7 entries behind" in east.run("status").out, within=30)
            east.write(
                "version: 1\nname: geo\ntenant: $tenant\nnamespace: ns\nnamespace_policies: {replication: [east, west]}\ntopics: {}\n"
            )
            planned = east.run("plan", code=4)
            assert "7 entries that cluster west does not have yet" in " ".join(planned.text.split())
            east.write(FILE)
    finally:
        sites.clusters["west"].resume("broker-1")
    eventually(lambda: len(messages(sites.by_name["west"].broker, sites.topic())) == 8, within=90)
    with isolated(east.folder):
        eventually(lambda: "orders: replicated to west, up to date" in east.run("status").out, within=60)


def test_import_takes_the_brokers_own_cursors_for_no_subscriptions(sites: Sites) -> None:
    east = sites.by_name["east"]
    with isolated(east.folder):
        east.write(FILE)
        east.run("forget", "topologies/trade.yaml", "--auto-approve", code=None)
        sites.send("east", "one")
        found = east.run("import", f"{sites.tenant}/ns", code=None)
    assert "pulsar.repl" not in found.text


def test_clusters_of_a_topic_and_allowed_ones_go_from_the_file_to_the_broker_and_back(sites: Sites) -> None:
    """Both are read, healed after somebody's change, lowered and raised: of two that depend on each other in the order that Pulsar takes."""
    east = sites.by_name["east"]
    small = "{subscriptions: {s: {states: [], dead_letter: false}}%s}"

    def write(topic: str, allowed: str, replicated: str) -> None:
        policies = f", policies: {{replication: {topic}}}" if topic else ""
        head = f"namespace_policies: {{allowed_clusters: [{allowed}], replication: [{replicated}]}}\n"
        east.topology(f"J: {small % policies}", head, name="places", namespace="places")

    def live() -> tuple[object, object, object]:
        namespace = f"{sites.tenant}/places"
        dump = east.admin("GET", f"namespaces/{namespace}")
        topic = east.admin("GET", f"persistent/{namespace}/J/replication")
        return topic, sorted(dump["allowed_clusters"]), sorted(dump["replication_clusters"])

    def changed() -> set[tuple[str, ...]]:
        changes = east.plan_json("topologies/places.yaml")["changes"]
        return {tuple(one["path"] for one in change["fields"]) for change in changes}

    both = ["east", "west"]
    with isolated(east.folder):
        write("[east, west]", "east, west", "east")
        alone = " ".join(east.apply("topologies/places.yaml", code=1).text.split())
        assert "answered 500 (Namespace not found)" in alone
        assert "each cluster of `replication` has to have the namespace" in alone
        sites.by_name["west"].admin("PUT", f"namespaces/{sites.tenant}/places")
        east.apply("topologies/places.yaml")
        assert live() == (both, both, ["east"])
        east.assert_settled("topologies/places.yaml")
        east.admin("POST", f"persistent/{sites.tenant}/places/J/replication", ["east"])
        east.admin("POST", f"namespaces/{sites.tenant}/places/replication", both)
        assert east.run("drift", "topologies/places.yaml", code=3).out.count("replication") >= 2
        east.apply("topologies/places.yaml")
        assert live() == (both, both, ["east"])
        write("inherit", "east", "east")
        east.apply("topologies/places.yaml")
        assert live() == (None, ["east"], ["east"])
        write("inherit", "east, west", "east, west")
        east.apply("topologies/places.yaml")
        assert live() == (None, both, both)
        east.assert_settled("topologies/places.yaml")
