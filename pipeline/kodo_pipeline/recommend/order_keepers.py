"""Recommended settings for subscriptions that keep the order of keys. Routes cannot help there, because on another
level a message would overtake earlier ones of its key. Pure.

Only a bulkhead, a limit of concurrent handlers per tenant, and more slots are recommended. More partitions are not,
because keys would go to other partitions while earlier messages of theirs still wait. A key whose messages kept a
handler busy without a pause is reported: its messages run one after the other whatever the settings are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_pipeline.recommend.noisy_neighbours import ENTER
from kodo_pipeline.recommend.slot_bulkheads import TAKEN
from kodo_pipeline.recommend.slot_use import SettingChange, is_harmed, slots_for

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_use import Lane, SlotWindow, SubscriptionSlots

SERIAL: Final = 0.9  # share of a window from which on a key ran without a pause
MORE: Final = 2  # at most so many times the slots of today are recommended


@dataclass(frozen=True, slots=True)
class DeclaredLimit:
    """The limit of concurrent handlers per tenant in the file: `index` in the list `limits`, and its number `limit`.
    `shared`: the limit is for the handlers of all workers together, else of each worker; `own`: tenants that have
    another number.
    """

    index: int
    limit: int
    shared: bool = False
    own: frozenset[str] = frozenset()

    def is_exceeded(self, slots: SubscriptionSlots, one: SlotWindow) -> bool:
        """True if one of the window's `tenants` had more concurrent handlers than the limit permits, on average over
        the window and its workers. Tenants in `own` are not examined.
        """
        most = self.limit / max(1, one.workers) if self.shared else self.limit
        return any(_busy(slots, one, tenant) > most for tenant in one.tenants.keys() - self.own)


@dataclass(frozen=True, slots=True)
class SerialKey:
    """A message key that kept a handler busy nearly all the time (90 %: SERIAL) in at least three windows. `windows`:
    number of these windows; `busy`: seconds that its handlers ran in them; `span`: length of the windows in seconds.
    """

    key: str
    windows: int
    busy: float
    span: float


def limit_exceeded(slots: SubscriptionSlots, declared: DeclaredLimit | None) -> int:
    """Start (ms) of the last recent window in which a tenant exceeded the declared limit, which therefore was not in
    effect; -1 if there is none, or no limit is declared.
    """
    found = [one.at for one in slots.recent() if declared is not None and declared.is_exceeded(slots, one)]
    return max(found, default=-1)


def recommend_limit(
    slots: SubscriptionSlots, fair_by: str, declared: DeclaredLimit | None, after: int
) -> SettingChange | None:
    """Recommends a limit of concurrent handlers per tenant, or a lower one than `declared`, if in three recent windows
    or more one tenant used slots for which others waited; else None. `fair_by`: property with the tenant; `after`:
    start (ms) of the last window in which the settings of the file were not in effect, -1: none; only later windows
    count.
    """
    recent = [one for one in slots.recent() if one.at > after and _is_short(slots, one)]
    found = [
        change
        for tenant in sorted({name for one in recent for name in one.tenants})
        for change in _limit_of(slots, recent, tenant, (fair_by, declared))
    ]
    return max(found, key=lambda one: (len(one.windows), one.busy, one.who), default=None)


def _limit_of(
    slots: SubscriptionSlots, recent: Sequence[SlotWindow], tenant: str, declared: tuple[str, DeclaredLimit | None]
) -> Iterator[SettingChange]:
    fair_by, limit = declared
    taken = [one for one in recent if _busy(slots, one, tenant) >= TAKEN * slots.total]
    needed = max((slots_for(_others(slots, one, tenant)) for one in taken), default=0)
    most = max(1, slots.total - needed)
    blamed = [one for one in taken if _busy(slots, one, tenant) > most]
    if limit is not None and limit.shared:  # as many workers share it as ran then
        most *= max((one.workers for one in blamed), default=1)
    if len(blamed) >= ENTER and (limit is None or (most < limit.limit and tenant not in limit.own)):
        busy = sum(_busy(slots, one, tenant) for one in blamed) / len(blamed)
        path = ("limits",) if limit is None else ("limits", limit.index, "limit")
        before = None if limit is None else limit.limit
        yield _change(slots, "limit", path, (before, most), (tenant, fair_by), blamed, (busy, needed))


def recommend_slots(slots: SubscriptionSlots, after: int) -> SettingChange | None:
    """Recommends more slots, at most twice those of today (MORE), if in three recent windows or more the slots were
    full (see `SubscriptionSlots.is_full`), too many messages waited (see `is_harmed`) and the arrivals need more; else
    None. `after`: only windows that begin later than this (ms) count.
    """
    recent = [one for one in slots.recent() if one.at > after and _is_short(slots, one)]
    blamed = [one for one in recent if slots_for(one.offered(slots.width)) > slots.total]
    if len(blamed) < ENTER:
        return None
    needed = max(slots_for(one.offered(slots.width)) for one in blamed)
    busy = sum(one.busy(slots.width) for one in blamed) / len(blamed)
    values = (slots.total, min(needed, MORE * slots.total))
    return _change(slots, "concurrency", ("concurrency", "total"), values, ("all lanes", ""), blamed, (busy, needed))


def serial_keys(slots: SubscriptionSlots) -> list[SerialKey]:
    """Keys that kept a handler busy for nearly all (SERIAL) of at least three recent windows in which messages waited,
    by seconds of handlers, most first. Call it only if `fair_by` is `key`: the tenants of the windows are then keys.
    """
    recent = [one for one in slots.recent() if is_harmed(one, _every)]
    found = []
    for key in sorted({name for one in recent for name in one.tenants}):
        times = [one.tenants[key].slot_ms for one in recent if key in one.tenants]
        long = [slot_ms for slot_ms in times if slot_ms >= SERIAL * slots.width]
        if len(long) >= ENTER:
            found.append(SerialKey(key, len(long), sum(long) / 1000, len(long) * slots.width / 1000))
    return sorted(found, key=lambda one: (-one.busy, one.key))


def idle_while_waiting(slots: SubscriptionSlots) -> tuple[int, float] | None:
    """Recent windows in which handlers ran, and messages waited although the slots were not full: (number of windows,
    average number of slots of a worker in use). None if there are fewer than three.
    """
    found = [
        one for one in slots.recent() if is_harmed(one, _every) and one.busy(slots.width) > 0 and not slots.is_full(one)
    ]
    return (len(found), sum(one.busy(slots.width) for one in found) / len(found)) if len(found) >= ENTER else None


def _every(_lane: Lane) -> bool:
    return True


def _is_short(slots: SubscriptionSlots, one: SlotWindow) -> bool:
    return slots.is_full(one) and is_harmed(one, _every)


def _busy(slots: SubscriptionSlots, one: SlotWindow, tenant: str) -> float:
    """Number of slots of one worker in which handlers ran for the tenant, on average."""
    load = one.tenants.get(tenant)
    return load.slot_ms / slots.width / max(1, one.workers) if load is not None else 0.0


def _others(slots: SubscriptionSlots, one: SlotWindow, tenant: str) -> float:
    """Returns the average number of one worker's slots that the arrivals of all tenants except `tenant` need."""
    own = one.tenants[tenant].offered_ms / slots.width / one.workers if tenant in one.tenants else 0.0
    return max(0.0, one.offered(slots.width) - own)


def _change(
    slots: SubscriptionSlots,
    action: str,
    path: tuple[str | int, ...],
    values: tuple[int | None, int],
    who: tuple[str, str],
    blamed: Sequence[SlotWindow],
    figures: tuple[float, int],
) -> SettingChange:
    at = {one.at for one in blamed}
    rest = [one for one in slots.slices if one.at not in at]
    return SettingChange(
        slots.topic, slots.subscription, action, path, *values, who[0], tuple(sorted(at)), figures[0], slots.total,
        figures[1], slots.late(blamed, _every), slots.late(rest, _every), who[1],
    )  # fmt: skip
