"""The JSON of plans and of drift: plan files, views and schemas/plan.v1.json have these types."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.documents.json_form import AtLeastOne, Count, Digest, DigestOrNone
from kodoctl.plan.change_document import ChangeRow, FindingRow, Json
from kodoctl.plan.diff import Allowances
from kodoctl.plan.ledger_plan import ConsumerChange, LedgerPlan
from kodoctl.topology.json_forms import FormOf, NamespaceText

NamespaceRow = Annotated[str, FormOf(NamespaceText)]
Fingerprint = Annotated[str, Field(pattern="^(absent|[0-9a-f]{64})$")]


class PlanSummary(TypedDict):
    """Numbers of changes by action, and of objects that are as the files say."""

    create: Count
    update: Count
    delete: Count
    adopt: Count
    forget: Count
    unchanged: Count


class PlanCluster(TypedDict):
    """The cluster for which a plan was made. `uuids`: UUID that kodoctl gave to each Pulsar tenant, null before the
    first apply in that tenant.
    """

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
    left_out: dict[str, AtLeastOne]


class PlanAgainst(TypedDict):
    """The Git revision with which the files are compared, to tell edits from drift."""

    ref: str
    commit: str


class PlanDocument(TypedDict):
    """The plan that `kodoctl plan --out FILE` writes, `--format json` prints and `kodoctl apply FILE` carries out.

    Args:
        environment: null is the base, or a plan without files.
        part: the result of --target and --exclude; null: the plan is whole.
        against: null if the option was not given.
        digest: SHA-256 of the meaning of the files, and of names to destroy; empty for an undo and a forget.
        complete: false if this role may not see all; such a plan cannot be applied.
        unseen: namespaces of which at most topics and subscriptions were read.
        refused: an error among findings or dangers forbids the apply.
        elsewhere: other topologies in these namespaces, with the number of their objects.
        fingerprints: by address of a changed object, the digest of the live object; `absent` if it does not exist.
        ledger_fingerprints: by `namespace/topology`, the digest of each live ledger entry that the plan writes, or
            `absent`.
        seal: SHA-256 of everything else: apply refuses a file that was edited. Every printed or written plan has it.
    """

    format_version: Literal[1]
    kodoctl_version: str
    cluster: PlanCluster
    environment: str | None
    destroying: bool
    paths: list[str]
    part: PlanPart | None
    against: PlanAgainst | None
    namespaces: list[NamespaceRow]
    digest: DigestOrNone
    complete: bool
    unseen: list[NamespaceRow]
    refused: bool
    summary: PlanSummary
    changes: list[ChangeRow]
    findings: list[FindingRow]
    unmanaged: list[str]
    elsewhere: dict[str, int]
    consumer_changes: list[Annotated[Json, FormOf(ConsumerChange)]]
    allowances: Annotated[Json, FormOf(Allowances)]
    owners: list[Annotated[Json, FormOf(LedgerPlan)]]
    fingerprints: dict[str, Fingerprint]
    ledger_fingerprints: dict[str, Fingerprint]
    seal: NotRequired[Digest]


class DriftDocument(TypedDict):
    """The JSON of drift, by the groups of `kodoctl.plan.drift.Drift`. `stale_topologies`: topologies whose file is not
    as their last apply had it, those never applied among them; `returning`: stored entries (a batch counts as one) that
    come again to a subscription when the next apply puts it back, by its address, null: unknown.
    """

    format_version: Literal[1]
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
    returning: dict[str, int | None]
