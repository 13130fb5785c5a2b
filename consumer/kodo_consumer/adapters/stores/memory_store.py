"""Store in memory, which ends with its process: it prevents repeats after a lost connection, and guarantees nothing
else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.limits.lease_allocator import LimitAccount
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import Exchange, StoreAnswer

if TYPE_CHECKING:
    from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest

MOST: Final = 1_000_000
"""Done messages that a shelf remembers at most: their ids take 140 MB."""


@dataclass(slots=True, weakref_slot=True)
class Shelf:
    """Data that several memory stores share, such as those of one subscription in one process. Users take `lock` for
    every access.

    Args:
        done: time at which each done message was first recorded, by its identity, in seconds by `clock`; the oldest
            first.
        marks: crash marks by identity of the message.
        beats: number of beats (signs of life) by worker run; a run that has left is missing.
        accounts: accounts of shared limits by name.
        clock: returns monotonic seconds.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: dict[str, float] = field(default_factory=dict)  # when; oldest first
    marks: dict[str, CrashMark] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    accounts: dict[str, LimitAccount] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic


class MemoryStore:
    """Implementation of kodo_consumer.core.values.store.LeaseStore in memory, for one worker (`run`). Stores with the
    same shelf share all data; without `shelf` a store has its own. Thread-safe; raises no StoreDownError.
    """

    def __init__(self, run: str, shelf: Shelf | None = None) -> None:
        self.run = run
        self._shelf = shelf or Shelf()

    def create(self) -> None:
        """Does nothing: a shelf needs no tables."""

    def exchange(self, request: Exchange) -> StoreAnswer:
        """Records the done messages, removes this run's crash marks of done and ended ones, and marks the starting
        ones, under the lock of the shelf. Returns which starting messages are done already (any run's marks of these
        are removed), and the marks of those that have one from an earlier start, of this run or another: their marks do
        not change.
        """
        shelf = self._shelf
        with shelf.lock:
            now = shelf.clock()
            for identity in request.done:
                shelf.done.setdefault(identity, now)
            for identity in (*request.done, *request.ended):
                if identity in shelf.marks and shelf.marks[identity].run == self.run:
                    del shelf.marks[identity]
            done = frozenset(request.starting) & shelf.done.keys()
            for identity in done:
                shelf.marks.pop(identity, None)  # whoever had started it: a crash after the effect leaves its mark
            starting = [identity for identity in request.starting if identity not in done]
            marks = {identity: shelf.marks[identity] for identity in starting if identity in shelf.marks}
            shelf.marks.update({identity: CrashMark(self.run) for identity in starting if identity not in marks})
        return StoreAnswer(done, marks)

    def take_over(self, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        """Replaces the crash mark `found` of a message by `mark`. Returns False, and changes nothing, if the message
        has another mark now, or none.
        """
        with self._shelf.lock:
            if self._shelf.marks.get(identity) != found:
                return False
            self._shelf.marks[identity] = mark
            return True

    def beat(self) -> Mapping[str, int]:
        """Adds one beat (sign of life) of this run. Returns the number of beats by run, for all runs on the shelf that
        have not left.
        """
        with self._shelf.lock:
            self._shelf.beats[self.run] = self._shelf.beats.get(self.run, 0) + 1
            return dict(self._shelf.beats)

    def grant(self, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        """Returns one lease grant for each request, in their order, and records the grants in the shelf's accounts of
        limits.
        """
        with self._shelf.lock:
            now, accounts = self._shelf.clock(), self._shelf.accounts
            return [
                accounts.setdefault(request.name, LimitAccount()).grant(self.run, request, now) for request in requests
            ]

    def prune(self, keep: int, seconds: float) -> int:
        """Deletes the ids of messages that were first recorded as done more than `seconds` ago, except the last `keep`;
        also the oldest beyond MOST (1,000,000), whatever their age and `keep`. Returns the number of deleted ids.
        """
        done = self._shelf.done
        with self._shelf.lock:
            since, surplus = self._shelf.clock() - seconds, max(0, len(done) - MOST)
            outside = islice(done.items(), max(surplus, len(done) - keep, 0))
            old = [identity for number, (identity, at) in enumerate(outside) if number < surplus or at < since]
            for identity in old:
                del done[identity]
        return len(old)

    def leave(self) -> None:
        """Removes the crash marks and the beats of this run. Its records of done messages stay."""
        with self._shelf.lock:
            marks = self._shelf.marks
            self._shelf.marks = {identity: mark for identity, mark in marks.items() if mark.run != self.run}
            self._shelf.beats.pop(self.run, None)

    def interrupt(self) -> None:
        """Does nothing: memory does not hang."""

    def close(self) -> None:
        """Does nothing: there is no connection."""
