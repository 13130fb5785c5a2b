"""Refusals of rights name the role, the right that it lacks and the grant to write."""

from __future__ import annotations

import pytest

from kodoctl.pulsar.admin.admin import AdminError, Reply
from kodoctl.pulsar.admin.missing_right import missing_right

REASON = "Unauthorized to validateTopicOperation for originalPrincipal [null] and clientAppId [planner] about operation"


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "persistent/kodo/trade/partitioned", "planner needs consume on kodo/trade: `namespace_grants: {planner: ["),
        ("GET", "persistent/kodo/trade/orders/stats?a=/b", "planner needs consume on kodo/trade/orders: add it to `workers`"),
        ("GET", "persistent/kodo/trade", "planner needs consume on kodo/trade"),
        ("GET", "persistent/kodo/trade/orders/retention", "planner has to be an admin of the Pulsar tenant kodo: "),
        ("PUT", "persistent/kodo/trade/orders/partitions", "planner has to be an admin of the Pulsar tenant kodo: "),
        ("GET", "namespaces/kodo", "`admin_roles` of `create_tenant`"),
        ("PUT", "tenants/kodo", "planner has to be a super-user: `superUserRoles` of the brokers"),
        ("GET", "clusters", "planner has to be a super-user"),
        ("GET", "namespaces", "planner has to be a super-user"),
    ],
)  # fmt: skip
def test_the_right_and_the_grant_are_named(method: str, path: str, right: str) -> None:
    assert right in missing_right(method, path, REASON)


def test_a_reason_without_a_role_leaves_its_place_open() -> None:
    assert missing_right("GET", "namespaces/kodo", "no").startswith("ROLE has to be an admin of the Pulsar tenant kodo")


@pytest.mark.parametrize(("status", "named"), [(403, True), (401, True), (404, False), (500, False)])
def test_only_refusals_of_rights_name_one(status: int, named: bool) -> None:
    problem = AdminError(Reply("GET", "namespaces/kodo", status, reason=REASON), "reading kodo")
    assert ("planner has to be an admin" in str(problem)) == named
