"""K433: legal policies that stop clients which are connected now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Severity
from kodoctl.pulsar.values.live_objects import TopicFacts
from kodoctl.topology.names import TopicName
from tests.samples.inventories import HERE, applied, changed, planned, topology, wanted

SUB = "subscriptions: {s: {states: [], dead_letter: false}}"
BUSY = TopicFacts(producers=3, consumers=2, backlog_bytes=20_000, storage_bytes=20_000)
FREE = TopicFacts(producers=1, consumers=1)


def _told(policies: str, facts: TopicFacts, head: str = "") -> list[str]:
    before = applied(wanted(topology(f"{{J: {{{SUB}}}}}", "namespace_policies: {ttl: 1d}\n")))
    found = before.objects["topic.persistent://acme/ns/J"]
    there = changed(before, replace(found, facts=facts))
    plan = planned(wanted(topology(f"{{J: {{policies: {policies}, {SUB}}}}}", head)), there)
    findings = [finding for finding in plan.findings if finding.code == "K433"]
    assert all(finding.severity is Severity.WARNING for finding in findings)
    return [finding.detail for finding in findings]


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ("{schema_validation: true}", "those of its 3 producers that have no schema cannot connect again"),
        ("{max_producers: 2}", "3 producers are connected, of which 2 could connect again"),
        ("{max_consumers: 1}", "2 consumers are connected, of which 1 could connect again"),
        ("{backlog_quota: {size: 10KiB, when_full: fail_producers}}", "producers stop at once"),
        ("{backlog_quota: {size: 10KiB, when_full: hold_producers}}", "producers stop at once"),
    ],
)
def test_a_policy_that_stops_clients_of_a_live_topic_is_told(policies: str, said: str) -> None:
    [told] = _told(policies, BUSY, "namespace_policies: {ttl: 1d}\n")
    assert "topic.persistent://acme/ns/J: " in told
    assert said in told
    quiet = replace(FREE, producers=0) if "schema" in policies else FREE
    assert _told(policies, quiet, "namespace_policies: {ttl: 1d}\n") == []


def test_a_policy_of_the_namespace_is_told_by_its_topics() -> None:
    [told] = _told("{ttl: 2d}", BUSY, "namespace_policies: {ttl: 1d, encryption_required: true}\n")
    assert told == (
        "encryption_required of topic.persistent://acme/ns/J: its 3 producers cannot connect again without keys; workers"
        " have none"
    )
    head = "namespace_policies: {ttl: 1d, encryption_required: true}\n"
    assert _told("{ttl: 2d}", replace(FREE, producers=0), head) == []


def test_further_topics_of_a_policy_are_counted() -> None:
    topics = f"{{J: {{{SUB}}}, K: {{{SUB}}}, L: {{{SUB}}}}}"
    there = applied(wanted(topology(topics, "namespace_policies: {ttl: 1d}\n")))
    for name in ("J", "K", "L"):
        there = changed(there, replace(there.objects[f"topic.persistent://acme/ns/{name}"], facts=BUSY))
    plan = planned(wanted(topology(topics, "namespace_policies: {ttl: 1d, max_producers: 2}\n")), there)
    [told] = [finding.detail for finding in plan.findings if finding.code == "K433"]
    assert told.startswith("max_producers of topic.persistent://acme/ns/J: 3 producers are connected")
    assert told.endswith("; so 2 more topics")


def test_a_policy_that_becomes_unset_may_stop_clients_by_the_one_of_the_namespace() -> None:
    head = "namespace_policies: {max_producers: 1}\n"
    before = applied(wanted(topology(f"{{J: {{policies: {{max_producers: 9}}, {SUB}}}}}", head)))
    there = changed(before, replace(before.objects["topic.persistent://acme/ns/J"], facts=BUSY))
    plan = planned(wanted(topology(f"{{J: {{{SUB}}}}}", head)), there)
    [told] = [finding.detail for finding in plan.findings if finding.code == "K433"]
    assert "3 producers are connected, of which 1 could connect again" in told


def test_clients_of_topics_that_were_not_read_are_not_known() -> None:
    before = applied(wanted(topology("{J: {}}", "namespace_policies: {ttl: 1d}\n")))
    there = replace(before, others={TopicName(HERE, "K"): "shop"})
    plan = planned(wanted(topology("{J: {}}", "namespace_policies: {ttl: 1d, max_producers: 5}\n")), there)
    [told] = [finding.detail for finding in plan.findings if finding.code == "K433"]
    assert told == (
        "max_producers may stop clients of topic.persistent://acme/ns/K: a topic of the topology shop, which a plan of other"
        " files does not read"
    )
