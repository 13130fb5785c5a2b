"""Blast radius (K403): the share of the owned topics and subscriptions that a plan deletes or weakens at once; large
shares are rarely meant.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Remedy, error_with_remedy, warning
from kodoctl.plan.changes import Change, Delete, Update
from kodoctl.plan.danger.data_loss import affected_topics, changed_policies
from kodoctl.pulsar.values.ledger import OwnershipKind

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.resources import Address

LARGEST: Final = 0.2  # of the owned topics and subscriptions, without --allow-share
FEWEST: Final = 10  # objects; below, a share says little
K403 = "a large share of what is owned would go or be weakened"
_COUNTED = ("topic.", "subscription.")
_WEAKENING: Final = frozenset({"K402", "K406"})  # lost data, fewer copies


def blast_radius(
    desired: Desired, live: Live, changes: Sequence[Change], allowed: float | None
) -> tuple[Diagnostic, ...]:
    """Returns one error (K403) if the changes, with their dangers, delete or weaken at least `FEWEST` (10) of the
    topics and subscriptions that these topologies own, and more than the share `LARGEST` (0.2) of them; a warning
    instead if `allowed` (0 to 1) is at least their share; else (). A change weakens its object if it has a danger K402
    (lost data) or K406 (fewer copies), and a change of a namespace the topics without a value of their own. A destroy
    is not judged, because its command names the topologies.
    """
    owned = _owned_addresses(desired, live)
    own = changed_policies(changes)
    hit = {address for change in changes if _takes(change) for address in _weakened(change, live, own)} & owned
    if desired.destroyed or len(hit) < FEWEST or len(hit) <= LARGEST * len(owned):
        return ()
    share = len(hit) / len(owned)
    detail = (
        f"{len(hit)} of {len(owned)} owned topics and subscriptions ({share:.0%}) would be deleted, or would lose data or"
        f" copies; more than {LARGEST:.0%} at once is often a slip: a wrong file, folder or environment"
    )
    if allowed is not None and share <= allowed:
        return (warning("K403", K403, f"{detail}; allowed up to {allowed:.0%}"),)
    enough = f"{math.ceil(share * 100) / 100:g}"
    return (error_with_remedy("K403", K403, detail, Remedy("--allow-share", enough), f"--allow-share={enough}"),)


def _owned_addresses(desired: Desired, live: Live) -> frozenset[Address]:
    return frozenset(
        address
        for entry in live.entries
        if entry.name in desired.all_names
        for address, holding in entry.owned.items()
        if holding is not OwnershipKind.INTENT and address.startswith(_COUNTED)
    )


def _takes(change: Change) -> bool:
    if isinstance(change, Delete):
        return True
    return isinstance(change, Update) and any(danger.code in _WEAKENING for danger in change.about.dangers)


def _weakened(change: Change, live: Live, own: Container[tuple[Address, str]]) -> Iterator[Address]:
    """The addresses of the object that a change takes or weakens, and of the topics of a namespace for which its value
    counts. `own`: result of `changed_policies`.
    """
    yield change.address
    if isinstance(change, Update):
        texts = [
            danger.detail
            for danger in change.about.dangers
            if danger.code == "K406" or (danger.code == "K402" and " would drop " in danger.detail)
        ]  # a K402 may be about topics of others alone
        for field in change.policy_changes:
            if any(text.startswith(f"{change.address}: {field.policy}") for text in texts):
                yield from affected_topics(live, change, field.policy, own)
