"""pipeline lab through the command line: landed traffic, the consumer's own engine, and what a patch would change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.recommend.yaml_patch import unified_diff

from tests.brokers.workspace import run_main
from tests.spark.landed import event, land, record

pytestmark = pytest.mark.timeout(600)
FILE = """\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    fair_by: uid
    message_properties: {uid: required}
    subscriptions:
      billing: {audit: true, concurrency: 1}
  payments:
    subscriptions: {ledger: {}}
"""
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "simulation.v1.json").read_text(encoding="utf-8"))
BEGIN = datetime(2026, 1, 1, 9, tzinfo=UTC)


def check(document):
    """Against the published schema. Every process of a run imports this file, and few need the library, which takes a second."""
    import jsonschema

    jsonschema.validate(document, SCHEMA)


def traffic():
    """100 messages of `noisy` at once, done one after the other in 100 ms each, and 5 of `quiet`; one failed before, which the worker
    told twice.
    """
    events, records = [], []
    for number in range(106):
        tenant, at, took = ("noisy", 0.0, 100 * (number + 1)) if number < 100 else ("quiet", 1.0 + number / 10, 100)
        moment = BEGIN + timedelta(seconds=at)
        place = f"1:{number}:0:-1"
        more = {
            "id": place,
            "mid": place,
            "hop": 0,
            "ledger": 1,
            "entry": number,
            "properties": [("uid", tenant), ("x", "y")],
        }
        meant = {"for_subscription": "shipping"} if number == 105 else {}
        events.append(event("orders", "ready", moment, tenant, **more, **meant))
        if number == 104:
            records += [
                record("orders", "retrying", moment, tenant, 100, identity=place, worker_run="w-1", number=1)
            ] * 2
            took = 10_400
        done = moment + timedelta(milliseconds=took)
        records.append(record("orders", "done", done, tenant, took, identity=place))
    ahead = {
        "id": "1:900:0:-1",
        "mid": "1:900:0:-1",
        "hop": 0,
        "ledger": 1,
        "entry": 900,
        "properties": [("uid", "evil")],
    }
    behind = {**ahead, "id": "1:901:0:-1", "mid": "1:901:0:-1", "entry": 901}
    chosen = (datetime(9999, 12, 30, tzinfo=UTC), ahead), (datetime(2001, 1, 1, tzinfo=UTC), behind)
    return [*events, *(event("orders", "ready", at, "evil", **more) for at, more in chosen)], records


@pytest.mark.full
def test_what_a_patch_would_change_for_each_tenant(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trade.yaml").write_text(FILE, encoding="utf-8")
    after = FILE.replace("concurrency: 1", "concurrency: 4")
    (tmp_path / "more.patch").write_text(unified_diff("trade.yaml", FILE, after), encoding="utf-8")
    land(Landing(str(tmp_path / "landed"), "trade", None), 0, *traffic())

    def run(candidate, *arguments):
        return run_main("pipeline", "lab", "trade.yaml", "--landing", "landed", "--candidate", candidate, *arguments)

    found = run("more.patch", "--format", "json", "--png", "pictures")
    assert found.code == 0, found.text
    check(json.loads(found.out))
    (trial,) = json.loads(found.out)["trials"]
    assert [one.name for one in (tmp_path / "pictures").iterdir()] == ["lab-orders-billing.png"]
    assert (trial["messages"], trial["today"]["slots"], trial["candidate"]["slots"]) == (105, 1, 4)
    assert trial["recorded"]["done"] == 105
    assert trial["handler_ms"] == pytest.approx(95, abs=15)
    waits = {
        name: {one["tenant"]: one["wait_ms"]["p95"] for one in trial[name]["tenants"]}
        for name in ("today", "candidate")
    }
    assert waits["today"]["noisy"] == pytest.approx(9_500, rel=0.15)
    assert waits["candidate"]["noisy"] == pytest.approx(3_150, rel=0.2)  # a slot is kept for others
    assert waits["today"]["quiet"] <= 200
    assert trial["today"]["moved"]["retrying"] == 1
    assert trial["today"]["all"]["done"] == trial["candidate"]["all"]["done"] == 105

    text = run("more.patch", "--handler-time", "10ms", "--messages", "50").out.splitlines()
    assert text[0] == "orders / billing"
    assert text[1].startswith("  50 messages from 2026-01-01 09:00 UTC")
    assert "note: payments: the candidate changes nothing" in text
    assert max(map(len, text)) <= 80

    (tmp_path / "other.yaml").write_text(FILE.replace("concurrency: 1", "concurrency: adaptive"), encoding="utf-8")
    for candidate, code, told in (
        ("trade.yaml", 64, "orders: the candidate changes nothing; payments: the candidate changes nothing [K805]"),
        ("absent.yaml", 64, "No such file"),
        ("other.yaml", 64, "say with --slots"),
    ):
        refused = run(candidate)
        assert refused.code == code, refused.text
        assert all(word in refused.err for word in told.split()), refused.err


def states():
    """200 messages of 20 tenants, ten a second, done in 50 ms each; every twentieth fails, waits 2 s and takes 3 s again. One waits in
    RETRYING when the first arrives, and another one left it before.
    """
    events, records = [], []

    def retried(number, tenant, stored, place, took):
        moved = f"2:{number}:0:-1"
        due = stored + timedelta(seconds=2)
        more = {"id": moved, "mid": place, "hop": 1, "attempts": [("retrying", 1)], "ledger": 2, "entry": number}
        properties = [("uid", tenant), ("kodo-due", str(round(due.timestamp() * 1000)))]
        events.append(event("orders-billing-RETRYING", "retrying", stored, tenant, properties=properties, **more))
        done = due + timedelta(milliseconds=took)
        told = {"identity": place, "id": moved, "hop": 1}
        records.append(record("orders-billing-RETRYING", "done", done, tenant, 5_000 + took, **told))

    for number in range(200):
        tenant, at, place = f"u{number % 20}", BEGIN + timedelta(seconds=number / 10), f"1:{number}:0:-1"
        more = {"id": place, "mid": place, "hop": 0, "ledger": 1, "entry": number, "properties": [("uid", tenant)]}
        events.append(event("orders", "ready", at, tenant, **more))
        end = at + timedelta(milliseconds=50)
        if number % 20 == 7:
            over = number == 107  # a limit moved it: no handler failed
            reason = "over its limit" if over else "ConnectionError"
            records.append(
                record("orders", "retrying", end, tenant, 50, identity=place, id=place, reason=reason, hop=0)
            )
            retried(number, tenant, end, place, 3_000)
        else:
            records.append(record("orders", "done", end, tenant, 50, identity=place, id=place, hop=0))
    retried(900, "u3", BEGIN - timedelta(seconds=1), "1:900:0:-1", 40)
    retried(901, "u3", BEGIN - timedelta(seconds=30), "1:901:0:-1", 40)
    return events, records


@pytest.mark.full
def test_states_and_an_outage_are_replayed_by_several_workers(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = FILE.replace("concurrency: 1", "concurrency: 8, expected_workers: 2, in_place: [], retrying: {delays: [2s]}")
    (tmp_path / "trade.yaml").write_text(text, encoding="utf-8")
    land(Landing(str(tmp_path / "landed"), "trade", None), 0, *states())

    def run(*arguments):
        return run_main("pipeline", "lab", "trade.yaml", "--landing", "landed", *arguments)

    found = run("--format", "json", "--png", "pictures")
    assert found.code == 0, found.text
    document = json.loads(found.out)
    check(document)
    (trial,) = document["trials"]
    assert (trial["messages"], trial["waiting"], trial["outages"], trial["candidate"]) == (200, 1, [], None)
    today = trial["today"]
    assert (today["workers"], today["slots"], today["all"]["done"]) == (2, 16, 200)
    assert (today["waiting"], today["moved"]) == ({"messages": 1, "done": 1, "dead": 0}, {"retrying": 9})
    rows = {row["state"]: row for row in today["states"] if row["class"] == "quick"}
    assert rows["ready"]["runs"] == 200
    assert rows["ready"]["wait_ms"]["p99"] <= 5
    retrying = [row for row in today["states"] if row["state"] == "retrying"]
    assert sum(row["runs"] for row in retrying) == 10
    assert sum(row["slot_ms"] for row in retrying) == pytest.approx(9 * 3_000 + 40, abs=1), (
        "u7 takes 3 s there, u3 40 ms"
    )
    assert "payments / ledger: nothing arrived" in document["notes"]

    slow = run(
        "--outage",
        "tenants=15,state=retrying,duration=8s,outcome=done",
        "--workers",
        "1",
        "--slots",
        "16",
        "--format",
        "json",
    )
    (trial,) = json.loads(slow.out)["trials"]
    assert trial["outages"] == [
        {"tenants": 15, "state": "retrying", "duration_ms": 8_000, "begin_ms": 0, "length_ms": None, "outcome": "done"}
    ]
    rows = {(row["state"], row["class"]): row for row in trial["today"]["states"]}
    assert trial["today"]["workers"] == 1
    assert rows["ready", "quick"]["wait_ms"]["p99"] <= 100, "slots are free for them"
    assert rows["retrying", "slow"]["wait_ms"]["p50"] > 8_000

    text = run("--outage", "tenant=u3,state=retrying,duration=8s,outcome=done").out.splitlines()
    assert "  outage: of 1 tenant, handlers take 8 s in retrying and end well" in text
    assert any(line.split()[:2] == ["retrying,", "quick"] for line in text)
    assert max(map(len, text)) <= 80
    refused = run("--outage", "tenants=60,state=retrying,duration=8s")
    assert refused.code == 64
    assert "[K808]" in refused.err
    assert "60 tenants are asked for, messages of 20 arrived" in refused.err
