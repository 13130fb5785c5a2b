"""Drift among the changes of a plan: separates manual changes on the cluster from later changes of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from kodoctl.documents.json_form import row_of
from kodoctl.documents.plan_actions import UNREAD_CODES
from kodoctl.errors import Diagnostic, Severity
from kodoctl.plan import serialization
from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.plan_document import DriftDocument
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.topology.resources import Address, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.values.live_objects import Live

# Objects that differ in a way that no apply could put back: more partitions, a plain topic in the place of a
# partitioned one or the reverse. Where a file changed since, its own doing looks the same: then they are conflicts, as in a plan.
# And topics that somebody terminated: no apply opens them again.
_BEYOND_REPAIR = frozenset({"K411", "K412", "K437", "K442"})


@dataclass(frozen=True, slots=True)
class Drift:
    """Changes of a plan, sorted by their cause. `by_hand`: drift. `not_applied`: changes that are taken for edits of a
    file that no apply has written yet. `either`: updates that are an edit or drift, because the file changed since its
    last apply. `beyond_repair`: drift that no apply can undo; () if any file changed since its last apply: such
    findings are then among the `conflicts`, because the edit may be the cause.
    """

    by_hand: tuple[Change, ...]
    not_applied: tuple[Change, ...]
    either: tuple[Change, ...]
    beyond_repair: tuple[Diagnostic, ...]
    conflicts: tuple[Diagnostic, ...]  # other findings of the plan, errors about what could not be compared among them
    unmanaged: tuple[Address, ...]
    stale_topologies: tuple[str, ...]  # topologies whose file changed since their last apply
    count_unmanaged: bool

    @property
    def drifted(self) -> bool:
        """True if at least one change is drift (`by_hand`), may be drift (`either`), or is drift that no apply can
        undo. Objects that nobody manages count only if `count_unmanaged`.
        """
        found = self.by_hand or self.either or self.beyond_repair
        return bool(found or (self.count_unmanaged and self.unmanaged))

    @property
    def refused(self) -> bool:
        """True if the comparison may be incomplete: there is an error among `conflicts`, whatever it is about, or a
        database, functions, packages or objects of the whole cluster were not read. A topic of ours that may be
        readable in a minute causes no finding, because no plan is made then: the read raises an error
        (kodoctl.pulsar.admin.omitted_partitions.may_be_left_out).
        """
        return any(finding.severity is Severity.ERROR or finding.code in UNREAD_CODES for finding in self.conflicts)


def split(plan: Plan, live: Live, *, count_unmanaged: bool) -> Drift:
    """Sorts the changes of a plan into drift and edits. The ledger entries of `live` list the addresses that were
    applied, and their digests show whether the resources of a file have changed since. A file counts as changed as well
    if it was never applied, or if its last apply was of a part. All changes of a file that did not change are drift. Of
    one that changed, these are drift: the creation of an object that was applied, an update that fills in missing
    partitions or subscriptions, and the end of the ledger entry of a lost object. `count_unmanaged`: unmanaged objects
    count as drift.
    """
    applied: set[Address] = set()
    digests: dict[str, str] = {}
    for ledger in live.entries:
        digests[ledger.name] = ledger.digest
        applied |= {address for address, holding in ledger.owned.items() if holding is not OwnershipKind.INTENT}
        applied |= ledger.grants.keys()
    stale = {owner.name for owner in plan.owners if not owner.leaves and digests.get(owner.name) != owner.digest}
    groups: dict[str, list[Change]] = {"by_hand": [], "not_applied": [], "either": []}
    for change in plan.changes:
        groups[_group(change, applied, file_changed=change.about.owner in stale)].append(change)
    beyond_repair = () if stale else tuple(finding for finding in plan.findings if finding.code in _BEYOND_REPAIR)
    return Drift(
        tuple(groups["by_hand"]),
        tuple(groups["not_applied"]),
        tuple(groups["either"]),
        beyond_repair,
        tuple(finding for finding in plan.findings if finding not in beyond_repair),
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
        case Update(before=TopicResource(missing=lacking) | SubscriptionResource(missing_on=lacking)) if lacking:
            return "by_hand"
        case Update():
            return "either" if file_changed else "by_hand"
        case Adopt() | Delete() | Forget():
            return "not_applied" if file_changed else "by_hand"
        case _:
            assert_never(change)


FORMAT_VERSION: Final = 1


def to_json(drift: Drift, returning: Mapping[str, int | None]) -> DriftDocument:
    """The drift as JSON, from which the text is rendered. `returning`: address of a subscription that the next apply
    puts back -> number of stored entries that come to it again, None: unknown.
    """

    def changes(group: tuple[Change, ...]) -> list[ChangeRow]:
        return [serialization.change_to_json(change) for change in group]

    return row_of(
        DriftDocument,
        drift,
        format_version=FORMAT_VERSION,
        by_hand=changes(drift.by_hand),
        either=changes(drift.either),
        not_applied=changes(drift.not_applied),
        beyond_repair=[serialization.diagnostic_to_json(finding) for finding in drift.beyond_repair],
        conflicts=[serialization.diagnostic_to_json(finding) for finding in drift.conflicts],
        counts_unmanaged=drift.count_unmanaged,
        returning=dict(returning),
    )
