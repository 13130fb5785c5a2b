"""Reading one topic: a thread that receives, copies and hands over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import pulsar

from consumer.broker import LaneRequest, LaneSink
from consumer.envelope import Delivery
from kodoctl.errors import ClusterError, error

log = logging.getLogger("kodo.consumer")
_WAIT: Final = 500  # ms a receive blocks: how soon a stopped lane's thread ends
_AT_ONCE: Final = 0.0003  # seconds: a message that was there at once has others behind it
_MUCH: Final = 32  # messages there at once: a backlog
_BATCH_WAIT: Final = 5  # ms a batch waits to be full
_REOPEN: Final = 5.0  # seconds between two tries to subscribe again
_TYPES: Final = {
    "shared": pulsar.ConsumerType.Shared,
    "key_shared": pulsar.ConsumerType.KeyShared,
    "failover": pulsar.ConsumerType.Failover,
    "exclusive": pulsar.ConsumerType.Exclusive,
}


class PulsarLane:
    """consumer.broker.LaneReader. Never a negative acknowledgement, never the client's own dead letters: neither is safe."""

    def __init__(self, client: Any, request: LaneRequest, sink: LaneSink) -> None:
        self._client, self._request, self._sink = client, request, sink
        self._consumer = self._subscribe()
        self._connected = True
        self._stopped = threading.Event()
        self._closed = False
        self._much = False
        self._go_on = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"kodo-{request.topic.rpartition('/')[2]}", daemon=True)
        self._thread.start()

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """See LaneReader."""
        acknowledge = self._consumer.acknowledge
        try:
            for token in tokens:
                acknowledge(token)
        except pulsar.PulsarException as problem:
            log.debug("%s: acknowledgements lost: %s", self._request.topic, problem)

    def resume(self) -> None:
        """See LaneReader."""
        self._go_on.set()

    def stop(self) -> None:
        """See LaneReader."""
        self._stopped.set()
        self._go_on.set()

    def close(self) -> None:
        """See LaneReader."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        try:
            self._consumer.close()
        except pulsar.PulsarException as problem:
            log.debug("%s: %s", self._request.topic, problem)
        self._thread.join()

    def check_connection(self) -> None:
        """Tells the worker when the connection was lost. To be called more often than a reconnection takes."""
        connected = self._consumer.is_connected()
        lost = self._connected and not connected
        self._connected = connected
        if lost and not self._stopped.is_set():
            self._sink.disconnected()

    def _subscribe(self) -> Any:
        request = self._request
        try:
            return self._client.subscribe(
                request.topic,
                request.subscription,
                _TYPES[request.type],
                consumer_name=request.consumer_name,
                receiver_queue_size=request.queue,
                max_total_receiver_queue_size_across_partitions=request.queue,
                initial_position=pulsar.InitialPosition.Earliest,
                batch_index_ack_enabled=True,
                batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(request.batch, -1, _BATCH_WAIT),
            )
        except pulsar.PulsarException as problem:
            detail = f"{request.subscription} on {request.topic}: {problem}"
            raise ClusterError(error("K613", "cannot subscribe", detail)) from None

    def _read(self) -> None:
        while not self._stopped.is_set():
            self._go_on.clear()
            if not self._sink.room():
                self._go_on.wait(_WAIT / 1000)
                continue
            try:
                messages = self._receive()
            except pulsar.PulsarException as problem:
                self._reopen(problem)
                continue
            if messages and not self._stopped.is_set():
                self._sink.deliver([_copied(message) for message in messages])

    def _receive(self) -> list[Any]:
        """One message as soon as it comes; when it was there already, what else is there; while much is, whole batches.

        Each call lets other threads have the interpreter: a batch in one call is what a backlog needs, but it waits to
        be full, which a trickle must not.
        """
        if self._much:
            messages: list[Any] = self._consumer.batch_receive()
            self._much = len(messages) >= _MUCH
            return messages
        receive = self._consumer.receive
        messages = []
        began = time.monotonic()
        try:
            messages.append(receive(_WAIT))
            if time.monotonic() - began < _AT_ONCE:
                while len(messages) < min(_MUCH, self._request.batch):
                    messages.append(receive(0))
        except pulsar.Timeout:
            return messages
        self._much = len(messages) >= _MUCH
        return messages

    def _reopen(self, problem: Exception) -> None:
        """The subscription was closed under us (its topic was deleted, say): ask for it until it is there again."""
        while not self._stopped.is_set():
            log.error("%s: %s; subscribing again", self._request.topic, problem)
            self._go_on.wait(_REOPEN)
            if self._stopped.is_set():
                return
            try:
                self._consumer.close()
            except pulsar.PulsarException as closing:
                log.debug("%s: %s", self._request.topic, closing)
            try:
                self._consumer = self._subscribe()
            except ClusterError as again:
                problem = again
                continue
            self._sink.disconnected()
            return


def _copied(message: Any) -> Delivery:
    """Everything needed, so that the client's object can go: a kept one pins its whole batch."""
    token = message.message_id()
    payload = message.data()
    return Delivery(
        token.serialize(),
        token,
        payload if payload or not message.has_null_value() else None,
        message.properties(),
        message.partition_key(),
        message.ordering_key(),
        message.event_timestamp(),
        message.publish_timestamp(),
    )
