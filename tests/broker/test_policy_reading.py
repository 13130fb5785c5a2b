"""Topic policies read in bulk and by single requests: the same answer whatever happened before, and which of both was used."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory.bulk_policies import SYSTEM_TOPIC
from kodoctl.pulsar.inventory.topic_policy_reader import PolicyReader
from kodoctl.topology.names import NamespaceName, TopicName
from tests.broker.policy_table import ROWS
from tests.brokers.broker import PULSAR, Broker
from tests.brokers.workspace import Workspace
from tests.samples.profiles import examples
from tests.services.polling import eventually
from tests.services.servers import Answer, Proxy, Request, answer_json

pytestmark = pytest.mark.broker

SMALL = (
    "{policies: {ttl: 9d, retention: {time: 1d, size: 100MiB}}, subscriptions: {s: {states: [], dead_letter: false}}}"
)
POLICIES = {row.name: row for row in ROWS if row.topic and not (row.name == "subscription_expiry" and PULSAR < (4, 2))}
TOPICS = ("A", "B", "C", "kept")
OLD_DELAYS = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 60_000}

Step = tuple[str, str, Any]
STEPS = st.lists(
    st.tuples(st.just("ttl"), st.sampled_from(TOPICS), st.integers(1, 10_000))
    | st.tuples(st.sampled_from(["set", "unset"]), st.sampled_from(TOPICS), st.sampled_from(sorted(POLICIES)))
    | st.tuples(st.sampled_from(["delete", "make"]), st.sampled_from(TOPICS[:3]), st.none())
    | st.tuples(st.sampled_from(["wipe", "delay", "compact"]), st.sampled_from(TOPICS), st.none()),
    min_size=5,
    max_size=25,
)


@dataclass
class Place:
    """A namespace, what somebody does there without kodoctl, and both readers."""

    broker: Broker
    namespace: NamespaceName
    admin: HttpAdmin
    bulk: BrokerClient
    pool: ThreadPoolExecutor
    log: tuple[str, ...] = (SYSTEM_TOPIC,)  # the system topic, by partition
    did: list[Step] = field(default_factory=list)

    def call(self, method: str, path: str, body: object = None, **query: str) -> None:
        reply = self.broker.admin(method, f"persistent/{self.namespace}/{path}", body, **query)
        assert reply.status_code < 300 or reply.status_code in (404, 409, 412), (method, path, reply.text)

    def do(self, step: Step) -> None:
        self.did.append(step)
        kind, topic, what = step
        match kind:
            case "ttl":
                self.call("POST", f"{topic}/messageTTL", messageTTL=str(what))
            case "set":
                method, last, body, query = POLICIES[what].request("topic")
                self.call(method, f"{topic}/{last}", body, **query)
            case "unset":
                self.unset(topic, what)
            case "delete":
                self.call("DELETE", f"{topic}/partitions")
            case "make":
                self.call("PUT", f"{topic}/partitions", 2)
            case "wipe":
                self.call("DELETE", f"{topic}/policies")
            case "delay":
                self.call("POST", f"{topic}/delayedDelivery", OLD_DELAYS)
            case "compact":
                for part in self.log:
                    self.call("PUT", f"{part}/compaction")
                eventually(self.compacted)

    def unset(self, topic: str, policy: str) -> None:
        """Schema validation cannot be unset, and a quota is of a kind."""
        if policy == "schema_validation":
            self.call("POST", f"{topic}/schemaValidationEnforced", False)
        elif policy == "backlog_quota":
            self.call("DELETE", f"{topic}/backlogQuota", backlogQuotaType=next(iter(POLICIES[policy].hand.raw)))
        else:
            self.call("DELETE", f"{topic}/{POLICIES[policy].topic}")

    def compacted(self) -> bool:
        path = f"persistent/{self.namespace}"
        return all(
            self.broker.admin("GET", f"{path}/{part}/compaction").json()["status"] != "RUNNING" for part in self.log
        )

    def read(self, *, in_bulk: bool) -> tuple[Any, Any]:
        """Policies by topic, and the topics with a delayed-delivery value of their own."""
        client = self.bulk if in_bulk else BrokerClient(Connection(self.broker.admin_url))
        there = self.broker.admin("GET", f"persistent/{self.namespace}/partitioned").json()
        topics = sorted(TopicName.parse(name) for name in there)
        reader = PolicyReader(self.admin, client, self.pool, pause=lambda _: None)
        found = reader.read(self.namespace, topics, validates=False)
        assert found.how.startswith("in bulk" if in_bulk else "one by one"), found.how
        return {topic.local: found.of(topic) for topic in topics}, found.delayed


@pytest.fixture(scope="module", params=["one", "partitioned"])
def place(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Place]:
    """Its system topic is one topic, or, as where topics are auto-created with partitions, has three of them."""
    tenant = f"t-read-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    log: tuple[str, ...] = (SYSTEM_TOPIC,)
    if request.param == "partitioned":
        log = tuple(f"{SYSTEM_TOPIC}-partition-{number}" for number in range(3))
        made = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        assert broker.admin("POST", f"namespaces/{tenant}/ns/autoTopicCreation", made).ok
    connection = Connection(broker.admin_url, broker.broker_url)
    with BrokerClient(connection) as client, ThreadPoolExecutor(8) as pool:
        found = Place(broker, NamespaceName(tenant, "ns"), HttpAdmin(connection), client, pool, log)
        for name in TOPICS:
            found.do(("make", name, None))
        found.do(("ttl", "A", 60))  # makes the system topic
        yield found
        found.admin.close()


@examples(8, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_both_ways_of_reading_give_the_same_answer_whatever_happened(place: Place, steps: list[Step]) -> None:
    """Right after writes, unsets, wipes, deletes, re-creations and compactions; examples go on where the last one ended."""
    for step in steps:
        place.do(step)
    bulk, single = place.read(in_bulk=True), place.read(in_bulk=False)
    assert bulk == single, place.did[-30:]


def test_a_last_event_without_a_payload_is_read(place: Place) -> None:
    """All policies of a topic are deleted, and nothing happens after that."""
    for _ in range(3):
        for step in (("ttl", "A", 77), ("set", "B", "max_message_size"), ("wipe", "A", None), ("wipe", "B", None)):
            place.do(step)
        assert place.read(in_bulk=True) == place.read(in_bulk=False), place.did[-30:]


def test_a_plan_reads_one_by_one_and_says_the_same_where_the_bulk_cannot_be_trusted(
    workspace: Workspace, proxy: Proxy
) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    assert "read in bulk" in workspace.plan("-v").err
    wrote = len(proxy.writes)

    def other_schema(request: Request) -> Answer | None:
        """A newer broker that writes policies in a form of its own."""
        there = request.path.endswith("/__change_events/schemas")
        return answer_json({"getSchemaResponses": [{"version": 0, "type": "JSON", "data": "{}"}]}) if there else None

    def other_value(request: Request) -> Answer | None:
        """One that keeps them elsewhere, so that the change log is behind."""
        return answer_json(777) if request.path.endswith("/K/messageTTL") else None

    proxy.choose = other_schema
    told = workspace.plan("-v")
    assert told.summary.startswith("No changes")
    assert "read one by one (the broker writes policy events as JSON)" in told.err
    proxy.choose = other_value
    told = workspace.plan("-v")
    assert "read one by one (ttl of " in told.err
    assert "differs between bulk" in told.err
    assert told.summary.startswith("Plan: 0 to create, 1 to update")
    assert len(proxy.writes) == wrote


def test_a_plan_creates_nothing_not_even_the_system_topic_it_would_read(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.topology(f"J: {SMALL}")
    workspace.plan()
    assert workspace.admin("GET", f"persistent/{workspace.namespace}", includeSystemTopic="true") == []
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [workspace.namespace]
