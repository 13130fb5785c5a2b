"""Broker settings that change declared topics automatically (K210) or endanger the order of keys (K445), and values
that Pulsar accepts but cannot handle well (K207).

Only a cluster shows whether a value is of the last kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.policy_levels import PolicyLevels, levels_of, namespace_changes
from kodoctl.topology.model.policies import AutoTopicCreation, InactiveTopic, Offload, Persistence
from kodoctl.topology.resources import NamespaceResource, SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName, TopicName

K210: Final = "the broker makes or deletes topics by itself"
K207: Final = "a value Pulsar accepts but cannot handle well"
_FAILOVER_MS: Final = 2_000  # from here on, messages that a client held may start before earlier ones of their key


def broker_config_findings(desired: Desired, live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields at most one warning for each namespace and each of: automatic creation of topics, automatic deletion of
    declared ones, ensembles of declared ones that are larger than the number of known bookies, stalled delivery of
    delayed messages; one for each offload driver that is new to some object; and one about all failover subscriptions,
    if brokers wait too long before a new active consumer gets messages. Values are those after the changes; an unknown
    one causes no warning.
    """
    set_by_plan = namespace_changes(changes)
    subscribed = {
        wanted.resource.topic
        for wanted in desired.objects.values()
        if isinstance(wanted.resource, SubscriptionResource)
    }
    topics_of = _topics(desired)
    for namespace in desired.namespaces:
        levels, topics = levels_of(namespace, live, set_by_plan), topics_of.get(namespace, [])
        yield from _creation_warnings(namespace, levels)
        yield from _deletion_warnings(namespace, topics, levels, subscribed)
        yield from _too_wide(namespace, topics, levels, live.bookies)
        yield from _stall_warnings(namespace, live, desired)
    yield from _new_offloads(changes)
    yield from _slow_hand_overs(desired, live.failover_delay)


def _slow_hand_overs(desired: Desired, delay: int | None) -> Iterator[Diagnostic]:
    """Yields a warning if brokers wait so long before a new active consumer gets messages that workers of failover
    subscriptions cannot tell any more which messages are old.
    """
    lanes = [
        f"{expansion.name}/{ground}/{name}"
        for expansion in desired.expansions
        for ground, topic in expansion.topology.spec.topics.items()
        for name, subscription in topic.subscriptions.items()
        if subscription.type == "failover"
    ]
    if lanes and delay is not None and delay >= _FAILOVER_MS:
        others = f" and {len(lanes) - 1} more" if len(lanes) > 1 else ""
        detail = (
            f"{lanes[0]}{others} is read as failover, and brokers wait {delay:,} ms before a new active consumer gets"
            " messages: where a partition changes hands, messages of a key may start in another order; set"
            " `activeConsumerFailoverDelayTimeMillis` to 1000 or less on every broker"
        )
        yield warning("K445", "brokers hand partitions over too slowly", detail)


def _topics(desired: Desired) -> dict[NamespaceName, list[TopicResource]]:
    """The declared topics by namespace."""
    found: dict[NamespaceName, list[TopicResource]] = {}
    for wanted in desired.objects.values():
        if isinstance(wanted.resource, TopicResource):
            found.setdefault(wanted.resource.name.namespace, []).append(wanted.resource)
    return found


def _creation_warnings(namespace: NamespaceName, levels: PolicyLevels) -> Iterator[Diagnostic]:
    counts = levels.effective("auto_topic_creation", None, after=True)
    if counts.value is True or isinstance(counts.value, AutoTopicCreation):
        detail = (
            f"{namespace}: topics are created automatically ({counts.source}): a misspelt name is a new topic, and a client"
            " that is still connected brings a deleted topic back as a plain one; the file turns it off with"
            " `namespace_policies: {auto_topic_creation: false}`"
        )
        yield warning("K210", K210, detail)


def _deletion_warnings(
    namespace: NamespaceName, topics: Iterable[TopicResource], levels: PolicyLevels, subscribed: set[TopicName]
) -> Iterator[Diagnostic]:
    exposed = [topic for topic in topics if _is_exposed(topic, levels, has_reader=topic.name in subscribed)]
    if exposed:
        others = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
        detail = (
            f"{namespace}: the broker deletes {exposed[0].name.local}{others} once inactive: without a subscription, or when"
            " its last one expires; the file forbids it with `inactive_topic: {delete: never}` under `defaults.policies` or"
            " the topic's"
        )
        yield warning("K210", K210, detail)


def _is_exposed(topic: TopicResource, levels: PolicyLevels, *, has_reader: bool) -> bool:
    inactive = levels.effective("inactive_topic", topic.policies.get("inactive_topic"), after=True).value
    if not isinstance(inactive, InactiveTopic) or inactive.delete == "never":
        return False
    expiry = levels.effective("subscription_expiry", topic.policies.get("subscription_expiry"), after=True).value
    return not has_reader or inactive.delete == "caught_up" or isinstance(expiry, Duration)


def _too_wide(
    namespace: NamespaceName, topics: Iterable[TopicResource], levels: PolicyLevels, bookies: int | None
) -> Iterator[Diagnostic]:
    """Yields a warning if an ensemble is larger than the number of bookies that ever registered: Pulsar's admin API
    does not say how many of them can be written to now.
    """
    if bookies is None:
        return
    wide = [topic for topic in topics if _ensemble(topic, levels) > bookies]
    if wide:
        others = f" and {len(wide) - 1} more" if len(wide) > 1 else ""
        detail = (
            f"{namespace}: {wide[0].name.local}{others} asks for an ensemble of {_ensemble(wide[0], levels)}, the cluster"
            f" knows {bookies}, stopped ones included: Pulsar takes the value, and then nothing can be written; lower"
            " `persistence.ensemble` or add bookies"
        )
        yield warning("K207", K207, detail)


def _ensemble(topic: TopicResource, levels: PolicyLevels) -> int:
    copies = levels.effective("persistence", topic.policies.get("persistence"), after=True).value
    return (copies.ensemble or 0) if isinstance(copies, Persistence) else 0


def _new_offloads(changes: Iterable[Change]) -> Iterator[Diagnostic]:
    drivers = dict[str, list[str]]()
    for change in changes:
        before, after = (
            side.policies.get("offload") if isinstance(side, TopicResource | NamespaceResource) else None
            for side in (getattr(change, "before", None), getattr(change, "after", None))
        )
        if isinstance(after, Offload) and (not isinstance(before, Offload) or before.driver != after.driver):
            drivers.setdefault(after.driver or "", []).append(str(change.address))
    for driver, addresses in sorted(drivers.items()):
        others = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
        detail = (
            f"{addresses[0]}{others} gets the offload driver {driver}: Pulsar takes the name unseen, and a broker without this"
            " driver loads none of these topics any more; make sure that each broker has it (`offloadersDirectory`)"
        )
        yield warning("K207", K207, detail)


def _stall_warnings(namespace: NamespaceName, live: Live, desired: Desired) -> Iterator[Diagnostic]:
    stalled = [
        topic.name.local
        for address, topic in live.topics_in(namespace)
        if live.objects[address].stalls_delivery and address in desired.objects
    ]
    if stalled:
        others = f" and {len(stalled) - 1} more" if len(stalled) > 1 else ""
        detail = (
            f"{namespace}: {stalled[0]}{others} has a delayed-delivery value of its own: delayed messages of a topic stall"
            " under it until it is gone and the topic unloaded; this plan removes it and unloads"
        )
        yield warning("K207", K207, detail)
