"""What a topology file cannot declare of a namespace: each set value is named, and no default is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.pulsar.admin.admin import Reply, RequestCount
from kodoctl.pulsar.admin.broker_info import Server
from kodoctl.pulsar.admin.topic_stats import SubscriptionReading, TopicReading
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.pulsar.inventory.undeclarable import (
    plain_subscriptions,
    read_undeclarable,
    topic_states,
    undeclarable_settings,
)
from kodoctl.pulsar.values.live_objects import SubscriptionFacts, TopicFacts
from kodoctl.topology.names import NamespaceName, TopicName

HERE = NamespaceName("acme", "ns")
SERVER = Server("here", (), {}, bundles=4)
NOBODY_SET: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {"web": ["produce"]}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": ["here"],
    "bundles": {"numBundles": 4},
    "topicDispatchRate": {},
    "latency_stats_sample_rate": {},
    "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
    "deleted": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "subscription_types_enabled": [],
    "properties": {"kodoctl.topology/trade": "…"},
    "migrated": False,
}
"""Members that a namespace of Pulsar 4.2.4 has where nobody set what the format lacks."""


def test_defaults_and_what_the_format_has_are_not_listed() -> None:
    assert not dict(undeclarable_settings(NOBODY_SET, "here"))


@pytest.mark.parametrize(
    ("member", "value", "name", "reason"),
    [
        ("offload_threshold", 100, "offload_threshold", "set to 100; the format has no such setting"),
        ("schema_auto_update_compatibility_strategy", "Full", "schema_auto_update_compatibility_strategy", "set to Full"),
        ("a_new_setting", "a\nb", "a_new_setting", "set to a\\nb; the format"),
        ("offload_policies", {"managedLedgerOffloadThresholdInBytes": 1}, "offload", "the format cannot express its value"),
        ("schema_compatibility_strategy", "NEW", "schema_compatibility", 'the format cannot express its value "NEW"'),
    ],
)  # fmt: skip
def test_each_set_value_is_listed_with_the_true_reason(member: str, value: Any, name: str, reason: str) -> None:
    ((listed, why),) = undeclarable_settings({**NOBODY_SET, member: value}, "here")
    assert listed == name
    assert why.startswith(reason)


class Answers:
    """An admin port that answers GETs from a table; anything else is 404."""

    traffic, waits = RequestCount(), WaitMonitor()

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        answer = self._answers.get(path.replace("/", "_").replace("-", "_"), 404)
        return Reply(method, path, answer, None, "no") if isinstance(answer, int) else Reply(method, path, 200, answer)


def test_states_of_a_topic_and_of_its_subscriptions_are_listed() -> None:
    topic = TopicName(HERE, "J")
    plain = SubscriptionReading("s", (), None, SubscriptionFacts())
    marked = replace(plain, name="t", properties={"team": "a"}, is_replicated=True)
    reading = TopicReading(topic, 0, None, TopicFacts(), (plain, marked))
    here = "persistent://acme/ns/J"
    assert dict(topic_states(replace(reading, subscriptions=()))) == {}
    properties = {"owner": "web", "PULSAR.SHADOW_SOURCE": "persistent://acme/ns/K"}
    assert dict(topic_states(replace(reading, properties=properties))) == {
        f"topic.{here} as a shadow topic": (
            "its messages are those of persistent://acme/ns/K; the format has no such kind of topic"
        ),
        f"topic.{here} properties": 'set to {"owner": "web"}; the format has no such setting',
        f"subscription.{here}/t properties": 'set to {"team": "a"}; the format has no such setting',
        f"subscription.{here}/t replicated": "its position is replicated to other clusters; the format has no such state",
    }


def test_non_persistent_topics_are_listed_once_each() -> None:
    topics = [
        "non-persistent://acme/ns/a",
        "non-persistent://acme/ns/b-partition-0",
        "non-persistent://acme/ns/b-partition-1",
    ]
    admin = Answers(
        non_persistent_acme_ns=topics,
        non_persistent_acme_ns_partitioned=["non-persistent://acme/ns/b"],
    )
    found = read_undeclarable(admin, HERE, NOBODY_SET, SERVER)
    assert set(found) == {"topic.non-persistent://acme/ns/a", "topic.non-persistent://acme/ns/b"}


@pytest.mark.parametrize(("usual", "listed"), [(4, False), (16, True), (None, True)])
def test_a_number_of_bundles_is_listed_that_the_broker_may_not_give(usual: int | None, *, listed: bool) -> None:
    admin = Answers(non_persistent_acme_ns=[], non_persistent_acme_ns_partitioned=[])
    found = read_undeclarable(admin, HERE, NOBODY_SET, replace(SERVER, bundles=usual))
    assert (f"namespace.{HERE} bundles" in found) is listed
    assert all("write `bundles: 4`" in why for why in found.values())


def test_a_grant_on_a_non_persistent_topic_is_listed() -> None:
    grants = {"non-persistent://acme/ns/a": {"web": ["produce"]}, "persistent://acme/ns/J": {"web": ["produce"]}}
    dump = {**NOBODY_SET, "auth_policies": {"destination_auth": grants}}
    admin = Answers(non_persistent_acme_ns=[], non_persistent_acme_ns_partitioned=[])
    assert read_undeclarable(admin, HERE, dump, SERVER) == {
        "grant.non-persistent://acme/ns/a/web": "its topic is left out"
    }


@pytest.mark.parametrize(
    ("answer", "names"),
    [(404, set()), (500, {"…"}), (["s", "__compaction"], {"s"})],
)
def test_subscriptions_of_a_plain_topic_are_listed_and_what_cannot_be_read_is_said(
    answer: Any, names: set[str]
) -> None:
    admin = Answers(persistent_acme_ns_p_subscriptions=answer)
    found = plain_subscriptions(admin, TopicName(HERE, "p"))
    assert set(found) == {f"subscription.persistent://acme/ns/p/{name}" for name in names}
