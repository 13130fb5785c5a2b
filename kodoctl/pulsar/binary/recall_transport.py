"""The two ends of a recall on the binary port: the exclusive consumer of dead letters, and the producer of a lane,
whose broker stores each number once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kodoctl.errors import ClusterError, LockedError, error
from kodoctl.protocol.audit_records import RECORDS_METADATA
from kodoctl.protocol.compression import TOO_LARGE, algorithm_within, next_algorithm
from kodoctl.protocol.wire_size import on_the_way
from kodoctl.pulsar.binary.client import CLOSE_S, BrokerClient
from kodoctl.pulsar.binary.compression_types import compression_type
from kodoctl.pulsar.binary.exclusive_producer import RECEIPT_S
from kodoctl.pulsar.binary.message_decoding import as_they_are
from kodoctl.pulsar.binary.message_reader import (
    Place,
    ReadMessage,
    copy_message,
    position_of,
    read_stored,
)
from kodoctl.topology.names import partition_number, whole_topic

_LOCK_WAIT: Final = (
    15.0  # seconds: a broker frees what a killed process held within moments, over a network within these
)
_AGAIN: Final = 0.25
_PENDING: Final = 20_000  # messages without a receipt: more than any sender of ours has, so that it never waits for one
_LOOK_MS: Final = 500  # of a wait for a letter, between two looks whether the attempt is to stop
_REST_MS: Final = 1_000  # how long after the last entry's first message the others of its batch may take

Where = tuple[int, int, int, int]
"""(partition, ledger, entry, batch)."""


class RecalledMessage(NamedTuple):
    """A message that a recall sends. `event_time` and `due` (earliest delivery) are in ms since the epoch, 0: none;
    `payload` None: a tombstone.
    """

    payload: bytes | None
    properties: Mapping[str, str]
    key: str
    ordering_key: str
    event_time: int
    due: int = 0


class Receipt(NamedTuple):
    """Result of sending a message. `position` (`ledger:entry`): where it is stored, "" if the broker dropped it as a
    duplicate or there is a problem. `problem`: the reason why there is no receipt, "" if there is one; `never`: the
    message was certainly not stored (otherwise unknown).

    A dropped message was stored before if its number rose above all numbers that this producer sent, which
    `DedupProducer.send` ensures: then only the client's own repetition after a lost connection, or an earlier attempt,
    can have stored it. The latter is judged before anything is sent (kodoctl.recall.ledger.recovery).
    """

    position: str
    problem: str = ""
    never: bool = False


class RejectedError(Exception):
    """A message is unacceptable in itself, such as by its size. This call sent nothing to the broker, which may have
    stored the message's number in an earlier attempt. The text is the reason.
    """


class DeadLetterConsumer:
    """Exclusive consumer of the subscription that retains dead letters, so that one recall at a time works on them.

    Letters (dead-letter messages) are read by this consumer, because a message must be acknowledged by the consumer
    that received it: with a message id that a *reader* received, Pulsar's client acknowledges the first message of its
    batch as well (a reader marks it in the set of bits that they share: measured with 3.13, batches of 7). And an
    exclusive consumer has no limit of unacknowledged messages.
    """

    def __init__(self, client: BrokerClient, part: str, subscription: str, stop: threading.Event | None = None) -> None:
        """Subscribes to `part`, a topic or partition by its full name; a missing subscription is created, from the
        earliest message. `stop`: event after which waits for letters end. Raises LockedError if another consumer keeps
        the subscription for 15 s, ClusterError.
        """
        self._client, self._part, self._stop = client, part, stop or threading.Event()
        self._consumer = _lock_subscription(client, part, subscription)
        self._tokens: dict[Where, Any] | None = None
        self._next: tuple[Any, Any, Where] | None = None  # received, and behind what was asked for so far

    def unacknowledged(self, until: Place, only: Collection[Where]) -> Collection[Where]:
        """Receives messages up to the entry `until`, which must be unacknowledged. Returns the positions of `only` that
        are not acknowledged yet; some may be missing after `stop`. Raises ClusterError.

        The messages have to be received, because the admin API knows which entries are acknowledged but not which
        messages of a batch. The tokens of the received messages are kept, and `letters` then reads the same messages by
        a reader, because a consumer gets each message once.
        """
        self._tokens = {}
        for _, token, where in self._receive_messages(until):
            if where in only:
                self._tokens[where] = token
                if len(self._tokens) == len(only):
                    break
        return self._tokens.keys()

    def forget(self) -> None:
        """Drops the tokens that `unacknowledged` kept. Later calls of `letters` read by the consumer again, from the
        messages after those.
        """
        self._tokens = None

    def letters(self, until: Place, only: Container[Where]) -> Iterator[ReadMessage]:
        """Yields unacknowledged messages in order, up to the entry `until`, which must be unacknowledged. If the
        consumer connects again, those that are not acknowledged by then come once more. After `unacknowledged` (unless
        `forget` was called), only messages of `only` that it returned, read by a reader. Otherwise all messages, also
        those that are not in `only`: the next call then begins after `until`, and the call ends early if the command
        was stopped. Raises ClusterError, also if no letter comes for RECEIPT_S seconds (by the reader: 15 s).
        """
        if self._tokens is None:
            yield from (copy_message(message, token, where) for message, token, where in self._receive_messages(until))
            return
        wanted = {where for where in self._tokens if where in only}
        if not wanted:
            return
        (_, ledger, entry, _) = min(wanted)
        for stored in read_stored(self._client, self._part, until, after=(ledger, entry - 1), only=wanted):
            where = (stored.partition, stored.ledger, stored.entry, stored.batch)
            yield stored._replace(token=self._tokens[where])

    def _receive_messages(self, until: Place) -> Iterator[tuple[Any, Any, Where]]:
        """Yields (message, token, position) up to the entry `until`; ends early after `stop`. Raises ClusterError."""
        import pulsar

        number, reached = partition_number(self._part), False
        while True:
            try:
                if self._next is not None:
                    (message, token, where), self._next = self._next, None
                else:
                    message = self._consumer.receive(_REST_MS) if reached else self._next_message()
                    if message is None:
                        return
                    token = message.message_id()
                    where = position_of(token, number)
            except pulsar.Timeout:
                if reached:  # whatever of its batch was still there has come
                    return
                detail = f"{self._part}: no letter came within {RECEIPT_S:.0f} s"
                raise ClusterError(error("K561", "messages cannot be read", detail)) from None
            except pulsar.PulsarException as problem:
                raise ClusterError(error("K561", "messages cannot be read", f"{self._part}: {problem}")) from None
            if where[1:3] > until:
                self._next = message, token, where
                return
            reached = reached or where[1:3] == until
            yield message, token, where

    def _next_message(self) -> Any:
        """Waits for the next message, up to RECEIPT_S seconds while its broker is replaced, then raises pulsar.Timeout;
        None: `stop` was set.
        """
        import pulsar

        with contextlib.suppress(pulsar.Timeout):
            return self._consumer.receive(_LOOK_MS)
        with self._client.patience.waits.during(f"letters of {self._part}", RECEIPT_S) as wait:
            while not self._stop.is_set():
                try:
                    return self._consumer.receive(_LOOK_MS)
                except pulsar.Timeout:
                    if wait.seconds >= RECEIPT_S:
                        raise
        return None

    def acknowledge(self, token: Any) -> None:
        """Sends the acknowledgement of a letter of `letters`, given its token, without waiting for the broker. It may
        be lost, so the caller has to check the cursor later. Raises ClusterError.
        """
        import pulsar

        try:
            self._consumer.acknowledge(token)
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K562", "a letter cannot be acknowledged", f"{self._part}: {problem}")) from None

    def close(self) -> None:
        """Sends the gathered acknowledgements and closes the consumer, which frees the subscription. Never raises."""
        with contextlib.suppress(Exception):  # it ends with the connection in any case
            self._client.patience.call(self._consumer.close, f"the end of the consumer of {self._part}", CLOSE_S)


def token_of(partition: int, ledger: int, entry: int) -> Any:
    """Token of a message that is alone in its entry (no batch), for `DeadLetterConsumer.acknowledge`."""
    import pulsar

    return pulsar.MessageId(partition, ledger, entry, -1)


def _lock_subscription(client: BrokerClient, part: str, subscription: str) -> Any:
    import pulsar

    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            return client.ask(
                lambda opened: opened.subscribe(
                    part,
                    subscription,
                    pulsar.ConsumerType.Exclusive,
                    receiver_queue_size=1000,
                    properties={RECORDS_METADATA: "wait"},  # in the ledger, before a letter is acknowledged
                    initial_position=pulsar.InitialPosition.Earliest,
                    batch_index_ack_enabled=True,
                    **as_they_are(),
                ),
                f"{subscription} of {part}",
                late=lambda made: made.close(),
            )
        except pulsar.ConsumerBusy:
            if time.monotonic() >= deadline:
                detail = f"somebody reads {subscription} of {part}: another attempt, or a consumer made by hand"
                raise LockedError(error("K563", "another recall is running", detail)) from None
            time.sleep(_AGAIN)
        except pulsar.PulsarException as problem:
            detail = f"{subscription} of {part}: {problem}; this needs the right to consume it"
            raise ClusterError(error("K562", "a letter cannot be acknowledged", detail)) from None


class DedupProducer:
    """Producer with a fixed name on one partition whose broker drops sequence numbers that it has stored, so that each
    number is stored once. It sends without batches and without time-out, because each number has to have a known
    result. The constructor connects; it raises LockedError if another producer keeps the name for 15 s, else
    ClusterError.

    Args:
        part: full name of the partition.
        name: name of the producer.
        largest: bytes that the topic accepts; 0 if it has no limit of its own. The broker closes the connection for a
            larger message, and the client sends the message again for ever. Later messages then wait, or are stored
            first, so that the broker takes the number of the large one for stored.
        declared: algorithm with which messages are compressed; "": none. A message that is too large otherwise is
            compressed by another one (`kodoctl.protocol.compression`). Only one producer at a time can have the name
            and its numbers. So the producer of the other algorithm replaces the present one after every message has a
            receipt.
    """

    def __init__(self, client: BrokerClient, part: str, name: str, largest: int = 0, declared: str = "") -> None:
        self.part = part
        self._client, self._name, self._largest = client, name, largest
        self._declared = self._algorithm = declared
        self._sent = 0
        self._producer = self._open()

    @property
    def last_number(self) -> int:
        """The highest sequence number that the broker has stored for this producer name; -1 if none."""
        return int(self._producer.last_sequence_id())

    def send(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> None:
        """Sends a message with the sequence number `number`, which is at least 1 and rises from call to call. May wait
        for earlier receipts. A subclass may keep the message until `flush`. Raises RejectedError if the number does
        not rise, or if the message is above the topic's own limit or invalid; ClusterError, LockedError.

        `on_receipt` is called in a thread of the client, or in the calling thread if the broker's size limit refuses
        the message.
        """
        self._check_number(number)
        self._post(number, message, on_receipt)

    def _check_number(self, number: int) -> None:
        """Raises RejectedError unless a number is above all that this producer was given: the broker would drop the
        message, and confirm it as if it were stored.
        """
        if number <= self._sent:
            detail = f"its number {number:,} is not above {self._sent:,}, which was sent before on {self.part}"
            raise RejectedError(f"{detail}: the broker would drop it: plan again")
        self._sent = number

    def _post(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> None:
        """Sends a message whose number is checked. Raises the other errors of `send`."""
        import pulsar

        if (algorithm := self._algorithm_for(message)) != self._algorithm:
            self._change_producer(algorithm)
        try:
            while not self._sends(number, message, on_receipt):
                if not (algorithm := next_algorithm(self._declared, self._algorithm)):
                    on_receipt(Receipt("", _too_big(len(message.payload or b"")), never=True))
                    return
                self._change_producer(algorithm)
        except pulsar.InvalidMessage as problem:
            raise RejectedError(str(problem)) from None
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K564", "letters cannot be sent", f"{self.part}: {problem}")) from None

    def _sends(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> bool:
        """Passes a message to the client. False: it is too large; it was not sent, and its number is free."""
        import pulsar

        caller, too_large = threading.get_ident(), pulsar.Result.MessageTooBig
        refused = False

        def take(result: Any, position: Any) -> None:
            nonlocal refused
            if result == too_large and threading.get_ident() == caller:  # before anything was sent
                refused = True
            else:
                pass_result(on_receipt, len(message.payload or b""), result, position)

        try:
            self._producer.send_async(
                message.payload,
                take,
                properties=dict(message.properties),
                partition_key=message.key or None,
                ordering_key=message.ordering_key or None,
                event_timestamp=message.event_time or None,
                deliver_at=message.due or None,
                sequence_id=number,
                disable_replication=True,  # it died in this cluster; the others handle their own copy
            )
        except pulsar.MessageTooBig:
            return False
        return not refused

    @property
    def full(self) -> bool:
        """True if the queue is so long that the caller should call `flush`. Here always False: there is no queue."""
        return False

    def flush(self) -> bool:
        """Sends queued messages, without waiting for their receipts; this class has no queue. Returns False if sending
        stopped after a refused message, which has got its receipt: call `flush` again for the others.
        """
        return True

    def _algorithm_for(self, message: RecalledMessage) -> str:
        """Algorithm with which a message is within the topic's own maximum. Raises RejectedError if there is none. If
        the topic has no maximum, the present producer stays: the client library knows the broker's.
        """
        if not self._largest:
            return self._algorithm
        size = on_the_way(message.payload, message.properties, message.key, message.ordering_key, self._name)
        algorithm = algorithm_within(self._declared, message.payload, size, self._largest, is_free=True)
        if algorithm is not None:
            return algorithm or self._declared
        topic = whole_topic(self.part)
        detail = (
            f"{size:,} bytes with its properties; {topic} takes {self._largest:,} (`max_message_size`); {TOO_LARGE}"
        )
        raise RejectedError(detail)

    def _change_producer(self, algorithm: str) -> None:
        """Waits for all receipts, then replaces the producer by one with another algorithm. Raises ClusterError,
        LockedError.
        """
        import pulsar

        try:
            self._client.patience.call(self._producer.flush, f"receipts of {self.part}", RECEIPT_S)
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K564", "letters cannot be sent", f"{self.part}: {problem}")) from None
        self._close_producer()
        self._algorithm = algorithm
        self._producer = self._open()

    def _open(self) -> Any:
        options = {"compression_type": compression_type(self._algorithm)} if self._algorithm else {}
        return _producer(self._client, self.part, self._name, **options)

    def close(self) -> None:
        """Closes the producer, which frees its name for other processes. Never raises."""
        self._close_producer()

    def _close_producer(self) -> None:
        with contextlib.suppress(Exception):  # it ends with the connection in any case
            self._client.patience.call(self._producer.close, f"the end of the producer of {self.part}", CLOSE_S)


def _producer(client: BrokerClient, part: str, name: str, **options: Any) -> Any:
    import pulsar

    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            return client.ask(
                lambda opened: opened.create_producer(
                    part,
                    producer_name=name,
                    send_timeout_millis=0,
                    batching_enabled=False,
                    block_if_queue_full=True,
                    max_pending_messages=_PENDING,
                    **options,
                ),
                f"a producer of {part}",
                late=lambda made: made.close(),
            )
        except pulsar.ProducerBusy:
            if time.monotonic() >= deadline:
                detail = f"{name} sends to {part} right now: this plan is being applied elsewhere"
                raise LockedError(error("K563", "another recall is running", detail)) from None
            time.sleep(_AGAIN)
        except pulsar.PulsarException as problem:
            detail = f"{part}: {problem}; this needs the right to produce there"
            raise ClusterError(error("K564", "letters cannot be sent", detail)) from None


def pass_result(on_receipt: Callable[[Receipt], None], size: int, result: Any, position: Any) -> None:
    """Converts the result of a send to a Receipt and calls `on_receipt` with it. `size`: bytes of the payload.
    Suppresses every exception, because an exception in the client's thread would end the process.
    """
    import pulsar

    with contextlib.suppress(BaseException):
        if result == pulsar.Result.Ok:  # first: each comparison of two results is a call of the binding
            known = position is not None and position.ledger_id() >= 0
            on_receipt(Receipt(f"{position.ledger_id()}:{position.entry_id()}" if known else ""))
        elif result == pulsar.Result.MessageTooBig:
            on_receipt(Receipt("", _too_big(size), never=True))
        else:
            on_receipt(Receipt("", result.name, never=result == pulsar.Result.InvalidMessage))


def _too_big(size: int) -> str:
    return (
        f"{size:,} bytes of payload and its properties; the broker takes less (`maxMessageSize`, 5 MiB unless changed),"
        f" {TOO_LARGE}"
    )
