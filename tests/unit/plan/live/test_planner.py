"""What is asked of the broker while a plan is made, besides what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Diagnostic
from kodoctl.plan.changes import ChangeContext, Update
from kodoctl.plan.diff import Allowances
from kodoctl.plan.live import planner
from kodoctl.plan.live.planner import plan_inventory
from kodoctl.pulsar.admin.admin import Admin, AdminError, Reply, RequestCount
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SchemaResource
from tests.samples.inventories import HERE, applied, planned, topology, wanted

J = TopicName(HERE, "J")
VERDICT = {"reason": "An unexpected error occurred … schema.exceptions.IncompatibleSchemaException: no default"}


class Broker:
    """An admin port with one answer."""

    def __init__(self, status: int, data: Any) -> None:
        self.reply = Reply("POST", "schemas/acme/ns/J/compatibility", status, data, str(data))
        self.traffic = RequestCount()

    def call(self, *_: Any, **__: Any) -> Reply:
        return self.reply


def _found(monkeypatch: pytest.MonkeyPatch, admin: Any) -> list[Diagnostic]:
    """Findings of a plan that writes another version of a schema."""
    side = wanted(topology())
    live = applied(side)
    new = Update(SchemaResource(J, "AVRO", '"int"'), SchemaResource(J, "AVRO", '"long"'), (), ChangeContext("trade"))
    plan = replace(planned(side, live), changes=(new,))
    monkeypatch.setattr(planner, "make_plan", lambda *_, **__: plan)
    given: Admin = admin
    return list(plan_inventory(given, side, live, Allowances()).findings)


def test_the_brokers_verdict_on_a_schema_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _found(monkeypatch, Broker(200, {"compatibility": True})) == []
    for status, data in ((200, {"compatibility": False}), (500, VERDICT), (409, {"reason": "no"})):
        assert [finding.code for finding in _found(monkeypatch, Broker(status, data))] == ["K418"]


@pytest.mark.parametrize(("status", "data"), [(500, {"reason": ""}), (503, None), (429, None)])
def test_a_broker_without_an_answer_gave_no_verdict(monkeypatch: pytest.MonkeyPatch, status: int, data: Any) -> None:
    with pytest.raises(AdminError, match=r"asking whether the schema of .*J is compatible"):
        _found(monkeypatch, Broker(status, data))


class Ledgers:
    """An admin port that answers for topics of two partitions, of which `ended` were terminated."""

    def __init__(self, ended: set[str]) -> None:
        self.ended, self.asked = ended, list[str]()
        self.traffic = RequestCount()

    def call(self, method: str, path: str, **_: Any) -> Reply:
        part = path.removesuffix("/internal-info").rpartition("/")[2]
        self.asked.append(part)
        return Reply(method, path, 200, {"ledgers": [], **({"terminatedPosition": {}} if part in self.ended else {})})


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (set(), []),
        ({"J-partition-0", "J-partition-1"}, [f"{J} was terminated: "]),
        ({"J-partition-1"}, [f"{J} was terminated, partition 1 of it: "]),
    ],
)
def test_a_comparison_asks_of_every_partition_whether_it_was_terminated(ended: set[str], told: list[str]) -> None:
    side = wanted(topology("{J: {partitions: 2}, K: {partitions: 2}}"))
    admin: Any = Ledgers(ended)
    plan = plan_inventory(admin, side, applied(side), Allowances(), compares=True)
    found = [one.detail for one in plan.findings if one.code == "K442"]
    assert len(found) == len(told)
    assert all(one.startswith(text) for one, text in zip(found, told, strict=True))
    assert sorted(admin.asked) == [f"{topic}-partition-{number}" for topic in "JK" for number in range(2)]
    admin.asked.clear()
    assert not [one for one in plan_inventory(admin, side, applied(side), Allowances()).findings if one.code == "K442"]
    assert admin.asked == [], "a plan asks of what it changes"
