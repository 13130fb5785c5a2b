"""Reader of the history of one message, for `kodo-consumer why` and the console: it reads all topics of a subscription
and acknowledges nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.cli.message_history import DEAD_LETTERS, FoundMessage, Search, SearchedTopic, tenant_levels, to_json
from kodo_consumer.policy_builder import policy_of
from kodoctl.errors import ClusterError, UsageError
from kodoctl.protocol.properties import FOR, HOP
from kodoctl.pulsar.binary.message_reader import partitions_of, read_all, read_facts
from kodoctl.pulsar.control.override_store import OverrideStore
from kodoctl.topology.names import HOLDER, TopicName

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.topology.loaded_topology import LoadedTopology

_PASSES: Final = 4  # each may learn another name of the message: its identity, its first place, where it went


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Reads histories of messages. `unread`: collects entries that cannot be read; `since`: time in ms since the epoch
    from which on stored messages are read, None: all; `on_message`: called before each message, may raise to stop.
    """

    admin: Admin
    client: BrokerClient
    unread: Unread
    since: int | None = None
    on_message: Callable[[], None] = _nothing

    def read(self, topology: LoadedTopology, topic: str, subscription: str, message: str) -> dict[str, Any]:
        """Returns the document of `kodo-consumer why` about a message. `message`: its kodo-id, or a position in full,
        `ledger:entry:partition:batch` (-1 without a partition, and without a batch); `ledger:entry` alone finds
        nothing. `hops` is empty if the message was not found. Reads all topics of the subscription, up to four times.
        Topics that the cluster does not have are in `missing`. Raises KodoctlError, also if the cluster has none of the
        topics.
        """
        policy = policy_of(topology, topic, subscription)
        places = _places(policy)
        search, missing = Search(message, places, lambda sent: policy.latest(sent, sent)), list[UsageError]()
        there = [place for place in places if self._is_there(place, missing)]
        if not there:
            raise UsageError(*(one for problem in missing for one in problem.diagnostics))
        for _ in range(_PASSES):
            search.grew = False
            for place in there:
                show = search.records if policy.audit and place.topic == policy.audit.topic else search.message
                for found in self._messages(place, subscription):
                    self.on_message()
                    show(found)
            if not search.grew:
                break
        levels = self._levels(policy, search)
        document = to_json(message, search, there, [place.topic for place in places if place not in there])
        return {**document, "levels": levels, "unread": self.unread.lines()}

    def _is_there(self, searched: SearchedTopic, missing: list[UsageError]) -> bool:
        """True if the cluster has the topic; else adds the problem to `missing`."""
        try:
            return bool(partitions_of(self.admin, TopicName.parse(searched.topic)))
        except UsageError as problem:
            missing.append(problem)
            return False

    def _messages(self, searched: SearchedTopic, subscription: str) -> Iterator[FoundMessage]:
        reader = HOLDER if searched.name == DEAD_LETTERS else subscription  # recalls acknowledge letters there
        for part in partitions_of(self.admin, TopicName.parse(searched.topic)):
            facts = read_facts(self.admin, part)
            cursor = facts.cursors.get(reader)
            for found in read_all(self.client, facts, self.unread, since=self.since):
                if found.properties.get(FOR, subscription) != subscription and HOP in found.properties:
                    continue  # another subscription's copy, which a worker made; `kodo-for` alone is a sender's word
                position = f"{found.ledger}:{found.entry}:{facts.partition}:{found.batch}"
                gone = cursor is not None and cursor.has((found.ledger, found.entry))
                yield FoundMessage(
                    searched.topic, position, found.payload, found.properties, found.publish_time, gone, found.key
                )

    def _levels(self, policy: Policy, search: Search) -> dict[str, Any]:
        """Levels that the message's tenants have now: see `tenant_levels`."""
        tenants = search.tenants(policy.tenant) if policy.fair_by else []
        store = OverrideStore(self.admin, policy.ground_lane.topic, policy.subscription)
        try:
            orders = store.read(time.time_ns() // 1_000_000) if tenants else ()
        except ClusterError as problem:
            return tenant_levels(policy, tenants, (), problem.diagnostics[0].detail)
        return tenant_levels(policy, tenants, orders)


def _places(policy: Policy) -> list[SearchedTopic]:
    """Topics to search, in the order messages go through them."""
    dead = [SearchedTopic(policy.dead_letter.topic, DEAD_LETTERS)] if policy.dead_letter else []
    audit = [SearchedTopic(policy.audit.topic, "audit records")] if policy.audit else []
    return [*(SearchedTopic(lane.topic, lane.name) for lane in policy.lanes), *dead, *audit]
