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
    """True if the ledger is recorded (`record_cluster`) as one of this cluster; False if no cluster of the tenant is
    recorded in it, or if `identity`, the UUID of the tenant on this cluster, is None (not known). Raises RefusedError
    (K557) if only other clusters are recorded, KodoctlError.
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
    """Records that the ledger belongs to this cluster, unless that is recorded; does nothing if `identity` is None.
    `at`: the present time, ms since the epoch. Raises the errors of `check_cluster`.
    """
    if not check_cluster(ledger, tenant, identity) and identity is not None:
        ledger.append([RecallEntry("", RecallEvent.REFUSED, identity, _key(tenant), "", at, who=who)])


def _key(tenant: str) -> str:
    """Source of the entries about a tenant's cluster, which is the name of no topic."""
    return f"cluster of {tenant}"
