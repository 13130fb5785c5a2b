"""Families in a live namespace: which topics belong together, by the naming rule run backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.topology.names import (
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
    """One subscription of an imported family."""

    states: tuple[State, ...] = ()
    dead_letter: TopicResource | None = None
    audit: TopicResource | None = None


@dataclass(frozen=True, slots=True)
class ImportedFamily:
    """One imported ground topic: its levels, its subscriptions, and every member by local name."""

    topic: TopicResource
    levels: tuple[Level, ...]
    readers: Mapping[str, ImportedSubscription]
    members: Mapping[str, TopicResource]


@dataclass(frozen=True, slots=True)
class UnownedObjects:
    """Objects of a namespace without an owner: partitioned topics and the subscriptions on them, by local name."""

    namespace: NamespaceName
    topics: Mapping[str, TopicResource]
    subscriptions: Mapping[str, frozenset[str]]
    policies: Policies
    grants: Mapping[str, tuple[str, ...]]
    cluster: str


def recognise_families(seen: UnownedObjects) -> dict[str, ImportedFamily]:
    """Every topic whose name is no level's or state's begins a family."""
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
    return replace(family, readers=readers, members=members)


def _importable(subscription: str) -> bool:
    fits = why_not_pulsar_name(subscription) is None and reserved_suffix(subscription) is None
    return fits and not subscription.startswith("kodo-")


def _fits(seen: UnownedObjects, local: str, partitions: int, subscriptions: list[str]) -> bool:
    """The topic is there, with the family's partitions, and all its subscriptions are on it."""
    there = seen.subscriptions.get(local, frozenset())
    return local in seen.topics and seen.topics[local].partitions == partitions and there.issuperset(subscriptions)


def _reader(
    ground: str, name: str, family: ImportedFamily, seen: UnownedObjects
) -> tuple[ImportedSubscription, dict[str, TopicResource]]:
    """A state belongs to the family when every level has it: one that some levels lack would be a creation."""
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


def expected_readers(ground: str, local: str, family: ImportedFamily) -> Iterator[str]:
    """Subscriptions that a family explains on one of its topics."""
    if local in {ready_name(ground, level) for level in family.levels}:
        yield from family.readers
        return
    for name, reader in family.readers.items():
        levels = [level for level in family.levels if not level.is_backup]
        if local in {state_name(ground, level, name, state) for level in levels for state in reader.states}:
            yield name
