"""Objects at stake: those whose evidence is read, for `kodoctl.plan.danger.data_loss` to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kodoctl.plan.changes import Change, Delete, Update
from kodoctl.pulsar.values.live_objects import Live, SubscriptionFacts, TopicFacts
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    NamespaceResource,
    PlatformResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)

DAY_MS = 86_400_000
_KEEPING = frozenset({"retention", "ttl", "backlog_quota"})  # judged by the age of what is stored


def evidence_wanted(changes: Iterable[Change], live: Live) -> Iterator[Address]:
    """Yields the addresses of the live objects whose evidence the danger rules need: functions, connectors and objects
    of the whole cluster that are deleted; Pulsar tenants that lose a cluster; topics and subscriptions that are
    deleted; topics whose retention, TTL or backlog quota an update changes, either on the topic itself or, for topics
    without a value of their own, on the namespace. Topics and subscriptions come only if `holds_something` is true for
    them, so that topics which `live` does not have (of other topologies in the namespace) never come. An address may
    come twice.
    """
    for change in changes:
        match change:
            case Delete(before=TopicResource() | SubscriptionResource()) if holds_something(change.address, live):
                yield change.address
            case Delete(before=FunctionResource()) if change.address in live.objects:
                yield change.address
            case Delete(before=before) if isinstance(before, PlatformResource) and change.address in live.objects:
                yield change.address
            case Update(before=TenantResource() as before, after=TenantResource() as after) if (
                before.clusters - after.clusters and change.address in live.objects
            ):
                yield change.address
            case Update(before=TopicResource()) if any(one.policy in _KEEPING for one in change.policy_changes):
                if holds_something(change.address, live):
                    yield change.address
            case Update(before=NamespaceResource(name=name)):
                policies = {one.policy for one in change.policy_changes} & _KEEPING
                for address, topic in live.topics_in(name):
                    if policies - topic.policies.keys() and holds_something(address, live):
                        yield address
            case _:
                pass


def holds_something(address: Address, live: Live) -> bool:
    """True if a topic has stored data, clients or a last publish, or a subscription a backlog or consumers. False also
    for an object of another kind, for one that `live` does not have, and for a topic of which only the name is known
    (`Live.unread`).
    """
    match live.objects[address].facts if address in live.objects else None:
        case TopicFacts() as facts:
            return bool(
                facts.storage_bytes or facts.backlog_bytes or facts.producers or facts.consumers or facts.last_publish
            )
        case SubscriptionFacts() as facts:
            return bool(facts.backlog_entries or facts.consumers)
        case _:
            return False
