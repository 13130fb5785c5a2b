"""Planner from a journal: reverses the changes of an apply (undo), or continues those that were not made (apply
--resume).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.plan.changes import with_context
from kodoctl.plan.diff import Allowances
from kodoctl.plan.history import Applied, find_apply, parse, read_history, unpack
from kodoctl.plan.live.planner import evidence_for, rejudge, scope_of_changes
from kodoctl.plan.live.source_objects import with_objects
from kodoctl.plan.schedule import resource_of
from kodoctl.plan.staleness import looked_at
from kodoctl.plan.undo import backwards, undo_plan
from kodoctl.pulsar.control.journal import read_journal
from kodoctl.pulsar.inventory.live_inventory import read_live
from kodoctl.text.formatting import time_text
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import PlatformResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.inventory.read_scope import ReadScope
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.resources import Address

_SAME_BEGIN_MS: Final = 60_000
"""Most time between the first writes of one command on two clusters: they wait for each other before it."""


@dataclass(frozen=True, slots=True)
class Undoing:
    """An apply (`applied`) from the journals, with the plan that undoes it."""

    plan: Plan
    applied: Applied


def read_apply(session: Session, namespace: NamespaceName, name: str) -> Applied:
    """Reads one apply from the journals of all namespaces whose ledger entries it could write, beginning with
    `namespace`. `name`: its id, the beginning of it, or `last` (in the journal of `namespace`). Raises UsageError
    (K424) for a name that no apply or several fit, and for `last` if a newer kodoctl carried the latest out;
    RefusedError (K431) if the journal of one of these namespaces does not have the apply, by its id and digest (a
    writer of one journal could name any namespace); and ClusterError. Blocks.
    """
    entries = list(map(parse, read_journal(session.admin, session.client, namespace)))
    first = find_apply(read_history(entries), name, str(namespace))
    places = {NamespaceName.parse(key.rpartition("/")[0]) for key in first.ledgers} - {namespace}
    for place in sorted(places):
        theirs = list(map(parse, read_journal(session.admin, session.client, place)))
        if not any((one.id, one.digest) == (first.id, first.digest) for one in read_history(theirs).applies):
            detail = f"{first.id} is said to have written to {place}, whose journal knows nothing of it"
            raise RefusedError(error("K431", "journals that contradict each other", detail))
        entries += theirs
    return find_apply(read_history(entries), first.id, str(namespace))


def prepare_undo(session: Session, namespace: NamespaceName, name: str, allowances: Allowances) -> Undoing:
    """Reads journals, cluster and databases, and returns the plan that undoes an apply, with its dangers; writes
    nothing. Objects that changed since are errors of the plan; a change that it does not undo, such as one of an object
    that could not be read, is a note. Raises as `read_apply` does, and RefusedError (K431) also for a change of an
    object of the whole cluster whose home is neither `namespace` nor one with a ledger entry of the apply.
    """
    applied = read_apply(session, namespace, name)
    _refuse_other_places(_homes(applied.done), applied, namespace)
    touched = looked_at(applied.done)
    scope = _scope(applied, namespace)
    live = with_objects(read_live(session.admin, session.client, scope), touched, session.variables)
    changes, _ = backwards(applied, live)
    evidence = evidence_for(session.admin, changes, live)
    now = int(time.time() * 1000)
    return Undoing(undo_plan(applied, live, evidence=evidence, allowances=allowances, now=now), applied)


def refuse_unlike(applied: Mapping[str, Applied]) -> None:
    """Raises UsageError (K548) unless the applies of several clusters, by context (at least one), are those of one
    command: a command names the same user, host, process, verb and commit in all journals, and each begins at most a
    minute before or after the first one here.
    """
    first = next(iter(applied.values()))
    if all(
        (one.who, one.verb, one.commit) == (first.who, first.verb, first.commit)
        and abs(one.began - first.began) <= _SAME_BEGIN_MS
        for one in applied.values()
    ):
        return
    latest = "; ".join(f"{name} {one.id}, {time_text(one.began)}, by {one.who}" for name, one in applied.items())
    detail = f"the latest applies are not those of one command: {latest}\nundo each by its id, with one --context"
    raise UsageError(error("K548", "one cluster at a time", detail))


def prepare_resume(session: Session, namespace: NamespaceName, destroy: Collection[Address] = ()) -> Plan:
    """Returns the plan of the rest of the latest apply of a namespace, which must be incomplete or cut off; writes
    nothing. Objects that were changed from outside are errors of the plan. `destroy`: addresses that may be destroyed;
    allowances in the journal do not count. Raises UsageError if there is nothing to continue, if a newer kodoctl
    carried the latest apply out, or if the journal has no readable plan (such as one that was too large for it);
    RefusedError if journals contradict each other, or if another version of kodoctl made the plan or it was edited;
    InvalidFileError for another fault of the plan; and ClusterError. Blocks.
    """
    from kodoctl.plan import plan_file
    from kodoctl.plan.resume import rest_of

    applied = read_apply(session, namespace, "last")
    if applied.complete or applied.packed is None:
        why = "is complete" if applied.complete else "was too large for the journal: plan again"
        raise UsageError(error("K425", "nothing to continue", f"the latest apply of {namespace}, {applied.id}, {why}"))
    try:
        text = unpack(applied.packed)
    except ValueError as problem:
        detail = f"the plan of {applied.id} cannot be read: {problem}; plan again"
        raise UsageError(error("K425", "nothing to continue", detail)) from None
    plan = plan_file.loads(text, f"the journal's plan of {applied.id}")
    changes = tuple(_without_file(change) for change in plan.changes)
    plan = replace(plan, changes=changes, allowances=Allowances(destroy=frozenset(destroy)))
    places = {*plan.namespaces, *(owner.namespace for owner in plan.owners)}
    _refuse_other_places(places | _homes(changes), applied, namespace)
    names = {name for owner in plan.owners for name in (owner.name, *owner.replaces)}
    live = with_objects(
        read_live(session.admin, session.client, scope_of_changes(plan.changes, places | {namespace}, names)),
        looked_at(plan.changes),
        session.variables,
    )
    return rejudge(session.admin, rest_of(plan, live), live, now=int(time.time() * 1000))


def _refuse_other_places(places: set[NamespaceName], applied: Applied, namespace: NamespaceName) -> None:
    """Raises RefusedError (K431) if a journal changes a namespace, or an object whose home it is, of which the apply
    does not name the ledger.
    """
    known = {NamespaceName.parse(key.rpartition("/")[0]) for key in applied.ledgers} | {namespace}
    if others := sorted(map(str, places - known)):
        detail = f"the plan of {applied.id} writes to {', '.join(others)}, of which its journal says nothing"
        raise RefusedError(error("K431", "journals that contradict each other", detail))


def _without_file(change: Change) -> Change:
    """The change without its place in a file if its object is one of the whole cluster: the journal alone says so."""
    return with_context(change, where=None) if isinstance(resource_of(change), PlatformResource) else change


def _homes(changes: Iterable[Change]) -> set[NamespaceName]:
    """Homes of the objects of the whole cluster among these changes."""
    resources = map(resource_of, changes)
    return {one.home for one in resources if isinstance(one, PlatformResource) and one.home is not None}


def _scope(applied: Applied, namespace: NamespaceName) -> ReadScope:
    """The scope of an undo: also the namespace of the journal, because who may write it decides what it may change."""
    touched = [*applied.done, *(change for change, _ in applied.broken)]
    places = {NamespaceName.parse(key.rpartition("/")[0]) for key in applied.ledgers} | {namespace}
    return scope_of_changes(touched, places, {key.rpartition("/")[2] for key in applied.ledgers})
