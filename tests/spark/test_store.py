"""Landings and ledgers in an object store, without Spark: what counts, what is swept, what is told when there is no way in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kodoctl.errors import KodoctlError
from kodoctl.pipeline.ingest.landing_store import Landing, Manifest
from kodoctl.pipeline.ingest.tables import CURSORS, EVENTS, TABLES
from kodoctl.recall.delta_ledger import DeltaLedger
from kodoctl.recall.recall_ledger import RecallEntry, RecallEvent
from tests.stores import BUCKET, ObjectStore, object_store


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


def _old(days: float) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(time.time() - days * 86_400))}-0123abcd"


def test_a_landing_in_a_store_counts_what_manifests_name_and_sweeps_what_nobody_works_on(store: ObjectStore) -> None:
    landing = Landing(f"s3a://{BUCKET}/land", "trade", None)
    assert landing.manifests() == []
    now, long_ago = _old(0), _old(1.1)
    for run in (now, long_ago):
        for number, batch in enumerate(("named", "left")):
            part = landing.write_rows(EVENTS, f"{number:09d}-{run}-{batch}", [{"payload": b"x"}])
            if batch == "named":
                landing.commit(Manifest(run, 1, number, {EVENTS.name: part}))
        landing.work(run).write("split.json", {"rows": 1})
    landing.commit(Manifest(now, 1, tables={CURSORS.name: landing.write_rows(CURSORS, now, [])}))
    assert [(one.run, one.batch) for one in landing.manifests()] == [(long_ago, 0), (now, None)], (
        "batch 0: the last one"
    )
    with landing.alone() as alone:
        assert not alone, "nobody can be asked"
        landing.sweep(TABLES, alone=alone)
    named, left = f"000000000-{long_ago}-named", f"000000001-{now}-left"
    assert (landing.root / EVENTS.name).folders() == sorted([named, f"000000000-{now}-named", left])
    assert landing.work(now).documents() == {"split.json": {"rows": 1}}
    assert not landing.work(long_ago).exists()
    landing.sweep(TABLES, alone=True)
    assert (landing.root / EVENTS.name).folders() == [named]
    assert (landing.root / CURSORS.name).folders() == [now]
    with pytest.raises(KodoctlError, match="_checkpoint is gone"):
        landing.check()
    assert all(name.startswith("land/trade/base/") for name in store.names("land"))


def test_many_manifests_are_read_in_order(store: ObjectStore) -> None:
    landing = Landing(f"s3a://{BUCKET}/many", "trade", "prod")
    for batch in reversed(range(40)):
        landing.commit(Manifest(f"r{batch}", batch, batch))
    assert [one.batch for one in landing.manifests()] == list(range(40))


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
        Landing(uri, "trade", None).write_rows(CURSORS, "run", [])
    assert uri in str(told.value)
    assert ("AWS_ENDPOINT_URL" in str(told.value)) is uri.startswith("s3a")


def test_who_has_no_key_is_told_what_it_would_be(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Landing(f"s3a://{BUCKET}/private", "trade", None).commit(Manifest("r", 1))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(KodoctlError, match="K573") as told:
        Landing(f"s3a://{BUCKET}/private", "trade", None).manifests()
    assert "ACCESS_DENIED" in str(told.value)
    assert "AWS_ACCESS_KEY_ID" in str(told.value)
