"""A plan says where no worker could subscribe, because the broker forbids the type (K439)."""

from __future__ import annotations

import pytest

from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import NamespaceResource, TopicResource
from tests.samples.inventories import HERE, changed, empty, planned, topology, wanted

J = TopicName(HERE, "J")
OTHERS = ("exclusive", "failover")


def there(*types: str, topic: tuple[str, ...] = ()) -> Live:
    """A live side whose namespace allows these types, all of them if there is none, and whose topic these."""
    found = [LiveObject(TopicResource(J, 1, {"subscription_types": topic}))] if topic else []
    policies = {"subscription_types": types} if types else {}
    return changed(empty(), LiveObject(NamespaceResource(HERE, policies)), *found)


def said(live: Live, kind: str = "shared", own: str = "", head: str = "") -> list[str]:
    text = f"{{J: {{{own}subscriptions: {{s: {{type: {kind}, states: [blocking]}}}}}}}}"
    plan = planned(wanted(topology(text, head)), live)
    assert all(one.severity.value == "warning" for one in plan.findings if one.code == "K439")
    return [one.detail for one in plan.findings if one.code == "K439"]


def test_a_namespace_that_forbids_what_workers_use_is_told_once() -> None:
    assert said(there(*OTHERS)) == [
        f"{J}: the namespace acme/ns allows exclusive, failover only: no worker of type shared can subscribe; so 1 more topic"
    ]


@pytest.mark.parametrize(
    ("live", "own", "head"),
    [
        (there(), "", ""),
        (there("shared"), "", ""),
        (there(topic=OTHERS), "", ""),  # the plan takes the topic's own value away
        (there(*OTHERS), "", "namespace_policies: {subscription_types: inherit}\n"),
        (there(topic=("shared",)), "ignore: [subscription_types], ", ""),
    ],
)
def test_where_it_is_allowed_after_the_plan_nothing_is_told(live: Live, own: str, head: str) -> None:
    assert said(live, own=own, head=head) == []


def test_waiting_topics_are_read_by_shared_subscriptions_whatever_the_type_of_the_ready_topic() -> None:
    types = "policies: {subscription_types: [failover]}, "
    assert said(there(), "failover", types) == []
    assert said(there(), "shared", types) == [
        f"{J}: the topic allows failover only: no worker of type shared can subscribe"
    ]
    [detail] = said(there("failover"), "failover")
    assert detail.startswith(f"{TopicName(HERE, 'J-s-BLOCKING')}: the namespace acme/ns allows failover only")


def test_a_value_that_the_file_ignores_counts() -> None:
    [detail] = said(there(topic=OTHERS), own="ignore: [subscription_types], ")
    assert detail.startswith(f"{J}: the topic allows exclusive, failover only")
