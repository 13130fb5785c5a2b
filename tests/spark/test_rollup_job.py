"""The counted tables: every message once, whatever is repeated, and what the command says of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kodo_pipeline.ingest.transitions import audit_messages, transitions, unreadable
from kodo_pipeline.landing.landing_commits import REMOVAL_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.tables import COUNTED, EVENTS, LATENCIES, ROLLUP
from kodo_pipeline.rollup.job import check_counted, count, counted_tables
from kodo_pipeline.rollup.transforms import COUNTS
from pyspark.sql import functions as F

from kodoctl.errors import LockedError, UsageError
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.units import LATEST
from tests.brokers.workspace import run_main
from tests.spark.landed import event, land, record

pytestmark = pytest.mark.timeout(900)
FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    fair_by: uid
    subscriptions:
      billing: {states: [retrying, pending], audit: true}
"""
RETRYING = "orders-billing-RETRYING"
MORNING = datetime(2026, 1, 1, 9, tzinfo=UTC)
NEXT = MORNING + timedelta(days=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trade.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(str(tmp_path / "landed"), "trade", None)


def minute(number, day=MORNING):
    return day + timedelta(minutes=number)


def sums(spark, landing):
    """(window, state, tenant) -> counts that are not 0; and messages of all histograms."""
    tables = counted_tables(spark, landing)
    rows = tables.rollup.groupBy("window_ts", "state", "tenant").agg(*(F.sum(name).alias(name) for name in COUNTS))
    found = {
        (row.window_ts.replace(tzinfo=UTC), row.state, row.tenant): {name: row[name] for name in COUNTS if row[name]}
        for row in rows.collect()
    }
    return found, tables.latencies.agg(F.sum("messages")).collect()[0][0]


def runs(landing):
    """Which runs wrote the files that count, of two of the counted tables."""
    files = landing.snapshot(*COUNTED).files
    return [
        sorted({one.path.partition("/")[0].partition("-")[2] for one in files[table.name]})
        for table in (ROLLUP, LATENCIES)
    ]


def test_every_message_is_counted_once_whatever_is_repeated(spark, landing, file):
    expansion = expand(load_topology(str(file)))
    with pytest.raises(UsageError, match="K801"):
        count(spark, landing, expansion, "r0")
    assert not landing.root.exists()

    first = [event("orders", "ready", minute(1)), event("orders", "ready", minute(2), "u2")]
    land(landing, 0, first, [record("orders", "done", minute(1))])
    land(
        landing, 1, [event("elsewhere", "audit", minute(1))], [record(RETRYING, "done", minute(1, NEXT), age=3_600_000)]
    )
    with pytest.raises(UsageError, match="K802"):
        check_counted(landing)
    done = count(spark, landing, expansion, "r1")
    assert (done.days, done.batches, done.window) == (("2026-01-01", "2026-01-02"), 2, 300_000)

    # Another writer lands the first batch, too, a record of the first window comes late, a run was killed.
    with pytest.raises(LockedError, match="committed batch 0"):
        land(landing, 0, first, [record("orders", "done", minute(1))], attempt="b")
    landing.start("killed", "rollup")
    landing.write_rows(ROLLUP, "rollup-killed", [{"window_ts": minute(0), "topic": "orders", "arrivals": 9}])
    again = event(RETRYING, "retrying", minute(12), attempts=[("retrying", 1)])
    land(landing, 2, [again], [record("orders", "done", minute(4), "u2"), record("orders", "done", minute(4))])
    assert count(spark, landing, expansion, "r2").days == ("2026-01-01",)
    expected = {
        (MORNING, "ready", "u1"): {"arrivals": 1, "done": 2},
        (MORNING, "ready", "u2"): {"arrivals": 1, "done": 1},
        (minute(10), "retrying", "u1"): {"arrivals": 1, "retries": 1},
        (NEXT, "retrying", "u1"): {"done": 1},
    }
    assert sums(spark, landing) == (expected, 4)
    assert runs(landing) == [["r1", "r2"], ["r1", "r2"]]  # a day that got nothing stays where it is
    assert not [one for one in (landing.root / "rollup").files() if "killed" in one]

    nothing = count(spark, landing, expansion, "r3")
    assert (nothing.days, nothing.batches, nothing.window) == ((), 0, 300_000)
    with landing.alone("rollup"), pytest.raises(LockedError, match="another rollup is running"):
        count(spark, landing, expansion, "r4")

    tables = counted_tables(spark, landing)
    assert (tables.rollup.columns, tables.latencies.columns) == (ROLLUP.names, LATENCIES.names)


def test_days_whose_rows_were_removed_stay_as_they_were_counted(spark, landing, file):
    expansion = expand(load_topology(str(file)))
    land(landing, 0, [event("orders", "ready", minute(1)), event("orders", "ready", minute(1, NEXT))], [])
    count(spark, landing, expansion, "r1")
    before = RemovalRecord("m1", int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000), 0)
    landing.commit(LandingCommit(REMOVAL_RUN, 1, facts=before.to_facts()))
    land(landing, 1, [event("orders", "ready", minute(2)), event("orders", "ready", minute(2, NEXT))], [])
    assert count(spark, landing, expansion, "r2").days == ("2026-01-02",)
    found, _ = sums(spark, landing)
    assert found == {(MORNING, "ready", "u1"): {"arrivals": 1}, (NEXT, "ready", "u1"): {"arrivals": 2}}
    with pytest.raises(UsageError, match="2026-01-02 were removed: windows stay 5m wide"):
        count(spark, landing, expansion, "r3", window=60_000)


def bundle(first, moments, stored):
    """Records of one message on the audit topic, numbered from `first`; `stored`: its id, and how late it was published."""
    audit_id, late = stored
    more = {"worker_run": "w-1", "audit_topic": "a", "audit_id": audit_id}
    return [
        record("orders", "done", at, number=number, **more) | {"publish_ts": at + timedelta(seconds=late)}
        for number, at in enumerate(moments, first)
    ]


def test_a_record_that_is_stored_twice_is_counted_once_also_when_the_copy_lands_later(spark, landing, file):
    expansion = expand(load_topology(str(file)))
    over_midnight = [datetime(2026, 1, 1, 23, 59, 59, 990_000, UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    day, night = [minute(1)] * 70, over_midnight
    together = [
        *bundle(1, day, ("1:0:0:-1", 0)),
        *bundle(1, day, ("1:1:0:-1", 30)),
        *bundle(71, night, ("1:2:0:-1", 0)),
    ]
    land(landing, 0, [event("orders", "ready", minute(1))], together)
    once = {
        (MORNING, "ready", "u1"): {"arrivals": 1, "done": 70},
        (datetime(2026, 1, 1, 23, 55, tzinfo=UTC), "ready", "u1"): {"done": 1},
        (over_midnight[1], "ready", "u1"): {"done": 1},
    }
    assert count(spark, landing, expansion, "r1").days == ("2026-01-01", "2026-01-02")

    land(landing, 1, [event("orders", "ready", minute(1, NEXT))], bundle(71, night, ("1:9:0:-1", 90_000)))
    land(landing, 2, [event("elsewhere", "audit", minute(1))], bundle(73, [minute(1)], ("1:10:0:-1", 0)))
    assert count(spark, landing, expansion, "r2").days == ("2026-01-01", "2026-01-02")
    once[MORNING, "ready", "u1"]["done"] += 1
    assert sums(spark, landing) == (once | {(NEXT, "ready", "u1"): {"arrivals": 1}}, 73)


def said(at, after, first=1, **more):
    """An audit message as it is landed, with records of these moments."""
    number = len(after)
    texts = {
        "id": "7:1:0:-1",
        "identity": None,
        "event": "done",
        "rule": "done",
        "target_id": None,
        "reason": None,
        "tenant": "u1",
    }
    form = {
        "format": 1,
        "run": "w-1",
        "subscription": "billing",
        "first": first,
        "at": at,
        "topics": ["persistent://kodo/trade/orders"],
    }
    columns = {"topic": 0, "hop": 0, "target": -1, "age": 5, **texts}
    form |= {"after": after, **{name: [value] * number for name, value in columns.items()}, **more}
    payload = json.dumps({name: value for name, value in form.items() if value != "none"}).encode()
    counted = [("kodo-audit-count", str(number))]
    return event(
        "orders-billing-AUDIT", "audit", MORNING, None, payload=payload, properties=counted, subscription="billing"
    )


def test_a_record_without_a_moment_is_none_and_is_told_and_the_others_are_counted(spark, landing, file):
    """One such message had every later rollup, or every later ingest, fail."""
    at, most = int(MORNING.timestamp() * 1000), 2**63 - 1
    whole = [said(at, [0, 60_000]), said(LATEST, [0], run="w-2"), said(0, [0], run="w-3")]
    broken = [
        said("none", [0]), said(None, [0]), said("soon", [0]), said(10**18, [0]), said(LATEST, [1]), said(-1, [0]), said(most, [most]),
        said(at, [most]), said(at, [None]), said(at, [0], first="none"), said(at, [0, 0], first=most),
        said(at, [0, -at - 1], first=5), said(at, [0], id="none"),
    ]  # fmt: skip
    land(landing, 0, [*whole, *broken])
    landed = audit_messages(landing.read(spark, EVENTS))
    assert landed.where(unreadable()).count() == len(broken)
    found = [row.asDict() for row in transitions(landed).collect()]
    assert sorted((row["number"], row["at_ts"].replace(tzinfo=UTC).year) for row in found) == [
        (1, 1970), (1, 2026), (1, 9999), (2, 2026), (5, 2026), (most, 2026),
    ]  # fmt: skip

    expansion = expand(load_topology(str(file)))
    old = [record("orders", "done", MORNING, at_ts=moment) for moment in (None, datetime(1969, 1, 1, tzinfo=UTC))]
    land(landing, 1, [event("orders", "ready", MORNING)], [*old, *({**row, "publish_ts": MORNING} for row in found)])
    assert count(spark, landing, expansion, "r1").days == ("1970-01-01", "2026-01-01", "9999-12-30")
    assert sums(spark, landing)[0][MORNING, "ready", "u1"] == {"arrivals": 1, "done": 4}


@pytest.mark.full
@pytest.mark.parametrize("many", [200, 2_000])
def test_a_sender_that_chooses_thousands_of_days_ends_no_rollup(spark, landing, file, many):
    days = [datetime(1990, 1, 1, tzinfo=UTC) + timedelta(days=2 * number) for number in range(many)]
    land(landing, 0, [event("orders", "ready", day) for day in (*days, minute(1), minute(1))])
    assert len(count(spark, landing, expand(load_topology(str(file))), "r1", 86_400_000).days) == many + 1
    assert sum(one["arrivals"] for one in sums(spark, landing)[0].values()) == many + 2


@pytest.mark.full
def test_the_command_shows_lanes_and_tenants_and_lines_for_machines(spark, landing, file):
    def run(*arguments):
        return run_main("pipeline", "rollup", str(file), "--landing", str(landing.root.local.parents[1]), *arguments)

    found = run()
    assert (found.code, found.out) == (64, "")
    assert "nothing has landed [K801]" in found.err

    events = [event("orders", "ready", minute(one % 7), "noisy" if one % 4 else "quiet") for one in range(40)]
    records = [record("orders", "done", minute(one % 7), "noisy" if one % 4 else "quiet", 17) for one in range(36)]
    records += [record("orders", "retrying", minute(7)), record("orders", "pending", minute(8))]
    land(landing, 0, events, records)
    found = run("--window", "10 minutes")
    assert found.code == 0, found.text
    assert "Counting 1 batch that landed since." in found.err
    assert "orders / billing" in found.out
    assert any(
        line.split() == ["L1", "ready", "40", "36", "1", "1", "17", "17", "17"] for line in found.out.splitlines()
    )
    assert any(line.split()[:3] == ["noisy", "30", "27"] for line in found.out.splitlines())
    assert max(len(line) for line in found.out.splitlines() if landing.root.uri not in line) <= 80
    assert "1 day counted anew" in found.out

    documents = run("--format", "json", "--window", "1d").lines_json()  # another width: all of it again, nothing twice
    assert [one["event"] for one in documents] == ["begin", "work", "lane", "lane", "tenant", "tenant", "tenant", "end"]
    assert len({one["run"] for one in documents}) == 1
    assert (documents[1]["anew"], documents[1]["batches"]) == (True, 1)
    assert (documents[-1]["window_ms"], documents[-1]["windows"], documents[-1]["days"]) == (
        86_400_000,
        1,
        ["2026-01-01"],
    )
    assert sum(one["arrivals"] for one in documents if one["event"] == "lane") == 40
    assert next(one for one in documents if one.get("done"))["latency_ms"]["p99"] == pytest.approx(17, rel=0.0104)
    assert [len(one) for one in runs(landing)] == [1, 1], "windows of another width replace all"
    assert count(spark, landing, expand(load_topology(str(file))), "next").batches == 0


def test_what_spark_cannot_read_is_told_in_its_words_and_is_no_defect(spark, landing, file):
    land(landing, 0, [event("orders", "ready", minute(1))])
    (name,) = (one for one in (landing.root / "events").files() if one.endswith(".parquet"))
    (landing.root / "events").local.joinpath(name).write_bytes(b"not a table")
    found = run_main("pipeline", "rollup", str(file), "--landing", str(landing.root.local.parents[1]))
    assert (found.code, found.out) == (1, "")
    assert "Error: Spark failed [K577]" in found.err
    assert name in found.err.replace("\n", "").replace(" ", "")
