"""Queue of one tenant in one lane, with the facts about the tenant there. No I/O, the clock is passed in."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_LATELY: Final = 4.0  # seconds


class TenantQueue(Generic[T]):
    """One tenant's items in a lane (the first, and `others` after it), and facts about the tenant. With many tenants
    most have just one item, and a deque of its own for each would cost more than all the rest.

    `listed`: it has items. `used`: slot time (ms) used in the present turn. `eligible`: number of the round from which
    it has a turn again. `weight`: starts in a turn. `slow`: True for a slow tenant, whose handlers take long; None
    while the lane does not know. `doubt`: of a slow tenant, number of quick handler ends after which it counts as
    quick again; `relapses`: how often (4 times at most) the tenant became slow again after it was quick, less those
    that many quick ends have made good. `quick_time`: seconds of slot time as a quick tenant since `quick_since`
    (monotonic seconds), older ones in part, without most runs that took no longer than a start costs.
    """

    __slots__ = (
        "doubt", "eligible", "first", "in_slow", "is_recent", "listed", "others", "quick_since", "quick_time", "relapses",
        "slow", "tenant", "used", "weight",
    )  # fmt: skip

    __deletable__ = ("first",)  # for the compiler
    first: T  # while listed

    def __init__(self, tenant: str, weight: int) -> None:
        self.tenant = tenant
        self.weight = weight
        self.used = self.eligible = 0
        self.slow: bool | None = None
        self.doubt = self.relapses = 0
        self.quick_time = self.quick_since = 0.0
        self.listed = False
        self.in_slow = False  # listed among the slow ones
        self.is_recent = False  # it had more messages lately than its first
        self.others: deque[T] | None = None

    def __len__(self) -> int:
        return self.listed + len(self.others or ())

    def add_quick_time(self, lasted: float, now: float) -> None:
        """Adds a quick handler run of `lasted` seconds that ended at `now` (monotonic seconds) to `quick_time`. If
        `quick_since` is more than 4 s ago, the earlier time is halved before, and `quick_since` moves halfway to `now`;
        if there is no earlier time, it becomes the start of the run.
        """
        if not self.quick_time:
            self.quick_since = now - lasted
        elif now - self.quick_since > _LATELY:  # what was before counts less and less
            self.quick_time /= 2
            self.quick_since += (now - self.quick_since) / 2
        self.quick_time += lasted
