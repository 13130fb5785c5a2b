"""Silent arrivals: messages that stay in the client library's queue although a reader waits for a callback with the
next message.

The library (4.2.0, `ConsumerImpl::executeNotifyCallback`) checks for a waiting reader, unlocks, and only then puts a
message into its queue. A reader that begins to wait in between found the queue empty and is called with the message
after it: too early for that one, and if there is none, never. The broker counts the message as delivered, so no other
consumer gets it either.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.adapters.pulsar.delivery_decoding import ReadResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from kodo_consumer.core.values.envelope import Delivery

LOOK_EVERY: Final = 0.5  # seconds between two looks, and that a call may be on its way


class SilentArrivals:
    """Silent arrivals of one consumer: messages that stay in the client library's queue although a reader waits for a
    callback with the next message. `poll`: takes the next message out of that queue without waiting; its result is
    empty if there is none. `ordered`: messages of a key keep their order. `empty_at`: time.monotonic() of the last
    `look` that polled and found nothing; -inf: never. For one thread.
    """

    def __init__(self, poll: Callable[[], ReadResult], *, ordered: bool) -> None:
        self._poll, self._ordered = poll, ordered
        self._early = ReadResult([])
        self.empty_at = float("-inf")

    def look(self) -> ReadResult:
        """Returns the message to deliver now, or none; polls the queue unless a message is kept. The reader calls it
        about every 0.5 s (`LOOK_EVERY`) while it waits for a callback.

        If order matters, a message that was polled is not returned but kept until the next `look` or `sort`, because
        the callback with the message before it may be under way. Raises pulsar.PulsarException if the poll does.
        """
        found, self._early = self._early, ReadResult([])
        if found.deliveries:
            return found
        found = self._poll()
        if not found.deliveries:
            self.empty_at = time.monotonic()
        if self._ordered and found.deliveries:
            self._early = found
            return ReadResult([])
        return found

    def sort(self, called: ReadResult) -> ReadResult:
        """Returns the deliveries `called` of a callback together with the message that `look` keeps, in the order of
        their positions; if `called` has fewer than two, polls the queue once and adds that message as well. If order
        does not matter, returns `called` unchanged. Raises pulsar.PulsarException if the poll does: all these messages
        are lost here then, and the caller must replace the consumer, so that the broker delivers them again.
        """
        if not self._ordered:
            return called
        early, self._early = self._early, ReadResult([])
        results = [early, called] if len(called.deliveries) > 1 else [early, called, self._poll()]
        deliveries = sorted((one for result in results for one in result.deliveries), key=_position)
        return ReadResult(deliveries, sum(result.unreturned for result in results))


def _position(delivery: Delivery) -> tuple[int, int, int]:
    """Position of a message in its partition: messages of one key arrive in this order, redelivered ones included."""
    token: Any = delivery.token
    return token.ledger_id(), token.entry_id(), token.batch_index()
