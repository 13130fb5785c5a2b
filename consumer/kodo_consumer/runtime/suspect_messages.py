"""Suspect messages: those that were being handled when a worker ended. They run alone; one that ends workers while
alone becomes a dead letter.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, assert_never

from kodo_consumer.core.values.outcomes import DeadLettered, Deferred, Outcome
from kodo_consumer.core.values.poison import CrashMark, PoisonState, SoloRun, reason_of

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.runtime.store_session import StoreSession

log = logging.getLogger("kodo.consumer")
ELSEWHERE: Final = Deferred("it is being handled already")
_NOT_ALONE: Final = Deferred("it must run alone")
_KEPT: Final = 60.0  # seconds the mark of a dead message is kept: until it is surely among the dead letters


class SuspectMessages:
    """Suspects of one worker: messages that were being handled when a worker ended. Only the guard's stepping thread
    calls `outcome`; callers of the other methods hold the guard's lock.
    """

    def __init__(self, session: StoreSession, policy: Policy) -> None:
        self._session, self._policy = session, policy
        self._solo = SoloRun(policy.concurrency)
        self._dead_marks: deque[tuple[float, str]] = deque()  # until when each is kept

    def outcome(self, name: str, mark: CrashMark, out: int, now: float) -> Outcome | None:
        """Outcome of a message that is about to start and that the store has a mark of, from an earlier start: Deferred
        if it is being handled elsewhere or must run alone later, DeadLettered if it crashed alone too often. None: it
        starts, with this worker's mark. May call the store.

        Args:
            name: the message's name in the store.
            mark: the mark that the store has.
            out: number of messages that the guard has at work (without deferred ones), this one included.
            now: monotonic seconds.
        """
        judgement = self._session.judge_mark(mark)
        crashes = judgement.crashes
        match judgement.standing:
            case PoisonState.CLEAR:
                return None
            case PoisonState.ELSEWHERE:
                return ELSEWHERE
            case PoisonState.POISON:
                log.error("%s is dead: it %s", name, reason_of(crashes))
                self._solo.on_end(name)
                if self._session.take_over(name, mark, crashes=crashes):
                    if self._policy.dead_letter is not None:  # else it stays, and must never start again
                        self._dead_marks.append((now + _KEPT, name))
                    return DeadLettered(reason_of(crashes))
                return ELSEWHERE
            case PoisonState.SUSPECT:
                self._solo.on_suspect(name, now)
                if out > 1:
                    return _NOT_ALONE
                log.warning(
                    "%s was being handled when a worker ended: it runs alone (crashes while alone: %d)", name, crashes
                )
                return None if self._session.take_over(name, mark, alone=True, crashes=crashes) else ELSEWHERE
            case _:
                assert_never(judgement.standing)

    def room(self, out: int, now: float) -> int:
        """Number of further messages that may be taken while `out` are being handled: as many as there are free slots,
        or one at a time while suspects are expected. `now`: monotonic seconds.
        """
        return self._solo.room(out, now)

    def on_start(self, name: str) -> None:
        """Notes that a message starts, after `outcome` has returned None for it. A suspect is alone until `on_end`."""
        self._solo.on_start(name)

    def on_end(self, name: str) -> None:
        """Notes that a message ended, with any outcome."""
        self._solo.on_end(name)

    def expired_marks(self, now: float) -> Iterator[str]:
        """Removes and yields the names of dead messages whose marks may be removed from the store at `now` (monotonic
        seconds). Each name comes once.
        """
        while self._dead_marks and self._dead_marks[0][0] <= now:
            yield self._dead_marks.popleft()[1]
