"""A plan says where the broker does not keep messages as long as they are to wait (K211)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Severity
from kodoctl.plan.danger.delayed_delivery import delayed_delivery_findings
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.model.policies import DelayedDelivery, DelayedDeliveryPolicy
from kodoctl.topology.resources import NamespaceResource
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, changed, empty, planned, topology, wanted

DAY = 86_400_000
OFF = DelayedDelivery(on=False)


def said(ground: str, default: DelayedDelivery | None, own: DelayedDeliveryPolicy | None = None) -> list[str]:
    policies = {"delayed_delivery": own} if own else {}
    live = replace(changed(empty(), LiveObject(NamespaceResource(HERE, policies))), default_delays=default)
    return [finding.detail for finding in delayed_delivery_findings(wanted(topology(ground)), live, ())]


def subscription(text: str, ground: str = "") -> str:
    return f"{{J: {{{ground}subscriptions: {{s: {{{text}}}}}}}}}"


WAITS = subscription("states: [retrying], retrying: {delays: [1m, 1h], attempts: 3}")


def test_what_is_to_wait_needs_delayed_delivery() -> None:
    [detail] = said(WAITS, OFF)
    assert detail.startswith("delayed delivery is off (the broker's default, in acme/ns): what waits in J-s-RETRYING")
    [detail] = said(WAITS, DelayedDelivery(), own=DelayedDeliveryPolicy(enabled=False))
    assert detail.startswith("delayed delivery is off (acme/ns's own setting)")
    assert not said(WAITS, OFF, own=DelayedDeliveryPolicy()), "the namespace has the last word"


def test_a_maximum_has_room_for_the_longest_wait_and_what_is_added_at_random() -> None:
    [detail] = said(WAITS, DelayedDelivery(longest=3_600_000))
    assert detail == (
        "it keeps them 1h at most (the broker's default, in acme/ns), those of J-s-RETRYING wait up to 1h, and 3s"
        " more at random: workers cut longer waits"
    )
    assert not said(WAITS, DelayedDelivery(longest=3_603_000))
    assert not said(WAITS, DelayedDelivery(longest=0)), "0 is no maximum"
    [detail] = said(WAITS, None, own=DelayedDeliveryPolicy(max_delay=Duration(60_000)))
    assert detail.startswith("it keeps them 1m at most (acme/ns's own setting)")


def test_a_quota_waits_for_its_window() -> None:
    limits = "states: [blocking], limits: [{kind: quota, by: key, limit: 100/d}]"
    assert said(subscription(limits), DelayedDelivery(longest=DAY))
    assert not said(subscription(limits), DelayedDelivery(longest=DAY + 3_000))


@pytest.mark.parametrize(
    "ground",
    [
        subscription("states: []"),
        subscription("states: [], backup: {delays: [1s, 5s], attempts: 3}", "backup: true, "),
        subscription("type: failover, states: [], backup: {delays: [1s, 5s], attempts: 3}", "backup: true, "),
    ],
)
def test_nothing_is_said_where_no_wait_is_left_to_the_broker(ground: str) -> None:
    assert not said(ground, OFF)


def test_backup_levels_leave_their_long_waits_to_the_broker() -> None:
    ground = subscription("states: [], backup: {delays: [1s, 30s], attempts: 3}", "backup: true, ")
    assert "what waits in J-B1 " in said(ground, OFF)[0]
    assert "wait up to 30s" in said(ground, DelayedDelivery(longest=30_000))[0]


def test_nothing_is_said_of_a_broker_whose_configuration_is_unknown() -> None:
    assert not said(WAITS, None)


def test_it_is_a_warning_of_the_plan() -> None:
    plan = planned(wanted(topology(WAITS)), replace(empty(), default_delays=OFF))
    [finding] = [finding for finding in plan.findings if finding.code == "K211"]
    assert finding.severity is Severity.WARNING
    assert not plan.refused


def test_a_namespace_where_nothing_waits_hides_no_other() -> None:
    quiet = topology(subscription("states: []"))
    side = wanted(quiet, topology(WAITS, name="other", namespace="waits"))
    [finding] = delayed_delivery_findings(side, replace(empty(), default_delays=OFF), ())
    assert "in acme/waits" in finding.detail
