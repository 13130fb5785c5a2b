"""Lane sets: lanes by state and level, as limits name them; and bulkheads: the slots that the lanes of a set may take
at most, and those that are kept for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Level, State


@dataclass(frozen=True, slots=True)
class LaneSet:
    """Lanes in any of `states` and on any of `levels`; an empty tuple stands for all states, or all levels. Two sets of
    the same lanes are equal only if their tuples are: whoever makes one uses the order of the enumerations.
    """

    states: tuple[State, ...] = ()
    levels: tuple[Level, ...] = ()

    def has(self, level: Level, state: State) -> bool:
        """True if the set contains the lane of this level and state, whether a subscription has such a lane or not."""
        return (not self.states or state in self.states) and (not self.levels or level in self.levels)

    def __bool__(self) -> bool:
        """True if it names states or levels; False: it means all lanes."""
        return bool(self.states or self.levels)

    def __str__(self) -> str:
        """`retrying`, `L2`, or `L2,L1/retrying`: as commands, stores and metrics name it."""
        return "/".join(",".join(names) for names in (self.levels, self.states) if names)


ALL_LANES: Final = LaneSet()


@dataclass(frozen=True, slots=True)
class Bulkhead:
    """Bounds of the handlers of some lanes in one worker: at most `most` run at once (None: any number), and `least`
    slots are kept for them. If the worker has fewer slots for a while, both may be smaller: see
    kodo_consumer.core.scheduling.bulkheads.
    """

    lanes: LaneSet
    most: int | None = None
    least: int = 0

    def __str__(self) -> str:
        """Text for people, such as `retrying max 8`."""
        bounds = [*([f"max {self.most}"] if self.most else []), *([f"min {self.least}"] if self.least else [])]
        return f"{self.lanes} {' '.join(bounds)}"


def in_proportion(bulkheads: Sequence[Bulkhead], slots: int, declared: int) -> tuple[Bulkhead, ...]:
    """Bulkheads for a worker with `slots` in place of `declared` ones (more or fewer): each bound times `slots` divided
    by `declared`, rounded down; a maximum is at least 1, a minimum may become 0.
    """
    return tuple(
        replace(
            one,
            most=None if one.most is None else max(1, one.most * slots // declared),
            least=one.least * slots // declared,
        )
        for one in bulkheads
    )
