"""Whether the cluster is still what a plan was made against: every object and ledger entry it touches, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kodoctl.errors import Diagnostic, error
from kodoctl.plan import codec
from kodoctl.plan.changes import Change, Create
from kodoctl.plan.inventory import Live
from kodoctl.plan.owners import ABSENT, ledger_fingerprints
from kodoctl.plan.plan import Plan, fingerprint
from kodoctl.topology.resources import Address, TenantResource

MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Stale:
    """One object that is not what the plan saw: planned, was, now, in words."""

    address: Address
    planned: str
    was: str
    now: str


def stale_objects(plan: Plan, live: Live) -> Iterator[Stale]:
    """Every touched object that changed since."""
    seen: set[Address] = set()
    for change in plan.changes:
        address = change.address
        if isinstance(change, Create) and isinstance(change.after, TenantResource):
            continue  # create-if-absent, made before the lease can be taken: somebody else's will do
        if address not in seen and plan.fingerprints.get(address) != fingerprint(address, live):
            seen.add(address)
            yield Stale(address, _planned(change), _was(change), _now(address, live))


def _planned(change: Change) -> str:
    return type(change).__name__.lower()


def _was(change: Change) -> str:
    if isinstance(change, Create) or change.before is None:
        return ABSENT
    return codec.describe(change.before)


def _now(address: Address, live: Live) -> str:
    found = live.objects.get(address)
    if found is None:
        return ABSENT
    marker = f", marked {found.marker!r}" if found.marker else ""
    return codec.describe(found.resource) + marker


def staleness(plan: Plan, live: Live) -> tuple[Diagnostic, ...]:
    """Every object and ledger entry that is not what the plan saw; () if the plan may be carried out."""
    findings = []
    if objects := list(stale_objects(plan, live)):
        lines = [f"{s.address}: planned {s.planned}; was {s.was}; now {s.now}" for s in objects[:MAX_SHOWN]]
        lines += [f"and {len(objects) - MAX_SHOWN} more"] if len(objects) > MAX_SHOWN else []
        findings.append(
            error("K533", "the cluster changed since the plan", "\n".join([*lines, "nothing was written: plan again"]))
        )
    now = ledger_fingerprints(plan.owners, plan.changes, live)
    for entry, was in plan.ledger_fingerprints.items():
        if now.get(entry) != was:
            detail = f"the ledger of {entry} was written by another apply: plan again"
            findings.append(error("K533", "the cluster changed since the plan", detail))
    return tuple(findings)


def other_cluster(plan: Plan, cluster: str, uuids: Mapping[str, str | None]) -> Iterator[Diagnostic]:
    """Whether a cluster of this name, with these UUIDs of its Pulsar tenants, is the plan's."""
    if plan.identity.cluster != cluster:
        yield error(
            "K534", "plan for another cluster", f"the plan is for {plan.identity.cluster!r}, this is {cluster!r}"
        )
    for tenant, planned in plan.identity.uuids.items():
        now = uuids.get(tenant)
        if planned != now:
            detail = f"tenant {tenant} had {planned or 'no UUID yet'} when the plan was made, now {now or 'none'}: plan again"
            yield error("K534", "plan for another cluster", detail)
