"""Send queue: messages for a publisher's thread. Those that are sent again go before those that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.core.envelope import Outgoing


class SendQueue:
    """`next` is for one thread, the rest for any. `resent`: how often a message was sent again, by ticket."""

    def __init__(self) -> None:
        self.resent: dict[int, int] = {}
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._again: deque[tuple[int, Outgoing]] = deque()

    def extend(self, messages: Iterable[tuple[int, Outgoing]]) -> None:
        """Messages that nobody has sent yet."""
        self._waiting.extend(messages)

    def again(self, ticket: int, message: Outgoing) -> None:
        """A message that is to be sent once more."""
        self.resent[ticket] = self.resent.get(ticket, 0) + 1
        self._again.append((ticket, message))

    def next(self) -> tuple[int, Outgoing] | None:
        """The next message; None: there is none."""
        try:
            return (self._again or self._waiting).popleft()
        except IndexError:  # perhaps dropped this moment
            return None

    def forget(self, ticket: int) -> None:
        """The message has its receipt."""
        if self.resent:
            self.resent.pop(ticket, None)

    def clear(self) -> None:
        """Nobody sends any of them."""
        self._waiting.clear()
        self._again.clear()
