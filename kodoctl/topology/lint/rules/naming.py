"""K101, K102, K105: names that Pulsar refuses or that would be ambiguous, objects declared twice, misspelt names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from kodoctl.errors import Severity, Where
from kodoctl.text.formatting import many
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.names import RESERVED_NAMESPACE, RESERVED_PREFIX, TopicName, reserved_suffix, why_not_pulsar_name
from kodoctl.topology.resources import Address, TenantResource

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.yaml.nodes import Node

_PARTITION = "-partition-"
_TAKEN = ((RESERVED_PREFIX, "kodoctl's"), ("pulsar.", "Pulsar's (replicators)"))


@rule("K101", Severity.ERROR, "name that Pulsar refuses or that would be ambiguous")
def refused_names(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds names of topologies, tenants, namespaces, ground topics and subscriptions that Pulsar refuses, or that are
    kodoctl's or Pulsar's own, and ground topics and subscriptions that end in the suffix of a level, a state or audit.
    Of a partitioned topic, Pulsar refuses each name that contains `-partition-`, also one that joins two valid names.
    """
    for expansion in scope.expansions:
        yield from _head(expansion)
        yield from _joined(expansion)
        where = expansion.topology.where_key
        for ground, spec in expansion.topology.spec.topics.items():
            for problem in _problems(ground, "ground topic"):
                yield RuleMatch(where("topics", ground), problem)
            for subscription in spec.subscriptions:
                for problem in _problems(subscription, "subscription"):
                    yield RuleMatch(where("topics", ground, "subscriptions", subscription), problem)
                if owner := next((who for prefix, who in _TAKEN if subscription.startswith(prefix)), None):
                    detail = f"subscription {subscription!r}: names that begin so are {owner}: choose another"
                    yield RuleMatch(where("topics", ground, "subscriptions", subscription), detail)


def _head(expansion: Expansion) -> Iterator[RuleMatch]:
    spec = expansion.topology.spec
    for key, name in (("name", spec.name), ("tenant", spec.tenant), ("namespace", spec.namespace)):
        if reason := why_not_pulsar_name(name):
            yield RuleMatch(expansion.topology.where(key), f"{key} {name!r}: {reason}")
    if spec.namespace == RESERVED_NAMESPACE:
        detail = f"namespace {RESERVED_NAMESPACE!r} holds kodoctl's own lease and journal topics: choose another"
        yield RuleMatch(expansion.topology.where("namespace"), detail)


def _joined(expansion: Expansion) -> Iterator[RuleMatch]:
    """Yields partitioned topics whose name Pulsar refuses, although it takes the names that kodoctl joins to it. Of a
    ground topic that is refused itself, those of its subscriptions are left out.
    """
    found = [one for one in expansion.topics if one.resource.partitions and _PARTITION in one.name.local]
    refused = {topic.ground for topic in found if topic.subscription is None}
    for topic in found:
        parts = filter(None, (topic.ground, topic.subscription))
        is_reported = topic.subscription is not None and topic.ground in refused
        if not is_reported and not any(map(why_not_pulsar_name, parts)):
            detail = f"Pulsar creates no partitioned topic with {_PARTITION} in its name: choose another"
            yield RuleMatch(expansion.topology.where_key(*topic.path), detail, topic.name.local)


def _problems(name: str, what: str) -> Iterator[str]:
    if reason := why_not_pulsar_name(name):
        yield f"{what} {name!r}: {reason}"
    if suffix := reserved_suffix(name):
        yield f"{what} {name!r} ends in {suffix}, which names a level or state: it could not be told from one"


@rule("K102", Severity.ERROR, "declared twice")
def declared_twice(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds topology names that two files have; topics, namespace objects, Pulsar tenants and other objects of the
    whole cluster that two topologies declare; and topics that two entries of a file stand for. Two files may declare a
    tenant with the same values if at most one of them owns it.
    """
    owners: dict[str, Expansion] = {}
    for expansion in scope.expansions:
        first = owners.setdefault(expansion.name, expansion)
        if first is not expansion:
            yield _same_name(expansion, first)
        yield from _inside(expansion)
    yield from _across(scope)


def _same_name(expansion: Expansion, first: Expansion) -> RuleMatch:
    """The match for a second topology of the same name; its other duplicates follow from the name and are not reported."""
    both = len(expansion.resources.keys() & first.resources.keys())
    detail = f"name {expansion.name!r} is {first.topology.where('name')}'s already"
    if both:
        objects = "both declare " + many(both, "object")
        return RuleMatch(expansion.topology.where("name"), f"{detail}, and {objects}: is the topology given twice?")
    return RuleMatch(expansion.topology.where("name"), f"{detail}: every file has a name of its own")


def _inside(expansion: Expansion) -> Iterator[RuleMatch]:
    seen: dict[TopicName, FamilyTopic] = {}
    for topic in expansion.topics:
        first = seen.setdefault(topic.name, topic)
        if first is not topic:
            where = expansion.topology.where_key("topics", topic.ground)
            yield RuleMatch(where, f"{topic.name} belongs to {_owner(first)} and to {_owner(topic)}: rename one")


def _owner(topic: FamilyTopic) -> str:
    return topic.ground + (f", subscription {topic.subscription}" if topic.subscription else "")


def _across(scope: LintScope) -> Iterator[RuleMatch]:
    """Yields one match for each entry of a file that declares objects of another topology, however many they are."""
    seen: dict[Address, tuple[Expansion, object]] = {}
    found: dict[tuple[Where, Where], list[str]] = {}
    for expansion in scope.expansions:
        for resource in chain(expansion.frame, (topic.resource for topic in expansion.topics)):
            first, same = seen.setdefault(resource.address, (expansion, resource))
            if first.name == expansion.name or _may_repeat(resource, same):
                continue
            places = (expansion.places[resource.address], first.places[resource.address])
            found.setdefault(places, []).append(resource.address)
    for (where, before), addresses in found.items():
        more = f", with {many(len(addresses) - 1, 'other object')}" if len(addresses) > 1 else ""
        way = ": one file of a namespace has `namespace_policies`" if addresses[0].startswith("namespace.") else ""
        yield RuleMatch(where, f"{min(addresses, key=len)} is declared at {before} already{more}{way}")


def _may_repeat(resource: object, same: object) -> bool:
    """True for a tenant with the same values in two files, of which one owns it at most."""
    return (
        isinstance(resource, TenantResource)
        and isinstance(same, TenantResource)
        and same == resource
        and None in (same.home, resource.home)
    )


@rule("K105", Severity.WARNING, "an overlay adds what is spelled almost like something that is there")
def misspelt_in_overlays(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds topics, subscriptions, sources and tables that an overlay adds and whose names resemble one of the base: a
    slip there makes a new one, and leaves the old one unchanged.
    """
    for expansion in scope.expansions:
        topology = expansion.topology
        for key, what, below, part in _NAMED_MAPS:
            before = topology.source.root.members(key) if topology.source.root else {}
            for name, outer in topology.root.members(key).items():
                if found := _almost(name, before):
                    yield RuleMatch(outer.key_where, f"{what} {name!r}: the file has {found!r}; is it the one?")
                inner = before[name].members(below) if name in before else {}
                for one, node in outer.members(below).items():
                    if found := _almost(one, inner):
                        yield RuleMatch(node.key_where, f"{part} {one!r}: {name} has {found!r}; is it the one?")


# key of a map with names of the user, what it holds, the key below it with such names, and what that holds
_NAMED_MAPS = (("topics", "topic", "subscriptions", "subscription"), ("sources", "source", "tables", "table"))


def _almost(name: str, known: Mapping[str, Node]) -> str | None:
    near = get_close_matches(name, known, n=1, cutoff=0.85) if known and name not in known else []
    return near[0] if near else None
