"""Landings and ledgers in an object store, without Spark: what counts, what is swept, what is told when there is no way in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import COVERAGE, CURSORS, EVENTS
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain

from kodoctl.errors import KodoctlError, LockedError
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent
from tests.services.object_stores import BUCKET, ObjectStore, object_store, refusing_store


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store") / "log") as found:
        yield found


@pytest.fixture
def store(running: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Named by the environment, as a user has it."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    return running


_RUNS = 12


def _old(days: float) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(time.time() - days * 86_400))}-0123abcd"


def _batch(landing: Landing, number: int, run: str) -> LandingCommit:
    """Written, and not committed."""
    name = f"{number:09d}-{run}"
    events = landing.write_rows(EVENTS, name, [{"topic": "a:b", "payload": b"x", "ingest_run": run}] * 3)
    coverage = landing.write_rows(COVERAGE, name, [{"split_id": run, "rows": 3}])
    return LandingCommit(run, 1, number, {EVENTS.name: events, COVERAGE.name: coverage})


@pytest.mark.full
def test_a_landing_in_a_store_counts_what_is_committed_and_sweeps_what_nobody_works_on(store: ObjectStore) -> None:
    landing = Landing(f"s3a://{BUCKET}/land", "trade", None)
    assert landing.commits() == []
    now, long_ago = _old(0), _old(1.1)
    for number, run in enumerate((now, long_ago)):
        landing.start(run)
        landing.commit(_batch(landing, number, run))
        _batch(landing, 7, run)
        landing.work(run).write("split.json", {"rows": 1})
    assert [(one.run, one.batch) for one in landing.commits()] == [(now, 0), (long_ago, 1)]
    with landing.alone() as alone:
        assert not alone, "nobody can be asked"
        landing.sweep(alone=alone)
    kept = [f"000000000-{now}", f"000000001-{long_ago}", f"000000007-{now}"]
    assert (landing.root / "events").folders() == [*kept, "_delta_log"]
    assert landing.work(now).documents() == {"split.json": {"rows": 1}}
    assert not landing.work(long_ago).exists()
    landing.sweep(alone=True)
    assert (landing.root / "events").folders() == [*kept[:2], "_delta_log"]
    with pytest.raises(KodoctlError, match="_checkpoint is gone"):
        landing.check()
    assert all(name.startswith("land/trade/base/") for name in store.names("land"))


@pytest.mark.full
def test_of_two_writers_at_once_each_batch_counts_for_one(store: ObjectStore) -> None:
    place = f"s3a://{BUCKET}/both"

    def write(run: str) -> list[str]:
        own, said = Landing(place, "trade", None), []
        for number in range(4):
            try:
                own.commit(_batch(own, number, run))
                said.append("committed")
            except LockedError:
                said.append("refused")
        return said

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(write, ["r1", "r2"]))
    assert [sorted(pair) for pair in zip(*both, strict=True)] == [["committed", "refused"]] * 4
    landing = Landing(place, "trade", None)
    snapshot = landing.snapshot(EVENTS, COVERAGE)
    assert {name: sum(one.rows for one in files) for name, files in snapshot.files.items()} == {
        "events": 12,
        "coverage": 4,
    }
    for one in snapshot.commits:
        assert len(landing.rows(EVENTS, "ingest_run", one.run)) == 3 * len(landing.rows(COVERAGE, "split_id", one.run))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_store_that_answers_503_to_one_request_in_twenty_loses_and_doubles_nothing(
    running: ObjectStore, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Half of what it refuses it has done."""
    place, ledger = f"s3a://{BUCKET}/busy-{seed}", f"s3a://{BUCKET}/busy-recalls-{seed}"
    with refusing_store(store, seed=seed) as (busy, told):
        monkeypatch.setenv("AWS_ENDPOINT_URL", busy.url)
        landing = Landing(place, "trade", None)
        for number in range(_RUNS):
            run = f"r{number}"
            landing.start(run)
            landing.work(run).write("split.json", {"rows": number})
            landing.commit(_batch(landing, number, run))
            assert landing.work(run).documents() == {"split.json": {"rows": number}}
            landing.end(run)
        maintain(MaintenanceRequest(Landing(place, "trade", None), "m1", retain=0))
        _batch(landing, _RUNS, "killed")
        landing.start("killed")
        landing.sweep(alone=True)
        book = DeltaLedger(ledger)
        book.create()
        for number in range(6):
            book.append([RecallEntry("run", RecallEvent.SENT, f"l{number}", "dead", "0:1:2:-1", 1, "lane", number)])
    assert len(told.undone) > 5, told
    assert len(told.done) > 5, told
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
    again = Landing(place, "trade", None)
    found = again.snapshot(EVENTS, COVERAGE).files
    assert [sum(one.rows for one in found[name]) for name in ("events", "coverage")] == [3 * _RUNS, _RUNS]
    assert sorted(row["ingest_run"] for row in again.rows(EVENTS, "topic", "a:b")) == sorted(
        f"r{number}" for number in range(_RUNS) for _ in range(3)
    )
    assert not any("killed" in one for one in (again.root / "events").files())
    assert sorted(one.recall_id for one in DeltaLedger(ledger).entries("dead")) == sorted(f"l{n}" for n in range(6))


def _filled(place: str, most: int = 8) -> Landing:
    landing = Landing(place, "trade", None)
    for number in range(most):
        landing.commit(_batch(landing, number, "r"))
    return landing


@pytest.mark.full
def test_maintenance_beside_an_ingest_and_another_leaves_every_row_once(store: ObjectStore) -> None:
    place = f"s3a://{BUCKET}/kept"
    _filled(place)

    def keep(run: str) -> str:
        try:
            maintain(MaintenanceRequest(Landing(place, "trade", None), run, retain=0))
        except LockedError:
            return "refused"
        return "committed"

    def write(run: str) -> str:
        own = Landing(place, "trade", None)
        for number in range(8, 14):
            own.commit(_batch(own, number, run))
        return "committed"

    with ThreadPoolExecutor(3) as pool:
        said = [pool.submit(keep, "m1"), pool.submit(keep, "m2"), pool.submit(write, "r")]
    assert {"committed"} <= {one.result() for one in said} <= {"committed", "refused"}
    maintain(MaintenanceRequest(Landing(place, "trade", None), "m3", retain=0))
    landing = Landing(place, "trade", None)
    found = landing.snapshot(EVENTS, COVERAGE).files
    assert [sum(one.rows for one in found[name]) for name in ("events", "coverage")] == [42, 14]
    assert len(found["events"]) <= 3
    assert len(landing.rows(EVENTS, "topic", "a:b")) == 42, "every file that is named is there"
    there = {one for one in (landing.root / "events").files() if not one.startswith("_delta_log/")}
    assert there >= {one.path for one in found["events"]}


def test_a_ledger_in_a_store_takes_entries_of_several_at_once(store: ObjectStore) -> None:
    def write(writer: int) -> None:
        ledger = DeltaLedger(f"s3a://{BUCKET}/recalls")
        for number in range(3):
            name = f"{writer}-{number}"
            ledger.append([RecallEntry("run", RecallEvent.SENT, name, "dead", "0:1:2:-1", 1, "lane", number)])

    DeltaLedger(f"s3a://{BUCKET}/recalls").create()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    found = DeltaLedger(f"s3a://{BUCKET}/recalls").entries("dead")
    assert sorted(one.recall_id for one in found) == [
        f"{writer}-{number}" for writer in range(3) for number in range(3)
    ]
    assert DeltaLedger(f"s3a://{BUCKET}/nothing").entries("dead") == []


@pytest.mark.parametrize("uri", ["s3a://no-such-bucket/land", "nothing://there/land"])
def test_a_store_that_is_not_there_is_told(uri: str, store: ObjectStore) -> None:
    with pytest.raises(KodoctlError, match="K573") as told:
        Landing(uri, "trade", None).write_rows(CURSORS, "run", [{}])
    assert uri in str(told.value)
    assert ("AWS_ENDPOINT_URL" in str(told.value)) is uri.startswith("s3a")
    with pytest.raises(KodoctlError, match="K573") as told:
        Landing(uri, "trade", None).commits()
    assert uri in str(told.value)
    assert ("AWS_ENDPOINT_URL" in str(told.value)) is uri.startswith("s3a")


def test_who_has_no_key_is_told_what_it_would_be(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Landing(f"s3a://{BUCKET}/private", "trade", None).commit(LandingCommit("r", 1))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(KodoctlError, match="K573") as told:
        Landing(f"s3a://{BUCKET}/private", "trade", None).commits()
    assert "no keys are in the environment" in str(told.value)
    assert "AWS_ACCESS_KEY_ID" in str(told.value)
