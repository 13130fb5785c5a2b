"""Lanes that lost messages, as sources of a recall: the payloads come from a landing (tables of messages), not from a
topic.

A message returns to the topic that lost it, if that topic accepts messages and drops repeated ones. Otherwise the
message is sent to RETRYING of its level, as a recalled dead letter is. Names that are not in the file raise UsageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.recall.plan.destinations import (
    RecallSource,
    TargetPartition,
    facts_of,
    found_subscription,
    level_of,
    target_of,
    targets_of,
    topic_of,
)
from kodoctl.recall.plan.recall_plan import LOST
from kodoctl.topology import defaults
from kodoctl.topology.names import Level, State

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLane(RecallSource):
    """One lane of a subscription that lost messages. `source_topic` is its topic and `holder` the subscription.

    Args:
        lane: such as `L1/ready`, or `dead`.
        level: level of the lane; None for dead letters, whose headers name the level in which they died.
        own: the topic itself as a target; None if it accepts no messages, or if `lost_lane` found another reason why
            they must not return to it.
        retrying: RETRYING lanes to which the messages may be sent instead, by level.
    """

    kind = LOST
    retrying: Mapping[Level, TargetPartition]
    level: Level | None
    own: TargetPartition | None

    @property
    def targets(self) -> tuple[TargetPartition, ...]:
        """Lanes to which messages may be sent."""
        own = () if self.own is None else (self.own,)
        return (*self.retrying.values(), *own)

    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:  # noqa: ARG002
        """Lane to which a message is sent: `own`, else RETRYING of its level, or of L1 if that level has none; None:
        there is no such lane. `to` has no effect.
        """
        if self.own is not None:
            return self.own
        return self.retrying.get(self.level or level_of(died_in)) or self.retrying.get(Level.L1)


def lost_lanes(topology: LoadedTopology, topic: str, subscription: str) -> list[LostLane]:
    """All lanes of a subscription that can lose messages, in the order of a message's way. Raises UsageError for names
    that the file does not have.
    """
    ground, spec = found_subscription(topology, topic, subscription)
    retrying, ready = targets_of(topology, topic, subscription)
    facts = facts_of(topology, topic, subscription)

    def lane(name: str, level: Level | None, source: TargetPartition, own: TargetPartition | None) -> LostLane:
        return LostLane(
            source_topic=source.topic,
            source_partitions=source.partitions,
            holder=subscription,
            retrying=retrying,
            lane=name,
            level=level,
            own=own,
            **facts,
        )

    def lanes() -> Iterator[LostLane]:
        for level in defaults.read_levels(ground):
            first = target_of(topology, topic, subscription, level, State.READY)
            yield lane(f"{level}/{State.READY}", level, first, ready.get(level))
            for state in () if level.is_backup else defaults.read_states(spec):
                source = target_of(topology, topic, subscription, level, state)
                takes = level in ready and state in spec.states and state not in spec.draining
                yield lane(f"{level}/{state}", level, source, source if takes else None)
        if (dead := defaults.dead_letter(spec)) is not None:
            name = topic_of(topology, topic, subscription, Level.L1, State.DEAD)
            source = TargetPartition(name, Level.L1, ready=False, partitions=defaults.dead_letter_partitions(dead))
            yield lane(State.DEAD.value, None, source, source)

    return list(lanes())


def lost_lane(
    topology: LoadedTopology, topic: str, subscription: str, name: str, deduplicates: Callable[[str], bool]
) -> LostLane:
    """Finds one lane by its name, such as `L1/ready`. If the subscription has RETRYING lanes that accept messages, the
    lane's `own` is None for a topic that does not drop repeated messages, and for a ready topic that checks Avro
    schemas. `deduplicates`: returns whether a topic, by its full name, drops repeated messages. Raises UsageError if
    the file does not have the names, or the subscription no such lane.
    """
    lanes = {one.lane: one for one in lost_lanes(topology, topic, subscription)}
    if (found := lanes.get(name)) is None:
        detail = f"{topic} / {subscription} has no lane {name}; lanes are {', '.join(lanes)}"
        raise UsageError(error("K581", "unknown waiting lane", detail))
    own = found.own
    if own is None or not found.retrying:
        return found
    checks_schemas = own.ready and found.payload_type == "avro"
    return replace(found, own=None) if checks_schemas or not deduplicates(own.topic) else found
