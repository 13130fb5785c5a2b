"""Exclusive levels for single tenants: choice of a free level, changes of the file, and the tenant's load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.recommendation_document import TenantShare
from kodo_pipeline.recommend.slot_use import SubscriptionSlots
from kodo_pipeline.recommend.subscription_routes import SubscriptionRoutes, with_level
from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.topology.defaults import read_levels
from kodoctl.topology.lint.rules.lanes import ORDERED
from kodoctl.topology.names import Level

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_query import Key
    from kodo_pipeline.recommend.slot_use import SlotWindow
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic

FREE: Final = tuple(Level(name) for name in ("S1", "S2", "S3", "L2", "L3", "L4", "L5", "L6", "L7", "L8"))


@dataclass(frozen=True, slots=True)
class ExclusiveLevel:
    """A level of a topic that admits one tenant. `levels`: new value of the topic's key `levels`, which contains this
    level and those made before it, as (text in the file, data); `figures`: see `tenant_figures`.
    """

    topic: str
    tenant: str
    level: str
    levels: tuple[str, Any]
    figures: tuple[TenantShare, ...] = ()


def exclusive_levels(
    expansion: Expansion, given: Sequence[str], places: Sequence[SubscriptionRoutes]
) -> list[ExclusiveLevel]:
    """Chooses for each TOPIC/TENANT in `given` the first level, of S1 to S3, then of L2 to L8, that the topic does not
    have yet; a draining level, and one that was chosen for an earlier tenant, count as present. Raises UsageError
    (K803) that names every problem. `places`: routes of all movable subscriptions.
    """
    topics = dict(expansion.topology.spec.topics)
    found: list[ExclusiveLevel] = []
    problems: list[Diagnostic] = []
    for text in dict.fromkeys(given):
        topic, _, tenant = text.partition("/")
        problem = _problem(topics.get(topic), topic, tenant, places)
        if problem:
            problems.append(error("K803", "the file cannot be patched", f"--exclusive {text}: {problem}"))
            continue
        ground = topics[topic]
        level = next(one for one in FREE if one not in read_levels(ground))
        found.append(ExclusiveLevel(topic, tenant, level.value, with_level(ground, level)))
        there = {
            "levels": tuple(map(Level, _level_names(ground, level))),
            "exclusive_levels": {**ground.exclusive_levels, level: (tenant,)},
        }
        topics[topic] = ground.model_copy(update=there)
    if problems:
        raise UsageError(*problems)
    return found


def _level_names(ground: GroundTopic, level: Level) -> list[str]:
    found = with_level(ground, level)[1]
    return ["L1", "L2"] if found == "double" else list(found)


def _problem(ground: GroundTopic | None, topic: str, tenant: str, places: Sequence[SubscriptionRoutes]) -> str:
    if not tenant:
        return "write TOPIC/TENANT, such as orders/u7"
    if ground is None:
        return f"{topic} is no topic of the file"
    if ground.fair_by is None:
        return f"{topic} has no `fair_by`, which names tenants"
    ordered = [name for name, one in ground.subscriptions.items() if one.type in ORDERED]
    if ordered:
        return f"{', '.join(ordered)} keeps order: on another level a message would overtake others of its key"
    admitted = next((level for level, names in ground.exclusive_levels.items() if tenant in names), None)
    if admitted is not None:
        return f"{tenant} has {admitted} already"
    if any(one.topic == topic and tenant in one.fixed for one in places):
        return f"a route of the file names {tenant}: take it out first"
    return "" if any(one not in read_levels(ground) for one in FREE) else "no level from S1 to S3 and L2 to L8 is free"


def released_routes(
    levels: Sequence[ExclusiveLevel], places: Sequence[SubscriptionRoutes]
) -> list[tuple[SubscriptionRoutes, list[LevelMove]]]:
    """Returns (subscription, moves) for each subscription in `places` whose managed routes send tenants of `levels` to
    a level of the topic: the moves (with the action exclusive) remove these tenants from the routes.
    """
    found = []
    for place in places:
        names = [one.tenant for one in levels if one.topic == place.topic and one.tenant in place.routed]
        moves = [
            LevelMove(place.topic, place.subscription, name, "exclusive", place.routed[name], "L1", (), 0.0, None, None)
            for name in names
        ]
        found += [(place, moves)] if moves else []
    return found


def tenant_figures(
    one: ExclusiveLevel, found: Mapping[Key, Sequence[SlotWindow]], width: int
) -> tuple[TenantShare, ...]:
    """Load of the tenant on each subscription of its topic that is in `found`, over the newest 12 windows; shares are
    rounded to four decimals. A late run counts in each window in which its message waited longer than the goal.
    `found`: windows by (topic, subscription), of a query that asked for this tenant; `width`: width of a window in ms.
    """
    figures = []
    for (topic, subscription), windows in found.items():
        if topic != one.topic:
            continue
        recent = SubscriptionSlots(topic, subscription, 0, width, windows).recent()
        lanes = [lane for window in recent for lane in window.lanes.values()]
        own = [window.tenants[one.tenant] for window in recent if one.tenant in window.tenants]
        runs, started = sum(load.started for load in own), sum(lane.started for lane in lanes)
        slot_ms, all_ms = sum(load.slot_ms for load in own), sum(lane.slot_ms for lane in lanes)
        late = round(sum(load.late for load in own) / runs, 4) if runs else None
        shares = round(runs / max(1, started), 4), round(slot_ms / max(1, all_ms), 4)
        figures.append(
            TenantShare(subscription=subscription, runs=runs, share=shares[0], slot_share=shares[1], late=late)
        )
    return tuple(figures)
