"""Declared side of a plan: the objects of all files of a command. The live side is in
`kodoctl.pulsar.values.live_objects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kodoctl.topology.resources import Address, GrantResource, NamespaceResource, Resource, TenantResource

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.pulsar.values.ledger import Source
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.names import NamespaceName


@dataclass(frozen=True, slots=True)
class DesiredObject:
    """A declared object: the topology `owner` that declares it (the last one, for a grant that several declare), the
    place in its file, and `ignore`, the policies of a topic that are neither compared nor written. `unset`: policies of
    ONLY_WHERE_NAMED that the file unsets on a topic by name (`inherit`); without that they would be left alone.
    `ordered`: see `Desired.ordered`.
    """

    resource: Resource
    owner: str
    where: Where | None = None
    ignore: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()
    ordered: bool = False  # a subscription that keeps order reads it (K405)


@dataclass(frozen=True)
class Desired:
    """Desired inventory: all declarations of the files of a command. `expansions`: one for each topology;
    `environment`: name of the overlay, None for the base; `objects`: all declared objects by address, and the namespace
    of each topology; `destroyed`: names of topologies of which nothing is wanted any more. In a destroy, `expansions`
    and `objects` are empty.
    """

    expansions: tuple[Expansion, ...] = field(repr=False)
    environment: str | None
    objects: Mapping[Address, DesiredObject] = field(repr=False)
    sources: Mapping[str, Source] = field(default_factory=dict)  # topology name -> where its file lives
    destroyed: frozenset[str] = frozenset()  # names of topologies of which nothing is wanted any more

    @cached_property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces of the topologies in `expansions`, each once, sorted; () in a destroy."""
        return tuple(sorted({expansion.namespace for expansion in self.expansions}))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the topologies of the files, and of those that are destroyed."""
        return frozenset(expansion.name for expansion in self.expansions) | self.destroyed

    @cached_property
    def all_names(self) -> frozenset[str]:
        """The names of the topologies now and earlier: all names whose ledger entries belong to these files. A destroy
        has no earlier names.
        """
        return self.names.union(*(self.formerly(name) for name in self.names))

    @property
    def ordered(self) -> frozenset[Address]:
        """Addresses of the topics of levels with a subscription that keeps order, which is one of another type than
        `shared`.
        """
        return frozenset(address for address, wanted in self.objects.items() if wanted.ordered)

    def by_namespace(self, namespace: NamespaceName) -> tuple[Expansion, ...]:
        """Expansions of the topologies whose own namespace this is; () if there is no such topology."""
        return tuple(expansion for expansion in self.expansions if expansion.namespace == namespace)

    def formerly(self, name: str) -> frozenset[str]:
        """Earlier names of a topology in `expansions`, which takes over the objects that these names own; none of any
        other name.
        """
        return self._former_names.get(name, frozenset())

    @cached_property
    def _former_names(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for expansion in self.expansions:
            found[expansion.name] = found.get(expansion.name, frozenset()).union(expansion.topology.spec.formerly)
        return found


def desired_inventory(
    expansions: Iterable[Expansion], environment: str | None, sources: Mapping[str, Source] | None = None
) -> Desired:
    """Returns the desired inventory of all expansions together. A grant that several files declare has the actions of
    all; of a Pulsar tenant, the declaration of the file that owns it counts, if one does. The caller has made sure
    (K102) that these tenants are alike, and that no other object is declared twice. A namespace whose policies no file
    declares is added without policies: it only has to exist. `sources`: topology name -> location of its file.
    """
    all_expansions = tuple(expansions)
    objects: dict[Address, DesiredObject] = {}
    for expansion in all_expansions:
        topics = {topic.resource.address: (topic.ignore, topic.unset) for topic in expansion.topics}
        ordered = _ordered_topics(expansion)
        for address, resource in expansion.resources.items():
            if (before := objects.get(address)) is not None and _is_owned_tenant(before.resource):
                continue  # another file only creates it if it is absent
            objects[address] = DesiredObject(
                _together(resource, before),
                expansion.name,
                expansion.places.get(address),
                *topics.get(address, (frozenset(), frozenset())),
                ordered=address in ordered,
            )
    for expansion in all_expansions:
        bare = NamespaceResource(expansion.namespace, {}, managed=None)
        objects.setdefault(bare.address, DesiredObject(bare, expansion.name, expansion.topology.where("namespace")))
    return Desired(all_expansions, environment, objects, sources or {})


def _is_owned_tenant(resource: Resource) -> bool:
    return isinstance(resource, TenantResource) and resource.home is not None


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
