"""Writer of ownership ledgers during an apply: intents before each level, results after it, the rest at the end.

All changed ledgers of a namespace are written in one PUT; unchanged ones are not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.ledger_plan import LedgerPlan, entries_written, final_entry, is_held
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.admin.admin import Admin, must, namespace_path
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, poll_until, write_confirmed
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import Address, NamespaceResource, is_of_platform

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.values.live_objects import Live

Key = tuple[NamespaceName, str]


class LedgerWriter:
    """Writer of the ownership ledgers of one apply: keeps each ledger as it is on the cluster and as it is to become.
    Not for several threads, apart from the creation of different namespaces (`initial_properties`,
    `namespace_created`).
    """

    def __init__(self, admin: Admin, plan: Plan, live: Live) -> None:
        self._admin = admin
        self._plan = plan
        self._owners = {owner.name: owner for owner in sorted(plan.owners, key=lambda owner: not owner.leaves)}
        self._replaced = {(owner.namespace, earlier) for owner in plan.owners for earlier in owner.replaces}
        self._there = set(live.namespace_policies)  # namespaces that are to be seen, or will be soon
        self._live = plan.reading or live  # by which the changes were decided
        self._entries: dict[Key, Ledger] = {}
        self._ended: set[Key] = set()  # of the entries: they are removed
        self._written: dict[Key, str | None] = {}
        owners = {(owner.namespace, owner.name): owner for owner in plan.owners}
        everywhere = ((namespace, name) for namespace, name in entries_written(plan.owners, plan.changes))
        self.found = {f"{namespace}/{name}": _text(live, namespace, name) for namespace, name in everywhere}
        for namespace, name in sorted(entries_written(plan.owners, plan.changes) - self._replaced):
            known, owner = live.entry(namespace, name), owners.get((namespace, name))
            entry = known or (_new(owner) if owner else None)
            if entry is None:
                continue  # objects are taken over by the marker of a topology that has no ledger here
            self._written[namespace, name] = self.found[f"{namespace}/{name}"]
            databases = {**entry.databases, **(owner.databases if owner else {})}
            self._entries[namespace, name] = replace(entry, databases=databases)
        for owner in plan.owners:
            for earlier in owner.replaces:
                self._rename(live.ledgers[owner.namespace][earlier], (owner.namespace, owner.name))
        self._keys: dict[str, list[Key]] = {}  # of the entries, by the name of the topology
        for key in self._entries:
            self._keys.setdefault(key[1], []).append(key)

    @property
    def removed(self) -> frozenset[Key]:
        """(namespace, topology) of the ledgers that are not on the cluster now: those that this apply removed, with
        their namespace or without it, and those that it did not write yet.
        """
        return frozenset(key for key, text in self._written.items() if text is None or key[0] not in self._there)

    def _rename(self, earlier: Ledger, key: Key) -> None:
        """Adds the objects that the topology owned under an earlier name to its entry, with the kind of their
        ownership.
        """
        entry = self._entries[key]
        owned = {**earlier.owned, **entry.owned}
        self._entries[key] = replace(entry, owned=owned, namespace_keys=entry.namespace_keys | earlier.namespace_keys)

    def initial_properties(self, namespace: NamespaceName, create: Create) -> Mapping[str, str]:
        """Records the intent to create a namespace (`create`), without a request, and returns the properties to create
        the namespace with: name of the property -> text, for each ledger that this apply writes there.
        """
        self._update_ownership([create], intent=True)
        return {
            f"{LEDGER_PREFIX}{name}": ledgers.encode(entry)
            for (where, name), entry in self._entries.items()
            if where == namespace
        }

    def namespace_created(self, namespace: NamespaceName, properties: Mapping[str, str]) -> None:
        """Records that a namespace was created with these properties, so that later ledgers are compared with them;
        writes nothing.
        """
        self._there.add(namespace)
        for key, text in properties.items():
            self._written[namespace, key.removeprefix(LEDGER_PREFIX)] = text

    def record_intents(self, changes: Iterable[Change]) -> None:
        """Writes into the ledgers which objects will be created, and which namespace policies will be set, by these
        changes. To call before the changes are carried out: an apply that dies then leaves no object that no ledger
        names, apart from grants, which only `confirm` records, and kinds that have no owner (`is_held`). Ledgers of a
        namespace that does not exist are not written. Raises WriteFailedError (a ledger is refused, or the ledgers of a
        namespace would be too large), ClusterError, LockedError; some ledgers may be written then.
        """
        self._update_ownership([change for change in changes if isinstance(change, Create | Update)], intent=True)
        self._write()

    def confirm(self, changes: Iterable[Change]) -> None:
        """Writes into the ledgers which objects the topologies own after these changes, which were made, and which
        objects they no longer own. Raises the same errors as `record_intents`.
        """
        settled = list(changes)
        deleted = [one.before for one in settled if isinstance(one, Delete)]
        self._there -= {gone.name for gone in deleted if isinstance(gone, NamespaceResource)}
        self._update_ownership(settled, intent=False)
        self._write()

    def close(self, *, complete: bool) -> None:
        """Writes the ledgers that are not written yet, at the end of the apply. Only if `complete` (all changes were
        made), the ledgers of the plan's topologies first get the rest of their planned content (`final_entry`), such as
        the digest and the consumer settings; and ledgers are removed: those of earlier names of a topology, and one
        that ends and lists nothing any more. Raises the same errors as `record_intents`.
        """
        if complete:
            for owner in self._plan.owners:
                key = (owner.namespace, owner.name)
                if (final := final_entry(self._entries[key], owner, self._live)) is not None:
                    self._entries[key] = final
                else:
                    self._ended.add(key)
        self._write(final=complete)

    def _update_ownership(self, changes: Iterable[Change], *, intent: bool) -> None:
        owned: dict[Key, dict[Address, OwnershipKind | None]] = {}
        for change in changes:
            key = self._key(change)
            if key is None:
                continue
            self._hold_keys(key, change)
            if change.address.startswith("grant.") and not intent:
                self._hold_grant(key, change)
            match change:
                case Create(after=after) if is_held(after):
                    owned.setdefault(key, {})[change.address] = (
                        OwnershipKind.INTENT if intent else OwnershipKind.CREATED
                    )
                case Adopt(before=before, taken_from=other) if is_held(before):
                    owned.setdefault(key, {})[change.address] = self._adopted_kind(key, change)
                    if other is not None and (key[0], other) in self._entries:
                        owned.setdefault((key[0], other), {})[change.address] = None
                case Delete() | Forget():
                    owned.setdefault(key, {})[change.address] = None
                case _:
                    pass
        for key, addresses in owned.items():
            self._entries[key] = self._entries[key].with_holdings(addresses)

    def _hold_keys(self, key: Key, change: Change) -> None:
        """Adds the namespace policies that a change sets to the entry, so that an apply can unset them after the file
        no longer names them.
        """
        if isinstance(change, Create | Update) and isinstance(change.after, NamespaceResource):
            keys = self._entries[key].namespace_keys | (change.after.managed or frozenset())
            self._entries[key] = replace(self._entries[key], namespace_keys=keys)

    def _hold_grant(self, key: Key, change: Change) -> None:
        """Records the actions of a role as soon as it has them, so that a later apply revokes them even if this one
        ends early and the file no longer declares them.
        """
        entry, owner = self._entries[key], self._owners[change.about.owner]
        keeps = not isinstance(change, Delete | Forget) and change.address in owner.grants
        given = {change.address: owner.grants[change.address]} if keeps else {}
        rest = {address: actions for address, actions in entry.grants.items() if address != change.address}
        self._entries[key] = replace(entry, grants={**rest, **given})

    def _adopted_kind(self, key: Key, change: Adopt) -> OwnershipKind:
        """Kind of ownership of an adopted object. An object that this topology or its former owner created
        stays `CREATED`, and an object with an intent becomes `CREATED`; any other is `ADOPTED`, and so is an object of
        the whole cluster with an intent: it has no marker, so that somebody else may have created it.
        """
        known = self._entries[key].owned.get(change.address)
        if known is None and change.taken_from is not None:
            taken = self._entries.get((key[0], change.taken_from))
            known = taken.owned.get(change.address) if taken else None
        is_ours = known is OwnershipKind.CREATED or (
            known is OwnershipKind.INTENT and not is_of_platform(change.address)
        )
        return OwnershipKind.CREATED if is_ours else OwnershipKind.ADOPTED

    def _key(self, change: Change) -> Key | None:
        """The entry to which a change belongs: its owner's entry that lists the object already, else the one in the
        owner's namespace; None: its owner has no plan of an entry.
        """
        for key in self._keys.get(change.about.owner, ()):
            if change.address in self._entries[key].owned:
                return key
        owner = self._owners.get(change.about.owner)
        return (owner.namespace, owner.name) if owner else None

    def _write(self, *, final: bool = False) -> None:
        changed: dict[Key, str | None] = {}
        for key, entry in self._entries.items():
            text = None if key in self._ended else ledgers.encode(entry)
            if text != self._written[key]:
                changed[key] = text
        if final:
            changed |= dict.fromkeys(self._replaced)
        by_namespace: dict[NamespaceName, dict[Key, str | None]] = {}
        for key, text in changed.items():
            by_namespace.setdefault(key[0], {})[key] = text

        def write(namespace: NamespaceName) -> None:
            here = by_namespace[namespace]
            self._put(namespace, {f"{LEDGER_PREFIX}{name}": text for (_, name), text in here.items()})
            self._written |= here

        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="ledgers") as pool:
            for _ in pool.map(write, sorted(by_namespace)):
                pass

    def _put(self, namespace: NamespaceName, properties: dict[str, Any]) -> None:
        path = namespace_path(namespace)
        reply = self._admin.call("GET", path)
        if reply.missing and namespace in self._there:  # a broker may show late what another one made
            poll_until(lambda: not self._admin.call("GET", path).missing)
            reply = self._admin.call("GET", path)
        if reply.missing:
            return  # a namespace that this apply deleted, or could not create
        there = must(reply, f"reading the ledgers of {namespace}").get("properties") or {}
        after = {**there, **properties}
        if sum(len(text or "") for key, text in after.items() if key.startswith(LEDGER_PREFIX)) > ledgers.MAX_BYTES:
            raise WriteFailedError(ledgers.too_large(namespace))

        def is_written() -> bool:
            now = must(self._admin.call("GET", path), f"reading the ledgers of {namespace}").get("properties") or {}
            return all(now.get(key) == text for key, text in properties.items())

        write_confirmed(self._admin, "PUT", f"{path}/properties", properties, done=is_written)


def _text(live: Live, namespace: NamespaceName, name: str) -> str | None:
    known = live.ledgers.get(namespace, {}).get(name)
    return ledgers.encode(known) if known else None


def _new(owner: LedgerPlan) -> Ledger:
    return Ledger(owner.name, owner.namespace, owner.source, owner.environment)
