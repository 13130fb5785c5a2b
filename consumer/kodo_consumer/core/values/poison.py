"""Poison message detection: finds the message that ends its worker, by the marks that starts leave behind.

Pure: a port keeps the marks. A mark is written before a handler starts and removed when it ends. A mark that outlives
its worker makes the message a suspect, which runs alone from then on: nothing else can then be blamed for its crashes,
and no neighbour dies with it. Only crashes while alone count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
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
    """A handler started and has not ended, as far as the store shows. `run`: the worker's; `alone`: no other message
    ran beside it; `crashes`: earlier crashes while alone.
    """

    run: str
    alone: bool = False
    crashes: int = 0


class PoisonState(Enum):
    """Standing of a message by its mark, for the worker that is about to start it."""

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
    """Judges a message by its mark in the store: CLEAR without a mark (None), ELSEWHERE if the run of the mark lives;
    else SUSPECT, or POISON after MAX_CRASHES (3) while alone. `lives`: True for a run with signs of life.
    """
    if mark is None:
        return Judgement(PoisonState.CLEAR)
    if lives(mark.run):
        return Judgement(PoisonState.ELSEWHERE, mark.crashes)
    crashes = mark.crashes + mark.alone
    return Judgement(PoisonState.POISON if crashes >= MAX_CRASHES else PoisonState.SUSPECT, crashes)


def reason_of(crashes: int) -> str:
    """Why a poisonous message is dead, for its reason property."""
    return f"ended its worker {crashes} times while it ran alone"


class Crashes:
    """Crashes while alone, by identity of the message, counted in memory: for pools, whose counting process outlives
    the crash.

    A process that runs one message at a time runs it alone. Of more than 10,000 identities the oldest are forgotten.
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
        """SUSPECT if the message has crashed and must run alone, else CLEAR; never POISON, which only `on_crash`
        returns.
        """
        return PoisonState.SUSPECT if identity in self._counts else PoisonState.CLEAR

    def on_end(self, identity: str) -> None:
        """Forgets the crashes of a message, because its handler ended by itself."""
        self._counts.pop(identity, None)


class SoloRun:
    """Limit on messages that are out (handed to handlers) at once: as many as there are slots, one as long as suspects
    are expected.

    A suspect that is delivered beside others is put off. From then on messages are taken one by one, so that the
    suspect is alone when it is redelivered; one that has not come for 30 s is expected no longer. Times are seconds on
    a monotonic clock.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._suspects: dict[str, float] = {}  # when last seen, oldest first

    def room(self, out: int, now: float) -> int:
        """Number of further messages that may be taken while `out` are out."""
        for identity in [identity for identity, at in self._suspects.items() if now - at > _GONE_AFTER]:
            del self._suspects[identity]  # another worker has it
        return max(0, (1 if self._suspects else self._slots) - out)

    def on_suspect(self, identity: str, now: float) -> None:
        """Records a suspect that is in flight, or that will be redelivered."""
        self._suspects.pop(identity, None)
        self._suspects[identity] = now

    def on_end(self, identity: str) -> None:
        """Expects the message no longer, because it came to an end."""
        self._suspects.pop(identity, None)


class Heartbeats:
    """Liveness of runs: a run lives while its count of beats grows, by the clock of this worker, so that clocks need
    not agree.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}  # run -> its count, and when that was new
        self._last = float("-inf")

    def observe(self, beats: Mapping[str, int], now: float) -> None:
        """Takes the number of beats by run, of all runs that have not left, at `now` (monotonic seconds). After a pause
        of more than 2.5 s between observations, every run counts as seen just now.
        """
        watching = now - self._last <= _WATCHING
        self._last = now
        old = self._seen
        self._seen = {
            run: old[run] if watching and run in old and old[run][0] == count else (count, now)
            for run, count in beats.items()
        }

    def lives(self, run: str) -> bool:
        """True if the run gave a sign of life within DEAD_AFTER before the last `observe`; False for a run that was
        never observed, or has left.
        """
        seen = self._seen.get(run)
        return seen is not None and self._last - seen[1] < DEAD_AFTER
