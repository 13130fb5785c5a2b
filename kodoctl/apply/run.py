"""One apply from start to end: checks the cluster's identity, makes the control namespace, takes the lease, compares
the plan with the cluster, runs the executor, writes the journal.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.apply import namespaces
from kodoctl.apply.barrier import ALONE, BarrierParty
from kodoctl.apply.executor import Executor
from kodoctl.apply.fenced_admin import FencedAdmin
from kodoctl.apply.journal import Heading, Journal
from kodoctl.errors import ClusterError, Diagnostic, KodoctlError, LockedError, RefusedError, Severity, error
from kodoctl.plan import history, plan_file
from kodoctl.plan.changes import Create
from kodoctl.plan.live.planner import just_read, rejudge, scope_of_plan, with_known
from kodoctl.plan.live.source_objects import with_objects
from kodoctl.plan.partial_access import refuse_reduced
from kodoctl.plan.staleness import looked_at, of_others, other_cluster, staleness, unknown_objects
from kodoctl.pulsar.admin.broker_info import read_server
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.control.control_namespace import ensure_control_namespace, read_control_namespace, write_index
from kodoctl.pulsar.control.journal import read_journal
from kodoctl.pulsar.control.lease import hold
from kodoctl.pulsar.inventory.live_inventory import read_live
from kodoctl.text.formatting import time_text
from kodoctl.topology.resources import TenantResource

if TYPE_CHECKING:
    from kodoctl.apply.report import ApplyReport, Listen
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.session import Session
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of an apply. `who`: text about the user, for others who want the lease and for the journal;
    `lock_timeout`: seconds to wait for another holder of the lease (0: see `hold`); `verb` and `commit`: the command
    and the commit of the files (None: not known), for the journal.
    """

    who: str
    lock_timeout: float = 0.0
    verb: str = "apply"
    commit: str | None = None


def run(
    session: Session,
    plan: Plan,
    options: RunOptions,
    *,
    listen: Listen = lambda _: None,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _: None,
    party: BarrierParty = ALONE,
) -> ApplyReport:
    """Carries out a plan, and blocks until the apply has ended. Failures of changes are in the report.

    Raises RefusedError if the plan may not be carried out, such as on a cluster that changed since, or if another
    cluster's apply stops this one (`party`); LockedError if another apply runs, or the lease is lost before the first
    change; StoppedError if this one is interrupted while it waits for the other; ClusterError if something cannot be
    read, or if a Pulsar tenant or kodoctl's own records cannot be written. Then nothing was written but, before the
    lease, Pulsar tenants that the plan creates, and kodoctl's own records (control namespaces with the index, leases
    and journals).

    Args:
        listen: takes the events of the apply, from several threads.
        stop: event that ends the apply after its running calls; None: nothing ends it early.
        tell: takes lines about the progress.
        party: the barrier at which this apply waits for those of other clusters.
    """
    refuse_reduced(plan)
    spaces = sorted({owner.namespace for owner in plan.owners} or set(plan.namespaces))
    with _naming_earlier_apply(session, plan, spaces):
        _check_identity(session, plan)
    _groundwork(session, plan)
    with hold(
        session.admin,
        session.client,
        spaces,
        who=options.who,
        plan=plan.digest[:12],
        timeout=options.lock_timeout,
        stop=stop,
    ) as lease:
        tell("holding the lease, reading the cluster again")
        known = just_read(plan, time.monotonic())
        live = with_known(read_live(session.admin, session.client, scope_of_plan(plan, known)), plan, known)
        live = with_objects(live, looked_at(plan.changes), session.variables)
        with _naming_earlier_apply(session, plan, spaces):
            checked = _recheck_plan(session, plan, live, known)
        party.wait_to_begin()
        fenced = FencedAdmin(session.admin, lease.check)
        _index(fenced, plan)
        journal = Journal(lease, spaces)
        executor = Executor(session, checked, live, journal, listen=listen, stop=stop)
        journal.begin(_heading(checked, options), executor.ledgers_before)
        report = _end_journal(journal, executor.run(party), journaled=session.client.available)
        return _less_index(fenced, plan, report, executor.ledgers_removed) if report.complete else report


def _heading(plan: Plan, options: RunOptions) -> Heading:
    text = plan_file.dumps(plan, indent=None)
    return Heading(options.verb, options.who, options.commit, plan.digest[:12], len(plan.changes), text)


def _end_journal(journal: Journal, report: ApplyReport, *, journaled: bool) -> ApplyReport:
    """Writes the last entry of the journal, and returns the report with id and place of the apply. `journaled`: a
    journal exists.
    """
    with contextlib.suppress(LockedError):  # the journal then shows it as cut off, which it is
        journal.end(complete=report.complete)
    notes = report.notes
    if journaled and journal.lease.ever_lost:
        shows = " and ".join(f"`kodoctl history {namespace} --id {journal.id}`" for namespace in journal.namespaces)
        advice = "shows what is written down of this apply; what is unknown there may have been done: a plan finds out"
        notes = (*notes, f"{shows} {advice}")
    return replace(report, id=journal.id, notes=notes, journal=str(journal.namespaces[0]) if journaled else "")


@contextlib.contextmanager
def _naming_earlier_apply(session: Session, plan: Plan, spaces: Iterable[NamespaceName]) -> Iterator[None]:
    """Context that replaces the RefusedError for a plan that was applied already by one (K533) that names the earlier
    apply. Otherwise the changes of that apply itself would be the reason.
    """
    try:
        yield
    except RefusedError as refusal:
        if finding := _applied_already(session, plan, spaces):
            raise RefusedError(finding) from refusal
        raise


def _applied_already(session: Session, plan: Plan, spaces: Iterable[NamespaceName]) -> Diagnostic | None:
    """An error (K533) that names an earlier apply of this plan in the journal; None if there is none, or no journal."""
    if not session.client.available:
        return None
    for namespace in spaces:
        with contextlib.suppress(ClusterError):
            found = history.read_history(map(history.parse, read_journal(session.admin, session.client, namespace)))
            if earlier := history.earlier_apply(found.applies, plan_file.to_json(plan)):
                detail = _application_text(earlier, namespace, latest=earlier is found.latest)
                return error("K533", "the plan was applied already", detail)
    return None


def _application_text(earlier: history.Applied, namespace: NamespaceName, *, latest: bool) -> str:
    began = time_text(earlier.began)
    shown = f"`kodoctl history {namespace} --id {earlier.id}` shows what it did"
    onward = (
        f"continue it with `kodoctl apply --resume {namespace}`, or" if latest and not earlier.complete else "to go on,"
    )
    return f"{earlier.id}, {began}, by {earlier.who}: {earlier.state}\n{shown}\nnothing was written now: {onward} plan again"


def _less_index(
    admin: Admin, plan: Plan, report: ApplyReport, removed: frozenset[tuple[NamespaceName, str]]
) -> ApplyReport:
    """Removes index entries after the apply, as `_index` does. A failure adds a note to the report: a surplus entry
    only costs the next plan a request.
    """
    try:
        _index(admin, plan, removed)
    except KodoctlError as problem:
        note = f"where the topologies live was not written: {problem.diagnostics[0].detail}; apply again"
        return replace(report, notes=(*report.notes, note))
    return report


def _check_identity(session: Session, plan: Plan) -> None:
    uuids = {tenant: read_control_namespace(session.admin, tenant).uuid for tenant in plan.identity.uuids}
    findings = tuple(other_cluster(plan, read_server(session.admin).cluster, uuids))
    if findings:
        raise RefusedError(*findings)


def _groundwork(session: Session, plan: Plan) -> None:
    """Creates the Pulsar tenants that the plan creates and has namespaces in, and the control namespaces with their
    UUID, where they are absent: the lease needs them.
    """
    needed = _tenants(plan)
    for change in plan.changes:
        if isinstance(change, Create) and isinstance(change.after, TenantResource) and change.after.name in needed:
            try:
                namespaces.create_tenant(session.admin, change.after)
            except WriteFailedError as problem:
                here = read_server(session.admin).cluster
                named = ", ".join(sorted(change.after.clusters))
                detail = f"{change.address}: {problem}; its file names the clusters {named}, and this cluster's name is {here}"
                raise ClusterError(error("K524", "the Pulsar tenant could not be created", detail)) from None
    for tenant in needed:
        ensure_control_namespace(session.admin, tenant)


def _tenants(plan: Plan) -> list[str]:
    return sorted({namespace.tenant for namespace in plan.namespaces})


def _recheck_plan(session: Session, plan: Plan, live: Live, known: frozenset[TopicName]) -> Plan:
    """Returns the plan with its dangers judged again on the live cluster, but for those of the topics in `known`.
    Raises RefusedError if the plan is stale, if an object has another owner, or if a danger refuses it.
    """
    findings: list[Diagnostic] = [*staleness(plan, live), *of_others(plan, live), *unknown_objects(plan, live)]
    if findings:
        raise RefusedError(*findings)
    judged = rejudge(session.admin, plan, live, now=int(time.time() * 1000), known=known)
    new = [danger for change in judged.changes for danger in change.about.dangers if danger.severity is Severity.ERROR]
    if new:
        raise RefusedError(*new)
    return judged


def _index(admin: Admin, plan: Plan, removed: frozenset[tuple[NamespaceName, str]] = frozenset()) -> None:
    """Writes the namespaces of each topology into the index of its Pulsar tenant, so that a later apply finds the
    objects that it left there. `removed`: (namespace, topology) of ledgers that are not there any more. A namespace
    leaves the index with the ledger of a topology that ends there: while that ledger lists something, such as a
    function that could not be read, the next plan has to find it.
    """
    living = {(owner.name, owner.namespace) for owner in plan.owners if not owner.ends}
    ended = {(name, namespace) for namespace, name in removed} - living
    for tenant in _tenants(plan):
        more, less = ({one for one in places if one[1].tenant == tenant} for places in (living, ended))
        write_index(admin, tenant, more=more, less=less)
