"""The types of documents have the fields that the published schemas have."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pytest
from kodo_pipeline.simulate import simulation_document as simulation

from kodoctl.documents import recall_document as recall
from kodoctl.plan import change_document as change
from kodoctl.plan import fleet_document as fleet
from kodoctl.plan import plan_document as plan
from kodoctl.plan.diff import Allowances
from kodoctl.plan.ledger_plan import ConsumerChange, LedgerPlan

SCHEMAS = Path(__file__).parents[3] / "schemas"
PLAN = json.loads((SCHEMAS / "plan.v1.json").read_text(encoding="utf-8"))
FLEET = json.loads((SCHEMAS / "fleet-plan.v1.json").read_text(encoding="utf-8"))
SIMULATION = json.loads((SCHEMAS / "simulation.v1.json").read_text(encoding="utf-8"))
RECALL = json.loads((SCHEMAS / "recall-plan.v1.json").read_text(encoding="utf-8"))
RECALL_TABLE = json.loads((SCHEMAS / "recall-plan.v2.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("document", "schema"),
    [
        (plan.PlanDocument, PLAN),
        (change.FindingRow, PLAN["$defs"]["FindingRow"]),
        (change.RemedyRow, PLAN["$defs"]["RemedyRow"]),
        (change.FieldRow, PLAN["$defs"]["FieldRow"]),
        (change.EffectiveValue, PLAN["$defs"]["EffectiveValue"]),
        (plan.PlanCluster, PLAN["$defs"]["PlanCluster"]),
        (plan.PlanSummary, PLAN["$defs"]["PlanSummary"]),
        (fleet.FleetDocument, FLEET),
        (fleet.FleetMember, FLEET["$defs"]["FleetMember"]),
        (fleet.FleetDifference, FLEET["$defs"]["FleetDifference"]),
        (fleet.DifferingChange, FLEET["$defs"]["DifferingChange"]),
        (recall.RecallPlanDocument, RECALL),
        (recall.RecallTableDocument, RECALL_TABLE),
        (recall.RecallSummary, RECALL["$defs"]["RecallSummary"]),
        (recall.RecallTarget, RECALL["$defs"]["RecallTarget"]),
        (recall.LetterFile, RECALL_TABLE["$defs"]["LetterFile"]),
        (recall.PlannedLetterRow, RECALL["$defs"]["PlannedLetterRow"]),
        (simulation.SimulationDocument, SIMULATION),
        (simulation.SimulationTrial, SIMULATION["$defs"]["SimulationTrial"]),
        (simulation.SimulatedRun, SIMULATION["$defs"]["SimulatedRun"]),
        (simulation.SimulatedRunRow, SIMULATION["$defs"]["SimulatedRunRow"]),
        (simulation.SimulatedFigures, SIMULATION["$defs"]["SimulatedFigures"]),
        (simulation.SimulatedTenant, SIMULATION["$defs"]["SimulatedTenant"]),
        (simulation.SimulatedOutageRow, SIMULATION["$defs"]["SimulatedOutageRow"]),
        (simulation.RecordedFigures, SIMULATION["$defs"]["RecordedFigures"]),
        (simulation.WaitingFigures, SIMULATION["$defs"]["WaitingFigures"]),
        (recall.SettledLetter, RECALL["$defs"]["SettledLetter"]),
    ],
)
def test_a_document_has_the_fields_of_its_schema(document: Any, schema: dict[str, Any]) -> None:
    fields = get_type_hints(document, localns=vars(plan), include_extras=True)
    assert fields.keys() == schema["properties"].keys()
    required = {name for name, kind in fields.items() if get_origin(kind) is not NotRequired}
    assert required | {"seal"} == set(schema["required"]) | {"seal"}  # the seal is added last


@pytest.mark.parametrize(
    ("value", "name", "outside"),
    [
        (LedgerPlan, "LedgerPlan", {"owned"}),
        (Allowances, "Allowances", set()),
        (ConsumerChange, "ConsumerChange", set()),
    ],
)
def test_a_value_is_written_with_its_fields(value: Any, name: str, outside: set[str]) -> None:
    assert {one.name for one in fields(value)} - outside == PLAN["$defs"][name]["properties"].keys()
    assert PLAN["$defs"][name]["properties"].keys() == set(PLAN["$defs"][name]["required"])


def test_a_change_has_the_fields_of_one_of_the_kinds() -> None:
    kinds = get_args(get_args(change.ChangeRow)[0])
    found = [one["$ref"].rpartition("/")[2] for one in PLAN["properties"]["changes"]["items"]["oneOf"]]
    assert found == [kind.__name__ for kind in kinds]
    for kind in kinds:
        assert get_type_hints(kind).keys() == PLAN["$defs"][kind.__name__]["properties"].keys()


@pytest.mark.parametrize("name", [
    "plan.v1.json", "fleet-plan.v1.json", "simulation.v1.json", "recall-plan.v1.json", "recall-plan.v2.json",
])  # fmt: skip
def test_a_schema_is_the_one_of_its_type(name: str) -> None:
    spec = importlib.util.spec_from_file_location("generate", SCHEMAS.parent / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGES[generate.SCHEMAS / name]() == (SCHEMAS / name).read_text(encoding="utf-8")
