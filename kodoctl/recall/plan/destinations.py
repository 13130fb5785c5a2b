"""Destinations of a recall: the lanes to which dead letters of a subscription may be sent. Only lanes of its own
ground topic are allowed, never another topic. Names, and levels, that the file does not have raise UsageError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypedDict

from kodoctl.errors import UsageError, error
from kodoctl.protocol import properties
from kodoctl.recall.plan.recall_plan import DEAD
from kodoctl.text.formatting import partitions_text
from kodoctl.topology import defaults
from kodoctl.topology.names import HOLDER, Level, NamespaceName, State, TopicName, state_name

if TYPE_CHECKING:
    from kodoctl.recall.plan.recall_plan import SourceKind
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.model.topology import GroundTopic, Subscription


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A topic (all its partitions) to which letters may be sent. `topic`: full name; `level`: L1 for a dead letter
    topic, which has none; `ready`: every subscription reads the topic, so letters name the subscription that handles
    them; `partitions`: number of its partitions in the file, 0 for a plain topic.
    """

    topic: str
    level: Level
    ready: bool
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSource(ABC):
    """One source of messages of a subscription, as a plan needs it: dead letters, a waiting lane, or a lane that lost
    messages.

    Args:
        name: name of the topology.
        ground, subscription: ground topic and subscription, by their names in the file.
        source_topic, source_partitions: full name of the topic that stores the messages or lost them, and its number
            of partitions in the file (0: a plain topic).
        fair_by: the property with the tenant, or `key`; None: the file does not tell tenants apart.
        payload_type: type of the declared payloads, such as `avro`; None: none is declared.
        holder: the subscription that retains the messages there; of lost messages, the one that lost them.
        lane: name of the lane, such as `L1/retrying`, or `dead` for dead letters that were lost; "" for DeadLetters.
        ordered: the source is a waiting lane that keeps the order of keys; always False for other sources.
        landing: the landing (tables) from which lost messages are read; "": messages are read from their topic.
        horizon: ms that a message may wait from now at most.
    """

    kind: ClassVar[SourceKind]
    name: str
    ground: str
    subscription: str
    source_topic: str
    source_partitions: int
    fair_by: str | None
    payload_type: str | None
    holder: str
    lane: str = ""
    ordered: bool = False
    landing: str = ""
    horizon: int = 0

    @property
    def ledger_key(self) -> str:
        """Name under which the recall ledger keeps the entries about messages of this source: the source topic, and the
        subscription where several read the topic or where messages were lost.
        """
        return self.kind.ledger_key(self.source_topic, self.lane, self.holder)

    @property
    @abstractmethod
    def targets(self) -> tuple[TargetPartition, ...]:
        """All lanes to which messages of this source may be sent; `lane_of` chooses the one for a message."""

    @abstractmethod
    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:
        """Lane to which a message is sent; None: there is no lane for it. `died_in`: the level in which a dead letter
        died, None: not known; `to`: the level that was chosen for all messages, None: each goes to its own. Only
        DeadLetters heed `to`, and waiting lanes heed neither.
        """

    def check_target(self, to: Level | None) -> None:  # noqa: B027  # only some sources have a choice
        """Raises UsageError if messages have no target lane, or cannot be sent to the level `to`. Does nothing for a
        source without a choice of levels, which is every source but DeadLetters.
        """

    def reader_of(self, topic: str) -> str:
        """Name on Pulsar of the subscription that must exist on the target topic `topic` (full name), because the
        messages are sent for it: `subscription`, or the holder of the dead letters for lost ones that return there.
        """
        return self.kind.reader_of(topic, self.source_topic, self.subscription, lane=self.lane)

    @property
    def named_in_full(self) -> str:
        """Name of the subscription in the workers' store, such as `kodo/trade/orders:billing`."""
        return f"{TopicName.parse(self.source_topic).namespace}/{self.ground}:{self.subscription}"

    def is_for(self, given: Mapping[str, str]) -> bool:
        """True unless the properties name another subscription, or nobody (a mark of a producer), as the one that
        handles the message.
        """
        return given.get(properties.FOR, self.subscription) == self.subscription

    @property
    def target_name(self) -> str | None:
        """Name of the lane to which all messages of a waiting lane are moved, such as `L1/retrying`; None if they stay
        in their lane or no lane was chosen, and for every other source, even if a level was chosen.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters(RecallSource):
    """Dead letters of a subscription, as a source of a recall. `retrying`, `ready`: topics to which they may be sent,
    by level.
    """

    kind = DEAD
    retrying: Mapping[Level, TargetPartition]
    ready: Mapping[Level, TargetPartition]

    @property
    def targets(self) -> tuple[TargetPartition, ...]:
        """All lanes to which the letters may be sent: first those of RETRYING, then the ready lanes, by level."""
        return (*self.retrying.values(), *self.ready.values())

    def is_for(self, given: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Always True: no other subscription has its dead letters there."""
        return True

    def lane_of(self, died_in: str | None, to: Level | None) -> TargetPartition | None:
        """Finds the lane to which a letter is sent; only lanes that accept messages count. With `to`: the ready lane of
        that level. Without it: RETRYING of the level `died_in`; if that is None, names no level, or is one without such
        a lane (as a draining or a backup level), RETRYING of L1. None: there is no such lane.
        """
        if to is not None:
            return self.ready.get(to)
        return self.retrying.get(level_of(died_in)) or self.retrying.get(Level.L1)

    def check_target(self, to: Level | None) -> None:
        """Raises UsageError if letters cannot be sent to the ready topic of level `to`, because there is none that
        accepts messages or it checks Avro schemas; for None, if there is no RETRYING topic on L1 that accepts messages.
        """
        levels = ", ".join(self.ready)
        detail = ""
        if to is None and Level.L1 not in self.retrying:
            detail = (
                f"{self.subscription} has no RETRYING topic on L1 that takes messages; name a level with --to: {levels}"
            )
        elif to is not None and to not in self.ready:
            detail = f"{self.ground} takes messages on {levels}, not on {to}"
        elif to is not None and self.payload_type == "avro":
            detail = (
                f"the ready topics of {self.ground} check Avro schemas; leave out --to, RETRYING takes every version"
            )
        if detail:
            raise UsageError(error("K555", "nowhere to send to", detail))


def level_of(text: str | None) -> Level:
    """The level that a text names; L1 for any other text, and for None."""
    try:
        return Level(text) if text else Level.L1
    except ValueError:
        return Level.L1


def family_of(topology: LoadedTopology, topic: str, subscription: str) -> DeadLetters:
    """Returns the source of a subscription's dead letters, from its topology. Raises UsageError for names that the file
    does not have, and for a subscription without dead letters.
    """
    _, spec = found_subscription(topology, topic, subscription)
    dead = defaults.dead_letter(spec)
    if dead is None:
        detail = f"{topic} / {subscription} has `dead_letter: false`: its failed messages stay in their lanes"
        raise UsageError(error("K554", "no dead letters to recall", detail))
    retrying, ready = targets_of(topology, topic, subscription)
    return DeadLetters(
        source_topic=topic_of(topology, topic, subscription, Level.L1, State.DEAD),
        source_partitions=defaults.dead_letter_partitions(dead),
        holder=HOLDER,
        retrying=retrying,
        ready=ready,
        **facts_of(topology, topic, subscription),
    )


class SubscriptionFacts(TypedDict):
    """Facts about a subscription that all sources of its messages share, as fields of a RecallSource."""

    name: str
    ground: str
    subscription: str
    fair_by: str | None
    payload_type: str | None
    horizon: int


def facts_of(topology: LoadedTopology, topic: str, subscription: str) -> SubscriptionFacts:
    """Facts about a subscription of the file. Raises UsageError for names that the file does not have."""
    ground, spec = found_subscription(topology, topic, subscription)
    payload = topology.payloads.get(topic)
    return {
        "name": topology.spec.name,
        "ground": topic,
        "subscription": subscription,
        "fair_by": ground.fair_by,
        "payload_type": payload.type if payload else None,
        "horizon": defaults.horizon(ground, spec),
    }


def topic_of(topology: LoadedTopology, topic: str, subscription: str, level: Level, state: State) -> str:
    """Full name of the topic of one lane of a subscription: for READY the one that all subscriptions read, for DEAD the
    same on every level. Does not check that the file has these names or such a lane.
    """
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    return TopicName(namespace, state_name(topic, level, subscription, state)).full


def target_of(topology: LoadedTopology, topic: str, subscription: str, level: Level, state: State) -> TargetPartition:
    """One lane of a subscription as a target. Raises UsageError for a topic or a subscription that the file does not
    have; does not check that the subscription has such a lane. Not for DEAD, whose topic has a number of partitions of
    its own.
    """
    ground, _ = found_subscription(topology, topic, subscription)
    name, partitions = topic_of(topology, topic, subscription, level, state), defaults.partitions(topology.spec, ground)
    return TargetPartition(name, level, state is State.READY, partitions)


def targets_of(
    topology: LoadedTopology, topic: str, subscription: str
) -> tuple[dict[Level, TargetPartition], dict[Level, TargetPartition]]:
    """Returns (RETRYING topics, ready topics) that accept messages of a subscription, each by level. RETRYING has no
    backup levels, and is {} if the subscription has no such state or is draining it. Raises UsageError for names that
    the file does not have.
    """
    ground, spec = found_subscription(topology, topic, subscription)
    lane = partial(target_of, topology, topic, subscription)
    levels = defaults.active_levels(ground)
    takes = State.RETRYING in spec.states and State.RETRYING not in spec.draining
    retrying = {level: lane(level, State.RETRYING) for level in levels if takes and not level.is_backup}
    return retrying, {level: lane(level, State.READY) for level in levels}


def found_subscription(topology: LoadedTopology, topic: str, subscription: str) -> tuple[GroundTopic, Subscription]:
    """Finds a ground topic and its subscription. Raises UsageError for names that the file does not have."""
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
    """Compares a plan with the file, and returns a text for each difference; [] if the plan still fits. Differences are
    another source, and lanes of the plan that are no targets of `family` any more, or have another number of
    partitions. Nothing else is compared, such as the number of partitions of the source.

    Args:
        family: the source as the file has it now.
        name, source_topic, holder: of the plan.
        lanes: (topic, True if it is a ready topic, number of partitions) of each lane of the plan.
    """
    problems = []
    if (family.name, family.source_topic, family.holder) != (name, source_topic, holder):
        problems.append(
            f"{source_topic} of {name} is not where the file keeps these {family.kind.name}: {family.source_topic}"
        )
    declared = {lane.topic: lane for lane in family.targets}
    for topic, ready, partitions in sorted(set(lanes)):
        lane = declared.get(topic)
        if lane is None or lane.ready is not ready:
            problems.append(f"{topic} is no lane of {family.ground} / {family.subscription} that takes letters")
        elif lane.partitions != partitions:
            problems.append(f"{topic} had {partitions_text(partitions)}, now {lane.partitions:,}")
    return problems
