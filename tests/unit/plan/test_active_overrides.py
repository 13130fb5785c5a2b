"""A plan tells of live orders, and of nothing else that stands on subscriptions."""

from __future__ import annotations

from kodoctl.errors import Severity
from kodoctl.plan.plan import active_override_notes
from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live, LiveObject, SubscriptionFacts, TopicFacts
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource

NOW = 1_800_000_000_000
ORDERS = TopicName.parse("kodo/trade/orders")


def live(steered_by: str | None) -> Live:
    names = {"billing": SubscriptionFacts(steered=steered_by), "plain": SubscriptionFacts(), "unread": None}
    objects = {
        (resource := SubscriptionResource(ORDERS, name)).address: LiveObject(resource, facts=facts)
        for name, facts in names.items()
    }
    other = SubscriptionResource(ORDERS, "odd")
    return Live(ClusterIdentity("standalone"), {**objects, other.address: LiveObject(other, facts=TopicFacts())})


def test_orders_in_force_are_a_note() -> None:
    pause = Override(OverrideKind.PAUSE, NOW, NOW + 3_600_000, "ann@desk", tenant="u1")
    [note] = active_override_notes(live(overrides_text([pause])), NOW)
    assert (note.code, note.severity) == ("K784", Severity.NOTE)
    assert note.detail == (
        "billing on orders is steered until 2027-01-15 09:00 UTC: tenant u1 paused; an apply keeps that"
    )
    assert list(active_override_notes(live(overrides_text([pause])), NOW + 3_600_000)) == []


def test_what_workers_cannot_read_is_told_too() -> None:
    [note] = active_override_notes(live("garbage"), NOW)
    assert "steered by something workers cannot read" in note.detail
    assert list(active_override_notes(live(None), NOW)) == []
