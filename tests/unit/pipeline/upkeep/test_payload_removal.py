"""Payloads that are removed after they landed: their bytes are in no file any more, and all else is as it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kodo_pipeline.landing.data_rewrite import stored_rows
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.payload_policy import PayloadPolicy
from kodo_pipeline.landing.tables import COVERAGE, EVENTS
from kodo_pipeline.upkeep import payload_removal
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain, record_run
from kodo_pipeline.upkeep.payload_removal import ErasureRequest, erase, select_tenant

from kodoctl.errors import KodoctlError, LockedError
from kodoctl.recall.message.stored_message import digest
from tests.unit.pipeline.landings import DAY, anew, batch, event, stored

SECRET = b"the-secret-of-u1"


def fill(landing: Landing, most: int = 4, begin: int = 0, **columns: Any) -> None:
    """Batches with a message of u1 and one of u2 on two topics each, a tombstone of u1, and a record of an audit topic."""
    for number in range(begin, most):
        rows = [
            {**event(number, topic), "msg_topic": topic, "state": "ready", "tenant": tenant, "size": 16, "ingest_run": "r",
             "payload": SECRET if tenant == "u1" else b"that-of-another!", **columns}
            for topic in ("orders", "carts") for tenant in ("u1", "u2")
        ]  # fmt: skip
        rows.append({**rows[0], "size": 0, "payload": None})
        rows.append({**rows[0], "state": "audit", "tenant": None, "payload": b"a record"})
        name = f"{number:09d}-{columns.get('ingest_run', 'r')}"
        found = landing.write_rows(EVENTS, name, rows)
        covered = landing.write_rows(COVERAGE, name, [{"split_id": "s", "rows": 6, "batch": number}])
        landing.commit(LandingCommit("r", 1, number, {EVENTS.name: found, COVERAGE.name: covered}))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches."""
    folder = tmp_path_factory.mktemp("template")
    fill(Landing(str(folder), "trade", None))
    return folder


@pytest.fixture
def filled(template: Path, landing: Landing, tmp_path: Path) -> Landing:
    """A copy for one test: to fill one takes ten times as long."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return landing


def anywhere(landing: Landing, secret: bytes) -> list[str]:
    """Every file of the landing that holds the bytes, as it is or in a column of Parquet."""
    found = []
    for path in sorted(Path(landing.root.uri).rglob("*")):
        if path.is_file():
            held = secret in path.read_bytes()
            if path.suffix == ".parquet" and "payload" in pq.read_schema(path).names:
                held |= any(one and secret in one for one in pq.read_table(path)["payload"].to_pylist())
            found += [str(path)] * held
    return found


def proofs(landing: Landing) -> list[dict[str, Any]]:
    """Rows without what an erasure changes."""
    changed = ("payload", "payload_state", "payload_digest")
    return sorted(({name: one for name, one in row.items() if name not in changed} for row in stored(landing)), key=str)


def request(landing: Landing, run: str = "e1", topic: str | None = None) -> ErasureRequest:
    return ErasureRequest(landing, run, "u1", topic, "asked for", "ann")


def test_the_bytes_of_a_tenant_are_gone_from_every_file_and_all_else_stays(filled: Landing) -> None:
    maintain(MaintenanceRequest(filled, "m1"))
    fill(filled, 6, 4)
    assert len(anywhere(filled, SECRET)) > 6
    before = proofs(filled)
    found = select_tenant(filled, "u1", None)
    assert (found.messages, found.bytes, found.topics) == (12, 192, {"carts": 6, "orders": 6})
    assert found.since == found.until == round(DAY.timestamp() * 1000)
    assert erase(request(filled), found)[0] == 12
    assert anywhere(filled, SECRET) == []
    assert proofs(anew(filled)) == before
    rows = stored(filled)
    assert {(row["payload"], row["payload_state"]) for row in rows if row["tenant"] == "u1"} == {
        (None, "erased"), (None, None),
    }  # fmt: skip
    assert {row["payload_digest"] for row in rows if row["payload_state"]} == {digest(SECRET)}
    assert sum(row["payload"] == b"that-of-another!" for row in rows) == 12
    assert sum(row["payload"] == b"a record" for row in rows) == 6
    assert select_tenant(anew(filled), "u1", None).messages == 0
    told = [
        (one["event"], one["tenant"], one["reason"], one["by"], one["messages"]) for one in stored(filled, "erasures")
    ]
    assert sorted(told) == [(event, "u1", "asked for", "ann", 12) for event in ("begin", "end")]
    assert len(anew(filled).snapshot(EVENTS, COVERAGE).files["events"]) == 6


def test_what_an_ingest_beside_it_has_not_committed_yet_stays_in_a_store(filled: Landing) -> None:
    coming = batch(filled, 4)
    erase(replace(request(filled), alone=False), select_tenant(filled, "u1", None))
    filled.commit(coming)
    assert anew(filled).table(EVENTS).holds(anew(filled).snapshot(EVENTS).files["events"])
    assert len(stored(filled)) == 4 * 6 + 2


def test_only_the_topic_that_is_named(filled: Landing) -> None:
    erase(request(filled, topic="carts"), select_tenant(filled, "u1", "carts"))
    assert select_tenant(filled, "u1", None).topics == {"orders": 4}


@pytest.mark.parametrize("stage", ["recorded", "rewritten", "replaced", "removed"])
def test_an_erasure_that_is_killed_is_ended_by_the_next(
    filled: Landing, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    before = proofs(filled)

    def dying(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def record(asked: ErasureRequest, event: str, found: Any) -> None:
        if event == "end":
            raise KeyboardInterrupt
        recorded(asked, event, found)

    recorded = payload_removal._record
    owner, name, what = {
        "recorded": (payload_removal, "_replace", dying), "rewritten": (LandingTable, "exchange", dying),
        "replaced": (payload_removal, "remove_unnamed", dying), "removed": (payload_removal, "_record", record),
    }[stage]  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, what)
        with pytest.raises(KeyboardInterrupt), record_run(filled, "e1", "erase", alone=True):
            erase(request(filled), select_tenant(filled, "u1", None))
    assert proofs(anew(filled)) == before
    after = anew(filled)
    with record_run(after, "e2", "erase", alone=True):
        erase(request(after, "e2"), select_tenant(after, "u1", None))
    assert anywhere(filled, SECRET) == []
    assert proofs(after) == before


def test_files_that_others_replace_meanwhile_are_looked_at_again(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other, done = proofs(filled), anew(filled), []
    exchange = LandingTable.exchange

    def late(self: LandingTable, *arguments: Any) -> bool:
        if not done:
            done.append(1)
            maintain(MaintenanceRequest(other, "m1"))
        return exchange(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LandingTable, "exchange", late)
        assert erase(request(filled), select_tenant(filled, "u1", None))[0] == 8
    assert anywhere(filled, SECRET) == []
    assert proofs(filled) == before
    fill(filled, 5, 4)
    monkeypatch.setattr(LandingTable, "exchange", lambda *_: False)
    with pytest.raises(LockedError, match="K575"):
        erase(request(filled, "e2"), select_tenant(filled, "u1", None))


def test_payloads_expire_by_whole_days_and_whoever_sent_them_does_not_choose(landing: Landing) -> None:
    fill(landing, 1, publish_ts=DAY)
    fill(landing, 2, 1, publish_ts=DAY + timedelta(days=36_500), ingest_run="20260101-000000-ab")
    fill(landing, 3, 2, publish_ts=DAY + timedelta(days=36_500), ingest_run="99991231-000000-ab")
    before = proofs(landing)
    policies = {"orders": PayloadPolicy(7 * 86_400_000)}
    done = maintain(MaintenanceRequest(landing, "m1", policies=policies))
    assert done.expired == 4
    assert proofs(anew(landing)) == before
    left = [row for row in stored(landing) if row["payload"] in (SECRET, b"that-of-another!")]
    assert sorted((row["topic"], row["ingest_run"][:4]) for row in left) == sorted(
        [("carts", run) for run in ("r", "2026", "9999") for _ in range(2)] + [("orders", "9999")] * 2
    )
    assert maintain(MaintenanceRequest(landing, "m2", policies=policies)).expired == 0
    fill(landing, 4, 3, publish_ts=DAY)
    assert maintain(MaintenanceRequest(landing, "m3", policies=policies)).expired == 2, "what landed late, too"
    assert maintain(MaintenanceRequest(landing, "m4", policies={"carts": PayloadPolicy(86_400_000)})).expired == 6


def test_a_clock_that_is_ahead_of_the_landing_keeps_no_payload_for_longer(landing: Landing) -> None:
    now = datetime.now(UTC)
    run = f"{now - timedelta(days=10):%Y%m%d-%H%M%S}-ab"
    fill(landing, 1, publish_ts=now - timedelta(days=5), ingest_run=run)  # landed five days before it was published
    policies = {"orders": PayloadPolicy(7 * 86_400_000)}
    assert maintain(MaintenanceRequest(landing, "m1", policies=policies)).expired == 2
    assert maintain(MaintenanceRequest(landing, "m2", policies=policies)).expired == 0


def test_what_landed_before_payloads_land_no_more_goes_as_well(landing: Landing) -> None:
    fill(landing, 1, publish_ts=datetime.now(UTC), ingest_run=f"{datetime.now(UTC):%Y%m%d-%H%M%S}-ab")
    fill(landing, 2, 1, publish_ts=datetime.now(UTC) + timedelta(days=99), ingest_run="20260101-000000-ab")
    before = proofs(landing)
    assert maintain(MaintenanceRequest(landing, "m1", policies={"orders": PayloadPolicy(0)})).expired == 4
    assert proofs(anew(landing)) == before
    assert select_tenant(landing, "u1", None).topics == {"carts": 2}


@pytest.mark.parametrize("keep", [86_400_000, 0])
def test_what_has_expired_is_not_looked_at_again(filled: Landing, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    policies = {"orders": PayloadPolicy(keep)}
    maintain(MaintenanceRequest(filled, "m1", policies=policies))
    seen: list[str] = []
    rows = stored_rows
    monkeypatch.setattr(payload_removal, "stored_rows", lambda *given: (seen.append(given[1].path), rows(*given))[1])
    maintain(MaintenanceRequest(filled, "m2", policies=policies))
    assert seen == []


def _conflict(monkeypatch: pytest.MonkeyPatch, *nth: int) -> None:
    """The named commits of files that replace others come behind somebody else's."""
    exchange, calls = LandingTable.exchange, iter(range(1, 99))
    monkeypatch.setattr(LandingTable, "exchange", lambda *given: next(calls) not in nth and exchange(*given))


BOTH = {"orders": PayloadPolicy(86_400_000), "carts": PayloadPolicy(86_400_000)}


def test_an_expiry_behind_which_others_come_leaves_what_it_removed_before(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = proofs(filled)
    with monkeypatch.context() as patched:
        _conflict(patched, 2)
        assert maintain(MaintenanceRequest(filled, "m1", policies=BOTH)).expired == 16
    assert proofs(anew(filled)) == before
    assert {row["payload_state"] for row in stored(filled) if row["size"] and row["state"] != "audit"} == {"expired"}


def test_an_expiry_that_did_not_come_about_is_not_taken_for_done(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        _conflict(patched, *range(1, 9))
        with pytest.raises(LockedError, match="K575"):
            maintain(MaintenanceRequest(filled, "m1", policies=BOTH))
    assert maintain(MaintenanceRequest(anew(filled), "m2", policies=BOTH)).expired == 16


def test_an_error_leaves_no_files_behind(filled: Landing, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LandingTable, "exchange", full)
    with pytest.raises(OSError, match="No space"), record_run(filled, "e1", "erase", alone=True):
        erase(request(filled), select_tenant(filled, "u1", None))
    assert not [one for one in (filled.root / "events").files() if "-e1-" in one]
    assert filled.root.local is not None
    assert not list((filled.root.local / "_work-erase").iterdir())
    with pytest.raises(KodoctlError), record_run(filled, "e2", "erase", alone=True):
        raise KodoctlError(LockedError.__doc__ or "")  # type: ignore[arg-type]
