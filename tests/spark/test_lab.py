"""pipeline lab through the command line: landed traffic, the consumer's own engine, and what a patch would change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from kodoctl.pipeline.ingest.landing_store import Landing
from kodoctl.pipeline.recommend.yaml_patch import unified_diff
from tests.cluster import run_main
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
BEGIN = datetime(2026, 1, 1, 9, tzinfo=UTC)


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
    return events, records


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
