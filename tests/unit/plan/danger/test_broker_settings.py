"""K210 and the live half of K207: what only a cluster can tell about a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.pulsar.values.live_objects import Live
from kodoctl.topology.model.policies import from_json
from tests.samples.inventories import applied, changed, empty, live, planned, topology, wanted

SUB = "{subscriptions: {s: {states: [], dead_letter: false}}}"
COPIES = "{policies: {persistence: {ensemble: 5, write_quorum: 2, ack_quorum: 2}}}"


def _told(topics: str, there: Live, head: str = "") -> dict[str, str]:
    plan = planned(wanted(topology(topics, head)), there)
    found = [finding for finding in plan.findings if finding.code in ("K207", "K210")]
    assert all(finding.severity is Severity.WARNING for finding in found)
    assert len({finding.code for finding in found}) == len(found)
    return {finding.code: finding.detail for finding in found}


def _broker(**defaults: Any) -> Live:
    """A cluster with these values where nobody says anything."""
    return live([], {}, {name: from_json(name, value) for name, value in defaults.items()})


def _deletes(mode: str, expiry: str = "unlimited") -> Live:
    return _broker(inactive_topic={"delete": mode, "after": "1m"}, subscription_expiry=expiry)


def test_automatic_creation_is_told_with_the_line_that_ends_it() -> None:
    told = _told(f"{{J: {SUB}}}", _broker(auto_topic_creation=True))["K210"]
    assert "acme/ns: topics are created automatically (broker)" in told
    assert "`namespace_policies: {auto_topic_creation: false}`" in told


@pytest.mark.parametrize(
    ("broker", "head", "told"),
    [
        (True, "namespace_policies: {auto_topic_creation: false}\n", False),
        (False, "", False),
        (False, "namespace_policies: {auto_topic_creation: {type: partitioned, partitions: 2}}\n", True),
    ],
)
def test_what_counts_once_the_plan_is_applied_decides(broker: bool, head: str, told: bool) -> None:
    assert bool(_told(f"{{J: {SUB}}}", _broker(auto_topic_creation=broker), head)) is told


def test_a_change_of_the_namespace_in_the_same_plan_counts() -> None:
    on, off = (f"namespace_policies: {{auto_topic_creation: {value}}}\n" for value in ("true", "false"))
    there = applied(wanted(topology(f"{{J: {SUB}}}", on)))
    assert not _told(f"{{J: {SUB}}}", there, off)
    assert _told(f"{{J: {SUB}}}", there, on)


@pytest.mark.parametrize(
    ("topics", "there", "said"),
    [
        ("{J: {}}", _deletes("no_subscriptions"), "the broker deletes J once inactive"),
        ("{J: {}, K: {}, L: {}}", _deletes("no_subscriptions"), "the broker deletes J and 2 more once inactive"),
        (f"{{J: {SUB}}}", _deletes("no_subscriptions", "2h"), "the broker deletes J once inactive"),
        (f"{{J: {SUB}}}", _deletes("caught_up"), "the broker deletes J once inactive"),
        (f"{{J: {SUB}}}", _deletes("no_subscriptions"), ""),
        ("{J: {policies: {inactive_topic: {delete: never}}}}", _deletes("no_subscriptions"), ""),
        ("{J: {}}", _broker(inactive_topic={"delete": "never"}), ""),
        ("{J: {}}", empty(), ""),
    ],
)
def test_a_topic_that_the_broker_would_delete_is_told_with_the_line_that_forbids_it(
    topics: str, there: Live, said: str
) -> None:
    told = _told(topics, there)
    assert set(told) == ({"K210"} if said else set())
    assert all(said in detail and "`inactive_topic: {delete: never}`" in detail for detail in told.values())


@pytest.mark.parametrize(
    ("bookies", "said"), [(3, "ensemble of 5, the cluster knows 3, stopped ones included"), (5, ""), (None, "")]
)
def test_an_ensemble_wider_than_the_cluster_is_told(bookies: int | None, said: str) -> None:
    told = _told(f"{{J: {COPIES}, K: {SUB}}}", replace(empty(), bookies=bookies))
    assert set(told) == ({"K207"} if said else set())
    assert said in told.get("K207", "")


def test_several_are_counted() -> None:
    assert "J and 1 more asks" in _told(f"{{J: {COPIES}, K: {COPIES}}}", replace(empty(), bookies=1))["K207"]


def test_a_delayed_delivery_value_on_a_topic_is_told_where_the_topic_is_declared() -> None:
    body = f"{{J: {SUB}, K: {SUB}}}"
    there = applied(wanted(topology(body)))
    for names, said in (("J", "J has a delayed"), ("JK", "J and 1 more has a delayed")):
        found = [replace(there.objects[f"topic.persistent://acme/ns/{name}"], stalls_delivery=True) for name in names]
        assert said in _told(body, changed(there, *found))["K207"]
    assert not _told(
        f"{{J: {SUB}}}", changed(there, replace(there.objects["topic.persistent://acme/ns/K"], stalls_delivery=True))
    )


def test_an_offload_driver_is_named_when_it_is_new_to_an_object() -> None:
    own, other = (f"policies: {{offload: {{driver: {name}, bucket: b}}}}" for name in ("aws-s3", "azureblob"))
    head, body = f"namespace_{own}\n", f"{{J: {{{own}}}}}"
    told = _told(body, empty(), head)["K207"]
    assert told.startswith("namespace.acme/ns and 1 more gets the offload driver aws-s3: ")
    there = applied(wanted(topology(body, head)))
    assert not _told(body, there, head)
    assert (
        "topic.persistent://acme/ns/J gets the offload driver azureblob"
        in _told(f"{{J: {{{other}}}}}", there, head)["K207"]
    )


@pytest.mark.parametrize(("delay", "told"), [(None, False), (1_000, False), (1_999, False), (2_000, True)])
@pytest.mark.parametrize("kind", ["failover", "key_shared"])
def test_brokers_that_hand_partitions_over_slowly_are_told_where_lanes_are_read_as_failover(
    kind: str, delay: int | None, *, told: bool
) -> None:
    sub = f"{{s: {{type: {kind}, states: [], dead_letter: false}}}}"
    there = replace(_broker(), failover_delay=delay)
    plan = planned(wanted(topology(f"{{J: {{subscriptions: {sub}}}, K: {{subscriptions: {sub}}}}}")), there)
    details = [finding.detail for finding in plan.findings if finding.code == "K445"]
    assert len(details) == (told and kind == "failover")
    assert all(one.startswith("trade/J/s and 1 more is read as failover, and brokers wait 2,000 ms") for one in details)
