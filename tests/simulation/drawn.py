"""What a seed stands for: a topology, read as a user's file is, and how the run is made hard. Small numbers: much happens soon."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

from kodo_consumer.core.values.policy import Policy
from kodo_consumer.policy_builder import policy_of

from kodoctl.topology.load import load_set, source_of

TOPOLOGIES = 300  # different ones: a seed takes one of them
_ISOLATING = 0.15  # of those that keep no order
_ROUTING = 0.3  # of those
_DELAYS = ("1s", "2s", "4s", "6s", "20s", "1m", "5m")


@dataclass(frozen=True)
class Shape:
    """One subscription or two on the topic `orders`."""

    policies: tuple[Policy, ...]
    shares: tuple[
        list[Fraction], ...
    ]  # of each lane in the handler starts: worked out here, not by the consumer's own sums


@lru_cache(maxsize=TOPOLOGIES)
def shape(number: int) -> Shape:
    """The topology of that number."""
    rng = Random(number)
    ground = _ground(rng)
    names = ("one", "two") if rng.random() < 0.15 else ("one",)
    ordered = rng.random() < 0.3
    ground["subscriptions"] = {name: _subscription(rng, ground, ordered=ordered) for name in names}
    _let_isolate(Random(f"aside {number}"), ground, ordered=ordered)
    if not ordered:
        for name in names:
            _route_what_waits(Random(f"routes {number} {name}"), ground, ground["subscriptions"][name])
    topics = {"orders": ground, "shipments": {"subscriptions": {"tracking": {}}}}
    file = {"version": 1, "name": "sim", "tenant": "p", "namespace": "n", "topics": topics}
    loaded = load_set([source_of(json.dumps(file).encode(), "drawn.yaml")], None)
    assert not loaded.findings, (number, loaded.findings)
    policies = tuple(policy_of(loaded.topologies[0], "orders", name) for name in names)
    return Shape(
        policies,
        tuple(_weights(ground["subscriptions"][name], policy) for name, policy in zip(names, policies, strict=True)),
    )


def _ground(rng: Random) -> dict[str, Any]:
    ground: dict[str, Any] = {
        "levels": rng.choice(["single", "single", "double", ["L1", "L2", "S1"]]),
        "backup": rng.random() < 0.6,
        "partitions": rng.choice([1, 1, 1, 2, 3]),
    }
    if rng.random() < 0.6:
        ground["fair_by"] = "uid"
    if rng.random() < 0.2:
        ground["draining"] = ["L3"]
    return ground


def _subscription(rng: Random, ground: dict[str, Any], *, ordered: bool) -> dict[str, Any]:
    states = [state for state in ("retrying", "pending", "blocking") if rng.random() < 0.7]
    spec: dict[str, Any] = {
        "states": states,
        "dead_letter": rng.random() < 0.8,
        "isolate": "off",
        "concurrency": rng.choice([1, 2, 4, 8, 16]),
        "handler_timeout": rng.choice(["10s", "30s"]),
        "expected_workers": rng.choice([1, 2, 3]),
        "lookahead": {"messages": rng.choice([40, 200, 1000, 5000])},
        "in_place": rng.choice([[], [], ["1s"], ["2s", "3s"]]),
        "retrying": {"delays": _delays(rng), "attempts": rng.randint(1, 4)},
        "pending": {"delays": _delays(rng), "attempts": rng.randint(1, 4)},
        "blocking": {"delays": _delays(rng), "attempts": rng.randint(1, 4)},
        "backup": {"delays": _delays(rng), "attempts": rng.randint(1, 4)},
        "weights": {state: rng.randint(1, 4) for state in ("ready", *states)},
        "level_weights": {level: rng.randint(1, 3) for level in ("S1", "L1", "L2", "L3", "B1")},
        "produces": ["shipments"],
    }
    if ordered:
        spec["type"] = rng.choice(["key_shared", "failover"])
        spec["on_failure"] = rng.choice(["park", "block", "leave"])
    if states and rng.random() < 0.15:
        spec["draining"] = [states.pop()]
    if "fair_by" in ground and rng.random() < 0.3:
        spec["tenant_weights"] = {"a": rng.randint(1, 3), "b": rng.randint(1, 3)}
    if rng.random() < 0.35:
        spec["limits"] = _limits(rng)
    if not ordered and rng.random() < 0.4:
        spec["routes"] = _routes(rng, ground)
    return spec


def _let_isolate(rng: Random, ground: dict[str, Any], *, ordered: bool) -> None:
    """A part of the topologies moves aside tenants that fill a look-ahead which one of them can fill soon. Drawn apart: the
    others are what they would be without it.
    """
    if ordered or rng.random() >= _ISOLATING:
        return
    ground["fair_by"] = "uid"
    for spec in ground["subscriptions"].values():
        spec["isolate"] = {"share": rng.choice(["20%", "35%"]), "min": rng.choice([5, 12])}
        if "pending" in spec["states"] and rng.random() < 0.3:
            spec["isolate"]["to"] = "pending"
        spec["lookahead"] = {"messages": rng.choice([80, 120, 240])}


def _delays(rng: Random) -> list[str]:
    return sorted(rng.sample(_DELAYS, rng.randint(1, 3)), key=_DELAYS.index)


def _limits(rng: Random) -> list[dict[str, Any]]:
    scope = rng.choice(["worker", "subscription"])
    drawn: list[dict[str, Any]] = [
        {"kind": "rate", "by": "uid", "limit": f"{rng.choice([5, 20, 50])}/s", "burst": rng.choice([5, 20])},
        {"kind": "concurrency", "by": "uid", "limit": rng.choice([3, 4, 6])},
        {"kind": "quota", "limit": f"{rng.choice([30, 100])}/m"},
        {"kind": "rate", "limit": f"{rng.choice([10, 40])}/s", "burst": 10},
    ]
    return [limit | {"scope": scope} for limit in rng.sample(drawn, rng.choice([1, 1, 2]))]


def _routes(rng: Random, ground: dict[str, Any]) -> list[dict[str, Any]]:
    """Every level sends something on: a route taken twice would send it round in circles."""
    levels = ["L1", *(["L2"] if ground["levels"] != "single" else []), *(["B1"] if ground["backup"] else [])]
    return [
        {"when": {"property": "size", "at_least": 900 - 300 * position}, "to": level}
        for position, level in enumerate(rng.sample(levels, min(len(levels), 2)))
    ]


def _route_what_waits(rng: Random, ground: dict[str, Any], spec: dict[str, Any]) -> None:
    """A part of the topologies routes messages whose wait is over. Drawn apart, as isolation is."""
    if rng.random() >= _ROUTING:
        return
    states = spec.get("states", ["retrying", "pending", "blocking"])
    moments = [*states, *(["backup"] if ground["backup"] else [])]
    levels = ["L1", *(["L2"] if ground["levels"] != "single" else []), *(["B1"] if ground["backup"] else [])]
    if moments:
        route = {"when": f"properties['size'] >= {rng.choice([0, 300, 600])}", "at": moments, "to": rng.choice(levels)}
        spec["routes"] = [*spec.get("routes", []), route]


def _weights(spec: dict[str, Any], policy: Policy) -> list[Fraction]:
    weights = []
    for lane in policy.lanes:
        states = [other.state.value for other in policy.lanes if other.level is lane.level]
        within = spec["weights"] if not lane.level.is_backup else {"ready": 1}
        share = Fraction(within[lane.state.value], sum(within[state] for state in states))
        weights.append(spec["level_weights"][lane.level.value] * share)
    return [weight / sum(weights) for weight in weights]
