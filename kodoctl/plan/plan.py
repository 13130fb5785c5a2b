"""A plan: everything that would change, what stands in the way, and what it is bound to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kodoctl.errors import Diagnostic, Severity, error
from kodoctl.plan import codec
from kodoctl.plan.changes import Action, Change, Create, action_of
from kodoctl.plan.danger import Judge
from kodoctl.plan.diff import Allowances, Difference
from kodoctl.plan.evidence import Evidence
from kodoctl.plan.inventory import ClusterIdentity, Desired, Live
from kodoctl.plan.ledger import Holding, Ledger, Source
from kodoctl.topology.expand import Expansion
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import Address, GrantResource

ABSENT = "absent"


@dataclass(frozen=True)
class OwnerPlan:
    """What the ledger of one topology says of itself once the plan is carried out (holdings follow from the changes)."""

    name: str
    namespace: NamespaceName
    source: Source
    environment: str | None
    digest: str
    namespace_keys: frozenset[str]
    grants: Mapping[Address, frozenset[str]] = field(repr=False)
    consumers: Mapping[str, Any] = field(repr=False)
    replaces: tuple[str, ...] = ()  # earlier names, whose entries end with this apply
    leaves: bool = False  # nothing is left: the entry is removed


@dataclass(frozen=True, slots=True)
class ConsumerChange:
    """Settings of one subscription that only consumers read: nothing is written, deploying them does it."""

    subscription: str
    settings: tuple[tuple[str, Any, Any], ...]  # name, before, after; None = default


@dataclass(frozen=True)
class Plan:
    """Frozen: made once, shown, stored, carried out."""

    identity: ClusterIdentity
    environment: str | None
    digest: str
    namespaces: tuple[NamespaceName, ...]
    changes: tuple[Change, ...]
    owners: tuple[OwnerPlan, ...] = field(repr=False)
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

    @property
    def refused(self) -> bool:
        """Whether a finding or a danger forbids to carry it out."""
        return any(finding.severity is Severity.ERROR for finding in self.all_findings())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write on the cluster."""
        return not self.changes

    def all_findings(self) -> Iterator[Diagnostic]:
        """Conflicts and notes of the plan, then the dangers of its changes."""
        yield from self.findings
        for change in self.changes:
            yield from change.about.dangers

    def count(self, action: Action) -> int:
        """Number of changes with one verb."""
        return sum(action_of(change) is action for change in self.changes)


def make_plan(  # the parts of a plan are what they are
    desired: Desired,
    live: Live,
    difference: Difference,
    *,
    evidence: Mapping[Address, Evidence],
    allowances: Allowances,
    now: int,
) -> Plan:
    """The plan with its dangers judged; `now` is ms since the epoch."""
    judged = Judge(desired.ordered, live, evidence, allowances.destroy, now).judge(difference.changes)
    changes = tuple(sorted(judged, key=reading_order))
    owners = tuple(_owners(desired, live))
    return Plan(
        identity=live.identity,
        environment=desired.environment,
        digest=desired_digest(desired),
        namespaces=tuple(sorted({*desired.namespaces, *(owner.namespace for owner in owners)})),
        changes=changes,
        owners=owners,
        findings=(*difference.conflicts, *_absent_tenants(desired, live)),
        unchanged=difference.unchanged,
        unmanaged=difference.unmanaged,
        elsewhere=difference.elsewhere,
        consumer_changes=tuple(_consumer_changes(desired, live)),
        fingerprints={change.address: fingerprint(change.address, live) for change in changes},
        ledger_fingerprints=ledger_fingerprints(owners, live),
        allowances=allowances,
        destroying=bool(desired.destroyed),
    )


def desired_digest(desired: Desired) -> str:
    """Digest of everything the files mean, their lists of allowances included; comments and order do not matter."""
    return codec.digest(
        {
            "environment": desired.environment,
            "destroyed": sorted(desired.destroyed),
            "objects": {
                address: codec.resource_to_json(wanted.resource) for address, wanted in desired.objects.items()
            },
            "ignore": {address: sorted(wanted.ignore) for address, wanted in desired.objects.items() if wanted.ignore},
            "allow_destroy": sorted({address for e in desired.expansions for address in e.topology.spec.allow_destroy}),
            "forget": sorted({address for e in desired.expansions for address in e.topology.spec.forget}),
        }
    )


def fingerprint(address: Address, live: Live) -> str:
    """What a live object is, in one text; it changes with anything a plan could have looked at, use and data apart."""
    found = live.objects.get(address)
    if found is None:
        return ABSENT
    document = {
        "resource": codec.resource_to_json(found.resource),
        "marker": found.marker,
        "stalls": found.stalls_delivery,
    }
    return codec.digest(document)


def ledger_fingerprints(owners: tuple[OwnerPlan, ...], live: Live) -> dict[str, str]:
    """`namespace/name` -> digest of the ledger entry that the plan read, for each entry it would write."""
    found: dict[str, str] = {}
    for owner in owners:
        for name in (owner.name, *owner.replaces):
            ledger = live.ledgers.get(owner.namespace, {}).get(name)
            found[f"{owner.namespace}/{name}"] = ABSENT if ledger is None else codec.digest(ledger_document(ledger))
    return found


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """A ledger as JSON, for digests."""
    return {
        "source": [ledger.source.origin, ledger.source.path],
        "environment": ledger.environment,
        "digest": ledger.digest,
        "owned": dict(sorted(ledger.owned.items())),
        "keys": sorted(ledger.namespace_keys),
        "grants": {address: sorted(actions) for address, actions in sorted(ledger.grants.items())},
        "consumers": ledger.consumers,
    }


def _owners(desired: Desired, live: Live) -> Iterator[OwnerPlan]:
    """One for each entry to write: our topologies where they live, and those they left behind elsewhere."""
    written: set[tuple[NamespaceName, str]] = set()
    for expansion in desired.expansions:
        written.add((expansion.namespace, expansion.name))
        spec = expansion.topology.spec
        keys = spec.namespace_policies.model_fields_set if spec.namespace_policies is not None else set()
        earlier = tuple(name for name in spec.formerly if name in live.ledgers.get(expansion.namespace, {}))
        yield OwnerPlan(
            expansion.name,
            expansion.namespace,
            desired.sources.get(expansion.name, Source()),
            desired.environment,
            expansion_digest(expansion),
            frozenset(keys),
            {a: r.actions for a, r in expansion.resources.items() if isinstance(r, GrantResource)},
            consumer_settings(expansion),
            earlier,
        )
    for namespace, ledgers in live.ledgers.items():
        for name, ledger in ledgers.items():
            if name in desired.names and (namespace, name) not in written:
                yield OwnerPlan(
                    name, namespace, ledger.source, ledger.environment, "", frozenset(), {}, {}, leaves=True
                )


def expansion_digest(expansion: Expansion) -> str:
    """Digest of one topology's resources: drift compares it with the ledger's, to tell *not applied yet* from drift."""
    return codec.digest(
        {address: codec.resource_to_json(resource) for address, resource in expansion.resources.items()}
    )


def ledger_pending(plan: Plan, live: Live) -> bool:
    """Whether an entry says something else than it would after this plan, although no object changes: consumer settings,
    the file's place, or an apply that was cut off before its last line.
    """
    return any(_differs(owner, live.ledgers.get(owner.namespace, {}).get(owner.name)) for owner in plan.owners)


def _differs(owner: OwnerPlan, ledger: Ledger | None) -> bool:
    if ledger is None:
        return not owner.leaves
    if owner.leaves or owner.replaces:
        return True
    said = (
        ledger.source,
        ledger.environment,
        ledger.digest,
        ledger.namespace_keys,
        dict(ledger.grants),
        dict(ledger.consumers),
    )
    shall = (
        owner.source,
        owner.environment,
        owner.digest,
        owner.namespace_keys,
        dict(owner.grants),
        dict(owner.consumers),
    )
    return said != shall or Holding.INTENT in ledger.owned.values()


_CONSUMER_KEYS = (
    "type", "concurrency", "handler_timeout", "on_failure", "isolate", "lookahead", "tenant_weights", "weights",
    "level_weights", "in_place", "retrying", "pending", "blocking", "backup", "limits", "routes",
)  # fmt: skip


def consumer_settings(expansion: Expansion) -> dict[str, Any]:
    """`topic/subscription` -> what the file says that only consumers read."""
    found: dict[str, Any] = {}
    for ground, spec in expansion.topology.spec.topics.items():
        for name, subscription in spec.subscriptions.items():
            said = subscription.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(_CONSUMER_KEYS))
            if spec.fair_by is not None:
                said["fair_by"] = spec.fair_by
            found[f"{ground}/{name}"] = said
    return found


def _consumer_changes(desired: Desired, live: Live) -> Iterator[ConsumerChange]:
    for expansion in desired.expansions:
        ledger = live.ledgers.get(expansion.namespace, {}).get(expansion.name)
        if ledger is None:
            continue
        for key, after in consumer_settings(expansion).items():
            before = ledger.consumers.get(key)
            if before is not None and before != after:
                names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
                yield ConsumerChange(key, tuple((name, before.get(name), after.get(name)) for name in names))


def _absent_tenants(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """A namespace needs its Pulsar tenant: declared to be created, or there."""
    for namespace in desired.namespaces:
        address = f"tenant.{namespace.tenant}"
        if namespace.tenant in live.absent_tenants and address not in desired.objects:
            detail = f"{namespace.tenant!r} does not exist: write `create_tenant: {{clusters: [{live.identity.cluster}]}}`, or have it made"
            yield error(
                "K413", "no such Pulsar tenant", detail, desired.by_namespace(namespace)[0].topology.where("tenant")
            )


_RANK = {Action.DELETE: 0, Action.UPDATE: 1, Action.FORGET: 2, Action.ADOPT: 3, Action.CREATE: 4}


def reading_order(change: Change) -> tuple[bool, int, Address]:
    """Changes as people read them: dangerous first, then by verb and address."""
    return (not change.about.dangers, _RANK[action_of(change)], change.address)


__all__ = ["ConsumerChange", "Create", "OwnerPlan", "Plan", "make_plan"]
