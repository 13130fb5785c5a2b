"""A part of a plan (`--target`, `--exclude`): the objects that are compared, those they need, and those left out. Pure.

A named object comes with the objects it needs; an object that needs an excluded one is excluded with it. The rest is
not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.plan.field_diff import normalize
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
    slot_of,
    topic_address,
    topic_of_address,
)
from kodoctl.topology.target_flags import TargetFlags, fits

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired, DesiredObject
    from kodoctl.pulsar.values.live_objects import Live, LiveObject
    from kodoctl.topology.model.policies import PolicyValue

_PAIR: Final = ("retention", "backlog_quota")  # a topic's value of one is checked against the namespace's of the other


@dataclass(frozen=True)
class TargetSummary:
    """Summary of a targeted plan. `selection`: the flags; `along`: (object, object that needs it) for each one that no
    flag selects and that was taken along; `held_back`: (object that `--target` selects, left-out object that it needs);
    `left_out`: kind of object, such as `topic` -> number of known objects that were not compared.
    """

    selection: TargetFlags
    along: tuple[tuple[Address, Address], ...]  # taken along, and which object needs it
    held_back: tuple[tuple[Address, Address], ...]  # held back, and what it needs that is left out
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class TargetedObjects:
    """The selected part of the objects. `addresses`: the selected ones, with those that they need; `known`: the result
    of `known_addresses`; `portion`: the summary.
    """

    addresses: frozenset[Address]
    known: frozenset[Address]
    portion: TargetSummary

    def includes(self, address: Address) -> bool:
        """True if an object is in `addresses`; for an object that is not in `known`, if the flags choose it."""
        return address in self.addresses if address in self.known else self.portion.selection.names(address)

    def restrict(self, desired: Desired, live: Live) -> Desired:
        """Returns the desired inventory with the selected objects only, and with all declared subscriptions that exist,
        because other checks need the readers of a topic. An expansion with a selected object stays whole.
        """
        objects = {
            address: wanted
            for address, wanted in desired.objects.items()
            if address in self.addresses
            or (isinstance(wanted.resource, SubscriptionResource) and address in live.objects)
        }
        expansions = tuple(one for one in desired.expansions if self.addresses & one.resources.keys())
        return replace(desired, expansions=expansions, objects=objects)


def choose(selection: TargetFlags, desired: Desired, live: Live) -> TargetedObjects:
    """Returns the objects that the flags select, with the objects that they need, and without those that need an
    excluded object. Raises UsageError (K426) for a name or pattern that matches none of `known_addresses`, and if
    nothing is left; ClusterError (K580) if the part has an object on a topic that cannot be read, or the topic itself.
    """
    known = known_addresses(desired, live)
    _must_fit(selection, known)
    needs = _Needs(desired, live, known)
    excluded = {address for address in known if selection.excluded(address)}
    dependents = _reachable_from(excluded, needs.backwards)
    targeted = {address for address in known if selection.targeted(address)}
    named = targeted - excluded - dependents.keys()
    if not named:
        raise UsageError(
            error("K426", "object not found in the plan", "what --target names, --exclude leaves out again")
        )
    along = _reachable_from(named, needs.forwards)
    addresses = frozenset(named | along.keys())
    _must_be_known(addresses, live)
    left_out: dict[str, int] = {}
    for address in sorted(known - addresses):
        kind = address.partition(".")[0]
        left_out[kind] = left_out.get(kind, 0) + 1
    shown = {address: cause for address, cause in dependents.items() if address in targeted}
    portion = TargetSummary(selection, tuple(sorted(along.items())), tuple(sorted(shown.items())), left_out)
    return TargetedObjects(addresses, known, portion)


def known_addresses(desired: Desired, live: Live) -> frozenset[Address]:
    """Addresses that the files declare, or that ledger entries in `live` list for their topologies, under present and
    earlier names, and for those that are destroyed; and the slots, if they exist, of publications among these.
    """
    entries = (entry.addresses for entry in live.entries if entry.name in desired.all_names)
    known = frozenset(desired.objects).union(*entries)
    return known | {slot for address in known if (slot := slot_of(address)) in live.objects}


def _must_fit(selection: TargetFlags, known: frozenset[Address]) -> None:
    flagged = [("--target", name) for name in selection.targets] + [("--exclude", name) for name in selection.excludes]
    wrong = [
        error("K426", "object not found in the plan", f"{flag} {pattern}: {_nearest(pattern, known)}")
        for flag, pattern in flagged
        if not any(fits(pattern, address) for address in known)
    ]
    if wrong:
        raise UsageError(*wrong)


def _must_be_known(addresses: Iterable[Address], live: Live) -> None:
    """Raises ClusterError (K580) if a selected object is on a topic that cannot be read: nobody can tell whether it
    exists.
    """
    unread = {topic.full: why for topic, why in live.unread.items()}
    wrong = [
        error(
            "K580", "part of a topic cannot be read", f"{address}: {unread[topic]}; --exclude {address} leaves it out"
        )
        for address in sorted(addresses)
        if (topic := topic_of_address(address)) in unread
    ]
    if wrong:
        raise ClusterError(*wrong)


def _nearest(pattern: str, known: frozenset[Address]) -> str:
    """Advice on a pattern that fits no address: addresses that end like it, else similar ones."""
    plain = pattern.replace("*", "")
    ending = sorted(address for address in known if plain and address.endswith(f"/{plain}"))
    near = ending[:3] or get_close_matches(plain, sorted(known), 3, 0.6)
    if near:
        return f"nothing has this address; near it: {', '.join(near)}"
    return "nothing has this address; `kodoctl expand` lists what the files declare, and * stands for any text"


def _reachable_from(start: Iterable[Address], steps: Mapping[Address, tuple[Address, ...]]) -> dict[Address, Address]:
    """Address that is reached from some addresses -> the address before it; without the first ones."""
    visited = set(start)
    found: dict[Address, Address] = {}
    waiting = sorted(visited)
    while waiting:
        here = waiting.pop(0)
        for there in steps.get(here, ()):
            if there not in visited and there not in found:
                found[there] = here
                waiting.append(there)
    return found


class _Needs:
    """Dependencies of objects: the objects that must exist before one can be created, changed or deleted."""

    def __init__(self, desired: Desired, live: Live, known: frozenset[Address]) -> None:
        self._desired, self._live, self._known = desired, live, known

    @cached_property
    def forwards(self) -> Mapping[Address, tuple[Address, ...]]:
        """The addresses that each address needs."""
        return {a: found for a in sorted(self._known) if (found := tuple(n for n in self._of(a) if n in self._known))}

    @cached_property
    def backwards(self) -> Mapping[Address, tuple[Address, ...]]:
        """The addresses that need each address."""
        found: dict[Address, list[Address]] = {}
        for address, needed in self.forwards.items():
            for one in needed:
                found.setdefault(one, []).append(address)
        return {address: tuple(needing) for address, needing in found.items()}

    def _of(self, address: Address) -> Iterator[Address]:
        if (below := f"topic.{topic_of_address(address)}") != address and below in self._unread:
            yield below  # whatever hangs on a topic that cannot be read is as unknown as the topic
            return
        wanted = self._desired.objects.get(address)
        match wanted.resource if wanted else None:
            case NamespaceResource(name=name, policies=policies):
                yield from self._if_absent(f"tenant.{name.tenant}")
                yield from self._if_absent(f"resource_group.{policies.get('resource_group')}")
            case resource if isinstance(resource, PlatformResource):
                yield from self._if_absent(f"namespace.{resource.home}")
                for cluster in sorted(resource.clusters) if isinstance(resource, TenantResource) else ():
                    yield from self._if_absent(f"cluster.{cluster}")
            case TopicResource() as topic:
                yield from self._if_absent(f"namespace.{topic.name.namespace}")
                if self._leans(topic):
                    yield f"namespace.{topic.name.namespace}"
            case (
                SubscriptionResource(topic=name)
                | SchemaResource(topic=name)
                | GrantResource(target=TopicName() as name)
            ):
                yield from self._topic(name)
            case GrantResource(target=NamespaceName() as name):
                yield from self._if_absent(f"namespace.{name}")
            case FunctionResource() as function:
                yield from self._if_absent(f"namespace.{function.namespace}")
                if (package := f"package.{function.package}") in self._desired.objects:
                    yield from self._if_absent(package)
                for name in function.topics_among(_topics(self._desired.objects)):
                    yield from self._topic(name)
            case PackageResource(namespace=namespace):
                yield from self._if_absent(f"namespace.{namespace}")
            case None if address.startswith("topic."):
                yield from self._hanging.get(address.removeprefix("topic."), ())  # it goes, and they with it
            case None if (slot := slot_of(address)) in self._live.objects:
                yield slot  # a slot that stays keeps WAL, and who has the publication is who knows of it
            case _:
                pass

    @cached_property
    def _unread(self) -> frozenset[Address]:
        return frozenset(map(topic_address, self._live.unread))

    def _if_absent(self, address: Address) -> Iterator[Address]:
        if address not in self._live.objects:
            yield address

    def _topic(self, name: TopicName) -> Iterator[Address]:
        """The topic below an object, unless it exists as declared: its objects are created for its partitions."""
        address = topic_address(name)
        wanted, found = self._desired.objects.get(address), self._live.objects.get(address)
        there, asked = found.resource if found else None, wanted.resource if wanted else None
        as_declared = isinstance(there, TopicResource) and not there.missing
        if isinstance(asked, TopicResource) and isinstance(there, TopicResource):
            as_declared = as_declared and there.partitions == asked.partitions
        if not as_declared:
            yield address

    def _leans(self, topic: TopicResource) -> bool:
        """True if the broker checks a new value of the topic against one of the namespace that changes as well."""
        namespace = self._desired.objects[f"namespace.{topic.name.namespace}"].resource
        assert isinstance(namespace, NamespaceResource)
        found = self._live.objects.get(topic.address)
        own = found.resource.policies if found and isinstance(found.resource, TopicResource) else {}
        theirs = self._live.namespace_policies.get(topic.name.namespace, {})
        set_there = {name: namespace.policies.get(name) for name in namespace.managed or ()}
        return _differs(own, topic.policies) and _differs(theirs, {**theirs, **set_there})

    @cached_property
    def _hanging(self) -> Mapping[str, list[Address]]:
        """Subscriptions, grants, and functions that are no longer declared, by the full name of their topic."""
        found: dict[str, list[Address]] = {}
        for address in sorted(self._known - self._desired.objects.keys()):
            kind, _, name = address.partition(".")
            if kind in ("subscription", "grant") and name.startswith("persistent://"):
                found.setdefault(topic_of_address(address), []).append(address)
            live = self._live.objects.get(address)
            if live is not None and isinstance(function := live.resource, FunctionResource):
                for topic in function.topics_among(_topics(self._live.objects)):
                    found.setdefault(topic.full, []).append(address)
        return found


def _topics(objects: Mapping[Address, DesiredObject] | Mapping[Address, LiveObject]) -> Iterator[TopicName]:
    return (one.resource.name for one in objects.values() if isinstance(one.resource, TopicResource))


def _differs(before: Mapping[str, PolicyValue | None], after: Mapping[str, PolicyValue | None]) -> bool:
    return any(normalize(before.get(name)) != normalize(after.get(name)) for name in _PAIR)
