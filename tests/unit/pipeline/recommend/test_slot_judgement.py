"""What each kind of subscription is recommended by its slots, and what is said where nothing helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.slot_judgement import (
    Goals,
    judge_settings,
    recommend_by_slots,
    slot_query,
    tenant_goals,
)
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, SubscriptionSlots, TenantUse
from kodo_pipeline.recommend.subscription_routes import movable_subscriptions, with_level

from kodoctl.errors import UsageError
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.model.topology import GroundTopic
from kodoctl.topology.names import Level

WIDTH = 300_000


def judged(subscription, windows, fair_by="uid", total=8):
    ground = GroundTopic.model_validate({"fair_by": fair_by, "subscriptions": {"s": subscription}})
    slots = SubscriptionSlots("orders", "s", total, WIDTH, windows)
    change, notes = judge_settings(slots, ground, ground.subscriptions["s"])
    return change and (change.action, ".".join(map(str, change.path)), change.after), notes


def windows(lanes, tenants=None, number=4):
    used = {
        lane: LaneUse(round(slots * WIDTH), round(offered * WIDTH), 100, late)
        for lane, (slots, offered, late) in lanes.items()
    }
    loads = {
        name: TenantUse(round(slots * WIDTH), round(slots * WIDTH), 50, 0) for name, slots in (tenants or {}).items()
    }
    return [SlotWindow(at * WIDTH, 1, used, loads) for at in range(number)]


HANGS = windows({("L1", "ready"): (0.5, 0.5, 50), ("L1", "retrying"): (7.5, 7.5, 0)})
TAKEN = windows({("L1", "ready"): (7.9, 9.0, 50)}, {"acme": 7.5})
SHORT = windows({("L1", "ready"): (7.9, 9.0, 50)}, {"a": 0.5})
IDLE = windows({("L1", "ready"): (1.0, 1.0, 50)}, {"k1": 0.98})


def test_bulkheads_are_for_every_kind_and_the_rest_for_those_that_keep_order():
    for kind in ("shared", "key_shared", "failover", "exclusive"):
        assert judged({"type": kind}, HANGS)[0] == ("bulkhead", "concurrency.states.retrying.max", 6)
    assert judged({}, TAKEN) == (None, [])
    assert judged({"type": "key_shared"}, TAKEN)[0] == ("limit", "limits", 5)
    assert judged({"type": "failover"}, SHORT)[0] == ("concurrency", "concurrency.total", 12)
    assert judged({"type": "failover"}, SHORT, fair_by="key")[0] == ("concurrency", "concurrency.total", 12)
    assert judged({"type": "failover"}, SHORT, fair_by=None)[0] == ("concurrency", "concurrency.total", 12)


def test_what_is_not_in_effect_yet_is_awaited_whatever_else_could_be_done():
    limits = [
        {"kind": "concurrency", "by": "uid", "limit": 7}, {"kind": "rate", "limit": "5/s"},
        {"kind": "concurrency", "by": "uid", "limit": 1, "in": {"states": ["ready"]}},
        {"kind": "concurrency", "by": "uid", "limit": 20},
    ]  # fmt: skip
    assert judged({"type": "key_shared", "limits": limits}, TAKEN)[0] is None
    slots = {"total": 8, "states": {"retrying": {"max": 6}}, "lanes": {"L1/retrying": {"max": 1}}}
    assert judged({"type": "key_shared", "concurrency": slots}, HANGS)[0] is None


def test_a_limit_of_all_workers_is_told_from_one_of_each():
    four = [replace(one, workers=4, lanes={lane: replace(use, slot_ms=4 * use.slot_ms, offered_ms=4 * use.offered_ms)
                                           for lane, use in one.lanes.items()},
                    tenants={name: replace(use, slot_ms=4 * use.slot_ms, offered_ms=4 * use.offered_ms)
                             for name, use in one.tenants.items()}) for one in TAKEN]  # fmt: skip
    declared = {"kind": "concurrency", "by": "uid", "limit": 31}
    assert judged({"type": "key_shared", "limits": [declared]}, four)[0] == ("limit", "limits.0.limit", 20)
    each = {**declared, "scope": "worker"}
    assert judged({"type": "key_shared", "limits": [each]}, four)[0] == ("limit", "limits.0.limit", 5)
    own = {**declared, "overrides": {"acme": 30}}
    assert judged({"type": "key_shared", "limits": [own]}, four)[0] != ("limit", "limits.0.limit", 20)


def test_keys_that_run_one_after_the_other_are_named_and_partitions_are_not_recommended():
    change, (note,) = judged({"type": "key_shared"}, IDLE, fair_by="key")
    assert change is None
    assert note.startswith("key k1 ran 1,176 s of 1,200 s in 4 windows: its messages run one after the other")
    change, (note,) = judged({"type": "failover"}, IDLE)
    assert change is None
    assert note.startswith("messages waited in 4 windows while 1.0 of 8 slots of a worker were in use")
    assert "more partitions are not recommended" in note


def test_goals_of_tenants():
    assert tenant_goals(["u7=2s", "a=b=500ms", "u7=1s"]) == {"u7": 1_000, "a=b": 500}
    for wrong in ("2s", "=2s", "u7=", "u7=soon", "u7=0s"):
        with pytest.raises(UsageError, match="K804"):
            tenant_goals([wrong])


FILE = """\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    fair_by: uid
    levels: [S1, L2, L1, B1, D1]
    message_properties: {uid: required}
    subscriptions:
      s:
        audit: true
        routes:
          - {when: {property: uid, in: [up]}, to: S1}
          - {when: {property: uid, in: [down, up]}, to: D1}
          - {when: {property: uid, equals: mine}, to: L2}
      ordered: {type: key_shared, audit: true}
      unknown: {}
  keys: {fair_by: key, subscriptions: {s: {audit: true, concurrency: adaptive}}}
  all: {subscriptions: {s: {audit: true}}}
"""


@pytest.fixture
def expansion(tmp_path):
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(tmp_path / "trade.yaml")))


def test_subscriptions_whose_tenants_can_be_moved(expansion):
    (orders, keys), notes = movable_subscriptions(expansion)
    assert (orders.ladder, orders.above, orders.added) == (("B1", "D1"), ("L2", "S1"), {})
    assert (orders.routed, orders.promoted) == ({"up": "S1", "down": "D1"}, {"up": "S1"})
    assert orders.fixed == {"mine", "(none)", "(unknown)"}
    assert (keys.ladder, keys.above) == (("B1",), ("L2",))
    assert keys.adds(["B1", "L1"]) == {"backup": ("true", True)}
    assert keys.adds(["L2"]) == {"levels": ("double", "double")}
    assert [one.partition(":")[0] for one in notes] == [
        "orders / ordered keeps order", "orders / unknown has no `audit", "all has no `fair_by`",
    ]  # fmt: skip


def test_every_audited_subscription_is_judged_and_what_is_moved_down_is_not_promoted(expansion):
    (orders, keys), _ = movable_subscriptions(expansion)
    goals = Goals(10_000, {"vip": 500})
    query = slot_query(expansion, WIDTH, goals, [orders, keys])
    assert query.pairs == [("orders", "s"), ("orders", "ordered"), ("keys", "s"), ("all", "s")]
    assert query.promoted == [("orders", "s", "up")]
    lane = {("L1", "ready"): LaneUse(20_000, 20_000, 200, 6)}
    load = TenantUse(200, 200, 2, 2, frozenset({"L1"}))
    light = [SlotWindow(at * WIDTH, 1, lane, {"vip": load, "down": load, "gone": load}) for at in range(6)]
    moved = LevelMove("orders", "s", "gone", "isolate", "L1", "B1", (0, WIDTH), 0.5, 0.5, 0.0)
    calm = LevelMove("orders", "s", "down", "upgrade", "D1", "L1", (0,), 0.0, 0.0, 0.0)
    found = {("orders", "s"): light, ("orders", "ordered"): HANGS, ("keys", "s"): HANGS}
    advice = recommend_by_slots(found, query, expansion, goals, [(orders, [moved, calm]), (keys, [])])
    promoted = {key: [(one.tenant, one.target, len(one.windows)) for one in some] for key, some in advice.moves.items()}
    assert promoted == {("orders", "s"): [("vip", "L2", 4)], ("keys", "s"): []}
    assert [(one.subscription, one.after) for one in advice.settings] == []
    assert [one.partition(":")[0] for one in advice.notes] == ["orders / ordered", "keys / s", "all / s"]


def test_one_more_level():
    assert with_level(GroundTopic(), Level.L2) == ("double", "double")
    assert with_level(GroundTopic(levels="double"), Level.S1) == ("[L1, L2, S1]", ["L1", "L2", "S1"])
    assert with_level(GroundTopic(levels=(Level.L1, Level.D1)), Level.L2) == ("[L1, D1, L2]", ["L1", "D1", "L2"])
