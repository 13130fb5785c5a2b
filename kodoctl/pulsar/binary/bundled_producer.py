"""A recall's producer that uses the native border (the C++ module): it sends numbered messages and gets their receipts
in bundles.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from kodoctl.pulsar.binary.recall_transport import DedupProducer, RecalledMessage, Receipt, RejectedError, pass_result
from kodoctl.pulsar.connection.native_border import result_of

if TYPE_CHECKING:
    from kodo_fast import MessageBorder

    from kodoctl.pulsar.binary.client import BrokerClient

_MOST: Final = 500  # messages of a bundle
_MOST_BYTES: Final = 1024 * 1024
_WAIT_MS: Final = 500  # for receipts, in one call
_GATHER_MS: Final = 3  # a receipt waits for others
OnReceipt = Callable[[Receipt], None]


class BundledProducer(DedupProducer):
    """DedupProducer that queues messages until `flush`, sends them by the native border (the C++ module), and calls
    `on_receipt` in a thread of its own. Messages that the border cannot build (a NUL in a text, which C would cut), or
    that need another compression than the topic's, are sent by Python's binding, in the same order, with `on_receipt`
    as `DedupProducer.send` calls it.
    """

    def __init__(
        self, client: BrokerClient, part: str, name: str, largest: int, declared: str, border: MessageBorder
    ) -> None:
        """Opens the producer and starts the thread for receipts. Raises RuntimeError, TypeError or AttributeError if
        the border does not know the client library's object (the producer is then closed), and the errors of
        `DedupProducer`.
        """
        super().__init__(client, part, name, largest, declared)
        self._border, self._sender = border, border.sender()
        try:
            self._native = self._native_producer()
        except BaseException:
            super().close()
            raise
        self._queue: list[tuple[int, RecalledMessage]] = []
        self._bytes = 0
        self._large: set[int] = set()  # numbers of messages that are within the topic's maximum in another way only
        self._unanswered: dict[int, tuple[OnReceipt, int]] = {}  # by number, with the bytes of the payload
        self._over, self._passed = False, self.last_number
        self._thread = threading.Thread(target=self._receive, name="kodoctl-receipts", daemon=True)
        self._thread.start()

    def send(self, number: int, message: RecalledMessage, on_receipt: OnReceipt) -> None:
        """Queues a message, which `flush` sends. Raises RejectedError if its number does not rise, or if the message is
        above the topic's own limit even when compressed.
        """
        self._check_number(number)
        if self._largest and self._algorithm_for(message) != self._declared:
            self._large.add(number)
        size = len(message.payload or b"")
        self._unanswered[number] = on_receipt, size
        self._queue.append((number, message))
        self._bytes += size

    @property
    def full(self) -> bool:
        """True if the queue has a full bundle, so that the caller should call `flush`."""
        return len(self._queue) >= _MOST or self._bytes >= _MOST_BYTES

    def flush(self) -> bool:
        """Sends the queued messages. Returns False if the client refused one: later messages are then still queued, as
        in `DedupProducer.flush`. Raises ClusterError, LockedError.
        """
        import pulsar

        while self._queue:
            tried, result = self._publish()
            waiting, self._queue = self._queue, self._queue[tried:]
            if result and result_of(result) == pulsar.Result.MessageTooBig:
                self._queue = waiting[tried - 1 :]
            elif result:
                self._answer(waiting[tried - 1][0], result, None)
                return False
            if self._queue:
                (number, message), *self._queue = self._queue
                if not self._send_by_binding(number, message):
                    return False
        self._bytes = 0
        return True

    def _publish(self) -> tuple[int, int]:
        """Passes queued messages to the client, up to the first that needs another way. Returns the number of messages
        tried, and the result code of the last one if the client refused it, else 0.
        """
        fit = list(takewhile(self._fits, self._queue)) if self._large else self._queue
        if not fit:
            return 0, 0
        if self._largest and self._algorithm != self._declared:
            self._change_producer(self._declared)
        return self._sender.publish_numbered(self._native, fit, True)

    def _fits(self, waiting: tuple[int, RecalledMessage]) -> bool:
        """True if a queued message is not known to need another compression than the topic's."""
        return waiting[0] not in self._large

    def _send_by_binding(self, number: int, message: RecalledMessage) -> bool:
        on_receipt, _ = self._unanswered.pop(number)
        self._large.discard(number)
        refused = False

        def take(receipt: Receipt) -> None:
            nonlocal refused
            refused = refused or receipt.never
            on_receipt(receipt)

        try:
            self._post(number, message, take)
        except RejectedError as problem:  # a number that the broker has passed may be this letter's, stored before
            on_receipt(Receipt("", str(problem), never=number > self._passed))
            return False
        return not refused

    def _change_producer(self, algorithm: str) -> None:
        """Changes the producer as DedupProducer does, then the object of the border."""
        super()._change_producer(algorithm)
        self._native = self._native_producer()

    def _native_producer(self) -> Any:
        """Creates the border's object for the present producer."""
        return self._border.producer(self._producer._producer, 0)  # noqa: SLF001  # named nowhere else

    def close(self) -> None:
        """Closes the producer as `DedupProducer.close` does, and waits at most 1 s for its thread to end."""
        super().close()
        self._over = True
        self._sender.wake()
        self._thread.join(1.0)

    def _receive(self) -> None:
        while True:
            over = self._over
            for _, stored, others in self._sender.receipts(_WAIT_MS, _GATHER_MS):
                for number, position in stored:
                    on_receipt, _ = self._unanswered.pop(number)
                    on_receipt(Receipt(f"{position.ledger_id()}:{position.entry_id()}"))
                for number, result, no_position in others:
                    self._answer(number, result, no_position)
            if over:
                return

    def _answer(self, number: int, result: int, position: Any) -> None:
        on_receipt, size = self._unanswered.pop(number)
        pass_result(on_receipt, size, result_of(result), position)


def dedup_producer(client: BrokerClient, part: str, name: str, largest: int = 0, declared: str = "") -> DedupProducer:
    """Opens the producer of a recall on a partition: a `BundledProducer` if this process uses the native border (the
    C++ module) and the border knows the client library's object, otherwise a plain `DedupProducer`. Parameters and
    errors: see `DedupProducer`.
    """
    if (border := client.border) is not None:
        with contextlib.suppress(RuntimeError, TypeError, AttributeError):
            return BundledProducer(client, part, name, largest, declared, border)
    return DedupProducer(client, part, name, largest, declared)
