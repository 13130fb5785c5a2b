"""Store session: the use of the store of done messages by one worker, while the store may go down and come back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.poison import MAX_CRASHES, CrashMark, Heartbeats, Judgement, PoisonState, judge
from kodo_consumer.core.values.store import MOST_PRUNED, Exchange, Store, StoreAnswer, StoreDownError

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Policy

log = logging.getLogger("kodo.consumer")
PROBE: Final = "kodo: is the store there?"
_MOST_UNSAVED: Final = 100_000
_RESERVE: Final = 10_000


@dataclass(slots=True)
class PendingWrites:
    """News that the store has not confirmed yet. `done`: names of done messages; `ended`: names whose marks it is to
    remove for another reason, such as a failure. Each list has 100,000 at most, and drops its oldest names; `forgotten`
    counts those that `done` dropped.
    """

    done: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    forgotten: int = 0
    _dropped: tuple[int, int] = (0, 0)  # of done and ended, since the last copy

    def __bool__(self) -> bool:
        return bool(self.done or self.ended)

    def add(self, *, done: Iterable[str] = (), ended: Iterable[str] = ()) -> None:
        """Adds names of messages."""
        self.done += done
        self.ended += ended
        over, ended_over = (max(0, len(names) - _MOST_UNSAVED) for names in (self.done, self.ended))
        self.forgotten += over
        self._dropped = self._dropped[0] + over, self._dropped[1] + ended_over
        del self.done[:over], self.ended[:ended_over]

    def copy(self) -> tuple[list[str], list[str]]:
        """Returns copies of `done` and `ended`, which are to be sent to the store. `remove` is about the last copy."""
        self._dropped = 0, 0
        return list(self.done), list(self.ended)

    def remove(self, done: int, ended: int) -> None:
        """Removes the first names of the last `copy`, so many of each list, because the store has recorded them; once
        for each copy. `forgotten` then no longer counts names of that copy that were dropped since: they are recorded,
        too.
        """
        gone, ended_gone = min(done, self._dropped[0]), min(ended, self._dropped[1])
        self.forgotten -= gone
        del self.done[: done - gone], self.ended[: ended - ended_gone]


class StoreSession:
    """Session with the store. One thread calls `maintain`, another one `exchange`, `judge_mark` and `take_over`.
    `down`: `open`, `exchange` or `take_over` has failed, and `maintain` has not ended the outage since; `problem`: why,
    also after the store is back.

    `go_on`: handlers run while the store is down. The argument `keep`: seconds for which the id of a done message is
    remembered at least, since a repeat may come late: a copy of a reroute waits as long as others of its topic do. Use
    `unsaved`, and `unguarded` (starts without a mark since the store is down), only with `lock`, the guard's, held:
    they change together with messages. `exchange` and `maintain` take the lock themselves.
    """

    def __init__(
        self, store: Store, policy: Policy, clock: Clock, lock: threading.Lock, *, go_on: bool, keep: float
    ) -> None:
        self.down = False
        self.problem = ""  # why it is down
        self.go_on = go_on
        self.unguarded = 0
        self.unsaved = PendingWrites()
        self._store, self._policy, self._clock, self._lock = store, policy, clock, lock
        self._keep_s = keep
        self._signs = Heartbeats()
        self._since_prune = 0
        self._more_to_prune = False
        self._workers = policy.expected_workers

    def open(self) -> None:
        """Creates missing parts of the store, and sends the first sign of life. If the store is down, raises
        StoreDownError; if handlers may run without it, sets `down` and logs that instead.
        """
        try:
            self._store.create()
            self._observe()
        except StoreDownError as problem:
            if not self.go_on:
                raise
            self._on_store_down(problem)

    def pending(self, starting: list[str]) -> Exchange:
        """Returns a request with all news and the names of messages that are to start. The caller holds the lock, and
        passes the request to `exchange` before it makes another one.
        """
        return Exchange(*self.unsaved.copy(), starting)

    def exchange(self, request: Exchange) -> StoreAnswer | None:
        """Sends a request of `pending` to the store, and removes its news from `unsaved`; the caller does not hold the
        lock. Returns the answer; None: the store is down, which is logged, and the news stay. An empty request is
        answered without a call. If the answer has marks, reads the signs of life for `judge_mark`, too.
        """
        if not (request.done or request.ended or request.starting):
            return StoreAnswer()
        try:
            known = self._store.exchange(request)
        except StoreDownError as problem:
            self._on_store_down(problem)
            return None
        self._on_saved(request)
        if known.marks:
            self._observe_or_not()
        return known

    def judge_mark(self, mark: CrashMark) -> Judgement:
        """Judges a message that is about to start by its mark in the store, which is from an earlier start, by this
        worker or by another one. Does not call the store: uses the signs of life that were read last.
        """
        return _own(mark) if mark.run == self._store.run else judge(mark, self._signs.lives)

    def take_over(self, name: str, found: CrashMark, *, alone: bool = False, crashes: int) -> bool:
        """Replaces the mark `found` of the message `name` by one of this worker. Returns false if another worker
        changed or removed that mark first, or if the store is down, which is logged. `alone`: the message is about to
        run alone; `crashes`: number of its crashes while alone, for the new mark.
        """
        try:
            return self._store.take_over(name, found, CrashMark(self._store.run, alone=alone, crashes=crashes))
        except StoreDownError as problem:
            self._on_store_down(problem)
            return False

    def leave(self) -> None:
        """Removes this worker's marks and signs of life from the store, and sends no news. Mapped files keep adopted
        marks, and marks with crashes, for the next worker. Raises StoreDownError.
        """
        self._store.leave()

    # ---- the store: down, there again, kept in order

    def maintain(self, *, prune: bool = False) -> None:
        """Sends a sign of life, and reads those of other workers. If the store was down and answers, creates its
        missing parts, sends it the news and ends the outage. With `prune`, deletes old ids, if this worker has added
        some since it last tried that; of many, each further call deletes some, so that the signs of life go on.
        Failures of the store are logged only, at debug.
        """
        try:
            if self.down:
                self._store.create()
                self._observe()
                self._probe()
            else:
                self._observe()
            if self._more_to_prune or (prune and self._since_prune):
                self._since_prune = 0
                self._more_to_prune = self._store.prune(self.keep, self._keep_s) >= MOST_PRUNED
        except StoreDownError as problem:
            log.debug("the store cannot be asked: %s", problem)

    @property
    def keep(self) -> int:
        """Number of newest ids of done messages that stay in the store at any age: as many as all workers, expected or
        seen in the store, may have in flight together, plus a reserve of 10,000.
        """
        return self._workers * self._policy.lookahead_messages + _RESERVE

    def _on_store_down(self, problem: StoreDownError) -> None:
        self.down, self.problem = True, str(problem)
        what = "handlers go on without it" if self.go_on else "nothing is started until it is back"
        log.error("the store cannot be asked, %s: %s", what, problem)

    def _on_saved(self, request: Exchange) -> None:
        with self._lock:
            self.unsaved.remove(len(request.done), len(request.ended))
            self._since_prune += len(request.done)

    def _probe(self) -> None:
        with self._lock:
            done, ended = self.unsaved.copy()
        self._store.exchange(Exchange(done, [*ended, PROBE]))
        self._on_saved(Exchange(done, ended))
        with self._lock:
            started, self.unguarded = self.unguarded, 0
            forgotten, self.unsaved.forgotten = self.unsaved.forgotten, 0
            self.down = False
        log.warning("the store is back; meanwhile %d started unmarked, %d done were not saved", started, forgotten)

    def _observe(self) -> None:
        beats = self._store.beat()
        self._workers = max(self._policy.expected_workers, len(beats))
        self._signs.observe(beats, self._clock.now())

    def _observe_or_not(self) -> None:
        try:
            self._observe()
        except StoreDownError as problem:
            log.debug("signs of life cannot be read: %s", problem)


def _own(mark: CrashMark) -> Judgement:
    """Judgement on this worker's own mark of a message that is about to start: a commit whose answer was lost, or a
    dead message.
    """
    if mark.crashes >= MAX_CRASHES:
        return Judgement(PoisonState.POISON, mark.crashes)
    return Judgement(PoisonState.SUSPECT if mark.alone or mark.crashes else PoisonState.CLEAR, mark.crashes)
