"""Commits of the state of audits: a killed one leaves the former state, or the new one, and what is lost stops nobody else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.landing.delta_tables import ConcurrentCommitError, LandingTable
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.state_tables import LETTERS_SEEN, SETTLED, STATE
from kodo_pipeline.upkeep.landing_maintenance import MaintenanceRequest, maintain

from kodoctl.errors import KodoctlError, LockedError
from tests.unit.pipeline.landings import anew, batch, stored

_TABLES = {SETTLED: "family", LETTERS_SEEN: "hash"}


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    found = Landing(str(tmp_path), "trade", None)
    found.commit(batch(found, 0))
    return found


def state(landing: Landing, value: int, behind: int | None, *, added: bool = False) -> LandingCommit:
    """One row of each of two tables. `added`: to the names that are there; all else is replaced."""
    written = {
        table.name: replace(
            landing.write_rows(table, f"state-a{value}", [{column: value}]),
            replaced=None if added and table is SETTLED else (),
        )
        for table, column in _TABLES.items()
    }
    commit = LandingCommit(AUDIT_RUN, 1, tables=written, facts={"value": value, "batch": value})
    return landing.commit(commit, behind=behind)


def values(landing: Landing) -> list[list[int]]:
    """As the next audit finds it: names, letters."""
    snapshot = anew(landing).snapshot(*STATE)
    return [sorted(int(one.path.split("/")[0].removeprefix("state-a")) for one in snapshot.files[table.name])
            for table in _TABLES]  # fmt: skip


def test_a_state_is_replaced_but_for_names_that_are_added_to_it(landing: Landing) -> None:
    first = state(landing, 1, None)
    second = state(landing, 2, first.number, added=True)
    assert values(landing) == [[1, 2], [2]]
    with pytest.raises(LockedError, match="K575"):
        state(landing, 3, first.number)
    state(landing, 4, second.number)
    assert values(landing) == [[4], [4]]
    assert [one.facts["value"] for one in landing.commits() if one.run == AUDIT_RUN] == [4], "the last one is kept"
    assert sorted(row["family"] for row in stored(landing, SETTLED.name)) == [4]


def test_a_state_that_was_stored_and_answered_as_refused_is_no_other_audits(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, replace_rows = state(landing, 1, None), LandingTable.replace_rows

    def refused(*given: Any) -> None:
        replace_rows(*given)
        raise ConcurrentCommitError

    monkeypatch.setattr(LandingTable, "replace_rows", refused)
    assert state(landing, 2, first.number).number == first.number + 1
    assert values(landing) == [[2], [2]]


class Killed(BaseException):
    """Nothing is tidied up behind it, as behind kill -9."""


@pytest.mark.parametrize(("step", "nth", "found"), [
    ("write_rows", 1, [[1], [1]]), ("replace_rows", 1, [[1], [1]]), ("add", 1, [[1, 2], [2]]), ("add", 2, [[1, 2], [2]]),
])  # fmt: skip
def test_a_killed_audit_leaves_the_former_state_or_the_new_one(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, step: str, nth: int, found: list[list[int]]
) -> None:
    first = state(landing, 1, None)
    owner: type = Landing if step == "write_rows" else LandingTable
    original, calls = getattr(owner, step), iter(range(1, 9))

    def dies(*arguments: object, **named: object) -> object:
        if next(calls) == nth:
            raise Killed
        return original(*arguments, **named)

    run = "20260102-030405-killed"
    landing.start(run, AUDIT_RUN)
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, dies)
        with pytest.raises(Killed):
            state(landing, 2, first.number, added=True)
    assert values(landing) == found
    later = anew(landing)
    with later.alone(AUDIT_RUN) as alone:
        later.sweep(AUDIT_RUN, alone=alone)
    newest = next(one for one in later.commits() if one.run == AUDIT_RUN)
    state(later, 3, newest.number)
    assert values(landing) == [[3], [3]]


def test_a_state_that_somebody_deleted_stops_nobody_but_who_reads_it(landing: Landing) -> None:
    first = state(landing, 1, None)
    assert all(landing.table(table).holds(landing.snapshot(table).files[table.name]) for table in STATE)
    for table in _TABLES:
        shutil.rmtree(landing.root.local / table.name)  # type: ignore[operator]
    later = anew(landing)
    try:
        held = all(later.table(table).holds(later.snapshot(table).files[table.name]) for table in _TABLES)
    except KodoctlError:
        held = False
    assert not held
    later.commit(batch(later, 1))
    assert len(stored(landing)) == 4
    state(anew(landing), 2, first.number)
    assert values(landing) == [[2], [2]]


def test_a_state_that_somebody_deleted_stops_no_maintenance(landing: Landing) -> None:
    state(landing, 1, None)
    for number in range(1, 30):
        landing.commit(batch(landing, number))  # commits name its files no more
    for table in STATE:
        shutil.rmtree(landing.root.local / table.name, ignore_errors=True)  # type: ignore[operator]
    assert maintain(MaintenanceRequest(anew(landing), "m1")).files["events"] == (30, 2)
