"""Partition connection: whether the consumer of one partition is connected and since when, and the log lines about it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("kodo.consumer")
_LOG_INTERVAL: Final = 60.0  # seconds between two lines that say the same of one partition
_SILENT: Final = 0.5  # seconds in which nothing came
_USED_UP: Final = 5.0  # seconds between two new consumers for the same reason
_TAKEN: Final = "another reader has it alone, such as `kodoctl waiting apply`, or `max_consumers` of it are connected"


class PartitionConnection:
    """State of the connection to one partition, lost until the first `make`. Times are by time.monotonic(). `wanted`:
    an event, set at first. The PartitionConsumer that owns this object clears it in `leave`, sets it in `join`, and
    opens no consumer while it is clear.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._lost_at: float | None = time.monotonic()  # None while it is connected
        self._connected_at = 0.0
        self._last_log: tuple[str, float] = "", float("-inf")
        self._taken = False  # another reader has it alone
        self.wanted = threading.Event()
        self.wanted.set()

    @property
    def connected(self) -> bool:
        """True if messages can come now."""
        return self._lost_at is None

    @property
    def shown(self) -> str:
        """Text for people: the name of the partition, followed by a reason after `tell_taken` until the next `make` or
        `tell`.
        """
        return f"{self._topic}: {_TAKEN}" if self._taken else self._topic

    @property
    def since(self) -> float:
        """Time (monotonic seconds) at which the connection was made; infinite while it is lost."""
        return self._connected_at if self._lost_at is None else float("inf")

    def lost_for(self, now: float) -> float:
        """Seconds for which the connection has been lost at `now` (before the first `make`: since this object was
        created); 0 while it is made.
        """
        lost_at = self._lost_at
        return 0.0 if lost_at is None else now - lost_at

    def lose(self, now: float) -> None:
        """Marks the connection as lost since `now`; no change if it already was."""
        if self._lost_at is None:
            self._lost_at = now

    def make(self, now: float, *, late: bool) -> None:
        """Marks the connection as made at `now`; `since` does not change if it was made already. Ends the note of
        `tell_taken`. `late`: the start of the worker no longer waits for this connection, so if it was lost the log
        reports how long (before the first `make`: since this object was created).
        """
        again = " again" if self._connected_at else ""
        if self._lost_at is not None:
            self._connected_at = now
        lost_at, self._lost_at, self._taken = self._lost_at, None, False
        if lost_at is not None and late:
            log.info("%s: connected%s after %.1f s", self._topic, again, now - lost_at)
            self._last_log = "", float("-inf")

    def tell_taken(self) -> None:
        """Notes that another reader has the partition alone, or that no more consumers are allowed. Logs a warning, but
        only one until the next `make` or `tell`.
        """
        if not self._taken:
            log.warning("%s: %s; it is read as soon as it is free, everything else meanwhile", self._topic, _TAKEN)
        self._taken = True

    def tell(self, problem: str) -> None:
        """Logs the warning that the caller subscribes again because of `problem`; the same text in sequence at most
        once a minute, unless a `make` has logged that the connection is there again. Ends the note of `tell_taken`.
        """
        self._taken = False
        now = time.monotonic()
        if problem == self._last_log[0] and now < self._last_log[1] + _LOG_INTERVAL:
            return
        self._last_log = problem, now
        log.warning("%s: %s; subscribing again", self._topic, problem)


@dataclass(slots=True)
class ConsumerPermits:
    """Permits of one consumer: the messages that the broker may still send it. Times are by time.monotonic().

    Args:
        queue: size of the consumer's queue in messages.
        opened_at: time at which the consumer was opened.
        unreturned: number of permits that the client library never gives back, because it counts an encrypted batch as
            one message.
        waits_since: time since which the reader has waited for a message; None while it does not wait.
        empty_at: last time at which the reader found that the client library had no message left; -inf: never.
    """

    queue: int
    opened_at: float = 0.0
    unreturned: int = 0
    waits_since: float | None = None
    empty_at: float = float("-inf")

    def used_up(self, now: float) -> bool:
        """True if the consumer should be replaced, because it may get few messages or none: its reader has waited for
        at least 0.5 s, `unreturned` is not 0, and either `unreturned` is at least half of `queue`, or the consumer was
        opened at least 5 s ago.
        """
        waits_since = self.waits_since
        if not self.unreturned or waits_since is None or now - waits_since < _SILENT:
            return False
        return 2 * self.unreturned >= self.queue or now - self.opened_at >= _USED_UP
