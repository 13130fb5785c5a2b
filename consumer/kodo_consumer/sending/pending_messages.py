"""Pending messages of a producer, which have no receipt yet, and the error for a message whose receipt fails or is
missing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.core.values.broker import TOO_BIG, Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.sending import program_end
from kodoctl.errors import ClusterError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.protocol.sequence_numbers import Number

OnStored = Callable[[Receipt], None]
MOST: Final = 20_000  # messages without receipt; each partition has an equal part of them


class PendingSend(NamedTuple):
    """A message, or a mark, that was published and has no receipt yet. `on_receipt`: gets the receipt, or a failure;
    `number`: sequence number, None: a mark, or the publisher does not number; `at`: time of publishing, in monotonic
    seconds; `topic`: full name of the partition, of a plain topic its own.
    """

    on_receipt: OnStored
    number: Number | None
    at: float
    topic: str


class PendingMessages:
    """Messages and marks without receipt, by ticket; iteration yields the tickets in the order of `add`. Not
    thread-safe: the caller locks. `has_room` allows each partition an equal part of 20,000 messages (MOST), so that a
    partition without receipts does not block the others; `add` refuses nothing.
    """

    def __init__(self) -> None:
        self._sent: dict[int, PendingSend] = {}
        self._by_partition: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._sent))

    @property
    def oldest(self) -> PendingSend | None:
        """The message, or mark, without receipt that was added first; None if there is none."""
        return next(iter(self._sent.values()), None)

    def add(self, ticket: int, sent: PendingSend) -> None:
        """Adds a message that was sent."""
        self._sent[ticket] = sent
        self._by_partition[sent.topic] += 1

    def take(self, ticket: int) -> PendingSend | None:
        """Removes and returns a message, because it has a receipt or was given up. None: there is none of this ticket,
        perhaps because it was removed before.
        """
        sent = self._sent.pop(ticket, None)
        if sent is not None:
            self._by_partition[sent.topic] -= 1
        return sent

    def of(self, partition: str) -> int:
        """Returns the number of messages, with marks, that were sent to a partition and have no receipt."""
        return self._by_partition[partition]

    def has_room(self, partition: str, among: int) -> bool:
        """True if fewer messages and marks of a partition than its part of MOST (rounded up) have no receipt. `among`:
        number of the topic's partitions, at least 1.
        """
        return self._by_partition[partition] < -(-MOST // among)  # rounded up


class UnclaimedReceipts:
    """Failures of messages for whose receipts the program gave no callback (of `post` without one, and of a `send_many`
    that was interrupted), until they are reported. Thread-safe.
    """

    def __init__(self, topic: str) -> None:
        self._topic, self._lock = topic, threading.Lock()
        self._reasons: list[str] = []

    def take(self, receipt: Receipt) -> None:
        """Keeps the reason of a receipt that reports a failure; ignores any other receipt. A normal end of the program
        logs how many failures `tell` has not reported before, and the first reason.
        """
        if not isinstance(receipt, Confirmed):
            with self._lock:
                self._reasons.append(receipt.reason)
                program_end.register(self)

    def tell(self, missing: int) -> None:
        """Raises ClusterError if messages have failed that were not reported before, or if `missing` is not 0; the
        failures count as reported then. `missing`: number of messages without a receipt in time; they are not
        remembered, so that one of them that fails later counts again.
        """
        if detail := self._loss_text(missing):
            raise ClusterError(error("K715", "message without receipt", detail))

    def end(self, seconds: float) -> str:  # noqa: ARG002  # nothing is awaited here
        """Returns a text with the number of failures that were not reported before, and the first reason; they count as
        reported then. "": there are none. Does not wait. See kodo_consumer.sending.program_end.Unfinished.
        """
        return self._loss_text(0)

    def _loss_text(self, missing: int) -> str:
        with self._lock:
            lost, self._reasons = self._reasons + ["no receipt in time"] * missing, []
            program_end.unregister(self)
        return f"{many(len(lost), 'message')} for {self._topic}; the first: {lost[0]}" if lost else ""


def not_stored(topic: str, receipt: Unconfirmed | Rejected, size: int) -> ClusterError:
    """Returns the error for a message without a receipt, or with one that reports a failure: K729 if the message is too
    big for the broker, else K715. The text says that the message was not stored (Rejected), or may have been stored
    (Unconfirmed). `size`: bytes of payload, for the text of K729.
    """
    if receipt == Rejected(TOO_BIG):
        detail = f"{topic}: {size} bytes of payload are more than the broker takes: `maxMessageSize` of its configuration, 5 MiB unless changed, or of the topic; it was not stored"
        return ClusterError(error("K729", "message too large", detail))
    sure = "it was not stored" if isinstance(receipt, Rejected) else "it may have been stored"
    return ClusterError(error("K715", "message without receipt", f"{topic}: {receipt.reason}; {sure}"))
