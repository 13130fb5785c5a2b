"""Writes to objects of the whole cluster where somebody else writes, too: only what the plan saw is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.apply.namespaces import create_tenant
from kodoctl.apply.platform_objects import create_platform_object, delete_platform_object, update_platform_object
from kodoctl.plan.changes import ChangeContext, Delete, FieldChange, Update
from kodoctl.pulsar.admin.admin import Admin
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory.platform_objects import request_document
from kodoctl.topology.resources import PlatformResource
from tests.services.servers import Answer, Request, Server, answer_json, serving
from tests.unit.plan.test_platform_plans import ALL, BATCH, EAST, GOLD, RACK, SHOP

ABOUT = ChangeContext("trade")


@contextmanager
def cluster(resource: PlatformResource | None, lists: Any = ()) -> Iterator[tuple[Admin, Server]]:
    """A cluster with one object, which keeps what is written; its lists of other objects are `lists`."""
    stored: dict[str, Any] = {} if resource is None else {"now": request_document(resource, {})}

    def answer(request: Request) -> Answer:
        if request.method == "DELETE":
            stored.clear()
            return Answer(204)
        if request.is_write:
            stored["now"] = json.loads(request.body)
            return Answer(204)
        if "/namespaces/" not in request.path and request.path.rpartition("/")[2] in {one.name for one in ALL}:
            return answer_json(stored["now"]) if stored else Answer(404)
        return answer_json(list(lists))

    with serving(answer) as server:
        yield HttpAdmin(Connection(server.url)), server


def writes(server: Server) -> list[str]:
    return [f"{one.method} {one.path.removeprefix('/admin/v2/')}" for one in server.requests if one.is_write]


@pytest.mark.parametrize(
    ("resource", "request_line"),
    [
        (SHOP, "PUT tenants/shop"),
        (EAST, "PUT clusters/east"),
        (BATCH, "PUT resourcegroups/batch"),
        (RACK, "POST clusters/here/failureDomains/rack"),
        (GOLD, "POST clusters/here/namespaceIsolationPolicies/gold"),
    ],
)
def test_an_absent_object_is_created_and_an_equal_one_is_claimed_only_if_this_apply_made_it(
    resource: PlatformResource, request_line: str
) -> None:
    with cluster(None) as (admin, server):
        create_platform_object(admin, "here", resource, is_prepared=False)
        create_platform_object(admin, "here", resource, is_prepared=True)
        with pytest.raises(WriteFailedError, match="somebody created it since the plan"):
            create_platform_object(admin, "here", resource, is_prepared=False)
        assert writes(server) == [request_line]


def test_an_equal_object_that_comes_just_before_the_write_is_not_claimed() -> None:
    stored: list[Any] = []

    def answer(request: Request) -> Answer:
        if request.is_write:
            stored.append(request_document(SHOP, {}))
            return Answer(409)
        return answer_json(stored[0]) if stored else Answer(404)

    with serving(answer) as server:
        admin = HttpAdmin(Connection(server.url))
        with pytest.raises(WriteFailedError, match="somebody created it since the plan"):
            create_platform_object(admin, "here", SHOP, is_prepared=False)
        with pytest.raises(WriteFailedError, match="somebody created it since the plan"):
            create_tenant(admin, SHOP)
        create_tenant(admin, replace(SHOP, home=None))


def test_an_object_that_somebody_created_since_is_left_alone() -> None:
    with cluster(replace(SHOP, admin_roles=frozenset({"x"}))) as (admin, server):
        with pytest.raises(WriteFailedError, match="somebody created it since the plan"):
            create_platform_object(admin, "here", SHOP, is_prepared=True)
        assert not writes(server)


def test_an_update_writes_only_over_what_the_plan_saw() -> None:
    after = replace(SHOP, admin_roles=frozenset({"new"}))
    change = Update(SHOP, after, (FieldChange("admin_roles", SHOP.admin_roles, after.admin_roles),), ABOUT)
    with cluster(SHOP) as (admin, server):
        update_platform_object(admin, "here", change)
        assert writes(server) == ["POST tenants/shop"]
    with cluster(replace(SHOP, admin_roles=frozenset({"other"}))) as (admin, server):
        with pytest.raises(WriteFailedError, match="admin_roles changed since the plan"):
            update_platform_object(admin, "here", change)
        assert not writes(server)
    with cluster(None) as (admin, _), pytest.raises(WriteFailedError, match="it is gone since the plan"):
        update_platform_object(admin, "here", change)


def test_a_tenant_keeps_a_cluster_that_a_namespace_uses_by_now() -> None:
    before = replace(SHOP, clusters=frozenset({"standalone", "east"}))
    change = Update(before, SHOP, (FieldChange("clusters", before.clusters, SHOP.clusters),), ABOUT)
    used = {
        "namespaces/shop": ["shop/trade"],
        "namespaces/shop/trade": {"replication_clusters": ["standalone", "east"]},
    }
    used["tenants/shop"] = request_document(before, {})
    with serving(lambda request: answer_json(used[request.path.removeprefix("/admin/v2/")])) as server:
        admin = HttpAdmin(Connection(server.url))
        with pytest.raises(WriteFailedError, match="cluster east is used by namespace shop/trade: plan again"):
            update_platform_object(admin, "here", change)
        assert not writes(server)


def test_a_field_that_the_plan_does_not_change_stays_as_it_is_by_now() -> None:
    before = replace(SHOP, clusters=frozenset({"standalone", "east"}))
    change = Update(before, SHOP, (FieldChange("clusters", before.clusters, SHOP.clusters),), ABOUT)
    with cluster(replace(before, admin_roles=frozenset({"sre", "added"}))) as (admin, server):
        update_platform_object(admin, "here", change)
        (written,) = [json.loads(one.body) for one in server.requests if one.is_write]
        assert written == {"allowedClusters": ["standalone"], "adminRoles": ["added", "sre"]}


def test_an_address_that_an_undo_takes_away_is_removed() -> None:
    before = replace(EAST, service_url_tls="https://east")
    change = Update(before, EAST, (FieldChange("service_url_tls", "https://east", ""),), ABOUT)
    with cluster(before) as (admin, server):
        update_platform_object(admin, "here", change)
        (written,) = [json.loads(one.body) for one in server.requests if one.is_write]
        assert "serviceUrlTls" not in written


def test_a_domain_gives_brokers_up_before_it_takes_others() -> None:
    before, after = replace(RACK, brokers=frozenset("ab")), replace(RACK, brokers=frozenset("bc"))
    change = Update(before, after, (FieldChange("brokers", before.brokers, after.brokers),), ABOUT)
    with cluster(before) as (admin, server):
        update_platform_object(admin, "here", change)
        assert [json.loads(one.body)["brokers"] for one in server.requests if one.is_write] == [["b"], ["b", "c"]]


def test_only_the_object_that_the_plan_saw_is_deleted_and_only_unused() -> None:
    with cluster(BATCH) as (admin, server):
        delete_platform_object(admin, "here", Delete(BATCH, ABOUT), allowed=False)
        delete_platform_object(admin, "here", Delete(BATCH, ABOUT), allowed=False)
        assert writes(server) == ["DELETE resourcegroups/batch"]
    with cluster(replace(BATCH, publish_rate={})) as (admin, server):
        with pytest.raises(WriteFailedError, match="somebody changed it since the plan"):
            delete_platform_object(admin, "here", Delete(BATCH, ABOUT), allowed=False)
        assert not writes(server)


def test_an_isolation_in_use_is_deleted_only_by_leave() -> None:
    with cluster(RACK, lists=["b1:8080"]) as (admin, server):
        with pytest.raises(WriteFailedError, match="it has broker b1:8080, which would be in none: plan again"):
            delete_platform_object(admin, "here", Delete(RACK, ABOUT), allowed=False)
        assert not writes(server)
        delete_platform_object(admin, "here", Delete(RACK, ABOUT), allowed=True)
        assert writes(server) == ["DELETE clusters/here/failureDomains/rack"]
