"""Families in a live namespace: topics are assigned to families by their names, as the naming rule makes these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kodoctl.text.formatting import many
from kodoctl.topology.names import (
    RESERVED_PREFIX,
    WAITING_STATES,
    Level,
    NamespaceName,
    State,
    audit_name,
    ready_name,
    reserved_suffix,
    state_name,
    why_not_pulsar_name,
)

if TYPE_CHECKING:
    from kodoctl.topology.model.policies import Policies
    from kodoctl.topology.resources import TopicResource


@dataclass(frozen=True, slots=True)
class ImportedSubscription:
    """One subscription of an imported family: its waiting states, and its dead letter and audit topics, as far as their
    topics belong to the family (None: none does).
    """

    states: tuple[State, ...] = ()
    dead_letter: TopicResource | None = None
    audit: TopicResource | None = None


@dataclass(frozen=True, slots=True)
class ImportedFamily:
    """One imported ground topic (a topic that producers send to): its levels, L1 included, its subscriptions that a
    file can declare, by name, and every topic of the family by local name, the ground topic included. `producers`:
    roles that may produce to the ready topic of every level, and do nothing else there.
    """

    topic: TopicResource
    levels: tuple[Level, ...]
    readers: Mapping[str, ImportedSubscription]
    members: Mapping[str, TopicResource]
    producers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnownedObjects:
    """Topics of a namespace that no topology owns, and its policies and grants that no other topology owns or gives, as
    far as a file can express them, with all subscriptions that were read in the namespace. `topics`:
    topics by local name; `subscriptions`: names by local name of their topic; `grants`: actions on the namespace by
    role; `cluster`: name of the cluster; `producers`: roles that may produce, and nothing else, by local name of their
    topic.
    """

    namespace: NamespaceName
    topics: Mapping[str, TopicResource]
    subscriptions: Mapping[str, frozenset[str]]
    policies: Policies
    grants: Mapping[str, tuple[str, ...]]
    cluster: str
    producers: Mapping[str, Collection[str]] = field(default_factory=dict)


def recognise_families(seen: UnownedObjects) -> dict[str, ImportedFamily]:
    """Returns the family of each ground topic, by its local name, sorted. Each topic of `seen` whose name is valid and
    has no suffix of a level, state or audit is a ground topic. A topic of a level belongs to the family only if it has
    the partitions of the ground topic, and at least those of its subscriptions that a file can declare. Topics of other
    kinds are of one such subscription: a topic of a waiting state belongs to the family only if each of its levels but
    a backup has one with these partitions and the subscription; an audit topic only if it has these partitions; a dead
    letter topic always.
    """
    return {
        local: _family(local, seen)
        for local in sorted(seen.topics)
        if reserved_suffix(local) is None and why_not_pulsar_name(local) is None
    }


def _family(ground: str, seen: UnownedObjects) -> ImportedFamily:
    topic = seen.topics[ground]
    names = sorted(s for s in seen.subscriptions.get(ground, frozenset()) if _importable(s))
    levels = tuple(level for level in Level if _fits(seen, ready_name(ground, level), topic.partitions, names))
    family = ImportedFamily(
        topic, levels, {}, {ready_name(ground, level): seen.topics[ready_name(ground, level)] for level in levels}
    )
    readers: dict[str, ImportedSubscription] = {}
    members = dict(family.members)
    for name in names:
        readers[name], more = _reader(ground, name, family, seen)
        members.update(more)
    roles = [frozenset(seen.producers.get(ready_name(ground, level), ())) for level in levels]
    producers = tuple(sorted(frozenset.intersection(*roles)))
    return replace(family, readers=readers, members=members, producers=producers)


def _importable(subscription: str) -> bool:
    fits = why_not_pulsar_name(subscription) is None and reserved_suffix(subscription) is None
    return fits and not subscription.startswith(RESERVED_PREFIX)


def _fits(seen: UnownedObjects, local: str, partitions: int, subscriptions: list[str]) -> bool:
    """True if the topic exists with as many partitions as its family, and has all these subscriptions."""
    there = seen.subscriptions.get(local, frozenset())
    return local in seen.topics and seen.topics[local].partitions == partitions and there.issuperset(subscriptions)


def _reader(
    ground: str, name: str, family: ImportedFamily, seen: UnownedObjects
) -> tuple[ImportedSubscription, dict[str, TopicResource]]:
    """The subscription of the family, and its topics by local name. A state belongs to the family only if every level
    has it, because an apply would create missing topics.
    """
    members: dict[str, TopicResource] = {}
    states = []
    for state in WAITING_STATES:
        locals_ = [state_name(ground, level, name, state) for level in family.levels if not level.is_backup]
        if all(_fits(seen, local, family.topic.partitions, [name]) for local in locals_):
            states.append(state)
            members.update({local: seen.topics[local] for local in locals_})
    dead = seen.topics.get(state_name(ground, Level.L1, name, State.DEAD))
    audit = seen.topics.get(audit_name(ground, name))
    if audit is not None and audit.partitions != family.topic.partitions:
        audit = None
    members.update({topic.name.local: topic for topic in (dead, audit) if topic is not None})
    return ImportedSubscription(tuple(states), dead, audit), members


def misfit_reason(
    local: str, seen: UnownedObjects, families: Mapping[str, ImportedFamily], topics: Mapping[str, TopicResource]
) -> str:
    """The reason why a topic with the suffix of a level, state or audit, which belongs to none of `families`, does not.
    `topics`: all topics of the namespace by local name, it and those with an owner included.
    """
    grounds = [ground for ground in topics if local.startswith(ground) and local in set(_member_names(ground, seen))]
    if not grounds:
        return "no topic, or no subscription of it, has the name before that"
    ground = max(grounds, key=len)
    if ground not in families:
        return f"it is of the family of {ground}, which is not in this file"
    own, family = topics[local].partitions, topics[ground].partitions
    if own != family and not local.endswith(State.DEAD.suffix):
        return f"it has {_partitions(own)}, and {ground} {_partitions(family)}"
    return f"it lacks a subscription of {ground}, or another level of {ground} lacks such a topic"


def _partitions(number: int) -> str:
    return many(number, "partition") if number else "no partitions"


def _member_names(ground: str, seen: UnownedObjects) -> Iterator[str]:
    """Yields the local names of all topics that a family may have beside its ground topic."""
    for level in Level:
        if level.suffix:
            yield ready_name(ground, level)
        for name in seen.subscriptions.get(ground, ()):
            yield from (state_name(ground, level, name, state) for state in (*WAITING_STATES, State.DEAD))
            yield audit_name(ground, name)


def expected_readers(ground: str, local: str, family: ImportedFamily) -> Iterator[str]:
    """Yields the subscriptions of the family that read its topic `local`; none for a dead letter or audit topic. The
    holder of dead letters is not one of them. `ground`: local name of the ground topic.
    """
    if local in {ready_name(ground, level) for level in family.levels}:
        yield from family.readers
        return
    for name, reader in family.readers.items():
        levels = [level for level in family.levels if not level.is_backup]
        if local in {state_name(ground, level, name, state) for level in levels for state in reader.states}:
            yield name
