"""Owner part of a plan: the future ledger entry of each topology, and the settings that consumers will read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import PlainSerializer

from kodoctl.documents.json_form import digest
from kodoctl.errors import Diagnostic, error
from kodoctl.plan.changes import Adopt, Change
from kodoctl.plan.ownership import namespace_of
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, Source
from kodoctl.pulsar.values.live_objects import DatabaseFacts
from kodoctl.topology.json_forms import DescribedBy, Texts
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import (
    Address,
    GrantResource,
    SchemaResource,
    SlotResource,
    variables_of,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.targeting import TargetedObjects
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.names import NamespaceName
    from kodoctl.topology.resources import Resource

ABSENT = "absent"
SettingChanges = Annotated[
    tuple[tuple[str, Any, Any], ...],
    PlainSerializer(lambda changes: [list(change) for change in changes]),
    DescribedBy(list[tuple[str, Any, Any]]),
]


def is_held(resource: Resource) -> bool:
    """True for a resource of a kind that ledgers list as owned, whether or not one lists it. False for grants, which
    have a list of their own; for schemas; for slots, which go with their publications; and for objects of the whole
    cluster without a home.
    """
    return (
        not isinstance(resource, GrantResource | SchemaResource | SlotResource) and namespace_of(resource) is not None
    )


@dataclass(frozen=True)
class LedgerPlan(Ledger):
    """Ledger entry of one topology after a complete apply of the plan; without `owned`, which follows from the changes.
    `replaces`: earlier names, whose entries end; `leaves`: nothing is wanted there any more, so that the entry is
    removed, unless `partial`, or unless it still lists something; `partial`: the plan concerns only some objects of the
    topology, so that intents of others stay.
    """

    replaces: Texts = ()  # earlier names, whose entries end with this apply
    leaves: bool = False  # nothing is left: the entry is removed
    partial: bool = False  # only some of its objects are in the plan: of the others the entry says what it said

    @property
    def ends(self) -> bool:
        """True if a complete apply removes the entry, provided that it lists no object and no grant any more."""
        return self.leaves and not self.partial


@dataclass(frozen=True, slots=True)
class ConsumerChange:
    """Changed settings of the consumers of one subscription. An apply only records them; a deployment of the consumers
    puts them into effect. `subscription`: `topic/subscription`, with the name of the ground topic in the file;
    `settings`: (name, before, after), None for a setting that the file leaves out ([] for `draining`).
    """

    subscription: str
    settings: SettingChanges  # name, before, after; None = default


def entries_written(owners: Iterable[LedgerPlan], changes: Iterable[Change]) -> set[tuple[NamespaceName, str]]:
    """(namespace, topology) of each ledger entry that an apply of a plan may write or remove: of its topologies, of
    their earlier names, and of the topologies from which it takes objects.
    """
    found = {(owner.namespace, name) for owner in owners for name in (owner.name, *owner.replaces)}
    for change in changes:
        if isinstance(change, Adopt) and change.taken_from is not None:
            namespace = namespace_of(change.before)
            assert namespace is not None
            found.add((namespace, change.taken_from))
    return found


def ledger_fingerprints(owners: Iterable[LedgerPlan], changes: Iterable[Change], live: Live) -> dict[str, str]:
    """`namespace/name` -> digest of the live ledger entry, for each of `entries_written`; ABSENT if `live` has none."""
    found: dict[str, str] = {}
    for namespace, name in entries_written(owners, changes):
        ledger = live.entry(namespace, name)
        found[f"{namespace}/{name}"] = ABSENT if ledger is None else digest(ledger_document(ledger))
    return found


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The content of a ledger entry as JSON, without its name and namespace, for digests."""
    return {
        "source": [ledger.source.origin, ledger.source.path],
        "environment": ledger.environment,
        "digest": ledger.digest,
        "owned": dict(sorted(ledger.owned.items())),
        "keys": sorted(ledger.namespace_keys),
        "grants": {address: sorted(actions) for address, actions in sorted(ledger.grants.items())},
        "consumers": ledger.consumers,
        **({"databases": ledger.databases} if ledger.databases else {}),
    }


def owner_plans(desired: Desired, live: Live) -> Iterator[LedgerPlan]:
    """Yields the future ledger entry of each desired topology, and the removal of every entry in `live` of a destroyed
    topology, and of every one that a topology still has in another namespace, under its name or an earlier one. Entries
    of earlier names in its own namespace are listed in `replaces`.
    """
    written: set[tuple[NamespaceName, str]] = set()
    names = set(desired.names)
    for expansion in desired.expansions:
        spec = expansion.topology.spec
        names |= set(spec.formerly)
        keys = spec.namespace_policies.model_fields_set if spec.namespace_policies is not None else set()
        earlier = tuple(name for name in spec.formerly if name in live.ledgers.get(expansion.namespace, {}))
        written |= {(expansion.namespace, name) for name in (expansion.name, *earlier)}
        yield LedgerPlan(
            expansion.name,
            expansion.namespace,
            _source(desired, live.entry(expansion.namespace, expansion.name), expansion.name),
            desired.environment,
            expansion_digest(expansion),
            namespace_keys=frozenset(keys),
            grants={a: r.actions for a, r in expansion.resources.items() if isinstance(r, GrantResource)},
            consumers=consumer_settings(expansion),
            databases=_databases(expansion, live),
            replaces=earlier,
        )
    for ledger in live.entries:
        if ledger.name in names and (ledger.namespace, ledger.name) not in written:
            yield leaving(ledger)


def _databases(expansion: Expansion, live: Live) -> dict[str, str]:
    """Variable -> identity of the database, for the sources of a topology. One that could not be read keeps the
    identity that the ledger has.
    """
    entry = live.entry(expansion.namespace, expansion.name)
    known = dict(entry.databases) if entry else {}
    declared, owned = variables_of(expansion.resources), variables_of(entry.owned if entry else ())
    now = {name: live.databases.get(name, DatabaseFacts()).identity for name in declared}
    kept = {name: known.get(name, "") for name in declared | owned}
    return {name: identity for name in sorted(kept) if (identity := now.get(name) or kept[name])}


def leaving(entry: Ledger) -> LedgerPlan:
    """Makes the LedgerPlan that removes a ledger entry, grants included, once it lists no object any more."""
    return LedgerPlan(entry.name, entry.namespace, entry.source, entry.environment, leaves=True)


def with_entry(entry: Ledger) -> LedgerPlan:
    """The LedgerPlan with the values of a ledger entry, apart from `owned`, which follows from the changes."""
    return LedgerPlan(**{**vars(entry), "owned": {}})


def partial_owners(
    owners: Iterable[LedgerPlan], changes: Iterable[Change], desired: Desired, live: Live, chosen: TargetedObjects
) -> tuple[LedgerPlan, ...]:
    """Returns the owner plans of a targeted plan, given those of the whole plan (`owners`). One with all of its objects
    in the target `chosen` stays as it is, even without a change. Any other becomes `partial` if a change is recorded in
    its entry: it keeps the grants, the namespace policies and the consumer settings of the live entry as far as the
    plan does not write them, and its digest is "" if the file has changed. Without such a change it is left out, so
    that its entry is not written.
    """
    changing = tuple(changes)
    found = []
    for owner in owners:
        entry = live.entry(owner.namespace, owner.name)
        if _addresses_of(owner, desired, live) <= chosen.addresses:
            found.append(owner)
        elif any(_concerns(change, owner, entry, live) for change in changing):
            found.append(_partial(owner, entry, chosen))
    return tuple(found)


def _addresses_of(owner: LedgerPlan, desired: Desired, live: Live) -> frozenset[Address]:
    """Addresses that a ledger entry lists now or will list, entries of earlier names included."""
    entries = live.ledgers.get(owner.namespace, {})
    of_ledgers = [entries[name].addresses for name in (owner.name, *owner.replaces) if name in entries]
    if owner.leaves:
        return frozenset().union(*of_ledgers)
    declared = [one.resources.keys() for one in desired.expansions if one.name == owner.name]
    owned = {address for address, wanted in desired.objects.items() if wanted.owner == owner.name}
    return frozenset(owned).union(*declared, *of_ledgers)


def _concerns(change: Change, owner: LedgerPlan, entry: Ledger | None, live: Live) -> bool:
    """True if a change is recorded in the entry of `owner`: a change belongs to the entry that lists its object
    already, else to the entry in the namespace where the topology is declared.
    """
    if change.about.owner != owner.name:
        return False
    if owner.leaves:
        return entry is not None and change.address in entry.addresses
    elsewhere = (one for one in live.entries if one.name == owner.name and one.namespace != owner.namespace)
    return not any(change.address in other.addresses for other in elsewhere)


def _partial(owner: LedgerPlan, entry: Ledger | None, chosen: TargetedObjects) -> LedgerPlan:
    """The future entry of a topology that is only in part in the target. It keeps the digest only if the last apply was
    of the same file; else its digest is empty.
    """
    known = entry or Ledger(owner.name, owner.namespace)
    grants = {address: actions for address, actions in known.grants.items() if not chosen.includes(address)}
    set_here = not owner.leaves and f"namespace.{owner.namespace}" in chosen.addresses
    return replace(
        owner,
        digest=owner.digest if known.digest == owner.digest else "",
        namespace_keys=owner.namespace_keys if set_here else known.namespace_keys,
        grants={
            **grants,
            **{address: actions for address, actions in owner.grants.items() if chosen.includes(address)},
        },
        consumers=known.consumers,
        databases={**known.databases, **owner.databases},
        partial=True,
    )


def renamed_in_part(owners: Iterable[LedgerPlan], desired: Desired) -> Iterator[Diagnostic]:
    """Yields an error (K427) for each owner plan that is `partial` and replaces the entry of an earlier name: ownership
    moves from the earlier name in one step.
    """
    places = {expansion.name: expansion.topology.where("name") for expansion in desired.expansions}
    for owner in owners:
        if owner.partial and owner.replaces:
            detail = f"{owner.name} was called {', '.join(owner.replaces)}: apply all of it once, then parts of it"
            yield error("K427", "a renamed topology cannot be applied in parts yet", detail, places.get(owner.name))


def _source(desired: Desired, ledger: Ledger | None, name: str) -> Source:
    """Source of the topology's file. A copy without git has none; the source in the ledger entry then stays."""
    ours = desired.sources.get(name, Source())
    return ledger.source if ours.origin is None and ledger is not None else ours


def expansion_digest(expansion: Expansion) -> str:
    """Digest of the resources that one topology declares; consumer settings do not count. Drift compares it with the
    one in the ledger entry, to distinguish an edit that is not applied yet from drift.
    """
    return digest({address: resource_to_json(resource) for address, resource in expansion.resources.items()})


def ledger_pending(owners: Iterable[LedgerPlan], live: Live) -> bool:
    """True if an apply of a plan with these `owners` may have to write a ledger entry even without changes: because an
    entry is new, ends or is renamed, because it differs in more than its objects (such as consumer settings or the
    location of the file), or because it contains an intent of an apply that was cut off.
    """
    return any(_differs(owner, live) for owner in owners)


def _differs(owner: LedgerPlan, live: Live) -> bool:
    ledger = live.entry(owner.namespace, owner.name)
    return ledger is None or bool(owner.replaces) or final_entry(ledger, owner, live) != ledger


def final_entry(entry: Ledger, owner: LedgerPlan, live: Live) -> Ledger | None:
    """Returns a ledger entry after a complete apply, from the one in which the changes are recorded already; None: it
    is removed, because it ends and lists nothing any more. Intents without an object are removed, but not those of
    objects that are unknown in `live`, nor any if the plan concerns only a part of the topology: they may belong to the
    rest.
    """
    owned = {
        address: how
        for address, how in entry.owned.items()
        if owner.partial or how is not OwnershipKind.INTENT or live.is_unknown(address)
    }
    if owner.ends:
        keys, grants, consumers = owner.namespace_keys, owner.grants, owner.consumers
        left = replace(entry, owned=owned, namespace_keys=keys, grants=grants, consumers=consumers)
        return left if left.addresses else None
    used = variables_of(owned)
    databases = {name: identity for name, identity in owner.databases.items() if name in used}
    return replace(ledger_after(owner, owned), databases=databases)


_CONSUMER_KEYS = (
    "type", "concurrency", "handler_timeout", "on_failure", "isolate", "lookahead", "tenant_weights", "weights",
    "level_weights", "in_place", "retrying", "pending", "blocking", "backup", "compat", "limits", "routes",
)  # fmt: skip
_DRAINING: Final = "draining"  # lanes, levels included, that consumers still read and no longer write: no topic changes


def consumer_settings(expansion: Expansion) -> dict[str, Any]:
    """Returns the settings in the file that consumers read: `topic/subscription`, with the name of the ground topic in
    the file -> name -> value. A setting that the file leaves out is missing, and so are `compression: none` and an
    empty `draining`.
    """
    found: dict[str, Any] = {}
    for ground, spec in expansion.topology.spec.topics.items():
        for name, subscription in spec.subscriptions.items():
            settings = subscription.model_dump(
                mode="json", by_alias=True, exclude_unset=True, include=set(_CONSUMER_KEYS)
            )
            if spec.fair_by is not None:
                settings["fair_by"] = spec.fair_by
            if spec.compression != "none":
                settings["compression"] = spec.compression
            if draining := [lane.value for lane in (*spec.draining, *subscription.draining)]:
                settings[_DRAINING] = draining
            found[f"{ground}/{name}"] = settings
    return found


def consumer_changes(desired: Desired, live: Live, owners: Iterable[LedgerPlan]) -> Iterator[ConsumerChange]:
    """Yields the changes of consumer settings since the last complete apply, for the topologies whose entry will record
    them. A subscription that is gone from the file has none, and neither has one that the live entry under the
    topology's present name does not have.
    """
    telling = {(owner.namespace, owner.name) for owner in owners if not owner.partial}
    for expansion in desired.expansions:
        ledger = live.entry(expansion.namespace, expansion.name)
        if ledger is None or (expansion.namespace, expansion.name) not in telling:
            continue
        for key, after in consumer_settings(expansion).items():
            before = ledger.consumers.get(key)
            if before is not None and before != after:
                names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
                yield ConsumerChange(key, tuple(_setting(name, before, after) for name in names))


def _setting(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, Any, Any]:
    unsaid: list[str] | None = [] if name == _DRAINING else None
    return name, before.get(name, unsaid), after.get(name, unsaid)


def ledgers_fit(desired: Desired, owners: Iterable[LedgerPlan], live: Live) -> Iterator[Diagnostic]:
    """Yields an error (K420) for each namespace whose ledger entries together would exceed the limit
    (`ledgers.MAX_BYTES`). An estimate: it takes all declared objects as owned, and counts replaced entries as well.
    """
    entries = {(entry.namespace, entry.name): entry for entry in live.entries}
    declared: dict[str, dict[Address, OwnershipKind]] = {}
    for address, wanted in desired.objects.items():
        if is_held(wanted.resource):
            declared.setdefault(wanted.owner, {})[address] = OwnershipKind.CREATED
    for owner in owners:
        owned = declared.get(owner.name, {})
        earlier = entries.get((owner.namespace, owner.name)) if owner.partial else None
        kept = {} if owner.leaves else owned
        entries[owner.namespace, owner.name] = ledger_after(owner, {**earlier.owned, **kept} if earlier else kept)
    sizes: dict[NamespaceName, int] = {}
    for (namespace, _), entry in entries.items():
        sizes[namespace] = sizes.get(namespace, 0) + len(ledgers.encode(entry))
    for namespace in sorted(sizes):
        if sizes[namespace] > ledgers.MAX_BYTES:
            yield error("K420", "ownership ledgers too large", ledgers.too_large(namespace))


def ledger_after(owner: LedgerPlan, owned: Mapping[Address, OwnershipKind]) -> Ledger:
    """The LedgerPlan as a ledger entry, with the owned objects `owned` (address -> kind of ownership)."""
    return Ledger(**{**{one.name: getattr(owner, one.name) for one in fields(Ledger)}, "owned": owned})
