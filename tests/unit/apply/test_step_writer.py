"""Steps of an apply: one writer knows which request belongs to which change, and which need none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kodoctl.apply.ledger_writer import LedgerWriter
from kodoctl.apply.source_writer import SourceWriter
from kodoctl.apply.step_writer import StepWriter
from kodoctl.plan.changes import ChangeContext, Create, Delete, Forget, Update
from kodoctl.plan.plan import Plan
from kodoctl.plan.schedule import Step
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, TenantResource
from tests.samples.inventories import HERE, applied, empty, planned, said, topology, wanted
from tests.services.servers import Answer, Request, answer_json, serving

J = TopicName(HERE, "J")
ABOUT = ChangeContext("trade")


class Cluster:
    """A cluster that does whatever is asked, and writes it down."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []
        self.grants: dict[str, list[str]] = {}

    def __call__(self, request: Request) -> Answer:
        if request.is_write:
            self.writes.append((request.method, request.path.partition("?")[0].removeprefix("/admin/v2/")))
            if "/permissions/" in request.path:
                self.grants[request.path.rpartition("/")[2]] = json.loads(request.body)
            return Answer(204)
        return answer_json({"auth_policies": {"namespace_auth": self.grants}})


@contextmanager
def _writer(plan: Plan, cluster: Cluster) -> Iterator[StepWriter]:
    with serving(cluster) as server:
        admin = HttpAdmin(Connection(server.url))
        yield StepWriter(admin, plan, empty(), LedgerWriter(admin, plan, empty()), SourceWriter({}, empty()))


def test_subscriptions_and_grants_of_a_deleted_topic_go_along_with_it() -> None:
    ground = "{subscriptions: {s: {workers: [ann], states: [], dead_letter: false}}}"
    there = applied(wanted(topology(f"{{J: {ground}, K: {ground}, L: {{}}}}")))
    plan = planned(wanted(topology("{K: {}}")), there)
    assert ("delete", "subscription.K/s") in said(plan.changes), "its topic stays"
    with _writer(plan, Cluster()) as writer:
        along = {change.address: said(writer.deleted_with(change)) for change in plan.changes}
    assert along.pop(f"topic.{J}") == {("delete", "subscription.J/s"), ("delete", "grant.J/ann")}
    assert not any(along.values())


def test_what_is_gone_already_is_forgotten_without_a_request() -> None:
    cluster = Cluster()
    with _writer(planned(wanted(topology()), empty()), cluster) as writer:
        writer.write(Step(Forget("topic.x", None, ABOUT)))
    assert cluster.writes == []


def test_a_grant_is_written_in_one_request_and_a_tenant_is_never_updated() -> None:
    grant, cluster = GrantResource(HERE, "ann", frozenset({"produce"})), Cluster()
    tenant = TenantResource("acme", frozenset({"a"}), frozenset())
    with _writer(planned(wanted(topology()), empty()), cluster) as writer:
        writer.write(Step(Create(grant, ABOUT)))
        assert cluster.writes == [("POST", "namespaces/acme/ns/permissions/ann")]
        with pytest.raises(WriteFailedError, match="never updated"):
            writer.write(Step(Update(tenant, tenant, (), ABOUT)))
        with pytest.raises(WriteFailedError, match="never deleted"):
            writer.write(Step(Delete(tenant, ABOUT)))
