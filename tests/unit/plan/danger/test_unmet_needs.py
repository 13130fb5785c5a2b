"""K432 and K220 of a plan: what the cluster would refuse at the first write, or half way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import TenantResource, TopicResource
from tests.samples.inventories import HERE, applied, changed, empty, planned, topology, wanted

SUB = "{subscriptions: {s: {states: [], dead_letter: false}}}"


def _told(topics: str, there: Live, head: str = "") -> list[tuple[str, str]]:
    plan = planned(wanted(topology(topics, head)), there)
    return [(one.code, one.detail) for one in plan.findings if one.code in ("K432", "K220")]


def _with(*clusters: str, allowed: tuple[str, ...] = ()) -> Live:
    tenant = LiveObject(TenantResource("acme", frozenset(allowed or clusters), frozenset()))
    return replace(changed(empty(), tenant), clusters=frozenset(clusters))


@pytest.mark.parametrize(
    ("topics", "head", "address"),
    [
        (f"{{J: {SUB}}}", "create_tenant: {clusters: [us-west]}\n", "tenant.acme"),
        (f"{{J: {SUB}}}", "namespace_policies: {replication: [standalone, us-west]}\n", "namespace.acme/ns"),
        (f"{{J: {SUB}}}", "namespace_policies: {allowed_clusters: [standalone, us-west]}\n", "namespace.acme/ns"),
        ("{J: {policies: {replication: [standalone, us-west]}}}", "", "topic.persistent://acme/ns/J"),
        ("{J: {replication: [us-west]}}", "", "topic.persistent://acme/ns/J"),
    ],
)
def test_a_cluster_that_the_instance_does_not_have_is_told_before_anything_is_written(
    topics: str, head: str, address: str
) -> None:
    there = _with("standalone") if "create_tenant" not in head else replace(empty(), clusters=frozenset({"standalone"}))
    assert ("K432", f"{address}: us-west; the cluster knows standalone") in _told(topics, there, head)
    assert _told(topics, empty(), head) == [], "nothing is known of its clusters"
    assert _told(topics, _with("standalone", "us-west"), head) == []
    known = replace(empty(), clusters=frozenset({"standalone", "us-west"}))
    assert _told(topics, known, "create_tenant: {clusters: [standalone, us-west]}\n") == []


def test_a_cluster_that_the_tenant_may_not_use_is_told() -> None:
    there = _with("standalone", "us-west", allowed=("standalone",))
    [(code, detail)] = _told("{J: {replication: [standalone, us-west]}}", there)
    assert (code, detail) == (
        "K432",
        "topic.persistent://acme/ns/J: us-west; the Pulsar tenant acme is allowed standalone",
    )


def test_more_topics_than_the_namespace_may_have_with_those_that_are_there_are_told() -> None:
    """The apply created some of them, failed at the others, and said that going on would help."""
    head = "namespace_policies: {max_topics: 3}\n"
    old = LiveObject(TopicResource(TopicName(HERE, "old"), 2, {}))
    before = applied(wanted(topology("{J: {}}", head)))
    assert _told("{J: {}, K: {}, L: {}}", before, head) == []
    there = changed(before, old)
    assert _told("{J: {}}", there, head) == [], "nothing is to be created"
    said = "acme/ns: max_topics 3, and with this plan it has 4, each partition counted"
    assert _told("{J: {}, K: {}}", there, head) == [("K220", said)]
    assert _told("{K: {}}", there, head) == [], "one goes, one comes"
    assert _told("{J: {}, K: {}}", there, "namespace_policies: {max_topics: 4}\n") == []
