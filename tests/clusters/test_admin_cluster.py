"""kodoctl and the consumer at the admin API of a cluster: through each broker, with little rights, while brokers move topics or die."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pulsar
import pytest
from kodo_consumer import Consumer

from kodoctl.dev import instance as record
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from tests.brokers.cluster import Cluster, fresh_namespace
from tests.brokers.workspace import Workspace, isolated
from tests.services.polling import eventually
from tests.services.ports import unusual_ports

pytestmark = pytest.mark.full
ALL = (1, 2, 3)
TOPICS = "\n".join(
    f"t{n}: {{partitions: 3, policies: {{ttl: {n + 1}h}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}"
    for n in range(6)
)
WORKED = "J: {partitions: 3, subscriptions: {s: {workers: [billing-worker], in_place: [], retrying: {delays: [1s]}}}}"
DEAD = "http://127.0.0.1:1"


def _through(workspace: Workspace, cluster: Cluster, *numbers: int, before: str = "") -> None:
    """The next commands enter the cluster through these brokers, after an address that is no broker."""
    urls = [before] * bool(before) + [cluster.admin_urls[number - 1] for number in numbers]
    workspace.options = ["--admin-url", ",".join(urls), "--broker-url", cluster.broker_url]


def _unload(cluster: Cluster, namespace: str) -> None:
    assert cluster.admin("PUT", f"namespaces/{namespace}/unload").ok


@pytest.mark.parametrize("number", ALL)
def test_a_topology_is_applied_through_one_broker_and_read_through_each(
    cluster: Cluster, workspace: Workspace, number: int
) -> None:
    workspace.topology(TOPICS)
    _through(workspace, cluster, number)
    workspace.apply()
    for other in ALL:
        _through(workspace, cluster, other)
        workspace.assert_settled()
        workspace.run("drift")
        _unload(cluster, workspace.namespace)  # the next one finds nobody who owns a topic
        workspace.assert_settled()


def test_a_broker_that_does_not_answer_is_passed_over(cluster: Cluster, workspace: Workspace) -> None:
    workspace.topology(TOPICS)
    _through(workspace, cluster, 2, 3, before=DEAD)
    workspace.apply()
    workspace.assert_settled()
    workspace.options = ["--admin-url", f"{DEAD},http://127.0.0.1:2", "--broker-url", cluster.broker_url]
    told = " ".join(workspace.plan(code=1).err.split())
    assert "none of 2 addresses answers: http://127.0.0.1:1: Connection refused" in told
    assert "http://127.0.0.1:2: Connection refused" in told


# --- with authorization


@pytest.fixture
def closed(token_cluster: Cluster, tmp_path: Path) -> Iterator[Workspace]:
    """A folder in which kodoctl runs as a super-user; `billing-worker` may do there what a topology grants it."""
    namespace = fresh_namespace(token_cluster)
    for role in ("applier", "billing-worker"):
        (tmp_path / role).write_text(token_cluster.token(role), encoding="utf-8")
    with isolated(tmp_path):
        found = Workspace(token_cluster.through(1), tmp_path, namespace.partition("/")[0])
        found.options = ["--admin-url", token_cluster.admin_urls[0], "--broker-url", token_cluster.broker_url]
        found.options += ["--token-file", str(tmp_path / "applier")]
        yield found
        found.end_processes()


def test_a_worker_with_no_more_rights_than_the_topology_grants_starts_through_each_broker(
    closed: Workspace, token_cluster: Cluster
) -> None:
    """It may not list brokers, and every topic may be another broker's, or nobody's yet."""
    file = closed.topology(WORKED)
    closed.apply()
    for number in ALL:
        for unowned in (False, True):
            if unowned:
                _unload(token_cluster, closed.namespace)
            consumer = Consumer.load(
                file,
                topic="J",
                subscription="s",
                admin_url=token_cluster.admin_urls[number - 1],
                broker_url=token_cluster.broker_url,
                token_file=str(closed.folder / "billing-worker"),
            )
            consumer.handler(lambda _: None)
            consumer.start()
            consumer.stop()


# --- topics that move, brokers that die


def _storm(cluster: Cluster, namespace: str, over: threading.Event, random: Random) -> int:
    """Unloads of one bundle after the other, a split now and then, until `over`; how many there were."""
    moves = 0
    while not over.wait(0.1):
        found = cluster.admin("GET", f"namespaces/{namespace}/bundles")
        if not found.ok:  # it is not there yet
            continue
        edges = found.json()["boundaries"]
        at = random.randrange(len(edges) - 1)
        action = "split" if moves % 5 == 4 else "unload"
        cluster.admin("PUT", f"namespaces/{namespace}/{edges[at]}_{edges[at + 1]}/{action}")
        moves += 1
    return moves


def test_an_apply_waits_for_topics_that_are_between_two_brokers(cluster: Cluster, workspace: Workspace) -> None:
    workspace.topology(TOPICS)
    over, moves = threading.Event(), list[int]()
    storm = threading.Thread(target=lambda: moves.append(_storm(cluster, workspace.namespace, over, Random(7))))
    storm.start()
    try:
        _through(workspace, cluster, 1, 2)
        workspace.apply()
        workspace.topology(TOPICS.replace("h}, sub", "d}, sub"))
        workspace.apply()
    finally:
        over.set()
        storm.join()
    assert moves[0] > 5
    workspace.assert_settled()


@contextmanager
def _moved(cluster: Cluster, number: int) -> Iterator[Cluster]:
    """The cluster with one of its brokers at another address, as where an orchestrator starts it anew on another host."""
    before, name = cluster.instance, f"broker-{number}"
    assert before.cluster is not None
    free, brokers = unusual_ports(), list(before.cluster.brokers)
    brokers[number - 1] = (free.admin, free.broker)
    after = replace(before, cluster=replace(before.cluster, brokers=tuple(brokers)))
    cluster.stop(name)
    try:
        record.write(cluster.homes.folder(cluster.name), after)
        moved = Cluster(cluster.homes, after)
        moved.start(name)
        moved.wait_ready(name)
        yield moved
        moved.stop(name)
    finally:
        record.write(cluster.homes.folder(cluster.name), before)


def test_a_broker_at_a_new_address_is_known_to_whoever_runs_already(cluster: Cluster, workspace: Workspace) -> None:
    """A worker, and a client of the admin API that has learnt where brokers are: both entered the cluster by broker-1."""
    file = workspace.topology("J: {partitions: 24, subscriptions: {s: {in_place: [], retrying: {delays: [1s]}}}}")
    workspace.apply()
    cluster.spread(workspace.namespace)
    first, topic = cluster.through(1), f"persistent://{workspace.namespace}/J"
    parts = [f"{topic}-partition-{number}" for number in range(24)]
    consumer = Consumer.load(file, topic="J", subscription="s", admin_url=first.admin_url, broker_url=first.broker_url)
    handled: set[str] = set()
    consumer.handler(lambda message: handled.add(message.text()))
    with Session(Connection(first.admin_url, first.broker_url)) as session:
        owners = {part: cluster.broker_of(part) for part in parts}
        assert "broker-3" in owners.values()
        _read(session, parts)
        consumer.start()
        try:
            with _moved(cluster, 3) as moved:
                moved.spread(workspace.namespace)
                assert "broker-3" in {moved.broker_of(part) for part in parts}
                _read(session, parts)
                _send_to_each(moved, parts)
                eventually(lambda: handled == set(parts), within=60)
        finally:
            consumer.stop()


def _read(session: Session, parts: Sequence[str]) -> None:
    """Reads a policy of each, which only its owner answers: others redirect to it."""
    for part in parts:
        path = part.replace("://", "/")
        answer = session.admin.call("GET", f"{path}/stats")
        assert answer.ok, answer


def _send_to_each(cluster: Cluster, parts: Sequence[str]) -> None:
    client = pulsar.Client(cluster.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    try:
        for part in parts:
            client.create_producer(part).send(part.encode())
    finally:
        client.close()


@pytest.mark.parametrize("away", ["kill", "pause"])
def test_a_plan_waits_for_the_fail_over_of_a_broker(cluster: Cluster, workspace: Workspace, away: str) -> None:
    """The session of a broker with ZooKeeper ends 30 s after it; by then others answer that its topics are on it."""
    workspace.topology(TOPICS)
    workspace.apply()
    victim = int(cluster.broker_of(f"persistent://{workspace.namespace}/__change_events").rpartition("-")[2])
    others = [number for number in ALL if number != victim]
    getattr(cluster, away)(f"broker-{victim}")
    began = time.monotonic()
    _through(workspace, cluster, others[0])
    found = workspace.plan()
    assert "Error" not in found.err
    assert "Waiting for the cluster, " in found.err
    assert time.monotonic() - began < 90
    _through(workspace, cluster, victim, others[1])
    workspace.assert_settled()
