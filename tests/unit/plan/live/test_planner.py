"""What is asked of the broker while a plan is made, besides what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Diagnostic, error
from kodoctl.plan.changes import ChangeContext, Create, Delete, Update
from kodoctl.plan.diff import Allowances
from kodoctl.plan.live import planner
from kodoctl.plan.live.planner import FRESH_S, just_read, plan_inventory, rejudge, scope_of_plan, with_known
from kodoctl.plan.plan import Plan
from kodoctl.pulsar.admin.admin import Admin, AdminError, Reply, RequestCount
from kodoctl.pulsar.values.live_objects import TopicFacts
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SchemaResource, TopicResource
from tests.samples.inventories import HERE, applied, empty, planned, topology, wanted

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


def _destroying() -> Plan:
    """The plan that deletes everything of a topology with two topics, made of a reading that ended at 100 s."""
    side = wanted(topology("{J: {subscriptions: {s: {}}}, K: {}}"))
    live = replace(applied(side, facts=TopicFacts(storage_bytes=1)), read_at=100.0)
    changes = tuple(
        Delete(found.resource, ChangeContext("trade", dangers=(error("K401", "at stake"),)))
        for address, found in live.objects.items()
        if address.startswith(("topic.", "subscription."))
    )
    return replace(planned(side, live), changes=changes, reading=live)


def test_an_apply_does_not_read_again_what_the_plan_has_just_read_and_deletes() -> None:
    plan = _destroying()
    known = just_read(plan, 100.0 + FRESH_S)
    assert {topic.local for topic in known} >= {"J", "K"}
    scope = scope_of_plan(plan, known)
    assert scope.known == known
    read = replace(empty(), ledgers={})
    live = with_known(read, plan, known)
    assert live.objects.keys() == {change.address for change in plan.changes}
    asked = Broker(500, None)
    given: Any = asked
    judged = rejudge(given, plan, live, now=0, known=known)
    assert [change.about.dangers for change in judged.changes] == [change.about.dangers for change in plan.changes]


def test_a_reading_that_is_old_or_of_another_process_is_made_again() -> None:
    plan = _destroying()
    assert just_read(plan, 100.1 + FRESH_S) == frozenset()
    assert just_read(replace(plan, reading=None), 100.0) == frozenset()
    assert with_known(empty(), plan, frozenset()) == empty()


def test_a_topic_that_the_plan_creates_again_or_could_not_read_is_read_again() -> None:
    plan = _destroying()
    assert plan.reading is not None
    again = Create(TopicResource(J, 2, {}), ChangeContext("trade"))
    assert J not in just_read(replace(plan, changes=(*plan.changes, again)), 100.0)
    assert J not in just_read(replace(plan, reading=replace(plan.reading, unread={J: "no owner"})), 100.0)
