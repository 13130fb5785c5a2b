"""A live namespace as a topology file: the same road backwards.

Families are recognised by the naming rule, then the file is planned against the very inventory it was made from, and what
would not be adopted as it is leaves the file, with the reason. So the law holds by construction: import, then plan, is
Adopt only (and a Create of `kodo-hold` where dead letters have no holder).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kodoctl.errors import KodoctlError
from kodoctl.plan.changes import Adopt, Change, Update
from kodoctl.plan.diff import diff
from kodoctl.plan.import_document import document, render
from kodoctl.plan.inventory import Live, desired
from kodoctl.plan.ownership import claim
from kodoctl.topology.expand import Expansion
from kodoctl.topology.lint import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.names import (
    AUDIT_SUFFIX,
    HOLDER,
    WAITING_STATES,
    Level,
    NamespaceName,
    State,
    TopicName,
    audit_name,
    ready_name,
    reserved_suffix,
    state_name,
    why_not_pulsar_name,
)
from kodoctl.topology.policies import Foreign, Policies
from kodoctl.topology.resources import Address, GrantResource, NamespaceResource, SubscriptionResource, TopicResource


@dataclass(frozen=True, slots=True)
class Reader:
    """One subscription of an imported family."""

    states: tuple[State, ...] = ()
    dead_letter: TopicResource | None = None
    audit: TopicResource | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """One imported ground topic: its levels, its subscriptions, and every member by local name."""

    topic: TopicResource
    levels: tuple[Level, ...]
    readers: Mapping[str, Reader]
    members: Mapping[str, TopicResource]


@dataclass(frozen=True, slots=True)
class Seen:
    """What nobody owns in a namespace: partitioned topics and the subscriptions on them, by local name."""

    namespace: NamespaceName
    topics: Mapping[str, TopicResource]
    subscriptions: Mapping[str, frozenset[str]]
    policies: Policies
    grants: Mapping[str, tuple[str, ...]]
    cluster: str


@dataclass(frozen=True, slots=True)
class Import:
    """The file's text, and what it leaves out with the reason."""

    text: str
    left_out: tuple[tuple[Address, str], ...]
    families: int
    adopted: int


def import_namespace(live: Live, namespace: NamespaceName, name: str) -> Import:
    """The file for everything in a namespace that nobody owns and the format can say."""
    left_out: dict[Address, str] = dict(_unfit(live, namespace))
    excluded: set[str] = set()
    while True:
        seen = _seen(live, namespace, excluded)
        families = recognise(seen)
        expansions, findings = _load(render(document(name, seen, families), {}))
        changes = diff(desired(expansions, None), live).changes
        wrong = dict(_not_adopted(changes))
        new = {topic.local: (topic, reason) for topic, reason in wrong.items() if topic.local not in excluded}
        if not new:
            break
        for found, reason in new.values():
            excluded.add(found.local)
            left_out[f"topic.{found}"] = reason
    members = {member for family in families.values() for member in family.members}
    for local, topic in seen.topics.items():
        if local not in members:
            left_out.setdefault(f"topic.{topic.name}", _why_not(local))
    left_out.update(_odd_subscriptions(seen, families))
    text = render(document(name, seen, families), left_out, findings)
    adopted = sum(isinstance(change, Adopt) for change in changes)
    return Import(text, tuple(sorted(left_out.items())), len(families), adopted)


def _load(text: str) -> tuple[tuple[Expansion, ...], dict[int, set[str]]]:
    """The file's expansion, and line -> codes of what lint finds in it: allowed there, because nobody wrote it."""
    expansions, findings = check_set([source_of(text.encode(), "import")], None)
    if not expansions:
        raise KodoctlError(*findings)
    found: dict[int, set[str]] = {}
    for finding in findings:
        assert finding.where is not None
        found.setdefault(finding.where.line, set()).add(finding.code)
    return expansions, found


def _not_adopted(changes: tuple[Change, ...]) -> Iterator[tuple[TopicName, str]]:
    """Topics that the file would change, with what would change: they leave it."""
    for change in changes:
        if isinstance(change, Update) and isinstance(change.after, TopicResource):
            names = ", ".join(field.name.removeprefix("policies.") for field in change.fields)
            yield change.after.name, f"the format cannot say its {names} beside its family's"


def _unfit(live: Live, namespace: NamespaceName) -> Iterator[tuple[Address, str]]:
    for address, found in live.objects.items():
        topic = found.resource
        if not isinstance(topic, TopicResource) or topic.name.namespace != namespace:
            continue
        foreign = sorted(name for name, value in topic.policies.items() if isinstance(value, Foreign))
        if not topic.partitions:
            yield address, "a plain topic; the format knows partitioned ones"
        elif foreign:
            yield address, f"the format cannot say its {', '.join(foreign)}"


def _seen(live: Live, namespace: NamespaceName, excluded: set[str]) -> Seen:
    ledgers = dict(live.ledgers.get(namespace, {}))
    topics: dict[str, TopicResource] = {}
    subscriptions: dict[str, set[str]] = {}
    grants: dict[str, tuple[str, ...]] = {}
    policies: Policies = {}
    for address, found in live.objects.items():
        match found.resource:
            case TopicResource(name=name, partitions=count) as topic if name.namespace == namespace and count:
                odd = any(isinstance(value, Foreign) for value in topic.policies.values())
                if name.local not in excluded and not odd and claim(address, found, ledgers).owner is None:
                    topics[name.local] = topic
            case SubscriptionResource(topic=name, name=subscription) if name.namespace == namespace:
                subscriptions.setdefault(name.local, set()).add(subscription)
            case GrantResource(target=target, role=role, actions=actions) if target == namespace:
                grants[role] = tuple(sorted(actions))
            case NamespaceResource(name=name, policies=set_policies) if name == namespace:
                policies = {key: value for key, value in set_policies.items() if not isinstance(value, Foreign)}
            case _:
                pass
    held = {local: frozenset(names) for local, names in subscriptions.items()}
    return Seen(namespace, topics, held, policies, grants, live.identity.cluster)


def recognise(seen: Seen) -> dict[str, Family]:
    """Every topic whose name is no level's or state's begins a family."""
    return {
        local: _family(local, seen)
        for local in sorted(seen.topics)
        if reserved_suffix(local) is None and why_not_pulsar_name(local) is None
    }


def _family(ground: str, seen: Seen) -> Family:
    topic = seen.topics[ground]
    names = sorted(s for s in seen.subscriptions.get(ground, frozenset()) if _importable(s))
    levels = tuple(level for level in Level if _fits(seen, ready_name(ground, level), topic.partitions, names))
    family = Family(
        topic, levels, {}, {ready_name(ground, level): seen.topics[ready_name(ground, level)] for level in levels}
    )
    readers: dict[str, Reader] = {}
    members = dict(family.members)
    for name in names:
        readers[name], more = _reader(ground, name, family, seen)
        members.update(more)
    return replace(family, readers=readers, members=members)


def _importable(subscription: str) -> bool:
    fits = why_not_pulsar_name(subscription) is None and reserved_suffix(subscription) is None
    return fits and not subscription.startswith("kodo-")


def _fits(seen: Seen, local: str, partitions: int, subscriptions: list[str]) -> bool:
    """The topic is there, with the family's partitions, and all its subscriptions are on it."""
    there = seen.subscriptions.get(local, frozenset())
    return local in seen.topics and seen.topics[local].partitions == partitions and there.issuperset(subscriptions)


def _reader(ground: str, name: str, family: Family, seen: Seen) -> tuple[Reader, dict[str, TopicResource]]:
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
    return Reader(tuple(states), dead, audit), members


def _why_not(local: str) -> str:
    suffix = reserved_suffix(local)
    if suffix == AUDIT_SUFFIX or suffix:
        return f"it ends in {suffix} and does not fit a family (same partitions, every subscription, every level)"
    return f"its name: {why_not_pulsar_name(local)}"


def _odd_subscriptions(seen: Seen, families: Mapping[str, Family]) -> Iterator[tuple[Address, str]]:
    """Subscriptions on imported topics that their family does not explain stay, unmanaged."""
    for ground, family in families.items():
        expected = {local: set(_expected(ground, local, family)) for local in family.members}
        for local, names in expected.items():
            for name in sorted(seen.subscriptions.get(local, frozenset()) - names - {HOLDER}):
                yield (
                    f"subscription.persistent://{seen.namespace}/{local}/{name}",
                    "no subscription of its family reads there",
                )


def _expected(ground: str, local: str, family: Family) -> Iterator[str]:
    if local in {ready_name(ground, level) for level in family.levels}:
        yield from family.readers
        return
    for name, reader in family.readers.items():
        levels = [level for level in family.levels if not level.is_backup]
        if local in {state_name(ground, level, name, state) for level in levels for state in reader.states}:
            yield name
