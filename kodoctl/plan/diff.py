"""Desired against live: a pure function. `diff(x, x)` is empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kodoctl.errors import Diagnostic, error, warning
from kodoctl.plan.changes import Adopt, Change, ChangeContext, Create, Delete, FieldChange, FieldUpdate, Forget, Update
from kodoctl.plan.field_diff import (
    grant_fields,
    impossible,
    namespace_fields,
    schema_fields,
    subscription_fields,
    topic_fields,
)
from kodoctl.plan.inventory import Desired, DesiredObject, Live, LiveObject
from kodoctl.plan.ledger import Ledger, OwnershipKind
from kodoctl.plan.ownership import Claim, claim, foreign_ledgers, namespace_of
from kodoctl.plan.policy_levels import Levels, NamespaceChanges, levels_of
from kodoctl.plan.targeting import TargetedObjects
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import (
    Address,
    GrantResource,
    NamespaceResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from kodoctl.topology.units import UNLIMITED

HEALING = frozenset({"missing_on", "missing_partitions"})  # puts back what is half there: nobody can rely on it


@dataclass(frozen=True, slots=True)
class Allowances:
    """What people allowed by flags and by lists in the files."""

    adopt: frozenset[Address] = frozenset()
    destroy: frozenset[Address] = frozenset()
    forget: frozenset[Address] = frozenset()
    take_over: bool = False
    share: float | None = None  # how much of what is owned may go at once (K403), 0 to 1


@dataclass(frozen=True, slots=True)
class Difference:
    """All changes, what stands in their way, and what was seen but is nobody's business of ours."""

    changes: tuple[Change, ...]
    conflicts: tuple[Diagnostic, ...]
    unchanged: int
    unmanaged: tuple[Address, ...]
    elsewhere: Mapping[str, int] = field(default_factory=dict)  # other topologies here: name -> objects
    chosen: TargetedObjects | None = None  # the part that was compared; None: all of it


def diff(
    desired: Desired, live: Live, allowances: Allowances | None = None, chosen: TargetedObjects | None = None
) -> Difference:
    """What would make the live objects what the files declare, and whose business everything else is. `chosen`: a part;
    of the rest nothing is said.
    """
    return _Diff(desired, live, allowances or Allowances(), chosen).run()


class _Diff:
    """One comparison. Collects; decides by ownership, then field by field."""

    def __init__(self, desired: Desired, live: Live, allowances: Allowances, chosen: TargetedObjects | None) -> None:
        self.desired, self.live, self.allowances, self.chosen = desired, live, allowances, chosen
        self.changes: list[Change] = []
        self.conflicts: list[Diagnostic] = []
        self.unchanged = 0

    def run(self) -> Difference:
        self.conflicts += foreign_ledgers(self.desired, self.live, take_over=self.allowances.take_over)
        for address, wanted in self.desired.objects.items():
            found = self.live.objects.get(address)
            if not self._takes(address):
                continue
            if found is None:
                self._create(wanted)
            elif isinstance(wanted.resource, GrantResource):
                self._grant(wanted, wanted.resource, found)
            elif isinstance(wanted.resource, SchemaResource | TenantResource):
                self._shared(wanted, found)
            else:
                self._declared(address, wanted, found)
        for ledger in self._our_ledgers:
            self._no_longer_declared(ledger)
        self.conflicts += self._unsaid()
        return Difference(
            tuple(self.changes),
            tuple(self.conflicts),
            self.unchanged,
            tuple(sorted(self._unmanaged())),
            self._elsewhere(),
            self.chosen,
        )

    # --- whose is it

    @cached_property
    def _our_ledgers(self) -> tuple[Ledger, ...]:
        """Ledger entries of our topologies and of the names they had."""
        names = self.desired.all_names
        return tuple(
            entry for ledgers in self.live.ledgers.values() for name, entry in ledgers.items() if name in names
        )

    def _takes(self, address: Address) -> bool:
        return self.chosen is None or self.chosen.takes(address)

    def _claim(self, address: Address, found: LiveObject, asking: str | None = None) -> Claim:
        namespace = namespace_of(found.resource)
        return claim(address, found, self.live.ledgers.get(namespace, {}), asking=asking) if namespace else Claim(None)

    # --- declared objects

    def _create(self, wanted: DesiredObject) -> None:
        resource = wanted.resource
        if isinstance(resource, TopicResource) and self.live.unsupported & resource.policies.keys():
            kept = {name: value for name, value in resource.policies.items() if name not in self.live.unsupported}
            resource = replace(resource, policies=kept)
        self.changes.append(Create(resource, ChangeContext(wanted.owner, "declared, not there", wanted.where)))

    def _unsaid(self) -> Iterator[Diagnostic]:
        """Policies that this broker has no place for on a topic, where something else counts than the file says."""
        for policy in sorted(self.live.unsupported):
            unsaid = []
            for address, wanted in self.desired.objects.items():
                topic = wanted.resource
                if isinstance(topic, TopicResource) and policy in topic.policies and self._takes(address):
                    counts = self.levels(topic.name.namespace).effective(policy, None, after=True)
                    value = UNLIMITED if counts.value is None else counts.value  # Pulsar's own default
                    if value != topic.policies[policy]:
                        unsaid.append((address, f"{value} ({counts.source})", wanted.where))
            if unsaid:
                address, instead, where = unsaid[0]
                more = f" and {len(unsaid) - 1} more" if len(unsaid) > 1 else ""
                detail = (
                    f"{policy} of {address}{more} is not written: this broker knows it for namespaces only; what counts"
                    f" there is {instead}; set it under `namespace_policies`, or use a newer broker"
                )
                yield warning("K421", "a policy this broker does not have", detail, where)

    def _declared(self, address: Address, wanted: DesiredObject, found: LiveObject) -> None:
        match wanted.resource:
            case NamespaceResource(name=name, managed=None) if not self._namespace_keys(name):
                self.unchanged += 1  # needed, and there: whose it is does not matter
                return
            case _:
                pass
        problems = list(impossible(wanted, found))
        owned = self._claim(address, found, wanted.owner)
        mine = owned.owner == wanted.owner
        earlier = owned.owner is not None and owned.owner in self.desired.formerly(wanted.owner)
        if owned.owner is not None and not mine and not earlier and not self.allowances.take_over:
            problems.append(self._conflict(address, wanted, owned.owner))
        if problems:
            self.conflicts += problems
            return
        fields = self._fields(wanted, found)
        if not mine or owned.holding in (None, OwnershipKind.INTENT):
            self._adopt(wanted, found, owned)
        if fields:
            self._update(wanted, found, fields, adopting=owned.owner is None)
        elif mine and owned.holding not in (None, OwnershipKind.INTENT):
            self.unchanged += 1

    def _conflict(self, address: Address, wanted: DesiredObject, owner: str) -> Diagnostic:
        detail = (
            f"{address} belongs to the topology {owner!r}: declare it in one file only; if {owner!r} was renamed to"
            f" {wanted.owner!r} write `formerly: {owner}`; --take-over takes it"
        )
        return error("K410", "another topology owns it", detail, wanted.where)

    def _adopt(self, wanted: DesiredObject, found: LiveObject, owned: Claim) -> None:
        taken_from = owned.owner if owned.owner not in (None, wanted.owner) else None
        if taken_from in self.desired.formerly(wanted.owner):
            reason = f"{wanted.owner} was called {taken_from}"
        elif taken_from:
            reason = f"taken over from {taken_from}"
        elif owned.owner == wanted.owner:
            reason = "carries our marker, the ledger does not hold it yet"
        else:
            reason = "there, and nobody's yet"
        self.changes.append(Adopt(found.resource, ChangeContext(wanted.owner, reason, wanted.where), taken_from))

    def _update(
        self, wanted: DesiredObject, found: LiveObject, fields: tuple[FieldUpdate, ...], *, adopting: bool
    ) -> None:
        unload = any(change.name == "delayed_delivery" for change in fields)
        about = ChangeContext(wanted.owner, "differs from the file", wanted.where)
        self.changes.append(Update(found.resource, wanted.resource, fields, about, unload, adopting))
        risky = [change.label for change in fields if change.name not in HEALING]
        if adopting and risky and found.resource.address not in self.allowances.adopt:
            detail = (
                f"{found.resource.address} is nobody's yet and differs in {', '.join(risky)}: somebody may rely on that."
                f" Write the live values into the file, or --adopt {found.resource.address}"
            )
            self.conflicts.append(error("K417", "adoption would change it", detail, wanted.where))

    def _fields(self, wanted: DesiredObject, found: LiveObject) -> tuple[FieldUpdate, ...]:
        match wanted.resource, found.resource:
            case TopicResource(name=name), TopicResource():
                return topic_fields(wanted, found, self.levels(name.namespace), self.live.unsupported)
            case NamespaceResource() as after, NamespaceResource() as before:
                return namespace_fields(after, before, self._namespace_keys(after.name), self.live.broker_defaults)
            case _:
                assert isinstance(found.resource, SubscriptionResource)
                return subscription_fields(found.resource)

    def _namespace_keys(self, namespace: NamespaceName) -> frozenset[str]:
        """Policies of the namespace that we set earlier."""
        entries = [ledger for ledger in self._our_ledgers if ledger.namespace == namespace]
        return frozenset(key for ledger in entries for key in ledger.namespace_keys)

    def levels(self, namespace: NamespaceName) -> Levels:
        """Namespace and broker values under a topic, before and after this plan."""
        return levels_of(namespace, self.live, self._namespace_changes)

    @cached_property
    def _namespace_changes(self) -> NamespaceChanges:
        """The policies that the files change on namespaces, those of namespaces that are to be created among them."""
        found = {}
        for address, wanted in self.desired.objects.items():
            if isinstance(wanted.resource, NamespaceResource) and self._takes(address):
                name = wanted.resource.name
                there = NamespaceResource(name, self.live.namespace_policies.get(name, {}))
                keys = self._namespace_keys(name)
                found[name] = namespace_fields(wanted.resource, there, keys, self.live.broker_defaults)
        return found

    def _shared(self, wanted: DesiredObject, found: LiveObject) -> None:
        """Schemas and tenants have no owner: a schema gets a new version, a tenant that exists is left alone."""
        match wanted.resource, found.resource:
            case SchemaResource() as after, SchemaResource() as before if fields := schema_fields(after, before):
                self._update(wanted, found, fields, adopting=False)
            case _:
                self.unchanged += 1

    def _grant(self, wanted: DesiredObject, after: GrantResource, found: LiveObject) -> None:
        before = found.resource
        assert isinstance(before, GrantResource)
        ours, others = self._granted(after.address)
        if fields := grant_fields(after, before, ours, others):
            self._update(wanted, found, fields, adopting=False)
        elif not after.actions <= ours:
            reason = "given already, not in our ledger yet"
            self.changes.append(Adopt(before, ChangeContext(wanted.owner, reason, wanted.where)))
        else:
            self.unchanged += 1

    def _granted(self, address: Address) -> tuple[frozenset[str], frozenset[str]]:
        """(actions our ledgers gave, actions other ledgers gave)."""
        ours = {action for ledger in self._our_ledgers for action in ledger.grants.get(address, ())}
        names = {ledger.name for ledger in self._our_ledgers}
        others = {
            action
            for ledgers in self.live.ledgers.values()
            for name, ledger in ledgers.items()
            if name not in names
            for action in ledger.grants.get(address, ())
        }
        return frozenset(ours), frozenset(others)

    # --- ours, and no longer declared

    def _no_longer_declared(self, ledger: Ledger) -> None:
        owner = self._lives_here(ledger)
        for address, holding in sorted(ledger.owned.items()):
            if address.startswith("namespace."):
                if owner is None and all(map(self._takes, ledger.addresses)):
                    found = self.live.objects.get(address)
                    about = ChangeContext(ledger.name, "nothing of ours is left in it")
                    self.changes.append(Forget(address, found.resource if found else None, about))
            elif address not in self.desired.objects and self._takes(address):
                self._leave(address, holding, ledger, owner or ledger.name)
        for address, actions in sorted(ledger.grants.items()):
            if address not in self.desired.objects and self._takes(address):
                self._revoke(address, actions, owner or ledger.name)

    def _lives_here(self, ledger: Ledger) -> str | None:
        """The name under which a ledger's topology still lives in that namespace; None: it moved away, or is destroyed."""
        return next(
            (
                expansion.name
                for expansion in self.desired.by_namespace(ledger.namespace)
                if ledger.name in {expansion.name, *expansion.topology.spec.formerly}
            ),
            None,
        )

    def _leave(self, address: Address, holding: OwnershipKind, ledger: Ledger, owner: str) -> None:
        found = self.live.objects.get(address)
        if found is None or self._claim(address, found).owner != ledger.name:
            reason = "is gone already" if found is None else "was made anew by somebody else"
            if holding is not OwnershipKind.INTENT:
                self.changes.append(Forget(address, None, ChangeContext(owner, reason)))
        elif address in self.allowances.forget:
            self.changes.append(Forget(address, found.resource, ChangeContext(owner, "named in `forget`")))
        elif holding is OwnershipKind.ADOPTED and address not in self.allowances.destroy:
            reason = "no longer declared; was adopted, so it stays (allow_destroy would delete it)"
            self.changes.append(Forget(address, found.resource, ChangeContext(owner, reason)))
        else:
            self.changes.append(Delete(found.resource, ChangeContext(owner, "no longer declared")))

    def _revoke(self, address: Address, actions: frozenset[str], owner: str) -> None:
        found = self.live.objects.get(address)
        if found is None:
            self.changes.append(Forget(address, None, ChangeContext(owner, "is gone already")))
            return
        before = found.resource
        assert isinstance(before, GrantResource)
        _, others = self._granted(address)
        left = before.actions - (actions - others)
        if left == before.actions:
            self.changes.append(Forget(address, before, ChangeContext(owner, "no longer declared; others need it")))
        elif left:
            after = GrantResource(before.target, before.role, left)
            fields = (FieldChange("actions", before.actions, left),)
            self.changes.append(
                Update(before, after, fields, ChangeContext(owner, "no longer declared; others gave the rest"))
            )
        else:
            self.changes.append(Delete(before, ChangeContext(owner, "no longer declared")))

    # --- seen, and not ours

    def _unmanaged(self) -> Iterator[Address]:
        touched = {change.address for change in self.changes}
        for address, found in self.live.objects.items():
            if address in self.desired.objects or address in touched or not self._takes(address):
                continue
            if isinstance(found.resource, TopicResource) or self._on_managed_topic(found.resource):
                owned = self._claim(address, found)
                if owned.owner is None or (owned.owner in self.desired.names and owned.holding is None):
                    yield address

    def _on_managed_topic(self, resource: Resource) -> bool:
        return isinstance(resource, SubscriptionResource) and f"topic.{resource.topic}" in self.desired.objects

    def _elsewhere(self) -> dict[str, int]:
        names = {ledger.name for ledger in self._our_ledgers}
        return {
            name: len(ledger.owned)
            for ledgers in self.live.ledgers.values()
            for name, ledger in sorted(ledgers.items())
            if name not in names
        }


def with_namespaces(difference: Difference, names: frozenset[str], live: Live) -> Difference:
    """A destroy also deletes namespaces that we created and nobody else lives in; the Pulsar tenant never."""
    kept = list(difference.changes)
    gone = {change.address for change in difference.changes if isinstance(change, Delete)}
    for namespace, ledgers in live.ledgers.items():
        address = f"namespace.{namespace}"
        holders = [ledger for ledger in ledgers.values() if ledger.owned.get(address) is OwnershipKind.CREATED]
        topics = [f.resource for f in live.objects.values() if isinstance(f.resource, TopicResource)]
        left = {topic.address for topic in topics if topic.name.namespace == namespace}
        found = live.objects.get(address)
        if holders and found and not set(ledgers) - names and left <= gone:
            kept = [change for change in kept if change.address != address]
            kept.append(
                Delete(found.resource, ChangeContext(holders[0].name, "created by us, nobody else lives there"))
            )
    return replace(difference, changes=tuple(kept))
