# pure: every branch is tested
"""Forbidden subscription types (K439): a topic or its namespace may forbid the type with which workers subscribe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.text.formatting import many
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion, FamilyTopic

_PULSAR: Final = {"shared": "Shared", "key_shared": "Key_Shared", "failover": "Failover", "exclusive": "Exclusive"}


def forbidden_types(desired: Desired, live: Live) -> Iterator[Diagnostic]:
    """Yields a warning (K439) for each topology and each setting because of which workers could not subscribe: it names
    the first topic, and the number of the others.
    """
    for expansion in desired.expansions:
        found: dict[str, list[FamilyTopic]] = {}
        for topic in expansion.topics:
            for text in _refusals(expansion, topic, live):
                found.setdefault(text, []).append(topic)
        for text, topics in found.items():
            more = f"; so {many(len(topics) - 1, 'more topic')}" if len(topics) > 1 else ""
            where = expansion.topology.where("topics", topics[0].ground)
            yield warning("K439", "a forbidden subscription type", f"{topics[0].name}: {text}{more}", where)


def _refusals(expansion: Expansion, topic: FamilyTopic, live: Live) -> Iterator[str]:
    own = live.subscription_types.get(topic.name)
    allowed = own or live.subscription_types.get(topic.name.namespace)
    if not allowed or topic.state in (State.DEAD, None):
        return
    place = "the topic" if own else f"the namespace {topic.name.namespace}"
    for kind in dict.fromkeys(one.type if topic.state is State.READY else "shared" for one in expansion.readers(topic)):
        if _PULSAR[kind] not in allowed:
            yield f"{place} allows {', '.join(sorted(allowed))} only: no worker of type {kind} can subscribe"
