"""Which message kills its worker, told from the marks that starts leave behind. Pure: where marks are kept is a port's matter.

A mark is written before a handler starts and taken away when it ends. One that outlives its worker makes a suspect, which
runs alone from then on: nothing else can then be blamed for its crashes, nor can it take a neighbour with it. Only crashes
while alone count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

MAX_CRASHES: Final = 3
"""Crashes while alone after which a message is dead."""
_MAX_COUNTED: Final = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mark:
    """A handler started and, as far as anybody knows, has not ended. `run`: the worker; `crashes`: earlier ones while alone."""

    run: str
    alone: bool = False
    crashes: int = 0


class Standing(Enum):
    """What a message's mark means for the worker that is about to start it."""

    CLEAR = auto()  # may run beside others
    ELSEWHERE = auto()  # a worker that lives has it in hand
    SUSPECT = auto()  # must run alone
    POISON = auto()  # must not run again


@dataclass(frozen=True, slots=True)
class Judgement:
    """A standing, and the crashes while alone that led to it."""

    standing: Standing
    crashes: int = 0


def judge(mark: Mark | None, lives: Callable[[str], bool]) -> Judgement:
    """What a message may do whose mark was found. `lives`: whether a run still gives signs of life."""
    if mark is None:
        return Judgement(Standing.CLEAR)
    if lives(mark.run):
        return Judgement(Standing.ELSEWHERE, mark.crashes)
    crashes = mark.crashes + mark.alone
    return Judgement(Standing.POISON if crashes >= MAX_CRASHES else Standing.SUSPECT, crashes)


def reason_of(crashes: int) -> str:
    """Why a poisonous message is dead, for its reason property."""
    return f"ended its worker {crashes} times while it ran alone"


class Crashes:
    """Crashes while alone by identity, counted in memory: for pools, where the counting process outlives the crash.

    A process that runs one message at a time runs it alone. Of more than 10,000 identities the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def crashed(self, identity: str, *, alone: bool) -> Judgement:
        """A process ended while it ran this message."""
        crashes = self._counts.pop(identity, 0) + alone
        self._counts[identity] = crashes
        if len(self._counts) > _MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        return Judgement(Standing.POISON if crashes >= MAX_CRASHES else Standing.SUSPECT, crashes)

    def standing(self, identity: str) -> Standing:
        """Whether the message must run alone."""
        return Standing.SUSPECT if identity in self._counts else Standing.CLEAR

    def ended(self, identity: str) -> None:
        """Its handler came to an end of its own: nothing is held against it any more."""
        self._counts.pop(identity, None)


class Turns(Generic[T]):
    """Who starts next. While a suspect waits nothing else starts; it starts when nothing runs, and nothing starts beside it."""

    def __init__(self) -> None:
        self.running = 0
        self._clear: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._alone = False

    def __len__(self) -> int:
        """How many wait for their start."""
        return len(self._clear) + len(self._suspects)

    def add(self, item: T, *, suspect: bool) -> None:
        """One more wants to start."""
        (self._suspects if suspect else self._clear).append(item)

    @property
    def solitary(self) -> bool:
        """Whether a suspect runs or waits: taking more would only make it wait."""
        return self._alone or bool(self._suspects)

    def suspect(self) -> T | None:
        """The suspect whose turn has come, without starting it; None while others run or nobody waits."""
        return self._suspects[0] if self._suspects and not self.running else None

    def start_suspect(self) -> None:
        """It starts, and is alone."""
        self._suspects.popleft()
        self._alone = True
        self.running += 1

    def drop_suspect(self) -> None:
        """It does not start after all."""
        self._suspects.popleft()

    def next(self) -> T | None:
        """One that may start beside others, and is counted as running; None while a suspect waits or runs."""
        if self.solitary or not self._clear:
            return None
        self.running += 1
        return self._clear.popleft()

    def ended(self) -> None:
        """One that was started has come to an end."""
        self.running -= 1
        self._alone = False  # a suspect runs alone: it was the one that ended
