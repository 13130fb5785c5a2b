"""Commits of a landing: the ordered record of the files whose rows count.

A commit is one row of the table `commits`, which names the files that it adds to the other tables. From then on these
files count in all tables, even if the writer is killed before it has added them there. The rows of old commits are
merged into one, with their sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.data_files import DataFile
from kodo_pipeline.landing.tables import CURSORS, DATE, EVENTS, TABLES, Table
from kodoctl.text.formatting import many
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    from kodo_pipeline.landing.delta_tables import TableVersion
    from kodoctl.topology.names import NamespaceName

_END: Final = "-end"  # of a run: its second commit
ROLLUP_RUN: Final = "rollup"  # one commit, which the next rollup replaces
AUDIT_RUN: Final = "audit"  # the same of audits
MAINTAIN_RUN: Final = "maintain"  # one commit, which the next one replaces
REMOVAL_RUN: Final = "removal"  # the same of removals of rows
_REPLACED_RUNS: Final = frozenset({ROLLUP_RUN, AUDIT_RUN, MAINTAIN_RUN, REMOVAL_RUN})
BEHIND: Final = "behind"  # in its facts: number of the one that it replaced
HISTORY: Final = "history"  # run of the one row that stands for all old commits
_KEPT: Final = 16  # commits that name their files, for readers that began before the newest of them


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files that one commit adds to one table. `since`, `until`: first and last value of the table's time column in ms,
    None if the files have no such value; `files`: None in an old commit, which has only the counts; `replaced`: see
    kodo_pipeline.landing.delta_tables.LandingTable.add.
    """

    rows: int
    since: int | None = None
    until: int | None = None
    files: tuple[DataFile, ...] | None = None
    replaced: tuple[str, ...] | None = None

    @classmethod
    def of(cls, files: Iterable[DataFile], replaced: Iterable[str] | None = None) -> TableFiles:
        """Makes the entry of files that were written, with the sum of their rows."""
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
    """A commit of the landing. `batch`: number of a batch of messages, from 0; None for the beginning or end of a run,
    for other writers (`run`: the kind, such as `rollup`, or the id, such as that of an erasure), and for the merged old
    commits (`run`: `history`). `at`: ms since the epoch; `tables`: added files by table name; `facts`: more figures, by
    name; `number`: position among all commits, from 0, -1 before it is committed.
    """

    run: str
    at: int
    batch: int | None = None
    tables: Mapping[str, TableFiles] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    number: int = -1

    def is_same(self, other: LandingCommit) -> bool:
        """True if both commits are of the same batch, or, without a batch, of the same `run`."""
        return (
            self.batch == other.batch if self.batch is not None else (self.batch, self.run) == (other.batch, other.run)
        )

    def to_row(self, *, files: bool) -> dict[str, Any]:
        """The commit as a row of `kodo_pipeline.landing.tables.COMMITS`. `files`: True lists the files in the row;
        False leaves that column null.
        """
        tables = {name: {"rows": one.rows, "since": one.since, "until": one.until} for name, one in self.tables.items()}
        named = {
            name: {"files": [file.to_json() for file in one.files or ()], "replaced": one.replaced}
            for name, one in self.tables.items()
        }
        return {
            "number": self.number,
            "run": self.run,
            "at_ts": datetime.fromtimestamp(self.at / 1000, UTC),
            "batch": self.batch,
            "tables": json.dumps(tables),
            "facts": json.dumps(self.facts),
            "files": json.dumps(named) if files else None,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> LandingCommit:
        """Parses a row that `to_row` made. Raises ValueError for any other row."""
        try:
            named = json.loads(row["files"]) if row["files"] is not None else {}
            tables = {name: _table_files(counts, named.get(name)) for name, counts in json.loads(row["tables"]).items()}
            at = round(row["at_ts"].timestamp() * 1000)
            return cls(row["run"], at, row["batch"], tables, json.loads(row["facts"]), row["number"])
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(f"row {row.get('number')} is no commit of kodoctl's: something else wrote it") from None


def _table_files(counts: Mapping[str, Any], named: Mapping[str, Any] | None) -> TableFiles:
    if named is None:
        return TableFiles(counts["rows"], counts["since"], counts["until"])
    files = tuple(DataFile(**one) for one in named["files"])
    replaced = None if named["replaced"] is None else tuple(named["replaced"])
    return TableFiles(counts["rows"], counts["since"], counts["until"], files, replaced)


def is_replaced(run: str) -> bool:
    """True if `run` is a kind of writer (`rollup`, `audit`, `maintain`, `removal`) of which only the last commit is
    kept. False for any other text, such as the id of a run.
    """
    return run in _REPLACED_RUNS


def with_commit(known: Sequence[LandingCommit], added: LandingCommit, *, whole: bool = False) -> list[dict[str, Any]]:
    """Rows of the table `commits` after `added`, which has its number already, is appended to `known`.

    Only the last commit of each kind in `is_replaced` is kept. Old commits are merged into one row, so that a commit
    costs the same after years, unless `whole` is True. Only the newest 16 commits (`_KEPT`) name their files.
    """
    kept = [one for one in known if not (one.run == added.run and is_replaced(one.run))]
    rows = [*kept, added] if whole else _fold([*kept, added], added.number - _KEPT)
    return [one.to_row(files=one.number > added.number - _KEPT) for one in rows]


def _fold(commits: Sequence[LandingCommit], until: int) -> list[LandingCommit]:
    """Merges the commits up to number `until` into one. Others need some of these by themselves, so they stay:
    beginnings of the last run that ended and of later ones, the newest batch, and commits that the next of their kind
    replaces.
    """
    read, newest = read_at(commits), max(batches(commits), default=-1)
    old = [
        one
        for one in commits
        if one.number <= until
        and not is_replaced(one.run)
        and (one.batch is None or one.batch != newest)
        and not (_begins(one) and one.at >= read)
    ]
    if len(old) < 2:  # one row stays one row
        return list(commits)
    return sorted([_history(old, read), *(one for one in commits if one not in old)], key=lambda one: one.number)


def _history(old: Sequence[LandingCommit], read: int) -> LandingCommit:
    names = sorted({name for one in old for name in one.tables})
    tables, last = {}, {}
    for name in names:
        found = [one.tables[name] for one in old if name in one.tables]
        times = [at for one in found for at in (one.since, one.until) if at is not None]
        tables[name] = TableFiles(sum(one.rows for one in found), min(times, default=None), max(times, default=None))
        last[name] = max(added_to(one, name) for one in old if name in one.tables)
    facts = {
        "last": last,
        "read_at": read,
        "commits": sum(one.facts.get("commits", 1) for one in old),
        "batches": batches_with_messages(old),
        "newest": newest_batch(old),
        "batch": max((_last_batch(one) for one in old), default=-1),
        "bytes": sum(one.facts.get("bytes", 0) for one in old),
    }
    return LandingCommit(HISTORY, max(one.at for one in old), None, tables, facts, max(one.number for one in old))


def _last_batch(commit: LandingCommit) -> int:
    if commit.run == HISTORY:
        return int(commit.facts["batch"])
    return -1 if commit.batch is None else commit.batch


def is_history(commit: LandingCommit, known: Iterable[LandingCommit]) -> bool:
    """True if `commit` is of a batch that is already part of the merged old commits in `known`; False for a commit
    without a batch.
    """
    last = max((_last_batch(one) for one in known if one.run == HISTORY), default=-1)
    return commit.batch is not None and commit.batch <= last


def added_to(commit: LandingCommit, name: str) -> int:
    """Number of the last commit that added files to the table `name`. `commit`: has that table in `tables`; it may be a
    merged one, of several commits.
    """
    return int(commit.facts["last"][name]) if commit.run == HISTORY else commit.number


def _begins(commit: LandingCommit) -> bool:
    """True for the beginning of a run."""
    return commit.batch is None and commit.run != HISTORY and CURSORS.name in commit.tables


def next_number(known: Sequence[LandingCommit]) -> int:
    """Number for the next commit: one more than the highest of the known ones, 0 if there are none."""
    return max((one.number for one in known), default=-1) + 1


def files_at(table: Table, version: TableVersion, known: Sequence[LandingCommit]) -> list[DataFile] | None:
    """Files of a table as of the last commit: those of `version`, and those of commits that the table does not have
    yet. None if such a commit no longer names its files, or was replaced: then `version` is too old, and the caller has
    to read it again.
    """
    found = list(version.files)
    for one in sorted(known, key=lambda commit: commit.number):
        added = one.tables.get(table.name)
        if added is None or added_to(one, table.name) <= version.number:
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
    """Compares tables with the commits: a text for each table that has a commit which `commits` lacks, or, among
    TABLES, another number of rows than were committed. [] if all agree. `files`: files of each table as of the last
    commit.
    """
    last = next_number(commits) - 1
    wrong = [
        f"{table.name} has commit {version.number}, and commits ends at {last}"
        for table, version in versions.items()
        if version.number > last
    ]
    for table, version in ((one, found) for one, found in versions.items() if one in TABLES):
        there = sum(one.rows for one in files[table.name]) + version.removed
        committed = rows_of(commits, table)
        if there != committed:
            wrong.append(f"{table.name} has {there:,} of {many(committed, 'row')} that were committed to it")
    return wrong


def unfinished_runs(commits: Sequence[LandingCommit]) -> list[str]:
    """Sorted ids of the ingests that began later than the last completed one: they were interrupted, or still run."""
    read = read_at(commits)
    return sorted(one.run for one in commits if _begins(one) and one.at > read)


def read_at(commits: Sequence[LandingCommit]) -> int:
    """Start time of the last completed ingest (one that has committed its end), ms since the epoch; 0 if there is none."""
    ended = {one.run.removesuffix(_END) for one in commits if one.facts.get("complete")}
    starts = [one.at for one in commits if _begins(one) and one.run in ended]
    return max([*starts, *(one.facts["read_at"] for one in commits if one.run == HISTORY)], default=0)


def last_begin(commits: Iterable[LandingCommit]) -> int:
    """Start time of the last ingest, whether it was completed or not, ms since the epoch; 0 if there is none."""
    known = [
        one.facts["read_at"] if one.run == HISTORY else one.at for one in commits if one.run == HISTORY or _begins(one)
    ]
    return max(known, default=0)


def last_reading(commits: Sequence[LandingCommit]) -> LandingCommit | None:
    """Commit of the beginning of the last completed ingest; None if there is none."""
    read = read_at(commits)
    return next((one for one in commits if _begins(one) and one.at == read), None)


def landed_namespace(commits: Sequence[LandingCommit]) -> NamespaceName | None:
    """Namespace of the landed topics: that of the last completed ingest, else of the first ingest that began; None if
    unknown.
    """
    begin = last_reading(commits) or next((one for one in commits if _begins(one)), None)
    topics = begin.facts.get("topics") if begin else None
    return TopicName.parse(topics[0]).namespace if topics else None


def batches(commits: Iterable[LandingCommit]) -> dict[int, LandingCommit]:
    """Commits of batches, by batch number. Old batches, whose commits were merged, are missing, but the newest batch is
    always there.
    """
    return {one.batch: one for one in commits if one.batch is not None}


def newest_batch(commits: Iterable[LandingCommit]) -> int:
    """Number of the last batch in which at least one message landed; -1 if no batch has messages."""
    return max((_newest(one) for one in commits), default=-1)


def _newest(commit: LandingCommit) -> int:
    if commit.run == HISTORY:
        return int(commit.facts["newest"])
    return -1 if commit.batch is None or not rows_of([commit], EVENTS) else commit.batch


def batches_with_messages(commits: Iterable[LandingCommit]) -> int:
    """Number of batches in which at least one message landed, including those whose commits were merged since."""
    return sum(
        one.facts["batches"] if one.run == HISTORY else one.batch is not None and rows_of([one], EVENTS) > 0
        for one in commits
    )


def rows_of(commits: Iterable[LandingCommit], table: Table) -> int:
    """Number of rows that these commits added to a table; rows that were removed since are counted too."""
    return sum(one.tables[table.name].rows for one in commits if table.name in one.tables)


def times_of(commits: Iterable[LandingCommit], table: Table) -> tuple[int, int] | None:
    """(first, last) value of a table's time column over these commits, in ms since the epoch; None if no row has one."""
    found = [one.tables[table.name] for one in commits if table.name in one.tables]
    times = list(chain.from_iterable((at for at in (one.since, one.until) if at is not None) for one in found))
    return (min(times), max(times)) if times else None


def holds_messages(commits: Iterable[LandingCommit]) -> bool:
    """True if at least one message landed by these commits, even if its rows were removed since."""
    return rows_of(commits, EVENTS) > 0


def with_number(commit: LandingCommit, number: int, behind: int | None) -> LandingCommit:
    """Copy of the commit with its number. `behind`: number of the commit that it replaces, stored in its facts, None if
    it replaces no commit.
    """
    facts = commit.facts if behind is None else {**commit.facts, BEHIND: behind}
    return replace(commit, number=number, facts=facts)
