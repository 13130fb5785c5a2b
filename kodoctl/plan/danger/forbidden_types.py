# pure: every branch is tested
"""Forbidden subscription types (K439): a topic or its namespace may forbid the type with which workers subscribe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.policy_levels import PolicyLevels, levels_of, namespace_changes
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.text.formatting import many
from kodoctl.topology.names import State
from kodoctl.topology.resources import TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.policies import Policies

_POLICY: Final = "subscription_types"


def forbidden_types(desired: Desired, live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields warnings (K439) about topics on which workers of these topologies could not subscribe after the plan,
    because the topic, or else its namespace, does not allow the type of their subscription. There is one for each
    topology, type and list of allowed types, apart for topics and for the namespace; it names the first topic, and the
    number of the others. A topic counts with the types that its file declares, and with its live ones if the file
    ignores `subscription_types` or the plan is of a part without the topic.
    """
    set_by_plan = namespace_changes(changes)
    for expansion in desired.expansions:
        levels = levels_of(expansion.namespace, live, set_by_plan)
        found: dict[str, list[FamilyTopic]] = {}
        for topic in expansion.topics:
            for text in _refusals(expansion, topic, levels, _own_policies(topic, desired, live)):
                found.setdefault(text, []).append(topic)
        for text, topics in found.items():
            more = f"; so {many(len(topics) - 1, 'more topic')}" if len(topics) > 1 else ""
            where = expansion.topology.where("topics", topics[0].ground)
            yield warning("K439", "a forbidden subscription type", f"{topics[0].name}: {text}{more}", where)


def _own_policies(topic: FamilyTopic, desired: Desired, live: Live) -> Policies:
    """The policies that the topic itself has after the plan, as far as the types go."""
    address = topic.resource.address
    match live.objects.get(address):
        case LiveObject(resource=TopicResource(policies=policies)) if (
            _POLICY in topic.ignore or address not in desired.objects
        ):
            return policies
        case _:
            return topic.resource.policies


def _refusals(expansion: Expansion, topic: FamilyTopic, levels: PolicyLevels, own: Policies) -> Iterator[str]:
    counts = levels.effective(_POLICY, own.get(_POLICY), after=True)
    if not isinstance(counts.value, tuple) or topic.state in (State.DEAD, None):
        return
    place = "the topic" if counts.source == "topic" else f"the namespace {topic.name.namespace}"
    for kind in dict.fromkeys(one.type if topic.state is State.READY else "shared" for one in expansion.readers(topic)):
        if kind not in counts.value:
            yield f"{place} allows {', '.join(sorted(counts.value))} only: no worker of type {kind} can subscribe"
