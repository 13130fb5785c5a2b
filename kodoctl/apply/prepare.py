"""From files to a plan against a live cluster: read, compare, gather evidence, judge. Used by every command that plans."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kodoctl.errors import Diagnostic, error
from kodoctl.plan.changes import Update
from kodoctl.plan.diff import Allowances, diff, with_namespaces
from kodoctl.plan.evidence import evidence_wanted
from kodoctl.plan.inventory import Desired, Live
from kodoctl.plan.plan import Plan, make_plan
from kodoctl.pulsar.admin import Admin
from kodoctl.pulsar.evidence import read_evidence
from kodoctl.pulsar.live import Report, Scope, read_live
from kodoctl.pulsar.session import Session
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import GrantResource, SchemaResource, TenantResource, TopicResource


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan and the live side it was made against."""

    plan: Plan
    live: Live


def scope_of(desired: Desired, namespaces: Iterable[NamespaceName] = ()) -> Scope:
    """What must be read to plan for `desired`."""
    resources = [wanted.resource for wanted in desired.objects.values()]
    own = {*desired.namespaces, *namespaces}
    foreign = {
        r.target.namespace for r in resources if isinstance(r, GrantResource) and isinstance(r.target, TopicName)
    } - own
    names = {*desired.names, *(old for name in desired.names for old in desired.formerly(name))}
    return Scope(
        namespaces=tuple(sorted(own)),
        names=frozenset(names),
        declared=frozenset(r.name for r in resources if isinstance(r, TopicResource)),
        schemas=frozenset(r.topic for r in resources if isinstance(r, SchemaResource)),
        tenants=frozenset(r.name for r in resources if isinstance(r, TenantResource)),
        grants_only=tuple(sorted(foreign)),
    )


def prepare(
    session: Session,
    desired: Desired,
    allowances: Allowances,
    *,
    namespaces: Iterable[NamespaceName] = (),
    report: Report = lambda _: None,
) -> Prepared:
    """The plan for what the files declare; `namespaces`: further ones to look at (destroy by name)."""
    live = read_live(session.admin, session.client, scope_of(desired, namespaces), report=report)
    return Prepared(plan_against(session.admin, desired, live, allowances), live)


def plan_against(admin: Admin, desired: Desired, live: Live, allowances: Allowances) -> Plan:
    """The plan for an inventory that has been read already."""
    difference = diff(desired, live, allowances)
    if desired.destroyed:
        difference = with_namespaces(difference, desired.names, live)
    updates = frozenset(change.address for change in difference.changes if isinstance(change, Update))
    wanted = tuple(evidence_wanted(difference.changes, live))
    evidence = (
        read_evidence(admin, live, wanted, ledgers_of=updates | frozenset(wanted) if updates else frozenset())
        if wanted
        else {}
    )
    plan = make_plan(desired, live, difference, evidence=evidence, allowances=allowances, now=int(time.time() * 1000))
    return replace(plan, findings=(*plan.findings, *_incompatible_schemas(admin, plan)))


def _incompatible_schemas(admin: Admin, plan: Plan) -> Iterable[Diagnostic]:
    """The broker's own verdict on a new schema version, before anything is written (it says no with a 500)."""
    for change in plan.changes:
        if isinstance(change, Update) and isinstance(change.after, SchemaResource):
            topic = change.after.topic
            body = {"type": change.after.type, "schema": change.after.definition, "properties": {}}
            reply = admin.call("POST", f"schemas/{topic.namespace}/{topic.local}/compatibility", body)
            compatible = reply.ok and bool((reply.data or {}).get("compatibility"))
            if not compatible:
                detail = (
                    f"{topic}: {reply.reason or 'the broker would refuse this version'}; see `schema_compatibility`"
                )
                yield error("K418", "payload schema incompatible with the live one", detail, change.about.where)
