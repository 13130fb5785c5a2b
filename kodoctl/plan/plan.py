"""A plan: all changes, all findings against them, and the state of the cluster that it is bound to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodoctl.documents.json_form import digest
from kodoctl.documents.plan_actions import Action
from kodoctl.errors import Diagnostic, Severity, error, note
from kodoctl.plan.changes import Change, action_of
from kodoctl.plan.danger.blast_radius import blast_radius
from kodoctl.plan.danger.broker_settings import broker_config_findings
from kodoctl.plan.danger.change_data import change_data_findings
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.danger.delayed_delivery import delayed_delivery_findings
from kodoctl.plan.danger.forbidden_types import forbidden_types
from kodoctl.plan.danger.functions import function_findings
from kodoctl.plan.danger.namespace_bundles import bundle_findings
from kodoctl.plan.danger.platform_objects import unread_platform
from kodoctl.plan.danger.stopped_clients import stopped_clients
from kodoctl.plan.danger.undrained_lanes import with_lanes
from kodoctl.plan.danger.unmet_needs import unmet_needs
from kodoctl.plan.diff import Allowances, Difference
from kodoctl.plan.git_baseline import Baseline, unedited_warning, with_origins
from kodoctl.plan.ledger_plan import (
    ABSENT,
    ConsumerChange,
    LedgerPlan,
    consumer_changes,
    ledger_fingerprints,
    ledgers_fit,
    owner_plans,
    partial_owners,
    renamed_in_part,
)
from kodoctl.protocol.overrides import steered_text
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live, SubscriptionFacts
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import Address, SubscriptionResource

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.targeting import TargetSummary
    from kodoctl.pulsar.values.evidence import Evidence
    from kodoctl.topology.names import NamespaceName


@dataclass(frozen=True)
class Plan:
    """A plan: made once, then shown, stored and carried out as it is. `identity`: the cluster; `environment`: name of
    the overlay, None for the base and without files; `digest`: `desired_digest`, "" for an undo and for a plan that
    forgets objects; `namespaces`: those of its topologies and ledger entries; `owners`: future ledger entries;
    `unchanged`: number of objects that are as declared; `unmanaged`, `elsewhere`: as in `Difference`; `fingerprints`,
    `ledger_fingerprints`: digests of the live objects that it changes and of the ledger entries that it may write, by
    which an apply sees that the cluster changed since; `destroying`: True for the plan of a destroy; `portion`: the
    part that flags chose, None: all; `reading`: the inventory from which it was made, None for a plan of a file, an
    undo, and a plan that forgets objects.
    """

    identity: ClusterIdentity
    environment: str | None
    digest: str
    namespaces: tuple[NamespaceName, ...]
    changes: tuple[Change, ...]
    owners: tuple[LedgerPlan, ...] = field(repr=False)
    findings: tuple[Diagnostic, ...] = ()
    unchanged: int = 0
    unmanaged: tuple[Address, ...] = ()
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    consumer_changes: tuple[ConsumerChange, ...] = ()
    fingerprints: Mapping[Address, str] = field(default_factory=dict, repr=False)
    ledger_fingerprints: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowances: Allowances = field(default_factory=Allowances)
    destroying: bool = False
    paths: tuple[str, ...] = ()  # the files, as the command named them
    against: tuple[str, str] | None = None  # the git revision it is compared with, as named, and its commit
    portion: TargetSummary | None = None  # None: all that the files say
    unseen: tuple[
        NamespaceName, ...
    ] = ()  # of which only topics and subscriptions were seen: kodoctl.plan.partial_access
    reading: Live | None = field(default=None, repr=False, compare=False)  # it was made of; None: of a plan file

    @property
    def refused(self) -> bool:
        """True if a finding of the plan or a danger of a change is an error: the plan may not be carried out. Nor may a
        reduced plan (`refuse_reduced`), for which this may be False.
        """
        return any(finding.severity is Severity.ERROR for finding in self.all_findings())

    @property
    def empty(self) -> bool:
        """True if there are no changes. Ledger entries may still have to be written."""
        return not self.changes

    def all_findings(self) -> Iterator[Diagnostic]:
        """Yields the findings of the plan as a whole, then the dangers of its changes."""
        yield from self.findings
        for change in self.changes:
            yield from change.about.dangers

    def count(self, action: Action) -> int:
        """Returns the number of changes whose action is `action`."""
        return sum(action_of(change) is action for change in self.changes)


def make_plan(  # the parts of a plan are what they are
    desired: Desired,
    live: Live,
    difference: Difference,
    *,
    evidence: Mapping[Address, Evidence],
    allowances: Allowances,
    now: int,
    against: Baseline | None = None,
) -> Plan:
    """Returns the plan of a comparison, with findings and with the dangers of its changes, which are in the order in
    which people read them (`reading_order`). `difference`: result of `diff` for the same two sides and allowances;
    `evidence`: figures that were read, by address; `now`: ms since the epoch; `against`: the files at a git revision;
    None: no comparison with a revision.
    """
    judged = DangerRules(desired.ordered, live, evidence, allowances.destroy, now).judge(difference.changes)
    judged = with_lanes(judged, desired, live, allowances.destroy)
    if against is not None:
        judged = with_origins(judged, desired, against.then)
    changes = tuple(sorted(judged, key=reading_order))
    owners, part, chosen = tuple(owner_plans(desired, live)), desired, difference.chosen
    if chosen is not None:
        owners, part = partial_owners(owners, changes, desired, live, chosen), chosen.restrict(desired, live)
    return Plan(
        identity=live.identity,
        environment=desired.environment,
        digest=desired_digest(desired),
        namespaces=tuple(sorted({*part.namespaces, *(owner.namespace for owner in owners)})),
        changes=changes,
        owners=owners,
        findings=(
            *difference.conflicts,
            *renamed_in_part(owners, desired),
            *ledgers_fit(part, owners, live),
            *blast_radius(desired, live, changes, allowances.share),
            *(unedited_warning(changes, against) if against is not None else ()),
            *_cluster_findings(desired, part, live, changes),
            *active_override_notes(live, now),
        ),
        unchanged=difference.unchanged,
        unmanaged=difference.unmanaged,
        elsewhere=difference.elsewhere,
        consumer_changes=tuple(consumer_changes(desired, live, owners)),
        fingerprints={change.address: fingerprint(change.address, live) for change in changes},
        ledger_fingerprints=ledger_fingerprints(owners, changes, live),
        allowances=allowances,
        destroying=bool(desired.destroyed),
        against=(against.ref, against.commit) if against is not None else None,
        portion=chosen.portion if chosen is not None else None,
        unseen=tuple(sorted(live.unseen)),
        reading=live,
    )


def _cluster_findings(desired: Desired, part: Desired, live: Live, changes: tuple[Change, ...]) -> Iterator[Diagnostic]:
    """Yields findings about the changes on this cluster. `part`: the selected part of `desired`."""
    yield from _absent_tenants(part, live)
    yield from delayed_delivery_findings(part, live, changes)
    yield from forbidden_types(part, live, changes)
    yield from bundle_findings(part, live)
    yield from broker_config_findings(part, live, changes)
    yield from unmet_needs(live, changes)
    yield from stopped_clients(live, changes)
    yield from change_data_findings(part, live, changes)
    yield from function_findings(desired, part, live, changes)
    yield from unread_platform(part, live)


def plan_without_files(
    live: Live,
    changes: tuple[Change, ...],
    owners: Iterable[LedgerPlan],
    *,
    findings: Iterable[Diagnostic],
    allowances: Allowances,
) -> Plan:
    """Returns a plan that no file declares: an undo, or a plan that forgets objects. Its digest is empty, and its
    changes are as given: in their order, with their dangers.
    """
    entries = tuple(owners)
    return Plan(
        identity=live.identity,
        environment=None,
        digest="",
        namespaces=tuple(sorted({entry.namespace for entry in entries})),
        changes=changes,
        owners=entries,
        findings=tuple(findings),
        fingerprints={change.address: fingerprint(change.address, live) for change in changes},
        ledger_fingerprints=ledger_fingerprints(entries, changes, live),
        allowances=allowances,
    )


def desired_digest(desired: Desired) -> str:
    """SHA-256 of the environment's name, the names of topologies to destroy, the declared objects with their owners and
    their ignored and unset policies, and the lists `allow_destroy` and `forget` of the files. Comments, the order of
    declarations and consumer settings do not matter.
    """
    unset = {address: sorted(wanted.unset) for address, wanted in desired.objects.items() if wanted.unset}
    return digest(
        {
            "environment": desired.environment,
            "destroyed": sorted(desired.destroyed),
            "objects": {
                address: [wanted.owner, resource_to_json(wanted.resource)]
                for address, wanted in desired.objects.items()
            },
            "ignore": {address: sorted(wanted.ignore) for address, wanted in desired.objects.items() if wanted.ignore},
            **({"unset": unset} if unset else {}),
            "allow_destroy": sorted({address for e in desired.expansions for address in e.topology.spec.allow_destroy}),
            "forget": sorted({address for e in desired.expansions for address in e.topology.spec.forget}),
        }
    )


def fingerprint(address: Address, live: Live) -> str:
    """SHA-256 of a live object with its marker, without its use and data; ABSENT if `live` does not have it, because it
    does not exist or could not be read.
    """
    found = live.objects.get(address)
    if found is None:
        return ABSENT
    document = {
        "resource": resource_to_json(found.resource),
        "marker": found.marker,
        "stalls": found.stalls_delivery,
        **({"hidden": found.hidden} if found.hidden else {}),
    }
    return digest(document)


def _absent_tenants(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields an error (K413) for each Pulsar tenant that neither exists nor is declared to be created."""
    for namespace in desired.namespaces:
        address = f"tenant.{namespace.tenant}"
        if namespace.tenant in live.absent_tenants and address not in desired.objects:
            detail = f"{namespace.tenant!r} does not exist: write `create_tenant: {{clusters: [{live.identity.cluster}]}}`, or have it made"
            yield error(
                "K413", "Pulsar tenant not found", detail, desired.by_namespace(namespace)[0].topology.where("tenant")
            )


_RANK = {Action.DELETE: 0, Action.UPDATE: 1, Action.FORGET: 2, Action.ADOPT: 3, Action.CREATE: 4}


def active_override_notes(live: Live, now: int) -> Iterator[Diagnostic]:
    """Yields a note (K784) for each subscription in `live` with live orders (temporary instructions to its workers)
    that are in force at `now`, begin too late to be followed, or cannot be read; sorted by address. `now`: ms since the
    epoch.
    """
    for _, found in sorted(live.objects.items()):
        facts, resource = found.facts, found.resource
        if not isinstance(facts, SubscriptionFacts) or not isinstance(resource, SubscriptionResource):
            continue
        if facts.steered is not None and (text := steered_text(facts.steered, now)) is not None:
            detail = f"{resource.name} on {resource.topic.local} is {text}; an apply keeps that"
            yield note("K784", "live orders to workers", detail)


def reading_order(change: Change) -> tuple[bool, int, Address]:
    """Sort key of changes for people: changes with dangers first; then deletes, updates, forgets, adopts and creates;
    then by address.
    """
    return (not change.about.dangers, _RANK[action_of(change)], change.address)
