"""From a journal to a plan backwards: read what was done, look at what is live, judge. Used by undo."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kodoctl.apply.prepare import evidence_for, scope_of_changes
from kodoctl.plan.diff import Allowances
from kodoctl.plan.history import Applied, applies, chosen
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


def _scope(applied: Applied) -> Scope:
    touched = [*applied.done, *(change for change, _ in applied.broken)]
    places = {NamespaceName.parse(key.rpartition("/")[0]) for key in applied.ledgers}
    return scope_of_changes(touched, places, {key.rpartition("/")[2] for key in applied.ledgers})
