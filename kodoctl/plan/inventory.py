"""Both sides of a plan in one type: the declared objects, the live objects, and facts about each object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kodoctl.topology.resources import Address, GrantResource, NamespaceResource, Resource, TopicResource

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.plan.ledger import Ledger, Source
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.policies import DelayedDelivery, Policies
    from kodoctl.topology.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class DesiredObject:
    """A declared object: the topology that declares it, the place, and its policies that the topology leaves alone."""

    resource: Resource
    owner: str
    where: Where | None = None
    ignore: frozenset[str] = frozenset()
    ordered: bool = False  # a subscription that keeps order reads it (K405)


@dataclass(frozen=True)
class Desired:
    """Everything the files of a command declare."""

    expansions: tuple[Expansion, ...] = field(repr=False)
    environment: str | None
    objects: Mapping[Address, DesiredObject] = field(repr=False)
    sources: Mapping[str, Source] = field(default_factory=dict)  # topology name -> where its file lives
    destroyed: frozenset[str] = frozenset()  # names of topologies of which nothing is wanted any more

    @cached_property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """Namespaces with topics or policies of these files, sorted."""
        return tuple(sorted({expansion.namespace for expansion in self.expansions}))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the topologies this is about."""
        return frozenset(expansion.name for expansion in self.expansions) | self.destroyed

    @cached_property
    def all_names(self) -> frozenset[str]:
        """The names of the topologies now and earlier: all names whose ledger entries belong to these files."""
        return self.names.union(*(self.formerly(name) for name in self.names))

    @property
    def ordered(self) -> frozenset[Address]:
        """Topics that a subscription reads which keeps order."""
        return frozenset(address for address, wanted in self.objects.items() if wanted.ordered)

    def by_namespace(self, namespace: NamespaceName) -> tuple[Expansion, ...]:
        """The topologies that live in a namespace."""
        return tuple(expansion for expansion in self.expansions if expansion.namespace == namespace)

    def formerly(self, name: str) -> frozenset[str]:
        """Earlier names of a topology: the topology takes over the objects that these names own."""
        return frozenset(
            old for expansion in self.expansions if expansion.name == name for old in expansion.topology.spec.formerly
        )


def desired(
    expansions: Iterable[Expansion], environment: str | None, sources: Mapping[str, Source] | None = None
) -> Desired:
    """The desired inventory of all expansions together; a namespace that no file owns is needed bare."""
    all_expansions = tuple(expansions)
    objects: dict[Address, DesiredObject] = {}
    for expansion in all_expansions:
        ignores = {topic.resource.address: topic.ignore for topic in expansion.topics}
        ordered = _ordered_topics(expansion)
        for address, resource in expansion.resources.items():
            objects[address] = DesiredObject(
                _together(resource, objects.get(address)),
                expansion.name,
                expansion.places.get(address),
                ignores.get(address, frozenset()),
                ordered=address in ordered,
            )
    for expansion in all_expansions:
        bare = NamespaceResource(expansion.namespace, {}, managed=None)
        objects.setdefault(bare.address, DesiredObject(bare, expansion.name, expansion.topology.where("namespace")))
    return Desired(all_expansions, environment, objects, sources or {})


def _together(resource: Resource, before: DesiredObject | None) -> Resource:
    """The resource together with its earlier declaration. Several files may declare one grant: the role gets
    all actions. No other object may be declared twice (K102).
    """
    if before is None or not isinstance(resource, GrantResource) or not isinstance(before.resource, GrantResource):
        return resource
    return replace(resource, actions=resource.actions | before.resource.actions)


def _ordered_topics(expansion: Expansion) -> frozenset[Address]:
    grounds = expansion.topology.spec.topics
    return frozenset(
        topic.resource.address
        for topic in expansion.topics
        if topic.subscription is None and any(s.type != "shared" for s in grounds[topic.ground].subscriptions.values())
    )


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """Backlog and use of a subscription, summed over partitions. The backlog counts entries (batches), not messages."""

    backlog_entries: int = 0
    backlog_bytes: int = 0
    consumers: int = 0
    steered: str | None = None  # live orders to workers (`kodo-steer`), kept by every apply


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Stored data and use of a topic, summed over partitions. Times are ms since the epoch, 0 = never."""

    storage_bytes: int = 0
    backlog_bytes: int = 0
    producers: int = 0
    consumers: int = 0
    busy_partitions: tuple[int, ...] = ()  # partitions with any connected client
    last_publish: int = 0
    idle_bytes: int = 0  # unread by durable subscriptions without consumers
    roles: tuple[tuple[str, int], ...] = ()  # role -> its connected consumers, where the broker tells roles
    unreplicated: tuple[
        tuple[str, int], ...
    ] = ()  # other cluster -> entries that it does not have yet, none that has all


@dataclass(frozen=True, slots=True)
class LiveObject:
    """A live object: its marker (the owner's name on it), and the facts about its use."""

    resource: Resource
    marker: str | None = None
    facts: TopicFacts | SubscriptionFacts | None = None
    stalls_delivery: bool = False  # a topic-level delayed-delivery value stands on it: always ours to remove


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Identity of a cluster: its name, and a UUID for each Pulsar tenant (None until a first apply stores one)."""

    cluster: str
    uuids: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Live:
    """Everything read from the cluster for one command."""

    identity: ClusterIdentity
    objects: Mapping[Address, LiveObject] = field(repr=False)
    ledgers: Mapping[NamespaceName, Mapping[str, Ledger]] = field(default_factory=dict, repr=False)
    namespace_policies: Mapping[NamespaceName, Policies] = field(default_factory=dict)
    broker_defaults: Policies = field(default_factory=dict)
    delays: Mapping[NamespaceName, DelayedDelivery] = field(default_factory=dict)  # in force there, where it is known
    default_delays: DelayedDelivery | None = None  # where a namespace says nothing; None: only super-users may ask
    clusters: frozenset[str] = frozenset()  # that the instance knows; none: not read
    bookies: int | None = None  # None: not asked, or only super-users may
    absent_tenants: frozenset[str] = frozenset()
    unsupported: frozenset[str] = frozenset()  # topic policies this broker does not have
    unseen: frozenset[NamespaceName] = frozenset()  # of which only topics and subscriptions could be read
    unread: Mapping[TopicName, str] = field(default_factory=dict)  # why only names are known of these
    policies_read: str = "bulk"  # how topic policies were read: bulk, single requests, or none needed

    @property
    def entries(self) -> Iterator[Ledger]:
        """All ledger entries."""
        for entries in self.ledgers.values():
            yield from entries.values()

    def entry(self, namespace: NamespaceName | None, name: str) -> Ledger | None:
        """The ledger entry of a topology in a namespace; None if it has none there."""
        return self.ledgers.get(namespace, {}).get(name) if namespace else None

    def topics_in(self, namespace: NamespaceName) -> Iterator[tuple[Address, TopicResource]]:
        """The topics of a namespace, by address."""
        for address, found in self.objects.items():
            if isinstance(found.resource, TopicResource) and found.resource.name.namespace == namespace:
                yield address, found.resource
