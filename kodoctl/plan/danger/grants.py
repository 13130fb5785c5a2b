"""Grant changes of a plan (K404): a role gains or loses rights while clients may be connected with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, warning
from kodoctl.pulsar.values.live_objects import Live, TopicFacts
from kodoctl.text.formatting import many
from kodoctl.topology.resources import GrantResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Delete, Update

K404 = "rights of a connected role may change"
_SHOWN = 3  # topics named, the rest is counted


def changed_grant(change: Delete | Update, live: Live) -> Iterator[Diagnostic]:
    """Yields one warning (K404) for a change of a grant: the actions that the role loses and gets, and its connected
    consumers on the topics of the grant that `live` has, or that they are not known if it has none of these topics.
    Brokers do not show the roles of producers.
    """
    before = change.before
    assert isinstance(before, GrantResource)
    after = change.granted_actions
    lost, won = before.actions - after, after - before.actions
    parts = [
        f"{before.role} {verb} {', '.join(sorted(actions))}"
        for verb, actions in (("loses", lost), ("gets", won))
        if actions
    ]
    detail = f"{change.address}: {'; '.join(parts)}; {_consumers_text(before, live)}"
    yield warning("K404", K404, detail)


def takes_away(change: Delete | Update) -> bool:
    """True if a change of a grant takes at least one action away from the role, even if it adds others."""
    assert isinstance(change.before, GrantResource)
    return bool(change.before.actions - change.granted_actions)


def _consumers_text(grant: GrantResource, live: Live) -> str:
    """The consumers that are connected with the role where the grant counts."""
    topics = [
        (found.resource.name.local, found.facts)
        for found in live.objects.values()
        if isinstance(found.resource, TopicResource)
        and isinstance(found.facts, TopicFacts)
        and grant.target in (found.resource.name, found.resource.name.namespace)
    ]
    found = [(local, count) for local, facts in topics for role, count in facts.roles if role == grant.role]
    known = "its producers, if any, are not known"
    if not topics:
        return "its clients, if any, are not known"
    if not found:
        return f"no consumer is connected with that role, {known}"
    shown = ", ".join(f"{many(count, 'consumer')} of {topic}" for topic, count in found[:_SHOWN])
    more = f" and of {many(len(found) - _SHOWN, 'more topic')}" if len(found) > _SHOWN else ""
    return f"connected with that role: {shown}{more}; {known}"
