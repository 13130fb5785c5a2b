"""Objects of the whole cluster in a plan: compared, owned by the ledger of their home, ordered, targeted, taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.plan import serialization
from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Origin, Update
from kodoctl.plan.diff import Allowances, diff, with_namespaces
from kodoctl.plan.drift import split
from kodoctl.plan.field_diff import platform_fields
from kodoctl.plan.forget import forget_plan
from kodoctl.plan.git_baseline import Baseline
from kodoctl.plan.history import Applied
from kodoctl.plan.inventory import Desired
from kodoctl.plan.partial_access import drop_unseen
from kodoctl.plan.plan import make_plan
from kodoctl.plan.resume import rest_of
from kodoctl.plan.schedule import schedule
from kodoctl.plan.staleness import of_others, staleness
from kodoctl.plan.undo import backwards
from kodoctl.pulsar.values.ledger import OwnershipKind, decode, encode
from kodoctl.pulsar.values.live_objects import Live, LiveObject, PlatformFacts
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import (
    ClusterResource,
    FailureDomainResource,
    IsolationPolicyResource,
    NamespaceResource,
    PlatformResource,
    Resource,
    ResourceGroupResource,
    TenantResource,
)
from tests.samples.inventories import (
    HERE,
    NOW,
    applied,
    changed,
    difference,
    empty,
    planned,
    planned_part,
    said,
    topology,
    wanted,
    with_ledger,
)

PLAIN = topology("{}")
SHOP = TenantResource("shop", frozenset({"standalone"}), frozenset({"sre"}), HERE)
EAST = ClusterResource("east", "http://east:8080", "", "pulsar://east:6650", "", HERE)
BATCH = ResourceGroupResource("batch", {"messages": "1000/s"}, {}, HERE)
RACK = FailureDomainResource("rack", frozenset({"b1:8080"}), HERE)
GOLD = IsolationPolicyResource("gold", frozenset({"shop/.*"}), frozenset({"b.*"}), frozenset(), 1, 80, HERE)
ALL: tuple[PlatformResource, ...] = (SHOP, EAST, BATCH, RACK, GOLD)
PLATFORM = """\
platform:
  tenants: {shop: {clusters: [standalone], admin_roles: [sre]}}
  clusters: {east: {service_url: 'http://east:8080', broker_service_url: 'pulsar://east:6650'}}
  resource_groups: {batch: {publish_rate: {messages: 1000/s}}}
  failure_domains: {rack: {brokers: ['b1:8080']}}
  isolation_policies: {gold: {namespaces: [shop/.*], primary: [b.*], usage_threshold: 80}}
"""


def declared(platform: str = PLATFORM, *more: str) -> Desired:
    """A file with all kinds of objects; `more`: further files."""
    return wanted(topology("{}", platform), *more)


def there(*found: PlatformResource) -> Live:
    """The live side after an apply, with these objects instead."""
    return changed(applied(declared()), *(LiveObject(one) for one in found))


def held(side: Live, how: OwnershipKind) -> Live:
    """The live side in which the entry of `trade` lists the tenant as `how`."""
    entry = side.ledgers[HERE]["trade"]
    return with_ledger(side, HERE, replace(entry, owned={**entry.owned, SHOP.address: how}))


def test_a_file_declares_all_kinds() -> None:
    objects = declared().objects
    for one in ALL:
        assert objects[one.address].resource == one
        where = objects[one.address].where
        assert where is not None
        assert where.line >= 6


def test_what_is_as_declared_is_no_change() -> None:
    assert said(planned(declared(), empty()).changes) == {
        ("create", "namespace.acme/ns"),
        *(("create", one.address) for one in ALL),
    }
    assert planned(declared(), applied(declared())).empty


CHANGED: list[tuple[PlatformResource, dict[str, tuple[Any, Any]]]] = [
    (replace(SHOP, admin_roles=frozenset()), {"admin_roles": (frozenset(), frozenset({"sre"}))}),
    (replace(EAST, service_url="http://far:8080"), {"service_url": ("http://far:8080", "http://east:8080")}),
    (replace(EAST, service_url_tls="https://east"), {}),
    (replace(BATCH, publish_rate={}), {"publish_rate": ({}, {"messages": "1000/s"})}),
    (replace(RACK, brokers=frozenset()), {"brokers": (frozenset(), frozenset({"b1:8080"}))}),
    (replace(GOLD, usage_threshold=90), {"usage_threshold": (90, 80)}),
]


@pytest.mark.parametrize(("found", "fields"), CHANGED)
def test_each_changed_field_is_shown(found: PlatformResource, fields: dict[str, tuple[Any, Any]]) -> None:
    changes = planned(declared(), there(found)).changes
    shown = {
        one.name: (one.before, one.after) for change in changes if isinstance(change, Update) for one in change.fields
    }
    assert shown == fields
    for change in changes:
        assert serialization.change_from_json(dict(serialization.change_to_json(change))) == change


def test_the_ledger_of_the_home_decides_who_owns_one() -> None:
    nobodys = changed(applied(wanted(PLAIN)), *(LiveObject(one) for one in ALL))
    assert {type(one) for one in planned(declared(), nobodys).changes} == {Adopt}
    refused = planned(declared(), changed(nobodys, LiveObject(replace(SHOP, admin_roles=frozenset()))))
    assert [one.code for one in refused.findings if one.severity is Severity.ERROR] == ["K417"]
    started = held(there(), OwnershipKind.INTENT)
    assert said(planned(declared(), started).changes) == {("adopt", SHOP.address)}
    gone = planned(wanted(PLAIN), there()).changes
    assert {type(one) for one in gone} == {Delete}
    (kept,) = (
        one
        for one in planned(wanted(PLAIN), held(there(), OwnershipKind.ADOPTED)).changes
        if one.address == SHOP.address
    )
    assert isinstance(kept, Forget)
    entry = there().ledgers[HERE]["trade"]
    assert decode("trade", HERE, encode(entry)).owned == entry.owned


def test_an_object_of_another_home_is_refused() -> None:
    other = PlatformFacts("estate", NamespaceName("acme", "other"))
    plan = planned(declared(), changed(applied(wanted(PLAIN)), LiveObject(SHOP, facts=other)))
    (finding,) = (one for one in plan.findings if one.code == "K410")
    assert "tenant.shop belongs to estate in acme/other: take it out" in finding.detail
    assert SHOP.address not in {one.address for one in plan.changes}


def test_an_object_that_another_home_owns_too_is_not_deleted() -> None:
    both = LiveObject(SHOP, facts=PlatformFacts("estate", NamespaceName("acme", "other")))
    plan = planned(wanted(PLAIN), changed(there(), both))
    (stays,) = (one for one in plan.changes if one.address == SHOP.address)
    assert isinstance(stays, Forget)
    assert stays.about.reason == "estate in acme/other owns it, too: it stays"
    assert not list(of_others(plan, changed(there(), both)))
    alone = planned(wanted(PLAIN), there())
    (taken,) = of_others(alone, changed(there(), both))
    assert "tenant.shop belongs to estate, of which this plan is not" in taken.detail


def test_a_tenant_that_a_file_only_creates_counts_less() -> None:
    creating = "version: 1\nname: shop\ntenant: shop\nnamespace: x\ncreate_tenant: {clusters: [standalone], admin_roles: [sre]}\ntopics: {}\n"
    both = (declared(PLATFORM, creating), wanted(creating, topology("{}", PLATFORM)))
    for side in both:
        assert side.objects[SHOP.address].resource.home == HERE  # type: ignore[union-attr]
        assert side.objects[SHOP.address].owner == "trade"
    kept = planned(wanted(creating), changed(empty(), LiveObject(replace(SHOP, home=None))))
    assert SHOP.address not in {one.address for one in kept.changes}


def places(changes: tuple[Change, ...], *, deleting: bool = False) -> dict[str, int]:
    steps = schedule(changes)
    levels = steps.deleting if deleting else steps.building
    return {step.change.address: number for number, level in enumerate(levels) for step in level}


def test_they_are_made_after_their_home_and_before_the_namespaces_that_use_them() -> None:
    platform = PLATFORM.replace("clusters: [standalone]", "clusters: [standalone, east]")
    other = (
        "version: 1\nname: shop\ntenant: shop\nnamespace: x\nnamespace_policies: {resource_group: batch}\ntopics: {}\n"
    )
    made = places(planned(declared(platform, other), empty()).changes)
    home, user = made["namespace.acme/ns"], made["namespace.shop/x"]
    assert home < made[EAST.address] < made[SHOP.address] < user
    assert home < made[BATCH.address] < user


def test_the_tenant_of_the_home_comes_first() -> None:
    platform = PLATFORM.replace("shop: {", "acme: {")
    made = places(planned(declared(platform), empty()).changes)
    assert made["tenant.acme"] < made["namespace.acme/ns"] < made[EAST.address]


def test_a_home_that_is_there_changes_after_them() -> None:
    head = "namespace_policies: {resource_group: batch}\n"
    side = wanted(topology("{}", head + PLATFORM))
    live = changed(applied(wanted(topology("{}", "namespace_policies: {}\n"))))
    made = places(planned(side, live).changes)
    assert made[BATCH.address] < made["namespace.acme/ns"]


def test_they_are_deleted_after_their_users_and_before_their_home() -> None:
    home = NamespaceResource(HERE, {})
    user = NamespaceResource(NamespaceName("shop", "x"), {})
    own = TenantResource("acme", frozenset(), frozenset(), HERE)
    about = planned(wanted(PLAIN), there()).changes[0].about
    gone = places(tuple(Delete(one, about) for one in (*ALL, own, home, user)), deleting=True)
    assert gone[user.address] < gone[SHOP.address] < gone[EAST.address] < gone[home.address]
    assert gone[user.address] < gone[BATCH.address] < gone[home.address]


def _home(name: str, platform: str, more: str = "") -> str:
    """A file whose namespace has the name of the file and is the home of these objects."""
    return topology("{}", f"{more}platform: {{{platform}}}\n", name=name, namespace=name)


GROUPS = (_home("a", "resource_groups: {g1: {}}"), _home("b", "resource_groups: {g2: {}}"))
JOINED = _home("b", "resource_groups: {g2: {}}", "namespace_policies: {resource_group: g1}\n")
ADDRESSES = "{service_url: 'http://far:8080', broker_service_url: 'pulsar://far:6650'}"


def _gone(*files: str) -> tuple[Change, ...]:
    """Deletes of all that these files declare, in a destroy of all their topologies."""
    there, nothing = applied(wanted(*files)), Desired((), None, {}, destroyed=wanted(*files).names)
    return with_namespaces(difference(nothing, there), nothing.names, there).changes


def test_homes_that_are_made_or_go_together_wait_for_no_object_of_each_other() -> None:
    made, gone = places(planned(wanted(*GROUPS), empty()).changes), places(_gone(*GROUPS), deleting=True)
    for home, group in (("a", "g1"), ("b", "g2")):
        assert made[f"namespace.acme/{home}"] < made[f"resource_group.{group}"]
        assert gone[f"namespace.acme/{home}"] > gone[f"resource_group.{group}"]


def test_a_home_waits_for_its_resource_group_of_another_home() -> None:
    made = places(planned(wanted(GROUPS[0], JOINED), empty()).changes)
    order = ("namespace.acme/a", "resource_group.g1", "namespace.acme/b", "resource_group.g2")
    assert [made[one] for one in order] == [0, 1, 2, 3]
    gone = places(_gone(GROUPS[0], JOINED), deleting=True)
    assert [gone[one] for one in order] == [3, 2, 1, 0]


def test_homes_that_use_each_others_groups_have_an_order_all_the_same() -> None:
    files = (_home("a", "resource_groups: {g1: {}}", "namespace_policies: {resource_group: g2}\n"), JOINED)
    assert len(places(planned(wanted(*files), empty()).changes)) == 4
    assert len(places(_gone(*files), deleting=True)) == 4


def test_a_tenant_comes_after_a_new_cluster_and_before_its_own_namespaces_only() -> None:
    estate = f"version: 1\nname: x\ntenant: x\nnamespace: b\ncreate_tenant: {{clusters: [c]}}\ntopics: {{}}\nplatform: {{clusters: {{far: {ADDRESSES}}}}}\n"
    other = "version: 1\nname: t\ntenant: t\nnamespace: n\ncreate_tenant: {clusters: [c]}\ntopics: {}\n"
    made = places(planned(wanted(estate, other), empty()).changes)
    order = ("tenant.x", "namespace.x/b", "cluster.far", "tenant.t", "namespace.t/n")
    assert [made[one] for one in order] == [0, 1, 2, 3, 4]
    both = f"{other}platform: {{clusters: {{near: {ADDRESSES}}}}}\n"
    made = places(planned(wanted(estate, both), empty()).changes)
    assert made["tenant.t"] < made["namespace.t/n"] < made["cluster.near"]


def test_an_adopted_object_is_updated_after_its_adoption() -> None:
    side = changed(applied(wanted(PLAIN)), LiveObject(replace(BATCH, publish_rate={})))
    changes = tuple(
        one for one in planned(declared(), side, adopt=[BATCH.address]).changes if one.address == BATCH.address
    )
    levels = [[type(step.change) for step in level] for level in schedule(changes).building]
    assert levels == [[Adopt], [Update]]


def test_a_part_of_a_plan_takes_along_what_it_needs() -> None:
    platform = PLATFORM.replace("clusters: [standalone]", "clusters: [standalone, east]")
    plan = planned_part(declared(platform), empty(), SHOP.address)
    assert said(plan.changes) == {
        ("create", SHOP.address),
        ("create", EAST.address),
        ("create", "namespace.acme/ns"),
    }
    head = "namespace_policies: {resource_group: batch}\n"
    plan = planned_part(wanted(topology("{}", head + PLATFORM)), empty(), "namespace.acme/ns")
    assert ("create", BATCH.address) in said(plan.changes)


def test_a_plan_is_carried_out_only_where_nothing_changed() -> None:
    side = there(replace(SHOP, admin_roles=frozenset({"x"})))
    plan = planned(declared(), side)
    assert not staleness(plan, side)
    assert not list(of_others(plan, side))
    (stale,) = staleness(plan, there(replace(SHOP, admin_roles=frozenset({"y"}))))
    assert "admin_roles y" in stale.detail
    entry = replace(side.ledgers[HERE]["trade"], owned={})
    (others,) = of_others(plan, with_ledger(side, HERE, entry))
    assert "tenant.shop belongs to nobody" in others.detail
    creating = planned(declared(), empty())
    appeared = changed(empty(), LiveObject(SHOP))
    assert "tenant.shop" in staleness(creating, appeared)[0].detail


def test_a_tenant_that_a_plan_only_creates_is_nobodys_and_not_compared() -> None:
    side = wanted(topology("{}", "create_tenant: {clusters: [standalone]}\n"))
    plan = planned(side, empty())
    there_now = changed(empty(), LiveObject(TenantResource("acme", frozenset({"other"}), frozenset())))
    assert not staleness(plan, there_now)
    assert not list(of_others(plan, there_now))


def _undone(changes: tuple[Change, ...], side: Live) -> tuple[set[tuple[str, str]], list[str]]:
    one = Applied("aa11", "apply", "anna", 1, None, "d", {}, ended=2, complete=True, total=9, done=changes)
    found, findings = backwards(one, side)
    return said(found), [finding.detail for finding in findings]


def test_an_undo_takes_each_kind_back() -> None:
    made = tuple(
        one
        for one in planned(declared(), empty()).changes
        if isinstance(one, Create) and one.address != f"namespace.{HERE}"
    )
    assert _undone(made, there()) == ({("delete", one.address) for one in ALL}, [])
    changes, findings = _undone(made, there(replace(SHOP, admin_roles=frozenset())))
    assert ("delete", SHOP.address) not in changes
    assert findings == [
        "tenant.shop: somebody changed it after it was made: admin_roles; change it by hand, or in the file"
    ]
    deleted = tuple(planned(wanted(PLAIN), there()).changes)
    gone = changed(there(), without=[one.address for one in ALL])
    changes, findings = _undone(deleted, gone)
    assert changes == {("create", one.address) for one in ALL}
    assert findings == ["cluster.east: it is made again; secrets of its authentication are to be set by hand"]
    updated = planned(declared(), there(replace(GOLD, usage_threshold=90))).changes
    found, _ = backwards(
        Applied("aa11", "apply", "anna", 1, None, "d", {}, ended=2, complete=True, total=9, done=tuple(updated)),
        there(),
    )
    (back,) = found
    assert isinstance(back, Update)
    assert platform_fields(GOLD, back.after)[0].before == 90
    assert "usage_threshold changed again" in _undone(tuple(updated), there(replace(GOLD, usage_threshold=70)))[1][0]


def test_an_undo_restores_no_address_whose_password_was_not_read() -> None:
    hidden = replace(EAST, service_url="http://***@east:8080")
    updated = planned(declared(), there(hidden)).changes
    assert _undone(updated, there()) == (set(), ["cluster.east: service url stays as it became"])
    deleted = (Delete(hidden, updated[0].about),)
    changes, findings = _undone(deleted, changed(there(), without=[EAST.address]))
    assert (changes, findings) == (
        set(),
        ["cluster.east: kodoctl did not read the password in its address: make it by hand"],
    )


def test_a_resumed_apply_goes_on_with_what_is_left() -> None:
    plan = planned(declared(), empty())
    made = changed(empty(), LiveObject(NamespaceResource(HERE, {})), LiveObject(SHOP))
    left = rest_of(plan, made)
    assert ("adopt", SHOP.address) in said(left.changes)
    odd = changed(made, LiveObject(replace(SHOP, admin_roles=frozenset())))
    assert "admin_roles: not as planned" in " ".join(one.detail for one in rest_of(plan, odd).findings)
    updating = planned(declared(), there(replace(RACK, brokers=frozenset()), replace(SHOP, admin_roles=frozenset())))
    half = there(replace(RACK, brokers=frozenset()))
    assert said(rest_of(updating, half).changes) == {("update", RACK.address)}


def test_edits_and_drift_are_told_apart() -> None:
    before, now = declared(), declared(PLATFORM.replace("[sre]", "[sre, boss]"))
    side = there(replace(SHOP, clusters=frozenset({"standalone", "x"})))
    against = Baseline("origin/main", "f" * 40, before)
    plan = make_plan(now, side, diff(now, side), evidence={}, allowances=Allowances(), now=NOW, against=against)
    (change,) = plan.changes
    assert change.about.origin is Origin.BOTH
    assert change.about.drifted == ("clusters",)


def test_what_a_role_may_not_read_is_left_alone() -> None:
    side = replace(applied(wanted(PLAIN)), unread_platform={SHOP.address: "it may not"})
    plan = planned(declared(), side)
    assert SHOP.address not in {one.address for one in plan.changes}
    (finding,) = (one for one in plan.findings if one.code == "K456")
    assert (finding.severity, finding.where) == (Severity.WARNING, declared().objects[SHOP.address].where)
    assert split(plan, side, count_unmanaged=False).refused, "nobody knows whether it drifted"
    unseen = replace(applied(wanted(PLAIN)), unseen=frozenset({HERE}))
    hidden, _ = drop_unseen(declared(), unseen)
    assert not {one.address for one in ALL} & hidden.objects.keys()


def test_one_is_given_up_by_its_address() -> None:
    plan = forget_plan(there(), [SHOP.address], frozenset())
    assert said(plan.changes) == {("forget", SHOP.address)}
    (owner,) = plan.owners
    assert owner.namespace == HERE


def test_addresses_of_a_resource_name_its_kind() -> None:
    names: list[Resource] = list(ALL)
    assert [one.address for one in names] == [
        "tenant.shop",
        "cluster.east",
        "resource_group.batch",
        "failure_domain.rack",
        "isolation_policy.gold",
    ]
