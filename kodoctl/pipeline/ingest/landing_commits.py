"""Commits of a landing: what counts, in order. A commit is one row of the table `commits`, which names the files that it
adds to the other tables: it counts from then on, in all of them or in none, whatever becomes of who wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kodoctl.formatting import many
from kodoctl.pipeline.ingest.data_files import DataFile
from kodoctl.pipeline.ingest.tables import CURSORS, DATE, EVENTS, TABLES, Table

if TYPE_CHECKING:
    from kodoctl.pipeline.ingest.delta_tables import TableVersion

_END: Final = "-end"  # of a run: its second commit
ROLLUP_RUN: Final = "rollup"  # one commit, which the next rollup replaces
AUDIT_RUN: Final = "audit"  # the same of audits
REPLACED_RUNS: Final = (ROLLUP_RUN, AUDIT_RUN)
BEHIND: Final = "behind"  # in its facts: number of the one that it replaced
_KEPT: Final = 16  # commits that name their files, for readers that began before the newest of them


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files that one commit adds to one table, and the bounds of its moment in ms. `replaced`: see
    kodoctl.pipeline.ingest.delta_tables.LandingTable.add. An old commit names no files, but counts their rows.
    """

    rows: int
    since: int | None = None
    until: int | None = None
    files: tuple[DataFile, ...] | None = None
    replaced: tuple[str, ...] | None = None

    @classmethod
    def of(cls, files: Iterable[DataFile], replaced: Iterable[str] | None = None) -> TableFiles:
        """All that was written."""
        found = tuple(files)
        times = [at for one in found for at in (one.since, one.until) if at is not None]
        return cls(
            sum(one.rows for one in found),
            min(times, default=None),
            max(times, default=None),
            found,
            None if replaced is None else tuple(replaced),
        )


@dataclass(frozen=True, slots=True)
class LandingCommit:
    """A batch (`batch` from 0), or the beginning or end of a run, or a rollup (None). `at`: ms since the epoch. `facts`:
    further figures of it. `number`: its place among all, from 0; -1 before it is committed.
    """

    run: str
    at: int
    batch: int | None = None
    tables: Mapping[str, TableFiles] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    number: int = -1

    def is_same(self, other: LandingCommit) -> bool:
        """True if both stand for one batch, or for one event of one run."""
        return (
            self.batch == other.batch if self.batch is not None else (self.batch, self.run) == (other.batch, other.run)
        )

    def to_row(self, *, files: bool) -> dict[str, Any]:
        """As kodoctl.pipeline.ingest.tables.COMMITS has it."""
        told = {name: {"rows": one.rows, "since": one.since, "until": one.until} for name, one in self.tables.items()}
        named = {
            name: {"files": [file.to_json() for file in one.files or ()], "replaced": one.replaced}
            for name, one in self.tables.items()
        }
        return {
            "number": self.number,
            "run": self.run,
            "at_ts": datetime.fromtimestamp(self.at / 1000, UTC),
            "batch": self.batch,
            "tables": json.dumps(told),
            "facts": json.dumps(self.facts),
            "files": json.dumps(named) if files else None,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> LandingCommit:
        """The inverse. Raises ValueError for a row that is none of ours."""
        try:
            named = json.loads(row["files"]) if row["files"] is not None else {}
            tables = {name: _table_files(told, named.get(name)) for name, told in json.loads(row["tables"]).items()}
            at = round(row["at_ts"].timestamp() * 1000)
            return cls(row["run"], at, row["batch"], tables, json.loads(row["facts"]), row["number"])
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(f"row {row.get('number')} is no commit of kodoctl's: something else wrote it") from None


def _table_files(told: Mapping[str, Any], named: Mapping[str, Any] | None) -> TableFiles:
    if named is None:
        return TableFiles(told["rows"], told["since"], told["until"])
    files = tuple(DataFile(**one) for one in named["files"])
    replaced = None if named["replaced"] is None else tuple(named["replaced"])
    return TableFiles(told["rows"], told["since"], told["until"], files, replaced)


def with_commit(known: Sequence[LandingCommit], added: LandingCommit) -> list[dict[str, Any]]:
    """Rows of the table `commits` when `added` is the next one. Of rollups, and of audits, the last one is kept."""
    kept = [one for one in known if one.run != added.run or added.run not in REPLACED_RUNS]
    return [one.to_row(files=one.number > added.number - _KEPT) for one in (*kept, added)]


def next_number(known: Sequence[LandingCommit]) -> int:
    """Of the next commit."""
    return max((one.number for one in known), default=-1) + 1


def files_at(table: Table, version: TableVersion, known: Sequence[LandingCommit]) -> list[DataFile] | None:
    """Files of a table as of the last commit: those of the version, and those of commits that it has not got yet. None if
    a commit that it lacks names its files no more, or was replaced by another: the version is too old.
    """
    found = list(version.files)
    for one in sorted(known, key=lambda commit: commit.number):
        added = one.tables.get(table.name)
        if added is None or one.number <= version.number:
            continue
        if added.files is None or one.facts.get(BEHIND, -1) > version.number:
            return None
        if added.replaced is not None:
            found = [file for file in found if added.replaced and file.partition.get(DATE) not in added.replaced]
        found += added.files
    return found


def unlike_commits(
    versions: Mapping[Table, TableVersion], files: Mapping[str, Sequence[DataFile]], commits: Sequence[LandingCommit]
) -> list[str]:
    """What is wrong with tables that have what `commits` lacks, or not the rows that were committed to them. `files`: as of
    the last commit.
    """
    last = next_number(commits) - 1
    wrong = [
        f"{table.name} has commit {version.number}, and commits ends at {last}"
        for table, version in versions.items()
        if version.number > last
    ]
    for table in (one for one in versions if one in TABLES):
        there, committed = sum(one.rows for one in files[table.name]), rows_of(commits, table)
        if there != committed:
            wrong.append(f"{table.name} has {there:,} of {many(committed, 'row')} that were committed to it")
    return wrong


def finished(commits: Sequence[LandingCommit]) -> list[str]:
    """Runs up to the last one that ended by itself."""
    begun = {one.run: one.at for one in commits if one.batch is None and CURSORS.name in one.tables}
    ended = {one.run.removesuffix(_END) for one in commits if one.facts.get("complete")}
    last = max((at for run, at in begun.items() if run in ended), default=-1)
    return sorted(run for run, at in begun.items() if at <= last)


def read_at(commits: Sequence[LandingCommit]) -> int:
    """Start time of the last run that ended by itself, ms since the epoch; 0 if there is none."""
    runs = finished(commits)
    return max((one.at for one in commits if one.batch is None and one.run in runs), default=0)


def batches(commits: Iterable[LandingCommit]) -> dict[int, LandingCommit]:
    """By their numbers."""
    return {one.batch: one for one in commits if one.batch is not None}


def newest_batch(commits: Iterable[LandingCommit]) -> int:
    """Number of the last batch that has messages; -1 where there is none."""
    return max((number for number, one in batches(commits).items() if rows_of([one], EVENTS)), default=-1)


def rows_of(commits: Iterable[LandingCommit], table: Table) -> int:
    """Rows that all commits landed in a table."""
    return sum(one.tables[table.name].rows for one in commits if table.name in one.tables)


def times_of(commits: Iterable[LandingCommit], table: Table) -> tuple[int, int] | None:
    """First and last moment of a table, in ms; None where nothing has one."""
    found = [one.tables[table.name] for one in commits if table.name in one.tables]
    times = list(chain.from_iterable((at for at in (one.since, one.until) if at is not None) for one in found))
    return (min(times), max(times)) if times else None


def holds_messages(commits: Iterable[LandingCommit]) -> bool:
    """True if any batch has messages."""
    return rows_of(commits, EVENTS) > 0


def with_number(commit: LandingCommit, number: int, behind: int | None) -> LandingCommit:
    """The same as that commit; `behind`: number of the one that it replaces."""
    facts = commit.facts if behind is None else {**commit.facts, BEHIND: behind}
    return replace(commit, number=number, facts=facts)
