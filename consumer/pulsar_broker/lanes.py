"""Reading one topic: a thread that receives, copies and hands over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pulsar

from consumer.broker import LaneRequest, LaneSink
from consumer.envelope import Delivery
from consumer.threads import begin, leave
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.decoding import as_they_are, content, schema_version, unreturned
from kodoctl.topology.control import SCHEMA

log = logging.getLogger("kodo.consumer")
_WAIT: Final = 500  # ms a receive blocks: how soon a stopped lane's thread ends
_AT_ONCE: Final = 0.0003  # seconds: a message that was there at once has others behind it
_MUCH: Final = 32  # messages there at once: a backlog
_BATCH_WAIT: Final = 5  # ms a batch waits to be full
_GIVE_UP: Final = 15.0  # seconds without a connection before a new consumer is made
_LEAVE_WITHIN: Final = 3.0  # seconds: the others of a worker are to close as well
_REOPEN: Final = 5.0  # seconds between two tries to subscribe again, and between two new consumers for the same reason
_TYPES: Final = {
    "shared": pulsar.ConsumerType.Shared,
    "key_shared": pulsar.ConsumerType.KeyShared,
    "failover": pulsar.ConsumerType.Failover,
    "exclusive": pulsar.ConsumerType.Exclusive,
}


class PulsarLane:
    """consumer.broker.LaneReader over one consumer. Never a negative acknowledgement, never the client's own dead letters: neither is safe."""

    def __init__(self, client: Any, request: LaneRequest, sink: LaneSink) -> None:
        self._client, self._request, self._sink = client, request, sink
        self._copied = partial(_copied_with_schema, request.schemas) if request.schemas else _copied
        self._consumer = self._subscribe()
        self._lost_at: float | None = None
        self._too_long = threading.Event()
        self._stopped = threading.Event()
        self._leave: tuple[float, float] | None = None  # when, and for how many seconds
        self._much = False
        self._unreturned = 0  # kodoctl.pulsar.decoding: of this consumer
        self._opened_at = time.monotonic()
        self._go_on = threading.Event()
        name = f"kodo-{request.topic.rpartition('/')[2]}"
        self._thread = begin(self._read, name, sink.broke, over=self._stopped.is_set)

    @property
    def connected(self) -> bool:
        """See LaneReader."""
        return self._lost_at is None

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """See LaneReader."""
        acknowledge = self._consumer.acknowledge
        for token in tokens:  # one that fails is no reason to keep the others: nobody would send them again
            try:
                acknowledge(token)
            except pulsar.PulsarException as problem:
                log.debug("%s: acknowledgement lost: %s", self._request.topic, problem)

    def resume(self) -> None:
        """See LaneReader."""
        self._go_on.set()

    def widen(self) -> None:
        """See LaneReader. One consumer can get no more: SpreadLane."""

    def reconnect(self, wait: float, away: float) -> None:
        """See LaneReader."""
        self._leave = time.monotonic() + wait, away

    def stop(self) -> None:
        """See LaneReader."""
        self._stopped.set()
        self._go_on.set()

    def close(self) -> None:
        """See LaneReader. A call into the client library may never return: then its thread is left behind."""
        self.stop()
        if leave({self._request.topic: self._end}, _LEAVE_WITHIN):
            log.error(
                "%s: its consumer does not close within %.0f s and is left behind", self._request.topic, _LEAVE_WITHIN
            )

    def _end(self) -> None:
        self._close_consumer()  # ends a receive that waits
        self._thread.join()
        self._close_consumer()  # one that was opened meanwhile

    def check_connection(self) -> None:
        """Tells the worker when the connection was lost. To be called more often than a reconnection takes."""
        now = time.monotonic()
        if self._consumer.is_connected():
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = now
            if not self._stopped.is_set():
                self._sink.disconnected()
        elif now - self._lost_at > _GIVE_UP:
            self._lost_at = now
            self._too_long.set()

    def _close_consumer(self) -> None:
        try:
            self._consumer.close()
        except (pulsar.PulsarException, ValueError) as problem:  # ValueError: the wrapper's way to say "closed already"
            log.debug("%s: %s", self._request.topic, problem)

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
                **as_they_are(),
                batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(request.batch, request.batch_bytes, _BATCH_WAIT),
            )
        except pulsar.PulsarException as problem:
            detail = f"{request.subscription} on {request.topic}: {problem}"
            raise ClusterError(error("K713", "cannot subscribe", detail)) from None

    def _read(self) -> None:
        while not self._stopped.is_set():
            self._go_on.clear()
            if not self._sink.room():
                self._go_on.wait(_WAIT / 1000)
                continue
            try:
                messages = self._receive()
            except pulsar.PulsarException as problem:
                if not self._stopped.is_set():
                    self._reopen(str(problem))
                continue
            if self._too_long.is_set():
                self._reopen(f"no connection for {_GIVE_UP:.0f} s")
            if self._leave is not None and time.monotonic() >= self._leave[0]:
                away, self._leave = self._leave[1], None
                self._reopen("everything unacknowledged is to come again", away)
                continue  # what was just received comes again
            if messages and not self._stopped.is_set():
                self._sink.deliver(self._copies(messages))
            elif self._used_up():
                self._reopen("encrypted batches have used up what the broker may send")

    def _used_up(self) -> bool:
        """Whether nothing may come any more, now that nothing came: surely with half a queue that is not given back, and
        perhaps with less, as each partition has a queue of its own.
        """
        surely = 2 * self._unreturned >= self._request.queue
        return self._unreturned > 0 and (surely or time.monotonic() - self._opened_at >= _REOPEN)

    def _copies(self, messages: list[Any]) -> list[Delivery]:
        copied = self._copied
        try:
            copies = [copied(message) for message in messages]
        except Exception:  # of one of them: the others are as good as any
            log.exception("%s: a message cannot be read, which is a fault of ours", self._request.topic)
            copies = [_in_any_case(copied, message) for message in messages]
        self._unreturned += sum(
            unreturned(message) for message, copy in zip(messages, copies, strict=True) if copy.broken
        )
        return copies

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

    def _reopen(self, problem: str, away: float = 0.0) -> None:
        """The consumer is of no use any more (its topic was deleted, say): a new one, as soon as there can be one.

        Left alone, the client would try by itself, but after up to a minute between two tries.
        """
        self._too_long.clear()
        self._close_consumer()
        self._sink.disconnected()
        self._stopped.wait(away)
        while not self._stopped.is_set():
            log.error("%s: %s; subscribing again", self._request.topic, problem)
            try:
                self._consumer = self._subscribe()
            except ClusterError as again:
                problem = str(again)
                self._stopped.wait(_REOPEN)
            else:
                self._unreturned, self._opened_at = 0, time.monotonic()
                return


def _copied(message: Any) -> Delivery:
    """Everything needed, so that the client's object can go: a kept one pins its whole batch."""
    token = message.message_id()
    index = token.batch_index()
    entry = (token.ledger_id(), token.entry_id(), token.partition())
    payload, properties, key, ordering_key, happened, published, broken = content(message, alone=index < 0)
    return Delivery(entry, token, payload, properties, key, ordering_key, happened, published, index, broken)


def _in_any_case(copied: Callable[[Any], Delivery], message: Any) -> Delivery:
    """The copy, or what is sure of the message: its payload goes to the dead letters, and what is behind it goes on."""
    try:
        return copied(message)
    except Exception as problem:  # noqa: BLE001  # told already, for all of them
        token = message.message_id()
        entry = (token.ledger_id(), token.entry_id(), token.partition())
        broken = f"it cannot be read: {type(problem).__name__}"
        return Delivery(entry, token, message.data(), {}, "", "", 0, 0, token.batch_index(), broken)


def _copied_with_schema(level: str, message: Any) -> Delivery:
    """With the schema version: the broker's, or (from a topic without schemas) the one that the message carries."""
    delivery = _copied(message)
    version = schema_version(message)
    schema = f"{level}:{version}" if version >= 0 else delivery.properties.get(SCHEMA, "")
    return delivery._replace(schema=schema)
