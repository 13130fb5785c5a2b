"""Staleness check: each object and ledger entry that a plan touches is compared with the cluster, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from kodoctl.errors import Diagnostic, error
from kodoctl.plan import serialization
from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update, action_of
from kodoctl.plan.danger.change_data import NOT_READ, OTHER_DATABASE
from kodoctl.plan.danger.functions import FUNCTIONS_UNREAD
from kodoctl.plan.ledger_plan import ABSENT, ledger_fingerprints
from kodoctl.plan.ownership import claim, namespace_of
from kodoctl.plan.plan import Plan, fingerprint
from kodoctl.pulsar.values.live_objects import DatabaseFacts, PlatformFacts
from kodoctl.text.formatting import many, shorten_lines
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    PackageResource,
    PlatformResource,
    PublicationResource,
    SubscriptionResource,
    TopicResource,
    database_of,
    is_function,
    is_package,
)

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live


_WITH_OWNER: Final = (
    TopicResource | SubscriptionResource | PublicationResource | FunctionResource | PackageResource | PlatformResource
)


@dataclass(frozen=True, slots=True)
class Stale:
    """One object that changed since the plan. `planned`: verb of its change; `was`, `now`: texts about its state when
    the plan was made, and at present, without policies that are equal in both; `absent` for a state in which it does
    not exist, or could not be read.
    """

    address: Address
    planned: str
    was: str
    now: str


def stale_objects(plan: Plan, live: Live) -> Iterator[Stale]:
    """Yields each object that the plan changes and whose `fingerprint` changed since the plan was made, once. A Pulsar
    tenant to be created for a namespace of the plan is not compared, nor a publication or slot that is given up because
    it is gone, or somebody else's.
    """
    seen: set[Address] = set()
    needed = {f"tenant.{namespace.tenant}" for namespace in plan.namespaces}
    for change in plan.changes:
        address = change.address
        if isinstance(change, Create) and address in needed:
            continue  # create-if-absent, made before the lease can be taken: somebody else's will do
        if database_of(address) is not None and not looked_at([change]):
            continue  # given up without a look at it
        if address not in seen and plan.fingerprints.get(address) != fingerprint(address, live):
            seen.add(address)
            yield Stale(address, action_of(change).value, *_was_and_now(change, live))


def of_others(plan: Plan, live: Live) -> Iterator[Diagnostic]:
    """Yields an error (K410) for each owner that is no topology of the plan, whose objects in `live` the plan changes
    in a way that it may not, and one for objects that nobody owns. Of such objects a plan may adopt those of nobody, or
    of the owner that the adoption names; update those of nobody that it adopts; and forget those of nobody, or by a
    `Forget` without `before`. An object of the whole cluster that a topology of another namespace owns may only be
    forgotten. Other creations are not compared, nor are grants, schemas, slots, namespaces, and Pulsar tenants without
    a home. The owner is that of `live`: anybody can seal an edited plan, and the owner of an object may change after a
    plan was made.
    """
    taken: dict[str | None, list[Address]] = {}
    about = {(owner.namespace, name) for owner in plan.owners for name in (owner.name, *owner.replaces)}
    for change in plan.changes:
        found = live.objects.get(change.address)
        if found is None or not isinstance(found.resource, _WITH_OWNER):
            continue
        owner = claim(change.address, found, live).owner
        if namespace_of(found.resource) is None:
            continue  # a Pulsar tenant that is only created if it is absent
        if isinstance(found.facts, PlatformFacts) and not isinstance(change, Forget):
            taken.setdefault(found.facts.owner, []).append(change.address)
            continue
        if (namespace_of(found.resource), owner) not in about and not _may_touch(change, owner):
            taken.setdefault(owner, []).append(change.address)
    for owner, addresses in taken.items():
        alone = len(addresses) == 1
        subject = f"{addresses[0]} belongs" if alone else f"{many(len(addresses), 'object')} belong"
        detail = f"{subject} to {owner or 'nobody'}, of which this plan is not: plan again"
        yield error("K410", "another topology owns it", "\n".join([detail, *shorten_lines([] if alone else addresses)]))


def _may_touch(change: Change, owner: str | None) -> bool:
    """True if a change may touch an object of this owner, who is no topology of the plan. Only its adoption may update
    an object without an owner; an object of another owner is taken over only from the owner that the plan shows.
    """
    match change:
        case Create():
            return True
        case Update(adopting=adopting):
            return adopting and owner is None
        case Adopt(taken_from=taken_from):
            return owner in (None, taken_from)
        case Forget(before=before):
            return owner is None or before is None
        case Delete():
            return False
        case _:
            assert_never(change)


def _was_and_now(change: Change, live: Live) -> tuple[str, str]:
    """Texts of the object as the plan read it and as it is now, without the policies that are equal in both; with the
    marker only if it is another topology's.
    """
    found = live.objects.get(change.address)
    before = None if isinstance(change, Create) else change.before
    now = found.resource if found else None
    if isinstance(before, TopicResource) and isinstance(now, TopicResource):
        same = {name for name, value in before.policies.items() if now.policies.get(name) == value}
        before, now = _without(before, same), _without(now, same)
    marker = f", marked {found.marker!r}" if found and found.marker not in (None, change.about.owner) else ""
    was = serialization.describe(before) if before else ABSENT
    return was, serialization.describe(now) + marker if now else ABSENT


def _without(topic: TopicResource, names: set[str]) -> TopicResource:
    return replace(topic, policies={name: value for name, value in topic.policies.items() if name not in names})


def staleness(plan: Plan, live: Live) -> tuple[Diagnostic, ...]:
    """Returns one error (K533) about all objects that changed since the plan, and one for each ledger entry that did;
    () if nothing changed.
    """
    findings = []
    if objects := list(stale_objects(plan, live)):
        lines = shorten_lines([f"{s.address}: planned {s.planned}; was {s.was}; now {s.now}" for s in objects])
        detail = "\n".join([*lines, "nothing was written: plan again"])
        findings.append(error("K533", "the cluster changed since the plan", detail))
    now = ledger_fingerprints(plan.owners, plan.changes, live)
    for entry, was in plan.ledger_fingerprints.items():
        if now.get(entry) != was:
            detail = f"the ledger of {entry} was written by another apply: plan again"
            findings.append(error("K533", "the cluster changed since the plan", detail))
    return tuple(findings)


def unknown_objects(plan: Plan, live: Live) -> Iterator[Diagnostic]:
    """Yields an error for each publication or slot of the plan in a database that was not read (K435), or that is not
    the database of the plan (K440), and for each function, connector or package of the plan that could not be read
    (K451). The object of a `Forget` without `before` need not be read.
    """
    planned = {variable: identity for owner in plan.owners for variable, identity in owner.databases.items()}
    for change in plan.changes:
        if not looked_at([change]):
            continue
        place = database_of(change.address)
        is_code = is_function(change.address) or is_package(change.address)
        if is_code and (why := live.why_unread(change.address)) is not None:
            detail = f"{change.address}: {why}; nothing was written"
            yield error("K451", FUNCTIONS_UNREAD, detail, change.about.where)
        if place is None:
            continue
        facts = live.databases.get(place[0], DatabaseFacts("it was not read"))
        where, end = change.about.where, "nothing was written"
        if facts.is_other:
            yield error("K440", OTHER_DATABASE, f"{facts.problem}; {end}", where)
        elif facts.problem:
            yield error("K435", NOT_READ, f"{change.address}: {facts.problem}; {end}", where)
        elif planned.get(place[0], facts.identity) != facts.identity:
            detail = (
                f"{change.address} was planned in {planned[place[0]]}, and {place[0]} names {facts.identity} now; {end}"
            )
            yield error("K440", OTHER_DATABASE, detail, where)


def looked_at(changes: Iterable[Change]) -> list[Address]:
    """Addresses of the changes, apart from each `Forget` without `before`, whose object is given up without a look."""
    return [change.address for change in changes if not (isinstance(change, Forget) and change.before is None)]


def other_cluster(plan: Plan, cluster: str, uuids: Mapping[str, str | None]) -> Iterator[Diagnostic]:
    """Yields errors (K534) if the cluster of this name, with these UUIDs of Pulsar tenants (by tenant; None: it has
    none), is not the cluster of the plan: one for another name, and one for each tenant of the plan with another UUID,
    also if it had none when the plan was made.
    """
    if plan.identity.cluster != cluster:
        yield error(
            "K534", "plan for another cluster", f"the plan is for {plan.identity.cluster!r}, this is {cluster!r}"
        )
    for tenant, planned in plan.identity.uuids.items():
        now = uuids.get(tenant)
        if planned != now:
            first = (
                " (somebody's first apply came in between, or the cluster is another one)" if planned is None else ""
            )
            was = f"tenant {tenant} had {planned or 'no UUID yet'} when the plan was made"
            yield error("K534", "plan for another cluster", f"{was}, now {now or 'none'}{first}: plan again")
