"""Note on active overrides of workers: an apply keeps them, and a reader of the plan should know of them."""

from __future__ import annotations

from collections.abc import Iterator

from kodoctl.errors import Diagnostic, note
from kodoctl.plan.inventory import Live, SubscriptionFacts
from kodoctl.protocol.overrides import steered_text
from kodoctl.topology.resources import SubscriptionResource


def steered(live: Live, now: int) -> Iterator[Diagnostic]:
    """A note for each subscription that is steered; `now` is ms since the epoch."""
    for _, found in sorted(live.objects.items()):
        facts, resource = found.facts, found.resource
        if not isinstance(facts, SubscriptionFacts) or not isinstance(resource, SubscriptionResource):
            continue
        if facts.steered is not None and (text := steered_text(facts.steered, now)) is not None:
            detail = f"{resource.name} on {resource.topic.local} is {text}; an apply keeps that"
            yield note("K784", "live orders to workers", detail)
