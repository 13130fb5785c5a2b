"""Approval check: a merge may apply a plan made now only if the approved plan contains everything in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import Diagnostic, error
from kodoctl.plan import serialization
from kodoctl.plan.changes import Change, Create, Update, action_of, with_context
from kodoctl.plan.staleness import other_cluster
from kodoctl.text.formatting import shorten_lines, value_text
from kodoctl.topology.function_settings import MASKED_KEYS, without_secrets

if TYPE_CHECKING:
    from kodoctl.documents.plan_actions import Action
    from kodoctl.plan.changes import FieldUpdate
    from kodoctl.plan.plan import Plan
    from kodoctl.topology.resources import Address

K544: Final = "not in the approved plan"
# What explains a change or judges it; the rest is what would be done.
_ABOUT: Final = ("reason", "where", "dangers", "evidence", "origin", "drifted")


def unapproved_changes(fresh: Plan, approved: Plan) -> tuple[Diagnostic, ...]:
    """Returns errors (K534, K544) for everything in `fresh` that `approved` does not have: another cluster or
    environment, changes, dangers of changes, ledger entries; () if there is none. Findings of a plan as a whole are not
    compared, and errors in either plan are the caller's to refuse. One error (K544) lists the changes, dangers and
    ledger entries, 20 of them at most.

    A change is approved if it differs from the approved one only in its reason, place, dangers, evidence and origin,
    and a danger if the approved change has one with the same code and severity. Approved changes may be absent from
    `fresh`, because an earlier apply may have finished them. A Pulsar tenant without a UUID in `approved` may have one
    in `fresh`: an apply that was cut off gave it, and is run again.
    """
    now = {tenant: uuid for tenant, uuid in fresh.identity.uuids.items() if approved.identity.uuids.get(tenant)}
    known = replace(approved.identity, uuids={tenant: uuid for tenant, uuid in approved.identity.uuids.items() if uuid})
    findings = list(other_cluster(replace(approved, identity=known), fresh.identity.cluster, now))
    if fresh.environment != approved.environment:
        detail = f"the approved plan is for environment {approved.environment or 'base'}, this is {fresh.environment or 'base'}"
        findings.append(error("K544", K544, detail))
    lines = [*_changes(fresh, approved), *_owners(fresh, approved)]
    if lines:
        advice = "nothing was written: plan again in a pull request, and have that approved"
        findings.append(error("K544", K544, "\n".join([*shorten_lines(lines), advice])))
    return tuple(findings)


def with_reviewed_evidence(fresh: Plan, approved: Plan) -> Plan:
    """Returns `fresh` with the evidence of `approved` at each change, because an apply disconnects clients only if the
    evidence that was reviewed names some. Raises KeyError if `approved` has no change with the address and action of
    one in `fresh`: to be called after `unapproved_changes` found nothing.
    """
    known = {_key(change): change.about.evidence for change in approved.changes}
    changes = tuple(with_context(change, evidence=known[_key(change)]) for change in fresh.changes)
    return replace(fresh, changes=changes)


def _key(change: Change) -> tuple[Address, Action]:
    """Key of a change: address and action, because an adopted object may be updated as well."""
    return change.address, action_of(change)


def _changes(fresh: Plan, approved: Plan) -> Iterator[str]:
    known = {_key(change): change for change in approved.changes}
    touched: dict[Address, list[str]] = {}
    for change in approved.changes:
        touched.setdefault(change.address, []).append(_in_words(change))
    for change in fresh.changes:
        address, reviewed = change.address, known.get(_key(change))
        if address not in touched:
            yield f"{address}: {action_of(change).value}"
            continue
        if reviewed is None or _effect_of(change) != _effect_of(reviewed):
            yield f"{address}: {_in_words(change)}; approved was {', '.join(touched[address])}"
            continue
        seen = {(danger.code, danger.severity) for danger in reviewed.about.dangers}
        for danger in change.about.dangers:
            if (danger.code, danger.severity) not in seen:
                yield f"{address}: at stake now, and not when it was approved: {danger.code} {danger.detail}"


def _owners(fresh: Plan, approved: Plan) -> Iterator[str]:
    """Yields a line for each ledger entry that `fresh` writes, replaces or removes otherwise than `approved`."""
    known = {(owner.namespace, owner.name, owner.replaces, owner.ends) for owner in approved.owners}
    for owner in fresh.owners:
        if (owner.namespace, owner.name, owner.replaces, owner.ends) not in known:
            end = " would end" if owner.ends else ""
            instead = f" would replace {', '.join(owner.replaces)}" if owner.replaces else ""
            yield f"topology {owner.name} in {owner.namespace}{end}{instead}; the approved plan does not have that"


def _effect_of(change: Change) -> dict[str, Any]:
    return {key: value for key, value in serialization.change_to_json(change).items() if key not in _ABOUT}


def _both_values(field: FieldUpdate) -> str:
    document = serialization.field_to_json(field)
    before, after = document["before"], document["after"]
    if field.name in MASKED_KEYS:
        before, after = without_secrets(before), without_secrets(after)
    return f"{field.label} {value_text(before)} → {value_text(after)}"


def _in_words(change: Change) -> str:
    """The verb of a change, and in brackets the created object, or the changed fields with both values."""
    verb = action_of(change).value
    match change:
        case Create(after=after):
            return f"{verb} ({serialization.describe(after)})"
        case Update(fields=fields):
            return f"{verb} ({', '.join(map(_both_values, fields))})"
        case _:
            return verb
