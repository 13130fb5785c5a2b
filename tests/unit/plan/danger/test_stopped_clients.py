"""K433: legal policies that stop clients which are connected now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Severity
from kodoctl.pulsar.values.live_objects import TopicFacts
from tests.samples.inventories import applied, changed, planned, topology, wanted

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
