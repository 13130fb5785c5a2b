"""Messages without a receipt: those in the client library, and those that wait here while their partition stores
nothing.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.adapters.pulsar.send_breakers import SendBreaker
from kodo_consumer.core.engine.publishing import SEND_TIMEOUT
from kodo_consumer.core.values.broker import Receipt, Unconfirmed
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.schema_passthrough import Key
    from kodo_consumer.core.values.envelope import Outgoing

log = logging.getLogger("kodo.consumer")
_EARLY: Final = 1.0  # seconds by which the client's clock may be ahead
_LOOK_EVERY: Final = 0.05  # seconds: a lost connection shows for about 90 ms


class _Sent(NamedTuple):
    """A message in the client library. Times by time.monotonic(). `since`: first time it was to be sent; `at`: when the
    library got it; `tries`: how often the library had it before.
    """

    message: Outgoing
    key: Key
    since: float
    at: float
    tries: int


class PendingSends:
    """Messages without a receipt, with a circuit breaker for each producer. An instance is true while the client
    library has a message; messages that wait here do not count. A ticket is the number by which the sender identifies a
    message.

    Args:
        producers: open producers by key.
        close: closes and removes the producer of a key; the library then reports its messages as lost.
        send: sends a message, and opens a producer if there is none.
        answer: gets the ticket and the receipt of a message.
        wake: makes the sending thread call `look`.
        opens: returns True while the producer of a key is being opened.
        ordered: topics (names without `-partition-…`) that keep the order of each key.
        cautious: every breaker is open from the beginning.

    Only the sending thread calls the methods, except `stored`, `lost` and `forget`, which threads of the library may
    call too.
    """

    def __init__(  # noqa: PLR0913
        self,
        producers: Mapping[Key, Any],
        close: Callable[[Key], object],
        send: Callable[[int, Outgoing, Key], object],
        answer: Callable[[int, Receipt], object],
        wake: Callable[[], object],
        opens: Callable[[Key], bool] = lambda _: False,
        *,
        ordered: Collection[str] = (),
        cautious: bool = False,
    ) -> None:
        self._producers, self._close, self._send, self._answer = producers, close, send, answer
        self._wake, self._opens, self._ordered, self._cautious = wake, opens, ordered, cautious
        self._sent: defaultdict[Key, dict[int, _Sent]] = defaultdict(
            dict
        )  # each in the order in which the client got them
        self._lost: deque[tuple[int, _Sent, str]] = deque()
        self._stored: deque[Key] = deque()  # where there was doubt
        self._breakers: dict[Key, SendBreaker] = {}
        self._again: dict[int, tuple[float, int]] = {}  # of what is sent once more: since when, how often before
        self._look_at = 0.0

    def __bool__(self) -> bool:
        return any(list(self._sent.values()))

    @property
    def next_look(self) -> float | None:
        """Seconds until the sending thread should call `look` again; None if the client library has no message and no
        breaker is open: then only `wake` asks for a call.
        """
        return _LOOK_EVERY if self or any(one.is_open for one in self._breakers.values()) else None

    def admits(self, ticket: int, message: Outgoing, key: Key) -> bool:
        """True if a message may be sent now. If false, the message is kept here, and is sent or answered later."""
        breaker = self._breakers.get(key)
        if breaker is None and self._cautious:
            breaker = self._breaker(key, is_open=True)
        if breaker is None or not breaker.is_open or breaker.trial == ticket:
            return True
        breaker.wait(ticket, message, *self._history(ticket))
        return False

    def tries(self, ticket: int, key: Key) -> bool:
        """True if this message is the trial of an open breaker: the one that is sent to see if anything is stored."""
        breaker = self._breakers.get(key)
        return breaker is not None and breaker.is_open and breaker.trial == ticket

    def add(self, ticket: int, message: Outgoing, key: Key) -> None:
        """Records a message that the caller hands to the client library now."""
        since, tries = self._history(ticket)
        self._sent[key][ticket] = _Sent(message, key, since, time.monotonic(), tries)

    def is_calm(self, key: Key) -> bool:
        """True if any new message may be sent by this producer now, without `admits`. Also false while a message of any
        producer is on its way to be sent again.
        """
        breaker = self._breakers.get(key)
        return not self._again and (not self._cautious if breaker is None else not breaker.is_open)

    def add_all(self, messages: Sequence[tuple[int, Outgoing]], key: Key, now: float) -> None:
        """Records messages that the client library gets next, each for the first time. `now`: time.monotonic()."""
        sent = self._sent[key]
        for ticket, message in messages:
            sent[ticket] = tuple.__new__(_Sent, (message, key, now, now, 0))  # half the time of a call by names

    def forget(self, ticket: int) -> Outgoing | None:
        """Removes a message from those that the client library has, because its receipt came or it is sent in another
        way. Returns the message, or None if the library did not have it; a message that waits here is not removed.
        """
        sent = self._take(ticket)
        if self._again:
            self._again.pop(ticket, None)
        return sent and sent.message

    def stored(self, tickets: Sequence[int], key: Key) -> None:
        """Removes messages that the producer `key` stored. If this may close its breaker, the next `look` does so."""
        sent = self._sent[key]
        for ticket in tickets:
            sent.pop(ticket, None)
        if self._again:
            for ticket in tickets:
                self._again.pop(ticket, None)
        breaker = self._breakers.get(key)
        if breaker is not None and breaker.in_doubt:
            self._stored.append(key)
            self._wake()

    def lost(self, ticket: int, reason: str) -> None:
        """Takes a message back that the client library gave up: the next `look` lets it wait here if the breaker is
        open and the message's time (about 60 s after it was to be sent first) is not over, else answers it as
        unconfirmed. A message that the library did not have, as far as this object knows, is answered so by this call,
        on the calling thread.
        """
        sent = next((of_one[ticket] for of_one in list(self._sent.values()) if ticket in of_one), None)
        if sent is None:
            self._answer(ticket, Unconfirmed(reason))
        else:
            self._lost.append((ticket, sent, reason))  # before it is taken out: it is in one of the two at any moment
            self._take(ticket)
            self._wake()

    def was_sent(self, ticket: int) -> bool:
        """True if the client library had a message before its present try, which began or waits for its producer."""
        present = (of_one.get(ticket) for of_one in list(self._sent.values()))
        tries = max((sent.tries for sent in present if sent is not None), default=0)
        return tries > 0 or self._again.get(ticket, (0.0, 0))[1] > 0

    def takes_back(self, ticket: int, message: Outgoing, key: Key, reason: str) -> bool:
        """Takes a message back whose producer could not be opened, if the breaker of `key` is open: it waits here, or
        is answered as unconfirmed if its time (about 60 s, as for `lost`) is over. Returns False if the breaker is not
        open; the caller then answers it.
        """
        breaker = self._breakers.get(key)
        if breaker is None or not breaker.is_open:
            return False
        since, tries = self._history(ticket)
        now = time.monotonic()
        if breaker.trial == ticket:
            breaker.not_tried(now)
        if now - since >= SEND_TIMEOUT - _EARLY:
            self._answer(ticket, Unconfirmed(reason))
        else:
            breaker.wait(ticket, message, since, tries)
        return True

    def look(self) -> None:
        """Decides about `lost` messages, and sends all waiting messages of a producer that stored one; while earlier
        messages of this producer have not come back from the library, it only lets the next trial go at once. Then,
        every 0.05 s at most: opens the breaker and closes the producer where nothing is stored (see SendBreaker.look,
        and if a trial has no receipt for 60 s), sends the next trial of each open breaker if it is due, and answers as
        unconfirmed the messages that still wait here 60 s (SEND_TIMEOUT) after they were to be sent first.
        """
        while self._lost:  # first, for they may go on with the others
            self._came_back(*self._lost.popleft())
        while self._stored:
            self._go_on(self._stored.popleft())
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        for key, waiting in list(self._sent.items()):
            since = _oldest(waiting)
            if since is not None and (producer := self._producers.get(key)) is not None:
                breaker = self._breaker(key)
                if breaker.look(connected=producer.is_connected(), oldest=since, now=now):
                    self._open(key, breaker, now)
                    self._close(key)
        for key, breaker in list(self._breakers.items()):
            if breaker.is_open:
                self._wait_on(key, breaker, now)

    def _wait_on(self, key: Key, breaker: SendBreaker, now: float) -> None:
        for ticket in breaker.expired(now, SEND_TIMEOUT):
            self._answer(ticket, Unconfirmed(f"nothing was stored there for {SEND_TIMEOUT:.0f} s"))
        trial = None if breaker.trial is None else self._sent[key].get(breaker.trial)
        if trial is not None and now - trial.since >= SEND_TIMEOUT and key in self._producers:
            self._open(key, breaker, now)
            self._close(key)
            return
        if trial is None and breaker.trial not in self._again:
            breaker.trial = None  # it has a receipt that says nothing of its topic, such as that it is too big
        if self._is_elsewhere(key):
            return
        if (found := breaker.next_trial(now, SEND_TIMEOUT)) is not None:
            ticket, waiting = found
            self._again[ticket] = waiting.since, waiting.tries
            self._send(ticket, waiting.message, key)

    def _came_back(self, ticket: int, sent: _Sent, reason: str) -> None:
        """Decides about a lost message: it waits while its breaker is open and its time is not over; else it is
        answered as unconfirmed.
        """
        now = time.monotonic()
        breaker = self._breaker(sent.key)
        late = now - sent.since >= SEND_TIMEOUT - _EARLY
        if breaker.trial == ticket or (late and not breaker.is_open):
            self._open(sent.key, breaker, now)
        if breaker.is_open and not late:
            breaker.wait(ticket, sent.message, sent.since, sent.tries + 1)
        else:
            self._answer(ticket, Unconfirmed(reason))

    def _open(self, key: Key, breaker: SendBreaker, now: float) -> None:
        if not breaker.is_open:
            log.warning("%s: nothing is stored: its messages wait until one of them is", key.topic)
        breaker.open(now)

    def _is_elsewhere(self, key: Key) -> bool:
        """True while a message from before the breaker opened has not come back, from its producer, which is being
        closed, or from the opening of one. A message that was sent now would overtake it.
        """
        return bool(self._sent[key]) or any(sent.key == key for _, sent, _ in list(self._lost)) or self._opens(key)

    def _go_on(self, key: Key) -> None:
        breaker = self._breakers[key]
        if breaker.is_open and self._is_elsewhere(key):
            breaker.stores_again(time.monotonic())
            return
        breaker.stored()
        released = breaker.released()
        if released:
            log.info("%s: messages are stored: %d that waited are sent", key.topic, len(released))
        for ticket, waiting in released:
            self._again[ticket] = waiting.since, waiting.tries
            self._send(ticket, waiting.message, key)

    def _breaker(self, key: Key, *, is_open: bool = False) -> SendBreaker:
        """The breaker of a producer, created by the first call. `is_open`: its state if this call creates it."""
        if key not in self._breakers:
            self._breakers[key] = SendBreaker(is_open=is_open, ordered=whole_topic(key.topic) in self._ordered)
        return self._breakers[key]

    def _take(self, ticket: int) -> _Sent | None:
        """Removes and returns a message, whichever producer has it; None if none has."""
        found = (waiting.pop(ticket, None) for waiting in list(self._sent.values()))
        return next((sent for sent in found if sent is not None), None)

    def _history(self, ticket: int) -> tuple[float, int]:
        return self._again.pop(ticket, None) or (time.monotonic(), 0)


def _oldest(waiting: Mapping[int, _Sent]) -> float | None:
    """Time at which the client got the first of the messages in `waiting`; None if there is none. Threads of the client
    remove entries meanwhile.
    """
    while True:
        with suppress(RuntimeError):  # one was taken between two steps
            first = next(iter(waiting.values()), None)
            return None if first is None else first.at
