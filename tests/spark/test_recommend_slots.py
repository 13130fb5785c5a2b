"""Bulkheads, limits, slots and promotions from landed audit records, as a patch that git and the consumer's file take."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.recommend import slot_query
from kodo_pipeline.recommend.recommendation_text import lines
from kodo_pipeline.rollup.job import count
from kodo_pipeline.spark.spark_session import small_table

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.units import LATEST
from tests.brokers.workspace import run_main
from tests.spark.landed import land
from tests.spark.slot_traffic import SlotTraffic

pytestmark = pytest.mark.timeout(1200)
UID = "fair_by: uid, message_properties: {uid: required}"
FILE = f"""\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  hangs: {{{UID}, subscriptions: {{s: {{audit: true, concurrency: 16}}}}}}  # retries hang
  vips:
    fair_by: uid
    message_properties: {{uid: required}}
    subscriptions:
      s: {{audit: true}}  # somebody small waits
  grown:
    fair_by: uid
    levels: double
    message_properties: {{uid: required}}
    subscriptions:
      s:
        audit: true
        routes:
          - {{when: {{property: uid, in: [big, small]}}, to: L2}}
  bills: {{{UID}, subscriptions: {{s: {{type: key_shared, audit: true, concurrency: 8}}}}}}
  stock: {{fair_by: key, subscriptions: {{s: {{type: key_shared, audit: true, concurrency: 8}}}}}}
  parts: {{{UID}, subscriptions: {{s: {{type: failover, audit: true, concurrency: 2}}}}}}
  auto: {{subscriptions: {{s: {{audit: true, concurrency: adaptive}}}}}}
  old: {{subscriptions: {{s: {{audit: true}}}}}}
"""
WINDOW = 300_000
FLOOD = range(9, 13)


def hangs():
    """In four windows retries have almost all of 16 slots, and ready messages wait for 20 s."""
    made = SlotTraffic("hangs")
    for window in range(13):
        flood = window in FLOOD
        made.run(window, "quick", many=100, slot=1_000, wait=20_000 if flood else 5)
        if flood:
            made.run(window, "slow", lane="-s-RETRYING", many=156, slot=30_000, hop=1, wait=100)
    return made


def vips():
    """`vip` brings one run in a hundred, and waits; everybody else has time."""
    made = SlotTraffic("vips")
    for window in range(13):
        for name in range(20):
            made.run(window, f"u{name}", many=10, slot=100, wait=1_000)
        made.run(window, "vip", many=2, slot=100, wait=3_000 if window in FLOOD else 10)
    return made


def grown():
    """`big` and `small` have been promoted; `big` brings a third by now."""
    made = SlotTraffic("grown")
    for window in range(13):
        made.run(window, "big", lane="-L2", many=30, slot=100)
        made.run(window, "small", lane="-L2", many=1, slot=100, hop=1)
        made.run(window, "rest", many=60, slot=100)
    return made


def bills():
    """`acme` has all but a half of eight slots, while others wait."""
    made = SlotTraffic("bills")
    for window in FLOOD:
        made.run(window, "acme", many=75, slot=30_000)
        made.run(window, "other", many=30, slot=1_000, wait=15_000)
    return made


def stock():
    """One key runs without a pause, and whatever else is in its queue waits."""
    made = SlotTraffic("stock")
    for window in FLOOD:
        made.run(window, "k1", many=30, slot=9_800, wait=60_000)
    return made


def parts():
    """Two slots, and work for three."""
    made = SlotTraffic("parts")
    for window in FLOOD:
        for tenant in range(60):
            made.run(window, f"u{tenant}", slot=10_000, wait=15_000 + 2_000 * tenant)
    return made


def check_exclusive(run, file):
    """Tenants of the file as it is by then get levels of their own."""
    own = run("--exclusive", "vips/u1", "--exclusive", "grown/small", "--target", "u1=500ms")
    assert max(map(len, own.out.partition("--- a/")[0].splitlines())) <= 80
    assert "vips: exclusive level S1 for u1" in own.out
    found = json.loads(run("--exclusive", "vips/u1", "--target", "u1=500ms", "--format", "json").out)
    (level,) = found["levels"]
    assert (level["level"], level["figures"][0]["late"], found["moves"], found["settings"]) == ("S1", 1, [], [])
    assert level["figures"][0]["share"] == pytest.approx(10 / 202, abs=1e-3)
    subprocess.run(["git", "apply"], cwd=file.parents[1], input=own.out.encode(), check=True)
    after = file.read_text(encoding="utf-8")
    assert "    exclusive_levels: {S1: [u1]}\n" in after
    assert "    levels: [L1, L2, S1]\n    exclusive_levels: {S1: [small]}\n" in after
    assert "in: [small]" not in after


@pytest.mark.full
def test_what_took_the_slots_is_bounded_and_who_is_light_goes_up(spark, tmp_path, monkeypatch):
    (tmp_path / "topologies").mkdir()
    file = tmp_path / "topologies" / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    landing = Landing(str(tmp_path / "landed"), "trade", None)
    auto = SlotTraffic("auto")
    auto.run(9, "(none)", slot=100)
    rows = [row for one in (hangs(), vips(), grown(), bills(), stock(), parts(), auto) for row in one.audit()]
    land(landing, 0, [*rows, {**rows[0], "id": "9:900:0:-1", "publish_ts": datetime(9999, 12, 30, tzinfo=UTC)}])
    count(spark, landing, expand(load_topology(str(file))), "r1")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        found = run_main("pipeline", "recommend", "topologies/trade.yaml", "--landing", "landed", *arguments)
        assert found.code == 0, found.text
        return found

    found = json.loads(run("--target", "vip=2s", "--format", "json").out)
    assert [(one["topic"], one["tenant"], one["action"], one["from"], one["to"]) for one in found["moves"]] == [
        ("vips", "vip", "promote", "L1", "L2"),
        ("grown", "big", "return", "L2", "L1"),
    ]
    vip = found["moves"][0]
    assert (vip["own_late"], vip["own_late_else"], vip["own_goal_ms"], len(vip["windows"])) == (1, 0, 2_000, 4)
    assert vip["share"] == pytest.approx(0.0099, abs=1e-4)
    settings = {one["topic"]: one for one in found["settings"]}
    told = {name: (one["action"], one["path"], one["from"], one["to"], one["who"]) for name, one in settings.items()}
    assert told == {
        "hangs": ("bulkhead", "concurrency.states.retrying.max", None, 15, "retrying"),
        "bills": ("limit", "limits", None, 7, "acme"),
        "parts": ("concurrency", "concurrency.total", 2, 4, "all lanes"),
    }
    assert settings["hangs"]["busy_slots"] == pytest.approx(15.6, rel=0.05)
    assert (settings["hangs"]["others_late"], settings["hangs"]["others_late_else"]) == (1, 0)
    notes = " ".join(found["notes"])
    assert "stock / s: key k1 ran 1,1" in notes
    assert "auto / s: `concurrency: adaptive`" in notes
    assert "old / s: no audit record says how long handlers ran" in notes

    read = [line.text for line in lines(found)]
    assert "hangs / s: bulkhead concurrency.states.retrying.max, none -> 15" in read
    subprocess.run(["git", "apply"], cwd=tmp_path, input=found["patch"].encode(), check=True)
    after = file.read_text(encoding="utf-8")
    assert "concurrency: {total: 16, states: {retrying: {max: 15}}}" in after
    assert "limits: [{kind: concurrency, by: uid, limit: 7, scope: worker}]" in after
    assert "s: {audit: true, routes: [{when: {property: uid, in: [vip]}, to: L2}]}  # somebody small waits" in after
    assert "- {when: {property: uid, in: [small]}, to: L2}" in after
    again = json.loads(run("--target", "vip=2s", "--format", "json").out)
    assert (again["moves"], again["settings"], again["patch"]) == ([], [], "")

    check_exclusive(run, file)
    wrong = run_main("pipeline", "recommend", "topologies/trade.yaml", "--landing", "landed", "--target", "2s")
    assert (wrong.code, "[K804]" in wrong.err, "TENANT=TIME" in wrong.err) == (64, True, True)


@pytest.mark.full
def test_no_slot_time_that_a_stranger_writes_ends_a_recommendation(spark, tmp_path):
    """One audit message holds so many records that their slot times, each as long as time itself, had a sum overflow."""
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    expansion, many = expand(load_topology(str(tmp_path / "trade.yaml"))), 40_000
    columns = {"after": 0, "topic": 0, "hop": 0, "event": "done", "tenant": "u1", "age": 0, "slot_time": 2**63 - 1}
    head = {
        "format": 1,
        "run": "w",
        "subscription": "s",
        "first": 1,
        "at": LATEST,
        "topics": ["persistent://kodo/trade/vips"],
    }
    payload = json.dumps(head | {name: [value] * many for name, value in columns.items()}).encode()
    assert len(payload) < 5 << 20
    audit = spark.createDataFrame([("vips", payload)], "topic string, payload binary")
    query = slot_query.SlotQuery([("vips", "s")], WINDOW, 10_000, {}, [])
    runs = slot_query._runs(spark, audit, expansion, query)
    added = slot_query._add_windows(runs, slot_query._TENANT, WINDOW).collect()
    assert max(row.offered_ms for row in added) == many * 30 * 86_400_000


def test_a_window_in_which_no_handler_ran_makes_no_tenant_heavy(spark):
    """During a pause the late messages wait through windows without any slot time."""
    loads = {"vip": (4, 4), **{f"u{number}": (24, 0) for number in range(8)}}
    rows = [
        ("vips", "s", WINDOW * at, tenant, 0 if at == 3 else 100 * started, 100 * started, started, late, ["L1"])
        for at in range(4)
        for tenant, (started, late) in loads.items()
    ]
    columns = "topic string, subscription string, window bigint, tenant string, slot_ms bigint, offered_ms bigint"
    tenants = small_table(spark, rows, f"{columns}, started bigint, late bigint, levels array<string>")
    query = slot_query.SlotQuery([("vips", "s")], WINDOW, 10_000, {}, [])
    found = slot_query._relevant_rows(spark, tenants, query).collect()
    assert "vip" in {row["tenant"] for row in found}, "it is light, and late"
