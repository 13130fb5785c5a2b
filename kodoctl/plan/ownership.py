"""Ownership of an object, decided by two records: the marker on it and the ledger of its namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from kodoctl.errors import Diagnostic, Remedy, Where, error, note
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, Source
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    Address,
    ClusterResource,
    FailureDomainResource,
    FunctionResource,
    GrantResource,
    IsolationPolicyResource,
    NamespaceResource,
    PackageResource,
    PublicationResource,
    Resource,
    ResourceGroupResource,
    SchemaResource,
    SlotResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live, LiveObject


@dataclass(frozen=True, slots=True)
class Claim:
    """Owner of an object. `owner`: name of the topology; None: nobody. `holding`: kind of ownership in the owner's
    ledger entry; None: no entry of the owner lists the object, only the marker names the owner (or nobody owns it).
    """

    owner: str | None
    holding: OwnershipKind | None = None


def namespace_of(resource: Resource) -> NamespaceName | None:
    """Returns the namespace whose ledgers may list the object: its own, or the home of an object of the whole cluster;
    None for one without a home, such as a Pulsar tenant that a file only creates.
    """
    match resource:
        case TopicResource(name=topic) | SubscriptionResource(topic=topic) | SchemaResource(topic=topic):
            return topic.namespace
        case GrantResource(target=target):
            return target.namespace if isinstance(target, TopicName) else target
        case NamespaceResource(name=namespace):
            return namespace
        case (
            PublicationResource(namespace=namespace)
            | SlotResource(namespace=namespace)
            | FunctionResource(namespace=namespace)
            | PackageResource(namespace=namespace)
        ):
            return namespace
        case (
            TenantResource(home=home)
            | ClusterResource(home=home)
            | ResourceGroupResource(home=home)
            | FailureDomainResource(home=home)
            | IsolationPolicyResource(home=home)
        ):
            return home
        case _:
            assert_never(resource)


def claim(address: Address, found: LiveObject, live: Live, *, asking: str | None = None) -> Claim:
    """Returns the owner of a live object, by its marker (a property that names the owner) and by the ledger entries of
    its namespace (`namespace_of`) in `live`.

    The marker alone decides for topics, because the request that creates a topic sets it atomically. A topic that a
    ledger entry lists, but without that owner's marker, was created anew by somebody else. The marker of a publication
    decides as well; a publication without one may be an administrator's, so that the ledger decides. A function or
    package belongs to a topology whose ledger entry lists it and whose marker it has, or which adopted it; else to
    nobody. A namespace belongs to a topology whose ledger entry lists it and has policies of it, to one that only lists
    it if that is `asking` and no entry has policies, else to nobody. The ledger decides for other objects (an intent
    counts only with its owner's marker), and the marker if no entry counts. Grants and schemas have no owner here.
    `asking`: the topology that declares a namespace, preferred if several hold it.
    """
    namespace = namespace_of(found.resource)
    ledgers = live.ledgers.get(namespace, {}) if namespace else {}
    holders = {name: ledger.owned[address] for name, ledger in ledgers.items() if address in ledger.owned}
    match found.resource:
        case TopicResource():
            return Claim(found.marker, holders.get(found.marker)) if found.marker else Claim(None)
        case PublicationResource() if found.marker:
            return Claim(found.marker, holders.get(found.marker))
        case FunctionResource() | PackageResource():
            of_ours = {name for name, how in holders.items() if how is OwnershipKind.ADOPTED or name == found.marker}
            return next((Claim(name, holders[name]) for name in sorted(of_ours)), Claim(None))
        case NamespaceResource():
            return _claim_of_namespace(holders, ledgers, asking)
    for name, holding in sorted(holders.items()):
        if holding is not OwnershipKind.INTENT or found.marker == name:
            return Claim(name, holding)
    return Claim(found.marker)


def _claim_of_namespace(
    holders: Mapping[str, OwnershipKind], ledgers: Mapping[str, Ledger], asking: str | None
) -> Claim:
    """Ownership of a namespace: the topology that sets its policies owns it. One that was only needed, and made bare,
    is free for any topology that wants to set some. An intent counts: only the request that creates a namespace
    writes one for it.
    """
    setting = sorted(name for name in holders if ledgers[name].namespace_keys)
    candidates = setting or sorted(holders)
    if asking in candidates:
        return Claim(asking, holders[asking])
    return Claim(setting[0], holders[setting[0]]) if setting else Claim(None)


class OwnershipRecords:
    """Ledger entries in `live`, divided into `ours`, which belong to the topologies of the given files under their
    present and earlier names and to those that are destroyed, and the entries of other topologies.
    """

    def __init__(self, desired: Desired, live: Live) -> None:
        self._desired = desired
        entries = [entry for ledgers in live.ledgers.values() for _, entry in sorted(ledgers.items())]
        self.ours = tuple(entry for entry in entries if entry.name in desired.all_names)
        self._others = tuple(entry for entry in entries if entry.name not in desired.all_names)

    def namespace_keys(self, namespace: NamespaceName) -> frozenset[str]:
        """Returns the names of the namespace's policies that earlier applies of our topologies set or unset, by their
        ledger entries there.
        """
        entries = [ledger for ledger in self.ours if ledger.namespace == namespace]
        return frozenset(key for ledger in entries for key in ledger.namespace_keys)

    def granted(self, address: Address) -> tuple[frozenset[str], frozenset[str]]:
        """Returns two sets of actions of a grant: those that our topologies gave, and those that other topologies gave,
        both by the ledger entries. They may overlap.
        """
        return _granted_actions(self.ours, address), _granted_actions(self._others, address)

    def lives_here(self, ledger: Ledger) -> str | None:
        """Returns the present name of a ledger entry's topology, if a given file declares it in the entry's namespace.
        None: it moved to another namespace, is destroyed, or is none of ours.
        """
        return next(
            (
                expansion.name
                for expansion in self._desired.by_namespace(ledger.namespace)
                if ledger.name in {expansion.name, *expansion.topology.spec.formerly}
            ),
            None,
        )

    def elsewhere(self) -> dict[str, int]:
        """Returns the other topologies, whose ledger entries are not among `ours`, in the namespaces that were read:
        name -> number of the objects that these entries list together, without grants.
        """
        found: dict[str, int] = {}
        for ledger in self._others:
            found[ledger.name] = found.get(ledger.name, 0) + len(ledger.owned)
        return found


def _granted_actions(ledgers: Iterable[Ledger], address: Address) -> frozenset[str]:
    return frozenset(action for ledger in ledgers for action in ledger.grants.get(address, ()))


def foreign_ledgers(desired: Desired, live: Live, *, take_over: bool) -> Iterator[Diagnostic]:
    """Yields errors for each ledger entry under the present name of a given topology that was applied in another
    environment (K414), or from another source if both are known (K415); the plan is then refused. Yields a note (K416)
    if the path of the file differs in the same source. Yields nothing if `take_over`.

    Earlier names are not checked, nor are names that are destroyed without their file, because nothing says where they
    should be from.
    """
    places: dict[str, Where | None] = {e.name: e.topology.where("name") for e in desired.expansions}
    places |= {name: None for name in sorted(desired.destroyed) if name in desired.sources}
    for name, where in places.items():
        for namespace, ledgers in live.ledgers.items():
            if (ledger := ledgers.get(name)) is not None and not take_over:
                yield from _not_ours(where, desired, namespace, ledger)


def _not_ours(where: Where | None, desired: Desired, namespace: NamespaceName, ledger: Ledger) -> Iterator[Diagnostic]:
    way = "or --take-over" if where else "or `destroy --name` without the file"
    remedy = Remedy("--take-over") if where else None
    if ledger.environment != desired.environment:
        here, there = desired.environment or "base", ledger.environment or "base"
        detail = f"{namespace} holds {ledger.name!r} in environment {there}, this is {here}: use --env {there}, {way}"
        yield error("K414", "applied in another environment", detail, where, remedy)
    ours = desired.sources.get(ledger.name, Source())
    if ours.origin is None or ledger.source.origin is None:
        return
    if ours.origin.lower() != ledger.source.origin.lower():  # forges ignore case, and so do older entries
        detail = f"{namespace} holds {ledger.name!r} from {ledger.source.origin}, this is {ours.origin}: rename this file, {way}"
        yield error("K415", "applied from another source", detail, where, remedy)
    elif ours.path != ledger.source.path:
        yield note("K416", "the file moved", f"{ledger.source.path} is now {ours.path}", where)
