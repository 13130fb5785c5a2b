"""`pipeline write-off apply` as it is typed: booked once, by who did it, after the hash was given."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.audit.audit_inputs import booked_write_offs
from kodo_pipeline.audit.write_offs import MESSAGE, NO_BOOKINGS, WrittenOff
from kodo_pipeline.evidence.audit_evidence import AuditEvidence, MessageStatus, PartitionCoverage, SubscriptionTotals
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.recorded_tables import WRITE_OFFS
from kodo_pipeline.landing.tables import CURSORS, TABLES
from kodo_pipeline.write_off import write_off_plan
from kodo_pipeline.write_off.write_off_commands import _plan
from kodo_pipeline.write_off.write_off_plan import MORE, WriteOffPlan

from tests.brokers.workspace import Run, run_main
from tests.unit.pipeline.landings import anew, batch, stored

LOST = WrittenOff(MESSAGE, "persistent://t/n/orders", 0, "billing", "7:1:0:-1")


@pytest.fixture
def plan(tmp_path: Path, landing: Landing) -> WriteOffPlan:
    """Of one message, in plan.json."""
    looked = landing.write_rows(CURSORS, "r1", [{"ingest_run": "r1", "msg_topic": "orders"}])
    landing.commit(LandingCommit("r1", 1, tables={CURSORS.name: looked}))
    landing.commit(batch(landing, 0))
    landing.commit(LandingCommit("r1-end", 1, facts={"complete": True}))
    made = WriteOffPlan("w1", 1, "trade", None, str(tmp_path), "sent by hand", "loss", (LOST,))
    (tmp_path / "plan.json").write_text(json.dumps(made.document()), encoding="utf-8")
    return made


def apply(folder: Path, *more: str) -> Run:
    return run_main("pipeline", "write-off", "apply", str(folder / "plan.json"), *more)


def test_a_plan_is_booked_once_with_author_and_reason(tmp_path: Path, landing: Landing, plan: WriteOffPlan) -> None:
    confirmed = ("--hash", plan.document()["hash"])
    first = apply(tmp_path, *confirmed)
    assert (first.code, "1 loss or doubt written off" in first.out) == (0, True), first.text
    again = apply(tmp_path, *confirmed, "--format", "json")
    assert (again.code, json.loads(again.out)["booked"]) == (0, 0), again.text
    (row,) = stored(anew(landing), WRITE_OFFS.name)
    assert (row["name"], row["reason"], row["by"], row["run"]) == (LOST.name, "sent by hand", getpass.getuser(), "w1")
    found = booked_write_offs(landing, anew(landing).snapshot(*TABLES, WRITE_OFFS))
    assert list(found.places) == [("persistent://t/n/orders", "billing", "7:1:0:-1")]
    assert found.notes[0].startswith(f"1 message written off by {getpass.getuser()} on ")


def test_a_plan_is_booked_once_even_when_its_commit_is_merged(
    tmp_path: Path, landing: Landing, plan: WriteOffPlan
) -> None:
    confirmed = ("--hash", plan.document()["hash"], "--format", "json")
    assert json.loads(apply(tmp_path, *confirmed).out)["booked"] == 1
    later = anew(landing)
    for number in range(1, 20):
        later.commit(batch(later, number))
    assert "write-off-w1" not in [one.run for one in later.commits()]
    again = apply(tmp_path, *confirmed)
    assert (again.code, json.loads(again.out)["booked"]) == (0, 0), again.text
    assert len(stored(anew(landing), WRITE_OFFS.name)) == 1


def test_a_topic_that_the_file_has_not_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trade.yaml"
    file.write_text("version: 1\nname: trade\ntenant: t\nnamespace: n\ntopics: {orders: {}}\n", encoding="utf-8")
    named = ("--topic", "ordres", "--reason", "why", "--landing", str(tmp_path))
    found = run_main("pipeline", "write-off", "plan", str(file), *named, "--admin-url", "http://127.0.0.1:1")
    assert (found.code, "K828" in found.err, "--topic ordres: the file has" in found.err) == (64, True, True), (
        found.text
    )


def test_nothing_is_booked_that_nobody_confirmed(tmp_path: Path, landing: Landing, plan: WriteOffPlan) -> None:
    for code, words, more in ((64, "--hash", ()), (4, "not the plan's hash", ("--hash", "other"))):
        found = apply(tmp_path, *more)
        assert (found.code, words in found.err) == (code, True), found.text
    (tmp_path / "plan.json").write_text(json.dumps({**plan.document(), "reason": "other"}), encoding="utf-8")
    changed = apply(tmp_path, "--hash", plan.document()["hash"])
    assert (changed.code, "K827" in changed.err) == (64, True), changed.text
    assert not anew(landing).snapshot(WRITE_OFFS).files[WRITE_OFFS.name]


def test_a_landing_that_is_gone_is_told(tmp_path: Path) -> None:
    made = WriteOffPlan("w1", 1, "trade", None, str(tmp_path / "gone"), "sent by hand", "loss", (LOST,))
    (tmp_path / "plan.json").write_text(json.dumps(made.document()), encoding="utf-8")
    found = apply(tmp_path, "--hash", made.document()["hash"])
    assert (found.code, "K801" in found.err) == (64, True), found.text


@pytest.mark.parametrize(("lost", "stays"), [(2, ()), (3, (MORE,))])
def test_a_plan_says_that_it_does_not_name_all_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int, stays: tuple[str, ...]
) -> None:
    monkeypatch.setattr(write_off_plan, "MOST", 2)
    places = [(LOST.topic, LOST.subscription, f"7:{number}:0:-1") for number in range(lost)]
    tally = SubscriptionTotals("orders", "billing", "wait", {MessageStatus.LOST: lost})
    audited: Any = SimpleNamespace(
        evidence=lambda: AuditEvidence((PartitionCoverage(LOST.topic, 0),), (tally,)),
        places=lambda _topic, _subscription, most: places[:most],
        bookings=NO_BOOKINGS,
    )
    expansion: Any = SimpleNamespace(name="trade", topics=(), topology=SimpleNamespace(environment=None))
    made = _plan(audited, expansion, (None, None), "w1", str(tmp_path), "sent by hand")
    assert (made.verdict, [one.name for one in made.items], made.stays) == ("loss", ["7:0:0:-1", "7:1:0:-1"], stays)
