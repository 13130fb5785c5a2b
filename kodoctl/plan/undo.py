"""An apply in reverse: an ordinary plan from the changes in its journal, against the live cluster. Pure.

Created objects are deleted, changed values are restored, deleted objects are created again, empty. Objects that
changed since are refused, and changes that no plan can undo are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from kodoctl.errors import Diagnostic, error, note
from kodoctl.plan.changes import (
    Adopt,
    Change,
    ChangeContext,
    Create,
    Delete,
    FieldChange,
    FieldUpdate,
    Forget,
    PolicyChange,
    Update,
)
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.field_diff import (
    PLATFORM_FIELDS,
    function_fields,
    function_value,
    is_equal,
    platform_fields,
    platform_value,
)
from kodoctl.plan.ledger_plan import LedgerPlan, with_entry
from kodoctl.plan.ownership import claim, namespace_of
from kodoctl.plan.plan import Plan, plan_without_files, reading_order
from kodoctl.plan.policy_levels import with_changes
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.text.formatting import HIDDEN_USER
from kodoctl.topology.function_settings import MASKED_KEYS, hidden_names
from kodoctl.topology.names import NamespaceName
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
    database_of,
    without_gaps,
)

if TYPE_CHECKING:
    from kodoctl.plan.diff import Allowances
    from kodoctl.plan.history import Applied
    from kodoctl.pulsar.values.evidence import Evidence
    from kodoctl.pulsar.values.live_objects import Live, LiveObject

K422 = "changed since the apply that is to be undone"
K423 = "a step that cannot be undone"


@dataclass(slots=True)
class _Backwards:
    """Changes and findings of an undo while they are collected."""

    live: Live
    reason: str
    changes: list[Change] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)

    def about(self, change: Change) -> ChangeContext:
        return ChangeContext(change.about.owner, self.reason)

    def since(self, address: Address, what: str) -> None:
        self.findings.append(error("K422", K422, f"{address}: {what}; change it by hand, or in the file"))

    def stays(self, address: Address, what: str) -> None:
        self.findings.append(note("K423", K423, f"{address}: {what}"))


def backwards(applied: Applied, live: Live) -> tuple[tuple[Change, ...], tuple[Diagnostic, ...]]:
    """Returns (changes that undo an apply, findings about changes that it does not undo or not in full). An object that
    changed since is an error (K422), and so is a publication that the apply created; a change that cannot be undone, is
    not known to have been carried out, or is of an object that could not be read, is a note (K423). Notes also say what
    an object that is made again has lost. A change whose object is gone may have neither, because nothing is left to
    undo. Dangers are not judged yet.
    """
    way = _Backwards(live, f"undoes {applied.id}")
    for change in applied.done:
        if isinstance(change, Create) and isinstance(change.after, PublicationResource):
            way.since(change.address, "a source is not undone, because its slot may hold changes that were not sent")
            continue
        if isinstance(change, Forget) and change.before is None:
            continue
        if live.is_unknown(change.address):
            place = "its database" if database_of(change.address) else "it"
            way.stays(change.address, f"{place} could not be read")
            continue
        match change:
            case Create(after=after):
                _unmake(way, change, after)
            case Update():
                _unchange(way, change)
            case Delete(before=before):
                _remake(way, change, before)
            case Adopt(before=before):
                _give_up(way, change, before)
            case Forget(address=address):
                _take_back(way, change, address)
            case _:
                assert_never(change)
    for broken, outcome in applied.broken:
        way.stays(broken.address, f"it was not done, or nobody knows ({outcome}): look at it yourself")
    return tuple(way.changes), tuple(way.findings)


def _unmake(way: _Backwards, change: Create, after: Resource) -> None:
    found = way.live.objects.get(after.address)
    match after:
        case TenantResource(home=None) | NamespaceResource() | SchemaResource():
            way.stays(after.address, "it was made and stays: others may need it by now")
        case _ if found is None:
            pass  # gone already
        case _ if why_not := _not_its_owner(way.live, after, found, change.about.owner, _MADE):
            way.since(after.address, why_not)
        case TopicResource() if _differs(after, found.resource):
            way.since(after.address, "somebody changed it after it was made")
        case FunctionResource() if isinstance(found.resource, FunctionResource) and (
            fields := function_fields(after, found.resource)
        ):
            names = ", ".join(one.label for one in fields)
            way.since(after.address, f"somebody changed it after it was made: {names}")
        case _ if isinstance(after, PlatformResource) and (fields := platform_fields(after, found.resource)):
            names = ", ".join(one.label for one in fields)
            way.since(after.address, f"somebody changed it after it was made: {names}")
        case GrantResource(actions=actions) if found.resource != after:
            assert isinstance(found.resource, GrantResource)
            shown = ", ".join(sorted(found.resource.actions))
            way.since(after.address, f"the role has {shown} by now, it was given {', '.join(sorted(actions))}")
        case _:
            way.changes.append(Delete(found.resource, way.about(change)))


def _give_up(way: _Backwards, change: Adopt, before: Resource) -> None:
    found = way.live.objects.get(before.address)
    if found is None:
        return
    if why_not := _not_its_owner(way.live, before, found, change.about.owner, frozenset(OwnershipKind)):
        way.since(before.address, why_not)
    else:
        way.changes.append(Forget(before.address, found.resource, way.about(change)))


def _take_back(way: _Backwards, change: Forget, address: Address) -> None:
    found = way.live.objects.get(address)
    if found is None:
        return
    owner = claim(address, found, way.live).owner
    if owner not in (None, change.about.owner):
        way.since(address, f"it belongs to {owner!r} by now")
    else:
        way.changes.append(Adopt(found.resource, way.about(change)))


_MADE: Final = frozenset({OwnershipKind.CREATED, OwnershipKind.INTENT})


def _not_its_owner(live: Live, after: Resource, found: LiveObject, owner: str, how: frozenset[OwnershipKind]) -> str:
    """Reason for which an object is no longer the one that an apply of the topology `owner` made or adopted (`how`):
    its marker or the ledger entry differs; "" if both agree. Such an object stays as it is.
    """
    if isinstance(after, TopicResource | SubscriptionResource) and found.marker != owner:
        return f"it belongs to {found.marker!r} by now" if found.marker else "nobody owns it by now"
    if isinstance(after, FunctionResource | PackageResource) and claim(after.address, found, live).owner is None:
        return "somebody made it anew"
    entry = live.entry(namespace_of(after), owner)
    if entry is not None and isinstance(after, GrantResource):
        return "" if after.address in entry.grants else f"{owner!r} does not own it by now"
    owns = entry is not None and entry.owned.get(after.address) in how
    return "" if owns else f"{owner!r} does not own it by now"


def _differs(after: TopicResource, now: Resource) -> bool:
    """True if partitions or policies differ from those that the apply wrote."""
    assert isinstance(now, TopicResource)
    names = {*after.policies, *now.policies}
    return after.partitions != now.partitions or any(
        not is_equal(name, now.policies.get(name), after.policies.get(name)) for name in names
    )


def _unchange(way: _Backwards, change: Update) -> None:
    found = way.live.objects.get(change.address)
    fields = tuple(_back(one) for one in change.fields if _revertible(change.before, one))
    for gone in (one for one in change.fields if not _revertible(change.before, one)):
        way.stays(change.address, f"{gone.name.replace('_', ' ')} stays as it became")
    if not fields:
        return
    if found is None:
        way.since(change.address, "it is gone")
        return
    moved = [one.label for one in fields if not _is_unchanged(found.resource, one)]
    if moved:
        way.since(change.address, f"{', '.join(moved)} changed again after that")
        return
    way.changes.append(Update(found.resource, _with(found.resource, fields), fields, way.about(change)))


def _revertible(resource: Resource, one: FieldUpdate) -> bool:
    if isinstance(one, PolicyChange) or one.name == "actions":
        return True
    return isinstance(resource, PlatformResource) and one.name in PLATFORM_FIELDS and not _is_hidden(one.before)


def _is_hidden(value: object) -> bool:
    """True for an address with a password, and for settings with a secret, which no plan has."""
    if isinstance(value, Mapping):
        return next(hidden_names(value), None) is not None
    return isinstance(value, str) and HIDDEN_USER in value


def _back(one: FieldUpdate) -> FieldUpdate:
    if isinstance(one, PolicyChange):
        return PolicyChange(one.policy, one.after, one.before, one.effective_after, one.effective_before)
    return FieldChange(one.name, one.after, one.before)


def _is_unchanged(resource: Resource, one: FieldUpdate) -> bool:
    """True if a field is still as the apply left it."""
    if isinstance(one, PolicyChange):
        assert isinstance(resource, TopicResource | NamespaceResource)
        return is_equal(one.policy, resource.policies.get(one.policy), one.before)
    if isinstance(resource, PlatformResource):
        return bool(platform_value(resource, one.name, one.before) == one.before)
    assert isinstance(resource, GrantResource)  # subscriptions are only ever healed
    return resource.actions == frozenset(one.before)


def _with(resource: Resource, fields: tuple[FieldUpdate, ...]) -> Resource:
    if isinstance(resource, GrantResource):
        [actions] = fields
        assert isinstance(actions, FieldChange)
        return replace(resource, actions=actions.after)
    if isinstance(resource, PlatformResource):
        values: dict[str, Any] = {one.name: one.after for one in fields}
        return replace(resource, **values)
    assert isinstance(resource, TopicResource | NamespaceResource)
    policies = with_changes(resource.policies, [one for one in fields if isinstance(one, PolicyChange)])
    return replace(resource, policies=policies)


def _remake(way: _Backwards, change: Delete, before: Resource) -> None:
    if before.address in way.live.objects:
        way.since(before.address, "it was made anew")
        return
    if isinstance(before, PackageResource):
        way.stays(before.address, "its content went with it: declare it with its file")
        return
    if isinstance(before, SlotResource):
        way.stays(before.address, "the next run of the source makes it anew; what was not sent is gone")
        return
    if isinstance(before, FunctionResource):
        if why_not := _why_not_again(before):
            way.stays(before.address, f"{why_not}: declare it")
            return
        start = f"; if its subscription went with it, it reads from {before.start} on" if before.subscription else ""
        way.stays(before.address, f"it is made again, without settings that files do not have{start}")
    if isinstance(before, ClusterResource):
        if any(_is_hidden(value) for value in vars(before).values() if isinstance(value, str)):
            way.stays(before.address, "kodoctl did not read the password in its address: make it by hand")
            return
        kept = {name: value for name, value in before.settings.items() if not _is_hidden({name: value})}
        before = replace(before, settings=kept)
        way.stays(before.address, "it is made again; secrets of its authentication are to be set by hand")
    if isinstance(before, TopicResource | SubscriptionResource):
        way.stays(before.address, "it is made again, empty: its messages are gone")
    way.changes.append(Create(without_gaps(before), way.about(change)))


def _why_not_again(function: FunctionResource) -> str:
    """Reason why a deleted function or connector cannot be made as it was; "" for none."""
    if not function.package:
        return "where its package was, is not known"
    lost = [name for name, reference in function_value(function, "secrets").items() if reference is None]
    if lost:
        return f"kodoctl did not read its secrets, which were no references: {', '.join(lost)}"
    unread = sorted({name for key in MASKED_KEYS for name in hidden_names(function_value(function, key))})
    return f"kodoctl did not read settings that no apply wrote: {', '.join(unread)}" if unread else ""


def undo_plan(
    applied: Applied, live: Live, *, evidence: Mapping[Address, Evidence], allowances: Allowances, now: int
) -> Plan:
    """Returns the plan that undoes an apply, with the dangers of its changes, but not those of order (K405) and lanes
    (K408). `evidence`: figures that were read, by address; `now`: ms since the epoch. Raises ClusterError if the
    journal has a ledger entry that cannot be read.
    """
    changes, findings = backwards(applied, live)
    judged = DangerRules(frozenset(), live, evidence, allowances.destroy, now).judge(changes)
    ordered = tuple(sorted(judged, key=reading_order))
    owners = _owners(applied, live, ordered)
    return plan_without_files(live, ordered, owners, findings=findings, allowances=allowances)


def _owners(applied: Applied, live: Live, changes: Iterable[Change]) -> Iterator[LedgerPlan]:
    """Yields the plans of ledger entries that restore the state before the apply, as far as the changes of the undo do:
    what they do not concern stays in its entry, because a later apply may have recorded it. An entry that the apply
    began is removed, unless something is left in it; one that is not there any more is as it was.
    """
    pairs: list[tuple[Ledger | None, Ledger | None]] = []
    for key, text in sorted(applied.ledgers.items()):
        place, _, name = key.rpartition("/")
        namespace = NamespaceName.parse(place)
        before = ledgers.decode(name, namespace, text) if text else None
        pairs.append((before, live.entry(namespace, name)))
    earlier = {address for before, _ in pairs if before is not None for address in before.grants}
    of_new = {address for before, now in pairs if before is None and now is not None for address in now.grants}
    is_given = dict.fromkeys(earlier & of_new, True)  # grants of topologies that were renamed or moved go back
    is_given |= {change.address: not isinstance(change, Delete | Forget) for change in changes}
    for before, now in pairs:
        if before is not None:
            yield with_entry(before) if now is None else _restored(applied, before, now, is_given)
        elif now is not None:
            yield _first_entry(applied, now, is_given)


def _restored(applied: Applied, before: Ledger, now: Ledger, is_given: Mapping[Address, bool]) -> LedgerPlan:
    """The future entry of a topology that had the entry `before` when the apply began, and has `now`."""
    grants = {address: actions for address, actions in now.grants.items() if address not in is_given}
    grants |= {address: actions for address, actions in before.grants.items() if is_given.get(address)}
    keys, databases = _keys_after(applied, before, now, is_given), {**before.databases, **now.databases}
    return replace(with_entry(before), namespace_keys=keys, grants=grants, databases=databases, partial=True)


def _first_entry(applied: Applied, now: Ledger, is_given: Mapping[Address, bool]) -> LedgerPlan:
    """The future entry of a topology that had none when the apply began. It stays if it has intents, because their
    objects may exist.
    """
    grants = {address: actions for address, actions in now.grants.items() if address not in is_given}
    keys = _keys_after(applied, Ledger(now.name, now.namespace), now, is_given)
    stays = OwnershipKind.INTENT in now.owned.values()
    return replace(with_entry(now), digest="", namespace_keys=keys, grants=grants, leaves=not stays, partial=stays)


def _keys_after(applied: Applied, before: Ledger, now: Ledger, is_given: Mapping[Address, bool]) -> frozenset[str]:
    """Namespace policies that an entry names after the undo: those of `before` if the undo gives the namespace up, else
    those of `now`, without what a change of the namespace by the apply added to `before`, and with what it took out.
    Without such a change the apply may have ended the entry: then `before` counts if `now` names none.
    """
    address = f"namespace.{now.namespace}"
    if is_given.get(address) is False:
        return before.namespace_keys
    for change in applied.done:
        after = change.after if isinstance(change, Create | Update) else None
        if isinstance(after, NamespaceResource) and (after.address, change.about.owner) == (address, now.name):
            managed = after.managed or frozenset()
            return (now.namespace_keys - (managed - before.namespace_keys)) | (before.namespace_keys - managed)
    return now.namespace_keys or before.namespace_keys
