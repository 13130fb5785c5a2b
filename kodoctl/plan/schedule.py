"""Order of a plan's changes, as a graph: changes that do not depend on each other run side by side.

The order is clusters, tenants and resource groups, namespace, topics with their policies, then subscriptions, schemas
and grants. A lower retention of a namespace waits for the topics, because they may have copied the old value. Deletes
come last and in reverse. Objects that are only forgotten come first, because only ledger and marker are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from graphlib import TopologicalSorter
from typing import assert_never

from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, PolicyChange, Update
from kodoctl.plan.ownership import namespace_of
from kodoctl.plan.policy_write_order import intermediate_value
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    Address,
    ClusterResource,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    PublicationResource,
    Resource,
    SchemaResource,
    SlotResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)


class UpdatePhase(Enum):
    """The part of a change's policies that a step writes. An update of a namespace has an early step before the topics'
    steps, a late step after them, or both; any other change has one step (ALL).
    """

    ALL = "all"
    EARLY = "early"
    LATE = "late"


StepKey = tuple[Address, str, UpdatePhase]
_Graph = dict[StepKey, set[StepKey]]  # each step with those before it


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule: a change, or the early or late part of a namespace's update."""

    change: Change
    part: UpdatePhase = UpdatePhase.ALL

    @property
    def key(self) -> StepKey:
        """Key that is unique in a plan: one object can be both adopted and updated."""
        return (self.change.address, type(self.change).__name__, self.part)

    def policy_changes(self) -> tuple[PolicyChange, ...]:
        """Returns the policy changes that this step of an update writes, as far as an intermediate value or from there
        for EARLY and LATE; () if the change is not an update.
        """
        return _policy_changes(self.change, self.part) if isinstance(self.change, Update) else ()


Level = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps of a plan by levels of their graph: the steps of a level do not depend on each other. `building`: all steps
    but deletes; `deleting`: the deletes, after them; `waits_for`: key of each step -> keys of the steps on which it
    depends directly, and which must end before it, all in the same one of `building` and `deleting`.
    """

    building: tuple[Level, ...]
    deleting: tuple[Level, ...]
    waits_for: Mapping[StepKey, frozenset[StepKey]]

    @property
    def size(self) -> int:
        """Number of steps."""
        return sum(map(len, self.levels))

    @property
    def levels(self) -> tuple[Level, ...]:
        """All levels in the order of execution."""
        return (*self.building, *self.deleting)


def schedule(changes: Iterable[Change]) -> Schedule:
    """Returns the steps of the changes, sorted into levels. Steps of one level do not depend on each other. Deletes
    come after everything else.
    """
    steps = [step for change in changes for step in _steps(change)]
    deletes = [step for step in steps if isinstance(step.change, Delete)]
    others = [step for step in steps if not isinstance(step.change, Delete)]
    graphs = (_graph(others, _building(others)), _graph(deletes, _deleting(deletes)))
    by_key = {step.key: step for step in steps}
    building, deleting = (_levels(graph, by_key) for graph in graphs)
    return Schedule(building, deleting, {key: frozenset(before) for graph in graphs for key, before in graph.items()})


def _levels(graph: _Graph, by_key: Mapping[StepKey, Step]) -> tuple[Level, ...]:
    """Sorts the steps into levels with the standard library: loading networkx takes longer than planning a
    hundred topics.
    """
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    levels = []
    while sorter.is_active():
        level = sorter.get_ready()
        sorter.done(*level)
        levels.append(tuple(sorted((by_key[key] for key in level), key=lambda step: step.change.address)))
    return tuple(levels)


def _graph(steps: list[Step], edges: Iterator[tuple[Step, Step]]) -> _Graph:
    graph: _Graph = {step.key: set() for step in steps}
    for before, after in edges:
        graph[after.key].add(before.key)
    return graph


def _steps(change: Change) -> Iterator[Step]:
    if isinstance(change, Update) and isinstance(change.after, NamespaceResource):
        yield from (
            Step(change, part) for part in (UpdatePhase.EARLY, UpdatePhase.LATE) if _policy_changes(change, part)
        )
    else:
        yield Step(change)


def _building(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    tenants: dict[str, Step] = {}
    namespaces: dict[NamespaceName, Step] = {}
    topics: dict[TopicName, list[Step]] = {}
    adopted = {step.change.address: step for step in steps if isinstance(step.change, Adopt)}
    for step in steps:
        resource = resource_of(step.change)
        if isinstance(step.change, Forget):
            continue
        if isinstance(resource, TenantResource):
            tenants[resource.name] = step
        elif isinstance(resource, NamespaceResource) and step.part is not UpdatePhase.LATE:
            namespaces[resource.name] = step
        elif isinstance(resource, TopicResource):
            topics.setdefault(resource.name, []).append(step)
    packages = {r.url: step for step in steps if isinstance(r := resource_of(step.change), PackageResource)}
    yield from _platform_order(steps, namespaces)
    for step in steps:
        resource = resource_of(step.change)
        namespace = namespace_of(resource) if resource is not None else None
        adoption = adopted.get(step.change.address) if isinstance(step.change, Update) else None
        if adoption is not None and isinstance(resource, FunctionResource | PlatformResource):
            yield adoption, step
        if isinstance(step.change, Forget) or isinstance(resource, PlatformResource) or namespace is None:
            continue
        if namespace.tenant in tenants:
            yield tenants[namespace.tenant], step
        if namespace in namespaces and namespaces[namespace] is not step:
            yield namespaces[namespace], step
        if isinstance(resource, FunctionResource) and resource.package in packages:
            yield packages[resource.package], step
        yield from _after_topics(step, resource, topics)


def _platform_order(steps: list[Step], namespaces: Mapping[NamespaceName, Step]) -> Iterator[tuple[Step, Step]]:
    """Yields (first, second) of objects of the whole cluster and the steps `namespaces`, in the order of creation; of
    deletions it is the other way round. A home that is created or deleted comes first, because its ledger lists the
    objects, and then come the namespaces that may use them. Clusters come before tenants, which name them, and tenants
    before their namespaces. Homes that waited for each other would have no order: the tenant of a home waits for no
    home, and a home waits only for its resource group of another home, if that one has no such need itself.
    """
    found = [
        (step, resource)
        for step in steps
        if isinstance(resource := resource_of(step.change), PlatformResource) and not isinstance(step.change, Forget)
    ]
    declaring = {one.home for _, one in found if one.home is not None} & namespaces.keys()
    homes = {home for home in declaring if isinstance(namespaces[home].change, Create | Delete)}
    places = {one.address: one.home for _, one in found}
    needing = {home for home in homes if places.get(_group_address(namespaces[home])) in homes - {home}}
    tenants = {f"tenant.{home.tenant}" for home in homes}
    for step, resource in found:
        home = resource.home if resource.home in homes else None
        if home is not None and resource.address not in tenants:
            yield namespaces[home], step
        for namespace, other in namespaces.items():
            if isinstance(resource, TenantResource):
                is_second = resource.name == namespace.tenant
            else:
                is_second = home is None or namespace not in homes or (home not in needing and namespace in needing)
            if is_second:
                yield step, other
        if isinstance(resource, ClusterResource):
            named = ((other, one) for other, one in found if isinstance(one, TenantResource))
            yield from ((step, other) for other, one in named if home is None or one.address not in tenants)


def _group_address(namespace: Step) -> Address:
    """Address of the resource group that a namespace is to be in, or was in."""
    resource = resource_of(namespace.change)
    assert isinstance(resource, NamespaceResource)
    return f"resource_group.{resource.policies.get('resource_group')}"


def _after_topics(
    step: Step, resource: Resource | None, topics: dict[TopicName, list[Step]]
) -> Iterator[tuple[Step, Step]]:
    match resource:
        case SubscriptionResource(topic=name) | SchemaResource(topic=name) | GrantResource(target=TopicName() as name):
            for topic in topics.get(name, []):
                yield topic, step
        case FunctionResource() as function:
            for name in function.topics_among(topics):
                for topic in topics.get(name, []):
                    yield topic, step
        case TopicResource(name=name) if isinstance(step.change, Update):
            for topic in topics[name]:
                if isinstance(topic.change, Adopt):
                    yield topic, step
        case NamespaceResource(name=namespace) if step.part is UpdatePhase.LATE:
            for name, found in topics.items():
                if name.namespace == namespace:
                    for topic in found:
                        yield topic, step
        case _:
            pass


def _deleting(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    resources = [(step, resource_of(step.change)) for step in steps]
    topics = {resource.name: step for step, resource in resources if isinstance(resource, TopicResource)}
    namespaces = {resource.name: step for step, resource in resources if isinstance(resource, NamespaceResource)}
    publications = {(r.database, r.name): step for step, r in resources if isinstance(r, PublicationResource)}
    packages = {resource.url: step for step, resource in resources if isinstance(resource, PackageResource)}
    for step, resource in resources:
        match resource:
            case SubscriptionResource(topic=name) | GrantResource(target=TopicName() as name) if name in topics:
                yield topics[name], step  # it goes with its topic: done when that is done
            case FunctionResource() as function:  # first: it needs its topics, and it is connected to them
                yield from ((step, topics[name]) for name in function.topics_among(topics) if name in topics)
                if function.package in packages:
                    yield step, packages[function.package]
            case SlotResource(database=database, name=name) if (database, name) in publications:
                yield step, publications[database, name]  # a slot cannot be read without its publication
            case _:
                pass
        namespace = namespace_of(resource) if resource is not None else None
        if isinstance(resource, PlatformResource):
            continue
        if namespace in namespaces and namespaces[namespace] is not step:
            yield step, namespaces[namespace]
    yield from ((second, first) for first, second in _platform_order(steps, namespaces))


def _policy_changes(change: Update, part: UpdatePhase) -> tuple[PolicyChange, ...]:
    """The policy changes that `part` of a change writes: all of them, those up to an intermediate value, or
    those from it.
    """
    policies = change.policy_changes
    match part:
        case UpdatePhase.ALL:
            return policies
        case UpdatePhase.EARLY:
            return tuple(replace(p, after=m) for p in policies if (m := intermediate_value(p)) != p.before)
        case UpdatePhase.LATE:
            return tuple(replace(p, before=m) for p in policies if (m := intermediate_value(p)) != p.after)
        case _:
            assert_never(part)


def resource_of(change: Change) -> Resource | None:
    """Returns the object of a change: as it will be if it is created or updated, else as it was. None for a `Forget`
    without `before`.
    """
    return change.after if isinstance(change, Create | Update) else change.before
