"""Send calls: how messages get to a producer of the client library, one a call, or by the native border in bundles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.receipts import failure_receipt

if TYPE_CHECKING:
    from kodo_fast import NativeBorder
    from kodo_fast._native import Producer, Sender

    from kodo_consumer.adapters.pulsar.schema_passthrough import Key
    from kodo_consumer.core.values.broker import Receipt
    from kodo_consumer.core.values.envelope import Outgoing

OnResult = Callable[[int, "Key", Any, Any, Any], None]
"""Called with a ticket, the key and the producer it was sent by, the client's result and the position of the message."""
OnStored = Callable[["Key", Sequence[tuple[int, Any]]], None]
"""Function that gets the key of a producer and its stored messages: see Stored."""
OnFailure = Callable[[int, "Receipt", "Key"], None]
"""Called with the ticket of a message that could not be given to the client, its receipt, which says why, and the key."""
Stored = Sequence[tuple[int, Any]]
"""Tickets of messages that are stored, each with its position."""
NotStored = Sequence[tuple[int, int, Any]]
"""Tickets of others, each with the client's result as a number and the position that came with it, if any did."""
NativeResult = tuple[int, Stored, NotStored]
"""Number of a producer, with its stored messages and its failed ones."""
OnNativeResults = Callable[[Stored, NotStored], None]
_MOST: Final = (
    1_024  # messages that wait for others: each call is one turn of the interpreter, of 5 ms where it is busy
)
_RESULTS: Final = {int(result): result for result in pulsar.Result.__members__.values()}


class SendCalls:
    """Sends each message by a call of its own into the client library. One thread calls the methods. `on_result`: gets
    the result of each send that the library accepts, also a failure, on a thread of the library or within the call;
    `on_failure`: gets, within the call, the receipt of a message for which the library raises an exception. `local`:
    messages are not replicated to other clusters. `in_bundles`: True if `send_all` costs less than a `send` of each
    message.
    """

    in_bundles = False

    def __init__(self, on_result: OnResult, on_failure: OnFailure, *, local: bool) -> None:
        self._on_result, self._on_failure, self._local = on_result, on_failure, local

    def send(self, ticket: int, message: Outgoing, key: Key, producer: Any) -> None:
        """Hands a message to the client library now; a subclass may queue it until `flush`. Raises no error of the
        message or of the library: `on_failure` gets it as a receipt, or `on_result` as a result.
        """
        try:
            producer.send_async(
                message.payload,
                partial(self._on_result, ticket, key, producer),
                properties=dict(message.properties),
                partition_key=message.key or None,
                ordering_key=message.ordering_key or None,
                event_timestamp=message.event_time or None,
                deliver_at=message.deliver_at,
                disable_replication=self._local,
            )
        except Exception as problem:  # noqa: BLE001  # also of a message that the client cannot even build
            self._on_failure(ticket, failure_receipt(problem), key)

    def send_all(self, messages: Sequence[tuple[int, Outgoing]], key: Key, producer: Any) -> None:
        """Sends several messages of one producer as `send` does, in their order."""
        for ticket, message in messages:
            self.send(ticket, message, key, producer)

    def flush(self) -> None:
        """Sends the messages that a subclass has queued; here it does nothing, because `send` queues none."""

    def close(self) -> None:
        """Drops the messages that a subclass has queued; here it does nothing. The caller sends nothing afterwards."""


class NativeResults:
    """Results of the sends of one publisher by the native border (the C++ module). The border gathers them until `wait`
    returns them; `take` passes them to the functions that `add` registered. One thread calls `wait` and `take`, any
    thread the other methods. `sender`: the border's object that sends.
    """

    def __init__(self, border: NativeBorder) -> None:
        self.border = border
        self.sender: Sender = border.sender()
        self._lock = threading.Lock()  # around the three below
        self._routes: dict[int, OnNativeResults] = {}
        self._outstanding: dict[int, int] = {}
        self._retired: set[int] = set()
        self._last = 0

    def add(self, producer: Any, on_results: OnNativeResults) -> tuple[int, Producer]:
        """Registers a producer of the client library. `on_results` gets, from `take`, its stored messages and all
        others (failed ones and duplicates). Returns (a new number of the producer, its native producer).
        Raises RuntimeError, TypeError or AttributeError, and registers nothing, if the border does not recognise the
        object.
        """
        with self._lock:
            self._last += 1
            number = self._last
        found = self.border.producer(producer._producer, number)  # noqa: SLF001  # named nowhere else
        self._outstanding[number] = 0
        self._routes[number] = on_results
        return number, found

    def sent(self, number: int, count: int) -> None:
        """Adds `count`, which may be negative, to the number of results that are still to come from the producer
        `number`. Call it before the border gets the messages, because results may come at once; then take back those
        that the border did not send. Raises KeyError for a producer that is forgotten (see `retire`).
        """
        with self._lock:
            self._outstanding[number] += count

    def retire(self, number: int) -> None:
        """Notes that a producer sends nothing more: it is forgotten with its last result, at once if none is due."""
        with self._lock:
            self._retired.add(number)
            self._forget(number)

    def wait(self, seconds: float, gather: float) -> Sequence[NativeResult]:
        """Waits at most `seconds` for a result or for `wake`, then `gather` seconds more for other results, and returns
        all that came, by producer; empty if none came. A `wake` since the last call counts, too.
        """
        return self.sender.receipts(round(seconds * 1000), round(gather * 1000))

    def take(self, results: Sequence[NativeResult]) -> None:
        """Passes results of `wait`, each once, to the functions of their producers. Raises only what these raise."""
        for number, stored, others in results:
            self._routes[number](stored, others)
        with self._lock:
            for number, stored, others in results:
                self._outstanding[number] -= len(stored) + len(others)
                self._forget(number)

    def wake(self) -> None:
        """Ends a `wait`."""
        self.sender.wake()

    def _forget(self, number: int) -> None:
        if number in self._retired and self._outstanding.get(number, 0) <= 0:
            self._retired.discard(number)
            self._outstanding.pop(number, None)
            self._routes.pop(number, None)


class NativeSendCalls(SendCalls):
    """Sends messages in bundles by the native border (the C++ module), each producer's in their order. A message that
    the border cannot build (such as one with a NUL in a text, which C would cut, or with a value of a wrong type) goes
    by a call of its own, in its turn; so does each message of a producer that the border does not recognise.
    """

    in_bundles = True

    def __init__(
        self, on_result: OnResult, on_stored: OnStored, on_failure: OnFailure, results: NativeResults, *, local: bool
    ) -> None:
        super().__init__(on_result, on_failure, local=local)
        self._results, self._on_stored = results, on_stored
        self._native: dict[
            Key, tuple[Any, int, Producer | None]
        ] = {}  # producers of the client's, as the border knows them
        self._waiting: dict[Key, tuple[Any, list[tuple[int, Outgoing]]]] = {}
        self._count = 0

    def send(self, ticket: int, message: Outgoing, key: Key, producer: Any) -> None:
        """Queues a message until `flush`."""
        self.send_all([(ticket, message)], key, producer)

    def send_all(self, messages: Sequence[tuple[int, Outgoing]], key: Key, producer: Any) -> None:
        """Queues messages until `flush`. Calls `flush` itself once 1,024 messages of all producers are queued, and
        first if messages of the key are queued for another producer.
        """
        waiting = self._waiting.get(key)
        if waiting is None or waiting[0] is not producer:
            if waiting is not None:
                self.flush()
            waiting = self._waiting[key] = producer, []
        waiting[1].extend(messages)
        self._count += len(messages)
        if self._count >= _MOST:
            self.flush()

    def flush(self) -> None:
        """Sends all queued messages, those of each producer in one bundle, or in several around messages that the
        border cannot build.
        """
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for key, (producer, messages) in waiting.items():
            self._flush(key, producer, messages)

    def close(self) -> None:
        """Drops the queued messages, and retires the registered producers without closing them (NativeResults.retire):
        results of messages that were sent are still reported.
        """
        self._waiting, self._count = {}, 0
        for _, number, _ in self._native.values():
            self._results.retire(number)
        self._native = {}

    def _flush(self, key: Key, producer: Any, messages: list[tuple[int, Outgoing]]) -> None:
        number, native = self._native_producer(key, producer)
        while messages:
            count = 0
            if native is not None:
                self._results.sent(number, len(messages))
                count = self._results.sender.publish(native, messages, self._local)
                self._results.sent(number, count - len(messages))
            for ticket, message in messages[count : count + 1]:
                super().send(ticket, message, key, producer)
            messages = messages[count + 1 :]

    def _native_producer(self, key: Key, producer: Any) -> tuple[int, Producer | None]:
        """The border's object of a producer; None: it takes the calls of the binding."""
        known = self._native.get(key)
        if known is None or known[0] is not producer:
            if known is not None:
                self._results.retire(known[1])
            try:
                number, native = self._results.add(producer, partial(self._on_answers, key, producer))
                known = producer, number, native
            except (RuntimeError, TypeError, AttributeError):
                known = producer, 0, None
            self._native[key] = known
        return known[1], known[2]

    def _on_answers(self, key: Key, producer: Any, stored: Stored, others: NotStored) -> None:
        if stored:
            self._on_stored(key, stored)
        for ticket, result, position in others:
            self._on_result(ticket, key, producer, _RESULTS.get(result, pulsar.Result.UnknownError), position)


def send_calls(
    on_result: OnResult, on_stored: OnStored, on_failure: OnFailure, results: NativeResults | None, *, local: bool
) -> SendCalls:
    """Returns new send calls for one client's producers: by the native border with its `results`, or one by one if
    `results` is None. `on_stored`: gets the stored messages of those that the border sent; `on_result` gets every other
    result, also of stored messages that went by a call of their own. Results of the border come on the thread that
    calls `NativeResults.take`. `on_result`, `on_failure`, `local`: see SendCalls.
    """
    if results is None:
        return SendCalls(on_result, on_failure, local=local)
    return NativeSendCalls(on_result, on_stored, on_failure, results, local=local)
