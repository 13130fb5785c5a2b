# pure: every branch is tested
"""Circuit breakers of producers: while nothing is stored in a partition, its messages wait, and one of them tries at
a time. Where a topic keeps the order of keys, it is always the first of its key.

A broker that cannot write to its bookies refuses what is sent, and ends the connections of the topic's producers. The
client library connects again at once and sends everything anew that has no receipt, and the broker may store each of
these in the end: measured with two of three bookies away for six minutes, 357 copies of one message. So a producer
that loses its connection twice without a receipt, or once after messages have waited long for theirs, is closed. What
it had waits then, together with what is to be sent there, until one message is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing

BREAKS: Final = 2  # connections lost without a receipt between them: a broker's death, or an unload, costs one
LONG: Final = 2.0  # seconds without a receipt after which a lost connection says that nothing could be stored
_FIRST_PAUSE: Final = 1.0  # seconds before the first message tries; doubled for each that follows
_PAUSE: Final = 4.0  # seconds at most before any other: with the time to open a producer less than 10
_LONGEST_PAUSE: Final = 10.0  # seconds at most before a message is sent for the third time, or more often
_TIME_LEFT: Final = 15.0  # seconds that a message which tries should have left


@dataclass(slots=True)
class WaitingMessage:
    """A message that waits. `since`: when it was first to be sent; `tries`: how often the client had it."""

    message: Outgoing
    since: float
    tries: int


class SendBreaker:
    """The breaker of one producer. Called by one thread only; times are by time.monotonic().

    `is_open`: nothing is stored, messages wait. `trial`: the ticket of the one that tries. A breaker that is open
    from the beginning lets one try at once. `ordered`: no message tries while an earlier one of its key waits.
    """

    __slots__ = (
        "_breaks",
        "_ordered",
        "_pause",
        "_third_at",
        "_try_at",
        "_was_connected",
        "is_open",
        "trial",
        "waiting",
    )

    def __init__(self, *, is_open: bool = False, ordered: bool = False) -> None:
        self.is_open, self._ordered = is_open, ordered
        self.trial: int | None = None
        self.waiting: dict[int, WaitingMessage] = {}
        self._breaks, self._was_connected = 0, True
        self._pause = self._try_at = self._third_at = 0.0

    @property
    def in_doubt(self) -> bool:
        """True if a receipt would change this breaker."""
        return self.is_open or self._breaks > 0

    def stored(self) -> None:
        """A receipt came: whatever waits may be sent."""
        self.is_open, self.trial = False, None
        self._breaks, self._pause = 0, 0.0

    def look(self, *, connected: bool, oldest: float, now: float) -> bool:
        """Notes whether the producer is connected while it has messages without a receipt, the first since `oldest`; answers
        whether nothing is stored: the breaker is to be opened, and the producer closed.
        """
        lost = self._was_connected and not connected
        self._was_connected = connected
        self._breaks += lost
        return lost and (self.is_open or self._breaks >= BREAKS or now - oldest > LONG)

    def open(self, now: float) -> None:
        """Nothing is stored: the next message tries after a pause, which is longer each time."""
        self.is_open, self.trial, self._was_connected = True, None, True
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._try_at, self._third_at = now + min(self._pause, _PAUSE), now + self._pause

    def stores_again(self, now: float) -> None:
        """Lets the next message try at once, because a receipt came for an earlier message. Other earlier messages may
        still come back.
        """
        self._try_at = self._third_at = now

    def not_tried(self, now: float) -> None:
        """The message that was to try was not sent at all: the next one tries soon, for that leaves no copy."""
        self.trial = None
        self._try_at = self._third_at = now + _FIRST_PAUSE

    def wait(self, ticket: int, message: Outgoing, since: float, tries: int = 0) -> None:
        """A message that is not sent for now, or has come back."""
        self.waiting[ticket] = WaitingMessage(message, since, tries)

    def next_trial(self, now: float, limit: float) -> tuple[int, WaitingMessage] | None:
        """The message that tries now, with its ticket; None: not yet, or one does. It is the one that was sent least
        often, the oldest of these that has time left before `limit` seconds are over: a copy more for each, rather
        than many of one; and a longer pause before a third of any. Where order is kept, only the first of each key may.
        """
        if not self.is_open or self.trial is not None or now < self._try_at or not self.waiting:
            return None
        latest = now - limit + _TIME_LEFT
        candidates = self._firsts() if self._ordered else self.waiting
        ticket = min(candidates, key=lambda one: (self.waiting[one].since < latest, self.waiting[one].tries, one))
        if self.waiting[ticket].tries > 1 and now < self._third_at:
            return None
        self.trial = ticket
        return ticket, self.waiting.pop(ticket)

    def _firsts(self) -> Collection[int]:
        """Tickets of the first message of each key; those without a key have one in common, as for who reads a partition."""
        found: dict[str, int] = {}
        for ticket in sorted(self.waiting):
            message = self.waiting[ticket].message
            found.setdefault(message.ordering_key or message.key, ticket)
        return found.values()

    def expired(self, now: float, limit: float) -> Iterator[int]:
        """Tickets of messages that have waited for so many seconds: they wait no longer."""
        for ticket in [ticket for ticket, one in self.waiting.items() if now - one.since >= limit]:
            del self.waiting[ticket]
            yield ticket

    def released(self) -> list[tuple[int, WaitingMessage]]:
        """Everything that waits, in the order in which it was to be sent; nothing waits any more."""
        found, self.waiting = sorted(self.waiting.items()), {}
        return found
