"""Lanes that lost messages, as sources of a recall: the payloads come from a landing (tables of messages), not from a
topic.

A message returns to the topic that lost it, if that topic accepts messages and drops repeated ones. Otherwise the
message is sent to RETRYING of its level, as a recalled dead letter is. Names that are not in the file raise UsageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.recall.plan.destinations import RecallSource, TargetPartition, found_subscription, level_of, targets_of
from kodoctl.recall.plan.recall_plan import SourceKind, lost_key, reader_of
from kodoctl.topology import defaults
from kodoctl.topology.names import Level, NamespaceName, State, TopicName, state_name

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True)
class LostLane(RecallSource):
    """One lane of a subscription that lost messages. `source_topic` is its topic and `holder` the subscription.

    `lane`: such as `L1/ready`, or `dead`; `level`: None for dead letters, which name the one they died in; `own`: the
    topic itself as a target, None if it accepts no messages, or by `lost_lane` none exactly once; `landed`: path of the
    landing with the payloads; `horizon`: ms that a message may wait from now.
    """

    level: Level | None = None
    own: TargetPartition | None = None
    landed: str = ""
    horizon: int = 0

    @property
    def kind(self) -> SourceKind:
        """Kind of its messages."""
        return SourceKind.LOST

    @property
    def ledger_key(self) -> str:
        """Name of the source in the ledger."""
        return lost_key(self.source_topic, self.subscription)

    @property
    def landing(self) -> str:
        """The landing from which the messages are read."""
        return self.landed

    @property
    def targets(self) -> tuple[TargetPartition, ...]:
        """Lanes to which messages may be sent."""
        own = () if self.own is None else (self.own,)
        return (*self.retrying.values(), *own)

    def reader_of(self, topic: str) -> str:
        """The subscription that must read the target topic `topic`."""
        return reader_of(topic, self.source_topic, self.subscription, lane=self.lane)

    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:  # noqa: ARG002
        """Lane to which a message is sent: `own`, else RETRYING of its level, or of L1 if that level has none."""
        if self.own is not None:
            return self.own
        return self.retrying.get(self.level or level_of(died_in)) or self.retrying.get(Level.L1)


def lost_lanes(topology: LoadedTopology, topic: str, subscription: str) -> list[LostLane]:
    """All lanes of a subscription that can lose messages, in the order of a message's way. Raises UsageError."""
    ground, spec = found_subscription(topology, topic, subscription)
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    parts = defaults.partitions(topology.spec, ground)
    retrying, ready = targets_of(topology, topic, subscription)
    payload = topology.payloads.get(topic)

    def lane(name: str, level: Level | None, state: State, own: TargetPartition | None, partitions: int) -> LostLane:
        local = state_name(topic, level or Level.L1, subscription, state)
        return LostLane(
            name=topology.spec.name,
            ground=topic,
            subscription=subscription,
            source_topic=TopicName(namespace, local).full,
            source_partitions=partitions,
            fair_by=ground.fair_by,
            payload_type=payload.type if payload else None,
            holder=subscription,
            retrying=retrying,
            lane=name,
            level=level,
            own=own,
            horizon=defaults.horizon(ground, spec),
        )

    def lanes() -> Iterator[LostLane]:
        for level in defaults.read_levels(ground):
            yield lane(f"{level}/{State.READY}", level, State.READY, ready.get(level), parts)
            for state in () if level.is_backup else defaults.read_states(spec):
                made = lane(f"{level}/{state}", level, state, None, parts)
                takes = level in ready and state in spec.states and state not in spec.draining
                target = TargetPartition(made.source_topic, level, ready=False, partitions=parts)
                yield replace(made, own=target) if takes else made
        if (dead := defaults.dead_letter(spec)) is not None:
            count = defaults.dead_letter_partitions(dead)
            made = lane(State.DEAD.value, None, State.DEAD, None, count)
            yield replace(made, own=TargetPartition(made.source_topic, Level.L1, ready=False, partitions=count))

    return list(lanes())


def lost_lane(
    topology: LoadedTopology, topic: str, subscription: str, name: str, deduplicates: Callable[[str], bool]
) -> LostLane:
    """Finds one lane by its name. If the subscription has RETRYING lanes, its `own` is None unless that topic stores
    each message exactly once. `deduplicates`: returns whether a topic drops repeated messages. Raises UsageError.
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
