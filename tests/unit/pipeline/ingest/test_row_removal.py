"""Rows of settled messages that are older than a time go; what is open stays, with all that records tie to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import KodoctlError, LockedError
from kodoctl.pipeline.audit.audit_state import AuditState, SettledTotals, fresh_files, landed_rows, last_batch
from kodoctl.pipeline.ingest import row_removal
from kodoctl.pipeline.ingest.delta_tables import LandingTable
from kodoctl.pipeline.ingest.landing_commits import AUDIT_RUN, ROLLUP_RUN, LandingCommit, TableFiles
from kodoctl.pipeline.ingest.landing_maintenance import MaintenanceRequest, maintain
from kodoctl.pipeline.ingest.landing_store import Landing
from kodoctl.pipeline.ingest.removal_record import RemovalRecord, RemovedTotals
from kodoctl.pipeline.ingest.row_removal import RemovalPlan, landed_basis, plan_removal, removal_time, remove_rows
from kodoctl.pipeline.ingest.state_tables import OPEN_EVENTS, OPEN_RECORDS, REMOVALS
from kodoctl.pipeline.ingest.tables import COVERAGE, CURSORS, EVENTS, TABLES, TRANSITIONS
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology
from tests.cluster import Run, run_main
from tests.spark import histories
from tests.unit.pipeline.ingest.landings import DAY, anew, stored

FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders: {subscriptions: {billing: {states: [retrying], audit: true}}}
"""
READY = "persistent://kodo/trade/orders"
RETRYING = f"{READY}-billing-RETRYING"
RECORDS = f"{READY}-billing-AUDIT"
BOUND = int(datetime(2026, 1, 4, tzinfo=UTC).timestamp() * 1000)


class Story:
    """What lands in a landing of one topic with one subscription: a message a number, of which each tells its day."""

    def __init__(self, landing: Landing, expansion: Expansion) -> None:
        self.landing, self.expansion = landing, expansion
        self.number = self.records = 0
        self.events: list[dict[str, Any]] = []
        self.transitions: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.open_records: list[dict[str, Any]] = []
        self.state: LandingCommit | None = None

    def send(self, day: int, topic: str = READY, **columns: Any) -> dict[str, Any]:
        """A message; its entry is its number."""
        row = {
            "id": f"7:{self.number}:0:-1", "mid": f"7:{self.number}:0:-1", "msg_topic": topic, "msg_partition": 0, "ledger": 7,
            "entry": self.number, "batch_index": -1, "topic": "orders", "hop": 0, "size": 1,
            "state": {READY: "ready", RETRYING: "retrying", RECORDS: "audit"}[topic], "publish_ts": DAY + timedelta(day),
            "ingest_run": f"2026010{2 + day}-120000-r",
        } | columns  # fmt: skip
        self.number += 1
        self.events.append(row)
        return row

    def record(
        self, of: dict[str, Any], event: str = "done", to: dict[str, Any] | None = None, **columns: Any
    ) -> dict[str, Any]:
        """An audit record about it."""
        self.records += 1
        row = {
            "worker_run": "w", "number": self.records, "topic": "orders", "subscription": "billing", "at_ts": of["publish_ts"],
            "msg_topic": of["msg_topic"], "id": of["id"], "identity": of["id"], "event": event,
            "target_topic": to and to["msg_topic"], "target_id": to and to["id"],
        } | columns  # fmt: skip
        self.transitions.append(row)
        return row

    def done(self, day: int, **columns: Any) -> dict[str, Any]:
        """A message that is done."""
        row = self.send(day, **columns)
        self.record(row)
        return row

    def lost(self, day: int) -> dict[str, Any]:
        """One that is open for the audit."""
        row = self.send(day)
        self.open.append({name: row.get(name) for name in OPEN_EVENTS.names if name != "families"} | {"families": [0]})
        return row

    def land(self) -> None:
        """One batch."""
        number = last_batch(self.landing.commits()) + 1
        name, rows = f"{number:09d}-r", {EVENTS: self.events, TRANSITIONS: self.transitions}
        tables = {table.name: self.landing.write_rows(table, name, found) for table, found in rows.items()}
        covered = {
            "split_id": name,
            "msg_topic": READY,
            "msg_partition": 0,
            "first": "7:0",
            "last": "7:99",
            "state": "complete",
        }
        tables[COVERAGE.name] = self.landing.write_rows(
            COVERAGE, name, [covered | {"entries_planned": 1, "entries_seen": 1}]
        )
        self.landing.commit(LandingCommit("r", int(DAY.timestamp() * 1000) + number, number, tables))
        self.events, self.transitions = [], []

    @property
    def basis(self) -> str:
        return landed_basis(self.landing, self.landing.snapshot(*TABLES), self.expansion, None)

    def audit(self, **columns: Any) -> None:
        """Its state, as an audit leaves it."""
        commits = self.landing.commits()
        tables = {
            table.name: replace(self.landing.write_rows(table, f"state-a{len(commits)}", rows), replaced=())
            for table, rows in ((OPEN_EVENTS, self.open), (OPEN_RECORDS, self.open_records))
        }
        ends = {(READY, 0): (7, 10_000), (RETRYING, 0): (7, 10_000)}
        state = AuditState(
            self.basis, last_batch(commits), landed_rows(commits), ends, SettledTotals({(0, 3): 1}),
            {name: one.rows for name, one in tables.items()},
        )  # fmt: skip
        behind = None if self.state is None else self.state.number
        facts = replace(state, **columns).to_facts()
        self.state = self.landing.commit(LandingCommit(AUDIT_RUN, 1, tables=tables, facts=facts), behind=behind)

    def plan(self, before: int = BOUND) -> RemovalPlan:
        return plan_removal(self.landing, self.expansion, None, before)

    def remove(self, before: int = BOUND, run: str = "20260601-000000-m1") -> RemovalPlan:
        plan = self.plan(before)
        remove_rows(self.landing, run, plan)
        return plan

    def left(self) -> tuple[list[int], list[int]]:
        """Entries of messages, and of those that records are about, in the files and as a reader of one commit has them."""
        found = anew(self.landing)
        snapshot = found.snapshot(EVENTS, TRANSITIONS)
        rows = stored(self.landing), stored(self.landing, "transitions")
        assert [len(one) for one in rows] == [
            sum(file.rows for file in snapshot.files[name]) for name in ("events", "transitions")
        ]
        return sorted(one["entry"] for one in rows[0]), sorted(int(one["id"].split(":")[1]) for one in rows[1])


@pytest.fixture
def story(landing: Landing, tmp_path: Path) -> Story:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: TableFiles.of(())}))
    landing.commit(LandingCommit("r-end", 1, facts={"complete": True}))
    return Story(landing, expand(load_topology(str(file))))


def test_old_settled_rows_go_and_all_others_stay(story: Story) -> None:
    for day in (0, 1, 2, 3):
        story.done(day)
    story.lost(2)
    story.done(1)  # behind a younger one of its partition
    story.land()
    story.audit()
    plan = story.remove()
    assert story.left() == ([2, 3, 4, 5], [2, 3, 5])
    assert plan.rows is not None
    assert (plan.rows.totals.messages, plan.rows.totals.records, plan.rows.left) == (2, 2, 1)
    assert plan.rows.files == {"events": (2, 1), "transitions": (2, 1)}
    assert stored(story.landing, "removed_places") == [
        {"msg_topic": READY, "msg_partition": 0, "ledger": 7, "first": 0, "last": 1, "run": "20260601-000000-m1"}
    ]
    (numbers,) = stored(story.landing, "removed_numbers")
    assert (numbers["run"], numbers["first"], numbers["last"], numbers["rows"]) == ("w", 1, 2, 2)
    record = RemovalRecord.of(anew(story.landing).commits())
    assert record is not None
    assert (record.before, record.batch, record.finished, record.totals.messages) == (BOUND, 0, True, 2)


def test_whatever_records_tie_to_an_open_message_stays(story: Story) -> None:
    story.done(0)
    sent = story.done(0)
    first, second = story.send(0, RETRYING, hop=1), story.send(1, RETRYING, hop=2)
    story.record(sent, "moved", first)
    story.record(first, "moved", second)
    story.open = [{name: second.get(name) for name in OPEN_EVENTS.names if name != "families"}]
    story.done(1)
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([1, 2, 3], [1, 1, 2])


def test_a_dead_letter_stays_with_what_records_tie_to_it_though_an_audit_settled_it(story: Story) -> None:
    dead = f"{READY}-billing-DLQ"
    sent = story.send(0)
    story.record(sent, "dead", story.send(0, msg_topic=dead, state="dead", hop=1))
    story.done(0)
    story.land()
    story.audit(ends={(READY, 0): (7, 10_000), (dead, 0): (7, 10_000)})
    plan = story.remove()
    assert story.left() == ([0, 1], [0])
    assert plan.rows is not None
    assert (plan.rows.totals.messages, plan.rows.left) == (1, 2)


def test_a_record_that_is_open_by_itself_keeps_both_of_its_places(story: Story) -> None:
    vanished = story.send(0, RETRYING)
    story.events.pop()
    sent = story.send(0)
    story.done(1)
    found = story.record(sent, "moved", vanished)
    story.open_records = [{name: found.get(name) for name in OPEN_RECORDS.names[:-2]}]
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([1], [1])


@pytest.mark.parametrize("late", ["target", "record", "new record", "new target"])
def test_a_message_goes_when_all_of_its_rows_are_old_and_judged(story: Story, late: str) -> None:
    story.done(0)
    sent = story.send(1)
    target = story.send(2 if late == "target" else 1, RETRYING, hop=1)
    at = {"at_ts": DAY + timedelta(2)} if late == "record" else {}
    if "new" not in late:
        story.record(sent, "moved", target, **at)
    story.record(target)
    story.land()
    if late == "new record":
        story.audit()
        story.record(sent, "moved", target)
        story.land()
    if late == "new target":
        story.record(sent, "moved", target)
        story.audit()
        story.record(story.send(3), "transferred", target)
        story.land()
    if "new" not in late:
        story.audit()
    story.remove()
    assert story.left()[0][:2] == [1, 2]


def test_an_entry_goes_as_a_whole_or_not_at_all(story: Story) -> None:
    one = story.done(0)
    other = story.lost(0)
    other |= {"entry": one["entry"], "id": f"7:{one['entry']}:0:1", "batch_index": 1}
    story.open[0] |= {"entry": one["entry"], "batch_index": 1}
    story.land()
    story.audit()
    assert story.remove().rows == row_removal.SettledRows(left=2, files={"events": (0, 0), "transitions": (0, 0)})
    assert story.left() == ([0, 0], [0])


def test_what_a_sender_says_of_the_time_has_nothing_unsettled_go_and_stops_no_other(story: Story) -> None:
    story.lost(-9)  # not settled, however old it says it is
    story.done(0, publish_ts=datetime(9999, 12, 30, tzinfo=UTC))
    story.done(1)
    story.done(3)
    story.done(0)  # as it says; it was landed behind a younger one
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([0, 1, 3, 4], [1, 3, 4])


def test_marks_stay_and_numbers_of_what_goes_are_kept(story: Story) -> None:
    for number in (1, 2, 4):
        story.done(
            0, seq_run="p", seq_partition=0, seq_number=number, for_subscription="nobody" if number == 2 else None
        )
    story.done(0, seq_run="p", seq_partition=0, seq_high=4, for_subscription=NOBODY)
    story.done(0)
    story.record(story.send(0, RETRYING, hop=1, seq_run="p", seq_number=9))
    story.land()
    story.audit()
    story.remove()
    assert story.left()[0] == [3]
    numbers = {
        (one["msg_topic"], one["partition"], one["run"], one["subscription"], one["first"], one["last"], one["rows"])
        for one in stored(story.landing, "removed_numbers")
    }
    assert numbers == {
        (READY, 0, "p", None, 1, 2, 2), (READY, 0, "p", None, 4, 4, 1),
        (None, None, "w", "billing", 1, 3, 3), (None, None, "w", "billing", 5, 6, 2),
    }  # fmt: skip
    record = RemovalRecord.of(story.landing.commits())
    assert record is not None
    newest = round(DAY.timestamp() * 1000)
    assert record.totals == RemovedTotals(5, 5, newest, 1, {(READY, "nobody"): 1})


def test_messages_of_records_go_and_those_that_no_audit_judges_stay(story: Story) -> None:
    story.send(0, RECORDS)
    story.send(0, msg_topic="persistent://kodo/trade/undeclared")
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([1], [])


@pytest.mark.parametrize(("case", "why"), [
    ("none", "no audit has left a state"), ("lost", "no audit has left a state"), ("rows lost", "no audit has left a state"),
    ("unreadable", "no audit has left a state"), ("rules", "judged by other rules: run it again"),
    ("basis", "are not those of the last audit"), ("mixed", "were put together with newer ones"), ("forged", "evidence"),
    ("names", "10,000 different"),
])  # fmt: skip
def test_without_a_state_that_says_what_is_settled_all_stays(
    story: Story, monkeypatch: pytest.MonkeyPatch, case: str, why: str
) -> None:
    story.done(0, for_subscription="nobody")
    story.lost(0)
    story.land()
    if case != "none":
        story.audit(**{
            "basis": {"basis": "another"}, "forged": {"totals": SettledTotals(contradictions={0: 1})},
            "rows lost": {"kept": {OPEN_EVENTS.name: 7}}, "mixed": {"rows": {"events": 7, "transitions": 1}},
        }.get(case, {}))  # fmt: skip
    if case == "lost":
        for path in Path(f"{story.landing.root.uri}/{OPEN_EVENTS.name}").rglob("*.parquet"):
            path.unlink()
    if case == "unreadable":
        for path in Path(f"{story.landing.root.uri}/{OPEN_EVENTS.name}/_delta_log").iterdir():
            path.write_bytes(b"no log")
        story.landing = anew(story.landing)
    if case == "rules":
        facts = {"rules": 1, "batch": 0}
        behind = story.state.number if story.state else None
        story.landing.commit(LandingCommit(AUDIT_RUN, 1, facts=facts), behind=behind)
    if case == "names":
        monkeypatch.setattr(row_removal, "_MOST", 0)
    plan = story.remove()
    assert plan.rows is None
    assert why in plan.why
    assert story.left() == ([0, 1], [0])
    assert RemovalRecord.of(story.landing.commits()) is None


def test_what_the_rollup_has_not_counted_stays(story: Story) -> None:
    story.done(0)
    story.land()
    story.landing.commit(LandingCommit(ROLLUP_RUN, 1, facts={"batch": 0}))
    story.done(0)
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([1], [1])


class Killed(BaseException):
    """Nothing is tidied up behind it, as behind kill -9."""


@pytest.mark.parametrize(("owner", "name", "nth"), [
    (Landing, "commit", 1), (LandingTable, "exchange", 1), (LandingTable, "exchange", 2), (Landing, "commit", 2),
    (row_removal, "rewrite", 1),
])  # fmt: skip
def test_a_removal_that_is_killed_is_ended_by_the_next_maintenance(
    story: Story, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int
) -> None:
    for day in (0, 1, 2):
        story.done(day)
    story.lost(1)
    story.land()
    story.audit()
    original, calls = getattr(owner, name), []

    def dying(*given: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == nth:
            raise Killed
        return original(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(Killed):
            story.remove()
    record = RemovalRecord.of(anew(story.landing).commits())
    assert (record is None) is (name == "commit" and nth == 1)
    assert record is None or not record.finished
    story.left()  # which a reader finds whole
    assert record is None or "was killed" in story.plan().why
    again = Story(anew(story.landing), story.expansion)
    maintain(MaintenanceRequest(again.landing, "20260601-000001-m2"))
    if record is None:
        again.remove(run="20260601-000001-m3")
    assert again.left() == ([2, 3], [2])
    record = RemovalRecord.of(anew(story.landing).commits())
    assert record is not None
    assert (record.finished, record.totals.messages, record.totals.records) == (True, 2, 2)


def test_the_state_of_the_audit_is_of_use_after_it_and_further_removals_add_up(story: Story) -> None:
    for day in (0, 1, 2, 3):
        story.done(day)
    story.land()
    story.audit()
    story.remove(BOUND - 86_400_000)
    story.done(4)
    story.land()
    snapshot = anew(story.landing).snapshot(*TABLES)
    state = AuditState.of(snapshot.commits)
    assert state is not None
    found = fresh_files(state, snapshot.files, snapshot.removed)
    assert found is not None
    assert [one.batch for one in found[EVENTS]] == [1]
    assert fresh_files(state, snapshot.files) is None
    story.audit()
    story.remove(run="20260601-000001-m2")
    story.remove(run="20260601-000001-m3")  # nothing more
    assert story.left() == ([2, 3, 4], [2, 3, 4])
    record = RemovalRecord.of(story.landing.commits())
    assert record is not None
    assert (record.run, record.totals.messages, dict(record.kept)) == (
        "20260601-000001-m2", 2, {"removed_places": 2, "removed_numbers": 2},
    )  # fmt: skip
    done = maintain(MaintenanceRequest(story.landing, "20260601-000001-m4"))
    assert done.files["removed_places"] == (2, 1)
    assert record.is_whole(anew(story.landing).snapshot(*REMOVALS).files)


def test_two_removals_at_once_are_one(story: Story) -> None:
    story.done(0)
    story.land()
    story.audit()
    plan, other = story.plan(), Story(anew(story.landing), story.expansion)
    monkey = anew(story.landing)
    remove_rows(other.landing, "20260601-000001-m2", plan)
    with pytest.raises(LockedError):
        row_removal._commit(monkey, RemovalRecord("m3", 1, 0), {}, behind=None)
    assert story.left() == ([], [])


def test_files_that_others_replace_meanwhile_are_looked_for_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.done(0)
    story.lost(0)
    story.land()
    story.audit()
    exchange, calls = LandingTable.exchange, []

    def refused(self: LandingTable, *given: Any) -> bool:
        calls.append(self)
        return len(calls) > 1 and exchange(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(LandingTable, "exchange", refused)
        story.remove()
    assert story.left() == ([1], [])
    assert len(calls) == 3
    story.open, story.open_records = [], []
    story.audit()
    monkeypatch.setattr(LandingTable, "exchange", lambda *_: False)
    with pytest.raises(LockedError, match="all the time"):
        story.remove(run="20260601-000001-m2")


def test_a_removal_whose_places_are_lost_is_not_ended(story: Story) -> None:
    record = RemovalRecord("m", 1, 0, kept={"removed_places": 3})
    story.done(0)
    story.land()
    row_removal._commit(story.landing, record, {}, behind=None)
    with pytest.raises(KodoctlError, match="removed_places has not the rows"):
        maintain(MaintenanceRequest(story.landing, "20260601-000001-m2"))


def test_rows_go_by_whole_days() -> None:
    day = 86_400_000
    assert removal_time(2 * day, 10 * day + 5) == 8 * day
    assert removal_time(2 * day + 6, 10 * day + 5) == 7 * day


def typed(tmp_path: Path, *more: str) -> Run:
    return run_main("pipeline", "maintain", str(tmp_path / "trade.yaml"), "--landing", str(tmp_path), *more)


def test_the_command_shows_what_would_go_and_removes_it(story: Story, tmp_path: Path) -> None:
    story.done(0)
    story.lost(0)
    story.land()
    assert "No row is removed: no audit has left a state" in " ".join(typed(tmp_path, "--keep", "90d").out.split())
    story.audit()
    shown = typed(tmp_path, "--keep", "90d", "--dry-run")
    assert (shown.code, story.left()) == (0, ([0, 1], [0])), shown.text
    out = " ".join(shown.out.split())
    assert "1 message and 1 record of before " in out
    assert "would be removed: 1 file as a whole, 1 rewritten without them. 1 message as old stays:" in out
    done = typed(tmp_path, "--keep", "90d", "--format", "json").lines_json()
    assert (done[1]["event"], done[1]["messages"], done[1]["records"], done[1]["left"]) == ("removal", 1, 1, 1)
    assert done[1]["files"] == {"events": {"touched": 1, "whole": 0}, "transitions": {"touched": 1, "whole": 1}}
    assert story.left() == ([1], [])
    assert "0 messages and 0 records of before" in typed(tmp_path, "--keep", "90d").out


@pytest.mark.parametrize(("more", "says"), [
    (("--keep", "23h"), "give 1d or more"), (("--keep", "old"), "not a duration"), (("--dry-run",), "--keep TIME"),
])  # fmt: skip
def test_an_age_that_cannot_be_is_told(story: Story, tmp_path: Path, more: tuple[str, ...], says: str) -> None:
    done = typed(tmp_path, *more)
    assert (done.code, "[K586]" in done.err, says in " ".join(done.err.split())) == (64, True, True), done.err


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_open_no_row_stays_without_those_that_are_tied_to_it(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "histories.yaml"
    file.write_text(histories.FILE, encoding="utf-8")
    landing = Landing(str(tmp_path), "trade", None)
    history = histories.History(expand(load_topology(str(file))), landing, seed)
    for _ in range(4):
        history.step(20, mischief=1)
        history.now += timedelta(days=1)
    before = {table.name: stored(landing, table.name) for table in (EVENTS, TRANSITIONS)}
    story = Story(landing, history.expansion)
    chosen = history.random.sample(before["events"], 5)
    story.open = [{name: row[name] for name in OPEN_EVENTS.names if name != "families"} for row in chosen]
    ends = {(lane.name, 0): lane.stored[-1] for lane in history.lanes.values() if lane.stored}
    story.audit(ends=ends)
    bound = int((history.now - timedelta(days=2)).timestamp() * 1000)
    plan = story.remove(bound)
    assert plan.rows is not None
    assert plan.rows.totals.messages > 10
    after = {table.name: stored(landing, table.name) for table in (EVENTS, TRANSITIONS)}
    there, gone = (
        {(row["msg_topic"], row["id"]) for row in rows}
        for rows in (after["events"], [row for row in before["events"] if row not in after["events"]])
    )
    assert {(row["msg_topic"], row["id"]) for row in chosen} <= there
    assert not there & gone
    moment = datetime.fromtimestamp(bound / 1000, UTC)
    assert all(row["publish_ts"] < moment for row in before["events"] if row not in after["events"])
    for record in before["transitions"]:
        tied = {(record["msg_topic"], record["id"]), (record["target_topic"], record["target_id"])} & (there | gone)
        assert not tied or tied <= (there if record in after["transitions"] else gone), record
        assert record in after["transitions"] or record["at_ts"] < moment
