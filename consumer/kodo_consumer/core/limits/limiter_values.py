"""The limiters of one limit: one for each value of its property, and one that all values share for which there is no
room.

Senders choose the values, so there may be as many as there are messages. The law of a limit holds for each value all
the same: the shared limiter treats its values as one, and none of these (but those that the file names) gets its own
before the shared one is as good as new.
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
_LONGEST: Final = 200  # characters of a value that is kept, unless the file names it


class Values:
    """Limiters of one limit by value of its property. `own`: limiters of single values, by value, or by its digest if
    it is longer than 200 characters; `others`: the limiter that all further values share, None while there is none.
    `named`: values that get their own limiter in any case, and no digest; `make`: creates the limiter of a value, or
    (None) the shared one. `configure` must be called before `of`. Iterates over pairs (key in `own`, limiter), with the
    key None for the shared one.
    """

    __slots__ = ("_made", "_queue", "make", "named", "others", "own")
    make: Callable[[str | None], Limiter]

    def __init__(self) -> None:
        self.own: dict[str, Limiter] = {}
        self.others: Limiter | None = None
        self.named: Collection[str] = ()
        self._queue: deque[str] = deque()  # values in the order in which they are looked at
        self._made = 0  # since the last look

    def configure(self, named: Collection[str], make: Callable[[str | None], Limiter]) -> None:
        """Sets `named` and `make` for limiters that are created from now on; existing ones stay."""
        self.named, self.make = named, make

    def of(self, value: str) -> Limiter:
        """Returns the limiter that a message with this value has to pass: its own, created if it is missing and may be,
        else `others`, created if it is missing. A value of `named`, and no value (NOBODY), may always have its own;
        another one only gets it while fewer than 100,000 values have one and there is no `others`.
        """
        if len(value) > _LONGEST and value not in self.named:
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
        """Drops limiters that are as good as new and marks them `forgotten`: the shared one, and if there are more than
        10,000 those of single values. Of the latter it examines at most twice as many as were created since the last
        call, plus 5,000, so that no call takes long.
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
        """Every limiter with its value; the shared one with None."""
        yield from self.own.items()
        if self.others is not None:
            yield None, self.others
