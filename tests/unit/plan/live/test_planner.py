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
