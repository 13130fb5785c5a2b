"""Subscriptions whose tenants can be moved by routes, with their present routes and levels in the file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kodo_pipeline.ingest.events import NOBODY, UNKNOWN
from kodo_pipeline.recommend.yaml_patch import ManagedRoute, foreign_tenants, managed_routes
from kodoctl.topology.defaults import active_levels, read_levels
from kodoctl.topology.lint.rules.lanes import ORDERED
from kodoctl.topology.names import Level

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import GroundTopic


@dataclass(frozen=True, slots=True)
class SubscriptionRoutes:
    """Settings of one subscription in the file. `ladder`: levels below L1, nearest first; `above`: levels above it,
    nearest first; `added`: those of these levels that the file lacks, each with (key of the topic that adds the level,
    value of the key as text in the file, and as data). `routes`: routes that kodoctl manages; `fixed`: tenants that
    must not be moved.
    """

    topic: str
    subscription: str
    fair_by: str
    ladder: tuple[str, ...]
    above: tuple[str, ...]
    added: Mapping[str, tuple[str, str, Any]]
    routes: tuple[ManagedRoute, ...]
    fixed: frozenset[str]

    @property
    def routed(self) -> dict[str, str]:
        """Level by tenant, of the managed routes. If several routes name a tenant, the first counts."""
        found: dict[str, str] = {}
        for one in self.routes:
            for tenant in one.tenants:
                found.setdefault(tenant, one.to)
        return found

    @property
    def promoted(self) -> dict[str, str]:
        """Level by tenant, for tenants that managed routes send above L1."""
        return {tenant: level for tenant, level in self.routed.items() if level in self.above}

    def adds(self, levels: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Keys that the topic needs for these levels, each with its value as (text in the file, data)."""
        needed = [self.added[level] for level in levels if level in self.added]
        return {key: (text, value) for key, text, value in needed}


def movable_subscriptions(expansion: Expansion) -> tuple[list[SubscriptionRoutes], list[str]]:
    """Finds subscriptions whose tenants can be told apart and moved: (these subscriptions, a sentence for each other
    subscription, or for its topic if that lacks `fair_by`).
    """
    places, notes = [], []
    for topic, ground in expansion.topology.spec.topics.items():
        if ground.fair_by is None:
            notes.append(f"{topic} has no `fair_by`: everybody is one tenant, and nobody can be moved")
            continue
        for name, subscription in ground.subscriptions.items():
            if subscription.type in ORDERED:
                notes.append(f"{topic} / {name} keeps order: no route may move its messages; its slots are judged")
            elif not subscription.audit:
                notes.append(f"{topic} / {name} has no `audit: true`: nobody knows how long its messages take")
            else:
                places.append(_routes_of(topic, name, ground))
    return places, notes


def _routes_of(topic: str, name: str, ground: GroundTopic) -> SubscriptionRoutes:
    levels = [one for one in active_levels(ground) if one not in ground.exclusive_levels]
    below = tuple(one.value for one in levels if one.rank > Level.L1.rank)
    above = tuple(one.value for one in reversed(levels) if one.rank < Level.L1.rank)
    added: dict[str, tuple[str, str, Any]] = {}
    if not below:
        added[Level.B1.value] = ("backup", "true", True)
    if not above:
        there = read_levels(ground)  # an exclusive or draining level takes no other tenants
        free = (one for one in reversed(Level) if one.rank < Level.L1.rank and one not in there)
        level = next(free, Level.L2)
        added[level.value] = ("levels", *with_level(ground, level))
        above = (level.value,)
    ladder, higher = below or (Level.B1.value,), above
    assert ground.fair_by is not None
    known = (ground.subscriptions[name].routes, ground.fair_by, (*ladder, *higher))
    exclusive = {tenant for tenants in ground.exclusive_levels.values() for tenant in tenants}
    fixed = foreign_tenants(*known) | exclusive | {NOBODY, UNKNOWN}
    return SubscriptionRoutes(topic, name, ground.fair_by, ladder, higher, added, tuple(managed_routes(*known)), fixed)


def with_level(ground: GroundTopic, level: Level) -> tuple[str, Any]:
    """New value of the topic's key `levels` with one more level, as (text in the file, data)."""
    if ground.levels == "single" and level is Level.L2:
        return "double", "double"
    named = {"single": (Level.L1,), "double": (Level.L1, Level.L2)}
    there = named[ground.levels] if isinstance(ground.levels, str) else ground.levels
    listed = [one.value for one in (*there, level)]
    return f"[{', '.join(listed)}]", listed
