"""What commits say: the files of a table that has not got the newest, batches with messages, and times."""

from __future__ import annotations

from kodo_pipeline.landing.data_files import DataFile, of_add
from kodo_pipeline.landing.delta_tables import TableVersion
from kodo_pipeline.landing.landing_commits import (
    BEHIND,
    ROLLUP_RUN,
    LandingCommit,
    TableFiles,
    files_at,
    last_begin,
    last_reading,
    newest_batch,
    times_of,
)
from kodo_pipeline.landing.tables import CURSORS, EVENTS, ROLLUP


def file(name: str, day: str | None = None) -> DataFile:
    return DataFile(name, 1, 1, {} if day is None else {"date": day}, 10, 20)


def batch(number: int, *files: DataFile) -> LandingCommit:
    return LandingCommit("r", 1, number, {EVENTS.name: TableFiles.of(files)}, number=number)


def test_a_table_has_the_files_of_commits_that_it_has_not_got_yet() -> None:
    commits = [batch(0, file("a")), batch(1, file("b")), batch(2, file("c"))]
    assert files_at(EVENTS, TableVersion(1, (file("a"), file("b"))), commits) == [file("a"), file("b"), file("c")]
    assert files_at(ROLLUP, TableVersion(-1, ()), commits) == []
    old = LandingCommit("r", 1, 1, {EVENTS.name: TableFiles(1)}, number=1)
    assert files_at(EVENTS, TableVersion(0, (file("a"),)), [commits[0], old]) is None, "it names its files no more"


def test_days_that_a_rollup_replaces_are_not_there_any_more() -> None:
    known = TableVersion(3, (file("a", "2026-01-01"), file("b", "2026-01-02")))

    def count(*days: str, behind: int = 3) -> LandingCommit:
        made = TableFiles.of([file("c", "2026-01-02")], days)
        return LandingCommit(ROLLUP_RUN, 1, tables={ROLLUP.name: made}, facts={BEHIND: behind}, number=7)

    found = [files_at(ROLLUP, known, [count(*days)]) for days in (["2026-01-02"], [])]
    assert found == [[known.files[0], file("c", "2026-01-02")], [file("c", "2026-01-02")]]
    assert files_at(ROLLUP, known, [count("2026-01-02", behind=5)]) is None, "what lies between is named nowhere"


def test_batches_without_messages_are_not_the_newest_and_have_no_times() -> None:
    assert (newest_batch([]), times_of([], EVENTS)) == (-1, None)
    commits = [batch(0, file("a")), batch(1), LandingCommit("r-end", 1)]
    assert newest_batch(commits) == 0
    assert times_of(commits, EVENTS) == (10, 20)


def test_a_file_of_a_table_has_its_path_as_it_is_on_the_disk() -> None:
    row = {
        "path": "b/topic=a%253Ab/p",
        "size_bytes": 1,
        "num_records": 3,
        "partition.date": None,
        "partition.topic": "a:b",
    }
    assert of_add(row, EVENTS) == DataFile("b/topic=a%3Ab/p", 1, 3, {"date": None, "topic": "a:b"})


def test_a_run_follows_runs_and_no_other_commit_however_late_that_is_dated() -> None:
    assert (last_begin([]), last_reading([])) == (0, None)
    first, second = (LandingCommit(run, at, tables={CURSORS.name: TableFiles(1)}) for run, at in (("r1", 5), ("r2", 9)))
    ended = LandingCommit("r1-end", 5, facts={"complete": True})
    others = [LandingCommit(ROLLUP_RUN, 3_600_000), batch(0), ended]
    assert (last_begin([first, *others]), last_begin([first, second, *others])) == (5, 9)
    assert (last_reading([first, *others[:2]]), last_reading([first, second, *others])) == (None, first)
