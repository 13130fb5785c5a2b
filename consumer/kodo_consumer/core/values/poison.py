"""Poison message detection: finds the message that ends its worker, by the marks that starts leave behind.

Pure: a port keeps the marks. A mark is written before a handler starts and removed when it ends. A mark that outlives
its worker makes the message a suspect, which runs alone from then on: nothing else can then be blamed for its crashes,
and no neighbour dies with it. Only crashes while alone count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

MAX_CRASHES: Final = 3
"""Crashes while alone after which a message is dead."""
DEAD_AFTER: Final = 5.0
"""Seconds without a sign of life after which a run counts as ended."""
_WATCHING: Final = 2.5  # seconds between two observations beyond which silence proves nothing
_GONE_AFTER: Final = 30.0  # seconds a suspect is expected to come again
_MAX_COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class CrashMark:
    """Mark of a message whose handler was started and has not ended, as far as the store shows. `run`: name of the
    worker run that started it; `alone`: it was started as a suspect, with no other message beside it; `crashes`:
    crashes while alone before this start. A mark with MAX_CRASHES of them is one of a dead message, not started again.
    """

    run: str
    alone: bool = False
    crashes: int = 0


class PoisonState(Enum):
    """Standing of a message by its mark or its counted crashes, for the worker that is about to start it."""

    CLEAR = auto()  # may run beside others
    ELSEWHERE = auto()  # a worker that lives has it in hand
    SUSPECT = auto()  # must run alone
    POISON = auto()  # must not run again


@dataclass(frozen=True, slots=True)
class Judgement:
    """Standing of a message, and the crashes while alone that led to it."""

    standing: PoisonState
    crashes: int = 0


def judge(mark: CrashMark | None, lives: Callable[[str], bool]) -> Judgement:
    """Judges a message by its mark in the store, which must not be one of this run: CLEAR without a mark (None),
    ELSEWHERE if `lives` returns True for the run of the mark; else SUSPECT or, after MAX_CRASHES (3) while alone,
    POISON. The end of the mark's run is one of these crashes if the mark is `alone`.
    """
    if mark is None:
        return Judgement(PoisonState.CLEAR)
    if lives(mark.run):
        return Judgement(PoisonState.ELSEWHERE, mark.crashes)
    crashes = mark.crashes + mark.alone
    return Judgement(PoisonState.POISON if crashes >= MAX_CRASHES else PoisonState.SUSPECT, crashes)


def reason_of(crashes: int) -> str:
    """Reason, in words, why a message is dead that ended its worker while alone, for its reason property."""
    return f"ended its worker {crashes} times while it ran alone"


class Crashes:
    """Crashes while alone, by identity of the message, counted in memory: for pools, whose counting process outlives
    the crash. True if any are counted.

    A process that runs one message at a time runs it alone. Of more than 10,000 identities, the one is forgotten that
    has not crashed for the longest time.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def on_crash(self, identity: str) -> Judgement:
        """Counts that a process ended while it ran this message, alone. Returns SUSPECT or, from MAX_CRASHES (3) such
        ends on, POISON, with their number.
        """
        crashes = self._counts.pop(identity, 0) + 1
        self._counts[identity] = crashes
        if len(self._counts) > _MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        return Judgement(PoisonState.POISON if crashes >= MAX_CRASHES else PoisonState.SUSPECT, crashes)

    def standing(self, identity: str) -> PoisonState:
        """SUSPECT if crashes of the message are counted, so that it must run alone, else CLEAR; never POISON, which
        only `on_crash` returns.
        """
        return PoisonState.SUSPECT if identity in self._counts else PoisonState.CLEAR

    def on_end(self, identity: str) -> None:
        """Forgets the crashes of a message, because it came to an outcome, which may be a time-out or its death."""
        self._counts.pop(identity, None)


class SoloRun:
    """Limit on messages that are out (handed to handlers) at once: as many as there are slots, one as long as suspects
    are expected.

    A suspect that is taken while others are out is put off. From then on messages are taken one by one, so that the
    suspect is alone when it is taken again. It is expected for 30 s from its last `on_suspect`, or until its end if it
    has started here. Times are seconds on a monotonic clock.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._suspects: dict[str, float] = {}  # when last seen, infinity: it runs

    def room(self, out: int, now: float) -> int:
        """Number of further messages that may be taken while `out` are out, at least 0."""
        for identity in [identity for identity, at in self._suspects.items() if now - at > _GONE_AFTER]:
            del self._suspects[identity]  # another worker has it
        return max(0, (1 if self._suspects else self._slots) - out)

    def on_suspect(self, identity: str, now: float) -> None:
        """Expects a suspect from `now` on: it is about to run, or is put off and will be taken again."""
        self._suspects[identity] = now

    def on_start(self, identity: str) -> None:
        """Expects a suspect until `on_end`, because it starts here; no effect on a message that is not expected."""
        if identity in self._suspects:
            self._suspects[identity] = inf

    def on_end(self, identity: str) -> None:
        """Expects the message no longer, because it came to an end."""
        self._suspects.pop(identity, None)


class Heartbeats:
    """Liveness of runs: a run lives while its number of beats changes, by the clock of this worker, so that clocks need
    not agree.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}  # run -> its count, and when that was new
        self._last = float("-inf")

    def observe(self, beats: Mapping[str, int], now: float) -> None:
        """Takes the number of beats by run, of all runs that have not left, at `now` (monotonic seconds). A run with
        another number than before counts as seen just now, and so does one that was not observed before; all do at the
        first call, and after a pause of more than 2.5 s between two calls.
        """
        watching = now - self._last <= _WATCHING
        self._last = now
        old = self._seen
        self._seen = {
            run: old[run] if watching and run in old and old[run][0] == count else (count, now)
            for run, count in beats.items()
        }

    def lives(self, run: str) -> bool:
        """True if the run counted as seen less than DEAD_AFTER (5 s) before the last `observe`; False for a run that
        was missing there, because it has left or is not known.
        """
        seen = self._seen.get(run)
        return seen is not None and self._last - seen[1] < DEAD_AFTER
