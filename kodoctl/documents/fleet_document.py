"""The JSON of plans over several clusters, as schemas/fleet-plan.v1.json publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from kodoctl.documents.plan_document import FieldRow, FindingRow, PlanDocument


class FleetMember(TypedDict):
    """A cluster, by its context. `plan`: null where it could not be read; `problems` say why."""

    context: str
    plan: PlanDocument | None
    problems: list[FindingRow]


class DifferingChange(TypedDict):
    """A change that not all clusters have. `after`: of creates."""

    action: str
    fields: list[FieldRow]
    after: dict[str, Any] | None


class FleetDifference(TypedDict):
    """An object with which not all clusters do the same. `clusters`: context -> its changes, none where it is as declared."""

    address: str
    clusters: dict[str, list[DifferingChange]]


class FleetDocument(TypedDict):
    """Plans in the order in which their clusters were named. `seal`: SHA-256 of everything else."""

    format_version: int
    kodoctl_version: str
    refused: bool
    clusters: list[FleetMember]
    differences: list[FleetDifference]
    deletes: bool
    seal: NotRequired[str]
