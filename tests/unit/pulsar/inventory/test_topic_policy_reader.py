"""Policies of topics: "unset" counts once two answers say so, and a 404 is no answer about a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import AdminError, Reply, RequestCount
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory import bulk_policies, topic_policy_reader
from kodoctl.pulsar.inventory.bulk_policies import BulkPolicies, BulkUnavailableError
from kodoctl.pulsar.inventory.topic_policy_reader import PolicyReader, TopicPolicyReading
from kodoctl.topology.names import NamespaceName, TopicName

HERE = NamespaceName("acme", "ns")
J = TopicName(HERE, "J")
SET = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}


class Broker:
    """An admin port. `answers`: by the last part of the path, one after the other, the last one for ever; else unset (204)."""

    def __init__(self, **answers: list[Reply | Any]) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()
        self.traffic = RequestCount()

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        name = path.rpartition("/")[2]
        self.asked[name] += 1
        given = self.answers.get(name, [None])
        found = given[min(self.asked[name], len(given)) - 1]
        return found if isinstance(found, Reply) else Reply(method, path, 204 if found is None else 200, found)


def no(status: int, *, foreign: bool = False) -> Reply:
    return Reply("GET", "x", status, None, "no", foreign=foreign)


def read(
    broker: Broker, version: tuple[int, ...] = (4, 2, 4), url: str | None = None
) -> tuple[TopicPolicyReading, list[float]]:
    pauses: list[float] = []
    with ThreadPoolExecutor(4) as pool:
        client = BrokerClient(Connection("http://127.0.0.1:1", url))
        reader = PolicyReader(cast("Any", broker), client, pool, version, pause=pauses.append)
        return reader.read(HERE, [J], validates=False), pauses


def test_one_that_is_unset_in_one_answer_only_is_set() -> None:
    """As a broker answers that is shut down."""
    broker = Broker(retention=[None, SET])
    found, [pause] = read(broker)
    assert set(found.of(J)) == {"retention"}
    assert 1.0 < pause <= 2.0
    assert broker.asked["retention"] == 2


def test_one_that_is_set_is_asked_for_once() -> None:
    broker = Broker(retention=[SET])
    assert "retention" in read(broker)[0].of(J)
    assert (broker.asked["retention"], broker.asked["messageTTL"], broker.asked["delayedDelivery"]) == (1, 2, 2)


def test_a_false_may_mean_unset_and_is_asked_for_twice() -> None:
    broker = Broker(deduplicationEnabled=[False, True])
    assert read(broker)[0].of(J)["deduplication"] is True


def test_a_page_that_says_404_is_unset_only_where_the_broker_has_no_such_policy() -> None:
    broker = Broker(subscriptionExpirationTime=[no(404, foreign=True)])
    assert "subscription_expiry" not in read(broker, (4, 0, 7))[0].of(J)
    assert "subscription_expiry" not in read(broker, ())[0].of(J)
    for other, version in (("subscriptionExpirationTime", (4, 2, 4)), ("retention", (4, 0, 7))):
        with pytest.raises(AdminError, match="answered 404"):
            read(Broker(**{other: [no(404, foreign=True)]}), version)


def test_a_topic_that_was_deleted_meanwhile_is_gone_and_not_one_without_policies() -> None:
    found, _ = read(Broker(retention=[no(404)], partitions=[no(404)]))
    assert found.gone == {J}
    assert found.of(J) == {}
    with pytest.raises(AdminError, match="answered 404"):
        read(Broker(retention=[no(404)], partitions=[{"partitions": 3}]))


# --- in bulk


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> Callable[[BulkPolicies], None]:
    def gives(found: BulkPolicies) -> None:
        monkeypatch.setattr(topic_policy_reader, "read_bulk", lambda *_: found)

    return gives


def test_what_is_set_in_bulk_is_not_believed_to_be_unset(in_bulk: Callable[[BulkPolicies], None]) -> None:
    """A broker that is shut down says so for a moment, or for longer where it has to wait itself."""
    in_bulk(BulkPolicies({J.full: {"retention": SET}}))
    for lies in (1, 5):
        found, pauses = read(Broker(retention=[*[None] * lies, SET]))
        assert (found.how, len(pauses)) == ("in bulk", lies)
    for version in ((4, 2, 4), ()):
        with pytest.raises(
            ClusterError, match=r"retention of .*J is set in bulk and unset in a single read; .* try again"
        ):
            read(Broker(), version)
    assert read(Broker(), (5, 0))[0].how.startswith("one by one (retention of "), "which may keep policies elsewhere"


def test_another_value_than_in_bulk_is_believed_at_the_second_look(in_bulk: Callable[[BulkPolicies], None]) -> None:
    in_bulk(BulkPolicies({J.full: {"retention": SET}}))
    found, [_, *more] = read(Broker(retention=[{**SET, "retentionSizeInMB": 99}]))
    assert found.how.startswith("one by one (retention of ")
    assert len(more) == 1
    in_bulk(BulkPolicies())
    assert read(Broker(messageTTL=[77, None]))[0].how == "in bulk"


def test_policies_for_all_clusters_are_others_and_never_those_of_the_topic(
    in_bulk: Callable[[BulkPolicies], None],
) -> None:
    in_bulk(BulkPolicies(everywhere={J.full: {"retention": SET}}))
    found, _ = read(Broker())
    assert "retention" not in found.of(J)
    assert found.others == {J: {"retention for all clusters": SET}}


class _Events:
    available = True


def test_without_schemas_the_system_topic_is_absent_only_where_the_list_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_policies, "_last_events", lambda *_: {})
    other, own = "persistent://acme/ns/J-partition-0", "persistent://acme/ns/__change_events"

    def found(schemas: Any, listed: Any) -> BulkPolicies:
        return bulk_policies.read_bulk(Broker(schemas=[schemas], ns=[listed]), _Events(), HERE)  # type: ignore[arg-type]

    for schemas in (no(404), {"getSchemaResponses": []}):
        assert found(schemas, [other]) == BulkPolicies(topic_exists=False)
        for listed in ([other, own], [f"{own}-partition-0"]):
            assert found(schemas, listed) == BulkPolicies()
        for unreadable in (no(500), no(404, foreign=True), None):
            with pytest.raises(BulkUnavailableError):
                found(schemas, unreadable)


def test_events_without_a_schema_are_not_no_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_policies, "_last_events", lambda *_: {J.full: (0, b"x")})
    broker = Broker(schemas=[no(404)], ns=[["persistent://acme/ns/__change_events"]])
    with pytest.raises(BulkUnavailableError, match="cannot be decoded"):
        bulk_policies.read_bulk(broker, _Events(), HERE)  # type: ignore[arg-type]
