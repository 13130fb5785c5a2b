"""Objects of the whole cluster on a real broker: created, changed, changed by hand, adopted, taken back, and deleted only if
nothing uses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.plan import plan_file
from kodoctl.plan.changes import Update
from kodoctl.plan.history import pack
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.control.control_namespace import lease_topic
from kodoctl.pulsar.values.ledger import OwnershipKind, decode, encode
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import ResourceGroupResource
from tests.brokers.workspace import Workspace

ALL = """\
tenants:
  $tenant-shop: {clusters: [standalone], admin_roles: [shop-admins, sre]}
clusters:
  $tenant-east: {service_url: 'http://east:8080', broker_service_url: 'pulsar://east:6650'}
resource_groups:
  $tenant-batch: {publish_rate: {messages: 1000/s, size: 10MiB/s}}
failure_domains:
  $tenant-rack: {brokers: ['$tenant.example.org:8080']}
isolation_policies:
  $tenant-gold: {namespaces: ['$tenant-shop/.*'], primary: ['.*'], usage_threshold: 80}
"""


def declare(space: Workspace, platform: str = ALL, more: str = "") -> None:
    """Writes the file with these objects; `more`: keys at the top of the file."""
    head = f"version: 1\nname: platform\ntenant: $tenant\nnamespace: estate\n{more}"
    body = "".join(f"  {line}\n" for line in platform.splitlines())
    space.write(f"{head}platform:\n{body}topics: {{}}\n" if platform else f"{head}topics: {{}}\n", "platform.yaml")


def addresses(space: Workspace, code: int = 0, *flags: str) -> dict[str, str]:
    """Address of each change of the plan, without the tenant's name -> its verb."""
    changes = space.plan_json(*flags, code=code)["changes"]
    return {one["address"].replace(space.tenant, "T"): one["action"] for one in changes}


@pytest.fixture
def estate(workspace: Workspace) -> Iterator[Workspace]:
    """A workspace whose objects of the whole cluster are gone after the test: other tests share the broker."""
    yield workspace
    name, admin = workspace.tenant, workspace.broker.admin
    for namespace in (f"{name}-shop/trade", f"{name}-shop/kodoctl"):
        admin("DELETE", f"namespaces/{namespace}", force="true")
    for path in (
        f"tenants/{name}-shop",
        f"clusters/{name}-east",
        f"resourcegroups/{name}-batch",
        f"clusters/standalone/failureDomains/{name}-rack",
        f"clusters/standalone/namespaceIsolationPolicies/{name}-gold",
    ):
        admin("DELETE", path)


def shop(space: Workspace) -> dict[str, list[str]]:
    """The tenant `shop` as Pulsar has it, with its lists sorted."""
    found: dict[str, Any] = space.admin("GET", f"tenants/{space.tenant}-shop")
    return {key: sorted(value) for key, value in found.items()}


def test_all_kinds_are_created_and_the_second_plan_is_empty(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    estate.assert_settled()
    assert shop(estate) == {"adminRoles": ["shop-admins", "sre"], "allowedClusters": ["standalone"]}
    group = estate.admin("GET", f"resourcegroups/{estate.tenant}-batch")
    assert (group["publishRateInMsgs"], group["publishRateInBytes"], group["dispatchRateInMsgs"]) == (
        1000,
        10 << 20,
        -1,
    )
    assert estate.admin("GET", f"clusters/{estate.tenant}-east")["serviceUrl"] == "http://east:8080"
    policies = estate.admin("GET", "clusters/standalone/namespaceIsolationPolicies")
    failover = policies[f"{estate.tenant}-gold"]["auto_failover_policy"]
    assert failover["parameters"] == {"min_limit": "1", "usage_threshold": "80"}


def test_a_plan_shows_changed_fields_and_an_undo_restores_them(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    changed = ALL.replace("shop-admins, sre", "shop-admins").replace("1000/s, size: 10MiB/s", "2000/s")
    declare(estate, changed.replace("usage_threshold: 80", "min_available: 2").replace("http://east", "http://far"))
    fields = {
        (one["address"].replace(estate.tenant, "T"), field["name"]): (field["before"], field["after"])
        for one in estate.plan_json()["changes"]
        for field in one["fields"]
    }
    assert fields == {
        ("tenant.T-shop", "admin_roles"): (["shop-admins", "sre"], ["shop-admins"]),
        ("resource_group.T-batch", "publish_rate"): (
            {"messages": "1000/s", "size": "10MiB/s"},
            {"messages": "2000/s"},
        ),
        ("isolation_policy.T-gold", "min_available"): (1, 2),
        ("isolation_policy.T-gold", "usage_threshold"): (80, 100),
        ("cluster.T-east", "service_url"): ("http://east:8080", "http://far:8080"),
    }
    estate.apply()
    estate.assert_settled()
    estate.run("undo", "last", f"{estate.tenant}/estate", "--auto-approve")
    assert shop(estate)["adminRoles"] == ["shop-admins", "sre"]
    declare(estate)
    estate.assert_settled()


def test_settings_that_no_file_declares_stay(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    path = f"clusters/{estate.tenant}-east"
    estate.admin("POST", path, {**estate.admin("GET", path), "proxyServiceUrl": "pulsar://proxy:6650"})
    declare(estate, ALL.replace("http://east", "http://far"))
    estate.apply()
    found = estate.admin("GET", path)
    assert (found["serviceUrl"], found["proxyServiceUrl"]) == ("http://far:8080", "pulsar://proxy:6650")


def test_the_password_in_an_address_by_hand_is_shown_nowhere(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    path = f"clusters/{estate.tenant}-east"
    secret = "http://anna:s3cret@east:8080"
    estate.admin("POST", path, {**estate.admin("GET", path), "serviceUrl": secret})
    drift = estate.run("drift", code=3).text
    assert "http://***@east:8080 → http://east:8080" in drift
    assert "s3cret" not in drift
    estate.plan("--out", "plan.json")
    assert "s3cret" not in (estate.folder / "plan.json").read_text()
    declare(estate, ALL.replace("http://east", "http://far"))
    estate.apply()
    assert estate.admin("GET", path)["serviceUrl"] == "http://far:8080"
    undone = estate.run("undo", "last", f"{estate.tenant}/estate", "--auto-approve", code=0).text
    assert "service url stays as it became" in undone


def test_changes_by_hand_are_drift(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    estate.admin("POST", f"tenants/{estate.tenant}-shop", {"adminRoles": ["x"], "allowedClusters": ["standalone"]})
    drift = estate.run("drift", code=3).out
    assert "admin_roles  x → shop-admins, sre" in drift
    estate.apply()
    assert shop(estate)["adminRoles"] == ["shop-admins", "sre"]


def test_an_object_in_use_is_not_deleted(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    tenant, group = f"{estate.tenant}-shop", f"{estate.tenant}-batch"
    estate.admin("PUT", f"namespaces/{tenant}/trade")
    estate.admin("POST", f"namespaces/{tenant}/trade/resourcegroup/{group}")
    estate.admin("POST", f"tenants/{estate.tenant}", {"allowedClusters": ["standalone", f"{estate.tenant}-east"]})
    declare(estate, "")
    refused = " ".join(estate.plan(code=4).out.split())
    assert f"it has namespace {tenant}/trade: delete them first" in refused
    assert f"it is used by namespace {tenant}/trade: take it out of their `resource_group` first" in refused
    assert f"it is used by tenant.{estate.tenant}, and Pulsar would delete it all the same" in refused
    assert f"--allow-destroy isolation_policy.{estate.tenant}-gold" in refused
    assert refused.count("K454 error") == 4, refused


def test_what_nothing_uses_is_deleted_and_an_undo_makes_it_again(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    declare(estate, "")
    assert addresses(estate) == {
        "tenant.T-shop": "delete",
        "cluster.T-east": "delete",
        "resource_group.T-batch": "delete",
        "failure_domain.T-rack": "delete",
        "isolation_policy.T-gold": "delete",
    }
    estate.apply()
    estate.assert_settled()
    assert f"{estate.tenant}-shop" not in estate.admin("GET", "tenants")
    assert f"{estate.tenant}-east" not in estate.admin("GET", "clusters")
    estate.run("undo", "last", f"{estate.tenant}/estate", "--auto-approve")
    assert shop(estate)["adminRoles"] == ["shop-admins", "sre"]
    declare(estate)
    estate.assert_settled()


def test_an_isolation_policy_without_a_broker_is_refused(estate: Workspace) -> None:
    declare(estate, "isolation_policies: {$tenant-gold: {namespaces: ['$tenant/.*'], primary: [nobody]}}")
    assert "K457 error" in estate.plan(code=4).out
    declare(estate, "isolation_policies: {$tenant-gold: {namespaces: ['$tenant-x/.*'], primary: [nobody]}}")
    estate.apply("--allow-destroy", f"isolation_policy.{estate.tenant}-gold")
    estate.assert_settled()


def test_a_tenant_keeps_a_cluster_that_its_namespaces_use(estate: Workspace) -> None:
    tenant, east = f"{estate.tenant}-shop", f"{estate.tenant}-east"
    declare(estate, ALL.replace("clusters: [standalone]", "clusters: [standalone, $tenant-east]"))
    estate.apply()
    estate.admin("PUT", f"namespaces/{tenant}/trade")
    estate.admin("POST", f"namespaces/{tenant}/trade/replication", ["standalone", east])
    declare(estate)
    refused = " ".join(estate.plan(code=4).out.split())
    assert f"cluster {east} is used by namespace {tenant}/trade" in refused
    estate.admin("POST", f"namespaces/{tenant}/trade/replication", ["standalone"])
    estate.apply()
    assert shop(estate)["allowedClusters"] == ["standalone"]


def test_an_object_of_others_is_adopted_by_name_and_stays(estate: Workspace) -> None:
    tenant = f"{estate.tenant}-shop"
    estate.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": ["theirs"]})
    declare(estate)
    assert "K417" in estate.plan(code=4).out
    estate.apply("--adopt", f"tenant.{tenant}")
    estate.assert_settled()
    declare(estate, ALL.replace(f"  {'$tenant'}-shop:", "  $tenant-other:"))
    assert addresses(estate)["tenant.T-shop"] == "forget"


def test_an_object_of_which_only_an_intent_is_known_is_adopted_and_stays(estate: Workspace) -> None:
    tenant, home = f"tenant.{estate.tenant}-shop", NamespaceName(estate.tenant, "estate")
    declare(estate)
    estate.apply()
    key = f"{LEDGER_PREFIX}platform"
    entry = decode("platform", home, estate.admin("GET", f"namespaces/{home}")["properties"][key])
    begun = replace(entry, owned={**entry.owned, tenant: OwnershipKind.INTENT})
    estate.admin("PUT", f"namespaces/{home}/properties", {key: encode(begun)})
    assert addresses(estate) == {"tenant.T-shop": "adopt"}
    estate.apply()
    estate.assert_settled()
    declare(estate, "".join(f"{line}\n" for line in ALL.splitlines()[2:]))
    assert addresses(estate) == {"tenant.T-shop": "forget"}


def test_a_new_tenant_and_a_topology_in_it_are_one_apply(estate: Workspace) -> None:
    declare(estate)
    estate.write(
        "version: 1\nname: trade\ntenant: $tenant-shop\nnamespace: trade\n"
        "namespace_policies: {resource_group: $tenant-batch}\n"
        "topics: {orders: {subscriptions: {s: {states: [], dead_letter: false}}}}\n"
    )
    estate.apply()
    estate.assert_settled()
    found = estate.admin("GET", f"namespaces/{estate.tenant}-shop/trade")
    assert found["resource_group_name"] == f"{estate.tenant}-batch"


def test_an_import_is_adopted_unchanged_and_one_home_owns_it(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    place = f"{estate.tenant}/estate"
    mine = estate.folder / "mine.yaml"
    mine.write_text("mine", encoding="utf-8")
    assert "K021" in estate.run("import", place, "--platform", "--out", str(mine), code=64).err
    assert mine.read_text(encoding="utf-8") == "mine"
    mine.unlink()
    text = estate.run("import", place, "--platform").out
    assert f"#   tenant.{estate.tenant}-shop: the topology platform in {place} owns it" in text
    other = ALL.replace("$tenant", estate.tenant).splitlines()[:2]
    body = "".join(f"  {line}\n" for line in other)
    second = estate.write(
        f"version: 1\nname: second\ntenant: $tenant\nnamespace: other\nplatform:\n{body}topics: {{}}\n", "second.yaml"
    )
    refused = " ".join(estate.plan(str(second), code=4).out.split())
    assert f"tenant.{estate.tenant}-shop belongs to platform in {place}" in refused
    estate.run("forget", f"tenant.{estate.tenant}-shop", "--namespace", place, "--auto-approve")
    changes = estate.plan_json(str(second))["changes"]
    assert {one["address"]: one["action"] for one in changes}[f"tenant.{estate.tenant}-shop"] == "adopt"
    refused = estate.run("forget", f"tenant.{estate.tenant}-shop", code=64).err
    assert "--namespace TENANT/NAMESPACE" in refused


def test_a_file_that_moves_to_another_namespace_gives_its_objects_up_first(estate: Workspace) -> None:
    declare(estate, "resource_groups: {$tenant-batch: {publish_rate: {messages: 5/s}}}")
    estate.apply()
    path = estate.folder / "topologies" / "platform.yaml"
    path.write_text(path.read_text().replace("namespace: estate", "namespace: other"))
    group = f"resource_group.{estate.tenant}-batch"
    refused = " ".join(estate.plan(code=4).out.split())
    assert f"{group} belongs to platform in {estate.tenant}/estate" in refused
    estate.run("forget", group, "--namespace", f"{estate.tenant}/estate", "--auto-approve")
    estate.apply()
    estate.assert_settled()


def test_a_deletion_by_a_record_that_administrators_may_write_needs_its_name(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    estate.admin("POST", f"tenants/{estate.tenant}", {"allowedClusters": ["standalone"], "adminRoles": ["anna"]})
    declare(estate, "".join(f"{line}\n" for line in ALL.splitlines()[2:]))
    assert "K455" in estate.plan(code=4).out
    estate.apply("--allow-destroy", f"tenant.{estate.tenant}-shop")
    assert f"{estate.tenant}-shop" not in estate.admin("GET", "tenants")


def test_a_journal_that_administrators_may_write_changes_nothing_by_itself(estate: Workspace) -> None:
    group, home = f"resource_group.{estate.tenant}-batch", f"{estate.tenant}/estate"
    declare(estate, "resource_groups: {$tenant-batch: {publish_rate: {messages: 5/s}}}")
    estate.apply()
    declare(estate, "resource_groups: {$tenant-batch: {publish_rate: {messages: 6/s}}}")
    estate.apply()
    estate.admin("POST", f"tenants/{estate.tenant}", {"allowedClusters": ["standalone"], "adminRoles": ["anna"]})
    assert "K455" in estate.run("undo", "last", home, "--auto-approve", code=4).text
    declare(estate, "resource_groups: {$tenant-batch: {publish_rate: {messages: 7/s}}}")
    estate.plan("--out", "plan.json")
    text = (estate.folder / "plan.json").read_text()
    head = {"kind": "begin", "v": 1, "at": 5, "verb": "apply", "who": "x", "commit": None, "plan": "d", "changes": 1}
    ledgers = {f"{home}/platform": None}
    write_into_journal(estate, home, {**head, "apply": "beef", "packed": pack(text), "ledgers": ledgers})
    assert "K455" in estate.run("apply", "--resume", home, "--auto-approve", code=4).text
    plan = plan_file.loads(text, "plan.json")
    (change,) = plan.changes
    assert isinstance(change, Update)
    assert isinstance(change.after, ResourceGroupResource)
    elsewhere = replace(change.after, home=NamespaceName("bank", "payments"))
    forged = plan_file.dumps(replace(plan, changes=(replace(change, after=elsewhere),)))
    write_into_journal(estate, home, {**head, "apply": "beef2", "packed": pack(forged), "ledgers": ledgers})
    assert "K431" in estate.run("apply", "--resume", home, "--auto-approve", "--allow-destroy", group, code=4).text
    assert estate.admin("GET", f"resourcegroups/{estate.tenant}-batch")["publishRateInMsgs"] == 6


def test_a_role_that_may_write_the_journal_makes_nothing_by_it(estate: Workspace) -> None:
    home, tenant = f"{estate.tenant}/estate", f"tenant.{estate.tenant}-shop"
    declare(estate, "resource_groups: {$tenant-batch: {publish_rate: {messages: 5/s}}}")
    estate.apply()
    estate.admin("POST", f"namespaces/{estate.tenant}/kodoctl/permissions/anna", ["produce"])
    refused = estate.run("undo", "last", home, "--auto-approve", code=4).text
    assert "K455" in refused
    assert "anna may write that record" in " ".join(refused.split())
    creating = "version: 1\nname: shop\ntenant: $tenant-shop\nnamespace: x\ncreate_tenant: {clusters: [standalone]}\ntopics: {}\n"
    file = estate.write(creating, "shop.yaml")
    estate.plan(str(file), "--out", "plan.json")
    plan = plan_file.loads((estate.folder / "plan.json").read_text(), "plan.json")
    only = tuple(change for change in plan.changes if change.address == tenant)
    assert only
    forged = plan_file.dumps(replace(plan, changes=only, owners=(), namespaces=()))
    head = {"kind": "begin", "v": 1, "at": 5, "verb": "apply", "who": "x", "commit": None, "plan": "d", "changes": 1}
    write_into_journal(estate, home, {**head, "apply": "beef", "packed": pack(forged), "ledgers": {}})
    assert "K455" in estate.run("apply", "--resume", home, "--auto-approve", code=4).text
    assert f"{estate.tenant}-shop" not in estate.admin("GET", "tenants")


def write_into_journal(space: Workspace, namespace: str, entry: dict[str, Any]) -> None:
    with space.client() as client:
        client.create_producer(lease_topic(NamespaceName.parse(namespace))).send(json.dumps(entry).encode())


def test_two_failure_domains_exchange_their_brokers(estate: Workspace) -> None:
    domains = "failure_domains: {$tenant-rack: {brokers: ['%s']}, $tenant-rack2: {brokers: ['%s']}}"
    declare(estate, domains % ("$tenant-a", "$tenant-b"))
    estate.apply()
    declare(estate, domains % ("$tenant-b", "$tenant-a"))
    estate.apply()
    estate.assert_settled()
    declare(estate, "")
    estate.apply()


def test_a_destroy_deletes_them(estate: Workspace) -> None:
    declare(estate)
    estate.apply()
    estate.run("destroy", "topologies", "--auto-approve", code=0)
    assert f"{estate.tenant}-shop" not in estate.admin("GET", "tenants")
    assert estate.broker.admin("GET", f"namespaces/{estate.tenant}/estate").status_code == 404
