"""A plan says where no worker could subscribe, because the broker forbids the type (K439)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kodoctl.plan.danger.forbidden_types import forbidden_types
from kodoctl.topology.names import NamespaceName, TopicName
from tests.samples.inventories import HERE, empty, planned, topology, wanted

J, BLOCKING = TopicName(HERE, "J"), TopicName(HERE, "J-s-BLOCKING")
Types = Mapping[NamespaceName | TopicName, frozenset[str]]
OTHERS = frozenset({"Failover", "Exclusive"})


def said(types: Types, kind: str = "shared") -> list[str]:
    side = wanted(topology(f"{{J: {{subscriptions: {{s: {{type: {kind}, states: [blocking]}}}}}}}}"))
    return [finding.detail for finding in forbidden_types(side, replace(empty(), subscription_types=types))]


def test_a_namespace_that_forbids_what_workers_use_is_told_once() -> None:
    assert said({HERE: OTHERS}) == [
        f"{J}: the namespace acme/ns allows Exclusive, Failover only: no worker of type shared can subscribe; so 1 more topic"
    ]


@pytest.mark.parametrize(
    "types",
    [{}, {HERE: frozenset({"Shared"})}, {HERE: OTHERS, J: frozenset({"Shared"}), BLOCKING: frozenset({"Shared"})}],
)
def test_where_it_is_allowed_nothing_is_told(types: Types) -> None:
    assert said(types) == []


def test_waiting_topics_are_read_by_shared_subscriptions_whatever_the_type_of_the_ready_topic() -> None:
    assert said({J: OTHERS}, "failover") == []
    assert said({J: frozenset({"Shared"})}, "key_shared") == [
        f"{J}: the topic allows Shared only: no worker of type key_shared can subscribe"
    ]
    [detail] = said({BLOCKING: OTHERS}, "failover")
    assert detail.startswith(f"{BLOCKING}: the topic allows")


def test_it_is_a_warning_of_the_plan() -> None:
    side = wanted(topology("{J: {subscriptions: {s: {}}}}"))
    plan = planned(side, replace(empty(), subscription_types={HERE: OTHERS}))
    assert "K439" in {finding.code for finding in plan.findings}
    assert not plan.refused
