"""One Delta table of the landing, read and written by the Rust library `deltalake` instead of Spark: its files at one
version, and commits that add files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kodo_pipeline.landing.data_files import DataFile, of_add
from kodo_pipeline.landing.delta_format import check_format, delta_schema, may_lack, missing_columns
from kodo_pipeline.landing.file_store import STORE, Storage, way_in
from kodo_pipeline.landing.landing_dataset import dataset_of, rows_where
from kodo_pipeline.landing.tables import COMMITS, DATE, Table
from kodoctl.errors import KodoctlError, error
from kodoctl.host.private_files import make_folder
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

APPLICATION: Final = "kodoctl"  # of application transactions; their version is the number of a commit
REMOVED_ROWS: Final = "kodoctl-removed"  # likewise; its version is the number of rows that were removed so far
_METADATA: Final = "169.254.169.254"  # where a machine of a cloud asks for the keys of its role
REMOVED_DAYS: Final = 7  # so long the log names files that were replaced
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "20",  # commits that a reader reads one by one, at most
    # Each commit lists the log, and each checkpoint removes from it what is older and in a former checkpoint: whoever
    # lists it has so long to read what was in the list.
    "delta.logRetentionDuration": "interval 5 minutes",
}
_REMOVED: Final = "delta.deletedFileRetentionDuration"  # all that was replaced is in each checkpoint so long
TRIES: Final = 20  # of a commit that others come before
_AGAIN: Final = 2  # times that a log is listed again, from which somebody removed what was in the list
_MISSING: Final = "not found"  # what delta-rs says of a file that it does not find


class ConcurrentCommitError(Exception):
    """A commit to a Delta table was refused, because another writer committed first. The caller may read the table and
    try again; if a store repeated the caller's own request, the table has the commit already.
    """


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Files of a table at one version of its Delta log. `number`: number of the last commit of the landing whose files
    the table has, -1 if none; `removed`: number of rows that were removed from the table so far.
    """

    number: int
    files: tuple[DataFile, ...]
    removed: int = 0


class LandingTable:
    """One table of the landing, in its own folder below `landing`, for use by one thread. The constructor opens
    nothing. The methods raise KodoctlError: K573 if the store refuses an operation or other writers commit without end,
    K584 if another kodoctl, or another program, wrote the table in a format that is not supported.
    """

    def __init__(self, landing: Storage, table: Table) -> None:
        self.table = table
        self.folder = landing / table.name
        self._loaded: DeltaTable | None = None
        self._uri = self.folder.address

    def load(self) -> DeltaTable | None:
        """Opens the newest version of the table; None if there is no table. Each call updates and returns the same
        object. Raises KodoctlError (K584) if its format is not supported.
        """
        with self._report_errors():
            found = self._open()
            if found is not None:
                check_format(found, self.table, self.folder.uri)
            return found

    def _open(self, again: int = _AGAIN) -> DeltaTable | None:
        """Opens the table as `load` does, but with any columns. `again`: how often to retry if files of the log were
        deleted while it was read.
        """
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if self._loaded is None:
                self._loaded = deltalake.DeltaTable(self._uri, storage_options=STORE)
            else:
                self._loaded.update_incremental()  # reads what is new of the log
        except TableNotFoundError:
            return None
        except DeltaError as problem:
            if not again or _MISSING not in str(problem).lower():
                raise
            self._loaded = None
            return self._open(again - 1)
        return self._loaded

    def create(self) -> DeltaTable:
        """Opens the table, and creates an empty one first if there is none."""
        import deltalake

        if self.folder.local is not None:
            with self._report_errors():
                make_folder(self.folder.local)
        with suppress(ConcurrentCommitError), self._report_errors():  # it has been made meanwhile
            deltalake.DeltaTable.create(
                self._uri, self.table.delta(), mode="ignore", partition_by=list(self.table.partitions),
                name=self.table.name, description=self.table.about, configuration=_configuration(self.table), storage_options=STORE,
            )  # fmt: skip
        found = self.load()
        assert found is not None
        return found

    def add_columns(self) -> list[str]:
        """Adds columns that a table of an older kodoctl lacks, if all of them may be null, and returns their names; []
        if none is missing or there is no table. In existing rows they are null. Raises KodoctlError (K584) for any
        other difference in the format.
        """
        added: list[str] = []
        for _ in range(TRIES):
            with self._report_errors():
                found = self._open()
                missing = [] if found is None else missing_columns(found, self.table)
            if found is None or not missing or not may_lack(self.table, missing):
                self.load()
                return added
            fields = [one for one in delta_schema(self.table).fields if one.name in missing]
            with suppress(ConcurrentCommitError), self._report_errors():  # or somebody else adds them
                found.alter.add_columns(fields, commit_properties=_settings(retries=0))
                added = missing
        raise KodoctlError(error("K573", "the landing cannot be used", f"{self.folder.uri}: others commit without end"))

    def number(self) -> int:
        """Number of the last commit of the landing whose files this table has; -1 if none."""
        found = self.load()
        number = None if found is None else found.transaction_version(APPLICATION)
        return -1 if number is None else number

    def version(self) -> TableVersion:
        """Reads the table's log and returns the files of the newest version; no files if there is no table."""
        found = self.load()
        if found is None:
            return TableVersion(-1, ())
        with self._report_errors():
            files = tuple(of_add(row, self.table) for row in _rows(found.get_add_actions(flatten=True)))
            number, removed = (found.transaction_version(one) for one in (APPLICATION, REMOVED_ROWS))
        return TableVersion(-1 if number is None else number, files, removed or 0)

    def add(self, number: int, files: Sequence[DataFile], replaced: Sequence[str] | None) -> None:
        """Adds the files of the landing's commit `number` by one Delta commit (with `number` as its application
        transaction). Creates the table if there is none; does nothing if it has that number, or a later one, already.
        `replaced`: days (`date`) whose files are removed at the same time; []: all files are removed; None: no files
        are. If others commit first, it tries again, 20 times in all (TRIES), and then raises KodoctlError (K573).
        """
        for _ in range(TRIES):
            found = self.load() or self.create()
            if _has(found, number):
                return
            try:
                self._commit(found, number, files, replaced)
            except ConcurrentCommitError:
                continue
            return
        raise KodoctlError(error("K573", "the landing cannot be used", f"{self.folder.uri}: others commit without end"))

    def exchange(self, gone: Sequence[DataFile], files: Sequence[DataFile]) -> bool:
        """Replaces the files `gone` by `files` in one Delta commit. Returns False, and changes nothing, if one of
        `gone` is not in the table any more, because another writer replaced it. Returns True as well if all of `files`
        are in the table already, because a store may refuse the second try of a commit that succeeded.

        If `files` have fewer rows, the commit records the difference as removed, so that these rows do not count as
        lost. delta-rs must not try again by itself, because it would add rows twice.
        """
        removed = sum(one.rows for one in gone) - sum(one.rows for one in files)
        for _ in range(TRIES):
            found = self.load()
            now = self.version()
            paths = {one.path for one in now.files}
            if files and all(one.path in paths for one in files):
                return True
            if found is None or any(one.path not in paths for one in gone):
                return False
            change = removed > 0
            actions = [*(one.to_action(change=change) for one in files), *_removals(gone, change=change)]
            settings = _settings(0) if not change else _settings(0, {REMOVED_ROWS: now.removed + removed})
            with suppress(ConcurrentCommitError):
                self._write(found, actions, settings)
                return True
        raise KodoctlError(error("K573", "the landing cannot be used", f"{self.folder.uri}: others commit without end"))

    def tidy_log(self) -> None:
        """Writes a checkpoint of the Delta log, removes expired log entries, and sets the table properties that limit
        how long the log is kept. Does nothing without a table, and leaves the rest to the next call if another writer
        commits meanwhile.
        """
        found = self.load()
        if found is None:
            return
        with suppress(ConcurrentCommitError), self._report_errors():  # the next one does it
            known = found.metadata().configuration
            wanted = _configuration(self.table)
            if lacking := {name: value for name, value in wanted.items() if known.get(name) != value}:
                found.alter.set_table_properties(lacking, commit_properties=_settings(retries=0))
            found.create_checkpoint()
            found.cleanup_metadata()

    def replaced(self, hours: int = 0) -> list[str]:
        """Paths, relative to the table's folder, of files that were replaced at least `hours` ago, as far as the log
        still names them; [] if there is no table.
        """
        found = self.load()
        if found is None:
            return []
        with self._report_errors():
            return [unquote(one) for one in found.vacuum(hours, dry_run=True, enforce_retention_duration=False)]

    def replace_rows(self, rows: Sequence[dict[str, Any]], number: int) -> None:
        """Replaces all rows of the table, which has few, by `rows`, as the application transaction `number`; creates
        the table if there is none. Raises ConcurrentCommitError if another writer commits meanwhile, or if the table
        has that number, or a later one, already.
        """
        import deltalake
        import pyarrow as pa

        found = self.load() or self.create()
        if _has(found, number):
            raise ConcurrentCommitError
        made = pa.Table.from_pylist(list(rows), schema=self.table.delta())
        with self._report_errors():
            deltalake.write_deltalake(
                found, made, mode="overwrite", commit_properties=_numbered_commit(number, retries=0)
            )

    def rows(self, column: str | None = None, value: str = "") -> list[dict[str, Any]]:
        """Reads all rows, or those with `value` in `column`, into memory as dictionaries; [] if there is no table or no
        such row.
        """
        import pyarrow.compute as pc

        found = self.load()
        if found is None:
            return []
        with self._report_errors():
            wanted = None if column is None else pc.field(column) == value
            return list(rows_where(found.to_pyarrow_dataset(), wanted).to_pylist())

    def holds(self, files: Iterable[DataFile]) -> bool:
        """True if all of these files exist in the table's folder, which is listed once."""
        there = set(self.folder.files())
        return all(one.path in there for one in files)

    def damage(self, files: Iterable[DataFile]) -> list[str]:
        """Checks the files without opening them: a text for each file that is missing or has another size than the
        table records. Lists the folder once.
        """
        there = self.folder.written()
        found: list[str] = []
        for one in files:
            known = there.get(one.path)
            if known is None:
                found.append(f"{self.folder.uri}/{one.path} is gone, and its table names it")
            elif known.size != one.size:
                found.append(f"{self.folder.uri}/{one.path} has {known.size:,} of {many(one.size, 'byte')}")
        return found

    def rows_among(
        self, files: Sequence[DataFile], column: str, values: Iterable[str], same: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Rows of these files, as dictionaries in any order, whose `column` has one of `values` and whose other columns
        have the values in `same`. The files may be named by a commit of the landing only, and not be in the table yet.
        """
        import pyarrow.compute as pc

        wanted = pc.field(column).isin(list(values))
        for name, value in same.items():
            wanted &= pc.field(name) == value
        with self._report_errors():
            return list(rows_where(dataset_of(self.folder, self.table, files), wanted).to_pylist())

    def distinct(self, files: Sequence[DataFile], column: str, by: str) -> set[tuple[str, str]]:
        """Distinct pairs (value of `by`, value of `column`) in these files, without rows in which `column` is null.
        Only a few batches of rows are in memory at a time.
        """
        found: set[tuple[str, str]] = set()
        with self._report_errors():
            for batch in dataset_of(self.folder, self.table, files).to_batches(columns=[by, column]):
                if (rows := batch.filter(batch.column(column).is_valid())).num_rows:
                    found.update(zip(*(rows.column(name).to_pylist() for name in (by, column)), strict=True))
        return found

    def _commit(
        self, found: DeltaTable, number: int, files: Sequence[DataFile], replaced: Sequence[str] | None
    ) -> None:
        actions: list[Any] = [one.to_action() for one in files]
        if replaced is not None:
            gone = (of_add(row, self.table) for row in _rows(found.get_add_actions(flatten=True)))
            actions += _removals(one for one in gone if not replaced or one.partition.get(DATE) in replaced)
        self._write(found, actions, _numbered_commit(number, retries=0))

    def _write(self, found: DeltaTable, actions: list[Any], properties: CommitProperties) -> None:
        with self._report_errors():
            found.create_write_transaction(
                actions, "append", found.schema(), list(self.table.partitions), commit_properties=properties
            )

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError:
            raise ConcurrentCommitError from None
        except (DeltaError, OSError, ValueError) as problem:
            detail = f"{self.folder.uri}: {_plain_text(problem)}{way_in(self.folder.uri)}"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None


def _configuration(table: Table) -> dict[str, str]:
    """Properties of a table in Delta. Replaced files stay in the log of `commits` for a shorter time, because every
    commit replaces its one file and nobody uses an old one for long.
    """
    removed = "1 hours" if table is COMMITS else f"{REMOVED_DAYS} days"
    return {**_CONFIGURATION, _REMOVED: f"interval {removed}"}


def _has(found: DeltaTable, number: int) -> bool:
    known = found.transaction_version(APPLICATION)
    return known is not None and known >= number


def _numbered_commit(number: int, retries: int) -> CommitProperties:
    return _settings(retries, {APPLICATION: number})


def _settings(retries: int, numbers: Mapping[str, int] | None = None) -> CommitProperties:
    import deltalake

    transactions = [deltalake.Transaction(*one) for one in (numbers or {}).items()]
    return deltalake.CommitProperties(max_commit_retries=retries, app_transactions=transactions or None)


def _removals(files: Iterable[DataFile], *, change: bool = True) -> list[Any]:
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    return [RemoveAction(one.path, change, now, one.size, dict(one.partition)) for one in files]


def _rows(adds: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    return list(pa.table(adds).to_pylist())


def _plain_text(problem: Exception) -> str:
    """Text of an error of delta-rs, which draws arrows between causes, on one line."""
    lines = (line.replace("\x1b[31m↳\x1b[0m", "").strip() for line in str(problem).splitlines())
    text = ": ".join(line for line in lines if line)
    return f"no keys are in the environment, and this machine has no role: {text}" if _METADATA in text else text
