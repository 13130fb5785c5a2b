"""Objects of the whole cluster that something uses: neither deleted nor taken from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Severity, Where
from kodoctl.plan.changes import Adopt, Change, ChangeContext, Create, Delete, FieldChange, PolicyChange, Update
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.danger.evidence import evidence_wanted
from kodoctl.plan.danger.platform_objects import unread_platform, untrusted_record, users_text
from kodoctl.pulsar.values.evidence import Evidence, PlatformUser
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import NamespaceResource, PlatformResource
from tests.samples.inventories import NOW, changed, empty, wanted
from tests.unit.plan.test_platform_plans import ALL, BATCH, EAST, GOLD, PLAIN, RACK, SHOP, declared

ABOUT = ChangeContext("trade")
TRADE = NamespaceName("shop", "trade")
USER = PlatformUser(f"namespace.{TRADE}", frozenset({"standalone", "east"}))


def dangers(change: Change, *users: PlatformUser, more: tuple[Change, ...] = (), allowed: str = "") -> list[str]:
    """The dangers of a change, as SEVERITY: DETAIL."""
    evidence = {change.address: Evidence(users=users)}
    live = changed(empty(), *(LiveObject(one) for one in ALL))
    rules = DangerRules(frozenset(), live, evidence, frozenset([allowed]), NOW)
    return [f"{one.severity.value}: {one.detail}" for one in rules.judge([change, *more])[0].about.dangers]


@pytest.mark.parametrize(
    ("resource", "users", "says"),
    [
        (SHOP, [USER], "it has namespace shop/trade: delete them first"),
        (SHOP, [PlatformUser("namespace.shop/kodoctl")], "`pulsar-admin namespaces delete shop/kodoctl --force` deletes it"),
        (EAST, [PlatformUser("tenant.shop")], "it is used by tenant.shop, and Pulsar would delete it all the same"),
        (BATCH, [USER], "it is used by namespace shop/trade: take it out of their `resource_group` first"),
        (RACK, [PlatformUser("broker b1:8080")], "it has broker b1:8080, which would be in none"),
        (GOLD, [USER], "namespace shop/trade may then go to any broker, and their clients reconnect"),
        (BATCH, [PlatformUser(f"namespace.a/{n}") for n in range(5)], "namespace a/0, namespace a/1, namespace a/2 and 2 more"),
    ],
)  # fmt: skip
def test_an_object_in_use_is_not_deleted(resource: PlatformResource, users: list[PlatformUser], says: str) -> None:
    assert says in users_text(resource, users)
    (danger,) = dangers(Delete(resource, ABOUT), *users)
    assert danger.startswith(f"error: {resource.address}: ")
    assert says in danger
    may_be_allowed = resource in (RACK, GOLD)
    assert ("--allow-destroy" in danger) == may_be_allowed
    (danger,) = dangers(Delete(resource, ABOUT), *users, allowed=resource.address)
    assert danger.startswith("warning: " if may_be_allowed else "error: ")
    assert not dangers(Delete(resource, ABOUT))


def test_a_use_that_the_same_plan_ends_is_none() -> None:
    space = NamespaceResource(TRADE, {"resource_group": "batch"})
    leaving = Update(space, NamespaceResource(TRADE, {}), (PolicyChange("resource_group", "batch", None),), ABOUT)
    assert not dangers(Delete(BATCH, ABOUT), USER, more=(leaving,))
    assert dangers(Delete(BATCH, ABOUT), USER, more=(replace(leaving, after=space),))
    assert not dangers(Delete(SHOP, ABOUT), USER, more=(Delete(space, ABOUT),))
    assert dangers(Delete(SHOP, ABOUT), USER, more=(leaving,))
    tenant = replace(SHOP, clusters=frozenset({"standalone", "east"}))
    fields = (FieldChange("clusters", tenant.clusters, SHOP.clusters),)
    assert not dangers(Delete(EAST, ABOUT), PlatformUser(SHOP.address), more=(Update(tenant, SHOP, fields, ABOUT),))


def test_a_tenant_keeps_the_clusters_that_its_namespaces_use() -> None:
    tenant = replace(SHOP, clusters=frozenset({"standalone", "east", "west"}))
    losing = Update(tenant, SHOP, (FieldChange("clusters", tenant.clusters, SHOP.clusters),), ABOUT)
    (danger,) = dangers(losing, USER)
    assert "cluster east, west is used by namespace shop/trade" in danger
    assert "take it out of their `replication`" in danger
    assert not dangers(losing, PlatformUser(USER.address, frozenset({"standalone"})))
    assert dangers(losing, USER, more=(Delete(NamespaceResource(TRADE, {}), ABOUT),)), "it is deleted after the update"
    assert not dangers(Update(BATCH, replace(BATCH, publish_rate={}), (), ABOUT), USER)


def test_users_are_read_where_they_matter() -> None:
    live = changed(empty(), *(LiveObject(one) for one in ALL))
    assert list(evidence_wanted([Delete(one, ABOUT) for one in ALL], live)) == [one.address for one in ALL]
    assert not list(evidence_wanted([Delete(SHOP, ABOUT)], empty()))
    losing = Update(replace(SHOP, clusters=frozenset({"standalone", "east"})), SHOP, (), ABOUT)
    assert list(evidence_wanted([losing, Update(SHOP, SHOP, (), ABOUT)], live)) == [SHOP.address]


def test_objects_that_a_role_may_not_read_are_one_warning() -> None:
    assert not list(unread_platform(declared(), empty()))
    unread = replace(empty(), unread_platform={one.address: "401" for one in ALL})
    (finding,) = unread_platform(declared(), unread)
    assert finding.severity is Severity.WARNING
    assert finding.detail.startswith("cluster.east, failure_domain.rack, isolation_policy.gold and 2 more: 401\n")
    assert finding.where is not None
    (other,) = unread_platform(wanted(PLAIN), replace(empty(), unread_platform={SHOP.address: "401"}))
    assert other.where is None


def test_a_record_that_administrators_may_write_deletes_nothing_by_itself() -> None:
    live = replace(changed(empty(), LiveObject(SHOP)), record_writers={"acme": frozenset({"anna", "ben"})})
    (refused,) = untrusted_record(Delete(SHOP, ABOUT), SHOP, live, frozenset())
    assert (refused.code, refused.severity) == ("K455", Severity.ERROR)
    assert "the record in acme/ns says that it is ours, and anna, ben may write that record" in refused.detail
    (warned,) = untrusted_record(Delete(SHOP, ABOUT), SHOP, live, frozenset({SHOP.address}))
    assert warned.severity is Severity.WARNING
    nobody = replace(live, record_writers={"acme": frozenset()})
    assert not list(untrusted_record(Delete(SHOP, ABOUT), SHOP, nobody, frozenset()))
    absent = replace(live, record_writers={}, absent_tenants=frozenset({"acme"}))
    assert not list(untrusted_record(Delete(SHOP, ABOUT), SHOP, absent, frozenset()))
    rules = DangerRules(frozenset(), live, {}, frozenset(), NOW)
    assert [one.code for one in rules.judge([Delete(SHOP, ABOUT)])[0].about.dangers] == ["K455"]


@pytest.mark.parametrize("writers", [{}, {"acme": None}])
def test_a_record_of_which_nobody_knows_who_may_write_it_is_not_trusted(
    writers: dict[str, frozenset[str] | None],
) -> None:
    live = replace(changed(empty(), LiveObject(SHOP)), record_writers=writers)
    for change in (Delete(SHOP, ABOUT), Create(EAST, ABOUT)):
        (refused,) = untrusted_record(change, SHOP, live, frozenset())
        assert refused.severity is Severity.ERROR
        assert "who may write that record is not known" in refused.detail


def test_a_journal_that_administrators_may_write_makes_and_changes_nothing_by_itself() -> None:
    live = replace(changed(empty(), LiveObject(SHOP)), record_writers={"acme": frozenset({"anna"})})
    rules = DangerRules(frozenset(), live, {}, frozenset(), NOW)
    fields = (FieldChange("admin_roles", SHOP.admin_roles, frozenset({"anna"})),)
    declared_at = replace(ABOUT, where=Where("file.yaml", 7, 3))
    for change in (Create(EAST, ABOUT), Update(SHOP, replace(SHOP, admin_roles=frozenset({"anna"})), fields, ABOUT)):
        (danger,) = rules.judge([change])[0].about.dangers
        assert (danger.code, danger.severity) == ("K455", Severity.ERROR)
        assert "the history of acme/ns says so, and anna may write that record" in danger.detail
        assert not rules.judge([replace(change, about=declared_at)])[0].about.dangers
    assert not rules.judge([Adopt(SHOP, ABOUT)])[0].about.dangers


def test_a_journal_makes_no_tenant_that_a_file_only_creates_if_somebody_may_write_it() -> None:
    homeless = replace(SHOP, home=None)
    live = replace(empty(), record_writers={"acme": frozenset({"anna"}), "shops": frozenset()})
    (refused,) = untrusted_record(Create(homeless, ABOUT), homeless, live, frozenset())
    assert "tenant.shop: a history says so, and anna may write that record" in refused.detail
    from_a_file = Create(homeless, replace(ABOUT, where=Where("file.yaml", 7, 3)))
    assert not list(untrusted_record(from_a_file, homeless, live, frozenset()))
    assert not list(untrusted_record(Create(homeless, ABOUT), homeless, empty(), frozenset()))
    (unknown,) = untrusted_record(
        Create(homeless, ABOUT), homeless, replace(live, record_writers={"acme": None}), frozenset()
    )
    assert "is not known" in unknown.detail


def test_an_isolation_policy_needs_a_running_broker() -> None:
    live = replace(empty(), brokers=frozenset({"a1.example.org:8080", "c1", "d:1", "e:1"}))
    lost = replace(GOLD, primary=frozenset({"b.*", "a"}))

    def found(change: Change, side: Live = live, allowed: str = "") -> list[str]:
        rules = DangerRules(frozenset(), side, {}, frozenset([allowed]), NOW)
        return [f"{one.code} {one.severity.value} {one.detail}" for one in rules.judge([change])[0].about.dangers]

    (refused,) = found(Create(lost, ABOUT))
    assert refused.startswith(
        "K457 error isolation_policy.gold: its patterns match no running broker (a1.example.org, c1, d"
    )
    assert " and 1 more): its namespaces would have none" in refused
    assert found(Create(lost, ABOUT), allowed=GOLD.address)[0].startswith("K457 warning")
    for pattern in ("c1", "a[1-9][.]example[.]org", "\\p{Alpha}1"):
        assert not found(Create(replace(lost, secondary=frozenset({pattern})), ABOUT))
    assert not found(Create(lost, ABOUT), empty())
    assert "(c1)" in found(Create(lost, ABOUT), replace(live, brokers=frozenset({"c1"})))[0]
    assert found(Update(GOLD, lost, (FieldChange("primary", GOLD.primary, lost.primary),), ABOUT))
    assert not found(Update(lost, lost, (FieldChange("usage_threshold", 90, 80),), ABOUT))
