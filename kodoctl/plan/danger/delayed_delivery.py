"""Delayed-delivery check (K211): the broker must keep messages as long as the files have them wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.policy_levels import levels_of, namespace_changes
from kodoctl.topology import defaults
from kodoctl.topology.model.policies import DelayedDelivery, DelayedDeliveryPolicy
from kodoctl.topology.names import WAITING_STATES, State
from kodoctl.topology.units import UNLIMITED, Duration

if TYPE_CHECKING:
    from kodoctl.plan.changes import Change
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion, FamilyTopic

_DELAYED: Final = ("shared", "key_shared")  # to readers of other types all comes at once, in order
_SUMMARY: Final = "the broker does not keep messages until they are due"


def delayed_delivery_findings(desired: Desired, live: Live, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields a warning (K211) for each namespace in which the files have messages wait at the broker, if that delivers
    delayed messages at once, or keeps them for a shorter time than the longest of these waits with its random addition.
    Yields none for a namespace that has no setting of its own if the broker's configuration is unknown.
    """
    set_by_plan = namespace_changes(changes)
    for namespace in desired.namespaces:
        own = levels_of(namespace, live, set_by_plan).namespace_after.get("delayed_delivery")
        delays = _setting(own) if isinstance(own, DelayedDeliveryPolicy) else live.default_delays
        longest, topic = _longest(desired.by_namespace(namespace))
        if delays is None or topic is None:
            continue
        whose = f"{namespace}'s own setting" if own is not None else f"the broker's default, in {namespace}"
        if not delays.on:
            detail = (
                f"delayed delivery is off ({whose}): what waits in {topic.name.local} comes at once and holds it up"
            )
            yield warning("K211", _SUMMARY, detail)
        elif delays.longest and delays.longest < longest + defaults.JITTER:
            detail = (
                f"it keeps them {Duration(delays.longest)} at most ({whose}), those of {topic.name.local} wait up to"
                f" {longest}, and {Duration(defaults.JITTER)} more at random: workers cut longer waits"
            )
            yield warning("K211", _SUMMARY, detail)


def _setting(policy: DelayedDeliveryPolicy) -> DelayedDelivery:
    return DelayedDelivery(policy.enabled, 0 if policy.max_delay == UNLIMITED else int(policy.max_delay))


def _longest(expansions: tuple[Expansion, ...]) -> tuple[Duration, FamilyTopic | None]:
    """The longest wait (ms) that the broker has to keep, and its topic; None: there is no such wait."""
    waits = [(wait, topic) for one in expansions for topic in one.topics if (wait := _wait(one, topic)) is not None]
    return max(waits, key=lambda found: found[0], default=(Duration(0), None))


def _wait(expansion: Expansion, topic: FamilyTopic) -> Duration | None:
    """The longest wait (ms) that the broker has to keep in a topic; None: there is none."""
    ground = expansion.topology.spec.topics[topic.ground]
    readers = expansion.readers(topic)
    if topic.state is State.READY:  # the waits of a backup level, of which the short ones are sat out in memory
        backup = topic.level is not None and topic.level.is_backup
        found = [defaults.waits(one, None).delays[-1] for one in readers if backup and one.type in _DELAYED]
        return max((wait for wait in found if wait > defaults.MAX_IN_MEMORY_WAIT), default=None)
    if topic.state not in WAITING_STATES:
        return None
    return max((defaults.horizon(ground, one) for one in readers), default=None)
