"""The topics a topology lets an outbox send to, by the names its rows have."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from kodo_consumer.core.checks.message_validation import MessageValidator, check_of
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.policy_builder import outlet_of
from kodoctl.topology import defaults
from kodoctl.topology.names import ready_name

if TYPE_CHECKING:
    from kodo_consumer.core.values.outlet import Outlet
    from kodoctl.topology.loaded_topology import LoadedTopology


class OutboxTopics:
    """Topics of a topology that rows may name: `orders` is level L1 of the ground topic, `orders-L2` level L2."""

    def __init__(self, topology: LoadedTopology) -> None:
        self._topology = topology
        self._forms: dict[str, MessageValidator] = {}
        self.environment = topology.environment or ""

    def follow(self, topology: LoadedTopology) -> None:
        """Replaces the topology. The new one may differ in routes only."""
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

    def outlet(self, topic: str) -> Outlet:
        """Returns the outlet of a topic. Raises UsageError if the file has no such topic, or if the topic takes no
        messages.
        """
        return outlet_of(self._topology, *self._places.get(topic, (topic, str(Level.L1))))

    @property
    def outlets(self) -> dict[str, Outlet]:
        """Outlets of all topics that take messages, by name."""
        return {name: self.outlet(name) for name in self._places}

    def sibling(self, outlet: Outlet, level: str) -> Outlet:
        """Returns the outlet of another level of the same ground topic. Raises UsageError if the level takes no
        messages.
        """
        return outlet_of(self._topology, outlet.ground, level)

    def form(self, topic: str) -> MessageValidator:
        """Returns the validator of messages to a topic. Raises UsageError if the topic takes no messages."""
        if topic not in self._forms:
            outlet = self.outlet(topic)
            self._forms[topic] = MessageValidator(check_of(outlet), outlet.properties)
        return self._forms[topic]

    @cached_property
    def ordered(self) -> Collection[str]:
        """Names of the topics with a subscription that is not of type shared, which therefore keeps the order of
        messages.
        """
        return frozenset(name for name in self._places if self.outlet(name).ordered)
