"""Send queue: messages for a publisher's thread. Those that are sent again go before those that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing


class SendQueue:
    """`take` is for one thread, the rest for any. `resent`: how often a message was sent again, by ticket;
    `compressed`: tickets of those that were too large as they were.
    """

    def __init__(self) -> None:
        self.resent: dict[int, int] = {}
        self.compressed: set[int] = set()
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._again: deque[tuple[int, Outgoing]] = deque()

    def extend(self, messages: Iterable[tuple[int, Outgoing]]) -> None:
        """Messages that nobody has sent yet."""
        self._waiting.extend(messages)

    def again(self, ticket: int, message: Outgoing) -> None:
        """A message that is to be sent once more."""
        self.resent[ticket] = self.resent.get(ticket, 0) + 1
        self._again.append((ticket, message))

    def compress(self, ticket: int, message: Outgoing) -> None:
        """A message that is to be sent compressed."""
        self.compressed.add(ticket)  # first: who takes the message looks there
        self._again.append((ticket, message))

    def take(self, most: int) -> list[tuple[int, Outgoing]]:
        """The next messages, at most so many; empty: there is none."""
        found: list[tuple[int, Outgoing]] = []
        with suppress(IndexError):  # perhaps dropped this moment
            while self._again and len(found) < most:
                found.append(self._again.popleft())
            waiting = self._waiting
            found += [waiting.popleft() for _ in range(min(most - len(found), len(waiting)))]
        return found

    def forget(self, tickets: Sequence[int]) -> None:
        """The messages have their receipts."""
        if self.resent:
            for ticket in tickets:
                self.resent.pop(ticket, None)
        if self.compressed:
            self.compressed.difference_update(tickets)

    def clear(self) -> None:
        """Nobody sends any of them."""
        self._waiting.clear()
        self._again.clear()
