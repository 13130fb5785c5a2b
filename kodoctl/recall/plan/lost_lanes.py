"""Lanes that lost messages, as sources of a recall: the payloads come from a landing (tables of messages), not from a
topic.

A message returns to the lane that lost it. If the topic of that lane accepts no messages, does not drop repeated ones,
or checks Avro schemas, the message is sent to RETRYING of its level instead, as a recalled dead letter is; if the
subscription has no RETRYING lane that accepts messages, it returns wherever messages are accepted. Names that are not
in the file raise UsageError.
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
    """One lane of a subscription, as the source of messages that were lost in it. `source_topic` is the topic of the
    lane, and `holder` the subscription.

    Args:
        lane: such as `L1/ready`, or `dead`.
        level: level of the lane; None for dead letters, whose headers name the level in which they died.
        own: the lane itself as a target; None if it accepts no messages, or if `lost_lane` found another reason why
            messages must not return to it.
        retrying: RETRYING lanes that accept messages, by level; messages that must not return are sent there.
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
        """Lane to which a message is sent: `own`; if that is None, RETRYING of the lane's level (for dead letters of
        the level `died_in`), or of L1 if that level has none or is not known. None: there is no such lane. `to` has no
        effect.
        """
        if self.own is not None:
            return self.own
        return self.retrying.get(self.level or level_of(died_in)) or self.retrying.get(Level.L1)


def lost_lanes(topology: LoadedTopology, topic: str, subscription: str) -> list[LostLane]:
    """Returns every lane of a subscription, also draining ones: by level, the highest first, in each level the ready
    lane before the waiting states; last the dead letters, if it has a topic for them. `own` is None for a lane that
    accepts no messages. Raises UsageError if the file does not have the topic or the subscription.
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
    """Finds one lane of `lost_lanes` by its name, such as `L1/ready`. If the subscription has RETRYING lanes that
    accept messages, `own` is None also for a topic that does not drop repeated messages, and for a ready topic that
    checks Avro schemas. `deduplicates`: returns whether a topic, by its full name, drops repeated messages; it is
    called only if the answer matters. Raises UsageError if the file does not have the names, or the subscription no
    such lane, and the errors of `deduplicates`.
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
