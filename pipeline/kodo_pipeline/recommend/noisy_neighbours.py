"""Detection of noisy neighbours: finds tenants whose load delays others, and as few moves of tenants as possible to end
it. Pure: the input is windows of time, the output is moves.

A tenant is *loud* in a window if it sends a quarter of all messages, at least 100, and twice its fair share. A window
is *harmed* if more than 5 % of the messages that others had done in it were done later than the goal. Three recent
windows in which a tenant was loud and others were harmed are blamed on it, unless a move that removes them is in the
file already and was not in effect then. Of all tenants that could be moved, as few as explain the harmed windows are
moved (a greedy choice).

A moved tenant is moved back only after twelve windows in which it sent less than an eighth. A return requires more calm
than a move requires noise, so that no tenant is moved to and fro, and so that a return never undoes what the same data
recommends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

RECENT: Final = 12  # windows that are looked at; so many must be calm before a tenant comes back
ENTER: Final = 3  # harmed windows after which a tenant is moved
LOUD: Final = 0.25  # share of all messages, as the file's `isolate` has it,
TIMES: Final = 2  # and so many times an even part
CALM: Final = 0.125
LEAST: Final = 100  # messages (of a window) below which nobody is loud
LATE: Final = 0.05  # share of what others had done that may be later than the goal
_DOWN: Final = ("isolate", "degrade")
JUDGED: Final = 20  # messages done below which a window is not judged


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """Counts of one tenant's messages in one window. `volume`: arrivals, of a message also those in waiting lanes and
    on other levels, but not on the level to which a managed route moves the tenant, nor as a dead letter; `done`:
    messages done in the window (failed runs do not count); `late`: number of `done` that took longer than the goal,
    from their first storing. `levels`: levels in which workers handled its messages in the window, failed and rerouted
    ones included.
    """

    volume: int
    done: int = 0
    late: int = 0
    levels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """One window of a subscription. `at`: its start, ms since the epoch; `volume`: arrivals (as in TenantLoad) of all
    tenants; `active`: number of tenants with arrivals; `tenants`: load by tenant, at least of tenants with an eighth of
    `volume` (CALM) or more, and of tenants that managed routes move; `done`, `late`: messages of all tenants that are
    not in `tenants`, as in TenantLoad.
    """

    at: int
    volume: int
    active: int
    done: int
    late: int
    tenants: Mapping[str, TenantLoad]


@dataclass(frozen=True, slots=True)
class SubscriptionWindows:
    """Windows of one subscription. `ladder`: levels below L1, nearest first; `routed`: level by tenant, for tenants
    that managed routes of the file move to a level of `ladder`; `fixed`: tenants that must not be moved; `width`: width
    of a window in ms; `slices`: windows in any order, perhaps without those in which nothing happened.
    """

    topic: str
    subscription: str
    ladder: Sequence[str]
    routed: Mapping[str, str]
    fixed: frozenset[str]
    width: int
    slices: Sequence[LoadWindow]


@dataclass(frozen=True, slots=True)
class LevelMove:
    """A recommended move of one tenant. `action`: isolate, degrade, upgrade, promote, return or exclusive; `source`,
    `target`: levels, L1 if no route moves the tenant.

    `windows`: starts (ms) of the windows that are the evidence; `share`: the tenant's share of all arrivals in them,
    for promote and return the larger of its shares of the runs and of the slot time. `late`, `late_else`: shares of the
    other tenants' messages that were done later than the goal, in these windows and in all others, None: nothing was
    done; for promote and return, shares of the tenant's own runs (`started` in LaneUse) that were late by its `goal` in
    ms, None: there were none. A move with the action exclusive has no windows and no figures.
    """

    topic: str
    subscription: str
    tenant: str
    action: str
    source: str
    target: str
    windows: tuple[int, ...]
    share: float
    late: float | None
    late_else: float | None
    goal: int = 0


def recommend_moves(case: SubscriptionWindows) -> list[LevelMove]:
    """Recommends moves for one subscription: first of noisy tenants to the next level below, each time of the one that
    explains most of the harmed windows that are left, then of calm tenants back to L1, by name. No tenant returns
    unless the known windows reach back over the newest RECENT (12); without windows there are no moves.
    """
    if not case.slices:
        return []
    newest = max(one.at for one in case.slices)
    since = newest - (RECENT - 1) * case.width
    recent = [one for one in case.slices if one.at >= since]
    leaving = [_leaving(case, tenant, guilt) for tenant, guilt in _fewest(case, recent)]
    if min(one.at for one in case.slices) > since:
        return leaving
    movable = sorted(case.routed.keys() - case.fixed)
    return [*leaving, *(_back(case, tenant, recent) for tenant in movable if _calm(tenant, recent))]


def unmovable(case: SubscriptionWindows) -> list[str]:
    """Returns the tenants of `fixed` (which must not be moved), sorted, that `recommend_moves` would move down, because
    they delay others, if no tenant were fixed.
    """
    free = SubscriptionWindows(
        case.topic, case.subscription, case.ladder, case.routed, frozenset(), case.width, case.slices
    )
    return sorted({one.tenant for one in recommend_moves(free) if one.action in _DOWN} & case.fixed)


def without_contrast(case: SubscriptionWindows, moves: Iterable[LevelMove]) -> list[LevelMove]:
    """Finds moves to a lower level that the figures do not support: in windows that are no evidence of any such move in
    `moves`, the share of late messages of others was at least as high as in those of the move, or lower by less than
    0.05 (LATE). A move is not among them if there are no such windows, or others had nothing done in them.
    """
    down = [one for one in moves if one.action in _DOWN]
    blamed = {at for one in down for at in one.windows}
    rest = [one for one in case.slices if one.at not in blamed]
    late = {one: _late(one.tenant, rest) for one in down}
    return [one for one, else_ in late.items() if else_ is not None and else_ > (one.late or 0) - LATE]


def is_noisy(tenant: str, one: LoadWindow) -> bool:
    """True if the tenant is loud in the window: it has at least a quarter of all arrivals, at least 100, and at least
    twice an equal share, and another tenant has some too.
    """
    load = one.tenants.get(tenant)
    if load is None or load.volume < LEAST or one.active < 2:
        return False
    return load.volume >= LOUD * one.volume and load.volume * one.active >= TIMES * one.volume


def is_degraded(one: LoadWindow) -> bool:
    """True if tenants that are not loud (`is_noisy`) were harmed in the window: more than 5 % (LATE) of their done
    messages were done later than the goal. False if they had fewer than 20 (JUDGED) messages done.
    """
    done, late = _others(one)
    return done >= JUDGED and late > LATE * done


def _others(one: LoadWindow) -> tuple[int, int]:
    quiet = [load for tenant, load in one.tenants.items() if not is_noisy(tenant, one)]
    return one.done + sum(load.done for load in quiet), one.late + sum(load.late for load in quiet)


def _fewest(case: SubscriptionWindows, recent: Sequence[LoadWindow]) -> list[tuple[str, tuple[LoadWindow, ...]]]:
    """Tenants to move, each with the windows blamed on it: a greedy choice, less the tenants that the other ones make
    needless.
    """
    open_ = {
        one.at for one in recent if is_degraded(one) and not any(_explains(case, tenant, one) for tenant in case.routed)
    }
    blamed: dict[str, dict[int, LoadWindow]] = {}
    for tenant in sorted({name for one in recent for name in one.tenants} - case.fixed):
        blamed[tenant] = {
            one.at: one for one in _lately(case, tenant, recent) if is_degraded(one) and _would_help(case, tenant, one)
        }
    chosen: list[str] = []
    while True:
        worth = {
            tenant: (len(open_ & windows.keys()), _volume(tenant, windows.values()))
            for tenant, windows in blamed.items()
        }
        best = max(worth, key=lambda tenant: (*worth[tenant], tenant), default=None)
        if best is None or worth[best][0] < ENTER:
            break
        chosen.append(best)
        open_ -= blamed[best].keys()
    return [(one, tuple(blamed[one].values())) for one in _needed_tenants(chosen, blamed)]


def _needed_tenants(chosen: Sequence[str], blamed: Mapping[str, Mapping[int, LoadWindow]]) -> list[str]:
    kept = list(chosen)
    for one in chosen:
        others = {at for other in kept if other != one for at in blamed[other]}
        if blamed[one].keys() <= others:
            kept.remove(one)
    return kept


def _volume(tenant: str, windows: Iterable[LoadWindow]) -> int:
    return sum(one.tenants[tenant].volume for one in windows)


def _next(case: SubscriptionWindows, tenant: str) -> str | None:
    """The level below the tenant's present one; None if that is the last."""
    place = case.routed.get(tenant)
    at = -1 if place is None else case.ladder.index(place)
    return case.ladder[at + 1] if at + 1 < len(case.ladder) else None


def _lately(case: SubscriptionWindows, tenant: str, recent: Sequence[LoadWindow]) -> Iterator[LoadWindow]:
    """Recent windows after the last one in which workers handled the tenant in the level below, or not in its level by
    the file. So no window that led to one move leads to the next.
    """
    target, place = _next(case, tenant), case.routed.get(tenant)
    found = [(one.at, one.tenants[tenant].levels) for one in recent if tenant in one.tenants]
    elsewhere = [at for at, levels in found if target in levels or (place is not None and place not in levels)]
    after = max(elsewhere, default=-1)
    return (one for one in recent if one.at > after)


def _would_help(case: SubscriptionWindows, tenant: str, one: LoadWindow) -> bool:
    """True if the tenant is loud in the window, and there is a level below its own."""
    return _next(case, tenant) is not None and is_noisy(tenant, one)


def _explains(case: SubscriptionWindows, tenant: str, one: LoadWindow) -> bool:
    """True if the tenant was loud in the window, and its route in the file was not in effect then: no other move is
    needed for this window.
    """
    return is_noisy(tenant, one) and case.routed[tenant] not in one.tenants[tenant].levels


def _calm(tenant: str, recent: Sequence[LoadWindow]) -> bool:
    return all(one.tenants[tenant].volume < CALM * max(1, one.volume) for one in recent if tenant in one.tenants)


def _leaving(case: SubscriptionWindows, tenant: str, guilt: Sequence[LoadWindow]) -> LevelMove:
    place, target = case.routed.get(tenant), _next(case, tenant)
    assert target is not None  # else nothing would be blamed on it
    action = "isolate" if place is None else "degrade"
    return _move(case, tenant, action, (place or "L1", target), guilt)


def _back(case: SubscriptionWindows, tenant: str, recent: Sequence[LoadWindow]) -> LevelMove:
    return _move(case, tenant, "upgrade", (case.routed[tenant], "L1"), recent)


def _move(
    case: SubscriptionWindows, tenant: str, action: str, levels: tuple[str, str], windows: Sequence[LoadWindow]
) -> LevelMove:
    at = {one.at for one in windows}
    volume = sum(one.tenants[tenant].volume for one in windows if tenant in one.tenants)
    late, late_else = (
        _late(tenant, [one for one in case.slices if (one.at in at) is inside]) for inside in (True, False)
    )
    share = volume / max(1, sum(one.volume for one in windows))
    return LevelMove(case.topic, case.subscription, tenant, action, *levels, tuple(sorted(at)), share, late, late_else)


def _late(tenant: str, windows: Sequence[LoadWindow]) -> float | None:
    """Returns the share of messages that were done later than the goal, of all tenants except `tenant`. None if the
    others had nothing done.
    """
    done = sum(one.done + sum(load.done for name, load in one.tenants.items() if name != tenant) for one in windows)
    late = sum(one.late + sum(load.late for name, load in one.tenants.items() if name != tenant) for one in windows)
    return late / done if done else None
