"""Keeps the ownership ledgers true while an apply runs: intents before, promotions after, the rest at the end.

All entries of a namespace that change are written in one PUT; an unchanged entry is not written at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kodoctl.apply.writes import WriteFailedError, write
from kodoctl.plan import ledger as ledgers
from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.inventory import Live
from kodoctl.plan.ledger import Holding, Ledger
from kodoctl.plan.plan import OwnerPlan, Plan
from kodoctl.pulsar.admin import Admin, namespace_path
from kodoctl.topology.control import LEDGER_PREFIX
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import NamespaceResource, SubscriptionResource, TopicResource

HELD = (
    TopicResource,
    SubscriptionResource,
    NamespaceResource,
)  # what a ledger lists as owned; grants have their own list


class Book:
    """The ledger entries of one apply, as they are on the cluster and as they shall be."""

    def __init__(self, admin: Admin, plan: Plan, live: Live) -> None:
        self._admin = admin
        self._plan = plan
        self._owners = {owner.name: owner for owner in plan.owners}
        self._entries: dict[tuple[NamespaceName, str], Ledger] = {}
        self._written: dict[tuple[NamespaceName, str], str | None] = {}
        self._grants: dict[tuple[NamespaceName, str], dict[str, frozenset[str]]] = {}
        for owner in plan.owners:
            key = (owner.namespace, owner.name)
            known = live.ledgers.get(owner.namespace, {}).get(owner.name)
            self._entries[key] = known or Ledger(owner.name, owner.namespace, owner.source, owner.environment)
            self._written[key] = ledgers.encode(known) if known else None
            for earlier in owner.replaces:
                self._take_over(key, live.ledgers[owner.namespace][earlier])

    def _take_over(self, key: tuple[NamespaceName, str], earlier: Ledger) -> None:
        """What the topology owned under an earlier name keeps how it was come by."""
        entry = self._entries[key]
        self._entries[key] = replace(
            entry, owned={**earlier.owned, **entry.owned}, namespace_keys=entry.namespace_keys | earlier.namespace_keys
        )

    def initial_properties(self, namespace: NamespaceName, changes: Iterable[Change]) -> Mapping[str, str]:
        """Entries to put into the request that creates a namespace."""
        self._hold(changes, intent=True)
        return {
            f"{LEDGER_PREFIX}{name}": ledgers.encode(entry)
            for (where, name), entry in self._entries.items()
            if where == namespace
        }

    def namespace_created(self, namespace: NamespaceName, properties: Mapping[str, str]) -> None:
        """These entries are on the cluster now."""
        for key, text in properties.items():
            self._written[namespace, key.removeprefix(LEDGER_PREFIX)] = text

    def intend(self, changes: Iterable[Change]) -> None:
        """Before a level: what will be created is named first, so that nothing created is ever unknown."""
        self._hold([change for change in changes if isinstance(change, Create)], intent=True)
        self._write()

    def settle(self, changes: Iterable[Change]) -> None:
        """After a level: what was done is held, or no longer."""
        self._hold(changes, intent=False)
        self._write()

    def close(self, *, complete: bool) -> None:
        """At the end. Digest, consumer settings and the end of earlier names only when everything was done."""
        for owner in self._plan.owners:
            key = (owner.namespace, owner.name)
            entry = self._entries[key]
            if complete:
                entry = _closed(entry, owner, self._plan)
            self._entries[key] = entry
        self._write(final=complete)

    def _hold(self, changes: Iterable[Change], *, intent: bool) -> None:
        held: dict[tuple[NamespaceName, str], dict[str, Holding | None]] = {}
        for change in changes:
            key = self._key(change)
            if key is None:
                continue
            match change:
                case Create(after=after) if isinstance(after, HELD):
                    held.setdefault(key, {})[change.address] = Holding.INTENT if intent else Holding.CREATED
                case Adopt(before=before) if isinstance(before, HELD) and not intent:
                    how = self._entries[key].owned.get(change.address)
                    held.setdefault(key, {})[change.address] = _adopted(how)
                case Delete() | Forget() if not intent:
                    held.setdefault(key, {})[change.address] = None
                case _:
                    pass
            if isinstance(change, Create | Update) and isinstance(change.after, NamespaceResource):
                entry = self._entries[key]
                keys = entry.namespace_keys | (change.after.managed or frozenset())
                self._entries[key] = replace(entry, namespace_keys=keys)
        for key, addresses in held.items():
            self._entries[key] = self._entries[key].with_holdings(addresses)

    def _key(self, change: Change) -> tuple[NamespaceName, str] | None:
        """The entry a change belongs to: its owner's, in the namespace that holds it already, else where the owner lives."""
        for (namespace, name), entry in self._entries.items():
            if name == change.about.owner and change.address in entry.owned:
                return namespace, name
        owner = self._owners.get(change.about.owner)
        return (owner.namespace, owner.name) if owner else None

    def _write(self, *, final: bool = False) -> None:
        by_namespace: dict[NamespaceName, dict[str, Any]] = {}
        for (namespace, name), entry in self._entries.items():
            owner = next(o for o in self._plan.owners if (o.namespace, o.name) == (namespace, name))
            text = (
                None if final and (owner.leaves or self._plan.destroying) and not entry.owned else ledgers.encode(entry)
            )
            if text != self._written.get((namespace, name)):
                by_namespace.setdefault(namespace, {})[f"{LEDGER_PREFIX}{name}"] = text
                self._written[namespace, name] = text
            if final:
                for earlier in owner.replaces:
                    by_namespace.setdefault(namespace, {})[f"{LEDGER_PREFIX}{earlier}"] = None
        for namespace, properties in by_namespace.items():
            self._put(namespace, properties)

    def _put(self, namespace: NamespaceName, properties: dict[str, Any]) -> None:
        path = namespace_path(namespace)
        dump = self._admin.call("GET", path)
        if dump.missing:
            return  # a namespace that this apply deleted, or could not create
        total = sum(
            len(v)
            for k, v in (dump.data.get("properties") or {}).items()
            if k.startswith(LEDGER_PREFIX) and k not in properties
        )
        if total + sum(len(text or "") for text in properties.values()) > ledgers.MAX_BYTES:
            raise WriteFailedError(
                f"{namespace}: the ownership ledgers would exceed 500 kB: split the topologies over namespaces"
            )

        def there() -> bool:
            now = self._admin.call("GET", path).data.get("properties") or {}
            return all(now.get(key) == text for key, text in properties.items())

        write(self._admin, "PUT", f"{path}/properties", properties, done=there)


def _adopted(before: Holding | None) -> Holding:
    """Taking over what an earlier name created, or finishing what an intent began, makes it created by us."""
    return Holding.CREATED if before in (Holding.CREATED, Holding.INTENT) else Holding.ADOPTED


def _closed(entry: Ledger, owner: OwnerPlan, plan: Plan) -> Ledger:
    """What the entry says once everything is done; intents that came to nothing go."""
    owned = {address: how for address, how in entry.owned.items() if how is not Holding.INTENT}
    if plan.destroying or owner.leaves:
        return replace(entry, owned=owned, namespace_keys=frozenset(), grants={}, consumers={})
    return replace(
        entry,
        source=owner.source,
        environment=owner.environment,
        digest=owner.digest,
        owned=owned,
        namespace_keys=owner.namespace_keys,
        grants=owner.grants,
        consumers=owner.consumers,
    )
