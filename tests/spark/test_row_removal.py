"""Rows of settled messages are removed: no audit finds anything else than before, and what was lost is found as before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kodo_pipeline.audit.audit_inputs import landed_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judge_landing
from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS
from kodo_pipeline.upkeep import row_removal
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain
from kodo_pipeline.upkeep.row_removal import plan_removal, remove_rows

from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.spark.histories import FILE, History

pytestmark = pytest.mark.timeout(1800)
SETTLED = {"done", "done twice", "discarded", "not for me", "moving"}


@pytest.fixture
def expansion(tmp_path):
    file = tmp_path / "histories.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file)))


@pytest.fixture
def landing(tmp_path):
    return Landing(str(tmp_path / "landing"), "histories", None)


class Audits:
    """Audits of one history, by increments and of all rows; each keeps its state unless it is of all rows."""

    def __init__(self, spark, landing, expansion, history):
        self.spark, self.landing, self.expansion, self.history = spark, landing, expansion, history
        self.number = 0

    def once(self, *, full=False, saved=True):
        inputs = landed_inputs(self.spark, self.landing, self.expansion, tuple(self.history.letters), {}, None)
        self.number += saved
        options = AuditOptions(f"20260101-000000-{self.number}", full=full, few=0 if saved else 1 << 62)
        return judge_landing(self.spark, self.landing, inputs, options)

    def both(self):
        """(by increments, of all rows, how the first judged)"""
        found, full = self.once(), self.once(saved=False)
        full.pop("judged")
        return found, full, found.pop("judged")


def essence(document):
    """What a verdict says but for counts of settled messages."""
    told = {key: document[key] for key in ("verdict", "reasons", "coverage", "findings", "lost")}
    return told | {
        "subscriptions": [
            {**one, "messages": {fate: count for fate, count in one["messages"].items() if fate not in SETTLED}}
            for one in document["subscriptions"]
        ],
        "notes": [
            one for one in document["notes"] if "done twice" not in one and "were settled and removed" not in one
        ],
    }


def days(history, count, begin=0, **options):
    """So many days of traffic, each landed."""
    for _ in range(begin, begin + count):
        history.step(40, **options)
        history.now += timedelta(days=1)


def midnight(history, before):
    """Of so many days ago."""
    return int((history.now - timedelta(days=before)).timestamp() * 1000) // 86_400_000 * 86_400_000


def rows(landing):
    snapshot = landing.snapshot(EVENTS, TRANSITIONS)
    return {name: sum(one.rows for one in files) for name, files in snapshot.files.items()}


def lose(history):
    """A message that is acknowledged, and nothing says why."""
    message = history.send("plain")
    message.row["for_subscription"] = None
    history.acknowledge(message, "billing")
    return message.row["id"]


def released(history):
    """Ids of two dead letters that are acknowledged, and nobody knows why."""
    letters = [one for one in history.messages if one.lane.topic.state == "dead" and one.open_for][:2]
    for letter in letters:
        history.acknowledge(letter, letter.row["subscription"])
    return {one.row["id"] for one in letters}


@pytest.mark.full
def test_no_audit_finds_anything_else_and_what_was_lost_is_found(spark, landing, expansion, monkeypatch):
    """Then a dead letter is released, which is judged by itself, as its rows stay; and something is said of a message whose rows are
    gone, whereupon all are judged.
    """
    history = History(expansion, landing, 1, calm=True, recalls=False)
    audits = Audits(spark, landing, expansion, history)
    old = lose(history)
    days(history, 4)
    before = audits.once()
    assert before.pop("judged")["unsaved"] == ""
    assert old in [one["id"] for one in before["findings"]]
    landed, ids = rows(landing), {one["id"] for one in landing.table(EVENTS).rows()}
    plan = plan_removal(landing, expansion, None, midnight(history, 2))
    with monkeypatch.context() as patched:  # killed when it is committed
        patched.setattr(row_removal, "finish_removal", lambda *_: None)
        remove_rows(landing, "20260601-000000-m1", plan)
    assert rows(landing) == landed
    found, full, basis = audits.both()
    assert (found, basis["all_rows"]) == (before, False)
    assert essence(full) == essence(before)
    replace_files = row_removal._replace_files
    with monkeypatch.context() as patched:  # and again with one table done
        patched.setattr(
            row_removal,
            "_replace_files",
            lambda place, table, *more: table is EVENTS and replace_files(place, table, *more),
        )
        patched.setattr(row_removal, "_commit", lambda *_, **__: None)
        row_removal.finish_removal(landing, "20260601-000000-m2")
    half = audits.once(saved=False)
    assert essence(half) == essence(before)
    maintain(MaintenanceRequest(landing, "20260601-000000-m3"))
    left = rows(landing)
    assert left["events"] == landed["events"] - plan.rows.totals.messages < landed["events"] * 0.75
    assert left["transitions"] == landed["transitions"] - plan.rows.totals.records < landed["transitions"] * 0.75
    young, letters = lose(history), released(history)
    days(history, 1)
    found, full, basis = audits.both()
    assert (basis["all_rows"], basis["reopened"] > 0) == (False, True), basis
    assert essence(found) == essence(full)
    assert {old, young} <= {one["id"] for one in full["findings"] if one["fate"] == "lost"}
    assert {one["id"] for one in full["findings"] if one["cause"] == Cause.RELEASED} == letters
    assert "were settled and removed" in " ".join(full["notes"])
    assert "were settled and removed" not in " ".join(found["notes"])
    there = {one["id"] for one in landing.table(EVENTS).rows()}
    late = next(one for one in history.done if one[0].row["id"] in ids - there)
    history.record(*late, "done")
    days(history, 1)
    found, full, basis = audits.both()
    assert (basis["all_rows"], found == full) == (True, True), "both count from the removal on"


@pytest.mark.full
@pytest.mark.parametrize("killed", [False, True])
def test_what_is_spoken_of_behind_a_removal_is_judged_as_all_rows_are(spark, landing, expansion, monkeypatch, killed):
    """A dead letter that is released by itself, as its rows stay; a message that is removed with all others, once."""
    history = History(expansion, landing, 4, calm=True, recalls=False)
    audits = Audits(spark, landing, expansion, history)
    days(history, 3)
    audits.once()
    landed = {one["id"] for one in landing.table(EVENTS).rows()}
    plan = plan_removal(landing, expansion, None, midnight(history, 1))
    with monkeypatch.context() as patched:
        if killed:
            patched.setattr(row_removal, "finish_removal", lambda *_: None)
        remove_rows(landing, "20260601-000000-m1", plan)
    letters = released(history)
    days(history, 1)
    found, full, basis = audits.both()
    assert (basis["all_rows"], basis["reopened"] > 0) == (False, True), basis
    assert essence(found) == essence(full)
    assert {one["id"] for one in full["findings"] if one["cause"] == Cause.RELEASED} == letters
    if killed:
        maintain(MaintenanceRequest(landing, "20260601-000000-m2"))
    left = {one["id"] for one in landing.table(EVENTS).rows()}
    removed = [one for one in history.done if one[0].row["id"] in landed - left]
    ways = []
    for late in removed[:2]:
        history.record(*late, "done")
        days(history, 1)
        found, full, basis = audits.both()
        assert essence(found) == essence(full)
        ways.append((basis["all_rows"], found == full))
    assert ways == [(True, True), (False, True)], "both count from the removal on"
    remove_rows(landing, "20260601-000000-m3", plan_removal(landing, expansion, None, midnight(history, 3)))
    left = {one["id"] for one in landing.table(EVENTS).rows()}
    done = {one["id"] for one in history.kept if one["event"] == "done"}
    there = [one for one in history.done if one[0].row["id"] in left & done]
    history.record(*there[len(there) // 2], "discarded")
    days(history, 1)
    found, full, basis = audits.both()
    assert (basis["all_rows"], found == full) == (True, True), "other places of it may be gone"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 6))
def test_random_histories_with_removals_are_judged_alike(spark, landing, expansion, seed):
    """With what says more of messages that are gone; and from an audit of all rows on, which counts what is left."""
    history = History(expansion, landing, seed, calm=True)
    audits = Audits(spark, landing, expansion, history)
    days(history, 4)
    audits.once()
    remove_rows(landing, "20260601-000000-m1", plan_removal(landing, expansion, None, midnight(history, 2)))
    for number in range(2):
        days(history, 1, mischief=number)
        found, full, basis = audits.both()
        assert essence(found) == essence(full), (number, basis)
        assert not basis["unsaved"]
    audits.once(full=True)
    days(history, 1)
    found, full, basis = audits.both()
    assert found == full, "both count from the removal on"
    again = plan_removal(landing, expansion, None, midnight(history, 3))
    if not again.why:
        assert again.rows.totals.messages > 0, again
        remove_rows(landing, "20260601-000000-m3", again)
    found, full, basis = audits.both()
    assert essence(found) == essence(full)
