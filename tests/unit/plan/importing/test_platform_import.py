"""Import of objects of the whole cluster: the file plans to Adopt only, and says what it leaves out."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.plan.changes import Adopt, Create
from kodoctl.plan.diff import diff
from kodoctl.plan.importing.platform_import import import_platform
from kodoctl.plan.inventory import desired_inventory
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.function_settings import HIDDEN
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.resources import ClusterResource, PlatformResource, TenantResource
from tests.samples.inventories import HERE, changed, empty
from tests.unit.plan.test_platform_plans import ALL, BATCH, EAST, GOLD, RACK, SHOP


def test_what_it_writes_is_adopted_unchanged() -> None:
    found = import_platform(ALL, {}, "standalone", HERE, "estate")
    expansions, findings = check_set([source_of(found.text.encode(), "f.yaml")], None)
    assert not findings
    live = changed(empty(), *(LiveObject(one) for one in ALL))
    changes = diff(desired_inventory(expansions, None), live).changes
    assert {one.address for one in changes if isinstance(one, Adopt)} == {one.address for one in ALL}
    assert [one.address for one in changes if isinstance(one, Create)] == [f"namespace.{HERE}"]
    assert (found.adopted, found.left_out) == (5, ())


def test_what_no_file_declares_is_listed_with_the_reason() -> None:
    odd: list[PlatformResource] = [
        replace(BATCH, publish_rate={"messages": "0/s"}),
        replace(GOLD, primary=frozenset({"("})),
        replace(EAST, broker_service_url=""),
        replace(EAST, name="far", service_url="http://***@far:8080"),
        TenantResource("a b", frozenset({"standalone"}), frozenset()),
        TenantResource("pulsar", frozenset({"standalone"}), frozenset()),
        ClusterResource("standalone", "http://a", "", "pulsar://a"),
        RACK,
        SHOP,
    ]
    found = import_platform(odd, {RACK.address: "estate in acme/other"}, "standalone", HERE, "estate")
    reasons = dict(found.left_out)
    assert reasons.pop(RACK.address) == "the topology estate in acme/other owns it"
    assert reasons.pop("cluster.far").startswith("service_url: should be http://HOST:PORT")
    assert reasons.pop("tenant.pulsar") == "Pulsar's own"
    assert reasons.pop("cluster.standalone") == "this cluster, whose brokers write it"
    assert "it holds ' '" in reasons.pop("tenant.a b")
    assert reasons.pop(EAST.address).startswith("its settings: ")
    assert "0 means unlimited" in reasons.pop(BATCH.address)
    assert "primary" in reasons.pop(GOLD.address)
    assert not reasons
    assert found.adopted == 1
    assert "#   tenant.pulsar: Pulsar's own" in found.text


def test_a_cluster_without_objects_gives_a_file_without_them() -> None:
    found = import_platform([], {}, "standalone", HERE, "estate")
    assert "platform" not in found.text
    assert found.adopted == 0


def test_hidden_settings_of_a_cluster_stay_as_they_are() -> None:
    found = import_platform([replace(EAST, settings={"proxyServiceUrl": HIDDEN})], {}, "standalone", HERE, "estate")
    assert dict(found.left_out)[f"{EAST.address} proxyServiceUrl"] == "it may be a secret, and stays as it is"
