"""Rate of slow handlers by tenant in one lane, over the last seconds. No I/O, the clock is passed in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_WINDOW: Final = 10.0  # seconds; what ended in the last one or two of them counts
_MOSTLY: Final = 2  # times the slow handlers of a tenant are more than all its handlers


class SlowCallRate:
    """Counts of ended handlers, all and slow ones, of the last 10 to 20 s, by tenant that was slow once."""

    __slots__ = ("_all", "_all_before", "_begin", "_slow", "_slow_before")

    def __init__(self) -> None:
        self._all, self._all_before = Counter[str](), Counter[str]()
        self._slow, self._slow_before = Counter[str](), Counter[str]()
        self._begin = float("-inf")

    def on_end(self, tenant: str, *, slow: bool) -> None:
        """Counts an ended handler; `slow`: it ran for too long."""
        self._all[tenant] += 1
        if slow:
            self._slow[tenant] += 1

    def slow_tenants(self, running: Mapping[str, int], now: float) -> list[str]:
        """Tenants most of whose handlers are slow, those with the most slow ones first. `running`: handlers that run
        for too long, by tenant: they are slow before they end.
        """
        if now - self._begin >= _WINDOW:
            self._all, self._all_before = Counter(), self._all
            self._slow, self._slow_before = Counter(), self._slow
            self._begin = now
        slow = self._slow + self._slow_before
        slow.update(running)
        found = {
            tenant: count
            for tenant, count in slow.items()
            if _MOSTLY * count > self._all[tenant] + self._all_before[tenant] + running.get(tenant, 0)
        }
        return sorted(found, key=lambda tenant: (-found[tenant], tenant))
