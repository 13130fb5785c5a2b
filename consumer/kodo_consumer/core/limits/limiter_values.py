"""The limiters of one limit: one for each value of its property, and one that all values share for which there is no
room.

Senders choose the values, so there may be as many as there are messages. The law of a limit holds for each value all
the same: the shared limiter lets through what it would of one, and no value leaves it before it is as good as new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.store import name_of

if TYPE_CHECKING:
    from kodo_consumer.core.limits.limiters import Limiter

MOST: Final = 100_000
"""Values of one limit that have a limiter of their own, some 50 MB; those that the file names come on top."""
_FORGET_ABOVE: Final = 10_000
_LOOKED_AT: Final = 5_000  # limiters looked at in a call: some 2 ms
_LONGEST: Final = 200  # characters of a value that are kept


class Values:
    """`named`: values that have a limiter of their own in any case; `make`: makes that of a value, or (None) of all others."""

    __slots__ = ("_made", "_queue", "make", "named", "others", "own")
    make: Callable[[str | None], Limiter]

    def __init__(self) -> None:
        self.own: dict[str, Limiter] = {}
        self.others: Limiter | None = None
        self.named: Collection[str] = ()
        self._queue: deque[str] = deque()  # values in the order in which they are looked at
        self._made = 0  # since the last look

    def configure(self, named: Collection[str], make: Callable[[str | None], Limiter]) -> None:
        """Limiters are made so from now on; those that are there stay."""
        self.named, self.make = named, make

    def of(self, value: str) -> Limiter:
        """The limiter that a message with this value has to pass."""
        if len(value) > _LONGEST:
            value = name_of(value)
        limiter = self.own.get(value)
        if limiter is None:
            if self._may_have_its_own(value):
                limiter = self.own[value] = self.make(value)
                self._queue.append(value)
                self._made += 1
            else:
                limiter = self.others = self.others or self.make(None)
        return limiter

    def _may_have_its_own(self, value: str) -> bool:
        room = self.others is None and len(self.own) < MOST
        return room or value == NOBODY or value in self.named

    def forget(self, now: float) -> None:
        """Forgets limiters that are as good as new, when there are many. Looks at as many as were made since, twice over, and at
        some more: never at all of them at once.
        """
        looks, self._made = 2 * self._made + _LOOKED_AT, 0
        for _ in range(min(looks, len(self._queue)) if len(self.own) > _FORGET_ABOVE else 0):
            value = self._queue.popleft()
            limiter = self.own[value]
            if limiter.idle(now):
                del self.own[value]
                limiter.forgotten = True
            else:
                self._queue.append(value)
        if self.others is not None and self.others.idle(now):
            self.others.forgotten = True
            self.others = None

    def __iter__(self) -> Iterator[tuple[str | None, Limiter]]:
        """Every limiter with its value; None: of all others."""
        yield from self.own.items()
        if self.others is not None:
            yield None, self.others
