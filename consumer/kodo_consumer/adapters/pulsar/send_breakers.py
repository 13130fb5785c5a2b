# pure: every branch is tested
"""Circuit breakers of producers: while a partition stores nothing, its messages wait, and one at a time is sent as a
trial. If a topic keeps the order of keys, the trial is always the first waiting message of its key.

A broker that cannot write to its bookies refuses messages, and ends the connections of the topic's producers. The
client library connects again at once and sends everything again that has no receipt, and the broker may store each of
these in the end: measured with two of three bookies down for six minutes, 357 copies of one message. So a producer that
loses its connection twice without a receipt, or once after messages have waited long for theirs, is closed. Its
messages, and new ones for the partition, then wait until one message is stored.
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
    """A message that waits. `since`: time from which its waiting counts (time.monotonic()), mostly that of the first
    try to send it; `tries`: how often the client library has had it since then.
    """

    message: Outgoing
    since: float
    tries: int


class SendBreaker:
    """Breaker of one producer, for one thread; any thread may read `in_doubt`. Times are by time.monotonic(). A ticket
    is the number of a message; a message that is to be sent later has a higher one.

    `is_open`: messages wait, because nothing seems to be stored. `trial`: ticket of the message that `next_trial`
    returned last; None: no trial is under way. `stored`, `open` and `not_tried` set it to None; after any other end of
    the trial the caller does. A breaker that is open from the beginning allows a trial at once. `ordered`: no message
    is a trial while an earlier one of its key waits; all messages without a key count as one key.
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
        """True if `stored` would change this breaker: it is open, or `look` noticed a loss since the last `stored`."""
        return self.is_open or self._breaks > 0

    def stored(self) -> None:
        """Closes the breaker, because a message was stored; losses and pauses count from the beginning again. Waiting
        messages stay here until the caller takes them by `released`.
        """
        self.is_open, self.trial = False, None
        self._breaks, self._pause = 0, 0.0

    def look(self, *, connected: bool, oldest: float, now: float) -> bool:
        """Notes whether the producer is connected. Returns True only in the call that notices a lost connection, and
        only if the breaker is open, or this is at least the second loss since the last `stored` (BREAKS), or `oldest`
        is more than 2 s ago (LONG): the caller then opens the breaker and closes the producer. The first call, and the
        first one after `open`, count the producer as connected before. `oldest`: time since which the oldest message in
        the client library waits for its receipt.
        """
        lost = self._was_connected and not connected
        self._was_connected = connected
        self._breaks += lost
        return lost and (self.is_open or self._breaks >= BREAKS or now - oldest > LONG)

    def open(self, now: float) -> None:
        """Opens the breaker, or keeps it open after a trial failed; no trial is under way then. The pause from `now` to
        the next trial is 1 s at first and doubles with each call until `stored`: up to 4 s, for the third and later
        tries of a message up to 10 s.
        """
        self.is_open, self.trial, self._was_connected = True, None, True
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._try_at, self._third_at = now + min(self._pause, _PAUSE), now + self._pause

    def stores_again(self, now: float) -> None:
        """Ends the pause before the next trial, because a message was stored. The breaker stays open, because messages
        from before it opened may still come back; a trial that is under way goes on.
        """
        self._try_at = self._third_at = now

    def not_tried(self, now: float) -> None:
        """Ends a trial whose message did not get into the client library. This trial cannot have stored a copy of it,
        so the next trial of any message is allowed in a second, and the pauses of `open` do not grow.
        """
        self.trial = None
        self._try_at = self._third_at = now + _FIRST_PAUSE

    def wait(self, ticket: int, message: Outgoing, since: float, tries: int = 0) -> None:
        """Keeps a message that is not sent now, or that the client library gave back. `since`, `tries`: see
        WaitingMessage.
        """
        self.waiting[ticket] = WaitingMessage(message, since, tries)

    def next_trial(self, now: float, limit: float) -> tuple[int, WaitingMessage] | None:
        """Removes and returns the message to send as a trial now, with its ticket, which `trial` is from then on; None:
        no message waits, no trial is due, one is under way, or the breaker is closed. Prefers messages with at least
        15 s left of the `limit` seconds from their `since`; among these the message with the fewest `tries`, then the
        lowest ticket: so each message gets one copy more, rather than one many. If the preferred message was tried
        twice or more and its longer pause is not over, returns None: no other message takes its turn. If order is kept,
        only the first message of each key may be chosen.
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
        """Tickets of the first waiting message of each key. All messages without a key count as one key, as they do for
        readers.
        """
        found: dict[str, int] = {}
        for ticket in sorted(self.waiting):
            message = self.waiting[ticket].message
            found.setdefault(message.ordering_key or message.key, ticket)
        return found.values()

    def expired(self, now: float, limit: float) -> Iterator[int]:
        """Removes the waiting messages whose `since` is `limit` seconds ago or earlier, and yields their tickets. Each
        is removed only when its ticket is yielded.
        """
        for ticket in [ticket for ticket, one in self.waiting.items() if now - one.since >= limit]:
            del self.waiting[ticket]
            yield ticket

    def released(self) -> list[tuple[int, WaitingMessage]]:
        """Removes and returns all waiting messages with their tickets, the lowest ticket first."""
        found, self.waiting = sorted(self.waiting.items()), {}
        return found
