"""Messages that a plan would leave behind or bring twice (K408): lanes dropped undrained, subscriptions replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.changes import Change, Create, Delete, with_context
from kodoctl.plan.danger.data_loss import refusal
from kodoctl.pulsar.values.live_objects import Live, SubscriptionFacts, TopicFacts
from kodoctl.text.formatting import many, size_text
from kodoctl.topology import defaults
from kodoctl.topology.names import WAITING_STATES, Level, TopicName, ready_name, state_name
from kodoctl.topology.resources import Address, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired

UNDRAINED = "a lane would go before it is drained"
REPLACED = "a subscription is replaced by another"


@dataclass(frozen=True, slots=True)
class _Lane:
    """Entry of a lane in the file: the word to write into `draining`, and the key that has the list."""

    word: str
    place: str


def with_lanes(
    changes: tuple[Change, ...], desired: Desired, live: Live, allowed: frozenset[Address]
) -> tuple[Change, ...]:
    """Returns the changes in their order, with further dangers (K408): a refusal for a lane that is deleted with unread
    messages in it, which is a warning if its address is in `allowed`; and a warning for each pair of a new subscription
    and one that is deleted from the same topic, if messages would be skipped or delivered again, or unread ones come to
    the new one. A lane here is a topic of a level of a ground topic that is still declared, or of a waiting state of a
    subscription of it that is still declared.
    """
    lanes = _lanes(desired) if any(_deletes_topic(change) for change in changes) else {}
    replaced = _replaced_subscriptions(changes)
    found = []
    for change in changes:
        dangers = (*_backlog_dangers(change, lanes, live, allowed), *_replacement_dangers(change, replaced, live))
        found.append(with_context(change, dangers=(*change.about.dangers, *dangers)))
    return tuple(found)


def _deletes_topic(change: Change) -> bool:
    return isinstance(change, Delete) and isinstance(change.before, TopicResource)


# --- lanes


def _lanes(desired: Desired) -> Mapping[TopicName, _Lane]:
    """Every topic that could be a lane of a declared topology, whether the topology uses that lane now or not."""
    found: dict[TopicName, _Lane] = {}
    for expansion in desired.expansions:
        for ground, spec in expansion.topology.spec.topics.items():
            read = defaults.read_levels(spec)
            for level in Level:
                whole = _Lane(level.value, f"topics.{ground}")
                found[TopicName(expansion.namespace, ready_name(ground, level))] = whole
                for sub, state in product(spec.subscriptions, WAITING_STATES):
                    one = _Lane(state.value, f"topics.{ground}.subscriptions.{sub}") if level in read else whole
                    found[TopicName(expansion.namespace, state_name(ground, level, sub, state))] = one
    return found


def _backlog_dangers(
    change: Change, lanes: Mapping[TopicName, _Lane], live: Live, allowed: frozenset[Address]
) -> Iterator[Diagnostic]:
    """Yields a refusal for the deletion of a lane with messages: workers on the new file would no longer read them."""
    if not isinstance(change, Delete) or not isinstance(change.before, TopicResource):
        return
    lane, facts = lanes.get(change.before.name), _topic_facts(change.before.name, live)
    if lane is None or not facts.backlog_bytes:
        return
    advice = (
        f"drain it first: write `draining: [{lane.word}]` under {lane.place}, apply, deploy consumers, and take it out"
        " once `kodoctl status` shows it empty"
    )
    stake = f"messages wait in it ({size_text(facts.backlog_bytes)}), and workers on the new file would not read them"
    yield refusal("K408", UNDRAINED, change.address, stake, allowed=change.address in allowed, advice=advice)


def _topic_facts(topic: TopicName, live: Live) -> TopicFacts:
    found = live.objects.get(f"topic.{topic}")
    return found.facts if found and isinstance(found.facts, TopicFacts) else TopicFacts()


# --- subscriptions


def _replaced_subscriptions(changes: tuple[Change, ...]) -> Mapping[TopicName, tuple[str, ...]]:
    """Topic -> the subscriptions that are deleted from it."""
    found: dict[TopicName, tuple[str, ...]] = {}
    for change in changes:
        if isinstance(change, Delete) and isinstance(change.before, SubscriptionResource):
            found[change.before.topic] = (*found.get(change.before.topic, ()), change.before.name)
    return found


def _replacement_dangers(
    change: Change, replaced: Mapping[TopicName, tuple[str, ...]], live: Live
) -> Iterator[Diagnostic]:
    """Yields a warning for a new subscription in the place of another, if messages would be skipped or come again."""
    if not isinstance(change, Create) or not isinstance(change.after, SubscriptionResource):
        return
    after = change.after
    for name in replaced.get(after.topic, ()):
        if stake := _stake(after, name, live):
            yield warning("K408", REPLACED, f"{change.address}: it takes the place of {name}: {stake}")


def _stake(after: SubscriptionResource, name: str, live: Live) -> str:
    found = live.objects.get(f"subscription.{after.topic}/{name}")
    facts = found.facts if found and isinstance(found.facts, SubscriptionFacts) else SubscriptionFacts()
    entries = many(facts.backlog_entries, "entry", "entries")
    unread = f"{entries} ({size_text(facts.backlog_bytes)}) that {name} has not read"
    if after.start == "latest":
        return f"{unread} would be skipped" if facts.backlog_entries else ""
    read = _topic_facts(after.topic, live).storage_bytes - facts.backlog_bytes
    again = f"up to {size_text(read)} that {name} has read would be delivered again" if read > 0 else ""
    return "; ".join(part for part in (again, f"{unread} come to it" if facts.backlog_entries else "") if part)
