"""Destinations of a recall: the lanes to which dead letters of a subscription may be sent. Only lanes of its own
ground topic are allowed, never another topic. Names, and levels, that the file does not have raise UsageError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error
from kodoctl.protocol import properties
from kodoctl.recall.plan.recall_plan import SourceKind, ledger_key
from kodoctl.text.formatting import partitions_text
from kodoctl.topology import defaults
from kodoctl.topology.names import HOLDER, Level, NamespaceName, State, TopicName, state_name

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.model.topology import GroundTopic, Subscription


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A topic to which letters are sent. `ready`: every subscription reads it, so letters name the one that acts."""

    topic: str
    level: Level
    ready: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class RecallSource:
    """Facts about one subscription for a recall. `source_topic`: topic of its dead letters; `holder`: the subscription
    that retains them there; `retrying`, `ready`: lanes to which they may be sent. `lane`: the waiting lane of its
    messages, such as `L1/retrying`; "": they are dead letters. `ordered`: that lane keeps the order of keys.
    """

    name: str
    ground: str
    subscription: str
    source_topic: str
    source_partitions: int
    fair_by: str | None
    payload_type: str | None
    holder: str = HOLDER
    retrying: Mapping[Level, TargetPartition] = field(default_factory=dict)
    ready: Mapping[Level, TargetPartition] = field(default_factory=dict)
    lane: str = ""
    ordered: bool = False

    @property
    def kind(self) -> SourceKind:
        """Kind of its messages."""
        return SourceKind.DEAD

    @property
    def ledger_key(self) -> str:
        """Name of the source in the ledger."""
        return ledger_key(self.source_topic, self.lane, self.holder)

    @property
    def targets(self) -> tuple[TargetPartition, ...]:
        """Lanes to which messages may be sent."""
        return (*self.retrying.values(), *self.ready.values())

    def reader_of(self, topic: str) -> str:  # noqa: ARG002
        """The subscription that must read the target topic `topic`."""
        return self.subscription

    @property
    def landing(self) -> str:
        """The landing (tables) from which lost messages are read; "": messages are read from their topic."""
        return ""

    @property
    def named_in_full(self) -> str:
        """Name of the subscription in the workers' store, such as `kodo/trade/orders:billing`."""
        return f"{TopicName.parse(self.source_topic).namespace}/{self.ground}:{self.subscription}"

    def is_for(self, given: Mapping[str, str]) -> bool:
        """True if a message with these properties is for this subscription, not for another that reads the topic."""
        return given.get(properties.FOR, self.subscription) == self.subscription

    @property
    def target_name(self) -> str | None:
        """Name of the lane that was chosen for all messages; None: each has its own."""
        return None

    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:
        """Lane to which a letter is sent: the ready lane of the level `to`; without `to`, RETRYING of the level that it
        died in, or of L1 if that level has none. None: there is no such lane.
        """
        if to is not None:
            return self.ready.get(to)
        return self.retrying.get(level_of(died_in)) or self.retrying.get(Level.L1)


def level_of(text: str | None) -> Level:
    """The level that a text names, else L1."""
    try:
        return Level(text) if text else Level.L1
    except ValueError:
        return Level.L1


def family_of(topology: LoadedTopology, topic: str, subscription: str) -> RecallSource:
    """Facts about a subscription's dead letters, from its topology. Raises UsageError for names that the file does not
    have, and for a subscription without dead letters.
    """
    ground, spec = found_subscription(topology, topic, subscription)
    dead = defaults.dead_letter(spec)
    if dead is None:
        detail = f"{topic} / {subscription} has `dead_letter: false`: its failed messages stay in their lanes"
        raise UsageError(error("K554", "no dead letters to recall", detail))
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    retrying, ready = targets_of(topology, topic, subscription)
    payload = topology.payloads.get(topic)
    return RecallSource(
        name=topology.spec.name,
        ground=topic,
        subscription=subscription,
        source_topic=TopicName(namespace, state_name(topic, Level.L1, subscription, State.DEAD)).full,
        source_partitions=defaults.dead_letter_partitions(dead),
        fair_by=ground.fair_by,
        payload_type=payload.type if payload else None,
        retrying=retrying,
        ready=ready,
    )


def targets_of(
    topology: LoadedTopology, topic: str, subscription: str
) -> tuple[dict[Level, TargetPartition], dict[Level, TargetPartition]]:
    """Topics that accept messages of a subscription: RETRYING, and ready topics, each by level. Raises UsageError."""
    ground, spec = found_subscription(topology, topic, subscription)
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    parts = defaults.partitions(topology.spec, ground)

    def lane(level: Level, state: State) -> TargetPartition:
        name = TopicName(namespace, state_name(topic, level, subscription, state))
        return TargetPartition(name.full, level, state is State.READY, parts)

    levels = defaults.active_levels(ground)
    takes = State.RETRYING in spec.states and State.RETRYING not in spec.draining
    retrying = {level: lane(level, State.RETRYING) for level in levels if takes and not level.is_backup}
    return retrying, {level: lane(level, State.READY) for level in levels}


def check_target(family: RecallSource, to: Level | None) -> None:
    """Raises UsageError if letters have no target lane, or `to` is no level that accepts messages."""
    named = ", ".join(family.ready)
    if to is None and Level.L1 not in family.retrying:
        detail = (
            f"{family.subscription} has no RETRYING topic on L1 that takes messages; name a level with --to: {named}"
        )
        raise UsageError(error("K555", "nowhere to send to", detail))
    if to is not None and to not in family.ready:
        raise UsageError(error("K555", "nowhere to send to", f"{family.ground} takes messages on {named}, not on {to}"))
    if to is not None and family.payload_type == "avro":
        detail = f"the ready topics of {family.ground} check Avro schemas; leave out --to, RETRYING takes every version"
        raise UsageError(error("K555", "nowhere to send to", detail))


def found_subscription(topology: LoadedTopology, topic: str, subscription: str) -> tuple[GroundTopic, Subscription]:
    """Finds a ground topic and its subscription in the file. Raises UsageError."""
    ground = topology.spec.topics.get(topic)
    if ground is None:
        detail = f"{topology.source.name} has {_names_text(topology.spec.topics)}, not {topic!r}"
        raise UsageError(error("K022", "unknown topic", detail))
    spec = ground.subscriptions.get(subscription)
    if spec is None:
        detail = f"{topic} has {_names_text(ground.subscriptions)}, not {subscription!r}"
        raise UsageError(error("K703", "unknown subscription", detail))
    return ground, spec


def _names_text(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"


def fits(
    family: RecallSource, name: str, source_topic: str, holder: str, lanes: Iterable[tuple[str, bool, int]]
) -> list[str]:
    """Texts about differences between a plan and the file, none if it still fits: another source, and lanes of the plan
    that the file no longer has. `name`, `source_topic`, `holder`: of the plan; `lanes`: topic, whether ready,
    partitions.
    """
    problems = []
    if (family.name, family.source_topic, family.holder) != (name, source_topic, holder):
        problems.append(
            f"{source_topic} of {name} is not where the file keeps these {family.kind.value}: {family.source_topic}"
        )
    declared = {lane.topic: lane for lane in family.targets}
    for topic, ready, partitions in sorted(set(lanes)):
        lane = declared.get(topic)
        if lane is None or lane.ready is not ready:
            problems.append(f"{topic} is no lane of {family.ground} / {family.subscription} that takes letters")
        elif lane.partitions != partitions:
            problems.append(f"{topic} had {partitions_text(partitions)}, now {lane.partitions:,}")
    return problems
