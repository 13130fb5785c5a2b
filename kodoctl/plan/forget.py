"""A plan that only gives up ownership: markers and ledger entries go, objects and their data stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, error
from kodoctl.plan.changes import ChangeContext, Forget
from kodoctl.plan.diff import Allowances
from kodoctl.plan.ledger_plan import LedgerPlan, leaving, with_entry
from kodoctl.plan.plan import Plan, plan_without_files
from kodoctl.topology.resources import variables_of

if TYPE_CHECKING:
    from kodoctl.pulsar.values.ledger import Ledger
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.resources import Address


def forget_plan(live: Live, addresses: Iterable[Address], names: frozenset[str]) -> Plan:
    """Returns a plan that forgets the objects and grants `addresses`, and all that the ledger entries of the topologies
    `names` list: each entry of `live` that lists one gives it up. An object that does not exist or is unknown, or has
    the marker of another topology, which stays its owner, gets a change without `before`: only the ledger entry goes.
    An address or name that no ledger entry has is an error of the plan (K419).
    """
    wanted = frozenset(addresses)
    entries = list(live.entries)
    owners: list[LedgerPlan] = []
    changes: list[Forget] = []
    for entry in entries:
        whole = entry.name in names
        owned = {*entry.owned, *entry.grants}
        going = owned if whole else owned & wanted
        if going or whole:
            owners.append(_owner(entry, going, whole=whole))
            changes += [_forget(entry.name, address, live) for address in sorted(going)]
    known = {change.address for change in changes}
    findings = _unowned_findings(wanted - known, names - {entry.name for entry in entries})
    return plan_without_files(live, tuple(changes), owners, findings=findings, allowances=Allowances(forget=wanted))


def _forget(owner: str, address: Address, live: Live) -> Forget:
    found = live.objects.get(address)
    if found is not None and found.marker not in (None, owner):
        return Forget(address, None, ChangeContext(owner, f"belongs to {found.marker} by now, and stays so"))
    if live.is_unknown(address):
        why = f" ({reason})" if (reason := live.why_unread(address)) else ""
        stays = f"it stays as it is, and so does a marker of {owner} on it"
        return Forget(address, None, ChangeContext(owner, f"given up without a look at it{why}: {stays}"))
    about = ChangeContext(owner, "given up: it stays as it is, and is nobody's")
    return Forget(address, found.resource if found else None, about)


def _owner(entry: Ledger, going: set[Address], *, whole: bool) -> LedgerPlan:
    """The ledger entry after objects are forgotten. Its digest is empty, because the applied objects no longer match
    the file.
    """
    if whole:
        return leaving(entry)
    grants = {address: actions for address, actions in entry.grants.items() if address not in going}
    left = variables_of(entry.owned.keys() - going)
    databases = {variable: identity for variable, identity in entry.databases.items() if variable in left}
    return replace(with_entry(entry), digest="", grants=grants, databases=databases, partial=True)


def _unowned_findings(addresses: frozenset[Address], names: frozenset[str]) -> Iterator[Diagnostic]:
    for address in sorted(addresses):
        yield error("K419", "nothing to forget", f"{address} is in no topology's ledger on this cluster")
    for name in sorted(names):
        yield error("K419", "nothing to forget", f"no topology {name!r} owns anything in these namespaces")
