"""Topics of a topology to which an outbox may send, by the names in its rows."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from kodo_consumer.core.checks.message_validation import MessageValidator, validator_of
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.policy_builder import send_target_of
from kodoctl.topology import defaults
from kodoctl.topology.names import ready_name

if TYPE_CHECKING:
    from kodo_consumer.core.values.send_target import SendTarget
    from kodoctl.topology.loaded_topology import LoadedTopology


class OutboxTopics:
    """Topics of a topology that rows may name: `orders` is level L1 of the ground topic, `orders-L2` level L2.
    `environment`: that of the topology; "": it was loaded without one.
    """

    def __init__(self, topology: LoadedTopology) -> None:
        self._topology = topology
        self._forms: dict[str, MessageValidator] = {}
        self.environment = topology.environment or ""

    def follow(self, topology: LoadedTopology) -> None:
        """Replaces the topology. The new one may differ in routes only, which is not checked here."""
        self._topology = topology

    @property
    def names(self) -> list[str]:
        """Names of all topics that take messages, as rows name them."""
        return list(self._places)

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        """Name of a ready topic -> its ground topic and level."""
        return {
            ready_name(ground, Level(level)): (ground, str(level))
            for ground, spec in self._topology.spec.topics.items()
            for level in defaults.active_levels(spec)
        }

    def send_target(self, topic: str) -> SendTarget:
        """Returns the send target of a topic. Raises UsageError if the file has no such topic, or if the topic takes no
        messages, and InvalidFileError for a payload schema that cannot be used.
        """
        return send_target_of(self._topology, *self._places.get(topic, (topic, str(Level.L1))))

    @property
    def send_targets(self) -> dict[str, SendTarget]:
        """Send targets of all topics that take messages, by their name in rows. Raises InvalidFileError as
        `send_target` does.
        """
        return {name: self.send_target(name) for name in self._places}

    def sibling(self, send_target: SendTarget, level: str) -> SendTarget:
        """Returns the send target of another level of the same ground topic. Raises UsageError if the level takes no
        messages, and InvalidFileError as `send_target`.
        """
        return send_target_of(self._topology, send_target.ground, level)

    def form(self, topic: str) -> MessageValidator:
        """Returns the validator of messages to a topic, which the first call for the topic makes. Raises as
        `send_target` does.
        """
        if topic not in self._forms:
            self._forms[topic] = validator_of(self.send_target(topic))
        return self._forms[topic]

    @cached_property
    def ordered_topics(self) -> Collection[str]:
        """Names in rows of the topics whose ground topic has a subscription of another type than shared: such a
        subscription keeps the order of the messages of a key. Raises InvalidFileError as `send_target` does.
        """
        return frozenset(name for name in self._places if self.send_target(name).ordered)
