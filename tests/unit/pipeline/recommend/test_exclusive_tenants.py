"""Levels of their own for single tenants: which one, what stands in the way, and what the file says then."""

from __future__ import annotations

import pytest
import yaml
from kodo_pipeline.recommend.exclusive_tenants import (
    exclusive_levels,
    released_routes,
    tenant_figures,
)
from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, TenantUse
from kodo_pipeline.recommend.subscription_routes import movable_subscriptions
from kodo_pipeline.recommend.verified_patch import Recommendations, patch_topology

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology

UID = "fair_by: uid, message_properties: {uid: required}"
FULL = ", ".join(f"S{n}" for n in (1, 2, 3)) + ", " + ", ".join(f"L{n}" for n in range(1, 9))
FILE = f"""\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    backup: true
    fair_by: uid
    levels: double  # two
    message_properties: {{uid: required}}
    subscriptions:
      s:
        audit: true
        routes:
          - {{when: {{property: uid, in: [loud, other]}}, to: B1}}
          - {{when: {{property: uid, equals: mine}}, to: L2}}
  bills: {{{UID}, levels: [S1, L1], exclusive_levels: {{S1: [u7]}}, subscriptions: {{s: {{}}}}}}
  plain: {{{UID}, subscriptions: {{s: {{audit: true}}}}}}
  keeper: {{{UID}, subscriptions: {{s: {{type: key_shared, audit: true}}}}}}
  all: {{subscriptions: {{s: {{audit: true}}}}}}
  full: {{{UID}, levels: [{FULL}], subscriptions: {{s: {{audit: true}}}}}}
"""


@pytest.fixture
def expansion(tmp_path):
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(tmp_path / "trade.yaml")))


def made(expansion, *given):
    places, _ = movable_subscriptions(expansion)
    levels = exclusive_levels(expansion, given, places)
    return levels, patch_topology(expansion, Recommendations(released_routes(levels, places), (), levels))


def test_tenants_get_levels_that_are_free_and_leave_their_routes(expansion):
    levels, (before, after) = made(expansion, "orders/loud", "orders/a/b", "bills/u8", "plain/x", "plain/x")
    assert before == FILE
    assert [(one.topic, one.tenant, one.level) for one in levels] == [
        ("orders", "loud", "S1"), ("orders", "a/b", "S2"), ("bills", "u8", "S2"), ("plain", "x", "S1"),
    ]  # fmt: skip
    topics = yaml.safe_load(after)["topics"]
    assert topics["orders"]["levels"] == ["L1", "L2", "S1", "S2"]
    assert topics["orders"]["exclusive_levels"] == {"S1": ["loud"], "S2": ["a/b"]}
    assert topics["orders"]["subscriptions"]["s"]["routes"][0]["when"]["in"] == ["other"]
    assert (topics["bills"]["levels"], topics["bills"]["exclusive_levels"]) == (
        ["S1", "L1", "S2"],
        {"S1": ["u7"], "S2": ["u8"]},
    )
    assert (topics["plain"]["levels"], topics["plain"]["exclusive_levels"]) == (["L1", "S1"], {"S1": ["x"]})
    assert "    levels: [L1, L2, S1, S2]  # two\n" in after


def test_what_stands_in_the_way_is_said_all_at_once(expansion):
    wrong = ("orders", "orders/", "no/u7", "all/u7", "keeper/u7", "bills/u7", "orders/mine", "full/u7")
    with pytest.raises(UsageError) as found:
        made(expansion, *wrong, "plain/x")
    details = [one.detail for one in found.value.diagnostics]
    assert [one.partition(": ")[0] for one in details] == [f"--exclusive {text}" for text in wrong]
    for word, detail in zip(
        ("write TOPIC/TENANT", "write TOPIC/TENANT", "no topic", "no `fair_by`", "keeps order", "has S1 already", "route of the file", "is free"),
        details, strict=True,
    ):  # fmt: skip
        assert word in detail


def test_a_tenant_with_a_level_of_its_own_is_moved_by_nothing_else_and_its_level_takes_nobody(expansion, tmp_path):
    _, (_, after) = made(expansion, "plain/x")
    (tmp_path / "trade.yaml").write_text(after, encoding="utf-8")
    places, _ = movable_subscriptions(expand(load_topology(str(tmp_path / "trade.yaml"))))
    plain = next(one for one in places if one.topic == "plain")
    assert (plain.above, plain.fixed) == (("L2",), {"x", "(none)", "(unknown)"})


def test_what_the_tenant_brings(expansion):
    (level,), _ = made(expansion, "plain/x")
    lane = {("L1", "ready"): LaneUse(1_000, 1_000, 10, 0)}
    windows = [SlotWindow(at * 300_000, 1, lane, {"x": TenantUse(500, 500, 2, 1)} if at else {}) for at in range(2)]
    found = {("plain", "s"): windows, ("plain", "t"): [SlotWindow(0, 1, {}, {})], ("orders", "s"): windows}
    assert tenant_figures(level, found, 300_000) == (
        {"subscription": "s", "runs": 2, "share": 0.1, "slot_share": 0.25, "late": 0.5},
        {"subscription": "t", "runs": 0, "share": 0.0, "slot_share": 0.0, "late": None},
    )


@pytest.mark.parametrize(
    ("levels", "level"),
    [
        ("levels: double, exclusive_levels: {L2: [vip]}", "L3"),
        ("levels: single, draining: [L2]", "L3"),
        ("levels: single", "L2"),
    ],
)
def test_a_promotion_goes_to_a_level_that_admits_the_tenant(tmp_path, levels, level):
    text = FILE.replace(f"plain: {{{UID},", f"plain: {{{UID}, {levels},")
    (tmp_path / "trade.yaml").write_text(text, encoding="utf-8")
    expansion = expand(load_topology(str(tmp_path / "trade.yaml")))
    place = next(one for one in movable_subscriptions(expansion)[0] if one.topic == "plain")
    move = LevelMove("plain", "s", "u8", "promote", "L1", place.above[0], (0,), 0.01, 0.5, None)
    _, after = patch_topology(expansion, Recommendations([(place, [move])], ()))
    plain = yaml.safe_load(after)["topics"]["plain"]
    assert plain["subscriptions"]["s"]["routes"] == [{"when": {"property": "uid", "in": ["u8"]}, "to": level}]


def test_a_name_forges_no_line_of_what_is_to_be_written_by_hand(expansion):
    place = movable_subscriptions(expansion)[0][0]
    move = LevelMove("orders", "s", "x\norders / s: vip", "isolate", "L1", "B1", (0,), 0.5, 0.5, None)
    (line,) = Recommendations([(place, [move])], ()).texts()
    assert line.splitlines() == [r"orders / s: x\norders / s: vip from L1 to B1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            FILE.replace("        routes:\n", "        description: new\n        routes:\n"),
            "changed while this command ran",
        ),
        ("routes: [", "changed while this command ran"),
        ("\udcff", "changed while this command ran"),
        (None, "cannot be read any more: No such file"),
    ],
)
def test_a_file_that_changes_while_the_queries_run_is_not_patched(expansion, tmp_path, text, why):
    file = tmp_path / "trade.yaml"
    file.unlink()
    if text is not None:
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(KodoctlError, match=r"K803") as found:
        made(expansion, "orders/loud")
    (problem,) = found.value.diagnostics
    assert why in problem.detail
    assert "orders / s: loud from B1 to L1" in problem.detail, "what was found is not lost"
