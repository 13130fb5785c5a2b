"""Expansion of a topology into the Pulsar objects that it stands for. Pure: the same file gives the same resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, assert_never

from kodoctl.topology import defaults
from kodoctl.topology.change_sources import change_sources, sourced_grounds
from kodoctl.topology.function_expansion import function_resources
from kodoctl.topology.model.policies import NAMESPACE_POLICY_NAMES, PolicyValue, is_set
from kodoctl.topology.names import (
    HOLDER,
    WAITING_STATES,
    Level,
    NamespaceName,
    State,
    TopicName,
    audit_name,
    produced_topic,
    ready_name,
    state_name,
)
from kodoctl.topology.policy_layers import (
    DERIVED,
    DERIVED_AUDIT,
    DERIVED_DEAD_LETTER,
    DERIVED_SOURCED,
    Layer,
    merge_layers,
    of_every_topic,
    policy_layer,
    unset_by_name,
)
from kodoctl.topology.resources import (
    FUNCTION_KINDS,
    Address,
    ClusterResource,
    DatabaseResource,
    FailureDomainResource,
    FunctionResource,
    GrantResource,
    IsolationPolicyResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    PublicationResource,
    Resource,
    ResourceGroupResource,
    SchemaResource,
    SlotResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from kodoctl.topology.units import UNLIMITED, Duration

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.model.policies import PublishRate
    from kodoctl.topology.model.topology import GroundTopic, Subscription, Topology


@dataclass(frozen=True, slots=True)
class FamilyTopic:
    """A topic that a file stands for. `level` is None for dead letters and audit, `state` for audit, `subscription` for
    ready topics; `layers`: policies in the order of merging; `ignore`: policies that kodoctl leaves alone. `unset`:
    policies of ONLY_WHERE_NAMED that the file sets to `inherit`: kodoctl removes them from the topic, and would leave
    them alone if no place of the file named them. All other policies without a value are removed in any case.
    """

    resource: TopicResource
    ground: str
    level: Level | None
    state: State | None
    subscription: str | None
    layers: tuple[Layer, ...]
    ignore: frozenset[str]
    unset: frozenset[str] = frozenset()

    @property
    def name(self) -> TopicName:
        """Full name of the topic on the cluster."""
        return self.resource.name

    @property
    def path(self) -> tuple[str, ...]:
        """Path in the file of the entry that declares the topic: its subscription's, else its ground topic's."""
        ground = ("topics", self.ground)
        return ground if self.subscription is None else (*ground, "subscriptions", self.subscription)


@dataclass(frozen=True)
class Expansion:
    """Pulsar objects that one topology stands for: its topics, and all resources, which are computed on first use."""

    topology: LoadedTopology = field(repr=False)
    namespace: NamespaceName
    topics: tuple[FamilyTopic, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the topology, which is the owner of these resources."""
        return self.topology.spec.name

    def by_ground(self) -> dict[str, list[FamilyTopic]]:
        """Ground topic -> topics of its family; a ground topic without topics has []."""
        families: dict[str, list[FamilyTopic]] = {ground: [] for ground in self.topology.spec.topics}
        for topic in self.topics:
            families[topic.ground].append(topic)
        return families

    @property
    def frame(self) -> Iterator[PlatformResource | NamespaceResource]:
        """The Pulsar tenant, the namespace object and the objects of the whole cluster that the file declares."""
        return chain(_tenant_and_namespace(self.topology, self.namespace), _platform(self.topology, self.namespace))

    @cached_property
    def resources(self) -> Mapping[Address, Resource]:
        """All resources by address."""
        resources: Iterator[Resource] = chain(
            self.frame,
            (topic.resource for topic in self.topics),
            _schemas(self.topology, self.topics),
            _subscriptions(self.topology, self.topics),
            _grants(self.topology, self.namespace, self.topics),
            _database_objects(self.topology, self.namespace),
            (one.resource for one in self.topology.packages.values() if one.resource is not None),
            function_resources(self.topology.spec, self.namespace),
        )
        return {resource.address: resource for resource in resources}

    @cached_property
    def function_subscriptions(self) -> frozenset[Address]:
        """Addresses of the subscriptions that its functions and sinks read by."""
        functions = function_resources(self.topology.spec, self.namespace)
        return frozenset(address for one in functions for address in one.subscriptions)

    @cached_property
    def places(self) -> Mapping[Address, Where]:
        """Address of each resource -> the entry of the file that declares it."""
        return dict(_find_places(self))

    def readers(self, topic: FamilyTopic) -> list[Subscription]:
        """Subscriptions that a topic belongs to: all of its ground topic if it is a ready topic, else its own."""
        subscriptions = self.topology.spec.topics[topic.ground].subscriptions
        return [*subscriptions.values()] if topic.subscription is None else [subscriptions[topic.subscription]]

    def partitions_path(self, topic: FamilyTopic) -> tuple[str, ...]:
        """Path in the file of the number of partitions of a topic, of `partitioned` for a plain one; there may be no
        value at it, if the default applies.
        """
        is_plain = not topic.resource.partitions
        key = "partitioned" if is_plain else "partitions"
        if topic.state is State.DEAD and topic.subscription is not None:
            return (*topic.path, "dead_letter", key)
        own = is_plain or self.topology.spec.topics[topic.ground].partitions is not None
        return ("topics", topic.ground, key) if own else ("defaults", key)

    def is_draining(self, topic: FamilyTopic) -> bool:
        """True if the topic belongs to a draining state or level: workers read it and nobody writes to it."""
        ground = self.topology.spec.topics[topic.ground]
        if topic.subscription is not None and topic.state in ground.subscriptions[topic.subscription].draining:
            return True
        return topic.level in ground.draining

    @cached_property
    def distinct(self) -> tuple[FamilyTopic, ...]:
        """The first topic of each group of topics that share one object of policies: enough to check policies of all."""
        return tuple({id(topic.resource.policies): topic for topic in reversed(self.topics)}.values())[::-1]


def expand(topology: LoadedTopology) -> Expansion:
    """Expands a topology into its topics and resources. It checks neither names nor policies, which lint does."""
    spec = topology.spec
    namespace = NamespaceName(spec.tenant, spec.namespace)
    base = policy_layer(spec.defaults.policies, "defaults", "policies")
    on_states = policy_layer(spec.defaults.state_policies, "defaults", "state_policies")
    sourced = sourced_grounds(spec)
    topics = (
        topic
        for name, ground in spec.topics.items()
        for topic in _family(
            _TopicGroup(namespace, name, frozenset(ground.ignore)),
            spec,
            ground,
            base,
            on_states,
            sourced=name in sourced,
        )
    )
    return Expansion(topology, namespace, tuple(topics))


def _family(
    group: _TopicGroup, spec: Topology, ground: GroundTopic, base: Layer, base_on_states: Layer, *, sourced: bool
) -> Iterator[FamilyTopic]:
    """Yields ready topics by level, then, for each subscription, topics of its states, dead letters and audit.
    `sourced`: a source of change data sends to the ready topics.
    """
    name = group.ground
    replication = {"replication": ground.replication} if ground.replication else {}
    common = (base, policy_layer(ground.policies, "topics", name, "policies"), Layer(("topics", name), replication))
    on_states = (base_on_states, policy_layer(ground.state_policies, "topics", name, "state_policies"))
    parts = defaults.partitions(spec, ground)
    levels = defaults.read_levels(ground)
    below = tuple(map(of_every_topic, common))
    of_ready = (_unacked_limits(*defaults.unacked_budget(ground.subscriptions.values())), *common)
    group.start(None, parts, (DERIVED_SOURCED, *of_ready) if sourced else of_ready)
    for level in levels:
        yield group.topic(ready_name(name, level), level, State.READY)
    for sub, subscription in ground.subscriptions.items():
        own = ("topics", name, "subscriptions", sub)
        for state in defaults.read_states(subscription):
            budget = defaults.unacked_budget([subscription])
            group.start(sub, parts, (*below, derived_state(*budget), *on_states))
            for level in levels:
                if not level.is_backup:
                    yield group.topic(state_name(name, level, sub, state), level, state)
        if (dead := defaults.dead_letter(subscription)) is not None:
            layers = (*below, DERIVED_DEAD_LETTER, policy_layer(dead, *own, "dead_letter"))
            group.start(sub, defaults.dead_letter_partitions(dead), layers)
            yield group.topic(state_name(name, Level.L1, sub, State.DEAD), None, State.DEAD)
        if (audit := defaults.audit(subscription)) is not None:
            group.start(sub, parts, (*below, DERIVED_AUDIT, policy_layer(audit, *own, "audit")))
            yield group.topic(audit_name(name, sub), None, None)


class _TopicGroup:
    """Builds topics that differ only in level, with common layers and merged policies, after `start`."""

    def __init__(self, namespace: NamespaceName, ground: str, ignore: frozenset[str]) -> None:
        self.namespace, self.ground, self.ignore = namespace, ground, ignore

    def start(self, subscription: str | None, partitions: int, layers: tuple[Layer, ...]) -> None:
        self.subscription, self.partitions, self.layers = subscription, partitions, layers
        policies, self.unset = merge_layers(layers), unset_by_name(layers)
        self.policies = {name: policies[name] for name in policies if name not in self.ignore}

    def topic(self, local: str, level: Level | None, state: State | None) -> FamilyTopic:
        resource = TopicResource(TopicName(self.namespace, local), self.partitions, self.policies)
        return FamilyTopic(resource, self.ground, level, state, self.subscription, self.layers, self.ignore, self.unset)


@cache
def _unacked_limits(consumer: int, together: int) -> Layer:
    """Layer with the unacknowledged limits that the look-ahead needs, as far as they exceed the broker's defaults."""
    values: dict[str, PolicyValue] = {}
    if consumer > defaults.BROKER_UNACKED_PER_CONSUMER:
        values["max_unacked_per_consumer"] = consumer
    if together > defaults.BROKER_UNACKED_PER_SUBSCRIPTION:
        values["max_unacked_per_subscription"] = together
    return Layer(DERIVED, values, dict.fromkeys(values, "the look-ahead needs more than the broker's default"))


@cache
def derived_state(consumer: int, together: int) -> Layer:
    """Layer with the derived policies of waiting topics: messages of any schema version, and deduplication, so that
    recalls and releases, which may send twice, store once. Arguments: limits as of `unacked_budget`, of which the layer
    has those above the broker's defaults.
    """
    unacked = _unacked_limits(consumer, together)
    values = {**unacked.values, "schema_validation": False, "deduplication": True}
    why = {
        **unacked.why,
        "schema_validation": "messages come in any schema version",
        "deduplication": "recalls and releases send here, and what they send twice is dropped",
    }
    return Layer(DERIVED, values, why)


def _tenant_and_namespace(
    topology: LoadedTopology, namespace: NamespaceName
) -> Iterator[TenantResource | NamespaceResource]:
    spec = topology.spec
    if (tenant := spec.create_tenant) is not None:
        yield TenantResource(spec.tenant, frozenset(tenant.clusters), frozenset(tenant.admin_roles))
    if (policies := spec.namespace_policies) is not None:
        values = {name: getattr(policies, name) for name in NAMESPACE_POLICY_NAMES if name in policies.model_fields_set}
        yield NamespaceResource(
            namespace, {name: value for name, value in values.items() if is_set(value)}, frozenset(values)
        )


def _platform(topology: LoadedTopology, home: NamespaceName) -> Iterator[PlatformResource]:
    platform = topology.spec.platform
    if platform is None:
        return
    for name, tenant in platform.tenants.items():
        yield TenantResource(name, frozenset(tenant.clusters), frozenset(tenant.admin_roles), home)
    for name, cluster in platform.clusters.items():
        yield ClusterResource(
            name,
            cluster.service_url or "",
            cluster.service_url_tls or "",
            cluster.broker_service_url or "",
            cluster.broker_service_url_tls or "",
            home,
            {name: sorted(value) if isinstance(value, list) else value for name, value in cluster.settings.items()},
        )
    for name, group in platform.resource_groups.items():
        yield ResourceGroupResource(name, _limits(group.publish_rate), _limits(group.dispatch_rate), home)
    for name, domain in platform.failure_domains.items():
        yield FailureDomainResource(name, frozenset(domain.brokers), home)
    for name, policy in platform.isolation_policies.items():
        yield IsolationPolicyResource(
            name,
            frozenset(policy.namespaces),
            frozenset(policy.primary),
            frozenset(policy.secondary),
            policy.min_available,
            policy.usage_threshold,
            home,
        )


def _limits(rate: PublishRate | None) -> dict[str, str]:
    """The limits of a rate as texts; {} if nothing is limited."""
    values = {} if rate is None else {"messages": rate.messages, "size": rate.size}
    return {name: str(value) for name, value in values.items() if value != UNLIMITED}


def _schemas(topology: LoadedTopology, topics: Iterable[FamilyTopic]) -> Iterator[SchemaResource]:
    for topic in topics:
        payload = topology.payloads.get(topic.ground)
        if (
            topic.state is State.READY
            and payload is not None
            and payload.type == "avro"
            and payload.definition is not None
        ):
            import json  # most files name no schema, and it takes 1 ms

            definition = json.dumps(payload.definition, sort_keys=True, separators=(",", ":"))
            yield SchemaResource(topic.name, "AVRO", definition)


def _subscriptions(topology: LoadedTopology, topics: Iterable[FamilyTopic]) -> Iterator[SubscriptionResource]:
    grounds = topology.spec.topics
    for topic in topics:
        match topic.state:
            case State.READY:
                for name, subscription in grounds[topic.ground].subscriptions.items():
                    start = subscription.start if topic.level is Level.L1 else "earliest"
                    yield SubscriptionResource(topic.name, name, start)
            case State.DEAD:
                yield SubscriptionResource(topic.name, HOLDER)
            case None:
                pass
            case _:
                assert topic.subscription is not None
                yield SubscriptionResource(topic.name, topic.subscription)


def _grants(
    topology: LoadedTopology, namespace: NamespaceName, topics: Iterable[FamilyTopic]
) -> Iterator[GrantResource]:
    """Yields the least grants that the roles need: one for each topic or namespace and role, with all its actions."""
    needed: dict[tuple[TopicName | NamespaceName, str], set[str]] = defaultdict(set)
    for role, actions in topology.spec.namespace_grants.items():
        needed[namespace, role].update(actions)
    for topic in topics:
        ground = topology.spec.topics[topic.ground]
        for role, action in _topic_grants(topic, ground):
            needed[topic.name, role].add(action)
    for ground in topology.spec.topics.values():
        for subscription in ground.subscriptions.values():
            for role in subscription.workers:
                for target in subscription.produces:
                    needed[produced_topic(namespace, target), role].add("produce")
    for (target_name, role), found in needed.items():
        yield GrantResource(target_name, role, frozenset(found))


def _database_objects(topology: LoadedTopology, namespace: NamespaceName) -> Iterator[DatabaseResource]:
    for source in change_sources(topology.spec):
        database, tables = source.spec.database, frozenset(table.name for table in source.tables)
        yield PublicationResource(namespace, database, source.publication, tables, frozenset(source.operations))
        yield SlotResource(namespace, database, source.slot)


def _topic_grants(topic: FamilyTopic, ground: GroundTopic) -> Iterator[tuple[str, str]]:
    subscriptions = [s for name, s in ground.subscriptions.items() if topic.subscription in (None, name)]
    if topic.state is State.READY:
        yield from ((role, "produce") for role in ground.producers)
    for subscription in subscriptions:
        for role in subscription.workers:
            yield role, "produce"
            if topic.state is State.READY or topic.state in WAITING_STATES:
                yield role, "consume"
        for role in subscription.recall:
            if topic.state is State.DEAD:
                yield role, "consume"
            if topic.state in (State.READY, State.RETRYING):
                yield role, "produce"


def declared_limits(topology: LoadedTopology) -> dict[str, int]:
    """Full topic name -> `max_message_size` in bytes, for the topics that declare one."""
    sizes = {topic.name.full: topic.resource.policies.get("max_message_size") for topic in expand(topology).topics}
    return {topic: size for topic, size in sizes.items() if isinstance(size, int)}


def declared_compression(topology: LoadedTopology) -> dict[str, str]:
    """Full topic name -> algorithm of `compression`, for all topics of the families that compress."""
    grounds = topology.spec.topics
    found = {topic.name.full: grounds[topic.ground].compression for topic in expand(topology).topics}
    return {topic: algorithm for topic, algorithm in found.items() if algorithm != "none"}


def declared_ttls(topology: LoadedTopology) -> dict[str, int]:
    """Full topic name -> `ttl` in ms, for the topics of which messages expire: by a value of their own, else by the one
    that the same file declares for their namespace. A topic that ignores `ttl` counts as one without a value of its
    own.
    """
    policies = topology.spec.namespace_policies
    of_all = None if policies is None else policies.ttl
    found = {topic.name.full: topic.resource.policies.get("ttl", of_all) for topic in expand(topology).topics}
    return {topic: int(ttl) for topic, ttl in found.items() if isinstance(ttl, Duration)}


def _find_places(expansion: Expansion) -> Iterator[tuple[Address, Where]]:
    """Yields (address, place) for each resource: topics and subscriptions have the entry that declares them, others the
    entry of their topic or a key at the top of the file.
    """
    topology = expansion.topology
    of_topic = {topic.name: topology.where_key(*topic.path) for topic in expansion.topics}
    ground_of = {topic.name: topic.ground for topic in expansion.topics}
    of_slot = {source.slot: source.name for source in change_sources(topology.spec)}
    for address, resource in expansion.resources.items():
        match resource:
            case TopicResource(name=name):
                yield address, of_topic[name]
            case SubscriptionResource(topic=name, name=subscription):
                path = ("topics", ground_of[name], "subscriptions", subscription)
                yield address, of_topic[name] if subscription == HOLDER else topology.where_key(*path)
            case SchemaResource(topic=name):
                yield address, topology.where_key("topics", ground_of[name], "payload")
            case GrantResource(target=TopicName() as name):
                yield address, of_topic.get(name, topology.where_key("topics"))
            case GrantResource():
                yield address, topology.where_key("namespace_grants")
            case NamespaceResource():
                yield address, topology.where_key("namespace_policies")
            case TenantResource(home=None):
                yield address, topology.where_key("create_tenant")
            case TenantResource(name=name):
                yield address, topology.where_key("platform", "tenants", name)
            case ClusterResource(name=name):
                yield address, topology.where_key("platform", "clusters", name)
            case ResourceGroupResource(name=name):
                yield address, topology.where_key("platform", "resource_groups", name)
            case FailureDomainResource(name=name):
                yield address, topology.where_key("platform", "failure_domains", name)
            case IsolationPolicyResource(name=name):
                yield address, topology.where_key("platform", "isolation_policies", name)
            case PublicationResource(name=name) | SlotResource(name=name):
                yield address, topology.where_key("sources", of_slot[name])
            case FunctionResource(kind=kind, name=name):
                yield address, topology.where_key(FUNCTION_KINDS[kind], name)
            case PackageResource(url=url):
                yield address, topology.where_key("packages", url)
            case _:
                assert_never(resource)
