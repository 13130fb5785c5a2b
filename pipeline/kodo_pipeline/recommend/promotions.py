"""Promotions: tenants with little load whose messages wait are moved to a level above L1, and back when their load
grows. Pure.

A tenant is *light* if it brought at most a sixteenth of the runs, and of the slot time, of the newest twelve windows,
and in none of them an eighth. It is promoted if in three of them more than 5 % of its runs began later than its goal:
the one that is declared for it, else that of all. Windows that a move of a noisy tenant is to end do not count. All
promoted tenants together bring at most an eighth; those with a goal of their own come first.

A promoted tenant returns if, since its route is in effect, it brought an eighth in three windows. Such windows among
the newest twelve exclude a promotion, so that no tenant is moved to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_pipeline.recommend.noisy_neighbours import CALM, ENTER, JUDGED, LATE, LevelMove

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_use import SlotWindow, SubscriptionSlots, TenantUse

LIGHT: Final = CALM / 2  # share of runs and slot time up to which a tenant is light
FEWEST: Final = 10  # runs in the newest windows below which a tenant is not judged


@dataclass(frozen=True, slots=True)
class PromotionCase:
    """One subscription whose tenants may be promoted. `level`: the next level above L1; `promoted`: level by tenant,
    for tenants that managed routes send above L1; `fixed`: tenants that must not be moved, also those with another move
    or with a route to a lower level; `noisy`: starts of windows that a move of a noisy tenant should end; `goals`: by
    tenant, in ms; `goal`: of all other tenants.
    """

    slots: SubscriptionSlots
    level: str
    promoted: Mapping[str, str]
    fixed: frozenset[str]
    noisy: frozenset[int]
    goals: Mapping[str, int]
    goal: int

    def goal_of(self, tenant: str) -> int:
        """Time in ms within which handler runs of the tenant should begin."""
        return self.goals.get(tenant, self.goal)


def is_heavy(tenant: str, one: SlotWindow) -> bool:
    """True if the tenant had at least an eighth of the runs (`started` in LaneUse), or of the slot time, of a window
    that has at least 20 runs (JUDGED). False for a tenant that is not among the window's `tenants`. No tenant has a
    share of the slot time of a window in which no handler ran.
    """
    load = one.tenants.get(tenant)
    started, slot_ms = _sums([one])
    if load is None or started < JUDGED:
        return False
    return load.started >= CALM * started or load.slot_ms >= max(1, CALM * slot_ms)


def recommend_promotions(case: PromotionCase) -> list[LevelMove]:
    """Recommends moves for one subscription: promotions, first of tenants with a goal of their own, and in both groups
    first of tenants with the largest share of late runs, as long as all promoted ones together bring at most an eighth
    of the load (CALM); then returns to L1, by name.
    """
    recent = case.slots.recent()
    back = [move for tenant in sorted(case.promoted) if (move := _return(case, tenant, recent)) is not None]
    shares = {tenant: _share(tenant, recent) for tenant in case.promoted}
    for move in back:
        del shares[move.tenant]
    names = {tenant for one in recent for tenant in one.tenants} - case.fixed - case.promoted.keys()
    found = [move for tenant in names if (move := _promotion(case, tenant, recent)) is not None]
    promoted = []
    for move in sorted(found, key=lambda one: (one.tenant not in case.goals, -(one.late or 0), one.tenant)):
        share = _share(move.tenant, recent)
        if sum(shares.values()) + share <= CALM:
            shares[move.tenant] = share
            promoted.append(move)
    return [*promoted, *back]


def _promotion(case: PromotionCase, tenant: str, recent: Sequence[SlotWindow]) -> LevelMove | None:
    runs = sum(one.tenants[tenant].started for one in recent if tenant in one.tenants)
    if runs < FEWEST or any(is_heavy(tenant, one) for one in recent) or _share(tenant, recent) > LIGHT:
        return None
    there = [one for one in recent if tenant in one.tenants]
    after = max((one.at for one in there if case.level in one.tenants[tenant].levels), default=-1)
    late = [one for one in there if one.at > after and one.at not in case.noisy and _is_late(one.tenants[tenant])]
    return _move(case, tenant, "promote", ("L1", case.level), late) if len(late) >= ENTER else None


def _return(case: PromotionCase, tenant: str, recent: Sequence[SlotWindow]) -> LevelMove | None:
    if tenant in case.fixed:
        return None
    level = case.promoted[tenant]
    there = [one for one in recent if tenant in one.tenants]
    after = max((one.at for one in there if level not in one.tenants[tenant].levels), default=-1)
    heavy = [one for one in there if one.at > after and is_heavy(tenant, one)]
    return _move(case, tenant, "return", (level, "L1"), heavy) if len(heavy) >= ENTER else None


def _is_late(load: TenantUse) -> bool:
    return load.late > LATE * load.started


def _sums(windows: Sequence[SlotWindow]) -> tuple[int, int]:
    """(runs, slot time in ms) of all tenants."""
    lanes = [lane for one in windows for lane in one.lanes.values()]
    return sum(lane.started for lane in lanes), sum(lane.slot_ms for lane in lanes)


def _share(tenant: str, windows: Sequence[SlotWindow]) -> float:
    """The larger of the tenant's shares of the runs and of the slot time."""
    started, slot_ms = _sums(windows)
    own = [one.tenants[tenant] for one in windows if tenant in one.tenants]
    return max(sum(one.started for one in own) / max(1, started), sum(one.slot_ms for one in own) / max(1, slot_ms))


def _move(
    case: PromotionCase, tenant: str, action: str, levels: tuple[str, str], windows: Sequence[SlotWindow]
) -> LevelMove:
    at = {one.at for one in windows}
    late, late_else = (
        _late(tenant, [one for one in case.slots.slices if (one.at in at) is inside]) for inside in (True, False)
    )
    slots = case.slots
    return LevelMove(
        slots.topic, slots.subscription, tenant, action, *levels, tuple(sorted(at)), _share(tenant, windows), late,
        late_else, case.goal_of(tenant),
    )  # fmt: skip


def _late(tenant: str, windows: Sequence[SlotWindow]) -> float | None:
    own = [one.tenants[tenant] for one in windows if tenant in one.tenants]
    started = sum(one.started for one in own)
    return sum(one.late for one in own) / started if started else None
