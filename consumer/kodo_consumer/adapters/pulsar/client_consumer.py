"""Consumers of the client library behind one interface: read, acknowledge, close; and how they subscribe.

One takes a call of the library for each message. The other one, for lanes that the native border can read, takes one
for a bundle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.ack_receipts import acknowledge_list, with_receipts
from kodo_consumer.adapters.pulsar.client_close import close_client
from kodo_consumer.adapters.pulsar.delivery_decoding import DeliveryDecoder, ReadResult
from kodo_consumer.adapters.pulsar.silent_arrivals import SilentArrivals
from kodoctl.protocol.audit_records import RECORDS_METADATA
from kodoctl.pulsar.binary.message_decoding import as_they_are

if TYPE_CHECKING:
    from kodo_fast import NativeBorder
    from kodo_fast._native import Reader

    from kodo_consumer.adapters.pulsar.ack_results import AckResults
    from kodo_consumer.core.values.broker import LaneRequest

log = logging.getLogger("kodo.consumer")
MUCH: Final = 32  # messages there at once: a backlog
_MOST: Final = 10_000  # messages of a native bundle
_BATCH_WAIT: Final = 5  # ms a batch waits to be full
_TYPES: Final = {
    "shared": pulsar.ConsumerType.Shared,
    "key_shared": pulsar.ConsumerType.KeyShared,
    "failover": pulsar.ConsumerType.Failover,
    "exclusive": pulsar.ConsumerType.Exclusive,
}


class ClientConsumer:
    """A consumer of the client library, by its own calls. `read`, `poll` and `silent` are for one thread."""

    def __init__(self, consumer: Any, request: LaneRequest) -> None:
        self.silent = SilentArrivals(self.poll, ordered=request.type != "shared")
        self._consumer, self._request = consumer, request
        self._decoder = DeliveryDecoder(request)
        self.reader: Reader | None = None  # of the native border

    def is_connected(self) -> bool:
        """True if messages can come now."""
        connected: bool = self._consumer.is_connected()
        return connected

    def listen(self, came: Callable[[Any, Any], None]) -> None:
        """Requests the next message; returns at once. `came` is called with the client's result and the message, at
        most once, on a thread of the client or within this call; it may miss messages (see SilentArrivals). The message
        counts only if the result is Ok.
        """
        self._consumer._consumer.receive_async(came)  # noqa: SLF001  # public only for asyncio

    def read(self, first: Any, *, at_once: bool) -> ReadResult:
        """Returns messages that have arrived, in the broker's order. Raises pulsar.PulsarException.

        Args:
            first: message that has just come and is returned as the first one; None: more was there than could be read
                at once, so a whole batch is read, which waits 5 ms at most to be full.
            at_once: the message was there already, so those behind it are returned as well, 32 in all, or a batch of
                the request if that is less; False: only `first` is returned.

        Each call lets other threads have the interpreter: a batch in one call is what a backlog needs, but it waits to
        be full, which a trickle must not.
        """
        if first is None:
            return self._decoder.decode(self._consumer.batch_receive())
        messages = [_message(first)]
        if at_once:
            try:
                while len(messages) < min(MUCH, self._request.batch):
                    messages.append(self._consumer.receive(0))
            except pulsar.Timeout:
                pass
        return self._decoder.decode(messages)

    def poll(self) -> ReadResult:
        """The next message if it is there, without waiting, else an empty result. Raises pulsar.PulsarException."""
        try:
            return self._decoder.decode([self._consumer.receive(0)])
        except pulsar.Timeout:
            return ReadResult([])

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Queues acknowledgements of messages of this consumer. One that fails is logged (as debug), not raised, and
        the others are queued all the same, because nobody would send them again.
        """
        for token in tokens:
            try:
                self._consumer.acknowledge(token)
            except pulsar.PulsarException as problem:
                log.debug("%s: acknowledgement lost: %s", self._request.topic, problem)

    def acknowledge_with(
        self, tokens: Sequence[object], tickets: Sequence[int], results: AckResults, sink: int
    ) -> None:
        """Queues acknowledgements whose common result comes, with their tickets, to the sink with the number `sink`.
        The consumer must have subscribed by a client of `with_receipts`. `tickets`: one for each token. Raises as
        `acknowledge_list` does.
        """
        acknowledge_list(self._consumer._consumer, tokens, partial(results.binding.put, sink, tickets))  # noqa: SLF001  # named nowhere else

    def close(self) -> None:
        """Closes the consumer, which sends its queued acknowledgements, and waits for the broker's answer, or for the
        client's time-out. Raises nothing: a failure of the close is logged (as debug), such as that of a consumer that
        is closed already.
        """
        try:
            self._consumer.close()
        except (pulsar.PulsarException, ValueError) as problem:  # ValueError: the wrapper's way to say "closed already"
            log.debug("%s: %s", self._request.topic, problem)


class NativeConsumer(ClientConsumer):
    """A consumer of the client library that is read and acknowledged in bundles. Messages that only the library's own
    binding can read (encrypted ones, texts that are not UTF-8) come as its objects and are decoded as everywhere. The
    constructor raises RuntimeError, TypeError or AttributeError if the border does not recognise the object, or if
    acknowledgements are to be confirmed and the border, of an earlier release, gives no results of them.
    """

    def __init__(self, consumer: Any, request: LaneRequest, border: NativeBorder) -> None:
        super().__init__(consumer, request)
        if request.confirms and not hasattr(border.reader, "acknowledge_with"):
            raise AttributeError("it gives no results of acknowledgements")
        self.reader = self._reader = border.reader(consumer._consumer)  # noqa: SLF001  # named nowhere else
        self._most = min(max(1, request.batch), _MOST)

    def read(self, first: Any, *, at_once: bool) -> ReadResult:  # noqa: ARG002  # what else is there costs no call
        """Returns the messages that are ready, in the broker's order: `first`, unless it is None, and those after it,
        up to the request's numbers of messages (10,000 at most) and bytes (the message that reaches the bytes is the
        last one). Without `first` it waits 5 ms at most for a message. `at_once` has no effect. Raises
        pulsar.PulsarException if the read fails before there is any message.
        """
        return self._read_batch(first, self._most, max(1, self._request.batch_bytes), _BATCH_WAIT)

    def poll(self) -> ReadResult:
        """The next message if it is there, without waiting, else an empty result. Raises pulsar.PulsarException."""
        return self._read_batch(None, 1, 1, 0)

    def _read_batch(self, first: Any, most: int, most_bytes: int, wait: int) -> ReadResult:
        deliveries, odd, result = self._reader.read(first, most, most_bytes, wait)
        if result and not deliveries:
            raise pulsar.PulsarException(str(pulsar.Result(result)))
        if not odd:
            return ReadResult(deliveries)
        unreturned = 0
        for index, raw in odd:
            decoded = self._decoder.decode([_message(raw)])
            (deliveries[index],) = decoded.deliveries
            unreturned += decoded.unreturned
        return ReadResult(deliveries, unreturned)

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Queues acknowledgements in one call."""
        others = self._reader.acknowledge(tokens)
        if lost := self._reader.failures():
            log.debug("%s: %d acknowledgements lost", self._request.topic, lost)
        if others:
            super().acknowledge(others)

    def acknowledge_with(
        self, tokens: Sequence[object], tickets: Sequence[int], results: AckResults, sink: int
    ) -> None:
        """Queues acknowledgements in one call, whose results come to the sink with the number `sink`, many at a time.
        For tokens that are not the border's, does as ClientConsumer does. `tickets`: one for each token.
        """
        assert results.native is not None  # a border without results reads no lane that wants them
        others = self._reader.acknowledge_with(tokens, tickets, results.native, sink)
        if others:
            super().acknowledge_with([tokens[at] for at in others], [tickets[at] for at in others], results, sink)


class Subscriber:
    """Subscribes by one client, which it owns. `border`: native border for the lanes; None: the client's own binding
    reads every lane. `results`: takes results of acknowledgements, for lanes that want them; None: no lane does.
    """

    def __init__(self, client: Any, border: NativeBorder | None = None, results: AckResults | None = None) -> None:
        self._client, self._border, self.results = client, border, results

    def partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions in order; of a topic without partitions, the topic's name alone. Blocks
        until the broker answers, or until the client's time-out. Raises pulsar.PulsarException.
        """
        names: list[str] = self._client.get_topic_partitions(topic)
        return names

    def close(self) -> None:
        """Closes the client, whose consumers the caller has closed, then hands over the last results. Takes some
        seconds at most. Never raises.
        """
        close_client(self._client, "the client of the binary port")
        if self.results is not None:
            self.results.close()

    def subscribe(self, request: LaneRequest) -> ClientConsumer:
        """Subscribes to a partition, and returns the consumer. A subscription that does not exist is created, and
        begins with the earliest message. The client's own binding reads a lane with schemas, and one whose consumer the
        native border refuses, which is logged. Blocks until the broker answers, or until the client's time-out. Raises
        pulsar.PulsarException; ClusterError if acknowledgements are to be confirmed and the client library cannot
        confirm them.
        """
        client = with_receipts(self._client) if request.confirms else self._client
        consumer = client.subscribe(
            request.topic,
            request.subscription,
            _TYPES[request.type],
            consumer_name=request.consumer_name,
            properties={RECORDS_METADATA: "wait"} if request.records else None,
            receiver_queue_size=request.queue,
            max_total_receiver_queue_size_across_partitions=request.queue,
            initial_position=pulsar.InitialPosition.Earliest,
            batch_index_ack_enabled=True,
            **as_they_are(),
            batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(request.batch, request.batch_bytes, _BATCH_WAIT),
        )
        if self._border is not None and not request.schemas:
            try:
                return NativeConsumer(consumer, request, self._border)
            except (RuntimeError, TypeError, AttributeError) as problem:
                log.warning("%s: read without the native border: %s", request.topic, problem)
        return ClientConsumer(consumer, request)


def _message(raw: Any) -> Any:
    """The client library's message, as its own `receive` wraps it."""
    message = pulsar.Message()
    message._message = raw  # noqa: SLF001  # public only for asyncio
    return message
