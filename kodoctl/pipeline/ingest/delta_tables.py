"""A Delta table of the landing, by the Rust `deltalake`: its files at one version, and commits that add files. Spark has
no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kodoctl.errors import KodoctlError, error
from kodoctl.pipeline.ingest.data_files import DataFile, of_add
from kodoctl.pipeline.ingest.file_store import ALIASES, Storage, way_in
from kodoctl.pipeline.ingest.landing_dataset import dataset_of
from kodoctl.pipeline.ingest.tables import DATE, Table

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

APPLICATION: Final = "kodoctl"  # of application transactions; their version is the number of a commit
STORE: Final = {"AWS_ALLOW_HTTP": "true"}  # the environment names the endpoint, and http:// only on purpose
_METADATA: Final = "169.254.169.254"  # where a machine of a cloud asks for the keys of its role
REMOVED_DAYS: Final = 7  # so long the log names files that were replaced
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "20",  # commits that a reader reads one by one, at most
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": f"interval {REMOVED_DAYS} days",
}
TRIES: Final = 20  # of a commit that others come before
_READER, _WRITER, _FEATURES_SINCE = 1, 2, (3, 7)
_FEATURES: Final = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""Protocol of a table that we can read, and features of the later protocol that change nothing for us. We read data files
by ourselves: a feature that says how to read them, such as deletionVectors, we must not pass over.
"""


class ConcurrentCommitError(Exception):
    """Somebody else's commit came first."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Files of a table at one version; `number`: of the last commit of ours that it has, -1 before the first."""

    number: int
    files: tuple[DataFile, ...]


class LandingTable:
    """One table below the landing. Raises KodoctlError: K573 for what the store refuses, K584 for a table that
    another kodoctl, or another writer, made so that we cannot read it.
    """

    def __init__(self, landing: Storage, table: Table) -> None:
        self.table = table
        self.folder = landing / table.name
        self._loaded: DeltaTable | None = None
        self._uri = next(
            (self.folder.uri.replace(old, new, 1) for old, new in ALIASES.items() if self.folder.uri.startswith(old)),
            self.folder.uri,
        )

    def load(self) -> DeltaTable | None:
        """The table at its newest version; None where there is none."""
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        with self._reported():
            if self._loaded is None:
                try:
                    self._loaded = deltalake.DeltaTable(self._uri, storage_options=STORE)
                except TableNotFoundError:
                    return None
            else:
                self._loaded.update_incremental()  # reads what is new of the log
            self._check(self._loaded)
            return self._loaded

    def create(self) -> DeltaTable:
        """An empty table where there is none."""
        import deltalake

        if self.folder.local is not None:
            with self._reported():
                self.folder.local.mkdir(parents=True, exist_ok=True)
        with suppress(ConcurrentCommitError), self._reported():  # it has been made meanwhile
            deltalake.DeltaTable.create(
                self._uri, self.table.delta(), mode="ignore", partition_by=list(self.table.partitions),
                name=self.table.name, description=self.table.about, configuration=_CONFIGURATION, storage_options=STORE,
            )  # fmt: skip
        found = self.load()
        assert found is not None
        return found

    def number(self) -> int:
        """Of the last commit of ours that it has; -1 before the first."""
        found = self.load()
        number = None if found is None else found.transaction_version(APPLICATION)
        return -1 if number is None else number

    def version(self) -> TableVersion:
        """Its files now; none where there is no table."""
        found = self.load()
        if found is None:
            return TableVersion(-1, ())
        with self._reported():
            files = tuple(of_add(row, self.table) for row in _rows(found.get_add_actions(flatten=True)))
            number = found.transaction_version(APPLICATION)
        return TableVersion(-1 if number is None else number, files)

    def add(self, number: int, files: Sequence[DataFile], replaced: Sequence[str] | None) -> None:
        """Adds files by a commit that is application transaction `number`; nothing if the table has it already.
        `replaced`: days whose files go in the same commit; an empty list: all files; None: none.
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
        """Replaces files by others with the same rows, by one commit; False, and nothing is done, if one of them is there no
        more: somebody else replaced it. delta-rs, left to try again by itself, would add the same rows twice. A store
        may refuse the second try of what the first one did: then the others are there.
        """
        for _ in range(TRIES):
            found = self.load()
            paths = {one.path for one in self.version().files}
            if files and all(one.path in paths for one in files):
                return True
            if found is None or any(one.path not in paths for one in gone):
                return False
            actions = [*(one.to_action(change=False) for one in files), *_removals(gone, change=False)]
            with suppress(ConcurrentCommitError):
                self._write(found, actions, _settings(retries=0))
                return True
        raise KodoctlError(error("K573", "the landing cannot be used", f"{self.folder.uri}: others commit without end"))

    def tidy_log(self) -> None:
        """Makes a checkpoint, removes what the log keeps longer than it has to, and has it keep no longer from now on."""
        found = self.load()
        if found is None:
            return
        with suppress(ConcurrentCommitError), self._reported():  # the next one does it
            known = found.metadata().configuration
            if lacking := {name: value for name, value in _CONFIGURATION.items() if known.get(name) != value}:
                found.alter.set_table_properties(lacking, commit_properties=_settings(retries=0))
            found.create_checkpoint()
            found.cleanup_metadata()

    def replaced(self, hours: int = 0) -> list[str]:
        """Files that were replaced so long ago, by their paths, of those that the log still names."""
        found = self.load()
        if found is None:
            return []
        with self._reported():
            return [unquote(one) for one in found.vacuum(hours, dry_run=True, enforce_retention_duration=False)]

    def replace_rows(self, rows: Sequence[dict[str, Any]], number: int) -> None:
        """Replaces all rows, which are few. Raises ConcurrentCommitError if the table has changed since it was read, or
        has commit `number`.
        """
        import deltalake
        import pyarrow as pa

        found = self.load() or self.create()
        if _has(found, number):
            raise ConcurrentCommitError
        made = pa.Table.from_pylist(list(rows), schema=self.table.delta())
        with self._reported():
            deltalake.write_deltalake(found, made, mode="overwrite", commit_properties=_numbered(number, retries=0))

    def rows(self, column: str | None = None, value: str = "") -> list[dict[str, Any]]:
        """All rows, or those with the value, read by Arrow; none where there is no table."""
        import pyarrow.compute as pc

        found = self.load()
        if found is None:
            return []
        with self._reported():
            wanted = None if column is None else pc.field(column) == value
            return list(found.to_pyarrow_dataset().to_table(filter=wanted).to_pylist())

    def holds(self, files: Iterable[DataFile]) -> bool:
        """True if all of these files are there."""
        there = set(self.folder.files())
        return all(one.path in there for one in files)

    def rows_among(
        self, files: Sequence[DataFile], column: str, values: Iterable[str], same: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Rows of these files whose column has one of the values, and others the `same` ones, in any order. A file counts
        when a commit of the landing names it, also where it was not added to the table yet.
        """
        import pyarrow.compute as pc

        wanted = pc.field(column).isin(list(values))
        for name, value in same.items():
            wanted &= pc.field(name) == value
        with self._reported():
            return list(dataset_of(self.folder, self.table, files).to_table(filter=wanted).to_pylist())

    def _commit(
        self, found: DeltaTable, number: int, files: Sequence[DataFile], replaced: Sequence[str] | None
    ) -> None:
        actions: list[Any] = [one.to_action() for one in files]
        if replaced is not None:
            gone = (of_add(row, self.table) for row in _rows(found.get_add_actions(flatten=True)))
            actions += _removals(one for one in gone if not replaced or one.partition.get(DATE) in replaced)
        self._write(found, actions, _numbered(number, retries=None if replaced is None else 0))

    def _write(self, found: DeltaTable, actions: list[Any], properties: CommitProperties) -> None:
        with self._reported():
            found.create_write_transaction(
                actions, "append", found.schema(), list(self.table.partitions), commit_properties=properties
            )

    def _check(self, found: DeltaTable) -> None:
        protocol = found.protocol()
        reader, writer = protocol.min_reader_version, protocol.min_writer_version
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _FEATURES
        if features or not _plain(reader, writer):
            asks = f"reader {reader}, writer {writer}" + (f", {', '.join(sorted(features))}" if features else "")
            raise self._other(f"its Delta protocol ({asks}) is newer than this kodoctl's")
        ours = {one.name: one.type for one in _delta_schema(self.table).fields}
        theirs = {one.name: one.type for one in found.schema().fields}
        if unknown := sorted(theirs.keys() - ours.keys()):
            raise self._other(f"it has {', '.join(unknown)}, which a newer kodoctl wrote")
        if missing := sorted(ours.keys() - theirs.keys()):
            raise self._other(f"it has no {', '.join(missing)}: an older kodoctl, or something else, made it")
        if changed := sorted(name for name, kind in ours.items() if theirs[name] != kind):
            raise self._other(
                f"its {', '.join(changed)} are of another type: another kodoctl, or something else, made it"
            )
        if sorted(found.metadata().partition_columns) != sorted(self.table.partitions):
            raise self._other("it has other partition columns")

    def _other(self, why: str) -> KodoctlError:
        detail = f"{self.folder.uri}: {why}; use the kodoctl that wrote it, or land elsewhere with --landing"
        return KodoctlError(error("K584", "the landing has another format", detail))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError:
            raise ConcurrentCommitError from None
        except (DeltaError, OSError, ValueError) as problem:
            detail = f"{self.folder.uri}: {_plain_text(problem)}{way_in(self.folder.uri)}"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None


def _plain(reader: int, writer: int) -> bool:
    since_reader, since_writer = _FEATURES_SINCE
    return reader in {_READER, since_reader} and (writer <= _WRITER or writer == since_writer)


def _has(found: DeltaTable, number: int) -> bool:
    known = found.transaction_version(APPLICATION)
    return known is not None and known >= number


def _numbered(number: int, retries: int | None = None) -> CommitProperties:
    import deltalake

    return deltalake.CommitProperties(
        max_commit_retries=retries, app_transactions=[deltalake.Transaction(APPLICATION, number)]
    )


def _settings(retries: int) -> CommitProperties:
    import deltalake

    return deltalake.CommitProperties(max_commit_retries=retries)


def _removals(files: Iterable[DataFile], *, change: bool = True) -> list[Any]:
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    return [RemoveAction(one.path, change, now, one.size, dict(one.partition)) for one in files]


def _rows(adds: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    return list(pa.table(adds).to_pylist())


def _delta_schema(table: Table) -> Any:
    from deltalake import Schema

    return Schema.from_arrow(table.delta())


def _plain_text(problem: Exception) -> str:
    """Words of delta-rs, which draws arrows between causes, on one line."""
    lines = (line.replace("\x1b[31m↳\x1b[0m", "").strip() for line in str(problem).splitlines())
    text = ": ".join(line for line in lines if line)
    return f"no keys are in the environment, and this machine has no role: {text}" if _METADATA in text else text
