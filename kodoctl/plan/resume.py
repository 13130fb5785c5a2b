"""The rest of an apply that was cut off: its own plan, without the finished changes. Pure.

Every object has either its planned state, or the state that the apply makes, whole or in part. Any other state
is a change from outside, and refuses all of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from kodoctl.errors import Diagnostic, error
from kodoctl.plan import serialization
from kodoctl.plan.changes import (
    Adopt,
    Change,
    Create,
    Delete,
    FieldChange,
    FieldUpdate,
    Forget,
    PolicyChange,
    Update,
)
from kodoctl.plan.field_diff import function_fields, function_value, is_equal, platform_fields, platform_value
from kodoctl.plan.ledger_plan import is_held, ledger_fingerprints
from kodoctl.plan.ownership import namespace_of
from kodoctl.plan.plan import Plan, fingerprint
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.text.formatting import partitions_text
from kodoctl.topology.function_settings import shown_settings
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    Resource,
    SubscriptionResource,
    TopicResource,
    without_gaps,
)

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live, LiveObject


_MARKED: Final = TopicResource | SubscriptionResource | FunctionResource | PackageResource


class _ForeignError(Exception):
    """An object has neither the planned state nor the state that the apply makes. The text describes its state."""


def rest_of(plan: Plan, live: Live) -> Plan:
    """Returns the plan with only the changes that are left to do, bound to the live cluster `live` (its identity and
    fingerprints). An object that is half made gets the changes that finish it; one that is deleted, and still in a
    ledger entry, is forgotten. Objects that were changed from outside become errors of the plan (K533). Earlier
    findings stay, and dangers are not judged again.
    """
    left: list[Change] = []
    foreign: list[Diagnostic] = []
    for change in plan.changes:
        try:
            if plan.fingerprints.get(change.address) == fingerprint(change.address, live) and not _stands(change, live):
                left.append(change)
            else:
                left += _remaining_changes(change, live)
        except _ForeignError as problem:
            detail = f"{change.address}: {problem}; what is left cannot be continued: plan again"
            foreign.append(error("K533", "the cluster changed since the plan", detail))
    return replace(
        plan,
        identity=live.identity,
        changes=tuple(left),
        findings=(*plan.findings, *foreign),
        fingerprints={change.address: fingerprint(change.address, live) for change in left},
        ledger_fingerprints=ledger_fingerprints(plan.owners, left, live),
    )


def _stands(change: Change, live: Live) -> bool:
    """True for an adoption that the ledger entry of the owner records already."""
    return isinstance(change, Adopt) and _holding(change.before, change.about.owner, live) in (
        OwnershipKind.ADOPTED,
        OwnershipKind.CREATED,
    )


def _holding(resource: Resource, owner: str, live: Live) -> OwnershipKind | None:
    entry = live.entry(namespace_of(resource), owner)
    return entry.owned.get(resource.address) if entry else None


def _remaining_changes(change: Change, live: Live) -> Iterator[Change]:
    found = live.objects.get(change.address)
    match change:
        case Create(after=after):
            if found is None:  # what is still absent is as the plan saw it
                raise _ForeignError("it was there when the plan was made, which would create it, and is gone")
            yield from _of_made(change, after, found, live)
        case Update():
            yield from _of_changed(change, found)
        case Delete(before=before):
            yield from _of_deleted(change, before, found, live)
        case Adopt():
            if found is None:
                raise _ForeignError("it is gone")
            if not _stands(change, live):
                yield replace(change, before=found.resource)
        case Forget(address=address):
            if _is_listed(address, change.about.owner, live):
                yield replace(change, before=found.resource if found else None)
        case _:
            assert_never(change)


def _of_made(change: Create, after: Resource, found: LiveObject, live: Live) -> Iterator[Change]:
    """Yields the changes that an object still needs after the apply created it: its ledger entry, and fields that are
    not set yet.
    """
    owner = change.about.owner
    if isinstance(after, _MARKED) and found.marker != owner:
        raise _ForeignError(f"it was made by somebody else, and is {serialization.describe(found.resource)}")
    if (is_held(after) or isinstance(after, GrantResource)) and _holding(
        after, owner, live
    ) is not OwnershipKind.CREATED:
        yield Adopt(found.resource, change.about)
    fields = tuple(_unset(after, found.resource))
    if fields:
        yield Update(found.resource, after, fields, change.about)


def _unset(after: Resource, now: Resource) -> Iterator[FieldUpdate]:
    match after, now:
        case TopicResource(), TopicResource():
            if now.partitions != after.partitions:
                raise _ForeignError(f"it has {partitions_text(now.partitions)}, {after.partitions:,} planned")
            if now.missing:
                yield FieldChange("missing_partitions", now.missing, ())
            for name in sorted({*after.policies, *now.policies}):
                there, wanted = now.policies.get(name), after.policies.get(name)
                if not is_equal(name, there, wanted):
                    if there is not None:
                        raise _ForeignError(f"{name} is {there}, {wanted} was planned")
                    yield PolicyChange(name, None, wanted)
        case SubscriptionResource(), SubscriptionResource(missing_on=missing) if missing:
            yield FieldChange("missing_on", missing, ())
        case FunctionResource(), FunctionResource() if fields := function_fields(after, now):
            names = ", ".join(one.label for one in fields)
            raise _ForeignError(f"{names}: not as planned")  # one request sets all of them: somebody else changed it
        case PackageResource(), PackageResource() if after.digest != now.digest:
            raise _ForeignError("its content is not known to be the planned one: `pulsar-admin packages delete` it")
        case _ if isinstance(after, PlatformResource) and (fields := platform_fields(after, now)):
            raise _ForeignError(f"{', '.join(one.label for one in fields)}: not as planned")
        case GrantResource(actions=wanted), GrantResource(actions=there) if not wanted <= there:
            yield FieldChange("actions", there, there | wanted)
        case _:
            pass


def _of_changed(change: Update, found: LiveObject | None) -> Iterator[Change]:
    if found is None:
        raise _ForeignError("it is gone")
    left = tuple(field for field in change.fields if not _is_written(field, found.resource))
    if left:
        yield replace(change, before=found.resource, fields=left)


def _is_written(field: FieldUpdate, now: Resource) -> bool:
    """True if a field has its new value. Raises _ForeignError for a value that is neither the old nor the new one."""
    if isinstance(field, PolicyChange):
        assert isinstance(now, TopicResource | NamespaceResource)
        shown = now.policies.get(field.policy)
        was, is_done = (is_equal(field.policy, shown, value) for value in (field.before, field.after))
    else:
        value = _present_value(field, now)
        was, is_done = value == field.before, value == field.after
    if not (was or is_done):
        raise _ForeignError(f"{field.label} is neither what it was nor what was planned")
    return is_done


def _present_value(field: FieldChange, now: Resource) -> object:
    """The present value of a field; that before the change for a field that no object shows: it is written again, which
    changes nothing.
    """
    match now:
        case TopicResource() if field.name == "partitions":
            return now.partitions
        case TopicResource() if field.name == "missing_partitions":
            return now.missing
        case SubscriptionResource():
            return now.missing_on
        case GrantResource():
            return now.actions
        case FunctionResource():
            value = function_value(now, field.name)
            return shown_settings(value, field.after) if field.name == "settings" else value
        case _ if isinstance(now, PlatformResource):
            return platform_value(now, field.name, field.after)
        case _:
            return field.before  # a schema version or a stalling value


def _of_deleted(change: Delete, before: Resource, found: LiveObject | None, live: Live) -> Iterator[Change]:
    if found is None:
        if _is_listed(change.address, change.about.owner, live):
            yield Forget(change.address, None, change.about)
        return
    if without_gaps(found.resource) != before:
        raise _ForeignError(f"it is {serialization.describe(found.resource)} by now")
    yield Delete(found.resource, change.about)


def _is_listed(address: Address, owner: str, live: Live) -> bool:
    """True if a ledger of the owner still lists the address."""
    return any(entry.name == owner and address in entry.addresses for entry in live.entries)
