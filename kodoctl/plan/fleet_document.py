"""The JSON of plans over several clusters: plan files, views and schemas/fleet-plan.v1.json have these types."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from kodoctl.documents.json_form import Digest
from kodoctl.plan.change_document import FieldRow, FindingRow
from kodoctl.plan.plan_document import PlanDocument
from kodoctl.topology.json_forms import FormOf


class FleetMember(TypedDict):
    """A cluster, by its context in kodoctl.toml. `plan`: as plan.v1.json describes it, null where it could not be read;
    `problems` say why.
    """

    context: str
    plan: Annotated[PlanDocument | None, FormOf(dict[str, Any] | None)]
    problems: list[FindingRow]


class DifferingChange(TypedDict):
    """A change of an object whose changes differ. `fields`: the changed fields of an update, [] for other actions;
    `after`: the created object, null for other actions.
    """

    action: Literal["create", "update", "delete", "adopt", "forget"]
    fields: list[FieldRow]
    after: dict[str, Any] | None


class FleetDifference(TypedDict):
    """An object whose changes differ between the clusters. `clusters`: context -> its changes, [] if it has none."""

    address: str
    clusters: dict[str, list[DifferingChange]]


class FleetDocument(TypedDict):
    """The plans that `kodoctl plan --context A --context B --out FILE` writes, `--format json` prints and `kodoctl
    apply FILE` carries out, in the order in which the clusters were named. `refused`: one plan is refused, so that none
    can be applied; `deletes`: a cluster deletes something, which waits for everything else everywhere; `seal`: SHA-256
    of everything else.
    """

    format_version: Literal[1]
    kodoctl_version: str
    refused: bool
    clusters: list[FleetMember]
    differences: list[FleetDifference]
    deletes: bool
    seal: NotRequired[Digest]
