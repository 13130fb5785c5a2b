"""From a journal to a plan: backwards what was done, or forwards what was not. Used by undo and by apply --resume."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kodoctl.apply.prepare import evidence_for, scope_of_changes
from kodoctl.errors import UsageError, error
from kodoctl.plan.diff import Allowances
from kodoctl.plan.history import Applied, applies, chosen, unpack
from kodoctl.plan.plan import Plan
from kodoctl.plan.undo import backwards, undo_plan
from kodoctl.pulsar.journal import read_journal
from kodoctl.pulsar.live import Scope, read_live
from kodoctl.pulsar.session import Session
from kodoctl.topology.names import NamespaceName


@dataclass(frozen=True, slots=True)
class Undoing:
    """The plan backwards, and the apply it undoes."""

    plan: Plan
    applied: Applied


def read_apply(session: Session, namespace: NamespaceName, name: str) -> Applied:
    """One apply, from the journals of all the namespaces it wrote to. Raises UsageError for an unknown name."""
    entries = list(read_journal(session.admin, session.client, namespace))
    first = chosen(applies(entries), name)
    places = {NamespaceName.parse(key.rpartition("/")[0]) for key in first.ledgers} - {namespace}
    for place in sorted(places):
        entries += read_journal(session.admin, session.client, place)
    return chosen(applies(entries), first.id)


def prepare_undo(session: Session, namespace: NamespaceName, name: str, allowances: Allowances) -> Undoing:
    """The plan that takes an apply back, its dangers judged."""
    applied = read_apply(session, namespace, name)
    live = read_live(session.admin, session.client, _scope(applied))
    changes, _ = backwards(applied, live)
    evidence = evidence_for(session.admin, changes, live)
    now = int(time.time() * 1000)
    return Undoing(undo_plan(applied, live, evidence=evidence, allowances=allowances, now=now), applied)


def prepare_resume(session: Session, namespace: NamespaceName) -> Plan:
    """What is left of the latest apply of a namespace, which must have been cut off. Raises UsageError."""
    from kodoctl.plan import document
    from kodoctl.plan.resume import rest_of

    applied = read_apply(session, namespace, "last")
    if applied.complete or applied.packed is None:
        why = "is complete" if applied.complete else "was too large for the journal: plan again"
        raise UsageError(error("K425", "nothing to continue", f"the latest apply of {namespace}, {applied.id}, {why}"))
    plan = document.loads(unpack(applied.packed), f"the journal's plan of {applied.id}")
    places = {*plan.namespaces, *(owner.namespace for owner in plan.owners)}
    names = {name for owner in plan.owners for name in (owner.name, *owner.replaces)}
    live = read_live(session.admin, session.client, scope_of_changes(plan.changes, places, names))
    return rest_of(plan, live)


def _scope(applied: Applied) -> Scope:
    touched = [*applied.done, *(change for change, _ in applied.broken)]
    places = {NamespaceName.parse(key.rpartition("/")[0]) for key in applied.ledgers}
    return scope_of_changes(touched, places, {key.rpartition("/")[2] for key in applied.ledgers})
