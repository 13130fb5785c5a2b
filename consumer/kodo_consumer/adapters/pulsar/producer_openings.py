"""Openings of producers, and requests for partitions, on threads of their own: a topic without a broker delays its own
messages and no others.

Opening asks the broker, and for a topic with schemas the admin API; without a broker it takes as long as the client
waits. The client library has no public call that opens a producer without waiting, so each opening has a thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import pulsar

from kodo_consumer.runtime.threads import Broke, begin
from kodoctl.pulsar.connection.client_options import OPERATION_TIMEOUT_S

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing

log = logging.getLogger("kodo.consumer")
_CREATE_AGAIN: Final = 5.0  # seconds before what could not be opened is tried again
OPEN_WITHIN: Final = OPERATION_TIMEOUT_S + 5.0  # seconds: later than the client itself gives up
TRY_WITHIN: Final = 5.0  # seconds: the client may have asked a broker that hangs, and asks another one next
MOST_AT_ONCE: Final = 64  # threads, which wait: partitions of a broker that is away must leave some to others
K = TypeVar("K")


class OpeningTimeoutError(Exception):
    """An opening did not end in time: not raised, but the `problem` of an Opened."""


class Opened(NamedTuple, Generic[K]):
    """Result of an opening: a producer (or a list of partitions; None if there is a `problem`), or the error, and the
    messages that waited for it, each with its ticket, in order.
    """

    key: K
    producer: Any
    problem: Exception | None
    messages: Collection[tuple[int, Outgoing]]


class _Opening:
    """Opening of one producer. `since`: when its thread began (time.monotonic()); None while too many others run.
    `old`: the producer that it replaces. `within`: seconds until it is given up; a success after that is used all the
    same.
    """

    __slots__ = ("messages", "old", "since", "within")

    def __init__(self, old: Any, within: float) -> None:
        self.old, self.within = old, within
        self.since: float | None = None
        self.messages: deque[tuple[int, Outgoing]] = deque()


class Openings(Generic[K]):
    """Openings of producers (or requests for partitions) by key, each on a thread of its own, 64 at once at most;
    others wait for their turn. `key in openings` is true until `ended` returns the result. One thread calls the
    methods; any thread may call `forget`. `create`: opens the producer of a key. `wake`: called on any thread when an
    opening has succeeded or failed; nothing is called when one is to be given up (`next_end`). `on_broken`: called with
    an error that `wake` raises.
    """

    def __init__(self, create: Callable[[K], Any], wake: Callable[[], object], on_broken: Broke) -> None:
        self._create, self._wake, self._on_broken = create, wake, on_broken
        self._awaited: dict[K, _Opening] = {}
        self._results: deque[tuple[_Opening, Opened[K]]] = deque()
        self._not_before: dict[K, float] = {}  # of those that rest
        self._threads = 0  # at work, those among them whose openings were given up

    def __contains__(self, key: K) -> bool:
        return key in self._awaited

    @property
    def any_rest(self) -> bool:
        """True if the last opening of some producer failed or was given up, however long ago."""
        return bool(self._not_before)

    def rests(self, key: K, now: float) -> bool:
        """True if the opening of this producer failed or was given up less than 5 s ago: do not repeat it yet."""
        return self._not_before.get(key, 0.0) > now

    @property
    def any_result(self) -> bool:
        """True if an opening has succeeded or failed since the last call of `ended`. Openings whose time is over do not
        count here, but `ended` returns them as well.
        """
        return bool(self._results)

    @property
    def any_message(self) -> bool:
        """True if a message waits for a producer."""
        return any(opening.messages for opening in self._awaited.values())

    @property
    def next_end(self) -> float | None:
        """Seconds until the next opening is to be given up, 0 if it should be already; None if no awaited opening has
        begun.
        """
        ends = [one.since + one.within for one in self._awaited.values() if one.since is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def add(self, key: K, ticket: int, message: Outgoing, old: Any = None, within: float | None = None) -> None:
        """Lets a message wait for a producer, and begins the opening, or queues it while 64 others run, unless the key
        has one already; does not wait. `old`: producer that the thread of the opening closes first. `within`: seconds
        from the start of that thread until the opening is given up; None: 20 (OPEN_WITHIN). Both are ignored if the key
        has an opening already.
        """
        self.open(key, old, within)
        self._awaited[key].messages.append((ticket, message))

    def open(self, key: K, old: Any = None, within: float | None = None) -> None:
        """Does the same as `add`, without a message."""
        if key not in self._awaited:
            self._awaited[key] = _Opening(old, OPEN_WITHIN if within is None else within)
            self._begin()

    def ended(self) -> list[Opened[K]]:
        """Returns the openings that succeeded, failed or were given up since the last call, each with the messages that
        waited for it; does not wait. A producer whose opening failed or was given up rests for 5 s. Begins openings
        that wait for their turn.

        A failure after the opening was given up is not returned. A success after that is returned, with the messages of
        the opening that the key has now, which is over then: if it succeeds as well, its producer is returned later,
        without messages.
        """
        found: list[Opened[K]] = []
        while self._results:
            opening, result = self._results.popleft()
            self._threads -= 1
            current = self._awaited.get(result.key)
            if result.problem is not None and current is not opening:
                continue  # given up before: it says nothing of the try after it
            if current is not None:
                del self._awaited[result.key]
                result = result._replace(messages=current.messages)
            found.append(result)
        now = time.monotonic()
        for key, opening in list(self._awaited.items()):
            if opening.since is not None and opening.since + opening.within <= now:
                problem = OpeningTimeoutError(f"its producer did not open within {opening.within:.0f} s")
                found.append(Opened(key, None, problem, self._awaited.pop(key).messages))
        for one in found:
            if one.problem is None:
                self._not_before.pop(one.key, None)
            else:
                self._not_before[one.key] = now + _CREATE_AGAIN
        self._begin()
        return found

    def forget(self) -> None:
        """Drops all messages that wait for a producer, without a receipt; the openings go on, without messages."""
        for opening in list(self._awaited.values()):
            opening.messages.clear()

    def _begin(self) -> None:
        for key, opening in self._awaited.items():
            if opening.since is None and self._threads < MOST_AT_ONCE:
                opening.since = time.monotonic()
                self._threads += 1
                begin(partial(self._open, key, opening), "kodo-open", self._on_broken)

    def _open(self, key: K, opening: _Opening) -> None:
        producer, problem = None, None
        try:
            if opening.old is not None:
                close(opening.old)
            producer = self._create(key)
        except Exception as failure:  # noqa: BLE001  # told by the receipts of the messages that wait
            problem = failure
        self._results.append((opening, Opened(key, producer, problem, ())))
        self._wake()


def close(producer: Any) -> None:
    """Closes a producer that is not used any more, which may take as long as the client waits. Never raises
    pulsar.PulsarException.
    """
    try:
        producer.close()
    except pulsar.PulsarException as problem:
        log.debug("closing a producer: %s", problem)
