"""Every policy of the admin API of the Pulsar under test is in our table, or in a list with the reason why it is not; so is
every setting of functions and connectors.

The API is read from the broker's own classes: no broker serves a description of it. A new release of Pulsar with a new
policy fails here by its name.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kodoctl.dev import jars, versions
from kodoctl.dev.progress import quiet
from kodoctl.pulsar.inventory.bulk_policies import rest_name
from kodoctl.pulsar.inventory.policy_requests import CODECS
from kodoctl.topology.function_settings import PULSAR_SETTINGS
from tests.brokers.broker import CACHE, PULSAR, VERSION

pytestmark = pytest.mark.broker

LEVELS: Final = {"PersistentTopics": "topic", "Namespaces": "namespace", "Tenants": "tenant"}
VALUES: Final = {
    "Policies": "namespace", "LocalPolicies": "namespace", "TopicPolicies": "topic", "TenantInfoImpl": "tenant",
}  # fmt: skip
ACTION: Final = "an action, no policy"
OBJECT: Final = "the object itself: created, updated, deleted"
OLD: Final = "written by old versions only"
APART: Final = "a policy with a request of its own"
OFFLOAD: Final = "a member of `offload`"
REQUESTS: Final = {
    "namespace": OBJECT,
    "namespace */clearBacklog": ACTION,
    "namespace */split": ACTION,
    "namespace */unload": ACTION,
    "namespace */unsubscribe": ACTION,
    "namespace clearBacklog": ACTION,
    "namespace grantPermissionsOnTopics": "grants are objects of their own",
    "namespace migration": "a super-user's switch while a cluster moves: a state, no policy",
    "namespace offloadDeletionLagMs": OFFLOAD,
    "namespace offloadThreshold": OFFLOAD,
    "namespace offloadThresholdInSeconds": OFFLOAD,
    "namespace permissions": "grants are objects of their own",
    "namespace property": "one of `properties`",
    "namespace removeOffloadPolicies": OFFLOAD,
    "namespace revokePermissionsOnTopics": "grants are objects of their own",
    "namespace schemaAutoUpdateCompatibilityStrategy": "deprecated: schemaCompatibilityStrategy has taken its place",
    "namespace unload": ACTION,
    "namespace unsubscribe": ACTION,
    "tenant": OBJECT,
    "topic": OBJECT,
    "topic all_subscription/expireMessages": ACTION,
    "topic backlogSize": "a question that is sent with PUT",
    "topic compaction": ACTION,
    "topic createMissedPartitions": ACTION,
    "topic delayedDelivery": "stalls delivery until the topic is unloaded: an apply removes it",
    "topic offload": ACTION,
    "topic partitions": OBJECT,
    "topic permissions": "grants are objects of their own",
    "topic policies": "removes all policies at once",
    "topic properties": "of applications, and the marker of the owner is one",
    "topic subscription": OBJECT,
    "topic subscription/*/analyzeBacklog": "a question that is sent with POST",
    "topic subscription/*/expireMessages": ACTION,
    "topic subscription/*/properties": "of applications, and the marker of the owner is one",
    "topic subscription/*/replicatedSubscriptionStatus": "a state of a subscription that clients ask for",
    "topic subscription/*/resetcursor": ACTION,
    "topic subscription/*/skip": ACTION,
    "topic subscription/*/skip_all": ACTION,
    "topic terminate": "ends a topic for good: a state, no policy",
    "topic terminate/partitions": "ends a topic for good: a state, no policy",
    "topic trim": ACTION,
    "topic truncate": ACTION,
    "topic unload": ACTION,
}
"""Requests that write, by level and path, and why none of them sets a policy of the table."""
MEMBERS: Final = {
    "namespace auth_policies": "grants are objects of their own, and `subscription_roles`",
    "namespace bookieAffinityGroup": APART,
    "namespace clusterDispatchRate": OLD,
    "namespace deleted": "a state while a namespace is deleted",
    "namespace latency_stats_sample_rate": OLD,
    "namespace migrated": "a super-user's switch while a cluster moves: a state, no policy",
    "namespace namespaceAntiAffinityGroup": APART,
    "namespace offload_deletion_lag_ms": OLD,
    "namespace offload_threshold": OLD,
    "namespace offload_threshold_in_seconds": OLD,
    "namespace schema_auto_update_compatibility_strategy": OLD,
    "tenant adminRoles": "of `create_tenant`",
    "tenant allowedClusters": "of `create_tenant`",
    "topic delayedDeliveryEnabled": "stalls delivery until the topic is unloaded: an apply removes it",
    "topic delayedDeliveryMaxDelayInMillis": "stalls delivery until the topic is unloaded: an apply removes it",
    "topic delayedDeliveryTickTimeMillis": "stalls delivery until the topic is unloaded: an apply removes it",
    "topic isGlobal": "marks values of all clusters, which no getter of one cluster answers",
}
"""Members of the values that the broker stores, by level and name, and why none of them is a policy of the table."""


CONFIGS: Final = {
    "org.apache.pulsar.common.functions.FunctionConfig": "function",
    "org.apache.pulsar.common.io.SinkConfig": "sink",
    "org.apache.pulsar.common.io.SourceConfig": "io_source",
}
OWN_KEYS: Final = {
    "tenant", "namespace", "name", "className", "inputs", "topicsPattern", "secrets", "parallelism",
    "processingGuarantees", "resources", "customRuntimeOptions",
}  # fmt: skip
"""Settings that keys of their own stand for, and the place of our marker."""
OF_KIND: Final = {
    "function": {"output", "userConfig", "runtime", "subName", "subscriptionPosition", "jar", "py", "go"},
    "sink": {
        "sourceSubscriptionName", "sourceSubscriptionPosition", "configs", "archive", "maxMessageRetries",
        "deadLetterTopic", "negativeAckRedeliveryDelayMs",
    },
    "io_source": {"topicName", "configs", "archive"},
}  # fmt: skip
OLDER: Final = "an older form of `inputSpecs`"
BY_WORKER: Final = "the worker reads it from the code"
NOT_DECLARED: Final = {
    "function autoAck": "deprecated: `guarantees: manual` has taken its place",
    "function batchBuilder": "a member of `producerConfig`",
    "function customSchemaInputs": OLDER,
    "function customSerdeInputs": OLDER,
    "function forwardSourceMessageProperty": "true again after every update, also one of something else",
    "function fqfn": "the name, namespace and tenant in one text",
    "function functionType": "the name of a builtin function, which `package` has",
    "function inputTypeClassName": BY_WORKER,
    "function outputTypeClassName": BY_WORKER,
    "io_source batchBuilder": "a member of `producerConfig`",
    "io_source sourceType": "the name of a builtin source, which `package` has",
    "sink autoAck": "deprecated: `guarantees: manual` has taken its place",
    "sink sinkType": "the name of a builtin sink, which `package` has",
    "sink topicToSchemaProperties": OLDER,
    "sink topicToSchemaType": OLDER,
    "sink topicToSerdeClassName": OLDER,
}
"""Settings of functions and connectors that no key takes, by kind and name, and why."""


@cache
def _lines() -> tuple[list[str], ...]:
    """The lines of AdminApi.java for the jars of the Pulsar under test."""
    found = jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)
    source = Path(__file__).parents[1] / "samples" / "AdminApi.java"
    names = [*LEVELS, *(f"={name}" for name in (*VALUES, *CONFIGS))]
    command = ["java", "-cp", ":".join(map(str, found)), str(source), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return tuple(line.split("\t") for line in done.stdout.splitlines())


def _written() -> set[str]:
    """Level and path of each request that writes, with `*` in the place of parameters within the path, and none at its end."""
    found = set()
    for kind, name, *words in _lines():
        if kind == "request" and words[0] != "GET":
            path = re.sub(r"^/?(\{tenant\})?(/\{namespace\})?(/\{topic\})?/?", "", words[1])
            path = re.sub(r"(^|/)(\*/?)+$", "", re.sub(r"\{[^}]*\}", "*", path))
            found.add(f"{LEVELS[name]} {path}".strip())
    return found


def _members() -> set[str]:
    """Level and name of each member of the stored values; those of topics by their names in the admin API."""
    rows = [(VALUES[name], words[0]) for kind, name, *words in _lines() if kind == "member" and name in VALUES]
    return {f"{level} {rest_name(member) if level == 'topic' else member}" for level, member in rows}


def test_every_request_that_writes_is_of_a_policy_of_the_table_or_has_its_reason() -> None:
    of_table = {f"topic {codec.topic}" for codec in CODECS} | {f"namespace {codec.namespace}" for codec in CODECS}
    assert _written() - of_table - REQUESTS.keys() == set(), "policies of Pulsar that our table does not have"
    assert of_table & REQUESTS.keys() == set(), "these are in the table: they need no reason"


def test_every_member_of_the_stored_values_is_a_policy_of_the_table_or_has_its_reason() -> None:
    of_table = {f"topic {codec.bulk_name}" for codec in CODECS} | {f"namespace {codec.key}" for codec in CODECS}
    assert _members() - of_table - MEMBERS.keys() == set(), "policies of Pulsar that our table does not have"
    assert of_table & MEMBERS.keys() == set(), "these are in the table: they need no reason"


def _settings() -> set[str]:
    """Kind and name of each setting of functions and connectors."""
    kinds = {full.rpartition(".")[2]: kind for full, kind in CONFIGS.items()}
    return {f"{kinds[name]} {words[0]}" for kind, name, *words in _lines() if kind == "member" and name in kinds}


def test_every_setting_of_functions_and_connectors_has_a_key_or_its_reason() -> None:
    keys = {f"{kind} {name}" for kind, own in OF_KIND.items() for name in {*own, *OWN_KEYS, *PULSAR_SETTINGS[kind]}}
    assert _settings() - keys - NOT_DECLARED.keys() == set(), "settings of Pulsar that no key of the file takes"
    assert keys & NOT_DECLARED.keys() == set(), "these have a key: they need no reason"


@pytest.mark.skipif(PULSAR < (4, 2), reason="an older Pulsar lacks some")
def test_no_reason_outlives_what_it_is_about() -> None:
    assert REQUESTS.keys() - _written() == set()
    assert MEMBERS.keys() - _members() == set()
    assert NOT_DECLARED.keys() - _settings() == set()
    taken = {f"{kind} {name}" for kind, known in PULSAR_SETTINGS.items() for name in known}
    assert taken - _settings() == set(), "no setting of Pulsar: the worker would refuse or drop it"
