"""K433: policies that are legal, and stop clients that are connected now, at once or when they connect again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.changes import Change, PolicyChange, Update
from kodoctl.pulsar.values.live_objects import TopicFacts
from kodoctl.text.formatting import many, size_text
from kodoctl.topology.model.policies import BacklogQuota
from kodoctl.topology.resources import NamespaceResource
from kodoctl.topology.units import UNLIMITED, as_limit

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.model.policies import PolicyValue
    from kodoctl.topology.resources import Address

K433: Final = "a change that stops clients"


def stopped_clients(live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields a warning (K433) for each changed policy that stops clients which are connected now: it names the policy,
    the first topic, the effect on its clients, and the number of further topics.
    """
    for change in changes:
        if not isinstance(change, Update):
            continue
        for field in change.policy_changes:
            found = [
                f"{address}: {text}"
                for address, facts in _affected_topics(live, change, field)
                if (text := _effect_on_clients(field.policy, field.after, facts))
            ]
            if found:
                more = f"; so {many(len(found) - 1, 'more topic')}" if len(found) > 1 else ""
                yield warning("K433", K433, f"{field.policy} of {found[0]}{more}", change.about.where)


def _affected_topics(live: Live, change: Update, field: PolicyChange) -> Iterator[tuple[Address, TopicFacts]]:
    """The topic, or the topics of a namespace that have no value of their own."""
    topics: Iterable[Address] = (change.address,)
    if isinstance(change.before, NamespaceResource):
        own = live.topics_in(change.before.name)
        topics = (address for address, topic in own if field.policy not in topic.policies)
    for address in topics:
        facts = live.objects[address].facts if address in live.objects else None
        if isinstance(facts, TopicFacts):
            yield address, facts


def _effect_on_clients(policy: str, after: PolicyValue | None, facts: TopicFacts) -> str:
    """The effect of a policy on the clients of a topic, as text; "" if there is none."""
    match policy, after:
        case "encryption_required", True if facts.producers:
            return f"its {many(facts.producers, 'producer')} cannot connect again without keys; workers have none"
        case "schema_validation", True if facts.producers:
            return f"those of its {many(facts.producers, 'producer')} that have no schema cannot connect again"
        case "max_producers", int() if after < facts.producers:
            return f"{facts.producers} producers are connected, of which {after} could connect again"
        case "max_consumers", int() if after < facts.consumers:
            return f"{facts.consumers} consumers are connected, of which {after} could connect again"
        case "backlog_quota", BacklogQuota(when_full="hold_producers" | "fail_producers") if (
            facts.backlog_bytes > as_limit(after.size or UNLIMITED)
        ):
            return f"{size_text(facts.backlog_bytes)} wait already, so that producers stop at once, workers that move messages too"
        case _:
            return ""
