"""Recommendations by the use of slots, for every audited subscription: bulkheads, limits, slots and promotions, or the
reason why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.command_line import duration
from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.order_keepers import (
    DeclaredLimit,
    SerialKey,
    idle_while_waiting,
    limit_exceeded,
    recommend_limit,
    recommend_slots,
    serial_keys,
)
from kodo_pipeline.recommend.promotions import PromotionCase, recommend_promotions
from kodo_pipeline.recommend.slot_bulkheads import (
    DeclaredBulkhead,
    LaneGroup,
    bulkheads_exceeded,
    recommend_bulkhead,
)
from kodo_pipeline.recommend.slot_query import SlotQuery
from kodo_pipeline.recommend.slot_use import SettingChange, SubscriptionSlots
from kodoctl.errors import UsageError, error
from kodoctl.topology.defaults import read_levels, read_states
from kodoctl.topology.lint.rules.lanes import ORDERED
from kodoctl.topology.model.subscription import ConcurrencyLimit
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.names import State
from kodoctl.topology.slot_ranges import declared_slots, total_slots

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_query import Key
    from kodo_pipeline.recommend.slot_use import SlotWindow
    from kodo_pipeline.recommend.subscription_routes import SubscriptionRoutes
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic, Subscription

NAMED: Final = 3  # keys named in one note
Moves = Sequence[tuple["SubscriptionRoutes", Sequence[LevelMove]]]


@dataclass(frozen=True, slots=True)
class Goals:
    """Goals in ms. `goal`: time within which messages of every tenant should be done; `tenants`: by tenant, the time
    within which its handler runs should begin; for all others that is `goal`.
    """

    goal: int
    tenants: Mapping[str, int]


def tenant_goals(given: Sequence[str]) -> dict[str, int]:
    """Parses goals of single tenants, such as u7=2s, to ms by tenant. The last goal of a tenant counts. Raises
    UsageError (K804) for a text of another form.
    """
    found = {}
    for text in given:
        tenant, sign, goal = text.rpartition("=")
        if not sign or not tenant:
            raise UsageError(error("K804", "not a time", f"--target {text}: write TENANT=TIME, such as u7=2s"))
        found[tenant] = duration("--target", goal)
    return found


@dataclass(frozen=True, slots=True)
class SlotAdvice:
    """Recommended changes by the use of slots. `moves`: promotions and returns by (topic, subscription); `notes`:
    sentences about subscriptions that could not be judged or helped.
    """

    settings: tuple[SettingChange, ...]
    moves: Mapping[Key, Sequence[LevelMove]]
    notes: tuple[str, ...]


def slot_query(expansion: Expansion, width: int, goals: Goals, places: Sequence[SubscriptionRoutes]) -> SlotQuery:
    """Makes the query for the slot use of all audited subscriptions (`audit` in the file), in windows of `width` ms.
    `places`: name the tenants that routes have promoted.
    """
    audited = [
        (topic, name)
        for topic, ground in expansion.topology.spec.topics.items()
        for name, subscription in ground.subscriptions.items()
        if subscription.audit
    ]
    promoted = [(one.topic, one.subscription, tenant) for one in places for tenant in one.promoted]
    return SlotQuery(audited, width, goals.goal, goals.tenants, promoted)


def recommend_by_slots(
    found: Mapping[Key, Sequence[SlotWindow]], query: SlotQuery, expansion: Expansion, goals: Goals, moves: Moves
) -> SlotAdvice:
    """Recommends settings and promotions. `found`: result of the query `query`; `moves`: moves of noisy tenants, by
    subscription.
    """
    settings: list[SettingChange] = []
    promotions: dict[Key, Sequence[LevelMove]] = {}
    notes: list[str] = []
    routes = {(one.topic, one.subscription): (one, some) for one, some in moves}
    for key in query.pairs:
        ground = expansion.topology.spec.topics[key[0]]
        subscription = ground.subscriptions[key[1]]
        name = " / ".join(key)
        if key not in found:
            notes.append(f"{name}: no audit record says how long handlers ran: its slots are not judged")
            continue
        total = total_slots(subscription)
        slots = SubscriptionSlots(*key, total or 0, query.width, found[key])
        if total is None:
            notes.append(f"{name}: `concurrency: adaptive` has no number of slots: no bulkhead is judged")
        else:
            change, more = judge_settings(slots, ground, subscription)
            settings += [change] if change is not None else []
            notes += [f"{name}: {note}" for note in more]
        if key in routes:
            promotions[key] = recommend_promotions(_promotion_case(slots, *routes[key], goals))
    return SlotAdvice(tuple(settings), promotions, tuple(notes))


def judge_settings(
    slots: SubscriptionSlots, ground: GroundTopic, subscription: Subscription
) -> tuple[SettingChange | None, list[str]]:
    """Chooses at most one setting of a subscription to change: (setting or None, notes)."""
    groups = [
        *(LaneGroup("states", one.value) for one in (State.READY, *read_states(subscription))),
        *(LaneGroup("levels", one.value) for one in read_levels(ground)),
    ]
    declared = [
        DeclaredBulkhead(LaneGroup(*one.path), one.slots.max, one.slots.min)
        for one in declared_slots(ground, subscription)
        if one.path[0] in ("states", "levels")
    ]
    by_property = ground.fair_by if ground.fair_by != KEY else None
    limit = _declared_limit(subscription, by_property) if by_property is not None else None
    after = max(bulkheads_exceeded(slots, declared), limit_exceeded(slots, limit))
    change = recommend_bulkhead(slots, groups, declared, after)
    if subscription.type not in ORDERED:
        return change, []
    if change is None and by_property is not None:
        change = recommend_limit(slots, by_property, limit, after)
    keys = serial_keys(slots) if ground.fair_by == KEY else []
    if change is None and not keys:
        change = recommend_slots(slots, after)
    return change, _notes(slots, keys, change)


def _declared_limit(subscription: Subscription, fair_by: str) -> DeclaredLimit | None:
    """The strictest limit of handlers at once for each tenant, in all lanes."""
    found = [
        DeclaredLimit(at, one.limit, one.scope == "subscription", frozenset(one.overrides))
        for at, one in enumerate(subscription.limits)
        if isinstance(one, ConcurrencyLimit) and one.by == fair_by and one.in_ is None
    ]
    return min(found, key=lambda one: one.limit, default=None)


def _notes(slots: SubscriptionSlots, keys: Sequence[SerialKey], change: SettingChange | None) -> list[str]:
    notes = [
        f"key {one.key} ran {one.busy:,.0f} s of {one.span:,.0f} s in {one.windows} windows: its messages run one after"
        " the other, so no setting helps but quicker handlers, or finer keys"
        for one in keys[:NAMED]
    ]
    idle = idle_while_waiting(slots)
    if idle is not None and change is None and not keys:
        notes.append(
            f"messages waited in {idle[0]} windows while {idle[1]:.1f} of {slots.total} slots of a worker were in use:"
            " they wait for their own key, or one partition; more partitions are not recommended, since keys would go"
            " to others while older messages of theirs wait"
        )
    return notes


def _promotion_case(
    slots: SubscriptionSlots, place: SubscriptionRoutes, moves: Sequence[LevelMove], goals: Goals
) -> PromotionCase:
    moved = {one.tenant for one in moves}
    demoted = {tenant for tenant in place.routed if tenant not in place.promoted}
    noisy = frozenset(at for one in moves if one.action != "upgrade" for at in one.windows)
    fixed = place.fixed | moved | demoted
    return PromotionCase(slots, place.above[0], place.promoted, fixed, noisy, goals.tenants, goals.goal)
