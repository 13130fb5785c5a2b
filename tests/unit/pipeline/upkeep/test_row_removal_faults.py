"""A removal of rows that cannot be, is killed, or meets others: no row goes that should not, and the next maintenance ends what was started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.audit.audit_state import SettledTotals
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.state_tables import OPEN_EVENTS
from kodo_pipeline.upkeep import row_removal
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain
from kodo_pipeline.upkeep.row_removal import remove_rows

from kodoctl.errors import KodoctlError, LockedError
from tests.unit.pipeline.landings import anew
from tests.unit.pipeline.removal_stories import BOUND, Story, story

__all__ = ["story"]


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
        faults: dict[str, dict[str, Any]] = {
            "basis": {"basis": "another"}, "forged": {"totals": SettledTotals(contradictions={0: 1})},
            "rows lost": {"kept": {OPEN_EVENTS.name: 7}}, "mixed": {"rows": {"events": 7, "transitions": 1}},
        }  # fmt: skip
        story.audit(**faults.get(case, {}))
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


class Killed(BaseException):
    """Nothing is tidied up behind it, as behind kill -9."""


@pytest.mark.parametrize(("owner", "name", "nth"), [
    (Landing, "commit", 1), (LandingTable, "exchange", 1),
    pytest.param(LandingTable, "exchange", 2, marks=pytest.mark.full), (Landing, "commit", 2),
    pytest.param(row_removal, "rewrite", 1, marks=pytest.mark.full),
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


@pytest.mark.parametrize("earlier", [False, True])
def test_a_plan_from_before_another_removal_is_not_carried_out(story: Story, earlier: bool) -> None:
    for day in (0, 1):
        story.done(day)
    story.land()
    story.audit()
    if earlier:
        story.remove(before=BOUND - 86_400_000, run="20260601-000000-m0")
    plan = story.plan()
    story.remove()
    removed = RemovalRecord.of(story.landing.commits())
    with pytest.raises(LockedError):
        remove_rows(story.landing, "20260601-000001-m2", plan)
    assert RemovalRecord.of(story.landing.commits()) == removed, "no row is counted twice"


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
