"""Connections of one worker: a reader for each lane, and the publisher."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.upkeep.broker_window import lane_request
from kodo_consumer.runtime.threads import leave

if TYPE_CHECKING:
    from kodo_consumer.core.engine.pending_actions import Actions
    from kodo_consumer.core.values.broker import Broker, LaneReader, LaneSink, OnReceipts, Publisher
    from kodo_consumer.core.values.policy import Policy

log = logging.getLogger("kodo.consumer")
_SETTLE: Final = (
    1.0  # seconds in which other threads hand over acknowledgements that they fetched before a lane is left
)
_LEAVE_WITHIN: Final = 8.0  # seconds for lanes and publisher together: who waits for the end of a process sees one


class WorkerConnections:
    """Readers and publisher, opened and closed once; meanwhile any thread may carry out actions. `readers`: one for
    each lane, in the order of lane indices; `broker`: connection that opens them.
    """

    def __init__(self, broker: Broker) -> None:
        self.readers: list[LaneReader] = []
        self.broker = broker
        self._publisher: Publisher | None = None

    def open(
        self,
        policy: Policy,
        consumer_name: str,
        unacked: Mapping[int, int],
        sink_of: Callable[[int], LaneSink],
        receipts: OnReceipts,
        *,
        confirms: bool = False,
    ) -> None:
        """Connects the publisher, then every lane. Raises ClusterError; the caller then has to call `close`.

        Args:
            policy: has the lanes, and the topics that are written to.
            consumer_name: name that the broker shows for this worker.
            unacked: unacknowledged messages that the broker allows one consumer, by lane index, if known.
            sink_of: returns the receiver of a lane's messages, by lane index.
            receipts: called with the receipts of published messages.
            confirms: acknowledgements have tickets, and their results come to the sink.
        """
        self._publisher = self.broker.publisher(sorted(policy.written_topics), receipts, policy.largest, moves=True)
        for lane in policy.lanes:
            request = lane_request(policy, lane, consumer_name, unacked.get(lane.index, 0))
            self.readers.append(self.broker.open(replace(request, confirms=confirms), sink_of(lane.index)))

    def carry_out(self, actions: Actions) -> None:
        """Acknowledges and publishes messages, renews the publisher, and reconnects, leaves, joins or resumes lanes, as
        the actions say. Waits for none of this. Raises ClusterError if the publisher cannot be renewed; of the actions,
        only the acknowledgements were carried out then.
        """
        readers, effects = self.readers, actions.effects
        for index, tokens in actions.acks:
            if actions.tickets:
                readers[index].acknowledge(tokens, actions.tickets[index])
            else:
                readers[index].acknowledge(tokens)
        if not effects.urgent and not effects.publish:
            return
        assert self._publisher is not None
        if effects.renew_publishing:
            self._publisher.renew()
        if effects.publish:
            self._publisher.publish(effects.publish)
        for index, partition in effects.anew:
            readers[index].reconnect(0.0, 0.0, partition)
        for index, present in effects.presence.items():
            readers[index].join() if present else readers[index].leave(_SETTLE)
        for index in effects.resume:
            readers[index].resume()

    def empty_times(self, index: int, now: float) -> dict[str, float]:
        """Last time at which the client library had no undelivered message, by partition (its number as a text) of the
        lane with this index, on the clock of `now`. A partition of which it always had some may be missing; empty if
        the lane is not open.
        """
        ago = self.readers[index].seconds_since_empty() if index < len(self.readers) else {}
        return {partition: now - seconds for partition, seconds in ago.items()}

    @property
    def disconnected_topics(self) -> list[str]:
        """Texts for people about topics, or partitions of them, of which no messages can come now: those of all
        readers, see LaneReader.disconnected_topics.
        """
        return [topic for reader in self.readers for topic in reader.disconnected_topics]

    def stop(self) -> None:
        """Ends receiving; acknowledging and publishing stay possible."""
        for reader in self.readers:
            reader.stop()

    def close(self) -> None:
        """Closes all readers at once, so that none waits for another one's broker, then the publisher, within 8 s. Those
        that the client library does not close in time are left open, and an error is logged.
        """
        latest = time.monotonic() + _LEAVE_WITHIN
        late = leave({f"lane-{index}": reader.close for index, reader in enumerate(self.readers)}, _LEAVE_WITHIN)
        if self._publisher is not None:
            late += leave({"publisher": self._publisher.close}, max(0.0, latest - time.monotonic()))
        if late:
            text = "lanes and publisher do not close within %.0f s: they are left behind, what is unacknowledged comes again"
            log.error(text, _LEAVE_WITHIN)
