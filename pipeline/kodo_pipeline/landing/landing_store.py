"""The landing: Delta tables of one topology in one environment, and the commits that say which files count.

  LANDING/TOPOLOGY/ENVIRONMENT/
    events/ transitions/ coverage/ cursors/   Delta tables
    rollup/ latencies/ sent/ failures/         Delta tables, of a rollup
    removed_places/ removed_numbers/           Delta tables, of a removal: figures about rows that are gone
    audit_…/                                   Delta tables, of an audit: its state, which may be lost
    commits/                                   Delta table: the commits
    _checkpoint/                               up to where the batches of an ingest read
    _manifests/                                one file, which makes a former kodoctl refuse the landing
    _work/                                     a folder for each run under way

A batch is written file by file, then committed by one row of `commits`, and last added to each table. Delta has no
commit of several tables: so the next reader or writer takes from that row the files that a killed writer did not add.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing import table_writer
from kodo_pipeline.landing.delta_tables import TRIES, ConcurrentCommitError, LandingTable
from kodo_pipeline.landing.file_store import Storage
from kodo_pipeline.landing.landing_commits import (
    AUDIT_RUN,
    LandingCommit,
    TableFiles,
    batches,
    files_at,
    holds_messages,
    is_history,
    is_replaced,
    landed_namespace,
    next_number,
    read_at,
    rows_of,
    unlike_commits,
    with_commit,
    with_number,
)
from kodo_pipeline.landing.recorded_tables import RECORDED
from kodo_pipeline.landing.state_tables import REMOVALS, STATE
from kodo_pipeline.landing.tables import COMMITS, COUNTED, EVENTS, TABLES, TRANSITIONS, Table
from kodoctl.errors import KodoctlError, LockedError, UsageError, error
from kodoctl.host.private_files import make_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.landing.data_files import DataFile
    from kodoctl.topology.expand import Expansion

FEW: Final = 50_000  # rows for which a light session is enough
_FEW_BYTES: Final = 32 * 1024 * 1024  # of files that one task reads
BASE: Final = "base"  # environment of a file without overlay
RUN_TIME: Final = re.compile(r"\b\d{8}-\d{6}(?=-)")  # when it began, in a run's id
_OLD: Final = timedelta(days=1)
_STARTED: Final = "started"
_ELSEWHERE: Final = frozenset("%[]{}*^|\\")  # in a path: delta-rs reads another folder, or Spark several
_REMEDY: Final = "bring its files back, or land elsewhere"
_READS: Final = 3  # of a table that others commit to while it is read: each leaves room for many commits
FORMER: Final = "_manifests"  # of kodoctl before its landing was Delta tables
GUARD: Final = "delta.json"  # among them: such a kodoctl refuses it


@dataclass(frozen=True, slots=True)
class LandingSnapshot:
    """Commits of a landing, and files of the tables that were asked for, all as of the last of these commits. `files`:
    by table name; `removed`: number of rows that removals (`pipeline maintain --keep`) took from each of the tables so
    far, by table name.
    """

    commits: Sequence[LandingCommit]
    files: Mapping[str, Sequence[DataFile]]
    removed: Mapping[str, int] = field(default_factory=dict)


class Landing:
    """Landing of one topology in one environment (None: the folder `base`), in the folder TOPOLOGY/ENVIRONMENT below
    the address `uri`, for use by one thread at a time. The constructor reads nothing. It raises KodoctlError (K573) if
    the path of that folder has a character that Delta or Spark would interpret, such as `%`, `*` or a bracket.
    """

    def __init__(self, uri: str, topology: str, environment: str | None) -> None:
        self.root = Storage(uri) / topology / (environment or BASE)
        _check_path(self.root.uri)
        self._commits = LandingTable(self.root, COMMITS)
        every = (*TABLES, *COUNTED, *RECORDED, *REMOVALS, *STATE)
        self._tables = {table.name: LandingTable(self.root, table) for table in every}
        self._added = dict.fromkeys(self._tables, -1)  # number of the last commit that the table is known to have
        self._is_former: bool | None = None

    @property
    def checkpoint(self) -> Storage:
        """Folder of the checkpoint of an ingest: its offsets and commits. The folder need not exist."""
        return self.root / "_checkpoint"

    def work(self, run: str) -> Storage:
        """Folder in which an ingest (`run`: its id) stores the coverage records of a batch until it is committed."""
        return self.root / "_work" / run / "coverage"

    def commits(self, *, former: bool = False) -> list[LandingCommit]:
        """Reads the commits, sorted by number; [] if there are none. Old commits are merged into one, and of rollups,
        audits and the other kinds in `is_replaced` only the last is there. `former`: a landing with manifests of a
        former kodoctl is read too (for its conversion).

        Raises KodoctlError: K573 if the table of commits cannot be read or has something else in it, K584 if its format
        is not supported, or, without `former`, if the landing has such manifests (an object looks for them once).
        """
        if not former:
            self._refuse_former()
        try:
            found = [LandingCommit.of_row(row) for row in self._commits.rows()]
        except ValueError as problem:
            detail = f"{self._commits.folder.uri}: {problem}"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None
        return sorted(found, key=lambda one: one.number)

    def snapshot(self, *tables: Table, former: bool = False) -> LandingSnapshot:
        """Reads the commits, and the files of these tables (any but COMMITS) as of the last commit. The tables are read
        before the commits, which are then at least as new, and name the files that a table does not have yet.
        `former`: see `commits`. Whether the files exist is not checked (LandingTable.damage does that).

        Raises KodoctlError (K573) if one of these tables has a commit after the last of the commits (so that some were
        lost), if it lacks files that were committed to it, or, for those of TABLES, if it has another number of rows
        than was committed to it; also as `commits` and LandingTable do.
        """
        files: dict[str, list[DataFile] | None] = {}
        for _ in range(_READS):
            versions = {table: self._tables[table.name].version() for table in tables}
            commits = self.commits(former=former)
            files = {table.name: files_at(table, version, commits) for table, version in versions.items()}
            whole = {name: found for name, found in files.items() if found is not None}
            if len(whole) == len(files):
                if wrong := unlike_commits(versions, whole, commits):
                    lines = [f"{self.root.uri} is not as it was written", *wrong, _REMEDY]
                    raise KodoctlError(error("K573", "the landing cannot be used", "\n".join(lines)))
                return LandingSnapshot(commits, whole, {one.name: found.removed for one, found in versions.items()})
        lacking = ", ".join(sorted(name for name, found in files.items() if found is None))
        detail = f"{self.root.uri}: {lacking} lacks files that were committed to it; bring its _delta_log back, or land elsewhere"
        raise KodoctlError(error("K573", "the landing cannot be used", detail))

    def is_small(self) -> bool:
        """True if the commits (of rollups only the last) added at most FEW (50,000) rows in all to `events`,
        `transitions` and the tables of rollups; rows that were removed since count too. Raises KodoctlError as
        `commits` does.
        """
        return _rows_for_spark(self.commits()) <= FEW

    def commit(self, commit: LandingCommit, *, behind: int | None = None, former: bool = False) -> LandingCommit:
        """Commits the files that `commit` names, so that their rows count from now on, adds them to the tables, and
        returns the commit with its number. If the same run has committed the same batch, beginning or end before (in a
        commit that was not merged since), commits nothing, and returns that commit. Commits of other runs in between
        are no problem. Lost commits are not noticed here: call `recover` before. Files of earlier commits that a table
        lacks are added too.

        `behind`: for a kind of which only the last commit is kept (`is_replaced`), the number of the commit that this
        one replaces, None or -1: there is none; `former`: see `commits`, and old commits are not merged.

        Raises LockedError if another run has committed the same batch, or any run in a commit that was merged since; if
        there is a commit of that kind and it is not `behind`; or if each of TRIES (20) attempts met another commit.
        Raises KodoctlError as `commits` and LandingTable do: if a table could not be changed, the commit may count.
        """
        numbered: LandingCommit | None = None
        for _ in range(TRIES):
            known = self.commits(former=former)
            self._add_files(known)
            if (same := next((one for one in known if one.is_same(commit)), None)) is not None:
                if numbered is not None and same.to_row(files=True) == numbered.to_row(files=True):
                    return same  # a store refused the second try of what the first one did
                if not is_replaced(commit.run) and same.run == commit.run:
                    return same
                if not is_replaced(commit.run) or same.number != behind:
                    raise self._locked_error(commit)
            elif is_history(commit, known):
                raise self._locked_error(commit)
            if not known:
                for table in TABLES:
                    self._tables[table.name].create()
            numbered = with_number(commit, next_number(known), behind)
            with contextlib.suppress(ConcurrentCommitError):
                self._commits.replace_rows(with_commit(known, numbered, whole=former), numbered.number)
                self._add_files([numbered])
                return numbered
        raise self._locked_error(commit)

    def recover(self, *, former: bool = False) -> list[LandingCommit]:
        """Adds to each table the files that it lacks of the commits that still name them, as after a writer was killed.
        Returns the commits. Raises KodoctlError as `snapshot` does for TABLES, such as K573 if commits were lost: their
        numbers would be used again, and tables that have these numbers would ignore the new files.
        """
        known = self.snapshot(*TABLES, former=former).commits
        self._add_files(known)
        return list(known)

    def _add_files(self, commits: Sequence[LandingCommit]) -> None:
        """Adds the files of each commit, in order, to the tables that do not have them."""
        for name, table in self._tables.items():
            named = [(one.number, found) for one in commits
                     if (found := one.tables.get(name)) and found.files is not None and one.number > self._added[name]]  # fmt: skip
            if named:
                self._added[name] = table.number()
            for number, found in named:
                if number > self._added[name]:
                    table.add(number, found.files or (), found.replaced)
                    self._added[name] = number

    def _locked_error(self, commit: LandingCommit) -> LockedError:
        what = commit.run if commit.batch is None else f"batch {commit.batch}"
        detail = (
            f"another run has committed {what} in {self.root.uri} meanwhile: wait until it has ended, then run again"
        )
        return LockedError(error("K575", "another run is under way", detail))

    def write_rows(self, table: Table, attempt: str, rows: Sequence[Mapping[str, Any]]) -> TableFiles:
        """Writes a few rows (values by column, a missing one is null) into files without Spark, and returns the files,
        which count when a commit names them; without rows there are none. `attempt`: name of the folder of the files,
        in the folder of the table; see `start`.
        """
        import pyarrow as pa

        if not rows:
            return TableFiles.of(())
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=table.arrow())
        with table_writer.TableWriter(self._tables[table.name].folder, table, attempt) as writer:
            for batch in made.to_batches():
                writer.write(batch)
        return TableFiles.of(writer.files)

    def write_frame(
        self, frame: DataFrame, table: Table, attempt: str, replaced: Iterable[str] | None = None, *, few: bool = False
    ) -> TableFiles:
        """Writes the rows of a frame as kodo_pipeline.landing.table_writer.write_frame does, and returns the files,
        which count when a commit names them. `attempt`: as in `write_rows`; `replaced`: see `TableFiles`; `few`: the
        rows fit into this process, which collects and writes them instead of Spark.
        """
        files = table_writer.write_frame(frame, self._tables[table.name].folder, table, attempt, few=few)
        return TableFiles.of(files, replaced)

    def table(self, table: Table) -> LandingTable:
        """The LandingTable of a table definition, also of COMMITS; the same object in each call."""
        return self._commits if table is COMMITS else self._tables[table.name]

    def rows(self, table: Table, column: str, value: str) -> list[dict[str, Any]]:
        """Reads the rows of a table that have the text `value` in `column`, without Spark; [] if there are none. Rows
        of a commit that were not added to the table, as after a kill, are missing until `recover` or the next `commit`.
        Raises KodoctlError as LandingTable does.
        """
        return self._tables[table.name].rows(column, value)

    def read(
        self,
        spark: SparkSession,
        table: Table,
        *,
        since: int | None = None,
        until: int | None = None,
        snapshot: LandingSnapshot | None = None,
    ) -> DataFrame:
        """Committed rows of a table as a frame, without the column `date`. `since`, `until` (ms of the table's time
        column; None: no bound): files whose times are known to be outside of the range from `since` to before `until`
        are skipped, but the rows of the other files are not filtered. `snapshot`: read as of it, so that several tables
        are consistent (it must have been made for this table, too); None: as of the newest commit.
        """
        found = (snapshot or self.snapshot(table)).files[table.name]
        return self.read_files(spark, table, (one for one in found if one.touches(since, until)))

    def read_files(
        self, spark: SparkSession, table: Table, files: Iterable[DataFile], *, dated: bool = False
    ) -> DataFrame:
        """Rows of these files of the table as a frame; without files it has no rows. `dated`: with the column `date`.
        Files with at most FEW rows and 32 MiB in all become one partition, which spares queries a shuffle. If a file is
        missing, this call, or later a query, raises an error of pyspark that names the file.
        """
        schema = table.spark(dated=dated)
        folder = self._tables[table.name].folder.uri
        filled = [one for one in files if one.rows]
        if not filled:
            return spark.createDataFrame([], schema)
        options = {"basePath": folder, "ignoreInvalidPartitionPaths": "true"}  # folders of batches are no partitions
        found = spark.read.schema(schema).options(**options).parquet(*(f"{folder}/{one.path}" for one in filled))
        return (found.coalesce(1) if _are_few(filled) else found).select(*schema.names)

    def check(self) -> None:
        """Prepares the landing for a writer: creates its folder on a disk if needed, and marks it so that a former
        kodoctl refuses it. Raises KodoctlError: K573 if the folder cannot be created or written, if a store refuses an
        operation, or if the landing has batches and the folder `checkpoint` is missing (the messages would be read
        again); K584 if a former kodoctl made the landing; also as `commits` does.
        """
        self._make()
        if batches(self.commits()) and not self.checkpoint.exists():
            detail = (
                f"{self.checkpoint.uri} is gone, so nobody knows what {self.root.uri} holds already; land elsewhere"
            )
            raise KodoctlError(error("K573", "the landing cannot be used", detail))
        guard(self.root)

    def _refuse_former(self) -> None:
        if self._is_former is None:
            self._is_former = is_former(self.root)  # lists: who has no key is told at once
        if self._is_former:
            detail = f"{self.root.uri} is of a kodoctl before its tables were Delta tables: `kodoctl pipeline convert` makes them"
            raise KodoctlError(error("K584", "the landing has another format", detail))

    def _make(self) -> None:
        if self.root.local is None:
            return
        try:
            make_folder(self.root.local)
            if not os.access(self.root.local, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.root.local))
        except OSError as problem:
            detail = f"{problem.filename}: {problem.strerror}: name another folder with --landing"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None

    def start(self, run: str, what: str = "ingest") -> None:
        """Records that a run begins to write files, so that after a kill `sweep` in a later run of the same kind
        removes these files. It finds them by the names of their folders (`attempt`), in which the id `run` must stand
        between hyphens, or at an end. `what`: kind of the run, such as `ingest`, `rollup`, `audit`.
        """
        (self._notes(what) / run).write(_STARTED, {"run": run})

    def end(self, run: str, what: str = "ingest", *, sweep: bool = False) -> None:
        """Removes the record of `start`, and of an ingest also its folder `work`. `sweep`: first removes the run's
        folders of files (see `start`), except those with a file that counts, or that the log of a table still names as
        replaced: in the tables of the audit's state for AUDIT_RUN, else in all other tables.
        """
        if sweep:
            self._sweep([run], what)
        (self._notes(what) / run).remove()

    def sweep(self, what: str = "ingest", *, alone: bool) -> None:
        """Removes the records of killed runs of the kind `what` (`ingest` or a constant such as AUDIT_RUN), and their
        files, as `end` does. Call it before `start`. `alone`: value of the context `alone`; True: every recorded run
        counts as killed; False: another run may be active, and only a run whose id says that it began more than a day
        ago counts as killed.
        """
        left = [run for run in self._notes(what).folders() if alone or _is_old(run)]
        if left:
            self._sweep(left, what)
        for run in left:
            self.end(run, what)

    def _notes(self, what: str) -> Storage:
        return self.root / ("_work" if what == "ingest" else f"_work-{what}")

    def _sweep(self, runs: Sequence[str], what: str) -> None:
        chosen = STATE if what == AUDIT_RUN else (*TABLES, *COUNTED, *RECORDED, *REMOVALS)
        snapshot = self.snapshot(*chosen, former=True)
        for name, table in ((one, self._tables[one]) for one in snapshot.files):
            kept = [*(one.path for one in snapshot.files[name]), *table.replaced()]  # readers may have the latter
            counted = {path.partition("/")[0] for path in kept}
            for attempt in table.folder.folders():
                if attempt not in counted and any(f"-{run}-" in f"-{attempt}-" for run in runs):
                    (table.folder / attempt).remove()

    @contextlib.contextmanager
    def alone(self, what: str = "ingest") -> Iterator[bool]:
        """Context for a run of the kind `what`. The value is True if a lock ensures that no other run has the same kind
        of lock in the landing; maintenance, erasures, write-offs and conversions use that of `ingest`. In an object
        store, and on file systems without locks, the value is False: runs may be concurrent, and a commit that
        conflicts is refused (see `commit`).

        Raises LockedError at once, without a wait, if another run has the lock, even one of this process; KodoctlError
        (K573) if the folder of the landing on a disk, which is created if needed, cannot be written.
        """
        if self.root.local is None:
            yield False
            return
        self._make()
        with (self.root.local / (".lock" if what == "ingest" else f".lock-{what}")).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Whoever writes to the tables has that lock.
                who = "ingest, maintenance, erasure, write-off or conversion" if what == "ingest" else what
                detail = f"another {who} is running in {self.root.uri}: wait until it has ended"
                raise LockedError(error("K575", "another run is under way", detail)) from None
            except OSError:  # a file system without locks
                yield False
                return
            yield True


def must_be_free(landing: Landing, what: str = "ingest") -> None:
    """Raises LockedError if a run has the lock of the kind `what`, for commands that do something slow before they take
    it. In an object store, and on a file system without locks, that is unknown, and nothing is raised. Creates the
    folder of the landing on a disk. Raises KodoctlError as `Landing.alone` does.
    """
    with landing.alone(what):
        pass


def _rows_for_spark(commits: Sequence[LandingCommit]) -> int:
    """Returns the number of committed rows in the tables that Spark reads. Coverage and cursors, which grow with each
    run, are left out: this process reads them.
    """
    return sum(rows_of(commits, table) for table in (EVENTS, TRANSITIONS, *COUNTED))


def _are_few(files: Sequence[DataFile]) -> bool:
    return sum(one.rows for one in files) <= FEW and sum(one.size for one in files) <= _FEW_BYTES


def _check_path(uri: str) -> None:
    if found := sorted(_ELSEWHERE.intersection(uri)):
        detail = f"{uri}: with {' '.join(found)} in it Delta or Spark would look elsewhere: name another folder with --landing"
        raise KodoctlError(error("K573", "the landing cannot be used", detail))


def is_former(root: Storage) -> bool:
    """True if the landing at `root` has manifests, by which a former kodoctl listed its files."""
    return any(name.endswith(".json") and name != GUARD for name in (root / FORMER).files())


def guard(root: Storage) -> None:
    """Writes the file that makes a former kodoctl refuse the landing, unless it is there. Without it the ingest of a
    former kodoctl would remove all files that no manifest of its own names.
    """
    manifests = root / FORMER
    if GUARD not in manifests.files():
        manifests.write(GUARD, {"format": 2})


def _is_old(name: str) -> bool:
    """True if the name of a run shows that it began more than a day ago; False if the name shows no time."""
    start = RUN_TIME.search(name)
    return start is not None and datetime.strptime(f"{start[0]}+0000", "%Y%m%d-%H%M%S%z") < datetime.now(UTC) - _OLD


def must_hold(landing: Landing, typed: str, *, messages: bool = False) -> None:
    """Raises UsageError (K801) if no ingest was completed; with `messages`, if no message ever landed, whether or not
    an ingest was completed: a mistyped --landing or --env must not look like an empty cluster. `typed`: result of
    kodo_pipeline.landing.command_line.command_line, for hints. Starts no Spark, creates no folder. Raises KodoctlError
    as `Landing.commits` does.
    """
    commits = landing.commits()
    if holds_messages(commits) if messages else read_at(commits):
        return
    exception = " but one that was cut off" if commits and not messages else ""
    others = [] if commits else Storage(landing.root.uri.rpartition("/")[0]).folders()
    there = f"\nof this topology there is {', '.join(others)}: --env names the environment" if others else ""
    holds = "no messages" if messages else f"no run{exception}"
    detail = f"{landing.root.uri} holds {holds}{there}\nland first: kodoctl pipeline ingest {typed}"
    raise UsageError(error("K801", "nothing has landed", detail))


def must_be_same_namespace(landing: Landing, expansion: Expansion, commits: Sequence[LandingCommit]) -> None:
    """Raises KodoctlError (K590) if the landing has topics of another namespace than the topology's: two topology files
    with the same name use the same folder. Only the last completed ingest counts, without one the first that began;
    passes if that ingest recorded no topics, or if there was none.
    """
    landed = landed_namespace(commits)
    if landed not in (None, expansion.namespace):
        detail = (
            f"{landing.root.uri} has topics of {landed}, and {expansion.name} is in {expansion.namespace}: files of one name"
            " have the same folder below --landing\nname a landing of its own with --landing, or give the file a name of its own"
        )
        raise KodoctlError(error("K590", "the landing is of another namespace", detail))
