"""Objects of the whole cluster as Pulsar stores them, and back."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from kodoctl.plan.field_diff import platform_fields
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.inventory.platform_objects import (
    list_platform_objects,
    parse,
    platform_path,
    request_document,
    without_addresses,
)
from kodoctl.topology.model.platform import PulsarCluster
from kodoctl.topology.resources import ClusterResource, PlatformResource, ResourceGroupResource
from tests.samples.inventories import HERE
from tests.unit.plan.test_platform_plans import ALL, BATCH, EAST, GOLD, SHOP


@pytest.mark.parametrize("resource", ALL)
def test_what_is_sent_is_what_is_read(resource: PlatformResource) -> None:
    assert parse(resource.address, HERE, request_document(resource, {})) == resource


def test_members_that_no_file_declares_stay() -> None:
    stored = {"serviceUrl": "http://far", "authenticationPlugin": "p", "serviceUrlTls": "https://far"}
    sent = request_document(EAST, stored)
    assert sent["authenticationPlugin"] == "p"
    assert (sent["serviceUrl"], sent["serviceUrlTls"]) == ("http://east:8080", "https://far")
    assert "serviceUrlTls" not in without_addresses(sent, ["service_url_tls"])


def test_the_password_in_an_address_is_never_read_and_stays_unless_the_address_changes() -> None:
    stored = {"serviceUrl": "http://anna:pw@east:8080", "brokerServiceUrl": "pulsar://u:p@/w@a:1,x:y@b:2"}
    found = parse(EAST.address, HERE, stored)
    assert isinstance(found, ClusterResource)
    assert (found.service_url, found.broker_service_url) == ("http://***@east:8080", "pulsar://***@b:2")
    assert request_document(found, stored) == stored
    sent = request_document(replace(found, service_url="http://east:8080"), stored)
    assert sent == {**stored, "serviceUrl": "http://east:8080"}


def test_further_settings_of_a_cluster_stay_or_change_and_no_secret_is_read() -> None:
    stored = {
        "authenticationParameters": "token:hunter2",
        "peerClusterNames": ["b", "a"],
        "brokerClientTlsEnabled": False,
    }
    found = parse(EAST.address, HERE, stored)
    assert isinstance(found, ClusterResource)
    assert found.settings == {"authenticationParameters": "(not shown)", "peerClusterNames": ["a", "b"]}
    assert request_document(found, stored) == stored, "what is hidden stays"
    declared = replace(EAST, settings={"authenticationParameters": "file:///t", "peerClusterNames": []})
    sent = request_document(declared, stored)
    assert (sent["authenticationParameters"], sent["peerClusterNames"]) == ("file:///t", [])
    read = parse(EAST.address, HERE, sent)
    assert not platform_fields(declared, read)
    assert [(one.name, one.before) for one in platform_fields(declared, found)][-1] == (
        "settings", {"authenticationParameters": "(not shown)", "peerClusterNames": ["a", "b"]},
    )  # fmt: skip
    assert not platform_fields(replace(EAST, settings={"brokerClientTlsEnabled": False}), replace(EAST, settings={}))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"brokerClientTlsKeyStorePassword": "x"}, "is not one of"),
        ({"peerClusterNames": "a"}, "a list of clusters"),
        ({"listenerName": 5}, "a text, true or false"),
        ({"authenticationParameters": "token:hunter2"}, "name files on the brokers"),
        ({"authenticationParameters": True}, "name files on the brokers"),
    ],
)
def test_settings_of_a_cluster_that_no_file_can_have(settings: dict[str, Any], says: str) -> None:
    urls = {"service_url": "http://a:1", "broker_service_url": "pulsar://a:1"}
    with pytest.raises(ValidationError, match=says) as refusal:
        PulsarCluster.model_validate({**urls, "settings": settings})
    assert "hunter2" not in str(refusal.value.errors()[0]["msg"])
    good = {"peerClusterNames": ["a"], "authenticationParameters": "tlsCertFile:/c,tlsKeyFile:/k"}
    assert PulsarCluster.model_validate({**urls, "settings": good}).settings == good


@pytest.mark.parametrize(
    ("stored", "limits"),
    [
        ({"publishRateInMsgs": -1, "publishRateInBytes": -1}, {}),
        ({}, {}),
        ({"publishRateInMsgs": 5, "publishRateInBytes": 1 << 20}, {"messages": "5/s", "size": "1MiB/s"}),
        ({"publishRateInBytes": 1000}, {"size": "1000B/s"}),
    ],
)
def test_rates_of_a_group(stored: dict[str, Any], limits: dict[str, str]) -> None:
    found = parse(BATCH.address, HERE, stored)
    assert isinstance(found, ResourceGroupResource)
    assert found.publish_rate == limits


def test_a_policy_without_numbers_has_pulsars() -> None:
    found = parse(GOLD.address, HERE, {"namespaces": ["a"], "primary": ["b"]})
    assert (found.min_available, found.usage_threshold) == (1, 100)  # type: ignore[union-attr]


def test_a_number_that_is_none_is_read_all_the_same() -> None:
    stored = {"min_limit": "80.5", "usage_threshold": None}
    found = parse(GOLD.address, HERE, {"auto_failover_policy": {"parameters": stored}})
    assert (found.min_available, found.usage_threshold) == (-1, -1)  # type: ignore[union-attr]


def test_names_are_one_part_of_a_path() -> None:
    assert platform_path("tenant.a/b", "c") == "tenants/a%2Fb"
    assert platform_path(GOLD.address, "my cluster") == "clusters/my%20cluster/namespaceIsolationPolicies/gold"
    assert platform_path(SHOP.address, "c") == "tenants/shop"


def test_only_among_clusters_the_name_global_is_no_object() -> None:
    lists = {"tenants": ["shop", "global"], "clusters": ["global", "east"], "resourcegroups": ["global"]}

    def call(method: str, path: str) -> Reply:
        document = lists.get(path, [] if path.endswith(("Domains", "Policies")) else {})
        return Reply(method, path, 200, document)

    admin: Any = SimpleNamespace(call=call)
    assert [found.address for found in list_platform_objects(admin, "east", HERE)] == [
        "tenant.global", "tenant.shop", "cluster.east", "resource_group.global",
    ]  # fmt: skip
