"""Refusals of rights name the right that is missing, and the grant to write."""

from __future__ import annotations

import pytest

from kodoctl.pulsar.admin.admin import AdminError, Reply
from kodoctl.pulsar.admin.missing_right import missing_right

CONSUME = (
    "consume on kodo/trade (`namespace_grants: {ROLE: [consume]}` in its file); to plan all of it and to apply, an "
)
ADMIN = "an admin role of the Pulsar tenant kodo (`admin_roles` of `create_tenant`"


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "persistent/kodo/trade/partitioned", CONSUME),
        ("GET", "persistent/kodo/trade", CONSUME),
        ("GET", "persistent/kodo/trade/orders/stats?a=/b", "consume on kodo/trade/orders (`workers`, `recall` or"),
        ("GET", "persistent/kodo/trade/orders/retention", ADMIN),
        ("PUT", "persistent/kodo/trade/orders/partitions", ADMIN),
        ("GET", "namespaces/kodo", ADMIN),
        ("GET", "persistent/kodo/trade/orders/properties", "consume on kodo/trade/orders (`workers`, `recall` or"),
        ("GET", "persistent/kodo/trade/orders/subscription/billing/properties", ADMIN),
        ("GET", "schemas/kodo/trade/orders/schema", "consume on kodo/trade/orders (`workers`, `recall` or"),
        ("GET", "schemas/kodo/trade/orders/schemas", "consume on kodo/trade/orders"),
        ("POST", "schemas/kodo/trade/orders/schema", ADMIN),
        ("PUT", "tenants/kodo", "a super-user (`superUserRoles` of the brokers)"),
        ("GET", "clusters", "a super-user"),
        ("GET", "v3/functions/kodo/trade", "functions on kodo/trade (`namespace_grants: {ROLE: [functions]}`"),
        ("PUT", "v3/functions/kodo/trade/a", "functions on kodo/trade"),
        ("GET", "v3/sinks/kodo/trade", "sinks on kodo/trade (`namespace_grants: {ROLE: [sinks]}`"),
        ("PUT", "v3/sources/kodo/trade/a", "sources on kodo/trade"),
        ("GET", "v3/packages/sink/kodo/trade/a/1/metadata", "packages on kodo/trade (`namespace_grants"),
        ("GET", "namespaces", "a super-user"),
    ],
)
def test_the_right_and_the_grant_are_named(method: str, path: str, right: str) -> None:
    assert missing_right(method, path).startswith(right)


@pytest.mark.parametrize(("status", "named"), [(403, True), (401, True), (404, False), (500, False)])
def test_only_refusals_of_rights_name_one(status: int, named: bool) -> None:
    problem = AdminError(Reply("GET", "namespaces/kodo", status), "reading kodo")
    assert (f"`kodoctl context test` says which): {ADMIN}" in str(problem)) == named
