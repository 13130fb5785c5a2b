"""The types of documents have the fields that the published schemas have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
from kodo_pipeline.simulate import simulation_document as simulation

from kodoctl.documents import fleet_document as fleet
from kodoctl.documents import plan_document as plan
from kodoctl.documents import recall_document as recall

SCHEMAS = Path(__file__).parents[3] / "schemas"
PLAN = json.loads((SCHEMAS / "plan.v1.json").read_text(encoding="utf-8"))
FLEET = json.loads((SCHEMAS / "fleet-plan.v1.json").read_text(encoding="utf-8"))
SIMULATION = json.loads((SCHEMAS / "simulation.v1.json").read_text(encoding="utf-8"))
RECALL = json.loads((SCHEMAS / "recall-plan.v1.json").read_text(encoding="utf-8"))
RECALL_TABLE = json.loads((SCHEMAS / "recall-plan.v2.json").read_text(encoding="utf-8"))
DIFFERENCE = FLEET["properties"]["differences"]["items"]


@pytest.mark.parametrize(
    ("document", "schema"),
    [
        (plan.PlanDocument, PLAN),
        (plan.FindingRow, PLAN["$defs"]["finding"]),
        (plan.RemedyRow, PLAN["$defs"]["finding"]["properties"]["remedy"]),
        (plan.FieldRow, PLAN["$defs"]["field"]),
        (plan.EffectiveValue, PLAN["$defs"]["field"]["properties"]["effective_before"]),
        (plan.PlanOwner, PLAN["$defs"]["owner"]),
        (plan.PlanCluster, PLAN["properties"]["cluster"]),
        (plan.PlanSummary, PLAN["properties"]["summary"]),
        (plan.PlanAllowances, PLAN["properties"]["allowances"]),
        (plan.ConsumerChange, PLAN["properties"]["consumer_changes"]["items"]),
        (fleet.FleetDocument, FLEET),
        (fleet.FleetMember, FLEET["properties"]["clusters"]["items"]),
        (fleet.FleetDifference, DIFFERENCE),
        (fleet.DifferingChange, DIFFERENCE["properties"]["clusters"]["additionalProperties"]["items"]),
        (recall.RecallPlanDocument, RECALL),
        (recall.RecallSummary, RECALL["properties"]["summary"]),
        (recall.RecallTarget, RECALL["properties"]["lanes"]["items"]),
        (recall.LetterFile, RECALL_TABLE["properties"]["letters"]),
        (recall.PlannedLetterRow, RECALL["properties"]["letters"]["items"]),
        (simulation.SimulationDocument, SIMULATION),
        (simulation.SimulationTrial, SIMULATION["$defs"]["trial"]),
        (simulation.SimulatedRun, SIMULATION["$defs"]["run"]),
        (simulation.SimulatedRunRow, SIMULATION["$defs"]["state"]),
        (simulation.SimulatedFigures, SIMULATION["$defs"]["figures"]),
        (simulation.SimulatedTenant, SIMULATION["$defs"]["tenant"]),
        (simulation.SimulatedOutageRow, SIMULATION["$defs"]["outage"]),
        (simulation.RecordedFigures, SIMULATION["$defs"]["recorded"]),
        (simulation.WaitingFigures, SIMULATION["$defs"]["waiting"]),
        (recall.SettledLetter, RECALL["properties"]["settle"]["items"]),
    ],
)
def test_a_document_has_the_fields_of_its_schema(document: Any, schema: dict[str, Any]) -> None:
    fields = get_type_hints(document, localns=vars(plan), include_extras=True)
    assert fields.keys() == schema["properties"].keys()
    required = {name for name, kind in fields.items() if get_origin(kind) is not NotRequired}
    assert required | {"seal"} == set(schema["required"]) | {"seal"}  # the seal is added last


def test_a_change_has_the_fields_of_one_of_the_kinds() -> None:
    kinds = PLAN["$defs"]["change"]
    described: set[str] = set()
    for kind in kinds.get("oneOf", kinds.get("anyOf", [kinds])):
        described |= set(kind["properties"])
    assert set(plan.ChangeRow.__annotations__) == described
