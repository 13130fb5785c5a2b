# pure: every branch is tested
"""Clusters of a recall ledger: the identity of each Pulsar tenant whose recalls the ledger has, stored as entries.

Topics of two clusters may have the same names. With the ledger of another cluster, an audit would report recalled
messages as lost, and a history would show recalls of the other cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodoctl.errors import RefusedError, error
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent

if TYPE_CHECKING:
    from kodoctl.recall.ledger.recall_ledger import RecallLedger


def check_cluster(ledger: RecallLedger, tenant: str, identity: str | None) -> bool:
    """True if the ledger has a record (`record_cluster`) of this cluster for the Pulsar tenant `tenant`; False if it
    has no record for the tenant, or if `identity`, the UUID of the tenant on this cluster, is None (not known): then
    nothing is read. Raises RefusedError (K557) if its records for the tenant are all of other clusters, KodoctlError if
    it cannot be read.
    """
    known = {one.recall_id for one in ledger.entries(_key(tenant))} if identity is not None else set()
    if known and identity not in known:
        detail = (
            f"it has recalls of {tenant} on another cluster ({', '.join(sorted(known))}), and this one is {identity}: name"
            " another with --ledger, also if the cluster was set up anew"
        )
        raise RefusedError(error("K557", "the ledger cannot be used", detail))
    return bool(known)


def record_cluster(ledger: RecallLedger, tenant: str, identity: str | None, who: str, at: int) -> None:
    """Records that the recalls of a Pulsar tenant in the ledger are on this cluster, unless that is recorded; does
    nothing if `identity` (see `check_cluster`) is None. `who`: the user, as text; `at`: the present time, ms since the
    epoch. Raises the errors of `check_cluster`, and KodoctlError if the ledger cannot be written.
    """
    if not check_cluster(ledger, tenant, identity) and identity is not None:
        ledger.append([RecallEntry("", RecallEvent.REFUSED, identity, _key(tenant), "", at, who=who)])


def _key(tenant: str) -> str:
    """Source of the entries about a tenant's cluster, which is the name of no topic."""
    return f"cluster of {tenant}"
