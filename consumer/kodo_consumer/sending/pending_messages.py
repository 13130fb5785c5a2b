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
    """A message without receipt, or a mark. `number`: sequence number; None: a mark, or the publisher does not number;
    `at`: time of sending, in monotonic seconds; `topic`: the partition.
    """

    on_receipt: OnStored
    number: Number | None
    at: float
    topic: str


class PendingMessages:
    """Messages without receipt, by ticket, oldest first. Not thread-safe: the caller locks. Each partition may have an
    equal part of the 20,000 messages (MOST) that may be without receipt, so that a partition without receipts does not
    block the others.
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
        """The message that was sent first; None if there is none."""
        return next(iter(self._sent.values()), None)

    def add(self, ticket: int, sent: PendingSend) -> None:
        """Adds a message that was sent."""
        self._sent[ticket] = sent
        self._by_partition[sent.topic] += 1

    def take(self, ticket: int) -> PendingSend | None:
        """Removes and returns a message, because it has a receipt or was given up. None: it was removed before."""
        sent = self._sent.pop(ticket, None)
        if sent is not None:
            self._by_partition[sent.topic] -= 1
        return sent

    def of(self, partition: str) -> int:
        """Returns the number of messages without receipt that were sent to a partition."""
        return self._by_partition[partition]

    def has_room(self, partition: str, among: int) -> bool:
        """True if one more message may be sent to a partition. `among`: number of the topic's partitions."""
        return self._by_partition[partition] < -(-MOST // among)  # rounded up


class UnclaimedReceipts:
    """Failed receipts of messages that were posted without a callback, until they are reported. Thread-safe."""

    def __init__(self, topic: str) -> None:
        self._topic, self._lock = topic, threading.Lock()
        self._reasons: list[str] = []

    def take(self, receipt: Receipt) -> None:
        """Keeps the reason of a receipt that reports a failure; ignores any other receipt. The end of the program logs
        the failures that `tell` has not reported before.
        """
        if not isinstance(receipt, Confirmed):
            with self._lock:
                self._reasons.append(receipt.reason)
                program_end.register(self)

    def tell(self, missing: int) -> None:
        """Raises ClusterError if a message has failed that was not reported before, or if `missing` is not 0; all of
        them count as reported then. `missing`: number of messages without a receipt in time.
        """
        if detail := self._loss_text(missing):
            raise ClusterError(error("K715", "message without receipt", detail))

    def end(self, seconds: float) -> str:  # noqa: ARG002  # nothing is awaited here
        """Returns a text about the failed messages that were not reported before, "" if there are none; does not wait.
        See kodo_consumer.sending.program_end.Unfinished.
        """
        return self._loss_text(0)

    def _loss_text(self, missing: int) -> str:
        with self._lock:
            lost, self._reasons = self._reasons + ["no receipt in time"] * missing, []
            program_end.unregister(self)
        return f"{many(len(lost), 'message')} for {self._topic}; the first: {lost[0]}" if lost else ""


def not_stored(topic: str, receipt: Unconfirmed | Rejected, size: int) -> ClusterError:
    """Returns the error for a message without a receipt, or with one that reports a failure. The text says if the
    message may have been stored. `size`: bytes of payload.
    """
    if receipt == Rejected(TOO_BIG):
        detail = f"{topic}: {size} bytes of payload are more than the broker takes: `maxMessageSize` of its configuration, 5 MiB unless changed, or of the topic; it was not stored"
        return ClusterError(error("K729", "message too large", detail))
    sure = "it was not stored" if isinstance(receipt, Rejected) else "it may have been stored"
    return ClusterError(error("K715", "message without receipt", f"{topic}: {receipt.reason}; {sure}"))
