"""`kodoctl pipeline report` as it is typed, on a made-up landing: everything on the page is what was planted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.report import report_tables
from kodo_pipeline.report.job import counts

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import Level, State
from tests.brokers.workspace import run_main
from tests.samples.reports import EVIL
from tests.spark.traffic import Traffic

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
TOPICS = """
orders:
  partitions: 1
  levels: double
  message_properties: {customer: required}
  fair_by: customer
  subscriptions:
    billing: {states: [retrying, pending], audit: true, limits: [{kind: rate, by: customer, limit: 100/s}]}
"""
BANK = "ConnectionError: the bank does not answer"


def plant(traffic: Traffic) -> None:
    """A noisy tenant that waits, quiet ones that do not, failures, dead letters, and one message that is lost; records that came twice."""
    for number in range(120):
        there = traffic.move(2, traffic.store(1, "mega"), State.PENDING, rule="pending", waits=number >= 110)
        if number < 110:
            traffic.record(61, there)
    for number in range(10):
        for tenant in ("anna", "ben", "cleo"):
            traffic.done(number, tenant, took=0.1)
        traffic.done(number, "gold", took=0.05, level=Level.L2)
    for _ in range(3):
        traffic.record(9, traffic.move(5, traffic.store(4, "acme"), State.RETRYING, reason=BANK))
    for _ in range(2):
        traffic.move(5, traffic.store(5, EVIL), State.DEAD, reason="negative amount")
    traffic.store(6, "eve")
    traffic.transitions += traffic.transitions[-100:]  # bundles that the worker sent again


@pytest.fixture
def place(workspace):
    file = workspace.topology(TOPICS)
    traffic = Traffic(expand(load_topology(str(file))))
    plant(traffic)
    traffic.land(workspace.folder / "landing", ended=100)
    return file, str(workspace.folder / "landing")


@pytest.mark.full
def test_a_report_tells_what_was_planted(spark, workspace, place):
    file, landing = place
    page, pictures = workspace.folder / "out" / "page.html", workspace.folder / "pictures"
    typed = ("pipeline", "report", str(file), "--landing", landing, "--ledger", str(workspace.folder / "recalls"))
    told = workspace.run(*typed, "--out", str(page), "--png", str(pictures), "--format", "json")
    found = told.json()

    assert found["audit"]["verdict"] == "loss"
    assert found["audit"]["subscriptions"][0]["messages"]["lost"] == 1
    lanes = {(one["level"], one["state"]): one for one in found["waiting"]}
    assert {lane: one["messages"] for lane, one in lanes.items()} == {("L1", "pending"): 10, (None, "dead"): 2}
    assert lanes["L1", "pending"]["oldest_ms"] == 98_000
    assert lanes["L1", "pending"]["median_ms"] == pytest.approx(98_000, rel=0.0104)
    late = {(one["level"], one["state"]): (one["done"], one["p50"]) for one in found["latency"]}
    assert late == {
        ("L1", "ready"): (30, pytest.approx(100, rel=0.0104)),
        ("L1", "pending"): (110, pytest.approx(60_000, rel=0.0104)),
        ("L1", "retrying"): (3, pytest.approx(5_000, rel=0.0104)),
        ("L2", "ready"): (10, pytest.approx(50, rel=0.0104)),
    }
    assert [(one["rule"], one["reason"], one["messages"]) for one in found["failures"]] == [
        ("retrying", BANK, 3),
        ("dead", "negative amount", 2),
    ]
    fairness = found["fairness"][0]
    assert (fairness["noisy"]["names"], fairness["noisy"]["arrivals"]) == (["mega"], 120)
    assert (fairness["quiet"]["tenants"], fairness["quiet"]["latency_ms"]["p50"]) == (7, pytest.approx(100, rel=0.0104))
    assert found["tenants"][0] == {**found["tenants"][0], "tenant": "mega", "noisy": True, "over_limit": 120}
    assert sum(one["arrivals"] for one in found["over_time"]["points"]) == 166
    assert found["advice"][0]["title"] == "Find the lost messages and send them again"
    assert any("negative amount" in line for one in found["advice"] for line in one["commands"])

    text = page.read_text()
    assert "1 message was lost" in text
    assert EVIL not in text
    assert sorted(one.name for one in pictures.iterdir()) == [
        "failures.png", "latency.png", "tenants.png", "traffic.png", "verdict.png", "waiting.png",
    ]  # fmt: skip

    at = Landing(landing, "trade", None)
    assert run_main("pipeline", "rollup", str(file), "--landing", landing, "--window", "1s").code == 0
    with counts(spark, at) as known:
        assert all("/rollup/" in one for one in known.rollup.inputFiles())
        width = found["over_time"]["width_ms"]
        assert report_tables.traffic(known.rollup, known.sent, width, known.bounds).points == [
            one for one in found["over_time"]["points"] if sum(one.values()) > one["at"]
        ]
        assert report_tables.failures(known.failures) == (found["failures"], 5)


@pytest.mark.full
def test_no_publish_time_decides_what_is_drawn(workspace):
    file = workspace.topology(TOPICS)
    traffic = Traffic(expand(load_topology(str(file))))
    for number in range(90):
        traffic.done(number, "anna", took=0.1)
    for day in ("1970-01-01", "1997-05-05", "2026-02-05", "2626-01-01", "9999-12-30"):
        moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
        for number in range(3):
            traffic.record(50 + number, traffic.store(5, "anna", publish_ts=moment))
        traffic.store(5, "anna", waits=True, publish_ts=moment)
    traffic.land(workspace.folder / "landing", ended=100)

    page, landed = workspace.folder / "page.html", ("--landing", str(workspace.folder / "landing"))
    drawn = ("--out", str(page), "--png", str(workspace.folder / "pictures"), "--format", "json")
    for rolled in (False, True):
        if rolled:
            told = run_main("pipeline", "rollup", str(file), *landed)
            assert "5 windows more, of impossible times" in told.out, told.text
        found = workspace.run(
            "pipeline", "report", str(file), *landed, *drawn, "--ledger", str(workspace.folder / "recalls")
        ).json()
        over_time = found["over_time"]
        assert (over_time["past"]["arrivals"], over_time["future"]["arrivals"]) == (8, 12)
        points = over_time["points"]
        assert (sum(one["arrivals"] for one in points), sum(one["done"] for one in points)) == (90, 105)
        assert (found["tenants"][0]["arrivals"], found["latency"][0]["done"], found["impossible_ages"]) == (110, 105, 6)
        assert found["latency"][0]["p99"] == pytest.approx(100, rel=0.0104)
        assert found["waiting"][0]["oldest_ms"] == 3_700_000
        assert over_time["width_ms"] == found["until"] - found["since"] == 300_000
        assert "; 12 messages with a time in the future." in page.read_text()


def test_what_cannot_be_written_is_told_before_spark_starts(workspace, place):
    file, landing = place
    (workspace.folder / "taken").write_text("")
    for option, value in (("--out", str(workspace.folder)), ("--png", str(workspace.folder / "taken"))):
        found = workspace.run("pipeline", "report", str(file), "--landing", landing, option, value, code=64)
        assert "[K020]" in found.err
