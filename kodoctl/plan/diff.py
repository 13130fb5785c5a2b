"""Comparison of the desired inventory with the live one: a pure function. `diff(x, x)` has no changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from kodoctl.errors import Diagnostic, Remedy, error
from kodoctl.plan.changes import (
    Adopt,
    Change,
    ChangeContext,
    Create,
    Delete,
    FieldChange,
    FieldUpdate,
    Forget,
    Update,
)
from kodoctl.plan.danger.functions import kept_namespace
from kodoctl.plan.field_diff import FieldDiff, grant_fields, schema_fields, unsupported_changes
from kodoctl.plan.ownership import OwnershipRecords, claim, foreign_ledgers
from kodoctl.plan.ownership_decision import (
    OwnershipAction,
    OwnershipDecision,
    decide_declared,
    decide_undeclared,
)
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject, PlatformFacts
from kodoctl.text.formatting import many, shorten_lines
from kodoctl.topology.json_forms import TextSet
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PublicationResource,
    Resource,
    SchemaResource,
    SlotResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
    database_of,
    is_package,
    slot_of,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired, DesiredObject
    from kodoctl.plan.targeting import TargetedObjects
    from kodoctl.topology.names import NamespaceName

HEALING = frozenset({"missing_on", "missing_partitions"})  # puts back what is half there: nobody can rely on it


@dataclass(frozen=True, slots=True)
class Allowances:
    """Permissions for a plan, from flags and from lists in the files. `adopt`: addresses of objects that may be adopted
    with changes; `destroy`: addresses whose refusals with the remedy `--allow-destroy` become warnings, and whose
    objects, if no file declares them, are deleted even if they were adopted, or are packages; `forget`: addresses whose
    objects, if no file declares them, are given up instead of deleted; `take_over`: objects of other topologies, and
    ledger entries from another environment or source, may be taken over; `share`: as `allowed` of `blast_radius`.
    """

    adopt: TextSet = frozenset()
    destroy: TextSet = frozenset()
    forget: TextSet = frozenset()
    take_over: bool = False
    share: Annotated[float, Field(ge=0, le=1)] | None = None  # how much of what is owned may go at once (K403), 0 to 1


@dataclass(frozen=True, slots=True)
class Difference:
    """Result of a comparison. An object with a change may also have a conflict. `conflicts`: errors, warnings and
    notes. `unchanged`: number of declared objects that need no change. `unmanaged`: sorted addresses of live topics,
    functions and connectors, and of live subscriptions on declared topics, that no file declares and nobody owns, or
    that have our marker and no ledger entry; without subscriptions of functions and objects with a change. `elsewhere`:
    other topologies with ledger entries in the namespaces that were read -> number of objects that they own there.
    """

    changes: tuple[Change, ...]
    conflicts: tuple[Diagnostic, ...]
    unchanged: int
    unmanaged: tuple[Address, ...]
    elsewhere: Mapping[str, int] = field(default_factory=dict)  # other topologies here: name -> objects
    chosen: TargetedObjects | None = None  # the part that was compared; None: all of it


def diff(
    desired: Desired, live: Live, allowances: Allowances | None = None, chosen: TargetedObjects | None = None
) -> Difference:
    """Compares declared with live objects, and returns the changes that make the live ones equal, with conflicts and
    unmanaged objects. A declared object that may not be taken from its owner, or that cannot be changed as declared,
    gets a conflict instead of a change. Changes have no dangers yet. `allowances`: None: nothing is allowed; `chosen`:
    the part to compare, None: everything. Objects of which `Live.is_unknown` is true are left out; a topic in
    `Live.unread` is not, unless `chosen` leaves it out.
    """
    return _Diff(desired, live, allowances or Allowances(), chosen).run()


class _Diff:
    """One comparison of whole inventories. Collects changes and conflicts; it decides ownership before it compares
    fields.
    """

    def __init__(self, desired: Desired, live: Live, allowances: Allowances, chosen: TargetedObjects | None) -> None:
        self._desired, self._live, self._allowances, self._chosen = desired, live, allowances, chosen
        self._records = OwnershipRecords(desired, live)
        self._field_diff = FieldDiff(desired, live, self._records.namespace_keys, self._includes)
        self._changes: list[Change] = []
        self._conflicts: list[Diagnostic] = []
        self._refused: dict[tuple[str, str | None], list[DesiredObject]] = {}  # (ours, owner)
        self._unchanged = 0

    def run(self) -> Difference:
        self._conflicts += foreign_ledgers(self._desired, self._live, take_over=self._allowances.take_over)
        for address, wanted in self._desired.objects.items():
            if self._includes(address):
                self._diff_declared(address, wanted, self._live.objects.get(address))
        self._conflicts += (_conflict(*names, objects) for names, objects in self._refused.items())
        for ledger in self._records.ours:
            self._diff_undeclared(ledger)
        self._conflicts += self._field_diff.unsupported()
        return Difference(
            tuple(self._changes),
            tuple(self._conflicts),
            self._unchanged,
            tuple(sorted(self._unmanaged_addresses())),
            self._records.elsewhere(),
            self._chosen,
        )

    def _includes(self, address: Address) -> bool:
        if self._live.is_unknown(address):
            return False  # nobody can tell whether it exists: it is neither made nor deleted
        return self._chosen is None or self._chosen.includes(address)

    # --- declared objects

    def _diff_declared(self, address: Address, wanted: DesiredObject, found: LiveObject | None) -> None:
        match wanted.resource:
            case GrantResource() as grant if found is not None:
                self._grant(wanted, grant, found)
            case SchemaResource() | TenantResource(home=None) if found is not None:
                self._diff_unowned(wanted, found)
            case SlotResource():
                self._unchanged += found is not None  # an absent one is made by the first run of the source
            case NamespaceResource(name=name, managed=None) if found and not self._records.namespace_keys(name):
                self._unchanged += 1  # needed, and there: whose it is does not matter
            case _:
                self._diff_owned(address, wanted, found)

    def _diff_owned(self, address: Address, wanted: DesiredObject, found: LiveObject | None) -> None:
        """Compares a declared object that belongs to one topology: first its owner, then its fields."""
        formerly = self._desired.formerly(wanted.owner)
        live = claim(address, found, self._live, asking=wanted.owner) if found else None
        decision = decide_declared(wanted.owner, live, formerly=formerly, take_over=self._allowances.take_over)
        if found is None or live is None:
            resource = self._field_diff.supported(wanted.resource)
            self._changes.append(Create(resource, ChangeContext(wanted.owner, decision.reason, wanted.where)))
            return
        problems = list(unsupported_changes(wanted, found, known=frozenset(one.code for one in self._conflicts)))
        if found.is_foreign:
            problems.append(_foreign(wanted, found))
            decision = OwnershipDecision(OwnershipAction.IGNORE)
        self._conflicts += problems
        if decision.action is OwnershipAction.REFUSE:
            self._refused.setdefault((wanted.owner, decision.owned_by), []).append(wanted)
            return
        if problems:
            return
        fields = self._field_diff.fields(wanted, found)
        if decision.action is OwnershipAction.ADOPT:
            about = ChangeContext(wanted.owner, decision.reason, wanted.where)
            self._changes.append(Adopt(found.resource, about, decision.owned_by))
        if fields:
            self._update(wanted, found, fields, adopting=live.owner is None)
        elif decision.action is OwnershipAction.KEEP:
            self._unchanged += 1

    def _update(
        self, wanted: DesiredObject, found: LiveObject, fields: tuple[FieldUpdate, ...], *, adopting: bool
    ) -> None:
        unload = any(change.name == "delayed_delivery" for change in fields)
        about = ChangeContext(wanted.owner, "differs from the file", wanted.where)
        self._changes.append(Update(found.resource, wanted.resource, fields, about, unload, adopting))
        risky = [change.label for change in fields if change.name not in HEALING]
        if adopting and risky and found.resource.address not in self._allowances.adopt:
            address = found.resource.address
            detail = (
                f"{address} is nobody's yet and differs in {', '.join(risky)}: somebody may rely on that."
                f" Write the live values into the file, or --adopt {address}"
            )
            remedy = Remedy("--adopt", address)
            self._conflicts.append(error("K417", "adoption would change it", detail, wanted.where, remedy))

    def _diff_unowned(self, wanted: DesiredObject, found: LiveObject) -> None:
        """Schemas and tenants of `create_tenant` have no owner: a schema gets a new version, a tenant that exists is
        left alone.
        """
        match wanted.resource, found.resource:
            case SchemaResource() as after, SchemaResource() as before if fields := schema_fields(after, before):
                self._update(wanted, found, fields, adopting=False)
            case _:
                self._unchanged += 1

    def _grant(self, wanted: DesiredObject, after: GrantResource, found: LiveObject) -> None:
        before = found.resource
        assert isinstance(before, GrantResource)
        ours, others = self._records.granted(after.address)
        if fields := grant_fields(after, before, ours, others):
            self._update(wanted, found, fields, adopting=False)
        elif not after.actions <= ours:
            reason = "given already, not in our ledger yet"
            self._changes.append(Adopt(before, ChangeContext(wanted.owner, reason, wanted.where)))
        else:
            self._unchanged += 1

    # --- ours, and no longer declared

    def _diff_undeclared(self, ledger: Ledger) -> None:
        owner = self._records.lives_here(ledger)
        for address, holding in sorted(ledger.owned.items()):
            if address.startswith("namespace."):
                if owner is None and all(map(self._includes, ledger.addresses)):
                    found = self._live.objects.get(address)
                    about = ChangeContext(ledger.name, "nothing of ours is left in it")
                    self._changes.append(Forget(address, found.resource if found else None, about))
            elif owner is not None and self._stays(address):
                continue
            elif address not in self._desired.objects and self._includes(address):
                self._delete_or_forget(address, holding, ledger, owner or ledger.name)
        for address, actions in sorted(ledger.grants.items()):
            if address not in self._desired.objects and self._includes(address):
                self._revoke(address, actions, owner or ledger.name)

    def _stays(self, address: Address) -> bool:
        """True for a package, unless it is named: an earlier version stays ours, because it may be needed again."""
        named = self._allowances.destroy | self._allowances.forget
        return is_package(address) and address in self._live.objects and address not in named

    def _delete_or_forget(self, address: Address, holding: OwnershipKind, ledger: Ledger, owner: str) -> None:
        found = self._live.objects.get(address)
        decision = decide_undeclared(
            ledger.name,
            holding,
            claim(address, found, self._live) if found else None,
            forget=address in self._allowances.forget,
            destroy=address in self._allowances.destroy,
        )
        about = ChangeContext(owner, decision.reason)
        if found is not None and self._is_elsewhere(address):
            reason = "its source has another variable or namespace now; it stays, and so does its slot"
            self._changes.append(Forget(address, found.resource, ChangeContext(owner, reason)))
            return
        if found is not None and isinstance(found.facts, PlatformFacts):
            reason = f"{found.facts.owner} in {found.facts.home} owns it, too: it stays"
            self._changes.append(Forget(address, found.resource, ChangeContext(owner, reason)))
            return
        match decision.action, found:
            case OwnershipAction.FORGET_LOST, _:
                self._changes.append(Forget(address, None, about))
            case OwnershipAction.FORGET, LiveObject(resource=resource):
                self._changes.append(Forget(address, resource, about))
            case OwnershipAction.DELETE, LiveObject(resource=resource):
                self._changes.append(Delete(resource, about))
            case _:
                return
        is_anew = found is not None and decision.action is OwnershipAction.FORGET_LOST
        if address not in self._allowances.forget and not is_anew:  # the slot, too, is somebody else's
            self._drop_slot_of(address, owner)

    def _is_elsewhere(self, publication: Address) -> bool:
        """True for a publication whose source is declared with another variable, which may name the same database, or
        in another namespace.
        """
        place = database_of(publication)
        return place is not None and any(
            other.startswith("publication.") and (found := database_of(other)) is not None and found[1] == place[1]
            for other in self._desired.objects
        )

    def _drop_slot_of(self, publication: Address, owner: str) -> None:
        """Deletes the slot of a publication that is no longer ours: without a reader it would keep WAL for ever."""
        found = self._live.objects.get(slot_of(publication))
        if (
            found is None
            or found.resource.address in self._desired.objects
            or not self._includes(found.resource.address)
        ):
            return
        self._changes.append(Delete(found.resource, ChangeContext(owner, "its source is no longer declared")))

    def _revoke(self, address: Address, actions: frozenset[str], owner: str) -> None:
        found = self._live.objects.get(address)
        if found is None:
            self._changes.append(Forget(address, None, ChangeContext(owner, "is gone already")))
            return
        before = found.resource
        assert isinstance(before, GrantResource)
        _, others = self._records.granted(address)
        left = before.actions - (actions - others)
        if left == before.actions:
            self._changes.append(Forget(address, before, ChangeContext(owner, "no longer declared; others need it")))
        elif left:
            after = GrantResource(before.target, before.role, left)
            fields = (FieldChange("actions", before.actions, left),)
            about = ChangeContext(owner, "no longer declared; others gave the rest")
            self._changes.append(Update(before, after, fields, about))
        else:
            self._changes.append(Delete(before, ChangeContext(owner, "no longer declared")))

    # --- seen, and not ours

    def _unmanaged_addresses(self) -> Iterator[Address]:
        known = {change.address for change in self._changes}
        for found in self._live.objects.values():
            if isinstance(found.resource, FunctionResource):
                known.update(found.resource.subscriptions)
        for address, found in self._live.objects.items():
            if address in self._desired.objects or address in known or not self._includes(address):
                continue
            if isinstance(found.resource, TopicResource | FunctionResource) or self._on_managed_topic(found.resource):
                owned = claim(address, found, self._live)
                if owned.owner is None or (owned.owner in self._desired.names and owned.holding is None):
                    yield address

    def _on_managed_topic(self, resource: Resource) -> bool:
        return isinstance(resource, SubscriptionResource) and f"topic.{resource.topic}" in self._desired.objects


def _foreign(wanted: DesiredObject, found: LiveObject) -> Diagnostic:
    """An error for a publication that a topology of another namespace or cluster owns (K438), and for an object of the
    whole cluster that a topology of another namespace owns (K410).
    """
    if isinstance(found.facts, PlatformFacts):
        owner, home = found.facts.owner, found.facts.home
        way = f"take it out of one of the files, or let `kodoctl forget {wanted.resource.address} --namespace {home}` give it up"
        detail = f"{wanted.resource.address} belongs to {owner} in {home}: {way}"
        return error("K410", "another topology owns it", detail, wanted.where)
    name = wanted.resource.name if isinstance(wanted.resource, PublicationResource) else ""
    detail = (
        f"{wanted.resource.address} belongs to the topology {found.marker}, and its slot with it: two readers would take"
        " each other's changes. Rename the source or name another database. If that topology is gone for good, run"
        f' `COMMENT ON PUBLICATION "{name}" IS NULL` there, and plan again'
    )
    return error("K438", "a publication of another cluster or namespace", detail, wanted.where)


def _conflict(ours: str, owner: str | None, objects: list[DesiredObject]) -> Diagnostic:
    """One error (K410) for all objects that the topology `ours` declares and the topology `owner` owns: they have one
    cause and one remedy.
    """
    first, *others = [wanted.resource.address for wanted in objects]
    subject, them = (f"{first} belongs", "it") if not others else (f"{many(len(objects), 'object')} belong", "them")
    detail = (
        f"{subject} to the topology {owner!r}: declare {them} in one file only; if {owner!r} was renamed to"
        f" {ours!r} write `formerly: {owner}`; --take-over takes {them}"
    )
    listed = shorten_lines([first, *others]) if others else []
    return error(
        "K410", "another topology owns it", "\n".join([detail, *listed]), objects[0].where, Remedy("--take-over")
    )


def with_namespaces(
    difference: Difference, names: frozenset[str], live: Live, allowed: frozenset[Address] = frozenset()
) -> Difference:
    """Returns the difference of a destroy together with the deletion of each namespace that one of the topologies
    `names` created, if no other topology has a ledger entry there, the changes delete every topic, function and
    connector that was read there, and flags leave out nothing that is recorded there. Whether functions or connectors
    are left has to be known, or the address of the namespace is in `allowed`; else a warning says that it stays. Pulsar
    tenants are not added.
    """
    changes, findings = list(difference.changes), list(difference.conflicts)
    for namespace, creator in _emptied_namespaces(difference, names, live):
        address, unknown = f"namespace.{namespace}", live.unknown_functions_in(namespace)
        if unknown and address not in allowed:
            findings.append(kept_namespace(namespace, unknown))
            continue
        changes = [change for change in changes if change.address != address]
        about = ChangeContext(creator, "created by us, nobody else lives there")
        changes.append(Delete(live.objects[address].resource, about))
    return replace(difference, changes=tuple(changes), conflicts=tuple(findings))


def _emptied_namespaces(
    difference: Difference, names: frozenset[str], live: Live
) -> Iterator[tuple[NamespaceName, str]]:
    """Yields (namespace, creator) for each namespace that one of the topologies `names` created and no other uses, and
    in which the changes leave no topic, function or connector that was read. A namespace with a recorded object or
    grant that flags leave out stays.
    """
    gone = {change.address for change in difference.changes if isinstance(change, Delete)}
    chosen = difference.chosen
    functions = [one.resource for one in live.objects.values() if isinstance(one.resource, FunctionResource)]
    for namespace, ledgers in live.ledgers.items():
        address = f"namespace.{namespace}"
        creators = [one.name for one in ledgers.values() if one.owned.get(address) is OwnershipKind.CREATED]
        left = {topic for topic, _ in live.topics_in(namespace)}
        left |= {one.address for one in functions if one.namespace == namespace}
        if chosen is not None and not all(chosen.includes(part) for one in ledgers.values() for part in one.addresses):
            continue
        if creators and address in live.objects and not set(ledgers) - names and left <= gone:
            yield namespace, creators[0]
