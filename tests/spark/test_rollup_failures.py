"""Tables `sent` and `failures`: counted batch by batch, at once, by a report that finds nothing counted, and by plain Python."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_commits import REMOVAL_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import FEW, Landing
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.tables import COUNTED, FAILURES, LATENCIES, ROLLUP, SENT
from kodo_pipeline.report import report_tables
from kodo_pipeline.report.job import counts
from kodo_pipeline.rollup import counted_files
from kodo_pipeline.rollup.job import RollupState, count, counted_tables
from kodo_pipeline.sql.landing_database import open_database
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain
from kodo_pipeline.upkeep.payload_removal import ErasureRequest, erase, select_tenant

from kodoctl.errors import UsageError
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.units import LATEST
from tests.brokers.workspace import run_main
from tests.spark.landed import Row, event, land, record

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
      mail: {states: [retrying]}
"""
RETRYING, DEAD, MAIL, LETTERS = (
    "orders-billing-RETRYING",
    "orders-billing-DEAD",
    "orders-mail-RETRYING",
    "orders-mail-DEAD",
)
FIRST, MIDNIGHT = datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
BANK = "ConnectionError: bank # answered #"
Batch = tuple[list[Row], list[Row]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trade.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def expansion(file: Path):
    return expand(load_topology(str(file)))


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(str(tmp_path / "landed"), "trade", None)


def first_hop(at: datetime, tenant: str = "u1", place: str = "orders", **columns) -> Row:
    return event(place, "ready", at, tenant, hop=0, **columns)


def moved(number: int, at: datetime, rule: str = "retrying", copy: int = 0, **columns) -> Row:
    """The record `number` of a move to the message of the same number."""
    place = DEAD if rule == "dead" else RETRYING
    target = {"target_topic": f"persistent://kodo/trade/{place}", "target_id": f"8:{number}:0:-1"}
    audit = {"worker_run": "w-1", "number": number, "audit_topic": "a", "audit_id": f"9:{number}:{copy}:-1"}
    row = record("orders", rule, at, **{"reason": "ConnectionError", **target, **audit, **columns})
    return row | {"publish_ts": at + timedelta(seconds=copy)}


def arrived(number: int, at: datetime, state: str = "retrying", cause: str | None = BANK, **columns) -> Row:
    place = DEAD if state == "dead" else RETRYING
    return event(place, state, at, hop=1, id=f"8:{number}:0:-1", cause=cause, reason="ConnectionError", **columns)


def silent(at: datetime, place: str = MAIL, reason: str = "SmtpError", **columns) -> Row:
    """Of `mail`, which writes no records at first."""
    state = "dead" if place == LETTERS else "retrying"
    return event(place, state, at, subscription="mail", hop=1, cause=reason, reason=reason, **columns)


def batches() -> list[Batch]:
    """Two days of traffic: each batch says more of a day that was counted before."""
    late, early = MIDNIGHT - timedelta(milliseconds=100), MIDNIGHT + timedelta(milliseconds=100)
    return [
        (
            [
                first_hop(FIRST), first_hop(FIRST, "u2"), first_hop(FIRST, "u2", place="orders-L2", level="L2"), first_hop(FIRST, recall="r1"),
                first_hop(FIRST, seq_high=7), silent(FIRST), silent(FIRST, LETTERS, "BadAddress"), arrived(3, late),
            ],
            [moved(1, FIRST), moved(2, late), moved(4, late, "backup"), record("orders", "done", FIRST, number=5, worker_run="w-1")],
        ),
        ([arrived(1, FIRST)], []),  # lands behind its record
        ([arrived(2, early), first_hop(early)], [moved(3, early), moved(6, early)]),  # on two sides of midnight
        ([arrived(6, late), arrived(7, early, "dead", None)], [moved(1, FIRST, copy=1), moved(7, early, "dead", reason="")]),
        ([silent(early), silent(early, reason="postponed"), silent(early, reason="postponed: bank")], [record("orders", "pending", early, number=8, worker_run="w-1"), moved(10, early, "postponed", reason="postponed")]),
        ([first_hop(early, "u2")], [record("orders", "done", early, subscription="mail", number=1, worker_run="w-2")]),
        ([silent(early, reason="Other")], [moved(9, FIRST, "escalated", target_topic=None, target_id=None, cause="Error: #", reason="Error: 5")]),
    ]  # fmt: skip


def told(some: list[Batch]) -> Counter[tuple]:
    """Failures by (topic, subscription, event, rule, cause, reason)."""
    events, records = ([row for batch in some for row in batch[side]] for side in (0, 1))
    causes = {(one["msg_topic"], one.get("id")): one.get("cause") for one in events}
    pairs = {(one["topic"], one["subscription"]) for one in records}
    by_number = {(one.get("worker_run"), one.get("number")): one for one in reversed(records)}
    found: Counter[tuple] = Counter()
    for one in by_number.values():
        if one["rule"] in ("retrying", "escalated", "backup", "dead"):
            cause = causes.get((one.get("target_topic"), one.get("target_id"))) or one.get("cause") or one["reason"]
            found[one["topic"], one["subscription"], one["event"], one["rule"], cause, one["reason"]] += 1
    for one in events:
        if (one.get("reason") or "").startswith("postponed"):
            continue
        if one["state"] in ("retrying", "dead") and (one["topic"], one["subscription"]) not in pairs:
            what = "dead" if one["state"] == "dead" else "moved"
            found[one["topic"], one["subscription"], what, one["state"], one["cause"], one["reason"]] += 1
    return found


def sent(some: list[Batch]) -> Counter[tuple]:
    """Messages by (tenant, window of five minutes)."""
    first = [
        one for events, _ in some for one in events
        if one["state"] == "ready" and one.get("recall") is None and one.get("seq_high") is None
    ]  # fmt: skip
    return Counter((one["tenant"], one["publish_ts"].replace(minute=0, second=0, microsecond=0)) for one in first)


def rows(spark, landing: Landing, *tables) -> list[list[tuple]]:
    snapshot = landing.snapshot(*tables)
    return [sorted(map(tuple, landing.read(spark, one, snapshot=snapshot).collect()), key=repr) for one in tables]


def page(spark, landing: Landing) -> dict:
    """What a report makes of both tables, and the tables in windows of an hour."""
    with counts(spark, landing) as found:
        failed, every = report_tables.failures(found.failures)
        hours = report_tables.traffic(found.rollup, found.sent, 3_600_000, found.bounds)
        tenants = report_tables.sent_by(found.sent, [("orders", "u1"), ("orders", "u2")])
        groups = sorted(report_tables.groups(found.sent), key=repr)
        return {"failures": failed, "every": every, "hours": hours, "tenants": tenants, "groups": groups}


def failures(spark, landing: Landing) -> tuple[list, int]:
    """What a report makes of failures alone: those told, and how many there are."""
    with counts(spark, landing) as found:
        return report_tables.failures(found.failures)


def check(spark, landing: Landing, some: list[Batch]) -> None:
    """What a page shows of the counted tables is what plain Python counts."""
    (failed, every), expected = failures(spark, landing), told(some)
    names = ("topic", "subscription", "event", "rule", "cause", "reason")
    assert Counter({tuple(one[name] for name in names): one["messages"] for one in failed}) == expected
    assert every == expected.total()
    snapshot = landing.snapshot(SENT)
    made = landing.read(spark, SENT, snapshot=snapshot).collect()
    assert Counter({(one.tenant, one.window_ts.replace(tzinfo=UTC)): one.messages for one in made}) == sent(some)


@pytest.mark.full
@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
def test_batch_by_batch_is_as_at_once_and_as_without_counts(spark, landing, expansion, tmp_path, monkeypatch, few):
    """Few rows are counted by this process, many by Spark: batch by batch in the one way, at once in the other."""
    monkeypatch.setattr(counted_files, "FEW", FEW if few else 0)
    once = Landing(str(tmp_path / "once"), "trade", None)
    every = batches()
    for number, (events, records) in enumerate(every):
        land(landing, number, events, records)
        count(spark, landing, expansion, f"r{number}")
        check(spark, landing, every[: number + 1])
        land(once, number, events, records)
    assert told(every) != told(every[:-2]), "a subscription that begins to record is told by its records alone"
    uncounted = page(spark, once)
    monkeypatch.setattr(counted_files, "FEW", 0 if few else FEW)
    count(spark, once, expansion, "r1")
    assert rows(spark, landing, *COUNTED) == rows(spark, once, *COUNTED)
    assert page(spark, landing) == page(spark, once) == uncounted
    assert count(spark, landing, expansion, "again").days == ()


@pytest.mark.full
def test_only_days_that_records_of_a_neighbour_can_be_on_are_counted_again(spark, landing, expansion):
    late, far = MIDNIGHT - timedelta(seconds=1), MIDNIGHT + timedelta(days=9)
    land(landing, 0, [first_hop(FIRST)], [moved(1, late), moved(2, far)])
    assert count(spark, landing, expansion, "r1").days == ("2026-01-01", "2026-01-11")
    land(landing, 1, [arrived(1, MIDNIGHT), first_hop(far)])
    assert count(spark, landing, expansion, "r2").days == ("2026-01-02", "2026-01-11")
    files = landing.snapshot(*COUNTED).files
    by_run = {
        table.name: {(one.partition["date"], one.path.split("/")[0]) for one in files[table.name]} for table in COUNTED
    }
    assert by_run["failures"] == {("2026-01-01", "rollup-r2"), ("2026-01-02", "rollup-r2"), ("2026-01-11", "rollup-r2")}
    assert ("2026-01-01", "rollup-r1") in by_run["rollup"]
    assert failures(spark, landing)[0][0]["cause"] in (BANK, "ConnectionError")


@pytest.mark.full
def test_the_first_and_the_last_day_have_a_neighbour_on_one_side(spark, landing, expansion):
    begin, end = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(LATEST // 1000, UTC)
    land(landing, 0, [arrived(1, begin), arrived(2, end)], [moved(1, begin), moved(2, end)])
    assert count(spark, landing, expansion, "r1").days == ("1970-01-01", "9999-12-30")
    assert {one["cause"]: one["messages"] for one in failures(spark, landing)[0]} == {BANK: 2}


def test_a_subscription_that_nobody_declares_is_remembered_only_with_its_messages(spark, landing, expansion):
    land(
        landing,
        0,
        [first_hop(FIRST)],
        [record("orders", "done", FIRST, subscription=f"made-up-{one}") for one in range(3)],
    )
    count(spark, landing, expansion, "r1")
    assert RollupState.of(landing.commits()).recorded == frozenset()
    old = event("orders-old-RETRYING", "retrying", FIRST, subscription="old", cause="x", reason="x")
    land(landing, 1, [old], [record("orders", "done", FIRST, subscription=one) for one in ("old", "billing")])
    count(spark, landing, expansion, "r2")
    assert RollupState.of(landing.commits()).recorded == {("orders", "old"), ("orders", "billing")}
    assert failures(spark, landing)[1] == 0


def count_as_before(spark, landing: Landing, expansion, monkeypatch, run: str = "old") -> None:
    """As a kodoctl without these tables left it."""
    write, to_facts = counted_files.write_counts, RollupState.to_facts
    with monkeypatch.context() as patched:
        patched.setattr(
            counted_files,
            "write_counts",
            lambda *some: {name: one for name, one in write(*some).items() if name in (ROLLUP.name, LATENCIES.name)},
        )
        patched.setattr(
            RollupState,
            "to_facts",
            lambda self, run: {name: fact for name, fact in to_facts(self, run).items() if name != "recorded"},
        )
        count(spark, landing, expansion, run)
    for table in (SENT, FAILURES):
        folder = (landing.root / table.name).local
        assert folder is not None
        shutil.rmtree(folder)


@pytest.mark.full
def test_what_an_older_kodoctl_counted_can_be_read_and_is_counted_anew(spark, landing, expansion, file, monkeypatch):
    every = batches()
    for number, (events, records) in enumerate(every):
        land(landing, number, events, records)
    count_as_before(spark, landing, expansion, monkeypatch)
    assert RollupState.of(landing.commits()).recorded is None
    before = page(spark, landing)
    assert before["every"] == told(every).total()
    assert counted_tables(spark, landing).rollup.count() > 0
    with open_database(landing) as database:
        assert [list(one.rows) for one in database.answers("SELECT * FROM sent; SELECT * FROM failures")] == [[], []]
    erase(ErasureRequest(landing, "e1", "u1", None, "asked", "me"), select_tenant(landing, "u1", None))
    maintain(MaintenanceRequest(landing, "m1"))
    assert page(spark, landing) == before

    typed = ("pipeline", "rollup", str(file), "--landing", str(landing.root.local.parents[1]))
    found = run_main(*typed)
    assert found.code == 0, found.text
    assert "Counting everything anew, 7 batches: an older kodoctl counted less." in found.err
    assert "Nothing landed since." in run_main(*typed).err
    check(spark, landing, every)
    assert page(spark, landing) == before
    with open_database(landing) as database:
        asked = "SELECT sum(messages)::int FROM sent; SELECT count(*) > 0 FROM failures WHERE NOT recorded"
        assert [list(one.rows) for one in database.answers(asked)] == [[(sent(every).total(),)], [(True,)]]
    maintain(MaintenanceRequest(landing, "m2"))
    check(spark, landing, every)


@pytest.mark.full
def test_where_rows_were_removed_an_upgrade_counts_the_days_behind_the_removal(spark, landing, expansion, monkeypatch):
    for number, (events, records) in enumerate(batches()):
        land(landing, number, events, records)
    count_as_before(spark, landing, expansion, monkeypatch)
    windows = rows(spark, landing, ROLLUP, LATENCIES)
    removal = RemovalRecord("m1", int(MIDNIGHT.timestamp() * 1000), 6)
    landing.commit(LandingCommit(REMOVAL_RUN, 1, facts=removal.to_facts()))
    with pytest.raises(UsageError, match="2026-01-02 were removed: windows stay 5m wide"):
        count(spark, landing, expansion, "r1", window=60_000)
    done = count(spark, landing, expansion, "r2")
    assert (done.days, done.batches) == (("2026-01-02",), 7)
    assert rows(spark, landing, ROLLUP, LATENCIES) == windows
    for found in rows(spark, landing, SENT, FAILURES):
        assert {one[0].date().isoformat() for one in found} == {"2026-01-02"}
    assert count(spark, landing, expansion, "r3").batches == 0
    land(landing, 7, [arrived(20, MIDNIGHT)], [moved(20, FIRST), moved(21, MIDNIGHT)])
    assert count(spark, landing, expansion, "r4").days == ("2026-01-02",)
    for found in rows(spark, landing, SENT, FAILURES):
        assert {one[0].date().isoformat() for one in found} == {"2026-01-02"}
    windows, answered = rows(spark, landing, *COUNTED[:-1]), by_bank(spark, landing)
    land(landing, 8, [arrived(21, MIDNIGHT - timedelta(seconds=1))], [])
    assert count(spark, landing, expansion, "r5").days == (), "the message is of a day that was removed"
    assert rows(spark, landing, *COUNTED[:-1]) == windows
    assert by_bank(spark, landing) == answered + 1


def by_bank(spark, landing: Landing) -> int:
    """Recorded failures of one cause."""
    failures = landing.read(spark, FAILURES).where("recorded").collect()
    return sum(one.messages for one in failures if one.cause == BANK)


@pytest.mark.parametrize(
    "first", [pytest.param(True, id="first"), pytest.param(False, id="further", marks=pytest.mark.full)]
)
def test_what_is_of_no_day_is_counted_on_none_and_once(spark, landing, expansion, first):
    if not first:
        land(landing, 0, *batches()[0])
        count(spark, landing, expansion, "r1")
    before = [] if first else rows(spark, landing, *COUNTED)
    land(landing, 1, [first_hop(datetime(1969, 1, 1, tzinfo=UTC))])
    done = count(spark, landing, expansion, "r2")
    assert (done.days, done.batches) == ((), 1)
    assert rows(spark, landing, *COUNTED) == (before or [[], [], [], []])
    assert count(spark, landing, expansion, "r3").batches == 0
