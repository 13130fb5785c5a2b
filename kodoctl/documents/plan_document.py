"""The JSON of plans and of drift, as schemas/plan.v1.json publishes it."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

FilePosition = list[Any]
"""File, line and column; 0: the file as a whole."""


class RemedyRow(TypedDict):
    """The flag that allows a refused change. `value`: null for a flag that takes none."""

    flag: str
    value: str | None


class FindingRow(TypedDict):
    """A finding. Without `remedy` no flag allows it; with one `detail` names it, too, mostly in its last line."""

    severity: str
    code: str
    summary: str
    detail: str
    where: FilePosition | None
    remedy: NotRequired[RemedyRow]


EffectiveValue = TypedDict("EffectiveValue", {"value": Any, "from": str})
"""The value that counts where a policy is unset, and the level that it comes from."""


class FieldRow(TypedDict):
    """A changed field; policies are `policies.NAME`. Null is "not set"."""

    name: str
    before: Any
    after: Any
    effective_before: NotRequired[EffectiveValue]
    effective_after: NotRequired[EffectiveValue]


class ChangeRow(TypedDict):
    """A change of one object. `before`, `after`: whole resources with their `kind`; `fields` and the keys after
    it: of updates.
    """

    action: str
    address: str
    owner: str
    reason: str
    where: FilePosition | None
    dangers: list[FindingRow]
    evidence: Any
    origin: str | None
    drifted: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: NotRequired[list[FieldRow]]
    unload: NotRequired[bool]
    adopting: NotRequired[bool]
    taken_from: NotRequired[str | None]


class PlanSummary(TypedDict):
    """Numbers of changes by action, and of objects that are as the files say."""

    create: int
    update: int
    delete: int
    adopt: int
    forget: int
    unchanged: int


class PlanCluster(TypedDict):
    """`uuids`: by tenant, null before the first apply."""

    name: str
    uuids: dict[str, str | None]


class TakenAlong(TypedDict):
    """An object that is in a part of a plan because another one needs it."""

    address: str
    needed_by: str


class HeldBack(TypedDict):
    """An object that a part of a plan leaves out because it needs another one."""

    address: str
    needs: str


class PlanPart(TypedDict):
    """The part of a plan that --target and --exclude chose. `left_out`: by kind, how many objects."""

    targets: list[str]
    excludes: list[str]
    taken_along: list[TakenAlong]
    held_back: list[HeldBack]
    left_out: dict[str, int]


class PlanAgainst(TypedDict):
    """The Git revision that separates edits from drift."""

    ref: str
    commit: str


class ConsumerChange(TypedDict):
    """Settings that only consumers read: (name, before, after) each."""

    subscription: str
    settings: list[list[Any]]


class PlanAllowances(TypedDict):
    """Allowances of flags and files: addresses, and the share of objects that may be deleted."""

    adopt: list[str]
    destroy: list[str]
    forget: list[str]
    take_over: bool
    share: float | None


class PlanOwner(TypedDict):
    """A topology's entry in the ledger as it will be."""

    name: str
    namespace: str
    source: list[str | None]
    environment: str | None
    digest: str
    namespace_keys: list[str]
    grants: dict[str, list[str]]
    consumers: dict[str, Any]
    replaces: list[str]
    leaves: bool
    partial: bool


class PlanDocument(TypedDict):
    """A plan. `seal`: SHA-256 of everything else. `part`, `against`: null if their options were not given."""

    format_version: int
    kodoctl_version: str
    cluster: PlanCluster
    environment: str | None
    destroying: bool
    paths: list[str]
    part: PlanPart | None
    against: PlanAgainst | None
    namespaces: list[str]
    digest: str
    complete: bool
    unseen: list[str]
    refused: bool
    summary: PlanSummary
    changes: list[ChangeRow]
    findings: list[FindingRow]
    unmanaged: list[str]
    elsewhere: dict[str, int]
    consumer_changes: list[ConsumerChange]
    allowances: PlanAllowances
    owners: list[PlanOwner]
    fingerprints: dict[str, str]
    ledger_fingerprints: dict[str, str]
    seal: NotRequired[str]


class DriftDocument(TypedDict):
    """Drift by group. `stale_topologies`: those whose file changed since their last apply."""

    format_version: int
    drifted: bool
    refused: bool
    by_hand: list[ChangeRow]
    either: list[ChangeRow]
    not_applied: list[ChangeRow]
    beyond_repair: list[FindingRow]
    conflicts: list[FindingRow]
    unmanaged: list[str]
    counts_unmanaged: bool
    stale_topologies: list[str]
