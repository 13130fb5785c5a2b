"""One plan over several clusters: its file, and where they differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kodoctl.documents.json_form import digest
from kodoctl.errors import InvalidFileError, RefusedError, error
from kodoctl.plan import plan_file
from kodoctl.plan.fleet import FleetPlan, Member, alone, differences, dumps, is_fleet, loads, same_cluster, to_json
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.values.live_objects import ClusterIdentity
from tests.samples.inventories import applied, empty, planned, topology, wanted

J, K = (f"topic.persistent://acme/ns/{local}" for local in "JK")
ONE, TWO = topology("{J: {}}"), topology("{J: {partitions: 3}, K: {}}")


def _at(plan: Plan, cluster: str, **uuids: str | None) -> Plan:
    return replace(plan, identity=ClusterIdentity(cluster, uuids))


FRESH = _at(planned(wanted(TWO), empty()), "eu", acme="1")
GROWN = _at(planned(wanted(TWO), applied(wanted(ONE))), "us", acme="2")
GONE = Member("far", None, (error("K514", "no broker answers", "http://far"),))
FLEET = FleetPlan((Member("eu", FRESH), Member("us", GROWN), GONE))


def test_a_fleet_is_as_ready_as_its_clusters_together() -> None:
    assert FLEET.plans == {"eu": FRESH, "us": GROWN}
    assert FLEET.unreached == (GONE,)
    assert not FLEET.refused
    assert not FLEET.empty
    refused = replace(GROWN, findings=(error("K411", "partitions would shrink"),))
    assert FleetPlan((Member("eu", FRESH), Member("us", refused))).refused
    nothing = planned(wanted(ONE), applied(wanted(ONE)))
    assert FleetPlan((Member("eu", nothing), GONE)).empty


def test_what_is_not_the_same_in_all_clusters_is_listed_with_what_each_does() -> None:
    found = {one["address"]: one["clusters"] for one in differences(FLEET.plans)}
    assert set(found) == {J, "namespace.acme/ns"}
    assert [change["action"] for change in found[J]["eu"]] == ["create"]
    assert (found[J]["eu"][0]["after"] or {})["partitions"] == 3
    assert [(f["before"], f["after"]) for f in found[J]["us"][0]["fields"]] == [(1, 3)]
    assert found["namespace.acme/ns"]["us"] == []
    assert not list(differences({"eu": FRESH, "us": _at(FRESH, "us")}))


def test_the_file_reads_back_as_it_was_written_and_holds_every_plan_whole() -> None:
    assert loads(dumps(FLEET), "fleet.json") == FLEET
    assert is_fleet(dumps(FLEET))
    assert not is_fleet(plan_file.dumps(FRESH))
    assert not is_fleet("no json")
    assert not is_fleet("[1]")
    assert to_json(FLEET)["clusters"][0]["plan"] == plan_file.to_json(FRESH)
    assert to_json(FLEET)["deletes"] is False
    dropping = planned(wanted(ONE), applied(wanted(topology("{J: {}, K: {}}"))))
    assert to_json(FleetPlan((Member("eu", dropping),)))["deletes"] is True


def test_a_fleet_of_one_cluster_has_the_file_of_its_plan() -> None:
    one = alone(FRESH)
    assert (one.only, FLEET.only) == (FRESH, None)
    assert dumps(one) == plan_file.dumps(FRESH)
    assert loads(dumps(one), "plan.json") == one


def _edited(**parts: Any) -> str:
    found = json.loads(dumps(FLEET))
    del found["seal"]
    found |= parts
    return json.dumps({**found, "seal": digest(found)})


def test_an_edited_file_and_one_that_says_nonsense_are_refused() -> None:
    with pytest.raises(RefusedError, match="does not match its seal"):
        loads(dumps(FLEET).replace('"us"', '"eu"'), "fleet.json")
    with pytest.raises(InvalidFileError):
        loads(_edited(clusters=[{}]), "fleet.json")
    with pytest.raises(InvalidFileError):
        plan_file.loads(dumps(FLEET), "fleet.json")


def test_one_cluster_by_two_names_is_found_where_it_has_been_applied_to_before() -> None:
    [twice] = same_cluster({"a": FRESH, "b": FRESH})
    assert (twice.code, "a and b" in twice.detail) == ("K548", True)
    assert not list(same_cluster(FLEET.plans))
    first = _at(FRESH, "standalone", acme=None)
    assert not list(same_cluster({"a": first, "b": first}))


SCHEMAS = Path(__file__).parents[3] / "schemas"


def test_the_published_schema_describes_what_is_written() -> None:
    schema = json.loads((SCHEMAS / "fleet-plan.v1.json").read_text(encoding="utf-8"))
    plan = json.loads((SCHEMAS / "plan.v1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    fits = jsonschema.Draft202012Validator(schema)
    fits.validate(to_json(FLEET))
    assert set(schema["required"]) == set(to_json(FLEET))
    for one in to_json(FLEET)["clusters"]:
        if one["plan"] is not None:
            jsonschema.Draft202012Validator(plan).validate(one["plan"])
    for spoiled in ({"surprise": 1}, {"format_version": 2}, {"clusters": [{}]}, {"differences": [{"address": 1}]}):
        assert not fits.is_valid({**to_json(FLEET), **spoiled})
