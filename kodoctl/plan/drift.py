"""What a plan's changes tell about drift: what somebody changed by hand, apart from what the file changed since."""

from __future__ import annotations

from dataclasses import dataclass

from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.inventory import Live
from kodoctl.plan.plan import Plan
from kodoctl.topology.resources import Address


@dataclass(frozen=True, slots=True)
class Drift:
    """`by_hand`: certainly drift. `not_applied`: the file says something new. `either`: the file was not applied since it
    changed, so that a differing value can be the file's or somebody's.
    """

    by_hand: tuple[Change, ...]
    not_applied: tuple[Change, ...]
    either: tuple[Change, ...]
    unmanaged: tuple[Address, ...]
    stale_files: tuple[str, ...]  # topologies whose file changed since their last apply
    count_unmanaged: bool

    @property
    def drifted(self) -> bool:
        """Whether the exit code is 3."""
        return bool(self.by_hand or self.either or (self.count_unmanaged and self.unmanaged))


def split(plan: Plan, live: Live, *, count_unmanaged: bool) -> Drift:
    """By ledger: it knows what was applied (addresses) and whether the file has changed since (digest)."""
    applied: set[Address] = set()
    digests: dict[str, str] = {}
    for ledgers in live.ledgers.values():
        for name, ledger in ledgers.items():
            digests[name] = ledger.digest
            applied |= ledger.owned.keys() | ledger.grants.keys()
    stale = {owner.name for owner in plan.owners if not owner.leaves and digests.get(owner.name) != owner.digest}
    groups: dict[str, list[Change]] = {"by_hand": [], "not_applied": [], "either": []}
    for change in plan.changes:
        groups[_group(change, applied, file_changed=change.about.owner in stale)].append(change)
    return Drift(
        tuple(groups["by_hand"]),
        tuple(groups["not_applied"]),
        tuple(groups["either"]),
        plan.unmanaged,
        tuple(sorted(stale)),
        count_unmanaged,
    )


def _group(change: Change, applied: set[Address], *, file_changed: bool) -> str:
    match change:
        case Create():
            return "by_hand" if change.address in applied or not file_changed else "not_applied"
        case Forget(before=None):
            return "by_hand"  # it was ours, it is gone or was made anew
        case Update(before=before) if getattr(before, "missing_on", ()) or getattr(before, "missing", ()):
            return "by_hand"
        case Update():
            return "either" if file_changed else "by_hand"
        case Adopt() | Delete() | Forget():
            return "not_applied" if file_changed else "by_hand"
