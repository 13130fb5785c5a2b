"""Planner against a live cluster, for every command that plans: reads files and cluster, compares them, gathers
evidence and judges dangers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Severity, error
from kodoctl.plan.changes import Change, Delete, Update, with_context
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.danger.evidence import evidence_wanted
from kodoctl.plan.diff import Allowances, diff, with_namespaces
from kodoctl.plan.live.source_objects import with_sources
from kodoctl.plan.live.topic_states import topic_state_findings
from kodoctl.plan.partial_access import drop_unseen, unseen_finding
from kodoctl.plan.plan import Plan, make_plan
from kodoctl.plan.schedule import resource_of
from kodoctl.plan.targeting import choose, known_addresses
from kodoctl.pulsar.admin.admin import Admin, must, schema_path
from kodoctl.pulsar.inventory.evidence_reader import read_evidence
from kodoctl.pulsar.inventory.live_inventory import read_live
from kodoctl.pulsar.inventory.read_scope import ReadScope
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
    database_of,
    topic_address,
)
from kodoctl.topology.target_flags import WHOLE, TargetFlags

if TYPE_CHECKING:
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.session import Session
    from kodoctl.pulsar.values.evidence import Evidence
    from kodoctl.pulsar.values.live_objects import Live

FRESH_S: Final = 30.0  # age up to which the reading of a plan is as good for a delete as one under the lease
_INCOMPATIBLE: Final = "IncompatibleSchemaException"  # in the 500 that is the broker's verdict; others are no verdict


class Tolerance(Enum):
    """Ways of a plan to treat a namespace, a topic or an object of the whole cluster that it needs and cannot read.
    NONE raises an error. REDUCED does so too, unless the role lacks the right to read it: of such a namespace it plans
    only topics and subscriptions, and the plan cannot be applied. LEFT_OUT raises an error, too, but leaves out a topic
    that the broker cannot load: one of ours (of a file, or of our ledger entries) only if waiting does not mend that,
    with an error among the findings; any other with a note.
    """

    NONE = "it raises an error"
    REDUCED = "a role that may read topics only gets a plan that cannot be applied"
    LEFT_OUT = "it leaves out each topic that waiting does not make readable, with an error among its findings"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A plan and the live inventory from which it was made (if the plan is reduced, that of `drop_unseen`)."""

    plan: Plan
    live: Live


def scope_of(desired: Desired, namespaces: Iterable[NamespaceName] = ()) -> ReadScope:
    """Returns the scope that a plan of all of `desired` reads on the cluster. `namespaces`: namespaces to read besides
    those of the files.
    """
    resources = [wanted.resource for wanted in desired.objects.values()]
    return replace(
        _scope(resources, {*desired.namespaces, *namespaces}, desired.all_names),
        declared=frozenset(r.name for r in resources if isinstance(r, TopicResource)),
        named=_named_policies(resources),
        packages=True,
        neighbours=bool(desired.destroyed),
        bookies=any("persistence" in r.policies for r in resources if isinstance(r, TopicResource | NamespaceResource)),
    )


def _scope(resources: Iterable[Resource | None], own: set[NamespaceName], names: Iterable[str]) -> ReadScope:
    """The scope with these namespaces, and with the tenants, schemas and grants among the resources."""
    found = tuple(resources)
    grants = {r.target for r in found if isinstance(r, GrantResource)}
    return ReadScope(
        namespaces=tuple(sorted(own)),
        names=frozenset(names),
        schemas=frozenset(r for r in found if isinstance(r, SchemaResource)),
        tenants=frozenset(r.name for r in found if isinstance(r, TenantResource) and r.home is None),
        platform={r.address: r.home for r in found if isinstance(r, PlatformResource) and r.home is not None},
        functions=frozenset(r for r in found if isinstance(r, FunctionResource)),
        uploads=frozenset(r for r in found if isinstance(r, PackageResource)),
        grants_only=tuple(sorted({one.namespace for one in grants if isinstance(one, TopicName)} - own)),
    )


def plan_live(
    session: Session,
    desired: Desired,
    allowances: Allowances,
    *,
    namespaces: Iterable[NamespaceName] = (),
    against: Baseline | None = None,
    selection: TargetFlags | None = None,
    tolerance: Tolerance = Tolerance.NONE,
) -> PlannedRun:
    """Reads the cluster and the databases of sources, and returns the plan for the declared objects, which may be a
    refused one; writes nothing. `namespaces`: further namespaces to read (destroy by name); `against`: a git revision
    that separates edits from drift, None: changes have no origin; `selection`: plans a part only, None: everything;
    LEFT_OUT replaces it if topics are left out. Raises UsageError if a name of the selection matches nothing or nothing
    is left, ClusterError if a part of the cluster cannot be read that `tolerance` does not allow to miss. Databases,
    functions and packages that cannot be read are findings of the plan; with REDUCED so are objects of the whole
    cluster that the role may not read.
    """
    scope = scope_of(desired, namespaces)
    reduced, lenient = tolerance is Tolerance.REDUCED, tolerance is Tolerance.LEFT_OUT
    scope = replace(scope, reduced=reduced, selection=selection or WHOLE, lenient=lenient)
    live = with_sources(read_live(session.admin, session.client, scope), desired, session.variables)
    live = replace(live, read_at=time.monotonic())
    if live.unseen:
        desired, live = drop_unseen(desired, live)
    if lenient and (unread := known_addresses(desired, live) & frozenset(map(topic_address, live.unread))):
        selection = TargetFlags(excludes=tuple(sorted(unread)))
    plan = plan_inventory(session.admin, desired, live, allowances, against, selection, compares=lenient)
    return PlannedRun(plan, live)


def just_read(plan: Plan, now: float) -> frozenset[TopicName]:
    """Returns the topics that a plan deletes, if this process read the cluster for the plan at most FRESH_S seconds
    before `now` (by `time.monotonic`); else none. A topic that another change than a delete concerns is left out, and
    so is one that could not be read.

    An apply does not read them again under the lease: each is read right before its DELETE, which refuses an object of
    another owner, and clients and messages that nobody allowed (kodoctl.apply.deletes).
    """
    if plan.reading is None or now - plan.reading.read_at > FRESH_S:
        return frozenset()
    whole = {
        one.before.name for one in plan.changes if isinstance(one, Delete) and isinstance(one.before, TopicResource)
    }
    kept = {topic_of(resource_of(change)) for change in plan.changes if not isinstance(change, Delete)}
    return frozenset(whole - kept - plan.reading.unread.keys())


def with_known(live: Live, plan: Plan, known: frozenset[TopicName]) -> Live:
    """Returns `live` with the topics in `known`, their subscriptions and their schemas as the plan read them; `live`
    itself for a plan without `reading`.
    """
    if not known or plan.reading is None:
        return live
    found = {key: one for key, one in plan.reading.objects.items() if topic_of(one.resource) in known}
    return replace(live, objects={**live.objects, **found})


def scope_of_plan(plan: Plan, known: frozenset[TopicName] = frozenset()) -> ReadScope:
    """Returns the scope that is read again before a plan is carried out: that of its changes (`scope_of_changes`), with
    the flags of its `portion`, and without the topics in `known`.
    """
    own = {*plan.namespaces, *(owner.namespace for owner in plan.owners)}
    names = {name for owner in plan.owners for name in (owner.name, *owner.replaces)}
    selection = plan.portion.selection if plan.portion else WHOLE
    return replace(scope_of_changes(plan.changes, own, names), selection=selection, known=known)


def scope_of_changes(changes: Iterable[Change], own: set[NamespaceName], names: Iterable[str]) -> ReadScope:
    """Returns the scope with the objects of these changes, without those in databases. `own`, `names`: namespaces to
    read, and names of our topologies, as `namespaces` and `names` of `ReadScope`. Only the topics of the changes are
    read, unless a change concerns a namespace or a grant, or is a `Forget` without `before` (of an object outside of
    databases): then all topics of the namespaces are.
    """
    touched = [resource_of(change) for change in changes if database_of(change.address) is None]
    kinds = PlatformResource | FunctionResource | PackageResource
    topics = [topic_of(one) for one in touched if not isinstance(one, kinds)]
    declared = frozenset(topic for topic in topics if topic is not None)
    only = None if None in topics else declared
    return replace(_scope(touched, own, names), declared=declared, named=_named_policies(touched), only=only)


def _named_policies(resources: Iterable[Resource | None]) -> frozenset[str]:
    """The policies that a file names for a namespace among the resources, and those that were read of a live one: an
    adoption has no other resource.
    """
    spaces = [r for r in resources if isinstance(r, NamespaceResource)]
    return frozenset(name for space in spaces for name in (*(space.managed or ()), *space.policies))


def topic_of(resource: Resource | None) -> TopicName | None:
    """The name of the topic of a topic, subscription or schema; None for any other object, a grant on a topic too."""
    match resource:
        case TopicResource(name=topic) | SubscriptionResource(topic=topic) | SchemaResource(topic=topic):
            return topic
        case _:
            return None


def rejudge(admin: Admin, plan: Plan, live: Live, *, now: int, known: frozenset[TopicName] = frozenset()) -> Plan:
    """Reads new evidence and returns the plan with new dangers of its changes, judged by `DangerRules` on the live
    inventory `live`; dangers of order (K405) and lanes (K408) are not judged again, and are lost. The plan keeps its
    reviewed evidence: an apply disconnects clients only if that evidence names some. Changes of the topics in `known`,
    their subscriptions and schemas keep their dangers. `now`: ms since the epoch. Blocks; raises ClusterError if
    evidence cannot be read.
    """
    settled = {change.address for change in plan.changes if topic_of(resource_of(change)) in known} if known else set()
    evidence = evidence_for(admin, [change for change in plan.changes if change.address not in settled], live)
    judged = DangerRules(frozenset(), live, evidence, plan.allowances.destroy, now).judge(plan.changes)
    pairs = [(old, old if old.address in settled else new) for old, new in zip(plan.changes, judged, strict=True)]
    return replace(plan, changes=tuple(with_context(old, dangers=new.about.dangers) for old, new in pairs))


def evidence_for(admin: Admin, changes: Sequence[Change], live: Live) -> Mapping[Address, Evidence]:
    """Reads figures about data and clients that these changes put at risk, and returns them by address; {} if none is
    at risk. Addresses of topics that are gone by now, and of their subscriptions, are missing. Blocks; raises
    ClusterError, but not for a function whose inputs cannot be read (`Evidence.unread`).
    """
    wanted = tuple(evidence_wanted(changes, live))
    if not wanted:
        return {}
    keeps_less = not live.unseen and any(isinstance(change, Update) for change in changes)
    return read_evidence(admin, live, wanted, ledgers_of=frozenset(wanted) if keeps_less else frozenset())


def plan_inventory(
    admin: Admin,
    desired: Desired,
    live: Live,
    allowances: Allowances,
    against: Baseline | None = None,
    selection: TargetFlags | None = None,
    *,
    compares: bool = False,
) -> Plan:
    """Returns the plan for an inventory that has been read already; reads evidence on the cluster and, unless the
    inventory has `unseen` namespaces, checks new versions of schemas and the states of topics there. `compares`: for a
    comparison with the last apply: a topic of ours that is left out because it cannot be read is an error, not a note,
    and more topics are checked for their state (`of_all` of `topic_state_findings`). Raises UsageError if a name in
    `selection` matches nothing in the inventory or nothing is left, ClusterError if a part cannot be read.
    """
    chosen = choose(selection, desired, live) if selection else None
    difference = diff(desired, live, allowances, chosen)
    if desired.destroyed:
        difference = with_namespaces(difference, desired.names, live, allowances.destroy)
    evidence = evidence_for(admin, difference.changes, live)
    now = int(time.time() * 1000)
    known, missed = chosen.known if chosen else frozenset(), Severity.ERROR if compares else Severity.NOTE
    unread = [
        _unread_finding(topic, why, missed if topic_address(topic) in known else None)
        for topic, why in live.unread.items()
    ]
    plan = make_plan(desired, live, difference, evidence=evidence, allowances=allowances, now=now, against=against)
    if live.unseen:
        return replace(plan, findings=(*unseen_finding(live.unseen), *plan.findings, *unread))
    states = topic_state_findings(admin, desired, live, plan, of_all=compares)
    return replace(plan, findings=(*plan.findings, *unread, *_incompatible_schemas(admin, plan), *states))


def _unread_finding(topic: TopicName, why: str, missed: Severity | None) -> Diagnostic:
    """The finding about a topic that cannot be read, with the severity `missed`; None: no file declares the topic."""
    then = "no file declares it" if missed is None else "it is left out"
    return Diagnostic(missed or Severity.NOTE, "K580", "part of a topic cannot be read", f"{topic}: {why}; {then}")


def _incompatible_schemas(admin: Admin, plan: Plan) -> Iterable[Diagnostic]:
    """Yields an error (K418) for each new schema version that the broker would refuse. The broker is asked before
    anything is written; its refusal is a reply with status 500.
    """
    for change in plan.changes:
        if isinstance(change, Update) and isinstance(change.after, SchemaResource):
            topic = change.after.topic
            body = {"type": change.after.type, "schema": change.after.definition, "properties": {}}
            reply = admin.call("POST", f"{schema_path(topic)}/compatibility", body)
            if reply.transient and _INCOMPATIBLE not in str(reply.data):
                must(reply, f"asking whether the schema of {topic} is compatible")
            compatible = reply.ok and bool((reply.data or {}).get("compatibility"))
            if not compatible:
                detail = (
                    f"{topic}: {reply.reason or 'the broker would refuse this version'}; see `schema_compatibility`"
                )
                yield error("K418", "payload schema incompatible with the live one", detail, change.about.where)
