"""Rows of settled messages that are older than a time go; what is open stays, with all that records tie to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kodo_pipeline.audit.audit_state import AuditState, fresh_files
from kodo_pipeline.landing.landing_commits import ROLLUP_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.removal_record import RemovalRecord, RemovedTotals
from kodo_pipeline.landing.state_tables import OPEN_EVENTS, OPEN_RECORDS, REMOVALS
from kodo_pipeline.landing.tables import EVENTS, TABLES, TRANSITIONS
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain
from kodo_pipeline.upkeep.row_removal import removal_time
from kodo_pipeline.upkeep.settled_rows import SettledRows

from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.brokers.workspace import Run, run_main
from tests.spark import histories
from tests.unit.pipeline.landings import DAY, anew, stored
from tests.unit.pipeline.removal_stories import BOUND, READY, RECORDS, RETRYING, Story, story

__all__ = ["story"]


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
    assert story.remove().rows == SettledRows(left=2, files={"events": (0, 0), "transitions": (0, 0)})
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


def test_what_the_rollup_has_not_counted_stays(story: Story) -> None:
    story.done(0)
    story.land()
    story.landing.commit(LandingCommit(ROLLUP_RUN, 1, facts={"batch": 0}))
    story.done(0)
    story.land()
    story.audit()
    story.remove()
    assert story.left() == ([1], [1])


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


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
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
